/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of `varve cached`: the daemon, and the commands that talk to a running one. */
#ifndef CLI_CACHED_H
#define CLI_CACHED_H

#include <stdio.h>

#include "dataset/cached_settings.h"
#include "dataset/server.h"

/* ---- the daemon (cached_run.c) ---- */

/* Runs until it gets a request to stop. Returns an exit status. `ready_fd`: gets a byte when the daemon serves,
 * and is closed; -1: none. */
int cached_run(struct vv_cached *c, int ready_fd);

/* ---- nodes that find each other in a folder (cached_meet.c) ---- */

/* The job's token: from the file, or from the folder, where the first node puts it. Freed with free(). A negative
 * errno, with a text in `err`. */
int cached_token(const struct vv_cached *c, char *err, size_t err_bytes, void **ret_token,
                 size_t *ret_bytes);
/* Writes the address of this node for the others. */
int cached_meet_tell(const struct vv_cached *c, const char *addr);
/* Adds the others to a node. */
int cached_meet_look(const struct vv_cached *c, struct vv_node *n);
/* False: another node has replaced the address in this node's file with its own, because both have the same name. The
 * function then logs this and writes this node's address again, so that the other node detects it too. Do not call it
 * again after that. */
bool cached_meet_check(const struct vv_cached *c, const char *addr);
/* Removes the file of another node that has ended. */
void cached_meet_forget(const struct vv_cached *c, const char *name);
void cached_meet_leave(const struct vv_cached *c, const char *addr);

/* ---- figures (cached_status.c) ---- */

/* Counters of a daemon at some time. For a window: the increase and its length. */
struct cached_sample {
    uint64_t at_ns;
    uint64_t asked; /* files that programs wanted: handed out, or left to the shared file system */
    uint64_t hits;  /* from this node's disk or memory */
    uint64_t remote, left;
    uint64_t remote_bytes, shared_bytes;
};

struct cached_figures {
    const struct vv_cached *config;
    struct vv_node_status *node; /* freed with free() */
    struct vv_server_stats server;
    struct cached_sample minute, hour; /* or since the start, if the daemon is younger */
};

void cached_print_text(FILE *f, const struct cached_figures *s);
void cached_print_json(FILE *f, const struct cached_figures *s);
void cached_print_prometheus(FILE *f, const void *figures);

/* ---- figures of times gone by (cached_past.c) ---- */

struct cached_past;

/* NULL: no memory. */
struct cached_past *cached_past_new(void);
/* Accepts NULL. */
void cached_past_free(struct cached_past *p);
struct cached_sample cached_sample(const struct vv_node_status *s, uint64_t now_ns);
/* Stores the sample if the latest stored one is at least five seconds old. Any thread. */
void cached_past_add(struct cached_past *p, const struct cached_sample *now);
/* The increase in a window that ends now. Any thread. */
struct cached_sample cached_past_over(struct cached_past *p, const struct cached_sample *now,
                                      uint64_t window_ns);
/* Files that were left to the shared file system, for any reason. Missing files and paths that are not files do
 * not count. */
uint64_t cached_left(const struct vv_node_counters *c);

/* ---- the control socket (cached_control.c) ---- */

struct cached_control;

struct cached_control_opts {
    const struct vv_cached *config;
    struct vv_node *node;
    struct vv_server *server;
    int stop_fd; /* gets a byte when the daemon has to stop */
    struct cached_past *past;
};

int cached_control_open(const struct cached_control_opts *opts, char *err, size_t err_bytes,
                        struct cached_control **ret_control);
void cached_control_close(struct cached_control *c);
/* The figures of now. -ENOMEM. */
int cached_figures(const struct cached_control_opts *opts, struct cached_figures *ret_figures);

/* ---- asking a running daemon (cached_ask.c) ---- */

/* Sends a line and the output of `more`, and copies the answer to standard output; messages go to standard error.
 * Returns an exit status. */
int cached_ask(struct vv_cached *c, const char *line, int (*more)(FILE *f, void *arg), void *arg);
int cached_preload(struct vv_cached *c, int argc, char **argv);

#endif
