/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that keep a processor ready for those of the application. See rehearse.c. */
#ifndef VV_CKPT_REHEARSE_H
#define VV_CKPT_REHEARSE_H

#include "engine/runtime.h"

struct varve_ctx;
struct vvi_rehearsal;

/* For contexts with an engine and a device. -ENOMEM and the like. */
int vvi_rehearsal_open(const struct varve_ctx *ctx,
                       struct vvi_rehearsal **ret_rehearsal) VV_WARN_UNUSED;
/* Accepts NULL. */
void vvi_rehearsal_close(struct vvi_rehearsal *r);
/* One checkpoint, restore and discard: some microseconds. One thread. Accepts NULL. */
void vvi_rehearse(struct vvi_rehearsal *r);
/* For tests. */
struct vv_engine *vvi_rehearsal_engine(const struct vvi_rehearsal *r);

#endif
