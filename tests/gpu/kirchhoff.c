/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kirchhoff migration on a GPU: times and image equal those of the CPU within TOLERANCE, and are bitwise equal for all
 * contents of the caches.
 */
#include <math.h>
#include <stdlib.h>

#include <varve/blocks.h>
#include <varve/tables.h>

#include "kirchhoff.h"
#include "rtm.h"
#include "t.h"

/* Both round in the same way, so they should be equal; but compilers may differ. */
#define TOLERANCE 1e-5

static void survey(int dims, struct kir_params *p)
{
    kir_params_init(p);
    p->dims = dims;
    p->n[KIR_Z] = dims == 3 ? 64 : 201;
    p->n[KIR_X] = dims == 3 ? 96 : 401;
    p->n[KIR_Y] = dims == 3 ? 80 : 1;
    p->stations[0] = dims == 3 ? 5 : 21;
    p->stations[1] = dims == 3 ? 4 : 1;
    p->quiet = true;
    p->out[0] = 0;
}

static void run(const struct kir_params *p, struct kir_survey *ret_survey)
{
    struct kir_summary sum;

    if (kir_run(p, ret_survey, &sum))
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
}

static void near_enough(const struct kir_survey *cpu, const struct kir_survey *gpu)
{
    double largest = 0, worst = 0, late = 0;

    for (uint64_t i = 0; i < cpu->nodes; i++)
        late = fmax(late, fabs((double)cpu->times[i] - (double)gpu->times[i]) / cpu->times[i]);
    for (long i = 0; i < kir_cells(cpu); i++) {
        largest = fmax(largest, fabs((double)cpu->image[i]));
        worst = fmax(worst, fabs((double)cpu->image[i] - (double)gpu->image[i]));
    }
    t_note("%dD: CPU and GPU differ by %.1e in times, by %.1e of the largest amplitude", cpu->dims,
           late, worst / largest);
    T_CHECK(largest > 0 && worst <= TOLERANCE * largest && late <= TOLERANCE);
}

static void compare(int dims)
{
    static const uint64_t slots[] = {24, 60, 1000};
    struct kir_params p;
    struct kir_survey cpu, gpu, other;
    uint64_t block;

    survey(dims, &p);
    block = (uint64_t)p.edge * (uint64_t)p.edge * (uint64_t)(dims == 3 ? p.edge : 1) * 4;
    run(&p, &cpu);
    p.device = KIR_CUDA;
    run(&p, &gpu);
    near_enough(&cpu, &gpu);
    for (int i = 0; i < 3; i++) {
        p.model_cache = slots[i] * block;
        p.layout = i % 2 ? KIR_CHUNKED : KIR_FLAT;
        p.fallback = i == 2;
        run(&p, &other);
        T_EQ(memcmp(other.times, gpu.times, gpu.nodes * sizeof(*gpu.times)), 0);
        T_EQ(memcmp(other.image, gpu.image, (size_t)kir_cells(&gpu) * sizeof(*gpu.image)), 0);
        kir_survey_fini(&other);
    }
    kir_survey_fini(&cpu);
    kir_survey_fini(&gpu);
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
    struct kir_params p;
    struct kir_survey s;
    struct kir_summary sum;
    int rc;

    survey(2, &p);
    p.device = KIR_CUDA;
    p.n[KIR_Z] = p.n[KIR_X] = 32;
    p.stations[0] = 1;
    rc = kir_run(&p, &s, &sum);
    if (rc == -ENOTSUP || rc == -ENODEV)
        T_SKIP("%s", rtm_error_text());
    if (rc)
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
    kir_survey_fini(&s);
    T_RUN(in_2d);
    T_RUN(in_3d);
    return t_done();
}
