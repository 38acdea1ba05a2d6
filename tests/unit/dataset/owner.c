/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of files: each file is fetched once, checked no more often than set, and never mixed. */
#include "dataset/owner.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/dataset/ds.h"

#define BIG     (UINT64_C(1) << 30)
#define SECOND  UINT64_C(1000000000)
#define FILES   4
#define RECORDS 2048

/* A shared file system in memory. File "/n" has `size` bytes of value `letter`, and a generation for each of its
 * letters. */
struct fake {
    struct vv_shared ops; /* first: the functions get a pointer to it */
    struct {
        char letter; /* 0: no such file */
        uint64_t size;
    } file[FILES];
    int fail;          /* error of the next read */
    int change_at;     /* after this many reads the file becomes the next letter */
    int changes;       /* how often that shall happen */
    uint64_t ctime_ns; /* of all files; 0: long ago */
    /* A write began at ctime_ns and takes so long, from the first byte to the last. */
    uint64_t write_ns;
    uint64_t pause_ns;   /* before each read */
    uint64_t read_at_ns; /* by the real clock: begin of the last read from offset 0 */
    /* During the next check the file becomes the next letter, and this owner is notified. */
    struct vv_owner *overtake;
    pthread_mutex_t *hold; /* reads take it first */
    bool sole;       /* files are in no file system that programs see, and replaced as a whole */
    uint64_t age_ns; /* of the result of a check */
    atomic_int looks, opens, reads, open_now, waiting;
};

static uint64_t now;

static uint64_t fake_now(void)
{
    return now;
}

static uint64_t wall_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static int number(const char *path)
{
    if (strncmp(path, "/many/", 6) == 0)
        return 0;
    return path[0] == '/' && path[1] >= '0' && path[1] < '0' + FILES && !path[2] ? path[1] - '0'
                                                                                 : -1;
}

static struct fake *fake_of(const struct vv_shared *s)
{
    return (struct fake *)(uintptr_t)s;
}

static void fake_stat(const struct fake *f, int n, struct vv_shared_stat *st)
{
    *st = (struct vv_shared_stat){
        .gen = {.size = f->file[n].size,
                .mtime_ns = (uint64_t)f->file[n].letter,
                .ctime_ns = f->ctime_ns ? f->ctime_ns : 5,
                .inode = (uint64_t)n + 1},
        .mode = 0100644,
        .uid = 1,
        .gid = 2,
        .nlink = 1,
        .blksize = 4096,
        .direct = 1,
        .whole = f->sole,
        .dev = 7,
        .blocks = 8,
        .atime_ns = 9,
        .age_ns = f->age_ns,
    };
}

static bool fake_sole(const struct vv_shared *s, const char *path)
{
    (void)path;
    return fake_of(s)->sole;
}

static int fake_look(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat)
{
    struct fake *f = fake_of(s);
    int n = number(path);

    atomic_fetch_add(&f->looks, 1);
    if (n < 0 || !f->file[n].letter)
        return -ENOENT;
    fake_stat(f, n, ret_stat);
    if (f->overtake) {
        f->file[n].letter++;
        vv_owner_invalidate(f->overtake, path);
        f->overtake = NULL;
    }
    return 0;
}

static int fake_open(const struct vv_shared *s, const char *path, intptr_t *ret_file,
                     struct vv_shared_stat *ret_stat)
{
    struct fake *f = fake_of(s);
    int n = number(path);

    atomic_fetch_add(&f->opens, 1);
    if (n < 0 || !f->file[n].letter)
        return -ENOENT;
    fake_stat(f, n, ret_stat);
    atomic_fetch_add(&f->open_now, 1);
    *ret_file = n;
    return 0;
}

/* Restores bytes that a write under way has not reached yet. */
static void leave_unwritten(const struct fake *f, intptr_t file, char *buf, size_t bytes,
                            uint64_t offset)
{
    uint64_t done = VV_MIN(wall_ns() - f->ctime_ns, f->write_ns) / 1000;
    uint64_t written = f->file[file].size * done / (f->write_ns / 1000);

    for (size_t i = 0; i < bytes; i++)
        if (offset + i >= written)
            buf[i] = '?';
}

