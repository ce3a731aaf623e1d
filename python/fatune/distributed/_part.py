"""A process's share of the work: calls of some of its queries on some keys, and the sums of their results."""

from __future__ import annotations

import collections

from .. import _merge, _varlen
from .. import _structs as s
from .._autograd import bytes_of
from .._launch import AXES, Call, as_input
from ..score import trace


def add_captured(sums, gradients):
    """Adds gradients of what is captured to their sums, by name."""
    for name, gradient in gradients.items():
        sums[name] = sums[name] + gradient if name in sums else gradient


def rows_of(tensor, axis, bounds):
    return tensor.narrow(axis, bounds[0], bounds[1] - bounds[0])


class Documents(_varlen._Call):
    """A call on several documents, one behind the other, on tensors as Part has them."""

    def __init__(self, q, k, v, starts, head, heads, wide, *, causal, window, layout, captured, spare, **options):
        lengths = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
        super().__init__(*(turned(tensor, layout) for tensor in (q, k, v)), lengths, None, causal=causal, window=window,
                         captured=captured, **options)
        self._origin, self._spare = s.Origin(head=head, heads=heads), spare
        if wide:
            self.widen()

    def _arguments(self, *tensors, **options):
        arguments = super()._arguments(*tensors, **options)
        arguments.origin, arguments.spare_multiprocessors = self._origin, self._spare
        return arguments


def turned(tensor, layout):
    """[batch, rows, heads, dim] in either layout, and back."""
    return tensor if layout == "bshd" else tensor.transpose(1, 2)


class Part(Call):
    """A call on a piece of the sequence."""

    def __init__(self, q, k, v, piece, origin, wide, *, causal, window, spare, **options):
        if piece.whole:
            causal, window = False, None
        super().__init__(q, k, v, causal=causal and "top-left", window=window, mask=None, **options)
        self._origin, self._spare = origin, spare
        if wide:
            self.widen()

    def _make_node(self, *_):
        """None: the sums over the pieces are the node."""

    def _arguments(self, *tensors, **options):
        arguments = super()._arguments(*tensors, **options)
        arguments.origin, arguments.spare_multiprocessors = self._origin, self._spare
        return arguments


# Of all processes: the first query head and head of K and V of this one, how many there are, how long the sequence is.
class Whole(collections.namedtuple("Whole", "head heads head_kv heads_kv rows")):
    __slots__ = ()

    def scalars(self, score, piece):
        """What the text of whole_score() captures besides, of a piece."""
        if not score.startswith(_HEADS):
            return {}
        heads = {"of_all_head": self.head, "of_all_kv_head": self.head_kv, "of_all_heads": self.heads,
                 "of_all_kv_heads": self.heads_kv}
        if not score.startswith(_HEADS + _PLACES):
            return heads
        return {**heads, "of_all_query": piece.first_q, "of_all_key": piece.first_k, "of_all_rows": self.rows}


# On the first line of a text.
_HEADS = (
    'local function of_all(name) return scalar("of_all_" .. name, "int") end '
    'local h, kv = h + of_all("head"), kv + of_all("kv_head") '
    'local heads, kv_heads = of_all("heads"), of_all("kv_heads") ')
_PLACES = 'local nq = of_all("rows") local nk = nq local i, j = i + of_all("query"), j + of_all("key") '


def whole_score(score, visible, captured, within_documents):
    """The score function as text that counts heads of all processes, and queries and keys unless these count within
    documents; None without one."""
    prelude = _HEADS if within_documents else _HEADS + _PLACES
    if score is None and visible is None:
        return None
    if not isinstance(score, str):
        return prelude + trace(score, visible, captured)
    if visible is not None:
        raise ValueError("visible comes with a score that is text; allowed: the text states both")
    if "=" in score:
        return prelude + score
    if score != "softcap":
        raise ValueError(f"score is {score!r}; allowed over several processes: 'softcap', whose text asks for no place, Lua "
                         "text, and Python functions")
    return score


