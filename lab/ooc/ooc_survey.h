/* SPDX-License-Identifier: Apache-2.0 */
/* The survey of lab/ooc/ooc.h: shared by its files. */
#ifndef LAB_OOC_OOC_SURVEY_H
#define LAB_OOC_OOC_SURVEY_H

#include "lab/ooc/ooc.h"
#include "lab/ooc/survey.h"

struct vv_device;

enum ooc_survey_way {
    OOC_RESIDENT,
    OOC_FLAT,
    OOC_CHUNKED,
    OOC_PAPER,
    OOC_DOUBLE,
    OOC_ZERO_COPY,
    OOC_UVM,
    OOC_SURVEY_WAYS
};

enum { OOC_SURVEY_SAMPLES = 4096 };

/* Copies on the device. */
enum { OOC_ON_FIRST, OOC_ON_USES, OOC_ON_BYTES, OOC_ON_OFFSETS, OOC_ON_SUMS, OOC_ON };

struct ooc_job {
    const struct ooc_survey_opts *o;
    const struct ooc_launcher *launcher;
    struct varve_ctx *ctx;
    struct vv_device *device;
    struct survey s;
    bool made;
    unsigned char *memory; /* of all tables */
    void *shared;          /* their address for kernels; NULL: kernels cannot read them */
    bool registered;       /* once for all ways, because that takes long */
    uint64_t *offsets;     /* of each in it */
    uint64_t *expected, *got, *host_sums;
    struct ooc_survey_args args;
    double taken; /* of the device's memory, before the cache of the present way */
    uint64_t cache_bytes;
    void *on[OOC_ON];
    char *err;
};

/* Before a way: sets sums to 0. After it: compares them with the expected ones. */
int ooc_survey_clear(struct ooc_job *j);
int ooc_survey_compare(struct ooc_job *j, struct ooc_way *way);

/* ---- ooc_plain.c: ways without the library ---- */

int ooc_survey_double(struct ooc_job *j, uint64_t cache_bytes, struct ooc_way *way);
/* Kernels read host memory, or managed memory. */
int ooc_survey_direct(struct ooc_job *j, bool managed, struct ooc_way *way);

#endif
