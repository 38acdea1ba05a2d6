/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of managing blocks and tables, at the sizes of `varve bench blocks`, on a machine without a GPU and
 * without the memory: the library as it is, on a device that copies no cells and no tables. Copies and kernels take
 * computed time there, as on an H200, so that rounds, batches and launches are about those of the real thing; the
 * time that is printed is real, and is what the library counts as managing.
 *
 *   bench_ooc_manage [OPTION]... [wave] [flat] [chunked]
 *
 * A driver has code and data of its own, and leaves less of the processor's caches to us than this device does. With
 * --cold, each copy and launch touches so many KiB of other memory: choose more than the first or second cache has.
 *
 * Prints the median of the runs. Under callgrind, `--toggle-collect=varve_blocks_run` or `varve_tables_run` leaves
 * out what comes before; a tenth of the points touches nearly the same blocks.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <varve/blocks.h>
#include <varve/blocks_device.h>
#include <varve/tables.h>

#include "ckpt/face.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "device/device.h"
#include "lab/ooc/survey.h"

/* Properties of the device: the link in bytes a nanosecond, the rest in nanoseconds. */
#define LINK 54.6
enum { QUERY_NS = 700, COPY_NS = 500, LAUNCH_NS = 5000, WAVE_NS = 200000, SURVEY_NS = 1900000 };

enum { EDGE = 32, STEPS = 200, RUNS_MAX = 99, LATER = 8 };

static struct manage_opts {
    uint64_t seed, cold_kib;
    uint32_t points, runs;
} opt = {.seed = 1, .points = 1000000, .runs = 5};

/* Memory that calls of a driver touch: a line in each of so many places, sixteen times as far apart as needed, so
 * that translated addresses are lost from the processor's table, too. */
enum { LINE = 64, PLACE = 16 * LINE };
static volatile unsigned char *others;
static size_t places;

static void stop_if(bool wrong, const char *text)
{
    if (wrong) {
        fprintf(stderr, "ooc_manage: %s\n", text);
        exit(2);
    }
}

/* Lines of all sets of the caches; the lowest bits of an address select the set. */
static void use_caches(void)
{
    for (size_t i = 0; i < places; i++)
        others[i * PLACE + i / 4 % 16 * LINE]++;
}

static void new_others(size_t kib)
{
    places = kib * 1024 / LINE;
    others = calloc(places + 1, PLACE);
    stop_if(!others, "no memory");
    use_caches();
}

/* ---- a device on which time is computed ---- */

struct vv_stream {
    uint64_t at; /* when everything on it has ended */
};

struct vv_event {
    uint64_t at;
};

/* The kernel under way, and the copies that wait for its end. */
struct kernel {
    struct varve_blocks_view view;
    const uint32_t *blocks; /* that it looks at */
    uint32_t nr, done;
    uint64_t start, end;
    struct vv_copy_seg later[LATER];
    uint32_t nr_later;
    bool runs;
};

static uint64_t now, link_free;
static const unsigned char *source;
static uint64_t source_bytes;
static bool small_copies; /* are made: the caller reads their result */
static struct vv_stream app;
static struct kernel kernel;

static void look_at(struct kernel *k, uint32_t block)
{
    uint32_t slot = k->view.map[block], *counts = k->view.counts;
    uint64_t bit = UINT64_C(1) << block % 64;

    if (slot) {
        k->view.used[(slot - 1) / 64] |= UINT64_C(1) << (slot - 1) % 64;
        return;
    }
    if (k->view.need[block / 64] & bit)
        return;
    k->view.need[block / 64] |= bit;
    k->view.missing[counts[VARVE_BLOCKS_MISSING_COUNT]++] =
        (uint64_t)k->view.round << 32 | (block + 1);
    counts[VARVE_BLOCKS_UNDONE_COUNT] =
        (uint32_t)VV_MIN(counts[VARVE_BLOCKS_MISSING_COUNT] * UINT64_C(300), k->view.items);
}

