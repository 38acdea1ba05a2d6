/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket of a daemon, for the user that runs it. A client sends one line, with more lines after it for
 * `bring`, and closes its end. The answer is a line "ok" or "error: ...", and then the result. Each client has a
 * thread: giving all files away takes long, and others ask for the progress meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "cli/cached.h"

#define BATCH       1024
#define ASKERS      16
#define PLACE_SHIFT 20
#define TIMEOUT_S   60
#define NAMED_MAX   20 /* files that are left out, by name */

struct cached_control {
    struct cached_control_opts opts;
    char path[256];
    int fd, wake[2];
    pthread_t thread;
    struct vv_mutex lock;
    struct vv_cond ended;
    /* Synchronization: lock. */
    unsigned asking;
    uint64_t place; /* the index of the next file in the order of use */
};

struct asker {
    struct cached_control *c;
    int fd;
};

int cached_figures(const struct cached_control_opts *opts, struct cached_figures *ret_figures)
{
    struct cached_figures s = {.config = opts->config};
    struct cached_sample now;
    int rc = vv_node_status(opts->node, &s.node);

    if (rc < 0)
        return rc;
    vv_server_stats(opts->server, &s.server);
    now = cached_sample(s.node, vv_now_ns());
    cached_past_add(opts->past, &now);
    s.minute = cached_past_over(opts->past, &now, 60 * VV_NS_PER_S);
    s.hour = cached_past_over(opts->past, &now, 3600 * VV_NS_PER_S);
    *ret_figures = s;
    return 0;
}

static void answer_status(struct cached_control *c, const char *form, FILE *out)
{
    struct cached_figures s;

    if (cached_figures(&c->opts, &s) < 0) {
        fputs("error: out of memory\n", out);
        return;
    }
    fputs("ok\n", out);
    if (strcmp(form, " json") == 0)
        cached_print_json(out, &s);
    else if (strcmp(form, " prometheus") == 0)
        cached_print_prometheus(out, &s);
    else
        cached_print_text(out, &s);
    free(s.node);
}

static void stop(struct cached_control *c)
{
    if (write(c->opts.stop_fd, "s", 1) < 0)
        (void)kill(getpid(), SIGTERM);
}

static void answer_drain(struct cached_control *c, const char *line, FILE *out)
{
    long seconds = strtol(line, NULL, 10);
    int64_t given = vv_node_drain(c->opts.node, vv_now_ns() + (uint64_t)seconds * VV_NS_PER_S);

    if (given < 0) {
        fprintf(out, "error: %s\n",
                given == -EALREADY ? "it drains already" : strerror((int)-given));
        return;
    }
    fprintf(out, "ok\ngave %" PRId64 " files to others\n", given);
    fflush(out);
    stop(c);
}

static void answer_join(struct cached_control *c, const char *line, FILE *out)
{
    struct vv_member_info info = {0};
    int rc;

    if (sscanf(line, "%63s %127s", info.name, info.addr) != 2) {
        fputs("error: a name and host:port\n", out);
        return;
    }
    rc = vv_node_add(c->opts.node, &info);
    if (rc < 0)
        fprintf(out, "error: %s\n",
                rc == -ENOTCONN ? "this node does not listen: set listen" : strerror(-rc));
    else
        fputs("ok\n", out);
}

static void answer_forget(struct cached_control *c, const char *name, FILE *out)
{
    int rc = vv_node_forget(c->opts.node, name);

    switch (rc) {
    case 0:
    case -EALREADY:
        /* Remove it from the folder too: daemons that start later would look for it there. */
        cached_meet_forget(c->opts.config, name);
        fputs("ok\n", out);
        break;
    case -ENOENT:
        fprintf(out, "error: there is no node '%s'; 'varve cached status' lists them\n", name);
        break;
    case -EBUSY:
        fprintf(out,
                "error: '%s' is up: stop it first (varve cached stop, or drain, on its node)\n",
                name);
        break;
    case -EINVAL:
        fprintf(out, "error: '%s' is this node: to end it, use varve cached stop or drain\n", name);
        break;
    default:
        fprintf(out, "error: %s\n", strerror(-rc));
    }
}

/* ---- bring ---- */

/* Files to be brought: those that were named, and those that are left out, with the reason. */
struct bring {
    struct cached_control *c;
    bool order, here;
    char **paths; /* a batch */
    uint64_t named, outside, large;
    FILE *why; /* the first few that are left out */
};

