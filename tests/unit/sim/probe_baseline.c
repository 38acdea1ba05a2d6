/* SPDX-License-Identifier: Apache-2.0 */
/* The loops behind what baselines ought to take: they measure something, refuse nonsense, and leave
 * nothing behind. */
#include "sim/probe_baseline.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/host/host.h"
#include "t.h"
#include "t_cuda.h"

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

/* Whichever call fails, nothing is kept. */
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

static void managed_memory_is_not_emulated(void)
{
    struct vv_device *d = emulated();
    struct probe_managed_rates r;

    struct probe_managed_opts o = {.bytes = 4096, .count = 2};

    T_ERR(probe_managed(d, &o, &r), -EINVAL);
    o.count = 1;
    T_ERR(probe_managed(d, &o, &r), -EINVAL);
    nothing_is_held(d);
    vv_device_close(d);
}

/* Over the stand-in, or a GPU. */
static void managed_memory(void)
{
    struct vv_device_cuda_opts opts = {.index = 0};
    char err[256];

    if (!t_device_is_cuda())
        opts.library = t_fake_path(false);
    for (int i = 0; i < 4; i++) {
        struct probe_managed_opts o = {.bytes = 100001, .count = 3, .in_call = i & 1};
        struct probe_managed_rates r = {0};
        struct vv_device *d;

        o.uvm = (struct shot_uvm_opts){
            .touch = i & 1, .ahead = i & 2, .step_bytes = i & 1 ? 0 : 4096, .yield = i & 2};
        T_OK(vv_device_open_cuda(&opts, err, sizeof(err), &d));
        T_OK(probe_managed(d, &o, &r));
        T_CHECK(r.prepare_bps > 0 && r.write_bps > 0 && r.to_host_bps > 0);
        T_CHECK(r.read_on_host_bps > 0 && r.to_device_bps > 0 && r.read_bps > 0);
        vv_device_close(d);
    }
}

static void ways_to_use_it(void)
{
    struct shot_uvm_opts o = {0}, same = {0};
    char err[128];

    T_OK(shot_uvm_opts_parse(NULL, err, sizeof(err), &o));
    T_CHECK(!o.touch && o.ahead == 0 && o.step_bytes > 0 && o.yield && o.fetch);
    T_OK(shot_uvm_opts_parse("", err, sizeof(err), &same));
    T_EQ(same.step_bytes, o.step_bytes);
    T_OK(shot_uvm_opts_parse("touch=1,ahead=0,step=3M,yield=0,fetch=1", err, sizeof(err), &o));
    T_CHECK(o.touch && o.ahead == 0 && o.step_bytes == 4 << 20 && !o.yield && o.fetch);
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
    T_RUN(managed_memory_is_not_emulated);
    T_RUN(managed_memory);
    T_RUN(ways_to_use_it);
    T_RUN(files);
    return t_done();
}
