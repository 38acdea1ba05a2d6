/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "t.h"

static char err[512];
static char path[1200];

static const char *ini(const char *text)
{
    FILE *f;

    if (path[0] == '\0')
        snprintf(path, sizeof(path), "%s/varve.conf", t_tmpdir());
    f = fopen(path, "w");
    T_CHECK(f != NULL);
    fputs(text, f);
    T_EQ(fclose(f), 0);
    return path;
}

/* The file is refused with a message that names file, line and reason, and nothing changes. */
static void refuse(const char *text, int line, const char *reason)
{
    struct vv_config cfg, before;
    char want[1400];

    vv_config_init(&cfg);
    before = cfg;
    T_ERR(vv_config_load_ini(&cfg, ini(text), err, sizeof(err)), -EINVAL);
    snprintf(want, sizeof(want), "%s:%d: ", path, line);
    if (strncmp(err, want, strlen(want)) != 0 || !strstr(err, reason))
        t_fail(__FILE__, __LINE__, "\"%s\" does not say line %d and \"%s\"", err, line, reason);
    T_CHECK(memcmp(&cfg, &before, sizeof(cfg)) == 0);
}

static void defaults(void)
{
    struct vv_config cfg;

    vv_config_init(&cfg);
    T_EQ(cfg.device, VV_CONFIG_DEVICE_AUTO);
    T_EQ(cfg.host_cache, UINT64_C(1) << 30);
    T_EQ(cfg.local_cache, 0);
    T_EQ(cfg.page, 0);
    T_EQ(cfg.level, VV_CONFIG_LEVEL_CACHED);
    T_EQ(cfg.policy, VV_CONFIG_POLICY_NEXT);
    T_EQ(cfg.close_timeout_ms, -1);
    T_STREQ(cfg.local, "");
    T_OK(vv_config_check(&cfg, err, sizeof(err)));
}

static void good_file(void)
{
    struct vv_config cfg;

    vv_config_init(&cfg);
    T_OK(vv_config_load_ini(&cfg,
                            ini("# a comment\nhost_cache = 4G\n\n[varve]\ndevice=host ; another\n"
                                "local = /some folder/x\nlocal_io = direct\nlevel=local\n"
                                "policy: score-now\npage = 1M\nrank = 7\ntrace = yes\n"
                                "rate = d2d=4G,h2f=40M\n"),
                            err, sizeof(err)));
    T_EQ(cfg.host_cache, UINT64_C(4) << 30);
    T_EQ(cfg.device, VV_CONFIG_DEVICE_HOST);
    T_STREQ(cfg.local, "/some folder/x");
    T_EQ(cfg.local_io, VV_CONFIG_LOCAL_IO_DIRECT);
    T_EQ(cfg.level, VV_CONFIG_LEVEL_LOCAL);
    T_EQ(cfg.policy, VV_CONFIG_POLICY_SCORE_NOW);
    T_EQ(cfg.page, 1 << 20);
    T_EQ(cfg.rank, 7);
    T_EQ(cfg.trace, 1);
    T_STREQ(cfg.rate, "d2d=4G,h2f=40M");
    T_OK(vv_config_load_ini(&cfg, ini(""), err, sizeof(err)));
    T_EQ(cfg.rank, 7);
    /* Both names of the emulated device. */
    T_OK(vv_config_set(&cfg, "device", "none", err, sizeof(err)));
    T_OK(vv_config_load_ini(&cfg, ini("device = emulated\n"), err, sizeof(err)));
    T_EQ(cfg.device, VV_CONFIG_DEVICE_HOST);
}

static void bad_files(void)
{
    char line[400];

    refuse("host_cache = 4G\nhost_cahce = 4G\n", 2, "unknown key 'host_cahce'");
    refuse("\n\nhost_cache = lots\n", 3, "host_cache: 'lots' is not a size");
    refuse("host_cache =\n", 1, "is not a size");
    refuse("host_cache = -1\n", 1, "is not a size");
    refuse("host_cache = 99999999999G\n", 1, "too large");
    refuse("device = gpu\n", 1, "'gpu' is not one of auto|cuda|host|none");
    refuse("device = auto|cuda\n", 1, "is not one of");
    refuse("page = 100K\n", 1, "power of two");
    refuse("page = 2K\n", 1, "power of two");
    refuse("rank = 1x\n", 1, "not a number");
    refuse("rank = -1\n", 1, "negative");
    refuse("rank = 99999999999\n", 1, "not a number");
    refuse("trace = maybe\n", 1, "neither on nor off");
    refuse("rate = d2x=4G\n", 1, "not a hop");
    refuse("rate = d2d=4G,d2d=5G\n", 1, "twice");
    refuse("rate = d2d=0\n", 1, "not a rate");
    refuse("rate = h2f=40\n", 1, "did you mean 40M?");
    refuse("host_cache = 512\n", 1, "did you mean 512M?");
    refuse("rate = d2d=4G,\n", 1, "last comma");
    refuse("rate = d2d\n", 1, "HOP=RATE");
    refuse("[veloc]\nhost_cache = 4G\n", 2, "unknown section [veloc]");
    refuse("[varve\nhost_cache = 4G\n", 1, "expected");
    refuse("host_cache\n", 1, "expected");
    refuse("rank = 1\nrank = 2\n", 2, "twice");
    refuse("local = a\n  rank = 2\n", 2, "indented");
    /* Longer than the parser's line: refused, not cut. */
    snprintf(line, sizeof(line), "local = %0300d\n", 7);
    {
        struct vv_config cfg;

        vv_config_init(&cfg);
        T_ERR(vv_config_load_ini(&cfg, ini(line), err, sizeof(err)), -EINVAL);
        T_STREQ(cfg.local, "");
    }
}

