# SPDX-License-Identifier: Apache-2.0
"""Reads files with Python's various calls, and prints their content; run with and without the library."""
import concurrent.futures
import hashlib
import io
import mmap
import multiprocessing
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile

root = pathlib.Path(sys.argv[1])
files = sorted((root / "set").glob("*.bin"))


def digest(path):
    with open(path, "rb") as f:
        return hashlib.md5(f.read()).hexdigest()


def identity(st):
    return (st.st_dev, st.st_ino, st.st_mode, st.st_nlink, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def mapped(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        return hashlib.md5(m).hexdigest()


def sent(path):
    a, b = socket.socketpair()
    got = []

    def receive():
        while chunk := b.recv(65536):
            got.append(chunk)

    thread = threading.Thread(target=receive)
    thread.start()
    with open(path, "rb") as f:
        at, size = 0, os.fstat(f.fileno()).st_size
        while at < size:
            at += os.sendfile(a.fileno(), f.fileno(), at, size - at)
    a.close()
    thread.join()
    return hashlib.md5(b"".join(got)).hexdigest()


def main():
    for path in files[:10]:
        print(path, digest(path), mapped(path), sent(path))
        with open(path, "rb", buffering=0) as f:
            print(identity(os.fstat(f.fileno())) == identity(os.stat(path)), identity(os.stat(path)))
            print(os.path.samestat(os.fstat(f.fileno()), os.stat(path)), f.seek(0, io.SEEK_END), f.tell())
    print((root / "text").read_text(), open(root / "text").readlines())
    print([os.path.exists(root / n) for n in ("file", "missing", "link", "dangling", "sub")])
    print([os.access(root / "file", m) for m in (os.F_OK, os.R_OK, os.W_OK)])
    print(sorted(e.name for e in os.scandir(root)), os.path.getsize(root / "big"), os.path.realpath(root / "link"))
    for bad in ("missing", "sub", "dangling"):
        try:
            open(root / bad, "rb")
        except OSError as e:
            print(bad, e.errno, e.strerror)
    fd = os.open(root / "file", os.O_RDONLY)
    other = os.dup(fd)
    os.close(fd)
    print(os.pread(other, 20, 5), os.get_inheritable(other), identity(os.stat(other)) == identity(os.stat(root / "file")))
    os.set_inheritable(other, True)
    print(subprocess.run(["cat", f"/proc/self/fd/{other}"], pass_fds=[other], capture_output=True).stdout[:50])
    os.close(other)
    print(subprocess.run(["md5sum", str(root / "file")], capture_output=True).stdout)
    with tempfile.TemporaryDirectory() as out:
        shutil.copy2(root / "big", out)
        shutil.copytree(root / "set", out + "/set")
        print(digest(out + "/big"), [digest(p) for p in sorted(pathlib.Path(out, "set").glob("*"))][:3])
        with zipfile.ZipFile(out + "/z.zip", "w") as z:
            for path in files[:5]:
                z.write(path, path.name)
        print([(i.filename, i.file_size, i.date_time) for i in zipfile.ZipFile(out + "/z.zip").infolist()])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(list(pool.map(digest, files)))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, pool.map(digest, files))
    # A generation that was read before a file is written, and the content read after.
    (root / "changing").write_bytes(b"before")
    print(digest(root / "changing"))
    (root / "changing").write_bytes(b"after, and longer")
    print((root / "changing").read_bytes(), os.stat(root / "changing").st_size)
    os.unlink(root / "changing")
    print(os.path.exists(root / "changing"))


if __name__ == "__main__":
    main()
