/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "cli/common/command.h"

#define OPTIONS_MAX 64
#define FIRST_ID    256 /* of long names: letters are below */
/* Columns of help texts. */
#define HELP_COLUMNS 80
#define HELP_TEXT    24

/* ---- values ---- */

int opts_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret_value)
{
    unsigned long long v;
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno || *end || v < least || v > most)
        return -EINVAL;
    *ret_value = v;
    return 0;
}

int opts_real(const char *text, double low, double high, double *ret_value)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !isfinite(v) || v < low || v > high)
        return -EINVAL;
    *ret_value = v;
    return 0;
}

int opts_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (int i = 0; n > 0; i++) {
        size_t len = strcspn(words, "|");

        if (len == n && strncmp(words, word, n) == 0)
            return i;
        if (!words[len])
            break;
        words += len + 1;
    }
    return -EINVAL;
}

static uint64_t most_of(const struct opt *opt)
{
    uint64_t type = opt->kind == OPT_U32 ? UINT32_MAX : opt->kind == OPT_INT ? INT_MAX : UINT64_MAX;

    return opt->most ? opt->most : type;
}

static int set_bytes(const struct opt *opt, const char *value, uint64_t *field)
{
    uint64_t bytes;
    int rc = vv_bytes_parse(value, &bytes);

    if (rc == 0 && (bytes < opt->least || bytes > most_of(opt)))
        rc = -EINVAL;
    if (rc == 0)
        *field = bytes;
    return rc;
}

static int set_number(const struct opt *opt, const char *value, void *field)
{
    uint64_t v;
    int rc = opts_number(value, opt->least, most_of(opt), &v);

    if (rc < 0)
        return rc;
    if (opt->kind == OPT_U64)
        *(uint64_t *)field = v;
    else if (opt->kind == OPT_U32)
        *(uint32_t *)field = (uint32_t)v;
    else
        *(int *)field = (int)v;
    return 0;
}

static int set_value(const struct opt *opt, const char *value, void *options)
{
    void *field = (char *)options + opt->at;
    int rc;

    switch (opt->kind) {
    case OPT_FLAG:
        *(bool *)field = true;
        return 0;
    case OPT_TEXT:
        *(const char **)field = value;
        return *value ? 0 : -EINVAL;
    case OPT_BYTES:
        return set_bytes(opt, value, field);
    case OPT_U64:
    case OPT_U32:
    case OPT_INT:
        return set_number(opt, value, field);
    case OPT_REAL:
        return opts_real(value, opt->low, opt->high, field);
    case OPT_WORD:
        rc = opts_word(opt->words, value);
        if (rc >= 0)
            *(int *)field = rc;
        return VV_MIN(rc, 0);
    case OPT_SET:
        return opt->set(value, options);
    default:
        return -EINVAL;
    }
}

/* ---- texts ---- */

static void complain_number(const struct opt *opt)
{
    fprintf(stderr, "a whole number");
    if (opt->most)
        fprintf(stderr, " from %" PRIu64 " to %" PRIu64, opt->least, opt->most);
    else if (opt->least)
        fprintf(stderr, " from %" PRIu64 " on", opt->least);
}

static void complain(const struct opts *o, const struct opt *opt, const char *value)
{
    if (opt->kind == OPT_TEXT && !*value) {
        fprintf(stderr, "%s: %s%s is empty; expected %s; see --help\n", o->command,
                opt->name ? "--" : "", opt->name ? opt->name : opt->arg, opt->arg);
        return;
    }
    fprintf(stderr, "%s: %s%s: '%s' is not ", o->command, opt->name ? "--" : "",
            opt->name ? opt->name : opt->arg, value);
    if (opt->takes)
        fprintf(stderr, "%s", opt->takes);
    else if (opt->kind == OPT_BYTES)
        fprintf(stderr, "a size (such as 512M or 4G)");
    else if (opt->kind == OPT_U64 || opt->kind == OPT_U32 || opt->kind == OPT_INT)
        complain_number(opt);
    else if (opt->kind == OPT_REAL)
        fprintf(stderr, "a number from %g to %g", opt->low, opt->high);
    else if (opt->kind == OPT_WORD)
        fprintf(stderr, "one of %s", opt->words);
    else
        fprintf(stderr, "%s", opt->arg);
    fprintf(stderr, "; see --help\n");
}

