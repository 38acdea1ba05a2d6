/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of statistics pages in Prometheus' text exposition format, version 0.0.4. */
#ifndef VV_STATS_PROMETHEUS_H
#define VV_STATS_PROMETHEUS_H

#include <stdio.h>

#include "stats/stats_page.h"

/* One page to write, with `about` and `record` from a reader. */
struct vv_stats_target {
    const struct vv_stats_header *about;
    const struct vv_stats_record *record;
};

/* Writes all families, each with the samples of all targets. */
void vv_stats_prometheus(FILE *out, const struct vv_stats_target *targets, size_t n);

/* A file with these samples, replaced as a whole: a reader sees one version or the other. */
struct vv_stats_file;

/* `path`: %p stands for the number of the process, %r for its rank, %% for a percent sign. The
 * folder must exist; it is opened here, so that a change of the working directory does not
 * matter. `err` gets a text on failure: -EINVAL, -ENOENT, -EACCES, ... */
int vv_stats_file_open(const char *path, int rank, char *err, size_t err_bytes,
                       struct vv_stats_file **ret_file) VV_WARN_UNUSED;
int vv_stats_file_put(struct vv_stats_file *f, const struct vv_stats_target *target) VV_WARN_UNUSED;
/* The same with the output of `print`. */
int vv_stats_file_print(struct vv_stats_file *f, void (*print)(FILE *out, const void *arg),
                        const void *arg) VV_WARN_UNUSED;
/* The file stays. Accepts NULL. */
void vv_stats_file_close(struct vv_stats_file *f);

#endif
