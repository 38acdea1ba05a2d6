/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of net/: a node that answers, and counts its events. */
#ifndef NT_H
#define NT_H

#include <pthread.h>
#include <sys/types.h>

#include "net/net.h"
#include "t.h"

#define NT_S UINT64_C(1000000000)

enum nt_type {
    NT_ECHO = 10, /* answers with its body */
    NT_STATUS,    /* answers with a status: the first four bytes of the body */
    NT_MEMORY,    /* struct nt_range: bytes of the pattern, from memory */
    NT_FILE,      /* the same from a file */
    NT_HOLD,      /* is answered when the test wants it */
    NT_SHORT,     /* requests more than the file has */
};

struct nt_range {
    uint64_t offset, bytes;
};

#define NT_FILE_BYTES (UINT64_C(6) << 20)
#define NT_HOLD_MAX   1024

struct nt {
    struct vv_net *net;
    uint64_t id;
    int file; /* NT_FILE_BYTES of the pattern */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct vv_net_req *held[NT_HOLD_MAX];
    unsigned nr_held;
    unsigned changes[8];      /* of each vv_net_change */
    uint64_t changed_peer[8]; /* the last of each */
    unsigned messages;
    uint64_t message_sum, newer_epoch;
    bool answer_holds; /* answers NT_HOLD at once, as NT_ECHO */
};

/* The transport under test: each test runs over every available one. */
extern enum vv_net_transport nt_transport;
/* Runs all cases over TCP and, if available, UCX. */
void nt_over_all(void (*cases)(void));
/* As T_RUN, in a process of its own. */
#define NT_RUN(fn) nt_run(#fn, fn)
void nt_run(const char *name, void (*fn)(void));

uint8_t nt_pattern(uint64_t at);
/* All `n` bytes are the pattern from `at` on. */
bool nt_is_pattern(const void *p, size_t n, uint64_t at);

/* Opens a node; `tune` may be NULL. */
void nt_open(struct nt *n, uint64_t id, const char *token, void (*tune)(struct vv_net_opts *));
void nt_close(struct nt *n);
/* Waits, limited only by the test's own time, until `n->changes[change]` is at least `count`. */
void nt_await(struct nt *n, enum vv_net_change change, unsigned count);
void nt_await_held(struct nt *n, unsigned count);
void nt_answer_held(struct nt *n);

struct vv_net_ask nt_ask(uint64_t to, enum nt_type type, const void *body, size_t bytes);

/* ---- a node in another process ---- */

/*
 * UCX cannot be used twice in one process (its events get mixed up), and a process that has used it must not fork. So
 * each case runs in a process of its own, has one node in it, and forks the other nodes before.
 */
struct nt_far {
    uint64_t id;
    pid_t pid;
    char addr[VV_NET_ADDR_MAX + 1];
    int in, out; /* pipes */
};

struct nt_seen {
    unsigned changes[8], messages, held;
    uint64_t newer_epoch;
};

/* Starts it; it answers until it is closed or killed. */
void nt_far_open(struct nt_far *f, uint64_t id, const char *token,
                 void (*tune)(struct vv_net_opts *));
/* Closes it regularly, and without errors. */
void nt_far_close(struct nt_far *f);
void nt_far_kill(struct nt_far *f);

void nt_far_peer(struct nt_far *f, const struct nt *peer);
void nt_far_epoch(struct nt_far *f, uint64_t epoch);
void nt_far_answer_held(struct nt_far *f);
void nt_far_await_held(struct nt_far *f, unsigned count);
void nt_far_await_messages(struct nt_far *f, unsigned count);
void nt_far_await(struct nt_far *f, enum vv_net_change change);
void nt_far_see(struct nt_far *f, struct nt_seen *ret_seen);
/* The result of a call with an empty NT_ECHO to that peer. */
int nt_far_echo(struct nt_far *f, uint64_t peer);
/* Has it request a megabyte of NT_FILE from a peer, `asks` times, and verify it. nt_far_result returns 0, or the
 * error of a call. */
void nt_far_load(struct nt_far *f, uint64_t peer, unsigned asks);
int nt_far_result(struct nt_far *f);

/* Sets the addresses of both. */
void nt_meet(struct nt *a, struct nt_far *b);

#endif
