/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image is the same bit by bit wherever the history lies: all in memory, in a plain file, or in
 * Varve with any tiers and any policy; and whatever the number of threads. Caches are so small that
 * nearly everything passes through every tier.
 */
#include <stdlib.h>

#include <varve/ckpt.h>

#include "rtm.h"
#include "t.h"

struct tiers {
    const char *name;
    int device;
    unsigned device_cache, host_cache; /* in snapshots; 0: none */
    bool disk;
};

static const struct tiers tiers[] = {
    {"host", VARVE_DEVICE_NONE, 0, 200, false},
    {"host, disk", VARVE_DEVICE_NONE, 0, 3, true},
    {"device, host", VARVE_DEVICE_HOST, 4, 200, false},
    {"device, host, disk", VARVE_DEVICE_HOST, 3, 5, true},
    {"device, disk", VARVE_DEVICE_HOST, 4, 0, true},
    {"host, disk, one snapshot", VARVE_DEVICE_NONE, 0, 1, true},
};

enum { TIERS = sizeof(tiers) / sizeof(tiers[0]), POLICIES = VARVE_POLICY_LRU + 1 };

static void survey(int dims, double zfp, struct rtm_params *p)
{
    rtm_params_init(p);
    T_OK(varve_opts_init(&p->varve, sizeof(p->varve)));
    p->dims = dims;
    p->n[RTM_X] = dims == 3 ? 24 : 64;
    p->n[RTM_Y] = dims == 3 ? 20 : 1;
    p->n[RTM_Z] = dims == 3 ? 18 : 40;
    p->border = 6;
    snprintf(p->model, sizeof(p->model), "layers");
    p->spacing = 2.5; /* a wave that is there and back in a hundred steps */
    p->frequency = 90;
    p->steps = dims == 3 ? 100 : 120;
    p->every = dims == 3 ? 4 : 3;
    p->shots = t_sanitized() ? 1 : 2;
    p->zfp = zfp;
    p->threads = 1;
    p->quiet = true;
    p->out[0] = 0;
}

/* Rounded up to the page that caches are cut into. */
static uint64_t stored_bytes(const struct rtm_params *p)
{
    uint64_t bytes = (uint64_t)p->n[0] * (uint64_t)p->n[1] * (uint64_t)p->n[2] * sizeof(float);

    if (p->zfp > 0)
        bytes += bytes / 2 + 4096; /* what it may take at most is more than what it has */
    return (bytes + 4095) / 4096 * 4096;
}

static void use(const struct tiers *t, int policy, struct rtm_params *p)
{
    p->store = RTM_STORE_VARVE;
    p->varve.device = t->device;
    p->varve.policy = policy;
    p->varve.page_bytes = 4096;
    p->varve.device_cache = t->device_cache * stored_bytes(p);
    p->varve.host_cache = t->host_cache * stored_bytes(p);
    p->no_local = !t->disk;
    if (t->disk)
        snprintf(p->varve.local, sizeof(p->varve.local), "%s", t_tmpdir());
}

static long points(const struct rtm_params *p)
{
    return (long)p->n[0] * p->n[1] * p->n[2];
}

static float *image_of(const struct rtm_params *p)
{
    struct rtm_result r;
    float *image;
    int rc = rtm_run(p, NULL, &r);

    if (rc)
        t_fail(__FILE__, __LINE__, "%s", rtm_error_text());
    image = r.image;
    r.image = NULL;
    if (p->store == RTM_STORE_VARVE)
        T_EQ(r.summary.stats.restores, (uint64_t)p->shots * r.summary.snapshots);
    rtm_result_fini(&r);
    return image;
}

static void same(const char *what, const struct rtm_params *p, const float *want)
{
    float *image = image_of(p);

    for (long i = 0; i < points(p); i++)
        if (memcmp(&image[i], &want[i], sizeof(float)) != 0)
            t_fail(__FILE__, __LINE__, "%s: %dD, zfp %g, policy %d: cell %ld is %a, not %a", what,
                   p->dims, p->zfp, p->varve.policy, i, (double)image[i], (double)want[i]);
    free(image);
}

static void has_content(const struct rtm_params *p, const float *image)
{
    long moved = 0;

    for (long i = 0; i < points(p); i++)
        moved += image[i] != 0;
    T_CHECK(moved > points(p) / 4);
}

/* Every tier combination, in 2D with every policy; otherwise, and under a sanitizer, with one, which
 * is another from commit to commit. */
static void all_tiers(int dims, double zfp)
{
    bool each = t_long() || (dims == 2 && zfp <= 0 && !t_sanitized());
    struct rtm_params p;
    float *want;

    survey(dims, zfp, &p);
    p.store = RTM_STORE_MEMORY;
    want = image_of(&p);
    has_content(&p, want);
    p.store = RTM_STORE_FILE;
    snprintf(p.varve.local, sizeof(p.varve.local), "%s", t_tmpdir());
    same("file", &p, want);
    for (int t = 0; t < TIERS; t++)
        for (int policy = 0; policy < POLICIES; policy++) {
            if (!each && policy != (int)((t_seed() + (uint64_t)(t + dims)) % POLICIES))
                continue;
            /* Under AddressSanitizer the loops take long: there a third, too, from commit to commit. */
            if (t_sanitized() && !t_long() &&
                (t_seed() / POLICIES + (uint64_t)(t + 2 * dims + (zfp > 0))) % 3)
                continue;
            survey(dims, zfp, &p);
            use(&tiers[t], policy, &p);
            same(tiers[t].name, &p, want);
        }
    free(want);
}

static void plain_2d(void)
{
    all_tiers(2, 0);
}

static void plain_3d(void)
{
    all_tiers(3, 0);
}

static void packed_2d(void)
{
    if (rtm_pack_built())
        all_tiers(2, 1e-3);
    else
        t_note("built without zfp");
}

static void packed_3d(void)
{
    if (rtm_pack_built())
        all_tiers(3, 1e-3);
}

/* The other ways to use the library. */
static void other_ways(void)
{
    struct rtm_params p;
    float *want;

    survey(2, 0, &p);
    p.store = RTM_STORE_MEMORY;
    want = image_of(&p);
    for (int i = 0; i < 5; i++) {
        survey(2, 0, &p);
        use(&tiers[i == 4 ? 3 : 1], VARVE_POLICY_NEXT, &p);
        p.varve.host_cache *= 4;
        p.hints = i == 0 ? RTM_HINTS_TURN : i == 1 ? RTM_HINTS_NONE : RTM_HINTS_FIRST;
        p.access = i == 2 ? RTM_ACCESS_LEND : i == 3 ? RTM_ACCESS_AUTO : RTM_ACCESS_COPY;
        p.consume = i < 3;
        p.prefetch = i != 1;
        same("otherwise", &p, want);
    }
    free(want);
}

static void threads(void)
{
    for (int dims = 2; dims <= 3; dims++) {
        struct rtm_params p;
        float *want;

        survey(dims, rtm_pack_built() ? 1e-4 : 0, &p);
        p.store = RTM_STORE_MEMORY;
        want = image_of(&p);
        for (int n = 2; n <= (t_sanitized() ? 2 : 5); n += 3) {
            p.threads = n;
            same("threads", &p, want);
        }
        free(want);
    }
}

int main(void)
{
    T_RUN(plain_2d);
    T_RUN(plain_3d);
    T_RUN(packed_2d);
    T_RUN(packed_3d);
    T_RUN(other_ways);
    T_RUN(threads);
    return t_done();
}
