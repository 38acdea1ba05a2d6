/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace rings.
 *
 * A ring has one writer, the thread that owns it, and any number of readers. Slot i % capacity
 * holds record number i + 1 when its seq word says i + 1. The writer invalidates seq, stores the
 * other words, then stores the new seq; a reader takes a record only if seq is the expected number
 * before and after it read the words. All words are atomics: the stores of the words are releases
 * and their loads acquires, so that a reader that sees one new word also sees that seq was
 * invalidated before it. (Fences would do the same with fewer words, but ThreadSanitizer does not
 * model them.)
 *
 * Rings are never freed. They are in a list, and a ring whose thread has ended is reused by the next thread that needs
 * one, so that their number is the largest number of threads that traced at once. The list's lock orders the change of
 * owner. A reset does not clear the rings; it stores in each the number of the first record that counts.
 *
 * A trace file drains the rings from where it began or stopped last. It does not block the writers: a writer that wraps
 * around overwrites records that were not taken yet, and they count as lost. A thread announces itself (its id and name)
 * with its first event after a trace file was begun.
 *
 * A forked child has the rings but none of the other threads, and records nothing until it turns tracing on itself.
 */
#include "trace/trace_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread_group.h"

enum { WORD_SEQ, WORD_TIME, WORD_KIND, WORD_ARG };

struct slot {
    _Atomic uint64_t word[WORD_ARG + VV_TRACE_ARGS];
};

_Static_assert(sizeof(struct slot) == sizeof(struct vv_trace_record), "slots hold records");

struct ring {
    struct ring *next; /* immutable once listed */
    size_t mask;       /* immutable */
    bool owned;        /* Synchronization: rings.lock */
    uint64_t drained;  /* records taken or skipped. Owner: the thread that drains the rings, or that
                          begins a trace file */
    _Atomic uint64_t base; /* relaxed, under rings.lock: records before this number were reset */
    _Atomic uint64_t
        head; /* records written; stored by the owner (release), loaded by readers (acquire) */
    struct slot slots[];
};

static struct {
    struct vv_mutex lock;
    struct ring *list;          /* Synchronization: lock */
    size_t capacity;            /* Synchronization: lock */
    pthread_key_t key;          /* immutable after init */
    bool key_valid;             /* immutable after init */
    bool memory_on, file_on;    /* the consumers of events. Synchronization: lock */
    _Atomic uint64_t dropped;   /* relaxed: events that found no memory for a ring */
    _Atomic uint64_t undrained; /* the same, since the last drain of the trace file */
} rings;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Owner: this thread. */
static _Thread_local struct ring *my_ring;
static _Thread_local uint32_t my_thread;
static _Thread_local uint32_t my_epoch;
static _Thread_local const char *my_name;

_Atomic bool vvi_trace_on;

/* Number of trace files begun. Synchronization: relaxed; a thread that sees it late announces itself with a later
 * event. */
static _Atomic uint32_t epoch;
static _Atomic uint32_t contexts;

static const struct {
    const char *name, *arg[VV_TRACE_ARGS];
} kinds[VV_TRACE_KIND_COUNT] = {
#define X(kind, name, a, b, c, d, e) [VV_TRACE_##kind] = {name, {a, b, c, d, e}},
    VV_TRACE_KINDS(X)
#undef X
};

const char *vv_trace_kind_name(uint32_t kind)
{
    return kind < VV_TRACE_KIND_COUNT ? kinds[kind].name : "?";
}

const char *vv_trace_arg_name(uint32_t kind, unsigned arg)
{
    return kind < VV_TRACE_KIND_COUNT && arg < VV_TRACE_ARGS ? kinds[kind].arg[arg] : "";
}

const char *vv_trace_call_name(uint32_t call)
{
    static const char *const names[] = {
#define X(call, name, waits) name,
        VV_TRACE_CALLS(X)
#undef X
    };
    return call < VV_ARRAY_SIZE(names) ? names[call] : "?";
}

void vv_trace_thread(const char *name)
{
    my_name = name;
    vv_thread_group_name(name);
}

uint32_t vv_trace_new_context(void)
{
    return atomic_fetch_add_explicit(&contexts, 1, memory_order_relaxed) + 1;
}

/* Called at the end of a thread that traced: its ring may be reused. */
static void give_up_ring(void *arg)
{
    struct ring *ring = arg;

    vv_mutex_lock(&rings.lock);
    ring->owned = false;
    vv_mutex_unlock(&rings.lock);
    my_ring = NULL;
}

static void update_on_locked(void)
{
    atomic_store_explicit(&vvi_trace_on, rings.memory_on || rings.file_on, memory_order_relaxed);
}

