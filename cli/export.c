/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve export: committed checkpoints as files of another library, so that a program can go back to it. For VELOC
 * each checkpoint becomes NAME-RANK-VERSION.dat: the number of regions, number and size of each, then their bytes.
 * If the application wrote the file itself, its bytes are the file. The command takes no lock and changes no
 * checkpoint.
 *
 * VELOC offers the newest version that any process has. So a version is exported only if every rank in the folder
 * has an undamaged file of it, and from a shared folder only if it is complete. A file appears under its name when
 * it is whole and synced. Every byte is compared with the checksum of its chunk. An existing file is not replaced.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/options.h"
#include "store/files/ckfile.h"

/* Regions that libveloc-client names itself (src/veloc/veloc_private.h): a file that the application wrote, and a list
 * that former versions kept. */
enum { VELOC_FILE = 0x5646494c, VELOC_LIST = 0x5645505a };

struct item {
    char *history, *path; /* owned; below the folder */
    uint64_t version, generation;
    uint32_t rank;
    bool sound, remote, complete; /* remote: in a shared folder, and not known to be complete */
    bool taken, chosen;           /* taken: of this rank, this or a higher generation is chosen */
    bool written;                 /* by this command */
};

struct export
{
    const char *veloc, *local; /* as they were given */
    const char *folder;
    struct files_levels levels;
    struct item *v;
    size_t n, room;
    uint64_t files, bytes;
    int result;
};

static void complain(struct export *e, const char *path, const char *why)
{
    files_progress("export", 0, 0);
    fprintf(stderr, "varve export: %s: %s\n", path, why);
    e->result = CLI_FAILED;
}

/* ---- what there is ---- */

static int collect(void *user, const struct vv_files_found *f)
{
    struct export *e = user;
    if (f->kind == VV_CKFILE_TEMP)
        return 0;
    if (e->n == e->room) {
        size_t room = e->room ? 2 * e->room : 64;
        void *more = realloc(e->v, room * sizeof(*e->v));
        if (!more)
            return -ENOMEM;
        e->v = more;
        e->room = room;
    }
    struct item i = {.version = f->version, .generation = f->generation, .rank = f->rank};
    i.sound = f->status == 0;
    const char *level = i.sound ? files_level(&e->levels, e->folder, f) : "";
    i.remote = strcmp(level, "remote") == 0;
    i.complete = strcmp(level, "complete") == 0;
    i.history = strdup(f->history);
    i.path = strdup(f->path);
    e->v[e->n++] = i; /* The item is freed with the list, even if a string is missing. */
    if (!i.history || !i.path)
        return -ENOMEM;
    if (!i.sound)
        complain(e, i.path, f->error);
    return 0;
}

/* Sorts by history and version, then rank, the highest generation first. */
static int by_version(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = strcmp(x->history, y->history);
    if (order == 0)
        order = (x->version > y->version) - (x->version < y->version);
    if (order == 0)
        order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->generation < y->generation) - (x->generation > y->generation);
}

static size_t ranks_of(const struct export *e, size_t from, size_t to)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        bool seen = false;
        for (size_t k = from; k < i && !seen; k++)
            seen = e->v[k].rank == e->v[i].rank;
        n += !seen;
    }
    return n;
}

/* ---- one file ---- */

