/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs are means: by the byte where memory is moved or copied, by the call elsewhere. A calibration
 * has few samples of most kinds, and one that the machine held up for some milliseconds must not be
 * multiplied by all calls of a shot: of such a kind those are left out that took several times as
 * long as the middle one.
 *
 * A call that meets something of a thread's waits for its end, or for as much of it as the driver
 * lets nobody else in. The calibration says how long that lasts from its beginning: how old it was
 * when a call came, and how much longer than alone that call took: so and so much of what the threads
 * themselves take for it. Calls of a shot do not come at random: what the application did before
 * waited for the same threads, so that many come when something has just begun. So the shot counts
 * how old it was, and a call waits for what was left, on average, of those that lasted longer.
 *
 * What the threads take is measured in the shot itself, as the speed of a link is for others: host
 * memory that a virtual machine gets only then makes it several times what it was a second before.
 *
 * A wait for room takes what the flusher's steps and advice take that end during it, less half of the
 * one that was under way (who counts leaves that half out).
 */
#include "lab/shot/uvm_steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/json.h"
#include "core/util.h"

#define TOO_LONG 3 /* times the middle one */
#define WAITS    4 /* a call waited if it took longer by such a part of what it takes alone */

static const char *const who_name[UVM_WHO_NR] = {
    [UVM_PUT] = "checkpoint", [UVM_GET] = "restore", [UVM_THREADS] = "threads"};

static const char *const kind_name[UVM_KIND_NR] = {
    [UVM_REST] = "the call itself",
    [UVM_ROOM] = "wait for room",
    [UVM_ARRIVE] = "wait for its arrival",
    [UVM_ADVICE_DOWN] = "advice down",
    [UVM_ADVICE_UP] = "advice up",
    [UVM_ADVICE_GONE] = "advice on what is gone",
    [UVM_ADVISE] = "advise",
    [UVM_ADVISE + UVM_MET_DOWN] = "advise beside a step down",
    [UVM_ADVISE + UVM_MET_UP] = "advise beside a step up",
    [UVM_ADVISE + UVM_MET_ADVICE_DOWN] = "advise beside advice down",
    [UVM_ADVISE + UVM_MET_ADVICE_UP] = "advise beside advice up",
    [UVM_ADVISE + UVM_MET_ADVICE_GONE] = "advise beside advice, gone",
    [UVM_COPY_IN] = "copy in",
    [UVM_COPY_IN + UVM_MET_DOWN] = "copy in beside a step down",
    [UVM_COPY_IN + UVM_MET_UP] = "copy in beside a step up",
    [UVM_COPY_IN + UVM_MET_ADVICE_DOWN] = "copy in beside advice down",
    [UVM_COPY_IN + UVM_MET_ADVICE_UP] = "copy in beside advice up",
    [UVM_COPY_IN + UVM_MET_ADVICE_GONE] = "copy in beside advice, gone",
    [UVM_COPY_OUT] = "copy out",
    [UVM_COPY_OUT + UVM_MET_DOWN] = "copy out beside a step down",
    [UVM_COPY_OUT + UVM_MET_UP] = "copy out beside a step up",
    [UVM_COPY_OUT + UVM_MET_ADVICE_DOWN] = "copy out beside advice down",
    [UVM_COPY_OUT + UVM_MET_ADVICE_UP] = "copy out beside advice up",
    [UVM_COPY_OUT + UVM_MET_ADVICE_GONE] = "copy out beside advice, gone",
    [UVM_COPY_HOST] = "copy out of host memory",
    [UVM_NEW_FRESH] = "new pages, fresh memory",
    [UVM_NEW_USED] = "new pages, used memory",
    [UVM_BACK_FRESH] = "pages back, fresh memory",
    [UVM_BACK_USED] = "pages back, used memory",
    [UVM_STAY] = "pages that are there",
    [UVM_DOWN_FIRST] = "pages to the host, first",
    [UVM_DOWN_AGAIN] = "pages to the host, again",
};

