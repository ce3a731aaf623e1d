"""Calls of a kind seen of late (python/recent.c) with PyTorch itself: the same bits, and who has to see operators does.
Skipped where PyTorch, a C++ compiler or the compiled module is missing."""

import concurrent.futures
import gc
import tracemalloc
import unittest

from test_recent import by_python, watched
from test_torch import HAS_TORCH, Emulated, tensors

import fatune
from fatune import _prepared

if HAS_TORCH:
    import torch

SHAPES = (2, 4, 40, 32), (2, 2, 24, 32), (2, 2, 24, 32)
KINDS = [(SHAPES, {}), (SHAPES, {"causal": True, "return_lse": True}), (SHAPES, {"causal": True, "scale": 0.3}),
         (SHAPES, {"window": (5, 3)}), (SHAPES[:2] + ((2, 2, 24, 16),), {"return_lse": True}),
         (((1, 40, 4, 32), (1, 24, 4, 32), (1, 24, 4, 16)), {"layout": "bshd"}), (((1, 1, 1, 32), (1, 1, 24, 32), (1, 1, 24, 16)), {})]


class Recent(Emulated):
    def setUp(self):
        if not (_prepared.binding() and hasattr(torch.Tensor, "__dlpack_c_exchange_api__")):
            self.skipTest("the build or PyTorch has not what it takes")
        self.session.forget_plans()
        self.seed = 0

    def new(self, shapes):
        self.seed += 1
        return tensors(*shapes, seed=self.seed)

    def same(self, ours, theirs):
        ours, theirs = (made if type(made) is tuple else (made,) for made in (ours, theirs))
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs):
            self.assertTrue(torch.equal(a, b))
            self.assertEqual((a.stride(), a.dtype, a.device, a.requires_grad, a.is_inference()),
                             (b.stride(), b.dtype, b.device, b.requires_grad, b.is_inference()))

    def test_several_kinds_in_turn(self):
        for turn in range(4):
            for shapes, options in KINDS:
                given = self.new(shapes)
                with by_python():
                    wanted = fatune.attention(*given, **options)
                with watched() as made, torch.set_grad_enabled(turn != 2):
                    got = fatune.attention(*given, **options)
                self.assertEqual(made, [True])
                self.same(got, wanted)
        self.assertEqual(len(self.session.recent), len(KINDS))

    def test_views_and_sdpa(self):
        q, k, v = (tensor.transpose(1, 2) for tensor in self.new(((2, 40, 4, 32), (2, 24, 2, 32), (2, 24, 2, 32))))
        cases = [lambda: fatune.attention(q, k, v), lambda: fatune.attention(q, k[:, :1].expand(-1, 2, -1, -1), v),
                 lambda: fatune.sdpa(q, k, v, enable_gqa=True),
                 lambda: fatune.sdpa(q.contiguous(), k.contiguous(), v[..., :16].contiguous(), is_causal=True, enable_gqa=True),
                 lambda: fatune.flash_attn_func(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal=True)]
        for call in cases:
            with by_python():
                wanted = [call() for _ in range(3)]
            with watched() as made:
                got = [call() for _ in range(3)]
            self.assertEqual(made, [True] * 3)
            for a, b in zip(got, wanted):
                self.same(a, b)

    def test_fp32_by_pytorch_s_precision(self):
        given = [tensor.float() for tensor in self.new(SHAPES)]
        with watched() as made:
            fatune.attention(*given)
            exact = fatune.attention(*given)
            rough = fatune.attention(*given, tf32=True)
            self.assertTrue(torch.equal(fatune.attention(*given, tf32=True), rough))
            self.assertFalse(torch.equal(exact, rough))
            for precision, wanted in (("high", rough), ("highest", exact), ("high", rough)):
                before = torch.get_float32_matmul_precision()
                try:
                    torch.set_float32_matmul_precision(precision)
                    self.assertTrue(torch.equal(fatune.attention(*given, tf32=None), wanted))
                finally:
                    torch.set_float32_matmul_precision(before)
        self.assertEqual(made, [False, True, False, True, False, False, False])

    def test_gradients(self):
        q, k, v = self.new(SHAPES)
        with watched() as made:
            plain = fatune.attention(q, k, v)
            fatune.attention(q, k, v)
            k.requires_grad_()
            out = fatune.attention(q, k, v)
            self.assertTrue(out.requires_grad)
            with torch.no_grad():
                self.assertFalse(fatune.attention(q, k, v).requires_grad)
            with torch.inference_mode():
                inner = fatune.attention(q, k, v)
            leaf = torch.nn.Parameter(q)
            fatune.attention(leaf.detach(), k.detach(), v)
        self.assertEqual(made, [False, True, False, True, True, True])
        self.assertTrue(inner.is_inference())
        self.same((plain, plain), (out.detach(), inner.clone()))

    def test_gradients_by_a_node(self):
        """Once there is a node of autograd, calls that want gradients go there without Python."""
        if fatune._node._operator("CPU") is None:
            self.skipTest("PyTorch has not what the node takes")
        leaves = [tensor.requires_grad_() for tensor in self.new(SHAPES)]

        def step(**options):
            out = fatune.attention(*leaves, causal=True, **options)
            return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]
        for options in ({}, {"layout": fatune._launch.O_AS_BSHD}):
            with by_python():
                wanted = step(**options)
            self.session.forget_plans()
            with watched() as made:
                got = [step(**options) for _ in range(4)]
            self.assertEqual(made, [False, False, True, True])
            self.assertEqual(len(self.session.recent), 1)
            for ours in got:
                for a, b in zip(ours, wanted):
                    self.assertTrue(torch.equal(a, b) and a.stride() == b.stride())
        with watched() as made:
            with torch.no_grad():
                self.assertFalse(fatune.attention(*leaves, causal=True, **options).requires_grad)
            _, lse = fatune.attention(*leaves, causal=True, return_lse=True, **options)
            self.assertTrue(lse.requires_grad)
            with torch.autograd.graph.save_on_cpu():
                step(**options)
            leaves[0] = torch.empty(leaves[0].numel() + 1, dtype=torch.float16)[1:].view(SHAPES[0]).requires_grad_()
            with self.assertRaisesRegex(fatune.Error, "allowed: a multiple of 16"):
                step(**options)
        self.assertEqual(made, [True, False, False, False])

    def test_whoever_sees_operators(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Subclass(torch.Tensor):
            pass

        class Functions(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        class Operators(TorchDispatchMode):
            seen = 0

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                Operators.seen += "attention" in str(function)
                return function(*args, **(kwargs or {}))

        q, k, v = self.new(SHAPES)
        wanted = [fatune.attention(q, k, v) for _ in range(2)][1]
        with watched() as made:
            fatune.attention(q, k, v)
            self.assertEqual(made, [True])
            for mode in (Functions(), Operators(), torch.device("cpu")):
                with mode:
                    self.same(fatune.attention(q, k, v), wanted)
            self.assertEqual(Operators.seen, 1)
            got = fatune.attention(q.as_subclass(Subclass), k, v)
            self.assertTrue(torch.equal(torch.Tensor(got), wanted))
            fatune.attention(torch.nn.Parameter(q, requires_grad=False), k, v)
            self.assertTrue(torch.equal(torch.func.functionalize(lambda q: fatune.attention(q, k, v))(q), wanted))
            with FakeTensorMode() as mode:
                fatune.attention(*map(mode.from_tensor, (q, k, v)))
        self.assertNotIn(True, made[1:])
        with watched() as made:
            compiled = torch.compile(lambda q, k, v: fatune.attention(q, k, v), backend="eager", fullgraph=True)
            self.assertTrue(torch.equal(compiled(q, k, v), wanted))
        self.assertEqual(made, [])
        with watched() as made:
            self.same(fatune.attention(q, k, v), wanted)
        self.assertEqual(made, [True])

    def test_what_serves_a_device_changes(self):
        given = self.new(SHAPES)
        wanted = [fatune.attention(*given) for _ in range(2)][1]
        try:
            other = fatune.emulate("a10")
            with watched() as made:
                got = [fatune.attention(*given) for _ in range(2)]
                fatune.attention(*given, session=self.session)
            self.assertEqual(made, [False, True, True])
            self.assertEqual((len(other.calls), len(other.recent)), (1, 1))
            self.close(got[1], wanted)
            fatune.emulate(None)
            with watched() as made, self.assertRaisesRegex(ValueError, "q is on cpu"):
                fatune.attention(*given)
            self.assertEqual(made, [False])
        finally:
            fatune._devices.found.clear()
            fatune._devices._emulated["cpu"] = self.session

    def test_threads(self):
        cases = []
        for shapes, options in KINDS[:4]:
            given = self.new(shapes)
            with by_python():
                cases.append((given, options, fatune.attention(*given, **options)))

        def work(number):
            for turn in range(30):
                given, options, wanted = cases[(number + turn) % len(cases)]
                self.same(fatune.attention(*given, **options), wanted)
                if number == 0 and turn % 7 == 3:
                    self.session.recent = self.session.recent[1:]
                if number == 1 and turn == 13:
                    self.session.calls, self.session.recent = {}, ()
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(work, number) for number in range(4)]:
                done.result()

    def test_memory_comes_back(self):
        q, k, v = self.new(SHAPES)
        kinds = {}, {"return_lse": True, "scale": 0.3, "window": (50, 2)}

        def run(times):
            for _ in range(times):
                for options in kinds:
                    fatune.attention(q, k, v, **options)
        run(20)
        tracemalloc.start()
        try:
            run(20)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            run(500)
            gc.collect()
            self.assertLess(tracemalloc.get_traced_memory()[0] - before, 1000 * 16)  # less than an object for each call
        finally:
            tracemalloc.stop()


if __name__ == "__main__":
    unittest.main()
