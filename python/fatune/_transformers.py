"""attn_implementation="fatune" of Hugging Face Transformers, through its attention interface and its mask interface."""

from __future__ import annotations

import warnings

from ._attention import attention
from ._drop_in import readable, sdpa

_LINES = {"cap": 'local cap = scalar("cap")',
          "bias": 'local bias = tensor("bias", "{dtype}", batch, heads, nq, nk)',
          "mask": 'local mask = tensor("mask", "bool", batch, heads, nq, nk)'}
_DTYPES = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}


def _text(softcap, bias, mask):
    """The Lua text of scores that are capped, then biased, then masked."""
    lines, score = [], "s"
    if softcap is not None:
        lines.append(_LINES["cap"])
        score = "cap * tanh(s / cap)"
    if bias is not None:
        lines.append(_LINES["bias"].format(dtype=_DTYPES[str(bias.dtype)]))
        score += " + bias(b, h, i, j)"
    if mask is not None:
        lines.append(_LINES["mask"])
        lines.append("visible = mask(b, h, i, j)")
    return "\n".join([*lines, f"score = {score}"])


def _scored(query, key, value, mask, bias, softcap, sinks, dropout, scaling, is_causal):
    """What no argument of SDPA says."""
    import torch
    if mask is not None and mask.dtype != torch.bool:  # added like a bias
        bias, mask = (mask if bias is None else bias + mask), None
    if bias is not None and bias.requires_grad and torch.is_grad_enabled():
        if softcap is not None or sinks is not None:
            raise ValueError("position_bias requires gradients beside softcap or sinks; allowed: one of them")
        if mask is not None:
            bias = bias.masked_fill(~mask, -torch.inf)
        if is_causal:
            bias = bias.masked_fill(~torch.ones(query.shape[2], key.shape[2], dtype=torch.bool,
                                                device=query.device).tril(), -torch.inf)
        return sdpa(query, key, value, attn_mask=bias.to(query.dtype), dropout_p=dropout, scale=scaling, enable_gqa=True)
    shape = (*query.shape[:-1], key.shape[2])
    captured = {} if softcap is None else {"cap": float(softcap)}
    captured.update({name: tensor.expand(shape) for name, tensor in (("bias", bias), ("mask", mask))
                     if tensor is not None})
    query, key, value = (readable(tensor.transpose(1, 2)) for tensor in (query, key, value))
    return attention(query, key, value, causal="top-left" if is_causal else False, scale=scaling, dropout=dropout,
                     layout="bshd", score=_text(softcap, bias, mask) if captured else None, captured=captured or None,
                     sinks=None if sinks is None else sinks.float().contiguous()).transpose(1, 2)


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
                      softcap=None, position_bias=None, s_aux=None, cache=None, **kwargs):
    """What Transformers calls: query [batch, heads, seq, dim], key and value likewise with as many heads or a divisor;
    attention_mask None, or bool (True: seen) or float (added), broadcastable to [batch, heads, seq, keys]. Returns
    ([batch, seq, heads, dim], None). softcap and position_bias go into the kernel as a score function.

    Without a mask a module that is causal sees keys j <= i, but a single query sees all keys, as in Transformers' own
    SDPA. s_aux: the logits of attention sinks, one a head. Raises ValueError for paged caches; warns once that weights are not returned.
    """
    if cache is not None and hasattr(cache, "block_size"):
        raise ValueError("a paged cache is given; allowed: none. Use another attn_implementation with "
                         "continuous batching")
    if kwargs.get("output_attentions"):
        warnings.warn("attn_implementation=\"fatune\" returns no attention weights; \"eager\" does", stacklevel=2)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    is_causal = query.shape[2] > 1 and attention_mask is None and is_causal
    if softcap is None and position_bias is None and s_aux is None:
        out = sdpa(query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, is_causal=is_causal,
                   enable_gqa=True)
    else:
        out = _scored(query, key, value, attention_mask, position_bias, softcap, s_aux, dropout, scaling, is_causal)
    return out.transpose(1, 2).contiguous(), None


def register_transformers() -> None:
    """Makes attn_implementation="fatune" known to Transformers; may be called again.

        fatune.register_transformers()
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="fatune")

    Masks (padding, causal, sliding windows, packed sequences) are made as for "sdpa", dense where they are needed, and
    read by the kernels: none is dropped. Grouped heads are not repeated; softcap and position biases are in the kernel.
    What fatune does not serve falls back to PyTorch as in fatune.sdpa. Raises ImportError without Transformers 4.53 or
    later.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise ImportError("fatune.register_transformers needs Transformers 4.53 or later: pip install -U transformers"
                          ) from error
    AttentionInterface.register("fatune", attention_forward)
    AttentionMaskInterface.register("fatune", sdpa_mask)
