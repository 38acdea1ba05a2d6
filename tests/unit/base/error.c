/* SPDX-License-Identifier: Apache-2.0 */
/* Error records, texts, and the log sink. */
#include "base/error.h"

#include <limits.h>
#include <pthread.h>

#include "base/log.h"
#include "t.h"

static void records(void)
{
    struct vv_error e;

    T_ERR(vv_error_set(NULL, -EIO, "restore", "x"), -EIO);
    vv_error_where(NULL, VV_SCOPE_TIER, 1, 2, 3);
    vv_error_foreign(NULL, "cuda", 700);

    memset(&e, 0xa5, sizeof(e));
    T_ERR(vv_error_set(&e, -EIO, "restore", "version %d", 7), -EIO);
    T_EQ(e.err, -EIO);
    T_STREQ(e.op, "restore");
    T_STREQ(e.text, "version 7");
    T_EQ(e.tier, -1);
    T_EQ(e.region, -1);
    T_EQ(e.scope, VV_SCOPE_OPERATION);
    T_CHECK(e.version == VV_ERROR_NO_VERSION);
    T_STREQ(e.domain, "");
    vv_error_where(&e, VV_SCOPE_DEVICE, 0, 7, 2);
    vv_error_foreign(&e, "a very long domain name", 700);
    T_EQ(e.scope, VV_SCOPE_DEVICE);
    T_EQ(e.version, 7);
    T_EQ(e.code, 700);
    T_STREQ(e.domain, "a very long dom");
    vv_error_set(&e, -EINVAL, "an operation with a name that is too long", "%0400d", 1);
    T_EQ(strlen(e.op), sizeof(e.op) - 1);
    T_EQ(strlen(e.text), sizeof(e.text) - 1);
    T_EQ(e.code, 0);
    vv_error_clear(&e);
    T_EQ(e.err, 0);
}

static void texts(void)
{
    T_STREQ(vv_strerror(0), "success");
    T_STREQ(vv_strerror(-ENOSPC), vv_strerror(ENOSPC));
    T_CHECK(strstr(vv_strerror(-EBADMSG), "checksum") != NULL);
    T_STREQ(vv_strerror(-EXDEV), strerror(EXDEV));
    T_STREQ(vv_strerror(-123456), "unknown error");
    T_STREQ(vv_strerror(INT_MIN), "unknown error");
    for (int i = 0; i < 200; i++)
        T_CHECK(vv_strerror(-i)[0] != '\0');
}

static char last[600];
static int lines;

static void sink(void *user, enum vv_log_level level, const char *text)
{
    T_CHECK(user == last);
    T_CHECK(level >= VV_LOG_INFO);
    strncpy(last, text, sizeof(last) - 1);
    lines++; /* one call at a time: ThreadSanitizer would see it otherwise */
}

static void *log_some(void *arg)
{
    (void)arg;
    for (int i = 0; i < 500; i++)
        vv_log(VV_LOG_WARNING, "line %d", i);
    return NULL;
}

static void log_sink(void)
{
    pthread_t threads[2];

    vv_log(VV_LOG_WARNING, "no sink");
    T_EQ(lines, 0);
    vv_log_set_sink(sink, last, VV_LOG_INFO);
    vv_log(VV_LOG_DEBUG, "too low");
    T_EQ(lines, 0);
    vv_log(VV_LOG_INFO, "%s %d", "number", 5);
    T_EQ(lines, 1);
    T_STREQ(last, "number 5");
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_create(&threads[i], NULL, log_some, NULL), 0);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(threads[i], NULL), 0);
    T_EQ(lines, 1001);
    vv_log_set_sink(NULL, NULL, VV_LOG_DEBUG);
    vv_log(VV_LOG_WARNING, "no sink");
    T_EQ(lines, 1001);
}

int main(void)
{
    T_RUN(records);
    T_RUN(texts);
    T_RUN(log_sink);
    return t_done();
}
