"""Attention under the names, signatures and meanings of FlashAttention's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._attention import attention
from ._decode import decode
from ._dtypes import check_is_tensor
from ._varlen import varlen

if TYPE_CHECKING:
    from typing import Any

    import torch


def _flash_score(softcap, alibi_slopes, batch, heads):
    """FlashAttention's order: the cap, then the slopes."""
    if softcap == 0.0 and alibi_slopes is None:
        return {}
    lines, score, captured = [], "s", {}
    if softcap != 0.0:
        lines.append('local cap = scalar("cap")')
        score, captured["cap"] = "cap * tanh(s / cap)", softcap
    if alibi_slopes is not None:
        if alibi_slopes.dim() not in (1, 2) or alibi_slopes.shape[-1] != heads or (
                alibi_slopes.dim() == 2 and alibi_slopes.shape[0] != batch):
            raise ValueError(f"alibi_slopes is {tuple(alibi_slopes.shape)}; allowed: ({heads},) or ({batch}, {heads})")
        lines.append('local slope = tensor("slope", "fp32", batch, heads)')
        score += " - slope(b, h) * abs(i + nk - nq - j)"
        captured["slope"] = alibi_slopes.float().expand(batch, heads)
    return {"score": "\n".join([*lines, f"score = {score}"]), "captured": captured}


def _descales(batch, q, k, v, q_descale, k_descale, v_descale):
    """FlashAttention-3's, of each head of k, as attention() takes them: those of q by its own heads."""
    import torch
    given = {"q": (q, q_descale), "k": (k, k_descale), "v": (v, v_descale)}
    heads = k.shape[-2]
    for name, (tensor, descale) in given.items():
        if descale is None:
            continue
        check_is_tensor(f"{name}_descale", descale)
        if tensor.dtype != torch.float8_e4m3fn:
            raise ValueError(f"{name}_descale is given with {name.upper()} in {tensor.dtype}; allowed: None, but for torch.float8_e4m3fn")
        if tuple(descale.shape) != (batch, heads) or descale.dtype != torch.float32 or descale.device != q.device:
            raise ValueError(f"{name}_descale is {tuple(descale.shape)} {descale.dtype} on {descale.device}; allowed: torch.float32 "
                             f"{(batch, heads)} on {q.device}, [batch, heads of k], or None")
    if q_descale is None and k_descale is None and v_descale is None:
        return {}
    if q_descale is not None:  # a copy where it has strides and q more heads than k
        q_descale = q_descale.unsqueeze(2).expand(batch, heads, q.shape[-2] // max(heads, 1)).flatten(1)
    return {"descales": (q_descale, k_descale, v_descale)}


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool | str | None = False,
                    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False, *, q_descale: torch.Tensor | None = None,
                    k_descale: torch.Tensor | None = None, v_descale: torch.Tensor | None = None) -> Any:
    """flash_attn.flash_attn_func by fatune; FlashAttention-3's descales by name.

    q: [batch, seq, heads, dim], float16 or bfloat16 on a CUDA device; k, v likewise, with as many heads or a divisor of
    them. causal and window_size (left, right; -1: all) are aligned bottom-right. softcap: 0.0 for none.
    alibi_slopes: float32 [heads] or [batch, heads]. dropout_p: its mask is drawn from PyTorch's generator.
    Returns O [batch, seq, heads, dim]; with return_attn_probs (O, LSE, None): LSE is float32 [batch, heads, seq], and
    the probabilities are never made. Differentiable in q, k, v. deterministic: the same gradients in every run.
    q, k and v may be float8_e4m3fn, and k and v alone, without gradients: O is bfloat16, or as q. q_descale, k_descale, v_descale:
    float32 [batch, heads of k], what the elements of those that are so are multiplied by; a head of q has that of its head of k.
    Raises as attention().
    """
    if q.dim() != 4:
        raise ValueError(f"q has {q.dim()} dimensions; allowed: 4, [batch, seq, heads, dim]")
    batch, _, heads, _ = q.shape
    out = attention(q, k, v, causal=causal, window=window_size, scale=softmax_scale, dropout=dropout_p, layout="bshd",
                    return_lse=return_attn_probs, deterministic=deterministic,
                    **_flash_score(softcap, alibi_slopes, batch, heads),
                    **_descales(batch, q, k, v, q_descale, k_descale, v_descale))
    return (*out, None) if return_attn_probs else out


