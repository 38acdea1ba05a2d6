/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of managed memory: every one is counted once and under the right name, what calls find under
 * way and wait for too; costs are measured by the same counting; and what is expected is counts times
 * costs. Over the stand-in for the driver, whose steps are held up where a test needs it. */
#include "lab/shot/uvm_steps.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_private.h"
#include "lab/shot/baseline_uvm.h"
#include "lab/shot/uvm_calibrate.h"
#include "t.h"
#include "t_cuda.h"

#define NR   6
#define STEP ((uint64_t)4096)
#define SIZE (4 * STEP)

#define COUNTED (UVM_CALIBRATE_VERSIONS - 1) /* the first is not */

/* ---- what is expected ---- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* `n` times. */
static void add(struct uvm_account *a, enum uvm_who who, unsigned kind, unsigned n, uint64_t bytes,
                uint64_t ns)
{
    while (n-- > 0)
        uvm_account_add(a, who, kind, bytes, (struct uvm_sample){.ns = ns});
}

static void add_met(struct uvm_account *a, enum uvm_who who, unsigned kind, uint64_t bytes,
                    uint64_t ns, uint64_t age_ns)
{
    uvm_account_add(a, who, kind, bytes, (struct uvm_sample){ns, age_ns});
}

static bool expects(const struct uvm_account *costs, const struct uvm_account *shot,
                    enum uvm_who who, unsigned kind, double ns)
{
    double got = -1;

    return uvm_expected_ns(costs, shot, who, kind, &got) && near(got, ns);
}

static void counts_times_costs(void)
{
    static struct uvm_account costs, shot;
    double ns;

    add(&costs, UVM_PUT, UVM_REST, 10, 0, 10);
    add(&costs, UVM_PUT, UVM_NEW_USED, 3, 100, 200);
    add(&costs, UVM_THREADS, UVM_DOWN_FIRST, 8, 25, 100);
    add(&shot, UVM_PUT, UVM_REST, 5, 0, 1);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_REST, 50));
    /* Never seen before: as its like. */
    add(&shot, UVM_PUT, UVM_NEW_FRESH, 1, 10, 1);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_NEW_FRESH, 20));
    add(&shot, UVM_PUT, UVM_ROOM, 2, 15, 1);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_ROOM, 30 * 4));
    /* Where everything has been on the host before, that is what is known of steps down. */
    costs.s[UVM_THREADS][UVM_DOWN_AGAIN] = costs.s[UVM_THREADS][UVM_DOWN_FIRST];
    costs.s[UVM_THREADS][UVM_DOWN_FIRST] = (struct uvm_step){0};
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_ROOM, 30 * 4));
    /* And for advice. */
    shot.s[UVM_PUT][UVM_ROOM].advised_bytes = 20;
    T_CHECK(!uvm_expected_ns(&costs, &shot, UVM_PUT, UVM_ROOM, &ns));
    add(&costs, UVM_THREADS, UVM_ADVICE_DOWN, 2, 100, 300);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_ROOM, 30 * 4 + 20 * 3));
    T_CHECK(near(uvm_expected_call_s(&costs, &shot, UVM_PUT), (50 + 20 + 180) * 1e-9));
    /* Nothing is known of moves up, and nothing was counted of copies out of host memory. */
    add(&shot, UVM_GET, UVM_ARRIVE, 1, 10, 1);
    T_CHECK(!uvm_expected_ns(&costs, &shot, UVM_GET, UVM_ARRIVE, &ns));
    T_CHECK(expects(&costs, &shot, UVM_GET, UVM_COPY_HOST, 0));
    T_CHECK(uvm_expected_call_s(&costs, &shot, UVM_GET) == 0);
}

