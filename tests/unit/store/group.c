/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement through a shared folder when events come at the wrong moment: steps of others between the look at all
 * markers and the record, retractions, and writes of lives that were replaced. */
#define _GNU_SOURCE
#include "store/remote/group.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "power_os.h"
#include "store/target/folder/target_folder.h"
#include "t.h"

enum { RANKS = 2, VERSION = 5 };
enum { LIFE_A = 0xaaaa, LIFE_B = 0xbbbb };
enum { GEN_A = 10, GEN_B = 1000 };

/* ---- a moment ---- */

/* Called once, right before a file with this ending gets its name. */
static struct {
    const char *end; /* of the name */
    void (*then)(void);
} moment;

static int rename_at_moment(const struct vv_os *os, int dirfd, const char *from, const char *to,
                            bool may_replace)
{
    (void)os;
    const struct vv_os *real = vv_os_posix();
    size_t len = strlen(to), tail = moment.then ? strlen(moment.end) : 0;
    if (moment.then && len > tail && strcmp(to + len - tail, moment.end) == 0) {
        void (*then)(void) = moment.then;
        moment.then = NULL;
        then();
    }
    return real->rename(real, dirfd, from, to, may_replace);
}

/* ---- a folder with two ranks, in two lives ---- */

static struct vv_os slow_os;
static int history_fd;
static struct vv_target_folder history;
static struct vv_group a[RANKS], b[RANKS]; /* lives A and B */
static char folder[600];

static void open_life(struct vv_group *g, uint32_t rank)
{
    T_OK(vv_group_open(&history.base, "h", rank, RANKS, true, g));
}

static void begin(void)
{
    slow_os = *vv_os_posix();
    slow_os.rename = rename_at_moment;
    snprintf(folder, sizeof(folder), "%s", t_tmpdir());
    history_fd = open(folder, O_RDONLY | O_DIRECTORY);
    T_CHECK(history_fd >= 0);
    vv_target_folder_init(&history, &slow_os, history_fd);
    for (uint32_t r = 0; r < RANKS; r++) {
        open_life(&a[r], r);
        open_life(&b[r], r);
        T_OK(vv_group_write_life(&a[r], LIFE_A, GEN_A));
    }
}

static void end(void)
{
    T_CHECK(!moment.then);
    for (int r = 0; r < RANKS; r++) {
        vv_group_close(&a[r]);
        vv_group_close(&b[r]);
    }
    close(history_fd);
}

static void mark(struct vv_group *g, uint64_t run, uint64_t generation)
{
    struct vv_group_file file = {generation, 4096, run};
    T_OK(vv_group_write_marker(g, VERSION, run, &file));
}

static size_t count(const char *tail)
{
    char path[700];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/" VV_GROUP_FOLDER, folder);
    DIR *dir = opendir(path);
    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += strlen(e->d_name) > strlen(tail) &&
             strcmp(e->d_name + strlen(e->d_name) - strlen(tail), tail) == 0;
    closedir(dir);
    return n;
}

static int see(void *user, const struct vv_group_record *r, int error)
{
    T_OK(error);
    T_EQ(r->version, VERSION);
    *(uint64_t *)user = r->run_id;
    return 0;
}

/* The run in which the version is complete, as the next opening of the history sees it; 0: none. */
static uint64_t complete_in(void)
{
    struct vv_group g;
    uint64_t run[3] = {0};
    open_life(&g, 0);
    T_OK(vv_group_scan(&g, VV_GROUP_LOOK, see, &run[0]));
    T_OK(vv_group_scan(&g, VV_GROUP_WRITE, see, &run[1]));
    T_OK(vv_group_scan(&g, VV_GROUP_LOOK, see, &run[2]));
    vv_group_close(&g);
    T_EQ(run[0], run[1]);
    T_EQ(run[1], run[2]);
    return run[0];
}

/* ---- late records ---- */

static void rank_1_completes_and_retracts(void)
{
    T_OK(vv_group_complete(&a[1], VERSION, LIFE_A, true));
    T_OK(vv_group_retract(&a[1], VERSION, LIFE_A, GEN_A));
    T_EQ(count(".group"), 0);
}

/* Rank 0 has seen all markers, and writes the record after the version was complete and discarded. */
static void test_late_after_retraction(void)
{
    begin();
    mark(&a[0], LIFE_A, GEN_A);
    mark(&a[1], LIFE_A, GEN_A);
    moment.end = ".group";
    moment.then = rank_1_completes_and_retracts;
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    T_EQ(complete_in(), 0);
    T_EQ(vv_group_complete(&a[0], VERSION, LIFE_A, true), -EAGAIN);
    /* Once the others have retracted it too, no file of it is left. */
    T_OK(vv_group_retract(&a[0], VERSION, LIFE_A, GEN_A));
    vv_group_tidy(&a[0]);
    vv_group_tidy(&a[1]);
    T_EQ(count(".gone") + count(".mark") + count(".group") + count(".tmp"), 0);
    end();
}

