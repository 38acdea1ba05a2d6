/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define WIDTH     30
#define REDRAW_NS (100 * VV_NS_PER_MS)

void progress_init(struct progress *p)
{
    *p = (struct progress){.shown = isatty(STDERR_FILENO)};
}

void progress_show(struct progress *p, double share, const char *what)
{
    static const char full[WIDTH + 1] = "##############################";
    uint64_t now = vv_now_ns();
    int n = (int)lround(fmin(fmax(share, 0), 1) * WIDTH);

    if (!p->shown || now < p->next_ns)
        return;
    p->next_ns = now + REDRAW_NS;
    fprintf(stderr, "\r[%-*.*s] %3.0f%%  %-40.40s", WIDTH, n, full, 100 * fmin(fmax(share, 0), 1),
            what);
    fflush(stderr);
}

void progress_clear(struct progress *p)
{
    if (!p->shown)
        return;
    p->next_ns = 0;
    fprintf(stderr, "\r%*s\r", WIDTH + 50, "");
    fflush(stderr);
}
