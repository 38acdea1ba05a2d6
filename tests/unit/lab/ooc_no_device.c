/* SPDX-License-Identifier: Apache-2.0 */
/* A missing device is reported before anything else is checked or data are made. */
#include <errno.h>

#include "lab/ooc/ooc_command.h"
#include "t.h"

static int asked;

static int none(void)
{
    asked++;
    return -ENODEV;
}

static void at_once(const char *what)
{
    char *argv[] = {"ooc", (char *)(uintptr_t)what, "4000G", "--steps", "1", NULL};
    struct ooc_launcher launcher = {.check = none};
    struct ooc_options options;

    asked = 0;
    T_EQ(ooc_parse(5, argv, false, &options), -1);
    T_EQ(ooc_command(&options, &launcher), 77);
    T_EQ(asked, 1);
}

static void wave(void)
{
    at_once("--volume");
}

static void survey(void)
{
    at_once("--tables");
}

int main(void)
{
    T_RUN(wave);
    T_RUN(survey);
    return t_done();
}
