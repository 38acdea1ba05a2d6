# SPDX-License-Identifier: Apache-2.0
# bench_core_ops runs to its end in short runs, in both forms of output. Times are not checked.
set -euo pipefail
fail() { echo "bench_core: $*" >&2; exit 1; }
bench=$(dirname "$VARVE_BIN")/bench_core_ops
[ -x "$bench" ] || { echo "no bench_core_ops in this build"; exit 77; }
rc=0
out=$("$bench" --quick 2>&1) || rc=$?
[ $rc -eq 0 ] || fail "status $rc: $out"
for line in 'put among 50 fragments, .*no hints:5' 'put among 50 fragments, .*hinted:5' '1000 versions:1' 'put and discard, .* hints:4'; do
    [ "$(grep -c -- "${line%:*}" <<<"$out")" -eq "${line##*:}" ] || fail "not ${line##*:} lines of '${line%:*}': $out"
done
rc=0
out=$("$bench" --quick --json) || rc=$?
[ $rc -eq 0 ] || fail "--json: status $rc"
python3 -c '
import json, sys
out = json.load(sys.stdin)
assert len(out["evicting_put"]) == 10 and len(out["history"]) == 1 and len(out["hints_that_stay"]) == 4 and not out["missed"], out
' <<<"$out" || fail "$out"
