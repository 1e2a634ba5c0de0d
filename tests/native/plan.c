/* Reads and evaluates plans; the text form is written by tests/native/plan.py, one item a line:
 *
 *   plan 1                                  first line
 *   epoch SECONDS                           CLOCK_MONOTONIC at the plan's time zero
 *   machine | device VENDOR                 what follows belongs to it
 *   x NAME TEXT                             text property (\\ and \n escaped)
 *   n NAME NUMBER                           number
 *   t NAME PREFIX PERIOD (SECONDS VALUE)..  track: PREFIX segments once, then PERIOD segments for ever
 *   m NAME TRACK WINDOW PERIOD              reading: mean of a track, as a sensor takes it
 *   i NAME TRACK START                      reading: integral of a track
 *   o NAME <window> VALUE                   reading replaced while the window is open
 *   e JOULES                                added to the integral of power_watts
 *   a SLOT TRACK PERIOD RESOLUTION COUNT (START BASE ENERGY FACTOR)..   accumulator: 0 the device's, 1 the module's
 *   v SLOT <window> VALUE DEVICE            accumulator replaced: by VALUE, or by that of DEVICE when it is not -1
 *   f KIND CALL <window> STATUS SECONDS     fault
 *   row KIND <window>                       x and n that follow belong to the row
 *
 * <window> is FROM TO EVERY LASTING in seconds since the epoch: open from FROM until TO, and when EVERY is not 0 only
 * for LASTING seconds of each EVERY.
 *
 * Build with -ffp-contract=off: results are then equal to the last bit to those in Python.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct { double from, to, every, lasting; } window;
typedef struct { const char *name; const char *text; double number; int numeric; } property;
struct plan_set { property *items; size_t count; };

typedef struct {
    const char *name;
    size_t prefix, period;     /* segments */
    double *start;             /* of each segment; those of the period count from its own beginning */
    double *area;              /* integral up to each segment, likewise */
    double *value;
    double prefix_seconds, prefix_area, period_seconds, period_area;
} track;

enum { TRACK, MEAN, INTEGRAL };
typedef struct { const char *name; int kind; size_t track; double a, b; } reading;
typedef struct { const char *name; window window; double value; } override;
typedef struct { double start, base, energy, factor; } segment;
typedef struct { int slot; window window; double value; long device; } replacement;
typedef struct { size_t track; double period, resolution; segment *segments; size_t count; } accumulator;
enum { HANG, CRASH, DELAY, ERROR, LOST, REMOVED };
typedef struct { int kind; const char *call; window window; int status; double seconds; } fault;
typedef struct { const char *kind; window window; plan_set set; } row;

struct plan_device {
    const char *vendor;
    plan_set set;
    track *tracks; size_t track_count;
    reading *readings; size_t reading_count;
    override *overrides; size_t override_count;
    accumulator accumulators[2];
    replacement *replacements; size_t replacement_count;
    fault *faults; size_t fault_count;
    row *rows; size_t row_count;
    double energy_offset;
    const plan_set **present; size_t present_count; const char *present_kind; double present_at;
};

typedef struct block { struct block *next; } block;
static struct {
    block *blocks;
    plan_device machine;
    plan_device *devices;
    size_t count;
    double epoch;
    int loaded;
    struct stat seen;
} plan;
static double moment;   /* of the last refresh */

/* Memory of a plan is freed as a whole when the plan is replaced. */
static void *keep(size_t bytes)
{
    block *b = calloc(1, sizeof(block) + bytes);
    if (!b) abort();
    b->next = plan.blocks;
    plan.blocks = b;
    return b + 1;
}

static void *grow(void *old, size_t count, size_t size)
{
    if (count & (count - 1)) return old;   /* full at powers of two only */
    void *new = keep((count ? 2 * count : 1) * size);
    if (count) memcpy(new, old, count * size);
    return new;
}

static void forget(void)
{
    while (plan.blocks) {
        block *next = plan.blocks->next;
        free(plan.blocks);
        plan.blocks = next;
    }
    memset(&plan, 0, sizeof plan);
}

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double plan_now(void) { return clock_now() - plan.epoch; }

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
    *area = before + (k->area[i] + k->value[i] * (x - k->start[i]));
    return laps;
}

