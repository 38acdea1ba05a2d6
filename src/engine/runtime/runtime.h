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
    uint64_t disk_bytes;      /* capacity of the storage tier; 0 on files: no limit of ours */
    enum vv_tier_kind disk;   /* VV_TIER_SPILL or VV_TIER_FILES, if there are stores */
    bool written_stays;       /* as in struct vv_core_cfg */
    struct vv_device *device; /* NULL: none. All of these outlive the engine. */
    struct vv_store *write_store, *read_store; /* both or neither */
    struct vv_helper
        *helper;        /* that they were opened with: it reaches the host cache; NULL: none */
    struct vv_gds *gds; /* that the stores were opened with; NULL: they take host memory only */
    enum vv_policy policy;
    /* What the hops are slowed down to, in bytes/s, by device and stores; 0: full speed. The engine
     * itself paces copies between host memory and host memory. */
    uint64_t rate[VV_HOP_COUNT];
    uint64_t write_limit; /* bytes/s that the write store lets through; 0: any */
    bool check;           /* assert the core's invariants after every step */
    uint32_t trace_id;    /* of the context, in traces */

    /* The `user` words of objects. An object holds one reference, and vv_engine_lookup hands out
     * another. Both are called with the engine's lock held and must not call back. */
    void (*retain_user)(void *arg, uint64_t user);
    void (*release_user)(void *arg, uint64_t user);
    /* Fills in what a committed file says about its regions; `ret_regions` has room for
     * `max` of them. Returns their number, which may be greater: then it is called again with more
     * room, or with none, for the number alone. Called with and without the lock, while the object
     * is alive. */
    uint32_t (*describe_user)(void *arg, uint64_t user, uint64_t size,
                              struct vv_store_region *ret_regions, uint32_t max);
    void *user_arg;
    struct vv_thread_group *group; /* of threads that are started later; NULL: none */
    int copy_helpers; /* threads that help to copy in host memory; 0: by the machine, -1: none */
    /* These pages of the spill hold nothing any more. Called with the lock held; must not call back.
     * NULL: nobody wants to know. */
    void (*pages_gone)(void *arg, uint32_t first, uint32_t n);
    void *pages_arg;
};

/* One piece of the application's memory. The pieces of a request cover its object from the first
 * byte on without gaps; `ptr` NULL leaves that part of the object out (restores only). */
struct vv_engine_piece {
    char *ptr;
    uint64_t bytes;
    enum vv_mem_kind kind;
};

struct vv_engine_app {
    const struct vv_engine_piece *pieces;
    size_t npieces;
    bool device;      /* enter and leave through the device: one piece at least is device memory */
    bool keep, again; /* of a get: as in struct vv_req */
    bool replace;     /* of a put: the same */
};

/* Most of the host cache is made behind the first requests: see vv_engine_take_memory_error.
 * -ENOMEM, -EINVAL, or the device's error; err gets a text on failure. */
int vv_engine_open(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes,
                   struct vv_engine **ret_engine) VV_WARN_UNUSED;
/* All histories must have been dropped. Waits for transfers in flight. Accepts NULL. */
void vv_engine_close(struct vv_engine *e);

/* `files`: where its versions are committed, NULL without a files tier; new files get generations
 * from `first_generation` on. */
int vv_engine_history_new(struct vv_engine *e, const struct vv_core_hist_cfg *cfg,
                          struct vv_files *files, uint64_t first_generation,
                          uint32_t *ret_hist) VV_WARN_UNUSED;
/* Forgets the history and waits until no transfer of it is in flight, so that its files may be
 * closed. What is only in memory is lost. */
void vv_engine_history_drop(struct vv_engine *e, uint32_t hist);
/* Before the first put. The caller's reference on `user` is taken on success only. */
int vv_engine_adopt(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                    uint64_t size, uint64_t user, bool reached) VV_WARN_UNUSED;

/* Takes the caller's reference on `user`, whatever the result. Errors as vv_core_put. */
int vv_engine_put(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t size,
                  uint64_t user, const struct vv_engine_app *app,
                  uint64_t deadline_ns) VV_WARN_UNUSED;
/* `generation`: of the object that `app` was made for; -ESTALE if it is another one by now. */
int vv_engine_get(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                  const struct vv_engine_app *app, uint64_t deadline_ns,
                  uint32_t *ret_distance) VV_WARN_UNUSED;
/* After vv_engine_get gave -EBADMSG: the tier, and the bytes of the object it was found in.
 * -ENOENT: others have failed since, nothing is known any more. */
