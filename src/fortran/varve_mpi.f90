! SPDX-License-Identifier: Apache-2.0
!
! Varve for the processes of an MPI job (varve/mpi.h): their collective calls.
!
!     use mpi_f08
!     use varve
!     use varve_mpi
!
!     call varve_open_mpi(MPI_COMM_WORLD%MPI_VAL, ctx, opts)      ! with `use mpi`: MPI_COMM_WORLD
!     call h%open(ctx, 'state')
!     call h%protect(0, field)
!     call varve_latest_mpi(MPI_COMM_WORLD%MPI_VAL, h, step, found)
!     if (found) call varve_restore_mpi(MPI_COMM_WORLD%MPI_VAL, h, step)
!     ...
!     call varve_close_mpi(MPI_COMM_WORLD%MPI_VAL, ctx)
!
! Collective: all processes of the communicator make these calls, in the same order, and get the same stat. Each process
! makes checkpoints, waits and all other calls of module varve for itself.
!
! Communicators are integer handles, as in `use mpi` and mpif.h, so that this module works with every MPI: a module of an
! MPI works only with one compiler and that MPI.
!
! Errors are handled as in module varve: by stat and errmsg, or without stat by ending the program, on all processes.
module varve_mpi
    use, intrinsic :: iso_c_binding
    use varve
    implicit none
    private
    public :: varve_open_mpi, varve_close_mpi, varve_latest_mpi, varve_restore_mpi

    interface
        integer(c_int) function c_open(comm, opts, ctx) bind(c, name='varve_open_mpi_f')
            import
            integer(c_int), value :: comm
            type(c_ptr), value :: opts, ctx
        end function
        integer(c_int) function c_close(comm, ctx) bind(c, name='varve_close_mpi_f')
            import
            integer(c_int), value :: comm
            type(c_ptr), value :: ctx
        end function
        integer(c_int) function c_latest(comm, h, version) bind(c, name='varve_latest_mpi_f')
            import
            integer(c_int), value :: comm
            type(c_ptr), value :: h
            integer(c_int64_t), intent(inout) :: version
        end function
        integer(c_int) function c_restore(comm, h, version) bind(c, name='varve_restore_mpi_f')
            import
            integer(c_int), value :: comm
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
        end function
    end interface

contains

    ! Opens a context on every process, with its rank in the communicator as its rank. Without options: the defaults,
    ! including the environment. If any process fails, all fail. varve_einval: also if the context of some process is
    ! already open.
    subroutine varve_open_mpi(comm, ctx, opts, stat, errmsg)
        integer, intent(in) :: comm
        type(varve_context), intent(inout) :: ctx
        type(varve_options), intent(inout), target, optional :: opts
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(c_ptr) :: c, place
        type(c_ptr), target :: handle
        integer(c_int) :: rc
        c = c_null_ptr
        if (present(opts)) c = opts%handle()
        handle = c_null_ptr
        ! Make the call even if this process cannot store a context, because the others wait for it.
        place = c_null_ptr
        if (.not. ctx%is_open()) place = c_loc(handle)
        rc = c_open(int(comm, c_int), c, place)
        if (rc == 0) call ctx%adopt(handle)
        call varve_finish(c_null_ptr, 'open', rc, stat, errmsg)
    end subroutine

    ! Closes the contexts and their histories; stat 0: all versions of every process have reached the level of the context.
    ! The context is closed in any case.
    subroutine varve_close_mpi(comm, ctx, stat, errmsg)
        integer, intent(in) :: comm
        type(varve_context), intent(inout) :: ctx
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = c_close(int(comm, c_int), ctx%handle())
        call ctx%closed()
        call varve_finish(c_null_ptr, 'close', rc, stat, errmsg)
    end subroutine

    ! The newest version that all processes have, written by the same run. No version is not an error: found is false.
    ! Checkpoints overwrite newer versions that some process has from earlier runs.
    subroutine varve_latest_mpi(comm, h, version, found, stat, errmsg)
        integer, intent(in) :: comm
        type(varve_history), intent(in) :: h
        integer(varve_version), intent(inout) :: version
        logical, intent(out) :: found
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = c_latest(int(comm, c_int), h%handle(), version)
        found = rc == 0
        if (rc == varve_enoent) rc = 0
        call varve_finish(h%context_handle(), 'latest', rc, stat, errmsg)
    end subroutine

    ! Restores a version on every process. If any process fails, all fail, and the content of the regions is undefined.
    subroutine varve_restore_mpi(comm, h, version, stat, errmsg)
        integer, intent(in) :: comm
        type(varve_history), intent(in) :: h
        integer(varve_version), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(h%context_handle(), 'restore', c_restore(int(comm, c_int), h%handle(), version), stat, errmsg)
    end subroutine
end module
