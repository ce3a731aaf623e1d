"""With PyTorch itself, its CPU tensors on an emulated GPU: values, gradients, operators, torch.compile.
Skipped where PyTorch or a C++ compiler is missing. One case of a kernel takes about a second, mostly its compile."""

import importlib.util
import math
import shutil
import unittest
import warnings
from unittest import mock

import support

import fatune

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_CXX = any(map(shutil.which, ("g++", "clang++", "c++")))
if HAS_TORCH:
    import torch
    from torch.nn import functional


def randn(*shape, dtype=None, **more):
    return torch.randn(*shape, **more).to(dtype or torch.float16)


def tensors(*shapes, seed=1, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return [randn(*shape, generator=generator).requires_grad_(grad) for shape in shapes]


def reference(q, k, v, causal=False, bias=None):
    """softmax(Q K^T / sqrt(d) + bias) V in float64, causal as SDPA's."""
    q, k, v = (tensor.detach().double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    s = q @ k.mT / q.shape[-1]**0.5
    if bias is not None:
        s = s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias.double()
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    return torch.nan_to_num(s.softmax(-1)) @ v


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
@unittest.skipUnless(support.BUILD.exists(), "there is no build")
@unittest.skipUnless(HAS_CXX, "there is no C++ compiler for the emulator")
class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = fatune.emulate("a100")

    @classmethod
    def tearDownClass(cls):
        fatune.emulate(None)

    def close(self, a, b, tolerance=4e-3):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a.detach().double() - b.detach().double()).abs().max().item(), tolerance)


class Float32(Emulated):
    def test_values_and_gradients_are_as_exact_as_pytorch_s(self):
        q, k, v = (tensor.float().requires_grad_() for tensor in tensors((1, 2, 70, 40), (1, 1, 90, 40), (1, 1, 90, 40)))
        q.data.add_(2.0**-16)  # bits that bfloat16 lacks
        dout = torch.randn(1, 2, 70, 40)

        def results(attend, *inputs):
            out = attend(*inputs)
            return [out, *torch.autograd.grad(out, inputs, dout.to(out.dtype))]

        def sdpa(*inputs):
            return torch.nn.functional.scaled_dot_product_attention(*inputs, enable_gqa=True)

        exact = results(sdpa, *(tensor.detach().double().requires_grad_() for tensor in (q, k, v)))
        theirs = results(sdpa, q, k, v)
        for tf32, bound in ((False, 2), (True, 10000)):
            ours = results(lambda *inputs: fatune.attention(*inputs, tf32=tf32), q, k, v)
            for a, b, c in zip(ours, theirs, exact):
                self.assertEqual(a.dtype, torch.float32)
                self.assertLess((a - c).norm(), bound * (b - c).norm())


