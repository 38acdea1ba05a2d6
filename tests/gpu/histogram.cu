/* SPDX-License-Identifier: Apache-2.0 */
/* The example on a GPU: it counts the bytes of a file, and prints the counts. */
#define main example_main
#include "../../examples/histogram.cu"
#undef main

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "t.h"
}

enum { BYTES = 5 * 1024 * 1024 + 77 };

static void counts_what_is_there(void)
{
    static unsigned char bytes[BYTES];
    unsigned long long expected[VALUES] = {0}, got[VALUES] = {0}, total = 0, n;
    char file[4200], text[4300], line[200], name[] = "histogram", *argv[] = {name, file, NULL};
    int fd, out, value;
    FILE *f;

    for (uint64_t i = 0; i < BYTES; i++) {
        bytes[i] = (unsigned char)(i * i / 1000 % 200);
        expected[bytes[i]]++;
    }
    snprintf(file, sizeof(file), "%s/bytes", t_tmpdir());
    snprintf(text, sizeof(text), "%s.txt", file);
    fd = open(file, O_CREAT | O_RDWR, 0600);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, bytes, BYTES), (ssize_t)BYTES);
    T_EQ(close(fd), 0);

    fflush(stdout);
    out = dup(1);
    fd = open(text, O_CREAT | O_RDWR, 0600);
    T_CHECK(out >= 0 && fd >= 0);
    T_EQ(dup2(fd, 1), 1);
    value = example_main(2, argv);
    fflush(stdout);
    T_EQ(dup2(out, 1), 1);
    T_EQ(value, 0);

    f = fopen(text, "r");
    T_CHECK(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%d %llu %*f%%", &value, &n) == 2 && value >= 0 && value < VALUES &&
            strchr(line, '%'))
            got[value] = n;
        else if (strstr(line, " bytes"))
            T_EQ(sscanf(line, "%llu", &total), 1);
    }
    fclose(f);
    T_EQ(total, BYTES);
    T_EQ(memcmp(got, expected, sizeof(got)), 0);
}

/* Without a GPU the example prints the driver's reason, and not only that something is missing. */
static void says_why_there_is_no_gpu(void)
{
    char text[600] = "", name[] = "histogram", file[] = "/dev/null", *argv[] = {name, file, NULL};
    int out[2], status = 0;
    ssize_t n;
    pid_t child;

    T_EQ(pipe(out), 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)dup2(out[1], 2);
        exit(example_main(2, argv));
    }
    T_CHECK(child > 0);
    T_EQ(close(out[1]), 0);
    for (size_t at = 0; (n = read(out[0], text + at, sizeof(text) - 1 - at)) > 0;)
        at += (size_t)n;
    T_EQ(close(out[0]), 0);
    T_EQ(waitpid(child, &status, 0), child);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    T_CHECK(strstr(text, "driver") || strstr(text, "libcuda") || strstr(text, "GPU"));
    T_CHECK(!strstr(text, varve_strerror(-ENODEV)));
}

int main(void)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0) {
        T_RUN(says_why_there_is_no_gpu);
        T_SKIP("no GPU: %s", cudaGetErrorString(rc));
    }
    T_RUN(counts_what_is_there);
    return t_done();
}
