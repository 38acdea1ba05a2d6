/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces made to mislead, with right checksums: for any records and texts, a report and every export end without a
 * memory error, and output for programs stays well-formed where a name could break it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "cli/report/trace_export.h"
#include "cli/report/trace_spans.h"
#include "cli/report/trace_view.h"
#include "t.h"
#include "trace/format.h"

enum { RECORDS_MAX = 400 };

struct bytes {
    char *v;
    size_t n, cap;
};

static void add(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->v = realloc(b->v, b->cap);
        T_CHECK(b->v);
    }
    memcpy(b->v + b->n, data, n);
    b->n += n;
}

static void add_block(struct bytes *file, uint32_t type, struct bytes *payload)
{
    static const char zeros[8];
    struct vv_trace_block b = {.magic = VV_TRACE_BLOCK_MAGIC, .type = type, .bytes = payload->n};

    add(payload, zeros, vv_align_up(payload->n, 8) - payload->n);
    b.payload_sum = vv_hash64(payload->v, payload->n);
    b.sum = vv_hash64(&b, offsetof(struct vv_trace_block, sum));
    add(file, &b, sizeof(b));
    add(file, payload->v, payload->n);
    payload->n = 0;
}

static void add_pair(struct bytes *file, struct bytes *payload, uint32_t context, const char *key,
                     const char *value)
{
    struct vv_trace_pairs head = {.context = context, .count = 1};
    uint32_t length[2] = {(uint32_t)strlen(key), (uint32_t)strlen(value)};

    add(payload, &head, sizeof(head));
    add(payload, length, sizeof(length));
    add(payload, key, length[0]);
    add(payload, value, length[1]);
    add_block(file, VV_TRACE_BLOCK_META, payload);
}

/* Mostly small, so that records meet; otherwise at the ends of the range. */
static uint64_t number(struct t_rng *rng)
{
    static const uint64_t ends[] = {UINT64_MAX,          UINT64_MAX - 1,       INT64_MAX,
                                    (uint64_t)INT64_MIN, UINT32_MAX,           INT32_MAX,
                                    UINT64_C(1) << 32,   UINT64_C(0x8000) << 8};

    switch (t_rng_below(rng, 8)) {
    case 0:
        return ends[t_rng_below(rng, VV_ARRAY_SIZE(ends))];
    case 1:
        return t_rng_u64(rng);
    case 2:
        return VV_TRACE_HISTORY(1, t_rng_below(rng, 2));
    default:
        return t_rng_below(rng, 4);
    }
}

static void add_records(struct bytes *file, struct bytes *payload, struct t_rng *rng, bool far)
{
    struct vv_trace_batch head = {.lost = t_rng_below(rng, 4) ? 0 : number(rng)};
    size_t n = t_rng_below(rng, RECORDS_MAX);

    add(payload, &head, sizeof(head));
    for (size_t i = 0; i < n; i++) {
        struct vv_trace_record r = {
            .seq = i + 1,
            .time_ns = far && t_rng_below(rng, 3) == 0 ? number(rng) : t_rng_below(rng, 1000000),
            .kind = (uint32_t)t_rng_below(rng, VV_TRACE_KIND_COUNT + 1),
            .thread = (uint32_t)t_rng_below(rng, 3)};
        for (int a = 0; a < VV_TRACE_ARGS; a++)
            r.arg[a] = number(rng);
        if (r.kind == VV_TRACE_COPY_START || r.kind == VV_TRACE_COPY_END)
            r.arg[0] = t_rng_below(rng, 4)
                           ? VV_TRACE_ROUTE(t_rng_below(rng, 6), (int)t_rng_below(rng, 4) - 1,
                                            (int)t_rng_below(rng, 4) - 1)
                           : r.arg[0];
        if (r.kind == VV_TRACE_CALL_START || r.kind == VV_TRACE_CALL_END)
            r.arg[1] = VV_TRACE_HISTORY(1, 1);
        add(payload, &r, sizeof(r));
    }
    add_block(file, VV_TRACE_BLOCK_RECORDS, payload);
}

