/* SPDX-License-Identifier: Apache-2.0 */
/* Overwritten versions, step by step: when the old file is removed, and when it stays. */
#include <errno.h>

#include "unit/engine/hand.h"

static struct drive d;

/* The number of committed files of a version. */
static unsigned files(uint64_t version)
{
    unsigned n = 0;

    for (unsigned i = 0; i < d.nfiles; i++)
        n += d.file[i].used && d.file[i].committed && d.file[i].version == version;
    return n;
}

static bool removing(uint64_t version)
{
    return drive_find(&d, VV_ORDER_REMOVE, 0, 0, version) >= 0;
}

static void committed(uint32_t h, uint64_t version)
{
    struct drive_call call;

    T_OK(drive_wait(&d, &call, h, version, VV_CORE_DURABLE));
    T_OK(drive_finish(&d, &call));
}

static uint32_t opened(const char *tiers)
{
    return hand_open(&d, tiers, VV_POLICY_NEXT, VV_CORE_DURABLE);
}

/* Opens a history with a committed version 1. */
static uint32_t with_version(const char *tiers, uint32_t pages)
{
    uint32_t h = opened(tiers);

    hand_put(&d, h, 1, pages);
    committed(h, 1);
    drive_run(&d);
    return h;
}

static void replace(uint32_t h, uint64_t version, uint32_t pages)
{
    struct drive_call put;

    T_OK(drive_replace(&d, &put, h, version, pages * DRIVE_PAGE));
    T_OK(drive_finish(&d, &put));
}

static uint64_t generation(uint32_t h, uint64_t version)
{
    struct vv_object_info info = {0};

    T_OK(vv_core_lookup(d.core, h, version, &info));
    return info.generation;
}

