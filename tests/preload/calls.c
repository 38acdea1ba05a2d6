/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes every call that libvarve-preload.so replaces, in many ways, and prints the results. It has to print the same
 * with and without the library.
 *   calls ROOT      ROOT has the files of common.sh.inc
 * With CALLS_CACHED set it fails if a plain file did not come from the cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int dirfd, const char *path, struct stat *st, int flags);

#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static const char *root;
static const char *volatile no_path; /* volatile: hides the NULL from the compiler's warnings */
static char text[4200];

static const char *in_root(const char *name)
{
    static char path[4][4200];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, name);
    return path[turn];
}

static void show_stat(const char *what, int rc, const struct stat *st)
{
    if (rc != 0)
        printf("%s: %d %s\n", what, rc, strerrorname_np(errno));
    else
        printf("%s: dev %lx ino %lu mode %o nlink %lu uid %u gid %u rdev %lx size %ld blk %ld %ld "
               "m %ld.%09ld c %ld.%09ld\n",
               what, (long)st->st_dev, (unsigned long)st->st_ino, st->st_mode,
               (unsigned long)st->st_nlink, st->st_uid, st->st_gid, (long)st->st_rdev,
               (long)st->st_size, (long)st->st_blksize, (long)st->st_blocks,
               (long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long)st->st_ctim.tv_sec,
               st->st_ctim.tv_nsec);
}

static void show_statx(const char *what, int rc, const struct statx *st)
{
    if (rc != 0)
        printf("%s: %d %s\n", what, rc, strerrorname_np(errno));
    else
        printf("%s: dev %u:%u ino %llu mode %o nlink %u size %llu m %lld.%09u c %lld.%09u\n", what,
               st->stx_dev_major, st->stx_dev_minor, st->stx_ino, st->stx_mode, st->stx_nlink,
               st->stx_size, st->stx_mtime.tv_sec, st->stx_mtime.tv_nsec, st->stx_ctime.tv_sec,
               st->stx_ctime.tv_nsec);
}

static unsigned long sum_of(int fd)
{
    unsigned long h = 1469598103934665603u;
    char buf[4096];
    ssize_t n;

    while ((n = read(fd, buf, sizeof(buf))) > 0)
        for (ssize_t i = 0; i < n; i++)
            h = (h ^ (unsigned char)buf[i]) * 1099511628211u;
    return h;
}

/* A copy in the cache has another inode than its original. */
static void must_be_cached(const char *what, int fd)
{
    struct stat real, st;

    if (!getenv("CALLS_CACHED"))
        return;
    if (syscall(SYS_fstat, fd, &real) < 0 || fstat(fd, &st) < 0 || real.st_ino == st.st_ino) {
        fprintf(stderr, "%s: not from the cache\n", what);
        exit(1);
    }
}

static void must_be_real(const char *what, int fd)
{
    struct stat real, st;

    if (syscall(SYS_fstat, fd, &real) < 0 || fstat(fd, &st) < 0 || real.st_ino != st.st_ino) {
        fprintf(stderr, "%s: from the cache\n", what);
        exit(1);
    }
}

/* Prints the result of an open; reads and closes it. */
static void show_fd(const char *what, int fd)
{
    struct stat st;

    if (fd < 0) {
        printf("%s: %d %s\n", what, fd, strerrorname_np(errno));
        return;
    }
    /* O_NOFOLLOW is a property of the call and not of the file, although the kernel keeps it. */
    printf("%s: fd %d fl %x fd %x at %ld", what, fd, fcntl(fd, F_GETFL) & ~O_NOFOLLOW,
           fcntl(fd, F_GETFD), (long)lseek(fd, 0, SEEK_CUR));
    printf(" sum %lx errno %d\n", sum_of(fd), errno);
    snprintf(text, sizeof(text), "%s fstat", what);
    show_stat(text, fstat(fd, &st), &st);
    close(fd);
}

static void cached_fd(const char *what, int fd)
{
    if (fd >= 0)
        must_be_cached(what, fd);
    show_fd(what, fd);
}

