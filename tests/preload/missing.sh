#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cost of the library for a program: without a daemon one attempt to connect and no other call; switched off, or for files
# outside of the roots, none at all. The calls are counted by strace.
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
# The calls of a program from its first read of files on; the dynamic linker's before that differ by the library's.
calls() { # calls NAME VARIABLE=VALUE... -- FILE...
    local name=$1 env=()
    shift
    while [ "$1" != -- ]; do
        env+=(-E "$1")
        shift
    done
    shift
    strace -o "$base/$name.all" "${env[@]}" cat "$@" >"$base/$name.out"
    # rt_sigprocmask with an invalid argument is the library's check that a program's pointer leads to a path; it has no
    # other effect and is left out.
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
    cmp "$base/plain.out" "$base/$name.out" || fail "$name: the output differs"
    diff "$base/plain.calls" "$base/$name.calls" || fail "$name: the calls differ from those without the library"
done
[ "$(cat "$base/off.connects")" = 0 ] && [ "$(cat "$base/elsewhere.connects")" = 0 ] || fail "a superfluous attempt to connect"
[ "$(grep -c 'connect(' "$base/missing.all")" = 1 ] || fail "expected one attempt to connect"

# With a daemon, no call names a cached file: the shared file system is not used.
start_daemon
under cat "${files[@]}" >/dev/null
calls cached "LD_PRELOAD=$library" -- "${files[@]}"
cmp "$base/plain.out" "$base/cached.out" || fail "cached: the output differs"
! grep -v '^execve\|sendto' "$base/cached.all" | grep -q 'data/' || {
    grep 'data/' "$base/cached.all"
    fail "the shared file system was used"
}
kill_daemon TERM
