/* SPDX-License-Identifier: Apache-2.0 */
/* VELOC's interface in one process: the promises of its documentation, call by call. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <veloc.h>

#include "base/clock.h"
#include "ckpt/ckpt_hooks.h"
#include "fault/inject.h"
#include "t.h"
#include "veloc/veloc_private.h"

enum { N = 3000 };

#define V_OK(expr)   T_EQ(expr, VELOC_SUCCESS)
#define V_FAIL(expr) T_EQ(expr, VELOC_FAILURE)

static const char *folder;
static int *a, *b;

/* ---- system calls of the library that are checked ---- */

#define DELIVERY ".varve-tmp" /* the name of a file until it has its original name */

/* Synchronization: atomic; one thread delivers, one file after the other. */
static struct {
    atomic_int synced, delivered, too_early;
} deliveries;

static bool is_delivery(const char *path)
{
    size_t n = strlen(path), end = strlen(DELIVERY);
    return n > end && strcmp(path + n - end, DELIVERY) == 0;
}

int fsync(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    if (is_delivery(path))
        atomic_fetch_add(&deliveries.synced, 1);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    if (is_delivery(from) && atomic_fetch_add(&deliveries.delivered, 1) >= deliveries.synced)
        atomic_fetch_add(&deliveries.too_early, 1);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static const char *ini(const char *mode, const char *more)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/veloc.cfg", folder);
    FILE *f = fopen(path, "w");
    T_CHECK(f != NULL);
    fprintf(f, "scratch = %s/scratch/\npersistent = %s/persistent\nmode = %s\n%s", folder, folder,
            mode, more);
    T_OK(fclose(f));
    return path;
}

static void begin_in(const char *where, const char *mode, const char *more)
{
    folder = where;
    V_OK(VELOC_Init_single(7, ini(mode, more)));
    V_OK(VELOC_Mem_protect(0, a, N, sizeof(*a)));
    V_OK(VELOC_Mem_protect(1, b, N, sizeof(*b)));
}

static void fill(int seed)
{
    for (int i = 0; i < N; i++) {
        a[i] = seed + i;
        b[i] = seed * 3 - i;
    }
}

static bool holds(const int *p, int seed)
{
    for (int i = 0; i < N; i++)
        if (p[i] != (p == a ? seed + i : seed * 3 - i))
            return false;
    return true;
}

static void save(const char *name, int version)
{
    fill(version);
    V_OK(VELOC_Checkpoint(name, version));
}

static void test_round_trip(void)
{
    static const char *const modes[] = {"sync", "async"};
    for (int m = 0; m < 2; m++) {
        begin_in(t_tmpdir(), modes[m], "");
        V_FAIL(VELOC_Restart_test("x", 0));
        for (int v = 0; v <= 30; v += 10)
            save("x", v);
        T_EQ(VELOC_Restart_test("x", 0), 30);
        T_EQ(VELOC_Restart_test("x", 30), 30);
        T_EQ(VELOC_Restart_test("x", 29), 20);
        T_EQ(VELOC_Restart_test("x", 9), 0);
        V_FAIL(VELOC_Restart_test("y", 0));
        V_FAIL(VELOC_Restart_test("x", -1));
        V_FAIL(VELOC_Restart_test(NULL, 0));
        V_OK(VELOC_Checkpoint_wait());
        V_OK(VELOC_Checkpoint_finished());
        fill(999);
        V_OK(VELOC_Restart("x", 20));
        T_CHECK(holds(a, 20) && holds(b, 20));
        V_FAIL(VELOC_Restart("x", 21));
        V_FAIL(VELOC_Checkpoint("x", -1));
        V_OK(VELOC_Finalize(m));
        V_FAIL(VELOC_Checkpoint_wait());
        V_FAIL(VELOC_Finalize(0));
        /* Another run. */
        begin_in(folder, modes[1 - m], "");
        T_EQ(VELOC_Restart_test("x", 0), 30);
        V_OK(VELOC_Restart("x", 30));
        T_CHECK(holds(a, 30) && holds(b, 30));
        V_OK(VELOC_Finalize(0));
    }
}

