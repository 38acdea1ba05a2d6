/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files from many threads, from a signal handler that interrupts them, in children of fork, clone, vfork
 * and posix_spawn, and checks each file, for a number of rounds. Ends with 0 if every file was there and right; the
 * script detects hangs.
 *   storm ROOT ROUNDS [close]   ROOT/many/N holds N times 777 bytes, all different; close: connections are
 *                               closed under them
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 6
#define FILES   40

extern char **environ;

static const char *root;
static int rounds;
static unsigned long sums[FILES + 1];
static atomic_long handled, checked;
static atomic_bool stop;

/* Makes only calls that are allowed in a signal handler. */
static void die(const char *what)
{
    ssize_t n = write(2, what, strlen(what));

    (void)n;
    _exit(1);
}

static void name_of(char *path, int i)
{
    size_t n = strlen(root);

    memcpy(path, root, n);
    memcpy(path + n, "/many/", 6);
    n += 6;
    if (i >= 10)
        path[n++] = (char)('0' + i / 10);
    path[n++] = (char)('0' + i % 10);
    path[n] = '\0';
}

static unsigned long sum_of(int fd, long *ret_bytes)
{
    unsigned long h = 1469598103934665603u;
    unsigned char buf[2048];
    ssize_t n;

    *ret_bytes = 0;
    while ((n = read(fd, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < n; i++)
            h = (h ^ buf[i]) * 1099511628211u;
        *ret_bytes += n > 0 ? n : 0;
    }
    return n < 0 ? 0 : h;
}

static void check(int i)
{
    struct stat by_path, by_fd;
    char path[4096];
    long bytes;
    int fd;

    name_of(path, i);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("a file could not be opened\n");
    if (sum_of(fd, &bytes) != sums[i] || bytes != i * 777L)
        die("wrong bytes\n");
    if (fstat(fd, &by_fd) < 0 || stat(path, &by_path) < 0 || by_fd.st_ino != by_path.st_ino ||
        by_fd.st_dev != by_path.st_dev || by_fd.st_size != i * 777L)
        die("path and descriptor differ\n");
    close(fd);
    atomic_fetch_add(&checked, 1);
}

static void on_signal(int sig)
{
    int saved = errno;

    (void)sig;
    check(1 + (int)(atomic_fetch_add(&handled, 1) % FILES));
    errno = saved;
}

static void in_child(int i)
{
    char path[4096];
    pid_t pid;
    int fd, status;

    pid = fork();
    if (pid == 0) {
        check(i);
        check(i % FILES + 1);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die("child of fork\n");
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        check(i);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die("child of clone\n");
    name_of(path, i);
    pid = vfork();
    if (pid == 0) {
        fd = open(path, O_RDONLY);
        _exit(fd >= 0 ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die("child of vfork\n");
    check(i);
}

static void in_program(int i)
{
    char path[4096], *argv[] = {"cmp", "-s", path, path, NULL};
    int status;
    pid_t pid;

    name_of(path, i);
    if (posix_spawnp(&pid, "cmp", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || status != 0)
        die("program\n");
}

static void *thread(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (int i = 0; i < rounds; i++)
        check(1 + rand_r(&seed) % FILES);
    return NULL;
}

/* Closes descriptors that look like connections, as programs do that close all descriptors. */
static void *closer(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        for (int fd = 900; fd < 1024; fd++)
            close(fd);
        usleep(3000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    pthread_t t[THREADS], c;
    char path[4096];
    long bytes;

    if (argc < 3)
        return 2;
    root = argv[1];
    rounds = atoi(argv[2]);
    for (int i = 1; i <= FILES; i++) {
        int fd;

        name_of(path, i);
        fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
        sums[i] = sum_of(fd, &bytes);
        close(fd);
    }
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, thread, (void *)(i + 1));
    atomic_store(&stop, argc < 4);
    pthread_create(&c, NULL, closer, NULL);
    for (int i = 0; i < rounds / 10; i++) {
        in_child(1 + i % FILES);
        if (i % 8 == 0)
            in_program(1 + i % FILES);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    atomic_store(&stop, true);
    pthread_join(c, NULL);
    printf("%ld files, %ld of them in signal handlers\n", atomic_load(&checked),
           atomic_load(&handled));
    return 0;
}
