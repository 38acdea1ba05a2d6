/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/veloc share. */
#ifndef VV_VELOC_PRIVATE_H
#define VV_VELOC_PRIVATE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>
#include <varve/varve.h>

#include "base/idmap.h"
#include "base/util.h"
#include "mpi/mpi_group.h"

/*
 * How a checkpoint of VELOC is kept in a version of Varve. Region numbers of VELOC are any int, those
 * of Varve are not negative: the sign is dropped, and two numbers that only it tells apart are
 * refused. Two numbers are ours: the file that the application wrote itself, and, in versions of
 * former releases, a list of the regions that had no bytes.
 */
enum { VVI_VELOC_FILE = 0x5646494c, VVI_VELOC_EMPTY = 0x5645505a };

/* Of a run id, behind the number of processes that have it. */
enum { VVI_VELOC_RUN_BITS = 44 };

static inline int vvi_veloc_number(int id)
{
    return id & INT32_MAX;
}

/* ---- veloc_config.c ---- */

enum { VVI_VELOC_SETTINGS = 32 };

struct vvi_veloc_cfg {
    char scratch[VARVE_PATH_BYTES], persistent[VARVE_PATH_BYTES];
    bool sync;
    long max_versions, scratch_versions;  /* 0: all */
    long persistent_interval;             /* seconds; 0: every checkpoint, negative: none */
    double gpu_cache_gib, host_cache_gib; /* negative: not given */
    int score_eviction;                   /* -1: not given */
    bool premature_eviction;
    /* Section [varve]: settings of ours, passed on as they are. */
    struct {
        char key[48], value[VARVE_PATH_BYTES];
    } own[VVI_VELOC_SETTINGS];
    unsigned nown;
};

/* Says what is wrong, and what is ignored. */
VV_WARN_UNUSED int vvi_veloc_config_load(const char *path, struct vvi_veloc_cfg *ret_cfg);

/* ---- regions.c ---- */

struct vvi_veloc_region {
    int id;
    void *ptr;
    size_t bytes;
    int (*release)(void); /* or NULL */
};

/* Regions of checkpoints of one name; of all others if the name is empty. */
struct vvi_veloc_set {
    char *name;
    struct vv_idmap regions; /* of struct vvi_veloc_region */
    struct vvi_veloc_set *next;
};

/* A choice among regions. */
struct vvi_veloc_choice {
    int mode;
    const int *ids;
    int n;
};

bool vvi_veloc_chosen(const struct vvi_veloc_choice *choice, int id);

VV_WARN_UNUSED int vvi_veloc_region_add(struct vvi_veloc_set **sets, const char *name,
                                        const struct vvi_veloc_region *region);
/* -ENOENT: there is none. */
int vvi_veloc_region_remove(struct vvi_veloc_set *sets, const char *name, int id);
void vvi_veloc_region_clear(struct vvi_veloc_set *sets, const char *name);
void vvi_veloc_sets_free(struct vvi_veloc_set *sets);
/* The regions that a checkpoint of this name has: its own, or those of nobody else. NULL: none. */
const struct vvi_veloc_set *vvi_veloc_set_for(const struct vvi_veloc_set *sets, const char *name);

/* ---- veloc_client.c ---- */

/* A few versions, in the order in which they were added. */
struct vvi_veloc_noted {
    int version;
    uint64_t run; /* which tells apart how often this run has written it; 0: not known */
};

struct vvi_veloc_list {
    struct vvi_veloc_noted *v; /* owned */
    size_t n, cap;
};

bool vvi_veloc_listed(const struct vvi_veloc_list *list, int version);
/* Adds a version at the end, once more if it was there. */
VV_WARN_UNUSED int vvi_veloc_list_add(struct vvi_veloc_list *list, int version);
/* Removes it as often as it is there. Whether it was. */
bool vvi_veloc_list_remove(struct vvi_veloc_list *list, int version);

/* A checkpoint's name, and its history. */
struct vvi_veloc_hist {
    char *name;
    struct varve_history *h;
    int *protected; /* what Varve has protected now, owned */
    size_t nprotected, cap;
    bool hinted;
    int other_size; /* of the processes that wrote a version which does not count for that; 0: none */
    bool told_size; /* and that was said */
    int *begun;     /* versions that this run has begun to write, ascending, owned */
    size_t nbegun, begun_cap;
    struct vvi_veloc_list pending; /* written, and not seen at the level that is waited for */
    struct vvi_veloc_list failed;  /* taken back, and no call has returned a failure since */
    struct vvi_veloc_hist *next;
};

/* A name that cannot be opened because another number of processes has written it, which was said. */
struct vvi_veloc_refusal {
    char *name;
    struct vvi_veloc_refusal *next;
};

enum vvi_veloc_phase { VVI_VELOC_IDLE, VVI_VELOC_CHECKPOINT, VVI_VELOC_RESTART };

struct vvi_veloc {
    struct vvi_veloc_cfg cfg;
    struct varve_ctx *ctx;
    uint64_t run_id;
    char rank_cores[VARVE_CORES_BYTES]; /* that processes of this node are bound to */
    int rank;
    enum varve_level level;      /* of the context */
    enum varve_level wait_level; /* as far as one process can bring a version by itself */
    bool has_device;
    const struct vv_group_ops *ops; /* NULL: by itself */
    struct vv_group *group;
    struct vvi_veloc_set *sets;
    struct vvi_veloc_hist *hists;
    struct vvi_veloc_refusal *refusals;
    bool failed; /* something failed in the background and nobody was told */

