/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_STATS_PAGE_PRIVATE_H
#define VV_STATS_PAGE_PRIVATE_H

#define VVI_STATS_FOLDER "/dev/shm"
#define VVI_STATS_NAME   "varve-stats."

#endif
