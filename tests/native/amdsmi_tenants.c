/* Processes as libamd_smi.so lists them. */
#include "amdsmi.h"

#include <math.h>
#include <string.h>

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
    *count = 0;
    put(count, 0, sizeof(uint16_t), found);
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
