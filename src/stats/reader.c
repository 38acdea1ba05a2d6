/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading pages, which may be of another version, damaged, of another user, or be written or removed at this time. Only
 * regular files of this user are read; the whole file is read into memory first and checked there.
 *
 * The checksum of a record that is being overwritten does not match. That of the other record does, unless the reader
 * was so slow that the writer overwrote both; then the reader retries a few times.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "stats/process.h"
#include "stats/stats_page.h"
#include "stats/stats_page_private.h"
#include "stats/stats_text.h"

enum {
    TRIES = 5,
    FILE_MAX = 1 << 20,
    UNFINISHED_S = 60, /* making a page never takes that long */
};

static VV_PRINTF(3, 4) int complain(struct vv_stats_page *page, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(page->error, sizeof(page->error), fmt, ap);
    va_end(ap);
    return rc;
}

static bool hash_ok(const void *data, size_t bytes, size_t checksum_at)
{
    uint64_t want, zero = 0;
    char *copy = malloc(bytes);

    if (!copy)
        return false;
    memcpy(copy, data, bytes);
    memcpy(&want, copy + checksum_at, sizeof(want));
    memcpy(copy + checksum_at, &zero, sizeof(zero));
    bool ok = vv_hash64(copy, bytes) == want;
    free(copy);
    return ok;
}

#define END(text) vv_stats_text_clean(text, sizeof(text))

static void bound_header(struct vv_stats_header *h)
{
    END(h->version);
    END(h->program);
    END(h->command);
    END(h->level);
    END(h->policy);
    END(h->device);
    END(h->local);
}

static void bound_record(struct vv_stats_record *r)
{
    r->ntiers = VV_MIN(r->ntiers, (uint32_t)VV_STATS_TIERS);
    r->nhops = VV_MIN(r->nhops, (uint32_t)VV_STATS_HOPS);
    r->nhistories = VV_MIN(r->nhistories, (uint32_t)VV_STATS_HISTORIES);
    END(r->helper_where);
    END(r->process_where);
    for (int i = 0; i < VV_STATS_TIERS; i++) {
        END(r->tier[i].name);
        END(r->tier[i].kind);
    }
    for (int i = 0; i < VV_STATS_HOPS; i++)
        END(r->hop[i].name);
    for (int i = 0; i < VV_STATS_HISTORIES; i++)
        END(r->history[i].name);
}

/* A shorter header of an older writer leaves the other fields 0. */
static int take_header(struct vv_stats_page *page, const char *data, size_t bytes)
{
    struct vv_stats_header h = {0};
    const size_t least = offsetof(struct vv_stats_header, pid);

    if (bytes < least || memcmp(data, "\0\0\0\0\0\0\0", 8) == 0)
        return complain(page, -EAGAIN, "it is being made");
    memcpy(&h, data, VV_MIN(bytes, sizeof(h)));
    if (memcmp(h.magic, VV_STATS_MAGIC, sizeof(h.magic)) != 0)
        return complain(page, -EBADMSG, "not a statistics page");
    if (h.format != VV_STATS_FORMAT)
        return complain(page, -EPROTO, "format %u, of another version of Varve", h.format);
    if (h.header_bytes < least || h.header_bytes > bytes ||
        h.record_bytes < offsetof(struct vv_stats_record, checkpoint) ||
        h.slots != VV_STATS_SLOTS ||
        (uint64_t)h.header_bytes + (uint64_t)h.slots * h.record_bytes > bytes)
        return complain(page, -EBADMSG, "damaged: its sizes are invalid");
    if (!hash_ok(data, h.header_bytes, offsetof(struct vv_stats_header, checksum)))
        return complain(page, -EBADMSG, "damaged: the checksum of the header does not match");
    if (h.header_bytes < sizeof(h))
        memset((char *)&h + h.header_bytes, 0, sizeof(h) - h.header_bytes);
    bound_header(&h);
    page->header = h;
    return 0;
}

static int take_record(struct vv_stats_page *page, const char *data)
{
    const struct vv_stats_header *h = &page->header;
    bool found = false;

    for (uint32_t i = 0; i < h->slots; i++) {
        const char *at = data + h->header_bytes + (size_t)i * h->record_bytes;
        struct vv_stats_record r = {0};

        memcpy(&r, at, VV_MIN(sizeof(r), h->record_bytes));
        if (!hash_ok(at, h->record_bytes, offsetof(struct vv_stats_record, checksum)) ||
            (found && r.seq <= page->record.seq))
            continue;
        bound_record(&r);
        page->record = r;
        found = true;
    }
    return found ? 0 : complain(page, -EBADMSG, "damaged: no record has a matching checksum");
}

