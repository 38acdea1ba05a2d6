/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk data from one process to another, beside UCX's own benchmark on the same link.
 *
 *   bench_net                     both processes here, over the loopback
 *   bench_net --serve HOST:PORT   one half of it
 *   bench_net --ask HOST:PORT     the other half, perhaps on another machine
 *
 * The asking process requests ranges of a file in memory, several at a time, as the dataset cache does. Both ends
 * compute checksums, and the program reads a word of every answer. Before the clock starts, every byte of some
 * answers is compared.
 * ucx_perftest (package ucx-utils), where it is found, sends as much by active messages; it computes no checksums.
 * Both use TCP unless UCX_TLS says otherwise: within one machine UCX would not use the link at all.
 * scripts/bench-net makes a link between two network namespaces, and all transports take turns on it.
 * One JSON object for each transport; the ratio is ours to ucx_perftest's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "net/net.h"

#define TOKEN      "bench_net has no secrets"
#define FILE_BYTES (UINT64_C(64) << 20)

enum { DEPTH_MAX = 32, WORKERS = 2, ROUNDS_MAX = 99 };

struct conf {
    enum vv_net_transport transport;
    uint64_t size;
    unsigned count, depth, rounds;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_net: %s: %s\n", what, why);
    exit(1);
}

/* The bytes of the file at an offset. */
static uint64_t word_at(uint64_t i)
{
    return i * UINT64_C(0x9E3779B97F4A7C15);
}

/* ---- the process that answers ---- */

struct job {
    struct vv_net_req *req;
    uint64_t range[2];
};

static struct {
    int file;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct job queue[1024];
    unsigned first, nr;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void on_request(void *user, struct vv_net_req *req, const struct vv_net_msg *m)
{
    struct vv_net_reply refuse = {.fd = -1, .status = -EINVAL};

    (void)user;
    pthread_mutex_lock(&server.lock);
    if (m->body_bytes == sizeof(uint64_t[2]) && server.nr < VV_ARRAY_SIZE(server.queue)) {
        struct job *j = &server.queue[(server.first + server.nr++) % VV_ARRAY_SIZE(server.queue)];
        j->req = req;
        memcpy(j->range, m->body, sizeof(j->range));
        req = NULL;
        pthread_cond_signal(&server.more);
    }
    pthread_mutex_unlock(&server.lock);
    if (req)
        (void)vv_net_respond(req, &refuse);
}

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        struct vv_net_reply reply = {.fd = server.file};
        struct job j;
        pthread_mutex_lock(&server.lock);
        while (server.nr == 0)
            pthread_cond_wait(&server.more, &server.lock);
        j = server.queue[server.first];
        server.first = (server.first + 1) % VV_ARRAY_SIZE(server.queue);
        server.nr--;
        pthread_mutex_unlock(&server.lock);
        reply.offset = j.range[0];
        reply.data_bytes = j.range[1];
        (void)vv_net_respond(j.req, &reply);
    }
    return NULL;
}

static struct vv_net *open_net(const struct conf *conf, uint64_t id, const char *listen)
{
    struct vv_net_opts opts = {.transport = conf->transport,
                               .listen = listen,
                               .self = id,
                               .token = TOKEN,
                               .token_bytes = sizeof(TOKEN) - 1,
                               .events = {.request = on_request}};
    char err[256] = "";
    struct vv_net *net;

    if (vv_net_open(&opts, err, sizeof(err), &net) != 0)
        die(vv_net_transport_name(conf->transport), err);
    return net;
}

/* Serves until it is killed; writes its address to `out`. */
static void serve(const struct conf *conf, const char *listen, int out)
{
    char addr[VV_NET_ADDR_MAX + 1] = "";
    pthread_t thread;
    struct vv_net *net;
    uint64_t *p;

    server.file = memfd_create("bench", MFD_CLOEXEC);
    if (server.file < 0 || ftruncate(server.file, FILE_BYTES) != 0)
        die("memfd", strerror(errno));
    p = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, server.file, 0);
    if (p == MAP_FAILED)
        die("mmap", strerror(errno));
    for (uint64_t i = 0; i < FILE_BYTES / 8; i++)
        p[i] = word_at(i);
    for (unsigned i = 0; i < WORKERS; i++) {
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            die("thread", "none");
    }
    net = open_net(conf, 1, listen);
    snprintf(addr, sizeof(addr), "%s", vv_net_addr(net));
    if (out < 0)
        printf("%s\n", addr), fflush(stdout);
    else if (write(out, addr, sizeof(addr)) != sizeof(addr))
        die("pipe", strerror(errno));
    for (;;)
        pause();
}

