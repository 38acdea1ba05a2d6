/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing checkpoints.
 *
 * VELOC_Checkpoint_mem copies the regions and so makes the version, which is then brought to its level in the
 * background. VELOC_Checkpoint_end(1) waits for this in mode sync; in mode async only VELOC_Checkpoint_wait does.
 * VELOC_Checkpoint_end(0) reverts the version, and returns when it cannot come back after a crash. The version then has
 * its previous content, because an overwrite is provisional until VELOC_Checkpoint_end(1).
 *
 * A failure in the background is reported once, by the next VELOC_Checkpoint or VELOC_Checkpoint_wait. Varve reports it
 * to its next call; `failed` keeps it until VELOC reports it. A version that did not reach its level is then reverted
 * and never offered for a restart; the generation that it replaced is offered instead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

/* GONE_MS: longest wait for the removal of a discarded version's files. FLUSH_AGAIN: retries of a flush. */
enum { GONE_MS = 10000, FLUSH_AGAIN = 3 };

/* ---- taking ---- */

bool vvi_veloc_late(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int rc, int version)
{
    struct varve_error e = {.error_size = sizeof(e)};
    if (varve_last_error(c->ctx, &e) != 0 || e.err != rc || e.version == (uint64_t)version)
        return false;
    vvi_veloc_fail(c, rc, "checkpoint \"%s\" failed in the background", hist->name);
    c->failed |= e.version > INT32_MAX || !vvi_veloc_listed(&hist->pending, (int)e.version);
    return true;
}

/* The run that wrote the current content of the version; 0: the version does not exist. */
static uint64_t run_of(struct vvi_veloc_hist *hist, int version)
{
    uint64_t run = 0;
    return varve_version_run(hist->h, (uint64_t)version, &run) == 0 ? run : 0;
}

/* True if this run has written the current version and it is on its way to its level. */
static bool is_pending(struct vvi_veloc_hist *hist, int version)
{
    uint64_t run = run_of(hist, version);
    for (size_t i = 0; run && i < hist->pending.n; i++)
        if (hist->pending.v[i].version == version && hist->pending.v[i].run == run)
            return true;
    return false;
}

/* Reverts a version that did not reach its level, and notes the failure for the next report.
 * Returns true if the version that comes back is itself still on its way. Versions of an earlier
 * run are not touched at any level. */
static bool failed(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version, int rc)
{
    vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d failed in the background", hist->name,
                   version);
    c->failed = true;
    if (varve_revert(hist->h, (uint64_t)version) != 0)
        return false;
    vvi_veloc_list_remove(&hist->failed, version);
    /* Without memory for this entry, the next restart gets the older bytes without a message. */
    if (vvi_veloc_list_add(&hist->failed, version))
        vvi_veloc_say(c, "version %d: out of memory", version);
    return is_pending(hist, version);
}

static int write_version(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version)
{
    enum { LATE_MAX = 64 }; /* limit of the loop over failed versions */
    for (int late = 0;; late++) {
        int rc = varve_checkpoint(hist->h, (uint64_t)version);
        if (rc == 0 || late == LATE_MAX || !vvi_veloc_late(c, hist, rc, version))
            return rc;
    }
}

/* Waits until the version that is about to be replaced has a file, because VELOC_Checkpoint_end(0)
 * brings it back from that file. */
static int file_old(struct vvi_veloc *c)
{
    if (c->level < VARVE_LEVEL_LOCAL)
        return 0;
    int rc = varve_wait(c->current->h, (uint64_t)c->version, VARVE_LEVEL_LOCAL, -1);
    return rc == -ENOENT ? 0 : rc;
}

/* Notes the run of the last pending version, which is that of this phase. Removes its entry if the version was not
 * written. */
static void note_last(struct vvi_veloc *c)
{
    struct vvi_veloc_list *list = &c->current->pending;
    if (c->taken)
        list->v[list->n - 1].run = run_of(c->current, c->version);
    else
        list->n--;
}

