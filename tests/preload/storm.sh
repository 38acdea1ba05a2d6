#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Threads, signal handlers, children of all kinds, connections that are closed during use; and a daemon that is killed,
# frozen and started again meanwhile. No wrong byte, no failure, no hang.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

make_files
mkdir "$root/many"
for i in $(seq 40); do bytes $((i * 777)) "$i" >"$root/many/$i"; done
rounds=${VARVE_TEST_LONG:+3000}
rounds=${rounds:-150}
start_daemon revalidate=20
storm() { # storm WHAT [close]
    LD_PRELOAD=$library timeout 300 "$programs/storm" "$root" "$rounds" ${2:+"$2"} || fail "storm: $?, $1"
}
storm "with a daemon"
ask_daemon
[ "$d_direct" -gt 300 ] || fail "hardly anything came from the cache"
[ "$d_broken" = 0 ] || fail "the daemon got malformed requests"

[ "$d_opens" -lt "$d_direct" ] || fail "hardly any file was opened by the index"
kill_daemon TERM
index=0
start_daemon revalidate=20
storm "with a daemon that is asked for every file"
ask_daemon
[ "$d_opens" -gt 500 ] || fail "hardly anything came from the cache"

# Closing a connection in use may lose a request, and then the daemon is taken for frozen.
VARVE_PRELOAD_PATIENCE=100 storm "with connections closed" close

# Little room: files are evicted while they are open.
kill_daemon TERM
start_daemon revalidate=20 capacity=200000
storm "with little room"

# The daemon ends and comes back.
index=4096
export VARVE_PRELOAD_PATIENCE=200
LD_PRELOAD=$library timeout 300 "$programs/storm" "$root" $((rounds * 4)) &
running=$!
for i in 1 2 3; do
    sleep 0.3
    kill -STOP "$daemon"
    sleep 0.3
    kill -CONT "$daemon"
    sleep 0.1
    kill_daemon KILL
    sleep 0.1
    start_daemon revalidate=20
done
wait "$running" || fail "storm: $?, with a daemon that ends and comes back"

# No leak of a descriptor or a client.
for i in 1 2 3 4 5 6 7 8 9 10; do
    ask_daemon
    [ "$d_clients" = 0 ] && break
    sleep 0.2
done
[ "$d_clients" = 0 ] || fail "$d_clients clients, although all programs have ended"
kill_daemon TERM
