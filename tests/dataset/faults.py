# SPDX-License-Identifier: Apache-2.0
"""Faults among several hosts, with readers running: no wrong byte, no failure, no hang.

  faults.py BACKEND [FAULT...]

Each fault begins and ends with all hosts up and seeing each other. Without names, the seed selects some of them; with
VARVE_TEST_LONG all run. Times are printed, not checked. A fault returns None, or the reason why it is impossible on this
machine: then it is printed as skipped, and the whole test is skipped (77) if there was no other fault.
"""
import random
import time

import hosts
from hosts import LONG, SEED, Cluster, fail, run, skip, sys

backend = sys.argv[1]
if backend == "ucx" and hosts.SANITIZED and not LONG and not sys.argv[2:]:
    skip("faults over UCX under a sanitizer are for long runs: only with VARVE_TEST_LONG")
hosts.inside()
FILES = 120


def note(text):
    print(f"  {text}", flush=True)


def note_reads(total):
    note(f"{total['files']} files read, {total['cached']} from the cache, longest {total['longest_ms']:.0f} ms")


def back(c):
    c.until(lambda: all(c.seen(h, up=len(c.hosts)) for h in c), "all see each other again")


def killed(c):
    """kill -9; the host comes back with its files."""
    since = time.time()
    c[4].kill()
    note(c.noticed((1, 2, 3), 3, since))
    c.read_for(0.5)
    c[4].start()
    back(c)
    c.read_for(0.3)


def killed_and_emptied(c):
    """kill -9; the host comes back with an empty disk."""
    since = time.time()
    c[3].kill()
    note(c.noticed((1, 2, 4), 3, since))
    c[3].empty()
    c[3].start()
    back(c)
    c.read_for(0.3)


def frozen(c):
    """SIGSTOP, and SIGCONT."""
    since = time.time()
    c[4].freeze()
    note(c.noticed((1, 2, 3), 3, since))
    c.read_for(0.5)
    c[4].thaw()
    back(c)


def local_frozen(c):
    """The daemon of the readers is frozen: they read the shared file system."""
    c[1].freeze()
    c.read_for(4)
    c[1].thaw()
    back(c)


def local_killed(c):
    """The daemon of the readers is killed, and comes back."""
    c[1].kill()
    c.read_for(0.5)
    c[1].start()
    back(c)
    c.read_for(1.5)


def cut(c):
    """Link down, and up."""
    since = time.time()
    c[4].cut()
    note(c.noticed((1, 2, 3), 3, since))
    c.read_for(0.5)
    c[4].reconnect()
    back(c)


def local_cut(c):
    """The host with the readers loses its link: it is fenced, and serves no program."""
    c[1].cut()
    c.until(lambda: (c[1].status() or {}).get("fenced") == 1, "h1 is fenced")
    c.read_for(0.5)
    c[1].reconnect()
    back(c)
    c.until(lambda: c[1].status()["fenced"] == 0, "h1 serves again")


def lossy(c):
    """30% of the packets to two hosts are lost."""
    losing = (c[2], c[4])
    why = [w for w in (host.lose(30) for host in losing) if w]
    if not why:
        c.read_for(4)
        # The hosts exchange messages all the time: rules that drop no packet for so long do not work here.
        why = [f"the rules at {host.name} drop nothing" for host in losing if not c.comes(lambda: host.lost()[0] >= 10)]
    for host in losing:
        if host.loses_by and not why:
            note(f"{host.name} has lost {' of '.join(map(str, host.lost()))} packets, by {host.loses_by}")
        host.lose_no_more()
    back(c)
    return "packets cannot be dropped: " + "; ".join(dict.fromkeys(why)) if why else None


def two_lost(c):
    """Two hosts are lost, one after the other."""
    c[4].kill()
    c.read_for(0.2)
    c[3].kill()
    c.read_for(1)
    c[3].start()
    c[4].start()
    back(c)


