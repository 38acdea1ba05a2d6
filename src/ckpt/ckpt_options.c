/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: struct varve_opts, which programs are compiled with, and struct vv_config, which the configuration
 * table fills, have the same content. Conversion works in both directions, so that a file or variable overrides
 * only the options that it names. The opts of an older program are shorter: missing fields have their
 * defaults.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "ckpt/ckpt_options.h"
#include "ckpt/ckpt_private.h"
#include "s3/s3.h"
#include "store/parity/erasure.h"

_Static_assert((int)VARVE_DEVICE_NONE == (int)VV_CONFIG_DEVICE_NONE &&
                   (int)VARVE_DEVICE_HOST == (int)VV_CONFIG_DEVICE_HOST,
               "same order");
_Static_assert((int)VARVE_LEVEL_COMPLETE == (int)VV_CONFIG_LEVEL_COMPLETE, "same order");
_Static_assert((int)VARVE_LOCAL_IO_BUFFERED == (int)VV_CONFIG_LOCAL_IO_BUFFERED, "same order");
_Static_assert((int)VARVE_POLICY_LRU == (int)VV_CONFIG_POLICY_LRU, "same order");
_Static_assert((int)VARVE_SPILL_RECORD == (int)VV_CONFIG_SPILL_RECORD, "same order");
_Static_assert((int)VARVE_POLICY_LRU == (int)VV_POLICY_LRU &&
                   (int)VARVE_POLICY_SCORE_NOW == (int)VV_POLICY_SCORE_NOW,
               "same order");

/* The shortest opts of any release: up to and including `rate`. */
#define OPTS_MIN (offsetof(struct varve_opts, rate) + sizeof(((struct varve_opts *)0)->rate))

static void from_config(struct varve_opts *o, const struct vv_config *c)
{
    o->device = c->device;
    o->policy = c->policy;
    o->level = c->level;
    o->local_io = c->local_io;
    o->device_cache = c->device_cache;
    o->host_cache = c->host_cache;
    o->local_cache = c->local_cache;
    o->page_bytes = (uint32_t)c->page;
    o->rank = c->rank;
    o->trace = c->trace;
    o->close_timeout_ms = c->close_timeout_ms;
    snprintf(o->local, sizeof(o->local), "%s", c->local);
    snprintf(o->remote, sizeof(o->remote), "%s", c->remote);
    snprintf(o->rate, sizeof(o->rate), "%s", c->rate);
    o->device_id = c->device_id;
    o->gds = c->gds;
    snprintf(o->trace_file, sizeof(o->trace_file), "%s", c->trace_file);
    snprintf(o->stats, sizeof(o->stats), "%s", c->stats);
    snprintf(o->metrics, sizeof(o->metrics), "%s", c->metrics);
    o->ranks = c->ranks;
    o->remote_rate = c->remote_rate;
    o->local_rate = c->local_rate;
    snprintf(o->run, sizeof(o->run), "%.*s", (int)sizeof(o->run) - 1, c->run);
    o->partner = c->partner;
    o->partner_timeout_ms = c->partner_timeout_ms;
    snprintf(o->node, sizeof(o->node), "%.*s", (int)sizeof(o->node) - 1, c->node);
    o->helpers = c->helpers;
    o->helper_nice = c->helper_nice;
    snprintf(o->helper_cores, sizeof(o->helper_cores), "%.*s", (int)sizeof(o->helper_cores) - 1,
             c->helper_cores);
    snprintf(o->rank_cores, sizeof(o->rank_cores), "%.*s", (int)sizeof(o->rank_cores) - 1,
             c->rank_cores);
    o->helper_process = c->helper_process;
    snprintf(o->helper_name, sizeof(o->helper_name), "%.*s", (int)sizeof(o->helper_name) - 1,
             c->helper_name);
    snprintf(o->helper_program, sizeof(o->helper_program), "%s", c->helper_program);
    o->spill = c->spill;
    o->local_sync = c->local_sync;
    o->parity_set = c->parity_set;
    snprintf(o->parity, sizeof(o->parity), "%.*s", (int)sizeof(o->parity) - 1, c->parity);
}

/* Text fields come from the program and may lack the terminating zero. */
static void text_in(char *dst, size_t dst_bytes, const char *src, size_t src_bytes)
{
    size_t n = strnlen(src, VV_MIN(src_bytes, dst_bytes - 1));
    memcpy(dst, src, n);
    dst[n] = 0;
}

