/* Power, energy, load and memory as libamd_smi.so answers them. */
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- power and energy ---- */

double shown_power(const target *g, const char *kind)
{
    char window_name[48], period_name[48];
    snprintf(window_name, sizeof window_name, "power_%s_window_seconds", kind);
    snprintf(period_name, sizeof period_name, "power_%s_period_seconds", kind);
    double window, period = number_or(g->set, period_name, 0);
    if (bare(g) || !plan_number(g->set, window_name, &window)) return 0xFFFF;
    return plan_power(g->device, g->t, window, period);
}

static int power_info(const target *g, void *out)
{
    memset(out, 0, power_info_SIZE);
    double current = shown_power(g, "instant"), average = shown_power(g, "average");
    put(out, power_info_current_socket_power, current);
    put(out, power_info_average_socket_power, average);
    put(out, power_info_socket_power, current == 0xFFFF ? average : current);
    double volts = signal_or(g, "voltage_graphics_volts", INFINITY);
    put(out, power_info_gfx_voltage, volts * 1000);
    put_missing(out, power_info_soc_voltage);
    put_missing(out, power_info_mem_voltage);
    put(out, power_info_power_limit, bare(g) ? INFINITY : signal_or(g, "power_limit_watts", 0) * LIMIT_UNITS_PER_WATT);
    /* Up to 6.3 the status is that of the limit. */
    double limit;
    return RELEASE < 604 && !plan_signal(g->device, "power_limit_watts", g->t, &limit) ? NOT_SUPPORTED : SUCCESS;
}

int amdsmi_get_power_info(void *handle, void *out)
{
    ENTER(handle);
    return power_info(&g, out);
}

#ifdef HAS_amdsmi_get_power_info_v2
int amdsmi_get_power_info_v2(void *handle, uint32_t sensor, void *out)
{
    (void)sensor;
    target g;
    int status = enter(handle, "amdsmi_get_power_info", &g);
    return status ? status : power_info(&g, out);
}
#endif

int amdsmi_get_power_cap_info(void *handle, uint32_t sensor, void *out)
{
    (void)sensor;
    ENTER(handle);
    double limit;
    if (bare(&g) || !plan_signal(g.device, "power_limit_watts", g.t, &limit)) return NOT_SUPPORTED;
    memset(out, 0, power_cap_info_SIZE);
    put(out, power_cap_info_power_cap, limit * LIMIT_UNITS_PER_WATT);
    put(out, power_cap_info_default_power_cap, signal_or(&g, "power_limit_default_watts", 0) * LIMIT_UNITS_PER_WATT);
    put(out, power_cap_info_min_power_cap, signal_or(&g, "power_limit_min_watts", 0) * LIMIT_UNITS_PER_WATT);
    put(out, power_cap_info_max_power_cap, signal_or(&g, "power_limit_max_watts", 0) * LIMIT_UNITS_PER_WATT);
    return SUCCESS;
}

double shown_ticks(const target *g)
{
    double joules, resolution = number_or(g->set, "counter_resolution_joules", 1.0 / 65536);
    return plan_counter(g->device, g->t, &joules) ? joules / resolution : INFINITY;
}

int amdsmi_get_energy_count(void *handle, uint64_t *ticks, float *resolution, uint64_t *timestamp)
{
    ENTER(handle);
    if (bare(&g)) return NOT_SUPPORTED;
    put(ticks, 0, 8, shown_ticks(&g));
    *resolution = 15.3F;
    put(timestamp, 0, 8, plan_counter_time(g.device, g.t) * 1e9);
    return SUCCESS;
}

/* ---- load and memory ---- */

int amdsmi_get_gpu_activity(void *handle, void *out)
{
    ENTER(handle);
    if (bare(&g)) return NOT_SUPPORTED;
    double gfx = signal_or(&g, "utilization_ratio", NAN), umc = signal_or(&g, "memory_controller_utilization_ratio", NAN);
    double mm = signal_or(&g, "media_utilization_ratio", NAN);
    memset(out, 0, engine_usage_SIZE);
    put(out, engine_usage_gfx_activity, isfinite(gfx) ? gfx * 100 : 0xFFFF);
    put(out, engine_usage_umc_activity, isfinite(umc) ? umc * 100 : 0xFFFF);
    put(out, engine_usage_mm_activity, isfinite(mm) ? mm * 100 : 0xFFFF);
    return SUCCESS;
}

int amdsmi_get_gpu_vram_usage(void *handle, void *out)
{
    ENTER(handle);
    double size, used;
    if (!plan_signal(g.device, "memory_size_bytes", g.t, &size)) return NOT_SUPPORTED;
    used = signal_or(&g, "memory_used_bytes", 0);
    if (bare(&g)) {
        size = number_or(partition_row(&g), "memory_size_bytes", 0);
        used = number_or(partition_row(&g), "memory_used_bytes", 0);
    }
    memset(out, 0, vram_usage_SIZE);
    put(out, vram_usage_vram_total, size / 1048576.0);
    put(out, vram_usage_vram_used, used / 1048576.0);
    return SUCCESS;
}

static int memory(const target *g, uint32_t kind, const char *what, uint64_t *out)
{
    const char *prefix = kind == MEM_TYPE_GTT ? "gtt" : kind == MEM_TYPE_VIS_VRAM ? "visible_memory" : "memory";
    char name[48];
    double value;
    snprintf(name, sizeof name, "%s_%s_bytes", prefix, what);
    if (bare(g) || !plan_signal(g->device, name, g->t, &value)) return NOT_SUPPORTED;
    put(out, 0, 8, value);
    return SUCCESS;
}

int amdsmi_get_gpu_memory_total(void *handle, uint32_t kind, uint64_t *out)
{
    ENTER(handle);
    return memory(&g, kind, "size", out);
}

int amdsmi_get_gpu_memory_usage(void *handle, uint32_t kind, uint64_t *out)
{
    ENTER(handle);
    if (kind == MEM_TYPE_VRAM) abort();  /* opens /dev/kfd in the caller's process: a monitor must not ask */
    return memory(&g, kind, "used", out);
}
