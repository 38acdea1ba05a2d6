/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions about our own bugs. They stop a debug build (VV_DEBUG) and cost nothing in a release
 * build, where the condition is not evaluated. Bad input, full disks and lost devices are errors,
 * never assertions.
 */
#ifndef VV_BASE_ASSERT_H
#define VV_BASE_ASSERT_H

/* Called with a description of what was found broken. The default one writes it to standard error
 * and aborts. A handler that returns lets the program go on, which only tests of the checkers
 * themselves should want. */
typedef void (*vv_assert_handler)(const char *file, int line, const char *text);

/* Replaces the handler; NULL restores the default. Returns the former one. Any thread. */
vv_assert_handler vv_assert_set_handler(vv_assert_handler handler);

void vv_assert_fail(const char *file, int line, const char *text);

#ifdef VV_DEBUG
#define vv_assert(cond) ((cond) ? (void)0 : vv_assert_fail(__FILE__, __LINE__, #cond))
#else
#define vv_assert(cond) ((void)sizeof((cond) ? 1 : 0))
#endif

#endif
