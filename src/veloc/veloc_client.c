/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only client of a process: its context, its histories, opening and closing.
 *
 * VELOC has one client for each process and no thread safety. Here every call takes one lock, so that calls of several
 * threads run one after another; the caller must still keep phases (begin to end) apart. The lock is recursive: release
 * routines run inside it, and may call back.
 *
 * Only level_of() decides the level of checkpoints, and only history_open() how many are kept.
 *
 * Run ids. All processes of a group have the same run id, drawn by the first one. Its highest bits are the number of
 * processes: the run of a version shows how many processes wrote it, so that a job with another number does not restart
 * from a part of a state.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

/* Retries for opening a history while a process of an earlier run that has not ended yet holds
 * it. */
enum { BUSY_TRIES = 100, BUSY_SLEEP_NS = 50 * 1000 * 1000 };

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct vvi_veloc *client; /* Synchronization: lock */

static void lock_init(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void take_lock(void)
{
    pthread_once(&lock_once, lock_init);
    pthread_mutex_lock(&lock);
}

/* ---- messages ---- */

static void say(const struct vvi_veloc *c, const char *more, const char *fmt, va_list ap)
{
    char text[2048], who[32] = "";
    vsnprintf(text, sizeof(text), fmt, ap);
    if (c)
        snprintf(who, sizeof(who), "[%d] ", c->rank);
    /* One write, so that messages of ranks that share a terminal do not mix. */
    fprintf(stderr, "veloc: %s%s%s%s\n", who, text, more[0] ? ": " : "", more);
}

void vvi_veloc_say(const struct vvi_veloc *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(c, "", fmt, ap);
    va_end(ap);
}

int vvi_veloc_fail(struct vvi_veloc *c, int rc, const char *fmt, ...)
{
    struct varve_error e = {.error_size = sizeof(e)};
    bool known = varve_last_error(c ? c->ctx : NULL, &e) == 0 && e.err == rc && e.text[0];
    va_list ap;
    va_start(ap, fmt);
    say(c, known ? e.text : varve_strerror(rc), fmt, ap);
    va_end(ap);
    return rc;
}

struct vvi_veloc *vvi_veloc_enter(const char *call)
{
    take_lock();
    if (client)
        return client;
    vvi_veloc_say(NULL, "%s: VELOC_Init was not called", call);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int vvi_veloc_leave(int rc)
{
    pthread_mutex_unlock(&lock);
    return rc == 0 ? VELOC_SUCCESS : VELOC_FAILURE;
}

/* ---- opening ---- */

static int make_folders(const char *path)
{
    char part[VARVE_PATH_BYTES];
    snprintf(part, sizeof(part), "%s", path);
    for (char *p = part + 1;; p++) {
        char was = *p;
        if (was != '/' && was != 0)
            continue;
        *p = 0;
        if (mkdir(part, 0777) && errno != EEXIST && errno != EISDIR) {
            int rc = -errno;
            struct stat st;
            if (stat(part, &st) || !S_ISDIR(st.st_mode)) {
                vvi_veloc_say(NULL, "%s: the folder cannot be made (%s)", part, strerror(-rc));
                return rc;
            }
        }
        *p = was;
        if (was == 0)
            return 0;
    }
}

static int our_size(const struct vvi_veloc *c)
{
    return c->ops ? c->ops->size(c->group) : 1;
}

/* The level of checkpoints. For a group of several processes it is complete, the level that counts all
 * of them together. VELOC itself copies one checkpoint in each interval of seconds to persistent storage,
 * by the clock of each node. Here all checkpoints are copied or none, because ranks cannot agree on
 * one without communication. None are copied with configurations of the prefetching extension: its
 * programs discard checkpoints after reading them back, and set an interval to keep them off the
 * disk. */
static int level_of(const struct vvi_veloc *c)
{
    const struct vvi_veloc_cfg *cfg = &c->cfg;
    bool caches = cfg->gpu_cache_gib >= 0 || cfg->host_cache_gib >= 0;
    if (!cfg->persistent[0] || cfg->persistent_interval < 0 ||
        (cfg->persistent_interval > 0 && caches))
        return VARVE_LEVEL_LOCAL;
    return our_size(c) > 1 ? VARVE_LEVEL_COMPLETE : VARVE_LEVEL_REMOTE;
}

/* Sets the folders for scratch and persistent storage. */
static void configure_folders(const struct vvi_veloc *c, struct varve_opts *opts)
{
    const struct vvi_veloc_cfg *cfg = &c->cfg;
    opts->level = level_of(c);
    if (opts->level >= VARVE_LEVEL_REMOTE)
        snprintf(opts->remote, sizeof(opts->remote), "%s", cfg->persistent);
    /* If both are the same folder, it is written once. */
    if (opts->level < VARVE_LEVEL_REMOTE || strcmp(cfg->scratch, cfg->persistent) != 0)
        snprintf(opts->local, sizeof(opts->local), "%s", cfg->scratch);
    /* Scratch is the tier above persistent storage, as in VELOC. */
    if (opts->local[0] && opts->remote[0])
        opts->local_sync = VARVE_LOCAL_SYNC_OFF;
}

/* Translates VELOC's settings to Varve's. */
static int configure(struct vvi_veloc *c, const char *path, struct varve_opts *opts)
{
    const struct vvi_veloc_cfg *cfg = &c->cfg;
    int rc = varve_opts_init(opts, sizeof(*opts));
    if (rc)
        return vvi_veloc_fail(NULL, rc, "settings");
    configure_folders(c, opts);
    if (cfg->host_cache_gib >= 0)
        opts->host_cache = (uint64_t)ldexp(cfg->host_cache_gib, 30);
    if (cfg->gpu_cache_gib >= 0) {
        opts->device_cache = (uint64_t)ldexp(cfg->gpu_cache_gib, 30);
        opts->device = VARVE_DEVICE_CUDA;
    }
    if (cfg->score_eviction == 0)
        opts->policy = VARVE_POLICY_FIFO;
    for (unsigned i = 0; i < cfg->nown; i++) {
        rc = varve_opts_set(opts, cfg->own[i].key, cfg->own[i].value);
        if (rc)
            return vvi_veloc_fail(NULL, rc, "%s: section [varve]", path);
    }
    /* Load an empty file to apply the environment last. */
    rc = varve_opts_load(opts, "/dev/null");
    if (rc)
        return vvi_veloc_fail(NULL, rc, "settings of the environment");
    opts->rank = c->rank;
    opts->run[0] = 0; /* run_id identifies runs */
    opts->ranks = 1;
    /* Below level complete, the runs of versions record the number of processes (see above). */
    if (c->ops && opts->level == VARVE_LEVEL_COMPLETE)
        opts->ranks = c->ops->size(c->group);
    return 0;
}

/* Opens the context, without a GPU if the configuration asks for one and the machine has none: the same file then works
 * on both kinds of machines. */
static int context_open(struct vvi_veloc *c, struct varve_opts *opts)
{
    int rc = varve_open(opts, &c->ctx);
    if (rc == -ENODEV && opts->device == VARVE_DEVICE_CUDA && c->cfg.gpu_cache_gib >= 0) {
        vvi_veloc_fail(NULL, rc, "gpu_cache_size is not used");
        opts->device = VARVE_DEVICE_NONE;
        rc = varve_open(opts, &c->ctx);
    }
    if (rc)
        vvi_veloc_fail(NULL, rc, "Varve cannot be opened");
    return rc;
}

static void client_free(struct vvi_veloc *c)
{
    if (!c)
        return;
    while (c->hists) {
        struct vvi_veloc_hist *next = c->hists->next;
        free(c->hists->protected);
        free(c->hists->begun);
        free(c->hists->pending.v);
        free(c->hists->failed.v);
        free(c->hists->name);
        free(c->hists);
        c->hists = next;
    }
    while (c->refusals) {
        struct vvi_veloc_refusal *next = c->refusals->next;
        free(c->refusals->name);
        free(c->refusals);
        c->refusals = next;
    }
    vvi_veloc_deliverer_free(c);
    vvi_veloc_sets_free(c->sets);
    if (c->ops)
        c->ops->close(c->group);
    free(c);
}

/* All steps that may fail on a single process. */
static int client_open(struct vvi_veloc *c, const char *path)
{
    struct varve_opts opts = {0};
    void *probe = NULL;
    int rc = vvi_veloc_config_load(path, &c->cfg);
    if (rc == 0)
        rc = make_folders(c->cfg.scratch);
    if (rc == 0)
        rc = configure(c, path, &opts);
    if (rc)
        return rc;
    opts.run_id = c->run_id;
    if (!opts.rank_cores[0])
        memcpy(opts.rank_cores, c->rank_cores, sizeof(opts.rank_cores));
    if (opts.level >= VARVE_LEVEL_REMOTE)
        rc = make_folders(opts.remote);
    if (rc == 0)
        rc = context_open(c, &opts);
    if (rc)
        return rc;
    c->level = (enum varve_level)opts.level;
    c->wait_level = VV_MIN(c->level, VARVE_LEVEL_REMOTE);
    c->has_device = varve_device_alloc(c->ctx, 1, &probe) == 0;
    if (probe)
        varve_device_free(c->ctx, probe);
    vvi_veloc_route_clean(c);
    return 0;
}

/* Draws a run id that is never 0 and not drawn twice; `size` 0: of a process by itself. */
static uint64_t draw_id(int size)
{
    uint64_t id = 0;
    while (id == 0) {
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            id = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 20;
        }
        id &= (UINT64_C(1) << VVI_VELOC_RUN_BITS) - 1;
    }
    return id | (uint64_t)size << VVI_VELOC_RUN_BITS;
}

int vvi_veloc_open(int rank, const char *path, const struct vv_group_ops *ops,
                   struct vv_group *group)
{
    struct vvi_veloc *c = calloc(1, sizeof(*c));
    int rc = c ? 0 : -ENOMEM;
    take_lock();
    if (client) {
        vvi_veloc_say(client, "VELOC_Init was called already");
        rc = -EALREADY;
    }
    if (c) {
        c->rank = rank;
        c->ops = ops;
        c->group = group;
    }
    if (rc == 0 && !path)
        rc = -EINVAL;
    uint64_t run_id = draw_id(ops ? ops->size(group) : 0);
    if (ops) {
        char cores[VARVE_CORES_BYTES] = "";
        int bad = ops->broadcast(group, &run_id, (int)sizeof(run_id));
        bad = bad ? bad : ops->cores(group, cores, sizeof(cores));
        if (c)
            memcpy(c->rank_cores, cores, sizeof(cores));
        rc = rc ? rc : bad;
    }
    if (rc == 0) {
        c->run_id = run_id;
        rc = client_open(c, path);
    }
    if (ops) {
        int all = ops->all(group, rc);
        if (all && rc == 0)
            vvi_veloc_say(c, "VELOC_Init failed on another process");
        rc = all;
    }
    if (rc == 0) {
        client = c;
    } else if (c) {
        varve_close(c->ctx);
        client_free(c);
    } else if (ops) {
        ops->close(group);
    }
    return vvi_veloc_leave(rc);
}

int VELOC_Init_single(unsigned int id, const char *cfg_file)
{
    if (id > INT32_MAX) {
        vvi_veloc_say(NULL, "VELOC_Init_single: %u is too large a number", id);
        return VELOC_FAILURE;
    }
    return vvi_veloc_open((int)id, cfg_file, NULL, NULL);
}

int VELOC_Finalize(int drain)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Finalize");
    if (!c)
        return VELOC_FAILURE;
    int rc = 0;
    if (c->phase == VVI_VELOC_CHECKPOINT && c->taken)
        varve_revert(c->current->h, (uint64_t)c->version);
    vvi_veloc_route_drop(c);
    if (drain)
        rc = vvi_veloc_drain(c, -1);
    int late = vvi_veloc_delivered(c, true);
    rc = rc ? rc : late;
    int closed = varve_close(c->ctx);
    if (closed) {
        vvi_veloc_fail(NULL, closed, "VELOC_Finalize");
        c->ctx = NULL;
    }
    client = NULL;
    client_free(c);
    return vvi_veloc_leave(rc ? rc : closed);
}

