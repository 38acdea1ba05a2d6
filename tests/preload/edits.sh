#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that change files and read them again: no edit is lost, and the resulting files are the same as without the
# library. The daemon checks files again after an hour, so every change that is seen was reported by the library.
set -euo pipefail
. "$SOURCE_DIR/tests/preload/common.sh.inc"

mkdir -p "$root" "$base/outside"
export OUTSIDE=$base/outside
start_daemon revalidate=3600000
cd "$base"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a
export GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2020-01-01 00:00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00:00 +0000'

# edit NAME SCRIPT: runs a script in an empty folder, twice in two folders of the same name, without and with the
# library, and compares the output and the resulting files.
edit() {
    local name=$1 run rc
    for run in plain with; do
        rm -rf "$root/w"
        mkdir "$root/w"
        rc=0
        (
            cd "$root/w"
            # shellcheck disable=SC2030 # for the script alone
            if [ $run = with ]; then export LD_PRELOAD=$library; fi
            exec bash -c "$2"
        ) >"$base/$name.$run" 2>&1 || rc=$?
        echo "status $rc" >>"$base/$name.$run"
        rm -rf "$base/left.$run"
        cp -a "$root/w" "$base/left.$run"
    done
    cmp "$base/$name.plain" "$base/$name.with" || {
        diff -a "$base/$name.plain" "$base/$name.with" | head -20
        fail "$name: the output differs"
    }
    diff -r --no-dereference -x .git -x '*.db' "$base/left.plain" "$base/left.with" || fail "$name: the files differ"
}

edit sed 'echo "a=1 b=1" >cfg; cat cfg; sed -i s/a=1/a=2/ cfg; cat cfg; sed -i s/b=1/b=2/ cfg; cat cfg; stat -c %s cfg'
edit many 'for i in 1 2 3 4 5 6 7 8; do echo $i >f$i; cat f$i; done; cat f*; for i in 1 2 3 4 5 6 7 8; do sed -i s/$i/x$i/ f$i; done; cat f*
    for i in 1 2 3; do mv f$i f$((i + 1)); cat f$((i + 1)); done; cat f1; rm f5; cat f5; ls'
edit mv 'echo one >a; echo two >b; cat a b; mv a b; cat b; cat a; echo out >"$OUTSIDE/x.$$"; mv "$OUTSIDE/x.$$" b; cat b; mv b "$OUTSIDE/x.$$"; cat b; rm "$OUTSIDE/x.$$"'
edit links 'echo one >a; ln a hard; ln -s a soft; cat hard soft a; echo two >a; cat hard soft a; echo three >soft; cat a hard soft; echo 4 >b; mv b a; cat soft hard a
    truncate -s 2 hard; cat hard; ln -sf b soft; cat soft; echo new >b; cat soft; ln -sfn a soft; cat soft; unlink soft; cat soft'
edit folders 'mkdir d e; echo d >d/f; echo e >e/f; cat d/f e/f; mv d x; cat x/f; mv e d; cat d/f; ln -s d s; cat s/f; mv d y; mv x d; cat s/f d/f y/f
    ln -sfn y s; cat s/f; rm -r d; cat d/f; mkdir d; echo again >d/f; cat d/f; cd d; echo here >f; cat f ../d/f; mv f g; cat g ../d/g ../d/f'
edit truncate 'echo 0123456789 >f; cat f; truncate -s 4 f; cat f; stat -c %s f; : >f; cat f; stat -c %s f; dd if=/dev/zero of=f bs=3 seek=1 count=1 status=none; od -c f; cat f >/dev/null; : >f; stat -c %s f'
edit append 'for i in $(seq 20); do echo $i >>log; tail -n 1 log; wc -l <log; done; exec 3>>log; for i in a b c; do echo $i >&3; done; exec 3>&-; cat log'
edit redirected 'seq 5 >f; cat f; { cat f; seq 6 9; } >g; cat g; (seq 3) >g; cat g; seq 2 | tee g; cat g; sh -c "seq 7" >g; cat g; bash -c "exec seq 8" >g; cat g'
edit modes 'echo a >f; cat f; stat -c "%a %s" f; chmod 640 f; stat -c "%a %s" f; touch -d "2001-02-03 04:05:06" f; stat -c %Y f; cp -p f g; cat g; stat -c %Y g; touch -r g f; stat -c %Y f'
edit git 'git init -q -b main .; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >>file; echo $i >new$i; git add . && git commit -qm "commit $i"; git status --short; git log --oneline | wc -l; done
    git log --format=%s; git fsck --full --strict; git log -1 --format=%H; git checkout -q -b side HEAD~3; cat file; echo s >>file; git commit -qam s; git checkout -q main; cat file
    git merge -q -m m side 2>&1; git checkout -q --theirs file; git add file; git commit -qm merged; cat file; git gc -q; git log --format=%s; git fsck --full --strict; git stash list'
