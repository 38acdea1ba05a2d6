# SPDX-License-Identifier: Apache-2.0
# The daemons of the dataset cache as the processes of an MPI job, one a "node", that meet in a folder: each sees all, programs on
# each read the same bytes, and the job ends properly when its daemons are stopped.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
mpi_setup
[ -z "${VARVE_SANITIZE:-}" ] || skip "once is enough"
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR
nodes="0 1 2"
mkdir "$dir/data"
for i in $(seq 24); do head -c $((i * 5000)) /dev/urandom >"$dir/data/f$i"; done
(cd "$dir/data" && md5sum f*) >"$dir/sums"
cat >"$dir/node" <<'END'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ >"$1/pid.$rank"
exec "$VARVE_BIN" cached --node "n$rank" --listen 127.0.0.1:0 --advertise 127.0.0.1 --meet "$1/meet" --roots "$1/data" \
    --cache "$1/cache.$rank" --capacity 64M --socket "$1/sock.$rank" --log "$1/log.$rank"
END
chmod 755 "$dir/node"
mpi 3 "$dir/node" "$dir" >"$dir/out" 2>&1 &
job=$!
end_all() { for n in $nodes; do kill -"$1" "$(cat "$dir/pid.$n" 2>/dev/null)" 2>/dev/null || true; done; }
trap 'end_all KILL; wait; rm -rf "$dir"' EXIT
give_up() { tail -n 20 "$dir/out" "$dir"/log.* >&2 || true; fail "$*"; }
figure() { timeout 60 "$VARVE_BIN" cached status --json --socket "$dir/sock.$1" 2>/dev/null | sed -n "s/^ \"$2\":\([0-9]*\).*/\1/p"; }
for n in $nodes; do
    for ((i = 0; i < 3000; i++)); do
        [ "$(figure $n nodes_up || true)" != 3 ] || break
        kill -0 $job 2>/dev/null || give_up "the job has ended"
        sleep 0.05
    done
    [ "$(figure $n nodes_up)" = 3 ] || give_up "node $n does not see 3"
done
shared=0
for n in $nodes; do
    (cd "$dir/data" && VARVE_CACHED_SOCKET=$dir/sock.$n LD_PRELOAD=$lib/libvarve-preload.so timeout 120 md5sum -c --quiet "$dir/sums") ||
        give_up "wrong bytes, or none, on $n"
done
for n in $nodes; do shared=$((shared + $(figure $n shared_reads_total))); done
[ $shared = 24 ] || give_up "each file is fetched once: $shared"
end_all TERM
rc=0
wait $job || rc=$?
[ $rc = 0 ] || give_up "the job ended with $rc"
for n in $nodes; do grep -q 'stopping' "$dir/log.$n" || give_up "node $n did not stop"; done
echo ok
