# SPDX-License-Identifier: Apache-2.0
# varve ls, verify --repair and rm on a shared folder.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "remote: $*" >&2; exit 1; }
make="$BUILD_DIR/tests/unit/ckpt/remote"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); assert $1, d"; }
expect() {
    local want=$1 rc=0
    shift
    "$VARVE_BIN" "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -eq "$want" ] || { cat "$dir/out" "$dir/err"; fail "varve $*: $rc, not $want"; }
}
unset VARVE_LOCAL VARVE_REMOTE
local="$dir/local" remote="$dir/remote"
# Versions 0 to 3 of history `made`, complete; version 4 on rank 0 of 2 only, of another history.
"$make" make "$local" "$remote"

expect 0 ls --local "$local" made
[ "$(grep -c ' local  *ok$' "$dir/out")" -eq 4 ] || fail "ls of the local folder"
expect 0 ls --remote "$remote" made
[ "$(grep -c ' complete  *ok$' "$dir/out")" -eq 4 ] || fail "ls of the remote folder"
VARVE_REMOTE=$remote expect 0 ls --json
json 'sorted(c["level"] for c in d["checkpoints"]) == ["complete"] * 4 + ["remote"]' <"$dir/out"

flip() { printf '\377\376' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
file() { (cd "$1" && echo made/r0.v"$2".g*.ckpt); }
expect 2 verify --repair "$local/"
grep -q 'VARVE_REMOTE' "$dir/err" || fail "repair without another folder"
expect 2 verify --remote "$remote" "$local/"
expect 0 verify --repair --local "$local" --remote "$remote"
grep -q '^0 repaired, 0 left' "$dir/out" || fail "repair of good files"
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

# A version of which a file is removed is not complete any more.
expect 0 rm --local "$remote" made 3
record() { compgen -G "$remote/made/group/v$1.x*.group" >/dev/null; }
! record 3 || fail "the record stays"
record 2 || fail "the wrong record goes"
