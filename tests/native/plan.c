/* Evaluates plans: what a device shows at a time, what is there, and what befalls a call.
 *
 * Build with -ffp-contract=off: results are then equal to the last bit to those in Python.
 */
#define _GNU_SOURCE
#include "plan_model.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double plan_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double plan_now(void) { return plan_clock() - plan->epoch; }

/* ---- evaluation ---- */

static int open_at(const window *w, double t)
{
    if (t < w->from || t >= w->to) return 0;
    return w->every <= 0 || fmod(t - w->from, w->every) < w->lasting;
}

/* Last index in start[0..count) that is <= x; start[0] is 0. */
static size_t segment_at(const double *start, size_t count, double x)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (start[middle] <= x) low = middle; else high = middle;
    }
    return low;
}

/* Splits the time t into whole periods (returned) and the segment and area within. */
static double locate(const track *k, double t, size_t *index, double *area)
{
    double laps = 0, x = t > 0 ? t : 0;
    size_t base = 0, count = k->prefix;
    double before = 0;
    if (x >= k->prefix_seconds) {
        x -= k->prefix_seconds;
        laps = floor(x / k->period_seconds);
        x -= laps * k->period_seconds;
        if (x < 0) x = 0;
        base = k->prefix;
        count = k->period;
        before = k->prefix_area;
    }
    size_t i = base + segment_at(k->start + base, count, x);
    *index = i;
    *area = before + (k->level[i].area + k->level[i].value * (x - k->start[i]));
    return laps;
}

static double track_value(const track *k, double t)
{
    size_t i;
    double area;
    locate(k, t, &i, &area);
    return k->level[i].value;
}

static double track_integral(const track *k, double t)
{
    size_t i;
    double area, laps = locate(k, t, &i, &area);
    return laps * k->period_area + area;
}

static double track_between(const track *k, double a, double b)
{
    size_t i;
    double area_a, area_b, laps_a = locate(k, a, &i, &area_a), laps_b = locate(k, b, &i, &area_b);
    return (laps_b - laps_a) * k->period_area + (area_b - area_a);
}

static double last_update(double t, double period)
{
    if (t <= 0) return 0;
    return period > 0 ? fmin(t, floor(t / period) * period) : t;
}

static double track_mean(const track *k, double t, double window, double period)
{
    double end = last_update(t, period);
    if (window > end) window = end;
    return window > 0 ? track_between(k, end - window, end) / window : track_value(k, end);
}

const track *plan_track(const plan_device *d, const char *name)
{
    for (size_t i = 0; i < d->track_count; i++)
        if (!strcmp(d->tracks[i].name, name)) return &d->tracks[i];
    return NULL;
}

static int overridden(const plan_device *d, const char *name, double t, double *value)
{
    for (size_t i = 0; i < d->override_count; i++)
        if (!strcmp(d->overrides[i].name, name) && open_at(&d->overrides[i].window, t)) {
            *value = d->overrides[i].value;
            return 1;
        }
    return 0;
}

static const property *find(const plan_set *set, const char *name)
{
    property wanted = {.name = name};
    return set->count ? bsearch(&wanted, set->items, set->count, sizeof wanted, plan_property_order) : NULL;
}

const char *plan_text(const plan_set *set, const char *name)
{
    const property *p = set ? find(set, name) : NULL;
    return p ? p->text : NULL;
}

int plan_number(const plan_set *set, const char *name, double *value)
{
    const property *p = set ? find(set, name) : NULL;
    if (!p || !p->numeric) return 0;
    *value = p->number;
    return 1;
}

int plan_signal(const plan_device *d, const char *name, double t, double *value)
{
    if (!d) return 0;
    if (d->override_count && overridden(d, name, t, value)) return 1;
    reading wanted = {.name = name};
    const reading *r = d->reading_count ? bsearch(&wanted, d->readings, d->reading_count, sizeof wanted, plan_reading_order) : NULL;
    if (!r) return plan_number(&d->set, name, value);
    const track *k = &d->tracks[r->track];
    if (r->kind == TRACK) *value = track_value(k, t);
    else if (r->kind == MEAN) *value = track_mean(k, t, r->a, r->b);
    else *value = r->a + track_integral(k, t);
    return 1;
}

