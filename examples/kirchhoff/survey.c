/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground and the survey. Stations stand in rows just under the surface; each is a source and a
 * receiver. A trace belongs to two of them that are not too far apart; the trace in the other
 * direction is the same, so it is stored once.
 *
 * Traces are modelled: every cell whose velocity differs from the smooth one sends back a wavelet of
 * that size, at the sum of the two times that the tables have. The image shows where they came from.
 */
#include <errno.h>
#include <stdlib.h>

#include "kirchhoff.h"
#include "rtm.h"

enum { DEPTH = 1 }; /* of stations, cells */

#define PI 3.14159265358979323846

static void *room(size_t count, size_t bytes)
{
    return calloc(count ? count : 1, bytes);
}

static int no_memory(const char *what)
{
    return rtm_error(-ENOMEM,
                     "no memory for %s: make the grid smaller (--grid), tables coarser "
                     "(--table-step) or stations fewer (--stations)",
                     what);
}

/* ---- the ground ---- */

static int make_model(const struct kir_params *p, struct kir_survey *s)
{
    double cells = (p->smooth < 0 ? 8 * p->spacing : p->smooth) / p->spacing;
    long count = kir_cells(s);
    int rc = rtm_model_new(p->model, p->dims, p->n, &s->model);

    if (rc)
        return rc;
    s->smooth = room((size_t)count, sizeof(float));
    s->velocity = room((size_t)count, sizeof(float));
    if (!s->smooth || !s->velocity)
        return no_memory("the model");
    memcpy(s->smooth, s->model, (size_t)count * sizeof(float));
    rc = rtm_model_smooth(s->grid.n, cells, s->smooth);
    for (long i = 0; i < count; i++)
        s->velocity[i] = (float)(s->smooth[i] / p->spacing);
    return rc;
}

/* ---- stations, rays and tables ---- */

static int spread(int cells, int stations, int i)
{
    return stations == 1 ? cells / 2 : (int)((long)i * (cells - 1) / (stations - 1));
}

static void make_table(struct kir_survey *s, uint32_t station, int aperture)
{
    struct kir_table *t = &s->tables[station];
    const float *at = s->station[station].at;
    int step = s->grid.step;

    for (int d = 0; d < KIR_AXES; d++) {
        int last = s->grid.n[d] - 1, low = 0, high = last;

        if (d != KIR_Z && (int)at[d] - aperture > 0)
            low = ((int)at[d] - aperture) / step * step;
        if (d != KIR_Z && (int)at[d] + aperture < last)
            high = (int)at[d] + aperture;
        t->first[d] = low;
        t->nodes[d] = (high - low + step - 1) / step + 1;
    }
    t->offset = s->nodes;
    s->nodes += (uint64_t)t->nodes[KIR_Z] * (uint64_t)t->nodes[KIR_X] * (uint64_t)t->nodes[KIR_Y];
}

static int make_stations(const struct kir_params *p, struct kir_survey *s, int aperture)
{
    int across = p->dims == 3 ? p->stations[1] : 1;

    s->stations = (uint32_t)(p->stations[0] * across);
    s->station = room(s->stations, sizeof(*s->station));
    s->tables = room(s->stations, sizeof(*s->tables));
    if (!s->station || !s->tables)
        return no_memory("stations");
    for (uint32_t i = 0; i < s->stations; i++) {
        s->station[i].at[KIR_Z] = DEPTH;
        s->station[i].at[KIR_X] =
            (float)spread(s->grid.n[KIR_X], p->stations[0], (int)i % p->stations[0]);
        s->station[i].at[KIR_Y] = (float)spread(s->grid.n[KIR_Y], across, (int)i / p->stations[0]);
        make_table(s, i, aperture);
    }
    s->times = room(s->nodes, sizeof(*s->times));
    return s->times ? 0 : no_memory("tables");
}

/* Makes enough rays that at the far end of a table two of them are about a node apart. */
static int make_rays(const struct kir_params *p, struct kir_survey *s, int aperture)
{
    double depth = s->grid.n[KIR_Z], far = sqrt(depth * depth + (double)aperture * aperture);
    double nodes = far / s->grid.step, golden = PI * (3 - sqrt(5));

    s->rays = (uint32_t)ceil(p->dims == 3 ? 2 * PI * nodes * nodes : PI * nodes) + 8;
    s->direction = room(s->rays, sizeof(*s->direction));
    if (!s->direction)
        return no_memory("rays");
    for (uint32_t i = 0; i < s->rays; i++) {
        double share = (i + 0.5) / s->rays, angle = PI * (share - 0.5), down = 1 - share;
        double flat = sqrt(1 - down * down);

        s->direction[i][KIR_Z] = (float)(p->dims == 3 ? down : cos(angle));
        s->direction[i][KIR_X] = (float)(p->dims == 3 ? flat * cos(golden * i) : sin(angle));
        s->direction[i][KIR_Y] = (float)(p->dims == 3 ? flat * sin(golden * i) : 0);
    }
    return 0;
}

