"""Calls of sdpa of a kind that was served before go the way that was found then: values and gradients beside PyTorch's in float64,
with tensors that are new each time. As test_torch.py."""

import gc
import unittest
import warnings
import weakref
from unittest import mock

from test_torch import Emulated, randn

import fatune
from fatune import _drop_in, _ways

try:
    import torch
    from torch.nn import functional
except ImportError:
    pass  # test_torch.Emulated skips then

GROUPED = (2, 4, 40, 8), (2, 2, 24, 8), (2, 2, 24, 8)


def shapes(dim, dim_v, nq=40, nk=40, heads=2):
    return (2, heads, nq, dim), (2, heads, nk, dim), (2, heads, nk, dim_v)


# name: shapes, options, shape of attn_mask, its dtype, whether it gets a gradient
KINDS = {
    "all of one shape": (shapes(8, 8), {}, None, None, False),
    "V of another width": (shapes(8, 20), {"is_causal": True}, None, None, False),
    "no whole sectors": (shapes(100, 100), {"scale": 0.3}, None, None, False),
    "V alone": (shapes(32, 12), {"is_causal": True}, None, None, False),
    "all but V": (shapes(12, 32), {}, None, None, False),
    "Q of another shape": (GROUPED, {"enable_gqa": True}, None, None, False),
    "a mask": (shapes(32, 32), {}, (2, 1, 1, 40), "bool", False),
    "a mask of all": (shapes(32, 32, 24), {"scale": 0.3}, (2, 2, 24, 40), "bool", False),
    "a bias": (shapes(32, 32), {}, (40, 40), "float16", False),
    "a learnt bias": (shapes(32, 32), {}, (1, 2, 40, 40), "float16", True),
    "a learnt bias for all heads": (shapes(32, 32, 24), {}, (24, 40), "float32", True),
    "a learnt bias of keys": (shapes(32, 32), {}, (2, 1, 1, 40), "float32", True),
    "a learnt bias, widened": (GROUPED, {"enable_gqa": True}, (4, 40, 24), "float16", True),
    "a mask, widened": (shapes(8, 8), {}, (40, 40), "bool", False),
}