class Attention(Emulated):
    def test_sinks(self):
        q, k, v = tensors((1, 4, 40, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        sinks = torch.tensor([0.5, -1.0, 3.0, -torch.inf], requires_grad=True)
        out, lse = fatune.attention(q, k, v, causal=True, sinks=sinks, return_lse=True)
        copies = [tensor.detach().double().requires_grad_() for tensor in (q, k, v, sinks)]
        of_k, of_v = (tensor.repeat_interleave(2, 1) for tensor in copies[1:3])
        s = (copies[0] @ of_k.mT / 32**0.5).masked_fill(~torch.ones(40, 24, dtype=torch.bool).tril(-16), -torch.inf)
        s = torch.cat([s, copies[3][None, :, None, None].expand(1, 4, 40, 1)], -1)
        expected = torch.nan_to_num(s.softmax(-1))[..., :-1] @ of_v
        self.close(out, expected)
        self.close(lse[:, :3], s.logsumexp(-1)[:, :3])
        dout = randn(*out.shape)
        ours = torch.autograd.grad(out, (q, k, v, sinks), dout)
        theirs = torch.autograd.grad(expected[:, :3], copies, dout.double()[:, :3])
        self.close(ours[3][:3], theirs[3][:3], 2e-2)
        self.assertEqual(ours[3][3].item(), 0)
        self.close(ours[0][:, :3], theirs[0][:, :3], 2e-2)
        with self.assertRaisesRegex(ValueError, r"sinks is \(3,\) torch.float32 on cpu; allowed: contiguous float32 \(4,\)"):
            fatune.attention(q, k, v, sinks=sinks[:3])

    def test_masks_that_a_function_makes(self):

        from fatune import _launch, score
        q, k, v = tensors((2, 4, 150, 32), (2, 2, 150, 32), (2, 2, 150, 32), grad=True)
        document = (torch.arange(150, dtype=torch.int32) // 70).expand(2, 150)

        def seen(b, h, i, j, document):
            return (document[b, i] == document[b, j]) & (j <= i) | (j < h)
        options = {"visible": seen, "captured": {"document": document}}
        keep = (torch.arange(150)[:, None] // 70 == torch.arange(150) // 70).tril()
        keep = keep | (torch.arange(150) < torch.arange(4)[:, None, None])
        double = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
        expected = functional.scaled_dot_product_attention(*double, attn_mask=keep, enable_gqa=True)
        theirs = torch.autograd.grad(expected.square().sum(), double)
        mask = fatune.VisibleMask(q, k, v, rows=64, cols=64, **options)
        mask.update({"document": torch.zeros_like(document)})
        mask.update(options["captured"])
        text = {"score": score.trace(None, seen, options["captured"]), "captured": options["captured"]}
        compiled = torch.compile(lambda *all: fatune.attention(*all, **text), fullgraph=True, backend="aot_eager")
        with mock.patch.object(_launch, "MASK_PAYS_FROM", 1):
            for call in (lambda *all: fatune.attention(*all, mask=mask, **options),
                         lambda *all: fatune.attention(*all, **options), compiled,
                         lambda *all: fatune.attention(*all, mask=False, **options)):
                out = call(q, k, v)
                self.close(out, expected)
                for mine, exact in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), theirs):
                    self.close(mine, exact, 2e-2)
        with self.assertRaisesRegex(fatune.Error, "arguments.mask is made by score"):
            fatune.attention(q, k, v, mask=mask)

    def test_pytorch_s_functions_of_symbols(self):
        q, k, v = tensors((1, 2, 60, 32), (1, 2, 60, 32), (1, 2, 60, 32))
        i, j = torch.arange(60)[:, None], torch.arange(60)

        def bent(s, b, h, i, j):
            return torch.where(torch.logical_and(i >= j, i - j < 9), torch.tanh(s) + torch.exp(-torch.abs(s)), -math.inf)
        s = q.double() @ k.double().mT / 32**0.5
        self.close(fatune.attention(q, k, v, score=bent), bent(s, 0, 0, i, j).softmax(-1) @ v.double())
        slope = torch.ones(2)
        for text, wrong in (("calls torch.clamp; allowed: where, ", lambda s, b, h, i, j: torch.clamp(s, max=3)),
                            ("computes with a tensor; allowed: captured", lambda s, b, h, i, j: s * slope[h]),
                            ("computes with Tensor", lambda s, b, h, i, j: s * slope)):
            with self.assertRaisesRegex(TypeError, text):
                fatune.attention(q, k, v, score=wrong)
        with self.assertRaisesRegex(fatune.Error, "data of 'cap' is .*; allowed: NULL, score softcap.lua has it as a scalar"):
            fatune.attention(q, k, v, score="softcap", captured={"cap": torch.ones(1)})
        with self.assertRaisesRegex(fatune.Error, "extent 2 of 'slope' is 3; allowed: 0 or 1"):
            fatune.attention(q, k, v, score="alibi", captured={"slope": torch.ones(2, 3)})
        with self.assertRaisesRegex(TypeError, "captured is list"):
            fatune.attention(q, k, v, score="alibi", captured=[1])

    def test_rectangles(self):
        q, k, v = tensors((2, 2, 100, 32), (2, 1, 130, 32), (2, 1, 130, 32), grad=True)
        rectangles = [(0, 40, 0, 50, False), (30, 100, 60, 130, True), (50, 100, 0, 7, False)]
        i, j = torch.arange(100)[:, None], torch.arange(130)
        keep = torch.zeros(100, 130, dtype=torch.bool)
        for first_query, query_end, first_key, key_end, causal in rectangles:
            keep |= ((i >= first_query) & (i < query_end) & (j >= first_key)
                     & (j < key_end - (query_end - 1 - i if causal else torch.zeros_like(i))))
        double = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
        expected = functional.scaled_dot_product_attention(*double, attn_mask=keep, enable_gqa=True)
        theirs = torch.autograd.grad(expected.square().sum(), double)
        mask = fatune.RectangleMask(q, k, v, rectangles, rows=32, cols=64)
        out = fatune.attention(q, k, v, mask=mask)
        self.close(out, expected)
        for mine, exact in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), theirs):
            self.close(mine, exact, 2e-2)
        with self.assertRaisesRegex(fatune.Error, r"rectangles\[1\] has keys from 0 to 131; allowed"):
            fatune.RectangleMask(q, k, v, [(0, 1, 0, 1, False), (0, 100, 0, 131, False)])

    def test_forward(self):
        q, k, v = tensors((1, 4, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        out = fatune.attention(q, k, v, causal="top-left")
        self.close(out, reference(q, k, v, causal=True))
        again = fatune.attention(q, k, v, causal="top-left")  # by what was kept of the first call
        self.assertTrue(torch.equal(out, again))

    def test_gradients_and_their_gradients(self):
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        fatune.attention(q, k, v).square().sum().backward()
        ours = [tensor.grad for tensor in (q, k, v)]
        double = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
        functional.scaled_dot_product_attention(*double).square().sum().backward()
        for mine, exact in zip(ours, double):
            self.close(mine, exact.grad, 2e-2)
        first = torch.autograd.grad(fatune.attention(q, k, v).sum(), q, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "allowed: first derivatives|is not implemented"):
            first.sum().backward()

    def test_dropout_follows_the_generator(self):
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))

        def run(seed):
            torch.manual_seed(seed)
            return [fatune.attention(q, k, v, dropout=0.5) for _ in range(2)]
        (a, b), (c, d) = run(1), run(1)
        self.assertTrue(torch.equal(a, c) and torch.equal(b, d))
        self.assertFalse(torch.equal(a, b))

    def test_checkpoint_draws_the_same_dropout_again(self):
        from torch.utils.checkpoint import checkpoint
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        torch.manual_seed(3)
        plain = torch.autograd.grad(fatune.attention(q, k, v, dropout=0.5).sum(), v)[0]
        torch.manual_seed(3)
        again = checkpoint(lambda *all: fatune.attention(*all, dropout=0.5), q, k, v, use_reentrant=False)
        self.assertTrue(torch.equal(plain, torch.autograd.grad(again.sum(), v)[0]))

    def test_what_is_no_tensor_is_named(self):
        q = tensors((1, 2, 40, 32))[0]
        for wrong, word in ((q.numpy(), "q is ndarray"), ([1.0], "q is list"), (None, "q is NoneType")):
            with self.assertRaisesRegex(TypeError, f"{word}; allowed: torch.Tensor"):
                fatune.attention(wrong, q, q)
            with self.assertRaises(TypeError):
                fatune.sdpa(wrong, q, q)
        with self.assertRaisesRegex(ValueError, "k has 0 keys; allowed: at least one"):
            fatune.attention(q, q[:, :, :0], q[:, :, :0])
        with self.assertRaisesRegex(ValueError, "q has 3 dimensions; allowed: 4"):
            fatune.flash_attn_func(q[0], q, q)

    def test_wrong_tensors_are_named(self):
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        meta = q.to("meta")
        wrong = [(ValueError, r"k is on meta; allowed: cpu", (q, meta, v)),
                 (TypeError, "v is torch.bfloat16; allowed: float16, bfloat16, float32 or float8_e4m3fn, the same", (q, k, v.bfloat16())),
                 (ValueError, "stride 40 in its last dimension; allowed: 1", (q.mT.contiguous().mT, k, v))]
        for kind, message, given in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                fatune.attention(*given)
        fatune.emulate(None)
        try:
            with self.assertRaisesRegex(ValueError, "q is on cpu; allowed: a CUDA device"):
                fatune.attention(q, k, v)
        finally:
            type(self).session = fatune.emulate("a100")


