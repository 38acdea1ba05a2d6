/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of `varve cached`: the daemon, and the commands that talk to a running one. */
#ifndef CLI_CACHED_H
#define CLI_CACHED_H

#include <stdio.h>

#include "dataset/cached.h"
#include "dataset/door.h"

/* ---- the daemon (cached_run.c) ---- */

/* Runs until it is told to stop. Returns an exit status. `ready_fd`: is written to when it serves, and closed;
 * -1: nobody waits. */
int cached_run(struct vv_cached *c, int ready_fd);

/* ---- nodes that find each other in a folder (cached_meet.c) ---- */

/* The job's token: that of the file, or the one in the folder, which is drawn by whoever comes first. Freed
 * with free(). A negative errno, with a text in `err`. */
int cached_token(const struct vv_cached *c, char *err, size_t err_bytes, void **ret_token,
                 size_t *ret_bytes);
/* Tells the others where this node is. */
int cached_meet_tell(const struct vv_cached *c, const char *addr);
/* Adds the others to a node. */
int cached_meet_look(const struct vv_cached *c, struct vv_node *n);
/* False: another node has written its address under this one's name since, which is logged. The file then has this one's
 * again, so that the other one finds out, too: to be called no more. */
bool cached_meet_check(const struct vv_cached *c, const char *addr);
/* Removes the file of another node, which is gone. */
void cached_meet_forget(const struct vv_cached *c, const char *name);
void cached_meet_leave(const struct vv_cached *c, const char *addr);

/* ---- figures (cached_status.c) ---- */

struct cached_figures {
    const struct vv_cached *config;
    struct vv_node_status *node; /* freed with free() */
    struct vv_door_stats door;
};

void cached_print_text(FILE *f, const struct cached_figures *s);
void cached_print_json(FILE *f, const struct cached_figures *s);
void cached_print_prometheus(FILE *f, const void *figures);

/* ---- the control socket (cached_control.c) ---- */

struct cached_control;

struct cached_control_opts {
    const struct vv_cached *config;
    struct vv_node *node;
    struct vv_door *door;
    int stop_fd; /* is written to when the daemon shall stop */
};

int cached_control_open(const struct cached_control_opts *opts, char *err, size_t err_bytes,
                        struct cached_control **ret_control);
void cached_control_close(struct cached_control *c);
/* Figures of now. -ENOMEM. */
int cached_figures(const struct cached_control_opts *opts, struct cached_figures *ret_figures);

/* ---- asking a running daemon (cached_ask.c) ---- */

/* Sends a line and whatever `more` writes, and copies what comes back to standard output; complaints to
 * standard error. Returns an exit status. */
int cached_ask(struct vv_cached *c, const char *line, int (*more)(FILE *f, void *arg), void *arg);
int cached_preload(struct vv_cached *c, int argc, char **argv);

#endif
