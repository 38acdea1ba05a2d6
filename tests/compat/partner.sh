# SPDX-License-Identifier: Apache-2.0
# Partner copies, and parity, over MPI: four processes as four nodes, without a shared folder. Disks are taken away, files are damaged, a
# process is killed; at thread levels with and without copying in the background.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/partner.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/partner" ||
    fail "partner.c does not compile"
# part NAME [LIFE]: one run of the job.
part() {
    local rc=0
    mpi 4 "$dir/partner" "$disks" "$level" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
    [ $rc -eq 0 ] || [ "$1" = kill ] || { cat "$dir/out" "$dir/err"; fail "$level: $*"; }
    grep -q '^ok$' "$dir/out" || { cat "$dir/out" "$dir/err"; fail "$level: $* did nothing"; }
}
# flip FILE OFFSET: one bit of it.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "$(printf '\\%03o' $((byte ^ 8)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# Short runs take one level of each kind, sanitized builds the one with threads.
levels="single multiple"
[ -z "${VARVE_SANITIZE:-}" ] || levels=multiple
[ -z "${VARVE_TEST_LONG:-}" ] || levels="single funneled serialized multiple"
for level in $levels; do
    disks=$dir/$level
    mkdir "$disks"
    [ -e "$dir/errors" ] || part errors
    touch "$dir/errors"
    part write 1
    if [ -x "$BUILD_DIR/bin/varve" ]; then
        "$BUILD_DIR/bin/varve" ls --local "$disks/disk1" >"$dir/ls"
        [ "$(grep -c ' local  *ok$' "$dir/ls")" -eq 4 ] && [ "$(grep -c ' partner  *ok$' "$dir/ls")" -eq 4 ] ||
            { cat "$dir/ls"; fail "ls does not show copies"; }
        # Generations that processes agree on are long.
        awk 'NR == 1 { at = index($0, "STATE") } NR > 1 && substr($0, at) != "ok" { bad = 1 } END { exit bad }' "$dir/ls" ||
            { cat "$dir/ls"; fail "columns of ls"; }
        "$BUILD_DIR/bin/varve" verify --local "$disks/disk1" h | grep '^8 checkpoints, 0 damaged' >/dev/null || fail "verify does not see copies"
    fi
    # One node, while a local file of another is damaged, which is repaired; then two that are not each other's partners.
    rm -r "$disks/disk1"
    set -- "$disks"/disk3/h/r3.v2.g*.ckpt
    flip "$1" 300000
    part read 1
    rm -r "$disks/disk2" "$disks/disk0"
    part read 1
    # Killed in the middle of version 3, with a node lost: 1 and 2 are those of the second run.
    part kill 2
    rm -r "$disks/disk1"
    part mixed 2
    part write 3
    part read 3
    # With a damaged copy and nothing else, the version is not there.
    set -- "$disks"/disk0/.partner/h/r3.v4.g*.ckpt
    flip "$1" 300000
    [ ! -x "$BUILD_DIR/bin/varve" ] || ! "$BUILD_DIR/bin/varve" verify --local "$disks/disk0" >"$dir/verify" || fail "verify passes a damaged copy"
    rm -r "$disks/disk3"
    part older 3
    part slow 4
    rm -r "$disks/disk1" "$disks/disk2"
    part none
    # The same with parity: any node, and a damaged file; then a kill with another one lost.
    rm -r "$disks"
    mkdir "$disks"
    export PARITY=xor
    part write 1
    for node in 0 1 2 3; do
        rm -r "$disks/disk$node"
        part read 1
    done
    set -- "$disks"/disk3/h/r3.v2.g*.ckpt
    flip "$1" 300000
    part read 1
    part kill 2
    rm -r "$disks/disk2"
    part mixed 2
    [ ! -x "$BUILD_DIR/bin/varve" ] || "$BUILD_DIR/bin/varve" ls --local "$disks/disk1" | grep ' parity  *ok$' >/dev/null || fail "ls does not show parity"
    part slow 4
    unset PARITY
done
echo ok