static int64_t fake_read(const struct vv_shared *s, intptr_t file, void *buf, size_t bytes,
                         uint64_t offset)
{
    struct fake *f = fake_of(s);
    size_t n = bytes > 1000 ? 1000 : bytes; /* short, as reads may be */

    if (f->hold) {
        atomic_fetch_add(&f->waiting, 1);
        pthread_mutex_lock(f->hold);
        pthread_mutex_unlock(f->hold);
    }
    atomic_fetch_add(&f->reads, 1);
    if (offset == 0)
        f->read_at_ns = wall_ns();
    if (f->fail)
        return f->fail;
    if (f->changes > 0 && f->change_at-- == 0) {
        f->file[file].letter++;
        f->changes--;
        f->change_at = 2;
    }
    if (offset >= f->file[file].size)
        return 0;
    n = n < f->file[file].size - offset ? n : (size_t)(f->file[file].size - offset);
    memset(buf, f->file[file].letter, n);
    if (f->pause_ns)
        vv_sleep_until_ns(vv_now_ns() + f->pause_ns);
    if (f->write_ns)
        leave_unwritten(f, file, buf, n, offset);
    return (int64_t)n;
}

static int fake_look_again(const struct vv_shared *s, intptr_t file,
                           struct vv_shared_stat *ret_stat)
{
    fake_stat(fake_of(s), (int)file, ret_stat);
    return 0;
}

static void fake_close(const struct vv_shared *s, intptr_t file)
{
    (void)file;
    atomic_fetch_sub(&fake_of(s)->open_now, 1);
}

struct setup {
    struct fake fake;
    struct vv_dataset *cache;
    struct vv_owner *owner;
};

static void begin(struct setup *u, uint64_t capacity, uint64_t revalidate_ns)
{
    struct vv_owner_opts opts = {.shared = &u->fake.ops,
                                 .revalidate_ns = revalidate_ns,
                                 .now_ns = fake_now,
                                 .records = RECORDS};

    memset(&u->fake, 0, sizeof(u->fake));
    u->fake.ops = (struct vv_shared){.look = fake_look,
                                     .open = fake_open,
                                     .read = fake_read,
                                     .look_again = fake_look_again,
                                     .close = fake_close,
                                     .sole = fake_sole};
    for (int i = 0; i < FILES; i++) {
        u->fake.file[i].letter = 'a';
        u->fake.file[i].size = 4500;
    }
    u->cache = ds_open(t_tmpdir(), capacity, NULL);
    opts.cache = u->cache;
    T_OK(vv_owner_new(&opts, &u->owner));
    now = 100 * SECOND;
}

static void end(struct setup *u)
{
    T_EQ(atomic_load(&u->fake.open_now), 0);
    vv_owner_free(u->owner);
    vv_dataset_close(u->cache);
}

/* Reads all of a file and returns the letter that it consists of. */
static int read_letter(struct vv_owner *o, const char *path, char *ret_letter)
{
    struct vv_shared_stat st;
    char buf[8192];
    int fd, rc = vv_owner_get(o, path, VV_NEVER_NS, &fd, &st);

    if (rc < 0)
        return rc;
    T_EQ(read(fd, buf, sizeof(buf)), st.gen.size);
    for (uint64_t i = 0; i < st.gen.size; i++)
        T_CHECK(buf[i] == (char)st.gen.mtime_ns);
    T_EQ(st.mode, 0100644);
    *ret_letter = buf[0];
    close(fd);
    return 0;
}

static char letter_of(struct setup *u, const char *path)
{
    char c = 0;

    T_OK(read_letter(u->owner, path, &c));
    return c;
}

static struct vv_owner_stats stats(struct setup *u)
{
    struct vv_owner_stats s;

    vv_owner_stats(u->owner, &s);
    return s;
}

/* Fetched once; checked once in an interval, and with an interval of 0 never. */
static void once(void)
{
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    for (int i = 0; i < 10; i++)
        T_EQ(letter_of(&u, "/1"), 'a');
    T_EQ(stats(&u).fetches, 1);
    T_EQ(stats(&u).fetched_bytes, 4500);
    T_EQ(atomic_load(&u.fake.opens), 1);
    T_EQ(atomic_load(&u.fake.looks), 0);
    for (int i = 0; i < 10; i++) {
        now += SECOND;
        T_EQ(letter_of(&u, "/1"), 'a');
    }
    T_EQ(atomic_load(&u.fake.looks), 2);
    T_EQ(stats(&u).looks, 2);
    T_EQ(atomic_load(&u.fake.opens), 1);
    end(&u);
    begin(&u, BIG, 0);
    T_EQ(letter_of(&u, "/1"), 'a');
    now += 1000000 * SECOND;
    u.fake.file[1].letter = 'x';
    T_EQ(letter_of(&u, "/1"), 'a');
    T_EQ(atomic_load(&u.fake.looks), 0);
    end(&u);
}

