/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random workloads on the whole library, through varve/ckpt.h and through VELOC's interface,
 * against a plain reference (model/reference.h).
 *
 * A workload (model/workload.c) runs in processes of its own, one for each life. When a life is killed
 * the next one continues behind the operation in progress, and must find what the reference allows.
 * Folders fill up, vanish and return, and system calls fail, under an OS table of the test
 * (model/faults.h). A life that makes no progress is ended by an alarm.
 *
 *
 * A workload that fails is shortened as far as possible, printed, and written to library-failure-SEED.txt
 * in the working folder. If it is kept under tests/model/failures/library/, every run of this test runs it
 * again.
 *   VARVE_MODEL_ONE=SEED  runs one seed and prints its operations
 *   VARVE_MODEL_ALL=1     continues after failures, prints one line for each, and fails in the end
 * With the names of workloads as arguments it runs those.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/varve.h>

#include "model/life.h"
#include "model/workload.h"
#include "t.h"

enum {
    LIMIT_S = 30, /* for one life; it ends a hang and measures nothing */
    WORKERS = 2,
    MAX_LIVES = 100,
    SHORTEN_TRIES = 3, /* threads do not always interleave in the same way */
};

static struct world *world;
static char home[LIFE_PATH];

static struct world *new_world(void)
{
    void *p =
        mmap(NULL, sizeof(struct world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    T_CHECK(p != MAP_FAILED);
    return p;
}

static unsigned versions_of(const struct workload *w)
{
    unsigned n = 1;
    for (unsigned i = 0; i < w->nops; i++)
        if (w->op[i].kind <= OP_RESERVE && w->op[i].a + 1 > n)
            n = w->op[i].a + 1;
    return n < REF_VERSIONS ? n : REF_VERSIONS;
}

static void begin_workload(struct world *x, const struct workload *w)
{
    memset(x, 0, sizeof(*x));
    x->w = *w;
    snprintf(x->folder, sizeof(x->folder), "%.200s/w", home);
    life_remove_folder(x->folder);
    T_EQ(mkdir(x->folder, 0777), 0);
    ref_init(&x->ref, versions_of(w), w->keep, w->keep_every);
    x->ref.local = w->level <= VARVE_LEVEL_REMOTE;
}

static void live(struct world *x)
{
    alarm(t_sanitized() ? 4 * LIMIT_S : LIMIT_S);
    if (!getenv("VARVE_MODEL_ONE") && !freopen("/dev/null", "w", stderr))
        _exit(2);
    if (x->w.veloc)
        life_veloc(x);
    else
        life_ckpt(x);
}

/* Between two lives. False: the workload has ended. */
static bool next_life(struct world *x, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && x->done)
        return false;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && x->kill_expected) {
        char near[LIFE_PATH + 8];
        x->lose = x->losing;
        x->losing = false;
        life_note(x, " killed%s\n", x->lose ? ", the node is lost" : "");
        x->at++;
        x->kill_by = 0;
        x->kill_expected = false;
        atomic_store(&x->faults.kill_in, 0);
        snprintf(near, sizeof(near), "%s/near", x->folder);
        if (x->lose && x->w.near)
            life_remove_folder(near);
        return x->lives < MAX_LIVES;
    }
    if (!x->wrong[0] && WIFSIGNALED(status))
        snprintf(x->wrong, sizeof(x->wrong), "%s",
                 WTERMSIG(status) == SIGALRM ? "hang" : "the process ended by a signal");
    if (!x->wrong[0])
        snprintf(x->wrong, sizeof(x->wrong), "the process ended with status %d", status);
    return false;
}

/* True: the library did what the reference allows. */
static bool run_workload(const struct workload *w)
{
    struct world *x = world;
    int status;
    begin_workload(x, w);
    do {
        fflush(NULL);
        x->lives++;
        life_note(x, "   life %u\n", x->lives);
        pid_t pid = fork();
        T_CHECK(pid >= 0);
        if (pid == 0)
            live(x);
        T_EQ(waitpid(pid, &status, 0), pid);
    } while (next_life(x, status));
    life_remove_folder(x->folder);
    return x->wrong[0] == 0;
}

/* ---- failures ---- */

/* True if the texts are equal apart from numbers. */
static bool alike(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "0123456789 ");
        b += strspn(b, "0123456789 ");
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* True if the workload fails for the same reason. */
static bool fails(const struct workload *w, const char *wrong)
{
    for (int i = 0; i < SHORTEN_TRIES; i++)
        if (!run_workload(w) && alike(world->wrong, wrong))
            return true;
    return false;
}

static void shorten(struct workload *w, const char *wrong)
{
    for (unsigned n = (w->nops + 1) / 2; n > 0; n /= 2)
        for (unsigned at = 0; at + n <= w->nops;) {
            struct workload less = *w;
            memmove(&less.op[at], &less.op[at + n], (w->nops - at - n) * sizeof(less.op[0]));
            less.nops -= n;
            if (fails(&less, wrong))
                *w = less;
            else
                at += n;
        }
}

