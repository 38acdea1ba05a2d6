/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page loads nothing: its style sheet and its script are in it, pictures are data, and a content security policy
 * forbids the browser everything else. The script is allowed by its hash, so that markup which got into the page
 * by a mistake could still not run.
 */
#include "cli/common/page.h"

#include <math.h>

#include "cli/common/text.h"

/* Made from cli/common/page.css and cli/report/trace_page.js. */
extern const unsigned char page_css[], trace_page_js[], trace_page_js_sha256[32];
extern const size_t page_css_bytes, trace_page_js_bytes;

void page_text(FILE *f, const char *s)
{
    text_xml(f, s);
}

void page_base64(FILE *f, const void *bytes, size_t nr_bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = bytes;

    for (size_t i = 0; i < nr_bytes; i += 3) {
        size_t left = nr_bytes - i;
        uint32_t v = (uint32_t)p[i] << 16;

        if (left > 1)
            v |= (uint32_t)p[i + 1] << 8;
        if (left > 2)
            v |= p[i + 2];
        fputc(digits[v >> 18], f);
        fputc(digits[v >> 12 & 63], f);
        fputc(left > 1 ? digits[v >> 6 & 63] : '=', f);
        fputc(left > 2 ? digits[v & 63] : '=', f);
    }
}

void page_begin(FILE *f, const char *title, bool script)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
          f);
    if (script) {
        fputs("; script-src 'sha256-", f);
        page_base64(f, trace_page_js_sha256, sizeof(trace_page_js_sha256));
        fputc('\'', f);
    }
    fputs("\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
          f);
    page_text(f, title);
    fputs("</title>\n<style>\n", f);
    fwrite(page_css, 1, page_css_bytes, f);
    fputs("</style>\n</head>\n<body>\n", f);
}

void page_end(FILE *f, bool script)
{
    if (script) {
        fputs("<script>", f);
        fwrite(trace_page_js, 1, trace_page_js_bytes, f);
        fputs("</script>\n", f);
    }
    fputs("</body>\n</html>\n", f);
}

void page_pair(FILE *f, const char *name, const char *text, bool code)
{
    fputs("<tr><th scope=\"row\">", f);
    page_text(f, name);
    fprintf(f, "</th><td class=\"text\">%s", code ? "<code>" : "");
    page_text(f, text);
    fprintf(f, "%s</td></tr>\n", code ? "</code>" : "");
}

/* Three digits, never an exponent: `x` is below about 1000. */
static void digits3(double x, const char *unit, char *buf, size_t size)
{
    int decimals = fabs(x) >= 99.95 ? 0 : fabs(x) >= 9.995 ? 1 : 2;

    snprintf(buf, size, "%.*f %s", decimals, x, unit);
}

static char *scaled(double x, double step, double most, const char *const *units, int nr_units,
                    char *buf, size_t size)
{
    int i = 0;

    if (!isfinite(x)) {
        snprintf(buf, size, "%s", "unknown");
        return buf;
    }
    while (i + 1 < nr_units && fabs(x) >= most) {
        x /= step;
        i++;
    }
    if (i == 0 && x == floor(x))
        snprintf(buf, size, "%.0f %s", x, units[i]);
    else
        digits3(x, units[i], buf, size);
    return buf;
}

char *page_seconds(double s, char *buf, size_t size)
{
    static const char *const units[] = {"ns", "\xc2\xb5s", "ms", "s"};

    if (s == 0)
        snprintf(buf, size, "0 s");
    else if (fabs(s) >= 600)
        snprintf(buf, size, "%.0f min %02.0f s", floor(s / 60), floor(s - 60 * floor(s / 60)));
    else
        scaled(s * 1e9, 1e3, 999.5, units, 4, buf, size);
    return buf;
}

char *page_bytes(double bytes, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

    return scaled(bytes, 1024, 1023.5, units, 6, buf, size);
}

char *page_rate(double bytes_per_s, char *buf, size_t size)
{
    static const char *const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};

    return scaled(bytes_per_s, 1e3, 999.5, units, 5, buf, size);
}
