/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of net/ share: a node that answers, and remembers what it was told. */
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
    NT_HOLD,      /* is answered when the test says so */
    NT_SHORT,     /* asks for more than the file has */
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
    bool answer_holds; /* at once, as NT_ECHO */
};

/* The transport under test: each test runs over every one that there is. */
extern enum vv_net_transport nt_transport;
/* Runs all cases over TCP and, if it is there, UCX. */
void nt_over_all(void (*cases)(void));

uint8_t nt_pattern(uint64_t at);
/* All `n` bytes are the pattern from `at` on. */
bool nt_is_pattern(const void *p, size_t n, uint64_t at);

/* Opens a node; `tune` may be NULL. */
void nt_open(struct nt *n, uint64_t id, const char *token, void (*tune)(struct vv_net_opts *));
void nt_close(struct nt *n);
/* Each knows the other. */
void nt_meet(struct nt *a, struct nt *b);

/* Waits, without limit but the test's own, until `n->changes[change]` is at least `count`. */
void nt_await(struct nt *n, enum vv_net_change change, unsigned count);
void nt_await_held(struct nt *n, unsigned count);
void nt_answer_held(struct nt *n);

struct vv_net_ask nt_ask(const struct nt *to, enum nt_type type, const void *body, size_t bytes);

/* Another process with a node of this number. */
struct nt_child {
    pid_t pid;
    char addr[VV_NET_ADDR_MAX + 1];
    int in, out; /* pipes */
};

/* Starts it; it answers until it is ended or killed. It is told `peer_addr` by nt_child_meet, and then asks
 * that peer, `asks` times, for all of NT_FILE, a megabyte at a time; 0: it only answers. */
void nt_child_start(struct nt_child *c, uint64_t id, const char *token);
void nt_child_meet(struct nt_child *c, uint64_t peer, const char *addr, unsigned asks);
/* The result of its last nt_child_meet: 0, or what vv_net_wait said. */
int nt_child_result(struct nt_child *c);
void nt_child_kill(struct nt_child *c);

#endif
