/* SPDX-License-Identifier: Apache-2.0 */
/* Two layers of pages: places of pages, limits, and moved bytes. */
#include "store/spill/layers.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/pattern.h"
#include "store_test.h"

enum { PAGE = 4096, BIG = 64 };

static struct vv_store_opts st_opts_of[VV_LAYERS];
static struct vv_layers *layers;
static struct vv_store *writer, *reader;

/* Answers of next_use: restoring or not; by default the oldest version is the farthest. */
static _Atomic bool restoring, forward;

static void next_use(void *arg, struct vv_layers_version *v, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++) {
        v[i].rank = forward ? v[i].version : UINT32_MAX - v[i].version;
        v[i].restoring = restoring;
    }
}

static void opts_init(void)
{
    restoring = forward = false;
    for (int i = 0; i < VV_LAYERS; i++) {
        vv_store_opts_init(&st_opts_of[i]);
        st_opts_of[i].page_bytes = PAGE;
    }
}

static void layers_open(uint32_t fast_pages, uint32_t slow_pages)
{
    char err[256] = "";
    struct vv_layers_opts o = {.next_use = next_use};
    for (int i = 0; i < VV_LAYERS; i++) {
        o.layer[i].folder = t_tmpdir();
        o.layer[i].bytes = (uint64_t)(i ? slow_pages : fast_pages) * PAGE;
        o.layer[i].store = st_opts_of[i];
    }
    int rc = vv_layers_new(&o, err, sizeof(err), &layers);
    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
    T_EQ(vv_layers_pages(layers), fast_pages + slow_pages);
    T_OK(vv_layers_store(layers, &writer));
    T_OK(vv_layers_store(layers, &reader));
}

static void layers_close(void)
{
    struct vv_layers_stats s;
    vv_layers_get_stats(layers, &s);
    for (int i = 0; i < VV_LAYERS; i++)
        T_CHECK(s.peak_bytes[i] <= s.capacity_bytes[i] && s.used_bytes[i] <= s.peak_bytes[i]);
    vv_layers_stop(layers);
    writer->ops->close(writer);
    reader->ops->close(reader);
    vv_layers_free(layers);
}

static struct vv_layers_stats stats(void)
{
    struct vv_layers_stats s;
    vv_layers_get_stats(layers, &s);
    return s;
}

/* Waits until the condition holds, or fails after a long time. */
#define UNTIL(cond)                                        \
    do {                                                   \
        uint64_t until_ = vv_now_ns() + 60 * VV_NS_PER_S;  \
        while (!(cond) && vv_now_ns() < until_)            \
            vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS); \
        T_CHECK(cond);                                     \
    } while (0)

/* ---- versions: n chunks on the pages from `first` on, the last chunk not whole ---- */

struct mem {
    char page[BIG][PAGE];
} __attribute__((aligned(4096)));

static int run_io(struct vv_store *s, enum vv_store_op op, struct mem *mem, uint64_t version,
                  uint32_t first, uint32_t n)
{
    void *chunk[BIG];
    uint32_t pages[BIG];
    for (uint32_t i = 0; i < n; i++) {
        chunk[i] = mem->page[i];
        pages[i] = first + i;
    }
    struct vv_store_io io = {.op = op,
                             .key = {NULL, version, version + 1},
                             .size = (uint64_t)n * PAGE - 100,
                             .nchunks = n,
                             .mem = chunk,
                             .pages = pages};
    return st_run(s, &io);
}

static int put(uint64_t version, uint32_t first, uint32_t n)
{
    static struct mem mem;
    vv_pattern_fill(&mem, (size_t)n * PAGE, 7, version, 0);
    return run_io(writer, VV_STORE_WRITE, &mem, version, first, n);
}

static void check(uint64_t version, uint32_t first, uint32_t n)
{
    static struct mem mem;
    memset(&mem, 0xee, sizeof(mem));
    T_OK(run_io(reader, VV_STORE_READ, &mem, version, first, n));
    T_CHECK(vv_pattern_verify(&mem, (size_t)n * PAGE - 100, 7, version, 0, NULL));
}

/* ---- cases ---- */

