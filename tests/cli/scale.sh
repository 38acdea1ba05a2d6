# SPDX-License-Identifier: Apache-2.0
# varve sim scale: the grid, its rows as table, CSV and JSON, and refusals.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(sim scale)
sizes=$SOURCE_DIR/lab/data/rtm-sizes-30x8.csv
small="--ckpts 12 --scale 0.0625 --device-cache 10M --host-cache 30M --page 64K --gpus 2,4,8 --node-gpus 4"

expect 0 $small --sizes "$sizes" --csv "$dir/rows.csv" --jobs 2
[ "$(wc -l <"$dir/out")" = 37 ] && [ ! -s "$dir/err" ] || fail "the table"
expect 0 $small --sizes "$sizes" --csv - --jobs 1
cmp "$dir/out" "$dir/rows.csv" || fail "the rows depend on the number of threads"
expect 0 $small --sizes "$sizes" --json
python3 - "$dir/rows.csv" "$dir/out" <<'PY'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
report = json.load(open(sys.argv[2]))
assert len(rows) == 36 == len(report["rows"])
assert report["node_gpus"] == 4 and report["link_gpus"] == 2 and report["link_bps"] == 25e9
for a, b in zip(rows, report["rows"]):
    assert a["sync"] == b["sync"] and a["series"] == b["series"]
    assert int(a["gpus"]) == b["gpus"] and int(a["nodes"]) == b["nodes"] == -(-b["gpus"] // 4)
    assert float(a["checkpoint_gbps"]) == b["checkpoint_gbps"] > 0
    assert float(a["restore_gbps"]) == b["restore_gbps"] > 0
    assert (b["barrier_s"] > 0) == (b["sync"] == "barrier") and float(a["barrier_s"]) == b["barrier_s"]
    assert a["verified"] == "1" and b["verified"] and a["failure"] == "" and b["failure"] is None
assert {r["sync"] for r in rows} == {"barrier", "none"}
assert {r["series"] for r in rows} == {"next/all", "next/one", "next/none", "score/all", "score/none", "ondemand"}
PY

expect 0 $small --size 8M --sync none --series fifo/one --node-rate memory=0,link=1G
[ "$(wc -l <"$dir/out")" = 4 ] && grep -q '^none *fifo/one' "$dir/out" || fail "one series"

# A failed run is reported, and the others go on.
expect 1 --ckpts 4 --size 8M --page 64K --device-cache 16M --host-cache 1M --local none --gpus 1,2 --node-gpus 1 --link-gpus 1 \
    --series next/all --sync none --csv "$dir/failed.csv"
grep -q 'failed: version' "$dir/out" && grep -q 'next/all, 1 GPUs: version' "$dir/err" || fail "a failed run is not reported"
[ "$(grep -c ',0,version' "$dir/failed.csv")" = 2 ] || fail "a failed run has no reason in the CSV"

for bad in "--gpus 0" "--gpus 8,,9" "--gpus" "--series best/all" "--series next" "--node-rate disk=1G" "--node-gpus 3 --gpus 3" \
    "--sync maybe" "--procs 3" "--hints all" "--policy lru" "--barrier" "--order binomial" "--nonsense" "--json --csv -"; do
    rc=0; "$VARVE_BIN" sim scale $small --size 1M $bad >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -ne 0 ] && [ -s "$dir/err" ] || fail "$bad: $rc"
done
refuse() { # TEXT ARGUMENT...
    local text=$1
    shift
    expect 2 $small "$@"
    grep -qF -- "varve sim scale: $text" "$dir/err" || { cat "$dir/err"; fail "$*"; }
}
refuse "--node-gpus: 'x' is not a whole number from 1 to 1024" --node-gpus x
refuse "--gpus: '0' is not a list of numbers from 1 to 65536" --gpus 0
refuse "--ckpts: 'x' is not a whole number from 1 to" --ckpts x
refuse "--procs is not allowed here: use --gpus" --procs=3
refuse "--size and --sizes exclude each other" --size 1M --sizes "$sizes"
refuse "unexpected argument 'word'" word
expect 1 $small --size 8M --csv "$dir/nowhere/rows.csv"
expect 0 --help
grep -q -- --link-gpus "$dir/out" || fail "--help"
echo ok
