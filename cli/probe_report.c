/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of the rows of `varve probe`, and how they are printed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "cli/common/json.h"
#include "cli/probe_command.h"

#define SAY(row, ...) snprintf((row)->so, sizeof((row)->so), __VA_ARGS__)

static void explain(const struct probe_facts *f, const struct vv_config *cfg, struct probe_row *r)
{
    char size[VV_BYTES_TEXT];

    switch (r->note) {
    case PROBE_NOTE_NONE:
        break;
    case PROBE_NOTE_COPY:
        SAY(r, "device_cache: a checkpoint of %s that finds room there takes %.0f us",
            vv_bytes_human(f->copy_bytes, size, sizeof(size)),
            (double)f->copy_bytes / r->value * 1e6);
        break;
    case PROBE_NOTE_DOWN:
        SAY(r, "device_cache is emptied at this rate: a program that writes faster waits once it "
               "is full");
        break;
    case PROBE_NOTE_UP:
        SAY(r, "device_cache is filled at this rate before restores");
        break;
    case PROBE_NOTE_PAGEABLE:
        SAY(r, "memory that is not pinned; host_cache always is");
        break;
    case PROBE_NOTE_PIN:
        SAY(r, "host_cache: %s are pinned in %.1f s, while checkpoints go on",
            vv_bytes_human(cfg->host_cache, size, sizeof(size)),
            (double)cfg->host_cache / r->value);
        break;
    case PROBE_NOTE_WORST:
        SAY(r, "the longest that a checkpoint waits for the pinning");
        break;
    case PROBE_NOTE_TOUCH:
        SAY(r, "host_cache: %s are there after %.1f s",
            vv_bytes_human(cfg->host_cache, size, sizeof(size)),
            (double)cfg->host_cache / r->value);
        break;
    case PROBE_NOTE_THREADS:
        SAY(r, "more threads gain less than a tenth");
        break;
    case PROBE_NOTE_DEPTH:
        SAY(r, "host_cache is %s at this rate; more in flight gain less than a tenth",
            strcmp(r->hop, "h2f") == 0 ? "emptied" : "filled");
        break;
    case PROBE_NOTE_CACHED:
        SAY(r, "in the page cache, as long as it has room");
        break;
    case PROBE_NOTE_SYNC:
        SAY(r, "level local: the file and its folder are synced for every version");
        break;
    case PROBE_NOTE_THROUGH:
        SAY(r, "what passes a full host_cache, and its checksums");
        break;
    case PROBE_NOTE_PAST:
        if (r->rc < 0)
            SAY(r, "no GPUDirect Storage: %.120s",
                f->no_gds[0] ? f->no_gds : varve_strerror(r->rc));
        else
            SAY(r, "the same with GPUDirect Storage: gds = %s", cfg->gds ? "on" : "off");
        break;
    case PROBE_NOTE_REFUSED:
        SAY(r, "the file system refuses direct access: local_io = buffered");
        break;
    }
}

void probe_explain(const struct probe_facts *facts, const struct vv_config *cfg,
                   struct probe_rows *rows)
{
    for (size_t i = 0; i < rows->nr; i++) {
        struct probe_row *r = &rows->row[i];

        if (r->rc < 0 && r->note != PROBE_NOTE_REFUSED && r->note != PROBE_NOTE_PAST)
            SAY(r, "%s", varve_strerror(r->rc));
        else
            explain(facts, cfg, r);
    }
}

static void print_value(const struct probe_row *r, char *buf, size_t size)
{
    if (r->rc < 0)
        snprintf(buf, size, "-");
    else if (r->unit == PROBE_RATE)
        snprintf(buf, size, "%.3f GB/s", r->value / 1e9);
    else
        snprintf(buf, size, "%.3f ms", r->value * 1e3);
}

void probe_print_text(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg)
{
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT], value[VV_CONFIG_TEXT + 1];

    fprintf(f, "device  %s", facts->device);
    if (facts->device_total_bytes)
        fprintf(f, ", %s, %s, %s of it free", facts->device_name,
                vv_bytes_human(facts->device_total_bytes, a, sizeof(a)),
                vv_bytes_human(facts->device_free_bytes, b, sizeof(b)));
    fprintf(f, "\nmemory  %s, %s of it available, %u cores\n",
            vv_bytes_human(facts->memory_bytes, a, sizeof(a)),
            vv_bytes_human(facts->memory_available_bytes, b, sizeof(b)), facts->cores);
    if (facts->folder[0])
        fprintf(f, "folder  %s\n", facts->folder);
    fprintf(f, "\n%-6s%-46s%15s\n", "hop", "measured", "");
    for (size_t i = 0; i < rows->nr; i++) {
        const struct probe_row *r = &rows->row[i];

        print_value(r, value, sizeof(value));
        fprintf(f, "%-6s%-46s%15s%s%s\n", r->hop, r->what, value, r->so[0] ? "  " : "", r->so);
    }
    fprintf(f, "\nSettings that suit one process on this machine:\n");
    for (size_t i = 0; probe_config_keys[i]; i++)
        if (probe_config_applies(probe_config_keys[i], cfg) &&
            vv_config_get(cfg, probe_config_keys[i], value, sizeof(value)) == 0)
            fprintf(f, "  %s = %s\n", probe_config_keys[i], value);
}

static void print_json_row(struct json *j, const struct probe_row *r)
{
    json_gap(j, "\n");
    json_object(j, NULL);
    json_text(j, "hop", r->hop);
    json_text(j, "what", r->what);
    json_real(j, "gbps", r->rc == 0 && r->unit == PROBE_RATE ? r->value / 1e9 : (double)NAN);
    json_real(j, "seconds", r->rc == 0 && r->unit == PROBE_TIME ? r->value : (double)NAN);
    json_bool(j, "failed", r->rc < 0);
    json_text(j, "so", r->so);
    json_close(j);
}

void probe_print_json(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg, const char *written, double seconds)
{
    struct json j = json_begin(f, JSON_COMPACT);
    char value[VV_CONFIG_TEXT + 1];

    json_object(&j, NULL);
    json_text(&j, "command", "probe");
    json_text(&j, "device", facts->device);
    json_text(&j, "device_name", facts->device_name);
    json_uint(&j, "device_free_bytes", facts->device_free_bytes);
    json_uint(&j, "device_total_bytes", facts->device_total_bytes);
    json_uint(&j, "memory_bytes", facts->memory_bytes);
    json_uint(&j, "memory_available_bytes", facts->memory_available_bytes);
    json_uint(&j, "cores", facts->cores);
    json_text(&j, "folder", facts->folder);
    json_real(&j, "took_s", seconds);
    json_array(&j, "rows");
    for (size_t i = 0; i < rows->nr; i++)
        print_json_row(&j, &rows->row[i]);
    json_gap(&j, "\n");
    json_close(&j);
    json_object(&j, "settings");
    for (size_t i = 0; probe_config_keys[i]; i++)
        if (probe_config_applies(probe_config_keys[i], cfg) &&
            vv_config_get(cfg, probe_config_keys[i], value, sizeof(value)) == 0)
            json_text(&j, probe_config_keys[i], value);
    json_close(&j);
    json_text(&j, "written", written);
    json_close(&j);
    json_end(&j);
}
