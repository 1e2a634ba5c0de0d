/* MIG instances and processes as libnvidia-ml.so.1 lists them. */
#define _POSIX_C_SOURCE 200809L
#include "nvidia.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NO_INSTANCE 0xFFFFFFFFu
#define UNKNOWN_MEMORY UINT64_MAX

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    status = signal32(&to, "mig_enabled", 1, current);
    *pending = *current;
    return status;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (number(to.set, "mig_max_count", out)) *out = 0;   /* the real call succeeds on parts without MIG */
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out)
{
    target to;
    unsigned most, at;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (number(to.set, "mig_max_count", &most) || index >= most) return INVALID_ARGUMENT;
    for (int i = 0; mig_enabled(&to) && i < plan_rows(to.device, "partition"); i++) {
        const plan_set *row = plan_row(to.device, "partition", i);
        const char *uuid = plan_text(row, "uuid");
        if (uuid && !number(row, "index", &at) && at == index) return give(((slot *)handle)->device, uuid, out);
    }
    return NOT_FOUND;   /* indices have holes */
}

static int instance_number(void *handle, const char *call, const char *name, unsigned *out)
{
    target to;
    int status = enter(handle, call, &to);
    if (status) return status;
    return to.instance ? number(to.instance, name, out) : NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceId(void *h, unsigned *out) { return instance_number(h, __func__, "gi", out); }
int nvmlDeviceGetComputeInstanceId(void *h, unsigned *out) { return instance_number(h, __func__, "ci", out); }

/* ---- Processes ---- */

typedef struct { unsigned pid; uint64_t memory; unsigned gpu_instance, compute_instance; } process;

static int is_of(const plan_set *row, const char *kind, const plan_set *instance)
{
    const char *is = plan_text(row, "kind");
    unsigned a, b;
    if (!is || strcmp(is, kind)) return 0;
    if (!instance) return 1;
    return !number(row, "gi", &a) && !number(instance, "gi", &b) && a == b && !number(row, "ci", &a) &&
           !number(instance, "ci", &b) && a == b;
}

static int processes(void *handle, const char *call, const char *kind, unsigned *count, process *out)
{
    target to;
    unsigned found = 0, room = out ? *count : 0;
    int status = enter(handle, call, &to);
    if (status) return status;
    for (int i = 0; i < plan_rows(to.device, "process"); i++) {
        const plan_set *row = plan_row(to.device, "process", i);
        double bytes;
        if (!is_of(row, kind, to.instance)) continue;
        if (found++ >= room) continue;
        process *p = &out[found - 1];
        if (number(row, "pid", &p->pid)) p->pid = 0;
        p->memory = plan_number(row, "memory_used_bytes", &bytes) ? scaled(bytes, 1, UINT64_MAX) : UNKNOWN_MEMORY;
        if (number(row, "gi", &p->gpu_instance)) p->gpu_instance = NO_INSTANCE;
        if (number(row, "ci", &p->compute_instance)) p->compute_instance = NO_INSTANCE;
    }
    *count = (unsigned)scaled(found, 1, 0xFFF);   /* more would have pynvml itself fill the memory */
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(symbol, kind) \
    int symbol(void *h, unsigned *count, process *out) { return processes(h, __func__, kind, count, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")

/* ---- Shares of work ---- */

typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; } sample;

/* Mean load of the device from `since`, in Unix microseconds, to now. */
static double load_since(const target *to, uint64_t since, uint64_t now)
{
    double before, after, seconds = now > since ? (double)(now - since) * 1e-6 : 0;
    if (seconds > to->t) seconds = to->t;
    if (!(seconds > 0)) return 0;
    if (!plan_signal(to->device, "gfx_busy_seconds", to->t - seconds, &before) ||
        !plan_signal(to->device, "gfx_busy_seconds", to->t, &after))
        return 0;
    return (after - before) / seconds;
}

int nvmlDeviceGetProcessUtilization(void *handle, sample *out, unsigned *count, uint64_t since)
{
    target to;
    struct timespec wall;
    unsigned found = 0, room = out ? *count : 0, told = 0;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (mig_enabled(&to)) return NOT_SUPPORTED;
    if (!since) abort();   /* all that the driver remembers, of processes long gone: a monitor must not ask */
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t now = (uint64_t)wall.tv_sec * 1000000 + (uint64_t)wall.tv_nsec / 1000;
    double load = load_since(&to, since, now);
    for (int i = 0; i < plan_rows(to.device, "process"); i++) {
        const plan_set *row = plan_row(to.device, "process", i);
        double share;
        if (!plan_number(row, "share", &share)) continue;
        told++;
        unsigned percent = (unsigned)scaled(share * load, 100, UINT32_MAX);
        if (!percent || found++ >= room) continue;
        out[found - 1] = (sample){.at = now, .sm = percent};
        number(row, "pid", &out[found - 1].pid);
    }
    *count = found;
    return !told ? NOT_SUPPORTED : !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
