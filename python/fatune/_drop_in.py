"""Attention under the name, signature and meaning of PyTorch's."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from . import _attention
from ._attention import attention, intercepted, transform_of
from ._devices import found, found_session, serves_device
from ._launch import GROUPED, O_AS_BSHD, as_input
from ._library import NO_NVRTC, UNSUPPORTED, Error
from ._ways import DIM_MOST, Way, dim_of_kernel, score_of

if TYPE_CHECKING:
    import torch

_SERVED_MOST = 4096  # of a session; then all are forgotten
_warned: set[str] = set()


class FallbackWarning(UserWarning):
    """Says, once for each reason, that PyTorch computes what was asked of fatune."""


def _fall_back(reason):
    import torch
    if not torch.compiler.is_compiling() and reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"PyTorch's attention is used in place of fatune's: {reason}. This is said once.",
                      FallbackWarning, stacklevel=4)


def _why_not_tensors(torch, query, key, value):
    if not query.dim() == key.dim() == value.dim() in (3, 4):
        return f"query, key, value have {query.dim()}, {key.dim()}, {value.dim()} dimensions; fatune serves 3 or 4"
    if query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"query is {query.dtype}; fatune serves float16, bfloat16 and float32"
    if not query.dtype == key.dtype == value.dtype or not query.device == key.device == value.device:
        return "query, key, value differ in dtype or device"
    if not serves_device(query.device):
        return f"query is on {query.device}; fatune serves CUDA devices, and the CPU by fatune.emulate"
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return "a tensor is empty"
    return None


def _why_not_transformed(torch, *tensors):
    transform = None if torch.compiler.is_compiling() else transform_of(torch, *tensors)
    return None if transform is None else f"it is under {transform}"


def _why_not_shapes(query, key, value, enable_gqa):
    for name, dim in (("query", query.shape[-1]), ("value", value.shape[-1])):
        if dim > DIM_MOST:
            return f"the head dim of {name} is {dim}; fatune serves 1 to {DIM_MOST}"
    if key.shape[-1] != query.shape[-1] or key.shape[:-1] != value.shape[:-1] or key.shape[0] != query.shape[0]:
        return (f"query, key, value are {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}, which do not fit each "
                "other")
    if query.dim() == 4 and query.shape[1] != key.shape[1] and not (enable_gqa and query.shape[1] % key.shape[1] == 0):
        return "query and key differ in heads" + ("" if enable_gqa else " without enable_gqa")
    return None


def _why_not_mask(torch, query, key, value, attn_mask, is_causal):
    if attn_mask is None:
        return None
    if is_causal:
        return "attn_mask comes with is_causal"
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype) or attn_mask.device != query.device:
        return f"attn_mask is {attn_mask.dtype} on {attn_mask.device}"
    wanted = (*query.shape[:-1], key.shape[-2])
    if attn_mask.dim() > len(wanted) or any(have not in (1, want) for have, want in zip(
            reversed(attn_mask.shape), reversed(wanted))):
        return f"attn_mask is {tuple(attn_mask.shape)}, which does not fit {wanted}"
    if attn_mask.requires_grad and torch.is_grad_enabled() and (
            torch.compiler.is_compiling() or intercepted(torch, query, key, value)):
        return "attn_mask requires gradients under torch.compile or tracing"
    return None


def _broadcast(torch, tensors, enable_gqa):
    """The tensors with the dimensions before the last two that their matrix products have, but for heads that are grouped.
    What cannot be so stays as it is."""
    own = -3 if enable_gqa else -2
    leading = [tensor.shape[:own] for tensor in tensors]
    if leading[0] == leading[1] == leading[2]:
        return tensors
    try:
        common = torch.broadcast_shapes(*leading)
    except RuntimeError:
        return tensors
    return [tensor.expand(*common, *tensor.shape[own:]) for tensor in tensors]


def _widened(tensor):
    """The tensor, or one of a head dim that kernels have, with zeros behind; as an operator."""
    import torch
    more = dim_of_kernel(tensor.shape[-1]) - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, more)) if more else tensor


def readable(tensor):
    """The tensor, or a copy that the library can read. A compiled graph does not know addresses."""
    import torch
    if torch.compiler.is_compiling():
        return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
    return as_input(tensor)


def _score_of(attn_mask, shape):
    """A dense mask or bias as a score function; dimensions of 1 are shared by strides of 0."""
    if attn_mask is None:
        return {}
    score, name = score_of(attn_mask)
    return {"score": score, "captured": {name: attn_mask.expand(shape)}}


def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
         dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
         enable_gqa: bool = False) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention by fatune, by PyTorch where fatune does not serve the case.

    query: [batch, heads, seq, dim] or [batch, seq, dim]; key, value likewise; what is before seq is broadcast, or with
    enable_gqa heads are a divisor of query's. attn_mask: None; bool, True: the query sees the key; or float32 or query's
    dtype, added to the scaled scores; broadcastable to [batch, heads, seq of query, seq of key]. dropout_p: probability; its mask is drawn
    from PyTorch's generator. is_causal: query i sees keys j <= i. scale: None: 1 / sqrt(dim).
    Returns [batch, heads, seq, dim of value], in memory as [batch, seq, heads, dim].

    fatune serves float16 and bfloat16, and float32 from sm_80 on, with head dims up to 256; not gradients of attn_mask under
    torch.compile. Where a head dim is under 16 or no multiple of 8, copies are made with zeros up to the next one, and O is a
    part of such memory. Gradients are deterministic where torch.use_deterministic_algorithms is on. float32 is cast where autocast is on, and multiplied as TF32 where PyTorch's matrix products are
    (torch.set_float32_matmul_precision). What is not served PyTorch computes, and a FallbackWarning says why, once for each
    reason. Arguments that are wrong for PyTorch raise what PyTorch raises. A query that sees no key gives 0.
    """
    import torch
    seen, compiling = None, torch.compiler.is_compiling()
    if attn_mask is None and not compiling and not dropout_p and _attention._again is not None:
        try:  # Only what was served before has a layout of these.
            made = _attention._again(found, None, False, query, key, value, None, 0, None, "top-left" if is_causal else False, None, scale, 0.0,
                                    None, GROUPED if enable_gqa else O_AS_BSHD, None, torch.are_deterministic_algorithms_enabled(), None,
                                    None, None, None, None, None, 0, False)
            if made is not None:
                return made
        except Error:  # a tensor is at an odd address, perhaps
            pass
    if not compiling and type(query) is torch.Tensor and (
            torch._C._functorch.peek_interpreter_stack() is None) and not (
            query.dtype == torch.float32 and torch.is_autocast_enabled(query.device.type)):
        session = found_session(query.device)
        if session is not None and session.key is not None:
            seen = (session.key(query, key, value), None if attn_mask is None else _kind_of_mask(torch, attn_mask), is_causal,
                    scale, enable_gqa)
            way = session.served.get(seen)
            if way is not None and (way.widens or (query.data_ptr() | key.data_ptr() | value.data_ptr()) % 16 == 0):
                if way.plain:
                    try:
                        return attention(query, key, value, causal="top-left" if is_causal else False, scale=scale,
                                         dropout=dropout_p, layout=GROUPED if enable_gqa else O_AS_BSHD, tf32=None,
                                         deterministic=torch.are_deterministic_algorithms_enabled())
                    except NotImplementedError:  # of a transform, by which they are as they were
                        pass
                elif way.takes_addresses(query, key, value) and not intercepted(torch, query, key, value):
                    return way.run(query, key, value, attn_mask, dropout_p)
    if not all(isinstance(tensor, torch.Tensor) for tensor in (query, key, value)):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)  # says so
    if torch.is_autocast_enabled(query.device.type) and torch.float32 in (query.dtype, key.dtype, value.dtype):
        dtype, seen = torch.get_autocast_dtype(query.device.type), None  # as PyTorch's own
        query, key, value = (tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
                             for tensor in (query, key, value))
    given = query, key, value
    query, key, value = _broadcast(torch, given, enable_gqa)
    reason = (_why_not_transformed(torch, query, key, value) or _why_not_tensors(torch, query, key, value) or _why_not_shapes(query, key, value, enable_gqa)
              or _why_not_mask(torch, query, key, value, attn_mask, is_causal))
    if reason is None and scale is not None and not scale > 0:
        reason = f"scale is {scale}"
    if reason is None:
        try:
            if torch.compiler.is_compiling() or intercepted(torch, query, key, value) or _captures_graph(torch, query):
                return _served(query, key, value, attn_mask, dropout_p, is_causal, scale)
            return _served_anew(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa,
                                seen if all(now is before for now, before in zip((query, key, value), given)) else None)
        except Error as error:
            if error.status not in (UNSUPPORTED, NO_NVRTC):
                raise
            reason = str(error)
    _fall_back(reason)
    return torch.nn.functional.scaled_dot_product_attention(
        *given, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
        enable_gqa=enable_gqa)