/* A change is seen after the interval, not before; a missing file gives an error. */
static void changes(void)
{
    struct setup u;
    char c;

    begin(&u, BIG, 5 * SECOND);
    T_EQ(letter_of(&u, "/1"), 'a');
    u.fake.file[1].letter = 'b';
    u.fake.file[1].size = 3000;
    now += 4 * SECOND;
    T_EQ(letter_of(&u, "/1"), 'a');
    now += SECOND;
    T_EQ(letter_of(&u, "/1"), 'b');
    T_EQ(stats(&u).changed, 1);
    T_EQ(stats(&u).fetches, 2);
    u.fake.file[1].letter = 0;
    T_EQ(letter_of(&u, "/1"), 'b');
    now += 5 * SECOND;
    T_ERR(read_letter(u.owner, "/1", &c), -ENOENT);
    T_ERR(read_letter(u.owner, "/1", &c), -ENOENT);
    T_EQ(ds_stats(u.cache).files, 0);
    u.fake.file[1].letter = 'c';
    T_EQ(letter_of(&u, "/1"), 'c');
    T_ERR(read_letter(u.owner, "/none", &c), -ENOENT);
    /* A reported change is seen at once, not after the interval. */
    u.fake.file[1].letter = 'd';
    vv_owner_invalidate(u.owner, "/1");
    T_EQ(letter_of(&u, "/1"), 'd');
    end(&u);
}

/* A stat fetches nothing, and agrees with the file that is handed out. */
static void stats_of_files(void)
{
    struct vv_shared_stat st;
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_CHECK(st.gen.size == 4500 && st.mode == 0100644 && st.uid == 1);
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_EQ(atomic_load(&u.fake.looks), 1);
    T_EQ(stats(&u).fetches, 0);
    T_EQ(letter_of(&u, "/1"), 'a');
    u.fake.file[1].letter = 'b';
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_EQ(st.gen.mtime_ns, 'a');
    now += 5 * SECOND;
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_EQ(st.gen.mtime_ns, 'b');
    T_EQ(letter_of(&u, "/1"), 'b');
    u.fake.file[1].letter = 0;
    now += 5 * SECOND;
    T_ERR(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st), -ENOENT);
    T_EQ(ds_stats(u.cache).files, 0);
    end(&u);
}

/* Without waiting: only files that are here, verified, and checked recently enough. A check by another node counts
 * for as long as one made here, unless the file was changed since. */
static void now_or_never(void)
{
    struct vv_shared_stat st;
    uint64_t age;
    struct setup u;
    int fd;

    begin(&u, BIG, 5 * SECOND);
    T_ERR(vv_owner_get_now(u.owner, "/1", &fd, &st, &age), -EAGAIN);
    T_EQ(letter_of(&u, "/1"), 'a');
    now += 2 * SECOND;
    T_OK(vv_owner_get_now(u.owner, "/1", &fd, &st, &age));
    close(fd);
    T_EQ(age, 2 * SECOND);
    T_OK(vv_owner_recall(u.owner, "/1", &st, &age));
    T_EQ(age, 2 * SECOND);
    now += 3 * SECOND;
    T_ERR(vv_owner_get_now(u.owner, "/1", &fd, &st, &age), -EAGAIN);
    T_CHECK(vv_owner_heard(u.owner, "/1", 0, &st, SECOND));
    T_OK(vv_owner_get_now(u.owner, "/1", &fd, &st, &age));
    close(fd);
    T_EQ(age, SECOND);
    T_CHECK(vv_owner_heard(u.owner, "/1", 0, &st, 3 * SECOND)); /* older than the record */
    T_OK(vv_owner_recall(u.owner, "/1", &st, &age));
    T_EQ(age, SECOND);
    vv_owner_invalidate(u.owner, "/1");
    T_ERR(vv_owner_get_now(u.owner, "/1", &fd, &st, &age), -EAGAIN);
    T_CHECK(!vv_owner_heard(u.owner, "/1", 1, &st, SECOND));
    T_ERR(vv_owner_recall(u.owner, "/1", &st, &age), -ENOENT);
    T_EQ(atomic_load(&u.fake.looks), 0);
    end(&u);
}