/* Prints the settings, the operations and their results. */
static void report(const struct workload *w, const char *name)
{
    fprintf(stderr, "%s: %s\n%s\n", name, world->wrong, world->log);
    fprintf(stderr, "the workload:\n");
    workload_write(w, stderr);
}

static void keep_failure(const struct workload *w, uint64_t seed, const char *wrong)
{
    char name[64];
    snprintf(name, sizeof(name), "library-failure-%llu.txt", (unsigned long long)seed);
    FILE *f = fopen(name, "w");
    T_CHECK(f);
    fprintf(f, "# %s\n", wrong);
    workload_write(w, f);
    T_EQ(fclose(f), 0);
}

static bool run_seed(uint64_t seed)
{
    struct workload w;
    char name[64], wrong[sizeof(world->wrong)];
    workload_draw(&w, seed);
    if (run_workload(&w))
        return true;
    if (getenv("VARVE_MODEL_ALL")) {
        printf("seed %llu: %s\n", (unsigned long long)seed, world->wrong);
        fflush(stdout);
        return false;
    }
    snprintf(name, sizeof(name), "seed %llu", (unsigned long long)seed);
    report(&w, name);
    strcpy(wrong, world->wrong);
    shorten(&w, wrong);
    if (!fails(&w, wrong) && !fails(&w, wrong))
        fprintf(stderr, "the shortened workload did not fail again\n");
    report(&w, "shortened");
    keep_failure(&w, seed, wrong);
    return false;
}

static void run_file(const char *path)
{
    struct workload w;
    FILE *f = fopen(path, "r");
    if (!f)
        t_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
    const char *bad = workload_read(&w, f);
    fclose(f);
    if (bad)
        t_fail(__FILE__, __LINE__, "%s: not understood: %s", path, bad);
    if (run_workload(&w))
        return;
    report(&w, path);
    t_fail(__FILE__, __LINE__, "%s fails", path);
}

/* ---- the test ---- */

static void settle_at_home(void)
{
    snprintf(home, sizeof(home), "%.200s", t_tmpdir());
    world = new_world();
}

static void former_failures(void)
{
    const char *source = getenv("SOURCE_DIR");
    char folder[512], path[800];
    struct dirent *e;
    unsigned n = 0;
    snprintf(folder, sizeof(folder), "%s/tests/model/failures/library", source ? source : ".");
    DIR *dir = opendir(folder);
    if (!dir) {
        t_note("no folder %s: set SOURCE_DIR", folder);
        return;
    }
    settle_at_home();
    while ((e = readdir(dir))) {
        if (!strstr(e->d_name, ".txt"))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        t_note("%s", e->d_name);
        for (int i = 0; i < SHORTEN_TRIES; i++)
            run_file(path);
        n++;
    }
    closedir(dir);
    t_note("%u former failures run again", n);
}

/* Runs every WORKERS-th seed. */
static int work(uint64_t first, uint64_t n, unsigned worker)
{
    int bad = 0;
    settle_at_home();
    for (uint64_t i = worker; i < n; i += WORKERS) {
        bool ok = run_seed(first + i);
        bad |= !ok;
        if (!ok && !getenv("VARVE_MODEL_ALL"))
            break;
    }
    life_remove_folder(home);
    return bad;
}

static void random_workloads(void)
{
    uint64_t first = t_seed(), n = t_cases(500, 50000);
    const char *cases = getenv("VARVE_MODEL_CASES");
    pid_t pid[WORKERS];
    int bad = 0;
    if (cases)
        n = strtoull(cases, NULL, 0);
    t_note("seeds %llu to %llu", (unsigned long long)first, (unsigned long long)(first + n - 1));
    for (unsigned k = 0; k < WORKERS; k++) {
        fflush(NULL);
        pid[k] = fork();
        T_CHECK(pid[k] >= 0);
        if (pid[k] == 0)
            _exit(work(first, n, k));
    }
    for (unsigned k = 0; k < WORKERS; k++) {
        int status;
        T_EQ(waitpid(pid[k], &status, 0), pid[k]);
        bad |= status;
    }
    if (bad)
        t_fail(__FILE__, __LINE__, "workloads have failed: see above, and library-failure-*.txt");
}

int main(int argc, char **argv)
{
    const char *one = getenv("VARVE_MODEL_ONE");
    /* In memory if possible: a workload syncs dozens of files. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    if (argc > 1 || one)
        settle_at_home();
    for (int i = 1; i < argc; i++)
        run_file(argv[i]);
    if (one) {
        struct workload w;
        workload_draw(&w, strtoull(one, NULL, 0));
        bool ok = run_workload(&w);
        report(&w, ok ? "as the reference allows" : "fails");
        return !ok;
    }
    if (argc > 1)
        return 0;
    T_RUN(former_failures);
    T_RUN(random_workloads);
    return t_done();
}