/* Protecting a number again replaces its declaration. */
static void test_protect(void)
{
    static int small[4] = {1, 2, 3, 4}, other[8];
    begin_in(t_tmpdir(), "async", "");
    V_OK(VELOC_Mem_protect(1, small, 4, sizeof(int)));
    V_OK(VELOC_Mem_protect(1, small, 2, sizeof(int)));
    fill(5);
    V_OK(VELOC_Checkpoint("p", 1));
    T_EQ(VELOC_Recover_ckpt_size("p", 1, 1), 2 * sizeof(int));
    T_EQ(VELOC_Recover_ckpt_size("p", 1, 0), N * sizeof(int));
    T_CHECK(VELOC_Recover_ckpt_size("p", 1, 9) == (size_t)-1);
    T_CHECK(VELOC_Recover_ckpt_size("p", 2, 0) == (size_t)-1);
    /* Into a larger region: the rest is unchanged. Into a smaller one: an error. */
    memset(other, 7, sizeof(other));
    V_OK(VELOC_Mem_protect(1, other, 8, sizeof(int)));
    V_OK(VELOC_Restart("p", 1));
    T_CHECK(other[0] == 1 && other[1] == 2 && other[2] == 0x07070707);
    V_OK(VELOC_Mem_protect(1, other, 1, sizeof(int)));
    V_FAIL(VELOC_Restart("p", 1));
    /* Regions of the checkpoint must be protected; other regions may be. */
    V_OK(VELOC_Mem_unprotect(1));
    V_FAIL(VELOC_Mem_unprotect(1));
    V_FAIL(VELOC_Restart("p", 1));
    V_OK(VELOC_Mem_protect(1, other, 8, sizeof(int)));
    V_OK(VELOC_Mem_protect(2, other, 8, sizeof(int)));
    V_OK(VELOC_Restart("p", 1));
    V_OK(VELOC_Mem_clear());
    V_FAIL(VELOC_Checkpoint("p", 2));
    V_FAIL(VELOC_Restart_test("p", 2) == 1 ? VELOC_FAILURE : 0);
    V_FAIL(VELOC_Mem_protect(3, NULL, 1, 1));
    V_FAIL(VELOC_Mem_protect(3, other, SIZE_MAX, 2));
    V_OK(VELOC_Finalize(0));
}

static void test_phases(void)
{
    begin_in(t_tmpdir(), "async", "");
    V_FAIL(VELOC_Checkpoint_mem());
    V_FAIL(VELOC_Checkpoint_end(1));
    V_FAIL(VELOC_Recover_mem());
    V_FAIL(VELOC_Restart_end(1));
    T_EQ(VELOC_Recover_size(0), -1);
    fill(1);
    V_OK(VELOC_Checkpoint_begin("x", 1));
    V_FAIL(VELOC_Checkpoint_begin("x", 2));
    V_FAIL(VELOC_Restart_begin("x", 1));
    V_FAIL(VELOC_Checkpoint_wait());
    V_FAIL(VELOC_Checkpoint_finished());
    V_OK(VELOC_Checkpoint_mem());
    fill(2); /* the checkpoint was copied before */
    V_OK(VELOC_Checkpoint_end(1));
    V_FAIL(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Checkpoint_begin("x", 2));
    V_FAIL(VELOC_Checkpoint_end(1)); /* nothing was written */
    T_EQ(VELOC_Restart_test("x", 0), 1);
    V_OK(VELOC_Restart_begin("x", 1));
    V_FAIL(VELOC_Checkpoint_begin("x", 3));
    T_EQ(VELOC_Recover_size(1), N * sizeof(int));
    T_EQ(VELOC_Recover_size64(0), N * sizeof(int));
    T_EQ(VELOC_Recover_size(5), -1);
    V_OK(VELOC_Recover_mem());
    V_OK(VELOC_Restart_end(1));
    T_CHECK(holds(a, 1) && holds(b, 1));
    V_OK(VELOC_Finalize(0));
}

/* A version that ends with a failure is gone, at once and after a restart, also after a kill. */
static void test_discarded(void)
{
    for (int file = 0; file < 2; file++) {
        const char *where = t_tmpdir();
        pid_t child = fork();
        T_CHECK(child >= 0);
        if (child == 0) {
            begin_in(where, "async", "");
            save("x", 1);
            V_OK(VELOC_Checkpoint_wait());
            V_OK(VELOC_Checkpoint_begin("x", 2));
            if (file) {
                char path[VELOC_MAX_NAME];
                V_OK(VELOC_Route_file("", path));
                FILE *f = fopen(path, "w");
                T_CHECK(f && fputs("unfinished", f) >= 0 && fclose(f) == 0);
            } else {
                V_OK(VELOC_Checkpoint_mem());
            }
            V_OK(VELOC_Checkpoint_end(0));
            T_EQ(VELOC_Restart_test("x", 0), 1);
            V_FAIL(VELOC_Restart("x", 2));
            _exit(0);
        }
        int status;
        T_EQ(waitpid(child, &status, 0), child);
        T_EQ(status, 0);
        begin_in(where, "async", "");
        T_EQ(VELOC_Restart_test("x", 0), 1);
        V_OK(VELOC_Finalize(0));
    }
}

