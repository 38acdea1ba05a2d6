/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers of the memory tiers, and pacing of copies within host memory.
 *
 * The host tier is one anonymous mapping, aligned to huge pages and touched in parallel before it
 * is used: an application blocked in its first checkpoints must not pay for page faults. With a
 * device it is registered in slices with pauses in between, because registering holds up every
 * other call to a driver.
 *
 * All of this runs in vv_engine_open and vv_engine_close, while no other thread uses the engine,
 * except the pacer.
 *
 * What could go wrong: more memory asked for than there is. A mapping would be granted and the
 * process killed while touching it, so the amount is compared with what the system calls available
 * first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/thread.h"
#include "engine/runtime_private.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES       ((size_t)2 << 20)
#define TOUCH_THREADS    16
#define TOUCH_SLICE_MIN  ((size_t)64 << 20) /* less is not worth a thread */
#define REGISTER_REST_NS (200 * VV_NS_PER_US)

/* A copy that begins this soon after the paced end of the last one counts as following it at once:
 * what a sleep overshoots is given back instead of adding up. */
#define PACER_SLACK_NS (150 * VV_NS_PER_US)

struct touch {
    char *from;
    size_t bytes;
};

static void *touch_main(void *arg)
{
    const struct touch *t = arg;
    if (madvise(t->from, t->bytes, MADV_POPULATE_WRITE) == 0)
        return NULL;
    long page = sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < t->bytes; at += (size_t)page)
        *(volatile char *)(t->from + at) = 0;
    return NULL;
}

static void touch_all(char *base, size_t bytes)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = VV_MIN((size_t)VV_MAX(cores, 1L), (size_t)TOUCH_THREADS);
    n = VV_MIN(n, VV_MAX(bytes / TOUCH_SLICE_MIN, (size_t)1));
    size_t share = vv_align_up(vv_div_up(bytes, n), HUGE_BYTES);
    struct touch part[TOUCH_THREADS];
    pthread_t thread[TOUCH_THREADS];
    bool started[TOUCH_THREADS] = {false};

    for (size_t i = 0; i < n; i++) {
        size_t from = VV_MIN(i * share, bytes);
        part[i] = (struct touch){base + from, VV_MIN(share, bytes - from)};
        if (part[i].bytes == 0)
            continue;
        if (i + 1 < n)
            started[i] = vv_thread_start(&thread[i], touch_main, &part[i]) == 0;
        if (!started[i])
            touch_main(&part[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
}

/* Memory the system can still give, 0 if it does not tell. */
static uint64_t memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return 0;
    char line[128];
    unsigned long long kib = 0;
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    fclose(f);
    return (uint64_t)kib << 10;
}

static int register_host(struct vv_engine *e, char *base, size_t bytes, char *err, size_t err_bytes)
{
    for (size_t at = 0; at < bytes; at += VVI_SLICE_BYTES) {
        size_t n = VV_MIN((size_t)VVI_SLICE_BYTES, bytes - at);
        int rc = vv_device_host_register(e->cfg.device, base + at, n);
        if (rc) {
            snprintf(err, err_bytes, "host cache: the device refused to register %zu bytes: %s", n,
                     strerror(-rc));
            return rc;
        }
        e->registered_bytes = at + n;
        if (at + n < bytes)
            vv_sleep_until_ns(vv_now_ns() + REGISTER_REST_NS);
    }
    return 0;
}

int vvi_engine_mem_check(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes)
{
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    uint64_t available = memory_available();
    if (available == 0 || cfg->host_cache_bytes <= available)
        return 0;
    snprintf(err, err_bytes, "host cache: %s wanted, %s available",
             vv_bytes_human(cfg->host_cache_bytes, want, sizeof(want)),
             vv_bytes_human(available, have, sizeof(have)));
    return -ENOMEM;
}

static int host_init(struct vv_engine *e, unsigned tier, size_t bytes, char *err, size_t err_bytes)
{
    bytes = vv_align_up(bytes, HUGE_BYTES);
    char *map =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        int rc = -errno;
        char want[VV_BYTES_TEXT];
        snprintf(err, err_bytes, "host cache: cannot map %s",
                 vv_bytes_human(bytes, want, sizeof(want)));
        return rc;
    }
    char *base = (char *)vv_align_up((uintptr_t)map, HUGE_BYTES);
    size_t before = (size_t)(base - map), after = HUGE_BYTES - before;
    if (before)
        munmap(map, before);
    if (after)
        munmap(base + bytes, after);
    madvise(base, bytes, MADV_HUGEPAGE);
    e->base[tier] = base;
    e->base_bytes[tier] = bytes;
    touch_all(base, bytes);
    return e->cfg.device ? register_host(e, base, bytes, err, err_bytes) : 0;
}

