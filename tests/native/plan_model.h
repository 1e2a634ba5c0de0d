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
    const plan_set **present; size_t present_count; const char *present_kind; double present_at;
};

typedef struct block { struct block *next; } block;
struct plan_state {
    struct shared *shared;     /* what it looks at */
    block *blocks;             /* what is its own, beside that */
    plan_device machine;
    plan_device *devices;
    size_t count;
    double epoch;
    int loaded;
    struct stat seen;
};
#pragma GCC visibility push(hidden)   /* a process may load the stand-ins of two vendors */

/* Of each thread its own: one that waits for events does not disturb the readings of another. What was read of a plan is
 * shared, as a library has its memory once. */
extern _Thread_local struct plan_state plan;
extern _Thread_local double plan_moment;   /* of the last refresh */

const track *plan_track(const plan_device *device, const char *name);

/* Orders of bsearch and qsort, by name. */
int plan_reading_order(const void *a, const void *b);
int plan_property_order(const void *a, const void *b);

#pragma GCC visibility pop

#endif
