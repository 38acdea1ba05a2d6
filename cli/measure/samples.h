/* SPDX-License-Identifier: Apache-2.0 */
/* Measured values, sorted by size. */
#ifndef CLI_MEASURE_SAMPLES_H
#define CLI_MEASURE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

void samples_sort(double *v, size_t n);
void samples_sort_ns(uint64_t *v, size_t n);
/* Sorts them, too. If their number is even: the mean of the two in the middle. */
double samples_median(double *v, size_t n);

#endif
