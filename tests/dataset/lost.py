# SPDX-License-Identifier: Apache-2.0
"""Reads of the shared file system after the loss of a host: with one copy of each file, every lost file is read exactly
once; with two copies, none. Programs read none of them there themselves.

  lost.py BACKEND
"""
import json
import os
import time

import hosts
from hosts import Cluster, fail, sys

if hosts.SANITIZED and not hosts.LONG:
    hosts.skip("counted without a sanitizer")
hosts.inside()
# On a busy machine the daemon may answer late: programs must wait, since reads without it are counted here.
os.environ["VARVE_PRELOAD_PATIENCE"] = "60000"
backend = sys.argv[1]
FILES = 150


def reads(cluster, numbers):
    return sum(cluster[n].status()["shared_reads_total"] for n in numbers)


def settled(cluster, numbers):
    """True once nothing has been fetched or copied for a while."""
    last, same = None, 0

    def quiet():
        nonlocal last, same
        now = [(s["files"], s["shared_reads_total"], s["to_bring"]) for s in (cluster[n].status() for n in numbers)]
        same = same + 1 if now == last else 0
        last = now
        return same >= 12

    cluster.until(quiet, "all is quiet")


def all_cached(cluster, numbers):
    for n in numbers:
        said = cluster[n].once()
        if said["cached"] != said["files"]:
            fail(f"h{n} read {said['files'] - said['cached']} files from the shared file system itself: {json.dumps(said)}")


def lose_one(replicas):
    everybody, rest = (1, 2, 3, 4), (1, 2, 3)
    cluster = Cluster(4, files=FILES, largest=60000, capacity="64M", revalidate=0, transport=backend, replicas=replicas)
    cluster.start()
    for n in everybody:
        cluster[n].once()
    settled(cluster, everybody)
    total = reads(cluster, everybody)
    if total != FILES:
        fail(f"{total} reads of the shared file system for {FILES} files")
    all_cached(cluster, everybody)
    lost, before = (lambda s: s["files"] - s["copies"])(cluster[4].status()), reads(cluster, rest)
    cluster.read_on(1)
    since = time.time()
    cluster[4].kill()
    noticed = cluster.noticed(rest, 3, since)
    said = cluster.read_off()
    cluster.read_on(*rest)
    cluster.read_for(1)
    after = cluster.read_off()
    all_cached(cluster, rest)
    settled(cluster, rest)
    again = reads(cluster, rest) - before
    print(f"{backend}, {replicas} copies: {lost} files were on the lost host, {again} read again from the shared file system; "
          f"{noticed}; longest read until then {said['longest_ms']:.0f} ms, in the second after it {after['longest_ms']:.0f} ms",
          flush=True)
    # There is room for all files on each host, and all hosts have read them: their copies stay.
    if again != 0:
        fail(f"with {replicas} copies {again} reads for {lost} lost files\n{cluster.tails()}")
    for n in rest:
        cluster[n].stop()
    cluster.finish()


for replicas in (1, 2):
    lose_one(replicas)
