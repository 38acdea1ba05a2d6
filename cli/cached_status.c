/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a daemon: as text, as JSON, and for Prometheus. One list of figures serves the last two. */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/cached.h"
#include "cli/common/json.h"

/* X(name, type, value, help) */
#define FIGURES(X)                                                                                \
    X("epoch", "gauge", s->node->epoch, "Number of the present set of nodes.")                    \
    X("fenced", "gauge", s->node->fenced, "1 while this node is cut off from most others.")       \
    X("draining", "gauge", s->node->draining, "1 while it gives its files to others.")            \
    X("nodes", "gauge", s->node->nr, "Nodes that are known.")                                     \
    X("nodes_up", "gauge", nodes_up(s), "Nodes that are up, this one among them.")                \
    X("capacity_bytes", "gauge", s->config->capacity, "Space on local disk.")                     \
    X("used_bytes", "gauge", s->node->cache.used, "Space in use.")                                \
    X("files", "gauge", s->node->cache.files, "Files in the cache.")                              \
    X("files_sealed", "gauge", s->node->cache.sealed,                                             \
      "Of these, those whose content the kernel checks (fs-verity).")                             \
    X("copies", "gauge", s->node->cache.copies,                                                   \
      "Of these, copies of files that other nodes keep.")                                         \
    X("copies_bytes", "gauge", s->node->cache.copy_bytes, "Their space.")                         \
    X("files_waiting", "gauge", s->node->cache.waiting,                                           \
      "Files that were dropped and that a program still has open.")                               \
    X("files_elsewhere", "gauge", s->node->elsewhere,                                             \
      "Files of this home that another node keeps, as far as it is known.")                       \
    X("paths_known", "gauge", s->node->owner.records,                                             \
      "Files whose generation is known, here or on other nodes.")                                 \
    X("to_bring", "gauge", s->node->waiting, "Files still to be brought before they are read.")   \
    X("memory_bytes", "gauge", s->node->memory_bytes, "Files of other nodes kept in memory.")     \
    X("memory_files", "gauge", s->node->memory_files, "How many of them.")                        \
    X("asked_total", "counter", s->node->counters.opens + cached_left(&s->node->counters),        \
      "Files that programs asked for: handed out, or left to the shared file system.")            \
    X("hits_total", "counter", s->node->counters.local + s->node->counters.memory,                \
      "Of these, from the disk or the memory of this node.")                                      \
    X("left_total", "counter", cached_left(&s->node->counters),                                   \
      "Of these, left to the shared file system; passed_* say why.")                              \
    X("evicted_total", "counter", s->node->cache.evicted, "Files that made room.")                \
    X("unsealed_total", "counter", s->node->cache.unsealed,                                       \
      "Files that were to be sealed and could not be.")                                           \
    X("damaged_total", "counter", s->node->cache.damaged, "Files found damaged, and dropped.")    \
    X("busy_total", "counter", s->node->cache.refused_busy,                                       \
      "Files that were not evicted because a program had them open.")                             \
    X("shared_looks_total", "counter", s->node->owner.looks,                                      \
      "Looks at files on the shared file system.")                                                \
    X("shared_reads_total", "counter", s->node->owner.fetches,                                    \
      "Files read from the shared file system.")                                                  \
    X("shared_read_bytes_total", "counter", s->node->owner.fetched_bytes, "Their bytes.")         \
    X("shared_changed_total", "counter", s->node->owner.changed, "Files that had changed there.") \
    X("shared_coming_files", "gauge", s->node->owner.coming,                                      \
      "Files that are being read from there now.")                                                \
    X("shared_coming_bytes", "gauge", s->node->owner.coming_bytes, "Their bytes.")                \
    X("shared_coming_done_bytes", "gauge", s->node->owner.coming_done,                            \
      "Of these, those that have been read.")                                                     \
    X("shared_waits_total", "counter", s->node->owner.waits,                                      \
      "Requests that waited because the same file was being fetched.")                            \
    X("clients", "gauge", s->server.clients, "Processes that are connected.")                     \
    X("server_opens_total", "counter", s->server.opens, "Descriptors passed to programs.")        \
    X("server_waited_total", "counter", s->server.waited,                                         \
      "Requests of programs that had to wait.")                                                   \
    X("server_declined_total", "counter", s->server.declined,                                     \
      "Requests of programs that were left to the shared file system.")                           \
    X("server_refused_total", "counter", s->server.refused, "Connections refused.")               \
    X("door_opens_total", "counter", s->server.opens, "Former name of server_opens_total.")       \
    X("door_waited_total", "counter", s->server.waited, "Former name of server_waited_total.")    \
    X("door_yourself_total", "counter", s->server.declined,                                       \
      "Former name of server_declined_total.")                                                    \
    X("door_refused_total", "counter", s->server.refused, "Former name of server_refused_total.") \
    X("net_connected", "gauge", s->node->net.connected, "Connections to other nodes.")            \
    X("net_timeouts_total", "counter", s->node->net.timeouts, "Questions not answered in time.")  \
    X("net_bad_sums_total", "counter", s->node->net.bad_sums, "Transfers that did not verify.")   \
    X("net_denied_total", "counter", s->node->net.denied, "Connections with another token.")      \
    X("net_sent_bytes_total", "counter", s->node->net.sent_bytes, "File bytes sent.")             \
    X("net_received_bytes_total", "counter", s->node->net.received_bytes, "File bytes received.")

