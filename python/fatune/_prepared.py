"""Runs made again and again: arguments that were checked and launched once, with other addresses in them.

By the compiled module fatune._binding (python/binding.c; node.c is _node.py's, recent.c _recent.py's), which lies beside
libfatune.so, for tensors that speak DLPack's C exchange API (PyTorch 2.10 and later); else by ctypes.
"""

import ctypes as c
import functools
import importlib.machinery
import importlib.util
import os
import sys

from . import _structs as s
from ._devices import enter, launch
from ._library import check, library, library_path

ALIGNMENT = 256  # of a workspace, in bytes; PyTorch aligns CPU memory to less
_FILE = "_binding.abi3.so"


def place(name):
    """Where the address of an argument lies, in 64-bit words."""
    return getattr(s.Arguments, name).offset // 8


@functools.lru_cache(maxsize=None)
def binding():
    """The compiled module, or None: where there is none, or this Python has no stable ABI."""
    path = os.path.join(os.path.dirname(library_path()), _FILE)
    if sys.implementation.name != "cpython" or "t" in sys.abiflags or not os.path.exists(path):
        return None
    loader = importlib.machinery.ExtensionFileLoader("fatune._binding", path)
    spec = importlib.util.spec_from_file_location("fatune._binding", path, loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:  # of another machine or Python
        return None
    return module


def exchange_of(session):
    """What reads PyTorch's tensors for a session without ctypes, or None."""
    import torch
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None or binding() is None:
        return None
    several = not session.emulates and torch.cuda.device_count() > 1
    try:
        return binding().Exchange(capsule, torch.Tensor, *(
            (torch.cuda.current_device, torch.cuda.set_device) if several else (None, None)), *_functions(torch))
    except NotImplementedError:  # a version that is not known here
        return None


def _functions(torch):
    """What python/recent.c calls, in its order; last whatever tells that somebody wants to see operators: modes, functorch.
    That tensors may have tangents, of forward-mode differentiation, it reads in a module."""
    try:
        watchers = (torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack,
                    torch._C._is_torch_function_mode_enabled)
        forward_ad = torch.autograd.forward_ad
    except AttributeError:  # another PyTorch
        return ()
    return ((torch.empty_like, torch.is_grad_enabled, check, forward_ad, *watchers),)


def captured_place(number, name):
    """The same of the member of the so-manieth struct of an array of struct fatune_captured, which lies behind the arguments."""
    return (c.sizeof(s.Arguments) + number * c.sizeof(s.Captured) + getattr(s.Captured, name).offset) // 8


def prepare(exchange, plan, arguments, captured, places, has_workspace, device, seeded):
    """A function (tensor or None, ..., seed, offset) -> fatune_status that runs the plan with these arguments, but for
    the addresses: those of tensors at their places, then of a workspace if there is one, of ALIGNMENT more
    bytes than it needs; and the seed and the offset where it is seeded. captured: the array in the arguments. A place that
    is (place, dimensions of batch, sequence and head) takes the tensor's strides with its address."""
    words = [*places] + ([~place("workspace")] if has_workspace else [])
    if exchange is None:
        return _ByCtypes(plan, arguments, captured, words, device, seeded).run
    emulated = device.type != "cuda"
    run = c.cast(library().fatune_plan_run, c.c_void_p).value
    return binding().Prepared(
        exchange, run, (plan, captured), plan.handle.value, bytes(arguments), bytes(captured), tuple(words),
        -1 if emulated else device.index, seeded, lambda _: enter(device)).run


def set_seed(arguments, name, value, device):
    """A number, or a tensor of one 64-bit integer that is read when the kernel runs."""
    if hasattr(value, "data_ptr"):
        if value.element_size() != 8 or value.device != device:
            raise TypeError(f"{name} is {value.dtype} on {value.device}; allowed: an int, or an "
                            f"int64 tensor on {device}")
        setattr(arguments, name + "_device", value.data_ptr())
    elif not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {type(value).__name__}; allowed: an int, or an int64 tensor on {device}")
    else:
        setattr(arguments, name + "_device", None)
        setattr(arguments, name, value & 0xFFFFFFFFFFFFFFFF)


def align(address):
    """The next address that a workspace may have."""
    return -(-address // ALIGNMENT) * ALIGNMENT


class _ByCtypes:
    def __init__(self, plan, arguments, captured, words, device, seeded):
        self._plan, self._words, self._device, self._seeded = plan, words, device, seeded
        self._bytes, self._handle, self._run = bytes(arguments) + bytes(captured), plan.handle, library().fatune_plan_run
        self._captured = captured  # whose names are elsewhere
        self._idle = []  # arguments that no thread uses: an item is taken and given back without a lock

    def _new_arguments(self):
        """The struct, what points to it, its 64-bit words and those of what is captured behind it."""
        words = (c.c_uint64 * (len(self._bytes) // 8)).from_buffer_copy(self._bytes)
        if len(self._captured) > 0:
            words[place("captured")] = c.addressof(words) + c.sizeof(s.Arguments)
        arguments = s.Arguments.from_buffer(words)
        return arguments, c.byref(arguments), words

    def run(self, *given):
        try:
            taken = self._idle.pop()
        except IndexError:
            taken = self._new_arguments()
        arguments, pointer, words = taken
        for word, tensor in zip(self._words, given):
            address = 0 if tensor is None else tensor.data_ptr()
            if type(word) is tuple:
                word, *dims = word
                strides = tensor.stride()
                words[word + 1:word + 1 + len(dims)] = [strides[dim] for dim in dims]
            if word >= 0:
                words[word] = address
            else:
                words[~word] = align(address)
        if self._seeded:
            set_seed(arguments, "seed", given[-2], self._device)
            set_seed(arguments, "offset", given[-1], self._device)
        status = launch(self._device, self._run, self._handle, pointer)
        self._idle.append(taken)
        return status
