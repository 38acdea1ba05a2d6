/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a history: the lock, the index in every state of damage, damaged files, generations. Committed
 * versions are always found. */
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/target/folder/target_folder.h"
#include "store_test.h"

static struct st_tier tier;
static struct vv_files *files;
static struct fault_os fault;
static const char *dir;

static void open_all(void)
{
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
}

static void close_all(void)
{
    vv_files_close(files);
    st_tier_close(&tier);
}

static void set_up(void)
{
    fault_os_init(&fault);
    vv_store_opts_init(&tier.opts);
    tier.opts.os = &fault.os;
    tier.opts.page_bytes = ST_PAGE;
    dir = t_tmpdir();
    open_all();
}

struct seen {
    int n;
    uint64_t version[64], generation[64], size[64];
};

static int see(void *user, const struct vv_files_entry *e)
{
    struct seen *s = user;
    T_CHECK(s->n < 64);
    T_CHECK(s->n == 0 || s->version[s->n - 1] < e->version);
    s->version[s->n] = e->version;
    s->generation[s->n] = e->generation;
    s->size[s->n++] = e->size;
    T_EQ(e->nregions, 2);
    T_EQ(e->regions[0].id, 7);
    T_EQ(e->regions[1].id, -2);
    T_EQ(e->regions[0].bytes, e->size / 3);
    T_EQ(e->regions[0].bytes + e->regions[1].bytes, e->size);
    T_CHECK(e->run_id != 0 && e->commit_time_ns != 0);
    return 0;
}

/* Opens again; returns the versions found and how many checkpoint files were opened for that. */
static struct seen look_again(long *ret_opened)
{
    struct seen s = {0};
    close_all();
    st_tier_open(&tier, dir);
    long before = atomic_load(&fault.per_call[FAULT_FILE_BYTES]);
    files = st_files_open(&tier, "h");
    /* One open is for the index itself. */
    if (ret_opened)
        *ret_opened = atomic_load(&fault.per_call[FAULT_FILE_BYTES]) - before - 1;
    T_OK(vv_files_list(files, see, &s));
    return s;
}

static void put(uint64_t version, uint64_t generation)
{
    T_OK(st_put_version(tier.writer, files, version, generation, 1000 + version, ST_PAGE));
}

static void write_versions(int n)
{
    for (int i = 0; i < n; i++)
        put((uint64_t)i * 3, 0);
}

static void index_saves_opening(void)
{
    long opened;
    set_up();
    write_versions(10);
    struct seen s = look_again(&opened);
    T_EQ(s.n, 10);
    T_EQ(opened, 0);
    for (int i = 0; i < 10; i++) {
        T_EQ(s.version[i], i * 3);
        T_EQ(s.size[i], 1000 + i * 3);
    }
    close_all();
}

static void damage_index(uint64_t from_end, bool cut)
{
    struct stat st;
    const char *path = st_path(dir, "h/index.0");
    T_OK(stat(path, &st));
    if (cut) {
        T_OK(truncate(path, st.st_size - (off_t)from_end));
        return;
    }
    int fd = open(path, O_RDWR);
    char c;
    T_EQ(pread(fd, &c, 1, st.st_size - (off_t)from_end), 1);
    c ^= 1;
    T_EQ(pwrite(fd, &c, 1, st.st_size - (off_t)from_end), 1);
    close(fd);
}

/* However the index is damaged, the same versions are found, and it is intact again afterwards. */
static void damaged_index(void)
{
    static const struct {
        uint64_t from_end;
        bool cut;
        int lost;
    } damage[] = {
        {1, true, 1},
        {104, true, 1},
        {105, true, 2},
        {1, false, 1},
        {104 * 5, false, 5},
        /* the header */
        {10 * 104 + 64, false, 10},
        {10 * 104 + 1, true, 10},
        {10 * 104 + 64, true, 10},
    };
    for (unsigned i = 0; i < VV_ARRAY_SIZE(damage); i++) {
        long opened;
        set_up();
        write_versions(10);
        close_all();
        damage_index(damage[i].from_end, damage[i].cut);
        open_all();
        struct seen s = look_again(&opened);
        T_EQ(s.n, 10);
        T_EQ(opened, 0);
        close_all();
    }
    /* How many records of a damaged index were still used. */
    for (unsigned i = 0; i < VV_ARRAY_SIZE(damage); i++) {
        set_up();
        write_versions(10);
        close_all();
        damage_index(damage[i].from_end, damage[i].cut);
        st_tier_open(&tier, dir);
        long before = atomic_load(&fault.per_call[FAULT_FILE_BYTES]);
        files = st_files_open(&tier, "h");
        T_EQ(atomic_load(&fault.per_call[FAULT_FILE_BYTES]) - before - 1, damage[i].lost);
        close_all();
    }
}

