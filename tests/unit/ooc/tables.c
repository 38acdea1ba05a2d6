/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables on emulated devices, kernels in threads: every launch sees each of its tables whole and right, at any place
 * in the cache, from any source, on any device or the processor. Under ThreadSanitizer, moving or replacing a table
 * while a kernel may read it shows as a race.
 */
#define VARVE_EMULATE 1
#include <varve/tables.h>
#include <varve/tables_device.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "ooc/tables_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { TABLES = 40, ITEMS = 150, MOST_USES = 6, DEVICES = 3 };

static uint64_t seed;
static uint64_t bytes[TABLES], offsets[TABLES], first[ITEMS + 1];
static uint32_t uses[ITEMS * MOST_USES + 1];
static uint64_t meta[ITEMS];
static pthread_mutex_t args_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *content;
static size_t content_bytes;

/* The content of word w of a table. */
static uint32_t word(uint32_t table, uint64_t w)
{
    return (uint32_t)((table + 1) * UINT32_C(2654435761) + w * UINT32_C(40503));
}

/* Tables of 4 bytes to about `most`; items that use neighbours, and sometimes any. */
static void make_work(uint64_t most)
{
    struct t_rng rng = {seed};
    uint64_t at = 0, n = 0;

    for (uint32_t t = 0; t < TABLES; t++) {
        bytes[t] = 4 * (1 + t_rng_below(&rng, t_rng_below(&rng, most / 4) + 1));
        offsets[t] = at;
        at += bytes[t] + 8 * t_rng_below(&rng, 3);
    }
    content_bytes = at;
    content = realloc(content, at);
    for (uint32_t t = 0; t < TABLES; t++)
        for (uint64_t w = 0; w < bytes[t] / 4; w++)
            content[offsets[t] / 4 + w] = word(t, w);
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint32_t k = (uint32_t)t_rng_below(&rng, MOST_USES + 1) + (i == 0);

        first[i] = n;
        meta[i] = 1000 + i;
        for (uint32_t j = 0; j < k; j++)
            uses[n++] = (uint32_t)(t_rng_below(&rng, 8) ? (i / 5 + t_rng_below(&rng, 6)) % TABLES
                                                        : t_rng_below(&rng, TABLES));
    }
    first[ITEMS] = n;
}

struct args;

struct work {
    struct args *args; /* of all launches; Synchronization: args_lock */
    struct vv_device *device[DEVICES];
    uint64_t *sum; /* of each item */
    uint32_t *times;
    uint64_t launches, hosts;
    uint64_t beyond; /* elements that the first item reads beyond the end of its table */
    uint64_t cache_bytes;
    struct CUstream_st *stream[64]; /* of the launches; Synchronization: args_lock */
    uint32_t streams;
    const int *before; /* written by the application's kernel before any of ours */
    int launch_error, host_error;
    bool may_fail;
    struct varve_tables *busy; /* launches try to run it again: -EBUSY */
};

/* Arguments of a kernel; several launches may be under way, and a lost device never runs them. */
struct args {
    struct args *next;
    struct work *w;
    struct varve_tables_view v;
};

static uint64_t expected(uint32_t item)
{
    uint64_t sum = meta[item];

    for (uint64_t u = first[item]; u < first[item + 1]; u++)
        for (uint64_t w = 0; w < bytes[uses[u]] / 4; w++)
            sum = sum * 31 + word(uses[u], w);
    return sum;
}

static void add_up(void *arg)
{
    const struct args *a = arg;
    const struct varve_tables_view *v = &a->v;
    uint32_t all = varve_d_blocks() * varve_d_threads();

    for (uint32_t i = varve_d_block() * varve_d_threads() + varve_d_thread(); i < v->items;
         i += all) {
        uint32_t item = varve_tables_item(v, i);
        uint64_t sum = *(const uint64_t *)varve_tables_meta(v, i);

        for (uint32_t k = 0; k < varve_tables_count(v, i); k++) {
            struct varve_table t = varve_tables_get(v, i, k);
            uint64_t n = t.bytes / 4 + (item == 0 ? a->w->beyond : 0);

            for (uint64_t at = 0; at < n; at++) {
                const uint32_t *p = (const uint32_t *)varve_tables_element(v, &t, at, 4);

                sum = sum * 31 + (p ? *p : 0);
            }
        }
        a->w->sum[item] = sum;
        __atomic_fetch_add(&a->w->times[item], 1, __ATOMIC_RELAXED);
    }
}

/* Compares the data beside tables with the order of work. */
static bool ref_right(const struct varve_tables_view *v, const struct varve_tables_ref *r,
                      uint64_t cache)
{
    if (!v->chunks)
        return r->at + r->bytes <= cache;
    for (uint64_t i = 0; i < (r->bytes + 65535) / 65536; i++)
        if (r->at > 10000 || (v->chunks[r->at + i] + UINT64_C(1)) * 65536 > cache)
            return false;
    return true;
}

