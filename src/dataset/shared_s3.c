/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of a store as files. A slash in a key ends the name of a folder, and a folder exists while an object is
 * below it.
 *
 * Files are found only by listings, a folder at a time. One thread makes a listing while others that need it wait. An
 * object is unchanged as long as its key, size, time and tag (ETag) are; key and tag together are its inode. So a stat
 * costs no request while its folder's listing is valid, and reading an object costs only the requests for its bytes.
 *
 * Mixtures of two objects of one key are never read: the store returns each range from one object, with that object's
 * tag and length. In every range both have to equal those of the listing; otherwise the file has changed (-EAGAIN), and
 * its folder is listed again. The request itself has no condition, because few stores support it.
 *
 * A file is read in ranges, several at a time, ahead of the thread that reads it in order. Each byte is requested once.
 *
 * s3->lock protects the folders and is held across no request. An open file belongs to one thread.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "dataset/paths.h"
#include "dataset/shared_fs.h"
#include "s3/s3.h"

#define KEY_MAX     1024u
#define RANGE_BYTES (UINT64_C(4) << 20)
#define WINDOW      16u /* ranges of one file at a time ... */
#define MORE_MAX    48u /* ... and of all files, besides one for each */
#define FOLDERS_MAX 4096u
#define STEP        8u
#define MISSING_NS  VV_NS_PER_S /* a missing name is not looked for again within this time */
#define SHARE       10u         /* listing a folder takes at most one part in so many of the time */
#define LOG_NS      (10 * VV_NS_PER_S)

/* The entries of a folder. Immutable; freed with its last reference. */
struct content {
    atomic_uint refs;
    uint64_t looked_ns, took_ns;
    size_t nr, room, text_bytes, text_room;
    struct name {
        uint64_t bytes, inode;
        int64_t modified_s;
        size_t at; /* in text */
        bool folder;
    } * names; /* sorted by strcmp */
    char *text;
};

struct folder {
    struct vvi_path path; /* the prefix of its keys, with "/" in front */
    /* Synchronization: source->lock. */
    unsigned users;
    bool loading, used;
    uint64_t turn; /* number of listings; rc: result of the last one */
    int rc;
    struct content *content; /* NULL: not known */
};

struct source {
    struct vv_shared ops; /* first: the functions get a pointer to it */
    /* Immutable. */
    struct vv_s3 *s3;
    char *bucket, *prefix; /* prefix: "", or with a slash at its end */
    char *path;
    size_t path_bytes;
    uint64_t revalidate_ns, dev;
    uint32_t uid, gid;
    struct vv_mutex lock;
    struct vv_cond loaded;
    /* Synchronization: lock. */
    struct vvi_paths folders;
    size_t hand;
    uint64_t logged_ns;
    atomic_uint more; /* ranges under way besides the first of each file */
};

/* An open file. */
struct file {
    struct source *s;
    char *key;
    struct vv_shared_stat st;
    uint64_t next; /* the first byte that was not requested */
    unsigned first, nr;
    struct range {
        struct vv_s3_req req;
        char *buf;
        bool extra; /* counted in source->more */
    } range[WINDOW];
};

/* ---- folders ---- */

static void unref(struct content *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    free(c->names);
    free(c->text);
    free(c);
}

/* From the key and the tag, without a weak mark and quotes: these differ between stores and answers. */
static uint64_t inode_of(const char *key, const char *etag)
{
    char text[KEY_MAX + VV_S3_ETAG_MAX + 2];
    size_t n = strlen(key), tag = 0;

    if (strncmp(etag, "W/", 2) == 0)
        etag += 2;
    memcpy(text, key, n + 1);
    for (n++; *etag && tag < VV_S3_ETAG_MAX; etag++)
        if (*etag != '"')
            text[n + tag++] = *etag;
    return vv_hash64(text, n + tag) | 1;
}

struct loading {
    struct source *s;
    struct content *c;
    size_t prefix_bytes;
    bool any;
};