static void missing_index(void)
{
    long opened;
    set_up();
    write_versions(5);
    close_all();
    T_OK(unlink(st_path(dir, "h/index.0")));
    open_all();
    struct seen s = look_again(&opened);
    T_EQ(s.n, 5);
    T_EQ(opened, 0);
    close_all();
}

static void records_without_files(void)
{
    set_up();
    write_versions(4);
    put(100, 9);
    close_all();
    T_OK(unlink(st_path(dir, "h/r0.v3.g0.ckpt")));
    T_OK(unlink(st_path(dir, "h/r0.v100.g9.ckpt")));
    open_all();
    /* The generation of a deleted file is not used again. */
    T_EQ(vv_files_first_generation(files), 10);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 3);
    T_EQ(s.version[1], 6);
    close_all();
}

static void higher_generation_wins(void)
{
    struct stat st;
    set_up();
    put(1, 0);
    put(2, 0);
    put(2, 1);
    put(2, 5);
    put(3, 0);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 3);
    T_EQ(s.version[1], 2);
    T_EQ(s.generation[1], 5);
    T_CHECK(stat(st_path(dir, "h/r0.v2.g0.ckpt"), &st) != 0);
    T_CHECK(stat(st_path(dir, "h/r0.v2.g1.ckpt"), &st) != 0);
    T_OK(st_check_version(tier.reader, files, 2, 5, 1002, ST_PAGE));
    T_EQ(vv_files_first_generation(files), 6);
    close_all();
}

/* The removal of the lower one is durable first: a crash must not bring it back once the higher one is
 * discarded. */
static void superseded_removal_is_synced(void)
{
    long fsyncs[2];
    set_up();
    put(1, 0);
    put(1, 1);
    for (int i = 0; i < 2; i++) {
        long before = atomic_load(&fault.per_call[FAULT_FSYNC]);
        (void)look_again(NULL);
        fsyncs[i] = atomic_load(&fault.per_call[FAULT_FSYNC]) - before;
    }
    T_EQ(fsyncs[0], fsyncs[1] + 1);
    close_all();
}

/* An overwritten version has a run id of its own. */
static void editions(void)
{
    set_up();
    uint64_t first = vv_files_run_id(files, 1), second = vv_files_run_id(files, 2),
             third = vv_files_run_id(files, 3);
    T_CHECK(first != second && second != third && first != third);
    T_EQ(first >> 32, third >> 32);
    T_EQ(vv_files_run_id(files, 0), first);
    T_EQ(vv_files_run_id(files, 2), second);
    close_all();
}

struct damage {
    int n;
    uint64_t version[8], generation[8];
};

static int see_damage(void *user, const struct vv_files_damage *d)
{
    struct damage *s = user;
    T_CHECK(s->n < 8);
    T_EQ(d->status, -EBADMSG);
    T_CHECK(d->what[0] != '\0');
    s->version[s->n] = d->version;
    s->generation[s->n++] = d->generation;
    return 0;
}

static struct damage damage_now(void)
{
    struct damage d = {0};
    T_OK(vv_files_list_damaged(files, see_damage, &d));
    return d;
}

/* Damaged files are kept and reported, not listed. A lower generation does not replace one: the
 * application had overwritten it. It is deleted when the damaged one is removed. */
