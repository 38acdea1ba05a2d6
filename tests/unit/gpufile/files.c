/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of files: their identity, their users, and when they are gone.
 */
#include <pthread.h>

#include "ckpt/face.h"
#include "device/host/host.h"
#include "unit/gpufile/gf.h"

enum { PAGE = 4 * KIB };

/* The first page of a file, as a kernel reads it. */
struct first {
    uint32_t id;
    int opened;
    int64_t got;
    uint64_t bytes; /* of the file */
    unsigned char page[PAGE];
};

static void read_first(void *arg)
{
    struct first *r = arg;
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, r->id, VARVE_GBLOCK, &f);
    int64_t n;

    if (varve_d_thread() == 0)
        r->opened = rc;
    if (rc)
        return;
    n = varve_gread(&f, 0, r->page, PAGE);
    if (varve_d_thread() == 0) {
        r->got = n;
        r->bytes = varve_gsize(&f);
    }
    (void)varve_gclose(&f);
}

static struct first first;

static int try_first(uint32_t id)
{
    memset(&first, 0, sizeof(first));
    first.id = id;
    gf_launch(1, 2, 1, read_first, &first);
    return first.opened;
}

static void open_plain(void)
{
    struct varve_gpufs_opts o = gf_opts();

    gf_open(&o);
}

/* Two users of a file do not take it from each other. */
static void users_are_counted(void)
{
    const char *path;
    uint32_t a, b;

    open_plain();
    path = gf_file("shared", PAGE);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &a));
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &b));
    T_EQ(a, b);
    T_OK(varve_gpufs_unregister(gf_fs, a));
    T_OK(try_first(b));
    T_EQ(first.got, PAGE);
    T_EQ(gf_stats().files, 1);
    T_OK(varve_gpufs_unregister(gf_fs, b));
    T_EQ(gf_stats().files, 0);
    T_ERR(try_first(b), -EBADF);
    T_ERR(varve_gpufs_unregister(gf_fs, b), -EINVAL);
    T_OK(gf_close());
}

static struct {
    pthread_barrier_t round;
    uint32_t id;
    unsigned rounds;
    _Atomic unsigned ended;
} race;

static void *unregister_each_round(void *arg)
{
    for (unsigned i = 0; i < race.rounds; i++) {
        int rc;

        pthread_barrier_wait(&race.round);
        rc = varve_gpufs_unregister(gf_fs, race.id);
        T_CHECK(rc == 0 || rc == -EINVAL);
        if (rc == 0)
            race.ended++;
        pthread_barrier_wait(&race.round);
    }
    return arg;
}

/* If two threads unregister a number at once, one succeeds. */
static void two_unregister_at_once(void)
{
    const char *path;
    pthread_t t[2];

    open_plain();
    path = gf_file("twice", PAGE);
    race.rounds = (unsigned)t_cases(300, 3000);
    T_OK(-pthread_barrier_init(&race.round, NULL, 3));
    for (int i = 0; i < 2; i++)
        T_OK(-pthread_create(&t[i], NULL, unregister_each_round, NULL));
    for (unsigned i = 0; i < race.rounds; i++) {
        T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &race.id));
        race.ended = 0;
        pthread_barrier_wait(&race.round);
        pthread_barrier_wait(&race.round);
        T_EQ(race.ended, 1);
        T_EQ(gf_stats().files, 0);
    }
    for (int i = 0; i < 2; i++)
        T_OK(-pthread_join(t[i], NULL));
    T_OK(-pthread_barrier_destroy(&race.round));
    T_OK(gf_close());
}

/* ---- unregistered while it is being registered ---- */

static struct {
    uint32_t id;
    _Atomic int maps, ended;
} early;

/* Called with the file's lock held, before each window is mapped. */
static int count_and_signal(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    (void)os;
    early.maps++;
    return vv_os_posix()->file_bytes(vv_os_posix(), fd, ret_bytes);
}

static void *unregister_early(void *arg)
{
    while (early.maps == 0)
        usleep(50);
    early.ended = varve_gpufs_unregister(gf_fs, early.id);
    return arg;
}

