# SPDX-License-Identifier: Apache-2.0
# varve sim script, make and set, and varve bench script.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "script: $*" >&2; exit 1; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); t = d['threads']; assert $1, d"; }
# Runs a command and expects a status; output in $dir/out and $dir/err.
expect() {
    local want=$1 rc=0
    shift
    "$VARVE_BIN" "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -eq "$want" ] || { cat "$dir/out" "$dir/err"; fail "varve $*: $rc, not $want"; }
}
check() { json "$1" <"$dir/out" || fail "${2:-$1}"; }
sound='d["failure"] is None and d["verified"] and d["bound_s"] > 0 and d["bound_ratio"] >= 0.98'
rates=d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M
make() { # KIND OPTION...
    expect 0 sim make "$@" --size 1M --load 1 --rate $rates
    cp "$dir/out" "$dir/script"
}

# Every kind runs, with options of its own; settings of the script can be overridden.
make shot --ckpts 12 --order irr --hints swapped --swap 3
make revolve --ckpts 24 --slots 4
make sweeps --ckpts 12 --rounds 2 --repeat 2
make overlap --ckpts 12 --vary tail --hints late
make activations --ckpts 12 --declare lifo --hints none --threads 2
make queue --ckpts 24 --distance 5 --hints partial --device-cache 4M --host-cache 8M
grep -q '^set host-cache 8388608$' "$dir/script" || fail "the machine is not in the script"
expect 0 sim script "$dir/script" --json
check "$sound"
check 'd["machine"]["host_bytes"] == 8 << 20 and len(t) == 1 and len(t[0]["restore_blocked_s"]) == 24'
check 'd["script"].endswith("/script") and "ckpts" not in d["options"]'
expect 0 sim script --host-cache 4M "$dir/script" --json --policy lru
check "$sound"
check 'd["machine"]["host_bytes"] == 4 << 20 and d["options"]["policy"] == "lru"'
expect 0 sim script "$dir/script" --csv "$dir/csv" --latency h2f=50,f2h=80
[ "$(wc -l <"$dir/csv")" -eq 49 ] && grep -q '^thread,call,' "$dir/csv" || fail "--csv"
grep -q '^ratio ' "$dir/out" || fail "the report has no ratio"

# A shot and the script of it have the same figures.
shot="--ckpts 24 --size 1M --order rev --load 2 --hints one --rate $rates"
expect 0 sim shot $shot --json
cp "$dir/out" "$dir/shot"
"$VARVE_BIN" sim make shot $shot | "$VARVE_BIN" sim script - --json >"$dir/out" || fail "a script from a pipe"
python3 - "$dir/shot" "$dir/out" <<'EOP' || fail "a shot and its script differ"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["processes"] == b["threads"]
assert all(a[k] == b[k] for k in ("blocked_checkpoint_s", "blocked_restore_s", "bound_s", "wall_s", "wait_s"))
EOP

