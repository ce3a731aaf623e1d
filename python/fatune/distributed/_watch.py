"""Tells which rank does not answer where a GPU waits for others, and ends the process at the group's time-out: PyTorch's own
watchdog ends it some time later, and names the operation alone."""

from __future__ import annotations

import atexit
import collections
import os
import signal
import sys
import threading
import time
import weakref

from ._transport import first_line

_watches: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by group


class Watch:
    """A thread of a process that tells the others of a group that it lives, and looks after what this process waits for.

    store: of the group, for this thread alone; timeout: the group's, seconds; say: takes the message; end: is called where a
    rank is silent and what this process waits for has not come within the time-out. The GPU waits then for what never comes, and
    the process for the GPU.
    """

    def __init__(self, store, rank, ranks, timeout, say, end):
        self._store, self._rank, self._ranks, self._timeout, self._say, self._end = store, rank, ranks, timeout, say, end
        self._period, self._pending, self._beats, self._seen = min(1.0, timeout / 16), collections.deque(), 0, {}
        self._told, self._over = False, threading.Event()  # whether it was told of a silent rank; whether this process ends
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # a thread that is inside the store when the interpreter ends would abort the process

    def expect(self, what, is_there):
        """is_there: a function that says whether what was waited for has come."""
        self._pending.append((time.monotonic(), what, is_there))

    def stop(self):
        self._over.set()
        self._thread.join(min(self._timeout, 5))

    def _run(self):
        try:
            while not self._over.is_set():
                self._beat()
                if self._waited() > self._timeout / 2 and not self._told:
                    self._suspect()
                if self._waited() > self._timeout and self._told:
                    return self._end()
                self._over.wait(self._period)
        except RuntimeError as error:  # the store is gone, and with it the process that holds it, or the group
            self._over.wait(self._period)
            if self._waited():
                self._tell(f"the rank that holds the group's store does not answer: {first_line(error)}")
            while self._waited() and not self._over.is_set():
                if self._waited() > self._timeout:
                    return self._end()
                self._over.wait(self._period)

    def _beat(self):
        self._beats += 1
        self._store.set(f"fatune/{self._rank}", str(self._beats))

    def _waited(self):
        """Seconds since the first of what has not come was asked for; 0 where all has come."""
        while self._pending and self._pending[0][2]():
            self._pending.popleft()
            self._told = False
        return time.monotonic() - self._pending[0][0] if self._pending else 0

    def _suspect(self):
        """Says once which ranks have been silent for a quarter of the time-out."""
        now = time.monotonic()
        for rank in range(self._ranks):
            beat = self._store.get(f"fatune/{rank}") if self._store.check([f"fatune/{rank}"]) else None
            if rank not in self._seen or self._seen[rank][0] != beat:
                self._seen[rank] = beat, now
        silent = [rank for rank, (_, since) in self._seen.items() if now - since > self._timeout / 4]
        if silent:
            self._tell(f"rank {', '.join(map(str, silent))} does not answer")

    def _tell(self, why):
        self._say(f"fatune.distributed: {self._pending[0][1]} did not get through: {why}")
        self._told = True


def watch_of(group, device):
    """The Watch of a group on GPUs, or None."""
    import torch.distributed as dist
    from ._agreement import _group_of
    group = _group_of(group)
    if device.type != "cuda" or dist.get_backend(group) != "nccl":
        return None
    if group not in _watches:
        store = dist.distributed_c10d._get_process_group_store(group)
        timeout = dist.distributed_c10d._get_default_timeout(dist.get_backend(group)).total_seconds()
        options = getattr(group._get_backend(device), "options", None)
        _watches[group] = Watch(store.clone(), dist.get_rank(group), dist.get_world_size(group),
                                options._timeout.total_seconds() if hasattr(options, "_timeout") else timeout,
                                lambda message: print(message, file=sys.stderr, flush=True),
                                lambda: os.kill(os.getpid(), signal.SIGABRT))
    return _watches[group]
