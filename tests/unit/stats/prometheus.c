/* SPDX-License-Identifier: Apache-2.0 */
/* The text format: families once and whole, values escaped, the file never half written. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stats/prometheus.h"
#include "t.h"

static struct vv_stats_header about[2];
static struct vv_stats_record record[2];

static void fill(int i)
{
    about[i] = (struct vv_stats_header){.pid = 100 + (uint64_t)i, .rank = i};
    snprintf(about[i].program, sizeof(about[i].program), "a\"b\\c\nd");
    record[i] = (struct vv_stats_record){.ntiers = 2, .nhops = 1, .nhistories = 1};
    record[i].checkpoint.blocked_ns = 1234567890;
    record[i].hits = UINT64_MAX;
    snprintf(record[i].tier[0].name, sizeof(record[i].tier[0].name), "host");
    snprintf(record[i].tier[1].name, sizeof(record[i].tier[1].name), "disk");
    snprintf(record[i].hop[0].name, sizeof(record[i].hop[0].name), "h2f");
    snprintf(record[i].history[0].name, sizeof(record[i].history[0].name), "gr\xc3\xbc\xc3\x9f \"");
}

static char *print(size_t n)
{
    struct vv_stats_target t[2] = {{&about[0], &record[0]}, {&about[1], &record[1]}};
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    T_CHECK(f);
    vv_stats_prometheus(f, t, n);
    T_EQ(fclose(f), 0);
    return text;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static void format(void)
{
    char *text = print(2), *save = NULL;
    char family[128] = "", seen[8192] = "";
    bool counter = false;
    unsigned samples = 0;

    T_CHECK(strstr(text, "program=\"a\\\"b\\\\c\\nd\""));
    T_CHECK(strstr(text, "history=\"gr\xc3\xbc\xc3\x9f \\\"\""));
    T_CHECK(strstr(text, "varve_calls_blocked_seconds_total{pid=\"100\",context=\"0\",rank=\"0\","
                         "call=\"checkpoint\"} 1.234567890\n"));
    T_CHECK(strstr(text, "} 18446744073709551615\n"));
    T_EQ(text[strlen(text) - 1], '\n');
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[120], type[16], key[140];
        if (sscanf(line, "# HELP %119s", name) == 1) {
            snprintf(key, sizeof(key), " %s ", name);
            T_CHECK(!strstr(seen, key)); /* a family stands in one place */
            T_CHECK(strlen(seen) + strlen(key) < sizeof(seen));
            strcat(seen, key);
            snprintf(family, sizeof(family), "%s", name);
            continue;
        }
        if (sscanf(line, "# TYPE %119s %15s", name, type) == 2) {
            T_STREQ(name, family);
            counter = strcmp(type, "counter") == 0;
            T_CHECK(counter || strcmp(type, "gauge") == 0);
            T_CHECK(counter ==
                    (strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0));
            continue;
        }
        T_CHECK(begins(line, family) && line[strlen(family)] == '{');
        const char *end = strrchr(line, '}');
        char *rest;
        T_CHECK(end && end[1] == ' ');
        T_CHECK(strtod(end + 2, &rest) >= 0 && *rest == '\0');
        samples++;
    }
    t_note("%u samples", samples);
    T_CHECK(samples > 100);
    free(text);
    text = print(0);
    T_STREQ(text, "");
    free(text);
}

static _Atomic bool done;
static char path[600];

static void *read_on(void *arg)
{
    unsigned *n = arg;
    static char text[1 << 17];

    while (!atomic_load(&done)) {
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            continue;
        ssize_t got = read(fd, text, sizeof(text) - 1);
        close(fd);
        T_CHECK(got > 0);
        text[got] = '\0';
        T_CHECK(begins(text, "# HELP varve_info "));
        T_CHECK(strstr(text, "# TYPE varve_history_hints_ready gauge\nvarve_history_hints_ready{"));
        ++*n;
    }
    return NULL;
}

static void whole_files(void)
{
    char err[256] = "", pattern[600];
    struct vv_stats_file *f = NULL;
    struct vv_stats_target t = {&about[0], &record[0]};
    pthread_t thread;
    unsigned n = 0;
    struct stat st;

    snprintf(pattern, sizeof(pattern), "%s/100%%%%-%%r-%%p.prom", t_tmpdir());
    snprintf(path, sizeof(path), "%.*s/100%%-5-%ld.prom", (int)(strrchr(pattern, '/') - pattern),
             pattern, (long)getpid());
    T_OK(vv_stats_file_open(pattern, 5, err, sizeof(err), &f));
    T_EQ(pthread_create(&thread, NULL, read_on, &n), 0);
    for (uint64_t i = t_cases(400, 20000); i > 0; i--)
        T_OK(vv_stats_file_put(f, &t));
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    t_note("read %u times", n);
    /* Others may read it, and no other file is left. */
    T_EQ(stat(path, &st), 0);
    T_EQ(st.st_mode & 0444, 0444);
    T_EQ(unlink(path), 0);
    *strrchr(path, '/') = '\0';
    T_EQ(rmdir(path), 0);
    /* The folder is gone: an error, each time. */
    T_ERR(vv_stats_file_put(f, &t), -ENOENT);
    vv_stats_file_close(f);
    vv_stats_file_close(NULL);
    T_EQ(mkdir(path, 0700), 0);
}

static void refused(void)
{
    static const struct {
        const char *path;
        int rc;
        const char *text;
    } cases[] = {{"/nonexistent/x.prom", -ENOENT, "folder /nonexistent: "},
                 {"/tmp/", -EINVAL, "does not name a file"},
                 {"x%q", -EINVAL, "does not name a file"},
                 {"x%", -EINVAL, "does not name a file"},
                 {"/tmp/..", -EINVAL, "does not name a file"},
                 {"/dev/null/x", -ENOTDIR, "folder /dev/null"}};

    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        struct vv_stats_file *f = NULL;
        char err[256] = "";
        T_ERR(vv_stats_file_open(cases[i].path, 0, err, sizeof(err), &f), cases[i].rc);
        T_CHECK(!f && strstr(err, cases[i].text));
    }
    /* Anything but a regular file must not be replaced. */
    struct vv_stats_file *f = NULL;
    char err[256] = "", odd[1200];
    snprintf(odd, sizeof(odd), "%s/odd", t_tmpdir());
    T_EQ(mkfifo(odd, 0600), 0);
    T_ERR(vv_stats_file_open(odd, 0, err, sizeof(err), &f), -EINVAL);
    T_CHECK(!f && strstr(err, "not a regular file"));
}

int main(void)
{
    fill(0);
    fill(1);
    T_RUN(format);
    T_RUN(whole_files);
    T_RUN(refused);
    return t_done();
}
