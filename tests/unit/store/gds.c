/* SPDX-License-Identifier: Apache-2.0 */
/* Stores on device memory: the emulated device, with a stand-in for libcufile. Device pointers are
 * guarded, so that touching one from the host ends the test. */
#include "store/aio/gds.h"

#include "device/host/host.h"
#include "store_test.h"
#include "t_cufile.h"

#define ARENA_PAGES 64u
#define ARENA_BYTES ((size_t)ARENA_PAGES * ST_PAGE)

static struct fake_cufile *fake;
static struct vv_device *device;
static struct vv_gds *gds;
static char *arena; /* device memory */

static void *map(void *arg, void *ptr)
{
    return vv_device_host_map(arg, ptr);
}

static struct vv_device *open_device(void)
{
    struct vv_device_host_opts o;
    struct vv_device *d;
    vv_device_host_opts_init(&o);
    o.guard = true;
    T_OK(vv_device_open_host(&o, &d));
    return d;
}

static void set_up(void)
{
    char err[256] = "";
    t_cufile_reset();
    device = open_device();
    fake->map = map;
    fake->map_arg = device;
    T_OK(vv_gds_open(device, t_cufile_path(), err, sizeof(err), &gds));
    T_OK(vv_device_mem_alloc(device, ARENA_BYTES, (void **)&arena));
    T_OK(vv_gds_memory_add(gds, arena, ARENA_BYTES, err, sizeof(err)));
    st_opts.gds = gds;
}

static void tear_down(void)
{
    vv_gds_memory_remove(gds);
    vv_gds_close(gds);
    t_cufile_check();
    vv_device_mem_free(device, arena);
    vv_device_close(device);
    st_opts.gds = NULL;
}

/* Copies the object to device memory: its pages in the arena, backwards, or in a row. */
static void to_device(const struct st_object *o, bool in_a_row, bool with_bytes, void **ret_mem)
{
    for (uint32_t i = 0; i < o->nchunks; i++) {
        ret_mem[i] = arena + (size_t)(in_a_row ? i : o->nchunks - 1 - i) * ST_PAGE;
        char *bytes = vv_device_host_map(device, ret_mem[i]);
        if (with_bytes)
            memcpy(bytes, o->mem[i], ST_PAGE);
        else
            memset(bytes, 0x5a, ST_PAGE);
    }
}

static bool on_device(const struct st_object *o, void **mem)
{
    for (uint64_t at = 0; at < o->size; at++) {
        const unsigned char *page = vv_device_host_map(device, mem[at / ST_PAGE]);
        if (page[at % ST_PAGE] != st_byte(o->key.version, at))
            return false;
    }
    return true;
}

static struct vv_store_io device_io(struct st_object *o, enum vv_store_op op, void **mem,
                                    uint32_t chunk0, uint32_t nchunks)
{
    struct vv_store_io io = st_io(o, op, chunk0, nchunks);
    io.device = true;
    io.mem = mem + chunk0;
    return io;
}

/* ---- the library ---- */

static int no_kernels_describe_calls;

static void no_kernels(struct vv_device *d, struct vv_device_info *ret_info)
{
    (void)d;
    no_kernels_describe_calls++;
    *ret_info = (struct vv_device_info){.kernels = false};
}

static void opening(void)
{
    char err[256] = "";
    struct vv_gds *g = NULL;
    t_cufile_reset();
    T_OK(vv_gds_find(t_cufile_path(), err, sizeof(err)));
    T_ERR(vv_gds_find("libvarve-no-such-thing.so", err, sizeof(err)), -ENOTSUP);
    T_CHECK(strstr(err, "libvarve-no-such-thing"));
    T_ERR(vv_gds_find("libpthread.so.0", err, sizeof(err)), -ENOTSUP);
    T_CHECK(strstr(err, "cuFile"));

    struct vv_device *d = open_device();
    T_ERR(vv_gds_open(d, "libvarve-no-such-thing.so", err, sizeof(err), &g), -ENOTSUP);
    fake->driver_open_code = 5007;
    T_ERR(vv_gds_open(d, t_cufile_path(), err, sizeof(err), &g), -ENOTSUP);
    T_CHECK(strstr(err, "5007"));
    fake->driver_open_code = 5026; /* the application has opened the driver, and keeps it */
    T_OK(vv_gds_open(d, t_cufile_path(), err, sizeof(err), &g));
    vv_gds_close(g);
    T_EQ(fake->misuse, 0);
    fake->driver_open_code = 0;

    struct vv_device_ops ops = *d->ops;
    struct vv_device plain = {&ops};
    ops.describe = no_kernels;
    T_ERR(vv_gds_open(&plain, t_cufile_path(), err, sizeof(err), &g), -ENOTSUP);
    T_EQ(no_kernels_describe_calls, 1);
    T_CHECK(strstr(err, "kernels"));
    vv_gds_close(NULL);
    vv_device_close(d);
}

