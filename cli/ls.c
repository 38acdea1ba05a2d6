/* SPDX-License-Identifier: Apache-2.0 */
/* varve ls: the committed versions in a folder. It takes no lock, so it works beside a running program. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/util.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "store/files/ckfile.h"
#include "store/partner/partner.h"

/* A line of text, without the columns that depend on other lines. */
struct row {
    uint64_t generation;
    char *left, *right; /* of the generation */
};

struct listing {
    bool json;
    struct json out;
    const char *kept; /* the folder of copies for others while it is listed, or NULL */
    uint64_t n;
    struct row *rows; /* text only: lines are printed when all are known, so that columns fit */
    size_t rows_room;
    const char *folder, *local; /* to list; as it was given */
    struct files_levels levels;
};

static const char *state_name(const struct vv_files_found *f)
{
    return f->status == 0 ? "ok" : f->kind == VV_CKFILE_TEMP ? "unfinished" : "damaged";
}

static const char *level_name(struct listing *l, const struct vv_files_found *f)
{
    return f->status != 0 ? "-" : l->kept ? l->kept + 1 : files_level(&l->levels, l->folder, f);
}

static void print_json(struct listing *l, const struct vv_files_found *f)
{
    struct json *j = &l->out;
    const char *level = level_name(l, f);
    char when[32];
    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_text(j, "history", f->history);
    json_uint(j, "rank", f->rank);
    json_uint(j, "version", f->version);
    json_uint(j, "generation", f->generation);
    json_textf(j, "file", "%s%s%s", l->kept ? l->kept : "", l->kept ? "/" : "", f->path);
    json_uint(j, "file_bytes", f->file_bytes);
    json_text(j, "status", state_name(f));
    if (f->status != 0) {
        json_text(j, "error", f->error);
    } else {
        json_text(j, "level", level);
        json_uint(j, "size", f->info->id.size);
        json_uint(j, "chunk_bytes", f->info->id.chunk_bytes);
        json_textf(j, "run", "%016" PRIx64, f->info->id.run_id);
        json_text(j, "committed", files_time(f->info->commit_time_ns, when, sizeof(when)));
        json_array(j, "regions");
        for (uint32_t i = 0; i < f->info->nregions; i++) {
            json_object(j, NULL);
            json_int(j, "id", f->info->regions[i].id);
            json_uint(j, "bytes", f->info->regions[i].bytes);
            if (f->info->regions[i].elem_bytes)
                json_uint(j, "element_bytes", f->info->regions[i].elem_bytes);
            json_close(j);
        }
        json_close(j);
    }
    json_close(j);
}

