/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/ckpt/ck.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"
#include "t_cuda.h"

enum { MAX_KNOWN = 64 };

/* Memory that the processor cannot reach. */
static struct known {
    struct varve_ctx *ctx;
    const char *buf;
    size_t bytes;
} known[MAX_KNOWN];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static bool on_cuda;

void ck_any_device(void)
{
    on_cuda = t_device_is_cuda();
}

void ck_opts(const struct ck_cfg *cfg, struct varve_opts *ret_opts)
{
    T_OK(varve_opts_init(ret_opts, sizeof(*ret_opts)));
    ret_opts->device = !cfg->device ? VARVE_DEVICE_NONE
                       : on_cuda    ? VARVE_DEVICE_CUDA
                                    : VARVE_DEVICE_HOST;
    ret_opts->device_cache = cfg->device_cache;
    ret_opts->host_cache = cfg->host_cache;
    ret_opts->local_cache = cfg->local_cache;
    /* A spill file as large as the disk has a page table that debug builds would walk each time. */
    if (cfg->local && cfg->level == VARVE_LEVEL_CACHED && cfg->local_cache == 0)
        ret_opts->local_cache = UINT64_C(16) << 20;
    ret_opts->level = cfg->level;
    ret_opts->policy = cfg->policy;
    ret_opts->gds = cfg->gds;
    ret_opts->page_bytes = cfg->page_bytes ? cfg->page_bytes : 4096;
    ret_opts->close_timeout_ms = cfg->close_timeout_ms == -2  ? 0
                                 : cfg->close_timeout_ms == 0 ? CK_LIMIT_MS
                                                              : cfg->close_timeout_ms;
    if (cfg->local)
        snprintf(ret_opts->local, sizeof(ret_opts->local), "%s", cfg->local);
    if (cfg->remote)
        snprintf(ret_opts->remote, sizeof(ret_opts->remote), "%s", cfg->remote);
    ret_opts->rank = cfg->rank;
    ret_opts->ranks = cfg->ranks ? cfg->ranks : 1;
    if (cfg->run)
        snprintf(ret_opts->run, sizeof(ret_opts->run), "%s", cfg->run);
    if (cfg->rate)
        snprintf(ret_opts->rate, sizeof(ret_opts->rate), "%s", cfg->rate);
}

struct varve_ctx *ck_open(const struct ck_cfg *cfg)
{
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    ck_opts(cfg, &opts);
    int rc = varve_open(&opts, &ctx);
    if (rc) {
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(NULL, &e));
        t_note("varve_open: %s", e.text);
    }
    T_OK(rc);
    return ctx;
}

struct varve_history *ck_history(struct varve_ctx *ctx, const char *name)
{
    struct varve_history *h = NULL;
    T_OK(varve_history_open(ctx, name, &h));
    return h;
}

void ck_know(struct varve_ctx *ctx, char *buf, size_t bytes)
{
    size_t i = 0;
    pthread_mutex_lock(&known_lock);
    while (i < MAX_KNOWN && known[i].buf)
        i++;
    T_CHECK(i < MAX_KNOWN);
    known[i] = (struct known){ctx, buf, bytes};
    pthread_mutex_unlock(&known_lock);
}

void ck_forget(const char *buf)
{
    pthread_mutex_lock(&known_lock);
    for (size_t i = 0; i < MAX_KNOWN; i++) {
        if (known[i].buf == buf)
            known[i].buf = NULL;
    }
    pthread_mutex_unlock(&known_lock);
}

/* NULL: the processor can reach it. */
static struct varve_ctx *ctx_of(const char *buf)
{
    struct varve_ctx *ctx = NULL;
    pthread_mutex_lock(&known_lock);
    for (size_t i = 0; i < MAX_KNOWN; i++) {
        if (known[i].buf && buf >= known[i].buf && buf < known[i].buf + known[i].bytes)
            ctx = known[i].ctx;
    }
    pthread_mutex_unlock(&known_lock);
    return ctx;
}

char *ck_alloc(struct varve_ctx *ctx, bool device, size_t bytes)
{
    void *p = NULL;
    if (device)
        T_OK(varve_device_alloc(ctx, bytes, &p));
    else
        p = malloc(bytes);
    T_CHECK(p);
    if (device && on_cuda)
        ck_know(ctx, p, bytes);
    return p;
}