static void test_selective(void)
{
    int only_a[] = {0}, unknown[] = {0, 77};
    begin_in(t_tmpdir(), "async", "");
    fill(4);
    V_OK(VELOC_Checkpoint_begin("s", 1));
    V_OK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, only_a, 1));
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Checkpoint_begin("s", 2));
    V_OK(VELOC_Checkpoint_selective(VELOC_CKPT_REST, only_a, 1));
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Checkpoint_begin("s", 3));
    V_OK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, unknown, 2));
    V_OK(VELOC_Checkpoint_selective(VELOC_CKPT_ALL, NULL, 0)); /* the last one counts */
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Checkpoint_begin("s", 4));
    V_FAIL(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, unknown + 1, 1));
    V_FAIL(VELOC_Checkpoint_selective(5, NULL, 0));
    V_OK(VELOC_Checkpoint_end(0));
    T_EQ(VELOC_Recover_ckpt_size("s", 1, 0), N * sizeof(int));
    T_CHECK(VELOC_Recover_ckpt_size("s", 1, 1) == (size_t)-1);
    T_CHECK(VELOC_Recover_ckpt_size("s", 2, 0) == (size_t)-1);
    fill(9);
    V_OK(VELOC_Restart("s", 1));
    T_CHECK(holds(a, 4) && holds(b, 9));
    fill(9);
    V_OK(VELOC_Restart_begin("s", 3));
    V_OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, only_a, 1));
    T_CHECK(holds(a, 4) && holds(b, 9));
    memset(a, 0, N * sizeof(*a));
    V_OK(VELOC_Recover_selective(VELOC_RECOVER_REST, only_a, 1));
    T_CHECK(a[1] == 0 && holds(b, 4));
    V_OK(VELOC_Restart_end(1));
    V_OK(VELOC_Finalize(0));
}

/* Regions of a name are used for that name only, and the name uses only these. */
static void test_named(void)
{
    static int own[16], common = 5;
    folder = t_tmpdir();
    V_OK(VELOC_Init_single(0, ini("async", "")));
    V_OK(VELOC_Mem_protect(0, &common, 1, sizeof(int)));
    V_OK(VELOC_Region_protect(0, own, 16, sizeof(int), "mine"));
    own[3] = 33;
    V_OK(VELOC_Checkpoint("mine", 1));
    V_OK(VELOC_Checkpoint("other", 1));
    T_EQ(VELOC_Recover_ckpt_size("mine", 1, 0), sizeof(own));
    T_EQ(VELOC_Recover_ckpt_size("other", 1, 0), sizeof(int));
    own[3] = common = 0;
    V_OK(VELOC_Restart("mine", 1));
    T_CHECK(own[3] == 33 && common == 0);
    V_FAIL(VELOC_Region_unprotect(0, "other"));
    V_OK(VELOC_Region_unprotect(0, "mine"));
    common = 6;
    V_OK(VELOC_Checkpoint("mine", 2)); /* now the common regions */
    T_EQ(VELOC_Recover_ckpt_size("mine", 2, 0), sizeof(int));
    V_OK(VELOC_Region_protect(1, own, 16, sizeof(int), "mine"));
    V_OK(VELOC_Region_clear("mine"));
    V_OK(VELOC_Checkpoint("mine", 3));
    T_EQ(VELOC_Recover_ckpt_size("mine", 3, 0), sizeof(int));
    V_OK(VELOC_Finalize(0));
}

/* The history of a checkpoint of rank 0, through Varve's own interface. */
static struct varve_ctx *plain_open(const char *name, struct varve_history **ret_h)
{
    static uint64_t run;
    struct varve_opts opts;
    struct varve_ctx *ctx;
    T_OK(varve_opts_init(&opts, sizeof(opts)));
    snprintf(opts.local, sizeof(opts.local), "%s/scratch", folder);
    snprintf(opts.remote, sizeof(opts.remote), "%s/persistent", folder);
    T_CHECK(mkdir(opts.local, 0777) == 0 || errno == EEXIST);
    T_CHECK(mkdir(opts.remote, 0777) == 0 || errno == EEXIST);
    opts.level = VARVE_LEVEL_REMOTE;
    opts.run_id = ++run; /* of a process by itself: small */
    T_OK(varve_open(&opts, &ctx));
    T_OK(varve_history_open(ctx, name, ret_h));
    return ctx;
}

static int regions_on_disk(const char *name, uint64_t version)
{
    struct varve_history *h;
    struct varve_ctx *ctx = plain_open(name, &h);
    size_t n = 0;
    T_OK(varve_regions(h, version, NULL, 0, &n));
    T_OK(varve_close(ctx));
    return (int)n;
}

/* Numbers are any int; regions may have no bytes. */
static void test_odd_regions(void)
{
    static int x = 1, y = 2, z = 3;
    folder = t_tmpdir();
    V_OK(VELOC_Init_single(0, ini("sync", "")));
    V_OK(VELOC_Mem_protect(-5, &x, 1, sizeof(int)));
    V_OK(VELOC_Mem_protect(INT_MIN + 1000, &y, 1, sizeof(int)));
    V_FAIL(VELOC_Mem_protect(1000, &z, 1, sizeof(int)));
    V_OK(VELOC_Mem_protect(4, NULL, 0, sizeof(int)));
    V_OK(VELOC_Checkpoint("odd", 0));
    x = y = 0;
    V_OK(VELOC_Restart("odd", 0));
    T_CHECK(x == 1 && y == 2);
    V_OK(VELOC_Restart_begin("odd", 0));
    T_EQ(VELOC_Recover_size(-5), sizeof(int));
    T_EQ(VELOC_Recover_size(4), 0);
    T_EQ(VELOC_Recover_size(3), -1);
    V_OK(VELOC_Restart_end(1));
    V_OK(VELOC_Mem_clear());
    V_OK(VELOC_Mem_protect(4, NULL, 0, sizeof(int)));
    V_OK(VELOC_Checkpoint("odd", 1)); /* nothing but nothing */
    V_OK(VELOC_Restart("odd", 1));
    V_OK(VELOC_Restart_begin("odd", 1));
    T_EQ(VELOC_Recover_size(4), 0);
    T_EQ(VELOC_Recover_size(5), -1);
    V_OK(VELOC_Restart_end(1));
    V_OK(VELOC_Mem_clear());
    V_OK(VELOC_Restart("odd", 1)); /* not protected: nothing is lost */
    V_OK(VELOC_Finalize(0));
    T_EQ(regions_on_disk("odd", 1), 1);
    T_EQ(regions_on_disk("odd", 0), 3);
}

