/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads as text: one statement a line, words separated by blanks, # begins a comment. The table of
 * statements below is the grammar; docs/script.md explains it.
 *
 * One pass. Histories and settings come before the first operation, so that every name is known when it is
 * used. Conditions over several lines are checked at the end, by shot_work_settle().
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

#include "base/bytes.h"
#include "cli/common/options.h"
#include "lab/shot/work.h"

#define BLANKS     " \t\r\n"
#define HINTS_LINE 16 /* versions printed on one line */
#define ORDERS     "hints|fifo|lifo"

struct reader {
    struct shot_work work;
    const char *name;
    uint32_t line;
    bool begun; /* an operation has been read */
    char *rest; /* of the line */
    char *err;
    size_t err_size;
};

VV_PRINTF(2, 3) static int fail(const struct reader *r, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(r->err, r->err_size, "%s:%" PRIu32 ": %s", r->name, r->line, text);
    return -EINVAL;
}

/* NULL: the line is over. */
static char *next_word(struct reader *r)
{
    char *word = r->rest + strspn(r->rest, BLANKS);
    size_t len = strcspn(word, BLANKS);

    if (len == 0)
        return NULL;
    r->rest = word + len;
    if (*r->rest)
        *r->rest++ = '\0';
    return word;
}

static int end_line(struct reader *r)
{
    const char *word = next_word(r);

    return word ? fail(r, "'%s' is one word too many, expected the end of the line", word) : 0;
}

/* ---- values ---- */

static bool is_name(const char *s, size_t len)
{
    if (len == 0 || len >= SHOT_NAME_BYTES || !(isalpha((unsigned char)s[0]) || s[0] == '_'))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '_' && s[i] != '-')
            return false;
    return true;
}

static int find_hist(struct reader *r, const char *name, size_t len, uint32_t *ret_hist)
{
    for (uint32_t i = 0; i < r->work.nr_hists; i++)
        if (strlen(r->work.hists[i].name) == len && memcmp(r->work.hists[i].name, name, len) == 0) {
            *ret_hist = i;
            return 0;
        }
    return fail(r, "there is no history '%.*s', expected one that was declared", (int)len, name);
}

static int parse_number(struct reader *r, const char *text, const char *whole, uint64_t *ret_value)
{
    if (opts_number(text, 0, SHOT_MAX_VERSION, ret_value) == 0)
        return 0;
    return fail(r, "'%s' is not a version, expected a number such as 12 or a history's, h:12",
                whole);
}

/* "12", "h:12" and, if ret_last is not NULL, "h:12..3". */
static int parse_version(struct reader *r, const char *word, uint32_t *ret_hist,
                         uint64_t *ret_version, uint64_t *ret_last)
{
    const char *colon = strchr(word, ':');
    char text[64], *dots;
    int rc;

    *ret_hist = 0;
    if (colon) {
        rc = find_hist(r, word, (size_t)(colon - word), ret_hist);
        if (rc < 0)
            return rc;
    }
    snprintf(text, sizeof(text), "%s", colon ? colon + 1 : word);
    dots = strstr(text, "..");
    if (dots && ret_last)
        *dots = '\0';
    rc = parse_number(r, text, word, ret_version);
    if (rc == 0 && ret_last)
        rc = dots ? parse_number(r, dots + 2, word, ret_last) : (*ret_last = *ret_version, 0);
    return rc;
}

static int parse_time(struct reader *r, const char *word, uint64_t *ret_ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double value = strtod(word, &end);

    for (size_t i = 0; i < VV_ARRAY_SIZE(units) && end != word && isdigit((unsigned char)*word);
         i++)
        if (strcmp(end, units[i].unit) == 0 && value * units[i].ns < 1e18) {
            *ret_ns = (uint64_t)llround(value * units[i].ns);
            return 0;
        }
    return fail(r, "'%s' is not a time, expected one such as 10ms, 1.5s, 20us or 300ns", word);
}

/* ---- statements ---- */

static int add(struct reader *r, struct shot_op op)
{
    int rc = 0;

    op.line = r->line;
    if (!r->begun && r->work.nr_hists == 0)
        rc = shot_work_add_hist(&r->work, &(struct shot_hist){.name = "main"});
    if (rc == 0 && r->work.nr_threads == 0)
        rc = shot_work_add_thread(&r->work);
    r->begun = true;
    return rc == 0 ? shot_script_add(&r->work.threads[r->work.nr_threads - 1], op) : rc;
}

/* Versions without the name of a history belong to the first one. */
static int first_hist(struct reader *r)
{
    if (r->work.nr_hists)
        return 0;
    return shot_work_add_hist(&r->work, &(struct shot_hist){.name = "main"});
}

