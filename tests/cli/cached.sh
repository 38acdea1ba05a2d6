# SPDX-License-Identifier: Apache-2.0
# varve cached on one node: settings, refusals, a program that reads through it, the commands that talk to
# it, its metrics and log, and a restart that fetches nothing.
set -euo pipefail
. "$SOURCE_DIR/tests/cli/cached.sh.inc"
export VARVE_PRELOAD_PATIENCE=60000 # files that were opened are counted: a busy machine is no frozen daemon

mkdir -p "$dir/data/sub"
for i in 1 2 3 4 5; do head -c $((i * 30000)) /dev/urandom >"$dir/data/f$i"; done
echo inner >"$dir/data/sub/inner"

# Wrong command lines.
expect 0 --help
grep -q -- '--replicas NUMBER' "$dir/out" || fail "help without options"
expect 2
says roots
expect 2 --roots "$dir/data"
says cache
expect 2 --roots "$dir/data" --cache "$dir/cache" --capacity 12
says capacity
expect 2 --high 200
says "not from 1 to 100"
expect 2 --scheme random
says "not one of"
expect 2 --roots
says "needs a value"
expect 2 drain 99999999999999999999
expect 2 --capacty 1G
says "unknown option '--capacty'; 'varve cached --help' lists the commands and options"
expect 2 --configure "$dir/conf"
says "unknown option '--configure'"
expect 2 nosuch
says "unknown command 'nosuch'"
expect 2 stop now
says "stop: expected no arguments"
for part in status drain join forget stop preload; do
    for help in --help -h; do
        expect 0 $part $help
        grep -q "^usage: varve cached $part " "$dir/out" && grep -q -- '--socket' "$dir/out" || fail "$part $help"
    done
done
expect 2 drain 0
expect 2 join only-a-name
expect 2 join '' 127.0.0.1:7000
expect 2 join name 127.0.0.1
expect 2 join name 127.0.0.1:0
expect 2 join name 127.0.0.1:70000
expect 2 join name/of 127.0.0.1:7000
expect 2 join "$(printf '%0100d' 0)" 127.0.0.1:7000
says "join: expected NAME HOST:PORT"
expect 2 preload --seed 1 --epochs 0 "$dir/data"
expect 2 --verity perhaps
says "not one of"
expect 2 nonsense
says nonsense
expect 2 --roots "$dir/data" --cache "$dir/cache" --listen 127.0.0.1:0
says token
printf 'only the nodes of this job know it' >"$dir/token"
chmod 640 "$dir/token"
expect 1 --roots "$dir/data" --cache "$dir/cache" --capacity 10M --listen 127.0.0.1:0 --token "$dir/token"
says "closed to others"
expect 1 --roots "$dir/none" --cache "$dir/cache" --capacity 10M
says "roots: $dir/none: No such"
expect 1 --roots "$dir/data/f1" --cache "$dir/cache" --capacity 10M
says "roots: $dir/data/f1 is not a folder"
expect 1 --roots "$dir/data" --cache "$dir/cache" --capacity 10M --log "$dir/none/log"
says "log: $dir/none/log: No such"
expect 1 --roots data --cache "$dir/cache" --capacity 10M
says "roots: data has to be an absolute path"
printf '[cached]\nroots = %s\ncapasity = 3\n' "$dir/data" >"$dir/conf"
expect 2 --config "$dir/conf"
says "conf:3: unknown key 'capasity'; did you mean 'capacity'?"
expect 1 status
says "no daemon runs here; start one with 'varve cached "
expect 2 preload
expect 1 preload "$dir/data/f1"

# File, variable, flag: the last one counts.
printf '[cached]\nroots = %s\ncache = %s\ncapacity = 1M\nrevalidate = 0\nmetrics = %s\n' "$dir/data" "$dir/cache" "$dir/metrics.prom" >"$dir/conf"
VARVE_CACHED_NODE=one start --config "$dir/conf" --capacity 64M
[ "$(figure node)" = one ] && [ "$(figure capacity_bytes)" = $((64 << 20)) ] || fail "settings"
[ "$(stat -c %a "$dir/sock")" = 600 ] && [ "$(stat -c %a "$dir/sock.ctl")" = 600 ] || fail "sockets that others can open"
expect 1 --config "$dir/conf" --socket "$dir/other"
says "$dir/cache"
expect 1 --roots "$dir/data" --cache "$dir/cache2" --capacity 10M
says "$dir/sock"

