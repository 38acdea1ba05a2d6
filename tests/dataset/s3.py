#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dataset cache over an object store (tests/s3_server.py), with unmodified programs.

VARVE_TEST_S3 names another server, which has the bucket "bucket" and takes the credentials of the environment: tests that need
faults and counts are left out. Objects are put there without a signature, or below VARVE_TEST_S3_PUT with VARVE_TEST_S3_TOKEN.
"""
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

VARVE = os.environ["VARVE_BIN"]
LIBRARY = os.environ["BUILD_DIR"] + "/lib/libvarve-preload.so"
SOURCE = os.environ["SOURCE_DIR"]
WAIT_S = 120
base = tempfile.mkdtemp(prefix="varve-s3-")
rng = random.Random(int(os.environ.get("VARVE_TEST_SEED", "1"), 0))
os.environ.pop("XDG_RUNTIME_DIR", None)
os.environ.pop("VARVE_CACHED_SOCKET", None)
# On a busy machine the daemon may answer late, without being frozen.
os.environ["VARVE_PRELOAD_PATIENCE"] = "60000"

READER = """
import hashlib, os, random, sys
paths = [os.path.join(d, f) for d, _, files in os.walk(sys.argv[1]) for f in files]
random.Random(int(sys.argv[2])).shuffle(paths)
for path in paths:
    with open(path, "rb") as f:
        data = f.read()
        st = os.fstat(f.fileno())
    assert (st.st_ino, st.st_size) == (os.stat(path).st_ino, len(data)), path
    print(hashlib.sha256(data).hexdigest(), path)
"""


def fail(text):
    raise AssertionError(text)


class Store:
    """The server, and its objects."""

    def __init__(self):
        self.objects = {}
        self.real = os.environ.get("VARVE_TEST_S3")
        self.direct = os.environ.get("VARVE_TEST_S3_PUT", self.real)
        os.environ.pop("http_proxy", None)
        if self.real:
            os.environ["AWS_ENDPOINT_URL"] = self.real
            return
        self.process = subprocess.Popen([sys.executable, SOURCE + "/tests/s3_server.py"], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{self.port}", AWS_ACCESS_KEY_ID="testid",
                          AWS_SECRET_ACCESS_KEY="testsecret", AWS_REGION="test-1")
        os.environ.pop("AWS_SESSION_TOKEN", None)

    def request(self, method, url, data=None):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        token = os.environ.get("VARVE_TEST_S3_TOKEN")
        headers = {"X-Auth-Token": token} if token else {}
        with opener.open(urllib.request.Request(url, method=method, data=data, headers=headers)) as answer:
            return answer.read().decode()

    def admin(self, page, data=b""):
        return self.request("POST", f"http://127.0.0.1:{self.port}/_{page}", data)

    def put(self, key, data):
        self.objects[key] = data
        if self.real:
            self.request("PUT", f"{self.direct}/bucket/{urllib.parse.quote(key)}", data)
        else:
            self.admin("put/bucket/" + urllib.parse.quote(key), data)

    def drop(self, key):
        del self.objects[key]
        if self.real:
            self.request("DELETE", f"{self.direct}/bucket/{urllib.parse.quote(key)}")
        else:
            self.admin("drop/bucket/" + urllib.parse.quote(key))

    def fault(self, **what):
        self.admin("fault", json.dumps(what).encode())

    def reset(self):
        self.admin("reset")

    def sent(self):
        sent = json.loads(self.admin("sent"))
        sent.pop("", None)
        return sent

    def sums(self, prefix, root):
        return sorted(f"{hashlib.sha256(data).hexdigest()} {root}/{key[len(prefix) + 1:]}"
                      for key, data in self.objects.items() if key.startswith(prefix + "/"))


class Node:
    def __init__(self, name, roots, *options, others=True):
        self.name, self.socket = name, f"{base}/{name}.sock"
        command = [VARVE, "cached", "--roots", roots, "--cache", f"{base}/{name}.cache", "--capacity", "400M", "--socket",
                   self.socket, "--node", name, "--log-level", "debug", *options]
        if others:
            command += ["--listen", "127.0.0.1:0", "--advertise", "127.0.0.1", "--meet", f"{base}/meet"]
        self.log = open(f"{base}/{name}.log", "a")
        self.process = subprocess.Popen(command, stderr=self.log)
        wait_until(lambda: self.process.poll() is not None or self.figures(), f"{name} starts")
        if self.process.poll() is not None and "libcurl" in open(self.log.name).read():
            print("without libcurl")
            sys.exit(77)
        if self.process.poll() is not None:
            fail(f"{name} does not start: {open(self.log.name).read()}")

    def figures(self):
        out = subprocess.run([VARVE, "cached", "status", "--json", "--socket", self.socket], capture_output=True)
        return json.loads(out.stdout) if out.returncode == 0 else None

    def start(self, *command):
        env = dict(os.environ, LD_PRELOAD=LIBRARY, VARVE_CACHED_SOCKET=self.socket, PYTHONDONTWRITEBYTECODE="1")
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def reader(self, root):
        return self.start(sys.executable, "-S", "-c", READER, root, str(rng.getrandbits(32)))

    def python(self, text, *args):
        p = self.start(sys.executable, "-S", "-c", text, *args)
        out, err = p.communicate(timeout=WAIT_S)
        return p.returncode, out, err

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(WAIT_S)
        shutil.rmtree(f"{base}/{self.name}.cache", ignore_errors=True)


def wait_until(true, what):
    end = time.monotonic() + WAIT_S
    while True:
        value = true()
        if value:
            return value
        if time.monotonic() > end:
            fail(f"not within {WAIT_S} s: {what}")
        time.sleep(0.05)


def finish(reader, want, what):
    out, err = reader.communicate(timeout=WAIT_S)
    if reader.returncode != 0 or sorted(out.split("\n"))[1:] != want:
        fail(f"{what}: status {reader.returncode}\n{err}\n{sorted(set(out.split(chr(10))) ^ set(want))[:20]}")


def fill(store, prefix, count, most):
    for i in range(count):
        store.put(f"{prefix}/d{i % 4}/f{i}", rng.randbytes(rng.randrange(most)))


# ---- calls of programs ----

CALLS = """
import errno, os, sys
root = sys.argv[1]
def fails(want, call, *args, **more):
    try:
        call(*args, **more)
    except OSError as e:
        assert e.errno == want, (call, args, e)
    else:
        raise AssertionError((call, args))
