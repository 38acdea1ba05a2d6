# SPDX-License-Identifier: Apache-2.0
# Four daemons on one machine, with readers on each "node" all the time, and all failures: killed,
# frozen, restarted with a full and with an empty disk, two lost one after the other, a disk without room, a changed
# file, all lost. No reader may see a wrong byte, fail or hang. Under a sanitizer some of it, by the commit.
set -euo pipefail
dir=$(mktemp -d)
declare -A pid
readers=()
finish() {
    local rc=$?
    touch "$dir/stop"
    for p in "${readers[@]}" "${pid[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true
    [ -z "${KEEP:-}" ] && rm -rf "$dir"
    exit $rc
}
trap finish EXIT
fail() { echo "cached_nodes: $*" >&2; tail -n 5 "$dir"/log.* "$dir"/reader.* >&2 || true; exit 1; }
library=$BUILD_DIR/lib/libvarve-preload.so
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR
# Programs that lost their daemon use it again when it is back.
nodes="a b c d"
extra=()

start() { # start NODE [OPTION]...
    local n=$1
    shift
    pid[$n]=$(timeout 180 "$VARVE_BIN" cached --daemon --node "$n" --listen 127.0.0.1:0 --meet "$dir/meet" --roots "$dir/data" \
        --cache "$dir/cache.$n" --capacity 64M --socket "$dir/sock.$n" --log "$dir/log.$n" --revalidate 1 --advertise 127.0.0.1 \
        "${extra[@]}" "$@") || fail "node $n does not start"
}
end() { # end NODE SIGNAL
    kill -"$2" "${pid[$1]}"
    for _ in $(seq 2400); do kill -0 "${pid[$1]}" 2>/dev/null || break; sleep 0.05; done
    unset "pid[$1]"
}
figure() { # figure NODE NAME
    timeout 300 "$VARVE_BIN" cached status --json --socket "$dir/sock.$1" | sed -n "s/^ \"$2\":\([0-9]*\).*/\1/p"
}
# Each of these nodes sees so many others.
sees() { # sees COUNT NODE...
    local count=$1
    shift
    for n; do
        for i in $(seq 2400); do
            [ "$(figure "$n" nodes_up 2>/dev/null)" = "$count" ] && break
            [ "$i" -lt 2400 ] || fail "node $n does not see $count"
            sleep 0.05
        done
    done
}
sum() { # sum NAME NODE...
    local all=0 name=$1
    shift
    for n; do all=$((all + $(figure "$n" "$name"))); done
    echo $all
}
read_from() { # read_from NODE...
    for n; do
        (cd "$dir/data" && VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$library timeout 300 md5sum -c --quiet "$dir/sums") ||
            fail "wrong bytes, or none, on $n"
    done
}
reader() { # until the test ends it
    local n=$1 rounds=0
    export VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$library
    cd "$dir/data"
    while [ ! -e "$dir/stop" ]; do
        timeout 300 md5sum -c --quiet "$dir/sums" || { echo "reader on $n: $?" >>"$dir/failed"; }
        rounds=$((rounds + 1))
        sleep 0.1
    done
    echo "$n: read everything $rounds times"
}
go_on() { [ ! -e "$dir/failed" ] || fail "$1: $(cat "$dir/failed")"; }

mkdir "$dir/data"
for i in $(seq 32); do head -c $((i * 3000)) /dev/urandom >"$dir/data/f$i"; done
(cd "$dir/data" && md5sum f*) >"$dir/sums"

case_kill() {
    for n in $nodes; do start "$n"; done
    sees 4 $nodes
    read_from a b
    [ "$(sum shared_reads_total $nodes)" = 32 ] || fail "each file is fetched once: $(sum shared_reads_total $nodes)"
    local lost mine
    lost=$(figure c files)
    mine=$(sum shared_reads_total a b d)
    end c KILL
    sees 3 a b d
    read_from a b d
    local i now
    for i in $(seq 2400); do
        [ "$(sum to_bring a b d)" = 0 ] && break
        sleep 0.05
    done
    sleep 0.3
    # Copies that the new homes have need not be fetched.
    now=$(sum shared_reads_total a b d)
    [ "$now" -le $((mine + lost)) ] || fail "of $lost lost files $((now - mine)) were fetched"
    [ $(($(sum files a b d) - $(sum copies a b d))) -ge 32 ] || fail "of $lost lost files some are kept nowhere"
    # Its programs read the shared file system.
    read_from c
    # Back with its files.
    start c
    sees 4 $nodes
    now=$(sum shared_reads_total $nodes)
    read_from a b c d
    [ "$(sum shared_reads_total $nodes)" = "$now" ] || fail "fetched again what it had"
    go_on "a daemon killed"
}

