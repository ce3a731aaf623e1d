"""varlen(): sequences of different lengths, one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._attention import seed_of
from ._autograd import bytes_of, function
from ._checks import check_int32, check_out, check_session, check_starts, check_tensors
from ._launch import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import torch

    from ._session import Session


class _Call(Call):
    """A call whose tensors are [1, rows of all sequences, heads, dim]."""

    def __init__(self, q, k, v, lengths, descales, **options):
        super().__init__(q, k, v, mask=None, layout="bshd", **options)
        sequences = check_starts("cu_seqlens_q", lengths["cu_seqlens_q"], q.device)
        for name, tensor in lengths.items():
            check_int32(name, tensor, (sequences + name.startswith("cu"),), q.device)
        self.lengths = lengths
        self._class["ragged"] = 1
        self._sizes["batch"] = sequences
        self.take_descales(descales, q, k)
        self.lse_shape = self.lse_shape[1:]

    def has_rows(self):
        if not super().has_rows() or self._sizes["batch"] == 0:
            return False
        if self._sizes["seqlen_k"] == 0:
            raise ValueError("k has no rows; allowed: at least one, which no sequence need use")
        return True

    def new_gradients(self, *tensors):
        """Kernels write no row that no sequence uses, and which rows those are the device alone knows."""
        import torch
        return [torch.zeros_like(tensor, **self._of_gradients) for tensor in tensors]

    def _arguments(self, *tensors, **options):
        arguments = super()._arguments(*tensors, **options)
        for name, tensor in self.lengths.items():
            setattr(arguments, name, tensor.data_ptr())
        return arguments


def varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
           *, seqused_q: torch.Tensor | None = None, seqused_k: torch.Tensor | None = None,
           causal: bool | str | None = False, window: tuple[int, int] | list[int] | None = None,
           scale: float | None = None, dropout: float = 0.0, seed: int | torch.Tensor | None = None,
           offset: int | torch.Tensor = 0, return_lse: bool = False, out: torch.Tensor | None = None,
           session: Session | None = None, score: str | Callable[..., Any] | None = None,
           visible: Callable[..., Any] | None = None, captured: Mapping[str, Any] | None = None,
           sinks: torch.Tensor | None = None, deterministic: bool = False,
           descales: Sequence[torch.Tensor | None] | None = None, out_dtype: torch.dtype | None = None) -> Any:
    """O of attention within each of several sequences, which lie one behind the other; returns O, or (O, LSE).

    q: [rows of all sequences, heads, dim]; k, v likewise, with rows and heads of their own.
    cu_seqlens_q, cu_seqlens_k: int32 on the device, [sequences + 1]: the rows before each sequence, then those of all;
    from 0 on, never falling, at most the rows there are. A sequence may be empty. They are read when the kernels run:
    nothing waits for them, and a captured graph reads them anew at every replay. FATUNE_CHECK=1 in the environment
    when the session is opened has them checked.
    seqused_q, seqused_k: int32 on the device, [sequences]: how many of its rows a sequence uses, from the first on;
    None: all. Rows of O and LSE that no sequence uses are not written.
    The rest is as in attention(): causal, window, score functions and dropout count within a sequence, whose number is
    the batch entry, as for descales. LSE is float32 [heads, rows].
    Differentiable as attention() is; the gradients of rows that no sequence uses are 0.
    """
    import torch
    lengths = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_q": seqused_q, "seqused_k": seqused_k}
    lengths = {name: tensor for name, tensor in lengths.items() if tensor is not None or name.startswith("cu")}
    check_tensors({"q": q, "k": k, "v": v, **lengths, **({} if sinks is None else {"sinks": sinks})})
    check_session(session)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 3:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 3, [rows, heads, dim]")
    q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    call = _Call(q, k, v, lengths, descales, out_dtype=out_dtype, causal=causal, window=window, scale=scale, dropout=dropout, session=session,
                 score=score, visible=visible, captured=captured, sinks=sinks, deterministic=deterministic)
    seed = seed_of(torch, seed, offset, dropout, q.device)
    learnt = call.want_gradients()
    if torch.is_grad_enabled() and (learnt or any(tensor.requires_grad for tensor in (q, k, v))):
        if out is not None:
            raise ValueError("out is given where gradients are wanted; allowed: None, or torch.no_grad()")
        out, lse = function().apply(q, k, v, (call, seed, offset, True, None), *learnt.values())
        return (out.squeeze(0), lse) if return_lse else out.squeeze(0)
    if out is None:
        out = q.new_empty(call.o_shape[1:], dtype=call.o_dtype)
    else:
        check_out(out, call.o_shape[1:], call.o_dtype, q.device)
    lse = q.new_empty(call.lse_shape, dtype=torch.float32) if return_lse else None
    if call.has_rows():
        call.forward(q, k, v, out.unsqueeze(0), lse, seed, offset, bytes_of(q))
    return (out, lse) if return_lse else out
