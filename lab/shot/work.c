/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads in memory: building them, and checking that they are consistent. */
#include "lab/shot/work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A version. One thread writes it, several times if it is discarded in between. */
struct entry {
    uint32_t hist;
    uint64_t version;
    uint64_t bytes;
    uint32_t owner;
    uint32_t line; /* of the first put */
    uint32_t puts;
    bool live; /* used while the operations of its thread are checked */
};

struct check {
    struct shot_work *work;
    struct entry *entries; /* sorted by history and version */
    size_t nr_entries;
    const char *name;
    char *err;
    size_t err_size;
};

void shot_script_fini(struct shot_script *script)
{
    if (!script)
        return;
    free(script->ops);
    *script = (struct shot_script){0};
}

void shot_work_fini(struct shot_work *work)
{
    if (!work)
        return;
    for (uint32_t t = 0; t < work->nr_threads; t++)
        shot_script_fini(&work->threads[t]);
    for (size_t i = 0; i < work->nr_settings; i++) {
        free(work->settings[i].name);
        free(work->settings[i].value);
    }
    free(work->hists);
    free(work->threads);
    free(work->settings);
    *work = (struct shot_work){0};
}

int shot_work_add_hist(struct shot_work *work, const struct shot_hist *hist)
{
    struct shot_hist *hists = realloc(work->hists, (work->nr_hists + 1) * sizeof(*hists));

    if (!hists)
        return -ENOMEM;
    work->hists = hists;
    hists[work->nr_hists++] = *hist;
    return 0;
}

int shot_work_add_thread(struct shot_work *work)
{
    struct shot_script *threads = realloc(work->threads, (work->nr_threads + 1) * sizeof(*threads));

    if (!threads)
        return -ENOMEM;
    work->threads = threads;
    threads[work->nr_threads++] = (struct shot_script){0};
    return 0;
}

int shot_script_add(struct shot_script *s, struct shot_op op)
{
    if (s->nr_ops == s->cap_ops) {
        size_t cap = s->cap_ops ? 2 * s->cap_ops : 256;
        struct shot_op *ops = realloc(s->ops, cap * sizeof(*ops));

        if (!ops)
            return -ENOMEM;
        s->ops = ops;
        s->cap_ops = cap;
    }
    s->ops[s->nr_ops++] = op;
    return 0;
}

/* ---- checking ---- */

VV_PRINTF(3, 4) static int fail(const struct check *c, uint32_t line, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (c->name)
        snprintf(c->err, c->err_size, "%s:%" PRIu32 ": %s", c->name, line, text);
    else
        snprintf(c->err, c->err_size, "%s", text);
    return -EINVAL;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->hist != y->hist)
        return x->hist < y->hist ? -1 : 1;
    return x->version < y->version ? -1 : x->version > y->version;
}

static struct entry *find_entry(const struct check *c, const struct shot_op *op)
{
    struct entry key = {.hist = op->hist, .version = op->version};

    return bsearch(&key, c->entries, c->nr_entries, sizeof(key), compare_entries);
}

static int collect_entries(struct check *c)
{
    size_t n = 0, unique = 0;

    for (uint32_t t = 0; t < c->work->nr_threads; t++)
        n += c->work->threads[t].nr_ops;
    c->entries = calloc(n + 1, sizeof(*c->entries));
    if (!c->entries)
        return -ENOMEM;
    n = 0;
    for (uint32_t t = 0; t < c->work->nr_threads; t++) {
        const struct shot_script *s = &c->work->threads[t];
        for (size_t i = 0; i < s->nr_ops; i++)
            if (s->ops[i].kind == SHOT_PUT)
                c->entries[n++] = (struct entry){.hist = s->ops[i].hist,
                                                 .version = s->ops[i].version,
                                                 .bytes = s->ops[i].bytes,
                                                 .owner = t,
                                                 .line = s->ops[i].line,
                                                 .puts = 1};
    }
    qsort(c->entries, n, sizeof(*c->entries), compare_entries);
    for (size_t i = 0; i < n; i++) {
        struct entry *e = &c->entries[i];
        if (unique == 0 || compare_entries(e, &c->entries[unique - 1]) != 0) {
            c->entries[unique++] = *e;
            continue;
        }
        if (e->owner != c->entries[unique - 1].owner)
            return fail(c, VV_MAX(e->line, c->entries[unique - 1].line),
                        "version %" PRIu64 " is put by two threads, expected one", e->version);
        c->entries[unique - 1].puts++;
    }
    c->nr_entries = unique;
    return 0;
}

