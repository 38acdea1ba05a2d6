/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of trace files.
 *
 * One thread does all work on the file. It writes the header, drains the rings every few milliseconds, or without a pause
 * while there are many records, and writes the items that other threads have queued (pairs, attachments), each as one
 * block. Other threads only queue items. Two calls wait for the thread: starting it, until the header is written, and a
 * flush. So a slow disk costs records, which are counted, and does not delay other threads.
 *
 * Order. Names are written before the records that refer to them: a name is in the table before the record with its
 * number, so the names known after a drain cover its records. Items that were queued before a drain are written after it.
 * A flush, or the end, is answered by a pass that began after the request.
 *
 * Failure. A block that cannot be written whole is truncated, so that the file ends with a whole block. From then on
 * nothing is recorded or written; the error is kept for flushes.
 *
 * Locks. `life` covers starting and ending, including the end of the thread; `lock` protects the queue and the requests to
 * the thread, and is never held across a system call that may block.
 */
#include "trace/write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "trace/format.h"
#include "trace/trace_private.h"

#define PERIOD_NS (10 * VV_NS_PER_MS)
/* Most records of a block; also the most that are taken at once. */
#define BATCH_RECORDS 8192u
/* Limit of the data that waits to be written. */
#define QUEUE_BYTES_MAX ((size_t)256 << 20)

/* A block that will be written: its header, its payload, zeros up to the alignment. */
struct item {
    struct item *next;
    uint32_t type;
    size_t bytes; /* of the payload */
    struct {
        struct vv_trace_block head;
        char payload[];
    } block;
};

/* State of the thread. Owner: the thread; before its start and after its end, the holder of `life`. */
struct out {
    int fd;
    uint64_t end; /* of the last whole block */
    uint64_t number;
    uint32_t names;
    uint64_t records, lost;
    struct item *batch;
};

static struct {
    struct vv_mutex life;
    /* Synchronization: life, all fields of this block. */
    unsigned users;
    char path[4096];
    dev_t dev; /* identity of the file that was written last, and its length */
    ino_t ino;
    uint64_t resume_end, resume_number;
    bool created; /* the file did not exist, or was empty, before */
    pthread_t thread;
    struct out out;

    struct vv_mutex lock;
    /* Synchronization: lock, all fields below. */
    struct vv_cond work, answer;
    struct item *first, **last;
    size_t queued_bytes;
    uint64_t asked, answered; /* passes */
    bool started, stop, failed;
    int error;

    _Atomic bool
        writing; /* relaxed: a thread that sees it late queues an item in vain, or leaves it out */
} w;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_locks(void)
{
    vv_mutex_init(&w.life, "trace file", VV_RANK_TRACE_FILE);
    vv_mutex_init(&w.lock, "trace queue", VV_RANK_TRACE);
    vv_cond_init(&w.work);
    vv_cond_init(&w.answer);
}

/* In the child there is no writer thread, and the file is the parent's. Other threads of the parent may have
 * held the locks. */
static void after_fork_child(void)
{
    if (w.users > 0)
        close(w.out.fd);
    w.users = 0;
    w.dev = 0;
    w.ino = 0;
    w.first = NULL;
    w.queued_bytes = 0;
    atomic_store_explicit(&w.writing, false, memory_order_relaxed);
    init_locks();
}

static void init(void)
{
    init_locks();
    (void)pthread_atfork(NULL, NULL, after_fork_child);
}

bool vv_trace_writing(void)
{
    return atomic_load_explicit(&w.writing, memory_order_relaxed);
}

/* ---- blocks ---- */

static struct item *item_new(uint32_t type, uint64_t payload_bytes)
{
    if (payload_bytes > VV_TRACE_BLOCK_MAX)
        return NULL;
    size_t room = vv_align_up(payload_bytes, VV_TRACE_BLOCK_ALIGN);
    struct item *item = malloc(sizeof(*item) + room);
    if (!item)
        return NULL;
    item->next = NULL;
    item->type = type;
    item->bytes = (size_t)payload_bytes;
    return item;
}