/* What a kind costs that was never calibrated. */
static unsigned like(unsigned kind)
{
    switch (kind) {
    case UVM_NEW_FRESH:
        return UVM_NEW_USED;
    case UVM_NEW_USED:
        return UVM_NEW_FRESH;
    case UVM_BACK_FRESH:
        return UVM_BACK_USED;
    case UVM_BACK_USED:
        return UVM_BACK_FRESH;
    case UVM_DOWN_FIRST:
        return UVM_DOWN_AGAIN;
    case UVM_DOWN_AGAIN:
        return UVM_DOWN_FIRST;
    default:
        return kind;
    }
}

static bool by_bytes(unsigned kind)
{
    return kind >= UVM_COPY_IN;
}

void uvm_account_add(struct uvm_account *a, enum uvm_who who, unsigned kind, uint64_t bytes,
                     struct uvm_sample sample)
{
    struct uvm_step *s = &a->s[who][kind];

    s->every = VV_MAX(s->every, 1u);
    if (s->kept == UVM_SAMPLES && s->count % s->every == 0) {
        s->kept /= 2;
        s->every *= 2;
        for (uint32_t i = 0; i < s->kept; i++)
            s->sample[i] = s->sample[(size_t)2 * i];
    }
    if (s->count % s->every == 0)
        s->sample[s->kept++] = sample;
    s->count++;
    s->bytes += bytes;
    s->ns += sample.ns;
}

