/* SPDX-License-Identifier: Apache-2.0 */
/* varve verify: reads every byte of the checkpoints in a folder, or of single files, and reports damage. It takes
 * no lock and changes nothing, except with --repair. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/repair.h"
#include "store/files/ckfile.h"
#include "store/partner/partner.h"
#include "store/remote/group.h"
#include "store/target/folder/target_folder.h"

struct check {
    bool json;
    const char *local, *remote; /* as they were given */
    struct json out;
    const char *below;   /* the folder that is scanned, inside of the one to be verified */
    char (*paths)[1024]; /* of files to check */
    size_t n, room;
    uint64_t problems, bad_files, bytes, unfinished, records, markers;
    const char *folder, *other; /* of the group in work; NULL: no other */
    bool repair;
    uint64_t repaired, left; /* of the problems of groups */
    int result;
    const char *current; /* path */
};

/* Problems go into a list as they are found. */
static void begin_json(struct check *c, const char *list)
{
    c->out = json_begin(stdout, JSON_SPACED);
    if (!c->json)
        return;
    json_object(&c->out, NULL);
    json_array(&c->out, list);
}

static void end_json(struct check *c, bool ok)
{
    json_bool(&c->out, "ok", ok);
    json_close(&c->out);
    json_end(&c->out);
}

static int collect(void *user, const struct vv_files_found *f)
{
    struct check *c = user;
    if (f->kind == VV_CKFILE_TEMP) {
        c->unfinished++;
        return 0;
    }
    if (c->n == c->room) {
        size_t room = c->room == 0 ? 64 : c->room * 2;
        void *paths = realloc(c->paths, room * sizeof(*c->paths));
        if (!paths)
            return -ENOMEM;
        c->paths = paths;
        c->room = room;
    }
    snprintf(c->paths[c->n++], sizeof(*c->paths), "%s%s", c->below, f->path);
    return 0;
}

static void report(void *user, const struct vv_ckfile_problem *p)
{
    struct check *c = user;
    if (c->json) {
        json_gap(&c->out, "\n  ");
        json_object(&c->out, NULL);
        json_text(&c->out, "file", c->current);
        json_uint(&c->out, "version", p->version);
        if (p->chunk >= 0) {
            json_int(&c->out, "region", p->region);
            json_int(&c->out, "chunk", p->chunk);
        }
        json_text(&c->out, "problem", p->what);
        json_close(&c->out);
    } else {
        files_progress("verify", 0, 0);
        printf("%s: version %" PRIu64, c->current, p->version);
        if (p->chunk >= 0)
            printf(", region %" PRId64 ", chunk %" PRId64, p->region, p->chunk);
        printf(": %s\n", p->what);
    }
    c->problems++;
}

static void check_file(struct check *c, struct vv_target *at, const char *path)
{
    struct vv_ckfile_info info;
    c->current = path;
    int rc = vv_ckfile_verify(at, path, report, c, &info);
    if (rc == 0) {
        c->bytes += info.id.size;
        vv_ckfile_info_fini(&info);
        return;
    }
    c->bad_files++;
    if (rc != -EBADMSG) {
        enum vv_ckfile_kind kind;
        uint32_t rank;
        uint64_t generation;
        struct vv_ckfile_problem p = {.region = -1, .chunk = -1, .what = strerror(-rc)};
        const char *base = strrchr(path, '/');
        (void)vv_ckfile_parse_name(base ? base + 1 : path, &kind, &rank, &p.version, &generation);
        report(c, &p);
    }
}

/* ---- messages between ranks ---- */

static void report_group(void *user, const struct vv_group_problem *p)
{
    struct check *c = user;
    if (c->json) {
        json_gap(&c->out, "\n  ");
        json_object(&c->out, NULL);
        json_text(&c->out, "folder", c->folder);
        json_text(&c->out, "file", c->current);
        json_text(&c->out, "entry", p->file);
        json_uint(&c->out, "version", p->version);
        if (c->repair)
            json_bool(&c->out, "repaired", p->repaired);
        json_text(&c->out, "problem", p->what);
        json_close(&c->out);
    } else {
        files_progress("verify", 0, 0);
        printf("%s/%s/%s: version %" PRIu64 ": %s%s\n", c->folder, c->current, p->file, p->version,
               p->what,
               !c->repair    ? ""
               : p->repaired ? ", repaired"
                             : ", not repaired");
    }
    c->problems++;
}

static void check_group(struct check *c, const char *history)
{
    struct vv_target *at;
    struct vv_group_check opts = {.repair = c->repair, .report = report_group, .user = c};
    struct vv_group_check_result r = {0};
    char current[VV_CKFILE_HISTORY_MAX + 16];
    if (!vv_files_name_ok(history) || files_open(c->folder, history, &at) < 0)
        return;
    if (c->other)
        (void)files_open(c->other, history, &opts.other);
    snprintf(current, sizeof(current), "%s/" VV_GROUP_FOLDER, history);
    c->current = current;
    int rc = vv_group_check(at, history, &opts, &r);
    if (rc == -EBUSY) {
        fprintf(stderr, "varve verify: %s: a program has the history open\n", history);
        c->result = CLI_FAILED;
    } else if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR) {
        c->result = files_complain("verify", c->folder, history, rc);
    }
    c->records += r.records;
    c->markers += r.markers;
    c->repaired += r.repaired;
    c->left += r.problems - r.repaired;
    vv_target_close(opts.other);
    vv_target_close(at);
}

