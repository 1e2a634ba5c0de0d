/* Temperatures, clocks, errors, the link and the table of metrics as libamd_smi.so answers them. */
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int amdsmi_get_temp_metric(void *handle, uint32_t sensor, uint32_t metric, int64_t *out)
{
    static const struct { uint32_t type; const char *name; } sensors[] = {
        {TEMPERATURE_TYPE_EDGE, "edge"},   {TEMPERATURE_TYPE_HOTSPOT, "hotspot"}, {TEMPERATURE_TYPE_VRAM, "memory"},
        {TEMPERATURE_TYPE_HBM_0, "hbm0"},  {TEMPERATURE_TYPE_HBM_1, "hbm1"},      {TEMPERATURE_TYPE_HBM_2, "hbm2"},
        {TEMPERATURE_TYPE_HBM_3, "hbm3"},
    };
    ENTER(handle);
    char name[64] = "";
    for (size_t i = 0; metric == TEMP_CURRENT && i < sizeof sensors / sizeof *sensors; i++)
        if (sensors[i].type == sensor) snprintf(name, sizeof name, "temperature_%s_celsius", sensors[i].name);
    if (metric == TEMP_EMERGENCY && sensor == TEMPERATURE_TYPE_HOTSPOT) strcpy(name, "temperature_limit_shutdown_celsius");
    if (metric == TEMP_CRITICAL && sensor == TEMPERATURE_TYPE_HOTSPOT) strcpy(name, "temperature_limit_slowdown_celsius");
    if (metric == TEMP_CRITICAL && sensor == TEMPERATURE_TYPE_VRAM) strcpy(name, "temperature_limit_memory_celsius");
    double value;
    if (bare(&g) || !*name || !plan_signal(g.device, name, g.t, &value)) return NOT_SUPPORTED;
    put_signed(out, value, 0xFFFF);
    return SUCCESS;
}

