/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: a node (dataset/node.h), its server for programs, its control socket, and periodic work. This thread
 * waits for signals and the clock, writes the metrics and looks for new nodes; another one scrubs.
 *
 * Order of the end: the control socket, whose answers have the figures of the server; the server, so that programs
 * read for themselves from then on; then the node, which announces to the others that it leaves.
 *
 * Risk: a call of a shared file system that does not answer never returns, and the thread that made
 * it cannot be waited for. A separate thread ends the daemon all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/cached.h"
#include "cli/cli.h"
#include "stats/prometheus.h"

#define COMMAND     "varve cached"
#define METRICS_NS  (5 * VV_NS_PER_S)
#define MEET_NS     (500 * VV_NS_PER_MS) /* first pause, doubled up to ... */
#define MEET_MAX_NS (10 * VV_NS_PER_S)
#define SCRUB_NS    VV_NS_PER_S        /* the longest pause between two steps of the scrub */
#define SCRUB_STEPS 16                 /* at least so many steps in each period */
#define STOP_NS     (60 * VV_NS_PER_S) /* longest time to stop; after a second signal ... */
#define AGAIN_NS    VV_NS_PER_S
#define LAST_WORD_S \
    2 /* the message may be lost: the log may be on a file system that does not answer */
#define ROOTS_MAX    VV_SERVER_ROOTS_MAX
#define BUSY_NS      (2 * VV_NS_PER_S)
#define BUSY_STEP_US 50000

struct run {
    struct vv_cached *c;
    char roots_text[VV_CONFIG_TEXT];
    const char *roots[ROOTS_MAX];
    size_t nr_roots;
    void *token;
    size_t token_bytes;
    struct vv_member_info *peers;
    size_t nr_peers;
    struct vv_node *node;
    struct vv_index *index; /* NULL: none */
    struct vv_server *server;
    struct cached_control *control;
    struct cached_control_opts control_opts;
    struct cached_past *past;
    struct vv_stats_file *metrics;
    int stop[2];
    int signals;
    int ended; /* eventfd: the daemon has ended in good order */
    FILE *log; /* Synchronization: the log's own lock */
    pthread_t scrubber;
    bool scrubbing;
    struct vv_mutex lock;
    struct vv_cond wake;
    bool stopping; /* Synchronization: lock */
};

/* ---- messages ---- */

static void write_log(void *user, enum vv_log_level level, const char *text)
{
    static const char *const names[] = {"debug", "info", "warning"};
    struct run *r = user;
    struct timespec ts;
    struct tm tm;
    char when[32];

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(r->log, "%s.%03ldZ %s %s: %s\n", when, ts.tv_nsec / 1000000, r->c->node, names[level],
            text);
    fflush(r->log);
}

static int open_log(struct run *r)
{
    FILE *f = stderr;

    vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
    if (r->log && r->log != stderr)
        fclose(r->log);
    r->log = stderr;
    if (r->c->log[0]) {
        f = fopen(r->c->log, "ae");
        if (!f)
            return -errno;
    }
    r->log = f;
    vv_log_set_sink(write_log, r, (enum vv_log_level)r->c->log_level);
    return 0;
}

/* ---- opening ---- */

static int split_roots(struct run *r)
{
    char *at = r->roots_text, *word;

    snprintf(r->roots_text, sizeof(r->roots_text), "%s", r->c->roots);
    while ((word = vv_root_next(&at))) {
        if (!*word)
            continue;
        if (r->nr_roots == ROOTS_MAX)
            return -E2BIG;
        r->roots[r->nr_roots++] = word;
    }
    return r->nr_roots > 0 ? 0 : -EINVAL;
}