/* Appends data and returns its end. */
static char *put(char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

static char *put_u32(char *at, uint32_t value)
{
    return put(at, &value, sizeof(value));
}

static int write_at(int fd, const char *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Writes a whole block, or nothing. */
static int item_write(struct out *o, struct item *item)
{
    size_t padded = vv_align_up(item->bytes, VV_TRACE_BLOCK_ALIGN);
    struct vv_trace_block *head = &item->block.head;

    memset(item->block.payload + item->bytes, 0, padded - item->bytes);
    *head = (struct vv_trace_block){.magic = VV_TRACE_BLOCK_MAGIC,
                                    .type = item->type,
                                    .bytes = item->bytes,
                                    .number = o->number,
                                    .payload_sum = vv_hash64(item->block.payload, padded)};
    head->sum = vv_hash64(head, offsetof(struct vv_trace_block, sum));
    int rc = write_at(o->fd, (const char *)&item->block, sizeof(*head) + padded, o->end);
    if (rc) {
        /* If this fails, readers skip the partial block. */
        if (ftruncate(o->fd, (off_t)o->end))
            vv_log(VV_LOG_DEBUG, "trace file: %s", strerror(errno));
        return rc;
    }
    o->end += sizeof(*head) + padded;
    o->number++;
    return 0;
}

static int item_write_and_free(struct out *o, struct item *item)
{
    int rc = item ? item_write(o, item) : -ENOMEM;

    free(item);
    return rc;
}

/* ---- blocks written by the thread ---- */

static int write_names(struct out *o)
{
    uint32_t count = vvi_trace_names();
    size_t bytes = sizeof(struct vv_trace_texts);

    if (count == o->names)
        return 0;
    for (uint32_t i = o->names; i < count; i++)
        bytes += 8 + strlen(vvi_trace_name_text(i));
    struct item *item = item_new(VV_TRACE_BLOCK_NAMES, bytes);
    if (!item)
        return -ENOMEM;
    struct vv_trace_texts texts = {.count = count - o->names};
    char *at = put(item->block.payload, &texts, sizeof(texts));
    for (uint32_t i = o->names; i < count; i++) {
        const char *text = vvi_trace_name_text(i);
        at = put_u32(at, i);
        at = put_u32(at, (uint32_t)strlen(text));
        at = put(at, text, strlen(text));
    }
    int rc = item_write_and_free(o, item);
    if (rc == 0)
        o->names = count;
    return rc;
}

static size_t kind_text_bytes(uint32_t kind)
{
    size_t bytes = strlen(vv_trace_kind_name(kind)) + 1;

    for (unsigned a = 0; a < VV_TRACE_ARGS; a++)
        bytes += strlen(vv_trace_arg_name(kind, a)) + 1;
    return bytes;
}

static int write_kinds(struct out *o)
{
    size_t bytes = sizeof(struct vv_trace_texts);

    for (uint32_t k = 0; k < VV_TRACE_KIND_COUNT; k++)
        bytes += 8 + kind_text_bytes(k);
    struct item *item = item_new(VV_TRACE_BLOCK_KINDS, bytes);
    if (!item)
        return -ENOMEM;
    struct vv_trace_texts texts = {.count = VV_TRACE_KIND_COUNT};
    char *at = put(item->block.payload, &texts, sizeof(texts));
    for (uint32_t k = 0; k < VV_TRACE_KIND_COUNT; k++) {
        const char *name = vv_trace_kind_name(k);
        at = put_u32(at, k);
        at = put_u32(at, (uint32_t)kind_text_bytes(k));
        at = put(at, name, strlen(name) + 1);
        for (unsigned a = 0; a < VV_TRACE_ARGS; a++)
            at = put(at, vv_trace_arg_name(k, a), strlen(vv_trace_arg_name(k, a)) + 1);
    }
    return item_write_and_free(o, item);
}

static int write_head(struct out *o)
{
    struct timespec wall;
    int rc = 0;

    if (o->end == 0) {
        clock_gettime(CLOCK_REALTIME, &wall);
        struct vv_trace_head head = {
            .magic = VV_TRACE_MAGIC,
            .format = VV_TRACE_FORMAT,
            .head_bytes = sizeof(head),
            .clock_ns = vv_now_ns(),
            .wall_ns = (uint64_t)wall.tv_sec * VV_NS_PER_S + (uint64_t)wall.tv_nsec,
            .pid = (uint64_t)getpid(),
        };
        head.sum = vv_hash64(&head, offsetof(struct vv_trace_head, sum));
        rc = ftruncate(o->fd, 0) ? -errno : write_at(o->fd, (char *)&head, sizeof(head), 0);
        o->end = sizeof(head);
    } else if (ftruncate(o->fd, (off_t)o->end)) {
        rc = -errno;
    }
    return rc ? rc : write_kinds(o);
}

/* Writes all records of the rings. */
static int write_records(struct out *o)
{
    struct item *item = o->batch;
    struct vv_trace_batch *batch = (struct vv_trace_batch *)(void *)item->block.payload;
    struct vv_trace_record *records = (struct vv_trace_record *)(batch + 1);
    size_t n;

    do {
        uint64_t lost = 0;
        /* One place is reserved for the record that reports losses. */
        n = vvi_trace_drain(records, BATCH_RECORDS - 1, &lost);
        size_t count = n;
        o->lost += lost;
        batch->time_ns = vv_now_ns();
        batch->lost = o->lost;
        if (lost > 0)
            records[count++] = (struct vv_trace_record){
                .time_ns = batch->time_ns, .kind = VV_TRACE_LOST, .arg = {lost}};
        int rc = write_names(o);
        if (rc)
            return rc;
        if (count == 0)
            return 0;
        item->bytes = sizeof(*batch) + count * sizeof(*records);
        rc = item_write(o, item);
        if (rc)
            return rc;
        o->records += count;
    } while (n >= BATCH_RECORDS / 2);
    return 0;
}

static int write_queue(struct out *o, struct item *queue)
{
    int rc = 0;

    for (struct item *item = queue, *next; item; item = next) {
        next = item->next;
        if (rc == 0)
            rc = item_write(o, item);
        free(item);
    }
    return rc;
}

static int write_end(struct out *o)
{
    struct item *item = item_new(VV_TRACE_BLOCK_END, sizeof(struct vv_trace_closing));
    struct vv_trace_closing closing = {vv_now_ns(), o->records, o->lost};

    if (item)
        put(item->block.payload, &closing, sizeof(closing));
    return item_write_and_free(o, item);
}

/* ---- the thread ---- */

static void fail_locked(int error)
{
    w.failed = true;
    w.error = error;
    atomic_store_explicit(&w.writing, false, memory_order_relaxed);
}

/* Waits until there is work, and takes it. */
static struct item *take_locked(uint64_t *ret_pass, bool *ret_stop)
{
    uint64_t until_ns = vv_now_ns() + PERIOD_NS;

    while (!w.stop && w.asked == w.answered && !w.first) {
        /* After a failure nothing is recorded any more: wait for a flush or the end. */
        if (vv_cond_wait_until(&w.work, &w.lock, w.failed ? VV_NEVER_NS : until_ns))
            break;
    }
    struct item *queue = w.first;
    w.first = NULL;
    w.last = &w.first;
    w.queued_bytes = 0;
    *ret_pass = w.asked;
    *ret_stop = w.stop;
    return queue;
}

static void *writer_main(void *arg)
{
    struct out *o = arg;
    bool stop = false;
    uint64_t pass;
    int rc = write_head(o);

    vv_mutex_lock(&w.lock);
    w.started = true;
    if (rc)
        fail_locked(rc);
    vv_cond_broadcast(&w.answer);
    while (!stop) {
        struct item *queue = take_locked(&pass, &stop);
        vv_mutex_unlock(&w.lock);
        if (rc == 0) {
            rc = write_records(o);
            int queue_rc = write_queue(o, queue);
            rc = rc ? rc : queue_rc;
            if (rc == 0 && stop)
                rc = write_end(o);
            if (rc) {
                vvi_trace_file_wants(false);
                vv_log(VV_LOG_WARNING, "trace file: %s; tracing has stopped", vv_strerror(rc));
            }
        } else {
            for (struct item *next; queue; queue = next) {
                next = queue->next;
                free(queue);
            }
        }
        vv_mutex_lock(&w.lock);
        if (rc && !w.failed)
            fail_locked(rc);
        w.answered = pass;
        vv_cond_broadcast(&w.answer);
    }
    vv_mutex_unlock(&w.lock);
    return NULL;
}

/* ---- the file ---- */

int vv_trace_path(const char *pattern, int rank, char *buf, size_t size)
{
    size_t n = 0;

    for (const char *p = pattern; *p && n < size; p++) {
        if (p[0] == '%' && (p[1] == 'p' || p[1] == 'r')) {
            p++;
            n += (size_t)snprintf(buf + n, size - n, "%d", *p == 'p' ? (int)getpid() : rank);
        } else {
            buf[n++] = *p;
        }
    }
    if (n >= size)
        return -ENAMETOOLONG;
    buf[n] = '\0';
    return 0;
}

/* Checks that an existing file may be replaced. */
static int file_check(int fd, const struct stat *st, const char **ret_why)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char magic[8] = "";

    if (!S_ISREG(st->st_mode)) {
        *ret_why = "not a file";
        return -EINVAL;
    }
    if (fcntl(fd, F_OFD_SETLK, &lock) && (errno == EAGAIN || errno == EACCES)) {
        *ret_why = "another process is writing its trace to it (%p in the name is replaced by the "
                   "number of the process, %r by the rank)";
        return -EBUSY;
    }
    if (st->st_size > 0 && (pread(fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) ||
                            memcmp(magic, VV_TRACE_MAGIC, sizeof(magic)) != 0)) {
        *ret_why = "it exists and is not a trace: not overwritten";
        return -EEXIST;
    }
    return 0;
}

static int file_open(const char *path, char *err, size_t err_bytes, struct out *ret_out)
{
    struct out o = {.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666)};
    const char *why = NULL;
    struct stat st;
    int rc = 0;

    if (o.fd < 0 || fstat(o.fd, &st))
        rc = -errno;
    else
        rc = file_check(o.fd, &st, &why);
    if (rc == 0) {
        o.batch =
            item_new(VV_TRACE_BLOCK_RECORDS, sizeof(struct vv_trace_batch) +
                                                 BATCH_RECORDS * sizeof(struct vv_trace_record));
        rc = o.batch ? 0 : -ENOMEM;
    }
    if (rc) {
        snprintf(err, err_bytes, "%s: %s", path, why ? why : strerror(-rc));
        if (o.fd >= 0)
            close(o.fd);
        return rc;
    }
    if (w.ino == st.st_ino && w.dev == st.st_dev && (uint64_t)st.st_size >= w.resume_end &&
        strcmp(w.path, path) == 0) {
        o.end = w.resume_end;
        o.number = w.resume_number;
    }
    w.created = st.st_size == 0;
    w.dev = st.st_dev;
    w.ino = st.st_ino;
    *ret_out = o;
    return 0;
}

