/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/runtime: carries out the orders of engine/core with threads, device streams and storage
 * I/O. See README.md for the threads and the lock.
 *
 * Any function may be called from any thread, vv_engine_close excepted, which comes last. Those
 * that wait take a deadline on the clock of vv_now_ns() (VV_NEVER_NS: none) and return -ETIMEDOUT
 * when it passes; copies already begun on the caller's memory are finished first.
 */
#ifndef VV_ENGINE_RUNTIME_H
#define VV_ENGINE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "device/device.h"
#include "engine/core/core.h"
#include "store/store.h"

struct vv_engine;

struct vv_engine_cfg {
    uint32_t page_bytes;
    uint64_t device_cache_bytes;
    uint64_t host_cache_bytes;
    uint64_t disk_bytes;    /* capacity of the storage tier; 0 on files: the engine sets no limit */
    enum vv_tier_kind disk; /* VV_TIER_SPILL or VV_TIER_FILES, if there are stores */
    bool written_stays;     /* as in struct vv_core_cfg */
    struct vv_device *device;                  /* NULL: none. All of these outlive the engine. */
    struct vv_store *write_store, *read_store; /* both or neither */
    struct vv_helper
        *helper;        /* the helper of the stores: it can reach the host cache; NULL: none */
    struct vv_gds *gds; /* of the stores; NULL: they take host memory only */
    enum vv_policy policy;
    /* Rates in bytes/s to which device and stores slow the hops down; 0: full speed. The engine
     * itself paces copies between host memory and host memory. */
    uint64_t rate[VV_HOP_COUNT];
    uint64_t write_limit; /* bytes/s that the write store lets through; 0: no limit */
    bool check;           /* assert the core's invariants after every step */
    uint32_t trace_id;    /* of the context, in traces */

    /* The `user` words of objects. An object holds one reference, and vv_engine_lookup hands out
     * another. Both are called with the engine's lock held and must not call back. */
    void (*retain_user)(void *arg, uint64_t user);
    void (*release_user)(void *arg, uint64_t user);
    /* Fills in the regions that a committed file lists; `ret_regions` has room for `max` of them.
     * Returns their number, which may be greater: then it is called again with more room, or with
     * none, for the number alone. Called with and without the lock, while the object is alive. */
    uint32_t (*describe_user)(void *arg, uint64_t user, uint64_t size,
                              struct vv_store_region *ret_regions, uint32_t max);
    void *user_arg;
    struct vv_thread_group *group; /* of threads that are started later; NULL: none */
    int copy_helpers; /* threads that help to copy in host memory; 0: by the machine, -1: none */
    /* Called when these pages of the spill have become empty, with the lock held; must not call
     * back. NULL: not needed. */
    void (*pages_gone)(void *arg, uint32_t first, uint32_t n);
    void *pages_arg;
};

/* One piece of the application's memory. The pieces of a request cover its object from the first
 * byte on without gaps; `ptr` NULL skips that part of the object (restores only). */
struct vv_engine_piece {
    char *ptr;
    uint64_t bytes;
    enum vv_mem_kind kind;
};

struct vv_engine_app {
    const struct vv_engine_piece *pieces;
    size_t npieces;
    bool device;      /* enter and leave through the device: at least one piece is device memory */
    bool keep, again; /* of a get: as in struct vv_req */
    bool replace;     /* of a put: the same */
};

/* Most of the host cache is made behind the first requests: see vv_engine_take_memory_error.
 * -ENOMEM, -EINVAL, or the device's error; err gets a text on failure. */
int vv_engine_open(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes,
                   struct vv_engine **ret_engine) VV_WARN_UNUSED;
/* All histories must have been dropped. Waits for transfers in flight. Accepts NULL. */
void vv_engine_close(struct vv_engine *e);

/* `files`: the folder of its committed versions, NULL without a files tier; new files get
 * generations from `first_generation` on. */
int vv_engine_history_new(struct vv_engine *e, const struct vv_core_hist_cfg *cfg,
                          struct vv_files *files, uint64_t first_generation,
                          uint32_t *ret_hist) VV_WARN_UNUSED;
/* Forgets the history and waits until no transfer of it is in flight, so that its files may be
 * closed. Data that is only in memory is lost. */
void vv_engine_history_drop(struct vv_engine *e, uint32_t hist);
/* Before the first put. The caller's reference on `user` is taken on success only. */
int vv_engine_adopt(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                    uint64_t size, uint64_t user, bool reached) VV_WARN_UNUSED;