/* What is met lasted 100 and 300 in the calibration, whenever the call came. */
static void waits_for_what_is_left(void)
{
    static struct uvm_account costs, shot;
    const unsigned down = UVM_ADVISE + UVM_MET_DOWN, advice = UVM_ADVISE + UVM_MET_ADVICE_DOWN;
    double ns;

    add(&costs, UVM_PUT, UVM_ADVISE, 2, 999, 30);
    add(&costs, UVM_GET, UVM_COPY_OUT, 1, 100, 50);
    add_met(&costs, UVM_PUT, down, 999, 30 + 90, 10);
    add_met(&costs, UVM_PUT, down, 999, 30 + 280, 20);
    add_met(&shot, UVM_PUT, down, 1, 1, 0);
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 30 + 200));
    add_met(&shot, UVM_PUT, down, 1, 1, 80);
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 2 * 30 + 200 + 120));
    add_met(&shot, UVM_PUT, down, 1, 1, 100); /* the short one would be over */
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 3 * 30 + 200 + 120 + 200));
    add_met(&shot, UVM_PUT, down, 1, 1, 1000); /* both would be */
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 4 * 30 + 200 + 120 + 200));
    /* The same before a copy, which costs by the byte. */
    add_met(&shot, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN, 400, 1, 80);
    T_CHECK(expects(&costs, &shot, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN, 400 * 0.5 + 120));
    /* Unless copies are known not to wait so long. */
    add_met(&costs, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN, 100, 50 + 15, 85);
    T_CHECK(expects(&costs, &shot, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN, 400 * 0.5 + 20));
    /* Or not to wait at all, which is no wait until the call came. */
    add_met(&costs, UVM_GET, UVM_COPY_OUT + UVM_MET_UP, 100, 50 + 5, 85);
    add_met(&shot, UVM_GET, UVM_COPY_OUT + UVM_MET_UP, 400, 1, 10);
    T_CHECK(expects(&costs, &shot, UVM_GET, UVM_COPY_OUT + UVM_MET_UP, 400 * 0.5));
    /* Advice is another thing. */
    add_met(&shot, UVM_PUT, advice, 1, 1, 0);
    T_CHECK(!uvm_expected_ns(&costs, &shot, UVM_PUT, advice, &ns));
    add_met(&costs, UVM_PUT, advice, 1, 30 + 5000, 40);
    T_CHECK(expects(&costs, &shot, UVM_PUT, advice, 30 + 5040));
}

/* Threads take longer in the shot than before it, and so do waits for them: a call waits for 200 of the 400 that
 * a step took then, and for half of what steps take now. */
static void waits_for_what_threads_take_now(void)
{
    static struct uvm_account costs, shot;
    const unsigned down = UVM_ADVISE + UVM_MET_DOWN, advice = UVM_ADVISE + UVM_MET_ADVICE_DOWN,
                   gone = UVM_ADVISE + UVM_MET_ADVICE_GONE;

    add(&costs, UVM_PUT, UVM_ADVISE, 2, 999, 30);
    add_met(&costs, UVM_PUT, down, 999, 30 + 90, 10);
    add_met(&costs, UVM_PUT, down, 999, 30 + 280, 20);
    add(&costs, UVM_THREADS, UVM_DOWN_FIRST, 4, 10, 300);
    add(&costs, UVM_THREADS, UVM_DOWN_AGAIN, 4, 10, 500);
    add_met(&shot, UVM_PUT, down, 1, 1, 100);
    add(&shot, UVM_THREADS, UVM_DOWN_FIRST, 300, 10, 1000);
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 30 + 400));
    add(&shot, UVM_THREADS, UVM_DOWN_AGAIN, 100, 10,
        3000); /* each counts for those that it stands for */
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 30 + (3 * 400 + 1400) / 4.0));
    add_met(&shot, UVM_PUT, down, 1, 1, 500); /* only the long ones last so long */
    T_CHECK(expects(&costs, &shot, UVM_PUT, down, 2 * 30 + 650 + 1000));
    add(&shot, UVM_PUT, UVM_ROOM, 1, 20, 1);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_ROOM, 20 * 100));
    /* Advice on what is to go, and apart from it on what has gone. */
    add_met(&costs, UVM_PUT, advice, 1, 30 + 900, 100);
    add(&costs, UVM_THREADS, UVM_ADVICE_DOWN, 1, 10, 1000);
    add_met(&shot, UVM_PUT, advice, 1, 1, 0);
    add(&shot, UVM_THREADS, UVM_ADVICE_DOWN, 1, 10, 2000);
    add(&shot, UVM_THREADS, UVM_ADVICE_GONE, 1, 10, 4000);
    T_CHECK(expects(&costs, &shot, UVM_PUT, advice, 30 + 2000));
    add_met(&costs, UVM_PUT, gone, 1, 30 + 400, 100);
    add(&costs, UVM_THREADS, UVM_ADVICE_GONE, 1, 10, 500);
    add_met(&shot, UVM_PUT, gone, 1, 1, 0);
    T_CHECK(expects(&costs, &shot, UVM_PUT, gone, 30 + 4000));
    shot.s[UVM_PUT][UVM_ROOM].advised_bytes = 5;
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_ROOM, 20 * 100 + 5 * 200));
}

