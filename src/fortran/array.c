/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address and size of a Fortran variable of any type, kind and rank, from the descriptor that the
 * compiler passes for it. Compiled with the header of that compiler, whose descriptor it is.
 */
#include <ISO_Fortran_binding.h>
#include <errno.h>

#include <varve/ckpt.h>

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x);

int varve_protect_array(struct varve_history *h, int region, CFI_cdesc_t *x)
{
    size_t bytes = x->elem_len;
    for (CFI_rank_t i = 0; i < x->rank; i++)
        bytes *= x->dim[i].extent > 0 ? (size_t)x->dim[i].extent : 0;
    /* An array of size 0 is an empty region; one that is not allocated is a mistake. */
    if (!x->base_addr || (bytes > 0 && x->rank > 0 && !CFI_is_contiguous(x)))
        return -EINVAL;
    return varve_protect(h, region, x->base_addr, bytes);
}
