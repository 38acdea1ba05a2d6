/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of net/ that compute: the keyed hash against published values, headers, addresses, patience. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/mac.h"
#include "net/net_private.h"
#include "t.h"

static void hex(const uint8_t *p, char *ret_text)
{
    for (unsigned i = 0; i < VVI_MAC_BYTES; i++)
        sprintf(ret_text + 2 * i, "%02x", p[i]);
}

static void test_sha256(void)
{
    static char million[1000000];
    static const struct {
        const char *text;
        size_t bytes;
        const char *hash;
    } known[] = {
        {"", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {million, sizeof(million),
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    uint8_t hash[VVI_MAC_BYTES];
    char text[2 * VVI_MAC_BYTES + 1];

    memset(million, 'a', sizeof(million));
    for (size_t i = 0; i < VV_ARRAY_SIZE(known); i++) {
        vvi_net_sha256(known[i].text, known[i].bytes, hash);
        hex(hash, text);
        T_STREQ(text, known[i].hash);
    }
}

/* RFC 4231, cases 1, 2, 3, 6. */
static void test_mac(void)
{
    uint8_t mac[VVI_MAC_BYTES], key[131], data[50];
    char text[2 * VVI_MAC_BYTES + 1];

    memset(key, 0x0b, 20);
    vvi_net_mac(key, 20, "Hi There", 8, mac);
    hex(mac, text);
    T_STREQ(text, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    vvi_net_mac("Jefe", 4, "what do ya want for nothing?", 28, mac);
    hex(mac, text);
    T_STREQ(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    memset(data, 0xdd, sizeof(data));
    vvi_net_mac(key, 20, data, sizeof(data), mac);
    hex(mac, text);
    T_STREQ(text, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    vvi_net_mac(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                mac);
    hex(mac, text);
    T_STREQ(text, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    T_CHECK(vvi_net_mac_equal(mac, mac));
    for (unsigned bit = 0; bit < 8 * VVI_MAC_BYTES; bit++) {
        uint8_t other[VVI_MAC_BYTES];
        memcpy(other, mac, sizeof(mac));
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
        T_CHECK(!vvi_net_mac_equal(mac, other));
    }
}

static void test_heads(void)
{
    struct vvi_head h = {.kind = VVI_ANSWER,
                         .type = 0xabcd,
                         .flags = 2,
                         .id = UINT64_C(0x0123456789abcdef),
                         .epoch = 77,
                         .status = -ENOENT,
                         .body_bytes = 4,
                         .data_bytes = 1 << 20,
                         .data_sum = UINT64_MAX},
                    back;
    uint8_t wire[VVI_NET_HEAD];

    vvi_head_encode(&h, "body", wire);
    T_EQ(memcmp(wire, "VVN1", 4), 0); /* the same bytes on every machine */
    T_EQ(wire[8], 0xef);
    T_OK(vvi_head_decode(wire, true, &back));
    T_CHECK(back.kind == h.kind && back.type == h.type && back.flags == h.flags &&
            back.id == h.id && back.epoch == h.epoch && back.status == h.status &&
            back.body_bytes == h.body_bytes && back.data_bytes == h.data_bytes &&
            back.data_sum == h.data_sum);
    T_CHECK(vvi_head_check(wire, "body", 4));
    T_CHECK(!vvi_head_check(wire, "bodi", 4));
    for (unsigned bit = 0; bit < 8 * VVI_NET_HEAD; bit++) {
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        T_CHECK(vvi_head_decode(wire, true, &back) != 0 || !vvi_head_check(wire, "body", 4));
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* Before the proof only short frames of the handshake. */
    T_ERR(vvi_head_decode(wire, false, &back), -EBADMSG);
    h = (struct vvi_head){.kind = VVI_HELLO, .body_bytes = VVI_NET_PROOF_MAX + 1};
    static uint8_t body[VV_NET_BODY_MAX + 1];
    vvi_head_encode(&h, body, wire);
    T_ERR(vvi_head_decode(wire, false, &back), -EBADMSG);
    T_OK(vvi_head_decode(wire, true, &back));
    h = (struct vvi_head){.kind = VVI_MESSAGE, .body_bytes = VV_NET_BODY_MAX + 1};
    vvi_head_encode(&h, body, wire);
    T_ERR(vvi_head_decode(wire, true, &back), -EBADMSG);
    h = (struct vvi_head){.kind = VVI_MESSAGE, .data_bytes = 1};
    vvi_head_encode(&h, body, wire);
    T_ERR(vvi_head_decode(wire, true, &back), -EBADMSG);
    h = (struct vvi_head){.kind = VVI_ANSWER, .data_bytes = VV_NET_DATA_MAX + 1};
    vvi_head_encode(&h, body, wire);
    T_ERR(vvi_head_decode(wire, true, &back), -EBADMSG);
}

static void test_addresses(void)
{
    struct vvi_addr a;
    char text[VV_NET_ADDR_MAX + 1], longest[200];

    T_OK(vvi_addr_parse("127.0.0.1:80", &a));
    T_EQ(vvi_addr_port(&a), 80);
    T_EQ(a.sa.ss_family, AF_INET);
    T_OK(vvi_addr_parse("[::1]:65535", &a));
    T_EQ(vvi_addr_port(&a), 65535);
    T_EQ(a.sa.ss_family, AF_INET6);
    T_OK(vvi_addr_parse(":0", &a));
    static const char *const bad[] = {
        "",        ":",       "127.0.0.1", "127.0.0.1:", "::1:80", "[::1",
        "[::1]80", "[::1:80", "1.2.3.4:x", "[]:",        "a b:1",  "1.2.3.4:99999x"};
    for (size_t i = 0; i < VV_ARRAY_SIZE(bad); i++)
        T_ERR(vvi_addr_parse(bad[i], &a), -EINVAL);
    memset(longest, 'a', sizeof(longest));
    memcpy(longest + sizeof(longest) - 4, ":80", 4);
    T_ERR(vvi_addr_parse(longest, &a), -EINVAL);
    vvi_addr_with_port("[::1]:0", 1234, text);
    T_STREQ(text, "[::1]:1234");
}

static void test_patience(void)
{
    struct vvi_pace p = {0};

    T_EQ(vvi_pace_patience_ns(&p, 0), VVI_PACE_FIRST_NS);
    for (unsigned i = 0; i < 100; i++)
        vvi_pace_add(&p, 100 * VV_NS_PER_US, 0);
    T_EQ(vvi_pace_patience_ns(&p, 0), VVI_PACE_MIN_NS);
    /* A peer that takes 50 ms, plus or minus 10, is waited for longer than it ever took. */
    for (unsigned i = 0; i < 100; i++)
        vvi_pace_add(&p, (40 + 20 * (i % 2)) * VV_NS_PER_MS, 0);
    uint64_t steady = vvi_pace_patience_ns(&p, 0);
    T_CHECK(steady > 60 * VV_NS_PER_MS && steady < 200 * VV_NS_PER_MS);
    /* Missed deadlines make it longer, up to the limit; one answer ends that. */
    uint64_t last = steady;
    for (unsigned i = 0; i < 10; i++) {
        vvi_pace_miss(&p);
        uint64_t now = vvi_pace_patience_ns(&p, 0);
        T_CHECK(now >= last && now <= VVI_PACE_MAX_NS);
        last = now;
    }
    T_EQ(last, VVI_PACE_MAX_NS);
    vvi_pace_add(&p, 50 * VV_NS_PER_MS, 0);
    T_CHECK(vvi_pace_patience_ns(&p, 0) < 200 * VV_NS_PER_MS);
    /* Bulk data: four times the time at the measured rate; 1 GB/s: 4 MB in 4 ms. */
    for (unsigned i = 0; i < 100; i++)
        vvi_pace_add(&p, p.mean_ns + 4 * VV_NS_PER_MS, 4000000);
    uint64_t more = vvi_pace_patience_ns(&p, 4000000) - vvi_pace_patience_ns(&p, 0);
    T_CHECK(more > 12 * VV_NS_PER_MS && more < 20 * VV_NS_PER_MS);
    T_EQ(vvi_pace_patience_ns(&p, UINT64_C(1) << 60), VVI_PACE_MAX_NS);
}

int main(void)
{
    T_RUN(test_sha256);
    T_RUN(test_mac);
    T_RUN(test_heads);
    T_RUN(test_addresses);
    T_RUN(test_patience);
    return t_done();
}