static void old_goes_after_the_commit(void)
{
    uint32_t h = with_version("H4F", 1);
    struct drive_call call;
    uint64_t old = generation(h, 1);

    T_ERR(drive_put(&d, &call, h, 1, DRIVE_PAGE), -EEXIST);
    T_OK(drive_replace(&d, &call, h, 1, 2 * DRIVE_PAGE));
    T_EQ(generation(h, 1), old); /* until the new one is written */
    T_OK(drive_finish(&d, &call));
    T_CHECK(generation(h, 1) > old);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    T_CHECK(!removing(1));
    T_EQ(files(1), 1);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_EQ(files(1), 2);
    T_CHECK(removing(1));
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* As long as the new one cannot be committed, the old one stays. */
static void commit_fails(void)
{
    uint32_t h = with_version("H4F", 1);
    struct drive_call call;

    replace(h, 1, 1);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    drive_run(&d);
    T_EQ(files(1), 1);
    /* Discarding ends all generations. */
    T_OK(drive_discard(&d, h, 1));
    drive_run(&d);
    T_EQ(files(1), 0);
    hand_close(&d);
}

/* Overwritten twice, before the first put has ended. */
static void twice(void)
{
    uint32_t h = with_version("H4F", 1);

    replace(h, 1, 1);
    T_EQ(files(1), 1);
    replace(h, 1, 1);
    T_EQ(files(1), 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A put that fails or times out, before its first page or with copies on a stream: the version is
 * what it was, including its hints. */
static void put_fails(void)
{
    for (int started = 0; started < 2; started++) {
        uint32_t h = with_version("H4F", 2);
        struct drive_call other, put;
        uint64_t old = generation(h, 1);

        T_OK(drive_hint(&d, h, 1));
        d.ordered = true;
        if (!started)
            T_OK(drive_put(&d, &other, h, 2, 4 * DRIVE_PAGE));
        T_OK(drive_replace(&d, &put, h, 1, (started ? 20 : 3) * DRIVE_PAGE));
        T_EQ(put.req.inflight > 0, started);
        vv_core_cancel(d.core, &put.req, -ETIMEDOUT, d.now_ns);
        T_EQ(generation(h, 1), old);
        T_ERR(drive_finish(&d, &put), -ETIMEDOUT);
        if (!started)
            T_OK(drive_finish(&d, &other));
        d.ordered = false;
        drive_run(&d);
        T_EQ(files(1), 1);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* While a stream will overwrite a version, queries find the old generation, but restores do not; if
 * the put fails, the old one stays. */
static void ordered(void)
{
    uint32_t h = with_version("H4F", 1);
    struct drive_call put, wait, get;
    struct vv_object_info info = {0};
    struct vv_lend lend;
    uint64_t old = generation(h, 1);

    d.ordered = true;
    T_OK(drive_replace(&d, &put, h, 1, DRIVE_PAGE));
    d.ordered = false;
    T_OK(vv_core_lookup(d.core, h, 1, &info));
    T_EQ(info.generation, old);
    T_CHECK(info.pending);
    T_ERR(drive_get(&d, &get, h, 1), -ESTALE);
    T_ERR(vv_core_lend(d.core, h, 1, old, 0, 1, true, d.now_ns, &lend), -ESTALE);
    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_CACHED));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, -EIO);
    T_EQ(put.req.status, -EIO);
    T_EQ(wait.req.status, -EIO);
    hand_get(&d, h, 1);
    /* A put that may not replace a version may not replace one that a stream will write either. */
    d.ordered = true;
    T_OK(drive_put(&d, &put, h, 2, DRIVE_PAGE));
    d.ordered = false;
    T_ERR(drive_put(&d, &wait, h, 2, DRIVE_PAGE), -EEXIST);
    T_OK(drive_finish(&d, &put));
    hand_close(&d);
}

/* A put that can never fit is refused before anything of the old version is released, whether or
 * not that has a file. */
static void refused_for_its_size(void)
{
    for (int files_tier = 0; files_tier < 2; files_tier++) {
        uint32_t h = hand_open(&d, files_tier ? "H4F20" : "H4", VV_POLICY_NEXT,
                               files_tier ? VV_CORE_DURABLE : VV_CORE_CACHED);
        struct drive_call put;

        hand_put(&d, h, 1, 2);
        if (files_tier)
            committed(h, 1);
        uint64_t old = generation(h, 1);
        T_ERR(drive_replace(&d, &put, h, 1, 30 * DRIVE_PAGE), -EFBIG);
        drive_run(&d);
        T_EQ(generation(h, 1), old);
        T_EQ(files(1), (unsigned)files_tier);
        hand_get(&d, h, 1);
        replace(h, 1, 1);
        T_CHECK(generation(h, 1) > old);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* Taken back: the old one returns to its place in the order of writing. */
static void taken_back(void)
{
    uint32_t h = with_version("H4F", 2);
    uint64_t old = generation(h, 1), latest = 0;

    hand_put(&d, h, 2, 1);
    committed(h, 2);
    T_ERR(drive_take_back(&d, h, 2), -EALREADY);
    T_ERR(drive_take_back(&d, h, 3), -ENOENT);
    replace(h, 1, 1);
    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_take_back(&d, h, 1));
    T_EQ(generation(h, 1), old);
    drive_run(&d);
    T_EQ(files(1), 1);
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 2);
    hand_get(&d, h, 1);
    T_ERR(drive_take_back(&d, h, 1), -EALREADY); /* it is as safe as it was */
    /* Without an old generation the version is gone. */
    hand_put(&d, h, 3, 1);
    T_OK(drive_take_back(&d, h, 3));
    drive_run(&d);
    T_EQ(files(3), 0);
    hand_close(&d);
}

/* Replaced while it is read or lent: readers start again, and its file stays until they end. */
static void while_read(void)
{
    uint32_t h = opened("H4F");
    struct drive_call get;

    T_OK(drive_adopt(&d, h, 1, 1, 3 * DRIVE_PAGE));
    T_OK(drive_get(&d, &get, h, 1));
    struct drive_call put;
    T_OK(drive_replace(&d, &put, h, 1, DRIVE_PAGE));
    T_OK(drive_finish(&d, &put));
    T_CHECK(get.pending || get.req.status == 0 || get.req.status == -ESTALE);
    drive_run(&d);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A restore that is under way when its version is replaced does not end with the old bytes. */
static void read_again(void)
{
    uint32_t h = opened("H4F");
    struct drive_call get, put;

    T_OK(drive_adopt(&d, h, 1, 1, 3 * DRIVE_PAGE));
    T_OK(drive_get(&d, &get, h, 1));
    T_OK(drive_replace(&d, &put, h, 1, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    T_EQ(put.req.status, 0);
    drive_run(&d);
    T_EQ(get.req.status, -ESTALE);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A version larger than memory counts as written when its file is committed. */
static void larger_than_memory(void)
{
    for (int fails = 0; fails < 2; fails++) {
        uint32_t h = with_version("H4F", 1);
        struct drive_call put;
        uint64_t old = generation(h, 1);

        T_OK(drive_replace(&d, &put, h, 1, 6 * DRIVE_PAGE));
        while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
            drive_end(&d, 0, 0);
        T_CHECK(put.pending);
        T_EQ(generation(h, 1), old);
        hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, fails ? -EDQUOT : 0);
        T_EQ(put.req.status, fails ? -EDQUOT : 0);
        T_EQ(generation(h, 1) == old, fails);
        drive_run(&d);
        T_EQ(files(1), 1);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* If memory can hold all of a version, it keeps it until its file is committed, however large. */
static void kept_in_memory(void)
{
    uint32_t h = opened("H4F");
    struct drive_call wait;

    hand_put(&d, h, 1, 4);
    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -ENOSPC);
    T_EQ(wait.req.status, -ENOSPC);
    hand_get(&d, h, 1);
    committed(h, 1);
    hand_close(&d);
}

/* Retention counts versions, not generations; an unsafe one never causes the removal of an older
 * one. */
static void retention(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .keep = 2, .keep_every = 4};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    for (uint64_t v = 1; v <= 7; v++) {
        hand_put(&d, h, v, 1);
        committed(h, v);
    }
    for (int i = 0; i < 3; i++) {
        replace(h, 7, 1);
        committed(h, 7);
    }
    drive_run(&d);
    for (uint64_t v = 1; v <= 7; v++)
        T_EQ(files(v), v == 4 || v >= 6);
    hand_close(&d);
}

/* The number of versions that retention examines does not grow with those that keep_every keeps. */
static void retention_of_many(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .keep = 2, .keep_every = 2};
    unsigned n = 0;

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    for (uint64_t v = 0; v < 100; v++) {
        hand_put(&d, h, v, 1);
        committed(h, v);
    }
    drive_run(&d);
    for (const struct vv_object *obj = vvi_hist(d.core, h)->expires_first; obj;
         obj = obj->expires_after)
        n++;
    T_EQ(n, 2);
    T_EQ(vvi_hist(d.core, h)->nwritten, 51); /* 50 even ones, and the last */
    /* An overwritten version counts as new, and a discarded one is gone. */
    replace(h, 4, 1);
    committed(h, 4);
    T_OK(drive_discard(&d, h, 6));
    hand_put(&d, h, 101, 1);
    committed(h, 101);
    drive_run(&d);
    T_EQ(files(4), 1);
    T_EQ(files(6), 0);
    T_EQ(files(99), 0);
    hand_close(&d);
}

/* A version that replaces another is provisional until it is confirmed: the old one stays, safe or
 * not. */
static void provisional(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .confirm = true};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    T_OK(drive_confirm(&d, h, 1));
    uint64_t old = generation(h, 1);
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    /* A generation that was never confirmed is not held behind another. */
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    T_OK(drive_take_back(&d, h, 1));
    T_EQ(generation(h, 1), old);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    replace(h, 1, 1);
    committed(h, 1);
    T_OK(drive_confirm(&d, h, 1));
    drive_run(&d);
    T_EQ(files(1), 1);
    T_CHECK(generation(h, 1) > old);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* Files are copied to a shared folder: a version is safe when its file is there. */
static void reached(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .hold = true};
    uint64_t latest = 0;

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    T_ERR(vv_core_latest(d.core, h, &latest), -ENOENT);
    uint64_t old = generation(h, 1);
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    drive_reached(&d, h, 1, old); /* late: it has been replaced */
    drive_run(&d);
    T_EQ(files(1), 2);
    /* The version has reached the level, though with the bytes before the last put. */
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 1);
    /* The same after the last put was taken back. */
    T_OK(drive_take_back(&d, h, 1));
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    replace(h, 1, 1);
    committed(h, 1);
    drive_reached(&d, h, 1, generation(h, 1));
    drive_run(&d);
    T_EQ(files(1), 1);
    T_CHECK(generation(h, 1) > old);
    hand_close(&d);
}

/* A version that has reached the level, and a newer generation of it that has not. */
static uint32_t with_two_generations(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .hold = true};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_reached(&d, h, 1, generation(h, 1));
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    return h;
}

/* When a put is taken back, the generation before it returns, although that has not reached the
 * level. The generation that has reached it stays behind. */
static void the_one_before_comes_back(void)
{
    uint32_t h = with_two_generations();
    uint64_t before = generation(h, 1);

    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 3);
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 3); /* of four generations: the newest, the one before it, and the oldest */
    T_OK(drive_take_back(&d, h, 1));
    T_EQ(generation(h, 1), before + GENERATION_STEP);
    T_OK(drive_take_back(&d, h, 1));
    T_EQ(generation(h, 1), before - GENERATION_STEP);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A version that has expired and is written again is another edition: files of the first may still
 * exist. */
