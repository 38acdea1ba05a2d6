/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of `varve bench shot` in processes of their own: one that crashes, hangs or is refused is a
 * result like any other, and does not take the others with it. A run that is over its limit gets
 * SIGTERM, upon which it removes its files, and SIGKILL if that does not help. It has a process
 * group of its own, so that the terminal's interrupt reaches it only through this command.
 *
 * The output of a run, one JSON object, is kept as runs/ID.json. ID ends with a hash of the command
 * line, the machine and the program, so that --resume reuses no result that was measured otherwise.
 * The file appears by rename, so it is always whole.
 *
 * The JSON is our own, written by lab/shot/report.c: names are looked up by text, and those of the
 * outermost object come before any nested one of the same name.
 *
 * One thread. A signal sets paper_interrupted, and wakes poll().
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "lab/paper/bench_paper.h"

#define OUTPUT_MAX (256u << 20) /* no run prints that much */
#define POLL_MS    200
#define GRACE_NS   (10 * VV_NS_PER_S)

volatile sig_atomic_t paper_interrupted;

/* The text read from one pipe. */
struct pipe_text {
    int fd; /* -1: ended */
    char *text;
    size_t len, cap;
};

/* ---- starting a process ---- */

static int more_room(struct pipe_text *p)
{
    size_t cap = p->cap ? 2 * p->cap : 4096;
    char *text;

    if (cap > OUTPUT_MAX)
        return -EFBIG;
    text = realloc(p->text, cap);
    if (!text)
        return -ENOMEM;
    p->text = text;
    p->cap = cap;
    return 0;
}

/* Reads the available bytes. Negative errno; the end of the pipe closes it. */
static int take(struct pipe_text *p)
{
    ssize_t n;

    if (p->cap - p->len < 2) {
        int rc = more_room(p);

        if (rc < 0)
            return rc;
    }
    n = read(p->fd, p->text + p->len, p->cap - p->len - 1);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (n == 0) {
        close(p->fd);
        p->fd = -1;
    }
    p->len += (size_t)n;
    p->text[p->len] = '\0';
    return 0;
}

static pid_t start(const char *program, char *const *argv, struct pipe_text *out,
                   struct pipe_text *err)
{
    int o[2], e[2];
    pid_t pid;

