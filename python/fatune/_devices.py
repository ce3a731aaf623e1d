"""Which session, context and stream serve the tensors of a device."""

from __future__ import annotations

import collections
import functools
import threading

from ._session import Session

_local = threading.local()
_emulated: dict[str, Session | None] = {}  # "cpu": the session that serves CPU tensors
found: dict[object, Session | None] = {}  # sessions, as session_of gave them, by torch.device and by number_of
_DLPACK_TYPES = {"cpu": 1, "cuda": 2}


class Device(collections.namedtuple("Device", "type index stream")):
    """Of arrays that are not PyTorch's, in place of torch.device: what they are on, and the stream they are used on."""

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


@functools.lru_cache(maxsize=None)
def default_session(device: int | None = None) -> Session:
    """The Session that attention() uses on a GPU (its ordinal, an int); made at the first call.

    Raises Error where it cannot be opened. See emulate() for CPU tensors.
    """
    return Session(device=device)


def emulate(gpu: str | None) -> Session | None:
    """Serves CPU tensors by an emulated GPU from now on; None: no longer. Returns the Session.

    gpu: a name that `fatune gpus` lists ("a100", "h200"). The kernels are the GPU's, compiled by the C++ compiler, some
    10^4 times slower than on a GPU: for trying things out and for tests. Sessions given to calls come first.
    Raises Error for an unknown name, and at the first call where there is no C++ compiler.
    """
    found.clear()
    _emulated["cpu"] = None if gpu is None else Session(emulate=gpu)
    return _emulated["cpu"]


def session_of(device):
    """The session that serves the tensors of a device, or None."""
    session = found.get(device)
    if session is None:
        session = default_session(device.index) if device.type == "cuda" else _emulated.get(device.type)
        if type(device) is not Device:  # which has a stream
            found[device] = found[number_of(device)] = session
    return session


def number_of(device):
    """What a device is to python/recent.c: DLPack's type << 32 | its number."""
    return _DLPACK_TYPES.get(device.type, 0) << 32 | (device.index or 0)


def found_session(device):
    """What session_of gave for the device before, or None; opens none."""
    return found.get(device)


def serves_device(device):
    """Whether session_of would give one; opens none."""
    return device.type == "cuda" or _emulated.get(device.type) is not None


def serves(session, device):
    """Whether a session's kernels can read the tensors of a device."""
    return device.type == ("cpu" if session.emulates else "cuda")


def enter(device):
    """The stream to launch on. The library launches in the context that is current; a thread that has not used CUDA yet
    has none. The runtime makes it so at the first call that needs one, such as recording an event."""
    if device.type != "cuda":
        return None
    if type(device) is Device:
        return device.stream
    import torch
    used = _local.__dict__.setdefault("devices", set())
    if device.index not in used:
        with torch.cuda.device(device.index):
            torch.cuda.Event().record()
        used.add(device.index)
    return torch._C._cuda_getCurrentRawStream(device.index)


def launch(device, function, *arguments):
    """function(*arguments, stream), with the device's context current in this thread."""
    stream = enter(device)
    if device.type != "cuda" or type(device) is Device:
        return function(*arguments, stream)
    import torch
    if torch.cuda.current_device() == device.index:
        return function(*arguments, stream)
    with torch.cuda.device(device.index):
        return function(*arguments, stream)
