/* Stands in for libnvidia-ml.so.1: answers the calls that the exporter makes through nvidia-ml-py from a plan.
 *
 * As the real library does: handles die with the last nvmlShutdown; a lookup of a lost GPU fails; a list is asked for
 * twice, with "insufficient size" first; memory that is not known is 2^64-1; each field has a status and a type of its
 * own; versioned structs are refused in another version; a null handle kills the process.
 */
#include "nvidia.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Handles ---- */

#define SLOTS 8192
static slot slots[SLOTS];
static unsigned first_slot, slots_used;   /* those before `first_slot` died with a shutdown */
static int initialised;

static const char *name_of(const plan_set *set)
{
    const char *uuid = plan_text(set, "uuid");
    return uuid ? uuid : plan_text(set, "pci_address");
}

int give(const char *device, const char *instance, void **out)
{
    for (unsigned i = first_slot; i < slots_used; i++)
        if (!strcmp(slots[i].device, device) && !strcmp(slots[i].instance, instance)) {
            *out = &slots[i];
            return SUCCESS;
        }
    if (slots_used == SLOTS) return OUT_OF_MEMORY;
    slot *fresh = &slots[slots_used++];
    snprintf(fresh->device, sizeof fresh->device, "%s", device);
    snprintf(fresh->instance, sizeof fresh->instance, "%s", instance);
    *out = fresh;
    return SUCCESS;
}

const plan_device *find_device(const char *name)
{
    const plan_device *device = plan_find(VENDOR, "uuid", name);
    return device ? device : plan_find(VENDOR, "pci_address", name);
}

int ready(void)
{
    if (plan_refresh()) return UNKNOWN;
    return initialised ? SUCCESS : UNINITIALIZED;
}

/* Starts each call that is not about one GPU. */
static int begin(const char *call)
{
    int status = ready();
    return status ? status : plan_fault(NULL, call);
}

int enter(void *handle, const char *call, target *to)
{
    if (plan_refresh()) return UNKNOWN;
    if (!initialised) return UNINITIALIZED;
    if (!handle) raise(SIGSEGV);
    const slot *s = handle;
    if (s < slots + first_slot || s >= slots + slots_used) return INVALID_ARGUMENT;
    to->device = find_device(s->device);
    if (!to->device) return GPU_IS_LOST;
    if (plan_asleep(to->device)) abort();   /* would wake it */
    int status = plan_fault(to->device, call);
    if (status) return status;
    to->set = plan_properties(to->device);
    to->instance = NULL;
    to->t = plan_now();
    if (!*s->instance) return SUCCESS;
    for (int i = 0; i < plan_rows(to->device, "partition"); i++) {
        const plan_set *row = plan_row(to->device, "partition", i);
        const char *uuid = plan_text(row, "uuid");
        if (uuid && !strcmp(uuid, s->instance)) {
            to->instance = row;
            return SUCCESS;
        }
    }
    return INVALID_ARGUMENT;   /* the instance was destroyed */
}

int enter_gpu(void *handle, const char *call, target *to)
{
    int status = enter(handle, call, to);
    return status ? status : to->instance ? NOT_SUPPORTED : SUCCESS;
}

/* ---- Numbers: from base units to what NVML counts in ---- */

uint64_t scaled(double value, double scale, uint64_t all_ones)
{
    uint64_t bits;
    if (plan_raw(&bits)) return bits & all_ones;
    if (isinf(value)) return all_ones;
    double raw = round(value * scale);
    if (!(raw > 0)) return 0;
    return raw >= (double)all_ones ? all_ones : (uint64_t)raw;
}

int whole(double value)
{
    uint64_t bits;
    return plan_raw(&bits) ? (int)bits : isinf(value) ? -1 : (int)lround(value);
}

int number(const plan_set *set, const char *name, unsigned *out)
{
    double value;
    if (!plan_number(set, name, &value)) return NOT_SUPPORTED;
    *out = (unsigned)scaled(value, 1, UINT32_MAX);
    return SUCCESS;
}

