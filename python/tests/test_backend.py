"""fatune behind PyTorch's hook for implementations of flash attention, its operators on CPU tensors and an emulated GPU. As
test_torch.py."""

import importlib.util
import unittest
import warnings

from test_torch import Emulated, reference, tensors

import fatune
from fatune import _backend

HAS_HOOK = False
if importlib.util.find_spec("torch") is not None:
    import torch
    HAS_HOOK = hasattr(torch.nn.attention, "register_flash_attention_impl")


@unittest.skipUnless(HAS_HOOK, "PyTorch has no hook for flash attention, or is not installed")
class Backend(Emulated):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")  # PyTorch's own, of kernels that are replaced
        self.handle = _backend._activate("CPU")  # PyTorch has none of these operators there
        self.operator = torch.ops.aten._scaled_dot_product_flash_attention

    def tearDown(self):
        self.handle.remove()

    def test_forward_and_gradients(self):
        q, k, v, dout = tensors((2, 4, 40, 32), (2, 4, 70, 32), (2, 4, 70, 32), (2, 4, 40, 32))
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        out, lse, *_ = self.operator(*leaves, scale=0.3)
        double = [tensor.detach().double().requires_grad_() for tensor in leaves]
        s = 0.3 * double[0] @ double[1].mT
        exact = s.softmax(-1) @ double[2]
        self.close(out, exact)
        self.close(lse, s.logsumexp(-1))
        self.assertTrue(out.transpose(1, 2).is_contiguous())
        for mine, theirs in zip(torch.autograd.grad(out, leaves, dout), torch.autograd.grad(exact, double, dout.double())):
            self.close(mine, theirs, 2e-2)

    def test_dropout_is_the_forwards(self):
        q, k, v, dout = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        v.requires_grad_()
        torch.manual_seed(3)
        out = self.operator(q, k, v, 0.5, True)[0]
        torch.manual_seed(3)
        self.assertTrue(torch.equal(out, self.operator(q, k, v, 0.5, True)[0]))
        self.assertGreater((out.detach() - reference(q, k, v, causal=True)).abs().max().item(), 0.1)
        gradient, = torch.autograd.grad(out, v, dout)  # O is linear in V
        self.assertAlmostEqual((gradient.double() * v.double()).sum().item(), (out.double() * dout.double()).sum().item(),
                               delta=0.3)

    def test_it_is_registered_where_it_is_asked_for(self):
        known = torch.nn.attention.list_flash_attention_impls()
        self.assertNotIn("fatune", known)
        fatune.register_pytorch()
        self.addCleanup(torch.nn.attention._registry._FLASH_ATTENTION_IMPLS.pop, "fatune")
        self.assertEqual(sorted([*known, "fatune"]), torch.nn.attention.list_flash_attention_impls())
        torch.nn.attention.activate_flash_attention_impl("fatune")
        self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "fatune")
        torch.nn.attention.restore_flash_attention_impl()
        self.assertIsNone(torch.nn.attention.current_flash_attention_impl())

    def test_what_is_refused(self):
        q, = tensors((1, 2, 40, 8))
        with self.assertRaisesRegex(fatune.Error, "head_dim is 8"):
            self.operator(q, q, q)
        with self.assertRaisesRegex(RuntimeError, "return_debug_mask is True"):
            self.operator(q, q, q, 0.5, False, True)


if __name__ == "__main__":
    unittest.main()
