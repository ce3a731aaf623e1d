"""Memory that the processes of one host read of each other. Copy engines move it and take no multiprocessor, so kernels run
beside them at full speed: NCCL's own kernels would wait for a persistent kernel's end, and it for theirs."""

from __future__ import annotations

import itertools
import socket
import weakref

from ._agreement import _group_of, _texts
from ._transport import Broken, first_line
from ._watch import watch_of

TURNS = 3  # windows of one purpose: others may read two while the third is filled
ROUND = 1 << 21  # bytes
WHAT = {"keys": "k and v", "gradients": "the gradients of k and v", "heads": "rows for heads"}  # lies in windows, by purpose
_known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by group: its Peers, or None


class _Window:
    """Memory of this process, and the same of all of them, as bytes."""

    def __init__(self, group, ranks, purpose, size, device):
        import torch
        import torch.distributed._symmetric_memory as symmetric
        self.purpose = purpose
        self.own = symmetric.empty(size, dtype=torch.uint8, device=device)
        try:
            handle = symmetric.rendezvous(self.own, group)
        except RuntimeError as error:  # where a rank was waited for, the key that is named ends with it
            raise Broken(f"memory for {WHAT[purpose]} could not be shared: {first_line(error)}") from error
        self.of_all = [handle.get_buffer(rank, (size,), torch.uint8) for rank in range(ranks)]
        self.read, self.free = False, None  # whether others have been asked to read it; an event behind which none does


class Peers:
    """The windows of a group, and a stream for each purpose, which reads others'.

    All processes of the group make the same calls in the same order, with the same sizes.
    """

    def __init__(self, group, ranks, device):
        import torch
        import torch.distributed as dist
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        self._group = group
        self._meeting = dist.new_group(dist.get_process_group_ranks(group), use_local_synchronization=True, pg_options=options)
        self._ranks, self._device, self._windows, self._turns, self._streams = ranks, device, {}, {}, {}
        self._mark, self._watch = torch.zeros(1, device=device), watch_of(group, device)

    def window(self, purpose, size):
        """A window of at least so many bytes that nobody reads any more."""
        import torch
        turn = next(self._turns.setdefault(purpose, itertools.cycle(range(TURNS))))
        window = self._windows.get((purpose, turn))
        if window is not None and window.read and window.free is None:
            self.meet(purpose)
        if window is None or len(window.own) < size:
            if window is not None:
                torch.cuda.synchronize(self._device)
                del self._windows[purpose, turn], window
            window = self._windows[purpose, turn] = _Window(self._group, self._ranks, purpose, -(-size // ROUND) * ROUND,
                                                            self._device)
        if window.free is not None:
            torch.cuda.current_stream(self._device).wait_event(window.free)
        window.read, window.free = False, None
        return window

    def _stream(self, purpose):
        """That of a purpose, behind what the current stream has."""
        import torch
        stream = self._streams.get(purpose)
        if stream is None:
            stream = self._streams[purpose] = torch.cuda.Stream(self._device, priority=-1)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        return stream

    def meet(self, purpose):
        """What other processes have launched before this meeting has run when windows are read from here on."""
        import torch
        import torch.distributed as dist
        stream = self._stream(purpose)
        with torch.cuda.stream(stream):
            dist.all_reduce(self._mark, group=self._meeting)
            event = stream.record_event()
        self._watch.expect(WHAT[purpose], event.query)
        for window in self._windows.values():
            if window.purpose == purpose and window.read and window.free is None:
                window.free = event

    def read(self, window, moves):
        """moves: (rank, offset in its window, tensor of bytes). An event behind which they are there."""
        import torch
        stream = self._stream(window.purpose)
        with torch.cuda.stream(stream):
            for rank, offset, to in moves:
                to.copy_(window.of_all[rank][offset:offset + len(to)], non_blocking=True)
            window.read = True
            return stream.record_event()


class ByCopies:
    """Moves of one attention by copy engines; as ByMessages, whose methods say what each does."""

    def __init__(self, peers, members):
        self._peers, self._members = peers, members

    def room(self, purpose, size, like):
        window = self._peers.window(purpose, size)
        return window, window.own

    def filled(self, room):
        self._peers.meet(room.purpose)

    def move(self, room, moves, sends, what):
        import torch
        event = self._peers.read(room, [(self._members[number], offset, to) for number, offset, to in moves])
        return lambda: torch.cuda.current_stream().wait_event(event)


def _place(device):
    """What processes of one host have in common, then this one's device; empty where memory cannot be read by others."""
    import torch
    import torch.distributed as dist
    try:
        import torch.distributed._symmetric_memory as symmetric
        if device.type != "cuda" or not hasattr(symmetric, "rendezvous") or not hasattr(dist, "ProcessGroupNCCL"):
            return ""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except (ImportError, OSError):
        return ""
    return f"{socket.gethostname()} {boot}\n{torch.cuda.get_device_properties(device).uuid}"


def _reached(places, device):
    """Whether this process can read the memory of all others."""
    import torch
    hosts = {place.split("\n")[0] for place in places}
    uuids = [place.split("\n")[-1] for place in places]
    if "" in places or len(hosts) > 1 or len(set(uuids)) < len(uuids):
        return False
    count = torch.cuda.device_count()
    here = {str(torch.cuda.get_device_properties(n).uuid): n for n in range(count)}
    own = device.index if device.index is not None else torch.cuda.current_device()
    return all(uuid in here and (here[uuid] == own or torch.cuda.can_device_access_peer(own, here[uuid])) for uuid in uuids)


def peers_of(group, ranks, device):
    """The Peers of a group, once, or None where some process cannot read another's memory; the same on all of them."""
    import torch.distributed as dist
    group = _group_of(group)

    def all_can(one_can):
        return all(text == "True" for text in _texts(str(one_can), group, ranks, device))

    if group not in _known:
        _known[group] = None
        if device.type == "cuda" and dist.get_backend(group) == "nccl":
            places = _texts(_place(device), group, ranks, device)
            if all_can(_reached(places, device)):
                peers = Peers(group, ranks, device)
                if all_can(_shares(peers)):
                    _known[group] = peers
    return _known[group]


def _shares(peers):
    """Whether the driver lets processes share memory here."""
    try:
        peers.window("keys", ROUND)
    except Broken:
        return False
    return True