void ck_free(struct varve_ctx *ctx, bool device, char *buf)
{
    ck_forget(buf);
    if (device)
        T_OK(varve_device_free(ctx, buf));
    else
        free(buf);
}

/* Host memory for a copy of memory that the processor cannot reach; the caller frees it. */
static char *stand_in(size_t bytes)
{
    char *p = malloc(bytes ? bytes : 1);
    T_CHECK(p);
    return p;
}

void ck_get(const char *buf, void *ret, size_t bytes)
{
    struct varve_ctx *ctx = ctx_of(buf);
    if (ctx)
        T_OK(varve_device_copy(ctx, ret, buf, bytes));
    else
        memcpy(ret, buf, bytes);
}

void ck_set(char *buf, int c, size_t bytes)
{
    struct varve_ctx *ctx = ctx_of(buf);
    char *p = ctx ? stand_in(bytes) : buf;
    memset(p, c, bytes);
    if (!ctx)
        return;
    T_OK(varve_device_copy(ctx, buf, p, bytes));
    free(p);
}

char ck_byte(const char *buf, size_t at)
{
    char c;
    ck_get(buf + at, &c, 1);
    return c;
}

static uint64_t word(uint64_t version, int region, uint64_t i)
{
    uint64_t x = version * UINT64_C(0x9e3779b97f4a7c15) +
                 (uint64_t)region * UINT64_C(0xbf58476d1ce4e5b9) + i * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 29;
    return x * UINT64_C(0xd6e8feb86659fd93);
}

void ck_fill(char *buf, size_t bytes, uint64_t version, int region)
{
    struct varve_ctx *ctx = ctx_of(buf);
    char *p = ctx ? stand_in(bytes) : buf;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t w = word(version, region, at);
        memcpy(p + at, &w, bytes - at < 8 ? bytes - at : 8);
    }
    if (!ctx)
        return;
    T_OK(varve_device_copy(ctx, buf, p, bytes));
    free(p);
}

bool ck_same(const char *buf, size_t bytes, uint64_t version, int region)
{
    return ck_same_from(buf, 0, bytes, version, region);
}

bool ck_same_from(const char *buf, size_t from, size_t bytes, uint64_t version, int region)
{
    char *copy = NULL;
    bool same = true;
    if (ctx_of(buf)) {
        copy = stand_in(bytes);
        ck_get(buf, copy, bytes);
        buf = copy;
    }
    for (size_t at = from; at < bytes && same; at += 8) {
        uint64_t w = word(version, region, at);
        same = memcmp(buf + at, &w, bytes - at < 8 ? bytes - at : 8) == 0;
    }
    free(copy);
    return same;
}

void ck_check(const char *buf, size_t bytes, uint64_t version, int region)
{
    if (!ck_same(buf, bytes, version, region))
        t_fail(__FILE__, __LINE__, "version %llu, region %d: wrong bytes",
               (unsigned long long)version, region);
}

void ck_error(struct varve_ctx *ctx, int err, const char *text)
{
    struct varve_error e = {.error_size = sizeof(e)};
    T_OK(varve_last_error(ctx, &e));
    if (e.err != err || !strstr(e.text, text))
        t_fail(__FILE__, __LINE__, "error record: %d \"%s\", expected %d \"%s\"", e.err, e.text,
               err, text);
    T_STREQ(varve_error(ctx), e.text);
    T_CHECK(e.operation[0]);
    T_CHECK(varve_strerror(err)[0]);
}

size_t ck_count(struct varve_history *h)
{
    size_t n = 0;
    T_OK(varve_versions(h, NULL, 0, &n));
    return n;
}

void ck_stream_sync(struct vv_device *device, struct CUstream_st *stream)
{
    struct vv_stream *s = NULL;
    struct vv_event *ev = NULL;
    T_OK(vv_device_stream_adopt(device, stream, &s));
    T_OK(vv_device_event_new(device, &ev));
    T_OK(vv_device_event_record(device, ev, s));
    T_OK(vv_device_event_wait(device, ev, -1));
    vv_device_event_free(device, ev);
    vv_device_stream_free(device, s);
}
