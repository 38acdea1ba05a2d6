# SPDX-License-Identifier: Apache-2.0
# One program, written for VELOC and compiled once, runs as one process and as four, synchronously and asynchronously, from
# memory and from files, and continues after a kill. No restart ever mixes checkpoints of two runs of the job.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/heat.c" "${link[@]}" -lveloc-client -lm -o "$dir/heat" ||
    fail "heat.c does not compile"
ldd "$lib/libveloc-client.so" | grep -q libmpi && fail "libveloc-client needs MPI"
steps=60 every=5 lives=0
rng=${VARVE_TEST_SEED:-12345}
random() { rng=$(((rng * 1103515245 + 12345) % 2147483648)); echo $((rng / 65536 % $1)); }

# run N CONFIG KIND LIFE [STEP RANK]: output in $dir/out; prints the exit status.
run() {
    local n=$1 rc=0
    shift
    set -- "$1" "$2" $steps $every "${@:3}"
    if [ "$n" -eq 0 ]; then
        timeout 300 "$dir/heat" "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    else
        mpi "$n" "$dir/heat" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
    fi
    [ $rc -ne 3 ] && ! grep -q ' holds step ' "$dir/err" || { cat "$dir/err"; fail "a mixture of two lives"; }
    echo $rc
}
whole() { # the sum of an undisturbed run
    [ "$(run "$@")" -eq 0 ] || { cat "$dir/out" "$dir/err"; fail "a run of $1 failed"; }
    grep '^sum' "$dir/out"
}

cases=0
want=
# PROCESSES MODE KIND LINE: on scratch and persistent storage, or, with an interval below 0, on scratch alone.
while read -r n mode kind line; do
    folder=$dir/$n-$mode-$kind-$cases
    config "$dir/ini" "$folder" "$mode" "$line"
    if [ "${whole_n:-none}" != "$n" ]; then
        want=$(whole "$n" "$dir/ini" "$kind" 1) whole_n=$n
        grep -q '^fresh' "$dir/out" || fail "something was found in an empty folder"
        rm -rf "$folder"
    fi
    # Two kills; what the first left the second life writes again.
    for life in 1 2; do
        rank=$([ "$n" = 4 ] && random 4 || echo 0)
        step=$((7 + $(random 15) + 18 * (life - 1)))
        [ "$(run "$n" "$dir/ini" "$kind" $life $step "$rank")" -ne 0 ] || fail "it was to be killed"
    done
    got=$(whole "$n" "$dir/ini" "$kind" 3)
    [ "$got" = "$want" ] || fail "$n processes, $mode, $kind, $line: $got after kills, $want without"
    grep -q '^restart' "$dir/out" || { cat "$dir/out" "$dir/err"; fail "$n, $mode, $kind, $line: nothing was restarted"; }
    cases=$((cases + 1))
done <<END
0 sync mem persistent_interval = 0
0 async mem persistent_interval = -1
4 sync mem persistent_interval = -1
4 async mem persistent_interval = 0
4 async file persistent_interval = 0
END

for rank in 0 1 2 3; do
    [ -s "$dir/ini.state-$rank" ] || fail "the file of rank $rank is not where the application wants it"
done

# Scratch is lost: persistent storage has everything. Two processes cannot continue from checkpoints of four.
config "$dir/ini" "$folder" async
rm -rf "$folder/scratch"
[ "$(run 4 "$dir/ini" file 4)" -eq 0 ] && grep -q '^restart 60 ' "$dir/out" || { cat "$dir/out" "$dir/err"; fail "without scratch"; }
[ "$(run 2 "$dir/ini" file 5)" -ne 0 ] || grep -q '^fresh' "$dir/out" || { cat "$dir/out"; fail "two processes restarted from four"; }
grep -qE '(written by 4 processes|4 ranks)' "$dir/err" || { cat "$dir/err"; fail "nothing is said about the number of processes"; }
cases=$((cases + 2))

# Many processes on one machine.
if [ -n "${VARVE_TEST_LONG:-}" ]; then
    config "$dir/ini" "$dir/many" async "host_cache_size = 0.004"
    [ "$(run 64 "$dir/ini" mem 1 33 17)" -ne 0 ] || fail "it was to be killed"
    got=$(whole 64 "$dir/ini" mem 2)
    rm -rf "$dir/many"
    [ "$got" = "$(whole 64 "$dir/ini" mem 3)" ] || fail "64 processes: another sum"
    rm -rf "$dir/many"
    cases=$((cases + 1))
fi

# The job restarts again and again: every run begins after the last agreed version and is killed a little later, in another
# rank, at a moment of its own.
config "$dir/ini" "$dir/lives" async "max_versions = 3"
rounds=3
[ -z "${VARVE_TEST_LONG:-}" ] || rounds=40
at=5
for life in $(seq 1 $rounds); do
    (sleep 0.$((3 + $(random 6))); pkill_rank=$(random 4)
        # The processes of this job alone: they are children of ours, in our folder.
        for p in $(pgrep -f "^$dir/heat $dir/ini" || true); do
            [ "$pkill_rank" -gt 0 ] && pkill_rank=$((pkill_rank - 1)) || { kill -9 "$p" 2>/dev/null || true; break; }
        done) &
    killer=$!
    run 4 "$dir/ini" mem $life $((at + $(random 12))) "$(random 4)" >/dev/null
    wait $killer || true
    found=$(sed -n 's/^restart \([0-9]*\) .*/\1/p' "$dir/out")
    at=$((${found:-0} + 4))
    [ $at -lt 50 ] || at=8
    lives=$((lives + 1))
done
got=$(whole 4 "$dir/ini" mem 99)
want4=$got
rm -rf "$dir/lives"
want4=$(whole 4 "$dir/ini" mem 1)
[ "$got" = "$want4" ] || fail "after $lives lives: $got, without: $want4"
echo "ok, $cases cases, $lives lives"
