/* SPDX-License-Identifier: Apache-2.0 */
/* Charts: axes, the marks of missing values, and well-formed SVG. */
#include "cli/common/plot.h"

#include <stdlib.h>

#include "cli/common/page.h"
#include "t.h"

/* Writes a chart to a text that the caller frees. */
static char *written(const struct plot *plot)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    T_CHECK(f);
    T_OK(plot_write(f, plot));
    T_CHECK(fclose(f) == 0);
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *s = text; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

/* Elements are closed in the order in which they were opened. */
static void check_nesting(const char *text)
{
    char names[16][16];
    size_t depth = 0;

    for (const char *s = strchr(text, '<'); s; s = strchr(s, '<')) {
        size_t n = strcspn(s + 1 + (s[1] == '/'), " />");
        const char *end = strchr(s, '>');

        T_CHECK(end && n > 0 && n < sizeof(names[0]));
        if (s[1] == '/') {
            T_CHECK(depth > 0);
            depth--;
            T_CHECK(strlen(names[depth]) == n && strncmp(names[depth], s + 2, n) == 0);
        } else if (end[-1] != '/') {
            T_CHECK(depth < 16);
            snprintf(names[depth++], sizeof(names[0]), "%.*s", (int)n, s + 1);
        }
        s = end;
    }
    T_EQ(depth, 0);
}

static const char *const groups[] = {"one & only", "two"};

static struct plot bars(struct plot_panel *panels, const struct plot_series *series,
                        size_t nr_series)
{
    for (int i = 0; i < 2; i++)
        panels[i] = (struct plot_panel){.kind = PLOT_BARS,
                                        .title = i ? "right" : "left",
                                        .x_label = "x <1>",
                                        .y_label = "GB/s",
                                        .log_y = true,
                                        .groups = groups,
                                        .nr_groups = 2,
                                        .series = series,
                                        .nr_series = nr_series};
    return (struct plot){.title = "a \"chart\"", .note = "note", .panels = panels, .nr_panels = 2};
}

static void axes(void)
{
    static const struct {
        double lo, hi;
        unsigned most;
        double want_lo, want_hi, want_step;
    } cases[] = {
        {0, 10, 5, 0, 10, 2},   {0, 384, 8, 0, 400, 50},  {0, 31.5, 8, 0, 35, 5},
        {0, 1, 8, 0, 1, 0.2},   {0, 0, 8, 0, 1, 0.2},     {0, 7, 8, 0, 7, 1},
        {-3, 12, 4, -5, 15, 5}, {0, 1e9, 4, 0, 1e9, 5e8}, {5, 5, 5, 5, 10, 1},
    };

    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        double lo, hi, step;

        plot_axis(cases[i].lo, cases[i].hi, cases[i].most, &lo, &hi, &step);
        if (fabs(lo - cases[i].want_lo) > 1e-9 * step ||
            fabs(hi - cases[i].want_hi) > 1e-9 * step ||
            fabs(step - cases[i].want_step) > 1e-9 * step)
            t_fail(__FILE__, __LINE__, "case %zu: %g to %g by %g", i, lo, hi, step);
    }
}

/* For any range, the axis holds it, in no more steps than requested. */
static void axes_hold(void)
{
    struct t_rng rng = {t_seed()};

    for (int i = 0; i < 20000; i++) {
        double a = (double)(t_rng_u64(&rng) % 2000001) / 1000 - 1000;
        double b = a + pow(10, (double)(t_rng_u64(&rng) % 12) - 4);
        unsigned most = 3 + (unsigned)(t_rng_u64(&rng) % 8);
        double lo, hi, step;

        plot_axis(a, b, most, &lo, &hi, &step);
        T_CHECK(lo <= a + 1e-6 * step && hi >= b - 1e-6 * step);
        T_CHECK((hi - lo) / step <= most + 1e-6);
    }
}

