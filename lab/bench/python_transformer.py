#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A transformer of the package transformers with random weights and plain SGD: part of what is saved offloaded, within a budget of GPU
memory, and recomputed.

    python_transformer.py [--layers 6] [--hidden 8192] [--sequences 2] [--length 4096] [--steps 4] [--keep 9G,7G,5G] [--less 5G]

Flash attention's backward is not deterministic, so that gradients cannot be compared: in one more step every tensor that comes back is
compared, by a sum of its bytes, with what was packed.
"""
import argparse
import gc
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import varve.torch
from varve.torch import _offload

LINK = 55e9  # bytes/s, one way


class Checked:
    """While it is entered, tensors are compared as they come back."""

    def __init__(self):
        self.sums, self.bad, self.count = {}, 0, 0
        self.pack, self.get = _offload._Tape.pack, _offload._Saved.get

    @staticmethod
    def look(tensor):
        return tensor.detach().contiguous().view(-1).view(torch.uint8).sum(dtype=torch.int64)

    def __enter__(self):
        def pack(tape, tensor):
            packed = self.pack(tape, tensor)
            if len(packed) == 2:
                self.sums[packed[0].version, packed[1]] = self.look(tensor)
            return packed

        def get(saved, view):
            tensor = self.get(saved, view)
            self.bad = self.bad + (self.look(tensor) != self.sums[saved.version, view]).long()
            self.count += 1
            return tensor

        _offload._Tape.pack, _offload._Saved.get = pack, get
        return self

    def __exit__(self, *exception):
        _offload._Tape.pack, _offload._Saved.get = self.pack, self.get


def run(name, model, tokens, steps, way=None, warm=4):
    """Returns the peak, the device cache included."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    times, forward, before, context = [], [], {}, None
    for i in range(warm + steps):
        optimizer.zero_grad(set_to_none=True)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        first.record()
        with way or torch.enable_grad():
            loss = model(input_ids=tokens, labels=tokens).loss
        last.record()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        forward.append(first.elapsed_time(last) / 1e3)
        if way is not None:
            context = next(iter(way._stores.values())).context
            while i == 0 and (s := context.stats())["host_ready_bytes"] < s["tier_bytes"][1]:
                time.sleep(0.05)
            before = context.stats() if i == warm - 1 else before
    times, forward = sorted(times[warm:]), sorted(forward[warm:])
    peak = torch.cuda.max_memory_allocated()
    line = ""
    if context is not None:
        after = context.stats()
        peak += after["tier_bytes"][0]
        packed = (after["checkpoint_bytes"] - before["checkpoint_bytes"]) / steps
        down = (after["moved_bytes"][2] - before["moved_bytes"][2]) / steps
        line = f"  packed {packed / 1e9:.2f} GB, down {down / 1e9:.2f} GB a step, {down / LINK / forward[0] * 100:.0f}% of the link during forward"
        optimizer.zero_grad(set_to_none=True)
        with Checked() as checked:
            with way:
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
        line += f", {checked.count} tensors compared, {int(checked.bad)} differ"
    print(f"{name:26s} median {times[len(times) // 2] * 1e3:7.1f}, best {times[0] * 1e3:7.1f} ms, forward {forward[0] * 1e3:6.1f} ms, "
          f"peak {peak / 2**30:6.2f} GiB, loss {loss.item():.4f}{line}", flush=True)
    del loss
    optimizer.zero_grad(set_to_none=True)
    if way is not None:
        way.close()
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("--layers", 6), ("--hidden", 8192), ("--sequences", 2), ("--length", 4096), ("--steps", 4)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--keep", default="9G,7G,5G")
    parser.add_argument("--less", default="5G", help="the budget is so much less than the peak without offload")
    args = parser.parse_args()
    config = LlamaConfig(hidden_size=args.hidden, intermediate_size=args.hidden * 7 // 2, num_hidden_layers=args.layers,
                         num_attention_heads=args.hidden // 128, num_key_value_heads=args.hidden // 1024, vocab_size=32000,
                         max_position_embeddings=args.length, use_cache=False, attn_implementation="sdpa")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
        tokens = torch.randint(0, 32000, (args.sequences, args.length))
    model.train()

    def offload(**settings):
        return varve.torch.offload(**{"device_cache": "2G", "host_cache": "24G", **settings})

    peak = run("without offload", model, tokens, args.steps)
    for keep in args.keep.split(","):
        run(f"offload, {keep} stay", model, tokens, args.steps, offload(keep=keep))
    budget = peak - _offload._bytes_of(args.less)
    found = run(f"offload, budget {budget / 2**30:.2f} GiB", model, tokens, args.steps, offload(budget=budget))
    print(f"the budget is {'kept' if found <= budget else 'EXCEEDED'}")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    run("torch.utils.checkpoint", model, tokens, args.steps)


if __name__ == "__main__":
    main()
