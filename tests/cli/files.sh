# SPDX-License-Identifier: Apache-2.0
# varve ls, verify and rm.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
make="$BUILD_DIR/tests/unit/store/ckfile"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); assert $1, d"; }
store="$dir/store"
"$make" make-run "$store"
unset VARVE_LOCAL
flip() { # FILE OFFSET
    printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# ls
expect 2 ls
grep -q VARVE_LOCAL "$dir/err" || fail "ls without a folder"
expect 2 ls --nonsense
expect 0 ls --help
expect 0 ls --local "$store"
[ "$(grep -c ' ok$' "$dir/out")" -eq 10 ] || fail "ls does not list 10"
awk 'NR == 1 { at = index($0, "STATE") } NR > 1 && substr($0, at) != "ok" { bad = 1 } END { exit bad }' "$dir/out" || fail "columns of ls"
VARVE_LOCAL=$store expect 0 ls run
expect 1 ls --local "$store" nothing
grep -q "no history 'nothing'" "$dir/err" || fail "ls of a history that is not there"
expect 1 ls --local "$dir/nowhere"
expect 0 ls --json --local "$store"
json 'len(d["checkpoints"]) == 10 and all(c["status"] == "ok" and c["size"] == 41060 and sum(r["bytes"] for r in c["regions"]) == 41060 for c in d["checkpoints"])' <"$dir/out"
mkdir "$dir/empty"
expect 0 ls --local "$dir/empty"
grep -q "no checkpoints" "$dir/out" || fail "ls of an empty folder"

(cd "$dir" && expect 0 ls store) || fail "ls of a folder without --local"
expect 0 ls --json "$store" run
json 'len(d["checkpoints"]) == 10' <"$dir/out"
VARVE_LOCAL=$dir/empty expect 0 ls "$store/"
[ "$(grep -c ' ok$' "$dir/out")" -eq 10 ] || fail "a folder named on the line does not count"
(cd "$dir" && VARVE_LOCAL=$dir/empty expect 1 ls store) || fail "a history and a folder of one name"
grep -q "no history 'store' in .*/empty; for the folder store: varve ls --local store" "$dir/err" ||
    fail "ls does not suggest --local"
expect 1 ls "$store/run/"
grep -q "is one history: .*varve ls --local $store/ run$" "$dir/err" ||
    fail "ls of a history's own folder"
expect 1 ls "$store/run/r0.v1.g0.ckpt"
grep -q 'is not a folder; for a single file: varve verify' "$dir/err" || fail "ls of a file"
(cd "$dir" && expect 2 ls nothing) || fail "ls of nothing"
grep -q "'nothing' is not a folder; name one before the history" "$dir/err" || fail "ls of nothing"

# verify
expect 0 verify --local "$store"
grep -q '^10 checkpoints, 0 damaged' "$dir/out" || fail "verify of good files"
expect 0 verify "$store"
grep -q '^10 checkpoints, 0 damaged' "$dir/out" || fail "verify of a folder"
expect 0 verify "$store" run
grep -q '^10 checkpoints, 0 damaged' "$dir/out" || fail "verify of a folder and a history"
(cd "$dir" && expect 0 verify store) || fail "verify of a folder without a slash"
grep -q '^10 checkpoints, 0 damaged' "$dir/out" || fail "verify of a folder without a slash"
expect 0 verify "$store" "$store/run/r0.v1.g0.ckpt"
grep -q '^11 checkpoints, 0 damaged' "$dir/out" || fail "verify of a folder and a file"
expect 1 verify "$store/nothing"
[ "$(cat "$dir/err")" = "varve verify: $store/nothing: No such file or directory" ] && [ ! -s "$dir/out" ] || fail "verify of nothing"
expect 1 verify "$store/run"
grep -q 'is one history' "$dir/err" || fail "verify of a history's own folder"
cp "$store/run/r0.v1.g0.ckpt" "$dir/copy"
(cd "$dir" && expect 0 verify copy) || fail "verify of a file of any name"
(cd "$dir" && expect 1 verify --local store copy) || fail "verify of a history that is a file here"
flip "$store/run/r0.v2.g0.ckpt" $((4096 + 8192 + 3))
truncate -s 8192 "$store/run/r1.v3.g0.ckpt"
expect 1 verify --local "$store" run
grep -q '^run/r0.v2.g0.ckpt: version 2, region 7, chunk 1: ' "$dir/out" || fail "verify of a damaged chunk"
grep -q '^run/r1.v3.g0.ckpt: version 3: ' "$dir/out" || fail "verify of a truncated file"
expect 1 verify --json --local "$store"
json 'not d["ok"] and d["files"] == 10 and d["bad_files"] == 2 and d["problems"][0]["chunk"] == 1' <"$dir/out"

# A pipe or folder under the name of a file is reported, and not waited for.
"$make" make-run "$dir/odd"
rm "$dir/odd/run/r0.v1.g0.ckpt" "$dir/odd/run/r0.v2.g0.ckpt"
mkfifo "$dir/odd/run/r0.v1.g0.ckpt"
mkdir "$dir/odd/run/r0.v2.g0.ckpt"
for what in ls verify "verify $dir/odd/run/r0.v1.g0.ckpt"; do
    rc=0
    # shellcheck disable=SC2086
    timeout 60 "$VARVE_BIN" $what --local "$dir/odd" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -lt 124 ] || fail "$what waits for a FIFO"
    grep -q 'not a regular file' "$dir/out" "$dir/err" || fail "$what does not tell of a FIFO"
