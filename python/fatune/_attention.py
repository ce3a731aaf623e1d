"""attention(): PyTorch tensors in and out, by address and strides, on the current stream."""

import functools
import math
import threading
import weakref

import ctypes as c

from . import _structs as s
from ._library import check, library
from ._session import Session

_CAUSAL = {False: s.CAUSAL_NONE, None: s.CAUSAL_NONE, True: s.CAUSAL_BOTTOM_RIGHT,
           "bottom-right": s.CAUSAL_BOTTOM_RIGHT, "top-left": s.CAUSAL_TOP_LEFT}
_AXES = {"bhsd": (0, 2, 1), "bshd": (0, 1, 2)}  # where batch, sequence, head are
_local = threading.local()


@functools.lru_cache(maxsize=None)
def _torch():
    import torch
    return torch


@functools.lru_cache(maxsize=None)
def _dtypes():
    torch = _torch()
    return {torch.float16: s.FP16, torch.bfloat16: s.BF16}


@functools.lru_cache(maxsize=None)
def default_session(device=None):
    """The session that attention() uses on a GPU; made at the first call."""
    return Session(device=device)


def _make_context_current(device):
    """The library launches in the context that is current; a thread that has not used CUDA yet has
    none. The runtime makes it so at the first call that needs one, such as recording an event."""
    used = _local.__dict__.setdefault("devices", set())
    if device not in used:
        torch = _torch()
        with torch.cuda.device(device):
            torch.cuda.Event().record()
        used.add(device)


def _view(name, tensor, axes):
    """struct fatune_tensor of a tensor, and (batch, sequence, heads, dim)."""
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 4")
    shape, strides = tensor.shape, tensor.stride()
    if strides[3] != 1 and shape[3] > 1:
        raise ValueError(f"{name} has stride {strides[3]} in its last dimension; allowed: 1 "
                         "(make it contiguous)")
    batch, seq, head = axes
    view = s.Tensor(tensor.data_ptr(), strides[batch], strides[seq], strides[head])
    return view, (shape[batch], shape[seq], shape[head], shape[3])


def _check_inputs(q, k, v):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.device.type != "cuda" or tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}; allowed: one CUDA device for q, k, v")
        if tensor.dtype != q.dtype or tensor.dtype not in _dtypes():
            raise TypeError(f"{name} is {tensor.dtype}; allowed: float16 or bfloat16, the same for "
                            "q, k, v")
    # Silence would lose gradients.
    if _torch().is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise NotImplementedError("fatune has no backward pass yet; call it under torch.no_grad()")


def _check_shapes(q, k, v):
    (b, _, hq, d), (bk, nk, hkv, dk), (bv, nv, hv, _) = q, k, v
    if bk != b or bv != b:
        raise ValueError(f"batches of q, k, v are {b}, {bk}, {bv}; allowed: equal ones")
    if (nv, hv) != (nk, hkv):
        raise ValueError(f"v has {nv} keys and {hv} heads; allowed: those of k, {nk} and {hkv}")
    if dk != d:
        raise ValueError(f"the head dim of k is {dk}; allowed: that of q, {d}")
    if hkv == 0 or hq % hkv != 0:
        raise ValueError(f"q has {hq} heads; allowed: a multiple of k's, {hkv}")


def _set_seed(arguments, name, value):
    """A number, or a CUDA tensor of one 64-bit integer that is read when the kernel runs."""
    if hasattr(value, "data_ptr"):
        if value.element_size() != 8 or value.device.type != "cuda":
            raise TypeError(f"{name} is {value.dtype} on {value.device}; allowed: an int, or an "
                            "int64 CUDA tensor")
        setattr(arguments, name + "_device", value.data_ptr())
    else:
        setattr(arguments, name, value & 0xFFFFFFFFFFFFFFFF)


