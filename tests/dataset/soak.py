# SPDX-License-Identifier: Apache-2.0
"""Many programs that open files as fast as they can: neither they nor the daemon leak descriptors or memory.

Two more request missing files, and make files, read them and remove them: ever new paths. With VARVE_TEST_LONG 64 readers
for ten minutes, otherwise 16 for three seconds. The opens a second are printed, and the daemon's figures at the
beginning, in the middle and at the end."""
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
CHURNERS = 2


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def resources(pid):
    """Descriptors, and bytes of memory that belong to the process alone; without memory shared with clients, which becomes
    private when the last of them ends."""
    own = sum(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon"))
    return len(os.listdir(f"/proc/{pid}/fd")), own * 1024


def in_words(what):
    return " -> ".join(f"{fds} descriptors {memory >> 10} KiB" for fds, memory in what)


def main(base, started):
    root, socket = base / "shared", base / "socket"
    root.mkdir()
    reader = str(BUILD / "tests/dataset/reader")
    subprocess.run([reader, "make", root, str(FILES), "20000"], check=True)
    daemon = subprocess.Popen([BUILD / "bin/varve", "cached", "--roots", root, "--cache", base / "cache", "--capacity", "16M",
                               "--socket", socket, "--revalidate", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    started.append(daemon)
    while not socket.exists():
        if daemon.poll() is not None:
            fail(f"no daemon: {daemon.stdout.read().decode()}")
        time.sleep(0.02)
    environment = {**os.environ, "LD_PRELOAD": str(BUILD / "lib/libvarve-preload.so"), "VARVE_CACHED_SOCKET": str(socket),
                   "VARVE_PRELOAD_PATIENCE": "60000"}  # on a busy machine the daemon may answer late
    subprocess.run([reader, "once", root, str(FILES)], check=True, env=environment, stdout=subprocess.DEVNULL)
    clients = [subprocess.Popen([reader, "read", root, str(FILES), str(i), base / "stop"], env=environment,
                                stdout=subprocess.PIPE, text=True) for i in range(CLIENTS)]
    churners = [subprocess.Popen([reader, "churn", root, str((i + 1) * 100000000), base / "stop"], env=environment,
                                 stdout=subprocess.PIPE, text=True) for i in range(CHURNERS)]
    started.extend(clients + churners)
    seen, seen_client, begin = [], [], time.monotonic()
    for sixth in (2, 4, 6):
        time.sleep(max(0, begin + SECONDS * sixth / 6 - time.monotonic()))
        seen.append(resources(daemon.pid))
        seen_client.append(resources(clients[0].pid))
    first, last, first_client, last_client = seen[0], seen[-1], seen_client[0], seen_client[-1]
    (base / "stop").touch()
    opened = cached = 0
    for churner in churners:
        churner.communicate(timeout=120)
        if churner.returncode != 0:
            fail(f"a program that makes files ended with {churner.returncode}")
    for client in clients:
        out, _ = client.communicate(timeout=120)
        if client.returncode != 0:
            fail(f"a reader ended with {client.returncode}")
        said = json.loads(out)
        opened, cached = opened + said["files"], cached + said["cached"]
    time.sleep(1)
    idle, status = resources(daemon.pid), subprocess.run([BUILD / "bin/varve", "cached", "--socket", socket, "status", "--json"],
                                                         check=True, capture_output=True)
    paths = json.loads(status.stdout)["paths_known"]
    print(f"{CLIENTS} programs, {SECONDS} s: {opened} opens, {opened / SECONDS:.0f} a second, "
          f"{opened / SECONDS / os.cpu_count():.0f} per processor, {100 * cached / opened:.1f}% from the cache\n"
          f"daemon after 1/3, 2/3 and all of it, and idle: {in_words(seen + [idle])}\n"
          f"a program: {in_words(seen_client)}\n{paths} paths known")
    if cached < opened * 0.9:
        fail("hardly anything came from the cache")
    if last[0] > first[0] + 16 or last_client[0] > first_client[0] + 3 or idle[0] > last[0] - CLIENTS + 16:
        fail(f"descriptors: {first[0]}, {last[0]}, idle {idle[0]}; {first_client[0]}, {last_client[0]}")
    if last[1] > first[1] * 1.2 + (4 << 20) or last_client[1] > first_client[1] * 1.2 + (1 << 20):
        fail("memory grows")
    daemon.send_signal(signal.SIGTERM)
    if daemon.wait(timeout=180) != 0:
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
