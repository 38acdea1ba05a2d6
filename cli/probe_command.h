/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve probe`: shared by measuring (probe_command.c), the rows (probe_report.c) and the settings
 * (probe_config.c).
 */
#ifndef CLI_PROBE_H
#define CLI_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/config.h"
#include "base/util.h"

#define PROBE_COMMAND "varve probe"

enum probe_unit { PROBE_RATE, PROBE_TIME };

/* The meaning of a row for the settings: see probe_explain. */
enum probe_note {
    PROBE_NOTE_NONE,
    PROBE_NOTE_COPY,
    PROBE_NOTE_DOWN,
    PROBE_NOTE_UP,
    PROBE_NOTE_PAGEABLE,
    PROBE_NOTE_PIN,
    PROBE_NOTE_WORST,
    PROBE_NOTE_TOUCH,
    PROBE_NOTE_THREADS, /* more of them gain little */
    PROBE_NOTE_DEPTH,   /* the same */
    PROBE_NOTE_CACHED,
    PROBE_NOTE_SYNC,
    PROBE_NOTE_REFUSED,
    PROBE_NOTE_THROUGH, /* between device and disk, through host memory */
    PROBE_NOTE_PAST,    /* the same with GPUDirect Storage */
};

/* One measurement. */
struct probe_row {
    /* A hop by its name in varve_stats; link: both directions; otherwise pin, touch or sync. */
    const char *hop;
    char what[64];
    enum probe_unit unit;
    double value; /* bytes per second, or seconds */
    int rc;       /* negative: it could not be measured */
    enum probe_note note;
    char so[160]; /* the meaning for the settings, or why it could not be measured */
};

#define PROBE_ROWS_MAX 128

/* The input of the settings. A rate of 0 was not measured. */
struct probe_facts {
    const char *device; /* "cuda", "host", "none" */
    char device_name[64];
    uint64_t device_free_bytes, device_total_bytes;
    uint64_t memory_bytes, memory_available_bytes;
    char folder[VV_CONFIG_TEXT]; /* empty: no disk */
    uint64_t copy_bytes;         /* of one copy on the device */
    unsigned cores;
    bool direct_refused;       /* by the file system */
    double direct_write_bps;   /* at the best depth */
    double buffered_write_bps; /* in the long run, at the best depth */
    /* Between device and disk, down and up: through host memory, and past it. */
    double through_bps[2], past_bps[2];
    char no_gds[160]; /* the reason why it could not be measured */
};

struct probe_rows {
    struct probe_row row[PROBE_ROWS_MAX];
    size_t nr;
};

/* The memory of the machine, and the part that this process could still take. */
void probe_memory(uint64_t *ret_bytes, uint64_t *ret_available_bytes);

/* Settings that suit the machine. */
void probe_settle(const struct probe_facts *facts, struct vv_config *ret_cfg);

/* The settings as an INI file, with the rows as comments. The caller frees the text. -ENOMEM. */
VV_WARN_UNUSED int probe_config_text(const struct probe_facts *facts, const struct probe_rows *rows,
                                     const struct vv_config *cfg, char **ret_text);

/* 0 if --write may go ahead, before anything is measured; -EEXIST, or the error of the check. */
VV_WARN_UNUSED int probe_config_check(const char *path, bool force);

/* Writes the file beside its place, reads it back as varve_opts_load would, and renames it. No file is left behind
 * if it fails or the process is interrupted. -EEXIST: there is a file and `force` is not set; -EINVAL: a value
 * cannot be written into an INI file, with a line in `err`. */
VV_WARN_UNUSED int probe_config_write(const char *path, const char *text,
                                      const struct vv_config *cfg, bool force, char *err,
                                      size_t err_size);

/* The keys of the written file, in its order; the last is NULL. */
extern const char *const probe_config_keys[];

/* True if the key is written. */
bool probe_config_applies(const char *key, const struct vv_config *cfg);

/* Fills in the meaning of the rows for the settings. */
void probe_explain(const struct probe_facts *facts, const struct vv_config *cfg,
                   struct probe_rows *rows);

void probe_print_text(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg);
void probe_print_json(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg, const char *written, double seconds);

#endif
