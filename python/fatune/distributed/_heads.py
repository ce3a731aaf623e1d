"""Ulysses: processes exchange rows of all heads for all rows of some heads, and back."""

from __future__ import annotations

import functools
import math

from .._autograd import once
from ._part import rows_of
from ._transport import as_bytes, in_turn

ALIGNMENT = 256  # of tensors in a room


class Exchange:
    """transport: ByCopies or ByMessages of those who take part; number: of this process among them; chunks: of each of them.

    Rows are moved as [batch, rows, heads, dim]: those of a chunk lie in one piece. heads, in its functions: the range of heads
    (begin, end) that each process gets, as many each; axes: of rows and of heads in the tensors.
    """

    def __init__(self, transport, number, chunks, what):
        self._transport, self._number, self._what, self._ranks = transport, number, what, len(chunks)
        self._rows = sum(chunk.rows for chunk in chunks[number])
        found = []
        for whose, own in enumerate(chunks):
            row = 0
            for chunk in own:
                found.append((chunk, whose, row))
                row += chunk.rows
        self._order, row = [], 0  # (whose, rows of it, where they go), in the order of the sequence
        for chunk, whose, start in sorted(found):
            self._order.append((whose, (start, start + chunk.rows), (row, row + chunk.rows)))
            row += chunk.rows
        self._all_rows = row

    def to_heads(self, tensors, heads, axes):
        """All rows of this process's heads from some rows of all heads. heads: of each tensor."""
        moved, made = [], []
        for tensor, ranges in zip(tensors, heads):
            own = ranges[0][1] - ranges[0][0]
            moved.append((self._ranks, tensor.shape[0], self._rows, own, tensor.shape[3]))
            made.append(tensor.new_empty((tensor.shape[0], self._all_rows, own, tensor.shape[3])))
        room, places = self._room("heads", moved, tensors)
        for tensor, ranges, (_, place) in zip(tensors, heads, places):
            rows_first = _rows_first(tensor, axes)
            if ranges[-1][1] == self._ranks * place.shape[3]:  # each head goes to one process
                place.copy_(rows_first.unflatten(2, (self._ranks, place.shape[3])).movedim(2, 0))
            else:
                for target, bounds in enumerate(ranges):
                    place[target].copy_(rows_of(rows_first, 2, bounds))
        moves, sends = [], []
        for (offset, place), whole in zip(places, made):
            step, to_one = place[0, 0, 0].nbytes, place[0].nbytes
            for batch in range(whole.shape[0]):
                for whose, (begin, end), (to, to_end) in self._order:
                    at = offset + (batch * self._rows + begin) * step
                    moves.append((whose, at + self._number * to_one, as_bytes(whole[batch, to:to_end])))
                    if whose == self._number:
                        sends += [(target, at + target * to_one, (end - begin) * step) for target in range(self._ranks)]
        self._move(room, moves, sends)
        return [whole if axes[0] == 1 else whole.transpose(1, 2) for whole in made]

    def to_rows(self, tensors, heads, all_heads, axes):
        """The other way round. Heads that several processes have had are summed, in the order of their ranks."""
        shapes = [_rows_first(tensor, axes).shape for tensor in tensors]
        room, places = self._room("heads", shapes, tensors)
        for tensor, (_, place) in zip(tensors, places):
            place.copy_(_rows_first(tensor, axes))
        came = [tensor.new_empty((self._ranks, shape[0], self._rows, *shape[2:])) for tensor, shape in zip(tensors, shapes)]
        moves, sends = [], []
        for (offset, place), parts in zip(places, came):
            step = place[0, 0].nbytes
            for batch in range(place.shape[0]):
                for whose, (begin, end), (row, _) in self._order:
                    at, size = offset + (batch * self._all_rows + row) * step, (end - begin) * step
                    if whose == self._number:
                        moves += [(source, at, as_bytes(parts[source, batch, begin:end])) for source in range(self._ranks)]
                    sends.append((whose, at, size))
        self._move(room, moves, sends)
        return [self._put_together(*one, axes) for one in zip(came, heads, all_heads)]

    def _put_together(self, parts, heads, all_heads, axes):
        """[processes, batch, rows, heads, dim] as one tensor."""
        _, batch, rows, _, dim = parts.shape
        whole = parts.new_empty((batch, rows, all_heads, dim) if axes[0] == 1 else (batch, all_heads, rows, dim))
        rows_first = _rows_first(whole, axes)
        if len(parts) * parts.shape[3] == all_heads:
            rows_first.unflatten(2, (len(parts), parts.shape[3])).copy_(parts.movedim(0, 2))
            return whole
        import torch
        total = torch.zeros(rows_first.shape, dtype=torch.float32, device=parts.device)
        for bounds, part in zip(heads, parts):
            rows_of(total, 2, bounds).add_(part)
        rows_first.copy_(total)
        return whole

    def _room(self, purpose, shapes, like):
        """(a room, [(offset, tensor of a shape in it)])."""
        sizes = [-(-math.prod(shape) * tensor.element_size() // ALIGNMENT) * ALIGNMENT for shape, tensor in zip(shapes, like)]
        room, memory = self._transport.room(purpose, sum(sizes), like[0])
        places, offset = [], 0
        for shape, tensor, size in zip(shapes, like, sizes):
            count = math.prod(shape) * tensor.element_size()
            places.append((offset, memory[offset:offset + count].view(tensor.dtype).view(shape)))
            offset += size
        return room, places

    def _move(self, room, moves, sends):
        self._transport.filled(room)
        self._transport.move(room, in_turn(moves, self._number, self._ranks), sends, self._what)()


def _rows_first(tensor, axes):
    """[batch, rows, heads, dim]."""
    return tensor if axes[0] == 1 else tensor.transpose(1, 2)


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
        def forward(ctx, exchange, heads, axes, *tensors):
            ctx.of = exchange, heads, [tensor.shape[axes[1]] for tensor in tensors], axes
            return tuple(exchange.to_heads(tensors, heads, axes))

        @staticmethod
        @once(torch)
        def backward(ctx, *gradients):
            exchange, heads, all_heads, axes = ctx.of
            return None, None, None, *exchange.to_rows(gradients, heads, all_heads, axes)

    class ToRows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, exchange, heads, all_heads, axes, tensor):
            ctx.of = exchange, heads, axes
            return exchange.to_rows([tensor], [heads], [all_heads], axes)[0]

        @staticmethod
        @once(torch)
        def backward(ctx, gradient):
            exchange, heads, axes = ctx.of
            return None, None, None, None, exchange.to_heads([gradient], [heads], axes)[0]

    return ToHeads.apply, ToRows.apply