double plan_energy(const plan_device *d, double t)
{
    const track *k = plan_track(d, "power_watts");
    return d->energy_offset + (k ? track_integral(k, t) : 0);
}

double plan_power(const plan_device *d, double t, double window, double period)
{
    double value;
    if (d->override_count && overridden(d, "power_watts", t, &value)) return value;
    const track *k = plan_track(d, "power_watts");
    return k ? track_mean(k, t, window, period) : 0;
}

/* `shown`: in the place of another device, and then not replaced by a third. */
static int accumulated(const plan_device *d, int slot, double t, double *joules, int shown)
{
    const accumulator *a = &d->accumulators[slot];
    if (!a->count) return 0;
    for (size_t i = 0; i < d->replacement_count; i++) {
        const replacement *r = &d->replacements[i];
        if (r->slot != slot || (shown && r->device >= 0) || !open_at(&r->window, t)) continue;
        if (r->device >= 0) return (size_t)r->device < plan->count && accumulated(&plan->devices[r->device], slot, t, joules, 1);
        *joules = r->value;
        return !isnan(r->value);   /* not a number: none for now */
    }
    double u = last_update(t, a->period);
    size_t i = a->count;
    while (i > 1 && a->segments[i - 1].start > u) i--;
    const segment *s = &a->segments[i - 1];
    double raw = s->base + s->factor * (track_integral(&d->tracks[a->track], u) - s->energy);
    *joules = floor(raw / a->resolution) * a->resolution;
    return 1;
}

int plan_counter(const plan_device *d, double t, double *joules)
{
    return accumulated(d, 0, t, joules, 0);
}

int plan_module_counter(const plan_device *d, double t, double *joules) { return accumulated(d, 1, t, joules, 0); }

double plan_counter_time(const plan_device *d, double t) { return last_update(t, d->accumulators[0].period); }

/* ---- what is there ---- */

const plan_set *plan_machine(void) { return &plan->machine.set; }

static int suffers(const plan_device *d, int kind)
{
    for (size_t i = 0; i < d->fault_count; i++)
        if (d->faults[i].kind == kind && open_at(&d->faults[i].window, plan_moment)) return 1;
    return 0;
}

static int removed(const plan_device *d) { return suffers(d, REMOVED); }

int plan_asleep(const plan_device *d) { return suffers(d, ASLEEP); }

int plan_count(const char *vendor)
{
    int n = 0;
    for (size_t i = 0; i < plan->count; i++) n += !strcmp(plan->devices[i].vendor, vendor) && !removed(&plan->devices[i]);
    return n;
}

const plan_device *plan_device_at(const char *vendor, int index)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!strcmp(plan->devices[i].vendor, vendor) && !removed(&plan->devices[i]) && index-- == 0) return &plan->devices[i];
    return NULL;
}

static _Thread_local const plan_device *found;
static _Thread_local const char *found_by, *found_value;

const plan_device *plan_find(const char *vendor, const char *name, const char *value)
{
    /* Nearly always the one of the call before: a search among 64 devices costs more than what is asked for. */
    if (found && !strcmp(found_by, name) && !strcmp(found_value, value) && !strcmp(found->vendor, vendor) && !removed(found))
        return found;
    for (size_t i = 0; i < plan->count; i++) {
        const plan_device *d = &plan->devices[i];
        const char *text = strcmp(d->vendor, vendor) ? NULL : plan_text(&d->set, name);
        if (!text || strcmp(text, value) || removed(d)) continue;
        found_value = text;
        found_by = name;
        return found = d;
    }
    return NULL;
}

const plan_set *plan_properties(const plan_device *d) { return d ? &d->set : NULL; }

/* Those of one kind that exist at the last refresh: kept, else 5,000 processes cost 5,000^2. */
static _Thread_local struct {
    const plan_device *of;
    const char *kind;
    double at;
    const plan_set **rows;
    size_t count, room;
} present;

