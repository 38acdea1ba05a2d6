/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration. For each shot:
 *
 *   observe   model the data in the true model (or read them)
 *   forward   propagate the source in the smooth model, record what the receivers would see there,
 *             and put a snapshot of the field into the store every few steps
 *   subtract  the recorded data from the observed: direct and diving waves vanish, reflections stay
 *   backward  propagate the receivers' data from the last step to the first; where there is a
 *             snapshot, get it from the store, correlate, and sum
 *
 * Injected as sources along the surface, data come out integrated over time once; they are
 * differentiated first, in the direction they travel, so that reflectors are imaged with the phase of the wavelet's
 * autocorrelation, the peak at the reflector.
 *
 * Images of shots are added in the order of the shots, independent of the processes that computed them.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <varve/trace.h>

#include "rtm.h"

volatile sig_atomic_t rtm_interrupted;

enum { SURFACE = 2, MIN_CELLS = 16 }; /* depth of sources and receivers in cells; see rtm_slab_at */
#define MAX_STEPS 1e9

struct job {
    const struct rtm_params *p;
    const struct rtm_part *part;
    struct rtm_grid g;
    struct rtm_result *out;
    struct rtm_summary *sum;
    struct rtm_prop *prop;
    struct rtm_store *store;
    struct rtm_pack *pack;
    struct rtm_progress progress;
    float *v2_true, *v2_smooth; /* fields */
    float *wavelet;
    float *observed, *recorded; /* steps * receivers */
    float *image, *light, *sum_image, *sum_light;
    float *plain; /* a snapshot before compression */
    long *receiver_cells;
    float *stretch[RTM_AXES][2];
    char folder[RTM_PATH + 32];
    bool made_folder;
    FILE *data_in, *data_out;
    double blocked_s; /* so far, for the progress */
};

/* ---- choosing defaults ---- */

static int load_models(struct job *j)
{
    const struct rtm_params *p = j->p;
    int n[RTM_AXES] = {p->n[RTM_Z], p->n[RTM_X], p->dims == 3 ? p->n[RTM_Y] : 1};
    long points = (long)n[0] * n[1] * n[2];
    double smooth = p->smooth >= 0 ? p->smooth : 6 * p->spacing;
    int rc;

    for (int d = 0; d < p->dims; d++)
        if (n[d] < MIN_CELLS)
            return rtm_error(-EINVAL, "the grid needs at least %d cells along each axis: --grid",
                             MIN_CELLS);
    rc = rtm_model_new(p->model, p->dims, n, &j->out->model);
    if (rc)
        return rc;
    if (p->migration_model[0])
        return rtm_model_new(p->migration_model, p->dims, n, &j->out->migration);
    j->out->migration = malloc((size_t)points * sizeof(float));
    if (!j->out->migration)
        return rtm_error(-ENOMEM,
                         "not enough memory for the model: make the grid smaller (--grid)");
    memcpy(j->out->migration, j->out->model, (size_t)points * sizeof(float));
    return rtm_model_smooth(n, smooth / p->spacing, j->out->migration);
}

/* Down to the bottom and up again, out to half the width, and the wavelet. */
static double listening_time(const struct job *j)
{
    const int *n = j->p->n;
    int columns = n[RTM_X] * (j->p->dims == 3 ? n[RTM_Y] : 1);
    double longest = 0, out;

    for (int c = 0; c < columns; c++) {
        double t = 0;

        for (int z = 0; z < n[RTM_Z]; z++)
            t += 2 * j->p->spacing / j->out->model[(long)c * n[RTM_Z] + z];
        longest = t > longest ? t : longest;
    }
    out = longest * n[RTM_X] / (2.0 * n[RTM_Z]) / 2;
    return 3 / j->p->frequency + sqrt(longest * longest + out * out);
}