/* The reason to leave the file out; NULL: none. */
static const char *left_out(struct bring *b, const char *path, uint64_t bytes, char *buf,
                            size_t size)
{
    uint64_t max = b->c->opts.config->max_file;
    char is[VV_BYTES_TEXT], may[VV_BYTES_TEXT];

    if (!vv_node_serves(b->c->opts.node, path)) {
        b->outside++;
        return "not below a root";
    }
    if (bytes <= max)
        return NULL;
    b->large++;
    snprintf(buf, size, "%s, and max_file is %s", vv_bytes_human(bytes, is, sizeof(is)),
             vv_bytes_human(max, may, sizeof(may)));
    return buf;
}

/* A line is a path, or its size in bytes, a blank and the path. Returns NULL if the file is left out. */
static char *take_path(struct bring *b, char *line)
{
    char *path = strchr(line, '/'), why[96];
    uint64_t bytes = path && path != line ? strtoull(line, NULL, 10) : 0;
    const char *reason;

    b->named++;
    if (!path)
        path = line;
    reason = left_out(b, path, bytes, why, sizeof(why));
    if (reason) {
        if (b->outside + b->large <= NAMED_MAX)
            fprintf(b->why, "%s: %s\n", path, reason);
        return NULL;
    }
    memmove(line, path, strlen(path) + 1);
    return line;
}

/* False: there are no more. */
static bool take_batch(struct bring *b, FILE *in, size_t *ret_nr)
{
    size_t nr = 0, room = 0;
    ssize_t length = 0;
    char *line = NULL;

    while (nr < BATCH && (length = getline(&line, &room, in)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        if (!take_path(b, line))
            continue;
        b->paths[nr++] = line;
        line = NULL;
        room = 0;
    }
    free(line);
    *ret_nr = nr;
    return length > 0;
}

static int bring_batch(struct bring *b, size_t nr)
{
    uint64_t place = VV_DATASET_UNKNOWN;

    if (nr == 0)
        return 0;
    if (b->order) {
        /* The time makes these numbers larger than those that a daemon gave out here before it was restarted. */
        uint64_t now = (uint64_t)time(NULL) << PLACE_SHIFT;

        vv_mutex_lock(&b->c->lock);
        place = VV_MAX(b->c->place, now);
        b->c->place = place + nr;
        vv_mutex_unlock(&b->c->lock);
    }
    if (b->here)
        return vv_node_bring_here(b->c->opts.node, (const char *const *)b->paths, nr, place);
    return vv_node_bring(b->c->opts.node, (const char *const *)b->paths, nr, place);
}

static void tell_bring(const struct bring *b, const char *why, FILE *out)
{
    uint64_t left = b->outside + b->large;

    if (b->named > 0 && b->outside == b->named) {
        fputs("error: none of these files is below a root\n", out);
        return;
    }
    fprintf(out, "ok\n%" PRIu64 " files will be brought\n", b->named - left);
    if (left == 0)
        return;
    fprintf(out,
            "%" PRIu64 " will not: %" PRIu64 " not below a root, %" PRIu64 " above max_file\n%s",
            left, b->outside, b->large, why);
    if (left > NAMED_MAX)
        fprintf(out, "and %" PRIu64 " more\n", left - NAMED_MAX);
}

/* "bring", "bring order" or "bring here", and a file in each further line. */
static void answer_bring(struct cached_control *c, const char *line, FILE *in, FILE *out)
{
    char *why = NULL;
    size_t why_bytes, nr;
    struct bring b = {.c = c,
                      .order = line[0] == ' ',
                      .here = strcmp(line, " here") == 0,
                      .paths = calloc(BATCH, sizeof(char *)),
                      .why = open_memstream(&why, &why_bytes)};
    int rc = b.paths && b.why ? 0 : -ENOMEM;
    bool more = rc == 0;

    while (more && rc == 0) {
        more = take_batch(&b, in, &nr);
        rc = bring_batch(&b, nr);
        for (size_t i = 0; i < nr; i++)
            free(b.paths[i]);
    }
    if (b.why)
        fclose(b.why);
    if (rc == -ENOSPC)
        fputs("error: files of other nodes are brought to memory, and 'memory' is 0\n", out);
    else if (rc < 0)
        fprintf(out, "error: %s\n", strerror(-rc));
    else
        tell_bring(&b, why, out);
    free(why);
    free(b.paths);
}

static void answer(struct cached_control *c, FILE *in, FILE *out)
{
    char line[1024];

    if (!fgets(line, sizeof(line), in))
        return;
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "status", 6) == 0)
        answer_status(c, line + 6, out);
    else if (strncmp(line, "drain ", 6) == 0)
        answer_drain(c, line + 6, out);
    else if (strncmp(line, "join ", 5) == 0)
        answer_join(c, line + 5, out);
    else if (strncmp(line, "forget ", 7) == 0)
        answer_forget(c, line + 7, out);
    else if (strncmp(line, "bring", 5) == 0)
        answer_bring(c, line + 5, in, out);
    else if (strcmp(line, "stop") == 0) {
        fputs("ok\n", out);
        stop(c);
    } else
        fputs("error: there is no such command\n", out);
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct cached_control *c = a->c;
    int other = dup(a->fd);
    FILE *in = fdopen(a->fd, "r"), *out = other >= 0 ? fdopen(other, "w") : NULL;

    if (in && out)
        answer(c, in, out);
    if (in)
        fclose(in);
    else
        close(a->fd);
    if (out)
        fclose(out);
    else if (other >= 0)
        close(other);
    free(a);
    vv_mutex_lock(&c->lock);
    c->asking--;
    vv_cond_broadcast(&c->ended);
    vv_mutex_unlock(&c->lock);
    return NULL;
}

