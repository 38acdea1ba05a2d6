/* SPDX-License-Identifier: Apache-2.0 */
/* VELOC's interface on memory of a GPU, over the stand-in driver: a configuration file of the prefetching
 * extension, hints, restarts in reverse, and a file that VELOC wrote. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <veloc.h>

#include "device/cuda/driver.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { BYTES = 300 * 1024 + 8, STEPS = 24 };

#define V_OK(expr)   T_EQ(expr, VELOC_SUCCESS)
#define V_FAIL(expr) T_EQ(expr, VELOC_FAILURE)

static struct t_fake fake;
static struct vvi_cuda_driver app; /* the application's calls */
static const char *folder;
static CUdeviceptr gpu;
static char *mem; /* where the test can look at it */
static int step;

static void load(void)
{
    char why[256] = "";
    unsigned int code;
    void *handle;
    CUcontext cuda;
    /* From now on the name libcuda.so.1 means the stand-in. */
    T_CHECK(t_fake_load(t_fake_path(false), &handle, &fake));
    T_OK(vvi_cuda_driver_load(NULL, why, sizeof(why), &code, &app));
    T_EQ(app.cuInit(0), 0);
    T_EQ(app.cuDevicePrimaryCtxRetain(&cuda, 0), 0);
    T_EQ(app.cuCtxPushCurrent(cuda), 0);
    T_EQ(app.cuMemAlloc(&gpu, BYTES), 0);
    mem = fake.map((void *)gpu);
    T_CHECK(mem != NULL);
}

static const char *ini(void)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/veloc.cfg", folder);
    FILE *f = fopen(path, "w");
    T_CHECK(f != NULL);
    /* 2 MiB on the GPU, 3 on the host: most of the versions are on disk only. */
    fprintf(f,
            "persistent= %s/persistent\nscratch= %s/scratch/\npersistent_interval= 100000\n"
            "mode = async\ngpu_cache_size=0.001953125\nhost_cache_size=0.0029296875\n"
            "score_eviction=true\npremature_eviction=false\nthreaded=true\n[varve]\npage = 64K\n",
            folder, folder);
    T_OK(fclose(f));
    return path;
}

static void test_backwards(void)
{
    char text[VELOC_MAX_NAME];
    folder = t_tmpdir();
    V_OK(VELOC_Init_single(0, ini()));
    V_OK(VELOC_Mem_protect(0, (void *)gpu, BYTES, 1));
    V_OK(VELOC_Mem_protect(1, &step, 1, sizeof(step)));
    for (int v = STEPS; v-- > 0;)
        V_OK(VELOC_Prefetch_enqueue("shot", v));
    for (int v = 0; v < STEPS; v++) {
        ck_fill(mem, BYTES, (uint64_t)v, 0);
        step = v;
        V_OK(VELOC_Checkpoint("shot", v));
    }
    V_OK(VELOC_Checkpoint_wait());
    V_OK(VELOC_Prefetch_start());
    /* It is the next one; while the cache was full of versions to be written, it may have been evicted. */
    while (!VELOC_Next_prefetched("shot", STEPS - 1, 0))
        usleep(1000);
    for (int v = STEPS; v-- > 0;) {
        memset(mem, 0, BYTES);
        V_OK(VELOC_Restart("shot", v));
        ck_check(mem, BYTES, (uint64_t)v, 0);
        T_EQ(step, v);
    }
    VELOC_Get_trf_metrics(text);
    T_CHECK(!strstr(text, "AtoD_DtoA : 0,") && !strstr(text, "HtoF : 0,"));
    V_OK(VELOC_Finalize(1));
    V_OK(VELOC_Init_single(0, ini()));
    V_OK(VELOC_Mem_protect(0, (void *)gpu, BYTES, 1));
    V_OK(VELOC_Mem_protect(1, &step, 1, sizeof(step)));
    T_EQ(VELOC_Restart_test("shot", 0), STEPS - 1);
    memset(mem, 0, BYTES);
    V_OK(VELOC_Restart("shot", STEPS - 1));
    ck_check(mem, BYTES, STEPS - 1, 0);
    V_OK(VELOC_Finalize(0));
}

static void test_legacy(void)
{
    size_t n = 1, bytes = BYTES, head = sizeof(n) + sizeof(int) + sizeof(bytes);
    int id = 0;
    char path[600], *all = malloc(head + BYTES);
    folder = t_tmpdir();
    memcpy(all, &n, sizeof(n));
    memcpy(all + sizeof(n), &id, sizeof(id));
    memcpy(all + sizeof(n) + sizeof(id), &bytes, sizeof(bytes));
    ck_fill(all + head, BYTES, 77, 0);
    snprintf(path, sizeof(path), "%s/scratch", folder);
    T_OK(mkdir(path, 0777));
    snprintf(path, sizeof(path), "%s/scratch/old-0-5.dat", folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    T_EQ(write(fd, all, head + BYTES), head + BYTES);
    close(fd);
    free(all);
    V_OK(VELOC_Init_single(0, ini()));
    V_OK(VELOC_Mem_protect(0, (void *)gpu, BYTES, 1));
    T_EQ(VELOC_Restart_test("old", 0), 5);
    memset(mem, 0, BYTES);
    V_OK(VELOC_Restart("old", 5));
    ck_check(mem, BYTES, 77, 0);
    V_OK(VELOC_Finalize(0));
}

int main(void)
{
    load();
    T_RUN(test_backwards);
    T_RUN(test_legacy);
    vvi_cuda_driver_unload(&app);
    return t_done();
}