static void unreadable_files(void)
{
    struct vv_config cfg;

    vv_config_init(&cfg);
    T_ERR(vv_config_load_ini(&cfg, "/nonexistent/varve.conf", err, sizeof(err)), -ENOENT);
    T_CHECK(strstr(err, "/nonexistent/varve.conf: ") == err);
    T_ERR(vv_config_load_ini(&cfg, t_tmpdir(), err, sizeof(err)), -EISDIR);
    T_ERR(vv_config_load_ini(&cfg, NULL, err, sizeof(err)), -EINVAL);
    T_ERR(vv_config_load_ini(&cfg, "/nonexistent/varve.conf", NULL, 0), -ENOENT);
}

static void environment(void)
{
    struct vv_config cfg, before;

    vv_config_init(&cfg);
    T_OK(vv_config_load_ini(&cfg, ini("host_cache = 4G\nrank = 3\n"), err, sizeof(err)));
    setenv("VARVE_HOST_CACHE", "8G", 1);
    setenv("VARVE_LOCAL", "", 1);
    T_OK(vv_config_load_env(&cfg, err, sizeof(err)));
    T_EQ(cfg.host_cache, UINT64_C(8) << 30);
    T_EQ(cfg.rank, 3);
    before = cfg;
    setenv("VARVE_LOCAL_CACHE", "1G", 1);
    setenv("VARVE_POLICY", "best", 1);
    T_ERR(vv_config_load_env(&cfg, err, sizeof(err)), -EINVAL);
    T_CHECK(strstr(err, "VARVE_POLICY") && strstr(err, "'best'"));
    T_CHECK(memcmp(&cfg, &before, sizeof(cfg)) == 0);
    unsetenv("VARVE_HOST_CACHE");
    unsetenv("VARVE_LOCAL");
    unsetenv("VARVE_LOCAL_CACHE");
    unsetenv("VARVE_POLICY");
}

static void file_of_environment(void)
{
    struct vv_config cfg, before;

    setenv("VARVE_CONFIG", ini("host_cache = 4G\nrank = 3\n"), 1);
    setenv("VARVE_HOST_CACHE", "8G", 1);
    T_OK(vv_config_load(&cfg, err, sizeof(err)));
    T_EQ(cfg.host_cache, UINT64_C(8) << 30);
    T_EQ(cfg.rank, 3);
    unsetenv("VARVE_HOST_CACHE");
    before = cfg;
    setenv("VARVE_CONFIG", ini("host_cahce = 4G\n"), 1);
    T_ERR(vv_config_load(&cfg, err, sizeof(err)), -EINVAL);
    T_CHECK(strstr(err, "VARVE_CONFIG: ") == err && strstr(err, ":1: unknown key 'host_cahce'"));
    setenv("VARVE_CONFIG", "/nonexistent/varve.conf", 1);
    T_ERR(vv_config_load(&cfg, err, sizeof(err)), -ENOENT);
    T_CHECK(memcmp(&cfg, &before, sizeof(cfg)) == 0);
    setenv("VARVE_CONFIG", "", 1);
    T_OK(vv_config_load(&cfg, err, sizeof(err)));
    T_EQ(cfg.rank, 0);
    unsetenv("VARVE_CONFIG");
}

/* set reads back the text of get: for the defaults and for a value of every word of every enum. */
static void round_trip(void)
{
    struct vv_config cfg, copy;
    char text[VV_CONFIG_TEXT], again[VV_CONFIG_TEXT];

    vv_config_init(&cfg);
    memset(&copy, 0xa5, sizeof(copy));
    for (size_t i = 0; i < vv_config_key_count; i++) {
        const struct vv_config_key *key = &vv_config_keys[i];

        T_OK(vv_config_get(&cfg, key->name, text, sizeof(text)));
        T_STREQ(text, key->value);
        T_OK(vv_config_set(&copy, key->name, text, err, sizeof(err)));
        if (key->type != VV_CONFIG_TYPE_ENUM)
            continue;
        for (const char *p = key->values; *p;) {
            snprintf(text, sizeof(text), "%.*s", (int)strcspn(p, "|"), p);
            T_OK(vv_config_set(&copy, key->name, text, err, sizeof(err)));
            T_OK(vv_config_get(&copy, key->name, again, sizeof(again)));
            T_STREQ(text, again);
            p += strcspn(p, "|");
            p += *p == '|';
        }
    }
    T_ERR(vv_config_get(&cfg, "nothing", text, sizeof(text)), -EINVAL);
    T_ERR(vv_config_get(&cfg, "device", text, 2), -ENOBUFS);
}

