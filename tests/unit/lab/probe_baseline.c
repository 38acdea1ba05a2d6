/* SPDX-License-Identifier: Apache-2.0 */
/* The loops behind the expected times of baselines: they measure something, refuse wrong arguments, and leave no
 * file or memory behind. */
#include "lab/shot/probe_baseline.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "device/host/host.h"
#include "lab/shot/shot_managed.h"
#include "t.h"

static struct vv_device *emulated(void)
{
    struct vv_device_host_opts opts;
    struct vv_device *d;

    vv_device_host_opts_init(&opts);
    opts.capacity_bytes = 8 << 20;
    opts.guard = true;
    T_OK(vv_device_open_host(&opts, &d));
    return d;
}

static void nothing_is_held(struct vv_device *d)
{
    struct vv_device_host_stats st;

    vv_device_host_stats(d, &st);
    T_EQ(st.n_allocs + st.n_slices + st.n_streams + st.n_events, 0);
}

static void link_of_a_device(void)
{
    struct vv_device *d = emulated();
    double down = -1, up = -1;

    T_OK(probe_link_waited(d, 100001, 0.004, &down, &up));
    T_CHECK(down > 0 && up > 0);
    nothing_is_held(d);
    T_ERR(probe_link_waited(d, 0, 0.004, &down, &up), -EINVAL);
    T_ERR(probe_link_waited(d, 100, -1, &down, &up), -EINVAL);
    T_ERR(probe_link_waited(d, 64 << 20, 0, &down, &up), -ENOMEM);
    nothing_is_held(d);
    vv_device_close(d);
}

/* Any call may fail: no memory or file stays. */
static void link_with_failures(void)
{
    struct vv_device *d = emulated();
    double down = -1, up = -1;

    for (uint64_t nth = 1; nth <= 6; nth++) {
        T_OK(vv_device_host_fail(d, VV_DEVICE_OP_ANY, nth, 1, -EIO));
        T_ERR(probe_link_waited(d, 4096, 0, &down, &up), -EIO);
        vv_device_host_heal(d);
        nothing_is_held(d);
    }
    T_CHECK(down < 0 && up < 0);
    vv_device_close(d);
}

static void ways_to_use_it(void)
{
    struct shot_uvm_opts o = {0}, same = {0};
    char err[128];

    T_OK(shot_uvm_opts_parse(NULL, err, sizeof(err), &o));
    T_CHECK(!o.touch && o.ahead == 0 && o.step_bytes > 0 && o.yield && o.fetch && !o.gone);
    T_OK(shot_uvm_opts_parse("", err, sizeof(err), &same));
    T_EQ(same.step_bytes, o.step_bytes);
    T_OK(shot_uvm_opts_parse("touch=1,ahead=0,step=3M,yield=0,fetch=1", err, sizeof(err), &o));
    T_CHECK(o.touch && o.ahead == 0 && o.step_bytes == 4 << 20 && !o.yield && o.fetch);
    T_OK(shot_uvm_opts_parse("gone=1", err, sizeof(err), &o));
    T_CHECK(o.gone && !o.touch && o.yield);
    T_ERR(shot_uvm_opts_parse("touch", err, sizeof(err), &o), -EINVAL);
    T_ERR(shot_uvm_opts_parse("touch=2", err, sizeof(err), &o), -EINVAL);
    T_ERR(shot_uvm_opts_parse("ahead=1000", err, sizeof(err), &o), -EINVAL);
    T_ERR(shot_uvm_opts_parse("ahead=1,stride=2", err, sizeof(err), &o), -EINVAL);
    T_CHECK(strstr(err, "stride"));
}

static size_t files_in(const char *path)
{
    DIR *dir = opendir(path);
    size_t n = 0;

    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static void files(void)
{
    const char *dir = t_tmpdir();
    size_t before = files_in(dir);
    double w = -1, r = -1;

    T_OK(probe_file(dir, false, 12345, 3, &w, &r));
    T_CHECK(w > 0 && r > 0);
    T_EQ(files_in(dir), before);
    T_ERR(probe_file("/nowhere/at/all", false, 4096, 1, &w, &r), -ENOENT);
    T_ERR(probe_file(dir, false, 0, 1, &w, &r), -EINVAL);
}

int main(void)
{
    T_RUN(link_of_a_device);
    T_RUN(link_with_failures);
    T_RUN(ways_to_use_it);
    T_RUN(files);
    return t_done();
}
