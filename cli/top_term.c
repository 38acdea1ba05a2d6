/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve top` on a terminal. It uses the alternate screen, so that the former content comes back; it reads keys,
 * not lines. Every end (a key, a signal, the end of the input) goes through leave(), which restores the terminal.
 * Ctrl-Z does so too, and fg draws the screen again.
 *
 * Signals only set flags. They are blocked except during ppoll, so that none is missed between testing the flags
 * and waiting. A screen is written in one piece, without clearing it first: on a slow line it does not flicker.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/top.h"

enum view { VIEW_AUTO, VIEW_PROCESS, VIEW_LIST };

struct screen {
    struct termios before;
    bool entered;
    struct top_pages *pages;
    double interval_s;
    enum view view;
    bool help;
    size_t selected;
    uint64_t chosen[2]; /* process and context of `selected`: the list may move */
    unsigned rows, columns;
};

static volatile sig_atomic_t end_signal, stop_signal, resized;

static void on_signal(int number)
{
    if (number == SIGTSTP)
        stop_signal = 1;
    else if (number == SIGWINCH || number == SIGCONT)
        resized = 1;
    else
        end_signal = number;
}

bool top_has_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0;
}

static void measure(unsigned *ret_rows, unsigned *ret_columns)
{
    struct winsize w = {0};

    *ret_rows = 24;
    *ret_columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        *ret_rows = w.ws_row ? w.ws_row : 24;
        *ret_columns = w.ws_col ? w.ws_col : 80;
    }
}

unsigned top_width(void)
{
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    unsigned rows, width;

    if (n >= 20 && n <= 1000)
        return (unsigned)n;
    measure(&rows, &width);
    return width;
}

static void put(const char *s, size_t n)
{
    while (n > 0) {
        ssize_t w = write(STDOUT_FILENO, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return; /* the terminal is gone: the next read of the input shows that */
        s += w;
        n -= (size_t)w;
    }
}

static void say(const char *s)
{
    put(s, strlen(s));
}

static void enter(struct screen *s)
{
    struct termios raw = s->before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    say("\033[?1049h\033[?25l\033[2J");
    s->entered = true;
}

static void leave(struct screen *s)
{
    if (!s->entered)
        return;
    say("\033[?25h\033[?1049l");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
    s->entered = false;
}

/* ---- drawing ---- */

/* Keeps the chosen process selected. */
static void follow(struct screen *s)
{
    const struct top_pages *pages = s->pages;

    for (size_t i = 0; i < pages->n; i++)
        if (pages->page[i].header.pid == s->chosen[0] &&
            pages->page[i].header.context == s->chosen[1]) {
            s->selected = i;
            return;
        }
    if (s->selected >= pages->n)
        s->selected = pages->n ? pages->n - 1 : 0;
}

static void choose(struct screen *s, size_t i)
{
    if (i >= s->pages->n)
        return;
    s->selected = i;
    s->chosen[0] = s->pages->page[i].header.pid;
    s->chosen[1] = s->pages->page[i].header.context;
}

static void compose(struct screen *s, struct top_text *t)
{
    const struct top_pages *pages = s->pages;
    bool list = s->view == VIEW_LIST || (s->view == VIEW_AUTO && pages->n > 1);

    if (s->help)
        top_view_help(t);
    else if (pages->n == 0)
        top_row(t, "no process publishes statistics; waiting for one");
    else if (list)
        top_view_list(t, pages, s->selected);
    else
        top_view_process(t, &pages->page[s->selected]);
}

static void draw(struct screen *s)
{
    struct top_text t = {.width = s->columns, .bold = true};
    struct top_text all = {.width = s->columns};
    unsigned drawn = 0;

    follow(s);
    compose(s, &t);
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    if (!f || t.failed)
        goto done;
    fputs("\033[H", f);
    for (const char *p = t.data; p && drawn + 1 < s->rows; drawn++) {
        const char *end = strchr(p, '\n');
        /* Clear before the text, not after it: past the last column the last character would be cleared. */
        fprintf(f, "\033[K%.*s\033[0m\r\n", end ? (int)(end - p) : (int)strlen(p), p);
        p = end ? end + 1 : NULL;
    }
    if (s->pages->trouble[0])
        top_row(&all, "%s", s->pages->trouble);
    else if (s->pages->removed)
        top_row(&all, "removed %u page%s of processes that had ended", s->pages->removed,
                s->pages->removed == 1 ? "" : "s");
    else
        top_row(&all, "q quit  h help  l list   every %.1f s", s->interval_s);
    fprintf(f, "\033[J\033[%u;1H\033[K\033[7m%s\033[0m", s->rows, all.data ? all.data : "");
done:
    if (f && fclose(f) == 0)
        put(out, size);
    free(out);
    top_text_free(&all);
    top_text_free(&t);
}

/* ---- keys ---- */

enum key { KEY_NONE, KEY_UP, KEY_DOWN, KEY_END };

/* An arrow is an escape sequence; all others are skipped. */
static int key_of(const char *buf, size_t n, size_t *used)
{
    *used = 1;
    if (buf[0] != '\033')
        return (unsigned char)buf[0];
    if (n >= 3 && (buf[1] == '[' || buf[1] == 'O')) {
        *used = 3;
        return buf[2] == 'A' ? -KEY_UP : buf[2] == 'B' ? -KEY_DOWN : 0;
    }
    *used = n;
    return 0;
}

/* Handles a key. False if the program has to end. */
static bool act(struct screen *s, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case 'h':
    case '?':
        s->help = !s->help;
        break;
    case 'l':
        s->view = VIEW_LIST;
        s->help = false;
        break;
    case '\n':
    case '\r':
        s->view = VIEW_PROCESS;
        s->help = false;
        break;
    case 'k':
    case -KEY_UP:
        if (s->selected > 0)
            choose(s, s->selected - 1);
        break;
    case 'j':
    case -KEY_DOWN:
        choose(s, s->selected + 1);
        break;
    case '+':
        s->interval_s = VV_MIN(s->interval_s * 2, 60.0);
        break;
    case '-':
        s->interval_s = VV_MAX(s->interval_s / 2, 0.1);
        break;
    default:
        break;
    }
    return true;
}

static bool read_keys(struct screen *s)
{
    char buf[64];
    ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        return false; /* no process is left */
    for (size_t at = 0, used; n > 0 && at < (size_t)n; at += used)
        if (!act(s, key_of(buf + at, (size_t)n - at, &used)))
            return false;
    return true;
}

/* ---- the loop ---- */

static void pause_here(struct screen *s, const sigset_t *open)
{
    struct sigaction old, dfl = {.sa_handler = SIG_DFL};
    sigset_t blocked;

    stop_signal = 0;
    leave(s);
    sigaction(SIGTSTP, &dfl, &old);
    raise(SIGTSTP);
    sigprocmask(SIG_SETMASK, open, &blocked); /* the process stops here */
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    sigaction(SIGTSTP, &old, NULL);
    enter(s);
    resized = 1;
}

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT};

static void catch_signals(sigset_t *ret_open)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < VV_ARRAY_SIZE(watched); i++) {
        struct sigaction old;
        sigaction(watched[i], NULL, &old);
        if (old.sa_handler == SIG_IGN)
            continue; /* nohup, or a shell without job control */
        sigaddset(&set, watched[i]);
        sigaction(watched[i], &a, NULL);
    }
    sigprocmask(SIG_BLOCK, &set, ret_open);
}

static void run(struct screen *s, const sigset_t *open)
{
    uint64_t next_ns = 0;
    bool goes_on = true;

    while (goes_on && !end_signal) {
        uint64_t now = vv_now_ns();
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

        if (stop_signal)
            pause_here(s, open);
        if (now >= next_ns) {
            if (top_look(s->pages, NULL) != 0 && !s->pages->trouble[0])
                snprintf(s->pages->trouble, sizeof(s->pages->trouble), "cannot look for pages");
            next_ns = vv_now_ns() + (uint64_t)(s->interval_s * 1e9);
        }
        if (resized || !s->rows) {
            resized = 0;
            measure(&s->rows, &s->columns);
            say("\033[2J");
        }
        draw(s);
        now = vv_now_ns();
        uint64_t wait = next_ns > now ? next_ns - now : 0;
        struct timespec ts = {(time_t)(wait / VV_NS_PER_S), (long)(wait % VV_NS_PER_S)};
        int n = ppoll(&in, 1, &ts, open);
        if (n > 0) {
            goes_on = read_keys(s);
            next_ns = goes_on ? 0 : next_ns;
        } else if (n < 0 && errno != EINTR) {
            goes_on = false;
        }
    }
}

int top_terminal(struct top_pages *pages, double interval_s)
{
    struct screen s = {.pages = pages, .interval_s = interval_s};
    sigset_t open;

    if (tcgetattr(STDIN_FILENO, &s.before))
        return CLI_FAILED;
    catch_signals(&open);
    enter(&s);
    run(&s, &open);
    leave(&s);
    if (end_signal) {
        /* End by the signal itself, so that the parent process sees it. */
        signal(end_signal, SIG_DFL);
        raise(end_signal);
        sigprocmask(SIG_SETMASK, &open, NULL);
    }
    return CLI_OK;
}
