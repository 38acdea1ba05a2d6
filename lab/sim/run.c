/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A discrete-event simulation. Each process has an engine core, a script and links; time jumps from
 * one event to the next. A link serves its orders one after the other, each for bytes / rate; both
 * directions of the disk are one link, those of the device are two. The application's own copies
 * use the links that they cross.
 *
 * On nodes, processes share their disk, their host memory and, in groups, the links to it. An order
 * then passes all that it crosses at the same time, each in the order of submission, and ends when
 * the last has let it through. Engines do not know of each other: each measures what it gets, as
 * the library does, and begins with its share as a first estimate.
 *
 * Processes that share nothing, not even a barrier, cannot influence each other. They are simulated
 * one group after the other, so that memory is needed for one group only.
 *
 * No data is moved, but its way is followed: each page of each tier holds a tag of the chunk that
 * was written there last, so that a copy out of the wrong page, or of a page that was reused too
 * early, is seen as wrong bytes.
 */
#include "lab/sim/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <varve/varve.h>

#include "engine/core/core.h"

enum link { LINK_D2D, LINK_D2H, LINK_H2D, LINK_DISK, LINK_COUNT };

struct event {
    uint64_t at_ns, seq;
    uint32_t proc;
    struct vv_order *order; /* ends now; NULL: the process goes on */
};

/* What the processes of a node share: until when it is busy. */
struct node {
    uint64_t disk_ns, memory_ns;
};

/* One link to host memory and the devices behind it. */
struct node_link {
    uint64_t down_ns, up_ns;
};

struct proc {
    struct vv_core *core;
    struct vv_core_cfg cfg;
    uint32_t hist;
    struct shot_script script;
    size_t pc, nputs, ngets;
    struct vv_req req;
    uint64_t call_ns, free_ns[LINK_COUNT];
    uint64_t left_ns;    /* the last call or wait ended */
    uint64_t barrier_ns; /* came to the barrier */
    uint64_t *gaps_ns;   /* before each put and get, barriers included */
    bool done;
    uint64_t *tags[VV_MAX_TIERS]; /* by page */
    struct shot_proc *out;
};

