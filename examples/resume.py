#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training that continues where it stopped when it is started again, also after a kill.

    resume.py FOLDER [--steps 200] [--every 20] [--die-at STEP]

Every few steps the state is written to a history at level local: the call returns when it is in memory, and a checkpoint counts when it
is complete on disk, with checksums. A run that was killed and started again ends with the same weights as one that was not.
"""
import argparse
import os
import signal

import numpy as np

import varve


def batch(step, rows=64):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((rows, 20))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def train(state, step):
    """One step of gradient descent with momentum for a network of one hidden layer."""
    x, y = batch(step)
    hidden = np.tanh(x @ state["w1"])
    error = (hidden @ state["w2"] - y) / len(x)
    g2, g1 = hidden.T @ error, x.T @ (error @ state["w2"].T * (1 - hidden**2))
    for name, g in (("w1", g1), ("w2", g2)):
        state["m" + name] *= 0.9
        state["m" + name] += g
        state[name] -= 0.05 * state["m" + name]
    return float((error**2).sum() * len(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--die-at", type=int, default=-1, help="kill -9 at this step, to see what happens")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    state = {"w1": rng.standard_normal((20, 50)) * 0.2, "w2": rng.standard_normal((50, 1)) * 0.2}
    state.update({"m" + name: np.zeros_like(w) for name, w in state.items()})
    with varve.open(device="none", host_cache="64M", local=args.folder, level="local") as ctx:
        history = ctx.history("training", keep=2)
        done = history.latest()
        if done is not None:
            history.restore(done, out=state)
            print(f"goes on behind step {done}")
        first = 0 if done is None else done + 1
        history.resume(first)
        for step in range(first, args.steps):
            loss = train(state, step)
            if step == args.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if (step + 1) % args.every == 0:
                history.checkpoint(step, **state)
                print(f"step {step}: loss {loss:.4f}")
    print("weights", state["w1"].sum().hex(), state["w2"].sum().hex())


if __name__ == "__main__":
    main()
