/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon withdraws a file while a client opens it by the index: before each system call of the client in turn. The
 * content file stays in place, as it does while another process has it open, so only the slot shows that it is not
 * valid any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dataset/client_index_private.h"
#include "dataset/dataset_private.h"
#include "t.h"

static long client_call(long number, ...);

#define syscall client_call
#include "preload/client_lookup.c"
#undef syscall

enum { WITHDRAWN, REPLACED, SWITCHED_OFF, WAYS_TO_GO };

static struct vv_index *daemon_index;
static struct vvi_entry entry, newer;
static const char path[] = "/shared/file";
static struct vv_server_stat of_file = {.size = 5, .mode = 0100644};
static int before_call; /* index of the client's call; -1: never */
static int calls, way, open_now;

static void go_away(void)
{
    if (way == WITHDRAWN)
        vvi_index_withdraw(daemon_index, &entry);
    else if (way == REPLACED)
        vvi_index_put(daemon_index, &newer, path, &of_file, UINT64_MAX, true);
    else
        vv_index_enable(daemon_index, false);
}

static long client_call(long number, ...)
{
    long a[6], rc;
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (calls++ == before_call)
        go_away();
    rc = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    open_now += (number == SYS_openat && rc >= 0) - (number == SYS_close && rc == 0);
    return rc;
}

static bool open_by_index(struct vvi_preload_answer *a)
{
    struct vvi_preload_name name = {path, strlen(path), vv_server_hash(path, strlen(path)), false,
                                    0};

    calls = 0;
    return vvi_preload_index_open(&name, true, a);
}

static void withdrawn_meanwhile(void)
{
    const char *folder = t_tmpdir();
    char file[600];
    int fds[2], nr;

    T_OK(vv_index_new(folder, 64, &daemon_index));
    for (int id = 1; id <= 2; id++) {
        FILE *f;

        snprintf(file, sizeof(file), "%s/%016x.data", folder, id);
        f = fopen(file, "w");
        T_CHECK(f && fputs("12345", f) >= 0 && fclose(f) == 0);
    }
    entry.id = 1;
    newer.id = 2;
    vv_index_fds(daemon_index, fds);
    before_call = -1;
    vvi_preload_index_map(fds, 0);
    T_CHECK(vvi_preload_index_mapped() != 0);
    for (way = 0; way < WAYS_TO_GO; way++) {
        struct vvi_preload_answer a;

        before_call = -1;
        vv_index_beat(daemon_index);
        vv_index_enable(daemon_index, true);
        vvi_index_withdraw(daemon_index, &newer);
        vvi_index_put(daemon_index, &entry, path, &of_file, UINT64_MAX, true);
        T_CHECK(open_by_index(&a));
        close(a.fd);
        open_now = 0;
        nr = calls;
        T_CHECK(nr >= 3); /* open, lock, look again */
        for (before_call = 0; before_call < nr; before_call++) {
            T_CHECK(!open_by_index(&a));
            T_EQ(open_now, 0);
            vv_index_beat(daemon_index);
            vv_index_enable(daemon_index, true);
            vvi_index_withdraw(daemon_index, &newer);
            vvi_index_put(daemon_index, &entry, path, &of_file, UINT64_MAX, true);
        }
    }
    vvi_index_withdraw(daemon_index, &entry);
    vv_index_free(daemon_index);
}

int main(void)
{
    T_RUN(withdrawn_meanwhile);
    return t_done();
}