static void round_trip(void)
{
    opts_init();
    layers_open(16, 100);
    T_STREQ(writer->ops->name, "layers");
    for (uint32_t v = 0; v < 10; v++)
        T_OK(put(v, v * 10, 10));
    for (uint32_t v = 10; v-- > 0;)
        check(v, v * 10, 10);
    struct vv_layers_stats s = stats();
    T_CHECK(s.used_bytes[0] + s.used_bytes[1] >= 100 * PAGE);
    T_CHECK(s.written_bytes[0] + s.written_bytes[1] >= 10 * (10 * PAGE - 100));
    /* The pages can be used again. */
    vv_layers_gone(layers, 0, 100);
    UNTIL(stats().used_bytes[0] + stats().used_bytes[1] == 0);
    for (uint32_t v = 20; v < 22; v++)
        T_OK(put(v, (v - 20) * 50, 50));
    for (uint32_t v = 20; v < 22; v++)
        check(v, (v - 20) * 50, 50);
    layers_close();
}

static void full_and_malformed(void)
{
    opts_init();
    layers_open(4, 4);
    T_OK(put(1, 0, 4));
    T_OK(put(2, 4, 4));
    T_ERR(put(3, 7, 2), -EINVAL); /* beyond the end */
    T_ERR(put(3, 3, 1), -EINVAL); /* it has an owner */
    vv_layers_gone(layers, 0, 4);
    static struct mem mem;
    T_ERR(run_io(reader, VV_STORE_READ, &mem, 1, 0, 4), -EINVAL); /* they have no owner */
    check(2, 4, 4);
    T_OK(put(3, 0, 4)); /* there is room again, on either layer */
    check(3, 0, 4);
    check(2, 4, 4);
    layers_close();
    struct vv_layers_opts bad = {.layer = {{.store = st_opts_of[0]}, {.store = st_opts_of[1]}}};
    struct vv_layers *none;
    bad.layer[1].store.page_bytes = 2 * PAGE;
    T_ERR(vv_layers_new(&bad, NULL, 0, &none), -EINVAL);
    vv_layers_free(NULL);
    vv_layers_stop(NULL);
}

/* While versions are written, the fast layer keeps some room by moving the farthest down. */
static void moves_down(void)
{
    opts_init();
    layers_open(64, 200);
    for (uint32_t v = 0; v < 20; v++)
        T_OK(put(v, v * 10, 10));
    UNTIL(stats().used_bytes[0] <= (64 - 2) * PAGE);
    for (uint32_t v = 0; v < 20; v++)
        check(v, v * 10, 10);
    layers_close();
}

/* During restores, versions on the slow layer move up, the nearest first, and keep their slots there. */
static void moves_up(void)
{
    opts_init();
    layers_open(64, 200);
    for (uint32_t v = 0; v < 20; v++)
        T_OK(put(v, v * 10, 10));
    UNTIL(stats().used_bytes[0] <= (64 - 2) * PAGE);
    restoring = true;
    vv_layers_gone(layers, 150, 50); /* the newest were consumed */
    /* Or the room beyond the reserve is used up. */
    UNTIL(stats().up_bytes > 0 || stats().used_bytes[0] >= (64 - 2) * PAGE);
    for (uint32_t v = 15; v-- > 0;) {
        check(v, v * 10, 10);
        vv_layers_gone(layers, v * 10, 10);
    }
    UNTIL(stats().used_bytes[0] + stats().used_bytes[1] == 0);
    layers_close();
}

/* A page with two copies loses one when room is needed. */
static void clean_pages_give_way(void)
{
    opts_init();
    st_opts_of[VV_LAYER_SLOW].write_bytes_per_s = 100 << 20;
    forward = true;
    layers_open(32, 100);
    for (uint32_t v = 0; v < 8; v++)
        T_OK(put(v, v * 10, 10));
    restoring = true;
    vv_layers_gone(layers, 0, 40);
    UNTIL(stats().up_bytes > 0 || stats().used_bytes[0] >= (32 - 1) * PAGE ||
          stats().used_bytes[1] == 0);
    restoring = false;
    for (uint32_t v = 20; v < 24; v++)
        T_OK(put(v, (v - 20) * 10, 10));
    for (uint32_t v = 4; v < 8; v++)
        check(v, v * 10, 10);
    for (uint32_t v = 20; v < 24; v++)
        check(v, (v - 20) * 10, 10);
    layers_close();
}

