# SPDX-License-Identifier: Apache-2.0
"""Activations as a history: pack is a checkpoint on the stream of the forward pass, unpack a restore on that of the backward.

Invariants:
- One `with` is one tape. Its tensors have consecutive versions, from a number that no other tape uses, so that the order in which
  they come back can be hinted before they are written.
- Bytes are written once, even if many tensors view them: a `_Saved` is a range of a storage in one state. It is identified by the
  storage's address, the range and the version counter, within its tape; a weak reference keeps the address from being used again.
- The version lives as long as the `_Saved`, which autograd keeps as long as it may need it. Nothing else ends it, so
  retain_graph, double backward and dropped graphs need no special rules.
- A wrong order only costs time: correctness does not depend on it.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import os
import threading
import warnings
import weakref
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef

import varve

from .. import _layout
from .._history import options
from .._lib import ClosedError, failed, lib

_TAPE_VERSIONS = 1 << 32
_LEARNED_MAX = 16
_CLOCKS = 3  # number of passes that are timed
_LINK_SHARE = 0.9  # share of the link's capacity during the forward pass; the rest is for other users of the link
_LINK_BYTES = 64 << 20
_NO_ROOM = (-errno.ENOSPC, -errno.EFBIG)
_serial = itertools.count()
_region = _layout.varve_region
_byref = ctypes.byref
_discard = lib.varve_discard
_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
Bytes = Union[int, str]


def _bytes_of(name: str, size: Bytes) -> int:
    """Converts a size in the library's text form."""
    if isinstance(size, int):
        return size
    try:
        return int(options(None, {"host_cache": size}).host_cache)
    except varve.InvalidError as e:
        raise varve.InvalidError(e.errno, str(e.strerror).replace("host_cache", name, 1)) from None


if hasattr(_Tensor, "untyped_storage"):
    _storage_of: Callable[[Any], Any] = _Tensor.untyped_storage
else:  # before PyTorch 2
    def _storage_of(tensor: Any) -> Any:
        return tensor.storage()._storage

_raw_stream: Optional[Callable[[int], int]] = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream_of(index: int) -> int:
    """The handle of the current stream of a GPU."""
    if _raw_stream is not None:
        return _raw_stream(index)
    return int(torch.cuda.current_stream(index).cuda_stream)


