/* The simulated machine as the vendor stand-ins see it; PLAN.md lists the properties.
 *
 * A plan is a text file that tests write from a scenario (tests/native/plan.py) and may replace while the stand-ins
 * run. All of a plan is a pure function of CLOCK_MONOTONIC, so its state outlives every process that reads it.
 * Evaluation is the same as in exporter/providers/simulated/: tracks are piecewise constant and repeat.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdint.h>

typedef struct plan_set plan_set;       /* named properties: of a device, a partition, a process, ... */
typedef struct plan_device plan_device;

/* Re-reads the file named by GPU_EXPORTER_PLAN when it was replaced. Call it first in each entry point, then hold no
 * pointer over the next call. Returns 0, or -1 without a readable plan. */
int plan_refresh(void);

/* Seconds since the plan's epoch, on CLOCK_MONOTONIC. */
double plan_now(void);

/* Machine-wide properties, such as driver_version. */
const plan_set *plan_machine(void);

/* Devices of a vendor ("nvidia", "amd") in enumeration order; those with a `removed` fault in force are left out. */
int plan_count(const char *vendor);
const plan_device *plan_device_at(const char *vendor, int index);

/* The device of a vendor whose text property `name` is `value` (case matters), or NULL; removed ones are not found. */
const plan_device *plan_find(const char *vendor, const char *name, const char *value);

/* A device's own properties, and its rows of one kind ("partition", "process", ...) that exist at the last refresh. */
const plan_set *plan_properties(const plan_device *device);
int plan_rows(const plan_device *device, const char *kind);
const plan_set *plan_row(const plan_device *device, const char *kind, int index);

/* NULL / 0 where the property is absent: the stand-in then answers "not supported". */
const char *plan_text(const plan_set *set, const char *name);
int plan_number(const plan_set *set, const char *name, double *value);

/* A reading that may vary, at time t, else the property of that name. Returns 0 where there is neither. INFINITY asks
 * for the all-ones value of the raw type. */
int plan_signal(const plan_device *device, const char *name, double t, double *value);

/* True joules drawn from the epoch to t (track "power_watts"). */
double plan_energy(const plan_device *device, double t);

/* The power sensor: mean over `window` seconds that ended at the last multiple of `period` before t; window 0: the
 * instantaneous value there. */
double plan_power(const plan_device *device, double t, double window, double period);

/* The hardware accumulator in joules: true energy + its start value at the last multiple of its period, in steps of
 * `counter_resolution_joules`, with counter faults applied. Returns 0 where the device has none. */
int plan_counter(const plan_device *device, double t, double *joules);

/* The same for the accumulator of the module that the device sits on. */
int plan_module_counter(const plan_device *device, double t, double *joules);

/* When the value of plan_counter was taken: seconds since the epoch. */
double plan_counter_time(const plan_device *device, double t);

/* Faults in force for a call of this name on this device (NULL: the machine). Hangs, crashes and delays happen inside.
 * So do exits, aborts, floods of output and leaks. Returns 0, else the vendor status to answer. */
int plan_fault(const plan_device *device, const char *call);

/* Whether the device is suspended. What would wake it ends the process: a monitor must not. */
int plan_asleep(const plan_device *device);

/* The bits that every number of the answer to the call of the last plan_fault is to have. Returns 0 without any. */
int plan_raw(uint64_t *bits);

#endif
