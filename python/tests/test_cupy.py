"""Arrays on a GPU that are not PyTorch's, as CuPy's are: a stand-in that speaks DLPack and the array API standard, and a
driver that records launches."""

import ctypes
import sys
import types
import unittest
import unittest.mock

import support
import test_attention
from support import DLTensor

from fatune import arrays

STREAM = 0x57


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("free", ctypes.c_void_p)]


class Array:
    next_address = 0x20000000
    streams = []  # that consumers said

    def __init__(self, shape, dtype="float16", strides=None):
        self.shape, self.dtype, self.strides = tuple(shape), dtype, strides
        self.address = Array.next_address
        Array.next_address += 0x1000000

    @staticmethod
    def __array_namespace__():
        return types.SimpleNamespace(empty=lambda shape, dtype: Array(shape, dtype))

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream):
        Array.streams.append(stream)
        count = len(self.shape)
        self.numbers = (ctypes.c_int64 * count)(*self.shape), (ctypes.c_int64 * count)(*self.strides or ())
        code, bits = {"float16": (2, 16), "float32": (2, 32), "uint8": (1, 8)}[self.dtype]
        shape, strides = (ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64)) for numbers in self.numbers)
        self.managed = Managed(DLTensor(self.address - 32, 2, 0, count, code, bits, 1, shape,
                                        strides if self.strides else None, 32))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), b"dltensor", None)


@unittest.skipUnless(support.FAKE_CUDA.exists() and support.FAKE_NVRTC.exists(), "the build has no stand-in driver")
class Cupy(unittest.TestCase):
    setUpClass = classmethod(test_attention.Attention.setUpClass.__func__)
    tearDownClass = classmethod(test_attention.Attention.tearDownClass.__func__)

    def test_forward_and_backward(self):
        q, dout = Array((2, 4, 100, 64)), Array((2, 4, 100, 64))
        k, v = (Array((2, 2, 300, 64), strides=(38400, 64, 128, 1)) for _ in range(2))  # [batch, seq, heads, dim] in memory
        Array.streams.clear()
        out, lse = arrays.attention(q, k, v, causal=True, return_lse=True, stream=STREAM, session=self.session)
        launch = self.driver.fake_cuda_last_launch().contents
        self.assertEqual(((out.shape, out.dtype), (lse.shape, lse.dtype)), (((2, 4, 100, 64), "float16"),
                                                                           ((2, 4, 100), "float32")))
        self.assertEqual([launch.data(n) for n in range(4)], [array.address for array in (q, k, v, out)])
        self.assertEqual([launch.strides(n) for n in range(2)], [[25600, 64, 6400], [38400, 128, 64]])
        self.assertEqual((launch.words[test_attention.LSE], launch.stream), (lse.address, STREAM))
        gradients = arrays.attention_backward(dout, q, k, v, out, lse, causal=True, stream=STREAM, session=self.session)
        launch = self.driver.fake_cuda_last_launch().contents
        self.assertEqual([launch.backward_data(n) for n in range(8)],
                         [array.address for array in (q, k, v, out, dout, *gradients)])
        self.assertEqual((launch.stream, set(Array.streams)), (STREAM, {STREAM}))

    def test_arrays_that_do_not_name_their_namespace(self):
        entered = []

        class Device:
            __enter__ = lambda self: entered.append(1)
            __exit__ = lambda self, *_: None

        class Plain(Array):
            __array_namespace__ = property()  # as if there were none
            __module__ = "cupy_stand_in.core"
            device = Device()
        root = types.ModuleType("cupy_stand_in")
        q = Plain((1, 2, 64, 64))
        with unittest.mock.patch.dict(sys.modules, cupy_stand_in=root):
            with self.assertRaisesRegex(TypeError, "cupy_stand_in no empty"):
                arrays.attention(q, q, q, session=self.session)
            root.empty = lambda shape, dtype: Plain(shape, dtype)
            entered.clear()
            out, lse = arrays.attention(q, q, q, return_lse=True, session=self.session)
        self.assertEqual((type(out), lse.shape, lse.dtype, len(entered)), (Plain, (1, 2, 64), "float32", 2))
        self.assertEqual(self.driver.fake_cuda_last_launch().contents.data(3), out.address)

    def test_the_default_stream(self):
        q = Array((1, 2, 64, 64))
        Array.streams.clear()
        arrays.attention(q, q, q, session=self.session)
        self.assertEqual(set(Array.streams), {1})
        self.assertIsNone(self.driver.fake_cuda_last_launch().contents.stream)


if __name__ == "__main__":
    unittest.main()
