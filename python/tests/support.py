"""What the tests share: where the build is, and stand-ins for PyTorch and its tensors."""

import ctypes
import os
import pathlib
import sys
import types

PYTHON = pathlib.Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent
BUILD = pathlib.Path(os.environ.get("FATUNE_BUILD_DIR") or ROOT / "build")
FAKE_CUDA = BUILD / "fake" / "libfake_cuda.so"
FAKE_NVRTC = BUILD / "fake" / "libfake_nvrtc.so"

sys.path.insert(0, str(PYTHON))
if "FATUNE_LIBRARY" not in os.environ and (BUILD / "libfatune.so").exists():
    os.environ["FATUNE_LIBRARY"] = str(BUILD / "libfatune.so")


class Device:
    def __init__(self, type_, index=None):
        self.type, self.index = type_, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


CUDA, CPU = Device("cuda", 0), Device("cpu")


class Tensor:
    """As much of torch.Tensor as the package looks at; its memory is an invented address."""

    next_address = 0x10000000

    def __init__(self, shape, dtype, device=CUDA, strides=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        if strides is None:
            strides, step = [], 1
            for extent in reversed(self.shape):
                strides.insert(0, step)
                step *= extent
        self.strides = tuple(strides)
        self.requires_grad = False
        self.context = None  # of the function that made it
        self.address = Tensor.next_address
        Tensor.next_address += 0x1000000

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self.strides

    def numel(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def element_size(self):
        return {"int64": 8, "uint8": 1, "float32": 4}.get(self.dtype, 2)

    def data_ptr(self):
        return self.address

    def new_empty(self, shape, dtype=None):
        return Tensor(shape, dtype or self.dtype, self.device)

    def contiguous(self):
        dense = Tensor(self.shape, self.dtype, self.device)
        return self if dense.strides == self.strides else dense

    def is_contiguous(self):
        return self.contiguous() is self

    def __mul__(self, factor):
        return Tensor(self.shape, self.dtype, self.device)

    def expand(self, shape):
        expanded = [0 if mine == 1 else stride for mine, stride in zip(self.shape, self.strides)]
        return Tensor(shape, self.dtype, self.device, [0] * (len(shape) - len(expanded)) + expanded)

    def to(self, dtype):
        return Tensor(self.shape, dtype, self.device, self.strides)

    def __getitem__(self, index):
        """tensor[None, None], which puts two extents of 1 in front."""
        front = Tensor((1,) * len(index) + self.shape, self.dtype, self.device)
        front.address = self.address
        return front


class _Nothing:
    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def record(self):
        pass


class NoGrad:
    """Of torch: also how autograd itself calls a backward, unless its results are to be differentiated."""

    depth = 0

    def __enter__(self):
        NoGrad.depth += 1

    def __exit__(self, *_):
        NoGrad.depth -= 1


class Context:
    """What an autograd function keeps between its forward and its backward."""

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def set_materialize_grads(self, value):
        self.materializes = value


class FunctionBase:
    """Of torch.autograd: the outputs know how to be differentiated."""

    @classmethod
    def apply(cls, *arguments):
        context = Context()
        outputs = cls.forward(context, *arguments)
        for output in outputs if type(outputs) is tuple else (outputs,):
            output.context, output.function = context, cls
        return outputs


class Function(FunctionBase):
    pass


def _like(tensor):
    dense = sorted(zip(tensor.strides, tensor.shape), reverse=True)
    span = 1
    for stride, extent in reversed(dense):
        if stride != span:  # not dense: as torch, contiguous
            return Tensor(tensor.shape, tensor.dtype, tensor.device)
        span *= extent
    return Tensor(tensor.shape, tensor.dtype, tensor.device, tensor.strides)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def _tell(tensor, told):
    if not isinstance(tensor, Tensor):
        return -1
    count = len(tensor.shape)
    tensor.told = [(ctypes.c_int64 * max(count, 1))(*numbers) for numbers in (tensor.shape, tensor.strides)]
    offset = 16  # so that whoever forgets it is found out
    told[0] = DLTensor(tensor.address - offset, 2 if tensor.device.type == "cuda" else 1, tensor.device.index or 0, count,
                       {"bfloat16": 4, "float32": 2, "float16": 2}.get(tensor.dtype, 0), 8 * tensor.element_size(), 1,
                       *(ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64)) for numbers in tensor.told), offset)
    return 0


def _tell_stream(_type, _index, stream):
    stream[0] = Exchange.current
    return 0


class Exchange(ctypes.Structure):
    """DLPack's C exchange API for the tensors above."""

    alive = []
    current = 0x5717EA  # stream

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("others", ctypes.c_void_p * 4),
                ("tensor_of", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
                ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32,
                                             ctypes.POINTER(ctypes.c_void_p)))]

    @classmethod
    def capsule(cls, major=1):
        exchange = cls(major=major, minor=3)
        exchange.tensor_of, exchange.stream = cls._fields_[3][1](_tell), cls._fields_[4][1](_tell_stream)
        cls.alive.append(exchange)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(exchange), b"dlpack_exchange_api", None)


def fake_torch():
    """A module `torch` whose tensors are those above."""
    torch = types.ModuleType("torch")
    torch.float16, torch.bfloat16, torch.float32 = "float16", "bfloat16", "float32"
    torch.bool, torch.uint8, torch.int64 = "bool", "uint8", "int64"
    torch.Tensor, torch.dtype = Tensor, str
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False, is_dynamo_compiling=lambda: False)
    torch._C = types.SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: 0x5717EA, _len_torch_dispatch_stack=lambda: 0,
        _functorch=types.SimpleNamespace(peek_interpreter_stack=lambda: None,
                                         is_functorch_wrapped_tensor=lambda tensor: False),
        _is_torch_function_mode_enabled=lambda: False)
    torch.no_grad = NoGrad
    torch.randint = lambda low, high, shape, dtype, device: Tensor(shape, dtype, device)
    torch.is_grad_enabled = lambda: NoGrad.depth == 0
    torch.empty = lambda shape, dtype="float32", device=CPU: Tensor(shape, dtype, device)
    torch.empty_like = torch.zeros_like = _like
    torch.autograd = types.SimpleNamespace(
        Function=Function, forward_ad=types.SimpleNamespace(
            _current_level=-1, unpack_dual=lambda tensor: types.SimpleNamespace(tangent=None)),
        function=types.SimpleNamespace())
    torch.cuda = types.SimpleNamespace(
        device=_Nothing, Event=_Nothing, current_device=lambda: 0, device_count=lambda: 1,
        current_stream=lambda device=None: types.SimpleNamespace(cuda_stream=0x5717EA))
    return torch