static void memory(void)
{
    char err[256] = "";
    struct vv_gds *g = NULL;
    void *ptr;
    t_cufile_reset();
    struct vv_device *d = open_device();
    T_OK(vv_device_mem_alloc(d, ST_PAGE, &ptr));
    T_OK(vv_gds_open(d, t_cufile_path(), err, sizeof(err), &g));
    fake->buf_code = 5036;
    T_ERR(vv_gds_memory_add(g, ptr, ST_PAGE, err, sizeof(err)), -ENOMEM);
    fake->buf_code = 0;
    T_OK(vv_gds_memory_add(g, ptr, ST_PAGE, err, sizeof(err)));
    T_ERR(vv_gds_memory_add(g, ptr, ST_PAGE, err, sizeof(err)), -EBUSY);
    vv_gds_memory_remove(g);
    vv_gds_memory_remove(g);
    vv_gds_close(g);
    T_EQ(fake->misuse, 0);
    T_OK(vv_device_mem_free(d, ptr));
    vv_device_close(d);
}

/* ---- spill ---- */

static struct vv_spill *spill;
static struct vv_store *writer, *reader;

static void spill_open(void)
{
    char err[256] = "";
    T_OK(vv_spill_new(t_tmpdir(), 64 * ST_PAGE, &st_opts, err, sizeof(err), &spill));
    T_OK(vv_spill_store(spill, &writer));
    T_OK(vv_spill_store(spill, &reader));
}

static void spill_close(void)
{
    writer->ops->close(writer);
    reader->ops->close(reader);
    vv_spill_free(spill);
}

/* A library that refuses a file, with any error, cannot be used here. */
static void spill_refused(void)
{
    char err[256] = "";
    set_up();
    fake->handle_code = 5999; /* an unknown code */
    T_ERR(vv_spill_new(t_tmpdir(), 64 * ST_PAGE, &st_opts, err, sizeof(err), &spill), -ENOTSUP);
    T_CHECK(strstr(err, "GPUDirect"));
    fake->handle_code = 0;
    tear_down();
}

static const uint32_t scattered[8] = {5, 6, 7, 30, 2, 3, 50, 51};

static void spill_round_trips(void)
{
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    set_up();
    spill_open();
    st_object_init(&o, NULL, 3, 1, 8 * ST_PAGE, ST_PAGE);
    for (int in_a_row = 0; in_a_row < 2; in_a_row++) {
        to_device(&o, in_a_row, true, mem);
        struct vv_store_io io = device_io(&o, VV_STORE_WRITE, mem, 0, 8);
        io.pages = scattered;
        T_OK(st_run(writer, &io));
        /* Written from the device, read into host memory. */
        st_object_clear(&o, ST_PAGE);
        io = st_io(&o, VV_STORE_READ, 0, 8);
        io.pages = scattered;
        T_OK(st_run(reader, &io));
        T_CHECK(st_object_intact(&o, ST_PAGE));
        /* And read to the device. */
        to_device(&o, in_a_row, false, mem);
        io = device_io(&o, VV_STORE_READ, mem, 0, 8);
        io.pages = scattered;
        T_OK(st_run(reader, &io));
        T_CHECK(on_device(&o, mem));
    }
    T_EQ(fake->written_bytes, 2 * 8 * ST_PAGE);
    T_EQ(fake->read_bytes, 2 * 8 * ST_PAGE);
    /* Backwards in memory every page is a transfer of its own; in a row, every run of the file. */
    T_EQ(fake->writes, 8 + 4);
    st_object_fini(&o);
    spill_close();
    tear_down();
}

static void spill_odd_sizes(void)
{
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    set_up();
    spill_open();
    st_object_init(&o, NULL, 3, 1, 3 * ST_PAGE + 4097, ST_PAGE);
    to_device(&o, true, true, mem);
    struct vv_store_io io = device_io(&o, VV_STORE_WRITE, mem, 0, 4);
    io.pages = scattered;
    T_ERR(st_run(writer, &io), -EINVAL); /* its end would have to be padded */
    io.nchunks = 3;
    T_OK(st_run(writer, &io));
    io = st_io(&o, VV_STORE_WRITE, 3, 1);
    io.pages = scattered + 3;
    T_OK(st_run(writer, &io));
    to_device(&o, true, false, mem);
    io = device_io(&o, VV_STORE_READ, mem, 0, 4);
    io.pages = scattered;
    T_OK(st_run(reader, &io));
    T_CHECK(on_device(&o, mem));
    st_object_fini(&o);
    spill_close();
    tear_down();
}

