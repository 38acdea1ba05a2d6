/* SPDX-License-Identifier: Apache-2.0 */
/* The share of the disk's speed that the stores reach: write and read of page batches, as the movers do them,
 * against fio with the same block size, mode and queue depth on the same disk in the same run.
 *
 *   bench_disk [--dir FOLDER] [--mib N] [--object-mib N] [--batch PAGES] [--depth N] [--rounds N]
 *              [--buffered] [--backend uring|threads] [--store files|spill] [--no-fio]
 *              [--min RATIO]
 *
 * Each round writes and reads with the store, then with fio, so that a disk whose speed drifts
 * treats both alike; the ratio is of the medians. Every byte read is compared with what was written
 * (after the store has verified its checksum), while later batches are in flight. Writing counts to
 * the end of the last commit (files) or transfer (spill); fio's ends with an fsync for files. With
 * --min the exit status is 1 if a ratio is below it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "store/store.h"

#define ROUNDS_MAX 32

struct bench {
    const char *dir;
    uint64_t bytes, object_bytes;
    uint32_t page, batch_pages, depth, rounds;
    bool buffered, spill, fio, no_fio;
    double min_ratio;
    enum vv_aio_backend backend;
    struct vv_folder *folder;
    struct vv_files *files;
    struct vv_spill *spill_file;
    struct vv_store *writer, *reader;
    uint64_t generation;
    void *template_page;
};

struct slot {
    struct vv_store_io io;
    void **mem;
    uint32_t *pages;
};

static void die(const char *what, int rc)
{
    fprintf(stderr, "bench_disk: %s: %s\n", what, strerror(-rc));
    exit(2);
}

static uint64_t word(uint64_t object, uint64_t at)
{
    return (object * 0x9e3779b97f4a7c15u) ^ (at * 0xd1342543de82ef95u);
}

/* A page is the same everywhere except one word in each 4 KiB with its place: data costs almost nothing to make,
 * as with fio, and every byte can still be checked. */
#define STAMP 4096u

static void page_init(void *page, uint32_t bytes)
{
    uint64_t *p = page;
    for (uint32_t i = 0; i < bytes / 8; i++)
        p[i] = word(12345, i);
}

static void fill(void *page, uint64_t object, uint64_t begin, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += STAMP)
        *(uint64_t *)((char *)page + at) = word(object, begin + at);
}

static bool same(const void *page, const void *want, uint64_t object, uint64_t begin,
                 uint32_t bytes)
{
    bool ok = true;
    for (uint32_t at = 0; at < bytes; at += STAMP) {
        const char *p = (const char *)page + at;
        ok = ok && *(const uint64_t *)p == word(object, begin + at) &&
             memcmp(p + 8, (const char *)want + at + 8, STAMP - 8) == 0;
    }
    return ok;
}

static struct slot *slots_new(const struct bench *b)
{
    struct slot *slots = calloc(b->depth, sizeof(*slots));
    for (uint32_t s = 0; slots && s < b->depth; s++) {
        slots[s].mem = calloc(b->batch_pages, sizeof(void *));
        slots[s].pages = calloc(b->batch_pages, sizeof(uint32_t));
        for (uint32_t i = b->batch_pages; slots[s].mem && i-- > 0;) {
            if (posix_memalign(&slots[s].mem[i], 4096, b->page) != 0)
                die("memory", -ENOMEM);
            page_init(slots[s].mem[i], b->page);
        }
        if (!slots[s].mem || !slots[s].pages)
            die("memory", -ENOMEM);
    }
    return slots;
}

static void slots_free(const struct bench *b, struct slot *slots)
{
    for (uint32_t s = 0; s < b->depth; s++) {
        for (uint32_t i = 0; i < b->batch_pages; i++)
            free(slots[s].mem[i]);
        free(slots[s].mem);
        free(slots[s].pages);
    }
    free(slots);
}

