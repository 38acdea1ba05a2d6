#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the library costs a program: without a daemon one attempt to connect and no other call; switched off, and
# for files that are not the daemon's, nothing at all. Counted by the kernel, as strace tells.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

command -v strace >/dev/null || {
    echo "no strace"
    exit 77
}
make_files
strace -o "$base/t" true 2>/dev/null || {
    echo "strace cannot trace here"
    exit 77
}
# The calls of a program from where it begins to read files; the dynamic linker's before that differ by the library's.
calls() { # calls NAME VARIABLE=VALUE... -- FILE...
    local name=$1 env=()
    shift
    while [ "$1" != -- ]; do
        env+=(-E "$1")
        shift
    done
    shift
    strace -o "$base/$name.all" "${env[@]}" cat "$@" >"$base/$name.out"
    # Of what comes first, only what the library adds is of interest.
    # That there is a path where the program points to is asked of the kernel, with a call that cannot do anything.
    awk '/rt_sigprocmask\(0xffffffff/ { next } /open.*data\// { begun = 1 } { sub(/\(.*/, "") } begun { print }' \
        "$base/$name.all" >"$base/$name.calls"
    grep -c 'socket(\|connect(' "$base/$name.all" >"$base/$name.connects" || true
}
files=("$root/file" "$root/link" "$root/text" "$root/sub/inner")
calls plain -- "${files[@]}"
calls missing "LD_PRELOAD=$library" -- "${files[@]}"
calls off "LD_PRELOAD=$library" VARVE_PRELOAD=off -- "${files[@]}"
calls elsewhere "LD_PRELOAD=$library" VARVE_PRELOAD_ROOTS=/somewhere -- "${files[@]}"
for name in missing off elsewhere; do
    cmp "$base/plain.out" "$base/$name.out" || fail "$name: other output"
    diff "$base/plain.calls" "$base/$name.calls" || fail "$name: other calls than without the library"
done
[ "$(cat "$base/off.connects")" = 0 ] && [ "$(cat "$base/elsewhere.connects")" = 0 ] || fail "connected for nothing"
[ "$(grep -c 'connect(' "$base/missing.all")" = 1 ] || fail "not one attempt to connect"

# With a daemon, no call names a cached file: the shared file system is left alone.
start_daemon
under cat "${files[@]}" >/dev/null
calls cached "LD_PRELOAD=$library" -- "${files[@]}"
cmp "$base/plain.out" "$base/cached.out" || fail "cached: other output"
! grep -v '^execve\|sendto' "$base/cached.all" | grep -q 'data/' || {
    grep 'data/' "$base/cached.all"
    fail "the shared file system was asked"
}
kill_daemon TERM