/* A report that was requested before a file was changed does not count, however young it is. */
static void late_news(void)
{
    struct vv_shared_stat st = {.gen = {10, 1, 2, 3}}, other = {.gen = {10, 1, 3, 3}};
    uint64_t age, changes;
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    changes = vv_owner_changes(u.owner, "/1");
    vv_owner_invalidate(u.owner, "/1");
    now += SECOND;
    T_CHECK(!vv_owner_heard(u.owner, "/1", changes, &st, 0));
    T_ERR(vv_owner_recall(u.owner, "/1", &st, &age), -ENOENT);
    /* A report that was requested after the change: one counts, one is too old. */
    changes = vv_owner_changes(u.owner, "/1");
    T_CHECK(!vv_owner_heard(u.owner, "/1", changes, &st, 2 * SECOND));
    T_CHECK(!vv_owner_heard(u.owner, "/1", changes, &st, VV_OWNER_TOO_OLD));
    T_CHECK(vv_owner_heard(u.owner, "/1", changes, &st, SECOND / 2));
    T_OK(vv_owner_recall(u.owner, "/1", &st, &age));
    T_EQ(age, SECOND / 2);
    /* Another generation, from before. */
    T_CHECK(!vv_owner_heard(u.owner, "/1", changes, &other, SECOND * 3 / 4));
    T_CHECK(vv_owner_heard(u.owner, "/1", changes, &other, SECOND / 4));
    /* A report from before the clock began. */
    T_CHECK(vv_owner_heard(u.owner, "/2", 0, &st, now + SECOND));
    T_OK(vv_owner_recall(u.owner, "/2", &st, &age));
    T_EQ(age, now + SECOND);
    T_ERR(vv_owner_stat_now(u.owner, "/2", &st, NULL), -EAGAIN);
    T_CHECK(vv_owner_heard(u.owner, "/2", 0, &other, now - SECOND));
    end(&u);
}

/* A file that changes while it is read is read again, and never mixed. */
static void never_mixed(void)
{
    struct setup u;
    char c;

    for (int at = 0; at < 6; at++) {
        begin(&u, BIG, 5 * SECOND);
        u.fake.changes = 1;
        u.fake.change_at = at;
        T_EQ(letter_of(&u, "/1"), at < 5 ? 'b' : 'a'); /* 5 reads of 1000 */
        end(&u);
    }
    begin(&u, BIG, 5 * SECOND);
    u.fake.changes = 100;
    T_ERR(read_letter(u.owner, "/1", &c), -EAGAIN);
    T_EQ(ds_stats(u.cache).used, 0);
    u.fake.changes = 0;
    T_OK(read_letter(u.owner, "/1", &c));
    end(&u);
}

/* A file that was just changed may change again without a sign. It is not read before the tick is over, of ten
 * milliseconds, or of a second where times have no fractions. */
static void just_changed(void)
{
    uint64_t at, tick;
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    for (int whole = 0; whole < 2; whole++) {
        tick = whole ? SECOND : SECOND / 100;
        at = wall_ns();
        at = whole ? at - at % SECOND : at | 1;
        u.fake.ctime_ns = at;
        now += 6 * SECOND;
        T_EQ(letter_of(&u, "/1"), 'a');
        T_CHECK(u.fake.read_at_ns >= at + tick);
    }
    T_EQ(stats(&u).fetches, 2);
    /* A time in the future, by another clock, is not waited for. */
    u.fake.ctime_ns = wall_ns() + 3600 * SECOND;
    now += 6 * SECOND;
    T_EQ(letter_of(&u, "/1"), 'a');
    T_CHECK(u.fake.read_at_ns < u.fake.ctime_ns);
    end(&u);
}

/* The file is invalidated during a check: the result may be outdated, and the next request checks again. */
static void overtaken(void)
{
    struct vv_shared_stat st;
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    T_EQ(letter_of(&u, "/1"), 'a');
    now += 6 * SECOND;
    u.fake.overtake = u.owner;
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_EQ(st.gen.mtime_ns, 'a'); /* current when the check began */
    T_ERR(vv_owner_stat_now(u.owner, "/1", &st, NULL), -EAGAIN);
    T_OK(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st));
    T_EQ(st.gen.mtime_ns, 'b');
    T_EQ(letter_of(&u, "/1"), 'b');
    end(&u);
}

/* A write sets the time when it begins, and goes on changing bytes. A read during the write is not kept. A request
 * waits for its end only if that is soon. */
static void slowly_written(void)
{
    uint64_t reads;
    struct setup u;
    char c = 0;

    begin(&u, BIG, 5 * SECOND);
    /* Reading takes five times 15 ms at least. */
    u.fake.pause_ns = 15 * VV_NS_PER_MS;
    for (int i = 0; i < 3; i++) {
        int rc;

        u.fake.file[1].letter++;
        u.fake.write_ns = (uint64_t)(100 + 100 * i) * VV_NS_PER_MS;
        u.fake.ctime_ns = wall_ns() | 1;
        now += 6 * SECOND;
        while ((rc = read_letter(u.owner, "/1", &c)) == -EAGAIN) /* on a busy machine */
            usleep(1000);
        T_OK(rc);
        T_EQ(c, 'b' + i);
    }
    T_EQ(stats(&u).fetches, 3);
    /* It would take too long: -EAGAIN. The owner does not read it again before it is old enough. */
    u.fake.pause_ns = 150 * VV_NS_PER_MS;
    u.fake.file[1].letter++;
    u.fake.write_ns = 2 * SECOND;
    u.fake.ctime_ns = wall_ns() | 1;
    now += 6 * SECOND;
    T_ERR(read_letter(u.owner, "/1", &c), -EAGAIN);
    reads = (uint64_t)atomic_load(&u.fake.reads);
    T_ERR(read_letter(u.owner, "/1", &c), -EAGAIN);
    T_EQ(atomic_load(&u.fake.reads), reads);
    T_EQ(stats(&u).fetches, 3);
    /* Another change, long ago: fetched at once. */
    u.fake.write_ns = 0;
    u.fake.ctime_ns = 0;
    now += 6 * SECOND;
    T_EQ(letter_of(&u, "/1"), 'e');
    end(&u);
}

