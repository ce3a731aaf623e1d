"""sdpa and flash_attn_func beside PyTorch: values, gradients, fallbacks with their reasons. As test_torch.py."""

import re
import unittest
import warnings
from unittest import mock

from test_recent import by_python
from test_torch import Emulated, reference, tensors

import fatune
from fatune import _attention, _drop_in, _ways

try:
    import torch
    from torch.nn import functional
except ImportError:
    pass  # test_torch.Emulated skips then


class Sdpa(Emulated):
    def setUp(self):
        _drop_in._warned.clear()
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("error", fatune.FallbackWarning)
        self.addCleanup(self.caught.__exit__, None, None, None)

    def beside(self, q, k, v, **options):
        """O and the gradients, fatune's and PyTorch's in float64."""
        results = []
        for call, dtype in ((fatune.sdpa, q.dtype), (functional.scaled_dot_product_attention, torch.float64)):
            inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in (q, k, v)]
            given = dict(options)
            mask = given.get("attn_mask")
            if mask is not None and mask.dtype != torch.bool and dtype == torch.float64:
                given["attn_mask"] = mask.double()
            out = call(*inputs, **given)
            results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
        for ours, exact in zip(*results):
            self.close(ours, exact, 1e-2 * max(1.0, exact.abs().max().item()))
        return results[0][0]

    def test_masks(self):
        q, k, v = tensors((2, 4, 40, 32), (2, 4, 40, 32), (2, 4, 40, 32))
        padding = torch.ones(2, 1, 1, 40, dtype=torch.bool)
        padding[1, ..., 30:] = False
        self.beside(q, k, v, attn_mask=padding)
        generator = torch.Generator().manual_seed(5)
        self.beside(q, k, v, attn_mask=torch.randn(4, 40, 40, generator=generator).half())
        self.beside(q, k, v, attn_mask=torch.randn(40, 40, generator=generator), scale=0.3)

    def test_causal_grouped_and_three_dimensions(self):
        q, k, v = tensors((1, 4, 24, 32), (1, 2, 40, 32), (1, 2, 40, 16))
        out = self.beside(q, k, v, is_causal=True, enable_gqa=True)
        self.assertTrue(out.transpose(1, 2).is_contiguous())
        q, k, v = tensors((2, 40, 32), (2, 40, 32), (2, 40, 32))
        out = fatune.sdpa(q.mT.contiguous().mT, k, v)  # what cannot be read where it lies is copied
        self.close(out, reference(q[:, None], k[:, None], v[:, None])[:, 0])

    def test_autocast(self):
        q, k, v = (tensor.float() for tensor in tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32)))
        for enabled in (True, True, True, False, False, False, True):  # what was served before is not served as it was then
            with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
                out = fatune.sdpa(q, k, v)
                mixed = fatune.sdpa(q.half(), k, v) if enabled else out
            self.assertEqual((out.dtype, mixed.dtype), (torch.float16 if enabled else torch.float32,) * 2)
            self.close(out, reference(q, k, v))
            self.close(mixed, reference(q, k, v))

    def test_head_dims_that_kernels_have_not(self):
        generator = torch.Generator().manual_seed(7)
        mask = torch.rand(2, 1, 40, 40, generator=generator) < 0.5
        mask[..., 0] = True
        for dim, dim_v, options in ((8, 8, {"attn_mask": mask}), (8, 20, {}), (100, 3, {"is_causal": True})):
            q, k, v = tensors((2, 4, 40, dim), (2, 2, 40, dim), (2, 2, 40, dim_v), seed=dim)
            for given in ({}, {"scale": 0.3}):
                for _ in range(2):  # the second time not by the short way
                    out = self.beside(q, k, v, enable_gqa=True, **given, **options)
                self.assertEqual(out.shape, (2, 4, 40, dim_v))
        torch.manual_seed(3)
        q, k = (tensor.requires_grad_() for tensor in tensors((1, 2, 40, 12), (1, 2, 40, 12)))
        out = fatune.sdpa(q, k, torch.eye(40)[:, :36].expand(1, 2, -1, -1).half(), dropout_p=0.5)
        self.assertEqual(out.shape, (1, 2, 40, 36))
        self.assertLess(abs((out == 0).double().mean().item() - 0.5), 0.1)
        self.assertGreater(torch.autograd.grad(out.square().sum(), q)[0].abs().max().item(), 0)

    def test_broadcast(self):
        shapes = {"query of all batch entries": ((4, 24, 32), (2, 4, 40, 32), (2, 4, 40, 32)),
                  "one head": ((2, 4, 24, 32), (1, 1, 40, 32), (2, 4, 40, 32)),
                  "batch, three dimensions": ((2, 24, 32), (1, 40, 32), (1, 40, 32))}
        for name, given in shapes.items():
            with self.subTest(name):
                for _ in range(2):
                    self.beside(*tensors(*given), is_causal=True)
        self.beside(*tensors((4, 24, 32), (2, 2, 40, 32), (2, 2, 40, 32)), enable_gqa=True)

    def test_a_row_that_sees_nothing_is_zero(self):
        q, k, v = tensors((1, 1, 40, 32), (1, 1, 40, 32), (1, 1, 40, 32))
        mask = torch.ones(40, 40, dtype=torch.bool)
        mask[7] = False
        self.assertEqual(fatune.sdpa(q, k, v, attn_mask=mask)[0, 0, 7].abs().max().item(), 0)

    def test_fallbacks_say_why_and_are_right(self):
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        wide = torch.zeros(1, 2, 40, 264).half()
        bias = torch.zeros(40, 40, dtype=torch.float16)
        cases = [("query is torch.float64; fatune serves", (q.double(), k.double(), v.double()), {}),
                 ("the head dim of query is 264; fatune serves 1 to 256", (wide, wide, v), {}),
                 ("query, key, value have 5, 5, 5 dimensions", (q[None], k[None], v[None]), {}),
                 ("scale is -1.0", (q, k, v), {"scale": -1.0})]
        for reason, given, options in cases:
            with self.subTest(reason), self.assertWarnsRegex(fatune.FallbackWarning, reason):
                out = fatune.sdpa(*given, **options)
            self.assertTrue(torch.equal(out, functional.scaled_dot_product_attention(*given, **options)))
            fatune.sdpa(*given, **options)  # said once
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(RuntimeError, "expand|size"):
                fatune.sdpa(q, k, v, attn_mask=torch.zeros(3, 40, dtype=torch.bool))
            both = {"attn_mask": bias, "is_causal": True}
            try:  # some of PyTorch's backends refuse both together, others take them
                expected = functional.scaled_dot_product_attention(q, k, v, **both)
            except RuntimeError as error:
                with self.assertRaisesRegex(RuntimeError, re.escape(str(error).splitlines()[0])):
                    fatune.sdpa(q, k, v, **both)
            else:
                self.assertTrue(torch.equal(fatune.sdpa(q, k, v, **both), expected))

    def test_the_short_way(self):
        """What was served is served without questions: values, gradients, how O lies, and where it may not be taken."""
        fatune.sdpa(*tensors((1, 1, 16, 16), (1, 1, 16, 16), (1, 1, 16, 16)))  # what is served is kept by a session that is there
        _drop_in.found_session(torch.device("cpu")).recent = ()  # other tests had some, and of more than eight not each is kept
        shapes = (2, 4, 40, 32), (2, 2, 40, 32), (2, 2, 40, 32)
        given = {"as they are": tensors(*shapes), "as models have them": [
            tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors(*shapes, seed=2)]}
        options = {"is_causal": True, "enable_gqa": True, "scale": 0.3}
        for name, (q, k, v) in given.items():
            with self.subTest(name):
                fatune.sdpa(q, k, v, **options)
                first = fatune.sdpa(q, k, v, **options)
                with mock.patch.object(_drop_in, "_served_anew", side_effect=AssertionError), by_python():
                    out = fatune.sdpa(q, k, v, **options)
                if _attention._again is not None:
                    with mock.patch.object(_drop_in, "attention", side_effect=AssertionError):  # by what was seen of late
                        self.assertTrue(torch.equal(fatune.sdpa(q, k, v, **options), out))
                self.assertTrue(torch.equal(first, out))
                self.assertEqual(out.stride(), first.stride())
                self.close(out, reference(q.double() * 0.3 * 32**0.5, k, v, causal=True))
        leaves = [tensor.detach().requires_grad_() for tensor in given["as models have them"]]
        double = [tensor.detach().double().requires_grad_() for tensor in leaves]
        dout = torch.randn(2, 4, 40, 32).half()
        exact = torch.autograd.grad(functional.scaled_dot_product_attention(*double, **options), double, dout.double())
        for _ in range(2):  # the second time by what was kept
            for mine, theirs in zip(torch.autograd.grad(fatune.sdpa(*leaves, **options), leaves, dout), exact):
                self.close(mine, theirs, 2e-2)
        room = torch.empty(2 * 4 * 40 * 32 + 4).half()
        q = room[4:].view(2, 4, 40, 32).copy_(given["as they are"][0])  # 8 bytes past a multiple of 16
        _, k, v = given["as they are"]
        self.assertTrue(torch.equal(fatune.sdpa(q, k, v, **options), fatune.sdpa(q.clone(), k, v, **options)))
        with self.assertRaises(fatune.FallbackWarning):  # what was kept of a call tells all that it depends on
            fatune.sdpa(q.clone(), k, v, is_causal=True, scale=0.3)

    def test_float32(self):
        """As exact as PyTorch's, compiled too; as TF32 where its matrix products are."""
        q, k, v = (tensor.float() for tensor in tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32)))
        exact = reference(q, k, v, causal=True)
        compiled = torch.compile(lambda *all: fatune.sdpa(*all, is_causal=True), fullgraph=True, backend="aot_eager")
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        self.addCleanup(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        for precision, least, most in (("highest", 0, 2e-6), ("high", 2e-5, 5e-3)):
            torch.set_float32_matmul_precision(precision)
            for call in (lambda *all: fatune.sdpa(*all, is_causal=True), compiled):
                for _ in range(2):  # the second time by what was kept
                    out = call(*leaves)
                    self.close(out, exact, most)
                    self.assertGreaterEqual((out.detach() - exact).abs().max().item(), least)
        self.beside(q, k, v, attn_mask=torch.randn(40, 40, generator=torch.Generator().manual_seed(5)))

    def test_gradients_of_a_mask(self):
        generator = torch.Generator().manual_seed(11)
        for dtype, shape, tolerance in ((torch.float16, (4, 40, 40), 1e-2), (torch.float32, (2, 1, 1, 40), 1e-4)):
            q, k, v = (tensor.to(dtype) for tensor in tensors((2, 4, 40, 32), (2, 2, 40, 32), (2, 2, 40, 32)))
            mask = torch.randn(shape, generator=generator).to(dtype)
            mask[..., -3:] = -torch.inf
            dout = torch.randn(q.shape, generator=generator).to(dtype)
            results = []
            compiled = torch.compile(fatune.sdpa, fullgraph=True, backend="aot_eager")  # then PyTorch's
            for call, wide in ((functional.scaled_dot_product_attention, torch.float64), (fatune.sdpa, dtype), (compiled, dtype)):
                inputs = [tensor.detach().to(wide).requires_grad_() for tensor in (q, k, v, mask)]
                out = call(*inputs[:3], attn_mask=inputs[3], enable_gqa=True)
                results.append(torch.autograd.grad(out, inputs, dout.to(wide)))
            for exact, *ours in zip(*results):
                for mine in ours:
                    self.close(mine, exact, tolerance * max(1.0, exact.abs().max().item()))

    def test_transforms(self):
        """What is more than a forward and its backward PyTorch computes, or attention() refuses by name: no wrong tangent."""
        q, k, v = (tensor.float() for tensor in tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32)))
        both = torch.stack([q, q.neg()])

        def dual(call):
            with forward_ad.dual_level():
                return forward_ad.unpack_dual(call(forward_ad.make_dual(q, q), k, v)).tangent

        from torch.autograd import forward_ad
        from torch.nn.attention import SDPBackend, sdpa_kernel
        cases = {"torch.func's grad": lambda call: torch.func.grad(lambda x: call(x, k, v).square().sum())(q),
                 "torch.func's vmap": lambda call: torch.func.vmap(lambda x: call(x, k, v))(both),
                 "torch.func's jvp": lambda call: torch.func.jvp(lambda x: call(x, k, v), (q,), (q,))[1],
                 "forward-mode differentiation": dual}
        for name, use in cases.items():
            for _ in range(3):  # then there are calls that were kept
                fatune.sdpa(q, k, v)
                fatune.attention(q, k, v)
            with self.subTest(name), sdpa_kernel(SDPBackend.MATH):
                with self.assertRaisesRegex(NotImplementedError, f"fatune.attention is under {name}; allowed"):
                    use(fatune.attention)
                with self.assertWarnsRegex(fatune.FallbackWarning, f"it is under {name}"):
                    made = use(fatune.sdpa)
                self.assertTrue(torch.equal(made, use(functional.scaled_dot_product_attention)))
                self.assertTrue(torch.equal(use(fatune.sdpa), made))

    def test_deterministic(self):
        """Where PyTorch is told to be so: of the same request as attention(deterministic=True) the same bits."""
        self.addCleanup(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32), grad=True)
        for wanted in (False, True, True, True, False, False):
            torch.use_deterministic_algorithms(wanted)
            asked = []

            def call(*given, deterministic, attention=fatune.attention, **options):
                asked.append(deterministic)
                return attention(*given, deterministic=deterministic, **options)
            with mock.patch.object(_drop_in, "attention", call), mock.patch.object(_ways, "attention", call), by_python():
                fatune.sdpa(q, k, v).sum().backward()
            self.assertEqual(asked, [wanted])

    def test_compiled(self):
        def step(q, k, v, mask):
            return fatune.sdpa(q, k, v, attn_mask=mask), fatune.sdpa(q.float(), k.float(), v.float())
        q, k, v = tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
        mask = torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < 0.5
        ours, theirs = torch.compile(step, fullgraph=True, backend="aot_eager")(q, k, v, mask)
        self.close(ours, reference(q, k, v, bias=mask))
        self.close(theirs, reference(q, k, v))