/* One of few that took much longer than the others does not count; of many every one does. Ages are
 * kept evenly. */
static void samples(void)
{
    static struct uvm_account costs, shot;
    const unsigned met = UVM_COPY_IN + UVM_MET_ADVICE_UP;
    double sum = 0;

    add(&shot, UVM_PUT, UVM_REST, 1, 0, 1);
    add(&costs, UVM_PUT, UVM_REST, 9, 0, 10);
    add(&costs, UVM_PUT, UVM_REST, 1, 0, 5000);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_REST, 10));
    add(&costs, UVM_PUT, UVM_REST, 90, 0, 10);
    T_CHECK(expects(&costs, &shot, UVM_PUT, UVM_REST, 59.9));
    for (uint64_t i = 0; i < 1000; i++)
        add_met(&shot, UVM_PUT, met, 3, 7, i);
    T_EQ(shot.s[UVM_PUT][met].count, 1000);
    T_EQ(shot.s[UVM_PUT][met].bytes, 3000);
    T_EQ(shot.s[UVM_PUT][met].ns, 7000);
    T_CHECK(shot.s[UVM_PUT][met].kept > UVM_SAMPLES / 2 &&
            shot.s[UVM_PUT][met].kept <= UVM_SAMPLES);
    for (uint32_t i = 0; i < shot.s[UVM_PUT][met].kept; i++)
        sum += (double)shot.s[UVM_PUT][met].sample[i].age_ns;
    T_CHECK(fabs(sum / shot.s[UVM_PUT][met].kept - 500) < 16);
}

static void rows(void)
{
    static struct uvm_account costs, shot;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    add(&costs, UVM_PUT, UVM_REST, 1, 0, 2000);
    add(&shot, UVM_PUT, UVM_REST, 2, 0, 3000);
    add(&shot, UVM_THREADS, UVM_DOWN_FIRST, 3, 1 << 20, 3000);
    add_met(&shot, UVM_GET, UVM_COPY_OUT + UVM_MET_ADVICE_UP, 1 << 20, 1000, 71000);
    add_met(&shot, UVM_GET, UVM_COPY_OUT + UVM_MET_ADVICE_UP, 1 << 20, 1000, 73000);
    uvm_steps_print(f, &costs, &shot);
    uvm_steps_print_json(f, &costs, &shot);
    fclose(f);
    T_CHECK(strstr(text, "the call itself") && strstr(text, "  1.50\n"));
    T_CHECK(strstr(text, "copy out beside advice up         2         2       72            - "));
    T_CHECK(strstr(text, "pages to the host, first") && !strstr(text, "advise"));
    T_CHECK(strstr(text, "\"count\":2,\"bytes\":0,\"measured_s\":6e-06,\"expected_s\":4e-06}"));
    T_CHECK(strstr(text, "\"expected_s\":null}]"));
    free(text);
    for (unsigned kind = 0; kind < UVM_KIND_NR; kind++) {
        add(&shot, UVM_GET, kind, 1, 1, 1);
        f = open_memstream(&text, &size);
        T_CHECK(f);
        uvm_steps_print(f, &costs, &shot);
        fclose(f);
        T_CHECK(!strstr(text, "(null)"));
        free(text);
    }
}

/* ---- what is counted ---- */

/* The threads' moves, or their advice, end when the gate is open. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t application;
    bool closed, advice_closed;
    unsigned waiting;
    unsigned advised; /* calls of the threads' */
    unsigned open_after_ms;
    unsigned slow_ms;           /* everything the threads do takes so long at least */
    struct shot_engine *let_go; /* its flusher, during the application's next wait */
    unsigned advised_meanwhile;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const struct vv_device_ops *real;
static struct vv_device_ops gated;
static unsigned (*real_advise)(CUdeviceptr, size_t, unsigned, struct vvi_cu_location);