one = root + "/d/one"
assert sorted(os.listdir(root)) == ["d", "top"], os.listdir(root)
assert sorted(os.listdir(root + "//d/.")) == ["one", "two"]
kinds = {e.name: (e.is_dir(), e.is_file(), e.inode()) for e in os.scandir(root)}
assert kinds["d"][0] and kinds["top"][1] and kinds["top"][2] == os.stat(root + "/top").st_ino
assert open(one).read() == "one" and open(root + "/d/../top").read() == "top"
st = os.stat(one)
assert st.st_size == 3 and st.st_mode == 0o100444 and os.lstat(one) == st and st.st_nlink == 1
assert os.path.isdir(root) and os.path.isdir(root + "/") and os.path.isdir(root + "/d/") and not os.path.islink(one)
assert os.path.realpath(root + "/d/../d/one") == one and os.path.samefile(root + "/..", root)
assert os.access(one, os.R_OK) and os.access(root, os.R_OK | os.X_OK) and not os.access(one, os.X_OK)
fails(errno.EINVAL, os.readlink, one)
assert os.listxattr(one) == []
fails(errno.ENODATA, os.getxattr, one, "user.x")
# Relative to a folder, and to the current one.
d = os.open(root + "/d", os.O_RDONLY | os.O_DIRECTORY)
assert os.path.isdir(d) and sorted(os.listdir(d)) == ["one", "two"]
assert os.stat("one", dir_fd=d) == st and os.read(os.open("two", os.O_RDONLY, dir_fd=d), 9) == b"second"
up = os.open("..", os.O_RDONLY, dir_fd=d)
assert sorted(os.listdir(up)) == ["d", "top"]
fails(errno.EBADF, os.read, d, 10)
os.close(d), os.close(up)
os.chdir("/")
assert open(one[1:]).read() == "one"
# Missing files, and files of another kind.
fails(errno.ENOENT, os.stat, root + "/none")
fails(errno.ENOENT, open, root + "/none/below")
fails(errno.ENOENT, os.listdir, root + "/none")
fails(errno.ENOTDIR, os.listdir, one)
fails(errno.ENOTDIR, os.stat, one + "/")
fails(errno.ENOTDIR, os.open, one, os.O_DIRECTORY)
fails(errno.EISDIR, open, root + "/d")
fails(errno.ENOENT, os.stat, root + "/../../nowhere")
# Nothing can be changed.
for call, *args in ((open, one, "w"), (open, one, "r+"), (open, root + "/new", "w"), (open, one, "a"), (os.mkdir, root + "/new"),
                    (os.open, root + "/new", os.O_CREAT), (os.open, one, os.O_RDWR), (os.open, root, os.O_TMPFILE | os.O_RDWR),
                    (os.remove, one), (os.rmdir, root + "/d"), (os.rename, one, "/tmp/x"), (os.rename, "/tmp/x", one),
                    (os.symlink, "x", root + "/x"), (os.link, one, "/tmp/x"), (os.truncate, one, 0), (os.chmod, one, 0o600),
                    (os.utime, one), (os.chown, one, 0, 0)):
    fails(errno.EROFS, call, *args)
