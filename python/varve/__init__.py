# SPDX-License-Identifier: Apache-2.0
"""Varve: histories of arrays across GPU memory, host memory and disk, brought back before they are asked for.

    import varve

    with varve.open(host_cache="8G", local="/tmp/varve") as ctx:
        history = ctx.history("wavefield", order="lifo", consume="once")
        for step in range(n):
            history.checkpoint(step, field)
            advance(field)
        for step in reversed(range(n)):
            history.restore(step, out=field)
            advance_adjoint(field)
"""
from __future__ import annotations

import os
from typing import Any, Optional, Union

from ._arrays import NotContiguousError
from ._history import Context, History, Region
from ._lease import Lease
from ._lib import (
    BusyError,
    ClosedError,
    DamagedError,
    Error,
    ExistsError,
    ForkedError,
    InvalidError,
    LayoutError,
    NoSpaceError,
    NotFoundError,
    OutOfMemoryError,
    TimedOutError,
    lib,
)
from ._version import __version__

__all__ = [
    "BusyError", "ClosedError", "Context", "DamagedError", "Error", "ExistsError", "ForkedError", "History", "InvalidError",
    "LayoutError", "Lease", "NoSpaceError", "NotContiguousError", "NotFoundError", "OutOfMemoryError", "Region", "TimedOutError",
    "__version__", "library_version", "open",
]


def open(*, config: Optional[Union[str, os.PathLike[str]]] = None, **settings: Any) -> Context:
    """Opens a context. `settings` are the keys of docs/config.md: device, device_cache, host_cache, local, level and so on; sizes
    are numbers or text such as "4G". `config` names an INI file; `settings` override it."""
    return Context(config, settings)


def library_version() -> str:
    """The version of libvarve that was found."""
    return str(lib.varve_version().decode())
