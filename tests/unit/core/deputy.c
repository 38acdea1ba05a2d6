/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deputy makes every call exactly once, or says that it will not; it sleeps until calls come
 * often, and again when they stop; and callers that it keeps waiting are woken.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "core/deputy.h"
#include "t.h"

enum { CALLERS = 4, CALLS = 2000 };

#define FOREVER_NS (UINT64_C(3600) * VV_NS_PER_S)

struct job {
    int n, result, awake;
    unsigned after; /* which step */
    uint64_t sleep_ns;
    pthread_t by;
};

static _Atomic int awake, wakings;
static _Atomic unsigned last_step; /* of keeping warm that was made */

static int work(void *arg)
{
    struct job *job = arg;
    job->n++;
    job->by = pthread_self();
    job->awake = atomic_load(&awake);
    job->after = atomic_load(&last_step);
    if (job->sleep_ns)
        vv_sleep_until_ns(vv_now_ns() + job->sleep_ns);
    return job->result;
}

enum { STEPS = 3 };

static _Atomic unsigned warmed;
static _Atomic bool shut;   /* a step that began does not end */
static _Atomic bool inside; /* such a step has begun */

static void warm(void *arg, unsigned step)
{
    T_CHECK(step == 0 ||
            step == atomic_load(&last_step) + 1); /* from the first when it has slept */
    atomic_store(&last_step, step);
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
    while (atomic_load(&shut)) {
        atomic_store(&inside, true);
        sched_yield();
    }
    atomic_store(&inside, false);
}

static void wakes(void *arg)
{
    (void)arg;
    T_EQ(atomic_fetch_add(&awake, 1), 0);
    atomic_fetch_add(&wakings, 1);
}

static void sleeps(void *arg)
{
    (void)arg;
    T_EQ(atomic_fetch_sub(&awake, 1), 1);
}

static void open_deputy(uint64_t awake_ns, uint64_t take_ns, struct vv_deputy **ret_deputy)
{
    struct vv_deputy_opts o = {
        .awake_ns = awake_ns,
        .warm = warm,
        .warm_arg = &warmed,
        .warm_steps = STEPS,
        .warm_ns = 1,
        .wakes = wakes,
        .sleeps = sleeps,
        .take_ns = take_ns,
    };
    T_OK(vv_deputy_new(&o, ret_deputy));
}

/* Two calls in short order, made without it, wake it. */
static void wake(struct vv_deputy *d)
{
    struct job job = {0};
    int rc;
    for (;;) {
        vv_deputy_missed(d);
        if (vv_deputy_call(d, work, &job, &rc))
            return;
        sched_yield();
    }
}

static void test_sleeps_at_first(void)
{
    struct vv_deputy *d;
    struct job job = {0};
    int rc = 0;
    open_deputy(FOREVER_NS, FOREVER_NS, &d);
    T_CHECK(!vv_deputy_call(d, work, &job, &rc));
    T_EQ(job.n, 0);
    T_EQ(vv_deputy_calls(d), 0u);
    vv_deputy_free(d);
    vv_deputy_free(NULL);
}

/* One that is told that calls are about to come has not to be woken by them. */
static void test_awake_at_first(void)
{
    struct vv_deputy_opts o = {.awake_ns = FOREVER_NS, .take_ns = FOREVER_NS, .awake = true};
    struct job job = {.result = 5};
    struct vv_deputy *d;
    int result = 0;

    T_OK(vv_deputy_new(&o, &d));
    while (!vv_deputy_call(d, work, &job, &result))
        sched_yield(); /* until it runs */
    T_EQ(result, 5);
    T_EQ(vv_deputy_calls(d), 1u);
    vv_deputy_free(d);
}

/* A call that nobody followed up does not wake it: it would burn a processor for nothing. */
static void test_seldom_calls(void)
{
    struct vv_deputy *d;
    open_deputy(1, FOREVER_NS, &d); /* no two calls are so near */
    unsigned before = atomic_load(&warmed);
    for (int i = 0; i < 100; i++)
        vv_deputy_missed(d);
    vv_deputy_free(d);
    T_EQ(atomic_load(&warmed), before);
}

static void test_calls(void)
{
    struct vv_deputy *d;
    struct job job = {.result = -5};
    int rc = 0;
    open_deputy(FOREVER_NS, FOREVER_NS, &d);
    wake(d);
    T_CHECK(atomic_load(&warmed) > 0);
    T_CHECK(vv_deputy_call(d, work, &job, &rc));
    T_EQ(rc, -5);
    T_EQ(job.n, 1);
    T_CHECK(!pthread_equal(job.by, pthread_self()));
    T_EQ(job.awake, 1); /* its calls come between the two */

    struct job slow = {.result = 7, .sleep_ns = 5 * VV_NS_PER_MS}; /* the caller sleeps as well */
    T_CHECK(vv_deputy_call(d, work, &slow, &rc));
    T_EQ(rc, 7);
    T_EQ(slow.n, 1);
    vv_deputy_free(d);
}

/* Keeping warm is done in steps, and calls come between any two of them. */
static void test_between_steps(void)
{
    struct vv_deputy *d;
    struct job job = {0};
    unsigned seen = 0;
    int rc;
    open_deputy(FOREVER_NS, FOREVER_NS, &d);
    wake(d);
    uint64_t limit_ns = vv_now_ns() + 60 * VV_NS_PER_S;
    while (seen != (1u << STEPS) - 1 && vv_now_ns() < limit_ns) {
        T_CHECK(vv_deputy_call(d, work, &job, &rc));
        seen |= 1u << job.after;
    }
    T_EQ(seen, (1u << STEPS) - 1);
    vv_deputy_free(d);
}

