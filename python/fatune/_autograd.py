"""The forward and the backward as one differentiable function of PyTorch."""

import functools

from ._launch import as_input, torch_module


def _tensors_of(seed, offset):
    return tuple(value for value in (seed, offset) if hasattr(value, "data_ptr"))


@functools.lru_cache(maxsize=None)
def function():
    """The class; made at the first call, as PyTorch is imported no earlier."""
    torch = torch_module()

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, call, seed, offset):
            out = torch.empty(call.o_shape, dtype=call.dtype, device=call.device)
            lse = torch.empty(call.lse_shape, dtype=torch.float32, device=call.device)
            if out.numel() > 0:
                call.forward(q, k, v, out, lse, seed, offset)
            ctx.call, ctx.seed, ctx.offset = call, seed, offset
            # Seeds on the device are saved like the rest: whoever changes one before the backward
            # is told so.
            ctx.save_for_backward(q, k, v, out, lse, *_tensors_of(seed, offset))
            ctx.set_materialize_grads(False)
            return out, lse

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, dout, dlse):
            q, k, v, out, lse, *_ = ctx.saved_tensors
            if dout is None and dlse is None:
                return (None,) * 6
            if out.numel() == 0:
                return (*(torch.zeros_like(tensor) for tensor in (q, k, v)), None, None, None)
            dout = torch.zeros_like(out) if dout is None else as_input(dout)
            dlse = None if dlse is None else dlse.contiguous()
            dq, dk, dv = (torch.empty_like(tensor) for tensor in (q, k, v))
            ctx.call.backward({"q": q, "k": k, "v": v, "o": out, "dout": dout,
                               "dq": dq, "dk": dk, "dv": dv}, lse, dlse, ctx.seed, ctx.offset)
            return dq, dk, dv, None, None, None

    return Attention
