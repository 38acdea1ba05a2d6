# SPDX-License-Identifier: Apache-2.0
"""Many programs that open files as fast as they can: no descriptor and no memory is lost, in them or in the daemon.

With VARVE_TEST_LONG 64 of them for ten minutes, else 16 for three seconds. How many opens a second that was is told."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
LONG = bool(os.environ.get("VARVE_TEST_LONG"))
CLIENTS, SECONDS, FILES = (64, 600, 400) if LONG else (16, 3, 100)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def resources(pid):
    """Descriptors, and bytes of memory that are the process's own."""
    private = sum(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Private_"))
    return len(os.listdir(f"/proc/{pid}/fd")), private * 1024


def main(base, started):
    root, socket = base / "shared", base / "door"
    root.mkdir()
    reader = str(BUILD / "tests/dataset/reader")
    subprocess.run([reader, "make", root, str(FILES), "20000"], check=True)
    daemon = subprocess.Popen([BUILD / "bin/varve", "cached", "--roots", root, "--cache", base / "cache", "--capacity", "64M",
                               "--socket", socket, "--revalidate", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    started.append(daemon)
    while not socket.exists():
        if daemon.poll() is not None:
            fail(f"no daemon: {daemon.stdout.read().decode()}")
        time.sleep(0.02)
    environment = {**os.environ, "LD_PRELOAD": str(BUILD / "lib/libvarve-preload.so"), "VARVE_CACHED_SOCKET": str(socket)}
    subprocess.run([reader, "once", root, str(FILES)], check=True, env=environment, stdout=subprocess.DEVNULL)
    clients = [subprocess.Popen([reader, "read", root, str(FILES), str(i), base / "stop"], env=environment,
                                stdout=subprocess.PIPE, text=True) for i in range(CLIENTS)]
    started.extend(clients)
    time.sleep(SECONDS / 3)
    first, first_client = resources(daemon.pid), resources(clients[0].pid)
    time.sleep(SECONDS * 2 / 3)
    last, last_client = resources(daemon.pid), resources(clients[0].pid)
    (base / "stop").touch()
    opened = cached = 0
    for client in clients:
        out, _ = client.communicate(timeout=120)
        if client.returncode != 0:
            fail(f"a reader ended with {client.returncode}")
        said = json.loads(out)
        opened, cached = opened + said["files"], cached + said["cached"]
    time.sleep(1)
    idle = resources(daemon.pid)
    print(f"{CLIENTS} programs, {SECONDS} s: {opened / SECONDS:.0f} opens a second, {opened / SECONDS / os.cpu_count():.0f} per "
          f"processor, {100 * cached / opened:.1f}% from the cache; daemon: {first[0]} then {last[0]} descriptors, "
          f"{first[1] >> 10} then {last[1] >> 10} KiB; a program: {first_client[1] >> 10} then {last_client[1] >> 10} KiB")
    if cached < opened * 0.9:
        fail("hardly anything came from the cache")
    if last[0] > first[0] + 16 or last_client[0] > first_client[0] + 3 or idle[0] > last[0] - CLIENTS + 16:
        fail(f"descriptors: {first[0]}, {last[0]}, idle {idle[0]}; {first_client[0]}, {last_client[0]}")
    if last[1] > first[1] * 1.2 + (4 << 20) or last_client[1] > first_client[1] * 1.2 + (1 << 20):
        fail("memory grows")
    daemon.send_signal(signal.SIGTERM)
    if daemon.wait(timeout=60) != 0:
        fail("the daemon did not end well")


if os.environ.get("VARVE_SANITIZE") and not LONG:
    print("not under a sanitizer, which keeps memory of its own")
    sys.exit(77)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
folder, processes = pathlib.Path(tempfile.mkdtemp(prefix="varve-soak-")), []
try:
    main(folder, processes)
finally:
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)
