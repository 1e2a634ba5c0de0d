/* Reads plans; the text is written by tests/native/plan.py, one item a line:
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
 *   f KIND CALL <window> STATUS SECONDS BYTES RAW   fault; RAW is an unsigned whole number of 64 bits
 *   row KIND <window>                       x and n that follow belong to the row
 *
 * <window> is FROM TO EVERY LASTING in seconds since the epoch: open from FROM until TO, and when EVERY is not 0 only
 * for LASTING seconds of each EVERY.
 */
#define _GNU_SOURCE
#include "plan_model.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local struct plan_state plan;
_Thread_local double plan_moment;

/* What was read of a plan: whoever is the last to look at it frees it. */
struct shared { struct plan_state plan; size_t users; };
static struct shared *newest;
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;

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

static void release(block *blocks)
{
    while (blocks) {
        block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

static void leave(struct shared *s)
{
    if (!s || --s->users) return;
    release(s->plan.blocks);
    free(s);
}

static void forget(void)
{
    release(plan.blocks);
    leave(plan.shared);
    memset(&plan, 0, sizeof plan);
}

int plan_reading_order(const void *a, const void *b)
{
    return strcmp(((const reading *)a)->name, ((const reading *)b)->name);
}

int plan_property_order(const void *a, const void *b)
{
    return strcmp(((const property *)a)->name, ((const property *)b)->name);
}

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
    const track *k = plan_track(d, name);
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
    static const char *const names[] = {   /* in the order of their numbers */
        "hang", "crash", "delay", "error", "lost", "removed", "exit", "abort", "flood", "leak_memory",
        "leak_descriptors", "asleep", "raw",
    };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
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
    f.bytes = (size_t)number(&at);
    f.raw = strtoull(at, NULL, 10);
    d->faults = grow(d->faults, d->fault_count, sizeof f);
    d->faults[d->fault_count++] = f;
    return 0;
}

static void sort_sets(plan_device *d)
{
    if (d->set.count) qsort(d->set.items, d->set.count, sizeof(property), plan_property_order);
    if (d->reading_count) qsort(d->readings, d->reading_count, sizeof(reading), plan_reading_order);
    for (size_t i = 0; i < d->row_count; i++)
        if (d->rows[i].set.count) qsort(d->rows[i].set.items, d->rows[i].set.count, sizeof(property), plan_property_order);
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

static void own_list(plan_device *d)
{
    d->present = keep((d->row_count + 1) * sizeof *d->present);
}

static struct shared *keep_apart(void)
{
    struct shared *s = malloc(sizeof *s);
    if (!s) abort();
    *s = (struct shared){plan, 1};
    memset(&plan, 0, sizeof plan);
    return s;
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

/* Read the plan and let all threads have it. */
static int publish(const char *path)
{
    struct stat now;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    char *text = fstat(fd, &now) ? NULL : whole_file(fd, (size_t)now.st_size);
    close(fd);
    if (!text || parse(text)) return -1;
    plan.seen = now;
    plan.loaded = 1;
    leave(newest);
    newest = keep_apart();
    return 0;
}

/* Look at the newest plan: what is asked of a device changes what it keeps, so devices are copied. */
static void look(void)
{
    plan = newest->plan;
    plan.shared = newest;
    plan.blocks = NULL;
    newest->users++;
    plan.devices = keep(plan.count * sizeof *plan.devices);
    if (plan.count) memcpy(plan.devices, newest->plan.devices, plan.count * sizeof *plan.devices);
    own_list(&plan.machine);
    for (size_t i = 0; i < plan.count; i++) own_list(&plan.devices[i]);
}

int plan_refresh(void)
{
    const char *path = getenv("GPU_EXPORTER_PLAN");
    struct stat now;
    if (!path || stat(path, &now)) return -1;
    if (!plan.loaded || !same_file(&now, &plan.seen)) {
        pthread_mutex_lock(&sharing);
        forget();
        int failed = newest && same_file(&now, &newest->plan.seen) ? 0 : publish(path);
        if (failed) forget();
        else look();
        pthread_mutex_unlock(&sharing);
        if (failed) return -1;
    }
    plan_moment = plan_now();
    return 0;
}
