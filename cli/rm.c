/* SPDX-License-Identifier: Apache-2.0 */
/* varve rm: removes versions of a history, damaged ones included. It takes the history's lock, so it refuses while
 * a program has the history open. Versions that it reports as removed stay removed. A dry run takes no lock and
 * writes nothing, and does not even remove the leftovers of a crash; it shows the state of the moment. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "store/files/ckfile.h"
#include "store/remote/group.h"
#include "store/store.h"

struct range {
    uint64_t first, last;
    bool found;
};

struct victim {
    uint64_t version, generation;
    uint64_t run_id; /* 0: not known */
};

struct removal {
    const char *folder, *history, *local; /* local: as it was given */
    bool json, dry_run, all, one_rank;
    struct json out;
    uint32_t rank; /* being removed */
    struct range *ranges;
    int nranges;
    /* Ranks that the history has. */
    uint32_t *ranks;
    size_t nranks;
    /* The versions of this rank. */
    struct victim *victims;
    size_t n, room;
    uint64_t removed;
};

static int see_rank(void *user, const struct vv_files_found *f)
{
    struct removal *r = user;
    for (size_t i = 0; i < r->nranks; i++)
        if (r->ranks[i] == f->rank)
            return 0;
    if (r->one_rank && f->rank != r->rank)
        return 0;
    uint32_t *more = realloc(r->ranks, (r->nranks + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    r->ranks = more;
    r->ranks[r->nranks++] = f->rank;
    return 0;
}

static bool wanted(struct removal *r, uint64_t version)
{
    bool yes = r->all;
    for (int i = 0; i < r->nranges; i++)
        if (version >= r->ranges[i].first && version <= r->ranges[i].last)
            yes = r->ranges[i].found = true;
    return yes;
}

static int see_victim(void *user, const struct vv_files_found *f)
{
    struct removal *r = user;
    if (f->rank != r->rank || f->kind != VV_CKFILE_COMMITTED || !wanted(r, f->version))
        return 0;
    if (r->n == r->room) {
        size_t room = r->room == 0 ? 64 : r->room * 2;
        void *more = realloc(r->victims, room * sizeof(*r->victims));
        if (!more)
            return -ENOMEM;
        r->victims = more;
        r->room = room;
    }
    r->victims[r->n++] =
        (struct victim){f->version, f->generation, f->info ? f->info->id.run_id : 0};
    return 0;
}

static void tell(struct removal *r, const struct victim *v)
{
    if (r->json) {
        json_gap(&r->out, "\n  ");
        json_object(&r->out, NULL);
        json_uint(&r->out, "rank", r->rank);
        json_uint(&r->out, "version", v->version);
        json_uint(&r->out, "generation", v->generation);
        json_close(&r->out);
    } else {
        printf("%s %s version %" PRIu64 " (rank %" PRIu32 ")\n",
               r->dry_run ? "would remove" : "removed", r->history, v->version, r->rank);
    }
    r->removed++;
}

/* In batches, whose files share the fsync of the folder. */
static int remove_victims(struct removal *r, struct vv_store *store, struct vv_files *files)
{
    enum { GROUP = 64 };
    struct vv_store_io io[GROUP], *done[GROUP];
    int result = 0;
    for (size_t at = 0; at < r->n; at += GROUP) {
        size_t n = VV_MIN(r->n - at, (size_t)GROUP), left = 0;
        for (size_t i = 0; i < n; i++) {
            struct victim *v = &r->victims[at + i];
            io[i] = (struct vv_store_io){
                .op = VV_STORE_REMOVE, .key = {files, v->version, v->generation}, .user = v};
            int rc = store->ops->submit(store, &io[i]);
            if (rc < 0)
                result = rc;
            else
                left++;
        }
        while (left > 0) {
            int got = store->ops->poll(store, done, GROUP, -1);
            if (got < 0)
                vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
            for (int i = 0; i < got; i++) {
                if (done[i]->status == 0)
                    tell(r, done[i]->user);
                else
                    result = done[i]->status;
            }
            left -= (size_t)VV_MAX(got, 0);
        }
        files_progress("rm", at + n, r->n);
    }
    files_progress("rm", 0, 0);
    return result;
}

/* In a shared folder, a version stops being complete before the first of its files is removed. */
static int retract_victims(struct removal *r)
{
    struct vv_group group;
    struct vv_target *at;
    int rc = files_open(r->folder, r->history, &at);
    if (rc < 0)
        return rc;
    rc = vv_group_open(at, r->history, r->rank, 1, false, &group);
    if (rc == 0) {
        for (size_t i = 0; rc == 0 && i < r->n; i++)
            rc = vv_group_retract(&group, r->victims[i].version, r->victims[i].run_id,
                                  r->victims[i].generation);
        vv_group_close(&group);
    } else if (rc == -ENOENT) {
        rc = 0; /* not a shared folder */
    }
    vv_target_close(at);
    return rc;
}

static int remove_rank(struct removal *r, struct vv_folder *folder, struct vv_store *store)
{
    char err[512] = "";
    struct vv_files *files;
    /* List all generations: in a shared folder the one that counts may not be the highest, and this code does not know
     * which one it is. */
    struct vv_files_opts opts = {.all_generations = true};
    int rc = vv_files_open(folder, r->history, r->rank, &opts, err, sizeof(err), &files);
    if (rc == -EBUSY) { /* The text after ';' is advice for programs. */
        fprintf(stderr, "varve rm: %.*s; end it first\n", (int)strcspn(err, ";"), err);
        return CLI_FAILED;
    }
    if (rc < 0) {
        fprintf(stderr, "varve rm: %s\n", err);
        return CLI_FAILED;
    }
    /* This process holds the lock, so the scan is exact. */
    r->n = 0;
    rc = vv_files_scan(vv_os_posix(), r->folder, r->history, see_victim, r);
    if (rc == 0)
        rc = retract_victims(r);
    if (rc == 0)
        rc = remove_victims(r, store, files);
    vv_files_close(files);
    return rc < 0 ? files_complain("rm", r->folder, r->history, rc) : CLI_OK;
}

static int tell_ranks(struct removal *r)
{
    for (size_t i = 0; i < r->nranks; i++) {
        r->rank = r->ranks[i];
        r->n = 0;
        int rc = vv_files_scan(vv_os_posix(), r->folder, r->history, see_victim, r);
        if (rc < 0)
            return files_complain("rm", r->folder, r->history, rc);
        for (size_t v = 0; v < r->n; v++)
            tell(r, &r->victims[v]);
    }
    return CLI_OK;
}

static int remove_ranks(struct removal *r)
{
    char err[512] = "";
    struct vv_store_opts opts;
    struct vv_folder *folder = NULL;
    struct vv_store *store = NULL;
    vv_store_opts_init(&opts);
    opts.mode = VV_STORE_BUFFERED; /* no data moves */
    int rc = vv_folder_new(r->folder, &opts, err, sizeof(err), &folder);
    if (rc == 0)
        rc = vv_folder_store(folder, &store);
    if (rc < 0) {
        fprintf(stderr, "varve rm: %s\n", err[0] != '\0' ? err : strerror(-rc));
        vv_folder_free(folder);
        return CLI_FAILED;
    }
    int result = CLI_OK;
    for (size_t i = 0; i < r->nranks; i++) {
        r->rank = r->ranks[i];
        rc = remove_rank(r, folder, store);
        result = rc != CLI_OK ? rc : result;
    }
    store->ops->close(store);
    vv_folder_free(folder);
    return result;
}

static int remove_all(struct removal *r)
{
    int rc = vv_files_scan(vv_os_posix(), r->folder, r->history, see_rank, r);
    if (rc < 0)
        return files_complain("rm", r->folder, r->history, rc);
    int result = r->dry_run ? tell_ranks(r) : remove_ranks(r);
    for (int i = 0; i < r->nranges && result == CLI_OK; i++)
        if (!r->ranges[i].found) {
            fprintf(stderr, "varve rm: no version %" PRIu64 "%s in history '%s'\n",
                    r->ranges[i].first, r->ranges[i].last > r->ranges[i].first ? " or after" : "",
                    r->history);
            result = CLI_FAILED;
        }
    return result;
}

static bool parse_range(const char *text, struct range *ret_range)
{
    char first[32];
    const char *dash = strchr(text, '-');
    struct range range = {0};
    if (!dash) {
        if (!files_number(text, &range.first))
            return false;
        range.last = range.first;
    } else {
        if (dash - text >= (ptrdiff_t)sizeof(first))
            return false;
        snprintf(first, sizeof(first), "%.*s", (int)(dash - text), text);
        if (!files_number(first, &range.first) || !files_number(dash + 1, &range.last) ||
            range.last < range.first)
            return false;
    }
    *ret_range = range;
    return true;
}

/* The operands: [FOLDER] HISTORY VERSION... Returns an exit status, or -1 to go on. */
static int parse_operands(int argc, char **argv, int operands, struct removal *r)
{
    int first = operands;
    r->folder = files_folder("rm", r->local, argc, argv, &first);
    if (!r->folder)
        return CLI_USAGE;
    if (first >= argc || r->all == (argc - first > 1)) {
        fprintf(stderr, "varve rm: expected a history%s%s, and after it versions or --all\n",
                first > operands ? " in " : "", first > operands ? r->folder : "");
        return CLI_USAGE;
    }
    r->history = argv[first];
    r->ranges = calloc((size_t)(argc - first), sizeof(*r->ranges));
    if (!r->ranges)
        return CLI_FAILED;
    for (int i = first + 1; i < argc; i++)
        if (!parse_range(argv[i], &r->ranges[r->nranges++])) {
            fprintf(stderr,
                    "varve rm: '%s' is not a version or a range (for example 10 or 10-20)\n",
                    argv[i]);
            return CLI_USAGE;
        }
    return -1;
}

static int set_folder(const char *value, void *arg)
{
    struct removal *r = arg;
    if (r->local) {
        fprintf(stderr, "varve rm: several folders are given, expected one --local or --remote\n");
        return CLI_USAGE;
    }
    r->local = value;
    return 0;
}

#define AT(field) offsetof(struct removal, field)

static const struct opt options[] = {
    {OPT_SET, .name = "local", .arg = "FOLDER", .set = set_folder,
     .help = "where to look; --local may be left out if neither variable is\n"
             "set or FOLDER has a slash in it"},
    {OPT_SET, .name = "remote", .arg = "FOLDER", .help = "the same", .set = set_folder},
    {OPT_FLAG, .name = "all", .help = "every version", .at = AT(all)},
    {OPT_U32, .name = "rank", .arg = "N", .at = AT(rank),
     .given = OPT_GIVEN(struct removal, one_rank),
     .help = "of this rank only; by default of every rank in the folder"},
    {OPT_FLAG, .letter = 'n', .name = "dry-run", .at = AT(dry_run),
     .help = "only print what would be removed"},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = "varve rm",
    .usage = "[--rank N] [--dry-run] [--json] [[--local | --remote] FOLDER] HISTORY {--all | "
             "VERSION | FIRST-LAST}...",
    .about = "Removes versions of a history that no program has open, from FOLDER, by default\n"
             "the one that VARVE_LOCAL names, or else VARVE_REMOTE. Copies in other folders\n"
             "stay: remove them there as well.",
    .operands = true,
    OPT_LIST(options),
};

int cli_rm(int argc, char **argv)
{
    struct removal r = {0};
    int first, result = opts_parse(&command, argc, argv, &r, &first);
    if (result < 0)
        result = parse_operands(argc, argv, first, &r);
    if (result < 0) {
        r.out = json_begin(stdout, JSON_SPACED);
        if (r.json) {
            json_object(&r.out, NULL);
            json_array(&r.out, "removed");
        }
        result = remove_all(&r);
        if (r.json) {
            json_gap(&r.out, "\n");
            json_close(&r.out);
            json_bool(&r.out, "dry_run", r.dry_run);
            json_bool(&r.out, "ok", result == CLI_OK);
            json_close(&r.out);
            json_end(&r.out);
        }
    }
    free(r.ranges);
    free(r.ranks);
    free(r.victims);
    return result;
}