static void show_file(const char *what, FILE *f)
{
    char line[200];
    struct stat st;

    if (!f) {
        printf("%s: NULL %s\n", what, strerrorname_np(errno));
        return;
    }
    must_be_cached(what, fileno(f));
    printf("%s: fd %d fl %x fd %x ", what, fileno(f), fcntl(fileno(f), F_GETFL),
           fcntl(fileno(f), F_GETFD));
    printf("first %s", fgets(line, sizeof(line), f) ? line : "nothing\n");
    fseek(f, 0, SEEK_END);
    printf("%s: size %ld\n", what, ftell(f));
    show_stat(what, fstat(fileno(f), &st), &st);
    fclose(f);
}

static void opening(void)
{
    int dir = open(root, O_RDONLY | O_DIRECTORY), sub;

    cached_fd("open", open(in_root("file"), O_RDONLY));
    cached_fd("open cloexec", open(in_root("file"), O_RDONLY | O_CLOEXEC));
    cached_fd("open nonblock", open(in_root("file"), O_RDONLY | O_NONBLOCK | O_NOCTTY));
    cached_fd("open64", open64(in_root("file"), O_RDONLY));
    cached_fd("__open", __open(in_root("file"), O_RDONLY));
    cached_fd("__open64", __open64(in_root("file"), O_RDONLY));
    cached_fd("__open_2", __open_2(in_root("file"), O_RDONLY));
    cached_fd("__open64_2", __open64_2(in_root("file"), O_RDONLY));
    cached_fd("openat cwd", openat(AT_FDCWD, in_root("file"), O_RDONLY));
    cached_fd("openat dir", openat(dir, "file", O_RDONLY));
    cached_fd("openat64", openat64(dir, "file", O_RDONLY));
    cached_fd("__openat_2", __openat_2(dir, "file", O_RDONLY));
    cached_fd("__openat64_2", __openat64_2(dir, "sub/inner", O_RDONLY));
    cached_fd("openat absolute", openat(-7, in_root("file"), O_RDONLY));
    sub = openat(dir, "sub", O_RDONLY | O_DIRECTORY);
    cached_fd("openat sub", openat(sub, "inner", O_RDONLY));
    cached_fd("openat up", openat(sub, "../file", O_RDONLY));
    close(sub);
    cached_fd("nofollow", open(in_root("file"), O_RDONLY | O_NOFOLLOW));
    cached_fd("empty", open(in_root("empty"), O_RDONLY));
    cached_fd("link", open(in_root("link"), O_RDONLY));
    show_fd("link nofollow", open(in_root("link"), O_RDONLY | O_NOFOLLOW));
    cached_fd("link in path", open(in_root("sublink/inner"), O_RDONLY));
    show_fd("link in path nofollow", open(in_root("sublink/inner"), O_RDONLY | O_NOFOLLOW));
    cached_fd("up through link", open(in_root("sublink/../deep/other"), O_RDONLY));
    show_fd("link out", open(in_root("out"), O_RDONLY));
    show_fd("dangling", open(in_root("dangling"), O_RDONLY));
    show_fd("loop", open(in_root("loop"), O_RDONLY));
    cached_fd("spelling", open(in_root("./sub/..//.///file"), O_RDONLY));
    show_fd("missing", open(in_root("missing"), O_RDONLY));
    show_fd("below file", open(in_root("file/x"), O_RDONLY));
    show_fd("slash", open(in_root("file/"), O_RDONLY));
    show_fd("dot", open(in_root("file/."), O_RDONLY));
    show_fd("as folder", open(in_root("file"), O_RDONLY | O_DIRECTORY));
    show_fd("fifo", open(in_root("fifo"), O_RDONLY | O_NONBLOCK));
    show_fd("empty path", open("", O_RDONLY));
    show_fd("no path", open(no_path, O_RDONLY));
    show_fd("bad folder", openat(999, "file", O_RDONLY));
    show_fd("file as folder", openat(open(in_root("file"), O_RDONLY), "x", O_RDONLY));
    memset(text, 'a', 4100);
    text[4100] = '\0';
    show_fd("long name", open(in_root(text), O_RDONLY));
    show_fd("exclusive", open(in_root("file"), O_RDONLY | O_CREAT | O_EXCL, 0600));
    show_fd("outside", open("/etc/hostname", O_RDONLY));
    show_fd("access mode 3", open(in_root("sub"), O_WRONLY));
    close(dir);
}

