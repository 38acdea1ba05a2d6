/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "s3/s3.h"
#include "store/files/ckfile.h"
#include "store/target/folder/target_folder.h"

bool files_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *environment(void)
{
    const char *folder = getenv("VARVE_LOCAL");
    if (!folder || folder[0] == '\0')
        folder = getenv("VARVE_REMOTE");
    return folder && folder[0] != '\0' ? folder : NULL;
}

bool files_folder_known(void)
{
    return environment();
}

const char *files_folder(const char *command, const char *option, int argc, char *const *argv,
                         int *first)
{
    const char *arg = *first < argc ? argv[*first] : NULL;
    if (option && option[0] != '\0')
        return option;
    if (arg && (strchr(arg, '/') || arg[0] == '.' || (!environment() && files_is_folder(arg)))) {
        ++*first;
        return arg;
    }
    if (environment())
        return environment();
    fprintf(stderr, "varve %s: ", command);
    if (arg)
        fprintf(stderr, "'%s' is not a folder", arg);
    else
        fprintf(stderr, "no folder is given");
    fprintf(stderr, "; name one before the history, give --local FOLDER, or set VARVE_LOCAL\n");
    return NULL;
}

int files_open(const char *folder, const char *history, struct vv_target **ret_target)
{
    char path[1024 + VV_CKFILE_HISTORY_MAX], err[256] = "";
    snprintf(path, sizeof(path), "%s%s%s", folder, history ? "/" : "", history ? history : "");
    int rc = vv_target_open(vv_os_posix(), path, err, sizeof(err), ret_target);
    if (rc < 0 && err[0] != '\0')
        fprintf(stderr, "varve: %s\n", err);
    return rc;
}

char *files_time(uint64_t ns, char *buf, size_t size)
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || strftime(buf, size, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        snprintf(buf, size, "?");
    return buf;
}

void files_progress(const char *what, uint64_t done, uint64_t total)
{
    enum { WIDTH = 40 };
    if (!isatty(STDERR_FILENO))
        return;
    if (total == 0) {
        fprintf(stderr, "\r\033[K");
        return;
    }
    int filled = (int)((double)done / (double)total * WIDTH);
    fprintf(stderr, "\r%s [", what);
    for (int i = 0; i < WIDTH; i++)
        putc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %" PRIu64 "/%" PRIu64, done, total);
}

bool files_number(const char *text, uint64_t *ret_value)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_value = value;
    return true;
}

void files_levels_fini(struct files_levels *l)
{
    vv_group_close(&l->group);
    vv_target_close(l->at);
    l->at = NULL;
}

static void enter_history(struct files_levels *l, const char *folder, const char *history)
{
    if (strcmp(l->history, history) == 0)
        return;
    files_levels_fini(l);
    snprintf(l->history, sizeof(l->history), "%s", history);
    if (files_open(folder, history, &l->at) < 0 ||
        vv_group_open(l->at, history, 0, 1, false, &l->group) < 0)
        l->group.at = NULL;
}

/* True if the folder is a local one. A local folder may have life files, too: ranks that could not copy a file write
 * them, with a range of another length (docs/format/group.md). */
static bool is_local(struct vv_group *group, uint32_t rank)
{
    struct vv_group_life life;
    group->rank = rank;
    int rc = vv_group_read_life(group, &life);
    return rc == -ENOENT ||
           (rc == 0 && life.next_generation - life.first_generation != VV_GROUP_LIFE_GENERATIONS);
}

const char *files_level(struct files_levels *l, const char *folder, const struct vv_files_found *f)
{
    struct vv_group_record r;
    enter_history(l, folder, f->history);
    if (!l->group.at)
        return "local";
    if (vv_group_read_record(&l->group, f->version, f->info->id.run_id, &r) < 0)
        return is_local(&l->group, f->rank) ? "local" : "remote";
    bool complete = f->rank < r.ranks && r.file[f->rank].generation == f->generation;
    vv_group_record_fini(&r);
    return complete ? "complete" : "remote";
}

/* The reason for `rc`. For an object store: the message of another attempt to open it, which says more. */
static const char *why_not(const char *folder, int rc, char *err, size_t err_bytes)
{
    struct vv_target *t = NULL;
    if (strncmp(folder, "s3://", 5) == 0 &&
        vv_target_open(vv_os_posix(), folder, err, err_bytes, &t) == 0)
        vv_target_close(t);
    return err[0] != '\0' ? err : strerror(-rc);
}

int files_complain(const char *command, const char *folder, const char *history, int rc)
{
    char err[256] = "";
    fprintf(stderr, "varve %s: ", command);
    if (rc == -EINVAL && history)
        fprintf(stderr, "'%s' cannot be the name of a history", history);
    else if (rc == -ENOENT && history && files_is_folder(folder))
        fprintf(stderr, "no history '%s' in %s", history, folder);
    else if (rc == -EINVAL && strncmp(folder, "s3://", 5) == 0)
        fprintf(stderr, "'%s' is not s3://BUCKET/PREFIX", vv_s3_url_shown(folder));
    else if (rc == -ENOTDIR)
        fprintf(stderr, "%s is not a folder; for a single file: varve verify %s", folder, folder);
    else
        fprintf(stderr, "%s: %s", folder, why_not(folder, rc, err, sizeof(err)));
    if (history && files_is_folder(history))
        fprintf(stderr, "; for the folder %s: varve %s --local %s", history, command, history);
    fputc('\n', stderr);
    return CLI_FAILED;
}

int files_check_empty(const char *command, const char *folder)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && !found && (e = readdir(dir)) != NULL;)
        found = vv_ckfile_parse_name(e->d_name, &kind, &rank, &version, &generation);
    if (dir)
        closedir(dir);
    if (!found)
        return CLI_OK;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    size_t base = n;
    while (base > 0 && folder[base - 1] != '/')
        base--;
    fprintf(stderr, "varve %s: %s is one history: name its folder and the history, ", command,
            folder);
    fprintf(stderr, "varve %s --local %.*s %.*s\n", command, base > 0 ? (int)base : 1,
            base > 0 ? folder : ".", (int)(n - base), folder + base);
    return CLI_FAILED;
}
