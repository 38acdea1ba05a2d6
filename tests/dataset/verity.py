# SPDX-License-Identifier: Apache-2.0
"""A cache on a file system with fs-verity (ext4 in an image): files are sealed, stored and evicted like others, never
exceed the capacity, and a file that rots on disk is not handed out. Skipped where the kernel has no fs-verity."""
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
VARVE, READER = str(BUILD / "bin/varve"), str(BUILD / "tests/dataset/reader")
FILES, LARGEST, CAPACITY = 60, 200000, 4 << 20


def skip(why):
    print(why)
    sys.exit(77)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def inside():
    """Continues in a mount namespace of its own."""
    if os.geteuid() != 0:
        skip("not root: no mounts")
    if not all(shutil.which(tool, path=os.environ["PATH"] + ":/sbin:/usr/sbin") for tool in ("unshare", "mkfs.ext4", "mount")):
        skip("no unshare, mkfs.ext4 or mount")
    if os.environ.get("VARVE_VERITY") != "inside":
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            skip("namespaces cannot be made here")
        os.environ["VARVE_VERITY"] = "inside"
        os.environ["PATH"] += ":/sbin:/usr/sbin"
        os.execvp("unshare", ["unshare", "-m", sys.executable] + sys.argv)


class Place:
    def __init__(self, base):
        self.base, self.image, self.disk = base, base / "image", base / "disk"
        self.root, self.cache, self.socket = base / "shared", base / "disk/cache", base / "socket"
        self.daemon = None
        self.disk.mkdir()
        self.root.mkdir()
        with open(self.image, "wb") as f:
            f.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-O", "verity", str(self.image)], check=True)

    def mount(self):
        done = subprocess.run(["mount", "-o", "loop", str(self.image), str(self.disk)], capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"ext4 with fs-verity cannot be mounted here: {done.stderr.strip()}")

    def unmount(self):
        subprocess.run(["umount", str(self.disk)], check=True)

    def start(self, *more, capacity=CAPACITY):
        """Starts a daemon. False: it does not start, because files cannot be sealed."""
        self.daemon = subprocess.Popen([VARVE, "cached", "--roots", self.root, "--cache", self.cache, "--capacity", str(capacity),
                                        "--max-file", "1M", "--socket", self.socket, "--scrub", "0", *more],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not self.socket.exists():
            if self.daemon.poll() is not None:
                said = self.daemon.stdout.read()
                if "fs-verity" in said:
                    return False
                fail(f"no daemon: {said}")
            time.sleep(0.02)
        return True

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait(timeout=180)

    def status(self):
        done = subprocess.run([VARVE, "cached", "--socket", str(self.socket), "status", "--json"], check=True, text=True,
                              capture_output=True)
        return json.loads(done.stdout)

    def once(self):
        environment = {**os.environ, "LD_PRELOAD": str(BUILD / "lib/libvarve-preload.so"), "VARVE_CACHED_SOCKET": str(self.socket)}
        done = subprocess.run([READER, "once", self.root, str(FILES)], env=environment, text=True, capture_output=True, timeout=120)
        if done.returncode != 0:
            fail(f"reader: {done.stderr}")
        return json.loads(done.stdout)


def rot(place):
    """Flips a bit of a content file on the disk below the file system. Returns the file."""
    content = max(place.cache.glob("*.data"), key=lambda path: path.stat().st_size)
    mark = content.read_bytes()[5000:5064]
    place.unmount()
    data = place.image.read_bytes()
    at = data.find(mark)
    if at < 0:
        fail("a content file is not on its disk")
    with open(place.image, "r+b") as f:
        while at >= 0:  # also at places where it was before an eviction
            f.seek(at)
            f.write(bytes([mark[0] ^ 4]))
            at = data.find(mark, at + 1)
    place.mount()
    return content


def main(place):
    subprocess.run([READER, "make", place.root, str(FILES), str(LARGEST)], check=True)
    place.mount()
    if not place.start("--verity", "on"):
        skip("this kernel has no fs-verity")
    for _ in range(3):
        if place.once()["cached"] < FILES / 2:
            fail("hardly anything came from the cache")
    status = place.status()
    if status["files"] == 0 or status["files_sealed"] != status["files"] or status["unsealed_total"] != 0:
        fail(f"not sealed: {status}")
    if status["evicted_total"] == 0:
        fail("no file was evicted")
    on_disk = sum(path.stat().st_blocks * 512 for path in place.cache.glob("*.data"))
    if on_disk > status["used_bytes"] or on_disk > CAPACITY:
        fail(f"{on_disk} bytes on disk, {status['used_bytes']} counted")
    try:
        os.close(os.open(next(place.cache.glob("*.data")), os.O_RDWR))
        fail("a sealed file can be written to")
    except PermissionError:
        pass
    place.stop()
    content = rot(place)
    try:
        content.read_bytes()
        fail("the kernel gave bytes that had changed on disk")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    place.start(capacity=4 * CAPACITY)
    for _ in range(2):
        place.once()
    if place.status()["damaged_total"] == 0:
        fail("a file that had changed on disk was not noticed")
    place.stop()
    print(f"{status['files']} files sealed, {status['evicted_total']} evicted, one that rotted was found")


inside()
folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-verity-"))
place = Place(folder)
try:
    main(place)
finally:
    place.stop()
    subprocess.run(["umount", str(place.disk)], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