int signal32(const target *to, const char *name, double scale, unsigned *out)
{
    double value;
    if (!plan_signal(to->device, name, to->t, &value)) return NOT_SUPPORTED;
    *out = (unsigned)scaled(value, scale, UINT32_MAX);
    return SUCCESS;
}

int signal64(const target *to, const char *name, double scale, uint64_t *out)
{
    double value;
    if (!plan_signal(to->device, name, to->t, &value)) return NOT_SUPPORTED;
    *out = scaled(value, scale, UINT64_MAX);
    return SUCCESS;
}

int reading(void *handle, const char *call, const char *name, double scale, unsigned *out)
{
    target to;
    int status = enter_gpu(handle, call, &to);
    return status ? status : signal32(&to, name, scale, out);
}

static int property(void *handle, const char *call, const char *name, unsigned *out)
{
    target to;
    int status = enter_gpu(handle, call, &to);
    return status ? status : number(to.set, name, out);
}

static int text_of(const plan_set *set, const char *name, char *out, unsigned length)
{
    const char *text = plan_text(set, name);
    if (!text) return NOT_SUPPORTED;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int text(void *handle, const char *call, const char *name, char *out, unsigned length)
{
    target to;
    int status = enter_gpu(handle, call, &to);
    return status ? status : text_of(to.set, name, out, length);
}

int mig_enabled(const target *to)
{
    double enabled;
    return plan_signal(to->device, "mig_enabled", to->t, &enabled) && enabled > 0;
}

/* ---- Library ---- */

int nvmlInitWithFlags(unsigned flags)
{
    enum { NO_GPUS_IS_FINE = 1 };
    double loaded;
    if (plan_refresh()) return DRIVER_NOT_LOADED;
    int status = plan_fault(NULL, __func__);
    if (status) return status;
    if (plan_number(plan_machine(), "kernel_driver_loaded", &loaded) && loaded == 0) return DRIVER_NOT_LOADED;
    if (!(flags & NO_GPUS_IS_FINE) && !plan_count(VENDOR)) return GPU_NOT_FOUND;
    if (!initialised++) hold_device_files();
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    int status = begin("nvmlShutdown");
    if (status) return status;
    if (!--initialised) {
        first_slot = slots_used;
        drop_device_files();
    }
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    static const char *const names[] = {
        [0] = "Success", [1] = "Uninitialized", [2] = "Invalid Argument", [3] = "Not Supported",
        [4] = "Insufficient Permissions", [5] = "Already Initialized", [6] = "Not Found", [7] = "Insufficient Size",
        [8] = "Insufficient External Power", [9] = "Driver Not Loaded", [10] = "Timeout",
        [11] = "Interrupt Request Issue", [12] = "NVML Shared Library Not Found", [13] = "Function Not Found",
        [14] = "Corrupted infoROM", [15] = "GPU is lost", [16] = "GPU requires reset",
        [17] = "The operating system has blocked the request", [18] = "Driver/library version mismatch",
        [19] = "In use by another client", [20] = "Insufficient Memory", [21] = "No data",
        [22] = "vGPU ECC not supported", [23] = "Insufficient resources", [24] = "Frequency not supported",
        [25] = "Argument version mismatch", [26] = "Deprecated", [27] = "Not ready", [28] = "GPU not found",
        [29] = "Invalid state", [30] = "Reset type not supported",
    };
    return status >= 0 && status < (int)(sizeof names / sizeof *names) ? names[status] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    int status = begin(__func__);
    return status ? status : text_of(plan_machine(), "driver_version", out, length);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    int status = begin(__func__);
    return status ? status : text_of(plan_machine(), "library_version", out, length);
}

/* ---- Enumeration ---- */

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int status = begin(__func__);
    if (status) return status;
    *count = (unsigned)scaled(plan_count(VENDOR), 1, UINT32_MAX);
    return SUCCESS;
}

