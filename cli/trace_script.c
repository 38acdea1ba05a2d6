/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve trace script: the calls of a run as a text that 'varve sim script' and 'varve bench script' run again
 * (docs/script.md), under other caches and policies if wanted.
 *
 * Two passes over the records: the first makes a list of calls by their start, with the data of each version; the
 * second prints it thread by thread, with the time between two calls as compute time. A trace does not have
 * everything. The script assumes:
 *
 *   - A version that was there before the trace is written first, and waited for.
 *   - A version that is written again was discarded, or consumed, before.
 *   - Prefetching begins with the compute time before the first restore of a history.
 *   - Threads that read versions of others become one thread, with calls in the order of their start: a script
 *     cannot express otherwise that one waits for the other.
 *   - Calls that failed are left out.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/cli.h"
#include "cli/common/options.h"
#include "cli/common/text.h"
#include "cli/trace_command.h"

#define COMMAND   "varve trace script"
#define NO_NUMBER SIZE_MAX

enum what { NOTHING, PUT, GET, WAIT, HINT, DISCARD };

struct event {
    enum what what;
    size_t thread, history; /* numbers in the lists below */
    uint64_t version, bytes;
    uint64_t start_ns, end_ns;
};

/* A version of a history. */
struct object {
    size_t history;
    uint64_t version, bytes;
    size_t writer;   /* the thread, or NO_NUMBER */
    size_t last_get; /* event */
    bool live, before;
};

struct script {
    const struct cli_trace *trace;
    struct event *events;
    size_t nr_events;
    uint32_t *threads; /* system threads that made calls */
    size_t *open;      /* for each, the event of the call under way, or NO_NUMBER */
    size_t nr_threads;
    uint64_t *histories;
    bool *started;
    size_t nr_histories;
    struct object *objects; /* by history and version */
    size_t nr_objects;
    bool once;   /* the last get of a version discards it */
    bool merged; /* all threads became one */
};

static void script_fini(struct script *s)
{
    free(s->events);
    free(s->threads);
    free(s->open);
    free(s->histories);
    free(s->started);
    free(s->objects);
}

static int script_alloc(struct script *s)
{
    size_t n = s->trace->file->nrecords + 1;

    s->events = calloc(n, sizeof(*s->events));
    s->threads = calloc(n, sizeof(*s->threads));
    s->open = calloc(n, sizeof(*s->open));
    s->histories = calloc(n, sizeof(*s->histories));
    s->started = calloc(n, sizeof(*s->started));
    s->objects = calloc(n, sizeof(*s->objects));
    return s->events && s->threads && s->open && s->histories && s->started && s->objects ? 0
                                                                                          : -ENOMEM;
}

/* ---- the list of calls ---- */

static size_t thread_of(struct script *s, uint32_t thread)
{
    for (size_t i = 0; i < s->nr_threads; i++)
        if (s->threads[i] == thread)
            return i;
    s->open[s->nr_threads] = NO_NUMBER;
    s->threads[s->nr_threads] = thread;
    return s->nr_threads++;
}

static size_t history_of(struct script *s, uint64_t history)
{
    for (size_t i = 0; i < s->nr_histories; i++)
        if (s->histories[i] == history)
            return i;
    s->histories[s->nr_histories] = history;
    return s->nr_histories++;
}

static enum what what_of_call(uint64_t call)
{
    switch (call) {
    case VV_TRACE_CALL_CHECKPOINT:
    case VV_TRACE_CALL_COMMIT:
        return PUT;
    case VV_TRACE_CALL_RESTORE:
    case VV_TRACE_CALL_ACQUIRE:
        return GET;
    case VV_TRACE_CALL_WAIT:
    case VV_TRACE_CALL_FLUSH:
        return WAIT;
    default:
        return NOTHING;
    }
}

static void begin_call(struct script *s, const struct vv_trace_record *r)
{
    size_t t = thread_of(s, r->thread);

    s->open[t] = s->nr_events;
    s->events[s->nr_events++] =
        (struct event){.thread = t, .start_ns = r->time_ns, .end_ns = r->time_ns};
}

