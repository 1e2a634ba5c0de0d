/* Power, energy, fields, load and memory as libnvidia-ml.so.1 answers them. */
#include "nvidia.h"

#include <math.h>
#include <stdio.h>

/* ---- Power and energy ---- */

static int power(const target *to, const char *kind, unsigned *out)
{
    char name[64];
    double window, period;
    snprintf(name, sizeof name, "power_%s_window_seconds", kind);
    if (!plan_number(to->set, name, &window)) return NOT_SUPPORTED;
    snprintf(name, sizeof name, "power_%s_period_seconds", kind);
    if (!plan_number(to->set, name, &period)) return NOT_SUPPORTED;
    *out = (unsigned)scaled(plan_power(to->device, to->t, window, period), 1e3, UINT32_MAX);
    return SUCCESS;
}

static int energy(const target *to, int (*counter)(const plan_device *, double, double *), uint64_t *out)
{
    double joules;
    if (!counter(to->device, to->t, &joules)) return NOT_SUPPORTED;
    *out = scaled(joules, 1e3, UINT64_MAX);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    const char *kind = plan_text(to.set, "power_usage_kind");
    return kind ? power(&to, kind, out) : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, uint64_t *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    return status ? status : energy(&to, plan_counter, out);
}

int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *out) { return reading(h, __func__, "power_limit_watts", 1e3, out); }

int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *out)
{
    return reading(h, __func__, "power_limit_watts", 1e3, out);
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *out)
{
    return reading(h, __func__, "power_limit_default_watts", 1e3, out);
}

/* ---- Fields ---- */

typedef struct {
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t type, status;
    union { double d; unsigned u; uint64_t u64; int64_t i64; int i; unsigned short us; } value;
} field_value;

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
enum { OF_GPU = 0, OF_MODULE = 1, OF_MEMORY = 2 };

/* A counter that wraps. */
static int bytes32(const target *to, const char *name, unsigned *out)
{
    uint64_t bytes;
    int status = signal64(to, name, 1, &bytes);
    *out = bytes == UINT64_MAX ? UINT32_MAX : (unsigned)bytes;
    return status;
}

static int is_short(unsigned id)
{
    return id == 82 || id == 91 || id == 185 || id == 186 || id == 197 || id == 198 || id == 230;
}

static int field32(const target *to, const field_value *f, unsigned *out)
{
    switch (f->id) {
    case 82: return signal32(to, "temperature_memory_celsius", 1, out);
    case 185:
        if (f->scope == OF_GPU) return power(to, "average", out);
        if (f->scope == OF_MODULE) return signal32(to, "module_power_watts", 1e3, out);
        return f->scope == OF_MEMORY ? signal32(to, "memory_power_watts", 1e3, out) : INVALID_ARGUMENT;
    case 186:
        if (f->scope == OF_GPU) return power(to, "instant", out);
        return f->scope == OF_MODULE ? signal32(to, "module_power_watts", 1e3, out) : NOT_SUPPORTED;
    case 91: return number(to->set, "link_count", out);
    case 197: return bytes32(to, "pcie_transmit_bytes", out);
    case 198: return bytes32(to, "pcie_receive_bytes", out);
    case 230: return signal32(to, "recovery_action", 1, out);
    default: return NOT_SUPPORTED;
    }
}

static int field64(const target *to, links *all, const field_value *f, uint64_t *out)
{
    switch (f->id) {
    case 83: return energy(to, plan_counter, out);
    case 191: return energy(to, f->scope == OF_MODULE ? plan_module_counter : plan_counter, out);
    case 74: return signal64(to, "throttle_sw_power_cap_seconds", 1e9, out);
    case 76: return signal64(to, "throttle_sync_boost_seconds", 1e9, out);
    case 77: return signal64(to, "throttle_board_limit_seconds", 1e9, out);
    case 269: return signal64(to, "throttle_sw_thermal_seconds", 1e9, out);
    case 270: return signal64(to, "throttle_hw_thermal_seconds", 1e9, out);
    case 271: return signal64(to, "throttle_hw_power_brake_seconds", 1e9, out);
    default: return link_field(to, all, f->id, f->scope, out);
    }
}

