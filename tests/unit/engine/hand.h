/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests that drive the core by hand. */
#ifndef TESTS_UNIT_ENGINE_HAND_H
#define TESTS_UNIT_ENGINE_HAND_H

#include "engine/core/core_private.h"
#include "model/drive.h"
#include "t.h"

/* Opens a core with every invariant checked after every call, and one history. */
static inline uint32_t hand_open(struct drive *d, const char *tiers, enum vv_policy policy,
                                 enum vv_core_level level)
{
    struct vv_core_cfg cfg;

    drive_cfg(&cfg, tiers, policy);
    cfg.check = true;
    drive_init(d, &cfg);
    return drive_history(d, false, 0, level);
}

static inline void hand_close(struct drive *d)
{
    T_STREQ(d->wrong, "");
    drive_fini(d);
}

static inline struct vv_object *hand_object(const struct drive *d, uint32_t hist, uint64_t version)
{
    return vvi_object_find(d->core, hist, version);
}

/* The state of the copy on a tier; INIT: there is none. */
static inline enum vv_copy_state hand_state(const struct drive *d, uint32_t hist, uint64_t version,
                                            unsigned tier)
{
    const struct vv_object *obj = hand_object(d, hist, version);

    return obj && obj->copy[tier] ? (enum vv_copy_state)obj->copy[tier]->state : VV_COPY_INIT;
}

static inline uint32_t hand_resident(const struct drive *d, uint32_t hist, uint64_t version,
                                     unsigned tier)
{
    struct vv_object_info info = {0};

    return vv_core_lookup(d->core, hist, version, &info) == 0 ? info.resident[tier] : 0;
}

/* Ends the only order of this kind, which must exist. */
static inline void hand_end(struct drive *d, enum vv_order_kind kind, int src, int dst,
                            uint64_t version, int status)
{
    int i = drive_find(d, kind, src, dst, version);

    T_CHECK(i >= 0);
    drive_end(d, (unsigned)i, status);
}

static inline void hand_put(struct drive *d, uint32_t hist, uint64_t version, uint32_t pages)
{
    struct drive_call call;

    T_OK(drive_put(d, &call, hist, version, (uint64_t)pages * DRIVE_PAGE));
    T_OK(drive_finish(d, &call));
}

static inline void hand_get(struct drive *d, uint32_t hist, uint64_t version)
{
    struct drive_call call;

    T_OK(drive_get(d, &call, hist, version));
    T_OK(drive_finish(d, &call));
}

#endif
