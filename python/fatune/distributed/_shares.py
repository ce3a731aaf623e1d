"""Which rows of a sequence each process has; tensors cut into these shares and put together again."""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import torch

ORDERS = ("zigzag", "contiguous")


class Chunk(tuple):
    """(first row in the whole sequence, rows); or (..., what it belongs to), see documents_of()."""
    __slots__ = ()
    of = property(lambda self: self[2] if len(self) > 2 else None)
    first = property(lambda self: self[0])
    rows = property(lambda self: self[1])
    end = property(lambda self: self[0] + self[1])


def join(chunks):
    """Chunks in ascending order, those that touch as one."""
    joined = []
    for first, rows in sorted(chunks):
        if joined and joined[-1].end == first:
            joined[-1] = Chunk((joined[-1].first, joined[-1].rows + rows))
        elif rows:
            joined.append(Chunk((first, rows)))
    return tuple(joined)


@functools.lru_cache(maxsize=256)
def chunks_of(rank, ranks, length, order):
    """The rows of one process as chunks, in the order in which it has them, which is ascending.

    "contiguous": the rank-th of as many equal parts as there are processes. "zigzag": of twice as many parts the rank-th
    from the front and the rank-th from the back, so that all processes have equal work where queries see earlier keys alone.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; allowed: {', '.join(map(repr, ORDERS))}")
    if ranks == 1:
        return join([Chunk((0, length))])
    parts = ranks if order == "contiguous" else 2 * ranks
    if length % parts != 0:
        raise ValueError(f"the sequence has {length} rows; allowed for {ranks} processes and order {order!r}: a multiple of "
                         f"{parts} (pad it)")
    rows = length // parts
    numbers = (rank,) if order == "contiguous" else (rank, parts - 1 - rank)
    return join(Chunk((number * rows, rows)) for number in numbers)


@functools.lru_cache(maxsize=256)
def split(chunks, documents):
    """The chunks, cut where documents end that are not whole in them. documents: the first row of each, then all rows. What
    a chunk belongs to is the first row of its document, or, where it has whole ones, their first rows and its end."""
    made = []
    for chunk in chunks:
        first = documents[bisect.bisect_right(documents, chunk.first) - 1]
        inside = documents[bisect.bisect_left(documents, chunk.first):bisect.bisect_left(documents, chunk.end)]
        begin = chunk.first
        if first < begin:  # a document that began before
            end = min(chunk.end, documents[bisect.bisect_right(documents, begin)])
            made.append(Chunk((begin, end - begin, (first,))))
            begin = end
        last = documents[bisect.bisect_right(documents, chunk.end) - 1]  # where the last whole one ends
        whole = tuple(start for start in inside if start < last)
        if whole:
            made.append(Chunk((begin, last - begin, (*whole, last))))
            begin = last
        if begin < chunk.end:  # one that goes on behind it
            made.append(Chunk((begin, chunk.end - begin, (begin,))))
    return tuple(made)


def place_of(group):
    """(rank, processes) of this process in a group; (0, 1) where torch.distributed is not in use."""
    import torch.distributed as dist
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in the group; allowed: processes of the group alone")
    return rank, dist.get_world_size(group)


def shard(tensor: torch.Tensor, *, group: Any = None, dim: int = 2, order: str = "zigzag") -> torch.Tensor:
    """This process's rows of a tensor that all processes have whole: what attention() takes.

    dim: that of the sequence. order: "zigzag", balanced for causal attention, or "contiguous"; the same in attention().
    Raises ValueError where the length does not divide.
    """
    import torch
    chunks = chunks_of(*place_of(group), tensor.shape[dim], order)
    return torch.cat([tensor.narrow(dim, *chunk) for chunk in chunks], dim)


def unshard(tensor: torch.Tensor, *, group: Any = None, dim: int = 2, order: str = "zigzag") -> torch.Tensor:
    """The whole tensor on every process from the shares of all of them. Nothing is differentiated."""
    import torch
    import torch.distributed as dist
    rank, ranks = place_of(group)
    own = tensor.detach().contiguous()
    if ranks == 1:
        return own
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own, group=group)
    shape = list(own.shape)
    shape[dim] *= ranks
    whole = own.new_empty(shape)
    for number, part in enumerate(parts):
        begin = 0
        for chunk in chunks_of(number, ranks, shape[dim], order):
            whole.narrow(dim, *chunk).copy_(part.narrow(dim, begin, chunk.rows))
            begin += chunk.rows
    return whole


def positions(length: int, *, group: Any = None, order: str = "zigzag", device: Any = None) -> torch.Tensor:
    """int64 [rows of this process]: where each of its rows stands in a whole sequence of this length (for rotary
    embeddings, labels, ...)."""
    import torch
    return torch.cat([torch.arange(chunk.first, chunk.end, device=device)
                      for chunk in chunks_of(*place_of(group), length, order)])
