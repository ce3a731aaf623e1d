"""Tensors as 8-bit floats with descales."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

from . import _structs as s
from ._devices import launch, serves, session_of
from ._dtypes import check_descale_rows, descale_shape, dtype_number
from ._launch import AXES, _view
from ._library import check, library

if TYPE_CHECKING:
    import torch

    from ._session import Session


def quantise(x: torch.Tensor, *, layout: str = "bhsd", rotate: int | None = None,
             descale_rows: int = 0, session: Session | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(x8, descale): x as float8_e4m3fn, and float32 [batch, heads]; x8 times descale is x, rounded to nearest.

    x: float16 or bfloat16, [batch, heads, seq, dim] (layout "bhsd") or [batch, seq, heads, dim] ("bshd"), dim a multiple of
    16. The descale of a head of a batch entry is its largest number / 448; with rotate a bound, a power of two over the root
    of the number of columns that are rotated together. NaN stays NaN. Infinity makes NaN of itself and the descale infinite,
    which attention() does not take. What attention() takes:

        (q8, of_q), (k8, of_k), (v8, of_v) = (fatune.quantise(x) for x in (q, k, v))
        out = fatune.attention(q8, k8, v8, descales=(of_q, of_k, of_v))

    descale_rows: 64 or 128: a descale of each block of so many rows, [batch, heads, blocks]; attention() wants the same
    number, for q, k and v alike. Outliers then cost the precision of their block alone. 0: one for all rows of a head.
    rotate: None, or a seed (an int): each row is first multiplied by random signs of the seed and by a Hadamard matrix.
    q . k stays as it is where both are rotated with one seed, and outliers are spread over the columns, which makes
    the error smaller. Do not rotate v. There are no gradients. On a CUDA device of sm_89 or later, or on the CPU after
    emulate("h200"). Raises TypeError and ValueError for a tensor that does not fit, and fatune.Error where the library
    refuses.
    """
    import torch
    if layout not in AXES:
        raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
    check_descale_rows(descale_rows)
    if rotate is not None and (isinstance(rotate, bool) or not hasattr(rotate, "__index__")):
        raise TypeError(f"rotate is {rotate!r}; allowed: None, or the int that is the seed of a rotation")
    if dtype_number(x) not in (s.FP16, s.BF16):
        raise TypeError(f"x is {x.dtype}; allowed: float16 or bfloat16")
    chosen = session_of(x.device) if session is None else session
    if chosen is None or not serves(chosen, x.device):
        raise ValueError(f"x is on {x.device}; allowed: a CUDA device, or the CPU with fatune.emulate(\"h200\")")
    view, (batch, sequence, heads, dim) = _view("x", x, AXES[layout])
    out = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    descale = x.new_empty(descale_shape(batch, heads, sequence, descale_rows), dtype=torch.float32)
    if out.numel() == 0:
        return out, descale
    arguments = s.QuantiseArguments(
        dtype=dtype_number(x), head_dim=dim, batch=batch, heads=heads, seqlen=sequence, x=view,
        out=_view("out", out, AXES[layout])[0], descale=descale.data_ptr(), rotate=int(rotate is not None),
        seed=index(rotate or 0) & 0xFFFFFFFFFFFFFFFF, descale_rows=descale_rows)
    check(launch(x.device, library().fatune_quantise, chosen.handle, arguments))
    return out, descale
