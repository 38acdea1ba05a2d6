#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program in another mount namespace, as in a container, with mounts of its own below a root: it reads the files that are
# mounted there, and the others from the cache.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

make_files
mkdir "$base/elsewhere"
echo bound >"$base/elsewhere/inner"
unshare -m true 2>/dev/null || {
    echo "no mount namespaces here"
    exit 77
}
start_daemon
script="
mount -t tmpfs none '$root/deep/folder' && echo 'in memory' >'$root/deep/folder/inner'
mount --bind '$base/elsewhere' '$root/sub'
mount --bind '$base/elsewhere/inner' '$root/text'
cat '$root/deep/folder/inner' '$root/sub/inner' '$root/text' '$root/sublink/inner'
md5sum <'$root/file'
stat -c '%s %i' '$root/sub/inner' '$root/text' '$root/file'
cd '$root/sub' && cat inner && cat ../deep/other
for i in 1 2 3 4 5 6; do cat '$root/sub/inner'; md5sum '$root/file'; done
"
unshare -m sh -c "mount -t tmpfs none '$root/sub'" || {
    echo "cannot mount here"
    exit 77
}
# Brings them into the cache.
under cat "$root/deep/folder/inner" "$root/sub/inner" "$root/text" "$root/file" >/dev/null
unshare -m sh -c "$script" >"$base/plain"
grep -q bound "$base/plain" || fail "nothing was mounted"
ask_daemon
before=$d_opens
LD_PRELOAD=$library unshare -m sh -c "$script" >"$base/with"
cmp <(sed 's/^\([0-9]*\) [0-9]*$/\1/' "$base/plain") <(sed 's/^\([0-9]*\) [0-9]*$/\1/' "$base/with") || fail "the files differ from those without the library"
ask_daemon
[ "$d_opens" -gt "$before" ] || fail "files that no mount hides did not come from the cache"
kill_daemon TERM