static int open_node(struct run *r, char *err, size_t err_bytes)
{
    const struct vv_cached *c = r->c;
    struct vv_node_opts o = {
        .name = c->node,
        .listen = c->listen[0] ? c->listen : NULL,
        .advertise = c->advertise[0] ? c->advertise : NULL,
        .transport = (enum vv_net_transport)c->transport,
        .token = r->token,
        .token_bytes = r->token_bytes,
        .peers = r->peers,
        .nr_peers = r->nr_peers,
        .folder = c->cache,
        .dataset = {.capacity = c->capacity,
                    .high_pct = (unsigned)c->high,
                    .low_pct = (unsigned)c->low,
                    .max_file = c->max_file,
                    .big_file = c->capacity / 100 * VV_CACHED_BIG_PCT,
                    .verity = (enum vv_dataset_verity)c->verity,
                    .index = r->index},
        .roots = r->roots,
        .nr_roots = r->nr_roots,
        .revalidate_ns = (uint64_t)c->revalidate * VV_NS_PER_S,
        .mode = (enum vv_node_mode)c->mode,
        .replicas = (unsigned)c->replicas,
        .place = {.scheme = (enum vv_place_scheme)c->scheme,
                  .vnodes = (uint32_t)c->vnodes,
                  .limit_pct = (uint32_t)c->limit},
        .expected = c->expected,
        .memory = c->memory,
        .memory_file = c->memory_file,
        .direct_above = c->direct_above,
        .patience_ns = (uint64_t)c->patience * VV_NS_PER_MS,
        .period_ns = (uint64_t)c->period * VV_NS_PER_MS,
        .workers = (unsigned)c->workers,
        .ahead = (unsigned)c->ahead,
        .lazy = c->lazy,
    };
    uint64_t until_ns = vv_now_ns() + BUSY_NS;
    int rc;

    /* After a daemon is killed, the kernel takes a moment to release its folder. */
    do
        rc = vv_node_open(&o, err, err_bytes, &r->node);
    while (rc == -EBUSY && vv_now_ns() < until_ns && usleep(BUSY_STEP_US) == 0);
    return rc;
}

/* The index of files that programs may open without asking. Programs also work without it. */
static void open_index(struct run *r)
{
    char *folder;
    int rc;

    (void)mkdir(r->c->cache, 0700);
    folder = realpath(r->c->cache, NULL);
    rc = folder ? vv_index_new(folder, VV_INDEX_SLOTS, &r->index) : -errno;
    if (rc < 0)
        vv_log(VV_LOG_INFO, "programs will ask for every file: no index (%s)", strerror(-rc));
    free(folder);
}

static int open_sockets(struct run *r, char *err, size_t err_bytes)
{
    struct vv_server_opts server = {.socket_path = r->c->socket,
                                    .roots = r->roots,
                                    .nr_roots = r->nr_roots,
                                    .ops = &vv_node_server_ops,
                                    .user = r->node,
                                    .index = r->index,
                                    .show = vv_node_show};
    int rc = vv_server_open(&server, err, err_bytes, &r->server);

    if (rc < 0)
        return rc;
    r->control_opts = (struct cached_control_opts){r->c, r->node, r->server, r->stop[1], r->past};
    return cached_control_open(&r->control_opts, err, err_bytes, &r->control);
}

static int open_all(struct run *r, char *err, size_t err_bytes)
{
    struct vv_cached *c = r->c;
    int rc = split_roots(r);

    if (rc < 0) {
        snprintf(err, err_bytes, "roots: %s", strerror(-rc));
        return rc;
    }
    if (c->listen[0])
        rc = cached_token(c, err, err_bytes, &r->token, &r->token_bytes);
    if (rc == 0 && c->peers[0])
        rc = vv_cached_peers(c->peers, err, err_bytes, &r->peers, &r->nr_peers);
    if (rc == 0 && c->metrics[0])
        rc = vv_stats_file_open(c->metrics, 0, err, err_bytes, &r->metrics);
    r->past = cached_past_new();
    if (rc == 0 && !r->past)
        rc = -ENOMEM;
    open_index(r);
    if (rc == 0)
        rc = open_node(r, err, err_bytes);
    if (rc == 0)
        rc = open_sockets(r, err, err_bytes);
    if (rc == 0 && c->meet[0]) {
        rc = cached_meet_tell(c, vv_node_addr(r->node));
        if (rc < 0)
            snprintf(err, err_bytes, "meet: %s: %s", c->meet, strerror(-rc));
    }
    return rc;
}

/* ---- what has to be done ---- */

