/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of every operation of the emulated device: it is counted, held up while memory is being registered, and
 * fails if a rule applies or the device is lost.
 *
 * Losing the device has two steps, because a caller that gets -ENODEV may free its buffers at once: first nothing new
 * starts and queued work is dropped; then, when the last copy has ended, calls begin to return -ENODEV. The time
 * between is at most one batch per engine.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/clock.h"
#include "device/host/host_private.h"

static bool rule_matches(const struct vvi_device_rule *r, enum vv_device_op op)
{
    return r->op == op || r->op == VV_DEVICE_OP_ANY;
}

/* Counts the call against every rule of this kind; the error of the first that fires, or 0. */
static int apply_rules_locked(struct vvi_device_host *d, enum vvi_device_rule_kind kind,
                              enum vv_device_op op)
{
    int err = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(d->rules); i++) {
        struct vvi_device_rule *r = &d->rules[i];

        if (r->kind != kind || !rule_matches(r, op))
            continue;
        if (r->nth > 1) {
            r->nth--;
            continue;
        }
        if (!err)
            err = r->err;
        if (r->count > 0 && --r->count == 0)
            r->kind = VVI_DEVICE_RULE_NONE;
    }
    return err;
}

static void count_locked(struct vvi_device_host *d, enum vv_device_op op)
{
    d->stats.calls[op]++;
    d->stats.calls[VV_DEVICE_OP_ANY]++;
}

int vvi_device_enter(struct vvi_device_host *d, enum vv_device_op op)
{
    int err;

    vv_mutex_lock(&d->lock);
    count_locked(d, op);
    while (!d->lost && vv_now_ns() < d->stall_until_ns)
        (void)vvi_device_wait_changed_locked(d, d->stall_until_ns);

    if (!d->losing && apply_rules_locked(d, VVI_DEVICE_RULE_LOSE, op))
        vvi_device_lose_locked(d);
    while (d->losing && !d->lost)
        (void)vvi_device_wait_changed_locked(d, VV_NEVER_NS);
    err = d->lost ? -ENODEV : 0;
    if (!err) {
        err = apply_rules_locked(d, VVI_DEVICE_RULE_CALL, op);
        if (err)
            d->stats.failed_calls++;
    }
    if (err)
        vv_mutex_unlock(&d->lock);
    return err;
}

void vvi_device_enter_void(struct vvi_device_host *d, enum vv_device_op op)
{
    vv_mutex_lock(&d->lock);
    count_locked(d, op);
}

int vvi_device_async_error_locked(struct vvi_device_host *d)
{
    return apply_rules_locked(d, VVI_DEVICE_RULE_ASYNC, VV_DEVICE_OP_COPY_ASYNC);
}

void vvi_device_lose_locked(struct vvi_device_host *d)
{
    if (!d->losing) {
        d->losing = true;
        for (size_t i = 0; i < VV_ARRAY_SIZE(d->engine); i++)
            vv_cond_signal(&d->engine[i].cond);
        while (d->live_head)
            (void)vvi_device_wait_changed_locked(d, VV_NEVER_NS);
        d->lost = true;
        vv_cond_broadcast(&d->changed);
    }
    while (!d->lost)
        (void)vvi_device_wait_changed_locked(d, VV_NEVER_NS);
}

static int add_rule(struct vv_device *dev, struct vvi_device_rule rule)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = -ENOSPC;

    if (rule.err >= 0 || rule.nth == 0 || rule.count == 0 || rule.op > VV_DEVICE_OP_ANY)
        return -EINVAL;
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < VV_ARRAY_SIZE(d->rules) && rc; i++) {
        if (d->rules[i].kind == VVI_DEVICE_RULE_NONE) {
            d->rules[i] = rule;
            rc = 0;
        }
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

int vv_device_host_fail(struct vv_device *d, enum vv_device_op op, uint64_t nth, int64_t count,
                        int err)
{
    return add_rule(
        d, (struct vvi_device_rule){
               .kind = VVI_DEVICE_RULE_CALL, .op = op, .nth = nth, .count = count, .err = err});
}

int vv_device_host_fail_async(struct vv_device *d, uint64_t nth, int64_t count, int err)
{
    return add_rule(d, (struct vvi_device_rule){.kind = VVI_DEVICE_RULE_ASYNC,
                                                .op = VV_DEVICE_OP_COPY_ASYNC,
                                                .nth = nth,
                                                .count = count,
                                                .err = err});
}

int vv_device_host_lose_at(struct vv_device *d, enum vv_device_op op, uint64_t nth)
{
    return add_rule(
        d, (struct vvi_device_rule){
               .kind = VVI_DEVICE_RULE_LOSE, .op = op, .nth = nth, .count = 1, .err = -ENODEV});
}

void vv_device_host_lose(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    vvi_device_lose_locked(d);
    vv_mutex_unlock(&d->lock);
}

void vv_device_host_heal(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < VV_ARRAY_SIZE(d->rules); i++)
        d->rules[i].kind = VVI_DEVICE_RULE_NONE;
    vv_mutex_unlock(&d->lock);
}