static int grow(void **at, size_t *room, size_t need, size_t size)
{
    size_t more = VV_MAX(VV_MAX(2 * *room, need), (size_t)64);
    void *p;

    if (need <= *room)
        return 0;
    p = realloc(*at, more * size);
    if (!p)
        return -ENOMEM;
    *at = p;
    *room = more;
    return 0;
}

/* Leaves out names that a path cannot have, and an object that stands for the folder itself. But any entry shows that
 * the folder exists. */
static int take_entry(void *user, const struct vv_s3_entry *e)
{
    struct loading *l = user;
    struct content *c = l->c;
    size_t n = strlen(e->key), bytes;
    const char *name = e->key + l->prefix_bytes;

    l->any = true;
    if (n <= l->prefix_bytes || n > KEY_MAX)
        return 0;
    bytes = n - l->prefix_bytes - e->is_prefix;
    if (bytes == 0 || bytes > 255 || memchr(name, '/', bytes) ||
        (name[0] == '.' && (bytes == 1 || (bytes == 2 && name[1] == '.'))))
        return 0;
    if (grow((void **)&c->names, &c->room, c->nr + 1, sizeof(*c->names)) < 0 ||
        grow((void **)&c->text, &c->text_room, c->text_bytes + bytes + 1, 1) < 0)
        return -ENOMEM;
    c->names[c->nr++] = (struct name){
        .bytes = e->bytes,
        .inode = inode_of(e->key, e->is_prefix ? "" : e->etag),
        .modified_s = e->modified_s,
        .at = c->text_bytes,
        .folder = e->is_prefix,
    };
    memcpy(c->text + c->text_bytes, name, bytes);
    c->text_bytes += bytes;
    c->text[c->text_bytes++] = '\0';
    return 0;
}

static int by_name(const void *a, const void *b, void *text)
{
    const struct name *x = a, *y = b;
    int d = strcmp((char *)text + x->at, (char *)text + y->at);

    return d ? d : (int)y->folder - (int)x->folder;
}

/* If a key is also a folder's, the folder hides the object. */
static void sort_names(struct content *c)
{
    size_t nr = 0;

    if (c->nr > 1)
        qsort_r(c->names, c->nr, sizeof(*c->names), by_name, c->text);
    for (size_t i = 0; i < c->nr; i++)
        if (nr == 0 || strcmp(c->text + c->names[nr - 1].at, c->text + c->names[i].at) != 0)
            c->names[nr++] = c->names[i];
    c->nr = nr;
}

/* Logs the reason of an error, but not of each one. */
static void complain(struct source *s, const char *key, const char *why)
{
    uint64_t now_ns = vv_now_ns();
    bool say;

    vv_mutex_lock(&s->lock);
    say = s->logged_ns == 0 || now_ns - s->logged_ns > LOG_NS;
    if (say)
        s->logged_ns = now_ns;
    vv_mutex_unlock(&s->lock);
    if (say)
        vv_log(VV_LOG_WARNING, "s3://%s/%s: %s", s->bucket, key, why);
}

/* `prefix` is a folder's, or "". -ENOENT: no object is below it. */
static int load(struct source *s, const char *prefix, struct content **ret_content)
{
    struct content *c = calloc(1, sizeof(*c));
    struct loading l = {s, c, strlen(prefix), false};
    int rc;

    if (!c)
        return -ENOMEM;
    atomic_init(&c->refs, 1);
    c->looked_ns = vv_now_ns();
    rc = vv_s3_list(s->s3, s->bucket, prefix, false, take_entry, &l);
    if (rc == 0 && !l.any && strcmp(prefix, s->prefix) != 0)
        rc = -ENOENT;
    if (rc < 0) {
        if (rc != -ENOENT || strcmp(prefix, s->prefix) == 0)
            complain(s, prefix, rc == -ENOENT ? "no such bucket" : strerror(-rc));
        unref(c);
        return rc;
    }
    sort_names(c);
    c->took_ns = vv_now_ns() - c->looked_ns;
    *ret_content = c;
    return 0;
}

