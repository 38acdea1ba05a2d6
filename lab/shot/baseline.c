/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two baselines without caches and hints. Both copy on the legacy default stream, behind
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/shot/probe_baseline.h"
#include "lab/shot/shot_engine.h"
#include "lab/shot/shot_pinned.h"

#define FILE_ALIGN SHOT_PINNED_ALIGN

/* Shared by both. */
struct baseline {
    struct shot_engine base;
    struct vv_device *device;
    struct vv_stream *stream;
    struct vv_event *event;
    const struct shot_sizes *sizes;

    struct shot_pinned pinned; /* a slot for each version (ondemand), or the one buffer (file) */

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

    shot_pinned_fini(&b->pinned);
    vv_device_event_free(b->device, b->event);
    if (b->stream)
        vv_device_stream_free(b->device, b->stream);
    free(b);
    return 0;
}

/* With a slot for each of `nr` sizes. */
static int baseline_new(const struct shot_baseline *o, const struct shot_engine_ops *ops,
                        const uint64_t *bytes, size_t nr, char *err, size_t err_size,
                        struct shot_engine **ret_engine)
{
    struct baseline *b = calloc(1, sizeof(*b));
    int rc;

    if (!b) {
        snprintf(err, err_size, "out of memory");
        return -ENOMEM;
    }
    b->base.ops = ops;
    b->device = o->device;
    b->sizes = o->sizes;
    b->folder = o->folder;
    b->rank = o->rank;
    b->direct = o->direct;
    rc = vv_device_stream_adopt(b->device, NULL, &b->stream);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &b->event);
    if (rc)
        shot_device_explain(b->device, rc, err, err_size);
    else
        rc = shot_pinned_init(b->device, bytes, nr, err, err_size, &b->pinned);
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

    return rc ? rc : copy(b, shot_pinned_at(&b->pinned, version), buf, bytes);
}

static int ondemand_restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct baseline *b = of(e);
    int rc = check_version(b, version, bytes);

    return rc ? rc : copy(b, buf, shot_pinned_at(&b->pinned, version), bytes);
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
    return baseline_new(o, &ondemand_ops, o->sizes->bytes, o->sizes->nr, err, err_size, ret_engine);
}

/* ---- file ---- */

static void file_name(const struct baseline *b, uint64_t version, char *buf, size_t size)
{
    snprintf(buf, size, "%s/r%" PRIu32 ".v%" PRIu64, b->folder, b->rank, version);
}

/* Past the page cache only whole blocks can be transferred. */
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
        rc = copy(b, b->pinned.map, buf, bytes);
    if (rc == 0)
        rc = open_version(b, version, O_WRONLY | O_CREAT | O_TRUNC, &fd);
    if (rc)
        return rc;
    rc = probe_file_transfer(fd, b->pinned.map, file_bytes(b, bytes), true);
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
    rc = probe_file_transfer(fd, b->pinned.map, file_bytes(b, bytes), false);
    close(fd);
    return rc ? rc : copy(b, buf, b->pinned.map, bytes);
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
    return baseline_new(o, &file_ops, &o->sizes->largest_bytes, 1, err, err_size, ret_engine);
}