static void begin(struct cached_control *c, int fd)
{
    struct timeval limit = {.tv_sec = TIMEOUT_S};
    struct asker *a = malloc(sizeof(*a));
    pthread_t thread;
    bool room;

    /* A client that does not read, or write, must not keep the daemon from stopping. */
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    vv_mutex_lock(&c->lock);
    room = c->asking < ASKERS;
    c->asking += room;
    vv_mutex_unlock(&c->lock);
    if (room && a) {
        *a = (struct asker){c, fd};
        if (vv_thread_start(&thread, ask, a) == 0) {
            pthread_detach(thread);
            return;
        }
    }
    vv_mutex_lock(&c->lock);
    c->asking -= room;
    vv_mutex_unlock(&c->lock);
    free(a);
    close(fd);
}

static void *serve(void *arg)
{
    struct cached_control *c = arg;

    for (;;) {
        struct pollfd p[2] = {{c->fd, POLLIN, 0}, {c->wake[0], POLLIN, 0}};
        int fd;

        if (poll(p, 2, -1) < 0 && errno != EINTR)
            break;
        if (p[1].revents)
            break;
        fd = p[0].revents ? accept4(c->fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        /* No descriptor is free. The client stays in the queue, so accepting again at once would spin. */
        if (fd < 0 && p[0].revents)
            vv_sleep_until_ns(vv_now_ns() + 10 * VV_NS_PER_MS);
        if (fd >= 0 && is_ours(fd))
            begin(c, fd);
        else if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static int listen_at(struct cached_control *c)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    mode_t mask;
    int rc;

    memcpy(sun.sun_path, c->path, strlen(c->path) + 1);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -errno;
    /* This daemon owns the socket for programs, so a file at this path is left from a daemon that has ended. */
    unlink(c->path);
    mask = umask(0177);
    rc = bind(c->fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : 0;
    umask(mask);
    if (rc == 0 && listen(c->fd, ASKERS) < 0)
        rc = -errno;
    return rc;
}

int cached_control_open(const struct cached_control_opts *opts, char *err, size_t err_bytes,
                        struct cached_control **ret_control)
{
    struct cached_control *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->opts = *opts;
    c->fd = c->wake[0] = c->wake[1] = -1;
    vv_mutex_init(&c->lock, "control", VV_RANK_STORE);
    vv_cond_init(&c->ended);
    rc = vv_cached_control(opts->config, c->path, sizeof(c->path));
    if (rc == 0 && pipe2(c->wake, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc == 0)
        rc = listen_at(c);
    if (rc == 0)
        rc = vv_thread_start(&c->thread, serve, c);
    if (rc < 0) {
        snprintf(err, err_bytes, "%s: %s", c->path, strerror(-rc));
        for (int i = 0; i < 2; i++)
            if (c->wake[i] >= 0)
                close(c->wake[i]);
        if (c->fd >= 0)
            close(c->fd);
        vv_cond_fini(&c->ended);
        vv_mutex_fini(&c->lock);
        free(c);
        return rc;
    }
    *ret_control = c;
    return 0;
}

void cached_control_close(struct cached_control *c)
{
    if (!c)
        return;
    close(c->wake[1]);
    pthread_join(c->thread, NULL);
    unlink(c->path);
    close(c->fd);
    close(c->wake[0]);
    vv_mutex_lock(&c->lock);
    while (c->asking > 0)
        vv_cond_wait(&c->ended, &c->lock);
    vv_mutex_unlock(&c->lock);
    vv_cond_fini(&c->ended);
    vv_mutex_fini(&c->lock);
    free(c);
}
