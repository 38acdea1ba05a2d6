/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint and restore in the order of the application's stream.
 *
 * They are the blocking calls with a stream instead of a waiting thread: checkpoint.c implements both, and the
 * engine keeps the operations in flight.
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