/* ---- the process that asks ---- */

static uint64_t offset_of(const struct conf *conf, unsigned i)
{
    return i * conf->size % (FILE_BYTES - conf->size + 1) / 4096 * 4096;
}

static struct vv_net_call *start(struct vv_net *net, const struct conf *conf, unsigned i)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    uint64_t range[2] = {offset_of(conf, i), conf->size};
    struct vv_net_call *call;
    int rc;

    ask.peer = 1;
    ask.body = range;
    ask.body_bytes = sizeof(range);
    ask.data_max = conf->size;
    ask.deadline_ns = vv_now_ns() + 60 * VV_NS_PER_S;
    rc = vv_net_start(net, &ask, &call);
    if (rc)
        die("asking", strerror(-rc));
    return call;
}

/* Ends the program if the data are not the bytes that the server sends for request i. */
static void compare(const struct conf *conf, const uint64_t *data, unsigned i)
{
    uint64_t first = offset_of(conf, i) / 8;

    for (uint64_t k = 0; k < conf->size / 8; k++) {
        if (data[k] != word_at(first + k))
            die("the answer", "wrong bytes");
    }
}

/* Seconds that `count` transfers take. Checksums verify them; with `look`, to warm up, every byte is compared too. */
static double transfer(struct vv_net *net, const struct conf *conf, unsigned count, bool look)
{
    struct vv_net_call *calls[DEPTH_MAX];
    uint64_t begin = vv_now_ns(), sum = 0;
    unsigned asked = 0;

    for (unsigned i = 0; i < count; i++) {
        struct vv_net_answer a;
        int rc;
        for (; asked < count && asked < i + conf->depth; asked++)
            calls[asked % conf->depth] = start(net, conf, asked);
        rc = vv_net_wait(calls[i % conf->depth], VV_NEVER_NS, &a);
        if (rc || a.status || a.data_bytes != conf->size)
            die("the answer", strerror(-(rc ? rc : a.status ? a.status : -EPROTO)));
        if (look)
            compare(conf, a.data, i);
        sum += *(const uint64_t *)a.data;
        vv_net_end(calls[i % conf->depth]);
    }
    if (sum == 1)
        fputs("", stderr); /* uses `sum`, so that the compiler keeps the reads */
    return (double)(vv_now_ns() - begin) / 1e9;
}

static double ask_all(const struct conf *conf, const char *addr)
{
    struct vv_net *net = open_net(conf, 2, "127.0.0.1:0");
    double gbs[ROUNDS_MAX];

    if (vv_net_peer_set(net, 1, addr, VV_NET_KEEP) != 0)
        die(addr, "not an address");
    (void)transfer(net, conf, VV_MAX(conf->count / 10, 4), true);
    for (unsigned r = 0; r < conf->rounds; r++)
        gbs[r] = (double)conf->size * conf->count / transfer(net, conf, conf->count, false) / 1e9;
    vv_net_free(net);
    return samples_median(gbs, conf->rounds);
}

/* ---- ucx_perftest ---- */

static pid_t spawn_perftest(const struct conf *conf, const char *port, const char *host, int out)
{
    char size[32], count[32];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(size, sizeof(size), "%" PRIu64, conf->size);
    snprintf(count, sizeof(count), "%u", conf->count);
    dup2(out, 1);
    if (!freopen("/dev/null", "w", stderr))
        _exit(127);
    if (host)
        execlp("ucx_perftest", "ucx_perftest", host, "-p", port, "-t", "ucp_am_bw", "-s", size,
               "-n", count, "-w", "20", "-f", "-v", (char *)NULL);
    else
        execlp("ucx_perftest", "ucx_perftest", "-p", port, (char *)NULL);
    _exit(127);
}

