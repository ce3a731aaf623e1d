"""attention(): PyTorch tensors in and out, by address and strides, on the current stream."""

from __future__ import annotations

import ctypes as c
import sys
from typing import TYPE_CHECKING

from . import _structs as s
from ._autograd import bytes_of, function
from ._captured import SINKS, check_captured, kind_of
from ._checks import check_number, check_out, check_seed, check_session, check_tensors
from ._devices import default_session, found, session_of
from ._launch import Call
from ._library import check, library
from ._prepared import exchange_of
from ._recent import remember
from ._session import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    import torch

    from ._session import Session
    from ._visible import VisibleMask

_CALLS_MOST = 4096  # of a session; then all are forgotten
_again = None  # then what makes calls of a kind seen of late (_recent.py), or gives None

if hasattr(sys.modules.get("torch"), "compiler"):
    from torch.compiler import is_dynamo_compiling as is_compiling
else:
    def is_compiling() -> bool:
        """Whether torch.compile reads the caller. PyTorch was not imported before fatune, and is when this is called."""
        import torch
        return torch.compiler.is_dynamo_compiling()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool | str | None = False,
              window: tuple[int, int] | list[int] | None = None, scale: float | None = None, dropout: float = 0.0,
              seed: int | torch.Tensor | None = None, offset: int | torch.Tensor = 0,
              mask: BlockMask | VisibleMask | Literal[False] | None = None, layout: str = "bhsd",
              return_lse: bool = False, out: torch.Tensor | None = None, deterministic: bool = False,
              session: Session | None = None, score: str | Callable[..., Any] | None = None,
              visible: Callable[..., Any] | None = None, captured: Mapping[str, Any] | None = None,
              sinks: torch.Tensor | None = None, descales: Sequence[torch.Tensor | None] | None = None,
              tf32: bool | None = False, out_dtype: torch.dtype | None = None, descale_rows: int = 0,
              fast_exp: bool = False) -> Any:
    """O = softmax(scale Q K^T + mask) V on the current stream; returns O, or (O, LSE).

    q: [batch, heads, seq, dim] (layout "bhsd", as PyTorch's SDPA) or [batch, seq, heads, dim]
    ("bshd"); k, v likewise, with as many heads or a divisor of them. float16, bfloat16 or float32 (from sm_80 on), last
    dimension contiguous, any other strides that are multiples of 8 (float32: of 4); or float8_e4m3fn with strides that are multiples of
    16, without gradients and dropout, from sm_89 on; k and v may be so beside float16 or bfloat16, without gradients, from sm_80. On one CUDA device, or on the CPU: see emulate().
    causal: False; "bottom-right" or True: query i sees keys j <= i + seq_k - seq_q, as
    FlashAttention; "top-left": j <= i, as SDPA's is_causal. For equal lengths both are the same.
    window: (left, right): query i sees so many keys before its own and after it, -1: all of them.
    Its own is the last one that causal lets it see: i + seq_k - seq_q, or i where causal is
    "top-left". Other windows of the same kind share a kernel.
    scale: a float > 0; None: 1 / sqrt(dim).
    dropout: probability; the mask is a function of seed and offset (ints, or int64 tensors on the
    device, which a captured graph reads anew at every replay). seed None: drawn from PyTorch's
    generator of the device, on the device, at every call and at every replay of a graph.
    mask: a BlockMask, a VisibleMask of the same score, or a RectangleMask. A query that sees no key gives O = 0, LSE = -inf, and no gradients.
    None: where the score hides keys and queries and keys are many, a VisibleMask is made for this call; False: never.
    score: a score function: the name of a built-in one ("alibi"), a Lua text
    (generator/score/README.md), or a Python function (fatune.score), as visible, a mask function.
    captured: their scalars and tensors by name, of the dtypes that a text declares. Float tensors
    that require gradients get them, but under torch.compile.
    sinks: float32 [heads of q]: a logit of each head in the softmax of its rows, beside those of the
    keys, in natural units, neither scaled nor dropped; -inf: none. A query that sees no key has its
    sink as LSE. They get gradients where they require them.
    descales: (of q, of k, of v), float32 [batch, heads] each, or None for 1: what an element of a float8_e4m3fn tensor
    stands for is the element times this. descale_rows: 64 or 128: they are of blocks of so many rows, [batch, heads, blocks].
    tf32: whether float32 tensors are multiplied as TF32, 11 bits of each number: faster, and no longer as exact as float32.
    None: where PyTorch's matrix products are (torch.set_float32_matmul_precision).
    fast_exp: whether the probabilities of float8_e4m3fn tensors may be made by straight lines between powers of two: faster on an
    H100 or H200, O errs by a fifth more, rotated up to a half more, without LSE. Without a score, with descales of heads.
    out_dtype: of O where q is float8_e4m3fn: torch.bfloat16, as by default, or torch.float16; else None, or that of q.
    out: where O goes, in the layout; else a new tensor. LSE is float32 [batch, heads, seq].
    deterministic: gradients have the same bits in every run, at some cost.

    Differentiable in q, k, v and what is captured, once, through O and LSE; dropout and mask are those of the forward.
    Under torch.compile it is the operator fatune::attention.
    Raises TypeError and ValueError for tensors that do not fit, and Error where the library refuses.
    """
    if fast_exp and return_lse:
        raise ValueError("return_lse is True with fast_exp; allowed: False, as LSE would err")
    compiling = is_compiling()  # before _again is looked at, so that what is compiled does not depend on it
    if not compiling and not dropout and _again is not None:
        made = _again(found, session, return_lse, q, k, v, seed, offset, tf32, causal, window, scale, dropout, mask, layout, out,
                      deterministic, score, visible, captured, sinks, descales, out_dtype, descale_rows, fast_exp)
        if made is not None:
            return made
    asked = (seed, offset, tf32, causal, window, scale, dropout, mask, layout, out, deterministic, score, visible, captured,
             sinks, descales, out_dtype, descale_rows, fast_exp)
    return attend(q, k, v, asked, compiling, return_lse, session)