static int choose_time(struct job *j)
{
    const struct rtm_params *p = j->p;
    long points = rtm_grid_points(&j->g);
    float min, max, smooth_min, smooth_max;
    double limit, steps, every, top = 2.5 * p->frequency; /* hardly any energy is above it */

    rtm_model_range(j->out->model, points, &min, &max);
    rtm_model_range(j->out->migration, points, &smooth_min, &smooth_max);
    max = smooth_max > max ? smooth_max : max;
    min = smooth_min < min ? smooth_min : min;
    limit = rtm_grid_dt_max(p->dims, p->spacing, max);
    if (p->dt > limit)
        return rtm_error(
            -EINVAL,
            "a time step of %g s is unstable: with cells of %g m and velocities up to %g "
            "m/s it can be %.3g s at most (--dt), or leave it out",
            p->dt, p->spacing, (double)max, limit);
    j->sum->dt = p->dt > 0 ? p->dt : 0.8 * limit;
    if (min / (top * p->spacing) < 2.5)
        rtm_warn("%.1f cells per shortest wavelength: waves of %g Hz at %g m/s will disperse; use "
                 "cells of %.3g m (--spacing) or %.3g Hz (--frequency)",
                 min / (top * p->spacing), top, (double)min, min / (top * 3),
                 p->frequency * (min / (top * p->spacing)) / 3);
    steps =
        p->steps > 0 ? p->steps : ceil((p->time > 0 ? p->time : listening_time(j)) / j->sum->dt);
    if (!(steps <= MAX_STEPS))
        return rtm_error(-EINVAL,
                         "%.3g steps of %.3g s are too many: set --time or --steps, or leave out "
                         "--dt",
                         steps, j->sum->dt);
    j->sum->steps = (int)steps;
    every = p->every > 0 ? p->every : floor(0.8 / (2 * top) / j->sum->dt);
    j->sum->every = (int)fmin(fmax(every, 1), MAX_STEPS);
    if (p->every > 1 && p->every * j->sum->dt > 1 / (2 * top))
        rtm_warn("a snapshot every %d steps is too seldom for %g Hz: use --every %d", p->every,
                 p->frequency, (int)fmax(floor(1 / (2 * top) / j->sum->dt), 1));
    j->sum->snapshots = (uint64_t)(j->sum->steps - 1) / (uint64_t)j->sum->every + 1;
    return 0;
}

static int place_receivers(struct job *j)
{
    const struct rtm_grid *g = &j->g;
    int step = j->p->receiver_step > 0 ? j->p->receiver_step : (g->dims == 3 ? 2 : 1);
    int nx = (g->n[RTM_X] - 1) / step + 1, ny = (g->n[RTM_Y] - 1) / step + 1;
    long count = 0;

    j->receiver_cells = malloc((size_t)nx * (size_t)ny * sizeof(*j->receiver_cells));
    if (!j->receiver_cells)
        return rtm_error(-ENOMEM, "out of memory");
    for (int y = 0; y < ny; y++)
        for (int x = 0; x < nx; x++)
            j->receiver_cells[count++] = rtm_grid_cell(g, SURFACE, x * step, y * step);
    j->sum->receivers = (int)count;
    return 0;
}

/* Shots stand in a line along x, in 3D in as many lines as make squares. */
static long shot_cell(const struct job *j, int shot)
{
    const struct rtm_grid *g = &j->g;
    int lines = g->dims == 3 ? (int)floor(sqrt((double)j->p->shots)) : 1;
    int line = shot % lines, in_line = (j->p->shots - line + lines - 1) / lines, k = shot / lines;
    int x = (int)((k + 0.5) * g->n[RTM_X] / in_line), y = (int)((line + 0.5) * g->n[RTM_Y] / lines);

    return rtm_grid_cell(g, SURFACE, x, y);
}

/* ---- setting up ---- */

static float *floats(size_t count)
{
    return calloc(count ? count : 1, sizeof(float));
}

static int inside(int cell, int cells)
{
    return cell < 0 ? 0 : cell >= cells ? cells - 1 : cell;
}

/* (c dt / h)^2 in every cell of a field; borders continue the model's edges. */
static float *squares(const struct job *j, const float *velocity)
{
    const struct rtm_grid *g = &j->g;
    float *v2 = floats((size_t)g->cells);
    double scale = j->sum->dt / j->p->spacing;

    if (!v2)
        return NULL;
    RTM_PARALLEL
    for (long column = 0; column < (long)g->m[RTM_Y] * g->m[RTM_X]; column++) {
        int x = (int)(column % g->m[RTM_X]), y = (int)(column / g->m[RTM_X]);
        int from_x = inside(x - g->border, g->n[RTM_X]);
        int from_y = g->dims == 3 ? inside(y - g->border, g->n[RTM_Y]) : 0;
        const float *from = velocity + ((long)from_y * g->n[RTM_X] + from_x) * g->n[RTM_Z];
        float *to = v2 + g->origin + x * g->stride[RTM_X] + y * g->stride[RTM_Y];

        for (int z = 0; z < g->m[RTM_Z]; z++) {
            double c = from[inside(z - g->border, g->n[RTM_Z])] * scale;

            to[z] = (float)(c * c);
        }
    }
    return v2;
}