/* ---- all together: versions written, read, dropped and overwritten while pages move ---- */

static void churn(void)
{
    enum { VERSIONS = 24, CHUNKS = 8 };
    bool there[VERSIONS] = {0};
    uint64_t name[VERSIONS], next = 1;
    struct t_rng rng = {t_seed()};
    opts_init();
    st_opts_of[VV_LAYER_FAST].write_bytes_per_s = 200 << 20;
    st_opts_of[VV_LAYER_SLOW].write_bytes_per_s = 60 << 20;
    st_opts_of[VV_LAYER_SLOW].read_bytes_per_s = 60 << 20;
    layers_open(48, VERSIONS * CHUNKS);
    uint64_t rounds = t_cases(2000, 40000);
    for (uint64_t i = 0; i < rounds; i++) {
        uint32_t k = (uint32_t)t_rng_below(&rng, VERSIONS);
        if (t_rng_below(&rng, 50) == 0)
            restoring = !restoring;
        if (t_rng_below(&rng, 100) == 0)
            forward = !forward;
        if (!there[k]) {
            name[k] = next++;
            T_OK(put(name[k], k * CHUNKS, CHUNKS));
            there[k] = true;
        } else if (t_rng_below(&rng, 3) == 0) {
            vv_layers_gone(layers, k * CHUNKS, CHUNKS);
            there[k] = false;
        } else {
            check(name[k], k * CHUNKS, CHUNKS);
        }
    }
    for (uint32_t k = 0; k < VERSIONS; k++)
        if (there[k])
            check(name[k], k * CHUNKS, CHUNKS);
    struct vv_layers_stats s = stats();
    t_note("churn: %llu KiB down, %llu KiB up", (unsigned long long)s.down_bytes >> 10,
           (unsigned long long)s.up_bytes >> 10);
    vv_layers_gone(layers, 0, VERSIONS * CHUNKS);
    UNTIL(stats().used_bytes[0] + stats().used_bytes[1] == 0);
    layers_close();
}

/* A version that moved down and up again is on other pages, in a file of its own: new owners of its old pages do
 * not affect it. */
static void down_and_up_in_files(void)
{
    opts_init();
    for (int i = 0; i < VV_LAYERS; i++)
        st_opts_of[i].record_files = true;
    layers_open(64, 200);
    for (uint32_t v = 0; v < 8; v++)
        T_OK(put(v, v * 8, 8));
    UNTIL(stats().used_bytes[0] <= (64 - 2) * PAGE);
    restoring = true;
    vv_layers_gone(layers, 7 * 8, 8);
    UNTIL(stats().up_bytes > 0 || stats().used_bytes[0] >= (64 - 2) * PAGE);
    restoring = false;
    T_OK(put(8, 7 * 8, 8));
    for (uint32_t v = 0; v < 7; v++)
        check(v, v * 8, 8);
    check(8, 7 * 8, 8);
    layers_close();
}

/* ---- a slow read ---- */

/* 1: the next read on the fast layer is held; 2: a read is held; 0: none. */
static _Atomic int gate;

static int64_t hold_one(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                        size_t bytes)
{
    int next = 1;
    (void)os;
    (void)fd;
    (void)offset;
    (void)bytes;
    if (op != VV_OS_AIO_READ || !atomic_compare_exchange_strong(&gate, &next, 2))
        return 0;
    while (gate == 2)
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    return 0;
}

