/* SPDX-License-Identifier: Apache-2.0 */
/* What JSON needs beyond fprintf. */
#ifndef VARVE_SIM_JSON_H
#define VARVE_SIM_JSON_H

#include <stdio.h>

/* Quoted and escaped. */
void json_string(FILE *f, const char *s);
/* JSON knows no infinity and no NaN: null. */
void json_number(FILE *f, double x);

#endif