static int shorter(const void *a, const void *b)
{
    const struct uvm_sample *x = a, *y = b;

    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Of one call. Of many all count. */
static double usual_ns(const struct uvm_step *s)
{
    struct uvm_sample sorted[UVM_SAMPLES];
    double sum = 0;
    uint32_t n = 0;

    if (s->count > UVM_SAMPLES)
        return (double)s->ns / (double)s->count;
    memcpy(sorted, s->sample, s->kept * sizeof(sorted[0]));
    qsort(sorted, s->kept, sizeof(sorted[0]), shorter);
    while (n < s->kept && sorted[n].ns <= TOO_LONG * sorted[s->kept / 2].ns)
        sum += (double)sorted[n++].ns;
    return sum / n;
}

static bool mean(const struct uvm_account *a, enum uvm_who who, unsigned kind, double *ret_ns)
{
    const struct uvm_step *s = &a->s[who][kind];
    uint64_t n = by_bytes(kind) ? s->bytes : s->count;

    if (n == 0)
        return false;
    *ret_ns = usual_ns(s) * (double)s->count / (double)n;
    return true;
}

/* Of one call, or of one byte: as this caller has it, or else as the other one has. */
static bool unit_ns(const struct uvm_account *a, enum uvm_who who, unsigned kind, double *ret_ns)
{
    enum uvm_who other = who == UVM_PUT ? UVM_GET : UVM_PUT;

    for (int i = 0; i < 2; i++, kind = like(kind))
        if (mean(a, who, kind, ret_ns) || (who != UVM_THREADS && mean(a, other, kind, ret_ns)))
            return true;
    return false;
}

/* Calls of the calibration that met this: of the same kind if there are any, by the same caller if
 * there are. */
static const struct uvm_step *met_before(const struct uvm_account *a, enum uvm_who who,
                                         unsigned base, unsigned met, double *ret_alone_ns)
{
    const unsigned first[] = {base, UVM_ADVISE, UVM_COPY_IN, UVM_COPY_OUT};
    const enum uvm_who callers[] = {who, who == UVM_PUT ? UVM_GET : UVM_PUT};

    for (size_t i = 0; i < VV_ARRAY_SIZE(first); i++)
        for (size_t j = 0; j < VV_ARRAY_SIZE(callers); j++) {
            const struct uvm_step *s = &a->s[callers[j]][first[i] + met];
            double unit;

            if (s->count == 0 || !unit_ns(a, callers[j], first[i], &unit))
                continue;
            *ret_alone_ns = by_bytes(first[i]) ? unit * (double)s->bytes / (double)s->count : unit;
            return s;
        }
    return NULL;
}

/* How long the things lasted that a call could meet, each for so many. */
struct lasts {
    double ns[2 * UVM_SAMPLES], weight[2 * UVM_SAMPLES];
    uint32_t n;
};

static void lasts_add(struct lasts *l, double ns, double weight)
{
    l->ns[l->n] = ns;
    l->weight[l->n++] = weight;
}

/* What is left for a call to wait for if it comes so late. */
static double left_ns(const struct lasts *l, double age_ns)
{
    double sum = 0, n = 0;

    for (uint32_t i = 0; i < l->n; i++)
        if (l->ns[i] > age_ns) {
            sum += l->weight[i] * (l->ns[i] - age_ns);
            n += l->weight[i];
        }
    return n > 0 ? sum / n : 0;
}

static double mean_of(const struct lasts *l)
{
    double sum = 0, n = 0;

    for (uint32_t i = 0; i < l->n; i++) {
        sum += l->weight[i] * l->ns[i];
        n += l->weight[i];
    }
    return sum / n;
}

/* What the threads took for it, each one that was kept. */
static void threads_took(const struct uvm_account *a, unsigned met, struct lasts *ret_lasts)
{
    static const unsigned kinds[UVM_MET_NR][2] = {
        [UVM_MET_DOWN] = {UVM_DOWN_FIRST, UVM_DOWN_AGAIN},
        [UVM_MET_UP] = {UVM_BACK_FRESH, UVM_BACK_USED},
        [UVM_MET_ADVICE_DOWN] = {UVM_ADVICE_DOWN},
        [UVM_MET_ADVICE_UP] = {UVM_ADVICE_UP},
        [UVM_MET_ADVICE_GONE] = {UVM_ADVICE_GONE},
    };

    ret_lasts->n = 0;
    for (size_t k = 0; k < 2 && kinds[met][k]; k++) {
        const struct uvm_step *s = &a->s[UVM_THREADS][kinds[met][k]];

        for (uint32_t i = 0; i < s->kept; i++)
            lasts_add(ret_lasts, (double)s->sample[i].ns, (double)s->count / s->kept);
    }
}

/* Of one call on average. */
static bool wait_ns(const struct uvm_account *costs, const struct uvm_account *counted,
                    const struct uvm_step *s, enum uvm_who who, unsigned base, unsigned met,
                    double *ret_ns)
{
    double alone_ns = 0, sum = 0, part;
    const struct uvm_step *before = met_before(costs, who, base, met, &alone_ns);
    struct lasts lasts = {.n = 0}, then, now;

    if (!before)
        return false;
    for (uint32_t i = 0; i < before->kept; i++) {
        double longer = (double)before->sample[i].ns - alone_ns;

        /* Who did not wait tells nothing of how long it lasts, but that it kept nobody waiting. */
        lasts_add(&lasts, longer > alone_ns / WAITS ? (double)before->sample[i].age_ns + longer : 0,
                  1);
    }
    threads_took(costs, met, &then);
    threads_took(counted, met, &now);
    if (then.n > 0 && now.n > 0) {
        part = mean_of(&lasts) / mean_of(&then);
        for (uint32_t i = 0; i < now.n; i++)
            now.ns[i] *= part;
        lasts = now;
    }
    for (uint32_t i = 0; i < s->kept; i++)
        sum += left_ns(&lasts, (double)s->sample[i].age_ns);
    *ret_ns = sum / s->kept;
    return true;
}

/* A wait for steps of a thread, and for its advice: what they took in the shot, or else before. */
static bool thread_ns(const struct uvm_account *costs, const struct uvm_account *counted,
                      const struct uvm_step *s, unsigned kind, unsigned advice, double *ret_ns)
{
    const struct uvm_step *a = &counted->s[UVM_THREADS][advice];
    double unit = 0;
    bool known =
        unit_ns(counted, UVM_THREADS, kind, &unit) || unit_ns(costs, UVM_THREADS, kind, &unit);

    if (a->bytes == 0)
        a = &costs->s[UVM_THREADS][advice];
    *ret_ns = unit * (double)s->bytes;
    if (a->bytes > 0)
        *ret_ns += (double)a->ns / (double)a->bytes * (double)s->advised_bytes;
    return known && (a->bytes > 0 || !s->advised_bytes);
}

/* The kind without what it met. */
static unsigned alone(unsigned kind, unsigned *ret_met)
{
    bool meets = kind >= UVM_ADVISE && kind < UVM_COPY_HOST;

    *ret_met = meets ? (kind - UVM_ADVISE) % UVM_MET_NR : UVM_MET_NONE;
    return kind - *ret_met;
}

bool uvm_expected_ns(const struct uvm_account *costs, const struct uvm_account *counted,
                     enum uvm_who who, unsigned kind, double *ret_ns)
{
    const struct uvm_step *s = &counted->s[who][kind];
    unsigned met, base = alone(kind, &met);
    double unit = 0, wait = 0;
    bool known;

    if (s->count == 0) {
        *ret_ns = 0;
        return true;
    }
    if (kind == UVM_ROOM)
        return thread_ns(costs, counted, s, UVM_DOWN_FIRST, UVM_ADVICE_DOWN, ret_ns);
    if (kind == UVM_ARRIVE)
        return thread_ns(costs, counted, s, UVM_BACK_USED, UVM_ADVICE_UP, ret_ns);
    known = unit_ns(costs, who, base, &unit);
    if (met != UVM_MET_NONE)
        known = wait_ns(costs, counted, s, who, base, met, &wait) && known;
    *ret_ns = unit * (double)(by_bytes(base) ? s->bytes : s->count) + wait * (double)s->count;
    return known;
}

double uvm_expected_call_s(const struct uvm_account *costs, const struct uvm_account *counted,
                           enum uvm_who who)
{
    double sum = 0, ns;

    for (unsigned kind = 0; kind < UVM_KIND_NR; kind++)
        if (uvm_expected_ns(costs, counted, who, kind, &ns))
            sum += ns;
    return sum * 1e-9;
}

/* How old it was what calls met, on average. */
static double mean_age_ns(const struct uvm_step *s)
{
    double sum = 0;

    for (uint32_t i = 0; i < s->kept; i++)
        sum += (double)s->sample[i].age_ns;
    return sum / s->kept;
}

void uvm_steps_print(FILE *f, const struct uvm_account *costs, const struct uvm_account *counted)
{
    fprintf(f, "%-11s %-28s %6s %9s %8s %12s %12s %10s %10s %6s\n", "by", "step", "count", "MiB",
            "age, us", "expected, us", "measured, us", "expected", "measured", "x");
    for (int who = 0; who < UVM_WHO_NR; who++)
        for (unsigned kind = 0; kind < UVM_KIND_NR; kind++) {
            const struct uvm_step *s = &counted->s[who][kind];
            double n = (double)s->count, ns = (double)s->ns, expected;
            unsigned met;

            if (s->count == 0)
                continue;
            (void)alone(kind, &met);
            fprintf(f, "%-11s %-28s %6" PRIu64 " %9.0f ", who_name[who], kind_name[kind], s->count,
                    (double)s->bytes / 1048576);
            if (met != UVM_MET_NONE)
                fprintf(f, "%8.0f ", mean_age_ns(s) / 1e3);
            else
                fprintf(f, "%8s ", "-");
            if (uvm_expected_ns(costs, counted, (enum uvm_who)who, kind, &expected))
                fprintf(f, "%12.1f %12.1f %8.4f s %8.4f s %6.2f\n", expected / n / 1e3,
                        ns / n / 1e3, expected / 1e9, ns / 1e9, expected > 0 ? ns / expected : 0);
            else
                fprintf(f, "%12s %12.1f %10s %8.4f s %6s\n", "-", ns / n / 1e3, "-", ns / 1e9, "-");
        }
    fputc('\n', f);
}

void uvm_steps_print_json(FILE *f, const struct uvm_account *costs,
                          const struct uvm_account *counted)
{
    bool any = false;

    fputc('[', f);
    for (int who = 0; who < UVM_WHO_NR; who++)
        for (unsigned kind = 0; kind < UVM_KIND_NR; kind++) {
            const struct uvm_step *s = &counted->s[who][kind];
            double expected = NAN;

            if (s->count == 0)
                continue;
            if (!uvm_expected_ns(costs, counted, (enum uvm_who)who, kind, &expected))
                expected = NAN;
            fprintf(f,
                    "%s{\"by\":\"%s\",\"step\":\"%s\",\"count\":%" PRIu64 ",\"bytes\":%" PRIu64
                    ",\"measured_s\":",
                    any ? "," : "", who_name[who], kind_name[kind], s->count, s->bytes);
            json_number(f, (double)s->ns * 1e-9);
            fputs(",\"expected_s\":", f);
            json_number(f, expected * 1e-9);
            fputc('}', f);
            any = true;
        }
    fputc(']', f);
}
