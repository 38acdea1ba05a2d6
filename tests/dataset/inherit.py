# SPDX-License-Identifier: Apache-2.0
"""Two nodes on this machine. A program opens files, on the local disk and of the other node, and gives them to programs
that it starts, as their standard input. These get the same device, inode, mode, owner and times by descriptor as by
path, whether a file was fetched by the open or before it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
VARVE = str(BUILD / "bin/varve")
FILES = 24
FORMAT = "%d %i %f %h %u %g %s %Y %Z"
PROGRAM = """
import os, subprocess, sys
def output(command, fd):
    return subprocess.run(command, stdin=fd, check=True, capture_output=True, text=True).stdout
wrong, memory = 0, 0
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    memory += os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:")
    by_path = output(["stat", "-L", "-c", sys.argv[1], path], fd)
    by_link = output(["stat", "-L", "-c", sys.argv[1], "/proc/self/fd/0"], fd)
    by_number = output([sys.executable, "-c", "import os; s = os.fstat(0); print(s.st_dev, s.st_ino, s.st_size)"], fd)
    st = os.stat(path)
    if by_path != by_link or by_number.split() != [str(st.st_dev), str(st.st_ino), str(st.st_size)]:
        print(f"{path}: {by_path}{by_link}{by_number}")
        wrong += 1
    os.close(fd)
print("memory", memory, "wrong", wrong)
"""


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def status(socket):
    done = subprocess.run([VARVE, "cached", "--socket", socket, "status", "--json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def start(base, root, processes):
    sockets = {name: str(base / f"socket-{name}") for name in "ab"}
    for name in "ab":
        log = open(base / f"log-{name}", "w")
        processes.append(subprocess.Popen(
            [VARVE, "cached", "--node", name, "--listen", "127.0.0.1:0", "--meet", base / "meet", "--socket", sockets[name],
             "--cache", base / f"cache-{name}", "--roots", root, "--capacity", "1M", "--low", "5",
             "--revalidate", "0", "--transport", "tcp"], stdout=log, stderr=log))
    for _ in range(9000):
        all_status = [status(socket) for socket in sockets.values()]
        if all(s and s["nodes_up"] == 2 for s in all_status):
            return sockets
        if any(p.poll() is not None for p in processes):
            break
        time.sleep(0.02)
    fail("the nodes do not see each other:\n" + "".join((base / f"log-{name}").read_text() for name in "ab"))


def main(base, processes):
    root = base / "shared"
    root.mkdir()
    paths = [str(root / f"file-{i}") for i in range(FILES)]
    for i, path in enumerate(paths):
        pathlib.Path(path).write_bytes(os.urandom(5000 + i))
    sockets = start(base, root, processes)
    # Half of them are fetched before any open, which is answered without waiting from the first one on.
    subprocess.run([VARVE, "cached", "--socket", sockets["a"], "preload", *paths[::2]], check=True, stdout=subprocess.DEVNULL)
    while sum(status(socket)["files"] for socket in sockets.values()) < len(paths[::2]):
        time.sleep(0.02)
    environment = {**os.environ, "LD_PRELOAD": str(BUILD / "lib/libvarve-preload.so"), "VARVE_CACHED_SOCKET": sockets["a"],
                   "VARVE_PRELOAD_PATIENCE": "60000"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, FORMAT] + paths, env=environment, capture_output=True, text=True,
                          timeout=300)
    words = done.stdout.split()[-4:]
    if done.returncode != 0 or len(words) != 4 or words[3] != "0":
        fail(f"{done.stdout}{done.stderr}")
    if not 0 < int(words[1]) < FILES:
        fail(f"{words[1]} of {FILES} files were in memory: both kinds are needed")
    print(f"{FILES} files, {words[1]} of them in memory: the same by path and by descriptor")


if os.environ.get("VARVE_SANITIZE"):
    print("not under a sanitizer, which is not preloaded into programs")
    sys.exit(77)
folder, started = pathlib.Path(tempfile.mkdtemp(prefix="varve-inherit-")), []
try:
    main(folder, started)
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
