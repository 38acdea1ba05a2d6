/* SPDX-License-Identifier: Apache-2.0 */
/* How long opening a history takes: with its index, and without (every file is read).
 *
 *   bench_files_open [--dir FOLDER] [--versions N]
 *
 * The files are written without syncing, straight in their format: only the opening is measured. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli/common/options.h"
#include "store/files/ckfile.h"
#include "store/store.h"

static void die(const char *what)
{
    fprintf(stderr, "bench_files_open: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void write_version(int dirfd, uint64_t version)
{
    static char file[3 * 4096];
    char name[VV_CKFILE_NAME_MAX];
    struct vv_store_region region = {.id = 0, .bytes = sizeof(version)};
    struct vv_store_meta meta = {.nregions = 1, .regions = &region};
    struct vv_ckfile_id id = {.version = version,
                              .run_id = 1,
                              .size = sizeof(version),
                              .chunk_bytes = VV_PAGE_BYTES_DEFAULT};
    uint64_t sum = vv_hash64(&version, sizeof(version));
    struct vv_ckfile_header *header = (void *)file;
    vv_ckfile_header_fill(header, &id, "h");
    memcpy(file + 4096, &version, sizeof(version));
    vv_ckfile_tail_fill(file + 8192, &id, &meta, &sum, header->sum, 1, 0);
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, 0, version, 0);
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, file, sizeof(file)) != (ssize_t)sizeof(file) || close(fd) != 0)
        die(name);
}

static int count(void *user, const struct vv_files_entry *e)
{
    (void)e;
    ++*(uint64_t *)user;
    return 0;
}

static double open_once(const char *dir, uint64_t versions)
{
    char err[256] = "";
    struct vv_store_opts opts;
    struct vv_folder *folder;
    struct vv_files *files;
    uint64_t n = 0;
    vv_store_opts_init(&opts);
    uint64_t begin = vv_now_ns();
    int rc = vv_folder_new(dir, &opts, err, sizeof(err), &folder);
    if (rc == 0)
        rc = vv_files_open(folder, "h", 0, NULL, err, sizeof(err), &files);
    if (rc < 0) {
        fprintf(stderr, "bench_files_open: %s\n", err);
        exit(2);
    }
    (void)vv_files_list(files, count, &n);
    double seconds = (double)(vv_now_ns() - begin) / 1e9;
    vv_files_close(files);
    vv_folder_free(folder);
    if (n != versions) {
        fprintf(stderr, "bench_files_open: found %llu\n", (unsigned long long)n);
        exit(2);
    }
    return seconds;
}

struct open_opts {
    const char *dir;
    uint64_t versions;
};

static const struct opt options[] = {
    {OPT_TEXT, .name = "dir", .arg = "FOLDER", .help = "where files are made (.)",
     .at = offsetof(struct open_opts, dir)},
    {OPT_U64, .name = "versions", .arg = "N", .help = "how many (100000)",
     .at = offsetof(struct open_opts, versions)},
};

static const struct opts command = {
    .command = "bench_files_open",
    .usage = "[OPTION]...",
    .about = "Opens a folder with many versions, with and without its index.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct open_opts o = {".", 100000};
    int first, status = opts_parse(&command, argc, argv, &o, &first);
    if (status >= 0)
        return status;
    const char *dir = o.dir;
    uint64_t versions = o.versions;
    char root[1024], path[1100];
    snprintf(root, sizeof(root), "%s/reopen.%ld", dir, (long)getpid());
    snprintf(path, sizeof(path), "%s/h", root);
    if (mkdir(root, 0777) != 0 || mkdir(path, 0777) != 0)
        die(path);
    int dirfd = open(path, O_RDONLY | O_DIRECTORY);
    if (dirfd < 0)
        die(path);
    for (uint64_t v = 0; v < versions; v++)
        write_version(dirfd, v);
    double without = open_once(root, versions);
    double with = open_once(root, versions);
    printf("%llu versions: %.3f s with the index, %.3f s without\n", (unsigned long long)versions,
           with, without);
    for (uint64_t v = 0; v < versions; v++) {
        char name[VV_CKFILE_NAME_MAX];
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, 0, v, 0);
        unlinkat(dirfd, name, 0);
    }
    unlinkat(dirfd, "index.0", 0);
    unlinkat(dirfd, "lock.0", 0);
    close(dirfd);
    if (rmdir(path) != 0 || rmdir(root) != 0)
        die(root);
    return 0;
}