def _kind_of_mask(torch, attn_mask):
    """What tells masks apart, or False where nothing does."""
    if type(attn_mask) is not torch.Tensor and type(attn_mask) is not torch.nn.Parameter:
        return False
    return attn_mask.shape, attn_mask.stride(), attn_mask.dtype, attn_mask.device


def _captures_graph(torch, query):
    return query.is_cuda and torch.cuda.is_current_stream_capturing()


def _served_anew(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, seen):
    """By a Way, which is remembered if others of a kind seen go by it as they lie."""
    flat = query.dim() == 3
    if flat:
        query, key, value, seen = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), None
        attn_mask = attn_mask.unsqueeze(1) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
    way = Way(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    remembers = seen is not None and seen[0] is not None and seen[1] is not False and way.takes(query, key, value)
    out = way.run(*(as_input(tensor) for tensor in (query, key, value)), attn_mask, dropout_p)
    if remembers:
        _remember(query.device, seen, way)
    return out.squeeze(1) if flat else out


def _remember(device, seen, way):
    """Of tensors like these: how they are served. The next time they go there without questions."""
    served = found_session(device).served
    if len(served) >= _SERVED_MOST:
        served.clear()
    served[seen] = way


def _served(query, key, value, attn_mask, dropout_p, is_causal, scale):
    """By operators, for whoever looks at these."""
    from torch import are_deterministic_algorithms_enabled
    shape = (*query.shape[:-1], key.shape[-2])
    options = _score_of(attn_mask, shape)
    if query.dim() == 3:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        options = _score_of(attn_mask.expand(shape).unsqueeze(1), (shape[0], 1, *shape[1:])) if options else {}
        flat = True
    else:
        flat = False
    dim, dim_v = query.shape[-1], value.shape[-1]
    if scale is None and dim_of_kernel(dim) != dim:
        scale = 1 / math.sqrt(dim)
    query, key, value = (readable(_widened(tensor).transpose(1, 2)) for tensor in (query, key, value))
    out = attention(query, key, value, causal="top-left" if is_causal else False, scale=scale, dropout=dropout_p,
                    layout="bshd", tf32=None, deterministic=are_deterministic_algorithms_enabled(),
                    **options).transpose(1, 2)
    out = out if out.shape[-1] == dim_v else out[..., :dim_v]
    return out.squeeze(1) if flat else out
