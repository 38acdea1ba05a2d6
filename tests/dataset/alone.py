# SPDX-License-Identifier: Apache-2.0
"""Programs and daemons hardly use the shared file system: their system calls, counted by strace.

Two nodes on this machine, both traced from their start; their files were read once. Then a program, also traced, opens,
reads, maps and stats all of them in many ways, those on the disk of its own node and those of the other one:
  - no call of the program names a file of the shared file system, or has a descriptor of one;
  - the daemons, together, check a file at most once in `revalidate` seconds, with one stat and one resolution of its path;
    and not at all where files never change, or where the interval is longer than the test.
The same program without the library shows that such calls would be seen.

Nothing depends on speed: checks of one file begin an interval apart, so in a period of T there are at most
T / interval + 1 of them, however long a loaded machine makes T. If a node was taken for gone, the try is repeated."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
VARVE = os.environ.get("VARVE_BIN", str(BUILD / "bin/varve"))
LIBRARY = str(BUILD / "lib/libvarve-preload.so")
FILES = 12
TRIES = 10
STRACE = ["strace", "-f", "-y", "-qq", "-s", "0"]  # no text of buffers; all names
CALLS = "trace=%file,%desc"
# The calls for each file. os.path.exists and the like are stat; md5sum uses fopen, cp compares path and descriptor.
PROGRAM = """
import mmap, os, subprocess, sys
root, names, there = sys.argv[1], sys.argv[2].split(), sys.argv[3]
def read(fd):
    st = os.fstat(fd)
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as m:
        assert len(os.read(fd, 1 << 20)) == len(os.pread(fd, 1 << 20, 0)) == len(m) == st.st_size
    os.lseek(fd, 0, os.SEEK_SET)
    os.close(os.dup(fd))
    os.close(fd)
folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
os.chdir(root)
for name in names:
    path = root + "/" + name
    assert os.stat(path).st_size > 0 and os.access(path, os.R_OK) and os.path.isfile(path) and os.path.exists(path)
    assert name.endswith("link") or os.lstat(path).st_size > 0
    read(os.open(path, os.O_RDONLY))
    read(os.open(root + "//./" + name, os.O_RDONLY | os.O_CLOEXEC))
    read(os.open(name, os.O_RDONLY))
    read(os.open(name, os.O_RDONLY, dir_fd=folder))
    assert os.stat(name, dir_fd=folder).st_ino == os.stat(name).st_ino
    with open(path, "rb") as f:
        f.read()
    if os.fork() == 0:
        read(os.open(path, os.O_RDONLY))
        os._exit(0)
    assert os.wait()[1] == 0
os.chdir("/")
paths = [root + "/" + name for name in names]
for command in (["cat"], ["md5sum"], ["stat", "-L"], ["wc", "-c"]):
    subprocess.run(command + paths, check=True, stdout=subprocess.DEVNULL)
for i, path in enumerate(paths):
    subprocess.run(["cp", "-L", path, f"{there}/{i}"], check=True)
