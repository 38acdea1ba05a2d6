# SPDX-License-Identifier: Apache-2.0
# How close the policy comes to the bound away from the usual shots: small and odd caches, hints that are late,
# partial, swapped or wrong, versions restored again, puts between restores, two histories. In virtual time: the
# figures are the same on every machine. Each limit is a little above the present figure; without one of the rules
# a case takes two to fifty times as long.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
rates="--rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M --no-wait"
row() { # MOST KIND OPTION...
    local most=$1 ratio
    shift
    "$VARVE_BIN" sim make "$@" --size 8M >"$dir/script" || fail "sim make $*"
    ratio=$("$VARVE_BIN" sim script "$dir/script" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["bound_ratio"])')
    python3 -c "import sys; sys.exit(not $ratio <= $most)" || fail "$*: $ratio times the bound, expected $most at most"
}
shot="shot --ckpts 96 --order rev $rates"
# One of the caches holds less than a few objects.
row 1.05 $shot --load 1.5 --device-cache 40% --host-cache 1% --hints all
row 1.1 $shot --load 1 --device-cache 0.5% --host-cache 0.5% --hints all
# Without hints: the two memory tiers complement each other (345M each, and buffers); a version is restored three times.
row 2.8 shot --ckpts 96 --order rev --no-wait --load 1 --device-cache 345M --host-cache 349M --hints none --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=10M
row 1.4 $shot --load 0.5 --hints none --repeat 3 --consume keep
# Small objects share pages: with a page for each of them, neither the caches nor the disk would hold them.
"$VARVE_BIN" sim make shot --ckpts 4096 --size 4K --order rev $rates --load 1 --hints all --device none --host-cache 64M --local none --rate h2h=4G >"$dir/script" || fail "sim make of small objects"
"$VARVE_BIN" sim script "$dir/script" >"$dir/out" || fail "4,096 objects of 4 KiB do not fit in 64 MiB"
# Wrong hints cost no more than their errors.
row 1.05 $shot --load 0.5 --hints late
row 1.05 $shot --load 0.5 --hints partial
row 2.2 $shot --load 0.5 --hints swapped --swap 50
row 3 $shot --load 0.5 --hints wrong
# Puts between restores.
for hints in all one; do
    row 1.05 revolve --ckpts 96 --slots 12 $rates --load 0.5 --hints $hints
    row 1.05 revolve --ckpts 384 --slots 20 $rates --load 0.5 --device-cache 5% --host-cache 90% --hints $hints
    row 1.05 queue --ckpts 96 --distance 24 $rates --load 1 --device-cache 10% --host-cache 30% --hints $hints
    row 1.05 overlap --ckpts 96 $rates --load 0.5 --hints $hints
done
row 1.25 revolve --ckpts 96 --slots 12 $rates --load 0.5 --hints none
row 1.25 revolve --ckpts 384 --slots 20 $rates --load 0.5 --device-cache 5% --host-cache 90% --hints none
row 1.25 queue --ckpts 96 --distance 24 $rates --load 1 --device-cache 10% --host-cache 30% --hints none
# Backward, forward, backward; the device and the host hold 40% of the history, and the disk takes half of what is made.
row 1.7 sweeps --ckpts 96 $rates --load 2 --device-cache 10% --host-cache 30% --hints all
row 1.1 sweeps --ckpts 96 $rates --load 2 --device-cache 10% --host-cache 30% --hints one
# Two histories share the movers. While one waits for its flushes, the other still writes.
row 10.5 shot --ckpts 64 --order irr --vary uniform --load 1.5 --device-cache 22% --host-cache 37% --rate d2d=4G,d2h=900M,h2d=900M,h2f=40M,f2h=160M --threads 2 --hints all
row 1.1 $shot --load 0.25 --threads 2 --hints all