def flash_attn_varlen_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor,
                           cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool | str | None = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: torch.Tensor | None = None, *,
                           q_descale: torch.Tensor | None = None, k_descale: torch.Tensor | None = None,
                           v_descale: torch.Tensor | None = None) -> Any:
    """flash_attn.flash_attn_varlen_func by fatune.

    q: [rows of all sequences, heads, dim]; k, v likewise; cu_seqlens_q, cu_seqlens_k: int32 on the device, [sequences + 1]:
    the rows before each sequence, then those of all. max_seqlen_q, max_seqlen_k are not needed and not read.
    block_table: int32 on the device, [sequences, columns]: k and v are [pages, rows of a page, heads, dim], as in decode(),
    cu_seqlens_k says how many keys each sequence has, and there are no gradients. alibi_slopes: float32 [heads] or
    [sequences, heads]. q_descale, k_descale, v_descale: [sequences, heads of k]. Else as flash_attn_func.
    Returns O [rows, heads, dim]; with return_attn_probs (O, LSE, None): LSE is float32 [heads, rows]. Differentiable.
    Raises as varlen() and decode().
    """
    batch = cu_seqlens_q.shape[0] - 1
    options: dict[str, Any] = {"causal": causal, "window": window_size, "scale": softmax_scale, "dropout": dropout_p,
               "return_lse": return_attn_probs, **_flash_score(softcap, alibi_slopes, batch, q.shape[1]),
               **_descales(batch, q, k, v, q_descale, k_descale, v_descale)}
    if block_table is not None:
        out = decode(q, k, v, block_table, cu_seqlens_k.diff(), cu_seqlens_q=cu_seqlens_q, **options)
    else:
        out = varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, deterministic=deterministic, **options)
    return (*out, None) if return_attn_probs else out


def _append(cache, new, places):
    """Writes new rows [batch, rows, heads, dim] where the cache's own end: at places [batch, rows]."""
    import torch
    _write(cache, torch.arange(new.shape[0], device=new.device)[:, None], places, new)


def _write(cache, first, second, new):
    """Rows at [first, second] of the cache, whose dtype is theirs."""
    import torch
    if cache.element_size() == 1:  # not every PyTorch writes 8-bit floats by indices
        cache, new = cache.view(torch.uint8), new.view(torch.uint8)
    cache[first, second] = new


