# SPDX-License-Identifier: Apache-2.0
# varve bench paper on the emulated device: every figure has its CSV, SVG and place on the page, the page's numbers are
# those of the CSVs, failures are shown, results are kept, and an interrupted run leaves a page. The numbers themselves are
# not checked.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(bench paper)
figures="5a 5b 6a 6b 7 8a 8b 9a 9b"
sizes=$SOURCE_DIR/lab/data/rtm-sizes-30x8.csv
# Under a sanitizer some of them.
some=
[ -z "${VARVE_SANITIZE:-}" ] || [ -n "${VARVE_TEST_LONG:-}" ] || { figures="6a 7 8b" some="--figures 6a,7,8b"; }
tiny="--device host --ckpts 6 --scale 0.0005 --interval-ms 0.5 --sizes $sizes --local $dir"

# Compares the page of a folder with its CSVs: every figure, every row, letter by letter.
check_page() {
    python3 - "$1" ${2:-$figures} <<'EOF'
import csv, html.parser, sys
folder, figures = sys.argv[1], sys.argv[2:]

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables, self.sections, self.table, self.cell, self.svgs = {}, set(), None, None, 0
    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.sections.add(attributes["id"])
        elif tag == "svg":
            self.svgs += 1
        elif tag == "table":
            self.table = self.tables.setdefault(attributes.get("id", ""), [])
        elif tag == "tr":
            self.table.append([])
        elif tag in ("td", "th"):
            self.cell = ""
        for name in ("src", "href"):
            assert not attributes.get(name, "").startswith(("http", "//")), attributes
    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data
    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.table[-1].append(self.cell)
            self.cell = None
        elif tag == "table":
            self.table = None

page = Page()
page.feed(open(f"{folder}/index.html", encoding="utf-8").read())
assert page.svgs == len(figures), page.svgs
runs = list(csv.DictReader(open(f"{folder}/runs.csv", encoding="utf-8")))
for figure in figures:
    assert f"fig-{figure}" in page.sections, figure
    table = page.tables[f"table-{figure}"]
    rows = list(csv.DictReader(open(f"{folder}/fig-{figure}.csv", encoding="utf-8")))
    names = table[0][:7]
    if figure == "7":
        want = {"figure", "hints", "engine", "iteration", "restore_gbps", "prefetch_distance"}
        assert not rows or set(rows[0]) == want, rows[0]
        continue
    columns = ["figure", "sizes", "wait"] + names
    assert names[1:] == ["hints", "engine", "checkpoint_gbps", "restore_gbps", "wall_s", "status"], names
    assert rows and list(rows[0]) == columns, (figure, columns)
    assert [row[:7] for row in table[1:]] == [[row[name] for name in names] for row in rows], figure
    for row in rows:
        if row["status"] in ("ok", "simulated"):
            assert float(row["checkpoint_gbps"]) > 0 and float(row["restore_gbps"]) > 0, row
            assert 0 < float(row["wall_s"]) < 600, row
        else:
            assert row["checkpoint_gbps"] == row["restore_gbps"] == row["wall_s"] == "", row
for name in ("device", "processor", "memory", "kernel", "varve", "command", "date"):
    assert any(row[0] == name for row in page.tables["machine"]), name
assert all(run["command"].startswith("varve bench shot ") for run in runs)
EOF
}

# Every figure.
expect 0 $tiny $some --short --out "$dir/a"
grep -q "^[0-9]* runs ok, 0 doubtful, 0 failed, 0 not run" "$dir/out" || { cat "$dir/out"; fail "runs of all figures"; }
runs=$(sed -n 's/^\([0-9]*\) runs ok.*/\1/p' "$dir/out")
[ -n "$some" ] || [ "$runs" -eq 70 ] || fail "all figures take $runs runs"
check_page "$dir/a" || fail "page and CSVs"
for figure in $figures; do
    [ -s "$dir/a/fig-$figure.svg" ] || fail "no SVG of figure $figure"
    if command -v xmllint >/dev/null; then xmllint --noout "$dir/a/fig-$figure.svg" || fail "SVG of figure $figure"; fi
done
[ "$(wc -l <"$dir/a/fig-7.csv")" -eq 19 ] || fail "figure 7 has not every iteration"
[ -z "$(find "$dir" -name '*.new' -o -name 'varve-bench-*')" ] || fail "files are left behind"

# The command that is printed with a run repeats it.
command=$(python3 -c 'import csv, sys; print(next(csv.DictReader(open(sys.argv[1])))["command"])' "$dir/a/runs.csv")
read -r -a words <<<"$command"
"$VARVE_BIN" "${words[@]:1}" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "$command"; }

