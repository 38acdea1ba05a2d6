/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, verdicts and the printed forms. */
#include "lab/shot/report.h"

#include <math.h>
#include <stdlib.h>

#include "t.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

static struct shot_report sample(void)
{
    struct shot_report r;

    T_OK(shot_report_init(2, &r));
    r.command = "sim";
    shot_opts_init(&r.opts);
    for (int i = 0; i < 2; i++) {
        struct shot_proc *p = &r.procs[i];

        T_OK(shot_report_calls(p, 2, 3));
        p->put_bytes = 2000000000;
        p->get_bytes = 3000000000;
        p->put_blocked_s[0] = 0.25;
        p->put_blocked_s[1] = 0.75 + i;
        for (int g = 0; g < 3; g++) {
            p->get_blocked_s[g] = 0.5;
            p->distance[g] = (uint32_t)(g + i);
        }
        p->wall_s = 10 + i;
        p->wait_s = 1;
        p->utilisation = 0.5 + 0.25 * i;
        p->verified = true;
        p->bound = (struct bound_result){2, 1, 1, 0, 0};
    }
    shot_report_finish(&r);
    return r;
}

static void adds_up(void)
{
    struct shot_report r = sample();

    T_CHECK(near(r.blocked_checkpoint_s, 3));
    T_CHECK(near(r.blocked_restore_s, 3));
    T_CHECK(near(r.checkpoint_gbps, 4.0 / 3));
    T_CHECK(near(r.restore_gbps, 2));
    T_CHECK(near(r.bound_s, 4));
    T_CHECK(near(r.bound_ratio, 1.5));
    T_CHECK(near(r.prefetch_distance_mean, 1.5));
    T_CHECK(near(r.utilisation, 0.625));
    T_CHECK(near(r.wall_s, 11));
    T_CHECK(near(r.wait_s, 2));
    T_CHECK(r.verified);
    shot_report_fini(&r);
    shot_report_fini(NULL);
}

static void verdicts(void)
{
    struct shot_report r = sample();
    char err[256];

    T_OK(shot_report_check(&r, err, sizeof(err)));
    /* One process below its bound fails the run, though all together are above. */
    r.procs[0].bound.total_s = 2.5 / 0.97;
    T_ERR(shot_report_check(&r, err, sizeof(err)), -ERANGE);
    T_CHECK(strstr(err, "process 0"));
    r.procs[0].bound.total_s = 2.5 / 0.981;
    T_OK(shot_report_check(&r, err, sizeof(err)));
    r.is_void = true;
    T_ERR(shot_report_check(&r, err, sizeof(err)), -EAGAIN);
    r.procs[1].verified = false;
    shot_report_finish(&r);
    T_ERR(shot_report_check(&r, err, sizeof(err)), -EBADMSG);
    shot_report_fini(&r);
}

/* 40 bytes twice through a disk of 10 a second, half of it in memory: 4 s and 4 s with blocking I/O, 2 s and 2 s
 * at best; the run took 5 with its computing. */
static void speedup(void)
{
    struct shot_report r;

    T_OK(shot_report_init(1, &r));
    T_OK(shot_report_calls(&r.procs[0], 4, 4));
    shot_opts_init(&r.opts);
    r.machine = (struct shot_machine){.has_disk = true, .host_bytes = 20};
    r.machine.rate[SHOT_HOP_H2F] = r.machine.rate[SHOT_HOP_F2H] = 10;
    r.interval_ns = 125000000;
    r.procs[0].put_bytes = r.procs[0].get_bytes = 40;
    for (int i = 0; i < 4; i++)
        r.procs[0].put_blocked_s[i] = r.procs[0].get_blocked_s[i] = 0.5;
    shot_report_finish(&r);
    T_CHECK(near(r.expected_speedup, 9.0 / 4) && near(r.speedup, 9.0 / 5));
    T_CHECK(r.expected_speedup_running == 0);
    /* Half as fast while it ran: 17 s of blocking I/O against 4 s for each direction of 20 bytes. */
    r.procs[0].rate[SHOT_HOP_H2F] = r.procs[0].rate[SHOT_HOP_F2H] = 5;
    shot_report_finish(&r);
    T_CHECK(near(r.expected_speedup_running, 17.0 / 8));
    r.procs[0].get_bytes = 30; /* not all of it is read back: the model does not apply */
    shot_report_finish(&r);
    T_CHECK(r.speedup == 0);
    shot_report_fini(&r);
}

/* The expected time by bandwidths, of every process. */
static void baselines_are_expected(void)
{
    struct shot_report r;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    T_OK(shot_report_init(2, &r));
    shot_opts_init(&r.opts);
    for (int i = 0; i < 2; i++) {
        T_OK(shot_report_calls(&r.procs[i], 4, 4));
        r.procs[i].put_bytes = r.procs[i].get_bytes = 40;
    }
    r.expected = (struct shot_expected){.known = true, .put_bps = 40, .get_bps = 80};
    shot_report_finish(&r);
    T_CHECK(near(r.expected_checkpoint_s, 2) && near(r.expected_restore_s, 1));
    shot_report_print(f, &r);
    shot_report_print_json(f, &r);
    fclose(f);
    T_CHECK(strstr(text, "expected       2.0000 s  checkpoint, 1.0000 s restore"));
    T_CHECK(strstr(text, "\"expected_checkpoint_s\":2,\"expected_restore_s\":1,"));
    free(text);
    shot_report_fini(&r);
}

static void json_is_complete(void)
{
    static const char *const keys[] = {
        "checkpoint_gbps",
        "restore_gbps",
        "blocked_checkpoint_s",
        "blocked_restore_s",
        "bound_s",
        "bound_ratio",
        "speedup",
        "expected_speedup",
        "expected_speedup_running",
        "prefetch_distance_mean",
        "utilisation",
        "verified",
        "options",
        "machine",
        "processes",
    };
    struct shot_report r = sample();
    char *text = NULL;
    size_t size = 0;
    int depth = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    shot_report_print_json(f, &r);
    fclose(f);
    for (size_t i = 0; i < VV_ARRAY_SIZE(keys); i++) {
        char quoted[64];

        snprintf(quoted, sizeof(quoted), "\"%s\":", keys[i]);
        if (!strstr(text, quoted))
            t_fail(__FILE__, __LINE__, "no key %s in %s", keys[i], text);
    }
    for (const char *s = text; *s; s++) {
        depth += *s == '{' || *s == '[';
        depth -= *s == '}' || *s == ']';
        T_CHECK(depth > 0 || strcmp(s, "}\n") == 0 || strcmp(s, "\n") == 0);
    }
    T_EQ(depth, 0);
    T_CHECK(strstr(text, "\"bound_ratio\":1.5,") && strstr(text, "\"verified\":true"));
    T_CHECK(strstr(text, "\"prefetch_distance\":[1,2,3]"));
    free(text);
    shot_report_fini(&r);
}

static void table_names_the_command(void)
{
    struct shot_report r = sample();
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    r.opts.ckpts = 48; /* the line has what differs from the defaults */
    shot_report_print(f, &r);
    fclose(f);
    T_CHECK(strstr(text, "varve sim shot --ckpts 48") && strstr(text, "1.500"));
    free(text);
    shot_report_fini(&r);
}

int main(void)
{
    T_RUN(adds_up);
    T_RUN(verdicts);
    T_RUN(speedup);
    T_RUN(baselines_are_expected);
    T_RUN(json_is_complete);
    T_RUN(table_names_the_command);
    return t_done();
}