static void file_close(void)
{
    w.resume_end = w.out.end;
    w.resume_number = w.out.number;
    free(w.out.batch);
    close(w.out.fd); /* the lock goes with it */
}

/* ---- start and stop ---- */

static int thread_start(void)
{
    vv_mutex_lock(&w.lock);
    w.first = NULL;
    w.last = &w.first;
    w.queued_bytes = 0;
    w.asked = w.answered = 0;
    w.started = w.stop = w.failed = false;
    w.error = 0;
    atomic_store_explicit(&w.writing, true, memory_order_relaxed);
    vv_mutex_unlock(&w.lock);
    vvi_trace_file_wants(true);
    /* The thread belongs to no context's group, because it may outlive the context that starts it. */
    struct vv_thread_group *before = vv_thread_group_enter(NULL);
    int rc = vv_thread_start(&w.thread, writer_main, &w.out);
    vv_thread_group_enter(before);
    if (rc == 0) {
        vv_mutex_lock(&w.lock);
        while (!w.started)
            vv_cond_wait(&w.answer, &w.lock);
        rc = w.error;
        w.stop = w.failed;
        vv_cond_signal(&w.work);
        vv_mutex_unlock(&w.lock);
        if (rc)
            pthread_join(w.thread, NULL);
    }
    if (rc) {
        vvi_trace_file_wants(false);
        atomic_store_explicit(&w.writing, false, memory_order_relaxed);
    }
    return rc;
}

