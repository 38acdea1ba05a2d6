/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that becomes another user, or leaves a group, may lose access to files. The daemon and its index give files
 * for the user that the program began as; so neither is used while the process has another identity. Open descriptors
 * stay valid.
 */
#include <errno.h>
#include <grp.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "preload/preload.h"

#define NEXT(name) ((__typeof__(&name))vvi_preload_next(VVI_PRELOAD_##name))

struct identity {
    uid_t uid[4]; /* real, effective, saved, and for files */
    gid_t gid[4];
};

/* Immutable once the library is loaded. */
static struct identity first;
/* Synchronization: relaxed; the program itself orders the change of identity and later calls. */
static atomic_bool is_other, is_other_for_good;

static void get(struct identity *id)
{
    syscall(SYS_getresuid, &id->uid[0], &id->uid[1], &id->uid[2]);
    syscall(SYS_getresgid, &id->gid[0], &id->gid[1], &id->gid[2]);
    /* -1 is no user: the call changes nothing and returns the current value. */
    id->uid[3] = (uid_t)syscall(SYS_setfsuid, -1);
    id->gid[3] = (gid_t)syscall(SYS_setfsgid, -1);
}

void vvi_preload_identify(void)
{
    get(&first);
}

bool vvi_preload_is_other(void)
{
    return atomic_load_explicit(&is_other, memory_order_relaxed);
}

static int changed(int rc, bool for_good)
{
    int saved = errno;
    struct identity id;
    bool same = true;

    if (for_good)
        atomic_store_explicit(&is_other_for_good, true, memory_order_relaxed);
    get(&id);
    for (int i = 0; i < 4; i++)
        same = same && id.uid[i] == first.uid[i] && id.gid[i] == first.gid[i];
    atomic_store_explicit(&is_other,
                          !same || atomic_load_explicit(&is_other_for_good, memory_order_relaxed),
                          memory_order_relaxed);
    errno = saved;
    return rc;
}

static int none(void)
{
    errno = ENOSYS;
    return -1;
}

#define CALL(name, args) (NEXT(name) ? NEXT(name) args : none())

HOOK(int, setuid, uid_t uid)
{
    return changed(CALL(setuid, (uid)), false);
}

HOOK(int, seteuid, uid_t uid)
{
    return changed(CALL(seteuid, (uid)), false);
}

HOOK(int, setreuid, uid_t real, uid_t effective)
{
    return changed(CALL(setreuid, (real, effective)), false);
}

HOOK(int, setresuid, uid_t real, uid_t effective, uid_t saved)
{
    return changed(CALL(setresuid, (real, effective, saved)), false);
}

HOOK(int, setfsuid, uid_t uid)
{
    return changed(CALL(setfsuid, (uid)), false);
}

HOOK(int, setgid, gid_t gid)
{
    return changed(CALL(setgid, (gid)), false);
}

HOOK(int, setegid, gid_t gid)
{
    return changed(CALL(setegid, (gid)), false);
}

HOOK(int, setregid, gid_t real, gid_t effective)
{
    return changed(CALL(setregid, (real, effective)), false);
}

HOOK(int, setresgid, gid_t real, gid_t effective, gid_t saved)
{
    return changed(CALL(setresgid, (real, effective, saved)), false);
}

HOOK(int, setfsgid, gid_t gid)
{
    return changed(CALL(setfsgid, (gid)), false);
}

HOOK(int, setgroups, size_t nr, const gid_t *groups)
{
    int rc = CALL(setgroups, (nr, groups));

    return changed(rc, rc == 0);
}

HOOK(int, initgroups, const char *user, gid_t group)
{
    int rc = CALL(initgroups, (user, group));

    return changed(rc, rc == 0);
}
