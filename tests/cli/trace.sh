# SPDX-License-Identifier: Apache-2.0
# A real trace, by bench shot on the emulated device, and all outputs of varve trace.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
says() { grep -qF -- "$1" "$dir/err" || { cat "$dir/err"; fail "'$1' is not said"; }; }
rates=d2d=4G,d2h=400M,h2d=400M,h2f=80M,f2h=80M
shot="bench shot --ckpts 24 --size 1M --interval-ms 5 --no-bound --local $dir --rate $rates"
t=$dir/t.vtrace

expect 0 $shot --level local --trace "$t"
expect 0 trace info "$t"
[ ! -s "$dir/err" ] || { cat "$dir/err"; fail "a good trace is complained about"; }
grep -q '^checkpoints  24, 24.0 MiB$' "$dir/out" || { cat "$dir/out"; fail "not 24 checkpoints"; }
grep -Eq '^ +[0-9]+ threads of the library on .*: [0-9.]+ s of processor time$' "$dir/out" || { cat "$dir/out"; fail "no cores"; }
grep -Eq '^h2f .*, commits [0-9.]+ s, [0-9.]+ s of it without a copy$' "$dir/out" || { cat "$dir/out"; fail "no commits"; }
expect 0 trace info --json "$t"
cp "$dir/out" "$dir/info.json"
expect 0 trace export --format chrome -o "$dir/t.json" "$t"
expect 0 trace export --format svg -o "$dir/t.svg" "$t"
expect 0 trace export --format svg --from 0.01 --to 0.05 -o "$dir/part.svg" "$t"
for table in spans iterations occupancy records; do
    expect 0 trace export --format csv --table $table "$t"
    cp "$dir/out" "$dir/$table.csv"
done

cat >"$dir/check.py" <<'PY'
import csv, json, sys, xml.etree.ElementTree as xml
dir = sys.argv[1]
info = json.load(open(dir + "/info.json"))
assert info["complete"] and info["lost"] == 0 and info["damaged_bytes"] == 0 and info["phased"], info
assert info["checkpoints"] == info["restores"] == 24 and info["errors"] == 0, info
assert info["checkpoint_bytes"] == info["restore_bytes"] == 24 << 20, info
assert info["histories"] == ["shot"], info
meta = {(m["context"], m["key"]): m["value"] for m in info["meta"]}
context = max(c for c, _ in meta)
assert meta[context, "config.policy"] == "next" and meta[context, "config.level"] == "local", meta
assert meta[0, "kernel"] and int(meta[0, "memory"]) > 0 and meta[0, "version"], meta
assert [meta[context, "tier.%d" % i] for i in range(3)] == ["device", "host", "files"], meta
lanes = {l["label"].split()[0]: l for l in info["lanes"]}
assert set(lanes) == {"application", "d2d", "d2h", "h2d", "h2f", "f2h"} or \
    set(lanes) == {"application", "d2d", "d2h", "h2d", "h2f"}, lanes
assert lanes["h2f"]["bytes"] >= 1 << 20 and lanes["h2f"]["commit"] > 0, lanes

# The spans of the application cover its time without a gap, and the calls are as long as in info.
rows = list(csv.DictReader(open(dir + "/spans.csv")))
app = [r for r in rows if r["lane"] == "application" and r["row"] == "0"]
for a, b in zip(app, app[1:]):
    assert a["end_ns"] == b["start_ns"], (a, b)
for kind, key in ("blocked write", "blocked_write_ns"), ("blocked read", "blocked_read_ns"):
    assert sum(int(r["end_ns"]) - int(r["start_ns"]) for r in app if r["kind"] == kind) == info[key], kind
phases = [r["name"] for r in rows if r["kind"] == "phase"]
assert phases == ["forward", "backward"], phases
commits = [r for r in rows if r["kind"] == "commit"]
assert sorted(int(r["version"]) for r in commits) == list(range(24)), commits

its = list(csv.DictReader(open(dir + "/iterations.csv")))
assert [r["call"] for r in its] == ["checkpoint"] * 24 + ["restore"] * 24, its
assert [int(r["version"]) for r in its] == list(range(24)) + list(reversed(range(24))), its
assert all(r["history"] == "shot" and r["status"] == "0" and r["bytes"] == str(1 << 20) for r in its)
assert all((r["distance"] != "") == (r["call"] == "restore") for r in its), its

# Occupancy never exceeds capacity, and something was in every tier.
occupancy = list(csv.DictReader(open(dir + "/occupancy.csv")))
assert {r["label"] for r in occupancy} == {"device", "host", "disk"}, occupancy[:3]
assert all(int(r["capacity"]) == 0 or int(r["bytes"]) <= int(r["capacity"]) for r in occupancy)

records = list(csv.DictReader(open(dir + "/records.csv")))
assert len(records) == info["records"] and {"thread", "state", "hint"} <= {r["kind"] for r in records}