/* ---- histories ---- */

int vvi_veloc_name_check(struct vvi_veloc *c, const char *name, int version)
{
    if (name && version >= 0)
        return 0;
    vvi_veloc_say(c, name ? "version %d is negative" : "a checkpoint without a name, version %d",
                  version);
    return -EINVAL;
}

/* The number of versions to keep. On scratch each process applies the rule by itself, and another
 * process may not have the newest version yet. Two more versions ensure that there is one that all
 * have, since a process that takes a checkpoint has waited for its previous one. On persistent
 * storage versions are removed when newer ones are complete. */
static uint64_t keep_of(const struct vvi_veloc *c)
{
    long keep = c->cfg.max_versions;
    if (c->level < VARVE_LEVEL_REMOTE && c->cfg.scratch_versions)
        keep = c->cfg.scratch_versions;
    return keep == 0 ? 0 : (uint64_t)keep + (c->ops && c->level < VARVE_LEVEL_REMOTE ? 2 : 0);
}

static int history_open(struct vvi_veloc *c, const char *name, struct varve_history **ret_h)
{
    const struct timespec interval = {.tv_nsec = BUSY_SLEEP_NS};
    struct varve_history_opts opts;
    int rc = varve_history_opts_init(&opts, sizeof(opts));
    opts.keep = keep_of(c);
    opts.overwrite = opts.confirm = 1;
    for (int i = 0; rc == 0 && i < BUSY_TRIES; i++) {
        rc = varve_history_open_with(c->ctx, name, &opts, ret_h);
        if (rc != -EBUSY)
            break;
        nanosleep(&interval, NULL);
        rc = i + 1 < BUSY_TRIES ? 0 : rc;
    }
    return rc;
}

