/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record belongs to a path. It has the generation that the last check found, the time of that check, and whether a
 * thread is working on the path. One thread works on a path at a time. Other threads that ask for it wait for
 * that one and then look at the cache themselves. They never use its result: a file that it got may be gone, and a
 * file that it could not get may be there.
 *
 * Mixtures of two generations must not get into the cache. So the generation is taken from the open file before the
 * first byte is read and again after the last one, and must be the same. A file that is changed twice within one tick
 * of the file system's times, without a change of its size, looks the same; so no file is read before the tick of its
 * last change is over. And a write sets the time when it begins: it changes bytes for as long as it lasts, but not the
 * time. Its duration is unknown, but a write of many bytes takes long, and so does reading them. So a copy is kept
 * only if the last change was older, when reading began, than WRITE_TIMES the duration of the read. A file that is too
 * young is read again when it is old enough, if that is soon; otherwise the caller reads the shared file system. (All
 * this as far as the clocks of this node and of the file system agree. A store through a mapping sets no time of its
 * own at all; docs/dataset.md.)
 *
 * A record takes some two hundred bytes and the path, and programs may ask for any number of paths. A record without
 * information (there was no such file) is freed by the last thread that uses it. Of the others at least `records` are
 * kept, and twice as many as there are files in the cache. Above that each new record moves a clock hand over the
 * table. It removes records that no thread uses, that were not requested since it last passed them, and whose
 * file would have to be checked anyway. (Files that never change need no check: after a removal they are checked
 * once more on request.) A record of a changed file stays for as long as older reports about it may arrive.
 *
 * owner->lock protects records, is never held across a call of the cache or a system call, and so nests with no
 * other lock.
 */
#include "dataset/owner.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/lock.h"
#include "dataset/paths.h"

#define READ_BYTES ((size_t)1 << 20)
#define TRIES      3
#define RECORDS    8192
#define STEP       8 /* chains that the clock hand passes for one new record */
/* Greatest age of a report of another node where files never change: a copy takes a minute at most. */
#define NEWS_NS (300 * VV_NS_PER_S)

/* Longest time in which two changes may get the same time: kernels take times from a clock that ticks a hundred times a
 * second or more; some file systems keep whole seconds. */
#define TICK_NS       (20 * VV_NS_PER_MS)
#define SECOND_NS     (VV_NS_PER_S + TICK_NS)
#define WRITE_TIMES   4
#define UNSURE_NS     VV_NS_PER_S /* validity of a check that is not sure */
#define SETTLE_MAX_NS VV_NS_PER_S /* longest wait for a file to be old enough */

struct known {
    struct vvi_path path;
    /* Synchronization: owner->lock. */
    unsigned users;    /* threads that have a pointer to it */
    bool asked;        /* since the clock hand passed it */
    bool working;      /* a thread works on it */
    uint64_t bringing; /* the size of the file that the working thread reads; 0: none */
    bool looked;       /* the next two are valid */
    uint64_t looked_ns;
    uint64_t doubts; /* value of the owner's counter when the check was sure */
    struct vv_shared_stat stat;
    struct vv_dataset_gen young; /* was read too short a time after its last change ... */
    uint64_t young_ns;           /* ... and is old enough from then on, by vv_now_ns; 0: none */
    uint64_t changes;            /* number of invalidations ... */
    uint64_t changed_ns;         /* ... and time of the last one */
    unsigned holds;              /* changes that have begun and not ended ... */
    uint64_t held_ns;            /* ... which expire at this time */
    struct known **same_at, *same_next; /* files with about the same inode */
};

#define INODES ((size_t)1 << 16)

struct vv_owner {
    struct vv_owner_opts opts; /* immutable */
    struct vv_mutex lock;
    struct vv_cond ended; /* a thread has stopped working on a path */
    atomic_bool stop; /* Synchronization: relaxed; a thread that sees it late reads a little more */
    /* Synchronization: lock. */
    struct vvi_paths records;
    uint64_t doubts;      /* number of times that nodes had been out of reach ... */
    uint64_t sure_ns;     /* ... and the time from which checks are sure again */
    size_t hand;          /* the clock hand: the chain to look at next */
    struct known **inode; /* INODES lists: a file may be changed under another name */
    struct vv_owner_stats stats;
};

