# SPDX-License-Identifier: Apache-2.0
"""Stand-in for torch.distributed.checkpoint if PyTorch has none: the part of its protocol that storages use, in the order of
its calls, for one process or for several that run one after the other."""
import dataclasses
import enum
import io
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import torch


@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Optional[tuple] = None
    index: Optional[int] = dataclasses.field(hash=False, compare=False, default=None)


@dataclasses.dataclass
class Metadata:
    state_dict_metadata: dict
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Any = None


class WriteItemType(enum.Enum):
    TENSOR = 1
    SHARD = 2
    BYTE_IO = 3


class LoadItemType(enum.Enum):
    TENSOR = 1
    BYTE_IO = 2


@dataclasses.dataclass(frozen=True)
class WriteItem:
    index: MetadataIndex
    type: WriteItemType
    tensor_data: Any = None


@dataclasses.dataclass(frozen=True)
class ReadItem:
    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: tuple
    storage_index: MetadataIndex
    storage_offsets: tuple
    lengths: tuple


@dataclasses.dataclass(frozen=True)
class SavePlan:
    items: list
    storage_data: Any = None
    planner_data: Any = None


@dataclasses.dataclass
class LoadPlan:
    items: list
    storage_data: Any = None
    planner_data: Any = None


@dataclasses.dataclass(frozen=True)
class WriteResult:
    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class Shard:
    """A rank's rows of a tensor."""

    def __init__(self, local, first, rows):
        self.local, self.first, self.rows = local, first, rows


def flat(state, prefix=""):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class SavePlanner:
    def __init__(self, state, shards):
        self.state, self.shards = dict(flat(state)), shards

    def plan(self):
        items = []
        for fqn, value in self.state.items():
            kind = WriteItemType.BYTE_IO
            if isinstance(value, torch.Tensor):
                kind = WriteItemType.SHARD if fqn in self.shards else WriteItemType.TENSOR
            offset = (self.shards[fqn],) if fqn in self.shards else None
            items.append(WriteItem(MetadataIndex(fqn, offset), kind, tuple(value.shape) if isinstance(value, torch.Tensor) else None))
        return SavePlan(items)

    def resolve_data(self, item):
        value = self.state[item.index.fqn]
        if item.type != WriteItemType.BYTE_IO:
            return value.detach()
        out = io.BytesIO()
        torch.save(value, out)
        return out


class LoadPlanner:
    def __init__(self, state, metadata):
        self.state, self.metadata = state, metadata

    def plan(self):
        items = []
        for fqn, value in flat(self.state):
            for index in (i for i in self.metadata.storage_data if i.fqn == fqn):
                if not isinstance(value, (torch.Tensor, Shard)):
                    items.append(ReadItem(LoadItemType.BYTE_IO, index, (0,), index, (0,), (0,)))
                    continue
                mine = value.first if isinstance(value, Shard) else 0
                local = value.local if isinstance(value, Shard) else value
                there = index.offset[0] if index.offset else 0
                shape = self.metadata.state_dict_metadata[index]
                first, last = max(mine, there), min(mine + local.shape[0], there + shape[0]) if shape else 0
                if not shape:
                    items.append(ReadItem(LoadItemType.TENSOR, index, (), index, (), ()))
                elif last > first:
                    rest = tuple(shape[1:])
                    items.append(ReadItem(LoadItemType.TENSOR, MetadataIndex(fqn), (first - mine, *[0] * len(rest)), index,
                                          (first - there, *[0] * len(rest)), (last - first, *rest)))
        return LoadPlan(items)

    def _find(self, fqn):
        at = self.state
        *above, last = fqn.split(".")
        for key in above:
            at = at[key]
        return at, last

    def load_bytes(self, item, value):
        at, key = self._find(item.dest_index.fqn)
        at[key] = torch.load(value)

    def resolve_tensor(self, item):
        at, key = self._find(item.dest_index.fqn)
        tensor = at[key].local if isinstance(at[key], Shard) else at[key]
        for dim, (start, length) in enumerate(zip(item.dest_offsets, item.lengths)):
            tensor = tensor.narrow(dim, start, length)
        return tensor

    def commit_tensor(self, item, tensor):
        pass


class StorageWriter:
    pass


class StorageReader:
    pass


def save(state, checkpoint_id=None, storage_writer=None, ranks=None):
    """`ranks`: [(state, {fqn: first row})] of several, each with a writer of its own; `state` and `storage_writer` of one."""
    ranks = ranks or [(state, {}, storage_writer)]
    for _, _, writer in ranks:
        writer.reset(checkpoint_id)
    plans, results, shapes = [], [], {}
    for i, (part, shards, writer) in enumerate(ranks):
        writer.set_up_storage_writer(i == 0)
        planner = SavePlanner(part, shards)
        plan = writer.prepare_local_plan(planner.plan())
        shapes.update({item.index: item.tensor_data for item in plan.items})
        plans.append((planner, plan))
    final = ranks[0][2].prepare_global_plan([p for _, p in plans])
    for (_, _, writer), (planner, _), plan in zip(ranks, plans, final):
        done = writer.write_data(plan, planner)
        done.wait()
        results.append(done.value())
    ranks[0][2].finish(metadata=Metadata(shapes), results=results)


def async_save(state, *, checkpoint_id=None, storage_writer=None, async_stager=None):
    staged = async_stager.stage(state)
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(save, staged, checkpoint_id, storage_writer)
    pool.shutdown(wait=False)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return future


def load(state, *, checkpoint_id=None, storage_reader=None):
    storage_reader.reset(checkpoint_id)
    metadata = storage_reader.read_metadata()
    planner = LoadPlanner(state, metadata)
    storage_reader.set_up_storage_reader(metadata, True)
    plan = storage_reader.prepare_global_plan([storage_reader.prepare_local_plan(planner.plan())])[0]
    done = storage_reader.read_data(plan, planner)
    done.wait()


def install():
    """Installs it as the modules that varve.torch.checkpoint imports. Returns the functions for tests."""
    here = sys.modules[__name__]
    assert threading
    names = "torch.distributed.checkpoint"
    for part in ("", ".metadata", ".planner", ".storage"):
        module = types.ModuleType(names + part)
        module.__dict__.update({k: v for k, v in vars(here).items() if not k.startswith("_")})
        sys.modules[names + part] = module
    return here