static void prepare(struct bench *b, struct slot *s, enum vv_store_op op, uint64_t batch)
{
    uint32_t per_object = (uint32_t)(b->object_bytes / b->page / b->batch_pages);
    uint64_t object = batch / per_object;
    s->io = (struct vv_store_io){.op = op,
                                 .key = {b->files, object, b->generation},
                                 .size = b->object_bytes,
                                 .chunk0 = (uint32_t)(batch % per_object) * b->batch_pages,
                                 .nchunks = b->batch_pages,
                                 .mem = s->mem,
                                 .user = s};
    for (uint32_t i = 0; i < b->batch_pages; i++)
        s->pages[i] = (uint32_t)(batch * b->batch_pages + i);
    s->io.pages = b->spill ? s->pages : NULL;
}

static void finish(struct bench *b, struct slot *s)
{
    if (s->io.status < 0)
        die("transfer", s->io.status);
    if (s->io.op != VV_STORE_READ)
        return;
    for (uint32_t i = 0; i < b->batch_pages; i++)
        if (!same(s->mem[i], b->template_page, s->io.key.version,
                  (uint64_t)(s->io.chunk0 + i) * b->page, b->page)) {
            fprintf(stderr, "bench_disk: wrong bytes in object %llu\n",
                    (unsigned long long)s->io.key.version);
            exit(2);
        }
}

/* Commits of objects run beside the writes of the next. */
struct commits {
    struct vv_store_io *io;
    uint32_t *left; /* batches of each object still to be written */
    struct vv_store_region region;
    struct vv_store_meta meta;
};

static void commit_when_written(struct bench *b, struct commits *c, uint64_t object)
{
    if (b->spill || --c->left[object] > 0)
        return;
    c->io[object] = (struct vv_store_io){.op = VV_STORE_COMMIT,
                                         .key = {b->files, object, b->generation},
                                         .size = b->object_bytes,
                                         .meta = &c->meta};
    int rc = b->writer->ops->submit(b->writer, &c->io[object]);
    if (rc < 0)
        die("commit", rc);
}

static double run(struct bench *b, enum vv_store_op op)
{
    struct vv_store *store = op == VV_STORE_WRITE ? b->writer : b->reader;
    uint64_t objects = b->bytes / b->object_bytes;
    uint64_t batches = b->bytes / ((uint64_t)b->page * b->batch_pages), next = 0;
    uint64_t left = batches + (op == VV_STORE_WRITE && !b->spill ? objects : 0);
    struct slot *slots = slots_new(b);
    struct commits c = {.io = calloc(objects, sizeof(*c.io)),
                        .left = calloc(objects, sizeof(*c.left)),
                        .region = {.id = 0, .bytes = b->object_bytes}};
    c.meta = (struct vv_store_meta){.nregions = 1, .regions = &c.region};
    for (uint64_t i = 0; i < objects; i++)
        c.left[i] = (uint32_t)(batches / objects);
    uint64_t begin = vv_now_ns();
    struct vv_store_io *done[64];
    for (uint32_t ready = b->depth; left > 0;) {
        static struct slot *idle[1024];
        if (next == 0)
            for (uint32_t s = 0; s < b->depth; s++)
                idle[s] = &slots[s];
        while (ready > 0 && next < batches) {
            struct slot *s = idle[--ready];
            prepare(b, s, op, next++);
            for (uint32_t i = 0; i < b->batch_pages && op == VV_STORE_WRITE; i++)
                fill(s->mem[i], s->io.key.version, (uint64_t)(s->io.chunk0 + i) * b->page, b->page);
            int rc = store->ops->submit(store, &s->io);
            if (rc < 0)
                die("submit", rc);
        }
        int n = store->ops->poll(store, done, VV_ARRAY_SIZE(done), -1);
        for (int i = 0; i < n; i++, left--) {
            if (done[i]->op == VV_STORE_COMMIT) {
                if (done[i]->status < 0)
                    die("commit", done[i]->status);
                continue;
            }
            struct slot *s = done[i]->user;
            finish(b, s);
            idle[ready++] = s;
            if (op == VV_STORE_WRITE)
                commit_when_written(b, &c, s->io.key.version);
        }
    }
    double seconds = (double)(vv_now_ns() - begin) / 1e9;
    slots_free(b, slots);
    free(c.io);
    free(c.left);
    return (double)b->bytes / 1e9 / seconds;
}

