/* SPDX-License-Identifier: Apache-2.0 */
/* Reading histories that are on a target and not in a folder.
 *
 * A few threads carry out reads, each with one request to the target at a time: many requests in flight
 * hide the latency of a distant store. The tables of the files read last are kept. Every chunk is
 * verified before any of its batch is reported.
 *
 * Files get there by copying (`vvi_copy`); stores on a target only read and remove. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "store/files/files_private.h"

enum { READERS = 8, KEPT = 16 };

/* A file whose tables are read, or being read. Synchronization: port->lock, except file and info, which
 * do not change once `ready` is set. */
struct object {
    struct object *next;                  /* most recently used first */
    uint64_t serial, version, generation; /* serial: of the open history */
    unsigned pins;
    bool ready;
    int status; /* result of opening it */
    struct vv_target_file *file;
    struct vv_ckfile_info info;
};

struct target_port {
    struct vv_store base;
    struct vv_folder *folder; /* immutable */
    pthread_t thread[READERS];
    unsigned nthreads;
    struct vv_mutex lock;
    struct vv_cond work, changed; /* readers; poll, and readers that wait for an object */
    /* Synchronization: lock. */
    struct vv_store_io *todo, **todo_tail, *done, **done_tail;
    struct object *objects;
    bool kicked, stopping;
};

static void append(struct vv_store_io ***tail, struct vv_store_io *io)
{
    io->next = NULL;
    **tail = io;
    *tail = &io->next;
}

static struct vv_store_io *pop(struct vv_store_io **list, struct vv_store_io ***tail)
{
    struct vv_store_io *io = *list;
    *list = io->next;
    if (!*list)
        *tail = list;
    return io;
}

/* ---- objects ---- */

static void object_free(struct object *o)
{
    vv_target_end(o->file);
    vv_ckfile_info_fini(&o->info);
    free(o);
}

static int object_read(struct vv_files *files, struct object *o)
{
    char name[VV_CKFILE_NAME_MAX];
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, files->rank, o->version, o->generation);
    int rc = files->at->ops->open(files->at, name, VV_TARGET_READ, &o->file);
    if (rc == 0)
        rc = vv_ckfile_read_from(o->file, false, NULL, 0, &o->info);
    return vvi_files_same(files, o->version, o->generation, rc, o->info.id.run_id);
}

/* Keeps the last few unused objects open, except those that failed to open. */
static void drop_old(struct target_port *p)
{
    unsigned kept = 0;
    struct object *gone = NULL;
    for (struct object **at = &p->objects; *at;) {
        struct object *o = *at;
        bool stays = o->pins > 0 || (o->status == 0 && kept < KEPT);
        kept += stays;
        if (stays) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        o->next = gone;
        gone = o;
    }
    vv_mutex_unlock(&p->lock);
    for (struct object *next; gone; gone = next) {
        next = gone->next;
        object_free(gone);
    }
    vv_mutex_lock(&p->lock);
}

/* Finds an object and moves it to the front. */
static struct object *find_locked(struct target_port *p, const struct vv_store_key *key)
{
    const struct vv_files *files = key->history;
    for (struct object **at = &p->objects; *at; at = &(*at)->next) {
        struct object *o = *at;
        if (o->serial != files->serial || o->version != key->version ||
            o->generation != key->generation || (o->ready && o->status < 0))
            continue;
        *at = o->next;
        o->next = p->objects;
        p->objects = o;
        return o;
    }
    return NULL;
}

/* Returns the object pinned and ready; NULL: out of memory. Lock held, and released meanwhile. */
static struct object *object_get(struct target_port *p, const struct vv_store_key *key)
{
    struct object *o = find_locked(p, key);
    if (o) {
        o->pins++;
        while (!o->ready)
            vv_cond_wait(&p->changed, &p->lock);
        return o;
    }
    o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    *o = (struct object){.serial = key->history->serial,
                         .version = key->version,
                         .generation = key->generation,
                         .pins = 1,
                         .next = p->objects};
    p->objects = o;
    vv_mutex_unlock(&p->lock);
    int rc = object_read(key->history, o);
    vv_mutex_lock(&p->lock);
    o->status = rc;
    o->ready = true;
    vv_cond_broadcast(&p->changed);
    return o;
}

/* ---- reading ---- */

/* Reads the bytes [begin, end) of the data, whole chunks of the file, into the batch's pages. */
static int fill(const struct object *o, struct vv_store_io *io, uint32_t page_bytes, char *mem,
                uint64_t begin, uint64_t end)
{
    uint64_t unit = o->info.id.chunk_bytes;
    int rc = o->file->ops->get(o->file, mem, (size_t)(end - begin), VV_CKFILE_HEADER_BYTES + begin);
    if (rc < 0)
        return rc == -ENODATA ? -EBADMSG : rc;
    for (uint64_t at = begin; at < end; at += unit)
        if (vv_hash64(mem + (at - begin), VV_MIN(unit, end - at)) != o->info.sums[at / unit]) {
            io->bad_chunk = VV_MAX(io->chunk0, (uint32_t)(at / page_bytes));
            return -EBADMSG;
        }
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint64_t at = (uint64_t)(io->chunk0 + i) * page_bytes;
        memcpy(io->mem[i], mem + (at - begin),
               vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i));
    }
    return 0;
}

