/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of VELOC's interface, for veloc.h and veloc.hpp. */
#ifndef VELOC_DEFS_H
#define VELOC_DEFS_H

#ifndef VELOC_SUCCESS
#define VELOC_SUCCESS (0)
#endif
#ifndef VELOC_FAILURE
#define VELOC_FAILURE (-1)
#endif

/* Size of the buffers for a path from VELOC_Route_file and for the text of VELOC_Get_trf_metrics. */
#define VELOC_MAX_NAME (1024)

#define VELOC_RECOVER_ALL  (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

#define VELOC_CKPT_ALL  (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

/* Types of observers of veloc.hpp. */
#define VELOC_OBSERVE_CKPT_END (0)

#endif
