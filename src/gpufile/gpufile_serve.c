/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers. Each draws a ticket, waits for the entry of the ring that belongs to it, carries out that request and
 * stores the answer in the mailbox that the request names. The next free server draws the next ticket, so that no
 * server is idle while another has two requests.
 *
 * Invariants: a server never calls the device, and never waits for a lock that is held during such a call. Between the
 * request and its answer the staging memory of its part belongs to the server; the answer is its last store. A
 * server that has to stop answers the requests it has taken, and leaves a ticket whose entry has not arrived to the
 * remaining servers.
 *
 * A server that finds small requests waiting draws several tickets at once, so that the servers do not contend for the
 * counter with each request. Large ones are taken one by one: the parts of a window should be read by several servers.
 *
 * Requests of different servers change no common memory, except for the counter of tickets and, in the kernel, the
 * state of an open file: with fourteen servers each small read of one open file would wait for thirteen others. So a
 * server that reads a file in small pieces opens it for itself. Lines that the GPU or another server wrote last (the
 * next entry of the ring, and the mailbox) are prefetched before the read and are there after it.
 *
 * With io_uring a server continues with the next ticket while reads are under way.
 *
 * Slots are another mode, for comparison: each server has some consecutive streams to itself. It polls the places of
 * these streams one after another, and no others.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "gpufile/gpufile_hooks.h"
#include "gpufile/gpufile_private.h"

/* How long a server looks for requests before it rests, and how long it rests. A GPU cannot wake a thread of the
 * host, so a server has to look again; without requests it looks less and less often. A request then waits for at
 * most a 32nd of the time since the server's last request, and at most REST_MOST_NS. Tickets go round the servers:
 * with S of them that is up to S/32 of the time between two requests. */
#define LOOK_NS      (UINT64_C(1000) * VV_NS_PER_US)
#define REST_NS      (UINT64_C(50) * VV_NS_PER_US)
#define REST_MOST_NS (UINT64_C(4000) * VV_NS_PER_US)
#define REST_PART    32

/* One request in so many is timed. */
#define TIMED_EACH 64

/* Requests up to this size are drawn several at once. */
#define SMALL_BYTES (16u * 1024)

/* A read under way. */
struct job {
    struct vv_aio_req req;
    struct iovec iov;
    struct varve_g_request r;
    struct job *next;
};

/* State of one server, used by its own thread only. */
struct work {
    struct vvi_gpufile_server *server;
    struct varve_gpufs *fs;
    uint64_t ticket, end;  /* drawn and not yet served: from, and up to */
    uint64_t batch;        /* number of tickets to draw next */
    bool waited;           /* the current ticket's request was not there at once */
    uint64_t passed_since; /* when a later ticket of its entry was seen to be given up; 0: not */
    uint64_t idle_since;
    uint32_t under_way;
    struct job jobs[VVI_GPUFILE_DEPTH], *free;
};

void vv_gpufile_lose_server(struct varve_gpufs *fs)
{
    atomic_fetch_add(&fs->to_lose, 1);
}

