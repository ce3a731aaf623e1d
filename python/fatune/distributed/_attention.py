"""attention(): sequences longer than one GPU."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

from .. import _attention as one
from .._devices import session_of
from .._launch import AXES, check_shapes
from ._agreement import agree
from ._choice import SCHEMES, Work, choose
from ._gather import Gather
from ._heads import ByHeads, Exchange, heads_of
from ._part import Calls, Whole, whole_score
from ._peers import ByCopies, peers_of
from ._plan import STEP, diagonals
from ._schemes import Ring, function
from ._shares import chunks_of, join, place_of, split
from ._transport import ByMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import torch

    from .._session import Session

TRANSPORTS = ("copies", "messages")
HEADS_BYTES = 64 << 20  # that come from others when heads are exchanged: with less they do at once, else in halves
SPARE = 8  # multiprocessors that a ring's forward leaves to NCCL's kernels, which carry K and V of the next step


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, group: Any = None, scheme: str | None = None,
              head_ranks: int | None = None, order: str = "zigzag", causal: bool = False,
              window: tuple[int, int] | list[int] | None = None, scale: float | None = None, dropout: float = 0.0,
              seed: int | torch.Tensor | None = None, offset: int | torch.Tensor = 0, layout: str = "bhsd",
              return_lse: bool = False, deterministic: bool = False, session: Session | None = None,
              score: str | Callable[..., Any] | None = None, visible: Callable[..., Any] | None = None,
              captured: Mapping[str, Any] | None = None, sinks: torch.Tensor | None = None,
              transport: str | None = None, spare_multiprocessors: int | None = None,
              documents: Sequence[int] | torch.Tensor | None = None, tf32: bool | None = False) -> Any:
    """O of this process's queries on the keys of all processes; returns O, or (O, LSE).

    q, k, v: this process's rows, as shard() cuts them: [batch, heads, rows, dim], or [batch, rows, heads, dim] with layout
    "bshd". order: that of shard(). All processes of the group call with tensors of the same shapes and the same arguments;
    group: a process group of torch.distributed, None: the default one, or this process alone where there is none.
    scheme: "ring": K and V come process by process while kernels run, and results are put together in float32, in a fixed
    order; "gather": all keys that are seen come in slices of heads, one call for each chunk of queries and slice; "ulysses":
    rows of all heads are exchanged for all rows of some heads; "mesh": `head_ranks` neighbouring ranks do so, and those of
    equal place form rings. None: chosen by a model. What is not seen is neither sent nor computed.
    transport: "copies": processes of one host read each other's memory by copy engines, beside kernels; "messages": those of
    the group's backend; None: "copies" where they can. Rings go by messages in any case.
    spare_multiprocessors: how many a forward leaves to NCCL, whose kernels carry messages; None: as many as paid on H200s in a
    ring, and none otherwise.
    documents: the first row of each document of the whole sequence, then the number of all rows, from 0 on; of a batch of 1.
    Queries see their own document alone, in which causal and window count, dropout and scores, too (those by "ulysses").
    A tensor had better be on the CPU. The same on all processes.
    causal, window, dropout, score, visible, captured: of the whole sequence, as in fatune.attention(), captured tensors
    whole on each process. seed: the same on all processes; None: rank 0 draws one for all. The rest: as there.

    Differentiable in q, k, v, sinks and captured tensors, once. Gradients of what all processes have (sinks, captured
    tensors) are this process's share; their sum over the group is the gradient.
    Raises ValueError and TypeError on all processes where their arguments differ or do not fit, naming rank and argument,
    and RuntimeError naming the rank that does not answer, within the group's time-out.
    """
    options: dict[str, Any] = {
        "causal": causal, "window": window and tuple(window), "scale": scale, "dropout": dropout, "layout": layout,
        "deterministic": deterministic, "session": session, "score": score, "visible": visible, "captured": captured,
        "tf32": one.takes_tf32(_torch(), q) if tf32 is None else tf32, "spare": spare_multiprocessors}
    rank, ranks = place_of(group)
    if documents is not None:
        documents = tuple(documents.tolist() if hasattr(documents, "tolist") else documents)
    if ranks == 1 and documents is None:
        del options["spare"]
        return one.attention(q, k, v, seed=seed, offset=offset, return_lse=return_lse, sinks=sinks, **options)
    request = _Request(q, k, v, ranks, scheme, head_ranks, order, sinks, documents, transport, options)
    if ranks > 1:
        agree(group, ranks, q.device, request.describe)
    else:
        request.describe()
    return request.run(group, rank, seed, offset, return_lse)


def _torch():
    import torch
    return torch


class _Request:
    """What one call asks for."""

    def __init__(self, q, k, v, ranks, scheme, head_ranks, order, sinks, documents, transport, options):
        self.tensors, self.ranks, self.scheme, self.head_ranks = (q, k, v), ranks, scheme, head_ranks
        self.order, self.sinks, self.options, self.score = order, sinks, options, None
        self.documents, self.transport = documents, transport

    def describe(self):
        """All that must be the same on all ranks, by name; checked."""
        q, k, v = self.tensors
        options, layout = self.options, self.options["layout"]
        if layout not in ("bhsd", "bshd"):
            raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
        for name, tensor in zip("qkv", self.tensors):
            if tensor.dim() != 4:
                raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 4")
        check_shapes(*([tensor.shape[axis] for axis in (*AXES[layout], 3)] for tensor in self.tensors))
        self.score = whole_score(options["score"], options["visible"], options["captured"],
                                 self.documents is not None)
        self._check()
        text = {"layout": layout, "order": self.order, "scheme": self.scheme, "head_ranks": self.head_ranks}
        for name, tensor in zip("qkv", self.tensors):
            text[f"the shape of {name}"], text[f"the dtype of {name}"] = tuple(tensor.shape), tensor.dtype
        text |= {name: options[name] for name in ("causal", "window", "scale", "dropout", "deterministic", "tf32")}
        text["score"] = self.score and hashlib.sha256(self.score.encode()).hexdigest()[:12]
        for name, value in sorted((options["captured"] or {}).items()):
            text[f"captured {name!r}"] = (tuple(value.shape), value.dtype) if hasattr(value, "shape") else type(value).__name__
        text["scheme"] = f"{self.scheme!r} (takes {self.chosen!r}, {self.exchanging} exchange heads)"
        text["documents"], text["transport"] = self.documents is not None, self.transport
        text["sinks"] = None if self.sinks is None else (tuple(self.sinks.shape), self.sinks.dtype)
        text["gradients"] = self._learnt()
        return text

    def _learnt(self):
        import torch
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (
            *self.tensors, *(value for value in (self.options["captured"] or {}).values() if hasattr(value, "requires_grad")),
            *(() if self.sinks is None else (self.sinks,))))

    def _check(self):
        (q, k, _), options = self.tensors, self.options
        if options["causal"] not in (True, False, None):
            raise ValueError(f"causal is {options['causal']!r}; allowed: True, False")
        if self.scheme not in (None, *SCHEMES):
            raise ValueError(f"scheme is {self.scheme!r}; allowed: None, {', '.join(map(repr, SCHEMES))}")
        if self.transport not in (None, *TRANSPORTS):
            raise ValueError(f"transport is {self.transport!r}; allowed: None, {', '.join(map(repr, TRANSPORTS))}")
        spare = options["spare"]
        if spare is not None and not (isinstance(spare, int) and spare >= 0):
            raise ValueError(f"spare_multiprocessors is {spare!r}; allowed: None, 0 or more")
        rows_axis = AXES[options["layout"]][1]
        if q.shape[rows_axis] != k.shape[rows_axis]:
            raise ValueError(f"q has {q.shape[rows_axis]} rows and k {k.shape[rows_axis]}; allowed: as many")
        chunks = chunks_of(0, self.ranks, q.shape[rows_axis] * self.ranks, self.order)
        self._choose()
        if options["dropout"] and self.exchanging < self.ranks and any(chunk.rows % STEP for chunk in chunks):
            raise ValueError(f"a process has chunks of {chunks[0].rows} rows with dropout; allowed: multiples of {STEP}, or "
                             "scheme 'ulysses'")
        if self.documents is not None:
            self._check_documents(q.shape[AXES[options["layout"]][0]], q.shape[rows_axis] * self.ranks)

    def _check_documents(self, batch, rows):
        documents = self.documents
        if batch != 1:
            raise ValueError(f"documents come with a batch of {batch}; allowed: 1")
        if len(documents) < 2 or documents[0] != 0 or documents[-1] != rows or any(
                end < begin for begin, end in zip(documents, documents[1:])):
            raise ValueError(f"documents are {documents[:3]} to {documents[-1:]}; allowed: rows from 0 to {rows}, never falling")
        if self._counts_within_documents() and self.exchanging < self.ranks:
            raise ValueError(f"scheme is {self.scheme!r} with documents and dropout or a score; allowed: 'ulysses'")

    def _counts_within_documents(self):
        return self.documents is not None and (bool(self.options["dropout"]) or self.score not in (None, "softcap"))

    def _choose(self):
        """Scheme and number of processes that exchange heads."""
        (q, k, v), axes = self.tensors, AXES[self.options["layout"]]
        batch, rows, heads_q = (q.shape[axis] for axis in axes)
        heads_kv = k.shape[axes[2]]
        if (self.scheme == "mesh") != (self.head_ranks is not None):
            raise ValueError(f"head_ranks is {self.head_ranks} with scheme {self.scheme!r}; allowed: a divisor of the "
                             f"number of processes, {self.ranks}, with 'mesh', and None without")
        scheme = self.scheme
        if scheme is None and self._counts_within_documents():
            scheme = "ulysses"
        if scheme is None:
            import torch
            keys = k.shape[axes[1]] * self.ranks
            seen = keys / 2 if self.options["causal"] else keys
            if self.options["window"]:
                seen = min(seen, sum(side if side >= 0 else keys for side in self.options["window"]))
            near = max(1, torch.cuda.device_count()) if q.device.type == "cuda" else self.ranks
            needed = min(keys - keys // self.ranks, int(seen) if self.options["window"] else keys)
            work = Work(self.ranks, near, rows, heads_q, heads_kv, q.shape[3], v.shape[3], batch, q.element_size(), seen,
                        needed, self.documents is not None)
            self.chosen, self.exchanging = choose(work, _greatest_mesh(self.ranks, near, heads_q, heads_kv))
        else:
            self.chosen = scheme
            self.exchanging = {"ulysses": self.ranks, "mesh": self.head_ranks}.get(scheme, 1)
        if self.ranks % self.exchanging:
            raise ValueError(f"head_ranks is {self.exchanging}; allowed: a divisor of the number of processes, {self.ranks}")
        heads_of(self.exchanging, heads_q, heads_kv)

    def run(self, group, rank, seed, offset, return_lse):
        (q, k, v), options, count = self.tensors, self.options, self.exchanging
        _, row_axis, head_axis = AXES[options["layout"]]
        rings, ring, number = self.ranks // count, rank // count, rank % count
        chunks = [tuple(chunks_of(n, self.ranks, q.shape[row_axis] * self.ranks, self.order)) for n in range(self.ranks)]
        of_ring = tuple(join(chunk for own in chunks[n * count:(n + 1) * count] for chunk in own) for n in range(rings))
        rows, all_heads, all_heads_kv = q.shape[row_axis], q.shape[head_axis], k.shape[head_axis]
        if self.documents is not None:
            of_ring = tuple(split(chunks, self.documents) for chunks in of_ring)
        session = options["session"] or session_of(q.device)
        if session is not None and session.key is None:
            one._key_of_session(session)
        if seed is None:
            seed = _shared_seed(group, q.device) if options["dropout"] else 0
        members = tuple(range(number, self.ranks, count))
        engine, beside = self._engine(group, q, members, ring)
        run = engine(
            self._calls(session, Whole(number * (all_heads // count), all_heads, number * all_heads_kv // count, all_heads_kv,
                                       self.ranks * rows), beside),
            session, group, members, ring, of_ring,
            diagonals(options["causal"], options["window"]), bool(options["dropout"]) or self.score not in (None, "softcap"),
            seed, offset)
        if count > 1:
            run = self._by_heads(group, run, ring * count, number, chunks, return_lse)
        learnt = {name: value for name, value in (options["captured"] or {}).items()
                  if hasattr(value, "data_ptr") and value.requires_grad}
        run.wanted = tuple(learnt)
        out, lse = function().apply(run, q, k, v, self.sinks, *learnt.values())
        return (out, lse) if return_lse else out

    def _by_heads(self, group, run, first, number, chunks, return_lse):
        """The run of processes that exchange heads, the first of which has this rank; number: of this process among them."""
        (q, k, v), count = self.tensors, self.exchanging
        row_axis, head_axis = AXES[self.options["layout"]][1:]
        heads_q, heads_kv = heads_of(count, q.shape[head_axis], k.shape[head_axis])
        own_q, own_kv = (heads[0][1] - heads[0][0] for heads in (heads_q, heads_kv))
        parts = 1
        if count == self.ranks and (q.nbytes + k.nbytes + v.nbytes) // count * (count - 1) >= HEADS_BYTES and own_kv % 2 == 0:
            parts = 2  # rings send messages of their own, beside which it is one
        slices = list(zip(*heads_of(parts, own_q, own_kv)))
        exchange = Exchange(self._transport(group, q, tuple(range(first, first + count)), number), number,
                            chunks[first:first + count], (row_axis, head_axis), "rows for heads")
        return ByHeads(run, exchange, number, heads_q, heads_kv, slices, return_lse)

    def _calls(self, session, whole, beside):
        options = {**self.options, "session": session, "score": self.score, "visible": None}
        if options["spare"] is None:
            options["spare"] = SPARE if beside else 0
        return Calls(options, whole) if options["captured"] else _calls_of(tuple(options.items()), whole)

    def _engine(self, group, q, members, number):
        """(what runs, whether NCCL's kernels run beside long ones of it). Of a gather's slices calls are short: with fewer
        multiprocessors they took longer than those messages."""
        if self.chosen != "gather":
            return Ring, q.device.type == "cuda" and len(members) > 1
        return functools.partial(Gather, transport=self._transport(group, q, members, number)), False

    def _transport(self, group, q, members, number):
        """How rows get from one to another of these ranks, of which this process is the number-th."""
        peers = peers_of(group, self.ranks, q.device) if self.ranks > 1 and self.transport != "messages" else None
        if peers is None and self.transport == "copies":
            raise ValueError("transport is 'copies', and some process cannot read the memory of another's GPU; allowed here: None, "
                             "'messages'")
        return ByCopies(peers, members) if peers else ByMessages(group, members, number)


def _greatest_mesh(ranks, near, heads_q, heads_kv):
    """How many processes of one host can exchange heads."""
    for count in range(min(near, ranks), 1, -1):
        if ranks % count == 0 and heads_q % count == 0 and (heads_kv % count == 0 or count % heads_kv == 0):
            return count
    return 1


def _shared_seed(group, device):
    """A seed that the group's first process draws for all."""
    import torch.distributed as dist
    seed = one.draw_seed(_torch(), device)
    if place_of(group)[1] == 1:
        return seed
    dist.broadcast(seed, 0 if group is None else dist.get_global_rank(group, 0), group=group)
    return seed




@functools.lru_cache(maxsize=64)
def _calls_of(options, whole):
    return Calls(dict(options), whole)