    if (pipe2(o, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(e, O_CLOEXEC) < 0) {
        pid = -errno;
        close(o[0]);
        close(o[1]);
        return pid;
    }
    fflush(NULL); /* or the child would print the buffer of this process */
    pid = fork();
    if (pid < 0)
        pid = -errno;
    if (pid == 0) {
        setpgid(0, 0);
        if (dup2(o[1], STDOUT_FILENO) >= 0 && dup2(e[1], STDERR_FILENO) >= 0)
            execv(program, argv);
        _exit(127);
    }
    close(o[1]);
    close(e[1]);
    if (pid < 0) {
        close(o[0]);
        close(e[0]);
        return pid;
    }
    setpgid(pid, pid); /* parent and child both call it: either may come first */
    out->fd = o[0];
    err->fd = e[0];
    return pid;
}

/* Reads until both pipes have ended. A process that has to end gets SIGTERM first, and SIGKILL later. */
static int follow(pid_t pid, double limit_s, struct pipe_text *out, struct pipe_text *err)
{
    uint64_t deadline = vv_now_ns() + (uint64_t)(limit_s * 1e9), kill_at = 0;
    int rc = 0;

    while (out->fd >= 0 || err->fd >= 0) {
        struct pollfd fds[2] = {{.fd = out->fd, .events = POLLIN},
                                {.fd = err->fd, .events = POLLIN}};
        uint64_t now;
        int r;

        poll(fds, 2, POLL_MS);
        r = fds[0].revents ? take(out) : 0;
        if (r == 0 && fds[1].revents)
            r = take(err);
        now = vv_now_ns();
        if (rc == 0)
            rc = r < 0 ? r : paper_interrupted ? -EINTR : now > deadline ? -ETIMEDOUT : 0;
        if (rc < 0 && kill_at == 0) {
            kill(pid, SIGTERM);
            kill_at = now + GRACE_NS;
        } else if (rc < 0 && (r < 0 || now > kill_at)) {
            kill(-pid, SIGKILL); /* the whole group: nothing else would end its children */
            break;
        }
    }
    return rc;
}

int paper_spawn(const char *program, char *const *argv, double limit_s, int *ret_status,
                char **ret_out, char **ret_err)
{
    struct pipe_text out = {.fd = -1}, err = {.fd = -1};
    int status = 0, rc = more_room(&out);
    pid_t pid;

    if (rc == 0)
        rc = more_room(&err);
    if (rc == 0) {
        out.text[0] = err.text[0] = '\0';
        pid = start(program, argv, &out, &err);
        rc = pid < 0 ? (int)pid : follow(pid, limit_s, &out, &err);
        if (out.fd >= 0)
            close(out.fd);
        if (err.fd >= 0)
            close(err.fd);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    if (rc < 0) {
        free(out.text);
        free(err.text);
        return rc;
    }
    *ret_status = status;
    *ret_out = out.text;
    *ret_err = err.text;
    return 0;
}

/* ---- reading JSON ---- */

/* The text behind "name":, or NULL. */
static const char *find_key(const char *text, const char *name)
{
    char key[64];
    const char *at;

    snprintf(key, sizeof(key), "\"%s\":", name);
    at = text ? strstr(text, key) : NULL;
    return at ? at + strlen(key) : NULL;
}

/* NAN: there is none, or it is null. */
static double find_double(const char *text, const char *name)
{
    const char *at = find_key(text, name);
    char *end;
    double v;

    if (!at)
        return NAN;
    v = strtod(at, &end);
    return end == at ? NAN : v;
}

static bool json_true(const char *text, const char *name)
{
    const char *at = find_key(text, name);

    return at && strncmp(at, "true", 4) == 0;
}

/* A string, cut to its buffer; empty when there is none. Escapes are those of cli/common/json.c. */
static void find_text(const char *text, const char *name, char *buf, size_t size)
{
    const char *at = find_key(text, name);
    size_t n = 0;

    buf[0] = '\0';
    if (!at || *at != '"')
        return;
    for (at++; *at && *at != '"' && n + 1 < size; at++) {
        if (*at == '\\' && at[1] == 'u') {
            buf[n++] = ' '; /* a control character */
            at += strnlen(at, 6) - 1;
            continue;
        }
        if (*at == '\\' && at[1])
            at++;
        buf[n++] = *at;
    }
    buf[n] = '\0';
}

/* The numbers of an array. NULL and 0 when there is none; -ENOMEM. */
static int json_doubles(const char *text, const char *name, double **ret_values, size_t *ret_nr)
{
    const char *at = find_key(text, name);
    size_t n = 0, cap = 0;
    double *values = NULL;

    while (at && (*at == '[' || *at == ',')) {
        char *end;
        double v = strtod(at + 1, &end);

        if (end == at + 1)
            break;
        if (n == cap) {
            double *more = realloc(values, (cap = cap ? 2 * cap : 512) * sizeof(*more));

            if (!more) {
                free(values);
                return -ENOMEM;
            }
            values = more;
        }
        values[n++] = v;
        at = end;
    }
    *ret_values = values;
    *ret_nr = n;
    return 0;
}

/* ---- one run ---- */

VV_PRINTF(3, 4)
static void add_arg(char (*args)[PAPER_ARG], size_t *nr, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(args[(*nr)++], PAPER_ARG, fmt, ap);
    va_end(ap);
}

static void add_pair(char (*args)[PAPER_ARG], size_t *nr, const char *name, const char *value)
{
    if (!value)
        return;
    add_arg(args, nr, "%s", name);
    add_arg(args, nr, "%s", value);
}

static void add_bytes(char (*args)[PAPER_ARG], size_t *nr, const char *name, uint64_t bytes)
{
    char text[VV_BYTES_TEXT];

    add_pair(args, nr, name, vv_bytes_format(bytes, text, sizeof(text)));
}

/* Options common to the shot of a run and its simulations. */
static void add_load(const struct paper_opts *o, bool variable, double interval_ms,
                     uint64_t device_cache, char (*args)[PAPER_ARG], size_t *nr)
{
    add_arg(args, nr, "--ckpts");
    add_arg(args, nr, "%" PRIu32, o->ckpts);
    if (variable)
        add_pair(args, nr, "--sizes", o->sizes);
    else
        add_bytes(args, nr, "--size", o->size_bytes);
    add_arg(args, nr, "--scale");
    add_arg(args, nr, "%.9g", o->scale);
    add_arg(args, nr, "--seed");
    add_arg(args, nr, "%" PRIu64, o->seed);
    add_arg(args, nr, "--interval-ms");
    add_arg(args, nr, "%.6g", interval_ms);
    add_bytes(args, nr, "--device-cache", device_cache);
    add_bytes(args, nr, "--host-cache", o->host_cache);
}

static size_t run_args(const struct paper_opts *o, const struct paper_run *r,
                       char (*args)[PAPER_ARG])
{
    size_t nr = 0;

    add_pair(args, &nr, "varve", "bench");
    add_arg(args, &nr, "shot");
    add_load(o, r->variable, r->interval_ms, r->device_cache, args, &nr);
    add_pair(args, &nr, "--order", paper_order_name(r->order));
    add_pair(args, &nr, "--hints", paper_hints_name(r->hints));
    add_arg(args, &nr, r->wait ? "--wait" : "--no-wait");
    add_pair(args, &nr, "--device", o->device);
    /* The default engine of a shot is not named. */
    if (r->engine == PAPER_SCORE)
        add_pair(args, &nr, "--policy", "score");
    else if (r->engine != PAPER_VARVE)
        add_pair(args, &nr, "--engine", paper_engine_name(r->engine));
    add_pair(args, &nr, "--local", o->local);
    add_pair(args, &nr, "--local-io", o->local_io);
    add_pair(args, &nr, "--rate", o->rate);
    if (!o->bound)
        add_arg(args, &nr, "--no-bound");
    add_arg(args, &nr, "--json");
    return nr;
}

/* As a shell takes it; most need no quotes. */
static void quote(const char *arg, char *buf, size_t size)
{
    size_t n = 0;

    if (*arg && strspn(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "-_=+,./:%@") == strlen(arg)) {
        snprintf(buf, size, "%s", arg);
        return;
    }
    buf[n++] = '\'';
    for (; *arg && n + 6 < size; arg++) {
        if (*arg == '\'') {
            memcpy(buf + n, "'\\'", 3);
            n += 3;
        }
        buf[n++] = *arg;
    }
    buf[n++] = '\'';
    buf[n] = '\0';
}

static void join_args(char (*args)[PAPER_ARG], size_t nr, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < nr && n < size; i++) {
        char word[2 * PAPER_ARG];

        quote(args[i], word, sizeof(word));
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? " " : "", word);
    }
}

