#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that becomes another user, or leaves a group, gets the kernel's results for its new identity.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

[ "$(id -u)" = 0 ] || {
    echo "only root can become another user"
    exit 77
}
make_files
chmod 755 "$base"
mkdir "$root/closed"
for name in file closed/inner; do
    echo secret >"$root/$name"
    chmod 600 "$root/$name"
done
echo ours >"$root/group"
chown 0:12345 "$root/group"
chmod 640 "$root/group"
chmod 700 "$root/closed"
start_daemon
cat >"$base/becomes.py" <<'END'
import ctypes, os, sys
root = sys.argv[1]
libc = ctypes.CDLL(None)
NOBODY = 65534
def ask(what):
    for name in ("file", "closed/inner", "group", "text"):
        path = root + "/" + name
        line = [name]
        for call in (lambda: os.stat(path).st_size, lambda: os.access(path, os.R_OK), lambda: os.access(path, os.F_OK),
                     lambda: os.access(path, os.R_OK, effective_ids=True), lambda: open(path).read()):
            try:
                line.append(call())
            except OSError as e:
                line.append(e.errno)
        print(what, line, flush=True)
def child(what, *calls):
    for i in range(2):
        for name in ("file", "closed/inner", "group", "text"):
            open(root + "/" + name).read()
            os.stat(root + "/" + name)
    pid = os.fork()
    if pid == 0:
        try:
            for call in calls:
                call()
            ask(what)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)
for i in range(5): # until it has the index
    ask("root")
child("setuid", lambda: os.setgroups([]), lambda: os.setgid(NOBODY), lambda: os.setuid(NOBODY))
child("seteuid", lambda: os.seteuid(NOBODY))
child("setreuid", lambda: os.setreuid(NOBODY, -1))
child("setreuid both", lambda: os.setreuid(NOBODY, NOBODY))
child("setresuid", lambda: os.setresuid(NOBODY, NOBODY, 0))
child("setresuid real", lambda: os.setresuid(NOBODY, 0, 0))
child("setfsuid", lambda: libc.setfsuid(NOBODY))
child("seteuid and back", lambda: os.seteuid(NOBODY), lambda: os.seteuid(0))
child("groups", lambda: os.setgroups([12345]), lambda: os.setresuid(NOBODY, NOBODY, NOBODY))
child("setegid", lambda: os.setgroups([]), lambda: os.setegid(12345), lambda: os.seteuid(NOBODY))
child("setfsgid", lambda: os.setgroups([]), lambda: libc.setfsgid(12345), lambda: libc.setfsuid(NOBODY))
END
for index in 4096 0; do
    kill_daemon TERM
    start_daemon
    same_cached python3 "$base/becomes.py" "$root"
done
kill_daemon TERM