static void spill_errors(void)
{
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    set_up();
    spill_open();
    st_object_init(&o, NULL, 3, 1, 8 * ST_PAGE, ST_PAGE);
    to_device(&o, true, true, mem);
    struct vv_store_io write = device_io(&o, VV_STORE_WRITE, mem, 0, 8);
    struct vv_store_io read = device_io(&o, VV_STORE_READ, mem, 0, 8);
    write.pages = read.pages = scattered;
    fake->fail_nth = 2;
    fake->fail_errno = ENOSPC;
    T_ERR(st_run(writer, &write), -ENOSPC);
    fake->fail_nth = 1;
    fake->fail_code = 5008;
    T_ERR(st_run(writer, &write), -ENOTSUP);
    fake->fail_code = 0;
    fake->short_bytes = 4096;
    T_OK(st_run(writer, &write));
    T_OK(st_run(reader, &read));
    fake->short_bytes = 0;

    fake->spoil_nth = 2; /* the second run of the file: chunk 3 */
    T_ERR(st_run(reader, &read), -EBADMSG);
    T_EQ(read.bad_chunk, 3);
    T_OK(st_run(reader, &read));
    fake->fail_nth = 1;
    fake->fail_errno = EIO;
    T_ERR(st_run(reader, &read), -EIO);

    /* The kernel fails, at launch or later: no checksum, no success. */
    T_OK(vv_device_host_fail(device, VV_DEVICE_OP_LAUNCH, 1, 1, -EIO));
    T_ERR(st_run(reader, &read), -EIO);
    T_OK(vv_device_host_fail(device, VV_DEVICE_OP_EVENT_WAIT, 1, 1, -EIO));
    T_ERR(st_run(writer, &write), -EIO);
    T_OK(st_run(writer, &write));

    /* Memory outside the gds's buffer. */
    void *other;
    T_OK(vv_device_mem_alloc(device, ST_PAGE, &other));
    mem[7] = other;
    T_ERR(st_run(reader, &read), -EINVAL);
    T_OK(vv_device_mem_free(device, other));
    st_object_fini(&o);
    spill_close();
    tear_down();
}

static void without_gds(void)
{
    struct st_object o;
    char err[256] = "";
    t_cufile_reset();
    spill_open();
    st_object_init(&o, NULL, 3, 1, 8 * ST_PAGE, ST_PAGE);
    struct vv_store_io io = device_io(&o, VV_STORE_READ, o.mem, 0, 8);
    io.pages = scattered;
    T_ERR(st_run(reader, &io), -EINVAL);
    spill_close();
    st_object_fini(&o);

    set_up();
    struct vv_store_opts buffered = st_opts;
    struct vv_folder *folder;
    buffered.mode = VV_STORE_BUFFERED;
    T_ERR(vv_spill_new(t_tmpdir(), 64 * ST_PAGE, &buffered, err, sizeof(err), &spill), -ENOTSUP);
    T_CHECK(strstr(err, "direct"));
    T_ERR(vv_folder_new(t_tmpdir(), &buffered, err, sizeof(err), &folder), -ENOTSUP);
    fake->handle_code = 5008;
    T_ERR(vv_spill_new(t_tmpdir(), 64 * ST_PAGE, &st_opts, err, sizeof(err), &spill), -ENOTSUP);
    fake->handle_code = 0;
    tear_down();
}

/* More requests than threads, then closed while they are in flight. */
static void many_in_flight(void)
{
    enum { N = 32 };
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    struct vv_store_io io[N], *done[N];
    uint32_t pages[N];
    set_up();
    spill_open();
    st_object_init(&o, NULL, 3, 1, N * ST_PAGE, ST_PAGE);
    to_device(&o, false, true, mem);
    for (int round = 0; round < 2; round++) {
        int left = N;
        for (uint32_t i = 0; i < N; i++) {
            pages[i] = N - 1 - i;
            io[i] = device_io(&o, round ? VV_STORE_READ : VV_STORE_WRITE, mem, i, 1);
            io[i].pages = &pages[i];
            T_OK(writer->ops->submit(writer, &io[i]));
        }
        writer->ops->kick(writer);
        while (left > 0) {
            int n = writer->ops->poll(writer, done, N, -1);
            T_CHECK(n >= 0);
            for (int i = 0; i < n; i++)
                T_OK(done[i]->status);
            left -= n;
        }
        if (!round)
            to_device(&o, false, false, mem);
    }
    T_CHECK(on_device(&o, mem));
    for (uint32_t i = 0; i < N; i++)
        T_OK(writer->ops->submit(writer, &io[i]));
    spill_close();
    st_object_fini(&o);
    tear_down();
}