@functools.lru_cache(maxsize=4096)
def _is_dense(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """True if the elements fill a contiguous range of memory, in any order of the dimensions."""
    step = 1
    for length, n in sorted((s, n) for n, s in zip(size, stride) if n != 1):
        if length != step:
            return False
        step *= n
    return True


class _Store:
    """The history of one device."""

    def __init__(self, index: int, settings: dict[str, Any]) -> None:
        self.index = index  # of the GPU, -1: the processor
        self.device = torch.device("cpu") if index < 0 else torch.device("cuda", index)
        self.context = self._open(settings)
        self.history = self.context.history(f"offload-{os.getpid()}-{next(_serial)}")
        self.empty = torch.empty(0, device=self.device)
        self._link: Optional[float] = None

    def _open(self, settings: dict[str, Any]) -> varve.Context:
        given = dict(settings)
        if self.index < 0:
            given.setdefault("device", "none")
        else:
            given.update(device="cuda", device_id=self.index)
            torch.cuda.synchronize(self.device)  # the context of the GPU is there then
        try:
            return varve.open(**given)
        except varve.OutOfMemoryError:
            if self.index < 0:
                raise
            torch.cuda.empty_cache()
            return varve.open(**given)

    @property
    def pointer(self) -> int:
        pointer = self.history._ptr
        if pointer is None or self.context._ptr is None:
            raise ClosedError("the offload was closed, and tensors that it had are gone")
        return pointer

    def link(self) -> float:
        """Bytes per second from the GPU to pinned memory, measured by copies at the first call."""
        if self._link is None:
            with torch.cuda.device(self.device):
                stream = torch.cuda.Stream()
                source = torch.empty(_LINK_BYTES, dtype=torch.uint8, device=self.device)
                target = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
                    for mark in marks:
                        mark.record()
                        target.copy_(source, non_blocking=True)
                stream.synchronize()
            self._link = _LINK_BYTES * 1e3 / min(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
        return self._link

    def put(self, version: int, pointer: int, nbytes: int) -> int:
        region = _region(0, pointer, nbytes)
        if self.index < 0:
            return int(lib.varve_checkpoint_of(self.pointer, version, _byref(region), 1, -1))
        return int(lib.varve_checkpoint_of_on(self.pointer, version, _byref(region), 1, _stream_of(self.index), -1))

    def get(self, version: int, pointer: int, nbytes: int, stream: int) -> None:
        region = _region(0, pointer, nbytes)
        if self.index < 0:
            rc = lib.varve_restore_to(self.pointer, version, _byref(region), 1, -1)
        else:
            rc = lib.varve_restore_to_on(self.pointer, version, _byref(region), 1, stream, -1)
        if rc != 0:
            raise failed(rc, self.context._ptr)


class _View(NamedTuple):
    """A tensor within the bytes of a _Saved."""

    dtype: torch.dtype
    size: Any
    stride: tuple[int, ...]
    offset: int  # bytes


class _Saved:
    """A range of a storage, as one version of the history."""

    __slots__ = ("store", "version", "nbytes", "low", "weak", "probe", "state", "uses", "gets", "kept", "view", "stream", "tape",
                 "__weakref__")

    def __init__(self, store: _Store, version: int, nbytes: int, low: int, weak: Any, probe: Any, state: int, tape: _Tape) -> None:
        self.store, self.version, self.nbytes, self.low = store, version, nbytes, low
        self.weak = weak  # reference to the storage
        self.probe, self.state = probe, state  # probe has the version counter; state is the counter's value at packing
        self.uses = self.gets = 0  # times that the range was packed, and unpacked
        # Restored and still needed by others: the tensor, its description, and its stream.
        self.kept: Any = None
        self.view: Optional[_View] = None
        self.stream = 0
        self.tape: Optional[_Tape] = tape

    def __del__(self, _discard: Callable[[int, int], int] = _discard) -> None:
        history = self.store.history
        if history._ptr is not None and self.store.context._ptr is not None:
            _discard(history._ptr, self.version)

    def get(self, view: _View) -> Any:
        if self.probe._version != self.state:
            raise _modified(view.dtype, view.size, self.probe._version, self.state)
        tape = self.tape
        if tape is not None:
            self.tape = None
            tape.came_back(self)
        there = self._in_place(view)
        if there is not None:
            return there
        stream = 0 if self.store.index < 0 else _stream_of(self.store.index)
        tensor = self.kept
        if tensor is None or stream != self.stream or not (self.view is None or self.view == view):
            tensor = self._restored(view, stream)
        self.gets += 1
        more = self.gets % self.uses != 0
        self.kept = tensor if more else None
        return tensor if self.view is not None else self._cut(tensor, view)

    def _in_place(self, view: _View) -> Any:
        """The tensor itself, if its memory still exists because others hold it, too."""
        if self.weak.expired():
            return None
        storage = type(self).storage_of(self.weak)
        if storage is None or storage.nbytes() < self.low + self.nbytes:
            return None
        at = (self.low + view.offset) // view.dtype.itemsize if hasattr(view.dtype, "itemsize") else None
        empty = torch.empty(0, dtype=view.dtype, device=self.store.device)
        if at is None:
            at = (self.low + view.offset) // empty.element_size()
        return empty.set_(storage, at, view.size, view.stride)

    @staticmethod
    def storage_of(weak: Any) -> Any:
        kind = getattr(torch, "UntypedStorage", None) or torch._UntypedStorage
        return kind._new_with_weak_ptr(weak.cdata)

    def _restored(self, view: _View, stream: int) -> Any:
        device = self.store.device
        # If one view covers the whole range, allocate memory of its type. Other views are cut out of bytes.
        if self.view is not None:
            tensor = torch.empty_strided(view.size, view.stride, dtype=view.dtype, device=device)
        else:
            tensor = torch.empty(-(-self.nbytes // 16) * 16, dtype=torch.uint8, device=device)
        self.store.get(self.version, tensor.data_ptr(), self.nbytes, stream)
        self.stream = stream
        return tensor

    @staticmethod
    def _cut(flat: Any, view: _View) -> Any:
        typed = flat.view(view.dtype)
        return typed.as_strided(view.size, view.stride, view.offset // typed.element_size())


def _modified(dtype: Any, size: Any, found: int, expected: int) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{str(dtype)[6:]} {list(size)}] is at version {found}; expected version {expected} instead. It was packed by varve.torch.offload")


class _Learned(NamedTuple):
    """The observed behaviour of a tape of these sizes."""

    sizes: tuple[int, ...]
    indices: tuple[int, ...]  # index of each tensor's GPU
    order: tuple[int, ...]  # order in which the tensors came back
    stayed: int  # bytes that were not written
    clocks: tuple[_Clock, ...]  # of the first passes


class _Clock:
    """The compute time of one tape's forward pass up to each packed tensor: events around the pass and around each put,
    whose time does not count."""

    def __init__(self) -> None:
        self.index = torch.cuda.current_device()
        self.thread = threading.get_ident()
        self.events: list[Any] = []
        self.usable = True
        self.record(self.index)

    def record(self, index: int) -> None:
        # Times of two GPUs, or of two threads with their own streams, cannot be added.
        self.usable = self.usable and index == self.index and self.thread == threading.get_ident()
        if self.usable:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(index))
            self.events.append(event)

    def seconds(self) -> Optional[list[float]]:
        """The times of each tensor and of the pass. None: not known, or not yet."""
        if not self.usable or len(self.events) % 2 or not self.events[-1].query():
            return None
        return list(itertools.accumulate(a.elapsed_time(b) / 1e3 for a, b in zip(self.events[::2], self.events[1::2])))


class _Tape:
    """One `with`: the tensors that its thread packed, and the order in which they come back."""

    def __init__(self, owner: Offload, base: int, expected: Optional[_Learned], stays: set[int]) -> None:
        self.owner, self.base, self.expected, self.stays = owner, base, expected, stays
        self.lock = threading.Lock()
        self.sizes: list[int] = []
        self.indices: list[int] = []
        self.order: list[int] = []
        timed = (owner._auto or owner._budget is not None) and (expected is None or len(expected.clocks) < _CLOCKS)
        self.clock = _Clock() if timed else None
        self.left: set[Any] = set()  # restored tensors that stay, because others may view them, too
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, _unpack)

    def pack(self, tensor: Any) -> Any:
        owner = self.owner
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes < owner.minimum or not owner._wants(tensor):
            return _stays(tensor)
        storage = _storage_of(tensor)
        low, high, dense = self._range(tensor, storage, nbytes)
        if high <= low or storage._cdata in owner._futile:
            return _stays(tensor)
        state = tensor._version
        key = (self.base, storage._cdata, storage.data_ptr(), low, high, state)
        view = _View(tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset() * tensor.element_size() - low)
        saved = owner._live.get(key)
        if saved is None:
            saved = None if key in self.left else self._new(tensor, storage, low, high, state)
            if saved is None:
                self.left.add(key)
                return _stays(tensor)
            saved.view = view if dense else None
            owner._live[key] = saved
        elif saved.view != view:
            saved.view = None
        saved.uses += 1
        return saved, view

    @staticmethod
    def _range(tensor: Any, storage: Any, nbytes: int) -> tuple[int, int, bool]:
        """The range of the storage to write, or none if it is mostly gaps; and True if the tensor is exactly this range."""
        if tensor.is_contiguous() or _is_dense(tuple(tensor.shape), tensor.stride()):
            low = tensor.storage_offset() * tensor.element_size()
            return low, low + nbytes, True
        total = storage.nbytes()
        return (0, total, False) if total <= 4 * nbytes else (0, 0, False)

    def _new(self, tensor: Any, storage: Any, low: int, high: int, state: int) -> Optional[_Saved]:
        """Writes a version; None: the tensor stays in memory."""
        store = self.owner._store(tensor)
        with self.lock:  # backward within the `with` packs in the threads of autograd
            i = len(self.sizes)
            self.sizes.append(high - low)
            self.indices.append(store.index)
        if self.clock is not None:
            self.clock.record(store.index)
        rc = None if i in self.stays else store.put(self.base + i, storage.data_ptr() + low, high - low)
        if self.clock is not None:
            self.clock.record(store.index)
        if rc is None:
            return None
        if rc in _NO_ROOM:
            self.owner._no_room(rc, store)
            return None
        if rc != 0:
            raise failed(rc, store.context._ptr)
        # A tensor without memory that shares the version counter.
        probe = tensor.detach()
        probe.data = store.empty
        return _Saved(store, self.base + i, high - low, low, StorageWeakRef(storage), probe, state, self)

    def came_back(self, saved: _Saved) -> None:
        self.order.append(saved.version - self.base)
        if len(self.order) == len(self.sizes) - len(self.stays):  # the last of them
            self.owner._look()
        if not saved.weak.expired():
            # Others hold its memory, so writing it freed nothing: it stays the next time.
            self.owner._futile[saved.weak.cdata] = saved.weak

    def learned(self) -> _Learned:
        """Tensors that never came back are expected last."""
        seen = set(self.order)
        rest = [i for i in reversed(range(len(self.sizes))) if i not in seen]
        sizes = tuple(self.sizes)
        clocks = self.expected.clocks if self.expected is not None and self.expected.sizes == sizes else ()
        if self.clock is not None:
            clocks = (*clocks, self.clock)
        return _Learned(sizes, tuple(self.indices), (*self.order, *rest), sum(sizes[i] for i in self.stays if i < len(sizes)), clocks)


def _stays(tensor: Any) -> Any:
    """The tensor without its autograd history, which may refer back to its saver: such a cycle would never be freed."""
    return (tensor if tensor.is_leaf else tensor.detach()), tensor._version, None


def _unpack(packed: Any) -> Any:
    if len(packed) == 2:
        saved, view = packed
        return saved.get(view)
    tensor, version, _ = packed
    if tensor._version != version:
        raise _modified(tensor.dtype, tensor.shape, tensor._version, version)
    return tensor


class Offload:
    """See offload(). The object is kept from step to step: it has the caches and the learned orders."""

    def __init__(self, settings: dict[str, Any], tensors: str, minimum: int, keep: Optional[int], budget: Optional[int],
                 wanted: Optional[Callable[[torch.Tensor], bool]]) -> None:
        self.minimum = minimum
        self._settings, self._tensors, self._budget, self._wanted = settings, tensors, budget, wanted
        self._stores: dict[int, _Store] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._next = 0
        self._learned: dict[tuple[int, ...], _Learned] = {}
        self._latest: Optional[_Learned] = None
        self._finished: list[_Tape] = []  # tapes whose order must still be learned
        self._live: weakref.WeakValueDictionary[Any, _Saved] = weakref.WeakValueDictionary()
        self._futile: dict[int, Any] = {}
        self._auto = keep is None and budget is None
        self._keep_bytes = keep or 0
        self._judged: Optional[_Learned] = None  # the step that the last choice of bytes to keep was based on
        self._chosen: tuple[tuple[int, ...], frozenset[int]] = ((), frozenset())  # sizes of a tape, and the tensors that stay under a budget
        self._peak = self._judged_peak = 0  # peak memory of a GPU including the device cache; and the peak at the last choice
        self._warned = False
        self._closed = False

    # ---- which tensors ----

    def _wants(self, tensor: Any) -> bool:
        if type(tensor) is not _Tensor or tensor.device.type != self._tensors or tensor.layout is not torch.strided:
            return False
        if tensor.is_leaf and tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
            return False  # conjugate and negative views differ from their memory, nested tensors have no shape
        base = tensor._base
        if base is not None and (isinstance(base, _Parameter) or (base.is_leaf and base.requires_grad)):
            return False
        return self._wanted is None or bool(self._wanted(tensor))

    def _store(self, tensor: Any) -> _Store:
        index = tensor.get_device() if tensor.is_cuda else -1
        store = self._stores.get(index)
        if store is None:
            with self._lock:
                if self._closed:
                    raise ClosedError("the offload was closed")
                store = self._stores.get(index)
                if store is None:
                    store = self._stores[index] = _Store(index, self._settings)
        return store

    def _no_room(self, rc: int, store: _Store) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"varve.torch.offload: {failed(rc, store.context._ptr)}; tensors stay in memory", stacklevel=4)

    # ---- steps ----

    def _learn(self) -> None:
        """Learns from tapes whose tensors came back. Others may still do so."""
        waiting = []
        for tape in self._finished:
            if tape.order:
                found = tape.learned()
                self._learned.pop(found.sizes, None)
                self._learned[found.sizes] = found
                self._latest = found
            elif tape.sizes:
                waiting.append(tape)
        self._finished = waiting[-_LEARNED_MAX:]
        while len(self._learned) > _LEARNED_MAX:
            del self._learned[next(iter(self._learned))]

    def _forget(self) -> None:
        for cdata in [c for c, weak in list(self._futile.items()) if weak.expired()]:
            del self._futile[cdata]
        if not self._live:
            for store in list(self._stores.values()):
                lib.varve_hint_clear(store.pointer)

    def _stays(self, expected: Optional[_Learned]) -> set[int]:
        """The tensors of a tape that are not written."""
        if expected is None:
            return set()
        if self._auto:
            return self._beyond_link(expected)
        keep = self._keep_bytes
        if self._budget is not None:
            times = self._times(expected)
            if times is None and any(clock.usable for clock in expected.clocks):
                return set()  # the first pass has not ended yet
            keep = self._within_budget(expected)
            if times is not None and expected.indices[0] in self._stores:
                return self._spread(expected, times, keep)
        stays = set()
        for i in reversed(range(len(expected.sizes))):
            if expected.sizes[i] <= keep:
                stays.add(i)
                keep -= expected.sizes[i]
        return stays

    @staticmethod
    def _times(expected: _Learned) -> Optional[list[float]]:
        """The compute time of the forward pass at each tensor, and at its end. None: not known."""
        known = [s for s in (clock.seconds() for clock in expected.clocks) if s]
        # The first pass also loads kernels and allocates memory: use the shortest time.
        return min(known, key=lambda s: s[-1]) if known else None

    def _room(self, expected: _Learned) -> int:
        """Bytes that the device cache can take, independent of the link."""
        store = self._stores[expected.indices[0]]
        return int(store.context.stats()["tier_bytes"][0]) - max(expected.sizes)

    def _beyond_link(self, expected: _Learned) -> set[int]:
        """The tensors that would have to wait: earlier ones still fill the device cache, because the link has not moved them
        by then."""
        times = self._times(expected)
        store = self._stores.get(expected.indices[0]) if expected.indices else None
        if times is None or store is None:
            return set()
        link, room = _LINK_SHARE * store.link(), self._room(expected)
        written, stays = 0, set()
        for i, size in enumerate(expected.sizes):
            if written + size <= room + link * times[i]:
                written += size
            else:
                stays.add(i)
        return stays

    def _spread(self, expected: _Learned, times: list[float], keep: int) -> set[int]:
        """Chooses `keep` bytes evenly from the whole forward pass, so that the link is equally loaded at all times. Tensors that have
        stayed stay again: replacing them could raise the peak by more than the increase of `keep`."""
        sizes, total = expected.sizes, sum(expected.sizes)
        before = self._chosen[1] if self._chosen[0] == sizes else frozenset()
        room = max(0, min(self._room(expected), total - keep))
        rate = (total - keep - room) / times[-1] if times[-1] > 0 else 0.0
        written, stays = 0, set()
        for i, size in enumerate(sizes):
            if i in before or written + size > room + rate * times[i]:
                stays.add(i)
            else:
                written += size
        excess = total - written - keep
        for i in sorted(stays, key=lambda i: (i in before, -i)):
            if excess <= 0:
                break
            stays.discard(i)
            excess -= sizes[i]
        self._chosen = (sizes, frozenset(stays))
        return stays

    def _within_budget(self, expected: _Learned) -> int:
        """One more byte that stays raises the peak by at most one, or by none if the peak is elsewhere in the step. So the room that
        the last step left may be used, step by step. The peak never falls, so each byte counts only once."""
        self._look()
        if expected is not self._judged:
            self._judged = expected
            room = (self._budget or 0) - self._peak
            if room > 0:
                self._keep_bytes = expected.stayed + int(0.95 * room)
            elif self._peak > self._judged_peak:
                self._keep_bytes = max(0, expected.stayed + room)
            self._judged_peak = self._peak
        return self._keep_bytes

    def _look(self) -> None:
        """Records the peak. It is also read within steps, because programs reset PyTorch's peak between steps."""
        if self._budget is not None:
            stores = list(self._stores.values())
            self._peak = max([self._peak, *(torch.cuda.max_memory_allocated(s.index) + s.context.stats()["tier_bytes"][0] for s in stores)])

    def _hint(self, base: int, found: _Learned, stays: set[int]) -> None:
        for i in found.order:
            store = self._stores.get(found.indices[i])
            if store is not None and i not in stays:
                varve._lib.check(lib.varve_hint(store.pointer, base + i))

    def __enter__(self) -> Offload:
        with self._lock:
            if self._closed:
                raise ClosedError("the offload was closed")
            self._learn()
            self._forget()
            base, self._next = self._next, self._next + _TAPE_VERSIONS
            expected = self._latest
        stays = self._stays(expected)
        tape = _Tape(self, base, expected, stays)
        if expected is not None:
            self._hint(base, expected, stays)
        stack = self._local.__dict__.setdefault("stack", [])
        tape.hooks.__enter__()
        stack.append(tape)
        return self

    def __exit__(self, *exception: Any) -> None:
        tape: _Tape = self._local.stack.pop()
        tape.hooks.__exit__(*exception)
        del tape.hooks
        self._look()
        if tape.clock is not None:
            tape.clock.record(tape.clock.index)
        tape.left.clear()
        sizes = tuple(tape.sizes)
        if tape.expected is None or tape.expected.sizes != sizes:
            # The tape is not the expected one: use its learned order, or else the reverse order.
            for store in list(self._stores.values()):
                lib.varve_hint_clear(store.pointer)
            found = self._learned.get(sizes) or tape.learned()
            self._hint(tape.base, found, tape.stays)
        with self._lock:
            self._finished.append(tape)

    def stats(self) -> dict[str, Any]:
        """The library's figures for each device, and the number of versions that exist."""
        return {"live": len(self._live), **{str(s.device): s.context.stats() for s in list(self._stores.values())}}

    def close(self) -> None:
        """Frees the caches. Tensors of a graph that are still here are lost: backward raises."""
        with self._lock:
            self._closed = True
            stores, self._stores = self._stores, {}
        for store in stores.values():
            store.context.close()


def offload(device_cache: Bytes = "1G", host_cache: Bytes = "8G", local: Optional[Union[str, os.PathLike[str]]] = None, *,
            tensors: Optional[str] = None, minimum: Bytes = "1M", keep: Bytes = 0, budget: Optional[Bytes] = None,
            wanted: Optional[Callable[[torch.Tensor], bool]] = None, **settings: Any) -> Offload:
    """What autograd saves in `with offload:` is kept in a device cache, a host cache and a local folder (without one, what fits
    neither cache stays in the GPU's memory), and comes back ahead of the backward pass.

    tensors   "cuda" or "cpu": tensors in this memory are taken; by default "cuda" if there is a GPU
    minimum   smallest size of a tensor that is taken
    keep      from the second step on, this many bytes of the last layers' tensors stay where they are. "auto": instead, those tensors
              stay that the link to host memory cannot move while the forward pass computes, so that offload costs hardly any time;
              for one GPU
    budget    of GPU memory, for what PyTorch allocates and the device cache together. Instead of `keep`: as many bytes stay as the
              budget allows, of all layers alike
    wanted    a function of a tensor that returns True if the tensor may be taken
    settings  more of docs/config.md
    """
    if tensors is None:
        tensors = "cuda" if torch.cuda.is_available() else "cpu"
    if tensors not in ("cuda", "cpu"):
        raise ValueError(f'tensors is "cuda" or "cpu", not {tensors!r}')
    given = {"device_cache": device_cache, "host_cache": host_cache, "local": local, **settings}
    if tensors == "cpu" and "device" not in settings:
        del given["device_cache"]
    if budget is not None and tensors != "cuda":
        raise ValueError("budget: it is GPU memory, and needs tensors on a GPU")
    if keep == "auto" and (tensors != "cuda" or budget is not None):
        raise ValueError('keep="auto": it needs tensors on a GPU, and cannot be combined with a budget')
    options(None, given)  # an unknown setting raises here, not in the first forward pass
    return Offload(given, tensors, _bytes_of("minimum", minimum), None if keep == "auto" else _bytes_of("keep", keep),
                   None if budget is None else _bytes_of("budget", budget), wanted)
