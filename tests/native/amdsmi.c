/* Stands in for libamd_smi.so: the simulated machine through the C interface of AMD SMI, as one ROCm release lays it out.
 *
 * amdsmi_layout.h is generated from the amdsmi wheel of that release (tests/native/amdsmi_layout.py): for each field
 * "offset, width" of the wheel's own struct, width 0 where that release has no such field. Functions that not every
 * release has are compiled where the wheel binds them; all others that it binds answer "not supported".
 */
#include "amdsmi_layout.h"
#include "plan.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, OUT_OF_RESOURCES = 15, INIT_ERROR = 18, NOT_FOUND = 31, NOT_INIT = 32,
    DRIVER_NOT_LOADED = 34,
};
enum { MAX_SLOTS = 512, MAX_PARTITIONS = 8, DIES = 8 };

typedef struct { char address[24]; int partition; } slot;

/* Handles are addresses of slots, which are never given to another device: a handle outlives a removal. */
static slot slots[MAX_SLOTS];
static int slots_used;
static int initialised;

typedef struct { const plan_device *device; const plan_set *set; int partition, partitions; double t; } target;

/* ---- raw fields ---- */

static void put(void *out, size_t offset, size_t width, double value)
{
    uint64_t ones = width >= 8 ? UINT64_MAX : ((uint64_t)1 << (8 * width)) - 1, raw;
    if (!width) return;
    if (isinf(value) || isnan(value)) raw = ones;
    else if (value <= 0) raw = 0;
    else if (value >= (double)ones) raw = ones;
    else raw = (uint64_t)(value + 0.5);
    memcpy((char *)out + offset, &raw, width);
}

/* A value that this device does not have. */
static void put_missing(void *out, size_t offset, size_t width) { put(out, offset, width, INFINITY); }

static void put_text(void *out, size_t offset, size_t width, const char *text)
{
    if (!width) return;
    memset((char *)out + offset, 0, width);
    size_t length = text ? strlen(text) : 0;
    if (length) memcpy((char *)out + offset, text, length < width ? length : width - 1);
}

static double number_or(const plan_set *set, const char *name, double otherwise)
{
    double value;
    return plan_number(set, name, &value) ? value : otherwise;
}

static double signal_or(const target *g, const char *name, double otherwise)
{
    double value;
    return plan_signal(g->device, name, g->t, &value) ? value : otherwise;
}

/* ---- handles ---- */

static int partition_id(const plan_device *device, int index)
{
    return (int)number_or(plan_row(device, "partition", index), "partition_id", index);
}

static const plan_set *partition_row(const target *g)
{
    for (int i = 0; i < plan_rows(g->device, "partition"); i++)
        if (partition_id(g->device, i) == g->partition) return plan_row(g->device, "partition", i);
    return NULL;
}

static slot *slot_of(const char *address, int partition)
{
    for (int i = 0; i < slots_used; i++)
        if (slots[i].partition == partition && !strcmp(slots[i].address, address)) return &slots[i];
    if (slots_used == MAX_SLOTS) return NULL;
    snprintf(slots[slots_used].address, sizeof slots[0].address, "%s", address);
    slots[slots_used].partition = partition;
    return &slots[slots_used++];
}

static int enter(const void *handle, const char *call, target *g)
{
    const slot *s = handle;
    if (!initialised) return NOT_INIT;
    if (plan_refresh()) return INIT_ERROR;
    if (number_or(plan_machine(), "kernel_driver_loaded", 1) == 0) return DRIVER_NOT_LOADED;
    if (s < slots || s >= slots + slots_used) return NOT_FOUND;
    memset(g, 0, sizeof *g);
    g->device = plan_find("amd", "pci_address", s->address);
    if (!g->device) return NOT_FOUND;
    int status = plan_fault(g->device, call);
    if (status) return status;
    g->set = plan_properties(g->device);
    g->partition = s->partition;
    g->partitions = plan_rows(g->device, "partition");
    if (g->partition && !partition_row(g)) return NOT_FOUND;  /* repartitioned since */
    g->t = plan_now();
    return SUCCESS;
}

#define ENTER(handle)                                      \
    target g;                                              \
    int status = enter(handle, __func__, &g);              \
    if (status) return status

