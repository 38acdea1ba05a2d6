/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash matrix: every level, on one rank and on four, with local folders and without;
 *   - killed before each numbered system call of its storage;
 *   - killed at one call, started again, the same version numbers overwritten, killed at another call;
 *   - each call failing once (EIO) and from then on (ENOSPC), short reads and writes;
 *   - one bit flipped in every kind of block, with a second copy of the block and without.
 * Power cuts, after which writes are torn, dropped and reordered, are in power.c.
 *
 * job.h says what must hold in the next life. A gate tries a sample, by the seed; VARVE_TEST_LONG a larger one. The
 * number of cases is printed.
 *
 *     matrix PART [PLACE]
 *
 * With VARVE_TEST_LONG: all cases of a part (kill, twice, once, for_ever, short or bits), or of
 * one place in it, counted from 0 in the table below. scripts/crash-matrix runs all of them in
 * parallel.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/varve.h>

#include "base/util.h"
#include "crash/job.h"
#include "t.h"

static uint64_t total;
static struct job job; /* large */

struct where {
    const char *name;
    int level, ranks;
    bool local;
    uint64_t keep; /* 0: all versions */
};

static const struct where places[] = {
    {"cached", VARVE_LEVEL_CACHED, 1, true, 0},
    {"cached, 4 ranks", VARVE_LEVEL_CACHED, 4, true, 0},
    {"local", VARVE_LEVEL_LOCAL, 1, true, 0},
    {"local, 4 ranks", VARVE_LEVEL_LOCAL, 4, true, 0},
    {"remote", VARVE_LEVEL_REMOTE, 1, true, 0},
    {"remote, no local folder", VARVE_LEVEL_REMOTE, 1, false, 0},
    {"remote, 4 ranks", VARVE_LEVEL_REMOTE, 4, true, 0},
    {"remote, 4 ranks, no local folders", VARVE_LEVEL_REMOTE, 4, false, 0},
    {"complete", VARVE_LEVEL_COMPLETE, 1, true, 0},
    {"complete, no local folder", VARVE_LEVEL_COMPLETE, 1, false, 0},
    {"complete, 4 ranks", VARVE_LEVEL_COMPLETE, 4, true, 0},
    {"complete, 4 ranks, no local folders", VARVE_LEVEL_COMPLETE, 4, false, 0},
    {"remote, 4 ranks, 2 versions kept", VARVE_LEVEL_REMOTE, 4, true, 2},
    {"complete, 4 ranks, 2 versions kept", VARVE_LEVEL_COMPLETE, 4, true, 2},
};

static void start(const struct where *w)
{
    job_init(&job, w->level, w->ranks, w->local);
    job.keep = w->keep;
}

/* The largest number of calls that a rank makes in a life that finds versions. The job has had lives afterwards. */
static long count_calls(const struct where *w)
{
    static long counted[VV_ARRAY_SIZE(places)];
    long calls = counted[w - places];
    start(w);
    job_live_on(&job);
    if (calls > 0)
        return calls;
    job_live_on(&job);
    for (int r = 0; r < w->ranks; r++)
        calls = VV_MAX(calls, job.steps[r]);
    T_CHECK(calls > (w->level == VARVE_LEVEL_CACHED ? 5 : 30));
    counted[w - places] = calls;
    return calls;
}

static size_t only = SIZE_MAX; /* only this place */
static bool whole;             /* all cases */

/* Under a sanitizer a gate tries a third of the places, by the seed. */
static bool left_out(size_t place, unsigned salt)
{
    if (only != SIZE_MAX)
        return place != only;
    return t_sanitized() && !t_long() && (place + salt + t_seed()) % 3 != 0;
}

/* ---- kills and failures, by numbered call ---- */

enum { SAMPLE = 40 };

/* n of all pairs of rank and call, evenly spread, beginning with a random one. */
struct sample {
    uint64_t all, n, first, stride, calls;
};

static struct sample sample_of(const struct where *w, long calls, uint64_t gate, struct t_rng *rng)
{
    struct sample s = {.all = (uint64_t)calls * (uint64_t)w->ranks, .calls = (uint64_t)calls};
    s.n = whole ? s.all : VV_MIN(t_cases(gate, SAMPLE), s.all);
    s.first = t_rng_below(rng, s.all);
    s.stride = s.all / s.n;
    return s;
}

static void pick(const struct sample *s, uint64_t i, struct job_fault *f)
{
    uint64_t at = (s->first + i * s->stride) % s->all;
    f->victim = (int)(at / s->calls);
    f->at = 1 + (long)(at % s->calls);
}

/* Sometimes moves the ranks to other nodes. */
static void move_some(const struct where *w, struct t_rng *rng)
{
    if (w->level >= VARVE_LEVEL_REMOTE && t_rng_below(rng, 3) == 0)
        job_move(&job);
}