static bool meta_right(const struct varve_tables_view *v, uint64_t cache)
{
    for (uint32_t i = 0, n = 0; i < v->items; i++) {
        uint32_t item = v->item[i];

        if (item >= ITEMS || item != v->item[0] + i || v->first[i] != n ||
            v->first[i + 1] - n != first[item + 1] - first[item])
            return false;
        for (uint64_t u = first[item]; u < first[item + 1]; u++, n++)
            if (v->uses[n] >= TABLES || v->refs[v->uses[n]].table != uses[u] ||
                v->refs[v->uses[n]].bytes != bytes[uses[u]] ||
                !ref_right(v, &v->refs[v->uses[n]], cache))
                return false;
    }
    return true;
}

static void run_kernel(void *arg)
{
    struct args *a = arg;
    bool right = meta_right(&a->v, a->w->cache_bytes);

    /* If a copy has failed later, a driver does not run the work behind it; the emulated device does. */
    T_CHECK(right || a->w->may_fail);
    T_CHECK(!a->w->before || *a->w->before);
    if (right)
        T_OK(varve_emu_launch(2, 2, 2, seed, add_up, arg));
}

static void note_stream(struct work *w, struct CUstream_st *stream)
{
    uint32_t i = 0;

    while (i < w->streams && w->stream[i] != stream)
        i++;
    T_CHECK(i < 64);
    w->stream[i] = stream;
    w->streams += i == w->streams;
}

/* A run that is refused does not change the time of the one under way. */
static void run_again(struct work *w)
{
    uint64_t seen_ns = w->busy->seen_ns;
    struct varve_tables_work none = {.work_size = sizeof(none)};

    T_ERR(varve_tables_run(w->busy, &none), -EBUSY);
    T_EQ(w->busy->seen_ns, seen_ns);
}

static int launch(void *arg, const struct varve_tables_view *view, uint32_t device,
                  struct CUstream_st *stream)
{
    struct work *w = arg;
    struct args *a;

    if (w->launch_error)
        return w->launch_error;
    if (w->busy)
        run_again(w);
    a = malloc(sizeof(*a));
    *a = (struct args){.w = w, .v = *view};
    pthread_mutex_lock(&args_lock);
    a->next = w->args;
    w->args = a;
    note_stream(w, stream);
    pthread_mutex_unlock(&args_lock);
    __atomic_fetch_add(&w->launches, 1, __ATOMIC_RELAXED);
    return vv_device_host_run(w->device[device], stream, run_kernel, a);
}

static int host(void *arg, uint64_t item, const void *const *tables)
{
    struct work *w = arg;
    uint64_t sum = meta[item];

    if (w->host_error)
        return w->host_error;
    for (uint64_t u = first[item], k = 0; u < first[item + 1]; u++, k++)
        for (uint64_t i = 0; i < bytes[uses[u]] / 4; i++)
            sum = sum * 31 + ((const uint32_t *)tables[k])[i];
    w->sum[item] = sum;
    __atomic_fetch_add(&w->times[item], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&w->hosts, 1, __ATOMIC_RELAXED);
    return 0;
}

static struct varve_ctx *context(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 16, .host_cache = 1 << 21};

    return ck_open(&cfg);
}

static void work_init(struct work *w, struct varve_ctx *ctx)
{
    *w = (struct work){.cache_bytes = UINT64_MAX,
                       .sum = calloc(ITEMS, sizeof(*w->sum)),
                       .times = calloc(ITEMS, sizeof(*w->times))};
    for (int i = 0; i < DEVICES; i++)
        w->device[i] = vv_ckpt_device(ctx);
}

static void work_free(struct work *w)
{
    while (w->args) {
        struct args *a = w->args;

        w->args = a->next;
        free(a);
    }
    free(w->sum);
    free(w->times);
}

static void work_check(struct work *w)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        if (w->sum[i] != expected(i) || w->times[i] != 1)
            t_fail(__FILE__, __LINE__, "item %u: %llx, not %llx; done %u times", i,
                   (unsigned long long)w->sum[i], (unsigned long long)expected(i), w->times[i]);
    work_free(w);
}

static void opts_for(struct varve_tables_opts *o, uint64_t cache)
{
    T_OK(varve_tables_opts_init(o, sizeof(*o)));
    o->tables = TABLES;
    o->bytes = bytes;
    o->offsets = offsets;
    o->cache_bytes = cache;
    o->item_bytes = sizeof(meta[0]);
    o->memory = content;
}

