/* SPDX-License-Identifier: Apache-2.0 */
/* The lock checker itself, and the condition variables. */
#include "base/lock.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "t.h"

static char reported[512];
static int reports;

static void note_report(const char *file, int line, const char *text)
{
    (void)file;
    (void)line;
    snprintf(reported, sizeof(reported), "%s", text);
    reports++;
}

static void expect_report(const char *text)
{
#ifdef VV_DEBUG
    T_EQ(reports, 1);
    if (!strstr(reported, text))
        t_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", text, reported);
#else
    (void)text;
    T_EQ(reports, 0);
#endif
    reports = 0;
}

static void increasing_is_fine(void)
{
    struct vv_mutex m[VV_RANK_COUNT];

    for (int i = 0; i < VV_RANK_COUNT; i++)
        vv_mutex_init(&m[i], vv_lock_rank_name(i), i);
    for (int i = 0; i < VV_RANK_COUNT; i++)
        vv_mutex_lock(&m[i]);
    for (int i = 0; i < VV_RANK_COUNT; i += 2) /* the order of releases is free */
        vv_mutex_unlock(&m[i]);
    for (int i = 1; i < VV_RANK_COUNT; i += 2) {
        T_CHECK(vv_mutex_held(&m[i]));
        vv_mutex_unlock(&m[i]);
    }
    for (int i = 0; i < VV_RANK_COUNT; i++)
        vv_mutex_fini(&m[i]);
}

static void inversion_is_seen(void)
{
    struct vv_mutex engine, store, store2;
    vv_assert_handler former = vv_assert_set_handler(note_report);

    vv_mutex_init(&engine, "the engine", VV_RANK_ENGINE);
    vv_mutex_init(&store, "a store", VV_RANK_STORE);
    vv_mutex_init(&store2, "another store", VV_RANK_STORE);

    vv_mutex_lock(&store);
    vv_mutex_lock(&engine);
    expect_report("\"the engine\" (ENGINE) while holding \"a store\" (STORE)");
    vv_mutex_unlock(&engine);
    vv_mutex_lock(&store2);
    expect_report("inverted");
    vv_mutex_unlock(&store2);
    T_EQ(reports, 0);
    vv_mutex_unlock(&store);

    vv_assert_set_handler(former);
    vv_mutex_fini(&engine);
    vv_mutex_fini(&store);
    vv_mutex_fini(&store2);
}

static void wait_without_the_lock_is_seen(void)
{
#ifdef VV_DEBUG
    struct vv_mutex m;
    struct vv_cond c;
    vv_assert_handler former;

    vv_mutex_init(&m, "m", VV_RANK_AIO);
    vv_cond_init(&c);
    vv_mutex_lock(&m);
    T_ERR(vv_cond_wait_until(&c, &m, vv_now_ns()), -ETIMEDOUT);
    T_CHECK(vv_mutex_held(&m));
    vv_mutex_unlock(&m);
    T_CHECK(!vv_mutex_held(&m));
    former = vv_assert_set_handler(note_report);
    /* The lock is taken by hand, so that the wait that goes on after the report is a legal one. */
    T_EQ(pthread_mutex_lock(&m.mutex), 0);
    T_ERR(vv_cond_wait_until(&c, &m, vv_now_ns()), -ETIMEDOUT);
    expect_report("not held");
    vv_mutex_unlock(&m);
    expect_report("does not hold it");
    vv_assert_set_handler(former);
    vv_cond_fini(&c);
    vv_mutex_fini(&m);
#endif
}

static struct {
    struct vv_mutex m;
    struct vv_cond c;
    int turn; /* Synchronization: m */
} table;

static void *ping(void *arg)
{
    int me = arg != NULL;

    vv_mutex_lock(&table.m);
    for (int i = 0; i < 1000; i++) {
        while (table.turn % 2 != me)
            T_OK(vv_cond_wait_until(&table.c, &table.m, VV_NEVER_NS));
        table.turn++;
        vv_cond_broadcast(&table.c);
    }
    vv_mutex_unlock(&table.m);
    return NULL;
}

static void two_threads_take_turns(void)
{
    pthread_t a, b;

    vv_mutex_init(&table.m, "table", VV_RANK_ENGINE);
    vv_cond_init(&table.c);
    T_EQ(pthread_create(&a, NULL, ping, NULL), 0);
    T_EQ(pthread_create(&b, NULL, ping, &table), 0);
    T_EQ(pthread_join(a, NULL), 0);
    T_EQ(pthread_join(b, NULL), 0);
    T_EQ(table.turn, 2000);
    vv_cond_fini(&table.c);
    vv_mutex_fini(&table.m);
}

static void deadlines(void)
{
    struct vv_mutex m;
    struct vv_cond c;
    uint64_t deadline = vv_now_ns() + 2 * VV_NS_PER_MS;

    vv_mutex_init(&m, "m", VV_RANK_CTX);
    vv_cond_init(&c);
    vv_mutex_lock(&m);
    while (vv_cond_wait_until(&c, &m, deadline) == 0)
        ; /* it may wake early, but then it returns 0 */
    T_CHECK(vv_now_ns() >= deadline);
    vv_mutex_unlock(&m);
    deadline = vv_now_ns() + VV_NS_PER_MS;
    vv_sleep_until_ns(deadline);
    T_CHECK(vv_now_ns() >= deadline);
    vv_sleep_until_ns(0);
    T_CHECK(vv_deadline_ns(-1) == VV_NEVER_NS);
    T_CHECK(vv_deadline_ns(0) <= vv_now_ns());
    vv_cond_fini(&c);
    vv_mutex_fini(&m);
}

int main(void)
{
    T_RUN(increasing_is_fine);
    T_RUN(inversion_is_seen);
    T_RUN(wait_without_the_lock_is_seen);
    T_RUN(two_threads_take_turns);
    T_RUN(deadlines);
    return t_done();
}