static void end_call(struct script *s, const struct vv_trace_record *r)
{
    size_t t = thread_of(s, r->thread), open = s->open[t];
    struct event *e = open == NO_NUMBER ? NULL : &s->events[open];

    s->open[t] = NO_NUMBER;
    if (!e || (int64_t)r->arg[4] != 0)
        return;
    e->what = what_of_call(r->arg[0]);
    e->end_ns = r->time_ns;
    e->version = r->arg[2];
    e->bytes = r->arg[3];
    if (e->what != NOTHING)
        e->history = history_of(s, r->arg[1]);
    if ((e->what == PUT || e->what == GET) && e->bytes == 0)
        e->what = NOTHING;
}

/* Hints and discards. Those inside of a call come from the library. */
static void add_advice(struct script *s, const struct vv_trace_record *r)
{
    size_t t = thread_of(s, r->thread);

    if (s->open[t] != NO_NUMBER)
        return;
    s->events[s->nr_events++] = (struct event){.what = r->kind == VV_TRACE_HINT ? HINT : DISCARD,
                                               .thread = t,
                                               .history = history_of(s, r->arg[0]),
                                               .version = r->arg[1],
                                               .start_ns = r->time_ns,
                                               .end_ns = r->time_ns};
}

static void list_events(struct script *s)
{
    const struct vv_trace_file *f = s->trace->file;

    for (size_t i = 0; i < f->nrecords; i++) {
        const struct vv_trace_record *r = &f->records[i];

        if (r->kind == VV_TRACE_CALL_START)
            begin_call(s, r);
        else if (r->kind == VV_TRACE_CALL_END)
            end_call(s, r);
        else if (r->kind == VV_TRACE_HINT || r->kind == VV_TRACE_DISCARD)
            add_advice(s, r);
    }
}

/* ---- versions ---- */

static int by_name(const void *x, const void *y)
{
    const struct object *a = x, *b = y;

    if (a->history != b->history)
        return a->history < b->history ? -1 : 1;
    return a->version < b->version ? -1 : a->version > b->version;
}

static struct object *find_object(const struct script *s, const struct event *e)
{
    struct object key = {.history = e->history, .version = e->version};

    return bsearch(&key, s->objects, s->nr_objects, sizeof(key), by_name);
}

static void list_objects(struct script *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nr_events; i++) {
        const struct event *e = &s->events[i];
        if (e->what == PUT || e->what == GET)
            s->objects[n++] = (struct object){.history = e->history,
                                              .version = e->version,
                                              .bytes = e->bytes,
                                              .writer = NO_NUMBER,
                                              .last_get = NO_NUMBER};
    }
    qsort(s->objects, n, sizeof(*s->objects), by_name);
    for (size_t i = 0; i < n; i++)
        if (s->nr_objects == 0 || by_name(&s->objects[s->nr_objects - 1], &s->objects[i]) != 0)
            s->objects[s->nr_objects++] = s->objects[i];
    for (size_t i = 0; i < s->nr_events; i++) {
        struct event *e = &s->events[i];
        struct object *o = e->what == NOTHING || e->what == WAIT ? NULL : find_object(s, e);

        if (!o || e->what == HINT)
            continue;
        if (o->writer == NO_NUMBER) {
            o->writer = e->thread;
            o->before = e->what != PUT;
            o->bytes = e->bytes ? e->bytes : o->bytes;
        }
        if (o->writer != e->thread)
            s->merged = true;
        if (e->what == GET)
            o->last_get = i;
    }
}

/* ---- printing ---- */

