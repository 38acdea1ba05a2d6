/* SPDX-License-Identifier: Apache-2.0 */
/* varve ls: what is committed in a folder. Takes no lock, so it works beside a running program. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/files.h"
#include "core/bytes.h"
#include "tier/ckfile.h"

struct listing {
    bool json;
    uint64_t n;
};

static const char *state_name(const struct vv_files_found *f)
{
    return f->status == 0 ? "ok" : f->kind == VV_CKFILE_TEMP ? "unfinished" : "damaged";
}

static void print_json(const struct listing *l, const struct vv_files_found *f)
{
    printf("%s\n  {\"history\": ", l->n > 0 ? "," : "");
    files_json_text(stdout, f->history);
    printf(", \"rank\": %" PRIu32 ", \"version\": %" PRIu64 ", \"generation\": %" PRIu64
           ", \"file\": ",
           f->rank, f->version, f->generation);
    files_json_text(stdout, f->path);
    printf(", \"file_bytes\": %" PRIu64 ", \"status\": \"%s\"", f->file_bytes, state_name(f));
    if (f->status != 0) {
        printf(", \"error\": ");
        files_json_text(stdout, f->error);
    } else {
        char when[32];
        printf(", \"size\": %" PRIu64 ", \"chunk_bytes\": %" PRIu32 ", \"run\": \"%016" PRIx64
               "\", \"committed\": \"%s\", \"regions\": [",
               f->info->id.size, f->info->id.chunk_bytes, f->info->id.run_id,
               files_time(f->info->commit_time_ns, when, sizeof(when)));
        for (uint32_t i = 0; i < f->info->nregions; i++)
            printf("%s{\"id\": %" PRId32 ", \"bytes\": %" PRIu64 "}", i > 0 ? ", " : "",
                   f->info->regions[i].id, f->info->regions[i].bytes);
        printf("]");
    }
    printf("}");
}

static void print_text(const struct listing *l, const struct vv_files_found *f)
{
    if (l->n == 0)
        printf("%-20s %5s %12s %4s %11s %7s  %-19s  %s\n", "HISTORY", "RANK", "VERSION", "GEN",
               "SIZE", "REGIONS", "COMMITTED (UTC)", "STATE");
    printf("%-20s %5" PRIu32 " %12" PRIu64 " %4" PRIu64, f->history, f->rank, f->version,
           f->generation);
    if (f->status == 0) {
        char size[VV_BYTES_TEXT], when[32];
        printf(" %11s %7" PRIu32 "  %-19s  ok\n",
               vv_bytes_human(f->info->id.size, size, sizeof(size)), f->info->nregions,
               files_time(f->info->commit_time_ns, when, sizeof(when)));
    } else {
        printf(" %11s %7s  %-19s  %s: %s\n", "-", "-", "-", state_name(f), f->error);
    }
}

static int show(void *user, const struct vv_files_found *f)
{
    struct listing *l = user;
    if (l->json)
        print_json(l, f);
    else
        print_text(l, f);
    l->n++;
    return 0;
}

static void usage(FILE *out)
{
    fprintf(out, "usage: varve ls [--json] [[--local] FOLDER] [HISTORY]...\n\n"
                 "Lists the checkpoints in FOLDER, by default the one that VARVE_LOCAL names.\n\n"
                 "  --local FOLDER  where to look; --local may be left out if VARVE_LOCAL is not\n"
                 "                  set or FOLDER has a slash in it\n"
                 "  --json          print one JSON object\n"
                 "  --help          print this\n");
}

int cli_ls(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"local", required_argument, NULL, 'l'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct listing l = {0};
    const char *local = NULL;
    for (int opt; (opt = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (opt) {
        case 'j':
            l.json = true;
            break;
        case 'l':
            local = optarg;
            break;
        case 'h':
            usage(stdout);
            return CLI_OK;
        default:
            usage(stderr);
            return CLI_USAGE;
        }
    }
    int first = optind;
    const char *folder = files_folder("ls", local, argc, argv, &first);
    if (folder == NULL)
        return CLI_USAGE;
    if (l.json) {
        printf("{\"folder\": ");
        files_json_text(stdout, folder);
        printf(", \"checkpoints\": [");
    }
    int result = CLI_OK;
    for (int i = first; i < argc || i == first; i++) {
        const char *history = i < argc ? argv[i] : NULL;
        int rc = vv_files_scan(vv_os_posix(), folder, history, show, &l);
        if (rc < 0)
            result = files_complain("ls", folder, history, rc);
    }
    if (l.n == 0 && result == CLI_OK)
        result = files_check_empty("ls", folder);
    if (l.json)
        printf("\n]}\n");
    else if (l.n == 0 && result == CLI_OK)
        printf("no checkpoints in %s\n", folder);
    return result;
}
