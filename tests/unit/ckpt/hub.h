/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one test as the processes of a job: a transport (varve/transport.h) of queues in memory,
 * which can lose messages and damage them. */
#ifndef HUB_H
#define HUB_H

#include <stdbool.h>
#include <stdint.h>

#include <varve/transport.h>

enum { HUB_MAX = 16 };

struct hub;

struct hub *hub_new(int ranks);
void hub_free(struct hub *hub);
/* The transport of one rank. */
struct varve_transport hub_transport(struct hub *hub, int rank, bool threads);
/* From now on messages to this rank are lost, or are not. */
void hub_lose(struct hub *hub, int to, bool lose);
/* Flips a bit in the middle of the n-th message from now on that has more than 4 KiB; 0: none. */
void hub_damage(struct hub *hub, uint64_t nth);
/* From now on every such message to this rank is damaged, or none is. */
void hub_spoil(struct hub *hub, int to, bool spoil);
/* A barrier of all ranks. */
void hub_barrier(struct hub *hub);
/* Calls fn for each rank on a separate thread, and waits for all. */
void hub_each(struct hub *hub, void (*fn)(void *arg, int rank), void *arg);

/* The options of a rank on a node: level local, in the folder diskNODE of `base`. */
void hub_options(const char *base, int node, int rank, int ranks, struct varve_opts *ret_opts);
/* Removes the folder of a node. */
void hub_wipe(const char *base, int node);

#endif