/* A line break within a paragraph is a blank. It stays before an empty line, or before a line that begins with a
 * blank. */
static bool ends_line(const char *text)
{
    return text[0] == '\n' && (text[1] == '\n' || text[1] == ' ');
}

/* The part of a word that fits a line of its own: a word that is too long is cut behind a comma. */
static int word_length(const char *text, int room)
{
    int len = (int)strcspn(text, " \n"), n = room;

    if (len <= room)
        return len;
    while (n > 0 && text[n - 1] != ',')
        n--;
    return n > 0 ? n : len;
}

void opts_wrap(FILE *f, const char *text, int at, int column)
{
    bool list = false; /* a line that begins with a blank: blanks within it stay, too */
    int second = 0;    /* such a line continues below its second column, or its first word */

    for (; *text == '\n'; text++)
        fputc('\n', f);
    list = *text == ' ' && at == 0;
    while (*text) {
        int blanks = 0, len;

        if (ends_line(text)) {
            at = 0;
            for (; *text == '\n'; text++)
                fputc('\n', f);
            list = *text == ' ';
        }
        for (; *text == ' ' || (*text == '\n' && !ends_line(text)); text++)
            blanks++;
        len = word_length(text, HELP_COLUMNS - column);
        if (len == 0)
            continue;
        if (!list)
            blanks = at > column;
        else if (at == 0 || blanks > 1)
            second = at + blanks;
        if (at > column && at + blanks + len > HELP_COLUMNS) {
            fputc('\n', f);
            at = 0;
            blanks = list ? second : 0;
        }
        if (at < column)
            blanks = column - at;
        at += fprintf(f, "%*s%.*s", blanks, "", len, text);
        text += len;
        list = list && *text != '\n';
    }
    fputc('\n', f);
}

static int print_name(FILE *f, const struct opt *opt)
{
    int n = fprintf(f, "  ");

    if (opt->letter)
        n += fprintf(f, "-%c, ", opt->letter);
    if (opt->name)
        n += fprintf(f, "--%s%s", opt->name, opt->arg ? " " : "");
    return n + fprintf(f, "%s", opt->arg ? opt->arg : "");
}

void opts_row(FILE *f, int used, const char *help)
{
    /* Too long a name has a line of its own. */
    if (used + 2 > HELP_TEXT) {
        fputc('\n', f);
        used = 0;
    }
    opts_wrap(f, help, used, HELP_TEXT);
}

void opts_usage(FILE *f, const struct opts *o)
{
    opts_wrap(f, o->usage, fprintf(f, "usage: %s", o->command), 7);
    if (*o->about) {
        fputc('\n', f);
        opts_wrap(f, o->about, 0, 0);
    }
    fputc('\n', f);
    for (size_t i = 0; i < o->nr; i++) {
        if (o->list[i].kind == OPT_NOTE)
            opts_wrap(f, o->list[i].help, 0, 0);
        else if (o->list[i].help)
            opts_row(f, print_name(f, &o->list[i]), o->list[i].help);
    }
    opts_row(f, print_name(f, &(struct opt){.name = "help"}), "this text");
    if (o->tail) {
        fputc('\n', f);
        opts_wrap(f, o->tail, 0, 0);
    }
}

/* ---- the command line ---- */

static size_t count(const struct opts *o)
{
    return o->nr + (o->also ? o->also->nr : 0);
}

static const struct opt *option_at(const struct opts *o, size_t i)
{
    return i < o->nr ? &o->list[i] : &o->also->list[i - o->nr];
}

/* True if the table has the name. Two rows of one name would make its abbreviations ambiguous. */
static bool is_listed(const struct option *longs, size_t nr, const char *name)
{
    for (size_t i = 0; i < nr; i++)
        if (strcmp(longs[i].name, name) == 0)
            return true;
    return false;
}

static void make_tables(const struct opts *o, struct option *longs, char *letters)
{
    size_t n = 0;

    vv_assert(count(o) + 1 < OPTIONS_MAX);
    *letters++ = ':'; /* getopt_long prints nothing, and returns ':' if a value is missing */
    *letters++ = 'h';
    longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
    for (size_t i = 0; i < count(o); i++) {
        const struct opt *opt = option_at(o, i);

        if (!opt->name || is_listed(longs, n, opt->name))
            continue;
        longs[n++] = (struct option){opt->name, opt->arg ? required_argument : no_argument, NULL,
                                     FIRST_ID + (int)i};
        if (!opt->letter)
            continue;
        *letters++ = opt->letter;
        if (opt->arg)
            *letters++ = ':';
    }
    longs[n] = (struct option){0};
    *letters = '\0';
}

