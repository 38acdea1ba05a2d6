/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One helper process on a node. It reads and writes files for all processes of a job there, on cores that
 * the application leaves free. It shares memory with them and receives their descriptors: it copies nothing and
 * opens nothing.
 *
 * However the helper ends, no request is lost and none is carried out twice at the same time: requests that
 * it has not answered are carried out by the process that sent them (see aio_helper.c).
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
    /* Processes that give the same name share a helper. Empty or NULL: the processes of one batch job,
     * or without one all of this user. */
    const char *name;
    /* The `varve` program, which is started if no helper answers. Empty or NULL: the one beside the
     * library, or else the one in PATH. */
    const char *program;
    const char *cores; /* for a helper that is started: as in vv_helper_serve */
    int nice;
    bool no_start; /* use only a running helper */
    int tick_ms;   /* silent for 20 of these with requests in flight, it is killed; 0: 1000 */
};

/* -ECONNREFUSED: no helper runs and none could be started; -EPROTO: the helper is of another version;
 * -EPERM: it is another user's; with a text. May take some seconds if the helper cannot be reached. */
VV_WARN_UNUSED int vv_helper_open(const struct vv_helper_opts *opts, char *err, size_t err_bytes,
                                  struct vv_helper **ret_helper);
/* Call it after everything that uses the helper has ended, and all memory of vv_helper_map is unmapped.
 * Accepts NULL. */
void vv_helper_close(struct vv_helper *helper);

/*
 * Memory that the helper can reach: zeroed, aligned to 2 MiB, allocated on first touch. -ENOMEM or another
 * error of the system. Requests on other memory are carried out in this process. Unmap it with no request on
 * it in flight; NULL is allowed.
 */
VV_WARN_UNUSED int vv_helper_map(struct vv_helper *helper, size_t bytes, void **ret_ptr);
void vv_helper_unmap(struct vv_helper *helper, void *ptr);

struct vv_helper_stats {
    pid_t pid;
    bool alive;
    uint64_t requests, bytes; /* carried out for this process */
    uint64_t redone;          /* not answered or refused: carried out in this process */
    uint64_t cpu_ns;          /* processor time of these requests */
    int cpu;                  /* processor that it ran on last; -1: not known */
    int nice;
    unsigned threads;
    char where[VV_HELPER_WHERE]; /* list of the processors that it is bound to; "any" */
};

/* Any thread. */
void vv_helper_get_stats(struct vv_helper *helper, struct vv_helper_stats *ret_stats);

/* ---- the helper itself ---- */

/* Takes the name and returns a descriptor to serve. -EADDRINUSE: a helper of that name runs. */
VV_WARN_UNUSED int vv_helper_listen(const char *name, int *ret_fd);

struct vv_helper_serve_opts {
    const char *cores; /* as in vv_thread_group_new; NULL: any allowed processor */
    int nice;
    unsigned threads; /* threads that read and write; 0: 4 */
    int idle_ms;      /* ends after this time without a connection; negative: never */
    int stop_fd;      /* ends when it becomes readable; -1: none */
};

struct vv_helper_served {
    uint64_t processes, requests, bytes, cpu_ns; /* cpu_ns: of all its threads */
    char where[VV_HELPER_WHERE];
};

/*
 * Serves until it has to end, then closes the descriptor. Running requests are finished; queued ones are left
 * to the processes that sent them. `ret_served` may be NULL. -EINVAL, with a text: cores or nice; -ENOMEM,
 * -EAGAIN.
 */
VV_WARN_UNUSED int vv_helper_serve(int listen_fd, const struct vv_helper_serve_opts *opts,
                                   char *err, size_t err_bytes,
                                   struct vv_helper_served *ret_served);

#endif