def all_lost(c):
    """All hosts: only the shared file system is left."""
    for host in c:
        host.kill()
    c.read_for(1)
    for host in c:
        host.start(wait=False)
    back(c)
    c.read_for(1.5)


def changed(c):
    """Files change on the shared file system: all programs see that, whole, at the latest after the next check."""
    changed.generation += 1
    for number in range(FILES):
        c.write(number, changed.generation)
    time.sleep(c.settings["revalidate"] + 0.5)
    for host in c:
        done = run(hosts.READER, "once", c.root, FILES, env=host.environment())
        if f'"lowest": {changed.generation}' not in done.stdout:
            fail(f"{host.name} gives an old generation: {done.stdout}")
    c.read_for(0.3)


changed.generation = 1


def flipped_while_down(c):
    """Bits flip in the cache of a host that is down: never handed out."""
    c[2].stop()
    files = c[2].content()
    if not files:
        fail("nothing in the cache of h2")
    c[2].flip(files)
    c[2].start()
    back(c)
    for host in c:
        host.once()
    note(f"{len(files)} flipped, {c[2].status()['damaged_total']} found so far")


def flipped_while_up(c):
    """Bits flip under a running daemon: found within one period of the scrub, then fetched again.

    Until then it may be handed out, so there are no readers meanwhile."""
    note_reads(c.read_off())
    before = c[2].status()["damaged_total"]
    files = c[2].content()[:5]
    c[2].flip(files)
    took = c.until(lambda: c[2].status()["damaged_total"] >= before + len(files), "flipped bits are found")
    note(f"found after {took:.1f} s, with a scrub every {c.settings['scrub']} s")
    for host in c:
        host.once()
    c.read_on(1, 2)


def disk_full(c):
    """A host whose disk is full before its capacity is reached."""
    c[4].stop()
    c[4].empty()
    c[4].cache.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "none", c[4].cache)
    (c[4].cache / "others").write_bytes(bytes((64 << 20) - (300 << 10)))
    c[4].start()
    back(c)
    for host in c:
        host.once()
    c[4].stop()
    run("umount", c[4].cache)
    c[4].start()
    back(c)


FAULTS = [killed, killed_and_emptied, frozen, local_frozen, local_killed, cut, local_cut, lossy, two_lost, all_lost, changed,
          flipped_while_down, flipped_while_up, disk_full]


def main():
    named = [f for f in FAULTS if f.__name__ in sys.argv[2:]]
    if named:
        chosen = named
    elif LONG:
        chosen = FAULTS
    else:
        rng = random.Random(f"{SEED} {backend}")
        chosen = [killed] + rng.sample(FAULTS[1:], 1 if hosts.SANITIZED or backend == "ucx" else 4)
    cluster = Cluster(4, files=FILES, largest=60000, capacity="64M", revalidate=1, scrub=2, transport=backend)
    cluster.start()
    for host in cluster:
        host.once()
    reads = cluster.figure("shared_reads_total")
    if reads > FILES * 1.2:
        fail(f"{reads} reads of the shared file system for {FILES} files")
    cluster.read_on(1, 2)
    cluster.read_for(0.3)
    skipped = []
    for fault in chosen:
        print(f"{backend}: {fault.__name__}: {fault.__doc__.splitlines()[0]}", flush=True)
        why = fault(cluster)
        cluster.still_reading()
        if why:
            note(f"SKIPPED: {why}")
            skipped.append(f"{fault.__name__}: {why}")
    total = cluster.read_off()
    note_reads(total)
    if total["cached"] < total["files"] / 10:
        fail("hardly anything came from the cache")
    for host in cluster:
        host.stop()
    if len(skipped) == len(chosen):
        skip("nothing could be done: " + "; ".join(skipped))
    print(f"{backend}: {len(chosen) - len(skipped)} faults, {len(skipped)} skipped", flush=True)


main()