int vvi_veloc_take(struct vvi_veloc *c, const struct vvi_veloc_region *regions, size_t n)
{
    int rc = vvi_veloc_protect(c, c->current, regions, n);
    if (rc)
        return rc;
    c->taken = false;
    rc = vvi_veloc_listed(&c->current->pending, c->version) ? file_old(c) : 0;
    if (rc == 0)
        rc = vvi_veloc_list_add(&c->current->pending, c->version);
    if (rc == 0) {
        rc = write_version(c, c->current, c->version);
        c->taken = rc == 0;
        note_last(c);
    }
    /* From here on the version is either written again, or the caller gets an error. */
    vvi_veloc_list_remove(&c->current->failed, c->version);
    if (rc)
        vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
    /* Unprotect the regions now: the caller is about to unmap a file. */
    if (vvi_veloc_protect(c, c->current, NULL, 0))
        rc = rc ? rc : -EIO;
    return rc;
}

static int take_chosen(struct vvi_veloc *c, const struct vvi_veloc_choice *choice)
{
    const struct vvi_veloc_set *set = vvi_veloc_set_for(c->sets, c->current->name);
    const struct vvi_veloc_region *v = set ? set->regions.v : NULL;
    struct vvi_veloc_region *chosen = calloc(set ? set->regions.n + 1 : 1, sizeof(*chosen));
    size_t n = 0;
    if (!chosen)
        return -ENOMEM;
    for (size_t i = 0; set && i < set->regions.n; i++)
        if (vvi_veloc_chosen(choice, v[i].id))
            chosen[n++] = v[i];
    int rc = -ENODATA;
    if (n > 0)
        rc = vvi_veloc_take(c, chosen, n);
    else
        vvi_veloc_say(c, "checkpoint \"%s\" version %d: no region is protected or chosen",
                      c->current->name, c->version);
    free(chosen);
    return rc;
}

/* ---- phases ---- */

static int begin(struct vvi_veloc *c, const char *name, int version)
{
    struct vvi_veloc_hist *hist;
    if (c->phase != VVI_VELOC_IDLE) {
        vvi_veloc_say(c, "%s",
                      c->phase == VVI_VELOC_CHECKPOINT
                          ? "a checkpoint has begun and not ended: call VELOC_Checkpoint_end"
                          : "a restart has begun and not ended: call VELOC_Restart_end");
        return -EBUSY;
    }
    int rc = vvi_veloc_name_check(c, name, version);
    if (rc == 0)
        rc = vvi_veloc_history(c, name, &hist);
    if (rc == 0)
        rc = vvi_veloc_begins(hist, version);
    if (rc)
        return rc;
    c->phase = VVI_VELOC_CHECKPOINT;
    c->current = hist;
    c->version = version;
    c->taken = c->routed = false;
    return 0;
}

static int mem(struct vvi_veloc *c, const struct vvi_veloc_choice *choice)
{
    if (c->phase != VVI_VELOC_CHECKPOINT) {
        vvi_veloc_say(c, "VELOC_Checkpoint_begin was not called");
        return -EPERM;
    }
    if (c->routed) {
        vvi_veloc_say(c, "a checkpoint is memory or a file, not both");
        return -EBUSY;
    }
    return take_chosen(c, choice);
}

/* Reverts the version of this phase, and flushes the history to wait until its files are removed.
 * At level complete the flush also waits for other processes, which may have reverted the version
 * and then never write it: so the wait has a limit, and reaching the limit is no error. */
static int take_back(struct vvi_veloc *c)
{
    int limit_ms = c->level == VARVE_LEVEL_COMPLETE ? GONE_MS : -1;
    struct vvi_veloc_list *list = &c->current->pending;
    if (list->n > 0 && list->v[list->n - 1].version == c->version)
        list->n--;
    int rc = varve_revert(c->current->h, (uint64_t)c->version);
    if (rc == -ENOENT)
        rc = 0; /* it has failed, and is reverted already */
    if (rc == 0) {
        rc = varve_flush(c->current->h, limit_ms);
        /* Each try removes files that the previous one could not, and may return a late error of other versions. */
        for (int again = 0; rc && rc != -ETIMEDOUT && again < FLUSH_AGAIN; again++)
            rc = varve_flush(c->current->h, limit_ms);
        if (rc &&
            (rc == -ETIMEDOUT ? limit_ms >= 0 : vvi_veloc_late(c, c->current, rc, c->version)))
            rc = 0;
    }
    return rc ? vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d cannot be reverted",
                               c->current->name, c->version)
              : 0;
}

