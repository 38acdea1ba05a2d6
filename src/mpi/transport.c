/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI as a transport for partner copies.
 *
 * Messages and collective calls have separate communicators, so that they do not match the application's messages or each
 * other: under MPI_THREAD_MULTIPLE a thread of the library sends while one of the application is in a collective call.
 * Below that level the library calls MPI only on the application's threads, and `may_call` excludes those that MPI does
 * not allow.
 *
 * Only the collective calls wait for other processes. Sends are tested during other calls, and a message whose header has
 * arrived is received in the background, so that a process that stops in the middle of a message blocks no other. The
 * messages of one sender are delivered in order.
 *
 * Errors of these communicators are returned, independent of the application's error handlers.
 *
 * Threads: one thread at a time calls send, receive and close; one thread at a time calls exchange and most.
 */
#include "mpi/transport.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { TAG = 1, SLOTS = 16, CLOSE_TRIES = 2000, CLOSE_POLL_NS = 500000 };

/* A message that is being sent. */
struct sending {
    struct sending *next;
    MPI_Request request;
    void *message;
};

/* A message that is being received. */
struct receiving {
    MPI_Request request;
    void *message;
    size_t bytes;
    int from;
    bool done;
};

struct transport {
    MPI_Comm messages, together;
    int size, level;
    struct sending *sends;
    struct receiving slot[SLOTS]; /* in the order in which they were matched */
    int nslots;
    /* State of an exchange, by rank; two requests for each. */
    uint64_t *out_bytes, *in_bytes;
    struct varve_part *in;
    MPI_Request *requests;
};

static int of_mpi(int code)
{
    return code == MPI_SUCCESS ? 0 : -ECOMM;
}

static int may_call(void *arg)
{
    struct transport *t = arg;
    int main_thread = 1;
    if (t->level >= MPI_THREAD_SERIALIZED)
        return 1;
    MPI_Is_thread_main(&main_thread);
    return main_thread;
}

/* ---- messages ---- */

