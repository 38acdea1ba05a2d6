# SPDX-License-Identifier: Apache-2.0
# varve rm --dry-run prints the actions of rm and changes nothing, not even leftovers.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
make="$BUILD_DIR/tests/unit/store/ckfile"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }
unset VARVE_LOCAL
store="$dir/store"
"$make" make-run "$store"
echo left behind >"$store/run/r0.v77.g9.tmp"
rm -f "$store"/run/lock.* "$store"/run/index.*
state() { (cd "$store" && ls -lAR --time-style=full-iso . && find . -type f -exec cksum {} + | sort); }
state >"$dir/before"
"$VARVE_BIN" rm --dry-run "$store" run 2-4 >"$dir/out"
[ "$(grep -c 'would remove' "$dir/out")" -eq 6 ] || fail "it does not tell 6"
"$VARVE_BIN" rm --dry-run --json "$store" run --all >"$dir/out"
python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["dry_run"] and d["ok"] and len(d["removed"]) == 10, d' <"$dir/out"
"$VARVE_BIN" rm --dry-run "$store" run 99 >"$dir/out" 2>&1 && fail "a version that is not there"
grep -q 'no version 99' "$dir/out" || fail "a version that is not there is not named"
state >"$dir/after"
cmp -s "$dir/before" "$dir/after" || { diff "$dir/before" "$dir/after" || true; fail "a dry run wrote"; }

# A folder with any name is accepted; two are too many.
"$VARVE_BIN" rm --dry-run --remote "$store" run 2-4 >"$dir/out"
[ "$(grep -c 'would remove' "$dir/out")" -eq 6 ] || fail "--remote does not tell 6"
(cd "$dir" && VARVE_LOCAL=nowhere "$VARVE_BIN" rm --dry-run --remote store run 2-4) >"$dir/out"
[ "$(grep -c 'would remove' "$dir/out")" -eq 6 ] || fail "--remote does not come before the environment"
rc=0; "$VARVE_BIN" rm --local "$store" --remote "$store" run --all >"$dir/out" 2>&1 || rc=$?
[ $rc -eq 2 ] && grep -q 'expected one --local or --remote' "$dir/out" || { cat "$dir/out"; fail "two folders: $rc"; }

# Without --dry-run it removes them.
"$VARVE_BIN" rm "$store" run 2-4 >"$dir/out"
[ "$(grep -c '^removed' "$dir/out")" -eq 6 ] || fail "it does not remove 6"
[ ! -e "$store/run/r0.v77.g9.tmp" ] || fail "leftovers stay"
