/* SPDX-License-Identifier: Apache-2.0 */
/* The readers that fill staging memory, and the caller, who takes part and waits for the last of them. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "ckpt/ckpt_hooks.h"
#include "ooc/ooc_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PIECES = 6, BYTES = 256 };

/* One piece is held back on a reader's thread. */
struct held {
    pthread_t caller;
    long caller_tid;
    _Atomic bool taken;
    _Atomic int ended;
};

static bool sleeps(long tid)
{
    char path[64], text[512];
    const char *end;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    T_CHECK(fd >= 0);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    T_CHECK(n > 0);
    text[n] = 0;
    end = strrchr(text, ')');
    return end && end[2] == 'S';
}

/* The first reader that takes a piece holds it until all others have ended and the caller waits for this one; the
 * caller ends its first piece when a reader has one. */
static int read_held(void *arg, const struct vvi_piece *piece, void *buf)
{
    struct held *held = arg;
    bool caller = pthread_equal(pthread_self(), held->caller);

    if (!caller && !atomic_exchange(&held->taken, true))
        while (held->ended < PIECES - 1 || !sleeps(held->caller_tid))
            vv_sleep_until_ns(vv_now_ns() + 1000000);
    while (caller && !held->taken)
        vv_sleep_until_ns(vv_now_ns() + 1000000);
    memset(buf, (int)piece->id, piece->bytes);
    held->ended++;
    return 0;
}

static void the_last_reader_wakes_the_caller(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 16, .host_cache = 1 << 16};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct vv_device *device = vv_ckpt_device(ctx);
    struct held held = {.caller = pthread_self(), .caller_tid = syscall(SYS_gettid)};
    struct vvi_source_opts opts = {.operation = "test",
                                   .bytes = PIECES * BYTES,
                                   .half_bytes = PIECES * BYTES,
                                   .readers = 3,
                                   .read = read_held,
                                   .read_arg = &held};
    struct vvi_piece pieces[PIECES];
    unsigned char got[PIECES * BYTES];
    struct vv_stream *stream;
    struct vvi_source src;
    uint64_t id;
    void *to;

    T_OK(vv_device_mem_alloc(device, sizeof(got), &to));
    T_OK(vv_device_stream_new(device, &stream));
    T_OK(vvi_source_init(&src, ctx, device, &opts));
    for (size_t i = 0; i < PIECES; i++)
        pieces[i] =
            (struct vvi_piece){.bytes = BYTES, .to = (unsigned char *)to + i * BYTES, .id = i + 1};
    T_OK(vvi_source_fill(&src, stream, pieces, PIECES, &id));
    T_EQ(held.ended, PIECES);
    T_OK(vv_device_copy_async(device, stream, &(struct vv_copy_seg){got, to, sizeof(got)}, 1));
    vvi_source_settle(&src, stream);
    for (size_t i = 0; i < sizeof(got); i++)
        T_EQ(got[i], i / BYTES + 1);
    vvi_source_fini(&src);
    vv_device_stream_free(device, stream);
    T_OK(vv_device_mem_free(device, to));
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(the_last_reader_wakes_the_caller);
    return t_done();
}