static void each_call(const char *what, enum job_trouble trouble, int err, uint64_t gate)
{
    struct t_rng rng = {t_seed() + (uint64_t)trouble};
    for (size_t i = 0; i < VV_ARRAY_SIZE(places); i++) {
        const struct where *w = &places[i];
        struct job_fault f = {.trouble = trouble, .err = err};
        if (left_out(i, (unsigned)trouble))
            continue;
        uint64_t hits = 0, failures = 0;
        long calls = count_calls(w);
        struct sample s = sample_of(w, calls, gate, &rng);
        for (uint64_t k = 0; k < s.n; k++, total++) {
            pick(&s, k, &f);
            if (job_is_full(&job))
                start(w);
            failures = job.failures;
            bool killed = job_live(&job, &f);
            hits += killed || job.failures > failures;
            move_some(w, &rng);
            /* Every other time the next trouble comes directly after this one. */
            if (k % 2 || k + 1 == s.n)
                job_live_on(&job);
        }
        t_note("%s: %s at %llu of %llu calls, %llu hit", w->name, what, (unsigned long long)s.n,
               (unsigned long long)s.all, (unsigned long long)hits);
        /* A life that other ranks end early makes fewer calls, and some failures have no effect. */
        T_CHECK(hits > 0 || s.n < 8);
    }
}

static void test_kill(void)
{
    each_call("killed", JOB_KILL, 0, 4);
}

static void test_once(void)
{
    each_call("an I/O error", JOB_ONCE, EIO, 1);
}

static void test_for_ever(void)
{
    each_call("no space from there on", JOB_FOR_EVER, ENOSPC, 1);
}

static void test_short(void)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(places); i++) {
        if (left_out(i, JOB_SHORT))
            continue;
        start(&places[i]);
        for (int r = 0; r < places[i].ranks; r += t_long() ? 1 : 4, total++) {
            job_live(&job, &(struct job_fault){.trouble = JOB_SHORT, .victim = r});
            job_live_on(&job);
        }
    }
}

/* Killed, started again, the same numbers overwritten, killed elsewhere, started again. */
static void test_twice(void)
{
    struct t_rng rng = {t_seed() ^ 0x2222};
    for (size_t i = 0; i < VV_ARRAY_SIZE(places); i++) {
        const struct where *w = &places[i];
        if (w->level == VARVE_LEVEL_CACHED || left_out(i, 7))
            continue;
        uint64_t calls = (uint64_t)count_calls(w), again = 0, n = whole ? 100 : t_cases(1, 20);
        for (uint64_t k = 0; k < n; k++, total++) {
            struct job_fault f = {.trouble = JOB_KILL};
            if (job_is_full(&job))
                start(w);
            uint64_t first = job.latest[0];
            for (int times = 0; times < 2; times++) {
                f.victim = (int)t_rng_below(&rng, (uint64_t)w->ranks);
                f.at = 1 + (long)t_rng_below(&rng, calls);
                job_live(&job, &f);
                move_some(w, &rng);
            }
            job_live_on(&job);
            again += job.latest[0] <= first + JOB_PER_LIFE;
        }
        t_note("%s: killed twice in a row %llu times, %llu of them with numbers overwritten",
               w->name, (unsigned long long)n, (unsigned long long)again);
    }
}

/* ---- flipped bits ---- */

enum { IN_TAIL = 1 << 20 }; /* counted from the end */

/* Every kind of block of every kind of file: the end of its name, a part of its name, and the offset. */
static const struct block {
    const char *what, *end, *in;
    long at;
} blocks[] = {
    {"header", ".ckpt", "", 32},
    {"history name", ".ckpt", "", 64},
    {"first chunk", ".ckpt", "", JOB_PAGE},
    {"middle chunk", ".ckpt", "", 2 * JOB_PAGE + 77},
    {"last chunk", ".ckpt", "", 3 * JOB_PAGE + 1},
    {"region table", ".ckpt", "", 4 * JOB_PAGE + 8},
    {"checksum table", ".ckpt", "", 4 * JOB_PAGE + 16 + 9},
    {"footer", ".ckpt", "", IN_TAIL + 88},
    {"footer's sum", ".ckpt", "", IN_TAIL + 3},
    {"index, header", "", "index.", 8},
    {"index, first record", "", "index.", 80},
    {"index, last record", "", "index.", IN_TAIL + 20},
    {"record, header", ".group", "", 30},
    {"record, file", ".group", "", 70},
    {"record, sum", ".group", "", IN_TAIL + 1},
    {"marker, run", ".mark", "", 33},
    {"marker, file", ".mark", "", 60},
    {"marker, sum", ".mark", "", 121},
    {"life, run", "", "life.", 17},
    {"life, generation", "", "life.", 35},
    {"life, sum", "", "life.", 57},
};

