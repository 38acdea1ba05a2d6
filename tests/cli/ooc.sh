# SPDX-License-Identifier: Apache-2.0
# varve bench blocks on the emulated device: every way gives the same sums, all forms of the result, bad input. Nothing here depends on
# times.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
tool=(bench blocks)

small="--device host --volume 1M --edge 8 --points 400 --steps 20 --seed ${VARVE_TEST_SEED:-7}"
expect 0 $small --cache 30% --out "$dir/all" --csv "$dir/rows.csv" --json
python3 - "$dir" <<'PY'
import csv, json, sys, xml.etree.ElementTree
d = sys.argv[1]
r = json.load(open(f"{d}/out"))
ways = {w["way"]: w for w in r["ways"]}
assert list(ways) == ["resident", "blocks", "none ahead", "paper", "zero copy", "uvm"], ways
assert ways.pop("uvm")["skipped"] == "the device has no managed memory"
for w in ways.values():
    assert w["same"] and w["seconds"] > 0 and 0 <= w["utilisation"] <= 1, w
block = 8 ** 3 * 4
assert 0 < r["touched_bytes"] <= r["least_bytes"] and r["least_bytes"] % block == 0 and r["bound_s"] > 0, r
assert ways["resident"]["missed"] == ways["resident"]["bytes"] == 0 and ways["resident"]["utilisation"] > 0.5, ways
for name in "blocks", "none ahead", "paper":
    w = ways[name]
    # No way brings fewer blocks than farthest next use.
    assert w["bytes"] >= r["least_bytes"] and w["evicted"] > 0 and w["slots"] == r["cache_bytes"] // block, (w, r)
assert ways["zero copy"]["from_host"] == 400 * 20 and ways["zero copy"]["bytes"] == 0, ways
assert ways["none ahead"]["ahead"] == ways["paper"]["ahead"] == 0, ways
rows = list(csv.DictReader(open(f"{d}/rows.csv")))
assert [x["way"] for x in rows][:2] == ["resident", "blocks"] and int(rows[1]["bytes"]) == ways["blocks"]["bytes"], rows
assert open(f"{d}/rows.csv").read() == open(f"{d}/all/ooc.csv").read()
samples = [x for x in csv.DictReader(open(f"{d}/all/samples.csv")) if x["way"] == "blocks"]
assert len(samples) == 20 and int(samples[-1]["evicted"]) == ways["blocks"]["evicted"], samples
# About the size of the cache: the cache and a little more. All of the device's memory is a thousand times as much.
assert all(0.9 < float(x["memory"]) < 3 for x in samples), samples
page = open(f"{d}/all/index.html").read()
assert "46.57" in page and "80.82" not in page and page.count("<svg") == 2, page
for i in 1, 2:
    svg = open(f"{d}/all/figure{i}.svg").read()
    xml.etree.ElementTree.fromstring(svg)
    assert svg in page and f"Figure {i}: " in svg and "none ahead" in svg and "resident" not in svg, svg
PY
expect 0 $small --cache 30% --ways zero-copy --out "$dir/none"
[ -s "$dir/none/index.html" ] && ! grep -q '<svg' "$dir/none/index.html" && [ ! -e "$dir/none/figure1.svg" ] || fail "charts of no cache"
head -4 "$dir/out" | tail -1 | tr '|' '\n' | sed 's/ //g; /^$/d' | sort | uniq -d | grep . && fail "two columns of the same name"

# Tables, in the order of a survey.
# Half of the cache holds the twelve largest tables that an item may have, for every seed.
tables="--device emulated --tables 3M --sizes 8K:64K --cache 1700K --reads 16 --seed ${VARVE_TEST_SEED:-7}"
expect 0 $tables --out "$dir/tables" --json
python3 - "$dir" <<'PY'
import csv, json, sys, xml.etree.ElementTree
d = sys.argv[1]
r = json.load(open(f"{d}/out"))
ways = {w["way"]: w for w in r["ways"]}
assert list(ways) == ["resident", "flat", "chunked", "paper", "double buffer", "zero copy", "uvm"], ways
assert ways.pop("uvm")["skipped"] == "the device has no managed memory"
for w in ways.values():
    assert w["same"] and w["seconds"] > 0 and 0 <= w["utilisation"] <= 1 and w["host_items"] == 0, w
