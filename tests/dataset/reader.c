/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose content can be checked, and a program that reads and checks them. It is an ordinary program; the library
 * is preloaded, or not.
 *   reader make ROOT FILES BYTES        makes FILES files of up to BYTES bytes
 *   reader write ROOT NUMBER GENERATION replaces one: another content, another size
 *   reader read ROOT FILES SEED STOP    reads until the file STOP exists, at random
 *   reader once ROOT FILES              reads each once
 *   reader churn ROOT FIRST STOP        until STOP exists: requests missing files, then makes one
 *                                       (FIRST and up), reads it and removes it
 * read and once print one line of JSON: the number of files, how many of them came from a cache, the lowest and
 * highest generation, and the longest time from open to close. The first wrong byte or failed call ends it with
 * status 1, and STALL_S without a file with SIGALRM.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HEAD     64
#define STALL_S  45  /* a daemon answers within 30 s in any case */
#define BYTES_IN 997 /* a generation is so much longer than the last one */

static struct {
    uint64_t files, cached, bytes;
    double longest_ms;
    unsigned lowest, highest;
} sum = {.lowest = UINT32_MAX};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (%s)\n", strerror(errno));
    exit(1);
}

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* All bytes follow from number, generation and size. */
static void fill(char *buf, unsigned number, unsigned generation, size_t bytes)
{
    uint64_t state = (uint64_t)number << 32 | generation;
    char head[2 * HEAD];

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = mix(&state);

        memcpy(buf + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
    snprintf(head, sizeof(head), "number %10u generation %10u bytes %10zu\n", number, generation,
             bytes);
    memcpy(buf, head, strlen(head) < bytes ? strlen(head) : bytes);
}

static void write_file(const char *root, unsigned number, unsigned generation, size_t bytes)
{
    char path[4096], temp[4200], *buf = malloc(bytes);
    int fd;

    snprintf(path, sizeof(path), "%s/%u", root, number);
    snprintf(temp, sizeof(temp), "%s.new", path);
    fill(buf, number, generation, bytes);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, buf, bytes) != (ssize_t)bytes || close(fd) < 0 ||
        rename(temp, path) < 0)
        die("cannot write %s", path);
    free(buf);
}

static void check(const char *path, unsigned number, const char *buf, size_t bytes)
{
    unsigned its, generation;
    size_t size;
    char *want;

    if (bytes < HEAD ||
        sscanf(buf, "number %u generation %u bytes %zu", &its, &generation, &size) != 3)
        die("%s: %zu bytes, and no head", path, bytes);
    if (its != number || size != bytes)
        die("%s: is number %u of %zu bytes, and has %zu", path, its, size, bytes);
    want = malloc(bytes);
    fill(want, number, generation, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (want[i] != buf[i])
            die("%s: byte %zu of generation %u is wrong", path, i, generation);
    free(want);
    sum.lowest = generation < sum.lowest ? generation : sum.lowest;
    sum.highest = generation > sum.highest ? generation : sum.highest;
}

/* Reads in one of three ways, `way`. */
static void read_file(const char *root, unsigned number, unsigned way)
{
    struct stat st, real;
    double begin = now_ms(), took;
    char path[4096], *buf;
    size_t bytes, done = 0;
    int fd;

    alarm(STALL_S);
    snprintf(path, sizeof(path), "%s/%u", root, number);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || syscall(SYS_fstat, fd, &real) < 0)
        die("cannot open %s", path);
    bytes = (size_t)st.st_size;
    if (way % 3 == 0) {
        buf = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (buf == MAP_FAILED)
            die("cannot map %s", path);
        check(path, number, buf, bytes);
        munmap(buf, bytes);
    } else {
        buf = malloc(bytes + 1);
        while (done <= bytes) {
            ssize_t n = way % 3 == 1 ? read(fd, buf + done, bytes + 1 - done)
                                     : pread(fd, buf + done, bytes + 1 - done, (off_t)done);

            if (n < 0)
                die("cannot read %s", path);
            if (n == 0)
                break;
            done += (size_t)n;
        }
        check(path, number, buf, done);
        free(buf);
    }
    close(fd);
    took = now_ms() - begin;
    sum.longest_ms = took > sum.longest_ms ? took : sum.longest_ms;
    sum.files++;
    sum.bytes += bytes;
    sum.cached += real.st_ino != st.st_ino;
}

/* Uses paths that are never requested again. */
static void churn(const char *root, unsigned number)
{
    char path[4096];
    struct stat st;

    for (int i = 0; i < 50; i++) {
        snprintf(path, sizeof(path), "%s/none-%u-%d", root, number, i);
        if (stat(path, &st) == 0 || errno != ENOENT)
            die("%s is there", path);
    }
    write_file(root, number, 1, HEAD + 500);
    read_file(root, number, number);
    snprintf(path, sizeof(path), "%s/%u", root, number);
    if (unlink(path) < 0)
        die("cannot remove %s", path);
}

static void tell(void)
{
    printf("{\"files\": %llu, \"cached\": %llu, \"bytes\": %llu, \"lowest\": %u, \"highest\": %u, "
           "\"longest_ms\": %.1f}\n",
           (unsigned long long)sum.files, (unsigned long long)sum.cached,
           (unsigned long long)sum.bytes, sum.lowest, sum.highest, sum.longest_ms);
}

int main(int argc, char **argv)
{
    unsigned a, b;

    if (argc < 4)
        return 2;
    a = (unsigned)atoi(argv[3]);
    b = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
    if (strcmp(argv[1], "make") == 0) {
        uint64_t state = 1;

        for (unsigned i = 0; i < a; i++)
            write_file(argv[2], i, 1, HEAD + mix(&state) % (b - HEAD));
    } else if (strcmp(argv[1], "write") == 0) {
        write_file(argv[2], a, b, HEAD + (size_t)b * BYTES_IN);
    } else if (strcmp(argv[1], "once") == 0) {
        for (unsigned i = 0; i < a; i++)
            read_file(argv[2], i, i);
        tell();
    } else if (strcmp(argv[1], "read") == 0 && argc > 5) {
        uint64_t state = b;

        while (access(argv[5], F_OK) != 0)
            for (int i = 0; i < 20; i++)
                read_file(argv[2], (unsigned)(mix(&state) % a), (unsigned)mix(&state));
        tell();
    } else if (strcmp(argv[1], "churn") == 0 && argc > 4) {
        for (unsigned i = a; access(argv[4], F_OK) != 0; i++)
            churn(argv[2], i);
        tell();
    } else {
        return 2;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
