/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of src/veloc. */
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
 * Mapping of a checkpoint of VELOC to a version of Varve. Region numbers of VELOC are any int, those of Varve are not
 * negative: the sign is dropped, and two numbers that differ only in the sign are refused. Two numbers are reserved:
 * the file that the application wrote itself, and, in versions of earlier releases, a list of regions without bytes.
 */
enum { VVI_VELOC_FILE = 0x5646494c, VVI_VELOC_EMPTY = 0x5645505a };

/* Bits of a run id below the number of processes. */
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
    /* Section [varve]: settings of Varve, passed on unchanged. */
    struct {
        char key[48], value[VARVE_PATH_BYTES];
    } own[VVI_VELOC_SETTINGS];
    unsigned nown;
};

/* Prints what is wrong, and what is ignored. */
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
/* Removes a region. -ENOENT: there is none. */
int vvi_veloc_region_remove(struct vvi_veloc_set *sets, const char *name, int id);
void vvi_veloc_region_clear(struct vvi_veloc_set *sets, const char *name);
void vvi_veloc_sets_free(struct vvi_veloc_set *sets);
/* The regions of a checkpoint with this name: its own, or else the common ones. NULL: none. */
const struct vvi_veloc_set *vvi_veloc_set_for(const struct vvi_veloc_set *sets, const char *name);

/* ---- veloc_client.c ---- */

/* A few versions, in the order in which they were added. */
struct vvi_veloc_noted {
    int version;
    uint64_t run; /* run id of the version, another one each time it is written; 0: not known */
};

struct vvi_veloc_list {
    struct vvi_veloc_noted *v; /* owned */
    size_t n, cap;
};

bool vvi_veloc_listed(const struct vvi_veloc_list *list, int version);
/* Adds a version at the end, again if it is already in the list. */
VV_WARN_UNUSED int vvi_veloc_list_add(struct vvi_veloc_list *list, int version);
/* Removes all entries of a version. True if there were any. */
bool vvi_veloc_list_remove(struct vvi_veloc_list *list, int version);

/* A checkpoint's name, and its history. */
struct vvi_veloc_hist {
    char *name;
    struct varve_history *h;
    int *protected; /* the regions that are protected in Varve now, owned */
    size_t nprotected, cap;
    bool hinted;
    /* Number of processes that wrote some version, if it is not the current number (such versions do not
     * count); 0: there is no such version. */
    int other_size;
    bool size_reported; /* the message about other_size was printed */
    int *begun;         /* versions that this run has begun to write, ascending, owned */
    size_t nbegun, begun_cap;
    struct vvi_veloc_list pending; /* written, and not yet seen at wait_level */
    struct vvi_veloc_list failed;  /* reverted, and no call has returned a failure since */
    struct vvi_veloc_hist *next;
};

/* A name that cannot be opened because another number of processes has written it; the message was printed. */
struct vvi_veloc_refusal {
    char *name;
    struct vvi_veloc_refusal *next;
};

enum vvi_veloc_phase { VVI_VELOC_IDLE, VVI_VELOC_CHECKPOINT, VVI_VELOC_RESTART };

struct vvi_veloc {
    struct vvi_veloc_cfg cfg;
    struct varve_ctx *ctx;
    uint64_t run_id;
    char rank_cores[VARVE_CORES_BYTES]; /* processors that processes of this node are bound to */
    int rank;
    enum varve_level level;      /* of the context */
    enum varve_level wait_level; /* highest level that one process can reach by itself */
    bool has_device;
    const struct vv_group_ops *ops; /* NULL: a process by itself */
    struct vv_group *group;
    struct vvi_veloc_set *sets;
    struct vvi_veloc_hist *hists;
    struct vvi_veloc_refusal *refusals;
    bool failed; /* a failure in the background was not reported yet */

    enum vvi_veloc_phase phase;
    struct vvi_veloc_hist *current;
    int version;
    bool taken;                            /* this phase has written the version */
    bool routed;                           /* this phase has returned a path */
    char original[VARVE_PATH_BYTES];       /* original path of this phase's file; empty: none */
    struct vvi_veloc_deliverer *deliverer; /* NULL: not needed so far */
    uint64_t ndelivered;
    bool legacy; /* the restart reads a file that VELOC wrote */
};

/* Takes the lock and returns the client; NULL, with a message and without the lock: there is
 * none. */
struct vvi_veloc *vvi_veloc_enter(const char *call);
/* Releases the lock. Returns VELOC_SUCCESS if rc is 0. */
int vvi_veloc_leave(int rc);
/* Opens the client. `ops` and `group` NULL: a process by itself, as `rank`. The client owns the group from then on. */
VV_WARN_UNUSED int vvi_veloc_open(int rank, const char *path, const struct vv_group_ops *ops,
                                  struct vv_group *group);

