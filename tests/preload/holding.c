/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files in many ways, waits for a line on standard input, and uses them: the content must be as without
 * the library. Prints sums. They must be the same with and without the library, and if the daemon is killed before the
 * line comes.
 *   holding ROOT
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long add(unsigned long h, const unsigned char *p, long n)
{
    for (long i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void rest(const char *what, int fd)
{
    unsigned char buf[4096];
    unsigned long h = 1;
    struct stat st;
    long n, all = 0;

    while ((n = read(fd, buf, sizeof(buf))) > 0) {
        h = add(h, buf, n);
        all += n;
    }
    printf("%s %ld %lx %ld", what, all, h, (long)lseek(fd, 0, SEEK_CUR));
    printf(" %d %ld\n", fstat(fd, &st), (long)st.st_size);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char path[4096], line[10], buf[70000];
    int whole, half, copy, status, to[2];
    unsigned char *map;
    pid_t pid;
    FILE *f;

    if (argc < 2 || pipe(to) < 0)
        return 2;
    snprintf(path, sizeof(path), "%s/big", argv[1]);
    whole = open(path, O_RDONLY);
    half = open(path, O_RDONLY);
    if (read(half, buf, sizeof(buf)) != sizeof(buf))
        return 1;
    copy = dup(open(path, O_RDONLY));
    map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0);
    f = fopen(path, "r");
    if (map == MAP_FAILED || !f || !fgets(line, sizeof(line), f))
        return 1;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(to[1]);
        if (read(to[0], buf, 1) != 0)
            _exit(1);
        rest("child", half);
        _exit(0);
    }
    fprintf(stderr, "holding\n");
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    close(to[1]);
    waitpid(pid, &status, 0);
    printf("status %d\n", status);
    rest("half", half);
    rest("whole", whole);
    rest("dup", copy);
    printf("map %lx\n", add(1, map, 1 << 20));
    printf("stream %zu", fread(buf, 1, sizeof(buf), f));
    printf(" %lx\n", add(1, (unsigned char *)buf, sizeof(buf)));
    /* And new opens work as before. */
    rest("again", open(path, O_RDONLY));
    return fflush(stdout) == 0 ? 0 : 1;
}
