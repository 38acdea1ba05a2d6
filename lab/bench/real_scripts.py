#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library against the simulator, on short scripts of the random set.

    real_scripts.py [--varve FILE] [--scripts N] [--most-s S] [--seed N] [--hints WHICH]

Takes the first N cases (100) of `varve sim set` that take S seconds (2) at most in virtual time, and runs them
on the library, with an emulated device and a throttled disk. Blocked time should be within 10% of the simulator's.
A real thread wakes up late: what differs by less than LATE_S for each call is listed as such, and counts as missed all the same.
It runs in real time: about three minutes for 100. Nothing else should run meanwhile. Exit status 1: a byte was wrong, or a run failed.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

LATE_S = 50e-6


def run(args):
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{' '.join(args)}: {p.stderr.strip()}")
    return p.stdout


def report(args):
    out = run(args)
    return json.loads(out[out.index("{"):])


def blocked(r):
    return r["blocked_checkpoint_s"] + r["blocked_restore_s"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--varve", default="build/bin/varve")
    p.add_argument("--scripts", type=int, default=100)
    p.add_argument("--most-s", type=float, default=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--hints", default="all")
    o = p.parse_args()
    ratios, missed, late, failed, case = [], [], 0, 0, -1
    with tempfile.TemporaryDirectory(prefix="varve-real-", dir="/var/tmp") as folder:
        name = folder + "/script"
        while len(ratios) + failed < o.scripts:
            case += 1
            text = run([o.varve, "sim", "set", "--seed", str(o.seed), "--one", str(case), "--print",
                        "--series", "next/" + o.hints])
            with open(name, "w") as f:
                f.write(text)
            sim = report([o.varve, "sim", "script", name, "--json"])
            if sim["wall_s"] > o.most_s:
                continue
            try:
                real = report([o.varve, "bench", "script", name, "--json", "--device", "host", "--local", folder,
                               "--no-bound"])
            except RuntimeError as e:
                print(f"case {case}: {e}")
                failed += 1
                continue
            calls = sum(line.startswith(("put ", "get ")) for line in text.splitlines())
            ratio = blocked(real) / blocked(sim)
            ratios.append(ratio)
            failed += not real["verified"]
            if not 1 / 1.1 <= ratio <= 1.1:
                within = abs(blocked(real) - blocked(sim)) <= calls * LATE_S
                late += within
                missed.append(ratio)
                print(f"case {case}: {blocked(sim):.4f} s simulated, {blocked(real):.4f} s real, {ratio:.2f}"
                      + (", late wake-ups" if within else "") + ("" if real["verified"] else ", WRONG BYTES"))
    print(f"{len(ratios)} scripts: {len(ratios) - len(missed)} within 10%, {late} more within {LATE_S * 1e6:.0f} us a call; "
          f"median {statistics.median(ratios):.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
