# SPDX-License-Identifier: Apache-2.0
# varve bench stream and varve sim stream. All hops are throttled; times have to be printed, kernels have to last
# at least as long as requested, and no stream may stall for less than its bound.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
check() { python3 -c "import json, sys; d = json.load(sys.stdin); p = d['streams']; assert $1, d" <"$dir/out" || fail "${2:-$1}"; }
rates=d2d=20G,d2h=1G,h2d=1G
small="--sizes 256K,1M,1M --blocks 6 --forward-ms 2 --backward-ms 3 --device-cache 5M --rate $rates --json"
sound='d["verified"] is True and d["failure"] is None and d["bound_ratio"] >= 0.98 and d["step_ratio"] >= 0.98'
steps='len(d["steps_s"]) == 2 and min(d["steps_s"]) == d["step_s"] <= d["step_median_s"] and d["kernels_s"] >= 6 * (2 + 3) * 0.999e-3'

# The simulator: every order, sizes from a table, two streams, a disk.
for order in lifo fifo irr; do
    expect 0 sim stream $small --order $order
    check "$sound and len(p) == 1 and len(p[0]['checkpoint_blocked_s']) == 18" "sim --order $order"
done
expect 0 sim stream --sizes "$SOURCE_DIR/lab/data/rtm-sizes-30x8.csv:3" --scale 0.01 --blocks 20 --streams 2 --rate $rates --json
check "$sound and len(p) == 2"
expect 0 sim stream $small --host-cache 6M --local /var/tmp --rate $rates,h2f=200M,f2h=200M
check "$sound and d['machine']['has_disk']"
# Everything fits: only the copies within the device remain.
expect 0 sim stream $small --device-cache 64M
check 'abs(d["step_s"] - 0.030 - 2 * 6 * 2.25 * 1048576 / 20e9) < 1e-4'

# bench: the engines, each with every byte checked
expect 0 bench stream $small --steps 2
check "$sound and $steps and d['found_ready'] >= 0 and d['restore_host_s'] > 0"
for order in fifo irr; do
    expect 0 bench stream $small --steps 2 --order $order
    check "$sound and $steps" "bench --order $order"
    expect 0 bench stream $small --steps 2 --order $order --engine pool --ahead 2
    check "d['verified'] and d['failure'] is None and $steps" "pool --order $order"
done
expect 0 bench stream $small --steps 2 --streams 2
check "$sound and len(p) == 2 and all(x['verified'] for x in p)"
expect 0 bench stream $small --steps 2 --engine pool --streams 2
check "d['verified'] and d['down_bytes'] == d['up_bytes'] == 2 * 6 * 2.25 * 1048576"
expect 0 bench stream $small --steps 2 --engine none
check "d['verified'] and $steps and d['down_bytes'] == d['up_bytes'] == 0 and d['bound_s'] is None"
expect 0 bench stream $small --steps 2 --host-cache 6M --local "$dir" --rate $rates,h2f=400M,f2h=400M
check "$sound"
expect 0 bench stream --size 256K --blocks 12 --forward-ms 1 --backward-ms 1 --steps 2 --rate $rates
grep -q '^step bound ' "$dir/out" && grep -q '^host time of a call' "$dir/out" || fail "the report has no step"
# The line that a report begins with repeats it.
read -r -a words < <(head -1 "$dir/out")
expect 0 "${words[@]:1}"

# A driver that runs on threads; our kernels have to be in the build.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ] && "$VARVE_BIN" doctor | grep -q '^found *GPU kernels'; then
    for engine in varve pool none; do
        LD_LIBRARY_PATH="$BUILD_DIR/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
            expect 0 bench stream ${small/--rate $rates/} --no-bound --steps 2 --device cuda --engine $engine --host-cache 32M
        check "d['verified'] and $steps" "cuda, $engine"
    done
fi

# Wrong options
says() { grep -q -- "$1" "$dir/err" || { cat "$dir/err"; fail "no message: $1"; }; }
expect 2 bench stream --device none
says 'streams need a device: expected cuda or host'
expect 2 bench stream --forward-ms 2000 --blocks 2
says 'at most a second for each object'
expect 2 bench stream --engine pool --trace "$dir/t.vtrace"
says 'allowed only with --engine varve'
expect 1 bench stream --engine pool --size 4M --blocks 2 --device-cache 4M --rate $rates
says 'half of it has to hold the largest object'
expect 2 sim stream --engine pool --rate $rates
says "are allowed only with 'varve bench stream'"
expect 2 sim stream
expect 2 bench stream --sizes 1M, --blocks 2 --size 1M
[ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "bench leaves files behind"
exit 0
