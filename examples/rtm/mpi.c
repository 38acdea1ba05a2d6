/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve-rtm-mpi: the same with shots distributed over the ranks of MPI. Rank r computes shots r, r + ranks, and
 * so on; rank 0 adds all images in the order of the shots, like a single process, so that the
 * result does not depend on the number of ranks.
 */
#include <errno.h>

#include <mpi.h>

#include "rtm.h"

enum { CHUNK = 1 << 26 }; /* floats in a message */

static int ranks, rank;

static int exchange(bool send, int other, int shot, long points, float *values)
{
    int rc = MPI_SUCCESS;

    for (long at = 0; at < points && rc == MPI_SUCCESS; at += CHUNK) {
        int count = (int)(points - at < CHUNK ? points - at : CHUNK);

        rc = send ? MPI_Send(values + at, count, MPI_FLOAT, other, shot, MPI_COMM_WORLD)
                  : MPI_Recv(values + at, count, MPI_FLOAT, other, shot, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    }
    return rc == MPI_SUCCESS ? 0 : rtm_error(-EIO, "MPI cannot move an image");
}

static int sum(int shot, long points, float *image, float *light, float *sum_image,
               float *sum_light)
{
    int owner = shot % ranks, rc = 0;

    if (rank != 0 && rank != owner)
        return 0;
    if (owner != 0) {
        rc = exchange(rank != 0, rank ? 0 : owner, shot, points, image);
        if (rc == 0)
            rc = exchange(rank != 0, rank ? 0 : owner, shot, points, light);
    }
    for (long i = 0; i < points && rank == 0 && rc == 0; i++) {
        sum_image[i] += image[i];
        sum_light[i] += light[i];
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct rtm_part part = {.sum = sum};
    int status;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    part.rank = rank;
    part.ranks = ranks;
    status = rtm_main(argc, argv, &part);
    /* Without an abort, the other ranks would wait for the images of this rank. */
    if (status != 0)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return status;
}
