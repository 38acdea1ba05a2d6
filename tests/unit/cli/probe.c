/* SPDX-License-Identifier: Apache-2.0 */
/* The loops run, on memory and on a file, and leave no file behind. No test asserts on speed. */
#include "cli/measure/probe.h"
#include "cli/measure/probe_files.h"

#include <dirent.h>
#include <math.h>

#include "t.h"

static void memory(void)
{
    double bps = -1;

    T_OK(probe_memcpy(1 << 20, 1, 0.01, &bps));
    T_CHECK(isfinite(bps) && bps > 0);
    T_OK(probe_memcpy((1 << 20) + 5, 3, 0.01, &bps));
    T_CHECK(bps > 0);
    bps = -1;
    T_ERR(probe_memcpy(0, 1, 0.01, &bps), -EINVAL);
    T_ERR(probe_memcpy(100, 0, 0.01, &bps), -EINVAL);
    T_ERR(probe_memcpy(100, 1, NAN, &bps), -EINVAL);
    T_CHECK(bps == -1);
}

static void touching(void)
{
    double bps = -1;

    T_OK(probe_touch(1 << 20, 1, false, 0.005, &bps));
    T_CHECK(isfinite(bps) && bps > 0);
    T_OK(probe_touch((4 << 20) + 5, 3, true, 0, &bps));
    T_CHECK(bps > 0);
    bps = -1;
    T_ERR(probe_touch(0, 1, true, 0.01, &bps), -EINVAL);
    T_ERR(probe_touch(100, PROBE_THREADS_MAX + 1, true, 0.01, &bps), -EINVAL);
    T_CHECK(bps == -1);
}

static unsigned count_files(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;

    T_CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void disk(void)
{
    struct probe_disk_opts o = {.dir = t_tmpdir(),
                                .file_bytes = 3 << 20,
                                .block_bytes = 1 << 18,
                                .threads = 3,
                                .seconds = 0.02};
    struct probe_disk_rates r = {0};
    int rc;

    T_OK(probe_disk(&o, &r));
    T_CHECK(r.write_bps > 0 && r.read_bps > 0 && r.both_bps > 0);
    o.threads = 1;
    T_OK(probe_disk(&o, &r));
    o.direct = true;
    rc = probe_disk(&o, &r);
    if (rc == -EINVAL)
        t_note("no direct access in %s", o.dir);
    else
        T_OK(rc);
    T_EQ(count_files(o.dir), 2); /* . and .. */
}

static void disk_steps(void)
{
    struct probe_disk_opts o = {.dir = t_tmpdir(),
                                .file_bytes = 3 << 20,
                                .block_bytes = 1 << 18,
                                .threads = 4,
                                .seconds = 3600};
    struct probe_disk *d;
    uint64_t ns = 0;
    double bps;

    T_OK(probe_disk_open(&o, &d));
    T_EQ(probe_disk_file_bytes(d), 3 << 20);
    for (unsigned depth = 1; depth <= 4; depth *= 2) {
        for (int op = PROBE_WRITE; op <= PROBE_BOTH; op++) {
            bps = -1;
            T_OK(probe_disk_loop(d, (enum probe_disk_op)op, depth, 0.005, &bps));
            T_CHECK(bps > 0);
        }
        bps = -1;
        T_OK(probe_disk_pass(d, PROBE_WRITE, depth, &bps));
        T_CHECK(bps > 0);
        bps = -1;
        T_OK(probe_disk_pass(d, PROBE_READ, depth, &bps));
        T_CHECK(bps > 0);
    }
    T_OK(probe_disk_sync(d, 3, &ns));
    T_CHECK(ns > 0);
    bps = -1;
    T_ERR(probe_disk_loop(d, PROBE_READ, 5, 0.01, &bps), -EINVAL);
    T_ERR(probe_disk_loop(d, PROBE_READ, 0, 0.01, &bps), -EINVAL);
    T_ERR(probe_disk_pass(d, PROBE_BOTH, 1, &bps), -EINVAL);
    T_ERR(probe_disk_sync(d, 0, &ns), -EINVAL);
    T_CHECK(bps == -1);
    probe_disk_close(d);
    probe_disk_close(NULL);
    T_EQ(count_files(o.dir), 2);

    /* A deadline that has passed: two blocks suffice. */
    o.seconds = 1e-9;
    T_OK(probe_disk_open(&o, &d));
    T_EQ(probe_disk_file_bytes(d), 2 * o.block_bytes);
    T_OK(probe_disk_pass(d, PROBE_READ, 4, &bps));
    probe_disk_close(d);
}

/* Files as the library makes them. Blocks written before the deadline are read; no file stays. */
static void files(void)
{
    struct probe_files_opts o = {.dir = t_tmpdir(),
                                 .file_bytes = 300000,
                                 .total_bytes = 4 << 20,
                                 .block_bytes = 1 << 16,
                                 .threads = 3,
                                 .seconds = 5};
    struct probe_disk_rates r = {0};
    int rc;

    for (int sync = 0; sync < 2; sync++) {
        o.sync = sync;
        T_OK(probe_files(&o, &r));
        T_CHECK(r.write_bps > 0 && r.read_bps > 0 && r.both_bps > 0);
    }
    o.file_bytes = o.total_bytes; /* one file, as a spill file is */
    T_OK(probe_files(&o, &r));
    T_CHECK(r.write_bps > 0 && r.read_bps > 0 && r.both_bps > 0);
    o.direct = true;
    rc = probe_files(&o, &r);
    if (rc == -EINVAL)
        t_note("no direct access in %s", o.dir);
    else
        T_OK(rc);
    T_EQ(count_files(o.dir), 2); /* . and .. */
    o.threads = 1;
    T_ERR(probe_files(&o, &r), -EINVAL);
    o.threads = 2;
    o.dir = "/nonexistent/folder";
    T_ERR(probe_files(&o, &r), -ENOENT);
}

static void bad_input(void)
{
    struct probe_disk_opts o = {
        .dir = "/nonexistent/folder", .file_bytes = 1 << 20, .block_bytes = 4096, .threads = 1};
    struct probe_disk_rates r;

    T_ERR(probe_disk(&o, &r), -ENOENT);
    o.dir = t_tmpdir();
    o.block_bytes = 1000;
    T_ERR(probe_disk(&o, &r), -EINVAL);
    o.block_bytes = 4096;
    o.threads = 0;
    T_ERR(probe_disk(&o, &r), -EINVAL);
}

static void differences(void)
{
    T_CHECK(!probe_differs(100, 110, 0.1) && probe_differs(100, 111, 0.1));
    T_CHECK(probe_differs(111, 100, 0.1));
}

int main(void)
{
    T_RUN(memory);
    T_RUN(touching);
    T_RUN(disk);
    T_RUN(disk_steps);
    T_RUN(files);
    T_RUN(bad_input);
    T_RUN(differences);
    return t_done();
}