/* Files of an object store: there are no writes under way, however young they are; requests wait for a large one; and
 * the age of a listing counts. */
static void of_a_store(void)
{
    struct vv_owner_stats stats;
    struct vv_owner *o;
    struct vv_owner_opts opts = {.revalidate_ns = SECOND, .now_ns = fake_now, .wait_max = 1000};
    struct setup u;
    int fd;

    begin(&u, BIG, SECOND);
    opts.cache = u.cache;
    opts.shared = &u.fake.ops;
    T_OK(vv_owner_new(&opts, &o));
    u.fake.ctime_ns = wall_ns();
    T_ERR(vv_owner_get(o, "/1", UINT64_MAX, &fd, NULL), -EINPROGRESS);
    u.fake.sole = true;
    T_OK(vv_owner_get(o, "/1", UINT64_MAX, &fd, NULL));
    close(fd);
    T_CHECK(u.fake.read_at_ns - u.fake.ctime_ns < SECOND);
    vv_owner_stats(o, &stats);
    T_EQ(stats.fetches, 1);
    T_EQ(stats.coming + stats.coming_bytes + stats.coming_done, 0);
    u.fake.age_ns = SECOND / 2;
    now += SECOND;
    T_OK(vv_owner_get(o, "/1", UINT64_MAX, &fd, NULL));
    close(fd);
    T_EQ(u.fake.looks, 1);
    now += SECOND / 2 - 1;
    T_OK(vv_owner_get(o, "/1", UINT64_MAX, &fd, NULL));
    close(fd);
    T_EQ(u.fake.looks, 1);
    now += 1;
    T_OK(vv_owner_get(o, "/1", UINT64_MAX, &fd, NULL));
    close(fd);
    T_EQ(u.fake.looks, 2);
    vv_owner_free(o);
    end(&u);
}

static void errors(void)
{
    struct setup u;
    char c;

    begin(&u, 8192, 5 * SECOND);
    u.fake.fail = -EIO;
    T_ERR(read_letter(u.owner, "/1", &c), -EIO);
    u.fake.fail = 0;
    T_EQ(ds_stats(u.cache).used, 0);
    T_EQ(letter_of(&u, "/1"), 'a');
    /* A file that cannot be kept is not read either. */
    u.fake.file[2].size = 8193;
    T_ERR(read_letter(u.owner, "/2", &c), -EFBIG);
    T_EQ(stats(&u).passed, 1);
    T_EQ(stats(&u).fetches, 1);
    end(&u);
}

/* A copy that is damaged on disk, or evicted, is fetched again, without an error for the caller. */
static void lost_copies(void)
{
    struct setup u;
    const char *folder = t_tmpdir();
    struct vv_owner_opts opts;

    begin(&u, BIG, 5 * SECOND);
    vv_owner_free(u.owner);
    vv_dataset_close(u.cache);
    for (int life = 0; life < 3; life++) {
        u.cache = ds_open(folder, BIG, NULL);
        opts = (struct vv_owner_opts){.cache = u.cache,
                                      .shared = &u.fake.ops,
                                      .revalidate_ns = 5 * SECOND,
                                      .now_ns = fake_now};
        T_OK(vv_owner_new(&opts, &u.owner));
        T_EQ(letter_of(&u, "/1"), 'a');
        T_EQ(stats(&u).fetches, life != 1);
        T_EQ(stats(&u).looks, life == 1); /* after a restart the generation may be another one */
        T_OK(vv_dataset_drop(u.cache, "/1"));
        T_EQ(letter_of(&u, "/1"), 'a');
        T_EQ(stats(&u).fetches, 1 + (life != 1));
        if (life == 2)
            break;
        vv_owner_free(u.owner);
        vv_dataset_close(u.cache);
        if (life == 1)
            ds_flip(ds_file_of(folder, 4500), 77);
    }
    end(&u);
}

