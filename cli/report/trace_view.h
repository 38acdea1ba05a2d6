/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report shows, found from the timeline of a trace: which bytes took which way, what went on
 * while calls waited, and the bound. docs/report.md says how each figure is made.
 */
#ifndef CLI_REPORT_TRACE_VIEW_H
#define CLI_REPORT_TRACE_VIEW_H

#include "cli/report/trace_page.h"
#include "trace/timeline.h"

struct trace_view;

/* The timeline and its file must outlive the view. -ENOMEM. */
VV_WARN_UNUSED int trace_view_new(const struct vv_timeline *timeline, struct trace_view **ret_view);
/* Accepts NULL. */
void trace_view_free(struct trace_view *view);
/* Belongs to the view. */
const struct trace_page *trace_view_page(const struct trace_view *view);

#endif
