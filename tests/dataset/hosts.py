# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: network namespaces on a bridge, a daemon of the dataset cache in each, and readers.

A test imports this, calls inside() first, and makes a Cluster. inside() continues in namespaces of its own for network
and mounts, so that the machine stays unchanged; it skips the test (77) where that is not possible. A Cluster starts
processes and ends them in any case, by their process id.
"""
import atexit
import datetime
import json
import os
import pathlib
import random
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
READER = str(BUILD / "tests/dataset/reader")
LONG = bool(os.environ.get("VARVE_TEST_LONG"))
SANITIZED = bool(os.environ.get("VARVE_SANITIZE"))
SEED = int(os.environ.get("VARVE_TEST_SEED", "20230616"))


def skip(why):
    print(why)
    sys.exit(77)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def run(*command, check=True, quiet=False, **more):
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True, timeout=300, **more)
    if check and done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def daemon_environment(settings):
    """Works around two faults of sanitizers with UCX.

    At the end of a daemon with UCX, LeakSanitizer crashes once in some hundred times: in ScanRangeForPointers, at an address
    near 0, where it expects thread-local memory of libraries that were opened at run time. The daemon, which has ended well,
    then ends with 1. So leaks are checked over TCP only. ThreadSanitizer crashes when a thread ends in which UCX replaced
    madvise: the replacement takes a lock after the sanitizer has forgotten the thread. So UCX must not watch memory."""
    options = os.environ.get("ASAN_OPTIONS", "")
    if settings.get("transport") != "ucx":
        return None
    calm = {"UCX_MEM_EVENTS": "n"} if "thread" in os.environ.get("VARVE_SANITIZE", "") else {}
    return {**os.environ, **calm, "ASAN_OPTIONS": f"{options}:detect_leaks=0".lstrip(":")}


def inside():
    """Continues in namespaces of its own."""
    if os.geteuid() != 0:
        skip("not root: no network namespaces")
    if not shutil.which("ip") or not shutil.which("nsenter") or not shutil.which("unshare"):
        skip("no ip, nsenter or unshare")
    if os.environ.get("VARVE_HOSTS") != "inside":
        if subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True).returncode != 0:
            skip("namespaces cannot be made here")
        os.environ["VARVE_HOSTS"] = "inside"
        os.execvp("unshare", ["unshare", "-n", "-m", sys.executable] + sys.argv)
    os.makedirs("/run/netns", exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")
    run("ip", "link", "set", "lo", "up")
    if run("ip", "link", "add", "br0", "type", "bridge", check=False).returncode != 0:
        skip("no bridges here")
    run("ip", "link", "set", "br0", "up")
    run("ip", "addr", "add", "10.77.0.254/24", "dev", "br0")


class Host:
    """One host. `up`: its daemon should be running."""

    def __init__(self, cluster, number):
        self.cluster, self.number, self.name = cluster, number, f"h{number}"
        self.folder = cluster.base / self.name
        self.cache, self.socket = self.folder / "cache", self.folder / "socket"
        self.address = f"10.77.0.{number}:7700"
        self.daemon, self.settings, self.loses_by = None, {}, None
        self.folder.mkdir()
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        self.within("ip", "link", "set", "lo", "up")
        self.within("ip", "link", "set", "eth0", "up")
        self.within("ip", "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")

    def within(self, *command, **more):
        return run("nsenter", f"--net=/run/netns/{self.name}", *command, **more)

    # ---- the daemon ----

    def start(self, wait=True):
        """Starts it, and waits until it answers programs."""
        settings = {**self.cluster.settings, **self.settings, "node": self.name, "listen": self.address,
                    "cache": self.cache, "socket": self.socket, "roots": self.cluster.root,
                    "peers": self.cluster.base / "peers", "token": self.cluster.base / "token"}
        command = ["nsenter", f"--net=/run/netns/{self.name}", VARVE, "cached"]
        for key, value in settings.items():
            command += [f"--{key.replace('_', '-')}", str(value)]
        self.log = open(self.folder / "log", "a")
        self.daemon = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                       env=daemon_environment(settings))
        self.cluster.processes.append(self.daemon)
        if wait:
            self.cluster.until(lambda: self.status() is not None, f"{self.name} answers")

    def signal(self, what):
        self.daemon.send_signal(what)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.daemon.wait()
        self.daemon = None

    def stop(self):
        self.signal(signal.SIGTERM)
        try:
            status = self.daemon.wait(timeout=180)
        except subprocess.TimeoutExpired:
            fail(f"{self.name} does not end:\n{self.tail()}")
        if status != 0:
            fail(f"{self.name} ended with {status}:\n{self.tail()}")
        self.daemon = None

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def alive(self):
        return self.daemon is not None and self.daemon.poll() is None

    def tail(self):
        return "".join(open(self.folder / "log", errors="replace").readlines()[-20:])

    def saw(self, up, since):
        """Time between `since` and its first message that so many nodes are up, in seconds; None: there is none yet."""
        for line in open(self.folder / "log", errors="replace"):
            found = re.match(rf"(\S+Z) .* {up} of \d+ nodes are up", line)
            when = datetime.datetime.fromisoformat(found[1].replace("Z", "+00:00")).timestamp() if found else 0
            if when >= since - 0.001:
                return max(when - since, 0)
        return None

    def empty(self):
        shutil.rmtree(self.cache, ignore_errors=True)

    def status(self):
        """The result of `varve cached status --json`; None: no daemon answers."""
        done = subprocess.run([VARVE, "cached", "--socket", str(self.socket), "status", "--json"], text=True,
                              capture_output=True, timeout=180)
        return json.loads(done.stdout) if done.returncode == 0 else None

    # ---- its link ----

    def cut(self):
        run("ip", "link", "set", f"v{self.number}", "down")

    def reconnect(self):
        run("ip", "link", "set", f"v{self.number}", "up")

    def lose(self, percent):
        """Drops a share of the incoming packets, by nft or else iptables. Returns None, or why that is not possible here."""
        why = []
        for tool, load in (("nft", self.lose_by_nft), ("iptables", self.lose_by_iptables)):
            done = load(percent) if shutil.which(tool) else None
            if done and done.returncode == 0:
                self.loses_by = tool
                return None
            why.append(f"{tool}: {(done.stderr.strip().splitlines() or ['no reason given'])[0]}" if done else f"no {tool}")
        return "; ".join(why)

    def lose_by_nft(self, percent):
        rules = ("table inet loss {\n chain in {\n  type filter hook input priority 0;\n"
                 f'  iifname "eth0" counter\n  iifname "eth0" numgen random mod 100 < {percent} counter drop\n }}\n}}\n')
        return self.within("nft", "-f", "-", input=rules, check=False)

    def lose_by_iptables(self, percent):
        done = self.within("iptables", "-A", "INPUT", "-i", "eth0", check=False)
        if done.returncode == 0:
            done = self.within("iptables", "-A", "INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability",
                               percent / 100, "-j", "DROP", check=False)
        return done

    def lost(self):
        """The numbers of dropped packets and of all packets, by the counters of the rules."""
        if self.loses_by == "nft":
            counts = re.findall(r"counter packets (\d+)", self.within("nft", "list", "table", "inet", "loss").stdout)
        else:
            counts = re.findall(r"^ *(\d+) .*eth0", self.within("iptables", "-nvxL", "INPUT").stdout, re.M)
        if len(counts) != 2:
            fail(f"the rules that drop packets at {self.name} cannot be read")
        return int(counts[1]), int(counts[0])

    def lose_no_more(self):
        if self.loses_by == "nft":
            self.within("nft", "delete", "table", "inet", "loss")
        elif self.loses_by == "iptables":
            self.within("iptables", "-F", "INPUT")
        self.loses_by = None

    # ---- its disk ----

    def content(self):
        return sorted(self.cache.glob("*.data"))

    def flip(self, files):
        """Changes one bit in each of these content files, without the daemon."""
        rng = random.Random(SEED)
        for path in files:
            st = path.stat()
            with open(path, "r+b") as f:
                f.seek(rng.randrange(st.st_size))
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    # ---- programs on it ----

    def environment(self):
        return {**os.environ, "LD_PRELOAD": LIBRARY, "VARVE_CACHED_SOCKET": str(self.socket),
                "VARVE_PRELOAD_ROOTS": str(self.cluster.root)}

    def once(self):
        """Reads every file once. Returns the reader's figures."""
        done = subprocess.run([READER, "once", self.cluster.root, str(self.cluster.files)], env=self.environment(), text=True,
                              capture_output=True, timeout=300)
        if done.returncode != 0:
            fail(f"reader on {self.name}: status {done.returncode}\n{done.stderr}\n{self.cluster.tails()}")
        return json.loads(done.stdout)


