/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots compressed with zfp, to a tolerance that is a share of their own largest amplitude. The
 * compressed size differs from snapshot to snapshot.
 *
 * A snapshot is cut along its slowest axis into parts, whose number depends only on the grid. Each is
 * compressed separately, so that threads can share the work and the bytes do not depend on their
 * number. Packed: a head with the tolerance and the sizes of the parts, then the parts.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rtm.h"

#ifdef RTM_HAVE_ZFP

#include <zfp.h>

enum { PARTS_MAX = 16, PART_CELLS = 16 };

struct head {
    double tolerance;
    uint64_t sizes[PARTS_MAX];
};

struct rtm_pack {
    struct rtm_grid grid;
    double tolerance;
    int parts;
    size_t part_max; /* largest size of a part */
    char *scratch;   /* parts * part_max */
};

/* The cell along the slowest axis at which part i begins. */
static int part_from(const struct rtm_pack *pack, int i)
{
    int length = pack->grid.n[pack->grid.dims - 1];

    return (int)((long)length * i / pack->parts);
}

static zfp_field *part_field(const struct rtm_pack *pack, int i, const float *snapshot)
{
    const int *n = pack->grid.n;
    int from = part_from(pack, i), cells = part_from(pack, i + 1) - from;
    void *at;

    if (pack->grid.dims == 3) {
        at = (void *)(uintptr_t)(snapshot + (long)from * n[RTM_Z] * n[RTM_X]);
        return zfp_field_3d(at, zfp_type_float, (size_t)n[RTM_Z], (size_t)n[RTM_X], (size_t)cells);
    }
    at = (void *)(uintptr_t)(snapshot + (long)from * n[RTM_Z]);
    return zfp_field_2d(at, zfp_type_float, (size_t)n[RTM_Z], (size_t)cells);
}

bool rtm_pack_built(void)
{
    return true;
}

int rtm_pack_new(const struct rtm_grid *grid, double tolerance, struct rtm_pack **ret_pack)
{
    struct rtm_pack *pack = calloc(1, sizeof(*pack));
    zfp_stream *zfp = zfp_stream_open(NULL);

    if (!pack || !zfp) {
        free(pack);
        if (zfp)
            zfp_stream_close(zfp);
        return rtm_error(-ENOMEM, "out of memory");
    }
    pack->grid = *grid;
    pack->tolerance = tolerance;
    pack->parts = grid->n[grid->dims - 1] / PART_CELLS;
    pack->parts = pack->parts < 1 ? 1 : pack->parts > PARTS_MAX ? PARTS_MAX : pack->parts;
    zfp_stream_set_accuracy(zfp, tolerance);
    for (int i = 0; i < pack->parts; i++) {
        zfp_field *field = part_field(pack, i, NULL);
        size_t bytes = zfp_stream_maximum_size(zfp, field);

        pack->part_max = bytes > pack->part_max ? bytes : pack->part_max;
        zfp_field_free(field);
    }
    zfp_stream_close(zfp);
    pack->part_max = (pack->part_max + 63) / 64 * 64;
    pack->scratch = aligned_alloc(64, pack->part_max * (size_t)pack->parts);
    if (!pack->scratch) {
        free(pack);
        return rtm_error(-ENOMEM, "out of memory");
    }
    *ret_pack = pack;
    return 0;
}

void rtm_pack_free(struct rtm_pack *pack)
{
    if (pack)
        free(pack->scratch);
    free(pack);
}

size_t rtm_pack_max_bytes(const struct rtm_pack *pack)
{
    return sizeof(struct head) + (size_t)pack->parts * pack->part_max;
}

