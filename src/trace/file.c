/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading trace files.
 *
 * The input is not trusted. A block counts only if both its sums are right, and the sizes in its payload are still
 * checked before use, because an attacker can compute checksums too. A block whose own sum is right but not that of its
 * payload is skipped as a whole; if no block begins at a place, the search continues eight bytes further. So each byte
 * is hashed at most once, and reading takes time in proportion to the file.
 *
 * Tables for names and kinds have fixed limits; numbers beyond them are ignored.
 */
#include "trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "trace/format.h"
#include "trace/map.h"
#include "trace/pool.h"
#include "trace/trace_private.h"

enum { NAMES_MAX = 65536, KINDS_MAX = 1024, KIND_TEXTS = 1 + VV_TRACE_ARGS };

struct kind_texts {
    const char *text[KIND_TEXTS];
};

struct vvi_trace_tables {
    struct vvi_pool pool;
    struct vvi_list records, pairs, attachments;
    struct vvi_map last_pair; /* index of the last pair of a key */
    const char *name[NAMES_MAX];
    struct kind_texts kind[KINDS_MAX];
};

/* Reads a payload from front to back; after a field that does not fit, all further reads fail. */
struct cursor {
    const char *at;
    size_t left;
};

static bool take(struct cursor *c, void *ret, size_t bytes)
{
    if (c->left < bytes) {
        c->left = 0;
        return false;
    }
    memcpy(ret, c->at, bytes);
    c->at += bytes;
    c->left -= bytes;
    return true;
}

static const char *take_bytes(struct cursor *c, size_t bytes)
{
    const char *at = c->at;

    if (c->left < bytes) {
        c->left = 0;
        return NULL;
    }
    c->at += bytes;
    c->left -= bytes;
    return at;
}

/* ---- payloads: 0, -EBADMSG (malformed) or -ENOMEM ---- */

static int read_pairs(struct vvi_trace_tables *t, struct cursor c, bool note)
{
    struct vv_trace_pairs head;

    if (!take(&c, &head, sizeof(head)))
        return -EBADMSG;
    for (uint32_t i = 0; i < head.count; i++) {
        uint32_t bytes[2];
        if (!take(&c, bytes, sizeof(bytes)))
            return -EBADMSG;
        const char *key = take_bytes(&c, bytes[0]);
        const char *value = key ? take_bytes(&c, bytes[1]) : NULL;
        if (!value)
            return -EBADMSG;
        struct vv_trace_pair pair = {head.time_ns, head.context, note,
                                     vvi_pool_text(&t->pool, key, bytes[0]),
                                     vvi_pool_text(&t->pool, value, bytes[1])};
        struct vv_trace_pair *p = vvi_list_add(&t->pairs, sizeof(*p), 1);
        if (!p || !pair.key || !pair.value) {
            t->pairs.n -= p != NULL;
            return -ENOMEM;
        }
        *p = pair;
    }
    return 0;
}

static int read_texts(struct vvi_trace_tables *t, struct cursor c, bool kinds)
{
    struct vv_trace_texts head;

    if (!take(&c, &head, sizeof(head)))
        return -EBADMSG;
    for (uint32_t i = 0; i < head.count; i++) {
        uint32_t word[2]; /* number, bytes */
        if (!take(&c, word, sizeof(word)))
            return -EBADMSG;
        const char *text = take_bytes(&c, word[1]);
        if (!text)
            return -EBADMSG;
        if (!kinds) {
            char *copy = vvi_pool_text(&t->pool, text, word[1]);
            if (!copy)
                return -ENOMEM;
            if (word[0] < NAMES_MAX)
                t->name[word[0]] = copy;
            continue;
        }
        for (size_t k = 0, at = 0; k < KIND_TEXTS && word[0] < KINDS_MAX && at < word[1]; k++) {
            char *copy = vvi_pool_text(&t->pool, text + at, word[1] - at);
            if (!copy)
                return -ENOMEM;
            t->kind[word[0]].text[k] = copy;
            at += strlen(copy) + 1;
        }
    }
    return 0;
}

