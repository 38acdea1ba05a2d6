# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint in histories: asynchronous, checksummed, and whole or not at all after a kill.

    from varve.torch.checkpoint import AsyncStager, StorageReader, StorageWriter
    writer = StorageWriter("/scratch/run", host_cache="40G", keep=2)
    saved = dcp.async_save(state, checkpoint_id=step, storage_writer=writer, async_stager=AsyncStager(writer))
    ...
    dcp.load(state, checkpoint_id=step, storage_reader=StorageReader("/scratch/run"))

Invariants:
- Each rank writes a history of its own, `NAME.RANK`. A save has a serial number there; the numbers of its versions are made of the
  serial number and a count. The coordinator's index, the history `NAME.index`, has one version for each checkpoint, written last: a
  save that it does not list never happened, and its versions are removed by the next save.
- Staging writes: the bytes go to the host cache on the training stream, and from there to disk. The stager's result has
  tensors without memory (device "meta") in the place of the real ones; `write_data` knows them by their storages, and waits.
- A history is locked only while a save or a load works on it, so that other ranks can read it at other times.
"""
from __future__ import annotations

import contextlib
import copy
import ctypes
import errno
import io
import json
import os
import pathlib
import pickle
import threading
import time
from typing import Any, Iterator, NamedTuple, Optional, Union

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader as _Reader
from torch.distributed.checkpoint.storage import StorageWriter as _Writer
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import varve

from .. import _layout
from .._lib import lib
from ._offload import _storage_of, _stream_of

Id = Union[str, int, os.PathLike[str], None]
_COUNT_BITS = 24
_GROUP_BYTES = 1 << 29
_GROUP_REGIONS = 4096
_LOCKED_SECONDS = 600.0


class Stored(NamedTuple):
    """The place of an item, in the metadata: a region, and the tensor within it."""

    rank: int
    version: int
    region: int
    nbytes: int
    dtype: Optional[torch.dtype] = None  # None: bytes
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0  # elements


class _Part(NamedTuple):
    pointer: int
    nbytes: int
    device: bool


def _rank() -> int:
    dist = torch.distributed
    return int(dist.get_rank()) if dist.is_available() and dist.is_initialized() else 0


class _Place:
    """A folder with checkpoints: all readers and writers of this process share one context."""

    _all: dict[tuple[str, str], _Place] = {}
    _all_lock = threading.Lock()

    def __init__(self, settings: dict[str, Any], name: str) -> None:
        self.context = varve.open(**settings)
        self.name = name
        self.users = 0
        self.lock = threading.RLock()
        self.open: dict[str, list[Any]] = {}  # histories, and the number of their users
        # Serials of this process's saves that may still be added to the index, by rank.
        self.pending: dict[int, set[int]] = {}

    @classmethod
    def take(cls, path: Union[str, os.PathLike[str]], name: str, settings: dict[str, Any]) -> _Place:
        folder = os.path.realpath(path)
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with cls._all_lock:
            place = cls._all.get((folder, name))
            if place is None or place.context.closed:
                device = "cuda" if torch.cuda.is_available() else "none"
                given = {"device": device, "device_cache": 0, "level": "local", **settings, "local": folder}
                if given["device"] == "cuda":
                    torch.cuda.current_stream().synchronize()  # creates the GPU's context
                place = cls._all[folder, name] = cls(given, name)
            place.users += 1
            return place

    def give_back(self) -> None:
        with self._all_lock:
            self.users -= 1
            if self.users > 0 or self.context.closed:
                return
            for key in [k for k, v in self._all.items() if v is self]:
                del self._all[key]
        self.context.close()

    @contextlib.contextmanager
    def history(self, suffix: Union[str, int]) -> Iterator[varve.History]:
        """A history that is open while it is used. Retries while another process has it open."""
        key = f"{self.name}.{suffix}"
        deadline = time.monotonic() + _LOCKED_SECONDS
        while True:
            try:
                with self.lock:
                    entry = self.open.get(key)
                    if entry is None:
                        entry = self.open[key] = [self.context.history(key), 0]
                    entry[1] += 1
                break
            except varve.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        try:
            yield entry[0]
        finally:
            with self.lock:
                entry[1] -= 1
                if entry[1] == 0:
                    del self.open[key]
                    if not self.context.closed:
                        entry[0].close()

    def index(self, history: varve.History) -> list[tuple[int, dict[str, Any]]]:
        """The complete checkpoints, in the order of writing."""
        found = []
        for version in history:
            head = ctypes.create_string_buffer(history._stored(version)[0])
            _restore(history, version, [(0, ctypes.addressof(head), len(head))])
            found.append((version, json.loads(head.raw)))
        return found


def _regions(parts: list[tuple[int, int, int]]) -> Any:
    regions = (_layout.varve_region * len(parts))()
    for region, (number, pointer, nbytes) in zip(regions, sorted(parts)):
        region.region, region.ptr, region.bytes = number, pointer or None, nbytes
    return regions


def _restore(history: varve.History, version: int, parts: list[tuple[int, int, int]]) -> None:
    regions = _regions(parts)
    with history._using() as h:
        history._check(lib.varve_restore_to(h, version, regions, len(parts), -1))


class _Save:
    """One save of this rank, in versions of a few hundred megabytes each."""

    def __init__(self, place: _Place, rank: int) -> None:
        self.place, self.rank = place, rank
        self.stack = contextlib.ExitStack()
        self.history = self.stack.enter_context(place.history(rank))
        try:
            with place.lock:
                there = self.history.versions()
                self.pending = place.pending.setdefault(rank, set())
                self.serial = max([0, *self.pending, *(v >> _COUNT_BITS for v in there)]) + 1
                self._sweep(there)
                self.pending.add(self.serial)
        except BaseException:
            self.stack.close()
            raise
        self.count = 0
        self.group: list[_Part] = []
        self.keep: list[Any] = []  # objects that the group points to
        self.known: dict[tuple[int, int], tuple[int, int]] = {}
        self.staged: dict[int, tuple[Any, int, int, int]] = {}  # placeholders by storage: object, version, region, bytes

    def _sweep(self, there: list[int]) -> None:
        """Removes versions of unfinished saves, and of saves whose checkpoint was removed."""
        with self.place.history("index") as index:
            listed = {head["serials"].get(str(self.rank), 0) for _, head in self.place.index(index)}
        self.pending.difference_update({s for s in self.pending if s <= max(listed, default=0)})
        for version in there:
            if version >> _COUNT_BITS not in listed | self.pending:
                self.history.discard(version)

    def add(self, pointer: int, nbytes: int, device: bool, keep: Any) -> tuple[int, int]:
        """Adds bytes and returns their place: version and region. They are read when the group is full or flushed."""
        known = self.known.get((pointer, nbytes))
        if known is not None and nbytes:
            return known
        if self.group and (self.group[0].device != device or len(self.group) >= _GROUP_REGIONS or
                           sum(p.nbytes for p in self.group) + nbytes > _GROUP_BYTES):
            self.flush()
        self.group.append(_Part(pointer, nbytes, device))
        self.keep.append(keep)
        at = self.serial << _COUNT_BITS | self.count, len(self.group) - 1
        self.known[pointer, nbytes] = at
        return at

    def add_tensor(self, tensor: torch.Tensor) -> tuple[int, int, torch.Tensor]:
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        return (*self.add(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor.is_cuda, tensor), tensor)

    def flush(self) -> None:
        if not self.group:
            return
        regions = _regions([(i, p.pointer, p.nbytes) for i, p in enumerate(self.group)])
        version = self.serial << _COUNT_BITS | self.count
        with self.history._using() as h:
            if self.group[0].device:
                stream = _stream_of(self.keep[0].get_device())
                rc = lib.varve_checkpoint_of_on(h, version, regions, len(regions), stream, -1)
            else:
                rc = lib.varve_checkpoint_of(h, version, regions, len(regions), -1)
            self.history._check(rc)
        self.group, self.keep, self.count = [], [], self.count + 1
        # Memory that is freed now may be reused by another tensor.
        self.known = {}

    def wait(self) -> None:
        """Waits until all versions of the save have reached the level."""
        self.flush()
        for i in range(self.count):
            self.history.wait(self.serial << _COUNT_BITS | i)

    def end(self, done: bool = False) -> None:
        with self.place.lock:
            if not done:
                self.pending.discard(self.serial)
        self.stack.close()


class StorageWriter(_Writer):  # type: ignore[misc]
    """Writes checkpoints into a folder, which all ranks must share if other ranks are to read them. `keep`: number of checkpoints
    to keep, 0: all. Other settings are those of varve.open: `level="remote", remote=...` keeps a second copy elsewhere."""

    def __init__(self, path: Union[str, os.PathLike[str]], *, name: str = "dcp", keep: int = 0, host_cache: Union[int, str] = "8G",
                 **settings: Any) -> None:
        super().__init__()
        self._place = _Place.take(path, name, {"host_cache": host_cache, **settings})
        self._keep = keep
        self._local = threading.local()  # async_save names the next checkpoint while its thread writes the previous one
        self._saves: list[_Save] = []  # staged, not written yet
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        raise TypeError("a StorageWriter of varve belongs to this process: use async_save with threads, which is its default")

    # ---- staging ----

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Puts all tensors into the history, after the work of the current stream. Later work may change them."""
        save = _Save(self._place, _rank())
        try:
            copied: dict[str, Any] = _staged(state_dict, save)
            save.flush()
        except BaseException:
            save.end()
            raise
        with self._lock:
            self._saves.append(save)
        return copied

    def _save_of(self, plan: SavePlan, planner: SavePlanner) -> _Save:
        """The save that staged the plan's tensors, or a new one."""
        with self._lock:
            for item in plan.items:
                if self._saves and item.type != WriteItemType.BYTE_IO:
                    data = planner.resolve_data(item)
                    if isinstance(data, torch.Tensor) and data.is_meta:
                        cdata = _storage_of(data)._cdata
                        for save in self._saves:
                            if cdata in save.staged:
                                self._saves.remove(save)
                                return save
                    break
            if self._saves:
                return self._saves.pop(0)
        return _Save(self._place, _rank())

    # ---- the protocol ----

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        return isinstance(checkpoint_id, (str, int, os.PathLike))

    def reset(self, checkpoint_id: Id = None) -> None:
        self._local.id = "" if checkpoint_id is None else str(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """All ranks do the same."""

    def storage_meta(self) -> Any:
        return None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        save = self._save_of(plan, planner)
        try:
            results = []
            for item in plan.items:
                data = planner.resolve_data(item)
                stored = _write_tensor(save, data.detach()) if isinstance(data, torch.Tensor) else _write_bytes(save, data)
                results.append(WriteResult(index=item.index, size_in_bytes=stored.nbytes, storage_data=(save.serial, stored)))
            save.wait()
        except BaseException:
            save.end()
            raise
        save.end(done=True)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        where: dict[MetadataIndex, Stored] = {}
        serials: dict[str, int] = {}
        for result in (r for rank in results for r in rank):
            serial, stored = result.storage_data
            where[result.index] = stored
            serials[str(stored.rank)] = serial
        metadata.storage_data = where
        name = getattr(self._local, "id", "")
        head = json.dumps({"varve": 1, "id": name, "serials": serials}).encode()
        texts = [ctypes.create_string_buffer(text, len(text)) for text in (head, pickle.dumps(metadata))]
        with self._place.history("index") as index:
            there = self._place.index(index)
            version = max((v for v, _ in there), default=0) + 1
            regions = _regions([(i, ctypes.addressof(t), len(t)) for i, t in enumerate(texts)])
            with index._using() as h:
                index._check(lib.varve_checkpoint_of(h, version, regions, len(texts), -1))
            index.wait(version)
            # From here on the checkpoint counts, and older ones may be removed.
            others = [v for v, found in there if found["id"] != name]
            if self._keep:
                others = others[max(len(others) - self._keep + 1, 0):]
            for old in {v for v, _ in there} - set(others):
                index.discard(old)

    def close(self) -> None:
        """Frees the cache when no user of the folder is left in this process. Saves that were staged but not written are dropped."""
        with self._lock:
            saves, self._saves = self._saves, []
        for save in saves:
            save.end()
        self._place.give_back()


class AsyncStager:
    """For async_save: staging writes directly into the writer's history."""

    _synchronize_after_execute = False

    def __init__(self, writer: StorageWriter) -> None:
        self._writer = writer

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._writer.stage(state_dict)

    def synchronize_staging(self) -> None:
        """Does not wait: the copies are ordered in the stream."""

    def close(self) -> None:
        """Does nothing: the writer owns all resources."""


def _staged(value: Any, save: _Save) -> Any:
    if isinstance(value, torch.Tensor):
        return _placeholder(value, save)
    if isinstance(value, dict):
        return {k: _staged(v, save) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_staged(v, save) for v in value)
    return copy.deepcopy(value)


def _placeholder(tensor: Any, save: _Save) -> Any:
    """A tensor of the same kind without memory; its storage identifies the bytes in the save."""
    local = getattr(tensor, "_local_tensor", None)
    if local is not None and hasattr(tensor, "_spec"):  # a DTensor
        return type(tensor)(_placeholder(local, save), tensor._spec, requires_grad=False)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"a {type(tensor).__name__} cannot be staged: give async_save no stager, or tensors and DTensors only")
    version, region, whole = save.add_tensor(tensor.detach())
    empty = torch.empty(whole.shape, dtype=whole.dtype, device="meta")
    storage = _storage_of(empty)
    save.staged[storage._cdata] = (empty, version, region, whole.numel() * whole.element_size())
    return empty


