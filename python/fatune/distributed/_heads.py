"""Ulysses: processes exchange rows of all heads for all rows of some heads, and back."""

from __future__ import annotations

import functools

from .._autograd import once
from ._part import rows_of
from ._shares import join
from ._transport import Messages


class Exchange:
    """members: the ranks in the group of those who take part, number: of this process among them; chunks: of each of them.
    heads, in its functions: the range of heads (begin, end) that each gets; axes: of rows and of heads."""

    def __init__(self, group, members, number, chunks, what):
        self.group, self.members, self.number, self.chunks, self.what = group, members, number, chunks, what
        self._order = []  # (whose, rows of it, where they go)
        starts = [0] * len(members)
        found = []
        for whose, own in enumerate(chunks):
            for chunk in own:
                found.append((chunk, whose, starts[whose]))
                starts[whose] += chunk.rows
        row = 0
        for chunk, whose, start in sorted(found):
            self._order.append((whose, (start, start + chunk.rows), (row, row + chunk.rows)))
            row += chunk.rows
        self.rows, self.all_rows = starts[number], row
        self.joined = join(chunk for own in chunks for chunk in own)

    def to_heads(self, tensor, heads, axes):
        """All rows of this process's heads from some rows of all heads."""
        row_axis, head_axis = axes
        sends = [rows_of(tensor, head_axis, bounds).contiguous() for bounds in heads]
        came = self._post(sends, sends[self.number].shape)
        shape = list(sends[self.number].shape)
        shape[row_axis] = self.all_rows
        whole = tensor.new_empty(shape)
        for whose, bounds, place in self._order:
            rows_of(whole, row_axis, place).copy_(rows_of(came[whose], row_axis, bounds))
        return whole

    def to_rows(self, tensor, heads, all_heads, axes):
        """The other way round. Heads that several processes have had are summed, in the order of their ranks."""
        row_axis, head_axis = axes
        sends = []
        for whose in range(len(self.members)):
            shape = list(tensor.shape)
            shape[row_axis] = sum(chunk.rows for chunk in self.chunks[whose])
            sends.append(tensor.new_empty(shape))
        for whose, bounds, place in self._order:
            rows_of(sends[whose], row_axis, bounds).copy_(rows_of(tensor, row_axis, place))
        came = self._post(sends, sends[self.number].shape)
        shape = list(sends[self.number].shape)
        shape[head_axis] = all_heads
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

    def _post(self, sends, shape):
        """What came from each, of this shape, for what goes to each."""
        came = [sends[n] if n == self.number else sends[n].new_empty(shape) for n in range(len(self.members))]
        messages = Messages(self.group, self.members, self.what)
        messages.post([(n, send) for n, send in enumerate(sends) if n != self.number],
                      [(n, room) for n, room in enumerate(came) if n != self.number])
        messages.wait()
        return came


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
