/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "t_s3.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "s3/s3.h"
#include "t.h"

static int port;
static pid_t server, starter;

static void stop(void)
{
    if (getpid() != starter)
        return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static void run_server(int out)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/s3_server.py", getenv("SOURCE_DIR"));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, 1);
    execlp("python3", "python3", path, (char *)NULL);
    _exit(127);
}

bool t_s3_real(void)
{
    const char *url = getenv("VARVE_TEST_S3");
    if (!url)
        return false;
    setenv("AWS_ENDPOINT_URL", url, 1);
    return true;
}

void t_s3_start(void)
{
    char why[160], line[32] = "", url[64];
    int fd[2];
    if (port != 0 || t_s3_real())
        return;
    if (!vv_s3_available(why, sizeof(why)))
        T_SKIP("%s", why);
    T_CHECK(getenv("SOURCE_DIR"));
    T_OK(pipe2(fd, O_CLOEXEC));
    starter = getpid();
    server = fork();
    T_CHECK(server >= 0);
    if (server == 0)
        run_server(fd[1]);
    close(fd[1]);
    FILE *f = fdopen(fd[0], "r");
    if (!fgets(line, sizeof(line), f))
        T_SKIP("no python3 that runs tests/s3_server.py");
    fclose(f);
    port = atoi(line);
    atexit(stop);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "testid", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "testsecret", 1);
    setenv("AWS_REGION", "test-1", 1);
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("http_proxy");
}

const char *t_s3_admin(const char *page, const char *text)
{
    static char answer[1 << 20];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char request[8192];
    int n = snprintf(
        request, sizeof(request),
        "POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", page,
        strlen(text), text);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_CHECK(fd >= 0 && n < (int)sizeof(request));
    T_OK(connect(fd, (struct sockaddr *)&to, sizeof(to)));
    T_EQ(write(fd, request, (size_t)n), n);
    size_t got = 0;
    for (ssize_t m; (m = read(fd, answer + got, sizeof(answer) - 1 - got)) > 0;)
        got += (size_t)m;
    answer[got] = '\0';
    close(fd);
    const char *body = strstr(answer, "\r\n\r\n");
    T_CHECK(body);
    return body + 4;
}

void t_s3_fault(const char *json)
{
    (void)t_s3_admin("/_fault", json);
}

unsigned long t_s3_requests(const char *method)
{
    const char *counts = t_s3_admin("/_counts", "");
    unsigned long sum = 0;
    for (const char *at = counts; (at = strchr(at, '"'));) {
        char name[16];
        unsigned long n;
        T_EQ(sscanf(at, "\"%15[A-Z]\": %lu", name, &n), 2);
        if (!method || strcmp(method, name) == 0)
            sum += n;
        at = strchr(at + 1, '"') + 1;
    }
    return sum;
}

bool t_on_s3(void)
{
    const char *remote = getenv("VARVE_TEST_REMOTE");
    return remote && strcmp(remote, "s3") == 0;
}

const char *t_shared(void)
{
    static char urls[256][48]; /* they stay until the process ends */
    static unsigned n;
    if (!t_on_s3())
        return t_tmpdir();
    t_s3_start();
    T_CHECK(n < sizeof(urls) / sizeof(urls[0]));
    snprintf(urls[n], sizeof(urls[n]), "s3://bucket/test-%ld/%u", (long)getpid(), n);
    return urls[n++];
}
