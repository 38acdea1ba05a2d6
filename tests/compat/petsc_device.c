/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A type of vectors for PETSc, `device`, whose bytes are handed out in memory of a CUDA device, as those of a
 * PETSc built for CUDA are: a plug-in, for the stand-in of the driver, whose memory the processor
 * cannot read. PETSc itself computes on the host. DEVICE_OTHER in the environment says that the
 * memory is that of another kind of device. The file `taken` has the number of times at the end.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <petsc/private/vecimpl.h>

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*current)(void *context);
    int (*alloc)(uint64_t *ptr, size_t bytes);
    int (*free)(uint64_t ptr);
    int (*up)(uint64_t to, const void *from, size_t bytes);
    int (*down)(void *to, uint64_t from, size_t bytes);
} driver;
static PetscMemType kind = PETSC_MEMTYPE_CUDA;
static long taken;

static PetscErrorCode take_to_write(Vec v, PetscScalar **ret_array, PetscMemType *ret_kind)
{
    uint64_t p;

    PetscFunctionBeginUser;
    PetscCheck(driver.alloc(&p, (size_t)v->map->n * sizeof(**ret_array)) == 0, PETSC_COMM_SELF,
               PETSC_ERR_GPU, "cuMemAlloc");
    *ret_array = (PetscScalar *)(uintptr_t)p;
    *ret_kind = kind;
    taken++;
    PetscFunctionReturn(0);
}

static PetscErrorCode take_to_read(Vec v, const PetscScalar **ret_array, PetscMemType *ret_kind)
{
    const PetscScalar *host;

    PetscFunctionBeginUser;
    PetscCall(take_to_write(v, (PetscScalar **)ret_array, ret_kind));
    PetscCall(VecGetArrayRead(v, &host));
    PetscCheck(driver.up((uintptr_t)*ret_array, host, (size_t)v->map->n * sizeof(*host)) == 0,
               PETSC_COMM_SELF, PETSC_ERR_GPU, "cuMemcpyHtoD");
    PetscCall(VecRestoreArrayRead(v, &host));
    PetscFunctionReturn(0);
}

static PetscErrorCode end_read(Vec v, const PetscScalar **array)
{
    PetscFunctionBeginUser;
    (void)v;
    PetscCheck(driver.free((uintptr_t)*array) == 0, PETSC_COMM_SELF, PETSC_ERR_GPU, "cuMemFree");
    PetscFunctionReturn(0);
}

static PetscErrorCode end_write(Vec v, PetscScalar **array, PetscMemType *unused)
{
    PetscScalar *host;

    PetscFunctionBeginUser;
    (void)unused;
    PetscCall(VecGetArrayWrite(v, &host));
    PetscCheck(driver.down(host, (uintptr_t)*array, (size_t)v->map->n * sizeof(*host)) == 0,
               PETSC_COMM_SELF, PETSC_ERR_GPU, "cuMemcpyDtoH");
    PetscCall(VecRestoreArrayWrite(v, &host));
    PetscCall(end_read(v, (const PetscScalar **)array));
    PetscFunctionReturn(0);
}

static PetscErrorCode create(Vec v)
{
    PetscErrorCode (*sequential)(Vec);

    PetscFunctionBeginUser;
    PetscCall(PetscFunctionListFind(VecList, VECSEQ, &sequential));
    PetscCall((*sequential)(v));
    PetscCall(PetscObjectChangeTypeName((PetscObject)v, "device"));
    v->ops->getarrayreadandmemtype = take_to_read;
    v->ops->restorearrayreadandmemtype = end_read;
    v->ops->getarraywriteandmemtype = take_to_write;
    v->ops->restorearraywriteandmemtype = end_write;
    PetscFunctionReturn(0);
}

static void report(void)
{
    FILE *f = fopen("taken", "w");

    if (!f)
        return;
    fprintf(f, "%ld\n", taken);
    fclose(f);
}

PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_device(void);

PetscErrorCode PetscDLLibraryRegister_device(void)
{
    const struct {
        const char *name;
        void *member;
    } wanted[] = {
        {"cuInit", &driver.init},
        {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuCtxSetCurrent", &driver.current},
        {"cuMemAlloc_v2", &driver.alloc},
        {"cuMemFree_v2", &driver.free},
        {"cuMemcpyHtoD_v2", &driver.up},
        {"cuMemcpyDtoH_v2", &driver.down},
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;

    PetscFunctionBeginUser;
    PetscCheck(lib, PETSC_COMM_SELF, PETSC_ERR_GPU, "%s", dlerror());
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *fn = dlsym(lib, wanted[i].name);
        PetscCheck(fn, PETSC_COMM_SELF, PETSC_ERR_GPU, "no %s", wanted[i].name);
        memcpy(wanted[i].member, &fn, sizeof(fn));
    }
    PetscCheck(!driver.init(0) && !driver.retain(&context, 0) && !driver.current(context),
               PETSC_COMM_SELF, PETSC_ERR_GPU, "no device");
    if (getenv("DEVICE_OTHER"))
        kind = PETSC_MEMTYPE_HIP;
    PetscCall(VecRegister("device", create));
    atexit(report);
    PetscFunctionReturn(0);
}
