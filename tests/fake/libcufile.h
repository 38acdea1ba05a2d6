/* SPDX-License-Identifier: Apache-2.0 */
/* Control of the stand-in for libcufile by tests. The library exports `struct fake_cufile *fake_cufile(void)`. Its
 * own lock protects all fields; tests access them only while no call is active. */
#ifndef FAKE_LIBCUFILE_H
#define FAKE_LIBCUFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_cufile {
    /* Knobs: the library's error codes, 0: none. */
    int driver_open_code, handle_code, buf_code;
    /* The nth next transfer (1: the next one) fails or is corrupted; 0: none. */
    unsigned fail_nth;
    int fail_errno;     /* returned as -1 and errno, or */
    int fail_code;      /* as a negative code of the library */
    unsigned spoil_nth; /* flips a bit of the bytes read */
    size_t short_bytes; /* no transfer moves more than this; 0: all of it */
    /* Translates a device pointer to an address; NULL: they are equal. */
    void *(*map)(void *arg, void *ptr);
    void *map_arg;

    /* Counters. */
    int drivers, handles, bufs; /* open and not closed */
    uint64_t reads, writes, read_bytes, written_bytes;
    unsigned misuse; /* calls that the real library would refuse, or that would crash it */
    char what[128];  /* the first of them */
};

typedef struct fake_cufile *fake_cufile_fn(void);

#endif