/* Compresses or expands one part. Returns its size, or 0. */
static size_t part_code(const struct rtm_pack *pack, int i, const float *snapshot, double tolerance,
                        void *bytes, size_t room, bool expand)
{
    zfp_field *field = part_field(pack, i, snapshot);
    bitstream *bits = stream_open(bytes, room);
    zfp_stream *zfp = zfp_stream_open(bits);
    size_t done = 0;

    if (field && bits && zfp) {
        zfp_stream_set_accuracy(zfp, tolerance);
        (void)zfp_stream_set_execution(zfp, zfp_exec_serial);
        zfp_stream_rewind(zfp);
        done = expand ? zfp_decompress(zfp, field) : zfp_compress(zfp, field);
    }
    if (zfp)
        zfp_stream_close(zfp);
    if (bits)
        stream_close(bits);
    if (field)
        zfp_field_free(field);
    return done;
}

int rtm_pack(struct rtm_pack *pack, const float *snapshot, void *buffer, size_t *ret_bytes)
{
    struct head head = {0};
    char *to = (char *)buffer + sizeof(head);
    long points = rtm_grid_points(&pack->grid);
    float largest = 0;
    int bad = 0;

    for (long i = 0; i < points; i++)
        largest = fabsf(snapshot[i]) > largest ? fabsf(snapshot[i]) : largest;
    head.tolerance = largest > 0 ? pack->tolerance * largest : pack->tolerance;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) reduction(+ : bad)
#endif
    for (int i = 0; i < pack->parts; i++) {
        head.sizes[i] =
            part_code(pack, i, snapshot, head.tolerance, pack->scratch + (size_t)i * pack->part_max,
                      pack->part_max, false);
        bad += head.sizes[i] == 0;
    }
    if (bad)
        return rtm_error(-EIO, "zfp cannot compress a snapshot");
    for (int i = 0; i < pack->parts; i++) {
        memcpy(to, pack->scratch + (size_t)i * pack->part_max, head.sizes[i]);
        to += head.sizes[i];
    }
    memcpy(buffer, &head, sizeof(head));
    *ret_bytes = (size_t)(to - (char *)buffer);
    return 0;
}

int rtm_unpack(struct rtm_pack *pack, const void *buffer, float *snapshot)
{
    const char *parts = (const char *)buffer + sizeof(struct head);
    uint64_t at[PARTS_MAX];
    struct head head;
    int bad = 0;

    memcpy(&head, buffer, sizeof(head));
    for (int i = 0; i < pack->parts; i++)
        at[i] = i ? at[i - 1] + head.sizes[i - 1] : 0;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) reduction(+ : bad)
#endif
    for (int i = 0; i < pack->parts; i++) {
        char *own = pack->scratch + (size_t)i * pack->part_max;

        /* zfp reads whole words, past the last byte too. */
        memcpy(own, parts + at[i], head.sizes[i]);
        bad += part_code(pack, i, snapshot, head.tolerance, own, pack->part_max, true) == 0;
    }
    return bad ? rtm_error(-EIO, "zfp cannot expand a snapshot") : 0;
}

#else

bool rtm_pack_built(void)
{
    return false;
}

int rtm_pack_new(const struct rtm_grid *grid, double tolerance, struct rtm_pack **ret_pack)
{
    (void)grid;
    (void)tolerance;
    (void)ret_pack;
    return rtm_error(-ENOTSUP,
                     "this program was built without zfp: install it (Debian: libzfp-dev) "
                     "and build again, or leave out --zfp");
}

void rtm_pack_free(struct rtm_pack *pack)
{
    (void)pack;
}

size_t rtm_pack_max_bytes(const struct rtm_pack *pack)
{
    (void)pack;
    return 0;
}

int rtm_pack(struct rtm_pack *pack, const float *snapshot, void *buffer, size_t *ret_bytes)
{
    (void)pack;
    (void)snapshot;
    (void)buffer;
    (void)ret_bytes;
    return -ENOTSUP;
}

int rtm_unpack(struct rtm_pack *pack, const void *buffer, float *snapshot)
{
    (void)pack;
    (void)buffer;
    (void)snapshot;
    return -ENOTSUP;
}

#endif
