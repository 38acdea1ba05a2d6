/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of `varve top`, as rows of text. All rows fit 80 columns; in a narrower window they are cut at the
 * end. The reader has cleaned the texts of a page, so they cannot move the cursor.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/top.h"

enum { BAR_MAX = 60, ROW_MAX = 1024 };

void top_text_free(struct top_text *t)
{
    free(t->data);
    t->data = NULL;
    t->bytes = t->cap = t->rows = 0;
}

static void append(struct top_text *t, const char *s, size_t n)
{
    if (t->bytes + n + 1 > t->cap) {
        size_t cap = VV_MAX(2 * t->cap, t->bytes + n + 4096);
        char *more = realloc(t->data, cap);
        if (!more) {
            t->failed = true;
            return;
        }
        t->data = more;
        t->cap = cap;
    }
    memcpy(t->data + t->bytes, s, n);
    t->bytes += n;
    t->data[t->bytes] = '\0';
}

/* The bytes of the first `width` characters; every character counts as one column. */
static size_t fitting(const char *s, unsigned width)
{
    size_t n = 0;

    for (unsigned seen = 0; s[n]; n++)
        if (((unsigned char)s[n] & 0xc0) != 0x80 && seen++ == width)
            break;
    return n;
}

static void row(struct top_text *t, const char *text, bool heading)
{
    size_t n = fitting(text, t->width);

    while (n > 0 && text[n - 1] == ' ')
        n--;
    if (t->rows++)
        append(t, "\n", 1);
    if (heading && t->bold)
        append(t, "\033[1m", 4);
    append(t, text, n);
    if (heading && t->bold)
        append(t, "\033[0m", 4);
}

