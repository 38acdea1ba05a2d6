/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of the processes of a job in one file, by MPI-IO.
 *
 * The file has the elements of process 0, those of process 1, and so on, and nothing else: the elements of a process
 * begin at the sum of the sizes before it. Invariant: every process makes the same collective calls, as many as the
 * longest vector needs; an error or a missing file on one process is reduced before any process acts on it.
 *
 * A file is written under a temporary name. When all processes have written and synced their parts, one process renames
 * it, so that readers only see whole files.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <varve/mpi.h>

/* Bytes in one MPI call, which counts in int. */
#define PART ((uint64_t)1 << 29)

#define SUFFIX ".part"

/* Place of a process's elements, and the number of calls that every process makes. */
struct place {
    uint64_t offset, bytes, total, calls;
};

static int of_mpi(int code)
{
    int class = MPI_SUCCESS;
    if (code == MPI_SUCCESS)
        return 0;
    if (MPI_Error_class(code, &class) != MPI_SUCCESS)
        return -EIO;
    switch (class) {
    case MPI_ERR_NO_SUCH_FILE:
    case MPI_ERR_BAD_FILE:
        return -ENOENT;
    case MPI_ERR_ACCESS:
    case MPI_ERR_READ_ONLY:
        return -EACCES;
    case MPI_ERR_NO_SPACE:
        return -ENOSPC;
    case MPI_ERR_QUOTA:
        return -EDQUOT;
    case MPI_ERR_COMM:
        return -EINVAL;
    default:
        return -EIO;
    }
}

/* The least (most negative) of all results. */
static int all_of(MPI_Comm comm, int rc)
{
    int worst = 0;
    return MPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS ? worst : -ECOMM;
}

static int place_of(MPI_Comm comm, const struct varve_vector *v, struct place *ret)
{
    uint64_t bytes = (uint64_t)v->size * v->elem_bytes, before = 0, most = 0, total = 0;
    int rank = 0;
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS ||
        MPI_Exscan(&bytes, &before, 1, MPI_UINT64_T, MPI_SUM, comm) != MPI_SUCCESS ||
        MPI_Allreduce(&bytes, &total, 1, MPI_UINT64_T, MPI_SUM, comm) != MPI_SUCCESS ||
        MPI_Allreduce(&bytes, &most, 1, MPI_UINT64_T, MPI_MAX, comm) != MPI_SUCCESS)
        return -ECOMM;
    /* On the first process the result of MPI_Exscan is undefined. */
    *ret = (struct place){rank == 0 ? 0 : before, bytes, total, (most + PART - 1) / PART};
    return 0;
}

/* Reads or writes the part of each process. Returns the first error, but makes all calls, because the other processes
 * wait in them. */
static int transfer(MPI_File f, const struct place *p, char *data, bool write)
{
    int rc = 0;
    for (uint64_t i = 0; i < p->calls; i++) {
        uint64_t at = i * PART < p->bytes ? i * PART : p->bytes;
        int n = (int)(p->bytes - at < PART ? p->bytes - at : PART), got = 0;
        MPI_Offset where = (MPI_Offset)(p->offset + at);
        MPI_Status status;
        int code = write ? MPI_File_write_at_all(f, where, data + at, n, MPI_BYTE, &status)
                         : MPI_File_read_at_all(f, where, data + at, n, MPI_BYTE, &status);
        int bad = of_mpi(code);
        if (bad == 0 && (MPI_Get_count(&status, MPI_BYTE, &got) != MPI_SUCCESS || got != n))
            bad = -EIO;
        rc = rc ? rc : bad;
    }
    return rc;
}

static int check(MPI_Comm comm, const struct varve_vector *v, const char *path, char *beside)
{
    bool good = v && path && path[0] && strlen(path) + sizeof(SUFFIX) <= PATH_MAX;
    if (good)
        snprintf(beside, PATH_MAX, "%s" SUFFIX, path);
    return all_of(comm, good ? 0 : -EINVAL);
}

/* Renames the file and syncs its folder. Called by one process. */
static int publish(const char *beside, const char *path)
{
    char folder[PATH_MAX];
    int fd = open(beside, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0)
        rc = -errno;
    close(fd);
    if (rc == 0 && rename(beside, path) < 0)
        rc = -errno;
    if (rc)
        return rc;
    snprintf(folder, sizeof(folder), "%s", path);
    fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* Some file systems cannot sync a folder, and need not. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        rc = -errno;
    close(fd);
    return rc;
}

int varve_vector_export_mpi(MPI_Comm comm, const struct varve_vector *v, const char *path)
{
    char beside[PATH_MAX];
    struct place place;
    MPI_File f;
    int rank = 0, rc = check(comm, v, path, beside);
    if (rc == 0)
        rc = all_of(comm, place_of(comm, v, &place));
    if (rc)
        return rc;
    rc = all_of(comm, of_mpi(MPI_File_open(comm, beside, MPI_MODE_CREATE | MPI_MODE_WRONLY,
                                           MPI_INFO_NULL, &f)));
    if (rc)
        return rc;
    rc = of_mpi(MPI_File_set_size(f, (MPI_Offset)place.total));
    rc = all_of(comm, rc);
    if (rc == 0)
        rc = transfer(f, &place, v->data, true);
    int synced = of_mpi(MPI_File_sync(f)), closed = of_mpi(MPI_File_close(&f));
    rc = all_of(comm, rc ? rc : synced ? synced : closed);
    MPI_Comm_rank(comm, &rank);
    if (rank == 0 && rc == 0)
        rc = publish(beside, path);
    else if (rank == 0)
        unlink(beside);
    return all_of(comm, rc);
}

int varve_vector_import_mpi(MPI_Comm comm, struct varve_vector *v, const char *path)
{
    char beside[PATH_MAX];
    struct place place;
    MPI_Offset size = 0;
    MPI_File f;
    int rc = check(comm, v, path, beside);
    if (rc == 0)
        rc = all_of(comm, place_of(comm, v, &place));
    if (rc)
        return rc;
    /* MPI implementations report a missing file in different ways; access() is clear. */
    rc = all_of(comm, access(path, R_OK) < 0 ? -errno : 0);
    if (rc == 0)
        rc = all_of(comm, of_mpi(MPI_File_open(comm, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f)));
    if (rc)
        return rc;
    rc = of_mpi(MPI_File_get_size(f, &size));
    if (rc == 0 && (uint64_t)size != place.total)
        rc = -EMSGSIZE;
    rc = all_of(comm, rc);
    if (rc == 0)
        rc = transfer(f, &place, v->data, false);
    int closed = of_mpi(MPI_File_close(&f));
    return all_of(comm, rc ? rc : closed);
}