int plan_rows(const plan_device *device, const char *kind)
{
    if (present.of == device && present.at == plan_moment && !strcmp(present.kind, kind)) return (int)present.count;
    present.count = 0;
    present.of = NULL;
    if (present.room < device->row_count) {
        free(present.rows);
        present.rows = calloc(present.room = device->row_count, sizeof *present.rows);
        if (!present.rows) abort();
    }
    for (size_t i = 0; i < device->row_count; i++)
        if (!strcmp(device->rows[i].kind, kind)) {
            present.kind = device->rows[i].kind;
            present.of = device;
            present.at = plan_moment;
            if (open_at(&device->rows[i].window, plan_moment)) present.rows[present.count++] = &device->rows[i].set;
        }
    return (int)present.count;
}

const plan_set *plan_row(const plan_device *device, const char *kind, int index)
{
    return index >= 0 && index < plan_rows(device, kind) ? present.rows[index] : NULL;
}

void plan_changed(void)
{
    found = NULL;
    present.of = NULL;
}

/* ---- faults ---- */

static int meant(const fault *f, const char *call)
{
    size_t n = strlen(f->call);
    if (n && f->call[n - 1] == '*') return !strncmp(f->call, call, n - 1);
    return !strcmp(f->call, call);
}

static void sleep_until(double t)
{
    for (double left; (left = t - plan_now()) > 0;) {
        struct timespec pause = {(time_t)left, (long)((left - floor(left)) * 1e9)};
        nanosleep(&pause, NULL);
    }
}

/* A call into a driver that does not answer: it ends with its window, and signals that are handled do not end it. */
static void hang(const window *w, double t)
{
    double end = w->every > 0 ? t - fmod(t - w->from, w->every) + w->lasting : w->to;
    if (end > w->to) end = w->to;
    if (isinf(end))
        for (;;) pause();
    sleep_until(end);
}

/* Printed by the library itself, past every stream of the program. */
static void flood(size_t bytes)
{
    static const char line[] = "the library is talkative, and says the same again and again and again\n";
    for (int out = 1; out <= 2; out++)
        for (size_t written = 0; written < bytes; written += sizeof line - 1)
            if (write(out, line, sizeof line - 1) < 0) break;
}

static void leak_memory(size_t bytes)
{
    volatile char *lost = malloc(bytes);
    for (size_t i = 0; lost && i < bytes; i += 4096) lost[i] = 1;   /* a page counts once it is touched */
}

static void leak_descriptor(void)
{
    int lost = open("/dev/null", O_RDONLY | O_CLOEXEC);   /* fails when there are too many: then nothing leaks */
    (void)lost;
}

static _Thread_local int raw_wanted;
static _Thread_local uint64_t raw_bits;

static int apply(const plan_device *d, const char *call)
{
    int status = 0;
    for (size_t i = 0; i < d->fault_count; i++) {
        const fault *f = &d->faults[i];
        double t = plan_now();
        if (!open_at(&f->window, t) || !meant(f, call)) continue;
        if (f->kind == DELAY) sleep_until(t + f->seconds);
        else if (f->kind == HANG) hang(&f->window, t);
        else if (f->kind == CRASH) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        } else if (f->kind == EXIT) exit(f->status);
        else if (f->kind == ABORT) abort();
        else if (f->kind == FLOOD) flood(f->bytes);
        else if (f->kind == LEAK_MEMORY) leak_memory(f->bytes);
        else if (f->kind == LEAK_DESCRIPTORS) leak_descriptor();
        else if (f->kind == RAW) {
            raw_wanted = 1;
            raw_bits = f->raw;
        } else if (!status) status = f->status;
    }
    return status;
}

int plan_fault(const plan_device *device, const char *call)
{
    raw_wanted = 0;
    int status = plan->machine.fault_count ? apply(&plan->machine, call) : 0;
    return status || !device ? status : apply(device, call);
}

int plan_raw(uint64_t *bits)
{
    if (raw_wanted) *bits = raw_bits;
    return raw_wanted;
}