static float velocity_at(const struct kir_survey *s, uint32_t station)
{
    const float *at = s->station[station].at;
    const int *n = s->grid.n;

    return s->velocity[((long)at[KIR_Y] * n[KIR_X] + (long)at[KIR_X]) * n[KIR_Z] + (long)at[KIR_Z]];
}

void kir_rays_init(const struct kir_survey *s, uint32_t first, uint32_t stations,
                   struct kir_ray *ret_rays)
{
    for (uint32_t i = 0; i < stations * s->rays; i++) {
        uint32_t station = first + i / s->rays;
        struct kir_ray *r = &ret_rays[i];

        *r = (struct kir_ray){.table = station};
        for (int d = 0; d < KIR_AXES; d++) {
            r->at[d] = s->station[station].at[d];
            r->p[d] = s->direction[i % s->rays][d] / velocity_at(s, station);
        }
    }
}

uint64_t kir_words_of(const struct kir_survey *s, uint32_t first, uint32_t stations)
{
    uint64_t end = first + stations < s->stations ? s->tables[first + stations].offset : s->nodes;

    return end - s->tables[first].offset;
}

void kir_words_init(const struct kir_survey *s, uint32_t first, uint32_t stations,
                    uint64_t *ret_words)
{
    memset(ret_words, 0, kir_words_of(s, first, stations) * sizeof(*ret_words));
    for (uint32_t i = first; i < first + stations; i++) {
        const struct kir_table *t = &s->tables[i];
        struct kir_ray r = {.length = 1};
        int at[KIR_AXES], last[KIR_AXES], from[KIR_AXES];

        memcpy(r.at, s->station[i].at, sizeof(r.at));
        for (int d = 0; d < KIR_AXES; d++)
            from[d] = kir_near(&s->grid, t, &r, d, &last[d]);
        for (at[KIR_Y] = from[KIR_Y]; at[KIR_Y] <= last[KIR_Y]; at[KIR_Y]++)
            for (at[KIR_X] = from[KIR_X]; at[KIR_X] <= last[KIR_X]; at[KIR_X]++)
                for (at[KIR_Z] = from[KIR_Z]; at[KIR_Z] <= last[KIR_Z]; at[KIR_Z]++) {
                    float dd = 0;

                    for (int d = 0; d < KIR_AXES; d++) {
                        float delta = (float)(t->first[d] + at[d] * s->grid.step) - r.at[d];

                        dd += delta * delta;
                    }
                    ret_words[kir_node(t, at) - s->tables[first].offset] =
                        kir_word(0, sqrtf(dd) / velocity_at(s, i));
                }
    }
}

void kir_words_done(struct kir_survey *s, uint32_t first, uint32_t stations, const uint64_t *words)
{
    uint64_t from = s->tables[first].offset, count = kir_words_of(s, first, stations);

    for (uint64_t i = 0; i < count; i++)
        s->times[from + i] = kir_word_time(words[i]);
}

/* ---- traces ---- */

static double apart(const struct kir_survey *s, uint32_t a, uint32_t b)
{
    double x = s->station[a].at[KIR_X] - s->station[b].at[KIR_X],
           y = s->station[a].at[KIR_Y] - s->station[b].at[KIR_Y];

    return sqrt(x * x + y * y);
}

/* Counts items if `receiver` is NULL, otherwise writes them. */
static void list_items(struct kir_survey *s, double offset)
{
    s->nitems = s->ntraces = 0;
    for (uint32_t a = 0; a < s->stations; a++) {
        uint32_t mine = 0;

        for (uint32_t b = a; b < s->stations; b++) {
            if (apart(s, a, b) > offset)
                continue;
            if (mine++ % KIR_RECEIVERS == 0) {
                if (s->items)
                    s->items[s->nitems] = (struct kir_item){a, s->ntraces, 0};
                s->nitems++;
            }
            if (s->items) {
                s->items[s->nitems - 1].traces++;
                s->receiver[s->ntraces] = b;
            }
            s->ntraces++;
        }
    }
}

static int make_items(struct kir_survey *s, double offset)
{
    list_items(s, offset);
    s->items = room(s->nitems, sizeof(*s->items));
    s->receiver = room(s->ntraces, sizeof(*s->receiver));
    if (!s->items || !s->receiver)
        return no_memory("traces");
    list_items(s, offset);
    return 0;
}

