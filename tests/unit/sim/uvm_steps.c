/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of managed memory: every one is counted once and under the right name, what calls find under
 * way and wait for too; costs are measured by the same counting; and what is expected is counts times
 * costs. Over the stand-in for the driver, whose steps are held up where a test needs it. */
#include "sim/uvm_steps.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "device/cuda/cuda.h"
#include "sim/baseline_uvm.h"
#include "sim/uvm_calibrate.h"
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

static void counts_times_costs(void)
{
    struct uvm_account costs = {0}, shot = {0}, uneven;
    double ns = -1;

    costs.s[UVM_PUT][UVM_REST] = (struct uvm_step){10, 0, 100, 0};
    costs.s[UVM_PUT][UVM_ADVISE] = (struct uvm_step){2, 999, 60, 0};
    costs.s[UVM_PUT][UVM_ADVISE + UVM_MET_DOWN] = (struct uvm_step){4, 999, 520, 0};
    costs.s[UVM_PUT][UVM_NEW_USED] = (struct uvm_step){3, 300, 600, 0};
    costs.s[UVM_GET][UVM_COPY_OUT] = (struct uvm_step){1, 100, 50, 0};
    costs.s[UVM_THREADS][UVM_DOWN_FIRST] = (struct uvm_step){7, 100, 700, 0};
    shot.s[UVM_PUT][UVM_REST] = (struct uvm_step){5, 0, 1, 0};
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_PUT, UVM_REST, &ns) && near(ns, 50));
    /* The longest wait was 100: half of it, and the advice itself. */
    shot.s[UVM_PUT][UVM_ADVISE + UVM_MET_DOWN] = (struct uvm_step){3, 1, 1, 0};
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_PUT, UVM_ADVISE + UVM_MET_DOWN, &ns) &&
            near(ns, 3 * (30 + 50)));
    /* Steps down of 100 and 300: one of 250 on average is met, a quarter longer than the average. */
    uneven = costs;
    uneven.s[UVM_THREADS][UVM_DOWN_FIRST] = (struct uvm_step){2, 100, 400, 1e4 + 9e4};
    T_CHECK(uvm_expected_ns(&uneven, &shot, UVM_PUT, UVM_ADVISE + UVM_MET_DOWN, &ns) &&
            near(ns, 3 * (30 + 1.25 * 50)));
    /* The same wait before a copy, which costs by the byte. */
    shot.s[UVM_GET][UVM_COPY_OUT + UVM_MET_DOWN] = (struct uvm_step){2, 400, 1, 0};
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_GET, UVM_COPY_OUT + UVM_MET_DOWN, &ns) &&
            near(ns, 400 * 0.5 + 2 * 50));
    /* Never seen before: as its like. */
    shot.s[UVM_PUT][UVM_NEW_FRESH] = (struct uvm_step){1, 10, 1, 0};
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_PUT, UVM_NEW_FRESH, &ns) && near(ns, 20));
    shot.s[UVM_PUT][UVM_ROOM] = (struct uvm_step){2, 30, 1, 0};
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_PUT, UVM_ROOM, &ns) && near(ns, 210));
    T_CHECK(near(uvm_expected_call_s(&costs, &shot, UVM_PUT), (50 + 240 + 20 + 210) * 1e-9));
    /* Nothing is known of moves up, and nothing was counted of copies out of host memory. */
    shot.s[UVM_GET][UVM_ARRIVE] = (struct uvm_step){1, 10, 1, 0};
    T_CHECK(!uvm_expected_ns(&costs, &shot, UVM_GET, UVM_ARRIVE, &ns));
    T_CHECK(uvm_expected_ns(&costs, &shot, UVM_GET, UVM_COPY_HOST, &ns) && ns == 0);
    T_CHECK(near(uvm_expected_call_s(&costs, &shot, UVM_GET), 300e-9));
}

