/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/json.h"

#include <math.h>

#include "trace/text.h"

void json_string(FILE *f, const char *s)
{
    vv_text_json(f, s);
}

void json_number(FILE *f, double x)
{
    if (isfinite(x))
        fprintf(f, "%.9g", x);
    else
        fputs("null", f);
}
