/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test harness. A test is a program whose main calls T_RUN for each case and returns t_done().
 * A failed check prints its place and values, removes the temporary folders and ends the process with status 1, on
 * whichever thread it happens. Exit status 77 means skipped.
 */
#ifndef T_H
#define T_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define T_CHECK(cond)                                \
    do {                                             \
        if (!(cond))                                 \
            t_fail(__FILE__, __LINE__, "%s", #cond); \
    } while (0)

/* Integers of up to 64 bits, signed or not. */
#define T_EQ(a, b)                                                                    \
    do {                                                                              \
        long long t_a_ = (long long)(a), t_b_ = (long long)(b);                       \
        if (t_a_ != t_b_)                                                             \
            t_fail(__FILE__, __LINE__, "%s == %s: %lld != %lld", #a, #b, t_a_, t_b_); \
    } while (0)

#define T_STREQ(a, b)                                                                     \
    do {                                                                                  \
        const char *t_a_ = (a), *t_b_ = (b);                                              \
        if (strcmp(t_a_, t_b_) != 0)                                                      \
            t_fail(__FILE__, __LINE__, "%s == %s: \"%s\" != \"%s\"", #a, #b, t_a_, t_b_); \
    } while (0)

/* The expression returns 0 or a negative errno. */
#define T_OK(expr)                                                                     \
    do {                                                                               \
        int t_rc_ = (int)(expr);                                                       \
        if (t_rc_ != 0)                                                                \
            t_fail(__FILE__, __LINE__, "%s: %d (%s)", #expr, t_rc_, t_errname(t_rc_)); \
    } while (0)

#define T_ERR(expr, err)                                                                           \
    do {                                                                                           \
        int t_rc_ = (int)(expr), t_want_ = (err);                                                  \
        if (t_rc_ != t_want_)                                                                      \
            t_fail(__FILE__, __LINE__, "%s: %d (%s), expected %s", #expr, t_rc_, t_errname(t_rc_), \
                   t_errname(t_want_));                                                            \
    } while (0)

#define T_RUN(fn) t_run(#fn, fn)

/* Ends the test here as skipped. */
#define T_SKIP(...) t_skip(__VA_ARGS__)

void t_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void t_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Prints a line with any result. */
void t_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *t_errname(int rc);
void t_run(const char *name, void (*fn)(void));
int t_done(void);

/* Creates a folder, which the process that made it removes at exit. The text is valid until then. */
const char *t_tmpdir(void);

/* How often the other threads of this process have blocked so far. A thread that polls with sleeps blocks
 * all the time. */
uint64_t t_others_blocked(void);

/* From VARVE_TEST_SEED, or a fixed default; printed on failure. */
uint64_t t_seed(void);

/* True if VARVE_TEST_LONG is set: run more cases than a gate has time for. */
bool t_long(void);

/* True if built with AddressSanitizer or ThreadSanitizer. Everything then takes several times as long, and tests
 * try fewer cases, since the builds without them try all. */
bool t_sanitized(void);

/* Number of cases to try: `many` when VARVE_TEST_LONG is set, else `gate`, or a quarter of it under
 * a sanitizer. At least 1. */
uint64_t t_cases(uint64_t gate, uint64_t many);

struct t_rng {
    uint64_t state;
};

/* A 64-bit generator (a Weyl sequence, mixed); any seed will do. */
uint64_t t_rng_u64(struct t_rng *r);
/* Uniform enough in [0, n); n > 0. */
uint64_t t_rng_below(struct t_rng *r, uint64_t n);

#endif
