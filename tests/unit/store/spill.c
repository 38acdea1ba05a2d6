/* SPDX-License-Identifier: Apache-2.0 */
/* The spill store, on every backend and in both modes. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store_test.h"

static struct vv_spill *spill;
static struct vv_store *writer, *reader;

static void spill_open(uint64_t capacity)
{
    char err[256] = "";
    int rc = vv_spill_new(t_tmpdir(), capacity, &st_opts, err, sizeof(err), &spill);
    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
    T_OK(vv_spill_store(spill, &writer));
    T_OK(vv_spill_store(spill, &reader));
}

static void spill_close(void)
{
    writer->ops->close(writer);
    reader->ops->close(reader);
    vv_spill_free(spill);
}

static int spill_io(struct vv_store *s, struct st_object *o, enum vv_store_op op,
                    const uint32_t *pages, struct vv_store_io *ret_io)
{
    struct vv_store_io io = st_io(o, op, 0, o->nchunks);
    io.pages = pages;
    int rc = st_run(s, &io);
    if (ret_io)
        *ret_io = io;
    return rc;
}

static void round_trip(void)
{
    static const uint32_t scattered[] = {5, 6, 7, 2, 9, 0, 1, 20, 19, 18};
    spill_open(32 * ST_PAGE);
    T_EQ(vv_spill_pages(spill), 32);
    T_STREQ(writer->ops->name, "spill");
    struct st_object o;
    st_object_init(&o, NULL, 3, 0, 10 * ST_PAGE - 5001, ST_PAGE);
    T_OK(spill_io(writer, &o, VV_STORE_WRITE, scattered, NULL));
    st_object_clear(&o, ST_PAGE);
    T_OK(spill_io(reader, &o, VV_STORE_READ, scattered, NULL));
    T_CHECK(st_object_intact(&o, ST_PAGE));
    st_object_fini(&o);
    /* The last page, and a page written again. */
    static const uint32_t again[] = {31, 5};
    st_object_init(&o, NULL, 4, 0, 2 * ST_PAGE, ST_PAGE);
    T_OK(spill_io(writer, &o, VV_STORE_WRITE, again, NULL));
    st_object_clear(&o, ST_PAGE);
    T_OK(spill_io(reader, &o, VV_STORE_READ, again, NULL));
    T_CHECK(st_object_intact(&o, ST_PAGE));
    st_object_fini(&o);
    spill_close();
}

static void wrong_bytes_are_found(void)
{
    static const uint32_t pages[] = {1, 2, 3, 4};
    spill_open(32 * ST_PAGE);
    struct st_object a, b;
    struct vv_store_io io;
    st_object_init(&a, NULL, 1, 0, 4 * ST_PAGE, ST_PAGE);
    st_object_init(&b, NULL, 2, 0, ST_PAGE, ST_PAGE);
    T_OK(spill_io(writer, &a, VV_STORE_WRITE, pages, NULL));
    T_OK(spill_io(writer, &b, VV_STORE_WRITE, &pages[2], NULL));
    /* a's chunk 2 is now b's: the slot has the checksum of b's write. Read with a smaller size, as half a
     * page, it does not match. */
    b.size = ST_PAGE / 2;
    T_ERR(spill_io(reader, &b, VV_STORE_READ, &pages[2], &io), -EBADMSG);
    T_EQ(io.bad_chunk, 0);
    /* Never written. */
    static const uint32_t fresh[] = {1, 2, 9, 4};
    T_ERR(spill_io(reader, &a, VV_STORE_READ, fresh, &io), -EBADMSG);
    T_EQ(io.bad_chunk, 2);
    st_object_fini(&a);
    st_object_fini(&b);
    spill_close();
}

