/* SPDX-License-Identifier: Apache-2.0 */
#include "model/reference.h"

#include <stdio.h>
#include <string.h>

#include "t.h"

static const struct ref_set nothing = {.missing = true};

/* ---- sets ---- */

bool ref_has(const struct ref_set *s, unsigned gen)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->gen[i] == gen)
            return true;
    return false;
}

bool ref_must(const struct ref_set *s)
{
    return !s->missing;
}

bool ref_cannot(const struct ref_set *s)
{
    return s->n == 0;
}

static void add(struct ref_set *s, unsigned gen)
{
    unsigned i = s->n;
    if (ref_has(s, gen))
        return;
    T_CHECK(s->n < REF_SET);
    for (; i > 0 && s->gen[i - 1] > gen; i--)
        s->gen[i] = s->gen[i - 1];
    s->gen[i] = (uint16_t)gen;
    s->n++;
}

static void drop(struct ref_set *s, unsigned gen)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++)
        if (s->gen[i] != gen)
            s->gen[n++] = s->gen[i];
    s->n = n;
}

static void add_all(struct ref_set *s, const struct ref_set *more)
{
    for (unsigned i = 0; i < more->n; i++)
        add(s, more->gen[i]);
}

static struct ref_set only(unsigned gen)
{
    return (struct ref_set){.n = 1, .gen = {(uint16_t)gen}};
}

const char *ref_text(const struct ref_set *s)
{
    static char text[4][128];
    static unsigned turn;
    char *t = text[turn++ % 4];
    size_t at = (size_t)snprintf(t, sizeof(text[0]), "{");
    for (unsigned i = 0; i < s->n && at + 12 < sizeof(text[0]); i++)
        at += (size_t)snprintf(t + at, sizeof(text[0]) - at, "%s%u", i ? " " : "", s->gen[i]);
    snprintf(t + at, sizeof(text[0]) - at, "%s}", s->missing ? s->n ? " or none" : "none" : "");
    return t;
}

static unsigned lowest(const struct ref_set *s)
{
    return s->n ? s->gen[0] : 0;
}

static unsigned highest(const struct ref_set *s)
{
    return s->n ? s->gen[s->n - 1] : 0;
}

/* ---- writing ---- */

void ref_init(struct ref *r, unsigned nversions, unsigned keep, unsigned keep_every)
{
    memset(r, 0, sizeof(*r));
    r->nversions = nversions;
    r->keep = keep;
    r->keep_every = keep_every;
    for (unsigned v = 0; v < REF_VERSIONS; v++) {
        struct ref_version *x = &r->version[v];
        x->now = x->next = x->node = x->hidden = nothing;
    }
}

unsigned ref_begin(struct ref *r, unsigned version, uint32_t bytes)
{
    struct ref_version *x = &r->version[version];
    T_CHECK(r->ngens + 1 < REF_GENERATIONS);
    unsigned gen = ++r->ngens;
    r->bytes[gen] = bytes;
    /* Retention may have removed it already: then the new one replaces nothing. */
    if (x->droppable)
        x->next.missing = x->node.missing = true;
    add(&x->next, gen);
    add(&x->node, gen);
    return gen;
}

bool ref_kept_always(const struct ref *r, unsigned version)
{
    return r->keep == 0 || (r->keep_every > 0 && version % r->keep_every == 0);
}

bool ref_may_be_newer(const struct ref *r, unsigned other, unsigned version)
{
    return other != version && highest(&r->version[other].now) > lowest(&r->version[version].now);
}

bool ref_is_newer(const struct ref *r, unsigned other, unsigned version)
{
    const struct ref_version *o = &r->version[other], *x = &r->version[version];
    return other != version && o->now.n > 0 && lowest(&o->now) > highest(&x->now);
}

/* Once as many newer ones as are kept have existed, a version may be removed at any time. */
static void mark_droppable(struct ref *r)
{
    for (unsigned v = 0; v < r->nversions; v++) {
        unsigned newer = 0;
        for (unsigned w = 0; w < r->nversions; w++)
            newer += ref_may_be_newer(r, w, v);
        if (!ref_kept_always(r, v) && r->version[v].now.n > 0 && newer >= r->keep)
            r->version[v].droppable = true;
    }
}

void ref_written(struct ref *r, unsigned version, unsigned gen)
{
    struct ref_version *x = &r->version[version];
    if (x->now.n > 0)
        x->before = highest(&x->now);
    x->now = only(gen);
    x->exposed_before |= x->exposed;
    x->opened = x->droppable = x->exposed = false;
    mark_droppable(r);
}

void ref_failed(struct ref *r, unsigned version, unsigned gen)
{
    drop(&r->version[version].next, gen);
    drop(&r->version[version].node, gen);
}

/* ---- levels ---- */

void ref_reached(struct ref *r, unsigned version, bool level)
{
    struct ref_version *x = &r->version[version];
    if (x->now.n != 1 || x->now.missing || x->exposed)
        return;
    struct ref_set found = only(x->now.gen[0]);
    if (level)
        x->next = x->node = found;
    else if (r->local)
        x->next = found;
}

