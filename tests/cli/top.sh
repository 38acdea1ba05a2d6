# SPDX-License-Identifier: Apache-2.0
# varve top beside running processes: its output, its screen, and the files it leaves.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
dir=$(mktemp -d)
running=
stop() { # the processes that this test has started
    for pid in $running; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
    running=
}
trap 'stop; rm -rf "$dir"' EXIT
fail() { echo "top: $*" >&2; exit 1; }
mkdir "$dir/pages" "$dir/data"
export VARVE_STATS=$dir/pages
expect() {
    local want=$1 rc=0
    shift
    "$VARVE_BIN" top "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -eq "$want" ] || { cat "$dir/out" "$dir/err"; fail "varve top $*: $rc, not $want"; }
}
json() { python3 -c "import json, sys; d = json.load(open('$dir/out')); p = d['processes']; assert $1, d" || fail "${2:-$1}"; }
says() { grep -qF -- "$1" "$dir/$2" || { cat "$dir/$2"; fail "'$1' is not in the $2put of $3"; }; }

# No process publishes.
expect 0
says "no process of this user publishes statistics" out "top"
expect 0 --json
json 'p == []'
expect 0 --prometheus
[ ! -s "$dir/out" ] || fail "metrics without a process"
expect 1 --once 4194305
says "process 4194305 publishes no statistics" err "top 4194305"
expect 2 --once --json
expect 2 nonsense
expect 2 1 2
expect 2 --interval 0
expect 2 --nonsense
expect 0 --help
says "usage: varve top" out "top --help"

# A shot that runs until this test ends it. The page is that of the child in which
# the experiment runs.
start() {
    "$VARVE_BIN" bench shot --ckpts 100000 --size 64K --interval-ms 5 --local "$dir/data" --no-bound --device-cache 1M \
        --host-cache 2M --rate d2d=4G,d2h=400M,h2d=400M,h2f=100M,f2h=100M >"$dir/bench" 2>&1 &
    running="$running $!"
}
await() { # N PAGES: until that many are there and each has seen checkpoints
    for _ in $(seq 2400); do
        "$VARVE_BIN" top --json >"$dir/out" 2>/dev/null || true
        if python3 -c "import json; p = json.load(open('$dir/out'))['processes']
assert len(p) == $1 and all(x['checkpoint']['count'] > 20 and x['hops'][4]['moved_bytes'] > 0 for x in p)" 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
    cat "$dir/out" "$dir/bench"
    fail "no page appears"
}
start
await 1
pid=$(python3 -c "import json; print(json.load(open('$dir/out'))['processes'][0]['pid'])")
# By default too, wherever its page is: a running process has it open.
(unset VARVE_STATS; expect 0 --json "$pid"; json "[x['pid'] for x in p] == [$pid]")
expect 0 --json
json 'p[0]["state"] == "open" and p[0]["program"] == "varve" and "bench shot" in p[0]["command"]'
json '[t["name"] for t in p[0]["tiers"]] == ["device", "host", "disk"] and p[0]["tiers"][0]["capacity_bytes"] == 1 << 20'
json 'all(t["used_bytes"] <= t["capacity_bytes"] for t in p[0]["tiers"])'
json '[h["name"] for h in p[0]["hops"]] == ["d2d", "h2h", "d2h", "h2d", "h2f", "f2h"]'
json 'p[0]["checkpoint"]["bytes"] >= p[0]["checkpoint"]["count"] * 60000 and p[0]["restore"]["count"] == 0'
json 'p[0]["histories"][0]["name"] == "shot" and p[0]["histories"][0]["hints"] > 0'
expect 0 --once "$pid"
says "pid $pid " out "top --once"
says "checkpoint " out "top --once"
grep -Eq '^host memory taken: .* of disk buffers$' "$dir/out" && grep -Eq '^library: .* cores[: ]' "$dir/out" || { cat "$dir/out"; fail "rows that are cut"; }
[ "$(awk 'length > 80' "$dir/out" | wc -l)" = 0 ] || fail "wider than 80 columns"
COLUMNS=40 expect 0 --once
[ "$(awk 'length > 40' "$dir/out" | wc -l)" = 0 ] || fail "wider than COLUMNS"
[ "$(stat -c %a "$dir"/pages/varve-stats."$pid".0)" = 600 ] || fail "the page can be read by others"

