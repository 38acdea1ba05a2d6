# SPDX-License-Identifier: Apache-2.0
# varve bench vector, short: every pattern, every byte verified, limits held, all forms of the result. Nothing here depends on
# times: --check tests the speed, on a quiet machine.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
export TMPDIR=$dir/tmp
mkdir "$TMPDIR"
expect() {
    local want=$1 rc=0
    shift
    "$VARVE_BIN" bench vector "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -eq "$want" ] || { cat "$dir/out" "$dir/err"; fail "$*: $rc, not $want"; }
    [ -z "$(ls -A "$TMPDIR")" ] || fail "$*: something was left behind"
}

small="--record 256K --slow 40M --steps 24"
# A file that cannot be written is found before anything runs: the run would need a folder that does not exist.
for form in --csv --svg; do
    expect 1 $small $form "$dir/no/such/file" --dir "$dir/nor/this"
    grep -q "no/such/file: No such file" "$dir/err" || { cat "$dir/err"; fail "$form where there is no folder"; }
    expect 1 $small $form "$dir/rows" --dir "$dir/nor/this"
    [ ! -e "$dir/rows" ] || fail "$form: a file is left behind by a run that never was"
    ln -s elsewhere "$dir/link"
    expect 1 $small $form "$dir/link" --dir "$dir/nor/this"
    [ -h "$dir/link" ] && [ ! -e "$dir/elsewhere" ] || fail "$form: a link to no file is gone, or leads to one"
    rm "$dir/link"
done
expect 0 $small --ratio 1,2,12 --csv "$dir/rows.csv" --svg "$dir/rows.svg" --json
python3 - "$dir/out" "$dir/rows.csv" "$dir/rows.svg" <<'PY'
import csv, json, sys, xml.etree.ElementTree
result = json.load(open(sys.argv[1]))
assert result["pattern"] == "micro" and result["order"] == "lifo" and len(result["rows"]) == 3, result
assert abs(result["fast"]["write"] / result["slow"]["write"] - 3.157) < 0.001, result
for row in result["rows"]:
    assert row["records"] == 24 // row["ratio"], row
    for run in ("direct_slow", "direct_fast", "varve"):
        assert row[run]["wrong_bytes"] == 0 and row[run]["verified_bytes"] == row["records"] * 262144, row
    assert row["fast_peak_bytes"] <= row["fast_limit_bytes"], row
    assert row["expected_speedup"] > 0 and row["actual_speedup"] > 0 and row["start_slow"]["write"] > 0, row
assert [r["ratio"] for r in csv.DictReader(open(sys.argv[2]))] == ["1", "2", "12"]
xml.etree.ElementTree.parse(sys.argv[3])
PY
# A fast layer that holds a small part of the records: they go on to the slow one, and its limit holds.
expect 0 $small --ratio 1 --part 8 --host-cache 512K --json
python3 - "$dir/out" <<'PY'
import json, sys
(row,) = json.load(open(sys.argv[1]))["rows"]
assert row["fast_limit_bytes"] == 24 * 262144 // 8 and row["fast_peak_bytes"] <= row["fast_limit_bytes"], row
assert row["slow_written_bytes"] > 0 and row["varve"]["wrong_bytes"] == 0, row
PY
expect 0 --pattern rtm --record 128K --slow 80M --steps 160 --host-cache 256K
grep -q "^rtm: " "$dir/out" || fail "the table of rtm"
expect 0 --pattern vpic --record 256K --slow 80M --json
python3 - "$dir/out" <<'PY'
import json, sys
(row,) = json.load(open(sys.argv[1]))["rows"]
assert row["records"] == 16 and row["varve"]["verified_bytes"] == 0 and row["varve"]["read_s"] == 0, row
PY
expect 0 --pattern hacc --record 256K --slow 80M --json
python3 - "$dir/out" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
(row,) = result["rows"]
assert result["order"] == "fifo" and row["varve"]["verified_bytes"] == 16 * 262144, result
PY
mkdir "$dir/fast" "$dir/slow"
expect 0 $small --ratio 4 --order fifo --local "$dir/fast" --remote "$dir/slow" --runs 2 --spin
[ -z "$(ls -A "$dir/fast" "$dir/slow" | grep -v :)" ] || fail "records were left behind"
for bad in "--ratio 25 --steps 24" "--host-cache 1K" "--pattern x" "--slow 5" "--part 0" "--order both" "--record 1" "more"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: no word of it"
done
expect 1 $small --dir "$dir/nowhere"
expect 0 --help
