# SPDX-License-Identifier: Apache-2.0
"""The dataset cache from Python: the order in which files will be read, and the state of the daemon.

    from varve import dataset
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        dataset.order(dataset_of_mine.path(i) for i in sampler)
        for batch in loader: ...

The daemon is `varve cached`. Without one these functions raise NoDaemonError, and files can still be read.
"""
from __future__ import annotations

import json
import os
import socket
from typing import Any, Callable, Iterable, Optional, Union

Path = Union[str, os.PathLike[str]]

__all__ = ["CacheError", "NoDaemonError", "bring", "order", "status"]

_SEND_BYTES = 1 << 16


class CacheError(OSError):
    """The daemon refused the command; the text is its reason."""


class NoDaemonError(CacheError):
    """No daemon runs on this node."""


def _socket() -> str:
    """The socket of this user's daemon, found in the same way as by the tool."""
    named = os.environ.get("VARVE_CACHED_SOCKET")
    run = os.environ.get("XDG_RUNTIME_DIR")
    if named:
        return named + ".ctl"
    return f"{run}/varve-cached.sock.ctl" if run else f"/tmp/varve-{os.geteuid()}/cached.sock.ctl"


def _ask(command: str, lines: Iterable[bytes], timeout: Optional[float]) -> str:
    """Sends a command and returns the answer without its first line."""
    path = _socket()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(timeout)
        try:
            s.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as e:
            raise NoDaemonError(e.errno, f"{path}: no daemon runs here; start 'varve cached', or set VARVE_CACHED_SOCKET to its socket") from None
        waiting = bytearray(command.encode() + b"\n")
        try:
            for line in lines:
                waiting += line + b"\n"
                if len(waiting) >= _SEND_BYTES:
                    s.sendall(waiting)
                    waiting.clear()
            s.sendall(waiting)
            s.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass  # it has answered already
        answer = b"".join(iter(lambda: s.recv(_SEND_BYTES), b"")).decode(errors="replace")
    first, _, rest = answer.partition("\n")
    if first != "ok":
        raise CacheError(first[len("error: "):] if first.startswith("error: ") else "the daemon went away")
    return rest


def _lines(paths: Iterable[Path]) -> Iterable[bytes]:
    for path in paths:
        line = os.fsencode(os.path.abspath(os.fspath(path)))
        if b"\n" in line:
            raise ValueError(f"{path!r}: a path with a line break cannot be sent to the daemon")
        yield line


def order(files: Iterable[Any], path: Optional[Callable[[Any], Path]] = None, *, here: bool = False, timeout: Optional[float] = 60) -> str:
    """Declares that the files will be read in this order, after those of earlier orders. The daemon brings them, and keeps those
    that are needed soonest. `files` are paths; with `path`, a function from a sampler's items to paths, they may be a sampler:

        order(sampler, lambda i: data.files[i])

    With `here` it is the order of the programs of this node only, and files of other nodes are brought to this node before they are
    opened. One process makes the call for all of them.

    Returns the daemon's answer: the number of files that will be brought, and those that will not, with reasons."""
    return _ask("bring here" if here else "bring order", _lines(files if path is None else map(path, files)), timeout)


def bring(files: Iterable[Path], *, timeout: Optional[float] = 60) -> str:
    """Brings files, in no particular order."""
    return _ask("bring", _lines(files), timeout)


def status(*, timeout: Optional[float] = 60) -> dict[str, Any]:
    """The figures of `varve cached status --json`."""
    found: dict[str, Any] = json.loads(_ask("status json", (), timeout))
    return found