/* Takes the caller's reference on `user`, also on failure. Errors as vv_core_put. */
int vv_engine_put(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t size,
                  uint64_t user, const struct vv_engine_app *app,
                  uint64_t deadline_ns) VV_WARN_UNUSED;
/* `generation`: of the object that `app` was made for; -ESTALE if it is another one by now. */
int vv_engine_get(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                  const struct vv_engine_app *app, uint64_t deadline_ns,
                  uint32_t *ret_distance) VV_WARN_UNUSED;
/* After vv_engine_get returned -EBADMSG: the tier and the byte range of the damage. -ENOENT: they
 * are no longer recorded, because other versions have failed since. */
int vv_engine_damage(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     int *ret_tier, uint64_t *ret_from, uint64_t *ret_to) VV_WARN_UNUSED;
int vv_engine_wait(struct vv_engine *e, uint32_t hist, uint64_t version, enum vv_core_level level,
                   uint64_t deadline_ns) VV_WARN_UNUSED;

/*
 * Ordered by a stream of the application: its driver's handle, NULL for the default stream. All
 * pieces are device memory. The calls return when every copy is in the stream. A put blocks at most
 * until there is room for the copies, a get until the last chunk is in memory; for data that does
 * not fit memory at once both wait for the stream itself. deadline_ns 0: -EAGAIN if the call would
 * block, and nothing is put in the stream. -ETIMEDOUT: some copies may be in the stream, and the
 * version of a put will never exist. -EBUSY: the stream is being captured.
 *
 * The request ends later, in the background: then the version exists, or the get counts as done.
 * Errors until then are kept for vv_engine_take_ordered_error.
 */
int vv_engine_put_on(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t size,
                     uint64_t user, const struct vv_engine_app *app, void *native,
                     uint64_t deadline_ns) VV_WARN_UNUSED;
int vv_engine_get_on(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     const struct vv_engine_app *app, void *native, uint64_t deadline_ns,
                     uint32_t *ret_distance) VV_WARN_UNUSED;
/* Waits until the stream has come to this point. deadline_ns 0: -EAGAIN if it has not. */
int vv_engine_stream_wait(struct vv_engine *e, void *native, uint64_t deadline_ns) VV_WARN_UNUSED;
/* Takes the oldest error of an ordered request of the history, or of this version of it; 0: none.
 * `ret_kind`: whether it was a put or a get. */
int vv_engine_take_ordered_error(struct vv_engine *e, uint32_t hist, const uint64_t *version,
                                 uint64_t *ret_version, enum vv_req_kind *ret_kind);