static int read_chunks(struct target_port *p, const struct object *o, struct vv_store_io *io)
{
    uint32_t page_bytes = p->folder->opts.page_bytes, unit = o->info.id.chunk_bytes;
    io->bad_chunk = io->chunk0;
    if (o->status < 0)
        return o->status;
    if (o->info.id.size != io->size)
        return -EBADMSG;
    uint64_t begin = (uint64_t)io->chunk0 * page_bytes;
    uint64_t end = VV_MIN(begin + (uint64_t)io->nchunks * page_bytes, io->size);
    uint64_t due_ns = vvi_pace_book(&p->folder->pace, io->op, end - begin);
    begin = vv_align_down(begin, unit);
    end = VV_MIN(vv_align_up(end, unit), io->size);
    char *mem = malloc(end - begin + 1);
    int rc = mem ? fill(o, io, page_bytes, mem, begin, end) : -ENOMEM;
    free(mem);
    while (due_ns != 0 && vv_now_ns() < due_ns && !vv_store_given_up(io))
        vv_sleep_until_ns(VV_MIN(due_ns, vv_now_ns() + VV_STORE_LOOK_NS));
    return rc;
}

static int remove_file(const struct vv_store_key *key)
{
    struct vv_files *files = key->history;
    const struct vv_files_entry gone = {.version = key->version, .generation = key->generation};
    char name[VV_CKFILE_NAME_MAX];
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, files->rank, key->version, key->generation);
    int rc = vv_target_remove(files->at, name);
    if (rc == 0) {
        vvi_index_add(&files->index, VVI_RECORD_REMOVE, &gone);
        vvi_index_flush(&files->index);
    }
    return rc;
}

static void *reader(void *arg)
{
    struct target_port *p = arg;
    vv_mutex_lock(&p->lock);
    for (;;) {
        if (!p->todo) {
            if (p->stopping)
                break;
            vv_cond_wait(&p->work, &p->lock);
            continue;
        }
        struct vv_store_io *io = pop(&p->todo, &p->todo_tail);
        bool reads = io->op == VV_STORE_READ;
        struct object *o = reads ? object_get(p, &io->key) : NULL;
        vv_mutex_unlock(&p->lock);
        int rc = !reads ? remove_file(&io->key) : !o ? -ENOMEM : read_chunks(p, o, io);
        vv_mutex_lock(&p->lock);
        if (o) {
            o->pins--;
            drop_old(p);
        }
        io->status = rc;
        append(&p->done_tail, io);
        vv_cond_broadcast(&p->changed);
    }
    vv_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the table ---- */

static int target_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct target_port *p = (struct target_port *)store;
    bool reads = io->op == VV_STORE_READ;
    if (!io->key.history || io->key.history->folder != p->folder || io->device ||
        (!reads && io->op != VV_STORE_REMOVE) ||
        (reads && !vvi_io_valid(io, p->folder->opts.page_bytes)))
        return -EINVAL;
    vv_mutex_lock(&p->lock);
    append(&p->todo_tail, io);
    vv_cond_signal(&p->work);
    vv_mutex_unlock(&p->lock);
    return 0;
}

static int target_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                       int64_t timeout_ns)
{
    struct target_port *p = (struct target_port *)store;
    uint64_t deadline_ns = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    int n = 0, rc = 0;
    vv_mutex_lock(&p->lock);
    while (!p->done && !p->kicked && rc == 0)
        rc = vv_cond_wait_until(&p->changed, &p->lock, deadline_ns);
    while (p->done && (size_t)n < max)
        ret_done[n++] = pop(&p->done, &p->done_tail);
    if (n > 0 || p->kicked)
        rc = 0;
    p->kicked = p->kicked && n > 0;
    vv_mutex_unlock(&p->lock);
    return rc < 0 ? rc : n;
}

static void target_kick(struct vv_store *store)
{
    struct target_port *p = (struct target_port *)store;
    vv_mutex_lock(&p->lock);
    p->kicked = true;
    vv_cond_broadcast(&p->changed);
    vv_mutex_unlock(&p->lock);
}

static void target_close(struct vv_store *store)
{
    struct target_port *p = (struct target_port *)store;
    vv_mutex_lock(&p->lock);
    p->stopping = true;
    vv_cond_broadcast(&p->work);
    vv_mutex_unlock(&p->lock);
    while (p->nthreads > 0)
        pthread_join(p->thread[--p->nthreads], NULL);
    for (struct object *o = p->objects, *next; o; o = next) {
        next = o->next;
        object_free(o);
    }
    vv_cond_fini(&p->work);
    vv_cond_fini(&p->changed);
    vv_mutex_fini(&p->lock);
    free(p);
}

int vvi_target_store(struct vv_folder *folder, struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "target",
                                            .close = target_close,
                                            .submit = target_submit,
                                            .poll = target_poll,
                                            .kick = target_kick};
    struct target_port *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->base.ops = &ops;
    p->folder = folder;
    p->todo_tail = &p->todo;
    p->done_tail = &p->done;
    vv_mutex_init(&p->lock, "target", VV_RANK_STORE);
    vv_cond_init(&p->work);
    vv_cond_init(&p->changed);
    int rc = 0;
    for (; rc == 0 && p->nthreads < READERS; p->nthreads += rc == 0)
        rc = vv_thread_start(&p->thread[p->nthreads], reader, p);
    if (rc < 0) {
        target_close(&p->base);
        return rc;
    }
    *ret_store = &p->base;
    return 0;
}
