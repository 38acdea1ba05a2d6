/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the stand-in: device memory, managed memory, pinned host memory, and the attributes of pointers.
 *
 * Device memory is host memory at another address: the application gets an address range that the processor must not
 * touch (unless `guard` is 0), so that code that dereferences a device pointer crashes here as on a real device. All
 * ranges are in one array sorted by address; they never overlap.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "private.h"

static struct {
    struct fake_mem *at;
    size_t n, room;
    uint64_t next_id;
    uint64_t used[FAKE_MAX_DEVICES];
} table;

/* The first range that ends behind `at`. */
static size_t find_index(uintptr_t at)
{
    size_t lo = 0, hi = table.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (table.at[mid].at + table.at[mid].bytes <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct fake_mem *fake_mem_find(uintptr_t at)
{
    size_t i = find_index(at);
    return i < table.n && table.at[i].at <= at ? &table.at[i] : NULL;
}

static bool overlaps(uintptr_t at, size_t bytes)
{
    size_t i = find_index(at);
    return i < table.n && table.at[i].at < at + bytes;
}

bool fake_mem_is_device(const struct fake_mem *m)
{
    return m && (m->kind == FAKE_DEVICE || m->kind == FAKE_MANAGED);
}

int fake_mem_range(uintptr_t at, size_t bytes, char **ret_real, const struct fake_mem **ret_mem)
{
    if (at == 0 || at + bytes < at)
        return FAKE_INVALID_VALUE;
    const struct fake_mem *m = fake_mem_find(at);
    if (m && bytes > m->at + m->bytes - at)
        return FAKE_INVALID_VALUE;
    if (!m && bytes && overlaps(at, bytes))
        return FAKE_INVALID_VALUE;
    *ret_real = m ? m->real + (at - m->at) : (char *)at;
    *ret_mem = m;
    return 0;
}

size_t fake_mem_count(bool registered)
{
    size_t n = 0;
    for (size_t i = 0; i < table.n; i++)
        n += (table.at[i].kind == FAKE_REGISTERED) == registered &&
             table.at[i].kind != FAKE_HOST_ALLOC;
    return n;
}

static int insert(struct fake_mem m)
{
    if (table.n == table.room) {
        size_t room = table.room ? 2 * table.room : 64;
        void *at = realloc(table.at, room * sizeof(*table.at));
        if (!at)
            return FAKE_OUT_OF_MEMORY;
        table.at = at;
        table.room = room;
    }
    m.id = ++table.next_id;
    m.life = m.ctx->life;
    size_t i = find_index(m.at);
    memmove(&table.at[i + 1], &table.at[i], (table.n - i) * sizeof(*table.at));
    table.at[i] = m;
    table.n++;
    if (m.kind == FAKE_DEVICE)
        table.used[m.ctx->dev] += m.bytes;
    return 0;
}

static void erase(size_t i)
{
    if (table.at[i].kind == FAKE_DEVICE)
        table.used[table.at[i].ctx->dev] -= table.at[i].bytes;
    table.n--;
    memmove(&table.at[i], &table.at[i + 1], (table.n - i) * sizeof(*table.at));
}

/* NULL if the host is out of memory. */
static char *map_pages(size_t bytes, int prot)
{
    void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void unmap_pages(const struct fake_mem *m)
{
    if (m->kind == FAKE_REGISTERED)
        return;
    munmap(m->real, m->bytes);
    if ((char *)m->at != m->real)
        munmap((void *)m->at, m->bytes);
}

void fake_mem_drop(struct fake_ctx *c, unsigned life)
{
    for (size_t i = 0; i < table.n;) {
        struct fake_mem m = table.at[i];
        if (m.ctx != c || m.life != life) {
            i++;
            continue;
        }
        erase(i);
        unmap_pages(&m);
    }
}

static int make(size_t bytes, enum fake_kind kind, unsigned flags, uintptr_t *ret_at)
{
    struct fake_ctx *c = fake_current();
    if (bytes == 0)
        return FAKE_INVALID_VALUE;
    uint64_t total = (uint64_t)fake_set.memory;
    if (kind == FAKE_DEVICE && (bytes > total || table.used[c->dev] + bytes > total))
        return FAKE_OUT_OF_MEMORY;
    struct fake_mem m = {.bytes = bytes, .kind = kind, .ctx = c, .flags = flags};
    m.real = map_pages(bytes, PROT_READ | PROT_WRITE);
    if (!m.real)
        return FAKE_OUT_OF_MEMORY;
    bool guarded = kind == FAKE_DEVICE && fake_set.guard;
    m.at = (uintptr_t)(guarded ? map_pages(bytes, PROT_NONE) : m.real);
    if (!m.at) {
        munmap(m.real, bytes);
        return FAKE_OUT_OF_MEMORY;
    }
    int rc = insert(m);
    if (rc)
        unmap_pages(&m);
    else
        *ret_at = m.at;
    return rc;
}

/* `host`: free pinned host memory. Waits for work that may use the memory. */
static int destroy(uintptr_t at, bool host)
{
    struct fake_mem *found = fake_mem_find(at);
    if (!found || found->at != at || found->kind == FAKE_REGISTERED ||
        (found->kind == FAKE_HOST_ALLOC) != host)
        return FAKE_INVALID_VALUE;
    struct fake_mem m = *found;
    fake_drain(m.ctx->dev);
    /* The table may have changed meanwhile, and another thread may have freed the range. */
    found = fake_mem_find(at);
    if (!found || found->id != m.id)
        return FAKE_INVALID_VALUE;
    erase((size_t)(found - table.at));
    unmap_pages(&m);
    return 0;
}

/* ---- device and managed memory ---- */

API int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
    ENTER(cuMemGetInfo, FAKE_NEED_CTX);
    uint64_t total = (uint64_t)fake_set.memory, used = table.used[fake_current()->dev];
    *ret_free = used < total ? total - used : 0;
    *ret_total = total;
    LEAVE(0);
}

API int cuMemAlloc_v2(uintptr_t *ret_at, size_t bytes)
{
    ENTER(cuMemAlloc, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(make(bytes, FAKE_DEVICE, 0, ret_at));
}

API int cuMemAllocManaged(uintptr_t *ret_at, size_t bytes, unsigned flags)
{
    ENTER(cuMemAllocManaged, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(make(bytes, FAKE_MANAGED, flags, ret_at));
}

API int cuMemFree_v2(uintptr_t at)
{
    ENTER(cuMemFree, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(at ? destroy(at, false) : 0);
}

API int cuMemGetAddressRange_v2(uintptr_t *ret_base, size_t *ret_bytes, uintptr_t at)
{
    ENTER(cuMemGetAddressRange, FAKE_NEED_CTX);
    struct fake_mem *m = fake_mem_find(at);
    if (!m)
        LEAVE(FAKE_NOT_FOUND);
    if (ret_base)
        *ret_base = m->at;
    if (ret_bytes)
        *ret_bytes = m->bytes;
    LEAVE(0);
}

/* Managed memory is on host and device at once here: advice is checked and has no effect. */
static int advise(uintptr_t at, size_t bytes)
{
    const struct fake_mem *m;
    char *real;
    int rc = fake_mem_range(at, bytes, &real, &m);
    return rc ? rc : m && m->kind == FAKE_MANAGED ? 0 : FAKE_INVALID_VALUE;
}

API int cuMemAdvise(uintptr_t at, size_t bytes, int advice, int dev)
{
    ENTER(cuMemAdvise, FAKE_NEED_CTX);
    (void)advice, (void)dev;
    LEAVE(advise(at, bytes));
}

/* The location is a structure of two ints, passed in one register. */
struct location {
    int type, id;
};

API int cuMemAdvise_v2(uintptr_t at, size_t bytes, int advice, struct location where)
{
    ENTER(cuMemAdvise, FAKE_NEED_CTX);
    (void)advice, (void)where;
    LEAVE(advise(at, bytes));
}

static int prefetch(uintptr_t at, size_t bytes, void *stream)
{
    struct fake_stream *s;
    int rc = advise(at, bytes);
    if (rc == 0)
        rc = fake_stream_find(stream, &s);
    if (rc)
        return rc;
    struct fake_op *op = fake_op_new(FAKE_OP_MARK);
    return op ? fake_submit(s, op) : FAKE_OUT_OF_MEMORY;
}

API int cuMemPrefetchAsync(uintptr_t at, size_t bytes, int dev, void *stream)
{
    ENTER(cuMemPrefetchAsync, FAKE_NEED_CTX);
    (void)dev;
    LEAVE(prefetch(at, bytes, stream));
}

API int cuMemPrefetchAsync_v2(uintptr_t at, size_t bytes, struct location where, unsigned flags,
                              void *stream)
{
    ENTER(cuMemPrefetchAsync, FAKE_NEED_CTX);
    (void)where;
    LEAVE(flags ? FAKE_INVALID_VALUE : prefetch(at, bytes, stream));
}

/* ---- host memory ---- */

static int host_alloc(void **ret_ptr, size_t bytes, unsigned flags)
{
    uintptr_t at;
    int rc = make(bytes, FAKE_HOST_ALLOC, flags, &at);
    if (rc == 0)
        *ret_ptr = (void *)at;
    return rc;
}

API int cuMemAllocHost_v2(void **ret_ptr, size_t bytes)
{
    ENTER(cuMemAllocHost, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(host_alloc(ret_ptr, bytes, 0));
}

API int cuMemHostAlloc(void **ret_ptr, size_t bytes, unsigned flags)
{
    ENTER(cuMemHostAlloc, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(host_alloc(ret_ptr, bytes, flags));
}

API int cuMemFreeHost(void *ptr)
{
    ENTER(cuMemFreeHost, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(destroy((uintptr_t)ptr, true));
}

static bool is_mapped(uintptr_t at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = at & ~(page - 1);
    return msync((void *)first, at + bytes - first, MS_ASYNC) == 0;
}

API int cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
    uintptr_t at = (uintptr_t)ptr;
    ENTER(cuMemHostRegister, FAKE_NEED_CTX | FAKE_NEED_CALM);
    if (!ptr || bytes == 0 || at + bytes < at || !is_mapped(at, bytes))
        LEAVE(FAKE_INVALID_VALUE);
    if (overlaps(at, bytes))
        LEAVE(FAKE_ALREADY_REGISTERED);
    int rc = insert((struct fake_mem){.at = at,
                                      .real = ptr,
                                      .bytes = bytes,
                                      .kind = FAKE_REGISTERED,
                                      .ctx = fake_current(),
                                      .flags = flags});
    if (rc == 0 && fake_set.rate_register > 0) {
        /* With the lock held, to block the other calls. */
        double s = (double)bytes / (double)fake_set.rate_register;
        struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
        nanosleep(&t, NULL);
    }
    LEAVE(rc);
}

API int cuMemHostUnregister(void *ptr)
{
    ENTER(cuMemHostUnregister, FAKE_NEED_CTX | FAKE_NEED_CALM);
    struct fake_mem *found = fake_mem_find((uintptr_t)ptr);
    if (!ptr)
        LEAVE(FAKE_INVALID_VALUE);
    if (!found || found->at != (uintptr_t)ptr || found->kind != FAKE_REGISTERED)
        LEAVE(FAKE_NOT_REGISTERED);
    struct fake_mem m = *found;
    fake_drain(m.ctx->dev);
    found = fake_mem_find((uintptr_t)ptr);
    if (!found || found->id != m.id)
        LEAVE(FAKE_NOT_REGISTERED);
    erase((size_t)(found - table.at));
    LEAVE(0);
}

API int cuMemHostGetDevicePointer_v2(uintptr_t *ret_at, void *ptr, unsigned flags)
{
    ENTER(cuMemHostGetDevicePointer, FAKE_NEED_CTX);
    struct fake_mem *m = fake_mem_find((uintptr_t)ptr);
    if (flags || !m || fake_mem_is_device(m))
        LEAVE(FAKE_INVALID_VALUE);
    *ret_at = (uintptr_t)ptr;
    LEAVE(0);
}

/* ---- pointers ---- */

enum attribute {
    A_CONTEXT = 1,
    A_MEMORY_TYPE = 2, /* 1 host, 2 device */
    A_DEVICE_POINTER = 3,
    A_HOST_POINTER = 4,
    A_BUFFER_ID = 7,
    A_IS_MANAGED = 8,
    A_DEVICE_ORDINAL = 9,
    A_RANGE_START = 11,
    A_RANGE_SIZE = 12,
    A_MAPPED = 13,
};

/* Unknown memory has zeros, and -2 for its device. */
static int attribute(const struct fake_mem *m, uintptr_t at, int which, void *ret)
{
    bool device = fake_mem_is_device(m);
    switch (which) {
    case A_CONTEXT:
        *(void **)ret = m ? m->ctx : NULL;
        return 0;
    case A_MEMORY_TYPE:
        *(unsigned *)ret = !m ? 0 : device ? 2 : 1;
        return 0;
    case A_DEVICE_POINTER:
        *(uintptr_t *)ret = m ? at : 0;
        return 0;
    case A_HOST_POINTER:
        *(uintptr_t *)ret = m && m->kind != FAKE_DEVICE ? at : 0;
        return 0;
    case A_BUFFER_ID:
        *(unsigned long long *)ret = m ? m->id : 0;
        return 0;
    case A_IS_MANAGED:
        *(unsigned *)ret = m && m->kind == FAKE_MANAGED;
        return 0;
    case A_DEVICE_ORDINAL:
        *(int *)ret = m ? m->ctx->dev : -2;
        return 0;
    case A_RANGE_START:
        *(uintptr_t *)ret = m ? m->at : 0;
        return 0;
    case A_RANGE_SIZE:
        *(size_t *)ret = m ? m->bytes : 0;
        return 0;
    case A_MAPPED:
        *(unsigned *)ret = m != NULL;
        return 0;
    }
    return FAKE_INVALID_VALUE;
}

API int cuPointerGetAttribute(void *ret, int which, uintptr_t at)
{
    ENTER(cuPointerGetAttribute, FAKE_NEED_INIT);
    const struct fake_mem *m = fake_mem_find(at);
    LEAVE(m && ret ? attribute(m, at, which, ret) : FAKE_INVALID_VALUE);
}

API int cuPointerGetAttributes(unsigned n, const int *which, void **ret, uintptr_t at)
{
    ENTER(cuPointerGetAttributes, FAKE_NEED_INIT);
    const struct fake_mem *m = fake_mem_find(at);
    for (unsigned i = 0; i < n; i++) {
        int rc = attribute(m, at, which[i], ret[i]);
        if (rc)
            LEAVE(rc);
    }
    LEAVE(0);
}
