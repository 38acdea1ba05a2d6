/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: defaults, then an INI file, then the environment; a later source overrides an
 * earlier one. The keys are in config_table.h. A vv_config is plain data without pointers; it
 * belongs to the caller and may be copied.
 *
 * Functions that read text take `err`, a buffer of `err_size` bytes for a message that says what is
 * wrong (either may be 0). When they fail, the configuration is unchanged.
 */
#ifndef VV_BASE_CONFIG_H
#define VV_BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* The values have the order of the words in config_table.h. */
enum vv_config_device {
    VV_CONFIG_DEVICE_AUTO,
    VV_CONFIG_DEVICE_CUDA,
    VV_CONFIG_DEVICE_HOST,
    VV_CONFIG_DEVICE_NONE
};
enum vv_config_local_io {
    VV_CONFIG_LOCAL_IO_AUTO,
    VV_CONFIG_LOCAL_IO_DIRECT,
    VV_CONFIG_LOCAL_IO_BUFFERED
};
enum vv_config_level {
    VV_CONFIG_LEVEL_CACHED,
    VV_CONFIG_LEVEL_LOCAL,
    VV_CONFIG_LEVEL_REMOTE,
    VV_CONFIG_LEVEL_COMPLETE
};
enum vv_config_policy {
    VV_CONFIG_POLICY_NEXT,
    VV_CONFIG_POLICY_SCORE,
    VV_CONFIG_POLICY_SCORE_NOW,
    VV_CONFIG_POLICY_FIFO,
    VV_CONFIG_POLICY_LRU
};

enum vv_config_local_sync { VV_CONFIG_LOCAL_SYNC_COMMIT, VV_CONFIG_LOCAL_SYNC_OFF };
enum vv_config_spill { VV_CONFIG_SPILL_SHARED, VV_CONFIG_SPILL_RECORD };

enum { VV_CONFIG_TEXT = 1024 };

#define VV_CONFIG_PAGE_MAX (UINT64_C(64) << 20)
/* Bytes per second. A smaller rate is taken for a number without its unit. */
#define VV_CONFIG_RATE_MIN UINT64_C(1000)

/* X(name, description): the hops of the `rate` key. */
#define VV_CONFIG_HOPS(X)        \
    X(d2d, "within the device")  \
    X(h2h, "within host memory") \
    X(d2h, "device to host")     \
    X(h2d, "host to device")     \
    X(h2f, "host to file")       \
    X(f2h, "file to host")       \
    X(f2r, "file to remote")     \
    X(r2f, "remote to file")

/* Bytes per second; 0: no limit. */
struct vv_config_rates {
#define X(name, text) uint64_t name;
    VV_CONFIG_HOPS(X)
#undef X
};

struct vv_config {
    int device;   /* enum vv_config_device */
    int local_io; /* enum vv_config_local_io */
    int level;    /* enum vv_config_level */
    int policy;   /* enum vv_config_policy */
    int rank;
    int trace; /* 0 or 1 */
    int close_timeout_ms;
    int device_id; /* -1: chosen at opening */
    int gds;       /* 0 or 1 */
    int ranks;
    int partner; /* 0 or 1 */
    int partner_timeout_ms;
    int parity_set;
    char parity[VV_CONFIG_TEXT]; /* off, xor, rs:K */
    int helpers;                 /* -1: chosen by the number of processors */
    int helper_nice;
    int helper_process; /* 0 or 1 */
    int spill;          /* enum vv_config_spill */
    int local_sync;     /* enum vv_config_local_sync */
    uint64_t device_cache, host_cache;
    uint64_t local_cache; /* 0: no limit */
    uint64_t page;
    uint64_t local_rate, remote_rate; /* bytes/s; 0: no limit */
    char local[VV_CONFIG_TEXT];
    char remote[VV_CONFIG_TEXT];
    char stats[VV_CONFIG_TEXT]; /* "auto", "off" or a folder */
    char metrics[VV_CONFIG_TEXT];
    char run[VV_CONFIG_TEXT];
    char node[VV_CONFIG_TEXT];
    char rate[VV_CONFIG_TEXT]; /* as given; vv_config_rates_parse reads it */
    char trace_file[VV_CONFIG_TEXT];
    char helper_cores[VV_CONFIG_TEXT]; /* "auto", "none" or a list */
    char rank_cores[VV_CONFIG_TEXT];
    char helper_name[VV_CONFIG_TEXT];
    char helper_program[VV_CONFIG_TEXT];
};