/* Prefetches a line that will be written soon. */
static inline void want_line(const void *p)
{
#if defined(__x86_64__)
    /* On most targets the compiler turns __builtin_prefetch for writing into a prefetch for reading. */
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

void vv_gpufile_server_times(struct varve_gpufs *fs, struct vv_gpufile_times *ret)
{
    *ret = (struct vv_gpufile_times){0};
    for (uint32_t i = 0; i < fs->n_servers; i++) {
        ret->answered += atomic_load_explicit(&fs->servers[i].answered, memory_order_relaxed);
        ret->idle_ns += atomic_load_explicit(&fs->servers[i].idle_ns, memory_order_relaxed);
        ret->timed += atomic_load_explicit(&fs->servers[i].timed, memory_order_relaxed);
        ret->timed_ns += atomic_load_explicit(&fs->servers[i].timed_ns, memory_order_relaxed);
    }
}

/* ---- the ring ---- */

static void decode(uint64_t a, uint64_t b, struct varve_g_request *ret)
{
    *ret = (struct varve_g_request){
        .offset = (b & ~VARVE_G_LAP_BIT) >> 22 << 22 | (a & 0x3fffff),
        .bytes = (uint32_t)(b & 0x3fffff),
        .op = (uint32_t)(a >> 60 & 7),
        .stream = (uint32_t)(a >> 46 & 0x3fff),
        .part = (uint32_t)(a >> 42 & 15),
        .number = (uint32_t)(a >> 34 & 0xff),
        .file = (uint32_t)(a >> 22 & 0xfff),
    };
}

/* True if the group that drew the ticket will not send its request. The mark of a group that drew a later ticket of the
 * same entry may have overwritten its own. A group that has not given up within its time saw that there is room, and
 * sends within the time that it was ready to wait. */
static bool given_up(struct work *w, uint64_t at, uint64_t laps)
{
    uint64_t skip = __atomic_load_n(&w->fs->ring[at].skip, __ATOMIC_ACQUIRE), now;

    if (skip <= laps + 1)
        return skip == laps + 1;
    now = vv_now_ns();
    if (!w->passed_since)
        w->passed_since = now;
    return now - w->passed_since > w->fs->view.timeout_ns;
}

/* 1: the request of the ticket; 0: not there yet; -1: it will not come. */
static int look(struct work *w, struct varve_g_request *ret)
{
    struct varve_gpufs *fs = w->fs;
    uint64_t at = w->ticket & (fs->view.n_ring - 1), laps = w->ticket / fs->view.n_ring;
    uint64_t lap = laps % 2 ? 0 : VARVE_G_LAP_BIT;
    uint64_t a, b;

    /* As long as the request of the last lap is unread, this one cannot be there. The entry may then hold the request
     * of two laps before, whose ticket a server has drawn but not looked at; it has the same bit. */
    if (__atomic_load_n(&fs->ring[at].read, __ATOMIC_ACQUIRE) != laps)
        return 0;
    a = __atomic_load_n(&fs->ring[at].half[0], __ATOMIC_ACQUIRE);
    if ((a & VARVE_G_LAP_BIT) != lap) {
        if (!given_up(w, at, laps))
            return 0;
        /* The entry still holds the request of the last lap, which would be taken for that of the next one. The
         * sender of the next one waits for the word below. */
        __atomic_store_n(&fs->ring[at].half[0], lap, __ATOMIC_RELAXED);
        __atomic_store_n(&fs->ring[at].half[1], lap, __ATOMIC_RELAXED);
        __atomic_store_n(&fs->ring[at].read, laps + 1, __ATOMIC_RELEASE);
        return -1;
    }
    b = __atomic_load_n(&fs->ring[at].half[1], __ATOMIC_ACQUIRE);
    if ((b & VARVE_G_LAP_BIT) != lap)
        return 0;
    decode(a, b, ret);
    /* Pairs with the acquire of the group that uses this entry in the next lap. */
    __atomic_store_n(&fs->ring[at].read, laps + 1, __ATOMIC_RELEASE);
    return 1;
}

/* Hands its unserved tickets over to the other servers. */
static void leave_locked(struct work *w)
{
    for (; w->ticket < w->end; w->ticket++)
        w->fs->orphans[w->fs->n_orphans++] = w->ticket;
}

/* Takes the oldest ticket that a server has left, if it is older than those of this server: the sender of its
 * request waits, and later ones may never be sent before it is answered. */
static void adopt(struct work *w)
{
    struct varve_gpufs *fs = w->fs;
    uint32_t oldest = 0;

    if (atomic_load_explicit(&fs->n_orphans, memory_order_relaxed) == 0)
        return;
    vv_mutex_lock(&fs->lock);
    for (uint32_t i = 1; i < fs->n_orphans; i++)
        if (fs->orphans[i] < fs->orphans[oldest])
            oldest = i;
    if (fs->n_orphans > 0 && (w->ticket == w->end || fs->orphans[oldest] < w->ticket)) {
        uint64_t ticket = fs->orphans[oldest];

        fs->orphans[oldest] = fs->orphans[--fs->n_orphans];
        leave_locked(w);
        w->ticket = ticket;
        w->end = ticket + 1;
        w->passed_since = 0;
    }
    vv_mutex_unlock(&fs->lock);
}

static void draw(struct work *w)
{
    struct varve_gpufs *fs = w->fs;

    adopt(w);
    if (w->ticket == w->end) {
        w->ticket = atomic_fetch_add_explicit(&fs->next_ticket, w->batch, memory_order_relaxed);
        w->end = w->ticket + w->batch;
    }
    w->waited = false;
}

/* The ticket was served, or given up. */
static void drawn_done(struct work *w, bool small)
{
    w->ticket++;
    w->batch = !small || w->waited ? 1 : VV_MIN(2 * w->batch, (uint64_t)VVI_GPUFILE_BATCH);
    w->waited = false;
    w->passed_since = 0;
}

/* True if the slot has a new request. */
static bool look_slot(struct work *w, uint32_t slot, struct varve_g_request *ret)
{
    struct varve_gpufs *fs = w->fs;
    uint64_t lap = fs->slot_laps[slot] ? 0 : VARVE_G_LAP_BIT;
    uint64_t a = __atomic_load_n(&fs->ring[slot].half[0], __ATOMIC_ACQUIRE), b;

    if ((a & VARVE_G_LAP_BIT) != lap)
        return false;
    b = __atomic_load_n(&fs->ring[slot].half[1], __ATOMIC_ACQUIRE);
    if ((b & VARVE_G_LAP_BIT) != lap)
        return false;
    decode(a, b, ret);
    fs->slot_laps[slot] ^= 1;
    return true;
}

/* One writer: no read-modify-write is needed. */
static void count(_Atomic uint64_t *figure, uint64_t n)
{
    atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static uint64_t *mailbox(const struct varve_gpufs *fs, const struct varve_g_request *r)
{
    return &fs->mailboxes[(size_t)r->stream * VARVE_G_PARTS + r->part];
}

static void answer(struct work *w, const struct varve_g_request *r, int64_t result)
{
    struct varve_gpufs *fs = w->fs;

    count(&w->server->answered, 1);
    if (result < 0)
        count(&w->server->failed, 1);
    /* Pairs with the acquire in varve_g_wait: a group that sees the answer sees the bytes. */
    __atomic_store_n(
        mailbox(fs, r),
        VARVE_G_ANSWER(__atomic_load_n(&fs->host->maps, __ATOMIC_ACQUIRE), r->number, result),
        __ATOMIC_RELEASE);
}

/* ---- requests ---- */

static unsigned char *stage(const struct varve_gpufs *fs, const struct varve_g_request *r)
{
    if (r->op == VARVE_G_READ_PAGE)
        return fs->page_staging + ((size_t)r->stream * 2 + r->part / 8) * fs->opts.page_bytes;
    return fs->staging.ptr + ((size_t)r->stream * 2 + r->part / 8) * fs->view.readahead_bytes +
           (size_t)(r->part % 8) * fs->view.split_bytes;
}

/* Any kernel can write the ring: a request is checked before memory is touched. */
static bool sane(const struct varve_gpufs *fs, const struct varve_g_request *r)
{
    if (r->op == VARVE_G_READ_PAGE)
        return r->stream < fs->view.n_streams && fs->page_staging &&
               r->bytes <= fs->opts.page_bytes && r->part % 8 == 0;
    return r->stream < fs->view.n_streams && r->bytes <= fs->view.split_bytes &&
           (uint64_t)(r->part % 8) * fs->view.split_bytes + r->bytes <= fs->view.readahead_bytes;
}

/* ---- the use of files ---- */

/* Called before files are looked up. A thread that closes one hides it first and then checks the turn: either this
 * server sees that the file is hidden, or that thread sees that the server may use it. */
static void enter(struct work *w)
{
    uint64_t turn = atomic_load_explicit(&w->server->turn, memory_order_relaxed);

    if (turn % 2 == 0)
        atomic_store(&w->server->turn, turn + 1);
}

/* Ends the use of files, unless reads are under way. */
static void leave(struct work *w)
{
    uint64_t turn = atomic_load_explicit(&w->server->turn, memory_order_relaxed);

    /* Pairs with the loads of vvi_gpufile_servers_pass. */
    if (turn % 2 && w->under_way == 0)
        atomic_store_explicit(&w->server->turn, turn + 1, memory_order_release);
}

/* The descriptor with which this server reads the file that is open as fd. Opening one may take long, for example
 * when the kernel grows the table of descriptors: so never with tickets drawn, whose requests would wait. */
static int own_fd(struct work *w, const struct vvi_gpufile_file *f, int fd, uint32_t bytes)
{
    struct vvi_gpufile_own *own = &f->own[w->server->index];

    if (own->fd < 0 && own->reads <= VVI_GPUFILE_OWN && bytes <= SMALL_BYTES && w->server->of > 1) {
        if (own->reads < VVI_GPUFILE_OWN)
            own->reads++;
        if (own->reads == VVI_GPUFILE_OWN && w->ticket == w->end) {
            own->reads++; /* tried, with any result */
            own->fd = vvi_gpufile_own_open(w->fs, fd);
        }
    }
    return own->fd >= 0 ? own->fd : fd;
}

/* Reads up to the end of the file; returns the number of bytes. */
static int64_t read_bytes(const struct varve_gpufs *fs, int fd, unsigned char *buf, uint32_t bytes,
                          uint64_t offset)
{
    uint32_t done = 0;

    while (done < bytes) {
        int64_t n = fs->os->pread(fs->os, fd, buf + done, bytes - done, offset + done);

        if (n < 0)
            return n;
        if (n == 0)
            break;
        done += (uint32_t)n;
    }
    return done;
}

static int64_t do_read(struct work *w, const struct varve_g_request *r)
{
    struct varve_gpufs *fs = w->fs;
    struct vvi_gpufile_file *f = &fs->files[r->file];
    int fd = atomic_load(&f->fd), direct = atomic_load(&f->direct_fd);
    int64_t n = -EINVAL;

    if (fd < 0)
        return -EBADF;
    /* A short direct read may end at an offset where another one cannot start, or the file system may refuse one
     * although it was opened so: then read through the page cache. */
    if (direct >= 0)
        n = read_bytes(fs, direct, stage(fs, r), r->bytes, r->offset);
    if (n == -EINVAL)
        n = read_bytes(fs, own_fd(w, f, fd, r->bytes), stage(fs, r), r->bytes, r->offset);
    if (n > 0) {
        count(&w->server->read_bytes, (uint64_t)n);
        vvi_gpufile_warm(fs, r->file, r->offset, (uint32_t)n);
    }
    return n;
}

static int64_t do_write(struct work *w, const struct varve_g_request *r)
{
    struct varve_gpufs *fs = w->fs;
    struct vvi_gpufile_file *f = &fs->files[r->file];
    int fd = atomic_load(&f->fd), rc;

    if (fd < 0)
        return -EBADF;
    rc = vv_os_write_all(fs->os, fd, stage(fs, r), r->bytes, r->offset);
    if (rc)
        return rc;
    count(&w->server->written_bytes, r->bytes);
    return r->bytes;
}

static int64_t do_open(struct varve_gpufs *fs, const struct varve_g_request *r)
{
    const char *path = (const char *)stage(fs, r);
    uint32_t id;
    int rc;

    if (r->bytes == 0 || r->bytes > VARVE_G_PATH_MAX || path[r->bytes - 1] != '\0')
        return -EINVAL;
    rc = vvi_gpufile_register(fs, path, (int)(uint32_t)r->offset, 0, &id);
    return rc ? rc : (int64_t)id;
}

static int64_t do_stat(struct varve_gpufs *fs, const struct varve_g_request *r)
{
    struct vvi_gpufile_file *f;
    int rc;

    vv_mutex_lock(&fs->lock);
    f = vvi_gpufile_file_locked(fs, r->file);
    rc = f ? vvi_gpufile_check_locked(fs, f) : -EBADF;
    vv_mutex_unlock(&fs->lock);
    return rc;
}

static int64_t carry_out(struct work *w, const struct varve_g_request *r)
{
    struct varve_gpufs *fs = w->fs;
    int fd;

    switch (r->op) {
    case VARVE_G_READ:
    case VARVE_G_READ_PAGE:
        return do_read(w, r);
    case VARVE_G_WRITE:
        return do_write(w, r);
    case VARVE_G_OPEN:
        return do_open(fs, r);
    case VARVE_G_STAT:
        return do_stat(fs, r);
    case VARVE_G_SYNC:
        fd = atomic_load(&fs->files[r->file].fd);
        return fd < 0 ? -EBADF : fs->os->fsync(fs->os, fd);
    default:
        return -EINVAL;
    }
}

static int64_t carry_out_timed(struct work *w, const struct varve_g_request *r)
{
    uint64_t start = vv_now_ns();
    int64_t result = carry_out(w, r);

    count(&w->server->timed_ns, vv_now_ns() - start);
    count(&w->server->timed, 1);
    return result;
}

/* ---- with io_uring ---- */

/* True if the read has been submitted. */
static bool begin_read(struct work *w, const struct varve_g_request *r)
{
    struct vvi_gpufile_file *f = &w->fs->files[r->file];
    int direct = atomic_load(&f->direct_fd), fd = atomic_load(&f->fd);
    struct job *j = w->free;

    if (fd < 0 || !j)
        return false;
    fd = direct >= 0 ? direct : own_fd(w, f, fd, r->bytes);
    w->free = j->next;
    j->r = *r;
    j->iov = (struct iovec){stage(w->fs, r), r->bytes};
    j->req = (struct vv_aio_req){.op = VV_AIO_READ,
                                 .fd = fd,
                                 .offset = r->offset,
                                 .iov = &j->iov,
                                 .niov = 1,
                                 .may_block = direct < 0,
                                 .user = j};
    w->under_way++;
    vv_aio_submit(w->server->aio, &j->req);
    return true;
}

/* Answers reads that have ended; waits for one up to the timeout. */
static void end_reads(struct work *w, int64_t timeout_ns)
{
    struct vv_aio_req *done[VVI_GPUFILE_DEPTH];
    int n = vv_aio_wait(w->server->aio, done, VVI_GPUFILE_DEPTH, timeout_ns);

    for (int i = 0; i < n; i++) {
        struct job *j = done[i]->user;
        int64_t result = j->r.bytes;

        if (done[i]->result == -ENODATA || done[i]->result == -EINVAL)
            result = do_read(w, &j->r); /* the number of bytes, or by the page cache */
        else if (done[i]->result < 0)
            result = done[i]->result;
        else {
            count(&w->server->read_bytes, j->r.bytes);
            vvi_gpufile_warm(w->fs, j->r.file, j->r.offset, j->r.bytes);
        }
        answer(w, &j->r, result);
        j->next = w->free;
        w->free = j;
        w->under_way--;
    }
    leave(w);
}

/* ---- a server ---- */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void rest(struct work *w)
{
    uint64_t now = vv_now_ns(), idle;

    if (!w->idle_since)
        w->idle_since = now;
    idle = now - w->idle_since;
    /* Do not touch the line for a moment: polling would delay the store that it waits for. */
    for (int i = 0; i < 8; i++)
        relax();
    if (idle > LOOK_NS)
        vv_sleep_until_ns(now + VV_MIN(VV_MAX(idle / REST_PART, REST_NS), REST_MOST_NS));
    else if (idle > LOOK_NS / 16)
        sched_yield();
}

/* Notes that there was a request. */
static void busy(struct work *w)
{
    uint64_t waited = vv_now_ns() - w->idle_since;

    if (waited < LOOK_NS)
        count(&w->server->idle_ns, waited);
    w->idle_since = 0;
}

/* False: the server ends. */
static bool serve_one(struct work *w, const struct varve_g_request *r)
{
    uint32_t lose = atomic_load_explicit(&w->fs->to_lose, memory_order_relaxed);
    bool timed = atomic_load_explicit(&w->server->answered, memory_order_relaxed) % TIMED_EACH == 0;

    if (w->idle_since)
        busy(w);
    if (lose && atomic_compare_exchange_strong(&w->fs->to_lose, &lose, lose - 1))
        return false;
    if (!sane(w->fs, r)) {
        /* The mailbox of a bad request may be invalid too. */
        if (r->stream < w->fs->view.n_streams)
            answer(w, r, -EINVAL);
        return true;
    }
    want_line(mailbox(w->fs, r));
    enter(w);
    if (!(w->server->aio && (r->op == VARVE_G_READ || r->op == VARVE_G_READ_PAGE) &&
          begin_read(w, r)))
        answer(w, r, timed ? carry_out_timed(w, r) : carry_out(w, r));
    leave(w);
    return true;
}

/* Serves the next request of the queue. `ret_on`: false if the server has to end. Returns true if there was one. */
static bool serve_queue(struct work *w, bool *ret_on)
{
    struct varve_g_request r;
    int there;

    if (w->ticket == w->end)
        draw(w);
    there = look(w, &r);
    if (there == 0) {
        w->waited = true;
        adopt(w);
        return false;
    }
    drawn_done(w, there > 0 && r.bytes <= SMALL_BYTES);
    if (w->ticket < w->end)
        want_line(&w->fs->ring[w->ticket & (w->fs->view.n_ring - 1)]);
    if (there > 0)
        *ret_on = serve_one(w, &r);
    return true;
}

/* The same with slots: looks at each once. */
static bool serve_slots(struct work *w, bool *ret_on)
{
    const struct varve_gfs *v = &w->fs->view;
    uint32_t parts = (uint32_t)vv_div_up(v->readahead_bytes, v->split_bytes);
    uint64_t n = v->n_streams, first = n * w->server->index / w->server->of,
             last = n * (w->server->index + 1) / w->server->of;
    struct varve_g_request r;
    bool any = false;

    for (uint64_t s = first; s < last; s++)
        for (uint32_t i = 0; i < 2 * parts; i++) {
            uint32_t slot = (uint32_t)s * VARVE_G_PARTS + i / parts * 8 + i % parts;

            if (w->under_way == VVI_GPUFILE_DEPTH)
                return any;
            if (!look_slot(w, slot, &r))
                continue;
            any = true;
            *ret_on = serve_one(w, &r);
            if (!*ret_on)
                return any;
        }
    return any;
}

static void server_loop(struct work *w)
{
    bool on = true;

    while (on) {
        bool there = false;

        if (w->under_way < VVI_GPUFILE_DEPTH)
            there =
                w->fs->opts.queue == VV_GQUEUE_SLOTS ? serve_slots(w, &on) : serve_queue(w, &on);
        if (w->under_way)
            end_reads(w, there ? 0 : (int64_t)REST_NS / 2);
        if (there)
            w->idle_since = 0;
        else if (atomic_load_explicit(&w->fs->stopping, memory_order_relaxed))
            on = false;
        else if (w->under_way == 0)
            rest(w);
    }
    while (w->under_way)
        end_reads(w, -1);
}

static void *server_main(void *arg)
{
    struct vvi_gpufile_server *s = arg;
    struct work w = {.server = s, .fs = s->fs, .batch = 1};

    for (int i = 0; i < VVI_GPUFILE_DEPTH; i++) {
        w.jobs[i].next = w.free;
        w.free = &w.jobs[i];
    }
    vv_thread_sharpen();
    server_loop(&w);
    vv_mutex_lock(&s->fs->lock);
    leave_locked(&w);
    vv_mutex_unlock(&s->fs->lock);
    return NULL;
}

void vvi_gpufile_servers_pass(struct varve_gpufs *fs)
{
    for (uint32_t i = 0; i < fs->n_servers; i++) {
        uint64_t turn = atomic_load(&fs->servers[i].turn);

        while (turn % 2 && atomic_load(&fs->servers[i].turn) == turn)
            sched_yield();
    }
}

int vvi_gpufile_servers_start(struct varve_gpufs *fs, uint32_t n)
{
    int rc = 0;

    atomic_store(&fs->stopping, false);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct vvi_gpufile_server *s = &fs->servers[i];

        *s = (struct vvi_gpufile_server){.fs = fs, .index = i, .of = n};
        if (fs->opts.io == VARVE_GIO_URING)
            rc = vv_aio_new(fs->os, VV_AIO_URING, VVI_GPUFILE_DEPTH, &s->aio);
        if (rc == -EOPNOTSUPP)
            rc = -ENOTSUP;
        if (rc == 0)
            rc = vv_thread_start(&s->thread, server_main, s);
        if (rc == 0) {
            vv_mutex_lock(&fs->lock);
            fs->n_servers = i + 1;
            vv_mutex_unlock(&fs->lock);
        } else {
            vv_aio_free(s->aio);
        }
    }
    __atomic_store_n(&fs->host->servers, fs->n_servers, __ATOMIC_RELEASE);
    return rc;
}

void vvi_gpufile_servers_stop(struct varve_gpufs *fs)
{
    uint32_t n = fs->n_servers;

    atomic_store(&fs->stopping, true);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(fs->servers[i].thread, NULL);
        vv_aio_free(fs->servers[i].aio);
    }
    vv_mutex_lock(&fs->lock);
    for (uint32_t i = 0; i < n; i++) {
        fs->past[0] += fs->servers[i].answered;
        fs->past[1] += fs->servers[i].failed;
        fs->past[2] += fs->servers[i].read_bytes;
        fs->past[3] += fs->servers[i].written_bytes;
    }
    fs->n_servers = 0;
    vv_mutex_unlock(&fs->lock);
    /* After the last answer: a group that sees no servers checks its mailbox once more. */
    __atomic_store_n(&fs->host->servers, 0, __ATOMIC_RELEASE);
}