/* A thread guesses the number of a file that is being registered, and unregisters it: either registering fails and
 * does not end the file once more, or it was faster. */
static void unregistered_before_it_is_registered(void)
{
    enum { WINDOWS = 3, WANTED = 5, ROUNDS = 100 };
    unsigned failed = 0;
    const char *path;

    gf_bad_os(0, 0, 0);
    gf_os.os.file_bytes = count_and_signal;
    open_plain();
    path = gf_file("early", 0);
    T_EQ(truncate(path, WINDOWS * 2 * MIB), 0);
    /* Mapping takes a while, so the number is mostly gone before the last window. */
    vv_device_host_set_register_rate(vv_ckpt_device(gf_ctx), 400 * MIB);
    for (early.id = 0; failed < WANTED && early.id < ROUNDS; early.id++) {
        uint32_t id = 77;
        pthread_t t;
        int rc;

        early.maps = 0;
        T_OK(-pthread_create(&t, NULL, unregister_early, NULL));
        rc = varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &id);
        T_OK(-pthread_join(t, NULL));
        T_CHECK(rc == 0 || rc == -EINVAL);
        T_EQ(id, rc ? 77 : early.id);
        T_OK(early.ended);
        T_EQ(gf_stats().files, 0);
        T_EQ(gf_stats().windows, 0);
        failed += rc != 0;
    }
    T_OK(gf_close());
}

static struct {
    uint32_t reader, writer;
    int64_t before, wrote, after;
    unsigned char new[PAGE], page[PAGE];
} two;

static void write_by_one_and_read_by_the_other(void *arg)
{
    struct varve_gfile r, w;
    int64_t before, wrote, after;

    (void)arg;
    if (varve_gopen(&gf_handle, two.reader, VARVE_GBLOCK, &r) != 0 ||
        varve_gopen(&gf_handle, two.writer, VARVE_GBLOCK, &w) != 0)
        return;
    before = varve_gread(&r, 0, two.page, PAGE);
    wrote = varve_gwrite(&w, 0, two.new, PAGE);
    after = varve_gread(&r, 0, two.page, PAGE);
    if (varve_d_thread() == 0) {
        two.before = before;
        two.wrote = wrote;
        two.after = after;
    }
    (void)varve_gclose(&r);
    (void)varve_gclose(&w);
}

/* A file has one number, whatever its names and however it was registered for writing. */
static void one_file_one_number(void)
{
    static const int ways[] = {VARVE_GFILE_READ | VARVE_GFILE_WRITE, VARVE_GFILE_WRITE,
                               VARVE_GFILE_READ | VARVE_GFILE_WRITE | VARVE_GFILE_CREATE};
    char dotted[700], linked[700], symlinked[700];
    uint32_t id, reading;
    const char *path;

    open_plain();
    path = gf_file("one", 2 * PAGE);
    snprintf(dotted, sizeof(dotted), "%.*s./one", (int)(strrchr(path, '/') + 1 - path), path);
    snprintf(linked, sizeof(linked), "%s.link", path);
    snprintf(symlinked, sizeof(symlinked), "%s.symlink", path);
    T_EQ(link(path, linked), 0);
    T_EQ(symlink("one", symlinked), 0);
    T_OK(varve_gpufs_register(gf_fs, path, ways[2], &two.writer));
    for (int i = 0; i < 3; i++) {
        const char *names[] = {path, dotted, linked, symlinked};

        for (int k = 0; k < 4; k++) {
            T_OK(varve_gpufs_register(gf_fs, names[k], ways[i], &id));
            T_EQ(id, two.writer);
        }
    }
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &reading));
    T_CHECK(reading != two.writer);
    T_EQ(gf_stats().files, 2);

    T_OK(varve_gpufs_register(gf_fs, linked, ways[0], &two.reader));
    memset(two.new, 0x5a, PAGE);
    gf_launch(1, 2, 1, write_by_one_and_read_by_the_other, NULL);
    T_EQ(two.before, PAGE);
    T_EQ(two.wrote, PAGE);
    T_EQ(two.after, PAGE);
    T_EQ(memcmp(two.page, two.new, PAGE), 0);

    /* The other kind of handle sees it after its pages were dropped. */
    T_OK(varve_gpufs_drop(gf_fs));
    T_OK(try_first(reading));
    T_EQ(first.got, PAGE);
    T_EQ(memcmp(first.page, two.new, PAGE), 0);
    T_OK(gf_close());
}

