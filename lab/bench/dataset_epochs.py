#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Epochs over a data set with three daemons on one machine, beside plain reads of the same files.

  dataset_epochs.py [--bin FOLDER] [--dir FOLDER] [--files N] [--bytes N] [--epochs N] [--revalidate S] [--readers LIST] [--memory SIZE]
                    [--least] [ROW...]

Rows: all (every node has room for all files), third (for a third of them), ahead (the same, and the node is given the
order of each epoch before it begins; `memory` is --memory), large (the first open of a large file) and stat; all five by
default. Plain and cached epochs take turns, so that both see the same machine; medians of the epochs
from the second on are compared, and every byte is. Readers are programs in C (bench_dataset_read) and Python, with one
process and with eight, on one of the three nodes. Processor time is that of the readers, and with the cache of the three
daemons too.

Needs FOLDER/varve, FOLDER/bench_dataset_read, FOLDER/../lib/libvarve-preload.so and python3 without further modules: from a
portable build, python3 bench/dataset_epochs.py --bin build/portable/bin. Takes one to three minutes.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BLOCK = 4096


def make_base():
    x, base = 1, bytearray()
    for _ in range(BLOCK):
        x = (x * 1103515245 + 12345) & 0xffffffff
        base.append(x >> 16 & 0xff)
    return bytes(base)


BASE = make_base()


def content(number, size):
    blocks = (size + BLOCK - 1) // BLOCK
    return b"".join((number << 32 | b).to_bytes(8, "little") + BASE[8:] for b in range(blocks))[:size]


def read_share(job):
    folder, numbers, size = job
    for number in numbers:
        with open(f"{folder}/{number:06}.bin", "rb", buffering=0) as f:
            data = f.read()
        if data != content(number, size):
            sys.exit(f"{folder}/{number:06}.bin: other bytes than were written")