def attend(q, k, v, asked, compiling, return_lse, session, owners=None, widened=None):
    """attention() where what asks the same was not seen of late. owners: tensors by name, whose gradients are wanted in place
    of the captured ones', which are these, detached and expanded. widened: a Widened, where q, k and v were."""
    import torch
    (seed, offset, tf32, causal, window, scale, dropout, mask, layout, out, deterministic, score, visible, captured, sinks, descales,
     out_dtype, descale_rows, fast_exp) = asked
    if mask is not None and score is None and visible is None and captured is None:
        score, captured = getattr(mask, "of_calls", (None, None))
    check_session(session)
    if captured is not None:
        check_captured(captured)
    if sinks is not None:
        check_tensors({"sinks": sinks})
    enabled = torch.is_grad_enabled()
    captures_learnt = enabled and owners is not None
    if enabled and captured is not None and owners is None:
        captures_learnt = any(hasattr(value, "data_ptr") and value.requires_grad for value in captured.values())
    if compiling or intercepted(torch, q, k, v):
        check_tensors({"q": q, "k": k, "v": v}, " (fatune.arrays takes other arrays)")
        transform = None if compiling else transform_of(torch, q, k, v)
        if transform is not None:
            raise NotImplementedError(f"fatune.attention is under {transform}; allowed: torch.autograd's gradients, once "
                                      "(fatune.sdpa leaves this case to PyTorch)")
        if out is not None:
            raise ValueError("out is given to an operator; allowed: None under torch.compile and tracing")
        if captures_learnt:
            raise ValueError("captured has a tensor that requires gradients under torch.compile or tracing; allowed: none "
                             "there (detach it, or leave the call out of what is compiled)")
        from ._operators import attention_operator
        out, lse = attention_operator(
            q, k, v, causal=causal, window=window, scale=scale, dropout=dropout, seed=seed, offset=offset, mask=mask,
            layout=layout, deterministic=deterministic, session=session, score=score, visible=visible,
            captured=captured, sinks=sinks, tf32=tf32, descales=descales, descale_rows=descale_rows, out_dtype=out_dtype,
            fast_exp=fast_exp)
        return (out, lse) if return_lse else out
    given = (q, k, v) if widened is None else widened.given
    learnt = enabled and (given[0].requires_grad or given[1].requires_grad or given[2].requires_grad or captures_learnt
                          or sinks is not None and sinks.requires_grad)
    if tf32 is None:
        tf32 = takes_tf32(torch, q)
    seed = seed_of(torch, seed, offset, dropout, q.device)
    if learnt and out is not None:
        raise ValueError("out is given where gradients are wanted; allowed: None, or torch.no_grad()")
    call = _call(q, k, v, out, (causal, window, scale, dropout, mask, layout, session, deterministic, score, visible,
                                captured, sinks, descales, tf32, out_dtype, descale_rows, fast_exp), owners)
    if learnt:
        if call.node is not None and not return_lse and widened is None:
            try:
                out = call.node(q, k, v)
            except RuntimeError:  # it says less than the following will
                out = None
            if out is not None:
                remember(call, given, asked)  # a call with dropout or anything captured has no node
                return out
        return function().apply_plainly(*given, (call, seed, offset, return_lse, widened), *call.want_gradients(owners).values())
    if out is None:
        out = call.new_output(q)
    else:
        check_out(out, call.o_shape, call.o_dtype, q.device)
    lse = call.new_lse(q) if return_lse else None
    if call.has_rows():
        call.forward(q, k, v, out, lse, seed, offset, bytes_of(q))
        if not dropout and captured is None and sinks is None:
            remember(call, (q, k, v), asked)
    return (out, lse) if return_lse else out


