! SPDX-License-Identifier: Apache-2.0
! The Fortran module: kinds and ranks, errors with and without stat, versions, hints.
module checks
    implicit none
contains
    subroutine check(ok, what)
        logical, intent(in) :: ok
        character(len=*), intent(in) :: what
        if (ok) return
        print '(2a)', 'failed: ', what
        error stop 1
    end subroutine
end module

program fortran
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env
    use varve
    use checks
    implicit none
    type :: particle
        integer :: id
        real(real64) :: x(3)
    end type
    type(varve_options) :: opts, bad
    type(varve_context) :: ctx, other
    type(varve_history) :: h, again, part
    type(c_ptr) :: handle
    integer, target :: scalar = 7
    real(real32), target :: r4(5) = 1.5
    real(real64), target :: r8(4, 3) = 2.5d0
    complex(real64), target :: c(2, 2, 2) = (1d0, 2d0)
    logical, target :: flags(3) = .true.
    character(len=10), target :: text(2) = 'abcdefghij'
    type(particle), target :: p(6)
    integer(int8), target :: deep(1, 2, 1, 2, 1, 2, 3)
    real(real64), allocatable, target :: big(:), none(:)
    integer(varve_version), allocatable :: list(:)
    integer(varve_version) :: v
    integer(c_size_t) :: bytes
    integer :: stat, i, parts = -1
    logical :: found
    character(len=200) :: why
    character(len=1024) :: folder

    call get_command_argument(1, folder)
    call get_command_argument(2, why)
    if (why == 'die') then ! an error without stat ends the program
        call ctx%open()
        call h%open(ctx, 'x')
        call h%restore(1_varve_version)
    end if
    call check(len(varve_library_version()) >= 5, 'version')

    ! Errors with stat: a number and a text, and nothing else happens.
    why = 'as it was'
    call opts%set('level', 'local', stat=stat, errmsg=why)
    call check(stat == 0 .and. why == 'as it was', 'errmsg without an error')
    call bad%set('no_such_key', '1', stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'no_such_key') > 0, 'bad key')
    call ctx%open(opts, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'folder') > 0, 'level without a folder')
    call check(.not. ctx%is_open(), 'not open')
    call opts%set('local', folder)
    call opts%set('host_cache', '16M')
    call ctx%open(opts)
    call check(ctx%is_open(), 'open')
    call ctx%open(opts, stat=stat, errmsg=why)
    call check(stat == varve_eexist .and. index(why, 'close it first') > 0, 'opened twice')

    call h%open(ctx, 'all kinds ', stat=stat, errmsg=why)
    call check(stat == 0, 'history')
    call h%open(ctx, 'another', stat=stat, errmsg=why)
    call check(stat == varve_eexist .and. index(why, 'close it first') > 0, 'history opened twice')
    call h%latest(v, found)
    call check(.not. found, 'nothing yet')
    call h%checkpoint(1_varve_version, stat=stat)
    call check(stat /= 0, 'no region')
    do i = 1, 6
        p(i)%id = i
        p(i)%x = 0.25d0*i
    end do
    deep = 5
    allocate (big(100000))
    big = [(real(i, real64), i=1, 100000)]
    call h%protect(0, scalar)
    call h%protect(1, r4)
    call h%protect(2, r8)
    call h%protect(3, c)
    call h%protect(4, flags)
    call h%protect(5, text)
    call h%protect(6, p)
    call h%protect(7, deep)
    call h%protect(8, big)
    call h%protect(9, r8(2, 2)) ! one element
    call h%protect_address(10, c_loc(r8), 16_c_size_t)
    call h%protect(11, big(1:100:2), stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not contiguous') > 0, 'not contiguous')
    allocate (none(1)) ! gives it bounds: compilers warn of an array that never had any
    deallocate (none)
    call h%protect(11, none, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not allocated') > 0, 'not allocated')
    call h%protect(11, big(11:20))
    allocate (none(0))
    call h%protect(12, none)
    call h%protect(13, big(5:4))
    call h%protect_address(14, c_null_ptr, 0_c_size_t)
    call h%unprotect(11)
    call h%unprotect(11, stat=stat)
    call check(stat == varve_enoent, 'unprotected twice')
    do v = 1, 5
        scalar = int(v)
        call h%checkpoint(v)
    end do
    call h%checkpoint(3_varve_version, stat=stat, errmsg=why)
    call check(stat == varve_eexist .and. why /= '', 'version exists')
    call h%checkpoint(-1, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not negative') > 0, 'negative version')
    call h%region_size(1_varve_version, 2, bytes)
    call check(bytes == 12*8, 'size of an array')
    do i = 12, 14
        bytes = 1
        call h%region_size(1_varve_version, i, bytes)
        call check(bytes == 0, 'size of nothing')
    end do
    call h%region_size(1_varve_version, 5, bytes)
    call check(bytes == 20, 'size of text')
    call h%region_size(1_varve_version, 6, bytes)
    call check(bytes == storage_size(p)/8*6, 'size of a derived type')
    call h%versions(list)
    call check(all(list == [1, 2, 3, 4, 5]), 'versions')

    scalar = 0; r4 = 0; r8 = 0; c = 0; flags = .false.; text = ''; big = 0; deep = 0
    p%id = 0
    do v = 5, 1, -1
        call h%hint(v)
    end do
    call h%prefetch_start()
    call h%unprotect(9)
    call h%unprotect(10)
    call h%restore(2_varve_version)
    call check(scalar == 2 .and. all(r4 == 1.5) .and. all(r8 == 2.5d0), 'numbers')
    call check(all(c == (1d0, 2d0)) .and. all(flags) .and. all(text == 'abcdefghij'), 'others')
    call check(all(p%id == [1, 2, 3, 4, 5, 6]) .and. p(6)%x(3) == 1.5d0 .and. all(deep == 5), 'derived')
    call check(big(100000) == 100000d0, 'large')
    call h%hint_clear()
    call h%hint(3) ! versions of default kind
    call h%restore(3)
    call check(scalar == 3, 'a version of default kind')
    call h%wait(3, varve_level_local)
    bytes = 0
    call h%region_size(3, 2, bytes)
    call check(bytes == 12*8, 'size in a version of default kind')
    call h%hint(-3, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not negative') > 0, 'a negative hint')
    call h%restore(-3_varve_version, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not negative') > 0, 'a negative version to restore')
    call h%wait(-3, varve_level_local, stat=stat)
    call check(stat == varve_einval, 'a negative version to wait for')
    call h%region_size(-3, 2, bytes, stat=stat)
    call check(stat == varve_einval .and. bytes == 12*8, 'the size in a negative version')
    call h%discard(-3, stat=stat)
    call check(stat == varve_einval, 'a negative version to discard')
    call h%resume(-3, stat=stat)
    call check(stat == varve_einval, 'a negative version to go on with')
    call h%discard(77, stat=stat)
    call check(stat == varve_enoent, 'discarded by a number of default kind')
    call h%hint_clear()
    call h%restore(9_varve_version, stat=stat, errmsg=why)
    call check(stat == varve_enoent, 'no such version')
    call h%wait(5_varve_version, varve_level_local)
    call h%wait(5_varve_version, varve_level_complete, stat=stat)
    call check(stat == varve_einval, 'level above')
    call h%flush(timeout_ms=60000)
    call h%latest(v, found)
    call check(found .and. v == 5, 'latest')
    call h%discard(5_varve_version)
    call h%discard(5_varve_version, stat=stat)
    call check(stat == varve_enoent, 'discarded twice')
    call h%latest(v, found)
    call check(found .and. v == 4, 'latest after a discard')
    call h%close()
    call ctx%close()
    call check(.not. ctx%is_open(), 'closed')
    call h%checkpoint(7, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not open') > 0, 'a history that is not open')
    call h%open(ctx, 'no context', stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not open') > 0, 'a context that is not open')

    ! A history ends with its context, and can be opened again.
    call ctx%open(opts)
    call h%open(ctx, 'ends')
    call h%protect(0, scalar)
    call ctx%close()
    call h%checkpoint(1, stat=stat, errmsg=why)
    call check(stat == varve_einval .and. index(why, 'not open') > 0, 'a history whose context was closed')
    call check(.not. c_associated(h%handle()) .and. .not. c_associated(h%context_handle()), 'handles of what has ended')
    call ctx%open(opts)
    call h%open(ctx, 'ends')
    call ctx%close()
    call h%close(stat=stat)
    call check(stat == 0, 'a history is closed behind its context')

    call other%open(opts)
    call h%open(other, 'all kinds', keep=-1, stat=stat)
    call check(stat == varve_einval, 'a negative number of versions to keep')
    call h%open(other, 'all kinds', keep_every=3)
    call h%close()
    call h%open(other, 'all kinds', keep=1_varve_version, keep_every=3_varve_version)
    call h%close()
    call h%open(other, 'all kinds', keep=1)
    call h%protect(0, scalar)
    scalar = 0
    call h%restore(4_varve_version)
    call check(scalar == 4, 'another life')
    call h%checkpoint(6_varve_version)
    call h%flush()
    call h%versions(list)
    call check(all(list == [6]), 'kept')
    call h%checkpoint(6_varve_version, stat=stat)
    call check(stat == varve_eexist, 'no overwriting unless asked for')
    call h%close()

    ! Versions that an earlier run left after the one to continue from are overwritten.
    call h%open(other, 'again')
    call h%protect(0, scalar)
    do v = 1, 3
        scalar = int(v)
        call h%checkpoint(v)
    end do
    call other%close()
    call ctx%open(opts)
    call again%open(ctx, 'again')
    call again%protect(0, scalar)
    call again%checkpoint(3_varve_version, stat=stat)
    call check(stat == varve_eexist, 'of an earlier run')
    call again%resume(3)
    scalar = 33
    call again%checkpoint(3_varve_version)
    call again%checkpoint(2_varve_version, stat=stat)
    call check(stat == varve_eexist, 'before the one to go on with')
    call again%close()
    call again%open(ctx, 'again', overwrite=.true.)
    call again%protect(0, scalar)
    scalar = 22
    call again%checkpoint(2_varve_version)
    scalar = 0
    call again%restore(2_varve_version)
    call check(scalar == 22, 'overwritten')
    call again%restore(3_varve_version)
    call check(scalar == 33, 'overwritten')
    call again%close()

    ! Handles, as functions of C take them.
    call check(c_associated(ctx%handle()) .and. .not. c_associated(again%handle()), 'handles')
    handle = ctx%release()
    call check(.not. ctx%is_open(), 'given away')
    call ctx%adopt(handle)
    call ctx%close()

    ! Versions of another rank, read-only.
    call opts%set('level', 'complete')
    call opts%set('remote', trim(folder)//'-shared')
    call opts%set('run', 'writer')
    call ctx%open(opts)
    call again%open(ctx, 'old')
    call again%protect(0, scalar)
    scalar = 77
    call again%checkpoint(1)
    call ctx%close()
    call opts%set('run', 'reader')
    call opts%set('rank', '1')
    call opts%set('ranks', '3')
    call other%open(opts)
    call other%parts('old', parts)
    call check(parts == 1, 'parts')
    call other%parts('none', parts, stat=stat)
    call check(stat == varve_enoent .and. parts == 1, 'no such history')
    call part%open_part(other, 'old', 1, stat=stat)
    call check(stat == varve_einval, 'no such rank')
    call part%open_part(other, 'old', 0)
    call part%protect(0, scalar)
    scalar = 0
    call part%restore(1)
    call check(scalar == 77, 'of another rank')
    call part%checkpoint(2, stat=stat)
    call check(stat == varve_erofs, 'for reading only')
    call part%close()
    call other%close()
    print '(a)', 'ok'
end program