static void damaged_files(void)
{
    struct stat st;
    set_up();
    put(1, 0);
    put(2, 0);
    put(2, 4);
    put(3, 0);
    close_all();
    T_OK(unlink(st_path(dir, "h/index.0")));
    T_OK(truncate(st_path(dir, "h/r0.v2.g4.ckpt"), 5000));
    T_OK(truncate(st_path(dir, "h/r0.v3.g0.ckpt"), 0));
    open_all();
    T_EQ(damage_now().n, 2);
    T_EQ(vv_files_first_generation(files), 5);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 1);
    T_EQ(s.version[0], 1);
    struct damage d = damage_now();
    T_EQ(d.n, 2);
    T_EQ(d.version[0], 2);
    T_EQ(d.generation[0], 4);
    T_EQ(d.version[1], 3);
    T_OK(stat(st_path(dir, "h/r0.v2.g0.ckpt"), &st));
    T_OK(stat(st_path(dir, "h/r0.v2.g4.ckpt"), &st));
    T_OK(stat(st_path(dir, "h/r0.v3.g0.ckpt"), &st));
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, 2, 4}};
    T_OK(st_run(tier.writer, &io));
    s = look_again(NULL);
    T_EQ(s.n, 1);
    T_EQ(damage_now().n, 1);
    T_CHECK(stat(st_path(dir, "h/r0.v2.g0.ckpt"), &st) != 0);
    T_CHECK(stat(st_path(dir, "h/r0.v2.g4.ckpt"), &st) != 0);
    close_all();
}

/* The index does not describe a file that was truncated, extended or replaced since. */
static void length_is_checked(void)
{
    static const off_t length[] = {0, 1, 5000, 1 << 20};
    long opened;
    for (unsigned i = 0; i < VV_ARRAY_SIZE(length); i++) {
        set_up();
        write_versions(3);
        close_all();
        T_OK(truncate(st_path(dir, "h/r0.v6.g0.ckpt"), length[i]));
        open_all();
        struct damage d = damage_now();
        T_EQ(d.n, 1);
        T_EQ(d.version[0], 6);
        struct seen s = look_again(&opened);
        T_EQ(s.n, 2);
        T_EQ(opened, 1); /* the file that is read */
        close_all();
    }
}

static int one_text(void *user, const struct vv_files_damage *d)
{
    char *text = user;
    T_EQ(d->status, -EBADMSG);
    snprintf(text, 256, "%s", d->what);
    return 0;
}

static void make_odd(int what, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;
    switch (what) {
    case 0:
        T_OK(mkfifo(path, 0600));
        return;
    case 1:
        T_OK(mkdir(path, 0700));
        return;
    case 2:
        T_OK(symlink("/dev/zero", path));
        return;
    default:
        T_CHECK(strlen(path) < sizeof(address.sun_path));
        snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        T_CHECK(fd >= 0);
        T_OK(bind(fd, (struct sockaddr *)&address, sizeof(address)));
        close(fd);
    }
}

static int count_not_regular(void *user, const struct vv_files_found *found)
{
    if (found->status != 0) {
        T_EQ(found->status, -EBADMSG);
        T_CHECK(strstr(found->error, "not a regular file"));
        ++*(int *)user;
    }
    return 0;
}

static void expect_not_regular(void *user, const struct vv_ckfile_problem *p)
{
    T_EQ(p->version, 3);
    T_CHECK(strstr(p->what, "not a regular file"));
    ++*(int *)user;
}

/* A FIFO, a folder, a device or a socket under the name of a file: with and without the index, in the place
 * of a committed file, of an unfinished one and of the index itself. */
static void no_regular_files(void)
{
    for (int what = 0; what < 4; what++)
        for (int indexed = 0; indexed < 2; indexed++) {
            char text[256] = "", path[4096];
            int n = 0;
            set_up();
            write_versions(3);
            close_all();
            snprintf(path, sizeof(path), "%s", st_path(dir, "h/r0.v3.g0.ckpt"));
            T_OK(unlink(path));
            make_odd(what, path);
            make_odd(what, st_path(dir, "h/r0.v9.g7.tmp"));
            if (!indexed) {
                T_OK(unlink(st_path(dir, "h/index.0")));
                make_odd(what, st_path(dir, "h/index.0"));
            }
            alarm(60); /* ends a test that hangs */
            open_all();
            T_EQ(damage_now().n, 1);
            T_OK(vv_files_list_damaged(files, one_text, text));
            T_CHECK(strstr(text, "not a regular file"));
            T_ERR(st_check_version(tier.reader, files, 3, 0, 1003, ST_PAGE), -EBADMSG);
            struct seen s = look_again(NULL);
            T_EQ(s.n, 2);
            put(12, 20);
            s = look_again(NULL);
            T_EQ(s.n, 3);
            T_OK(vv_files_scan(vv_os_posix(), dir, "h", count_not_regular, &n));
            T_CHECK(n == 1 || n == 2); /* an unfinished one that is a folder stays */
            n = 0;
            T_ERR(vv_ckfile_verify(vv_target_cwd(), path, expect_not_regular, &n, NULL), -EBADMSG);
            T_EQ(n, 1);
            alarm(0);
            close_all();
        }
}

