/* A plan in memory, for the two files that make and evaluate it. Stand-ins include plan.h. */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H

#include "plan.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct { double from, to, every, lasting; } window;
typedef struct { const char *name; const char *text; double number; int numeric; } property;
struct plan_set { property *items; size_t count; };

struct level { double area, value; };
typedef struct {
    const char *name;
    size_t prefix, period;     /* segments */
    const double *start;       /* of each segment; those of the period count from its own beginning */
    const struct level *level; /* of each segment; areas are integrals up to it, likewise */
    double prefix_seconds, prefix_area, period_seconds, period_area;
} track;

enum { TRACK, MEAN, INTEGRAL };
typedef struct { const char *name; int kind; size_t track; double a, b; } reading;
typedef struct { const char *name; window window; double value; } override;
typedef struct { double start, base, energy, factor; } segment;
typedef struct { int slot; window window; double value; long device; } replacement;
typedef struct { size_t track; double period, resolution; segment *segments; size_t count; } accumulator;
enum { HANG, CRASH, DELAY, ERROR, LOST, REMOVED, EXIT, ABORT, FLOOD, LEAK_MEMORY, LEAK_DESCRIPTORS, ASLEEP, RAW };
typedef struct {
    int kind;
    const char *call;
    window window;
    int status;
    double seconds;
    size_t bytes;
    uint64_t raw;
} fault;
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
};

typedef struct block { struct block *next; size_t size, used; } block;
struct plan_state {
    int users;                 /* threads, and the process for the newest */
    block *blocks;
    char *file; size_t file_size;
    const double *numbers; size_t number_count;
    plan_device machine;
    plan_device *devices;
    size_t count;
    double epoch;
    int loaded;
    struct stat seen;
};
#pragma GCC visibility push(hidden)   /* a process may load the stand-ins of two vendors */

/* The plan as the thread has seen it last: one that waits for events does not disturb the readings of another. What
 * is in a plan does not change, so that all threads share it. */
extern _Thread_local struct plan_state *plan;
extern _Thread_local double plan_moment;   /* of the last refresh */

double plan_clock(void);

/* The thread has another plan: what it remembers of the one before is void. */
void plan_changed(void);

const track *plan_track(const plan_device *device, const char *name);

/* Orders of bsearch and qsort, by name. */
int plan_reading_order(const void *a, const void *b);
int plan_property_order(const void *a, const void *b);

#pragma GCC visibility pop

#endif