/* From ROCm 6.4.1 only the first partition has the sensors of the package; before, each repeats them. */
static int bare(const target *g) { return !PARTITIONS_REPEAT && g->partition != 0; }

/* ---- library ---- */

int amdsmi_init(uint64_t flags)
{
    (void)flags;
    if (plan_refresh()) return INIT_ERROR;
    int status = plan_fault(NULL, __func__);
    if (status) return status;
    if (number_or(plan_machine(), "kernel_driver_loaded", 1) == 0) return DRIVER_NOT_LOADED;
    initialised = 1;
    return SUCCESS;
}

int amdsmi_shut_down(void)
{
    if (!initialised) return NOT_INIT;
    if (plan_refresh()) return INIT_ERROR;
    int status = plan_fault(NULL, __func__);
    if (status) return status;
    initialised = 0;
    return SUCCESS;
}

int amdsmi_get_lib_version(void *out)
{
    static const uint32_t version[4] = {LIBRARY_VERSION};
    static const char build[] = "0";
    const char *at = build;
    if (RELEASE < 604 && !initialised) return NOT_INIT;
    memset(out, 0, version_SIZE);
    memcpy(out, version, sizeof version);
    size_t where[2] = {version_build};
    memcpy((char *)out + where[0], &at, sizeof at);
    return SUCCESS;
}

int amdsmi_get_socket_handles(uint32_t *count, void **handles)
{
    if (!initialised) return NOT_INIT;
    if (plan_refresh()) return INIT_ERROR;
    int status = plan_fault(NULL, __func__);
    if (status) return status;
    if (number_or(plan_machine(), "kernel_driver_loaded", 1) == 0) return DRIVER_NOT_LOADED;
    uint32_t found = 0, devices = (uint32_t)plan_count("amd");
    for (uint32_t i = 0; i < devices; i++) {
        const char *address = plan_text(plan_properties(plan_device_at("amd", (int)i)), "pci_address");
        slot *s = address ? slot_of(address, 0) : NULL;
        if (!s) continue;
        if (handles && found < *count) handles[found] = s;
        found++;
    }
    *count = handles && *count < found ? *count : found;
    return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles)
{
    ENTER(socket);
    uint32_t found = g.partitions ? (uint32_t)g.partitions : 1;
    for (uint32_t i = 0; handles && i < found && i < *count; i++)
        handles[i] = slot_of(((slot *)socket)->address, g.partitions ? partition_id(g.device, (int)i) : 0);
    *count = handles && *count < found ? *count : found;
    return SUCCESS;
}

/* ---- identity ---- */

int amdsmi_get_gpu_device_bdf(void *handle, void *out)
{
    ENTER(handle);
    uint64_t function = (uint64_t)number_or(g.set, "pci_function", 0);
#ifdef HAS_amdsmi_get_gpu_kfd_info  /* from 6.3 the function shows the partition */
    function += (uint64_t)g.partition;
#endif
    uint64_t raw = function | (uint64_t)number_or(g.set, "pci_device", 0) << 3 |
                   (uint64_t)number_or(g.set, "pci_bus", 0) << 8 | (uint64_t)number_or(g.set, "pci_domain", 0) << 16;
    memcpy(out, &raw, sizeof raw);
    return SUCCESS;
}

int amdsmi_get_gpu_device_uuid(void *handle, uint32_t *length, char *out)
{
    ENTER(handle);
    const char *uuid = plan_text(g.set, "uuid");
    if (!uuid) return NOT_SUPPORTED;
    snprintf(out, *length, "%s", uuid);
    /* From 7.0 the second byte is the partition's; before, all partitions have one UUID. */
    if (RELEASE >= 700 && g.partitions && strlen(out) > 4) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", (unsigned)g.partition & 0xFF);
        memcpy(out + 2, byte, 2);
    }
    return SUCCESS;
}