    enum vvi_veloc_phase phase;
    struct vvi_veloc_hist *current;
    int version;
    bool taken;                      /* this phase has written the version */
    bool routed;                     /* this phase has given out a path */
    char original[VARVE_PATH_BYTES]; /* where the file of this phase shall appear; empty: nowhere */
    struct vvi_veloc_deliverer *deliverer; /* NULL: not needed so far */
    uint64_t ndelivered;
    bool legacy; /* what is restored is a file that VELOC wrote */
};

/* Takes the lock and returns the client; NULL, with a message and without the lock: there is
 * none. */
struct vvi_veloc *vvi_veloc_enter(const char *call);
/* Gives the lock back. VELOC_SUCCESS if rc is 0. */
int vvi_veloc_leave(int rc);
/* Opens the one client. `ops` and `group` NULL: by itself, as `rank`. The group becomes the
 * client's. */
VV_WARN_UNUSED int vvi_veloc_open(int rank, const char *path, const struct vv_group_ops *ops,
                                  struct vv_group *group);

/* A message for the user. */
void vvi_veloc_say(const struct vvi_veloc *c, const char *fmt, ...) VV_PRINTF(2, 3);
/* The same with what Varve says about its last error; returns rc. */
int vvi_veloc_fail(struct vvi_veloc *c, int rc, const char *fmt, ...) VV_PRINTF(3, 4);

/* The history of a name, opened if it is not yet. Says why it cannot be. */
VV_WARN_UNUSED int vvi_veloc_history(struct vvi_veloc *c, const char *name,
                                     struct vvi_veloc_hist **ret_hist);
/* The same, and says nothing; what another number of processes left, and so cannot be opened, is removed
 * first. */
VV_WARN_UNUSED int vvi_veloc_history_removed(struct vvi_veloc *c, const char *name,
                                             struct vvi_veloc_hist **ret_hist);
/* Removes what processes left that this job does not have. */
VV_WARN_UNUSED int vvi_veloc_remove_others(struct vvi_veloc *c, const char *name);
/* Says that `size` processes have written a checkpoint, and what to do. */
void vvi_veloc_say_size(const struct vvi_veloc *c, const char *name, int size);
/* Notes that this run writes a version, and tells whether it did. */
VV_WARN_UNUSED int vvi_veloc_begins(struct vvi_veloc_hist *hist, int version);
bool vvi_veloc_begun(const struct vvi_veloc_hist *hist, int version);
/* Makes `regions` what the history has protected. */
VV_WARN_UNUSED int vvi_veloc_protect(struct vvi_veloc *c, struct vvi_veloc_hist *hist,
                                     const struct vvi_veloc_region *regions, size_t n);
VV_WARN_UNUSED int vvi_veloc_name_check(struct vvi_veloc *c, const char *name, int version);

/* ---- veloc_checkpoint.c ---- */

/* Writes `regions` as the version of the phase. */
VV_WARN_UNUSED int vvi_veloc_take(struct vvi_veloc *c, const struct vvi_veloc_region *regions,
                                  size_t n);
/* Was the last error about another version than this? Varve says once what failed behind a call, and
 * has then done nothing else. Notes it: of a version that is pending, the wait for it will hear again. */
bool vvi_veloc_late(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int rc, int version);
/* Waits for everything; 0, or what has failed since this was told last. */
int vvi_veloc_drain(struct vvi_veloc *c, int timeout_ms);

/* ---- restart.c ---- */

/* Bytes of a region of a version, one that had none included. -ENOENT: no such version; -ESRCH: no
 * such region. */
VV_WARN_UNUSED int vvi_veloc_stored(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version,
                                    int id, uint64_t *ret_bytes);

/* ---- route.c: files that the application writes and reads itself ---- */

/* Makes a version of the file of this phase. */
VV_WARN_UNUSED int vvi_veloc_route_take(struct vvi_veloc *c);
/* Removes the file of this phase, if there is one. */
void vvi_veloc_route_drop(struct vvi_veloc *c);
/* Removes what an earlier life of this process has left. */
void vvi_veloc_route_clean(const struct vvi_veloc *c);

/* ---- deliver.c: such files under their original names ---- */

/* Copies a file in the background, and removes it. */
VV_WARN_UNUSED int vvi_veloc_deliver(struct vvi_veloc *c, const char *from, const char *to);
/* 0: all that were handed over are there. -ETIMEDOUT: not yet; otherwise the first error, once. */
int vvi_veloc_delivered(struct vvi_veloc *c, bool wait);
void vvi_veloc_deliverer_free(struct vvi_veloc *c);

/* ---- legacy.c: files that VELOC itself wrote ---- */

struct vvi_veloc_legacy {
    char path[VARVE_PATH_BYTES + 512];
    int fd;
    bool raw; /* written by the application: no header */
    struct vvi_veloc_stored {
        int id;
        uint64_t bytes, offset;
    } * v; /* owned */
    size_t n;
};

/* -ENOENT: there is no such file, or none that could be restored. */
VV_WARN_UNUSED int vvi_veloc_legacy_open(const struct vvi_veloc *c, const char *name, int version,
                                         struct vvi_veloc_legacy *ret_legacy);
void vvi_veloc_legacy_close(struct vvi_veloc_legacy *legacy);
/* The newest not above `max`. -ENOENT. */
VV_WARN_UNUSED int vvi_veloc_legacy_newest(const struct vvi_veloc *c, const char *name, int max,
                                           int *ret_version);
/* Reads one region into host or device memory. */
VV_WARN_UNUSED int vvi_veloc_legacy_read(struct vvi_veloc *c, const struct vvi_veloc_legacy *legacy,
                                         const struct vvi_veloc_stored *stored, void *ptr);
/* Removes the process's files of this name from scratch. */
void vvi_veloc_legacy_remove(const struct vvi_veloc *c, const char *name);

#endif