static void name_run(const struct paper *paper, struct paper_run *r)
{
    char args[PAPER_ARGS][PAPER_ARG];
    char text[sizeof(r->command) + sizeof(paper->machine) + 64];
    char cache[VV_BYTES_TEXT];

    join_args(args, run_args(&paper->opts, r, args), r->command, sizeof(r->command));
    snprintf(text, sizeof(text), "%s\n%s", r->command, paper->machine);
    snprintf(r->id, sizeof(r->id), "%s-%s-%s-%s-%s-%gms-%s-%08" PRIx32,
             r->variable ? "variable" : "uniform", r->wait ? "wait" : "nowait",
             paper_order_name(r->order), paper_hints_name(r->hints), paper_engine_name(r->engine),
             r->interval_ms, vv_bytes_format(r->device_cache, cache, sizeof(cache)),
             (uint32_t)vv_hash64(text, strlen(text)));
}

/* The last line with text. */
static void last_line(const char *text, char *buf, size_t size)
{
    const char *best = "";
    size_t best_len = 0;

    while (*text) {
        size_t n = strcspn(text, "\r\n");

        if (n > 0) {
            best = text;
            best_len = n;
        }
        text += n + (text[n] != '\0');
    }
    snprintf(buf, size, "%.*s", (int)VV_MIN(best_len, size), best);
}

