/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files: written data is read back, also while others record; damaged data is skipped and
 * never trusted; rules for writers. */
#include "trace/file.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "t.h"
#include "trace/format.h"
#include "trace/timeline.h"
#include "trace/trace.h"
#include "trace/write.h"

static char path[1024];

static void new_path(void)
{
    snprintf(path, sizeof(path), "%s/t.vtrace", t_tmpdir());
}

static struct vv_trace_file *must_read(const char *file)
{
    struct vv_trace_file *f;
    char err[256] = "";
    int rc = vv_trace_file_open(file, err, sizeof(err), &f);

    if (rc)
        t_fail(__FILE__, __LINE__, "%s", err);
    return f;
}

static void must_start(void)
{
    char err[256] = "";
    int rc = vv_trace_write_start(path, err, sizeof(err));

    if (rc)
        t_fail(__FILE__, __LINE__, "%s", err);
}

static size_t count_kind(const struct vv_trace_file *f, uint32_t kind)
{
    size_t n = 0;

    for (size_t i = 0; i < f->nrecords; i++)
        n += f->records[i].kind == kind;
    return n;
}

static const struct vv_trace_record *find_kind(const struct vv_trace_file *f, uint32_t kind)
{
    for (size_t i = 0; i < f->nrecords; i++)
        if (f->records[i].kind == kind)
            return &f->records[i];
    return NULL;
}

static void round_trip(void)
{
    static const unsigned char picture[5] = {0, 1, 255, 0, 7};
    uint64_t before = vv_now_ns();

    new_path();
    must_start();
    T_CHECK(vv_trace_writing() && vv_trace_enabled());
    vv_trace(VV_TRACE_PHASE_BEGIN, vv_trace_name("forward"), 0, 0, 0);
    vv_trace5(VV_TRACE_CALL_END, 1, 2, 3, 4, (uint64_t)-EIO);
    vv_trace(VV_TRACE_PHASE_END, 0, 0, 0, 0);
    T_OK(vv_trace_meta(7, "config.policy", "next"));
    T_OK(vv_trace_meta(7, "config.policy", "score"));
    T_OK(vv_trace_note("grid", "12 x 13"));
    T_OK(vv_trace_attach("image", "image/png", picture, sizeof(picture)));
    T_OK(vv_trace_attach("empty", "text/plain", NULL, 0));
    T_OK(vv_trace_meta_machine());
    T_OK(vv_trace_write_stop());
    T_CHECK(!vv_trace_writing() && !vv_trace_enabled());

    struct vv_trace_file *f = must_read(path);
    T_CHECK(f->complete);
    T_EQ(f->lost, 0);
    T_EQ(f->damaged_bytes, 0);
    T_EQ(f->unknown_blocks, 0);
    T_EQ(f->pid, getpid());
    T_CHECK(f->clock_ns >= before && f->clock_ns <= vv_now_ns());
    T_EQ(count_kind(f, VV_TRACE_THREAD), 1);
    T_EQ(f->nrecords, 4);
    const struct vv_trace_record *r = find_kind(f, VV_TRACE_PHASE_BEGIN);
    T_STREQ(vv_trace_file_name(f, r->arg[0]), "forward");
    r = find_kind(f, VV_TRACE_CALL_END);
    for (uint64_t i = 0; i < 4; i++)
        T_EQ(r->arg[i], i + 1);
    T_EQ((int64_t)r->arg[4], -EIO);
    T_EQ(r->thread, gettid());
    T_STREQ(vv_trace_file_kind(f, VV_TRACE_CALL_END), "call-end");
    T_STREQ(vv_trace_file_arg(f, VV_TRACE_CALL_END, 4), "status");
    T_STREQ(vv_trace_file_arg(f, VV_TRACE_CALL_END, 5), "");
    T_STREQ(vv_trace_file_kind(f, 999), "?");
    T_STREQ(vv_trace_file_meta(f, 7, "config.policy"), "score");
    T_CHECK(!vv_trace_file_meta(f, 8, "config.policy"));
    T_CHECK(!vv_trace_file_meta(f, 0, "grid"));
    T_STREQ(vv_trace_file_note(f, "grid"), "12 x 13");
    T_CHECK(vv_trace_file_meta(f, 0, "kernel") && vv_trace_file_meta(f, 0, "memory"));
    const struct vv_trace_attachment *a = vv_trace_file_attachment(f, "image");
    T_CHECK(a && a->size == sizeof(picture) && memcmp(a->bytes, picture, a->size) == 0);
    T_STREQ(a->type, "image/png");
    T_EQ(vv_trace_file_attachment(f, "empty")->size, 0);
    T_CHECK(!vv_trace_file_attachment(f, "none"));
    vv_trace_file_free(f);
    vv_trace_file_free(NULL);
}

