# SPDX-License-Identifier: Apache-2.0
# varve bench gpufile on the emulated device: every way of every experiment reads the right words and computes the right
# results, every figure has its CSV, SVG and place on the page, rows are kept, and wrong options are refused. The
# numbers themselves are not checked.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(bench gpufile)
tiny="--device host --folder $dir --scale 1/16384 --bytes 256K --mosaic 512K --records 64K"

# Sanitizers are slow, and look at threads and memory: some of the ways are enough for them.
if [ -n "${VARVE_SANITIZE:-}" ]; then
    expect 0 $tiny --out "$dir/page" --bytes 64K --only 9,10,mosaic,hits,cold --modes double,gpufs-4k,varve-kept
    expect 0 $tiny --out "$dir/page" --resume --only apps --apps mvt,lud --modes prefetch,varve --json
    ! grep -o '"wrong": [1-9]' "$dir/out" || fail "wrong words"
    exit 0
fi

# All experiments without programs; the programs in one way, and one of them in every way.
expect 0 $tiny --out "$dir/page" --only 2,9,10,mosaic,hits,cold
expect 0 $tiny --out "$dir/page" --resume --only apps --modes varve
apps=(hotspot lud backprop bfs dwt2d nw pathfinder stencil 2dconv 3dconv gesummv mvt bicg atax)
one=${apps[$((${VARVE_TEST_SEED:-$RANDOM} % 14))]}
[ "${VARVE_TEST_LONG:-}" = 1 ] && one=$(IFS=,; echo "${apps[*]}")
expect 0 $tiny --out "$dir/page" --resume --only apps,half --apps "$one" --json
python3 - "$dir/page" "$dir/out" "$one" <<'PY'
import csv, html.parser, itertools, json, math, re, sys
folder, out, one = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3].split(",")
rows = list(csv.DictReader(open(f"{folder}/rows.csv")))
assert len(rows) == len(out["rows"]) and out["emulated"]
have = {(r["part"], r["group"], r["mode"]) for r in rows}
assert len(have) == len(rows)
for r in rows:
    assert r["wrong"] == "0" and not r["text"], r
    assert float(r["gbps"]) > 0 and int(r["bytes"]) > 0, r
modes = "cpu double gpufs-4k gpufs-64k prefetch-global prefetch varve-kept varve varve-mapped".split()
for app in one:
    for part in ("apps", "half"):
        for mode in modes:
            assert (part, app, mode) in have, (part, app, mode)
for app in "hotspot lud backprop bfs dwt2d nw pathfinder stencil 2dconv 3dconv gesummv mvt bicg atax".split():
    assert ("apps", app, "varve") in have, app
for group in ("fits", "2x", "8x"):
    for mode in modes:
        assert ("10", group, mode) in have
# A prediction for every baseline, unless it is cold.
for r in rows:
    ours = r["mode"].startswith("varve") or r["mode"] == "pread" or r["part"] == "rates"
    assert (r["predicted_s"] == "") == (ours or r["cold"] == "1"), r

class Page(html.parser.HTMLParser):
    sections, svgs = set(), 0
    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.sections.add(attributes["id"])
        self.svgs += tag == "svg"
        for name in ("src", "href"):
            assert not attributes.get(name, "").startswith(("http", "//")), attributes

text = open(f"{folder}/index.html").read()
assert 'id="goals"' in text and " of C<" not in text
# Readers see descriptions of ways, not internal names; and the rows of earlier runs.
raw = {"cpu", "double", "pread"} | {r["mode"] for r in rows if "-" in r["mode"]}
assert not [m for m in raw if f">{m}</td>" in text], "raw names"
assert out["kept_rows"] > 0 and f'{out["kept_rows"]} of {len(rows)} rows are of earlier runs' in text
assert "before experiment 10" in text and ", in an earlier run" in text

# The colours of a chart are distinct: so far apart at least in CIELAB, where 2 can be seen side by side.
def lab(colour):
    c = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    c = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in c]
    xyz = [sum(w * v for w, v in zip(row, c)) for row in ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728))]
    x, y, z = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz]
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
for f in "10 mosaic 11 12 13 14 cold".split():
    legend = re.findall(r'<rect class="vp-edge"[^>]* width="14" height="12" fill="(#\w+)"', open(f"{folder}/fig-{f}.svg").read())
    assert len(legend) > 5, (f, legend)
    near = min((math.dist(lab(a), lab(b)), a, b) for a, b in itertools.combinations(legend, 2))
    assert near[0] > 30, (f, near)