static int read_history(struct reader *r)
{
    const char *word = next_word(r);
    struct shot_hist hist = {0};
    char err[1] = "";
    struct reader quiet = *r;
    uint32_t other;

    if (!word || !is_name(word, strlen(word)))
        return fail(r, "'%s' is not a name, expected letters, digits, - and _ (31 at most)",
                    word ? word : "");
    if (r->begun)
        return fail(r, "history '%s' comes late, expected before the first operation", word);
    quiet.err = err;
    quiet.err_size = sizeof(err);
    if (find_hist(&quiet, word, strlen(word), &other) == 0)
        return fail(r, "history '%s' is declared twice, expected another name", word);
    if (r->work.nr_hists == SHOT_MAX_HISTS)
        return fail(r, "too many histories, expected %d at most", SHOT_MAX_HISTS);
    snprintf(hist.name, sizeof(hist.name), "%s", word);
    while ((word = next_word(r))) {
        int order = opts_word(ORDERS, word);
        if (order >= 0)
            hist.order = order;
        else if (strcmp(word, "once") == 0 || strcmp(word, "keep") == 0)
            hist.consume_once = word[0] == 'o';
        else
            return fail(r, "'%s' is not known of a history, expected once, keep, fifo or lifo",
                        word);
    }
    return shot_work_add_hist(&r->work, &hist);
}

static int read_thread(struct reader *r)
{
    if (r->work.nr_threads == SHOT_MAX_THREADS)
        return fail(r, "too many threads, expected %d at most", SHOT_MAX_THREADS);
    r->begun = true;
    return first_hist(r) < 0 ? -ENOMEM : shot_work_add_thread(&r->work);
}

static int read_set(struct reader *r)
{
    const char *name = next_word(r), *value = next_word(r);
    struct shot_setting *settings;
    struct shot_setting setting = {.line = r->line};

    if (!name)
        return fail(r, "set lacks a name, expected an option such as host-cache, and its value");
    if (r->begun)
        return fail(r, "set %s comes late, expected before the first operation", name);
    settings = realloc(r->work.settings, (r->work.nr_settings + 1) * sizeof(*settings));
    if (!settings)
        return -ENOMEM;
    r->work.settings = settings;
    if (asprintf(&setting.name, "--%s", name) < 0)
        return -ENOMEM;
    setting.value = value ? strdup(value) : NULL;
    settings[r->work.nr_settings++] = setting;
    return value && !setting.value ? -ENOMEM : 0;
}

static int read_put(struct reader *r)
{
    const char *version = next_word(r), *size = next_word(r);
    struct shot_op op = {.kind = SHOT_PUT};
    int rc;

    if (!version || !size)
        return fail(r, "put lacks a %s, expected put VERSION SIZE", version ? "size" : "version");
    rc = first_hist(r);
    if (rc == 0)
        rc = parse_version(r, version, &op.hist, &op.version, NULL);
    if (rc < 0)
        return rc;
    if (vv_bytes_parse(size, &op.bytes) < 0 || op.bytes == 0 || op.bytes > UINT64_C(1) << 50)
        return fail(r, "'%s' is not a size, expected one such as 4096, 64K, 8M or 1.5G", size);
    return add(r, op);
}

static int read_get(struct reader *r)
{
    const char *version = next_word(r);
    struct shot_op op = {.kind = SHOT_GET};
    int rc;

    if (!version)
        return fail(r, "get lacks a version, expected get VERSION");
    rc = first_hist(r);
    if (rc == 0)
        rc = parse_version(r, version, &op.hist, &op.version, NULL);
    return rc == 0 ? add(r, op) : rc;
}

/* Hints and discards: versions and ranges of them. */
static int read_versions(struct reader *r, enum shot_op_kind kind)
{
    const char *word = next_word(r);
    int rc = first_hist(r);

    if (!word)
        return fail(r, "a version is missing, expected one such as 12, h:12 or 12..3");
    for (; rc == 0 && word; word = next_word(r)) {
        struct shot_op op = {.kind = kind};
        uint64_t last;

        rc = parse_version(r, word, &op.hist, &op.version, &last);
        if (rc == 0)
            rc = add(r, op);
        while (rc == 0 && op.version != last) {
            op.version += op.version < last ? 1 : UINT64_MAX;
            rc = add(r, op);
        }
    }
    return rc;
}

static int read_hint(struct reader *r)
{
    return read_versions(r, SHOT_HINT);
}

static int read_discard(struct reader *r)
{
    return read_versions(r, SHOT_DISCARD);
}

static int read_compute(struct reader *r)
{
    const char *word = next_word(r);
    struct shot_op op = {.kind = SHOT_COMPUTE};
    int rc;

    if (!word)
        return fail(r, "compute lacks a time, expected one such as 10ms");
    rc = parse_time(r, word, &op.ns);
    return rc == 0 ? add(r, op) : rc;
}

/* Waits and starts: a history, or the first. */
static int read_of_history(struct reader *r, enum shot_op_kind kind)
{
    const char *word = next_word(r);
    struct shot_op op = {.kind = kind};
    int rc = word ? find_hist(r, word, strlen(word), &op.hist) : 0;

    return rc == 0 ? add(r, op) : rc;
}

static int read_wait(struct reader *r)
{
    return read_of_history(r, SHOT_WAIT_FLUSH);
}

static int read_start(struct reader *r)
{
    return read_of_history(r, SHOT_START);
}

static int read_barrier(struct reader *r)
{
    return add(r, (struct shot_op){.kind = SHOT_BARRIER});
}

