/* Stands in for libamd_smi.so: the simulated machine through the C interface of AMD SMI, as one ROCm release lays it out.
 *
 * This part: the library itself, its handles, and how raw fields are filled.
 */
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 512 };

typedef struct { char address[24]; int partition; } slot;

/* Handles are addresses of slots, which are never given to another device: a handle outlives a removal. */
static slot slots[MAX_SLOTS];
static int slots_used;
static int initialised;

/* ---- raw fields ---- */

void put(void *out, size_t offset, size_t width, double value)
{
    uint64_t ones = width >= 8 ? UINT64_MAX : ((uint64_t)1 << (8 * width)) - 1, raw;
    if (!width) return;
    if (plan_raw(&raw)) raw &= ones;
    else if (isinf(value) || isnan(value)) raw = ones;
    else if (value <= 0) raw = 0;
    else if (value >= (double)ones) raw = ones;
    else raw = (uint64_t)(value + 0.5);
    memcpy((char *)out + offset, &raw, width);
}

/* A value that this device does not have. */
void put_missing(void *out, size_t offset, size_t width) { put(out, offset, width, INFINITY); }

void put_text(void *out, size_t offset, size_t width, const char *text)
{
    if (!width) return;
    memset((char *)out + offset, 0, width);
    size_t length = text ? strlen(text) : 0;
    if (length) memcpy((char *)out + offset, text, length < width ? length : width - 1);
}

void put_signed(int64_t *out, double value, int64_t missing)
{
    uint64_t bits;
    *out = plan_raw(&bits) ? (int64_t)bits : isfinite(value) ? (int64_t)lround(value) : missing;
}

double number_or(const plan_set *set, const char *name, double otherwise)
{
    double value;
    return plan_number(set, name, &value) ? value : otherwise;
}

double signal_or(const target *g, const char *name, double otherwise)
{
    double value;
    return plan_signal(g->device, name, g->t, &value) ? value : otherwise;
}

/* ---- handles ---- */

static int partition_id(const plan_device *device, int index)
{
    return (int)number_or(plan_row(device, "partition", index), "partition_id", index);
}

const plan_set *partition_row(const target *g)
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

int enter(const void *handle, const char *call, target *g)
{
    const slot *s = handle;
    if (!initialised) return NOT_INIT;
    if (plan_refresh()) return INIT_ERROR;
    if (number_or(plan_machine(), "kernel_driver_loaded", 1) == 0) return DRIVER_NOT_LOADED;
    if (s < slots || s >= slots + slots_used) return NOT_FOUND;
    memset(g, 0, sizeof *g);
    g->device = plan_find("amd", "pci_address", s->address);
    if (!g->device) return NOT_FOUND;
    if (plan_asleep(g->device) && strcmp(call, "amdsmi_get_gpu_device_bdf")) abort();   /* would wake it */
    int status = plan_fault(g->device, call);
    if (status) return status;
    g->set = plan_properties(g->device);
    g->partition = s->partition;
    g->partitions = plan_rows(g->device, "partition");
    if (g->partition && !partition_row(g)) return NOT_FOUND;  /* repartitioned since */
    g->t = plan_now();
    return SUCCESS;
}

int bare(const target *g) { return !PARTITIONS_REPEAT && g->partition != 0; }

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

/* A list that was made at the start: of a GPU that does not answer any more it says the same. */
int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles)
{
    const slot *s = socket;
    if (!initialised) return NOT_INIT;
    if (plan_refresh()) return INIT_ERROR;
    if (number_or(plan_machine(), "kernel_driver_loaded", 1) == 0) return DRIVER_NOT_LOADED;
    int status = plan_fault(NULL, __func__);
    if (status) return status;
    const plan_device *device = s >= slots && s < slots + slots_used ? plan_find("amd", "pci_address", s->address) : NULL;
    if (!device) return NOT_FOUND;
    int partitions = plan_rows(device, "partition");
    uint32_t found = partitions ? (uint32_t)partitions : 1;
    for (uint32_t i = 0; handles && i < found && i < *count; i++)
        handles[i] = slot_of(s->address, partitions ? partition_id(device, (int)i) : 0);
    *count = handles && *count < found ? *count : found;
    return SUCCESS;
}
