/* SPDX-License-Identifier: Apache-2.0 */
/* Says ok if the library's threads run on cores that this process is not bound to (own), where it may run (shared), or on the
 * one that is given (given), and the process is bound as it was. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <varve/mpi.h>

int main(int argc, char **argv)
{
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    struct varve_helper helpers[64];
    cpu_set_t before, after;
    size_t n = 0;
    int bad;

    MPI_Init(&argc, &argv);
    const char *want = argc > 1 ? argv[1] : "";
    sched_getaffinity(0, sizeof(before), &before);
    if (varve_opts_init(&opts, sizeof(opts)))
        return 1;
    opts.device = VARVE_DEVICE_NONE;
    if (varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx) || varve_stats(ctx, &stats))
        return printf("%s\n", varve_error(NULL)), 1;
    while (n == 0) /* they are starting */
        if (varve_helpers(ctx, helpers, 64, &n))
            return printf("%s\n", varve_error(ctx)), 1;
    sched_getaffinity(0, sizeof(after), &after);
    bad = n > 64 || !CPU_EQUAL(&before, &after) ||
          (strcmp(want, "shared") == 0) != (stats.helper_cores == 0) ||
          (strcmp(want, "given") == 0 && stats.helper_cores != 1);
    for (size_t i = 0; strcmp(want, "own") == 0 && i < n && i < 64; i++)
        bad |= helpers[i].cpu >= 0 && CPU_ISSET((size_t)helpers[i].cpu, &before);
    printf(bad ? "wrong: %lu cores, %zu threads\n" : "ok\n", (unsigned long)stats.helper_cores, n);
    bad |= varve_close_mpi(MPI_COMM_WORLD, ctx) != 0;
    MPI_Finalize();
    return bad;
}
