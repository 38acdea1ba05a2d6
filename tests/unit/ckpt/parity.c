/* SPDX-License-Identifier: Apache-2.0 */
/* Parity: threads as the processes of a job, each with a folder as the disk of its node. Members of a set lose their
 * folders, files are damaged, versions are overwritten, discarded and kept; with a thread of the library and without. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>
#include <varve/transport.h>

#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "store/parity/erasure.h"
#include "t.h"
#include "unit/ckpt/ck.h"
#include "unit/ckpt/hub.h"

enum { PAGE = 4096, MOST = 9 * PAGE, VERSIONS = 3 };

struct job;

struct process {
    struct job *job;
    int rank;
    struct varve_ctx *ctx;
    struct varve_history *h;
    char buf[MOST];
    char *large;
};

struct job {
    const char *base;
    struct hub *hub;
    int ranks, set;
    int node[HUB_MAX];
    bool threads, overwrite, unsynced, remove;
    uint64_t keep, run, large;
    const char *parity;
    int timeout_ms, want;
    void (*fn)(struct process *p);
    int lost[2]; /* ranks; -1: none */
    uint64_t versions;
    long count;
};

/* Regions differ in length, and one is empty. */
static size_t bytes_of(const struct process *p)
{
    static const size_t bytes[5] = {5 * PAGE + 77, 0, MOST, 3 * PAGE, 900};
    return p->job->large > 0 ? p->job->large + (size_t)p->rank * 70000 : bytes[p->rank % 5];
}

static char *buf_of(struct process *p)
{
    return p->job->large > 0 ? p->large : p->buf;
}

static int region(int rank, int life)
{
    return rank * 100 + life;
}

static int try_begin(struct process *p)
{
    const struct job *job = p->job;
    struct varve_opts opts;
    struct varve_history_opts hopts;
    struct varve_transport t = hub_transport(job->hub, p->rank, job->threads);
    hub_options(job->base, job->node[p->rank], p->rank, job->ranks, &opts);
    snprintf(opts.parity, sizeof(opts.parity), "%s", job->parity);
    opts.parity_set = job->set;
    opts.run_id = job->run;
    if (job->unsynced)
        opts.local_sync = VARVE_LOCAL_SYNC_OFF;
    if (job->large > 0)
        opts.host_cache = 4 << 20;
    if (job->timeout_ms > 0)
        opts.partner_timeout_ms = job->timeout_ms;
    int rc = varve_open_with(&opts, &t, &p->ctx);
    if (rc != 0)
        return rc;
    if (job->remove) {
        T_OK(varve_history_remove(p->ctx, "h", 0));
        hub_barrier(job->hub);
    }
    T_OK(varve_history_opts_init(&hopts, sizeof(hopts)));
    hopts.overwrite = job->overwrite;
    hopts.keep = job->keep;
    T_OK(varve_history_open_with(p->ctx, "h", &hopts, &p->h));
    T_OK(varve_protect(p->h, 0, buf_of(p), bytes_of(p)));
    return 0;
}

static void begin(struct process *p)
{
    T_OK(try_begin(p));
}

static void process_main(void *arg, int rank)
{
    struct job *job = arg;
    struct process *p = calloc(1, sizeof(*p));
    T_CHECK(p != NULL);
    *p = (struct process){.job = job, .rank = rank};
    if (job->large > 0)
        T_CHECK((p->large = malloc(bytes_of(p))) != NULL);
    job->fn(p);
    free(p->large);
    free(p);
}

static void run(struct job *job, void (*fn)(struct process *p))
{
    job->fn = fn;
    job->run++;
    job->hub = hub_new(job->ranks);
    hub_each(job->hub, process_main, job);
    hub_free(job->hub);
}

static void job_init(struct job *job, int ranks, const char *parity, bool threads)
{
    *job = (struct job){.base = t_tmpdir(),
                        .ranks = ranks,
                        .set = ranks,
                        .parity = parity,
                        .threads = threads,
                        .lost = {-1, -1},
                        .versions = VERSIONS,
                        .run = 100};
    for (int i = 0; i < ranks; i++)
        job->node[i] = i;
}

static void put(struct process *p, uint64_t version, int life)
{
    ck_fill(buf_of(p), bytes_of(p), version, region(p->rank, life));
    T_OK(varve_checkpoint_for(p->h, version, CK_LIMIT_MS));
}