def intercepted(torch, q, k, v):
    """Whether somebody wants to see operators and not addresses: fake tensors, subclasses, modes, functorch, tangents."""
    plain = torch.Tensor
    return not (type(q) is plain and type(k) is plain and type(v) is plain) or (
        torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0)


def transform_of(torch, *tensors):
    """What wants more of the tensors' attention than it and its backward, or None: vmap, grad and jvp of torch.func, forward-mode
    differentiation."""
    functorch, forward = torch._C._functorch, torch.autograd.forward_ad
    stack = functorch.peek_interpreter_stack()
    if stack is not None and any(functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors) and (
            stack.key() != functorch.TransformType.Functionalize):
        return f"torch.func's {stack.key().name.lower()}"
    if forward._current_level >= 0 and any(forward.unpack_dual(tensor).tangent is not None for tensor in tensors):
        return "forward-mode differentiation"
    return None


def takes_tf32(torch, q):
    """Whether PyTorch multiplies such tensors as TF32 on a GPU."""
    if q.dtype != torch.float32:
        return False
    matmul = torch.backends.cuda.matmul
    try:
        return matmul.fp32_precision == "tf32"
    except AttributeError:  # before PyTorch 2.9
        return matmul.allow_tf32


def draw_seed(torch, device):
    """A seed from PyTorch's generator; a kernel of PyTorch's draws it where it is read."""
    return torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device=device)


def seed_of(torch, seed, offset, dropout, device):
    """The seed of a call: as given, else drawn. Without dropout nobody reads seed and offset, and they are not looked at."""
    if not dropout:
        return 0 if seed is None else seed
    if seed is None:
        seed = draw_seed(torch, device)
    check_seed("seed", seed, device)
    check_seed("offset", offset, device)
    return seed


_OPTIONS = ("causal", "window", "scale", "dropout", "mask", "layout", "session", "deterministic", "score", "visible",
            "captured", "sinks", "descales", "tf32", "out_dtype", "descale_rows", "fast_exp")


def _call(q, k, v, out, options, owners):
    """What was checked before is not checked again: calls are kept by all that they depend on but addresses."""
    (causal, window, scale, dropout, mask, layout, given_session, deterministic, score, visible, captured, sinks, descales,
     *others) = options
    session = session_of(q.device) if given_session is None else given_session
    captures = captured is not None or sinks is not None
    kind = _kind_captured(captured, sinks, owners) if captures else None
    if (out is not None or mask is not None or visible is not None or descales is not None or session is None
            or score is not None and type(score) is not str or captures and kind is None):
        return Call(q, k, v, **dict(zip(_OPTIONS, options)))
    if type(window) is list:
        window = tuple(window)
    key = (session.key or _key_of_session(session))(q, k, v), (
        causal, window, scale, dropout, layout, given_session, deterministic, score, kind, *others)
    calls = session.calls
    call = calls.get(key)
    if call is not None:
        return call.with_captured(captured, sinks) if captures else call
    call = Call(q, k, v, **dict(zip(_OPTIONS, options)))
    call.kept = key[0] is not None and not call.makes_mask()
    if not call.kept:
        return call
    if len(calls) >= _CALLS_MOST:
        calls = session.calls = {}
    call.among = calls
    calls[key] = call.as_template() if captures else call
    return call


