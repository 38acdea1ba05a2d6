# SPDX-License-Identifier: Apache-2.0
"""Contexts and histories."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import json
import operator
import os
import sys
import threading
import weakref
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _arrays, _layout
from ._lease import Lease
from ._lib import BusyError, ClosedError, Error, InvalidError, LayoutError, NotFoundError, as_dict, check, failed, lib

LEVELS = ("cached", "local", "remote", "complete")
_ORDERS = ("hints", "fifo", "lifo")
_CONSUMES = ("keep", "once")
# Number of the region that describes the others, in versions that outlive the process. Arrays are numbered from 0.
LAYOUT_REGION = 0x7FFFFFFF

Version = int
Out = Union[Any, Sequence[Any], Mapping[str, Any]]


class Region(NamedTuple):
    """Description of one array of a version."""

    name: Optional[str]  # None: it was given by position
    dtype: str
    shape: tuple[int, ...]
    order: str

    @property
    def nbytes(self) -> int:
        n = _arrays.itemsize_of(self.dtype)
        for k in self.shape:
            n *= k
        return n


Layout = tuple[Region, ...]


def _milliseconds(timeout: Optional[float]) -> int:
    """Converts seconds, None: no limit, to the library's milliseconds."""
    return -1 if timeout is None else max(0, min(int(timeout * 1000 + 0.999), 0x7FFFFFFF))


def _encode(layout: Layout) -> bytes:
    return json.dumps({"varve": 1, "regions": [[r.name, r.dtype, r.shape, r.order] for r in layout]}, separators=(",", ":")).encode()


def _decode(text: bytes) -> Layout:
    found = json.loads(text)
    if found.get("varve") != 1:
        raise LayoutError("the version was written by a newer package")
    return tuple(Region(name, dtype, tuple(shape), order) for name, dtype, shape, order in found["regions"])