static void reset_result(struct paper_run *r)
{
    free(r->restore_s);
    free(r->distance);
    r->restore_s = r->distance = NULL;
    r->nr_gets = 0;
    r->get_bytes = 0;
    r->text[0] = '\0';
    r->checkpoint_gbps = r->restore_gbps = r->blocked_checkpoint_s = r->blocked_restore_s = NAN;
    r->prefetch_distance = r->utilisation = r->wait_s = r->wall_s = r->bound_ratio = NAN;
    r->first_utilisation = r->ready_s = r->host_ready_s = NAN;
    r->expected_checkpoint_s = r->expected_restore_s = NAN;
}

/* Fills in the run from its output; false: the output is not a result. -ENOMEM. */
static int read_result(const char *json, struct paper_run *r, bool *ret_found)
{
    const char *processes = find_key(json, "processes");
    double bytes = find_double(processes, "get_bytes");
    size_t nr_distances = 0;
    int rc;

    *ret_found = false;
    if (!processes || !isfinite(find_double(json, "checkpoint_gbps")) ||
        !isfinite(find_double(json, "restore_gbps")))
        return 0;
    r->get_bytes = isfinite(bytes) ? (uint64_t)bytes : 0;
    r->checkpoint_gbps = find_double(json, "checkpoint_gbps");
    r->restore_gbps = find_double(json, "restore_gbps");
    r->blocked_checkpoint_s = find_double(json, "blocked_checkpoint_s");
    r->blocked_restore_s = find_double(json, "blocked_restore_s");
    r->prefetch_distance = find_double(json, "prefetch_distance_mean");
    r->utilisation = find_double(json, "utilisation");
    r->wait_s = find_double(json, "wait_s");
    r->wall_s = find_double(json, "wall_s");
    r->bound_ratio = find_double(json, "bound_ratio");
    r->first_utilisation = find_double(json, "first_tier_utilisation");
    r->ready_s = find_double(json, "ready_s");
    r->host_ready_s = find_double(json, "host_ready_s");
    r->expected_checkpoint_s = find_double(json, "expected_checkpoint_s");
    r->expected_restore_s = find_double(json, "expected_restore_s");
    find_text(json, "failure", r->text, sizeof(r->text));
    if (!json_true(json, "verified")) {
        r->status = PAPER_FAILED;
        if (!r->text[0])
            snprintf(r->text, sizeof(r->text), "wrong bytes came back");
    } else {
        r->status = r->text[0] ? PAPER_DOUBTFUL : PAPER_OK;
    }
    *ret_found = true;
    rc = json_doubles(processes, "restore_blocked_s", &r->restore_s, &r->nr_gets);
    if (rc == 0)
        rc = json_doubles(processes, "prefetch_distance", &r->distance, &nr_distances);
    if (rc == 0 && nr_distances != r->nr_gets) {
        free(r->distance);
        r->distance = NULL;
    }
    return rc;
}

/* ---- results that are kept ---- */

