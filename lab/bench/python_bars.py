#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The goals of offload on one GPU, in one table: blocks of linear layers, and a transformer of the package transformers with random
weights and plain SGD, without offload, with it, and with torch.utils.checkpoint. The gradients of each way are compared bit for bit,
with PyTorch's deterministic kernels.

    python_bars.py [--seconds 95] [--width 8192] [--blocks 10] [--layers 6] [--hidden 8192] [--sequences 2] [--length 4096]

Without a GPU it runs on the processor with the emulated device, at sizes that are given, which checks the program alone. Ways that
are given fewer steps than planned, as time runs out, say so.
"""
import argparse
import gc
import os
import time
from typing import NamedTuple, Optional

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic; read when CUDA starts

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import varve.torch

BEGIN = time.perf_counter()
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
GIB = 2**30


class Figures(NamedTuple):
    median: float
    best: float
    forward: float
    peak: int  # without the gradients that are compared with, and with the device cache
    down: float  # bytes a step
    same: Optional[bool]


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


class Blocks:
    """Linear, GELU, Linear."""

    optimizer = None

    def __init__(self, width, blocks, tokens):
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(width, 4 * width, bias=False, device=DEVICE), nn.GELU(),
                                                   nn.Linear(4 * width, width, bias=False, device=DEVICE)) for _ in range(blocks)])
        self.batch = torch.randn(tokens, width, device=DEVICE)

    def loss(self):
        return self.model(self.batch).float().square().mean()


class Plain(nn.Module):
    """Used if the package transformers is missing."""

    def __init__(self, hidden, layers, words):
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(hidden, max(hidden // 128, 1), 4 * hidden, dropout=0.0, batch_first=True)
                                    for _ in range(layers))
        self.head = nn.Linear(hidden, words, bias=False)
        self.recompute = False

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


class Transformer:
    def __init__(self, hidden, layers, sequences, length):
        words = 32000 if CUDA else 100
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
            with torch.device(DEVICE):
                self.model = LlamaForCausalLM(LlamaConfig(
                    hidden_size=hidden, intermediate_size=hidden * 7 // 2, num_hidden_layers=layers, num_attention_heads=max(hidden // 128, 1),
                    num_key_value_heads=max(hidden // 1024, 1), vocab_size=words, max_position_embeddings=length, use_cache=False,
                    attn_implementation="sdpa")).train()
            self.name = "a Llama of the package transformers"
        except ImportError:
            self.model, self.name = Plain(hidden, layers, words).to(DEVICE), "layers of torch.nn, as there is no package transformers"
        self.tokens = torch.randint(0, words, (sequences, length), device=DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, foreach=False)

    def recompute(self, on):
        if isinstance(self.model, Plain):
            self.model.recompute = on
        elif on:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        else:
            self.model.gradient_checkpointing_disable()

    def loss(self):
        if isinstance(self.model, Plain):
            return self.model(self.tokens)
        return self.model(input_ids=self.tokens, labels=self.tokens).loss


def offload(**settings):
    """Without a GPU: tensors of the processor, through the emulated device."""
    if CUDA:
        return varve.torch.offload(**settings)
    return varve.torch.offload(tensors="cpu", device="host", device_cache="8M", host_cache="64M", minimum=4096)


def step(job, way):
    """Seconds of the step and of its forward pass, by the GPU's clock."""
    job.model.zero_grad(set_to_none=True)
    synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if CUDA else []
    begin = time.perf_counter()
    if CUDA:
        marks[0].record()
    with way or torch.enable_grad():
        loss = job.loss()
    forward = time.perf_counter() - begin
    if CUDA:
        marks[1].record()
    loss.backward()
    if job.optimizer is not None:
        job.optimizer.step()
    synchronize()
    took = time.perf_counter() - begin
    return took, marks[0].elapsed_time(marks[1]) / 1e3 if CUDA else forward


def gradients(job, way):
    """With deterministic kernels; flash attention has others by default."""
    torch.use_deterministic_algorithms(True)
    try:
        step(job, way)
    finally:
        torch.use_deterministic_algorithms(False)
    return [p.grad for p in job.model.parameters()]


class Reference:
    """Reference gradients, and the memory that they hold."""

    def __init__(self, job):
        self.why, self.gradients = "", []
        try:
            self.gradients = [None if g is None else g.clone() for g in gradients(job, None)]
        except RuntimeError as e:
            if "determinis" not in str(e):
                raise
            self.why = str(e)
            print(f"gradients are not compared: {e}", flush=True)
        self.held = sum(g.numel() * g.element_size() for g in self.gradients if g is not None)

    def same(self, job, way):
        if self.why:
            return None
        return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(self.gradients, gradients(job, way)))