static bool by_application(void)
{
    return pthread_equal(pthread_self(), gate.application);
}

static void pass_gate(const bool *closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.advised += closed == &gate.advice_closed;
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (*closed)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    pthread_mutex_unlock(&gate.lock);
    if (gate.slow_ms)
        vv_sleep_until_ns(vv_now_ns() + gate.slow_ms * VV_NS_PER_MS);
}

static unsigned advised(void)
{
    unsigned n;

    pthread_mutex_lock(&gate.lock);
    n = gate.advised;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

/* Time enough for what must not happen. */
static void linger(void)
{
    vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
}

static int gated_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns)
{
    struct shot_engine *e = gate.let_go;

    if (!by_application()) {
        pass_gate(&gate.closed);
    } else if (e) {
        gate.let_go = NULL;
        gate.advised_meanwhile = advised();
        shot_uvm_hold(e, false);
        linger();
        gate.advised_meanwhile = advised() - gate.advised_meanwhile;
    }
    return real->event_wait(d, ev, timeout_ns);
}

static unsigned gated_advise(CUdeviceptr at, size_t n, unsigned advice,
                             struct vvi_cu_location where)
{
    if (!by_application())
        pass_gate(&gate.advice_closed);
    return real_advise(at, n, advice, where);
}

static void set_gates(bool moves, bool advice)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = moves;
    gate.advice_closed = advice;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void set_gate(bool closed)
{
    set_gates(closed, false);
}

/* A thread, in the driver. */
static void until_held_up(void)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void *open_later(void *arg)
{
    vv_sleep_until_ns(vv_now_ns() + gate.open_after_ms * VV_NS_PER_MS);
    set_gate(false);
    return arg;
}

struct fixture {
    struct vv_device *d;
    struct shot_engine *e;
    void *buf;
    uint64_t bytes[NR];
    struct shot_sizes sizes;
    struct uvm_account a;
};

static struct vv_device *open_device(void)
{
    struct vv_device_cuda_opts opts = {.index = 0};
    struct vv_device *d;
    char err[256];

    if (!t_device_is_cuda())
        opts.library = t_fake_path(false);
    T_OK(vv_device_open_cuda(&opts, err, sizeof(err), &d));
    return d;
}

static void set_hooks(struct vv_device *d)
{
    real = d->ops;
    gated = *real;
    gated.event_wait = gated_wait;
    gate.application = pthread_self();
    d->ops = &gated;
    real_advise = vvi_cuda_of(d)->drv.cuMemAdvise;
    vvi_cuda_of(d)->drv.cuMemAdvise = gated_advise;
}

static void set_up(struct fixture *f, uint64_t cache, bool once)
{
    struct shot_baseline o = {.device_cache_bytes = cache, .consume_once = once};
    char err[256];

    f->d = open_device();
    for (int i = 0; i < NR; i++)
        f->bytes[i] = SIZE;
    f->sizes = (struct shot_sizes){
        .bytes = f->bytes, .nr = NR, .total_bytes = NR * SIZE, .largest_bytes = SIZE};
    o.device = f->d;
    o.sizes = &f->sizes;
    o.uvm = (struct shot_uvm_opts){.step_bytes = STEP, .yield = true, .fetch = true, .gone = true};
    set_hooks(f->d);
    T_OK(vv_device_mem_alloc(f->d, SIZE, &f->buf));
    T_OK(shot_engine_uvm(&o, err, sizeof(err), &f->e));
}

static void tear_down(struct fixture *f)
{
    set_gate(false);
    T_OK(shot_engine_close(f->e));
    vv_device_mem_free(f->d, f->buf);
    f->d->ops = real;
    vv_device_close(f->d);
}

static void put(struct fixture *f, uint64_t v)
{
    T_OK(f->e->ops->checkpoint(f->e, v, f->buf, SIZE));
}

static void get(struct fixture *f, uint64_t v)
{
    T_OK(f->e->ops->restore(f->e, v, f->buf, SIZE));
}

static uint64_t count(struct fixture *f, enum uvm_who who, unsigned kind)
{
    shot_uvm_account(f->e, &f->a);
    return f->a.s[who][kind].count;
}

static uint64_t bytes(struct fixture *f, enum uvm_who who, unsigned kind)
{
    shot_uvm_account(f->e, &f->a);
    return f->a.s[who][kind].bytes;
}