static void ahead(void)
{
    struct setup u;

    begin(&u, 2 * 8192, 5 * SECOND);
    T_OK(vv_owner_bring(u.owner, "/1", 5));
    T_OK(vv_owner_bring(u.owner, "/1", 5));
    T_EQ(letter_of(&u, "/1"), 'a');
    T_EQ(stats(&u).fetches, 1);
    T_ERR(vv_owner_bring(u.owner, "/2", 6),
          -ENOSPC); /* 95% is its limit, and /1 is wanted before it */
    T_ERR(vv_owner_bring(u.owner, "/none", 6), -ENOENT);
    T_OK(vv_owner_bring(u.owner, "/3", 4));
    T_EQ(ds_stats(u.cache).files, 1);
    end(&u);
}

struct reader {
    struct setup *u;
    uint64_t deadline_ns;
    pthread_t thread;
    int rc;
};

static void *read_one(void *arg)
{
    struct reader *r = arg;
    int fd;

    r->rc = vv_owner_get(r->u->owner, "/1", r->deadline_ns, &fd, NULL);
    if (r->rc == 0)
        close(fd);
    return NULL;
}

/* Many requests while one thread fetches the file: it is read once, and requests with `now` do not wait. */
static void single_flight(void)
{
    pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
    struct reader readers[8], hasty = {.deadline_ns = 1};
    struct setup u;

    begin(&u, BIG, 5 * SECOND);
    u.fake.hold = &hold;
    pthread_mutex_lock(&hold);
    for (size_t i = 0; i < 8; i++) {
        readers[i] = (struct reader){.u = &u, .deadline_ns = VV_NEVER_NS};
        T_EQ(pthread_create(&readers[i].thread, NULL, read_one, &readers[i]), 0);
        while (i == 0 && atomic_load(&u.fake.waiting) == 0)
            usleep(100);
    }
    while (stats(&u).waits < 7)
        usleep(100);
    hasty.u = &u;
    read_one(&hasty);
    T_ERR(hasty.rc, -ETIMEDOUT);
    T_OK(vv_owner_bring(u.owner, "/1", 3)); /* another thread does already */
    pthread_mutex_unlock(&hold);
    for (size_t i = 0; i < 8; i++) {
        pthread_join(readers[i].thread, NULL);
        T_OK(readers[i].rc);
    }
    T_EQ(atomic_load(&u.fake.opens), 1);
    T_EQ(atomic_load(&u.fake.reads), 5);
    T_EQ(stats(&u).fetches, 1);
    end(&u);
    pthread_mutex_destroy(&hold);
}

/* The real file system: files below the roots, wherever links lead. */
static void roots(void)
{
    const char *dir = t_tmpdir();
    char root[256], path[512], out[512], link[512];
    const char *list[1] = {root}, *relative[1] = {"data"};
    struct vv_shared *s;
    struct vv_shared_stat found, again;
    struct stat st;
    char buf[8];
    intptr_t file;

    snprintf(root, sizeof(root), "%s/data", dir);
    snprintf(path, sizeof(path), "%s/data/file", dir);
    snprintf(out, sizeof(out), "%s/data2", dir); /* begins like the root */
    snprintf(link, sizeof(link), "%s/data/link", dir);
    T_ERR(vv_shared_new(list, 1, &s), -ENOENT);
    T_EQ(mkdir(root, 0700), 0);
    T_ERR(vv_shared_new(list, 0, &s), -EINVAL);
    T_ERR(vv_shared_new(relative, 1, &s), -EINVAL);
    T_OK(vv_shared_new(list, 1, &s));
    T_ERR(s->look(s, path, &found), -ENOENT);
    file = open(path, O_CREAT | O_WRONLY, 0600);
    T_EQ(write(file, "12345", 5), 5);
    close(file);
    close(open(out, O_CREAT | O_WRONLY, 0600));
    T_OK(s->look(s, path, &found));
    T_EQ(stat(path, &st), 0);
    T_CHECK(found.gen.size == 5 && found.gen.inode == st.st_ino &&
            found.gen.mtime_ns % SECOND == (uint64_t)st.st_mtim.tv_nsec);
    T_CHECK(found.mode == st.st_mode && found.uid == st.st_uid && found.gid == st.st_gid);
    T_CHECK(found.dev == st.st_dev && found.nlink == st.st_nlink &&
            found.blksize == (uint32_t)st.st_blksize && found.blocks == (uint64_t)st.st_blocks &&
            found.gen.ctime_ns ==
                (uint64_t)st.st_ctim.tv_sec * SECOND + (uint64_t)st.st_ctim.tv_nsec);
    T_OK(s->open(s, path, &file, &again));
    T_CHECK(memcmp(&found.gen, &again.gen, sizeof(found.gen)) == 0 && again.direct);
    T_EQ(s->read(s, file, buf, 8, 1), 4);
    T_CHECK(memcmp(buf, "2345", 4) == 0);
    T_EQ(s->read(s, file, buf, 8, 5), 0);
    T_OK(s->look_again(s, file, &again));
    s->close(s, file);
    T_ERR(s->look(s, out, &found), -EACCES);
    T_ERR(s->look(s, root, &found), -EACCES);
    T_ERR(s->look(s, "data/file", &found), -EINVAL);
    T_EQ(symlink(out, link), 0);
    T_ERR(s->open(s, link, &file, &found), -EACCES);
    T_EQ(unlink(link), 0);
    T_EQ(symlink("file", link), 0);
    T_OK(s->look(s, link, &found));
    T_CHECK(!found.direct && found.gen.inode == again.gen.inode);
    T_EQ(unlink(link), 0);
    /* A FIFO without a writer: opening it for reading would never return. */
    T_EQ(mkfifo(link, 0600), 0);
    T_ERR(s->open(s, link, &file, &found), -EACCES);
    snprintf(link, sizeof(link), "%s/data/../data2", dir);
    T_ERR(s->open(s, link, &file, &found), -EACCES);
    vv_shared_free(s);
    vv_shared_free(NULL);
}