/* A page that is moved down while it is read keeps its slot on the fast layer: no other page gets it. */
static void readers_keep_their_place(void)
{
    static struct mem mem;
    struct vv_os os = *vv_os_posix();
    void *chunk[8];
    uint32_t pages[8];
    os.aio = hold_one;
    opts_init();
    st_opts_of[VV_LAYER_FAST].os = &os;
    st_opts_of[VV_LAYER_FAST].backend = VV_AIO_THREADS; /* the thread that reads is held */
    st_opts_of[VV_LAYER_SLOW].write_bytes_per_s = 1 << 20;
    layers_open(64, 200);
    T_OK(put(0, 0, 8));
    for (uint32_t i = 0; i < 8; i++) {
        chunk[i] = mem.page[i];
        pages[i] = i;
    }
    struct vv_store_io *done, io = {.op = VV_STORE_READ,
                                    .key = {NULL, 0, 1},
                                    .size = 8 * PAGE - 100,
                                    .nchunks = 8,
                                    .mem = chunk,
                                    .pages = pages};
    gate = 1;
    T_OK(reader->ops->submit(reader, &io));
    UNTIL(gate == 2);
    uint32_t last = 1;
    for (; last < 20 && stats().used_bytes[0] < 63 * PAGE; last++)
        T_OK(put(last, last * 8, 8));
    UNTIL(stats().down_bytes > 0 || stats().used_bytes[0] <= 62 * PAGE);
    T_OK(put(last, last * 8, 1)); /* otherwise it would get the slot of the moved page next */
    T_OK(put(last + 1, last * 8 + 8, 1));
    gate = 0;
    int n;
    while ((n = reader->ops->poll(reader, &done, 1, -1)) == 0)
        continue;
    T_EQ(n, 1);
    T_OK(io.status);
    T_CHECK(vv_pattern_verify(&mem, 8 * PAGE - 100, 7, 0, 0, NULL));
    for (uint32_t v = 0; v < last + 2; v++)
        check(v, v * 8, v < last ? 8 : 1);
    layers_close();
}

/* ---- errors ---- */

/* A failed write is reported, and its page can be used again; a failed move changes nothing. */
static void errors(void)
{
    struct fault_os fault;
    fault_os_init(&fault);
    fault.calls = 1u << FAULT_AIO_WRITE;
    fault.err = EIO;
    fault.at = 1;
    opts_init();
    st_opts_of[VV_LAYER_SLOW].os = &fault.os;
    layers_open(64, 100);
    fault.mode = FAULT_FOREVER;
    for (uint32_t v = 0; v < 6; v++)
        T_OK(put(v, v * 10, 10));
    T_OK(put(8, 90, 3)); /* 63 of 64: moves are tried, and fail */
    UNTIL(atomic_load(&fault.per_call[FAULT_AIO_WRITE]) > 0);
    T_ERR(put(6, 60, 10), -EIO); /* the fast layer has no room for it */
    vv_layers_gone(layers, 60, 10);
    for (uint32_t v = 0; v < 6; v++)
        check(v, v * 10, 10);
    T_EQ(stats().down_bytes, 0);
    fault.mode = FAULT_NONE; /* moves may succeed from here on */
    T_OK(put(7, 60, 10));
    check(7, 60, 10);
    for (uint32_t v = 0; v < 6; v++)
        check(v, v * 10, 10);
    layers_close();
}

/* A fast layer that is slower than the slow one is skipped, except for a trial now and then; no data is
 * lost. */
static void skipped_while_slow(void)
{
    enum { VERSIONS = 160, AFTER = 16 };
    opts_init();
    st_opts_of[VV_LAYER_FAST].write_bytes_per_s = 4 << 20;
    layers_open(1024, VERSIONS * BIG);
    uint64_t n = 0;
    while (n < VERSIONS - AFTER && stats().skips == 0) {
        T_OK(put(n, (uint32_t)n * BIG, BIG));
        n++;
    }
    struct vv_layers_stats before = stats(), after;
    T_CHECK(before.skips == 1 && before.skipped);
    for (uint64_t v = n; v < n + AFTER; v++)
        T_OK(put(v, (uint32_t)v * BIG, BIG));
    after = stats();
    T_CHECK(after.written_bytes[VV_LAYER_SLOW] - before.written_bytes[VV_LAYER_SLOW] >=
            (uint64_t)AFTER / 2 * BIG * PAGE);
    for (uint64_t v = 0; v < n + AFTER; v++)
        check(v, (uint32_t)v * BIG, BIG);
    layers_close();
}

int main(void)
{
    T_RUN(round_trip);
    T_RUN(full_and_malformed);
    T_RUN(moves_down);
    T_RUN(moves_up);
    T_RUN(clean_pages_give_way);
    T_RUN(churn);
    T_RUN(down_and_up_in_files);
    T_RUN(readers_keep_their_place);
    T_RUN(errors);
    T_RUN(skipped_while_slow);
    return t_done();
}