/* The fields from `proc` to `seq` are of the group that runs. */
struct sim {
    const struct shot_opts *opts;
    const struct sim_nodes *nodes; /* NULL: every process has a machine of its own */
    uint64_t rate[VV_HOP_COUNT];
    struct proc *proc;
    struct node *node;
    struct node_link *link;
    uint32_t nprocs, ndone, nwaiting;
    struct event *heap;
    size_t nheap, cap;
    uint64_t now_ns, seq;
    uint64_t interval_ns;
    char *err;
    size_t err_size;
};

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static int event_add(struct sim *s, uint64_t at_ns, uint32_t proc, struct vv_order *order)
{
    size_t i = s->nheap;
    struct event e = {.at_ns = at_ns, .seq = s->seq++, .proc = proc, .order = order};

    if (s->nheap == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct event *heap = realloc(s->heap, cap * sizeof(*heap));
        if (!heap)
            return -ENOMEM;
        s->heap = heap;
        s->cap = cap;
    }
    s->nheap++;
    for (; i > 0 && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
    return 0;
}

static struct event event_pop(struct sim *s)
{
    struct event top = s->heap[0], last = s->heap[--s->nheap];
    size_t i = 0;

    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->nheap)
            break;
        if (c + 1 < s->nheap && before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (!before(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (s->nheap)
        s->heap[i] = last;
    return top;
}

/* ---- the way of the data ---- */

static uint64_t tag_of(const struct vv_order *o, uint32_t chunk)
{
    uint64_t x = o->version * UINT64_C(0x9e3779b97f4a7c15) +
                 o->generation * UINT64_C(0xc2b2ae3d27d4eb4f) + chunk;

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x | 1;
}

/* Reads are checked when a transfer ends: a source page must stay as it is until then. */
static bool follow(struct proc *p, const struct vv_order *o)
{
    for (uint32_t i = 0; i < o->nchunks; i++) {
        uint64_t tag = tag_of(o, o->chunk0 + i);
        if (o->src_tier != VV_TIER_APP && p->tags[o->src_tier] &&
            p->tags[o->src_tier][o->src_page[i]] != tag)
            return false;
        if (o->dst_tier != VV_TIER_APP && p->tags[o->dst_tier])
            p->tags[o->dst_tier][o->dst_page[i]] = tag;
    }
    return true;
}

/* ---- carrying orders out ---- */

static enum link link_of(enum vv_hop hop)
{
    switch (hop) {
    case VV_HOP_D2H:
        return LINK_D2H;
    case VV_HOP_H2D:
        return LINK_H2D;
    case VV_HOP_H2F:
    case VV_HOP_F2H:
        return LINK_DISK;
    default:
        return LINK_D2D;
    }
}

/* When `bytes` that come now have passed something that is busy until *busy_ns. */
static uint64_t pass(const struct sim *s, uint64_t *busy_ns, uint64_t bytes, uint64_t rate)
{
    uint64_t ns = rate ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0;

    *busy_ns = VV_MAX(*busy_ns, s->now_ns) + ns;
    return *busy_ns;
}

/* When the order has passed what its process shares with others. */
static uint64_t pass_shared(struct sim *s, uint32_t i, const struct vv_order *o)
{
    struct node *node = &s->node[i / s->nodes->procs];
    struct node_link *link = &s->link[i / s->nodes->link_procs];
    uint64_t memory_bps = s->nodes->memory_bps;
    uint64_t done, memory_done;

    switch (o->hop) {
    case VV_HOP_D2D:
        return 0;
    case VV_HOP_H2H: /* read and written */
        return pass(s, &node->memory_ns, 2 * o->bytes, memory_bps);
    case VV_HOP_D2H:
        done = pass(s, &link->down_ns, o->bytes, s->nodes->link_bps);
        break;
    case VV_HOP_H2D:
        done = pass(s, &link->up_ns, o->bytes, s->nodes->link_bps);
        break;
    default:
        done = pass(s, &node->disk_ns, o->bytes, s->rate[o->hop]);
        break;
    }
    memory_done = pass(s, &node->memory_ns, o->bytes, memory_bps);
    return VV_MAX(done, memory_done);
}

static int start_order(struct sim *s, uint32_t i, struct vv_order *o)
{
    struct proc *p = &s->proc[i];
    uint64_t end, shared_end;

    if (o->kind != VV_ORDER_COPY && o->kind != VV_ORDER_APP)
        return event_add(s, s->now_ns, i, o);
    end = pass(s, &p->free_ns[link_of(o->hop)], o->bytes, s->rate[o->hop]);
    if (s->nodes) {
        shared_end = pass_shared(s, i, o);
        end = VV_MAX(end, shared_end);
    }
    return event_add(s, end, i, o);
}

static int step(struct sim *s, uint32_t i);

static int finish_call(struct sim *s, uint32_t i)
{
    struct proc *p = &s->proc[i];
    const struct shot_op *op = &p->script.ops[p->pc];
    double blocked = (double)(s->now_ns - p->call_ns) / 1e9;

    if (p->req.status < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version,
                 strerror(-p->req.status));
        return p->req.status;
    }
    if (op->kind == SHOT_PUT) {
        p->out->put_blocked_s[p->nputs++] = blocked;
    } else if (op->kind == SHOT_GET) {
        p->out->distance[p->ngets] = p->req.distance;
        p->out->get_blocked_s[p->ngets++] = blocked;
    } else {
        p->out->wait_s += blocked;
    }
    p->left_ns = s->now_ns;
    p->pc++;
    return step(s, i);
}

static int drain(struct sim *s, uint32_t i)
{
    struct vv_order *o;
    bool woken = false;
    int r = 0;

    while (r == 0 && (o = vv_core_next_order(s->proc[i].core))) {
        if (o->kind == VV_ORDER_WAKE)
            woken = true;
        else
            r = start_order(s, i, o);
    }
    return r == 0 && woken ? finish_call(s, i) : r;
}

/* ---- the application ---- */

static int pass_barrier(struct sim *s, uint32_t i)
{
    int r = 0;

    s->proc[i].barrier_ns = s->now_ns;
    if (++s->nwaiting < s->nprocs)
        return 0;
    s->nwaiting = 0;
    for (uint32_t k = 0; r == 0 && k < s->nprocs; k++) {
        s->proc[k].out->barrier_s += (double)(s->now_ns - s->proc[k].barrier_ns) / 1e9;
        s->proc[k].pc++;
        r = event_add(s, s->now_ns, k, NULL);
    }
    return r;
}

static int start_call(struct sim *s, uint32_t i, const struct shot_op *op)
{
    struct proc *p = &s->proc[i];
    bool on_device = shot_has_device(s->opts);
    int r;

    p->call_ns = s->now_ns;
    if (op->kind != SHOT_WAIT_FLUSH)
        p->gaps_ns[p->nputs + p->ngets] = s->now_ns - p->left_ns;
    if (op->kind == SHOT_PUT)
        r = vv_core_put(p->core, p->hist, op->version, op->bytes, 0, on_device, s->now_ns, &p->req);
    else if (op->kind == SHOT_GET)
        r = vv_core_get(p->core, p->hist, op->version, on_device, s->now_ns, &p->req);
    else
        r = vv_core_wait_all(p->core, p->hist, s->now_ns, &p->req);
    if (r < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version, strerror(-r));
        return r;
    }
    return drain(s, i);
}

/* Goes on until the process has to wait for something. */
static int step(struct sim *s, uint32_t i)
{
    struct proc *p = &s->proc[i];

    while (p->pc < p->script.nr_ops) {
        const struct shot_op *op = &p->script.ops[p->pc];
        int r = 0;
        switch (op->kind) {
        case SHOT_COMPUTE:
            p->pc++;
            return event_add(s, s->now_ns + op->ns, i, NULL);
        case SHOT_BARRIER:
            return pass_barrier(s, i);
        case SHOT_PUT:
        case SHOT_GET:
        case SHOT_WAIT_FLUSH:
            return start_call(s, i, op);
        case SHOT_HINT:
            r = vv_core_hint(p->core, p->hist, op->version, s->now_ns);
            break;
        case SHOT_START:
            vv_core_prefetch_start(p->core, p->hist, s->now_ns);
            break;
        case SHOT_DISCARD:
            r = vv_core_discard(p->core, p->hist, op->version, s->now_ns);
            break;
        }
        p->pc++;
        if (r == 0)
            r = drain(s, i);
        if (r < 0)
            return r;
    }
    if (!p->done) {
        struct vv_core_stats stats;
        vv_core_get_stats(p->core, &stats);
        p->out->utilisation = stats.utilisation;
        p->out->wall_s = (double)s->now_ns / 1e9;
        p->done = true;
        s->ndone++;
    }
    return 0;
}

static int run_events(struct sim *s)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < s->nprocs; i++)
        r = event_add(s, 0, i, NULL);
    while (r == 0 && s->ndone < s->nprocs && s->nheap) {
        struct event e = event_pop(s);
        struct proc *p = &s->proc[e.proc];
        s->now_ns = e.at_ns;
        if (!e.order) {
            r = step(s, e.proc);
            continue;
        }
        if ((e.order->kind == VV_ORDER_COPY || e.order->kind == VV_ORDER_APP) &&
            !follow(p, e.order)) {
            snprintf(s->err, s->err_size, "version %" PRIu64 ": wrong bytes", e.order->version);
            return -EBADMSG;
        }
        vv_core_complete(p->core, e.order, 0, s->now_ns);
        r = drain(s, e.proc);
    }
    if (r == 0 && s->ndone < s->nprocs) {
        snprintf(s->err, s->err_size, "the simulation came to a stop with requests pending");
        return -EDEADLK;
    }
    return r;
}

