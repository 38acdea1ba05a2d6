# SPDX-License-Identifier: Apache-2.0
# varve sim training: the paper's four points and the time lost to reads, by default parameters; rows as table, CSV, JSON and
# SVG, and refusals.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(sim training)

# The ring, which is the fastest to look things up in; placement hardly matters here. Seconds even so.
if [ -z "${VARVE_SANITIZE:-}" ]; then
    expect 0 --nodes 64,1024 --scheme ring --runs 12 --json
    python3 - "$dir/out" <<'PY'
import json, sys
rows = {(r["nodes"], r["mode"]): r for r in json.load(open(sys.argv[1]))["rows"]}
paper = {(64, "redirect"): 0.322, (1024, "redirect"): 0.687, (64, "recache"): 0.125, (1024, "recache"): 0.267}
for point, value in paper.items():
    assert abs(rows[point]["overhead"] - value) <= 0.03 and rows[point]["paper_overhead"] == value, (point, rows[point])
for (nodes, mode), r in rows.items():
    assert mode != "recache" or r["overhead_reads"] <= 0.02, r
    assert mode != "replicas" or r["overhead_reads"] <= 0.005, r
    assert mode in ("none", "redirect") or r["victim_epoch_s"] < rows[nodes, "redirect"]["victim_epoch_s"]
# Figure 6(a): the more nodes, the nearer an epoch with recaching is to one without a failure.
more = lambda n, m: rows[n, m]["victim_epoch_s"] / rows[n, m]["epoch_s"]
assert more(1024, "recache") < more(64, "recache") < 1.15 and more(64, "redirect") > 1.2
PY
fi

small="--runs 4 --set samples=4096,dataset_gb=9,global_batch=256,failures=3"
expect 0 --nodes 8,16 $small --csv "$dir/rows.csv" --svg "$dir/rows.svg" --jobs 1
[ "$(grep -cE '^ +(8|16)  (none|redirect|recache|recache-demand|replicas) ' "$dir/out")" = 10 ] && [ ! -s "$dir/err" ] || fail "the table"
expect 0 --nodes 8,16 $small --csv - --jobs 3
cmp "$dir/out" "$dir/rows.csv" || fail "the rows depend on the number of threads"
expect 0 --nodes 8,16 $small --json
python3 - "$dir/rows.csv" "$dir/out" "$dir/rows.svg" <<'PY'
import csv, json, sys, xml.etree.ElementTree
rows = list(csv.DictReader(open(sys.argv[1])))
report = json.load(open(sys.argv[2]))
assert report["params"]["samples"] == 4096 and report["params"]["epochs"] == 5 and report["runs"] == 4
assert len(rows) == len(report["rows"]) == 10
for a, b in zip(rows, report["rows"]):
    assert a["mode"] == b["mode"] and int(a["nodes"]) == b["nodes"]
    assert all((a[k] == "") == (b[k] is None) and (b[k] is None or float(a[k]) == b[k]) for k in b if k != "mode"), (a, b)
    assert abs(b["overhead"] - b["overhead_restart"] - b["overhead_reads"]) < 1e-6
xml.etree.ElementTree.parse(sys.argv[3])
PY
expect 0 --params --set trip_s=0.5
grep -qE '^trip_s +0.5 s +fitted ' "$dir/out" && grep -qE '^epochs +5 +paper ' "$dir/out" || fail "--params"

for bad in "--nodes 0" "--nodes 5" "--nodes" "--runs 0" "--set" "--set epochs" "--set epochs=1" "--set epochs=x" "--set nothing=1" "--set ," \
    "--scheme mod" "--json --csv -" "more" "--nonsense"; do
    expect 2 $bad
    [ -s "$dir/err" ] || fail "$bad: nothing is said"
done
expect 1 --nodes 8 $small --csv "$dir/nowhere/rows.csv"
expect 0 --help
grep -q -- --params "$dir/out" || fail "--help"
echo ok
