/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a bucket.
 *
 * An object appears whole, in one step, when its last request has been answered: no rename is needed. A file of up
 * to SINGLE_BYTES is kept in memory and sent when it is committed. A longer one is uploaded in parts, a few at a
 * time, each from memory of its own, so that it can be sent again; at commit the store joins them. The extra
 * requests, and the second copy that some stores make then, pay off only for large files.
 *
 * There are neither locks nor conditional writes, because most stores have none. Two lives of a rank are kept
 * apart by the life marker, which is read between settle and commit, and by names that are never reused.
 *
 * An interrupted upload leaves its parts, invisible, and charged for. `sweep` ends the uploads of a name; a
 * life does that for its rank when it begins.
 *
 * Opening a file requests its last bytes: the answer has the length too, and small files and the tables of
 * checkpoints fit in it. So a life or a marker takes one request. Some stores return the first bytes instead of
 * the last; for these the length is requested first. */
#define _GNU_SOURCE
#include "store/target/s3/target_s3.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { SLOTS = 4, TAIL_BYTES = 16 << 10 };
#define SINGLE_BYTES (UINT64_C(80) << 20) /* longest file that is sent with one request */
#define PART_BYTES   (UINT64_C(16) << 20)
#define STREAM_BYTES (UINT64_C(8) << 20)

/* A client and its bucket. Synchronization: atomic, or immutable. */
struct root {
    _Atomic unsigned refs;
    atomic_bool no_suffix; /* the store does not support ranges of the last bytes */
    struct vv_s3 *s3;
    char *bucket;
};

struct place {
    struct vv_target base;
    struct root *root;
    char *prefix; /* with a slash at its end, or "" */
};

/* A piece in flight. */
struct slot {
    struct vv_s3_req req;
    char number[16];
    char *mem; /* owned */
    uint64_t at;
    size_t bytes;
    bool busy;
};

struct file {
    struct vv_target_file base;
    struct root *root;
    char *key; /* owned; NULL: a lock, which does nothing */
    /* For reading. */
    bool stream;
    char tail[TAIL_BYTES]; /* the last bytes */
    size_t tail_bytes;
    uint64_t asked; /* of a stream: everything before this was requested */
    /* For writing. */
    bool writes, begun; /* begun: an upload in parts has begun */
    char id[VV_S3_UPLOAD_ID_MAX];
    char (*etags)[VV_S3_ETAG_MAX];
    uint64_t at, part_bytes;
    unsigned nparts;
    struct slot slot[SLOTS];
};

static const struct vv_target_ops ops;
static uint64_t single_bytes = SINGLE_BYTES, part_bytes = PART_BYTES;

void vv_target_s3_sizes(uint64_t single, uint64_t part)
{
    single_bytes = single;
    part_bytes = part;
}

static struct place *place_of(struct vv_target *t)
{
    return (struct place *)t;
}

static struct file *file_of(struct vv_target_file *f)
{
    return (struct file *)f;
}

/* ---- places ---- */

static void root_unref(struct root *root)
{
    if (atomic_fetch_sub(&root->refs, 1) != 1)
        return;
    vv_s3_free(root->s3);
    free(root->bucket);
    free(root);
}

static int place_new(struct root *root, const char *prefix, const char *name,
                     struct vv_target **ret)
{
    struct place *p = calloc(1, sizeof(*p));
    if (!p || asprintf(&p->prefix, "%s%s%s", prefix, name, name[0] != '\0' ? "/" : "") < 0) {
        free(p);
        return -ENOMEM;
    }
    p->base.ops = &ops;
    p->root = root;
    atomic_fetch_add(&root->refs, 1);
    *ret = &p->base;
    return 0;
}