void ref_reached_at_least(struct ref *r, unsigned version, bool level)
{
    struct ref_version *x = &r->version[version];
    struct ref_set next = x->next, node = x->node;
    ref_reached(r, version, level);
    for (unsigned i = 0; i < next.n; i++)
        if (x->now.n == 1 && next.gen[i] > x->now.gen[0])
            add(&x->next, next.gen[i]);
    for (unsigned i = 0; i < node.n; i++)
        if (x->now.n == 1 && node.gen[i] > x->now.gen[0])
            add(&x->node, node.gen[i]);
}

void ref_discarding(struct ref *r, unsigned version)
{
    struct ref_version *x = &r->version[version];
    x->next.missing = x->node.missing = true;
}

void ref_discarded(struct ref *r, unsigned version)
{
    struct ref_version *x = &r->version[version];
    if (x->now.n > 0)
        x->before = highest(&x->now);
    x->now = nothing;
    x->opened = false;
}

void ref_flushed(struct ref *r)
{
    for (unsigned v = 0; v < r->nversions; v++) {
        struct ref_version *x = &r->version[v];
        ref_reached(r, v, true);
        if (x->now.n == 0 && !x->exposed)
            x->next = x->node = nothing;
    }
}

void ref_removed(struct ref *r, bool shared)
{
    for (unsigned v = 0; v < r->nversions; v++) {
        struct ref_version *x = &r->version[v];
        add_all(&x->next, &x->node);
        if (shared)
            add_all(&x->next, &x->hidden);
        x->next.missing = x->node.missing = true;
        x->exposed = true;
        x->opened = false;
    }
}

void ref_given_up(struct ref *r)
{
    for (unsigned v = 0; v < r->nversions; v++) {
        struct ref_version *x = &r->version[v];
        struct ref_set was = x->now;
        x->now = x->next;
        add_all(&x->now, &was);
        x->now.missing |= was.missing;
        x->opened = false;
        x->exposed |= x->exposed_before; /* an earlier one may have returned */
    }
}

/* ---- openings ---- */

void ref_open(struct ref *r, bool lost)
{
    for (unsigned v = 0; v < r->nversions; v++) {
        struct ref_version *x = &r->version[v];
        if (lost) {
            x->next = x->node;
            x->hidden = nothing;
        }
        x->now = x->next;
        x->opened = true;
        x->exposed = x->exposed_before = false;
    }
    r->found = r->ngens;
    /* A kill may have left more versions than are kept, and may have undone an overwrite. */
    mark_droppable(r);
}

bool ref_ours(const struct ref *r, unsigned version)
{
    return lowest(&r->version[version].now) > r->found;
}

void ref_seen(struct ref *r, unsigned version)
{
    struct ref_version *x = &r->version[version];
    x->now.missing = false;
    if (x->opened)
        x->next.missing = false;
}

void ref_seen_as(struct ref *r, unsigned version, unsigned gen)
{
    struct ref_version *x = &r->version[version];
    struct ref_set was = x->now;
    ref_seen(r, version);
    x->now = only(gen);
    if (!x->opened)
        return;
    /* The opening has found this one among all the possible ones. Another node has what was copied
     * there before, or gets this one. */
    for (unsigned i = 0; i < was.n; i++)
        if (was.gen[i] != gen)
            drop(&x->next, was.gen[i]);
    add(&x->node, gen);
    x->opened = false;
}

void ref_missed(struct ref *r, unsigned version, bool opening)
{
    struct ref_version *x = &r->version[version];
    if (x->now.n > 0)
        x->before = highest(&x->now);
    x->now = nothing;
    x->next.missing = x->node.missing = true;
    if (opening) {
        if (r->local)
            add_all(&x->hidden, &x->next);
        x->next = x->node = nothing;
    }
    x->opened = false;
}

/* ---- bytes ---- */

#define MAGIC UINT64_C(0x7661727600000000)

static uint64_t word(unsigned gen, size_t i)
{
    uint64_t x = (gen + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 29;
}

static uint64_t word_at(unsigned gen, size_t i)
{
    return i == 0 ? MAGIC | gen : word(gen, i);
}

void ref_fill(void *buf, size_t bytes, unsigned gen)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t w = word_at(gen, at / 8);
        memcpy((char *)buf + at, &w, bytes - at < 8 ? bytes - at : 8);
    }
}

unsigned ref_identify(const struct ref *r, const void *buf, size_t room)
{
    uint64_t head;
    memcpy(&head, buf, sizeof(head));
    unsigned gen = (unsigned)(head & UINT32_MAX);
    if ((head ^ gen) != MAGIC || gen == 0 || gen > r->ngens || r->bytes[gen] > room)
        return 0;
    for (size_t at = 0; at < r->bytes[gen]; at += 8) {
        uint64_t w = word_at(gen, at / 8);
        size_t n = r->bytes[gen] - at < 8 ? r->bytes[gen] - at : 8;
        if (memcmp((const char *)buf + at, &w, n) != 0)
            return 0;
    }
    return gen;
}
