/* SPDX-License-Identifier: Apache-2.0 */
/* The loops run, on memory and on a file, and leave nothing behind. How fast is not asserted. */
#include "sim/probe.h"

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
    T_RUN(disk);
    T_RUN(bad_input);
    T_RUN(differences);
    return t_done();
}