static double track_value(const track *k, double t)
{
    size_t i;
    double area;
    locate(k, t, &i, &area);
    return k->value[i];
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
    return period > 0 ? floor(t / period) * period : t;
}

static double track_mean(const track *k, double t, double window, double period)
{
    double end = last_update(t, period);
    if (window > end) window = end;
    return window > 0 ? track_between(k, end - window, end) / window : track_value(k, end);
}

static const track *track_named(const plan_device *d, const char *name)
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

static int reading_order(const void *a, const void *b)
{
    return strcmp(((const reading *)a)->name, ((const reading *)b)->name);
}

static int property_order(const void *a, const void *b)
{
    return strcmp(((const property *)a)->name, ((const property *)b)->name);
}

static const property *find(const plan_set *set, const char *name)
{
    property wanted = {.name = name};
    return set->count ? bsearch(&wanted, set->items, set->count, sizeof wanted, property_order) : NULL;
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
    const reading *r = d->reading_count ? bsearch(&wanted, d->readings, d->reading_count, sizeof wanted, reading_order) : NULL;
    if (!r) return plan_number(&d->set, name, value);
    const track *k = &d->tracks[r->track];
    if (r->kind == TRACK) *value = track_value(k, t);
    else if (r->kind == MEAN) *value = track_mean(k, t, r->a, r->b);
    else *value = r->a + track_integral(k, t);
    return 1;
}

double plan_energy(const plan_device *d, double t)
{
    const track *k = track_named(d, "power_watts");
    return d->energy_offset + (k ? track_integral(k, t) : 0);
}

double plan_power(const plan_device *d, double t, double window, double period)
{
    double value;
    if (d->override_count && overridden(d, "power_watts", t, &value)) return value;
    const track *k = track_named(d, "power_watts");
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
        if (r->device >= 0) return (size_t)r->device < plan.count && accumulated(&plan.devices[r->device], slot, t, joules, 1);
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

/* ---- reading the text ---- */

static char *word(char **at)
{
    char *s = *at;
    while (*s == ' ') s++;
    char *end = s;
    while (*end && *end != ' ') end++;
    if (*end) *end++ = 0;
    *at = end;
    return s;
}

static double number(char **at)
{
    char *end;
    double v = strtod(*at, &end);
    *at = end;
    return v;
}

static window read_window(char **at)
{
    window w;
    w.from = number(at);
    w.to = number(at);
    w.every = number(at);
    w.lasting = number(at);
    return w;
}

static char *unescape(char *s)
{
    char *out = s;
    for (char *in = s; *in; in++) {
        if (*in == '\\' && in[1]) {
            in++;
            *out++ = *in == 'n' ? '\n' : *in;
        } else {
            *out++ = *in;
        }
    }
    *out = 0;
    return s;
}

static void put(plan_set *set, const char *name, const char *text, int numeric)
{
    set->items = grow(set->items, set->count, sizeof(property));
    set->items[set->count++] = (property){name, text, numeric ? strtod(text, NULL) : 0, numeric};
}

static void read_track(plan_device *d, char *at)
{
    track k = {.name = word(&at)};
    k.prefix = (size_t)number(&at);
    k.period = (size_t)number(&at);
    size_t n = k.prefix + k.period;
    k.start = keep(n * sizeof(double));
    k.area = keep(n * sizeof(double));
    k.value = keep(n * sizeof(double));
    double seconds = 0, area = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == k.prefix) {
            k.prefix_seconds = seconds;
            k.prefix_area = area;
            seconds = area = 0;
        }
        k.start[i] = seconds;
        k.area[i] = area;
        double lasts = number(&at);
        k.value[i] = number(&at);
        seconds += lasts;
        area += k.value[i] * lasts;
    }
    k.period_seconds = seconds;
    k.period_area = area;
    d->tracks = grow(d->tracks, d->track_count, sizeof k);
    d->tracks[d->track_count++] = k;
    d->readings = grow(d->readings, d->reading_count, sizeof(reading));
    d->readings[d->reading_count++] = (reading){k.name, TRACK, d->track_count - 1, 0, 0};
}

