/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes that is killed or disturbed and started again, many times.
 *
 * Every life of the job checks the versions that exist, continues from the newest one that has reached the level, and
 * writes a few more; the bytes contain version, rank and life. In a life, one rank or all of them may be disturbed.
 * Whatever happens, in the next life:
 *   - every version that was reported at the level exists, from the life that reported it, with the right bytes: on the
 *     rank that got the report, and at level complete on all ranks;
 *   - no other version exists, except those that the rank, at level complete all ranks, had begun to write in one and
 *     the same life;
 *   - no call needs its time limit, except waits for ranks that have died.
 * Version numbers repeat in many lives: the files of two lives are never mixed.
 *
 * Level local: the ranks share one folder. Levels remote and complete: they share the remote folder, and each has a
 * local one, as on a node of its own, or none.
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
    JOB_KILL_ALL, /* all ranks die, this many microseconds after the first has started */
    JOB_ONCE,     /* a numbered system call of the victim fails */
    JOB_FOR_EVER, /* that call and all later ones fail */
    JOB_SHORT,    /* reads and writes of the victim are short */
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
    uint64_t keep; /* retention; 0: all. An expired version may exist or not */
    const char *remote, *folder[JOB_RANKS];
    /* Only check. This version of this rank is damaged, and may be missing or fail; 0: none. */
    bool only_look;
    uint64_t damaged_version;
    int damaged_rank;
    uint64_t life;
    /* By version and rank: the life that was reported at the level; 0: none. `before`: at the begin of this life. */
    uint64_t reported[JOB_VERSIONS][JOB_RANKS], before[JOB_VERSIONS][JOB_RANKS];
    /* By version and rank: the lives in which it was begun, a bit each. */
    uint8_t begun[JOB_VERSIONS][JOB_RANKS][JOB_LIVES / 8];
    /* The current life: the versions that each rank found, whether it could check at all, its calls. */
    uint64_t found[JOB_VERSIONS][JOB_RANKS], latest[JOB_RANKS];
    bool looked[JOB_RANKS];
    long steps[JOB_RANKS];
    /* All lives. */
    uint64_t reports, gave_up, failures;
};

/* A new job, in fresh folders. `local`: with local folders, at levels above local. */
void job_init(struct job *j, int level, int ranks, bool local);
/* True if its tables have no room for a few more lives. */
bool job_is_full(const struct job *j);
/* Moves the ranks to other nodes, with empty local folders. */
void job_move(struct job *j);
/* Runs one life. Returns true if a rank was killed. Fails the test if the ranks found wrong versions. */
bool job_live(struct job *j, const struct job_fault *fault);
/* Runs a life without trouble, at the end of which all ranks have found the same versions where they should. */
void job_live_on(struct job *j);

#endif