static void written_again_after_it_expired(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .keep = 1, .editions = true};
    struct vv_object_info info = {0};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    for (uint64_t v = 1; v <= 2; v++) {
        hand_put(&d, h, v, 1);
        committed(h, v);
    }
    T_ERR(vv_core_lookup(d.core, h, 1, &info), -ENOENT);
    hand_put(&d, h, 1, 1);
    T_EQ(hand_object(&d, h, 1)->edition, 2);
    hand_close(&d);
}

/* A put that timed out while its commit was under way: the version written again is another edition.
 * After a commit that failed it is not. */
static void written_again_after_it_failed(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .editions = true};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    for (uint64_t late = 0; late < 2; late++) {
        struct drive_call put;
        T_OK(drive_put(&d, &put, h, late, 6 * DRIVE_PAGE));
        while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, late) < 0)
            drive_end(&d, 0, 0);
        if (late)
            vv_core_cancel(d.core, &put.req, -ETIMEDOUT, d.now_ns);
        else
            hand_end(&d, VV_ORDER_COMMIT, 0, 0, late, -ENOSPC);
        drive_run(&d);
        T_EQ(files(late), 0);
        hand_put(&d, h, late, 1);
        T_EQ(hand_object(&d, h, late)->edition, 1 + late);
    }
    hand_close(&d);
}

