/* SPDX-License-Identifier: Apache-2.0 */
/* Exporters: names that would break JSON, XML or CSV, many spans, and streams that fail. tests/cli/trace.sh checks
 * the formats on a real trace. */
#include "cli/report/trace_export.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/common/text.h"
#include "t.h"
#include "trace/format.h"

enum { MANY = 20000 };

/* The text that a function writes; to be freed. */
static char *written(void (*fn)(FILE *f, const char *s), const char *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    fn(f, s);
    T_EQ(fclose(f), 0);
    T_EQ(strlen(text), size);
    return text;
}

static void expect(void (*fn)(FILE *f, const char *s), const char *s, const char *want)
{
    char *text = written(fn, s);

    T_STREQ(text, want);
    free(text);
}

static void texts(void)
{
#define BAD "\xef\xbf\xbd"
    expect(text_json, "", "\"\"");
    expect(text_json, "a\"b\\c\n\x7f", "\"a\\\"b\\\\c\\u000a\\u007f\"");
    expect(text_json, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
           "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    expect(text_json, "x\xff", "\"x" BAD "\"");
    expect(text_json, "\xc3", "\"" BAD "\"");                         /* cut off */
    expect(text_json, "\xc0\xaf", "\"" BAD BAD "\"");                 /* overlong */
    expect(text_json, "\xed\xa0\x80", "\"" BAD BAD BAD "\"");         /* a surrogate */
    expect(text_json, "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""); /* beyond Unicode */
    expect(text_xml, "<a b=\"c\">'&\x01\x7f\xfe", "&lt;a b=&quot;c&quot;&gt;&#39;&amp;  " BAD);
    expect(text_csv, "plain", "plain");
    expect(text_csv, "a,b", "\"a,b\"");
    expect(text_csv, "a\"b\nc", "\"a\"\"b\nc\"");
}

struct trace {
    struct vv_trace_file *f;
    struct vv_timeline *t;
    struct vv_trace_record *records;
};

/* One thread with n phases and copies under difficult names. */
static struct trace make(size_t n)
{
    struct vv_trace_head head = {.magic = VV_TRACE_MAGIC, .format = VV_TRACE_FORMAT};
    struct trace tr;
    char err[256];

    T_OK(vv_trace_file_parse(&head, sizeof(head), err, sizeof(err), &tr.f));
    tr.records = calloc(4 * n + 1, sizeof(*tr.records));
    T_CHECK(tr.records);
    for (size_t i = 0; i < 4 * n; i++) {
        static const uint32_t kinds[] = {VV_TRACE_PHASE_BEGIN, VV_TRACE_COPY_START,
                                         VV_TRACE_COPY_END, VV_TRACE_PHASE_END};
        tr.records[i] = (struct vv_trace_record){.seq = i,
                                                 .time_ns = 1000 + 7 * i,
                                                 .kind = kinds[i % 4],
                                                 .thread = 1,
                                                 .arg = {VV_TRACE_ROUTE(2, 0, 1), 0, i / 4}};
    }
    tr.f->records = tr.records;
    tr.f->nrecords = 4 * n;
    tr.f->begin_ns = 1000;
    tr.f->end_ns = 1000 + 7 * (n ? 4 * n - 1 : 0);
    tr.f->complete = true;
    T_OK(vv_timeline_new(tr.f, &tr.t));
    return tr;
}

static void forget(struct trace tr)
{
    vv_timeline_free(tr.t);
    vv_trace_file_free(tr.f);
    free(tr.records);
}

static int svg_all(FILE *f, const struct vv_timeline *t)
{
    return trace_export_svg(f, t, 0, 0);
}

static int csv_spans(FILE *f, const struct vv_timeline *t)
{
    return trace_export_csv(f, t, TRACE_TABLE_SPANS);
}

static int csv_records(FILE *f, const struct vv_timeline *t)
{
    return trace_export_csv(f, t, TRACE_TABLE_RECORDS);
}

static int (*const exporters[])(FILE *f, const struct vv_timeline *t) = {
    trace_export_chrome, svg_all, csv_spans, csv_records};

static char *export_text(int (*fn)(FILE *f, const struct vv_timeline *t),
                         const struct vv_timeline *t, size_t *ret_size)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, ret_size);

    T_CHECK(f);
    T_OK(fn(f, t));
    T_EQ(fclose(f), 0);
    return text;
}

/* For any number of events, a browser can show the picture. */
static void a_large_one_is_small(void)
{
    struct trace tr = make(MANY);
    size_t size;
    char *text = export_text(svg_all, tr.t, &size);

    T_CHECK(size < 200000);
    T_CHECK(strstr(text, "</svg>\n"));
    free(text);
    text = export_text(csv_spans, tr.t, &size);
    size_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    /* A phase, the computing in it, and a gap between two; the last has nothing behind it. */
    T_CHECK(lines >= 1 + 3 * MANY && lines <= 1 + 4 * MANY);
    free(text);
    forget(tr);
}

static void nothing_is_fine(void)
{
    struct trace tr = make(0);

    for (size_t i = 0; i < VV_ARRAY_SIZE(exporters); i++) {
        size_t size;
        char *text = export_text(exporters[i], tr.t, &size);
        T_CHECK(size > 0);
        free(text);
    }
    forget(tr);
}

static void failures_are_told(void)
{
    struct trace tr = make(100);
    FILE *f = fopen("/dev/full", "w");

    if (!f)
        T_SKIP("no /dev/full");
    for (size_t i = 0; i < VV_ARRAY_SIZE(exporters); i++) {
        T_ERR(exporters[i](f, tr.t), -EIO);
        clearerr(f);
    }
    (void)fclose(f);
    forget(tr);
}

/* Parts of a picture, with valid and invalid times. */
static void parts(void)
{
    struct trace tr = make(50);
    const uint64_t times[] = {0, 1, 7, tr.t->length_ns - 1, tr.t->length_ns, UINT64_MAX};

    for (size_t i = 0; i < VV_ARRAY_SIZE(times); i++) {
        for (size_t k = 0; k < VV_ARRAY_SIZE(times); k++) {
            char *text = NULL;
            size_t size = 0;
            FILE *f = open_memstream(&text, &size);
            T_CHECK(f);
            T_OK(trace_export_svg(f, tr.t, times[i], times[k]));
            T_EQ(fclose(f), 0);
            T_CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
            free(text);
        }
    }
    forget(tr);
}

int main(void)
{
    T_RUN(texts);
    T_RUN(nothing_is_fine);
    T_RUN(a_large_one_is_small);
    T_RUN(parts);
    T_RUN(failures_are_told);
    return t_done();
}