class Flash(Emulated):
    def test_flash_attn_func(self):
        q, k, v = tensors((2, 40, 4, 32), (2, 40, 2, 32), (2, 40, 2, 32), grad=True)
        slopes = torch.tensor([[0.5, 0.25, 0.125, 0.0625], [1.0, 0.5, 0.25, 0.125]])
        out, lse, probabilities = fatune.flash_attn_func(
            q, k, v, causal=True, window_size=(20, 0), softcap=3.0, alibi_slopes=slopes, return_attn_probs=True)
        self.assertIsNone(probabilities)
        i, j = torch.arange(40)[:, None], torch.arange(40)
        ours = torch.autograd.grad(out.square().sum(), (q, k, v))
        qd, kd, vd = (tensor.detach().double().requires_grad_() for tensor in (q, k, v))
        s = torch.einsum("bihd,bjhd->bhij", qd, kd.repeat_interleave(2, 2)) / 32**0.5
        s = 3 * torch.tanh(s / 3) - slopes[:, :, None, None] * (i - j).abs()
        s = s.masked_fill((j > i) | (j < i - 20), -torch.inf)
        exact = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), vd.repeat_interleave(2, 2))
        self.close(out, exact)
        self.close(lse, s.logsumexp(-1))
        for mine, theirs in zip(ours, torch.autograd.grad(exact.square().sum(), (qd, kd, vd))):
            self.close(mine, theirs, 2e-2)
        with self.assertRaisesRegex(ValueError, r"alibi_slopes is \(3,\); allowed: \(4,\) or \(2, 4\)"):
            fatune.flash_attn_func(q, k, v, alibi_slopes=torch.ones(3))

    def test_flash_attn_varlen_func(self):
        lengths, keys = [30, 0, 10], [33, 5, 50]
        starts, of_keys = (torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).to(torch.int32)
                           for counts in (lengths, keys))
        q, k, v = tensors((40, 4, 32), (88, 2, 32), (88, 2, 32), grad=True)
        slopes = torch.rand(3, 4, generator=torch.Generator().manual_seed(1))
        options = {"causal": True, "window_size": (20, 0), "softcap": 3.0, "softmax_scale": 0.25}
        out, lse, probabilities = fatune.flash_attn_varlen_func(q, k, v, starts, of_keys, 30, 50, alibi_slopes=slopes,
                                                                return_attn_probs=True, **options)
        self.assertEqual((probabilities, tuple(lse.shape)), (None, (4, 40)))
        gradients = torch.autograd.grad(out.square().sum(), (q, k, v))
        for n, (begin, key) in enumerate(zip(starts.tolist()[:-1], of_keys.tolist())):
            if lengths[n] == 0:
                continue
            rows, seen = slice(begin, begin + lengths[n]), slice(key, key + keys[n])
            own = [tensor[part].detach()[None].requires_grad_() for tensor, part in ((q, rows), (k, seen), (v, seen))]
            theirs, sums, _ = fatune.flash_attn_func(*own, alibi_slopes=slopes[n], return_attn_probs=True, **options)
            self.close(out[rows], theirs[0])
            self.close(lse[:, rows], sums[0])
            for mine, other, part in zip(gradients, torch.autograd.grad(theirs.square().sum(), own), (rows, seen, seen)):
                self.close(mine[part], other[0], 2e-2)

    def test_flash_attn_with_kvcache(self):
        q, keys, values, k, v = tensors((3, 2, 4, 32), (3, 70, 2, 32), (3, 70, 2, 32), (3, 2, 2, 32), (3, 2, 2, 32))
        before = torch.tensor([60, 0, 7], dtype=torch.int32)
        caches = keys.clone(), values.clone()
        out, lse = fatune.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=before, causal=True, return_softmax_lse=True)
        for n, count in enumerate(before.tolist()):
            for cache, old, new in zip(caches, (keys, values), (k, v)):
                self.assertTrue(torch.equal(cache[n], torch.cat((old[n, :count], new[n], old[n, count + 2:]))))
            own = (q[n:n + 1], *(cache[n:n + 1, :count + 2] for cache in caches))
            exact = reference(*(tensor.transpose(1, 2) for tensor in own),
                              bias=torch.ones(2, count + 2, dtype=torch.bool).tril(count))
            self.close(out[n:n + 1].transpose(1, 2), exact)
            s = torch.einsum("ihd,jhd->hij", own[0][0].double(), own[1][0].double().repeat_interleave(2, 1)) / 32**0.5
            s = s.masked_fill(~torch.ones(2, count + 2, dtype=torch.bool).tril(count), -torch.inf)
            self.close(lse[n], s.logsumexp(-1))
        whole = fatune.flash_attn_with_kvcache(q, *caches, cache_seqlens=40, causal=True)
        self.close(whole, fatune.flash_attn_func(q, *(cache[:, :40] for cache in caches), causal=True))
        with self.assertRaisesRegex(ValueError, "k, v and cache_seqlens are not given together"):
            fatune.flash_attn_with_kvcache(q, *caches, k, v)
        with self.assertRaisesRegex(ValueError, "k_cache is .*; allowed: .* contiguous"):
            fatune.flash_attn_with_kvcache(q, caches[0].transpose(1, 2), caches[1])

    def test_rotary(self):
        q, keys, values, k, v = tensors((3, 2, 4, 32), (3, 64, 2, 32), (3, 64, 2, 32), (3, 2, 2, 32), (3, 2, 2, 32))
        before = torch.tensor([60, 0, 7], dtype=torch.int32)
        angles = torch.rand(80, 12, generator=torch.Generator().manual_seed(5)) * 6
        for interleaved, options in ((True, {"causal": True}), (False, {"window_size": (9, 0)}), (False, {})):
            def turned(x, in_order):  # by complex numbers
                pairs = x[..., :24].double()
                pairs = pairs.unflatten(-1, (12, 2)) if interleaved else torch.stack(pairs.chunk(2, -1), -1)
                places = before.long()[:, None] + torch.arange(2) * in_order
                pairs = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(
                    torch.ones(()).double(), angles.double())[places].unsqueeze(2))
                pairs = pairs.flatten(-2) if interleaved else torch.cat(pairs.unbind(-1), -1)
                return torch.cat((pairs.to(x.dtype), x[..., 24:]), -1)
            caches, plain = (keys.clone(), values.clone()), (keys.clone(), values.clone())
            out = fatune.flash_attn_with_kvcache(q, *caches, k, v, rotary_cos=angles.cos(), rotary_sin=angles.sin(),
                                                 cache_seqlens=before, rotary_interleaved=interleaved, **options)
            wanted = fatune.flash_attn_with_kvcache(turned(q, bool(options)), *plain, turned(k, True), v, cache_seqlens=before,
                                                    **options)
            self.close(out, wanted)
            self.close(caches[0], plain[0])
            pools, table = self.in_pages((keys, values), 16)
            self.close(fatune.flash_attn_with_kvcache(
                q, *pools, k, v, rotary_cos=angles.cos(), rotary_sin=angles.sin(), cache_seqlens=before, block_table=table,
                rotary_interleaved=interleaved, **options), wanted)
        for wrong in ({"rotary_cos": angles}, {"rotary_cos": angles, "rotary_sin": angles[:, :3]}):
            with self.assertRaisesRegex(ValueError, "rotary_cos is .*; allowed: both"):
                fatune.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=before, **wrong)
        with self.assertRaisesRegex(ValueError, "k None; allowed: both .* with k and v"):
            fatune.flash_attn_with_kvcache(q, *caches, rotary_cos=angles, rotary_sin=angles, cache_seqlens=before)

    def test_leftpad(self):
        q, keys, values, k, v = tensors((3, 2, 4, 32), (3, 64, 2, 32), (3, 64, 2, 32), (3, 2, 2, 32), (3, 2, 2, 32))
        before, pad = (torch.tensor(numbers, dtype=torch.int32) for numbers in ([60, 5, 7], [9, 0, 7]))
        angles = torch.rand(80, 16, generator=torch.Generator().manual_seed(5)) * 6
        more = {"causal": True, "rotary_cos": angles.cos(), "rotary_sin": angles.sin()}
        for cache in (keys, values):
            for n in range(3):
                cache[n, :pad[n]] = torch.nan
        whole = keys.clone(), values.clone()
        out = fatune.flash_attn_with_kvcache(q, *whole, k, v, cache_seqlens=before, cache_leftpad=pad, **more)
        for n in range(3):
            own = [cache[n:n + 1, pad[n]:].clone() for cache in (keys, values)]
            wanted = fatune.flash_attn_with_kvcache(q[n:n + 1], *own, k[n:n + 1], v[n:n + 1], cache_seqlens=int(before[n] - pad[n]),
                                                    **more)
            self.close(out[n:n + 1], wanted)
            for cache, part in zip(whole, own):
                self.assertTrue(torch.equal(cache[n:n + 1, pad[n]:], part))
        self.close(fatune.flash_attn_with_kvcache(q, *whole, cache_leftpad=pad, cache_seqlens=30, causal=True)[1],
                   fatune.flash_attn_with_kvcache(q, *whole, cache_seqlens=30, causal=True)[1])
        slopes = torch.rand(3, 4, generator=torch.Generator().manual_seed(6))
        self.close(fatune.flash_attn_with_kvcache(q, *whole, cache_leftpad=pad, cache_seqlens=30, alibi_slopes=slopes)[1],
                   fatune.flash_attn_with_kvcache(q, *whole, cache_seqlens=30, alibi_slopes=slopes)[1])
        with self.assertRaisesRegex(ValueError, "cache_leftpad is .*given; allowed"):
            fatune.flash_attn_with_kvcache(q, *whole, cache_leftpad=pad, cache_batch_idx=pad)
        with self.assertRaisesRegex(ValueError, "k None; allowed: both"):
            fatune.flash_attn_with_kvcache(q, *whole, cache_leftpad=pad, rotary_cos=more["rotary_cos"], rotary_sin=more["rotary_sin"])

    def in_pages(self, caches, page, seed=3):
        """Pools whose pages are those of the caches [batch, rows, heads, dim] in another order, NaN behind them, and the table."""
        batch, rows = caches[0].shape[:2]
        columns = -(-rows // page)
        order = torch.randperm(batch * columns, generator=torch.Generator().manual_seed(seed))
        pools = []
        for cache in caches:
            padded = cache.new_full((batch, columns * page, *cache.shape[2:]), torch.nan)
            padded[:, :rows] = cache
            pools.append(padded.reshape(batch * columns, page, *cache.shape[2:])[order])
        return pools, order.argsort().to(torch.int32).reshape(batch, columns)

    def test_caches_in_pages(self):
        q, keys, values = tensors((3, 2, 4, 32), (3, 70, 2, 32), (3, 70, 2, 32))
        before = torch.tensor([60, 1, 7], dtype=torch.int32)
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        for count in (2, 5):  # as many new rows as queries, and more
            k, v = tensors((3, count, 2, 32), (3, count, 2, 32), seed=count)
            caches = keys.clone(), values.clone()
            pools, table = self.in_pages(caches, 16)
            results = [fatune.flash_attn_with_kvcache(q, *where, k, v, cache_seqlens=before, causal=True, alibi_slopes=slopes,
                                                      return_softmax_lse=True, **more)
                       for where, more in ((caches, {}), (pools, {"block_table": table}))]
            for ours, theirs in zip(*results):
                self.close(ours, theirs)
            for cache, pool in zip(caches, pools):
                self.assertTrue(torch.equal(pool[table.long()].flatten(1, 2)[:, :70], cache))
        entries = torch.tensor([4, 0, 2])
        many = [torch.full((5, 64, 2, 32), torch.nan).half() for _ in range(2)]
        for cache, rows in zip(many, (keys, values)):
            cache[entries] = rows[:, :64]
        self.close(fatune.flash_attn_with_kvcache(q, *many, cache_seqlens=50, cache_batch_idx=entries),
                   fatune.flash_attn_with_kvcache(q, keys, values, cache_seqlens=50))
        with self.assertRaisesRegex(ValueError, "cache_batch_idx is given with caches of 70 rows; allowed"):
            fatune.flash_attn_with_kvcache(q, keys, values, cache_batch_idx=entries)

    def test_varlen_in_pages(self):
        starts, of_keys = (torch.tensor(cut, dtype=torch.int32) for cut in ([0, 2, 9, 30], [0, 40, 47, 110]))
        q, k, v = tensors((30, 4, 32), (110, 2, 32), (110, 2, 32))
        caches = [tensor.new_zeros(3, 70, 2, 32) for tensor in (k, v)]
        for n in range(3):
            first, last = of_keys[n], of_keys[n + 1]
            for cache, tensor in zip(caches, (k, v)):
                cache[n, :last - first] = tensor[first:last]
        pools, table = self.in_pages(caches, 32)
        options = {"causal": True, "softcap": 5.0, "return_attn_probs": True}
        for ours, theirs in zip(fatune.flash_attn_varlen_func(q, *pools, starts, of_keys, 21, 63, block_table=table, **options)[:2],
                                fatune.flash_attn_varlen_func(q, k, v, starts, of_keys, 21, 63, **options)[:2]):
            self.close(ours, theirs)


if __name__ == "__main__":
    unittest.main()