static size_t track_index(const plan_device *d, const char *name)
{
    const track *k = track_named(d, name);
    return k ? (size_t)(k - d->tracks) : 0;
}

static void read_reading(plan_device *d, char *at, int kind)
{
    reading r = {.name = word(&at), .kind = kind};
    r.track = track_index(d, word(&at));
    r.a = number(&at);
    if (kind == MEAN) r.b = number(&at);
    for (size_t i = 0; i < d->reading_count; i++)   /* a sensor's reading of a track replaces the bare track */
        if (!strcmp(d->readings[i].name, r.name)) {
            d->readings[i] = r;
            return;
        }
    d->readings = grow(d->readings, d->reading_count, sizeof r);
    d->readings[d->reading_count++] = r;
}

static void read_accumulator(plan_device *d, char *at)
{
    accumulator *a = &d->accumulators[number(&at) != 0];
    while (*at == ' ') at++;
    a->track = track_index(d, word(&at));
    a->period = number(&at);
    a->resolution = number(&at);
    a->count = (size_t)number(&at);
    a->segments = keep((a->count + 1) * sizeof(segment));
    for (size_t i = 0; i < a->count; i++) {
        segment *s = &a->segments[i];
        s->start = number(&at);
        s->base = number(&at);
        s->energy = number(&at);
        s->factor = number(&at);
    }
}

static void read_replacement(plan_device *d, char *at)
{
    replacement r = {.slot = number(&at) != 0};
    r.window = read_window(&at);
    r.value = number(&at);
    r.device = (long)number(&at);
    d->replacements = grow(d->replacements, d->replacement_count, sizeof r);
    d->replacements[d->replacement_count++] = r;
}

