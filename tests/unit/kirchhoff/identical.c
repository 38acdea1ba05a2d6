/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kirchhoff migration: times are those of theory, the image has scatterers and layers where they are, and
 * it is the same bit by bit on the CPU and on the emulated device, whatever its caches hold and whichever
 * thread does an item. Caches are so small that blocks and tables come and go all the time.
 */
#include <math.h>
#include <stdlib.h>

#include <varve/blocks.h>
#include <varve/tables.h>

#include "kirchhoff.h"
#include "rtm.h"
#include "t.h"

static void survey(int dims, struct kir_params *p)
{
    kir_params_init(p);
    p->dims = dims;
    p->n[KIR_Z] = dims == 3 ? 20 : 40;
    p->n[KIR_X] = dims == 3 ? 26 : 64;
    p->n[KIR_Y] = dims == 3 ? 22 : 1;
    p->frequency = 60;
    p->stations[0] = dims == 3 ? 3 : 7;
    p->stations[1] = dims == 3 ? 2 : 1;
    p->offset = 150; /* so that an item has a part of the tables */
    p->edge = dims == 3 ? 8 : 16;
    p->threads = 1;
    p->quiet = true;
    p->out[0] = 0;
}

static void run(const struct kir_params *p, struct kir_survey *ret_survey,
                struct kir_summary *ret_summary)
{
    if (kir_run(p, ret_survey, ret_summary))
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
}

/* Velocity that grows with depth: the time between two places is known. At nodes; between them the table
 * is as coarse as it was asked to be. */
static void theory(void)
{
    struct kir_params p;
    struct kir_survey s;
    double worst = 0, v0 = 200, g = 2; /* cells/s, and per cell of depth */
    long i = 0;

    survey(3, &p);
    p.n[KIR_Z] = 33;
    p.n[KIR_X] = 45;
    p.n[KIR_Y] = 37;
    T_OK(kir_survey_init(&p, &s));
    for (int y = 0; y < s.grid.n[KIR_Y]; y++)
        for (int x = 0; x < s.grid.n[KIR_X]; x++)
            for (int z = 0; z < s.grid.n[KIR_Z]; z++)
                s.velocity[i++] = (float)(v0 + g * z);
    s.grid.dt = 0.5f * (float)s.grid.step / (float)(v0 + g * 32);
    s.steps = 200;
    T_OK(kir_cpu_rays(&s));
    for (int y = 0; y < s.grid.n[KIR_Y]; y += s.grid.step)
        for (int x = 0; x < s.grid.n[KIR_X]; x += s.grid.step)
            for (int z = 8; z < s.grid.n[KIR_Z]; z += s.grid.step) {
                int cell[KIR_AXES] = {z, x, y};
                const float *from = s.station[0].at;
                double dz = z - from[KIR_Z], dx = x - from[KIR_X], dy = y - from[KIR_Y];
                double want = acosh(1 + g * g * (dz * dz + dx * dx + dy * dy) /
                                            (2 * (v0 + g * from[KIR_Z]) * (v0 + g * z))) /
                              g;
                float got = kir_cpu_time(&s, 0, cell);

                if (dz * dz < 0.1 * (dx * dx + dy * dy) || got >= KIR_NEVER)
                    continue; /* rays that turn before they get there are not asked of a table */
                worst = fmax(worst, fabs(got - want) / want);
            }
    t_note("times differ by %.2g of theirs at most", worst);
    T_CHECK(worst > 0 && worst < 0.003);
    kir_survey_fini(&s);
}

/* The scatterers of the model: dark spots, each the darkest place around. */
static void in_their_places(void)
{
    static const double scatterer[][2] = {{0.2, 0.30}, {0.4, 0.45}, {0.6, 0.6}, {0.8, 0.38}};
    struct kir_params p;
    struct kir_survey s;
    struct kir_summary sum;

    survey(2, &p);
    p.n[KIR_Z] = 101;
    p.n[KIR_X] = 161;
    p.stations[0] = 21;
    p.frequency = 40;
    run(&p, &s, &sum);
    T_CHECK(sum.never < 0.02);
    for (size_t i = 0; i < sizeof(scatterer) / sizeof(scatterer[0]); i++) {
        int x0 = (int)(scatterer[i][0] * 161), z0 = (int)(scatterer[i][1] * 101), bx = 0, bz = 0;
        int64_t best = 0;

        for (int x = x0 - 10; x <= x0 + 10; x++)
            for (int z = z0 - 10; z <= z0 + 10; z++)
                if (s.image[x * 101 + z] > best) {
                    best = s.image[x * 101 + z];
                    bx = x;
                    bz = z;
                }
        if (abs(bx - x0) > 1 || abs(bz - z0) > 1)
            t_fail(__FILE__, __LINE__, "scatterer %zu is at %d, %d and not at %d, %d", i, bx, bz,
                   x0, z0);
    }
    kir_survey_fini(&s);
}

