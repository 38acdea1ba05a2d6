/* SPDX-License-Identifier: Apache-2.0 */
/* MPI as a transport for partner copies. Private to libvarve-mpi. */
#ifndef VV_MPI_TRANSPORT_H
#define VV_MPI_TRANSPORT_H

#include <mpi.h>

#include <varve/transport.h>

/* Collective. The transport makes its own communicators; its `close`, also collective, ends it. */
int vvi_mpi_transport(MPI_Comm comm, struct varve_transport *ret_transport);

#endif