/* The number of processes that wrote a checkpoint that cannot be opened; 0: the number is not the reason. */
static int other_size(const struct vvi_veloc *c, const char *name, int rc)
{
    int ranks = 0;
    if (rc != -EINVAL || varve_history_ranks(c->ctx, name, &ranks) || ranks == our_size(c))
        return 0;
    return ranks;
}

void vvi_veloc_say_size(const struct vvi_veloc *c, const char *name, int size)
{
    bool remote = c->level >= VARVE_LEVEL_REMOTE;
    vvi_veloc_say(
        c,
        "checkpoint \"%s\" was written by %d process%s, and this job has %d: it cannot be "
        "restarted from%s. Run with %d, or remove it with VELOC_Cleanup(\"%s\") or the "
        "command: varve rm --%s %s %s --all",
        name, size, size == 1 ? "" : "es", our_size(c), remote ? " (varve_part_open reads it)" : "",
        size, name, remote ? "remote" : "local", remote ? c->cfg.persistent : c->cfg.scratch, name);
}

/* Prints once for each name, in the first process only: all processes see the same folder. */
static int refused(struct vvi_veloc *c, const char *name, int rc)
{
    int size = other_size(c, name, rc);
    struct vvi_veloc_refusal *r = c->refusals;
    if (size == 0)
        return vvi_veloc_fail(c, rc, "checkpoint \"%s\"", name);
    while (r && strcmp(r->name, name) != 0)
        r = r->next;
    if (r || (c->ops && c->rank > 0))
        return rc;
    vvi_veloc_say_size(c, name, size);
    r = calloc(1, sizeof(*r));
    if (r && (r->name = strdup(name))) {
        r->next = c->refusals;
        c->refusals = r;
    } else {
        free(r);
    }
    return rc;
}