/* ---- setting up ---- */

void sim_core_cfg(const struct shot_opts *opts, uint64_t history_bytes, struct vv_core_cfg *ret_cfg)
{
    struct vv_core_cfg cfg = {.page_bytes = (uint32_t)opts->page_bytes, .disk_shared = true};
    bool disk = !opts->local || strcmp(opts->local, "none") != 0;
    uint64_t local = shot_cap_bytes(&opts->local_cache, history_bytes, opts->page_bytes);
    uint64_t device = 0;
    uint64_t host = shot_cap_bytes(&opts->host_cache, history_bytes, opts->page_bytes);

    cfg.policy = (enum vv_policy)opts->policy;
    if (shot_has_device(opts)) {
        device = shot_cap_bytes(&opts->device_cache, history_bytes, opts->page_bytes);
        cfg.tier[cfg.ntiers].kind = VV_TIER_DEVICE;
        cfg.tier[cfg.ntiers++].capacity_bytes = device;
    }
    cfg.tier[cfg.ntiers].kind = VV_TIER_HOST;
    cfg.tier[cfg.ntiers++].capacity_bytes = host;
    if (!cfg.page_bytes)
        cfg.page_bytes = vv_core_page_bytes(device, host);
    if (disk && opts->level == VARVE_LEVEL_CACHED) {
        cfg.tier[cfg.ntiers].kind = VV_TIER_SPILL;
        /* Twice the history: contiguous policies must find their windows in it. */
        cfg.tier[cfg.ntiers++].capacity_bytes = local ? local : 2 * history_bytes + (64u << 20);
    } else if (disk) {
        cfg.tier[cfg.ntiers].kind = VV_TIER_FILES;
        cfg.tier[cfg.ntiers++].capacity_bytes = local;
    }
    cfg.rate[VV_HOP_D2D] = opts->rate[SHOT_HOP_D2D];
    /* As the library has it: the first copy is within host memory where there is no device. */
    cfg.rate[VV_HOP_H2H] =
        opts->rate[SHOT_HOP_H2H] ? opts->rate[SHOT_HOP_H2H] : opts->rate[SHOT_HOP_D2D];
    cfg.rate[VV_HOP_D2H] = opts->rate[SHOT_HOP_D2H];
    cfg.rate[VV_HOP_H2D] = opts->rate[SHOT_HOP_H2D];
    cfg.rate[VV_HOP_H2F] = opts->rate[SHOT_HOP_H2F];
    cfg.rate[VV_HOP_F2H] = opts->rate[SHOT_HOP_F2H];
    vv_core_cfg_tune(&cfg);
    *ret_cfg = cfg;
}