# Perfetto: known phases of events, times that are numbers, complete events nested within each thread, every thread named.
trace = json.load(open(dir + "/t.json"))
events = trace["traceEvents"]
assert {e["ph"] for e in events} <= set("MXCi"), {e["ph"] for e in events}
named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
threads = {}
for e in events:
    if e["ph"] == "X":
        assert e["dur"] >= 0 and e["ts"] >= 0 and e["name"] and e["tid"] in named, e
        # in nanoseconds: sums of fractions are not exact
        threads.setdefault(e["tid"], []).append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
    if e["ph"] == "C":
        assert all(isinstance(v, int) for v in e["args"].values()), e
for tid, spans in threads.items():
    stack = []
    for start, end in spans:
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], (tid, start, end, stack)
        stack.append(end)
    assert [s[0] for s in spans] == sorted(s[0] for s in spans), tid
names = {e["name"] for e in events if e["ph"] == "X"}
assert {"forward", "backward", "checkpoint", "restore", "d2h", "h2f", "commit"} <= names, names
assert sum(e["name"] == "checkpoint" for e in events) == 24
assert {"host: bytes in use", "prefetch distance"} <= {e["name"] for e in events if e["ph"] == "C"}

# The picture is one XML document, loads nothing, and has the lanes, the legend and the axis.
for name in "t.svg", "part.svg":
    root = xml.parse(dir + "/" + name).getroot()
    text = [e.text for e in root.iter() if e.tag.endswith("}text")]
    want = ["application", "d2h device to host", "h2f host to file", "seconds"]
    if name == "t.svg": # what a part shows depends on the machine
        want += ["blocked write", "forward", "backward"]
    assert all(w in text for w in want), text
    raw = open(dir + "/" + name).read()
    assert "href" not in raw and "<script" not in raw and "url(" not in raw and "prefers-color-scheme" in raw
    assert sum(e.tag.endswith("}rect") or e.tag.endswith("}path") for e in root.iter()) > (30 if name == "t.svg" else 5)
PY
python3 "$dir/check.py" "$dir" || fail "what was exported is not what was run"

# Several processes, each with its file; the file of another run of this shot is replaced.
expect 0 $shot --procs 2 --trace "$dir/many"
expect 0 $shot --procs 2 --trace "$dir/many.%r"
for rank in 0 1; do expect 0 trace info "$dir/many.$rank"; done

# Killed: the written part can be read, and the missing end is reported. Damage is reported, too.
python3 - "$t" "$dir" <<'PY'
import sys
data = open(sys.argv[1], "rb").read()
open(sys.argv[2] + "/torn", "wb").write(data[:len(data) // 2])
bad = bytearray(data)
bad[len(bad) // 2] ^= 255
open(sys.argv[2] + "/bad", "wb").write(bad)
PY
expect 0 trace info "$dir/torn"
grep -q 'not ended' "$dir/out" || fail "a torn file passes for a complete one"
says "damaged"
expect 0 trace export --format svg -o "$dir/torn.svg" "$dir/torn"
expect 0 trace info "$dir/bad"
says "damaged"

# Wrong command lines.
expect 1 trace info "$dir/none"
says "$dir/none: No such file or directory"
expect 1 trace info "$dir/t.svg"
says "not a trace"
expect 2 trace
expect 2 trace nonsense "$t"
expect 2 trace info
expect 2 trace export "$t"
expect 2 trace export --format pdf "$t"
expect 2 trace export --format csv --table nonsense "$t"
expect 2 trace export --format svg --from 3 --to 2 "$t"
expect 1 trace export --format svg -o "$dir/none/t.svg" "$t"
says "$dir/none/t.svg: No such file or directory"
expect 0 trace --help
expect 0 trace info --help
expect 0 trace export --help
expect 2 sim shot --trace "$t"
expect 2 bench shot --engine file --trace "$t"
expect 1 $shot --trace "$dir/t.svg"
says "is not a trace"
expect 1 $shot --trace "$dir/none/t"
says "trace_file"
if [ -e /dev/full ]; then
    rc=0
    "$VARVE_BIN" trace export --format chrome "$t" >/dev/full 2>"$dir/err" || rc=$?
    [ $rc -eq 1 ] || fail "a full device is not noticed"
    ln -s /dev/full "$dir/full"
    expect 1 trace export --format chrome -o "$dir/full" "$t"
    [ -L "$dir/full" ] || fail "what is no file was removed"
fi
# The trace itself is not overwritten.
cp "$t" "$dir/was"
ln -s "$t" "$dir/link"
expect 2 trace export --format csv -o "$dir/link" "$t"
says "is the trace itself"
cmp "$t" "$dir/was" || fail "the trace was overwritten"
# Control characters of a file do not reach the terminal.
odd=$dir/odd$(printf '\033')[2J
mkdir "$odd"
expect 0 bench shot --ckpts 2 --size 64K --interval-ms 1 --no-bound --local "$odd" --trace "$dir/odd.vtrace"
expect 0 trace info "$dir/odd.vtrace"
grep -q '^command .*odd?\[2J' "$dir/out" && ! grep -q "$(printf '\033')" "$dir/out" || { cat -v "$dir/out"; fail "a control character is printed"; }
echo ok
