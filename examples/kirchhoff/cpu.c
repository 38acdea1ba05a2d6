/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: everything in memory, on the CPU. One thread traces the rays of a station, and one computes
 * a column of the image. The processor's items of a run on a device are done here too.
 */
#include <errno.h>
#include <stdlib.h>

#include "kirchhoff.h"
#include "rtm.h"

#define KIR_BODY static inline

struct kir_model {
    const float *velocity;
    const int *n;
};

struct kir_times {
    const float *const *table;
};

static inline int kir_velocity(struct kir_model *m, int z, int x, int y, float *ret_velocity)
{
    *ret_velocity = m->velocity[((long)y * m->n[KIR_X] + x) * m->n[KIR_Z] + z];
    return 1;
}

static inline float kir_node_time(struct kir_times *times, uint32_t which, uint64_t node)
{
    return times->table[which][node];
}

static inline void kir_raise(uint64_t *word, uint64_t value)
{
    *word = value > *word ? value : *word;
}

#include "steps.h"

int kir_cpu_rays(struct kir_survey *s)
{
    bool failed = false;

    KIR_PARALLEL
    for (uint32_t i = 0; i < s->stations; i++) {
        struct kir_model model = {s->velocity, s->grid.n};
        uint64_t *words = malloc(kir_words_of(s, i, 1) * sizeof(*words));
        struct kir_ray *rays = malloc(s->rays * sizeof(*rays));

        if (words && rays) {
            kir_words_init(s, i, 1, words);
            kir_rays_init(s, i, 1, rays);
            for (int k = 0; k < s->steps; k++)
                for (uint32_t r = 0; r < s->rays; r++)
                    (void)kir_step(&model, &s->grid, &s->tables[i], &rays[r],
                                   (float)(k + 1) * s->grid.dt, s->tables[i].offset, words);
            kir_words_done(s, i, 1, words);
        } else {
            failed = true;
        }
        free(words);
        free(rays);
    }
    return failed ? rtm_error(-ENOMEM, "no memory for tables: make them coarser (--table-step)")
                  : 0;
}

float kir_cpu_time(const struct kir_survey *s, uint32_t station, const int cell[KIR_AXES])
{
    const float *table = s->times + s->tables[station].offset;
    struct kir_times times = {&table};

    return kir_time_at(&times, 0, &s->grid, &s->tables[station], cell);
}

void kir_cpu_item(const struct kir_survey *s, const struct kir_item *item,
                  const float *const *tables, int64_t *image)
{
    const int *n = s->grid.n;
    struct kir_shots shots = kir_shots_of(s);

    KIR_PARALLEL
    for (long column = 0; column < (long)n[KIR_X] * n[KIR_Y]; column++) {
        struct kir_times times = {tables};

        for (int z = 0; z < n[KIR_Z]; z++) {
            int cell[KIR_AXES] = {z, (int)(column % n[KIR_X]), (int)(column / n[KIR_X])};

            image[column * n[KIR_Z] + z] += kir_item_cell(&times, &shots, item, cell);
        }
    }
}

void kir_cpu_migrate(struct kir_survey *s)
{
    for (uint32_t i = 0; i < s->nitems; i++) {
        const struct kir_item *item = &s->items[i];
        const float *tables[1 + KIR_RECEIVERS] = {s->times + s->tables[item->source].offset};

        for (uint32_t k = 0; k < item->traces; k++)
            tables[1 + k] = s->times + s->tables[s->receiver[item->first + k]].offset;
        kir_cpu_item(s, item, tables, s->image);
    }
}