int vv_target_s3_open(const char *url, const struct vv_s3_opts *opts, char *err, size_t err_bytes,
                      struct vv_target **ret_target)
{
    struct root *root = calloc(1, sizeof(*root));
    char *prefix = NULL;
    if (!root)
        return -ENOMEM;
    atomic_init(&root->refs, 1);
    int rc = vv_s3_url_parse(url, &root->bucket, &prefix);
    if (rc == -EINVAL && err_bytes > 0)
        snprintf(err, err_bytes, "'%.200s' is not s3://BUCKET/PREFIX", vv_s3_url_shown(url));
    if (rc == 0)
        rc = vv_s3_new(opts, err, err_bytes, &root->s3);
    if (rc == 0)
        rc = place_new(root, "", prefix, ret_target);
    free(prefix);
    root_unref(root);
    return rc;
}

static int any(void *user, const struct vv_s3_entry *entry)
{
    (void)user;
    (void)entry;
    return 1;
}

static int s3_below(struct vv_target *t, const char *name, const char *temp,
                    struct vv_target **ret_target)
{
    const struct place *above = place_of(t);
    struct vv_target *target;
    int rc = place_new(above->root, above->prefix, name, &target);
    if (rc == 0 && !temp) { /* a place exists if it has an object */
        rc = vv_s3_list(above->root->s3, above->root->bucket, place_of(target)->prefix, true, any,
                        NULL);
        rc = rc == 0 ? -ENOENT : rc == 1 ? 0 : rc;
        if (rc < 0)
            target->ops->close(target);
    }
    if (rc == 0)
        *ret_target = target;
    return rc;
}

static void s3_close(struct vv_target *t)
{
    struct place *p = place_of(t);
    root_unref(p->root);
    free(p->prefix);
    free(p);
}

static char *key_of(const struct place *p, const char *name)
{
    char *key;
    return asprintf(&key, "%s%s", p->prefix, name) < 0 ? NULL : key;
}

struct listing {
    const struct place *place;
    int (*visit)(void *user, const char *name, uint64_t bytes);
    bool (*mine)(void *user, const char *name);
    void *user;
};

static int see_key(void *user, const struct vv_s3_entry *e)
{
    const struct listing *l = user;
    char name[1024];
    size_t skip = strlen(l->place->prefix), n = strlen(e->key) - skip;
    n -= e->is_prefix; /* its slash */
    if (n == 0 || n >= sizeof(name))
        return 0;
    memcpy(name, e->key + skip, n);
    name[n] = '\0';
    return l->visit(l->user, name, e->is_prefix ? VV_TARGET_BYTES_UNKNOWN : e->bytes);
}

static int s3_list(struct vv_target *t, int (*visit)(void *user, const char *name, uint64_t bytes),
                   void *user)
{
    const struct place *p = place_of(t);
    struct listing l = {.place = p, .visit = visit, .user = user};
    return vv_s3_list(p->root->s3, p->root->bucket, p->prefix, false, see_key, &l);
}

static int see_upload(void *user, const struct vv_s3_entry *e)
{
    const struct listing *l = user;
    const struct root *root = l->place->root;
    if (!l->mine(l->user, e->key + strlen(l->place->prefix)))
        return 0;
    return vv_s3_upload_abort(root->s3, root->bucket, e->key, e->upload_id);
}

static int s3_sweep(struct vv_target *t, bool (*mine)(void *user, const char *name), void *user)
{
    const struct place *p = place_of(t);
    struct listing l = {.place = p, .mine = mine, .user = user};
    return vv_s3_list_uploads(p->root->s3, p->root->bucket, p->prefix, see_upload, &l);
}

static int s3_remove(struct vv_target *t, const char *name)
{
    const struct place *p = place_of(t);
    char *key = key_of(p, name);
    int rc = key ? vv_s3_delete(p->root->s3, p->root->bucket, key) : -ENOMEM;
    free(key);
    return rc;
}

static int s3_touch(struct vv_target *t, const char *name)
{
    const struct place *p = place_of(t);
    char *key = key_of(p, name);
    int rc = key ? vv_s3_put(p->root->s3, p->root->bucket, key, NULL, 0) : -ENOMEM;
    free(key);
    return rc;
}

