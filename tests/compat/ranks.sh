# SPDX-License-Identifier: Apache-2.0
# A job with VELOC's interface comes back with another number of processes, fewer or more: one message says what is wrong and
# what to do, and VELOC_Cleanup removes all versions of the other job, on scratch alone and with persistent storage.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/ranks.c" "${link[@]}" -lveloc-client -o "$dir/ranks" ||
    fail "ranks.c does not compile"
cat >"$dir/alone.c" <<'END'
#include <veloc.h>

int main(int argc, char **argv)
{
    int x = 300;
    if (argc == 3) {
        if (VELOC_Init_single(0, argv[1]) || VELOC_Mem_protect(0, &x, 1, sizeof(x)))
            return 2;
        if (argv[2][0] == 'w')
            return VELOC_Checkpoint("state", 3) != VELOC_SUCCESS || VELOC_Finalize(1) != VELOC_SUCCESS;
        x = 0;
        return VELOC_Restart("state", 3) != VELOC_SUCCESS || x != 300 || VELOC_Finalize(1) != VELOC_SUCCESS;
    }
    if (argc != 2 || VELOC_Init_single(0, argv[1]) || VELOC_Mem_protect(0, &x, 1, sizeof(x)))
        return 2;
    return VELOC_Checkpoint("state", 1) != VELOC_FAILURE || VELOC_Checkpoint("mine", 1) != VELOC_SUCCESS || VELOC_Finalize(1) != VELOC_SUCCESS;
}
END
"$mpicc" -std=c99 "${flags[@]}" "$dir/alone.c" "${link[@]}" -lveloc-client -o "$dir/alone" || fail "alone.c does not compile"
run() { # PROCESSES WHAT
    mpi "$1" "$dir/ranks" "$dir/ini" "$2" >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "$where: $1 processes: $2"; }
    grep -q '^ok$' "$dir/out" || fail "$where: $1 processes: $2 did nothing"
}
said() { # OTHERS: one line says so, and what to do
    [ "$(grep -c '^veloc: ' "$dir/err")" -eq 1 ] || { cat "$dir/err"; fail "$where: not one line"; }
    grep -q "^veloc: \[0\] checkpoint \"state\" was written by $1 process\(es\)\?, and this job has .* Run with $1, or .*VELOC_Cleanup.*varve rm --" \
        "$dir/err" || { cat "$dir/err"; fail "$where: not said what to do"; }
}
files() { find "$dir/$where" -name 'r*.v*.ckpt' -printf '%f\n' | sed 's/\..*//' | sort -u | tr '\n' ' '; }
gone() { # PROCESSES: nothing is left of others
    local want=
    for r in $(seq 0 $(($1 - 1))); do want="${want}r$r "; done
    [ "$(files)" = "$want" ] || fail "$where: files of $(files)instead of $want"
}
for where in scratch persistent; do
    config "$dir/ini" "$dir/$where" async "persistent_interval = $([ $where = scratch ] && echo -1 || echo 0)"
    run 4 write
    gone 4
    if [ $where = persistent ]; then
        run 2 refused
        said 4
        "$dir/alone" "$dir/ini" 2>"$dir/err" || { cat "$dir/err"; fail "a process by itself replaces what a group has written"; }
        said 4
        run 4 restart # nothing was lost by that
    fi
    run 2 cleanup
    said 4
    gone 2
    run 2 restart
    [ $where = scratch ] || { run 3 refused; said 2; }
    run 3 cleanup
    said 2
    gone 3
    run 3 restart
    if [ $where = persistent ]; then
        # And what a process by itself has written.
        config "$dir/one.ini" "$dir/one" async "persistent_interval = 0"
        "$dir/alone" "$dir/one.ini" write || fail "a process by itself cannot write"
        mpi 2 "$dir/ranks" "$dir/one.ini" refused >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/err"; fail "a group replaces what a process by itself has written"; }
        said 1
        "$dir/alone" "$dir/one.ini" restart || fail "a group has removed what a process by itself has written"
        # A group of one process goes on with it.
        mpi 1 "$dir/ranks" "$dir/one.ini" restart >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/err"; fail "one process does not find what a process by itself has written"; }
        mpi 2 "$dir/ranks" "$dir/one.ini" cleanup >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/err"; fail "cleanup after a process by itself"; }
        said 1
    fi
    # The command does it as well.
    run 2 "$([ $where = scratch ] && echo other || echo refused)"
    command=$(sed -n 's/.* command: varve \(rm .*\)/\1/p' "$dir/err")
    # shellcheck disable=SC2086
    "$BUILD_DIR/bin/varve" $command >"$dir/out" || { cat "$dir/out"; fail "$where: varve $command"; }
    run 2 write
    [ ! -s "$dir/err" ] || { cat "$dir/err"; fail "$where: after varve $command"; }
done
echo ok
