/* SPDX-License-Identifier: Apache-2.0 */
/* A table of options: accepted values, refused ones, and its help text. */
#include "cli/common/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "t.h"

struct values {
    bool flag, given;
    const char *text;
    uint64_t bytes, u64;
    uint32_t u32;
    int number, word;
    double real;
    unsigned sets;
};

#define AT(field) offsetof(struct values, field)

static int set(const char *value, void *arg)
{
    ((struct values *)arg)->sets++;
    return strcmp(value, "bad") == 0 ? -EINVAL : strcmp(value, "said") == 0 ? CLI_FAILED : 0;
}

static const struct opt list[] = {
    {OPT_FLAG, .letter = 'f', .name = "flag", .help = "a flag", .at = AT(flag)},
    {OPT_TEXT, .letter = 'o', .name = "text", .arg = "TEXT", .help = "one\ntwo", .at = AT(text)},
    {OPT_BYTES, .name = "bytes", .arg = "SIZE", .help = "a size", .at = AT(bytes), .least = 4096},
    {OPT_NOTE, .help = "\nNumbers:"},
    {OPT_U64, .name = "u64", .arg = "N", .help = "a number", .at = AT(u64),
     .given = OPT_GIVEN(struct values, given)},
    {OPT_U32, .name = "u32", .arg = "N", .help = "another", .at = AT(u32), .least = 1, .most = 9},
    {OPT_INT, .name = "int", .arg = "N", .help = "another", .at = AT(number)},
    {OPT_REAL, .name = "real-number", .arg = "X", .help = "a long name", .at = AT(real), .low = 0.5,
     .high = 2},
    {OPT_WORD, .name = "word", .arg = "W", .help = "a word", .at = AT(word), .words = "ab|abc|b"},
    {OPT_SET, .name = "set", .arg = "S", .help = "anything", .set = set},
};

static struct opts command = {
    .command = "t",
    .usage = "[OPTION]...",
    .about = "What it does.",
    OPT_LIST(list),
};

/* Cuts the line at blanks. Values of text point into the last one. */
static int parse(const char *line, struct values *v, int *ret_first)
{
    static char text[256];
    char *argv[32] = {(char *)"t"}, *save = NULL;
    int argc = 1;

    *v = (struct values){0};
    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    return opts_parse(&command, argc, argv, v, ret_first);
}

static void every_kind(void)
{
    struct values v;
    int first;

    T_EQ(parse("", &v, &first), -1);
    T_EQ(first, 1);
    T_EQ(parse("-f --bytes 4K --u64=18446744073709551615 --u32 9 --int 7 --real-number 0.5 --word "
               "abc --set x --set y",
               &v, &first),
         -1);
    T_CHECK(v.flag && v.given && v.bytes == 4096 && v.u64 == UINT64_MAX && v.u32 == 9);
    T_CHECK(v.number == 7 && v.real == 0.5 && v.word == 1 && v.sets == 2 && !v.text);
    /* An unambiguous beginning of a name is enough, and if an option is repeated the last value counts. */
    T_EQ(parse("--real 1 --rea 2", &v, &first), -1);
    T_CHECK(v.real == 2 && !v.given);
}

static void wrong_values(void)
{
    static const char *const lines[] = {
        "--bytes 4095",
        "--bytes x",
        "--u64 -1",
        "--u64 18446744073709551616",
        "--u64 1x",
        "--u32 0",
        "--u32 10",
        "--int 2147483648",
        "--real 0.49",
        "--real 2.1",
        "--real nan",
        "--real 1s",
        "--word a",
        "--word ab|abc",
        "--set bad",
        "--nosuch",
        "--u",
        "--flag=1",
        "--text",
        "operand",
        "--flag operand",
        "-x",
        "--bytes 99999999999999999999",
    };
    const char *accepted = "none";
    struct values v;
    int first, status, keep = dup(STDERR_FILENO);

    T_CHECK(keep >= 0 && freopen("/dev/null", "w", stderr));
    for (size_t i = 0; i < VV_ARRAY_SIZE(lines); i++)
        if (parse(lines[i], &v, &first) != CLI_USAGE)
            accepted = lines[i];
    /* A function that prints its own message also decides about the exit status. */
    status = parse("--set said", &v, &first);
    fflush(stderr);
    T_CHECK(dup2(keep, STDERR_FILENO) >= 0);
    close(keep);
    T_STREQ(accepted, "none");
    T_EQ(status, CLI_FAILED);
}

