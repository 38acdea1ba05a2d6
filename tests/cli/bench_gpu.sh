# SPDX-License-Identifier: Apache-2.0
# bench_gpu on the emulated device, with small caches: every rate is above 0. The numbers are not checked otherwise.
set -euo pipefail
fail() { echo "bench_gpu: $*" >&2; exit 1; }
bench=$(dirname "$VARVE_BIN")/bench_gpu
[ -x "$bench" ] || exit 77
rc=0
out=$("$bench" --device host --size 1M --device-cache 4M --host-cache 64M --open-cache 16M --rounds 4) || rc=$?
[ $rc -eq 0 ] || fail "status $rc"
[ "$(grep -c 'longer than the bare copy' <<<"$out")" -eq 4 ] || fail "no hits: $out"
grep -q 'prefetch alone' <<<"$out" || fail "no rates: $out"
# On a busy machine the window may end before anything is flushed beside the restores.
! grep -v 'of that, flush' <<<"$out" | grep -E ' 0\.0 GB/s' || fail "a rate of nothing"
"$bench" --device host --size 1M --device-cache 4M --host-cache 19M >/dev/null 2>&1 && fail "too small a host cache was taken"
out=$("$bench" --only nothing 2>&1) && fail "a part that there is not"
grep -q -- "--only: 'nothing' is not one of hit|calls|" <<<"$out" || fail "$out"
"$bench" --help | grep -q '^usage' || fail "no help"
# The smallest caches that it accepts.
out=$("$bench" --device host --size 1M --device-cache 4M --host-cache 20M --open-cache 16M --only open)
grep -q 'all of the host cache' <<<"$out" && ! grep -q 'flush alone' <<<"$out" || fail "one part: $out"
# Benchmarks list their options, refuse others, and measure nothing in either case.
for name in cached_memcpy copy core_ops disk files_open gpu kernel net ooc_manage remote server; do
    one=$(dirname "$bench")/bench_$name
    [ -x "$one" ] || continue
    [ "$("$one" --help | head -1 | cut -d' ' -f1,2)" = "usage: bench_$name" ] || fail "$name --help"
    rc=0; out=$("$one" --nosuch 2>&1) || rc=$?
    [ $rc -eq 2 ] && grep -q -- "'--nosuch'" <<<"$out" || fail "$name --nosuch: $rc, $out"
done
rc=0; out=$("$(dirname "$bench")/bench_server" --opens x 2>&1) || rc=$?
[ $rc -eq 2 ] && grep -q -- "--opens: 'x' is not a whole number from 1 on" <<<"$out" || fail "bench_server --opens x: $rc, $out"
exit 0
