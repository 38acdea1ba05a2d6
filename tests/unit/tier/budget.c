/* SPDX-License-Identifier: Apache-2.0 */
/* The bandwidth budget that the processes of a node share. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "t.h"
#include "tier/budget.h"

enum { MIB = 1 << 20 };

static char name[64];

static struct vv_budget *budget(const char *folder)
{
    struct vv_budget *b;
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    T_CHECK(fd >= 0);
    T_OK(vv_budget_new(fd, name, &b));
    close(fd);
    return b;
}

/* Bookings follow one another, whoever makes them; other folders do not matter. */
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
    /* Time that nobody used is not saved up. */
    now += 100 * VV_NS_PER_S;
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now);
    /* What makes no sense is not believed. */
    now -= 90 * VV_NS_PER_S;
    T_EQ(vv_budget_book_flush(b, MIB, MIB, now), now);
    vv_budget_free(a);
    vv_budget_free(b);
    vv_budget_free(c);
}

/* A restore of another process, also of one that was killed meanwhile, is yielded to, for a while. */
static void test_restores_first(void)
{
    const char *x = t_tmpdir(), *y = t_tmpdir();
    struct vv_budget *mine = budget(x), *other = budget(y);
    uint64_t now = vv_now_ns();
    vv_budget_book_restore(mine, MIB, 0, now);
    T_EQ(vv_budget_yield_until(mine, now), 0); /* its own */
    /* Two, as processes may happen to share a place. */
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
    /* They had their share of the rate as well. */
    T_EQ(vv_budget_book_flush(mine, MIB, MIB, now), now + 2 * VV_NS_PER_S);
    vv_budget_free(mine);
    vv_budget_free(other);
}

/* More folders than there are places. */
static void test_many(void)
{
    const char *top = t_tmpdir();
    char path[512];
    struct vv_budget *b;
    for (int i = 0; i < 200; i++) {
        snprintf(path, sizeof(path), "%s/%d", top, i);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        T_CHECK(fd >= 0);
        T_OK(vv_budget_new(fd, name, &b));
        T_CHECK(vv_budget_book_flush(b, 1, MIB, vv_now_ns()) > 0);
        vv_budget_free(b);
        close(fd);
    }
}

int main(void)
{
    snprintf(name, sizeof(name), "/varve-test-budget-%ld", (long)getpid());
    T_RUN(test_flushes_share);
    T_RUN(test_restores_first);
    T_RUN(test_many);
    shm_unlink(name);
    return t_done();
}