static int read_records(struct vv_trace_file *f, struct cursor c, uint64_t *lost)
{
    struct vv_trace_batch head;

    if (!take(&c, &head, sizeof(head)) || c.left % sizeof(struct vv_trace_record))
        return -EBADMSG;
    size_t n = c.left / sizeof(struct vv_trace_record);
    *lost = head.lost;
    if (n == 0)
        return 0;
    struct vv_trace_record *r = vvi_list_add(&f->tables->records, sizeof(*r), n);
    if (!r)
        return -ENOMEM;
    memcpy(r, c.at, n * sizeof(*r));
    return 0;
}

static int read_attachment(struct vvi_trace_tables *t, struct cursor c)
{
    struct vv_trace_attached head;

    if (!take(&c, &head, sizeof(head)))
        return -EBADMSG;
    const char *name = take_bytes(&c, head.name_bytes);
    const char *type = name ? take_bytes(&c, head.type_bytes) : NULL;
    if (!type)
        return -EBADMSG;
    char *bytes = vvi_pool_alloc(&t->pool, c.left + 1);
    struct vv_trace_attachment a = {head.time_ns, vvi_pool_text(&t->pool, name, head.name_bytes),
                                    vvi_pool_text(&t->pool, type, head.type_bytes), bytes, c.left};
    struct vv_trace_attachment *p = vvi_list_add(&t->attachments, sizeof(*p), 1);
    if (!p || !a.name || !a.type || !bytes) {
        t->attachments.n -= p != NULL;
        return -ENOMEM;
    }
    memcpy(bytes, c.at, c.left);
    *p = a;
    return 0;
}

/* ---- blocks ---- */

struct scan {
    struct vv_trace_file *f;
    const char *bytes;
    size_t size, at;
    uint64_t lost_before, lost_now; /* in earlier sessions of the file, and in the last one */
    bool ended;                     /* the last block was END */
};

static int block_read(struct scan *s, const struct vv_trace_block *head, struct cursor c)
{
    struct vv_trace_file *f = s->f;

    s->ended = false;
    switch (head->type) {
    case VV_TRACE_BLOCK_META:
    case VV_TRACE_BLOCK_NOTE:
        return read_pairs(f->tables, c, head->type == VV_TRACE_BLOCK_NOTE);
    case VV_TRACE_BLOCK_NAMES:
    case VV_TRACE_BLOCK_KINDS:
        return read_texts(f->tables, c, head->type == VV_TRACE_BLOCK_KINDS);
    case VV_TRACE_BLOCK_RECORDS:
        return read_records(f, c, &s->lost_now);
    case VV_TRACE_BLOCK_ATTACHMENT:
        return read_attachment(f->tables, c);
    case VV_TRACE_BLOCK_END: {
        struct vv_trace_closing end;
        if (!take(&c, &end, sizeof(end)))
            return -EBADMSG;
        s->ended = true;
        s->lost_before += end.lost;
        s->lost_now = 0;
        return 0;
    }
    default:
        f->unknown_blocks++;
        return 0;
    }
}