static void set(void)
{
    struct vv_config cfg;
    char long_text[VV_CONFIG_TEXT + 1];

    vv_config_init(&cfg);
    T_ERR(vv_config_set(&cfg, "nothing", "1", err, sizeof(err)), -EINVAL);
    T_STREQ(err, "unknown key 'nothing'");
    T_ERR(vv_config_set(&cfg, "hostCache", "1", err, sizeof(err)), -EINVAL);
    T_STREQ(err, "unknown key 'hostCache'; did you mean 'host_cache'?");
    T_ERR(vv_config_set(&cfg, "locl", "1", err, sizeof(err)), -EINVAL);
    T_STREQ(err, "unknown key 'locl'; did you mean 'local'?");
    T_ERR(vv_config_set(&cfg, "", "1", err, sizeof(err)), -EINVAL);
    T_STREQ(err, "unknown key ''");
    memset(long_text, 'x', sizeof(long_text));
    long_text[VV_CONFIG_TEXT] = 0;
    T_ERR(vv_config_set(&cfg, long_text, "1", err, sizeof(err)), -EINVAL);
    T_ERR(vv_config_set(&cfg, NULL, "1", err, sizeof(err)), -EINVAL);
    T_ERR(vv_config_set(&cfg, "rank", NULL, err, sizeof(err)), -EINVAL);
    memset(long_text, 'x', VV_CONFIG_TEXT);
    long_text[VV_CONFIG_TEXT] = '\0';
    T_ERR(vv_config_set(&cfg, "local", long_text, err, sizeof(err)), -EINVAL);
    long_text[VV_CONFIG_TEXT - 1] = '\0';
    T_OK(vv_config_set(&cfg, "local", long_text, err, sizeof(err)));
    T_STREQ(cfg.local, long_text);
}

static void check(void)
{
    struct vv_config cfg;

    vv_config_init(&cfg);
    cfg.level = VV_CONFIG_LEVEL_LOCAL;
    T_ERR(vv_config_check(&cfg, err, sizeof(err)), -EINVAL);
    snprintf(cfg.local, sizeof(cfg.local), "x");
    T_OK(vv_config_check(&cfg, err, sizeof(err)));
    cfg.level = VV_CONFIG_LEVEL_COMPLETE;
    T_ERR(vv_config_check(&cfg, err, sizeof(err)), -EINVAL);
    snprintf(cfg.remote, sizeof(cfg.remote), "y");
    T_OK(vv_config_check(&cfg, err, sizeof(err)));
    cfg.local_cache = 4096;
    T_ERR(vv_config_check(&cfg, err, sizeof(err)), -EINVAL);
}

static void rates(void)
{
    struct vv_config_rates r;

    T_OK(vv_config_rates_parse("d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=1MiB", err, sizeof(err), &r));
    T_EQ(r.d2d, 4000000000);
    T_EQ(r.d2h, 400000000);
    T_EQ(r.f2h, 1 << 20);
    T_EQ(r.r2f, 0);
    T_OK(vv_config_rates_parse("", err, sizeof(err), &r));
    T_EQ(r.d2d, 0);
    r.d2d = 5;
    T_ERR(vv_config_rates_parse("d2d=1G,", err, sizeof(err), &r), -EINVAL);
    T_ERR(vv_config_rates_parse("=1G", err, sizeof(err), &r), -EINVAL);
    T_ERR(vv_config_rates_parse(",", err, sizeof(err), &r), -EINVAL);
    T_EQ(r.d2d, 5);
}

static void names(void)
{
    char text[VV_CONFIG_NAME];

    T_CHECK(vv_config_find_flag("--host-cache=4G") == vv_config_find_flag("--host-cache"));
    T_STREQ(vv_config_find_flag("--host-cache")->name, "host_cache");
    T_CHECK(vv_config_find_flag("--host-cach") == NULL);
    T_CHECK(vv_config_find_flag("--local")->offset == offsetof(struct vv_config, local));
    T_STREQ(vv_config_env_name(vv_config_find_flag("--local-io"), text, sizeof(text)),
            "VARVE_LOCAL_IO");
    T_STREQ(vv_config_flag_name(vv_config_find_flag("--local-io"), text, sizeof(text)),
            "--local-io");
}

int main(void)
{
    T_RUN(defaults);
    T_RUN(good_file);
    T_RUN(bad_files);
    T_RUN(unreadable_files);
    T_RUN(environment);
    T_RUN(file_of_environment);
    T_RUN(round_trip);
    T_RUN(set);
    T_RUN(check);
    T_RUN(rates);
    T_RUN(names);
    return t_done();
}