/* True if a process by itself wrote the history: without this, only rank 0 of the group would refuse it. */
static bool is_of_one(const struct vvi_veloc *c, const char *name)
{
    int ranks = 0;
    return c->level == VARVE_LEVEL_COMPLETE && varve_history_ranks(c->ctx, name, &ranks) == 0 &&
           ranks == 1;
}

static int history_add(struct vvi_veloc *c, const char *name, struct vvi_veloc_hist **ret_hist)
{
    for (struct vvi_veloc_hist *h = c->hists; h; h = h->next)
        if (strcmp(h->name, name) == 0) {
            *ret_hist = h;
            return 0;
        }
    if (is_of_one(c, name))
        return -EINVAL;
    struct vvi_veloc_hist *h = calloc(1, sizeof(*h));
    if (!h || !(h->name = strdup(name))) {
        free(h);
        return -ENOMEM;
    }
    int rc = history_open(c, name, &h->h);
    if (rc) {
        free(h->name);
        free(h);
        return rc;
    }
    h->next = c->hists;
    c->hists = *ret_hist = h;
    return 0;
}

int vvi_veloc_history(struct vvi_veloc *c, const char *name, struct vvi_veloc_hist **ret_hist)
{
    int rc = history_add(c, name, ret_hist);
    return rc ? refused(c, name, rc) : 0;
}