static uint64_t nodes_up(const struct cached_figures *s)
{
    uint64_t up = 0;

    for (size_t i = 0; i < s->node->nr; i++)
        up += s->node->rows[i].member.state <= VV_MEMBER_SUSPECT;
    return up;
}

/* The requests of the last minute and the last hour, and where the files came from. */
static void print_window(FILE *f, const char *name, const struct cached_sample *d)
{
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];
    uint64_t s = VV_MAX(d->at_ns / VV_NS_PER_S, UINT64_C(1));
    double all = d->asked ? (double)d->asked / 100 : 1;

    fprintf(f,
            "%-8s %" PRIu64 " files asked for: %.1f%% from this node, %.1f%% from others (%s/s), "
            "%.1f%% left; %s/s read from the shared file system\n",
            name, d->asked, (double)d->hits / all, (double)d->remote / all,
            vv_bytes_human(d->remote_bytes / s, a, sizeof(a)), (double)d->left / all,
            vv_bytes_human(d->shared_bytes / s, b, sizeof(b)));
}

static void json_window(struct json *j, const char *name, const struct cached_sample *d)
{
    json_gap(j, "\n ");
    json_object(j, name);
    json_uint(j, "seconds", d->at_ns / VV_NS_PER_S);
    json_uint(j, "asked", d->asked);
    json_uint(j, "hits", d->hits);
    json_uint(j, "remote", d->remote);
    json_uint(j, "left", d->left);
    json_uint(j, "remote_bytes", d->remote_bytes);
    json_uint(j, "shared_read_bytes", d->shared_bytes);
    json_close(j);
}

static void json_line(struct json *j, const char *name, uint64_t value)
{
    json_gap(j, "\n ");
    json_uint(j, name, value);
}

