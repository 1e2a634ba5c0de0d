/* Repeats recorded calls into NVML, to see what they take alone.
 *
 * A line of the record is: a symbol, then its arguments: hN the handle of GPU N, iN a whole number, bHEX a buffer that has
 * these bytes before the call. All arguments are integers or pointers, so one type of function does for all of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_CALLS 65536
#define MOST_ARGUMENTS 5

typedef int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct call {
    function call;
    uintptr_t value[MOST_ARGUMENTS];
    unsigned char *before[MOST_ARGUMENTS]; /* what is put into the buffer at each call, as a caller has to */
    size_t size[MOST_ARGUMENTS];
};

static struct call calls[MOST_CALLS];

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "%s: %s\n", what, which);
    exit(1);
}

static function symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    function call;
    if (!found)
        fail("no such function", name);
    memcpy(&call, &found, sizeof call);
    return call;
}

static void argument(struct call *call, int n, const char *text, function handle_of)
{
    if (text[0] == 'i') {
        call->value[n] = strtoull(text + 1, NULL, 10);
    } else if (text[0] == 'h') {
        if (handle_of(strtoull(text + 1, NULL, 10), (uintptr_t)&call->value[n], 0, 0, 0))
            fail("no such GPU", text);
    } else {
        size_t size = strlen(text + 1) / 2;
        unsigned char *bytes = calloc(1, size + 1), *room = calloc(1, size + 1);
        if (!bytes || !room)
            fail("no memory", text);
        for (size_t i = 0; i < size; i++) {
            unsigned byte;
            sscanf(text + 1 + 2 * i, "%2x", &byte);
            bytes[i] = (unsigned char)byte;
        }
        call->before[n] = bytes;
        call->size[n] = size;
        call->value[n] = (uintptr_t)room;
    }
}

static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pass(int count)
{
    for (int i = 0; i < count; i++) {
        struct call *c = &calls[i];
        for (int n = 0; n < MOST_ARGUMENTS; n++)
            if (c->before[n])
                memcpy((void *)c->value[n], c->before[n], c->size[n]);
        c->call(c->value[0], c->value[1], c->value[2], c->value[3], c->value[4]);
    }
}

/* Returns the microseconds of the fastest pass, and how many calls it makes. */
double nvml_floor(const char *path, int rounds, int *made)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        fail("no library", dlerror());
    if (symbol(library, "nvmlInit_v2")(0, 0, 0, 0, 0))
        fail("NVML", "does not start");
    function handle_of = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    if (!file)
        fail("no file", path);
    memset(calls, 0, sizeof calls);
    while (getline(&line, &room, file) > 0 && count < MOST_CALLS) {
        char *word = strtok(line, " \n");
        if (!word)
            continue;
        calls[count].call = symbol(library, word);
        for (int n = 0; (word = strtok(NULL, " \n")) && n < MOST_ARGUMENTS; n++)
            argument(&calls[count], n, word, handle_of);
        count++;
    }
    fclose(file);
    double best = 1e30;
    for (; rounds > 0; rounds--) {
        double began = used();
        pass(count);
        double took = used() - began;
        if (took < best)
            best = took;
    }
    *made = count;
    return best;
}