/* A damaged lower generation is neither reported nor deleted. */
static void damaged_and_replaced(void)
{
    struct stat st;
    set_up();
    put(2, 0);
    put(2, 4);
    close_all();
    T_OK(unlink(st_path(dir, "h/index.0")));
    T_OK(truncate(st_path(dir, "h/r0.v2.g0.ckpt"), 5000));
    open_all();
    T_EQ(damage_now().n, 0);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 1);
    T_EQ(s.generation[0], 4);
    T_OK(stat(st_path(dir, "h/r0.v2.g0.ckpt"), &st));
    close_all();
}

/* A file copied to another version's name is not that version. */
static void misnamed_file(void)
{
    char from[4096];
    set_up();
    put(1, 0);
    close_all();
    snprintf(from, sizeof(from), "%s", st_path(dir, "h/r0.v1.g0.ckpt"));
    T_OK(link(from, st_path(dir, "h/r0.v7.g0.ckpt")));
    T_OK(link(from, st_path(dir, "h/r0.v1.g00.ckpt"))); /* not a valid name */
    open_all();
    T_EQ(damage_now().n, 1);
    T_ERR(st_check_version(tier.reader, files, 7, 0, 1001, ST_PAGE), -EBADMSG);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 1);
    close_all();
}

static off_t index_bytes(void)
{
    struct stat st;
    T_OK(stat(st_path(dir, "h/index.0"), &st));
    return st.st_size;
}

static void remove_version(uint64_t v, uint64_t generation)
{
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, v, generation}};
    T_OK(st_run(tier.writer, &io));
}

/* At any time the index has at most twice the existing versions plus a constant: it is rewritten without removed
 * ones. That loses no existing version, and the next opening has to read no file. */
static void index_is_compacted(void)
{
    enum { REMOVAL = 72, RECORD = REMOVAL + 2 * 16, KEPT = 5, REMOVED = 32, VERSIONS = 1000 };
    long opened;
    set_up();
    for (uint64_t v = 0; v < VERSIONS; v++) {
        put(v, 0);
        if (v >= KEPT)
            remove_version(v - KEPT, 0);
        T_CHECK(index_bytes() <= 64 + (2 * KEPT + 64 + 2) * RECORD);
        /* The last removals stay: a partner may have missed them. */
        if (v >= KEPT + REMOVED)
            T_CHECK(index_bytes() >= 64 + KEPT * RECORD + REMOVED * REMOVAL);
    }
    struct seen s = look_again(&opened);
    T_EQ(s.n, KEPT);
    T_EQ(opened, 0);
    for (int i = 0; i < KEPT; i++)
        T_EQ(s.version[i], VERSIONS - KEPT + i);
    /* A version that was removed and written again exists. */
    for (uint64_t g = 1; g < 100; g++) {
        put(7, g);
        remove_version(7, g);
    }
    put(7, 100);
    s = look_again(&opened);
    T_EQ(s.n, KEPT + 1);
    T_EQ(s.generation[0], 100);
    T_EQ(opened, 0);
    close_all();
}

/* If most versions exist, the index is not rewritten. */
static void index_is_left_alone(void)
{
    set_up();
    for (uint64_t v = 0; v < 40; v++)
        put(v, 0);
    struct stat before, after;
    T_OK(stat(st_path(dir, "h/index.0"), &before));
    for (uint64_t v = 0; v < 30; v++)
        remove_version(v, 0);
    T_OK(stat(st_path(dir, "h/index.0"), &after));
    T_EQ(before.st_ino, after.st_ino);
    close_all();
}