static struct varve_tables_work order_for(struct work *w)
{
    return (struct varve_tables_work){.work_size = sizeof(struct varve_tables_work),
                                      .items = ITEMS,
                                      .first = first,
                                      .uses = uses,
                                      .meta = meta,
                                      .launch = launch,
                                      .arg = w};
}

/* The most that an item needs, in a cache of this layout. */
static uint64_t largest_set(uint64_t unit)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < ITEMS; i++) {
        uint64_t sum = 0;

        for (uint64_t u = first[i]; u < first[i + 1]; u++) {
            bool before = false;

            for (uint64_t k = first[i]; k < u; k++)
                before = before || uses[k] == uses[u];
            sum += before ? 0 : (bytes[uses[u]] + unit - 1) / unit * unit;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void check_stats(struct varve_tables *t, uint64_t runs, const struct work *w)
{
    struct varve_tables_stats st = {.stats_size = sizeof(st)};

    T_OK(varve_tables_stats(t, &st));
    T_EQ(st.runs, runs);
    T_EQ(st.items, runs * ITEMS);
    T_EQ(st.launches, w->launches);
    T_EQ(st.host_items, w->hosts);
    T_CHECK(st.used_bytes <= st.capacity_bytes && st.missed >= st.evicted);
    T_CHECK(st.utilisation >= 0 && st.utilisation <= 1);
}

/* Caches from the least size up, both layouts and policies, with and without the processor. */
static void any_cache(void)
{
    struct varve_ctx *ctx = context();

    varve_emu_jitter = 20;
    for (int way = 0; way < 24; way++) {
        bool chunked = way & 1, paper = way & 2, by_host = way & 4;
        uint64_t least = largest_set(chunked ? 65536 : 256) + 16384;
        struct varve_tables_opts o;
        struct varve_tables *t;
        struct work w;
        struct varve_tables_work order;
        uint64_t launches = 0, hosts = 0;

        if (t_sanitized() && way % 5 != (int)(seed % 5) && way > 3)
            continue;
        opts_for(&o, least * (uint64_t)(1 + way / 8));
        o.layout = chunked ? VARVE_TABLES_CHUNKED : VARVE_TABLES_FLAT;
        o.policy = paper ? VV_TABLES_PAPER : VARVE_TABLES_NEXT_USE;
        o.batch_items = way % 3 ? 1024 : 3;
        o.lanes = way % 4 == 3 ? 1 : 2 + (uint32_t)way % 5;
        T_OK(vv_tables_open(ctx, &o, &t));
        for (uint64_t run = 1; run <= 2; run++) {
            work_init(&w, ctx);
            w.launches = launches;
            w.hosts = hosts;
            order = order_for(&w);
            order.host = by_host ? host : NULL;
            T_OK(varve_tables_run(t, &order));
            check_stats(t, run, &w);
            launches = w.launches;
            hosts = w.hosts;
            work_check(&w);
        }
        T_OK(varve_tables_close(t));
    }
    T_OK(varve_close(ctx));
}

static void write_it(void *arg)
{
    *(int *)arg = 1;
}

/* Launches take lanes in turn, and begin after the application's earlier work on its stream, even if that takes
 * longer than their tables. A single lane is the application's stream itself. */
static void side_by_side(void)
{
    for (uint32_t lanes = 1; lanes <= 5; lanes += 2) {
        struct varve_ctx *ctx = context();
        struct vv_device *d = vv_ckpt_device(ctx);
        struct vv_device_host_rate slow = {0, 20000000};
        struct varve_tables_opts o;
        struct varve_tables *t;
        struct varve_tables_work order;
        struct CUstream_st *own;
        struct vv_stream *s;
        struct work w;
        void *native, *there;
        int before = 0;

        T_OK(vv_device_host_native_new(d, &native));
        T_OK(vv_device_stream_adopt(d, native, &s));
        T_OK(vv_device_mem_alloc(d, 64, &there));
        opts_for(&o, 1 << 21);
        o.batch_items = 3;
        o.lanes = lanes;
        T_OK(varve_tables_open(ctx, &o, &t));
        work_init(&w, ctx);
        w.before = &before;
        own = native;
        order = order_for(&w);
        order.streams = &own;
        vv_device_host_set_rate(d, VV_DEVICE_HOST_D2D, slow);
        T_OK(vv_device_copy_async(d, s, &(struct vv_copy_seg){there, (char *)there + 32, 32}, 1));
        T_OK(vv_device_host_run(d, native, write_it, &before));
        T_OK(varve_tables_run(t, &order));
        T_EQ(w.streams, lanes);
        for (uint32_t i = 0; i < lanes; i++)
            T_CHECK((w.stream[i] == own) == (lanes == 1));
        work_check(&w);
        T_OK(varve_tables_close(t));
        T_OK(vv_device_mem_free(d, there));
        vv_device_stream_free(d, s);
        vv_device_host_native_free(d, native);
        T_OK(varve_close(ctx));
    }
}

/* The devices share the work, each with a cache of its own. */
static void several_devices(void)
{
    for (int same = 0; same < 2; same++) {
        struct varve_ctx *ctx[DEVICES];
        struct varve_tables_opts o;
        struct varve_tables *t;
        struct work w;
        struct varve_tables_work order;

        for (int i = 0; i < DEVICES; i++)
            ctx[i] = same && i ? ctx[0] : context();
        opts_for(&o, largest_set(256) + 30000);
        o.more = ctx + 1;
        o.nr_more = DEVICES - 1;
        o.batch_items = 4;
        T_OK(varve_tables_open(ctx[0], &o, &t));
        T_ERR(varve_close(ctx[0]), -EBUSY);
        work_init(&w, ctx[0]);
        for (int i = 0; i < DEVICES; i++)
            w.device[i] = vv_ckpt_device(ctx[i]);
        order = order_for(&w);
        order.host = host;
        T_OK(varve_tables_run(t, &order));
        check_stats(t, 1, &w);
        work_check(&w);
        T_OK(varve_tables_close(t));
        for (int i = 0; i < (same ? 1 : DEVICES); i++)
            T_OK(varve_close(ctx[i]));
    }
}

static void run_once(struct varve_ctx *ctx, const struct varve_tables_opts *o, bool by_host,
                     int result)
{
    struct varve_tables *t;
    struct work w;
    struct varve_tables_work order;

    T_OK(vv_tables_open(ctx, o, &t));
    work_init(&w, ctx);
    order = order_for(&w);
    order.host = by_host ? host : NULL;
    T_EQ(varve_tables_run(t, &order), result);
    if (result == 0)
        work_check(&w);
    else
        work_free(&w);
    if (result == -EFBIG) { /* found before the first launch */
        struct varve_tables_stats st = {.stats_size = sizeof(st)};

        T_OK(varve_tables_stats(t, &st));
        T_EQ(st.launches, 0);
    }
    T_OK(varve_tables_close(t));
}

static int from_content(void *arg, uint32_t table, uint64_t offset, void *buf, size_t n)
{
    int *calls = arg;

    if (__atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) == 20)
        return -EPROTO;
    T_CHECK(offset + n <= bytes[table]);
    memcpy(buf, (const char *)content + offsets[table] + offset, n);
    return 0;
}

static void sources(void)
{
    struct varve_ctx *ctx = context();
    struct varve_history *h = ck_history(ctx, "tables");
    struct varve_tables_opts o;
    struct varve_tables *t;
    struct varve_tables_work order;
    struct work w;
    char path[4096];
    int calls = 0, fd;

    snprintf(path, sizeof(path), "%s/tables", t_tmpdir());
    fd = open(path, O_CREAT | O_RDWR, 0600);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, content, content_bytes, 100), (ssize_t)content_bytes);
    opts_for(&o, largest_set(65536) + 16384);
    o.memory = NULL;
    o.path = path;
    o.path_offset = 100;
    o.staging_bytes = 1;
    for (int i = 0; i < 4; i++) {
        o.layout = i & 1;
        run_once(ctx, &o, i & 2, 0);
    }
    T_EQ(ftruncate(fd, (off_t)(100 + offsets[TABLES - 1] + bytes[TABLES - 1] - 1)), 0);
    T_ERR(varve_tables_open(ctx, &o, &t), -ENODATA);
    ck_error(ctx, -ENODATA, "tables");
    o.path_offset = 99;
    T_OK(varve_tables_open(ctx, &o, &t)); /* it becomes shorter later */
    T_EQ(ftruncate(fd, 100), 0);
    work_init(&w, ctx);
    order = order_for(&w);
    T_ERR(varve_tables_run(t, &order), -ENODATA);
    ck_error(ctx, -ENODATA, "table ");
    ck_error(ctx, -ENODATA, " cannot be read");
    work_free(&w);
    T_OK(varve_tables_close(t));
    close(fd);
    o.path = "/nowhere/tables";
    T_ERR(varve_tables_open(ctx, &o, &t), -ENOENT);

    o.path = NULL;
    o.read = from_content;
    o.read_arg = &calls;
    run_once(ctx, &o, false, -EPROTO);
    calls = 100;
    run_once(ctx, &o, true, 0);

    /* A region of a version. */
    T_OK(varve_protect(h, 2, content, content_bytes));
    T_OK(varve_checkpoint(h, 7));
    T_OK(varve_unprotect(h, 2));
    o.read = NULL;
    o.history = h;
    o.version = 7;
    o.region = 2;
    run_once(ctx, &o, true, 0);
    o.version = 8;
    T_ERR(varve_tables_open(ctx, &o, &t), -ENOENT);
    T_OK(varve_close(ctx));
}