static int result_path(const struct paper *paper, const struct paper_run *r, const char *suffix,
                       char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s/runs/%s.json%s", paper->opts.out, r->id, suffix);

    return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* A file as text that the caller frees; NULL: no file can be read. */
static char *load_text(const char *path)
{
    struct pipe_text p = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    int rc = p.fd < 0 ? -errno : 0;

    while (rc == 0 && p.fd >= 0)
        rc = take(&p);
    if (p.fd >= 0)
        close(p.fd);
    if (rc < 0) {
        free(p.text);
        return NULL;
    }
    return p.text;
}

/* Uses an earlier result. -ENOMEM. */
static int resume(const struct paper *paper, struct paper_run *r, bool *ret_found)
{
    char path[PAPER_PATH], *json;
    int rc = 0;

    *ret_found = false;
    if (result_path(paper, r, "", path, sizeof(path)) < 0)
        return 0;
    json = load_text(path);
    if (json)
        rc = read_result(json, r, ret_found);
    free(json);
    if (rc == 0 && *ret_found && r->status != PAPER_OK) {
        *ret_found = false;
        reset_result(r);
        r->status = PAPER_TO_DO;
    }
    return rc;
}

/* An error is ignored: a result that was not stored is measured again. */
static void keep(const struct paper *paper, const struct paper_run *r, const char *json)
{
    char path[PAPER_PATH], made[PAPER_PATH];
    FILE *f;
    bool good;

    if (result_path(paper, r, "", path, sizeof(path)) < 0 ||
        result_path(paper, r, ".new", made, sizeof(made)) < 0)
        return;
    f = fopen(made, "we");
    if (!f)
        return;
    good = fputs(json, f) >= 0;
    good = fclose(f) == 0 && good;
    if (!good || rename(made, path) < 0)
        unlink(made);
}

static void note_failure(struct paper_run *r, int status, const char *err)
{
    r->status = PAPER_FAILED;
    last_line(err, r->text, sizeof(r->text));
    if (r->text[0])
        return;
    snprintf(r->text, sizeof(r->text), "the process ended with %s %d and said nothing",
             WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void paper_name(struct paper *paper)
{
    for (size_t i = 0; i < paper->nr_runs; i++) {
        reset_result(&paper->runs[i]);
        name_run(paper, &paper->runs[i]);
    }
}

int paper_perform(struct paper *paper, struct paper_run *r, bool may_start)
{
    char args[PAPER_ARGS][PAPER_ARG], *argv[PAPER_ARGS + 1], *out = NULL, *err = NULL;
    size_t nr = run_args(&paper->opts, r, args);
    uint64_t begun = vv_now_ns();
    bool found = false;
    int status, rc = 0;

    for (size_t i = 0; i < nr; i++)
        argv[i] = args[i];
    argv[nr] = NULL;
    if (paper->opts.resume)
        rc = resume(paper, r, &r->kept);
    if (rc < 0 || r->kept || !may_start)
        return rc;
    rc = paper_spawn(paper->program, argv, paper->opts.run_limit_s, &status, &out, &err);
    r->elapsed_s = (double)(vv_now_ns() - begun) * 1e-9;
    if (rc == -EINTR || rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        r->status = PAPER_FAILED;
        snprintf(r->text, sizeof(r->text), "%s",
                 rc == -ETIMEDOUT ? "ended: it took longer than --run-limit" : strerror(-rc));
        return 0;
    }
    rc = read_result(out, r, &found);
    if (rc == 0 && !found)
        note_failure(r, status, err);
    if (rc == 0 && r->status == PAPER_OK)
        keep(paper, r, out);
    free(out);
    free(err);
    return rc;
}

/* ---- many GPUs ---- */

/* Columns of `varve sim scale --csv`: that of wall_s, and all up to the one behind it. */
enum { SCALE_WALL = 10, SCALE_FIELDS };

static size_t scale_args(const struct paper_opts *o, char (*args)[PAPER_ARG])
{
    size_t nr = 0;

    add_pair(args, &nr, "varve", "sim");
    add_arg(args, &nr, "scale");
    add_load(o, true, o->interval_ms, o->device_cache, args, &nr);
    add_arg(args, &nr, "--no-wait");
    /* Nodes like the paper's: 8 GPUs, two to a link, four disks. */
    add_pair(args, &nr, "--node-gpus", "8");
    add_pair(args, &nr, "--link-gpus", "2");
    add_pair(args, &nr, "--rate", "d2d=1000G,d2h=25G,h2d=25G,h2f=16G,f2h=16G");
    add_pair(args, &nr, "--node-rate", "link=25G,memory=160G");
    add_pair(args, &nr, "--gpus", o->is_short ? "8,16,32" : "8,16,32,64,128");
    add_pair(args, &nr, "--series",
             "next/none,next/one,next/all,score/none,score/one,score/all,ondemand");
    add_arg(args, &nr, "--no-bound");
    add_pair(args, &nr, "--csv", "-");
    return nr;
}

/* "next/all" and the like. */
static bool parse_series(const char *s, struct paper_scale_row *row)
{
    static const struct {
        const char *name;
        enum paper_engine engine;
    } kinds[] = {{"next/", PAPER_VARVE}, {"score/", PAPER_SCORE}};

    row->engine = PAPER_ONDEMAND;
    row->hints = SHOT_HINTS_NONE;
    if (strcmp(s, "ondemand") == 0)
        return true;
    for (size_t k = 0; k < VV_ARRAY_SIZE(kinds); k++) {
        size_t n = strlen(kinds[k].name);

        if (strncmp(s, kinds[k].name, n) != 0)
            continue;
        row->engine = kinds[k].engine;
        for (int h = SHOT_HINTS_NONE; h <= SHOT_HINTS_ALL; h++) {
            if (strcmp(s + n, paper_hints_name(h)) == 0) {
                row->hints = h;
                return true;
            }
        }
    }
    return false;
}

/* sync,series,gpus,nodes,checkpoint_gbps,restore_gbps,... and further on wall_s: true if the line is a
 * row. */
static bool parse_row(char *line, struct paper_scale_row *ret_row)
{
    struct paper_scale_row row = {.checkpoint_gbps = NAN, .restore_gbps = NAN, .wall_s = NAN};
    char *fields[SCALE_FIELDS] = {line}, *end;

    for (size_t i = 1; i < VV_ARRAY_SIZE(fields); i++) {
        fields[i] = strchr(fields[i - 1], ',');
        if (!fields[i])
            return false;
        *fields[i]++ = '\0';
    }
    row.barrier = strcmp(fields[0], "barrier") == 0;
    if ((!row.barrier && strcmp(fields[0], "none") != 0) || !parse_series(fields[1], &row))
        return false;
    row.gpus = (uint32_t)strtoul(fields[2], &end, 10);
    if (*end || row.gpus == 0)
        return false;
    row.checkpoint_gbps = strtod(fields[4], &end);
    row.failed = end == fields[4];
    row.restore_gbps = strtod(fields[5], &end);
    row.wall_s = strtod(fields[SCALE_WALL], &end);
    if (row.failed)
        row.checkpoint_gbps = row.restore_gbps = row.wall_s = NAN;
    *ret_row = row;
    return true;
}

static int read_rows(struct paper *paper, char *csv)
{
    size_t lines = 1;

    for (const char *s = csv; *s; s++)
        lines += *s == '\n';
    paper->scale = calloc(lines, sizeof(*paper->scale));
    if (!paper->scale)
        return -ENOMEM;
    for (char *save = NULL, *line = strtok_r(csv, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        if (parse_row(line, &paper->scale[paper->nr_scale]))
            paper->nr_scale++;
    return 0;
}

int paper_simulate(struct paper *paper)
{
    char args[PAPER_ARGS][PAPER_ARG], *argv[PAPER_ARGS + 1], *out = NULL, *err = NULL;
    size_t nr = scale_args(&paper->opts, args);
    int status, rc;

    for (size_t i = 0; i < nr; i++)
        argv[i] = args[i];
    argv[nr] = NULL;
    join_args(args, nr, paper->scale_command, sizeof(paper->scale_command));
    if (paper->opts.list)
        return 0;
    rc = paper_spawn(paper->program, argv, paper->opts.run_limit_s, &status, &out, &err);
    if (rc == -EINTR || rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        snprintf(paper->scale_text, sizeof(paper->scale_text), "%s",
                 rc == -ETIMEDOUT ? "ended: it took longer than --run-limit" : strerror(-rc));
        return 0;
    }
    rc = read_rows(paper, out);
    if (rc == 0 && (paper->nr_scale == 0 || status != 0))
        last_line(err, paper->scale_text, sizeof(paper->scale_text));
    if (rc == 0 && paper->nr_scale == 0 && !paper->scale_text[0])
        snprintf(paper->scale_text, sizeof(paper->scale_text), "the simulation printed no rows");
    free(out);
    free(err);
    return rc;
}
