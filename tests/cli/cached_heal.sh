# SPDX-License-Identifier: Apache-2.0
# Three daemons with `revalidate` 0: files are never checked again, and only reports announce changes. One daemon is out
# of reach while files are changed on another node; when it is back, it serves the changed ones. And files stay at
# their homes although only one node reads, so the others exchange no messages.
set -euo pipefail
dir=$(mktemp -d)
declare -A pid
finish() {
    local rc=$?
    for p in "${pid[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
    rm -rf "$dir"
    exit $rc
}
trap finish EXIT
fail() { echo "cached_heal: $*" >&2; tail -n 20 "$dir"/log.* >&2 || true; exit 1; }
library=$BUILD_DIR/lib/libvarve-preload.so
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR
files=120

figure() { # figure NODE NAME
    timeout 300 "$VARVE_BIN" cached --socket "$dir/sock.$1" status --json | sed -n "s/^ \"$2\":\([0-9]*\).*/\1/p"
}
sees() { # sees NODE COUNT
    for _ in $(seq 2400); do
        [ "$(figure "$1" nodes_up)" != "$2" ] || return 0
        sleep 0.05
    done
    fail "$1 does not see $2 nodes"
}
on() { # on NODE COMMAND...
    VARVE_CACHED_SOCKET=$dir/sock.$1 LD_PRELOAD=$library timeout 300 "${@:2}"
}
reads() { # reads NODE WORD
    on "$1" cat "$dir"/data/f* >"$dir/out" || fail "a reader on $1 fails"
    [ "$(grep -c "^$2 " "$dir/out")" = $files ] || fail "$1 gives out $(grep -vc "^$2 " "$dir/out") files that are not '$2'"
}

mkdir "$dir/data"
for i in $(seq $files); do { echo "old $i"; head -c 8000 /dev/zero | tr '\0' "x"; echo; } >"$dir/data/f$i"; done
sleep 1.1 # a file that has changed a moment ago is not kept
for n in a b c; do
    pid[$n]=$(timeout 120 "$VARVE_BIN" cached --daemon --node "$n" --listen 127.0.0.1:0 --meet "$dir/meet" --roots "$dir/data" \
        --cache "$dir/cache.$n" --capacity 64M --socket "$dir/sock.$n" --log "$dir/log.$n" --revalidate 0) || fail "$n does not start"
done
for n in a b c; do sees $n 3; done
reads c old
placed=$(($(figure a placed_total) + $(figure b placed_total) + $(figure c placed_total)))
[ $placed -lt $((files / 2)) ] || fail "$placed of $files files are not at their homes"
for n in a b c; do reads $n old; done

kill -STOP "${pid[c]}"
sees a 2
sees b 2
for i in $(seq $files); do echo "new $i"; done >"$dir/new"
# shellcheck disable=SC2016 # is expanded by the shell that has the library
on a bash -c 'while read -r word i; do echo "$word $i" >"$1/f$i"; done <"$2"' bash "$dir/data" "$dir/new"
reads a new
kill -CONT "${pid[c]}"
for n in a b c; do sees $n 3; done
for n in a b c; do reads $n new; done
echo ok