/* In the child: a thread of the parent may have held the lock. The list is consistent at any time. */
static void after_fork_child(void)
{
    vv_mutex_init(&rings.lock, "trace rings", VV_RANK_TRACE);
    rings.memory_on = rings.file_on = false;
    update_on_locked();
    my_thread = (uint32_t)gettid();
}

static void init(void)
{
    vv_mutex_init(&rings.lock, "trace rings", VV_RANK_TRACE);
    (void)pthread_atfork(NULL, NULL, after_fork_child);
    rings.capacity = VV_TRACE_RING_DEFAULT;
    rings.key_valid = pthread_key_create(&rings.key, give_up_ring) == 0;
}

static struct ring *take_ring(void)
{
    struct ring *ring;

    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    for (ring = rings.list; ring; ring = ring->next)
        if (!ring->owned && ring->mask + 1 == rings.capacity)
            break;
    if (!ring) {
        ring = calloc(1, sizeof(*ring) + rings.capacity * sizeof(ring->slots[0]));
        if (ring) {
            ring->mask = rings.capacity - 1;
            ring->next = rings.list;
            rings.list = ring;
        }
    }
    if (ring)
        ring->owned = true;
    vv_mutex_unlock(&rings.lock);
    if (!ring)
        return NULL;
    /* Without a key, or if this fails, the ring is not reused after the thread has ended: that only costs memory. */
    if (rings.key_valid)
        pthread_setspecific(rings.key, ring);
    my_thread = (uint32_t)gettid();
    my_ring = ring;
    return ring;
}

