/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: threads as the processes of a job, each with a folder as the disk of its node. Nodes
 * lose their folders, copies are damaged, partners stop answering, runs overlap; with a thread of the
 * library that copies and without. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>
#include <varve/transport.h>

#include "base/util.h"
#include "store/partner/partner_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"
#include "unit/ckpt/hub.h"

enum { PAGE = 4096, BYTES = 5 * PAGE + 77, RANKS = 4, SHORT_MS = 200 };

/* ---- a job ---- */

struct job;

struct process {
    struct job *job;
    int rank;
    struct varve_ctx *ctx;
    struct varve_history *h;
    unsigned copied; /* calls of copied_in_the_end */
    char buf[BYTES];
};

struct job {
    const char *base; /* disks are folders in it */
    struct hub *hub;
    int ranks;
    int node[HUB_MAX]; /* for each rank: the node whose folder and name it has */
    bool threads, overwrite, metrics;
    uint64_t keep;
    int timeout_ms;
    uint64_t run, local_cache;
    int mixed;               /* this rank mistakes rank 0 for rank 2; 0: no rank does */
    _Atomic unsigned copied; /* calls of copied_in_the_end that are done, of all ranks */
    void (*fn)(struct process *p);
};

static void disk_of(const struct job *job, int node, char path[512])
{
    snprintf(path, 512, "%s/disk%d", job->base, node);
}

static void options(const struct process *p, struct varve_opts *opts)
{
    const struct job *job = p->job;
    hub_options(job->base, job->node[p->rank], p->rank, job->ranks, opts);
    opts->local_cache = job->local_cache;
    opts->run_id = job->run;
    if (job->timeout_ms)
        opts->partner_timeout_ms = job->timeout_ms;
    if (job->metrics)
        snprintf(opts->metrics, sizeof(opts->metrics), "%s/metrics-%%r", job->base);
}

static void mix(struct varve_transport *t);

static void begin(struct process *p)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;
    struct varve_transport t = hub_transport(p->job->hub, p->rank, p->job->threads);
    options(p, &opts);
    if (p->job->mixed > 0 && p->rank == p->job->mixed)
        mix(&t);
    T_OK(varve_open_with(&opts, &t, &p->ctx));
    T_OK(varve_history_opts_init(&hopts, sizeof(hopts)));
    hopts.overwrite = p->job->overwrite;
    hopts.keep = p->job->keep;
    T_OK(varve_history_open_with(p->ctx, "h", &hopts, &p->h));
    T_OK(varve_protect(p->h, 0, p->buf, BYTES));
}

static void process_main(void *arg, int rank)
{
    struct job *job = arg;
    struct process p = {.job = job, .rank = rank};
    job->fn(&p);
}

/* One run of the job. */
static void run(struct job *job, void (*fn)(struct process *p))
{
    job->fn = fn;
    job->run++;
    job->copied = 0;
    job->hub = hub_new(job->ranks);
    hub_each(job->hub, process_main, job);
    hub_free(job->hub);
}

static void job_init(struct job *job, int ranks, bool threads)
{
    *job = (struct job){.base = t_tmpdir(), .ranks = ranks, .threads = threads, .run = 100};
    for (int i = 0; i < ranks; i++)
        job->node[i] = i;
}

static int region(int rank, int life)
{
    return rank * 100 + life;
}

static void put(struct process *p, uint64_t version, int life)
{
    ck_fill(p->buf, BYTES, version, region(p->rank, life));
    T_OK(varve_checkpoint_for(p->h, version, CK_LIMIT_MS));
}

static void put_safe(struct process *p, uint64_t version, int life)
{
    put(p, version, life);
    T_OK(varve_wait(p->h, version, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
}

static int get(struct process *p, uint64_t version, int life)
{
    memset(p->buf, 0, BYTES);
    int rc = varve_restore_for(p->h, version, CK_LIMIT_MS);
    if (rc == 0)
        ck_check(p->buf, BYTES, version, region(p->rank, life));
    return rc;
}

static struct varve_stats stats(struct process *p)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(p->ctx, &s));
    return s;
}

/* ---- files ---- */

