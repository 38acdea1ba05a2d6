/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding of members' messages. A received message is checked as a whole (vv_member_receive goes through
 * it twice) before it changes anything. Little endian:
 *
 *   header   kind 1, version 1, records 2, seq 4, from 8, target 8, digest 8
 *   record   id 8, life 4, refutation 4, rank 1, suspect 1, weight 8, name length 1, address length 1, both
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/le.h"
#include "dataset/member_private.h"

enum { WIRE_VERSION = 1, RECORD_BYTES = 28 };

/* Makes room for `bytes` more. */
static bool grow(struct vv_member *m, size_t bytes)
{
    size_t room = VV_MAX(2 * m->bytes_room, m->nr_bytes + bytes + 4096);
    uint8_t *p;

    if (m->nr_bytes + bytes <= m->bytes_room)
        return true;
    p = realloc(m->bytes, room);
    if (!p)
        return false;
    m->bytes = p;
    m->bytes_room = room;
    return true;
}

void vvi_member_begin(struct vv_member *m, uint64_t to, enum vvi_member_kind kind, uint32_t seq,
                      uint64_t target)
{
    uint8_t *p;

    vv_assert(!m->building);
    if (m->nr_outs == m->outs_room) {
        size_t room = VV_MAX(2 * m->outs_room, 64);
        struct vvi_out *outs = realloc(m->outs, room * sizeof(*outs));
        if (!outs)
            return; /* the message is lost, as others may be */
        m->outs = outs;
        m->outs_room = room;
    }
    if (!grow(m, VVI_MEMBER_HEAD))
        return;
    m->outs[m->nr_outs] = (struct vvi_out){.to = to, .at = m->nr_bytes, .bytes = VVI_MEMBER_HEAD};
    p = m->bytes + m->nr_bytes;
    p[0] = (uint8_t)kind;
    p[1] = WIRE_VERSION;
    vv_le_put(p + 2, 0, 2);
    vv_le_put(p + 4, seq, 4);
    vv_le_put(p + 8, m->opts.self.id, 8);
    vv_le_put(p + 16, target, 8);
    vv_le_put(p + 24, vvi_member_digest(m), 8);
    m->nr_bytes += VVI_MEMBER_HEAD;
    m->building = true;
}

bool vvi_member_put(struct vv_member *m, const struct vvi_record *r)
{
    size_t name = strlen(r->info.name), addr = strlen(r->info.addr);
    size_t bytes = RECORD_BYTES + name + addr;
    struct vvi_out *out;
    uint8_t *p;

    if (!m->building)
        return false;
    out = &m->outs[m->nr_outs];
    if (out->bytes + bytes > VV_MEMBER_MSG_MAX || !grow(m, bytes))
        return false;
    p = m->bytes + m->nr_bytes;
    vv_le_put(p, r->info.id, 8);
    vv_le_put(p + 8, r->life, 4);
    vv_le_put(p + 12, r->refutation, 4);
    p[16] = r->rank;
    p[17] = r->suspect;
    vv_le_put(p + 18, r->info.weight, 8);
    p[26] = (uint8_t)name;
    p[27] = (uint8_t)addr;
    memcpy(p + RECORD_BYTES, r->info.name, name);
    memcpy(p + RECORD_BYTES + name, r->info.addr, addr);
    m->nr_bytes += bytes;
    out->bytes += bytes;
    p = m->bytes + out->at + 2;
    vv_le_put(p, vv_le_get(p, 2) + 1, 2);
    return true;
}

void vvi_member_end(struct vv_member *m)
{
    if (m->building)
        m->nr_outs++;
    m->building = false;
}

int vvi_member_head(const uint8_t *p, size_t bytes, struct vvi_member_head *ret_head)
{
    if (bytes < VVI_MEMBER_HEAD || bytes > VV_MEMBER_MSG_MAX || p[1] != WIRE_VERSION ||
        p[0] < MEMBER_PING || p[0] >= MEMBER_KINDS || vv_le_get(p + 8, 8) == 0)
        return -EBADMSG;
    *ret_head = (struct vvi_member_head){.kind = p[0],
                                         .nr = (uint16_t)vv_le_get(p + 2, 2),
                                         .seq = (uint32_t)vv_le_get(p + 4, 4),
                                         .from = vv_le_get(p + 8, 8),
                                         .target = vv_le_get(p + 16, 8),
                                         .digest = vv_le_get(p + 24, 8)};
    return 0;
}

static bool take_text(const uint8_t *p, size_t n, char *ret_text)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] > '~')
            return false;
        ret_text[i] = (char)p[i];
    }
    ret_text[n] = '\0';
    return true;
}

int vvi_member_get(const uint8_t *p, size_t bytes, size_t *io_at, struct vvi_record *ret_record)
{
    struct vvi_record r = {0};
    size_t name, addr;

    if (bytes - *io_at < RECORD_BYTES)
        return -EBADMSG;
    p += *io_at;
    name = p[26];
    addr = p[27];
    if (bytes - *io_at - RECORD_BYTES < name + addr || name == 0 || addr == 0 ||
        name > VV_MEMBER_NAME_MAX || addr > VV_MEMBER_ADDR_MAX)
        return -EBADMSG;
    r.info.id = vv_le_get(p, 8);
    r.life = (uint32_t)vv_le_get(p + 8, 4);
    r.refutation = (uint32_t)vv_le_get(p + 12, 4);
    r.rank = p[16];
    r.suspect = p[17];
    r.info.weight = vv_le_get(p + 18, 8);
    /* The last life and refutation are not accepted: a member must always have a greater one left. */
    if (r.info.id == 0 || r.rank >= RANKS || p[17] > 1 || r.life == UINT32_MAX ||
        r.refutation == UINT32_MAX || r.info.weight == 0 ||
        !take_text(p + RECORD_BYTES, name, r.info.name) ||
        !take_text(p + RECORD_BYTES + name, addr, r.info.addr))
        return -EBADMSG;
    *io_at += RECORD_BYTES + name + addr;
    *ret_record = r;
    return 0;
}
