/* Temperatures, clocks, throttling, memory errors, link and fan as libnvidia-ml.so.1 answers them. */
#include "nvidia.h"

typedef struct { unsigned version, sensor; int celsius; } temperature;

int nvmlDeviceGetTemperatureV(void *handle, temperature *out)
{
    enum { VERSION = 0x0100000C };
    target to;
    double celsius;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (out->version != VERSION) return ARGUMENT_VERSION_MISMATCH;
    if (out->sensor) return NOT_SUPPORTED;
    if (!plan_signal(to.device, "temperature_gpu_celsius", to.t, &celsius)) return NOT_SUPPORTED;
    out->celsius = whole(celsius);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *h, unsigned sensor, unsigned *out)
{
    return sensor ? INVALID_ARGUMENT : reading(h, __func__, "temperature_gpu_celsius", 1, out);
}

int nvmlDeviceGetTemperatureThreshold(void *handle, unsigned threshold, unsigned *out)
{
    static const char *const names[] = {
        [0] = "temperature_limit_shutdown_celsius", [1] = "temperature_limit_slowdown_celsius",
        [2] = "temperature_limit_memory_celsius", [5] = "temperature_limit_target_celsius",
    };
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (threshold >= sizeof names / sizeof *names || !names[threshold]) return NOT_SUPPORTED;
    return signal32(&to, names[threshold], 1, out);
}

int nvmlDeviceGetMarginTemperature(void *handle, void *raw)
{
    enum { VERSION = 0x01000008 };
    int *out = raw;   /* version, celsius */
    target to;
    double celsius;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (out[0] != VERSION) return ARGUMENT_VERSION_MISMATCH;
    if (!plan_signal(to.device, "temperature_margin_celsius", to.t, &celsius)) return NOT_SUPPORTED;
    out[1] = whole(celsius);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned domain, unsigned *out)
{
    static const char *const names[] = {
        "clock_graphics_hertz", "clock_sm_hertz", "clock_memory_hertz", "clock_video_hertz"
    };
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    return domain < 4 ? signal32(&to, names[domain], 1e-6, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetPerformanceState(void *h, unsigned *out) { return reading(h, __func__, "performance_state", 1, out); }
int nvmlDeviceGetFanSpeed(void *h, unsigned *out) { return reading(h, __func__, "fan_ratio", 100, out); }

static int reasons(void *handle, const char *call, int only_current, uint64_t *out)
{
    static const char *const names[] = {   /* in the order of their bits */
        "throttle_idle", "throttle_application_clocks", "throttle_sw_power_cap", "throttle_hw_slowdown",
        "throttle_sync_boost", "throttle_sw_thermal", "throttle_hw_thermal", "throttle_hw_power_brake",
        "throttle_display_clocks",
    };
    target to;
    double on;
    int any = 0, status = enter_gpu(handle, call, &to);
    if (status) return status;
    *out = 0;
    for (unsigned bit = 0; bit < sizeof names / sizeof *names; bit++)
        if (plan_signal(to.device, names[bit], to.t, &on)) {
            any = 1;
            if (!only_current || on > 0) *out |= 1u << bit;
        }
    *out = scaled((double)*out, 1, UINT64_MAX);
    return any ? SUCCESS : NOT_SUPPORTED;
}

#define REASONS(symbol, only_current) \
    int symbol(void *h, uint64_t *out) { return reasons(h, __func__, only_current, out); }
REASONS(nvmlDeviceGetCurrentClocksEventReasons, 1)
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons, 1)
REASONS(nvmlDeviceGetSupportedClocksEventReasons, 0)
REASONS(nvmlDeviceGetSupportedClocksThrottleReasons, 0)

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, uint64_t *out)
{
    static const char *const names[2][2] = {
        {"ecc_corrected", "ecc_uncorrected"}, {"ecc_lifetime_corrected", "ecc_lifetime_uncorrected"}
    };
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    return type < 2 && counter < 2 ? signal64(&to, names[counter][type], 1, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (plan_rows(to.device, "partition")) return NOT_SUPPORTED;
    if (signal32(&to, "remapped_corrected", 1, corrected) || signal32(&to, "remapped_uncorrected", 1, uncorrected) ||
        signal32(&to, "remap_pending", 1, pending))
        return NOT_SUPPORTED;
    return signal32(&to, "remap_failed", 1, failed);
}

int nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *count, uint64_t *addresses)
{
    target to;
    unsigned pages;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (cause > 1) return INVALID_ARGUMENT;
    status = signal32(&to, cause ? "retired_pages_double_bit" : "retired_pages_single_bit", 1, &pages);
    if (status) return status;
    int room = *count >= pages && (addresses || !pages);
    *count = (unsigned)scaled(pages, 1, 0xFFF);   /* more would have pynvml itself fill the memory */
    if (!room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < pages; i++) addresses[i] = (uint64_t)(i + 1) << 16;
    return SUCCESS;
}

#define READING(symbol, name) int symbol(void *h, unsigned *out) { return reading(h, __func__, name, 1, out); }
READING(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
READING(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
READING(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
READING(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
READING(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
