/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: commas, nesting, escapes and white space. */
#include "cli/common/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"

struct written {
    char *text;
    size_t size;
    struct json j;
};

static void begin(struct written *w, enum json_style style)
{
    w->j = json_begin(open_memstream(&w->text, &w->size), style);
    T_CHECK(w->j.f);
}

static void ends_as(struct written *w, const char *text)
{
    json_end(&w->j);
    fclose(w->j.f);
    T_CHECK(strcmp(w->text, text) == 0);
    free(w->text);
}

static void every_value(struct json *j)
{
    json_object(j, NULL);
    json_text(j, "text", "a\"b\\c\n");
    json_text(j, "none", NULL);
    json_uint(j, "uint", UINT64_MAX);
    json_int(j, "int", -1);
    json_real(j, "real", 0.1);
    json_real(j, "nan", (double)NAN);
    json_bool(j, "yes", true);
    json_null(j, "null");
    json_number(j, "number", "%.3f", 1.0);
    json_textf(j, "hex", "%02x", 10);
    json_close(j);
}

static void values(void)
{
    struct written w;

    begin(&w, JSON_COMPACT);
    every_value(&w.j);
    ends_as(&w, "{\"text\":\"a\\\"b\\\\c\\u000a\",\"none\":null,\"uint\":18446744073709551615,"
                "\"int\":-1,\"real\":0.1,\"nan\":null,\"yes\":true,\"null\":null,"
                "\"number\":1.000,\"hex\":\"0a\"}\n");
    begin(&w, JSON_SPACED);
    json_array(&w.j, NULL);
    json_int(&w.j, NULL, 1);
    json_object(&w.j, NULL);
    json_int(&w.j, "a", 2);
    json_int(&w.j, "b", 3);
    json_close(&w.j);
    json_close(&w.j);
    ends_as(&w, "[1, {\"a\": 2, \"b\": 3}]\n");
    begin(&w, JSON_IN_PAGE);
    json_text(&w.j, NULL, "</script>");
    ends_as(&w, "\"\\u003c/script\\u003e\"\n");
}

/* The outer object continues as if nothing had been nested. */
static void nesting(void)
{
    struct written w;

    begin(&w, JSON_COMPACT);
    json_object(&w.j, NULL);
    json_array(&w.j, "empty");
    json_close(&w.j);
    json_array(&w.j, "full");
    for (int i = 0; i < 2; i++) {
        json_object(&w.j, NULL);
        json_array(&w.j, "in");
        json_int(&w.j, NULL, i);
        json_close(&w.j);
        json_close(&w.j);
    }
    json_close(&w.j);
    json_object(&w.j, "last");
    json_close(&w.j);
    json_close(&w.j);
    ends_as(&w, "{\"empty\":[],\"full\":[{\"in\":[0]},{\"in\":[1]}],\"last\":{}}\n");
    begin(&w, JSON_COMPACT);
    for (int i = 0; i < 63; i++)
        json_array(&w.j, NULL);
    for (int i = 0; i < 63; i++)
        json_close(&w.j);
    json_end(&w.j);
    fclose(w.j.f);
    T_EQ(strlen(w.text), 2 * 63 + 1);
    free(w.text);
}

static void gaps(void)
{
    struct written w;

    begin(&w, JSON_SPACED);
    json_object(&w.j, NULL);
    json_array(&w.j, "rows");
    for (int i = 0; i < 2; i++) {
        json_gap(&w.j, "\n  ");
        json_int(&w.j, NULL, i);
    }
    json_gap(&w.j, "\n");
    json_close(&w.j);
    json_bool(&w.j, "ok", true);
    json_close(&w.j);
    ends_as(&w, "{\"rows\": [\n  0,\n  1\n], \"ok\": true}\n");
}

int main(void)
{
    T_RUN(values);
    T_RUN(nesting);
    T_RUN(gaps);
    return t_done();
}
