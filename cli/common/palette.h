/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The colours of all pictures: reports, exported timelines, charts and the drawings of the documentation. One
 * thing has one colour in all pictures. Colours side by side can be distinguished by people who do not see all
 * colours, on white and on black.
 *
 * page.css, trace_page.js and docs/img/ repeat these; tests/lint/colours.sh compares.
 */
#ifndef CLI_COMMON_PALETTE_H
#define CLI_COMMON_PALETTE_H

/* Activities of threads and movers. */
#define COLOUR_COMPUTE "#009e73"
#define COLOUR_PHASE   "#a9b4c0" /* of the application; also the time outside of all phases */
#define COLOUR_WRITE   "#e69f00" /* the application waits in a checkpoint */
#define COLOUR_READ    "#d55e00" /* in a restore */
#define COLOUR_WAIT    "#cc79a7" /* for a level, a flush, the end */
#define COLOUR_DOWN    "#0072b2" /* away from the application */
#define COLOUR_UP      "#56b4e9" /* towards it */
#define COLOUR_OTHER   "#8b7fc7" /* a commit, a removal */
#define COLOUR_FAILED  "#ff00aa"

/* Phases of computing, each with a colour of its own: the same green, lighter or darker. */
#define COLOUR_COMPUTE_2 "#7fceb9"
#define COLOUR_COMPUTE_3 "#00543d"
#define COLOUR_COMPUTE_4 "#b2e1d5"
#define COLOUR_COMPUTE_5 "#2f8f76"
#define COLOUR_COMPUTE_6 "#4db698"

/* Bytes in a tier, and its capacity. */
#define COLOUR_HELD  "#6c8ebf"
#define COLOUR_LIMIT "#8b949e"

/* The reason why a call was blocked, in the order of speed. */
#define COLOUR_BY_COPY   "#f0e442"
#define COLOUR_BY_LINK   "#c9a92c"
#define COLOUR_BY_DISK   "#8c6d1f"
#define COLOUR_BY_REMOTE "#4d3a00"
#define COLOUR_BY_ELSE   "#8b949e"

/* Paper, text and lines. */
#define COLOUR_PAPER "#ffffff"
#define COLOUR_TEXT  "#24292f"
#define COLOUR_MUTED "#57606a"
#define COLOUR_CARD  "#f6f8fa"
#define COLOUR_LINE  "#d0d7de"
#define COLOUR_FAINT "#eaeef2"
#define COLOUR_BAD   "#cf222e"
#define COLOUR_GOOD  "#116329"
#define COLOUR_LINK  "#0550ae"
#define COLOUR_TIP   "#1f2328"
#define COLOUR_MARK  "#000000"

/* The same on black. */
#define COLOUR_PAPER_DARK "#0d1117"
#define COLOUR_TEXT_DARK  "#d0d7de"
#define COLOUR_MUTED_DARK "#9ea7b3"
#define COLOUR_CARD_DARK  "#161b22"
#define COLOUR_LINE_DARK  "#30363d"
#define COLOUR_FAINT_DARK "#21262d"
#define COLOUR_BAD_DARK   "#ff7b72"
#define COLOUR_GOOD_DARK  "#56d364"
#define COLOUR_LINK_DARK  "#79c0ff"

#endif
