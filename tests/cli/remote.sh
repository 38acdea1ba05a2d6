# SPDX-License-Identifier: Apache-2.0
# varve ls, verify --repair and rm on a shared folder.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
make="$BUILD_DIR/tests/unit/ckpt/remote"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); assert $1, d"; }
unset VARVE_LOCAL VARVE_REMOTE
local="$dir/local" remote="$dir/remote"
# Versions 0 to 3 of history `made`, complete; version 4 on rank 0 of 2 only, of another history.
"$make" make "$local" "$remote"

expect 0 ls --local "$local" made
[ "$(grep -c ' local  *ok$' "$dir/out")" -eq 4 ] || fail "ls of the local folder"
mkdir -p "$local/made/group" # another rank may have a life file there
expect 0 ls --local "$local" made
[ "$(grep -c ' local  *ok$' "$dir/out")" -eq 4 ] || fail "ls of a local folder with a group"
rmdir "$local/made/group" 2>/dev/null || true
expect 0 ls --remote "$remote" made
[ "$(grep -c ' complete  *ok$' "$dir/out")" -eq 4 ] || fail "ls of the remote folder"
VARVE_REMOTE=$remote expect 0 ls --json
json 'sorted(c["level"] for c in d["checkpoints"]) == ["complete"] * 4 + ["remote"]' <"$dir/out"

flip() { printf '\377\376' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
file() { (cd "$1" && echo made/r0.v"$2".g*.ckpt); }
expect 2 verify --repair "$local/"
grep -q 'VARVE_REMOTE' "$dir/err" || fail "repair without another folder"
expect 2 verify --remote "$remote" --local "$local"
expect 1 verify --remote "$remote" "$local/"
expect 0 verify --repair --local "$local" --remote "$remote"
grep -q '^0 repaired, 0 left' "$dir/out" || fail "repair of good files"

# The messages between ranks, and missing files.
name() { basename "$(compgen -G "$remote/$1/group/$2")"; }
expect 0 verify --json --local "$remote"
json 'd["records"] == 4 and d["markers"] == 1 and d["ok"]' <"$dir/out"
expect 0 verify --remote "$remote" made
grep -q '^4 group records, 0 markers, 0 problems' "$dir/out" || fail "records of a good folder"
flip "$remote/made/group/$(name made 'v1.x*.group')" 70
other=$(ls "$remote" | grep -v made)
flip "$remote/$other/group/$(name "$other" '*.mark')" 60
flip "$remote/made/group/life.0" 20
rm "$remote/$(file "$remote" 2)"
expect 1 verify --local "$remote"
grep -q 'v1.x.*version 1: the group record is damaged' "$dir/out" || fail "a damaged record"
grep -q 'r0.mark: version 4: the commit marker is damaged' "$dir/out" || fail "a damaged marker"
grep -q 'life.0: .*the life file is damaged' "$dir/out" || fail "a damaged life"
grep -q 'version 2: r0.v2.*of rank 0 is missing' "$dir/out" || fail "a missing file"
expect 1 verify --json --local "$remote" made
json 'len(d["problems"]) == 3 and not d["ok"]' <"$dir/out"
expect 0 verify --repair --local "$local" --remote "$remote"
[ "$(grep -c ', repaired$' "$dir/out")" -eq 4 ] || { cat "$dir/out"; fail "four repairs"; }
grep -q '^4 repaired, 0 left' "$dir/out" || fail "what was repaired"
expect 0 verify --local "$remote"
expect 0 ls --remote "$remote" made
[ "$(grep -c ' complete  *ok$' "$dir/out")" -eq 4 ] || fail "complete after the repair"
# Without the file the record cannot be made, and without a copy the file cannot.
cp -r "$remote" "$dir/worse"
flip "$dir/worse/made/group/$(name made 'v1.x*.group')" 70
rm "$dir/worse/$(file "$remote" 1)" "$dir/worse/$(file "$remote" 3)"
mkdir "$dir/empty"
expect 1 verify --repair --json --local "$dir/empty" --remote "$dir/worse"
json 'd["repaired"] == 0 and d["unrepaired"] == 2' <"$dir/out"

flip "$local/$(file "$local" 1)" 5000
flip "$remote/$(file "$remote" 2)" 9000
truncate -s 4096 "$local/$(file "$local" 3)"
flip "$remote/$(file "$remote" 0)" 4097
flip "$local/$(file "$local" 0)" 4097
expect 1 verify --local "$local"
expect 1 verify --repair --json --local "$local" --remote "$remote" made
json 'd["repaired"] == 3 and d["unrepaired"] == 2 and not d["ok"]' <"$dir/out"
expect 1 verify --local "$local"
grep -q '^4 checkpoints, 1 damaged\|^5 checkpoints, 1 damaged' "$dir/out" || fail "verify after the repair"
expect 1 verify --repair --local "$local" --remote "$remote"
grep -q '^0 repaired, 2 left' "$dir/out" || fail "what is damaged in both"
expect 1 verify --repair --local "$local" --remote "$remote" nothing
cmp "$local/$(file "$local" 1)" "$remote/$(file "$remote" 1)" || fail "copies differ"

# If a file of a version is removed, the version is not complete any more.
expect 0 rm --local "$remote" made 3
record() { compgen -G "$remote/made/group/v$1.x*.group" >/dev/null; }
! record 3 || fail "the record stays"
record 2 || fail "the wrong record goes"
# An object store is not reached without credentials, wherever it is. A build without libcurl says that instead.
(unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; HOME=$dir AWS_ENDPOINT_URL=http://127.0.0.1:1 expect 1 ls --remote s3://bucket/prefix)
grep -Eq 'AWS_ACCESS_KEY_ID|libcurl' "$dir/err" || { cat "$dir/err"; fail "ls of an object store without credentials"; }
