/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lent regions as DLPack tensors.
 *
 * The structures below have DLPack's ABI. All tensors of one lease share a `struct lease`, which counts them; the
 * deleter of the last one releases the region. The history outlives the lease, because it cannot be closed while a
 * region is lent.
 */
#include <varve/dlpack.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt_private.h"

enum { DL_CPU = 1, DL_CUDA = 2, NDIM_MAX = 64 };

struct dl_device {
    int32_t device_type, device_id;
};

struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed_tensor {
    struct dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct dl_managed_tensor *self);
};

struct lease {
    struct varve_history *h;
    uint64_t version;
    int region;
    struct CUstream_st *stream;
    _Atomic uint32_t tensors;
};

/* A tensor and the data it points to, in one allocation. */
struct tensor {
    struct dl_managed_tensor managed;
    int64_t shape[];
};

static void tensor_delete(struct dl_managed_tensor *self)
{
    struct lease *lease = self->manager_ctx;
    free(self);
    if (atomic_fetch_sub(&lease->tensors, 1) != 1)
        return;
    /* Errors need no handling: a forked child is refused, and memory of a lost device is gone. */
    (void)varve_release(lease->h, lease->version, lease->region, lease->stream);
    free(lease);
}

static struct tensor *tensor_new(int32_t ndim)
{
    struct tensor *t = calloc(1, sizeof(*t) + (size_t)ndim * sizeof(t->shape[0]));
    if (t) {
        t->managed.dl_tensor.ndim = ndim;
        t->managed.dl_tensor.shape = t->shape;
        t->managed.deleter = tensor_delete;
    }
    return t;
}

/* The size of a tensor of this type. False: the type is invalid. */
static bool type_bytes(const struct varve_dlpack_type *type, uint64_t *ret_bytes)
{
    if (type->bits == 0 || type->lanes == 0 || type->ndim < 0 || type->ndim > NDIM_MAX ||
        (type->ndim > 0 && !type->shape) || (uint32_t)type->bits * type->lanes % 8 != 0)
        return false;
    uint64_t bytes = (uint64_t)type->bits * type->lanes / 8;
    for (int32_t i = 0; i < type->ndim; i++)
        if (type->shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)type->shape[i], &bytes))
            return false;
    *ret_bytes = bytes;
    return true;
}

static struct dl_device device_of(struct varve_ctx *ctx)
{
    if (vv_engine_tier_kind(ctx->engine, 0) != VV_TIER_DEVICE || !ctx->wants_gpu)
        return (struct dl_device){DL_CPU, 0};
    struct vv_device_info info;
    vv_device_describe(ctx->device, &info);
    return (struct dl_device){DL_CUDA, info.index};
}

static int size_fail(struct varve_history *h, const struct vvi_where *here, size_t bytes,
                     uint64_t want)
{
    return vvi_fail(h->ctx, here, -EINVAL,
                    "version %llu, region %d has %zu bytes, the type and shape need %llu",
                    (unsigned long long)here->version, here->region, bytes,
                    (unsigned long long)want);
}

int varve_acquire_dlpack(struct varve_history *h, uint64_t version, int region,
                         struct CUstream_st *stream, int timeout_ms,
                         const struct varve_dlpack_type *type, void **ret_tensor)
{
    struct vvi_where here = {"acquire", version, region, -1};
    uint64_t want = 0;
    size_t bytes = 0, stored = 0;
    void *ptr = NULL;
    if (!type || !ret_tensor || !type_bytes(type, &want))
        return vvi_fail(NULL, &here, -EINVAL,
                        "type or ret_tensor is NULL, or the type or shape is invalid");
    int rc = varve_region_size(h, version, region, &stored);
    /* A version that a stream has not written yet has no sizes: check the size after acquiring it. */
    if (rc == 0 && stored != want)
        return size_fail(h, &here, stored, want);
    struct tensor *t = tensor_new(type->ndim);
    struct lease *lease = calloc(1, sizeof(*lease));
    if (!t || !lease) {
        rc = vvi_fail(NULL, &here, -ENOMEM, "no memory for the tensor");
        goto fail;
    }
    rc = varve_acquire_for(h, version, region, stream, timeout_ms, &ptr, &bytes);
    if (rc)
        goto fail;
    if (bytes != want) {
        (void)varve_release(h, version, region, stream);
        rc = size_fail(h, &here, bytes, want);
        goto fail;
    }
    *lease = (struct lease){h, version, region, stream, 1};
    t->managed.manager_ctx = lease;
    t->managed.dl_tensor.data = ptr;
    t->managed.dl_tensor.device = device_of(h->ctx);
    t->managed.dl_tensor.dtype = (struct dl_type){type->code, type->bits, type->lanes};
    memcpy(t->shape, type->shape, (size_t)type->ndim * sizeof(t->shape[0]));
    *ret_tensor = &t->managed;
    return 0;
fail:
    free(lease);
    free(t);
    return rc;
}

int varve_dlpack_share(void *tensor, void **ret_tensor)
{
    struct vvi_where here = {"acquire", 0, -1, -1};
    const struct dl_managed_tensor *from = tensor;
    if (!from || !ret_tensor)
        return vvi_fail(NULL, &here, -EINVAL, "tensor or ret_tensor is NULL");
    struct tensor *t = tensor_new(from->dl_tensor.ndim);
    if (!t)
        return vvi_fail(NULL, &here, -ENOMEM, "no memory for the tensor");
    struct lease *lease = from->manager_ctx;
    atomic_fetch_add(&lease->tensors, 1);
    memcpy(t->shape, from->dl_tensor.shape, (size_t)from->dl_tensor.ndim * sizeof(t->shape[0]));
    t->managed = *from;
    t->managed.dl_tensor.shape = t->shape;
    *ret_tensor = &t->managed;
    return 0;
}

void varve_dlpack_delete(void *tensor)
{
    struct dl_managed_tensor *managed = tensor;
    if (managed)
        managed->deleter(managed);
}