/* Whatever it met. */
static uint64_t met_or_not(const struct uvm_account *a, enum uvm_who who, unsigned kind)
{
    uint64_t n = 0;

    for (unsigned met = 0; met < UVM_MET_NR; met++)
        n += a->s[who][kind + met].count;
    return n;
}

static uint64_t all(struct fixture *f, enum uvm_who who, unsigned kind)
{
    shot_uvm_account(f->e, &f->a);
    return met_or_not(&f->a, who, kind);
}

static void every_step_once(void)
{
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, true);
    shot_uvm_hold(f.e, true);
    for (uint64_t v = 0; v < 3; v++)
        put(&f, v);
    T_EQ(count(&f, UVM_PUT, UVM_NEW_FRESH), 3);
    T_EQ(count(&f, UVM_PUT, UVM_ADVISE), 3); /* nobody else is at work */
    T_EQ(count(&f, UVM_THREADS, UVM_DOWN_FIRST), 0);
    shot_uvm_hold(f.e, false);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(count(&f, UVM_THREADS, UVM_DOWN_FIRST), 3 * 4);
    T_EQ(bytes(&f, UVM_THREADS, UVM_DOWN_FIRST), 3 * SIZE);
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_DOWN), 3);
    shot_uvm_hold(f.e, true);
    for (uint64_t v = 3; v < NR; v++)
        put(&f, v);
    T_EQ(count(&f, UVM_PUT, UVM_NEW_USED), 3); /* where the others were */
    shot_uvm_hold(f.e, false);
    T_OK(f.e->ops->flush(f.e));
    get(&f, 5); /* without a hint: the call moves it */
    T_EQ(count(&f, UVM_GET, UVM_BACK_USED), 1);
    for (uint64_t v = 0; v < 5; v++)
        T_OK(f.e->ops->hint(f.e, v));
    T_OK(f.e->ops->start(f.e));
    for (uint64_t v = 0; v < 5; v++)
        get(&f, v);
    /* By the prefetcher, or by calls that came before it. Room for two more than there is was used. */
    T_EQ(bytes(&f, UVM_THREADS, UVM_BACK_USED) + bytes(&f, UVM_THREADS, UVM_BACK_FRESH) +
             bytes(&f, UVM_GET, UVM_BACK_USED) + bytes(&f, UVM_GET, UVM_BACK_FRESH),
         NR * SIZE);
    T_EQ(bytes(&f, UVM_THREADS, UVM_BACK_FRESH) + bytes(&f, UVM_GET, UVM_BACK_FRESH), 3 * SIZE);
    T_EQ(all(&f, UVM_PUT, UVM_COPY_IN), NR);
    T_EQ(all(&f, UVM_GET, UVM_COPY_OUT), NR);
    T_EQ(count(&f, UVM_PUT, UVM_REST), NR);
    T_EQ(count(&f, UVM_GET, UVM_REST), NR);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_DOWN), NR);
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_GONE), NR);
    T_EQ(4 * count(&f, UVM_THREADS, UVM_ADVICE_UP),
         count(&f, UVM_THREADS, UVM_BACK_USED) + count(&f, UVM_THREADS, UVM_BACK_FRESH));
    tear_down(&f);
}

/* What is written again has its pages on both sides. */
static void again(void)
{
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, false);
    put(&f, 0);
    T_OK(f.e->ops->flush(f.e));
    put(&f, 0);
    T_EQ(count(&f, UVM_PUT, UVM_BACK_USED), 1);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(count(&f, UVM_THREADS, UVM_DOWN_AGAIN), 4);
    shot_uvm_hold(f.e, true);
    put(&f, 1);
    put(&f, 1);
    T_EQ(count(&f, UVM_PUT, UVM_STAY), 1);
    tear_down(&f);
}

