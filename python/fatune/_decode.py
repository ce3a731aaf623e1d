"""decode(): K and V in pages, found by a page table."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from . import _structs as s
from ._attention import seed_of
from ._autograd import bytes_of
from ._checks import check_int32, check_out, check_session, check_starts, check_tensors
from ._devices import launch
from ._launch import Call, _view
from ._library import check, library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import torch

    from ._session import Session


def _most_keys(max_length, room):
    """Of any batch entry, whose columns of the page table have room for so many."""
    if max_length is None:
        return room
    try:
        most = operator.index(max_length)
    except TypeError:
        raise TypeError(f"max_length is {max_length!r}; allowed: an int, or None") from None
    if not 1 <= most <= room:
        raise ValueError(f"max_length is {most}; allowed: 1 .. {room}, the columns of page_table x rows of a page, or None")
    return most


class _Call(Call):
    """A call whose K and V are pools [pages, rows of a page, heads, dim]."""
    names = "q", "k_pages", "v_pages"

    def __init__(self, q, k_pages, v_pages, page_table, lengths, starts, max_length, descales, **options):
        sequences = q.shape[0] if starts is None else check_starts("cu_seqlens_q", starts, q.device)
        columns = page_table.shape[1]
        pages, page = k_pages.shape[:2]
        check_int32("page_table", page_table, (sequences, columns), q.device, contiguous=False)
        check_int32("lengths", lengths, (sequences,), q.device)
        if page < 1 or page & (page - 1) or pages < 1 or columns < 1 or v_pages.shape[:2] != k_pages.shape[:2]:
            raise ValueError(f"k_pages has {pages} pages of {page} rows, v_pages {v_pages.shape[0]} of {v_pages.shape[1]}, "
                             f"page_table {columns} columns; allowed: at least one each, rows by a power of two, the same "
                             "of both")
        most = _most_keys(max_length, columns * page)
        batch = 1 if starts is not None else sequences
        # As if they were contiguous, for what Call knows of them.
        k, v = (pool[:1, :1].expand(batch, most, *pool.shape[2:]) for pool in (k_pages, v_pages))
        super().__init__(q, k, v, mask=False, layout="bshd", deterministic=False, **options)
        self._class["pages"], self._class["ragged"] = page, int(starts is not None)
        self._sizes["batch"] = sequences
        self.take_descales(descales, q, k)
        self.lengths = {"seqused_k": lengths} | ({} if starts is None else {"cu_seqlens_q": starts})
        if starts is not None:
            self.lse_shape = self.lse_shape[1:]
            self._sizes["seqlen_k"] = min(sequences * most, 1 << 30)
        self._pools = k_pages, v_pages
        self._table = s.PageTable(page_table.data_ptr(), *page_table.stride(), columns, pages)
        self._table_tensor, self._new_rows = page_table, None

    def has_rows(self):
        return super().has_rows() and self._sizes["batch"] > 0

    def take_new_rows(self, q, rows):
        """Rows of K and V, of as many tokens as q has, that are written before they are looked at."""
        for name, tensor, pool in zip(("new_k", "new_v"), rows, self._pools):
            shape = (*q.shape[:2], *pool.shape[2:])
            if tuple(tensor.shape) != shape or tensor.dtype != pool.dtype or tensor.device != q.device:
                raise ValueError(f"{name} is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}; allowed: {shape} "
                                 f"{pool.dtype} on {q.device}")
        self._new_rows = [_view(name, tensor, self._axes)[0] for name, tensor in zip(("new_k", "new_v"), rows)]

    def _run(self, plan, arguments):
        if self._new_rows is not None:
            check(launch(self.device, library().fatune_append, plan.handle, arguments, *self._new_rows))
        super()._run(plan, arguments)

    def _arguments(self, *tensors, **options):
        arguments = super()._arguments(*tensors, **options)
        arguments.page_table = self._table
        for name, tensor in self.lengths.items():
            setattr(arguments, name, tensor.data_ptr())
        return arguments


def decode(q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, page_table: torch.Tensor,
           lengths: torch.Tensor, *, new_k: torch.Tensor | None = None, new_v: torch.Tensor | None = None,
           cu_seqlens_q: torch.Tensor | None = None, max_length: int | None = None, causal: bool | str | None = True,
           window: tuple[int, int] | list[int] | None = None, scale: float | None = None, dropout: float = 0.0,
           seed: int | torch.Tensor | None = None, offset: int | torch.Tensor = 0, return_lse: bool = False,
           out: torch.Tensor | None = None, session: Session | None = None,
           score: str | Callable[..., Any] | None = None, visible: Callable[..., Any] | None = None,
           captured: Mapping[str, Any] | None = None, sinks: torch.Tensor | None = None,
           descales: Sequence[torch.Tensor | None] | None = None, out_dtype: torch.dtype | None = None) -> Any:
    """O of attention of a few queries, or many, to K and V that lie in pages; returns O, or (O, LSE).

    q: [batch, queries, heads, dim], the last queries of each batch entry: causal=True and window are aligned to the end of its
    keys ("top-left": to the first). Or, with cu_seqlens_q as in varlen(), [rows of all batch entries, heads, dim].
    k_pages, v_pages: [pages, rows of a page, heads, dim] in any order of strides (transpose what has heads before rows);
    a page has a power of two of rows. Both may be float8_e4m3fn beside a q of float16 or bfloat16, from sm_80 on.
    page_table: int32 on the device, [batch, columns]: row j of a batch entry is row j % (rows of a page) of the page in
    column j // (rows of a page). Batch entries may share pages. lengths: int32 on the device, [batch]: their keys. Both
    are read when the kernels run: nothing waits for them, and a captured graph reads them anew at every replay.
    FATUNE_CHECK=1 in the environment when the session is opened has them checked; the library calls lengths seqused_k.
    new_k, new_v: rows of K and V of the same tokens as q, with heads and dims of the pools, or None: they are first written
    into the pages, as the last keys of each batch entry, which lengths counts already. What would be before its first key is
    left out. No two batch entries may write one row.
    max_length: as many keys as any batch entry has, at most; it steers how the work is divided among the GPU. None: as
    many as the table has room for.
    descales: (None, of k_pages, of v_pages), float32 [batch, heads] each, or None for 1, where those are float8_e4m3fn.
    The rest is as in attention(). No gradients.
    """
    import torch
    check_session(session)
    optional = {"cu_seqlens_q": cu_seqlens_q, "new_k": new_k, "new_v": new_v, "sinks": sinks}
    check_tensors({"q": q, "k_pages": k_pages, "v_pages": v_pages, "page_table": page_table, "lengths": lengths,
                   **{name: tensor for name, tensor in optional.items() if tensor is not None}})
    for name, tensor, dims in (("q", q, 4 if cu_seqlens_q is None else 3), ("k_pages", k_pages, 4), ("v_pages", v_pages, 4),
                               ("page_table", page_table, 2)):
        if tensor.dim() != dims:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: {dims}")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k_pages, v_pages)):
        raise ValueError("q, k_pages or v_pages requires gradients; allowed: none does, or torch.no_grad()")
    packed = cu_seqlens_q is not None
    q = q.unsqueeze(0) if packed else q
    alone = not packed and q.shape[1] == 1 and causal in (True, "bottom-right")  # a query that sees all keys
    call = _Call(q, k_pages, v_pages, page_table, lengths, cu_seqlens_q, max_length, descales, causal=False if alone else causal,
                 window=window, scale=scale, dropout=dropout, session=session, score=score, visible=visible,
                 captured=captured, sinks=sinks, out_dtype=out_dtype)
    if (new_k is None) != (new_v is None):
        raise ValueError("one of new_k, new_v is None; allowed: both, or neither")
    if new_k is not None and new_v is not None:
        call.take_new_rows(q, [tensor.unsqueeze(0) if packed else tensor for tensor in (new_k, new_v)])
    seed = seed_of(torch, seed, offset, dropout, q.device)
    shape = call.o_shape[1:] if packed else call.o_shape
    if out is None:
        out = q.new_empty(shape, dtype=call.o_dtype)
    else:
        check_out(out, shape, call.o_dtype, q.device)
    lse = q.new_empty(call.lse_shape, dtype=torch.float32) if return_lse else None
    if call.has_rows():
        call.forward(q, k_pages, v_pages, out.unsqueeze(0) if packed else out, lse, seed, offset, bytes_of(q))
    return (out, lse) if return_lse else out
