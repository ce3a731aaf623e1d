"""attention(): PyTorch tensors in and out, by address and strides, on the current stream."""

import ctypes as c

from . import _structs as s
from ._autograd import function
from ._launch import Call, default_session, torch_module
from ._library import check, library


def _wants_gradients(*tensors):
    return torch_module().is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def attention(q, k, v, *, causal=False, window=None, scale=None, dropout=0.0, seed=0, offset=0,
              mask=None, layout="bhsd", return_lse=False, out=None, deterministic=False,
              session=None, score=None, visible=None, captured=None):
    """O = softmax(scale Q K^T + mask) V on the current stream; returns O, or (O, LSE).

    q: [batch, heads, seq, dim] (layout "bhsd", as PyTorch's SDPA) or [batch, seq, heads, dim]
    ("bshd"); k, v likewise, with as many heads or a divisor of them. float16 or bfloat16, last
    dimension contiguous, any other strides that are multiples of 8.
    causal: False; "bottom-right" or True: query i sees keys j <= i + seq_k - seq_q, as
    FlashAttention; "top-left": j <= i, as SDPA's is_causal. For equal lengths both are the same.
    window: (left, right): query i sees so many keys before its own and after it, -1: all of them.
    Its own is the last one that causal lets it see: i + seq_k - seq_q, or i where causal is
    "top-left". Other windows of the same kind share a kernel.
    dropout: probability; the mask is a function of seed and offset (ints, or int64 CUDA tensors,
    which a captured graph reads anew at every replay): give each training step another one.
    mask: a BlockMask. A query that sees no key gives O = 0, LSE = -inf, and no gradients.
    score: a score function: the name of a built-in one ("alibi"), a Lua text
    (generator/score/README.md), or a Python function (fatune.score), as visible, a mask function.
    captured: their scalars and tensors by name, of the dtypes that a text declares; no gradients.
    out: where O goes, in the layout; else a new tensor. LSE is float32 [batch, heads, seq].

    Differentiable in q, k, v, once, through O and LSE; dropout and mask are those of the forward.
    deterministic: gradients have the same bits in every run, at some cost.
    """
    torch = torch_module()
    call = Call(q, k, v, causal=causal, window=window, scale=scale, dropout=dropout, mask=mask,
                layout=layout, session=session, deterministic=deterministic, score=score,
                visible=visible, captured=captured)
    if captured and _wants_gradients(*filter(torch.is_tensor, captured.values())):
        raise ValueError("captured has a tensor that requires gradients; allowed: none, they are not made")
    if _wants_gradients(q, k, v):
        if out is not None:
            raise ValueError("out is given where gradients are wanted; allowed: None, or "
                             "torch.no_grad()")
        out, lse = function().apply(q, k, v, call, seed, offset)
        return (out, lse) if return_lse else out
    if out is None:
        out = torch.empty(call.o_shape, dtype=q.dtype, device=q.device)
    elif tuple(out.shape) != call.o_shape or out.dtype != q.dtype or out.device != q.device:
        raise ValueError(f"out is {tuple(out.shape)} {out.dtype}; allowed: {call.o_shape} {q.dtype}")
    lse = None
    if return_lse:
        lse = torch.empty(call.lse_shape, dtype=torch.float32, device=q.device)
    if out.numel() > 0:  # the library asks for at least one row
        call.forward(q, k, v, out, lse, seed, offset)
    return (out, lse) if return_lse else out


class BlockMask:
    """A block-sparse mask, turned into index lists on the GPU once and used by any number of calls.

    blocks: a bool or uint8 tensor, [row_blocks, col_blocks] or [batch, heads, row_blocks,
    col_blocks], non-zero: keep; a batch or heads of 1 serves all. rows, cols: the size of one block,
    multiples of 16. nq, nk: the lengths. Blocks that are off are never loaded.
    """

    def __init__(self, blocks, rows, cols, nq, nk, session=None):
        torch = torch_module()
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
        session.opened.frees(self, lib.fatune_mask_free, self.handle)
        self.density = lib.fatune_mask_density(self.handle)
