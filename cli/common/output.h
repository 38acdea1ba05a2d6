/* SPDX-License-Identifier: Apache-2.0 */
/* What commands that compute something for a while and write tables and charts share. */
#ifndef CLI_COMMON_OUTPUT_H
#define CLI_COMMON_OUTPUT_H

#include <stdio.h>

#include "cli/common/parallel.h"

/* Writes a file with fn, "-" being standard output; complains in the name of `command`. fn returns 0
 * or a negative errno. */
VV_WARN_UNUSED int output_write(const char *command, const char *path,
                                int (*fn)(FILE *f, const void *arg), const void *arg);

/* Before a long run: whether output_write will be able to write there, which NULL and "-" are. Complains. A file
 * that is there stays as it is, and none is left behind. */
VV_WARN_UNUSED int output_try(const char *command, const char *path);

/* A file in a folder of results. It appears when it is whole: a page is never seen half written. */
struct output_file {
    FILE *f;
    char path[1200], made[1200];
};

/* Begins it, beside its place. */
VV_WARN_UNUSED int output_begin(const char *folder, const char *name, struct output_file *ret_file);
/* Ends it, after an error of output_begin, too: `rc` is 0 or what went wrong meanwhile, which removes it. What
 * goes wrong here or went wrong before is returned, with a text. */
VV_WARN_UNUSED int output_end(struct output_file *file, int rc, char *err, size_t err_bytes);

/* The forms of a result. The first two go to standard output; csv and svg are files, NULL: none. */
struct output_forms {
    bool json;
    const char *csv, *svg;
    void (*print_json)(const void *result);
    void (*print_table)(const void *result);
    int (*print_csv)(FILE *f, const void *result);
    int (*draw)(FILE *f, const void *result);
};

/* All that were asked for; a table unless standard output is taken. Returns an exit status. */
int output_print(const char *command, const struct output_forms *forms, const void *result);

/* Runs fn(arg) and shows meanwhile how far it is, on a terminal. Returns what fn does. */
int output_watch(int (*fn)(void *arg), void *arg, struct sim_progress *progress, const char *what);

/* Numbers from 1 to max with commas in between. -EINVAL: something else, or more than room. */
VV_WARN_UNUSED int output_parse_list(const char *list, uint64_t max, uint64_t *values, size_t room,
                                     size_t *ret_nr);

/* WRITE[:READ], rates such as 2G:1G. -EINVAL: something else, or one below `least`. */
VV_WARN_UNUSED int output_parse_rates(const char *value, uint64_t least, double *ret_write,
                                      double *ret_read);

/* The i-th word of a list, cut off at the comma; false: there is none, or it does not fit. */
bool output_next_word(const char **list, char *word, size_t size);

#endif
