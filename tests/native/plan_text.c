/* Reads plans; they are written by tests/native/plan.py: text, one item a line, and after it the numbers of the tracks,
 * which are used where the file is mapped.
 *
 *   plan 1                                  first line
 *   numbers COUNT                           second line: so many 8-byte floating point numbers end the file
 *   epoch SECONDS                           CLOCK_MONOTONIC at the plan's time zero
 *   machine | device VENDOR                 what follows belongs to it
 *   x NAME TEXT                             text property (\\ and \n escaped)
 *   n NAME NUMBER                           number
 *   t NAME PREFIX PERIOD START LEVEL SECONDS AREA SECONDS AREA
 *                                           track: PREFIX segments once, then PERIOD segments for ever; the numbers from
 *                                           START are their starts, those from LEVEL pairs of integral and value;
 *                                           length and integral of the prefix, and of the period
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
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A plan that was replaced is seen this much later at most: to look at the file costs as much as many a call. */
#define LOOK_SECONDS 0.001
#define BLOCK_BYTES 65536

static struct plan_state none;
static struct plan_state *newest = &none;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

_Thread_local struct plan_state *plan = &none;
_Thread_local double plan_moment;
static _Thread_local double looked_at = -INFINITY;

/* Memory of a plan is freed as a whole. It is none of malloc's: what is kept there would count as the program's. */
static void *keep(size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    block *b = plan->blocks;
    if (!b || b->size - b->used < bytes) {
        size_t size = sizeof(block) + 16 + bytes > BLOCK_BYTES ? sizeof(block) + 16 + bytes : BLOCK_BYTES;
        b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b == MAP_FAILED) abort();
        *b = (block){plan->blocks, size, (sizeof(block) + 15) / 16 * 16};
        plan->blocks = b;
    }
    void *kept = (char *)b + b->used;
    b->used += bytes;
    return kept;
}

static void *grow(void *old, size_t count, size_t size)
{
    if (count & (count - 1)) return old;   /* full at powers of two only */
    void *new = keep((count ? 2 * count : 1) * size);
    if (count) memcpy(new, old, count * size);
    return new;
}

static void release(struct plan_state *old)
{
    if (old == &none || --old->users) return;
    while (old->blocks) {
        block *next = old->blocks->next;
        munmap(old->blocks, old->blocks->size);
        old->blocks = next;
    }
    if (old->file) munmap(old->file, old->file_size);
    free(old);
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

static int read_track(plan_device *d, char *at)
{
    track k = {.name = word(&at)};
    k.prefix = (size_t)number(&at);
    k.period = (size_t)number(&at);
    size_t start = (size_t)number(&at), level = (size_t)number(&at), n = k.prefix + k.period;
    size_t room = plan->number_count;
    if (!k.period || start > room || n > room - start || level > room || 2 * n > room - level) return -1;
    k.start = plan->numbers + start;
    k.level = (const struct level *)(plan->numbers + level);
    k.prefix_seconds = number(&at);
    k.prefix_area = number(&at);
    k.period_seconds = number(&at);
    k.period_area = number(&at);
    d->tracks = grow(d->tracks, d->track_count, sizeof k);
    d->tracks[d->track_count++] = k;
    d->readings = grow(d->readings, d->reading_count, sizeof(reading));
    d->readings[d->reading_count++] = (reading){k.name, TRACK, d->track_count - 1, 0, 0};
    return 0;
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

/* Finds the numbers at the end of the file; returns how many bytes they are. */
static size_t tail_bytes(const char *file, size_t size)
{
    size_t head = sizeof "plan 1\nnumbers " - 1, count = 0;
    if (size > head && !strncmp(file, "plan 1\nnumbers ", head))
        for (const char *digit = file + head; digit < file + size && *digit >= '0' && *digit <= '9'; digit++)
            count = 10 * count + (size_t)(*digit - '0');
    size_t bytes = count * sizeof(double);
    if (count > size || bytes >= size || (size - bytes) % sizeof(double)) return 0;
    plan->numbers = (const double *)(file + size - bytes);
    plan->number_count = count;
    return bytes;
}

static int parse(void)
{
    char *text = plan->file;
    size_t size = plan->file_size;
    text[size - 1 - tail_bytes(text, size)] = 0;   /* a line end */
    if (strncmp(text, "plan 1\n", 7)) return -1;
    plan_device *d = &plan->machine;
    plan_set *set = &d->set;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *at = line, *what = word(&at);
        if (line == text || !strcmp(what, "numbers")) continue;
        if (!strcmp(what, "epoch")) {
            plan->epoch = number(&at);
        } else if (!strcmp(what, "machine")) {
            set = &d->set;
        } else if (!strcmp(what, "device")) {
            plan->devices = grow(plan->devices, plan->count, sizeof *d);
            d = &plan->devices[plan->count++];
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
            if (read_track(d, at)) return -1;
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
    sort_sets(&plan->machine);
    for (size_t i = 0; i < plan->count; i++) sort_sets(&plan->devices[i]);
    return 0;
}

/* Maps the file; what is written to the text, the ends of words, stays in this process. */
static int map(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    plan->file_size = fstat(fd, &plan->seen) ? 0 : (size_t)plan->seen.st_size;
    void *file = plan->file_size ? mmap(NULL, plan->file_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (file == MAP_FAILED) return -1;
    plan->file = file;
    return 0;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Gives the thread a plan in the place of its own. */
static void take(struct plan_state *fresh)
{
    fresh->users++;
    release(plan);
    plan = fresh;
    plan_changed();
}

/* Loads the file into a plan of its own, which becomes the newest. */
static int load(const char *path)
{
    struct plan_state *fresh = calloc(1, sizeof *fresh);
    if (!fresh) abort();
    take(fresh);
    release(newest);
    newest = &none;
    if (map(path) || parse()) {
        take(&none);
        return -1;
    }
    fresh->users++;
    newest = fresh;
    return 0;
}

int plan_refresh(void)
{
    double now = plan_clock();
    if (now - looked_at >= LOOK_SECONDS) {
        const char *path = getenv("GPU_EXPORTER_PLAN");
        struct stat seen;
        looked_at = -INFINITY;
        if (!path || stat(path, &seen)) return -1;
        pthread_mutex_lock(&changing);
        int status = 0;
        if (newest == &none || !same_file(&seen, &newest->seen)) status = load(path);
        else if (plan != newest) take(newest);
        pthread_mutex_unlock(&changing);
        if (status) return status;
        looked_at = now;
    }
    plan_moment = plan_now();
    return 0;
}