static void make_wavelet(struct job *j)
{
    const double pi = 3.14159265358979323846;

    for (int i = 0; i < j->sum->steps; i++) {
        double t = i * j->sum->dt - 1.5 / j->p->frequency;
        double u = pi * j->p->frequency * t;

        j->wavelet[i] = (float)((1 - 2 * u * u) * exp(-u * u));
    }
}

static int allocate(struct job *j)
{
    size_t points = (size_t)rtm_grid_points(&j->g);
    size_t data = (size_t)j->sum->steps * (size_t)j->sum->receivers;
    bool ok;

    j->v2_true = squares(j, j->out->model);
    j->v2_smooth = squares(j, j->out->migration);
    j->wavelet = floats((size_t)j->sum->steps);
    j->observed = floats(data);
    j->recorded = floats(data);
    j->image = floats(points);
    j->light = floats(points);
    j->sum_image = floats(points);
    j->sum_light = floats(points);
    j->plain = j->p->zfp > 0 ? floats(points) : NULL;
    ok = j->v2_true && j->v2_smooth && j->wavelet && j->observed && j->recorded && j->image &&
         j->light && j->sum_image && j->sum_light && (j->plain || j->p->zfp <= 0);
    for (int d = 0; d < j->g.dims; d++)
        for (int i = 0; i < 2; i++)
            ok = (j->stretch[d][i] = floats(2 * (size_t)j->g.slab)) && ok;
    if (!ok)
        return rtm_error(-ENOMEM, "not enough memory for the wavefields: make the grid smaller "
                                  "(--grid), or the receivers fewer (--receiver-step)");
    return 0;
}

static int make_propagator(struct job *j)
{
    struct rtm_setup setup = {
        .grid = j->g,
        .steps = j->sum->steps,
        .receivers = j->sum->receivers,
        .receiver_cells = j->receiver_cells,
        .threads = j->p->threads,
        .device_id = j->p->varve.device_id,
    };
    float min, max;

    rtm_model_range(j->out->migration, rtm_grid_points(&j->g), &min, &max);
    for (int d = 0; d < j->g.dims; d++) {
        rtm_grid_stretch(&j->g, d, max * j->sum->dt / j->p->spacing, j->p->frequency * j->sum->dt,
                         j->stretch[d][0], j->stretch[d][1]);
        for (int i = 0; i < 2; i++)
            setup.stretch[d][i] = j->stretch[d][i];
    }
    return j->p->device == RTM_CUDA ? rtm_prop_cuda_new(&setup, &j->prop)
                                    : rtm_prop_cpu_new(&setup, &j->prop);
}

/* The folder for files: the one named, or one of our own in the folder of the results. */
static int make_folders(struct job *j)
{
    const struct rtm_params *p = j->p;
    bool needs_disk = p->store == RTM_STORE_FILE || p->measure_disk ||
                      (p->store == RTM_STORE_VARVE && !p->no_local);

    if (p->out[0] && mkdir(p->out, 0777) != 0 && errno != EEXIST)
        return rtm_error(-errno, "the folder %s cannot be made: %s; name another with --out",
                         p->out, strerror(errno));
    if (p->out[0] && access(p->out, W_OK | X_OK) != 0)
        return rtm_error(-errno,
                         "nothing can be written into %s: %s; name another folder with --out",
                         p->out, strerror(errno));
    if (!needs_disk)
        return 0;
    if (p->varve.local[0]) {
        snprintf(j->folder, sizeof(j->folder), "%s", p->varve.local);
    } else {
        snprintf(j->folder, sizeof(j->folder), "%s%shistory", p->out, p->out[0] ? "/" : "rtm-");
        if (j->part && j->part->ranks > 1)
            snprintf(j->folder + strlen(j->folder), sizeof(j->folder) - strlen(j->folder), "-%d",
                     j->part->rank);
        j->made_folder = true;
    }
    if (mkdir(j->folder, 0777) != 0 && errno != EEXIST)
        return rtm_error(-errno, "the folder %s cannot be made: %s; name another with --local",
                         j->folder, strerror(errno));
    if (access(j->folder, W_OK | X_OK) != 0)
        return rtm_error(-errno,
                         "nothing can be written into %s: %s; name another folder with --local",
                         j->folder, strerror(errno));
    return 0;
}

