/* MIG instances and processes as libnvidia-ml.so.1 lists them. */
#include "nvidia.h"

#include <string.h>

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