class Calls:
    """The calls of one attention, kept by shapes and pieces."""

    def __init__(self, options, whole):
        """whole: the place of this process's heads among all, a Whole."""
        self.options, self.axis = options, AXES[options["layout"]][1]
        self._whole, self._kept, self._of_heads = whole, {}, {}

    def _documents(self, q, k, v, piece, wide):
        import torch
        starts = torch.tensor(piece.documents, dtype=torch.int32, device=q.device)
        options = self.options
        if options["score"] is not None:
            options = {**options, "captured": {**(options["captured"] or {}), **self._whole.scalars(options["score"], piece)}}
        return Documents(q, k, v, starts, self._whole.head, self._whole.heads, wide, **options)

    def _call(self, q, k, v, piece, wide, others):
        """others: further tensors, or None, of which the strides are prepared."""
        options = self.options
        place = (0, 0) if piece.whole and not options["dropout"] else (piece.first_q, piece.first_k)
        origin = s.Origin(head=self._whole.head, heads=self._whole.heads, query=place[0], key=place[1])
        if options["score"] is not None:
            places = self._whole.scalars(options["score"], piece)
            return Part(q, k, v, piece, origin, wide, **{**options, "captured": {**(options["captured"] or {}), **places}})
        key = place, piece.whole, wide, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, q.device, *(
            None if tensor is None else tensor.stride() for tensor in others)
        call = self._kept.get(key)
        if call is None:
            call = self._kept[key] = Part(q, k, v, piece, origin, wide, **options)
            call.kept = True
        return call

    def of_heads(self, head, head_kv):
        """The calls of some of the heads; head, head_kv: the first of them among this process's."""
        if not (head or head_kv):
            return self
        calls = self._of_heads.get(head)
        if calls is None:
            whole = self._whole._replace(head=self._whole.head + head, head_kv=self._whole.head_kv + head_kv)
            calls = self._of_heads[head] = Calls(self.options, whole)
        return calls

    def forward(self, q, k, v, piece, seed, offset, wide, out=None):
        """(O, LSE) of the piece's queries on its keys; wide: O in float32; out: memory for O, or None for new one."""
        q, k, v = rows_of(q, self.axis, piece.q), rows_of(k, self.axis, piece.k), rows_of(v, self.axis, piece.k)
        if piece.documents:
            made = self._forward_documents(q, k, v, piece, seed, offset, wide)
            return made if out is None else (out.copy_(made[0]), made[1])
        call = self._call(q, k, v, piece, wide, (out,))
        made = call.forward_again(q, k, v, seed, offset) if out is None else None
        if made is None:
            made = call.new_output(q) if out is None else out, call.new_lse(q)
            call.forward(q, k, v, *made, seed, offset, bytes_of(q))
        return made

    def backward(self, q, k, v, out, lse, dout, dlse, piece, seed, offset, into=(None, None, None), wide=True):
        """(dQ, dK, dV) of the piece, and the gradients of what is captured, by name. out, lse: of all keys.
        into: memory for dQ, dK, dV, or None for new one; wide: they are in float32."""
        q, out, dout = (rows_of(tensor, self.axis, piece.q) for tensor in (q, out, dout))
        lse, dlse = (None if tensor is None else rows_of(tensor, 2, piece.q).contiguous() for tensor in (lse, dlse))
        k, v = rows_of(k, self.axis, piece.k), rows_of(v, self.axis, piece.k)
        if piece.documents:
            made, captured = self._backward_documents(q, k, v, out, lse, dout, dlse, piece, seed, offset, wide)
            return tuple(own if to is None else to.copy_(own) for to, own in zip(into, made)), captured
        call = self._call(q, k, v, piece, wide, (*into, out))
        wanted = call.want_gradients()
        fresh = into == (None, None, None)
        gradients = call.new_gradients(q, k, v) if fresh else [
            call.new_gradients(like)[0] if to is None else to for to, like in zip(into, (q, k, v))]
        if not wanted and call.backward_into(q, k, v, out, lse, dout, dlse, gradients, seed, offset):
            return tuple(gradients), {}
        dq, dk, dv = gradients
        tensors = {"q": q, "k": k, "v": v, "o": out, "dout": dout, "dq": dq, "dk": dk, "dv": dv}
        return (dq, dk, dv), call.backward(tensors, lse, dlse, seed, offset, bytes_of(q), wanted)

    def _forward_documents(self, q, k, v, piece, seed, offset, wide):
        call, layout = self._documents(q, k, v, piece, wide), self.options["layout"]
        q, k, v = (turned(tensor, layout) for tensor in (q, k, v))
        out, lse = call.new_output(q), call.new_lse(q)
        call.forward(q, k, v, out, lse, seed, offset, bytes_of(q))
        return turned(out, layout), lse.unsqueeze(0)

    def _backward_documents(self, q, k, v, out, lse, dout, dlse, piece, seed, offset, wide):
        call, layout = self._documents(q, k, v, piece, wide), self.options["layout"]
        wanted = call.want_gradients()
        q, k, v, out, dout = (turned(tensor, layout) for tensor in (q, k, v, out, dout))
        dq, dk, dv = call.new_gradients(q, k, v)
        tensors = {"q": q, "k": k, "v": v, "o": out, "dout": dout, "dq": dq, "dk": dk, "dv": dv}
        captured = call.backward(tensors, lse, dlse, seed, offset, bytes_of(q), wanted)
        return tuple(turned(gradient, layout) for gradient in (dq, dk, dv)), captured

    def merge(self, session, made, part):
        """Puts another part of the keys to what was made of some, in place; all float32."""
        _merge._launch(session, [made, part], *made, self.options["layout"])