assert not os.access(one, os.W_OK)
fails(errno.EEXIST, os.open, one, os.O_CREAT | os.O_EXCL)
assert os.read(os.open(one, os.O_CREAT), 9) == b"one"
# Many folders at once, and forks.
dirs = [os.scandir(root) for _ in range(100)]
assert all(len(list(d)) == 2 for d in dirs)
if os.fork() == 0:
    os._exit(0 if open(one).read() == "one" and len(os.listdir(root)) == 2 else 1)
assert os.wait()[1] == 0
# Paths elsewhere are not affected.
assert "tests" in os.listdir(sys.argv[2]) and os.path.isdir("/")
"""

AGAIN = """
import time
while True:
    try:
        print(open("/varve-none/data/top").read())
        break
    except OSError as e:
        print(e.errno, flush=True)
        time.sleep(0.1)
"""


def programs(store):
    store.put("see/top", b"top")
    store.put("see/d/one", b"one")
    store.put("see/d/two", b"second")
    os.mkdir(f"{base}/shared")
    with open(f"{base}/shared/file", "w") as f:
        f.write("on the shared file system")
    node = Node("see", f"s3://bucket/see=/varve-none/data:{base}/shared", others=False)
    rc, out, err = node.python(CALLS, "/varve-none/data", SOURCE)
    if rc:
        fail(f"{out}{err}")
    rc, out, err = node.python("import sys; print(open(sys.argv[1]).read())", base + "/shared/file")
    if rc or out != "on the shared file system\n":
        fail(f"a folder beside it: {out}{err}")
    # Command-line tools.
    for command, want in (("cat /varve-none/data/d/*", "onesecond"), ("cd /; ls varve-none/data/d", "one\ntwo\n"),
                          ("find /varve-none/data -type f | sort", "/varve-none/data/d/one\n/varve-none/data/d/two\n/varve-none/data/top\n"),
                          (f"cp -r /varve-none/data {base}/copy && cat {base}/copy/d/two", "second"),
                          (f"diff -r /varve-none/data {base}/copy && echo same", "same\n"),
                          # AddressSanitizer refuses a library that is preloaded before its own.
                          (f"find /varve-none/data -type f | ASAN_OPTIONS=verify_asan_link_order=0 {VARVE} cached preload - | tail -n 1",
                           "3 files will be brought\n")):
        p = node.start("bash", "-c", command)
        out, err = p.communicate(timeout=WAIT_S)
        if out != want:
            fail(f"{command}: {out}{err}")
    # A program that began without the daemon finds it when it is back.
    node.end(signal.SIGKILL)
    p = node.start(sys.executable, "-S", "-c", AGAIN)
    if p.stdout.readline() != f"{errno.EIO}\n":
        fail("the daemon is gone")
    node = Node("see", "s3://bucket/see=/varve-none/data", others=False)
    out, err = p.communicate(timeout=WAIT_S)
    if not out.endswith("top\n"):
        fail(f"the daemon is back: {out}{err}")
    node.end()
    # Without its daemon there is no answer.
    rc, out, err = node.python("try: open('/varve-none/data/top')\nexcept OSError as e: print(e.errno)")
    if out not in (f"{errno.EIO}\n", f"{errno.ENOENT}\n"):
        fail(f"without a daemon: {out}{err}")


# A program may copy a whole struct dirent from readdir, although the record is shorter.
ODD = """
import os, struct, sys
root = sys.argv[1]
assert sorted(os.listdir(root)) == ["a", "marked", "marker", "nul"], os.listdir(root)
assert os.listdir(root + "/a") == os.listdir(root + "/marker") == [] and os.listdir(root + "/marked") == ["x"]
assert [d for d, _, _ in os.walk(root, onerror=print)].count(root + "/marker") == 1
assert open(root + "/nul").read() == "without"
assert all(e.inode() == os.stat(e.path).st_ino for e in os.scandir(root))
records = os.read(os.open(f"/proc/self/fd/{os.open(root, os.O_RDONLY)}", os.O_RDONLY), 1 << 20)
at, size = struct.unpack("QQ", records[16:32])
assert len(records) >= at + size + 256
"""


def odd(store):
    """Objects that stand for folders, names that a path cannot have, and the memory behind the records."""
    for key, data in (("marker/", b""), ("marked/", b""), ("marked/x", b"x"), ("a//b", b"b"), ("nul\0name", b"with"), ("nul", b"without")):
        store.put("odd/" + key, data)
    node = Node("odd", "s3://bucket/odd=/varve-none/o", others=False)
    rc, out, err = node.python(ODD, "/varve-none/o")
    if rc or out:
        fail(f"status {rc}: {out}{err}")
    node.end()


CROWD = """
import sys, threading
def one(i):
    try: wrong.extend([] if open(f"{sys.argv[1]}/{i}").read() == str(i) else [i])
    except OSError as e: wrong.append((i, e.errno))
