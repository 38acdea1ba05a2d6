/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse time migration on a GPU: the image equals that of the CPU within TOLERANCE of its largest amplitude, and is
 * bitwise equal wherever the history is stored.
 */
#include <math.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "rtm.h"
#include "t.h"

/* Both round in the same way, so they should be equal; but compilers may differ. */
#define TOLERANCE 1e-5

static void survey(int dims, struct rtm_params *p)
{
    rtm_params_init(p);
    T_OK(varve_opts_init(&p->varve, sizeof(p->varve)));
    p->dims = dims;
    p->n[RTM_X] = dims == 3 ? 60 : 150;
    p->n[RTM_Y] = dims == 3 ? 50 : 1;
    p->n[RTM_Z] = dims == 3 ? 40 : 90;
    p->border = 10;
    p->spacing = 2.5;
    p->frequency = 60;
    p->steps = dims == 3 ? 240 : 500;
    p->every = 4;
    p->shots = 2;
    p->store = RTM_STORE_MEMORY;
    p->quiet = true;
    p->out[0] = 0;
}

static long points(const struct rtm_params *p)
{
    return (long)p->n[0] * p->n[1] * p->n[2];
}

static float *image_of(const struct rtm_params *p)
{
    struct rtm_result r;
    float *image;
    int rc = rtm_run(p, NULL, &r);

    if (rc)
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
    image = r.image;
    r.image = NULL;
    rtm_result_fini(&r);
    return image;
}

static void same(const char *what, const struct rtm_params *p, const float *want)
{
    float *image = image_of(p);

    if (memcmp(image, want, (size_t)points(p) * sizeof(float)) != 0)
        t_fail(__FILE__, __LINE__, "%s: the image differs", what);
    free(image);
}

/* Device, host and disk; lent and copied; all policies; compressed or not. */
static void stores(struct rtm_params *p, const float *want)
{
    uint64_t bytes = (uint64_t)points(p) * sizeof(float);

    p->store = RTM_STORE_FILE;
    snprintf(p->varve.local, sizeof(p->varve.local), "%s", t_tmpdir());
    same("file", p, want);
    p->store = RTM_STORE_VARVE;
    for (int policy = VARVE_POLICY_NEXT; policy <= VARVE_POLICY_LRU; policy++)
        for (int i = 0; i < 4; i++) {
            static const char *const names[] = {"lent, device and host", "lent, device, host, disk",
                                                "copied, device, host, disk",
                                                "copied, device, disk"};

            p->varve.policy = policy;
            p->varve.page_bytes = 64 << 10;
            p->varve.device_cache = 10 * (bytes + (64 << 10));
            p->varve.host_cache = i == 0 ? 300 * bytes : i == 3 ? 0 : 16 * bytes;
            p->no_local = i == 0;
            p->access = i < 2 ? RTM_ACCESS_LEND : RTM_ACCESS_COPY;
            same(names[i], p, want);
        }
}

static void compare(int dims)
{
    struct rtm_params p;
    float *on_cpu, *on_gpu;
    double largest = 0, worst = 0;

    survey(dims, &p);
    on_cpu = image_of(&p);
    p.device = RTM_CUDA;
    on_gpu = image_of(&p);
    for (long i = 0; i < points(&p); i++) {
        largest = fmax(largest, fabs((double)on_cpu[i]));
        worst = fmax(worst, fabs((double)on_cpu[i] - (double)on_gpu[i]));
    }
    t_note("%dD: CPU and GPU differ by %.1e of the largest amplitude", dims, worst / largest);
    T_CHECK(largest > 0 && worst <= TOLERANCE * largest);
    stores(&p, on_gpu);
    free(on_cpu);
    free(on_gpu);
}

static void in_2d(void)
{
    compare(2);
}

static void in_3d(void)
{
    compare(3);
}

int main(void)
{
    struct rtm_params p;
    struct rtm_result r;
    int rc;

    survey(2, &p);
    p.device = RTM_CUDA;
    p.steps = 1;
    p.shots = 1;
    rc = rtm_run(&p, NULL, &r);
    if (rc == -ENOTSUP || rc == -ENODEV)
        T_SKIP("%s", rtm_error_text());
    if (rc)
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
    rtm_result_fini(&r);
    T_RUN(in_2d);
    T_RUN(in_3d);
    return t_done();
}