static void what_a_call_meets(void)
{
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, true);
    set_gate(true);
    put(&f, 0);
    until_held_up(); /* the flusher, in its first step */
    put(&f, 1);
    T_EQ(count(&f, UVM_PUT, UVM_ADVISE + UVM_MET_DOWN), 1);
    T_EQ(count(&f, UVM_PUT, UVM_ADVISE), 1);
    T_EQ(count(&f, UVM_PUT, UVM_COPY_IN), 2); /* not the first call of the driver */
    get(&f, 1);
    T_EQ(count(&f, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN), 1);
    set_gate(false);
    T_OK(f.e->ops->flush(f.e));
    put(&f, 2);
    T_OK(f.e->ops->flush(f.e));
    /* The prefetcher in version 0; version 2 is fetched by the call beside it. */
    set_gate(true);
    T_OK(f.e->ops->hint(f.e, 0));
    T_OK(f.e->ops->start(f.e));
    until_held_up();
    get(&f, 2);
    T_EQ(count(&f, UVM_GET, UVM_ADVISE + UVM_MET_UP), 1);
    tear_down(&f);
}

static void what_advice_a_call_meets(void)
{
    const unsigned down = UVM_MET_ADVICE_DOWN, up = UVM_MET_ADVICE_UP;
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, true);
    set_gates(false, true);
    put(&f, 0);
    until_held_up(); /* the flusher, in its advice on version 0 */
    put(&f, 1);
    T_EQ(count(&f, UVM_PUT, UVM_ADVISE + down), 1);
    T_CHECK(f.a.s[UVM_PUT][UVM_ADVISE + down].sample[0].age_ns > 0);
    get(&f, 1);
    T_EQ(count(&f, UVM_GET, UVM_COPY_OUT + down), 1);
    set_gate(false);
    T_OK(f.e->ops->flush(f.e));
    put(&f, 2);
    put(&f, 3);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_GONE), 1);
    /* The prefetcher in its advice on version 0. */
    set_gates(false, true);
    T_OK(f.e->ops->hint(f.e, 0));
    T_OK(f.e->ops->start(f.e));
    until_held_up();
    get(&f, 2);
    T_EQ(count(&f, UVM_GET, UVM_ADVISE + up), 1);
    T_EQ(count(&f, UVM_GET, UVM_COPY_OUT), 1); /* not the first call of the driver */
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_UP), 0);
    set_gate(false);
    get(&f, 0);
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_UP), 1);
    tear_down(&f);
}

/* While a call copies no thread begins to advise. */
static void calls_go_first(void)
{
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, true);
    put(&f, 0);
    T_OK(f.e->ops->flush(f.e));
    shot_uvm_hold(f.e, true);
    put(&f, 1);
    gate.let_go = f.e;
    put(&f, 2);
    T_CHECK(!gate.let_go);
    T_EQ(gate.advised_meanwhile, 0);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(count(&f, UVM_THREADS, UVM_ADVICE_DOWN), 3);
    tear_down(&f);
}

/* A thread gives advice when the other one does nothing, and the other one nothing meanwhile. */
static void advice_is_given_alone(void)
{
    struct fixture f;
    unsigned before;

    set_up(&f, 2 * NR * SIZE, true);
    put(&f, 0);
    put(&f, 1);
    T_OK(f.e->ops->flush(f.e));
    set_gate(true);
    T_OK(f.e->ops->hint(f.e, 0));
    T_OK(f.e->ops->start(f.e));
    until_held_up(); /* the prefetcher, in its first step */
    before = advised();
    get(&f, 1);
    linger();
    T_EQ(advised(), before); /* on what is gone */
    set_gates(false, true);
    while (advised() == before)
        linger();
    T_EQ(advised(), before + 1);
    T_EQ(count(&f, UVM_THREADS, UVM_BACK_FRESH) + count(&f, UVM_THREADS, UVM_BACK_USED), 1);
    linger();
    T_EQ(count(&f, UVM_THREADS, UVM_BACK_FRESH) + count(&f, UVM_THREADS, UVM_BACK_USED), 1);
    set_gate(false);
    get(&f, 0);
    T_EQ(count(&f, UVM_THREADS, UVM_BACK_FRESH) + count(&f, UVM_THREADS, UVM_BACK_USED), 4);
    tear_down(&f);
}

/* A call comes while the flusher is held up, in its first step or in the advice before; whether it
 * waits, and for how much, depends on who comes first, so that it gets ever more time to come. */
