/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on standard error with the progress of a long command; on a terminal only. */
#ifndef CLI_COMMON_PROGRESS_H
#define CLI_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;       /* standard error is a terminal */
    uint64_t next_ns; /* not drawn again before that time */
};

void progress_init(struct progress *p);

/* Draws the bar at `share` (0 to 1), with a word on the present work; not more often than the eye can follow. */
void progress_show(struct progress *p, double share, const char *what);

/* Removes the bar before other output. May be called again. */
void progress_clear(struct progress *p);

#endif
