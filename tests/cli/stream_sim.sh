# SPDX-License-Identifier: Apache-2.0
# Steps on streams in virtual time, at the rates of an H200: how long streams stall, over the bound and one of the largest
# objects. Times there are the same on every machine.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
rates=d2d=1900G,d2h=55.2G,h2d=55.2G
mixed="--sizes 128M,512M,512M --blocks 10 --forward-ms 12.7 --backward-ms 25.3"
equal="--size 128M --blocks 90 --forward-ms 1.41 --backward-ms 2.81"

at_most() { # RATIO OPTION...
    local most=$1
    shift
    expect 0 sim stream --host-cache 40G "$@" --rate $rates,h2f=2.5G,f2h=2.5G --json
    python3 - "$most" "$*" "$dir/out" <<'PY' || fail "stalls: $*"
import json, sys
d = json.load(open(sys.argv[3]))
stalls = d["blocked_checkpoint_s"] + d["blocked_restore_s"]
ratio = stalls / (d["bound_s"] + len(d["streams"]) * d["largest_s"])
assert d["verified"] and ratio <= float(sys.argv[1]), f"{sys.argv[2]}: {ratio:.3f}, at most {sys.argv[1]}"
PY
}

for cache in 1G 2G 4G 8G; do
    for order in lifo fifo irr; do
        at_most 1.10 $mixed --device-cache $cache --order $order
        at_most 1.12 $equal --device-cache $cache --order $order
    done
done
# A stream that is slower, or much faster, than the link; a host cache of a third and a disk.
for kernels in "50 100" "3 6"; do
    read -r forward backward <<<"$kernels"
    for order in lifo fifo irr; do
        at_most 1.15 --sizes 128M,512M,512M --blocks 10 --forward-ms $forward --backward-ms $backward --device-cache 4G --order $order
    done
done
for order in lifo fifo irr; do
    at_most 1.20 $mixed --device-cache 4G --order $order --host-cache 33% --local "$dir"
done
