#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A task prolog of Slurm (TaskProlog in slurm.conf, or srun --task-prolog): what it prints becomes part of the
# environment of each task. It starts one daemon for the job on this node and has the task's programs use it.
#
# To be set for the job, by sbatch --export say:
#   VARVE_ROOTS  folders that programs read, with colons in between; without it nothing is done
#   VARVE_NVME   folder on local disk (/tmp)
#
# VARVE_ROOTS may name an object store (s3://BUCKET/PREFIX=/FOLDER); credentials come from the job's environment or ~/.aws.
# Nodes meet in .varve-JOB of the folder that the job was submitted from; it is a few hundred bytes, and stays.
#
# Everything lies in one folder of the job. Its name can be guessed: one that another user has made before, or a link,
# is refused, and the programs read the shared file system.
[ -n "$VARVE_ROOTS" ] || exit 0
dir=${VARVE_NVME:-/tmp}/varve-$SLURM_JOB_ID
socket=$dir/sock
mkdir -m 700 "$dir" 2>/dev/null
# The folder may come from another task of this job, or from this one a moment ago: a folder, not a link, of this user, closed to others.
# (2700: made below a folder that hands its group down.)
[ -L "$dir" ] || what=$(stat -c '%F %u %a' "$dir" 2>/dev/null)
case ${what:-none} in
"directory $(id -u) 700" | "directory $(id -u) 2700") ;;
*)
    echo "varve: $dir is not a folder of this user alone (mode 700): the cache is not used" >&2
    exit 0
    ;;
esac
(
    # One of several tasks on a node starts it, the others wait for that. The daemon must not keep the lock (9>&-).
    flock 9
    varve cached status --socket "$socket" >/dev/null 2>&1 ||
        varve cached --daemon --socket "$socket" --node "$SLURMD_NODENAME" --roots "$VARVE_ROOTS" --cache "$dir/files" \
            --meet "${SLURM_SUBMIT_DIR:-$HOME}/.varve-$SLURM_JOB_ID" --log "$dir/log" >/dev/null 9>&-
) 9>"$dir/lock"
# No daemon: the programs read the shared file system, as ever.
if [ -S "$socket" ]; then
    echo "export VARVE_CACHED_SOCKET=$socket"
    echo "export LD_PRELOAD=libvarve-preload.so${LD_PRELOAD:+:$LD_PRELOAD}"
fi
exit 0
