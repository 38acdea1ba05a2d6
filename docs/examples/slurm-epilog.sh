#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An epilog of Slurm (Epilog in slurm.conf) that belongs to slurm-prolog.sh: ends the daemon of the job on this
# node and frees its disk.
[ -n "$SLURM_JOB_ID" ] || exit 0
dir=${VARVE_NVME:-/tmp}/varve-$SLURM_JOB_ID
# It runs as root: only a folder of the job's user, and no link, is removed.
[ ! -L "$dir" ] && [ "$(stat -c '%F %u' "$dir" 2>/dev/null)" = "directory ${SLURM_JOB_UID:-$(id -u)}" ] || exit 0
varve cached stop --socket "$dir/sock" >/dev/null 2>&1
rm -rf "$dir"
exit 0
