/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restarting.
 *
 * A process has the versions that Varve can restore and the files that VELOC wrote. In a group only versions count that
 * all processes have from the same run: the group agrees on them (mpi/mpi_group.h). VELOC_Restart_test and
 * VELOC_Restart_begin are collective; each process makes the calls after them for itself.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

/* ---- available versions ---- */

struct candidates {
    struct vvi_veloc *c;
    struct vvi_veloc_hist *hist; /* NULL: it could not be opened */
    int error;                   /* the reason */
};

static int versions_of(struct varve_history *h, uint64_t **ret_list, size_t *ret_n)
{
    uint64_t *list = NULL;
    size_t n = 0, room = 0;
    int rc = varve_versions(h, NULL, 0, &n);
    while (rc == 0 && n > room) {
        free(list);
        room = n + 16;
        list = calloc(room, sizeof(*list));
        rc = list ? varve_versions(h, list, room, &n) : -ENOMEM;
    }
    if (rc) {
        free(list);
        return rc;
    }
    *ret_list = list;
    *ret_n = n;
    return 0;
}

/* True if the number of processes that wrote a version is the current one. Run 0, a file of VELOC: not known, so
 * true. */
static bool of_our_size(struct vvi_veloc *c, struct vvi_veloc_hist *hist, uint64_t version,
                        uint64_t *ret_run)
{
    unsigned long long ours = c->ops ? (unsigned long long)c->ops->size(c->group) : 1;
    if (varve_version_run(hist->h, version, ret_run) != 0)
        return false;
    unsigned long long theirs = VV_MAX(*ret_run >> VVI_VELOC_RUN_BITS, (uint64_t)1);
    if (theirs == ours)
        return true;
    hist->other_size = (int)theirs;
    return false;
}

/* Prints once for each name that another number of processes wrote versions; only the first process that has such a
 * version prints. Collective. */
static void report_size(struct vvi_veloc *c, struct vvi_veloc_hist *hist)
{
    int found = hist && hist->other_size && !hist->size_reported, size = 1, rank = 0, least;
    if (c->ops) {
        size = c->ops->size(c->group);
        rank = c->ops->rank(c->group);
    }
    found = found ? rank - size : 0;
    least = c->ops ? c->ops->all(c->group, found) : found;
    if (found && least == found)
        vvi_veloc_say_size(c, hist->name, hist->other_size);
    if (hist && least)
        hist->size_reported = true;
}

/* True if the version can be restored now. It may be on its way to its level, or have failed to reach it and not be
 * reverted yet. */
static bool counts(struct vvi_veloc *c, struct vvi_veloc_hist *hist, uint64_t version,
                   uint64_t *ret_run)
{
    if (!of_our_size(c, hist, version, ret_run))
        return false;
    size_t regions;
    return varve_regions(hist->h, version, NULL, 0, &regions) == 0;
}

/* The newest of Varve's versions and VELOC's files; Varve's wins if both have it. Retention may remove a version at any
 * time: each is queried once, and if it is gone an older one counts. */
static int newest(void *arg, uint64_t max, uint64_t *ret_version, uint64_t *ret_run)
{
    struct candidates *from = arg;
    struct varve_history *h = from->hist ? from->hist->h : NULL;
    uint64_t *list = NULL, best = 0, run = 0;
    size_t n = 0;
    bool any = false;
    int rc = h ? versions_of(h, &list, &n) : from->error;
    if (rc)
        return rc;
    max = VV_MIN(max, (uint64_t)INT_MAX);
    for (uint64_t bound = max;; bound = best - 1) {
        any = false;
        for (size_t i = 0; i < n; i++)
            if (list[i] <= bound && (!any || list[i] > best)) {
                best = list[i];
                any = true;
            }
        if (!any || counts(from->c, from->hist, best, &run))
            break;
        any = false;
        if (best == 0)
            break;
    }
    free(list);
    int legacy = 0;
    rc = vvi_veloc_legacy_newest(from->c, from->hist->name, (int)max, &legacy);
    if (rc == 0 && (!any || (uint64_t)legacy > best)) {
        *ret_version = (uint64_t)legacy;
        *ret_run = 0;
        return 0;
    }
    if (!any)
        return rc;
    *ret_version = best;
    *ret_run = run;
    return 0;
}

/* The newest version not above `max` that all processes have. Called even if the history could not be opened, because
 * the other processes wait. */