case_empty_disk() {
    end b KILL
    rm -rf "$dir/cache.b"
    sees 3 a c d
    start b
    sees 4 $nodes
    read_from a b c d
    go_on "an empty disk"
}

case_frozen() {
    kill -STOP "${pid[d]}"
    sees 3 a b c
    read_from a b c
    kill -CONT "${pid[d]}"
    sees 4 $nodes
    read_from a b c d
    go_on "a frozen daemon"
}

case_two_lost() {
    end a KILL
    sees 3 b c d
    end b KILL
    sees 2 c d
    read_from a b c d
    start a
    start b
    sees 4 $nodes
    read_from a b c d
    go_on "two lost"
}

case_changed() {
    local i n
    # A file whose content readers do not check, because both contents are right at some time.
    echo old >"$dir/data/changing"
    for n in $nodes; do [ "$(VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$library cat "$dir/data/changing")" = old ] || fail "a new file"; done
    echo changed >"$dir/data/changing"
    for n in $nodes; do
        for i in $(seq 2400); do
            case $(VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$library cat "$dir/data/changing") in
            changed) break ;;
            old) ;;
            *) fail "neither the old nor the new file" ;;
            esac
            [ "$i" -lt 2400 ] || fail "a change is not seen on $n"
            sleep 0.05
        done
    done
    go_on "a changed file"
}

case_no_room() {
    end a TERM
    sees 3 b c d
    rm -rf "$dir/cache.a"
    start a --capacity 1M
    sees 4 $nodes
    read_from a b c d
    [ "$(figure a used_bytes)" -le $((1 << 20)) ] || fail "more than there is room for"
    # A disk that files of others fill before the capacity is reached, if the machine allows to make one.
    if mkdir "$dir/tiny" && mount -t tmpfs -o size=64m,mode=755 none "$dir/tiny" 2>/dev/null; then
        head -c $(((64 << 20) - 400 * 1024)) /dev/zero >"$dir/tiny/others"
        end b TERM
        start b --cache "$dir/tiny/cache"
        sees 4 $nodes
        read_from a b c d
        end b KILL
        umount "$dir/tiny"
        start b
        sees 4 $nodes
    fi
    go_on "no room"
}

case_drain() {
    local before now
    read_from a b c d
    before=$(sum shared_reads_total a b d)
    timeout 180 "$VARVE_BIN" cached drain --socket "$dir/sock.c" >"$dir/out" || fail "drain"
    grep -q 'gave [0-9]* files to others' "$dir/out" || fail "drain says nothing"
    unset "pid[c]"
    sees 3 a b d
    read_from a b c d
    now=$(sum shared_reads_total a b d)
    echo "drained: $(cat "$dir/out"); $((now - before)) files were fetched after it"
    start c
    sees 4 $nodes
    go_on "a node drained"
}

case_all_lost() {
    local n
    for n in $nodes; do end "$n" KILL; done
    read_from a b c d
    go_on "all lost"
}

case_replicas() {
    extra=(--replicas 2 --revalidate 0)
    local n mine files
    for n in $nodes; do rm -rf "$dir/cache.$n"; start "$n"; done
    sees 4 $nodes
    read_from a
    for _ in $(seq 2400); do
        files=$(($(sum files $nodes) - $(sum copies $nodes)))
        [ "$files" -ge 64 ] && break
        sleep 0.05
    done
    [ "$files" -ge 64 ] || fail "two copies of 32 files are $files"
    mine=$(sum shared_reads_total a b c)
    end d KILL
    sees 3 a b c
    read_from a b c d
    [ "$(sum shared_reads_total a b c)" = "$mine" ] || fail "with two copies a failure cost reads of the shared file system"
    go_on "replicas"
}

case_kill
for n in $nodes; do
    reader "$n" >"$dir/reader.$n" 2>&1 &
    readers+=($!)
done
cases="empty_disk frozen two_lost changed no_room drain"
if [ -n "${VARVE_SANITIZE:-}" ] && [ -z "${VARVE_TEST_LONG:-}" ]; then
    cases=$(tr ' ' '\n' <<<"$cases" | shuf -n 1 --random-source=<(yes "${VARVE_TEST_SEED:-1}") | tr '\n' ' ')
    echo "of the faults: $cases"
fi
for c in $cases; do
    begun=$SECONDS
    "case_$c"
    echo "$c: $((SECONDS - begun)) s"
done
if [ -z "${VARVE_SANITIZE:-}" ] || [ -n "${VARVE_TEST_LONG:-}" ]; then
    case_all_lost
    case_replicas
fi
touch "$dir/stop"
for p in "${readers[@]}"; do wait "$p" || fail "a reader hung"; done
readers=()
go_on "at the end"
cat "$dir"/reader.*
for n in "${!pid[@]}"; do end "$n" TERM; done
echo ok