/* A path leads to another file, or the file has another size: a new registration gets the current file. */
static void registered_again(void)
{
    char other[600];
    const char *path;
    uint32_t id, again;
    int fd;

    open_plain();
    path = gf_file("again", PAGE);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id));
    T_OK(try_first(id));
    T_EQ(first.bytes, PAGE);

    snprintf(other, sizeof(other), "%s.new", path);
    fd = open(other, O_CREAT | O_RDWR, 0600);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, "other", 5, 0), 5);
    T_EQ(ftruncate(fd, 9000), 0);
    T_EQ(rename(other, path), 0);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &again));
    T_CHECK(again != id);
    T_OK(try_first(again));
    T_EQ(first.bytes, 9000);
    T_EQ(memcmp(first.page, "other", 5), 0);
    T_OK(try_first(id)); /* the one that it was given for */
    T_EQ(first.bytes, PAGE);
    T_CHECK(gf_right(first.page, 0, PAGE));

    for (int i = 0; i < 2; i++) {
        uint64_t bytes = i ? 100 : 20000;

        T_EQ(ftruncate(fd, (off_t)bytes), 0);
        id = again;
        T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &again));
        T_CHECK(again != id);
        T_OK(try_first(again));
        T_EQ(first.bytes, bytes);
        T_EQ(first.got, VV_MIN(bytes, PAGE));
        T_OK(varve_gpufs_unregister(gf_fs, id));
    }

    /* Files for writing grow under their number. */
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_WRITE, &id));
    T_EQ(ftruncate(fd, 30000), 0);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_WRITE, &again));
    T_EQ(again, id);
    T_EQ(close(fd), 0);
    T_OK(gf_close());
}

struct growing {
    const char *path;
    int opened;
    uint32_t id;
    uint64_t bytes;
};

static void open_growing(void *arg)
{
    struct growing *g = arg;
    struct varve_gfile f;
    int rc = varve_gopen_path(&gf_handle, g->path, VARVE_GFILE_READ, VARVE_GBLOCK, &f);

    if (varve_d_thread() == 0) {
        g->opened = rc;
        g->id = rc ? UINT32_MAX : f.file;
        g->bytes = rc ? 0 : varve_gsize(&f);
    }
    if (rc == 0)
        (void)varve_gclose(&f);
}

/* A file that kernels open by path while it grows has a number for each size, as many as the options allow,
 * until the host takes them back. */
static void a_growing_file_uses_numbers_up(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct growing g;
    uint32_t last = UINT32_MAX;

    gf_open(&o);
    g.path = gf_file("growing", PAGE);
    for (uint32_t i = 0; i < o.files; i++) {
        T_EQ(truncate(g.path, (off_t)(PAGE + i)), 0);
        for (int again = 0; again < 2; again++) {
            gf_launch(1, 2, 1, open_growing, &g);
            T_OK(g.opened);
            T_EQ(g.bytes, PAGE + i);
            T_EQ(gf_stats().files, i + 1);
        }
        T_CHECK(g.id != last);
        last = g.id;
    }
    T_EQ(truncate(g.path, 2 * PAGE), 0);
    gf_launch(1, 2, 1, open_growing, &g);
    T_ERR(g.opened, -EMFILE);
    T_OK(varve_gpufs_unregister(gf_fs, last));
    gf_launch(1, 2, 1, open_growing, &g);
    T_OK(g.opened);
    T_EQ(g.bytes, 2 * PAGE);
    T_OK(gf_close());
}