static int device_init(struct vv_engine *e, unsigned tier, size_t bytes, char *err,
                       size_t err_bytes)
{
    void *ptr;
    int rc = vv_device_mem_alloc(e->cfg.device, bytes, &ptr);
    if (rc) {
        char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
        size_t free_bytes = 0, total = 0;
        int known = vv_device_mem_info(e->cfg.device, &free_bytes, &total);
        snprintf(err, err_bytes, "device cache: %s wanted, %s free",
                 vv_bytes_human(bytes, want, sizeof(want)),
                 known == 0 ? vv_bytes_human(free_bytes, have, sizeof(have)) : "unknown");
        return rc;
    }
    e->base[tier] = ptr;
    e->base_bytes[tier] = bytes;
    return 0;
}

int vvi_engine_mem_init(struct vv_engine *e, char *err, size_t err_bytes)
{
    for (unsigned t = 0; t < e->ntiers; t++) {
        if (e->kind[t] != VV_TIER_DEVICE && e->kind[t] != VV_TIER_HOST)
            continue;
        uint64_t bytes = vv_core_tier_pages(e->core, t) * e->cfg.page_bytes;
        if (bytes == 0)
            continue;
        int rc = e->kind[t] == VV_TIER_DEVICE ? device_init(e, t, bytes, err, err_bytes)
                                              : host_init(e, t, bytes, err, err_bytes);
        if (rc)
            return rc;
    }
    return 0;
}

void vvi_engine_mem_fini(struct vv_engine *e)
{
    for (unsigned t = 0; t < e->ntiers; t++) {
        if (!e->base[t])
            continue;
        if (e->kind[t] == VV_TIER_DEVICE) {
            /* A lost device refuses; its memory goes with it. */
            vv_device_mem_free(e->cfg.device, e->base[t]);
            continue;
        }
        for (size_t at = 0; at < e->registered_bytes; at += VVI_SLICE_BYTES)
            vv_device_host_unregister(e->cfg.device, e->base[t] + at);
        munmap(e->base[t], e->base_bytes[t]);
    }
}

void vvi_pacer_init(struct vvi_pacer *p, uint64_t bytes_per_s)
{
    vv_mutex_init(&p->lock, "engine pacer", VV_RANK_MOVER);
    p->bytes_per_s = bytes_per_s;
    p->next_free_ns = 0;
}

void vvi_pacer_fini(struct vvi_pacer *p)
{
    vv_mutex_fini(&p->lock);
}

void vvi_pacer_end(struct vvi_pacer *p, uint64_t start_ns, uint64_t bytes)
{
    if (p->bytes_per_s == 0)
        return;
    vv_mutex_lock(&p->lock);
    uint64_t from = p->next_free_ns + PACER_SLACK_NS >= start_ns ? p->next_free_ns : start_ns;
    uint64_t end = from + (uint64_t)((double)bytes * 1e9 / (double)p->bytes_per_s);
    p->next_free_ns = end;
    vv_mutex_unlock(&p->lock);
    vv_sleep_until_ns(end);
}