static void rank_1_retracts(void)
{
    T_OK(vv_group_retract(&a[1], VERSION, LIFE_A, GEN_A));
}

/* The same with a version that was never complete. */
static void test_late_after_discard(void)
{
    begin();
    mark(&a[0], LIFE_A, GEN_A);
    mark(&a[1], LIFE_A, GEN_A);
    moment.end = ".group";
    moment.then = rank_1_retracts;
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    T_EQ(complete_in(), 0);
    /* Rank 1 dies and comes back: its retraction is valid while rank 0 has a marker. */
    vv_group_close(&b[1]);
    open_life(&b[1], 1);
    T_OK(vv_group_scan(&b[1], VV_GROUP_WRITE, see, &(uint64_t){0}));
    T_EQ(count(".gone"), 1);
    T_OK(vv_group_retract(&a[0], VERSION, LIFE_A, GEN_A));
    T_OK(vv_group_scan(&b[1], VV_GROUP_WRITE, see, &(uint64_t){0}));
    T_OK(vv_group_scan(&b[0], VV_GROUP_WRITE, see, &(uint64_t){0}));
    T_EQ(count(".gone"), 0);
    end();
}

static void life_b_completes(void)
{
    T_OK(vv_group_complete(&b[1], VERSION, LIFE_B, true));
}

/* A rank of an earlier life is about to write its record while a later life writes its own. */
static void test_late_after_later_life(void)
{
    begin();
    for (int r = 0; r < RANKS; r++) {
        mark(&a[r], LIFE_A, GEN_A);
        mark(&b[r], LIFE_B, GEN_B);
    }
    moment.end = ".group";
    moment.then = life_b_completes;
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    T_EQ(complete_in(), LIFE_B);
    T_EQ(count(".group"), 1);
    /* Its next call fails. */
    T_EQ(vv_group_complete(&a[0], VERSION, LIFE_A, true), -ECANCELED);
    T_EQ(complete_in(), LIFE_B);
    end();
}

/* Discarding the later version does not bring the earlier one back. */
static void test_later_discarded(void)
{
    begin();
    for (int r = 0; r < RANKS; r++)
        mark(&a[r], LIFE_A, GEN_A);
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    for (int r = 0; r < RANKS; r++)
        vv_group_drop_marker(&a[r], VERSION, LIFE_A);
    T_EQ(complete_in(), LIFE_A);
    for (int r = 0; r < RANKS; r++)
        mark(&b[r], LIFE_B, GEN_B);
    T_OK(vv_group_complete(&b[0], VERSION, LIFE_B, true));
    T_EQ(complete_in(), LIFE_B);
    T_OK(vv_group_retract(&b[1], VERSION, LIFE_B, GEN_B));
    T_EQ(complete_in(), 0);
    end();
}

/* ---- a replaced life ---- */

static void life_b_begins(void)
{
    T_OK(vv_group_write_life(&b[0], LIFE_B, GEN_B));
}

static void test_overtaken(void)
{
    struct vv_group_file file = {GEN_A, 4096, 1};
    struct vv_group_marker m;
    begin();
    for (int r = 0; r < RANKS; r++)
        mark(&a[r], LIFE_A, GEN_A);
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    T_OK(vv_group_alive(&a[0]));
    life_b_begins();
    T_EQ(vv_group_alive(&a[0]), -ECANCELED);
    T_OK(vv_group_alive(&a[1]));
    T_OK(vv_group_alive(&b[0]));
    T_EQ(vv_group_write_marker(&a[0], VERSION + 1, LIFE_A, &file), -ECANCELED);
    T_EQ(vv_group_read_marker(&a[0], VERSION + 1, LIFE_A, 0, &m), -ENOENT);
    T_EQ(vv_group_retract(&a[0], VERSION, LIFE_A, GEN_A), -ECANCELED);
    T_EQ(complete_in(), LIFE_A);
    T_EQ(count(".tmp"), 0);
    end();
}

static void life_b_marks(void)
{
    mark(&b[0], LIFE_B, GEN_B);
}

/* Two lives of one rank write at the same time: neither damages the other's files. */
static void test_two_at_once(void)
{
    struct vv_group_marker m;
    begin(); /* the life file of life B is not written yet */
    moment.end = ".mark";
    moment.then = life_b_marks;
    mark(&a[0], LIFE_A, GEN_A);
    T_OK(vv_group_read_marker(&a[0], VERSION, LIFE_A, 0, &m));
    T_EQ(m.file.generation, GEN_A);
    T_OK(vv_group_read_marker(&a[0], VERSION, LIFE_B, 0, &m));
    T_EQ(m.file.generation, GEN_B);
    end();
}