static int open_data(struct job *j)
{
    const struct rtm_params *p = j->p;
    uint64_t bytes = (uint64_t)j->p->shots * (uint64_t)j->sum->steps * (uint64_t)j->sum->receivers *
                     sizeof(float);
    struct stat st;
    int fd;

    if (p->data[0] && p->write_data[0])
        return rtm_error(-EINVAL, "--write-data keeps the data that are modelled, and with --data "
                                  "none are: leave out one of them");
    if (p->data[0]) {
        j->data_in = fopen(p->data, "rb");
        if (!j->data_in || fstat(fileno(j->data_in), &st) != 0)
            return rtm_error(-errno, "data %s: %s", p->data, strerror(errno));
        if ((uint64_t)st.st_size != bytes)
            return rtm_error(
                -EINVAL,
                "data %s has %lld bytes, and %d shots, %d steps and %d receivers make "
                "%llu: set --shots, --steps, --dt and --receiver-step to those of the data",
                p->data, (long long)st.st_size, p->shots, j->sum->steps, j->sum->receivers,
                (unsigned long long)bytes);
    }
    if (!p->write_data[0])
        return 0;
    /* Another rank may have written some of it already: nothing is cut off. */
    fd = open(p->write_data, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) == 0 || errno == EINVAL)) /* /dev/null */
        j->data_out = fdopen(fd, "wb");
    if (!j->data_out) {
        int rc = rtm_error(-errno, "data %s: %s", p->write_data, strerror(errno));

        if (fd >= 0)
            close(fd);
        return rc;
    }
    return 0;
}

static int open_store(struct job *j)
{
    struct rtm_store_opts o = {
        .params = j->p,
        .prop = j->prop,
        .snapshots = j->sum->snapshots,
        .folder = j->folder,
    };
    double from;
    int rc;

    j->sum->snapshot_bytes = (uint64_t)rtm_grid_points(&j->g) * sizeof(float);
    o.max_bytes = j->sum->snapshot_bytes;
    if (j->p->zfp > 0) {
        rc = rtm_pack_new(&j->g, j->p->zfp, &j->pack);
        if (rc)
            return rc;
        o.max_bytes = rtm_pack_max_bytes(j->pack);
    }
    o.fixed = !j->pack;
    o.in_own = !j->pack;
    if (j->p->measure_disk) {
        uint64_t bytes = j->sum->snapshots * j->sum->snapshot_bytes;
        uint64_t most = (uint64_t)1 << 30;

        rc = rtm_measure_disk(j->folder, bytes < most ? bytes : most, &j->sum->disk_write_bps,
                              &j->sum->disk_read_bps);
        if (rc)
            return rc;
    }
    from = rtm_now();
    rc = rtm_store_open(&o, &j->store);
    j->sum->open_s = rtm_now() - from;
    if (rc == 0) {
        j->sum->cache_bytes = j->store->cache_bytes;
        j->sum->direct = j->store->direct;
    }
    return rc;
}

static int set_up(struct job *j)
{
    const struct rtm_params *p = j->p;
    int rc = load_models(j);

    if (rc)
        return rc;
    rtm_grid_init(&j->g, p->dims, p->n, p->border);
    j->sum->grid = j->g;
    j->sum->spacing = p->spacing;
    j->sum->frequency = p->frequency;
    j->sum->shots = p->shots;
    rc = choose_time(j);
    if (rc == 0)
        rc = place_receivers(j);
    if (rc == 0)
        rc = make_folders(j);
    if (rc == 0)
        rc = open_data(j);
    if (rc == 0)
        rc = allocate(j);
    if (rc)
        return rc;
    make_wavelet(j);
    rc = make_propagator(j);
    return rc ? rc : open_store(j);
}

/* ---- a shot ---- */

static int interrupted(void)
{
    return rtm_interrupted ? rtm_error(-EINTR, "interrupted") : 0;
}