assert r["items"] == 4 * r["tables"] and r["least_bytes"] >= r["tables_bytes"] > r["cache_bytes"] and r["bound_s"] > 0, r
assert ways["resident"]["missed"] == ways["resident"]["bytes"] == 0, ways
for name in "flat", "chunked", "paper", "double buffer":
    assert ways[name]["bytes"] >= r["tables_bytes"], ways[name]
assert ways["flat"]["evicted"] > 0 and ways["paper"]["evicted"] == ways["paper"]["missed"], ways
assert ways["flat"]["bytes"] <= ways["paper"]["bytes"], ways
samples = list(csv.DictReader(open(f"{d}/tables/samples.csv")))
assert {x["way"] for x in samples} == {"resident", "flat", "chunked", "paper"}, samples
assert all(0 <= float(x["used"]) <= 1 for x in samples), samples
assert all(0.9 < float(x["memory"]) < 3 for x in samples), samples
page = open(f"{d}/tables/index.html").read()
assert "80.82" in page and "46.57" not in page and page.count("<svg") == 2, page
for i in 3, 4:
    svg = open(f"{d}/tables/figure{i}.svg").read()
    xml.etree.ElementTree.fromstring(svg)
    assert svg in page and "chunked" in svg and "resident" not in svg, svg
PY
expect 0 $tables --ways chunked,zero-copy
[ "$(grep -oE '^\| (resident|flat|chunked|paper|double buffer|zero copy|uvm) ' "$dir/out" | tr -d '|\n')" = ' resident  chunked  zero copy ' ] || { cat "$dir/out"; fail "--ways"; }
expect 0 $tables --fallback
grep -q '^| double buffer ' "$dir/out" || fail "no table"

# Under a sanitizer this takes ten times as long, so the variants from above are left out.
once() { [ -n "${VARVE_SANITIZE:-}" ] && [ -z "${VARVE_TEST_LONG:-}" ]; }
once || "$SOURCE_DIR/scripts/bench-ooc" --short --only 'blocks$' --bin "$(dirname "$VARVE_BIN")" --out "$dir/script" >"$dir/out" 2>&1 ||
    { cat "$dir/out"; fail "scripts/bench-ooc"; }
once || [ -s "$dir/script/blocks/figure2.svg" ] || fail "scripts/bench-ooc makes no figure"

# A failed piece is reported with its status, and so are images that differ too much.
mkdir -p "$dir/odd"
ln -s "$VARVE_BIN" "$dir/odd/varve"
odd() { # line of a made-up varve-kirchhoff, what the script says
    printf '#!/usr/bin/env bash\nwhile [ "$1" != --out ]; do shift; done\n%s\n' "$1" >"$dir/odd/varve-kirchhoff"
    chmod +x "$dir/odd/varve-kirchhoff"
    rm -rf "$dir/odd/out"
    rc=0
    "$SOURCE_DIR/scripts/bench-ooc" --short --only kirchhoff --bin "$dir/odd" --out "$dir/odd/out" >"$dir/out" 2>&1 || rc=$?
    [ $rc -eq 1 ] && grep -q "$2" "$dir/out" || { cat "$dir/out"; fail "scripts/bench-ooc: $1: $rc"; }
}
odd 'case $2 in *-cpu) mkdir -p "$2" && head -c 4096 /dev/zero >"$2/image.raw" ;; *) exit 3 ;; esac' 'kirchhoff: status 3'
odd 'case $2 in *-cpu) exit 4 ;; esac' 'kirchhoff: status 4'
odd 'mkdir -p "$2" && case $2 in *-cpu) printf "\0\0\200?" ;; *) printf "\0\0\0?" ;; esac >"$2/image.raw"' 'differ by 5.00e-01 of the largest'
odd 'mkdir -p "$2" && case $2 in *-cpu) printf "\0\0\200?\0\0\200?" ;; *) printf "\0\0\200?\0\0\300\177" ;; esac >"$2/image.raw"' 'differ by inf of'

# On a signal it ends the running program first. That program is a stand-in, which waits for the signal.
mkdir -p "$dir/bin"
cat > "$dir/bin/varve" <<EOF
#!/usr/bin/env bash
trap 'touch "$dir/stopped"; exit 1' TERM
touch "$dir/begun"
for ((i = 0; i < 3000; i++)); do sleep 0.1; done
EOF
chmod +x "$dir/bin/varve"
"$SOURCE_DIR/scripts/bench-ooc" --short --only 'blocks$' --bin "$dir/bin" --out "$dir/ended" >"$dir/out" 2>&1 &
script=$!
while [ ! -e "$dir/begun" ]; do
    kill -0 $script 2>/dev/null || { cat "$dir/out"; fail "scripts/bench-ooc has ended"; }
    sleep 0.05