static void folders(void)
{
    struct stat st;
    int fd = open(root, O_RDONLY);

    show_stat("root", fstat(fd, &st), &st);
    close(fd);
    fd = open(in_root("sub"), O_RDONLY);
    show_stat("sub", fstat(fd, &st), &st);
    close(fd);
    fd = open(in_root("file"), O_PATH);
    show_stat("O_PATH", fstat(fd, &st), &st);
    show_stat("O_PATH at", fstatat(fd, "", &st, AT_EMPTY_PATH), &st);
    close(fd);
    fd = open(in_root("link"), O_PATH | O_NOFOLLOW);
    show_stat("O_PATH link", fstat(fd, &st), &st);
    close(fd);
}

static void asking(void)
{
    const char *const name[] = {"file",   "link",      "dangling",      "loop",
                                "sub",    "missing",   "file/",         "fifo",
                                "out",    "sub/inner", "empty",         "sub/../file",
                                "file/x", "denied",    "sublink/inner", NULL};
    int dir = open(root, O_RDONLY | O_DIRECTORY);
    struct statx sx;
    struct stat st;

    for (int i = 0; name[i]; i++) {
        const char *path = in_root(name[i]);

        printf("-- %s\n", name[i]);
        show_stat("stat", stat(path, &st), &st);
        show_stat("stat64", stat64(path, (struct stat64 *)&st), &st);
        show_stat("lstat", lstat(path, &st), &st);
        show_stat("lstat64", lstat64(path, (struct stat64 *)&st), &st);
        show_stat("fstatat", fstatat(dir, name[i], &st, 0), &st);
        show_stat("fstatat64", fstatat64(dir, name[i], (struct stat64 *)&st, AT_SYMLINK_NOFOLLOW),
                  &st);
        show_stat("__xstat", __xstat(STAT_VERSION, path, &st), &st);
        show_stat("__lxstat", __lxstat(STAT_VERSION, path, &st), &st);
        show_stat("__fxstatat", __fxstatat(STAT_VERSION, dir, name[i], &st, 0), &st);
        show_statx("statx", statx(dir, name[i], 0, STATX_BASIC_STATS, &sx), &sx);
        show_statx("statx all", statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_ALL, &sx), &sx);
        if (statx(AT_FDCWD, path, 0, STATX_ALL, &sx) == 0)
            printf("ino %llu birth %d b %lld.%09u\n", (unsigned long long)sx.stx_ino,
                   (sx.stx_mask & STATX_BTIME) != 0, (long long)sx.stx_btime.tv_sec,
                   sx.stx_btime.tv_nsec);
        printf("access %d %d %d %d\n", access(path, F_OK), access(path, R_OK), access(path, W_OK),
               access(path, X_OK));
        printf("others %d %d %d %d\n", faccessat(dir, name[i], R_OK, 0),
               faccessat(dir, name[i], R_OK, AT_EACCESS), euidaccess(path, R_OK),
               eaccess(path, F_OK));
    }
    show_stat("no version", __xstat(77, in_root("file"), &st), &st);
    show_stat("no path", stat("", &st), &st);
    close(dir);
}

