/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few slots go round, each with a batch of pages on the device and as many in pinned host memory. Through the
 * host a slot has two stages, the link and the disk, in the order of its direction; past the host it has one. The
 * slots are in different stages most of the time, so the disk always has something in flight, as it has in the
 * library.
 *
 * Risk: host memory must not be freed under a copy. A round ends when all its slots have ended. Slots that cannot
 * be waited for end when the memory is unregistered (device.h).
 */
#include "cli/measure/probe_gds.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cli/measure/probe_private.h"
#include "store/aio/gds.h"
#include "store/store.h"

#define PAGE_BYTES  ((size_t)256 << 10)
#define BATCH_PAGES 4
#define BATCH_BYTES (PAGE_BYTES * BATCH_PAGES)
#define SLOTS       8
#define ALL_BYTES   (BATCH_BYTES * SLOTS)

enum way { THROUGH_HOST, PAST_HOST, HOST_ONLY };
enum stage { ENDED, ON_LINK, ON_DISK };

struct slot {
    struct vv_store_io io;
    void *mem[BATCH_PAGES];
    uint32_t pages[BATCH_PAGES];
    char *dev, *host;
    struct vv_event *event;
    enum stage stage;
};

struct probe_gds {
    struct vv_device *device;
    struct vv_gds *gds;
    struct vv_spill *spill;
    struct vv_store *store;
    struct vv_stream *stream;
    char *dev, *host;
    bool memory_added, registered;
    uint64_t nr_batches, next;
    struct slot slot[SLOTS];
    /* State of the running round. */
    enum way way;
    bool write;
    uint64_t deadline_ns, left; /* batches still to be begun */
    uint64_t bytes;
    int rc;
};

static int start_disk(struct probe_gds *g, struct slot *s)
{
    bool device = g->way == PAST_HOST;
    uint64_t batch = g->next++ % g->nr_batches;

    for (uint32_t i = 0; i < BATCH_PAGES; i++) {
        s->mem[i] = (device ? s->dev : s->host) + i * PAGE_BYTES;
        s->pages[i] = (uint32_t)(batch * BATCH_PAGES + i);
    }
    s->io = (struct vv_store_io){.op = g->write ? VV_STORE_WRITE : VV_STORE_READ,
                                 .size = BATCH_BYTES,
                                 .nchunks = BATCH_PAGES,
                                 .device = device,
                                 .mem = s->mem,
                                 .pages = s->pages,
                                 .user = s};
    s->stage = ON_DISK;
    return g->store->ops->submit(g->store, &s->io);
}

static int start_link(struct probe_gds *g, struct slot *s)
{
    struct vv_copy_seg seg = {g->write ? s->host : s->dev, g->write ? s->dev : s->host,
                              BATCH_BYTES};
    int rc = vv_device_copy_async(g->device, g->stream, &seg, 1);

    s->stage = ON_LINK;
    return rc ? rc : vv_device_event_record(g->device, s->event, g->stream);
}

static void begin(struct probe_gds *g, struct slot *s)
{
    int rc;

    s->stage = ENDED;
    if (g->rc || g->left == 0 || vv_now_ns() >= g->deadline_ns)
        return;
    g->left--;
    rc = g->write && g->way == THROUGH_HOST ? start_link(g, s) : start_disk(g, s);
    if (rc) {
        g->rc = rc;
        s->stage = ENDED;
    }
}

/* The slot's stage has ended: on to the next one, or to the next batch. */
static void advance(struct probe_gds *g, struct slot *s, int rc)
{
    bool more = g->way == THROUGH_HOST && (s->stage == ON_LINK) == g->write;

    if (rc == 0 && more) {
        rc = g->write ? start_disk(g, s) : start_link(g, s);
        if (rc == 0)
            return;
    }
    if (rc)
        g->rc = rc;
    else
        g->bytes += BATCH_BYTES;
    begin(g, s);
}

static struct slot *find(struct probe_gds *g, enum stage stage)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (g->slot[i].stage == stage)
            return &g->slot[i];
    return NULL;
}

static void look_at_disk(struct probe_gds *g, bool wait)
{
    struct vv_store_io *done[SLOTS];
    int n = g->store->ops->poll(g->store, done, SLOTS, wait ? -1 : 0);

    for (int i = 0; i < n; i++)
        advance(g, done[i]->user, done[i]->status);
    if (n < 0 && n != -ETIMEDOUT)
        vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
}

static void look_at_link(struct probe_gds *g, bool wait)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &g->slot[i];
        int rc;

        if (s->stage != ON_LINK)
            continue;
        rc = wait ? vv_device_event_wait(g->device, s->event, (int64_t)VV_NS_PER_S)
                  : vv_device_event_query(g->device, s->event);
        wait = false;
        if (rc != -EBUSY && rc != -ETIMEDOUT)
            advance(g, s, rc);
    }
}