/* Clocks are coarse: events of one thread stay in their order within an instant. */
static void same_instant(void)
{
    uint64_t now = vv_now_ns();

    new_path();
    must_start();
    for (uint64_t i = 0; i < 100; i++)
        vv_trace_at(now, VV_TRACE_CALL_END, (uint64_t[VV_TRACE_ARGS]){i});
    T_OK(vv_trace_write_stop());
    struct vv_trace_file *f = must_read(path);
    uint64_t want = 0;
    for (size_t i = 0; i < f->nrecords; i++)
        if (f->records[i].kind == VV_TRACE_CALL_END)
            T_EQ(f->records[i].arg[0], want++);
    T_EQ(want, 100);
    vv_trace_file_free(f);
}

/* Without a file everything is accepted and nothing happens. */
static void off(void)
{
    T_OK(vv_trace_note("a", "b"));
    T_OK(vv_trace_meta(1, "a", "b"));
    T_OK(vv_trace_attach("a", "b", "c", 1));
    T_OK(vv_trace_flush());
    T_CHECK(!vv_trace_enabled());
}

static void names_are_numbers(void)
{
    char text[300];
    uint32_t a = vv_trace_name("one"), b = vv_trace_name("two");

    T_CHECK(a != b);
    T_EQ(vv_trace_name("one"), a);
    T_EQ(vv_trace_name(NULL), VV_TRACE_NAME_UNNAMED);
    memset(text, 'x', sizeof(text));
    text[299] = '\0';
    uint32_t cut = vv_trace_name(text);
    text[VV_TRACE_NAME_BYTES] = '\0';
    T_EQ(vv_trace_name(text), cut);
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof(text), "step %d", i);
        (void)vv_trace_name(text);
    }
    T_EQ(vv_trace_name("one more than there is room for"), VV_TRACE_NAME_OTHER);
    T_EQ(vv_trace_name("two"), b);
}