static int write_all(int fd, const void *buf, size_t bytes, uint64_t at)
{
    for (const char *p = buf; bytes > 0;) {
        ssize_t n = pwrite(fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Reads VELOC's table and finds the first byte of data. Nothing for a file that the application wrote. */
static int put_table(int to, const struct vv_ckfile_info *info, uint64_t *ret_at,
                     uint64_t *ret_bytes)
{
    enum { ENTRY = sizeof(int) + sizeof(size_t) };
    size_t n = info->nregions;
    bool raw = n == 1 && info->regions[0].id == VELOC_FILE;
    *ret_bytes = info->id.size;
    /* Regions are sorted by number. No region beside the list has a higher number, so its bytes are the last. */
    if (n > 0 && info->regions[n - 1].id == VELOC_LIST)
        *ret_bytes -= info->regions[--n].bytes;
    *ret_at = raw ? 0 : sizeof(n) + n * ENTRY;
    if (raw)
        return 0;
    char *table = malloc(*ret_at);
    if (!table)
        return -ENOMEM;
    memcpy(table, &n, sizeof(n));
    for (size_t i = 0; i < n; i++) {
        char *at = table + sizeof(n) + i * ENTRY;
        int id = info->regions[i].id;
        size_t bytes = info->regions[i].bytes;
        memcpy(at, &id, sizeof(id));
        memcpy(at + sizeof(id), &bytes, sizeof(bytes));
    }
    int rc = write_all(to, table, *ret_at, 0);
    free(table);
    return rc;
}

static int copy_data(struct vv_target_file *from, int to, const struct vv_ckfile_info *info,
                     uint64_t at, uint64_t bytes)
{
    uint32_t unit = info->id.chunk_bytes;
    char *buf = malloc(unit);
    int rc = buf ? 0 : -ENOMEM;
    for (uint64_t done = 0; rc == 0 && done < info->id.size; done += unit) {
        size_t n = (size_t)VV_MIN(info->id.size - done, (uint64_t)unit);
        rc = from->ops->get(from, buf, n, VV_CKFILE_HEADER_BYTES + done);
        if (rc == 0 && !vv_ckfile_chunks_ok(info, buf, done, n))
            rc = -EBADMSG;
        if (rc == 0 && done < bytes)
            rc = write_all(to, buf, (size_t)VV_MIN((uint64_t)n, bytes - done), at + done);
    }
    free(buf);
    return rc;
}

static int export_to(struct vv_target_file *from, int to, uint64_t *ret_bytes)
{
    char err[256];
    struct vv_ckfile_info info;
    uint64_t at = 0, bytes = 0;
    int rc = vv_ckfile_read_from(from, false, err, sizeof(err), &info);
    if (rc)
        return rc;
    rc = put_table(to, &info, &at, &bytes);
    if (rc == 0)
        rc = copy_data(from, to, &info, at, bytes);
    if (rc == 0 && fsync(to))
        rc = -errno;
    if (rc == 0)
        *ret_bytes = bytes;
    vv_ckfile_info_fini(&info);
    return rc;
}

/* Writes the file under a temporary name, and links it under its own: a link never replaces a file. */
static int write_file(struct export *e, struct vv_target_file *from, const char *path)
{
    uint64_t bytes = 0;
    char temp[4096 + 8];
    snprintf(temp, sizeof(temp), "%s.part", path);
    int to = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = to < 0 ? -errno : export_to(from, to, &bytes);
    if (to < 0)
        return rc;
    close(to);
    if (rc == 0 && link(temp, path))
        rc = -errno;
    unlink(temp);
    e->bytes += rc == 0 ? bytes : 0;
    return rc;
}

static bool name_of(const struct export *e, const struct item *i, char path[4096])
{
    int n = snprintf(path, 4096, "%s/%s-%" PRIu32 "-%" PRIu64 ".dat", e->veloc, i->history, i->rank,
                     i->version);
    return n < 4096 && i->version <= INT_MAX && i->rank <= INT_MAX;
}

/* Returns false if VELOC must not find the version. An existing file is of an earlier export: it counts. */
static bool export_file(struct export *e, struct vv_target *at, struct item *i)
{
    char path[4096];
    struct vv_target_file *from;
    if (!name_of(e, i, path)) {
        complain(e, i->path, "VELOC has no version, rank or path like that: left out");
        return false;
    }
    int rc = at->ops->open(at, i->path, VV_TARGET_READ, &from);
    if (rc == 0) {
        rc = write_file(e, from, path);
        vv_target_end(from);
    }
    if (rc == -EBADMSG)
        complain(e, i->path, "its bytes are damaged: left out; 'varve verify' says more");
    else if (rc == -EEXIST)
        complain(e, path, "it is there already, and stays; to replace it remove it first");
    else if (rc)
        complain(e, path, strerror(-rc));
    i->written = rc == 0;
    e->files += rc == 0;
    return rc == 0 || rc == -EEXIST;
}

/* Removes the files of a version that one rank lacks: VELOC takes the newest version that any rank has. */
static void take_back(struct export *e, struct item *v, size_t n)
{
    char path[4096];
    for (size_t i = 0; i < n; i++) {
        if (!v[i].written || !name_of(e, &v[i], path))
            continue;
        if (unlink(path))
            complain(e, path, strerror(errno));
        else
            e->files--;
    }
}

/* ---- all of them ---- */

/* Marks the files of one version that count: those that the record names where ranks agree by a record, otherwise
 * those of the highest generation. */
static size_t choose(struct item *v, size_t n, size_t nranks)
{
    size_t chosen = 0;
    for (size_t i = 0, first = 0; i < n; i++) {
        if (v[i].rank != v[first].rank)
            first = i;
        bool counts = v[i].complete || (i == first && (!v[i].remote || nranks == 1));
        bool taken = i > first && v[i - 1].taken;
        v[i].taken = taken || (v[i].sound && counts);
        v[i].chosen = v[i].taken && !taken;
        chosen += v[i].chosen;
    }
    return chosen;
}

/* Exports the files of all ranks, or of none. */
static void export_version(struct export *e, struct vv_target *at, struct item *v, size_t n,
                           size_t nranks)
{
    size_t have = choose(v, n, nranks);
    if (have == nranks) {
        bool all = true;
        for (size_t i = 0; i < n && all; i++)
            all = !v[i].chosen || export_file(e, at, &v[i]);
        if (!all)
            take_back(e, v, n);
        return;
    }
    files_progress("export", 0, 0);
    fprintf(stderr, "varve export: %s version %" PRIu64 ": %zu of %zu ranks have it: left out\n",
            v->history, v->version, have, nranks);
}

static void export_history(struct export *e, struct vv_target *at, size_t from, size_t to)
{
    size_t nranks = ranks_of(e, from, to), next;
    for (size_t i = from; i < to; i = next) {
        for (next = i + 1; next < to && e->v[next].version == e->v[i].version;)
            next++;
        export_version(e, at, &e->v[i], next - i, nranks);
        files_progress("export", next, e->n);
    }
}

static void export_all(struct export *e)
{
    struct vv_target *at;
    int rc = files_open(e->folder, NULL, &at);
    if (rc < 0) {
        complain(e, e->folder, strerror(-rc));
        return;
    }
    qsort(e->v, e->n, sizeof(*e->v), by_version);
    for (size_t i = 0, next; i < e->n; i = next) {
        for (next = i + 1; next < e->n && strcmp(e->v[next].history, e->v[i].history) == 0;)
            next++;
        export_history(e, at, i, next);
    }
    files_progress("export", 0, 0);
    vv_target_close(at);
}

#define AT(field) offsetof(struct export, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "veloc", .arg = "FOLDER", .at = AT(veloc),
     .help = "where VELOC's files go: VELOC's scratch or persistent folder.\n"
             "It is created if missing"},
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local),
     .help = "where the checkpoints are; --local may be left out if neither\n"
             "variable is set or FOLDER has a slash in it"},
    {OPT_TEXT, .name = "remote", .arg = "FOLDER", .help = "the same", .at = AT(local)},
};