static const struct {
    const char *word;
    int (*read)(struct reader *r);
} statements[] = {
    {"set", read_set},         {"history", read_history}, {"thread", read_thread},
    {"put", read_put},         {"get", read_get},         {"hint", read_hint},
    {"discard", read_discard}, {"compute", read_compute}, {"wait", read_wait},
    {"start", read_start},     {"barrier", read_barrier},
};

static int read_line(struct reader *r, char *line)
{
    const char *word;

    r->rest = line;
    line[strcspn(line, "#")] = '\0';
    word = next_word(r);
    if (!word)
        return 0;
    for (size_t i = 0; i < VV_ARRAY_SIZE(statements); i++)
        if (strcmp(statements[i].word, word) == 0) {
            int rc = statements[i].read(r);
            return rc == 0 ? end_line(r) : rc;
        }
    return fail(r,
                "'%s' is not a statement, expected put, get, hint, discard, compute, wait, start, "
                "barrier, thread, history or set",
                word);
}

int shot_work_read(FILE *f, const char *name, char *err, size_t err_size,
                   struct shot_work *ret_work)
{
    struct reader r = {.name = name, .err = err, .err_size = err_size};
    char *line = NULL;
    size_t size = 0;
    int rc = 0;

    err[0] = '\0';
    while (rc == 0 && getline(&line, &size, f) >= 0) {
        r.line++;
        rc = read_line(&r, line);
    }
    free(line);
    if (rc == 0 && ferror(f))
        rc = -EIO;
    if (rc == 0 && r.work.nr_threads == 0) {
        r.line++;
        rc = fail(&r, "the script does nothing, expected an operation such as put 0 8M");
    }
    if (rc == 0)
        rc = shot_work_settle(&r.work, name, err, err_size);
    if (rc < 0 && !err[0])
        snprintf(err, err_size, "%s: %s", name, strerror(-rc));
    if (rc < 0)
        shot_work_fini(&r.work);
    else
        *ret_work = r.work;
    return rc;
}

/* ---- printing ---- */

static void print_version(FILE *f, const struct shot_work *w, const struct shot_op *op)
{
    if (w->nr_hists > 1)
        fprintf(f, " %s:%" PRIu64, w->hists[op->hist].name, op->version);
    else
        fprintf(f, " %" PRIu64, op->version);
}

static void print_time(FILE *f, uint64_t ns)
{
    if (ns % 1000000 == 0)
        fprintf(f, "compute %" PRIu64 "ms", ns / 1000000);
    else if (ns % 1000 == 0)
        fprintf(f, "compute %" PRIu64 "us", ns / 1000);
    else
        fprintf(f, "compute %" PRIu64 "ns", ns);
}

/* Successive hints share a line. Returns the number of operations printed. */
static size_t print_op(FILE *f, const struct shot_work *w, const struct shot_script *s, size_t i)
{
    const struct shot_op *op = &s->ops[i];
    char text[VV_BYTES_TEXT];
    size_t n = 1;

    switch (op->kind) {
    case SHOT_COMPUTE:
        print_time(f, op->ns);
        break;
    case SHOT_BARRIER:
        fprintf(f, "barrier");
        break;
    case SHOT_HINT:
        fprintf(f, "hint");
        for (n = 0; n < HINTS_LINE && i + n < s->nr_ops && op[n].kind == SHOT_HINT; n++)
            print_version(f, w, &op[n]);
        break;
    case SHOT_PUT:
        fprintf(f, "put");
        print_version(f, w, op);
        fprintf(f, " %s", vv_bytes_format(op->bytes, text, sizeof(text)));
        break;
    case SHOT_GET:
    case SHOT_DISCARD:
        fprintf(f, "%s", op->kind == SHOT_GET ? "get" : "discard");
        print_version(f, w, op);
        break;
    case SHOT_WAIT_FLUSH:
    case SHOT_START:
        fprintf(f, "%s", op->kind == SHOT_START ? "start" : "wait");
        if (w->nr_hists > 1)
            fprintf(f, " %s", w->hists[op->hist].name);
        break;
    }
    fputc('\n', f);
    return n;
}

void shot_work_print(FILE *f, const struct shot_work *w)
{
    static const char *const orders[] = {
        [VARVE_ORDER_HINTS] = "", [VARVE_ORDER_FIFO] = " fifo", [VARVE_ORDER_LIFO] = " lifo"};

    for (size_t i = 0; i < w->nr_settings; i++)
        fprintf(f, "set %s%s%s\n", w->settings[i].name + 2, w->settings[i].value ? " " : "",
                w->settings[i].value ? w->settings[i].value : "");
    for (uint32_t h = 0; h < w->nr_hists; h++)
        fprintf(f, "history %s %s%s\n", w->hists[h].name,
                w->hists[h].consume_once ? "once" : "keep", orders[w->hists[h].order]);
    for (uint32_t t = 0; t < w->nr_threads; t++) {
        const struct shot_script *s = &w->threads[t];

        if (w->nr_threads > 1)
            fprintf(f, "thread\n");
        for (size_t i = 0; i < s->nr_ops;)
            i += print_op(f, w, s, i);
    }
}