static int check_put(struct check *c, struct shot_script *s, const struct shot_op *op,
                     uint64_t *live_bytes)
{
    struct entry *e = find_entry(c, op);

    if (e->live)
        return fail(c, op->line,
                    "version %" PRIu64 " is put again, expected a discard before: it exists",
                    op->version);
    e->live = true;
    e->bytes = op->bytes;
    s->nr_puts++;
    s->put_bytes += op->bytes;
    s->largest_bytes = VV_MAX(s->largest_bytes, op->bytes);
    *live_bytes += op->bytes;
    s->peak_live_bytes = VV_MAX(s->peak_live_bytes, *live_bytes);
    return 0;
}

/* A get or a discard. */
static int check_use(struct check *c, uint32_t thread, struct shot_op *op, uint64_t *live_bytes)
{
    struct shot_script *s = &c->work->threads[thread];
    struct entry *e = find_entry(c, op);
    const char *what = op->kind == SHOT_GET ? "restored" : "discarded";

    if (!e || (e->owner == thread && !e->live))
        return fail(c, op->line,
                    "version %" PRIu64 " is %s, expected a put before: it does not exist",
                    op->version, what);
    if (e->owner != thread && e->puts > 1)
        return fail(c, op->line,
                    "version %" PRIu64 " is %s, expected a single put: another thread writes it",
                    op->version, what);
    op->bytes = e->bytes;
    if (op->kind == SHOT_GET) {
        op->once = c->work->hists[op->hist].consume_once;
        s->nr_gets++;
        s->get_bytes += op->bytes;
        s->largest_bytes = VV_MAX(s->largest_bytes, op->bytes);
    }
    if (e->owner != thread) {
        s->foreign = true;
    } else if (op->kind == SHOT_DISCARD || op->once) {
        e->live = false;
        *live_bytes -= op->bytes;
    }
    return 0;
}

static int check_thread(struct check *c, uint32_t thread, size_t *ret_barriers)
{
    struct shot_script *s = &c->work->threads[thread];
    uint64_t live_bytes = 0;
    size_t barriers = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->nr_ops; i++) {
        struct shot_op *op = &s->ops[i];

        if (op->kind == SHOT_PUT)
            rc = check_put(c, s, op, &live_bytes);
        else if (op->kind == SHOT_GET || op->kind == SHOT_DISCARD)
            rc = check_use(c, thread, op, &live_bytes);
        else if (op->kind == SHOT_BARRIER)
            barriers++;
    }
    *ret_barriers = barriers;
    return rc;
}

int shot_work_settle(struct shot_work *work, const char *name, char *err, size_t err_size)
{
    struct check c = {.work = work, .name = name, .err = err, .err_size = err_size};
    size_t barriers = 0, first = 0;
    int rc = collect_entries(&c);

    work->peak_live_bytes = 0;
    for (uint32_t t = 0; rc == 0 && t < work->nr_threads; t++) {
        struct shot_script *s = &work->threads[t];

        rc = check_thread(&c, t, &barriers);
        work->peak_live_bytes += s->peak_live_bytes;
        if (t == 0)
            first = barriers;
        else if (rc == 0 && barriers != first)
            rc = fail(&c, s->nr_ops ? s->ops[s->nr_ops - 1].line : 0,
                      "thread %" PRIu32 " has %zu barriers, expected %zu as the first thread", t,
                      barriers, first);
    }
    free(c.entries);
    if (rc == -ENOMEM)
        snprintf(err, err_size, "out of memory");
    return rc;
}