static int end(struct vvi_veloc *c, bool success)
{
    if (c->phase != VVI_VELOC_CHECKPOINT) {
        vvi_veloc_say(c, "VELOC_Checkpoint_begin was not called");
        return -EPERM;
    }
    int rc = 0;
    if (success && c->routed)
        rc = vvi_veloc_route_take(c);
    if (success && rc == 0 && !c->taken) {
        vvi_veloc_say(c, "checkpoint \"%s\" version %d: nothing was written", c->current->name,
                      c->version);
        rc = -ENODATA;
    }
    if (success && rc == 0 && c->cfg.sync) {
        rc = varve_wait(c->current->h, (uint64_t)c->version, c->wait_level, -1);
        vvi_veloc_list_remove(&c->current->pending, c->version);
        if (rc)
            vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
        int late = vvi_veloc_delivered(c, true);
        rc = rc ? rc : late;
    }
    /* After a failure the caller must not find the failed version. */
    if ((!success || rc) && c->taken) {
        int bad = take_back(c);
        rc = rc ? rc : bad;
    } else if (success && rc == 0) {
        rc = varve_confirm(c->current->h, (uint64_t)c->version);
        if (rc)
            vvi_veloc_fail(c, rc, "checkpoint \"%s\" version %d", c->current->name, c->version);
    }
    vvi_veloc_route_drop(c);
    c->phase = VVI_VELOC_IDLE;
    return rc;
}

/* ---- waiting ---- */

/* Waits for the pending versions of one history, oldest first. True: some are still on their way. */
static bool drain(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int timeout_ms)
{
    while (hist->pending.n > 0) {
        int version = hist->pending.v[0].version;
        int rc = varve_wait(hist->h, (uint64_t)version, c->wait_level, timeout_ms);
        if (rc == -ETIMEDOUT)
            return true;
        /* -ENOENT: the application has discarded it meanwhile. */
        if (rc == 0 || rc == -ENOENT || !failed(c, hist, version, rc))
            vvi_veloc_list_remove(&hist->pending, version);
    }
    return false;
}

/* Reports all failures to the caller now; restarts need not report them any more. */
static int say_failed(struct vvi_veloc *c)
{
    int rc = c->failed ? -EIO : 0;
    c->failed = false;
    for (struct vvi_veloc_hist *h = c->hists; h; h = h->next)
        h->failed.n = 0;
    return rc;
}

int vvi_veloc_drain(struct vvi_veloc *c, int timeout_ms)
{
    bool busy = false;
    for (struct vvi_veloc_hist *h = c->hists; h; h = h->next)
        busy |= drain(c, h, timeout_ms);
    int late = vvi_veloc_delivered(c, timeout_ms != 0);
    busy |= late == -ETIMEDOUT;
    c->failed |= late != 0 && late != -ETIMEDOUT;
    if (busy)
        return -ETIMEDOUT;
    return timeout_ms != 0 ? say_failed(c) : c->failed ? -EIO : 0;
}

/* VELOC_Checkpoint waits for the previous checkpoint, so that a kill loses at most one. If the settings give sizes of
 * caches, as programs that read all checkpoints back do, it does not wait, and only reports failures. */
static int previous(struct vvi_veloc *c)
{
    bool caches = c->cfg.gpu_cache_gib >= 0 || c->cfg.host_cache_gib >= 0;
    if (!c->cfg.sync && !caches)
        return vvi_veloc_drain(c, -1);
    return say_failed(c);
}

/* Notes that a version has begun, even if this process failed: the other processes may continue, and all must have the
 * same list, which decides if a restart is collective. */