/* Flushed data is in the file, which can be read although it was not ended. */
static void killed(void)
{
    new_path();
    pid_t pid = fork();
    if (pid == 0) {
        must_start();
        for (uint64_t i = 0; i < 1000; i++)
            vv_trace(VV_TRACE_HINT, i, 0, 0, 0);
        T_OK(vv_trace_flush());
        raise(SIGKILL);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct vv_trace_file *f = must_read(path);
    T_CHECK(!f->complete);
    T_EQ(f->damaged_bytes, 0);
    T_EQ(f->pid, pid);
    T_EQ(count_kind(f, VV_TRACE_HINT), 1000);
    vv_trace_file_free(f);
}

static void expect_refusal(const char *file, int want, const char *word)
{
    char err[256] = "";

    T_ERR(vv_trace_write_start(file, err, sizeof(err)), want);
    if (!strstr(err, word))
        t_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", err, word);
    T_CHECK(!vv_trace_writing());
}

static void write_text(const char *file, const char *text)
{
    FILE *f = fopen(file, "w");
    T_CHECK(f && fputs(text, f) >= 0);
    T_EQ(fclose(f), 0);
}

static void refusals(void)
{
    char other[1100], err[256];
    const char *dir = t_tmpdir();
    struct stat st;

    new_path();
    snprintf(other, sizeof(other), "%s/none/t", dir);
    expect_refusal(other, -ENOENT, "none/t");
    expect_refusal(dir, -EISDIR, dir);
    snprintf(other, sizeof(other), "%s/fifo", dir);
    T_EQ(mkfifo(other, 0600), 0);
    expect_refusal(other, -EINVAL, "not a file");
    write_text(path, "the work of years\n");
    expect_refusal(path, -EEXIST, "not a trace");
    T_EQ(stat(path, &st), 0);
    T_EQ(st.st_size, 18);
    T_EQ(unlink(path), 0);

    /* One at a time in a process, and one process in a file. */
    must_start();
    must_start();
    snprintf(other, sizeof(other), "%s/other", dir);
    T_ERR(vv_trace_write_start(other, err, sizeof(err)), -EBUSY);
    T_CHECK(strstr(err, path));
    pid_t pid = fork();
    if (pid == 0) {
        T_CHECK(!vv_trace_enabled() && !vv_trace_writing());
        expect_refusal(path, -EBUSY, "another process");
#ifndef __SANITIZE_THREAD__ /* which cannot start threads in the child of a process with threads */
        T_OK(vv_trace_write_start(other, err, sizeof(err)));
        T_OK(vv_trace_write_stop());
#endif
        _exit(0);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    T_OK(vv_trace_write_stop());
    T_CHECK(vv_trace_writing());
    T_OK(vv_trace_write_stop());
    T_CHECK(!vv_trace_writing());
#ifndef __SANITIZE_THREAD__
    struct vv_trace_file *f = must_read(other);
    T_CHECK(f->complete && f->pid == (uint64_t)pid);
    vv_trace_file_free(f);
#endif
}

/* Starting the same file again in one process continues it; another process replaces it. */
static void again(void)
{
    new_path();
    for (int i = 0; i < 3; i++) {
        must_start();
        vv_trace(VV_TRACE_HINT, (uint64_t)i, 0, 0, 0);
        T_OK(vv_trace_write_stop());
        vv_trace(VV_TRACE_HINT, 99, 0, 0, 0); /* no file is open */
    }
    struct vv_trace_file *f = must_read(path);
    T_CHECK(f->complete);
    T_EQ(count_kind(f, VV_TRACE_HINT), 3);
    T_EQ(count_kind(f, VV_TRACE_THREAD), 3);
    vv_trace_file_free(f);
    pid_t pid = fork();
    if (pid == 0) {
        must_start();
        T_OK(vv_trace_write_stop());
        _exit(0);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    f = must_read(path);
    T_EQ(count_kind(f, VV_TRACE_HINT), 0);
    vv_trace_file_free(f);
}

/* No more room: tracing stops, the written part stays readable, and calls still succeed. */
static void full(void)
{
    new_path();
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {200000, 200000};
        must_start();
        T_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        int rc = 0;
        for (uint64_t i = 0; i < 1000 && rc == 0; i++) {
            for (int k = 0; k < 500; k++)
                vv_trace(VV_TRACE_HINT, i, 0, 0, 0);
            rc = vv_trace_flush();
        }
        T_EQ(rc, -EFBIG);
        T_CHECK(!vv_trace_enabled());
        T_OK(vv_trace_note("late", "x"));
        T_ERR(vv_trace_flush(), -EFBIG);
        T_ERR(vv_trace_write_stop(), -EFBIG);
        T_OK(vv_trace_flush());
        _exit(0);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct vv_trace_file *f = must_read(path);
    T_CHECK(!f->complete);
    T_EQ(f->damaged_bytes, 0);
    T_CHECK(count_kind(f, VV_TRACE_HINT) >= 1000);
    vv_trace_file_free(f);
}

enum { WRITERS = 4, EVENTS = 20000 };

static void *record(void *arg)
{
    uint64_t who = (uint64_t)(uintptr_t)arg;

    for (uint64_t i = 0; i < EVENTS; i++) {
        vv_trace5(VV_TRACE_COPY_START, who, i, ~i, i * 3, who ^ i);
        if (i % 512 == 0)
            vv_sleep_until_ns(vv_now_ns() + 100000);
    }
    return NULL;
}

/* Several threads record while the file is written: every record is whole, in order, and either
 * there or counted as lost. */
static void while_recording(void)
{
    pthread_t thread[WRITERS];
    uint64_t next[WRITERS] = {0}, seen = 0;

    new_path();
    must_start();
    for (uintptr_t i = 0; i < WRITERS; i++)
        T_EQ(pthread_create(&thread[i], NULL, record, (void *)i), 0);
    for (int i = 0; i < 20; i++) {
        T_OK(vv_trace_note("round", "x"));
        T_OK(vv_trace_flush());
    }
    for (int i = 0; i < WRITERS; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
    T_OK(vv_trace_write_stop());
    struct vv_trace_file *f = must_read(path);
    for (size_t i = 0; i < f->nrecords; i++) {
        const struct vv_trace_record *r = &f->records[i];
        if (r->kind != VV_TRACE_COPY_START)
            continue;
        T_CHECK(r->arg[0] < WRITERS && r->arg[2] == ~r->arg[1] && r->arg[3] == r->arg[1] * 3 &&
                r->arg[4] == (r->arg[0] ^ r->arg[1]));
        T_CHECK(r->arg[1] >= next[r->arg[0]]);
        next[r->arg[0]] = r->arg[1] + 1;
        seen++;
    }
    T_EQ(seen + f->lost, WRITERS * EVENTS);
    T_EQ(f->npairs, 20);
    vv_trace_file_free(f);
}

static void *come_and_go(void *arg)
{
    char name[32];

    snprintf(name, sizeof(name), "thread %d", (int)(uintptr_t)arg);
    for (int i = 0; i < 50; i++) {
        must_start();
        vv_trace(VV_TRACE_PHASE_BEGIN, vv_trace_name(name), 0, 0, 0);
        T_OK(vv_trace_note(name, "x"));
        if (i % 4 == 0)
            T_OK(vv_trace_flush());
        T_OK(vv_trace_write_stop());
        T_OK(vv_trace_note("some writer", "x")); /* there may be no writer */
    }
    return NULL;
}

/* Contexts open and close in several threads: each continues the file, and leaves it whole. */
static void started_and_stopped_at_once(void)
{
    pthread_t thread[WRITERS];
    char name[32];

    new_path();
    for (uintptr_t i = 0; i < WRITERS; i++)
        T_EQ(pthread_create(&thread[i], NULL, come_and_go, (void *)i), 0);
    for (int i = 0; i < WRITERS; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
    T_CHECK(!vv_trace_writing() && !vv_trace_enabled());
    struct vv_trace_file *f = must_read(path);
    T_CHECK(f->complete && f->damaged_bytes == 0 && f->lost == 0);
    T_EQ(count_kind(f, VV_TRACE_PHASE_BEGIN), WRITERS * 50);
    for (int i = 0; i < WRITERS; i++) {
        size_t notes = 0;
        snprintf(name, sizeof(name), "thread %d", i);
        for (size_t k = 0; k < f->npairs; k++)
            notes += strcmp(f->pairs[k].key, name) == 0;
        T_EQ(notes, 50);
    }
    vv_trace_file_free(f);
}

/* More records than the ring holds before the writer can take them. */
static void losses_are_counted(void)
{
    new_path();
    must_start();
    T_OK(vv_trace_flush());
    for (uint64_t i = 0; i < 8 * VV_TRACE_RING_DEFAULT; i++)
        vv_trace5(VV_TRACE_HINT, i, ~i, i * 3, i << 7, i ^ 99);
    T_OK(vv_trace_write_stop());
    struct vv_trace_file *f = must_read(path);
    uint64_t reported = 0;
    for (size_t i = 0; i < f->nrecords; i++) {
        const uint64_t *arg = f->records[i].arg;
        if (f->records[i].kind == VV_TRACE_LOST)
            reported += arg[0];
        if (f->records[i].kind == VV_TRACE_HINT) /* the ring came round while it was drained */
            T_CHECK(arg[1] == ~arg[0] && arg[2] == arg[0] * 3 && arg[3] == arg[0] << 7 &&
                    arg[4] == (arg[0] ^ 99));
    }
    T_EQ(reported, f->lost);
    /* The thread's announcement is one more. */
    T_EQ(count_kind(f, VV_TRACE_HINT) + count_kind(f, VV_TRACE_THREAD) + f->lost,
         8 * VV_TRACE_RING_DEFAULT + 1);
    t_note("%llu of %d were lost", (unsigned long long)f->lost, 8 * VV_TRACE_RING_DEFAULT);
    vv_trace_file_free(f);
}

/* ---- damage ---- */

static char *read_bytes(size_t *ret_size)
{
    FILE *f = fopen(path, "r");
    char *bytes = malloc(1 << 20);
    T_CHECK(f && bytes);
    *ret_size = fread(bytes, 1, 1 << 20, f);
    T_CHECK(*ret_size > 4096 && *ret_size < 1 << 20);
    fclose(f);
    return bytes;
}

static void make_sample(void)
{
    char text[64];

    new_path();
    must_start();
    for (uint64_t i = 0; i < 40; i++) {
        snprintf(text, sizeof(text), "value %d", (int)i);
        vv_trace(VV_TRACE_HINT, i, 0, 0, 0);
        vv_trace(VV_TRACE_PHASE_BEGIN, vv_trace_name(text), 0, 0, 0);
        T_OK(vv_trace_note("key", text));
        T_OK(vv_trace_attach(text, "text/plain", text, sizeof(text)));
        T_OK(vv_trace_flush());
    }
    T_OK(vv_trace_write_stop());
}

/* Reads all that a file offers, so that a bad pointer shows. */
static void look_at_all(const struct vv_trace_file *f)
{
    size_t sum = 0;

    for (size_t i = 0; i < f->nrecords; i++)
        sum += f->records[i].arg[0] + strlen(vv_trace_file_kind(f, f->records[i].kind)) +
               strlen(vv_trace_file_name(f, f->records[i].arg[0]));
    for (size_t i = 0; i < f->npairs; i++)
        sum += strlen(f->pairs[i].key) + strlen(f->pairs[i].value);
    for (size_t i = 0; i < f->nattachments; i++)
        sum += strlen(f->attachments[i].name) + strlen(f->attachments[i].type) +
               vv_hash64(f->attachments[i].bytes, f->attachments[i].size);
    T_CHECK(sum != 1);
}

static void any_damage(void)
{
    struct t_rng rng = {t_seed()};
    size_t size;
    char err[256];

    make_sample();
    char *good = read_bytes(&size), *bad = malloc(size);
    T_CHECK(bad);
    struct vv_trace_file *whole = must_read(path);
    for (uint64_t n = t_cases(2000, 100000); n-- > 0;) {
        struct vv_trace_file *f;
        size_t length = t_rng_below(&rng, 3) ? size : t_rng_below(&rng, size);
        memcpy(bad, good, size);
        for (uint64_t k = t_rng_below(&rng, 4); k-- > 0 && length > 0;) {
            size_t at = t_rng_below(&rng, length), run = 1 + t_rng_below(&rng, 64);
            for (size_t i = at; i < length && i < at + run; i++)
                bad[i] = (char)t_rng_u64(&rng);
        }
        int rc = vv_trace_file_parse(bad, length, err, sizeof(err), &f);
        if (rc) {
            T_CHECK(rc == -EINVAL || rc == -ENOTSUP);
            continue;
        }
        look_at_all(f);
        T_CHECK(f->nrecords <= whole->nrecords && f->npairs <= whole->npairs);
        if (memcmp(bad, good, length) != 0 && length == size)
            T_CHECK(f->damaged_bytes > 0);
        vv_trace_file_free(f);
    }
    vv_trace_file_free(whole);
    free(good);
    free(bad);
}

/* One broken block costs that block. */
static void rest_is_read(void)
{
    size_t size;
    char err[256];
    struct vv_trace_file *f;

    make_sample();
    char *bytes = read_bytes(&size);
    bytes[size / 2] ^= 1;
    T_OK(vv_trace_file_parse(bytes, size, err, sizeof(err), &f));
    T_CHECK(f->damaged_bytes > 0 && f->damaged_bytes < 4096);
    T_CHECK(f->complete);
    T_CHECK(count_kind(f, VV_TRACE_HINT) >= 39 && f->npairs >= 39 && f->nattachments >= 39);
    vv_trace_file_free(f);
    bytes[size / 2] ^= 1;
    bytes[8] ^= 0x10; /* the format, and with it the sum of the header: only the clock is lost */
    T_OK(vv_trace_file_parse(bytes, size, err, sizeof(err), &f));
    T_EQ(count_kind(f, VV_TRACE_HINT), 40);
    T_EQ(f->wall_ns, 0);
    vv_trace_file_free(f);
    ((struct vv_trace_head *)(void *)bytes)->sum =
        vv_hash64(bytes, offsetof(struct vv_trace_head, sum));
    T_ERR(vv_trace_file_parse(bytes, size, err, sizeof(err), &f), -ENOTSUP);
    T_ERR(vv_trace_file_parse(bytes, 7, err, sizeof(err), &f), -EINVAL);
    T_ERR(vv_trace_file_open("/nowhere/at/all", err, sizeof(err), &f), -ENOENT);
    free(bytes);
}

/* Malformed payloads with correct sums. */
static void hostile(void)
{
    struct t_rng rng = {t_seed() + 1};
    _Alignas(8) char bytes[64 + 4096];
    char err[256];

    for (uint64_t n = t_cases(20000, 200000); n-- > 0;) {
        struct vv_trace_head head = {
            .magic = VV_TRACE_MAGIC, .format = VV_TRACE_FORMAT, .head_bytes = sizeof(head)};
        struct vv_trace_file *f;
        size_t at = sizeof(head), blocks = 1 + t_rng_below(&rng, 4);
        head.sum = vv_hash64(&head, offsetof(struct vv_trace_head, sum));
        memcpy(bytes, &head, sizeof(head));
        while (blocks-- > 0) {
            size_t payload = t_rng_below(&rng, 300);
            struct vv_trace_block b = {.magic = VV_TRACE_BLOCK_MAGIC,
                                       .type = (uint32_t)t_rng_below(&rng, 9),
                                       .bytes = payload};
            char *p = bytes + at + sizeof(b);
            for (size_t i = 0; i < payload; i++)
                p[i] = t_rng_below(&rng, 3) ? (char)t_rng_below(&rng, 9) : (char)t_rng_u64(&rng);
            memset(p + payload, 0, 8);
            if (t_rng_below(&rng, 8) == 0)
                b.bytes = t_rng_u64(&rng) >> t_rng_below(&rng, 64);
            b.payload_sum = vv_hash64(p, vv_align_up(payload, 8));
            b.sum = vv_hash64(&b, offsetof(struct vv_trace_block, sum));
            memcpy(bytes + at, &b, sizeof(b));
            at += sizeof(b) + vv_align_up(payload, 8);
        }
        T_OK(vv_trace_file_parse(bytes, at, err, sizeof(err), &f));
        look_at_all(f);
        vv_trace_file_free(f);
    }
}

/* A file from the introduction of format 1. */
static void golden(void)
{
    const char *source = getenv("SOURCE_DIR");
    struct vv_timeline *t;
    char file[1024];

    if (!source)
        T_SKIP("SOURCE_DIR is not set");
    snprintf(file, sizeof(file), "%s/tests/golden/trace-1/run.vtrace", source);
    struct vv_trace_file *f = must_read(file);
    T_CHECK(f->complete && f->lost == 0 && f->damaged_bytes == 0 && f->unknown_blocks == 0);
    T_EQ(f->nrecords, 18);
    T_STREQ(vv_trace_file_meta(f, 1, "config.policy"), "next");
    T_STREQ(vv_trace_file_note(f, "grid"), "3 x 4");
    T_EQ(vv_trace_file_attachment(f, "image")->size, 6);
    /* Numbers of kinds never change: what the file calls them is what they are called now. */
    for (uint32_t k = 0; k < VV_TRACE_KIND_COUNT; k++) {
        if (strcmp(vv_trace_file_kind(f, k), "?") == 0)
            continue; /* newer than the file */
        T_STREQ(vv_trace_file_kind(f, k), vv_trace_kind_name(k));
        for (unsigned a = 0; a < VV_TRACE_ARGS; a++)
            T_STREQ(vv_trace_file_arg(f, k, a), vv_trace_arg_name(k, a));
    }
    T_OK(vv_timeline_new(f, &t));
    T_EQ(t->nlanes, 3);
    T_EQ(t->niterations, 2);
    T_EQ(t->iterations[1].distance, 3);
    T_EQ(t->iterations[0].end_ns - t->iterations[0].start_ns, 100);
    T_STREQ(vv_timeline_history(t, t->iterations[0].history, t->iterations[0].start_ns), "field");
    T_EQ(t->occupancy[0].peak_bytes, 64);
    vv_timeline_free(t);
    vv_trace_file_free(f);
}

/* A note for every step of a long run: the last of each key counts, and finding it takes no longer
 * than in a short one. */
static void many_notes(void)
{
    enum { NOTES = 60000, KEYS = NOTES - NOTES / 4 };
    char key[32], value[32];

    new_path();
    must_start();
    for (int i = 0; i < NOTES; i++) {
        snprintf(key, sizeof(key), "step %d", i % KEYS);
        snprintf(value, sizeof(value), "%d", i);
        T_OK(vv_trace_note(key, value));
        T_OK(i % 1000 ? 0 : vv_trace_flush());
    }
    T_OK(vv_trace_meta(0, "step 1", "of the library"));
    T_OK(vv_trace_write_stop());
    struct vv_trace_file *f = must_read(path);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "step %d", i);
        snprintf(value, sizeof(value), "%d", i + KEYS < NOTES ? i + KEYS : i);
        T_STREQ(vv_trace_file_note(f, key), value);
    }
    T_STREQ(vv_trace_file_meta(f, 0, "step 1"), "of the library");
    T_CHECK(!vv_trace_file_meta(f, 0, "step 2") && !vv_trace_file_meta(f, 1, "step 1"));
    T_CHECK(!vv_trace_file_note(f, "step") && !vv_trace_file_note(f, ""));
    vv_trace_file_free(f);
}

static void paths(void)
{
    char buf[64], want[64];

    T_OK(vv_trace_path("run.%r.%p.%%x%", 7, buf, sizeof(buf)));
    snprintf(want, sizeof(want), "run.7.%d.%%%%x%%", (int)getpid());
    T_STREQ(buf, want);
    T_ERR(vv_trace_path("0123456789", 0, buf, 10), -ENAMETOOLONG);
    T_OK(vv_trace_path("012345678", 0, buf, 10));
    T_ERR(vv_trace_path("0123456%p", 0, buf, 8), -ENAMETOOLONG);
}

int main(void)
{
    T_RUN(off);
    T_RUN(round_trip);
    T_RUN(same_instant);
    T_RUN(many_notes);
    T_RUN(paths);
    T_RUN(golden);
    T_RUN(killed);
    T_RUN(refusals);
    T_RUN(again);
    T_RUN(full);
    T_RUN(while_recording);
    T_RUN(started_and_stopped_at_once);
    T_RUN(losses_are_counted);
    T_RUN(rest_is_read);
    T_RUN(any_damage);
    T_RUN(hostile);
    T_RUN(names_are_numbers);
    return t_done();
}