/* Compaction fails at any of its system calls: then there is no index, or the old one, and the same versions
 * are found. */
static void compaction_fails(void)
{
    enum { CALLS = 60 }; /* more than a compaction makes */
    for (long at = 1; at <= CALLS; at++) {
        struct stat before, after;
        set_up();
        put(1000, 0);
        for (uint64_t v = 0; v < 22; v++) {
            put(v, 0);
            remove_version(v, 0);
        }
        put(2000, 0);
        for (uint64_t v = 100; v < 112; v++)
            put(v, 0);
        T_OK(stat(st_path(dir, "h/index.0"), &before));
        fault.calls = 1u << FAULT_OPENAT | 1u << FAULT_PWRITE | 1u << FAULT_RENAME |
                      1u << FAULT_PREAD | 1u << FAULT_FILE_BYTES | 1u << FAULT_STAT;
        fault.at = atomic_load(&fault.count) + at;
        fault.err = EIO;
        fault.mode = FAULT_ONCE;
        for (uint64_t v = 100; v < 112; v++)
            remove_version(v, 0);
        fault.mode = FAULT_NONE;
        if (at == CALLS) {
            T_OK(stat(st_path(dir, "h/index.0"), &after));
            T_CHECK(before.st_ino != after.st_ino);
        }
        struct seen s = look_again(NULL);
        T_EQ(s.n, 2);
        T_EQ(s.version[0], 1000);
        T_EQ(s.version[1], 2000);
        close_all();
    }
}

static void lock_conflicts(void)
{
    char err[256] = "", want[64];
    struct vv_files *other;
    set_up();
    /* Another handle of this process. */
    T_ERR(vv_files_open(tier.folder, "h", 0, NULL, err, sizeof(err), &other), -EBUSY);
    T_CHECK(strstr(err, "is open already in this process"));
    /* Another rank and another history are free. */
    T_OK(vv_files_open(tier.folder, "h", 1, NULL, err, sizeof(err), &other));
    vv_files_close(other);
    T_OK(vv_files_open(tier.folder, "g", 0, NULL, err, sizeof(err), &other));
    vv_files_close(other);
    close_all();
    /* Another process, until it dies. */
    int ready[2];
    T_OK(pipe(ready));
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        open_all();
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char c;
    T_EQ(read(ready[0], &c, 1), 1);
    st_tier_open(&tier, dir);
    T_ERR(vv_files_open(tier.folder, "h", 0, NULL, err, sizeof(err), &files), -EBUSY);
    snprintf(want, sizeof(want), "in use by process %ld", (long)pid);
    T_CHECK(strstr(err, want));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    files = st_files_open(&tier, "h");
    close_all();
    close(ready[0]);
    close(ready[1]);
}

/* A forked child also has the lock's descriptor: the lock still ends when the parent closes, and not when
 * the child does. */
static void lock_and_fork(void)
{
    char err[256] = "";
    struct vv_files *other;
    set_up();
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* in case the test fails */
        pause();
        _exit(0);
    }
    pid_t closer = fork();
    T_CHECK(closer >= 0);
    if (closer == 0) {
        vv_files_close(files);
        _exit(0);
    }
    int status;
    T_EQ(waitpid(closer, &status, 0), closer);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    T_ERR(vv_files_open(tier.folder, "h", 0, NULL, err, sizeof(err), &other), -EBUSY);
    vv_files_close(files);
    files = st_files_open(&tier, "h");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close_all();
}

/* Creating a folder and syncing the one above are two steps. If a process did only the first, the next one
 * does the second. */