int vv_owner_new(const struct vv_owner_opts *opts, struct vv_owner **ret_owner)
{
    struct vv_owner *o = calloc(1, sizeof(*o));

    if (!o)
        return -ENOMEM;
    o->opts = *opts;
    o->inode = calloc(INODES, sizeof(struct known *));
    if (!o->inode) {
        free(o);
        return -ENOMEM;
    }
    if (!o->opts.now_ns)
        o->opts.now_ns = vv_now_ns;
    if (o->opts.records == 0)
        o->opts.records = RECORDS;
    vv_mutex_init(&o->lock, "owner", VV_RANK_STORE);
    vv_cond_init(&o->ended);
    *ret_owner = o;
    return 0;
}

static void free_known(struct vvi_path *e)
{
    vv_assert(((struct known *)e)->users == 0);
    free(e);
}

void vv_owner_free(struct vv_owner *o)
{
    if (!o)
        return;
    vvi_paths_fini(&o->records, free_known);
    vv_cond_fini(&o->ended);
    vv_mutex_fini(&o->lock);
    free(o->inode);
    free(o);
}

/* ---- records ---- */

static bool is_for_good(const struct vv_owner *o, const struct known *k)
{
    return o->opts.revalidate_ns == 0 && k->doubts == o->doubts;
}

static bool is_fresh(const struct vv_owner *o, const struct known *k, uint64_t now_ns)
{
    uint64_t counts_ns = o->opts.revalidate_ns ? o->opts.revalidate_ns : UNSURE_NS;

    return k->looked && (is_for_good(o, k) || now_ns - k->looked_ns < counts_ns);
}

/* True while a change is under way. */
static bool is_held(const struct known *k, uint64_t now_ns)
{
    return k->holds > 0 && now_ns < k->held_ns;
}

static void forget_inode(struct known *k)
{
    if (!k->same_at)
        return;
    *k->same_at = k->same_next;
    if (k->same_next)
        k->same_next->same_at = k->same_at;
    k->same_at = NULL;
}

static struct known **same_inode(const struct vv_owner *o, uint64_t inode)
{
    return &o->inode[inode % INODES];
}

static void know_stat_locked(struct vv_owner *o, struct known *k, const struct vv_shared_stat *st)
{
    struct known **first = same_inode(o, st->gen.inode);

    k->stat = *st;
    forget_inode(k);
    k->same_next = *first;
    k->same_at = first;
    if (*first)
        (*first)->same_at = &k->same_next;
    *first = k;
}

static void remove_locked(struct vv_owner *o, struct known *k)
{
    forget_inode(k);
    vvi_paths_remove(&o->records, &k->path);
    free(k);
}

/* The clock hand passes this record. */
static void pass_by(void *user, struct vvi_path *e)
{
    struct vv_owner *o = user;
    struct known *k = (struct known *)e;
    uint64_t now_ns = o->opts.now_ns();
    uint64_t news_ns = o->opts.revalidate_ns ? o->opts.revalidate_ns : NEWS_NS;

    if (k->users > 0 || is_held(k, now_ns) ||
        (k->changes > 0 && now_ns - k->changed_ns < news_ns) ||
        (o->opts.revalidate_ns != 0 && is_fresh(o, k, now_ns)))
        return;
    if (!k->asked)
        remove_locked(o, k);
    else
        k->asked = false;
}

/* Finds or makes the record of a path. NULL: out of memory. */
static struct known *know_locked(struct vv_owner *o, const char *path)
{
    struct known *k = vvi_paths_find(&o->records, path);

    if (!k) {
        if (o->records.table.n >= VV_MAX(o->opts.records, 2 * vv_dataset_files(o->opts.cache)))
            o->hand = vvi_paths_step(&o->records, o->hand, STEP, pass_by, o);
        k = calloc(1, sizeof(*k));
        if (!k || vvi_paths_add(&o->records, path, &k->path) < 0) {
            free(k);
            return NULL;
        }
    }
    k->asked = true;
    return k;
}

/* Ends this thread's use of a record. */
static void put_locked(struct vv_owner *o, struct known *k)
{
    vv_assert(k->users > 0);
    if (--k->users == 0 && !k->looked && k->changes == 0)
        remove_locked(o, k);
}

static bool same_gen(const struct vv_dataset_gen *a, const struct vv_dataset_gen *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode;
}

/* The value for known.doubts: the owner's counter if a check made at `looked_ns` is sure, otherwise one less.
 * `early_ns`: by how much earlier than this node the node that checked may have begun to doubt. */