static int check_listed(void *user, const char *history, uint64_t bytes)
{
    (void)bytes;
    check_group(user, history);
    return 0;
}

/* Verifies one history, or all in the folder. */
static int check_groups(struct check *c, const char *folder, const char *history, const char *other)
{
    struct vv_target *at;
    c->folder = folder;
    c->other = other;
    c->result = CLI_OK;
    if (history) {
        check_group(c, history);
        return c->result;
    }
    int rc = files_open(folder, NULL, &at);
    if (rc < 0)
        return files_complain("verify", folder, NULL, rc);
    rc = at->ops->list(at, check_listed, c);
    vv_target_close(at);
    return rc < 0 ? files_complain("verify", folder, NULL, rc) : c->result;
}

static int check_folder(struct check *c, const char *folder, const char *history)
{
    static const char *const kept[] = {VV_PARTNER_FOLDER, VV_PARITY_FOLDER};
    static const char *const below[] = {VV_PARTNER_FOLDER "/", VV_PARITY_FOLDER "/"};
    char path[1024 + sizeof(VV_PARTNER_FOLDER)];
    c->n = 0;
    c->below = "";
    int rc = vv_files_scan(vv_os_posix(), folder, history, collect, c);
    /* Verifies copies that are kept here for ranks of other nodes, and parity. */
    for (size_t i = 0; i < VV_ARRAY_SIZE(kept) && (rc == 0 || rc == -ENOENT); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, kept[i]);
        c->below = below[i];
        int more = vv_files_scan(vv_os_posix(), path, history, collect, c);
        rc = more == -ENOENT ? rc : more;
    }
    if (rc < 0)
        return files_complain("verify", folder, history, rc);
    struct vv_target *at;
    rc = files_open(folder, NULL, &at);
    if (rc < 0)
        return files_complain("verify", folder, NULL, rc);
    for (size_t i = 0; i < c->n; i++) {
        files_progress("verify", i, c->n);
        check_file(c, at, c->paths[i]);
    }
    files_progress("verify", 0, 0);
    vv_target_close(at);
    uint64_t records = c->records;
    int result = check_groups(c, folder, history, NULL);
    if (c->n > 0 || result != CLI_OK || c->records > records)
        return result;
    /* Fail if nothing was verified: a user who relies on the check must not see success. */
    if (history)
        fprintf(stderr, "varve verify: no checkpoint of '%s' in %s\n", history, folder);
    else if (files_check_empty("verify", folder) == CLI_OK)
        fprintf(stderr, "varve verify: no checkpoints in %s\n", folder);
    return CLI_FAILED;
}

/* ---- repairing ---- */

static void tell_repair(void *user, const char *folder, const char *path, const char *why)
{
    struct check *c = user;
    if (c->json) {
        json_gap(&c->out, "\n  ");
        json_object(&c->out, NULL);
        json_text(&c->out, "folder", folder);
        json_text(&c->out, "file", path);
        json_bool(&c->out, "repaired", !why);
        if (why)
            json_text(&c->out, "problem", why);
        json_close(&c->out);
    } else {
        files_progress("repair", 0, 0);
        printf("%s/%s: damaged, %s%s\n", folder, path, why ? "not repaired: " : "repaired",
               why ? why : "");
    }
    c->problems++;
}

static int repair_all(struct check *c, int n, char **args)
{
    const char *remote = c->remote;
    struct repair_result all = {0};
    int first = 0, result = CLI_OK;
    if (!remote)
        remote = getenv("VARVE_REMOTE");
    if (!remote || remote[0] == '\0') {
        fprintf(stderr,
                "varve verify: --repair needs a second folder: give --remote FOLDER, or set "
                "VARVE_REMOTE\n");
        return CLI_USAGE;
    }
    const char *folder = files_folder("verify", c->local, n, args, &first);
    if (!folder)
        return CLI_USAGE;
    begin_json(c, "damaged");
    for (int i = first; i < n || i == first; i++) {
        struct repair_result r = {0};
        const char *history = i < n ? args[i] : NULL;
        int rc = repair_folders(folder, remote, history, tell_repair, c, &r);
        if (rc < 0)
            result = files_complain(
                "verify", files_is_folder(folder) && !files_is_folder(remote) ? remote : folder,
                history, rc);
        all.repaired += r.repaired;
        all.unrepaired += r.unrepaired;
        /* Check the groups after the repair. */
        if (rc == 0)
            rc = check_groups(c, remote, history, folder);
        result = rc > 0 ? rc : result;
    }
    all.repaired += c->repaired;
    all.unrepaired += c->left;
    if (c->json) {
        json_gap(&c->out, "\n");
        json_close(&c->out);
        json_uint(&c->out, "repaired", all.repaired);
        json_uint(&c->out, "unrepaired", all.unrepaired);
        end_json(c, result == CLI_OK && all.unrepaired == 0);
    } else if (result == CLI_OK) {
        printf("%" PRIu64 " repaired, %" PRIu64 " left damaged\n", all.repaired, all.unrepaired);
    }
    return result != CLI_OK ? result : all.unrepaired > 0 ? CLI_FAILED : CLI_OK;
}