page = Page()
page.feed(open(f"{folder}/index.html").read())
figures = "2 9 10 mosaic hits 11 12 13 14 cold".split()
assert page.sections == {f"fig-{f}" for f in figures}, page.sections
assert page.svgs == len(figures)
for f in figures:
    assert open(f"{folder}/fig-{f}.svg").read().rstrip().endswith("</svg>")
    assert list(csv.DictReader(open(f"{folder}/fig-{f}.csv")))
PY
[ -z "$(ls "$dir" | grep varve-gpufile || true)" ] || fail "files were left"

# Out of time: nothing is started, and a message says so.
expect 1 $tiny --out "$dir/late" --only 10 --time-limit 0.000001
grep -q 'out of time' "$dir/err" || fail "not said"

# No GPU: the text of the driver is printed. (A GPU of the machine is hidden.)
rc=0
CUDA_VISIBLE_DEVICES='' "$VARVE_BIN" bench gpufile --device cuda --out "$dir/none" --only hits 2>"$dir/err" || rc=$?
[ $rc -eq 1 ] && grep -Eq 'no GPU: .*(driver|libcuda)' "$dir/err" || { cat "$dir/err"; fail "no GPU: $rc, and not why"; }

expect 0 --device host --list --only apps --apps lud,nw
grep -q '^  nw  *2 files' "$dir/out" || fail "list"
expect 0 --device host --list --only 9
[ "$(cat "$dir/out")" = 9 ] || fail "a list of programs that would not run"
expect 0 --help
expect 2 --only 3
expect 2 --apps nothing
expect 2 --modes gpufs
expect 2 --scale 0
expect 2 --bytes 100
expect 2 --device host --threads 7
expect 2 something
expect 1 $tiny --out "$dir/no/such" --only hits
expect 1 $tiny --folder "$dir/no" --out "$dir/x" --only hits
# The message names the folder and the remedy.
grep -qF "no files can be made in $dir/no (--folder): No such file or directory" "$dir/err" || { cat "$dir/err"; fail "no folder"; }
[ ! -e "$dir/x" ] || fail "a page of nothing"
touch "$dir/file"
expect 1 $tiny --folder "$dir/file" --out "$dir/x" --only 9
grep -qF "in $dir/file (--folder): Not a directory" "$dir/err" || { cat "$dir/err"; fail "no folder but a file"; }

# A file that cannot be renamed to its place is named in the message, and leaves no other file.
mkdir -p "$dir/taken/index.html/full"
expect 1 $tiny --bytes 64K --out "$dir/taken" --only hits --modes varve
grep -q "taken/index.html: " "$dir/err" || { cat "$dir/err"; fail "not said which file"; }
[ -z "$(find "$dir/taken" -name '*.new')" ] || fail "half a page is left"

# On a signal the script ends the running program first, and keeps the folder with its files until then. The program is a
# stand-in: it reports a GPU, makes a file and waits for the signal.
mkdir -p "$dir/bin"
cat > "$dir/bin/varve" <<EOF
#!/usr/bin/env bash
[ "\$1" != doctor ] || { echo "  GPU 0: made up"; exit 0; }
while [ \$# -gt 0 ]; do [ "\$1" != --folder ] || folder=\$2; shift; done
trap '[ -e "\$folder/made" ] && echo yes > "$dir/there" || echo no > "$dir/there"; exit 1' TERM
touch "\$folder/made" "$dir/begun"
for ((i = 0; i < 3000; i++)); do sleep 0.1; done
EOF
chmod +x "$dir/bin/varve"
TMPDIR=$dir "$SOURCE_DIR/scripts/bench-gpufile" --bin "$dir/bin" --out "$dir/script" --piece 2 >"$dir/out" 2>&1 &
script=$!
while [ ! -e "$dir/begun" ]; do
    kill -0 $script 2>/dev/null || { cat "$dir/out"; fail "the script has ended"; }
    sleep 0.05
done
kill $script
rc=0
wait $script || rc=$?
[ $rc -eq 143 ] || { cat "$dir/out"; fail "the script: $rc, not 143"; }
[ "$(cat "$dir/there")" = yes ] || fail "the folder was gone before what used it"
[ -z "$(ls -d "$dir"/tmp.* 2>/dev/null || true)" ] || fail "the script left its folder"