"""


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def skip(why):
    print(why)
    sys.exit(77)


class Node:
    """A daemon under strace. It is ended by its own process id; strace ends with it."""

    def __init__(self, base, name, revalidate):
        self.name, self.socket, self.trace = name, str(base / f"socket-{name}"), base / f"trace-{name}"
        self.log = base / f"log-{name}"
        # A slow node must not be taken for gone.
        command = [VARVE, "cached", "--node", name, "--listen", "127.0.0.1:0", "--meet", base / "meet", "--socket", self.socket,
                   "--cache", base / f"cache-{name}", "--roots", base / "shared", "--capacity", "64M", "--revalidate", revalidate,
                   "--transport", "tcp", "--period", 5000, "--patience", 60000]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(STRACE + ["-e", CALLS, "-o", str(self.trace), "--"] + [str(c) for c in command],
                                            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})

    def status(self):
        done = subprocess.run([VARVE, "cached", "--socket", self.socket, "status", "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def stop(self):
        if self.process.poll() is not None:
            fail(f"{self.name} has ended:\n{self.log.read_text()}")
        subprocess.run([VARVE, "cached", "--socket", self.socket, "stop"], check=True, stdout=subprocess.DEVNULL)
        if self.process.wait() != 0:
            fail(f"{self.name} ended with {self.process.returncode}:\n{self.log.read_text()}")

    def kill(self):
        """Ends the daemon first, if it still runs: strace only detaches when it is ended."""
        if self.process.poll() is None:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for pid in children:
                os.kill(int(pid), signal.SIGKILL)
            self.process.wait()


class Alone:
    def __init__(self, base, revalidate):
        self.base, self.root, self.revalidate = base, base / "shared", revalidate
        self.names = [f"sample-{i}" for i in range(FILES)] + ["sample-link"]
        self.nodes = []

    def start(self):
        self.root.mkdir()
        (self.base / "copies").mkdir()
        for i, name in enumerate(self.names[:-1]):
            (self.root / name).write_bytes(os.urandom(5000 + 1000 * i))
        (self.root / self.names[-1]).symlink_to(self.names[0])
        self.nodes += [Node(self.base, name, self.revalidate) for name in "ab"]
        while not all(s and s["nodes_up"] == 2 for s in [n.status() for n in self.nodes]):
            for n in self.nodes:
                if n.process.poll() is not None:
                    fail(f"{n.name} has ended:\n{n.log.read_text()}")
            time.sleep(0.02)

    def run(self, library=True, trace=None):
        """Runs the program; returns its calls if it is traced."""
        env = {**os.environ, "VARVE_CACHED_SOCKET": self.nodes[0].socket, "VARVE_PRELOAD_PATIENCE": "600000"}
        command = [sys.executable, "-S", "-c", PROGRAM, str(self.root), " ".join(self.names), str(self.base / "copies")]
        if trace:
            command = STRACE + ["-e", CALLS, "-o", str(trace)] + (["-E", f"LD_PRELOAD={LIBRARY}"] if library else []) + command
        elif library:
            env["LD_PRELOAD"] = LIBRARY
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"the program ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return trace.read_text().splitlines() if trace else None

    def figures(self):
        """A value that changes when a node is taken for gone."""
        return [(s["epoch"], s["views_total"], s["nodes_up"]) for s in (n.status() for n in self.nodes)]

    def looks(self, since):
        """Counts calls of the daemons for each file, from positions in their traces on: path -> [resolutions, stats, others]."""
        found = {name: [0, 0, 0] for name in self.names}
        for n, at in zip(self.nodes, since):
            with open(n.trace) as f:
                f.seek(at)
                for line in f:
                    call = re.match(r"\d+ +(\w+)\(", line)
                    name = re.search(r"/(sample-\w+)[\">]", line)
                    if not call or not name:
                        continue
                    # "/proc/self/fd/N" opens the file that was resolved; a link's target is checked under its own name.
                    kind = 0 if "O_PATH" in line else 1 if "stat" in call[1] else 3 if call[1] == "close" else 2
                    if kind < 3:
                        found[name[1]][kind] += 1
        return found

    def measure(self):
        """Runs the program once all is cached. Returns its calls, the daemons' calls, and an upper bound of the seconds."""
        for _ in range(TRIES):
            self.run()
            before, since, begun = self.figures(), [n.trace.stat().st_size for n in self.nodes], time.monotonic()
            calls = self.run(trace=self.base / "trace")
            while self.revalidate == 1 and time.monotonic() - begun < 2.5:
                self.run()
            seconds, found = time.monotonic() - begun, self.looks(since)
            if self.figures() == before:
                return calls, found, seconds
        fail(f"{TRIES} times a node was taken for gone")


def below(lines, what):
    """Calls that name `what`. strace also shows the folder that a program is in; for an absolute path that is left
    out."""
    return [line for line in lines if what in re.sub(r'AT_FDCWD<[^>]*>(?=, "/)', "", line)]


def check(base, revalidate):
    test = Alone(base, revalidate)
    try:
        test.start()
        plain = test.run(library=False, trace=base / "plain")
        for name in test.names:
            if len(below(plain, name)) < 10:
                fail(f"of {name} only {len(below(plain, name))} calls were seen without the library")
        test.run()
        first = test.looks([0, 0])
        for name in test.names[:-1]:
            if min(first[name]) == 0:
                fail(f"{name} was fetched, and only {first[name]} calls of the daemons were seen")
        calls, found, seconds = test.measure()
        if below(calls, "sample-"):
            fail("the program asked the shared file system:\n" + "\n".join(below(calls, "sample-")[:20]))
        folder = [line for line in below(calls, str(test.root)) if " getcwd(" not in line]
        if len(folder) != 2:
            fail("the program may only open its folder and change to it:\n" + "\n".join(folder[:20]))
        if len(calls) < 20 * FILES:
            fail(f"only {len(calls)} calls of the program were seen")
        most = int(seconds / revalidate) + 1 if revalidate == 1 else 0
        # A link and its target are two paths, and calls by descriptor look the same for both.
        for name, (resolved, stats, others) in found.items():
            times = 2 if name == test.names[0] else 1
            if resolved > most or stats > times * most or others > 0:
                fail(f"{name}: in {seconds:.3f} s the daemons resolved it {resolved} times, had {stats} stats, {others} others")
        if revalidate == 1 and sum(stats for _, stats, _ in found.values()) == 0:
            fail("no file was checked again")
        for n in test.nodes:
            n.stop()
        print(f"revalidate {revalidate}: {len(calls)} calls of the program, none of them for a file; "
              f"{sum(s for _, s, _ in found.values())} checks by the daemons of {len(test.names)} paths in {seconds:.1f} s")
    finally:
        for n in test.nodes:
            n.kill()


if os.environ.get("VARVE_SANITIZE") and not os.environ.get("VARVE_TEST_LONG"):
    skip("the calls are the same without a sanitizer")
if not shutil.which("strace"):
    skip("no strace")
if subprocess.run(STRACE + ["-e", CALLS, "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
    skip("strace cannot trace here")
folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-alone-"))
try:
    for interval in (0, 86400, 1):
        (folder / str(interval)).mkdir()
        check(folder / str(interval), interval)
finally:
    shutil.rmtree(folder, ignore_errors=True)
