#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on a synthetic task, with autograd's saved tensors outside of the GPU: only three lines use Varve.

    transformer.py [--width 128] [--layers 4] [--steps 20]
"""
import argparse

import torch

import varve.torch  # 1


class Model(torch.nn.Module):
    def __init__(self, width, layers, words=64):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = torch.nn.TransformerEncoder(layer, layers)
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("--width", 128), ("--layers", 4), ("--steps", 20)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    offload = varve.torch.offload(device_cache="64M", host_cache="512M", minimum="64K")  # 2
    for step in range(args.steps):
        tokens = torch.randint(0, 64, (8, 64), device=device)
        with offload:  # 3
            logits = model(tokens)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flip(1).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 5 == 0 or step == args.steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