static void waits_for_the_flusher(bool in_advice)
{
    uint64_t moved = in_advice ? 4 * STEP : 4 * STEP - STEP / 2, advised = in_advice ? SIZE / 2 : 0;

    for (unsigned ms = 1;; ms *= 2) {
        struct fixture f;
        pthread_t opener;
        bool waited;

        set_up(&f, SIZE, true); /* room for one */
        set_gates(!in_advice, in_advice);
        put(&f, 0);
        until_held_up();
        gate.open_after_ms = ms;
        T_OK(-pthread_create(&opener, NULL, open_later, NULL));
        put(&f, 1);
        T_OK(-pthread_join(opener, NULL));
        /* Four steps, and half of what was under way; less if it came later than that. */
        T_CHECK(bytes(&f, UVM_PUT, UVM_ROOM) <= moved);
        T_CHECK(f.a.s[UVM_PUT][UVM_ROOM].advised_bytes <= advised);
        waited = f.a.s[UVM_PUT][UVM_ROOM].bytes == moved &&
                 f.a.s[UVM_PUT][UVM_ROOM].advised_bytes == advised;
        tear_down(&f);
        if (waited)
            return;
        T_CHECK(ms < 60000);
    }
}

static void what_a_call_waits_for(void)
{
    waits_for_the_flusher(false);
    waits_for_the_flusher(true);
}

static void what_a_restore_waits_for(void)
{
    for (unsigned ms = 1;; ms *= 2) {
        struct fixture f;
        pthread_t opener;
        uint64_t waited;

        set_up(&f, 2 * NR * SIZE, true);
        put(&f, 0);
        T_OK(f.e->ops->flush(f.e));
        set_gate(true);
        T_OK(f.e->ops->hint(f.e, 0));
        T_OK(f.e->ops->start(f.e));
        until_held_up();
        gate.open_after_ms = ms;
        T_OK(-pthread_create(&opener, NULL, open_later, NULL));
        get(&f, 0);
        T_OK(-pthread_join(opener, NULL));
        waited = bytes(&f, UVM_GET, UVM_ARRIVE);
        T_CHECK(waited <= 4 * STEP - STEP / 2);
        tear_down(&f);
        if (waited == 4 * STEP - STEP / 2)
            return;
        T_CHECK(ms < 60000);
    }
}

/* ---- what they cost ---- */

static unsigned pauses;

static int no_pause(void *arg)
{
    (void)arg;
    pauses++;
    return 0;
}

static void calibration(void)
{
    for (int i = 0; i < 4; i++) {
        struct vv_device *d = open_device();
        struct uvm_calibrate_opts o = {.device = d, .bytes = 100001, .pause = no_pause};
        static struct uvm_account a, shot;
        char err[256];
        double ns;

        o.uvm = (struct shot_uvm_opts){.touch = i == 1,
                                       .ahead = i == 2 ? 2 : 0,
                                       .step_bytes = i == 3 ? 0 : 30000,
                                       .yield = i & 1,
                                       .fetch = i != 1};
        pauses = 0;
        T_OK(vv_device_mem_alloc(d, o.bytes, &o.buf));
        if (uvm_calibrate(&o, err, sizeof(err), &a) != 0)
            t_fail(__FILE__, __LINE__, "way %d: %s", i, err);
        T_EQ(pauses, 26);
        T_EQ(a.s[UVM_PUT][UVM_REST].count, COUNTED);
        T_EQ(a.s[UVM_GET][UVM_REST].count, COUNTED);
        T_EQ(met_or_not(&a, UVM_PUT, UVM_COPY_IN), COUNTED);
        T_EQ(met_or_not(&a, UVM_GET, UVM_COPY_OUT) + a.s[UVM_GET][UVM_COPY_HOST].count, COUNTED);
        T_EQ(a.s[UVM_GET][UVM_BACK_FRESH].count + a.s[UVM_GET][UVM_BACK_USED].count,
             o.uvm.fetch ? 6 : 0);
        T_EQ(a.s[UVM_THREADS][UVM_DOWN_FIRST].bytes + a.s[UVM_THREADS][UVM_DOWN_AGAIN].bytes,
             COUNTED * o.bytes);
        T_EQ(a.s[UVM_PUT][UVM_ROOM].count + a.s[UVM_GET][UVM_ARRIVE].count, 0);
        if (i == 0) {
            T_CHECK(a.s[UVM_PUT][UVM_NEW_FRESH].count >= 8 &&
                    a.s[UVM_PUT][UVM_NEW_USED].count >= 6);
            T_CHECK(a.s[UVM_PUT][UVM_ADVISE].count >= 14);
        }
        T_EQ(a.s[UVM_THREADS][UVM_ADVICE_DOWN].count, COUNTED);
        if (i != 2) /* places are prepared too */
            T_EQ(a.s[UVM_THREADS][UVM_ADVICE_UP].count, 24);
        add(&shot, UVM_GET, UVM_ARRIVE, 1, 1000, 1);
        T_CHECK(uvm_expected_ns(&a, &shot, UVM_GET, UVM_ARRIVE, &ns) && ns > 0);
        vv_device_mem_free(d, o.buf);
        vv_device_close(d);
    }
}