int nvmlDeviceGetFieldValues(void *handle, int count, field_value *fields)
{
    target to;
    links all = {0};
    int status = enter_gpu(handle, __func__, &to), any = 0;
    if (status) return status;
    for (int i = 0; i < count; i++) {
        field_value *f = &fields[i];
        f->value.u64 = 0;
        f->type = is_short(f->id) ? UNSIGNED_INT : UNSIGNED_LONG_LONG;
        f->status = (uint32_t)(f->type == UNSIGNED_INT ? field32(&to, f, &f->value.u) : field64(&to, &all, f, &f->value.u64));
        uint64_t bits;
        if (!f->status && plan_raw(&bits)) {
            f->value.u64 = bits;
            f->type = (uint32_t)i % 9;   /* each type, and one that there is not */
        }
        any |= !f->status;
    }
    return any ? SUCCESS : NOT_SUPPORTED;
}

/* ---- Load and memory ---- */

int nvmlDeviceGetUtilizationRates(void *handle, unsigned rates[2])
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (mig_enabled(&to)) return NOT_SUPPORTED;
    status = signal32(&to, "utilization_ratio", 100, &rates[0]);
    return status ? status : signal32(&to, "memory_controller_utilization_ratio", 100, &rates[1]);
}

static int engine(void *handle, const char *call, const char *name, unsigned *percent, unsigned *period)
{
    enum { MICROSECONDS = 166666 };
    target to;
    int status = enter_gpu(handle, call, &to);
    if (status) return status;
    *period = MICROSECONDS;
    return mig_enabled(&to) ? NOT_SUPPORTED : signal32(&to, name, 100, percent);
}

#define ENGINE(symbol, name) \
    int symbol(void *h, unsigned *percent, unsigned *period) { return engine(h, __func__, name, percent, period); }
ENGINE(nvmlDeviceGetEncoderUtilization, "encoder_utilization_ratio")
ENGINE(nvmlDeviceGetDecoderUtilization, "decoder_utilization_ratio")
ENGINE(nvmlDeviceGetJpgUtilization, "jpeg_utilization_ratio")
ENGINE(nvmlDeviceGetOfaUtilization, "ofa_utilization_ratio")

typedef struct { uint64_t total, reserved, free, used; } memory;

static int memory_of(const target *to, memory *out)
{
    double size, used;
    if (!to->instance) {
        if (signal64(to, "memory_size_bytes", 1, &out->total) || signal64(to, "memory_used_bytes", 1, &out->used))
            return NOT_SUPPORTED;
        if (signal64(to, "memory_reserved_bytes", 1, &out->reserved)) out->reserved = 0;
    } else {
        if (!plan_number(to->instance, "memory_size_bytes", &size)) return NOT_SUPPORTED;
        if (!plan_number(to->instance, "memory_used_bytes", &used)) return NOT_SUPPORTED;
        out->total = scaled(size, 1, UINT64_MAX);
        out->used = scaled(used, 1, UINT64_MAX);
        out->reserved = 0;
    }
    uint64_t taken = out->used + out->reserved;
    out->free = taken < out->total ? out->total - taken : 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, void *raw)
{
    uint64_t *out = raw;   /* total, free, used: the reserved part counts as used here */
    target to;
    memory m;
    int status = enter(handle, __func__, &to);
    if (status || (status = memory_of(&to, &m))) return status;
    out[0] = m.total;
    out[1] = m.free;
    out[2] = m.used == UINT64_MAX ? m.used : m.used + m.reserved;
    return SUCCESS;
}

typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2;

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out)
{
    enum { VERSION = 0x02000028 };
    target to;
    memory m;
    int status = enter(handle, __func__, &to);
    if (status) return status;
    if (out->version != VERSION) return ARGUMENT_VERSION_MISMATCH;
    if ((status = memory_of(&to, &m))) return status;
    *out = (memory_v2){VERSION, m.total, m.reserved, m.free, m.used};
    return SUCCESS;
}
