/* SPDX-License-Identifier: Apache-2.0 */
/* Progress, the summary, and the output files. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <varve/trace.h>

#include "rtm.h"

/* ---- progress ---- */

void rtm_progress_init(struct rtm_progress *pr, const struct rtm_params *params)
{
    memset(pr, 0, sizeof(*pr));
    pr->on = !params->quiet;
    pr->tty = isatty(STDERR_FILENO);
    pr->started_s = rtm_now();
    pr->last_percent = -1;
}

/* The tiers of the history now. */
static void place(const struct rtm_params *params, struct rtm_store *store, char *text, size_t room)
{
    struct varve_stats st;
    static const char *const names[] = {"device", "memory", "disk", "remote"};
    bool device = params->varve.device != VARVE_DEVICE_NONE && params->varve.device_cache > 0 &&
                  (params->device == RTM_CUDA || params->varve.device == VARVE_DEVICE_HOST);

    text[0] = 0;
    if (!store)
        return;
    store->ops->stats(store, &st);
    if (!st.stats_size) {
        snprintf(text, room, "  %s %s", store->ops->name, rtm_bytes(store->live_bytes));
        return;
    }
    for (unsigned t = 0; t < st.tiers && t + !device < 4; t++)
        snprintf(text + strlen(text), room - strlen(text), "  %s %s", names[t + !device],
                 rtm_bytes(st.tier_used_bytes[t]));
}

