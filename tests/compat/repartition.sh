# SPDX-License-Identifier: Apache-2.0
# examples/repartition: 4 processes write; 3, 7 and 1 continue from it, on other nodes or on that of the first job, and get
# the same sum as 4 processes alone. A killed job leaves its complete versions.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in ?*) skip "unit/ckpt/parts runs the same code" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/examples/repartition.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/repartition" ||
    fail "repartition.c does not compile"
run() { # PROCESSES LOCAL NAME STEPS [OLD]
    local n=$1 local=$2
    shift 2
    mpi "$n" "$dir/repartition" "$dir/$local" "$dir/shared" "$@" >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "$n processes: $*"; }
}
run 4 node whole 200
want=$(grep '^after step 200: ' "$dir/out") || { cat "$dir/out"; fail "no sum"; }
run 4 node four 100
for n in 3 7 1; do
    where=$([ $n = 3 ] && echo node || echo "node-$n")
    run $n "$where" "by-$n" 200 four
    grep -q "^$n processes from step 100 on$" "$dir/out" || { cat "$dir/out"; fail "$n processes did not begin at step 100"; }
    [ "$(grep '^after step 200: ' "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "$n processes: another sum than $want"; }
done
# Once more from the versions of the 7, by 4; reading has changed nothing.
run 4 node again 200 by-7
[ "$(grep '^after step 200: ' "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "from 7 to 4: another sum than $want"; }
run 4 node after 200 four
[ "$(grep '^after step 200: ' "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "the first job's versions have changed"; }
# Killed somewhere on its way.
mpi 4 "$dir/repartition" "$dir/node" "$dir/shared" killed 1000000 >"$dir/out" 2>&1 </dev/null &
job=$!
for _ in $(seq 600); do
    ls "$dir"/shared/killed/group/v*.group >/dev/null 2>&1 && break
    sleep 0.1
done
for p in $(pgrep -f "^$dir/repartition .* killed" || true); do kill -9 "$p" 2>/dev/null || true; done
wait $job && fail "it was to be killed"
run 3 node-k from-killed 20 killed
grep -qE '^3 processes from step [1-9][0-9]*0 on$' "$dir/out" || { cat "$dir/out"; fail "nothing is left of the killed job"; }
echo ok
