"""What a score function captures, and attention sinks: checks, the library's structs, gradients."""

import functools
from collections.abc import Mapping

from . import _structs as s
from ._prepared import captured_place
from .score import traced


def check_captured(captured):
    if type(captured) is not dict and captured is not None and not isinstance(captured, Mapping):
        raise TypeError(f"captured is {type(captured).__name__}; allowed: a dict of numbers and tensors by name")
    for name in captured or ():
        if not isinstance(name, str) or "\0" in name:
            raise TypeError(f"captured has the name {name!r}; allowed: text")


def add_score(score, visible, captured, session):
    """The number of a score function given by its name, its Lua text, which has a '=' in it, or as Python
    functions."""
    check_captured(captured)
    if callable(score) or visible is not None:
        if isinstance(score, str):
            raise ValueError("visible comes with a score that is text; allowed: the text states both")
        score = traced(score, visible, captured)
    if score is None:
        return 0
    if not isinstance(score, str):
        raise TypeError(f"score is {type(score).__name__}; allowed: the name of a built-in one, a Lua text, a Python function")
    return session.add_score(*(("score", score) if "=" in score else (score, None)), captured)


def captured_array(captured, device, gradients=None):
    """An array of struct fatune_captured from numbers and tensors by name; gradients: where theirs go."""
    array = (s.Captured * len(captured))()
    for entry, (name, value) in zip(array, captured.items()):
        entry.name = name.encode()
        if not hasattr(value, "data_ptr"):
            try:
                entry.value = value
            except TypeError:
                raise TypeError(f"captured {name!r} is {type(value).__name__}; allowed: a number, or a tensor") from None
            continue
        if value.device != device or value.dim() > 4:
            raise ValueError(f"captured {name!r} has {value.dim()} dimensions on {value.device}; "
                             f"allowed: up to 4, on {device}")
        entry.data = value.data_ptr()
        entry.extents[:value.dim()] = value.shape
        entry.strides[:value.dim()] = value.stride()
        if gradients and name in gradients:
            entry.gradient = gradients[name].data_ptr()
    return array


def kind_of(captured):
    """What tells values apart that need calls of their own (_launch.Call), None where nothing does."""
    kind = []
    for name, value in captured.items():
        if hasattr(value, "data_ptr"):
            kind.append((name, value.shape, value.stride(), value.dtype, value.device, value.requires_grad))
        elif type(value) in (bool, int, float):
            kind.append((name, value))
        else:
            return None
    return tuple(kind)


def tensors_of(captured):
    return [value for value in captured.values() if hasattr(value, "data_ptr")]


@functools.lru_cache(maxsize=64)
def _places(names, member):
    return tuple(captured_place(number, member) for number, wanted in enumerate(names) if wanted)


def places(captured, member, wanted=None):
    """Where a member of the structs goes of those that are tensors, or of the wanted ones, by name."""
    return _places(tuple(hasattr(value, "data_ptr") if wanted is None else name in wanted for name, value in captured.items()),
                   member)


def new_gradient(tensor):
    """Room for the gradient of a captured tensor: dense, one element along a dimension of stride 0."""
    import torch
    shape = [1 if stride == 0 else extent for extent, stride in zip(tensor.shape, tensor.stride())]
    return tensor.new_empty(shape, dtype=torch.float32)


def spread(gradients, tensors):
    """The gradients of tensors, by name, as autograd wants them: an expanded tensor's will be summed over what it was expanded
    by."""
    return [_spread(gradients[name], tensor) for name, tensor in tensors.items()]


def _spread(gradient, tensor):
    if gradient.numel() != tensor.numel():
        gradient = (gradient * (gradient.numel() / tensor.numel())).expand(tensor.shape)
    return gradient.to(tensor.dtype)


SINKS = "the sinks"  # among what is captured: not the name of anything there


def check_sinks(sinks, heads, device):
    if sinks is None:
        return None
    if (tuple(sinks.shape) != (heads,) or not str(sinks.dtype).endswith("float32") or sinks.device != device
            or not sinks.is_contiguous()):
        raise ValueError(f"sinks is {tuple(sinks.shape)} {sinks.dtype} on {sinks.device}; allowed: contiguous "
                         f"float32 ({heads},) on {device}")
    return sinks
