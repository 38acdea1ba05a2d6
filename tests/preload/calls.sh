#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
# Every call gives the same result as without the library: with a daemon, without one, and switched off.
. "$SOURCE_DIR/tests/preload/common.sh.inc"

# calls changes files, so each run has a copy of its own of everything.
run() { # run NAME COMMAND...
    local name=$1
    shift
    rm -rf "$root"
    cp -a "$base/master" "$root"
    sleep "${settle:-0}" # until the daemon checks files again
    "$@" >"$base/$name.out" 2>"$base/$name.err" || {
        cat "$base/$name.err"
        tail -3 "$base/$name.out"
        fail "calls $name"
    }
    # Another copy has other inodes and times of change: they are numbered in the order
    # in which they appear.
    awk '{
        for (i = 1; i < NF; i++) {
            if ($i == "ino") ino = $(i + 1)
            if ($i == "ino" || $i == "c" || $i == "m" || $i == "b") {
                k = ino " " $i " " $(i + 1)
                if (!(k in seen)) seen[k] = ++n
                $(i + 1) = "#" seen[k]
            }
        }
        print
    }' "$base/$name.out" >"$base/$name.txt"
}

make_files
cp -a "$root" "$base/master"
start_daemon revalidate=300
run plain "$programs/calls" "$root"
[ "$(wc -l <"$base/plain.txt")" -gt 300 ] || fail "calls printed too little"

compare() {
    cmp "$base/plain.txt" "$base/$1.txt" || {
        diff "$base/plain.txt" "$base/$1.txt" | head -20
        fail "calls $1: the output differs from that without the library"
    }
    cmp "$base/plain.err" "$base/$1.err" || fail "calls $1: messages"
}

run missing env VARVE_CACHED_SOCKET="$base/nowhere" LD_PRELOAD="$library" "$programs/calls" "$root"
compare missing
run cached env CALLS_CACHED=1 LD_PRELOAD="$library" "$programs/calls" "$root"
compare cached
ask_daemon
[ "$d_direct" -gt 20 ] && [ "$d_opens" -gt 3 ] && [ "$d_stats" -gt 3 ] && [ "$d_writes" -gt 3 ] || fail "the daemon got hardly any requests"
[ "$d_broken" = 0 ] || fail "the daemon got malformed requests"
run off env VARVE_PRELOAD=off LD_PRELOAD="$library" "$programs/calls" "$root"
compare off
before=$d_accepted
ask_daemon
[ "$d_accepted" = "$before" ] || fail "a connection although the library is switched off"
run elsewhere env VARVE_PRELOAD_ROOTS=/nowhere:/somewhere LD_PRELOAD="$library" "$programs/calls" "$root"
compare elsewhere
ask_daemon
[ "$d_accepted" = "$before" ] || fail "a request for files outside of VARVE_PRELOAD_ROOTS"
settle=0.4
run roots env VARVE_PRELOAD_ROOTS="/nowhere:$root/" CALLS_CACHED=1 LD_PRELOAD="$library" "$programs/calls" "$root"
compare roots
kill_daemon TERM

# Without an index: every file is requested.
index=0
start_daemon revalidate=1
run asked env CALLS_CACHED=1 LD_PRELOAD="$library" "$programs/calls" "$root"
compare asked
ask_daemon
[ "$d_opens" -gt 30 ] && [ "$d_stats" -gt 30 ] && [ "$d_writes" -gt 3 ] || fail "the daemon got hardly any requests"
kill_daemon TERM

# The cache on another file system than the files.
# shellcheck disable=SC2034 # of common.sh.inc
other=$(mktemp -d /dev/shm/varve-preload-XXXXXX 2>/dev/null || true)
if [ -n "$other" ] && [ "$(stat -c %d "$other")" != "$(stat -c %d "$base")" ]; then
    rm -rf "$base/cache"
    cache=$other/cache
    index=4096
    start_daemon revalidate=300
    run other env CALLS_CACHED=1 LD_PRELOAD="$library" "$programs/calls" "$root"
    compare other
    kill_daemon TERM
else
    echo "no other file system for the cache"
fi