static void put_safe(struct process *p, uint64_t version, int life)
{
    put(p, version, life);
    T_OK(varve_wait(p->h, version, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
}

static int get(struct process *p, uint64_t version, int life)
{
    memset(buf_of(p), 0, bytes_of(p));
    int rc = varve_restore_for(p->h, version, CK_LIMIT_MS);
    if (rc == 0)
        ck_check(buf_of(p), bytes_of(p), version, region(p->rank, life));
    return rc;
}

/* ---- files ---- */

static int files_in(const struct job *job, int node, const char *below, const char *begins,
                    char path[1024])
{
    char folder[700];
    snprintf(folder, sizeof(folder), "%s/disk%d/%s", job->base, node, below);
    DIR *dir = opendir(folder);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t len = strlen(e->d_name);
        if (strncmp(e->d_name, begins, strlen(begins)) != 0 || len < 5 ||
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

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    T_EQ(stat(path, &st), 0);
    return (uint64_t)st.st_size;
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

/* Checks that each rank has one parity file and one file of its own for each version. */
static void all_have_parity(const struct job *job, int versions)
{
    for (int i = 0; i < job->ranks; i++) {
        char mine[32];
        snprintf(mine, sizeof(mine), "r%d.", i);
        T_EQ(files_in(job, job->node[i], ".parity/h", mine, NULL), versions);
        T_EQ(files_in(job, job->node[i], "h", mine, NULL), versions);
    }
}

/* ---- runs ---- */

static void write_all(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= p->job->versions; v++)
        put_safe(p, v, 1);
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(p->ctx, &s));
    T_EQ(s.partner_received, p->job->versions);
    T_EQ(s.partner_pending, 0);
    T_EQ(s.partner_errors, 0);
    T_OK(varve_close(p->ctx));
}

static void read_all(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), p->job->versions);
    for (uint64_t v = p->job->versions; v >= 1; v--)
        T_OK(get(p, v, 1));
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(p->ctx, &s));
    bool lost = p->rank == p->job->lost[0] || p->rank == p->job->lost[1];
    T_EQ(s.partner_recovered, lost ? p->job->versions : 0);
    T_OK(varve_close(p->ctx));
}

/* Removes the folders of one or two nodes; b = -1: one. */
static void lose(struct job *job, int a, int b)
{
    job->lost[0] = a;
    job->lost[1] = b;
    hub_wipe(job->base, job->node[a]);
    if (b >= 0)
        hub_wipe(job->base, job->node[b]);
}

/* Every member in turn is lost; the parity lost with it is made again. */
static void any_one_comes_back(void)
{
    for (int threads = 0; threads < 2; threads++)
        for (int ranks = 2; ranks <= 5; ranks += t_sanitized() ? 2 : 1) {
            struct job job;
            job_init(&job, ranks, "xor", threads);
            run(&job, write_all);
            all_have_parity(&job, VERSIONS);
            for (int i = 0; i < ranks; i++) {
                lose(&job, i, -1);
                run(&job, read_all);
                all_have_parity(&job, VERSIONS);
            }
        }
}

static void any_two_come_back(void)
{
    if (!vv_erasure_any()) {
        t_note("no ISA-L: not looked at");
        return;
    }
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 5, "rs:2", threads);
        run(&job, write_all);
        for (int a = 0; a < job.ranks; a++)
            for (int b = a + 1; b < job.ranks; b++) {
                lose(&job, a, b);
                run(&job, read_all);
            }
        all_have_parity(&job, VERSIONS);
    }
}

/* Several windows, whose last is not whole, of files that have several chunks. */
static void large_files(void)
{
    struct job job;
    job_init(&job, 4, vv_erasure_any() ? "rs:2" : "xor", true);
    job.versions = 1;
    job.large = 5000000;
    run(&job, write_all);
    lose(&job, 3, vv_erasure_any() ? 1 : -1);
    run(&job, read_all);
    /* Parity takes no more space than documented. */
    char path[1024];
    T_EQ(files_in(&job, 0, ".parity/h", "r0.", path), 1);
    uint64_t m = vv_erasure_any() ? 2 : 3, k = 4 - m;
    T_CHECK(file_bytes(path) < k * (5300000 / m + 5300000 / 32));
}

static void read_gap(struct process *p)
{
    begin(p);
    bool lost = p->rank == p->job->lost[0] || p->rank == p->job->lost[1];
    T_EQ(ck_count(p->h), lost ? 0 : VERSIONS);
    T_ERR(get(p, 1, 1), lost ? -ENOENT : 0);
    varve_close(p->ctx); /* no parity can be made */
}

static void two_are_too_many(void)
{
    struct job job;
    job_init(&job, 4, "xor", true);
    job.timeout_ms = 200;
    run(&job, write_all);
    lose(&job, 1, 2);
    run(&job, read_gap);
}

