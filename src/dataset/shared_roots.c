/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roots: folders of the shared file system, and addresses in object stores with the folders at which programs see them.
 * With both kinds, one table passes each path to the backend of its root.
 *
 * Immutable once made; any thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/hash.h"
#include "dataset/shared_fs.h"
#include "s3/s3.h"

#define DEV_MINOR UINT64_C(0x80000) /* file systems without a device use numbers from 1 on */

/* ---- names ---- */

char *vv_root_next(char **list)
{
    char *word = *list, *at = word;

    if (!word)
        return NULL;
    while (*at && !(*at == ':' && strncmp(at, "://", 3) != 0))
        at++;
    *list = *at ? at + 1 : NULL;
    *at = '\0';
    return word;
}

void vv_root_clean(char *path)
{
    char *to = path, *at = path;

    while (*at) {
        size_t n;

        while (*at == '/')
            at++;
        n = strcspn(at, "/");
        if (n == 2 && memcmp(at, "..", 2) == 0) {
            while (to > path && *--to != '/')
                ;
        } else if (n > 0 && !(n == 1 && *at == '.')) {
            *to++ = '/';
            memmove(to, at, n);
            to += n;
        }
        at += n;
    }
    if (to == path)
        *to++ = '/';
    *to = '\0';
}

static int parse_address(const char *text, struct vv_root *r, char *err, size_t err_bytes)
{
    const char *path = strrchr(text, '=');
    char *bucket, *prefix;
    int rc;

    if (!path || path[1] != '/') {
        snprintf(err, err_bytes, "roots: %s: expected s3://BUCKET/PREFIX=/FOLDER",
                 vv_s3_url_shown(text));
        return -EINVAL;
    }
    r->url = strndup(text, (size_t)(path - text));
    r->path = strdup(path + 1);
    if (!r->url || !r->path)
        return -ENOMEM;
    vv_root_clean(r->path);
    rc = vv_s3_url_parse(r->url, &bucket, &prefix);
    if (rc == 0) {
        free(bucket);
        free(prefix);
    }
    if (rc == -EINVAL || strcmp(r->path, "/") == 0) {
        snprintf(err, err_bytes, "roots: %s: expected s3://BUCKET/PREFIX=/FOLDER",
                 vv_s3_url_shown(text));
        rc = -EINVAL;
    }
    return rc;
}

int vv_root_parse(const char *text, struct vv_root *ret_root, char *err, size_t err_bytes)
{
    struct vv_root r = {NULL, NULL};
    int rc = 0;

    if (vv_s3_is_url(text)) {
        rc = parse_address(text, &r, err, err_bytes);
    } else if (text[0] != '/') {
        snprintf(err, err_bytes, "roots: %s has to be an absolute path", text);
        rc = -EINVAL;
    } else {
        r.path = strdup(text);
        rc = r.path ? 0 : -ENOMEM;
        for (size_t n = r.path ? strlen(r.path) : 0; n > 1 && r.path[n - 1] == '/'; n--)
            r.path[n - 1] = '\0';
    }
    if (rc < 0) {
        vv_root_fini(&r);
        return rc;
    }
    *ret_root = r;
    return 0;
}

void vv_root_fini(struct vv_root *r)
{
    free(r->path);
    free(r->url);
}

uint64_t vv_root_dev(const struct vv_root *r)
{
    return (uint64_t)makedev(0,
                             DEV_MINOR + vv_hash64(r->url, strlen(r->url)) % (DEV_MINOR - 1) + 1);
}

/* ---- a source of several ---- */

struct roots {
    struct vv_shared ops;      /* first: the functions get a pointer to it */
    struct vv_shared *folders; /* NULL: there are none */
    struct address {
        char *path;
        struct vv_shared *source;
    } * addresses;
    size_t nr;
};

/* An open file and its backend. */
struct opened {
    const struct vv_shared *source;
    intptr_t file;
};