int amdsmi_get_gpu_asic_info(void *handle, void *out)
{
    ENTER(handle);
    memset(out, 0, asic_info_SIZE);
    const char *serial = plan_text(g.set, "unique_id"), *architecture = plan_text(g.set, "architecture");
    char upper[40] = "";
    for (size_t i = 0; serial && serial[i] && i < sizeof upper - 1; i++)
        upper[i] = (char)(serial[i] >= 'a' && serial[i] <= 'z' ? serial[i] - 32 : serial[i]);
    put_text(out, asic_info_market_name, plan_text(g.set, "name"));
    put(out, asic_info_vendor_id, 0x1002);
    put_text(out, asic_info_vendor_name, "Advanced Micro Devices, Inc. [AMD/ATI]");
    put(out, asic_info_device_id, bare(&g) ? 0 : number_or(g.set, "pci_device_id", 0));
    put(out, asic_info_rev_id, number_or(g.set, "pci_revision", 0));
    put_text(out, asic_info_asic_serial, upper);
    put(out, asic_info_oam_id, number_or(g.set, "oam_id", INFINITY));
    put(out, asic_info_num_of_compute_units, number_or(g.set, "compute_units", INFINITY));
    put(out, asic_info_subsystem_id, number_or(g.set, "pci_subsystem_id", INFINITY));
    /* 6.3 prints this in decimal, later releases in hexadecimal. */
    if (architecture && !strncmp(architecture, "gfx", 3))
        put(out, asic_info_target_graphics_version, (double)strtoul(architecture + 3, NULL, RELEASE >= 604 ? 16 : 10));
    return SUCCESS;
}

int amdsmi_get_gpu_board_info(void *handle, void *out)
{
    ENTER(handle);
    memset(out, 0, board_info_SIZE);
    put_text(out, board_info_model_number, plan_text(g.set, "part_number"));
    put_text(out, board_info_product_serial, plan_text(g.set, "serial"));
    put_text(out, board_info_product_name, plan_text(g.set, "board_name"));
    put_text(out, board_info_manufacturer_name, "AMD");
    return SUCCESS;
}

int amdsmi_get_gpu_vbios_info(void *handle, void *out)
{
    ENTER(handle);
    const char *version = plan_text(g.set, "vbios_version");
    if (!version) return NOT_SUPPORTED;
    memset(out, 0, vbios_info_SIZE);
    put_text(out, vbios_info_version, version);
    return SUCCESS;
}

int amdsmi_get_gpu_driver_info(void *handle, void *out)
{
    ENTER(handle);
    memset(out, 0, driver_info_SIZE);
    put_text(out, driver_info_driver_name, "amdgpu");
    const char *version = plan_text(g.set, "driver_version");
    put_text(out, driver_info_driver_version, version ? version : plan_text(plan_machine(), "driver_version"));
    return SUCCESS;
}

int amdsmi_get_gpu_vram_info(void *handle, void *out)
{
    static const struct { const char *name; int type; } types[] = {
        {"hbm3", VRAM_TYPE_HBM3}, {"hbm2e", VRAM_TYPE_HBM2E}, {"hbm2", VRAM_TYPE_HBM2}, {"hbm", VRAM_TYPE_HBM},
        {"gddr6", VRAM_TYPE_GDDR6}, {"ddr", VRAM_TYPE_DDR4},
    };
    ENTER(handle);
    memset(out, 0, vram_info_SIZE);
    const char *kind = plan_text(g.set, "memory_type");
    for (size_t i = 0; kind && i < sizeof types / sizeof *types; i++) {
        if (strncmp(kind, types[i].name, strlen(types[i].name))) continue;
        put(out, vram_info_vram_type, types[i].type >= 0 ? types[i].type : VRAM_TYPE_HBM);  /* 6.1 knows HBM only */
        break;
    }
    double size = signal_or(&g, "memory_size_bytes", 0) / 1048576.0;
    put(out, vram_info_vram_size, size);
    put(out, vram_info_vram_size_mb, size);
    return SUCCESS;
}

#ifdef HAS_amdsmi_get_gpu_kfd_info
int amdsmi_get_gpu_kfd_info(void *handle, void *out)
{
    ENTER(handle);
    memset(out, 0, kfd_info_SIZE);
    double own = g.partitions ? number_or(partition_row(&g), "kfd_gpu_id", INFINITY) : INFINITY;
    put(out, kfd_info_kfd_id, isinf(own) ? number_or(g.set, "kfd_gpu_id", INFINITY) : own);
    put(out, kfd_info_node_id, number_or(g.set, "kfd_node_id", INFINITY));
    put(out, kfd_info_current_partition_id, g.partition);
    return SUCCESS;
}
#endif