static void remove_objects(struct bench *b)
{
    if (b->spill)
        return;
    for (uint64_t i = 0; i < b->bytes / b->object_bytes; i++) {
        struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {b->files, i, b->generation}};
        struct vv_store_io *done;
        if (b->writer->ops->submit(b->writer, &io) < 0)
            die("remove", -EINVAL);
        while (b->writer->ops->poll(b->writer, &done, 1, -1) == 0)
            continue;
    }
    b->generation++;
}

/* GB/s by fio, or 0 if it does not run here. */
static double fio(const struct bench *b, const char *rw)
{
    char command[1024], line[4096], path[1024];
    snprintf(path, sizeof(path), "%s/fio.data", b->dir);
    if (strcmp(rw, "write") == 0)
        unlink(path); /* new blocks, as ours are */
    snprintf(command, sizeof(command),
             "fio --name=disk --filename='%s/fio.data' --size=%lluM --bs=%lluk --iodepth=%u "
             "--ioengine=io_uring --direct=%d --rw=%s --fallocate=posix %s --minimal 2>/dev/null",
             b->dir, (unsigned long long)(b->bytes >> 20),
             (unsigned long long)b->page * b->batch_pages >> 10, b->depth, !b->buffered, rw,
             strcmp(rw, "write") == 0 && !b->spill ? "--end_fsync=1" : "");
    FILE *f = popen(command, "r");
    if (!f)
        return 0;
    double kib[64] = {0};
    int field = 0;
    if (fgets(line, sizeof(line), f))
        for (char *at = line; at && field < 64; field++) {
            kib[field] = strtod(at, NULL);
            at = strchr(at, ';');
            at = at ? at + 1 : NULL;
        }
    if (pclose(f) != 0)
        return 0;
    return (strcmp(rw, "write") == 0 ? kib[47] : kib[6]) * 1024 / 1e9;
}

static void open_store(struct bench *b)
{
    char err[256] = "";
    struct vv_store_opts opts;
    vv_store_opts_init(&opts);
    opts.mode = b->buffered ? VV_STORE_BUFFERED : VV_STORE_DIRECT;
    opts.backend = b->backend;
    opts.page_bytes = b->page;
    opts.depth = 2 * b->depth; /* room for commits beside the transfers */
    int rc;
    if (b->spill) {
        rc = vv_spill_new(b->dir, b->bytes, &opts, err, sizeof(err), &b->spill_file);
        if (rc == 0)
            rc = vv_spill_store(b->spill_file, &b->writer);
        if (rc == 0)
            rc = vv_spill_store(b->spill_file, &b->reader);
    } else {
        rc = vv_folder_new(b->dir, &opts, err, sizeof(err), &b->folder);
        if (rc == 0)
            rc = vv_files_open(b->folder, "bench", 0, NULL, err, sizeof(err), &b->files);
        if (rc == 0)
            rc = vv_folder_store(b->folder, &b->writer);
        if (rc == 0)
            rc = vv_folder_store(b->folder, &b->reader);
        if (rc == 0)
            b->generation = vv_files_first_generation(b->files);
    }
    if (rc < 0)
        die(err, rc);
}

static void close_store(struct bench *b)
{
    b->writer->ops->close(b->writer);
    b->reader->ops->close(b->reader);
    vv_files_close(b->files);
    vv_folder_free(b->folder);
    vv_spill_free(b->spill_file);
}

static int set_bytes(const char *value, void *arg)
{
    struct bench *b = arg;
    int rc = opts_number(value, 1, UINT32_MAX, &b->bytes);
    b->bytes <<= 20;
    return rc;
}

static int set_object(const char *value, void *arg)
{
    struct bench *b = arg;
    int rc = opts_number(value, 1, UINT32_MAX, &b->object_bytes);
    b->object_bytes <<= 20;
    return rc;
}

static int set_backend(const char *value, void *arg)
{
    bool threads = strcmp(value, "threads") == 0;
    ((struct bench *)arg)->backend = threads ? VV_AIO_THREADS : VV_AIO_URING;
    return threads || strcmp(value, "uring") == 0 ? 0 : -EINVAL;
}

static int set_store(const char *value, void *arg)
{
    bool spill = strcmp(value, "spill") == 0;
    ((struct bench *)arg)->spill = spill;
    return spill || strcmp(value, "files") == 0 ? 0 : -EINVAL;
}