/* Eight processes on four nodes: each node is in both sets, once. */
static void nodes_of_many(void)
{
    struct job job;
    job_init(&job, 8, "xor", true);
    job.set = 4;
    for (int i = 0; i < job.ranks; i++)
        job.node[i] = i / 2;
    run(&job, write_all);
    for (int node = 0; node < 4; node++) {
        lose(&job, 2 * node, -1);
        job.lost[1] = 2 * node + 1;
        run(&job, read_all);
    }
    all_have_parity(&job, VERSIONS);
}

/* Processes move to other nodes, and one disk is lost at the same time. */
static void nodes_change_places(void)
{
    struct job job;
    job_init(&job, 4, "xor", true);
    run(&job, write_all);
    for (int i = 0; i < job.ranks; i++)
        job.node[i] = (i + 1) % job.ranks;
    hub_wipe(job.base, 2);
    job.versions = VERSIONS;
    job.lost[0] = job.lost[1] = -1;
    job.fn = NULL;
    run(&job, read_gap); /* all are there */
    all_have_parity(&job, VERSIONS);
}

/* A process ran on a node, left a damaged file there, and an intact one where it ran before. With one more file lost,
 * parity does not suffice: the intact one comes, and then makes the lost one. */
static void intact_files_come_before_damaged_ones(void)
{
    struct job job;
    char path[1024], command[1600];
    job_init(&job, 3, "xor", true);
    run(&job, write_all);
    snprintf(command, sizeof(command), "cp %s/disk0/h/r0.v*.ckpt %s/disk1/h", job.base, job.base);
    T_EQ(system(command), 0);
    T_EQ(files_in(&job, 1, "h", "r0.v1.", path), 1);
    flip(path, file_bytes(path) - 40);
    T_EQ(files_in(&job, 1, "h", "r1.v1.", path), 1);
    T_EQ(unlink(path), 0);
    for (int i = 0; i < job.ranks; i++)
        job.node[i] = (i + 1) % job.ranks;
    run(&job, read_gap); /* all are there */
    all_have_parity(&job, VERSIONS);
    T_EQ(files_in(&job, 0, "h", "r0.", NULL), 0); /* moved */
}

/* Parity covers whole files, which say if they were synced: moving a file does not change that. */
static void unsynced_files_change_places(void)
{
    struct job job;
    job_init(&job, 3, "xor", true);
    job.unsynced = true;
    run(&job, write_all);
    for (int i = 0; i < job.ranks; i++)
        job.node[i] = (i + 1) % job.ranks;
    run(&job, read_gap); /* all are there */
    lose(&job, 2, -1);   /* it has the longest file */
    run(&job, read_all);
    all_have_parity(&job, VERSIONS);
}

static void refused(struct process *p)
{
    T_ERR(try_begin(p), p->job->want);
}

static void what_cannot_be(void)
{
    struct job job;
    job_init(&job, 4, "xor", true);
    for (int i = 0; i < 3; i++)
        job.node[i] = 0;
    job.want = -EINVAL; /* three of four on one node: one set of two would be on it alone */
    run(&job, refused);
    job_init(&job, 3, "rs:3", true);
    job.want = vv_erasure_any() ? -EINVAL : -ENOTSUP;
    run(&job, refused);
    job_init(&job, 3, "raid", true);
    job.want = -EINVAL;
    run(&job, refused);
}

/* ---- damage ---- */

static void read_right(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= p->job->versions; v++) {
        int rc = get(p, v, 1);
        bool damaged = rc == -EBADMSG;
        T_CHECK(rc == 0 || damaged);
        T_OK(varve_history_repair(p->h, v, damaged));
        if (damaged)
            T_OK(get(p, v, 1));
    }
    T_OK(varve_close(p->ctx));
}

static void read_right_or_not(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= p->job->versions; v++) {
        int rc = get(p, v, 1); /* checks the bytes if it is 0 */
        T_CHECK(rc == 0 || rc == -ENOENT || rc == -EBADMSG);
        T_CHECK(rc == 0 || p->rank < 2);
    }
    varve_close(p->ctx);
}

/* One bit of a file of a set, including its parity, at places all over it: nothing is lost. With a member lost as
 * well, no wrong bytes are returned. */
