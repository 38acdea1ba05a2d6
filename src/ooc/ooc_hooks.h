/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and measurements: the policies of papers that ours are compared with. The public functions refuse them;
 * these accept them too, and are otherwise the same. */
#ifndef VV_OOC_HOOKS_H
#define VV_OOC_HOOKS_H

#include <varve/blocks.h>
#include <varve/tables.h>

/* For varve_blocks_opts.policy: blocks are brought one by one between the rounds, and the least recently used one is
 * evicted, averaged over the runs. */
enum { VV_BLOCKS_PAPER = VARVE_BLOCKS_CLOCK + 1 };

/* For varve_tables_opts.policy: a table is evicted when no launch uses it; best fit, largest first; the processor gets
 * items without room, if there is `host`. */
enum { VV_TABLES_PAPER = VARVE_TABLES_NEXT_USE + 1 };

int vv_blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts,
                   struct varve_blocks **ret_blocks) VARVE_CHECK;
int vv_tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts,
                   struct varve_tables **ret_tables) VARVE_CHECK;
int vv_tables_plan(const struct varve_tables_opts *opts, const struct varve_tables_work *work,
                   const struct varve_tables_speeds *speeds,
                   struct varve_tables_stats *ret_stats) VARVE_CHECK;

#endif