static void to_config(struct vv_config *c, const struct varve_opts *o)
{
    c->device = o->device;
    c->policy = o->policy;
    c->level = o->level;
    c->local_io = o->local_io;
    c->device_cache = o->device_cache;
    c->host_cache = o->host_cache;
    c->local_cache = o->local_cache;
    c->page = o->page_bytes;
    c->rank = o->rank;
    c->trace = o->trace;
    c->close_timeout_ms = o->close_timeout_ms;
    text_in(c->local, sizeof(c->local), o->local, sizeof(o->local));
    text_in(c->remote, sizeof(c->remote), o->remote, sizeof(o->remote));
    text_in(c->rate, sizeof(c->rate), o->rate, sizeof(o->rate));
    c->device_id = o->device_id;
    c->gds = o->gds != 0;
    text_in(c->trace_file, sizeof(c->trace_file), o->trace_file, sizeof(o->trace_file));
    text_in(c->stats, sizeof(c->stats), o->stats, sizeof(o->stats));
    text_in(c->metrics, sizeof(c->metrics), o->metrics, sizeof(o->metrics));
    c->ranks = o->ranks;
    c->remote_rate = o->remote_rate;
    c->local_rate = o->local_rate;
    text_in(c->run, sizeof(c->run), o->run, sizeof(o->run));
    c->partner = o->partner != 0;
    c->partner_timeout_ms = o->partner_timeout_ms;
    text_in(c->node, sizeof(c->node), o->node, sizeof(o->node));
    c->helpers = o->helpers;
    c->helper_nice = o->helper_nice;
    text_in(c->helper_cores, sizeof(c->helper_cores), o->helper_cores, sizeof(o->helper_cores));
    text_in(c->rank_cores, sizeof(c->rank_cores), o->rank_cores, sizeof(o->rank_cores));
    c->helper_process = o->helper_process != 0;
    text_in(c->helper_name, sizeof(c->helper_name), o->helper_name, sizeof(o->helper_name));
    text_in(c->helper_program, sizeof(c->helper_program), o->helper_program,
            sizeof(o->helper_program));
    c->spill = o->spill;
    c->local_sync = o->local_sync;
    c->parity_set = o->parity_set;
    text_in(c->parity, sizeof(c->parity), o->parity, sizeof(o->parity));
}

static bool size_ok(const struct varve_opts *opts)
{
    return opts && opts->opts_size >= OPTS_MIN && opts->opts_size <= 1u << 20;
}

static const struct vvi_where in_options = {"options", 0, -1, -1};

/* Makes a configuration from the program's options; fields beyond the end of short options have their
 * defaults. */
static void config_of(struct vv_config *ret_cfg, const struct varve_opts *opts)
{
    struct varve_opts all = {0};
    vv_config_init(ret_cfg);
    from_config(&all, ret_cfg);
    memcpy(&all, opts, VV_MIN(opts->opts_size, sizeof(all)));
    to_config(ret_cfg, &all);
}

/* The reverse, up to the end of the options. */
static void config_into(struct varve_opts *opts, const struct vv_config *cfg)
{
    struct varve_opts all = {.opts_size = opts->opts_size};
    from_config(&all, cfg);
    memcpy(opts, &all, VV_MIN(opts->opts_size, sizeof(all)));
}

static int load_defaults(char *err, size_t err_bytes, struct varve_opts *ret_opts)
{
    struct vv_config cfg;
    int rc = vv_config_load(&cfg, err, err_bytes);
    if (rc == 0)
        from_config(ret_opts, &cfg);
    return rc;
}

int varve_opts_init(struct varve_opts *opts, size_t opts_size)
{
    char err[256] = "";
    struct varve_opts o = {.opts_size = opts_size};
    if (!opts || !size_ok(&o))
        return vvi_fail(NULL, &in_options, -EINVAL,
                        "opts is NULL, or opts_size, %zu, is not the size of the structure",
                        opts_size);
    int rc = load_defaults(err, sizeof(err), &o);
    if (rc)
        return vvi_fail(NULL, &in_options, rc, "%s", err);
    memset(opts, 0, opts_size);
    memcpy(opts, &o, VV_MIN(opts_size, sizeof(o)));
    return 0;
}