# A program of another user, through it.
(cd "$dir/data" && find . -type f | sort | xargs md5sum) >"$dir/sums"
check() { (cd "$dir/data" && LD_PRELOAD=$library timeout 180 md5sum -c --quiet "$dir/sums") || fail "wrong bytes"; }
check
check
[ "$(figure shared_reads_total)" = 6 ] && [ "$(figure files)" = 6 ] || fail "each file is fetched once"
[ "$(figure opens_total)" = 12 ] || fail "$(figure opens_total) opens"

# Written through the library: seen at once. Not below a root: not served.
LD_PRELOAD=$library bash -c "echo more >>$dir/data/sub/inner"
[ "$(LD_PRELOAD=$library cat "$dir/data/sub/inner")" = "$(printf 'inner\nmore')" ] || fail "a file that was written to"
[ "$(figure invalidated_total)" -ge 1 ] || fail "a write is not reported"
(cd "$dir/data" && find . -type f | sort | xargs md5sum) >"$dir/sums"
ln -s /etc/hostname "$dir/data/out"
reads=$(figure shared_reads_total)
LD_PRELOAD=$library cmp "$dir/data/out" /etc/hostname || fail "a link to outside"
[ "$(figure shared_reads_total)" = "$reads" ] || fail "served a file outside of its roots"

# Each reason why a file is left to the shared file system has a figure; a missing file does not count as left.
denied=$(figure passed_denied_total) missing=$(figure passed_missing_total) left=$(figure left_total)
[ "$denied" -ge 1 ] || fail "a link to outside is not counted"
! LD_PRELOAD=$library cat "$dir/data/nothing" 2>/dev/null || fail "a file that is not there"
[ "$(figure passed_missing_total)" -gt "$missing" ] || fail "a file that is not there is not counted"
LD_PRELOAD=$library ls "$dir/data/sub" >/dev/null
[ "$(figure left_total)" = "$left" ] && [ "$(figure passed_error_total)" = 0 ] || fail "counted as left, or as an error"
truncate -s 80M "$dir/data/large" # max_file is the capacity, 64M
LD_PRELOAD=$library cmp -n 4096 "$dir/data/large" /dev/zero || fail "a file above max_file"
[ "$(figure passed_large_total)" -ge 1 ] && [ "$(figure left_total)" -gt "$left" ] || fail "a file above max_file is not counted"
rm "$dir/data/large"
[ "$(figure asked_total)" = $(($(figure opens_total) + $(figure left_total))) ] || fail "asked for is not handed out and left"
[ "$(figure hits_total)" = $(($(figure local_total) + $(figure memory_total))) ] || fail "hits"
"$VARVE_BIN" cached status --json | python3 -c '
import json, sys
s = json.load(sys.stdin)
for window in s["last_minute"], s["last_hour"]:
    assert window["asked"] <= s["asked_total"] and window["hits"] + window["remote"] + window["left"] == window["asked"], window
    assert window["shared_read_bytes"] <= s["shared_read_bytes_total"], window
assert s["last_hour"]["asked"] >= s["last_minute"]["asked"]
' || fail "figures over time"
"$VARVE_BIN" cached status | grep -qE '^minute +[0-9]+ files asked for: [0-9.]+% from this node' || fail "status without the last minute"

# The figures, in all forms.
"$VARVE_BIN" cached status --json | python3 -m json.tool >/dev/null || fail "not JSON"
expect 0 status
grep -q 'one: 1 of 1 nodes up' "$dir/out" || fail "status"
expect 0 status --prometheus
grep -q '^varve_cached_files{node="one"} 6$' "$dir/out" || fail "prometheus"
for _ in $(seq 2400); do grep -qs '^varve_cached_nodes_up{node="one"} 1$' "$dir/metrics.prom" && break; sleep 0.05; done
grep -q '^varve_cached_nodes_up{node="one"} 1$' "$dir/metrics.prom" || fail "metrics"
expect 2 status --xml
expect 1 join two 127.0.0.1:1
says listen