/* Advances the time. */
static void go_on(uint64_t to)
{
    struct kernel *k = &kernel;
    uint64_t until;

    now = VV_MAX(now, to);
    if (!k->runs || now < k->start)
        return;
    until = now >= k->end ? k->nr : (now - k->start) * k->nr / (k->end - k->start);
    while (k->done < until)
        look_at(k, k->blocks[k->done++]);
    if (now < k->end)
        return;
    for (uint32_t i = 0; i < k->nr_later; i++)
        memcpy(k->later[i].dst, k->later[i].src, k->later[i].bytes);
    k->nr_later = 0;
    k->runs = false;
}

static int mem_alloc(struct vv_device *d, size_t bytes, void **ret_ptr)
{
    size_t *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)d;
    if (p == MAP_FAILED)
        return -ENOMEM;
    *p = bytes + 4096;
    *ret_ptr = (char *)p + 4096;
    return 0;
}

static int mem_free(struct vv_device *d, void *ptr)
{
    size_t *p = (void *)((char *)ptr - 4096);

    (void)d;
    return ptr ? munmap(p, *p) : 0;
}

static int host_register(struct vv_device *d, void *ptr, size_t bytes)
{
    (void)d, (void)ptr, (void)bytes;
    return 0;
}

static int host_share(struct vv_device *d, void *ptr, size_t bytes, bool read_only, void **ret_ptr)
{
    (void)d, (void)bytes, (void)read_only;
    *ret_ptr = ptr;
    return 0;
}

static int host_unregister(struct vv_device *d, void *ptr)
{
    (void)d, (void)ptr;
    return 0;
}

static int ptr_kind(struct vv_device *d, const void *ptr, enum vv_mem_kind *ret_kind,
                    size_t *ret_bytes_left)
{
    (void)d, (void)ptr;
    *ret_kind = VV_MEM_HOST;
    *ret_bytes_left = SIZE_MAX;
    return 0;
}

static int stream_new(struct vv_device *d, struct vv_stream **ret_stream)
{
    (void)d;
    *ret_stream = calloc(1, sizeof(**ret_stream));
    return *ret_stream ? 0 : -ENOMEM;
}

static void stream_free(struct vv_device *d, struct vv_stream *s)
{
    (void)d;
    if (s != &app)
        free(s);
}

static int stream_adopt(struct vv_device *d, void *native, struct vv_stream **ret_stream)
{
    (void)d, (void)native;
    *ret_stream = &app;
    return 0;
}

static void *stream_native(struct vv_device *d, struct vv_stream *s)
{
    (void)d;
    return s;
}

static int copy_async(struct vv_device *d, struct vv_stream *s, const struct vv_copy_seg *segs,
                      size_t n)
{
    (void)d;
    use_caches();
    go_on(now + n * COPY_NS);
    s->at = VV_MAX(s->at, now);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *src = segs[i].src;

        if (src >= source && src < source + source_bytes) {
            link_free = VV_MAX(link_free, s->at) + (uint64_t)((double)segs[i].bytes / LINK);
            s->at = link_free;
            continue;
        }
        s->at += COPY_NS;
        if (!small_copies)
            continue;
        if (s == &app && kernel.runs) {
            stop_if(kernel.nr_later == LATER, "too many copies behind a kernel");
            kernel.later[kernel.nr_later++] = segs[i];
        } else {
            memcpy(segs[i].dst, src, segs[i].bytes);
        }
    }
    return 0;
}

static int event_new(struct vv_device *d, struct vv_event **ret_event)
{
    (void)d;
    *ret_event = calloc(1, sizeof(**ret_event));
    return *ret_event ? 0 : -ENOMEM;
}

static void event_free(struct vv_device *d, struct vv_event *ev)
{
    (void)d;
    free(ev);
}

static int event_record(struct vv_device *d, struct vv_event *ev, struct vv_stream *s)
{
    (void)d;
    ev->at = VV_MAX(s->at, now);
    return 0;
}

static int event_query(struct vv_device *d, struct vv_event *ev)
{
    (void)d;
    go_on(now + QUERY_NS);
    return ev->at <= now ? 0 : -EBUSY;
}

static int event_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns)
{
    (void)d, (void)timeout_ns;
    go_on(ev->at);
    return 0;
}