static void rows(void)
{
    struct uvm_account costs = {0}, shot = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    costs.s[UVM_PUT][UVM_REST] = (struct uvm_step){1, 0, 2000, 0};
    shot.s[UVM_PUT][UVM_REST] = (struct uvm_step){2, 0, 6000, 0};
    shot.s[UVM_THREADS][UVM_DOWN_FIRST] = (struct uvm_step){3, 1 << 20, 9000, 0};
    uvm_steps_print(f, &costs, &shot);
    uvm_steps_print_json(f, &costs, &shot);
    fclose(f);
    T_CHECK(strstr(text, "the call itself") && strstr(text, "  1.50\n"));
    T_CHECK(strstr(text, "pages to the host, first") && !strstr(text, "advise"));
    T_CHECK(strstr(text, "\"count\":2,\"bytes\":0,\"measured_s\":6e-06,\"expected_s\":4e-06}"));
    T_CHECK(strstr(text, "\"expected_s\":null}]"));
    free(text);
}

/* ---- what is counted ---- */

/* The threads' moves end when the gate is open. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t application;
    bool closed;
    unsigned waiting;
    unsigned open_after_ms;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const struct vv_device_ops *real;
static struct vv_device_ops gated;

static int gated_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns)
{
    pthread_mutex_lock(&gate.lock);
    if (!pthread_equal(pthread_self(), gate.application)) {
        gate.waiting++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.closed)
            pthread_cond_wait(&gate.changed, &gate.lock);
        gate.waiting--;
    }
    pthread_mutex_unlock(&gate.lock);
    return real->event_wait(d, ev, timeout_ns);
}

static void set_gate(bool closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

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
    o.uvm = (struct shot_uvm_opts){.step_bytes = STEP, .yield = true, .fetch = true};
    real = f->d->ops;
    gated = *real;
    gated.event_wait = gated_wait;
    gate.application = pthread_self();
    f->d->ops = &gated;
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
static uint64_t all(struct fixture *f, enum uvm_who who, unsigned kind)
{
    return count(f, who, kind) + count(f, who, kind + UVM_MET_DOWN) +
           count(f, who, kind + UVM_MET_UP);
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
    T_EQ(count(&f, UVM_THREADS, UVM_ADVISE), 3);
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

/* Calls `call` while a thread is held up in its first step, until the call has waited for it; whether
 * it waits, and for how much, depends on who comes first, so that it gets ever more time to come. */
static void what_a_call_waits_for(void)
{
    for (unsigned ms = 1;; ms *= 2) {
        struct fixture f;
        pthread_t opener;
        uint64_t waited;

        set_up(&f, SIZE, true); /* room for one */
        set_gate(true);
        put(&f, 0);
        until_held_up();
        gate.open_after_ms = ms;
        T_OK(-pthread_create(&opener, NULL, open_later, NULL));
        put(&f, 1);
        T_OK(-pthread_join(opener, NULL));
        waited = bytes(&f, UVM_PUT, UVM_ROOM);
        /* Four steps, of the first of which half was over; fewer if it came later than that. */
        T_CHECK(waited <= 4 * STEP - STEP / 2);
        tear_down(&f);
        if (waited == 4 * STEP - STEP / 2)
            return;
        T_CHECK(ms < 60000);
    }
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

static uint64_t met_or_not(const struct uvm_account *a, enum uvm_who who, unsigned kind)
{
    uint64_t n = 0;

    for (unsigned met = 0; met < UVM_MET_NR; met++)
        n += a->s[who][kind + met].count;
    return n;
}

static void calibration(void)
{
    for (int i = 0; i < 4; i++) {
        struct vv_device *d = open_device();
        struct uvm_calibrate_opts o = {.device = d, .bytes = 100001, .pause = no_pause};
        struct uvm_account a, shot = {0};
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
        T_EQ(pauses, 28);
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
        shot.s[UVM_GET][UVM_ARRIVE] = (struct uvm_step){1, 1000, 1, 0};
        T_CHECK(uvm_expected_ns(&a, &shot, UVM_GET, UVM_ARRIVE, &ns) && ns > 0);
        vv_device_mem_free(d, o.buf);
        vv_device_close(d);
    }
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
    o.uvm = (struct shot_uvm_opts){.step_bytes = 30000, .yield = true, .fetch = true};
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
    T_RUN(rows);
    T_RUN(every_step_once);
    T_RUN(again);
    T_RUN(what_a_call_meets);
    T_RUN(what_a_call_waits_for);
    T_RUN(what_a_restore_waits_for);
    T_RUN(calibration);
    T_RUN(calibration_with_failures);
    return t_done();
}
