"""The compiled part of the package: what test_attention.py asks, asked again of tensors that speak DLPack's C exchange
API, and what is its own."""

import ctypes
import types
import unittest
from unittest import mock

import support
import test_attention
from support import Exchange, Tensor
from test_attention import bf16

import fatune
from fatune import _prepared


class Speaking(test_attention.WithDriver):
    """Tensors speak DLPack's C exchange API."""

    @classmethod
    def setUpClass(cls):
        if not (support.BUILD / "_binding.abi3.so").exists():
            raise unittest.SkipTest("the build had no Python.h")
        cls.speaks = mock.patch.object(Tensor, "__dlpack_c_exchange_api__", Exchange.capsule(), create=True)
        cls.speaks.start()
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.speaks.stop()


class ByBinding(Speaking, test_attention.Attention):
    def test_it_is_used(self):
        q = bf16(1, 2, 64, 64)
        self.launch(q, q, q)
        self.assertIsInstance(self.session.exchange, _prepared.binding().Exchange)
        with mock.patch.object(fatune._attention, "Call", side_effect=AssertionError):
            self.launch(q, q, q)

    def test_gradients_again(self):
        for _ in range(2):
            q, k, v = bf16(2, 8, 128, 64), bf16(2, 2, 300, 64), bf16(2, 2, 300, 32)
            q.requires_grad = True
            _, (out, lse) = self.launch(q, k, v, return_lse=True, dropout=0.5, seed=Tensor((1,), "int64"), offset=3)
            dout, dlse = bf16(*out.shape), Tensor(lse.shape, "float32")
            context = out.context
            with support.NoGrad():
                dq, dk, dv, *_ = out.function.backward(context, dout, dlse)
            launch = self.driver.fake_cuda_last_launch().contents
            wanted = [q, k, v, out, dout, dq, dk, dv]
            self.assertEqual([launch.backward_data(n) for n in range(8)], [tensor.address for tensor in wanted])
            first = test_attention.BACKWARD_LSE
            self.assertEqual(list(launch.maps[first:first + 2]), [lse.address, dlse.address])
            dropout = list(launch.maps[test_attention.BACKWARD_DROPOUT:test_attention.BACKWARD_DROPOUT + 4])
            self.assertEqual(dropout[1:3], [3, context.of[1].address])

    def test_wrong_seeds(self):
        q = bf16(1, 2, 64, 64)
        for _ in range(2):
            self.launch(q, q, q, dropout=0.5, seed=3)
        for wrong in (Tensor((1,), "float32"), Tensor((1,), "int64", support.CPU), 1.5, "3"):
            with self.assertRaises(TypeError):
                fatune.attention(q, q, q, dropout=0.5, seed=wrong, session=self.session)

    def test_the_device_is_made_the_threads(self):
        current = [1]
        several = types.SimpleNamespace(current_device=lambda: current[0], set_device=lambda n: current.__setitem__(0, n))
        exchange = _prepared.binding().Exchange(Tensor.__dlpack_c_exchange_api__, Tensor, several.current_device,
                                                several.set_device)
        seen = []

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        def run(plan, arguments, stream):
            seen.append((plan, stream, current[0]))
            return -7
        arguments = bytes(fatune._structs.Arguments())
        prepared = _prepared.binding().Prepared(exchange, ctypes.cast(run, ctypes.c_void_p).value, None, 0x71A, arguments,
                                                (_prepared.place("q"),), 0, False, lambda index: None)
        self.assertEqual(prepared.run(bf16(1, 2, 64, 64), 0, 0), -7)
        self.assertEqual((seen, current), ([(0x71A, 0x5717EA, 0)], [1]))

    def test_bad_input(self):
        binding, capsule = _prepared.binding(), Tensor.__dlpack_c_exchange_api__
        with self.assertRaises(NotImplementedError):
            binding.Exchange(Exchange.capsule(major=2), Tensor, None, None)
        with self.assertRaises(ValueError):
            binding.Exchange(ctypes.pythonapi, Tensor, None, None)
        exchange = binding.Exchange(capsule, Tensor, None, None)
        q = bf16(1, 2, 64, 64)
        self.assertIsNone(exchange.key(q, q, 3))
        self.assertIsNone(exchange.key(q, q, bf16(2, 64, 64)))
        self.assertNotEqual(exchange.key(q, q, q), exchange.key(q, q, bf16(1, 2, 64, 64, strides=(8192, 64, 128, 1))))
        arguments = bytes(fatune._structs.Arguments())
        for wrong in ({"arguments": arguments[:-8]}, {"words": (len(arguments) // 8,)}, {"words": (~(len(arguments) // 8),)},
                      {"words": (1,) * 17}):
            given = {"arguments": arguments, "words": (1,), **wrong}
            with self.assertRaises(ValueError):
                binding.Prepared(exchange, 1, None, 1, given["arguments"], given["words"], 0, False, None)
        with self.assertRaises(TypeError):
            binding.Prepared(None, 1, None, 1, arguments, (1,), 0, False, None)


if __name__ == "__main__":
    unittest.main()