static uint64_t sure_since_locked(const struct vv_owner *o, uint64_t looked_ns, uint64_t early_ns)
{
    bool sure = o->doubts == 0 || (int64_t)(looked_ns + early_ns - o->sure_ns) >= 0;

    return o->doubts - !sure;
}

/* Records the result of a check that began at `begun_ns`, when the path had `changes`. */
static void note(struct vv_owner *o, struct known *k, const struct vv_shared_stat *st,
                 uint64_t begun_ns, uint64_t changes)
{
    vv_mutex_lock(&o->lock);
    o->stats.changed += k->looked && !same_gen(&k->stat.gen, &st->gen);
    know_stat_locked(o, k, st);
    k->looked_ns = begun_ns - st->age_ns;
    k->doubts = sure_since_locked(o, k->looked_ns, 0);
    /* If it was invalidated since, or is being changed, the result may be outdated. */
    k->looked = k->changes == changes && !is_held(k, o->opts.now_ns());
    vv_mutex_unlock(&o->lock);
}

/* ---- bringing ---- */

struct order {
    const char *path;
    uint64_t next_use;
    bool ahead;
    uint64_t limit; /* a larger file is not brought: -EINPROGRESS; 0: no limit */
};

/* Adds to the figures of files under way: their number, their bytes, and the bytes that are here. */
static void progress(struct vv_owner *o, int64_t files, int64_t bytes, int64_t done)
{
    vv_mutex_lock(&o->lock);
    o->stats.coming += (uint64_t)files;
    o->stats.coming_bytes += (uint64_t)bytes;
    o->stats.coming_done += (uint64_t)done;
    vv_mutex_unlock(&o->lock);
}

/* Reads all of an open file into a fill. -EAGAIN: its length has changed. */
static int copy(struct vv_owner *o, intptr_t file, uint64_t size, struct vv_dataset_fill *fill)
{
    const struct vv_shared *s = o->opts.shared;
    char *buf = malloc(READ_BYTES);
    uint64_t done = 0;
    int rc = buf ? 0 : -ENOMEM;

    progress(o, 1, (int64_t)size, 0);
    while (rc == 0 && done < size) {
        int64_t n = -ESHUTDOWN;

        if (!atomic_load_explicit(&o->stop, memory_order_relaxed))
            n = s->read(s, file, buf, (size_t)VV_MIN(size - done, READ_BYTES), done);
        if (n <= 0)
            rc = n < 0 ? (int)n : -EAGAIN;
        else
            rc = vv_dataset_write(fill, buf, (size_t)n);
        done += n > 0 ? (uint64_t)n : 0;
        progress(o, 0, 0, VV_MAX(n, INT64_C(0)));
    }
    progress(o, -1, -(int64_t)size, -(int64_t)done);
    free(buf);
    return rc;
}

/* Time until a file is old enough for a read that takes `read_ns`; 0: it is. `ago_ns`: how long ago that read
 * began. */
static uint64_t unsettled_ns(const struct vv_dataset_gen *gen, uint64_t read_ns, uint64_t ago_ns)
{
    int64_t tick_ns = (int64_t)(gen->ctime_ns % VV_NS_PER_S == 0 ? SECOND_NS : TICK_NS);
    int64_t need_ns = tick_ns + (int64_t)VV_MIN(WRITE_TIMES * read_ns, UINT64_MAX / 8), age_ns;
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    age_ns = (int64_t)((uint64_t)ts.tv_sec * VV_NS_PER_S + (uint64_t)ts.tv_nsec - ago_ns -
                       gen->ctime_ns);
    /* If the time lies far in the future, the clocks do not agree: do not wait. */
    return age_ns >= need_ns || age_ns < -tick_ns ? 0 : (uint64_t)(need_ns - age_ns);
}

/* Waits until the file that is open may be read. -EAGAIN: it has changed meanwhile. */
static int let_settle(struct vv_owner *o, intptr_t file, const struct vv_shared_stat *st)
{
    const struct vv_shared *s = o->opts.shared;
    uint64_t wait_ns = unsettled_ns(&st->gen, 0, 0);
    struct vv_shared_stat after;
    int rc;

    if (wait_ns == 0 || st->whole)
        return 0;
    vv_sleep_until_ns(vv_now_ns() + wait_ns);
    rc = s->look_again(s, file, &after);
    return rc < 0 ? rc : same_gen(&st->gen, &after.gen) ? 0 : -EAGAIN;
}

