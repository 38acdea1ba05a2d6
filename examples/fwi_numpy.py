#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Full-waveform inversion in two dimensions with NumPy: the gradient of the misfit by the adjoint method.

    fwi_numpy.py [--cells 100] [--steps 500] [--shots 2] [--host-cache 16M] [--local FOLDER]

The adjoint of step t needs the wavefield of step t, so a history keeps all wavefields and returns them in reverse order. The
gradient is computed a second time with all wavefields in a list, and must be the same, bit for bit.
"""
import argparse
import tempfile

import numpy as np

import varve

DX, DT = 10.0, 0.001


def laplacian(u):
    out = np.zeros_like(u)
    out[1:-1, 1:-1] = (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]) / DX**2
    return out


def ricker(steps, frequency=12.0):
    t = np.arange(steps) * DT - 1.2 / frequency
    a = (np.pi * frequency * t) ** 2
    return ((1 - 2 * a) * np.exp(-a)).astype("f4")


def forward(velocity, source, wavelet, keep):
    """Pressure at the receivers in the third row. `keep` gets the second derivative in time of every step."""
    before, now = np.zeros_like(velocity), np.zeros_like(velocity)
    scale = (velocity * DT) ** 2
    traces = np.empty((len(wavelet), velocity.shape[1]), "f4")
    for t, amplitude in enumerate(wavelet):
        change = laplacian(now)
        change[source] += amplitude
        keep(t, change)
        before, now = now, 2 * now - before + scale * change
        traces[t] = now[2]
    return traces


def gradient(velocity, residual, kept):
    """Gradient of half the sum of the squared residual by the velocity; reads the steps from the last to the first."""
    after, now = np.zeros_like(velocity), np.zeros_like(velocity)
    scale = (velocity * DT) ** 2
    found = np.zeros_like(velocity)
    for t in reversed(range(len(residual))):
        now[2] += residual[t]
        found += 2 * DT**2 * velocity * now * kept(t)
        after, now = now, 2 * now + laplacian(scale * now) - after
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--shots", type=int, default=2)
    parser.add_argument("--host-cache", default="16M")
    parser.add_argument("--local", default=None, help="a folder on a fast disk; a temporary one by default")
    args = parser.parse_args()

    true = np.full((args.cells, args.cells), 2000, "f4")
    true[20:] = 2600
    guess = np.full_like(true, 2000)
    wavelet = ricker(args.steps)
    total, expected = np.zeros_like(true), np.zeros_like(true)
    with tempfile.TemporaryDirectory() as folder, \
            varve.open(device="none", host_cache=args.host_cache, local=args.local or folder) as ctx:
        history = ctx.history("wavefield", order="lifo", consume="once")
        for shot in range(args.shots):
            source = (4, (shot + 1) * args.cells // (args.shots + 1))
            observed = forward(true, source, wavelet, lambda t, change: None)

            residual = forward(guess, source, wavelet, history.checkpoint) - observed
            field = np.empty_like(guess)
            total += gradient(guess, residual, lambda t: history.restore(t, out=field))

            kept = []
            residual = forward(guess, source, wavelet, lambda t, change: kept.append(change.copy())) - observed
            expected += gradient(guess, residual, kept.pop)
        stats = ctx.stats()
    same = total.tobytes() == expected.tobytes()
    print(f"{args.shots} shots of {args.steps} steps, {stats['checkpoint_bytes'] >> 20} MiB of wavefields through {args.host_cache}")
    print(f"misfit gradient: largest {np.abs(total).max():.3e}, {'the same' if same else 'NOT the same'} as with all in memory")
    raise SystemExit(not same)


if __name__ == "__main__":
    main()
