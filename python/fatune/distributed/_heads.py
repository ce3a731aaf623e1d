"""Ulysses: processes exchange rows of all heads for all rows of some heads, and back."""

from __future__ import annotations

import math

from ._part import add_captured, rows_of, sink_gradient
from ._transport import as_bytes, in_turn

ALIGNMENT = 256  # of tensors in a room


class Exchange:
    """transport: ByCopies or ByMessages of those who take part; number: of this process among them; chunks: of each of them;
    axes: of rows and of heads in the tensors.

    Rows are moved as [batch, rows, heads, dim]: those of a chunk lie in one piece. heads, in its functions: of each tensor the
    range of heads (begin, end) that each process gets, as many each.
    """

    def __init__(self, transport, number, chunks, axes, what):
        self._transport, self._number, self._what, self._ranks = transport, number, what, len(chunks)
        self._axes, self._rows = axes, sum(chunk.rows for chunk in chunks[number])
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

    def to_heads(self, tensors, heads):
        """All rows of this process's heads from some rows of all heads, on their way: (tensors, function that waits)."""
        moved, made = [], []
        for tensor, ranges in zip(tensors, heads):
            own = ranges[0][1] - ranges[0][0]
            moved.append((self._ranks, tensor.shape[0], self._rows, own, tensor.shape[3]))
            made.append(tensor.new_empty((tensor.shape[0], self._all_rows, own, tensor.shape[3])))
        room, places = self._room("heads", moved, tensors)
        for tensor, ranges, (_, place) in zip(tensors, heads, places):
            rows_first = self._rows_first(tensor)
            by_process = _by_process(rows_first, ranges)
            if by_process is not None:
                place.copy_(by_process.movedim(2, 0))
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
        return [self._rows_first(whole) for whole in made], self._move(room, moves, sends)

    def to_rows(self, tensors, heads, into):
        """The other way round, into tensors of all heads: a function that waits, and stores these heads there. Those that several
        processes have had are summed, in the order of their ranks."""
        shapes = [self._rows_first(tensor).shape for tensor in tensors]
        room, places = self._room("heads", shapes, tensors)
        for tensor, (_, place) in zip(tensors, places):
            place.copy_(self._rows_first(tensor))
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
        wait = self._move(room, moves, sends)

        def store():
            wait()
            for parts, ranges, whole in zip(came, heads, into):
                self._store(parts, ranges, self._rows_first(whole))
        return store

    @staticmethod
    def _store(parts, ranges, whole):
        """parts: [processes, batch, rows, heads, dim]; whole: [batch, rows, all heads, dim]."""
        by_process = _by_process(whole, ranges)
        if by_process is not None:
            by_process.copy_(parts.movedim(0, 2))
            return
        import torch
        total = torch.zeros(whole.shape, dtype=torch.float32, device=whole.device)
        for bounds, part in zip(ranges, parts):
            rows_of(total, 2, bounds).add_(part)
        whole.copy_(total)

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
        return self._transport.move(room, in_turn(moves, self._number, self._ranks), sends, self._what)

    def _rows_first(self, tensor):
        """[batch, rows, heads, dim] of a tensor in the layout of the call, and back."""
        return tensor if self._axes[0] == 1 else tensor.transpose(1, 2)


def _by_process(tensor, ranges):
    """Ranges of the heads of [batch, rows, heads, dim], where they lie at equal distances, as [batch, rows, processes, heads, dim];
    else None."""
    step, (first, end) = tensor.shape[2] // len(ranges), ranges[0]
    if step * len(ranges) != tensor.shape[2] or any(begin != first + n * step for n, (begin, _) in enumerate(ranges)):
        return None
    return tensor.unflatten(2, (len(ranges), step)).narrow(3, first, end - first)