/* Many regions, protected and unprotected in any order. */
static void test_region_orders(void)
{
    enum { MANY = 20000 };
    static signed char byte[MANY];
    folder = t_tmpdir();
    V_OK(VELOC_Init_single(0, ini("sync", "")));
    for (int order = 0; order < 3; order++) {
        int id[MANY];
        for (int i = 0; i < MANY; i++) {
            id[i] = order == 0 ? i : order == 1 ? MANY - 1 - i : i * 7919 % MANY;
            byte[i] = (signed char)(i % 101 + order);
            V_OK(VELOC_Mem_protect(id[i], &byte[id[i]], 1, 1));
        }
        V_OK(VELOC_Checkpoint("orders", order));
        memset(byte, 0, sizeof(byte));
        V_OK(VELOC_Restart("orders", order));
        for (int i = 0; i < MANY; i++) {
            T_EQ(byte[i], i % 101 + order);
            V_OK(VELOC_Mem_unprotect(id[MANY - 1 - i]));
        }
        V_FAIL(VELOC_Mem_unprotect(0));
    }
    V_OK(VELOC_Finalize(0));
}

/* Earlier releases kept a list of the regions without bytes in a special region. */
static void test_old_empty_regions(void)
{
    static int x = 1, list[] = {4, 9};
    struct varve_history *h;
    folder = t_tmpdir();
    struct varve_ctx *ctx = plain_open("old", &h);
    T_OK(varve_protect(h, 1, &x, sizeof(x)));
    T_OK(varve_protect(h, VVI_VELOC_EMPTY, list, sizeof(list)));
    T_OK(varve_checkpoint(h, 3));
    T_OK(varve_close(ctx));
    x = 0;
    V_OK(VELOC_Init_single(0, ini("sync", "")));
    V_OK(VELOC_Mem_protect(1, &x, 1, sizeof(int)));
    V_OK(VELOC_Mem_protect(9, NULL, 0, 1));
    V_OK(VELOC_Restart("old", 3));
    T_EQ(x, 1);
    V_OK(VELOC_Restart_begin("old", 3));
    T_EQ(VELOC_Recover_size(4), 0);
    T_EQ(VELOC_Recover_size(9), 0);
    T_EQ(VELOC_Recover_size(5), -1);
    V_OK(VELOC_Restart_end(1));
    V_OK(VELOC_Finalize(0));
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, bytes, n), n);
    close(fd);
}

static void read_is(const char *path, const void *bytes, size_t n)
{
    char *got = malloc(n + 2);
    int fd = open(path, O_RDONLY);
    T_CHECK(fd >= 0);
    T_EQ(read(fd, got, n + 1), n);
    T_CHECK(memcmp(got, bytes, n) == 0);
    close(fd);
    free(got);
}

static void test_files(void)
{
    char path[VELOC_MAX_NAME], again[VELOC_MAX_NAME];
    begin_in(t_tmpdir(), "async", "");
    V_FAIL(VELOC_Route_file("f", path));
    V_OK(VELOC_Checkpoint_begin("f", 3));
    V_OK(VELOC_Route_file(path, path)); /* as some programs do */
    V_OK(VELOC_Route_file("", again));
    T_STREQ(path, again);
    fill(8);
    write_file(path, a, N * sizeof(*a));
    V_FAIL(VELOC_Checkpoint_mem());
    V_OK(VELOC_Checkpoint_end(1));
    T_CHECK(access(path, F_OK) != 0);
    V_OK(VELOC_Checkpoint_begin("f", 4)); /* an empty file */
    V_OK(VELOC_Route_file("", path));
    write_file(path, "", 0);
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Checkpoint_begin("f", 5)); /* none at all */
    V_OK(VELOC_Route_file("", path));
    V_FAIL(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Finalize(0));

    begin_in(folder, "async", "");
    T_EQ(VELOC_Restart_test("f", 0), 4);
    V_OK(VELOC_Restart_begin("f", 4));
    V_OK(VELOC_Route_file("", path));
    read_is(path, "", 0);
    V_OK(VELOC_Restart_end(1));
    V_OK(VELOC_Restart_begin("f", 3));
    V_OK(VELOC_Route_file("", path));
    read_is(path, a, N * sizeof(*a));
    V_OK(VELOC_Restart_end(1));
    T_CHECK(access(path, F_OK) != 0);
    save("mem", 1);
    V_OK(VELOC_Restart_begin("mem", 1));
    V_FAIL(VELOC_Route_file("f", path)); /* it is no file */
    V_OK(VELOC_Restart_end(0));
    V_OK(VELOC_Finalize(0));
}