int vv_trace_write_start(const char *path, char *err, size_t err_bytes)
{
    int rc = 0;

    pthread_once(&once, init);
    if (strlen(path) >= sizeof(w.path)) {
        snprintf(err, err_bytes, "the path is too long");
        return -ENAMETOOLONG;
    }
    vv_mutex_lock(&w.life);
    if (w.users > 0 && strcmp(path, w.path) != 0) {
        snprintf(err, err_bytes, "%.200s: this process is writing its trace to %.200s", path,
                 w.path);
        rc = -EBUSY;
    } else if (w.users == 0) {
        rc = file_open(path, err, err_bytes, &w.out);
        if (rc == 0) {
            snprintf(w.path, sizeof(w.path), "%s", path);
            rc = thread_start();
            if (rc) {
                snprintf(err, err_bytes, "%s: %s", path, vv_strerror(rc));
                file_close();
                if (w.created)
                    unlink(path);
            }
        }
    }
    if (rc == 0)
        w.users++;
    vv_mutex_unlock(&w.life);
    return rc;
}

int vv_trace_write_stop(void)
{
    int rc;

    vv_mutex_lock(&w.life);
    vv_assert(w.users > 0);
    if (--w.users > 0) {
        vv_mutex_lock(&w.lock);
        rc = w.error;
        vv_mutex_unlock(&w.lock);
    } else {
        vvi_trace_file_wants(false);
        vv_mutex_lock(&w.lock);
        atomic_store_explicit(&w.writing, false, memory_order_relaxed);
        w.stop = true;
        vv_cond_signal(&w.work);
        vv_mutex_unlock(&w.lock);
        pthread_join(w.thread, NULL);
        vv_mutex_lock(&w.lock);
        rc = w.error;
        w.error = 0; /* it was of an earlier file */
        vv_mutex_unlock(&w.lock);
        file_close();
    }
    vv_mutex_unlock(&w.life);
    return rc;
}

