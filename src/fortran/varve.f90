! SPDX-License-Identifier: Apache-2.0
!
! Varve for Fortran: checkpoint histories (varve/ckpt.h) over iso_c_binding.
!
!     use varve
!     type(varve_context) :: ctx
!     type(varve_history) :: h
!     type(varve_options) :: opts
!     real(8), target     :: field(100, 100)
!
!     call opts%set('level', 'local')
!     call opts%set('local', 'checkpoints')
!     call ctx%open(opts)
!     call h%open(ctx, 'state', keep=2)
!     call h%protect(0, field)
!     step = 0
!     call h%latest(step, found)
!     if (found) call h%restore(step)
!
! Errors. Every procedure has optional last arguments stat and errmsg, as in the language itself. stat is 0, or the
! negative errno value of the C function (varve_enoent, ...); errmsg is assigned only after an error. Without stat an error
! ends the program, with its message.
!
! Memory. A protected variable must have the target attribute, be contiguous, and not move until it is unprotected: an
! array that was deallocated or moved must not be checkpointed any more.
!
! Handles are passed by reference and must not be copied: close ends them. A history ends with its context; calls on it
! are refused then, and it can be opened again. Threads: the same rules as in C.
module varve
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    private

    ! The kind of version numbers, which are not negative. Arguments may also be 32-bit integers.
    integer, parameter, public :: varve_version = c_int64_t

    integer, parameter, public :: varve_level_cached = 0, varve_level_local = 1, varve_level_remote = 2, &
        varve_level_complete = 3
    ! Values of stat that programs compare with.
    integer, parameter, public :: varve_enoent = -2, varve_eagain = -11, varve_enomem = -12, varve_eexist = -17, &
        varve_einval = -22, varve_enospc = -28, varve_erofs = -30, varve_ebadmsg = -74, varve_enobufs = -105, varve_etimedout = -110

    ! Room for the C structure and more: the size that is passed to the library says which fields the program has.
    integer, parameter :: opts_bytes = 65536

    type, public :: varve_options
        private
        integer(c_int8_t), allocatable :: c(:)
    contains
        procedure :: set => options_set
        procedure :: load => options_load
        procedure :: handle => options_handle
    end type

    type, public :: varve_context
        private
        type(c_ptr) :: c = c_null_ptr
        logical, pointer :: is_live => null() ! shared with the histories
    contains
        procedure :: open => context_open
        procedure :: close => context_close
        procedure :: closed => context_closed
        procedure :: is_open => context_is_open
        procedure :: parts => context_parts
        procedure :: handle => context_handle
        procedure :: adopt => context_adopt
        procedure :: release => context_release
    end type

    type, public :: varve_history
        private
        type(c_ptr) :: c = c_null_ptr
        type(c_ptr) :: ctx = c_null_ptr
        logical, pointer :: is_live => null() ! of the context
    contains
        procedure, private :: history_open, history_open_keep_int, history_open_every_int
        generic :: open => history_open, history_open_keep_int, history_open_every_int
        procedure :: open_part => history_open_part
        procedure :: close => history_close
        procedure :: protect => history_protect
        procedure :: protect_address => history_protect_address
        procedure :: unprotect => history_unprotect
        procedure, private :: history_checkpoint, history_checkpoint_int
        generic :: checkpoint => history_checkpoint, history_checkpoint_int
        procedure, private :: history_restore, history_restore_int
        generic :: restore => history_restore, history_restore_int
        procedure, private :: history_region_size, history_region_size_int
        generic :: region_size => history_region_size, history_region_size_int
        procedure, private :: history_hint, history_hint_int
        generic :: hint => history_hint, history_hint_int
        procedure :: hint_clear => history_hint_clear
        procedure :: prefetch_start => history_prefetch_start
        procedure, private :: history_wait, history_wait_int
        generic :: wait => history_wait, history_wait_int
        procedure :: flush => history_flush
        procedure, private :: history_discard, history_discard_int
        generic :: discard => history_discard, history_discard_int
        procedure :: latest => history_latest
        procedure, private :: history_resume, history_resume_int
        generic :: resume => history_resume, history_resume_int
        procedure :: versions => history_versions
        procedure :: handle => history_handle
        procedure :: context_handle => history_context_handle
    end type

    public :: varve_library_version, varve_finish

    ! struct varve_history_opts
    type, bind(c) :: c_history_opts
        integer(c_size_t) :: opts_size
        integer(c_int) :: consume
        integer(c_int64_t) :: keep, keep_every
        integer(c_int) :: overwrite, order
    end type

    ! struct varve_error
    type, bind(c) :: c_error
        integer(c_size_t) :: error_size
        integer(c_int) :: err, scope, tier, region, code
        integer(c_int64_t) :: version
        character(kind=c_char) :: operation(32), domain(16), text(256)
    end type

    interface
        integer(c_int) function c_opts_init(opts, bytes) bind(c, name='varve_opts_init')
            import
            integer(c_int8_t), intent(inout) :: opts(*)
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function c_opts_load(opts, path) bind(c, name='varve_opts_load')
            import
            integer(c_int8_t), intent(inout) :: opts(*)
            character(kind=c_char), intent(in) :: path(*)
        end function
        integer(c_int) function c_opts_set(opts, key, val) bind(c, name='varve_opts_set')
            import
            integer(c_int8_t), intent(inout) :: opts(*)
            character(kind=c_char), intent(in) :: key(*), val(*)
        end function
        integer(c_int) function c_open(opts, ctx) bind(c, name='varve_open')
            import
            type(c_ptr), value :: opts
            type(c_ptr), intent(out) :: ctx
        end function
        integer(c_int) function c_close(ctx) bind(c, name='varve_close')
            import
            type(c_ptr), value :: ctx
        end function
        integer(c_int) function c_last_error(ctx, e) bind(c, name='varve_last_error')
            import
            type(c_ptr), value :: ctx
            type(c_error), intent(inout) :: e
        end function
        type(c_ptr) function c_strerror(err) bind(c, name='varve_strerror')
            import
            integer(c_int), value :: err
        end function
        type(c_ptr) function c_version() bind(c, name='varve_version')
            import
        end function
        integer(c_int) function c_history_open(ctx, name, opts, h) bind(c, name='varve_history_open_with')
            import
            type(c_ptr), value :: ctx
            character(kind=c_char), intent(in) :: name(*)
            type(c_history_opts), intent(in) :: opts
            type(c_ptr), intent(out) :: h
        end function
        integer(c_int) function c_parts(ctx, name, n) bind(c, name='varve_parts')
            import
            type(c_ptr), value :: ctx
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), intent(inout) :: n
        end function
        integer(c_int) function c_part_open(ctx, name, rank, h) bind(c, name='varve_part_open')
            import
            type(c_ptr), value :: ctx
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: rank
            type(c_ptr), intent(out) :: h
        end function
        integer(c_int) function c_history_close(h) bind(c, name='varve_history_close')
            import
            type(c_ptr), value :: h
        end function
        integer(c_int) function c_protect(h, region, ptr, bytes) bind(c, name='varve_protect')
            import
            type(c_ptr), value :: h, ptr
            integer(c_int), value :: region
            integer(c_size_t), value :: bytes
        end function
        ! Takes a descriptor, which has the address and size of any variable; see array.c.
        integer(c_int) function c_protect_array(h, region, x) bind(c, name='varve_protect_array')
            import
            type(c_ptr), value :: h
            integer(c_int), value :: region
            type(*), dimension(..), intent(inout) :: x
        end function
        integer(c_int) function c_unprotect(h, region) bind(c, name='varve_unprotect')
            import
            type(c_ptr), value :: h
            integer(c_int), value :: region
        end function
        integer(c_int) function c_checkpoint(h, version, timeout_ms) bind(c, name='varve_checkpoint_for')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
            integer(c_int), value :: timeout_ms
        end function
        integer(c_int) function c_restore(h, version, timeout_ms) bind(c, name='varve_restore_for')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
            integer(c_int), value :: timeout_ms
        end function
        integer(c_int) function c_region_size(h, version, region, bytes) bind(c, name='varve_region_size')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
            integer(c_int), value :: region
            integer(c_size_t), intent(inout) :: bytes
        end function
        integer(c_int) function c_hint(h, version) bind(c, name='varve_hint')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
        end function
        integer(c_int) function c_hint_clear(h) bind(c, name='varve_hint_clear')
            import
            type(c_ptr), value :: h
        end function
        integer(c_int) function c_prefetch_start(h) bind(c, name='varve_prefetch_start')
            import
            type(c_ptr), value :: h
        end function
        integer(c_int) function c_wait(h, version, level, timeout_ms) bind(c, name='varve_wait')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
            integer(c_int), value :: level, timeout_ms
        end function
        integer(c_int) function c_flush(h, timeout_ms) bind(c, name='varve_flush')
            import
            type(c_ptr), value :: h
            integer(c_int), value :: timeout_ms
        end function
        integer(c_int) function c_discard(h, version) bind(c, name='varve_discard')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: version
        end function
        integer(c_int) function c_latest(h, version) bind(c, name='varve_latest')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), intent(inout) :: version
        end function
        integer(c_int) function c_resume(h, next) bind(c, name='varve_resume')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), value :: next
        end function
        integer(c_int) function c_versions(h, list, max, count) bind(c, name='varve_versions')
            import
            type(c_ptr), value :: h
            integer(c_int64_t), intent(inout) :: list(*)
            integer(c_size_t), value :: max
            integer(c_size_t), intent(inout) :: count
        end function
    end interface