# On the library: every byte is verified, and the calls are those of the script.
bench() { # SCRIPT ARGUMENT...
    expect 0 bench script "$@" --json --local "$dir" --no-bound
    check 'd["command"] == "bench" and d["verified"] and d["failure"] is None'
    [ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "bench leaves files behind"
}
expect 0 sim make sweeps --ckpts 8 --size 256K --interval-ms 1 --rounds 2 --repeat 2 --vary tail
cp "$dir/out" "$dir/script"
bench "$dir/script"
check 'len(t) == 1 and len(t[0]["checkpoint_blocked_s"]) == 8 and len(t[0]["restore_blocked_s"]) == 32'
bench "$dir/script" --device none
expect 0 sim make activations --ckpts 6 --size 256K --interval-ms 1 --rounds 2 --threads 3 --declare lifo --hints none --barrier
cp "$dir/out" "$dir/script"
bench "$dir/script" --csv "$dir/csv"
check 'len(t) == 3 and all(len(x["restore_blocked_s"]) == 12 for x in t)'
[ "$(wc -l <"$dir/csv")" -eq 73 ] || fail "bench --csv"
printf 'history a once\nhistory b\nput a:0 1M\nput b:0 2M\nwait b\nget b:0\nget a:0\ndiscard b:0\n' >"$dir/script"
bench "$dir/script"
# The same number in two histories of two threads.
printf 'history a\nhistory b\nput a:0 1M\nbarrier\nget a:0\nthread\nput b:0 1M\nbarrier\nget b:0\n' >"$dir/script"
bench "$dir/script"
printf 'put 0 1M\nthread\nput 1 1M\n' >"$dir/script"
expect 2 bench script "$dir/script"
grep -qF "line 3: history 'main' is used by threads 0 and 1, expected one" "$dir/err" || fail "one history, two threads"
expect 2 bench script "$dir/script" --latency h2f=3
expect 2 bench script "$dir/script" --engine file

# A trace of a run becomes a script with the same calls, which runs as it is.
expect 0 sim make overlap --ckpts 6 --size 256K --interval-ms 1 --rounds 2 --hints one --threads 2 \
    --rate $rates --device-cache 1M --host-cache 1M
cp "$dir/out" "$dir/script"
bench "$dir/script" --trace "$dir/trace"
expect 0 trace script "$dir/trace"
calls() { sed -nE 's/^(put|get|hint) [a-z0-9]*:?([0-9]+).*/\1 \2/p' "$1"; }
cp "$dir/out" "$dir/replay"
cmp <(calls "$dir/script") <(calls "$dir/replay") || fail "the trace's script has other calls"
grep -q '^set host-cache 1048576$' "$dir/replay" && grep -q '^history h[01] # h1$' "$dir/replay" || fail "the trace's settings"
[ "$(grep -c '^thread' "$dir/replay")" -eq 2 ] || fail "the trace's threads"
expect 0 sim script "$dir/replay" --json
check "$sound"
check 'len(t) == 2 and all(len(x["restore_blocked_s"]) == 12 for x in t)'
expect 0 trace script --once "$dir/trace"
[ "$(grep -c '^discard' "$dir/out")" -eq 24 ] || fail "trace script --once"
cp "$dir/out" "$dir/replay"
expect 0 sim script "$dir/replay" --json
check "$sound"
expect 0 sim script "$SOURCE_DIR/tests/golden/script/read-ahead-at-the-end"
expect 2 trace script
expect 1 trace script "$dir/script"

# Threads that share a version have no bound.
printf 'put 0 1M\nbarrier\nthread\nbarrier\nget 0\n' >"$dir/script"
expect 0 sim script "$dir/script" --json --rate $rates
check 'd["bound_s"] is None and len(t) == 2 and t[1]["blocked_restore_s"] > 0'

# Errors are reported with the line.
refuse() { # STATUS TEXT SCRIPT ARGUMENT...
    printf "$3" >"$dir/bad"
    local want=$1 text=$2
    shift 3
    expect "$want" sim script "$dir/bad" "$@"
    grep -qF -- "$text" "$dir/err" || { cat "$dir/err"; fail "$text"; }
    [ ! -s "$dir/out" ] || fail "something is printed"
}
refuse 1 "$dir/bad:2: 'x' is not a size, expected one such as 4096, 64K, 8M or 1.5G" 'put 0 8M\nput 1 x\n'
refuse 2 "$dir/bad:1: unknown option '--nonsense'" 'set nonsense\nput 0 8M\n'
refuse 2 "$dir/bad:2: --host-cache: 'x' is not a size or a share" 'set page 1M\nset host-cache x\nput 0 8M\n'
refuse 2 "simulated hops need a rate" 'put 0 8M\n'
refuse 2 "unknown option '--ckpts'" 'put 0 8M\n' --ckpts 4
refuse 2 "--engine, --compute, --calls and --trace are allowed only with 'varve bench'" 'put 0 8M\n' --trace x --rate $rates
refuse 2 "expected the name of one script" 'put 0 8M\n' other --rate $rates
expect 1 sim script "$dir/none" --rate $rates
grep -qF "varve sim script: $dir/none: " "$dir/err" || fail "a file that is not there"
expect 2 sim make nonsense
grep -qF "'nonsense' is not a kind, expected one of shot|revolve|sweeps|queue|overlap|activations" "$dir/err" || fail "kind"
expect 2 sim make queue --order rev
grep -qF -- "--order is allowed only with 'varve sim make shot'" "$dir/err" || fail "--order"
expect 2 sim make queue --wait
expect 2 sim make
# The set: ways are compared, and one of its cases can be run alone, from its text too.
expect 0 sim set --cases 20 --series next/all,lru/none --csv "$dir/csv" --json --jobs 1
python3 - "$dir/out" "$dir/csv" <<'EOP' || fail "sim set"
import csv, json, sys
d, rows = json.load(open(sys.argv[1])), list(csv.DictReader(open(sys.argv[2])))
assert len(rows) == len(d["runs"]) == 40 and [s["series"] for s in d["series"]] == ["next/all", "lru/none"]
assert all(s["failed"] == 0 and 0.98 <= s["median"] <= s["p95"] <= s["worst"] for s in d["series"])
assert all(abs(float(r["blocked_s"]) - x["blocked_s"]) < 1e-6 for r, x in zip(rows, d["runs"]))
EOP
cp "$dir/csv" "$dir/csv1"
expect 0 sim set --cases 20 --series next/all,lru/none --csv "$dir/csv" --jobs 2
cmp "$dir/csv" "$dir/csv1" || fail "sim set depends on the number of threads"
grep -q '^worst of lru/none' "$dir/out" || fail "no worst cases"
expect 0 sim set --one 7 --print
cp "$dir/out" "$dir/script"
expect 0 sim set --one 7 --json
cp "$dir/out" "$dir/one"
expect 0 sim script "$dir/script" --json
python3 -c 'import json, sys; a, b = (json.load(open(f)) for f in sys.argv[1:]); assert a["threads"] == b["threads"]' \
    "$dir/one" "$dir/out" || fail "a case and its script differ"
expect 2 sim set --series next
for command in script make set; do
    expect 0 sim $command --help
    grep -q "usage: varve sim $command" "$dir/out" || fail "$command --help"
done
