/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families are a table: name, type, help, and the place of the value in the record. The format requires all samples of a
 * family together, so the table is walked once, and all targets for each row.
 *
 * Every sample has pid, context and rank as labels: several processes of a node may each write a file, and a collector
 * rejects the same sample twice.
 */
#include "stats/prometheus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum of { OF_ALL, OF_CALLS, OF_TIER, OF_HOP, OF_HISTORY };
enum unit { COUNT, SECONDS, BYTE_SECONDS };

struct family {
    const char *name, *type, *help;
    enum of of;
    enum unit unit;
    size_t at; /* in struct vv_stats_record, or in the part that `of` names */
};

#define ALL(field)     OF_ALL, COUNT, offsetof(struct vv_stats_record, field)
#define ALL_NS(field)  OF_ALL, SECONDS, offsetof(struct vv_stats_record, field)
#define CALL(field)    OF_CALLS, COUNT, offsetof(struct vv_stats_calls, field)
#define CALL_NS(field) OF_CALLS, SECONDS, offsetof(struct vv_stats_calls, field)
#define TIER(field)    OF_TIER, COUNT, offsetof(struct vv_stats_tier, field)
#define HOP(field)     OF_HOP, COUNT, offsetof(struct vv_stats_hop, field)
#define HOP_NS(field)  OF_HOP, SECONDS, offsetof(struct vv_stats_hop, field)
#define HIST(field)    OF_HISTORY, COUNT, offsetof(struct vv_stats_history, field)

