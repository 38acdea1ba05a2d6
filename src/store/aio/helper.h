/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One helper process on a node, which reads and writes files for all processes of a job there, on
 * cores that they leave free. Memory is shared with it, and descriptors are passed to it: it copies
 * nothing and opens nothing.
 *
 * Whatever becomes of the helper, no request is lost and none is done twice at the same time: what it
 * has not answered when it ends is done in the process that asked (see aio_helper.c).
 */
#ifndef VV_STORE_HELPER_H
#define VV_STORE_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

enum { VV_HELPER_WHERE = 64 };

/* ---- a process that has one ---- */

struct vv_helper;

struct vv_helper_opts {
    /* Who names it alike shares it. Empty or NULL: the processes of one batch job, or else all of this
     * user's. */
    const char *name;
    /* The `varve` program, which is started if no helper answers. Empty or NULL: beside the library, or
     * else found by the usual path. */
    const char *program;
    const char *cores; /* for one that is started: as of vv_helper_serve */
    int nice;
    bool no_start; /* only one that is there */
    int tick_ms; /* without a sign for 20 of these, while something is under way, it is ended; 0: 1000 */
};

/* -ECONNREFUSED: there is none, and none could be started; -EPROTO: one of another version; -EPERM:
 * somebody else's; with a text. Takes up to some seconds if it cannot be reached. */
VV_WARN_UNUSED int vv_helper_open(const struct vv_helper_opts *opts, char *err, size_t err_bytes,
                                  struct vv_helper **ret_helper);
/* After all that uses it, memory included. Accepts NULL. */
void vv_helper_close(struct vv_helper *helper);

/*
 * Memory that the helper can reach: zeroes, aligned to 2 MiB, made when it is touched. -ENOMEM or
 * another error of the system. What is not of this memory cannot be read or written by the helper, and
 * is not: it is done in this process. Unmapped with nothing of it under way; NULL is allowed.
 */
VV_WARN_UNUSED int vv_helper_map(struct vv_helper *helper, size_t bytes, void **ret_ptr);
void vv_helper_unmap(struct vv_helper *helper, void *ptr);

struct vv_helper_stats {
    pid_t pid;
    bool alive;
    uint64_t requests, bytes; /* that it has carried out for this process */
    uint64_t redone;          /* that it did not answer, or refused: done in this process */
    uint64_t cpu_ns;          /* processor time that these took it */
    int cpu;                  /* that it ran on last; -1: not known */
    int nice;
    unsigned threads;
    char where[VV_HELPER_WHERE]; /* the processors that it is bound to, as a list; "any" */
};

/* Any thread. */
void vv_helper_get_stats(struct vv_helper *helper, struct vv_helper_stats *ret_stats);

/* ---- the helper itself ---- */

/* Takes the name; a descriptor to serve. -EADDRINUSE: there is a helper of that name. */
VV_WARN_UNUSED int vv_helper_listen(const char *name, int *ret_fd);

struct vv_helper_serve_opts {
    const char *cores; /* as of vv_thread_group_new; NULL: any that the system lets it use */
    int nice;
    unsigned threads; /* that read and write; 0: 4 */
    int idle_ms;      /* ends when nobody has been there for so long; negative: never */
    int stop_fd;      /* ends when it can be read; -1: none */
};

struct vv_helper_served {
    uint64_t processes, requests, bytes, cpu_ns; /* cpu_ns: of all its threads */
    char where[VV_HELPER_WHERE];
};

/*
 * Serves until it is to end; closes the descriptor. What is under way is finished, what is queued is
 * left to those who asked. `ret_served` may be NULL. -EINVAL, with a text: cores or nice; -ENOMEM,
 * -EAGAIN.
 */
VV_WARN_UNUSED int vv_helper_serve(int listen_fd, const struct vv_helper_serve_opts *opts,
                                   char *err, size_t err_bytes,
                                   struct vv_helper_served *ret_served);

#endif
