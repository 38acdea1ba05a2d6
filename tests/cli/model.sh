# SPDX-License-Identifier: Apache-2.0
# varve model: the paper's figures from its bandwidths, the forms of the answer, measuring, refusals, and binomial schedules.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(model)

# Table III of the paper: 4 GiB, 3500 steps, 1800 s of computing in all; 1.81 and 0.573 GiB/s.
expect 0 --grid 1024,1024,1024 --steps 3500 --step-time 0.2571429 --ratio 1,2,3,5,50 --host-cache 0 --copy 92GiB \
    --layer 1.808GiB --direct 0.5726GiB --json
python3 - "$dir/out" <<'PY'
import json, sys
answer = json.load(open(sys.argv[1]))
assert answer["record_bytes"] == 4 << 30 and answer["layers"][0]["capacity_bytes"] == 0, answer
for row, paper in zip(answer["rows"], [3.27, 3.29, 3.41, 3.59, 1.43]):
    off = abs(row["expected_speedup"] / paper - 1)
    assert off < 0.08, row  # its bandwidths varied from row to row
    assert row["hides"] == (row["ratio"] == 50) and row["fits"], row
    assert row["read"]["held_up_by_layer"] == (0 if row["hides"] else 1), row
PY
# A layer with a limit: the rest goes to the next one.
expect 0 --record 10M --steps 10 --ratio 1 --step-time 0 --host-cache 20M --layer 50M@30MiB --layer 10MiB:5MiB --json
python3 - "$dir/out" <<'PY'
import json, sys
(row,) = json.load(open(sys.argv[1]))["rows"]
assert abs(row["write"]["io_s"] - 3) < 1e-6 and abs(row["read"]["io_s"] - 6) < 1e-6, row
assert abs(row["expected_speedup"] - 30 / 9) < 1e-6 and row["write"]["held_up_by_layer"] == 2, row
PY
expect 0 --record 10M --steps 10 --ratio 1 --write-only --host-cache 20M --layer 50M@30MiB
grep -q "do not hold so much" "$dir/out" || fail "80M in 50M"
expect 0 --record 1M --layer 1M --ratio 1,10
[ "$(grep -cE '^ +(1|10) ' "$dir/out")" = 2 ] || fail "the table"
mkdir "$dir/folder"
expect 0 --record 1M --folder "1G@$dir/folder" --layer 1M --seconds 0.1 --json
python3 - "$dir/out" "$dir/folder" <<'PY'
import json, sys
layers = json.load(open(sys.argv[1]))["layers"]
assert layers[0]["measured_in"] == sys.argv[2] and layers[0]["capacity_bytes"] == 1 << 30, layers
assert layers[0]["write_bytes_per_s"] > 0 and layers[1]["measured_in"] is None, layers
PY
[ -z "$(ls -A "$dir/folder")" ] || fail "measuring left something behind"
expect 1 --folder "$dir/nowhere" --seconds 0.1
expect 2
grep -q "no layers are given" "$dir/err" || fail "no layers"
for bad in "--layer x" "--layer 0" "--layer 1G@" "--ratio 0" "--grid 1,2" "--step-time -1" "--seconds 0 --layer 1G" "--layer 1G nonsense" \
    "--layer 1G --layer 1G --layer 1G --layer 1G --layer 1G" "--layer 1G --grid 4000000000,4000000000,4000000000"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: no word of it"
done
# --revolve: the fewest steps that are computed again, by the closed form and by trying all schedules.
for case in 1,1 2,1 2,2 3,1 10,1 10,2 10,3 11,4 30,3 40,5 56,3 57,3 60,7 60,59 60,60 60,200 1000,9; do
    expect 0 --revolve --steps "${case%,*}" --record 1M --host-cache "${case#*,}M" --json
    echo "$case $(tr -d '\n' <"$dir/out")"
done >"$dir/cases"
python3 - "$dir/cases" <<'PY'
import functools, json, math, sys

@functools.lru_cache(None)
def fewest(steps, slots):  # beyond the reversals: the first sweep and what is computed again
    if steps < 2:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest(steps - m, slots - 1) + fewest(m, slots) for m in range(1, steps))