/* The settings of the first context that has tiers: a script has one context. */
static void print_tiers(const struct vv_trace_file *f, uint32_t context)
{
    bool device = false;

    for (unsigned t = 0; t < 8; t++) {
        char key[32];
        const char *kind, *bytes;

        snprintf(key, sizeof(key), "tier.%u", t);
        kind = vv_trace_file_meta(f, context, key);
        snprintf(key, sizeof(key), "tier.%u.bytes", t);
        bytes = vv_trace_file_meta(f, context, key);
        if (!kind || !bytes)
            break;
        if (strcmp(kind, "device") == 0 || strcmp(kind, "host") == 0)
            printf("set %s-cache %" PRIu64 "\n", kind, (uint64_t)strtoull(bytes, NULL, 10));
        device |= strcmp(kind, "device") == 0;
    }
    if (!device)
        printf("set device none\n");
}

/* Rates that were set, or else measured. A hop that was never used has no rate, and gets that of its other
 * direction. */
static void print_rates(const struct vv_trace_file *f, uint32_t context)
{
    static const char *const hops[] = {"d2d", "h2h", "d2h", "h2d", "h2f", "f2h"};
    static const unsigned other[] = {1, 0, 3, 2, 5, 4};
    const char *configured = vv_trace_file_meta(f, context, "config.rate"), *space = "set rate ";
    uint64_t bps[VV_ARRAY_SIZE(hops)] = {0};

    for (unsigned h = 0; h < VV_ARRAY_SIZE(hops); h++) {
        char key[32], name[8];
        const char *text, *set;

        snprintf(key, sizeof(key), "rate.%s", hops[h]);
        snprintf(name, sizeof(name), "%s=", hops[h]);
        text = vv_trace_file_meta(f, context, key);
        set = configured ? strstr(configured, name) : NULL;
        if (set)
            bps[h] = strtoull(set + strlen(name), NULL, 10);
        else if (text)
            bps[h] = strtoull(text, NULL, 10);
    }
    for (unsigned h = 0; h < VV_ARRAY_SIZE(hops); h++) {
        uint64_t rate = bps[h] ? bps[h] : bps[other[h]];
        if (rate == 0)
            continue;
        printf("%s%s=%" PRIu64, space, hops[h], rate);
        space = ",";
    }
    if (*space == ',')
        putchar('\n');
}

static void print_settings(const struct vv_trace_file *f)
{
    static const char *const words[] = {"next", "score", "score-now", "fifo", "lru"};
    uint32_t context = 0;
    const char *policy, *level;

    for (size_t i = 0; i < f->npairs && !context; i++)
        if (!f->pairs[i].note && strcmp(f->pairs[i].key, "tier.0") == 0)
            context = f->pairs[i].context;
    if (!context)
        return;
    print_tiers(f, context);
    print_rates(f, context);
    policy = vv_trace_file_meta(f, context, "config.policy");
    for (size_t i = 0; policy && i < VV_ARRAY_SIZE(words); i++)
        if (strcmp(policy, words[i]) == 0)
            printf("set policy %s\n", policy);
    level = vv_trace_file_meta(f, context, "config.level");
    if (level && strcmp(level, "cached") != 0)
        printf("set level local\n");
}

static const char *name_of(const struct vv_timeline *t, uint64_t history)
{
    for (size_t i = 0; i < t->nhistories; i++)
        if (t->histories[i].history == history)
            return t->histories[i].name;
    return "?";
}

static void print_histories(const struct script *s)
{
    for (size_t i = 0; i < s->nr_histories; i++) {
        printf("history h%zu # ", i);
        text_plain(stdout, name_of(s->trace->timeline, s->histories[i]));
        putchar('\n');
    }
}

static void print_compute(uint64_t from_ns, uint64_t to_ns)
{
    if (to_ns > from_ns)
        printf("compute %" PRIu64 "ns\n", to_ns - from_ns);
}

static void print_version(const char *word, const struct event *e)
{
    printf("%s h%zu:%" PRIu64, word, e->history, e->version);
}

static void print_put(const struct event *e, struct object *o)
{
    if (o->live) {
        print_version("discard", e);
        putchar('\n');
    }
    o->live = true;
    print_version("put", e);
    printf(" %" PRIu64 "\n", e->bytes);
}