/* Moves past one block, or past eight bytes without one. */
static int scan_step(struct scan *s)
{
    size_t left = s->size - s->at;
    struct vv_trace_block head;

    if (left >= sizeof(head))
        memcpy(&head, s->bytes + s->at, sizeof(head));
    if (left < sizeof(head) || head.magic != VV_TRACE_BLOCK_MAGIC ||
        head.bytes > VV_TRACE_BLOCK_MAX ||
        head.sum != vv_hash64(&head, offsetof(struct vv_trace_block, sum))) {
        size_t skip = VV_MIN(left, (size_t)VV_TRACE_BLOCK_ALIGN);
        s->f->damaged_bytes += skip;
        s->at += skip;
        s->ended = false;
        return 0;
    }
    size_t all = sizeof(head) + vv_align_up(head.bytes, VV_TRACE_BLOCK_ALIGN);
    int rc = -EBADMSG;
    if (all <= left) {
        struct cursor c = {s->bytes + s->at + sizeof(head), (size_t)head.bytes};
        if (head.payload_sum == vv_hash64(c.at, all - sizeof(head)))
            rc = block_read(s, &head, c);
    }
    if (rc == -EBADMSG) {
        s->f->damaged_bytes += VV_MIN(all, left);
        s->ended = false;
    }
    s->at += VV_MIN(all, left);
    return rc == -EBADMSG ? 0 : rc;
}

static struct vvi_map_key pair_key(bool note, uint32_t context, const char *key)
{
    return (struct vvi_map_key){{note, context, vv_hash64(key, strlen(key))}};
}

/* After everything was read: sorts it and sets the public fields. */
static int conclude(const struct scan *s)
{
    struct vv_trace_file *f = s->f;
    struct vvi_trace_tables *t = f->tables;

    f->complete = s->ended;
    f->lost = s->lost_before + s->lost_now;
    if (t->records.n > 1)
        qsort(t->records.v, t->records.n, sizeof(struct vv_trace_record), vvi_trace_by_time);
    f->records = t->records.v;
    f->nrecords = t->records.n;
    f->pairs = t->pairs.v;
    f->npairs = t->pairs.n;
    f->attachments = t->attachments.v;
    f->nattachments = t->attachments.n;
    f->begin_ns = f->nrecords ? f->records[0].time_ns : f->clock_ns;
    f->end_ns = f->nrecords ? f->records[f->nrecords - 1].time_ns : f->clock_ns;
    for (size_t i = 0; i < f->npairs; i++) {
        const struct vv_trace_pair *p = &f->pairs[i];
        if (!vvi_map_put(&t->last_pair, pair_key(p->note, p->context, p->key), (uint32_t)i))
            return -ENOMEM;
    }
    return 0;
}

static int read_head(struct scan *s, char *err, size_t err_bytes)
{
    struct vv_trace_head head;

    if (s->size < sizeof(head) || memcmp(s->bytes, VV_TRACE_MAGIC, sizeof(head.magic)) != 0) {
        snprintf(err, err_bytes, "not a trace");
        return -EINVAL;
    }
    memcpy(&head, s->bytes, sizeof(head));
    s->at = sizeof(head);
    if (head.sum != vv_hash64(&head, offsetof(struct vv_trace_head, sum))) {
        s->f->damaged_bytes += sizeof(head);
        return 0;
    }
    if (head.format != VV_TRACE_FORMAT) {
        snprintf(err, err_bytes, "its format is %u, and this version knows %u only", head.format,
                 VV_TRACE_FORMAT);
        return -ENOTSUP;
    }
    s->f->clock_ns = head.clock_ns;
    s->f->wall_ns = head.wall_ns;
    s->f->pid = head.pid;
    return 0;
}

int vv_trace_file_parse(const void *bytes, size_t size, char *err, size_t err_bytes,
                        struct vv_trace_file **ret_file)
{
    struct vv_trace_file *f = calloc(1, sizeof(*f));
    int rc = -ENOMEM;

    if (f)
        f->tables = calloc(1, sizeof(*f->tables));
    if (f && f->tables) {
        struct scan s = {.f = f, .bytes = bytes, .size = size};
        f->file_bytes = size;
        rc = read_head(&s, err, err_bytes);
        while (rc == 0 && s.at < s.size)
            rc = scan_step(&s);
        if (rc == 0)
            rc = conclude(&s);
    }
    if (rc) {
        if (rc == -ENOMEM)
            snprintf(err, err_bytes, "not enough memory");
        vv_trace_file_free(f);
        return rc;
    }
    *ret_file = f;
    return 0;
}

