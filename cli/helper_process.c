/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve helper: the helper process of a node (store/aio/helper.h). A context that is opened with helper_process =
 * on starts it in the background, where it prints nothing. Started by hand it runs until a signal, and prints its
 * figures at the end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "store/aio/helper.h"

#define COMMAND "varve helper"

struct helper_opts {
    struct vv_helper_serve_opts serve;
    const char *name;
    bool background, json;
};

static int set_cores(const char *value, void *arg)
{
    struct helper_opts *o = arg;

    o->serve.cores = strcmp(value, "any") == 0 ? NULL : value;
    return 0;
}

/* 0 to 19 are for all users, those below for root */
static int set_nice(const char *value, void *arg)
{
    struct helper_opts *o = arg;
    double nice;

    if (opts_real(value, -20, 19, &nice) < 0 || nice != (int)nice)
        return -EINVAL;
    o->serve.nice = (int)nice;
    return 0;
}

#define AT(field) offsetof(struct helper_opts, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "name", .arg = "NAME", .at = AT(name),
     .help = "processes with this helper_name share it; by default the\n"
             "processes of a batch job, or all of the user's"},
    {OPT_SET, .name = "cores", .arg = "LIST", .set = set_cores,
     .help = "processors of the helper, such as 30,31; any (any)"},
    {OPT_SET, .name = "nice", .arg = "N", .set = set_nice, .help = "its priority, 0 to 19 (0)",
     .takes = "a whole number from 0 to 19 (for root from -20 on)"},
    {OPT_U32, .name = "threads", .arg = "N", .at = AT(serve.threads), .least = 1, .most = 64,
     .help = "threads that read and write, 1 to 64 (4)"},
    {OPT_INT, .name = "idle", .arg = "MS", .at = AT(serve.idle_ms), .most = 1000000000,
     .help = "end after so long without a process (never)"},
    {OPT_FLAG, .name = "background", .at = AT(background),
     .help = "return when this helper, or another one, is ready"},
    {OPT_FLAG, .name = "json", .help = "print its figures as a JSON object at the end",
     .at = AT(json)},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about = "Reads and writes files for processes of the same user on this node that were\n"
             "opened with helper_process = on, which start it if it is not there.",
    OPT_LIST(options),
};

/* ---- running ---- */

/* Synchronization: set before the handlers are installed. */
static int stop_fd = -1;

static void stop(int sig)
{
    uint64_t one = 1;
    int keep = errno;

    (void)sig;
    (void)!write(stop_fd, &one, sizeof(one));
    errno = keep;
}

/* Every waiting request holds a descriptor. */
static void raise_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &r);
    }
}

static void print_served(const struct helper_opts *o, const struct vv_helper_served *s)
{
    char bytes[VV_BYTES_TEXT];

    if (o->json) {
        struct json j = json_begin(stdout, JSON_SPACED);

        json_object(&j, NULL);
        json_uint(&j, "processes", s->processes);
        json_uint(&j, "requests", s->requests);
        json_uint(&j, "bytes", s->bytes);
        json_number(&j, "cpu_s", "%.6f", (double)s->cpu_ns * 1e-9);
        json_text(&j, "processors", s->where);
        json_close(&j);
        json_end(&j);
    } else {
        printf("for %" PRIu64 " processes: %" PRIu64 " requests, %s, %.3f s of processor time on "
               "processors: %s\n",
               s->processes, s->requests, vv_bytes_human(s->bytes, bytes, sizeof(bytes)),
               (double)s->cpu_ns * 1e-9, s->where);
    }
}

static int serve(struct helper_opts *o, int listen_fd)
{
    struct sigaction act = {.sa_handler = stop}, ignore = {.sa_handler = SIG_IGN};
    struct vv_helper_served served;
    char err[256] = "";

    raise_limit();
    stop_fd = o->serve.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, o->background ? &ignore : &act, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    int rc = vv_helper_serve(listen_fd, &o->serve, err, sizeof(err), &served);
    if (rc < 0) {
        fprintf(stderr, COMMAND ": %s\n", err[0] ? err : vv_strerror(rc));
        return CLI_FAILED;
    }
    if (!o->background)
        print_served(o, &served);
    return CLI_OK;
}

/* Close all inherited descriptors: files, and ends of pipes on which other processes wait. */
static void leave_files(int keep)
{
    int null = open("/dev/null", O_RDWR);

    for (int i = 0; i < 3 && null >= 0; i++)
        (void)dup2(null, i);
    for (int fd = 3, max = (int)sysconf(_SC_OPEN_MAX); fd < VV_MIN(max, 65536); fd++)
        if (fd != keep)
            close(fd);
}

/* Checks the options before the process that starts this one gets its answer: it has to see a refusal. */
static int check(const struct helper_opts *o)
{
    struct vv_thread_group *group;
    char err[256] = "";
    int rc = vv_thread_group_new(o->serve.cores ? o->serve.cores : "any", o->serve.nice, err,
                                 sizeof(err), &group);

    if (rc < 0) {
        fprintf(stderr, COMMAND ": %s\n", err[0] ? err : vv_strerror(rc));
        return rc == -EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    vv_thread_group_free(group);
    return CLI_OK;
}

/* Forks a process that serves, and waits until it listens: then others can connect. */
static int in_background(struct helper_opts *o)
{
    int ready[2], rc = -EIO;

    if (pipe2(ready, O_CLOEXEC) < 0 || fflush(NULL) != 0)
        return CLI_FAILED;
    pid_t pid = fork();
    if (pid == 0) {
        int listen_fd;
        setsid();
        leave_files(ready[1]);
        rc = vv_helper_listen(o->name, &listen_fd);
        ssize_t sent = write(ready[1], &rc, sizeof(rc));
        close(ready[1]);
        _exit(rc < 0 || sent < 0 ? CLI_FAILED : serve(o, listen_fd));
    }
    close(ready[1]);
    if (pid < 0 || read(ready[0], &rc, sizeof(rc)) != (ssize_t)sizeof(rc))
        rc = -EIO;
    if (rc < 0 && rc != -EADDRINUSE)
        fprintf(stderr, COMMAND ": %s\n", vv_strerror(rc));
    return rc == 0 || rc == -EADDRINUSE ? CLI_OK : CLI_FAILED;
}

int cli_helper(int argc, char **argv)
{
    struct helper_opts o = {.serve = {.idle_ms = -1}};
    int listen_fd, first, rc = opts_parse(&command, argc, argv, &o, &first);

    if (rc >= 0)
        return rc;
    /* The process that starts it may be bound to few processors; the helper serves all processes. */
    vv_thread_unbind();
    rc = check(&o);
    if (rc != CLI_OK)
        return rc;
    if (o.background)
        return in_background(&o);
    rc = vv_helper_listen(o.name, &listen_fd);
    if (rc < 0) {
        fprintf(stderr, COMMAND ": --name %s: %s\n", o.name,
                rc == -EADDRINUSE ? "a helper of that name runs already: give another name"
                                  : vv_strerror(rc));
        return CLI_FAILED;
    }
    if (!o.json)
        printf("ready\n");
    fflush(stdout);
    return serve(&o, listen_fd);
}
