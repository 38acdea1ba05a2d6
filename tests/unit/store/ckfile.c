/* SPDX-License-Identifier: Apache-2.0 */
/* Checking files without opening their history, as `varve ls` and `varve verify` do; and reading files of
 * every earlier format version. */
#include "store/files/ckfile.h"
#include "store/target/folder/target_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "store_test.h"

#define PAGE 8192u
#define SIZE (5 * PAGE + 100)

static struct st_tier tier;
static struct vv_files *files;
static const char *dir;

static void set_up(void)
{
    vv_store_opts_init(&tier.opts);
    tier.opts.page_bytes = PAGE;
    dir = t_tmpdir();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    for (uint64_t v = 1; v <= 3; v++)
        T_OK(st_put_version(tier.writer, files, v, 0, SIZE, PAGE));
}

static void tear_down(void)
{
    vv_files_close(files);
    st_tier_close(&tier);
}

struct problems {
    int n;
    struct vv_ckfile_problem p[32];
    char what[32][128];
};

static void note(void *user, const struct vv_ckfile_problem *p)
{
    struct problems *all = user;
    T_CHECK(all->n < 32);
    snprintf(all->what[all->n], sizeof(all->what[0]), "%s", p->what);
    all->p[all->n++] = *p;
}

static int verify(const char *name, struct problems *all)
{
    all->n = 0;
    return vv_ckfile_verify(vv_target_cwd(), st_path(dir, name), note, all, NULL);
}