for line in open(sys.argv[1]):
    case, text = line.split(" ", 1)
    steps, slots = map(int, case.split(","))
    answer = json.loads(text)
    assert answer["memory_snapshots"] == min(slots, steps) and answer["disk_snapshots"] == 0, answer
    every, binomial, mix = answer["rows"]
    assert every["fits"] == (slots >= steps - 1), line
    t = next(t for t in range(steps) if math.comb(slots + t, t) >= steps)
    formula = t * steps - math.comb(slots + t, t - 1) if t > 0 else 0
    assert binomial["recomputed_steps"] == formula - (steps - 1), line
    assert steps > 60 or binomial["recomputed_steps"] == fewest(steps, slots) - (steps - 1), line
    assert binomial["repeats"] == max(t - 1, 0) and binomial["in_memory"] == max(min(slots, steps - 1), 1), line
    assert binomial["wall_s"] == binomial["compute_s"] and binomial["written_bytes"] == 0, line
    assert {**mix, "way": ""} == {**binomial, "way": ""}, line  # without a disk
PY
# Three steps of 1 s, adjoint steps of 2 s: one snapshot in memory, one on the disk, each written and read once.
expect 0 --revolve --steps 3 --record 10000000 --host-cache 15000000 --step-time 1 --adjoint-time 2 --layer 15000000@1MB:2MB --json
python3 - "$dir/out" <<'PY'
import json, sys
every, binomial, mix = json.load(open(sys.argv[1]))["rows"]
assert every["fits"] and every["in_memory"] == 1 and every["on_disk"] == 1 and every["recomputed_steps"] == 0, every
assert every["written_bytes"] == 1e7 and every["read_bytes"] == 1e7 and every["compute_s"] == 9, every
assert every["wall_s"] == 16, every  # 10 s writing while 3 are computed, 5 s reading while 6 are
assert binomial["recomputed_steps"] == 1 and binomial["wall_s"] == 10, binomial
assert mix["on_disk"] == 0 and mix["wall_s"] == 10, mix  # such a disk is best left alone
PY
# Four steps with two snapshots. The disk has that of step 0: written once, and read when the others are reversed.
expect 0 --revolve --steps 4 --record 1M --host-cache 1M --layer 1M@1G --step-time 1 --json
python3 - "$dir/out" <<'PY'
import json, sys
every, binomial, mix = json.load(open(sys.argv[1]))["rows"]
assert not every["fits"] and binomial["recomputed_steps"] == 3 and mix["recomputed_steps"] == 1, (binomial, mix)
assert mix["written_bytes"] == 1 << 20 and mix["read_bytes"] == 1 << 20 and mix["wall_s"] == 9, mix
PY
# A mix is never slower than the others; with a fast disk all steps are stored.
for layer in 1M@1G 20M@10M 1G@100M 1G@1M:1G 100G; do
    expect 0 --revolve --steps 200 --record 1M --host-cache 5M --layer "$layer" --step-time 0.01 --copy 1G --json
    tr -d '\n' <"$dir/out"
    echo
done >"$dir/cases"
python3 - "$dir/cases" <<'PY'
import json, sys
for line in open(sys.argv[1]):
    answer = json.loads(line)
    every, binomial, mix = answer["rows"]
    assert mix["wall_s"] <= binomial["wall_s"], answer
    assert not every["fits"] or mix["wall_s"] <= every["wall_s"], answer
    assert mix["on_disk"] <= answer["disk_snapshots"] and mix["in_memory"] <= answer["memory_snapshots"], answer
assert mix["recomputed_steps"] == 0, answer
PY
expect 0 --revolve --steps 100 --record 1M --host-cache 5M --layer 20M@1G
grep -qE "^store all +does not fit$" "$dir/out" && grep -qE "^mix +5 +20 " "$dir/out" || fail "the table of --revolve"
for bad in "--revolve --ratio 2" "--revolve --write-only" "--revolve --direct 1G" "--revolve --layer 1G --layer 1G" "--revolve --steps 1000001" \
    "--adjoint-time 1 --layer 1G"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: no word of it"
done
expect 0 --help
