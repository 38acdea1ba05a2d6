/* SPDX-License-Identifier: Apache-2.0 */
/* Options, sizes, scripts, and the bound of a script. */
#include "lab/shot/shot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/varve.h>

#include "cli/common/command.h"
#include "t.h"

#define MAX_ARGS 64

/* Splits a line at blanks; the words are valid until the next call. */
static int parse(const char *line, struct shot_opts *ret_opts)
{
    static char copy[4096];
    char *argv[MAX_ARGS] = {"shot"};
    int argc = 1;

    snprintf(copy, sizeof(copy), "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) {
        T_CHECK(argc < MAX_ARGS);
        argv[argc++] = w;
    }
    return shot_opts_parse("shot", argc, argv, ret_opts);
}

static struct shot_opts parsed(const char *line)
{
    struct shot_opts o;

    T_EQ(parse(line, &o), -1);
    return o;
}

/* Parses a line with a stream in a file, and returns the printed text. */
static int printed(const char *line, int fd, struct shot_opts *ret_opts, char *text, size_t size)
{
    FILE *f = tmpfile();
    int status, keep = dup(fd);
    ssize_t n;

    T_CHECK(f && keep >= 0);
    fflush(NULL);
    T_CHECK(dup2(fileno(f), fd) >= 0);
    status = parse(line, ret_opts);
    fflush(NULL);
    T_CHECK(dup2(keep, fd) >= 0);
    close(keep);
    n = pread(fileno(f), text, size - 1, 0);
    T_CHECK(n >= 0);
    text[n] = '\0';
    fclose(f);
    return status;
}

static void refused(const char *line, const char *part_of_message)
{
    struct shot_opts o = {.ckpts = 12345};
    char err[512];

    T_EQ(printed(line, STDERR_FILENO, &o, err, sizeof(err)), CLI_USAGE);
    T_EQ(o.ckpts, 12345);
    if (!strstr(err, part_of_message))
        t_fail(__FILE__, __LINE__, "%s: '%s' lacks '%s'", line, err, part_of_message);
}

static void defaults(void)
{
    struct shot_opts o = parsed("");

    T_EQ(o.ckpts, 96);
    T_EQ(o.size_bytes, 8 << 20);
    T_EQ(o.order, SHOT_ORDER_REV);
    T_EQ(o.hints, SHOT_HINTS_ALL);
    T_EQ(o.consume, SHOT_CONSUME_ONCE);
    T_CHECK(o.wait && !o.barrier && !o.json);
    T_EQ(o.page_bytes, 0);
}

static void every_option(void)
{
    struct shot_opts o = parsed(
        "--ckpts 7 --sizes f.csv:3 --scale 0.0625 --seed 42 --order irr --hints one "
        "--interval-ms 2.5 --no-wait --consume keep --barrier --device none --device-cache 2.5% "
        "--host-cache=64M --local /x --local-cache 1G --local-io buffered --level local "
        "--rate d2d=4G,h2f=40MB/s,disk=50M --policy score-now --page 64K --procs 3 --json");

    T_EQ(o.ckpts, 7);
    T_STREQ(o.sizes, "f.csv:3");
    T_CHECK(o.scale == 0.0625);
    T_EQ(o.seed, 42);
    T_EQ(o.order, SHOT_ORDER_IRR);
    T_EQ(o.hints, SHOT_HINTS_ONE);
    T_EQ(o.interval_ns, 2500000);
    T_EQ(o.consume, SHOT_CONSUME_KEEP);
    T_CHECK(!o.wait && o.barrier && o.json);
    T_EQ(o.device, VARVE_DEVICE_NONE);
    T_EQ(shot_cap_bytes(&o.device_cache, UINT64_C(400) << 20, 1 << 16), 10 << 20);
    T_EQ(shot_cap_bytes(&o.host_cache, UINT64_C(400) << 20, 1 << 16), 64 << 20);
    T_STREQ(o.local, "/x");
    T_EQ(o.local_cache.bytes, 1 << 30);
    T_EQ(o.local_io, VARVE_LOCAL_IO_BUFFERED);
    T_EQ(o.level, VARVE_LEVEL_LOCAL);
    T_EQ(o.rate[SHOT_HOP_D2D], 4000000000);
    T_EQ(o.rate[SHOT_HOP_H2F], 40000000);
    T_EQ(o.rate[SHOT_HOP_DISK], 50000000);
    T_EQ(o.rate[SHOT_HOP_D2H], 0);
    T_EQ(o.policy, VARVE_POLICY_SCORE_NOW);
    T_EQ(o.page_bytes, 65536);
    T_EQ(o.procs, 3);
}

