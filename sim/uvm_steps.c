/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs are means: by the byte where memory is moved or copied, by the call elsewhere.
 *
 * A call that meets a step of a thread waits for its end. Costs have the longest such wait, as the
 * calibration calls when a step begins; calls of a shot come at any time of it, so that they wait for
 * half of that, and somewhat more if steps differ, since a long one is met more often: on average
 * E[s^2] / (2 E[s]). In the same way a wait for room takes what the flusher's steps take that end
 * during it, less half of the one that was under way (who counts leaves that half out).
 */
#include "sim/uvm_steps.h"

#include <inttypes.h>
#include <math.h>

#include "core/util.h"
#include "sim/json.h"

static const char *const who_name[UVM_WHO_NR] = {
    [UVM_PUT] = "checkpoint", [UVM_GET] = "restore", [UVM_THREADS] = "threads"};

static const char *const kind_name[UVM_KIND_NR] = {
    [UVM_REST] = "the call itself",
    [UVM_ROOM] = "wait for room",
    [UVM_ARRIVE] = "wait for its arrival",
    [UVM_ADVISE] = "advise",
    [UVM_ADVISE + UVM_MET_DOWN] = "advise beside a step down",
    [UVM_ADVISE + UVM_MET_UP] = "advise beside a step up",
    [UVM_COPY_IN] = "copy in",
    [UVM_COPY_IN + UVM_MET_DOWN] = "copy in beside a step down",
    [UVM_COPY_IN + UVM_MET_UP] = "copy in beside a step up",
    [UVM_COPY_OUT] = "copy out",
    [UVM_COPY_OUT + UVM_MET_DOWN] = "copy out beside a step down",
    [UVM_COPY_OUT + UVM_MET_UP] = "copy out beside a step up",
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

static bool mean(const struct uvm_account *a, enum uvm_who who, unsigned kind, double *ret_ns)
{
    const struct uvm_step *s = &a->s[who][kind];
    uint64_t n = by_bytes(kind) ? s->bytes : s->count;

    if (n == 0)
        return false;
    *ret_ns = (double)s->ns / (double)n;
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

/* The longest wait for a step in this direction: what calls that met one took longer. */
static bool wait_ns(const struct uvm_account *a, unsigned met, double *ret_ns)
{
    static const unsigned first[] = {UVM_ADVISE, UVM_COPY_IN, UVM_COPY_OUT};
    double longer = 0, alone;
    uint64_t n = 0;

    for (int who = UVM_PUT; who <= UVM_GET; who++)
        for (size_t i = 0; i < VV_ARRAY_SIZE(first); i++) {
            const struct uvm_step *s = &a->s[who][first[i] + met];

            if (s->count == 0 || !unit_ns(a, who, first[i], &alone))
                continue;
            longer += (double)s->ns - alone * (double)(by_bytes(first[i]) ? s->bytes : s->count);
            n += s->count;
        }
    if (n == 0)
        return false;
    *ret_ns = fmax(0, longer / (double)n);
    return true;
}

/* How much longer than the average step the average step is that a call meets. */
static double met_longer(const struct uvm_account *a, unsigned met)
{
    static const unsigned kinds[UVM_MET_NR][2] = {
        [UVM_MET_DOWN] = {UVM_DOWN_FIRST, UVM_DOWN_AGAIN},
        [UVM_MET_UP] = {UVM_BACK_FRESH, UVM_BACK_USED},
    };
    double n = 0, ns = 0, ns2 = 0;

    for (int i = 0; i < 2; i++) {
        const struct uvm_step *s = &a->s[UVM_THREADS][kinds[met][i]];

        n += (double)s->count;
        ns += (double)s->ns;
        ns2 += s->ns2;
    }
    return ns > 0 && ns2 > 0 ? fmax(1, ns2 * n / (ns * ns)) : 1;
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
    if (kind == UVM_ROOM || kind == UVM_ARRIVE) {
        known =
            unit_ns(costs, UVM_THREADS, kind == UVM_ROOM ? UVM_DOWN_FIRST : UVM_BACK_USED, &unit);
        *ret_ns = unit * (double)s->bytes;
        return known;
    }
    known = unit_ns(costs, who, base, &unit);
    if (met != UVM_MET_NONE) {
        known = wait_ns(costs, met, &wait) && known;
        wait *= met_longer(costs, met);
    }
    *ret_ns = unit * (double)(by_bytes(base) ? s->bytes : s->count) + wait / 2 * (double)s->count;
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

void uvm_steps_print(FILE *f, const struct uvm_account *costs, const struct uvm_account *counted)
{
    fprintf(f, "%-11s %-28s %6s %9s %12s %12s %10s %10s %6s\n", "by", "step", "count", "MiB",
            "expected, us", "measured, us", "expected", "measured", "x");
    for (int who = 0; who < UVM_WHO_NR; who++)
        for (unsigned kind = 0; kind < UVM_KIND_NR; kind++) {
            const struct uvm_step *s = &counted->s[who][kind];
            double n = (double)s->count, ns = (double)s->ns, expected;

            if (s->count == 0)
                continue;
            fprintf(f, "%-11s %-28s %6" PRIu64 " %9.0f ", who_name[who], kind_name[kind], s->count,
                    (double)s->bytes / 1048576);
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