static int add_row(struct listing *l, const struct vv_files_found *f)
{
    struct row row = {.generation = f->generation};
    char size[VV_BYTES_TEXT], when[32];
    if (l->n == l->rows_room) {
        size_t room = l->rows_room ? 2 * l->rows_room : 64;
        struct row *more = realloc(l->rows, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        l->rows = more;
        l->rows_room = room;
    }
    if (asprintf(&row.left, "%-20s %5" PRIu32 " %12" PRIu64, f->history, f->rank, f->version) < 0)
        return -ENOMEM;
    int n =
        f->status == 0
            ? asprintf(&row.right, "%11s %7" PRIu32 "  %-19s  %-8s  ok",
                       vv_bytes_human(f->info->id.size, size, sizeof(size)), f->info->nregions,
                       files_time(f->info->commit_time_ns, when, sizeof(when)), level_name(l, f))
            : asprintf(&row.right, "%11s %7s  %-19s  %-8s  %s: %s", "-", "-", "-", "-",
                       state_name(f), f->error);
    if (n < 0) {
        free(row.left);
        return -ENOMEM;
    }
    l->rows[l->n] = row;
    return 0;
}

/* Generations are small where processes count for themselves, and have 17 digits where processes agree on them. */
static void print_rows(struct listing *l)
{
    int width = 4;
    for (uint64_t i = 0; i < l->n; i++) {
        int digits = snprintf(NULL, 0, "%" PRIu64, l->rows[i].generation);
        width = VV_MAX(width, digits);
    }
    if (l->n > 0)
        printf("%-20s %5s %12s %*s %11s %7s  %-19s  %-8s  %s\n", "HISTORY", "RANK", "VERSION",
               width, "GEN", "SIZE", "REGIONS", "COMMITTED (UTC)", "LEVEL", "STATE");
    for (uint64_t i = 0; i < l->n; i++) {
        printf("%s %*" PRIu64 " %s\n", l->rows[i].left, width, l->rows[i].generation,
               l->rows[i].right);
        free(l->rows[i].left);
        free(l->rows[i].right);
    }
    free(l->rows);
}

static int show(void *user, const struct vv_files_found *f)
{
    struct listing *l = user;
    int rc = 0;
    if (l->json)
        print_json(l, f);
    else
        rc = add_row(l, f);
    l->n += rc == 0;
    return rc;
}

/* Lists one history, or all: the files of the folder's own ranks, and the copies kept for others. */
static int list_history(struct listing *l, const char *history)
{
    static const char *const kept[] = {VV_PARTNER_FOLDER, VV_PARITY_FOLDER};
    char path[1024 + sizeof(VV_PARTNER_FOLDER)];
    l->kept = NULL;
    int rc = vv_files_scan(vv_os_posix(), l->folder, history, show, l);
    for (size_t i = 0; i < VV_ARRAY_SIZE(kept) && (rc >= 0 || rc == -ENOENT); i++) {
        snprintf(path, sizeof(path), "%s/%s", l->folder, kept[i]);
        l->kept = kept[i];
        int more = vv_files_scan(vv_os_posix(), path, history, show, l);
        if (more != -ENOENT && !(more == 0 && rc < 0 && !history))
            rc = more;
    }
    return rc;
}

#define AT(field) offsetof(struct listing, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local),
     .help = "where to look; --local may be left out if neither variable is\n"
             "set or FOLDER has a slash in it"},
    {OPT_TEXT, .name = "remote", .arg = "FOLDER", .help = "the same", .at = AT(local)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = "varve ls",
    .usage = "[--json] [[--local | --remote] FOLDER] [HISTORY]...",
    .about = "Lists the checkpoints in FOLDER, by default the one that VARVE_LOCAL names, or\n"
             "else VARVE_REMOTE, and how far each has come: in a local folder, in a remote one,\n"
             "or complete there on all ranks; partner is a copy that is kept for another node,\n"
             "parity what a set of ranks needs when one is lost.",
    .operands = true,
    OPT_LIST(options),
};

int cli_ls(int argc, char **argv)
{
    struct listing l = {0};
    int first, status = opts_parse(&command, argc, argv, &l, &first);
    if (status >= 0)
        return status;
    const char *folder = files_folder("ls", l.local, argc, argv, &first);
    if (!folder)
        return CLI_USAGE;
    l.folder = folder;
    l.out = json_begin(stdout, JSON_SPACED);
    if (l.json) {
        json_object(&l.out, NULL);
        json_text(&l.out, "folder", folder);
        json_array(&l.out, "checkpoints");
    }
    int result = CLI_OK;
    for (int i = first; i < argc || i == first; i++) {
        const char *history = i < argc ? argv[i] : NULL;
        int rc = list_history(&l, history);
        if (rc < 0)
            result = files_complain("ls", folder, history, rc);
    }
    files_levels_fini(&l.levels);
    if (!l.json)
        print_rows(&l);
    if (l.n == 0 && result == CLI_OK)
        result = files_check_empty("ls", folder);
    if (l.json) {
        json_gap(&l.out, "\n");
        json_close(&l.out);
        json_close(&l.out);
        json_end(&l.out);
    } else if (l.n == 0 && result == CLI_OK) {
        printf("no checkpoints in %s\n", folder);
    }
    return result;
}