static void device_lost(void)
{
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    set_up();
    spill_open();
    st_object_init(&o, NULL, 3, 1, 8 * ST_PAGE, ST_PAGE);
    to_device(&o, true, true, mem);
    struct vv_store_io io = device_io(&o, VV_STORE_WRITE, mem, 0, 8);
    io.pages = scattered;
    T_OK(st_run(writer, &io));
    vv_device_host_lose(device);
    io.op = VV_STORE_READ;
    T_ERR(st_run(reader, &io), -ENODEV);
    io.op = VV_STORE_WRITE;
    T_ERR(st_run(writer, &io), -ENODEV);
    st_object_fini(&o);
    spill_close();
    vv_gds_memory_remove(gds);
    vv_gds_close(gds);
    vv_device_close(device);
    st_opts.gds = NULL;
    T_EQ(fake->handles, 0); /* handles are closed even if the device is lost */
}

/* ---- files ---- */

static void files_round_trips(void)
{
    struct st_tier t = {.opts = st_opts};
    const char *path = t_tmpdir();
    struct st_object o;
    void *mem[ST_PAGES_MAX];
    set_up();
    t.opts.gds = gds;
    st_tier_open(&t, path);
    struct vv_files *f = st_files_open(&t, "h");
    uint64_t generation = vv_files_first_generation(f);
    st_object_init(&o, f, 1, generation, 20 * ST_PAGE + 100, ST_PAGE);
    to_device(&o, true, true, mem);
    /* The middle from the device, the rest from the host, the first chunk last. */
    struct vv_store_io io = device_io(&o, VV_STORE_WRITE, mem, 4, 10);
    T_OK(st_run(t.writer, &io));
    io = st_io(&o, VV_STORE_WRITE, 14, 7);
    T_OK(st_run(t.writer, &io));
    io = device_io(&o, VV_STORE_WRITE, mem, 0, 4);
    T_OK(st_run(t.writer, &io));
    T_ERR(st_run(t.writer, &io), -EEXIST);
    T_OK(st_do(t.writer, &o, VV_STORE_COMMIT));
    T_EQ(fake->written_bytes, 14 * ST_PAGE);

    for (int again = 0; again < 2; again++) {
        to_device(&o, false, false, mem);
        io = device_io(&o, VV_STORE_READ, mem, 0, 21);
        T_OK(st_run(t.reader, &io));
        T_CHECK(on_device(&o, mem));
        T_OK(st_check_version(t.reader, f, 1, generation, o.size, ST_PAGE));
        if (again)
            break;
        vv_files_close(f);
        st_tier_close(&t);
        st_tier_open(&t, path);
        f = st_files_open(&t, "h");
        o.key.history = f;
    }
    fake->spoil_nth = 7;
    T_ERR(st_run(t.reader, &io), -EBADMSG);
    T_EQ(io.bad_chunk, 6);
    vv_files_close(f);
    st_tier_close(&t);
    st_object_fini(&o);
    tear_down();
}

/* A file with larger or smaller pages than this store. */
static void files_of_other_pages(void)
{
    for (uint32_t page = ST_PAGE / 4; page <= ST_PAGE * 4; page *= 4) {
        struct st_tier t = {.opts = st_opts};
        const char *path = t_tmpdir();
        struct st_object o;
        void *mem[ST_PAGES_MAX];
        uint64_t size = 9 * ST_PAGE + 777;
        if (page == ST_PAGE)
            continue;
        t.opts.page_bytes = page;
        st_tier_open(&t, path);
        struct vv_files *f = st_files_open(&t, "h");
        uint64_t generation = vv_files_first_generation(f);
        T_OK(st_put_version(t.writer, f, 1, generation, size, page));
        vv_files_close(f);
        st_tier_close(&t);

        set_up();
        t.opts = st_opts;
        st_tier_open(&t, path);
        f = st_files_open(&t, "h");
        st_object_init(&o, f, 1, generation, size, ST_PAGE);
        to_device(&o, false, false, mem);
        struct vv_store_io io = device_io(&o, VV_STORE_READ, mem, 0, 10);
        T_OK(st_run(t.reader, &io));
        T_CHECK(on_device(&o, mem));
        to_device(&o, false, false, mem);
        for (uint32_t c = 0; c < 10; c++) {
            io = device_io(&o, VV_STORE_READ, mem, c, 1);
            T_OK(st_run(t.reader, &io));
        }
        T_CHECK(on_device(&o, mem));
        T_EQ(fake->reads > 0, page < ST_PAGE);
        if (page > ST_PAGE) {
            T_OK(vv_device_host_fail(device, VV_DEVICE_OP_COPY_ASYNC, 1, 1, -EIO));
            T_ERR(st_run(t.reader, &io), -EIO);
        }
        vv_files_close(f);
        st_tier_close(&t);
        st_object_fini(&o);
        tear_down();
    }
}

