# SPDX-License-Identifier: Apache-2.0
"""Varve for PyTorch: activations are moved off the GPU between forward and backward.

    import varve.torch
    offload = varve.torch.offload(device_cache="4G", host_cache="40G")
    for batch in batches:
        with offload:
            loss = model(batch)
        loss.backward()

`varve.torch.checkpoint` has a storage for torch.distributed.checkpoint.
"""
from __future__ import annotations

from ._offload import Offload, offload

__all__ = ["Offload", "offload"]
