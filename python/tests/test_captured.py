"""Calls of one kind are checked once, and what they capture, sinks and gradients of O are each call's: a driver that records
launches looks on, by ctypes and by the compiled module."""

import contextlib
import ctypes
import unittest
from unittest import mock

from support import Tensor
from test_attention import WithDriver, bf16
from test_binding import Speaking

import fatune


class Captured(WithDriver):
    @contextlib.contextmanager
    def runs(self):
        """A list that gets, for each run of a plan, what is captured as (name, value, data, gradient), sinks, their gradient."""
        seen, lib = [], fatune._library.library()
        real = lib.fatune_plan_run

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(fatune._structs.Arguments), ctypes.c_void_p)
        def run(plan, arguments, stream):
            given = arguments.contents
            captured = [(each.name, each.value, each.data, each.gradient) for each in given.captured[:given.captured_count]]
            seen.append((captured, given.sinks, given.dsinks))
            return real(plan, arguments, stream)
        self.session.forget_plans()
        with mock.patch.object(lib, "fatune_plan_run", run):
            yield seen
        self.session.forget_plans()  # what is prepared refers to this

    def test_what_is_captured_is_each_call_s(self):
        """Calls of one kind are checked once; what they capture is read of each."""
        shapes = (1, 8, 100, 64), (1, 2, 300, 64), (1, 2, 300, 64)
        made = set()
        with self.runs() as seen:
            for _ in range(4):
                given = [bf16(*shape) for shape in shapes]
                bias, sinks = bf16(1, 8, 100, 300, strides=(0, 30000, 300, 1)), Tensor((8,), "float32")
                bias.requires_grad = sinks.requires_grad = True
                out, _ = self.wanting(*given, score="bias_bf16", captured={"bias": bias}, sinks=sinks)
                self.assertEqual(seen.pop(), ([(b"bias", 0.0, bias.address, None)], sinks.address, None))
                first = Tensor.next_address
                _, (dq, dk, dv, _, dbias, dsinks) = self.backward(out, bf16(1, 8, 100, 64))
                [(*told, of_bias)], of_sinks, gradient = seen.pop()
                self.assertEqual((told, of_sinks), ([b"bias", 0.0, bias.address], sinks.address))
                self.assertEqual((dbias.shape, dbias.dtype, dsinks.shape), (bias.shape, "bfloat16", (8,)))
                self.assertGreater(min(of_bias, gradient), first)  # new each time
                made |= {of_bias, gradient}
            self.assertEqual((len(self.session.calls), len(made), seen), (1, 8, []))
            for n, wrong in enumerate((Tensor((1, 8, 100, 299), "bfloat16"), Tensor((1, 8, 100, 300), "float32"))):
                with self.assertRaises((fatune.Error, TypeError)):
                    fatune.attention(*given, session=self.session, score="bias_bf16", captured={"bias": wrong}, sinks=sinks)
            other = Tensor((1, 8, 100, 400), "bfloat16")
            fatune.attention(*given, session=self.session, score="bias_bf16", captured={"bias": other}, sinks=sinks)
            self.assertEqual(seen[-1], ([(b"bias", 0.0, other.address, None)], sinks.address, None))

    def test_sinks_that_want_no_gradient(self):
        """The library makes it anyway, where there is room for it."""
        places = set()
        with self.runs() as seen:
            for _ in range(3):
                q, k, sinks = bf16(1, 8, 100, 64), bf16(1, 2, 300, 64), Tensor((8,), "float32")
                out, _ = self.wanting(q, k, k, sinks=sinks)
                first = Tensor.next_address
                _, gradients = self.backward(out, bf16(1, 8, 100, 64))
                self.assertEqual(len(gradients), 4)
                self.assertGreater(seen[-1][2], first)
                places.add(seen[-1][2])
        self.assertEqual(len(places), 3)

    def test_captured_numbers_are_each_call_s(self):
        q = bf16(1, 2, 64, 64)
        with self.runs() as seen:
            for cap in (3.0, 5.0, 3.0, 7, 5.0, 3.0):
                self.launch(q, q, q, score="softcap", captured={"cap": cap})
                self.assertEqual(seen.pop(), ([(b"cap", cap, None, None)], None, None))
            self.assertEqual(len(self.session.calls), 3)
            with self.assertRaisesRegex(fatune.Error, "captures no such thing"):
                self.launch(q, q, q, score="softcap", captured={"cap": 3.0, "cup": 3.0})

    def test_gradients_of_o_are_read_where_they_lie(self):
        q, k, v = bf16(2, 8, 100, 64), bf16(2, 2, 300, 64), bf16(2, 2, 300, 32)
        for strides in (None, (8 * 100 * 32, 32, 8 * 32, 1), (0, 0, 32, 1), (8 * 100 * 48, 100 * 48, 48, 1)):
            for _ in range(2):
                out, lse = self.wanting(q, k, v, causal=True)
                dout = bf16(2, 8, 100, 32, strides=strides)
                launch, _ = self.backward(out, dout)
                batch, head, seq, _ = dout.strides
                self.assertEqual((launch.backward_data(4), launch.backward_strides(4)), (dout.address, [batch, seq, head]))
            wrong = bf16(2, 8, 100, 32, strides=(0, 0, 0, 0))  # of a sum
            launch, _ = self.backward(out, wrong)
            self.assertNotEqual(launch.backward_data(4), wrong.address)
            self.assertEqual(launch.backward_strides(4), [8 * 100 * 32, 32, 100 * 32])


class ByBinding(Speaking, Captured):
    pass


if __name__ == "__main__":
    unittest.main()
