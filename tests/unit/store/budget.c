/* SPDX-License-Identifier: Apache-2.0 */
/* The bandwidth budget that the processes of a node share. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/budget.h"
#include "t.h"

enum { MIB = 1 << 20 };

static char name[64];

static struct vv_budget *budget(const char *folder)
{
    struct vv_budget *b;
    T_OK(vv_budget_new(folder, VV_BUDGET_FOLDER, name, &b));
    return b;
}

/* Bookings of all processes follow one another; other folders have no effect. */
static void test_flushes_share(void)
{
    const char *x = t_tmpdir(), *y = t_tmpdir();
    struct vv_budget *a = budget(x), *b = budget(x), *c = budget(y);
    uint64_t now = 1000 * VV_NS_PER_S;
    T_EQ(vv_budget_book_flush(a, MIB, 0, now), now);
    T_EQ(vv_budget_book_flush(a, MIB, MIB, now), now);
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now + VV_NS_PER_S);
    T_EQ(vv_budget_book_flush(a, MIB, MIB, now), now + 2 * VV_NS_PER_S);
    T_EQ(vv_budget_book_flush(c, MIB, MIB, now), now);
    /* Unused time is not saved up. */
    now += 100 * VV_NS_PER_S;
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now);
    /* Implausible times are ignored. */
    now -= 90 * VV_NS_PER_S;
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now);
    vv_budget_free(a);
    vv_budget_free(b);
    vv_budget_free(c);
}

/* Folders come and go. A table full of unused folders has room for new ones, and a process whose entry was
 * reused finds another. */
static void test_many_folders(void)
{
    enum { ALL = 128 };
    struct vv_budget *b[ALL];
    char many[64];
    uint64_t now = vv_now_ns() + 1000 * VV_NS_PER_S;
    snprintf(many, sizeof(many), "/varve-test-many-%d", (int)getpid());
    for (int i = 0; i < 3 * ALL; i++) {
        struct vv_budget *gone;
        bool stays = i / ALL == 1;
        T_OK(vv_budget_new(t_tmpdir(), VV_BUDGET_FOLDER, many, stays ? &b[i - ALL] : &gone));
        if (!stays)
            vv_budget_free(gone);
    }
    for (int i = 0; i < ALL; i++)
        T_EQ(vv_budget_book_flush(b[i], MIB, MIB, now), now);
    for (int i = 0; i < ALL; i++)
        T_EQ(vv_budget_book_flush(b[i], MIB, MIB, now), now + VV_NS_PER_S);
    for (int i = 0; i < ALL; i++)
        vv_budget_free(b[i]);
    T_OK(shm_unlink(many));
}

/* Flushes yield for a while to a restore of another process, even one that was killed meanwhile. */
static void test_restores_first(void)
{
    const char *x = t_tmpdir(), *y = t_tmpdir();
    struct vv_budget *mine = budget(x), *other = budget(y);
    uint64_t now = vv_now_ns();
    vv_budget_book_restore(mine, MIB, 0, now);
    T_EQ(vv_budget_yield_until(mine, now), 0); /* its own */
    /* Two children, because processes may share a slot by chance. */
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        T_CHECK(child >= 0);
        if (child == 0) {
            struct vv_budget *b = budget(x);
            vv_budget_book_restore(b, MIB, MIB, now);
            kill(getpid(), SIGKILL);
        }
        T_EQ(waitpid(child, NULL, 0), child);
    }
    uint64_t until = vv_budget_yield_until(mine, now);
    T_CHECK(until > now && until < now + VV_NS_PER_S);
    T_EQ(vv_budget_yield_until(other, now), 0);
    T_EQ(vv_budget_yield_until(mine, now + VV_NS_PER_S), 0);
    /* Their restores are booked at the rate as well. */
    T_EQ(vv_budget_book_flush(mine, MIB, MIB, now), now + 2 * VV_NS_PER_S);
    vv_budget_free(mine);
    vv_budget_free(other);
}

/* More folders than the table has entries. */
static void test_many(void)
{
    const char *top = t_tmpdir();
    char path[512];
    struct vv_budget *b;
    for (int i = 0; i < 200; i++) {
        snprintf(path, sizeof(path), "%s/%d", top, i);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        T_CHECK(fd >= 0);
        T_OK(vv_budget_new(path, VV_BUDGET_FOLDER, name, &b));
        T_CHECK(vv_budget_book_flush(b, 1, MIB, vv_now_ns()) > 0);
        vv_budget_free(b);
        close(fd);
    }
}

