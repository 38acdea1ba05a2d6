# SPDX-License-Identifier: Apache-2.0
# varve sim shot and varve bench shot. All hops are throttled, so that nothing depends on the machine's own bandwidths.
# Times have to be printed and not below the bound; their values are not checked.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
json() { python3 -c "import json, sys; d = json.load(sys.stdin); o = d['options']; p = d['processes']; assert $1, d"; }
keys='all(k in d for k in ("checkpoint_gbps", "restore_gbps", "blocked_checkpoint_s", "blocked_restore_s", "bound_s",
 "bound_ratio", "prefetch_distance_mean", "utilisation", "verified"))'
sound='d["verified"] is True and d["failure"] is None and d["bound_s"] > 0 and d["bound_ratio"] >= 0.98'
rates=d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M
sizes=$SOURCE_DIR/lab/data/rtm-sizes-30x8.csv

check() { json "$1" <"$dir/out" || fail "${2:-$1}"; }

# sim: every order, sizes from a file, every policy, several processes
expect 0 sim shot --json --rate $rates
check "$keys" "a key is missing"
check "$sound"
check 'd["command"] == "sim" and len(p) == 1 and len(p[0]["checkpoint_blocked_s"]) == 96'
for order in seq rev irr binomial; do
    expect 0 sim shot --json --ckpts 24 --sizes "$sizes" --scale 0.0625 --order $order --load 2 --rate $rates
    check "$sound" "sim --order $order"
done
expect 0 sim shot --json --ckpts 24 --sizes "$sizes:3" --scale 0.0625 --hints none --no-wait --rate $rates
check "$sound"
for policy in next score score-now fifo lru; do
    expect 0 sim shot --json --ckpts 24 --order irr --hints one --consume keep --policy $policy --rate $rates
    check "$sound" "sim --policy $policy"
done
expect 0 sim shot --json --ckpts 12 --order irr --procs 8 --barrier --load 2 --rate $rates
check "$sound"
check 'len(p) == 8 and o["barrier"] is True and abs(d["barrier_s"] - sum(x["barrier_s"] for x in p)) < 1e-6 and d["barrier_s"] > 0'
expect 0 sim shot --json --ckpts 12 --device none --rate h2h=1G,h2f=40M,f2h=40M
check "$sound"

# The same seed gives the same figures, and the line that a report begins with repeats it.
expect 0 sim shot --ckpts 12 --order irr --seed 7 --rate $rates
cp "$dir/out" "$dir/first"
read -r -a words < <(head -1 "$dir/first")
expect 0 "${words[@]:1}"
cmp "$dir/first" "$dir/out" || fail "a simulation cannot be repeated"
grep -q '^ratio ' "$dir/out" || fail "the report has no ratio"