# Prometheus: every sample belongs to the family above it, labels parse, counters count.
expect 0 --prometheus "$pid"
python3 - "$dir/out" "$pid" <<'P' || fail "exposition format"
import re, sys
family = kind = None
families = set()
for line in open(sys.argv[1], encoding="utf-8").read().splitlines():
    if line.startswith("# HELP "):
        name = line.split()[2]
        assert name not in families, line
        families.add(name)
        family = name
    elif line.startswith("# TYPE "):
        _, _, name, kind = line.split()
        assert name == family and kind in ("counter", "gauge"), line
        assert (kind == "counter") == name.endswith("_total"), line
    else:
        m = re.fullmatch(r'([a-z_0-9]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)', line)
        assert m and m.group(1) == family, line
        assert float(m.group(3)) >= 0 and f'pid="{sys.argv[2]}"' in m.group(2), line
assert {"varve_up", "varve_tier_used_bytes", "varve_hop_bytes_total", "varve_calls_blocked_seconds_total"} <= families
P

# On a terminal: drawn, resized, explained, ended by a key and by signals, and restored.
cat >"$dir/drive.py" <<'P'
import fcntl, os, pty, select, signal, struct, sys, termios, time
def size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
class Top:
    def __init__(self, *args):
        self.master, slave = pty.openpty()
        size(slave, 24, 80)
        self.before = termios.tcgetattr(slave)
        self.slave, self.out = slave, b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(slave, fd)
            for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
                signal.signal(s, signal.SIG_DFL)
            os.environ["TERM"] = "xterm"
            os.execv(os.environ["VARVE_BIN"], ["varve", "top", "--interval", "0.1", *args])
    def until(self, what, since=0):
        end = time.monotonic() + 180
        while what not in self.out[since:]:
            assert time.monotonic() < end, (what, self.out[-3000:])
            if select.select([self.master], [], [], 1)[0]:
                self.out += os.read(self.master, 65536)
        return len(self.out)
    def send(self, keys):
        at = len(self.out)
        os.write(self.master, keys)
        return at
    def ended(self, status):
        end = time.monotonic() + 180
        while True:
            if select.select([self.master], [], [], 0.05)[0]:
                self.out += os.read(self.master, 65536)
            pid, got = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < end, "does not end"
        while select.select([self.master], [], [], 0)[0]:
            self.out += os.read(self.master, 65536)
        assert (os.WEXITSTATUS(got) if os.WIFEXITED(got) else -os.WTERMSIG(got)) == status, got
        assert self.out.count(b"\x1b[?1049h") == self.out.count(b"\x1b[?1049l"), "the screen is not put back"
        assert self.out.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), self.out[-200:]
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not put back"
        os.close(self.slave)
        os.close(self.master)
def frames(out):
    return out.split(b"\x1b[H")[1:]

several = len(sys.argv) > 1
top = Top()
if several:
    top.until(b"REST BLK")
    at = top.send(b"\x1b[B\r")           # the second of the list, and its page
    top.until(b"MOVER", at)
    at = top.send(b"l")
    top.until(b"REST BLK", at)
    top.send(b"q")
    top.ended(0)
    sys.exit()