static void flip(const char *name, uint64_t at)
{
    unsigned char c;
    int fd = open(st_path(dir, name), O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 4;
    T_EQ(pwrite(fd, &c, 1, (off_t)at), 1);
    close(fd);
}

static void problems_are_named(void)
{
    struct problems all;
    struct vv_ckfile_info info;
    set_up();
    all.n = 0;
    T_OK(vv_ckfile_verify(vv_target_cwd(), st_path(dir, "h/r0.v1.g0.ckpt"), note, &all, &info));
    T_EQ(info.id.version, 1);
    T_EQ(info.id.size, SIZE);
    T_EQ(info.nchunks, 6);
    T_STREQ(info.history, "h");
    vv_ckfile_info_fini(&info);
    /* Region 7 is the first third, -2 the rest: chunk 1 has bytes of both, chunk 4 of one. */
    flip("h/r0.v2.g0.ckpt", 4096 + 1 * PAGE + 5);
    flip("h/r0.v2.g0.ckpt", 4096 + 4 * PAGE + 5);
    T_ERR(verify("h/r0.v2.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 3);
    T_CHECK(all.p[0].version == 2 && all.p[0].region == 7 && all.p[0].chunk == 1);
    T_CHECK(all.p[1].version == 2 && all.p[1].region == -2 && all.p[1].chunk == 1);
    T_CHECK(all.p[2].version == 2 && all.p[2].region == -2 && all.p[2].chunk == 4);
    /* A damaged header does not hide a damaged chunk. */
    flip("h/r0.v2.g0.ckpt", 70);
    T_ERR(verify("h/r0.v2.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 4);
    T_STREQ(all.what[0], "the header's checksum is wrong");
    /* Truncated: the version is taken from the name. */
    T_OK(truncate(st_path(dir, "h/r0.v3.g0.ckpt"), 4096 + 3 * PAGE));
    T_ERR(verify("h/r0.v3.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 1);
    T_EQ(all.p[0].version, 3);
    T_CHECK(strstr(all.what[0], "truncated"));
    T_OK(truncate(st_path(dir, "h/r0.v3.g0.ckpt"), 100));
    T_ERR(verify("h/r0.v3.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 2);
    T_ERR(verify("h/r0.v9.g0.ckpt", &all), -ENOENT);
    /* Under another checkpoint's name. */
    char from[4096];
    snprintf(from, sizeof(from), "%s", st_path(dir, "h/r0.v1.g0.ckpt"));
    T_OK(link(from, st_path(dir, "h/r0.v8.g0.ckpt")));
    T_ERR(verify("h/r0.v8.g0.ckpt", &all), -EBADMSG);
    T_OK(link(from, st_path(dir, "copy-of-1")));
    T_OK(verify("copy-of-1", &all));
    tear_down();
}

/* Every single byte of header, tables and footer matters, and so does every one of the data. */
static void every_byte_counts(void)
{
    struct problems all;
    struct t_rng rng = {t_seed()};
    set_up();
    uint64_t bytes = vv_files_bytes(SIZE, 2, PAGE), padding = 4096 + SIZE;
    uint64_t tail = vv_ckfile_tail_offset(SIZE);
    for (int i = 0; i < 400; i++) {
        uint64_t at = t_rng_below(&rng, bytes);
        if (at >= padding && at < tail)
            continue; /* zeros between data and tables are not covered */
        flip("h/r0.v1.g0.ckpt", at);
        T_ERR(verify("h/r0.v1.g0.ckpt", &all), -EBADMSG);
        flip("h/r0.v1.g0.ckpt", at);
    }
    T_OK(verify("h/r0.v1.g0.ckpt", &all));
    for (uint64_t cut = 0; cut < bytes; cut += 1 + t_rng_below(&rng, 900)) {
        char from[4096], command[9000];
        snprintf(from, sizeof(from), "%s", st_path(dir, "h/r0.v1.g0.ckpt"));
        snprintf(command, sizeof(command), "head -c %llu '%s' > '%s'", (unsigned long long)cut,
                 from, st_path(dir, "cut"));
        T_OK(system(command));
        T_ERR(verify("cut", &all), -EBADMSG);
    }
    tear_down();
}

/* Reads some bytes of a file. */
static void peek(const char *name, uint64_t at, void *mem, size_t bytes)
{
    int fd = open(st_path(dir, name), O_RDONLY);
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, mem, bytes, (off_t)at), bytes);
    close(fd);
}

static void poke(const char *name, uint64_t at, const void *mem, size_t bytes)
{
    int fd = open(st_path(dir, name), O_WRONLY);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, mem, bytes, (off_t)at), bytes);
    close(fd);
}

/* An intact header of another file: each part is right, but they do not belong together. */
static void spliced_headers(void)
{
    struct problems all;
    struct vv_ckfile_header header;
    set_up();
    peek("h/r0.v1.g0.ckpt", 0, &header, sizeof(header));
    poke("h/r0.v2.g0.ckpt", 0, &header, sizeof(header));
    T_ERR(verify("h/r0.v2.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 1);
    T_STREQ(all.what[0], "header and footer are not of the same checkpoint");
    tear_down();
}

/* Correct checksums over a history name that fills its field: text is read only up to the field's end. */
static void names_without_an_end(void)
{
    static char tail[VV_STORE_ALIGN];
    struct problems all;
    struct vv_ckfile_header header;
    struct vv_ckfile_footer *footer = (void *)(tail + sizeof(tail) - sizeof(*footer));
    uint64_t at = vv_ckfile_tail_offset(SIZE);
    set_up();
    peek("h/r0.v1.g0.ckpt", 0, &header, sizeof(header));
    peek("h/r0.v1.g0.ckpt", at, tail, sizeof(tail));
    T_EQ(footer->tail_bytes, sizeof(tail));
    memset(header.history, 'x', sizeof(header.history));
    header.sum = vv_hash64(&header, offsetof(struct vv_ckfile_header, sum));
    footer->header_sum = header.sum;
    footer->tail_sum = vv_hash64(tail, sizeof(tail) - sizeof(uint64_t));
    poke("h/r0.v1.g0.ckpt", 0, &header, sizeof(header));
    poke("h/r0.v1.g0.ckpt", at, tail, sizeof(tail));
    T_ERR(verify("h/r0.v1.g0.ckpt", &all), -EBADMSG);
    T_EQ(all.n, 1);
    T_STREQ(all.what[0], "the header's history name has no end");
    tear_down();
}

static int count(void *user, const struct vv_files_found *f)
{
    int *n = user;
    n[0]++;
    n[1] += f->status == 0;
    n[2] += f->kind == VV_CKFILE_TEMP;
    T_CHECK((f->status == 0) == !!f->info);
    T_CHECK(f->status == 0 || f->error[0] != '\0');
    return 0;
}

static void scanning(void)
{
    int n[3] = {0};
    const struct vv_os *os = vv_os_posix();
    set_up();
    struct vv_files *other = st_files_open(&tier, "g");
    T_OK(st_put_version(tier.writer, other, 1, 0, 10, PAGE));
    struct st_object o;
    st_object_init(&o, other, 2, 0, 10, PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_WRITE)); /* being written */
    T_OK(truncate(st_path(dir, "h/r0.v3.g0.ckpt"), 100));
    T_OK(close(open(st_path(dir, "a-file"), O_CREAT | O_WRONLY, 0666)));
    T_OK(vv_files_scan(os, dir, NULL, count, n)); /* while other handles hold the locks */
    T_EQ(n[0], 5);
    T_EQ(n[1], 3);
    T_EQ(n[2], 1);
    memset(n, 0, sizeof(n));
    T_OK(vv_files_scan(os, dir, "h", count, n));
    T_EQ(n[0], 3);
    T_ERR(vv_files_scan(os, dir, "none", count, n), -ENOENT);
    T_ERR(vv_files_scan(os, dir, "../h", count, n), -EINVAL);
    T_ERR(vv_files_scan(os, st_path(dir, "nowhere"), NULL, count, n), -ENOENT);
    st_object_fini(&o);
    vv_files_close(other);
    tear_down();
}

/* ---- files of earlier formats ---- */

static int see_golden(void *user, const struct vv_files_entry *e)
{
    ++*(int *)user;
    T_EQ(e->version, 42);
    T_EQ(e->generation, 3);
    T_EQ(e->size, 2 * 4096 + 1000);
    T_EQ(e->run_id, 0x0123456789abcdef);
    T_EQ(e->nregions, 2);
    T_EQ(e->regions[0].id, 7);
    T_EQ(e->regions[0].bytes, (2 * 4096 + 1000) / 3);
    return 0;
}

static void copy_golden(const char *source, const char *to)
{
    char command[9000];
    snprintf(command, sizeof(command), "cp -r '%s/tests/golden/checkpoint-1/.' '%s'", source, to);
    T_OK(system(command));
}

static void golden_files(void)
{
    const char *source = getenv("SOURCE_DIR");
    if (!source) {
        t_note("SOURCE_DIR is not set: golden files not read");
        return;
    }
    struct fault_os fault;
    fault_os_init(&fault);
    for (int with_index = 0; with_index < 2; with_index++) {
        int n = 0;
        dir = t_tmpdir();
        copy_golden(source, dir);
        if (!with_index)
            T_OK(unlink(st_path(dir, "h/index.0")));
        vv_store_opts_init(&tier.opts);
        tier.opts.os = &fault.os;
        tier.opts.page_bytes = 4096;
        st_tier_open(&tier, dir);
        files = st_files_open(&tier, "h");
        T_OK(vv_files_list(files, see_golden, &n));
        T_EQ(n, 1);
        /* The index has an earlier format: it is not used, and written again. */
        T_EQ(vv_files_first_generation(files), 4);
        T_OK(st_check_version(tier.reader, files, 42, 3, 2 * 4096 + 1000, 4096));
        struct problems all;
        T_OK(verify("h/r0.v42.g3.ckpt", &all));
        tear_down();
    }
}

/* ---- files for other tests ---- */

/* For a new version of the format: tests/golden/checkpoint-N. */
static void make_golden(const char *to)
{
    struct vv_files_opts opts = {.run_id = 0x0123456789abcdef};
    vv_store_opts_init(&tier.opts);
    tier.opts.page_bytes = 4096;
    st_tier_open(&tier, to);
    T_OK(vv_files_open(tier.folder, "h", 0, &opts, NULL, 0, &files));
    T_OK(st_put_version(tier.writer, files, 42, 3, 2 * 4096 + 1000, 4096));
    T_OK(st_put_version(tier.writer, files, 43, 5, 10, 4096));
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, 43, 5}};
    T_OK(st_run(tier.writer, &io));
    tear_down();
}

/* For the tests of the commands: history "run", versions 1 to 5 of ranks 0 and 1. With hold, then keeps rank 0
 * open, with an unfinished write in it, until standard input ends. */
static void make_run(const char *to, bool hold)
{
    struct st_object o;
    char c;
    vv_store_opts_init(&tier.opts);
    tier.opts.page_bytes = PAGE;
    st_tier_open(&tier, to);
    for (uint32_t rank = 2; rank-- > 0;) {
        T_OK(vv_files_open(tier.folder, "run", rank, NULL, NULL, 0, &files));
        for (uint64_t v = 1; v <= 5; v++)
            T_OK(st_put_version(tier.writer, files, v, 0, SIZE, PAGE));
        if (rank > 0 || !hold)
            vv_files_close(files);
    }
    if (hold) {
        st_object_init(&o, files, 6, 0, SIZE, PAGE);
        T_OK(st_do(tier.writer, &o, VV_STORE_WRITE));
        printf("ready\n");
        fflush(stdout);
        while (read(STDIN_FILENO, &c, 1) > 0)
            continue;
        st_object_fini(&o);
        vv_files_close(files);
    }
    st_tier_close(&tier);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        if (strcmp(argv[1], "make-golden") == 0)
            make_golden(argv[2]);
        else
            make_run(argv[2], strcmp(argv[1], "hold-run") == 0);
        return 0;
    }
    T_RUN(problems_are_named);
    T_RUN(every_byte_counts);
    T_RUN(spliced_headers);
    T_RUN(names_without_an_end);
    T_RUN(scanning);
    T_RUN(golden_files);
    return t_done();
}
