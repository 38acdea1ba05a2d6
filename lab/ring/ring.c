/* SPDX-License-Identifier: Apache-2.0 */
/* varve ring where: the nodes that keep a file, and those that would after failures. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "lab/lab.h"
#include "policy/place.h"

#define COMMAND "varve ring where"

/* The nodes by name, and the nodes that are up. */
struct cluster {
    char (*names)[64];
    struct vv_place_node *nodes;
    uint32_t nr, room;
    uint64_t *up;
};

struct where_opts {
    struct vv_place_opts place;
    uint32_t replicas;
    bool json;
    const char *down;
    struct cluster cluster;
};

static int add_node(struct cluster *c, const char *name, uint64_t weight)
{
    if (c->nr == c->room) {
        uint32_t room = c->room ? 2 * c->room : 64;
        void *names = realloc(c->names, room * sizeof(*c->names)), *nodes;

        c->names = names ? names : c->names;
        nodes = realloc(c->nodes, room * sizeof(*c->nodes));
        c->nodes = nodes ? nodes : c->nodes;
        if (!names || !nodes)
            return -ENOMEM;
        c->room = room;
    }
    snprintf(c->names[c->nr], sizeof(c->names[0]), "%s", name);
    c->nodes[c->nr++] = (struct vv_place_node){vv_place_node_id(name), weight};
    return 0;
}

static int parse_names(const char *list, struct cluster *c)
{
    char word[64];

    c->nr = 0;
    do {
        uint64_t weight = 1;
        size_t one;
        char *eq;

        if (!output_next_word(&list, word, sizeof(word)))
            return -EINVAL;
        eq = strchr(word, '=');
        if (eq) {
            *eq = '\0';
            if (output_parse_list(eq + 1, VV_PLACE_WEIGHT_MAX, &weight, 1, &one) < 0)
                return -EINVAL;
        }
        if (!*word || add_node(c, word, weight) < 0)
            return -EINVAL;
    } while (*list);
    return 0;
}

static int number_nodes(uint64_t n, struct cluster *c)
{
    char name[32];
    int rc = 0;

    c->nr = 0;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        snprintf(name, sizeof(name), "node%" PRIu64, i);
        rc = add_node(c, name, 1);
    }
    return rc;
}

static int set_up(const char *down, struct cluster *c)
{
    char word[64];

    c->up = calloc(vv_place_set_words(c->nr), sizeof(*c->up));
    if (!c->up)
        return -ENOMEM;
    for (uint32_t i = 0; i < c->nr; i++)
        vv_place_set_add(c->up, i);
    while (down && *down) {
        uint32_t i = 0;

        if (!output_next_word(&down, word, sizeof(word)))
            return -EINVAL;
        while (i < c->nr && strcmp(c->names[i], word) != 0)
            i++;
        if (i == c->nr) {
            fprintf(stderr, COMMAND ": --down: there is no node '%s' in --nodes\n", word);
            return -ENOENT;
        }
        vv_place_set_remove(c->up, i);
    }
    return 0;
}

static int set_nodes(const char *value, void *arg)
{
    uint64_t n;
    int rc = opts_number(value, 1, VV_PLACE_NODES_MAX, &n);

    return rc < 0 ? rc : number_nodes(n, &((struct where_opts *)arg)->cluster);
}

static int set_names(const char *value, void *arg)
{
    return parse_names(value, &((struct where_opts *)arg)->cluster);
}

static int set_scheme(const char *value, void *arg)
{
    return vv_place_scheme_parse(value, &((struct where_opts *)arg)->place.scheme);
}

#define AT(field) offsetof(struct where_opts, field)

