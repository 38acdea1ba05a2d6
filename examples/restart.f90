! SPDX-License-Identifier: Apache-2.0
!
! A simulation in Fortran that continues after a kill.
!
!     gfortran restart.f90 -I$PREFIX/include/varve -L$PREFIX/lib -lvarve-fortran -lvarve -o restart
!     ./restart checkpoints 700      # ends at step 700 as if it had been killed
!     ./restart checkpoints          # finds the latest checkpoint, and finishes
program restart
    use varve
    implicit none
    integer, parameter :: steps = 1000, every = 50, cells = 256
    type(varve_options) :: opts
    type(varve_context) :: ctx
    type(varve_history) :: h
    real(8), target :: state(cells, cells)
    integer(varve_version) :: step = 0
    integer :: stop_at = -1, i, j, stat
    logical :: found
    character(len=1024) :: arg
    character(len=256) :: why

    call get_command_argument(1, arg)
    if (arg == '') then
        print '(a)', 'usage: restart FOLDER [STEP]'
        stop 2, quiet=.true.
    end if
    call opts%set('level', 'local')
    call opts%set('local', arg)
    call get_command_argument(2, arg)
    if (arg /= '') read (arg, *) stop_at

    call ctx%open(opts)
    call h%open(ctx, 'state', keep=2)
    call h%protect(0, state)

    state = 0
    call h%latest(step, found)
    if (found) then
        call h%restore(step)
        print '(a, i0)', 'going on from step ', step
    else
        step = 0
        print '(a)', 'no checkpoint: from the beginning'
    end if

    do while (step < steps)
        do j = 1, cells
            do i = 1, cells
                state(i, j) = 0.5d0*state(i, j) + mod(int(step)*i + j, 17)
            end do
        end do
        step = step + 1
        if (step == stop_at) stop 3
        if (mod(step, int(every, varve_version)) == 0) then
            call h%checkpoint(step, stat=stat, errmsg=why)
            if (stat /= 0) error stop 'checkpoint: '//trim(why)
        end if
    end do
    call ctx%close() ! finishes pending flushes
    print '(a, i0, a, es24.16)', 'after step ', step, ' the sum is ', sum(state)
end program