int kir_survey_init(const struct kir_params *p, struct kir_survey *ret_survey)
{
    struct kir_survey *s = ret_survey;
    double offset, fastest = 0, depth = (p->n[KIR_Z] - 1) * p->spacing, slowest = 1e9, time;
    int aperture, rc;

    memset(s, 0, sizeof(*s));
    s->dims = p->dims;
    for (int d = 0; d < KIR_AXES; d++)
        s->grid.n[d] = d < p->dims ? p->n[d] : 1;
    s->grid.step = p->table_step;
    rc = make_model(p, s);
    if (rc)
        return rc;
    for (long i = 0; i < kir_cells(s); i++) {
        fastest = s->smooth[i] > fastest ? s->smooth[i] : fastest;
        slowest = s->smooth[i] < slowest ? s->smooth[i] : slowest;
    }
    aperture = (int)((p->aperture > 0 ? p->aperture : 1.2 * depth) / p->spacing);
    offset = (p->offset > 0 ? p->offset : depth) / p->spacing;
    time = p->time > 0 ? p->time : 2.6 * depth / (0.5 * (fastest + slowest)) + 3 / p->frequency;
    /* Half a node at most, so that a ray passes none of them by. */
    s->grid.dt = (float)(0.5 * s->grid.step * p->spacing / fastest);
    s->steps = (int)ceil(time / s->grid.dt);
    s->grid.rate = (float)(12 * p->frequency);
    s->grid.samples = (int)ceil(time * s->grid.rate) + 2;
    rc = make_stations(p, s, aperture);
    if (rc == 0)
        rc = make_rays(p, s, aperture);
    if (rc == 0)
        rc = make_items(s, offset);
    if (rc)
        return rc;
    s->samples = room((size_t)s->ntraces * (size_t)s->grid.samples, sizeof(float));
    s->image = room((size_t)kir_cells(s), sizeof(*s->image));
    return s->samples && s->image ? 0 : no_memory("traces");
}

/* The signal at the receiver if the source sends a spike. */
static void spikes(const struct kir_survey *s, uint32_t source, uint32_t receiver, float *spike)
{
    const int *n = s->grid.n;
    int cell[KIR_AXES];
    long i = 0;

    for (cell[KIR_Y] = 0; cell[KIR_Y] < n[KIR_Y]; cell[KIR_Y]++)
        for (cell[KIR_X] = 0; cell[KIR_X] < n[KIR_X]; cell[KIR_X]++)
            for (cell[KIR_Z] = 0; cell[KIR_Z] < n[KIR_Z]; cell[KIR_Z]++, i++) {
                float contrast = s->model[i] / s->smooth[i] - 1, at;
                int k;

                if (fabsf(contrast) < 2e-3f)
                    continue;
                at = (kir_cpu_time(s, source, cell) + kir_cpu_time(s, receiver, cell)) *
                     s->grid.rate;
                if (!(at < (float)(s->grid.samples - 1)))
                    continue;
                contrast *= kir_steep(s->station[source].at, cell) *
                            kir_steep(s->station[receiver].at, cell);
                k = (int)at;
                spike[k] += contrast * (1 - (at - (float)k));
                spike[k + 1] += contrast * (at - (float)k);
            }
}

int kir_survey_traces(const struct kir_params *p, struct kir_survey *s)
{
    int samples = s->grid.samples, half = (int)(1.5 * s->grid.rate / p->frequency);
    float *wavelet = room((size_t)(2 * half + 1), sizeof(float)), most = 0;
    bool failed = !wavelet;

    for (int i = -half; wavelet && i <= half; i++) {
        double a = PI * p->frequency * i / s->grid.rate;

        wavelet[i + half] = (float)((1 - 2 * a * a) * exp(-a * a));
    }
    KIR_PARALLEL
    for (uint32_t i = 0; i < s->nitems; i++)
        for (uint32_t k = s->items[i].first; k < s->items[i].first + s->items[i].traces; k++) {
            float *spike = room((size_t)samples, sizeof(float));
            float *trace = s->samples + (size_t)k * (size_t)samples;

            if (!spike || !wavelet) {
                failed = true;
                continue;
            }
            spikes(s, s->items[i].source, s->receiver[k], spike);
            for (int t = 0; t < samples; t++)
                for (int w = -half; w <= half; w++)
                    if (t - w >= 0 && t - w < samples)
                        trace[t] += spike[t - w] * wavelet[w + half];
            free(spike);
        }
    free(wavelet);
    if (failed)
        return no_memory("traces");
    for (size_t i = 0; i < (size_t)s->ntraces * (size_t)samples; i++)
        most = fabsf(s->samples[i]) > most ? fabsf(s->samples[i]) : most;
    if (!(most > 0))
        return rtm_error(-EINVAL,
                         "nothing comes back: the model has no contrast, or its traces are "
                         "too short (--time) for its depth");
    s->grid.scale = (float)(1 << 24) / most;
    return 0;
}

struct kir_shots kir_shots_of(const struct kir_survey *s)
{
    return (struct kir_shots){s->grid, s->tables, s->station, s->receiver, s->samples};
}

void kir_survey_fini(struct kir_survey *s)
{
    free(s->model);
    free(s->smooth);
    free(s->velocity);
    free(s->station);
    free(s->direction);
    free(s->tables);
    free(s->times);
    free(s->items);
    free(s->receiver);
    free(s->samples);
    free(s->image);
    memset(s, 0, sizeof(*s));
}