/* The option with the id or letter; NULL: --help, or none. */
static const struct opt *find(const struct opts *o, int id)
{
    if (id >= FIRST_ID)
        return option_at(o, (size_t)(id - FIRST_ID));
    for (size_t i = 0; i < count(o); i++)
        if (option_at(o, i)->letter && option_at(o, i)->letter == id)
            return option_at(o, i);
    return NULL;
}

/* Prints the message about an option that getopt_long refused. The option is argv[optind - 1], and optopt its id:
 * 0 if the name is unknown or ambiguous. */
static void refuse(const struct opts *o, char **argv, const struct option *longs, bool no_value)
{
    const char *word = argv[optind - 1], *near = NULL;
    const struct opt *opt = find(o, optopt);
    int same = 0;

    fprintf(stderr, "%s: ", argv[0]);
    if (no_value && opt->name && word[0] == '-' && word[1] == '-') {
        fprintf(stderr, "option '--%s' needs a value: %s", opt->name, opt->arg);
    } else if (no_value) {
        fprintf(stderr, "option '-%c' needs a value: %s", optopt, opt->arg);
    } else if (opt || optopt == 'h') {
        fprintf(stderr, "option '--%.*s' takes no value", (int)strcspn(word + 2, "="), word + 2);
    } else if (optopt) {
        fprintf(stderr, "unknown option '-%c'", optopt);
    } else {
        for (; longs->name; longs++) {
            same += strncmp(longs->name, word + 2, strcspn(word + 2, "=")) == 0;
            if (cli_resembles(word + 2, longs->name))
                near = longs->name;
        }
        if (same > 1)
            fprintf(stderr, "'%s' is short for %d options: give more letters", word, same);
        else
            fprintf(stderr, "unknown option '%s'", word);
        if (near && same <= 1) {
            fprintf(stderr, "; did you mean '--%s'?\n", near);
            return;
        }
    }
    fprintf(stderr, "; '%s --help' lists the options\n", o->command);
}

/* 0, or the exit status after a message. */
static int take(const struct opts *o, const struct opt *opt, const char *value, void *options)
{
    int rc = set_value(opt, value, options);

    if (rc < 0)
        complain(o, opt, value ? value : "");
    if (rc == 0 && opt->given)
        *(bool *)((char *)options + opt->given - 1) = true;
    return rc < 0 ? CLI_USAGE : rc;
}

/* Takes the operands in the list, from argv[*first] on. */
static int take_operands(const struct opts *o, int argc, char **argv, void *options, int *first)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < o->nr; i++) {
        const struct opt *opt = &o->list[i];

        if (opt->name || opt->kind == OPT_NOTE)
            continue;
        if (*first < argc) {
            rc = take(o, opt, argv[(*first)++], options);
        } else if (!opt->optional) {
            fprintf(stderr, "%s: %s is missing; see --help\n", o->command, opt->arg);
            rc = CLI_USAGE;
        }
    }
    return rc;
}

int opts_parse(const struct opts *o, int argc, char **argv, void *options, int *ret_first)
{
    struct option longs[OPTIONS_MAX];
    char letters[2 * OPTIONS_MAX + 3];
    int rc = 0;

    make_tables(o, longs, letters);
    optind = 0; /* from the beginning */
    for (int id; rc == 0 && (id = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        const struct opt *opt = find(o, id);

        if (id == '?' || id == ':') {
            refuse(o, argv, longs, id == ':');
            return CLI_USAGE;
        }
        if (!opt) {
            opts_usage(stdout, o);
            return CLI_OK;
        }
        rc = take(o, opt, optarg, options);
    }
    if (rc == 0)
        rc = take_operands(o, argc, argv, options, &optind);
    if (rc == 0 && !o->operands && optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'; see --help\n", o->command, argv[optind]);
        rc = CLI_USAGE;
    }
    if (rc != 0)
        return rc;
    if (ret_first)
        *ret_first = optind;
    return -1;
}