#define AT(field) offsetof(struct bench, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "dir", .arg = "FOLDER", .help = "where files are made", .at = AT(dir)},
    {OPT_SET, .name = "mib", .arg = "N", .set = set_bytes, .takes = "a whole number from 1 on",
     .help = "written and read in a round"},
    {OPT_SET, .name = "object-mib", .arg = "N", .set = set_object,
     .takes = "a whole number from 1 on", .help = "of a version"},
    {OPT_U32, .name = "batch", .arg = "PAGES", .at = AT(batch_pages), .least = 1,
     .help = "of a transfer"},
    {OPT_U32, .name = "depth", .arg = "N", .at = AT(depth), .least = 1, .most = 512,
     .help = "transfers under way at once"},
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "rounds, whose median counts"},
    {OPT_FLAG, .name = "buffered", .help = "through the page cache", .at = AT(buffered)},
    {OPT_SET, .name = "backend", .arg = "NAME", .set = set_backend, .help = "uring or threads",
     .takes = "uring or threads"},
    {OPT_SET, .name = "store", .arg = "NAME", .set = set_store, .help = "files or spill",
     .takes = "files or spill"},
    {OPT_FLAG, .name = "no-fio", .help = "do not compare with fio", .at = AT(no_fio)},
    {OPT_REAL, .name = "min", .arg = "RATIO", .at = AT(min_ratio), .high = 1e6,
     .help = "exit 1 if a ratio is below this"},
};

static const struct opts command = {
    .command = "bench_disk",
    .usage = "[OPTION]...",
    .about = "Compares the stores with fio on the same disk.",
    OPT_LIST(options),
};

static void parse(int argc, char **argv, struct bench *b)
{
    int first, status = opts_parse(&command, argc, argv, b, &first);
    if (status >= 0)
        exit(status);
    b->fio = !b->no_fio;
    uint64_t batch = (uint64_t)b->page * b->batch_pages;
    if (b->object_bytes % batch != 0 || b->bytes % b->object_bytes != 0) {
        fprintf(stderr, "bench_disk: sizes must be multiples: batch, object, all\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.dir = ".",
                      .bytes = UINT64_C(2) << 30,
                      .object_bytes = UINT64_C(128) << 20,
                      .page = VV_PAGE_BYTES_DEFAULT,
                      .batch_pages = 16,
                      .depth = 4,
                      .rounds = 3,
                      .fio = true,
                      .backend = VV_AIO_AUTO};
    parse(argc, argv, &b);
    double ours[2][ROUNDS_MAX], theirs[2][ROUNDS_MAX];
    b.template_page = malloc(b.page);
    if (!b.template_page)
        die("memory", -ENOMEM);
    page_init(b.template_page, b.page);
    open_store(&b);
    printf("%s %s, %llu MiB in objects of %llu MiB, batches of %u KiB, depth %u\n",
           b.spill ? "spill" : "files", b.buffered ? "buffered" : "direct",
           (unsigned long long)(b.bytes >> 20), (unsigned long long)(b.object_bytes >> 20),
           b.page * b.batch_pages >> 10, b.depth);
    for (uint32_t r = 0; r < b.rounds; r++) {
        ours[0][r] = run(&b, VV_STORE_WRITE);
        theirs[0][r] = b.fio ? fio(&b, "write") : 0;
        ours[1][r] = run(&b, VV_STORE_READ);
        theirs[1][r] = b.fio ? fio(&b, "read") : 0;
        remove_objects(&b);
        printf("round %u: write %.2f (fio %.2f), read %.2f (fio %.2f) GB/s\n", r + 1, ours[0][r],
               theirs[0][r], ours[1][r], theirs[1][r]);
    }
    close_store(&b);
    free(b.template_page);
    char path[4096];
    snprintf(path, sizeof(path), "%s/fio.data", b.dir);
    unlink(path);
    bool low = false;
    for (int i = 0; i < 2; i++) {
        double o = samples_median(ours[i], b.rounds), f = samples_median(theirs[i], b.rounds);
        printf("%s: %.2f GB/s", i == 0 ? "write" : "read", o);
        if (f > 0)
            printf(", fio %.2f GB/s, ratio %.3f", f, o / f);
        printf("\n");
        low |= f > 0 && o / f < b.min_ratio;
    }
    return low ? 1 : 0;
}
