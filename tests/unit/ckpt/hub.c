/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/ckpt/hub.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"
#include "unit/ckpt/ck.h"

struct message {
    struct message *next;
    int from;
    void *data;
    size_t bytes;
};

struct end {
    struct hub *hub;
    int rank;
};

struct hub {
    int ranks;
    struct end end[HUB_MAX];
    pthread_barrier_t barrier;
    /* Each rank writes its own before a barrier; all ranks read them after it. */
    const struct varve_part *out[HUB_MAX];
    uint64_t value[HUB_MAX];
    pthread_mutex_t lock;
    /* Synchronization: lock. */
    struct message *first[HUB_MAX], **last[HUB_MAX];
    bool lose[HUB_MAX], spoil[HUB_MAX];
    uint64_t damage;
};

static void *copy_of(const void *data, size_t bytes)
{
    void *mem = NULL;
    T_EQ(posix_memalign(&mem, 4096, bytes), 0);
    memcpy(mem, data, bytes);
    return mem;
}

static int hub_send(void *arg, int32_t to, void *message, size_t bytes)
{
    struct end *e = arg;
    struct hub *hub = e->hub;
    struct message *m = calloc(1, sizeof(*m));
    T_CHECK(m && to >= 0 && to < hub->ranks);
    *m = (struct message){.from = e->rank, .data = copy_of(message, bytes), .bytes = bytes};
    free(message);
    pthread_mutex_lock(&hub->lock);
    if (bytes > 4096 && (hub->spoil[to] || (hub->damage > 0 && --hub->damage == 0)))
        ((char *)m->data)[4096 + (bytes - 4096) / 2] ^= 4;
    bool lost = hub->lose[to];
    if (!lost) {
        *hub->last[to] = m;
        hub->last[to] = &m->next;
    }
    pthread_mutex_unlock(&hub->lock);
    if (lost) {
        free(m->data);
        free(m);
    }
    return 0;
}

static int hub_receive(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    struct end *e = arg;
    struct hub *hub = e->hub;
    pthread_mutex_lock(&hub->lock);
    struct message *m = hub->first[e->rank];
    if (m) {
        hub->first[e->rank] = m->next;
        if (!m->next)
            hub->last[e->rank] = &hub->first[e->rank];
    }
    pthread_mutex_unlock(&hub->lock);
    if (!m)
        return -EAGAIN;
    *ret_from = m->from;
    *ret_message = m->data;
    *ret_bytes = m->bytes;
    free(m);
    return 0;
}

void hub_barrier(struct hub *hub)
{
    pthread_barrier_wait(&hub->barrier);
}

struct one {
    void (*fn)(void *arg, int rank);
    void *arg;
    int rank;
};

static void *one_main(void *arg)
{
    struct one *one = arg;
    one->fn(one->arg, one->rank);
    return NULL;
}

void hub_each(struct hub *hub, void (*fn)(void *arg, int rank), void *arg)
{
    pthread_t thread[HUB_MAX];
    struct one one[HUB_MAX];
    for (int i = 0; i < hub->ranks; i++) {
        one[i] = (struct one){fn, arg, i};
        T_EQ(pthread_create(&thread[i], NULL, one_main, &one[i]), 0);
    }
    for (int i = 0; i < hub->ranks; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
}

void hub_options(const char *base, int node, int rank, int ranks, struct varve_opts *ret_opts)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/disk%d", base, node);
    struct ck_cfg cfg = {.host_cache = 64 * 4096,
                         .local = path,
                         .level = VARVE_LEVEL_LOCAL,
                         .rank = rank,
                         .ranks = ranks};
    ck_opts(&cfg, ret_opts);
    ret_opts->partner_timeout_ms = CK_LIMIT_MS;
    snprintf(ret_opts->node, sizeof(ret_opts->node), "node%d", node);
}

void hub_wipe(const char *base, int node)
{
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s/disk%d'", base, node);
    T_EQ(system(command), 0);
}

static int hub_exchange(void *arg, const struct varve_part *out, struct varve_part *ret_in)
{
    struct end *e = arg;
    struct hub *hub = e->hub;
    hub->out[e->rank] = out;
    hub_barrier(hub);
    for (int i = 0; i < hub->ranks; i++) {
        const struct varve_part *p = &hub->out[i][e->rank];
        ret_in[i] = (struct varve_part){p->bytes > 0 ? copy_of(p->data, p->bytes) : NULL, p->bytes};
    }
    hub_barrier(hub);
    return 0;
}

static int hub_most(void *arg, uint64_t value, uint64_t *ret_most)
{
    struct end *e = arg;
    struct hub *hub = e->hub;
    uint64_t most = 0;
    hub->value[e->rank] = value;
    hub_barrier(hub);
    for (int i = 0; i < hub->ranks; i++)
        most = hub->value[i] > most ? hub->value[i] : most;
    hub_barrier(hub);
    *ret_most = most;
    return 0;
}

struct hub *hub_new(int ranks)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    T_CHECK(hub && ranks <= HUB_MAX);
    hub->ranks = ranks;
    T_EQ(pthread_mutex_init(&hub->lock, NULL), 0);
    T_EQ(pthread_barrier_init(&hub->barrier, NULL, (unsigned)ranks), 0);
    for (int i = 0; i < ranks; i++) {
        hub->end[i] = (struct end){hub, i};
        hub->last[i] = &hub->first[i];
    }
    return hub;
}

void hub_free(struct hub *hub)
{
    for (int i = 0; i < hub->ranks; i++)
        for (struct message *m = hub->first[i], *next; m; m = next) {
            next = m->next;
            free(m->data);
            free(m);
        }
    pthread_barrier_destroy(&hub->barrier);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

void hub_spoil(struct hub *hub, int to, bool spoil)
{
    pthread_mutex_lock(&hub->lock);
    hub->spoil[to] = spoil;
    pthread_mutex_unlock(&hub->lock);
}

void hub_lose(struct hub *hub, int to, bool lose)
{
    pthread_mutex_lock(&hub->lock);
    hub->lose[to] = lose;
    pthread_mutex_unlock(&hub->lock);
}

void hub_damage(struct hub *hub, uint64_t nth)
{
    pthread_mutex_lock(&hub->lock);
    hub->damage = nth;
    pthread_mutex_unlock(&hub->lock);
}

struct varve_transport hub_transport(struct hub *hub, int rank, bool threads)
{
    return (struct varve_transport){
        .transport_size = sizeof(struct varve_transport),
        .rank = rank,
        .ranks = hub->ranks,
        .threads = threads,
        .arg = &hub->end[rank],
        .send = hub_send,
        .receive = hub_receive,
        .exchange = hub_exchange,
        .most = hub_most,
    };
}