/* Path and descriptor give the same result, by any call. */
static void agreeing(void)
{
    struct stat a, b;
    struct statx sx;
    int fd = open(in_root("file"), O_RDONLY), other;
    char link[64];

    must_be_cached("agreeing", fd);
    printf("fstat %d stat %d\n", fstat(fd, &a), stat(in_root("file"), &b));
    a.st_atim = b.st_atim;
    printf("same %d\n", memcmp(&a, &b, sizeof(a)));
    show_stat("fstat64", fstat64(fd, (struct stat64 *)&a), &a);
    show_stat("__fxstat", __fxstat(STAT_VERSION, fd, &a), &a);
    show_stat("fstatat", fstatat(fd, "", &a, AT_EMPTY_PATH), &a);
    show_statx("statx", statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx), &sx);
    printf("statx ino %d %d\n", statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_TYPE, &sx),
           sx.stx_ino == a.st_ino);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    show_stat("by /proc", stat(link, &a), &a);
    other = open(link, O_RDONLY);
    show_stat("opened by /proc", fstat(other, &a), &a);
    close(other);
    snprintf(link, sizeof(link), "/dev/fd/%d", fd);
    show_stat("by /dev", stat(link, &a), &a);
    show_statx("statx by /dev", statx(AT_FDCWD, link, 0, STATX_BASIC_STATS, &sx), &sx);
    other = dup(fd);
    show_stat("dup", fstat(other, &a), &a);
    close(fd);
    /* The number belongs to another file now. */
    fd = open("/etc/hostname", O_RDONLY);
    show_stat("reused", fstat(fd, &a), &a);
    dup2(other, fd);
    show_stat("dup2", fstat(fd, &a), &a);
    dup2(open("/etc/passwd", O_RDONLY), fd);
    show_stat("dup2 back", fstat(fd, &a), &a);
    close(fd);
    close(other);
    show_stat("closed", fstat(other, &a), &a);
    close(0);
    fd = open(in_root("file"), O_RDONLY);
    printf("lowest number %d\n", fd);
    close(fd);
    open("/dev/null", O_RDONLY);
}

static void streams(void)
{
    FILE *f;

    show_file("fopen", fopen(in_root("text"), "r"));
    show_file("fopen rbe", fopen(in_root("text"), "rbe"));
    show_file("fopen64", fopen64(in_root("text"), "rm"));
    printf("fopen missing %d %s\n", fopen(in_root("missing"), "r") == NULL, strerrorname_np(errno));
    printf("fopen bad %d %s\n", fopen(in_root("text"), "q") == NULL, strerrorname_np(errno));
    f = fopen("/dev/null", "r");
    show_file("freopen", freopen(in_root("text"), "r", f));
    f = fopen(in_root("text"), "r");
    show_file("freopen64 e", freopen64(in_root("sub/inner"), "re", f));
    f = fopen(in_root("text"), "r");
    printf("freopen missing %d %s\n", freopen(in_root("missing"), "r", f) == NULL,
           strerrorname_np(errno));
    f = fopen(in_root("new"), "w");
    fputs("new\n", f);
    fclose(f);
    f = fopen(in_root("new"), "r+");
    must_be_real("fopen r+", fileno(f));
    fputs("NEWER\n", f);
    fclose(f);
    f = fopen(in_root("new"), "r");
    must_be_real("after fopen r+", fileno(f));
    fgets(text, 100, f);
    printf("wrote %s", text);
    fclose(f);
    unlink(in_root("new"));
}

/* With none, one and two free descriptors the same calls succeed as without the library. */
static void few_descriptors(void)
{
    enum { LIMIT = 40 };
    struct rlimit was, few;

    getrlimit(RLIMIT_NOFILE, &was);
    few = was;
    few.rlim_cur = LIMIT;
    for (int spare = 0; spare < 3; spare++) {
        int taken[LIMIT], nr = 0, fd;
        FILE *f = fopen("/dev/null", "r");

        setrlimit(RLIMIT_NOFILE, &few);
        while (nr < LIMIT && (fd = dup(2)) >= 0)
            taken[nr++] = fd;
        for (int i = 0; i < spare && nr > 0; i++)
            close(taken[--nr]);
        errno = 0;
        fd = open(in_root("text"), O_RDONLY);
        printf("%d spare: open %d %s\n", spare, fd >= 0, strerrorname_np(errno));
        close(fd);
        f = freopen(in_root("text"), "r", f);
        printf("%d spare: freopen %d\n", spare, f != NULL);
        while (nr > 0)
            close(taken[--nr]);
        setrlimit(RLIMIT_NOFILE, &was);
        if (f && fgets(text, 100, f))
            printf("%d spare: %s", spare, text);
        if (f)
            fclose(f);
    }
}

