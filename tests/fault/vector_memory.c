/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth allocation of a call on a vector fails, for every N: the call succeeds or returns
 * -ENOMEM or -ENOSPC, the vector is unchanged, or after a read without elements, and the same call
 * succeeds afterwards. The linker passes every allocation of the library through this file
 * (cmake/VarveTests.cmake); those of the calling thread count.
 */
#include <stdlib.h>

#include <varve/vector.h>

#include "fault/fail_alloc.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, COUNT = 3000, MOST = 200 };

/* ---- a vector of COUNT elements with values from 7 on, and record 1 with other values ---- */

struct fixture {
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct varve_vector *v;
};

static void fill(struct varve_vector *v, uint64_t from)
{
    for (size_t i = 0; i < v->size; i++)
        VARVE_AT(v, uint64_t, i) = from + i;
}

static bool holds(const struct varve_vector *v, size_t n, uint64_t from)
{
    bool same = v->size == n && v->capacity >= n;
    for (size_t i = 0; i < n && same; i++)
        same = VARVE_AT(v, uint64_t, i) == from + i;
    return same;
}

static struct fixture fixture(bool disk, int consume)
{
    struct varve_history_opts o;
    struct fixture f;
    f.ctx = ck_open(&(struct ck_cfg){.host_cache = 64 * PAGE,
                                     .local = disk ? t_tmpdir() : NULL,
                                     .level = disk ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED});
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.consume = consume;
    T_OK(varve_history_open_with(f.ctx, "v", &o, &f.h));
    T_OK(varve_vector_new(f.h, sizeof(uint64_t), COUNT / 2, &f.v));
    fill(f.v, 1000);
    T_OK(varve_vector_write(f.v, 1));
    T_OK(varve_flush(f.h, CK_LIMIT_MS));
    T_OK(varve_vector_resize(f.v, COUNT));
    fill(f.v, 7);
    return f;
}

static void fixture_end(struct fixture *f)
{
    varve_vector_free(f->v);
    T_OK(varve_close(f->ctx));
}

static int run(int (*call)(struct fixture *f), struct fixture *f, long nth)
{
    allocs = 0;
    fails_at = nth;
    counting = true;
    int rc = call(f);
    counting = false;
    return rc;
}

/* After a failure the vector is unchanged or, with `empties`, may have no elements. `after`: its state after success. */
static void every(int (*call)(struct fixture *f), bool (*after)(const struct fixture *f),
                  bool empties, bool disk, int consume)
{
    long nth = 0, failed = 0;
    do {
        struct fixture f = fixture(disk, consume);
        int rc = run(call, &f, ++nth);
        long seen = allocs;
        if (rc != 0) {
            failed++;
            /* Without memory for its bookkeeping, free space counts as none. */
            T_CHECK(rc == -ENOMEM || rc == -ENOSPC);
            T_CHECK(holds(f.v, COUNT, 7) || (empties && f.v->size == 0));
            T_OK(run(call, &f, 0));
        }
        T_CHECK(after(&f));
        fixture_end(&f);
        if (seen < nth)
            break; /* the call has no more allocations */
    } while (nth < MOST);
    t_note("%ld allocations, %ld of them needed", nth - 1, failed);
    T_CHECK(nth > 1 && nth < MOST);
}

/* ---- calls ---- */

static int call_grow(struct fixture *f)
{
    return varve_vector_resize(f->v, COUNT + 1000);
}

static bool after_grow(const struct fixture *f)
{
    return f->v->size == COUNT + 1000 && VARVE_AT(f->v, uint64_t, COUNT - 1) == COUNT + 6 &&
           VARVE_AT(f->v, uint64_t, COUNT + 999) == 0;
}

static void growing(void)
{
    every(call_grow, after_grow, false, false, VARVE_CONSUME_KEEP);
}

static int call_write(struct fixture *f)
{
    return varve_vector_write(f->v, 2);
}

static bool after_write(const struct fixture *f)
{
    T_CHECK(holds(f->v, COUNT, 7));
    T_OK(varve_vector_read(f->v, 2));
    return holds(f->v, COUNT, 7) && ck_count(f->h) == 2;
}

static int call_move(struct fixture *f)
{
    return varve_vector_write_move(f->v, 2);
}

static bool after_move(const struct fixture *f)
{
    T_CHECK(f->v->size == 0 && !f->v->data);
    T_OK(varve_vector_read(f->v, 2));
    return holds(f->v, COUNT, 7) && ck_count(f->h) == 2;
}

static void writing(void)
{
    for (int disk = 0; disk < 2; disk++) {
        every(call_write, after_write, false, disk, VARVE_CONSUME_KEEP);
        every(call_move, after_move, false, disk, VARVE_CONSUME_KEEP);
    }
}

static int call_read(struct fixture *f)
{
    return varve_vector_read(f->v, 1);
}

static bool after_read(const struct fixture *f)
{
    return holds(f->v, COUNT / 2, 1000);
}

/* By an exchange, if the copy below stays, and by a copy. */
static void reading(void)
{
    every(call_read, after_read, true, false, VARVE_CONSUME_KEEP);
    every(call_read, after_read, true, true, VARVE_CONSUME_KEEP);
    every(call_read, after_read, true, false, VARVE_CONSUME_ONCE);
}

static int call_copy(struct fixture *f)
{
    struct varve_vector *w = NULL;
    int rc = varve_vector_copy(f->v, &w);
    T_CHECK(rc == 0 ? holds(w, COUNT, 7) : !w);
    varve_vector_free(w);
    return rc;
}

static bool after_copy(const struct fixture *f)
{
    return holds(f->v, COUNT, 7);
}

static void copying(void)
{
    every(call_copy, after_copy, false, false, VARVE_CONSUME_KEEP);
}

int main(void)
{
    T_RUN(growing);
    T_RUN(writing);
    T_RUN(reading);
    T_RUN(copying);
    return t_done();
}
