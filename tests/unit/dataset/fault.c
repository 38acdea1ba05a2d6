/* SPDX-License-Identifier: Apache-2.0 */
/* One workload on the dataset cache with every system call failing in turn, once and from then on, and with the process
 * killed before each of them. Files that are handed out are whole and right, in this run and the next; no descriptor is
 * leaked; the folder never exceeds its capacity. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fault_os.h"
#include "unit/dataset/ds.h"

#define CAPACITY (100 * DS_KIB)
#define FILES    8u

static const char *path_of(unsigned i)
{
    static char path[32];

    snprintf(path, sizeof(path), "/data/%u", i);
    return path;
}

/* Every file that can be opened has the right bytes. */
static void look(struct vv_dataset *d, const struct vv_os *os)
{
    for (unsigned i = 0; i < FILES; i++) {
        struct vv_dataset_gen gen;
        int fd;

        if (vv_dataset_get(d, path_of(i), NULL, &fd, &gen) == 0) {
            T_CHECK(ds_is(fd, path_of(i), &gen));
            os->close(os, fd);
        }
    }
}

/* Fills beyond the capacity, replaces, drops, scrubs, opens twice. */
static void workload(const char *folder, const struct vv_os *os)
{
    struct vv_dataset_opts opts = {.os = os, .capacity = CAPACITY};
    struct vv_dataset *d;
    bool around;
    int fd;

    for (int life = 0; life < 2; life++) {
        if (vv_dataset_open(folder, &opts, NULL, 0, &d) < 0)
            continue;
        for (unsigned i = 0; i < FILES; i++)
            (void)ds_put(d, path_of(i), (unsigned)life, (i + 1) * 5 * DS_KIB);
        if (vv_dataset_get(d, path_of(6), NULL, &fd, NULL) == 0) {
            (void)ds_put(d, path_of(6), 10, 3 * DS_KIB); /* while the old one is open */
            os->close(os, fd);
        }
        look(d, os);
        (void)vv_dataset_drop(d, path_of(7));
        (void)vv_dataset_scrub(d, 1 << 30, &around);
        T_CHECK(ds_stats(d).used <= CAPACITY);
        T_CHECK(ds_on_disk(folder, NULL) <= CAPACITY);
        vv_dataset_close(d);
    }
}

/* Checks the folder afterwards, with a system that does not fail. */
static void aftermath(const char *folder)
{
    struct vv_dataset *d = ds_open(folder, CAPACITY, NULL);
    unsigned files;
    uint64_t bytes;

    look(d, vv_os_posix());
    bytes = ds_on_disk(folder, &files);
    T_EQ(files, ds_stats(d).files);
    T_EQ(bytes, ds_stats(d).used);
    T_OK(ds_put(d, "/data/new", 0, 2 * DS_KIB));
    T_OK(ds_check(d, "/data/new"));
    vv_dataset_close(d);
}

static long calls_of_workload(void)
{
    struct fault_os f;

    fault_os_init(&f);
    workload(t_tmpdir(), &f.os);
    T_EQ(atomic_load(&f.descriptors), 0);
    return atomic_load(&f.count);
}

static void failures(void)
{
    static const int errors[] = {EIO, ENOSPC, EMFILE};
    long calls = calls_of_workload();
    long step = t_long() ? 1 : t_sanitized() ? 7 : 2;

    t_note("%ld calls", calls);
    for (long at = 1; at <= calls; at += step) {
        for (int mode = FAULT_ONCE; mode <= FAULT_FOREVER; mode++) {
            const char *folder = t_tmpdir();
            struct fault_os f;

            fault_os_init(&f);
            f.mode = (enum fault_mode)mode;
            f.at = at;
            f.err = errors[(at + mode) % 3];
            workload(folder, &f.os);
            T_EQ(atomic_load(&f.descriptors), 0);
            aftermath(folder);
        }
    }
}

static void killed(void)
{
    long calls = calls_of_workload();
    long step = t_long() ? 1 : t_sanitized() ? 23 : 5;

    for (long at = 1; at <= calls; at += step) {
        const char *folder = t_tmpdir();
        pid_t child = fork();
        int status;

        T_CHECK(child >= 0);
        if (child == 0) {
            struct fault_os f;

            fault_os_init(&f);
            f.mode = FAULT_KILL;
            f.at = at;
            workload(folder, &f.os);
            _exit(0);
        }
        T_EQ(waitpid(child, &status, 0), child);
        T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        aftermath(folder);
    }
}

/* ---- a full disk ---- */

static unsigned logged; /* Synchronization: written by one sink at a time, read after its end */

static void sink(void *user, enum vv_log_level level, const char *text)
{
    (void)user;
    logged += level == VV_LOG_WARNING && strstr(text, "before 100 KiB of files are cached") &&
              strstr(text, strerror(ENOSPC)) != NULL;
}

/* However many files find no room, and wherever that shows, there is one message. A cache that is full as intended logs
 * none. */
static void full_disk(void)
{
    static const unsigned calls[] = {1u << FAULT_OPENAT, 1u << FAULT_FALLOCATE, 1u << FAULT_PWRITE};

    for (unsigned k = 0; k < VV_ARRAY_SIZE(calls); k++) {
        const char *folder = t_tmpdir();
        struct vv_dataset *d;
        struct fault_os f;
        unsigned files;

        fault_os_init(&f);
        d = ds_open(folder, CAPACITY, &f.os);
        logged = 0;
        vv_log_set_sink(sink, NULL, VV_LOG_DEBUG);
        for (unsigned i = 0; i < FILES; i++)
            T_OK(ds_put(d, path_of(i), 0, 30 * DS_KIB));
        T_EQ(logged, 0);
        f.mode = FAULT_FOREVER;
        f.calls = calls[k];
        f.err = ENOSPC;
        for (unsigned i = 0; i < FILES; i++)
            T_ERR(ds_put(d, path_of(i), 1, 20 * DS_KIB), -ENOSPC);
        f.mode = FAULT_NONE;
        /* No part of failed fills is left. */
        T_EQ(ds_on_disk(folder, &files), ds_stats(d).used);
        T_EQ(files, ds_stats(d).files);
        T_OK(ds_put(d, path_of(0), 2, 20 * DS_KIB));
        vv_log_set_sink(NULL, NULL, VV_LOG_DEBUG);
        T_EQ(logged, 1);
        vv_dataset_close(d);
    }
}

int main(void)
{
    T_RUN(full_disk);
    T_RUN(failures);
    T_RUN(killed);
    return t_done();
}