static void show(struct job *j, const char *phase, int shot, int step)
{
    rtm_progress_show(&j->progress, j->p, phase, shot, step, j->sum->steps, j->blocked_s, j->store);
}

/* One step of the source field. */
static int source_step(struct job *j, long source, int it)
{
    const struct rtm_prop_ops *ops = j->prop->ops;
    int rc = ops->step(j->prop);

    if (rc == 0)
        rc = ops->inject(j->prop, source, j->wavelet[it]);
    if (rc == 0)
        rc = ops->record(j->prop, it);
    return rc ? rc : interrupted();
}

static int observe(struct job *j, int shot)
{
    size_t count = (size_t)j->sum->steps * (size_t)j->sum->receivers;
    const struct rtm_prop_ops *ops = j->prop->ops;
    double from = rtm_now();
    int rc;

    if (j->data_in) {
        if (fseek(j->data_in, (long)((size_t)shot * count * sizeof(float)), SEEK_SET) != 0 ||
            fread(j->observed, sizeof(float), count, j->data_in) != count)
            return rtm_error(-EIO, "data %s cannot be read", j->p->data);
        return 0;
    }
    rc = ops->set_model(j->prop, j->v2_true);
    if (rc == 0)
        rc = ops->reset(j->prop);
    for (int it = 0; it < j->sum->steps && rc == 0; it++) {
        rc = source_step(j, shot_cell(j, shot), it);
        show(j, "model", shot, it);
    }
    if (rc == 0)
        rc = ops->get_records(j->prop, j->observed);
    if (rc == 0 && j->data_out &&
        (fseek(j->data_out, (long)((size_t)shot * count * sizeof(float)), SEEK_SET) != 0 ||
         fwrite(j->observed, sizeof(float), count, j->data_out) != count))
        rc = rtm_error(-EIO, "data %s cannot be written", j->p->write_data);
    j->sum->model_s += rtm_now() - from;
    return rc;
}

/* Counts the time of a call of the store that began at the given time and has returned. */
static void called(struct job *j, double from)
{
    double s = rtm_now() - from;

    j->sum->call_s += s;
    j->blocked_s += s;
}

static int put_snapshot(struct job *j, uint64_t version, uint64_t *history_bytes)
{
    const struct rtm_prop_ops *ops = j->prop->ops;
    size_t bytes = (size_t)j->sum->snapshot_bytes;
    void *to = NULL;
    double from = rtm_now();
    int rc = ops->pause_begin(j->prop, RTM_PAUSE_PUT), end;

    if (rc == 0)
        rc = j->store->ops->put_begin(j->store, version, &to);
    end = ops->pause_end(j->prop, RTM_PAUSE_PUT);
    called(j, from);
    rc = rc ? rc : end;
    if (rc == 0 && j->pack) {
        rc = ops->snapshot_to_host(j->prop, j->plain);
        if (rc == 0)
            rc = rtm_pack(j->pack, j->plain, to, &bytes);
    } else if (rc == 0) {
        rc = ops->snapshot(j->prop, to);
    }
    if (rc)
        return rc;
    from = rtm_now();
    rc = ops->pause_begin(j->prop, RTM_PAUSE_PUT);
    if (rc == 0)
        rc = j->store->ops->put_end(j->store, version, bytes);
    end = ops->pause_end(j->prop, RTM_PAUSE_PUT);
    called(j, from);
    *history_bytes += bytes;
    return rc ? rc : end;
}

static int get_snapshot(struct job *j, uint64_t version)
{
    const struct rtm_prop_ops *ops = j->prop->ops;
    void *from_store = NULL;
    double from = rtm_now();
    int rc = ops->pause_begin(j->prop, RTM_PAUSE_GET), end;

    if (rc == 0)
        rc = j->store->ops->get_begin(j->store, version, &from_store);
    end = ops->pause_end(j->prop, RTM_PAUSE_GET);
    called(j, from);
    rc = rc ? rc : end;
    if (rc == 0 && j->pack) {
        rc = rtm_unpack(j->pack, from_store, j->plain);
        if (rc == 0)
            rc = ops->correlate_host(j->prop, j->plain);
    } else if (rc == 0) {
        rc = ops->correlate(j->prop, from_store);
    }
    if (rc)
        return rc;
    from = rtm_now();
    rc = ops->pause_begin(j->prop, RTM_PAUSE_GET);
    if (rc == 0)
        rc = j->store->ops->get_end(j->store, version);
    end = ops->pause_end(j->prop, RTM_PAUSE_GET);
    called(j, from);
    return rc ? rc : end;
}

