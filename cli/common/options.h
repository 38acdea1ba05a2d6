/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a command: one table yields the parser, the help text, and messages about wrong values. Options are
 * written as getopt_long(3) takes them, among the operands or in front of them; of several, the last counts. Every
 * command has --help and -h. A row without a name is an operand: the first such row takes the first one, and so on.
 */
#ifndef CLI_COMMON_OPTIONS_H
#define CLI_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"

enum opt_kind {
    OPT_FLAG,  /* bool: true */
    OPT_TEXT,  /* const char *, not empty */
    OPT_BYTES, /* uint64_t, from `least` on: "512M" */
    OPT_U64,   /* uint64_t, `least` to `most` */
    OPT_U32,   /* uint32_t, or unsigned */
    OPT_INT,   /* int, without a sign */
    OPT_REAL,  /* double, `low` to `high`, both included */
    OPT_WORD,  /* int: the place of the value in `words` */
    OPT_SET,   /* what `set` does */
    OPT_NOTE   /* no option: a line of the help text */
};

struct opt {
    enum opt_kind kind;
    char letter;      /* a short name besides; 0: none */
    const char *name; /* without dashes; NULL: an operand */
    const char *arg;  /* what its value is called in the help text; NULL: it takes none */
    bool optional;    /* of an operand: it may be left out */
    const char *help; /* NULL: the help text leaves the option out */
    size_t at;        /* the field, in the structure of options */
    size_t given;     /* OPT_GIVEN of a bool that tells whether the option was given; 0: none */
    uint64_t least;   /* 0 is allowed only where it is meant: see `most` */
    uint64_t most;    /* 0: the largest number of the type */
    double low, high;
    const char *words; /* "lifo|fifo" */
    /* 0; a negative errno: the value is wrong; above 0: the exit status, and it has said why. value is NULL if the option
     * takes none. */
    int (*set)(const char *value, void *options);
    const char *
        takes; /* for messages, "'x' is not ...": "X,Y,Z (for example 120,100,80)"; NULL: by the kind */
};

#define OPT_GIVEN(type, field) (offsetof(type, field) + 1)
/* In an initializer of struct opts. */
#define OPT_LIST(rows) .list = (rows), .nr = VV_ARRAY_SIZE(rows)

struct opts {
    const char *command; /* "varve ls" */
    const char
        *usage; /* what follows it: "[OPTION]... FILE"; lines that begin with a blank stay lines */
    const char *about; /* what the command does */
    const char *tail;  /* text behind the options; NULL: none */
    bool operands;     /* it takes some besides those in the list */
    const struct opt *list;
    size_t nr;
    /* Options of another command that it takes, too; NULL: none. Its help text does not list them, and of one name its
     * own option counts. Their fields are at the start of its structure. */
    const struct opts *also;
};

/* Sets fields of `options`. -1: go on, with operands that are not in the list in argv from *ret_first on. Otherwise the exit status: after --help, and
 * after a message. ret_first may be NULL. */
VV_WARN_UNUSED int opts_parse(const struct opts *o, int argc, char **argv, void *options,
                              int *ret_first);

void opts_usage(FILE *f, const struct opts *o);
/* Prints a paragraph in lines of at most 80 columns that begin at `column`; `at` columns of the first are used. */
void opts_wrap(FILE *f, const char *text, int at, int column);
/* The help text of an option whose name was printed and takes `used` columns. */
void opts_row(FILE *f, int used, const char *help);

/* A whole number in digits. -EINVAL: it is none, or not in the range. */
VV_WARN_UNUSED int opts_number(const char *text, uint64_t least, uint64_t most,
                               uint64_t *ret_value);
/* The same with a fraction. */
VV_WARN_UNUSED int opts_real(const char *text, double low, double high, double *ret_value);
/* The place of a word in "lifo|fifo". -EINVAL: it is not there. */
VV_WARN_UNUSED int opts_word(const char *words, const char *word);

#endif