#ifdef HAS_amdsmi_get_gpu_enumeration_info
int amdsmi_get_gpu_enumeration_info(void *handle, void *out)
{
    ENTER(handle);
    memset(out, 0, enumeration_info_SIZE);
    put(out, enumeration_info_drm_render, number_or(g.set, "render_minor", INFINITY));
    put(out, enumeration_info_drm_card, number_or(g.set, "card_minor", INFINITY));
    put(out, enumeration_info_hip_id, number_or(g.set, "hip_id", INFINITY));
    return SUCCESS;
}
#endif

static int partition_mode(const target *g, const char *property, char *out, uint32_t length)
{
    const char *mode = plan_text(g->set, property);
    if (!mode) return NOT_SUPPORTED;
    snprintf(out, length, "%s", mode);
    return SUCCESS;
}

int amdsmi_get_gpu_compute_partition(void *handle, char *out, uint32_t length)
{
    ENTER(handle);
    return partition_mode(&g, "compute_partition", out, length);
}

int amdsmi_get_gpu_memory_partition(void *handle, char *out, uint32_t length)
{
    ENTER(handle);
    return partition_mode(&g, "memory_partition", out, length);
}

/* ---- power and energy ---- */

static double power(const target *g, const char *kind)
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
    double current = power(g, "instant"), average = power(g, "average");
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

static double counter_ticks(const target *g)
{
    double joules, resolution = number_or(g->set, "counter_resolution_joules", 1.0 / 65536);
    return plan_counter(g->device, g->t, &joules) ? joules / resolution : INFINITY;
}

int amdsmi_get_energy_count(void *handle, uint64_t *ticks, float *resolution, uint64_t *timestamp)
{
    ENTER(handle);
    if (bare(&g)) return NOT_SUPPORTED;
    put(ticks, 0, 8, counter_ticks(&g));
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

/* ---- state ---- */

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
    *out = isfinite(value) ? (int64_t)lround(value) : 0xFFFF;
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
    *out = (int64_t)lround(ratio * 255);
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
    put(out, gpu_metrics_average_socket_power, power(&g, "average"));
    put(out, gpu_metrics_current_socket_power, power(&g, "instant"));
    put(out, gpu_metrics_energy_accumulator, counter_ticks(&g));
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
    return SUCCESS;
}

/* ---- processes ---- */

static int mine(const target *g, const plan_set *row)
{
    return !g->partitions || (int)number_or(row, "partition_id", 0) == g->partition;
}

static void put_process(const plan_set *row, void *out)
{
    memset(out, 0, proc_info_SIZE);
    put_text(out, proc_info_name, plan_text(row, "name"));
    put(out, proc_info_pid, number_or(row, "pid", 0));
    double memory_bytes = number_or(row, "memory_used_bytes", 0);
    put(out, proc_info_mem, memory_bytes);
    put(out, proc_info_memory_usage_vram_mem, memory_bytes);
    put(out, proc_info_memory_usage_gtt_mem, number_or(row, "gtt_used_bytes", 0));
    put(out, proc_info_cu_occupancy, number_or(row, "cu_occupancy", INFINITY));
}

int amdsmi_get_gpu_process_list(void *handle, uint32_t *count, void *out)
{
    ENTER(handle);
    uint32_t found = 0;
    for (int i = 0; i < plan_rows(g.device, "process"); i++) {
        const plan_set *row = plan_row(g.device, "process", i);
        if (!mine(&g, row)) continue;
        if (found == *count) return OUT_OF_RESOURCES;
#ifdef HAS_amdsmi_get_gpu_process_info
        uint32_t pid = (uint32_t)number_or(row, "pid", 0);
        memcpy((char *)out + found * sizeof pid, &pid, sizeof pid);
#else
        put_process(row, (char *)out + found * proc_info_SIZE);
#endif
        found++;
    }
    *count = found;
    return SUCCESS;
}

#ifdef HAS_amdsmi_get_gpu_process_info
int amdsmi_get_gpu_process_info(void *handle, uint32_t process, void *out)
{
    ENTER(handle);
    for (int i = 0; i < plan_rows(g.device, "process"); i++) {
        const plan_set *row = plan_row(g.device, "process", i);
        if (!mine(&g, row) || number_or(row, "pid", 0) != process) continue;
        put_process(row, out);
        return SUCCESS;
    }
    return NOT_FOUND;
}
#endif
