/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that a stream of the application orders.
 *
 * They are the blocking ones with a stream in place of the thread that would wait: checkpoint.c
 * knows both, the engine keeps what is under way.
 */
#include "ckpt/ckpt_private.h"

int varve_checkpoint_on_for(struct varve_history *h, uint64_t version, struct CUstream_st *stream,
                            int timeout_ms)
{
    struct vvi_on_stream on = {stream};
    return vvi_checkpoint(h, version, &on, timeout_ms);
}

int varve_checkpoint_on(struct varve_history *h, uint64_t version, struct CUstream_st *stream)
{
    return varve_checkpoint_on_for(h, version, stream, -1);
}

int varve_restore_on_for(struct varve_history *h, uint64_t version, struct CUstream_st *stream,
                         int timeout_ms)
{
    struct vvi_on_stream on = {stream};
    return vvi_restore(h, version, &on, timeout_ms);
}

int varve_restore_on(struct varve_history *h, uint64_t version, struct CUstream_st *stream)
{
    return varve_restore_on_for(h, version, stream, -1);
}