static int stream_wait_event(struct vv_device *d, struct vv_stream *s, struct vv_event *ev)
{
    (void)d;
    s->at = VV_MAX(s->at, ev->at);
    return 0;
}

static int enter(struct vv_device *d)
{
    (void)d;
    return 0;
}

static void leave(struct vv_device *d)
{
    (void)d;
}

/* Opens a context on this device: `ops` replace the operations of the emulated device, which are in *ret_before. The
 * caller puts these back before it closes the context. */
static struct varve_ctx *open_context(struct vv_device_ops *ops,
                                      const struct vv_device_ops **ret_before)
{
    struct varve_ctx *ctx;
    struct varve_opts o;
    struct vv_device *d;

    stop_if(varve_opts_init(&o, sizeof(o)), "options");
    o.device = VARVE_DEVICE_HOST;
    o.device_cache = o.host_cache = 0;
    stop_if(varve_open(&o, &ctx), "a context");
    d = vv_ckpt_device(ctx);
    *ret_before = d->ops;
    *ops = *d->ops;
    ops->mem_alloc = mem_alloc;
    ops->mem_free = mem_free;
    ops->host_register = host_register;
    ops->host_share = host_share;
    ops->host_unregister = host_unregister;
    ops->ptr_kind = ptr_kind;
    ops->stream_new = stream_new;
    ops->stream_free = stream_free;
    ops->stream_adopt = stream_adopt;
    ops->stream_native = stream_native;
    ops->copy_async = copy_async;
    ops->event_new = event_new;
    ops->event_free = event_free;
    ops->event_record = event_record;
    ops->event_query = event_query;
    ops->event_wait = event_wait;
    ops->stream_wait_event = stream_wait_event;
    ops->enter = enter;
    ops->leave = leave;
    d->ops = ops;
    return ctx;
}

/* Data that is never read: addresses are enough. */
static void new_source(uint64_t bytes)
{
    static const uintptr_t far_from_all = (uintptr_t)1 << 44;

    source = (const unsigned char *)far_from_all;
    source_bytes = bytes;
    now = link_free = app.at = 0;
}

/* ---- the wave of lab/ooc/ooc_wave.c: which blocks each step looks at, in the order of its points ---- */

struct wave {
    uint32_t *blocks, first[STEPS + 1];
    uint32_t step;
};

static double draw(uint64_t *state)
{
    return survey_random(state);
}

static void shuffle(uint32_t *list, uint32_t n, uint64_t *state)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)(draw(state) * i), was = list[i - 1];

        list[i - 1] = list[k];
        list[k] = was;
    }
}

/* The block's corners, of the eight cells around a point. */
static void touch(const float *dir, float radius, float most, uint64_t nr, uint64_t *bits)
{
    uint64_t low[3], high[3];

    for (int d = 0; d < 3; d++) {
        float at = radius * dir[d];
        uint64_t cell = (uint64_t)(at < most ? at : most);

        low[d] = cell / EDGE;
        high[d] = (cell + 1) / EDGE;
    }
    for (uint64_t z = low[2]; z <= high[2]; z++)
        for (uint64_t y = low[1]; y <= high[1]; y++)
            for (uint64_t x = low[0]; x <= high[0]; x++) {
                uint64_t block = (z * nr + y) * nr + x;

                bits[block / 64] |= UINT64_C(1) << block % 64;
            }
}

