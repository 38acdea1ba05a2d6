/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions about our own bugs. They stop a debug build (VV_DEBUG) and cost nothing in a release
 * build, where the condition is not evaluated. Bad input, full disks and lost devices are errors,
 * never assertions.
 */
#ifndef VV_BASE_ASSERT_H
#define VV_BASE_ASSERT_H

/* Called with a description of the failed assertion. The default handler writes it to standard error
 * and aborts. If a handler returns, the program continues; only tests of the checkers use this. */
typedef void (*vv_assert_handler)(const char *file, int line, const char *text);

/* Replaces the handler; NULL restores the default. Returns the previous one. Any thread. */
vv_assert_handler vv_assert_set_handler(vv_assert_handler handler);

void vv_assert_fail(const char *file, int line, const char *text);

#ifdef VV_DEBUG
#define vv_assert(cond) ((cond) ? (void)0 : vv_assert_fail(__FILE__, __LINE__, #cond))
#else
#define vv_assert(cond) ((void)sizeof((cond) ? 1 : 0))
#endif

#endif