static void print_event(const struct script *s, const struct event *e)
{
    struct object *o = find_object(s, e);

    if (e->what == PUT) {
        print_put(e, o);
    } else if (e->what == GET) {
        print_version("get", e);
        putchar('\n');
        if (s->once && o->last_get == (size_t)(e - s->events)) {
            print_version("discard", e);
            putchar('\n');
            o->live = false;
        }
    } else if (e->what == WAIT) {
        printf("wait h%zu\n", e->history);
    } else if (e->what == HINT) {
        print_version("hint", e);
        putchar('\n');
    } else if (e->what == DISCARD && o && o->live) {
        print_version("discard", e);
        putchar('\n');
        o->live = false;
    }
}

/* Versions that this thread uses and that were there before the trace. */
static void print_before(struct script *s, size_t thread)
{
    size_t history = NO_NUMBER;

    for (size_t i = 0; i < s->nr_objects; i++) {
        struct object *o = &s->objects[i];

        if (!o->before || (!s->merged && o->writer != thread))
            continue;
        if (history != NO_NUMBER && history != o->history)
            printf("wait h%zu\n", history);
        history = o->history;
        o->live = true;
        printf("put h%zu:%" PRIu64 " %" PRIu64 "\n", o->history, o->version, o->bytes);
    }
    if (history != NO_NUMBER)
        printf("wait h%zu\n", history);
}

static bool is_of(const struct script *s, const struct event *e, size_t thread)
{
    return e->what != NOTHING && (s->merged || e->thread == thread);
}

static void print_thread(struct script *s, size_t thread)
{
    uint64_t at_ns = 0;

    print_before(s, thread);
    for (size_t i = 0; i < s->nr_events; i++) {
        const struct event *e = &s->events[i];

        if (!is_of(s, e, thread))
            continue;
        if (e->what == GET && !s->started[e->history]) {
            s->started[e->history] = true;
            printf("start h%zu\n", e->history);
        }
        if (at_ns)
            print_compute(at_ns, e->start_ns);
        print_event(s, e);
        at_ns = VV_MAX(at_ns, e->end_ns);
    }
}

static bool has_events(const struct script *s, size_t thread)
{
    for (size_t i = 0; i < s->nr_events; i++)
        if (is_of(s, &s->events[i], thread))
            return true;
    return false;
}

static int print_script(struct script *s)
{
    if (s->nr_objects == 0) {
        fprintf(stderr, COMMAND ": the trace has no checkpoint and no restore\n");
        return CLI_FAILED;
    }
    print_settings(s->trace->file);
    print_histories(s);
    for (size_t t = 0; t < (s->merged ? 1 : s->nr_threads); t++) {
        if (!has_events(s, t))
            continue;
        printf("thread\n");
        print_thread(s, t);
    }
    return fflush(stdout) || ferror(stdout) ? CLI_FAILED : CLI_OK;
}

/* ---- the command ---- */

struct script_opts {
    bool once;
};

static const struct opt options[] = {
    {OPT_FLAG, .name = "once", .at = offsetof(struct script_opts, once),
     .help = "the last restore of a version discards it: the trace does not say"},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[--once] FILE",
    .about =
        "Prints the calls of a run as a script, for 'varve sim script' and 'varve bench script'.",
    .operands = true,
    .list = options,
    .nr = VV_ARRAY_SIZE(options),
};

int cli_trace_script(int argc, char **argv)
{
    struct script_opts o = {0};
    struct cli_trace t;
    struct script s = {.trace = &t};
    int first, status = opts_parse(&command, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    if (first + 1 != argc) {
        fprintf(stderr, COMMAND ": expected the name of one trace; see --help\n");
        return CLI_USAGE;
    }
    status = cli_trace_open(COMMAND, argv[first], &t);
    if (status)
        return status;
    s.once = o.once;
    status = CLI_FAILED;
    if (script_alloc(&s) < 0) {
        fprintf(stderr, COMMAND ": out of memory\n");
    } else {
        list_events(&s);
        list_objects(&s);
        status = print_script(&s);
    }
    script_fini(&s);
    cli_trace_close(&t);
    return status;
}
