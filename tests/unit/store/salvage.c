/* SPDX-License-Identifier: Apache-2.0 */
/* Copying chunks of a file that could not be committed into its replacement, only if they are as
 * written. Writes through the page cache, which are reported only when they can be read back. And
 * files that are committed without a sync. */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "store_test.h"

#define SIZE (4 * ST_PAGE + 100)

enum { VERSION = 1, OLD = 2, NEW = 3 };

static struct st_tier tier;
static struct vv_files *files;
static struct fault_os fault;
static const char *dir;

static void set_up(bool unsynced)
{
    fault_os_init(&fault);
    tier.opts = st_opts;
    tier.opts.os = &fault.os;
    tier.opts.max_open = 1;
    tier.opts.unsynced = unsynced;
    tier.opts.written_stays = true;
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

/* Writes an object; its commit fails. */
static void fail_commit(struct st_object *o)
{
    st_object_init(o, files, VERSION, OLD, SIZE, ST_PAGE);
    T_OK(st_do(tier.writer, o, VV_STORE_WRITE));
    fault.mode = FAULT_FOREVER;
    fault.calls = 1u << FAULT_AIO_FSYNC | 1u << FAULT_RENAME;
    fault.at = 1;
    fault.err = EIO;
    T_ERR(st_do(tier.writer, o, VV_STORE_COMMIT), -EIO);
    fault.mode = FAULT_NONE;
    o->key.generation = NEW;
}

static int salvage(struct st_object *o, uint32_t chunk0, uint32_t nchunks)
{
    struct vv_store_io io = st_io(o, VV_STORE_SALVAGE, chunk0, nchunks);
    io.mem = NULL;
    io.from_generation = OLD;
    return st_run(tier.writer, &io);
}

static void remove_old(struct st_object *o)
{
    struct vv_store_io io = st_io(o, VV_STORE_REMOVE, 0, 0);
    io.key.generation = OLD;
    T_OK(st_run(tier.writer, &io));
}

/* Alternately from memory and from the old file, including the end of the object. */
static void by_turns(void)
{
    for (unsigned turn = 0; turn < 2; turn++) {
        struct st_object o;
        set_up(false);
        fail_commit(&o);
        for (uint32_t c = 0; c < o.nchunks; c++) {
            struct vv_store_io io = st_io(&o, VV_STORE_WRITE, c, 1);
            T_OK(c % 2 == turn ? salvage(&o, c, 1) : st_run(tier.writer, &io));
        }
        T_OK(st_do(tier.writer, &o, VV_STORE_COMMIT));
        remove_old(&o);
        T_OK(st_check_version(tier.reader, files, VERSION, NEW, SIZE, ST_PAGE));
        st_object_fini(&o);
        tear_down();
    }
}

static void all_of_it(void)
{
    struct st_object o;
    set_up(false);
    fail_commit(&o);
    T_OK(salvage(&o, 0, 2));
    T_OK(salvage(&o, 2, o.nchunks - 2));
    T_ERR(salvage(&o, 0, 1), -EEXIST);
    st_object_fini(&o);
    tear_down();
}

static void other_bytes_are_refused(void)
{
    for (uint32_t c = 0; c < 5; c++) {
        struct st_object o;
        unsigned char byte;
        set_up(false);
        fail_commit(&o);
        int fd = open(st_path(dir, "h/r0.v1.g2.tmp"), O_RDWR);
        T_CHECK(fd >= 0);
        off_t at = 4096 + (off_t)c * ST_PAGE + 50;
        T_EQ(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        T_EQ(pwrite(fd, &byte, 1, at), 1);
        T_EQ(fsync(fd), 0);
        T_EQ(close(fd), 0);
        for (uint32_t i = 0; i < o.nchunks; i++)
            if (i == c)
                T_ERR(salvage(&o, i, 1), -EBADMSG);
        st_object_fini(&o);
        tear_down();
    }
}

static void cut_short(void)
{
    struct st_object o;
    set_up(false);
    fail_commit(&o);
    T_EQ(truncate(st_path(dir, "h/r0.v1.g2.tmp"), 4096 + 2 * ST_PAGE), 0);
    T_OK(salvage(&o, 0, 1));
    T_ERR(salvage(&o, 3, 1), -EBADMSG);
    st_object_fini(&o);
    tear_down();
}

static void write_fails(void)
{
    struct st_object o;
    set_up(false);
    fail_commit(&o);
    fault.mode = FAULT_FOREVER;
    fault.calls = 1u << FAULT_AIO_WRITE;
    atomic_store(&fault.count, 0);
    T_ERR(salvage(&o, 0, 1), -EIO);
    fault.mode = FAULT_NONE;
    T_ERR(salvage(&o, 1, 1), -EIO); /* the new file is now spoiled */
    remove_old(&o);
    st_object_fini(&o);
    tear_down();
}

/* ---- reported writes can be read back ---- */

static bool buffered(void)
{
    return st_opts.mode == VV_STORE_BUFFERED;
}

/* Through the page cache a write is reported when its data has been synced. */
static void data_is_synced(void)
{
    struct st_object o;
    set_up(false);
    st_object_init(&o, files, VERSION, OLD, SIZE, ST_PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_WRITE));
    T_EQ(atomic_load(&fault.per_call[FAULT_AIO_RANGE]), buffered());
    T_OK(st_do(tier.writer, &o, VV_STORE_COMMIT));
    st_object_fini(&o);
    tear_down();
}

static void data_sync_fails(void)
{
    struct st_object o;
    set_up(false);
    st_object_init(&o, files, VERSION, OLD, SIZE, ST_PAGE);
    fault.mode = FAULT_ONCE;
    fault.calls = 1u << FAULT_AIO_RANGE;
    fault.at = 1;
    atomic_store(&fault.count, 0);
    fault.err = EIO;
    T_EQ(st_do(tier.writer, &o, VV_STORE_WRITE), buffered() ? -EIO : 0);
    T_EQ(st_do(tier.writer, &o, VV_STORE_COMMIT), buffered() ? -EIO : 0);
    st_object_fini(&o);
    tear_down();
}

/* The first data sync waits for the gate and fails; others succeed. Synchronization: atomic. */
static atomic_bool gate_open;
static atomic_int writes, syncs;

static int64_t gated_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                         size_t bytes)
{
    (void)os;
    (void)fd;
    (void)offset;
    (void)bytes;
    if (op == VV_OS_AIO_WRITE)
        atomic_fetch_add(&writes, 1);
    if (op != VV_OS_AIO_RANGE || atomic_fetch_add(&syncs, 1) > 0)
        return 0;
    while (!gate_open)
        usleep(1000);
    return -EIO;
}

