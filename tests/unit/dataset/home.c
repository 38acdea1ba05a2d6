/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a home are limited, and decisions are removed when they have been carried out. */
#include "dataset/node_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"

#define MAX 1000

static struct vv_node *begin(void)
{
    struct vv_node *n = calloc(1, sizeof(*n));

    vvi_node_home_init(n);
    n->id = 1;
    n->home.max = MAX;
    return n;
}

static void end(struct vv_node *n)
{
    vvi_node_home_fini(n);
    free(n);
}

static void tell(struct vv_node *n, int number)
{
    uint8_t body[64];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    char path[32];

    snprintf(path, sizeof(path), "/data/%d", number);
    vvi_wire_put_path(&p, path);
    vvi_node_home_will(n, 2, body, p.at);
}

/* Names that are sent again stay; the others are dropped for new ones. */
static void wills(void)
{
    struct vv_node *n = begin();

    for (int i = 0; i < MAX; i++)
        tell(n, i);
    T_EQ(n->home.wills.table.n, MAX);
    for (int i = 0; i < 100 * MAX; i++) {
        tell(n, MAX + i);
        tell(n, i % 10);
        T_CHECK(n->home.wills.table.n <= 2 * MAX);
    }
    T_CHECK(vvi_paths_find(&n->home.wills, "/data/7"));
    T_CHECK(!vvi_paths_find(&n->home.wills, "/data/77"));
    end(n);
}

/* Adds a file that a node reported, or that was placed here. */
static void add(struct vv_node *n, const char *path, uint64_t holder, bool fetching)
{
    struct vvi_record *r = calloc(1, sizeof(*r));

    T_OK(vvi_paths_add(&n->home.records, path, &r->path));
    r->holder = holder;
    r->fetching = fetching;
    n->home.nr_elsewhere += holder != n->id;
}

static void decisions(void)
{
    struct vv_node *n = begin();

    add(n, "/here", 1, false);
    add(n, "/there", 2, false);
    vvi_node_home_decided(n, "/here");
    vvi_node_home_decided(n, "/there");
    vvi_node_home_decided(n, "/nowhere");
    T_EQ(vvi_node_home_known(n, "/here"), 0);
    T_EQ(vvi_node_home_known(n, "/there"), 2);
    T_EQ(n->home.nr_elsewhere, 1);
    end(n);
}

int main(void)
{
    T_RUN(wills);
    T_RUN(decisions);
    return t_done();
}