static int s3_sync(struct vv_target *t)
{
    (void)t;
    return 0;
}

/* ---- files ---- */

static void s3_end(struct vv_target_file *t);

/* name NULL: a file without an object. */
static int file_new(const struct place *p, const char *name, struct file **ret_file)
{
    struct file *f = calloc(1, sizeof(*f));
    char *key = !f || !name ? NULL : key_of(p, name);
    if (!f || (name && !key)) {
        free(f);
        return -ENOMEM;
    }
    f->base.ops = &ops;
    f->root = p->root;
    f->key = key;
    atomic_fetch_add(&f->root->refs, 1);
    *ret_file = f;
    return 0;
}

static int s3_lock(struct vv_target *t, const char *name, struct vv_target_file **ret_file)
{
    struct file *f;
    (void)name;
    int rc = file_new(place_of(t), NULL, &f);
    if (rc == 0)
        *ret_file = &f->base;
    return rc;
}

/* ---- reading ---- */

static int fetch(const struct file *f, void *buf, size_t bytes, uint64_t offset)
{
    struct vv_s3_req req = {.bucket = f->root->bucket,
                            .key = f->key,
                            .from = offset,
                            .bytes = bytes,
                            .buf = buf,
                            .room = bytes};
    int rc = vv_s3_perform(f->root->s3, &req);
    return rc == 0 && req.got != bytes ? -ENODATA : rc;
}

/* Gets the length and the last bytes with one request. */
static int read_suffix(struct file *f)
{
    struct vv_s3_req req = {.bucket = f->root->bucket,
                            .key = f->key,
                            .from = VV_S3_SUFFIX,
                            .bytes = TAIL_BYTES,
                            .buf = f->tail,
                            .room = TAIL_BYTES};
    int rc = vv_s3_perform(f->root->s3, &req);
    if (rc == 0) {
        f->base.bytes = req.object_bytes;
        f->tail_bytes = req.got;
    }
    if (rc == -EIO && req.status < 300)
        atomic_store(&f->root->no_suffix, true);
    return rc == -ENODATA ? 0 : rc; /* an empty object has no last bytes */
}

/* The same with two requests. */
static int read_length(struct file *f)
{
    char none[1];
    struct vv_s3_req req = {.method = VV_S3_HEAD,
                            .bucket = f->root->bucket,
                            .key = f->key,
                            .buf = none,
                            .room = sizeof(none)};
    int rc = vv_s3_perform(f->root->s3, &req);
    if (rc < 0)
        return rc;
    f->base.bytes = req.object_bytes;
    f->tail_bytes = (size_t)VV_MIN(req.object_bytes, (uint64_t)TAIL_BYTES);
    return f->tail_bytes == 0 ? 0 : fetch(f, f->tail, f->tail_bytes, f->base.bytes - f->tail_bytes);
}

static int s3_open(struct vv_target *t, const char *name, enum vv_target_open how,
                   struct vv_target_file **ret_file)
{
    struct file *f;
    if (how == VV_TARGET_REPAIR)
        return -EOPNOTSUPP;
    int rc = file_new(place_of(t), name, &f);
    if (rc < 0)
        return rc;
    f->stream = how == VV_TARGET_STREAM;
    rc = atomic_load(&f->root->no_suffix) ? 0 : read_suffix(f);
    if (atomic_load(&f->root->no_suffix) && (rc == 0 || rc == -EIO))
        rc = read_length(f);
    if (rc < 0) {
        s3_end(&f->base);
        return rc;
    }
    *ret_file = &f->base;
    return 0;
}

static int slot_wait(struct file *f, struct slot *s)
{
    if (!s->busy)
        return 0;
    s->busy = false;
    return vv_s3_wait(f->root->s3, &s->req);
}

