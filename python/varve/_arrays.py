# SPDX-License-Identifier: Apache-2.0
"""Address, type and shape of an array: for objects with the buffer protocol, `__array_interface__`,
`__cuda_array_interface__` or DLPack, and for PyTorch."""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, NamedTuple, Optional

_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
# DLDataTypeCode
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_DL_NAMES = {code: name for name, code in _CODES.items()}
_NATIVE = "<" if sys.byteorder == "little" else ">"


class Array(NamedTuple):
    pointer: int
    nbytes: int
    dtype: str  # "float32", "bfloat16"; NumPy's own word for types that have none, such as "|V12" or ">f4"
    shape: tuple[int, ...]
    order: str  # "C" or "F", as NumPy says it
    device: bool  # memory of a GPU
    readonly: bool
    stream: Optional[int]  # that the array's library works on; None: not known
    keep: object  # what keeps the memory there


class NotContiguousError(ValueError):
    """The array is not contiguous in memory."""


def _dtype_of(typestr: str) -> str:
    """NumPy's type string for a type of another library."""
    order, kind, size = typestr[0], typestr[1], typestr[2:]
    if kind == "b" and size == "1":
        return "bool"
    if kind in _KINDS and order in ("|", "=", _NATIVE):
        return f"{_KINDS[kind]}{int(size) * 8}"
    return typestr


def typestr_of(dtype: str) -> str:
    """The reverse. ValueError: NumPy does not have the type."""
    if dtype == "bool":
        return "|b1"
    for kind, name in _KINDS.items():
        if dtype.startswith(name) and dtype[len(name):].isdigit():
            size = int(dtype[len(name):]) // 8
            return f"{'|' if size == 1 else _NATIVE}{kind}{size}"
    if len(dtype) > 2 and dtype[0] in "<>|=":
        return dtype
    raise ValueError(f"NumPy has no type {dtype}")


def dlpack_of(dtype: str) -> tuple[int, int]:
    """DLPack's code and bits. ValueError: DLPack does not have the type."""
    if dtype == "bool":
        return _CODES["bool"], 8
    name = dtype.rstrip("0123456789")
    if name in _CODES and name != dtype:
        return _CODES[name], int(dtype[len(name):])
    raise ValueError(f"DLPack has no type {dtype}")


def _typestr_size(typestr: str) -> int:
    """Such as "<f8", "|S3", "<U3", "<M8[s]"."""
    found = re.match(r"[<>|=]([a-zA-Z])(\d+)", typestr)
    if found is None or found.group(1) == "O":
        raise TypeError(f"an array of {typestr} has no bytes of its own")
    return int(found.group(2)) * (4 if found.group(1) == "U" else 1)


def itemsize_of(dtype: str) -> int:
    if dtype == "bool":
        return 1
    return _typestr_size(dtype) if dtype[0] in "<>|=" else dlpack_of(dtype)[1] // 8


def _order(shape: tuple[int, ...], strides: Optional[tuple[int, ...]], itemsize: int) -> str:
    """"C" or "F". Strides in bytes."""
    if strides is None or 0 in shape:
        return "C"
    for order, axes in (("C", range(len(shape) - 1, -1, -1)), ("F", range(len(shape)))):
        step = itemsize
        for i in axes:
            if shape[i] != 1 and strides[i] != step:
                break
            step *= shape[i]
        else:
            return order
    raise NotContiguousError(f"an array of shape {shape} with strides {strides} is not contiguous; make a contiguous copy of it")


def _product(shape: tuple[int, ...]) -> int:
    n = 1
    for k in shape:
        n *= k
    return n


def _of_interface(found: dict[str, Any], device: bool, keep: object) -> Array:
    if getattr(getattr(keep, "dtype", None), "hasobject", False):
        raise TypeError("an array of Python objects, or with fields of them, has no bytes of its own")
    typestr, shape = found["typestr"], tuple(found["shape"])
    size = _typestr_size(typestr)
    pointer, readonly = found["data"] or (0, False)
    order = _order(shape, found.get("strides"), size)
    return Array(pointer or 0, size * _product(shape), _dtype_of(typestr), shape, order, device, bool(readonly),
                 found.get("stream"), keep)


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Buffer)]
_release_buffer.restype = None
_FORMATS = {"?": "bool", "c": "uint8", "e": "float16", "f": "float32", "d": "float64", "g": "|V16"}