/* Result of one attempt. */
struct attempt {
    bool brought;
    bool young;       /* it was read, but is not kept, because it had changed shortly before ... */
    uint64_t wait_ns; /* ... and may be read again after this time */
};

/* Brings an open file, unless it is here. */
static int bring_open(struct vv_owner *o, const struct order *order, intptr_t file,
                      const struct vv_shared_stat *st, struct attempt *a)
{
    const struct vv_dataset_gen *gen = &st->gen;
    struct vv_dataset_want want = {order->path, *gen, order->next_use, order->ahead, false};
    const struct vv_shared *s = o->opts.shared;
    struct vv_shared_stat after;
    struct vv_dataset_fill *fill;
    uint64_t begun_ns, took_ns;
    int rc = vv_dataset_begin(o->opts.cache, &want, &fill);

    if (rc < 0)
        return rc == -EEXIST ? 0 : rc;
    begun_ns = vv_now_ns();
    rc = copy(o, file, gen->size, fill);
    if (rc == 0)
        rc = s->look_again(s, file, &after);
    if (rc == 0 && !same_gen(gen, &after.gen))
        rc = -EAGAIN;
    took_ns = vv_now_ns() - begun_ns;
    if (rc == 0 && !st->whole) {
        /* Its age at the beginning of the read decides. */
        a->young = unsettled_ns(gen, took_ns, took_ns) > 0;
        a->wait_ns = unsettled_ns(gen, took_ns, 0);
        rc = a->young ? -EAGAIN : 0;
    }
    if (rc < 0) {
        vv_dataset_abort(fill);
        return rc;
    }
    vv_mutex_lock(&o->lock);
    o->stats.fetches++;
    o->stats.fetched_bytes += gen->size;
    vv_mutex_unlock(&o->lock);
    rc = vv_dataset_commit(fill, NULL);
    a->brought = rc == 0;
    return rc;
}

/* True if this generation was read before, and is still too young to be read again. */
static bool is_young(struct vv_owner *o, const struct known *k, const struct vv_dataset_gen *gen)
{
    bool young;

    vv_mutex_lock(&o->lock);
    young = k->young_ns != 0 && same_gen(&k->young, gen) && vv_now_ns() < k->young_ns;
    vv_mutex_unlock(&o->lock);
    return young;
}

/* Waits until the file is old enough. False: that takes too long. */
static bool wait_for_age(struct vv_owner *o, struct known *k, const struct vv_dataset_gen *gen,
                         uint64_t wait_ns)
{
    uint64_t until_ns = vv_now_ns() + wait_ns;

    vv_mutex_lock(&o->lock);
    k->young = *gen;
    k->young_ns = until_ns;
    vv_mutex_unlock(&o->lock);
    if (wait_ns > SETTLE_MAX_NS)
        return false;
    vv_sleep_until_ns(until_ns);
    return true;
}

/* Publishes the size, so that other threads see that they need not wait. -EAGAIN: the file is too young, do not read.
 * */
static int begin_reading(struct vv_owner *o, struct known *k, const struct order *order,
                         const struct vv_dataset_gen *gen)
{
    if (is_young(o, k, gen))
        return -EAGAIN;
    if (order->limit && gen->size > order->limit)
        return -EINPROGRESS;
    vv_mutex_lock(&o->lock);
    k->bringing = gen->size;
    vv_mutex_unlock(&o->lock);
    return 0;
}

static int bring(struct vv_owner *o, struct known *k, const struct order *order)
{
    const struct vv_shared *s = o->opts.shared;
    int rc = -EAGAIN;

    for (int i = 0; i < TRIES && rc == -EAGAIN; i++) {
        uint64_t begun_ns = o->opts.now_ns(), changes;
        struct attempt a = {false, false, 0};
        struct vv_shared_stat st;
        intptr_t file;

        vv_mutex_lock(&o->lock);
        changes = k->changes;
        vv_mutex_unlock(&o->lock);
        rc = s->open(s, order->path, &file, &st);
        if (rc < 0)
            break;
        rc = begin_reading(o, k, order, &st.gen);
        if (rc == -EAGAIN) {
            s->close(s, file);
            break;
        }
        if (rc == 0)
            rc = let_settle(o, file, &st);
        if (rc == 0)
            rc = bring_open(o, order, file, &st, &a);
        s->close(s, file);
        if (rc == 0 || rc == -EINPROGRESS || a.young)
            note(o, k, &st, begun_ns, changes);
        if (a.brought && o->opts.brought)
            o->opts.brought(o->opts.user, order->path, &st);
        if (a.young && !wait_for_age(o, k, &st.gen, a.wait_ns))
            break;
    }
    if (rc == -EFBIG || rc == -ENOSPC) {
        vv_mutex_lock(&o->lock);
        o->stats.passed++;
        vv_mutex_unlock(&o->lock);
    }
    return rc;
}