/* Prints a message for the user. */
void vvi_veloc_say(const struct vvi_veloc *c, const char *fmt, ...) VV_PRINTF(2, 3);
/* The same with the text of Varve's last error; returns rc. */
int vvi_veloc_fail(struct vvi_veloc *c, int rc, const char *fmt, ...) VV_PRINTF(3, 4);

/* The history of a name, which is opened if necessary. Prints the reason of a failure. */
VV_WARN_UNUSED int vvi_veloc_history(struct vvi_veloc *c, const char *name,
                                     struct vvi_veloc_hist **ret_hist);
/* The same without messages. A history that cannot be opened because another number of processes wrote it is removed
 * first. */
VV_WARN_UNUSED int vvi_veloc_history_removed(struct vvi_veloc *c, const char *name,
                                             struct vvi_veloc_hist **ret_hist);
/* Removes files of ranks that this job does not have. */
VV_WARN_UNUSED int vvi_veloc_remove_others(struct vvi_veloc *c, const char *name);
/* Prints that `size` processes have written a checkpoint, and what to do. */
void vvi_veloc_say_size(const struct vvi_veloc *c, const char *name, int size);
/* Notes that this run has begun to write a version. */
VV_WARN_UNUSED int vvi_veloc_begins(struct vvi_veloc_hist *hist, int version);
bool vvi_veloc_begun(const struct vvi_veloc_hist *hist, int version);
/* Makes `regions` the protected regions of the history. */
VV_WARN_UNUSED int vvi_veloc_protect(struct vvi_veloc *c, struct vvi_veloc_hist *hist,
                                     const struct vvi_veloc_region *regions, size_t n);
VV_WARN_UNUSED int vvi_veloc_name_check(struct vvi_veloc *c, const char *name, int version);

/* ---- veloc_checkpoint.c ---- */

/* Writes `regions` as the version of the phase. */
VV_WARN_UNUSED int vvi_veloc_take(struct vvi_veloc *c, const struct vvi_veloc_region *regions,
                                  size_t n);
/* True if the last error was a late error of another version: Varve reports it once, and the call has done nothing
 * else. Notes the failure; a wait for a pending version will report it again. */
bool vvi_veloc_late(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int rc, int version);
/* Waits for all pending versions. Returns 0, or a failure since the last report. */
int vvi_veloc_drain(struct vvi_veloc *c, int timeout_ms);

/* ---- restart.c ---- */

/* Size of a version's region, which may be empty. -ENOENT: no such version; -ESRCH: no such region. */
VV_WARN_UNUSED int vvi_veloc_stored(struct vvi_veloc *c, struct vvi_veloc_hist *hist, int version,
                                    int id, uint64_t *ret_bytes);

/* ---- route.c: files that the application writes and reads itself ---- */

/* Makes a version of the file of this phase. */
VV_WARN_UNUSED int vvi_veloc_route_take(struct vvi_veloc *c);
/* Removes the file of this phase, if there is one. */
void vvi_veloc_route_drop(struct vvi_veloc *c);
/* Removes files left by an earlier run of this process. */
void vvi_veloc_route_clean(const struct vvi_veloc *c);

/* ---- deliver.c: copies of such files under their original names ---- */

/* Copies a file in the background, and removes it. */
VV_WARN_UNUSED int vvi_veloc_deliver(struct vvi_veloc *c, const char *from, const char *to);
/* Returns 0: all queued files are delivered; -ETIMEDOUT: not yet; otherwise the first error, once. */
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

/* Opens a file. -ENOENT: there is no such file, or none that can be restored. */
VV_WARN_UNUSED int vvi_veloc_legacy_open(const struct vvi_veloc *c, const char *name, int version,
                                         struct vvi_veloc_legacy *ret_legacy);
void vvi_veloc_legacy_close(struct vvi_veloc_legacy *legacy);
/* The newest version not above `max`. -ENOENT: there is none. */
VV_WARN_UNUSED int vvi_veloc_legacy_newest(const struct vvi_veloc *c, const char *name, int max,
                                           int *ret_version);
/* Reads one region into host or device memory. */
VV_WARN_UNUSED int vvi_veloc_legacy_read(struct vvi_veloc *c, const struct vvi_veloc_legacy *legacy,
                                         const struct vvi_veloc_stored *stored, void *ptr);
/* Removes the process's files of this name from scratch. */
void vvi_veloc_legacy_remove(const struct vvi_veloc *c, const char *name);

#endif
