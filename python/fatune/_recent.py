"""Calls of attention() of a kind seen of late, which the compiled module makes without Python in between (python/recent.c)."""

import itertools

from ._prepared import binding

_MOST = 8  # kinds of a session that are remembered; then of those that Python makes one in _TURNS takes the oldest's place:
_TURNS = 4  # of more kinds in turn most then stay
_turns = itertools.count()
_PLAIN = type(None), bool, int, float, str  # types of arguments whose values tell all


def remember(call, tensors, asked):
    """Has later calls that ask the same, of tensors like these, made by the compiled module, where it can. The call has no
    dropout. asked: all arguments but the tensors, session and return_lse; seed, offset and tf32 first.
    What is remembered refers to neither call nor session, as Python's collector of cycles does not see it."""
    seed, offset, tf32 = asked[:3]
    if not call.kept or seed is not None or type(offset) is not int or offset != 0:
        return
    if tf32 is None and str(tensors[0].dtype).endswith("float32"):  # PyTorch is asked each time
        return
    session = call.session
    if len(session.recent) >= _MOST and next(_turns) % _TURNS:
        return
    before = None
    if call.recent is None or call.recent[0] != asked or call.recent[2] is not call.node:
        before = call.recent and call.recent[1]
        call.recent = asked, _kind(call, tensors, asked), call.node
    kind = call.recent[1]
    if kind is None or kind in session.recent:
        return
    session.recent = (kind, *[other for other in session.recent if other is not before][:_MOST - 1])
    if session.calls is not call.among:  # they were forgotten meanwhile
        session.recent = ()


def _kind(call, tensors, asked):
    """What the compiled module remembers of a call, or None where Python makes each one."""
    import torch
    prepared = call.prepared_forward(tensors[0])
    if prepared is None or binding() is None or type(prepared[0].__self__) is not binding().Prepared:
        return None
    if not all(type(value) in _PLAIN or type(value) is tuple and all(type(part) is int for part in value)
               or type(value) is torch.dtype for value in asked):
        return None
    run, *others = prepared
    try:
        return binding().Kind(run.__self__, tensors, asked, call.node, *others)
    except NotImplementedError:  # of a PyTorch that does not tell who wants to see operators
        return None
