/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two baselines that know neither caches nor hints. Both copy on the legacy default stream, behind
 * the application's kernels, and return when the copy is done.
 *
 * ondemand: every version has a slot of its own in pinned host memory, so a call is one copy over
 * the link and nothing else. Each slot is registered by itself: no copy crosses a border.
 *
 * file: one pinned buffer, one file per version. A call is one copy over the link and one write or
 * read of the whole file, one after the other. Consumed versions stay until the run's folder is
 * removed: unlinking them would be part of the time that counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "lab/shot/probe_baseline.h"
#include "lab/shot/shot_engine.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES    ((size_t)2 << 20)
#define FILE_ALIGN    4096
#define TOUCH_THREADS 16

/* What both have. */
struct baseline {
    struct shot_engine base;
    struct vv_device *device;
    struct vv_stream *stream;
    struct vv_event *event;
    const struct shot_sizes *sizes;

    char *map; /* pinned slots (ondemand), or the one buffer (file) */
    size_t map_bytes;
    size_t *slot; /* where each begins; one more than there are */
    size_t nr_slots;
    size_t nr_registered;

    const char *folder;
    uint32_t rank;
    bool direct;
};

static struct baseline *of(struct shot_engine *e)
{
    return (struct baseline *)e;
}

static int copy(struct baseline *b, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(b->device, b->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(b->device, b->event, b->stream);
    return rc ? rc : vv_device_event_wait(b->device, b->event, -1);
}

/* ---- pinned memory ---- */

struct touch {
    pthread_t thread;
    char *from;
    size_t bytes;
    bool started;
};

static void *touch_main(void *arg)
{
    struct touch *t = arg;

    if (t->bytes > 0 && madvise(t->from, t->bytes, MADV_POPULATE_WRITE))
        for (size_t at = 0; at < t->bytes; at += FILE_ALIGN)
            *(volatile char *)(t->from + at) = 0;
    return NULL;
}

static void touch_all(char *map, size_t bytes)
{
    struct touch t[TOUCH_THREADS] = {0};
    size_t share = vv_align_up(vv_div_up(bytes, TOUCH_THREADS), HUGE_BYTES);

    for (size_t i = 0; i < TOUCH_THREADS; i++) {
        t[i].from = map + VV_MIN(i * share, bytes);
        t[i].bytes = VV_MIN(share, bytes - VV_MIN(i * share, bytes));
        t[i].started = pthread_create(&t[i].thread, NULL, touch_main, &t[i]) == 0;
        if (!t[i].started)
            touch_main(&t[i]);
    }
    for (size_t i = 0; i < TOUCH_THREADS; i++)
        if (t[i].started)
            pthread_join(t[i].thread, NULL);
}

/* Maps, touches and pins the slots. */
static int pin(struct baseline *b, char *err, size_t err_size)
{
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    uint64_t available = vv_memory_available();

    b->map_bytes = b->slot[b->nr_slots];
    if (available && b->map_bytes > available) {
        snprintf(err, err_size, "%s of pinned memory wanted, %s available",
                 vv_bytes_human(b->map_bytes, want, sizeof(want)),
                 vv_bytes_human(available, have, sizeof(have)));
        return -ENOMEM;
    }
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        b->map = NULL;
        snprintf(err, err_size, "mapping host memory: %s", strerror(errno));
        return -ENOMEM;
    }
    (void)madvise(b->map, b->map_bytes, MADV_HUGEPAGE);
    touch_all(b->map, b->map_bytes);
    while (b->nr_registered < b->nr_slots) {
        size_t at = b->slot[b->nr_registered];
        int rc =
            vv_device_host_register(b->device, b->map + at, b->slot[b->nr_registered + 1] - at);

        if (rc) {
            snprintf(err, err_size, "pinning host memory: %s", varve_strerror(rc));
            return rc;
        }
        b->nr_registered++;
    }
    return 0;
}

/* ---- what both do ---- */

static int accept_hint(struct shot_engine *e, uint64_t version)
{
    (void)e;
    (void)version;
    return 0;
}

static int nothing(struct shot_engine *e)
{
    (void)e;
    return 0;
}

static void sample(struct shot_engine *e, struct shot_sample *ret_sample)
{
    (void)e;
    *ret_sample = (struct shot_sample){0};
}

void shot_device_explain(struct vv_device *device, int rc, char *buf, size_t size)
{
    const char *name = "";
    int code = vv_device_last_code(device, &name);

    if (code)
        snprintf(buf, size, "%s (%s)", varve_strerror(rc), name);
    else
        snprintf(buf, size, "%s", varve_strerror(rc));
}

static void explain(struct shot_engine *e, int rc, char *buf, size_t size)
{
    shot_device_explain(of(e)->device, rc, buf, size);
}

static int baseline_close(struct shot_engine *e)
{
    struct baseline *b = of(e);

    for (size_t i = 0; i < b->nr_registered; i++)
        vv_device_host_unregister(b->device, b->map + b->slot[i]);
    if (b->map)
        munmap(b->map, b->map_bytes);
    vv_device_event_free(b->device, b->event);
    if (b->stream)
        vv_device_stream_free(b->device, b->stream);
    free(b->slot);
    free(b);
    return 0;
}

