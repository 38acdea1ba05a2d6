/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"
#include "unit/ckpt/ck.h"

struct gpu_driver cu;

static void (*wanted)(void);

/* Runs `fn` in a child and returns its status. The child ends as programs do, with its exit handlers. */
static int in_child(void (*fn)(void))
{
    int status;
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        fn();
        exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        t_fail(__FILE__, __LINE__, "the case died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void try_init(void)
{
    int rc = cu.init(0);
    if (rc)
        t_note("cuInit: %d", rc);
    exit(rc ? 77 : 0);
}

void gpu_need(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *fn;
    if (!lib)
        T_SKIP("no NVIDIA driver: %s", dlerror());
#define X(member, symbol, params)                      \
    fn = dlsym(lib, symbol);                           \
    if (!fn)                                           \
        T_SKIP("the NVIDIA driver has no %s", symbol); \
    memcpy(&cu.member, &fn, sizeof(fn));
    GPU_FUNCTIONS(X)
#undef X
    T_EQ(setenv("VARVE_TEST_DEVICE", "cuda", 1), 0);
    ck_any_device();
    if (in_child(try_init) != 0)
        T_SKIP("the NVIDIA driver cannot be used");
}

void gpu_run_users(struct varve_ctx *ctx, void *(*fn)(void *))
{
    struct gpu_user u[GPU_USERS];
    pthread_t thread[GPU_USERS];
    void *primary;
    CU(retain(&primary, 0));
    for (int i = 0; i < GPU_USERS; i++) {
        u[i] = (struct gpu_user){ctx, primary, i};
        T_EQ(pthread_create(&thread[i], NULL, fn, &u[i]), 0);
    }
    for (int i = 0; i < GPU_USERS; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
}

static void init_and_run(void)
{
    CU(init(0));
    wanted();
}

static void run_wanted(void)
{
    int status = in_child(init_and_run);
    if (status)
        t_fail(__FILE__, __LINE__, "the case ended with status %d", status);
}

void gpu_run(const char *name, void (*fn)(void))
{
    wanted = fn;
    t_run(name, run_wanted);
}