contains

    ! ---- errors ----

    ! The text of a C string.
    function text_of(c) result(text)
        type(c_ptr), intent(in) :: c
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: chars(:)
        integer :: n, i
        call c_f_pointer(c, chars, [4096])
        n = 0
        do while (n < 4096)
            if (chars(n + 1) == c_null_char) exit
            n = n + 1
        end do
        allocate (character(len=n) :: text)
        do i = 1, n
            text(i:i) = chars(i)
        end do
    end function

    ! The library's text of the error, or else the meaning of its number.
    function message_of(ctx, rc) result(text)
        type(c_ptr), intent(in) :: ctx
        integer(c_int), intent(in) :: rc
        character(len=:), allocatable :: text
        type(c_error) :: e
        integer :: i
        text = text_of(c_strerror(rc))
        e%error_size = c_sizeof(e)
        if (c_last_error(ctx, e) /= 0) return
        if (e%err /= rc .or. e%text(1) == c_null_char) return
        text = ''
        do i = 1, size(e%text)
            if (e%text(i) == c_null_char) exit
            text = text//e%text(i)
        end do
    end function

    ! Ends a procedure of this module: takes the result of a C function and the name of the operation. Also for functions
    ! of the library that have no procedure here, and for varve_mpi.
    subroutine varve_finish(ctx, what, rc, stat, errmsg)
        type(c_ptr), intent(in) :: ctx
        character(len=*), intent(in) :: what
        integer(c_int), intent(in) :: rc
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (present(stat)) stat = 0
        if (rc /= 0) call fail(what, rc, message_of(ctx, rc), stat, errmsg)
    end subroutine

    subroutine fail(what, rc, text, stat, errmsg)
        character(len=*), intent(in) :: what, text
        integer(c_int), intent(in) :: rc
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (present(stat)) stat = int(rc)
        if (present(errmsg)) errmsg = text
        if (present(stat)) return
        write (error_unit, '(4a)') 'varve: ', what, ': ', text
        flush (error_unit) ! before the backtrace that some compilers print
        error stop 1
    end subroutine

    integer(c_int) function limit_of(timeout_ms)
        integer, intent(in), optional :: timeout_ms
        limit_of = -1
        if (present(timeout_ms)) limit_of = int(timeout_ms, c_int)
    end function

    ! "0.2.0"
    function varve_library_version() result(text)
        character(len=:), allocatable :: text
        text = text_of(c_version())
    end function

    ! ---- options ----

    integer(c_int) function options_ready(opts)
        class(varve_options), intent(inout) :: opts
        options_ready = 0
        if (allocated(opts%c)) return
        allocate (opts%c(opts_bytes))
        options_ready = c_opts_init(opts%c, int(opts_bytes, c_size_t))
        if (options_ready /= 0) deallocate (opts%c)
    end function

    ! Sets one option by its key, as in a configuration file: 'host_cache', '4G'.
    subroutine options_set(self, key, val, stat, errmsg)
        class(varve_options), intent(inout) :: self
        character(len=*), intent(in) :: key, val
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = options_ready(self)
        if (rc == 0) rc = c_opts_set(self%c, trim(key)//c_null_char, trim(val)//c_null_char)
        call varve_finish(c_null_ptr, 'options', rc, stat, errmsg)
    end subroutine

    ! Reads a configuration file, then the environment, which overrides it.
    subroutine options_load(self, path, stat, errmsg)
        class(varve_options), intent(inout) :: self
        character(len=*), intent(in) :: path
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = options_ready(self)
        if (rc == 0) rc = c_opts_load(self%c, trim(path)//c_null_char)
        call varve_finish(c_null_ptr, 'options', rc, stat, errmsg)
    end subroutine

    ! The C structure, for C functions; it is valid as long as the options.
    function options_handle(self) result(c)
        class(varve_options), intent(inout), target :: self
        type(c_ptr) :: c
        c = c_null_ptr
        if (options_ready(self) == 0) c = c_loc(self%c)
    end function

    ! ---- contexts ----

    ! Opens a context. Without options: the defaults, including the environment.
    subroutine context_open(self, opts, stat, errmsg)
        class(varve_context), intent(inout) :: self
        type(varve_options), intent(inout), target, optional :: opts
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        type(c_ptr) :: c, handle
        if (c_associated(self%c)) then
            call fail('open', int(varve_eexist, c_int), 'this context is open already: close it first', stat, errmsg)
            return
        end if
        c = c_null_ptr
        handle = c_null_ptr
        rc = 0
        if (present(opts)) then
            rc = options_ready(opts)
            if (rc == 0) c = c_loc(opts%c)
        end if
        if (rc == 0) rc = c_open(c, handle)
        if (rc == 0) call self%adopt(handle)
        call varve_finish(c_null_ptr, 'open', rc, stat, errmsg)
    end subroutine

    ! Closes the context and its histories, after versions on their way to the level of the context have reached it.
    subroutine context_close(self, stat, errmsg)
        class(varve_context), intent(inout) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = c_close(self%c)
        if (rc /= -16) call self%closed() ! -EBUSY: nothing was done
        call varve_finish(c_null_ptr, 'close', rc, stat, errmsg)
    end subroutine

    ! A function of C has closed the context.
    subroutine context_closed(self)
        class(varve_context), intent(inout) :: self
        if (associated(self%is_live)) self%is_live = .false.
        self%is_live => null()
        self%c = c_null_ptr
    end subroutine

    ! The number of ranks that wrote a history, at level remote or complete: its parts are numbered from 0.
    subroutine context_parts(self, name, n, stat, errmsg)
        class(varve_context), intent(in) :: self
        character(len=*), intent(in) :: name
        integer, intent(inout) :: n
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: count, rc
        count = 0
        rc = c_parts(self%c, trim(name)//c_null_char, count)
        if (rc == 0) n = int(count)
        call varve_finish(self%c, 'parts', rc, stat, errmsg)
    end subroutine

    logical function context_is_open(self)
        class(varve_context), intent(in) :: self
        context_is_open = c_associated(self%c)
    end function

    ! The context for C functions; null if it is not open.
    function context_handle(self) result(c)
        class(varve_context), intent(in) :: self
        type(c_ptr) :: c
        c = self%c
    end function

    ! Takes ownership of a context that a C function has opened. A context that self had before is not closed.
    subroutine context_adopt(self, c)
        class(varve_context), intent(inout) :: self
        type(c_ptr), intent(in) :: c
        self%c = c
        allocate (self%is_live) ! never freed: histories look at it after the context has ended
        self%is_live = .true.
    end subroutine

    ! The reverse: gives up ownership, so that a C function can close the context.
    function context_release(self) result(c)
        class(varve_context), intent(inout) :: self
        type(c_ptr) :: c
        c = self%c
        self%c = c_null_ptr
        self%is_live => null()
    end function

    ! ---- histories ----

    ! Null if the history is not open, or has ended with its context.
    function live(self) result(c)
        class(varve_history), intent(in) :: self
        type(c_ptr) :: c
        c = c_null_ptr
        if (.not. associated(self%is_live)) return
        if (self%is_live) c = self%c
    end function

    function live_context(self) result(c)
        class(varve_history), intent(in) :: self
        type(c_ptr) :: c
        c = c_null_ptr
        if (c_associated(live(self))) c = self%ctx
    end function

    ! Refuses a number that C would take for a very large one.
    logical function is_negative(what, version, stat, errmsg)
        character(len=*), intent(in) :: what
        integer(varve_version), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        is_negative = version < 0
        if (is_negative) call fail(what, int(varve_einval, c_int), 'numbers of versions are not negative', stat, errmsg)
    end function

    ! Opens a history. keep: number of newest versions to keep; all if it is not given. keep_every: versions whose number
    ! is a multiple of this stay as well. consume_once: a version is discarded after it was restored. overwrite: a
    ! checkpoint of an existing version replaces it.
    subroutine history_open(self, ctx, name, keep, consume_once, keep_every, overwrite, stat, errmsg)
        class(varve_history), intent(inout) :: self
        type(varve_context), intent(in) :: ctx
        character(len=*), intent(in) :: name
        integer(varve_version), intent(in), optional :: keep, keep_every
        logical, intent(in), optional :: consume_once, overwrite
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(c_history_opts) :: opts
        type(c_ptr) :: handle
        integer(c_int) :: rc
        if (c_associated(live(self))) then
            call fail('history', int(varve_eexist, c_int), &
                'this history is open already: close it first, before its context', stat, errmsg)
            return
        end if
        opts = c_history_opts(c_sizeof(opts), 0, 0, 0, 0, 0)
        if (present(keep)) opts%keep = keep
        if (present(keep_every)) opts%keep_every = keep_every
        if (opts%keep < 0 .or. opts%keep_every < 0) then
            call fail('history', int(varve_einval, c_int), 'keep and keep_every are not negative', stat, errmsg)
            return
        end if
        if (present(consume_once)) opts%consume = merge(1, 0, consume_once)
        if (present(overwrite)) opts%overwrite = merge(1, 0, overwrite)
        handle = c_null_ptr
        rc = c_history_open(ctx%c, trim(name)//c_null_char, opts, handle)
        if (rc == 0) then
            self%c = handle
            self%ctx = ctx%c
            self%is_live => ctx%is_live
        end if
        call varve_finish(ctx%c, 'history', rc, stat, errmsg)
    end subroutine

    ! Opens the versions of one rank of any job, read-only, at level remote or complete.
    subroutine history_open_part(self, ctx, name, rank, stat, errmsg)
        class(varve_history), intent(inout) :: self
        type(varve_context), intent(in) :: ctx
        character(len=*), intent(in) :: name
        integer, intent(in) :: rank
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(c_ptr) :: handle
        integer(c_int) :: rc
        if (c_associated(live(self))) then
            call fail('history', int(varve_eexist, c_int), &
                'this history is open already: close it first, before its context', stat, errmsg)
            return
        end if
        handle = c_null_ptr
        rc = c_part_open(ctx%c, trim(name)//c_null_char, int(rank, c_int), handle)
        if (rc == 0) then
            self%c = handle
            self%ctx = ctx%c
            self%is_live => ctx%is_live
        end if
        call varve_finish(ctx%c, 'part', rc, stat, errmsg)
    end subroutine

    subroutine history_close(self, stat, errmsg)
        class(varve_history), intent(inout) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(c_ptr) :: ctx
        integer(c_int) :: rc
        ctx = live_context(self)
        rc = 0 ! it may have ended with its context
        if (c_associated(ctx) .or. .not. c_associated(self%c)) rc = c_history_close(live(self))
        if (rc /= -16) self%c = c_null_ptr
        call varve_finish(ctx, 'history', rc, stat, errmsg)
    end subroutine

    ! Protects a variable or array of any type, kind and rank.
    subroutine history_protect(self, region, x, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(in) :: region
        type(*), dimension(..), intent(inout), target :: x
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = c_protect_array(live(self), int(region, c_int), x)
        select case (rc)
        case (1)
            call fail('protect', int(varve_einval, c_int), 'the array is not allocated', stat, errmsg)
        case (2)
            call fail('protect', int(varve_einval, c_int), &
                'the array section is not contiguous: protect the whole array or a contiguous copy', stat, errmsg)
        case default
            call varve_finish(live_context(self), 'protect', rc, stat, errmsg)
        end select
    end subroutine

    ! Protects memory by its address, for example memory of a GPU.
    subroutine history_protect_address(self, region, ptr, bytes, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(in) :: region
        type(c_ptr), intent(in) :: ptr
        integer(c_size_t), intent(in) :: bytes
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(live_context(self), 'protect', c_protect(live(self), int(region, c_int), ptr, bytes), stat, errmsg)
    end subroutine

    subroutine history_unprotect(self, region, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(in) :: region
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(live_context(self), 'unprotect', c_unprotect(live(self), int(region, c_int)), stat, errmsg)
    end subroutine

    subroutine history_checkpoint(self, version, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('checkpoint', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'checkpoint', c_checkpoint(live(self), version, limit_of(timeout_ms)), stat, errmsg)
    end subroutine

    subroutine history_restore(self, version, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('restore', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'restore', c_restore(live(self), version, limit_of(timeout_ms)), stat, errmsg)
    end subroutine

    ! Stored size of a region in bytes, not elements.
    subroutine history_region_size(self, version, region, bytes, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(in) :: region
        integer(c_size_t), intent(inout) :: bytes
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('region_size', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'region_size', &
            c_region_size(live(self), version, int(region, c_int), bytes), stat, errmsg)
    end subroutine

    subroutine history_hint(self, version, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('hint', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'hint', c_hint(live(self), version), stat, errmsg)
    end subroutine

    subroutine history_hint_clear(self, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(live_context(self), 'hint_clear', c_hint_clear(live(self)), stat, errmsg)
    end subroutine

    subroutine history_prefetch_start(self, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(live_context(self), 'prefetch_start', c_prefetch_start(live(self)), stat, errmsg)
    end subroutine

    subroutine history_wait(self, version, level, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(in) :: level
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('wait', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'wait', &
            c_wait(live(self), version, int(level, c_int), limit_of(timeout_ms)), stat, errmsg)
    end subroutine

    subroutine history_flush(self, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call varve_finish(live_context(self), 'flush', c_flush(live(self), limit_of(timeout_ms)), stat, errmsg)
    end subroutine

    subroutine history_discard(self, version, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('discard', version, stat, errmsg)) return
        call varve_finish(live_context(self), 'discard', c_discard(live(self), version), stat, errmsg)
    end subroutine

    ! The newest version that has reached the level of the context. No version is not an error: found is false.
    subroutine history_latest(self, version, found, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(inout) :: version
        logical, intent(out) :: found
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int) :: rc
        rc = c_latest(live(self), version)
        found = rc == 0
        if (rc == varve_enoent) rc = 0
        call varve_finish(live_context(self), 'latest', rc, stat, errmsg)
    end subroutine

    ! Declares that the program continues with version next: checkpoints overwrite that and greater versions of earlier
    ! runs.
    subroutine history_resume(self, next, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), intent(in) :: next
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_negative('resume', next, stat, errmsg)) return
        call varve_finish(live_context(self), 'resume', c_resume(live(self), next), stat, errmsg)
    end subroutine

    ! The history, and its context, for C functions.
    function history_handle(self) result(c)
        class(varve_history), intent(in) :: self
        type(c_ptr) :: c
        c = live(self)
    end function

    function history_context_handle(self) result(c)
        class(varve_history), intent(in) :: self
        type(c_ptr) :: c
        c = live_context(self)
    end function

    ! All versions that can be restored, in the order of writing.
    subroutine history_versions(self, list, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(varve_version), allocatable, intent(out) :: list(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(varve_version), allocatable :: room(:)
        integer(c_size_t) :: n, max
        integer(c_int) :: rc
        max = 16
        do
            n = 0
            allocate (room(max))
            rc = c_versions(live(self), room, max, n)
            if (rc /= 0 .or. n <= max) exit
            deallocate (room)
            max = n + 16
        end do
        list = room(1:merge(n, 0_c_size_t, rc == 0))
        call varve_finish(live_context(self), 'versions', rc, stat, errmsg)
    end subroutine

    ! ---- the same with 32-bit versions ----

    subroutine history_open_keep_int(self, ctx, name, keep, consume_once, keep_every, overwrite, stat, errmsg)
        class(varve_history), intent(inout) :: self
        type(varve_context), intent(in) :: ctx
        character(len=*), intent(in) :: name
        integer(c_int32_t), intent(in) :: keep
        integer(c_int32_t), intent(in), optional :: keep_every
        logical, intent(in), optional :: consume_once, overwrite
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(varve_version) :: every
        every = 0
        if (present(keep_every)) every = keep_every
        call self%open(ctx, name, int(keep, varve_version), consume_once, every, overwrite, stat, errmsg)
    end subroutine

    subroutine history_open_every_int(self, ctx, name, keep, consume_once, keep_every, overwrite, stat, errmsg)
        class(varve_history), intent(inout) :: self
        type(varve_context), intent(in) :: ctx
        character(len=*), intent(in) :: name
        integer(varve_version), intent(in), optional :: keep
        integer(c_int32_t), intent(in) :: keep_every
        logical, intent(in), optional :: consume_once, overwrite
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%open(ctx, name, keep, consume_once, int(keep_every, varve_version), overwrite, stat, errmsg)
    end subroutine

    subroutine history_checkpoint_int(self, version, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%checkpoint(int(version, varve_version), timeout_ms, stat, errmsg)
    end subroutine

    subroutine history_restore_int(self, version, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%restore(int(version, varve_version), timeout_ms, stat, errmsg)
    end subroutine

    subroutine history_region_size_int(self, version, region, bytes, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(in) :: region
        integer(c_size_t), intent(inout) :: bytes
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%region_size(int(version, varve_version), region, bytes, stat, errmsg)
    end subroutine

    subroutine history_hint_int(self, version, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%hint(int(version, varve_version), stat, errmsg)
    end subroutine

    subroutine history_wait_int(self, version, level, timeout_ms, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(in) :: level
        integer, intent(in), optional :: timeout_ms
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%wait(int(version, varve_version), level, timeout_ms, stat, errmsg)
    end subroutine

    subroutine history_discard_int(self, version, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: version
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%discard(int(version, varve_version), stat, errmsg)
    end subroutine

    subroutine history_resume_int(self, next, stat, errmsg)
        class(varve_history), intent(in) :: self
        integer(c_int32_t), intent(in) :: next
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call self%resume(int(next, varve_version), stat, errmsg)
    end subroutine
end module