/* The generation that is cached. -ENOENT: none, or a damaged one. */
static int cached_gen(struct vv_owner *o, const char *path, struct vv_dataset_gen *ret_gen)
{
    int fd, rc = vv_dataset_get(o->opts.cache, path, NULL, &fd, ret_gen);

    if (rc == 0)
        close(fd);
    return rc == -EBADMSG ? -ENOENT : rc;
}

/* Checks that a cached generation is still the file's. 0: yes, or no generation was given; -ESTALE: no. */
static int look(struct vv_owner *o, struct known *k, const char *path,
                const struct vv_dataset_gen *cached)
{
    const struct vv_shared *s = o->opts.shared;
    uint64_t begun_ns = o->opts.now_ns(), changes;
    struct vv_shared_stat st;
    int rc;

    vv_mutex_lock(&o->lock);
    o->stats.looks++;
    changes = k->changes;
    vv_mutex_unlock(&o->lock);
    rc = s->look(s, path, &st);
    if (rc < 0)
        return rc;
    note(o, k, &st, begun_ns, changes);
    return !cached || same_gen(&st.gen, cached) ? 0 : -ESTALE;
}

/* True if the file is gone, or must not be handed out any more. */
static bool is_gone(int rc)
{
    return rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR || rc == -EISDIR || rc == -ELOOP;
}

/* Makes sure that the file's current generation is here. The caller has begun work on the path. Bringing a file
 * checks it as well, so a file that is not here is not checked before. */
static int make_sure(struct vv_owner *o, struct known *k, const struct order *order)
{
    struct vv_dataset_gen cached;
    int rc = cached_gen(o, order->path, &cached);

    if (rc == 0)
        rc = look(o, k, order->path, &cached);
    else if (rc == -ENOENT)
        rc = -ESTALE;
    if (rc == -ESTALE)
        rc = bring(o, k, order);
    if (is_gone(rc))
        (void)vv_dataset_drop(o->opts.cache, order->path);
    return rc;
}

/* Begins to work on a path, or waits for the thread that does. 1: this thread works, and has the record until
 * end_work; 0: another thread did, look again; or an error. */
static int begin_work(struct vv_owner *o, struct known *k, uint64_t limit, uint64_t deadline_ns)
{
    int rc = 0;

    vv_mutex_lock(&o->lock);
    if (!k->working) {
        k->working = true;
        rc = 1;
    } else {
        o->stats.waits++;
        /* The size of a file is known while it is still being read: do not wait for one above the limit. */
        if (limit && k->bringing > limit)
            rc = -EINPROGRESS;
        while (k->working && rc == 0)
            rc = vv_cond_wait_until(&o->ended, &o->lock, deadline_ns);
        if (!k->working && rc != -EINPROGRESS)
            rc = 0;
    }
    if (rc <= 0)
        put_locked(o, k);
    vv_mutex_unlock(&o->lock);
    return rc;
}

/* Ends the work on a path. `rc` is its result. */
static void end_work(struct vv_owner *o, struct known *k, int rc)
{
    vv_mutex_lock(&o->lock);
    k->working = false;
    k->bringing = 0;
    if (is_gone(rc))
        k->looked = false;
    vv_cond_broadcast(&o->ended);
    put_locked(o, k);
    vv_mutex_unlock(&o->lock);
}

/* Finds the record of a path, which is the caller's until begin_work or put. `ret_fresh`: its content is still
 * valid. */
static int look_up(struct vv_owner *o, const char *path, struct known **ret_known, bool *ret_fresh,
                   struct vv_shared_stat *ret_stat)
{
    struct known *k;
    int rc = -ENOMEM;

    vv_mutex_lock(&o->lock);
    k = know_locked(o, path);
    if (k && is_held(k, o->opts.now_ns())) {
        rc = -ETXTBSY;
    } else if (k) {
        k->users++;
        *ret_known = k;
        *ret_fresh = is_fresh(o, k, o->opts.now_ns());
        *ret_stat = k->stat;
        rc = 0;
    }
    vv_mutex_unlock(&o->lock);
    return rc;
}