/* Reads a file to its end, also if it grows meanwhile. */
static int read_all(int fd, struct vvi_list *ret_bytes)
{
    struct vvi_list list = {0};
    struct stat st;
    size_t step = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size + 1 : 65536;

    for (;;) {
        char *at = vvi_list_add(&list, 1, step);
        ssize_t n;
        if (!at) {
            free(list.v);
            return -ENOMEM;
        }
        do
            n = read(fd, at, step);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
            int rc = -errno;
            free(list.v);
            return rc;
        }
        list.n -= step - (size_t)n;
        if (n == 0)
            break;
        step = list.cap > list.n ? list.cap - list.n : 65536;
    }
    *ret_bytes = list;
    return 0;
}

int vv_trace_file_open(const char *path, char *err, size_t err_bytes,
                       struct vv_trace_file **ret_file)
{
    struct vvi_list bytes = {0};
    char why[128] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int rc = fd < 0 ? -errno : read_all(fd, &bytes);

    if (fd >= 0)
        close(fd);
    if (rc == 0)
        rc = vv_trace_file_parse(bytes.v, bytes.n, why, sizeof(why), ret_file);
    free(bytes.v);
    if (rc)
        snprintf(err, err_bytes, "%s: %s", path, why[0] ? why : strerror(-rc));
    return rc;
}

void vv_trace_file_free(struct vv_trace_file *f)
{
    if (!f)
        return;
    if (f->tables) {
        vvi_pool_fini(&f->tables->pool);
        free(f->tables->records.v);
        free(f->tables->pairs.v);
        free(f->tables->attachments.v);
        vvi_map_fini(&f->tables->last_pair);
        free(f->tables);
    }
    free(f);
}

/* ---- queries ---- */

static const char *find_pair(const struct vv_trace_file *f, bool note, uint32_t context,
                             const char *key)
{
    uint32_t last = vvi_map_get(&f->tables->last_pair, pair_key(note, context, key));

    if (last == VVI_MAP_NONE)
        return NULL;
    if (strcmp(f->pairs[last].key, key) == 0)
        return f->pairs[last].value;
    /* The entry is another key with the same hash: search all pairs. */
    for (size_t i = f->npairs; i-- > 0;) {
        const struct vv_trace_pair *p = &f->pairs[i];
        if (p->note == note && p->context == context && strcmp(p->key, key) == 0)
            return p->value;
    }
    return NULL;
}

const char *vv_trace_file_meta(const struct vv_trace_file *f, uint32_t context, const char *key)
{
    return find_pair(f, false, context, key);
}

const char *vv_trace_file_note(const struct vv_trace_file *f, const char *key)
{
    return find_pair(f, true, 0, key);
}

const struct vv_trace_attachment *vv_trace_file_attachment(const struct vv_trace_file *f,
                                                           const char *name)
{
    for (size_t i = f->nattachments; i-- > 0;)
        if (strcmp(f->attachments[i].name, name) == 0)
            return &f->attachments[i];
    return NULL;
}

const char *vv_trace_file_name(const struct vv_trace_file *f, uint64_t name)
{
    return name < NAMES_MAX && f->tables->name[name] ? f->tables->name[name] : "?";
}

static const char *kind_text(const struct vv_trace_file *f, uint32_t kind, unsigned i)
{
    return kind < KINDS_MAX && i < KIND_TEXTS ? f->tables->kind[kind].text[i] : NULL;
}

const char *vv_trace_file_kind(const struct vv_trace_file *f, uint32_t kind)
{
    const char *text = kind_text(f, kind, 0);
    return text ? text : "?";
}

const char *vv_trace_file_arg(const struct vv_trace_file *f, uint32_t kind, unsigned arg)
{
    const char *text = arg < VV_TRACE_ARGS ? kind_text(f, kind, 1 + arg) : NULL;
    return text ? text : "";
}