static void bars_and_crosses(void)
{
    double good[] = {1000, 0.5}, bad[] = {NAN, 0}, none[] = {PLOT_NOTHING, 2};
    struct plot_series series[] = {
        {.name = "good", .colour = "#0072b2", .y = good, .nr = 2},
        {.name = "b<d", .colour = "#e69f00", .y = bad, .nr = 2},
        {.name = "none", .colour = "#009e73", .y = none, .nr = 2},
    };
    struct plot_panel panels[2];
    struct plot plot = bars(panels, series, 3);
    char *text = written(&plot);

    check_nesting(text);
    /* Per panel: three bars with their values, and two crosses of two lines. */
    T_EQ(count(text, "</title></rect>"), 6);
    T_EQ(count(text, "vp-gone\" x1"), 8);
    T_EQ(count(text, ">1000</text>"), 4); /* on the axis and on the bar */
    T_EQ(count(text, "b&lt;d"), 1);       /* only in the legend */
    T_EQ(count(text, "one &amp; only"), 4);
    T_EQ(count(text, "a &quot;chart&quot;"), 2);
    T_CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

/* The variation of values: a line through the end of a bar and one across its upper end. */
static void error_bars(void)
{
    double good[] = {1000, 0.5}, err[] = {200, 0};
    struct plot_series series[] = {{.name = "good", .colour = "#0072b2", .y = good, .nr = 2}};
    struct plot_panel panels[2];
    struct plot plot = bars(panels, series, 1);
    char *text = written(&plot);
    size_t without = count(text, "vp-axis\" x1");

    free(text);
    series[0].err = err;
    text = written(&plot);
    check_nesting(text);
    T_EQ(count(text, "vp-axis\" x1"), without + 4); /* two panels, one bar that varies */
    free(text);
}

static void lines_and_gaps(void)
{
    double x[] = {8, 16, 32, 64}, y[] = {1, NAN, 4, 5}, z[] = {3, 3, 3, 3};
    struct plot_series series[] = {
        {.name = "y", .colour = "#0072b2", .dash = PLOT_DASHED, .x = x, .y = y, .nr = 4},
        {.name = "z", .colour = "#e69f00", .x = x, .y = z, .nr = 4},
    };
    struct plot_panel panel = {.kind = PLOT_LINES,
                               .title = "t",
                               .x_label = "GPUs",
                               .y_label = "n",
                               .log_x = true,
                               .series = series,
                               .nr_series = 2};
    struct plot plot = {.title = "lines", .panels = &panel, .nr_panels = 1};
    char *text = written(&plot);

    check_nesting(text);
    T_EQ(count(text, "stroke-dasharray"), 2); /* line and legend */
    T_EQ(count(text, "vp-gone\" x1"), 2);
    T_EQ(count(text, "<circle"), 4); /* three points and the legend */
    T_CHECK(strstr(text, ">64</text>") && strstr(text, ">8</text>"));
    T_CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

static void nothing_at_all(void)
{
    double y[] = {NAN, NAN};
    struct plot_series series[] = {{.name = "y", .colour = "#0072b2", .y = y, .nr = 2}},
                       other = {0};
    struct plot_panel panels[2];
    struct plot plot = bars(panels, series, 1);
    char *text = written(&plot);

    check_nesting(text);
    T_EQ(count(text, "nothing was measured"), 2);
    free(text);

    other = series[0];
    other.name = "z";
    panels[1].series = &other;
    T_ERR(plot_write(stdout, &plot), -EINVAL);
    panels[1].series = series;
    plot.nr_panels = 0;
    T_ERR(plot_write(stdout, &plot), -EINVAL);
}

static void text_is_escaped(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    T_CHECK(f);
    page_text(f, "a<b>&\"c\"\x01\n'");
    fclose(f);
    T_STREQ(text, "a&lt;b&gt;&amp;&quot;c&quot; \n&#39;");
    free(text);
}

int main(void)
{
    T_RUN(axes);
    T_RUN(axes_hold);
    T_RUN(bars_and_crosses);
    T_RUN(error_bars);
    T_RUN(lines_and_gaps);
    T_RUN(nothing_at_all);
    T_RUN(text_is_escaped);
    return t_done();
}
