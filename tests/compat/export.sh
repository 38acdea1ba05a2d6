# SPDX-License-Identifier: Apache-2.0
# Checkpoints go back to VELOC: files of `varve export --veloc` are read by a reader written from the description of VELOC's files,
# and by a process that has only those. Damage, a version that a rank lacks, and an existing file are reported.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
need python3
[ -e "$lib/libveloc-client.so" ] || skip "built without VELOC's interface"
varve=$BUILD_DIR/bin/varve
"${CC:-cc}" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/export.c" "${link[@]}" -lveloc-client -o "$dir/export" ||
    fail "export.c does not compile"
cd "$dir" # where the files go that the application names
config "$dir/a.cfg" "$dir/a" sync
"$dir/export" write "$dir/a.cfg" || fail "writing"

# The format of libveloc 1: size_t n; n times {int id; size_t bytes}; then the bytes, region by region.
cat >"$dir/reader.py" <<'PY'
import struct, sys
def veloc(path):
    data = open(path, "rb").read()
    (n,), regions = struct.unpack_from("=Q", data), {}
    table = [struct.unpack_from("=iQ", data, 8 + 12 * i) for i in range(n)]
    at = 8 + 12 * n
    for number, size in table:
        regions[number] = data[at:at + size]
        at += size
    assert at == len(data), (at, len(data))
    assert [t[0] for t in table] == sorted(regions), table
    return regions
for version in (3, 4, 5):
    r = veloc(f"{sys.argv[1]}/heat-5-{version}.dat")
    assert sorted(r) == [2, 4, 9], sorted(r)
    assert struct.unpack("=100003d", r[2]) == tuple(version * 1e6 + i for i in range(100003))
    assert struct.unpack("=3i", r[9]) == (version, version + 1, version + 2) and r[4] == b""
    assert open(f"{sys.argv[1]}/own-5-{version}.dat").read() == f"the application's own, version {version}\n"
PY
for from in scratch persistent; do
    out=$("$varve" export --veloc "$dir/veloc-$from" --local "$dir/a/$from") || fail "export of $from"
    grep -q '^6 files, ' <<<"$out" || fail "$out"
    python3 "$dir/reader.py" "$dir/veloc-$from" || fail "what was exported from $from"
    [ -z "$(find "$dir/veloc-$from" -name '*.part')" ] || fail "something is left"
done

# A run that has nothing else.
mkdir "$dir/b" && mv "$dir/veloc-scratch" "$dir/b/scratch"
config "$dir/b.cfg" "$dir/b" async
"$dir/export" read "$dir/b.cfg" >"$dir/out" || fail "reading"
grep -q "^version 5: the application's own, version 5" "$dir/out" || { cat "$dir/out"; fail "what was read"; }

# One history, none replaced, nothing to export, nowhere to.
"$varve" export --veloc "$dir/one" --local "$dir/a/scratch" own >/dev/null && [ "$(ls "$dir/one" | wc -l)" -eq 3 ] || fail "one history"
echo mine >"$dir/one/own-5-4.dat"
rm "$dir/one/own-5-5.dat"
"$varve" export --veloc "$dir/one" --local "$dir/a/scratch" own >"$dir/out" 2>"$dir/err" && fail "it replaced a file"
grep -q '^1 file, 33 B,' "$dir/out" && grep -q 'own-5-4.dat: it is there already' "$dir/err" && grep -q mine "$dir/one/own-5-4.dat" ||
    { cat "$dir/out" "$dir/err"; fail "a file that is there"; }
"$varve" export --local "$dir/a/scratch" 2>"$dir/err" && fail "no --veloc"
grep -q 'give --veloc FOLDER' "$dir/err" || fail "no --veloc: $(cat "$dir/err")"
"$varve" export --veloc "$dir/none" --local "$dir/a/scratch" cold 2>"$dir/err" && fail "no such history"
grep -q "no history 'cold'" "$dir/err" || fail "no such history: $(cat "$dir/err")"

# A rank that lacks a version takes it from all; damage is not passed on.
"$BUILD_DIR/tests/unit/store/ckfile" make-run "$dir/run" >/dev/null
rm "$dir/run/run/"r1.v4.*.ckpt
"$varve" export --veloc "$dir/ranks" --local "$dir/run" >/dev/null 2>"$dir/err" || fail "two ranks: $(cat "$dir/err")"
grep -q 'run version 4: 1 of 2 ranks have it: left out' "$dir/err" && [ "$(ls "$dir/ranks" | wc -l)" -eq 8 ] || fail "two ranks: $(cat "$dir/err")"
file=$(ls "$dir/run/run/"r1.v3.*.ckpt)
printf X | dd of="$file" bs=1 seek=4100 conv=notrunc status=none
"$varve" export --veloc "$dir/half" --local "$dir/run" >/dev/null 2>"$dir/err" && fail "one rank's damage"
grep -q 'its bytes are damaged: left out' "$dir/err" && [ "$(ls "$dir/half" | wc -l)" -eq 6 ] || fail "one rank's damage: $(ls "$dir/half"; cat "$dir/err")"
file=$(ls "$dir/a/scratch/own/"r5.v3.*.ckpt)
printf X | dd of="$file" bs=1 seek=4100 conv=notrunc status=none
"$varve" export --veloc "$dir/damaged" --local "$dir/a/scratch" own >/dev/null 2>"$dir/err" && fail "damage"
grep -q 'its bytes are damaged: left out' "$dir/err" && [ "$(ls "$dir/damaged" | wc -l)" -eq 2 ] || fail "damage: $(cat "$dir/err")"
echo ok
