/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of `varve probe` mean, and how they are printed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <varve/varve.h>

#include "cli/common/json.h"
#include "cli/probe.h"
#include "core/bytes.h"

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
        SAY(r, "device_cache is emptied at this rate: who writes faster waits once it is full");
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

static void print_json_row(FILE *f, const struct probe_row *r)
{
    fprintf(f, "{\"hop\":");
    json_string(f, r->hop);
    fprintf(f, ",\"what\":");
    json_string(f, r->what);
    fprintf(f, ",\"gbps\":");
    json_number(f, r->rc == 0 && r->unit == PROBE_RATE ? r->value / 1e9 : (double)NAN);
    fprintf(f, ",\"seconds\":");
    json_number(f, r->rc == 0 && r->unit == PROBE_TIME ? r->value : (double)NAN);
    fprintf(f, ",\"failed\":%s,\"so\":", r->rc < 0 ? "true" : "false");
    json_string(f, r->so);
    fputc('}', f);
}

void probe_print_json(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg, const char *written, double seconds)
{
    char value[VV_CONFIG_TEXT + 1];
    const char *comma = "";

    fprintf(f, "{\"command\":\"probe\",\"device\":");
    json_string(f, facts->device);
    fprintf(f, ",\"device_name\":");
    json_string(f, facts->device_name);
    fprintf(f,
            ",\"device_free_bytes\":%" PRIu64 ",\"device_total_bytes\":%" PRIu64
            ",\"memory_bytes\":%" PRIu64 ",\"memory_available_bytes\":%" PRIu64
            ",\"cores\":%u,\"folder\":",
            facts->device_free_bytes, facts->device_total_bytes, facts->memory_bytes,
            facts->memory_available_bytes, facts->cores);
    json_string(f, facts->folder);
    fprintf(f, ",\"took_s\":");
    json_number(f, seconds);
    fprintf(f, ",\"rows\":[");
    for (size_t i = 0; i < rows->nr; i++) {
        fputs(i ? ",\n" : "\n", f);
        print_json_row(f, &rows->row[i]);
    }
    fprintf(f, "\n],\"settings\":{");
    for (size_t i = 0; probe_config_keys[i]; i++) {
        if (!probe_config_applies(probe_config_keys[i], cfg) ||
            vv_config_get(cfg, probe_config_keys[i], value, sizeof(value)) < 0)
            continue;
        fprintf(f, "%s\"%s\":", comma, probe_config_keys[i]);
        json_string(f, value);
        comma = ",";
    }
    fprintf(f, "},\"written\":");
    if (written)
        json_string(f, written);
    else
        fputs("null", f);
    fprintf(f, "}\n");
}