static int open_until_none(const char *path)
{
    int nr = 0, fd[64];

    while (nr < 64 && (fd[nr] = open(path, O_RDONLY)) >= 0)
        nr++;
    for (int i = 0; i < nr; i++)
        close(fd[i]);
    return nr;
}

/* A process with a low limit from the beginning can use all of its descriptors: connections are closed for that. */
static void all_descriptors(void)
{
    struct rlimit few;
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        FILE *f;
        int fd;

        getrlimit(RLIMIT_NOFILE, &few);
        few.rlim_cur = 40;
        setrlimit(RLIMIT_NOFILE, &few);
        for (int i = 0; i < 2; i++) {
            fd = open(in_root("sub/inner"), O_RDONLY);
            must_be_cached("few from the beginning", fd);
            close(fd);
            printf("%d others, ", open_until_none("/dev/null"));
            printf("%d of ours\n", open_until_none(in_root("text")));
        }
        must_be_cached("again", open(in_root("big"), O_RDONLY));
        while (dup(2) >= 0)
            ;
        close(38);
        close(39);
        f = fopen(in_root("file"), "r");
        printf("fopen %d, ", f != NULL);
        f = f ? freopen(in_root("text"), "r", f) : NULL;
        printf("freopen %d\n", f != NULL);
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("status %d\n", status);
}

static int count_descriptors(void)
{
    int nr = 0;

    for (int i = 0; i < 2000; i++)
        nr += fcntl(i, F_GETFD) >= 0;
    return nr;
}

/* A child of vfork closes everything and opens files: its parent loses nothing. */
static void vforked(void)
{
    int before, good = 0;

    close(open(in_root("file"), O_RDONLY));
    before = count_descriptors();
    for (int i = 0; i < 4; i++) {
        int status = 0;
        pid_t pid = vfork();

        if (pid == 0) {
            int fd;

            close_range(3, 4000, 0);
            fd = open(in_root(i % 2 ? "text" : "sub/inner"), O_RDONLY);
            _exit(fd >= 0 && sum_of(fd) != 0 ? 7 : 1);
        }
        waitpid(pid, &status, 0);
        good += WEXITSTATUS(status) == 7;
        close(open(in_root("file"), O_RDONLY));
    }
    printf("vfork %d, %d descriptors more\n", good, count_descriptors() - before);
}

/* A process reads its own writes, at once and always. */
static void writing(void)
{
    const char *path = in_root("written");
    char buf[100] = "";
    struct stat st;
    int fd, in;

    in = open(path, O_RDONLY);
    must_be_cached("before writing", in);
    fd = open(path, O_WRONLY | O_TRUNC);
    for (int i = 0; i < 3; i++) {
        int again;

        dprintf(fd, "%d", i);
        again = open(path, O_RDONLY);
        must_be_real("while writing", again);
        memset(buf, 0, sizeof(buf));
        printf("read %zd %s\n", read(again, buf, 99), buf);
        close(again);
        stat(path, &st);
        printf("size %ld\n", (long)st.st_size);
    }
    close(fd);
    memset(buf, 0, sizeof(buf));
    /* One whole generation: a file opened before stays unchanged, which is more than the kernel promises. */
    close(in);
    fd = creat(in_root("created"), 0640);
    printf("creat %zd\n", write(fd, "x", 1));
    close(fd);
    fd = open(in_root("created"), O_RDWR | O_APPEND);
    printf("append %zd\n", write(fd, "y", 1));
    close(fd);
    show_fd("created", open(in_root("created"), O_RDONLY));
    fd = open(root, O_TMPFILE | O_RDWR, 0600);
    printf("tmpfile %d\n", fd >= 0);
    close(fd);
    fd = open(in_root("deep/other"), O_RDONLY | O_TRUNC);
    printf("truncated %d\n", fd >= 0);
    close(fd);
    show_fd("truncated", open(in_root("deep/other"), O_RDONLY));
    unlink(in_root("created"));
}

