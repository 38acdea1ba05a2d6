/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"

static size_t count_kind(const struct vv_trace_log *log, uint32_t kind)
{
    size_t n = 0;

    for (size_t i = 0; i < log->count; i++)
        n += log->records[i].kind == kind;
    return n;
}

static void off_writes_nothing(void)
{
    struct vv_trace_log log;

    vv_trace_stop();
    vv_trace_reset();
    vv_trace(VV_TRACE_HINT, 1, 2, 3, 4);
    T_OK(vv_trace_snapshot(&log));
    T_EQ(log.count, 0);
    T_EQ(log.lost, 0);
    vv_trace_log_fini(&log);
    vv_trace_log_fini(NULL);
}

static void fields(void)
{
    struct vv_trace_log log;
    uint64_t before = vv_now_ns();

    vv_trace_start(0);
    vv_trace_reset();
    vv_trace(VV_TRACE_STATE, 11, 1, 2, 3);
    vv_trace5(VV_TRACE_COPY_END, 21, 22, 23, 24, (uint64_t)-EIO);
    vv_trace_stop();
    T_OK(vv_trace_snapshot(&log));
    T_EQ(log.count, 2);
    T_EQ(log.records[0].kind, VV_TRACE_STATE);
    T_EQ(log.records[0].thread, gettid());
    T_CHECK(log.records[0].time_ns >= before && log.records[1].time_ns <= vv_now_ns());
    T_CHECK(log.records[0].time_ns <= log.records[1].time_ns);
    for (uint64_t i = 0; i < 4; i++) {
        T_EQ(log.records[0].arg[i], i == 0 ? 11 : i);
        T_EQ(log.records[1].arg[i], 21 + i);
    }
    T_EQ(log.records[0].arg[4], 0);
    T_EQ((int64_t)log.records[1].arg[4], -EIO);
    vv_trace_log_fini(&log);

    vv_trace_reset();
    T_OK(vv_trace_snapshot(&log));
    T_EQ(log.count, 0);
    vv_trace_log_fini(&log);
}

static void names(void)
{
    T_STREQ(vv_trace_kind_name(VV_TRACE_COPY_START), "copy-start");
    T_STREQ(vv_trace_arg_name(VV_TRACE_COPY_START, 4), "bytes");
    T_STREQ(vv_trace_arg_name(VV_TRACE_HINT, 4), "");
    T_STREQ(vv_trace_kind_name(VV_TRACE_KIND_COUNT), "?");
    T_STREQ(vv_trace_arg_name(VV_TRACE_STATE, VV_TRACE_ARGS), "");
    for (uint32_t i = 0; i < VV_TRACE_KIND_COUNT; i++)
        for (uint32_t j = 0; j < i; j++)
            T_CHECK(strcmp(vv_trace_kind_name(i), vv_trace_kind_name(j)) != 0);
}

static void *write_some(void *arg)
{
    for (uint64_t i = 0; i < (uintptr_t)arg; i++)
        vv_trace(VV_TRACE_HINT, i, ~i, 0, 0);
    return NULL;
}

static void in_thread(void *(*fn)(void *), size_t n)
{
    pthread_t thread;

    T_EQ(pthread_create(&thread, NULL, fn, (void *)n), 0);
    T_EQ(pthread_join(thread, NULL), 0);
}

/* The newest records stay, the rest is counted. */
static void wrap(void)
{
    struct vv_trace_log log;

    vv_trace_start(
        100); /* rounded up to 128; a ring of this size is made for the next new thread */
    vv_trace_reset();
    in_thread(write_some, 1000);
    vv_trace_stop();
    T_OK(vv_trace_snapshot(&log));
    T_EQ(log.count, 128);
    T_EQ(log.lost, 1000 - 128);
    for (size_t i = 0; i < log.count; i++)
        T_EQ(log.records[i].arg[0], 1000 - 128 + i);
    vv_trace_log_fini(&log);
}

/* Records outlive their thread; its ring serves the next one. */
static void threads_come_and_go(void)
{
    struct vv_trace_log log;

    vv_trace_start(4096);
    vv_trace_reset();
    for (int i = 0; i < 40; i++)
        in_thread(write_some, 100);
    vv_trace_stop();
    T_OK(vv_trace_snapshot(&log));
    T_EQ(count_kind(&log, VV_TRACE_HINT), 4000);
    T_EQ(log.lost, 0);
    vv_trace_log_fini(&log);
}

static _Atomic bool halt;

static void *write_until_halt(void *arg)
{
    uint64_t salt = (uintptr_t)arg;

    for (uint64_t i = 0; !atomic_load_explicit(&halt, memory_order_relaxed); i++)
        vv_trace5(VV_TRACE_COPY_START, i, i ^ salt, ~i, i * 3, salt);
    return NULL;
}

/* Writers never stop while records are read: whatever is returned is whole. The rings are small, so
 * that most slots are overwritten under the reader. */
static void concurrent_snapshots(void)
{
    pthread_t threads[3];
    struct vv_trace_log log;
    size_t seen = 0;

    vv_trace_start(64);
    vv_trace_reset();
    for (uintptr_t i = 0; i < 3; i++)
        T_EQ(pthread_create(&threads[i], NULL, write_until_halt, (void *)(i + 1)), 0);
    for (int round = 0; round < 500 || seen < 1000; round++) {
        T_OK(vv_trace_snapshot(&log));
        for (size_t i = 0; i < log.count; i++) {
            const struct vv_trace_record *r = &log.records[i];

            if (r->kind != VV_TRACE_COPY_START)
                continue;
            T_CHECK(r->arg[1] == (r->arg[0] ^ r->arg[4]));
            T_CHECK(r->arg[2] == ~r->arg[0] && r->arg[3] == r->arg[0] * 3);
            T_CHECK(r->arg[4] >= 1 && r->arg[4] <= 3);
            T_CHECK(i == 0 || log.records[i - 1].time_ns <= r->time_ns);
            seen++;
        }
        vv_trace_log_fini(&log);
        if (round % 100 == 0)
            vv_trace_reset();
    }
    atomic_store_explicit(&halt, true, memory_order_relaxed);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(threads[i], NULL), 0);
    vv_trace_stop();
}

int main(void)
{
    T_RUN(off_writes_nothing);
    T_RUN(fields);
    T_RUN(names);
    T_RUN(wrap);
    T_RUN(threads_come_and_go);
    T_RUN(concurrent_snapshots);
    return t_done();
}
