/* SPDX-License-Identifier: Apache-2.0 */
/* Cleans names from outside, before they reach a terminal or a parser. */
#ifndef VV_STATS_TEXT_H
#define VV_STATS_TEXT_H

#include <stddef.h>

/* Ends the text within `size` bytes, and puts a question mark for whatever is not printable UTF-8:
 * control characters, and pieces of characters that were cut. */
void vv_stats_text_clean(char *text, size_t size);

#endif