static const struct vv_shared *source_of(const struct vv_shared *s, const char *path)
{
    const struct roots *r = (const struct roots *)s;

    for (size_t i = 0; i < r->nr; i++) {
        size_t n = strlen(r->addresses[i].path);

        if (strncmp(path, r->addresses[i].path, n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return r->addresses[i].source;
    }
    return r->folders;
}

static int roots_look(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat)
{
    const struct vv_shared *source = source_of(s, path);

    return source ? source->look(source, path, ret_stat) : -EACCES;
}

static int roots_open(const struct vv_shared *s, const char *path, intptr_t *ret_file,
                      struct vv_shared_stat *ret_stat)
{
    const struct vv_shared *source = source_of(s, path);
    struct opened *f;
    int rc;

    if (!source)
        return -EACCES;
    f = malloc(sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->source = source;
    rc = source->open(source, path, &f->file, ret_stat);
    if (rc < 0) {
        free(f);
        return rc;
    }
    *ret_file = (intptr_t)f;
    return 0;
}

static int64_t roots_read(const struct vv_shared *s, intptr_t file, void *buf, size_t bytes,
                          uint64_t offset)
{
    const struct opened *f = (const struct opened *)file;

    (void)s;
    return f->source->read(f->source, f->file, buf, bytes, offset);
}

static int roots_look_again(const struct vv_shared *s, intptr_t file,
                            struct vv_shared_stat *ret_stat)
{
    const struct opened *f = (const struct opened *)file;

    (void)s;
    return f->source->look_again(f->source, f->file, ret_stat);
}

static void roots_close(const struct vv_shared *s, intptr_t file)
{
    struct opened *f = (struct opened *)file;

    (void)s;
    f->source->close(f->source, f->file);
    free(f);
}

static void roots_free(struct vv_shared *s)
{
    struct roots *r = (struct roots *)s;

    for (size_t i = 0; i < r->nr; i++) {
        vv_shared_free(r->addresses[i].source);
        free(r->addresses[i].path);
    }
    vv_shared_free(r->folders);
    free(r->addresses);
    free(r);
}

static bool roots_sole(const struct vv_shared *s, const char *path)
{
    const struct vv_shared *source = source_of(s, path);

    return source && source->sole && source->sole(source, path);
}

static int roots_list(const struct vv_shared *s, const char *path,
                      int (*visit)(void *user, const char *name, const struct vv_shared_stat *st),
                      void *user)
{
    const struct vv_shared *source = source_of(s, path);

    return source && source->list ? source->list(source, path, visit, user) : -ENOTSUP;
}

/* Adds addresses to r, and folders to a list of their own. */
static int add_root(struct roots *r, const char *text, const char **folders, size_t *nr_folders,
                    uint64_t revalidate_ns, char *err, size_t err_bytes)
{
    struct address *a = &r->addresses[r->nr];
    struct vv_root root;
    int rc = vv_root_parse(text, &root, err, err_bytes);

    if (rc < 0)
        return rc;
    if (!root.url) {
        folders[(*nr_folders)++] = text;
        vv_root_fini(&root);
        return 0;
    }
    rc = vv_shared_s3_new(root.url, root.path, revalidate_ns, err, err_bytes, &a->source);
    if (rc == 0) {
        a->path = root.path;
        root.path = NULL;
        r->nr++;
    }
    vv_root_fini(&root);
    return rc;
}

int vv_shared_roots_new(const char *const *roots, size_t nr_roots, uint64_t revalidate_ns,
                        char *err, size_t err_bytes, struct vv_shared **ret_shared)
{
    struct roots *r = calloc(1, sizeof(*r));
    const char **folders = calloc(nr_roots + 1, sizeof(*folders));
    size_t nr_folders = 0;
    int rc = r && folders ? 0 : -ENOMEM;

    if (rc == 0) {
        r->ops = (struct vv_shared){.look = roots_look,
                                    .open = roots_open,
                                    .read = roots_read,
                                    .look_again = roots_look_again,
                                    .close = roots_close,
                                    .free = roots_free,
                                    .sole = roots_sole,
                                    .list = roots_list};
        r->addresses = calloc(nr_roots + 1, sizeof(*r->addresses));
        rc = r->addresses ? 0 : -ENOMEM;
    }
    for (size_t i = 0; i < nr_roots && rc == 0; i++)
        rc = add_root(r, roots[i], folders, &nr_folders, revalidate_ns, err, err_bytes);
    if (rc == 0 && (nr_folders > 0 || nr_roots == 0)) {
        rc = vv_shared_new(folders, nr_folders, &r->folders);
        if (rc < 0)
            snprintf(err, err_bytes, "roots: %s", strerror(-rc));
    }
    free(folders);
    if (rc < 0) {
        if (r)
            roots_free(&r->ops);
        return rc;
    }
    /* If all roots are folders, no table has to choose. */
    if (r->nr == 0) {
        *ret_shared = r->folders;
        r->folders = NULL;
        roots_free(&r->ops);
    } else {
        *ret_shared = &r->ops;
    }
    return 0;
}
