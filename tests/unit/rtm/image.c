/* SPDX-License-Identifier: Apache-2.0 */
/* The physics: a reflector is imaged where it is, with the sign of its contrast; borders absorb; the
 * scheme is as accurate as it should be; and compression costs what it was allowed to. */
#include <math.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "rtm.h"
#include "t.h"

enum { NX = 70, NZ = 60, REFLECTOR = 40 };

static const char *write_model(int nz, int nx, int reflector, float above, float below)
{
    static char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/model.raw", t_tmpdir());
    f = fopen(path, "wb");
    T_CHECK(f);
    for (int x = 0; x < nx; x++)
        for (int z = 0; z < nz; z++)
            T_EQ(fwrite(z >= reflector ? &below : &above, sizeof(float), 1, f), 1);
    T_EQ(fclose(f), 0);
    return path;
}

static void survey(struct rtm_params *p, const char *model)
{
    rtm_params_init(p);
    T_OK(varve_opts_init(&p->varve, sizeof(p->varve)));
    p->n[RTM_X] = NX;
    p->n[RTM_Z] = NZ;
    p->spacing = 10;
    p->frequency = 15;
    p->shots = t_sanitized() ? 1 : 3;
    p->time = 0.6; /* the reflector answers after 0.5 s */
    p->border = 12;
    p->threads = 1;
    p->store = RTM_STORE_MEMORY;
    p->quiet = true;
    p->out[0] = 0;
    snprintf(p->model, sizeof(p->model), "%s", model);
}

static void run(const struct rtm_params *p, struct rtm_result *r)
{
    if (rtm_run(p, NULL, r) != 0)
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
}

/* The depth of the largest amplitude, in the middle of the image; its value. */
static int peak(const float *image, float *ret_value)
{
    const float *column = image + (long)(NX / 2) * NZ;
    int at = 0;

    for (int z = 0; z < NZ; z++)
        if (fabsf(column[z]) > fabsf(column[at]))
            at = z;
    *ret_value = column[at];
    return at;
}

static void reflector_is_where_it_is(void)
{
    static const float below[] = {2300, 1800};

    for (int i = t_sanitized(); i < 2; i++) {
        struct rtm_params p;
        struct rtm_result r;
        float value;
        int z;

        survey(&p, write_model(NZ, NX, REFLECTOR, 2000, below[i]));
        run(&p, &r);
        z = peak(r.image, &value);
        t_note("velocity %g over %g at cell %d: imaged at %d, %g", 2000.0, (double)below[i],
               REFLECTOR, z, (double)value);
        T_CHECK(abs(z - REFLECTOR) <= 1); /* the boundary is between two cells */
        T_CHECK((value > 0) == (below[i] > 2000));
        rtm_result_fini(&r);
    }
}

/* The same in three dimensions, where the layers do not depend on y. */
static void reflector_in_3d(void)
{
    enum { CELLS = 30, DEEP = 40, LAYER = 26 };
    struct rtm_params p;
    struct rtm_result r;
    const float *column;
    int at = 0;

    if (t_sanitized())
        return;
    survey(&p, write_model(DEEP, CELLS * CELLS, LAYER, 2000, 2400));
    p.dims = 3;
    p.n[RTM_X] = p.n[RTM_Y] = CELLS;
    p.n[RTM_Z] = DEEP;
    p.border = 8;
    p.shots = 1;
    p.time = 0.45;
    run(&p, &r);
    column = r.image + ((long)(CELLS / 2) * CELLS + CELLS / 2) * DEEP;
    for (int z = 0; z < DEEP; z++)
        if (fabsf(column[z]) > fabsf(column[at]))
            at = z;
    t_note("3D: at cell %d, imaged at %d, %g", LAYER, at, (double)column[at]);
    T_CHECK(abs(at - LAYER) <= 1 && column[at] > 0);
    rtm_result_fini(&r);
}

