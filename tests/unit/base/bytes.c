/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include "t.h"

static void sizes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"17B", 17},
        {"4k", 4096},
        {"512M", UINT64_C(512) << 20},
        {"4G", UINT64_C(4) << 30},
        {"1.5GiB", UINT64_C(3) << 29},
        {"1.5 gib", UINT64_C(3) << 29},
        {"400MB", 400000000},
        {"2T", UINT64_C(2) << 40},
        {" 8M", UINT64_C(8) << 20},
        {".5K", 512},
        {"0.0009765625K", 1},
        {"18446744073709551615", UINT64_MAX},
        {"15E", UINT64_C(15) << 60},
    };
    static const char *const bad[] = {"",    " ",    "-1",  "+1",  "M",    ".",   "12X",   "1KiBB",
                                      "1 2", "0x10", "1e3", "1Ki", "1K B", "ten", "1.5.2", "%"};
    static const char *const large[] = {"18446744073709551616", "16E", "99999999999999999999999",
                                        "18446744073709551615.5K"};
    uint64_t v;

    for (size_t i = 0; i < VV_ARRAY_SIZE(good); i++) {
        T_OK(vv_bytes_parse(good[i].text, &v));
        T_EQ(v, good[i].bytes);
    }
    v = 7;
    for (size_t i = 0; i < VV_ARRAY_SIZE(bad); i++)
        T_ERR(vv_bytes_parse(bad[i], &v), -EINVAL);
    for (size_t i = 0; i < VV_ARRAY_SIZE(large); i++)
        T_ERR(vv_bytes_parse(large[i], &v), -ERANGE);
    T_ERR(vv_bytes_parse(NULL, &v), -EINVAL);
    T_EQ(v, 7); /* outputs change only on success */
}

static void rates(void)
{
    uint64_t v;

    T_OK(vv_rate_parse("400M", &v));
    T_EQ(v, 400000000);
    T_OK(vv_rate_parse("400MiB", &v));
    T_EQ(v, 400 << 20);
    T_OK(vv_rate_parse("4GB", &v));
    T_EQ(v, 4000000000);
}

static void formats(void)
{
    struct t_rng rng = {t_seed()};
    char text[VV_BYTES_TEXT];

    T_STREQ(vv_bytes_format(0, text, sizeof(text)), "0");
    T_STREQ(vv_bytes_format(1000, text, sizeof(text)), "1000");
    T_STREQ(vv_bytes_format(UINT64_C(3) << 29, text, sizeof(text)), "1536M");
    T_STREQ(vv_bytes_human(999, text, sizeof(text)), "999 B");
    T_STREQ(vv_bytes_human(1000, text, sizeof(text)), "0.98 KiB");
    T_STREQ(vv_bytes_human(UINT64_C(3) << 29, text, sizeof(text)), "1.50 GiB");
    T_STREQ(vv_bytes_human(UINT64_MAX, text, sizeof(text)), "16.0 EiB");
    for (int i = 0; i < 10000; i++) {
        uint64_t in = t_rng_u64(&rng) >> t_rng_below(&rng, 64) << t_rng_below(&rng, 30), out;

        T_OK(vv_bytes_parse(vv_bytes_format(in, text, sizeof(text)), &out));
        T_EQ(in, out);
    }
}

int main(void)
{
    T_RUN(sizes);
    T_RUN(rates);
    T_RUN(formats);
    return t_done();
}