int vvi_veloc_history_removed(struct vvi_veloc *c, const char *name,
                              struct vvi_veloc_hist **ret_hist)
{
    int rc = history_add(c, name, ret_hist);
    /* Another number of processes wrote it. The other processes of this job remove it too, so the files that show
     * the number may be gone by now. */
    if (rc == -EINVAL) {
        rc = varve_history_remove(c->ctx, name, 0);
        if (rc == 0)
            rc = history_add(c, name, ret_hist);
    }
    return rc;
}

int vvi_veloc_remove_others(struct vvi_veloc *c, const char *name)
{
    return c->ops ? varve_history_remove(c->ctx, name, our_size(c)) : 0;
}

/* The index of a version in the list, or where it would be inserted; versions mostly come in order. */
static size_t place_of(const struct vvi_veloc_hist *hist, int version)
{
    size_t low = 0, high = hist->nbegun;
    if (high > 0 && hist->begun[high - 1] < version)
        return high;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (hist->begun[mid] < version)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool vvi_veloc_begun(const struct vvi_veloc_hist *hist, int version)
{
    size_t at = place_of(hist, version);
    return at < hist->nbegun && hist->begun[at] == version;
}

int vvi_veloc_begins(struct vvi_veloc_hist *hist, int version)
{
    size_t at = place_of(hist, version);
    if (at < hist->nbegun && hist->begun[at] == version)
        return 0;
    if (hist->nbegun == hist->begun_cap) {
        size_t cap = hist->begun_cap ? 2 * hist->begun_cap : 64;
        int *more = realloc(hist->begun, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        hist->begun = more;
        hist->begun_cap = cap;
    }
    memmove(&hist->begun[at + 1], &hist->begun[at], (hist->nbegun - at) * sizeof(*hist->begun));
    hist->begun[at] = version;
    hist->nbegun++;
    return 0;
}

bool vvi_veloc_listed(const struct vvi_veloc_list *list, int version)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].version == version)
            return true;
    return false;
}

int vvi_veloc_list_add(struct vvi_veloc_list *list, int version)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        struct vvi_veloc_noted *more = realloc(list->v, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        list->v = more;
        list->cap = cap;
    }
    list->v[list->n++] = (struct vvi_veloc_noted){.version = version};
    return 0;
}