# Measured runs are kept, with the same figures; with other settings they are not used again.
cp "$dir/a/fig-6a.csv" "$dir/before"
expect 0 $tiny $some --short --out "$dir/a" --resume --time-limit 0.000001
[ "$(grep -c '(kept)' "$dir/out")" -eq "$runs" ] || fail "results are not kept"
cmp "$dir/before" "$dir/a/fig-6a.csv" || fail "kept results differ"
expect 0 $tiny --figures 8b --engines varve --out "$dir/a" --resume --seed 2
! grep -q '(kept)' "$dir/out" || fail "a result of other settings was taken up"
cp "$(dirname "$VARVE_BIN")/varve-lab" "$dir/other" && echo >>"$dir/other"
VARVE_BIN=$dir/other expect 0 $tiny --figures 8b --engines varve --out "$dir/a" --resume --seed 2
! grep -q '(kept)' "$dir/out" || fail "a result of another program was taken up"
expect 0 $tiny --figures 8b --engines varve --out "$dir/a" --resume --seed 2
grep -q '(kept)' "$dir/out" || fail "a result of the same program was not taken up"

# Without a GPU a message says so. With one, or with the stand-in for its driver, every engine takes part.
if ! "$VARVE_BIN" doctor | grep -q '^ *GPU  '; then
    expect 1 --out "$dir/g"
    grep -q 'no GPU was found' "$dir/err" && [ ! -e "$dir/g" ] || fail "without a GPU"
fi
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ] && "$VARVE_BIN" doctor | grep -q '^found *GPU kernels'; then # which verify
    LD_LIBRARY_PATH="$BUILD_DIR/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        expect 0 $tiny --device cuda --short --figures 6a,8b --engines varve,score,uvm,ondemand,file --out "$dir/g"
    check_page "$dir/g" "6a 8b" || fail "page of a GPU"
    python3 - "$dir/g/fig-6a.csv" <<'EOF' || fail "not every engine took part"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
assert {row["engine"] for row in rows} == {"varve", "score", "uvm", "ondemand", "file"}
assert all(row["status"] == "ok" for row in rows), rows
EOF
    grep -q 'UVM, optimised' "$dir/g/index.html" || fail "UVM is not compared with"
fi

# Runs that fail, and runs that were not started, are shown as such, with the reason.
expect 1 $tiny --figures 6a,7 --engines varve,uvm --out "$dir/b" --json
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["failed"] == 9 and d["ok"] == 9, d' "$dir/out" ||
    fail "failures are not counted"
check_page "$dir/b" "6a 7" || fail "page with failures"
[ "$(grep -c '<td class="bad">failed</td>' "$dir/b/index.html")" -eq 9 ] || fail "failures are not on the page"
grep -q 'vp-gone" x1' "$dir/b/fig-6a.svg" || fail "failures are not in the chart"
expect 0 $tiny --figures 6a --engines varve --out "$dir/c" --time-limit 0.000001
grep -q '9 not run' "$dir/out" || fail "the time limit"
check_page "$dir/c" 6a || fail "page of nothing"
grep -q 'the time was over' "$dir/c/index.html" || fail "runs that were not started are not on the page"
expect 1 $tiny --figures 7 --engines varve --out "$dir/d" --run-limit 0.001
grep -q 'longer than --run-limit' "$dir/d/index.html" || fail "the limit of a run"

# An interrupted run leaves a page and ends by the signal.
python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
    "$VARVE_BIN" bench paper $tiny --figures 6a --engines varve --ckpts 40 --interval-ms 50 --out "$dir/e" >"$dir/log" 2>&1 &
pid=$!
until grep -q '^\[  1/9\]' "$dir/log"; do
    kill -0 $pid || { cat "$dir/log"; fail "it ended by itself"; }
    sleep 0.05
done
kill -INT $pid
rc=0; wait $pid || rc=$?
[ $rc -eq 130 ] || fail "SIGINT: status $rc"
check_page "$dir/e" 6a || fail "page of an interrupted run"
[ -z "$(find "$dir" -name 'varve-bench-*')" ] || fail "an interrupted run leaves its folder"

# Wrong options are named, and nothing runs.
refuse() { # TEXT ARGUMENT...
    local text=$1
    shift
    expect 2 --out "$dir/f" "$@"
    grep -qF -- "$text" "$dir/err" || { cat "$dir/err"; fail "bench paper $*"; }
    [ ! -e "$dir/f" ] || fail "bench paper $* makes a folder"
}
refuse "--figures: '5c' is not a list of 5a" --figures 5c
refuse "--engines: 'varve,adios' is not a list" --engines varve,adios
refuse "--ckpts: '0' is not a whole number from 1" --ckpts 0
refuse "--size: '12' is not a size" --size 12
refuse "unexpected argument 'extra'" extra
refuse "nonsense" --nonsense
expect 0 --help
grep -q -- '--time-limit' "$dir/out" || fail "--help"
expect 0 $tiny --list --figures 5a --engines varve,uvm
[ "$(grep -c '^varve bench shot .*--engine uvm' "$dir/out")" -eq 9 ] && [ "$(wc -l <"$dir/out")" -eq 18 ] || fail "--list"