int varve_opts_load(struct varve_opts *opts, const char *ini_path)
{
    char err[256] = "";
    struct vv_config cfg;
    if (!size_ok(opts) || !ini_path)
        return vvi_fail(NULL, &in_options, -EINVAL,
                        "an argument is NULL, or varve_opts_init was not called on opts");
    config_of(&cfg, opts);
    int rc = vv_config_load_ini(&cfg, ini_path, err, sizeof(err));
    if (rc == 0)
        rc = vv_config_load_env(&cfg, err, sizeof(err));
    if (rc)
        return vvi_fail(NULL, &in_options, rc, "%s", err[0] ? err : ini_path);
    config_into(opts, &cfg);
    return 0;
}

int varve_opts_set(struct varve_opts *opts, const char *key, const char *value)
{
    char err[256] = "";
    struct vv_config cfg;
    if (!size_ok(opts) || !key || !value)
        return vvi_fail(NULL, &in_options, -EINVAL,
                        "an argument is NULL, or varve_opts_init was not called on opts");
    config_of(&cfg, opts);
    int rc = vv_config_set(&cfg, key, value, err, sizeof(err));
    if (rc)
        return vvi_fail(NULL, &in_options, rc, "%s", err);
    config_into(opts, &cfg);
    return 0;
}

int vvi_opts_take(const struct varve_opts *opts, char *err, size_t err_bytes,
                  struct varve_opts *ret_opts)
{
    struct varve_opts o = {0};
    if (opts && !size_ok(opts)) {
        snprintf(err, err_bytes, "opts_size is %zu: call varve_opts_init on the options first",
                 opts->opts_size);
        return -EINVAL;
    }
    int rc = load_defaults(err, err_bytes, &o);
    if (rc)
        return rc;
    if (opts)
        memcpy(&o, opts, VV_MIN(opts->opts_size, sizeof(o)));
    o.opts_size = sizeof(o);
    *ret_opts = o;
    return 0;
}

static int refuse(char *err, size_t err_bytes, int rc, const char *text)
{
    snprintf(err, err_bytes, "%s", text);
    return rc;
}

/* vv_thread_group_new checks the rest. */
static int check_helpers(const struct varve_opts *o, char *err, size_t n)
{
    if (strnlen(o->helper_cores, sizeof(o->helper_cores)) == sizeof(o->helper_cores))
        return refuse(err, n, -EINVAL, "helper_cores: the text is not terminated by a zero byte");
    if (strnlen(o->rank_cores, sizeof(o->rank_cores)) == sizeof(o->rank_cores))
        return refuse(err, n, -EINVAL, "rank_cores: the text is not terminated by a zero byte");
    if (strnlen(o->helper_name, sizeof(o->helper_name)) == sizeof(o->helper_name))
        return refuse(err, n, -EINVAL, "helper_name: the text is not terminated by a zero byte");
    if (strnlen(o->helper_program, sizeof(o->helper_program)) == sizeof(o->helper_program))
        return refuse(err, n, -EINVAL, "helper_program: the path is not terminated by a zero byte");
    if (o->helpers < -1 || o->helpers > 255)
        return refuse(err, n, -EINVAL, "helpers: it must be from -1 to 255");
    return 0;
}

static int check_remote(const struct varve_opts *o, char *err, size_t n)
{
    if (strnlen(o->remote, sizeof(o->remote)) == sizeof(o->remote))
        return refuse(err, n, -EINVAL, "remote: the path is not terminated by a zero byte");
    if (strnlen(o->run, sizeof(o->run)) == sizeof(o->run))
        return refuse(err, n, -EINVAL, "run: the text is not terminated by a zero byte");
    if (o->ranks < 1)
        return refuse(err, n, -EINVAL, "ranks: it must be at least 1");
    if (o->level == VARVE_LEVEL_LOCAL || (o->level == VARVE_LEVEL_CACHED && !o->remote[0]))
        return 0;
    if (!o->remote[0])
        return refuse(err, n, -EINVAL, "levels remote and complete need a folder: set `remote`");
    if (vv_s3_is_url(o->remote) && (!o->local[0] || o->level == VARVE_LEVEL_CACHED))
        return refuse(err, n, -EINVAL,
                      o->level == VARVE_LEVEL_CACHED
                          ? "remote: an object store is no layer for level cached: set a folder, "
                            "or level remote"
                          : "remote: copies in an object store need a local folder: set `local`");
    if (strcmp(o->remote, o->local) == 0)
        return refuse(err, n, -EINVAL, "local and remote are the same folder: leave `local` empty");
    if (o->gds)
        return refuse(err, n, -ENOTSUP, "gds: cannot be combined with a remote folder");
    if (o->level == VARVE_LEVEL_COMPLETE && o->rank >= o->ranks)
        return refuse(err, n, -EINVAL,
                      "rank: it must be below ranks; processes of a job are numbered from 0 on");
    if (o->level == VARVE_LEVEL_COMPLETE && o->ranks > 1 && !o->run[0] && o->run_id == 0)
        return refuse(err, n, -EINVAL,
                      "level complete on several ranks needs `run`, the same on all of them");
    return 0;
}