/* Memory that is registered already is copied from directly: only the cache's own memory is registered, there is no
 * staging memory, and it stays registered. */
static void registered_before(void)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct vv_device_host_stats a, b, c;
    struct varve_tables_opts o;

    opts_for(&o, largest_set(65536) + 16384);
    vv_device_host_stats(d, &a);
    run_once(ctx, &o, true, 0);
    vv_device_host_stats(d, &b);
    T_OK(vv_device_host_register(d, content, content_bytes));
    run_once(ctx, &o, true, 0);
    vv_device_host_stats(d, &c);
    T_EQ(c.n_slices, b.n_slices + 1);
    T_EQ(c.calls[VV_DEVICE_OP_HOST_REGISTER] - b.calls[VV_DEVICE_OP_HOST_REGISTER],
         b.calls[VV_DEVICE_OP_HOST_REGISTER] - a.calls[VV_DEVICE_OP_HOST_REGISTER]);
    T_OK(vv_device_host_unregister(d, content));
    T_OK(varve_close(ctx));
}

/* An item whose tables never fit is named in an error, or done by the processor. */
static void never_fits(void)
{
    struct varve_ctx *ctx = context();
    uint64_t least = largest_set(256);
    struct varve_tables_opts o;
    struct varve_tables *t;
    uint64_t most = 0;

    for (uint32_t i = 0; i < TABLES; i++)
        most = bytes[i] > most ? bytes[i] : most;
    opts_for(&o, most - 256);
    T_ERR(varve_tables_open(ctx, &o, &t), -EFBIG);
    ck_error(ctx, -EFBIG, "table ");
    opts_for(&o, least - 1000);
    o.depth = 1;
    for (int policy = 0; policy < 2; policy++) {
        o.policy = policy;
        run_once(ctx, &o, false, -EFBIG);
        ck_error(ctx, -EFBIG, "item ");
        run_once(ctx, &o, true, 0);
    }
    T_OK(varve_close(ctx));
}