static bool counts(const struct content *c, uint64_t max_age_ns)
{
    return c &&
           (max_age_ns == 0 || vv_now_ns() - c->looked_ns < VV_MAX(max_age_ns, SHARE * c->took_ns));
}

static void pass_by(void *user, struct vvi_path *e)
{
    struct source *s = user;
    struct folder *f = (struct folder *)e;

    if (f->users == 0 && !f->used) {
        vvi_paths_remove(&s->folders, e);
        unref(f->content);
        free(f);
    } else {
        f->used = false;
    }
}

static struct folder *folder_locked(struct source *s, const char *path)
{
    struct folder *f = vvi_paths_find(&s->folders, path);

    if (!f) {
        if (s->folders.table.n >= FOLDERS_MAX)
            s->hand = vvi_paths_step(&s->folders, s->hand, STEP, pass_by, s);
        f = calloc(1, sizeof(*f));
        if (!f || vvi_paths_add(&s->folders, path, &f->path) < 0) {
            free(f);
            return NULL;
        }
    }
    f->used = true;
    f->users++;
    return f;
}

static void put_locked(struct source *s, struct folder *f)
{
    if (--f->users == 0 && !f->content) {
        vvi_paths_remove(&s->folders, &f->path);
        free(f);
    }
}

/* One thread lists; others that need the same folder wait for it. */
static int list_locked(struct source *s, struct folder *f, const char *prefix)
{
    struct content *c = NULL;
    int rc;

    f->loading = true;
    vv_mutex_unlock(&s->lock);
    rc = load(s, prefix, &c);
    vv_mutex_lock(&s->lock);
    f->loading = false;
    f->rc = rc;
    if (c || rc == -ENOENT) {
        unref(f->content);
        f->content = c;
    }
    f->turn++;
    vv_cond_broadcast(&s->loaded);
    return rc;
}

/* The entries of a folder, no older than `max_age_ns` (0: any age), unless listing takes long. The caller owns the
 * reference. */
static int content_of(struct source *s, const char *prefix, uint64_t max_age_ns,
                      struct content **ret_content)
{
    char path[KEY_MAX + 4];
    struct folder *f;
    int rc = 0;

    snprintf(path, sizeof(path), "/%s", prefix);
    vv_mutex_lock(&s->lock);
    f = folder_locked(s, path);
    if (!f)
        rc = -ENOMEM;
    while (rc == 0 && !counts(f->content, max_age_ns)) {
        uint64_t turn = f->turn;

        if (!f->loading) {
            rc = list_locked(s, f, prefix);
            break;
        }
        while (f->turn == turn)
            vv_cond_wait(&s->loaded, &s->lock);
        rc = f->rc;
        if (f->content)
            break;
    }
    if (rc == 0) {
        *ret_content = f->content;
        atomic_fetch_add(&f->content->refs, 1);
    }
    if (f)
        put_locked(s, f);
    vv_mutex_unlock(&s->lock);
    return rc;
}

/* The store contradicts the listing: the folder has to be listed again. */
static void distrust(struct source *s, const char *key)
{
    char path[KEY_MAX + 4];
    struct folder *f;

    snprintf(path, sizeof(path), "/%s", key);
    strrchr(path, '/')[1] = '\0';
    vv_mutex_lock(&s->lock);
    f = vvi_paths_find(&s->folders, path);
    if (f) {
        unref(f->content);
        f->content = NULL;
        f->users++;
        put_locked(s, f);
    }
    vv_mutex_unlock(&s->lock);
}