static void same(const struct kir_params *p, const struct kir_survey *want)
{
    struct kir_survey s;
    struct kir_summary sum;

    run(p, &s, &sum);
    T_EQ(s.nodes, want->nodes);
    T_EQ(memcmp(s.times, want->times, s.nodes * sizeof(*s.times)), 0);
    T_EQ(memcmp(s.image, want->image, (size_t)kir_cells(&s) * sizeof(*s.image)), 0);
    T_CHECK(sum.blocks.missed > 0);
    T_EQ(sum.tables.items, s.nitems);
    T_CHECK(p->fallback || sum.tables.host_items == 0);
    T_CHECK(sum.tables.missed > 0 || sum.tables.host_items == s.nitems);
    kir_survey_fini(&s);
}

/* Bytes that the largest item's tables take. */
static uint64_t item_bytes(const struct kir_survey *s, uint64_t unit)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < s->nitems; i++) {
        uint64_t sum = 0;

        for (uint32_t k = 0; k <= s->items[i].traces; k++) {
            uint32_t table = k ? s->receiver[s->items[i].first + k - 1] : s->items[i].source;

            sum += (kir_words_of(s, table, 1) * sizeof(float) + unit - 1) / unit * unit;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* The variants of blocks, tables, layouts and the processor. */
static void set_case(int i, uint64_t block, const struct kir_survey *want, struct kir_params *p)
{
    static const unsigned slots[] = {4, 8, 100};

    p->model_cache = slots[i % 3] * (p->dims == 3 ? 2 : 1) * block;
    p->together = 1 + i % 3;
    p->layout = i % 2 ? KIR_CHUNKED : KIR_FLAT;
    p->fallback = i / 2 % 2;
    p->table_cache = i == 4 ? 0 : item_bytes(want, p->layout == KIR_CHUNKED ? 65536 : 256) + 2048;
}

static void any_cache(int dims)
{
    struct kir_params p;
    struct kir_survey want;
    struct kir_summary sum;
    uint64_t block;

    survey(dims, &p);
    block = (uint64_t)p.edge * (uint64_t)p.edge * (uint64_t)(dims == 3 ? p.edge : 1) * 4;
    run(&p, &want, &sum);
    T_EQ(sum.blocks.stats_size, 0);
    T_EQ(sum.tables.stats_size, 0);
    p.device = KIR_EMULATED;
    for (int i = 0; i < 6; i++) {
        /* One of them in turn, from commit to commit. */
        if (!t_long() && t_sanitized() && (t_seed() + (uint64_t)(i + dims)) % 6)
            continue;
        set_case(i, block, &want, &p);
        same(&p, &want);
    }
    kir_survey_fini(&want);
}

static void any_cache_2d(void)
{
    any_cache(2);
}

static void any_cache_3d(void)
{
    any_cache(3);
}

static void too_small(void)
{
    struct kir_params p;
    struct kir_survey s;
    struct kir_summary sum;

    survey(2, &p);
    p.device = KIR_EMULATED;
    p.model_cache = 1024; /* one block */
    T_ERR(kir_run(&p, &s, &sum), -EFBIG);
    T_CHECK(strstr(rtm_error_text(), "--model-cache") != NULL);
    p.model_cache = 64 << 10;
    p.table_cache = 1024; /* less than an item needs */
    T_ERR(kir_run(&p, &s, &sum), -EFBIG);
    T_CHECK(strstr(rtm_error_text(), "--table-cache") != NULL);
}

int main(void)
{
    T_RUN(theory);
    T_RUN(in_their_places);
    T_RUN(any_cache_2d);
    T_RUN(any_cache_3d);
    T_RUN(too_small);
    return t_done();
}
