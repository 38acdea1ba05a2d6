/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares our declarations of the driver API with cuda.h, if a toolkit was found: values, layouts and the types of all
 * functions, at compile time. Running it tests nothing more.
 */
#include "t.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#include "device/cuda/driver.h"

#define X(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
VVI_CUDA_CONSTANTS(X)
#undef X

#define X(name, code, err, lost) \
    _Static_assert((int)VVI_CU_##name == (int)CUDA_ERROR_##name, "CUDA_ERROR_" #name);
VVI_CUDA_ERRORS(X)
#undef X
_Static_assert((int)VVI_CU_SUCCESS == (int)CUDA_SUCCESS, "success");

#define SAME_MEMBER(ours, our_member, theirs, their_member)                                    \
    _Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&             \
                       sizeof(((ours *)0)->our_member) == sizeof(((theirs *)0)->their_member), \
                   #their_member)

_Static_assert(sizeof(struct vvi_cu_location) == sizeof(CUmemLocation), "CUmemLocation");
SAME_MEMBER(struct vvi_cu_location, type, CUmemLocation, type);
SAME_MEMBER(struct vvi_cu_location, id, CUmemLocation, id);

_Static_assert(sizeof(struct vvi_cu_copy_attributes) == sizeof(CUmemcpyAttributes),
               "CUmemcpyAttributes");
SAME_MEMBER(struct vvi_cu_copy_attributes, src_access_order, CUmemcpyAttributes, srcAccessOrder);
SAME_MEMBER(struct vvi_cu_copy_attributes, src_hint, CUmemcpyAttributes, srcLocHint);
SAME_MEMBER(struct vvi_cu_copy_attributes, dst_hint, CUmemcpyAttributes, dstLocHint);
SAME_MEMBER(struct vvi_cu_copy_attributes, flags, CUmemcpyAttributes, flags);

/* The structures are known to be equal now. With one name for both, the functions that take them can be compared
 * too. */
#define vvi_cu_location        CUmemLocation_st
#define vvi_cu_copy_attributes CUmemcpyAttributes_st

/* cuda.h defines functions with versions as macros, so `name` is the function of the toolkit's API
 * version. */
#define SAME_TYPE(type, params, text) \
    _Static_assert(_Generic((type)0, unsigned int(*) params : 1, default : 0), text)

#define X(need, name, symbol, since, params) SAME_TYPE(__typeof__(&name), params, symbol);
VVI_CUDA_FUNCTIONS(X)
#undef X

#define X(name, base, symbol, since, params) SAME_TYPE(PFN_##name, params, symbol);
VVI_CUDA_OLD_FUNCTIONS(X)
#undef X

static void declarations_match(void)
{
    t_note("cuda.h of CUDA %d.%d", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}

int main(void)
{
    T_RUN(declarations_match);
    return t_done();
}

#else

int main(void)
{
    T_SKIP("no cuda.h of CUDA 13.0 or newer");
}

#endif
