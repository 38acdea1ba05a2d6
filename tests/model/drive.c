/* SPDX-License-Identifier: Apache-2.0 */
#include "model/drive.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"

enum { ENDLESS = 20000 };

static void complain(struct drive *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void complain(struct drive *d, const char *fmt, ...)
{
    va_list ap;

    if (d->wrong[0])
        return;
    va_start(ap, fmt);
    vsnprintf(d->wrong, sizeof(d->wrong), fmt, ap);
    va_end(ap);
}

/* ---- data ---- */

static uint64_t tag_of(uint32_t hist, uint64_t version, uint64_t generation, uint32_t chunk)
{
    uint64_t x = version * UINT64_C(0x9e3779b97f4a7c15) +
                 generation * UINT64_C(0xc2b2ae3d27d4eb4f) +
                 (uint64_t)hist * UINT64_C(0x165667b19e3779f9) + chunk;

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x | 2;
}

static struct drive_file *file_of(struct drive *d, const struct vv_order *o)
{
    for (unsigned i = 0; i < d->nfiles; i++) {
        struct drive_file *f = &d->file[i];
        if (f->used && f->hist == o->hist && f->version == o->version &&
            f->generation == o->file_generation)
            return f;
    }
    return NULL;
}

static struct drive_file *file_new(struct drive *d, uint32_t hist, uint64_t version,
                                   uint64_t generation, uint64_t content, uint32_t nchunks)
{
    unsigned i = 0;

    while (i < d->nfiles && d->file[i].used)
        i++;
    T_CHECK(i < DRIVE_MAX_FILES);
    d->nfiles = VV_MAX(d->nfiles, i + 1);
    d->file[i] = (struct drive_file){.used = true,
                                     .hist = hist,
                                     .version = version,
                                     .generation = generation,
                                     .content = content,
                                     .nchunks = nchunks};
    return &d->file[i];
}

/* The memory of a chunk that an order reads or writes; NULL: the application's, or a file that does
 * not exist. */
static uint64_t *cell(struct drive *d, const struct vv_order *o, int tier, const uint32_t *page,
                      uint32_t i)
{
    struct drive_file *f;

    if (tier == VV_TIER_APP)
        return NULL;
    if (d->tag[tier])
        return &d->tag[tier][page[i]];
    f = file_of(d, o);
    return f ? &f->tag[o->chunk0 + i] : NULL;
}

static void check_source(struct drive *d, const struct vv_order *o, const char *when)
{
    if (o->src_tier == VV_TIER_APP || o->poisoned)
        return;
    for (uint32_t i = 0; i < o->nchunks; i++) {
        uint64_t *from = cell(d, o, o->src_tier, o->src_page, i);
        if (!from)
            complain(d, "version %llu is read from a file that does not exist",
                     (unsigned long long)o->version);
        else if (*from != tag_of(o->hist, o->version, o->generation, o->chunk0 + i))
            complain(d,
                     "wrong bytes in chunk %u of version %llu on tier %d at the %s of a transfer",
                     o->chunk0 + i, (unsigned long long)o->version, o->src_tier, when);
    }
}

/* Overwrites all data in these bytes: a page has the bytes of its parts. */
static void overwrite(struct drive *d, unsigned tier, uint32_t page, uint32_t bytes)
{
    uint64_t from = vv_core_page_offset(d->core, tier, page);

    for (uint32_t p = 0; p < vv_core_tier_records(d->core, tier); p++) {
        uint64_t at = vv_core_page_offset(d->core, tier, p);
        if (p != page && at < from + bytes && from < at + d->len[tier][p])
            d->tag[tier][p] = DRIVE_BAD_TAG;
    }
    d->len[tier][page] = bytes;
}

static void set_destination(struct drive *d, const struct vv_order *o, bool good)
{
    if (o->dst_tier == VV_TIER_APP)
        return;
    if (!d->tag[o->dst_tier] && !file_of(d, o))
        file_new(d, o->hist, o->version, o->file_generation, o->generation,
                 (uint32_t)vv_div_up(o->size, d->cfg.page_bytes));
    for (uint32_t i = 0; i < o->nchunks; i++) {
        uint64_t *to = cell(d, o, o->dst_tier, o->dst_page, i);
        uint64_t left = o->size - (uint64_t)(o->chunk0 + i) * d->cfg.page_bytes;
        if (d->tag[o->dst_tier])
            overwrite(d, (unsigned)o->dst_tier, o->dst_page[i],
                      (uint32_t)VV_MIN(left, (uint64_t)d->cfg.page_bytes));
        *to = good ? tag_of(o->hist, o->version, o->generation, o->chunk0 + i) : DRIVE_BAD_TAG;
    }
}

static void deliver(struct drive *d, const struct vv_order *o)
{
    struct drive_call *call = o->req->user;

    if (o->dst_tier != VV_TIER_APP)
        return;
    if (o->generation != call->generation)
        complain(d, "a restore of version %llu got bytes of another generation",
                 (unsigned long long)o->version);
    for (uint32_t c = o->chunk0; c < o->chunk0 + o->nchunks; c++) {
        if (call->delivered >> c & 1)
            complain(d, "chunk %u of version %llu was delivered twice", c,
                     (unsigned long long)o->version);
        call->delivered |= UINT64_C(1) << c;
    }
}

static void commit_file(struct drive *d, const struct vv_order *o)
{
    struct drive_file *f = file_of(d, o);

    if (!f && o->size == 0) /* there was no write */
        f = file_new(d, o->hist, o->version, o->file_generation, o->generation, 0);
    if (!f || f->committed) {
        complain(d, "version %llu is committed without a file, or twice",
                 (unsigned long long)o->version);
        return;
    }
    for (uint32_t c = 0; c < f->nchunks; c++)
        if (f->tag[c] != tag_of(f->hist, f->version, f->content, c))
            complain(d, "version %llu is committed without chunk %u",
                     (unsigned long long)o->version, c);
    f->committed = true;
}

/* Copies chunks of a file that failed to the one that replaces it. */
static void salvage(struct drive *d, const struct vv_order *o, bool good)
{
    struct vv_order old = {
        .hist = o->hist, .version = o->version, .file_generation = o->from_generation};
    struct drive_file *from = file_of(d, &old), *to = file_of(d, o);

    if (!to)
        to = file_new(d, o->hist, o->version, o->file_generation, o->generation,
                      (uint32_t)vv_div_up(o->size, d->cfg.page_bytes));
    for (uint32_t c = o->chunk0; c < o->chunk0 + o->nchunks; c++) {
        uint64_t tag = tag_of(o->hist, o->version, o->generation, c);
        if (!from || from->tag[c] != tag)
            complain(d, "chunk %u of version %llu is salvaged from a file that does not have it", c,
                     (unsigned long long)o->version);
        to->tag[c] = good ? tag : DRIVE_BAD_TAG;
    }
}

static void carry_out(struct drive *d, const struct vv_order *o)
{
    struct drive_file *f;

    switch (o->kind) {
    case VV_ORDER_COPY:
    case VV_ORDER_APP:
        check_source(d, o, "end");
        set_destination(d, o, !o->poisoned);
        if (o->kind == VV_ORDER_APP && !o->poisoned)
            deliver(d, o);
        break;
    case VV_ORDER_COMMIT:
        commit_file(d, o);
        break;
    case VV_ORDER_SALVAGE:
        salvage(d, o, true);
        break;
    case VV_ORDER_REMOVE:
        f = file_of(d, o);
        if (f)
            f->used = false;
        break;
    case VV_ORDER_WAKE:
        break;
    }
}

/* ---- orders ---- */

static void lend_see(struct drive *d, struct drive_lend *lend, bool write)
{
    uint64_t *at = &d->tag[0][lend->lend.first_page];

    lend->used = true;
    for (uint32_t i = 0; i < lend->lend.npages; i++) {
        if (write)
            at[i] = ++d->ntags << 1 | 1;
        lend->tag[i] = at[i];
    }
}

static void lend_check(struct drive *d, const struct drive_lend *lend)
{
    for (uint32_t i = 0; i < lend->lend.npages; i++)
        if (d->tag[0][lend->lend.first_page + i] != lend->tag[i])
            complain(d, "page %u was changed while it was lent", lend->lend.first_page + i);
}

static void woken(struct drive *d, struct drive_call *call)
{
    uint64_t all = call->nchunks == 64 ? ~UINT64_C(0) : (UINT64_C(1) << call->nchunks) - 1;

    if (!call->pending)
        complain(d, "a request was woken twice");
    call->pending = false;
    call->seq = ++d->wakes;
    if (call->req.status == -EINPROGRESS)
        complain(d, "a request was woken before it ended");
    if (call->req.kind == VV_REQ_LEASE && call->req.status == 0)
        lend_see(d, call->lend, true);
    if (call->req.kind == VV_REQ_GET && call->req.status == 0 && call->delivered != all)
        complain(d, "a restore of version %llu ended well without all of its bytes",
                 (unsigned long long)call->version);
}

static unsigned stream_of(const struct vv_order *o)
{
    return vv_lane_stream(o->family, (enum vv_lane)o->lane);
}

bool drive_may_end(const struct drive *d, unsigned i)
{
    const struct vv_order *o = d->order[i];
    uint64_t hold = o->family ? d->hold[stream_of(o)] : 0;

    if (!o->family)
        return true;
    for (unsigned lane = 0; lane < VV_LANES; lane++)
        if (o->wait[lane] > d->ran[vv_lane_stream(o->family, (enum vv_lane)lane)])
            return false;
    return o->seq == d->ran[stream_of(o)] + 1 && (!hold || o->seq < hold);
}

void drive_hold(struct drive *d, uint64_t stream, bool full)
{
    unsigned family = vv_core_family(d->core, stream);
    unsigned s = family ? vv_lane_stream(family, VV_LANE_APP) : 0;

    if (family && !d->hold[s])
        d->hold[s] = d->enqueued[s] + 1;
    d->full[family] |= full && family;
}

/* Ends the first order that may end; false: there is none. */
static bool end_one(struct drive *d)
{
    for (unsigned i = 0; i < d->norders; i++)
        if (drive_may_end(d, i)) {
            drive_end(d, i, 0);
            return true;
        }
    return false;
}

static void collect(struct drive *d)
{
    struct vv_order *o;

    while ((o = vv_core_next_order(d->core))) {
        if (o->kind == VV_ORDER_WAKE) {
            woken(d, o->req->user);
            continue;
        }
        if (o->family && d->refusals > 0) {
            d->refusals--;
            vv_core_complete(d->core, o, -EAGAIN, d->now_ns);
            continue;
        }
        if (d->norders == DRIVE_MAX_ORDERS)
            t_fail(__FILE__, __LINE__, "too many orders");
        d->order[d->norders++] = o;
        if (o->family) {
            if (o->lane == VV_LANE_APP || o->lane == VV_LANE_EARLY || !d->full[o->family])
                vv_core_enqueued(d->core, o, ++d->enqueued[stream_of(o)], d->now_ns);
            continue;
        }
        if (o->kind == VV_ORDER_COPY || o->kind == VV_ORDER_APP) {
            check_source(d, o, "start");
            set_destination(d, o, false);
        } else if (o->kind == VV_ORDER_SALVAGE) {
            salvage(d, o, false);
        }
    }
}

void drive_let_go(struct drive *d, uint64_t stream)
{
    unsigned family = vv_core_family(d->core, stream);

    if (!family)
        return;
    d->hold[vv_lane_stream(family, VV_LANE_APP)] = 0;
    d->full[family] = false;
    for (unsigned i = 0; i < d->norders; i++)
        if (d->order[i]->family == family && d->order[i]->seq == 0)
            vv_core_enqueued(d->core, d->order[i], ++d->enqueued[stream_of(d->order[i])],
                             d->now_ns);
    collect(d);
}

void drive_end(struct drive *d, unsigned i, int status)
{
    struct vv_order *o = d->order[i];

    if (!drive_may_end(d, i))
        t_fail(__FILE__, __LINE__, "an order ends before its turn on its stream");
    if (d->trace)
        fprintf(stderr, "  %s of history %u version %llu chunks %u+%u from %d to %d ends: %d\n",
                (const char *[]){"copy", "app", "commit", "remove", "salvage"}[o->kind], o->hist,
                (unsigned long long)o->version, o->chunk0, o->nchunks, o->src_tier, o->dst_tier,
                status);
    if (o->family)
        d->ran[stream_of(o)]++;
    if (o->family && status != 0)
        set_destination(d, o, false);
    if (status == 0)
        carry_out(d, o);
    else
        d->app_failures += o->kind == VV_ORDER_APP;
    d->norders--;
    memmove(&d->order[i], &d->order[i + 1], (d->norders - i) * sizeof(d->order[0]));
    d->now_ns += d->step_ns;
    vv_core_complete(d->core, o, status, d->now_ns);
    collect(d);
}

int drive_find(const struct drive *d, enum vv_order_kind kind, int src, int dst, uint64_t version)
{
    for (unsigned i = 0; i < d->norders; i++) {
        const struct vv_order *o = d->order[i];
        if (o->kind == kind && o->version == version &&
            (kind >= VV_ORDER_COMMIT || (o->src_tier == src && o->dst_tier == dst)))
            return (int)i;
    }
    return -1;
}

bool drive_grow(struct drive *d, unsigned tier)
{
    struct vv_core_stats s;

    vv_core_get_stats(d->core, &s);
    if (s.tier_ready_pages[tier] >= s.tier_pages[tier])
        return false;
    if (d->trace)
        fprintf(stderr, "  tier %u grows\n", tier);
    vv_core_grow(d->core, tier, s.tier_ready_pages[tier] + 1, d->now_ns);
    collect(d);
    return true;
}

void drive_grow_stop(struct drive *d, unsigned tier)
{
    if (d->trace)
        fprintf(stderr, "  tier %u grows no more\n", tier);
    vv_core_grow_stop(d->core, tier, d->now_ns);
    collect(d);
}

bool drive_growing(const struct drive *d)
{
    struct vv_core_stats s;

    vv_core_get_stats(d->core, &s);
    for (unsigned t = 0; t < d->cfg.ntiers; t++)
        if (s.tier_ready_pages[t] < s.tier_pages[t])
            return true;
    return false;
}

static bool grow_some(struct drive *d)
{
    for (unsigned t = 0; t < d->cfg.ntiers; t++)
        if (d->cfg.tier[t].grows && drive_grow(d, t))
            return true;
    return false;
}

void drive_run(struct drive *d)
{
    while (grow_some(d))
        ;
    for (unsigned n = 0; d->norders; n++) {
        if (n == ENDLESS) {
            complain(d, "with no request pending, transfers go on for ever");
            return;
        }
        if (!end_one(d)) {
            complain(d, "orders on streams wait for each other");
            return;
        }
    }
}

int drive_finish(struct drive *d, struct drive_call *call)
{
    while (call->pending && (d->norders || grow_some(d)))
        if (d->norders && !end_one(d))
            break;
    return call->pending ? -EINPROGRESS : call->req.status;
}

/* ---- opening and requests ---- */

void drive_cfg(struct vv_core_cfg *ret_cfg, const char *tiers, enum vv_policy policy)
{
    struct vv_core_cfg cfg = {.page_bytes = DRIVE_PAGE, .policy = policy, .transit_pages = 1};

    cfg.gds = strchr(tiers, '+') != NULL;
    if (strchr(tiers, '*'))
        cfg.page_bytes = DRIVE_CUT_PAGE;
    for (const char *s = tiers; isalpha((unsigned char)*s);) {
        char kind = (char)toupper((unsigned char)*s);
        cfg.tier[cfg.ntiers].grows = kind != *s++;
        cfg.tier[cfg.ntiers].kind = kind == 'D'   ? VV_TIER_DEVICE
                                    : kind == 'H' ? VV_TIER_HOST
                                    : kind == 'S' ? VV_TIER_SPILL
                                                  : VV_TIER_FILES;
        cfg.written_stays |= kind == 'W';
        cfg.tier[cfg.ntiers++].capacity_bytes = strtoul(s, (char **)&s, 10) * cfg.page_bytes;
    }
    for (int h = 0; h < VV_HOP_COUNT; h++) {
        cfg.slots[h] = 1;
        cfg.batch_pages[h] = 4;
        cfg.rate[h] = 1000000;
    }
    *ret_cfg = cfg;
}

static void released(void *arg, uint64_t user)
{
    struct drive *d = arg;

    (void)user;
    d->nreleased++;
}

void drive_init(struct drive *d, const struct vv_core_cfg *cfg)
{
    memset(d, 0, offsetof(struct drive, file));
    d->cfg = *cfg;
    d->cfg.release_user = released;
    d->cfg.release_arg = d;
    T_OK(vv_core_new(&d->cfg, &d->core));
    for (unsigned t = 0; t < cfg->ntiers; t++) {
        uint64_t pages = vv_core_tier_records(d->core, t);
        if (cfg->tier[t].kind == VV_TIER_DEVICE)
            d->app_is_device = true;
        if (cfg->tier[t].kind == VV_TIER_FILES)
            continue;
        d->tag[t] = calloc(pages + 1, sizeof(uint64_t));
        d->len[t] = calloc(pages + 1, sizeof(uint32_t));
        T_CHECK(d->tag[t] && d->len[t]);
        for (uint64_t p = 0; p < pages; p++)
            d->tag[t][p] = DRIVE_BAD_TAG;
    }
}

void drive_fini(struct drive *d)
{
    drive_run(d);
    if (d->wrong[0])
        t_fail(__FILE__, __LINE__, "%s", d->wrong);
    vv_core_free(d->core);
    for (unsigned t = 0; t < VV_MAX_TIERS; t++) {
        free(d->tag[t]);
        free(d->len[t]);
    }
    d->core = NULL;
}

uint32_t drive_history(struct drive *d, bool consume_once, uint64_t keep, enum vv_core_level level)
{
    struct vv_core_hist_cfg cfg = {.consume_once = consume_once, .keep = keep, .level = level};

    return drive_history_with(d, &cfg);
}

uint32_t drive_history_with(struct drive *d, const struct vv_core_hist_cfg *cfg)
{
    uint32_t hist = 0;

    T_OK(vv_core_history_new(d->core, cfg, &hist));
    return hist;
}

static int started(struct drive *d, struct drive_call *call, int r)
{
    if (r < 0)
        call->pending = false;
    collect(d);
    return r;
}

static void call_init(struct drive *d, struct drive_call *call, uint64_t version)
{
    memset(call, 0, sizeof(*call));
    call->req.user = call;
    call->req.ordered = d->ordered;
    call->req.family = d->stream ? (uint8_t)vv_core_family(d->core, d->stream) : 0;
    call->pending = true;
    call->version = version;
    d->now_ns += d->step_ns;
}

int drive_put(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
              uint64_t size)
{
    call_init(d, call, version);
    return started(d, call,
                   vv_core_put(d->core, hist, version, size, version + 1, d->app_is_device,
                               d->now_ns, &call->req));
}

int drive_get(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version)
{
    struct vv_object_info info = {0};

    call_init(d, call, version);
    if (vv_core_lookup(d->core, hist, version, &info) == 0) {
        call->generation = info.generation;
        call->nchunks = info.chunks;
    }
    return started(d, call,
                   vv_core_get(d->core, hist, version, d->app_is_device, d->now_ns, &call->req));
}

int drive_lend(struct drive *d, struct drive_lend *lend, uint32_t hist, uint64_t version,
               uint32_t chunk0, uint32_t nchunks)
{
    struct vv_object_info info = {0};
    int r;

    if (vv_core_lookup(d->core, hist, version, &info) == 0 && chunk0 < info.chunks)
        nchunks = VV_MIN(nchunks, info.chunks - chunk0);
    r = vv_core_lend(d->core, hist, version, info.generation, chunk0, nchunks, true, d->now_ns,
                     &lend->lend);
    if (r == 0) {
        lend_see(d, lend, false);
        for (uint32_t i = 0; i < nchunks; i++)
            if (lend->tag[i] != tag_of(hist, version, info.generation, chunk0 + i))
                complain(d, "chunk %u of version %llu is lent with wrong bytes", chunk0 + i,
                         (unsigned long long)version);
    }
    collect(d);
    return r;
}

int drive_lease(struct drive *d, struct drive_call *call, struct drive_lend *lend, uint32_t hist,
                uint32_t npages)
{
    call_init(d, call, 0);
    call->req.ordered = false;
    call->req.family = 0;
    call->lend = lend;
    return started(d, call,
                   vv_core_lease(d->core, hist, npages, d->now_ns, &call->req, &lend->lend));
}

int drive_put_lent(struct drive *d, struct drive_call *call, struct drive_lend **lends, size_t n,
                   uint32_t hist, uint64_t version, uint64_t size)
{
    struct vv_lend *list[8] = {NULL};
    int r;

    T_CHECK(n <= VV_ARRAY_SIZE(list));
    for (size_t i = 0; i < n; i++) {
        lend_check(d, lends[i]);
        list[i] = &lends[i]->lend;
    }
    call_init(d, call, version);
    r = vv_core_put_lent(d->core, hist, version, size, version + 1, list, n, d->now_ns, &call->req);
    for (size_t i = 0; i < n && r == 0; i++)
        lends[i]->used = false;
    return started(d, call, r);
}

void drive_unlend(struct drive *d, struct drive_lend *lend)
{
    lend_check(d, lend);
    lend->used = false;
    vv_core_unlend(d->core, &lend->lend, d->now_ns);
    collect(d);
}

int drive_swap(struct drive *d, struct drive_lend *old, struct drive_lend *lend, uint32_t hist,
               uint64_t version)
{
    struct vv_object_info info = {0};
    int r;

    if (old)
        lend_check(d, old);
    if (vv_core_lookup(d->core, hist, version, &info))
        info.generation = 0;
    r = vv_core_swap(d->core, hist, version, info.generation, old ? &old->lend : NULL, d->now_ns,
                     &lend->lend);
    if (r == 0) {
        if (old)
            old->used = false;
        lend_see(d, lend, false);
        for (uint32_t i = 0; i < info.chunks; i++)
            if (lend->tag[i] != tag_of(hist, version, info.generation, i))
                complain(d, "chunk %u of version %llu is handed over with wrong bytes", i,
                         (unsigned long long)version);
        lend_see(d, lend, true);
    }
    collect(d);
    return r;
}

void drive_trim(struct drive *d, struct drive_lend *lend, uint32_t npages)
{
    lend_check(d, lend);
    vv_core_lease_trim(d->core, &lend->lend, npages, d->now_ns);
    collect(d);
}

int drive_wait(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
               enum vv_core_level level)
{
    call_init(d, call, version);
    return started(d, call, vv_core_wait(d->core, hist, version, level, d->now_ns, &call->req));
}

int drive_wait_all(struct drive *d, struct drive_call *call, uint32_t hist)
{
    call_init(d, call, 0);
    return started(d, call, vv_core_wait_all(d->core, hist, d->now_ns, &call->req));
}

int drive_hint(struct drive *d, uint32_t hist, uint64_t version)
{
    int r = vv_core_hint(d->core, hist, version, d->now_ns);

    collect(d);
    return r;
}

void drive_hint_clear(struct drive *d, uint32_t hist)
{
    vv_core_hint_clear(d->core, hist, d->now_ns);
    collect(d);
}

void drive_start(struct drive *d, uint32_t hist)
{
    vv_core_prefetch_start(d->core, hist, d->now_ns);
    collect(d);
}

int drive_discard(struct drive *d, uint32_t hist, uint64_t version)
{
    int r = vv_core_discard(d->core, hist, version, d->now_ns);

    collect(d);
    return r;
}

int drive_replace(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
                  uint64_t size)
{
    call_init(d, call, version);
    call->req.replace = true;
    return started(d, call,
                   vv_core_put(d->core, hist, version, size, version + 1, d->app_is_device,
                               d->now_ns, &call->req));
}

int drive_take_back(struct drive *d, uint32_t hist, uint64_t version)
{
    int r = vv_core_take_back(d->core, hist, version, d->now_ns);

    collect(d);
    return r;
}

int drive_confirm(struct drive *d, uint32_t hist, uint64_t version)
{
    int r = vv_core_confirm(d->core, hist, version, d->now_ns);

    collect(d);
    return r;
}

void drive_reached(struct drive *d, uint32_t hist, uint64_t version, uint64_t file_generation)
{
    vv_core_reached(d->core, hist, version, file_generation, d->now_ns);
    collect(d);
}

void drive_missed(struct drive *d, uint32_t hist, uint64_t version, uint64_t file_generation)
{
    vv_core_missed(d->core, hist, version, file_generation, d->now_ns);
    collect(d);
}

int drive_adopt(struct drive *d, uint32_t hist, uint64_t version, uint64_t generation,
                uint64_t size)
{
    int r = vv_core_adopt(d->core, hist, version, generation, size, version + 1, true);

    if (r == 0) {
        uint32_t n = (uint32_t)vv_div_up(size, d->cfg.page_bytes);
        struct drive_file *f = file_new(d, hist, version, generation, generation, n);
        f->committed = true;
        for (uint32_t c = 0; c < n; c++)
            f->tag[c] = tag_of(hist, version, generation, c);
    }
    return r;
}

bool drive_cancel(struct drive *d, struct drive_call *call, int status)
{
    for (unsigned i = 0; i < d->norders; i++)
        if (d->order[i]->req == &call->req)
            return false;
    vv_core_cancel(d->core, &call->req, status, d->now_ns);
    collect(d);
    return true;
}

uint64_t drive_digest(const struct drive *d)
{
    uint64_t files = 0;

    for (unsigned i = 0; i < d->nfiles; i++)
        if (d->file[i].used)
            files +=
                (d->file[i].version * 31 + d->file[i].committed) * UINT64_C(0x9e3779b97f4a7c15);
    return vv_core_digest(d->core) * 31 + files;
}
