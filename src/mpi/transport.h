/* SPDX-License-Identifier: Apache-2.0 */
/* MPI as a transport for partner copies. Inside libvarve-mpi. */
#ifndef VV_MPI_TRANSPORT_H
#define VV_MPI_TRANSPORT_H

#include <mpi.h>

#include <varve/transport.h>

/* Collective. The transport has communicators of its own and is ended by its `close`, which is
 * collective too. */
int vvi_mpi_transport(MPI_Comm comm, struct varve_transport *ret_transport);

#endif