static void malformed_requests(void)
{
    spill_open(4 * ST_PAGE);
    struct st_object o;
    static const uint32_t outside[] = {4};
    st_object_init(&o, NULL, 1, 0, ST_PAGE, ST_PAGE);
    T_ERR(spill_io(writer, &o, VV_STORE_WRITE, outside, NULL), -EINVAL);
    T_ERR(spill_io(writer, &o, VV_STORE_WRITE, NULL, NULL), -EINVAL);
    T_ERR(spill_io(writer, &o, VV_STORE_COMMIT, outside, NULL), -EINVAL);
    o.size = 10 * ST_PAGE;
    struct vv_store_io io = st_io(&o, VV_STORE_WRITE, 10, 1);
    static const uint32_t inside[] = {0};
    io.pages = inside;
    T_ERR(st_run(writer, &io), -EINVAL);
    void *unaligned[] = {(char *)o.mem[0] + 8};
    io.chunk0 = 0;
    io.mem = unaligned;
    T_ERR(st_run(writer, &io), -EINVAL);
    st_object_fini(&o);
    spill_close();
    struct vv_spill *none;
    char err[256];
    T_ERR(vv_spill_new(t_tmpdir(), 100, &st_opts, err, sizeof(err), &none), -ENOSPC);
    T_CHECK(strstr(err, "local_cache")); /* what to do */
    struct vv_store_opts bad = st_opts;
    bad.page_bytes = 5000;
    T_ERR(vv_spill_new(t_tmpdir(), 1 << 20, &bad, NULL, 0, &none), -EINVAL);
    vv_spill_free(NULL);
}

static void full_disk(void)
{
    struct fault_os fault;
    fault_os_init(&fault);
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    spill_open(4 * ST_PAGE);
    static const uint32_t pages[] = {0, 1};
    struct st_object o;
    st_object_init(&o, NULL, 1, 0, 2 * ST_PAGE, ST_PAGE);
    fault.calls = 1u << FAULT_FALLOCATE;
    fault.err = ENOSPC;
    fault.at = 1;
    fault.mode = FAULT_FOREVER;
    T_ERR(spill_io(writer, &o, VV_STORE_WRITE, pages, NULL), -ENOSPC);
    /* A whole step does not fit, but the needed space does. */
    atomic_store(&fault.count, 0);
    fault.mode = FAULT_ONCE;
    T_OK(spill_io(writer, &o, VV_STORE_WRITE, pages, NULL));
    /* An error of the disk. */
    fault.calls = 1u << FAULT_AIO_READ;
    fault.err = EIO;
    atomic_store(&fault.count, 0);
    T_ERR(spill_io(reader, &o, VV_STORE_READ, pages, NULL), -EIO);
    T_OK(spill_io(reader, &o, VV_STORE_READ, pages, NULL));
    st_object_fini(&o);
    spill_close();
    T_EQ(atomic_load(&fault.descriptors), 0);
    st_opts = saved;
}

/* The file is not visible in the folder, and short transfers do no harm. */
static void unlinked_and_short(void)
{
    struct fault_os fault;
    fault_os_init(&fault);
    fault.short_bytes = 4096;
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    spill_open(8 * ST_PAGE);
    static const uint32_t pages[] = {3, 4, 0};
    struct st_object o;
    st_object_init(&o, NULL, 8, 0, 3 * ST_PAGE, ST_PAGE);
    T_OK(spill_io(writer, &o, VV_STORE_WRITE, pages, NULL));
    st_object_clear(&o, ST_PAGE);
    T_OK(spill_io(reader, &o, VV_STORE_READ, pages, NULL));
    T_CHECK(st_object_intact(&o, ST_PAGE));
    T_CHECK(atomic_load(&fault.per_call[FAULT_AIO_READ]) >= 12);
    st_object_fini(&o);
    spill_close();
    st_opts = saved;
}

