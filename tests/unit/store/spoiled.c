/* SPDX-License-Identifier: Apache-2.0 */
/* An object that could not be written or committed. Whatever failed, later writes and commits of it are refused with
 * the first error and do not reach the disk; written data can be read; the version can be written again under a new
 * generation before or after the old one is removed; and only the new one exists afterwards. */
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "store_test.h"

#define SIZE (4 * ST_PAGE + 100)

static struct st_tier tier;
static struct vv_files *files;
static struct fault_os fault;
static const char *dir;

static void set_up(void)
{
    fault_os_init(&fault);
    tier.opts = st_opts;
    tier.opts.os = &fault.os;
    tier.opts.max_open = 1;
    dir = t_tmpdir();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
}

static void tear_down(void)
{
    vv_files_close(files);
    st_tier_close(&tier);
    T_EQ(atomic_load(&fault.descriptors), 0);
}

static void fail_at(enum fault_call call, long at)
{
    fault.mode = FAULT_ONCE;
    fault.calls = 1u << call;
    fault.at = at;
    fault.err = EDQUOT; /* no other code returns it */
    atomic_store(&fault.count, 0);
}

struct seen {
    int n;
    uint64_t generation;
};

static int see(void *user, const struct vv_files_entry *e)
{
    struct seen *s = user;
    if (e->version == 1) {
        s->n++;
        s->generation = e->generation;
    }
    return 0;
}

static struct seen look_again(void)
{
    struct seen s = {0};
    vv_files_close(files);
    files = st_files_open(&tier, "h");
    T_OK(vv_files_list(files, see, &s));
    return s;
}

static long to_disk(void)
{
    return atomic_load(&fault.per_call[FAULT_AIO_WRITE]) +
           atomic_load(&fault.per_call[FAULT_AIO_FSYNC]) +
           atomic_load(&fault.per_call[FAULT_RENAME]) +
           atomic_load(&fault.per_call[FAULT_FALLOCATE]);
}

static const struct {
    const char *what;
    enum fault_call call;
    long at;
    bool created, first_chunks, renamed; /* and renamed back, perhaps not durably */
} faults[] = {
    {"create", FAULT_OPENAT, 1, false, false, false},
    {"allocate", FAULT_FALLOCATE, 1, false, false, false},
    {"first write", FAULT_AIO_WRITE, 1, true, false, false},
    {"second write", FAULT_AIO_WRITE, 2, true, true, false},
    {"tail", FAULT_AIO_WRITE, 3, true, true, false},
    {"fsync", FAULT_AIO_FSYNC, 1, true, true, false},
    {"rename", FAULT_RENAME, 1, true, true, false},
    {"folder fsync", FAULT_AIO_FSYNC, 2, true, true, true},
};

/* Two writes and a commit, up to the first error. */
static int put_in_parts(struct st_object *o)
{
    struct vv_store_io io = st_io(o, VV_STORE_WRITE, 0, 2);
    int rc = st_run(tier.writer, &io);
    io = st_io(o, VV_STORE_WRITE, 2, o->nchunks - 2);
    if (rc == 0)
        rc = st_run(tier.writer, &io);
    return rc < 0 ? rc : st_do(tier.writer, o, VV_STORE_COMMIT);
}

static void expect_refused(struct st_object *o)
{
    long before = to_disk();
    for (uint32_t i = 0; i < o->nchunks; i++) {
        struct vv_store_io io = st_io(o, VV_STORE_WRITE, i, 1);
        T_ERR(st_run(tier.writer, &io), -EDQUOT);
    }
    T_ERR(st_do(tier.writer, o, VV_STORE_COMMIT), -EDQUOT);
    T_EQ(to_disk(), before);
}

static void one_fault(unsigned i, bool remove_first)
{
    struct st_object o;
    set_up();
    T_OK(st_put_version(tier.writer, files, 7, 1, SIZE, ST_PAGE));
    st_object_init(&o, files, 1, 2, SIZE, ST_PAGE);
    fail_at(faults[i].call, faults[i].at);
    T_ERR(put_in_parts(&o), -EDQUOT);
    fault.mode = FAULT_NONE;
    expect_refused(&o);
    /* Closing its descriptor to make room does not clear the error. */
    T_OK(st_check_version(tier.reader, files, 7, 1, SIZE, ST_PAGE));
    expect_refused(&o);
    if (faults[i].first_chunks) {
        struct vv_store_io io = st_io(&o, VV_STORE_READ, 0, 2);
        T_OK(st_run(tier.reader, &io));
        T_CHECK(st_object_intact(&o, ST_PAGE));
    }
    struct stat st;
    T_EQ(stat(st_path(dir, "h/r0.v1.g2.tmp"), &st) == 0, faults[i].created);
    T_CHECK(stat(st_path(dir, "h/r0.v1.g2.ckpt"), &st) != 0);
    if (!remove_first)
        T_OK(st_put_version(tier.writer, files, 1, 3, SIZE, ST_PAGE));
    long syncs = atomic_load(&fault.per_call[FAULT_AIO_FSYNC]);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    T_EQ(atomic_load(&fault.per_call[FAULT_AIO_FSYNC]) - syncs, faults[i].renamed ? 1 : 0);
    T_CHECK(stat(st_path(dir, "h/r0.v1.g2.tmp"), &st) != 0);
    T_CHECK(stat(st_path(dir, "h/r0.v1.g2.ckpt"), &st) != 0);
    if (remove_first)
        T_OK(st_put_version(tier.writer, files, 1, 3, SIZE, ST_PAGE));
    T_OK(st_check_version(tier.reader, files, 1, 3, SIZE, ST_PAGE));
    struct seen s = look_again();
    T_EQ(s.n, 1);
    T_EQ(s.generation, 3);
    T_OK(st_check_version(tier.reader, files, 1, 3, SIZE, ST_PAGE));
    st_object_fini(&o);
    tear_down();
}