static void note_begun(struct vvi_veloc *c, const char *name, int version)
{
    struct vvi_veloc_hist *hist;
    if (vvi_veloc_name_check(c, name, version) == 0 && vvi_veloc_history(c, name, &hist) == 0)
        (void)!vvi_veloc_begins(hist, version);
}

/* ---- the calls ---- */

static const struct vvi_veloc_choice everything = {VELOC_CKPT_ALL, NULL, 0};

int VELOC_Checkpoint_begin(const char *name, int version)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_begin");
    return c ? vvi_veloc_leave(begin(c, name, version)) : VELOC_FAILURE;
}

int VELOC_Checkpoint_selective(int mode, int *ids, int no_ids)
{
    struct vvi_veloc_choice choice = {mode, ids, no_ids};
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_selective");
    if (!c)
        return VELOC_FAILURE;
    if (mode < VELOC_CKPT_ALL || mode > VELOC_CKPT_REST || no_ids < 0 || (no_ids > 0 && !ids))
        return vvi_veloc_leave(-EINVAL);
    return vvi_veloc_leave(mem(c, &choice));
}

int VELOC_Checkpoint_mem(void)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_mem");
    return c ? vvi_veloc_leave(mem(c, &everything)) : VELOC_FAILURE;
}

int VELOC_Checkpoint_end(int success)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_end");
    return c ? vvi_veloc_leave(end(c, success != 0)) : VELOC_FAILURE;
}

int VELOC_Checkpoint_wait(void)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_wait");
    if (!c)
        return VELOC_FAILURE;
    if (c->phase == VVI_VELOC_CHECKPOINT) {
        vvi_veloc_say(c, "VELOC_Checkpoint_wait: a checkpoint has begun and not ended: call "
                         "VELOC_Checkpoint_end");
        return vvi_veloc_leave(-EBUSY);
    }
    return vvi_veloc_leave(c->cfg.sync ? 0 : vvi_veloc_drain(c, -1));
}

int VELOC_Checkpoint_finished(void)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint_finished");
    if (!c)
        return VELOC_FAILURE;
    if (c->cfg.sync)
        return vvi_veloc_leave(0);
    if (c->phase == VVI_VELOC_CHECKPOINT)
        return vvi_veloc_leave(-EBUSY);
    /* All work has ended, well or badly; VELOC_Checkpoint_wait returns which. */
    return vvi_veloc_leave(vvi_veloc_drain(c, 0) == -ETIMEDOUT ? -ETIMEDOUT : 0);
}

int VELOC_Checkpoint(const char *name, int version)
{
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Checkpoint");
    if (!c)
        return VELOC_FAILURE;
    int rc = previous(c);
    if (rc == 0)
        rc = begin(c, name, version);
    else
        note_begun(c, name, version);
    if (rc == 0) {
        rc = mem(c, &everything);
        int ended = end(c, rc == 0);
        rc = rc ? rc : ended;
    }
    return vvi_veloc_leave(rc);
}

int VELOC_Cleanup(const char *name)
{
    struct vvi_veloc_hist *hist;
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Cleanup");
    if (!c)
        return VELOC_FAILURE;
    int rc = vvi_veloc_name_check(c, name, 0);
    if (rc == 0 && c->phase != VVI_VELOC_IDLE)
        rc = -EBUSY;
    if (rc == 0)
        rc = vvi_veloc_history_removed(c, name, &hist);
    uint64_t v;
    size_t n;
    while (rc == 0 && (rc = varve_versions(hist->h, &v, 1, &n)) == 0 && n > 0)
        rc = varve_discard(hist->h, v);
    if (rc == 0)
        rc = varve_flush(hist->h, c->level == VARVE_LEVEL_COMPLETE ? GONE_MS : -1);
    if (rc == 0)
        rc = vvi_veloc_remove_others(c, name);
    if (rc)
        vvi_veloc_fail(c, rc, "VELOC_Cleanup of \"%s\"", name ? name : "");
    else
        vvi_veloc_legacy_remove(c, name);
    return vvi_veloc_leave(rc);
}