/* The file appears under its original name, whole and synced before it is there; a failed
 * delivery is reported. */
static void test_original(void)
{
    static const char *const modes[] = {"sync", "async"};
    char path[VELOC_MAX_NAME], to[VELOC_MAX_NAME];
    int delivered = deliveries.delivered;
    for (int m = 0; m < 2; m++) {
        begin_in(t_tmpdir(), modes[m], "");
        snprintf(to, sizeof(to), "%s/result", folder);
        for (int v = 1; v <= 3; v++) {
            fill(v);
            V_OK(VELOC_Checkpoint_begin("f", v));
            V_OK(VELOC_Route_file(to, path));
            write_file(path, a, N * sizeof(*a));
            V_OK(VELOC_Checkpoint_end(1));
        }
        V_OK(VELOC_Checkpoint_wait());
        read_is(to, a, N * sizeof(*a));
        snprintf(to, sizeof(to), "%s/no/such/folder", folder);
        V_OK(VELOC_Checkpoint_begin("f", 4));
        V_OK(VELOC_Route_file(to, path));
        write_file(path, a, N * sizeof(*a));
        T_EQ(VELOC_Checkpoint_end(1), m == 0 ? VELOC_FAILURE : VELOC_SUCCESS);
        if (m == 1)
            V_FAIL(VELOC_Checkpoint_wait());
        V_OK(VELOC_Checkpoint_wait());
        T_EQ(VELOC_Restart_test("f", 0),
             m == 0 ? 3 : 4); /* the copy for others is not the version */
        V_OK(VELOC_Finalize(1));
    }
    T_EQ(deliveries.delivered - delivered, 6);
    T_EQ(deliveries.too_early, 0);
    /* Nothing goes to persistent storage, nothing appears. */
    begin_in(t_tmpdir(), "async", "persistent_interval = -1\n");
    snprintf(to, sizeof(to), "%s/result", folder);
    V_OK(VELOC_Checkpoint_begin("f", 1));
    V_OK(VELOC_Route_file(to, path));
    write_file(path, a, 4);
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Finalize(1));
    T_CHECK(access(to, F_OK) != 0);
}

/* An existing version is overwritten. */
static void test_overwrite(void)
{
    begin_in(t_tmpdir(), "sync", "");
    save("o", 1);
    save("o", 2);
    fill(50);
    V_OK(VELOC_Checkpoint("o", 1));
    V_OK(VELOC_Finalize(0));
    begin_in(folder, "sync", "");
    fill(60);
    V_OK(VELOC_Checkpoint("o", 2));
    V_OK(VELOC_Restart("o", 1));
    T_CHECK(holds(a, 50));
    V_OK(VELOC_Restart("o", 2));
    T_CHECK(holds(a, 60));
    V_OK(VELOC_Cleanup("o"));
    V_FAIL(VELOC_Restart_test("o", 0));
    V_OK(VELOC_Finalize(0));
    begin_in(folder, "sync", "");
    V_FAIL(VELOC_Restart_test("o", 0));
    V_OK(VELOC_Finalize(0));
}

/* On scratch alone, and on both: there versions are removed in the background. */
static void test_retention(void)
{
    static const char *const more[] = {"scratch_versions = 2\npersistent_interval = -1\n",
                                       "max_versions = 2\n"};
    for (int i = 0; i < 2; i++) {
        begin_in(t_tmpdir(), "sync", more[i]);
        for (int v = 1; v <= 6; v++)
            save("k", v);
        T_EQ(VELOC_Restart_test("k", 0), 6);
        T_EQ(VELOC_Restart_test("k", 5), 5);
        uint64_t end = vv_now_ns() + 60 * VV_NS_PER_S;
        while (i == 1 && VELOC_Restart_test("k", 4) != VELOC_FAILURE && vv_now_ns() < end)
            vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
        V_FAIL(VELOC_Restart_test("k", 4));
        V_OK(VELOC_Finalize(0));
    }
}

/* The highest version is removed during the query: the next one counts. */
static void test_retention_meanwhile(void)
{
    begin_in(t_tmpdir(), "async", "max_versions = 2\n");
    save("m", 100);
    for (int v = 99; v > 0; v--) {
        int highest;
        save("m", v);
        do {
            highest = VELOC_Restart_test("m", 0);
            T_CHECK(highest > v || v == 99);
        } while (v < 99 && highest != v + 1);
    }
    V_OK(VELOC_Finalize(1));
}

static void remove_folder(const char *name)
{
    char line[600];
    snprintf(line, sizeof(line), "rm -rf '%s/%s'", folder, name);
    T_EQ(system(line), 0);
}