/* Files of a folder with this beginning; the last one's path. */
static int count_files(const char *folder, const char *begin, char path[1024])
{
    DIR *dir = opendir(folder);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t len = strlen(e->d_name);
        if (strncmp(e->d_name, begin, strlen(begin)) != 0 || len < 5 ||
            strcmp(e->d_name + len - 5, ".ckpt") != 0)
            continue;
        if (path)
            snprintf(path, 1024, "%s/%s", folder, e->d_name);
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Number of copies kept on a node. */
static int copies_on(const struct job *job, int node, const char *begin, char path[1024])
{
    char folder[600];
    char disk[512];
    disk_of(job, node, disk);
    snprintf(folder, sizeof(folder), "%s/.partner/h", disk);
    return count_files(folder, begin, path);
}

/* Number of files of the processes that run there. */
static int files_on(const struct job *job, int node)
{
    char disk[512], folder[600];
    disk_of(job, node, disk);
    snprintf(folder, sizeof(folder), "%s/h", disk);
    return count_files(folder, "r", NULL);
}

static void wipe(const struct job *job, int node)
{
    hub_wipe(job->base, node);
}

static void flip(const char *path, uint64_t at)
{
    char c;
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 16;
    T_EQ(pwrite(fd, &c, 1, (off_t)at), 1);
    close(fd);
}

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    T_EQ(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

/* ---- runs ---- */

enum { VERSIONS = 4 };

static void write_all(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= VERSIONS; v++)
        put_safe(p, v, 1);
    hub_barrier(p->job->hub);
    struct varve_stats s = stats(p);
    T_EQ(s.partner_sent, VERSIONS);
    T_EQ(s.partner_pending, 0);
    T_EQ(s.partner_sent_bytes, VERSIONS * BYTES);
    if (p->job->ranks == RANKS) { /* one on each node */
        T_EQ(s.partner_received, VERSIONS);
        T_EQ(s.partner_received_bytes, VERSIONS * BYTES);
    }
    T_EQ(s.partner_errors, 0);
    T_OK(varve_close(p->ctx));
}

static void read_all(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), VERSIONS);
    for (uint64_t v = VERSIONS; v >= 1; v--)
        T_OK(get(p, v, 1));
    T_OK(varve_close(p->ctx));
}

static void all_copied(const struct job *job)
{
    for (int i = 0; i < job->ranks; i++)
        T_EQ(copies_on(job, job->node[i], "r", NULL), VERSIONS);
}

/* The last figures of a context stay in the file of its metrics. */
static void check_metric(const struct job *job, int rank, const char *name, uint64_t want)
{
    char path[512], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "%s/metrics-%d", job->base, rank);
    FILE *in = fopen(path, "r");
    T_CHECK(in != NULL);
    while (fgets(line, sizeof(line), in)) {
        if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != '{')
            continue;
        T_CHECK(strstr(line, "} ") != NULL);
        T_EQ(strtoull(strstr(line, "} ") + 2, NULL, 10), want);
        found = true;
    }
    fclose(in);
    T_CHECK(found);
}

/* Every node in turn loses its disk: every version is recovered, and has a copy again. */
static void lose_one(bool threads)
{
    struct job job;
    job_init(&job, RANKS, threads);
    job.metrics = true;
    run(&job, write_all);
    all_copied(&job);
    for (int i = 0; i < RANKS; i++) {
        check_metric(&job, i, "varve_partner_copies_sent_total", VERSIONS);
        check_metric(&job, i, "varve_partner_copies_received_total", VERSIONS);
        check_metric(&job, i, "varve_partner_copies_pending", 0);
        check_metric(&job, i, "varve_partner_copies_failed_total", 0);
        check_metric(&job, i, "varve_partner_sent_bytes_total", VERSIONS * BYTES);
    }
    for (int node = t_sanitized() ? RANKS - 1 : 0; node < RANKS; node++) {
        wipe(&job, node);
        run(&job, read_all);
        all_copied(&job);
        check_metric(&job, node, "varve_partner_recovered_versions_total", VERSIONS);
        check_metric(&job, (node + RANKS - 1) % RANKS, "varve_partner_copies_sent_total", VERSIONS);
    }
    /* Two nodes that are not each other's partners. */
    wipe(&job, 0);
    wipe(&job, 2);
    run(&job, read_all);
    all_copied(&job);
}

static void lost_node_comes_back(void)
{
    lose_one(true);
}

static void lost_node_comes_back_without_threads(void)
{
    lose_one(false);
}

/* Several processes on each node, in unequal numbers, share its folder. */
static void nodes_of_many(void)
{
    for (int threads = 0; threads < 2; threads++) {
        static const int node[7] = {0, 0, 0, 1, 2, 2, 1};
        struct job job;
        job_init(&job, 7, threads);
        memcpy(job.node, node, sizeof(node));
        run(&job, write_all);
        for (int lost = 0; lost < 3; lost++) {
            wipe(&job, lost);
            run(&job, read_all);
        }
        int n = 0;
        for (int i = 0; i < 3; i++)
            n += copies_on(&job, i, "r", NULL);
        T_EQ(n, 7 * VERSIONS);
    }
}

/* Processes find their files on all nodes of the job; no file stays twice if it is not
 * needed. */