/* The defaults, without file and environment. */
void vv_config_init(struct vv_config *cfg);

/* Texts call the device `host` "emulated", so both words are accepted for a device. Returns the word of the
 * table for `word`, or `word` itself. */
const char *vv_config_device_word(const char *word);

/* Sets one value by its key. -EINVAL: unknown key, or a malformed value. */
VV_WARN_UNUSED int vv_config_set(struct vv_config *cfg, const char *key, const char *value,
                                 char *err, size_t err_size);

/* Keys are in section [varve] or in none. -EINVAL: unknown section or key, key set twice,
 * malformed line or value; the message begins with "path:line: ". Other errors are those of opening
 * and reading the file. */
VV_WARN_UNUSED int vv_config_load_ini(struct vv_config *cfg, const char *path, char *err,
                                      size_t err_size);

/* The variable that names a file of settings. */
#define VV_CONFIG_FILE_ENV "VARVE_CONFIG"

/* Sets the defaults, then reads the file that VARVE_CONFIG names, if it is set, then the environment.
 * Errors are those of vv_config_load_ini and vv_config_load_env; the message begins with the file or the
 * variable. */
VV_WARN_UNUSED int vv_config_load(struct vv_config *cfg, char *err, size_t err_size);

/* Reads VARVE_<KEY> for every key; an empty variable counts as unset. -EINVAL: malformed value. */
VV_WARN_UNUSED int vv_config_load_env(struct vv_config *cfg, char *err, size_t err_size);

/* Checks the combination of values: level `local` requires a folder, and so on. -EINVAL. */
VV_WARN_UNUSED int vv_config_check(const struct vv_config *cfg, char *err, size_t err_size);

/* The text of a value; vv_config_set reads it back. -EINVAL: unknown key; -ENOBUFS: it does not fit. */
VV_WARN_UNUSED int vv_config_get(const struct vv_config *cfg, const char *key, char *buf,
                                 size_t size);

/* Parses "d2d=4G,h2f=40M". -EINVAL: unknown hop, hop given twice, rate missing, 0 or below
 * VV_CONFIG_RATE_MIN. */
VV_WARN_UNUSED int vv_config_rates_parse(const char *text, char *err, size_t err_size,
                                         struct vv_config_rates *ret_rates);

enum vv_config_type {
    VV_CONFIG_TYPE_BYTES,
    VV_CONFIG_TYPE_INT,
    VV_CONFIG_TYPE_BOOL,
    VV_CONFIG_TYPE_TEXT,
    VV_CONFIG_TYPE_ENUM
};

struct vv_config_key {
    const char *name; /* "host_cache" */
    enum vv_config_type type;
    size_t offset;      /* in struct vv_config */
    const char *value;  /* the default */
    const char *values; /* as in config_table.h */
    const char *text;
};

extern const struct vv_config_key vv_config_keys[];
extern const size_t vv_config_key_count;

/* Enough for the variable or flag of any key. */
#define VV_CONFIG_NAME 48

/* "VARVE_HOST_CACHE" and "--host-cache"; both return buf. */
char *vv_config_env_name(const struct vv_config_key *key, char *buf, size_t size);
char *vv_config_flag_name(const struct vv_config_key *key, char *buf, size_t size);

/* The key that "--host-cache" or "--host-cache=4G" names, or NULL. */
const struct vv_config_key *vv_config_find_flag(const char *arg);

#endif
