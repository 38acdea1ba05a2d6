/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address and size of a Fortran variable of any type, kind and rank, from the descriptor that the
 * compiler passes for it. Compiled with the header of that compiler, whose descriptor it is.
 */
#include <ISO_Fortran_binding.h>

#include <varve/ckpt.h>

/* 0, an error of varve_protect, or what it is that varve.f90 finds the words for. */
enum { NOT_ALLOCATED = 1, NOT_CONTIGUOUS = 2 };

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x);

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x)
{
    size_t bytes = x->elem_len;
    /* An array of size 0 is an empty region; one that is not allocated is a mistake. */
    if (!x->base_addr)
        return NOT_ALLOCATED;
    for (CFI_rank_t i = 0; i < x->rank; i++)
        bytes *= x->dim[i].extent > 0 ? (size_t)x->dim[i].extent : 0;
    if (bytes > 0 && x->rank > 0 && !CFI_is_contiguous(x))
        return NOT_CONTIGUOUS;
    return varve_protect(h, region, x->base_addr, bytes);
}