static void misuse(void)
{
    struct varve_ctx *ctx = context();
    struct varve_tables_opts o;
    struct varve_tables *t;
    struct varve_tables_work order;
    struct varve_tables_stats st = {.stats_size = sizeof(st)};
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds)};
    uint32_t wrong[ITEMS * MOST_USES + 1];
    uint64_t least;
    struct work w;

    opts_for(&o, 1 << 20);
    T_ERR(varve_tables_open(NULL, &o, &t), -EINVAL);
    o.path = "x";
    T_ERR(varve_tables_open(ctx, &o, &t), -EINVAL);
    opts_for(&o, 1 << 20);
    o.layout = 7;
    T_ERR(varve_tables_open(ctx, &o, &t), -EINVAL);
    opts_for(&o, 1 << 20);
    o.policy = VV_TABLES_PAPER; /* the public function refuses it */
    T_ERR(varve_tables_open(ctx, &o, &t), -EINVAL);
    ck_error(ctx, -EINVAL, "policy is VARVE_TABLES_NEXT_USE");
    opts_for(&o, 1 << 20);
    o.tables = 0;
    T_ERR(varve_tables_open(ctx, &o, &t), -EINVAL);
    opts_for(&o, 1 << 20);
    T_OK(varve_tables_open(ctx, &o, &t));
    T_ERR(varve_close(ctx), -EBUSY);
    work_init(&w, ctx);
    order = order_for(&w);
    order.launch = NULL;
    T_ERR(varve_tables_run(t, &order), -EINVAL);
    order = order_for(&w);
    order.meta = NULL;
    T_ERR(varve_tables_run(t, &order), -EINVAL);
    order = order_for(&w);
    memcpy(wrong, uses, sizeof(wrong));
    wrong[first[ITEMS] - 1] = TABLES;
    order.uses = wrong;
    T_ERR(varve_tables_run(t, &order), -EINVAL);
    ck_error(ctx, -EINVAL, "uses table ");
    T_ERR(varve_tables_plan(&o, &order, &speeds, &st), -EINVAL);
    ck_error(NULL, -EINVAL, "uses table ");
    order = order_for(&w);
    o.cache_bytes = 1024;
    T_ERR(varve_tables_plan(&o, &order, &speeds, &st), -EFBIG);
    ck_error(NULL, -EFBIG, "the tables of item ");
    o.cache_bytes = 0;
    T_ERR(varve_tables_plan(&o, &order, &speeds, &st), -EFBIG);
    ck_error(NULL, -EFBIG, "a cache of 0");
    T_ERR(varve_tables_least(&o, &order, &least), -EFBIG);
    ck_error(NULL, -EFBIG, "the tables of item ");
    order = order_for(&w);
    order.items = 0;
    T_OK(varve_tables_run(t, &order));
    order = order_for(&w);
    w.launch_error = -EPROTO;
    T_ERR(varve_tables_run(t, &order), -EPROTO);
    ck_error(ctx, -EPROTO, "launch returned");
    w.launch_error = 0;
    w.beyond = 3;
    T_ERR(varve_tables_run(t, &order), -EINVAL);
    ck_error(ctx, -EINVAL, "beyond");
    ck_error(ctx, -EINVAL, "one of the items ");
    work_free(&w);
    T_ERR(varve_tables_stats(t, NULL), -EINVAL);
    /* Later runs work. */
    work_init(&w, ctx);
    order = order_for(&w);
    T_OK(varve_tables_run(t, &order));
    work_check(&w);
    T_OK(varve_tables_stats(t, &st));
    T_OK(varve_tables_close(t));
    T_OK(varve_tables_close(NULL));
    T_OK(varve_close(ctx));
}