# A log that is moved away.
mv "$dir/log" "$dir/log.1"
kill -HUP "$pid"
for _ in $(seq 2400); do [ -e "$dir/log" ] && break; sleep 0.05; done
[ -e "$dir/log" ] || fail "SIGHUP does not open the log again"

# A new life with the files on disk; files brought before they are read.
end TERM
[ ! -e "$dir/sock" ] || fail "a socket is left"
check # without a daemon
rm -f "$dir/data/out"
for i in 6 7 8 9; do head -c $((i * 30000)) /dev/urandom >"$dir/data/f$i"; done
start --config "$dir/conf" --capacity 64M
check
[ "$(figure shared_reads_total)" = 0 ] || fail "fetched again what it had"
printf '%s\n' "$dir/data/f6" >"$dir/list"
expect 0 preload --list "$dir/list" "$dir/data/f7"
grep -q '2 files will be brought' "$dir/out" || fail "preload"
expect 1 preload /etc/hostname
says "none of these files is below a root"
# It prints the files that it does not bring, and why.
mkdir "$dir/data/odd"
truncate -s 80M "$dir/data/odd/large"
ln -s ../f6 "$dir/data/odd/link"
mkfifo "$dir/data/odd/fifo"
printf 'odd\n' >"$dir/data/odd/file"
printf '%s\n' "$dir/data/f6" "$dir/data/nothing" /etc/hostname >"$dir/list"
expect 0 preload --list "$dir/list" "$dir/data/odd"
for line in "$dir/data/odd/large: 80.0 MiB, and max_file is 64.0 MiB" "$dir/data/odd/link: a symbolic link" \
    "$dir/data/odd/fifo: not a regular file" "$dir/data/nothing: No such file or directory" "/etc/hostname: not below a root" \
    "2 files will be brought" "2 will not: 1 not below a root, 1 above max_file"; do
    grep -qxF "$line" "$dir/out" || { cat "$dir/out"; fail "preload does not say '$line'"; }
done
for i in $(seq 30); do ln -s f6 "$dir/data/odd/link$i"; done
expect 0 preload "$dir/data/odd"
grep -qx 'and 12 more that are not brought' "$dir/out" || { cat "$dir/out"; fail "preload names all"; }
expect 1 preload "$dir/data/odd/fifo"
says "none of these files can be cached"
for _ in $(seq 2400); do [ "$(figure files)" = 9 ] && break; sleep 0.05; done
rm -r "$dir/data/odd"
files=$(figure files) reads=$(figure shared_reads_total)
[ "$files" = 9 ] && [ "$reads" = 3 ] || fail "preload of some: $files files, $reads reads"
expect 0 preload --seed 3 --epochs 2 "$dir/data"
for _ in $(seq 2400); do [ "$(figure files)" = 11 ] && break; sleep 0.05; done
[ "$(figure files)" = 11 ] && [ "$(figure shared_reads_total)" = 5 ] || fail "preload brings each file once"

# A file with a flipped bit from before the start is never handed out; a bit that flips while the daemon runs is found.
end KILL
largest() { find "$dir/cache" -name '*.data' -size +200k -printf '%s %p\n' | sort -n | tail -1 | cut -d' ' -f2; }
flip() { printf '\377' | dd of="$(largest)" bs=1 seek=1000 conv=notrunc status=none; printf '\000' | dd of="$(largest)" bs=1 seek=1001 conv=notrunc status=none; }
(cd "$dir/data" && find . -type f | sort | xargs md5sum) >"$dir/sums"
flip
start --config "$dir/conf" --capacity 64M --scrub 1
check
[ "$(figure damaged_total)" = 1 ] && [ "$(figure shared_reads_total)" = 1 ] || fail "a damaged file"
flip
for _ in $(seq 2400); do [ "$(figure damaged_total)" = 2 ] && break; sleep 0.05; done
[ "$(figure damaged_total)" = 2 ] || fail "the scrub does not find a damaged file"
check
# The daemon has ended when the command ends: the next one finds the folder and the socket free.
for _ in 1 2 3; do
    expect 0 stop
    start --config "$dir/conf" --capacity 64M
done
expect 0 stop
pid=
echo ok