/* ---- power cuts ---- */

static struct power_os power[RANKS];

/* The ranks of life A are on nodes whose power can be cut. */
static void begin_powered(void)
{
    begin();
    for (int r = 0; r < RANKS; r++) {
        power_os_init(&power[r], 0);
        power[r].all = true;
        power[r].peers = &power[0];
        power[r].next_peer = r + 1 < RANKS ? &power[r + 1] : NULL;
        ((struct vv_target_folder *)a[r].at)->os = &power[r].os;
    }
}

/* After a power cut, unsynced writes are lost. */
static void end_powered(void)
{
    for (int r = 0; r < RANKS; r++) {
        power_os_lose(&power[r], NULL);
        ((struct vv_target_folder *)a[r].at)->os = &slow_os;
    }
}

static int rename_and_cut(const struct vv_os *os, int dirfd, const char *from, const char *to,
                          bool may_replace)
{
    int rc = power_rename(os, dirfd, from, to, may_replace);
    if (strstr(to, ".group"))
        power_os_cut(power_of(os));
    return rc;
}

/* The rank that writes the record loses power before it has synced the folder. Another rank that sees the record
 * deletes its marker: from then on there is only the record. */
static void test_record_of_another(void)
{
    begin_powered();
    power[0].os.rename = rename_and_cut;
    mark(&a[0], LIFE_A, GEN_A);
    mark(&a[1], LIFE_A, GEN_A);
    T_EQ(vv_group_complete(&a[0], VERSION, LIFE_A, true), -EIO);
    T_OK(vv_group_complete(&a[1], VERSION, LIFE_A, true));
    vv_group_drop_marker(&a[1], VERSION, LIFE_A);
    end_powered();
    T_EQ(complete_in(), LIFE_A);
    end();
}

/* A retraction is durable: the file is removed next, and neither marker nor record may come back. */
static void test_retraction_lasts(void)
{
    begin_powered();
    mark(&a[0], LIFE_A, GEN_A);
    mark(&a[1], LIFE_A, GEN_A);
    T_OK(vv_group_complete(&a[0], VERSION, LIFE_A, true));
    T_OK(vv_group_retract(&a[0], VERSION, LIFE_A, GEN_A));
    power_os_cut(&power[0]);
    end_powered();
    T_EQ(complete_in(), 0);
    T_EQ(count(".mark"), 1);
    T_EQ(count(".group"), 0);
    end();
}

/* Markers, records and lives are synced before they get their name. */
static void test_bytes_come_first(void)
{
    struct vv_group_marker m;
    struct vv_group_life life;
    begin_powered();
    T_OK(vv_group_write_life(&a[0], LIFE_A, GEN_A));
    mark(&a[0], LIFE_A, GEN_A);
    mark(&a[1], LIFE_A, GEN_A);
    T_OK(vv_group_complete(&a[1], VERSION, LIFE_A, true));
    power_os_cut(&power[0]);
    power_os_cut(&power[1]);
    end_powered();
    T_OK(vv_group_read_life(&a[0], &life));
    T_OK(vv_group_read_marker(&a[0], VERSION, LIFE_A, 0, &m));
    T_EQ(complete_in(), LIFE_A);
    end();
}

/* ---- names ---- */

/* A name that is not exactly in our format is ignored. */
static void test_names(void)
{
    static const char *const strange[] = {"v5.x000000000000aaaa.r0.markx",
                                          "v05.x000000000000aaaa.r0.mark",
                                          "v5.xaaaa.group",
                                          "v5.group",
                                          "v5.x000000000000aaaa.r0.",
                                          "v99999999999999999999.x000000000000aaaa.group",
                                          "rank0.tmp",
                                          "v5.x000000000000AAAA.group"};
    begin();
    for (size_t i = 0; i < VV_ARRAY_SIZE(strange); i++) {
        T_OK(a[0].at->ops->touch(a[0].at, strange[i]));
    }
    T_EQ(complete_in(), 0);
    for (int r = 0; r < RANKS; r++)
        mark(&a[r], LIFE_A, GEN_A);
    T_OK(vv_group_complete(&a[1], VERSION, LIFE_A, true));
    T_EQ(complete_in(), LIFE_A);
    end();
}

int main(void)
{
    T_RUN(test_late_after_retraction);
    T_RUN(test_late_after_discard);
    T_RUN(test_late_after_later_life);
    T_RUN(test_later_discarded);
    T_RUN(test_overtaken);
    T_RUN(test_two_at_once);
    T_RUN(test_record_of_another);
    T_RUN(test_retraction_lasts);
    T_RUN(test_bytes_come_first);
    T_RUN(test_names);
    return t_done();
}