static int columns(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

/* The first text that leaves room for a bar in one row: a second row could not be drawn
 * over. */
static void draw_bar(const char *phase, int shot, int shots, double share, const char *rest,
                     const char *shorter)
{
    enum { LEAST = 4, MOST = 20 };
    char head[64], bar[MOST + 1], line[512];
    int room = columns() - 1, left, width;

    snprintf(head, sizeof(head), "%-8s %d/%d", phase, shot + 1, shots);
    left = room - (int)strlen(head) - 4;
    if (left - (int)strlen(rest) < LEAST)
        rest = shorter;
    width = left - (int)strlen(rest);
    width = width < LEAST ? LEAST : width > MOST ? MOST : width;
    for (int i = 0; i < width; i++)
        bar[i] = i < share * width ? '#' : '.';
    bar[width] = 0;
    snprintf(line, sizeof(line), "%s [%s] %s", head, bar, rest);
    fprintf(stderr, "\r\033[K%.*s", room, line);
    fflush(stderr);
}

void rtm_progress_show(struct rtm_progress *pr, const struct rtm_params *params, const char *phase,
                       int shot, int step, int steps, double blocked_s, struct rtm_store *store)
{
    double now, share = (double)(step + 1) / steps;
    int percent = (int)(share * 100);
    char where[160], rest[320], shorter[320];
    double per_s;

    if (!pr->on)
        return;
    if (pr->phase != phase) {
        pr->phase = phase;
        pr->phase_s = rtm_now();
        pr->last_percent = -1;
    }
    /* A terminal is updated five times a second; other output gets four lines for each phase. */
    if (!pr->tty && (percent / 25 == pr->last_percent / 25 || percent < 25))
        return;
    now = rtm_now();
    if (pr->tty && now < pr->next_s && step + 1 < steps)
        return;
    pr->next_s = now + 0.2;
    pr->last_percent = percent;
    place(params, store, where, sizeof(where));
    per_s = now > pr->phase_s ? step / (now - pr->phase_s) : 0.0; /* timed from the end of step 0 */
    snprintf(rest, sizeof(rest), "step %d/%d  %.0f steps/s  blocked %.2f s%s", step + 1, steps,
             per_s, blocked_s, where);
    snprintf(shorter, sizeof(shorter), "%d/%d %.0f/s blocked %.1fs%s", step + 1, steps, per_s,
             blocked_s, where);
    if (pr->tty)
        draw_bar(phase, shot, params->shots, share, rest, shorter);
    else
        fprintf(stderr, "%-8s shot %d/%d  %s\n", phase, shot + 1, params->shots, rest);
}

void rtm_progress_clear(struct rtm_progress *pr)
{
    if (pr->on && pr->tty) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

/* ---- the summary ---- */

static const char *store_name(int store)
{
    static const char *const names[] = {"varve", "file", "memory"};

    return names[store];
}

static double per_s(uint64_t bytes, double s)
{
    return s > 0 ? (double)bytes / s : 0;
}

void rtm_report_table(FILE *f, const struct rtm_params *params, const struct rtm_summary *s)
{
    const struct rtm_grid *g = &s->grid;
    double blocked = s->blocked_put_s + s->blocked_get_s;

    if (g->dims == 3)
        fprintf(f, "grid          %d x %d x %d cells of %g m\n", g->n[RTM_X], g->n[RTM_Y],
                g->n[RTM_Z], s->spacing);
    else
        fprintf(f, "grid          %d x %d cells of %g m\n", g->n[RTM_X], g->n[RTM_Z], s->spacing);
    fprintf(f, "survey        %d shot%s, %d receivers, %d steps of %.3g ms, %g Hz\n", s->shots,
            s->shots == 1 ? "" : "s", s->receivers, s->steps, s->dt * 1e3, s->frequency);
    fprintf(f, "history       %llu snapshots, %s a shot", (unsigned long long)s->snapshots,
            rtm_bytes(s->history_bytes));
    if (params->zfp > 0)
        fprintf(f, " (compressed from %s)", rtm_bytes(s->snapshots * s->snapshot_bytes));
    fprintf(f, "\nstore         %s, %s of memory: history %.1f times that\n",
            store_name(params->store), rtm_bytes(s->cache_bytes),
            s->cache_bytes ? (double)s->history_bytes / (double)s->cache_bytes : 0.0);
    fprintf(f, "wall          %8.3f s  forward %.3f, backward %.3f\n", s->wall_s, s->forward_s,
            s->backward_s);
    fprintf(f, "compute       %8.3f s  %.0f million cells/s\n", s->compute_s, s->cells_per_s / 1e6);
    fprintf(f, "blocked       %8.3f s  %.1f%% of wall: writing %.3f, reading %.3f\n", blocked,
            s->wall_s > 0 ? 100 * blocked / s->wall_s : 0.0, s->blocked_put_s, s->blocked_get_s);
    fprintf(f, "throughput    %8.2f GB/s written, %.2f GB/s read, while blocked\n",
            per_s(s->bytes_put, s->blocked_put_s) / 1e9,
            per_s(s->bytes_got, s->blocked_get_s) / 1e9);
    if (s->disk_write_bps > 0)
        fprintf(f, "disk          %8.2f GB/s writing, %.2f GB/s reading, measured\n",
                s->disk_write_bps / 1e9, s->disk_read_bps / 1e9);
    fprintf(f, "other         %8.3f s  modelling the data; opening %.3f, closing %.3f\n",
            s->model_s, s->open_s, s->close_s);
    fprintf(f, "memory        %s at most", rtm_bytes(s->peak_rss_bytes));
    if (s->device_bytes)
        fprintf(f, ", and %s on the GPU besides the history", rtm_bytes(s->device_bytes));
    fprintf(f, "\n");
    if (params->out[0])
        fprintf(f, "image         %s/image.png\n", params->out);
}

static void json_text(FILE *f, const char *key, const char *text)
{
    fprintf(f, "  \"%s\": \"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', f);
        if ((unsigned char)*text >= 0x20)
            fputc(*text, f);
    }
    fputs("\",\n", f);
}

static void json_count(FILE *f, const char *key, uint64_t value)
{
    fprintf(f, "  \"%s\": %llu,\n", key, (unsigned long long)value);
}

static void json_number(FILE *f, const char *key, double value)
{
    fprintf(f, "  \"%s\": %.9g,\n", key, value);
}

static void json_stats(FILE *f, const struct varve_stats *st)
{
    static const char *const hops[VARVE_HOPS] = {"d2d", "h2h", "d2h", "h2d", "h2f", "f2h"};

    fprintf(f, "  \"varve\": {\n");
    fprintf(f, "    \"restore_hits\": %llu,\n", (unsigned long long)st->restore_hits);
    fprintf(f, "    \"restore_misses\": %llu,\n", (unsigned long long)st->restore_misses);
    fprintf(f, "    \"page_bytes\": %llu,\n", (unsigned long long)st->page_bytes);
    for (int i = 0; i < VARVE_HOPS; i++)
        fprintf(f, "    \"moved_%s_bytes\": %llu,\n", hops[i],
                (unsigned long long)st->moved_bytes[i]);
    fprintf(f, "    \"tiers\": %u\n  },\n", st->tiers);
}

void rtm_report_json(FILE *f, const struct rtm_params *params, const struct rtm_summary *s)
{
    double blocked = s->blocked_put_s + s->blocked_get_s;

    fputs("{\n", f);
    json_text(f, "program", "varve-rtm");
    json_text(f, "varve_version", varve_version());
    json_text(f, "model", params->model);
    json_text(f, "store", store_name(params->store));
    json_text(f, "device", params->device == RTM_CUDA ? "cuda" : "cpu");
    json_text(f, "out", params->out);
    json_count(f, "dims", (uint64_t)s->grid.dims);
    json_count(f, "nx", (uint64_t)s->grid.n[RTM_X]);
    json_count(f, "ny", (uint64_t)s->grid.n[RTM_Y]);
    json_count(f, "nz", (uint64_t)s->grid.n[RTM_Z]);
    json_number(f, "spacing_m", s->spacing);
    json_number(f, "dt_s", s->dt);
    json_number(f, "frequency_hz", s->frequency);
    json_count(f, "steps", (uint64_t)s->steps);
    json_count(f, "every", (uint64_t)s->every);
    json_count(f, "shots", (uint64_t)s->shots);
    json_count(f, "receivers", (uint64_t)s->receivers);
    json_count(f, "snapshots", s->snapshots);
    json_count(f, "snapshot_bytes", s->snapshot_bytes);
    json_count(f, "history_bytes", s->history_bytes);
    json_count(f, "cache_bytes", s->cache_bytes);
    json_number(f, "history_over_cache",
                s->cache_bytes ? (double)s->history_bytes / (double)s->cache_bytes : 0);
    json_number(f, "wall_s", s->wall_s);
    json_number(f, "forward_s", s->forward_s);
    json_number(f, "backward_s", s->backward_s);
    json_number(f, "compute_s", s->compute_s);
    json_number(f, "blocked_write_s", s->blocked_put_s);
    json_number(f, "blocked_read_s", s->blocked_get_s);
    json_number(f, "blocked_s", blocked);
    json_number(f, "blocked_share", s->wall_s > 0 ? blocked / s->wall_s : 0);
    json_number(f, "calls_s", s->call_s);
    json_number(f, "model_s", s->model_s);
    json_number(f, "open_s", s->open_s);
    json_number(f, "close_s", s->close_s);
    json_number(f, "cells_per_s", s->cells_per_s);
    json_count(f, "bytes_written", s->bytes_put);
    json_count(f, "bytes_read", s->bytes_got);
    json_number(f, "write_bytes_per_s", per_s(s->bytes_put, s->blocked_put_s));
    json_number(f, "read_bytes_per_s", per_s(s->bytes_got, s->blocked_get_s));
    json_number(f, "disk_write_bytes_per_s", s->disk_write_bps);
    json_number(f, "disk_read_bytes_per_s", s->disk_read_bps);
    json_count(f, "peak_memory_bytes", s->peak_rss_bytes);
    json_count(f, "device_bytes", s->device_bytes);
    if (s->stats.stats_size)
        json_stats(f, &s->stats);
    fprintf(f, "  \"zfp\": %.9g,\n  \"direct_io\": %s\n}\n", params->zfp,
            s->direct ? "true" : "false");
}

/* ---- files ---- */

static int write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[RTM_PATH + 32];
    FILE *f;
    bool ok;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "wb");
    if (!f)
        return rtm_error(-errno, "%s: %s", path, strerror(errno));
    ok = fwrite(data, 1, bytes, f) == bytes;
    ok = fclose(f) == 0 && ok;
    return ok ? 0 : rtm_error(-EIO, "%s cannot be written: is the disk full?", path);
}