def order_of(language, seed, files):
    """The order in which a reader reads, the same in all of its processes."""
    order = list(range(files))
    if language == "Python":
        random.Random(seed).shuffle(order)
        return order
    for i in range(files, 1, -1):
        seed = (seed * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
        k = (seed >> 33) % i
        order[i - 1], order[k] = order[k], order[i - 1]
    return order


def reader(folder, files, size, procs):
    """The same as bench_dataset_read, for lines "epoch SEED". Expected bytes are made before the clock starts."""
    expected = {n: content(n, size) for n in range(files)}
    globals()["content"] = lambda n, _: expected[n]
    with multiprocessing.get_context("fork").Pool(procs) as pool:
        for line in sys.stdin:
            order = order_of("Python", int(line.split()[1]), files)
            begin = time.monotonic()
            pool.map(read_share, [(folder, order[i::procs], size) for i in range(procs)], chunksize=1)
            print(f"{time.monotonic() - begin:.6f}", flush=True)


def cpu_seconds(pid):
    """The sum over a process and its running children."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    user, system = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, children))


class Program:
    def __init__(self, command, env):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def do(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline()
        if not answer:
            sys.exit("dataset_epochs.py: a reader failed")
        return float(answer)

    def end(self):
        self.p.stdin.close()
        if self.p.wait() != 0:
            sys.exit("dataset_epochs.py: a reader failed")


class Bench:
    def __init__(self, o):
        self.o = o
        self.build = pathlib.Path(o.bin).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="varve-epochs.", dir=o.dir))
        self.data = self.dir / "data"
        self.data.mkdir()
        self.names, self.pids = [], []
        for n in range(o.files):
            (self.data / f"{n:06}.bin").write_bytes(content(n, o.bytes))

    def varve(self, *words, check=True):
        return subprocess.run([self.build / "varve", "cached", *map(str, words)], check=check, text=True,
                              stdout=subprocess.PIPE, stderr=None if check else subprocess.DEVNULL).stdout

    def start(self, capacity, memory="256M"):
        self.names, self.pids = ["a", "b", "c"], []
        for name in self.names:
            pid = self.varve("--daemon", "--node", name, "--listen", "127.0.0.1:0", "--meet", self.dir / "meet",
                             "--roots", self.data, "--cache", self.dir / name, "--capacity", capacity,
                             "--socket", self.dir / f"{name}.sock", "--log", self.dir / f"{name}.log",
                             "--revalidate", self.o.revalidate, "--memory", memory)
            self.pids.append(int(pid))
        for _ in range(300):
            if self.varve("status", "--socket", self.dir / "a.sock").startswith("a: 3 of 3"):
                return
            time.sleep(0.1)
        sys.exit("dataset_epochs.py: the daemons do not find each other")

    def stop(self):
        for name in self.names:
            self.varve("stop", "--socket", self.dir / f"{name}.sock", check=False)
            shutil.rmtree(self.dir / name, ignore_errors=True)
        shutil.rmtree(self.dir / "meet", ignore_errors=True)
        self.names = []

    def status(self, name="a"):
        return json.loads(self.varve("status", "--json", "--socket", self.dir / f"{name}.sock"))

    def program(self, language, procs, cached, node="a"):
        env = dict(os.environ)
        if cached:
            env["LD_PRELOAD"] = str(self.build.parent / "lib" / "libvarve-preload.so")
            env["VARVE_CACHED_SOCKET"] = str(self.dir / f"{node}.sock")
        words = [self.data, self.o.files, self.o.bytes, procs]
        if language == "C":
            return Program([self.build / "bench_dataset_read", *map(str, words)], env)
        return Program([sys.executable, __file__, "--reader", *map(str, words)], env)

    def tell(self, language, epoch):
        paths = "".join(f"{self.data}/{n:06}.bin\n" for n in order_of(language, epoch, self.o.files))
        subprocess.run([self.build / "varve", "cached", "preload", "--here", "--socket", self.dir / "a.sock", "-"], check=True,
                       text=True, input=paths, stdout=subprocess.DEVNULL)

    def epochs(self, room, capacity, memory, ahead=False):
        self.start(capacity, memory)
        first = self.program("C", 1, True)
        begin = time.monotonic()
        first.do("epoch 0")
        print(f"room for {room}: epoch 1 took {time.monotonic() - begin:.2f} s", flush=True)
        first.do("epoch 1")
        first.end()
        for who in self.o.readers.split(","):
            language, procs = who.split(":")
            plain, cached = self.program(language, procs, False), self.program(language, procs, True)
            plain.do("epoch 1")
            cached.do("epoch 1")
            pids = ([plain.p.pid], [cached.p.pid] + self.pids)
            before = [sum(map(cpu_seconds, of)) for of in pids]
            times = []
            for e in range(2, 2 + self.o.epochs):
                if ahead:
                    self.tell(language, e)
                times.append((plain.do(f"epoch {e}"), cached.do(f"epoch {e}")))
            spent = [(sum(map(cpu_seconds, of)) - b) * 1e6 / self.o.files / self.o.epochs for of, b in zip(pids, before)]
            plain.end()
            cached.end()
            p, c = (statistics.median(t[i] for t in times) for i in (0, 1))
            p, c = (min(t[i] for t in times) for i in (0, 1)) if self.o.least else (p, c)
            print(f"room for {room}: {language:6} {procs} processes: {self.o.files / p:8.0f} files/s plain, "
                  f"{self.o.files / c:8.0f} cached: {p / c:.2f} x; processor time of a file "
                  f"{spent[0]:.0f} and {spent[1]:.0f} us", flush=True)
        print(self.varve("status", "--socket", self.dir / "a.sock"), flush=True)
        self.stop()

    def large(self):
        path = self.data / "large.bin"
        with open(path, "wb") as f:
            f.truncate(self.o.large)
        time.sleep(1.1)
        self.start(4 * self.o.large)
        for node in self.names:
            plain, cached = self.program("C", 1, False), self.program("C", 1, True, node)
            cached.do("stat")
            print(f"first open of {self.o.large >> 20} MiB at {node}: {cached.do(f'open {path}') * 1e3:.2f} ms, "
                  f"plain {plain.do(f'open {path}') * 1e3:.2f} ms", flush=True)
            plain.end()
            cached.end()
        self.stop()
        path.unlink()

    def stats(self):
        self.start(4 * self.o.files * self.o.bytes)
        plain, cached = self.program("C", 1, False), self.program("C", 1, True)
        cached.do("epoch 0")
        times = [(plain.do("stat"), cached.do("stat")) for _ in range(self.o.epochs)]
        p, c = (statistics.median(t[i] for t in times) for i in (0, 1))
        print(f"stat of a cached path: {c:.2f} us, plain {p:.2f} us", flush=True)
        plain.end()
        cached.end()
        self.stop()


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "--reader":
        reader(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
        return
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default="build/bin")
    p.add_argument("--dir", default="/var/tmp")
    p.add_argument("--files", type=int, default=2000)
    p.add_argument("--bytes", type=int, default=100 << 10)
    p.add_argument("--epochs", type=int, default=9)
    p.add_argument("--revalidate", type=int, default=5)
    p.add_argument("--memory", default="64M", help="of the row ahead; half of it holds files that were brought")
    p.add_argument("--least", action="store_true", help="compare the shortest epochs, on a busy machine")
    p.add_argument("--readers", default="C:1,C:8,Python:1,Python:8")
    p.add_argument("--large", type=int, default=4 << 30)
    p.add_argument("rows", nargs="*", default=["all", "third", "ahead", "large", "stat"])
    o = p.parse_args()
    b = Bench(o)
    total = o.files * (o.bytes + BLOCK - 1) // BLOCK * BLOCK
    try:
        if "all" in o.rows:
            b.epochs("all", total * 5 // 4, "256M")
        if "third" in o.rows:
            b.epochs("a third", total * 38 // 100, 0)
        if "ahead" in o.rows:
            b.epochs("a third, order known", total * 38 // 100, o.memory, ahead=True)
        if "large" in o.rows:
            b.large()
        if "stat" in o.rows:
            b.stats()
    finally:
        b.stop()
        shutil.rmtree(b.dir)


if __name__ == "__main__":
    main()
