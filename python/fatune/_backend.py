"""fatune as one of PyTorch's implementations of flash attention, by PyTorch's own hook."""

from __future__ import annotations

from ._attention import draw_seed
from ._autograd import bytes_of
from ._launch import Call, as_input

_OPERATORS = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward")


class _Handle:
    """What PyTorch keeps while fatune is active."""

    def __init__(self, library):
        self._library = library

    def remove(self):
        self._library._destroy()


def _call(q, k, v, dropout, causal, scale):
    return Call(q, k, v, causal="top-left" if causal else False, window=None, scale=scale, dropout=dropout, mask=None,
                layout="bhsd", session=None, deterministic=_is_deterministic())


def _is_deterministic():
    import torch
    return torch.are_deterministic_algorithms_enabled()


def _forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    import torch
    if return_debug_mask:
        raise RuntimeError("return_debug_mask is True; allowed by fatune: False, it makes no mask of dropout in memory")
    q, k, v = (as_input(tensor) for tensor in (query, key, value))
    call = _call(q, k, v, dropout_p, is_causal, scale)
    batch, heads, rows, dim = call.o_shape
    out = q.new_empty((batch, rows, heads, dim)).transpose(1, 2)  # as PyTorch's own
    lse = q.new_empty(call.lse_shape, dtype=torch.float32)
    seed = draw_seed(torch, q.device) if dropout_p else torch.zeros(1, dtype=torch.int64, device=q.device)
    call.forward(q, k, v, out, lse, seed, 0, bytes_of(q))
    nothing = q.new_empty(0)
    return out, lse, None, None, query.shape[2], key.shape[2], seed, seed.new_empty(0), nothing


def _backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
              philox_seed, philox_offset, *, scale=None):
    q, k, v = (as_input(tensor) for tensor in (query, key, value))
    call = _call(q, k, v, dropout_p, is_causal, scale)
    dout = as_input(grad_out)
    again = call.backward_again(q, k, v, out, logsumexp, dout, None, philox_seed, 0)
    if again is not None:
        return again
    dq, dk, dv = call.new_gradients(q, k, v)
    tensors = {"q": q, "k": k, "v": v, "o": out, "dout": dout, "dq": dq, "dk": dk, "dv": dv}
    call.backward(tensors, logsumexp, None, philox_seed, 0, bytes_of(q))
    return dq, dk, dv


def _activate(dispatch_key="CUDA"):
    import torch
    library = torch.library.Library("aten", "IMPL", dispatch_key)
    for name, function in zip(_OPERATORS, (_forward, _backward)):
        library.impl(name, function, dispatch_key)
    return _Handle(library)


def register_pytorch() -> None:
    """Makes "fatune" one of PyTorch's implementations of flash attention, for who asks PyTorch for it:

        fatune.register_pytorch()
        torch.nn.attention.activate_flash_attention_impl("fatune")     # and restore_flash_attention_impl()

    From then on torch.nn.functional.scaled_dot_product_attention runs fatune's kernels on CUDA wherever PyTorch chooses flash
    attention (float16 and bfloat16 without attn_mask), gradients and dropout among it; what PyTorch chooses, and for which
    cases, stays PyTorch's. Costs more host time than fatune.sdpa. Head dims under 16 are refused by name. Importing fatune
    registers nothing. Raises ImportError where PyTorch has no such hook.
    """
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError as error:
        raise ImportError("fatune.register_pytorch needs torch.nn.attention.register_flash_attention_impl; allowed: a newer "
                          "PyTorch, or fatune.sdpa") from error
    register_flash_attention_impl("fatune", register_fn=_activate)
