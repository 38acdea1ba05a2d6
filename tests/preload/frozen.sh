#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A daemon that is frozen: no call outside of its roots waits for it; inside, no program waits once its heartbeat is known
# to have stopped, and a program that has waited does not wait again. The patience is 100 seconds here. That is longer
# than any command may take, so that waiting fails the test, and shorter than the machine's uptime, which a heartbeat that stopped long ago needs.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"
export VARVE_PRELOAD_PATIENCE=100000

make_files
index=0
start_daemon
quick() { # quick COMMAND...: must not wait
    timeout 60 env LD_PRELOAD="$library" "$@" || fail "$*: status $?"
}
cmp <(quick cat "$root/file") "$root/file"
ask_daemon
[ "$d_opens" -ge 1 ] || fail "nothing came from the cache"
kill -STOP "$daemon"
quick ls /usr >/dev/null
quick cat /etc/passwd >/dev/null
(cd /usr && quick ls . >/dev/null && quick stat bin/env >/dev/null)

# Its heartbeat stopped long ago.
stop_heartbeat() {
    python3 - "$base/socket.lock" <<'END'
import struct, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(8)
    f.write(struct.pack("Q", 1))
END
}
stop_heartbeat
cmp <(quick cat "$root/file") "$root/file"
quick sh -c "echo new >'$root/text'; mv '$root/text' '$root/text2'; cat '$root/text2'" >"$base/out"
[ "$(cat "$base/out")" = new ] || fail "the content is not what was written"

# A program that was connected before the daemon froze uses it again when it continues.
kill -CONT "$daemon"
ask_daemon
cat >"$base/goes_on.py" <<'END'
import sys, time
root = sys.argv[1]
def read():
    return open(root + "/file").read()
first = read()
print("frozen?", flush=True)
sys.stdin.readline()
assert read() == first and read() == first
print("thawed?", flush=True)
sys.stdin.readline()
for i in range(300):
    assert read() == first
    time.sleep(0.02)
END
mkfifo "$base/to" "$base/from"
timeout 120 env LD_PRELOAD="$library" python3 "$base/goes_on.py" "$root" <"$base/to" >"$base/from" &
program=$!
exec 8>"$base/to" 9<"$base/from"
read -r -t 60 _ <&9 || fail "the program did not begin"
kill -STOP "$daemon"
stop_heartbeat
echo >&8
read -r -t 60 _ <&9 || fail "the program waits for a daemon whose heartbeat has stopped"
kill -CONT "$daemon"
ask_daemon
before=$d_opens
echo >&8
wait "$program" || fail "the program: $?"
ask_daemon
[ "$d_opens" -gt "$before" ] || fail "the daemon answers again, but gets no requests"
kill_daemon TERM