static void wave_make(struct wave *w, uint64_t cells)
{
    uint64_t nr = (cells + EDGE - 1) / EDGE, words = vv_div_up(nr * nr * nr, 64), state = opt.seed;
    uint64_t *bits = malloc(words * sizeof(*bits));
    float(*dirs)[3] = malloc(opt.points * sizeof(*dirs));
    uint32_t n = 0;

    w->blocks = malloc(STEPS * (size_t)20000 * sizeof(*w->blocks));
    stop_if(!bits || !dirs || !w->blocks, "no memory");
    for (uint32_t i = 0; i < opt.points; i++) {
        double up = draw(&state), angle = draw(&state) * 1.57079632679489662;
        double flat = sqrt(1 - up * up);

        dirs[i][0] = (float)(flat * cos(angle));
        dirs[i][1] = (float)(flat * sin(angle));
        dirs[i][2] = (float)up;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        float radius = (float)(step + 1) / (float)STEPS * 1.7f * (float)cells;

        w->first[step] = n;
        memset(bits, 0, words * sizeof(*bits));
        for (uint32_t i = 0; i < opt.points; i++)
            touch(dirs[i], radius, (float)cells - 2.0f, nr, bits);
        for (uint32_t b = 0; b < nr * nr * nr; b++)
            if (bits[b / 64] >> b % 64 & 1)
                w->blocks[n++] = b;
        stop_if(n > STEPS * 20000, "more blocks than expected");
        shuffle(w->blocks + w->first[step], n - w->first[step], &state);
    }
    w->first[STEPS] = n;
    free(bits);
    free(dirs);
}

static int wave_launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct wave *w = arg;
    uint32_t at = w->first[w->step];

    (void)stream;
    use_caches();
    go_on(now + LAUNCH_NS);
    kernel = (struct kernel){.view = *view,
                             .blocks = w->blocks + at,
                             .nr = w->first[w->step + 1] - at,
                             .start = VV_MAX(now, app.at),
                             .runs = true};
    kernel.end = kernel.start + 20000 + (uint64_t)WAVE_NS * view->items / opt.points;
    app.at = kernel.end;
    return 0;
}

/* ---- results ---- */

/* `least`: the least time, which other programs disturb least. */
static void print_ms(const char *name, double least, double *values, uint32_t n)
{
    samples_sort(values, n);
    printf("%-8s managing %7.3f ms at least, %7.3f in the median; computed %7.1f ms; ", name, least,
           values[n / 2], (double)now * 1e-6);
}

/* All steps, one after another. Their work is the same in every run: the least time of each is kept. */
static double wave_steps(struct varve_blocks *b, struct wave *w, double least[STEPS],
                         struct varve_blocks_stats *st)
{
    double ms = 0;

    for (w->step = 0; w->step < STEPS; w->step++) {
        double before = ms;

        stop_if(varve_blocks_run(b, opt.points, wave_launch, w, NULL), "a step");
        stop_if(varve_blocks_stats(b, st), "numbers");
        ms = (double)st->management_ns * 1e-6;
        least[w->step] = fmin(least[w->step], ms - before);
    }
    return ms;
}

static void wave_run(struct varve_ctx *ctx, uint32_t runs)
{
    struct varve_blocks_stats st = {.stats_size = sizeof(st)};
    uint64_t cells = (uint64_t)cbrt(12e9 / 4 + 0.5), bytes;
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    double ms[RUNS_MAX], least[STEPS], sum = 0;
    struct wave w;

    wave_make(&w, cells);
    stop_if(varve_blocks_opts_init(&o, sizeof(o)), "options");
    for (int d = 0; d < 3; d++) {
        o.cells[d] = cells;
        o.edge[d] = EDGE;
    }
    o.ahead = 1;
    stop_if(varve_blocks_bytes(&o, &bytes), "the volume");
    o.cache_bytes = bytes / 4;
    small_copies = true;
    for (uint32_t i = 0; i < STEPS; i++)
        least[i] = 1e9;
    for (uint32_t i = 0; i < runs; i++) {
        new_source(bytes);
        o.memory = source;
        stop_if(varve_blocks_open(ctx, &o, &b), "blocks");
        ms[i] = wave_steps(b, &w, least, &st);
        varve_blocks_close(b);
    }
    for (uint32_t i = 0; i < STEPS; i++)
        sum += least[i];
    print_ms("wave", sum, ms, runs);
    printf("%" PRIu64 " rounds, %" PRIu64 " missed, %" PRIu64 " ahead, %" PRIu64
           " brought, %" PRIu64 " evicted\n",
           st.rounds, st.missed, st.ahead, st.bytes / 131072, st.evicted);
    free(w.blocks);
}

static int survey_launch(void *arg, const struct varve_tables_view *view, uint32_t device,
                         struct CUstream_st *stream)
{
    struct vv_stream *s = (void *)stream;