static int agreed(struct candidates *from, uint64_t max, uint64_t *ret_version)
{
    uint64_t run;
    int rc = from->c->ops ? from->c->ops->agree(from->c->group, newest, from, max, ret_version)
                          : newest(from, max, ret_version, &run);
    report_size(from->c, from->hist);
    return rc;
}

/* ---- content of a version ---- */

/* Reads the list of regions without bytes that earlier releases stored as a region of the version. */
static int read_empty(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version, int **ret_ids,
                      size_t *ret_n)
{
    size_t bytes;
    *ret_ids = NULL;
    *ret_n = 0;
    if (varve_region_size(hist->h, (uint64_t)version, VVI_VELOC_EMPTY, &bytes))
        return 0;
    int *ids = malloc(bytes);
    if (!ids)
        return -ENOMEM;
    struct vvi_veloc_region list = {.id = VVI_VELOC_EMPTY, .ptr = ids, .bytes = bytes};
    int rc = vvi_veloc_protect(c, hist, &list, 1);
    if (rc == 0) {
        rc = varve_restore(hist->h, (uint64_t)version);
        int bad = vvi_veloc_protect(c, hist, NULL, 0);
        rc = rc ? rc : bad;
    }
    if (rc) {
        free(ids);
        return vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", hist->name, version);
    }
    *ret_ids = ids;
    *ret_n = bytes / sizeof(*ids);
    return 0;
}

static int stored_by_veloc(struct vvi_veloc *c, const char *name, int version, int id,
                           uint64_t *ret_bytes)
{
    struct vvi_veloc_legacy file;
    int rc = vvi_veloc_legacy_open(c, name, version, &file);
    if (rc)
        return rc;
    rc = -ESRCH;
    for (size_t i = 0; i < file.n && rc; i++)
        if (file.v[i].id == id) {
            *ret_bytes = file.v[i].bytes;
            rc = 0;
        }
    vvi_veloc_legacy_close(&file);
    return rc;
}

int vvi_veloc_stored(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version, int id,
                     uint64_t *ret_bytes)
{
    size_t bytes, n;
    int *empty;
    int rc = varve_region_size(hist->h, (uint64_t)version, vvi_veloc_number(id), &bytes);
    if (rc == 0) {
        *ret_bytes = bytes;
        return 0;
    }
    if (rc == -ENOENT)
        return stored_by_veloc(c, hist->name, version, id, ret_bytes);
    if (rc != -ESRCH)
        return rc;
    rc = read_empty(c, hist, version, &empty, &n);
    if (rc)
        return rc;
    rc = -ESRCH;
    for (size_t i = 0; i < n && rc; i++)
        if (empty[i] == vvi_veloc_number(id)) {
            *ret_bytes = 0;
            rc = 0;
        }
    free(empty);
    return rc;
}

/* ---- recovering ---- */

/* The protected region for a stored region, by its number in Varve; -ESRCH: none. */
static int target_of(struct vvi_veloc *c, const struct vvi_veloc_set *set, int number,
                     uint64_t bytes, const struct vvi_veloc_region **ret_region)
{
    const struct vvi_veloc_region *r = set ? vv_idmap_find(&set->regions, number) : NULL;
    if (set && !r)
        r = vv_idmap_find(&set->regions, number ^ INT32_MIN);
    if (!r) {
        vvi_veloc_say(c, "region %d is in the checkpoint, but not protected", number);
        return -ESRCH;
    }
    if (r->bytes < bytes) {
        vvi_veloc_say(c, "region %d has %llu bytes in the checkpoint, but only %zu are protected",
                      r->id, (unsigned long long)bytes, r->bytes);
        return -ENOBUFS;
    }
    *ret_region = r;
    return 0;
}