/* With `nr_slots` slots that the caller still has to measure out. */
static int baseline_new(const struct shot_baseline *o, const struct shot_engine_ops *ops,
                        size_t nr_slots, struct baseline **ret_baseline)
{
    struct baseline *b = calloc(1, sizeof(*b));
    int rc = -ENOMEM;

    if (!b)
        return rc;
    b->base.ops = ops;
    b->device = o->device;
    b->sizes = o->sizes;
    b->folder = o->folder;
    b->rank = o->rank;
    b->direct = o->direct;
    b->nr_slots = nr_slots;
    b->slot = calloc(nr_slots + 1, sizeof(*b->slot));
    if (b->slot)
        rc = vv_device_stream_adopt(b->device, NULL, &b->stream);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &b->event);
    if (rc)
        baseline_close(&b->base);
    else
        *ret_baseline = b;
    return rc;
}

static int finish_new(struct baseline *b, char *err, size_t err_size,
                      struct shot_engine **ret_engine)
{
    int rc = pin(b, err, err_size);

    if (rc)
        baseline_close(&b->base);
    else
        *ret_engine = &b->base;
    return rc;
}

static int check_version(const struct baseline *b, uint64_t version, size_t bytes)
{
    return version < b->sizes->nr && bytes <= b->sizes->bytes[version] ? 0 : -EINVAL;
}

/* ---- ondemand ---- */

static int ondemand_checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct baseline *b = of(e);
    int rc = check_version(b, version, bytes);

    return rc ? rc : copy(b, b->map + b->slot[version], buf, bytes);
}

static int ondemand_restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct baseline *b = of(e);
    int rc = check_version(b, version, bytes);

    return rc ? rc : copy(b, buf, b->map + b->slot[version], bytes);
}

static const struct shot_engine_ops ondemand_ops = {
    .hint = accept_hint,
    .start = nothing,
    .checkpoint = ondemand_checkpoint,
    .restore = ondemand_restore,
    .flush = nothing,
    .discard = accept_hint,
    .sample = sample,
    .explain = explain,
    .close = baseline_close,
};

int shot_engine_ondemand(const struct shot_baseline *o, char *err, size_t err_size,
                         struct shot_engine **ret_engine)
{
    struct baseline *b;
    int rc = baseline_new(o, &ondemand_ops, o->sizes->nr, &b);

    if (rc) {
        snprintf(err, err_size, "ondemand: %s", varve_strerror(rc));
        return rc;
    }
    for (size_t v = 0; v < o->sizes->nr; v++)
        b->slot[v + 1] = b->slot[v] + vv_align_up(o->sizes->bytes[v], FILE_ALIGN);
    return finish_new(b, err, err_size, ret_engine);
}

/* ---- file ---- */

static void file_name(const struct baseline *b, uint64_t version, char *buf, size_t size)
{
    snprintf(buf, size, "%s/r%" PRIu32 ".v%" PRIu64, b->folder, b->rank, version);
}

/* Past the page cache only whole blocks move. */
static size_t file_bytes(const struct baseline *b, size_t bytes)
{
    return b->direct ? vv_align_up(bytes, FILE_ALIGN) : bytes;
}

static int open_version(const struct baseline *b, uint64_t version, int flags, int *ret_fd)
{
    char path[VARVE_PATH_BYTES + 64];
    int fd;

    file_name(b, version, path, sizeof(path));
    fd = open(path, flags | O_CLOEXEC | (b->direct ? O_DIRECT : 0), 0600);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

static int file_checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct baseline *b = of(e);
    int fd, rc = check_version(b, version, bytes);

    if (rc == 0)
        rc = copy(b, b->map, buf, bytes);
    if (rc == 0)
        rc = open_version(b, version, O_WRONLY | O_CREAT | O_TRUNC, &fd);
    if (rc)
        return rc;
    rc = probe_file_transfer(fd, b->map, file_bytes(b, bytes), true);
    if (close(fd) && rc == 0)
        rc = -errno;
    return rc;
}

static int file_discard(struct shot_engine *e, uint64_t version)
{
    char path[VARVE_PATH_BYTES + 64];

    file_name(of(e), version, path, sizeof(path));
    return unlink(path) ? -errno : 0;
}

static int file_restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct baseline *b = of(e);
    int fd, rc = check_version(b, version, bytes);

    if (rc == 0)
        rc = open_version(b, version, O_RDONLY, &fd);
    if (rc)
        return rc;
    rc = probe_file_transfer(fd, b->map, file_bytes(b, bytes), false);
    close(fd);
    return rc ? rc : copy(b, buf, b->map, bytes);
}

static const struct shot_engine_ops file_ops = {
    .hint = accept_hint,
    .start = nothing,
    .checkpoint = file_checkpoint,
    .restore = file_restore,
    .flush = nothing,
    .discard = file_discard,
    .sample = sample,
    .explain = explain,
    .close = baseline_close,
};

int shot_engine_file(const struct shot_baseline *o, char *err, size_t err_size,
                     struct shot_engine **ret_engine)
{
    struct baseline *b;
    int rc = baseline_new(o, &file_ops, 1, &b);

    if (rc) {
        snprintf(err, err_size, "file: %s", varve_strerror(rc));
        return rc;
    }
    b->slot[1] = vv_align_up(o->sizes->largest_bytes, HUGE_BYTES);
    return finish_new(b, err, err_size, ret_engine);
}