static struct slot *slot_at(struct file *f, uint64_t at, uint64_t unit)
{
    return &f->slot[at / unit % SLOTS];
}

/* Requests the pieces behind `from` while slots are free. */
static int read_ahead(struct file *f, uint64_t from)
{
    uint64_t end = VV_MIN(f->base.bytes, from + SLOTS * STREAM_BYTES);
    for (; f->asked < end; f->asked += STREAM_BYTES) {
        struct slot *s = slot_at(f, f->asked, STREAM_BYTES);
        if (!s->mem)
            s->mem = malloc(STREAM_BYTES);
        if (!s->mem)
            return -ENOMEM;
        s->at = f->asked;
        s->bytes = (size_t)VV_MIN(STREAM_BYTES, f->base.bytes - s->at);
        s->req = (struct vv_s3_req){.bucket = f->root->bucket,
                                    .key = f->key,
                                    .from = s->at,
                                    .bytes = s->bytes,
                                    .buf = s->mem,
                                    .room = s->bytes};
        s->busy = true;
        vv_s3_start(f->root->s3, &s->req);
    }
    return 0;
}

/* Reads in the order of the file, with read-ahead. Ranges out of order are requested one by one. */
static int get_stream(struct file *f, char *buf, size_t bytes, uint64_t offset)
{
    int rc = 0;
    if (f->asked == 0)
        f->asked = vv_align_down(offset, STREAM_BYTES);
    for (size_t n; rc == 0 && bytes > 0; buf += n, offset += n, bytes -= n) {
        uint64_t begin = vv_align_down(offset, STREAM_BYTES);
        struct slot *s = slot_at(f, offset, STREAM_BYTES);
        n = (size_t)VV_MIN((uint64_t)bytes, begin + STREAM_BYTES - offset);
        rc = begin >= f->asked || s->at == begin ? read_ahead(f, begin) : 0;
        if (rc == 0 && s->at == begin && s->mem) {
            rc = slot_wait(f, s);
            if (rc == 0)
                rc = s->req.rc;
            if (rc == 0 && s->req.got != s->bytes)
                rc = -ENODATA;
            if (rc == 0)
                memcpy(buf, s->mem + (offset - begin), n);
        } else if (rc == 0) {
            rc = fetch(f, buf, n, offset);
        }
    }
    return rc;
}

static int s3_get(struct vv_target_file *t, void *buf, size_t bytes, uint64_t offset)
{
    struct file *f = file_of(t);
    uint64_t tail_at = f->base.bytes - f->tail_bytes;
    if (offset > f->base.bytes || bytes > f->base.bytes - offset)
        return -ENODATA;
    if (offset >= tail_at) {
        memcpy(buf, f->tail + (offset - tail_at), bytes);
        return 0;
    }
    return f->stream ? get_stream(f, buf, bytes, offset) : fetch(f, buf, bytes, offset);
}

/* ---- writing ---- */

static int s3_create(struct vv_target *t, const char *name, const char *temp, uint64_t bytes,
                     struct vv_target_file **ret_file)
{
    struct file *f;
    (void)temp;
    int rc = file_new(place_of(t), name, &f);
    if (rc < 0)
        return rc;
    f->writes = true;
    f->base.bytes = bytes;
    f->part_bytes =
        bytes <= single_bytes
            ? single_bytes
            : VV_MAX(part_bytes, vv_align_up(vv_div_up(bytes, VV_S3_PARTS_MAX), 1 << 20));
    f->etags = calloc(vv_div_up(bytes, f->part_bytes) + 1, sizeof(*f->etags));
    if (!f->etags) {
        s3_end(&f->base);
        return -ENOMEM;
    }
    *ret_file = &f->base;
    return 0;
}

/* Waits until the part in the slot has arrived. */
static int part_wait(struct file *f, struct slot *s)
{
    if (!s->busy)
        return 0;
    int rc = slot_wait(f, s);
    if (rc == 0)
        memcpy(f->etags[s->at / f->part_bytes], s->req.etag, sizeof(s->req.etag));
    free(s->req.buf);
    return rc;
}