/* ---- queueing by other threads ---- */

/* Queues an item and takes ownership of it. */
static int enqueue(struct item *item)
{
    int rc = 0;

    if (!item)
        return -ENOMEM;
    vv_mutex_lock(&w.lock);
    /* The flag is cleared under the lock when the file ends: an item queued now is still taken. */
    if (!vv_trace_writing()) {
        free(item);
    } else if (w.queued_bytes > 0 && w.queued_bytes + item->bytes > QUEUE_BYTES_MAX) {
        free(item);
        rc = -ENOMEM;
    } else {
        *w.last = item;
        w.last = &item->next;
        w.queued_bytes += item->bytes;
        vv_cond_signal(&w.work);
    }
    vv_mutex_unlock(&w.lock);
    return rc;
}

static int add_pair(uint32_t type, uint32_t context, const char *key, const char *value)
{
    if (!vv_trace_writing())
        return 0;
    size_t key_bytes = strlen(key), value_bytes = strlen(value);
    if (key_bytes > VV_TRACE_BLOCK_MAX / 4 || value_bytes > VV_TRACE_BLOCK_MAX / 4)
        return -EFBIG;
    struct vv_trace_pairs pairs = {.time_ns = vv_now_ns(), .context = context, .count = 1};
    struct item *item = item_new(type, sizeof(pairs) + 8 + key_bytes + value_bytes);
    if (!item)
        return -ENOMEM;
    char *at = put(item->block.payload, &pairs, sizeof(pairs));
    at = put_u32(at, (uint32_t)key_bytes);
    at = put_u32(at, (uint32_t)value_bytes);
    at = put(at, key, key_bytes);
    put(at, value, value_bytes);
    return enqueue(item);
}

int vv_trace_meta(uint32_t context, const char *key, const char *value)
{
    return add_pair(VV_TRACE_BLOCK_META, context, key, value);
}

int vv_trace_note(const char *key, const char *value)
{
    return add_pair(VV_TRACE_BLOCK_NOTE, 0, key, value);
}

int vv_trace_attach(const char *name, const char *type, const void *bytes, size_t size)
{
    struct vv_trace_attached a = {.name_bytes = (uint32_t)strnlen(name, 4096),
                                  .type_bytes = (uint32_t)strnlen(type, 4096)};

    if (!vv_trace_writing())
        return 0;
    a.time_ns = vv_now_ns();
    if (size > VV_TRACE_BLOCK_MAX - sizeof(a) - a.name_bytes - a.type_bytes)
        return -EFBIG;
    struct item *item = item_new(VV_TRACE_BLOCK_ATTACHMENT,
                                 sizeof(a) + a.name_bytes + a.type_bytes + (uint64_t)size);
    if (!item)
        return -ENOMEM;
    char *at = put(item->block.payload, &a, sizeof(a));
    at = put(at, name, a.name_bytes);
    at = put(at, type, a.type_bytes);
    if (size > 0)
        put(at, bytes, size);
    return enqueue(item);
}

int vv_trace_flush(void)
{
    int rc = 0;

    pthread_once(&once, init);
    vv_mutex_lock(&w.lock);
    if (vv_trace_writing()) {
        uint64_t pass = ++w.asked;
        vv_cond_signal(&w.work);
        while (w.answered < pass)
            vv_cond_wait(&w.answer, &w.lock);
    }
    rc = w.error;
    vv_mutex_unlock(&w.lock);
    return rc;
}
