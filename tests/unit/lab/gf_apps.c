/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of `varve bench gpufile` on the emulated device: they compute the processor's results from their
 * files, for every size; and a wrong word is found, in an input and in a result.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <varve/gpufile_device.h>

#include "device/host/host.h"
#include "lab/gpufile/gf_apps.h"
#include "lab/gpufile/gf_kernels.h"
#include "t.h"

static struct vv_device *device;
static struct gf_gpu *gpu;

static void *device_memory(uint64_t bytes)
{
    void *p = NULL;

    if (bytes)
        T_OK(vv_device_mem_alloc(device, bytes, &p));
    return p;
}

/* The host can read the emulated device's memory. */
static uint64_t sum_of(const struct gf_memory *m, const struct gf_shape *s)
{
    struct gf_args a = {.in = {m->out}, .words = s->out_words, .result = m->result};

    memset(m->result, 0, sizeof(*m->result));
    T_OK(gf_gpu_launch(gpu, GF_K_sum, 2, 4, &a));
    return m->result->sum;
}

static uint64_t wrong_in(const struct gf_memory *m, const struct gf_shape *s, unsigned k)
{
    struct gf_args a = {.in = {m->in[k]},
                        .words = s->bytes[k] / 4,
                        .seed = s->seed,
                        .tag = k,
                        .cols = s->cols,
                        .content = s->content[k],
                        .result = m->result};

    memset(m->result, 0, sizeof(*m->result));
    T_OK(gf_gpu_launch(gpu, GF_K_check, 2, 4, &a));
    return m->result->wrong;
}

static void judge(const struct gf_shape *s, const struct gf_memory *m,
                  const uint32_t *const files[3])
{
    uint64_t expected;
    bool right;

    T_OK(gf_app_expect(s, files, 2, &expected));
    if (s->app == GF_LUD) {
        T_OK(gf_lud_right(s, files[0], m->out, 2, &right));
        T_CHECK(right);
        m->out[s->out_words / 3] ^= 16;
        T_OK(gf_lud_right(s, files[0], m->out, 2, &right));
        T_CHECK(!right);
        return;
    }
    T_EQ(sum_of(m, s), expected);
    m->out[s->out_words / 3] ^= 16;
    T_CHECK(sum_of(m, s) != expected);
}

static void one(enum gf_app_id app, double scale)
{
    const char *dir = t_tmpdir();
    const uint32_t *files[3] = {NULL};
    struct gf_memory m = {.out = NULL};
    struct gf_shape s;
    char path[512];

    gf_shape_init(app, scale, t_seed(), &s);
    for (unsigned k = 0; k < gf_apps[app].n_files; k++) {
        int fd;

        snprintf(path, sizeof(path), "%s/input%u", dir, k);
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        T_CHECK(fd >= 0);
        T_OK(gf_shape_write(&s, k, fd, 3));
        files[k] = mmap(NULL, s.bytes[k], PROT_READ, MAP_SHARED, fd, 0);
        T_CHECK(files[k] != MAP_FAILED);
        T_EQ(close(fd), 0);
        m.in[k] = device_memory(s.bytes[k]);
        memcpy(m.in[k], files[k], s.bytes[k]);
    }
    m.out = device_memory(4 * s.out_words);
    m.tmp = device_memory(4 * s.tmp_words);
    m.result = device_memory(sizeof(*m.result));
    for (unsigned k = 0; k < gf_apps[app].n_files; k++)
        T_EQ(wrong_in(&m, &s, k), 0);
    T_OK(gf_app_compute(gpu, device, &s, &m));
    T_OK(gf_gpu_sync(gpu));
    judge(&s, &m, files);
    m.in[0][s.bytes[0] / 8] ^= 1;
    T_EQ(wrong_in(&m, &s, 0), 1);
    for (unsigned k = 0; k < gf_apps[app].n_files; k++) {
        T_EQ(munmap((void *)(uintptr_t)files[k], s.bytes[k]), 0);
        T_OK(vv_device_mem_free(device, m.in[k]));
    }
    T_OK(vv_device_mem_free(device, m.out));
    T_OK(vv_device_mem_free(device, m.tmp));
    T_OK(vv_device_mem_free(device, m.result));
}

static void results_are_right(void)
{
    for (int app = 0; app < GF_APP_NR; app++) {
        one((enum gf_app_id)app, 1.0 / 16384);
        one((enum gf_app_id)app, 1.0 / 5000);
    }
}

/* The requested size, and as many files as in the paper. */
static void shapes_are_the_papers(void)
{
    for (int app = 0; app < GF_APP_NR; app++) {
        struct gf_shape s;

        gf_shape_init((enum gf_app_id)app, 8, 1, &s);
        for (unsigned k = 0; k < 3; k++) {
            double want = 8 * gf_apps[app].mib[k] * 1024 * 1024;

            T_CHECK((double)s.bytes[k] <= want && (double)s.bytes[k] >= 0.97 * want);
            T_EQ(s.bytes[k] % 4, 0);
            T_EQ(s.bytes[k] > 0, k < gf_apps[app].n_files);
        }
    }
}

int main(void)
{
    struct vv_device_host_opts o;
    char err[128];

    vv_device_host_opts_init(&o);
    o.capacity_bytes = 32 << 20;
    T_OK(vv_device_open_host(&o, &device));
    T_OK(gf_gpu_new(device, true, err, sizeof(err), &gpu));
    T_RUN(shapes_are_the_papers);
    T_RUN(results_are_right);
    gf_gpu_free(gpu);
    vv_device_close(device);
    return t_done();
}