static const struct name *name_in(const struct content *c, const char *name)
{
    size_t lo = 0, hi = c->nr;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int d = strcmp(name, c->text + c->names[mid].at);

        if (d == 0)
            return &c->names[mid];
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* ---- files ---- */

static void stat_of(const struct source *s, const struct name *e, uint64_t age_ns,
                    struct vv_shared_stat *st)
{
    uint64_t at_ns = (uint64_t)e->modified_s * VV_NS_PER_S;

    *st = (struct vv_shared_stat){
        .gen = {.size = e->folder ? 0 : e->bytes,
                .mtime_ns = at_ns,
                .ctime_ns = at_ns,
                .inode = e->inode},
        .mode = e->folder ? S_IFDIR | 0555 : S_IFREG | 0444,
        .uid = s->uid,
        .gid = s->gid,
        .nlink = e->folder ? 2 : 1,
        .blksize = 65536,
        .direct = 1,
        .whole = 1,
        .dev = s->dev,
        .blocks = e->folder ? 0 : vv_div_up(e->bytes, 512),
        .atime_ns = at_ns,
        .age_ns = age_ns,
    };
}

/* The key of a path below the root; the key of its folder ends at `*ret_slash`. "": the root itself. */
static int key_of(const struct source *s, const char *path, char key[KEY_MAX + 2],
                  size_t *ret_slash)
{
    size_t n;

    if (strncmp(path, s->path, s->path_bytes) != 0 ||
        (path[s->path_bytes] != '/' && path[s->path_bytes] != '\0'))
        return -EACCES;
    path += s->path_bytes;
    path += *path == '/';
    n = strlen(s->prefix) + strlen(path);
    if (n > KEY_MAX)
        return -ENAMETOOLONG;
    snprintf(key, KEY_MAX + 2, "%s%s", s->prefix, path);
    *ret_slash = n - strlen(path);
    for (size_t i = *ret_slash; i < n; i++)
        if (key[i] == '/')
            *ret_slash = i + 1;
    if (!*path)
        key[0] = '\0';
    return 0;
}

/* Resolves a path: a folder or a file, and its key. */
static int find(struct source *s, const char *path, char key[KEY_MAX + 2],
                struct vv_shared_stat *st)
{
    char prefix[KEY_MAX + 2];
    uint64_t max_age_ns = s->revalidate_ns;
    size_t slash;
    int rc = key_of(s, path, key, &slash);

    if (rc < 0 || key[0] == '\0')
        return rc < 0 ? rc : -EISDIR;
    memcpy(prefix, key, slash);
    prefix[slash] = '\0';
    for (;;) {
        const struct name *e;
        struct content *c;

        rc = content_of(s, prefix, max_age_ns, &c);
        if (rc < 0)
            return rc;
        e = name_in(c, key + slash);
        if (e)
            stat_of(s, e, vv_now_ns() - c->looked_ns, st);
        unref(c);
        if (e)
            return e->folder ? -EISDIR : 0;
        /* Files that never change: a new one may still have appeared. */
        if (max_age_ns != 0)
            return -ENOENT;
        max_age_ns = MISSING_NS;
    }
}

static int s3_look(const struct vv_shared *shared, const char *path,
                   struct vv_shared_stat *ret_stat)
{
    char key[KEY_MAX + 2];
    struct vv_shared_stat st;
    int rc = find((struct source *)(uintptr_t)shared, path, key, &st);

    if (rc == 0)
        *ret_stat = st;
    return rc;
}

static int s3_open(const struct vv_shared *shared, const char *path, intptr_t *ret_file,
                   struct vv_shared_stat *ret_stat)
{
    struct source *s = (struct source *)(uintptr_t)shared;
    char key[KEY_MAX + 2];
    struct vv_shared_stat st;
    struct file *f;
    int rc = find(s, path, key, &st);

    if (rc < 0)
        return rc;
    f = calloc(1, sizeof(*f));
    if (f)
        f->key = strdup(key);
    if (!f || !f->key) {
        free(f);
        return -ENOMEM;
    }
    f->s = s;
    f->st = st;
    *ret_file = (intptr_t)f;
    *ret_stat = st;
    /* Reading its bytes confirms the listing. */
    if (st.gen.size > 0)
        ret_stat->age_ns = 0;
    return 0;
}

static bool take_more(struct source *s)
{
    if (atomic_fetch_add(&s->more, 1) < MORE_MAX)
        return true;
    atomic_fetch_sub(&s->more, 1);
    return false;
}

/* Requests ranges until enough are under way, and always the first of a file. */
static int ask_ranges(struct file *f)
{
    while (f->nr < WINDOW && f->next < f->st.gen.size) {
        struct range *r = &f->range[(f->first + f->nr) % WINDOW];
        uint64_t bytes = VV_MIN(RANGE_BYTES, f->st.gen.size - f->next);
        bool extra = f->nr > 0;

        if (extra && !take_more(f->s))
            return 0;
        r->buf = malloc(bytes);
        if (!r->buf) {
            if (extra)
                atomic_fetch_sub(&f->s->more, 1);
            return extra ? 0 : -ENOMEM;
        }
        r->extra = extra;
        r->req = (struct vv_s3_req){.method = VV_S3_GET,
                                    .bucket = f->s->bucket,
                                    .key = f->key,
                                    .from = f->next,
                                    .bytes = bytes,
                                    .buf = r->buf,
                                    .room = bytes};
        vv_s3_start(f->s->s3, &r->req);
        f->nr++;
        f->next += bytes;
    }
    return 0;
}

/* Ends the first range and frees its buffer: otherwise a file that is read in order would keep WINDOW buffers. */
static void pop_range(struct file *f)
{
    struct range *r = &f->range[f->first];

    free(r->buf);
    if (r->extra)
        atomic_fetch_sub(&f->s->more, 1);
    f->first = (f->first + 1) % WINDOW;
    f->nr--;
}

static void drop_ranges(struct file *f)
{
    for (unsigned i = 0; i < f->nr; i++)
        vv_s3_cancel(f->s->s3, &f->range[(f->first + i) % WINDOW].req);
    while (f->nr > 0) {
        (void)vv_s3_wait(f->s->s3, &f->range[f->first].req);
        pop_range(f);
    }
}

/* Checks that a range is of the object that was listed. */
static int check_range(struct file *f, const struct vv_s3_req *req)
{
    int rc = req->rc;

    if (rc == 0 &&
        (inode_of(f->key, req->etag) != f->st.gen.inode || req->object_bytes != f->st.gen.size))
        rc = -EAGAIN;
    else if (rc == 0 && req->got != req->bytes)
        rc = -EIO;
    if (rc == -ENODATA) /* it is shorter now */
        rc = -EAGAIN;
    if (rc == -EAGAIN || rc == -ENOENT)
        distrust(f->s, f->key);
    else if (rc < 0)
        complain(f->s, f->key, req->why[0] ? req->why : strerror(-rc));
    return rc;
}

static int64_t s3_read(const struct vv_shared *shared, intptr_t file, void *buf, size_t bytes,
                       uint64_t offset)
{
    struct file *f = (struct file *)file;
    struct range *r = &f->range[f->first];
    size_t n;
    int rc;

    (void)shared;
    if (offset >= f->st.gen.size)
        return 0;
    if (f->nr == 0 || offset < r->req.from || offset >= r->req.from + r->req.bytes) {
        drop_ranges(f);
        f->next = offset;
    }
    rc = ask_ranges(f);
    if (rc < 0)
        return rc;
    r = &f->range[f->first];
    if (r->req.from == offset) {
        (void)vv_s3_wait(f->s->s3, &r->req);
        rc = check_range(f, &r->req);
        if (rc < 0) {
            drop_ranges(f);
            return rc;
        }
    }
    n = (size_t)VV_MIN(bytes, r->req.from + r->req.bytes - offset);
    memcpy(buf, r->buf + (offset - r->req.from), n);
    if (offset + n == r->req.from + r->req.bytes)
        pop_range(f);
    return (int64_t)n;
}

/* All ranges were checked: they are of one object. */
static int s3_look_again(const struct vv_shared *shared, intptr_t file,
                         struct vv_shared_stat *ret_stat)
{
    (void)shared;
    *ret_stat = ((struct file *)file)->st;
    return 0;
}

static void s3_close(const struct vv_shared *shared, intptr_t file)
{
    struct file *f = (struct file *)file;

    (void)shared;
    drop_ranges(f);
    free(f->key);
    free(f);
}

static bool s3_sole(const struct vv_shared *shared, const char *path)
{
    (void)shared;
    (void)path;
    return true;
}

static int s3_list(const struct vv_shared *shared, const char *path,
                   int (*visit)(void *user, const char *name, const struct vv_shared_stat *st),
                   void *user)
{
    struct source *s = (struct source *)(uintptr_t)shared;
    char key[KEY_MAX + 2], prefix[KEY_MAX + 3];
    struct vv_shared_stat st;
    struct content *c;
    int rc = find(s, path, key, &st);

    /* A folder's name, or no name: the folder's own listing shows if no object is below it. */
    if (rc == 0)
        return -ENOTDIR;
    if (rc != -EISDIR)
        return rc;
    if (key[0] == '\0')
        snprintf(prefix, sizeof(prefix), "%s", s->prefix);
    else
        snprintf(prefix, sizeof(prefix), "%s/", key);
    rc = content_of(s, prefix, s->revalidate_ns ? s->revalidate_ns : MISSING_NS, &c);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < c->nr && rc == 0; i++) {
        stat_of(s, &c->names[i], vv_now_ns() - c->looked_ns, &st);
        rc = visit(user, c->text + c->names[i].at, &st);
    }
    unref(c);
    return rc;
}