static void rates_for_the_library(void)
{
    struct shot_opts o = parsed("--rate d2d=4G,h2f=40M,disk=50M,link=1G");
    char buf[64], small[8] = "keep";

    T_OK(shot_opts_rates(&o, buf, sizeof(buf)));
    T_STREQ(buf, "d2d=4000000000,h2h=4000000000,h2f=40000000");
    T_ERR(shot_opts_rates(&o, small, sizeof(small)), -ENOSPC);
    T_STREQ(small, "keep");
}

static void bad_options(void)
{
    refused("--ckpts", "'--ckpts' needs a value");
    refused("--ckpts 0", "--ckpts: '0' is not a whole number from 1 to 100000000");
    refused("--ckpts -1", "--ckpts: '-1'");
    refused("--ckpts 1x", "--ckpts: '1x'");
    refused("--chkpts 5", "'--chkpts'");
    refused("5", "unexpected argument '5'");
    refused("--json=yes", "'--json' takes no value");
    refused("--order up", "seq|rev|irr|binomial");
    refused("--size 1M --sizes a.csv", "exclude");
    refused("--load 2 --interval-ms 3", "exclude");
    refused("--load 0", "--load: '0' is not a number above 0");
    refused("--scale 0", "--scale");
    refused("--scale nan", "--scale");
    refused("--size 0", "--size");
    refused("--rate", "'--rate' needs a value");
    refused("--rate x2y=4G", "--rate");
    refused("--rate d2d", "--rate");
    refused("--rate d2d=0", "--rate");
    refused("--rate d2d=1G,", "--rate");
    refused("--device-cache 5%%", "--device-cache");
    refused("--slots 4", "--slots");
    refused("--order binomial --wait", "--wait");
    refused("--order binomial --consume once", "--consume once");
    refused("--page 100K", "power of two");
    refused("--procs 0", "--procs");
    refused("--device gpu", "one of auto|cuda|host|none");
    refused("--local none --level local", "--level local");
}

static void help_comes_first(void)
{
    struct shot_opts o;
    char text[8192];

    T_EQ(printed("--help --ckpts 0", STDOUT_FILENO, &o, text, sizeof(text)), CLI_OK);
    T_CHECK(strstr(text, "usage: shot [OPTION]") && strstr(text, "--order seq|rev|irr|binomial"));
    T_CHECK(strstr(text, "--local-io auto|direct|buffered"));
}

static void printed_options_read_back(void)
{
    static const char *const lines[] = {
        "",
        "--ckpts 5 --size 12345 --order irr --seed 18446744073709551615 --no-wait --json --barrier",
        "--sizes x.csv --scale 0.1 --load 0.7 --rate f2h=12345678,link=3G --device-cache 33.3%",
        "--order binomial --slots 5 --hints one --interval-ms 0.123",
        "--local none --host-cache 0 --policy lru --device none --consume keep --procs 8",
        "--device cuda --compute sleep",
    };
    /* Options with their default value are left out. */
    static const char *const shown[] = {
        "",
        "--ckpts 5 --size 12345 --seed 18446744073709551615 --order irr --no-wait --barrier",
        "--sizes x.csv --scale 0.10000000000000001 --load 0.69999999999999996",
        "--order binomial --slots 5 --hints one --interval-ms 0.123",
        "--consume keep --procs 8 --device none --host-cache 0 --local none --policy lru",
        "--device cuda --compute sleep",
    };

    for (size_t i = 0; i < VV_ARRAY_SIZE(lines); i++) {
        struct shot_opts a = parsed(lines[i]), b;
        char *one = NULL, *two = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&one, &size);

        T_CHECK(f);
        shot_opts_print(f, &a);
        fclose(f);
        for (const char *at = shown[i]; *at; at += strcspn(at, " "), at += *at == ' ') {
            char word[64];
            snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, " "), at);
            T_CHECK(strstr(one, word));
        }
        T_CHECK(i > 0 || !*one);
        T_CHECK(!strstr(one, "--policy next") && !strstr(one, "--hints all"));
        b = parsed(one);
        f = open_memstream(&two, &size);
        T_CHECK(f);
        shot_opts_print(f, &b);
        fclose(f);
        T_STREQ(one, two);
        T_EQ(a.seed, b.seed);
        T_CHECK(a.device_cache.share == b.device_cache.share && a.load == b.load);
        T_EQ(a.interval_ns, b.interval_ns);
        T_EQ(a.wait, b.wait);
        T_EQ(a.compute, b.compute);
        free(one);
        free(two);
    }
}