/* From the real file system into the cache, and out again. */
static void real_files(void)
{
    const char *root = t_tmpdir();
    struct vv_owner_opts opts = {.revalidate_ns = 1};
    struct vv_shared *shared;
    struct vv_owner *o;
    char path[300], have[16] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/file", root);
    opts.cache = ds_open(t_tmpdir(), BIG, NULL);
    T_OK(vv_shared_new(&root, 1, &shared));
    opts.shared = shared;
    T_OK(vv_owner_new(&opts, &o));
    for (unsigned i = 0; i < 3; i++) {
        FILE *f = fopen(path, "w");

        fprintf(f, "%.*s", (int)i + 3, "abcdefgh");
        fclose(f);
        T_OK(vv_owner_get(o, path, VV_NEVER_NS, &fd, NULL));
        T_EQ(read(fd, have, sizeof(have)), i + 3);
        close(fd);
    }
    T_EQ(unlink(path), 0);
    T_ERR(vv_owner_get(o, path, VV_NEVER_NS, &fd, NULL), -ENOENT);
    vv_owner_free(o);
    vv_owner_free(NULL);
    vv_shared_free(shared);
    vv_dataset_close(opts.cache);
}

static void count_gone(void *user, const char *path)
{
    T_CHECK(path[0] == '/');
    ++*(int *)user;
}

static void change(struct setup *u, const char *path, uint64_t inode, bool tree, bool begins,
                   int names)
{
    struct vv_owner_change c = {path, inode, tree, begins};
    int gone = 0;

    vv_owner_change(u->owner, &c, count_gone, &gone);
    T_EQ(gone, names);
}

/* While a file is being changed it is not handed out, and checks of it do not count. */
static void being_changed(void)
{
    struct vv_shared_stat st;
    struct setup u;
    char c;
    int fd;

    begin(&u, BIG, 3600 * SECOND);
    T_EQ(letter_of(&u, "/1"), 'a');
    change(&u, "/1", 0, false, true, 1);
    T_ERR(read_letter(u.owner, "/1", &c), -ETXTBSY);
    T_ERR(vv_owner_stat(u.owner, "/1", VV_NEVER_NS, &st), -ETXTBSY);
    T_ERR(vv_owner_get_now(u.owner, "/1", &fd, &st, NULL), -EAGAIN);
    T_CHECK(!vv_owner_heard(u.owner, "/1", vv_owner_changes(u.owner, "/1"), &st, 0));
    T_EQ(letter_of(&u, "/2"), 'a');
    /* Two changes at once. */
    change(&u, "/1", 0, false, true, 1);
    change(&u, "/1", 0, false, false, 1);
    T_ERR(read_letter(u.owner, "/1", &c), -ETXTBSY);
    u.fake.file[1].letter = 'b';
    change(&u, "/1", 0, false, false, 1);
    T_EQ(letter_of(&u, "/1"), 'b');
    /* The end is not reported; another thread fetches it meanwhile. */
    change(&u, "/1", 0, false, true, 1);
    T_OK(vv_owner_bring(u.owner, "/1", VV_DATASET_UNKNOWN));
    now += VV_OWNER_HOLD_NS - 1;
    T_ERR(read_letter(u.owner, "/1", &c), -ETXTBSY);
    u.fake.file[1].letter = 'c';
    now += 1;
    T_EQ(letter_of(&u, "/1"), 'c');
    end(&u);
}