int sim_check_rates(const struct shot_opts *opts, char *err, size_t err_size)
{
    bool device = shot_has_device(opts);
    bool disk = !opts->local || strcmp(opts->local, "none") != 0;
    const struct {
        enum shot_hop hop;
        bool used;
        const char *example;
    } hops[] = {
        {SHOT_HOP_D2D, device, "4G"},   {SHOT_HOP_H2H, !device, "4G"},
        {SHOT_HOP_D2H, device, "400M"}, {SHOT_HOP_H2D, device, "400M"},
        {SHOT_HOP_H2F, disk, "40M"},    {SHOT_HOP_F2H, disk, "40M"},
    };
    char missing[64] = "", example[96] = "";
    size_t nm = 0, ne = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(hops); i++) {
        const char *name = shot_hop_name(hops[i].hop);
        if (!hops[i].used)
            continue;
        ne += (size_t)snprintf(example + ne, sizeof(example) - ne, "%s%s=%s", ne ? "," : "", name,
                               hops[i].example);
        if (opts->rate[hops[i].hop] == 0)
            nm +=
                (size_t)snprintf(missing + nm, sizeof(missing) - nm, "%s%s", nm ? ", " : "", name);
    }
    if (nm == 0)
        return 0;
    snprintf(err, err_size,
             "simulated hops need a rate, and %s %s none: give for example --rate %s", missing,
             strchr(missing, ',') ? "have" : "has", example);
    return -EINVAL;
}

static void set_machine(const struct shot_opts *opts, const struct vv_core_cfg *cfg,
                        struct shot_machine *m)
{
    *m = (struct shot_machine){.has_device = shot_has_device(opts)};
    for (unsigned t = 0; t < cfg->ntiers; t++) {
        uint64_t bytes = cfg->tier[t].capacity_bytes / cfg->page_bytes * cfg->page_bytes;
        if (cfg->tier[t].kind == VV_TIER_DEVICE)
            m->device_bytes = bytes;
        else if (cfg->tier[t].kind == VV_TIER_HOST)
            m->host_bytes = bytes;
        else
            m->has_disk = true;
    }
    m->staging_bytes = 2 * (uint64_t)cfg->transit_pages * cfg->page_bytes;
    for (int h = 0; h < SHOT_HOP_NR; h++)
        m->rate[h] = (double)opts->rate[h];
    m->rate[SHOT_HOP_H2H] = (double)cfg->rate[VV_HOP_H2H];
}

/* The share of one process, as the first estimate of its engine. */
static void share_rates(const struct sim_nodes *nodes, struct shot_opts *opts)
{
    uint32_t on_node = VV_MIN(nodes->procs, opts->procs);
    uint64_t link = nodes->link_bps / VV_MIN(nodes->link_procs, on_node);
    const enum shot_hop links[] = {SHOT_HOP_D2H, SHOT_HOP_H2D};

    for (size_t i = 0; link && i < VV_ARRAY_SIZE(links); i++)
        if (opts->rate[links[i]] > link)
            opts->rate[links[i]] = link;
    opts->rate[SHOT_HOP_H2F] /= on_node;
    opts->rate[SHOT_HOP_F2H] /= on_node;
}