/* With no contrast there is nothing to see, not even the direct wave. */
static void nothing_is_imaged_where_nothing_is(void)
{
    struct rtm_params p;
    struct rtm_result r;

    survey(&p, write_model(NZ, NX, NZ, 2000, 2000));
    snprintf(p.migration_model, sizeof(p.migration_model), "%s", p.model);
    run(&p, &r);
    for (long i = 0; i < (long)NX * NZ; i++)
        T_CHECK(r.image[i] == 0);
    rtm_result_fini(&r);
}

/* ---- the propagator itself ---- */

struct field {
    struct rtm_grid g;
    struct rtm_prop *prop;
    float *a[RTM_AXES], *b[RTM_AXES];
};

/* A point source in the middle of nothing; `c` is the velocity in cells a step. */
static void field_init(struct field *f, int dims, int cells, int border, double c, double frequency,
                       long receiver, int steps)
{
    int n[RTM_AXES] = {cells, cells, dims == 3 ? cells : 1};
    struct rtm_setup setup = {
        .steps = steps, .receivers = 1, .receiver_cells = &receiver, .threads = 1};
    float *v2;

    rtm_grid_init(&f->g, dims, n, border);
    setup.grid = f->g;
    for (int d = 0; d < dims; d++) {
        f->a[d] = calloc(2 * (size_t)f->g.slab, sizeof(float));
        f->b[d] = calloc(2 * (size_t)f->g.slab, sizeof(float));
        rtm_grid_stretch(&f->g, d, c, frequency, f->a[d], f->b[d]);
        setup.stretch[d][0] = f->a[d];
        setup.stretch[d][1] = f->b[d];
    }
    T_OK(rtm_prop_cpu_new(&setup, &f->prop));
    v2 = malloc((size_t)f->g.cells * sizeof(float));
    for (long i = 0; i < f->g.cells; i++)
        v2[i] = (float)(c * c);
    T_OK(f->prop->ops->set_model(f->prop, v2));
    free(v2);
}

static void field_fini(struct field *f)
{
    f->prop->ops->free(f->prop);
    for (int d = 0; d < f->g.dims; d++) {
        free(f->a[d]);
        free(f->b[d]);
    }
}

static float ricker(int it, double frequency)
{
    double u = 3.14159265358979323846 * (frequency * it - 1.5);

    return (float)((1 - 2 * u * u) * exp(-u * u));
}

/* The signal that a receiver records `offset` cells beside the source, in a model of so many cells. */
static void listen(int dims, int cells, int border, int offset, int steps, float *heard)
{
    const double c = 0.4, frequency = 0.04;
    struct field f;
    struct rtm_grid g;
    int n[RTM_AXES] = {cells, cells, dims == 3 ? cells : 1}, middle = cells / 2;
    int y = dims == 3 ? middle : 0;

    rtm_grid_init(&g, dims, n, border);
    field_init(&f, dims, cells, border, c, frequency, rtm_grid_cell(&g, middle, middle + offset, y),
               steps);
    for (int it = 0; it < steps; it++) {
        T_OK(f.prop->ops->step(f.prop));
        T_OK(f.prop->ops->inject(f.prop, rtm_grid_cell(&g, middle, middle, y),
                                 ricker(it, frequency)));
        T_OK(f.prop->ops->record(f.prop, it));
    }
    T_OK(f.prop->ops->get_records(f.prop, heard));
    field_fini(&f);
}

/* A small model with borders sounds as a large one, whose edges are too far to be heard. */
static void borders_absorb(void)
{
    for (int dims = 2; dims <= 3; dims++) {
        int steps = dims == 3 ? 110 : 200, small = dims == 3 ? 20 : 30,
            large = dims == 3 ? 52 : 110;
        float *in_small = malloc((size_t)steps * sizeof(float));
        float *in_large = malloc((size_t)steps * sizeof(float));
        float loudest = 0, echo = 0;

        listen(dims, small, 14, 6, steps, in_small);
        listen(dims, large, 4, 6, steps, in_large);
        for (int i = 0; i < steps; i++) {
            loudest = fmaxf(loudest, fabsf(in_large[i]));
            echo = fmaxf(echo, fabsf(in_large[i] - in_small[i]));
        }
        t_note("%dD: the borders return %.1e of the wave", dims, (double)(echo / loudest));
        T_CHECK(loudest > 0 && echo < 0.01f * loudest);
        free(in_small);
        free(in_large);
    }
}