static void nodes_change_places(void)
{
    struct job job;
    job_init(&job, RANKS, true);
    run(&job, write_all);
    for (int i = 0; i < RANKS; i++)
        job.node[i] = (i * 3 + 2) % RANKS;
    /* The disk with the copies of a process whose files are now on another node's disk. */
    wipe(&job, 1);
    run(&job, read_all);
    run(&job, read_all); /* files copied at the last opening are not needed twice now */
    all_copied(&job);
    for (int i = 0; i < RANKS; i++)
        T_EQ(files_on(&job, i), VERSIONS);
    job.node[0] = RANKS; /* an empty one, for the first */
    run(&job, read_all);
    T_EQ(copies_on(&job, RANKS, "r", NULL), VERSIONS);
}

static void read_gap(struct process *p)
{
    begin(p);
    if (p->rank == 1) {
        uint64_t v;
        T_EQ(ck_count(p->h), 0);
        T_ERR(varve_latest(p->h, &v), -ENOENT);
        T_ERR(get(p, 1, 1), -ENOENT);
    } else {
        T_EQ(ck_count(p->h), VERSIONS);
        T_OK(get(p, VERSIONS, 1));
    }
    T_OK(varve_close(p->ctx));
}

/* A node and the node with its copies. */
static void two_lost_nodes_are_lost(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, RANKS, threads);
        run(&job, write_all);
        wipe(&job, 1);
        wipe(&job, 2);
        run(&job, read_gap);
    }
}

/* ---- damage ---- */

static void read_right_or_not(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        int rc = get(p, v, 1); /* checks the bytes if it is 0 */
        T_CHECK(rc == 0 || (p->rank == 0 && v == 2 && (rc == -ENOENT || rc == -EBADMSG)));
    }
    T_OK(varve_close(p->ctx));
}

/* A bit of a copy, in each kind of block, of a version whose local file is lost. */
static void flipped_copy_is_not_returned(void)
{
    char path[1024];
    for (int part = t_sanitized() ? (int)(t_seed() % 3) : 0; part < 12;
         part += t_sanitized() ? 3 : 1) {
        struct job job;
        job_init(&job, 2, part % 2);
        run(&job, write_all);
        T_EQ(copies_on(&job, 1, "r0.v2.", path), 1);
        uint64_t bytes = file_bytes(path);
        const uint64_t at[6] = {24,          4096 + 10, 4096 + 3 * PAGE, bytes - 4096 + 16,
                                bytes - 200, bytes - 20};
        flip(path, at[part / 2]);
        wipe(&job, 0);
        run(&job, read_right_or_not);
    }
}

static void repair(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        int rc = get(p, v, 1);
        T_ERR(rc, p->rank == 2 && v == 3 ? -EBADMSG : 0);
        T_OK(varve_history_repair(p->h, v, rc != 0));
        T_OK(get(p, v, 1));
    }
    T_EQ(stats(p).partner_repaired_chunks, p->rank == 2);
    T_ERR(varve_history_repair(p->h, 99, 1), -ENOENT);
    T_OK(varve_close(p->ctx));
}

/* A bit of a local file: it is repaired from the copy. A file whose tables are damaged is recovered like a lost
 * one. */
static void flipped_file_is_put_right(void)
{
    char path[1024], disk[512], folder[600];
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        run(&job, write_all);
        disk_of(&job, 2, disk);
        snprintf(folder, sizeof(folder), "%s/h", disk);
        T_EQ(count_files(folder, "r2.v3.", path), 1);
        flip(path, 4096 + PAGE + 1);
        run(&job, repair);
        run(&job, read_all);
        flip(path, file_bytes(path) - 10);
        snprintf(path, sizeof(path), "%s/index.2", folder);
        T_EQ(unlink(path), 0);
        run(&job, read_all);
    }
}

static void write_over_bad_wire(struct process *p)
{
    begin(p);
    put(p, 1, 1);
    if (p->rank == 0)
        hub_damage(p->job->hub, 2 + (uint64_t)p->job->run % 3);
    hub_barrier(p->job->hub);
    put(p, 2, 1);
    put(p, 3, 1);
    put(p, 4, 1);
    int rc = varve_flush(p->h, CK_LIMIT_MS);
    T_CHECK(rc == 0 || rc == -EBADMSG);
    T_OK(varve_close(p->ctx)); /* tries again */
}

/* A damaged message fails the copy, which is made again. */
static void damage_on_the_way(void)
{
    for (int i = 0; i < 6; i++) {
        struct job job;
        job_init(&job, 2, i % 2);
        job.run += (uint64_t)i;
        run(&job, write_over_bad_wire);
        wipe(&job, i / 3);
        run(&job, read_all);
    }
}

/* ---- silence ---- */

/* On a busy machine a partner that is not silent may be slow. Without a thread of the library a copy
 * only progresses inside calls, and the flush of another rank waits for this rank no longer than for
 * a silent one. So a rank whose flush is done repeats it until those of all ranks are done. */
