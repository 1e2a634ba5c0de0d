/* Which device a handle stands for, and what it is, as libamd_smi.so answers it. */
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
