! SPDX-License-Identifier: Apache-2.0
!
! Heat in a rod, on the processes of an MPI job that continues after a kill: heat_mpi.c in Fortran. Each of the two programs
! can continue from the checkpoints of the other.
!
!     mpifort heat_mpi.f90 $(pkg-config --cflags --libs varve-fortran-mpi) -o heat_mpi
!     mpirun -n 4 ./heat_mpi /local/me /shared/me 700   # the last process ends at step 700, as if it had been killed
!     mpirun -n 4 ./heat_mpi /local/me /shared/me       # finds the latest checkpoint, and finishes
program heat_mpi
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi_f08
    use varve
    use varve_mpi
    implicit none
    integer, parameter :: steps = 2000, every = 50, cells = 1000
    type(varve_options) :: opts
    type(varve_context) :: ctx
    type(varve_history) :: h
    real(8), target :: now(0:cells + 1) = 0 ! own cells, and one cell of each neighbour
    real(8) :: next(cells), heat
    integer(varve_version) :: step = 0
    integer :: rank, ranks, left, right, stop_at = -1
    logical :: found
    character(len=1024) :: arg

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    right = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
    if (command_argument_count() < 2) then
        if (rank == 0) write (error_unit, '(a)') 'usage: heat_mpi LOCAL SHARED [STEP]'
        call MPI_Finalize()
        stop 2, quiet=.true.
    end if

    call opts%set('level', 'complete')
    call get_command_argument(1, arg)
    call opts%set('local', arg)
    call get_command_argument(2, arg)
    call opts%set('remote', arg)
    call get_command_argument(3, arg)
    if (arg /= '') read (arg, *) stop_at
    call varve_open_mpi(MPI_COMM_WORLD%MPI_VAL, ctx, opts)
    call h%open(ctx, 'rod', keep=2)
    call h%protect(0, now)
    if (rank == 0) now(0) = 100 ! the heated end

    call varve_latest_mpi(MPI_COMM_WORLD%MPI_VAL, h, step, found) ! the same on all processes
    if (found) call varve_restore_mpi(MPI_COMM_WORLD%MPI_VAL, h, step)
    if (rank == 0) print '(a, i0, a)', 'from step ', step, ' on'

    do while (step < steps)
        call MPI_Sendrecv(now(1), 1, MPI_DOUBLE_PRECISION, left, 0, now(cells + 1), 1, MPI_DOUBLE_PRECISION, right, 0, &
            MPI_COMM_WORLD, MPI_STATUS_IGNORE)
        call MPI_Sendrecv(now(cells), 1, MPI_DOUBLE_PRECISION, right, 0, now(0), 1, MPI_DOUBLE_PRECISION, left, 0, &
            MPI_COMM_WORLD, MPI_STATUS_IGNORE)
        next = now(1:cells) + 0.4d0*(now(0:cells - 1) - 2*now(1:cells) + now(2:cells + 1))
        now(1:cells) = next
        step = step + 1
        if (step == stop_at .and. rank == ranks - 1) error stop 3
        if (mod(step, int(every, varve_version)) == 0) call h%checkpoint(step) ! not collective
    end do
    call varve_close_mpi(MPI_COMM_WORLD%MPI_VAL, ctx) ! finishes pending flushes

    heat = sum(now(1:cells))
    if (rank == 0) then
        call MPI_Reduce(MPI_IN_PLACE, heat, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
        print '(a, i0, a, f0.6)', 'after step ', step, ' there is heat of ', heat
    else
        call MPI_Reduce(heat, heat, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
    end if
    call MPI_Finalize()
end program
