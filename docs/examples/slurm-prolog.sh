#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A task prolog of Slurm (TaskProlog in slurm.conf, or srun --task-prolog): what it prints becomes part of the
# environment of each task. It starts one daemon for the job on this node and has the task's programs use it.
#
# To be set for the job, by sbatch --export say:
#   VARVE_ROOTS  folders that programs read, with colons in between; without it nothing is done
#   VARVE_NVME   folder on local disk (/tmp)
[ -n "$VARVE_ROOTS" ] || exit 0
dir=${VARVE_NVME:-/tmp}/varve-$SLURM_JOB_ID
socket=/tmp/varve-$SLURM_JOB_ID.sock
mkdir -p -m 700 "$dir"
(
    # Of several tasks on a node one starts it, the others wait for that.
    flock 9
    varve cached status --socket "$socket" >/dev/null 2>&1 ||
        varve cached --daemon --socket "$socket" --node "$SLURMD_NODENAME" --roots "$VARVE_ROOTS" --cache "$dir/files" \
            --meet "${SLURM_SUBMIT_DIR:-$HOME}/.varve-$SLURM_JOB_ID" --log "$dir/log" >/dev/null
) 9>"$dir/lock"
# No daemon: the programs read the shared file system, as ever.
if [ -S "$socket" ]; then
    echo "export VARVE_CACHED_SOCKET=$socket"
    echo "export LD_PRELOAD=libvarve-preload.so${LD_PRELOAD:+:$LD_PRELOAD}"
fi
exit 0
