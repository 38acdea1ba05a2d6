# SPDX-License-Identifier: Apache-2.0
# varve model: the paper's figures from its bandwidths, the forms of the answer, measuring, and what it refuses.
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
# A layer with a limit: what does not fit goes to the next one.
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
grep -q "which layers" "$dir/err" || fail "no layers"
for bad in "--layer x" "--layer 0" "--layer 1G@" "--ratio 0" "--grid 1,2" "--step-time -1" "--seconds 0 --layer 1G" "--layer 1G nonsense" \
    "--layer 1G --layer 1G --layer 1G --layer 1G --layer 1G" "--layer 1G --grid 4000000000,4000000000,4000000000"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: no word of it"
done
expect 0 --help