/* Descriptors are closed and reopened; the library's handle is closed before its descriptor. */
static void files_few_open(void)
{
    enum { VERSIONS = 6 };
    struct st_tier t = {.opts = st_opts};
    struct st_object o[VERSIONS];
    void *mem[ST_PAGES_MAX];
    set_up();
    t.opts.gds = gds;
    t.opts.max_open = 1;
    st_tier_open(&t, t_tmpdir());
    struct vv_files *f = st_files_open(&t, "h");
    uint64_t generation = vv_files_first_generation(f);
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t v = 0; v < VERSIONS; v++) {
            if (half == 0)
                st_object_init(&o[v], f, v, generation + v, 4 * ST_PAGE, ST_PAGE);
            to_device(&o[v], true, true, mem);
            struct vv_store_io io = device_io(&o[v], VV_STORE_WRITE, mem, 2 * half, 2);
            T_OK(st_run(t.writer, &io));
            T_CHECK(fake->handles <= 2);
        }
    for (uint32_t v = 0; v < VERSIONS; v++) {
        T_OK(st_do(t.writer, &o[v], VV_STORE_COMMIT));
        to_device(&o[v], true, false, mem);
        struct vv_store_io io = device_io(&o[v], VV_STORE_READ, mem, 0, 4);
        T_OK(st_run(t.reader, &io));
        T_CHECK(on_device(&o[v], mem));
    }
    for (uint32_t v = 0; v < VERSIONS; v++)
        st_object_fini(&o[v]);
    vv_files_close(f);
    st_tier_close(&t);
    tear_down();
}

/* A failed write spoils the object, at whatever step it failed. */
static void files_spoiled(void)
{
    for (int how = 0; how < 4; how++) {
        struct st_tier t = {.opts = st_opts};
        struct st_object o;
        void *mem[ST_PAGES_MAX];
        set_up();
        t.opts.gds = gds;
        st_tier_open(&t, t_tmpdir());
        struct vv_files *f = st_files_open(&t, "h");
        st_object_init(&o, f, 1, vv_files_first_generation(f), 4 * ST_PAGE, ST_PAGE);
        to_device(&o, true, true, mem);
        struct vv_store_io io = device_io(&o, VV_STORE_WRITE, mem, 0, 4);
        if (how == 0) {
            fake->fail_nth = 1;
            fake->fail_errno = EIO;
        } else if (how == 1) {
            fake->handle_code = 5030;
        } else if (how == 2) {
            T_OK(vv_device_host_fail(device, VV_DEVICE_OP_LAUNCH, 1, 1, -EIO));
        } else {
            T_OK(vv_device_host_fail(device, VV_DEVICE_OP_EVENT_RECORD, 1, 1, -EIO));
        }
        T_ERR(st_run(t.writer, &io), -EIO);
        fake->handle_code = 0;
        T_ERR(st_run(t.writer, &io), -EIO);
        T_ERR(st_do(t.writer, &o, VV_STORE_WRITE), -EIO);
        T_OK(st_do(t.writer, &o, VV_STORE_REMOVE));
        vv_files_close(f);
        st_tier_close(&t);
        st_object_fini(&o);
        tear_down();
    }
}

static void cases(void)
{
    if (st_opts.mode != VV_STORE_DIRECT)
        return;
    T_RUN(spill_refused);
    T_RUN(spill_round_trips);
    T_RUN(spill_odd_sizes);
    T_RUN(spill_errors);
    T_RUN(without_gds);
    T_RUN(many_in_flight);
    T_RUN(device_lost);
    T_RUN(files_round_trips);
    T_RUN(files_of_other_pages);
    T_RUN(files_few_open);
    T_RUN(files_spoiled);
}

int main(void)
{
    fake = t_cufile_load();
    T_RUN(opening);
    T_RUN(memory);
    st_each_mode(cases);
    return t_done();
}