static int write_picture(const char *folder, const char *name, const struct rtm_grid *g,
                         const float *values, bool is_model)
{
    uint8_t *png = NULL;
    size_t bytes = 0;
    int rc = rtm_image_png(g, values, is_model, &png, &bytes);

    if (rc == 0)
        rc = write_file(folder, name, png, bytes);
    free(png);
    return rc;
}

static int write_summary(const char *path, const struct rtm_params *params,
                         const struct rtm_summary *s)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return rtm_error(-errno, "%s: %s", path, strerror(errno));
    rtm_report_json(f, params, s);
    return fclose(f) == 0 ? 0 : rtm_error(-EIO, "%s cannot be written: is the disk full?", path);
}

int rtm_write_outputs(const struct rtm_params *params, const struct rtm_result *result)
{
    const struct rtm_grid *g = &result->summary.grid;
    char path[RTM_PATH + 32];
    int rc = write_file(params->out, "image.raw", result->image,
                        (size_t)rtm_grid_points(g) * sizeof(float));

    if (rc == 0)
        rc = write_picture(params->out, "image.png", g, result->image, false);
    if (rc == 0)
        rc = write_picture(params->out, "model.png", g, result->model, true);
    if (rc == 0)
        rc = write_picture(params->out, "migration.png", g, result->migration, true);
    snprintf(path, sizeof(path), "%s/summary.json", params->out);
    return rc ? rc : write_summary(path, params, &result->summary);
}

/* ---- the trace ---- */

static void attach(const char *name, const struct rtm_grid *g, const float *values, bool is_model)
{
    uint8_t *png = NULL;
    size_t bytes = 0;

    /* A report without pictures is better than no image. */
    if (rtm_image_png(g, values, is_model, &png, &bytes) == 0)
        (void)!varve_trace_attach(name, "image/png", png, bytes);
    free(png);
}

static void note(const char *key, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)!varve_trace_note(key, text);
}

void rtm_trace_result(const struct rtm_params *params, const struct rtm_result *result)
{
    const struct rtm_summary *s = &result->summary;
    const struct rtm_grid *g = &s->grid;

    if (!varve_trace_on())
        return;
    note("application", "reverse time migration");
    note("model", "%s", params->model);
    if (g->dims == 3)
        note("grid", "%d x %d x %d cells of %g m", g->n[RTM_X], g->n[RTM_Y], g->n[RTM_Z],
             s->spacing);
    else
        note("grid", "%d x %d cells of %g m", g->n[RTM_X], g->n[RTM_Z], s->spacing);
    note("survey", "%d shots, %d receivers, %d steps of %.3g ms, %g Hz", s->shots, s->receivers,
         s->steps, s->dt * 1e3, s->frequency);
    note("history", "%llu snapshots, %s a shot", (unsigned long long)s->snapshots,
         rtm_bytes(s->history_bytes));
    note("blocked", "%.3f s of %.3f s", s->blocked_put_s + s->blocked_get_s, s->wall_s);
    attach("image", g, result->image, false);
    attach("velocity model", g, result->model, true);
}