static void copied_in_the_end(struct process *p)
{
    unsigned all = ++p->copied * (unsigned)p->job->ranks;
    int rc;
    while ((rc = varve_flush(p->h, CK_LIMIT_MS)) == -ETIMEDOUT)
        ;
    T_OK(rc);
    atomic_fetch_add(&p->job->copied, 1);
    while (atomic_load(&p->job->copied) < all)
        T_OK(varve_flush(p->h, CK_LIMIT_MS));
}

static void partner_is_silent(struct process *p)
{
    begin(p);
    put(p, 1, 1);
    copied_in_the_end(p);
    hub_barrier(p->job->hub);
    if (p->rank == 0)
        hub_lose(p->job->hub, 1, true);
    hub_barrier(p->job->hub);
    if (p->rank == 0) {
        put(p, 2, 1);
        put(p, 3, 1);
        T_ERR(varve_wait(p->h, 2, VARVE_LEVEL_LOCAL, -1),
              -ETIMEDOUT); /* without a limit of its own */
        ck_error(p->ctx, -ETIMEDOUT, "rank 1");
        T_CHECK(stats(p).partner_errors > 0);
        for (int i = 0; i < CK_LIMIT_MS && stats(p).partner_pending < 2; i++)
            usleep(1000); /* version 3 is counted once it is on local disk */
        T_EQ(stats(p).partner_pending, 2);
        T_OK(get(p, 2, 1)); /* it is on local disk, although it has no copy */
        uint64_t v;
        T_OK(varve_latest(p->h, &v));
        T_EQ(v, 3);
        T_ERR(varve_flush(p->h, CK_LIMIT_MS), -ETIMEDOUT);
        hub_lose(p->job->hub, 1, false);
    }
    hub_barrier(p->job->hub);
    if (p->rank != 0) {
        put(p, 2, 1);
        put(p, 3, 1);
    }
    put(p, 4, 1);
    copied_in_the_end(p);
    T_OK(varve_wait(p->h, 2, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_OK(varve_close(p->ctx));
}

static void silent_partner_is_an_error(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        job.timeout_ms = SHORT_MS;
        run(&job, partner_is_silent);
        job.timeout_ms = 0;
        wipe(&job, 0);
        run(&job, read_all);
    }
}

/* ---- removal, lives ---- */

static void discard_some(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= 6; v++)
        put_safe(p, v, 1);
    T_OK(varve_discard(p->h, 2));
    T_OK(varve_discard(p->h, 5));
    T_OK(varve_close(p->ctx));
}

static void discarded_are_gone(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), VERSIONS);
    for (uint64_t v = 1; v <= 6; v++)
        T_ERR(get(p, v, 1), v == 2 || v == 5 ? -ENOENT : 0);
    T_OK(varve_close(p->ctx));
}

/* Discarded versions do not come back, even if their copy was not dropped in time. */
static void discarded_stays_discarded(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        run(&job, discard_some);
        T_EQ(copies_on(&job, 1, "r0.", NULL), VERSIONS);
        T_EQ(files_on(&job, 0), VERSIONS);
        wipe(&job, 0);
        run(&job, discarded_are_gone);
    }
}

static void discard_unheard(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= 6; v++)
        put(p, v, 1);
    copied_in_the_end(p);
    hub_barrier(p->job->hub);
    if (p->rank == 0) {
        hub_lose(p->job->hub, 1, true);
        T_OK(varve_discard(p->h, 2));
        T_OK(varve_discard(p->h, 5));
    }
    T_OK(varve_close(p->ctx));
}

static void open_and_close(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), p->rank == 0 ? 4 : 6);
    T_OK(varve_close(p->ctx));
}

/* The partner was not notified: the owner has a list of removed versions, and sends it at the next
 * opening. */
static void discarded_behind_the_keepers_back(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        job.timeout_ms = SHORT_MS;
        run(&job, discard_unheard);
        T_EQ(copies_on(&job, 1, "r0.", NULL), 6);
        job.timeout_ms = 0;
        run(&job, open_and_close);
        T_EQ(copies_on(&job, 1, "r0.", NULL), 4);
        wipe(&job, 0);
        run(&job, open_and_close);
    }
}

static void keep_one(struct process *p)
{
    begin(p);
    put(p, 1, 1);
    copied_in_the_end(p);
    hub_barrier(p->job->hub);
    if (p->rank == 0) {
        hub_lose(p->job->hub, 1, true);
        put(p, 2, 1);
        put(p, 3, 1);
        T_ERR(varve_flush(p->h, CK_LIMIT_MS), -ETIMEDOUT);
        /* The last version with a copy, and the newest one. */
        T_EQ(ck_count(p->h), 2);
        T_OK(get(p, 1, 1));
        T_OK(get(p, 3, 1));
        T_EQ(copies_on(p->job, 1, "r0.v1.", NULL), 1);
        hub_lose(p->job->hub, 1, false);
    }
    hub_barrier(p->job->hub);
    copied_in_the_end(p);
    T_OK(varve_close(p->ctx));
}