int vv_engine_damage(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     int *ret_tier, uint64_t *ret_from, uint64_t *ret_to) VV_WARN_UNUSED;
int vv_engine_wait(struct vv_engine *e, uint32_t hist, uint64_t version, enum vv_core_level level,
                   uint64_t deadline_ns) VV_WARN_UNUSED;

/*
 * Ordered by a stream of the application: its driver's handle, NULL for the default stream. All
 * pieces are device memory. The calls return when every copy stands in the stream, having blocked
 * at most until there was room for them, or, for a get, until the last chunk was in memory; what
 * does not fit memory at once makes them wait for the stream itself. deadline_ns 0: -EAGAIN if it
 * would block, and nothing stands in the stream then. -ETIMEDOUT: part of the copies may, and the
 * version will never be there. -EBUSY: the stream is being captured.
 *
 * The request ends later, in the background: the version is then there, or the get counts as done.
 * What fails by then is kept for vv_engine_take_ordered_error.
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
 * `ret_kind` tells a put from a get. */
int vv_engine_take_ordered_error(struct vv_engine *e, uint32_t hist, const uint64_t *version,
                                 uint64_t *ret_version, enum vv_req_kind *ret_kind);
/* Until no request of the history waits for a stream; -ETIMEDOUT. */
int vv_engine_wait_ordered(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;
/* Until every version is complete on the slowest tier and the files of discarded ones are gone. */
int vv_engine_wait_all(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;
/* Until the files of discarded versions are gone. */
int vv_engine_wait_gone(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns) VV_WARN_UNUSED;

/*
 * Lending: memory of the first tier for the application to use itself, as vv_core_lend and
 * vv_core_lease have it. Deadlines and streams as above; `native` is NULL if there is no device.
 */
struct vv_engine_lend;

/* `bytes` bytes of the version from `from` on, for reading: where they are, if they stand there in
 * one piece and aligned to VV_LEND_ALIGN, or else in a copy. The stream may use them from now on.
 * `again`: another part of the version is lent already. Errors as those of a get and -ENOSPC. */
enum { VV_LEND_ALIGN = 256 };
int vv_engine_acquire(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                      uint64_t from, uint64_t bytes, bool again, void *native, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr) VV_WARN_UNUSED;
/* Given back when the stream has come to this point, or, if the device fails, before the call
 * returns its error. `consume`: the version counts as restored then. `ret_back` false: with this
 * error (-EBUSY, -EINVAL, -EXDEV, -ENOMEM) nothing has changed. */
int vv_engine_release(struct vv_engine *e, struct vv_engine_lend *lend, bool consume, void *native,
                      bool *ret_back) VV_WARN_UNUSED;
/* Memory to be written. */
int vv_engine_reserve(struct vv_engine *e, uint32_t hist, uint64_t bytes, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr) VV_WARN_UNUSED;
/* Copies within host memory, with the threads that help the engine's own copies. */
void vv_engine_copy(struct vv_engine *e, void *dst, const void *src, size_t bytes);
/* Of what was reserved, keeps what `bytes` bytes need, at least 1. */
void vv_engine_lease_trim(struct vv_engine *e, struct vv_engine_lend *lend, uint64_t bytes);
/* The memory of a whole version in exchange for `*lend`, which may be NULL, as vv_core_swap has it:
 * on success `*lend` is what a reserve of the version's size would have given, and holds its bytes. */
int vv_engine_swap(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                   struct vv_engine_lend **lend, void **ret_ptr) VV_WARN_UNUSED;
/* Makes a version of what was reserved, one part behind the other: of the memory itself where the
 * parts can be joined, and of copies otherwise. It is there when the stream has come to this point.
 * Takes the caller's reference on `user` whatever the result. On failure `ret_kept` says whether
 * the parts are still the caller's. */
int vv_engine_commit(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t user,
                     struct vv_engine_lend *const *lends, const uint64_t *bytes, size_t n,
                     void *native, uint64_t deadline_ns, bool *ret_kept) VV_WARN_UNUSED;
/* Gives reserved memory back at once. */
void vv_engine_unlend(struct vv_engine *e, struct vv_engine_lend *lend);
/* Is there such a version, or will a put under way make one? */
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
/* Whether vv_engine_take_error or vv_engine_take_ordered_error may find something: false is certain. */
bool vv_engine_has_error(struct vv_engine *e, uint32_t hist);
int vv_engine_take_error(struct vv_engine *e, uint32_t hist, uint64_t *ret_version, int *ret_tier);
/* Once, if less of the host cache could be made than was asked for, which is found out after
 * opening: why, and a text. 0: all is well, or it was told. Cheap. */
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