/* Many batches in flight at once, reported in any order. */
static void many_in_flight(void)
{
    enum { N = 48 };
    spill_open(N * ST_PAGE);
    struct st_object o;
    st_object_init(&o, NULL, 5, 0, N * ST_PAGE, ST_PAGE);
    static uint32_t pages[N];
    static struct vv_store_io ios[N];
    for (int pass = 0; pass < 2; pass++) {
        struct vv_store *s = pass == 0 ? writer : reader;
        if (pass == 1)
            st_object_clear(&o, ST_PAGE);
        for (uint32_t i = 0; i < N; i++) {
            pages[i] = N - 1 - i;
            ios[i] = st_io(&o, pass == 0 ? VV_STORE_WRITE : VV_STORE_READ, i, 1);
            ios[i].pages = &pages[i];
            T_OK(s->ops->submit(s, &ios[i]));
        }
        for (int left = N; left > 0;) {
            struct vv_store_io *done[5];
            int n = s->ops->poll(s, done, 5, -1);
            T_CHECK(n > 0);
            for (int i = 0; i < n; i++)
                T_OK(done[i]->status);
            left -= n;
        }
        struct vv_store_io *none;
        T_ERR(s->ops->poll(s, &none, 1, 0), -ETIMEDOUT);
        T_ERR(s->ops->poll(s, &none, 1, 1000000), -ETIMEDOUT);
        s->ops->kick(s);
        T_EQ(s->ops->poll(s, &none, 1, -1), 0);
    }
    T_CHECK(st_object_intact(&o, ST_PAGE));
    /* Closing with requests in flight waits for them. */
    for (uint32_t i = 0; i < N; i++)
        T_OK(writer->ops->submit(writer, &ios[i]));
    spill_close();
    st_object_fini(&o);
}

/* ---- one file per record ---- */

static unsigned files_in(const char *folder, uint64_t *ret_bytes)
{
    DIR *dir = opendir(folder);
    unsigned n = 0;
    *ret_bytes = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, ".spill-", 7) != 0 || !strchr(e->d_name + 7, '-'))
            continue;
        n++;
        T_OK(fstatat(dirfd(dir), e->d_name, &st, 0));
        *ret_bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
    return n;
}

static void records_open(const char *folder, uint64_t capacity, struct vv_spill **ret)
{
    char err[256] = "";
    st_opts.record_files = true;
    T_OK(vv_spill_new(folder, capacity, &st_opts, err, sizeof(err), ret));
    T_OK(vv_spill_store(*ret, &writer));
    T_OK(vv_spill_store(*ret, &reader));
    st_opts.record_files = false;
}

static void refill(struct st_object *o, uint64_t version)
{
    o->key.version = version;
    for (uint64_t at = 0; at < o->size; at++)
        ((unsigned char *)o->mem[at / ST_PAGE])[at % ST_PAGE] = st_byte(version, at);
}

/* Random records on random pages, more records than open files: each has a file, replaced chunks take no
 * space, and the limit holds. */
static void a_file_each(void)
{
    enum { PAGES = 24, OBJECTS = 12, ROUNDS = 60 };
    const char *folder = t_tmpdir();
    struct t_rng r = {t_seed()};
    struct st_object o[OBJECTS];
    uint32_t page[OBJECTS][6];
    uint32_t owner[PAGES]; /* object and chunk */
    uint64_t bytes;
    st_opts.max_open = 3;
    records_open(folder, PAGES * ST_PAGE, &spill);
    for (uint32_t i = 0; i < PAGES; i++)
        owner[i] = UINT32_MAX;
    for (uint32_t i = 0; i < OBJECTS; i++)
        st_object_init(&o[i], NULL, i, i, (1 + t_rng_below(&r, 6)) * ST_PAGE - 100, ST_PAGE);
    uint64_t generation = OBJECTS;
    for (uint64_t round = 0; round < t_cases(ROUNDS, 1000); round++) {
        uint32_t i = (uint32_t)t_rng_below(&r, OBJECTS), at = (uint32_t)t_rng_below(&r, PAGES);
        /* As the engine does: an overwritten version has another generation, and freed pages are reused one
         * by one. */
        o[i].key.generation = generation++;
        for (uint32_t p = 0; p < PAGES; p++)
            owner[p] = owner[p] / 8 == i ? UINT32_MAX : owner[p];
        for (uint32_t c = 0; c < o[i].nchunks; c++) {
            page[i][c] = (at + c * 5) % PAGES;
            owner[page[i][c]] = i * 8 + c;
        }
        refill(&o[i], 100 + round);
        T_OK(spill_io(writer, &o[i], VV_STORE_WRITE, page[i], NULL));
        unsigned live = 0;
        for (uint32_t k = 0; k < OBJECTS; k++) {
            bool whole = o[k].key.generation >= OBJECTS; /* it was written */
            for (uint32_t c = 0; whole && c < o[k].nchunks; c++)
                whole = owner[page[k][c]] == k * 8 + c;
            if (!whole)
                continue;
            live++;
            st_object_clear(&o[k], ST_PAGE);
            T_OK(spill_io(reader, &o[k], VV_STORE_READ, page[k], NULL));
            T_CHECK(st_object_intact(&o[k], ST_PAGE));
        }
        unsigned files = files_in(folder, &bytes);
        T_CHECK(files >= live);
        T_CHECK(bytes <= PAGES * ST_PAGE + files * 4096); /* plus the overhead of the file system */
    }
    /* Pages that do not belong to the chunks. */
    struct vv_store_io io = st_io(&o[0], VV_STORE_READ, 0, 1);
    uint32_t wrong = (page[0][0] + 1) % PAGES;
    io.pages = &wrong;
    if (o[0].key.generation >= OBJECTS)
        T_ERR(st_run(reader, &io), -EINVAL);
    for (uint32_t i = 0; i < OBJECTS; i++)
        st_object_fini(&o[i]);
    spill_close();
    T_EQ(files_in(folder, &bytes), 0);
    st_opts.max_open = 64;
}

