/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a folder without opening its histories: takes no lock and writes nothing, so it works beside a
 * running application and on read-only copies. It sees the state of the moment. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/files/ckfile.h"

struct names {
    char **name;
    size_t n, room;
    bool (*take)(const char *name);
};

static int collect(void *user, const char *name, uint64_t bytes)
{
    struct names *names = user;
    (void)bytes;
    if (!names->take(name))
        return 0;
    if (names->n == names->room) {
        size_t room = names->room == 0 ? 64 : names->room * 2;
        char **more = realloc(names->name, room * sizeof(char *));
        if (!more)
            return -ENOMEM;
        names->name = more;
        names->room = room;
    }
    names->name[names->n] = strdup(name);
    if (!names->name[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static void names_fini(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
}

static bool take_checkpoint(const char *name)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    return vv_ckfile_parse_name(name, &kind, &rank, &version, &generation);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* By rank, version, generation. The names have been parsed before, so parsing succeeds. */
static int compare_checkpoints(const void *a, const void *b)
{
    struct {
        enum vv_ckfile_kind kind;
        uint32_t rank;
        uint64_t version, generation;
    } x = {0}, y = {0};
    (void)vv_ckfile_parse_name(*(char *const *)a, &x.kind, &x.rank, &x.version, &x.generation);
    (void)vv_ckfile_parse_name(*(char *const *)b, &y.kind, &y.rank, &y.version, &y.generation);
    if (x.rank != y.rank)
        return x.rank < y.rank ? -1 : 1;
    if (x.version != y.version)
        return x.version < y.version ? -1 : 1;
    if (x.generation != y.generation)
        return x.generation < y.generation ? -1 : 1;
    return (int)x.kind - (int)y.kind;
}

static int scan_file(struct vv_target *at, const char *history, const char *name,
                     int (*visit)(void *user, const struct vv_files_found *found), void *user)
{
    char path[512], err[256] = "";
    struct vv_target_file *file;
    struct vv_ckfile_info info;
    struct vv_files_found found = {.history = history, .path = path, .error = err};
    (void)vv_ckfile_parse_name(name, &found.kind, &found.rank, &found.version, &found.generation);
    snprintf(path, sizeof(path), "%s/%s", history, name);
    int fd = at->ops->open(at, name, VV_TARGET_READ, &file);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0) {
        found.status = fd;
        snprintf(err, sizeof(err), "%s", fd == -EBADMSG ? VV_CKFILE_NOT_REGULAR : strerror(-fd));
        return visit(user, &found);
    }
    found.file_bytes = file->bytes;
    if (found.kind == VV_CKFILE_TEMP) {
        found.status = -EAGAIN;
        snprintf(err, sizeof(err), "not committed: being written, or left behind by a crash");
    } else {
        found.status = vv_ckfile_read_from(file, true, err, sizeof(err), &info);
    }
    vv_target_end(file);
    if (found.status == 0 &&
        (info.id.version != found.version || info.id.generation != found.generation ||
         info.id.rank != found.rank || strcmp(info.history, history) != 0)) {
        found.status = -EBADMSG;
        snprintf(err, sizeof(err), "holds another checkpoint than its name says");
        vv_ckfile_info_fini(&info);
    }
    found.info = found.status == 0 ? &info : NULL;
    int rc = visit(user, &found);
    if (found.status == 0)
        vv_ckfile_info_fini(&info);
    return rc;
}

static int scan_history(struct vv_target *folder, const char *history,
                        int (*visit)(void *user, const struct vv_files_found *found), void *user)
{
    struct names names = {.take = take_checkpoint};
    struct vv_target *at;
    int rc = folder->ops->below(folder, history, NULL, &at);
    if (rc < 0)
        return rc;
    rc = at->ops->list(at, collect, &names);
    if (names.n > 0)
        qsort(names.name, names.n, sizeof(char *), compare_checkpoints);
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = scan_file(at, history, names.name[i], visit, user);
    names_fini(&names);
    vv_target_close(at);
    return rc;
}

int vv_files_scan(const struct vv_os *os, const char *place, const char *history,
                  int (*visit)(void *user, const struct vv_files_found *found), void *user)
{
    struct vv_target *folder;
    if (history && !vv_files_name_ok(history))
        return -EINVAL;
    int rc = vv_target_open(os, place, NULL, 0, &folder);
    if (rc < 0)
        return rc;
    if (history) {
        rc = scan_history(folder, history, visit, user);
    } else {
        struct names names = {.take = vv_files_name_ok};
        rc = folder->ops->list(folder, collect, &names);
        if (names.n > 0)
            qsort(names.name, names.n, sizeof(char *), compare_names);
        for (size_t i = 0; rc == 0 && i < names.n; i++) {
            rc = scan_history(folder, names.name[i], visit, user);
            if (rc == -ENOTDIR || rc == -ENOENT) /* not a history, or removed meanwhile */
                rc = 0;
        }
        names_fini(&names);
    }
    vv_target_close(folder);
    return rc;
}