if command -v sqlite3 >/dev/null; then
    edit sqlite 'sqlite3 t.db "create table t(a integer primary key, b text)"; for i in $(seq 40); do sqlite3 t.db "insert into t(b) values($i)"; done
        sqlite3 t.db "select count(*), sum(b) from t; pragma integrity_check"; sqlite3 t.db "pragma journal_mode=wal" >/dev/null; for i in $(seq 40); do sqlite3 t.db "insert into t(b) values($i)"; sqlite3 -readonly t.db "select count(*) from t"; done
        sqlite3 t.db "vacuum; select count(*), sum(b) from t"; rm -f t.db*'
else
    echo "no sqlite3"
fi
edit make 'printf "all: a.out\na.out: a.c b.h\n\t@echo building; cc -o a.out a.c\n" >Makefile; for i in 1 2 3; do echo "#define N $i" >b.h; touch -d "2020-01-0$i" b.h
        printf "#include <stdio.h>\n#include \"b.h\"\nint main(void) { printf(\"%%d $i\\\\n\", N); return 0; }\n" >n.c; mv n.c a.c; make; ./a.out; make; done; rm a.out'
if command -v rsync >/dev/null; then
    edit rsync 'mkdir a b; for i in $(seq 10); do echo $i >a/$i; done; rsync -a a/ b/; cat b/*; for i in 3 5 7; do echo "new $i" >a/$i; done; rm a/9; rsync -a --checksum --delete a/ b/; cat b/*; ls b
        rsync -ac --itemize-changes --dry-run a/ b/; for i in $(seq 5); do echo "in $i" >a/1; rsync -ac --inplace a/ b/; cat b/1; done'
else
    echo "no rsync"
fi
cat >"$base/edits.py" <<'END'
import os, shutil, mmap, subprocess, sys
for i in range(200):
    n = int(open("count").read()) if os.path.exists("count") else 0
    with open("count.new", "w") as f:
        f.write(str(n + 1))
    os.replace("count.new", "count")
print(open("count").read(), os.stat("count").st_size)
d = os.open(".", os.O_RDONLY)
for i in range(50):
    n = int(open("count").read())
    with open("count.new", "w") as f:
        f.write(str(n + 1))
    os.rename("count.new", "count", src_dir_fd=d, dst_dir_fd=d)
    print(subprocess.run(["cat", "count"], capture_output=True).stdout)
os.truncate("count", 1); print(open("count").read())
f = open("map", "wb"); f.write(b"a" * 100); f.close()
print(open("map").read())
f = open("map", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:3] = b"xyz"; m.flush(); print(open("map").read()); m.close()
f.truncate(5); print(os.stat("map").st_size, open("map").read()); f.close()
with open("map", "rb") as a, open("other", "wb") as b: os.sendfile(b.fileno(), a.fileno(), 0, 5)
print(subprocess.run(["cat", "other"], capture_output=True).stdout)
with open("map", "rb") as a, open("third", "wb") as b: print(os.copy_file_range(a.fileno(), b.fileno(), 5))
print(subprocess.run(["cat", "third"], capture_output=True).stdout)
os.link("map", "hard"); open("hard", "r+").write("12"); print(open("map").read())
os.unlink("map"); print(os.path.exists("map"), open("hard").read())
os.symlink("hard", "map"); print(open("map").read())
os.remove("map"); os.mkdir("map"); print(os.path.isdir("map")); os.rmdir("map"); print(os.path.exists("map"))
shutil.copyfile("hard", "map"); print(open("map").read())
pid = os.fork()
if pid == 0:
    open("map", "w").write("child"); os._exit(0)
os.waitpid(pid, 0); print(open("map").read())
END
edit python "python3 $base/edits.py"

# Several programs at once: each adds one to a number under a lock, and no addition is lost.
cat >"$base/add.py" <<'END'
import fcntl, os
for i in range(100):
    with open("lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        n = int(open("n").read())
        with open(f"n.{os.getpid()}", "w") as f:
            f.write(str(n + 1))
        os.rename(f"n.{os.getpid()}", "n")
END
edit at-once "echo 0 >n; cat n; for i in 1 2 3 4; do python3 $base/add.py & done; wait; cat n"

# After a change has ended, programs get the file from the cache again.
echo moved >"$root/w/a"
under mv "$root/w/a" "$root/w/b"
same_cached cat "$root/w/b"
under chmod 600 "$root/w/b"
same_cached cat "$root/w/b"
ask_daemon
[ "$d_broken" = 0 ] || fail "the daemon got malformed requests"
[ $((d_opens + d_direct)) -gt 200 ] || fail "hardly anything came from the cache"
kill_daemon TERM
