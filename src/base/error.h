/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error records: the details that a negative errno cannot carry. A record is plain data, owned by the
 * structure that embeds it and protected by that structure's lock.
 */
#ifndef VV_BASE_ERROR_H
#define VV_BASE_ERROR_H

#include <stdint.h>

#include "base/util.h"

/* The part of the library that can no longer be used after the error. */
enum vv_error_scope {
    VV_SCOPE_OPERATION, /* only the call that failed */
    VV_SCOPE_TIER,
    VV_SCOPE_DEVICE,
    VV_SCOPE_CONTEXT
};

#define VV_ERROR_NO_VERSION UINT64_MAX

struct vv_error {
    int err;         /* negative errno; 0: no error */
    char op[32];     /* operation that failed: "restore" */
    int tier;        /* or -1 */
    char domain[16]; /* the interface that `code` belongs to: "errno", "cuda"; empty: none */
    int code;        /* error code of that interface */
    enum vv_error_scope scope;
    uint64_t version; /* or VV_ERROR_NO_VERSION */
    int region;       /* or -1 */
    char text[256];   /* one readable line */
};

/* Sets the record to "no error". */
void vv_error_clear(struct vv_error *e);

/* Sets the record: scope operation, no tier, version, region or foreign code. Returns `err`, so that a
 * function can fail in one line; `e` may be NULL. */
int vv_error_set(struct vv_error *e, int err, const char *op, const char *fmt, ...) VV_PRINTF(4, 5);

/* Adds details after vv_error_set; `e` may be NULL. -1: no tier, or no region. */
void vv_error_where(struct vv_error *e, enum vv_error_scope scope, int tier, uint64_t version,
                    int region);
void vv_error_foreign(struct vv_error *e, const char *domain, int code);

/* A readable text for an error number of the library, negative or positive. Never NULL, constant. */
const char *vv_strerror(int err);

#endif