int amdsmi_get_clock_info(void *handle, uint32_t type, void *out)
{
    static const struct { uint32_t type; const char *name; } domains[] = {
        {CLK_TYPE_GFX, "graphics"}, {CLK_TYPE_MEM, "memory"}, {CLK_TYPE_SOC, "soc"}, {CLK_TYPE_DF, "fabric"},
        {CLK_TYPE_VCLK0, "video"},
    };
    ENTER(handle);
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        char name[48], max_name[48];
        double value;
        snprintf(name, sizeof name, "clock_%s_hertz", domains[i].name);
        snprintf(max_name, sizeof max_name, "clock_%s_max_hertz", domains[i].name);
        if (domains[i].type != type) continue;
        if (bare(&g) || !plan_signal(g.device, name, g.t, &value)) return NOT_SUPPORTED;
        memset(out, 0, clk_info_SIZE);
        put(out, clk_info_clk, value / 1e6);
        put(out, clk_info_cur_clk, value / 1e6);
        put_missing(out, clk_info_min_clk);
        put(out, clk_info_max_clk, signal_or(&g, max_name, INFINITY) / 1e6);
        put_missing(out, clk_info_sleep_clk);
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

int amdsmi_get_gpu_fan_speed(void *handle, uint32_t sensor, int64_t *out)
{
    (void)sensor;
    ENTER(handle);
    double ratio;
    if (bare(&g) || !plan_signal(g.device, "fan_ratio", g.t, &ratio)) return NOT_SUPPORTED;
    put_signed(out, ratio * 255, 0xFFFF);
    return SUCCESS;
}

int amdsmi_get_gpu_total_ecc_count(void *handle, void *out)
{
    ENTER(handle);
    double corrected;
    if (bare(&g) || !plan_signal(g.device, "ecc_corrected", g.t, &corrected)) return NOT_SUPPORTED;
    memset(out, 0, error_count_SIZE);
    put(out, error_count_correctable_count, corrected);
    put(out, error_count_uncorrectable_count, signal_or(&g, "ecc_uncorrected", 0));
    put(out, error_count_deferred_count, signal_or(&g, "ecc_deferred", 0));
    return SUCCESS;
}

static double link_speed(double generation)
{
    static const double speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    return generation >= 0 && generation <= 6 ? speeds[(int)generation] : INFINITY;
}

#ifdef HAS_amdsmi_get_pcie_info
int amdsmi_get_pcie_info(void *handle, void *out)
{
    ENTER(handle);
    double width;
    if (bare(&g) || !plan_signal(g.device, "pcie_width", g.t, &width)) return NOT_SUPPORTED;
    memset(out, 0, pcie_info_SIZE);
    put(out, pcie_info_pcie_static_max_pcie_width, signal_or(&g, "pcie_width_max", INFINITY));
    put(out, pcie_info_pcie_static_max_pcie_speed, link_speed(signal_or(&g, "pcie_generation_max", INFINITY)));
    put(out, pcie_info_pcie_static_pcie_interface_version, signal_or(&g, "pcie_generation_max", INFINITY));
    put(out, pcie_info_pcie_metric_pcie_width, width);
    put(out, pcie_info_pcie_metric_pcie_speed, link_speed(signal_or(&g, "pcie_generation", INFINITY)));
    put(out, pcie_info_pcie_metric_pcie_replay_count, signal_or(&g, "pcie_replays", INFINITY));
    return SUCCESS;
}
#endif

#ifdef HAS_amdsmi_get_pcie_link_status
static int link(const target *g, const char *width_name, const char *generation_name, void *out)
{
    double width;
    if (!plan_signal(g->device, width_name, g->t, &width)) return NOT_SUPPORTED;
    memset(out, 0, pcie_info_SIZE);
    put(out, pcie_info_pcie_lanes, width);
    put(out, pcie_info_pcie_speed, link_speed(signal_or(g, generation_name, INFINITY)));
    return SUCCESS;
}

int amdsmi_get_pcie_link_status(void *handle, void *out)
{
    ENTER(handle);
    return link(&g, "pcie_width", "pcie_generation", out);
}

int amdsmi_get_pcie_link_caps(void *handle, void *out)
{
    ENTER(handle);
    return link(&g, "pcie_width_max", "pcie_generation_max", out);
}
#endif

static void put_busy(const target *g, void *metrics)
{
    size_t stats[2] = {gpu_metrics_xcp_stats}, busy[2] = {gpu_xcp_metrics_gfx_busy_inst};
    int partitions = g->partitions ? g->partitions : 1;
    if (!stats[1]) return;
    for (int i = 0; i < partitions && i < MAX_PARTITIONS; i++) {
        double load = signal_or(g, "utilization_ratio", INFINITY);
        if (g->partitions) load = number_or(plan_row(g->device, "partition", i), "utilization_ratio", load);
        for (int die = 0; die < DIES / partitions; die++)
            put(metrics, stats[0] + (size_t)i * gpu_xcp_metrics_SIZE + busy[0] + 4 * (size_t)die, 4, load * 100);
    }
}

static void put_links(const target *g, void *metrics)
{
    size_t read[2] = {gpu_metrics_xgmi_read_data_acc}, written[2] = {gpu_metrics_xgmi_write_data_acc};
    size_t status[2] = {gpu_metrics_xgmi_link_status};
    double links = signal_or(g, "link_count", 0), down = signal_or(g, "links_down", 0);
    for (size_t i = 0; i < read[1] / 8 && (double)i < links; i++) {
        put(metrics, read[0] + 8 * i, 8, signal_or(g, "link_receive_bytes", INFINITY) / 1024);
        put(metrics, written[0] + 8 * i, 8, signal_or(g, "link_transmit_bytes", INFINITY) / 1024);
        if (status[1]) put(metrics, status[0] + 2 * i, 2, (double)i + down < links);
    }
}

int amdsmi_get_gpu_metrics_info(void *handle, void *out)
{
    static const struct { size_t field[2]; const char *name; } residencies[] = {
        {{gpu_metrics_prochot_residency_acc}, "throttle_processor_hot_seconds"},
        {{gpu_metrics_ppt_residency_acc}, "throttle_sw_power_cap_seconds"},
        {{gpu_metrics_socket_thm_residency_acc}, "throttle_hw_thermal_seconds"},
        {{gpu_metrics_vr_thm_residency_acc}, "throttle_voltage_regulator_thermal_seconds"},
        {{gpu_metrics_hbm_thm_residency_acc}, "throttle_memory_thermal_seconds"},
    };
    ENTER(handle);
    if (bare(&g)) return NOT_SUPPORTED;
    memset(out, 0xFF, gpu_metrics_SIZE);
    put(out, gpu_metrics_temperature_edge, signal_or(&g, "temperature_edge_celsius", INFINITY));
    put(out, gpu_metrics_temperature_hotspot, signal_or(&g, "temperature_hotspot_celsius", INFINITY));
    put(out, gpu_metrics_temperature_mem, signal_or(&g, "temperature_memory_celsius", INFINITY));
    put(out, gpu_metrics_average_gfx_activity, signal_or(&g, "utilization_ratio", INFINITY) * 100);
    put(out, gpu_metrics_average_umc_activity, signal_or(&g, "memory_controller_utilization_ratio", INFINITY) * 100);
    put(out, gpu_metrics_average_mm_activity, signal_or(&g, "media_utilization_ratio", INFINITY) * 100);
    put(out, gpu_metrics_average_socket_power, shown_power(&g, "average"));
    put(out, gpu_metrics_current_socket_power, shown_power(&g, "instant"));
    put(out, gpu_metrics_energy_accumulator, shown_ticks(&g));
    put(out, gpu_metrics_system_clock_counter, g.t * 1e9);
    put(out, gpu_metrics_current_gfxclk, signal_or(&g, "clock_graphics_hertz", INFINITY) / 1e6);
    put(out, gpu_metrics_current_socclk, signal_or(&g, "clock_soc_hertz", INFINITY) / 1e6);
    put(out, gpu_metrics_current_uclk, signal_or(&g, "clock_memory_hertz", INFINITY) / 1e6);
    put(out, gpu_metrics_pcie_link_width, signal_or(&g, "pcie_width", INFINITY));
    put(out, gpu_metrics_accumulation_counter, g.t * 1000);
    for (size_t i = 0; i < sizeof residencies / sizeof *residencies; i++)
        put(out, residencies[i].field[0], residencies[i].field[1], signal_or(&g, residencies[i].name, INFINITY) * 1000);
    put(out, gpu_metrics_num_partition, g.partitions ? g.partitions : 1);
    put_busy(&g, out);
    put_links(&g, out);
    return SUCCESS;
}