/* The kernel reports an error once: a concurrent sync that succeeds proves nothing. */
static void an_error_is_reported_once(void)
{
    struct st_object o;
    struct vv_store_io io[2], *done;
    if (!buffered() || st_opts.backend != VV_AIO_THREADS) /* workers of threads may be held */
        return;
    gate_open = false;
    writes = syncs = 0;
    set_up(false);
    fault.os.aio = gated_aio;
    st_object_init(&o, files, VERSION, OLD, SIZE, ST_PAGE);
    for (uint32_t i = 0; i < 2; i++) {
        io[i] = st_io(&o, VV_STORE_WRITE, i, 1);
        T_OK(tier.writer->ops->submit(tier.writer, &io[i]));
        /* Gives a wrong report of the second write time to appear. */
        for (int looks = 0; looks < 20 || (int)i + 1 > writes || syncs == 0; looks++)
            T_CHECK(tier.writer->ops->poll(tier.writer, &done, 1, 1000000) <= 0);
    }
    gate_open = true;
    for (int left = 2; left > 0;) {
        int n = tier.writer->ops->poll(tier.writer, &done, 1, -1);
        T_CHECK(n >= 0);
        if (n > 0)
            T_ERR(done->status, -EIO);
        left -= n;
    }
    st_object_fini(&o);
    tear_down();
}

/* ---- without a sync ---- */

static void nothing_is_synced(void)
{
    set_up(true);
    T_OK(st_put_version(tier.writer, files, 1, 1, SIZE, ST_PAGE));
    T_OK(st_put_version(tier.writer, files, 2, 2, SIZE, ST_PAGE));
    struct st_object o;
    st_object_init(&o, files, 2, 2, SIZE, ST_PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    st_object_fini(&o);
    T_EQ(atomic_load(&fault.per_call[FAULT_AIO_FSYNC]), 0);
    T_EQ(atomic_load(&fault.per_call[FAULT_AIO_RANGE]), 0);
    T_OK(st_check_version(tier.reader, files, 1, 1, SIZE, ST_PAGE));
    tear_down();
}

static void cases(void)
{
    T_RUN(by_turns);
    T_RUN(all_of_it);
    T_RUN(other_bytes_are_refused);
    T_RUN(cut_short);
    T_RUN(write_fails);
    T_RUN(data_is_synced);
    T_RUN(data_sync_fails);
    T_RUN(an_error_is_reported_once);
    T_RUN(nothing_is_synced);
}

int main(void)
{
    st_each_mode(cases);
    return t_done();
}