def attention(q, k, v, *, causal=False, scale=None, dropout=0.0, seed=0, offset=0, mask=None,
              layout="bhsd", return_lse=False, out=None, session=None):
    """O = softmax(scale Q K^T + mask) V on the current stream; returns O, or (O, LSE).

    q: [batch, heads, seq, dim] (layout "bhsd", as PyTorch's SDPA) or [batch, seq, heads, dim]
    ("bshd"); k, v likewise, with as many heads or a divisor of them. float16 or bfloat16, last
    dimension contiguous, any other strides that are multiples of 8.
    causal: False; "bottom-right" or True: query i sees keys j <= i + seq_k - seq_q, as
    FlashAttention; "top-left": j <= i, as SDPA's is_causal. For equal lengths both are the same.
    dropout: probability; the mask is a function of seed and offset (ints, or int64 CUDA tensors,
    which a captured graph reads anew at every replay).
    mask: a BlockMask. A query that sees no key gives O = 0, LSE = -inf.
    out: where O goes, in the layout; else a new tensor. LSE is float32 [batch, heads, seq].
    No gradients: there is no backward pass yet.
    """
    torch = _torch()
    if layout not in _AXES:
        raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
    if causal not in _CAUSAL:
        raise ValueError(f"causal is {causal!r}; allowed: False, True, 'bottom-right', 'top-left'")
    axes = _AXES[layout]
    _check_inputs(q, k, v)
    arguments = s.Arguments()
    arguments.q, q_shape = _view("q", q, axes)
    arguments.k, k_shape = _view("k", k, axes)
    arguments.v, v_shape = _view("v", v, axes)
    _check_shapes(q_shape, k_shape, v_shape)
    batch, nq, hq, head_dim = q_shape
    o_shape = (batch, nq, hq, v_shape[3]) if layout == "bshd" else (batch, hq, nq, v_shape[3])
    if out is None:
        out = torch.empty(o_shape, dtype=q.dtype, device=q.device)
    elif tuple(out.shape) != o_shape or out.dtype != q.dtype or out.device != q.device:
        raise ValueError(f"out is {tuple(out.shape)} {out.dtype}; allowed: {o_shape} {q.dtype}")
    arguments.o, _ = _view("out", out, axes)
    lse = None
    if return_lse:
        lse = torch.empty((batch, hq, nq), dtype=torch.float32, device=q.device)
        arguments.lse = lse.data_ptr()
    if out.numel() == 0:  # nothing to do, and the library asks for at least one row
        return (out, lse) if return_lse else out
    arguments.batch, arguments.heads_q, arguments.heads_kv = batch, hq, k_shape[2]
    arguments.seqlen_q, arguments.seqlen_k = nq, k_shape[1]
    if scale is not None and not scale > 0:  # to the library 0 would mean its default
        raise ValueError(f"scale is {scale}; allowed: > 0, or None for 1 / sqrt(head dim)")
    arguments.scale = 1 / math.sqrt(head_dim) if scale is None else scale
    arguments.dropout = dropout
    _set_seed(arguments, "seed", seed)
    _set_seed(arguments, "offset", offset)

    request = s.Request(
        pass_=s.FORWARD, dtype=_dtypes()[q.dtype], head_dim=head_dim, head_dim_v=v_shape[3],
        causal=_CAUSAL[causal], dropout=int(dropout > 0), batch=batch, heads_q=hq,
        heads_kv=k_shape[2], seqlen_q=nq, seqlen_k=k_shape[1])
    if mask is not None:
        request.mask_rows, request.mask_cols = mask.rows, mask.cols
        request.mask_density = max(mask.density, 2.0**-20)
        arguments.mask = mask.handle
    if session is None:
        session = mask.session if mask is not None else default_session(q.device.index)
    _make_context_current(q.device.index)
    stream = torch.cuda.current_stream(q.device).cuda_stream
    session.cached_plan(request).run(arguments, stream)
    return (out, lse) if return_lse else out


class BlockMask:
    """A block-sparse mask, turned into index lists on the GPU once and used by any number of calls.

    blocks: a bool or uint8 tensor, [row_blocks, col_blocks] or [batch, heads, row_blocks,
    col_blocks], non-zero: keep; a batch or heads of 1 serves all. rows, cols: the size of one block,
    multiples of 16. nq, nk: the lengths. Blocks that are off are never loaded.
    """

    def __init__(self, blocks, rows, cols, nq, nk, session=None):
        torch = _torch()
        if blocks.dim() == 2:
            blocks = blocks[None, None]
        wanted = (-(-nq // rows), -(-nk // cols)) if rows > 0 and cols > 0 else None
        if blocks.dim() != 4 or tuple(blocks.shape[2:]) != wanted:
            raise ValueError(f"blocks is {tuple(blocks.shape)}; allowed: {wanted}, or [batch, heads] "
                             "before that")
        if blocks.dtype not in (torch.bool, torch.uint8):
            raise TypeError(f"blocks is {blocks.dtype}; allowed: bool, uint8")
        on_device = blocks.device.type == "cuda"
        if session is None:
            session = default_session(blocks.device.index if on_device
                                      else torch.cuda.current_device())
        blocks = blocks.contiguous()
        options = s.MaskOptions(
            blocks=blocks.data_ptr(), on_device=int(on_device), mask_rows=rows, mask_cols=cols,
            batch=blocks.shape[0], heads=blocks.shape[1], seqlen_q=nq, seqlen_k=nk)
        stream = torch.cuda.current_stream(blocks.device if on_device else None).cuda_stream
        lib = library()
        self.session, self.rows, self.cols, self.nq, self.nk = session, rows, cols, nq, nk
        self.handle = c.c_void_p()
        check(lib.fatune_mask_make(self.handle, session.handle, options, stream))
        # Freeing device memory waits for the runs that still read it.
        self._free = weakref.finalize(self, lib.fatune_mask_free, self.handle)
        self._free.atexit = False
        self.density = lib.fatune_mask_density(self.handle)
