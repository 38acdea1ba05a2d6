/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by commands that compute for a while and write tables and charts. */
#ifndef CLI_COMMON_OUTPUT_H
#define CLI_COMMON_OUTPUT_H

#include <stdio.h>

#include "cli/common/parallel.h"

/* Writes a file with fn; "-" is standard output. Messages begin with `command`. fn returns 0 or a negative errno. */
VV_WARN_UNUSED int output_write(const char *command, const char *path,
                                int (*fn)(FILE *f, const void *arg), const void *arg);

/* Called before a long run: 0 if output_write will be able to write to the path; NULL and "-" always are. Prints a
 * message otherwise. An existing file stays as it is, and no new one is left behind. */
VV_WARN_UNUSED int output_try(const char *command, const char *path);

/* A file in a folder of results. It appears when it is complete, so a page is never seen half written. */
struct output_file {
    FILE *f;
    char path[1200], made[1200];
};

/* Opens a temporary file beside its place. */
VV_WARN_UNUSED int output_begin(const char *folder, const char *name, struct output_file *ret_file);
/* Ends the file, also after an error of output_begin. `rc` is 0 or the error in the meantime, which removes the
 * file. Returns the first error, with a text. */
VV_WARN_UNUSED int output_end(struct output_file *file, int rc, char *err, size_t err_bytes);

/* The forms of a result. JSON and the table go to standard output; `csv` and `svg` name files, NULL: none. */
struct output_forms {
    bool json;
    const char *csv, *svg;
    void (*print_json)(const void *result);
    void (*print_table)(const void *result);
    int (*print_csv)(FILE *f, const void *result);
    int (*draw)(FILE *f, const void *result);
};

/* Prints all requested forms, and a table unless standard output is in use. Returns an exit status. */
int output_print(const char *command, const struct output_forms *forms, const void *result);

/* Runs fn(arg) and shows its progress on a terminal. Returns the result of fn. */
int output_watch(int (*fn)(void *arg), void *arg, struct sim_progress *progress, const char *what);

/* Numbers from 1 to max, separated by commas. -EINVAL: the text is not such a list, or has more numbers than there
 * is room for. */
VV_WARN_UNUSED int output_parse_list(const char *list, uint64_t max, uint64_t *values, size_t room,
                                     size_t *ret_nr);

/* WRITE[:READ], rates such as 2G:1G. -EINVAL: the text is something else, or a rate is below `least`. */
VV_WARN_UNUSED int output_parse_rates(const char *value, uint64_t least, double *ret_write,
                                      double *ret_read);

/* The i-th word of a list, without the comma. False: there is none, or it does not fit. */
bool output_next_word(const char **list, char *word, size_t size);

#endif
