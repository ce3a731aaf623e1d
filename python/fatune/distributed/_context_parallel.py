"""In place of PyTorch's context parallel, torch.distributed.tensor.experimental.context_parallel."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ._attention import attention
from ._shares import shard, unshard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import torch


def _group_of(mesh):
    """The group of a DeviceMesh of one dimension, or the group given."""
    if not hasattr(mesh, "get_group"):
        return mesh
    if mesh.ndim != 1:
        raise ValueError(f"mesh has {mesh.ndim} dimensions; allowed: 1 (mesh[\"name\"] of a larger one)")
    return mesh.get_group()


@contextlib.contextmanager
def context_parallel(mesh: Any, *, buffers: Sequence[torch.Tensor] | None = None,
                     buffer_seq_dims: Sequence[int] | None = None,
                     no_restore_buffers: set[torch.Tensor] | None = None, **options: Any) -> Iterator[None]:
    """As PyTorch's: inside, buffers are this process's rows of what they were, in place, and
    torch.nn.functional.scaled_dot_product_attention is attention() over the mesh.

    mesh: a DeviceMesh of one dimension, or a process group. buffer_seq_dims: the dimension of each buffer's sequence.
    no_restore_buffers: those that need not be whole again behind it. options: further arguments of attention(), scheme for
    instance. The rows are shard()'s: zigzag, as PyTorch's with load balancing; is_causal is of the whole sequence. attn_mask
    is refused. SDPA is replaced as a name of torch.nn.functional: code that took it from there before keeps the old one.
    """
    import torch
    buffers, dims, kept = list(buffers or ()), list(buffer_seq_dims or ()), no_restore_buffers or set()
    if len(buffers) != len(dims):
        raise ValueError(f"buffer_seq_dims are {len(dims)} for {len(buffers)} buffers; allowed: as many")
    group, functional = _group_of(mesh), torch.nn.functional
    restored = [(buffer, buffer.detach().clone()) for buffer in buffers if not any(buffer is other for other in kept)]
    with torch.no_grad():
        for buffer, dim in zip(buffers, dims):
            own = shard(buffer.detach(), group=group, dim=dim, order=options.get("order", "zigzag"))
            buffer.resize_(own.shape).copy_(own)

    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                     enable_gqa=False):
        if attn_mask is not None:
            raise ValueError("attn_mask is given over several processes; allowed: None, is_causal, or what "
                             "fatune.distributed.attention takes")
        if not enable_gqa and query.shape[1] != key.shape[1]:
            raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}; allowed: as many, or enable_gqa=True")
        return attention(query, key, value, group=group, causal=is_causal, dropout=dropout_p, scale=scale, **options)

    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before
        with torch.no_grad():
            for buffer, whole in restored:
                buffer.resize_(whole.shape).copy_(whole)


def context_parallel_unshard(mesh: Any, buffers: Sequence[torch.Tensor], seq_dims: Sequence[int],
                             order: str = "zigzag") -> list[torch.Tensor]:
    """The whole tensors of buffers that context_parallel() has cut, or of what was made of them; as PyTorch's."""
    group = _group_of(mesh)
    return [unshard(buffer, group=group, dim=dim, order=order) for buffer, dim in zip(buffers, seq_dims)]