static const char *write_file(const char *text)
{
    static char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/sizes.csv", t_tmpdir());
    f = fopen(path, "w");
    T_CHECK(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void sizes_by_column(void)
{
    struct shot_opts o;
    struct shot_sizes s;
    char err[256], spec[5000];
    const char *path = write_file("one,two\n10,40\n20,50\n\n30,60\n");
    static const uint64_t want[] = {10, 20, 30, 40, 50, 60, 10, 20};

    shot_opts_init(&o);
    o.ckpts = 8;
    o.sizes = path;
    T_OK(shot_sizes_init(&o, err, sizeof(err), &s));
    for (size_t i = 0; i < 8; i++)
        T_EQ(s.bytes[i], want[i]);
    T_EQ(s.total_bytes, 240);
    T_EQ(s.largest_bytes, 60);
    shot_sizes_fini(&s);

    snprintf(spec, sizeof(spec), "%s:1", path);
    o.sizes = spec;
    o.scale = 0.05;
    o.ckpts = 4;
    T_OK(shot_sizes_init(&o, err, sizeof(err), &s));
    T_EQ(s.bytes[0], 2);
    T_EQ(s.bytes[1], 3); /* 2.5, rounded */
    T_EQ(s.bytes[2], 3);
    T_EQ(s.bytes[3], 2);
    shot_sizes_fini(&s);
    shot_sizes_fini(NULL);
}

static void bad_sizes(void)
{
    struct shot_opts o;
    struct shot_sizes s;
    char err[5200], spec[5000];

    shot_opts_init(&o);
    o.sizes = "/nonexistent/file.csv";
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -ENOENT);
    T_CHECK(strstr(err, "file.csv"));
    o.sizes = write_file("1,2\n3\n");
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -EINVAL);
    T_CHECK(strstr(err, ":2:"));
    o.sizes = write_file("1,2\n3,x\n");
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -EINVAL);
    o.sizes = write_file("1,-2\n");
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -EINVAL);
    o.sizes = write_file("");
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -EINVAL);
    snprintf(spec, sizeof(spec), "%s:2", write_file("1,2\n"));
    o.sizes = spec;
    T_ERR(shot_sizes_init(&o, err, sizeof(err), &s), -EINVAL);
    T_CHECK(strstr(err, "no column 2"));
}

static void interval_from_load(void)
{
    struct shot_opts o = parsed("--ckpts 4 --size 1000 --load 2");
    struct shot_sizes s;
    uint64_t ns = 0;
    char err[64];

    T_OK(shot_sizes_init(&o, err, sizeof(err), &s));
    T_OK(shot_interval_ns(&o, &s, 1e6, &ns));
    T_EQ(ns, 500000);
    T_ERR(shot_interval_ns(&o, &s, 0, &ns), -EINVAL);
    shot_sizes_fini(&s);
}

/* A script as text: c compute, b barrier, h hint, P put, W wait, S start, G get, d discard. */
static char *script_text(const char *line)
{
    static char text[8192];
    struct shot_opts o = parsed(line);
    struct shot_sizes sizes;
    struct shot_script s;
    char err[64];
    size_t n = 0;

    T_OK(shot_sizes_init(&o, err, sizeof(err), &sizes));
    T_OK(shot_script_init(&o, &sizes, 1000, 0, &s));
    text[0] = '\0';
    for (size_t i = 0; i < s.nr_ops; i++) {
        const struct shot_op *op = &s.ops[i];

        T_CHECK(n + 32 < sizeof(text));
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%c", "cbhPWSGd"[op->kind]);
        if (op->kind == SHOT_COMPUTE)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%d", (int)(op->ns / 1000));
        else if (op->kind != SHOT_BARRIER && op->kind != SHOT_WAIT_FLUSH && op->kind != SHOT_START)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%d", (int)op->version);
        n += (size_t)snprintf(text + n, sizeof(text) - n, " ");
    }
    shot_script_fini(&s);
    shot_sizes_fini(&sizes);
    return text;
}

static void scripts_of_two_phases(void)
{
    T_STREQ(script_text("--ckpts 2 --order rev"), "h1 h0 c1 P0 c1 P1 W S c1 G1 c1 G0 ");
    T_STREQ(script_text("--ckpts 2 --order seq --no-wait --hints none"),
            "c1 P0 c1 P1 S c1 G0 c1 G1 ");
    T_STREQ(script_text("--ckpts 3 --order seq --hints one --barrier"),
            "c1 b P0 c1 b P1 h0 c1 b P2 W S h1 c1 b G0 h2 c1 b G1 c1 b G2 ");
}

static void script_of_revolve(void)
{
    /* Four steps, two states: 0 and 1 are stored; steps 3, 2 and 1 are reversed from state 1, step
     * 0 from state 0. Compute time is forward steps and the adjoint. */
    T_STREQ(script_text("--ckpts 4 --order binomial --slots 2"),
            "h1 h1 h0 c1 P0 c1 P1 S c3 G1 c2 G1 d1 c1 G0 d0 ");
    T_STREQ(script_text("--ckpts 1 --order binomial --slots 1"), "c1 P0 d0 ");
}

