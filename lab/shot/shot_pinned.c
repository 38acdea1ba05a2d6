/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/shot/shot_pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "base/memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES    ((size_t)2 << 20)
#define TOUCH_THREADS 16

struct touch {
    pthread_t thread;
    char *from;
    size_t bytes;
    bool started;
};

static void *touch_main(void *arg)
{
    struct touch *t = arg;

    if (t->bytes > 0 && madvise(t->from, t->bytes, MADV_POPULATE_WRITE))
        for (size_t at = 0; at < t->bytes; at += SHOT_PINNED_ALIGN)
            *(volatile char *)(t->from + at) = 0;
    return NULL;
}

static void touch_all(char *map, size_t bytes)
{
    struct touch t[TOUCH_THREADS] = {0};
    size_t share = vv_align_up(vv_div_up(bytes, TOUCH_THREADS), HUGE_BYTES);

    for (size_t i = 0; i < TOUCH_THREADS; i++) {
        t[i].from = map + VV_MIN(i * share, bytes);
        t[i].bytes = VV_MIN(share, bytes - VV_MIN(i * share, bytes));
        t[i].started = pthread_create(&t[i].thread, NULL, touch_main, &t[i]) == 0;
        if (!t[i].started)
            touch_main(&t[i]);
    }
    for (size_t i = 0; i < TOUCH_THREADS; i++)
        if (t[i].started)
            pthread_join(t[i].thread, NULL);
}

static int map_slots(struct shot_pinned *p, char *err, size_t err_size)
{
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    uint64_t available = vv_memory_available();
    void *map;

    if (available && p->map_bytes > available) {
        snprintf(err, err_size, "%s of pinned memory wanted, %s available",
                 vv_bytes_human(p->map_bytes, want, sizeof(want)),
                 vv_bytes_human(available, have, sizeof(have)));
        return -ENOMEM;
    }
    map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        snprintf(err, err_size, "mapping host memory: %s", strerror(errno));
        return -ENOMEM;
    }
    p->map = map;
    (void)madvise(p->map, p->map_bytes, MADV_HUGEPAGE);
    touch_all(p->map, p->map_bytes);
    return 0;
}

int shot_pinned_init(struct vv_device *device, const uint64_t *bytes, size_t nr, char *err,
                     size_t err_size, struct shot_pinned *ret_pinned)
{
    struct shot_pinned p = {.device = device, .nr_slots = nr};
    int rc = -ENOMEM;

    p.slot = calloc(nr + 1, sizeof(*p.slot));
    if (!p.slot) {
        snprintf(err, err_size, "out of memory");
        return rc;
    }
    for (size_t i = 0; i < nr; i++)
        p.slot[i + 1] = p.slot[i] + vv_align_up(bytes[i], (uint64_t)SHOT_PINNED_ALIGN);
    p.map_bytes = p.slot[nr];
    rc = map_slots(&p, err, err_size);
    while (rc == 0 && p.nr_registered < nr) {
        size_t i = p.nr_registered;

        rc = vv_device_host_register(device, shot_pinned_at(&p, i), p.slot[i + 1] - p.slot[i]);
        if (rc)
            snprintf(err, err_size, "pinning host memory: %s", varve_strerror(rc));
        else
            p.nr_registered++;
    }
    if (rc)
        shot_pinned_fini(&p);
    else
        *ret_pinned = p;
    return rc;
}

void shot_pinned_fini(struct shot_pinned *p)
{
    for (size_t i = 0; i < p->nr_registered; i++)
        vv_device_host_unregister(p->device, shot_pinned_at(p, i));
    if (p->map)
        munmap(p->map, p->map_bytes);
    free(p->slot);
    *p = (struct shot_pinned){0};
}