/* One run: GB/s, or 0 if it failed. */
static double perftest_once(const struct conf *conf)
{
    char port[16], line[512];
    int out[2], status;
    double mbs = 0;
    pid_t answers, asks;
    FILE *in;

    snprintf(port, sizeof(port), "%d", 20000 + getpid() % 20000);
    if (pipe(out) != 0)
        return 0;
    answers = spawn_perftest(conf, port, NULL, open("/dev/null", O_WRONLY | O_CLOEXEC));
    usleep(300000);
    asks = spawn_perftest(conf, port, "127.0.0.1", out[1]);
    close(out[1]);
    in = fdopen(out[0], "r");
    /* Iterations, percentile, averages, then bandwidth: average and overall, in MB of 2^20. */
    while (in && fgets(line, sizeof(line), in)) {
        double v[8];
        if (sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf", v, v + 1, v + 2, v + 3, v + 4, v + 5) == 6)
            mbs = v[5];
    }
    if (in)
        fclose(in);
    waitpid(asks, &status, 0);
    kill(answers, SIGKILL);
    waitpid(answers, &status, 0);
    return mbs * 1048576 / 1e9;
}

static double perftest(const struct conf *conf)
{
    double gbs[ROUNDS_MAX];

    for (unsigned r = 0; r < conf->rounds; r++)
        gbs[r] = perftest_once(conf);
    return samples_median(gbs, conf->rounds);
}

/* ---- main ---- */

static void report(const struct conf *conf, double ours, double theirs)
{
    struct json out = json_begin(stdout, JSON_SPACED);

    json_object(&out, NULL);
    json_text(&out, "transport", vv_net_transport_name(conf->transport));
    json_uint(&out, "bytes", conf->size);
    json_uint(&out, "count", conf->count);
    json_uint(&out, "depth", conf->depth);
    json_number(&out, "gb_per_s", "%.3f", ours);
    if (theirs > 0) {
        json_number(&out, "ucx_perftest_gb_per_s", "%.3f", theirs);
        json_number(&out, "ratio", "%.3f", ours / theirs);
    }
    json_close(&out);
    json_end(&out);
    fflush(stdout);
}

/* Both halves, each transport in a process of its own. */
static void run_here(const struct conf *conf, double theirs)
{
    char addr[VV_NET_ADDR_MAX + 1];
    int out[2];
    pid_t pid;

    if (pipe(out) != 0)
        die("pipe", strerror(errno));
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(conf, "127.0.0.1:0", out[1]);
    }
    close(out[1]);
    if (read(out[0], addr, sizeof(addr)) != sizeof(addr))
        die("the server", "it did not start");
    report(conf, ask_all(conf, addr), theirs);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void both_here(struct conf *conf, bool all)
{
    double theirs = perftest(conf);

    for (int t = VV_NET_TCP; t < VV_NET_TRANSPORTS; t++) {
        char err[256];
        pid_t pid;
        if (!all && conf->transport != (enum vv_net_transport)t)
            continue;
        if (vv_net_transport_check((enum vv_net_transport)t, err, sizeof(err)) != 0) {
            fprintf(stderr, "bench_net: %s\n", err);
            continue;
        }
        conf->transport = (enum vv_net_transport)t;
        pid = fork();
        if (pid == 0) {
            run_here(conf, theirs);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

struct net_opts {
    struct conf conf;
    bool one; /* transport */
    const char *listen, *ask;
};

static int set_transport(const char *value, void *arg)
{
    return vv_net_transport_parse(value, &((struct net_opts *)arg)->conf.transport);
}

#define AT(field) offsetof(struct net_opts, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "serve", .arg = "ADDR", .help = "only answer, at this address",
     .at = AT(listen)},
    {OPT_TEXT, .name = "ask", .arg = "ADDR", .help = "only ask who serves there", .at = AT(ask)},
    {OPT_SET, .name = "transport", .arg = "NAME", .set = set_transport,
     .given = OPT_GIVEN(struct net_opts, one), .help = "only this one (all)",
     .takes = "a transport: tcp or ucx"},
    {OPT_U64, .name = "size", .arg = "BYTES", .at = AT(conf.size), .least = 8, .most = FILE_BYTES,
     .help = "of a transfer (4194304)"},
    {OPT_U32, .name = "count", .arg = "N", .at = AT(conf.count), .least = 1,
     .help = "transfers of a round (400)"},
    {OPT_U32, .name = "depth", .arg = "N", .at = AT(conf.depth), .least = 1, .most = DEPTH_MAX,
     .help = "under way at once (4)"},
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(conf.rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "rounds, whose median counts (5)"},
};

static const struct opts command = {
    .command = "bench_net",
    .usage = "[OPTION]...",
    .about = "Measures transfers between two processes, by transport.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct net_opts o = {
        .conf = {.transport = VV_NET_TCP, .size = 4 << 20, .count = 400, .depth = 4, .rounds = 5}};
    struct conf *conf = &o.conf;
    int first, status = opts_parse(&command, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    setenv("UCX_TLS", "tcp", 0);
    if (o.listen)
        serve(conf, o.listen, -1);
    else if (o.ask)
        report(conf, ask_all(conf, o.ask), 0);
    else
        both_here(conf, !o.one);
    return 0;
}