static void put(struct vv_owner *o, struct known *k)
{
    vv_mutex_lock(&o->lock);
    put_locked(o, k);
    vv_mutex_unlock(&o->lock);
}

/* True if it is here, but large, and would have to be read before it is handed out. */
static bool is_long(const struct vv_owner *o, const char *path, uint64_t limit)
{
    struct vv_dataset_gen gen;
    bool verified;

    return limit && vv_dataset_peek(o->opts.cache, path, &gen, &verified) == 0 && !verified &&
           gen.size > limit;
}

/* The size above which callers do not wait, if they can read the file elsewhere. */
static uint64_t wait_max(const struct vv_owner *o, const char *path)
{
    const struct vv_shared *s = o->opts.shared;

    return s->sole && s->sole(s, path) ? 0 : o->opts.wait_max;
}

static int get(struct vv_owner *o, const char *path, uint64_t limit, uint64_t deadline_ns,
               int *ret_fd, struct vv_shared_stat *ret_stat)
{
    struct order order = {path, VV_DATASET_UNKNOWN, false, limit};
    int rc;

    for (;;) {
        struct vv_shared_stat st;
        struct known *k;
        bool fresh;

        if (is_long(o, path, limit))
            return -EINPROGRESS;
        rc = look_up(o, path, &k, &fresh, &st);
        if (rc < 0)
            return rc;
        if (fresh) {
            rc = vv_dataset_get(o->opts.cache, path, &st.gen, ret_fd, NULL);
            if (rc == 0 && ret_stat)
                *ret_stat = st;
            if (rc != -ENOENT && rc != -ESTALE && rc != -EBADMSG) {
                put(o, k);
                return rc;
            }
        }
        rc = begin_work(o, k, limit, deadline_ns);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        rc = make_sure(o, k, &order);
        if (rc == 0) {
            vv_mutex_lock(&o->lock);
            st = k->stat;
            vv_mutex_unlock(&o->lock);
            rc = vv_dataset_get(o->opts.cache, path, &st.gen, ret_fd, NULL);
            /* It was evicted again, or the disk cannot read it. The file itself exists. */
            if (rc == -ENOENT || rc == -EBADMSG)
                rc = -ENOSPC;
        }
        end_work(o, k, rc);
        if (rc == 0 && ret_stat)
            *ret_stat = st;
        return rc;
    }
}

int vv_owner_get(struct vv_owner *o, const char *path, uint64_t deadline_ns, int *ret_fd,
                 struct vv_shared_stat *ret_stat)
{
    return get(o, path, wait_max(o, path), deadline_ns, ret_fd, ret_stat);
}

int vv_owner_get_large(struct vv_owner *o, const char *path, uint64_t deadline_ns, int *ret_fd,
                       struct vv_shared_stat *ret_stat)
{
    return get(o, path, 0, deadline_ns, ret_fd, ret_stat);
}

void vv_owner_stop(struct vv_owner *o)
{
    if (o)
        atomic_store_explicit(&o->stop, true, memory_order_relaxed);
}

int vv_owner_stat(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                  struct vv_shared_stat *ret_stat)
{
    for (;;) {
        struct vv_shared_stat st;
        struct known *k;
        bool fresh;
        int rc = look_up(o, path, &k, &fresh, &st);

        if (rc < 0)
            return rc;
        if (fresh) {
            put(o, k);
            *ret_stat = st;
            return 0;
        }
        rc = begin_work(o, k, wait_max(o, path), deadline_ns);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        rc = look(o, k, path, NULL);
        if (is_gone(rc))
            (void)vv_dataset_drop(o->opts.cache, path);
        vv_mutex_lock(&o->lock);
        st = k->stat;
        vv_mutex_unlock(&o->lock);
        end_work(o, k, rc);
        if (rc == 0)
            *ret_stat = st;
        return rc;
    }
}

int vv_owner_stat_now(struct vv_owner *o, const char *path, struct vv_shared_stat *ret_stat,
                      uint64_t *ret_age_ns)
{
    uint64_t now_ns = o->opts.now_ns();
    struct known *k;
    int rc = -EAGAIN;

    vv_mutex_lock(&o->lock);
    k = vvi_paths_find(&o->records, path);
    if (k && is_fresh(o, k, now_ns)) {
        *ret_stat = k->stat;
        if (ret_age_ns)
            *ret_age_ns = now_ns - k->looked_ns;
        rc = 0;
    }
    vv_mutex_unlock(&o->lock);
    return rc;
}

