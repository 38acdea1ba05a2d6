# SPDX-License-Identifier: Apache-2.0
# bench_gpu on the emulated device, with the smallest caches that it takes: every rate is that of something. Nothing more is
# asked of the numbers.
set -euo pipefail
fail() { echo "bench_gpu: $*" >&2; exit 1; }
bench=$(dirname "$VARVE_BIN")/bench_gpu
[ -x "$bench" ] || exit 77
rc=0
out=$("$bench" --device host --size 1M --device-cache 4M --host-cache 20M --open-cache 16M --rounds 4) || rc=$?
[ $rc -le 1 ] || fail "status $rc"
grep -q 'prefetch alone' <<<"$out" || fail "no rates: $out"
! grep -E ' 0\.0 GB/s' <<<"$out" || fail "a rate of nothing"
"$bench" --device host --size 1M --device-cache 4M --host-cache 19M >/dev/null 2>&1 && fail "too small a host cache was taken"
exit 0