def _kind_captured(captured, sinks, owners):
    """What tells calls apart by what they capture, or None where nothing does. A call that is kept holds no tensor."""
    kind = kind_of({**(captured or {}), SINKS: sinks} if sinks is not None else captured)
    return None if kind is None else (kind, tuple(owners or ()))


def _key_of_session(session):
    """What tells tensors apart that need calls of their own."""
    global _again
    session.exchange = exchange_of(session)
    session.key = session.exchange.key if session.exchange else _key
    if session.exchange:
        _again = session.exchange.again
    return session.key


def _key(q, k, v):
    return (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device,
            v.device)


class BlockMask:
    """A block-sparse mask, turned into index lists on the GPU once and used by any number of calls.

    blocks: a bool or uint8 tensor, [row_blocks, col_blocks] or [batch, heads, row_blocks,
    col_blocks], non-zero: keep; a batch or heads of 1 serves all. rows, cols: the size of one block,
    multiples of 16. nq, nk: the lengths. Blocks that are off are never loaded. session: whose GPU it is for; None: that
    of the blocks' device, else PyTorch's current one. density: the share of blocks that are kept.
    longest: how many times as many of them the longest row of blocks has as the mean one, by pass, of a backward the columns.
    Raises ValueError for blocks of another shape, TypeError for another dtype, Error where the library refuses.
    """

    def __init__(self, blocks: torch.Tensor, rows: int, cols: int, nq: int, nk: int,
                 session: Session | None = None) -> None:
        import torch
        check_tensors({"blocks": blocks})
        check_session(session)
        if blocks.dim() == 2:
            blocks = blocks[None, None]
        if rows <= 0 or cols <= 0:
            raise ValueError(f"rows, cols are {rows}, {cols}; allowed: multiples of 16")
        for name, length in (("nq", nq), ("nk", nk)):
            check_number(name, length, lambda number: number > 0, "1 or more")
        wanted = -(-nq // rows), -(-nk // cols)
        if blocks.dim() != 4 or tuple(blocks.shape[2:]) != wanted:
            raise ValueError(f"blocks is {tuple(blocks.shape)}; allowed: {wanted}, or [batch, heads] "
                             "before that")
        if blocks.dtype not in (torch.bool, torch.uint8):
            raise TypeError(f"blocks is {blocks.dtype}; allowed: bool, uint8")
        on_device = blocks.device.type == "cuda"
        if session is None:
            session = session_of(blocks.device) or default_session(torch.cuda.current_device())
        on_device = on_device or bool(session.emulates)
        blocks = blocks.contiguous()
        options = s.MaskOptions(
            blocks=blocks.data_ptr(), on_device=int(on_device), mask_rows=rows, mask_cols=cols,
            batch=blocks.shape[0], heads=blocks.shape[1], seqlen_q=nq, seqlen_k=nk)
        stream = None if session.emulates else torch.cuda.current_stream(
            blocks.device if on_device else None).cuda_stream
        lib = library()
        self.session, self.rows, self.cols, self.nq, self.nk = session, rows, cols, nq, nk
        self.number = numbered(self)
        self.handle = c.c_void_p()
        check(lib.fatune_mask_make(self.handle, session.handle, options, stream))
        # Freeing device memory waits for the runs that still read it.
        session.opened.frees(self, lib.fatune_mask_free, self.handle)
        self.density = lib.fatune_mask_density(self.handle)
        self.longest = {pass_: lib.fatune_mask_longest(self.handle, pass_) for pass_ in (s.FORWARD, s.BACKWARD)}