/* Reads so many bytes in each step that all files are read once in each period. */
static void *scrub(void *arg)
{
    struct run *r = arg;
    uint64_t period_ns = (uint64_t)r->c->scrub * VV_NS_PER_S;
    uint64_t step_ns = VV_MIN(SCRUB_NS, period_ns / SCRUB_STEPS), steps = period_ns / step_ns;

    vv_mutex_lock(&r->lock);
    while (!r->stopping) {
        struct vv_node_status *s;
        uint64_t begun_ns = vv_now_ns(), bytes = 0;
        bool around;
        int damaged;

        vv_mutex_unlock(&r->lock);
        if (vv_node_status(r->node, &s) == 0) {
            /* More than needed, by two steps: files that the scrub has just passed come again in time. */
            bytes = s->cache.bytes / steps + s->cache.bytes / steps / 8 + 1;
            free(s);
        }
        damaged = bytes ? vv_node_scrub(r->node, bytes, &around) : 0;
        if (damaged > 0)
            vv_log(VV_LOG_WARNING,
                   "%d damaged files dropped; they are fetched again when asked for", damaged);
        vv_mutex_lock(&r->lock);
        while (!r->stopping && vv_now_ns() < begun_ns + step_ns)
            (void)vv_cond_wait_until(&r->wake, &r->lock, begun_ns + step_ns);
    }
    vv_mutex_unlock(&r->lock);
    return NULL;
}

static void write_metrics(struct run *r)
{
    struct cached_figures s;
    int rc = cached_figures(&r->control_opts, &s);

    if (rc < 0)
        return;
    if (r->metrics) {
        rc = vv_stats_file_print(r->metrics, cached_print_prometheus, &s);
        if (rc < 0)
            vv_log(VV_LOG_DEBUG, "metrics: %s", strerror(-rc));
    }
    free(s.node);
}