def _write_tensor(save: _Save, tensor: torch.Tensor) -> Stored:
    if tensor.is_meta:
        found = save.staged.get(_storage_of(tensor)._cdata)
        if found is None:
            raise ValueError("a tensor without memory: it was not staged by this writer")
        _, version, region, nbytes = found
        return Stored(save.rank, version, region, nbytes, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    version, region, whole = save.add_tensor(tensor)
    return Stored(save.rank, version, region, whole.numel() * whole.element_size(), whole.dtype, tuple(whole.shape), whole.stride())


def _write_bytes(save: _Save, data: io.BytesIO) -> Stored:
    raw = data.getvalue()
    text = ctypes.create_string_buffer(raw, max(len(raw), 1))
    version, region = save.add(ctypes.addressof(text), len(raw), False, text)
    return Stored(save.rank, version, region, len(raw))


class StorageReader(_Reader):  # type: ignore[misc]
    """Reads checkpoints that a StorageWriter wrote, by any number of ranks. Without an id: the newest."""

    def __init__(self, path: Union[str, os.PathLike[str]], *, name: str = "dcp", host_cache: Union[int, str] = "1G", **settings: Any) -> None:
        super().__init__()
        self._place = _Place.take(path, name, {"host_cache": host_cache, **settings})
        self._id: Optional[str] = None
        self._where: dict[MetadataIndex, Stored] = {}

    def checkpoints(self) -> list[str]:
        """The ids of the complete checkpoints, oldest first."""
        with self._place.history("index") as index:
            return [head["id"] for _, head in self._place.index(index)]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        return isinstance(checkpoint_id, (str, int, os.PathLike))

    def reset(self, checkpoint_id: Id = None) -> None:
        self._id = None if checkpoint_id is None else str(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with self._place.history("index") as index:
            found = [v for v, head in self._place.index(index) if self._id is None or head["id"] == self._id]
            if not found:
                what = "no checkpoint" if self._id is None else f"no checkpoint {self._id!r}"
                raise varve.NotFoundError(errno.ENOENT, f"{what} is complete in {self._place.name}")
            text = ctypes.create_string_buffer(index._stored(found[-1])[1])
            _restore(index, found[-1], [(1, ctypes.addressof(text), len(text))])
        metadata: Metadata = pickle.loads(text.raw)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._where = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted: dict[int, dict[int, list[Any]]] = {}
        for item in plan.items:
            stored = self._where[item.storage_index]
            wanted.setdefault(stored.rank, {}).setdefault(stored.version, []).append((stored, item))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()  # tensors that are read into may still be in use
        for rank in sorted(wanted):
            with self._place.history(rank) as history:
                history.hint(sorted(wanted[rank]))
                for version in sorted(wanted[rank]):
                    self._read_version(history, version, wanted[rank][version], planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read_version(self, history: varve.History, version: int, items: list[Any], planner: LoadPlanner) -> None:
        """Reads all needed regions of a version in one call: each into its own memory, and from there to its tensors."""
        memory: dict[int, torch.Tensor] = {}
        straight: dict[int, Any] = {}
        for stored, item in items:
            target = None
            if item.type != LoadItemType.BYTE_IO and sum(s.region == stored.region for s, _ in items) == 1:
                target = planner.resolve_tensor(item).detach()
            if target is not None and _fits(stored, item, target):
                memory[stored.region], straight[stored.region] = target, target
            elif stored.region not in memory:
                memory[stored.region] = torch.empty(stored.nbytes, dtype=torch.uint8)
        _restore(history, version, [(n, t.data_ptr(), t.numel() * t.element_size()) for n, t in memory.items()])
        for stored, item in items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(memory[stored.region].numpy().tobytes()))
                continue
            target = straight.get(stored.region)
            if target is None:
                target = planner.resolve_tensor(item).detach()
                whole = memory[stored.region].view(stored.dtype).as_strided(stored.size, stored.stride, stored.offset)
                for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                    whole = whole.narrow(dim, start, length)
                target.copy_(whole)
            planner.commit_tensor(item, target)

    def close(self) -> None:
        self._place.give_back()


def _fits(stored: Stored, item: Any, target: torch.Tensor) -> bool:
    """True if the region can be read directly into the tensor."""
    whole = not any(item.storage_offsets) and tuple(item.lengths) == stored.size and stored.offset == 0
    return (whole and target.dtype == stored.dtype and tuple(target.shape) == stored.size and target.is_contiguous()
            and not target.is_conj() and not target.is_neg()
            and _is_contiguous(stored) and target.numel() * target.element_size() == stored.nbytes > 0
            and target.device.type in ("cpu", "cuda"))


def _is_contiguous(stored: Stored) -> bool:
    step = 1
    for n, length in zip(reversed(stored.size), reversed(stored.stride)):
        if n != 1 and length != step:
            return False
        step *= n
    return True