static void using(void)
{
    int fd = open(in_root("big"), O_RDONLY), out = open("/dev/null", O_WRONLY), p[2];
    char buf[64];
    off_t at = 1000;
    char *map = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, fd, 0);
    pid_t pid;

    must_be_cached("using", fd);
    printf("mmap %d %02x\n", map != MAP_FAILED, (unsigned char)map[77777]);
    printf("pread %zd %02x\n", pread(fd, buf, sizeof(buf), 77777), (unsigned char)buf[0]);
    printf("write %zd %s\n", write(fd, buf, 1), strerrorname_np(errno));
    printf("sendfile %zd %ld\n", sendfile(out, fd, &at, 5000), (long)at);
    printf("seek %ld %ld\n", (long)lseek(fd, -10, SEEK_END), (long)lseek(fd, 0, SEEK_CUR));
    lseek(fd, 500, SEEK_SET);
    if (pipe(p) < 0)
        exit(1);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        /* The position is shared, as after every fork. */
        printf("child read %zd\n", read(fd, buf, 40));
        show_fd("child open", open(in_root("file"), O_RDONLY));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    printf("position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    munmap(map, 1 << 20);
    close(fd);
    close(out);
}

/* Invalid pointers: the kernel reports the error, and the library does not read through them. */
static void bad_pointers(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *const bad[] = {(char *)1, (char *)-1, (char *)(uintptr_t)0x123456789000, page + 4096,
                         page + 4090};
    struct stat st;
    struct statx sx;

    mprotect(page + 4096, 4096, PROT_NONE);
    memset(page, 'a', 4096);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *const p = bad[i];

        show_fd("bad open", open(p, O_RDONLY));
        show_fd("bad open write", open(p, O_RDWR));
        show_fd("bad openat", openat(AT_FDCWD, p, O_RDONLY));
        printf("bad fopen %d %s\n", fopen(p, "r") == NULL, strerrorname_np(errno));
        printf("bad stat %d %s\n", stat(p, &st), strerrorname_np(errno));
        printf("bad fstatat %d %s\n", fstatat(AT_FDCWD, p, &st, AT_EMPTY_PATH),
               strerrorname_np(errno));
        printf("bad statx %d %s\n", statx(AT_FDCWD, p, 0, STATX_BASIC_STATS, &sx),
               strerrorname_np(errno));
        printf("bad access %d %s\n", access(p, R_OK), strerrorname_np(errno));
        printf("bad rename %d %s\n", rename(p, in_root("nothing")), strerrorname_np(errno));
        printf("bad unlink %d %s\n", unlink(p), strerrorname_np(errno));
        printf("bad chmod %d %s\n", chmod(p, 0600), strerrorname_np(errno));
        printf("bad stat to %d %s\n", stat(in_root("file"), (struct stat *)(void *)p),
               strerrorname_np(errno));
        printf("bad statx to %d %s\n",
               statx(AT_FDCWD, in_root("file"), 0, STATX_BASIC_STATS, (struct statx *)(void *)p),
               strerrorname_np(errno));
    }
    munmap(page, 8192);
}