int vvi_opts_parity(const struct varve_opts *o, uint32_t *ret_lost)
{
    char *end;
    long k;
    *ret_lost = 0;
    if (!o->parity[0] || strcmp(o->parity, "off") == 0)
        return 0;
    if (strcmp(o->parity, "xor") == 0) {
        *ret_lost = 1;
        return 0;
    }
    if (strncmp(o->parity, "rs:", 3) != 0 || o->parity[3] < '1' || o->parity[3] > '9')
        return -EINVAL;
    k = strtol(o->parity + 3, &end, 10);
    if (*end || k >= VV_ERASURE_MAX)
        return -EINVAL;
    *ret_lost = (uint32_t)k;
    return 0;
}

static int check_parity(const struct varve_opts *o, char *err, size_t n)
{
    uint32_t lost;
    if (strnlen(o->parity, sizeof(o->parity)) == sizeof(o->parity) || vvi_opts_parity(o, &lost))
        return refuse(err, n, -EINVAL, "parity: neither off nor xor nor rs:K, such as rs:2");
    if (lost == 0)
        return 0;
    if (lost > 1 && !vv_erasure_any())
        return refuse(err, n, -ENOTSUP,
                      "parity: rs needs ISA-L, without which this library was built; there is xor");
    if (o->partner)
        return refuse(err, n, -EINVAL, "parity: cannot be combined with partner copies");
    if (o->parity_set < 2 || o->parity_set > VV_ERASURE_MAX || (uint32_t)o->parity_set <= lost)
        return refuse(err, n, -EINVAL,
                      "parity_set: it must be from 2 to 64, and more than K of rs:K (1 with xor)");
    if (o->level != VARVE_LEVEL_LOCAL)
        return refuse(err, n, -EINVAL, "parity: it requires level local");
    if (o->partner_timeout_ms <= 0)
        return refuse(err, n, -EINVAL, "partner_timeout_ms: it must be above 0");
    return 0;
}

static int check_partner(const struct varve_opts *o, char *err, size_t n)
{
    if (strnlen(o->node, sizeof(o->node)) == sizeof(o->node))
        return refuse(err, n, -EINVAL, "node: the text is not terminated by a zero byte");
    if (!o->partner)
        return 0;
    if (o->level != VARVE_LEVEL_LOCAL)
        return refuse(err, n, -EINVAL, "partner: copies require level local");
    if (o->partner_timeout_ms <= 0)
        return refuse(err, n, -EINVAL, "partner_timeout_ms: it must be above 0");
    return 0;
}