/* A file is changed under one name: its other names change too; so do files below a changed folder. */
static void other_names(void)
{
    struct setup u;
    char c;

    begin(&u, BIG, 3600 * SECOND);
    T_EQ(letter_of(&u, "/many/1"), 'a');
    T_EQ(letter_of(&u, "/many/2"), 'a');
    T_EQ(letter_of(&u, "/many/sub/3"), 'a');
    T_EQ(letter_of(&u, "/1"), 'a');
    change(&u, "/many/link/1", 1, false, true, 4);
    T_ERR(read_letter(u.owner, "/many/2", &c), -ETXTBSY);
    T_EQ(letter_of(&u, "/1"), 'a');
    u.fake.file[0].letter = 'b';
    u.fake.file[1].letter = 'b';
    change(&u, "/many/link/1", 1, false, false, 4);
    T_EQ(letter_of(&u, "/many/1"), 'b');
    T_EQ(letter_of(&u, "/many/sub/3"), 'b');
    T_EQ(letter_of(&u, "/1"), 'a');
    u.fake.file[0].letter = 'c';
    change(&u, "/many/sub", 0, true, true, 2);
    change(&u, "/many/sub", 0, true, false, 2);
    T_EQ(letter_of(&u, "/many/1"), 'b');
    T_EQ(letter_of(&u, "/many/sub/3"), 'c');
    end(&u);
}

/* Requests the stat of `nr` files, once each. */
static void ask_about(struct setup *u, const char *folder, int first, int nr)
{
    struct vv_shared_stat st;
    char path[64];

    for (int i = first; i < first + nr; i++) {
        snprintf(path, sizeof(path), "/%s/%d", folder, i);
        T_EQ(vv_owner_stat(u->owner, path, VV_NEVER_NS, &st), strcmp(folder, "many") ? -ENOENT : 0);
    }
}

/* However many paths are requested, the number of records is limited; and no record that still counts is
 * dropped. */
static void paths_without_end(void)
{
    enum { LIMIT = RECORDS, EACH = LIMIT / 40, ROUNDS = 200 };
    struct setup u;
    char path[64];

    begin(&u, BIG, 5 * SECOND);
    ask_about(&u, "none", 0, LIMIT);
    T_EQ(stats(&u).records, 0);
    /* Files that were just checked are not checked again, however many. */
    ask_about(&u, "many", 0, 2 * LIMIT);
    T_EQ(stats(&u).records, 2 * LIMIT);
    ask_about(&u, "many", 0, 2 * LIMIT);
    T_EQ(stats(&u).looks, LIMIT + 2 * LIMIT);
    for (int i = 0; i < ROUNDS; i++) {
        now += 6 * SECOND;
        ask_about(&u, "many", i * EACH, EACH);
    }
    T_CHECK(stats(&u).records < 2 * LIMIT);
    /* Files that were changed, and are gone. */
    T_EQ(letter_of(&u, "/1"), 'a');
    for (int i = 0; i < ROUNDS * EACH; i++) {
        now += i % EACH ? 0 : 6 * SECOND;
        snprintf(path, sizeof(path), "/many/written/%d", i);
        vv_owner_invalidate(u.owner, path);
    }
    T_CHECK(stats(&u).records < 2 * LIMIT);
    /* A report from before the last change of a file does not count, for as long as one may arrive. */
    T_EQ(vv_owner_stat_now(u.owner, path, &(struct vv_shared_stat){0}, NULL), -EAGAIN);
    T_CHECK(!vv_owner_heard(u.owner, path, vv_owner_changes(u.owner, path),
                            &(struct vv_shared_stat){0}, SECOND));
    T_EQ(vv_owner_stat_now(u.owner, path, &(struct vv_shared_stat){0}, NULL), -EAGAIN);
    end(&u);

    /* Files that never change: a file that is read again and again is checked once. */
    begin(&u, BIG, 0);
    for (int i = 0; i < ROUNDS; i++) {
        ask_about(&u, "many", i * EACH, EACH);
        T_EQ(letter_of(&u, "/1"), 'a');
    }
    T_CHECK(stats(&u).records < 2 * LIMIT);
    T_EQ(stats(&u).looks, ROUNDS * EACH);
    T_EQ(stats(&u).fetches, 1);
    end(&u);
}

int main(void)
{
    T_RUN(once);
    T_RUN(changes);
    T_RUN(stats_of_files);
    T_RUN(now_or_never);
    T_RUN(late_news);
    T_RUN(never_mixed);
    T_RUN(just_changed);
    T_RUN(overtaken);
    T_RUN(slowly_written);
    T_RUN(of_a_store);
    T_RUN(errors);
    T_RUN(lost_copies);
    T_RUN(ahead);
    T_RUN(single_flight);
    T_RUN(roots);
    T_RUN(real_files);
    T_RUN(being_changed);
    T_RUN(other_names);
    T_RUN(paths_without_end);
    return t_done();
}