/* A chunk that left its page and came back on another, as it does between layers, keeps its data when the first page
 * is reused; chunks without a page take no space. */
static void chunks_change_pages(void)
{
    static const uint32_t first[] = {0, 1}, second[] = {2, 3}, third[] = {2, 0};
    const char *folder = t_tmpdir();
    struct st_object a, b;
    uint64_t bytes;
    records_open(folder, 8 * ST_PAGE, &spill);
    st_object_init(&a, NULL, 1, 1, 2 * ST_PAGE, ST_PAGE);
    st_object_init(&b, NULL, 2, 2, 2 * ST_PAGE, ST_PAGE);
    T_OK(spill_io(writer, &a, VV_STORE_WRITE, first, NULL));
    T_OK(spill_io(writer, &a, VV_STORE_WRITE, second, NULL));
    T_OK(spill_io(writer, &b, VV_STORE_WRITE, first, NULL));
    st_object_clear(&a, ST_PAGE);
    T_OK(spill_io(reader, &a, VV_STORE_READ, second, NULL));
    T_CHECK(st_object_intact(&a, ST_PAGE));
    T_OK(spill_io(writer, &b, VV_STORE_WRITE, third, NULL));
    T_EQ(files_in(folder, &bytes), 2);
    T_CHECK(bytes <= 3 * ST_PAGE + 2 * 4096); /* one chunk of a is left */
    st_object_clear(&b, ST_PAGE);
    T_OK(spill_io(reader, &b, VV_STORE_READ, third, NULL));
    T_CHECK(st_object_intact(&b, ST_PAGE));
    struct vv_store_io io = st_io(&a, VV_STORE_READ, 1, 1);
    io.pages = &second[1];
    st_object_clear(&a, ST_PAGE);
    T_OK(st_run(reader, &io));
    st_object_fini(&a);
    st_object_fini(&b);
    spill_close();
}

/* A killed process leaves files; the next process removes them, but not those of living processes. */
static void killed_ones_are_cleaned(void)
{
    static const uint32_t pages[] = {0, 1};
    const char *folder = t_tmpdir();
    uint64_t bytes;
    int ready[2];
    char c;
    T_OK(pipe(ready));
    pid_t pid = fork();
    if (pid == 0) {
        struct st_object o;
        records_open(folder, 8 * ST_PAGE, &spill);
        st_object_init(&o, NULL, 1, 1, 2 * ST_PAGE, ST_PAGE);
        T_OK(spill_io(writer, &o, VV_STORE_WRITE, pages, NULL));
        T_EQ(write(ready[1], "x", 1), 1);
        pause();
        _exit(1);
    }
    T_EQ(read(ready[0], &c, 1), 1);
    T_EQ(files_in(folder, &bytes), 1);
    records_open(folder, 8 * ST_PAGE, &spill); /* the first process is alive */
    T_EQ(files_in(folder, &bytes), 1);
    spill_close();
    kill(pid, SIGKILL);
    T_EQ(waitpid(pid, NULL, 0), pid);
    T_EQ(files_in(folder, &bytes), 1);
    records_open(folder, 8 * ST_PAGE, &spill);
    T_EQ(files_in(folder, &bytes), 0);
    spill_close();
    T_OK(rmdir(folder)); /* nothing is left */
    T_OK(mkdir(folder, 0777));
    close(ready[0]);
    close(ready[1]);
}