def _word(value: Any) -> str:
    """A setting in the library's text form."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


class _Handle:
    """A pointer of the library that must not be used after closing: counts calls in progress."""

    _what = ""

    def __init__(self, pointer: int) -> None:
        self._ptr: Optional[int] = pointer
        self._calls = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def _own(self) -> None:
        """Raises in a forked child, where the lock may be held for ever."""
        if os.getpid() != self._pid:
            raise failed(-errno.EPERM)

    @contextlib.contextmanager
    def _using(self) -> Iterator[int]:
        self._own()
        with self._lock:
            pointer = self._ptr
            if pointer is None:
                raise ClosedError(f"the {self._what} was closed")
            self._calls += 1
        try:
            yield pointer
        finally:
            with self._lock:
                self._calls -= 1

    def _take(self) -> Optional[int]:
        """Takes the pointer, to close it."""
        self._own()
        with self._lock:
            if self._ptr is not None and self._calls:
                raise BusyError(errno.EBUSY, f"a call on the {self._what} is in progress: close it when that has returned")
            pointer, self._ptr = self._ptr, None
            return pointer

    @property
    def closed(self) -> bool:
        return self._ptr is None


def options(config: Optional[Union[str, os.PathLike[str]]], settings: Mapping[str, Any]) -> _layout.varve_opts:
    """Options for varve_open; each setting is checked."""
    opts = _layout.varve_opts()
    check(lib.varve_opts_init(ctypes.byref(opts), ctypes.sizeof(opts)))
    if config is not None:
        check(lib.varve_opts_load(ctypes.byref(opts), os.fsencode(config)))
    for key, value in settings.items():
        if value is not None:
            check(lib.varve_opts_set(ctypes.byref(opts), key.encode(), _word(value).encode()))
    return opts


class Context(_Handle):
    """Caches and the threads that move data between them. `with` closes it; so does the end of the program."""

    _what = "context"

    def __init__(self, config: Optional[Union[str, os.PathLike[str]]], settings: Mapping[str, Any]) -> None:
        opts = options(config, settings)
        pointer = ctypes.c_void_p()
        check(lib.varve_open(ctypes.byref(opts), ctypes.byref(pointer)))
        assert pointer.value is not None
        super().__init__(pointer.value)
        self.level = LEVELS[opts.level]
        kinds = _layout.CONSTANTS
        torch_cuda = opts.device == kinds["VARVE_DEVICE_AUTO"] and _cuda_in_use()
        self.has_gpu = bool(opts.device_cache) and (opts.device == kinds["VARVE_DEVICE_CUDA"] or torch_cuda)
        self.device_id = max(opts.device_id, 0)
        _contexts.add(self)

    def history(self, name: str, *, order: str = "hints", consume: str = "keep", keep: int = 0, keep_every: int = 0,
                overwrite: bool = False, confirm: bool = False) -> History:
        """Opens a history, which is new or has the versions of earlier runs."""
        opts = _layout.varve_history_opts()
        check(lib.varve_history_opts_init(ctypes.byref(opts), ctypes.sizeof(opts)))
        if order not in _ORDERS or consume not in _CONSUMES:
            raise ValueError(f"order is one of {_ORDERS}, consume one of {_CONSUMES}; not {order!r}, {consume!r}")
        opts.order, opts.consume = _ORDERS.index(order), _CONSUMES.index(consume)
        opts.keep, opts.keep_every, opts.overwrite, opts.confirm = keep, keep_every, overwrite, confirm
        pointer = ctypes.c_void_p()
        with self._using() as ctx:
            check(lib.varve_history_open_with(ctx, name.encode(), ctypes.byref(opts), ctypes.byref(pointer)), ctx)
        assert pointer.value is not None
        return History(self, pointer.value, name, consume == "once")

    def parts(self, name: str) -> int:
        """The number of ranks that wrote a history, at level remote or complete: its parts are numbered from 0."""
        count = ctypes.c_int()
        with self._using() as ctx:
            check(lib.varve_parts(ctx, name.encode(), ctypes.byref(count)), ctx)
        return count.value

    def part(self, name: str, rank: int) -> History:
        """Opens the versions of one rank of any job, read-only, in a process of any rank. Calls that would
        write raise Error with errno EROFS."""
        pointer = ctypes.c_void_p()
        with self._using() as ctx:
            check(lib.varve_part_open(ctx, name.encode(), operator.index(rank), ctypes.byref(pointer)), ctx)
        assert pointer.value is not None
        return History(self, pointer.value, name, False)

    def remove(self, name: str) -> None:
        """Removes a history that is not open, with all of its versions, on disk too."""
        with self._using() as ctx:
            check(lib.varve_history_remove(ctx, name.encode(), 0), ctx)

    def stats(self) -> dict[str, Any]:
        """The figures of struct varve_stats, by their names."""
        found = _layout.varve_stats()
        found.stats_size = ctypes.sizeof(found)
        with self._using() as ctx:
            check(lib.varve_stats(ctx, ctypes.byref(found)), ctx)
        values = as_dict(found)
        del values["stats_size"]
        return values

    def close(self) -> None:
        """Finishes pending flushes and closes all histories. BusyError: memory of it is lent; it stays open."""
        pointer = self._take()
        if pointer is None:
            return
        rc = lib.varve_close(pointer)
        if rc == -errno.EBUSY:
            self._ptr = pointer  # it is still there
        check(rc)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cuda_in_use() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()) or "cupy" in sys.modules


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Finishes pending flushes. A context whose memory is lent stays open until the process ends."""
    for ctx in list(_contexts):
        if ctx._pid == os.getpid() and not ctx.closed:
            with contextlib.suppress(Error):
                ctx.close()


