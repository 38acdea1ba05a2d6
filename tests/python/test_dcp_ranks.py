# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint by several processes: three save tensors that they share, two and four load them, and a
save in which one process is killed does not exist. Needs PyTorch with DTensor; its processes connect by gloo, on loopback."""
import os
import signal
import subprocess
import sys
import unittest

import common

torch = common.need("torch")
try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from torch.distributed.device_mesh import init_device_mesh
except ImportError as e:
    print(f"skipped: PyTorch {torch.__version__} has no DTensor ({e})")
    sys.exit(77)
from varve.torch import checkpoint  # noqa: E402

KILLED = -signal.SIGKILL


def state(seed, mesh):
    g = torch.Generator().manual_seed(seed)
    rows, columns, whole = torch.randn(37, 50, generator=g), torch.randn(8, 1001, generator=g), torch.randn(11, generator=g)
    return {"rows": distribute_tensor(rows, mesh, [Shard(0)]), "columns": distribute_tensor(columns, mesh, [Shard(1)]),
            "whole": distribute_tensor(whole, mesh, [Replicate()]), "plain": torch.full((3,), float(seed)), "step": seed}


def load(folder, seed, mesh):
    found, want = state(999, mesh), state(seed, mesh)
    reader = checkpoint.StorageReader(folder, host_cache="32M")
    dcp.load(found, checkpoint_id=str(seed), storage_reader=reader)
    for name in ("rows", "columns", "whole"):
        assert torch.equal(found[name].full_tensor(), want[name].full_tensor()), name
    assert torch.equal(found["plain"], want["plain"]) and found["step"] == seed
    reader.close()


def save(folder, seed, mesh, action):
    writer = checkpoint.StorageWriter(folder, host_cache="32M", keep=3)
    s = state(seed, mesh)
    if action == "kill" and torch.distributed.get_rank() == torch.distributed.get_world_size() - 1:
        write = writer.write_data
        writer.write_data = lambda *args: (write(*args).wait(), os.kill(os.getpid(), signal.SIGKILL))
    if action == "async":
        future = dcp.async_save(s, checkpoint_id=str(seed), storage_writer=writer, async_stager=checkpoint.AsyncStager(writer))
        for name in ("rows", "columns", "whole"):
            s[name].to_local().zero_()  # training goes on
        future.result()
    else:
        dcp.save(s, checkpoint_id=str(seed), storage_writer=writer)
    writer.close()


def rank_main(folder, steps):
    """One process, started with the variables of a launcher."""
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for action, seed in (step.split(":") for step in steps):
        if action == "load":
            load(folder, int(seed), mesh)
        else:
            save(folder, int(seed), mesh, action)
    torch.distributed.destroy_process_group()


class Ranks(common.Case):
    def run_ranks(self, world, *steps):
        """The exit statuses, and the output of the processes."""
        env = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000),
               "OMP_NUM_THREADS": "1"}
        ranks, said = [], ""
        try:
            for rank in range(world):
                with open(self.path(f"rank-{rank}"), "wb") as out:
                    ranks.append(subprocess.Popen([sys.executable, __file__, self.path("run"), *steps], env={**env, "RANK": str(rank)},
                                                  stdout=out, stderr=out))
            if steps[-1].startswith("kill"):
                ranks[-1].wait(240)
                for r in ranks[:-1]:
                    r.kill()  # they may wait for it
            status = [r.wait(240) for r in ranks]
        finally:
            for r in ranks:
                r.kill()
                r.wait()
        for rank in range(world):
            with open(self.path(f"rank-{rank}"), encoding="utf-8") as out:
                said += f"rank {rank}: {out.read()[-1500:]}\n"
        return status, said

    def test_other_numbers_of_ranks(self):
        for world, steps in ((3, ("save:1", "async:2", "load:1")), (1, ("load:1", "load:2")), (2, ("load:1", "load:2")),
                             (4, ("load:1", "load:2"))):
            status, said = self.run_ranks(world, *steps)
            self.assertEqual(status, [0] * world, said)

    def test_one_is_killed(self):
        status, said = self.run_ranks(3, "save:1", "kill:2")
        self.assertEqual(status[-1], KILLED, said)
        reader = checkpoint.StorageReader(self.path("run"))
        self.assertEqual(reader.checkpoints(), ["1"])
        reader.close()
        status, said = self.run_ranks(2, "load:1", "save:3", "load:3")
        self.assertEqual(status, [0] * 2, said)


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) > 2:
        rank_main(sys.argv[1], sys.argv[2:])
    else:
        common.main()
