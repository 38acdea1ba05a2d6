/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between nodes: decoding returns what was encoded, and a truncated or changed message never yields an invalid
 * path. */
#include "dataset/node_private.h"

#include <stdio.h>

#include "t.h"

static struct vvi_get some_get(char *path)
{
    snprintf(path, VV_DATASET_PATH_MAX + 1, "/data/%0200d", 7);
    return (struct vvi_get){.flags = VVI_GET_HOME | VVI_GET_HAVE,
                            .load = UINT64_MAX,
                            .not_at = 3,
                            .offset = (uint64_t)5 << 40,
                            .gen = {1, 2, 3, 4},
                            .path = path};
}

static void there_and_back(void)
{
    char path[VV_DATASET_PATH_MAX + 1], other[VV_DATASET_PATH_MAX + 1];
    uint8_t buf[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = buf, .max = sizeof(buf)};
    struct vvi_get g = some_get(path), h;
    struct vvi_got a = {.what = VVI_GOT_PASS,
                        .load = 9,
                        .age_ns = 8,
                        .at = 7,
                        .sum = 0x0123456789abcdef,
                        .why = -EFBIG,
                        .st = {.gen = {5, 6, 7, 8},
                               .mode = 0100644,
                               .uid = 1,
                               .gid = 2,
                               .nlink = 3,
                               .blksize = 4096,
                               .direct = 1,
                               .blocks = 11,
                               .atime_ns = 12,
                               .btime_ns = 13}},
                   b;

    vvi_wire_put_get(&p, &g);
    T_CHECK(!p.bad);
    p = (struct vvi_pack){.buf = buf, .max = p.at};
    vvi_wire_take_get(&p, &h, other);
    T_CHECK(!p.bad && h.flags == g.flags && h.load == g.load && h.not_at == g.not_at &&
            h.offset == g.offset && vvi_same_gen(&h.gen, &g.gen));
    T_STREQ(h.path, g.path);
    p = (struct vvi_pack){.buf = buf, .max = sizeof(buf)};
    vvi_wire_put_got(&p, &a);
    p = (struct vvi_pack){.buf = buf, .max = p.at};
    vvi_wire_take_got(&p, &b);
    T_CHECK(!p.bad && b.what == a.what && b.why == a.why && b.load == a.load && b.at == a.at &&
            b.age_ns == a.age_ns && b.sum == a.sum && memcmp(&a.st, &b.st, sizeof(a.st)) == 0);
    /* A path that is too long for the buffer. */
    p = (struct vvi_pack){.buf = buf, .max = 100};
    vvi_wire_put_get(&p, &g);
    T_CHECK(p.bad && p.at <= 100);
}

static void cut_off(void)
{
    char path[VV_DATASET_PATH_MAX + 1], other[VV_DATASET_PATH_MAX + 1];
    uint8_t buf[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = buf, .max = sizeof(buf)};
    struct vvi_get g = some_get(path), h;
    size_t whole;

    vvi_wire_put_get(&p, &g);
    whole = p.at;
    for (size_t n = 0; n < whole; n++) {
        p = (struct vvi_pack){.buf = buf, .max = n};
        vvi_wire_take_get(&p, &h, other);
        T_CHECK(p.bad);
    }
    p = (struct vvi_pack){.buf = buf, .max = whole + 1};
    vvi_wire_take_get(&p, &h, other);
    T_CHECK(p.bad);
}

static void nonsense(void)
{
    static const char *const paths[] = {"", "relative", "/a\0b"};
    static const size_t bytes[] = {0, 8, 4};
    char path[VV_DATASET_PATH_MAX + 1];
    uint8_t buf[2 * VV_DATASET_PATH_MAX];
    struct t_rng rng = {t_seed()};
    struct vvi_get g;
    struct vvi_got got;

    for (size_t i = 0; i < VV_ARRAY_SIZE(paths); i++) {
        struct vvi_pack p = {.buf = buf, .max = sizeof(buf)};

        vvi_wire_put(&p, bytes[i], 2);
        memcpy(buf + 2, paths[i], bytes[i]);
        p = (struct vvi_pack){.buf = buf, .max = 2 + bytes[i]};
        vvi_wire_take_path(&p, path);
        T_CHECK(p.bad);
    }
    for (uint64_t i = 0; i < t_cases(20000, 2000000); i++) {
        size_t n = t_rng_below(&rng, 300);
        struct vvi_pack p = {.buf = buf, .max = n}, q = p;

        for (size_t k = 0; k < n; k++)
            buf[k] = (uint8_t)t_rng_u64(&rng);
        vvi_wire_take_get(&p, &g, path);
        T_CHECK(p.bad || (path[0] == '/' && strlen(path) <= VV_DATASET_PATH_MAX));
        vvi_wire_take_got(&q, &got);
        T_CHECK(q.bad || (got.what >= VVI_GOT_FILE && got.what <= VVI_GOT_PASS && got.why <= 0));
    }
}

int main(void)
{
    T_RUN(there_and_back);
    T_RUN(cut_off);
    T_RUN(nonsense);
    return t_done();
}
