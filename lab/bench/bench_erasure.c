/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity as it is made from windows of 1 MiB (store/parity/erasure.h) against ISA-L's own functions on the same
 * memory, by processor time: the ratio of speeds, in bytes of data. Both take turns in each round; the median of the
 * rounds' ratios counts. Without ISA-L there is nothing to compare with.
 *
 *     bench_erasure [--rounds N] [--gate] [--json]
 *
 * --gate: exit status 1 if a median is below 0.8.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "store/parity/erasure.h"

#ifdef HAVE_ISAL
#include <isa-l.h>

enum { WINDOW = 1 << 20, REPEAT = 64, ROUNDS_MAX = 101 };

struct settings {
    int rounds;
    bool gate, json;
};

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double ours_s(uint32_t n, uint32_t k, void **block)
{
    uint32_t have[VV_ERASURE_MAX];
    struct vv_erasure e;
    double start = processor_s();
    for (uint32_t i = 0; i < n - k; i++)
        have[i] = i;
    for (int r = 0; r < REPEAT; r++) {
        if (vv_erasure_solve(n, k, have, n - 1, &e) != 0)
            abort();
        vv_erasure_make(&e, (const void *const *)block, block[n - 1], WINDOW);
    }
    return processor_s() - start;
}

static double theirs_s(uint32_t n, uint32_t k, void **block)
{
    uint8_t matrix[VV_ERASURE_MAX * VV_ERASURE_MAX], table[32 * VV_ERASURE_MAX];
    uint32_t m = n - k;
    uint8_t *to = block[n - 1];
    void *all[VV_ERASURE_MAX + 1];
    gf_gen_cauchy1_matrix(matrix, (int)n, (int)m);
    ec_init_tables((int)m, 1, matrix + (size_t)(n - 1) * m, table);
    memcpy(all, block, m * sizeof(*all));
    all[m] = to;
    double start = processor_s();
    for (int r = 0; r < REPEAT; r++) {
        if (k == 1)
            (void)xor_gen((int)m + 1, WINDOW, all);
        else
            ec_encode_data(WINDOW, (int)m, 1, table, (uint8_t **)block, &to);
    }
    return processor_s() - start;
}

static bool one(const struct settings *s, uint32_t n, uint32_t k, struct json *j)
{
    void *block[VV_ERASURE_MAX];
    double ratio[ROUNDS_MAX], speed[ROUNDS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        if (posix_memalign(&block[i], 4096, WINDOW) != 0)
            abort();
        memset(block[i], (int)i + 1, WINDOW);
    }
    for (int r = 0; r < s->rounds; r++) {
        double a = r % 2 ? ours_s(n, k, block) : 0, b = theirs_s(n, k, block);
        if (a <= 0)
            a = ours_s(n, k, block);
        ratio[r] = b / a;
        speed[r] = (double)REPEAT * WINDOW * (n - k) / a * 1e-9;
    }
    for (uint32_t i = 0; i < n; i++)
        free(block[i]);
    double median = samples_median(ratio, (size_t)s->rounds);
    double gbps = samples_median(speed, (size_t)s->rounds);
    if (s->json) {
        json_object(j, NULL);
        json_uint(j, "set", n);
        json_uint(j, "lost", k);
        json_real(j, "ratio", median);
        json_real(j, "GB_per_s", gbps);
        json_close(j);
    } else {
        printf("%2u of %2u lost  %6.2f GB/s  %5.2f of ISA-L\n", (unsigned)k, (unsigned)n, gbps,
               median);
    }
    return median >= 0.8;
}

#define AT(field) offsetof(struct settings, field)

static const struct opt options[] = {
    {OPT_INT, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 3, .most = ROUNDS_MAX,
     .help = "of each set (31)"},
    {OPT_FLAG, .name = "gate", .help = "exit 1 if one is slower than 0.8 of ISA-L", .at = AT(gate)},
    {OPT_FLAG, .name = "json", .help = "print one JSON array", .at = AT(json)},
};

static const struct opts command = {
    .command = "bench_erasure",
    .usage = "[--rounds N] [--gate] [--json]",
    .about = "Compares parity in memory with ISA-L's own functions, by processor time.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    static const uint32_t sets[][2] = {{3, 1}, {4, 1}, {8, 1},  {16, 1},
                                       {4, 2}, {8, 2}, {16, 2}, {8, 4}};
    struct settings s = {.rounds = 31};
    bool good = true;
    int first, status = opts_parse(&command, argc, argv, &s, &first);
    if (status >= 0)
        return status;
    struct json j = json_begin(stdout, JSON_COMPACT);
    if (s.json)
        json_array(&j, NULL);
    for (size_t i = 0; i < VV_ARRAY_SIZE(sets); i++)
        good &= one(&s, sets[i][0], sets[i][1], &j);
    if (s.json) {
        json_close(&j);
        json_end(&j);
    }
    return s.gate && !good;
}
#else
int main(void)
{
    puts("built without ISA-L: nothing to compare with");
    return 77;
}
#endif