static void every_fault(void)
{
    for (unsigned i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        t_note("%s", faults[i].what);
        one_fault(i, true);
        one_fault(i, false);
    }
}

/* Both generations exist when the process ends: the new one counts. */
static void closed_without_removal(void)
{
    for (unsigned i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        struct st_object o;
        set_up();
        st_object_init(&o, files, 1, 2, SIZE, ST_PAGE);
        fail_at(faults[i].call, faults[i].at);
        T_ERR(put_in_parts(&o), -EDQUOT);
        fault.mode = FAULT_NONE;
        T_OK(st_put_version(tier.writer, files, 1, 3, SIZE, ST_PAGE));
        struct seen s = look_again();
        T_EQ(s.n, 1);
        T_EQ(s.generation, 3);
        st_object_fini(&o);
        tear_down();
    }
}

/* A failed removal does not drop the object from memory either. */
static void failed_removal(void)
{
    struct st_object o;
    set_up();
    st_object_init(&o, files, 1, 2, SIZE, ST_PAGE);
    fail_at(FAULT_AIO_FSYNC, 1);
    T_ERR(put_in_parts(&o), -EDQUOT);
    fail_at(FAULT_UNLINKAT, 1);
    T_ERR(st_do(tier.writer, &o, VV_STORE_REMOVE), -EDQUOT);
    fault.mode = FAULT_NONE;
    expect_refused(&o);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    T_EQ(look_again().n, 0);
    st_object_fini(&o);
    tear_down();
}

/* A commit fails in its last step, and renaming the file back or deleting it fails too. The version is written again.
 * Removing the new generation also removes the failed file, which otherwise would become the version. */
static void left_behind(void)
{
    struct st_object o;
    struct stat st;
    set_up();
    st_object_init(&o, files, 1, 2, SIZE, ST_PAGE);
    fail_at(FAULT_AIO_FSYNC, 2);
    fault.calls |= 1u << FAULT_RENAME | 1u << FAULT_UNLINKAT;
    fault.mode = FAULT_FOREVER;
    fault.at = 3; /* after the file's sync and the rename */
    T_ERR(put_in_parts(&o), -EDQUOT);
    T_ERR(st_do(tier.writer, &o, VV_STORE_REMOVE), -EDQUOT);
    T_EQ(stat(st_path(dir, "h/r0.v1.g2.ckpt"), &st), 0);
    fault.mode = FAULT_NONE;
    T_OK(st_put_version(tier.writer, files, 1, 3, SIZE, ST_PAGE));
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, 1, 3}};
    fail_at(FAULT_UNLINKAT, 1);
    T_ERR(st_run(tier.writer, &io), -EDQUOT);
    T_EQ(stat(st_path(dir, "h/r0.v1.g3.ckpt"), &st), 0); /* it is removed after generation 2 */
    fault.mode = FAULT_NONE;
    T_OK(st_run(tier.writer, &io));
    T_EQ(look_again().n, 0);
    st_object_fini(&o);
    tear_down();
}

/* The file was deleted and the folder's fsync failed: the repeated removal must sync, although there is no file. */
static void removal_not_synced(void)
{
    set_up();
    T_OK(st_put_version(tier.writer, files, 1, 2, SIZE, ST_PAGE));
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, 1, 2}};
    fail_at(FAULT_AIO_FSYNC, 1);
    T_ERR(st_run(tier.writer, &io), -EDQUOT);
    fault.mode = FAULT_NONE;
    long syncs = atomic_load(&fault.per_call[FAULT_AIO_FSYNC]);
    T_OK(st_run(tier.writer, &io));
    T_EQ(atomic_load(&fault.per_call[FAULT_AIO_FSYNC]) - syncs, 1);
    tear_down();
}

/* A write in flight when another fails is reported with its own result. */
static void others_in_flight(void)
{
    struct st_object o;
    struct vv_store_io io[3], *done;
    int failed = 0;
    set_up();
    st_object_init(&o, files, 1, 2, SIZE, ST_PAGE);
    fail_at(FAULT_AIO_WRITE, 2);
    for (uint32_t i = 0; i < 3; i++) {
        io[i] = st_io(&o, VV_STORE_WRITE, i, 1);
        T_OK(tier.writer->ops->submit(tier.writer, &io[i]));
    }
    for (int left = 3; left > 0; left--) {
        T_EQ(tier.writer->ops->poll(tier.writer, &done, 1, -1), 1);
        T_CHECK(done->status == 0 || done->status == -EDQUOT);
        failed += done->status < 0;
    }
    T_EQ(failed, 1);
    expect_refused(&o);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    st_object_fini(&o);
    tear_down();
}

static void cases(void)
{
    T_RUN(every_fault);
    T_RUN(closed_without_removal);
    T_RUN(failed_removal);
    T_RUN(left_behind);
    T_RUN(removal_not_synced);
    T_RUN(others_in_flight);
}

int main(void)
{
    st_each_mode(cases);
    return t_done();
}
