"""Attention of one process's queries on the keys of all, as one differentiable function; ring. Gather: _gather.py."""

from __future__ import annotations

import copy
import functools
import math

from .._autograd import once
from ._heads import heads_of
from ._part import Sums, add_captured, as_input, rows_of, sink_gradient
from ._plan import ring_plan
from ._transport import Messages


SLICE_BYTES = 128 << 20  # of K and V of a process that go round a ring at a time, at most


def _count(ranges):
    return sum(end - begin for begin, end in ranges)


class Run:
    """One attention of one process: what its forward and its backward have in common, no tensor of it.

    members: the ranks in the group of those who take part, rank: the number of this process among them, chunks: of each of
    them; wanted: names of what is captured and gets a gradient; seen: the diagonals that are seen; places: whether the
    places of queries and keys are looked at, so that chunks may not be taken as one.
    """

    def __init__(self, calls, session, group, members, rank, chunks, seen, places, seed, offset):
        self.calls, self.session, self.group, self.members = calls, session, group, members
        self.rank, self.chunks, self.wanted = rank, chunks, ()
        self.axis, self.head_axis, self.seed, self.offset = calls.axis, 1 if calls.axis == 2 else 2, seed, offset
        self.plan = self.plan_of(rank, chunks, seen, places)

    def messages(self, what):
        return Messages(self.group, self.members, what)

    def of_heads(self, of_q, of_kv):
        """The same of some of the heads, ranges (begin, end) of Q's and of K's and V's."""
        run = copy.copy(self)
        run.calls = self.calls.of_heads(of_q[0], of_kv[0])
        return run

    def attend(self, q, k, v, sinks):
        """(O, LSE, what the backward needs)."""
        out, lse = self.forward(q, k, v, sinks)
        return out, lse, (q, k, v, out, lse)

    def differentiate(self, kept, dout, dlse, sinks):
        """(dQ, dK, dV, gradient of the sinks or None, the gradients of what is captured)."""
        *gradients, captured = self.backward(*kept, dout, dlse)
        of_sinks = None
        if sinks is not None:
            of_sinks = sink_gradient(sinks, *kept[3:], dout, dlse, self.calls.options["layout"])
        return *gradients, of_sinks, captured

    def forward(self, q, k, v, sinks):
        """(O, LSE)."""
        sums = Sums(self.calls, [chunk.rows for chunk in self.chunks[self.rank]], self.session)
        wide = sinks is not None or self.sums_parts()
        for _, piece, keys in self.pieces(k, v):
            sums.add(piece.chunks, *self.calls.forward(q, *keys, piece, self.seed, self.offset, wide))
        return sums.finish(q, [*q.shape[:3], v.shape[3]], sinks)

    def sums_parts(self):
        """Whether any query's O is put together from several parts of the keys: then each is float32."""
        plan = self.plan
        pieces = plan.pieces if hasattr(plan, "pieces") else [piece for step in plan.steps for piece in step.pieces]
        chunks = [chunk for piece in pieces for chunk in piece.chunks]
        return len(chunks) > len(set(chunks))

    # ---- K and V, or their gradients, of some rows in one message -------------------------------------------

    def room(self, k, v, rows, dtype=None):
        """(memory, K, V) of so many rows, one behind the other."""
        shapes = [[rows if axis == self.axis else extent for axis, extent in enumerate(like.shape)] for like in (k, v)]
        of_k, of_v = map(math.prod, shapes)
        memory = k.new_empty(of_k + of_v, dtype=dtype or k.dtype)
        return memory, memory[:of_k].view(shapes[0]), memory[of_k:].view(shapes[1])

    def packed(self, k, v, ranges):
        """These rows for another process, or None."""
        if not ranges:
            return None
        memory, *to = self.room(k, v, _count(ranges))
        for tensor, room in zip((k, v), to):
            for bounds, place in self.side_by_side(ranges):
                rows_of(room, self.axis, place).copy_(rows_of(tensor, self.axis, bounds))
        return memory

    def add_back(self, gradients, ranges, room):
        """Adds what another process has made for these rows of ours."""
        for gradient, came in zip(gradients, room[1:]):
            for bounds, place in self.side_by_side(ranges):
                rows_of(gradient, self.axis, bounds).add_(rows_of(came, self.axis, place))

    @staticmethod
    def side_by_side(ranges):
        """(range, where its rows are one behind the other)."""
        row = 0
        for begin, end in ranges:
            yield (begin, end), (row, row + end - begin)
            row += end - begin

    def float_room(self, k, v, rows):
        import torch
        return self.room(k, v, rows, torch.float32)

    def clear_room(self, k, v, rows):
        room = self.float_room(k, v, rows)
        room[0].zero_()
        return room