static int launch_nothing(void *arg, const struct varve_tables_view *view, uint32_t device,
                          struct CUstream_st *stream)
{
    (void)arg;
    (void)view;
    (void)device;
    (void)stream;
    return 0;
}

/* The smallest cache that varve_tables_plan accepts suffices for a run, which finds the same room in it: with tables
 * so large that some of it is set aside to move them. */
static void plan_and_run_agree(void)
{
    static const uint64_t large[2] = {4 << 20, (4 << 20) - 8192}, of_item[2] = {0, 2};
    static const uint32_t both[2] = {0, 1};
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .link_bytes = 1e9};
    struct varve_tables_stats st = {.stats_size = sizeof(st)};
    struct varve_tables_work order = {.work_size = sizeof(order),
                                      .items = 1,
                                      .first = of_item,
                                      .uses = both,
                                      .launch = launch_nothing};
    struct varve_ctx *ctx = context();
    void *memory = calloc(1, 8 << 20);

    for (int layout = 0; layout < 2; layout++) {
        struct varve_tables_opts o;
        struct varve_tables *t;
        uint64_t capacity;

        T_OK(varve_tables_opts_init(&o, sizeof(o)));
        o.tables = 2;
        o.bytes = large;
        o.memory = memory;
        o.layout = layout;
        o.cache_bytes = large[0];
        do
            o.cache_bytes += 4096;
        while (o.cache_bytes < 9 << 20 && varve_tables_plan(&o, &order, &speeds, &st));
        T_CHECK(o.cache_bytes < 9 << 20);
        capacity = st.capacity_bytes;
        T_OK(varve_tables_open(ctx, &o, &t));
        T_OK(varve_tables_run(t, &order));
        T_OK(varve_tables_stats(t, &st));
        T_EQ(st.capacity_bytes, capacity);
        T_OK(varve_tables_close(t));
    }
    T_OK(varve_close(ctx));
    free(memory);
}

/* Items with much data beside tables share a cache with their tables, however many there are; an item that alone
 * needs more than the cache is named in an error. */
static void much_beside(void)
{
    enum { MANY = 2000, EACH = 65536 };
    static uint64_t of_item[MANY + 1];
    static uint32_t one[MANY];
    static const uint64_t small = 4096;
    struct varve_tables_stats st = {.stats_size = sizeof(st)};
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .link_bytes = 1e9};
    struct varve_tables_work order = {.work_size = sizeof(order),
                                      .items = MANY,
                                      .first = of_item,
                                      .uses = one,
                                      .meta = calloc(MANY, EACH),
                                      .launch = launch_nothing};
    struct varve_ctx *ctx = context();
    void *memory = calloc(1, small);
    struct varve_tables_opts o;
    struct varve_tables *t;

    for (uint32_t i = 0; i <= MANY; i++)
        of_item[i] = i;
    T_OK(varve_tables_opts_init(&o, sizeof(o)));
    o.tables = 1;
    o.bytes = &small;
    o.memory = memory;
    o.item_bytes = EACH;
    for (o.cache_bytes = 80 << 10; o.cache_bytes <= 32 << 20; o.cache_bytes *= 20) {
        T_OK(varve_tables_plan(&o, &order, &speeds, &st));
        T_OK(varve_tables_open(ctx, &o, &t));
        T_OK(varve_tables_run(t, &order));
        T_OK(varve_tables_close(t));
    }
    o.cache_bytes = 60 << 10;
    T_ERR(varve_tables_plan(&o, &order, &speeds, &st), -EFBIG);
    ck_error(NULL, -EFBIG, "item 0 needs ");
    T_OK(varve_tables_open(ctx, &o, &t));
    T_ERR(varve_tables_run(t, &order), -EFBIG);
    ck_error(ctx, -EFBIG, "item 0 needs ");
    T_OK(varve_tables_close(t));
    T_OK(varve_close(ctx));
    free(memory);
    free((void *)(uintptr_t)order.meta);
}

