/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/shot/shot_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void write_call(FILE *f, uint32_t rank, const struct shot_op *op, size_t i, double blocked_s)
{
    fprintf(f, "%" PRIu32 ",%s,%zu,%" PRIu64 ",%" PRIu64 ",%.9f,%.6f,", rank,
            op->kind == SHOT_PUT ? "checkpoint" : "restore", i, op->version, op->bytes, blocked_s,
            blocked_s > 0 ? (double)op->bytes / blocked_s / 1e9 : 0);
}

static void write_proc(FILE *f, const struct shot_script *script, uint32_t rank,
                       const struct shot_proc *p)
{
    size_t puts = 0, gets = 0;

    for (size_t i = 0; i < script->nr_ops; i++) {
        const struct shot_op *op = &script->ops[i];

        if (op->kind == SHOT_PUT) {
            write_call(f, rank, op, puts, p->put_blocked_s[puts]);
            fputc('\n', f);
            puts++;
        } else if (op->kind == SHOT_GET) {
            write_call(f, rank, op, gets, p->get_blocked_s[gets]);
            fprintf(f, "%" PRIu32 "\n", p->distance[gets]);
            gets++;
        }
    }
}

/* The scripts of a shot, one for each process. */
static int write_shot(FILE *f, const struct shot_report *r, char *err, size_t err_size)
{
    struct shot_sizes sizes = {0};
    int rc = shot_sizes_init(&r->opts, err, err_size, &sizes);

    for (uint32_t i = 0; rc == 0 && i < r->nr_procs; i++) {
        struct shot_script script;

        rc = shot_script_init(&r->opts, &sizes, r->interval_ns, i, &script);
        if (rc < 0)
            break;
        write_proc(f, &script, i, &r->procs[i]);
        shot_script_fini(&script);
    }
    shot_sizes_fini(&sizes);
    return rc;
}

int shot_csv_write(const char *path, const struct shot_report *r, const struct shot_work *work,
                   char *err, size_t err_size)
{
    FILE *f = fopen(path, "we");
    int rc = 0;

    if (!f) {
        rc = -errno;
        snprintf(err, err_size, "%s: %s", path, strerror(-rc));
        return rc;
    }
    fprintf(f, "%s,call,iteration,version,bytes,blocked_s,gbps,prefetch_distance\n",
            work ? "thread" : "process");
    err[0] = '\0';
    for (uint32_t i = 0; work && i < work->nr_threads; i++)
        write_proc(f, &work->threads[i], i, &r->procs[i]);
    if (!work)
        rc = write_shot(f, r, err, err_size);
    if ((ferror(f) | fclose(f)) && rc == 0)
        rc = -EIO;
    if (rc < 0 && !err[0])
        snprintf(err, err_size, "%s: %s", path, strerror(-rc));
    return rc;
}
