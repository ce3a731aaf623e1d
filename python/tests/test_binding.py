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
            self.assertEqual(list(launch.numbers[first:first + 2]), [lse.address, dlse.address])
            dropout = list(launch.numbers[test_attention.BACKWARD_DROPOUT:test_attention.BACKWARD_DROPOUT + 4])
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
                                                b"", (_prepared.place("q"),), 0, False, lambda index: None)
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
                      {"words": (1,) * 49}, {"captured": bytes(95)}, {"captured": bytes(25 * 96)}, {"words": ((1, 0, 2, 4),)},
                      {"words": ((1, 0, -1, 3),)}, {"words": ((~1, 0, 1, 2),)}, {"words": ((len(arguments) // 8 - 3, 0, 1, 2),)},
                      {"captured": bytes(96), "words": (len(arguments) // 8 + 12,)}):
            given = {"arguments": arguments, "captured": b"", "words": (1,), **wrong}
            with self.assertRaises(ValueError):
                binding.Prepared(exchange, 1, None, 1, given["arguments"], given["captured"], given["words"], 0, False, None)
        with self.assertRaises(TypeError):
            binding.Prepared(None, 1, None, 1, arguments, b"", (1,), 0, False, None)

    def test_counts(self):
        binding, capsule = _prepared.binding(), Tensor.__dlpack_c_exchange_api__
        exchange, q = binding.Exchange(capsule, Tensor, None, None), bf16(1, 2, 64, 64)
        prepared = self.prepared(exchange)
        for wrong in (lambda: binding.Exchange(), lambda: binding.Exchange(capsule, Tensor, None, None, 3),
                      lambda: binding.Prepared(exchange), lambda: exchange.key(q), lambda: exchange.key(q, q, q, q),
                      lambda: prepared.run(), lambda: prepared.run(q, 0), lambda: prepared.run(q, q, 0, 0),
                      lambda: self.prepared(exchange, words=("x",))):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaisesRegex(ValueError, "has fewer than empty_like"):
            binding.Exchange(capsule, Tensor, None, None, (1,))
        with self.assertRaisesRegex(ValueError, "past the arguments"):
            self.prepared(exchange, words=(1 << 40,))

    def prepared(self, exchange, device=0, enter=lambda index: None, words=None, seeded=False):
        self.runs = []

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        def run(plan, arguments, stream):
            self.runs.append(plan)
            return 0
        self.kept = run
        return _prepared.binding().Prepared(exchange, ctypes.cast(run, ctypes.c_void_p).value, None, 0x71A,
                                            bytes(fatune._structs.Arguments()), b"",
                                            (_prepared.place("q"),) if words is None else words, device, seeded, enter)

    def test_what_is_called_may_fail(self):
        def fail(*given):
            raise KeyError("no device")
        binding, capsule, q = _prepared.binding(), Tensor.__dlpack_c_exchange_api__, bf16(1, 2, 64, 64)
        for current, put, error in ((fail, None, KeyError), (lambda: "x", None, TypeError), (lambda: 1, fail, KeyError),
                                    (lambda: 1 << 80, None, OverflowError)):
            prepared = self.prepared(binding.Exchange(capsule, Tensor, current, put))
            with self.assertRaises(error):
                prepared.run(q, 0, 0)
            self.assertEqual(self.runs, [])
        alone = binding.Exchange(capsule, Tensor, None, None)
        prepared = self.prepared(alone, device=63, enter=fail)  # which no thread has entered yet
        with self.assertRaises(KeyError):
            prepared.run(q, 0, 0)
        self.assertEqual(self.runs, [])
        prepared = self.prepared(alone, device=-1, enter=fail)  # no GPU: nothing is entered
        self.assertEqual((prepared.run(q, 0, 0), prepared.run(None, 0, 0), len(self.runs)), (0, 0, 2))
        with self.assertRaises(Exception):
            prepared.run("no tensor", 0, 0)

    def test_seeds_are_whole_numbers(self):
        exchange, q = _prepared.binding().Exchange(Tensor.__dlpack_c_exchange_api__, Tensor, None, None), bf16(1, 2, 64, 64)
        prepared = self.prepared(exchange, device=-1, seeded=True)
        for seed, offset in ((1.5, 0), (0, 1.5), ("3", 0), (None, 0), (0, q)):
            with self.assertRaises(TypeError):
                prepared.run(q, seed, offset)
        self.assertEqual(self.runs, [])
        self.assertEqual(prepared.run(q, 1 << 63, -1), 0)


if __name__ == "__main__":
    unittest.main()
