/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of the baseline with managed memory begin no step while a call copies, and give advice alone. Over
 * the stand-in for the driver, whose steps are held up where a test needs it. */
#include <pthread.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_private.h"
#include "lab/shot/shot_engine.h"
#include "t.h"
#include "t_cuda.h"

#define NR   6
#define STEP ((uint64_t)4096)
#define SIZE (4 * STEP)

/* The threads' moves, or their advice, end when the gate is open. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t application;
    bool closed, advice_closed;
    unsigned waiting;
    unsigned advised, moved; /* calls of the threads' */
    bool open_meanwhile;     /* during the application's next wait */
    unsigned moved_meanwhile;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const struct vv_device_ops *real;
static struct vv_device_ops gated;
static unsigned (*real_advise)(CUdeviceptr, size_t, unsigned, struct vvi_cu_location);

static bool by_application(void)
{
    return pthread_equal(pthread_self(), gate.application);
}

static void pass_gate(const bool *closed, unsigned *count)
{
    pthread_mutex_lock(&gate.lock);
    (*count)++;
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (*closed)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    pthread_mutex_unlock(&gate.lock);
}

static unsigned seen(const unsigned *count)
{
    unsigned n;

    pthread_mutex_lock(&gate.lock);
    n = *count;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

/* A pause long enough for a wrong event to happen. */
static void linger(void)
{
    vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
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

static int gated_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns)
{
    if (!by_application()) {
        pass_gate(&gate.closed, &gate.moved);
    } else if (gate.open_meanwhile) {
        unsigned before = seen(&gate.moved);

        gate.open_meanwhile = false;
        set_gate(false);
        linger();
        gate.moved_meanwhile = seen(&gate.moved) - before;
    }
    return real->event_wait(d, ev, timeout_ns);
}

static unsigned gated_advise(CUdeviceptr at, size_t n, unsigned advice,
                             struct vvi_cu_location where)
{
    if (!by_application())
        pass_gate(&gate.advice_closed, &gate.advised);
    return real_advise(at, n, advice, where);
}

/* Calls of a thread in the driver. */
static void until_held_up(void)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

struct fixture {
    struct vv_device *d;
    struct shot_engine *e;
    void *buf;
    uint64_t bytes[NR];
    struct shot_sizes sizes;
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

/* The flusher is held up in its advice. While the next call copies it may finish that, and begins no step. */
static void calls_go_first(void)
{
    struct fixture f;

    set_up(&f, 2 * NR * SIZE, true);
    set_gates(false, true);
    put(&f, 1);
    until_held_up();
    gate.open_meanwhile = true;
    put(&f, 2);
    T_CHECK(!gate.open_meanwhile);
    T_EQ(gate.moved_meanwhile, 0);
    T_OK(f.e->ops->flush(f.e));
    T_EQ(seen(&gate.moved), 2 * SIZE / STEP);
    tear_down(&f);
}

/* A thread gives advice while the other one is idle, and the other one stays idle meanwhile. */
static void advice_is_given_alone(void)
{
    struct fixture f;
    unsigned advised, moved;

    set_up(&f, 2 * NR * SIZE, true);
    put(&f, 0);
    put(&f, 1);
    T_OK(f.e->ops->flush(f.e));
    set_gate(true);
    moved = seen(&gate.moved);
    T_OK(f.e->ops->hint(f.e, 0));
    T_OK(f.e->ops->start(f.e));
    until_held_up(); /* the prefetcher, in its first step */
    advised = seen(&gate.advised);
    get(&f, 1);
    linger();
    T_EQ(seen(&gate.advised), advised); /* on discarded versions */
    set_gates(false, true);
    while (seen(&gate.advised) == advised)
        linger();
    T_EQ(seen(&gate.advised), advised + 1);
    T_EQ(seen(&gate.moved), moved + 1);
    linger();
    T_EQ(seen(&gate.moved), moved + 1);
    set_gate(false);
    get(&f, 0);
    T_EQ(seen(&gate.moved), moved + SIZE / STEP);
    tear_down(&f);
}

int main(void)
{
    T_RUN(calls_go_first);
    T_RUN(advice_is_given_alone);
    return t_done();
}
