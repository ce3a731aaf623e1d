"""The forward and the backward as one differentiable function of PyTorch."""

import functools

from ._launch import as_input


def _tensors_of(seed, offset):
    if type(seed) is type(offset) is int:
        return ()
    return tuple(value for value in (seed, offset) if hasattr(value, "data_ptr"))


def refusal():
    return RuntimeError("the gradients of fatune's attention are differentiated; allowed: first derivatives. For second "
                        "ones call torch.nn.functional.scaled_dot_product_attention under sdpa_kernel(SDPBackend.MATH), "
                        "or leave out create_graph=True")


def once(torch):
    """Makes a backward one whose results cannot be differentiated, and say so."""

    class Refuse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, count, *tensors):
            """The first so many, which then depend on all: whoever differentiates them comes here, whatever by."""
            return tuple(gradient.view_as(gradient) for gradient in tensors[:count])

        @staticmethod
        def backward(ctx, *_):
            raise refusal()

    def decorate(backward):
        @functools.wraps(backward)
        def wrapped(ctx, *gradients):
            if not torch.is_grad_enabled():
                return backward(ctx, *gradients)
            with torch.no_grad():
                results = backward(ctx, *gradients)
            given = [n for n, result in enumerate(results) if result is not None]
            made_of = [tensor for tensor in (*gradients, *ctx.saved_tensors) if tensor is not None and tensor.requires_grad]
            refusing = dict(zip(given, Refuse.apply(
                len(given), *(results[n].detach().requires_grad_() for n in given), *made_of)))
            return tuple(refusing.get(n) for n in range(len(results)))
        return wrapped

    return decorate


def bytes_of(tensor):
    """Allocates beside a tensor. Freed memory goes to the next call on its stream, which waits for this one."""
    return functools.partial(_new_bytes, tensor)


def _new_bytes(tensor, size):
    import torch
    return tensor.new_empty((size,), dtype=torch.uint8)


@functools.lru_cache(maxsize=None)
def function():
    """The class; made at the first call, as PyTorch is imported no earlier."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, of, *captured):
            call, seed, offset, wants_lse, widened = ctx.of = of
            if widened is not None:
                q, k, v = widened.take()
            made = call.forward_again(q, k, v, seed, offset)
            if made is None:
                made = call.new_output(q), call.new_lse(q)
                if call.has_rows():
                    call.forward(q, k, v, *made, seed, offset, bytes_of(q))
            out, lse = made
            # What the score captures, seeds on the device and lengths of sequences are saved like the rest, as the backward
            # reads them again: whoever changes one before it is told so.
            ctx.save_for_backward(q, k, v, out, lse, *captured, *_tensors_of(seed, offset), *call.lengths.values())
            ctx.set_materialize_grads(False)
            if widened is not None:
                return widened.narrow_o(out)
            return made if wants_lse else out

        @staticmethod
        @once(torch)
        def backward(ctx, dout, dlse=None):
            call, seed, offset, _, widened = ctx.of
            q, k, v, out, lse, *rest = ctx.saved_tensors
            captured = dict(zip(call.wanted_names, rest))
            if dout is None and dlse is None:
                return (None,) * (4 + len(captured))
            if not call.has_rows():
                zeros = [torch.zeros_like(tensor) for tensor in (q, k, v, *captured.values())]
                return (*zeros[:3], None, *zeros[3:])
            if dout is None:
                dout = torch.zeros_like(out)
            elif widened is not None:
                dout = widened.widen_o(dout)
            elif dout.stride() != out.stride() or dout.data_ptr() % 16:
                dout = as_input(dout)
            dlse = None if dlse is None else dlse.contiguous()
            again = call.backward_again(q, k, v, out, lse, dout, dlse, seed, offset, captured)
            if again is not None:
                gradients = again[:3] if widened is None else widened.narrow(*again[:3])
                return *gradients, None, *again[3:]
            dq, dk, dv = call.new_gradients(q, k, v)
            tensors = {"q": q, "k": k, "v": v, "o": out, "dout": dout, "dq": dq, "dk": dk, "dv": dv}
            gradients = call.backward(tensors, lse, dlse, seed, offset, bytes_of(q), captured)
            if widened is not None:
                dq, dk, dv = widened.narrow(dq, dk, dv)
            return dq, dk, dv, None, *gradients.values()

    # apply() without what Function adds to it for functorch, whose tensors go to the operators.
    Attention.apply_plainly = super(torch.autograd.Function, Attention).apply
    return Attention