static const struct opt options[] = {
    {OPT_SET, .name = "nodes", .arg = "N", .set = set_nodes,
     .help = "nodes, called node0, node1, ... (8)", .takes = "a whole number from 1 to 65536"},
    {OPT_SET, .name = "names", .arg = "A,B,...", .set = set_names,
     .help = "nodes by name; a name may be followed by '=' and a capacity",
     .takes = "a list of names (for example big=4,small1,small2)"},
    {OPT_TEXT, .name = "down", .arg = "A,B,...", .help = "nodes that are down", .at = AT(down)},
    {OPT_SET, .name = "scheme", .arg = "NAME", .set = set_scheme,
     .help = "ring, hrw, hrw-bounded or mod (hrw-bounded)",
     .takes = "one of ring, hrw, hrw-bounded, mod"},
    {OPT_U32, .name = "vnodes", .arg = "N", .at = AT(place.vnodes), .least = 1,
     .most = VV_PLACE_VNODES_MAX, .help = "virtual nodes of a node, for ring (100)"},
    {OPT_U32, .name = "replicas", .arg = "N", .at = AT(replicas), .least = 1,
     .most = VV_PLACE_REPLICAS_MAX, .help = "copies (2; at most 8)"},
    {OPT_FLAG, .name = "json", .help = "print a JSON array", .at = AT(json)},
};
_Static_assert(VV_PLACE_VNODES == 100 && VV_PLACE_REPLICAS_MAX == 8 && VV_PLACE_NODES_MAX == 65536,
               "the help text says so");

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]... PATH...",
    .about = "Prints the nodes that keep a file, the first being its owner (its home, under\n"
             "hrw-bounded), and which would if that one failed. Paths are taken as they are.",
    .operands = true,
    OPT_LIST(options),
};

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct where_opts *o, int *first)
{
    int status = opts_parse(&command, argc, argv, o, first);

    if (status < 0 && *first == argc) {
        fprintf(stderr, COMMAND ": no file is given: name one or more; see --help\n");
        return CLI_USAGE;
    }
    return status;
}

static void print_names(const struct cluster *c, const uint32_t *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        printf("%s%s", i ? ", " : "", c->names[nodes[i]]);
}

static void json_names(struct json *j, const char *key, const struct cluster *c,
                       const uint32_t *nodes, uint32_t n)
{
    json_array(j, key);
    for (uint32_t i = 0; i < n; i++)
        json_text(j, NULL, c->names[nodes[i]]);
    json_close(j);
}

static void print_path(const struct where_opts *o, const struct vv_place *map, const char *path,
                       struct json *j)
{
    const struct cluster *c = &o->cluster;
    uint64_t key = vv_place_key(path, strlen(path));
    uint32_t now[VV_PLACE_REPLICAS_MAX], then[VV_PLACE_REPLICAS_MAX], n, m = 0;

    n = vv_place_owners(map, key, c->up, o->replicas, now);
    if (n > 0) {
        vv_place_set_remove(c->up, now[0]);
        m = vv_place_owners(map, key, c->up, o->replicas, then);
        vv_place_set_add(c->up, now[0]);
    }
    if (o->json) {
        json_gap(j, "\n");
        json_object(j, NULL);
        json_text(j, "path", path);
        json_textf(j, "key", "%016" PRIx64, key);
        json_names(j, "nodes", c, now, n);
        json_names(j, "without_the_first", c, then, m);
        json_close(j);
        return;
    }
    printf("%s: ", path);
    print_names(c, now, n);
    printf(n ? "; if %s failed: " : "nowhere, no node is up", n ? c->names[now[0]] : "");
    print_names(c, then, m);
    printf(n && !m ? "nowhere\n" : "\n");
}

static void print_paths(const struct where_opts *o, const struct vv_place *map, int n, char **paths)
{
    struct json j = json_begin(stdout, JSON_COMPACT);

    if (o->json)
        json_array(&j, NULL);
    for (int i = 0; i < n; i++)
        print_path(o, map, paths[i], &j);
    if (!o->json)
        return;
    json_gap(&j, "\n");
    json_close(&j);
    json_end(&j);
}

int lab_ring_where(int argc, char **argv)
{
    struct where_opts o = {.place = {.scheme = VV_PLACE_HRW_BOUNDED}, .replicas = 2};
    struct cluster *c = &o.cluster;
    struct vv_place *map = NULL;
    int first = argc, status, rc = number_nodes(8, c);

    status = rc < 0 ? CLI_FAILED : parse(argc, argv, &o, &first);
    if (status < 0) {
        rc = set_up(o.down, c);
        if (rc == 0)
            rc = vv_place_new(&o.place, c->nodes, c->nr, &map);
        if (rc == -EEXIST)
            fprintf(stderr, COMMAND ": two nodes have the same name: give each name once\n");
        else if (rc < 0 && rc != -ENOENT)
            fprintf(stderr, COMMAND ": %s\n", strerror(-rc));
        status = rc < 0 ? CLI_USAGE : CLI_OK;
    }
    if (map)
        print_paths(&o, map, argc - first, argv + first);
    vv_place_free(map);
    free(c->names);
    free(c->nodes);
    free(c->up);
    return status;
}
