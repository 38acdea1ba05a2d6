/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of a report: lanes are split into rows without overlaps, reduced to few enough spans, and drawn. */
#ifndef CLI_REPORT_TRACE_SPANS_H
#define CLI_REPORT_TRACE_SPANS_H

#include "cli/report/trace_page.h"

/* Rows that a lane is split into where its spans overlap. */
#define TRACK_ROWS 4

struct track {
    size_t lane;
    unsigned row, nr_rows;
    struct span *spans; /* by start */
    size_t nr;
};

struct tracks {
    struct track *tracks; /* by lane, then by row */
    size_t nr;
    size_t nr_spans;    /* of all tracks   */
    uint64_t nr_before; /* of all lanes    */
    uint64_t merged_ns; /* shorter spans may have been combined; 0: none were */
    double wall_ns;
};

/* `most`: the limit of spans. -ENOMEM. */
VV_WARN_UNUSED int tracks_make(const struct lane *lanes, size_t nr_lanes, double wall_s,
                               size_t most, struct tracks *ret_tracks);
void tracks_fini(struct tracks *tracks);

/* One lane as an <svg> that may be stretched. Each column has the share of the time of each kind. -ENOMEM. */
VV_WARN_UNUSED int tracks_draw(FILE *f, const struct tracks *tracks, size_t lane);

/* All spans in base64; cli/report/trace_page.js reads them. -ENOMEM. */
VV_WARN_UNUSED int tracks_pack(FILE *f, const struct tracks *tracks);

#endif
