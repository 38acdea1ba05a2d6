# SPDX-License-Identifier: Apache-2.0
# Two daemons. Names without a node fence neither of them. After a silent death the survivor is fenced for a limited time, and
# then serves alone. A forgotten name is removed from both, and comes back with its node.
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
fail() { echo "cached_forget: $*" >&2; tail -n 20 "$dir"/log.* >&2 || true; exit 1; }
library=$BUILD_DIR/lib/libvarve-preload.so
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR

start() { # start NODE
    pid[$1]=$(timeout 120 "$VARVE_BIN" cached --daemon --node "$1" --listen 127.0.0.1:0 --meet "$dir/meet" --roots "$dir/data" \
        --cache "$dir/cache.$1" --capacity 64M --socket "$dir/sock.$1" --log "$dir/log.$1" --revalidate 1) || fail "$1 does not start"
}
ask() { # ask NODE COMMAND...
    timeout 300 "$VARVE_BIN" cached --socket "$dir/sock.$1" "${@:2}"
}
figure() { # figure NODE NAME
    ask "$1" status --json | sed -n "s/^ \"$2\":\([0-9]*\).*/\1/p"
}
state() { # state NODE OF
    ask "$1" status --json | sed -n "s/.*\"name\":\"$2\".*\"state\":\"\([a-z]*\)\".*/\1/p"
}
until_is() { # until_is WHAT VALUE COMMAND...
    local what=$1 value=$2 now=
    shift 2
    for _ in $(seq 2400); do
        now=$("$@" 2>/dev/null) || true
        [ "$now" != "$value" ] || return 0
        sleep 0.05
    done
    fail "$what: '$now', not '$value'"
}
read_from() { # read_from NODE
    (cd "$dir/data" && VARVE_CACHED_SOCKET=$dir/sock.$1 LD_PRELOAD=$library timeout 300 md5sum -c --quiet "$dir/sums") ||
        fail "wrong bytes, or none, on $1"
}
refused() { # refused TEXT COMMAND...
    local text=$1 said
    shift
    if said=$("$@" 2>&1); then fail "'$*' is not refused"; fi
    [[ $said == *"$text"* ]] || fail "'$*' says: $said"
}

mkdir "$dir/data"
for i in $(seq 12); do head -c $((i * 3000)) /dev/urandom >"$dir/data/f$i"; done
(cd "$dir/data" && md5sum f*) >"$dir/sums"
start a
start b
for n in a b; do until_is "$n sees both" 2 figure "$n" nodes_up; done

# Three names whose addresses do not answer, and one where no process listens.
python3 -c '
import socket, time
silent = [socket.create_server(("127.0.0.1", 0)) for i in range(3)]
print(*(s.getsockname()[1] for s in silent), flush=True)
time.sleep(3000)' >"$dir/ports" &
pid[silent]=$!
disown
until_is "ports" 3 sh -c "wc -w <'$dir/ports' | tr -d ' '"
read -r -a port <"$dir/ports"
for i in 1 2 3; do ask a join "typo$i" "127.0.0.1:${port[$((i - 1))]}"; done
ask a join typo4 127.0.0.1:2
for n in a b; do
    for i in 1 2 3; do until_is "typo$i on $n" dead state "$n" "typo$i"; done
    until_is "typo4 on $n" gone state "$n" typo4
    [ "$(figure "$n" fenced)" = 0 ] || fail "$n is fenced by names that lead nowhere"
done
read_from a
refused "there is no node 'unknown'" ask a forget unknown
refused "'a' is this node" ask a forget a
refused "'b' is up" ask a forget b
refused "forget: expected the name" ask a forget
refused "forget: expected the name" ask a forget x/y
for i in 1 2 3 4; do ask b forget "typo$i"; done
for n in a b; do
    for i in 1 2 3 4; do until_is "typo$i on $n" "" state "$n" "typo$i"; done
    until_is "nodes on $n" 2 figure "$n" nodes
done

# One of them dies silently, and then the other one: one of both has to wait.
for dies in a b; do
    survivor=$([ $dies = a ] && echo b || echo a)
    kill -STOP "${pid[$dies]}"
    until_is "$dies on $survivor" dead state "$survivor" "$dies"
    read_from "$survivor"
    until_is "$survivor is fenced" 0 figure "$survivor" fenced
    before=$(figure "$survivor" opens_total)
    read_from "$survivor"
    [ "$(figure "$survivor" opens_total)" -ge $((before + 12)) ] || fail "$survivor does not serve"
    kill -CONT "${pid[$dies]}"
    until_is "$survivor sees both" 2 figure "$survivor" nodes_up
done
[ "$(cat "$dir"/log.* | grep -c "goes on without the others")" -ge 1 ] || fail "one of them was to wait, and to go on then"

# It is forgotten, and comes back when it continues; and as a new process.
kill -STOP "${pid[b]}"
until_is "b on a" dead state a b
ask a forget b
until_is "b on a" "" state a b
until_is "a is fenced" 0 figure a fenced
[ ! -e "$dir/meet/b.node" ] || fail "the folder still names b"
kill -CONT "${pid[b]}"
until_is "b on a" alive state a b
kill -KILL "${pid[b]}"
until_is "b on a" gone state a b
ask a forget b
until_is "nodes on a" 1 figure a nodes
start b
for n in a b; do
    until_is "$n sees both" 2 figure "$n" nodes_up
    read_from "$n"
done
echo ok
