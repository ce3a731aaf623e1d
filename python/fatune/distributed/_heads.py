"""Ulysses: processes exchange rows of all heads for all rows of some heads, and back."""

from __future__ import annotations

import functools
import math

from .._autograd import once
from ._part import rows_of
from ._transport import as_bytes


class Exchange:
    """transport: Copies or Letters of those who take part; number: of this process among them; chunks: of each of them.
    heads, in its functions: the range of heads (begin, end) that each gets; axes: of rows and of heads."""

    def __init__(self, transport, number, chunks, what):
        self.transport, self.number, self.what = transport, number, what
        self._rows = [sum(chunk.rows for chunk in own) for own in chunks]
        self._order = []  # (whose, rows of it, where they go)
        starts = [0] * len(chunks)
        found = []
        for whose, own in enumerate(chunks):
            for chunk in own:
                found.append((chunk, whose, starts[whose]))
                starts[whose] += chunk.rows
        row = 0
        for chunk, whose, start in sorted(found):
            self._order.append((whose, (start, start + chunk.rows), (row, row + chunk.rows)))
            row += chunk.rows
        self.all_rows = row

    def to_heads(self, tensor, heads, axes):
        """All rows of this process's heads from some rows of all heads."""
        row_axis, head_axis = axes

        def shape_of(source, target):
            begin, end = heads[target]
            return _resized(tensor.shape, {row_axis: self._rows[source], head_axis: end - begin})

        def fill(target, room):
            room.copy_(rows_of(tensor, head_axis, heads[target]))

        came = self._exchange(tensor, shape_of, fill)
        begin, end = heads[self.number]
        whole = tensor.new_empty(_resized(tensor.shape, {row_axis: self.all_rows, head_axis: end - begin}))
        for whose, bounds, place in self._order:
            rows_of(whole, row_axis, place).copy_(rows_of(came[whose], row_axis, bounds))
        return whole

    def to_rows(self, tensor, heads, all_heads, axes):
        """The other way round. Heads that several processes have had are summed, in the order of their ranks."""
        row_axis, head_axis = axes

        def shape_of(source, target):
            begin, end = heads[source]
            return _resized(tensor.shape, {row_axis: self._rows[target], head_axis: end - begin})

        def fill(target, room):
            for whose, bounds, place in self._order:
                if whose == target:
                    rows_of(room, row_axis, bounds).copy_(rows_of(tensor, row_axis, place))

        came = self._exchange(tensor, shape_of, fill)
        shape = _resized(tensor.shape, {row_axis: self._rows[self.number], head_axis: all_heads})
        if sum(end - begin for begin, end in heads) == all_heads:
            whole = tensor.new_empty(shape)
            for bounds, part in zip(heads, came):
                rows_of(whole, head_axis, bounds).copy_(part)
            return whole
        import torch
        whole = tensor.new_zeros(shape, dtype=torch.float32)
        for bounds, part in zip(heads, came):
            rows_of(whole, head_axis, bounds).add_(part)
        return whole.to(tensor.dtype)

    def _exchange(self, like, shape_of, fill):
        """What came from each. shape_of(source, target): of what goes from one to the other; fill(target, room): puts there
        what goes to the target. A process's room has what goes to each, one behind the other."""
        everyone, size = range(len(self._rows)), like.element_size()

        def bytes_of(source, target):
            return math.prod(shape_of(source, target)) * size

        def place(source, target):
            return sum(bytes_of(source, other) for other in range(target))

        most = max(place(source, len(self._rows)) for source in everyone)
        room, memory = self.transport.room("heads", most, like)
        own = [(target, place(self.number, target), bytes_of(self.number, target)) for target in everyone]
        for target, offset, count in own:
            fill(target, memory[offset:offset + count].view(like.dtype).view(shape_of(self.number, target)))
        self.transport.filled()
        came = [like.new_empty(shape_of(source, self.number)) for source in everyone]
        moves = [(source, place(source, self.number), as_bytes(came[source])) for source in everyone]
        self.transport.move(room, moves, own, self.what)()
        return came


def _resized(shape, extents):
    return [extents.get(axis, extent) for axis, extent in enumerate(shape)]


def heads_of(processes, heads_q, heads_kv):
    """The ranges of query heads and of their heads of K and V, by process. Where there are fewer of these than processes,
    several have the same."""
    if heads_q % processes or heads_kv % processes and processes % heads_kv:
        raise ValueError(f"there are {heads_q} query heads and {heads_kv} heads of k; allowed where {processes} processes "
                         "exchange heads: as many for each, or one of k for several")
    group, own = heads_q // heads_kv, heads_q // processes
    of_q = tuple((n * own, (n + 1) * own) for n in range(processes))
    return of_q, tuple((begin // group, -(-end // group)) for begin, end in of_q)


@functools.lru_cache(maxsize=None)
def functions():
    """(to heads, to rows) as differentiable functions; made at the first call, as PyTorch is imported no earlier."""
    import torch

    class ToHeads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, exchange, tensor, heads, axes):
            ctx.of = exchange, heads, tensor.shape[axes[1]], axes
            return exchange.to_heads(tensor, heads, axes)

        @staticmethod
        @once(torch)
        def backward(ctx, gradient):
            exchange, heads, all_heads, axes = ctx.of
            return None, exchange.to_rows(gradient, heads, all_heads, axes), None, None

    class ToRows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, exchange, tensor, heads, all_heads, axes):
            ctx.of = exchange, heads, axes
            return exchange.to_rows(tensor, heads, all_heads, axes)

        @staticmethod
        @once(torch)
        def backward(ctx, gradient):
            exchange, heads, axes = ctx.of
            return None, exchange.to_heads(gradient, heads, axes), None, None, None

    return ToHeads.apply, ToRows.apply
