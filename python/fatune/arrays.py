"""Attention for arrays that are not PyTorch's: whatever speaks DLPack, and NumPy.

    import numpy as np
    from fatune import arrays

    session = fatune.Session(emulate="a100")     # NumPy's arrays are in the CPU's memory; CuPy's need no session
    out, lse = arrays.attention(q, k, v, causal=True, return_lse=True, session=session)
    dq, dk, dv = arrays.attention_backward(dout, q, k, v, out, lse, causal=True, session=session)

Arrays are read where they lie, by address and strides (https://dmlc.github.io/dlpack/latest/); results are new arrays of
the same library, made by its `empty`. NumPy is tested; CuPy goes the same way. JAX's arrays can be read, but none can be
written, so `out` has to be an array of a library whose arrays can.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import sys
from typing import TYPE_CHECKING

from ._devices import Device, default_session
from ._launch import Call, dense

if TYPE_CHECKING:
    from typing import Any

    from ._session import Session

_CPU, _CUDA, _CUDA_MANAGED = 1, 2, 13
_NAMES = {(2, 16): "float16", (4, 16): "bfloat16", (2, 32): "float32", (0, 32): "int32", (0, 64): "int64",
          (1, 8): "uint8", (1, 64): "uint64", (6, 8): "bool"}


class _DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int), ("device_id", c.c_int), ("ndim", c.c_int),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


_pointer_of = c.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c.c_void_p, (c.py_object, c.c_char_p)


class View:
    """An array as much like a tensor of PyTorch's as the launch code asks for."""

    def __init__(self, name, array, stream):
        self.array = array
        if hasattr(array, "__array_interface__"):  # NumPy: DLPack has no word for its bfloat16, nor for read-only
            self._of_numpy(array)
        elif hasattr(array, "__dlpack__"):
            self._of_dlpack(array, stream)
        else:
            raise TypeError(f"{name} is {type(array).__name__}; allowed: an array with __dlpack__ or "
                            "__array_interface__")

    def _of_numpy(self, array):
        self.shape, self.dtype, self.device = tuple(array.shape), array.dtype.name, Device("cpu", None, None)
        self._address = array.__array_interface__["data"][0]
        self._strides = tuple(stride // array.dtype.itemsize for stride in array.strides)
        self._bytes = array.dtype.itemsize

    def _of_dlpack(self, array, stream):
        type_, index = array.__dlpack_device__()
        # The producer makes the consumer's stream wait for what it has under way. 1: the default stream.
        self._capsule = array.__dlpack__(stream=stream or 1) if type_ in (_CUDA, _CUDA_MANAGED) else array.__dlpack__()
        tensor = _DLTensor.from_address(_pointer_of(self._capsule, b"dltensor"))
        self.shape = tuple(tensor.shape[n] for n in range(tensor.ndim))
        self._strides = tuple(tensor.strides[n] for n in range(tensor.ndim)) if tensor.strides else dense(self.shape)
        self.dtype = _NAMES.get((tensor.code, tensor.bits), f"DLPack type {tensor.code} of {tensor.bits} bits")
        self.device = Device("cpu" if type_ == _CPU else "cuda" if type_ in (_CUDA, _CUDA_MANAGED) else f"device {type_}",
                             None if type_ == _CPU else index, stream)
        self._address = (tensor.data or 0) + tensor.byte_offset
        self._bytes = tensor.bits // 8

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self._strides

    def data_ptr(self):
        return self._address

    def element_size(self):
        return self._bytes


def _empty_like(array, shape, dtype=None):
    """A new array of the array's library on its device, of its dtype if none is given."""
    library = type(array).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):
        raise TypeError("JAX's arrays cannot be written; allowed: out and lse given, arrays of NumPy or CuPy, which "
                        "jax.dlpack.from_dlpack or jax.numpy.asarray reads")
    # CuPy 14 and NumPy 1 have what the array API standard asks for, but do not say where.
    space = array.__array_namespace__() if hasattr(array, "__array_namespace__") else sys.modules.get(library)
    if not hasattr(space, "empty"):
        raise TypeError(f"{type(array).__name__} has no __array_namespace__ and {library} no empty() to make new arrays by; "
                        "allowed: out and lse given, or arrays of NumPy or CuPy")
    device = getattr(array, "device", None)
    with device if hasattr(device, "__enter__") else contextlib.nullcontext():  # CuPy's arrays lie on the current one
        return space.empty(shape, dtype=dtype or array.dtype)