/* Persistent storage has all drained versions, with or without scratch; without it scratch has them. */
static void test_levels(void)
{
    begin_in(t_tmpdir(), "async", "");
    save("l", 1);
    save("l", 2);
    V_OK(VELOC_Finalize(1));
    remove_folder("scratch");
    begin_in(folder, "async", "");
    T_EQ(VELOC_Restart_test("l", 0), 2);
    V_OK(VELOC_Restart("l", 2));
    T_CHECK(holds(a, 2) && holds(b, 2));
    V_OK(VELOC_Finalize(1));

    begin_in(t_tmpdir(), "sync", "persistent_interval = -1\n");
    save("l", 1);
    V_OK(VELOC_Finalize(1));
    remove_folder("persistent");
    begin_in(folder, "sync", "persistent_interval = 100000\nhost_cache_size = 0.01\n");
    T_EQ(VELOC_Restart_test("l", 0), 1);
    V_OK(VELOC_Restart("l", 1));
    save("l", 2);
    V_OK(VELOC_Finalize(1));
    T_CHECK(access("persistent", F_OK) != 0);
    remove_folder("scratch");
    begin_in(folder, "sync", "");
    V_FAIL(VELOC_Restart_test("l", 0));
    V_OK(VELOC_Finalize(1));
}

/* ---- files of VELOC ---- */

static void veloc_file(const char *in, const char *name, int version, int seed)
{
    char path[600], *p;
    size_t n = 2, bytes = N * sizeof(int),
           total = sizeof(n) + 2 * (sizeof(int) + sizeof(n)) + 2 * bytes;
    char *all = malloc(total);
    fill(seed);
    p = all;
    memcpy(p, &n, sizeof(n));
    p += sizeof(n);
    for (int id = 0; id < 2; id++) {
        memcpy(p, &id, sizeof(id));
        memcpy(p + sizeof(id), &bytes, sizeof(bytes));
        p += sizeof(id) + sizeof(bytes);
    }
    memcpy(p, a, bytes);
    memcpy(p + bytes, b, bytes);
    snprintf(path, sizeof(path), "%s/%s", folder, in);
    mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/%s/%s-7-%d.dat", folder, in, name, version);
    write_file(path, all, total);
    free(all);
}

static void test_legacy(void)
{
    char path[VELOC_MAX_NAME], zeros[64] = {0};
    int one[] = {1};
    folder = t_tmpdir();
    veloc_file("scratch", "old", 10, 10);
    veloc_file("persistent", "old", 20, 20);
    veloc_file("persistent", "old-7", 90, 90); /* another name, though it begins alike */
    snprintf(path, sizeof(path), "%s/scratch/old-7-30.dat", folder);
    write_file(path, zeros, sizeof(zeros)); /* killed while it wrote */
    veloc_file("persistent", "old", 50, 50);
    snprintf(path, sizeof(path), "%s/persistent/old-7-50.dat", folder);
    T_OK(truncate(path, 100)); /* and while it was copied */
    snprintf(path, sizeof(path), "%s/scratch/old-8-40.dat", folder);
    write_file(path, "of another rank", 15);
    snprintf(path, sizeof(path), "%s/scratch/raw-7-5.dat", folder);
    write_file(path, "the application's own", 21);

    begin_in(folder, "async", "");
    T_EQ(VELOC_Restart_test("old", 0), 20);
    T_EQ(VELOC_Restart_test("old", 19), 10);
    T_EQ(VELOC_Restart_test("old-7", 0), 90);
    fill(1);
    V_OK(VELOC_Restart("old", 20));
    T_CHECK(holds(a, 20) && holds(b, 20));
    V_OK(VELOC_Restart_begin("old", 10));
    T_EQ(VELOC_Recover_size(1), N * sizeof(int));
    V_OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, one, 1));
    T_CHECK(holds(a, 20) && holds(b, 10));
    V_OK(VELOC_Restart_end(1));
    V_FAIL(VELOC_Restart("old", 30));
    V_FAIL(VELOC_Restart("old", 50));
    T_EQ(VELOC_Restart_test("raw", 0), 5);
    V_FAIL(VELOC_Restart("raw", 5));
    V_OK(VELOC_Restart_begin("raw", 5));
    V_OK(VELOC_Route_file("x", path));
    read_is(path, "the application's own", 21);
    V_OK(VELOC_Restart_end(1));
    T_CHECK(access(path, F_OK) == 0); /* it must not be removed */
    /* Varve's versions continue from there. */
    save("old", 25);
    T_EQ(VELOC_Restart_test("old", 0), 25);
    V_OK(VELOC_Checkpoint_wait());
    V_OK(VELOC_Cleanup("old"));
    T_EQ(VELOC_Restart_test("old", 0), 20); /* persistent stays */
    V_OK(VELOC_Finalize(1));
}

/* ---- failures ---- */

static struct t_inject injector;

static struct vv_store *inject_store(void *arg, struct vv_store *inner)
{
    return t_inject_store(arg, inner);
}

/* A checkpoint that does not reach its level is reported once, and never offered; earlier ones
 * are. */