static int handle_of(const plan_device *device, const char *call, void **out)
{
    if (plan_asleep(device)) abort();   /* would attach the GPU, and so wake it */
    int status = plan_fault(device, call);
    if (status) return status;
    const char *name = name_of(plan_properties(device));
    return name ? give(name, "", out) : UNKNOWN;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    int status = begin(__func__);
    if (status) return status;
    if (index >= (unsigned)plan_count(VENDOR)) return INVALID_ARGUMENT;
    return handle_of(plan_device_at(VENDOR, (int)index), __func__, out);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    int status = begin(__func__);
    if (status) return status;
    const plan_device *device = plan_find(VENDOR, "uuid", uuid);
    for (int i = 0; i < plan_count(VENDOR); i++)
        if (plan_asleep(plan_device_at(VENDOR, i))) abort();   /* the search may attach any GPU */
    return device ? handle_of(device, __func__, out) : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **out)
{
    int status = begin(__func__);
    if (status) return status;
    unsigned domain, bus, number_on_bus, function;
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &number_on_bus, &function) != 4) return INVALID_ARGUMENT;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%04x:%02x:%02x.%x", domain, bus, number_on_bus, function);
    const plan_device *device = plan_find(VENDOR, "pci_address", wanted);
    return device ? handle_of(device, __func__, out) : NOT_FOUND;
}

/* ---- Identity ---- */

int nvmlDeviceGetUUID(void *handle, char *out, unsigned length)
{
    target to;
    int status = enter(handle, __func__, &to);
    return status ? status : text_of(to.instance ? to.instance : to.set, "uuid", out, length);
}

int nvmlDeviceGetName(void *handle, char *out, unsigned length)
{
    target to;
    int status = enter(handle, __func__, &to);
    if (status || !to.instance) return status ? status : text_of(to.set, "name", out, length);
    const char *name = plan_text(to.set, "name"), *profile = plan_text(to.instance, "profile");
    if (!name || !profile) return NOT_SUPPORTED;
    return snprintf(out, length, "%s MIG %s", name, profile) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetSerial(void *h, char *out, unsigned n) { return text(h, __func__, "serial", out, n); }
int nvmlDeviceGetVbiosVersion(void *h, char *out, unsigned n) { return text(h, __func__, "vbios_version", out, n); }

int nvmlDeviceGetInforomImageVersion(void *h, char *out, unsigned n)
{
    return text(h, __func__, "firmware_inforom", out, n);
}

int nvmlDeviceGetGspFirmwareVersion(void *h, char *out)
{
    enum { ROOM = 0x40 };
    return text(h, __func__, "firmware_gsp", out, ROOM);
}

int nvmlDeviceGetMinorNumber(void *h, unsigned *out) { return property(h, __func__, "minor", out); }
int nvmlDeviceGetArchitecture(void *h, unsigned *out) { return property(h, __func__, "architecture_code", out); }
int nvmlDeviceGetBoardId(void *h, unsigned *out) { return property(h, __func__, "board_id", out); }
int nvmlDeviceGetMultiGpuBoard(void *h, unsigned *out) { return property(h, __func__, "multi_gpu_board", out); }

int nvmlDeviceGetIndex(void *handle, unsigned *out)
{
    target to;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    for (int i = 0; i < plan_count(VENDOR); i++)
        if (plan_device_at(VENDOR, i) == to.device) {
            *out = (unsigned)scaled(i, 1, UINT32_MAX);
            return SUCCESS;
        }
    return GPU_IS_LOST;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    target to;
    unsigned high, low;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    if (number(to.set, "compute_capability_major", &high) || number(to.set, "compute_capability_minor", &low))
        return NOT_SUPPORTED;
    *major = (int)high;
    *minor = (int)low;
    return SUCCESS;
}

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *out)
{
    enum { NVIDIA = 0x10DE };
    target to;
    unsigned id = 0;
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    memset(out, 0, sizeof *out);
    if (number(to.set, "pci_domain", &out->domain) || number(to.set, "pci_bus", &out->bus) ||
        number(to.set, "pci_device", &out->device) || number(to.set, "pci_device_id", &id))
        return NOT_SUPPORTED;
    out->device_id = id << 16 | NVIDIA;
    if (!number(to.set, "pci_subsystem_id", &id)) out->subsystem_id = id << 16 | NVIDIA;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus & 0xFF,
             out->device & 0xFF);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    return SUCCESS;
}