void top_row(struct top_text *t, const char *fmt, ...)
{
    char text[ROW_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    row(t, text, false);
}

static VV_PRINTF(2, 3) void heading(struct top_text *t, const char *fmt, ...)
{
    char text[ROW_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    row(t, text, true);
}

/* ---- words ---- */

static const char *human(uint64_t bytes, char buf[VV_BYTES_TEXT])
{
    return bytes ? vv_bytes_human(bytes, buf, VV_BYTES_TEXT) : "-";
}

static const char *rate(uint64_t bytes, uint64_t ns, char buf[24])
{
    double x = ns ? (double)bytes / (double)ns * 1e9 : 0;

    if (x < 1)
        return "-";
    if (x < 1e6)
        snprintf(buf, 24, "%.1f kB/s", x * 1e-3);
    else if (x < 1e9)
        snprintf(buf, 24, "%.1f MB/s", x * 1e-6);
    else
        snprintf(buf, 24, "%.2f GB/s", x * 1e-9);
    return buf;
}

/* More than 100% if several threads are blocked at once. */
static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *span(uint64_t ns, char buf[32])
{
    uint64_t s = ns / VV_NS_PER_S;

    if (s < 60)
        snprintf(buf, 32, "%.1f s", (double)ns * 1e-9);
    else if (s < 86400)
        snprintf(buf, 32, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%" PRIu64 " d %" PRIu64 ":%02" PRIu64, s / 86400, s / 3600 % 24,
                 s / 60 % 60);
    return buf;
}

static uint64_t since(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* The state of the process, if something is wrong. */
static const char *state_of(const struct vv_stats_page *p, char buf[80])
{
    uint64_t age = since(p->record.time_ns, vv_now_ns());
    char text[32];

    if (p->owner == VV_STATS_DEAD)
        return "ENDED";
    /* It cannot write: it is stopped or swapped out, or the machine is overloaded. */
    if (age > 20 * p->header.interval_ns && age > VV_NS_PER_S) {
        snprintf(buf, 80, "silent for %s", span(age, text));
        return buf;
    }
    return p->record.state == VV_STATS_CLOSING  ? "closing"
           : p->record.state == VV_STATS_CLOSED ? "closed"
                                                : "";
}

/* ---- one process ---- */

static void show_tiers(struct top_text *t, const struct vv_stats_record *r)
{
    unsigned width = t->width > 66 + BAR_MAX ? BAR_MAX : t->width > 76 ? t->width - 66 : 10;
    char bar[BAR_MAX + 1], used[VV_BYTES_TEXT], size[VV_BYTES_TEXT], dirty[VV_BYTES_TEXT],
        spare[VV_BYTES_TEXT];

    heading(t, "%-7s%*s%5s%11s%11s%11s%11s%8s", "TIER", (int)width + 2, "", "", "USED", "SIZE",
            "DIRTY", "MAY GO", "COPIES");
    for (uint32_t i = 0; i < r->ntiers; i++) {
        const struct vv_stats_tier *tier = &r->tier[i];
        double share = VV_MIN(percent(tier->used_bytes, tier->capacity_bytes), 100.0);
        unsigned full = (unsigned)(share / 100 * width + 0.5);
        char text[8] = "";

        for (unsigned k = 0; k < width; k++)
            bar[k] = k < full ? '#' : '.';
        bar[width] = '\0';
        if (tier->capacity_bytes)
            snprintf(text, sizeof(text), "%.0f%%", share);
        else
            memset(bar, ' ', width);
        top_row(t, "%-7s[%s]%5s%11s%11s%11s%11s%8" PRIu64, tier->name, bar, text,
                human(tier->used_bytes, used),
                tier->capacity_bytes ? human(tier->capacity_bytes, size) : "no limit",
                human(tier->dirty_bytes, dirty), human(tier->evictable_bytes, spare), tier->copies);
    }
}

static void show_hops(struct top_text *t, const struct vv_stats_record *r)
{
    char now[24], moved[VV_BYTES_TEXT], best[24];

    heading(t, "%-7s%12s%8s%8s%13s%14s%9s", "MOVER", "NOW", "BUSY", "QUEUE", "MOVED", "BANDWIDTH",
            "ERRORS");
    for (uint32_t i = 0; i < r->nhops; i++) {
        const struct vv_stats_hop *h = &r->hop[i];

        top_row(t, "%-7s%12s%7.0f%%%8" PRIu64 "%13s%14s%9" PRIu64, h->name,
                rate(h->recent_bytes, r->recent_ns, now), percent(h->recent_busy_ns, r->recent_ns),
                h->orders, human(h->moved_bytes, moved), rate(h->bytes_per_s, VV_NS_PER_S, best),
                h->errors);
    }
}

static void show_calls(struct top_text *t, const struct vv_stats_record *r)
{
    const struct {
        const char *name;
        const struct vv_stats_calls *c;
    } kind[] = {{"checkpoint", &r->checkpoint}, {"restore", &r->restore}};
    char bytes[VV_BYTES_TEXT], now[24], blocked[32];

    heading(t, "%-11s%9s%12s%11s%11s%13s%9s", "CALL", "COUNT", "BYTES", "NOW", "PER S", "BLOCKED",
            "NOW");
    for (size_t i = 0; i < VV_ARRAY_SIZE(kind); i++) {
        const struct vv_stats_calls *c = kind[i].c;

        top_row(t, "%-11s%9" PRIu64 "%12s%11s%11.1f%13s%8.1f%%", kind[i].name, c->count,
                human(c->bytes, bytes), rate(c->recent_bytes, r->recent_ns, now),
                r->recent_ns ? (double)c->recent_count / (double)r->recent_ns * 1e9 : 0,
                span(c->blocked_ns, blocked), percent(c->recent_blocked_ns, r->recent_ns));
    }
}

/* The parts of host_cache: not all of it holds versions. */
static void show_memory(struct top_text *t, const struct vv_stats_record *r)
{
    char all[VV_BYTES_TEXT], versions[VV_BYTES_TEXT], buffers[VV_BYTES_TEXT];

    for (uint32_t i = 0; i < r->ntiers; i++)
        if (strcmp(r->tier[i].kind, "host") == 0)
            top_row(t, "host memory taken: %s: %s for versions, %s of disk buffers",
                    human(r->tier[i].ready_bytes + r->buffer_bytes, all),
                    human(r->tier[i].ready_bytes, versions), human(r->buffer_bytes, buffers));
}

static void show_rest(struct top_text *t, const struct vv_stats_record *r)
{
    char waiting[64] = "no call waits", text[32], moved[VV_BYTES_TEXT];
    uint64_t errors = r->failed_calls + r->late_errors + r->bad_reads;

    if (r->checkpoint.waiting + r->restore.waiting)
        snprintf(waiting, sizeof(waiting), "%" PRIu64 " waiting, for %s",
                 r->checkpoint.waiting + r->restore.waiting, span(r->waiting_ns, text));
    top_row(t,
            "hits %" PRIu64 " of %" PRIu64 " (%.0f%%)   hints %" PRIu64 ", ready %" PRIu64
            ", distance %" PRIu64 "   %s",
            r->hits, r->hits + r->misses, percent(r->hits, r->hits + r->misses), r->hints, r->ready,
            r->last_distance, waiting);
    show_memory(t, r);
    if (r->helper_threads && r->helper_cores)
        top_row(t, "library: %" PRIu64 " threads, %s of cpu time; on cores of its own: %s",
                r->helper_threads, span(r->helper_cpu_ns, text), r->helper_where);
    else if (r->helper_threads)
        top_row(t,
                "library: %" PRIu64 " threads, %s of cpu time, now %.1f%% of the application's "
                "cores %s",
                r->helper_threads, span(r->helper_cpu_ns, text),
                percent(r->recent_helper_cpu_ns, r->recent_ns * VV_MAX(r->app_cpus, UINT64_C(1))),
                r->app_cpus ? r->app_where : "");
    if (r->expected_speedup > 0)
        top_row(t, "%.2f times as fast as blocking I/O; the model expects %.2f (%.2f at the start)",
                r->actual_speedup, r->expected_speedup, r->expected_speedup_start);
    if (r->process_pid)
        top_row(t,
                "helper process %" PRIu64 "%s, on %s%s: %s for this context, %s of processor time",
                r->process_pid, r->process_alive ? "" : " (ended)",
                strcmp(r->process_where, "any") ? "processors " : "", r->process_where,
                human(r->process_bytes, moved), span(r->process_cpu_ns, text));
    if (r->healed_chunks + r->repaired_chunks)
        top_row(t, "from shared storage: %" PRIu64 " chunks healed, %" PRIu64 " repaired",
                r->healed_chunks, r->repaired_chunks);
    if (r->partner_on)
        top_row(t,
                "partner copies: %" PRIu64 " sent, %" PRIu64 " received (%s), %" PRIu64
                " pending, %" PRIu64 " failed",
                r->partner_sent, r->partner_received, human(r->partner_held_bytes, moved),
                r->partner_pending, r->partner_errors);
    if (r->partner_recovered + r->partner_repaired_chunks)
        top_row(t,
                "from partner copies: %" PRIu64 " versions came back, %" PRIu64 " chunks repaired",
                r->partner_recovered, r->partner_repaired_chunks);
    if (errors == 0)
        top_row(t, "no errors");
    else
        top_row(t,
                "errors: calls %" PRIu64 ", flushes %" PRIu64 ", bad reads %" PRIu64
                "; read after all %" PRIu64,
                r->failed_calls, r->late_errors, r->bad_reads, r->reread);
}

static void show_histories(struct top_text *t, const struct vv_stats_record *r)
{
    if (r->nhistories == 0)
        return;
    heading(t, "%-25s%10s%10s%8s%8s%8s  %s", "HISTORY", "VERSIONS", "DURABLE", "FAILED", "HINTS",
            "READY", "");
    for (uint32_t i = 0; i < r->nhistories; i++) {
        const struct vv_stats_history *h = &r->history[i];

        top_row(t, "%-25.25s%10" PRIu64 "%10" PRIu64 "%8" PRIu64 "%8" PRIu64 "%8" PRIu64 "  %s",
                h->name, h->versions, h->durable, h->failed, h->hints, h->ready,
                h->predicting    ? "predicted"
                : h->prefetching ? "prefetch"
                                 : "");
    }
    if (r->histories > r->nhistories)
        top_row(t, "and %" PRIu64 " more", r->histories - r->nhistories);
}

void top_view_process(struct top_text *t, const struct vv_stats_page *page)
{
    const struct vv_stats_header *h = &page->header;
    const struct vv_stats_record *r = &page->record;
    char up[32], state[80], size[VV_BYTES_TEXT];

    heading(t, "varve %s  pid %" PRIu64 "%s  rank %" PRId32 "  up %s  %s", h->version, h->pid,
            h->context ? " (another context)" : "", h->rank,
            span(since(h->opened_ns, vv_now_ns()), up), state_of(page, state));
    top_row(t, "%s", h->command[0] ? h->command : h->program);
    top_row(t, "level %s, policy %s, device %s, pages of %s, %" PRIu64 " versions%s%s", h->level,
            h->policy, h->device, human(h->page_bytes, size), r->versions,
            h->local[0] ? ", disk " : "", h->local);
    show_tiers(t, r);
    show_hops(t, r);
    show_calls(t, r);
    show_rest(t, r);
    show_histories(t, r);
}

/* ---- several ---- */

void top_view_list(struct top_text *t, const struct top_pages *pages, size_t selected)
{
    heading(t, "  %7s%5s%10s%11s%6s%9s%9s%6s  %s", "PID", "RANK", "UP", "MEMORY", "USED",
            "CKPT BLK", "REST BLK", "HITS", "PROGRAM");
    for (size_t i = 0; i < pages->n; i++) {
        const struct vv_stats_page *p = &pages->page[i];
        const struct vv_stats_record *r = &p->record;
        uint64_t used = 0, size = 0;
        char up[32], memory[VV_BYTES_TEXT], state[80];

        for (uint32_t k = 0; k < r->ntiers; k++) {
            if (strcmp(r->tier[k].name, "disk") == 0 || strcmp(r->tier[k].name, "remote") == 0)
                continue;
            used += r->tier[k].used_bytes;
            size += r->tier[k].capacity_bytes;
        }
        top_row(t, "%c %7" PRIu64 "%5" PRId32 "%10s%11s%5.0f%%%8.1f%%%8.1f%%%5.0f%%  %s  %s",
                i == selected ? '>' : ' ', p->header.pid, p->header.rank,
                span(since(p->header.opened_ns, vv_now_ns()), up),
                human(size + r->buffer_bytes, memory), percent(used, size),
                percent(r->checkpoint.recent_blocked_ns, r->recent_ns),
                percent(r->restore.recent_blocked_ns, r->recent_ns),
                percent(r->hits, r->hits + r->misses), p->header.program, state_of(p, state));
    }
}

void top_view_help(struct top_text *t)
{
    static const char *const lines[] = {
        "TIER    a place for versions, fast to slow. DIRTY: bytes that no slower tier",
        "        has yet. MAY GO: can be given up for others.",
        "MOVER   d device, h host, f file, r remote; h2f moves from host to file.",
        "        QUEUE: transfers queued and under way. BANDWIDTH: as measured, whatever",
        "        is moved now.",
        "CALL    BLOCKED: time that the application spent in calls; NOW: the share of",
        "        the last second, more than 100% if several threads were blocked, or",
        "        if a call that ended had begun before it.",
        "hits    restores that found everything in memory when they came.",
        "ready   hinted versions, from the next on, that would be a hit now;",
        "        distance: the same when the last restore came.",
        "",
        "q       quit                          h       this page, and back",
        "l       the list of processes         up/down choose one of them, Enter shows it",
        "+ -     slower, faster                space   look again now",
    };

    heading(t, "What is shown");
    for (size_t i = 0; i < VV_ARRAY_SIZE(lines); i++)
        top_row(t, "%s", lines[i]);
}