/* Returns the number of bytes. */
static ssize_t read_file(int fd, char **ret_data)
{
    struct stat st;
    size_t n = 0;

    if (fstat(fd, &st))
        return -errno;
    size_t size = st.st_size < 0 || st.st_size > FILE_MAX ? FILE_MAX : (size_t)st.st_size;
    char *data = malloc(size + 1);
    if (!data)
        return -ENOMEM;
    while (n < size) {
        ssize_t r = pread(fd, data + n, size - n, (off_t)n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            r = -errno;
            free(data);
            return r;
        }
        if (r == 0)
            break;
        n += (size_t)r;
    }
    *ret_data = data;
    return (ssize_t)n;
}

static enum vv_stats_owner owner_of(const struct vv_stats_header *h)
{
    uint64_t ticks = 0, space = vvi_process_space(), boot = vvi_process_boot();

    /* Machines may share a folder, and the first namespaces of all machines have the same number. */
    if (h->boot && boot && h->boot != boot)
        return h->node && h->node == vvi_process_node() ? VV_STATS_DEAD : VV_STATS_UNKNOWN;
    if (!h->pid_space || h->pid_space != space)
        return VV_STATS_UNKNOWN;
    int rc = vvi_process_start("/proc", (pid_t)h->pid, &ticks);
    if (rc == -ESRCH)
        return VV_STATS_DEAD;
    if (rc || !h->start_ticks)
        return VV_STATS_UNKNOWN;
    return ticks == h->start_ticks ? VV_STATS_ALIVE : VV_STATS_DEAD;
}

static int open_page(const char *path, struct vv_stats_page *page, struct stat *ret_st)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        int rc = -errno;
        return complain(page, rc, "%s", strerror(-rc));
    }
    if (fstat(fd, ret_st) || !S_ISREG(ret_st->st_mode)) {
        close(fd);
        return complain(page, -EBADMSG, "not a plain file");
    }
    if (ret_st->st_uid != geteuid()) {
        close(fd);
        return complain(page, -EACCES, "it belongs to another user");
    }
    page->file[0] = (uint64_t)ret_st->st_dev;
    page->file[1] = (uint64_t)ret_st->st_ino;
    return fd;
}

int vv_stats_page_read(const char *path, struct vv_stats_page *ret_page)
{
    struct stat st;
    int rc = -EBADMSG;

    memset(ret_page, 0, sizeof(*ret_page));
    ret_page->owner = VV_STATS_UNKNOWN;
    snprintf(ret_page->path, sizeof(ret_page->path), "%s", path);
    int fd = open_page(path, ret_page, &st);
    if (fd < 0)
        return ret_page->status = fd;
    for (int i = 0; i < TRIES && rc == -EBADMSG; i++) {
        char *data = NULL;
        ssize_t n = read_file(fd, &data);
        rc = n < 0 ? complain(ret_page, (int)n, "%s", strerror((int)-n))
                   : take_header(ret_page, data, (size_t)n);
        if (rc == 0)
            ret_page->owner = owner_of(&ret_page->header);
        if (rc == 0)
            rc = take_record(ret_page, data);
        free(data);
    }
    /* The process was killed before it had finished the page. */
    if (rc == -EAGAIN && time(NULL) - st.st_mtime > UNFINISHED_S)
        ret_page->owner = VV_STATS_DEAD;
    close(fd);
    return ret_page->status = rc;
}

/* True for varve-stats.PID.N, and no other name. */
static bool is_page_name(const char *name)
{
    size_t pid, n;

    if (strncmp(name, VVI_STATS_NAME, strlen(VVI_STATS_NAME)) != 0)
        return false;
    name += strlen(VVI_STATS_NAME);
    pid = strspn(name, "0123456789");
    n = name[pid] == '.' ? strspn(name + pid + 1, "0123456789") : 0;
    return pid > 0 && n > 0 && name[pid + 1 + n] == '\0';
}

