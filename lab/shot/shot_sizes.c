/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of the checkpoints: one for all, a list, or a table of real ones. The table is text, values
 * separated by commas, every row with as many as the first; a first row that does not begin with a
 * digit is a heading. Values are taken column after column and cycled.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "lab/shot/shot.h"

struct table {
    double *cells; /* row after row */
    size_t nr_cells;
    size_t cap_cells;
    size_t nr_columns;
};

VV_PRINTF(4, 5)
static int fail(int rc, char *err, size_t err_size, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (err && err_size)
        vsnprintf(err, err_size, fmt, ap);
    va_end(ap);
    return rc;
}

static int add_cell(struct table *t, double value)
{
    if (t->nr_cells == t->cap_cells) {
        size_t cap = t->cap_cells ? 2 * t->cap_cells : 256;
        double *cells = realloc(t->cells, cap * sizeof(*cells));

        if (!cells)
            return -ENOMEM;
        t->cells = cells;
        t->cap_cells = cap;
    }
    t->cells[t->nr_cells++] = value;
    return 0;
}

/* Returns the number of values, or a negative errno. */
static int add_row(struct table *t, const char *line)
{
    int n = 0;

    for (;;) {
        char *end;
        double v = strtod(line, &end);
        int rc;

        if (end == line || !isfinite(v) || v < 1 || v > 1e18)
            return -EINVAL;
        rc = add_cell(t, v);
        if (rc < 0)
            return rc;
        n++;
        end += strspn(end, " \t\r\n");
        if (*end == '\0')
            return n;
        if (*end != ',')
            return -EINVAL;
        line = end + 1;
    }
}

static int read_table(FILE *f, const char *path, char *err, size_t err_size, struct table *t)
{
    char *line = NULL;
    size_t cap = 0, number = 0;
    int rc = 0;

    while (rc == 0 && getline(&line, &cap, f) >= 0) {
        const char *s = line + strspn(line, " \t\r\n");
        int n;

        number++;
        if (*s == '\0' || (number == 1 && (*s < '0' || *s > '9')))
            continue;
        n = add_row(t, s);
        if (n < 0) {
            rc = fail(n, err, err_size, "%s:%zu: expected sizes in bytes, separated by commas",
                      path, number);
        } else if (t->nr_columns && (size_t)n != t->nr_columns) {
            rc = fail(-EINVAL, err, err_size, "%s:%zu: %d values, the rows before have %zu", path,
                      number, n, t->nr_columns);
        } else {
            t->nr_columns = (size_t)n;
        }
    }
    if (rc == 0 && ferror(f))
        rc = fail(-EIO, err, err_size, "%s: cannot be read", path);
    if (rc == 0 && t->nr_cells == 0)
        rc = fail(-EINVAL, err, err_size, "%s: no sizes in it", path);
    free(line);
    return rc;
}

/* The values of "128M,512M,512M" as a table of one row; 0: the text is not such a list. `t` may be NULL. -ENOMEM. */
static int read_list(const char *spec, struct table *t)
{
    int n = 0;

    for (;;) {
        size_t len = strcspn(spec, ",");
        char text[64];
        uint64_t bytes;

        snprintf(text, sizeof(text), "%.*s", (int)len, spec);
        if (len >= sizeof(text) || vv_bytes_parse(text, &bytes) < 0 || bytes == 0)
            return 0;
        if (t && add_cell(t, (double)bytes) < 0)
            return -ENOMEM;
        n++;
        if (spec[len] == '\0')
            break;
        spec += len + 1;
    }
    if (t)
        t->nr_columns = (size_t)n;
    return n;
}

/* Splits FILE[:column]; a colon without a number behind it belongs to the name. */
static int split_column(const char *spec, char **ret_path, long *ret_column)
{
    const char *colon = strrchr(spec, ':');
    char *path = strdup(spec);

    if (!path)
        return -ENOMEM;
    *ret_column = -1;
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
        strlen(colon + 1) < 10) {
        path[colon - spec] = '\0';
        *ret_column = strtol(colon + 1, NULL, 10);
    }
    *ret_path = path;
    return 0;
}

static int load_table(const char *spec, char *err, size_t err_size, struct table *t,
                      long *ret_column)
{
    char *path = NULL;
    FILE *f = NULL;
    int rc;

    if (read_list(spec, NULL) > 0)
        return VV_MIN(read_list(spec, t), 0);
    rc = split_column(spec, &path, ret_column);
    if (rc == 0) {
        f = fopen(path, "re");
        if (!f) {
            rc = -errno;
            fail(rc, err, err_size, "%s: %s", path, strerror(-rc));
        }
    }
    if (rc == 0)
        rc = read_table(f, path, err, err_size, t);
    if (rc == 0 && *ret_column >= (long)t->nr_columns)
        rc = fail(-EINVAL, err, err_size, "%s: no column %ld, it has %zu (from 0)", path,
                  *ret_column, t->nr_columns);
    if (f)
        fclose(f);
    free(path);
    return rc;
}

size_t shot_sizes_listed(const char *spec)
{
    int n = spec ? read_list(spec, NULL) : 0;

    return (size_t)VV_MAX(n, 1);
}

static double table_size(const struct table *t, long column, size_t i)
{
    size_t rows = t->nr_cells / t->nr_columns;
    size_t c = column >= 0 ? (size_t)column : i / rows % t->nr_columns;

    return t->cells[i % rows * t->nr_columns + c];
}

int shot_sizes_init(const struct shot_opts *opts, char *err, size_t err_size,
                    struct shot_sizes *ret_sizes)
{
    struct shot_sizes s = {.nr = opts->ckpts};
    struct table t = {0};
    long column = -1;
    int rc = 0;

    if (opts->sizes)
        rc = load_table(opts->sizes, err, err_size, &t, &column);
    if (rc == 0) {
        s.bytes = calloc(s.nr, sizeof(*s.bytes));
        if (!s.bytes)
            rc = fail(-ENOMEM, err, err_size, "out of memory");
    }
    for (size_t i = 0; rc == 0 && i < s.nr; i++) {
        double base = opts->sizes ? table_size(&t, column, i) : (double)opts->size_bytes;
        double bytes = fmax(round(base * opts->scale), 1);

        if (bytes > 1e15) {
            rc = fail(-EINVAL, err, err_size, "a checkpoint of %.3g bytes is absurd", bytes);
        } else {
            s.bytes[i] = (uint64_t)bytes;
            s.total_bytes += s.bytes[i];
            s.largest_bytes = VV_MAX(s.largest_bytes, s.bytes[i]);
        }
    }
    free(t.cells);
    if (rc < 0)
        shot_sizes_fini(&s);
    else
        *ret_sizes = s;
    return rc;
}

void shot_sizes_fini(struct shot_sizes *sizes)
{
    if (!sizes)
        return;
    free(sizes->bytes);
    *sizes = (struct shot_sizes){0};
}

int shot_interval_ns(const struct shot_opts *opts, const struct shot_sizes *sizes, double disk_bps,
                     uint64_t *ret_interval_ns)
{
    double mean, ns;

    if (opts->load <= 0) {
        *ret_interval_ns = opts->interval_ns;
        return 0;
    }
    if (!(disk_bps > 0) || sizes->nr == 0)
        return -EINVAL;
    mean = (double)sizes->total_bytes / (double)sizes->nr;
    ns = round(mean / (opts->load * disk_bps) * 1e9);
    if (!(ns < 1e18))
        return -EINVAL;
    *ret_interval_ns = (uint64_t)ns;
    return 0;
}