class Ways(Emulated):
    def setUp(self):
        self.session.forget_plans()
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("error", fatune.FallbackWarning)
        self.addCleanup(self.caught.__exit__, None, None, None)

    def new(self, kind):
        """q, k, v, and the mask."""
        given, _, mask_shape, dtype, _ = KINDS[kind]
        tensors = [randn(*shape) for shape in given]
        mask = None if mask_shape is None else torch.randn(mask_shape)
        if dtype == "bool":
            mask = mask < 1
            mask[..., 0] = True  # each query sees a key
        return tensors, None if mask is None else mask.to(getattr(torch, dtype))

    def results(self, call, kind, tensors, mask, dout, wide):
        """O and the gradients."""
        _, options, _, _, learns_mask = KINDS[kind]
        inputs = [tensor.detach().to(torch.float64 if wide else tensor.dtype).requires_grad_() for tensor in tensors]
        if mask is not None and wide and mask.dtype != torch.bool:
            mask = mask.double()
        if learns_mask:
            mask = mask.detach().requires_grad_()
        out = call(*inputs, attn_mask=mask, **options)
        return [out, *torch.autograd.grad(out, [*inputs, mask] if learns_mask else inputs, dout.to(out.dtype))]

    def beside(self, kind):
        tensors, mask = self.new(kind)
        dout = randn(*tensors[0].shape[:-1], tensors[2].shape[-1])
        ours = self.results(fatune.sdpa, kind, tensors, mask, dout, False)
        exact = self.results(functional.scaled_dot_product_attention, kind, tensors, mask, dout, True)
        with torch.no_grad():
            plain = fatune.sdpa(*tensors, attn_mask=mask, **KINDS[kind][1])
        self.assertTrue(torch.equal(plain, ours[0]))
        self.assertEqual((plain.stride(), plain.requires_grad), (ours[0].stride(), False))
        for mine, theirs in zip(ours, exact):
            self.close(mine, theirs, 1e-2 * max(1.0, theirs.abs().max().item()))
            self.assertEqual(mine.dtype, tensors[0].dtype if mine is not ours[-1] or not KINDS[kind][4] else mask.dtype)

    def test_again(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.beside(kind)
                with mock.patch.object(_drop_in, "_served_anew", side_effect=AssertionError):
                    for _ in range(2):  # the second time by what the backward prepared
                        self.beside(kind)

    def test_gradients_come_in_any_layout(self):
        for kind in ("all of one shape", "a learnt bias", "V alone"):
            tensors, mask = self.new(kind)
            dout = randn(*tensors[0].shape[:-1], tensors[2].shape[-1])
            wanted = [self.results(fatune.sdpa, kind, tensors, mask, dout, False) for _ in range(3)][-1]
            others = [dout.transpose(1, 2).contiguous().transpose(1, 2), torch.stack((dout, dout), 4)[..., 0],
                      torch.cat((dout, dout), -1)[..., :dout.shape[-1]], torch.cat((dout[:1], dout), 0)[1:]]
            for other in others:
                for mine, same in zip(self.results(fatune.sdpa, kind, tensors, mask, other, False), wanted):
                    self.assertTrue(torch.equal(mine, same))

    def test_some_want_no_gradient(self):
        for kind in ("all of one shape", "a learnt bias", "a learnt bias, widened"):
            tensors, mask = self.new(kind)
            for _ in range(3):
                leaf = tensors[1].detach().requires_grad_()
                out = fatune.sdpa(tensors[0], leaf, tensors[2], attn_mask=mask, **KINDS[kind][1])
                one = torch.autograd.grad(out.square().sum(), leaf)[0]
                if mask is not None:
                    alone = mask.detach().requires_grad_()
                    out = fatune.sdpa(*tensors, attn_mask=alone, **KINDS[kind][1])
                    self.assertGreater(torch.autograd.grad(out.square().sum(), alone)[0].abs().max().item(), 0)
                leaves = [tensor.detach().requires_grad_() for tensor in tensors]
                out = fatune.sdpa(*leaves, attn_mask=mask, **KINDS[kind][1])
                self.assertTrue(torch.equal(one, torch.autograd.grad(out.square().sum(), leaves)[1]))

    def test_a_parameter_is_a_mask(self):
        tensors, mask = self.new("a learnt bias")
        parameter = torch.nn.Parameter(mask)
        for _ in range(3):
            parameter.grad = None
            fatune.sdpa(*tensors, attn_mask=parameter).sum().backward()
            first = parameter.grad
        exact = mask.double().requires_grad_()
        functional.scaled_dot_product_attention(*(tensor.double() for tensor in tensors), attn_mask=exact).sum().backward()
        self.close(first, exact.grad, 1e-2)

    def test_what_was_changed_is_an_error(self):
        tensors, mask = self.new("a learnt bias, widened")
        options = KINDS["a learnt bias, widened"][1]
        mask.requires_grad_()
        for _ in range(3):
            out = fatune.sdpa(*tensors, attn_mask=mask, **options)
            with torch.no_grad():
                mask.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                out.sum().backward()
            out = fatune.sdpa(*tensors, attn_mask=mask, **options)
            with self.assertRaisesRegex(RuntimeError, "inplace|in-place"):
                out.mul_(2).sum().backward()

    def test_second_derivatives(self):
        for _ in range(3):
            q, k, v = (tensor.requires_grad_() for tensor in self.new("all of one shape")[0])
            first = torch.autograd.grad(fatune.sdpa(q, k, v).square().sum(), q, create_graph=True)[0]
            with self.assertRaisesRegex(RuntimeError, "allowed: first derivatives"):
                first.sum().backward()

    def test_unaligned(self):
        for kind in ("all of one shape", "all but V", "a mask"):
            tensors, mask = self.new(kind)
            options = KINDS[kind][1]
            wanted = [fatune.sdpa(*tensors, attn_mask=mask, **options) for _ in range(2)][-1]
            for n in range(3):
                room = torch.empty(tensors[n].numel() + 4, dtype=torch.float16)
                odd = [*tensors]
                odd[n] = room[4:].view(tensors[n].shape).copy_(tensors[n])  # 8 bytes past a multiple of 16
                self.assertTrue(torch.equal(fatune.sdpa(*odd, attn_mask=mask, **options), wanted))

    def test_whoever_sees_operators(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []

        class Operators(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(str(function))
                return function(*args, **(kwargs or {}))

        for kind in ("all of one shape", "a mask", "a bias"):
            tensors, mask = self.new(kind)
            options = {**KINDS[kind][1], "attn_mask": mask}
            wanted = [fatune.sdpa(*tensors, **options) for _ in range(2)][-1]
            seen.clear()
            with Operators():
                self.assertTrue(torch.equal(fatune.sdpa(*tensors, **options), wanted))
            self.assertEqual(sum("fatune.attention" in name for name in seen), 1)
            with FakeTensorMode() as mode:
                fakes = [None if tensor is None else mode.from_tensor(tensor) for tensor in (*tensors, mask)]
                self.assertEqual(fatune.sdpa(*fakes[:3], attn_mask=fakes[3]).shape, wanted.shape)
            compiled = torch.compile(lambda *all: fatune.sdpa(*all[:3], attn_mask=all[3]), fullgraph=True, backend="eager")
            self.assertTrue(torch.equal(compiled(*tensors, mask), wanted))
            with torch.device("cpu"):
                self.assertTrue(torch.equal(fatune.sdpa(*tensors, **options), wanted))
            with torch.inference_mode():
                inner = fatune.sdpa(*tensors, **options)
            self.assertTrue(inner.is_inference() and torch.equal(inner.clone(), wanted))

    def test_zeros_of_inference_serve_gradients(self):
        """What is first called without gradients for good is called with them later."""
        tensors, _ = self.new("all of one shape")
        with torch.inference_mode():
            fatune.sdpa(*tensors)
        for _ in range(2):
            self.beside("all of one shape")

    def test_checkpoint(self):
        from torch.utils.checkpoint import checkpoint
        for kind in ("all of one shape", "a learnt bias"):
            tensors, mask = self.new(kind)
            leaves = [tensor.requires_grad_() for tensor in (*tensors, mask) if tensor is not None]
            wanted = torch.autograd.grad(fatune.sdpa(*leaves).square().sum(), leaves)
            self.session.forget_plans()
            for _ in range(3):
                out = checkpoint(lambda *all: fatune.sdpa(*all), *leaves, use_reentrant=False)
                for mine, same in zip(torch.autograd.grad(out.square().sum(), leaves), wanted):
                    self.assertTrue(torch.equal(mine, same))

    def test_dropout(self):
        for kind in ("all of one shape", "a mask"):
            tensors, mask = self.new(kind)
            outs = []
            for turn in range(4):
                torch.manual_seed(turn // 2)
                leaves = [tensor.detach().requires_grad_() for tensor in tensors]
                out = fatune.sdpa(*leaves, attn_mask=mask, dropout_p=0.5)
                outs.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
            for first, second in ((0, 1), (2, 3)):
                for a, b in zip(outs[first], outs[second]):
                    self.assertTrue(torch.equal(a, b))
            self.assertFalse(torch.equal(outs[0][0], outs[2][0]))

    def test_no_tensor_is_held(self):
        for kind in ("all of one shape", "a mask", "a learnt bias", "a learnt bias, widened"):
            gone = []
            for _ in range(3):
                tensors, mask = self.new(kind)
                leaves = [tensor.requires_grad_() for tensor in tensors]
                if KINDS[kind][4]:
                    mask.requires_grad_()
                out = fatune.sdpa(*leaves, attn_mask=mask, **KINDS[kind][1])
                out.square().sum().backward()
                with torch.no_grad():
                    plain = fatune.sdpa(*leaves, attn_mask=mask, **KINDS[kind][1])
                gone += [weakref.ref(tensor) for tensor in (*tensors, mask, out, plain, leaves[0].grad) if tensor is not None]
            del tensors, leaves, mask, out, plain
            gc.collect()
            self.assertEqual([reference() for reference in gone], [None] * len(gone), kind)

    def test_widening(self):
        """Which tensors become parts of one; zeros behind rows wherever they come from."""
        turned = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (randn(*shape) for shape in shapes(8, 8))]
        cases = [([randn(*shape) for shape in given], groups) for given, groups in (
            (shapes(8, 8), [[0, 1, 2]]), (GROUPED, [[0], [1, 2]]), (shapes(100, 100), [[0], [1], [2]]), (shapes(32, 12), [[2]]),
            (shapes(8, 20), [[0, 1], [2]]), (shapes(32, 32), []))]
        cases += [(turned, [[0, 1, 2]]), ([turned[0], *cases[0][0][1:]], [[0], [1, 2]]),
                  ([randn(2, 2, 40, 12)[..., :8] for _ in range(3)], [[0], [1], [2]])]
        for most in (_ways._ZEROS_MOST, 0):
            for tensors, groups in cases:
                with mock.patch.object(_ways, "_ZEROS_MOST", most):
                    widening = _ways.Widening(*tensors)
                self.assertEqual(widening.members, groups)
                for before, after in zip(tensors, widening(*tensors)):
                    dim = before.shape[-1]
                    self.assertTrue(torch.equal(after[..., :dim], before) and not after[..., dim:].any())
                    self.assertEqual(after.shape[-1], max(16, -(-dim // 8) * 8))
                    self.assertEqual(after is before, after.shape == before.shape)
        for tensors, groups in (cases[0], cases[-1]):
            widened = _ways.Widening(*tensors)(*tensors)
            self.assertEqual(len({tensor.untyped_storage().data_ptr() for tensor in widened}), len(groups))
        for made in _ways._kept.values():
            self.assertFalse(any(zeros.any() for zeros in made))

    def test_tensors_as_models_have_them(self):
        """[batch, seq, heads, dim] in memory, and parts of one tensor of q, k and v."""
        for dim in (8, 12):
            for _ in range(3):
                whole = randn(2, 40, 3, 4, dim)
                exact = whole.double().requires_grad_()
                whole.requires_grad_()
                dout = randn(2, 40, 4, dim)
                results = []
                for call, given in ((fatune.sdpa, whole), (functional.scaled_dot_product_attention, exact)):
                    out = call(*given.permute(2, 0, 3, 1, 4).unbind(0), is_causal=True).transpose(1, 2)
                    results.append((out, torch.autograd.grad(out, given, dout.to(out.dtype))[0]))
                for mine, theirs in zip(*results):
                    self.close(mine, theirs, 2e-2)


if __name__ == "__main__":
    unittest.main()