def _rotate(x, cos, sin, places, interleaved):
    """Rotary embedding of x [batch, rows, heads, dim] by rows `places` [batch, rows] of cos and sin: pairs of elements side by
    side (interleaved), or of the first and the second half; elements past 2 x their columns stay."""
    import torch
    half = cos.shape[1]
    cos, sin = (table[places].float().unsqueeze(2) for table in (cos, sin))
    turned, rest = x[..., :2 * half].float(), x[..., 2 * half:]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.split(half, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((turned.to(x.dtype), rest), -1)


def _rotated(q, k, cos, sin, before, interleaved, in_order):
    """(q, k) rotated as FlashAttention does: rows of k by their places behind the `before` keys, those of q likewise if they
    are in order (causal or in a window), else all by the first of these."""
    import torch
    if k is not None and 1 in (q.element_size(), k.element_size()):
        raise ValueError(f"rotary_cos is given with q of {q.dtype} and k of {k.dtype}; allowed: None with 8-bit floats, which are rotated "
                         "before they are quantised")
    if k is None or sin is None or cos is None or cos.dim() != 2 or cos.shape != sin.shape or not 0 < 2 * cos.shape[1] <= q.shape[-1]:
        given = [None if table is None else tuple(table.shape) for table in (cos, sin)]
        raise ValueError(f"rotary_cos is {given[0]}, rotary_sin {given[1]}, k {'None' if k is None else 'given'}; allowed: both [positions, half of the "
                         f"elements rotated], at most {q.shape[-1] // 2}, with k and v")
    before = before.long()[:, None] if isinstance(before, torch.Tensor) else torch.full((q.shape[0], 1), before, device=q.device)
    steps = [torch.arange(count, device=q.device) for count in (q.shape[1], k.shape[1])]
    places = before + (steps[0] if in_order else 0 * steps[0]), before + steps[1]
    return tuple(_rotate(x, cos, sin, where, interleaved) for x, where in zip((q, k), places))


def _in_pages(q, k_cache, v_cache, k, v, used, table, options):
    """(O, LSE): the caches are [pages, rows of a page, heads, dim], found by the table."""
    import torch
    page = k_cache.shape[1]
    if not isinstance(used, torch.Tensor):
        used = torch.full(table.shape[:1], table.shape[1] * page if used is None else used, dtype=torch.int32,
                          device=q.device)
    lengths, new = used.to(torch.int32), {}
    if k is not None:
        lengths = lengths + k.shape[1]
        if k.shape[1] == q.shape[1]:
            new = {"new_k": k, "new_v": v}
        else:
            places = used.long()[:, None] + torch.arange(k.shape[1], device=q.device)
            pages = table.long().gather(1, places // page)
            _write(k_cache, pages, places % page, k)
            _write(v_cache, pages, places % page, v)
    return decode(q, k_cache, v_cache, table, lengths, **new, **options)


def _check_new_rows(k, v, k_cache, v_cache, cache_seqlens):
    if (k is None) != (v is None) or (k is not None and cache_seqlens is None):
        raise ValueError("k, v and cache_seqlens are not given together; allowed: new rows of both with the lengths before them")
    for name, new, cache in (("k", k, k_cache), ("v", v, v_cache)):
        if new is not None and new.dtype != cache.dtype:
            raise ValueError(f"{name} is {new.dtype} beside a {name}_cache of {cache.dtype}; allowed: {cache.dtype}")


def _put_one_before(options):
    """Of a batch entry before all others, what options have of each."""
    from torch.nn.functional import pad
    if "slope" in options.get("captured", {}):
        options["captured"]["slope"] = pad(options["captured"]["slope"], (0, 0, 1, 0))
    if "descales" in options:
        options["descales"] = [None if of is None else pad(of, (0, 0, 1, 0), value=1.0) for of in options["descales"]]


def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor,
                            k: torch.Tensor | None = None, v: torch.Tensor | None = None,
                            rotary_cos: torch.Tensor | None = None, rotary_sin: torch.Tensor | None = None,
                            cache_seqlens: int | torch.Tensor | None = None, cache_batch_idx: torch.Tensor | None = None,
                            cache_leftpad: torch.Tensor | None = None, block_table: torch.Tensor | None = None,
                            softmax_scale: float | None = None, causal: bool | str | None = False,
                            window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: torch.Tensor | None = None,
                            num_splits: int = 0, return_softmax_lse: bool = False, *,
                            page_table: torch.Tensor | None = None, q_descale: torch.Tensor | None = None,
                            k_descale: torch.Tensor | None = None, v_descale: torch.Tensor | None = None) -> Any:
    """flash_attn.flash_attn_with_kvcache by fatune; what FlashAttention-3 adds for quantised caches by name.

    q: [batch, rows, heads, dim]; k_cache, v_cache: [batch, rows of the cache, heads, dim], contiguous. cache_seqlens: how many
    of them are used: an int, or int32 [batch] on the device; None: all. k, v: [batch, new rows, heads, dim], written into the
    caches behind those, in place, and attended to; then cache_seqlens is wanted. causal and window_size are aligned
    bottom-right with the keys used. block_table: int32 on the device, [batch, columns]: the caches are [pages, rows of a page,
    heads, dim], as in decode(). cache_batch_idx: int32 on the device, [batch]: which entry of the caches each of q's has; then
    these have a power of two of rows. num_splits is not read: fatune divides keys by itself. cache_leftpad: int32 on the device,
    [batch]: so many first rows of a cache are none of its keys; without block_table and cache_batch_idx. rotary_cos, rotary_sin:
    [positions, half of the elements rotated]: q and k are rotated, by PyTorch, before k is written; position 0 is the first key.
    page_table: block_table by FlashAttention-3's name. q, k_cache and v_cache may be float8_e4m3fn, and the caches alone; k and v are as
    these, and not rotated then. q_descale, k_descale, v_descale: float32 [batch, heads of k], as in flash_attn_func.
    Returns O [batch, rows, heads, dim], or (O, LSE float32 [batch, heads, rows]). No gradients. Raises as varlen() and decode().
    """
    import torch
    if page_table is not None:
        if block_table is not None:
            raise ValueError("block_table and page_table are given; allowed: one of them, which mean the same")
        block_table = page_table
    _check_new_rows(k, v, k_cache, v_cache, cache_seqlens)
    batch, rows, heads, _ = q.shape
    if cache_leftpad is not None and (block_table is not None or cache_batch_idx is not None
                                      or tuple(cache_leftpad.shape) != (batch,)):
        raise ValueError(f"cache_leftpad is {tuple(cache_leftpad.shape)}, block_table or cache_batch_idx "
                         f"{'None' if block_table is None and cache_batch_idx is None else 'given'}; allowed: ({batch},) without these, or None")
    if rotary_cos is not None or rotary_sin is not None:
        before = cache_seqlens if cache_leftpad is None or cache_seqlens is None else cache_seqlens - cache_leftpad
        q, k = _rotated(q, k, rotary_cos, rotary_sin, before, rotary_interleaved, causal or tuple(window_size) != (-1, -1))
    options: dict[str, Any] = {"causal": causal, "window": tuple(window_size), "scale": softmax_scale, "return_lse": True,
               **_flash_score(softcap, alibi_slopes, batch, heads),
               **_descales(batch, q, k_cache, v_cache, q_descale, k_descale, v_descale)}
    if cache_leftpad is not None:
        _put_one_before(options)
    if cache_batch_idx is not None:
        size = k_cache.shape[1]
        if block_table is not None or size & (size - 1):
            raise ValueError(f"cache_batch_idx is given with caches of {size} rows{' and block_table' * (block_table is not None)}; "
                             "allowed: caches of a power of two of rows, without block_table, or None")
        block_table = cache_batch_idx.to(torch.int32)[:, None]
    if block_table is not None:
        with torch.no_grad():
            found = _in_pages(q, k_cache, v_cache, k, v, cache_seqlens, block_table, options)
        return found if return_softmax_lse else found[0]
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if cache.dim() != 4 or cache.shape[0] != q.shape[0] or not cache.is_contiguous():
            raise ValueError(f"{name} is {tuple(cache.shape)} with strides {cache.stride()}; allowed: [batch, rows, heads, dim], "
                             f"contiguous, a batch of {q.shape[0]}")
    with torch.no_grad():
        if k is not None and cache_seqlens is not None:  # given together
            count = k.shape[1]
            before = cache_seqlens.long()[:, None] if isinstance(cache_seqlens, torch.Tensor) else cache_seqlens
            places = (before + torch.arange(count, device=q.device)).expand(batch, count)
            _append(k_cache, k, places)
            _append(v_cache, v, places)
            cache_seqlens = cache_seqlens + count
        if cache_leftpad is not None and not isinstance(cache_seqlens, torch.Tensor):
            cache_seqlens = torch.full((batch,), k_cache.shape[1] if cache_seqlens is None else cache_seqlens, device=q.device)
        if not isinstance(cache_seqlens, torch.Tensor):
            used = slice(0, cache_seqlens)
            out, lse = attention(q, k_cache[:, used], v_cache[:, used], layout="bshd", **options)
            return (out, lse) if return_softmax_lse else out
        starts = [torch.arange(0, (batch + 1) * count, count, dtype=torch.int32, device=q.device)
                  for count in (rows, k_cache.shape[1])]
        if cache_leftpad is not None:  # before all others one sequence of no queries, as the first one begins at row 0
            starts[1][:-1] += cache_leftpad
            starts = [torch.nn.functional.pad(rows_before, (1, 0)) for rows_before in starts]
            cache_seqlens = torch.nn.functional.pad(cache_seqlens - cache_leftpad, (1, 0))
        out, lse = varlen(q.reshape(-1, *q.shape[2:]), *(cache.flatten(0, 1) for cache in (k_cache, v_cache)), *starts,
                          seqused_k=torch.as_tensor(cache_seqlens, dtype=torch.int32), **options)
    out = out.unflatten(0, (batch, rows))
    return (out, lse.unflatten(1, (batch, rows)).transpose(0, 1)) if return_softmax_lse else out