static void add_texts(struct bytes *file, struct bytes *payload, struct t_rng *rng)
{
    static const char *const values[] = {"device",
                                         "host",
                                         "files",
                                         "h2f",
                                         "f2h",
                                         "d2h",
                                         "",
                                         "nan",
                                         "-1",
                                         "1e999",
                                         "99999999999999999999999",
                                         "4096",
                                         "</script><script>",
                                         "\"'&<>\\",
                                         "\xff\xfe\xc3",
                                         "]]>"};
    static const char *const keys[] = {
        "tier.0", "tier.1",        "tier.2",   "tier.0.bytes", "hop.0",          "hop.3",
        "hop.4",  "rate.h2f",      "rate.f2h", "restore.hits", "restore.misses", "command",
        "time",   "transit.bytes", "memory",   "config.policy"};

    for (uint64_t n = t_rng_below(rng, 24); n-- > 0;)
        add_pair(file, payload, (uint32_t)t_rng_below(rng, 3),
                 keys[t_rng_below(rng, VV_ARRAY_SIZE(keys))],
                 values[t_rng_below(rng, VV_ARRAY_SIZE(values))]);
    for (uint32_t i = 0; i < 3; i++) {
        struct vv_trace_texts head = {.count = 1};
        const char *text = values[t_rng_below(rng, VV_ARRAY_SIZE(values))];
        uint32_t word[2] = {i, (uint32_t)strlen(text)};
        add(payload, &head, sizeof(head));
        add(payload, word, sizeof(word));
        add(payload, text, word[1]);
        add_block(file, VV_TRACE_BLOCK_NAMES, payload);
    }
}

/* Text of a script in a page ends at the first "</": one for each element that was opened. */
static size_t count(const char *in, const char *what)
{
    size_t n = 0;

    for (const char *p = in; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void read_all(const struct bytes *file)
{
    struct vv_trace_file *f;
    struct vv_timeline *t;
    struct trace_view *view;
    char err[256], *text = NULL;
    size_t size = 0;

    T_OK(vv_trace_file_parse(file->v, file->n, err, sizeof(err), &f));
    T_OK(vv_timeline_new(f, &t));
    FILE *out = open_memstream(&text, &size);
    T_CHECK(out);
    T_OK(trace_export_chrome(out, t));
    T_OK(trace_export_svg(out, t, 0, 0));
    T_OK(trace_export_svg(out, t, t->length_ns / 3, t->length_ns / 2));
    for (int table = TRACE_TABLE_SPANS; table <= TRACE_TABLE_RECORDS; table++)
        T_OK(trace_export_csv(out, t, (enum trace_table)table));
    rewind(out);
    T_OK(trace_view_new(t, &view));
    trace_page_json(out, trace_view_page(view));
    rewind(out);
    T_OK(trace_page_write(out, trace_view_page(view)));
    T_EQ(fputc('\0', out), 0);
    T_EQ(fflush(out), 0);
    T_EQ(count(text, "<script"), count(text, "</script>"));
    T_EQ(count(text, "<script>"), 1);
    T_EQ(fclose(out), 0);
    free(text);
    trace_view_free(view);
    vv_timeline_free(t);
    vv_trace_file_free(f);
}

static void any_records(void)
{
    struct t_rng rng = {t_seed() + 4};
    struct bytes file = {0}, payload = {0};

    for (uint64_t n = t_cases(t_sanitized() ? 40 : 150, 5000); n-- > 0;) {
        struct vv_trace_head head = {
            .magic = VV_TRACE_MAGIC, .format = VV_TRACE_FORMAT, .head_bytes = sizeof(head)};
        bool far = t_rng_below(&rng, 2);

        head.sum = vv_hash64(&head, offsetof(struct vv_trace_head, sum));
        file.n = 0;
        add(&file, &head, sizeof(head));
        add_texts(&file, &payload, &rng);
        add_records(&file, &payload, &rng, far);
        if (t_rng_below(&rng, 2)) {
            struct vv_trace_closing closing = {0, number(&rng), number(&rng)};
            add(&payload, &closing, sizeof(closing));
            add_block(&file, VV_TRACE_BLOCK_END, &payload);
        }
        read_all(&file);
    }
    free(file.v);
    free(payload.v);
}

/* More spans than a page may have. None can be joined, and they exceed the time of the run. */
static void nothing_to_join(void)
{
    struct span spans[64];
    struct lane lane = {.name = "x", .spans = spans, .nr = VV_ARRAY_SIZE(spans)};
    struct tracks tracks;

    for (size_t i = 0; i < lane.nr; i++)
        spans[i] = (struct span){.ns = UINT64_MAX, .busy_ns = UINT64_MAX, .count = 1};
    T_OK(tracks_make(&lane, 1, 1.8e10, 10, &tracks));
    T_EQ(tracks.nr_spans, lane.nr);
    tracks_fini(&tracks);
}

int main(void)
{
    T_RUN(nothing_to_join);
    T_RUN(any_records);
    return t_done();
}
