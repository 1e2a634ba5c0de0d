/* What the parts of the stand-in for libnvidia-ml.so.1 share. */
#ifndef NVIDIA_H
#define NVIDIA_H

#include "plan.h"

#include <stdint.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, OUT_OF_MEMORY = 20, ARGUMENT_VERSION_MISMATCH = 25, GPU_NOT_FOUND = 28,
    UNKNOWN = 999
};

#define VENDOR "nvidia"

#pragma GCC visibility push(hidden)

/* A handle is the address of a slot that names what it stands for, so that it outlives a change of the plan. */
typedef struct { char device[128]; char instance[128]; } slot;

/* What a call is about. `instance`: the row of a MIG instance, else NULL. */
typedef struct { const plan_device *device; const plan_set *set, *instance; double t; } target;

/* Gives the handle of a device, or of a MIG instance of it; `instance` is "" for the device. */
int give(const char *device, const char *instance, void **out);

/* Starts each call about a GPU or a MIG instance: faults, then what the handle stands for. */
int enter(void *handle, const char *call, target *to);

/* The same for what exists of whole GPUs only, such as power and clocks. */
int enter_gpu(void *handle, const char *call, target *to);

int mig_enabled(const target *to);

/* The device that was given out under a name, or NULL; the status of the library as a whole. */
const plan_device *find_device(const char *name);
int ready(void);

/* From base units to what NVML counts in; infinite is all ones. Each returns an NVML status. */
uint64_t scaled(double value, double scale, uint64_t all_ones);
int whole(double value);
int number(const plan_set *set, const char *name, unsigned *out);
int signal32(const target *to, const char *name, double scale, unsigned *out);
int signal64(const target *to, const char *name, double scale, uint64_t *out);

/* What is the same of all links of a GPU: looked up once in a call, which may ask for a hundred fields about them. */
typedef struct { int known, told; unsigned architecture, count, down; } links;

/* Fields about the links of a GPU: of those with a scope it is the number of the link. */
int link_field(const target *to, links *all, unsigned id, unsigned scope, uint64_t *out);

/* What the library holds open from its first init to its last shutdown. */
void hold_device_files(void);
void drop_device_files(void);

/* A whole call that answers one signal of a GPU. */
int reading(void *handle, const char *call, const char *name, double scale, unsigned *out);

#pragma GCC visibility pop

#endif