/* The data of a launch beside tables takes most of the cache. A table that is used twice takes its room once, and a
 * run that needs less beside tables still has room for them. */
static void most_is_beside(void)
{
    enum { BESIDE = 600 << 10, MANY = BESIDE / 4 };
    static const uint64_t sizes[] = {230 << 10, 480 << 10, 4096};
    static const uint64_t twice_first[] = {0, 2}, many_first[] = {0, MANY}, one_first[] = {0, 1};
    static const uint32_t twice[] = {0, 0}, one[] = {1};
    static uint32_t many[MANY];
    struct varve_tables_stats st = {.stats_size = sizeof(st)};
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .link_bytes = 1e9};
    struct varve_tables_work order = {.work_size = sizeof(order),
                                      .items = 1,
                                      .first = twice_first,
                                      .uses = twice,
                                      .meta = calloc(1, BESIDE),
                                      .launch = launch_nothing};
    struct varve_ctx *ctx = context();
    void *memory = calloc(1, 1 << 20);
    struct varve_tables_opts o;
    struct varve_tables *t;

    T_OK(varve_tables_opts_init(&o, sizeof(o)));
    o.tables = 3;
    o.bytes = sizes;
    o.memory = memory;
    o.cache_bytes = 1 << 20;
    o.item_bytes = BESIDE;
    T_OK(varve_tables_plan(&o, &order, &speeds, &st));
    T_OK(varve_tables_open(ctx, &o, &t));
    T_OK(varve_tables_run(t, &order));
    T_OK(varve_tables_close(t));

    for (uint32_t i = 0; i < MANY; i++)
        many[i] = 2;
    o.item_bytes = 0;
    T_OK(varve_tables_open(ctx, &o, &t));
    order.first = many_first;
    order.uses = many;
    T_OK(varve_tables_run(t, &order));
    order.first = one_first;
    order.uses = one;
    T_OK(varve_tables_run(t, &order));
    T_OK(varve_tables_close(t));
    T_OK(varve_close(ctx));
    free(memory);
    free((void *)(uintptr_t)order.meta);
}

/* Tables stay from one run to the next. */
static void stays(void)
{
    struct varve_ctx *ctx = context();
    struct varve_tables_opts o;
    struct varve_tables *t;
    uint64_t brought = 0;

    opts_for(&o, 16 << 20);
    T_OK(varve_tables_open(ctx, &o, &t));
    for (int i = 0; i < 2; i++) {
        struct varve_tables_stats st = {.stats_size = sizeof(st)};
        struct varve_tables_work order;
        struct work w;

        work_init(&w, ctx);
        w.busy = i ? t : NULL;
        order = order_for(&w);
        order.host = NULL; /* it would account time on a thread of its own */
        T_OK(varve_tables_run(t, &order));
        work_check(&w);
        T_OK(varve_tables_stats(t, &st));
        T_CHECK(i == 0 || st.bytes == brought);
        brought = st.bytes;
    }
    T_OK(varve_tables_close(t));
    T_OK(varve_close(ctx));
}

/* Each call of the device fails in turn: an error and nothing left behind, or right results; and afterwards everything
 * works. `late`: copies that are accepted and fail when they are made. */
static void fail_one(uint64_t nth, bool late, int layout, bool staged, int *failed)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct varve_tables_opts o;
    struct varve_tables_work order;
    struct varve_tables *t;
    struct work w;
    int rc, calls = 100;

    opts_for(&o, largest_set(65536) + 16384);
    o.layout = layout;
    o.batch_items = 8;
    if (staged) {
        o.memory = NULL;
        o.read = from_content;
        o.read_arg = &calls;
    }
    if (!late)
        T_OK(vv_device_host_fail(d, VV_DEVICE_OP_ANY, nth, 1, -EIO));
    rc = varve_tables_open(ctx, &o, &t);
    if (rc) {
        T_EQ(rc, -EIO);
        vv_device_host_heal(d);
        T_OK(varve_close(ctx));
        return;
    }
    if (late)
        T_OK(vv_device_host_fail_async(d, nth, 1, -EIO));
    work_init(&w, ctx);
    w.may_fail = late;
    w.cache_bytes = o.cache_bytes;
    order = order_for(&w);
    rc = varve_tables_run(t, &order);
    vv_device_host_heal(d);
    if (rc == 0) {
        work_check(&w);
    } else {
        T_EQ(rc, -EIO);
        (*failed)++;
        work_free(&w);
    }
    work_init(&w, ctx);
    order = order_for(&w);
    T_OK(varve_tables_run(t, &order));
    work_check(&w);
    T_OK(varve_tables_close(t));
    T_OK(varve_close(ctx));
}