/* The sizes of one process on a node, for the caller to free. */
static int turn_sizes(const struct sim *s, uint32_t rank, const struct shot_sizes *sizes,
                      struct shot_sizes *ret_sizes)
{
    size_t start = rank % s->nodes->procs * (sizes->nr / s->nodes->procs) + rank / s->nodes->procs;
    struct shot_sizes turned = *sizes;

    turned.bytes = calloc(sizes->nr, sizeof(*turned.bytes));
    if (!turned.bytes)
        return -ENOMEM;
    for (size_t v = 0; v < sizes->nr; v++)
        turned.bytes[v] = sizes->bytes[(start + v) % sizes->nr];
    *ret_sizes = turned;
    return 0;
}

static int proc_script(const struct sim *s, struct proc *p, uint32_t rank,
                       const struct shot_sizes *sizes)
{
    struct shot_sizes turned;
    int r;

    if (!s->nodes)
        return shot_script_init(s->opts, sizes, s->interval_ns, rank, &p->script);
    r = turn_sizes(s, rank, sizes, &turned);
    if (r < 0)
        return r;
    r = shot_script_init(s->opts, &turned, s->interval_ns, rank, &p->script);
    shot_sizes_fini(&turned);
    return r;
}

static int proc_init(struct sim *s, struct proc *p, uint32_t rank, const struct shot_sizes *sizes)
{
    struct shot_opts opts = *s->opts;
    struct vv_core_hist_cfg hist = {.consume_once = opts.consume == SHOT_CONSUME_ONCE,
                                    .level = opts.level == VARVE_LEVEL_CACHED ? VV_CORE_CACHED
                                                                              : VV_CORE_DURABLE};
    int r = proc_script(s, p, rank, sizes);

    if (r < 0)
        return r;
    p->gaps_ns = calloc(p->script.nr_puts + p->script.nr_gets + 1, sizeof(*p->gaps_ns));
    if (!p->gaps_ns)
        return -ENOMEM;
    if (s->nodes)
        share_rates(s->nodes, &opts);
    sim_core_cfg(&opts, p->script.peak_live_bytes, &p->cfg);
    p->cfg.check = getenv("VARVE_CHECK") != NULL;
    r = vv_core_new(&p->cfg, &p->core);
    if (r == 0)
        r = vv_core_history_new(p->core, &hist, &p->hist);
    for (unsigned t = 0; r == 0 && t < p->cfg.ntiers; t++) {
        uint64_t pages = vv_core_tier_pages(p->core, t);
        if (pages == 0)
            continue;
        p->tags[t] = calloc(pages, sizeof(uint64_t));
        if (!p->tags[t])
            r = -ENOMEM;
    }
    return r;
}

static void proc_fini(struct proc *p)
{
    shot_script_fini(&p->script);
    vv_core_free(p->core);
    free(p->gaps_ns);
    for (unsigned t = 0; t < VV_MAX_TIERS; t++)
        free(p->tags[t]);
}

/* Orders that a finished process left behind, so that its core may be freed. */
static void complete_rest(struct sim *s)
{
    while (s->nheap) {
        struct event e = event_pop(s);
        if (e.order)
            vv_core_complete(s->proc[e.proc].core, e.order, -ECANCELED, s->now_ns);
    }
    for (uint32_t i = 0; i < s->nprocs; i++) {
        struct vv_order *o;
        while (s->proc[i].core && (o = vv_core_next_order(s->proc[i].core)))
            if (o->kind != VV_ORDER_WAKE)
                vv_core_complete(s->proc[i].core, o, -ECANCELED, s->now_ns);
    }
}

/* ---- groups of processes that share something ---- */

static int group_init(struct sim *s, uint32_t first, uint32_t nprocs,
                      const struct shot_sizes *sizes)
{
    int r = 0;

    s->now_ns = s->seq = 0;
    s->ndone = s->nwaiting = 0;
    s->nprocs = nprocs;
    s->proc = calloc(nprocs, sizeof(*s->proc));
    if (!s->proc)
        return -ENOMEM;
    if (s->nodes) {
        s->node = calloc(vv_div_up(nprocs, s->nodes->procs), sizeof(*s->node));
        s->link = calloc(vv_div_up(nprocs, s->nodes->link_procs), sizeof(*s->link));
        if (!s->node || !s->link)
            return -ENOMEM;
    }
    for (uint32_t i = 0; r == 0 && i < nprocs; i++)
        r = proc_init(s, &s->proc[i], first + i, sizes);
    return r;
}

