/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PNG files with a palette: a byte for each pixel. The image data are deflated with runs and the
 * fixed Huffman code, which is enough for smooth pictures: each row is stored as differences to
 * the pixel on the left, and runs of the same difference become matches at distance 1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rtm.h"

struct bits {
    uint8_t *to;
    size_t bytes, room;
    uint32_t held;
    int count;
};

static uint32_t crc32_of(uint32_t crc, const uint8_t *p, size_t bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static uint32_t adler32_of(const uint8_t *p, size_t bytes)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < bytes; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void put_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put_bits(struct bits *b, uint32_t value, int count)
{
    b->held |= value << b->count;
    b->count += count;
    while (b->count >= 8) {
        if (b->bytes < b->room)
            b->to[b->bytes] = (uint8_t)b->held;
        b->bytes++;
        b->held >>= 8;
        b->count -= 8;
    }
}

/* Huffman codes are written with their highest bit first. */
static void put_code(struct bits *b, uint32_t code, int count)
{
    uint32_t reversed = 0;

    for (int i = 0; i < count; i++)
        reversed |= (code >> i & 1) << (count - 1 - i);
    put_bits(b, reversed, count);
}

static void put_symbol(struct bits *b, int symbol)
{
    if (symbol < 144)
        put_code(b, 0x30u + (uint32_t)symbol, 8);
    else if (symbol < 256)
        put_code(b, 0x190u + (uint32_t)symbol - 144, 9);
    else if (symbol < 280)
        put_code(b, (uint32_t)symbol - 256, 7);
    else
        put_code(b, 0xc0u + (uint32_t)symbol - 280, 8);
}

/* A match of 3 to 258 bytes at distance 1. */
static void put_run(struct bits *b, int length)
{
    static const int base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                               31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const int extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    int k = (int)(sizeof(base) / sizeof(base[0])) - 1;

    while (base[k] > length)
        k--;
    put_symbol(b, 257 + k);
    put_bits(b, (uint32_t)(length - base[k]), extra[k]);
    put_code(b, 0, 5); /* distance 1 */
}

static size_t deflate(const uint8_t *p, size_t bytes, uint8_t *to, size_t room)
{
    struct bits b = {.to = to, .room = room};

    put_bits(&b, 1, 1); /* the last block */
    put_bits(&b, 1, 2); /* of fixed codes */
    for (size_t i = 0; i < bytes;) {
        size_t run = 0;

        while (i > 0 && i + run < bytes && run < 258 && p[i + run] == p[i - 1])
            run++;
        if (run >= 3) {
            put_run(&b, (int)run);
            i += run;
        } else {
            put_symbol(&b, p[i++]);
        }
    }
    put_symbol(&b, 256);
    put_bits(&b, 0, b.count ? 8 - b.count : 0);
    return b.bytes;
}

static size_t put_chunk(uint8_t *to, const char *type, const uint8_t *data, size_t bytes)
{
    put_be32(to, (uint32_t)bytes);
    memcpy(to + 4, type, 4);
    if (bytes)
        memmove(to + 8, data, bytes);
    put_be32(to + 8 + bytes, crc32_of(0, to + 4, bytes + 4));
    return bytes + 12;
}

/* Rows, each after the number of its filter: the difference to the left. */
static void filter_rows(const uint8_t *pixels, int width, int height, uint8_t *to)
{
    for (int y = 0; y < height; y++) {
        const uint8_t *row = pixels + (size_t)y * (size_t)width;

        *to++ = 1;
        for (int x = 0; x < width; x++)
            *to++ = (uint8_t)(row[x] - (x ? row[x - 1] : 0));
    }
}

int rtm_png(int width, int height, const uint8_t *pixels, const uint8_t palette[256][3],
            uint8_t **ret_png, size_t *ret_bytes)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    size_t plain = ((size_t)width + 1) * (size_t)height, room = plain + plain / 4 + 64, bytes,
           at = 0;
    uint8_t *rows = malloc(plain), *packed = malloc(room), *png = malloc(room + 1024),
            head[13] = {0};

    if (!rows || !packed || !png) {
        free(rows);
        free(packed);
        free(png);
        return rtm_error(-ENOMEM, "no memory for a picture");
    }
    filter_rows(pixels, width, height, rows);
    packed[0] = 0x78;
    packed[1] = 0x01;
    bytes = 2 + deflate(rows, plain, packed + 2, room - 6);
    put_be32(packed + bytes, adler32_of(rows, plain));
    put_be32(head, (uint32_t)width);
    put_be32(head + 4, (uint32_t)height);
    head[8] = 8; /* bits */
    head[9] = 3; /* palette */
    memcpy(png, signature, sizeof(signature));
    at = sizeof(signature);
    at += put_chunk(png + at, "IHDR", head, sizeof(head));
    at += put_chunk(png + at, "PLTE", &palette[0][0], 768);
    at += put_chunk(png + at, "IDAT", packed, bytes + 4);
    at += put_chunk(png + at, "IEND", NULL, 0);
    free(rows);
    free(packed);
    *ret_png = png;
    *ret_bytes = at;
    return 0;
}
