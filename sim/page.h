/* SPDX-License-Identifier: Apache-2.0 */
/* What SVG and HTML need beyond fprintf. */
#ifndef VARVE_SIM_PAGE_H
#define VARVE_SIM_PAGE_H

#include <stdio.h>

/* Text, fit for elements and for attributes in double quotes. Control characters, which XML does
 * not know, become spaces. */
void page_text(FILE *f, const char *s);

#endif