/* Waits until no request of the history waits for a stream; -ETIMEDOUT. */
int vv_engine_wait_ordered(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;
/* Waits until every version is complete on the slowest tier and the files of discarded ones are
 * gone. */
int vv_engine_wait_all(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;
/* Waits until the files of discarded versions are gone. */
int vv_engine_wait_gone(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;

/*
 * Lending: memory of the first tier for the application to use directly, as with vv_core_lend and
 * vv_core_lease. Deadlines and streams as above; `native` is NULL if there is no device.
 */
struct vv_engine_lend;

/* `bytes` bytes of the version from `from` on, for reading: in place, if they are one run and
 * aligned to VV_LEND_ALIGN, otherwise in a copy. The stream may use them from now on. `again`:
 * another part of the version is lent already. Errors as those of a get, and -ENOSPC. */
enum { VV_LEND_ALIGN = 256 };
int vv_engine_acquire(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                      uint64_t from, uint64_t bytes, bool again, void *native, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr) VV_WARN_UNUSED;
/* Gives the memory back when the stream has come to this point, or, if the device fails, before the
 * call returns its error. `consume`: the version counts as restored then. `ret_back` false: the call
 * has failed with -EBUSY, -EINVAL, -EXDEV or -ENOMEM, and the caller still has the memory. */
int vv_engine_release(struct vv_engine *e, struct vv_engine_lend *lend, bool consume, void *native,
                      bool *ret_back) VV_WARN_UNUSED;
/* Lends memory for the application to write. */
int vv_engine_reserve(struct vv_engine *e, uint32_t hist, uint64_t bytes, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr) VV_WARN_UNUSED;
/* Copies within host memory, with the threads that help the engine's own copies. */
void vv_engine_copy(struct vv_engine *e, void *dst, const void *src, size_t bytes);
/* Trims reserved memory to the pages that `bytes` bytes need, at least 1. */
void vv_engine_lease_trim(struct vv_engine *e, struct vv_engine_lend *lend, uint64_t bytes);
/* The memory of a whole version in exchange for `*lend`, which may be NULL, as vv_core_swap: on
 * success `*lend` is like the result of a reserve of the version's size, and holds its bytes. */
int vv_engine_swap(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                   struct vv_engine_lend **lend, void **ret_ptr) VV_WARN_UNUSED;
/* Makes parts of reserved memory into one version, in this order. The memory itself becomes the
 * version's pages if the parts can be joined; otherwise the parts are copied. The version exists
 * when the stream has come to this point. Takes the caller's reference on `user`, also on failure.
 * On failure `ret_kept` tells if the caller still has the parts. */
int vv_engine_commit(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t user,
                     struct vv_engine_lend *const *lends, const uint64_t *bytes, size_t n,
                     void *native, uint64_t deadline_ns, bool *ret_kept) VV_WARN_UNUSED;
/* Gives reserved memory back at once. */
void vv_engine_unlend(struct vv_engine *e, struct vv_engine_lend *lend);
/* True if the version exists or a put under way will create it. */
bool vv_engine_exists(struct vv_engine *e, uint32_t hist, uint64_t version);
/* Refuses a stream that cannot be used now: -EBUSY, -ENODEV, ... */
int vv_engine_stream_check(struct vv_engine *e, void *native) VV_WARN_UNUSED;

int vv_engine_hint(struct vv_engine *e, uint32_t hist, uint64_t version) VV_WARN_UNUSED;
void vv_engine_hint_clear(struct vv_engine *e, uint32_t hist);
void vv_engine_prefetch_start(struct vv_engine *e, uint32_t hist);
int vv_engine_discard(struct vv_engine *e, uint32_t hist, uint64_t version) VV_WARN_UNUSED;
/* As vv_core_reached, _missed, _confirm, _take_back and _acknowledge; the generation is that in the file's
 * name. */
void vv_engine_reached(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation);
void vv_engine_missed(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation);
int vv_engine_confirm(struct vv_engine *e, uint32_t hist, uint64_t version) VV_WARN_UNUSED;
int vv_engine_take_back(struct vv_engine *e, uint32_t hist, uint64_t version) VV_WARN_UNUSED;
void vv_engine_acknowledge(struct vv_engine *e, uint32_t hist, const uint64_t *version);

/* On success the caller has a reference on ret_info->user. */
int vv_engine_lookup(struct vv_engine *e, uint32_t hist, uint64_t version,
                     struct vv_object_info *ret_info) VV_WARN_UNUSED;
/* As vv_core_wanted; the generation is that of requests to the store. */
int vv_engine_wanted(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     struct vv_wanted *ret_wanted) VV_WARN_UNUSED;
int vv_engine_latest(struct vv_engine *e, uint32_t hist, uint64_t *ret_version) VV_WARN_UNUSED;
/* `fn` is called with the lock held. */
void vv_engine_each(struct vv_engine *e, uint32_t hist,
                    void (*fn)(void *arg, const struct vv_object_info *info), void *arg);
/* True if vv_engine_take_error or vv_engine_take_ordered_error may find something: false is
 * certain. */
bool vv_engine_has_error(struct vv_engine *e, uint32_t hist);
int vv_engine_take_error(struct vv_engine *e, uint32_t hist, uint64_t *ret_version, int *ret_tier);
/* The host cache grows after opening. If less of it could be made than configured, returns the error
 * once, with a text. 0: no error, or it was returned before. Cheap. */
int vv_engine_take_memory_error(struct vv_engine *e, char *text, size_t text_bytes);
void vv_engine_get_stats(struct vv_engine *e, struct vv_core_stats *ret_stats);
/* The `host_cache_bytes` that leaves `bytes` for versions. */
uint64_t vv_engine_host_cache(const struct vv_engine *e, uint64_t bytes);
void vv_engine_get_hist_stats(struct vv_engine *e, uint32_t hist,
                              struct vv_core_hist_stats *ret_stats);

/* Tiers as the core numbers them, fast to slow. */
unsigned vv_engine_tiers(const struct vv_engine *e);
enum vv_tier_kind vv_engine_tier_kind(const struct vv_engine *e, unsigned tier);

#endif
