/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of lab/bench/dataset_epochs.py. It executes each line of its standard input and prints the seconds it
 * took:
 *
 *     epoch SEED   the processes read all files, each its share, in an order drawn from SEED; every byte is compared
 *     stat         microseconds for stat of a path, all files in turn
 *     open PATH    seconds for open and close of a path
 *
 * A file is made of blocks of 4 KiB: 8 bytes of file and block number, then bytes that all blocks share.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/common/options.h"

#define BLOCK     4096
#define PROCS_MAX 64

static struct read_opts {
    const char *folder;
    uint32_t files, procs;
    uint64_t bytes;
} opt;
static unsigned char base[BLOCK];

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

__attribute__((noreturn)) static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void make_base(void)
{
    uint32_t x = 1;

    for (unsigned i = 0; i < BLOCK; i++) {
        x = x * 1103515245u + 12345u;
        base[i] = (unsigned char)(x >> 16);
    }
}

static int is_right(const unsigned char *data, unsigned file)
{
    for (size_t at = 0; at < opt.bytes; at += BLOCK) {
        uint64_t tag = (uint64_t)file << 32 | at / BLOCK;
        size_t n = opt.bytes - at < BLOCK ? opt.bytes - at : BLOCK;

        if (memcmp(data + at, &tag, sizeof(tag)) != 0 ||
            memcmp(data + at + sizeof(tag), base + sizeof(tag), n - sizeof(tag)) != 0)
            return 0;
    }
    return 1;
}

static void path_of(char *path, size_t room, unsigned file)
{
    snprintf(path, room, "%s/%06u.bin", opt.folder, file);
}

static void read_one(unsigned file, unsigned char *buf)
{
    char path[4096];
    size_t done = 0;
    ssize_t n;
    int fd;

    path_of(path, sizeof(path), file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    while ((n = read(fd, buf + done, opt.bytes + 1 - done)) > 0)
        done += (size_t)n;
    close(fd);
    if (n < 0 || done != opt.bytes || !is_right(buf, file)) {
        fprintf(stderr, "%s: other bytes than were written\n", path);
        exit(1);
    }
}

/* One process: reads its share each time it is given a seed. */
__attribute__((noreturn)) static void work(unsigned me, int from, int to)
{
    unsigned char *buf = malloc(opt.bytes + 1);
    unsigned *order = malloc(opt.files * sizeof(*order));
    uint64_t seed;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (buf && order && read(from, &seed, sizeof(seed)) == sizeof(seed)) {
        for (unsigned i = 0; i < opt.files; i++)
            order[i] = i;
        for (unsigned i = opt.files; i > 1; i--) {
            unsigned k, was = order[i - 1];

            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            k = (unsigned)((seed >> 33) % i);
            order[i - 1] = order[k];
            order[k] = was;
        }
        for (unsigned i = me; i < opt.files; i += opt.procs)
            read_one(order[i], buf);
        if (write(to, "", 1) != 1)
            break;
    }
    exit(0);
}

static double stats(void)
{
    double begin = now();
    unsigned nr = 0;
    struct stat st;

    for (unsigned round = 0; round < 20; round++)
        for (unsigned i = 0; i < opt.files && i < 1000; i++, nr++) {
            char path[4096];

            path_of(path, sizeof(path), i);
            if (stat(path, &st) < 0 || (size_t)st.st_size != opt.bytes)
                die(path);
        }
    return (now() - begin) * 1e6 / nr;
}

#define AT(field) offsetof(struct read_opts, field)

static const struct opt options[] = {
    {OPT_TEXT, .arg = "FOLDER", .at = AT(folder), .help = "the files are there"},
    {OPT_U32, .arg = "FILES", .at = AT(files), .help = "how many"},
    {OPT_U64, .arg = "BYTES", .at = AT(bytes), .help = "of each"},
    {OPT_U32, .arg = "PROCESSES", .at = AT(procs), .least = 1, .most = PROCS_MAX,
     .help = "that read"},
};

static const struct opts command = {
    .command = "bench_dataset_read",
    .usage = "FOLDER FILES BYTES PROCESSES",
    .about = "Reads files as lines of standard input say.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    int give[PROCS_MAX][2], done[2];
    char line[4200], byte;
    int status = opts_parse(&command, argc, argv, &opt, NULL);

    if (status >= 0)
        return status;
    make_base();
    if (pipe2(done, O_CLOEXEC) < 0)
        die("pipe");
    for (unsigned i = 0; i < opt.procs; i++) {
        if (pipe2(give[i], O_CLOEXEC) < 0)
            die("pipe");
        if (fork() == 0)
            work(i, give[i][0], done[1]);
    }
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t seed = strtoull(line + 5, NULL, 10);
        double begin = now();

        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "stat") == 0) {
            printf("%.3f\n", stats());
        } else if (strncmp(line, "open ", 5) == 0) {
            int fd = open(line + 5, O_RDONLY | O_CLOEXEC);

            if (fd < 0 || close(fd) < 0)
                die(line + 5);
            printf("%.6f\n", now() - begin);
        } else {
            for (unsigned i = 0; i < opt.procs; i++)
                if (write(give[i][1], &seed, sizeof(seed)) < 0)
                    die("pipe");
            for (unsigned i = 0; i < opt.procs; i++)
                if (read(done[0], &byte, 1) != 1)
                    return 1;
            printf("%.6f\n", now() - begin);
        }
        fflush(stdout);
    }
    return 0;
}
