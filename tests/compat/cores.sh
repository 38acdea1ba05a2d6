# SPDX-License-Identifier: Apache-2.0
# Processes that mpirun binds to one core each: if the job has the whole machine, the library's threads run on the cores that
# no process is bound to; if there are none, or the launcher itself is bound, they run where the application does.
#
# Processes of other tests say in /dev/shm which cores they are bound to. Here /dev/shm is another one, if that is allowed.
if [ -z "${VARVE_TEST_OWN_SHM:-}" ] && unshare -rm mount -t tmpfs none /dev/shm 2>/dev/null; then
    VARVE_TEST_OWN_SHM=1 exec unshare -rm bash -c 'mount -t tmpfs none /dev/shm && exec bash "$0"' "${BASH_SOURCE[0]}"
fi
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
need taskset
cpus=$(nproc) first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
[ "$cpus" -gt 1 ] || skip "one processor"
"$mpicc" -std=c99 -D_GNU_SOURCE "${flags[@]}" "$SOURCE_DIR/tests/compat/cores.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/cores" ||
    fail "cores.c does not compile"
[ "$(OMPI_MCA_hwloc_base_binding_policy=core mpi 1 nproc 2>/dev/null)" = 1 ] || skip "mpirun does not bind to processors"
run() { # own|shared|given PROCESSES COMMAND...
    local want=$1 n=$2
    shift 2
    OMPI_MCA_hwloc_base_binding_policy=core mpi "$n" "$@" "$dir/cores" "$want" >"$dir/out" 2>"$dir/err" </dev/null ||
        { cat "$dir/out" "$dir/err"; fail "$n processes, $want $*"; }
    [ "$(grep -c '^ok$' "$dir/out")" -eq "$n" ] || { cat "$dir/out" "$dir/err"; fail "$n processes: not all said ok"; }
}
export SLURM_CPUS_ON_NODE=100000 VARVE_LOCAL=$dir/local
run own 1
run "$([ "$cpus" -gt 2 ] && echo own || echo shared)" 2
run shared 1 env VARVE_HELPER_CORES=none
run given 1 env "VARVE_HELPER_CORES=$first"
export OMPI_MCA_hwloc_base_binding_policy=none
mpi_bound=$(mpi 1 nproc 2>/dev/null)
[ "$mpi_bound" = "$cpus" ] || skip "mpirun binds all the same"
mpi 1 "$dir/cores" shared >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "not bound"; }