/* clang-format off */
static const struct family families[] = {
    {"varve_calls_total", "counter", "Checkpoints and restores begun.", CALL(count)},
    {"varve_calls_bytes_total", "counter", "Bytes checkpointed and restored.", CALL(bytes)},
    {"varve_calls_blocked_seconds_total", "counter",
     "Total time of the application's calls.", CALL_NS(blocked_ns)},
    {"varve_calls_waiting", "gauge", "Calls in progress.", CALL(waiting)},
    {"varve_waiting_seconds", "gauge", "Time since the oldest call in progress began.",
     ALL_NS(waiting_ns)},
    {"varve_restore_hits_total", "counter", "Restores that found all bytes ready.", ALL(hits)},
    {"varve_restore_misses_total", "counter", "Restores that had to wait for bytes.", ALL(misses)},
    {"varve_hints", "gauge", "Hints not yet used.", ALL(hints)},
    {"varve_hints_ready", "gauge", "Hinted versions, from the next on, ready to be restored.",
     ALL(ready)},
    {"varve_last_restore_distance", "gauge",
     "Hinted versions that were ready when the last restore began.", ALL(last_distance)},
    {"varve_last_restore_blocked_seconds", "gauge", "Time of the last restore.",
     ALL_NS(last_blocked_ns)},
    {"varve_versions", "gauge", "Versions that can be restored.", ALL(versions)},
    {"varve_discarded_total", "counter", "Versions discarded.", ALL(discarded)},
    {"varve_evicted_pages_total", "counter", "Pages evicted to make room.", ALL(evicted_pages)},
    {"varve_revoked_pages_total", "counter", "Evicted pages that had been prefetched.",
     ALL(revoked_pages)},
    {"varve_failed_calls_total", "counter", "Calls that returned an error.", ALL(failed_calls)},
    {"varve_late_errors_total", "counter",
     "Versions that could not be brought to a slower tier.", ALL(late_errors)},
    {"varve_bad_reads_total", "counter", "Transfers with bytes whose checksum did not match.",
     ALL(bad_reads)},
    {"varve_rereads_total", "counter",
     "Transfers that read a version after an earlier read of it had failed.", ALL(reread)},
    {"varve_healed_chunks_total", "counter",
     "Chunks read from shared storage because the local copy was bad.", ALL(healed_chunks)},
    {"varve_repaired_chunks_total", "counter", "Bad chunks repaired in place.",
     ALL(repaired_chunks)},
    {"varve_metadata_bytes", "gauge", "Memory of the bookkeeping.", ALL(metadata_bytes)},
    {"varve_buffer_bytes", "gauge", "Host memory that data passes through to the disk and back.",
     ALL(buffer_bytes)},
    {"varve_helper_threads", "gauge", "Threads of the library.", ALL(helper_threads)},
    {"varve_helper_cpu_seconds_total", "counter", "Processor time of the library's threads.",
     ALL_NS(helper_cpu_ns)},
    {"varve_helper_cores", "gauge", "Processors that the library's threads are bound to; 0: not bound.",
     ALL(helper_cores)},
    {"varve_helper_process_up", "gauge", "1 if the helper process of the node is running.",
     ALL(process_alive)},
    {"varve_helper_process_bytes_total", "counter", "Bytes that the helper process has read and written for this context.",
     ALL(process_bytes)},
    {"varve_helper_process_cpu_seconds_total", "counter", "Processor time of the helper process for this context.",
     ALL_NS(process_cpu_ns)},
    {"varve_helper_process_redone_total", "counter", "Requests that the helper process left to this process.",
     ALL(process_redone)},
    {"varve_partner_copies_sent_total", "counter", "Copies made on the partner's disk.",
     ALL(partner_sent)},
    {"varve_partner_copies_received_total", "counter", "Copies received from other processes.",
     ALL(partner_received)},
    {"varve_partner_copies_pending", "gauge", "Versions whose copy is on its way, or failed.",
     ALL(partner_pending)},
    {"varve_partner_copies_failed_total", "counter", "Copies that failed.", ALL(partner_errors)},
    {"varve_partner_sent_bytes_total", "counter", "Bytes of copies made on the partner's disk.",
     ALL(partner_sent_bytes)},
    {"varve_partner_received_bytes_total", "counter", "Bytes of copies received from other processes.",
     ALL(partner_received_bytes)},
    {"varve_partner_held_bytes", "gauge", "Bytes of disk used by copies of other processes.",
     ALL(partner_held_bytes)},
    {"varve_partner_recovered_versions_total", "counter",
     "Versions recovered from copies when a history was opened.", ALL(partner_recovered)},
    {"varve_partner_repaired_chunks_total", "counter", "Chunks repaired from partner copies.",
     ALL(partner_repaired_chunks)},
    {"varve_partner_mended_chunks_total", "counter",
     "Former name of varve_partner_repaired_chunks_total.", ALL(partner_repaired_chunks)},
    {"varve_tier_capacity_bytes", "gauge", "Size of a tier; 0: no limit.", TIER(capacity_bytes)},
    {"varve_tier_ready_bytes", "gauge", "Part of the tier that is usable already.", TIER(ready_bytes)},
    {"varve_tier_used_bytes", "gauge", "Bytes in use on a tier.", TIER(used_bytes)},
    {"varve_tier_dirty_bytes", "gauge", "Bytes that no slower tier has.", TIER(dirty_bytes)},
    {"varve_tier_evictable_bytes", "gauge", "Bytes that may be evicted.", TIER(evictable_bytes)},
    {"varve_tier_copies", "gauge", "Versions on a tier, whole or in part.", TIER(copies)},
    {"varve_tier_used_byte_seconds_total", "counter", "Bytes in use, integrated over time.",
     OF_TIER, BYTE_SECONDS, offsetof(struct vv_stats_tier, used_byte_s)},
    {"varve_hop_bytes_total", "counter", "Bytes moved.", HOP(moved_bytes)},
    {"varve_hop_busy_seconds_total", "counter", "Time with at least one transfer in progress.",
     HOP_NS(busy_ns)},
    {"varve_hop_transfers", "gauge", "Transfers queued or in progress.", HOP(orders)},
    {"varve_hop_errors_total", "counter", "Transfers that failed.", HOP(errors)},
    {"varve_hop_bandwidth_bytes_per_second", "gauge", "Measured bandwidth; 0: not known yet.",
     HOP(bytes_per_s)},
    {"varve_history_versions", "gauge", "Versions of a history that can be restored.",
     HIST(versions)},
    {"varve_history_durable_versions", "gauge", "Versions of a history committed to storage.", HIST(durable)},
    {"varve_history_failed_versions", "gauge", "Versions of a history that failed to reach the disk.",
     HIST(failed)},
    {"varve_history_hints", "gauge", "Hints of a history not yet used.", HIST(hints)},
    {"varve_history_hints_ready", "gauge", "Hinted versions of a history, from the next on, ready to be restored.",
     HIST(ready)},
};
/* clang-format on */