/* The options of another command are taken as well; if both have a name, the own option counts. */
static void options_of_another(void)
{
    static const struct opt own[] = {
        {OPT_U32, .name = "u64", .arg = "N", .help = "a number", .at = AT(u32)},
        {OPT_FLAG, .name = "unlisted", .at = AT(given)},
    };
    const struct opts before = command;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    struct values v;
    int first;

    command.list = own;
    command.nr = VV_ARRAY_SIZE(own);
    command.also = &before;
    T_EQ(parse("--u6 7 --unlisted --word b -f -o x", &v, &first), -1);
    T_CHECK(v.u32 == 7 && v.u64 == 0 && v.given && v.word == 2 && v.flag && v.text);
    T_CHECK(f);
    opts_usage(f, &command);
    fclose(f);
    T_STREQ(text, "usage: t [OPTION]...\n\nWhat it does.\n\n  --u64 N               a number\n"
                  "  --help                this text\n");
    free(text);
    command = before;
}

static void operands(void)
{
    struct values v;
    int first;

    command.operands = true;
    T_EQ(parse("a -f b -- --flag", &v, &first), -1);
    T_CHECK(v.flag && first == 3); /* they are moved behind the options and -- */
    command.operands = false;
}

/* Rows without a name take operands in their order; the last may be left out. */
static void listed_operands(void)
{
    static const struct opt own[] = {
        {OPT_TEXT, .arg = "FOLDER", .help = "where", .at = AT(text)},
        {OPT_FLAG, .name = "flag", .at = AT(flag)},
        {OPT_U32, .arg = "N", .optional = true, .help = "how many", .at = AT(u32), .least = 1},
    };
    static const char *const wrong[] = {"", "--flag", "a 0", "a x", "a 1 b"};
    const struct opts before = command;
    struct values v;
    int first;

    command.list = own;
    command.nr = VV_ARRAY_SIZE(own);
    T_EQ(parse("a --flag 7", &v, NULL), -1);
    T_CHECK(strcmp(v.text, "a") == 0 && v.flag && v.u32 == 7);
    T_EQ(parse("a", &v, &first), -1);
    T_CHECK(v.u32 == 0 && first == 2);
    for (size_t i = 0; i < VV_ARRAY_SIZE(wrong); i++)
        T_EQ(parse(wrong[i], &v, &first), CLI_USAGE);
    command.operands = true;
    T_EQ(parse("a 1 b", &v, &first), -1);
    T_EQ(first, 3);
    command = before;
}

static void help_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    opts_usage(f, &command);
    fclose(f);
    T_STREQ(text, "usage: t [OPTION]...\n"
                  "\n"
                  "What it does.\n"
                  "\n"
                  "  -f, --flag            a flag\n"
                  "  -o, --text TEXT       one two\n"
                  "  --bytes SIZE          a size\n"
                  "\n"
                  "Numbers:\n"
                  "  --u64 N               a number\n"
                  "  --u32 N               another\n"
                  "  --int N               another\n"
                  "  --real-number X       a long name\n"
                  "  --word W              a word\n"
                  "  --set S               anything\n"
                  "  --help                this text\n");
    free(text);
}

static const char *wrapped(const char *words, int at, int column)
{
    static char text[512];
    FILE *f = fmemopen(text, sizeof(text), "w");

    T_CHECK(f);
    opts_wrap(f, words, at, column);
    fclose(f);
    return text;
}

/* Lines of at most 80 columns; a list and empty lines stay, other breaks are blanks. */
static void wrapping(void)
{
#define TEN "123456789 "
    T_STREQ(wrapped(TEN TEN TEN TEN TEN TEN TEN TEN "x", 0, 0),
            TEN TEN TEN TEN TEN TEN TEN "123456789\nx\n");
    T_STREQ(wrapped("a\nb", 2, 4), "  a b\n");
    T_STREQ(wrapped(TEN TEN TEN TEN TEN TEN "abcdefghij", 10, 12),
            "  " TEN TEN TEN TEN TEN "123456789\n            abcdefghij\n");
    T_STREQ(wrapped("\na\n\nb\n  c   d\n  e\nf", 0, 0), "\na\n\nb\n  c   d\n  e f\n");
    /* In a list, below the second column; and a word that is too long, behind a comma. */
    T_STREQ(wrapped("  a  " TEN TEN TEN TEN TEN TEN TEN "12345 b\n  c", 0, 0),
            "  a  " TEN TEN TEN TEN TEN TEN TEN "12345\n     b\n  c\n");
    T_STREQ(wrapped("123456789,123456789,123456789,12", 0, 50),
            "                                                  123456789,123456789,123456789,\n"
            "                                                  12\n");
#undef TEN
}

int main(void)
{
    T_RUN(wrapping);
    T_RUN(every_kind);
    T_RUN(wrong_values);
    T_RUN(options_of_another);
    T_RUN(operands);
    T_RUN(listed_operands);
    T_RUN(help_text);
    return t_done();
}
