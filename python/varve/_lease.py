# SPDX-License-Identifier: Apache-2.0
"""Memory of the cache lent to the program, without a copy."""
from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _arrays, _layout
from ._lib import BusyError, ClosedError, check, lib

if TYPE_CHECKING:
    from ._history import History

_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_new.restype = ctypes.py_object
_capsule_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
# The capsule keeps the pointer to its name.
_NAME = ctypes.c_char_p(b"dltensor")

# Capsules that no library has consumed yet, with their tensors. A capsule has no destructor, because one in Python would
# be called after the interpreter has ended. So _sweep finds those without other references.
_offered: list[tuple[Any, int]] = []


def _references(entry: tuple[Any, int]) -> int:
    capsule, _ = entry
    return sys.getrefcount(capsule)


# The reference count of a capsule that only its entry holds: it differs between versions of Python.
_ALONE = _references((object(), 0))


def _sweep() -> None:
    for entry in list(_offered):
        # The order matters: no thread can consume a capsule without other references.
        alone = _references(entry) <= _ALONE
        taken = not _capsule_valid(entry[0], _NAME)
        if alone or taken:
            try:
                _offered.remove(entry)
            except ValueError:  # another thread's
                continue
            if not taken:
                lib.varve_dlpack_delete(entry[1])


class Lease:
    """One region of a version in the fastest cache, read-only. NumPy, CuPy, JAX and PyTorch import it
    by `from_dlpack(lease)`, NumPy also by `asarray`. The region is given back when the lease has been released or deleted, and
    all arrays made from it by DLPack have been deleted. Arrays made by `asarray` keep the lease, which must then not be released
    explicitly.

    `with h.acquire(v) as lease:` releases it at the end."""

    def __init__(self, history: History, version: int, region: int, dtype: str, shape: tuple[int, ...], stream: Optional[int],
                 timeout_ms: int) -> None:
        self.version, self.dtype, self.shape = version, dtype, shape
        self._history, self._region, self._timeout_ms = history, region, timeout_ms
        self._tensor: Optional[int] = None
        self._released = False
        self._stream = 0
        # Without a stream, the first library that imports the memory decides; if only one stream is possible, use it at once.
        if stream is not None or not history._context.has_gpu:
            self._acquire(stream or 0)

    def _acquire(self, stream: int) -> int:
        if self._released:
            raise ClosedError("the lease was released")
        if self._tensor is not None:
            if stream != self._stream:
                raise BusyError(16, f"version {self.version} is lent on another stream: acquire it with stream=")
            return self._tensor
        try:
            code, bits = _arrays.dlpack_of(self.dtype)
            shape = self.shape
        except ValueError:  # as bytes
            code, bits, shape = 1, 8, (*self.shape, _arrays.itemsize_of(self.dtype))
        dims = (ctypes.c_int64 * len(shape))(*shape)
        kind = _layout.varve_dlpack_type(code, bits, 1, len(shape), dims and ctypes.addressof(dims))
        tensor = ctypes.c_void_p()
        with self._history._using() as h:
            check(lib.varve_acquire_dlpack(h, self.version, self._region, stream, self._timeout_ms, ctypes.byref(kind),
                                           ctypes.byref(tensor)), self._history._context._ptr)
        assert tensor.value is not None
        self._tensor, self._stream = tensor.value, stream
        return tensor.value

    def _look(self) -> _arrays._DLTensor:
        return _arrays._DLTensor.from_address(self._acquire(self._stream))

    @property
    def pointer(self) -> int:
        return self._look().data or 0

    @property
    def device(self) -> bool:
        """True for memory of a GPU."""
        return bool(self._look().device_type == _arrays.DL_CUDA)

    def release(self) -> None:
        """Gives the memory back, or, if arrays made by DLPack still use it, together with the last of them."""
        tensor, self._tensor, self._released = self._tensor, None, True
        if tensor is not None:
            lib.varve_dlpack_delete(tensor)
            _sweep()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self, _delete: Callable[[int], None] = lib.varve_dlpack_delete) -> None:
        # At exit the modules may be empty, so the function is a default argument.
        if getattr(self, "_tensor", None) is not None:
            _delete(self._tensor)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._tensor is None and self._history._context.has_gpu and not self._released:
            return _arrays.DL_CUDA, self._history._context.device_id
        t = self._look()
        return t.device_type, t.device_id

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if copy:
            raise BufferError("a lease cannot be copied: take it without a copy, and copy that")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on device {self.__dlpack_device__()}, not {tuple(dl_device)}")
        # 1 is the legacy default stream, which is 0 to the library; -1: the consumer does not wait.
        handle = self._stream if stream == -1 else 0 if stream is None or stream < 2 else stream
        tensor = self._acquire(handle)
        shared = ctypes.c_void_p()
        check(lib.varve_dlpack_share(tensor, ctypes.byref(shared)))
        assert shared.value is not None
        capsule = _capsule_new(shared.value, _NAME, None)
        _sweep()
        _offered.append((capsule, shared.value))
        return capsule

    def _interface(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": _arrays.typestr_of(self.dtype), "version": 3, "strides": None,
                "data": (self.pointer, True)}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device:
            raise AttributeError("__array_interface__: it is memory of a GPU")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._history._context.has_gpu or not self.device:
            raise AttributeError("__cuda_array_interface__: it is host memory")
        return {**self._interface(), "stream": self._stream or 1}
