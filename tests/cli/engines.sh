# SPDX-License-Identifier: Apache-2.0
# varve bench shot with the library and with the baselines, on the emulated device: the same script, every byte checked.
# Times have to be printed; their values are not checked.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
check() {
    python3 -c "import json, sys; d = json.load(sys.stdin); o = d['options']
assert $1, d" <"$dir/out" || fail "$1"
}
shot="bench shot --json --ckpts 12 --size 1000001 --interval-ms 1 --local $dir --rate d2d=4G,d2h=2G,h2d=2G"

# Baselines: verified, with an expected time instead of a bound, in every order.
baseline='d["verified"] is True and d["failure"] is None and d["bound_s"] is None and d["expected_by"]'
baseline="$baseline and d['expected_checkpoint_s'] > 0 and d['expected_restore_s'] > 0 and d['open_s'] > 0"
for engine in ondemand file; do
    for order in irr binomial; do
        expect 0 $shot --engine $engine --order $order
        check "$baseline and o['engine'] == '$engine'"
    done
done
expect 0 $shot --engine file --no-bound --procs 2 --barrier --hints none --no-wait --compute gpu
check 'd["verified"] is True and d["expected_by"] is None and d["expected_checkpoint_s"] is None'
expect 0 bench shot --ckpts 4 --size 64K --interval-ms 1 --engine ondemand
grep -q '^expected .*the link' "$dir/out" || { cat "$dir/out"; fail "a baseline's report does not say what limits it"; }
[ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "files are left behind"

# Managed memory over the stand-in for the driver, where our kernels, which verify, are in the build.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ] && "$VARVE_BIN" doctor | grep -q '^found *GPU kernels'; then
    (
        export LD_LIBRARY_PATH="$BUILD_DIR/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        uvm="bench shot --json --device cuda --engine uvm --ckpts 12 --size 1000001 --interval-ms 1 --device-cache 4M"
        for ways in "" touch=0,ahead=0,step=0,yield=0,fetch=1; do
            for hints in all none; do
                expect 0 $uvm ${ways:+--uvm $ways} --hints $hints
                check 'd["verified"] is True and d["failure"] is None and d["expected_by"] is None and o["engine"] == "uvm" and d["open_s"] > 0'
            done
        done
        grep -q 'uvm touch=0,ahead=0' "$dir/err" || fail "the line that repeats a run does not have --uvm"
        expect 1 $uvm --uvm stride=1
        grep -q "'stride'" "$dir/err" || { cat "$dir/err"; fail "--uvm is not checked"; }
    )
fi

# The library, computing by a kernel; every call in a table.
expect 0 $shot --no-bound --compute gpu --device-cache 3M --host-cache 6M --csv "$dir/calls.csv"
check 'd["verified"] is True and 0 < d["first_tier_utilisation"] <= 1 and 0 < d["open_s"] <= d["host_ready_s"]'
python3 - "$dir/calls.csv" "$dir/out" <<'PY' || fail "the table of calls"
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
proc = json.load(open(sys.argv[2]))["processes"][0]
puts = [r for r in rows if r["call"] == "checkpoint"]
gets = [r for r in rows if r["call"] == "restore"]
assert len(puts) == len(gets) == 12 and len(rows) == 24, rows
assert [int(r["version"]) for r in gets] == list(range(11, -1, -1)), gets
assert all(int(r["bytes"]) == 1000001 and float(r["gbps"]) > 0 for r in rows), rows
assert [int(r["prefetch_distance"]) for r in gets] == proc["prefetch_distance"]
for some, name in ((puts, "checkpoint_blocked_s"), (gets, "restore_blocked_s")):
    assert all(abs(float(r["blocked_s"]) - b) < 1e-8 for r, b in zip(some, proc[name])), some
PY
expect 0 $shot --calls on --order irr
check 'd["verified"] is True and d["bound_s"] is None and o["calls"] == "on"'
expect 0 bench shot --ckpts 4 --size 64K --interval-ms 1 --calls on
grep -q '^host time of a call: ' "$dir/out" || { cat "$dir/out"; fail "no host time"; }
expect 0 sim shot --ckpts 3 --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M --csv "$dir/sim.csv"
[ "$(wc -l <"$dir/sim.csv")" = 7 ] || fail "the simulator's table of calls"
# A table that cannot be written is refused before anything runs.
for command in "$shot --no-bound" "sim shot --ckpts 3 --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M" \
    "sim scale --gpus 1 --ckpts 2"; do
    expect 1 $command --csv "$dir/nowhere/calls.csv"
    grep -q "nowhere/calls.csv: " "$dir/err" || fail "$command: a table that cannot be written"
    [ ! -s "$dir/out" ] || fail "$command: ran all the same"
done

# A missing folder is made, as in the library, and removed again; the folders above it are not made.
expect 0 bench shot --ckpts 4 --size 100000 --interval-ms 1 --local "$dir/made" --no-bound
[ ! -e "$dir/made" ] || fail "a folder that was made stays"
expect 1 bench shot --ckpts 4 --size 100000 --interval-ms 1 --local "$dir/not/made" --no-bound

# Refusals.
refuse() { # TEXT ARGUMENT...
    local text=$1
    shift
    expect 2 "$@"
    grep -qF -- "$text" "$dir/err" || { cat "$dir/err"; fail "$*"; }
}
refuse "--engine uvm needs a GPU" bench shot --engine uvm
refuse "--engine ondemand needs a device" bench shot --engine ondemand --device none
refuse "--engine file needs a local disk" bench shot --engine file --local none
refuse "--compute gpu needs a device" bench shot --compute gpu --device none
refuse "--rate: a GPU cannot be throttled" bench shot --device cuda --rate d2h=1G
refuse "--calls on is allowed only with --engine varve" bench shot --calls on --engine ondemand
refuse "--calls on is allowed only with --engine varve" bench shot --calls on --device none
refuse "are allowed only with 'varve bench shot'" sim shot --engine ondemand --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M
exit 0
