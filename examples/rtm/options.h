/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command line from one table of options: varve-rtm's and varve-kirchhoff's. A row has the place in the
 * program's structure of parameters for its value, and its type; the same table prints the help.
 */
#ifndef RTM_OPTIONS_H
#define RTM_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

enum rtm_option_kind {
    TEXT,     /* char[RTM_PATH] */
    COUNT,    /* int: 1 or more */
    NUMBER,   /* double: 0 or more */
    POSITIVE, /* double: above 0, and below 1e9 */
    SIZE,     /* uint64_t: bytes, not 0 */
    CHOICE,   /* int: index of the word */
    SET,      /* bool: a flag that sets it */
    CLEAR,    /* bool: a flag that clears it */
    HELP,
    OWN /* this and all above: the program's, see `own` */
};

struct rtm_option {
    const char *name, *value; /* no name: the title of a group; no value: a flag */
    int kind;
    size_t at;        /* in the parameters */
    const void *more; /* CHOICE: the words, up to NULL */
    const char *help;
};

struct rtm_options {
    const struct rtm_option *table;
    int nr;
    int count_max;           /* of every COUNT */
    const char *head, *tail; /* of the help */
    /* Takes options of kind OWN and above; `value` is NULL for a flag. */
    int (*own)(const struct rtm_option *o, const char *value, void *params);
};

/* Reads options into `params`, which have their defaults. 1: help was printed to `out` (NULL: nowhere). Negative: a bad
 * argument, see rtm_error. */
int rtm_options_read(const struct rtm_options *options, int argc, char **argv, FILE *out,
                     void *params);

/* Returns -EINVAL for an invalid value; `wanted` describes valid ones. */
int rtm_bad_value(const struct rtm_option *o, const char *value, const char *wanted);

#endif
