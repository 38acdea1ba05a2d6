/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/measure/samples.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int by_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void samples_sort(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
}

void samples_sort_ns(uint64_t *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_ns);
}

double samples_median(double *v, size_t n)
{
    samples_sort(v, n);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