struct found {
    char (*path)[600];
    size_t n;
};

static void find_in(const char *folder, const struct block *b, struct found *f)
{
    char path[600];
    DIR *dir = opendir(folder);
    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        size_t len = strlen(e->d_name), tail = strlen(b->end);
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        T_OK(stat(path, &st));
        if (S_ISDIR(st.st_mode)) {
            find_in(path, b, f);
        } else if (len >= tail && strcmp(e->d_name + len - tail, b->end) == 0 &&
                   strncmp(e->d_name, b->in, strlen(b->in)) == 0 && st.st_size > 0) {
            f->path = realloc(f->path, (f->n + 1) * sizeof(*f->path));
            T_CHECK(f->path);
            memcpy(f->path[f->n++], path, sizeof(path));
        }
    }
    closedir(dir);
}

static void flip(const char *path, long at, unsigned bit)
{
    struct stat st;
    char c;
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_OK(fstat(fd, &st));
    at = at >= IN_TAIL ? (long)st.st_size - (at - IN_TAIL) : at;
    at = VV_MIN(VV_MAX(at, 0L), (long)st.st_size - 1);
    T_EQ(pread(fd, &c, 1, at), 1);
    c = (char)(c ^ 1 << bit);
    T_EQ(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

/* Finds version and rank of a checkpoint file by its name. */
static void whose(const char *path)
{
    unsigned long long version;
    T_EQ(sscanf(strrchr(path, '/'), "/r%d.v%llu.", &job.damaged_rank, &version), 2);
    job.damaged_version = version;
}

/* Flips a random bit of a random file of this kind. False: there is no such file. */
static bool flip_one(const struct where *w, const struct block *b, bool local, struct t_rng *rng)
{
    struct found f = {0};
    start(w);
    job_live_on(&job);
    job_live_on(&job);
    /* Makes a version that one rank lacks: the others leave their markers. */
    if (strcmp(b->end, ".mark") == 0)
        job_live(&job, &(struct job_fault){.trouble = JOB_KILL, .victim = w->ranks - 1, .at = 40});
    for (int r = 0; r < w->ranks && local; r++)
        find_in(job.folder[r], b, &f);
    if (!local && job.remote)
        find_in(job.remote, b, &f);
    if (f.n == 0)
        return false;
    const char *path = f.path[t_rng_below(rng, f.n)];
    flip(path, b->at, (unsigned)t_rng_below(rng, 8));
    /* Without a second copy, the version of the bit may be lost, and no other. */
    bool second = w->local && w->level >= VARVE_LEVEL_REMOTE;
    if (second && t_rng_below(rng, 2)) {
        job_move(&job);
        second = false;
    }
    if (!second && strcmp(b->end, ".ckpt") == 0)
        whose(path);
    job.only_look = true;
    job_live(&job, &(struct job_fault){.trouble = JOB_NONE, .victim = -1});
    free(f.path);
    return true;
}

static void test_bits(void)
{
    struct t_rng rng = {t_seed() ^ 0xb175};
    uint64_t n = 0, kinds = 0, turn = t_rng_below(&rng, 4), stride = t_long() ? 1 : 8;
    for (size_t i = 0; i < VV_ARRAY_SIZE(blocks); i++) {
        uint64_t before = n;
        for (size_t k = 0; k < VV_ARRAY_SIZE(places); k++)
            for (int local = 0; local < 2; local++) {
                const struct where *w = &places[k];
                if (w->level == VARVE_LEVEL_CACHED || (local && !w->local) ||
                    (only != SIZE_MAX && k != only) ||
                    turn++ % (stride * (t_sanitized() ? 4 : 1)) != 0)
                    continue;
                n += flip_one(w, &blocks[i], local, &rng);
            }
        kinds += n > before;
    }
    total += n;
    t_note("%llu flipped bits, in %llu of %zu kinds of blocks", (unsigned long long)n,
           (unsigned long long)kinds, VV_ARRAY_SIZE(blocks));
    T_CHECK(!t_long() || only != SIZE_MAX || kinds == VV_ARRAY_SIZE(blocks));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"kill", test_kill},         {"twice", test_twice}, {"once", test_once},
                 {"for_ever", test_for_ever}, {"short", test_short}, {"bits", test_bits}};
    whole = t_long() && argc > 1;
    if (argc > 2)
        only = (size_t)atoi(argv[2]);
    for (size_t i = 0; i < VV_ARRAY_SIZE(parts); i++)
        if (argc < 2 || strcmp(argv[1], parts[i].name) == 0)
            t_run(parts[i].name, parts[i].run);
    t_note("crash matrix: %llu cases, seed %llu", (unsigned long long)total,
           (unsigned long long)t_seed());
    return t_done();
}