/* A version stays, here and at the partner, until the partner has something newer. */
static void copies_go_when_newer_ones_are_there(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        job.timeout_ms = SHORT_MS;
        job.keep = 1;
        run(&job, keep_one);
        T_EQ(copies_on(&job, 1, "r0.", NULL), 1);
        T_EQ(copies_on(&job, 1, "r0.v3.", NULL), 1);
    }
}

static void first_life(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= 3; v++)
        put_safe(p, v, 1);
    T_OK(varve_close(p->ctx));
}

/* Continues from version 1, and does not get equally far on every rank. */
static void second_life(struct process *p)
{
    begin(p);
    T_OK(get(p, 1, 1));
    put_safe(p, 2, 2);
    if (p->rank != 1)
        put(p, 3, 2);
    T_OK(varve_close(p->ctx));
}

static void third_life(struct process *p)
{
    uint64_t run_id;
    begin(p);
    T_OK(get(p, 1, 1));
    T_OK(get(p, 2, 2));
    T_OK(get(p, 3, p->rank != 1 ? 2 : 1));
    /* Versions of the same number from different runs are distinguished. */
    T_OK(varve_version_run(p->h, 3, &run_id));
    T_EQ(run_id == 102, p->rank != 1);
    T_OK(varve_version_run(p->h, 2, &run_id));
    T_EQ(run_id, 102);
    T_OK(varve_close(p->ctx));
}

static void lives_do_not_mix(void)
{
    for (int i = 0; i < 6; i++) {
        struct job job;
        job_init(&job, 3, i % 2);
        job.overwrite = true;
        run(&job, first_life);
        run(&job, second_life);
        T_EQ(job.run, 102);
        wipe(&job, i / 2);
        run(&job, third_life);
        int n = 0;
        for (int node = 0; node < 3; node++)
            n += copies_on(&job, node, "r", NULL);
        T_EQ(n, 9);
    }
}