static int recover_varve(struct vvi_veloc *c, const struct vvi_veloc_choice *choice)
{
    const struct vvi_veloc_set *set = vvi_veloc_set_for(c->sets, c->current->name);
    struct varve_history *h = c->current->h;
    uint64_t v = (uint64_t)c->version;
    size_t n = 0, nwanted = 0;
    int rc = varve_regions(h, v, NULL, 0, &n);
    int *ids = calloc(n + 1, sizeof(*ids));
    struct vvi_veloc_region *wanted = calloc(n + 1, sizeof(*wanted));
    if (rc == 0)
        rc = ids && wanted ? varve_regions(h, v, ids, n, &n) : -ENOMEM;
    if (rc)
        vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct vvi_veloc_region *target;
        size_t bytes;
        if (ids[i] == VVI_VELOC_EMPTY || ids[i] == VVI_VELOC_FILE ||
            !vvi_veloc_chosen(choice, ids[i]))
            continue;
        rc = varve_region_size(h, v, ids[i], &bytes);
        /* A region without bytes needs no target. */
        if (rc == 0 && bytes == 0) {
            wanted[nwanted++] = (struct vvi_veloc_region){.id = ids[i]};
            continue;
        }
        if (rc == 0)
            rc = target_of(c, set, ids[i], bytes, &target);
        if (rc == 0)
            wanted[nwanted++] = *target;
    }
    if (rc == 0 && nwanted > 0) {
        rc = vvi_veloc_protect(c, c->current, wanted, nwanted);
        if (rc == 0) {
            rc = varve_restore(h, v);
            if (rc)
                vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
        }
    }
    free(ids);
    free(wanted);
    return rc;
}

static int recover_legacy(struct vvi_veloc *c, const struct vvi_veloc_choice *choice)
{
    const struct vvi_veloc_set *set = vvi_veloc_set_for(c->sets, c->current->name);
    struct vvi_veloc_legacy file;
    int rc = vvi_veloc_legacy_open(c, c->current->name, c->version, &file);
    if (rc)
        return vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
    if (file.raw) {
        vvi_veloc_say(c, "%s: the application wrote this file itself", file.path);
        rc = -EINVAL;
    }
    /* The first pass checks all regions, the second fills them. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; rc == 0 && i < file.n; i++) {
            const struct vvi_veloc_region *target;
            if (!vvi_veloc_chosen(choice, file.v[i].id))
                continue;
            rc = target_of(c, set, vvi_veloc_number(file.v[i].id), file.v[i].bytes, &target);
            if (rc == 0 && pass == 1)
                rc = vvi_veloc_legacy_read(c, &file, &file.v[i], target->ptr);
        }
    vvi_veloc_legacy_close(&file);
    return rc;
}

static int recover(struct vvi_veloc *c, const struct vvi_veloc_choice *choice)
{
    if (c->phase != VVI_VELOC_RESTART) {
        vvi_veloc_say(c, "VELOC_Restart_begin was not called");
        return -EPERM;
    }
    return c->legacy ? recover_legacy(c, choice) : recover_varve(c, choice);
}

/* ---- phases ---- */

/* Checks that every process has the version. For a version that this run has begun to write, each process checks only
 * itself: such versions are read back many times, in each process's own order, and need no agreement. All processes
 * decide the same, because beginning a checkpoint is collective. */
static int available(struct candidates *from, int version)
{
    uint64_t found = 0, run;
    if (from->hist && vvi_veloc_begun(from->hist, version))
        return counts(from->c, from->hist, (uint64_t)version, &run) ? 0 : -ENOENT;
    int rc = agreed(from, (uint64_t)version, &found);
    return rc == 0 && found != (uint64_t)version ? -ENOENT : rc;
}

static int begin(struct vvi_veloc *c, const char *name, int version)
{
    int rc = vvi_veloc_name_check(c, name, version);
    if (rc == 0 && c->phase != VVI_VELOC_IDLE) {
        vvi_veloc_say(c, "%s",
                      c->phase == VVI_VELOC_CHECKPOINT
                          ? "a checkpoint has begun and not ended: call VELOC_Checkpoint_end"
                          : "a restart has begun and not ended: call VELOC_Restart_end");
        rc = -EBUSY;
    }
    if (rc)
        return rc; /* misuse: a correct program gets here on all processes or on none */
    struct candidates from = {.c = c};
    from.error = vvi_veloc_history(c, name, &from.hist);
    rc = available(&from, version);
    if (rc) {
        if (!from.error)
            vvi_veloc_say(c, "checkpoint \"%s\" has no version %d%s", name, version,
                          c->ops ? " that all processes have" : "");
        return rc;
    }
    if (vvi_veloc_list_remove(&from.hist->failed, version)) {
        vvi_veloc_say(
            c,
            "checkpoint \"%s\" version %d was overwritten, and that failed: the next restart "
            "gets the older one",
            name, version);
        return -EIO;
    }
    size_t regions;
    c->legacy = varve_regions(from.hist->h, (uint64_t)version, NULL, 0, &regions) == -ENOENT;
    c->phase = VVI_VELOC_RESTART;
    c->current = from.hist;
    c->version = version;
    c->routed = false;
    return 0;
}

/* Discards a consumed version of this run, if the settings ask for it, so that it is not flushed further. Versions of
 * an earlier run stay, because the next restart would begin with them. */
static void consume(struct vvi_veloc *c)
{
    if (c->cfg.premature_eviction && !c->legacy && vvi_veloc_begun(c->current, c->version) &&
        varve_discard(c->current->h, (uint64_t)c->version) != 0)
        vvi_veloc_say(c, "version %d cannot be discarded", c->version);
}

static int end(struct vvi_veloc *c, bool success)
{
    if (c->phase != VVI_VELOC_RESTART) {
        vvi_veloc_say(c, "VELOC_Restart_begin was not called");
        return -EPERM;
    }
    if (success)
        consume(c);
    if (!c->legacy)
        vvi_veloc_route_drop(c);
    c->phase = VVI_VELOC_IDLE;
    return 0;
}

/* ---- the calls ---- */

static const struct vvi_veloc_choice everything = {VELOC_RECOVER_ALL, NULL, 0};

int VELOC_Restart_test(const char *name, int version)
{
    uint64_t found = 0;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Restart_test");
    if (!c)
        return VELOC_FAILURE;
    int rc = vvi_veloc_name_check(c, name, version);
    if (rc == 0) {
        struct candidates from = {.c = c};
        from.error = vvi_veloc_history(c, name, &from.hist);
        rc = agreed(&from, version ? (uint64_t)version : (uint64_t)INT_MAX, &found);
    }
    vvi_veloc_leave(rc);
    return rc == 0 ? (int)found : VELOC_FAILURE;
}

int VELOC_Restart_begin(const char *name, int version)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Restart_begin");
    return c ? vvi_veloc_leave(begin(c, name, version)) : VELOC_FAILURE;
}

