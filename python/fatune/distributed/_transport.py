"""Messages between the processes of a group. What fails names the rank that was waited for and what was to come."""

from __future__ import annotations


class Broken(RuntimeError):
    """A process of the group did not answer."""


def first_line(error):
    return str(error).strip().split("\n")[0]


class Messages:
    """Sends and receives that are under way. members: ranks in the group by the numbers that are used here."""

    def __init__(self, group, members, what):
        self._group, self._members, self._what, self._works, self._alive, self._came = group, members, what, [], [], []

    def post(self, sends, receives):
        """sends, receives: [(number, contiguous tensor or None)]. They run beside what is launched from here on."""
        import torch.distributed as dist
        ways = [(way, operation, self._members[number], tensor)
                for way, operation, some in (("to", dist.isend, sends), ("from", dist.irecv, receives))
                for number, tensor in some if tensor is not None and tensor.numel()]
        if not ways:
            return
        self._alive, self._came = ways, []
        if dist.get_backend(self._group) == "gloo":  # which moves memory of the host alone, point to point
            ways = [self._by_host(*way) for way in ways]
        try:
            works = dist.batch_isend_irecv([dist.P2POp(operation, as_bytes(tensor), self._global(rank), self._group)
                                            for _, operation, rank, tensor in ways])
        except RuntimeError as error:
            raise self._broken(ways, error) from error
        # NCCL has one for all.
        self._works = list(zip(works, ([way] for way in ways) if len(works) == len(ways) else [ways] * len(works)))

    def wait(self):
        """What is launched from here on sees what came, and may write what was sent."""
        for work, ways in self._works:
            try:
                work.wait()
            except RuntimeError as error:
                raise self._broken(ways, error) from error
        for tensor, came in self._came:
            tensor.copy_(came)
        self._look_after()
        self._works, self._alive, self._came = [], [], []

    def _by_host(self, way, operation, rank, tensor):
        if tensor.device.type == "cpu":
            return way, operation, rank, tensor
        host = tensor.cpu() if way == "to" else tensor.new_empty(tensor.shape, device="cpu")
        if way == "from":
            self._came.append((tensor, host))
        return way, operation, rank, host

    def _global(self, rank):
        import torch.distributed as dist
        return rank if self._group is None else dist.get_global_rank(self._group, rank)

    def _look_after(self):
        """NCCL's messages have not come yet when their wait returns: kernels behind it wait."""
        if not self._alive or self._alive[0][3].device.type != "cuda":
            return
        import torch

        from ._watch import watch_of
        device = self._alive[0][3].device
        watch = watch_of(self._group, device)
        if watch:
            watch.expect(f"{self._what} {_whom(self._alive)}", torch.cuda.current_stream(device).record_event().query)

    def _broken(self, ways, error):
        return Broken(f"{self._what} {_whom(ways)} did not get through: {first_line(error)}")


def _whom(ways):
    return ", ".join(dict.fromkeys(f"{way} rank {rank}" for way, _, rank, _ in ways))


class ByMessages:
    """Moves of one attention by messages. What is to be moved lies in rooms, of the same layout on all processes.

    members: ranks in the group by the numbers that are used here.
    """

    def __init__(self, group, members, rank):
        self._group, self._members, self._rank = group, members, rank

    def room(self, purpose, size, like):
        """(a room, its memory of at least so many bytes) of this process, from which others take. purpose:
        what lies there, which others may read until it is taken again a few times.
        like: a tensor of the device."""
        import torch
        memory = like.new_empty(size, dtype=torch.uint8)
        return memory, memory

    def filled(self, room):
        """What the current stream has put there may be moved from here on, once all processes have come here."""

    def move(self, room, moves, sends, what):
        """Parts of the rooms of all on their way. moves: (number of the process, offset in its room, a tensor of bytes
        that takes them); sends: (number, offset in the own room, bytes) of what others move, in their order. Gives a
        function; what is launched behind its call sees what came."""
        for number, offset, to in moves:
            if number == self._rank:
                to.copy_(room[offset:offset + len(to)])
        messages = Messages(self._group, self._members, what)
        messages.post([(number, room[offset:offset + size]) for number, offset, size in sends if number != self._rank],
                      [(number, to) for number, _, to in moves if number != self._rank])
        return messages.wait


def as_bytes(tensor):
    """The memory of a contiguous tensor: backends that do not know its dtype can move it."""
    import torch
    return tensor.view(-1).view(torch.uint8)


def in_turn(moves, rank, ranks):
    """Moves, whose first item is where they come from, by that: beginning with this process's own, for all to read from another
    one at a time."""
    return sorted(moves, key=lambda move: (move[0] - rank) % ranks)