class Sums:
    """O and LSE of some queries, put together from parts of the keys, in the order in which they come.

    They are summed in float32, in place. What comes alone stays as it is.
    """

    def __init__(self, calls, rows, session):
        self._calls, self._rows, self._session = calls, rows, session  # rows of each chunk
        self._made = [None] * len(rows)

    def add(self, chunks, out, lse):
        axis, row = self._calls.axis, 0
        for chunk in chunks:
            bounds = (row, row + self._rows[chunk])
            row = bounds[1]
            alone = len(chunks) == 1
            own = (out, lse) if alone else (rows_of(out, axis, bounds), rows_of(lse, 2, bounds).contiguous())
            made = self._made[chunk]
            if made is None:
                self._made[chunk] = own
                continue
            if made[0].dtype != _float32():
                made = self._made[chunk] = (made[0].float(), made[1])
            self._calls.merge(self._session, made, (own[0].float(), own[1]))

    def finish(self, like, shape, sinks):
        """(O in the dtype and of the shape given, LSE), with the sinks, which no part has had."""
        import torch
        made = self._made
        if any(part is None for part in made):  # queries that see no key anywhere
            made = [part or self._nothing(like, shape, rows) for part, rows in zip(made, self._rows)]
        lse = made[0][1] if len(made) == 1 else torch.cat([part[1] for part in made], 2)
        if len(made) == 1 and sinks is None and made[0][0].dtype == like.dtype:
            return made[0][0], lse
        out = torch.cat([part[0] for part in made], self._calls.axis)
        if sinks is not None:
            with_sinks = torch.logaddexp(lse, sinks[None, :, None])
            share = torch.where(torch.isneginf(with_sinks), 0, torch.exp(lse - with_sinks))
            share = share.unsqueeze(-1)
            out, lse = out.float() * (share if self._calls.axis == 2 else share.transpose(1, 2)), with_sinks
        return out.to(like.dtype), lse

    def _nothing(self, like, shape, rows):
        import torch
        shape = list(shape)
        shape[self._calls.axis] = rows
        heads = shape[1 if self._calls.axis == 2 else 2]
        return (like.new_zeros(shape),
                torch.full((shape[0], heads, rows), -torch.inf, dtype=torch.float32, device=like.device))


def sink_gradient(sinks, out, lse, dout, dlse, layout):
    """dsink = sum of p_sink (dLSE - D), D = rowsum(dO o O), over the queries of this process."""
    import torch
    delta = (dout.float() * out.float()).sum(-1)
    delta = delta if layout == "bhsd" else delta.transpose(1, 2)
    p = torch.where(torch.isneginf(lse), 0, torch.exp(sinks[None, :, None] - lse))
    return (p * ((0 if dlse is None else dlse) - delta)).sum((0, 2))


def _float32():
    import torch
    return torch.float32


__all__ = ["Calls", "Part", "Sums", "add_captured", "as_input", "rows_of", "sink_gradient"]