static int fault_kind(const char *name)
{
    static const char *const names[] = {"hang", "crash", "delay", "error", "lost", "removed"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static int read_fault(plan_device *d, char *at)
{
    fault f = {.kind = fault_kind(word(&at))};
    if (f.kind < 0) return -1;
    f.call = word(&at);
    f.window = read_window(&at);
    f.status = (int)number(&at);
    f.seconds = number(&at);
    d->faults = grow(d->faults, d->fault_count, sizeof f);
    d->faults[d->fault_count++] = f;
    return 0;
}

static void sort_sets(plan_device *d)
{
    if (d->set.count) qsort(d->set.items, d->set.count, sizeof(property), property_order);
    if (d->reading_count) qsort(d->readings, d->reading_count, sizeof(reading), reading_order);
    for (size_t i = 0; i < d->row_count; i++)
        if (d->rows[i].set.count) qsort(d->rows[i].set.items, d->rows[i].set.count, sizeof(property), property_order);
    d->present = keep((d->row_count + 1) * sizeof *d->present);
}

static int parse(char *text)
{
    if (strncmp(text, "plan 1\n", 7)) return -1;
    plan_device *d = &plan.machine;
    plan_set *set = &d->set;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *at = line, *what = word(&at);
        if (line == text) continue;
        if (!strcmp(what, "epoch")) {
            plan.epoch = number(&at);
        } else if (!strcmp(what, "machine")) {
            set = &d->set;
        } else if (!strcmp(what, "device")) {
            plan.devices = grow(plan.devices, plan.count, sizeof *d);
            d = &plan.devices[plan.count++];
            memset(d, 0, sizeof *d);
            d->vendor = word(&at);
            set = &d->set;
        } else if (!strcmp(what, "row")) {
            d->rows = grow(d->rows, d->row_count, sizeof(row));
            row *r = &d->rows[d->row_count++];
            r->kind = word(&at);
            r->window = read_window(&at);
            set = &r->set;
        } else if (!strcmp(what, "x") || !strcmp(what, "n")) {
            char *name = word(&at);
            put(set, name, *what == 'x' ? unescape(at) : at, *what == 'n');
        } else if (!strcmp(what, "t")) {
            read_track(d, at);
        } else if (!strcmp(what, "m")) {
            read_reading(d, at, MEAN);
        } else if (!strcmp(what, "i")) {
            read_reading(d, at, INTEGRAL);
        } else if (!strcmp(what, "o")) {
            override o = {.name = word(&at)};
            o.window = read_window(&at);
            o.value = number(&at);
            d->overrides = grow(d->overrides, d->override_count, sizeof o);
            d->overrides[d->override_count++] = o;
        } else if (!strcmp(what, "e")) {
            d->energy_offset = number(&at);
        } else if (!strcmp(what, "a")) {
            read_accumulator(d, at);
        } else if (!strcmp(what, "v")) {
            read_replacement(d, at);
        } else if (!strcmp(what, "f")) {
            if (read_fault(d, at)) return -1;
        } else if (*what) {
            return -1;
        }
    }
    sort_sets(&plan.machine);
    for (size_t i = 0; i < plan.count; i++) sort_sets(&plan.devices[i]);
    return 0;
}

static char *whole_file(int fd, size_t size)
{
    char *text = keep(size + 1);
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return NULL;
        got += (size_t)n;
    }
    return text;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int plan_refresh(void)
{
    const char *path = getenv("GPU_EXPORTER_PLAN");
    struct stat now;
    if (!path || stat(path, &now)) return -1;
    if (!plan.loaded || !same_file(&now, &plan.seen)) {
        forget();
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return -1;
        char *text = fstat(fd, &now) ? NULL : whole_file(fd, (size_t)now.st_size);
        close(fd);
        if (!text || parse(text)) {
            forget();
            return -1;
        }
        plan.seen = now;
        plan.loaded = 1;
    }
    moment = plan_now();
    return 0;
}

/* ---- what is there ---- */

const plan_set *plan_machine(void) { return &plan.machine.set; }

static int removed(const plan_device *d)
{
    for (size_t i = 0; i < d->fault_count; i++)
        if (d->faults[i].kind == REMOVED && open_at(&d->faults[i].window, moment)) return 1;
    return 0;
}

int plan_count(const char *vendor)
{
    int n = 0;
    for (size_t i = 0; i < plan.count; i++) n += !strcmp(plan.devices[i].vendor, vendor) && !removed(&plan.devices[i]);
    return n;
}

const plan_device *plan_device_at(const char *vendor, int index)
{
    for (size_t i = 0; i < plan.count; i++)
        if (!strcmp(plan.devices[i].vendor, vendor) && !removed(&plan.devices[i]) && index-- == 0) return &plan.devices[i];
    return NULL;
}

const plan_device *plan_find(const char *vendor, const char *name, const char *value)
{
    for (size_t i = 0; i < plan.count; i++) {
        const plan_device *d = &plan.devices[i];
        const char *text = strcmp(d->vendor, vendor) ? NULL : plan_text(&d->set, name);
        if (text && !strcmp(text, value) && !removed(d)) return d;
    }
    return NULL;
}

const plan_set *plan_properties(const plan_device *d) { return d ? &d->set : NULL; }

int plan_rows(const plan_device *device, const char *kind)
{
    plan_device *d = (plan_device *)device;   /* keeps the list of those present, else 5,000 processes cost 5,000^2 */
    if (!d->present_kind || strcmp(d->present_kind, kind) || d->present_at != moment) {
        d->present_count = 0;
        d->present_at = moment;
        d->present_kind = NULL;
        for (size_t i = 0; i < d->row_count; i++)
            if (!strcmp(d->rows[i].kind, kind)) {
                d->present_kind = d->rows[i].kind;
                if (open_at(&d->rows[i].window, moment)) d->present[d->present_count++] = &d->rows[i].set;
            }
    }
    return (int)d->present_count;
}

const plan_set *plan_row(const plan_device *device, const char *kind, int index)
{
    return index >= 0 && index < plan_rows(device, kind) ? device->present[index] : NULL;
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
        } else if (!status) status = f->status;
    }
    return status;
}

int plan_fault(const plan_device *device, const char *call)
{
    int status = plan.machine.fault_count ? apply(&plan.machine, call) : 0;
    return status || !device ? status : apply(device, call);
}
