# SPDX-License-Identifier: Apache-2.0
# A shared file system that does not answer any more: the daemon still ends on a signal, and the next one uses the
# files on disk again. A library whose stat never returns plays that file system.
set -euo pipefail
[ -z "${VARVE_SANITIZE:-}" ] || { echo "the daemon would have to load another library before the sanitizer's"; exit 77; }
. "$SOURCE_DIR/tests/cli/cached.sh.inc"
await() { # how often, every 50 ms; what
    local i
    for i in $(seq 1200); do ! eval "$1" || return 0; sleep 0.05; done
    fail "never: $1"
}
cached() { timeout 60 "$VARVE_BIN" cached "$@"; }

cat >"$dir/hang.c" <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
    char link[40], where[4096] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (!*path && readlink(link, where, sizeof(where) - 1) > 5 && strcmp(where + strlen(where) - 5, "/hang") == 0) {
        (void)creat(getenv("HANGS"), 0600);
        for (;;)
            pause();
    }
    return (int)syscall(SYS_statx, fd, path, flags, mask, st);
}
END
${CC:-cc} -shared -fPIC -o "$dir/hang.so" "$dir/hang.c" || fail "no library"
mkdir "$dir/data"
echo good >"$dir/data/good"
echo hang >"$dir/data/hang"

HANGS=$dir/hangs LD_PRELOAD=$dir/hang.so "$VARVE_BIN" cached --roots "$dir/data" --cache "$dir/cache" --capacity 10M --log "$dir/log" &
pid=$!
await 'cached status >/dev/null 2>&1'
[ "$(LD_PRELOAD=$library timeout 60 cat "$dir/data/good")" = good ] || fail "a file"
cached preload "$dir/data/hang" >/dev/null
await '[ -e "$dir/hangs" ]'
kill -TERM $pid
await 'grep -q stopping "$dir/log"'
kill -0 $pid 2>/dev/null || fail "nothing hangs"
kill -TERM $pid
rc=0
wait $pid || rc=$?
pid=
[ $rc -eq 1 ] || fail "it ended with $rc"
grep -q 'ending without order' "$dir/log" || fail "no word of it"
# Programs read the files themselves; the next daemon has the files on disk.
[ "$(LD_PRELOAD=$library timeout 60 cat "$dir/data/good" "$dir/data/hang")" = "$(printf 'good\nhang')" ] || fail "without a daemon"
"$VARVE_BIN" cached --roots "$dir/data" --cache "$dir/cache" --capacity 10M --log "$dir/log" &
pid=$!
await 'cached status >/dev/null 2>&1'
[ "$(LD_PRELOAD=$library timeout 60 cat "$dir/data/good")" = good ] || fail "a file, again"
cached status --json | grep -q '"shared_reads_total": *0\b' || fail "it was fetched again: $(cached status --json)"
kill -TERM $pid
wait $pid || fail "it ended with $?"
pid=
echo ok