static int forward(struct job *j, int shot)
{
    const struct rtm_prop_ops *ops = j->prop->ops;
    uint64_t bytes = 0;
    double from = rtm_now();
    int rc = ops->set_model(j->prop, j->v2_smooth);

    if (rc == 0)
        rc = ops->reset(j->prop);
    if (rc == 0)
        rc = j->store->ops->shot(j->store, j->sum->snapshots);
    for (int it = 0; it < j->sum->steps && rc == 0; it++) {
        rc = source_step(j, shot_cell(j, shot), it);
        if (rc == 0 && it % j->sum->every == 0)
            rc = put_snapshot(j, (uint64_t)(it / j->sum->every), &bytes);
        show(j, "forward", shot, it);
    }
    if (rc == 0)
        rc = ops->get_records(j->prop, j->recorded);
    j->sum->bytes_put += bytes;
    if (bytes > j->sum->history_bytes)
        j->sum->history_bytes = bytes;
    j->sum->forward_s += rtm_now() - from;
    return rc;
}

/* Reflections only, differentiated over time, into `recorded`. */
static void subtract(struct job *j)
{
    long receivers = j->sum->receivers;
    int steps = j->sum->steps;
    float *r = j->observed;

    RTM_PARALLEL
    for (long i = 0; i < steps * receivers; i++)
        r[i] -= j->recorded[i];
    RTM_PARALLEL
    for (int it = 0; it < steps; it++) {
        const float *before = r + (it > 0 ? it - 1 : it) * receivers;
        const float *after = r + (it < steps - 1 ? it + 1 : it) * receivers;

        for (long i = 0; i < receivers; i++)
            j->recorded[it * receivers + i] = 0.5f * (before[i] - after[i]);
    }
}

static int backward(struct job *j, int shot)
{
    const struct rtm_prop_ops *ops = j->prop->ops;
    double from = rtm_now();
    int rc;

    subtract(j);
    rc = ops->set_data(j->prop, j->recorded);
    if (rc == 0)
        rc = ops->reset(j->prop);
    if (rc == 0)
        rc = ops->clear_image(j->prop);
    for (int it = j->sum->steps - 1; it >= 0 && rc == 0; it--) {
        rc = ops->step(j->prop);
        if (rc == 0)
            rc = ops->inject_data(j->prop, it);
        if (rc == 0 && it % j->sum->every == 0)
            rc = get_snapshot(j, (uint64_t)(it / j->sum->every));
        rc = rc ? rc : interrupted();
        show(j, "backward", shot, j->sum->steps - 1 - it);
    }
    if (rc == 0)
        rc = ops->get_image(j->prop, j->image, j->light);
    j->sum->bytes_got = j->sum->bytes_put;
    j->sum->backward_s += rtm_now() - from;
    return rc;
}

static int add_image(struct job *j, int shot)
{
    long points = rtm_grid_points(&j->g);

    if (j->part && j->part->sum)
        return j->part->sum(shot, points, j->image, j->light, j->sum_image, j->sum_light);
    RTM_PARALLEL
    for (long i = 0; i < points; i++) {
        j->sum_image[i] += j->image[i];
        j->sum_light[i] += j->light[i];
    }
    return 0;
}

static int one_shot(struct job *j, int shot)
{
    double paused[RTM_PAUSES];
    int rc;

    varve_trace_begin("model the data");
    rc = observe(j, shot);
    varve_trace_end();
    if (rc == 0)
        rc = j->prop->ops->pauses(j->prop, paused); /* what came before is not counted */
    varve_trace_begin("forward");
    if (rc == 0)
        rc = forward(j, shot);
    varve_trace_end();
    varve_trace_begin("backward");
    if (rc == 0) {
        double from = rtm_now();

        rc = j->store->ops->turn(j->store, j->sum->snapshots);
        j->sum->backward_s += rtm_now() - from;
    }
    if (rc == 0)
        rc = backward(j, shot);
    if (rc == 0)
        rc = j->prop->ops->pauses(j->prop, paused);
    varve_trace_end();
    if (rc == 0) {
        j->sum->blocked_put_s += paused[RTM_PAUSE_PUT];
        j->sum->blocked_get_s += paused[RTM_PAUSE_GET];
    }
    return rc;
}

