/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address and size of a Fortran variable of any type, kind and rank, from the descriptor that the compiler passes for it.
 * The descriptor depends on the compiler, so this file is compiled with the header of that compiler.
 */
#include <ISO_Fortran_binding.h>

#include <varve/ckpt.h>

/* Results beside 0 and the errors of varve_protect; varve.f90 has their texts. */
enum { NOT_ALLOCATED = 1, NOT_CONTIGUOUS = 2 };

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x);

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x)
{
    size_t bytes = x->elem_len;
    /* An array of size 0 is an empty region; an array that is not allocated is an error. */
    if (!x->base_addr)
        return NOT_ALLOCATED;
    for (CFI_rank_t i = 0; i < x->rank; i++)
        bytes *= x->dim[i].extent > 0 ? (size_t)x->dim[i].extent : 0;
    if (bytes > 0 && x->rank > 0 && !CFI_is_contiguous(x))
        return NOT_CONTIGUOUS;
    return varve_protect(h, region, x->base_addr, bytes);
}