/* Everything that does not depend on the order of work is made at opening: runs make no events. */
static void made_before(void)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct vv_device_host_stats before, after;
    struct varve_tables_opts o;
    struct varve_tables_work order;
    struct varve_tables *t;
    struct work w;

    opts_for(&o, largest_set(65536) + 16384);
    T_OK(varve_tables_open(ctx, &o, &t));
    work_init(&w, ctx);
    order = order_for(&w);
    vv_device_host_stats(d, &before);
    T_OK(varve_tables_run(t, &order));
    vv_device_host_stats(d, &after);
    T_EQ(after.calls[VV_DEVICE_OP_EVENT_NEW], before.calls[VV_DEVICE_OP_EVENT_NEW]);
    work_check(&w);
    T_OK(varve_tables_close(t));
    T_OK(varve_close(ctx));
}

static void failures(void)
{
    struct t_rng rng = {seed};
    int failed = 0;

    for (uint64_t n = t_cases(24, 2000); n > 0; n--)
        fail_one(1 + t_rng_below(&rng, 2 * VVI_LAUNCHES + 400), false, (int)t_rng_below(&rng, 2),
                 n % 2, &failed);
    for (uint64_t n = t_cases(24, 2000); n > 0; n--)
        fail_one(1 + t_rng_below(&rng, 60), true, (int)t_rng_below(&rng, 2), n % 2, &failed);
    T_CHECK(failed > 0);
}

static void lost(void)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct varve_tables_opts o;
    struct varve_tables *t;
    struct varve_tables_work order;
    struct work w;

    opts_for(&o, largest_set(256) + 16384);
    T_OK(varve_tables_open(ctx, &o, &t));
    work_init(&w, ctx);
    order = order_for(&w);
    T_OK(vv_device_host_lose_at(d, VV_DEVICE_OP_COPY_ASYNC, 9));
    T_ERR(varve_tables_run(t, &order), -ENODEV);
    T_ERR(varve_tables_run(t, &order), -ENODEV);
    T_OK(varve_tables_close(t));
    work_free(&w);
    (void)varve_close(ctx);
}

/* Each call of one of the devices finds it lost in turn, also during opening: -ENODEV, and no thread hangs. */
static void lost_anywhere(void)
{
    struct t_rng rng = {seed};
    int failed = 0;

    for (uint64_t n = 0; n < t_cases(32, 800); n++) {
        struct varve_ctx *ctx[2] = {context(), context()};
        struct varve_tables_opts o;
        struct varve_tables *t;
        struct work w;
        int rc;

        opts_for(&o, n % 2 ? 3000000 : largest_set(256) + 16384);
        o.layout = n % 2 ? VARVE_TABLES_CHUNKED : VARVE_TABLES_FLAT;
        o.more = &ctx[1];
        o.nr_more = n % 4 > 1;
        T_OK(vv_device_host_lose_at(vv_ckpt_device(ctx[o.nr_more]), VV_DEVICE_OP_ANY,
                                    1 + t_rng_below(&rng, 150)));
        rc = varve_tables_open(ctx[0], &o, &t);
        if (rc == 0) {
            struct varve_tables_work order;

            work_init(&w, ctx[0]);
            w.device[1] = vv_ckpt_device(ctx[1]);
            w.cache_bytes = o.cache_bytes;
            w.may_fail = true;
            order = order_for(&w);
            order.host = NULL;
            rc = varve_tables_run(t, &order);
            if (rc == 0)
                work_check(&w); /* it had fewer calls, or the other device did all before */
            else
                work_free(&w);
            T_OK(varve_tables_close(t));
        }
        T_CHECK(rc == -ENODEV || rc == 0);
        failed += rc != 0;
        (void)varve_close(ctx[0]);
        (void)varve_close(ctx[1]);
    }
    T_CHECK(failed > 0);
}

int main(void)
{
    seed = t_seed();
    make_work(20000);
    T_RUN(any_cache);
    T_RUN(side_by_side);
    T_RUN(several_devices);
    T_RUN(sources);
    T_RUN(registered_before);
    T_RUN(never_fits);
    T_RUN(misuse);
    T_RUN(plan_and_run_agree);
    T_RUN(much_beside);
    T_RUN(most_is_beside);
    T_RUN(stays);
    T_RUN(made_before);
    T_RUN(failures);
    T_RUN(lost);
    T_RUN(lost_anywhere);
    free(content);
    return t_done();
}