class ByHeads:
    """Attention of processes that exchange heads, in slices of these: rows of one are on their way while kernels work on another.

    run: of this process's heads, a Run; heads_q, heads_kv: the ranges of all processes, as heads_of() gives them; slices: ranges of
    heads of Q and of K and V, from the first of a process's own on; wants_lse: whether LSE is asked for.
    """

    def __init__(self, run, exchange, number, heads_q, heads_kv, slices, wants_lse):
        self._run, self._exchange, self._number, self._wants_lse = run, exchange, number, wants_lse
        self._heads, self._slices, self.wanted = (heads_q, heads_kv), slices, ()

    def _ranges(self, n):
        """Of all processes, the heads of Q and of K and V in the n-th slice."""
        return [[(begin + part[0], begin + part[1]) for begin, _ in heads] for heads, part in zip(self._heads, self._slices[n])]

    def _log(self, tensor):
        """[batch, heads, rows] as a tensor with a dim, in the layout of the call; the same memory."""
        return tensor.unsqueeze(-1) if self._run.axis == 2 else tensor.transpose(1, 2).unsqueeze(-1)

    def _of_log(self, tensor):
        return None if tensor is None else (tensor if self._run.axis == 2 else tensor.transpose(1, 2)).squeeze(-1).contiguous()

    def attend(self, q, k, v, sinks):
        """(O, LSE, what the backward needs)."""
        import torch
        run, kept, going = self._run, [], []
        coming = [self._exchange.to_heads((q, k, v), (of_q, of_kv, of_kv))
                  for of_q, of_kv in map(self._ranges, range(len(self._slices)))]
        out = q.new_empty([*q.shape[:3], v.shape[3]])
        lse = q.new_empty([q.shape[0], q.shape[run.head_axis], q.shape[run.axis]], dtype=torch.float32) if self._wants_lse else None
        for n, (own, wait) in enumerate(coming):
            wait()
            of_q, _ = self._ranges(n)
            made = run.of_heads(*self._slices[n]).forward(*own, None if sinks is None else sinks[slice(*of_q[self._number])])
            into = [out] if lse is None else [out, self._log(lse)]
            going.append(self._exchange.to_rows([made[0], self._log(made[1])][:len(into)], [of_q] * len(into), into))
            kept += [*own, *made]
        for store in going:
            store()
        return out, lse, kept

    def differentiate(self, kept, dout, dlse, sinks):
        """(dQ, dK, dV, gradient of the sinks or None, the gradients of what is captured)."""
        import torch
        run, captured, going, into = self._run, {}, [], []
        tensors = [dout] if dlse is None else [dout, self._log(dlse)]
        ranges = list(map(self._ranges, range(len(self._slices))))
        coming = [self._exchange.to_heads(tensors, [of_q] * len(tensors)) for of_q, _ in ranges]
        of_sinks = None if sinks is None else torch.zeros_like(sinks)
        for own, heads in zip(kept[:3], (self._heads[0], self._heads[1], self._heads[1])):
            shape = list(dout.shape)
            shape[run.head_axis], shape[3] = heads[-1][1], own.shape[3]
            into.append(own.new_empty(shape))
        for n, ((of_q, of_kv), (came, wait)) in enumerate(zip(ranges, coming)):
            wait()
            own, logs = kept[5 * n:5 * n + 5], None if dlse is None else self._of_log(came[1])
            *made, of_captured = run.of_heads(*self._slices[n]).backward(*own, came[0], logs)
            add_captured(captured, of_captured)
            if sinks is not None:
                bounds = slice(*of_q[self._number])
                of_sinks[bounds] = sink_gradient(sinks[bounds], own[3], own[4], came[0], logs, run.calls.options["layout"])
            made = [gradient.to(tensor.dtype) for gradient, tensor in zip(made, own)]
            going.append(self._exchange.to_rows(made, (of_q, of_kv, of_kv), into))
        for store in going:
            store()
        return *into, of_sinks, captured


def heads_of(processes, heads_q, heads_kv):
    """The ranges of query heads and of their heads of K and V, by process. Where there are fewer of these than processes,
    several have the same."""
    if heads_q % processes or heads_kv % processes and processes % heads_kv:
        raise ValueError(f"there are {heads_q} query heads and {heads_kv} heads of k; allowed where {processes} processes "
                         "exchange heads: as many for each, or one of k for several")
    group, own = heads_q // heads_kv, heads_q // processes
    of_q = tuple((n * own, (n + 1) * own) for n in range(processes))
    return of_q, tuple((begin // group, -(-end // group)) for begin, end in of_q)