static void flipped_bits(void)
{
    struct t_rng rng = {t_seed()};
    for (int what = 0; what < 4; what++) {
        struct job job;
        char path[1024];
        bool parity = what & 1, lost = what & 2;
        job_init(&job, 3, "xor", true);
        job.versions = 1;
        job.timeout_ms = lost ? 200 : 0;
        run(&job, write_all);
        T_EQ(files_in(&job, 0, parity ? ".parity/h" : "h", "r0.", path), 1);
        uint64_t bytes = file_bytes(path), places = 0;
        uint64_t step = t_long() ? 61 : bytes / (t_sanitized() ? 4 : 12);
        for (uint64_t at = t_rng_below(&rng, step); at < bytes; at += step, places++) {
            T_EQ(files_in(&job, 0, parity ? ".parity/h" : "h", "r0.", path), 1);
            flip(path, at);
            if (lost) {
                lose(&job, 1, -1);
                run(&job, read_right_or_not);
                hub_wipe(job.base, 0);
                hub_wipe(job.base, 1);
                hub_wipe(job.base, 2);
                run(&job, write_all);
            } else {
                run(&job, read_right);
            }
            T_EQ(files_in(&job, 0, parity ? ".parity/h" : "h", "r0.", path), 1);
            if (parity && !lost && file_bytes(path) == bytes)
                unlink(path); /* if it was not read, the flipped bit is still there */
            if (parity && !lost)
                run(&job, read_right);
        }
        t_note("%s, %s: %d places", parity ? "parity" : "a file", lost ? "one lost" : "none lost",
               (int)places);
    }
}

static uint64_t boot;

static uint64_t this_boot(const struct vv_os *table)
{
    (void)table;
    return boot;
}

static void read_after_cut(struct process *p)
{
    begin(p);
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(p->ctx, &s));
    T_EQ(s.partner_recovered, p->rank == 0);
    for (uint64_t v = 1; v <= p->job->versions; v++)
        T_OK(get(p, v, 1));
    T_OK(varve_close(p->ctx));
}

/* Without syncs a power cut loses bytes of a file whose tables are there: opening detects it, and the others rebuild it. */
static void what_a_power_cut_took(void)
{
    static struct fault_os os;
    static struct vv_ckpt_hooks hooks = {.os = &os.os};
    struct job job;
    char path[1024];
    fault_os_init(&os);
    os.os.boot = this_boot;
    vv_ckpt_set_hooks(&hooks);
    job_init(&job, 3, "xor", true);
    job.unsynced = true;
    boot = 1;
    run(&job, write_all);
    T_EQ(files_in(&job, 0, "h", "r0.v2.", path), 1);
    flip(path, 2 * PAGE);
    boot = 2;
    run(&job, read_after_cut);
    vv_ckpt_set_hooks(NULL);
}

/* ---- versions come and go ---- */

static void write_again(struct process *p)
{
    begin(p);
    for (int life = 2; life <= 6; life++)
        put(p, 2, life);
    T_OK(varve_wait(p->h, 2, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_OK(varve_discard(p->h, 3));
    T_OK(varve_flush(p->h, CK_LIMIT_MS));
    T_OK(varve_close(p->ctx));
}

static void read_again(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), 2);
    T_OK(get(p, 1, 1));
    T_OK(get(p, 2, 6));
    T_OK(varve_close(p->ctx));
}

static void written_again_and_discarded(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 4, "xor", threads);
        job.overwrite = true;
        run(&job, write_all);
        run(&job, write_again);
        all_have_parity(&job, 2);
        for (int i = 0; i < job.ranks; i++) {
            lose(&job, i, -1);
            run(&job, read_again);
        }
        all_have_parity(&job, 2);
    }
}

/* ---- files put aside ---- */

/* One member discards a version that the others keep. */
static void discard_alone(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= VERSIONS; v++)
        put_safe(p, v, 1);
    if (p->rank == 0)
        T_OK(varve_discard(p->h, 2));
    T_OK(varve_flush(p->h, CK_LIMIT_MS));
    T_OK(varve_close(p->ctx));
}

static void read_others(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), p->rank == 0 ? VERSIONS - 1 : VERSIONS);
    T_OK(get(p, 1, 1));
    T_ERR(get(p, 2, 1), p->rank == 0 ? -ENOENT : 0);
    T_OK(get(p, 3, 1));
    T_OK(varve_close(p->ctx));
}

static void discard_rest(struct process *p)
{
    begin(p);
    if (p->rank != 0)
        T_OK(varve_discard(p->h, 2));
    T_OK(varve_flush(p->h, CK_LIMIT_MS));
    T_OK(varve_close(p->ctx));
}

static void open_only(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), VERSIONS - 1);
    T_OK(varve_close(p->ctx));
}