class Operators(Emulated):
    def test_opcheck(self):
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        options = ([], 0.2, 0.0, 0, 0, "", "bhsd", False, 0, 0, "", [], [], [], False)
        for sinks in (None, torch.tensor([0.5, -1.0], requires_grad=True)):
            torch.library.opcheck(torch.ops.fatune.attention, (q, k, v, None, None, sinks, [], *options),
                                  test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"),
                                  rtol=1e-2, atol=1e-2)

    def test_sinks_in_a_graph(self):
        from fatune import _transformers
        q, k, v = tensors((1, 4, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        sinks = torch.tensor([0.5, -1.0, 3.0, 0.0], requires_grad=True)
        mask = torch.ones(40, 40, dtype=torch.bool).tril()[None, None]

        def call(*all):
            return fatune.attention(*all[:3], causal=True, sinks=all[3])

        def call_of_transformers(*all):
            return _transformers.attention_forward(None, *all[:3], mask, s_aux=all[3])[0].transpose(1, 2)
        results = []
        for made in (call, torch.compile(call, fullgraph=True, backend="aot_eager"), call_of_transformers):
            out = made(q, k, v, sinks)
            results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v, sinks))))
        for eager, compiled, of_transformers in zip(*results):
            self.assertTrue(torch.equal(eager, compiled))
            self.close(of_transformers, eager, 2e-2)

    def test_compile_without_breaks(self):
        def step(q, k, v):
            out, lse = fatune.attention(2 * q, k, v, causal=True, window=(20, 0), return_lse=True)
            return (out.square().sum() + lse.sum()).float()
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        mine, theirs = (torch.autograd.grad(call(q, k, v), (q, k, v)) for call in (compiled, step))
        for a, b in zip(mine, theirs):
            self.assertTrue(torch.equal(a, b))

    def test_lengths_compile_once(self):
        for call in (lambda *all: fatune.attention(*all, causal=True), lambda *all: fatune.sdpa(*all, is_causal=True)):
            compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
            for n in range(20):
                with mock.patch.object(torch._dynamo.config, "error_on_recompile", n > 0):
                    q, k, v = tensors(*[(1, 2, 17 + n, 32)] * 3, grad=True)
                    self.close(compiled(q, k, v), call(q, k, v), 1e-6)

    def test_compiled_dropout_draws_anew(self):
        compiled = torch.compile(lambda *all: fatune.attention(*all, dropout=0.5), fullgraph=True, backend="aot_eager")
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        self.assertFalse(torch.equal(compiled(q, k, v), compiled(q, k, v)))

    def test_masks_and_scores_in_a_graph(self):
        mask = fatune.BlockMask(torch.tensor([[True, False], [True, True]]), 32, 32, 40, 40)
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        slope = torch.tensor([0.5, 0.25])
        for options in ({"mask": mask}, {"score": "alibi", "captured": {"slope": slope}},
                        {"score": "softcap", "captured": {"cap": 2.0}}):
            def call(*all, options=options):
                return fatune.attention(*all, **options)
            results = []
            for made in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
                out = made(q, k, v)
                results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
            for a, b in zip(*results):
                self.assertTrue(torch.equal(a, b))

    def test_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            q = torch.empty(2, 100, 8, 64, dtype=torch.bfloat16)
            v = torch.empty(2, 100, 2, 32, dtype=torch.bfloat16)
            out, lse = fatune.attention(q, q[:, :, :2], v, layout="bshd", return_lse=True)
            self.assertEqual((out.shape, lse.shape), ((2, 100, 8, 32), (2, 8, 100)))
            with (self.assertLogs("torch._subclasses.fake_tensor"),
                  self.assertRaisesRegex(TypeError, "k is torch.float16")):
                fatune.attention(q, q.half(), v, layout="bshd")


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