/* Ends the only removal under way, with success or failure. */
static void end_removal(uint64_t generation, int status)
{
    int i = drive_find(&d, VV_ORDER_REMOVE, 0, 0, 1);

    T_EQ(d.norders, 1);
    T_CHECK(i >= 0);
    T_EQ(d.order[i]->file_generation, generation);
    drive_end(&d, (unsigned)i, status);
}

/* A discard that is interrupted leaves the newest generation or none: the old file is removed
 * first, and the new one stays until then. A version written again and discarded has to wait
 * too. */
static void the_oldest_file_goes_first(void)
{
    uint32_t h = with_two_generations();
    uint64_t newer = generation(h, 1), old = newer - GENERATION_STEP, newest;
    struct drive_call wait;

    T_OK(drive_discard(&d, h, 1));
    end_removal(old, -EIO);
    T_EQ(files(1), 2);
    T_EQ(d.norders, 0);
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    newest = generation(h, 1);
    T_OK(drive_discard(&d, h, 1));
    end_removal(old, -EIO); /* tried again, because another removal waits for it now */
    T_EQ(d.norders, 0);
    T_OK(drive_wait_all(&d, &wait, h));
    end_removal(old, 0);
    end_removal(newer, -EIO);
    T_EQ(files(1), 2);
    T_OK(drive_wait_all(&d, &wait, h));
    end_removal(newer, 0);
    end_removal(newest, 0);
    T_EQ(files(1), 0);
    hand_close(&d);
}

