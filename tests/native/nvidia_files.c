/* Which files stay open while the library is initialised: as the real one holds /dev/nvidiactl and /dev/nvidiaN, those
 * that GPU_EXPORTER_DEVICE_FILES names, with colons between them.
 */
#define _GNU_SOURCE
#include "nvidia.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILES 64

static int held[MOST_FILES];
static int files;

void hold_device_files(void)
{
    const char *names = getenv("GPU_EXPORTER_DEVICE_FILES");
    while (names && *names && files < MOST_FILES) {
        char path[4096];
        int length = (int)strcspn(names, ":");
        snprintf(path, sizeof path, "%.*s", length, names);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file >= 0) held[files++] = file;
        names += length + (names[length] == ':');
    }
}

void drop_device_files(void)
{
    while (files) close(held[--files]);
}