/* Until it is inside a step that does not end, and was awake before: a call is given to it. */
static void shut_inside(struct vv_deputy *d)
{
    for (;;) {
        wake(d);
        int before = atomic_load(&wakings);
        atomic_store(&shut, true);
        while (!atomic_load(&inside)) {
            vv_deputy_missed(d);
            sched_yield();
        }
        if (atomic_load(&wakings) == before)
            return;
        atomic_store(&shut, false);
    }
}

/* Lets the step end, and goes on until it has made others, which it does not while it rests. */
static void let_go(struct vv_deputy *d)
{
    unsigned before = atomic_load(&warmed);
    atomic_store(&shut, false);
    while (atomic_load(&warmed) == before) {
        vv_deputy_missed(d);
        sched_yield();
    }
}

/* One call that it did not take in time does not send it to rest. The machine may keep it from taking
 * a second one, and then it has to: not every time. */
static void test_late_once(void)
{
    struct vv_deputy *d;
    struct job job = {0};
    bool stayed = false;
    int rc;
    open_deputy(FOREVER_NS, 10 * VV_NS_PER_MS, &d);
    for (int i = 0; i < 20 && !stayed; i++) {
        shut_inside(d);
        int before = atomic_load(&wakings);
        T_CHECK(!vv_deputy_call(d, work, &job, &rc));
        let_go(d);
        stayed = atomic_load(&wakings) == before;
    }
    T_CHECK(stayed);
    vv_deputy_free(d);
}

/* Time and again does, and it is woken anew when it has rested; unless it was over before the machine
 * let it begin. */
static void test_late_often(void)
{
    struct vv_deputy *d;
    bool rested = false;
    int rc;
    open_deputy(FOREVER_NS, VV_NS_PER_MS, &d);
    for (int i = 0; i < 20 && !rested; i++) {
        struct job job = {0};
        shut_inside(d);
        int before = atomic_load(&wakings);
        for (int k = 0; k < 4; k++)
            T_CHECK(!vv_deputy_call(d, work, &job, &rc));
        T_EQ(job.n, 0);
        let_go(d);
        rested = atomic_load(&wakings) > before;
    }
    T_CHECK(rested);
    vv_deputy_free(d);
}

static void test_sleeps_again(void)
{
    struct vv_deputy *d;
    struct job job = {0};
    int rc;
    open_deputy(5 * VV_NS_PER_MS, FOREVER_NS, &d);
    wake(d);
    uint64_t limit_ns = vv_now_ns() + 60 * VV_NS_PER_S;
    bool called = true;
    while (called && vv_now_ns() < limit_ns) {
        vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
        called = vv_deputy_call(d, work, &job, &rc);
    }
    T_CHECK(!called);
    int before = atomic_load(&wakings);
    wake(d); /* and wakes again */
    T_CHECK(atomic_load(&wakings) > before);
    vv_deputy_free(d);
    T_EQ(atomic_load(&awake), 0);
}

struct caller {
    struct vv_deputy *d;
    pthread_t thread;
    struct job job;
    uint64_t by_deputy;
};

static void *caller_main(void *arg)
{
    struct caller *c = arg;
    for (int i = 0; i < CALLS; i++) {
        int rc = 0, before = c->job.n;
        c->job.result = i;
        c->job.sleep_ns = i % 500 == 499 ? VV_NS_PER_MS : 0;
        if (vv_deputy_call(c->d, work, &c->job, &rc)) {
            T_EQ(rc, i);
            c->by_deputy++;
        } else {
            T_EQ(c->job.n, before); /* it was not called, nor will it be */
            work(&c->job);
            vv_deputy_missed(c->d);
        }
        T_EQ(c->job.n, before + 1);
    }
    return NULL;
}

/* With little patience callers take calls back all the time; none is made twice or lost. */
static void test_many(uint64_t take_ns)
{
    struct vv_deputy *d;
    struct caller caller[CALLERS];
    uint64_t sum = 0;
    open_deputy(FOREVER_NS, take_ns, &d);
    for (int i = 0; i < CALLERS; i++) {
        caller[i] = (struct caller){.d = d};
        T_EQ(pthread_create(&caller[i].thread, NULL, caller_main, &caller[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        T_EQ(pthread_join(caller[i].thread, NULL), 0);
        T_EQ(caller[i].job.n, CALLS);
        sum += caller[i].by_deputy;
    }
    T_EQ(vv_deputy_calls(d), sum);
    vv_deputy_free(d);
}

static void test_many_patient(void)
{
    test_many(FOREVER_NS);
}

static void test_many_impatient(void)
{
    test_many(1);
}

int main(void)
{
    T_RUN(test_sleeps_at_first);
    T_RUN(test_awake_at_first);
    T_RUN(test_seldom_calls);
    T_RUN(test_calls);
    T_RUN(test_between_steps);
    T_RUN(test_late_once);
    T_RUN(test_late_often);
    T_RUN(test_sleeps_again);
    T_RUN(test_many_patient);
    T_RUN(test_many_impatient);
    return t_done();
}
