/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a report, made from the timeline of a trace: the copies from place to place, the activities while
 * calls waited, and the bound. docs/report.md explains each figure.
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