/* Windows of files that are gone are reused, whatever was registered after them. */
static void windows_come_back(void)
{
    struct varve_gpufs_opts o = gf_opts();
    enum { LARGE = 40000 }; /* windows, of 65536 */
    uint32_t id[3], again;
    uint64_t bytes;
    const char *path[3];

    gf_open(&o);
    for (int i = 0; i < 3; i++) {
        char name[16];

        snprintf(name, sizeof(name), "w%d", i);
        path[i] = gf_file(name, PAGE);
    }
    T_EQ(truncate(path[0], (off_t)(LARGE * o.window_bytes)), 0);
    T_OK(varve_gpufs_register(gf_fs, path[0], VARVE_GFILE_READ, &id[0]));
    T_OK(varve_gpufs_register(gf_fs, path[1], VARVE_GFILE_READ | VARVE_GFILE_MAP, &id[1]));
    for (int round = 0; round < 3; round++) {
        T_OK(varve_gpufs_map(gf_fs, id[0], (LARGE - 1) * o.window_bytes, 0, &bytes));
        T_EQ(bytes, o.window_bytes);
        T_EQ(gf_stats().windows, 2);
        T_OK(varve_gpufs_unregister(gf_fs, id[0]));
        T_EQ(gf_stats().windows, 1);
        /* A small file takes the place of the large one, which then finds no room. */
        T_OK(varve_gpufs_register(gf_fs, path[2], VARVE_GFILE_READ | VARVE_GFILE_MAP, &id[2]));
        T_EQ(gf_stats().windows, 2);
        T_OK(try_first(id[2]));
        T_CHECK(first.got == PAGE && gf_right(first.page, 0, PAGE));
        T_OK(varve_gpufs_register(gf_fs, path[0], VARVE_GFILE_READ | VARVE_GFILE_MAP, &again));
        T_ERR(varve_gpufs_map(gf_fs, again, 0, 1, NULL), -ENOSPC);
        T_OK(try_first(again)); /* by a server */
        T_EQ(first.got, PAGE);
        T_OK(varve_gpufs_unregister(gf_fs, again));
        T_OK(varve_gpufs_unregister(gf_fs, id[2]));
        T_OK(varve_gpufs_register(gf_fs, path[0], VARVE_GFILE_READ, &id[0]));
        T_OK(try_first(id[1]));
        T_CHECK(first.got == PAGE && gf_right(first.page, 0, PAGE));
    }
    T_OK(gf_close());
}

/* Returns a descriptor that is not open. */
static int open_nothing(const struct vv_os *os, int dirfd, const char *path, int flags,
                        unsigned mode)
{
    (void)os, (void)dirfd, (void)path, (void)flags, (void)mode;
    return 1 << 20;
}

/* A failed registration leaves nothing behind, and has no effect on other users of the file. */
static void failed_registrations(void)
{
    const int map = VARVE_GFILE_READ | VARVE_GFILE_MAP;
    struct vv_device *d;
    const char *path;
    uint32_t id = 77, had;

    gf_bad_os(0, 0, 0);
    gf_os.os.openat = open_nothing;
    open_plain();
    path = gf_file("unmapped", PAGE);
    T_ERR(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id), -EBADF);
    T_EQ(gf_stats().files, 0);
    T_OK(gf_close());

    open_plain();
    d = vv_ckpt_device(gf_ctx);
    T_OK(vv_device_host_fail(d, VV_DEVICE_OP_HOST_REGISTER, 1, 2, -ENOMEM));
    T_ERR(varve_gpufs_register(gf_fs, path, map, &id), -ENOMEM);
    T_EQ(id, 77);
    T_EQ(gf_stats().files, 0);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &had));
    T_ERR(varve_gpufs_register(gf_fs, path, map, &id), -ENOMEM);
    vv_device_host_heal(d);
    T_OK(try_first(had));
    T_EQ(first.got, PAGE);
    T_OK(varve_gpufs_unregister(gf_fs, had));
    T_EQ(gf_stats().files, 0);
    /* More often than there are numbers. */
    T_OK(vv_device_host_fail(d, VV_DEVICE_OP_HOST_REGISTER, 1, 1000000, -ENOMEM));
    for (uint32_t i = 0; i < VARVE_G_FILES_MAX + 10; i++)
        T_ERR(varve_gpufs_register(gf_fs, path, map, &id), -ENOMEM);
    vv_device_host_heal(d);
    T_OK(varve_gpufs_register(gf_fs, path, map, &id));
    T_EQ(gf_stats().windows, 1);
    T_OK(gf_close());
}