int varve_gpufs_start(struct varve_gpufs *fs, uint32_t servers)
{
    int rc;

    if (!fs || servers > VVI_GPUFILE_SERVERS_MAX)
        return vvi_gpufile_fail(fs, "gpufs_start", -EINVAL, "%s",
                                fs ? "servers are 64 at most" : "no file system");
    vv_mutex_lock(&fs->map_lock);
    rc = fs->n_servers ? -EALREADY
                       : vvi_gpufile_servers_start(fs, servers ? servers : fs->opts.servers);
    if (rc && rc != -EALREADY)
        vvi_gpufile_servers_stop(fs);
    vv_mutex_unlock(&fs->map_lock);
    if (rc == -EALREADY)
        return vvi_gpufile_fail(fs, "gpufs_start", rc, "the servers run already");
    return rc ? vvi_gpufile_fail(fs, "gpufs_start", rc, "servers: %s", vv_strerror(rc)) : 0;
}

int varve_gpufs_stop(struct varve_gpufs *fs)
{
    if (!fs)
        return vvi_gpufile_fail(fs, "gpufs_stop", -EINVAL, "no file system");
    vv_mutex_lock(&fs->map_lock);
    vvi_gpufile_servers_stop(fs);
    vv_mutex_unlock(&fs->map_lock);
    return 0;
}