int VELOC_Recover_selective(int mode, int *ids, int no_ids)
{
    struct vvi_veloc_choice choice = {mode, ids, no_ids};
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Recover_selective");
    if (!c)
        return VELOC_FAILURE;
    if (mode < VELOC_RECOVER_ALL || mode > VELOC_RECOVER_REST || no_ids < 0 || (no_ids > 0 && !ids))
        return vvi_veloc_leave(-EINVAL);
    return vvi_veloc_leave(recover(c, &choice));
}

int VELOC_Recover_mem(void)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Recover_mem");
    return c ? vvi_veloc_leave(recover(c, &everything)) : VELOC_FAILURE;
}

long long VELOC_Recover_size64(int id)
{
    uint64_t bytes = 0;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Recover_size");
    if (!c)
        return VELOC_FAILURE;
    int rc = c->phase == VVI_VELOC_RESTART ? vvi_veloc_stored(c, c->current, c->version, id, &bytes)
                                           : -EPERM;
    vvi_veloc_leave(rc);
    return rc == 0 ? (long long)bytes : VELOC_FAILURE;
}

int VELOC_Recover_size(int id)
{
    long long bytes = VELOC_Recover_size64(id);
    return bytes <= INT_MAX ? (int)bytes : VELOC_FAILURE;
}

size_t VELOC_Recover_ckpt_size(const char *name, int version, int region)
{
    struct vvi_veloc_hist *hist;
    uint64_t bytes = 0;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Recover_ckpt_size");
    if (!c)
        return (size_t)-1;
    int rc = vvi_veloc_name_check(c, name, version);
    if (rc == 0)
        rc = vvi_veloc_history(c, name, &hist);
    if (rc == 0)
        rc = vvi_veloc_stored(c, hist, version, region, &bytes);
    vvi_veloc_leave(rc);
    return rc == 0 ? (size_t)bytes : (size_t)-1;
}

int VELOC_Restart_end(int success)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Restart_end");
    return c ? vvi_veloc_leave(end(c, success != 0)) : VELOC_FAILURE;
}

int VELOC_Restart(const char *name, int version)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Restart");
    if (!c)
        return VELOC_FAILURE;
    int rc = begin(c, name, version);
    if (rc == 0) {
        rc = recover(c, &everything);
        int ended = end(c, rc == 0);
        rc = rc ? rc : ended;
    }
    return vvi_veloc_leave(rc);
}