/* ---- all of it ---- */

static void finish_summary(struct job *j)
{
    struct rtm_summary *s = j->sum;
    struct rusage usage;
    double cells = (double)j->g.m[0] * j->g.m[1] * j->g.m[2];
    int own = j->part ? (s->shots - j->part->rank + j->part->ranks - 1) / j->part->ranks : s->shots;

    s->wall_s = s->forward_s + s->backward_s;
    s->compute_s = s->wall_s - s->blocked_put_s - s->blocked_get_s;
    if (s->compute_s > 0)
        s->cells_per_s = 2 * cells * s->steps * own / s->compute_s;
    s->device_bytes = j->prop->device_bytes;
    if (j->p->store == RTM_STORE_MEMORY)
        s->cache_bytes = s->history_bytes;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        s->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
}

static int finish_image(struct job *j)
{
    long points = rtm_grid_points(&j->g);
    /* Mute half a wavelength of water, and at least twice the depth of sources and receivers. */
    int mute = (int)ceil(0.5 * j->out->migration[0] / j->p->frequency / j->p->spacing);

    j->out->raw = floats((size_t)points);
    j->out->image = floats((size_t)points);
    if (!j->out->raw || !j->out->image)
        return rtm_error(-ENOMEM, "out of memory");
    rtm_image_finish(&j->g, j->sum_image, j->sum_light, j->p->spacing,
                     mute > 2 * SURFACE ? mute : 2 * SURFACE, j->out->raw, j->out->image);
    return 0;
}

static int tear_down(struct job *j, int rc)
{
    double from = rtm_now();
    char why[1024];
    int closed;

    /* Report the first error, not an error of closing that follows from it. */
    snprintf(why, sizeof(why), "%s", rtm_error_text());
    closed = j->store ? j->store->ops->close(j->store) : 0;
    if (rc)
        (void)rtm_error(rc, "%s", why);
    j->sum->close_s = rtm_now() - from;
    if (j->prop)
        j->prop->ops->free(j->prop);
    if (j->data_out && fclose(j->data_out) != 0 && rc == 0)
        rc = rtm_error(-EIO, "data %s cannot be written", j->p->write_data);
    if (j->data_in)
        fclose(j->data_in);
    if (j->made_folder)
        (void)rmdir(j->folder);
    rtm_pack_free(j->pack);
    free(j->v2_true);
    free(j->v2_smooth);
    free(j->wavelet);
    free(j->observed);
    free(j->recorded);
    free(j->image);
    free(j->light);
    free(j->sum_image);
    free(j->sum_light);
    free(j->plain);
    free(j->receiver_cells);
    for (int d = 0; d < RTM_AXES; d++)
        for (int i = 0; i < 2; i++)
            free(j->stretch[d][i]);
    return rc ? rc : closed;
}

void rtm_result_fini(struct rtm_result *result)
{
    free(result->image);
    free(result->raw);
    free(result->model);
    free(result->migration);
    memset(result, 0, sizeof(*result));
}

int rtm_run(const struct rtm_params *params, const struct rtm_part *part,
            struct rtm_result *ret_result)
{
    struct rtm_result result = {0};
    struct job j = {.p = params, .part = part, .out = &result, .sum = &result.summary};
    int rank = part ? part->rank : 0, ranks = part ? part->ranks : 1, rc;

#ifdef _OPENMP
    if (params->threads > 0)
        omp_set_num_threads(params->threads);
#endif
    rtm_progress_init(&j.progress, params);
    rc = set_up(&j);
    for (int shot = 0; shot < params->shots && rc == 0; shot++) {
        if (shot % ranks == rank)
            rc = one_shot(&j, shot);
        if (rc == 0)
            rc = add_image(&j, shot);
    }
    rtm_progress_clear(&j.progress);
    if (rc == 0)
        rc = finish_image(&j);
    if (rc == 0) {
        finish_summary(&j);
        j.store->ops->stats(j.store, &result.summary.stats);
        rtm_trace_result(params, &result); /* while the store is open: it has the trace */
    }
    rc = tear_down(&j, rc);
    if (rc == 0)
        *ret_result = result;
    else
        rtm_result_fini(&result);
    return rc;
}