/* Calls that are to meet something do, if it takes some time. */
static void calibration_meets(void)
{
    struct vv_device *d = open_device();
    struct uvm_calibrate_opts o = {.device = d, .bytes = 100001, .pause = no_pause};
    static struct uvm_account a;
    char err[256];

    o.uvm = (struct shot_uvm_opts){.step_bytes = 60000, .yield = true, .fetch = true, .gone = true};
    T_OK(vv_device_mem_alloc(d, o.bytes, &o.buf));
    set_hooks(d);
    gate.slow_ms = 2;
    T_OK(uvm_calibrate(&o, err, sizeof(err), &a));
    gate.slow_ms = 0;
    T_CHECK(a.s[UVM_PUT][UVM_ADVISE + UVM_MET_DOWN].count > 0);
    T_CHECK(a.s[UVM_PUT][UVM_ADVISE + UVM_MET_ADVICE_DOWN].count > 0);
    T_CHECK(a.s[UVM_GET][UVM_COPY_OUT + UVM_MET_UP].count > 0);
    T_CHECK(a.s[UVM_GET][UVM_COPY_OUT + UVM_MET_ADVICE_UP].count > 0);
    T_CHECK(a.s[UVM_GET][UVM_COPY_OUT + UVM_MET_ADVICE_GONE].count > 0);
    T_CHECK(a.s[UVM_GET][UVM_COPY_OUT].count > 0 && a.s[UVM_GET][UVM_ADVISE].count > 0);
    d->ops = real;
    vv_device_mem_free(d, o.buf);
    vv_device_close(d);
}

/* Whichever call fails, there is an error, and nothing is kept. */
static void calibration_with_failures(void)
{
    struct t_fake fake;
    void *handle = NULL;
    struct vv_device *d;
    struct uvm_calibrate_opts o = {.bytes = 100001, .pause = no_pause};
    struct uvm_account a;
    char err[256];
    size_t before;

    if (t_device_is_cuda() || !t_fake_load(t_fake_path(false), &handle, &fake))
        return;
    d = open_device();
    o.device = d;
    o.uvm = (struct shot_uvm_opts){.step_bytes = 30000, .yield = true, .fetch = true, .gone = true};
    T_OK(vv_device_mem_alloc(d, o.bytes, &o.buf));
    before = fake.live("allocations");
    for (unsigned nth = 1; nth <= 121; nth += 8) {
        T_EQ(fake.fail("cuMemPrefetchAsync", nth, 1, 999), 0);
        err[0] = '\0';
        T_CHECK(uvm_calibrate(&o, err, sizeof(err), &a) < 0 && err[0]);
        fake.heal();
        T_EQ(fake.live("allocations"), before);
    }
    T_OK(uvm_calibrate(&o, err, sizeof(err), &a));
    vv_device_mem_free(d, o.buf);
    vv_device_close(d);
}

int main(void)
{
    T_RUN(counts_times_costs);
    T_RUN(waits_for_what_is_left);
    T_RUN(waits_for_what_threads_take_now);
    T_RUN(samples);
    T_RUN(rows);
    T_RUN(every_step_once);
    T_RUN(again);
    T_RUN(what_a_call_meets);
    T_RUN(what_advice_a_call_meets);
    T_RUN(calls_go_first);
    T_RUN(advice_is_given_alone);
    T_RUN(what_a_call_waits_for);
    T_RUN(what_a_restore_waits_for);
    T_RUN(calibration);
    T_RUN(calibration_meets);
    T_RUN(calibration_with_failures);
    return t_done();
}