class _Gradients:
    """dQ of a process, and its shares of dK and dV, piece by piece, in float32."""

    def __init__(self, run, q, k, v, out, lse, dout, dlse):
        import torch
        self._run, self._q, self._saved, self._douts = run, q, (out, lse), (dout, dlse)
        self.dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        self.captured = {}

    def add(self, piece, keys, room):
        """room: where dK and dV of these keys are summed."""
        run, axis = self._run, self._run.axis
        (dq, dk, dv), captured = run.calls.backward(self._q, *keys, *self._saved, *self._douts, piece, run.seed, run.offset)
        rows_of(self.dq, axis, piece.q).add_(dq)
        rows_of(room[1], axis, piece.k).add_(dk)
        rows_of(room[2], axis, piece.k).add_(dv)
        add_captured(self.captured, captured)


class Ring(Run):
    """Keys come process by process, and the results are put together. Where a process has much of K and V, its heads go
    round in slices, one after the other: then a step needs room for a slice alone."""

    plan_of = staticmethod(ring_plan)

    def _slices(self, q, k, v):
        """(the ring of some heads, the range of Q's heads, of K's and V's)."""
        heads_q, heads_kv = q.shape[self.head_axis], k.shape[self.head_axis]
        least = max(1, min(heads_kv, -(-(k.nbytes + v.nbytes) // SLICE_BYTES))) if len(self.members) > 1 else 1
        count = next(count for count in range(least, heads_kv + 1) if heads_kv % count == 0)
        for of_q, of_kv in zip(*heads_of(count, heads_q, heads_kv)):
            yield self.of_heads(of_q, of_kv), of_q, of_kv

    def forward(self, q, k, v, sinks):
        """(O, LSE)."""
        import torch
        slices, axis = list(self._slices(q, k, v)), self.head_axis
        if len(slices) == 1:
            return super().forward(q, k, v, sinks)
        out = q.new_empty([*q.shape[:3], v.shape[3]])
        lse = q.new_empty((q.shape[0], q.shape[axis], q.shape[self.axis]), dtype=torch.float32)
        for ring, of_q, of_kv in slices:
            own = rows_of(q, axis, of_q), rows_of(k, axis, of_kv), rows_of(v, axis, of_kv)
            made = Run.forward(ring, *own, None if sinks is None else sinks[slice(*of_q)])
            rows_of(out, axis, of_q).copy_(made[0])
            rows_of(lse, 1, of_q).copy_(made[1])
        return out, lse

    def backward(self, q, k, v, out, lse, dout, dlse):
        """(dQ, dK, dV, the gradients of what is captured)."""
        import torch
        slices, axis = list(self._slices(q, k, v)), self.head_axis
        if len(slices) == 1:
            return self._backward(q, k, v, out, lse, dout, dlse)
        made, captured = [torch.empty_like(tensor) for tensor in (q, k, v)], {}
        for ring, of_q, of_kv in slices:
            own = [rows_of(tensor, axis, heads) for tensor, heads in ((q, of_q), (k, of_kv), (v, of_kv), (out, of_q))]
            logs = [None if tensor is None else rows_of(tensor, 1, of_q) for tensor in (lse, dlse)]
            *gradients, of_captured = ring._backward(*own, logs[0], rows_of(dout, axis, of_q), logs[1])
            for whole, gradient, heads in zip(made, gradients, (of_q, of_kv, of_kv)):
                rows_of(whole, axis, heads).copy_(gradient)
            add_captured(captured, of_captured)
        return *made, captured

    def _post_keys(self, t, k, v):
        """K and V of step t on their way: (messages, K, V)."""
        step, (target, ranges) = self.plan.steps[t], self.plan.sends[t]
        memory, *keys = self.room(k, v, _count(step.ranges))
        messages = self.messages(f"k and v of step {t}")
        messages.post([(target, self.packed(k, v, ranges))], [(step.source, memory)])
        return messages, keys

    def _steps(self, k, v):
        """(t, step, K, V) of all steps; those of the next one are on their way while this one's are used."""
        steps, keys = self.plan.steps, (k, v)
        for t, step in enumerate(steps):
            coming = self._post_keys(t + 1, k, v) if t + 1 < len(steps) else None
            yield t, step, keys
            if coming:
                messages, keys = coming
                messages.wait()

    def pieces(self, k, v):
        for t, step, keys in self._steps(k, v):
            for piece in step.pieces:
                yield t, piece, keys

    def _backward(self, q, k, v, *saved):
        pieces = [piece for step in self.plan.steps for piece in step.pieces]
        whole = (0, q.shape[self.axis]), (0, k.shape[self.axis])
        if len(self.members) == 1 and [(piece.q, piece.k) for piece in pieces] == [whole]:  # nothing is to be summed
            gradients, captured = self.calls.backward(q, k, v, *saved, pieces[0], self.seed, self.offset, wide=False)
            return *gradients, captured
        gradients = _Gradients(self, q, k, v, *saved)
        own, returning = self.clear_room(k, v, k.shape[self.axis]), None
        for t, step, keys in self._steps(k, v):
            room = self.clear_room(k, v, _count(step.ranges)) if t else own
            for piece in step.pieces:
                gradients.add(piece, keys, room)
            self._take(own, returning)
            returning = self._return(t, k, v, room) if t else None
        self._take(own, returning)
        return gradients.dq, own[1], own[2], gradients.captured

    def _return(self, t, k, v, room):
        """What step t made of other processes' rows on its way to them: (messages, rows of ours, what comes for them)."""
        step, (target, ranges) = self.plan.steps[t], self.plan.sends[t]
        coming = self.float_room(k, v, _count(ranges))
        messages = self.messages(f"the gradients of k and v of step {t}")
        messages.post([(step.source, room[0])], [(target, coming[0])])
        return messages, ranges, coming

    def _take(self, own, returning):
        if returning:
            messages, ranges, coming = returning
            messages.wait()
            self.add_back(own[1:], ranges, coming)


@functools.lru_cache(maxsize=None)
def function():
    """The class; made at the first call, as PyTorch is imported no earlier."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, run, q, k, v, sinks, *captured):
            out, lse, kept = run.attend(q, k, v, sinks)
            ctx.run, ctx.dtypes, ctx.captured, ctx.out_shape = run, (q.dtype, k.dtype, v.dtype), len(captured), out.shape
            ctx.save_for_backward(sinks, *captured, *kept)
            ctx.set_materialize_grads(False)
            return out, lse

        @staticmethod
        @once(torch)
        def backward(ctx, dout, dlse):
            run, (sinks, *saved) = ctx.run, ctx.saved_tensors
            captured, kept = saved[:ctx.captured], saved[ctx.captured:]
            dout = torch.zeros(ctx.out_shape, dtype=ctx.dtypes[0], device=kept[0].device) if dout is None else as_input(dout)
            dlse = None if dlse is None else dlse.contiguous()
            *gradients, of_sinks, made = run.differentiate(kept, dout, dlse, sinks if ctx.needs_input_grad[4] else None)
            wanted = [made.get(name, torch.zeros_like(tensor)) for name, tensor in zip(run.wanted, captured)]
            return (None, *(gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.dtypes)), of_sinks, *wanted)

    return Attention
