"""Which rows of K and V go where, and which calls are made of them: arithmetic, no tensor."""

import collections
import functools

from ._shares import Chunk

NO_END = 1 << 62
STEP = 64  # places of dropout are multiples of it

# A call: rows `q` (begin, end) of this process's queries, rows `k` of the keys at hand, the places of both firsts in the
# whole sequence; whether all queries see all keys; otherwise their places decide. chunks: which of its chunks `q` is;
# documents: None, or the first row of each of several, then all rows, which see themselves alone.
Piece = collections.namedtuple("Piece", "q k first_q first_k whole chunks documents")
# Rows of K and V, (begin, end) of the process that owns them, one range for each of its chunks that is needed.
Step = collections.namedtuple("Step", "source ranges pieces")
Plan = collections.namedtuple("Plan", "steps sends")


def diagonals(causal, window):
    """(first, last): query i sees keys from i + first to i + last."""
    first, last = -NO_END, 0 if causal else NO_END
    if window is not None:
        left, right = window
        first = -left if left >= 0 else first
        last = min(last, right) if right >= 0 else last
    return first, last


def _seen(q, k, seen):
    """The keys of a chunk (begin, end) that some query of the other sees, and whether all see all of the chunk."""
    first, last = seen
    if q.of != k.of:
        return None
    begin = max(k.first, q.first + first)
    begin = k.first + max(0, begin - k.first) // STEP * STEP
    end = min(k.end, q.end - 1 + last + 1)
    whole = first <= k.first - (q.end - 1) and k.end - 1 - q.first <= last
    return (begin, end, whole) if begin < end else None


def _starts(chunks):
    """The number of each chunk's first row among the rows of a process."""
    starts, row = [], 0
    for chunk in chunks:
        starts.append(row)
        row += chunk.rows
    return starts


def _needs(q_chunks, k_chunks, seen):
    """For each chunk of keys what some query sees of it, (begin, end) in the whole sequence, or None."""
    needs = []
    for k in k_chunks:
        found = [some for some in (_seen(q, k, seen) for q in q_chunks) if some]
        if found and k.of and len(k.of) > 1:
            found = [(k.first, k.end, False)]
        needs.append((min(begin for begin, _, _ in found), max(end for _, end, _ in found)) if found else None)
    return needs


def _joined(pieces):
    """Pieces in which all is seen, side by side along keys or along queries, as one."""
    joined = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.whole and piece.whole and last.q == piece.q and last.k[1] == piece.k[0]:
            joined[-1] = last._replace(k=(last.k[0], piece.k[1]))
        else:
            joined.append(piece)
    together = []
    for piece in joined:
        for n, other in enumerate(together):
            if other.whole and piece.whole and other.k == piece.k and other.q[1] == piece.q[0]:
                together[n] = other._replace(q=(other.q[0], piece.q[1]), chunks=other.chunks + piece.chunks)
                break
        else:
            together.append(piece)
    return together


def _pieces(q_chunks, at_hand, seen, places):
    """at_hand: the keys as chunks of the whole sequence, one behind the other."""
    is_causal = seen == (-NO_END, 0)
    if is_causal and not places and q_chunks[0].of is None and tuple(at_hand) == tuple(q_chunks):  # the order of queries and keys decides
        rows = sum(chunk.rows for chunk in q_chunks)
        return [Piece((0, rows), (0, rows), 0, 0, False, tuple(range(len(q_chunks))), None)]
    pieces, row = [], 0
    for n, q in enumerate(q_chunks):
        begin_k = 0
        for k in at_hand:
            some = _seen(q, k, seen)
            if some:
                begin, end, whole = some
                documents = None
                if q.of and len(q.of) > 1:  # several, each by itself
                    begin, end, whole = k.first, k.end, False
                    documents = tuple(start - q.first for start in q.of)
                keys = (begin_k + begin - k.first, begin_k + end - k.first)
                pieces.append(Piece((row, row + q.rows), keys, q.first, begin, whole, (n,), documents))
            begin_k += k.rows
        row += q.rows
    return pieces if places else _joined(pieces)


def _ranges(k_chunks, needs):
    """Rows of the owner, and what they are of the whole sequence."""
    ranges, at_hand = [], []
    for start, chunk, need in zip(_starts(k_chunks), k_chunks, needs):
        if need:
            ranges.append((start + need[0] - chunk.first, start + need[1] - chunk.first))
            at_hand.append(Chunk((need[0], need[1] - need[0], *chunk[2:])))
    return tuple(ranges), tuple(at_hand)


@functools.lru_cache(maxsize=256)
def ring_plan(rank, chunks, seen, places):
    """Step t: this process works on what it needs of the keys of the process t before it, and has sent what the one t
    after it needs. chunks: of each process. Where nothing is seen, nothing is sent and no call is made."""
    ranks = len(chunks)
    steps, sends = [], []
    for t in range(ranks):
        source, target = (rank - t) % ranks, (rank + t) % ranks
        ranges, at_hand = _ranges(chunks[source], _needs(chunks[rank], chunks[source], seen))
        if t == 0:  # they are there: no need to crop
            ranges, at_hand = ((0, sum(chunk.rows for chunk in chunks[rank])),), chunks[rank]
        steps.append(Step(source, ranges, tuple(_pieces(chunks[rank], at_hand, seen, places))))
        sends.append((target, _ranges(chunks[rank], _needs(chunks[target], chunks[rank], seen))[0]))
    return Plan(tuple(steps), tuple(sends))


# Of a gather: (source, its rows begin, end, where they go among the keys at hand), all at hand, and the calls.
Move = collections.namedtuple("Move", "source begin end to")
Gather = collections.namedtuple("Gather", "moves rows pieces")


@functools.lru_cache(maxsize=256)
def gather_plan(rank, chunks, seen, places):
    """All keys that this process's queries see, in their order, and one call for each chunk of queries."""
    found = []
    for source, own in enumerate(chunks):
        ranges, at_hand = _ranges(own, _needs(chunks[rank], own, seen))
        found += [(chunk, source, bounds) for bounds, chunk in zip(ranges, at_hand)]
    moves, at_hand, to = [], [], 0
    for chunk, source, bounds in sorted(found):
        moves.append(Move(source, *bounds, to))
        to += chunk.rows
        if at_hand and at_hand[-1].end == chunk.first and at_hand[-1].of == chunk.of:
            at_hand[-1] = Chunk((at_hand[-1].first, at_hand[-1].rows + chunk.rows, *chunk[2:]))
        else:
            at_hand.append(chunk)
    return Gather(tuple(moves), to, tuple(_pieces(chunks[rank], tuple(at_hand), seen, places)))
