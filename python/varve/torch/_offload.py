# SPDX-License-Identifier: Apache-2.0
"""Activations as a history: pack is a checkpoint on the stream of the forward pass, unpack a restore on that of the backward.

What holds:
- One `with` is one tape. Its tensors have consecutive versions, from a number that no other tape uses, so that the order in which
  they come back can be hinted before they are written.
- Bytes are written once however many tensors view them: a `_Saved` stands for a range of a storage in one state. It is known by the
  storage's address, the range and the version counter, within its tape; a weak reference keeps the address from being used again.
- The version lives as long as the `_Saved`, which autograd keeps as long as it may ask for it. Nothing else ends it, so that
  retain_graph, double backward and forgotten graphs need no rule of their own.
- A wrong order costs time. Nothing here depends on it.
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
from .._lib import ClosedError, failed, lib

_TAPE_VERSIONS = 1 << 32
_LEARNED_MAX = 16
_NO_ROOM = (-errno.ENOSPC, -errno.EFBIG)
_serial = itertools.count()
_region = _layout.varve_region
_byref = ctypes.byref
_discard = lib.varve_discard
_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
Bytes = Union[int, str]


def _bytes_of(size: Bytes) -> int:
    """A size as the library reads it."""
    if isinstance(size, int):
        return size
    opts = _layout.varve_opts()
    varve._lib.check(lib.varve_opts_init(_byref(opts), ctypes.sizeof(opts)))
    varve._lib.check(lib.varve_opts_set(_byref(opts), b"host_cache", size.encode()))
    return int(opts.host_cache)


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
    """Whether the elements fill one piece of memory, in any order of the dimensions."""
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
        self.weak = weak  # of the storage
        self.probe, self.state = probe, state  # has the version counter, and what it said
        self.uses = self.gets = 0  # times that it was packed, and unpacked
        # Restored, and wanted by others still: the tensor, what it is, and on which stream it is.
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
        """The tensor itself, where its memory has not gone: others hold it, too."""
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
        # One view that is all there is: memory of just that kind. Others are cut out of bytes.
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
    """What a tape of these sizes did."""

    sizes: tuple[int, ...]
    indices: tuple[int, ...]  # of the GPU of each
    order: tuple[int, ...]  # in which they came back


class _Tape:
    """One `with`: what was packed, by the thread that entered it, and the order in which it comes back."""

    def __init__(self, owner: Offload, base: int, expected: Optional[_Learned], keep_from: int) -> None:
        self.owner, self.base, self.expected, self.keep_from = owner, base, expected, keep_from
        self.lock = threading.Lock()
        self.sizes: list[int] = []
        self.indices: list[int] = []
        self.order: list[int] = []
        self.left: set[Any] = set()  # what stays of those that were wanted: others may view it, too
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
        """The bytes of the storage that are written, none: too much of it would be gaps; and whether the tensor is just these."""
        if tensor.is_contiguous() or _is_dense(tuple(tensor.shape), tensor.stride()):
            low = tensor.storage_offset() * tensor.element_size()
            return low, low + nbytes, True
        total = storage.nbytes()
        return (0, total, False) if total <= 4 * nbytes else (0, 0, False)

    def _new(self, tensor: Any, storage: Any, low: int, high: int, state: int) -> Optional[_Saved]:
        """Writes a version; None: it stays where it is."""
        store = self.owner._store(tensor)
        with self.lock:  # backward within the `with` packs in the threads of autograd
            i = len(self.sizes)
            self.sizes.append(high - low)
            self.indices.append(store.index)
        if i >= self.keep_from:
            return None
        rc = store.put(self.base + i, storage.data_ptr() + low, high - low)
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
        if not saved.weak.expired():
            # Somebody else holds its memory: it was not worth taking away, and stays the next time.
            self.owner._futile[saved.weak.cdata] = saved.weak

    def learned(self) -> _Learned:
        """Those that never came back are expected last."""
        seen = set(self.order)
        rest = [i for i in reversed(range(len(self.sizes))) if i not in seen]
        return _Learned(tuple(self.sizes), tuple(self.indices), (*self.order, *rest))


def _stays(tensor: Any) -> Any:
    """Without its history, which may lead back to whom it is saved for: nothing would free the two of them."""
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
    """See offload(). The object is kept from step to step: it has the caches, and what was learned."""

    def __init__(self, settings: dict[str, Any], tensors: str, minimum: int, keep: int, budget: Optional[int],
                 wanted: Optional[Callable[[torch.Tensor], bool]]) -> None:
        self.minimum = minimum
        self._settings, self._tensors, self._budget, self._wanted = settings, tensors, budget, wanted
        self._stores: dict[int, _Store] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._next = 0
        self._learned: dict[tuple[int, ...], _Learned] = {}
        self._latest: Optional[_Learned] = None
        self._finished: list[_Tape] = []  # whose order has still to be learned
        self._live: weakref.WeakValueDictionary[Any, _Saved] = weakref.WeakValueDictionary()
        self._futile: dict[int, Any] = {}
        self._keep_bytes = None if budget is not None else keep
        self._warned = False
        self._closed = False

    # ---- which tensors ----

    def _wants(self, tensor: Any) -> bool:
        if type(tensor) is not _Tensor or tensor.device.type != self._tensors or tensor.layout is not torch.strided:
            return False
        if tensor.is_leaf and tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
            return False  # conjugate and negative views are not what their memory holds, nested ones have no shape
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
            warnings.warn(f"varve.torch.offload: {failed(rc, store.context._ptr)}; tensors stay where they are", stacklevel=4)

    # ---- steps ----

    def _learn(self) -> None:
        """From tapes that came back. Others may still do so."""
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

    def _keep_from(self, expected: Optional[_Learned]) -> int:
        """The last tensors of a tape stay where they are: as many bytes as was said, or as the budget has room for."""
        if expected is None or not (self._budget or self._keep_bytes):
            return _TAPE_VERSIONS
        keep = self._keep_bytes or 0
        if self._budget is not None:
            peak = max((torch.cuda.max_memory_allocated(i) for i in list(self._stores)), default=0)
            cache = max((s.context.stats()["tier_bytes"][0] for s in list(self._stores.values())), default=0)
            room = self._budget - cache - peak
            self._keep_bytes = keep = int(0.95 * room) if self._keep_bytes is None else keep + min(room, 0)
        i = len(expected.sizes)
        while i > 0 and keep >= expected.sizes[i - 1]:
            i -= 1
            keep -= expected.sizes[i]
        return i

    def _hint(self, base: int, found: _Learned, keep_from: int) -> None:
        for i in found.order:
            store = self._stores.get(found.indices[i])
            if store is not None and i < keep_from:
                varve._lib.check(lib.varve_hint(store.pointer, base + i))

    def __enter__(self) -> Offload:
        with self._lock:
            if self._closed:
                raise ClosedError("the offload was closed")
            self._learn()
            self._forget()
            base, self._next = self._next, self._next + _TAPE_VERSIONS
            expected = self._latest
        keep_from = self._keep_from(expected)
        tape = _Tape(self, base, expected, keep_from)
        if expected is not None:
            self._hint(base, expected, keep_from)
        stack = self._local.__dict__.setdefault("stack", [])
        tape.hooks.__enter__()
        stack.append(tape)
        return self

    def __exit__(self, *exception: Any) -> None:
        tape: _Tape = self._local.stack.pop()
        tape.hooks.__exit__(*exception)
        del tape.hooks
        tape.left.clear()
        sizes = tuple(tape.sizes)
        if tape.expected is None or tape.expected.sizes != sizes:
            # Another tape than was expected: its order was learned before, or it is the reverse one.
            for store in list(self._stores.values()):
                lib.varve_hint_clear(store.pointer)
            found = self._learned.get(sizes) or tape.learned()
            self._hint(tape.base, found, tape.keep_from)
        with self._lock:
            self._finished.append(tape)

    def stats(self) -> dict[str, Any]:
        """The library's figures for each device, and how many versions are alive."""
        return {"live": len(self._live), **{str(s.device): s.context.stats() for s in list(self._stores.values())}}

    def close(self) -> None:
        """Gives the caches back. Tensors that a graph still has here cannot be had any more: backward raises."""
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

    tensors   "cuda" or "cpu": whose are taken; "cuda" where there is a GPU
    minimum   smaller ones stay
    keep      so many bytes of what the last layers save stay where they are, from the second step on
    budget    of GPU memory, for what PyTorch allocates and the device cache together: in place of `keep`, as much stays as this
              allows
    wanted    a function that says of a tensor whether it may be taken
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
        raise ValueError("a budget is of GPU memory")
    return Offload(given, tensors, _bytes_of(minimum), _bytes_of(keep), None if budget is None else _bytes_of(budget), wanted)
