/* Records of errors, firmware, and links between devices as libamd_smi.so answers them. */
#include "amdsmi.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- records ---- */

#ifdef HAS_amdsmi_get_gpu_cper_entries
enum { RECORD_BYTES = cper_hdr_SIZE + 8, FILE_ERROR = 14 };

static size_t field(size_t offset, size_t width) { (void)width; return offset; }

/* A header as the driver fills it in, and in place of what follows the number that a decoder would find. */
static void put_record(char *out, const plan_set *row, int number)
{
    static const struct { size_t field[2]; const char *name; } when[] = {
        {{cper_hdr_timestamp_year}, "year"},   {{cper_hdr_timestamp_month}, "month"},
        {{cper_hdr_timestamp_day}, "day"},     {{cper_hdr_timestamp_hours}, "hour"},
        {{cper_hdr_timestamp_minutes}, "minute"}, {{cper_hdr_timestamp_seconds}, "second"},
    };
    char id[8];
    memset(out, 0, RECORD_BYTES);
    memcpy(out + field(cper_hdr_signature), "CPER", 4);
    put_missing(out, cper_hdr_signature_end);
    put(out, cper_hdr_sec_cnt, 1);
    put(out, cper_hdr_error_severity, number_or(row, "severity", 0));
    put(out, cper_hdr_record_length, RECORD_BYTES);
    for (size_t i = 0; i < sizeof when / sizeof *when; i++)
        put(out, when[i].field[0], when[i].field[1], number_or(row, when[i].name, 0));
    snprintf(id, sizeof id, "0:%X", (unsigned)number_or(row, "record", number));
    memcpy(out + field(cper_hdr_record_id), id, sizeof id);
    memset(out + cper_hdr_SIZE, 0xFF, 8);   /* what a signed byte cannot hold */
    uint32_t afid = (uint32_t)number_or(row, "afid", 0);
    memcpy(out + cper_hdr_SIZE, &afid, sizeof afid);
}

int amdsmi_get_gpu_cper_entries(void *handle, uint32_t severities, char *data, uint64_t *size, void **headers,
                                uint64_t *count, uint64_t *cursor)
{
    ENTER(handle);
    int rows = plan_rows(g.device, "record");
    uint64_t room = *count, found = 0, used = 0, matching = 0;
    *count = 0;
    if (bare(&g) || number_or(g.set, "records_readable", 0) == 0) return NOT_SUPPORTED;
    if (!rows) return FILE_ERROR;   /* an empty ring, up to ROCm 7.13 */
    for (int i = 0; i < rows; i++) {
        const plan_set *row = plan_row(g.device, "record", i);
        if (!((uint32_t)1 << (int)number_or(row, "severity", 0) & severities) || matching++ < *cursor) continue;
        if (found == room || *size - used < RECORD_BYTES) {
            *count = found;
            *cursor = matching - 1;
            *size = used;
            return MORE_DATA;
        }
        headers[found++] = data + used;
        put_record(data + used, row, i);
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
