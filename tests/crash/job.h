/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes, killed or troubled again and again, and started anew each time.
 *
 * Every life of the job looks at what is there, goes on from the newest version that has reached the
 * level, and writes a few more; the bytes tell version, rank and life. One rank, or all of them, may meet
 * with trouble in a life. Whatever happens, in the next one:
 *   - every version that was reported at the level is there, in the life that it was reported in, with the
 *     right bytes: on the rank that was told, and at level complete on all ranks;
 *   - nothing else is there but what the rank, at level complete all ranks, had begun to write in one and
 *     the same life;
 *   - no call needs its time limit, but waits for ranks that are gone.
 * Version numbers are the same in many lives: nothing of two lives is ever mixed.
 *
 * Level local: the ranks share one folder. Levels remote and complete: they share the remote folder, and
 * each has a local one, as on nodes of their own, or none.
 */
#ifndef CRASH_JOB_H
#define CRASH_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum { JOB_PAGE = 4096, JOB_BYTES = 2 * JOB_PAGE + 100 };
enum { JOB_RANKS = 64, JOB_VERSIONS = 40, JOB_LIVES = 512, JOB_PER_LIFE = 2 };

enum job_trouble {
    JOB_NONE,
    JOB_KILL,     /* the victim dies before a numbered system call */
    JOB_KILL_ALL, /* all ranks die, so many microseconds after the first has begun to live */
    JOB_ONCE,     /* a numbered system call of the victim fails */
    JOB_FOR_EVER, /* and all of them from there on */
    JOB_SHORT,    /* the victim's reads and writes come in pieces */
};

struct job_fault {
    enum job_trouble trouble;
    int victim;
    long at;
    int err;
};

struct job {
    int level, ranks;
    bool local;
    uint64_t keep; /* retention; 0: all. What it gives up may be there or not */
    const char *remote, *folder[JOB_RANKS];
    /* Only look. What is damaged then: this version of this rank may be missing, or fail; 0: nothing is. */
    bool only_look;
    uint64_t damaged_version;
    int damaged_rank;
    uint64_t life;
    /* By version and rank: the life that was reported at the level; 0: none. And when this life began. */
    uint64_t reported[JOB_VERSIONS][JOB_RANKS], before[JOB_VERSIONS][JOB_RANKS];
    /* By version and rank: the lives in which it was begun, a bit each. */
    uint8_t begun[JOB_VERSIONS][JOB_RANKS][JOB_LIVES / 8];
    /* Of the current life: what each rank found, whether it could look at all, the calls it made. */
    uint64_t found[JOB_VERSIONS][JOB_RANKS], latest[JOB_RANKS];
    bool looked[JOB_RANKS];
    long steps[JOB_RANKS];
    /* Of all lives. */
    uint64_t told, gave_up, failures;
};

/* A job that has not lived yet, in fresh folders. `local`: with local folders, at levels above that. */
void job_init(struct job *j, int level, int ranks, bool local);
/* Are its tables too full for a few more lives? */
bool job_is_full(const struct job *j);
/* The ranks go to other nodes, where nothing local is. */
void job_move(struct job *j);
/* One life. Returns whether somebody was killed. Fails the test if what the ranks found is wrong. */
bool job_live(struct job *j, const struct job_fault *fault);
/* A life without trouble, at the end of which all ranks have found the same where they should. */
void job_live_on(struct job *j);

#endif
