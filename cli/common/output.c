/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "cli/common/command.h"
#include "cli/common/progress.h"

#define WATCH_NS (50 * VV_NS_PER_MS)

int output_write(const char *command, const char *path, int (*fn)(FILE *f, const void *arg),
                 const void *arg)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    int rc = f ? 0 : -errno;

    if (f) {
        errno = 0;
        rc = fn(f, arg);
        if (rc == 0 && (fflush(f) != 0 || ferror(f)))
            rc = errno ? -errno : -EIO;
        if (f != stdout && fclose(f) != 0 && rc == 0)
            rc = -errno;
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s: %s\n", command, path, strerror(-rc));
    return rc;
}

int output_try(const char *command, const char *path)
{
    struct stat st;
    bool there = path && stat(path, &st) == 0;
    int fd;

    /* Opening a pipe and closing it would end the input of its reader. */
    if (!path || strcmp(path, "-") == 0 || (there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return 0;
    /* Remove only a file that was made here: a link to a missing file stays. */
    fd = open(path, O_WRONLY | O_CLOEXEC | (there ? 0 : O_CREAT | O_EXCL), 0666);
    if (fd < 0 && !there && errno == EEXIST)
        return 0;
    if (fd < 0) {
        int rc = -errno;

        fprintf(stderr, "%s: %s: %s\n", command, path, strerror(-rc));
        return rc;
    }
    (void)close(fd);
    if (!there)
        (void)unlink(path);
    return 0;
}

int output_begin(const char *folder, const char *name, struct output_file *ret_file)
{
    struct output_file *o = ret_file;
    int bytes = snprintf(o->path, sizeof(o->path), "%s/%s", folder, name);

    o->f = NULL;
    if (bytes >= (int)sizeof(o->path) ||
        snprintf(o->made, sizeof(o->made), "%s.new", o->path) >= (int)sizeof(o->made))
        return -ENAMETOOLONG;
    o->f = fopen(o->made, "we");
    return o->f ? 0 : -errno;
}

int output_end(struct output_file *file, int rc, char *err, size_t err_bytes)
{
    if (file->f && ferror(file->f) && rc == 0)
        rc = -EIO;
    if (file->f && fclose(file->f) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(file->made, file->path) < 0)
        rc = -errno;
    if (rc < 0) {
        if (file->f)
            (void)unlink(file->made);
        snprintf(err, err_bytes, "%s: %s", file->path, strerror(-rc));
    }
    return rc;
}

int output_print(const char *command, const struct output_forms *forms, const void *result)
{
    int status = CLI_OK;

    if (forms->json)
        forms->print_json(result);
    else if (!forms->csv || strcmp(forms->csv, "-") != 0)
        forms->print_table(result);
    if (forms->csv && output_write(command, forms->csv, forms->print_csv, result) < 0)
        status = CLI_FAILED;
    if (forms->svg && output_write(command, forms->svg, forms->draw, result) < 0)
        status = CLI_FAILED;
    return status;
}

struct watched {
    int (*fn)(void *arg);
    void *arg;
    int rc;
    _Atomic bool over; /* relaxed: the join orders the result */
};

static void *run_watched(void *arg)
{
    struct watched *w = arg;

    w->rc = w->fn(w->arg);
    atomic_store_explicit(&w->over, true, memory_order_relaxed);
    return NULL;
}

int output_watch(int (*fn)(void *arg), void *arg, struct sim_progress *progress, const char *what)
{
    struct watched w = {.fn = fn, .arg = arg};
    struct progress bar;
    pthread_t thread;

    progress_init(&bar);
    if (!bar.shown || vv_thread_start(&thread, run_watched, &w) < 0)
        return fn(arg);
    while (!atomic_load_explicit(&w.over, memory_order_relaxed)) {
        progress_show(&bar,
                      (double)atomic_load_explicit(&progress->done, memory_order_relaxed) /
                          (double)VV_MAX(progress->all, UINT64_C(1)),
                      what);
        vv_sleep_until_ns(vv_now_ns() + WATCH_NS);
    }
    pthread_join(thread, NULL);
    progress_clear(&bar);
    return w.rc;
}

bool output_next_word(const char **list, char *word, size_t size)
{
    size_t n = strcspn(*list, ",");

    if (n == 0 || n >= size)
        return false;
    memcpy(word, *list, n);
    word[n] = '\0';
    *list += n + ((*list)[n] == ',' && (*list)[n + 1] != '\0');
    return true;
}

int output_parse_list(const char *list, uint64_t max, uint64_t *values, size_t room, size_t *ret_nr)
{
    char word[32], *end;
    size_t n = 0;

    do {
        unsigned long long v;

        if (n == room || !output_next_word(&list, word, sizeof(word)) || word[0] < '0' ||
            word[0] > '9')
            return -EINVAL;
        errno = 0;
        v = strtoull(word, &end, 10);
        if (errno || *end || v == 0 || v > max)
            return -EINVAL;
        values[n++] = v;
    } while (*list);
    *ret_nr = n;
    return 0;
}

int output_parse_rates(const char *value, uint64_t least, double *ret_write, double *ret_read)
{
    char text[64];
    uint64_t write, read;

    if (snprintf(text, sizeof(text), "%s", value) >= (int)sizeof(text))
        return -EINVAL;
    char *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    if (vv_rate_parse(text, &write) < 0 || vv_rate_parse(colon ? colon + 1 : text, &read) < 0 ||
        write < least || read < least)
        return -EINVAL;
    *ret_write = (double)write;
    *ret_read = (double)read;
    return 0;
}
