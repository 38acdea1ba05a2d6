# SPDX-License-Identifier: Apache-2.0
# varve ring: the goals at 1024 nodes, rows as table, CSV, JSON and SVG, and refusals.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(ring)

# The size of the goals; a sanitizer makes it ten times as long and finds nothing more.
if [ -z "${VARVE_SANITIZE:-}" ]; then
    expect 0 sim --nodes 1024 --files 524288 --trials 500 --vnodes 10,50,100,500,1000 --scheme hrw-bounded --json
    python3 - "$dir/out" <<'PY'
import json, sys
(row,) = json.load(open(sys.argv[1]))
assert list(row) == ["scheme", "vnodes", "receivers_mean", "receivers_sd", "files_per_receiver_mean", "max_over_mean",
                     "healthy_moved_fraction"], row
assert row["scheme"] == "hrw-bounded" and row["vnodes"] == 0
assert row["max_over_mean"] <= 1.05 and row["receivers_mean"] >= 400 and row["healthy_moved_fraction"] <= 0.0005, row
PY
    expect 0 sim --trials 100 --vnodes 10,1000 --scheme ring --json
    python3 - "$dir/out" <<'PY'
import json, sys
few, many = json.load(open(sys.argv[1]))
assert few["vnodes"] == 10 and 8 < few["receivers_mean"] <= 10, few
assert many["vnodes"] == 1000 and 260 < many["receivers_mean"] < 320, many
assert many["files_per_receiver_mean"] < few["files_per_receiver_mean"] / 10
PY
fi

small="--nodes 32 --files 4096 --trials 40 --vnodes 5,50"
expect 0 sim $small --csv "$dir/rows.csv" --svg "$dir/rows.svg" --jobs 1
[ "$(grep -cE '^(ring|hrw|hrw-bounded|mod) ' "$dir/out")" = 5 ] && [ ! -s "$dir/err" ] || fail "the table"
expect 0 sim $small --csv - --jobs 3
cmp "$dir/out" "$dir/rows.csv" || fail "the rows depend on the number of threads"
expect 0 sim $small --json
python3 - "$dir/rows.csv" "$dir/out" "$dir/rows.svg" <<'PY'
import csv, json, sys, xml.etree.ElementTree
rows = list(csv.DictReader(open(sys.argv[1])))
report = json.load(open(sys.argv[2]))
assert [(r["scheme"], int(r["vnodes"])) for r in rows] == [("ring", 5), ("ring", 50), ("hrw", 0), ("hrw-bounded", 0), ("mod", 0)]
assert len(rows) == len(report)
for a, b in zip(rows, report):
    assert all(float(a[k]) == b[k] for k in b if k != "scheme"), (a, b)
assert float(rows[4]["healthy_moved_fraction"]) > 0.9 and float(rows[3]["max_over_mean_worst"]) <= 1.05
text = open(sys.argv[3]).read()
xml.etree.ElementTree.fromstring(text)
assert text.count("<rect class=\"vp-edge\"") == 16  # 15 bars and the legend
PY
expect 0 sim $small --scheme mod,ring --weights 1,2,3 --limit 120 --seed 9 --checks 10
[ "$(sed -n 5p "$dir/out" | cut -d' ' -f1)" = mod ] || fail "the order of schemes"

# ---- where
expect 0 where --nodes 4 train/1 train/2
[ "$(wc -l <"$dir/out")" = 2 ] && grep -q '^train/1: node[0-3], node[0-3]; if node[0-3] failed: ' "$dir/out" || fail "where"
expect 0 where --names a,b=7,c --down c --replicas 3 --json train/1
python3 - "$dir/out" <<'PY'
import json, sys
(row,) = json.load(open(sys.argv[1]))
assert row["path"] == "train/1" and sorted(row["nodes"]) == ["a", "b"] and row["without_the_first"] == row["nodes"][1:]
PY
# All nodes agree on it, so it never changes: see tests/unit/policy/place.c.
for scheme in ring hrw mod; do
    expect 0 where --scheme $scheme --nodes 100 --replicas 1 train/0 train/7
    grep -oE '^train/[07]: node[0-9]+' "$dir/out" | tr '\n' ' '
done >"$dir/owners"
[ "$(cat "$dir/owners")" = "train/0: node55 train/7: node25 train/0: node44 train/7: node82 train/0: node81 train/7: node73 " ] ||
    { cat "$dir/owners"; fail "owners have changed"; }
expect 0 where --names a,b --down a,b train/1
grep -q 'no node is up' "$dir/out" || fail "no node up"
expect 0 where --names a train/1
grep -q 'if a failed: nowhere' "$dir/out" || fail "the only one"

for bad in "sim --nodes 1" "sim --nodes" "sim --nodes 0" "sim --files x" "sim --scheme best" "sim --scheme ring,," "sim --vnodes 0" \
    "sim --limit 99" "sim --trials 0" "sim --json --csv -" "sim more" "sim --nonsense" "where" "where --names a,a x" "where --names ,a x" \
    "where --names a --down b x" "where --nodes 0 x" "where --replicas 9 x" "where --names a=0 x" "" "what"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: nothing is said"
done
expect 1 sim $small --csv "$dir/nowhere/rows.csv"
expect 1 sim $small --svg "$dir/nowhere/rows.svg"
for help in "--help" "sim --help" "where --help"; do
    expect 0 $help
    grep -q '^usage: varve ring' "$dir/out" || fail "$help"
done
echo ok