/* ---- past the page cache ---- */

static struct {
    char path[600], other[600];
    char asked[64];    /* the name that was opened with O_DIRECT */
    int direct, fail;  /* number of such opens; their error, or 0 */
    bool wrong;        /* it leads to the other file */
    _Atomic int reads; /* with a descriptor that has O_DIRECT */
} past;

/* Replaces the first file by the other, after the first was opened. */
static int open_and_replace(const struct vv_os *os, int dirfd, const char *path, int flags,
                            unsigned mode)
{
    (void)os;
    if (!(flags & O_DIRECT)) {
        int fd = vv_os_posix()->openat(vv_os_posix(), dirfd, path, flags, mode);

        if (strcmp(path, past.path) == 0)
            T_EQ(rename(past.other, past.path), 0);
        return fd;
    }
    past.direct++;
    snprintf(past.asked, sizeof(past.asked), "%s", path);
    if (past.fail)
        return past.fail;
    return vv_os_posix()->openat(vv_os_posix(), dirfd, past.wrong ? past.path : path, flags, mode);
}

static int64_t pread_and_look(const struct vv_os *os, int fd, void *buf, size_t bytes,
                              uint64_t offset)
{
    (void)os;
    past.reads += (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

/* Reads use the file that was opened, although its path leads to another of the same size by then. Without /proc, or
 * if that leads to the wrong file, it is read through the page cache. */
static void direct_reads_the_file_that_was_opened(void)
{
    for (int how = 0; how < 3; how++) {
        struct varve_gpufs_opts o = gf_opts();
        uint32_t id;

        past.fail = how == 1 ? -ENOENT : 0;
        past.wrong = how == 2;
        past.direct = 0;
        past.reads = 0;
        snprintf(past.other, sizeof(past.other), "%s", gf_file("other", 0));
        T_EQ(truncate(past.other, PAGE), 0);
        snprintf(past.path, sizeof(past.path), "%s", gf_file("direct", PAGE));
        gf_bad_os(0, 0, 0);
        gf_os.os.openat = open_and_replace;
        gf_os.os.pread = pread_and_look;
        o.direct = 1;
        gf_open(&o);
        T_OK(varve_gpufs_register(gf_fs, past.path, VARVE_GFILE_READ, &id));
        T_EQ(past.direct, 1);
        T_EQ(strncmp(past.asked, "/proc/", 6), 0);
        T_OK(try_first(id));
        T_EQ(first.got, PAGE);
        T_CHECK(gf_right(first.page, 0, PAGE));
        if (how)
            T_EQ(past.reads, 0);
        T_OK(gf_close());
    }
}

/* Servers without requests look for them only rarely. */
static void idle_servers_rest(void)
{
    struct varve_gpufs_opts o = gf_opts();

    gf_open(&o);
    usleep(200000);
    uint64_t before = t_others_blocked();
    usleep(100000);
    /* Looking every 50 us would be 2000 times for each server. */
    T_CHECK(t_others_blocked() - before < 200 * o.servers);
    T_OK(gf_close());
}

int main(void)
{
    T_RUN(idle_servers_rest);
    T_RUN(users_are_counted);
    T_RUN(two_unregister_at_once);
    T_RUN(unregistered_before_it_is_registered);
    T_RUN(one_file_one_number);
    T_RUN(registered_again);
    T_RUN(a_growing_file_uses_numbers_up);
    T_RUN(windows_come_back);
    T_RUN(failed_registrations);
    T_RUN(direct_reads_the_file_that_was_opened);
    return t_done();
}