static void irregular_is_a_seeded_permutation(void)
{
    struct shot_opts o = parsed("--ckpts 50 --order irr --size 10 --seed 3");
    struct shot_sizes sizes;
    uint64_t first[3][50];
    char err[64];

    T_OK(shot_sizes_init(&o, err, sizeof(err), &sizes));
    for (int round = 0; round < 3; round++) {
        struct shot_script s;
        bool seen[50] = {0};
        size_t n = 0;

        T_OK(shot_script_init(&o, &sizes, 1, round == 2, &s));
        for (size_t i = 0; i < s.nr_ops; i++) {
            if (s.ops[i].kind != SHOT_GET)
                continue;
            T_CHECK(s.ops[i].version < 50 && !seen[s.ops[i].version]);
            seen[s.ops[i].version] = true;
            first[round][n++] = s.ops[i].version;
        }
        T_EQ(n, 50);
        T_EQ(s.put_bytes, 500);
        T_EQ(s.get_bytes, 500);
        T_EQ(s.peak_live_bytes, 500);
        shot_script_fini(&s);
    }
    T_CHECK(memcmp(first[0], first[1], sizeof(first[0])) == 0);
    T_CHECK(memcmp(first[0], first[2], sizeof(first[0])) != 0);
    shot_sizes_fini(&sizes);
    shot_script_fini(NULL);
}

static double bound_of(const char *line, const struct shot_machine *m, const uint64_t *gaps)
{
    struct shot_opts o = parsed(line);
    struct shot_sizes sizes;
    struct shot_script s;
    struct bound_result r;
    char err[64];

    T_OK(shot_sizes_init(&o, err, sizeof(err), &sizes));
    T_OK(shot_script_init(&o, &sizes, o.interval_ns, 0, &s));
    T_OK(shot_bound(&s, m, gaps, &r));
    shot_script_fini(&s);
    shot_sizes_fini(&sizes);
    return r.total_s;
}

static void bound_of_a_script(void)
{
    struct shot_machine m = {.has_device = true, .device_bytes = 1000};
    const uint64_t gaps[] = {0, 0, 0, 0};

    m.rate[SHOT_HOP_D2D] = 1000;
    m.rate[SHOT_HOP_D2H] = 100;
    m.rate[SHOT_HOP_H2D] = 250;
    /* Two puts at 1000 bytes/s, two gets at 1250; compute of 100 s hides the rest. */
    T_CHECK(fabs(bound_of("--ckpts 2 --size 1000 --interval-ms 100000", &m, NULL) - 3.6) < 1e-9);
    /* Measured gaps of 0 instead: 1000 bytes down at 100, 1000 up at 250. */
    T_CHECK(fabs(bound_of("--ckpts 2 --size 1000 --interval-ms 100000", &m, gaps) - 14) < 1e-9);
    /* Host memory and disk: 500 of 2000 bytes fit, staging included. */
    m = (struct shot_machine){
        .has_disk = true, .device_bytes = 1 << 20, .host_bytes = 400, .staging_bytes = 100};
    m.rate[SHOT_HOP_H2H] = 1e6;
    m.rate[SHOT_HOP_H2F] = m.rate[SHOT_HOP_F2H] = 10;
    T_CHECK(fabs(bound_of("--ckpts 2 --size 1000 --interval-ms 0", &m, NULL) - 300) < 0.01);
}

static void binomial_bound_is_finite(void)
{
    struct shot_machine m = {.has_device = true, .has_disk = true};
    double small, large;

    m.device_bytes = 20;
    m.host_bytes = 40;
    for (int h = 0; h < SHOT_HOP_LINK; h++)
        m.rate[h] = h == SHOT_HOP_D2D ? 1e4 : 1e3;
    small = bound_of("--ckpts 64 --size 10 --order binomial --interval-ms 1", &m, NULL);
    m.host_bytes = 0;
    m.device_bytes = 10;
    large = bound_of("--ckpts 64 --size 10 --order binomial --interval-ms 1", &m, NULL);
    T_CHECK(small > 0 && large > small && isfinite(large));
}

int main(void)
{
    T_RUN(defaults);
    T_RUN(every_option);
    T_RUN(rates_for_the_library);
    T_RUN(bad_options);
    T_RUN(help_comes_first);
    T_RUN(printed_options_read_back);
    T_RUN(sizes_by_column);
    T_RUN(bad_sizes);
    T_RUN(interval_from_load);
    T_RUN(scripts_of_two_phases);
    T_RUN(script_of_revolve);
    T_RUN(irregular_is_a_seeded_permutation);
    T_RUN(bound_of_a_script);
    T_RUN(binomial_bound_is_finite);
    return t_done();
}
