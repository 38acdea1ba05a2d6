/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranked locks. The record of held locks is per thread, so checking takes no lock. A violation is reported
 * to the assertion handler (base/assert.h) before the pthread call: an inversion is found even in runs where
 * it does not deadlock. If a test's handler returns, the operation continues.
 *
 * pthread calls on a valid mutex fail only because of our own bugs, so their results are asserted, not
 * returned.
 */
#include "base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"

static const struct {
    const char *name, *text;
} ranks[VV_RANK_COUNT] = {
#define X(name, text) [VV_RANK_##name] = {#name, text},
    VV_LOCK_RANKS(X)
#undef X
};

const char *vv_lock_rank_name(enum vv_lock_rank rank)
{
    return ranks[rank].name;
}

const char *vv_lock_rank_text(enum vv_lock_rank rank)
{
    return ranks[rank].text;
}

#ifdef VV_DEBUG

/* More than the number of ranks. */
#define HELD_MAX 32

static _Thread_local struct {
    const struct vv_mutex *lock[HELD_MAX];
    int count;
} held;

static void report(const char *what, const struct vv_mutex *m, const struct vv_mutex *other)
{
    char text[256];

    if (other)
        snprintf(text, sizeof(text), "%s: \"%s\" (%s) while holding \"%s\" (%s)", what, m->name,
                 ranks[m->rank].name, other->name, ranks[other->rank].name);
    else
        snprintf(text, sizeof(text), "%s: \"%s\" (%s)", what, m->name, ranks[m->rank].name);
    vv_assert_fail(__FILE__, __LINE__, text);
}

static void check_order(const struct vv_mutex *m)
{
    for (int i = 0; i < held.count; i++) {
        if (held.lock[i] == m)
            report("lock taken twice", m, NULL);
        else if (held.lock[i]->rank >= m->rank)
            report("lock order inverted", m, held.lock[i]);
    }
}

static void note_taken(const struct vv_mutex *m)
{
    if (held.count == HELD_MAX) {
        report("too many locks held", m, NULL);
        return;
    }
    held.lock[held.count++] = m;
}

static void note_released(const struct vv_mutex *m)
{
    for (int i = held.count - 1; i >= 0; i--) {
        if (held.lock[i] != m)
            continue;
        for (held.count--; i < held.count; i++)
            held.lock[i] = held.lock[i + 1];
        return;
    }
    report("lock released by a thread that does not hold it", m, NULL);
}

bool vv_mutex_held(const struct vv_mutex *m)
{
    for (int i = 0; i < held.count; i++)
        if (held.lock[i] == m)
            return true;
    return false;
}

static void check_wait(const struct vv_mutex *m)
{
    if (!vv_mutex_held(m))
        report("wait on a lock that is not held", m, NULL);
}

#else

static void check_order(const struct vv_mutex *m)
{
    (void)m;
}

static void note_taken(const struct vv_mutex *m)
{
    (void)m;
}

static void note_released(const struct vv_mutex *m)
{
    (void)m;
}

bool vv_mutex_held(const struct vv_mutex *m)
{
    (void)m;
    return true;
}

static void check_wait(const struct vv_mutex *m)
{
    (void)m;
}

#endif

void vv_mutex_init(struct vv_mutex *m, const char *name, enum vv_lock_rank rank)
{
    int rc = pthread_mutex_init(&m->mutex, NULL);

    vv_assert(rc == 0);
    (void)rc;
    m->name = name;
    m->rank = rank;
}

void vv_mutex_fini(struct vv_mutex *m)
{
    int rc = pthread_mutex_destroy(&m->mutex);

    vv_assert(rc == 0);
    (void)rc;
}

void vv_mutex_lock(struct vv_mutex *m)
{
    int rc;

    check_order(m);
    rc = pthread_mutex_lock(&m->mutex);
    vv_assert(rc == 0);
    (void)rc;
    note_taken(m);
}

void vv_mutex_unlock(struct vv_mutex *m)
{
    int rc;

    note_released(m);
    rc = pthread_mutex_unlock(&m->mutex);
    vv_assert(rc == 0);
    (void)rc;
}

void vv_cond_init(struct vv_cond *c)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    vv_assert(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    vv_assert(rc == 0);
    rc = pthread_cond_init(&c->cond, &attr);
    vv_assert(rc == 0);
    (void)rc;
    pthread_condattr_destroy(&attr);
}

void vv_cond_fini(struct vv_cond *c)
{
    int rc = pthread_cond_destroy(&c->cond);

    vv_assert(rc == 0);
    (void)rc;
}

void vv_cond_signal(struct vv_cond *c)
{
    pthread_cond_signal(&c->cond);
}

void vv_cond_broadcast(struct vv_cond *c)
{
    pthread_cond_broadcast(&c->cond);
}

/* The lock stays in the thread's record while it waits: the thread takes no other lock meanwhile, and holds
 * this one again afterwards. */
void vv_cond_wait(struct vv_cond *c, struct vv_mutex *m)
{
    int rc;

    check_wait(m);
    rc = pthread_cond_wait(&c->cond, &m->mutex);
    vv_assert(rc == 0);
    (void)rc;
}

int vv_cond_wait_until(struct vv_cond *c, struct vv_mutex *m, uint64_t deadline_ns)
{
    struct timespec ts;
    int rc;

    if (deadline_ns == VV_NEVER_NS) {
        vv_cond_wait(c, m);
        return 0;
    }
    check_wait(m);
    ts.tv_sec = (time_t)(deadline_ns / VV_NS_PER_S);
    ts.tv_nsec = (long)(deadline_ns % VV_NS_PER_S);
    rc = pthread_cond_timedwait(&c->cond, &m->mutex, &ts);
    vv_assert(rc == 0 || rc == ETIMEDOUT);
    return rc == ETIMEDOUT ? -ETIMEDOUT : 0;
}