static void test_sends(struct transport *t)
{
    for (struct sending **at = &t->sends; *at;) {
        struct sending *s = *at;
        int done = 0;
        if (MPI_Test(&s->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free(s->message);
        free(s);
    }
}

static int send_message(void *arg, int32_t to, void *message, size_t bytes)
{
    struct transport *t = arg;
    struct sending *s = malloc(sizeof(*s));
    int rc = !s ? -ENOMEM : bytes > INT_MAX ? -EMSGSIZE : 0;
    test_sends(t);
    if (rc == 0)
        rc = of_mpi(MPI_Isend(message, (int)bytes, MPI_BYTE, to, TAG, t->messages, &s->request));
    if (rc) {
        free(message);
        free(s);
        return rc;
    }
    s->message = message;
    s->next = t->sends;
    t->sends = s;
    return 0;
}

/* Begins to receive messages that MPI has matched. */
static int take_announced(struct transport *t)
{
    while (t->nslots < SLOTS) {
        struct receiving *r = &t->slot[t->nslots];
        MPI_Message handle;
        MPI_Status status;
        int there = 0, bytes = 0;
        int rc = of_mpi(MPI_Improbe(MPI_ANY_SOURCE, TAG, t->messages, &there, &handle, &status));
        if (rc || !there)
            return rc;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        *r = (struct receiving){.bytes = (size_t)bytes, .from = status.MPI_SOURCE};
        if (posix_memalign(&r->message, 4096, bytes > 0 ? (size_t)bytes : 1) != 0)
            return -ENOMEM; /* the message is lost, and the copy that it belongs to fails */
        rc = of_mpi(MPI_Imrecv(r->message, bytes, MPI_BYTE, &handle, &r->request));
        if (rc) {
            free(r->message);
            return rc;
        }
        t->nslots++;
    }
    return 0;
}

/* The first message that has arrived and has none of the same sender before it; -1: there is none. */
static int first_done(struct transport *t)
{
    for (int i = 0; i < t->nslots; i++) {
        struct receiving *r = &t->slot[i];
        bool behind = false;
        int done = 0;
        for (int k = 0; k < i; k++)
            behind = behind || t->slot[k].from == r->from;
        if (!r->done && MPI_Test(&r->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            r->done = done;
        if (r->done && !behind)
            return i;
    }
    return -1;
}

static int receive_message(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    struct transport *t = arg;
    test_sends(t);
    int rc = take_announced(t);
    if (rc)
        return rc;
    int at = first_done(t);
    if (at < 0)
        return -EAGAIN;
    *ret_from = t->slot[at].from;
    *ret_message = t->slot[at].message;
    *ret_bytes = t->slot[at].bytes;
    t->nslots--;
    for (int i = at; i < t->nslots; i++)
        t->slot[i] = t->slot[i + 1];
    return 0;
}

/* ---- collective calls ---- */

/* Allocates memory for the incoming parts. Collective: all processes get memory, or none does. */
static int make_room(struct transport *t, const struct varve_part *out, struct varve_part *in)
{
    int rc = 0, worst = 0;
    for (int i = 0; rc == 0 && i < t->size; i++) {
        if (out[i].bytes > INT_MAX || t->in_bytes[i] > INT_MAX)
            rc = -EMSGSIZE;
        else if (t->in_bytes[i] > 0 && posix_memalign(&in[i].data, 4096, t->in_bytes[i]) != 0)
            rc = -ENOMEM, in[i].data = NULL;
        else
            in[i].bytes = t->in_bytes[i];
    }
    int bad = of_mpi(MPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, t->together));
    rc = bad ? bad : worst;
    for (int i = 0; rc && i < t->size; i++) {
        free(in[i].data);
        in[i] = (struct varve_part){0};
    }
    return rc;
}

/* Once a transfer has begun MPI owns its memory: if MPI fails, the memory is not freed. */
static int exchange_parts(struct transport *t, const struct varve_part *out, struct varve_part *in)
{
    int rc = 0, n = 0;
    for (int i = 0; rc == 0 && i < t->size; i++)
        if (in[i].bytes > 0)
            rc = of_mpi(MPI_Irecv(in[i].data, (int)in[i].bytes, MPI_BYTE, i, TAG, t->together,
                                  &t->requests[n++]));
    for (int i = 0; rc == 0 && i < t->size; i++)
        if (out[i].bytes > 0)
            rc = of_mpi(MPI_Isend(out[i].data, (int)out[i].bytes, MPI_BYTE, i, TAG, t->together,
                                  &t->requests[n++]));
    bool posted = rc == 0;
    for (int i = 0; posted && i < n; i++)
        if (MPI_Wait(&t->requests[i], MPI_STATUS_IGNORE) != MPI_SUCCESS)
            rc = -ECOMM;
    return rc;
}

/* Most processes have no bytes for most others, so only parts with bytes are sent. Sending begins when all processes have
 * memory for their incoming parts: a process that fails before leaves no other waiting. */
static int exchange(void *arg, const struct varve_part *out, struct varve_part *ret_in)
{
    struct transport *t = arg;
    for (int i = 0; i < t->size; i++) {
        t->out_bytes[i] = out[i].bytes;
        t->in[i] = (struct varve_part){0};
    }
    int rc = of_mpi(
        MPI_Alltoall(t->out_bytes, 1, MPI_UINT64_T, t->in_bytes, 1, MPI_UINT64_T, t->together));
    if (rc == 0)
        rc = make_room(t, out, t->in);
    if (rc == 0)
        rc = exchange_parts(t, out, t->in);
    for (int i = 0; rc == 0 && i < t->size; i++)
        ret_in[i] = t->in[i];
    return rc;
}

static int most(void *arg, uint64_t value, uint64_t *ret_most)
{
    struct transport *t = arg;
    uint64_t got = 0;
    int rc = of_mpi(MPI_Allreduce(&value, &got, 1, MPI_UINT64_T, MPI_MAX, t->together));
    if (rc == 0)
        *ret_most = got;
    return rc;
}

/* ---- opening and closing ---- */

static void transport_free(struct transport *t)
{
    int over = 1;
    MPI_Finalized(&over);
    if (!over && t->messages != MPI_COMM_NULL)
        MPI_Comm_free(&t->messages);
    if (!over && t->together != MPI_COMM_NULL)
        MPI_Comm_free(&t->together);
    free(t->out_bytes);
    free(t->in_bytes);
    free(t->in);
    free(t->requests);
    free(t);
}

/* All memory is allocated before the first collective call, in which the others would wait. */
static struct transport *transport_new(int size)
{
    struct transport *t = calloc(1, sizeof(*t));
    size_t n = (size_t)size;
    if (!t)
        return NULL;
    t->size = size;
    t->messages = t->together = MPI_COMM_NULL;
    t->out_bytes = calloc(n, sizeof(*t->out_bytes));
    t->in_bytes = calloc(n, sizeof(*t->in_bytes));
    t->in = calloc(n, sizeof(*t->in));
    t->requests = calloc(2 * n, sizeof(MPI_Request));
    if (t->out_bytes && t->in_bytes && t->in && t->requests)
        return t;
    transport_free(t);
    return NULL;
}

/* Waits for the last messages that are being sent. Messages to a process that has ended are never received: they, and
 * their memory, are left to MPI. */
static void close_transport(void *arg)
{
    struct transport *t = arg;
    const struct timespec interval = {0, CLOSE_POLL_NS};
    int over = 1;
    MPI_Finalized(&over);
    for (int i = 0; !over && t->sends && i < CLOSE_TRIES; i++) {
        test_sends(t);
        if (t->sends)
            nanosleep(&interval, NULL);
    }
    for (struct sending *s = t->sends, *next; s; s = next) {
        next = s->next;
        if (!over)
            MPI_Request_free(&s->request);
        free(s);
    }
    for (int i = 0; i < t->nslots; i++) {
        if (t->slot[i].done)
            free(t->slot[i].message);
        else if (!over)
            MPI_Request_free(&t->slot[i].request);
    }
    transport_free(t);
}

int vvi_mpi_transport(MPI_Comm comm, struct varve_transport *ret_transport)
{
    int rank = 0, size = 1, worst = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    struct transport *t = transport_new(size);
    int rc = t ? 0 : -ENOMEM;
    int bad = of_mpi(MPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, comm));
    if (bad || worst) {
        if (t)
            transport_free(t);
        return bad ? bad : worst;
    }
    rc = of_mpi(MPI_Comm_dup(comm, &t->messages));
    if (rc == 0)
        rc = of_mpi(MPI_Comm_dup(comm, &t->together));
    if (rc) {
        transport_free(t);
        return rc;
    }
    MPI_Comm_set_errhandler(t->messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(t->together, MPI_ERRORS_RETURN);
    MPI_Query_thread(&t->level);
    *ret_transport = (struct varve_transport){
        .transport_size = sizeof(*ret_transport),
        .rank = rank,
        .ranks = t->size,
        .threads = t->level == MPI_THREAD_MULTIPLE,
        .arg = t,
        .may_call = may_call,
        .send = send_message,
        .receive = receive_message,
        .exchange = exchange,
        .most = most,
        .close = close_transport,
    };
    return 0;
}
