/* What the parts of the stand-in for libamd_smi.so share.
 *
 * amdsmi_layout.h is generated from the amdsmi wheel of one ROCm release (tests/native/amdsmi_layout.py): for each field
 * "offset, width" of the wheel's own struct, width 0 where that release has no such field. Functions that not every
 * release has are compiled where the wheel binds them; all others that it binds answer "not supported".
 */
#ifndef AMDSMI_H
#define AMDSMI_H

#include "amdsmi_layout.h"
#include "plan.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, OUT_OF_RESOURCES = 15, INIT_ERROR = 18, NOT_FOUND = 31, NOT_INIT = 32,
    DRIVER_NOT_LOADED = 34, MORE_DATA = STATUS_MORE_DATA,
};
enum { MAX_PARTITIONS = 8, DIES = 8 };

#pragma GCC visibility push(hidden)

/* What a call is about. `partition` is 0 where the card is not partitioned, and `partitions` is 0 then. */
typedef struct { const plan_device *device; const plan_set *set; int partition, partitions; double t; } target;

/* Raw fields: infinite and not a number are all ones. */
void put(void *out, size_t offset, size_t width, double value);
void put_missing(void *out, size_t offset, size_t width);
void put_text(void *out, size_t offset, size_t width, const char *text);
void put_signed(int64_t *out, double value, int64_t missing);

double number_or(const plan_set *set, const char *name, double otherwise);
double signal_or(const target *g, const char *name, double otherwise);

/* The row of the partition that the call is about, or NULL. */
const plan_set *partition_row(const target *g);

/* Whether the handle has no sensors. From ROCm 6.4.1 only the first partition has those of the package; before, each
 * repeats them. */
int bare(const target *g);

/* What the sensors of power and the accumulator show, in watts and ticks. */
double shown_power(const target *g, const char *kind);
double shown_ticks(const target *g);

/* Starts each call about a handle: faults, then what it stands for. */
int enter(const void *handle, const char *call, target *g);

#pragma GCC visibility pop

#define ENTER(handle)                                      \
    target g;                                              \
    int status = enter(handle, __func__, &g);              \
    if (status) return status

#endif