static void test_failed(void)
{
    struct vv_ckpt_hooks hooks = {.store = inject_store, .arg = &injector};
    for (int sync = 0; sync < 2; sync++) {
        t_inject_init(&injector);
        vv_ckpt_set_hooks(&hooks);
        begin_in(t_tmpdir(), sync ? "sync" : "async", "");
        save("x", 1);
        V_OK(VELOC_Checkpoint_wait());
        t_inject_arm(&injector, T_INJECT_REPORT, 1, -1, -EIO);
        fill(2);
        T_EQ(VELOC_Checkpoint("x", 2), sync ? VELOC_FAILURE : VELOC_SUCCESS);
        if (!sync) {
            V_FAIL(VELOC_Checkpoint_wait());
            V_OK(VELOC_Checkpoint_wait());
            V_OK(VELOC_Checkpoint_finished());
        }
        T_EQ(VELOC_Restart_test("x", 0), 1);
        V_FAIL(VELOC_Restart("x", 2));
        t_inject_disarm(&injector);
        T_EQ(VELOC_Restart_test("x", 0), 1);
        save("x", 3);
        (void)VELOC_Finalize(1);
        vv_ckpt_set_hooks(NULL);
        begin_in(folder, "async", "");
        T_EQ(VELOC_Restart_test("x", 0), 3);
        T_EQ(VELOC_Restart_test("x", 2), 1);
        V_OK(VELOC_Finalize(0));
        t_inject_fini(&injector);
    }
}

static void overwritten_in_vain(void)
{
    t_inject_arm(&injector, T_INJECT_REPORT, 1, -1, -EIO);
    fill(2);
    V_OK(VELOC_Checkpoint("x", 1));
    while (VELOC_Checkpoint_finished() != VELOC_SUCCESS)
        usleep(1000);
    t_inject_disarm(&injector);
}

/* A version whose overwrite failed has its old content again. A restart fails once if the application has not been
 * warned; after a warning, or after a successful write of the version, none fails. */
static void test_overwritten_in_vain(void)
{
    struct vv_ckpt_hooks hooks = {.store = inject_store, .arg = &injector};
    t_inject_init(&injector);
    vv_ckpt_set_hooks(&hooks);
    begin_in(t_tmpdir(), "async", "");
    save("x", 1);
    V_OK(VELOC_Checkpoint_wait());
    overwritten_in_vain();
    V_FAIL(VELOC_Checkpoint_wait());
    V_OK(VELOC_Restart("x", 1));
    T_CHECK(holds(a, 1) && holds(b, 1));
    overwritten_in_vain();
    V_FAIL(VELOC_Restart("x", 1));
    V_OK(VELOC_Restart("x", 1));
    T_CHECK(holds(a, 1) && holds(b, 1));
    V_FAIL(VELOC_Checkpoint_wait());
    overwritten_in_vain();
    fill(3);
    V_OK(VELOC_Checkpoint_begin("x", 1));
    V_OK(VELOC_Checkpoint_mem());
    V_OK(VELOC_Checkpoint_end(1));
    fill(4);
    V_OK(VELOC_Restart("x", 1));
    T_CHECK(holds(a, 3) && holds(b, 3));
    V_FAIL(VELOC_Checkpoint_wait());
    V_OK(VELOC_Finalize(1));
    vv_ckpt_set_hooks(NULL);
    t_inject_fini(&injector);
}

/* VELOC_Checkpoint_finished changes nothing about that. */
static void test_finished(void)
{
    begin_in(t_tmpdir(), "async", "[varve]\nrate = h2f=64K\n");
    save("x", 1);
    V_FAIL(VELOC_Checkpoint_finished());
    V_FAIL(VELOC_Checkpoint_finished());
    V_OK(VELOC_Checkpoint_wait());
    V_OK(VELOC_Checkpoint_finished());
    V_OK(VELOC_Finalize(1));
}

/* ---- configuration ---- */