static const struct opts command = {
    .command = "varve export",
    .usage = "--veloc FOLDER [[--local | --remote] FOLDER] [HISTORY]...",
    .about = "Writes the checkpoints in FOLDER, by default the one that VARVE_LOCAL names, or\n"
             "else VARVE_REMOTE, as files NAME-RANK-VERSION.dat that VELOC restarts from. The\n"
             "checkpoints stay. Versions that some rank in the folder does not have are left\n"
             "out, and no file is replaced.",
    .operands = true,
    OPT_LIST(options),
};

int cli_export(int argc, char **argv)
{
    struct export e = {.result = CLI_OK};
    char size[VV_BYTES_TEXT];
    int first, status = opts_parse(&command, argc, argv, &e, &first);
    if (status >= 0)
        return status;
    if (!e.veloc || !e.veloc[0]) {
        fprintf(stderr, "varve export: no folder to write to is given: give --veloc FOLDER\n");
        return CLI_USAGE;
    }
    e.folder = files_folder("export", e.local, argc, argv, &first);
    if (!e.folder)
        return CLI_USAGE;
    for (int i = first; i < argc || i == first; i++) {
        const char *history = i < argc ? argv[i] : NULL;
        int rc = vv_files_scan(vv_os_posix(), e.folder, history, collect, &e);
        if (rc < 0)
            e.result = files_complain("export", e.folder, history, rc);
    }
    files_levels_fini(&e.levels);
    if (e.n == 0 && e.result == CLI_OK)
        e.result = files_check_empty("export", e.folder);
    if (e.n > 0 && mkdir(e.veloc, 0777) && errno != EEXIST)
        complain(&e, e.veloc, strerror(errno));
    else if (e.n > 0)
        export_all(&e);
    if (e.n > 0 || e.result == CLI_OK)
        printf("%" PRIu64 " file%s, %s, in %s\n", e.files, e.files == 1 ? "" : "s",
               vv_bytes_human(e.bytes, size, sizeof(size)), e.veloc);
    for (size_t i = 0; i < e.n; i++) {
        free(e.v[i].history);
        free(e.v[i].path);
    }
    free(e.v);
    return e.result;
}