def measure(name, job, reference, args, way=None, warm=4, share=None):
    """`share`: of the time that is left, which ends the steps that warm up; none: all of them are made."""
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    left = args.seconds - (time.perf_counter() - BEGIN)
    until = time.perf_counter() + (max(0.0, share * left) if share is not None else 1e9)
    warmed, context, before = 0, None, {}
    while warmed < warm and (warmed < 4 or time.perf_counter() < until):
        step(job, way)
        if way is not None and warmed == 0:
            context = next(iter(way._stores.values())).context
            pinned = time.perf_counter() + 20
            while (s := context.stats())["host_ready_bytes"] < s["tier_bytes"][1] and time.perf_counter() < pinned:
                time.sleep(0.05)
        warmed += 1
    if context is not None:
        before = context.stats()
    times, forward = (sorted(t) for t in zip(*(step(job, way) for _ in range(args.steps))))
    peak = torch.cuda.max_memory_allocated() - reference.held if CUDA else 0
    down = 0.0
    if context is not None:
        after = context.stats()
        peak += after["tier_bytes"][0]
        down = (after["moved_bytes"][2] - before["moved_bytes"][2]) / args.steps
    found = Figures(times[len(times) // 2], times[0], forward[0], peak, down, reference.same(job, way))
    bits = {True: "same bits", False: "DIFFERENT", None: "not compared"}[found.same]
    print(f"{name:28s} median {found.median * 1e3:7.1f}, best {found.best * 1e3:7.1f} ms, forward {found.forward * 1e3:6.1f} ms, peak "
          f"{peak / GIB:6.2f} GiB, down {down / 1e9:5.2f} GB a step, {bits}"
          f"{'' if warmed == warm else f', warmed up by {warmed} steps instead of {warm}'}  [{time.perf_counter() - BEGIN:.0f} s]", flush=True)
    return found


def offloaded(name, job, reference, args, warm=4, share=None, **settings):
    way = offload(**settings)
    try:
        found = measure(name, job, reference, args, way, warm, share)
        link = next(iter(way._stores.values())).link() if CUDA else 1e9
    finally:
        job.model.zero_grad(set_to_none=True)
        way.close()
    return found, link


def blocks(args, table):
    job = Blocks(args.width, args.blocks, args.tokens)
    reference = Reference(job)
    plain = measure("blocks, without offload", job, reference, args)
    found, _ = offloaded("blocks, device cache 4 GiB", job, reference, args, warm=6, device_cache="4G", host_cache="12G")
    table.append(("blocks: a step, ms", found.median * 1e3, "<=", 425.0))
    table.append(("blocks: median over best", found.median / found.best, "<=", 1.03))
    table.append(("blocks: over a step without offload", found.median / plain.median, "", None))
    return [plain, found]


def transformer(args, table):
    job = Transformer(args.hidden, args.layers, args.sequences, args.length)
    print(f"{job.name}: {args.layers} layers of {args.hidden}, {args.sequences} sequences of {args.length}, "
          f"{torch.get_default_dtype()}, SGD", flush=True)
    reference = Reference(job)
    plain = measure("without offload", job, reference, args)
    auto, link = offloaded('offload, keep="auto"', job, reference, args, warm=7, share=0.2, keep="auto", device_cache="2G", host_cache="24G")
    job.recompute(True)
    again = measure("torch.utils.checkpoint", job, reference, args, warm=3)
    job.recompute(False)
    table.append(("transformer: share of the link", auto.down / link / plain.forward, ">=", 0.8))
    table.append(("transformer: over a step without offload", auto.median / plain.median, "<=", 1.05))
    rows = [plain, auto, again]
    for name, budget, cache, share in (("budget", plain.peak - 5 * GIB, "2G", 0.35), ("checkpoint's peak", again.peak, "512M", 0.6)):
        found, _ = offloaded(f"offload, {name}", job, reference, args, warm=20, share=share, device_cache=cache, host_cache="24G",
                             budget=budget + reference.held)
        table.append((f"transformer: peak over the {name}", found.peak / budget if budget > 0 else 0.0, "<=", 1.0))
        rows.append(found)
    table.append(("transformer: over torch.utils.checkpoint, same peak", rows[-1].median / again.median, "<=", 1.0))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("--seconds", 95), ("--width", 8192), ("--blocks", 10), ("--tokens", 8192), ("--layers", 6), ("--hidden", 8192),
                            ("--sequences", 2), ("--length", 4096), ("--steps", 6)):
        parser.add_argument(option, type=int, default=default)
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if CUDA else 'no GPU'}, varve {varve.__version__}", flush=True)
    torch.manual_seed(0)
    if CUDA:
        torch.set_default_dtype(torch.bfloat16)
    table, rows, failed = [], [], []
    for part in blocks, transformer:
        try:
            rows += part(args, table)
        except Exception as e:  # the other part counts all the same
            failed.append(part.__name__)
            print(f"{part.__name__}: {type(e).__name__}: {e}", flush=True)
        gc.collect()
    table.append(("gradients that differ", sum(r.same is False for r in rows), "<=", 0))
    table.append(("gradients not compared", sum(r.same is None for r in rows), "<=", 0))
    print()
    for name, value, sense, bar in table:
        met = "" if bar is None else "met" if (value <= bar if sense == "<=" else value >= bar) else "MISSED"
        print(f"{name:52s} {value:8.3f}  {f'{sense} {bar}' if bar is not None else '':9s} {met}")
    print(f"{time.perf_counter() - BEGIN:.0f} s{'; failed: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed or any(r.same is False for r in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
