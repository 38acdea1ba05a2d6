/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of the processes of a job, combined element by element.
 *
 * Invariant: types, sizes and roots, which may differ between processes, are compared first by a reduction, so that
 * either all processes reduce the elements or none. MPI counts in int, so a long vector is reduced in parts, the same on
 * every process. Nothing is allocated: the reduction is in place.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <varve/mpi.h>

/* Elements in one MPI call: they fit an int, and are so many that the cost of calls does not matter. */
#define PART ((size_t)1 << 28)

struct comm {
    MPI_Comm comm; /* the application's */
};

int varve_vector_set_comm_mpi(struct varve_vector *v, MPI_Comm comm)
{
    if (!v)
        return -EINVAL;
    struct comm *c = NULL;
    if (comm != MPI_COMM_NULL) {
        c = malloc(sizeof(*c));
        if (!c)
            return -ENOMEM;
        c->comm = comm;
    }
    return varve_vector_attach(v, c, free);
}

/* Returns 0 on all processes if they may continue, or the same error on all. */
static int agree(MPI_Comm comm, const struct varve_vector *v, MPI_Datatype type, int root)
{
    int bytes = 0, ranks = 0, bad = 0;
    /* An invalid type fails only on this process; the reduction below passes it to the others. */
    if (type == MPI_DATATYPE_NULL || MPI_Type_size(type, &bytes) != MPI_SUCCESS ||
        (size_t)bytes != v->elem_bytes)
        bad = 1;
    if (MPI_Comm_size(comm, &ranks) != MPI_SUCCESS || root >= ranks)
        bad = 1;
    /* The greatest of x is the complement of the least of ~x. */
    uint64_t mine[] = {(uint64_t)!bad, v->size, ~(uint64_t)v->size, (uint64_t)root,
                       ~(uint64_t)root};
    uint64_t least[5] = {0};
    if (MPI_Allreduce(mine, least, 5, MPI_UINT64_T, MPI_MIN, comm) != MPI_SUCCESS)
        return -ECOMM;
    if (!least[0] || least[3] != ~least[4])
        return -EINVAL;
    return least[1] == ~least[2] ? 0 : -EMSGSIZE;
}

/* `root` negative: all. */
static int reduce(struct varve_vector *v, MPI_Datatype type, MPI_Op op, int root)
{
    const struct comm *c = varve_vector_attached(v);
    if (!c)
        return -EINVAL;
    int rank = 0, rc = agree(c->comm, v, type, root < 0 ? -1 : root);
    if (rc)
        return rc;
    MPI_Comm_rank(c->comm, &rank);
    for (size_t at = 0; at < v->size && rc == 0; at += PART) {
        char *part = (char *)v->data + at * v->elem_bytes;
        int n = (int)(v->size - at < PART ? v->size - at : PART), mpi;
        if (root < 0)
            mpi = MPI_Allreduce(MPI_IN_PLACE, part, n, type, op, c->comm);
        else if (rank == root)
            mpi = MPI_Reduce(MPI_IN_PLACE, part, n, type, op, root, c->comm);
        else
            mpi = MPI_Reduce(part, NULL, n, type, op, root, c->comm);
        rc = mpi == MPI_SUCCESS ? 0 : -ECOMM;
    }
    return rc;
}

int varve_vector_reduce_mpi(struct varve_vector *v, MPI_Datatype type, MPI_Op op, int root)
{
    /* An invalid root is passed to the others as a rank that does not exist. */
    return reduce(v, type, op, root < 0 ? INT32_MAX : root);
}

int varve_vector_all_reduce_mpi(struct varve_vector *v, MPI_Datatype type, MPI_Op op)
{
    return reduce(v, type, op, -1);
}
