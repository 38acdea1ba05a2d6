/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the stores: pages with a pattern, whole objects written and read, and
 * every combination of I/O mode and backend. */
#ifndef STORE_TEST_H
#define STORE_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fault_os.h"
#include "store/files/ckfile.h"
#include "store/store.h"
#include "t.h"

#define ST_PAGE      16384u
#define ST_PAGES_MAX 64u

struct st_object {
    struct vv_store_key key;
    uint64_t size;
    uint32_t nchunks;
    void *mem[ST_PAGES_MAX];
    struct vv_store_region region[2];
    struct vv_store_meta meta;
};

static inline unsigned char st_byte(uint64_t version, uint64_t at)
{
    return (unsigned char)(version * 131 + at * 7 + (at >> 8) * 13 + (at >> 16));
}

/* Two regions, pages backwards in memory. */
static inline void st_object_init(struct st_object *o, struct vv_files *files, uint64_t version,
                                  uint64_t generation, uint64_t size, uint32_t page)
{
    memset(o, 0, sizeof(*o));
    o->key = (struct vv_store_key){files, version, generation};
    o->size = size;
    o->nchunks = (uint32_t)vv_div_up(size, page);
    T_CHECK(o->nchunks <= ST_PAGES_MAX);
    for (uint32_t i = o->nchunks; i-- > 0;)
        T_OK(-posix_memalign(&o->mem[i], 4096, page));
    for (uint64_t at = 0; at < size; at++)
        ((unsigned char *)o->mem[at / page])[at % page] = st_byte(version, at);
    o->region[0] = (struct vv_store_region){.id = 7, .bytes = size / 3};
    o->region[1] = (struct vv_store_region){.id = -2, .bytes = size - size / 3};
    o->meta = (struct vv_store_meta){.nregions = 2, .regions = o->region};
}

static inline void st_object_fini(struct st_object *o)
{
    for (uint32_t i = 0; i < ST_PAGES_MAX; i++)
        free(o->mem[i]);
    memset(o, 0, sizeof(*o));
}

static inline void st_object_clear(struct st_object *o, uint32_t page)
{
    for (uint32_t i = 0; i < o->nchunks; i++)
        memset(o->mem[i], 0xee, page);
}

static inline bool st_object_intact(const struct st_object *o, uint32_t page)
{
    for (uint64_t at = 0; at < o->size; at++)
        if (((unsigned char *)o->mem[at / page])[at % page] != st_byte(o->key.version, at))
            return false;
    return true;
}

static inline struct vv_store_io st_io(struct st_object *o, enum vv_store_op op, uint32_t chunk0,
                                       uint32_t nchunks)
{
    return (struct vv_store_io){.op = op,
                                .key = o->key,
                                .size = o->size,
                                .chunk0 = chunk0,
                                .nchunks = nchunks,
                                .mem = &o->mem[chunk0],
                                .meta = &o->meta,
                                .status = 12345};
}

/* Runs one request to its end. */
static inline int st_run(struct vv_store *s, struct vv_store_io *io)
{
    struct vv_store_io *done = NULL;
    int rc = s->ops->submit(s, io);
    if (rc < 0)
        return rc;
    do
        rc = s->ops->poll(s, &done, 1, -1);
    while (rc == 0);
    T_EQ(rc, 1);
    T_CHECK(done == io);
    T_CHECK(io->status <= 0);
    return io->status;
}

static inline int st_do(struct vv_store *s, struct st_object *o, enum vv_store_op op)
{
    struct vv_store_io io = st_io(o, op, 0, o->nchunks);
    return st_run(s, &io);
}

/* Writes all chunks in one batch, and commits. */
static inline int st_put(struct vv_store *s, struct st_object *o)
{
    int rc = o->nchunks > 0 ? st_do(s, o, VV_STORE_WRITE) : 0;
    return rc < 0 ? rc : st_do(s, o, VV_STORE_COMMIT);
}

/* Writes and commits a new version, and frees the object. */
static inline int st_put_version(struct vv_store *s, struct vv_files *f, uint64_t version,
                                 uint64_t generation, uint64_t size, uint32_t page)
{
    struct st_object o;
    st_object_init(&o, f, version, generation, size, page);
    int rc = st_put(s, &o);
    st_object_fini(&o);
    return rc;
}

/* Reads a version back and compares. */
static inline int st_check_version(struct vv_store *s, struct vv_files *f, uint64_t version,
                                   uint64_t generation, uint64_t size, uint32_t page)
{
    struct st_object o;
    st_object_init(&o, f, version, generation, size, page);
    st_object_clear(&o, page);
    int rc = st_do(s, &o, VV_STORE_READ);
    T_CHECK(rc < 0 || st_object_intact(&o, page));
    st_object_fini(&o);
    return rc;
}

/* ---- a folder with a writing and a reading store ---- */

struct st_tier {
    struct vv_store_opts opts;
    struct vv_folder *folder;
    struct vv_store *writer, *reader;
};

static inline void st_tier_open(struct st_tier *t, const char *path)
{
    char err[256] = "";
    int rc = vv_folder_new(path, &t->opts, err, sizeof(err), &t->folder);
    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
    T_OK(vv_folder_store(t->folder, &t->writer));
    T_OK(vv_folder_store(t->folder, &t->reader));
}

static inline void st_tier_close(struct st_tier *t)
{
    t->writer->ops->close(t->writer);
    t->reader->ops->close(t->reader);
    vv_folder_free(t->folder);
}

static inline struct vv_files *st_files_open(struct st_tier *t, const char *history)
{
    struct vv_files *f = NULL;
    char err[256] = "";
    int rc = vv_files_open(t->folder, history, 0, NULL, err, sizeof(err), &f);
    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
    return f;
}

static inline const char *st_path(const char *folder, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* ---- every backend in every mode ---- */

static struct vv_store_opts st_opts;

/* Runs the cases with st_opts set to each combination that this machine supports. */
static inline void st_each_mode(void (*cases)(void))
{
    static const enum vv_aio_backend backends[] = {VV_AIO_THREADS, VV_AIO_URING};
    static const enum vv_store_mode modes[] = {VV_STORE_DIRECT, VV_STORE_BUFFERED};
    for (unsigned b = 0; b < 2; b++) {
        struct vv_aio *aio;
        if (vv_aio_new(NULL, backends[b], 1, &aio) < 0) {
            t_note("io_uring: not available here, not tested");
            continue;
        }
        vv_aio_free(aio);
        for (unsigned m = 0; m < 2; m++) {
            vv_store_opts_init(&st_opts);
            st_opts.backend = backends[b];
            st_opts.mode = modes[m];
            st_opts.page_bytes = ST_PAGE;
            struct vv_folder *probe;
            int rc = vv_folder_new(t_tmpdir(), &st_opts, NULL, 0, &probe);
            if (rc == -EOPNOTSUPP) {
                t_note("direct I/O: refused by this file system, not tested");
                continue;
            }
            T_OK(rc);
            vv_folder_free(probe);
            t_note("%s, %s", b == 0 ? "threads" : "uring", m == 0 ? "direct" : "buffered");
            cases();
        }
    }
}

#endif