/* Accepts what group_init left half-built. */
static void group_fini(struct sim *s)
{
    if (s->proc)
        complete_rest(s);
    for (uint32_t i = 0; s->proc && i < s->nprocs; i++)
        proc_fini(&s->proc[i]);
    free(s->proc);
    free(s->node);
    free(s->link);
    s->proc = NULL;
    s->node = NULL;
    s->link = NULL;
}

static int group_report(const struct sim *s, const struct shot_machine *machine)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < s->nprocs; i++) {
        struct proc *p = &s->proc[i];
        p->out->put_bytes = p->script.put_bytes;
        p->out->get_bytes = p->script.get_bytes;
        p->out->verified = true;
        if (s->opts->no_bound)
            continue;
        r = shot_bound(&p->script, s->opts->consume == SHOT_CONSUME_ONCE, machine, p->gaps_ns,
                       &p->out->bound);
    }
    return r;
}

/* Processes `first` and following. */
static int run_group(struct sim *s, uint32_t first, uint32_t nprocs, const struct shot_sizes *sizes,
                     struct shot_report *report)
{
    int r = group_init(s, first, nprocs, sizes);

    if (r == 0 && !report->procs) {
        const struct proc *p = &s->proc[0];
        r = shot_report_init(s->opts->procs, p->script.nr_puts, p->script.nr_gets, report);
        if (r == 0)
            set_machine(s->opts, &p->cfg, &report->machine);
    }
    for (uint32_t i = 0; r == 0 && i < nprocs; i++)
        s->proc[i].out = &report->procs[first + i];
    if (r == 0)
        r = run_events(s);
    if (r == 0)
        r = group_report(s, &report->machine);
    group_fini(s);
    return r;
}

static int run_groups(struct sim *s, const struct shot_sizes *sizes, struct shot_report *report)
{
    uint32_t procs = s->opts->procs;
    uint32_t group = s->opts->barrier ? procs : s->nodes ? s->nodes->procs : 1;
    int r = 0;

    for (uint32_t first = 0; r == 0 && first < procs; first += group)
        r = run_group(s, first, VV_MIN(group, procs - first), sizes, report);
    if (r < 0)
        return r;
    report->command = "sim";
    report->opts = *s->opts;
    report->interval_ns = s->interval_ns;
    shot_report_finish(report);
    return 0;
}

static int check_nodes(const struct sim_nodes *nodes, char *err, size_t err_size)
{
    if (nodes->procs == 0 || nodes->link_procs == 0) {
        snprintf(err, err_size, "a node has at least one process, and so has a link");
        return -EINVAL;
    }
    if (nodes->procs % nodes->link_procs != 0) {
        snprintf(err, err_size,
                 "%" PRIu32 " processes on a node cannot be shared out to links of %" PRIu32,
                 nodes->procs, nodes->link_procs);
        return -EINVAL;
    }
    return 0;
}

int sim_run_nodes(const struct shot_opts *opts, const struct sim_nodes *nodes, char *err,
                  size_t err_size, struct shot_report *ret_report)
{
    struct sim s = {.opts = opts, .nodes = nodes, .err = err, .err_size = err_size};
    uint32_t on_disk = nodes ? VV_MAX(VV_MIN(nodes->procs, opts->procs), UINT32_C(1)) : 1;
    double disk_bps = (double)opts->rate[SHOT_HOP_H2F] / on_disk;
    struct shot_sizes sizes = {0};
    struct shot_report report = {0};
    struct vv_core_cfg cfg;
    int r = nodes ? check_nodes(nodes, err, err_size) : 0;

    if (r == 0)
        r = shot_sizes_init(opts, err, err_size, &sizes);
    if (r < 0)
        return r;
    sim_core_cfg(opts, sizes.total_bytes, &cfg);
    memcpy(s.rate, cfg.rate, sizeof(s.rate));
    r = shot_interval_ns(opts, &sizes, disk_bps, &s.interval_ns);
    if (r < 0)
        snprintf(err, err_size, "--load needs the rate of the disk: --rate h2f=...");
    if (r == 0)
        r = run_groups(&s, &sizes, &report);
    free(s.heap);
    shot_sizes_fini(&sizes);
    if (r < 0)
        shot_report_fini(&report);
    else
        *ret_report = report;
    return r;
}

int sim_run_shot(const struct shot_opts *opts, char *err, size_t err_size,
                 struct shot_report *ret_report)
{
    return sim_run_nodes(opts, NULL, err, err_size, ret_report);
}