class Cluster:
    """Hosts 1 to `count`, a shared folder with files, and figures of its readers."""

    def __init__(self, count, files=200, largest=200000, **settings):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="varve-hosts-"))
        self.root, self.files, self.settings = self.base / "shared", files, settings
        self.processes, self.readers, self.hosts = [], [], {}
        self.readers_stop = self.base / "stop"
        atexit.register(self.finish)
        self.root.mkdir()
        run(READER, "make", self.root, files, largest)
        (self.base / "token").write_bytes(b"only the nodes of this job know it")
        (self.base / "token").chmod(0o600)
        for number in range(1, count + 1):
            self.hosts[number] = Host(self, number)
        (self.base / "peers").write_text("".join(f"{h.name} {h.address}\n" for h in self.hosts.values()))

    def __getitem__(self, number):
        return self.hosts[number]

    def __iter__(self):
        return iter(self.hosts.values())

    def finish(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        for mount in (h.cache for h in self.hosts.values() if os.path.ismount(h.cache)):
            run("umount", mount, check=False)
        for host in self.hosts.values():
            run("ip", "netns", "del", host.name, check=False)
            run("ip", "link", "del", f"v{host.number}", check=False)
        self.hosts = {}
        shutil.rmtree(self.base, ignore_errors=True)

    def tails(self):
        return "\n".join(f"--- {h.name}\n{h.tail()}" for h in self if (h.folder / "log").exists())

    def until(self, condition, what, seconds=180):
        """Waits until it holds, and returns after how long. The time is printed, not checked."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > seconds:
                fail(f"never: {what}\n{self.tails()}")
            time.sleep(0.01)
        return time.monotonic() - begin

    def comes(self, condition, seconds=20):
        """Waits until it holds, and returns whether it does."""
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)
        return condition()

    def start(self):
        for host in self:
            host.start(wait=False)
        for host in self:
            while host.status() is None:
                if host.alive():
                    time.sleep(0.02)
                elif self.settings.get("transport") == "ucx" and "ucx" in host.tail().lower():
                    skip(f"no UCX here: {host.tail()}")
                else:
                    fail(f"{host.name} does not start:\n{self.tails()}")
        self.until(lambda: all(self.seen(h, up=len(self.hosts)) for h in self), "all see each other")

    def seen(self, host, up):
        """True if a host sees so many hosts as up, itself among them. A suspect counts as up."""
        status = host.status()
        return status is not None and sum(m["state"] in ("alive", "suspect") for m in status["members"]) == up

    def noticed(self, numbers, up, since):
        """Waits until these hosts see so many, and returns how long after `since` (time.time()) each of them did, by its log."""
        self.until(lambda: all(self.seen(self[n], up=up) for n in numbers), f"{up} hosts are seen")
        # A host that took another for gone before does not log it again.
        after = [self[n].saw(up, since) for n in numbers]
        return "noticed after " + ", ".join("?" if a is None else f"{a * 1000:.0f}" for a in after) + " ms"

    def figure(self, name):
        """The sum over the hosts that answer."""
        return sum(status[name] for status in (h.status() for h in self if h.alive()) if status)

    # ---- readers, in the background ----

    def read_on(self, *numbers, each=1):
        """Starts readers on these hosts, which run until read_off.

        Returns when each is connected: a program that finds no daemon at its first file never looks for one again."""
        met = {number: self[number].status()["clients"] for number in numbers}
        for number in numbers:
            for i in range(each):
                command = [READER, "read", str(self.root), str(self.files), str(SEED % 100000 + number * 10 + i),
                           str(self.readers_stop)]
                reader = subprocess.Popen(command, env=self[number].environment(), text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE)
                reader.host = self[number]
                self.processes.append(reader)
                self.readers.append(reader)
        # The status request itself is a connection, both times.
        self.until(lambda: all(self[n].status()["clients"] >= met[n] + each for n in numbers), "readers meet their daemons")

    def still_reading(self):
        for reader in self.readers:
            if reader.poll() is not None:
                fail(f"reader on {reader.host.name}: status {reader.returncode}\n{reader.stderr.read()}\n{self.tails()}")

    def read_for(self, seconds):
        time.sleep(seconds)
        self.still_reading()

    def read_off(self):
        """Ends them. Wrong bytes, failures or hangs end the test here. Returns the sum of their figures."""
        self.still_reading()
        self.readers_stop.touch()
        total = {"files": 0, "cached": 0, "longest_ms": 0.0}
        for reader in self.readers:
            try:
                out, err = reader.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                fail(f"a reader on {reader.host.name} hangs\n{self.tails()}")
            if reader.returncode != 0:
                fail(f"reader on {reader.host.name}: status {reader.returncode}\n{err}\n{self.tails()}")
            said = json.loads(out)
            total["files"] += said["files"]
            total["cached"] += said["cached"]
            total["longest_ms"] = max(total["longest_ms"], said["longest_ms"])
        self.readers = []
        self.readers_stop.unlink()
        return total

    # ---- files ----

    def write(self, number, generation):
        run(READER, "write", self.root, number, generation)

