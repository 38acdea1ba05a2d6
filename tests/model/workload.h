/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of the library model: drawn from a seed, written and read as text. */
#ifndef TESTS_MODEL_WORKLOAD_H
#define TESTS_MODEL_WORKLOAD_H

#include <stdio.h>

#include "model/life.h"

void workload_draw(struct workload *w, uint64_t seed);
void workload_write(const struct workload *w, FILE *f);
/* NULL, or the error in the text. */
const char *workload_read(struct workload *w, FILE *f);

#endif