static void write_anew_unheard(struct process *p)
{
    begin(p);
    if (p->rank == 0)
        hub_lose(p->job->hub, 1, true);
    hub_barrier(p->job->hub);
    put(p, 3, 2);
    T_OK(varve_wait(p->h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    (void)varve_close(p->ctx); /* some have no copy of it */
}

static void copied_later(struct process *p)
{
    if (p->rank == 0)
        hub_lose(p->job->hub, 1, true);
    hub_barrier(p->job->hub);
    begin(p);
    T_OK(get(p, 3, 2));
    hub_barrier(p->job->hub);
    if (p->rank == 0) {
        T_ERR(varve_wait(p->h, 3, VARVE_LEVEL_LOCAL, -1), -ETIMEDOUT);
        T_EQ(copies_on(p->job, 1, "r0.v3.", NULL), 1); /* the old one */
        hub_lose(p->job->hub, 1, false);
    }
    hub_barrier(p->job->hub);
    copied_in_the_end(p);
    T_OK(varve_close(p->ctx));
}

static void read_second(struct process *p)
{
    begin(p);
    T_OK(get(p, 3, 2));
    T_OK(varve_close(p->ctx));
}

/* The old copy of an overwritten version stays until there is a copy of the new one, also if the
 * job ends in between and the next run has to make it. */
static void old_copies_stay_until_there_are_new_ones(void)
{
    struct job job;
    char before[1024], after[1024];
    job_init(&job, 3, true);
    job.overwrite = true;
    run(&job, first_life);
    T_EQ(copies_on(&job, 1, "r0.v3.", before), 1);
    job.timeout_ms = SHORT_MS;
    run(&job, write_anew_unheard);
    run(&job, copied_later);
    T_EQ(copies_on(&job, 1, "r0.v3.", after), 1);
    T_CHECK(strcmp(before, after) != 0);
    job.timeout_ms = 0;
    wipe(&job, 0);
    run(&job, read_second);
}

static void overwrite_over_bad_wire(struct process *p)
{
    begin(p);
    if (p->rank == 0) {
        put_safe(p, 1, 1);
        hub_damage(p->job->hub, 1);
        put(p, 1, 2);
        /* No wait for version 1, which would copy it again. */
        while (stats(p).partner_errors == 0)
            usleep(1000);
        for (uint64_t v = 2; v <= 4; v++)
            put_safe(p, v, 1);
        T_EQ(stats(p).partner_errors, 1);
        T_EQ(stats(p).partner_pending, 1);
        T_EQ(copies_on(p->job, 1, "r0.v1.", NULL), 1); /* the old one */
        T_OK(varve_wait(p->h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    }
    T_OK(varve_close(p->ctx));
}

/* The copy of a version that was overwritten has failed, and others were made since: the old one is
 * all that the partner has of it. */
static void failed_copies_keep_the_old_ones(void)
{
    struct job job;
    char path[1024];
    job_init(&job, 2, true);
    job.overwrite = true;
    run(&job, overwrite_over_bad_wire);
    T_EQ(copies_on(&job, 1, "r0.v1.", path), 1);
    T_CHECK(strstr(path, "r0.v1.g1.ckpt") == NULL);
}

/* The old generation is safe, the new one is on local disk and its copy fails. */
static void overwrite_in_vain(struct process *p, uint64_t version)
{
    put_safe(p, version, 1);
    hub_spoil(p->job->hub, 1, true);
    put(p, version, 2);
    T_ERR(varve_wait(p->h, version, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
}

static void close_in_between(struct process *p)
{
    begin(p);
    if (p->rank == 0)
        overwrite_in_vain(p, 1);
    T_ERR(varve_history_close(p->h), p->rank == 0 ? -EBADMSG : 0);
    hub_spoil(p->job->hub, 1, false);
    /* Messages of this history come after all messages of the first one. */
    T_OK(varve_history_open(p->ctx, "behind", &p->h));
    T_OK(varve_protect(p->h, 0, p->buf, BYTES));
    put_safe(p, 1, 1);
    T_OK(varve_close(p->ctx));
}

static void open_in_between(struct process *p)
{
    hub_spoil(p->job->hub, 1, true);
    begin(p);
    if (p->rank == 0) {
        T_OK(get(p, 1, 2));
        T_ERR(varve_wait(p->h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
        hub_spoil(p->job->hub, 1, false);
        put_safe(p, 2, 1); /* its messages come after all others */
        hub_spoil(p->job->hub, 1, true);
    }
    T_ERR(varve_close(p->ctx), p->rank == 0 ? -EBADMSG : 0);
}

static void read_old(struct process *p)
{
    begin(p);
    T_ERR(get(p, 1, 1), p->rank == 0 ? 0 : -ENOENT);
    T_OK(varve_close(p->ctx));
}

/* A history is closed, and opened, while the partner has only the old generation. Then the node is
 * lost. */
static void lives_leave_the_old_copy(void)
{
    struct job job;
    job_init(&job, 2, true);
    job.overwrite = true;
    run(&job, close_in_between);
    T_EQ(copies_on(&job, 1, "r0.v1.", NULL), 1);
    run(&job, open_in_between);
    T_EQ(copies_on(&job, 1, "r0.v1.", NULL), 1);
    wipe(&job, 0);
    run(&job, read_old);
}

static void take_it_back(struct process *p)
{
    begin(p);
    if (p->rank == 0) {
        overwrite_in_vain(p, 1);
        T_EQ(files_on(p->job, 0), 2);
        T_OK(get(p, 1, 2));
        T_OK(varve_revert(p->h, 1));
        T_OK(get(p, 1, 1));
        put(p, 1, 3);
        T_ERR(varve_wait(p->h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
        hub_spoil(p->job->hub, 1, false);
        T_OK(varve_wait(p->h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        T_ERR(varve_revert(p->h, 1), -EALREADY);
        T_OK(varve_flush(p->h, CK_LIMIT_MS));
        T_EQ(files_on(p->job, 0), 1);
        T_OK(get(p, 1, 3));
    }
    T_OK(varve_close(p->ctx));
}

/* Until the partner has the new generation the old one is held, here too, and can return. */
static void old_generations_return(void)
{
    struct job job;
    char path[1024];
    job_init(&job, 2, true);
    job.overwrite = true;
    run(&job, take_it_back);
    T_EQ(copies_on(&job, 1, "r0.v1.", path), 1);
}

static void keep_two(struct process *p)
{
    begin(p);
    if (p->rank == 0) {
        put_safe(p, 1, 1);
        put_safe(p, 2, 1);
        hub_spoil(p->job->hub, 1, true);
        put(p, 3, 1);
        T_ERR(varve_wait(p->h, 3, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
        hub_spoil(p->job->hub, 1, false);
        put_safe(p, 4, 1);
        put_safe(p, 5, 1); /* after the consequences of 4 */
        hub_spoil(p->job->hub, 1, true);
        put(p, 6, 1);
        T_ERR(varve_wait(p->h, 6, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
    }
    hub_barrier(p->job->hub);
    if (p->rank == 0) {
        T_EQ(copies_on(p->job, 1, "r0.v4.", NULL), 1);
        T_EQ(copies_on(p->job, 1, "r0.v5.", NULL), 1);
        hub_spoil(p->job->hub, 1, false);
    }
    hub_barrier(p->job->hub);
    T_OK(varve_close(p->ctx));
}

/* Retention counts versions that the partner has. */
static void expired_copies_stay_until_kept_ones_are_there(void)
{
    struct job job;
    job_init(&job, 2, true);
    job.keep = 2;
    run(&job, keep_two);
    T_EQ(copies_on(&job, 1, "r0.", NULL), 2);
    T_EQ(files_on(&job, 0), 2);
    T_EQ(copies_on(&job, 1, "r0.v5.", NULL), 1);
    T_EQ(copies_on(&job, 1, "r0.v6.", NULL), 1);
}

enum { IN_VAIN = 8 };

static void fail_often(struct process *p)
{
    begin(p);
    if (p->rank == 0) {
        put_safe(p, 1, 1);
        hub_spoil(p->job->hub, 1, true);
        for (int i = 2; i < 2 + IN_VAIN; i++) {
            uint64_t v = p->job->overwrite ? 1 : (uint64_t)i;
            put(p, v, i);
            T_ERR(varve_wait(p->h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
            T_EQ(ck_count(p->h), p->job->overwrite ? 1 : 2);
            T_OK(get(p, v, i));
        }
        T_ERR(varve_flush(p->h, CK_LIMIT_MS), -EBADMSG);
        T_EQ(files_on(p->job, 0), p->job->overwrite ? 3 : 2);
        T_EQ(copies_on(p->job, 1, "r0.v1.", NULL), 1);
    }
    T_ERR(varve_close(p->ctx), p->rank == 0 ? -EBADMSG : 0);
}

/* No copy can be made: the last generation and the last version that the partner has stay, with the
 * newest one and the generation before it, and no other. */
static void what_has_no_copy_does_not_pile_up(void)
{
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        struct job job;
        job_init(&job, 2, true);
        job.overwrite = overwrite;
        job.keep = 1;
        run(&job, fail_often);
        wipe(&job, 0);
        run(&job, read_old);
    }
}

/* A disk that was missing comes back with versions of an earlier run. */
static void old_disk_comes_back(void)
{
    struct job job;
    job_init(&job, 3, true);
    job.overwrite = true;
    run(&job, first_life);
    job.node[0] = 7; /* another one, empty */
    run(&job, second_life);
    job.node[0] = 0;
    run(&job, third_life);
}

/* ---- limits ---- */

static void fill_up(struct process *p)
{
    begin(p);
    uint64_t v = 1;
    int rc = 0;
    for (; v < 100 && rc == 0; v++) {
        ck_fill(p->buf, BYTES, v, region(p->rank, 1));
        rc = varve_checkpoint_for(p->h, v, CK_LIMIT_MS);
        if (rc == 0)
            T_OK(varve_wait(p->h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    }
    T_ERR(rc, -ENOSPC);
    struct varve_stats s = stats(p);
    T_CHECK(s.partner_held_bytes > 0 && s.partner_held_bytes <= p->job->local_cache / 2);
    T_CHECK(s.tier_used_bytes[s.tiers - 1] <= p->job->local_cache / 2);
    T_OK(varve_close(p->ctx));
}

static void half_of_the_disk_is_for_others(void)
{
    struct job job;
    job_init(&job, 2, true);
    job.local_cache = 40 * (uint64_t)BYTES;
    run(&job, fill_up);
}

/* Three processes of one node whose copies all go to one process. */
static void keep_too_much(struct process *p)
{
    begin(p);
    bool failed = false;
    for (uint64_t v = 1; v <= 4; v++) {
        put(p, v, 1);
        int rc = varve_wait(p->h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS);
        T_CHECK(rc == 0 || (rc == -ENOSPC && p->rank != 3));
        failed = failed || rc != 0;
        T_OK(get(p, v, 1));
    }
    T_CHECK(stats(p).partner_held_bytes <= p->job->local_cache / 2);
    int rc = varve_close(p->ctx);
    T_EQ(rc, failed ? -ENOSPC : 0);
}

static void no_room_for_others(void)
{
    struct job job;
    job_init(&job, 4, true);
    job.node[1] = job.node[2] = 0;
    job.local_cache = 12 * (uint64_t)(BYTES + 4 * PAGE);
    run(&job, keep_too_much);
}

/* ---- files of others ---- */

/* A wire whose end takes the messages of one rank for those of another. */
static struct {
    struct varve_transport inner;
    atomic_int answers[VVI_PART_END + 1]; /* from rank 1, by kind */
} mixed;

static int mixed_send(void *arg, int32_t to, void *message, size_t bytes)
{
    struct vvi_part_msg *m = message;
    T_CHECK(m->kind <= VVI_PART_END);
    atomic_fetch_add(&mixed.answers[m->kind], 1);
    return mixed.inner.send(arg, to, message, bytes);
}

static int mixed_receive(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    int rc = mixed.inner.receive(arg, ret_from, ret_message, ret_bytes);
    if (rc == 0 && *ret_from == 0)
        *ret_from = 2;
    return rc;
}

static void mix(struct varve_transport *t)
{
    mixed.inner = *t;
    t->send = mixed_send;
    t->receive = mixed_receive;
}

static void send_as_another(struct process *p)
{
    begin(p);
    if (p->rank == 0) {
        put(p, 1, 1);
        while (atomic_load(&mixed.answers[VVI_PART_FAILED]) +
                   atomic_load(&mixed.answers[VVI_PART_ACK]) ==
               0)
            usleep(1000);
        T_EQ(mixed.answers[VVI_PART_FAILED], 1);
        T_EQ(mixed.answers[VVI_PART_ACK], 0);
    }
    hub_barrier(p->job->hub);
    (void)varve_close(p->ctx); /* rank 0 has no copy */
}

/* A rank sends its own files: they cannot replace another rank's copies. */
static void files_of_others_are_refused(void)
{
    struct job job;
    job_init(&job, 3, true);
    job.timeout_ms = SHORT_MS;
    job.mixed = 1;
    run(&job, send_as_another);
    T_EQ(copies_on(&job, 1, "r", NULL), 0);
}

/* ---- refusals ---- */

static void refused(struct process *p)
{
    struct varve_opts opts;
    struct varve_transport t = hub_transport(p->job->hub, p->rank, p->job->threads);
    struct varve_error e = {.error_size = sizeof(e)};
    struct varve_ctx *ctx = NULL;
    options(p, &opts);
    snprintf(opts.node, sizeof(opts.node), "all");
    T_ERR(varve_open_with(&opts, &t, &ctx), -EINVAL);
    T_OK(varve_last_error(NULL, &e));
    T_CHECK(strstr(e.text, "one node") != NULL);
    /* Two names for one disk. */
    options(p, &opts);
    disk_of(p->job, 0, opts.local);
    T_ERR(varve_open_with(&opts, &t, &ctx), -EINVAL);
    T_OK(varve_last_error(NULL, &e));
    T_CHECK(strstr(e.text, "same folder") != NULL);
    /* One fails, so all fail. */
    options(p, &opts);
    if (p->rank == 1)
        opts.level = VARVE_LEVEL_CACHED;
    T_ERR(varve_open_with(&opts, &t, &ctx), -EINVAL);
    options(p, &opts);
    if (p->rank == 1)
        snprintf(opts.local, sizeof(opts.local), "%s/no/such", p->job->base);
    T_ERR(varve_open_with(&opts, &t, &ctx), -ENOENT);
    T_CHECK(ctx == NULL);
    options(p, &opts);
    opts.partner = 1;
    T_ERR(varve_open(&opts, &ctx), -EINVAL);
    T_OK(varve_last_error(NULL, &e));
    T_CHECK(strstr(e.text, "varve_open_mpi") != NULL);
    /* All must open the same history. */
    options(p, &opts);
    struct varve_history *h = NULL;
    T_OK(varve_open_with(&opts, &t, &ctx));
    T_ERR(varve_history_open(ctx, p->rank == 1 ? "a" : "b", &h), -EINVAL);
    T_CHECK(h == NULL);
    T_OK(varve_history_open(ctx, "c", &h));
    T_OK(varve_close(ctx));
}

static void refusals(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, threads);
        run(&job, refused);
    }
}

int main(void)
{
    T_RUN(lost_node_comes_back);
    T_RUN(lost_node_comes_back_without_threads);
    T_RUN(nodes_of_many);
    T_RUN(nodes_change_places);
    T_RUN(two_lost_nodes_are_lost);
    T_RUN(flipped_copy_is_not_returned);
    T_RUN(flipped_file_is_put_right);
    T_RUN(damage_on_the_way);
    T_RUN(silent_partner_is_an_error);
    T_RUN(discarded_stays_discarded);
    T_RUN(discarded_behind_the_keepers_back);
    T_RUN(copies_go_when_newer_ones_are_there);
    T_RUN(lives_do_not_mix);
    T_RUN(old_copies_stay_until_there_are_new_ones);
    T_RUN(failed_copies_keep_the_old_ones);
    T_RUN(lives_leave_the_old_copy);
    T_RUN(old_generations_return);
    T_RUN(expired_copies_stay_until_kept_ones_are_there);
    T_RUN(what_has_no_copy_does_not_pile_up);
    T_RUN(old_disk_comes_back);
    T_RUN(half_of_the_disk_is_for_others);
    T_RUN(no_room_for_others);
    T_RUN(files_of_others_are_refused);
    T_RUN(refusals);
    return t_done();
}