done
expect 0 verify "$store/run/r0.v1.g0.ckpt"
expect 1 verify "$store/run/r0.v2.g0.ckpt"
expect 1 verify "$store/run/r0.v99.g0.ckpt"
expect 1 verify --local "$store" nothing
expect 2 verify
expect 1 verify "$dir/empty"
grep -q 'no checkpoints in ' "$dir/err" || fail "verify of an empty folder"
expect 1 verify --json "$dir/empty"
grep -q '"ok": false' "$dir/out" || fail "verify of an empty folder, as JSON"
for command in ls verify rm; do
    expect 2 $command --nonsense
    grep -q "^varve $command: " "$dir/err" || fail "$command does not say who complains"
done
expect 0 ls --json --local "$store"
json '[c["version"] for c in d["checkpoints"] if c["status"] == "damaged"] == [3]' <"$dir/out"

# rm
expect 2 rm --local "$store" run
expect 2 rm --local "$store" run --all 3
expect 2 rm --local "$store" run x
expect 2 rm --local "$store" run 5-3
expect 2 rm --local "$store" --rank x run 3
expect 2 rm "$store" run
grep -q "expected a history in $store, and" "$dir/err" || fail "rm of a folder and a history"
(cd "$dir" && expect 2 rm run 3) || fail "rm without a folder"
grep -q "'run' is not a folder; name one" "$dir/err" || fail "rm without a folder"
expect 0 rm "$store" --dry-run run 2-4
[ "$(grep -c 'would remove' "$dir/out")" -eq 6 ] || fail "rm of a folder without --local"
expect 1 rm --local "$store" run 99
grep -q 'no version 99' "$dir/err" || fail "rm of a version that is not there"
expect 1 rm --local "$store" ../run 1
[ -e "$store/run/r0.v1.g0.ckpt" ] || fail "rm removed what it should not"
expect 0 rm --local "$store" --dry-run run 2-4
[ "$(grep -c 'would remove' "$dir/out")" -eq 6 ] || fail "rm --dry-run"
expect 0 rm --local "$store" --rank 1 run 3 # a damaged one
[ ! -e "$store/run/r1.v3.g0.ckpt" ] && [ -e "$store/run/r0.v3.g0.ckpt" ] || fail "rm --rank"
expect 0 rm --local "$store" --json run 2-3
json 'd["ok"] and sorted((r["version"], r["rank"]) for r in d["removed"]) == [(2, 0), (2, 1), (3, 0)]' <"$dir/out"
expect 0 verify --local "$store"
grep -q '^6 checkpoints, 0 damaged' "$dir/out" || fail "verify after rm"

# Beside a program that has the history open.
coproc "$make" hold-run "$dir/held"
pid=$COPROC_PID
read -r line <&"${COPROC[0]}"
[ "$line" = ready ] || fail "no holder"
expect 1 rm --local "$dir/held" --rank 0 run 1
grep -q "in use by process $pid; end it first$" "$dir/err" || fail "rm does not name the holder"
expect 0 rm --local "$dir/held" --rank 1 run 1
expect 0 verify --local "$dir/held"
expect 0 ls --json --local "$dir/held"
json '[c["version"] for c in d["checkpoints"] if c["status"] == "unfinished"] == [6]' <"$dir/out"
eval "exec ${COPROC[1]}>&-"
wait "$pid"
expect 0 rm --local "$dir/held" run --all
expect 0 ls --local "$dir/held"
grep -q "no checkpoints" "$dir/out" || fail "rm --all"
echo ok
