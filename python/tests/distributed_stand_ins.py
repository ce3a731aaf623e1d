"""What distributed_ranks.py puts in place of parts of the package: kernels by float64, memory that other GPUs read by files."""

import os
import types

import torch
import torch.distributed as dist

from fatune.distributed import _attention


# ---- attention in float64, whose masks go by places ------------------------------------------------------

def kept(batch, heads, first_head, q_places, k_places):
    """What the reference's dropout keeps, of places in the whole problem."""
    b, h = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(heads).view(-1, 1, 1) + first_head
    return (q_places.view(-1, 1) * 31 + k_places * 17 + h * 7 + b) % 5 != 0


def hides(q_places, k_places, causal, window):
    distance = k_places - q_places.view(-1, 1)
    hidden = distance > 0 if causal else torch.zeros_like(distance, dtype=torch.bool)
    left, right = window or (-1, -1)
    if left >= 0:
        hidden = hidden | (distance < -left)
    return hidden | (distance > right) if right >= 0 else hidden


def others(rows, documents):
    """What documents hide of each other; from the first row of each, then all rows."""
    number = torch.bucketize(torch.arange(rows), torch.tensor(documents), right=True)
    return number.view(-1, 1) != number


def exact(q, k, v, hidden, keep):
    """(O, LSE) in float64."""
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    s = (q @ k.mT / q.shape[-1]**0.5).masked_fill(hidden, -torch.inf)
    lse = s.logsumexp(-1)
    p = torch.where(hidden | torch.isneginf(lse).unsqueeze(-1), 0, (s - torch.nan_to_num(lse, neginf=0).unsqueeze(-1)).exp())
    return (p if keep is None else p * keep / 0.8) @ v, lse


class Exact:
    """In place of the package's Calls: the same calls by float64. Also counts queries times keys."""
    pairs = 0

    def __init__(self, options, whole):
        self.options, self.axis, self.head = options, 2 if options["layout"] == "bhsd" else 1, whole.head
        self.whole = whole

    def of_heads(self, head, head_kv):
        return Exact(self.options, self.whole._replace(head=self.whole.head + head, head_kv=self.whole.head_kv + head_kv))

    def _inputs(self, q, k, v, piece):
        rows = q.narrow(self.axis, piece.q[0], piece.q[1] - piece.q[0]), *(
            tensor.narrow(self.axis, piece.k[0], piece.k[1] - piece.k[0]) for tensor in (k, v))
        q, k, v = (self._turned(tensor).double() for tensor in rows)
        Exact.pairs += q.shape[2] * k.shape[2]
        places = torch.arange(q.shape[2]) + piece.first_q, torch.arange(k.shape[2]) + piece.first_k
        hidden = hides(*places, self.options["causal"], self.options["window"])
        if piece.documents:
            hidden = hidden | others(q.shape[2], piece.documents)
        if piece.whole and bool(hidden.any()):
            raise AssertionError(f"{piece} is not seen whole")
        keep = kept(q.shape[0], q.shape[1], self.head, *places) if self.options["dropout"] else None
        return q, k, v, hidden, keep

    def _turned(self, tensor):
        return tensor if self.axis == 2 else tensor.transpose(1, 2)

    def forward(self, q, k, v, piece, seed, offset, wide, out=None):
        made, lse = exact(*self._inputs(q, k, v, piece))
        made = self._turned(made).to(q.dtype).contiguous()
        return made if out is None else out.copy_(made), lse.float()

    @torch.enable_grad()
    def backward(self, q, k, v, out, lse, dout, dlse, piece, seed, offset, into=(None, None, None), wide=True):
        *tensors, hidden, keep = self._inputs(q, k, v, piece)
        q, k, v = (tensor.clone().requires_grad_() for tensor in tensors)
        begin, end = piece.q
        out, dout = (self._turned(tensor.narrow(self.axis, begin, end - begin)).double() for tensor in (out, dout))
        lse = lse[:, :, begin:end].double()
        group = q.shape[1] // k.shape[1]
        all_k, all_v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
        s = q @ all_k.mT / q.shape[-1]**0.5
        p = torch.where(hidden | torch.isneginf(lse).unsqueeze(-1), 0,
                        (s.detach() - torch.nan_to_num(lse, neginf=0).unsqueeze(-1)).exp())
        z = 1 if keep is None else keep / 0.8
        delta = (out * dout).sum(-1) - (0 if dlse is None else dlse[:, :, begin:end].double())
        ds = p * (z * (dout @ all_v.detach().mT) - delta.unsqueeze(-1))
        dq, dk, dv = torch.autograd.grad([s, (p * z) @ all_v], [q, k, v], [ds, dout])
        made = (self._turned(tensor).float() for tensor in (dq, dk, dv))
        return tuple(tensor if to is None else to.copy_(tensor) for to, tensor in zip(into, made)), {}

    def merge(self, session, made, part):
        lse = torch.logaddexp(made[1], part[1])
        shares = [torch.where(torch.isneginf(lse), 0, (own - lse).exp()).unsqueeze(-1) for own in (made[1], part[1])]
        shares = [self._turned(share) for share in shares]
        made[0].copy_(made[0] * shares[0] + part[0] * shares[1])
        made[1].copy_(lse)


class SharedPeers:
    """In place of the package's Peers: memory of files that all processes map. What lies in a window is overwritten when it
    is taken again."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks, self.turns, self.known = rank, ranks, {}, {}

    def _map(self, rank, name, size):
        path = os.path.join(os.environ["FATUNE_TEST_FOLDER"], f"{name}-{rank}-{size}")
        if (path, size) not in self.known:
            with open(path, "ab") as file:
                file.truncate(size)
            self.known[path, size] = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        return self.known[path, size]

    def window(self, purpose, size):
        turn = self.turns[purpose] = (self.turns.get(purpose, 0) + 1) % 3
        window = types.SimpleNamespace(purpose=purpose, name=f"{purpose}{turn}", size=size)
        window.own = self._map(self.rank, window.name, size)
        window.own.fill_(0x7f)
        return window

    def meet(self, purpose):
        dist.barrier()

    def read(self, window, moves):
        for rank, offset, to in moves:
            to.copy_(self._map(rank, window.name, window.size)[offset:offset + len(to)])
        return None


class BySharedCopies(_attention.ByCopies):
    def move(self, *arguments):
        event = self._peers.read(arguments[0], [(self._members[n], offset, to) for n, offset, to in arguments[1]])
        assert event is None
        return lambda: None