bool vvi_veloc_list_remove(struct vvi_veloc_list *list, int version)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].version != version)
            list->v[n++] = list->v[i];
    bool there = n < list->n;
    list->n = n;
    return there;
}

static int room_for(struct vvi_veloc_hist *hist, size_t n)
{
    if (n <= hist->cap)
        return 0;
    int *p = realloc(hist->protected, 2 * n * sizeof(*p));
    if (!p)
        return -ENOMEM;
    hist->protected = p;
    hist->cap = 2 * n;
    return 0;
}

int vvi_veloc_protect(struct vvi_veloc *c, struct vvi_veloc_hist *hist,
                      const struct vvi_veloc_region *regions, size_t n)
{
    int rc = room_for(hist, n);
    while (rc == 0 && hist->nprotected > 0)
        varve_unprotect(hist->h, hist->protected[--hist->nprotected]);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int number = vvi_veloc_number(regions[i].id);
        rc = varve_protect(hist->h, number, regions[i].ptr, regions[i].bytes);
        if (rc)
            vvi_veloc_fail(c, rc, "region %d", regions[i].id);
        else
            hist->protected[hist->nprotected++] = number;
    }
    return rc;
}

/* ---- prefetching and figures ---- */

int VELOC_Prefetch_enqueue(const char *name, int version)
{
    struct vvi_veloc_hist *hist;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Prefetch_enqueue");
    if (!c)
        return VELOC_FAILURE;
    int rc = vvi_veloc_name_check(c, name, version);
    if (rc == 0)
        rc = vvi_veloc_history(c, name, &hist);
    if (rc == 0) {
        rc = varve_hint(hist->h, (uint64_t)version);
        hist->hinted = true;
    }
    return vvi_veloc_leave(rc);
}

int VELOC_Prefetch_start(void)
{
    enum { LATE_MAX = 64 };
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Prefetch_start");
    if (!c)
        return VELOC_FAILURE;
    for (struct vvi_veloc_hist *h = c->hists; h; h = h->next) {
        if (!h->hinted)
            continue;
        h->hinted = false;
        int rc = varve_prefetch_start(h->h);
        for (int late = 0; rc && late < LATE_MAX && vvi_veloc_late(c, h, rc, -1); late++)
            rc = varve_prefetch_start(h->h);
        if (rc)
            return vvi_veloc_leave(rc);
    }
    return vvi_veloc_leave(0);
}

bool VELOC_Next_prefetched(const char *name, int version, int region)
{
    struct vvi_veloc_hist *hist;
    int ready = 0;
    uint64_t bytes;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Next_prefetched");
    if (!c)
        return false;
    if (!name || version < 0 || vvi_veloc_history(c, name, &hist) ||
        varve_ready(hist->h, (uint64_t)version, &ready) ||
        (ready && vvi_veloc_stored(c, hist, version, region, &bytes)))
        ready = 0;
    vvi_veloc_leave(0);
    return ready != 0;
}

void VELOC_Get_trf_metrics(char *text)
{
    /* Memories are named by letters: A is the application's, D the device's, H the host's, F a file. */
    static const char *const hops[VARVE_HOPS] = {"AtoD_DtoA", "AtoH_HtoA", "DtoH",
                                                 "HtoD",      "HtoF",      "FtoH"};
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    if (!text)
        return;
    text[0] = 0;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Get_trf_metrics");
    if (!c)
        return;
    size_t n = 0;
    if (varve_stats(c->ctx, &stats) == 0) {
        for (int i = 0; i < VARVE_HOPS && n < VELOC_MAX_NAME; i++)
            n += (size_t)snprintf(text + n, VELOC_MAX_NAME - n, "%s%s : %llu", i ? ", " : "{",
                                  hops[i], (unsigned long long)stats.moved_bytes[i]);
        if (n + 2 <= VELOC_MAX_NAME)
            memcpy(text + n, "}", 2);
    }
    vvi_veloc_leave(0);
}