    (void)arg, (void)view, (void)device;
    use_caches();
    go_on(now + LAUNCH_NS);
    s->at = VV_MAX(s->at, now) + SURVEY_NS;
    return 0;
}

/* The processor time of this thread so far, in ms. */
static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void survey_run(struct varve_ctx *ctx, const struct survey *s, bool chunked, uint32_t runs)
{
    struct varve_tables_work work = {.work_size = sizeof(work),
                                     .items = s->items,
                                     .first = s->first,
                                     .uses = s->uses,
                                     .launch = survey_launch};
    struct varve_tables_stats st = {.stats_size = sizeof(st)};
    struct varve_tables_opts o;
    struct varve_tables *t;
    double ms[RUNS_MAX], least = 1e9, cpu = 1e9;

    small_copies = false;
    for (uint32_t i = 0; i < runs; i++) {
        double start;

        stop_if(varve_tables_opts_init(&o, sizeof(o)), "options");
        new_source(s->sum_bytes);
        o.tables = s->tables;
        o.bytes = s->bytes;
        o.memory = source;
        o.cache_bytes = UINT64_C(8000000000);
        o.layout = chunked ? VARVE_TABLES_CHUNKED : VARVE_TABLES_FLAT;
        stop_if(varve_tables_open(ctx, &o, &t), "tables");
        start = cpu_ms();
        stop_if(varve_tables_run(t, &work), "a run");
        cpu = fmin(cpu, cpu_ms() - start);
        stop_if(varve_tables_stats(t, &st), "numbers");
        ms[i] = (double)st.management_ns * 1e-6;
        least = fmin(least, ms[i]);
        varve_tables_close(t);
    }
    print_ms(chunked ? "chunked" : "flat", least, ms, runs);
    printf("processor %7.3f ms at least, with the device; %" PRIu64 " launches, %" PRIu64
           " missed, %" PRIu64 " bytes, %" PRIu64 " moved\n",
           cpu, st.launches, st.missed, st.bytes, st.moved_bytes);
}

#define PARTS     "wave|flat|chunked"
#define AT(field) offsetof(struct manage_opts, field)

static const struct opt options[] = {
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed), .help = "of places and sizes (1)"},
    {OPT_U32, .name = "points", .arg = "N", .at = AT(points), .least = 1,
     .help = "of the wave (1000000)"},
    {OPT_U32, .name = "runs", .arg = "N", .at = AT(runs), .least = 1, .most = RUNS_MAX,
     .help = "of each part (5)"},
    {OPT_U64, .name = "cold", .arg = "KIB", .at = AT(cold_kib), .most = UINT32_MAX,
     .help = "other memory that each copy and launch comes to (0)"},
};

static const struct opts command = {
    .command = "bench_ooc_manage",
    .usage = "[OPTION]... [wave] [flat] [chunked]",
    .about =
        "Measures what managing out-of-core data costs, without a device. All parts by default.",
    .operands = true,
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct survey_opts so = survey_defaults();
    const struct vv_device_ops *before;
    struct vv_device_ops mine;
    struct varve_ctx *ctx;
    struct survey s;
    unsigned which = 0;
    int first, status = opts_parse(&command, argc, argv, &opt, &first);

    if (status >= 0)
        return status;
    for (int i = first; i < argc; i++) {
        int part = opts_word(PARTS, argv[i]);

        if (part < 0) {
            fprintf(stderr, "bench_ooc_manage: '%s' is not one of " PARTS "; see --help\n",
                    argv[i]);
            return 2;
        }
        which |= 1U << part;
    }
    new_others(opt.cold_kib);
    ctx = open_context(&mine, &before);
    so.seed = opt.seed;
    stop_if(survey_make(&so, &s) != 0, "no memory");
    if (!which || which & 1)
        wave_run(ctx, opt.runs);
    if (!which || which & 2)
        survey_run(ctx, &s, false, opt.runs);
    if (!which || which & 4)
        survey_run(ctx, &s, true, opt.runs);
    survey_free(&s);
    vv_ckpt_device(ctx)->ops = before;
    free((void *)(uintptr_t)others);
    return varve_close(ctx) ? 2 : 0;
}