/* Calls that could tell a copy from its original: locks, RWF_NOWAIT, copying within the kernel. */
static void odd_ones(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct iovec iov = {text, 100};
    int fd = open(in_root("file"), O_RDONLY), out;
    off_t at = 10, to = 3;
    struct stat st;

    must_be_cached("odd", fd);
    printf("lock %d type %d\n", fcntl(fd, F_GETLK, &lock), lock.l_type);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    printf("lock %d type %d\n", fcntl(fd, F_OFD_GETLK, &lock), lock.l_type);
    (void)!pread(fd, text, sizeof(text), 0);
    printf("nowait %zd\n", preadv2(fd, &iov, 1, 50, RWF_NOWAIT));
    printf("nowait %zd at %ld\n", preadv2(fd, &iov, 1, -1, RWF_NOWAIT),
           (long)lseek(fd, 0, SEEK_CUR));
    lseek(fd, 0, SEEK_SET);
    out = open(in_root("copied"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("copied %zd", copy_file_range(fd, NULL, out, NULL, 1000, 0));
    printf(" at %ld %ld\n", (long)lseek(fd, 0, SEEK_CUR), (long)lseek(out, 0, SEEK_CUR));
    printf("copied %zd", copy_file_range(fd, &at, out, &to, 100000, 0));
    printf(" at %ld %ld\n", (long)at, (long)to);
    printf("copied %zd\n", copy_file_range(fd, &at, out, &to, 100000, 0));
    printf("hole %ld data %ld\n", (long)lseek(fd, 10, SEEK_HOLE), (long)lseek(fd, 10, SEEK_DATA));
    lseek(out, 0, SEEK_SET);
    printf("sum %lx size %ld\n", sum_of(out), fstat(out, &st) == 0 ? (long)st.st_size : -1);
    close(out);
    close(fd);
    unlink(in_root("copied"));
}

static void relative(void)
{
    if (chdir(root) < 0)
        exit(1);
    cached_fd("relative", open("file", O_RDONLY));
    cached_fd("relative sub", open("./sub/inner", O_RDONLY));
    if (chdir("sublink") < 0)
        exit(1);
    cached_fd("through link", open("inner", O_RDONLY));
    cached_fd("up", open("../folder/inner", O_RDONLY));
    /* It was truncated under another name. */
    must_be_real("up, written", open("../other", O_RDONLY));
    if (mkdir(in_root("gone"), 0700) < 0 || chdir(in_root("gone")) < 0 ||
        rmdir(in_root("gone")) < 0)
        exit(1);
    show_fd("in deleted", open("file", O_RDONLY));
    if (chdir("/") < 0)
        exit(1);
    snprintf(text, sizeof(text), "%s/file", root + 1);
    cached_fd("from /", open(text, O_RDONLY));
}

/* A program closes descriptors that it did not open. */
static void closing(void)
{
    int fd = open(in_root("file"), O_RDONLY);
    struct stat st;

    must_be_cached("closing", fd);
    close(fd);
    printf("close_range %d\n", close_range(3, 4000, 0));
    for (int i = 3; i < 1100; i++)
        open("/dev/null", O_RDONLY); /* on every number, the connection's too */
    for (int i = 3; i < 1100; i++)
        if (fcntl(i, F_GETFD) >= 0 && (fstat(i, &st) < 0 || !S_ISCHR(st.st_mode)))
            printf("%d is not /dev/null\n", i);
    close(5);
    fd = open(in_root("file"), O_RDONLY);
    printf("opened %d sum %lx\n", fd, sum_of(fd));
    close_range(3, 4000, 0);
    cached_fd("again", open(in_root("file"), O_RDONLY));
    errno = 1234;
    fd = open(in_root("file"), O_RDONLY);
    printf("errno %d\n", errno);
    close(fd);
    errno = 1234;
    (void)!stat(in_root("file"), &st);
    (void)!access(in_root("file"), R_OK);
    printf("errno %d\n", errno);
}

/* Under another root the same names belong to other files. */
static void chrooted(void)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int fd = open(in_root("file"), O_RDONLY);

        must_be_cached("before chroot", fd);
        if (chroot(in_root("jail")) == 0 && chdir("/") == 0) {
            show_fd("jailed", open(in_root("file"), O_RDONLY));
            show_fd("jailed relative", open(in_root("file") + 1, O_RDONLY));
        } else {
            printf("not root\n");
        }
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("status %d\n", status);
}

int main(int argc, char **argv)
{
    root = argv[1];
    if (argc < 2)
        return 2;
    opening();
    folders();
    asking();
    agreeing();
    streams();
    few_descriptors();
    all_descriptors();
    vforked();
    writing();
    using();
    chrooted();
    closing();
    bad_pointers();
    odd_ones();
    relative();
    return fflush(stdout) == 0 ? 0 : 1;
}