#define AT(field) offsetof(struct check, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local),
     .help = "where to look; --local may be left out if VARVE_LOCAL is not\n"
             "set or FOLDER has a slash in it"},
    {OPT_FLAG, .name = "repair", .at = AT(repair),
     .help = "repair; refused while a program has the history open"},
    {OPT_TEXT, .name = "remote", .arg = "FOLDER", .at = AT(remote),
     .help = "the same; with --repair the other folder, by default the one that\n"
             "VARVE_REMOTE names"},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = "varve verify",
    .usage = "[--json] [[--local | --remote] FOLDER] [HISTORY | FILE.ckpt]...\n"
             "       varve verify --repair [--json] [--local] FOLDER --remote FOLDER [HISTORY]...",
    .about = "Reads every byte of the checkpoints in FOLDER, by default the one that\n"
             "VARVE_LOCAL names, or of single files, and names version, region and chunk of\n"
             "whatever is wrong, in copies that are kept there for other nodes too. In a shared\n"
             "folder it also checks group records and commit\n"
             "markers, and that the files that they name exist. With --repair, replaces damaged\n"
             "files in one of two folders by the good copy in the other, brings missing ones\n"
             "back to the shared one, and writes damaged records and markers again.",
    .operands = true,
    OPT_LIST(options),
};

/* True if the argument is a path to a file, not a folder or the name of a history. Without a folder there are no
 * histories that a file could be mistaken for. */
static bool is_file(const char *arg, const char *local)
{
    size_t n = strlen(arg);
    struct stat st;
    if (strchr(arg, '/') || (n > 5 && strcmp(arg + n - 5, ".ckpt") == 0))
        return !files_is_folder(arg);
    return !local && !files_folder_known() && stat(arg, &st) == 0 && S_ISREG(st.st_mode);
}

static int check_all(struct check *c, int n, char **args, const char *local)
{
    int first = 0, histories = 0, result = CLI_OK;
    uint64_t files = 0;
    const char *folder = NULL;
    for (int i = 0; i < n; i++)
        histories += !is_file(args[i], local);
    if (histories > 0 || n == 0) {
        /* If the first argument is a file, the folder is not among the arguments. */
        int none = n;
        folder = files_folder("verify", local, n, args,
                              n > 0 && is_file(args[0], local) ? &none : &first);
        if (!folder)
            return CLI_USAGE;
        histories -= first;
    }
    if (folder && histories == 0) {
        result = check_folder(c, folder, NULL);
        files += result == CLI_OK ? c->n : 0;
    }
    for (int i = first; i < n; i++) {
        struct stat st;
        if (is_file(args[i], local)) {
            if (stat(args[i], &st) < 0) {
                fprintf(stderr, "varve verify: %s: %s\n", args[i], strerror(errno));
                result = CLI_FAILED;
                continue;
            }
            check_file(c, vv_target_cwd(), args[i]);
            files++;
            continue;
        }
        int rc = check_folder(c, folder, args[i]);
        result = rc != CLI_OK ? rc : result;
        files += rc == CLI_OK ? c->n : 0;
    }
    c->n = files;
    return result;
}

int cli_verify(int argc, char **argv)
{
    struct check c = {0};
    int first, status = opts_parse(&command, argc, argv, &c, &first);
    if (status >= 0)
        return status;
    if (c.repair)
        return repair_all(&c, argc - first, argv + first);
    if (c.remote && c.local) {
        fprintf(stderr,
                "varve verify: --local and --remote are both given, expected one (both only "
                "with --repair)\n");
        return CLI_USAGE;
    }
    const char *local = c.local ? c.local : c.remote;
    begin_json(&c, "problems");
    int result = check_all(&c, argc - first, argv + first, local);
    free(c.paths);
    if (c.json) {
        json_gap(&c.out, "\n");
        json_close(&c.out);
        json_uint(&c.out, "files", c.n);
        json_uint(&c.out, "bad_files", c.bad_files);
        json_uint(&c.out, "unfinished", c.unfinished);
        json_uint(&c.out, "records", c.records);
        json_uint(&c.out, "markers", c.markers);
        json_uint(&c.out, "good_bytes", c.bytes);
        end_json(&c, c.problems == 0 && result == CLI_OK);
    } else if (result == CLI_OK) {
        char bytes[VV_BYTES_TEXT];
        printf("%zu checkpoints, %" PRIu64 " damaged, %s good\n", c.n, c.bad_files,
               vv_bytes_human(c.bytes, bytes, sizeof(bytes)));
        if (c.records + c.markers > 0)
            printf("%" PRIu64 " group records, %" PRIu64 " markers, %" PRIu64 " problems\n",
                   c.records, c.markers, c.left);
    }
    return result != CLI_OK ? result : c.problems > 0 ? CLI_FAILED : CLI_OK;
}