void cached_print_json(FILE *f, const struct cached_figures *s)
{
    struct json j = json_begin(f, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "node", s->config->node);
    json_text(&j, "socket", s->config->socket);
    json_text(&j, "roots", s->config->roots);
#define X(name, type, value, help) json_line(&j, name, (uint64_t)(value));
    FIGURES(X)
#undef X
#define X(name, help) json_line(&j, #name "_total", s->node->counters.name);
    VV_NODE_COUNTERS(X)
#undef X
    json_window(&j, "last_minute", &s->minute);
    json_window(&j, "last_hour", &s->hour);
    json_gap(&j, "\n ");
    json_array(&j, "members");
    for (size_t i = 0; i < s->node->nr; i++) {
        const struct vv_node_row *r = &s->node->rows[i];

        json_gap(&j, "\n  ");
        json_object(&j, NULL);
        json_text(&j, "name", r->member.info.name);
        json_text(&j, "address", r->member.info.addr);
        json_text(&j, "state", vv_member_state_name(r->member.state));
        json_bool(&j, "self", r->self);
        json_uint(&j, "used_bytes", r->load);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static void label(FILE *f, const char *value)
{
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            fputc('\\', f);
        fputc(*value == '\n' ? ' ' : *value, f);
    }
}

static void sample(FILE *f, const char *name, const char *end, const char *type, const char *help,
                   const char *node, uint64_t value)
{
    fprintf(f,
            "# HELP varve_cached_%s%s %s\n# TYPE varve_cached_%s%s %s\nvarve_cached_%s%s{node=\"",
            name, end, help, name, end, type, name, end);
    label(f, node);
    fprintf(f, "\"} %" PRIu64 "\n", value);
}

void cached_print_prometheus(FILE *f, const void *figures)
{
    const struct cached_figures *s = figures;

#define X(name, type, value, help) \
    sample(f, name, "", type, help, s->config->node, (uint64_t)(value));
    FIGURES(X)
#undef X
#define X(name, help) \
    sample(f, #name, "_total", "counter", help, s->config->node, s->node->counters.name);
    VV_NODE_COUNTERS(X)
#undef X
}

/* The reasons why programs had to read the shared file system themselves. */
static void print_passed(FILE *f, const struct vv_node_counters *c)
{
    const struct {
        uint64_t count;
        const char *why;
    } all[] = {{c->passed_fenced, "cut off"},
               {c->passed_leaving, "leaving"},
               {c->passed_redirect, "its node is gone"},
               {c->passed_large, "above max_file"},
               {c->passed_full, "no room"},
               {c->passed_behind, "large, being fetched"},
               {c->passed_late, "no answer in time"},
               {c->passed_changing, "being changed, or changed a moment ago"},
               {c->passed_error, "errors"},
               {c->passed_missing, "no such file, or a folder"},
               {c->passed_denied, "not to be read"},
               {c->passed_link, "links"}};
    const char *between = "left     ";

    for (size_t i = 0; i < VV_ARRAY_SIZE(all); i++) {
        if (all[i].count == 0)
            continue;
        fprintf(f, "%s%" PRIu64 " %s", between, all[i].count, all[i].why);
        between = ", ";
    }
    if (between[0] == ',')
        fputc('\n', f);
}

void cached_print_text(FILE *f, const struct cached_figures *s)
{
    const struct vv_node_counters *c = &s->node->counters;
    uint64_t passed = cached_left(c);
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];

    fprintf(f, "%s: %" PRIu64 " of %zu nodes up%s%s\n", s->config->node, nodes_up(s), s->node->nr,
            s->node->fenced ? "; cut off from most, programs read the shared file system" : "",
            s->node->draining ? "; giving its files to others" : "");
    fprintf(f,
            "cache    %s of %s, %" PRIu64 " files, %" PRIu64 " of them copies of others'; %" PRIu64
            " evicted, %" PRIu64 " damaged\n",
            vv_bytes_human(s->node->cache.used, a, sizeof(a)),
            vv_bytes_human(s->config->capacity, b, sizeof(b)), s->node->cache.files,
            s->node->cache.copies, s->node->cache.evicted, s->node->cache.damaged);
    fprintf(f,
            "opens    %" PRIu64 " from disk, %" PRIu64 " from memory, %" PRIu64
            " from other nodes (%s); %" PRIu64 " left to the shared file system\n",
            c->local, c->memory, c->remote, vv_bytes_human(c->remote_bytes, a, sizeof(a)), passed);
    print_passed(f, c);
    print_window(f, "minute", &s->minute);
    print_window(f, "hour", &s->hour);
    fprintf(f,
            "shared   %" PRIu64 " files read (%s), %" PRIu64 " looks, %" PRIu64
            " had changed; %" PRIu64 " to bring\n",
            s->node->owner.fetches, vv_bytes_human(s->node->owner.fetched_bytes, a, sizeof(a)),
            s->node->owner.looks, s->node->owner.changed, s->node->waiting);
    if (s->node->owner.coming > 0)
        fprintf(f, "reading  %" PRIu64 " files: %s of %s are here\n", s->node->owner.coming,
                vv_bytes_human(s->node->owner.coming_done, a, sizeof(a)),
                vv_bytes_human(s->node->owner.coming_bytes, b, sizeof(b)));
    fprintf(f,
            "others   %" PRIu64 " files sent (%s), %" PRIu64 " copies kept for them; %" PRIu64
            " received damaged\n",
            c->served, vv_bytes_human(c->served_bytes, a, sizeof(a)), c->copied, c->rejected);
    for (size_t i = 0; i < s->node->nr; i++) {
        const struct vv_node_row *r = &s->node->rows[i];

        fprintf(f, "  %-20s %-8s %10s  %s%s\n", r->member.info.name,
                vv_member_state_name(r->member.state), vv_bytes_human(r->load, a, sizeof(a)),
                r->member.info.addr, r->self ? "  (this one)" : "");
    }
}