class History(_Handle):
    """A named sequence of versions. Iterating gives the numbers of those that can be restored, in the order of writing."""

    _what = "history"

    def __init__(self, context: Context, pointer: int, name: str, once: bool) -> None:
        super().__init__(pointer)
        self.name = name
        self._context = context
        self._once = once
        self._layouts: dict[int, Layout] = {}
        self._consumed: dict[int, tuple[Layout, list[bytearray]]] = {}  # read, but the arrays that were given did not fit

    @contextlib.contextmanager
    def _using(self) -> Iterator[int]:
        # Closing the context closes the history.
        with self._context._using(), super()._using() as pointer:
            yield pointer

    def _check(self, rc: int) -> None:
        if rc != 0:
            raise failed(rc, self._context._ptr)

    # ---- writing and reading ----

    def _call(self, name: str, version: Version, listed: Sequence[tuple[int, _arrays.Array]], more: Optional[Any], stream: Any,
              timeout: Optional[float]) -> None:
        """Checkpoint or restore of these regions and the description `more`; on a stream, if one is given or arrays have one."""
        if operator.index(version) < 0:
            raise InvalidError(errno.EINVAL, f"version {version}: numbers of versions are not negative")
        regions = (_layout.varve_region * (len(listed) + (more is not None)))()
        for region, (number, a) in zip(regions, listed):
            region.region, region.ptr, region.bytes = number, a.pointer or None, a.nbytes
        if more is not None:
            regions[-1].region, regions[-1].ptr, regions[-1].bytes = LAYOUT_REGION, ctypes.addressof(more), len(more)
        handle = _arrays.stream_of(stream)
        if handle is None:
            handle = next((a.stream for _, a in listed if a.device and a.stream is not None), None)
            handle = 0 if handle == 1 else handle
        with self._using() as h:
            if handle is None:
                rc = getattr(lib, "varve_" + name)(h, version, regions, len(regions), _milliseconds(timeout))
            else:
                rc = getattr(lib, f"varve_{name}_on")(h, version, regions, len(regions), handle, _milliseconds(timeout))
            self._check(rc)

    def checkpoint(self, version: Version, *arrays: Any, stream: Any = None, timeout: Optional[float] = None, **named: Any) -> None:
        """Writes arrays as a new version; keyword arguments become named arrays. They may be changed when the call returns; with
        `stream`, by later work on that stream. Arrays of PyTorch on a GPU use its current stream by default."""
        looked = [_arrays.look(a) for a in (*arrays, *named.values())]
        if not looked:  # checked here, because above `cached` the library would write a version with the description alone
            raise Error(errno.ENODATA, f"version {version}: no array is given")
        names = [None] * len(arrays) + list(named)
        layout = tuple(Region(n, a.dtype, a.shape, a.order) for n, a in zip(names, looked))
        text = None
        if self._context.level != "cached":
            encoded = _encode(layout)
            text = ctypes.create_string_buffer(encoded, len(encoded))
        self._call("checkpoint_of", version, list(enumerate(looked)), text, stream, timeout)
        self._remember(version, layout)

    def _remember(self, version: Version, layout: Layout) -> None:
        self._consumed.pop(version, None)
        self._layouts[version] = layout
        if len(self._layouts) % 1024 == 0:  # versions that the library has removed by itself
            known = list(self._layouts)  # other threads add more meanwhile
            there = {version, *self.versions()}
            for v in known:
                if v not in there:
                    self._layouts.pop(v, None)

    def restore(self, version: Version, *, out: Optional[Out] = None, stream: Any = None, timeout: Optional[float] = None) -> Any:
        """Reads a version back into `out`, an array, a sequence of arrays or a mapping by name, which is returned; or into new
        arrays: one, a tuple if they were written by position, or a dict if any was written by name (others have their position). A
        mapping may leave regions out. LayoutError: an array differs from the one written; nothing was done."""
        layout = self._layouts.get(version)
        if layout is None:
            return self._restore_unknown(version, out, stream, timeout)
        if out is None:
            out = self._new(layout)
        listed = self._matched(version, layout, out)
        self._read(version, listed, None, stream, timeout)
        return out

    def _read(self, version: Version, listed: Sequence[tuple[int, _arrays.Array]], more: Optional[Any], stream: Any,
              timeout: Optional[float]) -> None:
        self._call("restore_to", version, listed, more, stream, timeout)
        if self._once:
            self._layouts.pop(version, None)

    def _new(self, layout: Layout) -> Any:
        arrays = [_arrays.new(r.dtype, r.shape, r.order) for r in layout]
        if any(r.name is not None for r in layout):
            return {str(i) if r.name is None else r.name: a for i, (r, a) in enumerate(zip(layout, arrays))}
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def _matched(self, version: Version, layout: Layout, out: Out) -> list[tuple[int, _arrays.Array]]:
        if isinstance(out, Mapping):
            numbers = {str(i) if r.name is None else r.name: i for i, r in enumerate(layout)}
            missing = [name for name in out if name not in numbers]
            if missing:
                raise LayoutError(f"version {version} has no {missing[0]!r}; it has {', '.join(map(repr, numbers)) or 'no arrays'}")
            listed = sorted(((numbers[name], array) for name, array in out.items()), key=lambda pair: pair[0])
        else:
            arrays = out if isinstance(out, (list, tuple)) else [out]
            if len(arrays) != len(layout):
                raise LayoutError(f"version {version} has {len(layout)} arrays, {len(arrays)} were given")
            listed = list(enumerate(arrays))
        return [(i, self._fitting(version, layout[i], i, array)) for i, array in listed]

    def _fitting(self, version: Version, region: Region, i: int, array: Any) -> _arrays.Array:
        looked = _arrays.look(array)
        what = f"version {version}, {region.name or f'array {i}'}"
        if looked.readonly:
            raise LayoutError(f"{what}: the array that was given cannot be written to")
        if looked.dtype != region.dtype or looked.shape != region.shape:
            raise LayoutError(f"{what} is {region.dtype} {region.shape}, the array that was given {looked.dtype} {looked.shape}")
        if looked.order != region.order and sum(k > 1 for k in region.shape) > 1:
            raise LayoutError(f"{what} has order {region.order}, the array that was given {looked.order}")
        return looked

    def _stored(self, version: Version) -> dict[int, int]:
        """The regions of a version and their sizes."""
        count = ctypes.c_size_t()
        with self._using() as h:
            self._check(lib.varve_regions(h, version, None, 0, ctypes.byref(count)))
            numbers = (ctypes.c_int * max(count.value, 1))()
            self._check(lib.varve_regions(h, version, numbers, count.value, ctypes.byref(count)))
            sizes = {}
            for number in numbers[:count.value]:
                self._check(lib.varve_region_size(h, version, number, ctypes.byref(count)))
                sizes[number] = count.value
        return sizes

    def _restore_unknown(self, version: Version, out: Optional[Out], stream: Any, timeout: Optional[float]) -> Any:
        """Restores a version of another process: its description is read together with its bytes."""
        kept = self._consumed.pop(version) if version in self._consumed else None
        layout, raw = kept or self._read_unknown(version, timeout)
        try:
            if out is None:
                out = self._new(layout)
            listed = self._matched(version, layout, out)
            if self._once and any(array.device for _, array in listed):
                raise LayoutError(f"version {version} was written by another process: restore it into host memory")
        except LayoutError:
            if self._once:
                self._consumed[version] = layout, raw  # reading has consumed the version: its bytes exist nowhere else
            raise
        if not self._once:
            self._layouts[version] = layout
        for i, array in listed:
            if array.device:
                self._read(version, listed, None, stream, timeout)
                return out
            ctypes.memmove(array.pointer, (ctypes.c_char * len(raw[i])).from_buffer(raw[i]), len(raw[i]))
        return out

    def _read_unknown(self, version: Version, timeout: Optional[float]) -> tuple[Layout, list[bytearray]]:
        sizes = self._stored(version)
        described = sizes.pop(LAYOUT_REGION, None)
        text = ctypes.create_string_buffer(described) if described else None
        raw = [bytearray(size) for size in sizes.values()]
        self._read(version, list(zip(sizes, (_arrays.look(b) for b in raw))), text, None, timeout)
        if text is None:  # not written by this package: bytes
            return tuple(Region(None, "uint8", (size,), "C") for size in sizes.values()), raw
        return _decode(text.raw), raw

    def describe(self, version: Version) -> Layout:
        """Names, types and shapes. For a version of another process this reads the version."""
        if version not in self._layouts:
            if self._once:
                raise LayoutError(f"version {version} was written by another process and is consumed once: restore it")
            self.restore(version)
        return self._layouts[version]

    def acquire(self, version: Version, region: Union[int, str] = 0, *, stream: Any = None, timeout: Optional[float] = None,
                dtype: Optional[str] = None, shape: Optional[tuple[int, ...]] = None) -> Lease:
        """Lends one array of a version, without a copy; see Lease. `dtype` and `shape`: for a version of another process,
        which is lent as bytes otherwise."""
        layout = self._layouts.get(version)
        number = region
        if isinstance(region, str):
            names = [r.name for r in self.describe(version)]
            if region not in names:
                raise NotFoundError(errno.ESRCH, f"version {version} has no {region!r}")
            number, layout = names.index(region), self._layouts[version]
        assert isinstance(number, int)
        if layout is not None and number < len(layout):
            dtype, shape = dtype or layout[number].dtype, layout[number].shape if shape is None else shape
            if layout[number].order == "F":
                raise LayoutError(f"version {version}: an array in Fortran's order cannot be lent")
        elif dtype is None or shape is None:
            dtype, shape = "uint8", (self._stored(version).get(number, 0),)
        return Lease(self, version, number, dtype, shape, _arrays.stream_of(stream), _milliseconds(timeout))

    # ---- the order of restores ----

    def hint(self, versions: Union[Version, Iterable[Version]]) -> None:
        """Appends versions to the expected restore order."""
        with self._using() as h:
            for version in versions if isinstance(versions, Iterable) else [versions]:
                self._check(lib.varve_hint(h, version))

    def clear_hints(self) -> None:
        with self._using() as h:
            self._check(lib.varve_hint_clear(h))

    def prefetch(self) -> None:
        """Starts prefetching now, instead of at the first restore."""
        with self._using() as h:
            self._check(lib.varve_prefetch_start(h))

    # ---- versions ----

    def wait(self, version: Version, level: Optional[str] = None, timeout: Optional[float] = None) -> None:
        """Waits until the version has reached the level, by default that of the context. TimedOutError."""
        level = level or self._context.level
        if level not in LEVELS:
            raise ValueError(f"level is one of {LEVELS}, not {level!r}")
        with self._using() as h:
            self._check(lib.varve_wait(h, version, LEVELS.index(level), _milliseconds(timeout)))

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until all versions have reached their level."""
        with self._using() as h:
            self._check(lib.varve_flush(h, _milliseconds(timeout)))

    def versions(self) -> list[Version]:
        """The versions that can be restored, in the order of writing."""
        count = ctypes.c_size_t()
        with self._using() as h:
            self._check(lib.varve_versions(h, None, 0, ctypes.byref(count)))
            while True:
                room = count.value
                found = (ctypes.c_uint64 * max(room, 1))()
                self._check(lib.varve_versions(h, found, room, ctypes.byref(count)))
                if count.value <= room:
                    return list(found[:count.value])

    def __iter__(self) -> Iterator[Version]:
        return iter(self.versions())

    def __len__(self) -> int:
        return len(self.versions())

    def __contains__(self, version: object) -> bool:
        return version in self.versions()

    def latest(self) -> Optional[Version]:
        """The newest version that has reached the level of the context."""
        found = ctypes.c_uint64()
        with self._using() as h:
            rc = lib.varve_latest(h, ctypes.byref(found))
            if rc == -errno.ENOENT:
                return None
            self._check(rc)
        return found.value

    def ready(self, version: Version) -> bool:
        """True if the version is complete in the fastest tier."""
        found = ctypes.c_int()
        with self._using() as h:
            self._check(lib.varve_ready(h, version, ctypes.byref(found)))
        return bool(found.value)

    def level(self, version: Version) -> str:
        """The level that the version has reached."""
        found = ctypes.c_int()
        with self._using() as h:
            self._check(lib.varve_version_level(h, version, ctypes.byref(found)))
        return LEVELS[found.value]

    def discard(self, version: Version) -> None:
        self._layouts.pop(version, None)
        self._consumed.pop(version, None)
        with self._using() as h:
            self._check(lib.varve_discard(h, version))

    def resume(self, version: Version) -> None:
        """Declares that the program continues with this version: checkpoints overwrite it and later ones that earlier runs left."""
        with self._using() as h:
            self._check(lib.varve_resume(h, version))

    def confirm(self, version: Version) -> None:
        with self._using() as h:
            self._check(lib.varve_confirm(h, version))

    def revert(self, version: Version) -> None:
        with self._using() as h:
            self._check(lib.varve_revert(h, version))

    def close(self) -> None:
        """Closes the history. BusyError: memory of it is lent; it stays open."""
        with self._context._using():
            pointer = self._take()
            if pointer is None:
                return
            rc = lib.varve_history_close(pointer)
            if rc == -errno.EBUSY:
                self._ptr = pointer
            self._check(rc)

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._context.closed:
            self.close()
