# SPDX-License-Identifier: Apache-2.0
# The other way to start the processes of a job: Slurm's srun, without an mpirun. A cluster of one node, in a network of its
# own, runs the programs that mpi.sh, fortran_mpi.sh, examples_mpi.sh, partner.sh and heat.sh start with mpirun. In long runs only.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
[ -n "${VARVE_TEST_LONG:-}" ] || skip "in long runs only"
[ -z "${VARVE_SANITIZE:-}" ] || skip "once is enough"
for command in munged slurmctld slurmd srun ip unshare; do need $command; done
if [ -z "${VARVE_TEST_OWN_NET:-}" ]; then
    unshare -n true 2>/dev/null || skip "no network namespaces"
    rm -rf "$dir"
    VARVE_TEST_OWN_NET=1 exec unshare -n bash "$0"
fi

# Slurm requires an address that is not a loopback's; this one leads nowhere, and no other machine is in this network.
node=$(hostname)
address=192.0.2.1
ip link set lo up
ip addr add $address/32 dev lo
slurm=$dir/slurm
mkdir "$slurm" "$slurm/state" "$slurm/spool" "$slurm/munge"
chmod 755 "$dir" "$slurm"
head -c 128 /dev/urandom >"$slurm/munge/key"
chmod 600 "$slurm/munge/key"
cat >"$slurm/slurm.conf" <<END
ClusterName=varve
SlurmctldHost=$node($address)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$slurm/munge/socket
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
NodeName=$node NodeAddr=$address CPUs=64
PartitionName=all Nodes=$node Default=YES State=UP
END
export SLURM_CONF=$slurm/slurm.conf
munged --foreground --force --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" --pid-file="$slurm/munge/pid" \
    --seed-file="$slurm/munge/seed" --log-file="$slurm/munge/log" >"$slurm/munge/out" 2>&1 &
servers=($!)
# The daemons are stopped in reverse order, because they exchange messages until they end.
stop() {
    local i
    for ((i = ${#servers[@]} - 1; i >= 0; i--)); do
        kill "${servers[i]}" 2>/dev/null || true
        wait "${servers[i]}" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap stop EXIT
for ((i = 0; i < 600; i++)); do [ ! -S "$slurm/munge/socket" ] || break; sleep 0.1; done
slurmctld -D -i >"$slurm/slurmctld.out" 2>&1 &
servers+=($!)
slurmd -D >"$slurm/slurmd.out" 2>&1 &
servers+=($!)
for ((i = 0; i < 600; i++)); do [ "$(timeout 30 sinfo -h -o %T 2>/dev/null)" != idle ] || break; sleep 0.3; done
[ "$(timeout 30 sinfo -h -o %T)" = idle ] || { cat "$slurm"/*.out; fail "Slurm does not start"; }

for script in mpi fortran_mpi examples_mpi partner heat; do
    rc=0
    VARVE_TEST_SRUN=1 VARVE_TEST_LONG='' bash "$SOURCE_DIR/tests/compat/$script.sh" || rc=$?
    [ $rc -eq 0 ] || [ $rc -eq 77 ] || fail "$script under srun"
done
echo ok