wrong = []
threads = [threading.Thread(target=one, args=(i,)) for i in range(int(sys.argv[2]), int(sys.argv[3]))]
for t in threads: t.start()
for t in threads: t.join()
print(wrong)
"""


def crowd(store):
    """More requests than the daemon has threads and queue places, and more threads than a program has connections: all wait."""
    for i in range(340):
        store.put(f"crowd/{i}", str(i).encode())
    node = Node("crowd", "s3://bucket/crowd=/varve-none/w", others=False)
    store.fault(what="hold", match="bucket/crowd/", count=100000)
    readers = [node.start(sys.executable, "-S", "-c", CROWD, "/varve-none/w", str(a), str(b))
               for a, b in ((0, 60), (60, 120), (120, 180), (180, 240), (240, 340))]
    wait_until(lambda: node.figures()["clients"] >= 4 * 60 + 64, "all requests")
    store.admin("release")
    for r in readers:
        out, err = r.communicate(timeout=WAIT_S)
        if out != "[]\n":
            fail(f"not read: {out}{err}")
    store.reset()
    node.end()


# ---- every byte once ----

def epochs(nodes, store, count, prefix):
    want = store.sums(prefix, "/varve-none/e")
    for epoch in range(count):
        for node, reader in [(n, n.reader("/varve-none/e")) for n in nodes]:
            finish(reader, want, f"epoch {epoch} on {node.name}")


def once(store):
    """Three epochs on three nodes, one of them killed after the first; two copies of each file."""
    fill(store, "once", 40, 300000)
    total = sum(len(d) for k, d in store.objects.items() if k.startswith("once/"))
    store.reset()
    nodes = [Node(n, "s3://bucket/once=/varve-none/e", "--replicas", "2", "--revalidate", "1") for n in "abc"]
    for n in nodes:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 3, "three nodes")
    epochs(nodes, store, 1, "once")
    wait_until(lambda: sum(f["files"] - f["copies"] for f in (n.figures() for n in nodes)) >= 2 * 40, "two copies of each")
    nodes[2].end(signal.SIGKILL)
    for n in nodes[:2]:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 2, "two nodes")
    epochs(nodes[:2], store, 2, "once")
    sent = store.sent()
    wrong = {k: (sent.get(k, 0), len(d)) for k, d in store.objects.items() if k.startswith("once/") and sent.get(k, 0) != len(d)}
    if wrong:
        fail(f"not sent once: {wrong}")
    print(f"with two copies: {total} bytes, {sum(sent.values())} sent")
    for n in nodes[:2]:
        n.end()


def share(store):
    """The same with one copy: files of the lost node are sent by the store again, once."""
    shutil.rmtree(f"{base}/meet")
    store.reset()
    nodes = [Node(n, "s3://bucket/once=/varve-none/e", "--revalidate", "1") for n in "abc"]
    for n in nodes:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 3, "three nodes")
    epochs(nodes, store, 1, "once")
    figures = nodes[2].figures()
    mine = figures["shared_read_bytes_total"]
    nodes[2].end(signal.SIGKILL)
    for n in nodes[:2]:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 2, "two nodes")
    epochs(nodes[:2], store, 2, "once")
    sent = store.sent()
    total = sum(len(d) for k, d in store.objects.items() if k.startswith("once/"))
    for key, data in store.objects.items():
        if key.startswith("once/") and data and sent.get(key) not in (len(data), 2 * len(data)):
            fail(f"{key} of {len(data)} bytes: {sent.get(key)} sent")
    if sum(sent.values()) > total + mine:
        fail(f"{total} bytes, {mine} of them lost: {sum(sent.values())} sent")
    print(f"with one copy: {total} bytes, {mine} brought by the lost node, {sum(sent.values())} sent")
    for n in nodes[:2]:
        n.end()


def large(store):
    """Above direct_above all programs wait, and status shows the progress."""
    data = rng.randbytes(30_000_000)
    store.put("large/big", data)
    shutil.rmtree(f"{base}/meet")
    store.reset()
    nodes = [Node(n, "s3://bucket/large=/varve-none/l", "--direct-above", "1M") for n in "ab"]
    for n in nodes:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 2, "two nodes")
    store.fault(what="hold", match="big bytes=8388608", count=1)
    readers = [n.reader("/varve-none/l") for n in nodes for _ in range(3)]
    wait_until(lambda: any(n.figures()["shared_coming_done_bytes"] == 8388608 for n in nodes), "progress")
    text = "".join(subprocess.run([VARVE, "cached", "status", "--socket", n.socket], capture_output=True, text=True).stdout
                   for n in nodes)
    if "reading  1 files: 8.00 MiB of 28.6 MiB are here" not in text:
        fail(text)
    if any(r.poll() is not None for r in readers):
        fail("a reader did not wait")
    store.admin("release")
    for r in readers:
        finish(r, store.sums("large", "/varve-none/l"), "a large object")
    if store.sent()["large/big"] != len(data):
        fail(f"{store.sent()} sent")
    if sum(n.figures()["shared_coming_bytes"] for n in nodes):
        fail("nothing is read any more")
    for n in nodes:
        n.end()


def changes(store):
    store.put("change/x", b"a" * 1000)
    node = Node("change", "s3://bucket/change=/varve-none/c", "--revalidate", "1", others=False)
    get = "import sys; print(open('/varve-none/c/x').read()[:3], len(open('/varve-none/c/x').read()))"
    if node.python(get)[1] != "aaa 1000\n":
        fail("an object")
    for data, want in ((b"b" * 1000, "bbb 1000\n"), (b"c" * 5, "ccc 5\n")):
        store.put("change/x", data)
        wait_until(lambda want=want: node.python(get)[1] == want, want)
    store.put("change/y", b"new")
    wait_until(lambda: node.python("import os; print(sorted(os.listdir('/varve-none/c')))")[1] == "['x', 'y']\n", "a new name")
    store.drop("change/x")
    wait_until(lambda: node.python(get)[0] != 0, "an object that is gone")
    node.end()


def several(store):
    """Names of all kinds, sizes around those of ranges, two nodes, two epochs."""
    # s3rver lists no folder that has nothing but folders in it.
    for i, size in enumerate((0, 1, 4 << 20, (4 << 20) + 1, 20_000_000)):
        store.put(f"kinds/size {i}", rng.randbytes(size))
    for name in ("sp ace", "per%cent", "plus+and=&", "ünïcödé", "a.b-c_d~e", "quote'\"", "deep/er/still", "deep/direct", "x" * 200):
        store.put("kinds/" + name, name.encode())
    shutil.rmtree(f"{base}/meet", ignore_errors=True)
    nodes = [Node(n, "s3://bucket/kinds=/varve-none/e", "--revalidate", "1") for n in "ab"]
    for n in nodes:
        wait_until(lambda n=n: n.figures()["nodes_up"] == 2, "two nodes")
    epochs(nodes, store, 2, "kinds")
    for n in nodes:
        n.end()


# ---- a store that fails ----

def faults(store):
    text = "import sys\ntry: sys.stdout.write(open(sys.argv[1]).read())\nexcept OSError as e: print(e.errno)"
    node = Node("fault", "s3://bucket/fault=/varve-none/f", "--revalidate", "0", others=False)
    number = 0
    for what in (500, 503, "cut", "reset", "slow", "short", "long", "expired", 403, "whole"):
        for count in (1, 100000) if what in (500, "cut", "short", "expired") else (1,):
            number += 1
            key, data = f"f{number}", f"{number} " * 40000
            store.put("fault/" + key, data.encode())
            store.fault(what=what, match=key, count=count)
            end = time.monotonic() + WAIT_S
            wait_until(lambda: node.python("import sys, os; print(os.path.exists(sys.argv[1]))", "/varve-none/f/" + key)[1] == "True\n",
                       "a new name")
            rc, out, err = node.python(text, "/varve-none/f/" + key)
            errors = {f"{n}\n" for n in (errno.EIO, errno.EACCES)}
            if rc or (out != data and out not in errors) or time.monotonic() > end:
                fail(f"{what}, {count} times: {rc} {out[:100]!r} {err}")
            passing = what in ("slow", "whole") or (count == 1 and what in (500, 503, "cut", "reset"))
            if (out == data) != passing:
                fail(f"{what}, {count} times: {out[:100]!r}")
            store.reset()
            rc, out, err = node.python(text, "/varve-none/f/" + key)
            if out != data:
                fail(f"after {what}: {rc} {out[:100]!r} {err}")
    # No listing, for as long as it lasts.
    store.fault(what=403, match="list-type", count=100000)
    refused = "import os\ntry: print(os.listdir('/varve-none/f/none'))\nexcept OSError as e: print(e.errno)"
    wait_until(lambda: node.python(refused)[1] == f"{errno.EACCES}\n", "a listing that is refused")
    store.reset()
    node.end()


def main():
    store = Store()
    try:
        for case in (programs, changes, several) if store.real else (programs, odd, crowd, once, share, large, changes, several, faults):
            if len(sys.argv) > 1 and case.__name__ not in sys.argv[1:]:
                continue
            begun = time.monotonic()
            case(store)
            print(f"{case.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    except Exception:
        for name in sorted(os.listdir(base)):
            if name.endswith(".log"):
                print(f"-- {name}", open(f"{base}/{name}").read()[-2000:], file=sys.stderr)
        raise
    finally:
        for p in list(children):
            if p.poll() is None:
                p.kill()
                p.wait()
        shutil.rmtree(base, ignore_errors=True)
    print("ok")


children = []
_popen = subprocess.Popen


class Popen(_popen):
    """All processes end with the test."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        children.append(self)


subprocess.Popen = Popen
main()
