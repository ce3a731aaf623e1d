"""Whether all processes of a group call with the same arguments. Asked once for each kind of call, by one small message."""

from __future__ import annotations

import hashlib
import weakref

from .._library import version
from ._transport import Broken, first_line

PROTOCOL = 1  # of the messages; another number does not talk to this one
_DIGEST = 32
_agreed: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by group: texts on which all its processes agree


def _group_of(group):
    import torch.distributed as dist
    return group if group is not None else dist.distributed_c10d._get_default_group()


def _all_gather(tensor, group, ranks):
    import torch
    import torch.distributed as dist
    parts = [torch.empty_like(tensor) for _ in range(ranks)]
    try:
        dist.all_gather(parts, tensor, group=group)
    except RuntimeError as error:
        raise Broken(f"the arguments of all {ranks} ranks could not be compared, some rank does not answer: "
                     f"{first_line(error)}") from error
    return parts


def _bytes(data, length, device):
    import torch
    return torch.tensor(list(data.ljust(length, b"\0")), dtype=torch.uint8, device=device)


def _texts(text, group, ranks, device):
    """The texts of all ranks."""
    import torch
    data = text.encode()
    lengths = [int(length) for length in _all_gather(torch.tensor([len(data)], device=device), group, ranks)]
    parts = _all_gather(_bytes(data, max(lengths), device), group, ranks)
    return [bytes(part[:length].tolist()).decode() for part, length in zip(parts, lengths)]


def _difference(texts):
    """The ranks that are not as most are, and in which argument."""
    fields = [dict(line.split("=", 1) for line in text.split("\n")) for text in texts]
    for rank, own in enumerate(fields):
        if "error" in own:
            return f"rank {rank}: {own['error']}"
    for name in dict.fromkeys(name for own in fields for name in own):
        values = [own.get(name, "nothing") for own in fields]
        usual = max(dict.fromkeys(values), key=values.count)
        others = [rank for rank, value in enumerate(values) if value != usual]
        if others:
            differing = ", ".join(f"{values[rank]} on rank {rank}" for rank in others)
            rank = values.index(usual)
            return f"{name} is {differing}, and {usual} on rank {rank}; allowed: the same on all ranks of the group"
    return "arguments differ between the ranks of the group"


def agree(group, ranks, device, describe):
    """Raises on all ranks where they do not agree. describe() gives the arguments by name; what it raises is an error of
    all ranks, too."""
    failure, arguments = None, {}
    try:
        arguments = describe()
    except (TypeError, ValueError, NotImplementedError) as error:
        failure, arguments = error, {"error": first_line(error)}
    text = "\n".join(f"{name}={value}" for name, value in
                     {"fatune's version": f"{version()}, protocol {PROTOCOL}", **arguments}.items())
    known = _agreed.setdefault(_group_of(group), set())
    if text in known:
        return
    own = hashlib.sha256(text.encode()).digest()
    digests = _all_gather(_bytes(own, _DIGEST, device), group, ranks)
    if failure is None and all(bytes(digest.tolist()) == own for digest in digests):
        known.add(text)
        return
    texts = _texts(text, group, ranks, device)
    if failure is not None:
        raise failure
    raise ValueError(_difference(texts))