/* Records the id and name of the calling thread. */
static void announce(uint32_t now)
{
    char name[32] = "";

    my_epoch = now; /* set first: the event written here must not announce it again */
    if (!my_name)
        (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    vvi_trace_write(VV_TRACE_THREAD, vv_trace_name(my_name ? my_name : name),
                    my_name ? VV_TRACE_ROLE_LIBRARY : VV_TRACE_ROLE_APP, 0, 0, 0);
}

static inline void write_at(uint64_t time_ns, enum vv_trace_kind kind,
                            const uint64_t arg[VV_TRACE_ARGS])
{
    uint32_t now_epoch = atomic_load_explicit(&epoch, memory_order_relaxed);
    if (__builtin_expect(my_epoch != now_epoch, 0))
        announce(now_epoch);
    struct ring *ring = my_ring ? my_ring : take_ring();
    struct slot *slot;
    uint64_t n;

    if (!ring) {
        atomic_fetch_add_explicit(&rings.dropped, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&rings.undrained, 1, memory_order_relaxed);
        return;
    }
    n = atomic_load_explicit(&ring->head, memory_order_relaxed);
    slot = &ring->slots[n & ring->mask];
    atomic_store_explicit(&slot->word[WORD_SEQ], 0, memory_order_relaxed);
    /* Each release orders the invalidation before it; pairs with the acquires in read_slot. */
    atomic_store_explicit(&slot->word[WORD_TIME], time_ns, memory_order_release);
    atomic_store_explicit(&slot->word[WORD_KIND], (uint64_t)my_thread << 32 | (uint32_t)kind,
                          memory_order_release);
    for (int i = 0; i < VV_TRACE_ARGS; i++)
        atomic_store_explicit(&slot->word[WORD_ARG + i], arg[i], memory_order_release);
    /* The record is complete; pairs with the first load in read_slot. */
    atomic_store_explicit(&slot->word[WORD_SEQ], n + 1, memory_order_release);
    atomic_store_explicit(&ring->head, n + 1, memory_order_release);
}

void vvi_trace_write(enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                     uint64_t e)
{
    const uint64_t arg[VV_TRACE_ARGS] = {a, b, c, d, e};

    write_at(vv_now_ns(), kind, arg);
}

void vv_trace_at(uint64_t time_ns, enum vv_trace_kind kind, const uint64_t arg[VV_TRACE_ARGS])
{
    if (vv_trace_enabled())
        write_at(time_ns, kind, arg);
}

/* False if record `n` (from 0) was overwritten, wholly or in part. */
static bool read_slot(struct ring *ring, uint64_t n, struct vv_trace_record *ret_record)
{
    struct slot *slot = &ring->slots[n & ring->mask];
    struct vv_trace_record r;
    uint64_t kind;

    r.seq = atomic_load_explicit(&slot->word[WORD_SEQ], memory_order_acquire);
    if (r.seq != n + 1)
        return false;
    r.time_ns = atomic_load_explicit(&slot->word[WORD_TIME], memory_order_acquire);
    kind = atomic_load_explicit(&slot->word[WORD_KIND], memory_order_acquire);
    for (int i = 0; i < VV_TRACE_ARGS; i++)
        r.arg[i] = atomic_load_explicit(&slot->word[WORD_ARG + i], memory_order_acquire);
    if (atomic_load_explicit(&slot->word[WORD_SEQ], memory_order_relaxed) != r.seq)
        return false;
    r.kind = (uint32_t)kind;
    r.thread = (uint32_t)(kind >> 32);
    *ret_record = r;
    return true;
}

int vvi_trace_by_time(const void *x, const void *y)
{
    const struct vv_trace_record *a = x, *b = y;

    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

int vv_trace_snapshot(struct vv_trace_log *ret_log)
{
    struct vv_trace_log log = {.lost = 0};
    struct ring *ring;
    size_t room = 0;

    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    for (ring = rings.list; ring; ring = ring->next)
        room += ring->mask + 1;
    log.records = malloc((room ? room : 1) * sizeof(log.records[0]));
    if (!log.records) {
        vv_mutex_unlock(&rings.lock);
        return -ENOMEM;
    }
    for (ring = rings.list; ring; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t n = atomic_load_explicit(&ring->base, memory_order_relaxed);

        if (head > ring->mask + 1 && n < head - (ring->mask + 1)) {
            log.lost += head - (ring->mask + 1) - n;
            n = head - (ring->mask + 1);
        }
        for (; n < head; n++) {
            if (read_slot(ring, n, &log.records[log.count]))
                log.count++;
            else
                log.lost++;
        }
    }
    vv_mutex_unlock(&rings.lock);
    log.lost += atomic_load_explicit(&rings.dropped, memory_order_relaxed);
    qsort(log.records, log.count, sizeof(log.records[0]), vvi_trace_by_time);
    *ret_log = log;
    return 0;
}

void vv_trace_log_fini(struct vv_trace_log *log)
{
    if (!log)
        return;
    free(log->records);
    *log = (struct vv_trace_log){0};
}

void vv_trace_reset(void)
{
    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    for (struct ring *ring = rings.list; ring; ring = ring->next)
        atomic_store_explicit(&ring->base, atomic_load_explicit(&ring->head, memory_order_acquire),
                              memory_order_relaxed);
    atomic_store_explicit(&rings.dropped, 0, memory_order_relaxed);
    vv_mutex_unlock(&rings.lock);
}

void vv_trace_start(size_t ring_records)
{
    size_t capacity = 1;

    if (ring_records == 0)
        ring_records = VV_TRACE_RING_DEFAULT;
    while (capacity < ring_records && capacity < (SIZE_MAX >> 8))
        capacity <<= 1;
    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    rings.capacity = capacity;
    rings.memory_on = true;
    update_on_locked();
    vv_mutex_unlock(&rings.lock);
}

void vv_trace_stop(void)
{
    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    rings.memory_on = false;
    update_on_locked();
    vv_mutex_unlock(&rings.lock);
}

/* ---- for a trace file ---- */

void vvi_trace_file_wants(bool on)
{
    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    for (struct ring *ring = rings.list; ring && on; ring = ring->next)
        ring->drained = atomic_load_explicit(&ring->head, memory_order_acquire);
    atomic_store_explicit(&rings.undrained, 0, memory_order_relaxed);
    rings.file_on = on;
    if (on)
        atomic_fetch_add_explicit(&epoch, 1, memory_order_relaxed);
    update_on_locked();
    vv_mutex_unlock(&rings.lock);
}

static size_t drain_ring(struct ring *ring, struct vv_trace_record *ret_records, size_t max,
                         uint64_t *lost)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t n = ring->drained;
    size_t count = 0;

    if (head - n > ring->mask + 1) {
        *lost += head - (ring->mask + 1) - n;
        n = head - (ring->mask + 1);
    }
    for (; n < head && count < max; n++) {
        if (read_slot(ring, n, &ret_records[count]))
            count++;
        else
            ++*lost;
    }
    ring->drained = n;
    return count;
}

size_t vvi_trace_drain(struct vv_trace_record *ret_records, size_t max, uint64_t *lost)
{
    static struct ring *last; /* where the previous drain stopped. Owner: the thread that drains */
    struct ring *list, *ring;
    size_t count = 0;

    pthread_once(&once, init);
    vv_mutex_lock(&rings.lock);
    list = rings.list;
    vv_mutex_unlock(&rings.lock);
    /* Rings are never unlisted. Drain them in turn, so that a thread that writes without end does not
     * starve the others. */
    ring = last && last->next ? last->next : list;
    for (struct ring *first = ring; ring && count < max;) {
        count += drain_ring(ring, ret_records + count, max - count, lost);
        last = ring;
        ring = ring->next ? ring->next : list;
        if (ring == first)
            break;
    }
    *lost += atomic_exchange_explicit(&rings.undrained, 0, memory_order_relaxed);
    return count;
}