int vv_owner_get_now(struct vv_owner *o, const char *path, int *ret_fd,
                     struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns)
{
    struct vv_dataset_gen gen;
    struct vv_shared_stat st;
    uint64_t age_ns;
    bool verified;

    if (vv_owner_stat_now(o, path, &st, &age_ns) < 0 ||
        vv_dataset_peek(o->opts.cache, path, &gen, &verified) < 0 || !verified ||
        !same_gen(&gen, &st.gen) || vv_dataset_get(o->opts.cache, path, &gen, ret_fd, NULL) < 0)
        return -EAGAIN;
    *ret_stat = st;
    if (ret_age_ns)
        *ret_age_ns = age_ns;
    return 0;
}

void vv_owner_show(struct vv_owner *o, const char *path, const char *client_path, uint64_t dev)
{
    uint64_t now_ns = o->opts.now_ns(), until_ns = UINT64_MAX, doubts;
    struct vv_shared_stat st;
    struct vv_server_stat wire;
    bool fresh = false;
    struct known *k;

    vv_mutex_lock(&o->lock);
    k = vvi_paths_find(&o->records, path);
    if (k) {
        fresh = is_fresh(o, k, now_ns);
        st = k->stat;
        if (!is_for_good(o, k))
            until_ns = k->looked_ns + (o->opts.revalidate_ns ? o->opts.revalidate_ns : UNSURE_NS);
    }
    doubts = o->doubts;
    vv_mutex_unlock(&o->lock);
    if (!fresh)
        return;
    vv_shared_stat_to_wire(&st, &wire);
    wire.dev = wire.dev ? wire.dev : dev;
    /* If it was changed since, the change has dropped it, or will, and its entry in the index too. */
    (void)vv_dataset_show(o->opts.cache, path, &st.gen, client_path, &wire, until_ns, st.direct);
    /* Doubt is recorded before it hides all files: so one of the two threads sees the other. */
    vv_mutex_lock(&o->lock);
    fresh = doubts == o->doubts;
    vv_mutex_unlock(&o->lock);
    if (!fresh)
        vv_dataset_hide(o->opts.cache);
}

void vv_owner_doubt(struct vv_owner *o)
{
    vv_mutex_lock(&o->lock);
    o->doubts++;
    o->sure_ns = o->opts.now_ns() + VV_OWNER_DOUBT_NS;
    vv_mutex_unlock(&o->lock);
    vv_dataset_hide(o->opts.cache);
}

uint64_t vv_owner_changes(struct vv_owner *o, const char *path)
{
    uint64_t changes;
    struct known *k;

    vv_mutex_lock(&o->lock);
    k = vvi_paths_find(&o->records, path);
    changes = k ? k->changes : 0;
    vv_mutex_unlock(&o->lock);
    return changes;
}

/* A report may be from before this machine was started; then its time is before the clock began. */
static bool is_later(uint64_t a_ns, uint64_t b_ns)
{
    return (int64_t)(a_ns - b_ns) > 0;
}

bool vv_owner_heard(struct vv_owner *o, const char *path, uint64_t changes,
                    const struct vv_shared_stat *st, uint64_t age_ns)
{
    uint64_t then_ns = o->opts.now_ns() - age_ns;
    bool counts = false;
    struct known *k;

    if (age_ns >= VV_OWNER_TOO_OLD)
        return false;
    vv_mutex_lock(&o->lock);
    k = know_locked(o, path);
    /* A check from before a change does not count. Its time alone cannot decide that: an answer takes a while to
     * arrive. */
    if (k && k->changes == changes && !is_held(k, o->opts.now_ns()) &&
        (k->changes == 0 || is_later(then_ns, k->changed_ns))) {
        if (!k->looked || is_later(then_ns, k->looked_ns)) {
            know_stat_locked(o, k, st);
            k->looked_ns = then_ns;
            k->looked = true;
            k->doubts = sure_since_locked(o, then_ns, VV_OWNER_DOUBT_NS / 2);
        }
        counts =
            same_gen(&k->stat.gen, &st->gen) && (o->opts.revalidate_ns != 0 || is_for_good(o, k));
    }
    vv_mutex_unlock(&o->lock);
    return counts;
}

