#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of others behave under the library as without it.
set -euo pipefail
if [ -n "${VARVE_SANITIZE:-}" ] && [ -z "${VARVE_TEST_LONG:-}" ]; then
    echo "neither these programs nor the library are built with a sanitizer"
    exit 77
fi
. "$SOURCE_DIR/tests/preload/common.sh.inc"

make_files
rm "$root/fifo" "$root/loop"
chmod 644 "$root/denied"
mkdir "$root/many"
for i in $(seq 40); do bytes $((i * 777)) "$i" >"$root/many/$i"; done
touch -d '2001-02-03 04:05:06.789' "$root/text"
start_daemon
cd "$base"

same_cached cat "$root/file" "$root/link" "$root/sublink/inner"
same cat "$root/missing" "$root/sub"
same_cached md5sum "$root/file" "$root"/many/*
same_cached dd if="$root/big" bs=7777 skip=3 status=none
same_cached dd if="$root/big" bs=64k iflag=fullblock count=2 status=none
same_cached head -c 1000 "$root/big"
same_cached tail -c 1000 "$root/big"
same_cached cmp "$root/big" "$root/bigger"
same_cached wc "$root/text" "$root/big"
same_cached sort "$root/text"
same_cached od -A d -t x1 "$root/file"
same_cached grep -c . "$root/text" "$root/sub/inner"
same stat -c '%n %d %i %f %h %u %g %s %b %Y %Z' "$root/file" "$root/link" "$root/sub" "$root/missing"
same stat -L -c '%n %d %i %f %h %s' "$root/link" "$root/sublink"
same ls -lR --time-style=full-iso "$root"
same find "$root" -printf '%p %y %s %i %m %T@\n'
same test -r "$root/file"
same test -e "$root/missing"
same_cached diff -r "$root/sub" "$root/deep/folder"

# Redirections: the shell opens a file, another program reads its descriptor and stats it.
same_cached sh -c "cat <'$root/file'; stat -L -c '%d %i %s %Y' - <'$root/file'; stat -L -c '%i %s' /dev/stdin <'$root/file'"
same_cached sh -c "exec 5<'$root/big'; head -c 100 <&5; dd bs=100 count=2 status=none <&5; cat /proc/self/fd/5 | md5sum"
# shellcheck disable=SC2016 # for the inner shell
same_cached bash -c 'while read -r line; do echo "$line"; done <"$1"' - "$root/text"

# Copies are equal to their originals, by any program, with times and owners.
copies() { # copies NAME COMMAND...: the command makes $base/out
    local name=$1
    shift
    rm -rf "$base/out" "$base/expected"
    "$@" >/dev/null
    mv "$base/out" "$base/expected"
    ask_daemon
    local before=$((d_opens + d_direct))
    under "$@" >/dev/null
    ask_daemon
    [ $((d_opens + d_direct)) -gt "$before" ] || fail "$name: nothing came from the cache"
    diff -r --no-dereference "$base/expected" "$base/out" || fail "$name: the files differ"
    (cd "$base/expected" && find . -printf '%p %y %s %m %u %g %T@ %l\n' | sort) >"$base/a"
    (cd "$base/out" && find . -printf '%p %y %s %m %u %g %T@ %l\n' | sort) >"$base/b"
    # Folders and links get new times if they are not preserved.
    diff <(grep -v ' [dl] ' "$base/a") <(grep -v ' [dl] ' "$base/b") >/dev/null || [ "$name" = cp ] || {
        diff "$base/a" "$base/b" | head
        fail "$name: the attributes differ"
    }
}
copies cp cp -r "$root" "$base/out"
copies cp-a cp -a "$root" "$base/out"
# A copy does not get our mark.
for file in "$base/out/file" "$base/out/many/7"; do
    python3 -c 'import os, sys; sys.exit(os.listxattr(sys.argv[1]) != [])' "$file" || fail "cp -a copied the mark"
done
copies cp-p sh -c "mkdir '$base/out' && cp -p '$root'/many/* '$base/out'"
copies cp-reflink sh -c "mkdir '$base/out' && cp -p --reflink=auto --sparse=always '$root/big' '$base/out'"
copies install sh -c "mkdir '$base/out' && install -p -m 600 '$root'/many/* '$base/out'"
copies tar sh -c "mkdir '$base/out' && tar -C '$root' -cf - . | tar -C '$base/out' -xpf -"
tar -C "$root" -cf "$base/one.tar" .
under tar -C "$root" -df "$base/one.tar" || fail "tar finds differences"
if command -v rsync >/dev/null; then
    copies rsync rsync -a "$root/" "$base/out/"
    copies rsync-c rsync -ac "$root/" "$base/out/"
    under rsync -ac --dry-run --itemize-changes "$root/" "$base/out/" >"$base/changes"
    [ ! -s "$base/changes" ] || fail "rsync sees changes: $(cat "$base/changes")"
else
    echo "no rsync"
fi

# Content that was written through the library is read through it, also by other programs.
under sh -c "echo new >'$root/many/1'; cat '$root/many/1'" >"$base/o"
[ "$(cat "$base/o")" = new ] || fail "old content after writing"
same_cached cat "$root/many/1" "$root/many/2"
under cp "$root/many/3" "$root/many/2"
same_cached md5sum "$root/many/2" "$root/many/3"
under sed -i s/first/FIRST/ "$root/text"
under dd if=/dev/zero of="$root/many/4" bs=10 count=1 conv=notrunc status=none
same_cached md5sum "$root/many/4"
ask_daemon
[ "$d_broken" = 0 ] || fail "the daemon got malformed requests"
kill_daemon TERM
