"""Gather: keys of all processes come in slices of heads, the next slice while kernels work on this one."""

from __future__ import annotations

import collections
import contextlib
import functools
import math

from ._part import Sums, add_captured, rows_of
from ._plan import gather_plan
from ._schemes import Run
from ._transport import as_bytes, in_turn

SLICE_BYTES = 16 << 20  # of K and V that come from others: with less they come at once
MOST_BYTES = 512 << 20  # of them in a slice

# Heads (begin, end) of Q and of K and V, and where this process's rows of K and V lie in its room.
Slice = collections.namedtuple("Slice", "q kv offset")


class Lanes:
    """Streams on which calls run side by side, so that one fills the multiprocessors that another leaves at its end."""

    def __init__(self, device):
        self._device, self._streams = device, _streams(device.index) if device.type == "cuda" else None

    def on(self, n):
        """A context, whose allocations and launches are the n-th lane's."""
        import torch
        return torch.cuda.stream(self._streams[n % 2]) if self._streams else contextlib.nullcontext()

    def begin(self):
        """The lanes wait for what the current stream has."""
        import torch
        for stream in self._streams or ():
            stream.wait_stream(torch.cuda.current_stream(self._device))

    def follow(self, other):
        """The current lane waits for what the other has."""
        import torch
        if self._streams:
            torch.cuda.current_stream(self._device).wait_stream(self._streams[other])

    def done(self):
        """A function: the current stream waits for what the lanes have now."""
        import torch
        events = [stream.record_event() for stream in self._streams or ()]

        def wait():
            for event in events:
                torch.cuda.current_stream(self._device).wait_event(event)
        return wait


@functools.lru_cache(maxsize=None)
def _streams(index):
    import torch
    return [torch.cuda.Stream(index) for _ in range(2)]