/* Captures stderr from here on, for heard(). */
static FILE *hear(int *ret_before)
{
    FILE *said = tmpfile();
    *ret_before = dup(STDERR_FILENO);
    T_CHECK(said && *ret_before >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    return said;
}

/* True if the text was written to stderr since hear(). */
static void heard(FILE *said, int before, const char *what)
{
    char text[1024] = "";
    fflush(stderr);
    T_CHECK(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(said);
    text[fread(text, 1, sizeof(text) - 1, said)] = 0;
    fclose(said);
    if (!strstr(text, what))
        t_fail(__FILE__, __LINE__, "nothing of '%s' in: %s", what, text);
}

/* Checks that a file is refused, with a message that names the accepted values of the key. */
static void refused(const char *mode, const char *more, const char *takes)
{
    int before;
    FILE *said = hear(&before);
    V_FAIL(VELOC_Init_single(0, ini(mode, more)));
    heard(said, before, takes);
}

/* A message says what is wrong, not all that might be. */
static void test_messages(void)
{
    int before, x = 0;
    folder = t_tmpdir();
    V_OK(VELOC_Init_single(0, ini("sync", "")));
    FILE *said = hear(&before);
    V_FAIL(VELOC_Mem_protect(3, NULL, 1, 1));
    heard(said, before, "VELOC_Mem_protect: region 3: the pointer is NULL");
    said = hear(&before);
    V_FAIL(VELOC_Mem_protect(3, &x, SIZE_MAX, 2));
    heard(said, before, "region 3: count times size is more than any memory holds");
    V_OK(VELOC_Mem_protect(3, &x, 1, sizeof(x)));
    V_OK(VELOC_Checkpoint_begin("m", 1));
    said = hear(&before);
    V_FAIL(VELOC_Checkpoint_begin("m", 2));
    heard(said, before, "a checkpoint has begun and not ended: call VELOC_Checkpoint_end");
    V_OK(VELOC_Checkpoint_mem());
    V_OK(VELOC_Checkpoint_end(1));
    V_OK(VELOC_Finalize(0));
}

static void test_config(void)
{
    char text[VELOC_MAX_NAME];
    folder = t_tmpdir();
    V_FAIL(VELOC_Init_single(0, "/nonexistent"));
    V_FAIL(VELOC_Init_single(0, NULL));
    refused("neither", "", "mode = neither: it takes sync or async");
    refused("sync", "max_versions = many\n", "a whole number");
    refused("sync", "score_eviction = perhaps\n", "true or false");
    refused("sync", "host_cache_size = big\n", "a number of GiB");
    refused("sync", "[varve]\nno_such_key = 1\n",
            "veloc.cfg: section [varve]: unknown key 'no_such_key'");
    V_OK(VELOC_Init_single(
        0,
        ini("async", "; a comment\npersistent_interval = 100000\nec_interval = -1\nchksum = true\n"
                     "meta = /nowhere\nthreaded = true\nscratch_versions = 3\n"
                     "gpu_cache_size = 0.001\nhost_cache_size = 0.05\nscore_eviction = true\n"
                     "premature_eviction = false\naxl_type = AXL_XFER_SYNC\nmisspelt = 1\n"
                     "[varve]\npage = 64K\nlocal_io = buffered\n")));
    V_FAIL(VELOC_Init_single(0, ini("sync", "")));
    VELOC_Get_trf_metrics(text);
    T_CHECK(text[0] == '{' && strstr(text, "HtoF : 0"));
    V_OK(VELOC_Finalize(0));
}

/* ---- prefetching ---- */

static int released;

static int release(void)
{
    released++;
    return 0;
}

/* The order of paper 000, Listing 1: all hints first, then forward, then backward. */
static void test_prefetch(void)
{
    enum { STEPS = 40 };
    begin_in(t_tmpdir(), "async", "host_cache_size = 0.0002\npremature_eviction = true\n");
    for (int v = STEPS; v-- > 0;)
        V_OK(VELOC_Prefetch_enqueue("rtm", v));
    T_CHECK(!VELOC_Next_prefetched("rtm", STEPS - 1, 0));
    for (int v = 0; v < STEPS; v++)
        save("rtm", v);
    T_CHECK(VELOC_Next_prefetched("rtm", STEPS - 1, 0));
    T_CHECK(!VELOC_Next_prefetched("rtm", STEPS - 1, 99));
    V_OK(VELOC_Checkpoint_wait());
    V_OK(VELOC_Prefetch_start());
    V_OK(VELOC_Prefetch_start());
    for (int v = STEPS; v-- > 0;) {
        T_EQ(VELOC_Recover_ckpt_size("rtm", v, 0), N * sizeof(int));
        V_OK(VELOC_Restart("rtm", v));
        T_CHECK(holds(a, v) && holds(b, v));
        V_FAIL(VELOC_Restart("rtm", v)); /* it was consumed */
    }
    V_FAIL(VELOC_Prefetch_enqueue("rtm", -1));
    V_OK(VELOC_Mem_protect_flags(0, a, N, sizeof(*a), 1, release));
    V_OK(VELOC_Mem_protect_flags(0, a, N, sizeof(*a), 1, release));
    T_EQ(released, 0);
    V_OK(VELOC_Mem_unprotect(0));
    T_EQ(released, 1);
    V_OK(VELOC_Mem_protect_flags(0, a, N, sizeof(*a), 0, release));
    V_OK(VELOC_Finalize(0));
    T_EQ(released, 2);
}

int main(void)
{
    setenv("VARVE_HOST_CACHE", "8M", 1);
    a = malloc(N * sizeof(*a));
    b = malloc(N * sizeof(*b));
    T_RUN(test_round_trip);
    T_RUN(test_protect);
    T_RUN(test_phases);
    T_RUN(test_discarded);
    T_RUN(test_selective);
    T_RUN(test_named);
    T_RUN(test_odd_regions);
    T_RUN(test_region_orders);
    T_RUN(test_old_empty_regions);
    T_RUN(test_files);
    T_RUN(test_original);
    T_RUN(test_overwrite);
    T_RUN(test_retention);
    T_RUN(test_retention_meanwhile);
    T_RUN(test_levels);
    T_RUN(test_legacy);
    T_RUN(test_failed);
    T_RUN(test_overwritten_in_vain);
    T_RUN(test_finished);
    T_RUN(test_config);
    T_RUN(test_messages);
    T_RUN(test_prefetch);
    free(a);
    free(b);
    return t_done();
}
