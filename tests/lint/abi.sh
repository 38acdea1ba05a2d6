# SPDX-License-Identifier: Apache-2.0
# The binary interface is the recorded one, so that the promises of docs/compatibility.md are not broken by accident.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need abidw
need abidiff
scripts/abi "$BUILD_DIR" >"$dir/now.abi"
grep -q "name='varve_checkpoint'" "$dir/now.abi" || fail "nothing was read from libvarve.so"
rc=0; abidiff tests/golden/abi/libvarve.abi "$dir/now.abi" >"$dir/diff" || rc=$?
[ $rc -ne 0 ] || { echo ok; exit 0; }
cat "$dir/diff"
[ $((rc & 8)) -eq 0 ] || fail "programs that are linked with an older version would break; see docs/compatibility.md"
fail "the interface has changed: if nothing but additions is meant, record it with 'make abi' and add a line to CHANGELOG.md"
