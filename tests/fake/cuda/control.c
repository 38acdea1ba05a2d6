/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entering and leaving the entry points of the stand-in, its settings, and failures on demand.
 *
 * An entry point first checks here: has the process ended or forked, was the driver initialised, is a context current,
 * has a test ordered this call to fail. It looks at its arguments only then, so that an ordered failure has no effect.
 *
 * As with the driver, a forked child gets errors and not the parent's state: the process id is
 * compared before the lock is touched, since another thread may have held it at the fork.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"
#include "private.h"

enum { MAX_RULES = 16, NAME_BYTES = 64 };

struct rule {
    char name[NAME_BYTES]; /* empty: unused */
    bool late;
    unsigned long long skip; /* calls that still succeed */
    long long left;          /* remaining failures; negative: for ever */
    int code;
};

struct fake_settings fake_set = {
    .devices = 1,
    .memory = 16LL << 30,
#ifdef FAKE_CUDA_OLD
    .version = 11000,
#else
    .version = 13000,
#endif
    .kernels = 1,
    .guard = 1,
};

static const struct {
    const char *key;
    long long *value;
} keys[] = {
    {"devices", &fake_set.devices},       {"memory", &fake_set.memory},
    {"version", &fake_set.version},       {"kernels", &fake_set.kernels},
    {"guard", &fake_set.guard},           {"rate_d2d", &fake_set.rate_d2d},
    {"rate_d2h", &fake_set.rate_d2h},     {"rate_h2d", &fake_set.rate_h2d},
    {"latency_ns", &fake_set.latency_ns}, {"rate_register", &fake_set.rate_register},
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_done = PTHREAD_COND_INITIALIZER;
bool fake_inited;
int fake_lost;

static struct rule rules[MAX_RULES];
static struct fake_entry *entries;
static _Atomic bool ended;
static _Atomic pid_t owner; /* the process that has initialised CUDA; 0: none yet */

API fake_cuda_set_fn fake_cuda_set;
API fake_cuda_fail_fn fake_cuda_fail;
API fake_cuda_fail_async_fn fake_cuda_fail_async;
API fake_cuda_lose_fn fake_cuda_lose;
API fake_cuda_heal_fn fake_cuda_heal;
API fake_cuda_calls_fn fake_cuda_calls;
API fake_cuda_live_fn fake_cuda_live;
API fake_cuda_map_fn fake_cuda_map;

__attribute__((constructor)) static void load(void)
{
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char name[NAME_BYTES] = "FAKE_CUDA_";
        size_t at = strlen(name);
        for (const char *k = keys[i].key; *k; k++)
            name[at++] = (char)(*k >= 'a' && *k <= 'z' ? *k - 'a' + 'A' : *k);
        const char *text = getenv(name);
        if (text)
            *keys[i].value = strtoll(text, NULL, 0);
    }
    const char *hide = getenv("FAKE_CUDA_HIDE");
    if (hide)
        snprintf(fake_set.hide, sizeof(fake_set.hide), "%s", hide);
}

uint64_t fake_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool fake_hidden(const char *name)
{
    size_t n = strlen(name);
    for (const char *p = fake_set.hide; (p = strstr(p, name)); p += n) {
        bool starts = p == fake_set.hide || p[-1] == ',';
        if (starts && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* The code of the first rule that fires; every matching rule counts the call. */
static int rule_code(const char *name, bool late)
{
    int code = 0;
    for (size_t i = 0; i < MAX_RULES; i++) {
        struct rule *r = &rules[i];
        if (!r->name[0] || r->late != late)
            continue;
        if (strcmp(r->name, "*") != 0 && strcmp(r->name, name) != 0)
            continue;
        if (r->skip > 0) {
            r->skip--;
            continue;
        }
        if (code == 0)
            code = r->code;
        if (r->left > 0 && --r->left == 0)
            r->name[0] = '\0';
    }
    return code;
}

/* True for errors after which nothing runs in a context any more. */
static bool is_fatal(int code)
{
    static const int codes[] = {3,   4,   46,  100, 214, 220, 226, 700, 702,
                                709, 710, 714, 715, 716, 717, 718, 719, 721};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i] == code)
            return true;
    }
    return false;
}

/* Drops the lock while it waits for running work. */
static void break_contexts(int code)
{
    for (struct fake_ctx *c = fake_contexts; c; c = c->next) {
        if (!c->alive)
            continue;
        fake_streams_stop(c);
        if (c->error == 0)
            c->error = code;
        fake_streams_drop(c, c->life);
    }
}

int fake_late_failure(void)
{
    return rule_code("", true);
}

static bool in_child(void)
{
    pid_t pid = atomic_load(&owner);
    return pid && getpid() != pid;
}

