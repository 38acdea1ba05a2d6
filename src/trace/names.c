/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for names, so that a record can refer to a name.
 *
 * An open-addressed table of pointers that only grows: new names are added under a lock, and a lookup needs no lock. The
 * table is at most half full, so that every search ends at an empty slot. Names are never freed, because any record may
 * refer to them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/lock.h"
#include "trace/trace_private.h"

enum { SLOTS = 8192, NAMES_MAX = SLOTS / 2 };

struct name {
    uint64_t hash;
    uint32_t number, bytes;
    char text[];
};

static struct {
    struct vv_mutex lock;
    /* Synchronization: stored with release under the lock, loaded with acquire: a thread that sees the
     * pointer sees the name. */
    _Atomic(struct name *) slot[SLOTS];
    _Atomic(struct name *) by_number[NAMES_MAX];
    _Atomic uint32_t count; /* stored with release after by_number */
} names;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_lock(void)
{
    vv_mutex_init(&names.lock, "trace names", VV_RANK_TRACE);
}

static void init(void)
{
    init_lock();
    /* A child may be forked while another thread adds a name: reinitialise the lock; the name is complete in
     * the table, or not there. */
    (void)pthread_atfork(NULL, NULL, init_lock);
}

/* The slot of the name, or the empty slot for it. */
static _Atomic(struct name *) *search(uint64_t hash, const char *text, size_t bytes,
                                      struct name **ret_name)
{
    for (uint64_t i = hash;; i++) {
        _Atomic(struct name *) *slot = &names.slot[i % SLOTS];
        struct name *n = atomic_load_explicit(slot, memory_order_acquire);

        if (!n || (n->hash == hash && n->bytes == bytes && memcmp(n->text, text, bytes) == 0)) {
            *ret_name = n;
            return slot;
        }
    }
}

static uint32_t add_locked(uint64_t hash, const char *text, size_t bytes)
{
    struct name *n;
    _Atomic(struct name *) *slot = search(hash, text, bytes, &n);
    uint32_t count = atomic_load_explicit(&names.count, memory_order_relaxed);

    if (n)
        return n->number;
    n = count < NAMES_MAX ? malloc(sizeof(*n) + bytes + 1) : NULL;
    if (!n)
        return VV_TRACE_NAME_OTHER;
    n->hash = hash;
    n->number = count;
    n->bytes = (uint32_t)bytes;
    memcpy(n->text, text, bytes);
    n->text[bytes] = '\0';
    atomic_store_explicit(&names.by_number[count], n, memory_order_release);
    /* Pairs with the acquire in vvi_trace_names: a thread that finds the name finds it counted. */
    atomic_store_explicit(&names.count, count + 1, memory_order_release);
    atomic_store_explicit(slot, n, memory_order_release);
    return count;
}

static uint32_t find_or_add(const char *text, size_t bytes)
{
    uint64_t hash = vv_hash64(text, bytes);
    struct name *n;

    (void)search(hash, text, bytes, &n);
    if (n)
        return n->number;
    pthread_once(&once, init);
    vv_mutex_lock(&names.lock);
    /* The first two are the fallbacks of vv_trace_name. */
    if (atomic_load_explicit(&names.count, memory_order_relaxed) == 0) {
        static const char *const fixed[] = {"(unnamed)", "(other)"};

        for (size_t i = 0; i < VV_ARRAY_SIZE(fixed); i++)
            (void)add_locked(vv_hash64(fixed[i], strlen(fixed[i])), fixed[i], strlen(fixed[i]));
    }
    uint32_t number = add_locked(hash, text, bytes);
    vv_mutex_unlock(&names.lock);
    return number;
}

uint32_t vv_trace_name(const char *text)
{
    return text ? find_or_add(text, strnlen(text, VV_TRACE_NAME_BYTES)) : VV_TRACE_NAME_UNNAMED;
}

uint32_t vvi_trace_names(void)
{
    return atomic_load_explicit(&names.count, memory_order_acquire);
}

const char *vvi_trace_name_text(uint32_t name)
{
    const struct name *n = name < NAMES_MAX
                               ? atomic_load_explicit(&names.by_number[name], memory_order_acquire)
                               : NULL;

    return n ? n->text : "?";
}
