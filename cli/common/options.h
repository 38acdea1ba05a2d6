/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a command. One table yields the parser, the help text, and messages about wrong values. getopt_long(3)
 * defines how options are written: before the operands or among them. If an option is given several times, the last
 * value counts. Every command has --help and -h. A row without a name is an operand: the first such row takes the first
 * operand, and so on.
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
    OPT_BYTES, /* uint64_t, `least` or more: "512M" */
    OPT_U64,   /* uint64_t, `least` to `most` */
    OPT_U32,   /* uint32_t, or unsigned */
    OPT_INT,   /* int, 0 or more */
    OPT_REAL,  /* double, `low` to `high`, both included */
    OPT_WORD,  /* int: the index of the value in `words` */
    OPT_SET,   /* `set` takes the value */
    OPT_NOTE   /* not an option: a line of the help text */
};

struct opt {
    enum opt_kind kind;
    char letter;      /* its short name; 0: none */
    const char *name; /* without dashes; NULL: an operand */
    const char *arg;  /* the name of its value in the help text; NULL: it takes none */
    bool optional;    /* an operand that may be left out */
    const char *help; /* NULL: the help text leaves the option out */
    size_t at;        /* the field, in the structure of options */
    size_t given;     /* OPT_GIVEN of a bool, which is set if the option is given; 0: none */
    uint64_t least;
    uint64_t most; /* 0: the largest number of the type */
    double low, high;
    const char *words; /* "lifo|fifo" */
    /* Returns 0; a negative errno if the value is wrong; an exit status above 0 after it has printed a message. value is
     * NULL if the option takes none. */
    int (*set)(const char *value, void *options);
    /* The end of the message "'x' is not ...": "X,Y,Z (for example 120,100,80)". NULL: the kind gives it. */
    const char *takes;
};

#define OPT_GIVEN(type, field) (offsetof(type, field) + 1)
/* In an initializer of struct opts. */
#define OPT_LIST(rows) .list = (rows), .nr = VV_ARRAY_SIZE(rows)

struct opts {
    const char *command; /* "varve ls" */
    /* The operands: "[OPTION]... FILE". Lines that begin with a blank are not joined. */
    const char *usage;
    const char *about; /* what the command does */
    const char *tail;  /* text behind the options; NULL: none */
    bool operands;     /* the command takes operands that are not in the list */
    const struct opt *list;
    size_t nr;
    /* The options of another command, which this one takes as well; NULL: none. The help text does not list them. If both
     * lists have a name, the option of `list` counts. Their fields are at the start of the structure. */
    const struct opts *also;
};

/* Sets fields of `options`. Returns -1 if the command is to run: argv has the operands that are not in the list from
 * *ret_first on. Returns an exit status after --help and after a message. ret_first may be NULL. */
VV_WARN_UNUSED int opts_parse(const struct opts *o, int argc, char **argv, void *options,
                              int *ret_first);

void opts_usage(FILE *f, const struct opts *o);
/* Prints a paragraph in lines of at most 80 columns that begin at `column`. `at` columns of the first line are used. */
void opts_wrap(FILE *f, const char *text, int at, int column);
/* Prints the help text of an option. Its name was printed and takes `used` columns. */
void opts_row(FILE *f, int used, const char *help);

/* A whole number in digits. -EINVAL: the text is not a number in the range. */
VV_WARN_UNUSED int opts_number(const char *text, uint64_t least, uint64_t most,
                               uint64_t *ret_value);
/* The same with a fraction. */
VV_WARN_UNUSED int opts_real(const char *text, double low, double high, double *ret_value);
/* The index of a word in "lifo|fifo". -EINVAL: the word is not there. */
VV_WARN_UNUSED int opts_word(const char *words, const char *word);

#endif
