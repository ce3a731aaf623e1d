"""Results of separate calls put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _structs as s
from ._captured import check_sinks
from ._checks import check_session, check_tensors
from ._devices import launch, serves, session_of
from ._dtypes import dtype_number
from ._launch import AXES, _view
from ._library import check, library

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ._session import Session


def _check_part(name, out, lse, first, layout):
    if out.shape != first.shape or out.dtype != first.dtype or out.device != first.device:
        raise ValueError(f"{name}[0] is {tuple(out.shape)} {out.dtype} on {out.device}; allowed: as that of the first "
                         f"part, {tuple(first.shape)} {first.dtype} on {first.device}")
    batch, sequence, head = AXES[layout]
    shape = (first.shape[batch], first.shape[head], first.shape[sequence])
    strides = (shape[1] * shape[2], shape[2], 1)
    dense = all(extent == 1 or a == b for extent, a, b in zip(shape, lse.stride(), strides))
    if (tuple(lse.shape) != shape or not str(lse.dtype).endswith("float32") or lse.device != first.device
            or not (dense or 0 in shape)):
        raise ValueError(f"{name}[1] is {tuple(lse.shape)} {lse.dtype} on {lse.device}; allowed: LSE as attention() gives "
                         f"it, contiguous {shape} float32 on {first.device}")


def merge(parts: Iterable[tuple[torch.Tensor, torch.Tensor]], *, layout: str = "bhsd",
          session: Session | None = None, sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) of one attention that sees the keys of all parts, from those of attentions that saw some of them each.

    parts: pairs (out, lse) of attention(..., return_lse=True) with the same queries, for instance on a shared prefix
    and on what follows it, or on keys of several devices; or of decode(), whose layout is "bshd". LSE is the natural
    logarithm; a row whose part saw no key has -inf there and changes nothing. Parts are summed in fp32 in the order given,
    the same bits each time. Add sinks once: by `sinks`, as attention() takes them, or in one of the parts. There are no
    gradients. layout, session: as in attention(). Raises ValueError for parts that do not fit, and fatune.Error where the
    library refuses.
    """
    check_session(session)
    if not hasattr(parts, "__iter__"):
        raise TypeError(f"parts is {type(parts).__name__}; allowed: pairs (out, lse)")
    parts = list(parts)
    if not parts:
        raise ValueError("parts is empty; allowed: at least one pair (out, lse)")
    for number, part in enumerate(parts):
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise TypeError(f"parts[{number}] is {type(part).__name__}; allowed: a pair (out, lse)")
        check_tensors({f"parts[{number}][{which}]": tensor for which, tensor in enumerate(part)})
    if layout not in AXES:
        raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
    first = parts[0][0]
    if first.dim() != 4:
        raise ValueError(f"parts[0][0] has {first.dim()} dimensions; allowed: 4")
    if dtype_number(first) not in (s.FP16, s.BF16, s.FP32):
        raise TypeError(f"parts[0][0] is {first.dtype}; allowed: float16, bfloat16 or float32")
    chosen = session_of(first.device) if session is None else session
    if chosen is None or not serves(chosen, first.device):
        raise ValueError(f"parts are on {first.device}; allowed: a CUDA device, or the CPU with fatune.emulate(\"a100\")")
    for number, (out, lse) in enumerate(parts):
        _check_part(f"parts[{number}]", out, lse, first, layout)
    if sinks is not None:
        check_tensors({"sinks": sinks})
        check_sinks(sinks, first.shape[AXES[layout][2]], first.device)
    out, lse = first.new_empty(first.shape), parts[0][1].new_empty(parts[0][1].shape)
    if out.numel() == 0:
        return out, lse
    while len(parts) > s.MERGE_PARTS:  # what is merged is the first of the next ones
        _launch(chosen, parts[:s.MERGE_PARTS], out, lse, layout, None)
        parts = [(out, lse), *parts[s.MERGE_PARTS:]]
    _launch(chosen, parts, out, lse, layout, sinks)
    return out, lse


def _launch(session, parts, out, lse, layout, sinks=None):
    structs = (s.Part * len(parts))(*(s.Part(_view("parts", part, AXES[layout])[0], sums.data_ptr())
                                      for part, sums in parts))
    view, (batch, sequence, heads, dim) = _view("out", out, AXES[layout])
    arguments = s.MergeArguments(dtype=dtype_number(out), head_dim_v=dim, batch=batch, heads_q=heads, seqlen_q=sequence,
                                 o=view, lse=lse.data_ptr(), parts=structs, part_count=len(parts),
                                 sinks=None if sinks is None else sinks.data_ptr())
    check(launch(out.device, library().fatune_merge, session.handle, arguments))
