# SPDX-License-Identifier: Apache-2.0
"""Finds libvarve, and turns its results into exceptions."""
from __future__ import annotations

import ctypes
import errno
import os
import pathlib
from typing import Any, Iterator, Optional

from . import _layout
from ._version import __version__

_NAME = "libvarve.so.0"


class Error(OSError):
    """A call of the library failed: `errno` is its code, the text is the library's."""


class InvalidError(Error, ValueError):
    """An argument or a setting is invalid."""


class NotFoundError(Error, LookupError):
    """The version or region does not exist."""


class ExistsError(Error):
    """The version exists."""


class NoSpaceError(Error):
    """There is no room, and nothing in progress will free any."""


class OutOfMemoryError(Error, MemoryError):
    """A cache cannot be allocated."""


class DamagedError(Error):
    """Stored bytes are damaged, and there is no good copy."""


class BusyError(Error):
    """The object is in use: lent memory, a call in progress, another process; or the stream is being captured."""


class TimedOutError(Error, TimeoutError):
    """The call timed out."""


class ForkedError(Error, PermissionError):
    """The context belongs to the parent process."""


class ClosedError(ValueError):
    """The context or history was closed."""


class LayoutError(ValueError):
    """An array differs from that of the version: another dtype, shape, order or number of arrays."""


_BY_ERRNO: dict[int, type[Error]] = {
    errno.EINVAL: InvalidError,
    errno.ENOENT: NotFoundError,
    errno.ESRCH: NotFoundError,
    errno.EEXIST: ExistsError,
    errno.ENOSPC: NoSpaceError,
    errno.EFBIG: NoSpaceError,
    errno.ENOMEM: OutOfMemoryError,
    errno.EBADMSG: DamagedError,
    errno.EBUSY: BusyError,
    errno.ETIMEDOUT: TimedOutError,
    errno.EAGAIN: TimedOutError,
    errno.EPERM: ForkedError,
}


def _candidates() -> Iterator[str]:
    """A library in the package's folder (wheels), or in the lib folder above the installed package."""
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here, *list(here.parents)[1:5]):
        path = folder / _NAME
        if path.exists():
            yield str(path)
    yield _NAME


def _load() -> ctypes.CDLL:
    wanted = os.environ.get("VARVE_LIBRARY")
    path = wanted or next(_candidates())
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"varve: {path}: {e}. Install libvarve, or set VARVE_LIBRARY to the path of {_NAME}") from None
    for name, (result, arguments) in _layout.FUNCTIONS.items():
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError(f"varve: {path} has no {name}: it is older than this package, {__version__}")
        function.restype = result
        function.argtypes = arguments
    found = lib.varve_version().decode()
    if found.split(".")[:2] != __version__.split(".")[:2]:
        raise ImportError(f"varve: {path} is version {found}, this package is {__version__}")
    return lib


lib = _load()


def failed(rc: int, ctx: Optional[int] = None) -> Error:
    """The exception for a result below 0."""
    text = lib.varve_error(ctx) if rc != -errno.EPERM else b""
    if not text or text == b"success":
        text = lib.varve_strerror(rc)
    kind = _BY_ERRNO.get(-rc, Error)
    return kind(-rc, text.decode(errors="replace"))


def check(rc: int, ctx: Optional[int] = None) -> None:
    if rc != 0:
        raise failed(rc, ctx)


def as_dict(struct: ctypes.Structure) -> dict[str, Any]:
    """The fields of a structure, arrays as lists."""
    found: dict[str, Any] = {}
    for field in struct._fields_:
        value = getattr(struct, field[0])
        found[field[0]] = list(value) if isinstance(value, ctypes.Array) else value
    return found
