/* SPDX-License-Identifier: Apache-2.0 */
/* The topology differs between machines: check what holds on every machine. */
#include <errno.h>
#include <sys/mman.h>

#include "base/topo.h"
#include "t.h"

static void numbers_agree(void)
{
    struct vv_topo topo;

    vv_topo_get(&topo);
    T_CHECK(topo.nodes >= 1 && topo.cores >= 1 && topo.cores <= topo.threads);
    T_EQ(topo.threads, vv_topo_threads());
}

/* Memory can be used whether it could be placed near a device or not; devices that are not there
 * are an error only where there is a choice. */
static void placing_is_harmless(void)
{
    static const char *const devices[] = {"0000:00:00.0", "ffff:ff:1f.7", "no device"};
    size_t bytes = 1 << 20;
    struct vv_topo topo;

    vv_topo_get(&topo);
    for (size_t i = 0; i < VV_ARRAY_SIZE(devices); i++) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        T_CHECK(p != MAP_FAILED);
        int rc = vv_topo_bind_near(p, bytes, devices[i]);
        T_CHECK(rc <= 0);
        if (topo.nodes == 1)
            T_OK(rc);
        else if (i > 0)
            T_EQ(rc, -ENOENT);
        memset(p, 1, bytes);
        T_EQ(munmap(p, bytes), 0);
    }
}

int main(void)
{
    T_RUN(numbers_agree);
    T_RUN(placing_is_harmless);
    return t_done();
}