static int each_in(const char *folder, int (*fn)(void *arg, const struct vv_stats_page *page),
                   void *arg)
{
    struct vv_stats_page *page = malloc(sizeof(*page));
    DIR *dir = page ? opendir(folder) : NULL;
    struct dirent *entry;
    int rc = 0;

    if (!dir) {
        rc = !page ? -ENOMEM : errno == ENOENT ? 0 : -errno;
        free(page);
        return rc;
    }
    while (rc == 0 && (entry = readdir(dir))) {
        char path[VV_STATS_PATH];

        if (!is_page_name(entry->d_name) ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= sizeof(path))
            continue;
        int got = vv_stats_page_read(path, page);
        if (got == -ENOENT || got == -EACCES || got == -ELOOP ||
            (got == -EAGAIN && page->owner != VV_STATS_DEAD))
            continue;
        rc = fn(arg, page);
    }
    closedir(dir);
    free(page);
    return rc;
}

/* The second default folder of pages, or NULL. */
static const char *other_folder(void)
{
    const char *other = getenv("XDG_RUNTIME_DIR");

    return other && other[0] == '/' && strcmp(other, VVI_STATS_FOLDER) != 0 ? other : NULL;
}

static int each_in_folders(const char *folder,
                           int (*fn)(void *arg, const struct vv_stats_page *page), void *arg)
{
    const char *other = folder ? NULL : other_folder();
    int rc = each_in(folder ? folder : VVI_STATS_FOLDER, fn, arg);

    return rc == 0 && other ? each_in(other, fn, arg) : rc;
}

/* True if the file is directly in the folder. */
static bool is_in(const char *path, const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;

    return n > 0 && strncmp(path, folder, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* Visits the pages that one process has open in other folders than the default ones. */
static int each_of_process(const char *pid, struct vv_stats_page *page,
                           int (*fn)(void *arg, const struct vv_stats_page *page), void *arg)
{
    char fds[64], link[128], path[VV_STATS_PATH];
    struct dirent *entry;
    int rc = 0;

    snprintf(fds, sizeof(fds), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(fds);
    while (dir && rc == 0 && (entry = readdir(dir))) {
        snprintf(link, sizeof(link), "%s/%.20s", fds, entry->d_name);
        ssize_t n = readlink(link, path, sizeof(path) - 1);
        path[n > 0 ? n : 0] = '\0';
        const char *name = strrchr(path, '/');
        if (!name || !is_page_name(name + 1) || is_in(path, VVI_STATS_FOLDER) ||
            is_in(path, other_folder()))
            continue;
        if (vv_stats_page_read(path, page) == 0 && page->owner == VV_STATS_ALIVE &&
            page->header.pid == strtoull(pid, NULL, 10))
            rc = fn(arg, page);
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* Visits pages in other folders: a process may publish in any folder, and keeps its page open while it runs. Processes
 * of other users cannot be inspected. */
static int each_elsewhere(int (*fn)(void *arg, const struct vv_stats_page *page), void *arg)
{
    struct vv_stats_page *page = malloc(sizeof(*page));
    DIR *dir = page ? opendir("/proc") : NULL;
    struct dirent *entry;
    int rc = page ? 0 : -ENOMEM;

    while (dir && rc == 0 && (entry = readdir(dir)))
        if (entry->d_name[strspn(entry->d_name, "0123456789")] == '\0')
            rc = each_of_process(entry->d_name, page, fn, arg);
    if (dir)
        closedir(dir);
    free(page);
    return rc;
}

int vv_stats_page_each_usual(int (*fn)(void *arg, const struct vv_stats_page *page), void *arg)
{
    return each_in_folders(NULL, fn, arg);
}

int vv_stats_page_each(const char *folder, int (*fn)(void *arg, const struct vv_stats_page *page),
                       void *arg)
{
    int rc = each_in_folders(folder, fn, arg);

    return rc == 0 && !folder ? each_elsewhere(fn, arg) : rc;
}

int vv_stats_page_remove(const struct vv_stats_page *page)
{
    struct stat st;

    if (page->owner != VV_STATS_DEAD)
        return -EBUSY;
    if (lstat(page->path, &st))
        return -errno;
    if ((uint64_t)st.st_dev != page->file[0] || (uint64_t)st.st_ino != page->file[1])
        return -ESTALE;
    return unlink(page->path) ? -errno : 0;
}

static int clean_one(void *arg, const struct vv_stats_page *page)
{
    unsigned *n = arg;

    if (page->owner == VV_STATS_DEAD && vv_stats_page_remove(page) == 0)
        (*n)++;
    return 0;
}

unsigned vv_stats_clean(const char *folder)
{
    unsigned n = 0;

    (void)!each_in_folders(folder, clean_one, &n);
    return n;
}
