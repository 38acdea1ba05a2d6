#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon is killed, frozen, or drops and replaces files while a program has them open: dup'ed, mapped, half read,
# in a forked child. The program reads the same content as without that.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

make_files
start_daemon
(echo go) | "$programs/holding" "$root" >"$base/plain" 2>/dev/null

held() { # held NAME COMMAND: the command runs while files are held
    rm -f "$base/go" "$base/held"
    mkfifo "$base/go"
    LD_PRELOAD=$library timeout 180 "$programs/holding" "$root" <"$base/go" >"$base/with" 2>"$base/held" &
    local pid=$!
    exec 8>"$base/go"
    while ! grep -q holding "$base/held" 2>/dev/null; do sleep 0.02; done
    eval "$2"
    echo go >&8
    exec 8>&-
    wait $pid || fail "$1: status $?: $(cat "$base/held")"
    cmp "$base/plain" "$base/with" || {
        diff "$base/plain" "$base/with"
        fail "$1: the content has changed"
    }
}
held "nothing" :
ask_daemon
[ $((d_opens + d_direct)) -ge 6 ] || fail "files did not come from the cache"
held "the daemon is killed" "kill_daemon KILL"
held "no daemon" :
start_daemon
export VARVE_PRELOAD_PATIENCE=300
held "the daemon is frozen" 'kill -STOP $daemon'
kill -CONT "$daemon"
held "the daemon ends, and another one begins with an empty folder" \
    "kill_daemon TERM; rm -rf '$base/cache'; start_daemon"
held "the daemon ends, and another one takes up the folder" "kill_daemon KILL; start_daemon"
# Changed by another program: programs that have the file open keep the old content, whole. The last open gets the new one.
cp "$root/big" "$base/kept"
held "the file is dropped" "LD_PRELOAD='$library' dd if='$base/kept' of='$root/big' conv=notrunc status=none"
kill_daemon TERM
