/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by the tests of checkpoint histories: contexts in few lines, and test data. */
#ifndef CK_H
#define CK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>
#include <varve/varve.h>

#include "device/device.h"

/* Time limit of each call of a test; it ends a hang and does not measure. */
enum { CK_LIMIT_MS = 60000 };

struct ck_cfg {
    bool device; /* the emulated one, unless ck_any_device was called */
    uint64_t device_cache, host_cache, local_cache;
    const char *local; /* NULL: no disk */
    int level, policy;
    uint32_t page_bytes;  /* 0: 4 KiB */
    const char *rate;     /* NULL: full speed */
    int close_timeout_ms; /* 0: CK_LIMIT_MS; to mean 0 give -2 */
    bool gds;
    const char *remote; /* NULL: no shared folder */
    int rank, ranks;    /* 0 ranks: 1 */
    const char *run;    /* NULL: drawn */
};

/* From now on the device is the one that VARVE_TEST_DEVICE names, "cuda" or "host". For tests that
 * use nothing that only the emulated device has, its memory's addresses included. */
void ck_any_device(void);

void ck_opts(const struct ck_cfg *cfg, struct varve_opts *ret_opts);
struct varve_ctx *ck_open(const struct ck_cfg *cfg);
struct varve_history *ck_history(struct varve_ctx *ctx, const char *name);

/* A buffer in device memory if the context has a device and `device` is set; else of the heap. */
char *ck_alloc(struct varve_ctx *ctx, bool device, size_t bytes);
void ck_free(struct varve_ctx *ctx, bool device, char *buf);

/* Device memory that did not come from ck_alloc, until ck_forget: the functions below reach it by
 * varve_device_copy in `ctx`. */
void ck_know(struct varve_ctx *ctx, char *buf, size_t bytes);
void ck_forget(const char *buf);

/* The following take host memory, and device memory of ck_alloc and ck_know. A CUDA device's memory
 * is copied to be checked; all of these fail the test if that fails. */

/* memset, memcpy from and to memory of the test's own, one byte. */
void ck_set(char *buf, int c, size_t bytes);
void ck_get(const char *buf, void *ret, size_t bytes);
char ck_byte(const char *buf, size_t at);

/* Fills with bytes that depend on version, region and offset; ck_check fails the test if they differ. */
void ck_fill(char *buf, size_t bytes, uint64_t version, int region);
bool ck_same(const char *buf, size_t bytes, uint64_t version, int region);
/* The same without the first `from` bytes, a multiple of 8. */
bool ck_same_from(const char *buf, size_t from, size_t bytes, uint64_t version, int region);
void ck_check(const char *buf, size_t bytes, uint64_t version, int region);

/* The context's last error has this code and its text contains `text`. */
void ck_error(struct varve_ctx *ctx, int err, const char *text);
/* Versions that can be restored. */
size_t ck_count(struct varve_history *h);
/* Waits until the application's stream is empty. */
void ck_stream_sync(struct vv_device *device, struct CUstream_st *stream);

#endif
