! SPDX-License-Identifier: Apache-2.0
! The module varve_mpi on several processes. Run as
!
!     fortran_mpi FOLDER LIFE
!
! once for each life of the job, in the order of this file: each finds what the ones before have left.
module checks
    use, intrinsic :: iso_c_binding, only: c_size_t
    use mpi_f08
    use varve
    use varve_mpi
    implicit none
    integer :: rank
    type(MPI_Comm) :: comm
    character(len=1024) :: folder
    type(varve_context) :: ctx
    type(varve_history) :: h
    integer, target :: field(5000)
contains
    subroutine check(ok, what)
        logical, intent(in) :: ok
        character(len=*), intent(in) :: what
        if (ok) return
        print '(a, i0, 2a)', 'failed on ', rank, ': ', what
        error stop 1
    end subroutine

    subroutine begin(level, overwrite)
        character(len=*), intent(in) :: level
        logical, intent(in), optional :: overwrite
        type(varve_options) :: opts
        call opts%set('level', level)
        call opts%set('host_cache', '8M')
        call opts%set('local', trim(folder)//'/'//level)
        if (level == 'complete') call opts%set('remote', trim(folder)//'/remote')
        call varve_open_mpi(comm%MPI_VAL, ctx, opts)
        call h%open(ctx, 'state', overwrite=overwrite)
        call h%protect(0, field)
    end subroutine

    subroutine done()
        call varve_close_mpi(comm%MPI_VAL, ctx)
        call check(.not. ctx%is_open(), 'closed')
    end subroutine

    subroutine write_version(v, life)
        integer(varve_version), intent(in) :: v
        integer, intent(in) :: life
        field = int(v)*1000 + life*100 + rank
        call h%checkpoint(v)
    end subroutine

    subroutine goes_on_from(want, life)
        integer(varve_version), intent(in) :: want
        integer, intent(in) :: life
        integer(varve_version) :: v
        logical :: found
        call varve_latest_mpi(comm%MPI_VAL, h, v, found)
        call check(found .and. v == want, 'the version to go on from')
        field = 0
        call varve_restore_mpi(comm%MPI_VAL, h, v)
        call check(all(field == int(want)*1000 + life*100 + rank), 'what was restored')
    end subroutine

    ! Rank 1 gets no further than version 2.
    subroutine first()
        integer(varve_version) :: v
        logical :: found
        call begin('local')
        v = 77
        call varve_latest_mpi(comm%MPI_VAL, h, v, found)
        call check(.not. found .and. v == 77, 'nothing yet')
        do v = 1, 4
            if (rank /= 1 .or. v <= 2) call write_version(v, 1)
        end do
        call done()
    end subroutine

    subroutine second()
        call begin('local')
        call goes_on_from(2_varve_version, 1)
        call write_version(3_varve_version, 2)
        call done()
    end subroutine

    subroutine third()
        call begin('local')
        call goes_on_from(3_varve_version, 2)
        call done()
    end subroutine

    subroutine errors()
        type(varve_options) :: opts
        integer :: stat
        logical :: found
        integer(varve_version) :: v
        character(len=256) :: why
        if (rank == 1) call opts%set('level', 'local') ! and no folder
        why = ''
        call varve_open_mpi(comm%MPI_VAL, ctx, opts, stat=stat, errmsg=why)
        call check(stat == varve_einval .and. .not. ctx%is_open(), 'one process fails')
        call check(index(why, 'folder') > 0 .and. (index(why, 'process 1: ') == 1 .neqv. rank == 1), 'why it fails')
        call begin('local')
        call varve_open_mpi(comm%MPI_VAL, ctx, stat=stat)
        call check(stat == varve_einval .and. ctx%is_open(), 'opened twice')
        v = 4 ! of the first life, and not on rank 1
        why = 'as it was'
        call varve_restore_mpi(comm%MPI_VAL, h, v, stat=stat, errmsg=why)
        call check(stat == varve_enoent .and. index(why, 'process 1: ') == merge(0, 1, rank == 1), 'no such version on one')
        call varve_latest_mpi(comm%MPI_VAL, h, v, found, stat=stat, errmsg=why)
        call check(stat == 0 .and. found .and. v == 3, 'nothing is broken by that')
        call done()
    end subroutine

    subroutine complete()
        call begin('complete')
        call write_version(1_varve_version, 1)
        call h%wait(1_varve_version, varve_level_complete, timeout_ms=60000)
        call done()
    end subroutine

    subroutine again()
        call begin('complete', overwrite=.true.)
        call goes_on_from(1_varve_version, 1)
        call write_version(1_varve_version, 2)
        call h%wait(1_varve_version, varve_level_complete, timeout_ms=60000)
        call goes_on_from(1_varve_version, 2)
        call done()
    end subroutine

    ! Every other process has no elements, in two lives.
    subroutine empty()
        integer, allocatable, target :: some(:)
        integer(c_size_t) :: bytes
        integer :: life
        allocate (some(merge(0, 7, mod(rank, 2) == 0)))
        do life = 1, 2
            call begin('complete')
            call h%protect(1, some)
            if (life == 1) then
                some = rank + 5
                call write_version(10_varve_version, 1)
                call h%wait(10_varve_version, varve_level_complete, timeout_ms=60000)
            end if
            some = 0
            call goes_on_from(10_varve_version, 1)
            call check(all(some == rank + 5), 'what some have')
            call h%region_size(10_varve_version, 1, bytes)
            call check(bytes == 4*size(some), 'how much they have')
            call h%close()
            call done()
        end do
    end subroutine
end module

program fortran_mpi
    use checks
    character(len=32) :: life
    call get_command_argument(1, folder)
    call get_command_argument(2, life)
    call MPI_Init()
    ! One of the application's own, with the processes the other way round.
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, comm)
    call MPI_Comm_rank(comm, rank)
    select case (life)
    case ('first'); call first()
    case ('second'); call second()
    case ('third'); call third()
    case ('errors'); call errors()
    case ('complete'); call complete()
    case ('again'); call again()
    case ('empty'); call empty()
    case default; call check(.false., 'a life')
    end select
    if (rank == 0) print '(a)', 'ok'
    call MPI_Comm_free(comm)
    call MPI_Finalize()
end program