int vv_owner_recall(struct vv_owner *o, const char *path, struct vv_shared_stat *ret_stat,
                    uint64_t *ret_age_ns)
{
    struct known *k;
    int rc = -ENOENT;

    vv_mutex_lock(&o->lock);
    k = vvi_paths_find(&o->records, path);
    if (k && k->looked) {
        *ret_stat = k->stat;
        *ret_age_ns = o->opts.now_ns() - k->looked_ns;
        rc = 0;
    }
    vv_mutex_unlock(&o->lock);
    return rc;
}

int vv_owner_bring(struct vv_owner *o, const char *path, uint64_t next_use)
{
    struct order order = {path, next_use, true, 0};
    struct known *k;
    int rc;

    if (vv_dataset_expect(o->opts.cache, path, next_use) == 0)
        return 0;
    vv_mutex_lock(&o->lock);
    k = know_locked(o, path);
    rc = !k ? -ENOMEM : k->working ? 0 : 1;
    if (rc == 1) {
        k->working = true;
        k->users++;
    }
    vv_mutex_unlock(&o->lock);
    if (rc <= 0)
        return rc;
    rc = bring(o, k, &order);
    end_work(o, k, rc);
    return rc;
}

/* ---- changes ---- */

/* The other names of a file that was changed under one name. */
struct others {
    struct vv_owner *o;
    const struct vv_owner_change *c;
    size_t bytes; /* of c->path */
    char **path;
    size_t nr, room;
};

static void changed_locked(struct vv_owner *o, struct known *k, bool begins)
{
    uint64_t now_ns = o->opts.now_ns();

    k->looked = false;
    k->changes++;
    k->changed_ns = now_ns;
    if (!is_held(k, now_ns))
        k->holds = 0;
    if (begins) {
        k->holds++;
        k->held_ns = now_ns + VV_OWNER_HOLD_NS;
    } else if (k->holds > 0) {
        k->holds--;
    }
}

/* If there is no memory for its path, the cache keeps a copy that is checked before it is handed out. */
static void add_other_locked(struct others *all, struct known *k)
{
    if (strcmp(k->path.path, all->c->path) == 0)
        return;
    changed_locked(all->o, k, all->c->begins && !all->c->tree);
    if (all->nr == all->room) {
        size_t room = VV_MAX(2 * all->room, (size_t)16);
        char **more = realloc(all->path, room * sizeof(*more));

        if (!more)
            return;
        all->path = more;
        all->room = room;
    }
    all->path[all->nr] = strdup(k->path.path);
    all->nr += all->path[all->nr] != NULL;
}

static void add_below_locked(void *user, struct vvi_path *e)
{
    struct others *all = user;
    struct known *k = (struct known *)e;
    bool below = strncmp(e->path, all->c->path, all->bytes) == 0 && e->path[all->bytes] == '/';

    if (below || (k->looked && !k->stat.direct))
        add_other_locked(all, k);
}

void vv_owner_change(struct vv_owner *o, const struct vv_owner_change *c,
                     void (*gone)(void *user, const char *path), void *user)
{
    struct others all = {.o = o, .c = c, .bytes = strlen(c->path)};
    struct known *k;

    vv_mutex_lock(&o->lock);
    k = know_locked(o, c->path);
    if (k)
        changed_locked(o, k, c->begins);
    if (c->tree)
        vvi_paths_each(&o->records, add_below_locked, &all);
    else if (c->inode != 0)
        for (k = *same_inode(o, c->inode); k; k = k->same_next)
            if (k->stat.gen.inode == c->inode)
                add_other_locked(&all, k);
    vv_mutex_unlock(&o->lock);
    (void)vv_dataset_drop(o->opts.cache, c->path);
    if (gone)
        gone(user, c->path);
    for (size_t i = 0; i < all.nr; i++) {
        (void)vv_dataset_drop(o->opts.cache, all.path[i]);
        if (gone)
            gone(user, all.path[i]);
        free(all.path[i]);
    }
    free(all.path);
}

void vv_owner_invalidate(struct vv_owner *o, const char *path)
{
    vv_owner_change(o, &(struct vv_owner_change){.path = path}, NULL, NULL);
}

void vv_owner_stats(struct vv_owner *o, struct vv_owner_stats *ret_stats)
{
    vv_mutex_lock(&o->lock);
    *ret_stats = o->stats;
    ret_stats->records = o->records.table.n;
    vv_mutex_unlock(&o->lock);
}