# bench, on the emulated device and without one
bench="bench shot --json --ckpts 16 --size 1M --interval-ms 20 --local $dir"
expect 0 $bench --rate $rates
check "$keys" "a key is missing"
check "$sound"
check 'd["command"] == "bench" and d["machine"]["has_device"] and d["machine"]["has_disk"] and not d["void"]'
expect 0 $bench --host-cache 2096K --no-bound # not a whole number of pages
expect 0 $bench --order irr --no-wait --device none --rate h2h=1G,h2f=40M,f2h=40M
check "$sound"
check 'not d["machine"]["has_device"] and o["device"] == "none"'
expect 0 $bench --ckpts 8 --order irr --procs 2 --barrier --rate $rates
check "$sound"
check 'len(p) == 2 and all(x["verified"] for x in p)'
check 'd["barrier_s"] > 0'
[ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "bench leaves files behind"

# The line that repeats the run comes first.
grep -q '^varve bench shot .*--ckpts 8' "$dir/err" || fail "no line on standard error"
expect 0 bench shot --ckpts 2 --size 64K --local "$dir" --rate $rates
[ "$(grep -c '^varve bench shot ' "$dir/out")" = 1 ] && [ ! -s "$dir/err" ] || fail "the line of a text report"

# A host cache that is not a whole number of pages gets ready too. The report has the time that opening took.
expect 0 $bench --ckpts 4 --interval-ms 1 --host-cache 3000001 --device-cache 1100001 --no-bound --rate $rates
check 'd["host_ready_s"] >= d["open_s"] > 0 and d["ready_s"] is None and d["barrier_s"] == 0'
expect 0 $bench --ckpts 4 --interval-ms 1 --host-cache 3000001 --at-once --no-bound --rate $rates
check 'd["host_ready_s"] is None and d["ready_s"] > d["open_s"] > 0'

# Bound as by a launcher: if the job has the whole machine, the library works on the remaining cores. It
# does not if the launcher itself was bound.
cpu=$(python3 -c 'import os; c = sorted(os.sched_getaffinity(0)); print(c[0] if len(c) > 1 and len(c) == os.cpu_count() else "")')
if [ -n "$cpu" ]; then
    export SLURM_CPUS_ON_NODE=100000
    expect 0 $bench --ckpts 4 --interval-ms 1 --at-once --no-bound --rate $rates --cores "$cpu"
    check 'd["helper_cores"] > 0 and d["helper_cpu_s"] > 0 and d["verified"] is True and o["cores"] == "'$cpu'"'
    taskset -c "$cpu" "$VARVE_BIN" $bench --ckpts 4 --interval-ms 1 --at-once --no-bound --rate $rates --cores "$cpu" >"$dir/out" ||
        fail "under taskset"
    check 'd["helper_cores"] == 0 and d["slowest_checkpoint_s"] > 0'
    unset SLURM_CPUS_ON_NODE
fi
expect 2 $bench --cores 0-

# Without a bound.
for command in sim bench; do
    expect 0 $command shot --json --no-bound --ckpts 4 --size 64K --interval-ms 1 --local "$dir" --rate $rates
    check 'd["verified"] is True and d["bound_s"] is None and d["bound_ratio"] is None and o["no-bound"] is True'
done

# An interrupted run ends by the signal and leaves no file.
for signal in INT TERM; do
    # A shell has its background jobs ignore SIGINT; python3 gives it back.
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
        "$VARVE_BIN" bench shot --ckpts 1000 --size 64K --interval-ms 1000 --local "$dir" --rate $rates >"$dir/$signal" 2>&1 &
    pid=$!
    until grep -q '^varve bench shot ' "$dir/$signal" 2>/dev/null; do
        kill -0 $pid || fail "bench ended by itself"
        sleep 0.05
    done
    [ -n "$(find "$dir" -name 'varve-bench-*')" ] || fail "bench has no folder"
    kill -$signal $pid
    rc=0; wait $pid || rc=$?
    [ $rc -eq $((128 + $(kill -l $signal))) ] || fail "SIG$signal: status $rc"
    [ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "bench leaves its folder after SIG$signal"
done

# Wrong options are named on standard error, and nothing runs.
refuse() { # STATUS TEXT ARGUMENT...
    local want=$1 text=$2 command
    shift 2
    for command in sim bench; do
        expect "$want" $command shot --ckpts 2 "$@"
        grep -qF -- "varve $command shot: $text" "$dir/err" || { cat "$dir/err"; fail "$command shot $*"; }
        [ ! -s "$dir/out" ] || fail "$command shot $* prints something"
    done
}
refuse 2 "unknown option '--nonsense'" --nonsense
refuse 2 "unexpected argument 'extra'" extra
refuse 2 "--order: 'sideways' is not one of seq|rev|irr|binomial" --order sideways
refuse 2 "--hints: 'some' is not one of none|one|all|late|partial|swapped|wrong" --hints some
refuse 2 "option '--size' needs a value: BYTES" --size
refuse 2 "--size: '0' is not a size above 0" --size 0
refuse 2 "--ckpts: '0' is not a whole number from 1 to 100000000" --ckpts 0
refuse 2 "option '--json' takes no value" --json=1
refuse 2 "--rate: 'x2y=4' is not HOP=BYTES/S" --rate x2y=4
refuse 2 "--rate h2f=40 is bytes per second; did you mean 40M?" --rate d2d=4G,h2f=40
refuse 2 "--host-cache: 64 bytes hold nothing; did you mean 64M or 64%?" --host-cache 64
refuse 2 "--size and --sizes exclude each other" --size 1M --sizes "$sizes"
refuse 2 "--interval-ms and --load exclude each other" --interval-ms 1 --load 2
refuse 2 "--load needs the disk's bandwidth" --load 2 --no-bound
refuse 1 "$dir/none.csv: " --sizes "$dir/none.csv" --rate $rates
refuse 1 "--load needs" --load 2 --local none --rate d2d=4G,d2h=400M,h2d=400M

# A simulated hop without a rate would take no time. The command that the message proposes works.
unrated() { # MISSING ARGUMENT...
    local missing=$1
    shift
    expect 2 sim shot --ckpts 2 "$@"
    grep -qF "simulated hops need a rate, and $missing none: give for example --rate " "$dir/err" ||
        { cat "$dir/err"; fail "sim shot $*"; }
    [ ! -s "$dir/out" ] || fail "sim shot $* prints something"
    expect 0 sim shot --json --ckpts 2 "$@" --rate "$(sed 's/.*--rate //' "$dir/err")"
    check "$sound" "sim shot $*"
}
unrated "d2d, d2h, h2d, h2f, f2h have"
unrated "d2d, d2h, h2d have" --local none --host-cache 100%
unrated "h2h, h2f, f2h have" --device none
unrated "h2h has" --device none --local none --host-cache 100%
unrated "f2h has" --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M
expect 1 bench shot --ckpts 2 --local "$dir/no/where"
grep -qF -- "--local $dir/no/where: " "$dir/err" || fail "bench in a folder that is not there"
for command in sim bench; do
    expect 2 $command
    grep -q "expected one of shot, script" "$dir/err" || fail "$command does not name its subcommand"
    expect 2 $command nosuch
    grep -q "varve $command: unknown command 'nosuch'; expected one of shot, script," "$dir/err" || fail "$command nosuch"
    for help in -h --help; do
        expect 0 $command $help
        grep -q "^usage: varve $command shot" "$dir/out" || fail "$command $help"
    done
    expect 0 $command shot --help
    grep -q -- '--device-cache' "$dir/out" || fail "$command shot --help"
done