def slices_of(heads_q, heads_kv, coming, returns):
    """Ranges of heads of Q and of K and V. coming: bytes that come for all of them; returns: whether gradients go back.

    The first is one head of K, so that kernels begin soon; the others come meanwhile. Where gradients go back the last is one head,
    too: those before it go back beside its kernels."""
    bounds = [0, heads_kv]
    if coming >= SLICE_BYTES and heads_kv > 1:
        end = heads_kv - 1 if returns and heads_kv > 2 else heads_kv
        count = min(end - 1, -(-coming * (end - 1) // (heads_kv * MOST_BYTES)))
        bounds = sorted({0, heads_kv, *(1 + n * (end - 1) // count for n in range(count + 1))})
    group = heads_q // heads_kv
    return [((begin * group, end * group), (begin, end)) for begin, end in zip(bounds, bounds[1:])]


class Gather(Run):
    """Each chunk of queries is one call for each slice."""

    plan_of = staticmethod(gather_plan)

    def __init__(self, calls, session, group, members, rank, chunks, seen, places, seed, offset, transport):
        super().__init__(calls, session, group, members, rank, chunks, seen, places, seed, offset)
        self._transport = transport
        self._plans = [gather_plan(number, chunks, seen, places) for number in range(len(chunks))]

    # ---- rows of K and V, or of their gradients, of some heads: [batch, rows, those of K, then those of V] ----

    def _views(self, memory, heads, dims):
        """K and V in the layout of the call."""
        batch, rows, _ = memory.shape
        of_k = heads * dims[0]
        made = (memory[..., :of_k].view(batch, rows, heads, dims[0]), memory[..., of_k:].view(batch, rows, heads, dims[1]))
        return tuple(tensor.transpose(1, 2) if self.axis == 2 else tensor for tensor in made)

    def _of_heads(self, tensor, bounds):
        return rows_of(tensor, self.head_axis, bounds)

    def _slices(self, q, k, v, returns):
        batch, rows = k.shape[0], k.shape[self.axis]
        heads_q, heads_kv = q.shape[self.head_axis], k.shape[self.head_axis]
        of_head = batch * (k.shape[3] + v.shape[3]) * k.element_size()
        most = max(sum(move.end - move.begin for move in plan.moves if move.source != number)
                   for number, plan in enumerate(self._plans))
        found, offset = [], 0
        for of_q, of_kv in slices_of(heads_q, heads_kv, most * of_head * heads_kv, returns):
            found.append(Slice(of_q, of_kv, offset))
            offset += (of_kv[1] - of_kv[0]) * rows * of_head
        return found

    # ---- moves ---------------------------------------------------------------------------------------------

    def _keys(self, room, n, part, k, v):
        """K and V of a slice on their way: (function that waits, memory)."""
        batch, rows, heads = k.shape[0], k.shape[self.axis], part.kv[1] - part.kv[0]
        width = heads * (k.shape[3] + v.shape[3])
        step = width * k.element_size()  # a row
        memory = k.new_empty((batch, self.plan.rows, width))
        own = [(part.offset + b * rows * step, b) for b in range(batch)]
        moves = in_turn([(move.source, begin + move.begin * step, as_bytes(memory[b, move.to:move.to + move.end - move.begin]))
                         for begin, b in own for move in self.plan.moves], self.rank, len(self._plans))
        sends = [(number, begin + move.begin * step, (move.end - move.begin) * step) for number, plan in enumerate(self._plans)
                 for begin, _ in own for move in plan.moves if move.source == self.rank]
        return self._transport.move(room, moves, sends, f"k and v, part {n}"), memory

    def _arrived(self, q, k, v, returns, lanes):
        """(slice, K, V of all that is seen) of each slice, for the lanes; the next one is on its way meanwhile."""
        slices = self._slices(q, k, v, returns)
        batch, rows, dims = k.shape[0], k.shape[self.axis], (k.shape[3], v.shape[3])
        of_head = batch * rows * sum(dims) * k.element_size()
        room, memory = self._transport.room("keys", of_head * k.shape[self.head_axis], k)
        for part in slices:
            heads = part.kv[1] - part.kv[0]
            place = memory[part.offset:part.offset + heads * of_head].view(k.dtype).view(batch, rows, heads * sum(dims))
            for to, tensor in zip(self._views(place, heads, dims), (k, v)):
                to.copy_(self._of_heads(tensor, part.kv))
        self._transport.filled(room)
        coming, earlier = self._keys(room, 0, slices[0], k, v), []
        for n, part in enumerate(slices):
            wait, memory = coming
            if len(earlier) == 2:  # the memory of the slice before the last may be taken again
                earlier.pop(0)[0]()
            coming = self._keys(room, n + 1, slices[n + 1], k, v) if n + 1 < len(slices) else None
            wait()
            lanes.begin()
            yield part, self._views(memory, part.kv[1] - part.kv[0], dims)
            earlier.append((lanes.done(), memory))
        earlier[-1][0]()

    # ---- forward -------------------------------------------------------------------------------------------

    def forward(self, q, k, v, sinks):
        """(O, LSE)."""
        import torch
        out = q.new_empty([*q.shape[:3], v.shape[3]])
        lse = q.new_empty((q.shape[0], q.shape[self.head_axis], q.shape[self.axis]), dtype=torch.float32)
        wide, lanes = sinks is not None or self.sums_parts() or not self.plan.pieces, Lanes(q.device)
        for part, keys in self._arrived(q, k, v, False, lanes):
            calls = self.calls.of_heads(part.q[0], part.kv[0])
            own_q, own_out, own_lse = self._of_heads(q, part.q), self._of_heads(out, part.q), rows_of(lse, 1, part.q)
            if wide:
                with lanes.on(0):
                    self._forward_wide(calls, own_q, keys, own_out, own_lse, None if sinks is None else sinks[slice(*part.q)])
                continue
            for n, piece in enumerate(self.plan.pieces):
                with lanes.on(n):
                    _, made = calls.forward(own_q, *keys, piece, self.seed, self.offset, False,
                                            rows_of(own_out, self.axis, piece.q))
                    rows_of(own_lse, 2, piece.q).copy_(made)
        return out, lse

    def _forward_wide(self, calls, q, keys, out, lse, sinks):
        sums = Sums(calls, [chunk.rows for chunk in self.chunks[self.rank]], self.session)
        for piece in self.plan.pieces:
            sums.add(piece.chunks, *calls.forward(q, *keys, piece, self.seed, self.offset, True))
        for to, made in zip((out, lse), sums.finish(q, list(out.shape), sinks)):
            to.copy_(made)

    # ---- backward ------------------------------------------------------------------------------------------

    def backward(self, q, k, v, out, lse, dout, dlse):
        """(dQ, dK, dV, the gradients of what is captured)."""
        import torch
        made = torch.empty_like(q, dtype=torch.float32), torch.empty_like(k), torch.empty_like(v)
        if self.sums_parts() or not self.plan.pieces:
            made[0].zero_()
        dims, captured, returning, lanes = (k.shape[3], v.shape[3]), {}, [], Lanes(q.device)
        most = max(plan.rows for plan in self._plans)
        for n, (part, keys) in enumerate(self._arrived(q, k, v, True, lanes)):
            heads = part.kv[1] - part.kv[0]
            shape = (k.shape[0], self.plan.rows, heads * sum(dims))
            with lanes.on(self._first_lane()):
                room, memory = self._transport.room("gradients", shape[0] * most * shape[2] * 4, k)
                memory = memory[:math.prod(shape) * 4].view(torch.float32).view(shape)
            saved = [None if tensor is None else self._of_heads(tensor, part.q) for tensor in (q, out, dout)]
            logs = [None if tensor is None else rows_of(tensor, 1, part.q) for tensor in (lse, dlse)]
            self._backward_slice(part, saved, logs, keys, self._of_heads(made[0], part.q), memory, captured, lanes)
            with lanes.on(1):
                coming = self._return(room, n, memory)
                if returning:
                    self._take(*returning[-1], made, dims)
            # The slice before has been taken by the second lane; the first one may write its memory a slice later.
            returning = [*returning[-1:], (part, memory, *coming)]
        with lanes.on(1):
            self._take(*returning[-1], made, dims)
        lanes.done()()
        return *made, captured

    def _first_lane(self):
        """That of the call with most keys: the second where what calls make is added up."""
        return 1 if self.wanted or self.sums_parts() else 0

    def _backward_slice(self, part, saved, logs, keys, dq, memory, captured, lanes):
        """Fills memory with what this process makes of dK and dV of the keys at hand; the second lane has it."""
        calls, (q, out, dout), (lse, dlse) = self.calls.of_heads(part.q[0], part.kv[0]), saved, logs
        pieces = sorted(self.plan.pieces, key=lambda piece: piece.k[0] - piece.k[1])  # most keys first
        gradients = self._views(memory, keys[0].shape[self.head_axis], (keys[0].shape[3], keys[1].shape[3]))
        arguments = out, lse, dout, dlse
        with lanes.on(self._first_lane()):
            begin, end = pieces[0].k if pieces else (0, 0)
            memory[:, :begin].zero_()
            memory[:, end:].zero_()
            for piece in pieces[:1]:
                to = None if self.sums_parts() else rows_of(dq, self.axis, piece.q), *(
                    rows_of(gradient, self.axis, piece.k) for gradient in gradients)
                made = self._call_backward(calls, q, keys, arguments, piece, to, captured)
                if to[0] is None:
                    rows_of(dq, self.axis, piece.q).add_(made[0])
        with lanes.on(1):
            for n, piece in enumerate(pieces[1:]):
                to = None if self.sums_parts() else rows_of(dq, self.axis, piece.q), None, None
                made = self._call_backward(calls, q, keys, arguments, piece, to, captured)
                if n == 0:
                    lanes.follow(0)
                for own, gradient, bounds in zip((dq, *gradients), made, (piece.q, piece.k, piece.k)):
                    if own is not dq or to[0] is None:
                        rows_of(own, self.axis, bounds).add_(gradient)
            lanes.follow(0)

    def _call_backward(self, calls, q, keys, arguments, piece, to, captured):
        made, of_captured = calls.backward(q, *keys, *arguments, piece, self.seed, self.offset, to)
        add_captured(captured, of_captured)
        return made

    def _return(self, room, n, memory):
        """What others have made of this process's rows on its way: (function that waits, [(batch entry, begin, end,
        gradients)])."""
        self._transport.filled(room)
        batch, _, width = memory.shape
        step, came, moves, sends = width * 4, [], [], []
        for number, plan in enumerate(self._plans):
            if number == self.rank:
                continue
            for b in range(batch):
                for move in plan.moves:
                    if move.source == self.rank:
                        to = memory.new_empty((move.end - move.begin, width))
                        moves.append((number, (b * plan.rows + move.to) * step, as_bytes(to)))
                        came.append((b, move.begin, move.end, to))
                sends += [(number, (b * self.plan.rows + move.to) * step, (move.end - move.begin) * step)
                          for move in self.plan.moves if move.source == number]
        moves = in_turn(moves, self.rank, len(self._plans))
        return self._transport.move(room, moves, sends, f"the gradients of k and v, part {n}"), came

    def _take(self, part, memory, wait, came, made, dims):
        """Adds to this process's own what has come, rank by rank, and stores dK and dV of the slice."""
        batch, rows, heads = memory.shape[0], made[1].shape[self.axis], part.kv[1] - part.kv[0]
        own = [move for move in self.plan.moves if move.source == self.rank]
        total = memory.new_empty((batch, rows, memory.shape[2]))
        if sum(move.end - move.begin for move in own) < rows:
            total.zero_()
        for move in own:
            total[:, move.begin:move.end].copy_(memory[:, move.to:move.to + move.end - move.begin])
        wait()
        for b, begin, end, gradients in came:
            total[b, begin:end].add_(gradients)
        for gradient, of_slice in zip(made[1:], self._views(total, heads, dims)):
            self._of_heads(gradient, part.kv).copy_(of_slice)
