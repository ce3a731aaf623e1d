"""Attention as a node of PyTorch's autograd (python/node.c): the same bits as by the function in Python, and what is around it.
Skipped where PyTorch, a C++ compiler or the compiled module is missing."""

import concurrent.futures
import unittest
import warnings
from unittest import mock

from test_torch import HAS_TORCH, Emulated, tensors

import fatune
from fatune import _node, _prepared

if HAS_TORCH:
    import torch

    def node_is_there():
        return _prepared.binding() and hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and _node._operator("CPU")
else:
    def node_is_there():
        return False


class Node(Emulated):
    def setUp(self):
        if not node_is_there():
            self.skipTest("the build or PyTorch has not what the node takes")
        self.session.calls = {}

    def gradients(self, given, dout=None, **options):
        """[O, its gradients], and whether a node made them."""
        out = fatune.attention(*given, **options)
        made = torch.autograd.grad(out, given, torch.ones_like(out) if dout is None else dout)
        return [out.detach(), *made], "Overrideable" in type(out.grad_fn).__name__

    def same(self, ours, theirs):
        for a, b in zip(ours, theirs):
            self.assertTrue(torch.equal(a, b))
            self.assertEqual(a.stride(), b.stride())

    def test_the_same_bits(self):
        q, k, v = tensors((2, 4, 40, 32), (2, 2, 24, 32), (2, 2, 24, 32), grad=True)
        long = tensors((2, 40, 4, 32), (2, 24, 2, 32), (1, 24, 2, 32), grad=True)
        cases = [((q, k, v), {"causal": True}),
                 (tuple(tensor.transpose(1, 2) for tensor in long[:2]) + (long[2].transpose(1, 2).expand(2, -1, -1, -1),), {}),
                 (long[:2] + [long[2].expand(2, -1, -1, -1)], {"layout": "bshd", "window": (5, 3), "deterministic": True})]
        for given, options in cases:
            given = [tensor.detach().requires_grad_() for tensor in given]
            dout = tensors(fatune.attention(*given, **options).shape, seed=2)[0]
            first, by_node = self.gradients(given, dout, **options)
            self.assertFalse(by_node)
            again, by_node = self.gradients(given, dout, **options)
            self.assertTrue(by_node)
            self.same(again, first)
            wide = torch.stack((dout, dout), 4)[..., 0]  # cannot be read where it lies
            turned = dout.transpose(0, 1).contiguous().transpose(0, 1)
            part = torch.cat((dout, dout), -1)[..., 32:]
            odd = torch.cat((dout.flatten()[:4], dout.flatten()))[4:].view(dout.shape)  # 8 bytes past a multiple of 16
            for other in (wide, turned, part, odd):
                made, by_node = self.gradients(given, other, **options)
                self.assertTrue(by_node)
                self.same(made, first)
            one = dout[:1, :1].expand_as(dout)
            self.same(self.gradients(given, one, **options)[0], self.gradients(given, one.contiguous(), **options)[0])
            fresh = [tensor.detach().neg().requires_grad_() for tensor in given]
            by_node = self.gradients(fresh, dout, **options)[0]
            self.session.calls = {}
            self.same(by_node, self.gradients(fresh, dout, **options)[0])

    def test_some_want_no_gradient(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        wanted = self.gradients((q, k, v))[0]
        out = fatune.attention(q.detach(), k, v.detach())
        self.assertIn("Overrideable", type(out.grad_fn).__name__)
        out.sum().backward()
        self.assertTrue(torch.equal(k.grad, wanted[2]))

    def test_what_does_not_go_by_the_node(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        self.gradients((q, k, v))
        out, lse = fatune.attention(q, k, v, return_lse=True)
        for result in (out, fatune.attention(q, k, v, dropout=0.5), fatune.attention(q, k, v, dropout=0.5)):
            self.assertIn("Attention", type(result.grad_fn).__name__)
            torch.autograd.grad(result.sum(), q, retain_graph=True)
        self.assertGreater(torch.autograd.grad(lse.sum(), q)[0].abs().max().item(), 0)

    def test_checkpoint_and_hooks(self):
        from torch.utils.checkpoint import checkpoint
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)

        def two_layers():
            x = checkpoint(fatune.attention, q, k, v, use_reentrant=False)
            return checkpoint(fatune.attention, x, k, v, use_reentrant=False)

        wanted = torch.autograd.grad(fatune.attention(fatune.attention(q, k, v), k, v).sum(), (q, k, v))
        self.session.calls = {}
        for _ in range(3):  # the node comes up between the backwards of the first
            self.same(torch.autograd.grad(two_layers().sum(), (q, k, v)), wanted)
        with torch.autograd.graph.save_on_cpu():
            out = fatune.attention(fatune.attention(q, k, v), k, v)
        self.same(torch.autograd.grad(out.sum(), (q, k, v)), wanted)

    def test_it_outlives_what_is_kept(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        wanted = self.gradients((q, k, v))[0]
        out = fatune.attention(q, k, v)
        self.session.calls = {}
        for _ in range(2):
            self.same(torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True), wanted[1:])

    def test_threads(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        wanted = self.gradients((q, k, v))[0]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for ours, by_node in pool.map(lambda _: self.gradients((q, k, v)), range(16)):
                self.assertTrue(by_node)
                self.same(ours, wanted)

    def test_tensors_without_the_exchange_api(self):
        """As before PyTorch 2.10: calls are prepared by ctypes, and no node is made of them."""
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        wanted = self.gradients((q, k, v))[0]
        with mock.patch.object(fatune._attention, "exchange_of", return_value=None):
            type(self).session = fatune.emulate("a100")  # another one: the former knows how to read tensors
            for _ in range(3):
                made, by_node = self.gradients((q, k, v))
                self.assertFalse(by_node)
                self.same(made, wanted)
        type(self).session = fatune.emulate("a100")

    def test_errors(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        self.gradients((q, k, v))
        operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
        for token in (None, torch.zeros(2, dtype=torch.int64), torch.zeros(3)):
            with self.assertRaisesRegex(RuntimeError, "no token of fatune.attention"):
                operator(q, k, v, token)
        gone = torch.tensor([*next(iter(self.session.calls.values())).node.pair.token()])
        gone[1] += 1000
        with self.assertRaisesRegex(RuntimeError, "stands for is gone"):
            operator(q, k, v, gone)
        odd = torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape).requires_grad_()
        with self.assertRaisesRegex(fatune.Error, "16"):
            fatune.attention(odd, k, v)
        out = fatune.attention(q, k, v)
        with torch.no_grad():
            k.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()

    def test_second_derivatives(self):
        q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
        self.gradients((q, k, v))
        with self.assertWarnsRegex(UserWarning, "under sdpa_kernel"):
            first = torch.autograd.grad(fatune.attention(q, k, v).sum(), q, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "is not implemented"):
            first.sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fatune.attention(q, k, v).sum().backward(retain_graph=True)

    def test_second_derivatives_by_name(self):
        """Of what no node makes: whoever asks for the derivative by q is told, too, and not that q was not used."""
        for options in ({"dropout": 0.5}, {"score": "softcap", "captured": {"cap": 3.0}}):
            q, k, v = tensors((1, 2, 24, 32), (1, 2, 24, 32), (1, 2, 24, 32), grad=True)
            for _ in range(2):
                first = torch.autograd.grad(fatune.attention(q, k, v, **options).sum(), (q, k, v), create_graph=True)
                for gradient in first:
                    with self.assertRaisesRegex(RuntimeError, "allowed: first derivatives"):
                        torch.autograd.grad(gradient.sum(), q, retain_graph=True, allow_unused=True)


if __name__ == "__main__":
    unittest.main()