/* ---- opening and closing ---- */

static void free_folder(struct vvi_path *e)
{
    unref(((struct folder *)e)->content);
    free(e);
}

static void s3_free(struct vv_shared *shared)
{
    struct source *s = (struct source *)shared;

    vvi_paths_fini(&s->folders, free_folder);
    vv_s3_free(s->s3);
    vv_cond_fini(&s->loaded);
    vv_mutex_fini(&s->lock);
    free(s->bucket);
    free(s->prefix);
    free(s->path);
    free(s);
}

int vv_shared_s3_new(const char *url, const char *path, uint64_t revalidate_ns, char *err,
                     size_t err_bytes, struct vv_shared **ret_shared)
{
    struct vv_root root = {(char *)(uintptr_t)path, (char *)(uintptr_t)url};
    struct source *s = calloc(1, sizeof(*s));
    struct vv_s3_opts opts = {0};
    char *prefix = NULL;
    int rc;

    if (!s)
        return -ENOMEM;
    vv_mutex_init(&s->lock, "bucket", VV_RANK_STORE);
    vv_cond_init(&s->loaded);
    s->ops = (struct vv_shared){.look = s3_look,
                                .open = s3_open,
                                .read = s3_read,
                                .look_again = s3_look_again,
                                .close = s3_close,
                                .free = s3_free,
                                .sole = s3_sole,
                                .list = s3_list};
    s->revalidate_ns = revalidate_ns;
    s->dev = vv_root_dev(&root);
    s->uid = (uint32_t)geteuid();
    s->gid = (uint32_t)getegid();
    s->path = strdup(path);
    s->path_bytes = strlen(path);
    rc = s->path ? vv_s3_url_parse(url, &s->bucket, &prefix) : -ENOMEM;
    if (rc == 0) {
        s->prefix = malloc(strlen(prefix) + 2);
        if (s->prefix)
            sprintf(s->prefix, "%s%s", prefix, prefix[0] ? "/" : "");
        rc = s->prefix ? 0 : -ENOMEM;
        free(prefix);
    }
    if (rc == 0)
        rc = vv_s3_new(&opts, err, err_bytes, &s->s3);
    else
        snprintf(err, err_bytes, "roots: %s: %s", url, strerror(-rc));
    if (rc < 0) {
        s3_free(&s->ops);
        return rc;
    }
    *ret_shared = &s->ops;
    return 0;
}
