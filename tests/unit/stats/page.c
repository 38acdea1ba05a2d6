/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics pages: readers get whole records only, with every state of the writer and the file. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "stats/process.h"
#include "stats/stats_page.h"
#include "stats/stats_text.h"
#include "t.h"

static struct vv_stats_page page;

static struct vv_stats_writer *open_in(const char *folder)
{
    struct vv_stats_header about = {.interval_ns = 7, .rank = 3, .page_bytes = 4096};
    struct vv_stats_writer *w = NULL;

    snprintf(about.level, sizeof(about.level), "cached");
    T_OK(vv_stats_writer_open(folder, &about, &w));
    return w;
}

static char *slurp(const char *path, size_t *ret_bytes)
{
    char *data = malloc(1 << 20);
    int fd = open(path, O_RDONLY);
    T_CHECK(fd >= 0 && data);
    ssize_t n = read(fd, data, 1 << 20);
    T_CHECK(n > 0);
    close(fd);
    *ret_bytes = (size_t)n;
    return data;
}

static void spill(const char *path, const char *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
}

static int count_one(void *arg, const struct vv_stats_page *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned count(const char *folder)
{
    unsigned n = 0;
    T_OK(vv_stats_page_each(folder, count_one, &n));
    return n;
}

static void round_trip(void)
{
    const char *dir = t_tmpdir();
    struct vv_stats_writer *w = open_in(dir), *second = open_in(dir);
    struct vv_stats_record r = {.time_ns = 5, .hits = 6, .ntiers = 1, .histories = 1};
    struct stat st;
    char path[VV_STATS_PATH];

    r.nhistories = 1;
    snprintf(r.tier[0].name, sizeof(r.tier[0].name), "host");
    snprintf(r.history[0].name, sizeof(r.history[0].name), "wave");
    T_OK(vv_stats_page_read(vv_stats_writer_path(w), &page));
    T_EQ(page.owner, VV_STATS_ALIVE);
    T_EQ(page.header.pid, getpid());
    T_EQ(page.header.rank, 3);
    T_EQ(page.header.context, 0);
    T_STREQ(page.header.level, "cached");
    T_CHECK(strstr(page.header.command, "page"));
    for (int i = 0; i < 5; i++) {
        r.hits++;
        T_OK(vv_stats_writer_put(w, &r));
        T_OK(vv_stats_page_read(vv_stats_writer_path(w), &page));
        T_EQ(page.record.hits, r.hits);
        T_EQ(page.record.seq, r.seq);
        T_STREQ(page.record.history[0].name, "wave");
    }
    /* Another context of the process has a page of its own. Only this user may read them. */
    T_OK(vv_stats_page_read(vv_stats_writer_path(second), &page));
    T_EQ(page.header.context, 1);
    T_EQ(stat(vv_stats_writer_path(w), &st), 0);
    T_EQ(st.st_mode & 0777, 0600);
    T_EQ(count(dir), 2);
    T_EQ(vv_stats_clean(dir), 0);
    snprintf(path, sizeof(path), "%s", vv_stats_writer_path(w));
    vv_stats_writer_close(w);
    T_ERR(vv_stats_page_read(path, &page), -ENOENT);
    T_EQ(count(dir), 1);
    vv_stats_writer_close(second);
    T_EQ(count(dir), 0);
    vv_stats_writer_close(NULL);
}

/* ---- torn records ---- */

static _Atomic bool enough;

/* Every word of a record is its number: a mixed one shows. */
static void stamp(struct vv_stats_record *r, uint64_t n)
{
    uint64_t *words = (uint64_t *)r;

    for (size_t i = 2; i < sizeof(*r) / sizeof(*words); i++)
        words[i] = n;
    r->ntiers = r->nhops = r->nhistories = 0;
    r->state = 0;
}

static void *write_on(void *arg)
{
    struct vv_stats_record r;

    for (uint64_t n = 1; !atomic_load(&enough); n++) {
        stamp(&r, n);
        T_OK(vv_stats_writer_put(arg, &r));
    }
    return NULL;
}

static void never_torn(void)
{
    struct vv_stats_writer *w = open_in(t_tmpdir());
    struct vv_stats_record first;
    pthread_t thread;
    uint64_t last = 0, good = 0;

    stamp(&first, 0);
    T_OK(vv_stats_writer_put(w, &first));
    T_OK(vv_stats_writer_put(w, &first));
    T_EQ(pthread_create(&thread, NULL, write_on, w), 0);
    for (uint64_t i = t_cases(4000, 200000); i > 0; i--) {
        int rc = vv_stats_page_read(vv_stats_writer_path(w), &page);
        /* A writer without a pause can outrun a reader; a mixed record would be a lie. */
        if (rc == -EBADMSG)
            continue;
        T_OK(rc);
        good++;
        /* One of the two records may be overwritten while it is read, after the other was read: then the result is older. */
        T_CHECK(page.record.seq + 1 >= last);
        last = VV_MAX(last, page.record.seq);
        T_EQ(page.record.hits, page.record.time_ns);
        T_EQ(page.record.tier[VV_STATS_TIERS - 1].copies, page.record.time_ns);
        T_EQ(page.record.hop[VV_STATS_HOPS - 1].recent_busy_ns, page.record.time_ns);
        T_EQ(page.record.history[VV_STATS_HISTORIES - 1].pending, page.record.time_ns);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    T_CHECK(good > 0);
    t_note("%llu records", (unsigned long long)good);
    vv_stats_writer_close(w);
}

/* ---- files that are not what they should be ---- */

static void damaged(void)
{
    const char *dir = t_tmpdir();
    struct vv_stats_writer *w = open_in(dir);
    struct vv_stats_record r = {.hits = 41};
    size_t bytes;
    char path[VV_STATS_PATH];

    snprintf(path, sizeof(path), "%s/varve-stats.1.0", dir);
    T_OK(vv_stats_writer_put(w, &r));
    r.hits = 42;
    T_OK(vv_stats_writer_put(w, &r));
    char *data = slurp(vv_stats_writer_path(w), &bytes);
    vv_stats_writer_close(w);
    /* One wrong byte: an error, or one of the records unchanged. */
    for (size_t at = 0; at < bytes; at += at < 1000 ? 1 : 37) {
        data[at] ^= 0x55;
        spill(path, data, bytes);
        int rc = vv_stats_page_read(path, &page);
        T_CHECK(rc == -EBADMSG || rc == -EPROTO ||
                (rc == 0 && (page.record.hits == 41 || page.record.hits == 42)));
        T_CHECK(rc == 0 || page.error[0]);
        data[at] ^= 0x55;
    }
    for (size_t n = 0; n < bytes; n += n < 700 ? 1 : 61) {
        spill(path, data, n);
        int rc = vv_stats_page_read(path, &page);
        T_CHECK(rc == -EBADMSG || rc == -EAGAIN);
    }
    /* An unfinished page: skipped while it may be in progress, and removed when it cannot be. */
    spill(path, "", 0);
    T_EQ(count(dir), 0);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    T_EQ(utimensat(AT_FDCWD, path, old, 0), 0);
    T_EQ(count(dir), 1);
    T_EQ(vv_stats_clean(dir), 1);
    T_EQ(count(dir), 0);
    /* A damaged page is reported and stays, because its owner is not known. */
    spill(path, "nonsense, and more of it, beyond the bytes that a page begins with", 66);
    T_ERR(vv_stats_page_read(path, &page), -EBADMSG);
    T_EQ(count(dir), 1);
    T_EQ(vv_stats_clean(dir), 0);
    free(data);
}

/* Writes a header with something changed, sound in itself. */
static void respell(const char *path, const char *from, void (*change)(struct vv_stats_header *h))
{
    size_t bytes;
    char *data = slurp(from, &bytes);
    struct vv_stats_header h;

    memcpy(&h, data, sizeof(h));
    change(&h);
    h.checksum = 0;
    h.checksum = vv_hash64(&h, sizeof(h));
    memcpy(data, &h, sizeof(h));
    spill(path, data, bytes);
    free(data);
}

static void earlier_process(struct vv_stats_header *h)
{
    h->start_ticks ^= 1;
}

static void elsewhere(struct vv_stats_header *h)
{
    h->pid_space ^= 1;
    h->pid = 4194304 + 7; /* no such process here */
}

static void gone(struct vv_stats_header *h)
{
    h->pid = 4194304 + 7;
}

static void on_other_machine(struct vv_stats_header *h)
{
    gone(h);
    h->boot ^= 1;
    h->node ^= 1;
}

static void before_reboot(struct vv_stats_header *h)
{
    h->boot ^= 1; /* the number and the time of start may be right by chance */
}

static void wild(struct vv_stats_header *h)
{
    memset(h->command, 0x1b, sizeof(h->command));
    memset(h->level, 0xff, sizeof(h->level));
}

static void newer(struct vv_stats_header *h)
{
    h->format++;
}

static void owners(void)
{
    const char *dir = t_tmpdir();
    struct vv_stats_writer *w = open_in(dir);
    const char *mine = vv_stats_writer_path(w);
    char path[VV_STATS_PATH];

    snprintf(path, sizeof(path), "%s/varve-stats.2.0", dir);
    /* The number has been given to another process since. */
    respell(path, mine, earlier_process);
    T_OK(vv_stats_page_read(path, &page));
    T_EQ(page.owner, VV_STATS_DEAD);
    T_EQ(vv_stats_clean(dir), 1);
    T_EQ(count(dir), 1);
    respell(path, mine, gone);
    T_EQ(vv_stats_clean(dir), 1);
    /* In another container the same numbers belong to other processes. */
    respell(path, mine, elsewhere);
    T_OK(vv_stats_page_read(path, &page));
    T_EQ(page.owner, VV_STATS_UNKNOWN);
    T_ERR(vv_stats_page_remove(&page), -EBUSY);
    T_EQ(vv_stats_clean(dir), 0);
    /* The same on another machine, whose first namespace has the number of ours. */
    respell(path, mine, on_other_machine);
    T_OK(vv_stats_page_read(path, &page));
    if (page.header.boot != 1) {
        T_EQ(page.owner, VV_STATS_UNKNOWN);
        T_EQ(vv_stats_clean(dir), 0);
        respell(path, mine, before_reboot);
        T_EQ(vv_stats_clean(dir), 1);
    }
    /* Files with other names are ignored. */
    snprintf(path, sizeof(path), "%s/varve-stats.txt", dir);
    spill(path, "x", 1);
    struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    T_EQ(utimensat(AT_FDCWD, path, old, 0), 0);
    T_EQ(vv_stats_clean(dir), 0);
    T_EQ(count(dir), 1);
    T_EQ(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/varve-stats.2.0", dir);
    /* Control sequences for a terminal are removed. */
    respell(path, mine, wild);
    T_OK(vv_stats_page_read(path, &page));
    T_EQ(strspn(page.header.command, "?"), sizeof(page.header.command) - 1);
    T_EQ(strspn(page.header.level, "?"), sizeof(page.header.level) - 1);
    respell(path, mine, newer);
    T_ERR(vv_stats_page_read(path, &page), -EPROTO);
    T_EQ(unlink(path), 0);
    /* Links are not followed, and other kinds of file not read. */
    T_EQ(symlink(mine, path), 0);
    T_ERR(vv_stats_page_read(path, &page), -ELOOP);
    T_EQ(count(dir), 1);
    T_EQ(unlink(path), 0);
    T_EQ(mkfifo(path, 0600), 0);
    T_ERR(vv_stats_page_read(path, &page), -EBADMSG);
    T_EQ(unlink(path), 0);
    if (geteuid() == 0) {
        size_t bytes;
        char *data = slurp(mine, &bytes);
        spill(path, data, bytes);
        T_EQ(chown(path, 12345, (gid_t)-1), 0);
        T_ERR(vv_stats_page_read(path, &page), -EACCES);
        T_EQ(count(dir), 1);
        free(data);
    }
    vv_stats_writer_close(w);
}

/* ---- processes ---- */

static void killed(void)
{
    const char *dir = t_tmpdir();
    int ready[2];

    T_EQ(pipe(ready), 0);
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        struct vv_stats_header about = {0};
        struct vv_stats_writer *w;
        struct vv_stats_record r = {.hits = 9};
        char ok = vv_stats_writer_open(dir, &about, &w) == 0 && vv_stats_writer_put(w, &r) == 0;
        if (write(ready[1], &ok, 1) == 1)
            pause();
        _exit(1);
    }
    char ok = 0;
    T_EQ(read(ready[0], &ok, 1), 1);
    T_EQ(ok, 1);
    T_EQ(vv_stats_clean(dir), 0);
    T_EQ(kill(child, SIGKILL), 0);
    siginfo_t info;
    T_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    /* Dead, though not collected yet. */
    char path[VV_STATS_PATH];
    snprintf(path, sizeof(path), "%s/varve-stats.%ld.0", dir, (long)child);
    T_OK(vv_stats_page_read(path, &page));
    T_EQ(page.owner, VV_STATS_DEAD);
    T_EQ(page.record.hits, 9);
    T_EQ(waitpid(child, NULL, 0), child);
    T_OK(vv_stats_page_read(path, &page));
    T_EQ(page.owner, VV_STATS_DEAD);
    T_EQ(vv_stats_clean(dir), 1);
    T_ERR(vv_stats_page_remove(&page), -ENOENT);
    T_EQ(count(dir), 0);
    close(ready[0]);
    close(ready[1]);
}

static void forked(void)
{
    const char *dir = t_tmpdir();
    struct vv_stats_writer *w = open_in(dir);
    pid_t child = fork();
    int status;

    T_CHECK(child >= 0);
    if (child == 0) {
        vv_stats_writer_close(w);
        _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_OK(vv_stats_page_read(vv_stats_writer_path(w), &page));
    /* Removed by hand, and the name taken by another: closing leaves that one alone. */
    char path[VV_STATS_PATH];
    snprintf(path, sizeof(path), "%s", vv_stats_writer_path(w));
    /* The inode of the page is not free while it is open, so that the new file has another. */
    T_EQ(unlink(path), 0);
    spill(path, "other", 5);
    vv_stats_writer_close(w);
    T_EQ(access(path, F_OK), 0);
}

static void no_room(void)
{
    struct vv_stats_header about = {0};
    struct vv_stats_writer *w = NULL;
    const char *dir = t_tmpdir();
    struct rlimit old, small = {1000, 0};

    T_ERR(vv_stats_writer_open("/nonexistent/folder", &about, &w), -ENOENT);
    T_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    T_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = vv_stats_writer_open(dir, &about, &w);
    T_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    T_EQ(rc, -EFBIG);
    T_CHECK(w == NULL);
    T_EQ(count(dir), 0);
    T_EQ(access(dir, F_OK), 0);
    T_EQ(count("/nonexistent/folder"), 0);
}

static void starts(void)
{
    char proc[256], path[300];
    uint64_t ticks = 0;

    T_OK(vvi_process_start("/proc", getpid(), &ticks));
    T_CHECK(ticks > 0);
    T_ERR(vvi_process_start("/proc", 4194304 + 7, &ticks), -ESRCH);
    /* Without /proc no process is declared dead. */
    snprintf(proc, sizeof(proc), "%s", t_tmpdir());
    T_ERR(vvi_process_start(proc, 7, &ticks), -ENOSYS);
    snprintf(path, sizeof(path), "%s/7", proc);
    T_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/7/stat", proc);
    const char *line = "7 (a) S) (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
    spill(path, line, strlen(line));
    T_OK(vvi_process_start(proc, 7, &ticks));
    T_EQ(ticks, 4711);
    spill(path, "7 (x", 4);
    T_ERR(vvi_process_start(proc, 7, &ticks), -EBADMSG);
    spill(path, "7 (x) S 1 2", 11);
    T_ERR(vvi_process_start(proc, 7, &ticks), -EBADMSG);
    /* The first thread has ended, another goes on. */
    line = "7 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4712 20 21\n";
    spill(path, line, strlen(line));
    T_ERR(vvi_process_start(proc, 7, &ticks), -ESRCH);
    snprintf(path, sizeof(path), "%s/7/task", proc);
    T_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/7/task/7", proc);
    T_EQ(mkdir(path, 0700), 0);
    T_ERR(vvi_process_start(proc, 7, &ticks), -ESRCH);
    snprintf(path, sizeof(path), "%s/7/task/8", proc);
    T_EQ(mkdir(path, 0700), 0);
    T_OK(vvi_process_start(proc, 7, &ticks));
    T_EQ(ticks, 4712);
}

static void cleaned(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {{"plain", "plain"},
                 {"a\033[2Jb\n", "a?[2Jb?"},
                 {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                 {"cut\xc3", "cut?"},
                 {"\xe2\x82", "??"},
                 {"\xe2\x82\xac", "\xe2\x82\xac"},
                 {"\xc0\x80\xed\xa0\x80", "?????"},
                 {"\xf0\x9f\x8c\x8a", "\xf0\x9f\x8c\x8a"},
                 {"\xf8\x80\x7f\xc2\x9b", "?????"}};

    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        char text[32];
        snprintf(text, sizeof(text), "%s", cases[i].in);
        vv_stats_text_clean(text, sizeof(text));
        T_STREQ(text, cases[i].out);
    }
    char full[4] = {'a', 'b', 'c', 'd'};
    vv_stats_text_clean(full, sizeof(full));
    T_STREQ(full, "abc");
}

int main(void)
{
    T_RUN(round_trip);
    T_RUN(never_torn);
    T_RUN(damaged);
    T_RUN(owners);
    T_RUN(killed);
    T_RUN(forked);
    T_RUN(no_room);
    T_RUN(starts);
    T_RUN(cleaned);
    return t_done();
}
