/* XID errors as libnvidia-ml.so.1 reports them: to a set of events that GPUs are registered in.
 *
 * Rows of kind `event` are what happens: at `at`, and again each `every` seconds before `until`. Nothing from before
 * the registration is reported. One GPU to a set is all that this stand-in has room for. Another thread than that of
 * the readings may wait.
 */
#define _POSIX_C_SOURCE 200809L
#include "nvidia.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { XID = 0x8, SETS = 1024 };

/* Up to which moment, and which row at that moment, events were reported. */
typedef struct { int taken; char device[128]; double at; int row; } event_set;

static event_set sets[SETS];

int nvmlDeviceGetSupportedEventTypes(void *handle, uint64_t *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    return status ? status : signal64(&to, "event_types", 1, out);
}

int nvmlEventSetCreate(event_set **out)
{
    int status = ready();
    if (status || (status = plan_fault(NULL, __func__))) return status;
    for (int i = 0; i < SETS; i++)
        if (!sets[i].taken) {
            sets[i] = (event_set){.taken = 1};
            *out = &sets[i];
            return SUCCESS;
        }
    return OUT_OF_MEMORY;
}

static void check(const event_set *set)
{
    if (set < sets || set >= sets + SETS || !set->taken) abort();   /* freed, or never made */
}

int nvmlDeviceRegisterEvents(void *handle, uint64_t types, event_set *set)
{
    target to;
    uint64_t known;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    check(set);
    if (signal64(&to, "event_types", 1, &known) || types & ~known) return NOT_SUPPORTED;
    if (*set->device) return INVALID_ARGUMENT;
    set->at = to.t;
    set->row = INT_MAX;
    snprintf(set->device, sizeof set->device, "%s", ((slot *)handle)->device);
    return SUCCESS;
}

/* When what row `i` says happens next after what was reported; infinite: never. */
static double next(const plan_set *row, int i, const event_set *set)
{
    double at, every = 0, until = INFINITY;
    if (!plan_number(row, "at", &at)) return INFINITY;
    plan_number(row, "every", &every);
    plan_number(row, "until", &until);
    if (every > 0 && at < set->at) at += floor((set->at - at) / every) * every;
    while (at < set->at || (at == set->at && i <= set->row)) {
        if (!(every > 0)) return INFINITY;
        at += every;
    }
    return at < until ? at : INFINITY;
}

typedef struct { void *device; uint64_t type, data; unsigned gpu_instance, compute_instance; } event;

static int happened(const plan_device *device, event_set *set, event *out)
{
    double first = INFINITY, code, at;
    int row = -1;
    for (int i = 0; i < plan_rows(device, "event"); i++)
        if ((at = next(plan_row(device, "event", i), i, set)) < first) {
            first = at;
            row = i;
        }
    if (row < 0 || first > plan_now()) return 0;
    const plan_set *what = plan_row(device, "event", row);
    if (!plan_number(what, "code", &code)) code = 0;
    set->at = first;
    set->row = row;
    *out = (event){NULL, XID, scaled(code, 1, UINT64_MAX), UINT_MAX, UINT_MAX};
    return 1;
}

int nvmlEventSetWait_v2(event_set *set, event *out, unsigned milliseconds)
{
    for (unsigned waited = 0;; waited++) {
        int status = ready();
        if (status || (status = plan_fault(NULL, __func__))) return status;
        check(set);
        const plan_device *device = find_device(set->device);
        if (!device) return GPU_IS_LOST;
        status = plan_fault(device, __func__);
        /* What was on its way before the GPU fell off is reported first. */
        if ((!status || status == GPU_IS_LOST) && happened(device, set, out)) return SUCCESS;
        if (status) return status;
        if (waited >= milliseconds) return TIMEOUT;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int nvmlEventSetFree(event_set *set)
{
    int status = ready();
    if (status || (status = plan_fault(NULL, __func__))) return status;
    check(set);
    set->taken = 0;
    return SUCCESS;
}