top.until(b"MOVER")
at = top.send(b"h")
top.until(b"What is shown", at)
at = top.send(b"h")
top.until(b"MOVER", at)
# No frame is higher or wider than the window, of any size.
for rows, columns in ((24, 80), (10, 40), (50, 132)):
    at = len(top.out)
    size(top.master, rows, columns)
    os.kill(top.pid, signal.SIGWINCH)
    top.until(b"\x1b[2J", at)
    at = top.until(b"\x1b[%d;1H" % rows, at)
    top.until(b"\x1b[%d;1H" % rows, at)
    at = top.out.rindex(b"\x1b[2J")
    for frame in frames(top.out[at:])[:-1]:
        lines = frame.split(b"\x1b[J")[0].split(b"\r\n")
        assert len(lines) <= rows, (rows, frame)
        for line in lines:
            for code in (b"\x1b[1m", b"\x1b[0m", b"\x1b[K"):
                line = line.replace(code, b"")
            line = line.rstrip(b"\r")
            assert len(line) <= columns and b"\x1b" not in line, (columns, line)
top.send(b"q")
top.ended(0)
for number, keys in ((signal.SIGINT, b"\x03"), (signal.SIGTERM, None), (signal.SIGHUP, None)):
    top = Top(os.environ["BENCH_PID"])
    top.until(b"MOVER")
    if keys:
        top.send(keys)
    else:
        os.kill(top.pid, number)
    top.ended(-number)
# Ctrl-Z puts the terminal back too, and fg draws again. (A session leader's group is orphaned and does not stop on
# SIGTSTP; this test only checks that it does not die and restores the terminal.)
top = Top()
top.until(b"MOVER")
at = top.send(b"\x1a")
top.until(b"\x1b[?1049h", at)
top.until(b"MOVER", at)
top.send(b"q")
top.ended(0)
P
BENCH_PID=$pid timeout 300 python3 "$dir/drive.py" || fail "on a terminal"
# A terminal without capabilities, or a pipe, gets text.
TERM=dumb timeout 180 python3 -c 'import os, pty; pty.spawn([os.environ["VARVE_BIN"], "top"])' >"$dir/out" 2>&1 </dev/null
says "checkpoint " out "top on a dumb terminal"
! grep -q $'\033' "$dir/out" || fail "escape sequences on a dumb terminal"

# Several processes.
start
await 2
expect 0 --once
says "PROGRAM" out "top with two processes"
[ "$(wc -l <"$dir/out")" = 3 ] || fail "two processes are not two lines"
timeout 180 python3 "$dir/drive.py" several || fail "the list on a terminal"
expect 0 --once "$pid"
says "pid $pid " out "top PID among several"

# Killed, they leave their pages; top finds and removes them.
expect 0 --json
pids=$(python3 -c "import json; [print(x['pid']) for x in json.load(open('$dir/out'))['processes']]")
for p in $pids; do kill -9 "$p"; done
for job in $running; do wait "$job" 2>/dev/null || true; done
running=
[ "$(find "$dir/pages" -type f | wc -l)" = 2 ] || fail "killed processes left no pages"
expect 0 --once
says "removed the page of process $pid, which ended without closing" err "top"
says "no process of this user" out "top"
[ "$(find "$dir/pages" -type f | wc -l)" = 0 ] || fail "pages are left"

# The library removes such pages too; and closing leaves none.
start
await 1
p=$(python3 -c "import json; print(json.load(open('$dir/out'))['processes'][0]['pid'])")
kill -9 "$p"
stop
[ "$(find "$dir/pages" -type f | wc -l)" = 1 ] || fail "a killed process left no page"
"$VARVE_BIN" bench shot --ckpts 50 --size 64K --interval-ms 5 --local "$dir/data" --no-bound >/dev/null 2>&1
[ "$(find "$dir/pages" -type f | wc -l)" = 0 ] || fail "a page is left"

# A damaged page is an error with its name, no crash; the others are shown.
start
await 1
for bytes in 0 1 100 640 5000 8352 100000; do
    head -c $bytes /dev/urandom >"$dir/pages/varve-stats.1.0"
    if [ $bytes -ge 100 ]; then
        expect 1 --once
        says "varve-stats.1.0: not a statistics page" err "top with a damaged page"
        says "checkpoint " out "top with a damaged page"
    fi
done
stop
echo ok
