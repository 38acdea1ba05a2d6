/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a shot's calls: the library, or one of the baselines that it is compared with. All get the same
 * script and the same memory, and all are checked byte by byte.
 *
 * One thread calls; an engine may have threads of its own.
 */
#ifndef LAB_SHOT_SHOT_ENGINE_H
#define LAB_SHOT_SHOT_ENGINE_H

#include <varve/ckpt.h>

#include "device/device.h"
#include "lab/shot/shot.h"
#include "lab/shot/shot_managed.h"

/* The present use of the caches. */
struct shot_sample {
    uint64_t distance; /* versions that were ready in the fastest tier at the last restore */
    uint64_t used_bytes, cache_bytes; /* of all memory tiers; 0: there are none */
    /* The fastest tier: the bytes that it holds, and its byte-seconds up to `time_ns`. */
    uint64_t first_bytes;
    double first_used_byte_s;
    uint64_t time_ns;
    double rate[SHOT_HOP_NR]; /* bytes/s as measured while it runs; 0: not known */
    /* Since it was opened: over the link of the device, and how many restores found their version complete in the
     * fastest tier when they were asked for. */
    uint64_t moved_down_bytes, moved_up_bytes;
    uint64_t restores, ready;
};

struct shot_engine;

struct shot_engine_ops {
    /* The next version in the order of the restores. */
    int (*hint)(struct shot_engine *e, uint64_t version);
    /* Prefetching may begin. */
    int (*start)(struct shot_engine *e);
    /* Declares the memory of the next call; not part of the time that counts. */
    int (*prepare)(struct shot_engine *e, void *buf, size_t bytes);
    /* On streams: memory of the engine. The next kernel writes there, and a checkpoint of this version takes it; with
     * `reads`, the kernel after its restore reads there. NULL: the engine has none, and calls copy. */
    int (*place)(struct shot_engine *e, uint64_t version, bool reads, void **ret_buf);
    int (*checkpoint)(struct shot_engine *e, uint64_t version, void *buf, size_t bytes);
    /* With consume once the version is discarded afterwards. */
    int (*restore)(struct shot_engine *e, uint64_t version, void *buf, size_t bytes);
    /* Waits until all versions have reached their level. */
    int (*flush)(struct shot_engine *e);
    int (*discard)(struct shot_engine *e, uint64_t version);
    void (*sample)(struct shot_engine *e, struct shot_sample *ret_sample);
    /* A line about the last error, which was `rc`. */
    void (*explain)(struct shot_engine *e, int rc, char *buf, size_t size);
    /* Frees the engine. Returns a late error. */
    int (*close)(struct shot_engine *e);
};

struct shot_engine {
    const struct shot_engine_ops *ops;
};

struct shot_varve {
    struct varve_ctx *ctx;
    struct varve_history *history;
    bool shares;    /* the context is another engine's, which is closed later */
    bool has_disk;  /* the slowest tier is no cache in memory */
    bool on_stream; /* checkpoint and restore in the order of `stream`, without waiting for it */
    void *stream;
};

/* The library. The engine owns history and context from here on, also after an error, unless it shares the
 * context. -ENOMEM. */
VV_WARN_UNUSED int shot_engine_varve(const struct shot_varve *v, struct shot_engine **ret_engine);

/* The parameters of the baselines. */
struct shot_baseline {
    struct vv_device *device; /* the application's */
    const struct shot_sizes *sizes;
    uint64_t device_cache_bytes;
    const char *folder; /* file: where to write */
    uint32_t rank;      /* file: part of the names */
    bool direct;        /* file: past the page cache */
    bool consume_once;  /* uvm: a restored version is discarded */
    struct shot_uvm_opts uvm;
};

/*
 * Copies to pinned host memory at every checkpoint, and back at every restore. There is room for
 * every version, touched and pinned before this returns.
 *   -ENOMEM  memory is short
 */
VV_WARN_UNUSED int shot_engine_ondemand(const struct shot_baseline *b, char *err, size_t err_size,
                                        struct shot_engine **ret_engine);

/* The same through one pinned buffer to one file per version, by write() and read(). Never synced. */
VV_WARN_UNUSED int shot_engine_file(const struct shot_baseline *b, char *err, size_t err_size,
                                    struct shot_engine **ret_engine);

/*
 * Managed memory, moved by the driver on advice: a CUDA device only.
 *   -EINVAL   another device
 *   -ENOTSUP  the device has no managed memory
 *   -ENOMEM   memory of the device is short
 */
VV_WARN_UNUSED int shot_engine_uvm(const struct shot_baseline *b, char *err, size_t err_size,
                                   struct shot_engine **ret_engine);

/* A line about an error of a baseline, with the text of the device. */
void shot_device_explain(struct vv_device *device, int rc, char *buf, size_t size);

/* Closes an engine; accepts NULL. */
static inline int shot_engine_close(struct shot_engine *e)
{
    return e ? e->ops->close(e) : 0;
}

#endif