static int part_start(struct file *f, struct slot *s)
{
    int rc = f->begun ? 0 : vv_s3_upload_begin(f->root->s3, f->root->bucket, f->key, f->id);
    if (rc < 0)
        return rc;
    f->begun = true;
    snprintf(s->number, sizeof(s->number), "%u", ++f->nparts);
    vv_s3_upload_part(&s->req, f->root->bucket, f->key, f->id, s->number, s->mem, s->bytes);
    s->busy = true;
    vv_s3_start(f->root->s3, &s->req);
    return 0;
}

static int s3_put(struct vv_target_file *t, const void *buf, size_t bytes, uint64_t offset)
{
    struct file *f = file_of(t);
    const char *from = buf;
    vv_assert(offset == f->at);
    if (offset != f->at || bytes > f->base.bytes - f->at)
        return -EINVAL;
    while (bytes > 0) {
        uint64_t begin = f->at - f->at % f->part_bytes;
        struct slot *s = slot_at(f, begin, f->part_bytes);
        if (f->at == begin) {
            int rc = part_wait(f, s);
            if (rc == 0 && !s->mem) {
                s->mem = malloc(VV_MIN(f->part_bytes, f->base.bytes));
                rc = s->mem ? 0 : -ENOMEM;
            }
            if (rc < 0)
                return rc;
            s->at = begin;
            s->bytes = 0;
        }
        size_t n = (size_t)VV_MIN((uint64_t)bytes, f->part_bytes - s->bytes);
        memcpy(s->mem + s->bytes, from, n);
        s->bytes += n;
        f->at += n;
        from += n;
        bytes -= n;
        if (s->bytes == f->part_bytes && f->base.bytes > f->part_bytes) {
            int rc = part_start(f, s);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int s3_settle(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    if (f->at != f->base.bytes)
        return -EINVAL;
    if (f->base.bytes <= f->part_bytes)
        return 0;
    int rc = 0;
    if (f->at % f->part_bytes != 0)
        rc = part_start(f, slot_at(f, f->at, f->part_bytes));
    for (int i = 0; i < SLOTS; i++) {
        int error = part_wait(f, &f->slot[i]);
        rc = rc == 0 ? error : rc;
    }
    return rc;
}

static int s3_commit(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    struct root *root = f->root;
    if (!f->begun)
        return vv_s3_put(root->s3, root->bucket, f->key, f->slot[0].mem, (size_t)f->base.bytes);
    int rc = vv_s3_upload_commit(root->s3, root->bucket, f->key, f->id, f->etags, f->nparts,
                                 f->base.bytes);
    f->begun = rc < 0;
    return rc;
}

static void s3_end(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    for (int i = 0; i < SLOTS; i++)
        if (f->slot[i].busy)
            vv_s3_cancel(f->root->s3, &f->slot[i].req);
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &f->slot[i];
        if (f->writes && s->busy)
            (void)part_wait(f, s);
        (void)slot_wait(f, s);
        free(s->mem);
    }
    if (f->begun)
        (void)vv_s3_upload_abort(f->root->s3, f->root->bucket, f->key, f->id);
    root_unref(f->root);
    free(f->etags);
    free(f->key);
    free(f);
}

static const struct vv_target_ops ops = {.name = "s3",
                                         .below = s3_below,
                                         .close = s3_close,
                                         .list = s3_list,
                                         .sweep = s3_sweep,
                                         .remove = s3_remove,
                                         .touch = s3_touch,
                                         .sync = s3_sync,
                                         .lock = s3_lock,
                                         .open = s3_open,
                                         .get = s3_get,
                                         .create = s3_create,
                                         .put = s3_put,
                                         .settle = s3_settle,
                                         .commit = s3_commit,
                                         .end = s3_end};