/* The driver ends before exit handlers that were registered before its initialisation. None of its work, such as
 * copies to pinned pages, touches memory that those handlers free. */
static void end(void)
{
    atomic_store(&ended, true);
    if (in_child())
        return;
    pthread_mutex_lock(&fake_lock);
    break_contexts(FAKE_DEINITIALIZED);
    pthread_mutex_unlock(&fake_lock);
}

void fake_start(void)
{
    if (fake_inited)
        return;
    fake_inited = true;
    atomic_store(&owner, getpid());
    atexit(end);
}

int fake_enter(struct fake_entry *e, unsigned need)
{
    if (atomic_load(&ended))
        return FAKE_DEINITIALIZED;
    if (in_child())
        return FAKE_NOT_INITIALIZED;
    pthread_mutex_lock(&fake_lock);
    if (!e->known) {
        e->known = true;
        e->next = entries;
        entries = e;
    }
    e->calls++;
    int rc = atomic_load(&ended) ? FAKE_DEINITIALIZED : rule_code(e->name, false);
    if (rc && fake_inited && is_fatal(rc))
        break_contexts(rc);
    if (rc == 0)
        rc = fake_lost;
    if (rc == 0 && fake_set.hide[0] && fake_hidden(e->name))
        rc = FAKE_NOT_SUPPORTED;
    if (rc == 0 && (need & FAKE_NEED_INIT) && !fake_inited)
        rc = FAKE_NOT_INITIALIZED;
    if (rc == 0 && (need & FAKE_NEED_CTX) == FAKE_NEED_CTX)
        rc = fake_ctx_usable(fake_current());
    if (rc == 0 && (need & FAKE_NEED_CALM))
        rc = fake_capture_check();
    if (rc)
        pthread_mutex_unlock(&fake_lock);
    return rc;
}

int fake_leave(int rc)
{
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int fake_cuda_set(const char *key, long long value)
{
    int rc = -1;
    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(keys[i].key, key) == 0) {
            *keys[i].value = value;
            rc = 0;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

static int add_rule(const char *name, bool late, unsigned long long nth, long long count, int code)
{
    if (!name[0] || strlen(name) >= NAME_BYTES || nth == 0 || count == 0 || code == 0)
        return -1;
    int rc = -1;
    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; i < MAX_RULES && rc; i++) {
        struct rule *r = &rules[i];
        if (r->name[0])
            continue;
        *r = (struct rule){.late = late, .skip = nth - 1, .left = count, .code = code};
        snprintf(r->name, sizeof(r->name), "%s", name);
        rc = 0;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int fake_cuda_fail(const char *name, unsigned long long nth, long long count, int code)
{
    return add_rule(name, false, nth, count, code);
}

int fake_cuda_fail_async(unsigned long long nth, long long count, int code)
{
    return add_rule("*", true, nth, count, code);
}

void fake_cuda_heal(void)
{
    pthread_mutex_lock(&fake_lock);
    memset(rules, 0, sizeof(rules));
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_lose(int code)
{
    pthread_mutex_lock(&fake_lock);
    fake_lost = code;
    for (struct fake_ctx *c = fake_contexts; c; c = c->next) {
        if (c->alive)
            fake_ctx_destroy(c);
    }
    pthread_mutex_unlock(&fake_lock);
}

/* A forked child may call this too; it has a copy of the list. */
unsigned long long fake_cuda_calls(const char *name)
{
    unsigned long long sum = 0;
    bool child = in_child();
    if (!child)
        pthread_mutex_lock(&fake_lock);
    for (struct fake_entry *e = entries; e; e = e->next) {
        if (strcmp(name, "*") == 0 || strcmp(name, e->name) == 0)
            sum += e->calls;
    }
    if (!child)
        pthread_mutex_unlock(&fake_lock);
    return sum;
}

size_t fake_cuda_live(const char *what)
{
    size_t n = 0;
    pthread_mutex_lock(&fake_lock);
    if (strcmp(what, "allocations") == 0)
        n = fake_mem_count(false);
    else if (strcmp(what, "registrations") == 0)
        n = fake_mem_count(true);
    else if (strcmp(what, "contexts") == 0) {
        for (struct fake_ctx *c = fake_contexts; c; c = c->next)
            n += c->alive;
    } else
        n = fake_stream_live(what);
    pthread_mutex_unlock(&fake_lock);
    return n;
}

void *fake_cuda_map(const void *ptr)
{
    pthread_mutex_lock(&fake_lock);
    struct fake_mem *m = fake_mem_find((uintptr_t)ptr);
    void *real = m && fake_mem_is_device(m) ? m->real + ((uintptr_t)ptr - m->at) : NULL;
    pthread_mutex_unlock(&fake_lock);
    return real;
}
