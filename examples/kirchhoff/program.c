/* SPDX-License-Identifier: Apache-2.0 */
/* The program around a migration: the order of steps, printing and writing. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kirchhoff.h"
#include "rtm.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static void say(const struct kir_params *p, const char *what)
{
    if (!p->quiet && !p->json)
        fprintf(stderr, "varve-kirchhoff: %s\n", what);
}

static double since(double *start)
{
    double now = rtm_now(), took = now - *start;

    *start = now;
    return took;
}

int kir_run(const struct kir_params *p, struct kir_survey *ret_survey,
            struct kir_summary *ret_summary)
{
    struct kir_survey *s = ret_survey;
    struct kir_summary *sum = ret_summary;
    double start = rtm_now();
    uint64_t never = 0;
    int rc;

#ifdef _OPENMP
    if (p->threads > 0)
        omp_set_num_threads(p->threads);
#endif
    memset(sum, 0, sizeof(*sum));
    rc = kir_survey_init(p, s);
    sum->model_s = since(&start);
    if (rc == 0) {
        say(p, "tracing rays");
        rc = p->device == KIR_CPU ? kir_cpu_rays(s) : kir_device_rays(p, s, sum);
        sum->rays_s = since(&start);
    }
    if (rc == 0) {
        for (uint64_t i = 0; i < s->nodes; i++)
            never += s->times[i] >= KIR_NEVER;
        sum->never = (double)never / (double)s->nodes;
        say(p, "modelling traces");
        rc = kir_survey_traces(p, s);
        sum->traces_s = since(&start);
    }
    if (rc == 0) {
        say(p, "migrating");
        if (p->device == KIR_CPU)
            kir_cpu_migrate(s);
        else
            rc = kir_device_migrate(p, s, sum);
        sum->migrate_s = since(&start);
    }
    if (rc)
        kir_survey_fini(s);
    return rc;
}

/* ---- results ---- */

/* The image as floats, without the part near the stations, which shows only their footprint. */
static float *finished(const struct kir_survey *s)
{
    long cells = kir_cells(s);
    int depth = s->grid.n[KIR_Z], quiet = depth / 16 + 2;
    float *image = malloc((size_t)cells * sizeof(*image));

    for (long i = 0; image && i < cells; i++) {
        int z = (int)(i % depth);
        float gain = z < quiet ? 0 : z < 2 * quiet ? (float)(z - quiet) / (float)quiet : 1;

        image[i] = gain * (float)((double)s->image[i] / s->grid.scale);
    }
    return image;
}

static int write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[KIR_PATH + 32];
    FILE *f;
    bool good;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "wb");
    good = f && fwrite(data, 1, bytes, f) == bytes;
    if ((f && fclose(f) != 0) || !good)
        return rtm_error(-EIO, "%s cannot be written: %s", path, strerror(errno));
    return 0;
}

static int write_png(const struct kir_survey *s, const char *folder, const char *name,
                     const float *values, bool is_model)
{
    struct rtm_grid g;
    uint8_t *png;
    size_t bytes;
    int rc;

    rtm_grid_init(&g, s->dims, s->grid.n, 0);
    rc = rtm_image_png(&g, values, is_model, &png, &bytes);
    if (rc == 0) {
        rc = write_file(folder, name, png, bytes);
        free(png);
    }
    return rc;
}

static void print_json(FILE *f, const struct kir_survey *s, const struct kir_summary *sum)
{
    fprintf(f,
            "{\n  \"cells\": %ld,\n  \"stations\": %u,\n  \"rays\": %u,\n  \"steps\": %d,\n"
            "  \"tables_bytes\": %llu,\n  \"items\": %u,\n  \"traces\": %u,\n  \"never\": %.6f,\n"
            "  \"model_s\": %.6f,\n  \"rays_s\": %.6f,\n  \"traces_s\": %.6f,\n"
            "  \"migrate_s\": %.6f",
            kir_cells(s), s->stations, s->rays, s->steps,
            (unsigned long long)(s->nodes * sizeof(float)), s->nitems, s->ntraces, sum->never,
            sum->model_s, sum->rays_s, sum->traces_s, sum->migrate_s);
    if (sum->blocks.stats_size)
        fprintf(f,
                ",\n  \"blocks\": {\"model_bytes\": %llu, \"cache_bytes\": %llu, \"rounds\": %llu, "
                "\"missed\": %llu, \"ahead\": %llu, \"evicted\": %llu, \"bytes\": %llu}",
                (unsigned long long)sum->model_bytes, (unsigned long long)sum->model_cache,
                (unsigned long long)sum->blocks.rounds, (unsigned long long)sum->blocks.missed,
                (unsigned long long)sum->blocks.ahead, (unsigned long long)sum->blocks.evicted,
                (unsigned long long)sum->blocks.bytes);
    if (sum->tables.stats_size)
        fprintf(f,
                ",\n  \"tables\": {\"cache_bytes\": %llu, \"launches\": %llu, \"items\": %llu, "
                "\"host_items\": %llu, \"missed\": %llu, \"evicted\": %llu, \"bytes\": %llu}",
                (unsigned long long)sum->table_cache, (unsigned long long)sum->tables.launches,
                (unsigned long long)sum->tables.items, (unsigned long long)sum->tables.host_items,
                (unsigned long long)sum->tables.missed, (unsigned long long)sum->tables.evicted,
                (unsigned long long)sum->tables.bytes);
    fprintf(f, "\n}\n");
}

