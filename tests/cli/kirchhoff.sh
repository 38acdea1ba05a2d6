# SPDX-License-Identifier: Apache-2.0
# varve-kirchhoff as its users see it: its output, with the same bits on every device and with every cache, and its
# messages about bad input.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
for v in $(env | sed -n 's/^\(VARVE_\(DEVICE\|HOST\|LOCAL\|LEVEL\|POLICY\|TRACE\)[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
export OMP_NUM_THREADS=1
kirchhoff=$BUILD_DIR/bin/varve-kirchhoff
cd "$dir"

small=(--grid 48x32 --frequency 60 --stations 3 --quiet)
"$kirchhoff" "${small[@]}" --out ref >out
grep -q '^migration' out || { cat out; fail "no table"; }
"$kirchhoff" "${small[@]}" --device emulated --model-cache 4K --edge 16 --together 1 --table-cache 12K --json >out.json
cmp ref/image.raw kirchhoff-out/image.raw || fail "the image with caches is another"
[ "$(find kirchhoff-out | sort | tr '\n' ' ')" = "kirchhoff-out kirchhoff-out/image.png kirchhoff-out/image.raw kirchhoff-out/model.png kirchhoff-out/smooth.png kirchhoff-out/summary.json " ] ||
    { find kirchhoff-out; fail "other files than expected"; }
cmp out.json kirchhoff-out/summary.json || fail "summary.json is not what --json prints"
if command -v python3 >/dev/null; then
    python3 - <<'PY' || fail "JSON or PNG"
import json
d = json.load(open("out.json"))
assert d["cells"] == 48 * 32 and d["stations"] == 3 and d["traces"] > 3 and d["never"] < 0.05, d
assert d["blocks"]["missed"] > 0 and d["blocks"]["evicted"] > 0 and d["blocks"]["cache_bytes"] < d["blocks"]["model_bytes"], d
assert d["tables"]["items"] == d["items"] and d["tables"]["missed"] > 0 and d["tables"]["host_items"] == 0, d
for name in "image", "model", "smooth":
    assert open(f"kirchhoff-out/{name}.png", "rb").read()[:8] == b"\x89PNG\r\n\x1a\n"
PY
fi
"$kirchhoff" "${small[@]}" --device host --layout chunked --fallback --out other >out
grep -q '^tables ' out && cmp ref/image.raw other/image.raw || fail "the image with other caches is another"
# The report of its caches: a quarter if the tables of an item fit that, and at most the size of all tables.
"$kirchhoff" --grid 96x48 --frequency 60 --stations 33 --offset 60 --quiet --device host --table-step 1 --out quarter --json >out.json
"$kirchhoff" "${small[@]}" --device host --table-cache 1T --model-cache 1T --out huge --json >huge.json
cmp ref/image.raw huge/image.raw || fail "the image with a huge cache is another"
if command -v python3 >/dev/null; then
    python3 - <<'PY' || fail "the sizes of caches"
import json
d = json.load(open("out.json"))
assert d["tables"]["cache_bytes"] == d["tables_bytes"] // 4, d
d = json.load(open("huge.json"))
assert d["tables_bytes"] < d["tables"]["cache_bytes"] < 32 << 20 and d["tables"]["evicted"] == 0, d
assert d["blocks"]["cache_bytes"] == d["blocks"]["model_bytes"], d
PY
fi
"$kirchhoff" --help >out && grep -q -- '--model-cache' out || fail "--help"

# The commands that docs/ooc.md shows.
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && (sub("^build/bin/varve-kirchhoff ", "varve-kirchhoff ") || /^cmp /)' "$SOURCE_DIR/docs/ooc.md" >commands
[ "$(wc -l <commands)" -eq 3 ] || fail "docs/ooc.md shows other commands"
while read -r line; do
    (PATH=$BUILD_DIR/bin:$PATH && eval "$line") >out 2>&1 </dev/null || { cat out; fail "docs/ooc.md: $line"; }
done <commands

# A model from a file.
if command -v python3 >/dev/null; then
    python3 -c 'import struct,sys; sys.stdout.buffer.write(b"".join(struct.pack("<f", 1500 if z < 20 else 2500) for x in range(48) for z in range(32)))' >layer.raw
    "$kirchhoff" "${small[@]}" --model layer.raw --out layer >out || fail "a model from a file"
fi

# ---- bad input: the error and the remedy
refused() { # pattern, arguments
    local pattern=$1 rc=0
    shift
    "$kirchhoff" "${small[@]}" --out bad "$@" >out 2>err || rc=$?
    [ $rc -eq 1 ] || [ $rc -eq 2 ] || { cat err; fail "$*: status $rc"; }
    grep -Eq -- "$pattern" err || { cat err; fail "$*: it does not say $pattern"; }
    [ "$(wc -l <err)" -eq 1 ] || { cat err; fail "$*: more than a line"; }
}
head -c 1000 /dev/zero >short.raw
echo file >file
refused 'has 1000 bytes, .* has 6144: set --grid' --model short.raw
refused 'layers, salt, graded, or a file' --model nosuch
refused 'as 401x201' --grid 12
refused 'as 401x201' --grid 48x32x
refused 'as 41, in three dimensions' --stations 0
refused 'has one row' --stations 3x3
refused 'more than there are cells' --stations 60
refused 'power of two' --edge 12
refused 'more than the grid has cells' --table-step 40
refused 'whole number' --table-step 0
refused 'above 0' --frequency -3
refused 'above 0' --time nan
refused 'a size is needed' --model-cache many
refused 'one of cpu host cuda' --device gpu
refused 'one of flat chunked' --layout thin
refused 'a size is needed' --table-cache 0
refused 'table-cache: there is a cache on a device only' --table-cache 12K
refused 'model-cache: there is a cache on a device only' --model-cache 4K --device cpu
refused 'item 0 .*a cache of' --device emulated --table-cache 1K
refused 'nosuch is no option' --nosuch
refused 'needs a value' --out
refused 'takes no value' --quiet=yes
refused 'power of two' --edge=12
refused 'whole number' --edge 1000001
refused 'too long' --out "$(printf '%01024d' 0)"
refused 'too short \(--time\)' --time 0.001
refused 'cannot be made: Not a directory; name another with --out' --out file/out
refused 'cannot be written: .*; name another with --out' --out file
refused 'not hold a block' --device emulated --model-cache 512
refused 'needs more blocks .*2 slots' --device emulated --model-cache 2K
rc=0
"$kirchhoff" "${small[@]}" --device cuda --out bad >out 2>err || rc=$?
[ $rc -eq 0 ] || grep -q -- '--device cpu\|--device cuda' err || { cat err; fail "--device cuda"; }
echo "ok"