static int run_round(struct probe_gds *g, enum way way, bool write, uint64_t batches,
                     double seconds, double *ret_bps)
{
    uint64_t start = vv_now_ns();

    g->way = way;
    g->write = write;
    g->left = batches;
    g->bytes = 0;
    g->rc = 0;
    g->deadline_ns = seconds < 0 ? VV_NEVER_NS : start + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < SLOTS; i++)
        begin(g, &g->slot[i]);
    for (;;) {
        bool link = find(g, ON_LINK), disk = find(g, ON_DISK);

        if (!link && !disk)
            break;
        if (link)
            look_at_link(g, !disk);
        if (disk)
            look_at_disk(g, !find(g, ON_LINK));
    }
    *ret_bps = (double)g->bytes * 1e9 / (double)VV_MAX(vv_now_ns() - start, UINT64_C(1));
    return g->rc;
}

int probe_gds_compare(struct probe_gds *g, bool write, double seconds,
                      struct probe_gds_rates *ret_rates)
{
    struct probe_gds_rates best = {0};
    double each = seconds / (2 * PROBE_ROUNDS), bps = 0;
    int rc = 0;

    for (int round = 0; rc == 0 && round < PROBE_ROUNDS; round++) {
        rc = run_round(g, THROUGH_HOST, write, UINT64_MAX, each, &bps);
        best.through_bps = fmax(best.through_bps, bps);
        if (rc == 0)
            rc = run_round(g, PAST_HOST, write, UINT64_MAX, each, &bps);
        best.past_bps = fmax(best.past_bps, bps);
    }
    if (rc == 0)
        *ret_rates = best;
    return rc;
}

/* ---- set up ---- */

static int open_store(struct probe_gds *g, const struct probe_gds_opts *opts, char *err,
                      size_t err_bytes)
{
    struct vv_store_opts o;
    uint64_t bytes = VV_MAX(vv_align_down(opts->file_bytes, BATCH_BYTES), 2 * ALL_BYTES);
    int rc;

    vv_store_opts_init(&o);
    o.page_bytes = PAGE_BYTES;
    o.mode = VV_STORE_DIRECT;
    o.gds = g->gds;
    g->nr_batches = bytes / BATCH_BYTES;
    rc = vv_spill_new(opts->dir, bytes, &o, err, err_bytes, &g->spill);
    return rc ? rc : vv_spill_store(g->spill, &g->store);
}

static int map_memory(struct probe_gds *g, char *err, size_t err_bytes)
{
    int rc = vv_device_mem_alloc(g->device, ALL_BYTES, (void **)&g->dev);
    void *map;

    if (rc == 0)
        rc = vv_gds_memory_add(g->gds, g->dev, ALL_BYTES, err, err_bytes);
    if (rc)
        return rc;
    g->memory_added = true;
    map = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    g->host = map;
    memset(g->host, 1, ALL_BYTES);
    rc = vv_device_host_register(g->device, g->host, ALL_BYTES);
    g->registered = rc == 0;
    return rc;
}

static int make_slots(struct probe_gds *g)
{
    int rc = vv_device_stream_new(g->device, &g->stream);

    for (unsigned i = 0; rc == 0 && i < SLOTS; i++) {
        g->slot[i].dev = g->dev + i * BATCH_BYTES;
        g->slot[i].host = g->host + i * BATCH_BYTES;
        rc = vv_device_event_new(g->device, &g->slot[i].event);
    }
    return rc;
}

int probe_gds_new(const struct probe_gds_opts *opts, char *err, size_t err_bytes,
                  struct probe_gds **ret_probe)
{
    struct probe_gds *g = calloc(1, sizeof(*g));
    double bps;
    int rc;

    if (!g)
        return -ENOMEM;
    g->device = opts->device;
    rc = vv_gds_open(g->device, NULL, err, err_bytes, &g->gds);
    if (rc == 0)
        rc = open_store(g, opts, err, err_bytes);
    if (rc == 0)
        rc = map_memory(g, err, err_bytes);
    if (rc == 0)
        rc = make_slots(g);
    if (rc == 0)
        rc = run_round(g, HOST_ONLY, true, g->nr_batches, -1, &bps);
    if (rc) {
        probe_gds_free(g);
        return rc;
    }
    *ret_probe = g;
    return 0;
}

void probe_gds_free(struct probe_gds *g)
{
    if (!g)
        return;
    if (g->store)
        g->store->ops->close(g->store);
    vv_spill_free(g->spill);
    for (unsigned i = 0; i < SLOTS; i++)
        if (g->slot[i].event)
            vv_device_event_free(g->device, g->slot[i].event);
    if (g->stream)
        vv_device_stream_free(g->device, g->stream);
    if (g->registered)
        vv_device_host_unregister(g->device, g->host);
    if (g->host)
        munmap(g->host, ALL_BYTES);
    if (g->memory_added)
        vv_gds_memory_remove(g->gds);
    vv_gds_close(g->gds);
    vv_device_mem_free(g->device, g->dev);
    free(g);
}