static void print_table(FILE *f, const struct kir_survey *s, const struct kir_summary *sum)
{
    fprintf(f, "model      %d x %d x %d cells, %s\n", s->grid.n[KIR_X], s->grid.n[KIR_Y],
            s->grid.n[KIR_Z], rtm_bytes((uint64_t)kir_cells(s) * sizeof(float)));
    fprintf(f,
            "rays       %.2f s: %u stations, %u rays each, %d steps; %.2f%% of nodes were missed\n",
            sum->rays_s, s->stations, s->rays, s->steps, 100 * sum->never);
    if (sum->blocks.stats_size)
        fprintf(f, "blocks     %s of %s on the device: %llu missed, %llu ahead, %llu evicted, %s\n",
                rtm_bytes(sum->model_cache), rtm_bytes(sum->model_bytes),
                (unsigned long long)sum->blocks.missed, (unsigned long long)sum->blocks.ahead,
                (unsigned long long)sum->blocks.evicted, rtm_bytes(sum->blocks.bytes));
    fprintf(f, "traces     %.2f s: %u\n", sum->traces_s, s->ntraces);
    fprintf(f, "migration  %.2f s: %u items, tables of %s\n", sum->migrate_s, s->nitems,
            rtm_bytes(s->nodes * sizeof(float)));
    if (sum->tables.stats_size)
        fprintf(f,
                "tables     %s for %s on the device: %llu launches, %llu missed, %llu evicted, %s; "
                "%llu "
                "items by the processor\n",
                rtm_bytes(sum->table_cache), rtm_bytes(s->nodes * sizeof(float)),
                (unsigned long long)sum->tables.launches, (unsigned long long)sum->tables.missed,
                (unsigned long long)sum->tables.evicted, rtm_bytes(sum->tables.bytes),
                (unsigned long long)sum->tables.host_items);
}

static int write_outputs(const struct kir_params *p, const struct kir_survey *s,
                         const struct kir_summary *sum)
{
    float *image = finished(s);
    char path[KIR_PATH + 32];
    FILE *f;
    int rc;

    if (!image)
        return rtm_error(-ENOMEM, "no memory for the image");
    rc = write_file(p->out, "image.raw", image, (size_t)kir_cells(s) * sizeof(*image));
    if (rc == 0)
        rc = write_png(s, p->out, "image.png", image, false);
    if (rc == 0)
        rc = write_png(s, p->out, "model.png", s->model, true);
    if (rc == 0)
        rc = write_png(s, p->out, "smooth.png", s->smooth, true);
    free(image);
    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/summary.json", p->out);
    f = fopen(path, "w");
    if (f)
        print_json(f, s, sum);
    if (!f || fclose(f) != 0)
        return rtm_error(-EIO, "%s cannot be written: %s", path, strerror(errno));
    return 0;
}

static int make_folder(const struct kir_params *p)
{
    if (!p->out[0])
        return 0;
    if (mkdir(p->out, 0777) != 0 && errno != EEXIST)
        return rtm_error(-errno, "folder %s cannot be made: %s; name another with --out", p->out,
                         strerror(errno));
    if (access(p->out, W_OK | X_OK) != 0)
        return rtm_error(-errno, "folder %s cannot be written: %s; name another with --out", p->out,
                         strerror(errno));
    return 0;
}

int kir_main(int argc, char **argv)
{
    static struct kir_params params;
    struct kir_survey survey;
    struct kir_summary summary;
    int rc = kir_args(argc, argv, stdout, &params);

    if (rc == 1)
        return 0;
    if (rc < 0) {
        fprintf(stderr, "varve-kirchhoff: %s\n", rtm_error_text());
        return 2;
    }
    rc = make_folder(&params);
    if (rc == 0)
        rc = kir_run(&params, &survey, &summary);
    if (rc == 0) {
        rc = write_outputs(&params, &survey, &summary);
        if (rc == 0 && params.json)
            print_json(stdout, &survey, &summary);
        else if (rc == 0)
            print_table(stdout, &survey, &summary);
        if (rc == 0 && fflush(stdout) != 0)
            rc = rtm_error(-errno, "standard output: %s", strerror(errno));
        kir_survey_fini(&survey);
    }
    if (rc < 0)
        fprintf(stderr, "varve-kirchhoff: %s\n", rtm_error_text());
    return rc < 0;
}