/* The history ends after the removal of the old file has failed: the new one stays too. */
static void closed_with_an_old_file_left(void)
{
    uint32_t h = with_two_generations();
    uint64_t old = generation(h, 1) - GENERATION_STEP;

    T_OK(drive_discard(&d, h, 1));
    end_removal(old, -EIO);
    vv_core_history_drop(d.core, h, d.now_ns);
    T_CHECK(!vv_core_next_order(d.core));
    T_EQ(files(1), 2);
    hand_close(&d);
}

/* A generation that is taken back is removed without waiting for others: no opening may find it. */
static void taken_back_beside_an_old_file(void)
{
    uint32_t h = with_two_generations();
    uint64_t first = generation(h, 1);

    T_OK(drive_take_back(&d, h, 1));
    end_removal(first, -EIO);
    replace(h, 1, 1);
    committed(h, 1);
    uint64_t second = generation(h, 1);
    T_OK(drive_take_back(&d, h, 1));
    end_removal(second, 0);
    T_EQ(files(1), 2);
    hand_close(&d);
}

/* The history ends with a removal that has failed and a commit of a generation that was taken back:
 * its file is removed all the same. */
static void taken_back_while_the_history_ends(void)
{
    uint32_t h = with_version("H8F", 1);
    uint64_t first = generation(h, 1);
    struct drive_call put;

    replace(h, 1, 1);
    committed(h, 1);
    end_removal(first, -EIO);
    T_OK(drive_replace(&d, &put, h, 1, DRIVE_PAGE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    vv_core_cancel(d.core, &put.req, -ETIMEDOUT, d.now_ns);
    T_OK(drive_take_back(&d, h, 1));
    vv_core_history_drop(d.core, h, d.now_ns);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_EQ(files(1), 3);
    T_CHECK(removing(1));
    drive_run(&d);
    T_EQ(files(1), 2);
    hand_close(&d);
}

/* A version left unfinished by a previous process counts for retention once a caller has seen it:
 * until then the application may continue from the version before. */
static void unfinished(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .hold = true, .keep = 1};
    uint64_t latest = 0;

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    T_OK(drive_adopt(&d, h, 1, 1, DRIVE_PAGE));
    T_OK(vv_core_adopt(d.core, h, 2, 2, DRIVE_PAGE, 3, false));
    drive_reached(&d, h, 2, 2);
    drive_run(&d);
    T_EQ(files(1), 1);
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 2);
    struct drive_call wait;
    T_OK(drive_wait_all(&d, &wait, h));
    drive_run(&d);
    T_EQ(files(1), 0);
    hand_close(&d);
}

static uint32_t with_copies(uint64_t keep)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_hist_cfg cfg = {
        .level = VV_CORE_DURABLE, .hold = true, .copies = true, .keep = keep};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    return h;
}

/* A committed version, which has its copy or will not get one. */
static void put_copied(uint32_t h, uint64_t version, bool copied)
{
    hand_put(&d, h, version, 1);
    committed(h, version);
    (copied ? drive_reached : drive_missed)(&d, h, version, generation(h, version));
    drive_run(&d);
}

static void missed_again(uint32_t h, uint64_t version)
{
    replace(h, version, 1);
    committed(h, version);
    drive_missed(&d, h, version, generation(h, version));
    drive_run(&d);
}

