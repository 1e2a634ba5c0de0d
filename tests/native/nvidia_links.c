/* NVLink and the fabric as libnvidia-ml.so.1 tells of them: each generation by other fields. */
#include "nvidia.h"

#include <stdio.h>
#include <string.h>

enum { AMPERE = 7, HOPPER = 9, BLACKWELL = 10 };
enum { SIX = 6 };

static void look(const target *to, links *all)
{
    if (all->known++) return;
    all->told = !number(to->set, "link_count", &all->count);
    signal32(to, "links_down", 1, &all->down);   /* the last ones */
    if (number(to->set, "architecture_code", &all->architecture)) all->architecture = 0;
}

static int link_up(const links *all, unsigned link, unsigned *up)
{
    if (!all->told) return NOT_SUPPORTED;
    if (link >= all->count) return INVALID_ARGUMENT;
    *up = link + all->down < all->count;
    return SUCCESS;
}

/* Volta and Ampere count errors in a field of its own for each link: six, and later six more. */
static int single(const target *to, const links *all, unsigned id, uint64_t *out)
{
    static const struct { unsigned first, next; const char *name; } kinds[] = {
        {32, 96, "link_crc_errors"}, {46, 108, "link_replay_errors"}, {53, 114, "link_recovery_errors"},
    };
    unsigned up;
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (unsigned six = 0; six < 2; six++) {
            unsigned first = six ? kinds[k].next : kinds[k].first;
            if (id < first || id >= first + SIX) continue;
            int status = link_up(all, id - first + six * SIX, &up);
            return status ? NOT_SUPPORTED : signal64(to, kinds[k].name, 1, out);
        }
    return NOT_SUPPORTED;
}

int link_field(const target *to, links *all, unsigned id, unsigned scope, uint64_t *out)
{
    unsigned up;
    look(to, all);
    if (!all->architecture) return NOT_SUPPORTED;
    if (all->architecture <= AMPERE && !single(to, all, id, out)) return SUCCESS;
    int status = link_up(all, scope, &up);
    if (status) return status;
    int blackwell = all->architecture >= BLACKWELL, hopper = all->architecture >= HOPPER;
    switch (id) {
    case 138: return blackwell ? NOT_SUPPORTED : signal64(to, "link_transmit_bytes", 1.0 / 1024, out);
    case 139: return blackwell ? NOT_SUPPORTED : signal64(to, "link_receive_bytes", 1.0 / 1024, out);
    case 161: return hopper ? signal64(to, "link_replay_errors", 1, out) : NOT_SUPPORTED;
    case 162: return hopper && !blackwell ? signal64(to, "link_recovery_errors", 1, out) : NOT_SUPPORTED;
    case 163: return hopper && !blackwell ? signal64(to, "link_crc_errors", 1, out) : NOT_SUPPORTED;
    case 165:
        *out = (uint64_t)scaled(up, 1, UINT32_MAX);
        return hopper ? SUCCESS : NOT_SUPPORTED;
    case 202: return blackwell ? signal64(to, "link_transmit_bytes", 1, out) : NOT_SUPPORTED;
    case 204: return blackwell ? signal64(to, "link_receive_bytes", 1, out) : NOT_SUPPORTED;
    case 215: return blackwell ? signal64(to, "link_recovery_errors", 1, out) : NOT_SUPPORTED;
    case 221: return blackwell ? signal64(to, "link_symbol_errors", 1, out) : NOT_SUPPORTED;
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out)
{
    target to;
    links all = {0};
    int status = enter_gpu(handle, __func__, &to);
    if (status) return status;
    look(&to, &all);
    if ((status = link_up(&all, link, out))) return status;
    *out = (unsigned)scaled(*out, 1, UINT32_MAX);
    return SUCCESS;
}

typedef struct { uint8_t cluster[16]; unsigned status, clique, state; } fabric;

static int fabric_of(void *handle, const char *call, fabric *out)
{
    target to;
    int status = enter_gpu(handle, call, &to);
    if (status) return status;
    memset(out, 0, sizeof *out);
    if (signal32(&to, "fabric_state", 1, &out->state)) return SUCCESS;   /* 0: not supported */
    const char *uuid = plan_text(to.set, "fabric_cluster_uuid");
    unsigned byte, place = 0;
    for (; uuid && *uuid && place < sizeof out->cluster; uuid += uuid[0] == '-' ? 1 : 2)
        if (*uuid != '-' && sscanf(uuid, "%2x", &byte) == 1) out->cluster[place++] = (uint8_t)byte;
    signal32(&to, "fabric_clique", 1, &out->clique);
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(void *h, fabric *out) { return fabric_of(h, __func__, out); }

typedef struct { unsigned version; fabric fabric; unsigned health; } fabric_v2;

int nvmlDeviceGetGpuFabricInfoV(void *handle, fabric_v2 *out)
{
    enum { VERSION = 0x02000024 };
    fabric found;
    int status = fabric_of(handle, __func__, &found);
    if (status) return status;
    if (out->version != VERSION) return ARGUMENT_VERSION_MISMATCH;
    out->fabric = found;
    out->health = 0;
    return SUCCESS;
}
