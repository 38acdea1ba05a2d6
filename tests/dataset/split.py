# SPDX-License-Identifier: Apache-2.0
"""Links break between two parts of a job, and files are edited on both sides: no part stays without its cache, and none
hands out old bytes later than `revalidate`.

Two halves, and two against one. The bridge between the hosts is cut in two; the shared file system is there for both.
"""
import json
import time

import hosts
from hosts import Cluster, fail, run

FILES, REVALIDATE = 40, 2
hosts.inside()
generation = 1


def edit(c, host):
    """Edits all files in a program of that host: it reports them to the daemons that its own can reach."""
    global generation
    generation += 1
    for number in range(FILES):
        run(hosts.READER, "write", c.root, number, generation, env=host.environment())


def check(c, when, cached=False):
    """Checks that every host hands out the current generation; with `cached`, some of it from the caches."""
    for host in (h for h in c if h.alive()):
        said = host.once()
        if said["lowest"] != generation:
            fail(f"{when}: {host.name} gives out generation {said['lowest']}, not {generation}\n{c.tails()}")
        if cached and host.once()["cached"] == 0:
            fail(f"{when}: {host.name} gives out nothing from a cache\n{c.tails()}")


def fenced(c, numbers):
    return [n for n in numbers if (c[n].status() or {}).get("fenced")]


def times_cut_off(c, numbers):
    """How often each host was fenced, by its log: on a busy machine a fence may end before the test reads the status."""
    return {n: (c[n].folder / "log").read_text().count("this one is cut off from most") for n in numbers}


def split(c, low, high):
    before = times_cut_off(c, low + high)
    for host in (c[n] for n in high):
        run("ip", "link", "set", f"v{host.number}", "master", "br1")
    edit(c, c[low[0]])
    c.until(lambda: all(c.seen(c[n], up=len(low)) for n in low) and all(c.seen(c[n], up=len(high)) for n in high),
            "each part sees itself alone")
    edit(c, c[high[0]])
    part = [n for n, times in times_cut_off(c, low + high).items() if times > before[n]]
    if part not in (low, high):
        fail(f"fenced were {part}, not one of the parts\n{c.tails()}")
    took = c.until(lambda: not fenced(c, low + high), "no host is fenced any more")
    print(f"  {', '.join(c[n].name for n in part)} continued after {took:.1f} s more", flush=True)
    time.sleep(REVALIDATE)
    check(c, "split", cached=True)
    for number in (low[0], high[0]):
        edit(c, c[number])
        time.sleep(REVALIDATE + 0.5)
        check(c, f"split, edited on {c[number].name}")
    for host in (c[n] for n in high):
        run("ip", "link", "set", f"v{host.number}", "master", "br0")
    c.until(lambda: all(c.seen(c[n], up=len(low + high)) for n in low + high), "all see each other again")
    time.sleep(REVALIDATE + 0.5)
    check(c, "healed", cached=True)
    c.still_reading()


def main():
    run("ip", "link", "add", "br1", "type", "bridge")
    run("ip", "link", "set", "br1", "up")
    c = Cluster(4, files=FILES, largest=30000, capacity="64M", revalidate=REVALIDATE)
    c.start()
    check(c, "at the beginning")
    c.read_on(1, 3)
    print("two halves", flush=True)
    split(c, [1, 2], [3, 4])
    if hosts.SANITIZED and not hosts.LONG:
        print(json.dumps(c.read_off()))
        return
    c[4].kill()
    c.until(lambda: all(c.seen(c[n], up=3) for n in (1, 2, 3)), "h4 is gone")
    print("two against one", flush=True)
    split(c, [1, 2], [3])
    print(json.dumps(c.read_off()))


main()
