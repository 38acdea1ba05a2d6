/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the experiments of lab/ooc/ooc.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/measure/probe_device.h"
#include "device/device.h"
#include "lab/ooc/ooc.h"

double ooc_memory_taken(struct vv_device *d)
{
    size_t left = 0, total = 0;

    if (vv_device_mem_info(d, &left, &total) || !total)
        return NAN;
    return (double)(total - left);
}

int ooc_link(struct vv_device *d, struct ooc_report *r)
{
    /* Measuring must not take longer than the experiment. */
    bool large = r->data_bytes >= UINT64_C(1) << 30;
    struct probe_link_opts o = {.up = true, .seg_bytes = 1 << 20, .seconds = large ? 0.5 : 0.01};
    struct vv_device_info info;
    struct probe_device *probe;
    int rc = probe_device_new(d, (size_t)(large ? 64 : 4) << 20, &probe);

    if (rc == 0) {
        rc = probe_device_link(probe, &o, &r->link_bps);
        probe_device_free(probe);
    }
    d->ops->describe(d, &info);
    snprintf(r->device, sizeof(r->device), "%s", info.name);
    return rc;
}

/* A blank in a name is a '-' in the list. */
static bool is_way(const char *text, size_t len, const char *name)
{
    if (strlen(name) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] != (name[i] == ' ' ? '-' : name[i]))
            return false;
    return true;
}

bool ooc_wanted(const char *ways, const char *name)
{
    if (!ways || strcmp(name, "resident") == 0)
        return true;
    for (;; ways++) {
        size_t len = strcspn(ways, ",");

        if (is_way(ways, len, name))
            return true;
        ways += len;
        if (!*ways)
            return false;
    }
}

int ooc_ways_check(const char *ways, const char *const *names, size_t nr)
{
    for (;; ways++) {
        size_t len = strcspn(ways, ","), i = 0;

        while (i < nr && !is_way(ways, len, names[i]))
            i++;
        if (i == nr)
            return -EINVAL;
        ways += len;
        if (!*ways)
            return 0;
    }
}

void ooc_report_fini(struct ooc_report *r)
{
    for (size_t i = 0; i < r->nr_ways; i++)
        free(r->ways[i].samples);
    memset(r, 0, sizeof(*r));
}