def _of_buffer(array: Any) -> Array:
    """The memoryview keeps the memory alive and prevents resizing; the structure has its address, even if
    the memory cannot be written to."""
    view = memoryview(array)
    fmt = view.format.lstrip("@=" + _NATIVE)
    if fmt in _FORMATS:
        dtype = _FORMATS[fmt]
    elif fmt in ("b", "h", "i", "l", "q", "n"):
        dtype = f"int{view.itemsize * 8}"
    elif fmt in ("B", "H", "I", "L", "Q", "N"):
        dtype = f"uint{view.itemsize * 8}"
    else:
        dtype = f"|V{view.itemsize}"
    shape, readonly = tuple(view.shape or ()), view.readonly
    order = _order(shape, tuple(view.strides) if view.strides else None, view.itemsize)
    raw = _Buffer()
    _get_buffer(view, ctypes.byref(raw), 0x118 if readonly else 0x119)  # PyBUF_FULL_RO, PyBUF_FULL
    pointer = raw.buf or 0
    _release_buffer(ctypes.byref(raw))
    return Array(pointer, view.nbytes, dtype, shape, order, False, readonly, None, view)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED = 1, 2, 3, 13
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def _of_dlpack(array: Any) -> Array:
    """The capsule is not consumed: it keeps the memory, and releases it when it is deleted."""
    kind, _ = array.__dlpack_device__()
    if kind not in (DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED):
        raise TypeError(f"memory of DLPack's device type {kind} cannot be read")
    device = kind in (DL_CUDA, DL_CUDA_MANAGED)
    capsule = array.__dlpack__(stream=1) if device else array.__dlpack__()
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if t.lanes != 1 or t.code not in _DL_NAMES or t.bits % 8:
        raise TypeError(f"DLPack type ({t.code}, {t.bits}, {t.lanes}) is not known here")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] * t.bits // 8 for i in range(t.ndim)) if t.strides else None
    name = _DL_NAMES[t.code]
    dtype = "bool" if name == "bool" else f"{name}{t.bits}"
    order = _order(shape, strides, t.bits // 8)
    pointer = (t.data or 0) + t.byte_offset
    return Array(pointer, t.bits // 8 * _product(shape), dtype, shape, order, device, True, None, capsule)


def _of_torch(tensor: Any, torch: Any) -> Array:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError("a tensor that is sparse or quantized has no memory of one piece")
    if tensor.is_conj() or tensor.is_neg():
        raise NotContiguousError("a conjugate or negative view is not what its memory holds; use resolve_conj or resolve_neg")
    size = tensor.element_size()
    shape = tuple(tensor.shape)
    order = _order(shape, tuple(s * size for s in tensor.stride()), size)
    device = tensor.device.type == "cuda"
    if not device and tensor.device.type != "cpu":
        raise TypeError(f"memory of a device {tensor.device.type} cannot be read")
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if device else None
    return Array(tensor.data_ptr(), size * tensor.numel(), str(tensor.dtype)[6:], shape, order, device, False, stream, tensor)


def look(array: Any) -> Array:
    """TypeError: not an array. NotContiguousError: a view that is not contiguous in memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return _of_torch(array, torch)
    for name, device in (("__cuda_array_interface__", True), ("__array_interface__", False)):
        found = getattr(array, name, None)
        if found is not None:
            return _of_interface(found, device, array)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    try:
        return _of_buffer(array)
    except TypeError:
        raise TypeError(f"{type(array).__name__} is no array: it has neither the buffer protocol nor __array_interface__, "
                        "__cuda_array_interface__ or __dlpack__") from None


def new(dtype: str, shape: tuple[int, ...], order: str) -> Any:
    """New host memory of this type and shape: a NumPy array if NumPy is installed, otherwise a memoryview."""
    try:
        import numpy
    except ImportError:
        raw = memoryview(bytearray(itemsize_of(dtype) * _product(shape)))
        fmt = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B", "int8": "b", "bool": "?", "int16": "h",
               "uint16": "H", "uint32": "I", "uint64": "Q"}.get(dtype)
        return raw if fmt is None or 0 in shape or order == "F" else raw.cast(fmt, shape)
    try:
        kind = numpy.dtype(typestr_of(dtype))
    except ValueError:  # bfloat16 and the like
        return numpy.empty((*shape, itemsize_of(dtype)), dtype="u1", order="C")
    return numpy.empty(shape, dtype=kind, order="F" if order == "F" else "C")


def stream_of(stream: Any) -> Optional[int]:
    """The handle of a stream: a number, or a stream of PyTorch, CuPy, Numba, or with `__cuda_stream__`."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise TypeError(f"{type(stream).__name__} is no CUDA stream")
