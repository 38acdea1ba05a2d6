/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on standard error that shows how far a long command is; on a terminal only. */
#ifndef CLI_COMMON_PROGRESS_H
#define CLI_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;       /* standard error is a terminal */
    uint64_t next_ns; /* not drawn again before */
};

void progress_init(struct progress *p);

/* Draws the bar at `share` (0 to 1) of the way, with a word on what is being done; not more often
 * than the eye can follow. */
void progress_show(struct progress *p, double share, const char *what);

/* Takes the bar away, before anything else is printed. May be called again. */
void progress_clear(struct progress *p);

#endif