/* Two folders of one disk. */
static void test_disk(void)
{
    const char *x = t_tmpdir(), *y = t_tmpdir();
    struct vv_budget *a, *b;
    T_OK(vv_budget_new(x, VV_BUDGET_DISK, name, &a));
    T_OK(vv_budget_new(y, VV_BUDGET_DISK, name, &b));
    uint64_t now = vv_now_ns(); /* the entry had a user before, whose times are past */
    T_EQ(vv_budget_book_flush(a, MIB, MIB, now), now);
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now + VV_NS_PER_S);
    vv_budget_free(a);
    vv_budget_free(b);
}

/* A store that records its requests. */
struct fake {
    struct vv_store base;
    struct vv_store_io *got[8];
    int n, polls;
    int refuse;
};

static int fake_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct fake *f = (struct fake *)store;
    if (f->refuse)
        return f->refuse;
    f->got[f->n++] = io;
    return 0;
}

static int fake_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                     int64_t timeout_ns)
{
    (void)ret_done;
    (void)max;
    ((struct fake *)store)->polls++;
    if (timeout_ns > 0)
        vv_sleep_until_ns(vv_now_ns() + (uint64_t)timeout_ns);
    return -ETIMEDOUT;
}

static void fake_close(struct vv_store *store)
{
    (void)store;
}

/* Writes wait for restores of another process, in order, and not for ever; reads never wait. */
static void test_store(void)
{
    static const struct vv_store_ops ops = {
        .name = "fake", .close = fake_close, .submit = fake_submit, .poll = fake_poll};
    const char *x = t_tmpdir();
    struct fake f = {.base.ops = &ops};
    struct vv_budget *mine = budget(x);
    struct vv_store *s;
    struct vv_store_io write[3] = {{.op = VV_STORE_WRITE}, {.op = VV_STORE_WRITE}, {0}};
    struct vv_store_io read = {.op = VV_STORE_READ, .nchunks = 1}, *done[4];
    write[2].op = VV_STORE_WRITE;
    T_OK(vv_budget_store(mine, &f.base, 4096, 0, &s));
    T_OK(s->ops->submit(s, &write[0]));
    T_EQ(f.n, 1);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        T_CHECK(child >= 0);
        if (child == 0) {
            vv_budget_book_restore(budget(x), MIB, 0, vv_now_ns());
            _exit(0);
        }
        T_EQ(waitpid(child, NULL, 0), child);
    }
    T_OK(s->ops->submit(s, &write[1]));
    if (f.n == 1) { /* unless the machine was so slow that the restores have expired */
        T_OK(s->ops->submit(s, &read));
        T_OK(s->ops->submit(s, &write[2]));
        T_EQ(f.n, 2);
        T_CHECK(f.got[1] == &read);
        while (f.n < 4)
            T_CHECK(s->ops->poll(s, done, 4, -1) <= 0);
        T_CHECK(f.got[2] == &write[1] && f.got[3] == &write[2]);
        T_EQ(f.polls > 0, 1);
    }
    s->ops->close(s);
    vv_budget_free(mine);
}

/* Under a limit every kind of write waits for its turn. */
static void test_store_limited(void)
{
    static const struct vv_store_ops ops = {
        .name = "fake", .close = fake_close, .submit = fake_submit, .poll = fake_poll};
    struct fake f = {.base.ops = &ops};
    struct vv_budget *mine = budget(t_tmpdir());
    struct vv_store *s;
    struct vv_store_io write = {.op = VV_STORE_WRITE, .nchunks = 1},
                       salvage = {.op = VV_STORE_SALVAGE, .nchunks = 1},
                       commit = {.op = VV_STORE_COMMIT};
    T_OK(vv_budget_store(mine, &f.base, 4096, 100, &s)); /* one in 40 s */
    T_OK(s->ops->submit(s, &write));
    T_OK(s->ops->submit(s, &salvage));
    T_OK(s->ops->submit(s, &commit));
    T_EQ(f.n, 2);
    T_CHECK(f.got[0] == &write && f.got[1] == &commit);
    s->ops->close(s);
    T_EQ(f.n, 3);
    vv_budget_free(mine);
}

int main(void)
{
    snprintf(name, sizeof(name), "/varve-test-budget-%ld", (long)getpid());
    T_RUN(test_flushes_share);
    T_RUN(test_many_folders);
    T_RUN(test_restores_first);
    T_RUN(test_many);
    T_RUN(test_disk);
    T_RUN(test_store);
    T_RUN(test_store_limited);
    shm_unlink(name);
    return t_done();
}