/* Nothing grows up to the largest time step that is said to be stable, and something does beyond. */
static void stable_up_to_the_limit(void)
{
    static const double share[] = {0.99, 1.05};

    for (int i = 0; i < 2; i++)
        for (int dims = 2; dims <= 3; dims++) {
            int n[RTM_AXES] = {16, 16, dims == 3 ? 16 : 1}, steps = 300;
            double c = share[i] * rtm_grid_dt_max(dims, 1, 1);
            struct rtm_grid g;
            struct field f;
            float *heard = malloc((size_t)steps * sizeof(float)), last;

            rtm_grid_init(&g, dims, n, 4);
            field_init(&f, dims, 16, 4, c, 0.05, rtm_grid_cell(&g, 8, 8, dims == 3 ? 8 : 0), steps);
            for (int it = 0; it < steps; it++) {
                T_OK(f.prop->ops->step(f.prop));
                T_OK(f.prop->ops->inject(f.prop, rtm_grid_cell(&g, 7, 9, dims == 3 ? 6 : 0),
                                         it == 0 ? 1 : 0));
                T_OK(f.prop->ops->record(f.prop, it));
            }
            T_OK(f.prop->ops->get_records(f.prop, heard));
            last = fabsf(heard[steps - 1]);
            T_CHECK(i == 0 ? last < 1 : !(last < 1));
            field_fini(&f);
            free(heard);
        }
}

static void packing_keeps_its_promise(void)
{
    int n[RTM_AXES] = {40, 50, 1};
    struct rtm_grid g;
    struct rtm_pack *pack;
    float *field = malloc(2000 * sizeof(float)), *back = malloc(2000 * sizeof(float));
    void *buffer;
    size_t bytes;

    if (!rtm_pack_built()) {
        t_note("built without zfp");
        free(field);
        free(back);
        return;
    }
    rtm_grid_init(&g, 2, n, 4);
    for (int i = 0; i < 2000; i++)
        field[i] = 3 * sinf(0.01f * (float)i) * cosf(0.3f * (float)(i % 40));
    T_OK(rtm_pack_new(&g, 1e-3, &pack));
    buffer = malloc(rtm_pack_max_bytes(pack));
    T_OK(rtm_pack(pack, field, buffer, &bytes));
    T_CHECK(bytes < 2000 * sizeof(float) / 2);
    T_OK(rtm_unpack(pack, buffer, back));
    for (int i = 0; i < 2000; i++)
        T_CHECK(fabsf(field[i] - back[i]) <= 3e-3f);
    rtm_pack_free(pack);
    free(buffer);
    free(field);
    free(back);
}

static void sizes_are_read(void)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t bytes;
    } cases[] = {{"0", 0, 0},           {"17", 0, 17},
                 {"4K", 0, 4096},       {"1.5M", 0, 1536 << 10},
                 {"2GiB", 0, 2u << 30}, {"8kb", 0, 8192},
                 {"", -EINVAL, 0},      {"M", -EINVAL, 0},
                 {"-1", -EINVAL, 0},    {"3 apples", -EINVAL, 0},
                 {"nan", -EINVAL, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 0;

        T_ERR(rtm_parse_bytes(cases[i].text, &bytes), cases[i].rc);
        T_EQ(bytes, cases[i].bytes);
    }
}

int main(void)
{
    T_RUN(reflector_is_where_it_is);
    T_RUN(reflector_in_3d);
    T_RUN(nothing_is_imaged_where_nothing_is);
    T_RUN(borders_absorb);
    T_RUN(stable_up_to_the_limit);
    T_RUN(packing_keeps_its_promise);
    T_RUN(sizes_are_read);
    return t_done();
}