/* True if the daemon has to stop. */
static bool take_signal(struct run *r)
{
    struct signalfd_siginfo info;

    if (read(r->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return false;
    if (info.ssi_signo == SIGHUP) {
        if (open_log(r) < 0)
            fprintf(stderr, COMMAND ": %s: %s\n", r->c->log, strerror(errno));
        return false;
    }
    return true;
}

static void serve(struct run *r)
{
    uint64_t metrics_ns = vv_now_ns(), meet_ns = metrics_ns, pause_ns = MEET_NS;
    bool only_one = true; /* no other node has this name */

    for (;;) {
        struct pollfd p[2] = {{r->signals, POLLIN, 0}, {r->stop[0], POLLIN, 0}};
        uint64_t now_ns = vv_now_ns(), next_ns = now_ns + METRICS_NS;

        if (now_ns >= metrics_ns) {
            write_metrics(r); /* also without a file: it stores a sample for cached_past */
            metrics_ns = now_ns + METRICS_NS;
        }
        if (r->c->meet[0] && now_ns >= meet_ns) {
            (void)cached_meet_look(r->c, r->node);
            only_one = only_one && cached_meet_check(r->c, vv_node_addr(r->node));
            meet_ns = now_ns + pause_ns;
            pause_ns = VV_MIN(2 * pause_ns, MEET_MAX_NS);
        }
        next_ns = VV_MIN(next_ns, metrics_ns);
        next_ns = r->c->meet[0] ? VV_MIN(next_ns, meet_ns) : next_ns;
        now_ns = vv_now_ns();
        if (poll(p, 2, next_ns > now_ns ? (int)((next_ns - now_ns) / VV_NS_PER_MS) + 1 : 0) < 0)
            continue;
        if (p[1].revents || (p[0].revents && take_signal(r)))
            return;
    }
}

/* ---- all of it ---- */

/* True if there is a signal to stop. */
static bool told_again(struct run *r)
{
    struct signalfd_siginfo info;

    return read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
           info.ssi_signo != SIGHUP;
}

/* Ends the process if it has not ended in time. That is as good as being killed: the next start uses the files on
 * disk again, the others notice the end of the connections, and programs keep their descriptors. */
static void *see_to_end(void *arg)
{
    struct run *r = arg;
    uint64_t now_ns = vv_now_ns(), until_ns = now_ns + STOP_NS;

    for (; now_ns < until_ns; now_ns = vv_now_ns()) {
        struct pollfd p[2] = {{r->signals, POLLIN, 0}, {r->ended, POLLIN, 0}};

        if (poll(p, 2, (int)((until_ns - now_ns) / VV_NS_PER_MS) + 1) < 0)
            continue;
        if (p[1].revents)
            return NULL;
        if (p[0].revents && told_again(r))
            until_ns = VV_MIN(until_ns, vv_now_ns() + AGAIN_NS);
    }
    alarm(LAST_WORD_S);
    vv_log(VV_LOG_WARNING,
           "ending without order: a call has not returned, perhaps one of a file system");
    _exit(CLI_FAILED);
}

static void close_parts(struct run *r)
{
    if (r->node)
        vv_node_hurry(r->node);
    if (r->node && r->c->meet[0])
        cached_meet_leave(r->c, vv_node_addr(r->node));
    vv_mutex_lock(&r->lock);
    r->stopping = true;
    vv_cond_broadcast(&r->wake);
    vv_mutex_unlock(&r->lock);
    if (r->scrubbing)
        pthread_join(r->scrubber, NULL);
    if (r->metrics && r->control)
        write_metrics(r);
    cached_control_close(r->control);
    vv_server_close(r->server);
    vv_node_close(r->node);
    vv_index_free(r->index);
    cached_past_free(r->past);
    vv_stats_file_close(r->metrics);
}

static void close_all(struct run *r)
{
    pthread_t watcher;
    bool watched = r->node && r->ended >= 0 && vv_thread_start(&watcher, see_to_end, r) == 0;

    close_parts(r);
    if (watched) {
        while (eventfd_write(r->ended, 1) < 0)
            ;
        pthread_join(watcher, NULL);
    }
    free(r->peers);
    free(r->token);
    vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
    if (r->log && r->log != stderr)
        fclose(r->log);
    for (int i = 0; i < 2; i++)
        if (r->stop[i] >= 0)
            close(r->stop[i]);
    if (r->signals >= 0)
        close(r->signals);
    if (r->ended >= 0)
        close(r->ended);
    vv_cond_fini(&r->wake);
    vv_mutex_fini(&r->lock);
}

/* Each program takes a descriptor or more, and so does each file that is being sent; the limit of shells is often
 * 1024. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Use one arena: threads free what other threads allocated. With an arena for each thread free memory is
 * scattered, and a daemon seems to grow for hours. */
static void use_one_arena(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 1);
#endif
}

static int prepare(struct run *r, char *err, size_t err_bytes)
{
    sigset_t set;
    int rc;

    r->stop[0] = r->stop[1] = r->signals = r->ended = -1;
    vv_mutex_init(&r->lock, "daemon", VV_RANK_STATS);
    vv_cond_init(&r->wake);
    signal(SIGPIPE, SIG_IGN);
    allow_descriptors();
    use_one_arena();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC);
    r->ended = eventfd(0, EFD_CLOEXEC);
    if (r->signals < 0 || r->ended < 0 || pipe2(r->stop, O_CLOEXEC) < 0)
        return -errno;
    rc = open_log(r);
    if (rc < 0)
        snprintf(err, err_bytes, "log: %s: %s", r->c->log, strerror(-rc));
    return rc;
}

static void detach(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd < 3 && null >= 0; fd++)
        (void)dup2(null, fd);
    if (null > 2)
        close(null);
    if (chdir("/") < 0)
        return;
}

int cached_run(struct vv_cached *c, int ready_fd)
{
    struct run *r = calloc(1, sizeof(*r));
    char err[1024] = "";
    int rc;

    if (!r)
        return CLI_FAILED;
    r->c = c;
    rc = prepare(r, err, sizeof(err));
    if (rc == 0)
        rc = open_all(r, err, sizeof(err));
    if (rc == 0 && c->scrub > 0) {
        rc = vv_thread_start(&r->scrubber, scrub, r);
        r->scrubbing = rc == 0;
    }
    if (rc < 0) {
        fprintf(stderr, COMMAND ": %s\n", err[0] ? err : strerror(-rc));
    } else {
        vv_log(VV_LOG_INFO, "serving %s from %s at %s%s%s", c->roots, c->cache, c->socket,
               c->listen[0] ? ", other nodes at " : "", vv_node_addr(r->node));
        if (ready_fd >= 0) {
            detach();
            if (write(ready_fd, "r", 1) < 0)
                vv_log(VV_LOG_WARNING, "the process that started the daemon has ended");
            close(ready_fd);
        }
        serve(r);
        vv_log(VV_LOG_INFO, "stopping");
    }
    close_all(r);
    free(r);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}
