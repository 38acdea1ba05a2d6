/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing damaged checkpoint files from their copies in another folder.
 *
 * Copies have the same name and the same bytes. A file is replaced as a whole, by the same commit as any other
 * file, while the lock of its rank is held: a program that has the history open repairs damage on reading by
 * itself. The copy is verified while it is made, so damage never spreads. */
#include "cli/repair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/checkpoint_files.h"
#include "store/files/ckfile.h"
#include "store/remote/ckcopy.h"

struct file {
    char history[VV_CKFILE_HISTORY_MAX + 1], name[VV_CKFILE_NAME_MAX];
    uint32_t rank;
};

struct side {
    const char *path;
    struct file *v;
    size_t n, room;
};

struct job {
    void (*tell)(void *user, const char *folder, const char *path, const char *why);
    void *user;
    struct repair_result result;
};

static int collect(void *user, const struct vv_files_found *f)
{
    struct side *s = user;
    if (f->kind != VV_CKFILE_COMMITTED)
        return 0;
    if (s->n == s->room) {
        size_t room = s->room == 0 ? 64 : 2 * s->room;
        struct file *more = realloc(s->v, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        s->v = more;
        s->room = room;
    }
    struct file *file = &s->v[s->n++];
    snprintf(file->history, sizeof(file->history), "%s", f->history);
    snprintf(file->name, sizeof(file->name), "%s", strrchr(f->path, '/') + 1);
    file->rank = f->rank;
    return 0;
}

static void ignore(void *user, const struct vv_ckfile_problem *p)
{
    (void)user;
    (void)p;
}

/* Copies the good file over the bad one. Returns NULL, or the reason of a failure. */
static const char *replace(struct vv_target *good, struct vv_target *bad, const struct file *file)
{
    struct vv_target_file *held = NULL;
    char lock[32];
    snprintf(lock, sizeof(lock), "lock.%" PRIu32, file->rank);
    int rc = bad->ops->lock(bad, lock, &held);
    if (rc == 0)
        rc = vv_ckfile_copy(good, bad, file->name);
    vv_target_end(held);
    return rc == 0          ? NULL
           : rc == -EBUSY   ? "a program has the history open"
           : rc == -ENOENT  ? "the other folder does not have it"
           : rc == -EBADMSG ? "it is damaged in the other folder too"
                            : strerror(-rc);
}

static void check_file(struct job *j, const struct side *side, const char *other,
                       const struct file *file)
{
    struct vv_target *here, *there = NULL;
    char path[VV_CKFILE_HISTORY_MAX + VV_CKFILE_NAME_MAX + 2];
    if (files_open(side->path, file->history, &here) < 0)
        return; /* removed in the meantime */
    if (vv_ckfile_verify(here, file->name, ignore, NULL, NULL) != 0) {
        const char *why = files_open(other, file->history, &there) < 0
                              ? "the other folder does not have it"
                              : replace(there, here, file);
        snprintf(path, sizeof(path), "%s/%s", file->history, file->name);
        j->tell(j->user, side->path, path, why);
        *(why ? &j->result.unrepaired : &j->result.repaired) += 1;
        vv_target_close(there);
    }
    vv_target_close(here);
}

int repair_folders(const char *local, const char *remote, const char *history,
                   void (*tell)(void *user, const char *folder, const char *path, const char *why),
                   void *user, struct repair_result *ret_result)
{
    struct job j = {.tell = tell, .user = user};
    const char *folder[] = {local, remote};
    int rc = 0, found = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        struct side side = {.path = folder[i]};
        rc = vv_files_scan(vv_os_posix(), folder[i], history, collect, &side);
        found += rc == 0;
        for (size_t k = 0; rc == 0 && k < side.n; k++) {
            files_progress("repair", k, side.n);
            check_file(&j, &side, folder[1 - i], &side.v[k]);
        }
        files_progress("repair", 0, 0);
        free(side.v);
        if (rc == -ENOENT && history && (i == 0 || found > 0))
            rc = 0; /* one of the folders has it */
    }
    if (rc == 0 && found == 0)
        rc = -ENOENT;
    if (rc == 0)
        *ret_result = j.result;
    return rc;
}
