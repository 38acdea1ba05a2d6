/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the helper of a node: its name, its program.
 *
 * All processes of a job find at about the same time that no helper runs, and each starts one. Only one
 * program gets the name; the others end at once, with success. A program exits when it, or another
 * one, listens. The process that serves is no child of the application, which therefore never sees its exit.
 *
 * fork alone is not enough: a child of a process with threads may call very little, and in a process with a
 * GPU or a network adapter fork has more to copy than memory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/aio/helper_private.h"

extern char **environ;

/* For a helper that the library starts; one started by hand stays until it is ended. */
#define IDLE_MS "3000"

const char *vvi_helper_name(const char *name)
{
    /* The processes of one job, and no others: a helper lives within the limits of the job that started
     * it, and ends with it. */
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID",
                                       "FLUX_JOB_ID"};
    for (size_t i = 0; i < VV_ARRAY_SIZE(jobs) && (!name || !name[0]); i++)
        name = getenv(jobs[i]);
    return name && name[0] ? name : "user";
}

socklen_t vvi_helper_address(const char *name, struct sockaddr_un *ret_addr)
{
    *ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* The number tells names of any length apart. */
    int n = snprintf(ret_addr->sun_path + 1, sizeof(ret_addr->sun_path) - 1,
                     "varve-helper-%u-%u-%.24s-%016llx", VVI_HELPER_VERSION, (unsigned)geteuid(),
                     name, (unsigned long long)vv_hash64(name, strlen(name)));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* bin/varve beside the lib/ that this code was loaded from. */
static bool beside_library(char *path, size_t bytes)
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)vvi_helper_start, &info) == 0 || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return false;
    static const char *const up[] = {"../bin/varve", "../../bin/varve"}; /* lib/, lib/x86_64-.../ */
    for (size_t i = 0; i < VV_ARRAY_SIZE(up); i++) {
        int n =
            snprintf(path, bytes, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, up[i]);
        if (n > 0 && (size_t)n < bytes && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static int spawn(const char *program, char *const argv[], pid_t *ret_pid)
{
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_init(&attr);
    if (rc != 0)
        return -rc;
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = strchr(program, '/') ? posix_spawn(ret_pid, program, NULL, &attr, argv, environ)
                              : posix_spawnp(ret_pid, program, NULL, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    return -rc;
}

/* Waits for the program's exit. 0: a helper listens, or the exit status is not known, because the application has
 * waited for all of its children itself. */
static int wait_for(pid_t pid)
{
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

int vvi_helper_start(const struct vv_helper_opts *opts, const char *name, char *err,
                     size_t err_bytes)
{
    char path[4096], nice[16];
    const char *program = opts->program;
    if (!program || !program[0])
        program = beside_library(path, sizeof(path)) ? path : "varve";
    snprintf(nice, sizeof(nice), "%d", opts->nice);
    const char *args[] = {program,
                          "helper",
                          "--background",
                          "--name",
                          name,
                          "--idle",
                          IDLE_MS,
                          "--nice",
                          nice,
                          "--cores",
                          opts->cores && opts->cores[0] ? opts->cores : "any",
                          NULL};
    char *argv[VV_ARRAY_SIZE(args)];
    for (size_t i = 0; i < VV_ARRAY_SIZE(args); i++)
        argv[i] = (char *)(uintptr_t)args[i];
    pid_t pid;
    int rc = spawn(program, argv, &pid);
    if (rc == 0)
        rc = wait_for(pid);
    if (rc < 0)
        snprintf(err, err_bytes, "helper: %.200s could not be started: %s", program,
                 rc == -ECHILD ? "it failed" : vv_strerror(rc));
    return rc;
}