/* If the file system cannot punch holes, there is one file. */
static void a_hint_only(void)
{
    struct vv_os os = *vv_os_posix();
    struct vv_store_opts keep = st_opts;
    const char *folder = t_tmpdir();
    uint64_t bytes;
    static const uint32_t pages[] = {3};
    struct st_object o;
    os.punch = NULL;
    st_opts.os = &os;
    records_open(folder, 8 * ST_PAGE, &spill);
    st_object_init(&o, NULL, 1, 1, ST_PAGE, ST_PAGE);
    T_OK(spill_io(writer, &o, VV_STORE_WRITE, pages, NULL));
    T_OK(spill_io(reader, &o, VV_STORE_READ, pages, NULL));
    T_EQ(files_in(folder, &bytes), 0);
    st_object_fini(&o);
    spill_close();
    st_opts = keep;
}

static void cases(void)
{
    T_RUN(a_file_each);
    T_RUN(chunks_change_pages);
    T_RUN(killed_ones_are_cleaned);
    T_RUN(a_hint_only);
    T_RUN(round_trip);
    T_RUN(wrong_bytes_are_found);
    T_RUN(malformed_requests);
    T_RUN(full_disk);
    T_RUN(unlinked_and_short);
    T_RUN(many_in_flight);
}

/* ---- pacing: only that nothing is early; late reports may be due to the machine ---- */

static void paced_transfers_are_not_early(void)
{
    vv_store_opts_init(&st_opts);
    st_opts.page_bytes = ST_PAGE;
    st_opts.write_bytes_per_s = 16 << 20; /* 1 page: 0.98 ms */
    st_opts.read_bytes_per_s = 32 << 20;
    spill_open(16 * ST_PAGE);
    struct st_object o;
    static uint32_t pages[8];
    static struct vv_store_io w[4], r[4];
    st_object_init(&o, NULL, 5, 0, 8 * ST_PAGE, ST_PAGE);
    uint64_t page_ns = (uint64_t)ST_PAGE * 1000000000u / (16 << 20);
    uint64_t begin = vv_now_ns();
    for (uint32_t i = 0; i < 4; i++) {
        pages[i] = i;
        w[i] = st_io(&o, VV_STORE_WRITE, i, 1);
        w[i].pages = &pages[i];
        T_OK(writer->ops->submit(writer, &w[i]));
    }
    for (int i = 0; i < 4; i++) {
        struct vv_store_io *done;
        /* A kick ends a wait for the busy medium. */
        writer->ops->kick(writer);
        int n = writer->ops->poll(writer, &done, 1, -1);
        while (n == 0)
            n = writer->ops->poll(writer, &done, 1, -1);
        T_EQ(n, 1);
        T_CHECK(vv_now_ns() - begin >= (uint64_t)(i + 1) * page_ns);
    }
    /* Reads and writes share the medium: 2 of each take the time of 2 * 1 + 2 * 0.5 pages. */
    begin = vv_now_ns();
    for (uint32_t i = 0; i < 2; i++) {
        T_OK(writer->ops->submit(writer, &w[i]));
        r[i] = st_io(&o, VV_STORE_READ, i + 2, 1);
        r[i].pages = &pages[i + 2];
        T_OK(reader->ops->submit(reader, &r[i]));
    }
    struct vv_store_io *done[2];
    for (int left = 2; left > 0;)
        left -= writer->ops->poll(writer, done, 2, -1);
    for (int left = 2; left > 0;)
        left -= reader->ops->poll(reader, done, 2, -1);
    T_CHECK(vv_now_ns() - begin >= 3 * page_ns);
    st_object_fini(&o);
    spill_close();
}

int main(void)
{
    st_each_mode(cases);
    T_RUN(paced_transfers_are_not_early);
    return t_done();
}