static int check_values(const struct varve_opts *o, char *err, size_t n)
{
    if (o->device < VARVE_DEVICE_AUTO || o->device > VARVE_DEVICE_NONE)
        return refuse(err, n, -EINVAL, "device: not a value of enum varve_device_kind");
    if (o->policy < VARVE_POLICY_NEXT || o->policy > VARVE_POLICY_LRU)
        return refuse(err, n, -EINVAL, "policy: not a value of enum varve_policy_kind");
    if (o->level < VARVE_LEVEL_CACHED || o->level > VARVE_LEVEL_COMPLETE)
        return refuse(err, n, -EINVAL, "level: not a value of enum varve_level");
    if (o->local_io < VARVE_LOCAL_IO_AUTO || o->local_io > VARVE_LOCAL_IO_BUFFERED)
        return refuse(err, n, -EINVAL, "local_io: not a value of enum varve_local_io");
    if (o->spill < VARVE_SPILL_SHARED || o->spill > VARVE_SPILL_RECORD)
        return refuse(err, n, -EINVAL, "spill: neither shared nor record");
    if (o->local_sync < VARVE_LOCAL_SYNC_COMMIT || o->local_sync > VARVE_LOCAL_SYNC_OFF)
        return refuse(err, n, -EINVAL, "local_sync: neither commit nor off");
    if (o->rank < 0)
        return refuse(err, n, -EINVAL, "rank: it must not be negative");
    if (o->page_bytes && (!vv_is_pow2(o->page_bytes) || o->page_bytes < VV_PAGE_BYTES_MIN ||
                          o->page_bytes > VV_CONFIG_PAGE_MAX))
        return refuse(err, n, -EINVAL, "page: not a power of two from 4K to 64M");
    if (o->device_id < -1)
        return refuse(err, n, -EINVAL, "device_id: neither -1 nor the number of a device");
    if (o->level == VARVE_LEVEL_LOCAL && !o->local[0])
        return refuse(err, n, -EINVAL, "level local needs a folder: set `local`");
    if (strnlen(o->local, sizeof(o->local)) == sizeof(o->local))
        return refuse(err, n, -EINVAL, "local: the path is not terminated by a zero byte");
    if (strnlen(o->trace_file, sizeof(o->trace_file)) == sizeof(o->trace_file))
        return refuse(err, n, -EINVAL, "trace_file: the path is not terminated by a zero byte");
    if (strnlen(o->stats, sizeof(o->stats)) == sizeof(o->stats))
        return refuse(err, n, -EINVAL, "stats: the path is not terminated by a zero byte");
    if (strnlen(o->metrics, sizeof(o->metrics)) == sizeof(o->metrics))
        return refuse(err, n, -EINVAL, "metrics: the path is not terminated by a zero byte");
    int rc = check_partner(o, err, n);
    if (rc == 0)
        rc = check_parity(o, err, n);
    if (rc == 0)
        rc = check_helpers(o, err, n);
    return rc ? rc : check_remote(o, err, n);
}

int vvi_opts_check(const struct varve_opts *opts, uint64_t ret_rate[VV_HOP_COUNT], char *err,
                   size_t err_bytes)
{
    int rc = check_values(opts, err, err_bytes);
    if (rc)
        return rc;
    struct vv_config cfg;
    struct vv_config_rates r = {0};
    vv_config_init(&cfg);
    to_config(&cfg, opts);
    rc = vv_config_check(&cfg, err, err_bytes);
    if (rc == 0 && cfg.rate[0])
        rc = vv_config_rates_parse(cfg.rate, err, err_bytes, &r);
    if (rc)
        return rc;
    ret_rate[VV_HOP_D2D] = r.d2d;
    /* Without a device the first copy is within host memory, so the rate of a device's first copy is used
     * for it: runs with and without a device can then be compared. */
    ret_rate[VV_HOP_H2H] = r.h2h ? r.h2h : r.d2d;
    ret_rate[VV_HOP_D2H] = r.d2h;
    ret_rate[VV_HOP_H2D] = r.h2d;
    ret_rate[VV_HOP_H2F] = r.h2f;
    ret_rate[VV_HOP_F2H] = r.f2h;
    return 0;
}

void vvi_opts_remote_rates(const struct varve_opts *opts, uint64_t *ret_f2r, uint64_t *ret_r2f)
{
    struct vv_config_rates r = {0};
    /* They were checked when the context was opened. */
    if (opts->rate[0] && vv_config_rates_parse(opts->rate, NULL, 0, &r))
        r = (struct vv_config_rates){0};
    *ret_f2r = r.f2r;
    *ret_r2f = r.r2f;
}

void vvi_opts_each(const struct varve_opts *opts,
                   void (*fn)(void *arg, const char *key, const char *value), void *arg)
{
    char value[VV_CONFIG_TEXT];
    struct vv_config cfg;

    config_of(&cfg, opts);
    for (size_t i = 0; i < vv_config_key_count; i++)
        if (vv_config_get(&cfg, vv_config_keys[i].name, value, sizeof(value)) == 0)
            fn(arg, vv_config_keys[i].name, value);
}

int vv_ckpt_check_environment(char *err, size_t err_bytes)
{
    struct varve_opts o;
    uint64_t rate[VV_HOP_COUNT];
    int rc = vvi_opts_take(NULL, err, err_bytes, &o);
    return rc ? rc : vvi_opts_check(&o, rate, err, err_bytes);
}
