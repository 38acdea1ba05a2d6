/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of messages between nodes: little endian, no padding, lengths before their data. Incoming
 * messages are checked here, so that no other part gets an invalid path. */
#include <string.h>

#include "base/le.h"
#include "dataset/node_private.h"

void vvi_wire_put(struct vvi_pack *p, uint64_t value, unsigned bytes)
{
    if (p->bad || p->max - p->at < bytes) {
        p->bad = true;
        return;
    }
    vv_le_put(p->buf + p->at, value, bytes);
    p->at += bytes;
}

uint64_t vvi_wire_take(struct vvi_pack *p, unsigned bytes)
{
    if (p->bad || p->max - p->at < bytes) {
        p->bad = true;
        return 0;
    }
    p->at += bytes;
    return vv_le_get(p->buf + p->at - bytes, bytes);
}

void vvi_wire_put_path(struct vvi_pack *p, const char *path)
{
    size_t n = strlen(path);

    vvi_wire_put(p, n, 2);
    if (p->bad || p->max - p->at < n) {
        p->bad = true;
        return;
    }
    memcpy(p->buf + p->at, path, n);
    p->at += n;
}

void vvi_wire_take_path(struct vvi_pack *p, char *path)
{
    size_t n = (size_t)vvi_wire_take(p, 2);

    path[0] = '\0';
    if (p->bad || n == 0 || n > VV_DATASET_PATH_MAX || p->max - p->at < n || p->buf[p->at] != '/' ||
        memchr(p->buf + p->at, '\0', n)) {
        p->bad = true;
        return;
    }
    memcpy(path, p->buf + p->at, n);
    path[n] = '\0';
    p->at += n;
}

void vvi_wire_put_gen(struct vvi_pack *p, const struct vv_dataset_gen *gen)
{
    vvi_wire_put(p, gen->size, 8);
    vvi_wire_put(p, gen->mtime_ns, 8);
    vvi_wire_put(p, gen->ctime_ns, 8);
    vvi_wire_put(p, gen->inode, 8);
}

void vvi_wire_take_gen(struct vvi_pack *p, struct vv_dataset_gen *gen)
{
    gen->size = vvi_wire_take(p, 8);
    gen->mtime_ns = vvi_wire_take(p, 8);
    gen->ctime_ns = vvi_wire_take(p, 8);
    gen->inode = vvi_wire_take(p, 8);
}

void vvi_wire_put_stat(struct vvi_pack *p, const struct vv_shared_stat *st)
{
    vvi_wire_put_gen(p, &st->gen);
    vvi_wire_put(p, st->mode, 4);
    vvi_wire_put(p, st->uid, 4);
    vvi_wire_put(p, st->gid, 4);
    vvi_wire_put(p, st->nlink, 4);
    vvi_wire_put(p, st->blksize, 4);
    vvi_wire_put(p, st->direct, 4);
    vvi_wire_put(p, st->blocks, 8);
    vvi_wire_put(p, st->atime_ns, 8);
    vvi_wire_put(p, st->btime_ns, 8);
}

void vvi_wire_take_stat(struct vvi_pack *p, struct vv_shared_stat *st)
{
    vvi_wire_take_gen(p, &st->gen);
    st->mode = (uint32_t)vvi_wire_take(p, 4);
    st->uid = (uint32_t)vvi_wire_take(p, 4);
    st->gid = (uint32_t)vvi_wire_take(p, 4);
    st->nlink = (uint32_t)vvi_wire_take(p, 4);
    st->blksize = (uint32_t)vvi_wire_take(p, 4);
    st->direct = (uint32_t)vvi_wire_take(p, 4);
    st->blocks = vvi_wire_take(p, 8);
    st->atime_ns = vvi_wire_take(p, 8);
    st->btime_ns = vvi_wire_take(p, 8);
    st->dev = 0; /* the file system has another number on every node */
}

void vvi_wire_put_get(struct vvi_pack *p, const struct vvi_get *g)
{
    vvi_wire_put(p, g->flags, 4);
    vvi_wire_put(p, g->load, 8);
    vvi_wire_put(p, g->not_at, 8);
    vvi_wire_put(p, g->offset, 8);
    vvi_wire_put_gen(p, &g->gen);
    vvi_wire_put_path(p, g->path);
}

void vvi_wire_take_get(struct vvi_pack *p, struct vvi_get *g, char *path)
{
    g->flags = (uint32_t)vvi_wire_take(p, 4);
    g->load = vvi_wire_take(p, 8);
    g->not_at = vvi_wire_take(p, 8);
    g->offset = vvi_wire_take(p, 8);
    vvi_wire_take_gen(p, &g->gen);
    vvi_wire_take_path(p, path);
    g->path = path;
    if (p->at != p->max || (g->flags & ~(uint32_t)VVI_GET_FLAGS))
        p->bad = true;
}

void vvi_wire_put_got(struct vvi_pack *p, const struct vvi_got *g)
{
    vvi_wire_put(p, g->what, 4);
    vvi_wire_put(p, (uint32_t)-g->why, 4);
    vvi_wire_put(p, g->load, 8);
    vvi_wire_put(p, g->age_ns, 8);
    vvi_wire_put(p, g->at, 8);
    vvi_wire_put(p, g->sum, 8);
    vvi_wire_put_stat(p, &g->st);
}

void vvi_wire_take_got(struct vvi_pack *p, struct vvi_got *g)
{
    uint64_t what = vvi_wire_take(p, 4), why = vvi_wire_take(p, 4);

    g->load = vvi_wire_take(p, 8);
    g->age_ns = vvi_wire_take(p, 8);
    g->at = vvi_wire_take(p, 8);
    g->sum = vvi_wire_take(p, 8);
    vvi_wire_take_stat(p, &g->st);
    if (what < VVI_GOT_FILE || what > VVI_GOT_PASS || why > 4095 || p->at != p->max)
        p->bad = true;
    g->what = (enum vvi_what)what;
    g->why = -(int)why;
}
