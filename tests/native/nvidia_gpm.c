/* Counters for profiling (GPM) as libnvidia-ml.so.1 gives them on Hopper and later: figures between two samples. */
#include "nvidia.h"

#include <stdlib.h>

typedef struct { double t, busy, values[4]; } gpm_sample;
typedef struct { unsigned version, supported; } gpm_support;
typedef struct { unsigned id, status; double value; const char *names[3]; } gpm_metric;
typedef struct { unsigned version, count; gpm_sample *first, *second; gpm_metric metrics[]; } gpm_metrics;

enum { VERSION = 1, MOST_METRICS = 477 };

static const struct { unsigned id; const char *share; } metrics[] = {
    {2, "sm_active_share"}, {3, "sm_occupancy_share"}, {5, "tensor_active_share"}, {10, "dram_active_share"},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

int nvmlGpmQueryDeviceSupport(void *handle, gpm_support *out)
{
    target to;
    double share;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (out->version != VERSION) return ARGUMENT_VERSION_MISMATCH;
    out->supported = (unsigned)scaled(plan_number(to.set, "sm_active_share", &share), 1, UINT32_MAX);
    return SUCCESS;
}

int nvmlGpmSampleAlloc(gpm_sample **out)
{
    int status = ready();
    if (status || (status = plan_fault(NULL, __func__))) return status;
    return (*out = calloc(1, sizeof **out)) ? SUCCESS : OUT_OF_MEMORY;
}

int nvmlGpmSampleFree(gpm_sample *sample)
{
    int status = ready();
    if (status || (status = plan_fault(NULL, __func__))) return status;
    if (!sample) abort();
    free(sample);
    return SUCCESS;
}

static int take(const target *to, gpm_sample *out)
{
    double share;
    if (!plan_number(to->set, "sm_active_share", &share)) return NOT_SUPPORTED;
    if (!plan_signal(to->device, "gfx_busy_seconds", to->t, &out->busy)) return NOT_SUPPORTED;
    out->t = to->t;
    for (int m = 0; m < METRICS; m++)
        out->values[m] = plan_number(to->set, metrics[m].share, &share) ? share : -1;
    return SUCCESS;
}

int nvmlGpmSampleGet(void *handle, gpm_sample *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    return status ? status : take(&to, out);
}

int nvmlGpmMigSampleGet(void *handle, unsigned gpu_instance, gpm_sample *out)
{
    target to;
    unsigned gi;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    for (int i = 0; mig_enabled(&to) && i < plan_rows(to.device, "partition"); i++)
        if (!number(plan_row(to.device, "partition", i), "gi", &gi) && gi == gpu_instance) return take(&to, out);
    return INVALID_ARGUMENT;
}

int nvmlGpmMetricsGet(gpm_metrics *out)
{
    int status = ready();
    if (status || (status = plan_fault(NULL, __func__))) return status;
    if (out->version != VERSION) return ARGUMENT_VERSION_MISMATCH;
    if (out->count > MOST_METRICS) return INVALID_ARGUMENT;
    double seconds = out->second->t - out->first->t;
    if (seconds < 0.1) abort();   /* too near for the counters: a monitor must not ask */
    for (unsigned i = 0; i < out->count; i++) {
        gpm_metric *asked = &out->metrics[i];
        asked->status = NOT_SUPPORTED;
        for (int m = 0; m < METRICS; m++)
            if (metrics[m].id == asked->id && out->second->values[m] >= 0) {
                asked->value = (out->second->busy - out->first->busy) / seconds * out->second->values[m] * 100;
                asked->status = SUCCESS;
            }
    }
    return SUCCESS;
}