/* Files have copies elsewhere: a committed version counts, and is safe when it has a copy. */
static void copies(void)
{
    uint32_t h = with_copies(0);
    uint64_t latest = 0;

    T_OK(vv_core_adopt(d.core, h, 1, 1, DRIVE_PAGE, 2, false));
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 1);
    struct drive_call put;
    T_ERR(drive_put(&d, &put, h, 1, DRIVE_PAGE), -EEXIST);
    put_copied(h, 2, true);
    missed_again(h, 2);
    T_EQ(files(2), 2);
    missed_again(h, 2);
    T_EQ(files(2), 3); /* the previous one, and the one that has a copy */
    missed_again(h, 2);
    T_EQ(files(2), 3);
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 2);
    drive_reached(&d, h, 2, generation(h, 2));
    drive_missed(&d, h, 2, generation(h, 2)); /* late */
    drive_run(&d);
    T_EQ(files(2), 1);
    T_ERR(drive_take_back(&d, h, 2), -EALREADY);
    T_OK(drive_discard(&d, h, 2));
    drive_run(&d);
    T_EQ(files(2), 0);
    hand_close(&d);
}

/* Copies fail: the newest versions with a copy stay, and the newest without one. */
static void copies_fail(void)
{
    uint32_t h = with_copies(2);

    for (uint64_t v = 1; v <= 3; v++)
        put_copied(h, v, true);
    T_EQ(files(1), 0);
    missed_again(h, 2);
    for (uint64_t v = 4; v <= 8; v++)
        put_copied(h, v, false);
    T_EQ(files(2), 2); /* the copy is of the old one */
    T_EQ(files(3), 1);
    for (uint64_t v = 4; v <= 6; v++)
        T_EQ(files(v), 0);
    T_EQ(files(7), 1);
    T_EQ(files(8), 1);
    put_copied(h, 9, true);
    T_EQ(files(2), 2);
    T_EQ(files(3), 1);
    put_copied(h, 10, true); /* older ones without a copy go with those that have one */
    for (uint64_t v = 2; v <= 8; v++)
        T_EQ(files(v), 0);
    T_EQ(files(9), 1);
    hand_close(&d);
}

/* When a generation is replaced, its waits move to the new one. */
static void waited_for(void)
{
    uint32_t h = with_version("H4F", 1);
    struct drive_call wait;

    hand_put(&d, h, 2, 1);
    T_OK(drive_wait(&d, &wait, h, 2, VV_CORE_DURABLE));
    replace(h, 2, 1);
    T_OK(drive_finish(&d, &wait));
    T_EQ(files(2), 1);
    hand_get(&d, h, 2);
    hand_close(&d);
}

/* Closing keeps the files of all generations, because the new one is not safe. */
static void closed(void)
{
    uint32_t other = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE), h = other;
    struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE, .hold = true};

    T_OK(vv_core_history_new(d.core, &cfg, &h));
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_reached(&d, h, 1, generation(h, 1));
    replace(h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    vv_core_history_drop(d.core, h, d.now_ns);
    hand_put(&d, other, 2, 1);
    drive_run(&d);
    T_EQ(files(1), 2);
    hand_close(&d);
}

int main(void)
{
    T_RUN(old_goes_after_the_commit);
    T_RUN(commit_fails);
    T_RUN(twice);
    T_RUN(put_fails);
    T_RUN(ordered);
    T_RUN(refused_for_its_size);
    T_RUN(taken_back);
    T_RUN(while_read);
    T_RUN(read_again);
    T_RUN(larger_than_memory);
    T_RUN(kept_in_memory);
    T_RUN(retention);
    T_RUN(retention_of_many);
    T_RUN(provisional);
    T_RUN(reached);
    T_RUN(the_one_before_comes_back);
    T_RUN(written_again_after_it_expired);
    T_RUN(written_again_after_it_failed);
    T_RUN(the_oldest_file_goes_first);
    T_RUN(closed_with_an_old_file_left);
    T_RUN(taken_back_beside_an_old_file);
    T_RUN(taken_back_while_the_history_ends);
    T_RUN(unfinished);
    T_RUN(copies);
    T_RUN(copies_fail);
    T_RUN(waited_for);
    T_RUN(closed);
    return t_done();
}
