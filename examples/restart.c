/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulation that continues after a kill.
 *
 *     cc restart.c $(pkg-config --cflags --libs varve) -o restart
 *     mkdir checkpoints
 *     ./restart checkpoints 700      # kills itself at step 700, as a node failure would
 *     ./restart checkpoints          # finds the latest checkpoint, and finishes
 *
 * Level `local` writes every version to a file of its own, synced and committed by rename. The step
 * number is the version. varve_checkpoint returns when the data is in memory; the file is written in
 * the background. After a kill, the program finds the newest version that had reached its file.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

enum { STEPS = 1000, EVERY = 50, CELLS = 1 << 16 };

static struct varve_ctx *ctx;

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "restart: %s: %s\n", what, varve_error(ctx));
    exit(1);
}

static void step(uint64_t *state)
{
    for (size_t i = 0; i < CELLS; i++)
        state[i] = state[i] * UINT64_C(6364136223846793005) + i;
}

static struct varve_history *open_history(const char *folder)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;
    struct varve_history *h;

    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.level = VARVE_LEVEL_LOCAL;
    snprintf(opts.local, sizeof(opts.local), "%s", folder);
    must(varve_open(&opts, &ctx), "open");
    must(varve_history_opts_init(&hopts, sizeof(hopts)), "options");
    hopts.keep = 2; /* the last two are enough to restart from */
    must(varve_history_open_with(ctx, "state", &hopts, &h), "history");
    return h;
}

int main(int argc, char **argv)
{
    uint64_t *state = calloc(CELLS, sizeof(*state)), sum = 0, at = 0;
    struct varve_history *h;
    int rc;

    if (argc < 2 || !state) {
        fprintf(stderr, "usage: restart FOLDER [STEP]\n");
        return 2;
    }
    h = open_history(argv[1]);
    must(varve_protect(h, 0, state, CELLS * sizeof(*state)), "protect");

    rc = varve_latest(h, &at);
    if (rc == -ENOENT) {
        printf("no checkpoint: from the beginning\n");
    } else {
        must(rc, "latest");
        must(varve_restore(h, at), "restore");
        printf("going on from step %llu\n", (unsigned long long)at);
    }
    fflush(stdout);
    while (at < STEPS) {
        step(state);
        at++;
        if (argc > 2 && at == strtoull(argv[2], NULL, 10))
            raise(SIGKILL);
        if (at % EVERY == 0)
            must(varve_checkpoint(h, at), "checkpoint");
    }
    /* Closing finishes pending flushes. To wait for one version before that:
     * varve_wait(h, version, VARVE_LEVEL_LOCAL, timeout_ms). */
    rc = varve_close(ctx);
    ctx = NULL;
    must(rc, "close");

    for (size_t i = 0; i < CELLS; i++)
        sum ^= state[i] + i;
    printf("after step %llu the checksum is %016llx\n", (unsigned long long)at,
           (unsigned long long)sum);
    free(state);
    return 0;
}
