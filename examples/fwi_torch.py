#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Full-waveform inversion in two dimensions with PyTorch: autograd computes the adjoint, and its saved tensors leave the GPU.

    fwi_torch.py [--cells 128] [--steps 400] [--iterations 3] [--device-cache 16M] [--host-cache 256M]

The gradient of the first iteration is computed a second time with everything in memory, and must be the same, bit for bit. Runs
on the processor if there is no GPU.
"""
import argparse
import math

import torch

import varve.torch

DX, DT = 10.0, 0.001


def laplacian(u):
    kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]], dtype=u.dtype, device=u.device) / DX**2
    return torch.nn.functional.conv2d(u[None, None], kernel[None, None], padding=1)[0, 0]


def ricker(steps, frequency=12.0):
    a = (math.pi * frequency * (torch.arange(steps) * DT - 1.2 / frequency)) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def forward(velocity, wavelet):
    before, now = torch.zeros_like(velocity), torch.zeros_like(velocity)
    point = torch.zeros_like(velocity)
    point[4, velocity.shape[1] // 2] = 1
    traces = []
    for amplitude in wavelet:
        before, now = now, 2 * now - before + (velocity * DT) ** 2 * (laplacian(now) + float(amplitude) * point)
        traces.append(now[2])
    return torch.stack(traces)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("--cells", 128), ("--steps", 400), ("--iterations", 3)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--device-cache", default="16M")
    parser.add_argument("--host-cache", default="256M")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    true = torch.full((args.cells, args.cells), 2000.0, device=device)
    true[20:] = 2600
    velocity = torch.full_like(true, 2000).requires_grad_()
    wavelet = ricker(args.steps)
    with torch.no_grad():
        observed = forward(true, wavelet)

    def misfit():
        return 0.5 * (forward(velocity, wavelet) - observed).square().sum()

    offload = varve.torch.offload(args.device_cache, args.host_cache, minimum=velocity.numel() * 4, page="64K")
    expected = torch.autograd.grad(misfit(), velocity)[0]
    same = True
    for i in range(args.iterations):
        with offload:
            loss = misfit()
        found = torch.autograd.grad(loss, velocity)[0]
        if i == 0:
            same = torch.equal(found, expected)
            print(f"gradient: {'the same' if same else 'NOT the same'} as with all in memory")
        with torch.no_grad():
            velocity -= 20 * found / found.abs().max()
        print(f"iteration {i}: misfit {loss.item():.6e}")
    stats = offload.stats()[str(velocity.device) if device == "cpu" else f"cuda:{velocity.get_device()}"]
    print(f"{stats['checkpoint_bytes'] >> 20} MiB left between forward and backward")
    offload.close()
    raise SystemExit(not same)


if __name__ == "__main__":
    main()