def _start(named, stream, session, options):
    views = {name: View(name, array, stream) for name, array in named.items()}
    q = views["q"]
    if session is None and q.device.type == "cuda":
        session = default_session(q.device.index)
    captured = {name: value if getattr(value, "shape", ()) == () else View(name, value, stream)  # a number, an array
                for name, value in (options.pop("captured", None) or {}).items()}
    if q.dtype == "float8_e4m3fn":
        raise TypeError("q is float8_e4m3fn; allowed: float16, bfloat16 or float32 (fatune.attention takes PyTorch's)")
    known = {"causal": False, "window": None, "scale": None, "dropout": 0.0, "mask": None, "layout": "bhsd",
             "deterministic": False, "score": None, "visible": None, "tf32": False}
    for name in options:
        if name not in known:
            raise TypeError(f"unknown argument {name!r}; allowed: {', '.join(known)}, captured")
    call = Call(q, views["k"], views["v"], session=session, captured=captured, **{**known, **options})
    return views, call


def attention(q: Any, k: Any, v: Any, *, out: Any = None, lse: Any = None, return_lse: bool = False, seed: int = 0,
              offset: int = 0, stream: int | None = None, session: Session | None = None, **options: Any) -> Any:
    """O = softmax(scale Q K^T + mask) V; returns O, or (O, LSE).

    q: [batch, heads, seq, dim] (layout "bhsd") or [batch, seq, heads, dim] ("bshd"); k, v likewise, with as many heads or
    a divisor of them. float16, bfloat16 or float32, last dimension contiguous, rows and data 16-byte aligned.
    out, lse: where results go, of O's shape and dtype, and float32 [batch, heads, seq], dense; None: new arrays of q's
    library. stream: the CUstream to launch on, an int; None: the default stream. session: None: the default one of the
    arrays' GPU; arrays in CPU memory need one with emulate=. seed, offset: of dropout, ints. Else as fatune.attention:
    causal, window, scale, dropout, mask, layout, score, visible, tf32, captured (numbers and arrays).
    Raises TypeError and ValueError for arrays that do not fit, and fatune.Error where the library refuses.
    """
    views, call = _start({"q": q, "k": k, "v": v}, stream, session, options)
    out = _empty_like(q, call.o_shape) if out is None else out
    if lse is None and return_lse:
        lse = _empty_like(q, call.lse_shape, "float32")
    result = View("out", out, stream)
    if (result.shape, result.dtype) != (call.o_shape, views["q"].dtype):
        raise ValueError(f"out is {result.shape} {result.dtype}; allowed: {call.o_shape} {views['q'].dtype}")
    sums = None if lse is None else _statistic("lse", lse, call, stream)
    if 0 not in result.shape:
        call.forward(views["q"], views["k"], views["v"], result, sums, seed, offset,
                     _bytes_of(q, stream))
    return (out, lse) if return_lse else out


def _bytes_of(array, stream):
    return lambda size: View("workspace", _empty_like(array, (size,), "uint8"), stream)


def _statistic(name, array, call, stream):
    view = View(name, array, stream)
    if (view.shape, view.dtype, view.stride()) != (call.lse_shape, "float32", dense(call.lse_shape)):
        raise ValueError(f"{name} is {view.shape} {view.dtype}; allowed: dense {call.lse_shape} float32")
    return view


def attention_backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, dlse: Any = None, seed: int = 0,
                       offset: int = 0, stream: int | None = None, session: Session | None = None,
                       **options: Any) -> tuple[Any, Any, Any]:
    """(dQ, dK, dV), of the shapes of q, k, v, in new arrays of q's library.

    dout: the gradient of O, of its shape; dlse: that of LSE, or None. q, k, v, out, lse and all options as in the
    attention() call whose gradients are wanted; deterministic=True gives the same bits in every run. Errors likewise.
    """
    views, call = _start({"q": q, "k": k, "v": v, "o": out, "dout": dout}, stream, session, options)
    gradients = [_empty_like(array, array.shape) for array in (q, k, v)]
    views.update(zip(("dq", "dk", "dv"), (View(name, array, stream) for name, array in
                                          zip(("dq", "dk", "dv"), gradients))))
    for name in ("o", "dout"):
        if views[name].shape != call.o_shape:
            raise ValueError(f"{'out' if name == 'o' else name} is {views[name].shape}; allowed: {call.o_shape}")
    call.backward(views, _statistic("lse", lse, call, stream),
                  None if dlse is None else _statistic("dlse", dlse, call, stream), seed, offset,
                  _bytes_of(q, stream))
    return gradients[0], gradients[1], gradients[2]
