# SPDX-License-Identifier: Apache-2.0
# Two daemons of one job under the same name, as if all machines were called localhost: the logs of both say so, and
# programs on all nodes still read.
set -euo pipefail
dir=$(mktemp -d)
pids=()
finish() {
    local rc=$?
    for p in "${pids[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
    rm -rf "$dir"
    exit $rc
}
trap finish EXIT
fail() { echo "cached_namesake: $*" >&2; tail -n 20 "$dir"/log.* >&2 || true; exit 1; }
library=$BUILD_DIR/lib/libvarve-preload.so
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR

start() { # start PLACE NAME
    pids+=("$(timeout 60 "$VARVE_BIN" cached --daemon --node "$2" --listen 127.0.0.1:0 --meet "$dir/meet" --roots "$dir/data" \
        --cache "$dir/cache.$1" --capacity 64M --socket "$dir/sock.$1" --log "$dir/log.$1")") || fail "$1 does not start"
}

mkdir "$dir/data"
for i in $(seq 8); do head -c $((i * 3000)) /dev/urandom >"$dir/data/f$i"; done
(cd "$dir/data" && md5sum f*) >"$dir/sums"
start a a
start b1 b
start b2 b
for n in b1 b2; do
    for i in $(seq 1200); do
        grep -q 'another node of this job, at 127.0.0.1:[0-9]*, has the name b too' "$dir/log.$n" && break
        [ "$i" -lt 1200 ] || fail "$n does not say that its name is taken"
        sleep 0.05
    done
done
for n in a b1 b2; do
    (cd "$dir/data" && VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$library timeout 120 md5sum -c --quiet "$dir/sums") ||
        fail "wrong bytes, or none, on $n"
done
! grep -q 'has the name' "$dir/log.a" || fail "a has a name of its own"
echo ok