static void folders_are_synced(void)
{
    char err[256] = "", path[4096];
    struct vv_folder *folder;
    struct vv_files *f;
    set_up();
    fault.calls = 1u << FAULT_FSYNC;
    fault.mode = FAULT_FOREVER;
    fault.at = 1;
    for (int i = 0; i < 2; i++)
        T_ERR(vv_files_open(tier.folder, "g", 0, NULL, err, sizeof(err), &f), -EIO);
    snprintf(path, sizeof(path), "%s", st_path(dir, "new"));
    for (int i = 0; i < 2; i++)
        T_ERR(vv_folder_new(path, &tier.opts, err, sizeof(err), &folder), -EIO);
    T_CHECK(strstr(err, path));
    fault.mode = FAULT_NONE;
    T_OK(vv_files_open(tier.folder, "g", 0, NULL, err, sizeof(err), &f));
    vv_files_close(f);
    T_OK(vv_folder_new(path, &tier.opts, err, sizeof(err), &folder));
    vv_folder_free(folder);
    close_all();
}

static void names(void)
{
    char err[256], long_name[300];
    struct vv_files *f;
    set_up();
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    T_ERR(vv_files_open(tier.folder, "", 0, NULL, err, sizeof(err), &f), -EINVAL);
    T_ERR(vv_files_open(tier.folder, NULL, 0, NULL, err, sizeof(err), &f), -EINVAL);
    T_ERR(vv_files_open(tier.folder, ".x", 0, NULL, err, sizeof(err), &f), -EINVAL);
    T_ERR(vv_files_open(tier.folder, "a/b", 0, NULL, err, sizeof(err), &f), -EINVAL);
    T_ERR(vv_files_open(tier.folder, long_name, 0, NULL, err, sizeof(err), &f), -EINVAL);
    long_name[200] = '\0';
    T_OK(vv_files_open(tier.folder, long_name, 0, NULL, err, sizeof(err), &f));
    vv_files_close(f);
    vv_files_close(NULL);
    close_all();
    struct vv_folder *folder;
    T_ERR(vv_folder_new("/no/such/place", &tier.opts, err, sizeof(err), &folder), -ENOENT);
    T_CHECK(strstr(err, "/no/such/place"));
    /* File names. */
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    T_CHECK(vv_ckfile_parse_name("r4294967295.v18446744073709551615.g5.ckpt", &kind, &rank,
                                 &version, &generation));
    T_CHECK(rank == UINT32_MAX && version == UINT64_MAX && generation == 5);
    static const char *const bad[] = {"",
                                      "index.0",
                                      "r0.v1.g0",
                                      "r0.v1.g0.ckpt.x",
                                      "r0.v01.g0.ckpt",
                                      "r0.v-1.g0.ckpt",
                                      "r0.v1.g0.CKPT",
                                      "r4294967296.v1.g0.ckpt",
                                      "r0.v18446744073709551616.g0.ckpt",
                                      "r0.v1.g18446744073709551615.ckpt",
                                      "r0.v.g0.ckpt"};
    for (unsigned i = 0; i < VV_ARRAY_SIZE(bad); i++)
        T_CHECK(!vv_ckfile_parse_name(bad[i], &kind, &rank, &version, &generation));
}

/* The index cannot be written: nothing fails, and the next open finds everything. */
static void index_without_space(void)
{
    set_up();
    put(1, 0);
    fault.calls = 1u << FAULT_PWRITE;
    fault.mode = FAULT_FOREVER;
    fault.at = 1;
    fault.err = ENOSPC;
    put(2, 0);
    struct stat st;
    T_CHECK(stat(st_path(dir, "h/index.0"), &st) != 0);
    put(3, 0);
    struct seen s = look_again(NULL);
    T_EQ(s.n, 3);
    fault.mode = FAULT_NONE;
    s = look_again(NULL);
    T_EQ(s.n, 3);
    close_all();
}

int main(void)
{
    T_RUN(index_saves_opening);
    T_RUN(damaged_index);
    T_RUN(missing_index);
    T_RUN(records_without_files);
    T_RUN(higher_generation_wins);
    T_RUN(superseded_removal_is_synced);
    T_RUN(editions);
    T_RUN(damaged_files);
    T_RUN(length_is_checked);
    T_RUN(no_regular_files);
    T_RUN(damaged_and_replaced);
    T_RUN(misnamed_file);
    T_RUN(index_is_compacted);
    T_RUN(index_is_left_alone);
    T_RUN(compaction_fails);
    T_RUN(lock_conflicts);
    T_RUN(lock_and_fork);
    T_RUN(folders_are_synced);
    T_RUN(names);
    T_RUN(index_without_space);
    return t_done();
}