/* Others need that file to rebuild theirs; when they have discarded the version too, all its files are removed. */
static void a_removed_file_serves_others(void)
{
    for (int threads = 0; threads < 2; threads++)
        for (int lost = 1; lost <= 3; lost++) {
            struct job job;
            job_init(&job, 3, "xor", threads);
            run(&job, discard_alone);
            T_EQ(files_in(&job, 0, "h", "r0.v2.", NULL), 0);
            T_EQ(files_in(&job, 0, ".parity/h", "r0.v2.", NULL), 2);
            if (lost < 3)
                hub_wipe(job.base, lost);
            run(&job, read_others);
            if (lost < 3)
                continue;
            run(&job, discard_rest);
            run(&job, open_only);
            all_have_parity(&job, VERSIONS - 1);
        }
}

/* The folder where the file is to be put aside was deleted from outside. */
static void discard_without_folder(struct process *p)
{
    char command[1024];
    begin(p);
    for (uint64_t v = 1; v <= VERSIONS; v++)
        put_safe(p, v, 1);
    if (p->rank == 0) {
        snprintf(command, sizeof(command), "rm -r %s/disk0/.parity/h", p->job->base);
        T_EQ(system(command), 0);
        T_OK(varve_discard(p->h, 2));
    }
    T_ERR(varve_flush(p->h, CK_LIMIT_MS), p->rank == 0 ? -ENOTDIR : 0);
    T_ERR(varve_close(p->ctx), p->rank == 0 ? -ENOTDIR : 0);
}

static void a_file_that_cannot_be_put_aside_stays(void)
{
    struct job job;
    job_init(&job, 3, "xor", true);
    run(&job, discard_without_folder);
    T_EQ(files_in(&job, 0, "h", "r0.v2.", NULL), 1);
}

static void nothing_there(struct process *p)
{
    begin(p);
    T_EQ(ck_count(p->h), 0);
    T_OK(varve_close(p->ctx));
}

/* Parity does not bring back a history that was removed. */
static void removed_histories_stay_away(void)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        struct job job;
        job_init(&job, ranks, "xor", true);
        run(&job, write_all);
        job.remove = true;
        run(&job, nothing_there);
        all_have_parity(&job, 0);
        job.remove = false;
        run(&job, nothing_there);
        run(&job, write_all);
        all_have_parity(&job, VERSIONS);
    }
}

static void write_many(struct process *p)
{
    begin(p);
    for (uint64_t v = 1; v <= 20; v++)
        put(p, v, 1);
    T_OK(varve_flush(p->h, CK_LIMIT_MS));
    T_OK(varve_close(p->ctx));
}

static void read_last(struct process *p)
{
    uint64_t latest;
    begin(p);
    T_OK(varve_latest(p->h, &latest));
    T_EQ(latest, 20);
    T_OK(get(p, 20, 1));
    T_OK(get(p, 19, 1));
    T_OK(varve_close(p->ctx));
}

static void retention(void)
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_init(&job, 3, "xor", threads);
        job.keep = 2;
        run(&job, write_many);
        all_have_parity(&job, 2);
        lose(&job, 1, -1);
        run(&job, read_last);
    }
}

/* One process writes a version that the others never write: waiting for it ends. */
static void write_alone(struct process *p)
{
    begin(p);
    put_safe(p, 1, 1);
    if (p->rank == 0) {
        put(p, 2, 1);
        T_ERR(varve_wait(p->h, 2, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -ETIMEDOUT);
    }
    int rc = varve_close(p->ctx);
    T_CHECK(rc == 0 || (p->rank == 0 && rc == -ETIMEDOUT));
}

static void others_are_not_waited_for_without_end(void)
{
    struct job job;
    job_init(&job, 3, "xor", true);
    job.timeout_ms = 200;
    run(&job, write_alone);
}

int main(void)
{
    T_RUN(any_one_comes_back);
    T_RUN(any_two_come_back);
    T_RUN(large_files);
    T_RUN(two_are_too_many);
    T_RUN(nodes_of_many);
    T_RUN(nodes_change_places);
    T_RUN(unsynced_files_change_places);
    T_RUN(intact_files_come_before_damaged_ones);
    T_RUN(what_cannot_be);
    T_RUN(flipped_bits);
    T_RUN(what_a_power_cut_took);
    T_RUN(written_again_and_discarded);
    T_RUN(a_removed_file_serves_others);
    T_RUN(a_file_that_cannot_be_put_aside_stays);
    T_RUN(removed_histories_stay_away);
    T_RUN(retention);
    T_RUN(others_are_not_waited_for_without_end);
    return t_done();
}
