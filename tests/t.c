/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"

#include <dirent.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SEED_DEFAULT UINT64_C(20230616)

static const char *current = "";
static int runs;
static bool seed_used;

static pthread_mutex_t tmp_lock = PTHREAD_MUTEX_INITIALIZER;
static char **tmp_dirs;
static int tmp_count;
static pid_t tmp_owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tmpdirs(void)
{
    if (getpid() != tmp_owner)
        return;
    pthread_mutex_lock(&tmp_lock);
    while (tmp_count > 0) {
        nftw(tmp_dirs[--tmp_count], remove_one, 16, FTW_DEPTH | FTW_PHYS);
        free(tmp_dirs[tmp_count]);
    }
    free(tmp_dirs);
    tmp_dirs = NULL;
    pthread_mutex_unlock(&tmp_lock);
}

/* _exit, not exit: other threads of the test may be running, and must not lose what they use to exit
 * handlers. */
static void end(int status)
{
    remove_tmpdirs();
    fflush(NULL);
    _exit(status);
}

void t_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    flockfile(stderr);
    fprintf(stderr, "%s:%d: %s: ", file, line, current);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    if (seed_used)
        fprintf(stderr, "repeat with VARVE_TEST_SEED=%" PRIu64 "\n", t_seed());
    funlockfile(stderr);
    end(1);
    abort(); /* not reached; the compiler does not know that end() does not return */
}

void t_skip(const char *fmt, ...)
{
    va_list ap;

    if (runs > 0)
        printf("%d cases passed, the rest is ", runs);
    printf("skipped: ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    end(77);
    abort();
}

void t_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

const char *t_errname(int rc)
{
    const char *name = rc == 0 ? "0" : rc < 0 ? strerrorname_np(-rc) : "positive";

    return name ? name : "unknown";
}

void t_run(const char *name, void (*fn)(void))
{
    current = name;
    printf("%s\n", name);
    fflush(stdout);
    fn();
    runs++;
    current = "";
}

int t_done(void)
{
    if (runs == 0) {
        fprintf(stderr, "no case was run\n");
        return 1;
    }
    printf("ok, %d cases\n", runs);
    return 0;
}

const char *t_tmpdir(void)
{
    const char *base = getenv("TMPDIR");
    char *path, **grown;

    if (asprintf(&path, "%s/varve-test-XXXXXX", base && *base ? base : "/tmp") < 0)
        t_fail(__FILE__, __LINE__, "out of memory");
    if (!mkdtemp(path))
        t_fail(__FILE__, __LINE__, "mkdtemp %s: %s", path, strerror(errno));
    pthread_mutex_lock(&tmp_lock);
    if (tmp_owner != getpid()) {
        /* First use, or in a forked child, which must not remove the parent's folders. */
        if (tmp_owner == 0)
            atexit(remove_tmpdirs);
        tmp_owner = getpid();
        tmp_count = 0;
    }
    grown = realloc(tmp_dirs, (size_t)(tmp_count + 1) * sizeof(*tmp_dirs));
    if (grown) {
        tmp_dirs = grown;
        tmp_dirs[tmp_count++] = path;
    }
    pthread_mutex_unlock(&tmp_lock);
    if (!grown)
        t_fail(__FILE__, __LINE__, "out of memory");
    return path;
}

uint64_t t_seed(void)
{
    const char *text = getenv("VARVE_TEST_SEED");

    seed_used = true;
    return text && *text ? strtoull(text, NULL, 0) : SEED_DEFAULT;
}

bool t_long(void)
{
    const char *text = getenv("VARVE_TEST_LONG");

    return text && *text && strcmp(text, "0") != 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

bool t_sanitized(void)
{
    return SANITIZED;
}

uint64_t t_cases(uint64_t gate, uint64_t many)
{
    uint64_t n = t_long() ? many : t_sanitized() ? gate / 4 : gate;

    return n ? n : 1;
}

uint64_t t_rng_u64(struct t_rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    z = (z ^ (z >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return z ^ (z >> 32);
}

uint64_t t_rng_below(struct t_rng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)t_rng_u64(r) * n) >> 64);
}

/* 0 if the thread has ended. */
static uint64_t blocked(const char *tid)
{
    char path[300], line[256];
    unsigned long long n = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

uint64_t t_others_blocked(void)
{
    uint64_t sum = 0;
    DIR *d = opendir("/proc/self/task");
    T_CHECK(d);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && atoi(e->d_name) != gettid())
            sum += blocked(e->d_name);
    if (d)
        closedir(d);
    return sum;
}