done
kill $script
rc=0
wait $script || rc=$?
[ $rc -eq 143 ] || { cat "$dir/out"; fail "scripts/bench-ooc: $rc, not 143"; }
[ -e "$dir/stopped" ] || fail "scripts/bench-ooc left behind what it ran"

# The same seed is the same experiment, another is another one.
touched() { python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); print(r["touched_bytes"], r["least_bytes"])' "$dir/out"; }
expect 0 $small --cache 64K --json
first=$(touched)
expect 0 $small --cache 64K --ahead 8 --json
expect 0 $small --cache 64K --ahead 0 --json
[ "$(touched)" = "$first" ] || fail "the same seed makes another wave"
once || { expect 0 $small --cache 64K && grep -q '^| paper ' "$dir/out" || fail "no table"; }
expect 0 --help
# The commands of docs/ooc.md that run on any machine.
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && /^varve /' "$SOURCE_DIR/docs/ooc.md" >"$dir/commands"
[ -s "$dir/commands" ] || fail "docs/ooc.md shows no command"
while read -r line; do
    (cd "$dir" && PATH=$(dirname "$VARVE_BIN"):$PATH && eval "$line") >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "docs/ooc.md: $line"; }
done < <(once || cat "$dir/commands")

for bad in "--device gpu" "--volume 1" "--volume x" "--cache 0" "--cache 101%" "--cache -3" "--points 0" "--points -1" "--steps 0" "--edge 12" "--edge 1" "--ahead 9" \
    "--seed" "more" "--nosuch" "--tables 1M" "--ways flat" "--ways blocks,," "--ways" "--sizes 3" "--sizes 9K:8K" "--reads 0"; do
    # shellcheck disable=SC2086 # several words
    expect 2 $small $bad
    [ -s "$dir/err" ] || fail "$bad: says nothing"
done
# The alternatives.
refused() { expect 2 $small $2 && grep -qF -- "$1" "$dir/err" || { cat "$dir/err"; fail "$2: it does not say $1"; }; }
refused "--device: 'gpu' is not host (the emulated device), cuda or auto" "--device gpu"
refused "--edge: '12' is not a power of two from 2 to 256" "--edge 12"
refused "--ahead: '9' is not a whole number from 0 to 8" "--ahead 9"
refused "--cache: '101%' is not a size, as 3G, or a share above 0% and up to 100%" "--cache 101%"
refused "--volume: '1' is not a size from 4K to 4T" "--volume 1"
refused "--sizes: '9K:8K' is not two sizes from 64 to 1G, the smaller one first" "--sizes 9K:8K"
refused "--seed: 'x' is not a whole number above 0" "--seed x"
expect 1 $small --steps 5
grep -q 'more than a block at a time: 64 cells across need 14 steps' "$dir/err" || { cat "$dir/err"; fail "too few steps"; }
expect 1 $small --cache 1K --csv "$dir/none.csv"
grep -q 'not hold a block' "$dir/err" || { cat "$dir/err"; fail "a cache of less than a block"; }
[ ! -e "$dir/none.csv" ] || fail "a run that fails leaves an empty table behind"
expect 1 $tables --reads 1 --cache 64K
grep -q 'and a cache of ' "$dir/err" || { cat "$dir/err"; fail "tables of an item that do not fit"; }
expect 1 $small --points 20 --cache 64K --out "$dir/rows.csv/x"
grep -q 'cannot be made' "$dir/err" || fail "a folder that cannot be made"
! grep -q resident "$dir/err" || fail "it ran before it found out that it cannot write"
rc=0
CUDA_VISIBLE_DEVICES='' "$VARVE_BIN" bench blocks --device cuda --volume 1M --steps 20 --points 10 >"$dir/out" 2>"$dir/err" || rc=$?
[ $rc -ne 0 ] && grep -q 'GPU' "$dir/err" || { cat "$dir/out" "$dir/err"; fail "--device cuda without a GPU: $rc"; }
# It reports that auto has chosen the emulated device.
CUDA_VISIBLE_DEVICES='' expect 0 --device auto --volume 1M --edge 8 --points 20 --steps 20 --cache 64K --ways blocks
grep -q 'varve bench blocks: on the emulated device, .*GPU' "$dir/err" || { cat "$dir/err"; fail "--device auto does not say which"; }
echo "ok"
