/* Records of errors, firmware, and links between devices as libamd_smi.so answers them. */
#define _POSIX_C_SOURCE 200809L
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- records ---- */

#ifdef HAS_amdsmi_get_gpu_cper_entries
enum { RECORD_BYTES = cper_hdr_SIZE + 8, FILE_ERROR = 14, CORRECTED = 2 };

static size_t field(size_t offset, size_t width) { (void)width; return offset; }

/* One time that an error was reported: the row of the error, and seconds since the epoch of the plan. */
typedef struct { double at; int row; } report;

enum { MOST_REPORTS = 1024 };

static int by_time(const void *a, const void *b)
{
    const report *one = a, *other = b;
    if (one->at != other->at) return one->at < other->at ? -1 : 1;
    return one->row - other->row;
}

/* All that were reported by now, oldest first. */
static int reported(const target *g, report *out)
{
    int found = 0;
    for (int i = 0; i < plan_rows(g->device, "event"); i++) {
        const plan_set *row = plan_row(g->device, "event", i);
        double at = number_or(row, "at", 0), every = number_or(row, "every", 0), until = number_or(row, "until", INFINITY);
        for (; at <= g->t && at < until && found < MOST_REPORTS; at += every) {
            out[found++] = (report){at, i};
            if (every <= 0) break;
        }
    }
    qsort(out, (size_t)found, sizeof *out, by_time);
    return found;
}

/* The Unix time of the epoch of the plan, which is the same for the life of the process. */
static double epoch(double now)
{
    static double known;
    if (known == 0) known = (double)time(NULL) - now;
    return known;
}

/* A header as the driver fills it in, and in place of what follows the number that a decoder would find. */
static void put_record(char *out, const target *g, const report *what, int number)
{
    const plan_set *row = plan_row(g->device, "event", what->row);
    const char *kind = plan_text(row, "kind");
    int graded = kind && !strcmp(kind, "ras");   /* the code is how bad it is, else what it is */
    double code = number_or(row, "code", 0);
    time_t seconds = (time_t)(epoch(g->t) + what->at);
    struct tm when;
    char id[16];
    gmtime_r(&seconds, &when);
    memset(out, 0, RECORD_BYTES);
    memcpy(out + field(cper_hdr_signature), "CPER", 4);
    put_missing(out, cper_hdr_signature_end);
    put(out, cper_hdr_sec_cnt, 1);
    put(out, cper_hdr_error_severity, graded ? code : CORRECTED);
    put(out, cper_hdr_record_length, RECORD_BYTES);
    put(out, cper_hdr_timestamp_year, when.tm_year % 100);
    put(out, cper_hdr_timestamp_month, when.tm_mon + 1);
    put(out, cper_hdr_timestamp_day, when.tm_mday);
    put(out, cper_hdr_timestamp_hours, when.tm_hour);
    put(out, cper_hdr_timestamp_minutes, when.tm_min);
    put(out, cper_hdr_timestamp_seconds, when.tm_sec);
    snprintf(id, sizeof id, "0:%X", (unsigned)number & 0xFFFFF);
    memcpy(out + field(cper_hdr_record_id), id, 8);
    memset(out + cper_hdr_SIZE, 0xFF, 8);   /* what a signed byte cannot hold */
    uint32_t afid = graded ? 0 : (uint32_t)code;
    memcpy(out + cper_hdr_SIZE, &afid, sizeof afid);
}

static int severity(const target *g, const report *what)
{
    const plan_set *row = plan_row(g->device, "event", what->row);
    const char *kind = plan_text(row, "kind");
    return kind && !strcmp(kind, "ras") ? (int)number_or(row, "code", 0) : CORRECTED;
}

int amdsmi_get_gpu_cper_entries(void *handle, uint32_t severities, char *data, uint64_t *size, void **headers,
                                uint64_t *count, uint64_t *cursor)
{
    ENTER(handle);
    static report reports[MOST_REPORTS];
    uint64_t room = *count, found = 0, used = 0, matching = 0;
    *count = 0;
    if (bare(&g) || !(number_or(g.set, "event_types", 0) > 0 || plan_rows(g.device, "event"))) return NOT_SUPPORTED;
    int all = reported(&g, reports);
    if (!all) return FILE_ERROR;   /* an empty ring, up to ROCm 7.13 */
    for (int i = 0; i < all; i++) {
        if (!((uint32_t)1 << severity(&g, &reports[i]) & severities) || matching++ < *cursor) continue;
        if (found == room || *size - used < RECORD_BYTES) {
            *count = found;
            *cursor = matching - 1;
            *size = used;
            return MORE_DATA;
        }
        headers[found++] = data + used;
        put_record(data + used, &g, &reports[i], i);
        used += RECORD_BYTES;
    }
    *cursor = matching > *cursor ? matching : *cursor;
    *count = found;
    *size = used;
    return SUCCESS;
}

int amdsmi_get_afids_from_cper(char *record, uint32_t size, uint64_t *afids, uint32_t *count)
{
    uint32_t afid;
    if (size < RECORD_BYTES || memcmp(record, "CPER", 4)) return INVAL;
    memcpy(&afid, record + cper_hdr_SIZE, sizeof afid);
    *count = 1;
    afids[0] = afid;
    return SUCCESS;
}
#endif

/* ---- firmware ---- */

int amdsmi_get_fw_info(void *handle, void *out)
{
    static const struct { int id; const char *name; } blocks[] = {
        {FW_ID_SMU, "firmware_smu"}, {FW_ID_PM, "firmware_pm"},       {FW_ID_TA_RAS, "firmware_ta_ras"},
        {FW_ID_RLC, "firmware_rlc"}, {FW_ID_SDMA1, "firmware_sdma1"},
    };
    enum { ENTRY = 32, VERSION = 8 };
    static const size_t list[2] = {fw_info_fw_info_list};
    ENTER(handle);
    size_t found = 0;
    memset(out, 0, fw_info_SIZE);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        double version;
        if (blocks[i].id < 0 || !plan_number(g.set, blocks[i].name, &version)) continue;
        put(out, list[0] + ENTRY * found, 4, blocks[i].id);
        put(out, list[0] + ENTRY * found++ + VERSION, 8, version);
    }
    put(out, fw_info_num_fw_info, (double)found);
    return found ? SUCCESS : NOT_SUPPORTED;
}

/* ---- links ---- */

int amdsmi_get_minmax_bandwidth_between_processors(void *from, void *to, uint64_t *least, uint64_t *most)
{
    ENTER(from);
    target other;
    status = enter(to, __func__, &other);
    if (status) return status;
    const char *mine = plan_text(g.set, "package"), *its = plan_text(other.set, "package");
    if (!mine || !its) return NOT_SUPPORTED;
    put(least, 0, 8, 50000);
    put(most, 0, 8, strcmp(mine, its) ? 50000 : 200000);
    return SUCCESS;
}