static void label(FILE *out, const char *name, const char *value)
{
    fprintf(out, ",%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", out);
        else if (*value == '"' || *value == '\\')
            fprintf(out, "\\%c", *value);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

static void sample(FILE *out, const char *name, const struct vv_stats_header *h)
{
    fprintf(out, "%s{pid=\"%" PRIu64 "\",context=\"%" PRIu32 "\",rank=\"%" PRId32 "\"", name,
            h->pid, h->context, h->rank);
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void value(FILE *out, const struct family *f, const void *part)
{
    const char *at = (const char *)part + f->at;
    uint64_t n = 0;
    double x = 0;

    if (f->unit == BYTE_SECONDS) {
        memcpy(&x, at, sizeof(x));
        fprintf(out, "} %.6f\n", x);
        return;
    }
    memcpy(&n, at, sizeof(n));
    if (f->unit == SECONDS)
        fprintf(out, "} %" PRIu64 ".%09" PRIu64 "\n", n / 1000000000, n % 1000000000);
    else
        fprintf(out, "} %" PRIu64 "\n", n);
}

static void one(FILE *out, const struct family *f, const struct vv_stats_header *h, const char *key,
                const char *name, const void *part)
{
    sample(out, f->name, h);
    if (key)
        label(out, key, name);
    value(out, f, part);
}

static void samples(FILE *out, const struct family *f, const struct vv_stats_target *t)
{
    const struct vv_stats_record *r = t->record;

    switch (f->of) {
    case OF_ALL:
        one(out, f, t->about, NULL, NULL, r);
        break;
    case OF_CALLS:
        one(out, f, t->about, "call", "checkpoint", &r->checkpoint);
        one(out, f, t->about, "call", "restore", &r->restore);
        break;
    case OF_TIER:
        for (uint32_t i = 0; i < r->ntiers; i++)
            one(out, f, t->about, "tier", r->tier[i].name, &r->tier[i]);
        break;
    case OF_HOP:
        for (uint32_t i = 0; i < r->nhops; i++)
            one(out, f, t->about, "hop", r->hop[i].name, &r->hop[i]);
        break;
    case OF_HISTORY:
        for (uint32_t i = 0; i < r->nhistories; i++)
            one(out, f, t->about, "history", r->history[i].name, &r->history[i]);
        break;
    }
}

void vv_stats_prometheus(FILE *out, const struct vv_stats_target *targets, size_t n)
{
    if (n == 0)
        return;
    head(out, "varve_info", "gauge", "A context of the library; always 1.");
    for (size_t i = 0; i < n; i++) {
        const struct vv_stats_header *h = targets[i].about;
        sample(out, "varve_info", h);
        label(out, "program", h->program);
        label(out, "version", h->version);
        label(out, "level", h->level);
        label(out, "policy", h->policy);
        label(out, "device", h->device);
        fputs("} 1\n", out);
    }
    head(out, "varve_up", "gauge", "1 while the context is open, 0 when it has been closed.");
    for (size_t i = 0; i < n; i++) {
        sample(out, "varve_up", targets[i].about);
        fprintf(out, "} %d\n", targets[i].record->state != VV_STATS_CLOSED);
    }
    head(out, "varve_opened_timestamp_seconds", "gauge", "When the context was opened.");
    for (size_t i = 0; i < n; i++) {
        sample(out, "varve_opened_timestamp_seconds", targets[i].about);
        fprintf(out, "} %.3f\n", (double)targets[i].about->opened_unix_ns * 1e-9);
    }
    head(out, "varve_updated_timestamp_seconds", "gauge", "When these figures were taken.");
    for (size_t i = 0; i < n; i++) {
        sample(out, "varve_updated_timestamp_seconds", targets[i].about);
        fprintf(out, "} %.3f\n", (double)targets[i].record->unix_ns * 1e-9);
    }
    for (size_t k = 0; k < VV_ARRAY_SIZE(families); k++) {
        head(out, families[k].name, families[k].type, families[k].help);
        for (size_t i = 0; i < n; i++)
            samples(out, &families[k], &targets[i]);
    }
}

/* ---- the file ---- */

struct vv_stats_file {
    int folder;
    char name[256], temporary[256];
};

/* Expands %p, %r and %%. -EINVAL: another letter after %. */
static int expand(const char *path, int rank, char *buf, size_t size)
{
    size_t n = 0;

    for (; *path; path++) {
        char number[24] = {*path};
        if (*path == '%') {
            path++;
            if (*path == 'p')
                snprintf(number, sizeof(number), "%ld", (long)getpid());
            else if (*path == 'r')
                snprintf(number, sizeof(number), "%d", rank);
            else if (*path != '%')
                return -EINVAL;
        }
        if (n + strlen(number) >= size)
            return -ENAMETOOLONG;
        memcpy(buf + n, number, strlen(number));
        n += strlen(number);
    }
    buf[n] = '\0';
    return 0;
}

/* Synchronization: relaxed; gives every file of a process a temporary name of its own. */
static _Atomic unsigned opened;

int vv_stats_file_open(const char *path, int rank, char *err, size_t err_bytes,
                       struct vv_stats_file **ret_file)
{
    char full[1200];
    int rc = expand(path, rank, full, sizeof(full));
    char *slash = rc ? NULL : strrchr(full, '/');
    const char *name = slash ? slash + 1 : full;

    if (rc || !*name || strlen(name) > 200 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        snprintf(err, err_bytes, "metrics: '%.120s' does not name a file (%%p: process, %%r: rank)",
                 path);
        return -EINVAL;
    }
    struct vv_stats_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    snprintf(f->name, sizeof(f->name), "%s", name);
    snprintf(f->temporary, sizeof(f->temporary), ".%s.%ld-%u.tmp", name, (long)getpid(),
             atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed));
    if (slash)
        slash[slash == full] = '\0'; /* "/x" is in "/" */
    f->folder = open(slash ? full : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool writable = f->folder >= 0 && faccessat(f->folder, ".", W_OK, AT_EACCESS) == 0;
    rc = writable ? 0 : -errno;
    struct stat st;
    if (rc == 0 && (fstatat(f->folder, f->name, &st, 0) != 0 || S_ISREG(st.st_mode))) {
        *ret_file = f;
        return 0;
    }
    if (rc)
        snprintf(err, err_bytes, "metrics: folder %.120s: %s", slash ? full : ".", strerror(-rc));
    else /* a device, for example, which must not be replaced by a file */
        snprintf(err, err_bytes, "metrics: %.120s exists and is not a regular file", path);
    rc = rc ? rc : -EINVAL;
    vv_stats_file_close(f);
    return rc;
}

int vv_stats_file_print(struct vv_stats_file *f, void (*print)(FILE *out, const void *arg),
                        const void *arg)
{
    /* Readable for others: a collector runs as another user. */
    int fd = openat(f->folder, f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    0644);
    if (fd < 0)
        return -errno;
    FILE *out = fdopen(fd, "w");
    int rc = 0;
    if (!out) {
        rc = -errno;
        close(fd);
    } else {
        print(out, arg);
        if (ferror(out))
            rc = -EIO;
        if (fclose(out) && rc == 0)
            rc = -errno;
    }
    if (rc == 0 && renameat(f->folder, f->temporary, f->folder, f->name))
        rc = -errno;
    if (rc)
        unlinkat(f->folder, f->temporary, 0);
    return rc;
}

static void print_one(FILE *out, const void *target)
{
    vv_stats_prometheus(out, target, 1);
}

int vv_stats_file_put(struct vv_stats_file *f, const struct vv_stats_target *target)
{
    return vv_stats_file_print(f, print_one, target);
}

void vv_stats_file_close(struct vv_stats_file *f)
{
    if (!f)
        return;
    if (f->folder >= 0)
        close(f->folder);
    free(f);
}
