# SPDX-License-Identifier: Apache-2.0
# The demonstration at a small size: its files, its refusals, and that an interrupted run leaves nothing.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
dir=$(mktemp -d)
running=
stop() {
    for pid in $running; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
    running=
}
trap 'stop; rm -rf "$dir"' EXIT
fail() { echo "demo: $*" >&2; exit 1; }
bin=$(dirname "$VARVE_BIN")
[ -x "$bin/varve-rtm" ] || { echo "skipped: varve-rtm was not built"; exit 77; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
cd "$dir"
demo="$SOURCE_DIR/scripts/demo --bin $bin"
expect() { # STATUS ARGUMENT...
    local want=$1 rc=0
    shift
    $demo "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
    [ $rc -eq "$want" ] || { cat "$dir/out" "$dir/err"; fail "demo $*: $rc, not $want"; }
}
says() { grep -qF -- "$1" "$dir/$2" || { cat "$dir/$2"; fail "'$1' is not in the $2put of $3"; }; }
# Foreign files in the folder.
litter() { find "$dir" -mindepth 1 \( -name varve-demo -o -name out -o -name err -o -name 'fake*' \) -prune -o -print | grep -v '^$' || true; }
work_left() { find "$1" -mindepth 1 ! -name .varve-demo ! -name .lock | sort || true; }
# Under a sanitizer everything takes many times as long, so fewer variants are tried.
long=(--small --steps 20000 --every 100 --grid 121x81 --memory 512K)
[ -z "${VARVE_SANITIZE:-}" ] || long=(--small --steps 5000 --every 25 --grid 121x81 --memory 512K)
small=(--small --grid 121x81 --steps 300 --every 1 --memory 512K)

# Wrong options are refused, and nothing is made.
expect 2 --nonsense 1
expect 2 extra
expect 2 --grid 10
expect 2 --grid x
expect 2 --steps 1.5
expect 2 --memory lots
expect 2 --shots 0
expect 2 --out
expect 0 --help
says "usage: scripts/demo" out "--help"
expect 1 --bin "$dir/nowhere"
says "run make first" err "--bin"
expect 1 --grid 99999x99999
says "the run in memory needs about" err "a grid that is too large"
expect 1 --local "$dir/nowhere"
says "no folder that can be written to" err "--local"
mkdir fake
printf '#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted\necho x 1000 990 10 99 /\n' >fake/df
chmod +x fake/df
PATH=$dir/fake:$PATH expect 1 --small
says "has 10.0 KiB free, and the history needs about" err "a full disk"
[ ! -e varve-demo ] || fail "something was made"
# A folder without the marker is left alone.
mkdir fake/mine && echo precious >fake/mine/work
expect 1 --small --out fake/mine
says "is there, and not from here" err "a folder of others"
[ "$(cat fake/mine/work)" = precious ] && [ "$(ls -A fake/mine)" = work ] || fail "a folder of others was changed"
echo x >fake/file
expect 1 --small --out fake/file
says "is not a folder" err "a file"

# A run, and another in the same folder; to the disk of --local if that is given.
whole() {
    says "The three images are the same, bit by bit." out "the demo"
    says "varve-demo/report.html" out "the demo"
    [ "$(grep -cE '^(Varve|plain files|in memory) +[0-9.]+ s +[0-9.]+ s +[0-9.]+% ' "$dir/out")" = 3 ] || { cat "$dir/out"; fail "the table"; }
    python3 - varve-demo <<'P' || fail "what it leaves"
import json, sys
folder = sys.argv[1]
png = open(folder + "/image.png", "rb").read()
assert png[:8] == b"\x89PNG\r\n\x1a\n" and png[-8:-4] == b"IEND" and len(png) > 2000
assert open(folder + "/model.png", "rb").read(8) == png[:8]
page = open(folder + "/report.html", encoding="utf-8").read()
assert page.lstrip().lower().startswith("<!doctype html") and "</html>" in page and len(page) > 10000
assert "<svg" in open(folder + "/timeline.svg", encoding="utf-8").read()
runs = {k: json.load(open(f"{folder}/{k}.json")) for k in ("varve", "file", "memory")}
v, f, m = runs["varve"], runs["file"], runs["memory"]
assert v["history_bytes"] == f["history_bytes"] == m["history_bytes"] and v["history_over_cache"] >= 20, v
assert all(r["peak_memory_bytes"] > 1 << 20 and r["wall_s"] > 0 for r in runs.values())
P
    [ -z "$(find varve-demo -name 'varve-stats.*')" ] && [ ! -e varve-demo/work ] || fail "pages or work are left"
    [ -z "$(litter)" ] || { litter; fail "litter"; }
}
expect 0 "${small[@]}"
whole
grep -q '^forward .*step .*blocked ' "$dir/err" || fail "no lines of progress"
! grep -q $'\r' "$dir/err" || fail "a bar where there is no terminal"
if [ -z "${VARVE_SANITIZE:-}" ]; then
    mkdir fake/disk
    expect 0 "${small[@]}" --local fake/disk
    whole
    [ -z "$(ls -A fake/disk)" ] || fail "something is left on the disk of --local"
fi

# Interrupted: it ends at once, leaves nothing, and can be run again.
rm -rf varve-demo
interrupt() { # SIGNAL
    : >err
    # A shell has its background jobs ignore SIGINT; python3 gives it back.
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
        $demo "${long[@]}" >out 2>err </dev/null &
    pid=$!
    running=$pid
    for _ in $(seq 2400); do
        ! grep -qE '^(model|forward)' err || break
        kill -0 $pid 2>/dev/null || { cat out err; fail "ended by itself"; }
        sleep 0.05
    done
    grep -qE '^(model|forward)' err || fail "it does not get anywhere"
    children=$(cat /proc/$pid/task/$pid/children 2>/dev/null || true)
    if [ -e /proc/self/task/$$/children ]; then [ -n "$children" ] || fail "no child"; fi
    kill -"$1" $pid
    rc=0
    wait $pid || rc=$?
    running=
    [ $rc -eq $((128 + $(kill -l "$1"))) ] || { cat err; fail "SIG$1: status $rc"; }
    for _ in $(seq 2400); do
        alive=
        for c in $children; do ! kill -0 "$c" 2>/dev/null || alive=1; done
        [ -n "$alive" ] || break
        sleep 0.05
    done
    [ -z "${alive:-}" ] || fail "SIG$1: varve-rtm goes on"
}
signals="INT TERM"
[ -z "${VARVE_SANITIZE:-}" ] || signals=TERM
for signal in $signals; do
    interrupt $signal
    [ -z "$(work_left varve-demo)" ] || { work_left varve-demo; fail "SIG$signal leaves something"; }
    [ -z "$(litter)" ] || { litter; fail "litter after SIG$signal"; }
    says "the next run starts again" err "SIG$signal"
done
# Even without a chance to clean up no file is elsewhere, and the next run cleans up.
interrupt KILL
[ -z "$(litter)" ] || { litter; fail "litter after SIGKILL"; }
expect 0 "${small[@]}"
whole

# It ends on a signal.
expect 1 "${long[@]}" --give-up 1
says "given up after 1 s" err "--give-up"
[ -z "$(find varve-demo -name work)" ] || fail "work is left"
[ -z "${VARVE_SANITIZE:-}" ] || { echo ok; exit 0; }

# On a terminal there is a bar.
timeout 250 python3 - $demo "${small[@]}" <<'P' >"$dir/out" || fail "on a terminal"
import os, pty, sys
out = b""
def read(fd):
    global out
    data = os.read(fd, 65536)
    out += data
    return data
status = pty.spawn(sys.argv[1:], read)
assert status == 0, (status, out)
assert b"\r\x1b[K" in out and b"[####" in out and b"blocked" in out, out[-2000:]
# In one row of a terminal that does not tell its size: wrapped lines are never overwritten.
for frame in out.split(b"\r\x1b[K")[1:]:
    assert len(frame.split(b"\r")[0].split(b"\n")[0]) < 80, frame
P
whole
echo ok
