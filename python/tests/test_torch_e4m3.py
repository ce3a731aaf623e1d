"""Tensors of 8-bit floats with PyTorch, on an emulated GPU: quantise, and attention with descales."""

from unittest import mock

from test_torch import HAS_TORCH, Emulated, reference, tensors

import fatune
from fatune._dtypes import descale_shape

if HAS_TORCH:
    import torch


class Bytes(Emulated):
    @classmethod
    def setUpClass(cls):
        cls.session = fatune.emulate("h200")

    def test_numbers_that_are_no_numbers(self):
        q, k, v = tensors((1, 2, 40, 64), (1, 2, 70, 64), (1, 2, 70, 64))
        (q8, of_q), (v8, of_v), (zeros, of_zeros) = fatune.quantise(q), fatune.quantise(v), fatune.quantise(0 * k)
        self.assertEqual(of_zeros.unique().tolist(), [2.0**-40])
        out = fatune.attention(q8, zeros, v8, descales=(of_q, of_zeros, of_v))
        mean = (v8.double() * of_v[:, :, None, None]).mean(2, keepdim=True)
        self.close(out, mean.expand_as(out), 0.05)
        k[0, 1, 3, 5] = torch.nan  # seen by all queries of its head, and by no others
        k8, of_k = fatune.quantise(k)
        out = fatune.attention(q8, k8, v8, descales=(of_q, of_k, of_v))
        self.assertEqual(out.isnan().all(-1).all(-1).tolist(), [[False, True]])
        self.assertFalse(out[0, 0].isnan().any())
        k[0, 1, 3, 5] = torch.inf
        k8, of_k = fatune.quantise(k)
        with self.assertRaisesRegex(fatune.Error, "descale_k has inf for head 1 of batch entry 0"):
            fatune.attention(q8, k8, v8, descales=(of_q, of_k, of_v))

    def test_quantised_attention(self):
        q, k, v = tensors((2, 4, 40, 64), (2, 2, 70, 64), (2, 2, 70, 48))
        q[0, 1, 3, 5] = 20  # an outlier
        for rotate in (None, 5):
            (q8, of_q), (k8, of_k) = fatune.quantise(q, rotate=rotate), fatune.quantise(k, rotate=rotate)
            v8, of_v = fatune.quantise(v)
            self.assertEqual((q8.dtype, of_q.dtype, of_k.shape), (torch.float8_e4m3fn, torch.float32, (2, 2)))
            self.close(v8.double() * of_v[:, :, None, None], v, 0.2)
            out = fatune.attention(q8, k8, v8, causal="top-left", descales=(of_q, of_k, of_v))
            self.assertEqual(out.dtype, torch.bfloat16)
            meant = [tensor.double() * of[:, :, None, None] for tensor, of in ((q8, of_q), (k8, of_k), (v8, of_v))]
            self.close(out, reference(*meant, causal=True), 0.12)
            self.close(out, reference(q, k, v, causal=True), 0.5)

    def test_descales_of_blocks(self):
        q, k, v = tensors((2, 4, 140, 64), (2, 2, 200, 64), (2, 2, 200, 48))
        v[:, :, 100] *= 100  # outliers in one block
        for rows in (64, 128):
            made = [fatune.quantise(tensor, descale_rows=rows) for tensor in (q, k, v)]
            self.assertEqual([tuple(of.shape) for _, of in made], [(2, heads, -(-n // rows))
                                                                   for heads, n in ((4, 140), (2, 200), (2, 200))])
            meant = [tensor.double() * of.repeat_interleave(rows, 2)[:, :, :tensor.shape[2], None] for tensor, of in made]
            self.close(meant[2][:, :, 128:], v[:, :, 128:], 0.2)
            (q8, of_q), (k8, of_k), (v8, of_v) = made
            out = fatune.attention(q8, k8, v8, descales=(of_q, of_k, of_v), descale_rows=rows)
            exact, rough = reference(*meant), fatune.attention(q8, k8, v8, descales=(None, of_k, of_v), descale_rows=rows)
            self.assertLess((out.double() - exact).norm(), 0.03 * exact.norm())
            self.assertGreater((rough.double() - exact).norm(), 0.1 * exact.norm())

    def test_fast_exp(self):
        q, k, v = tensors((2, 4, 140, 64), (2, 2, 300, 64), (2, 2, 300, 48))
        (q8, of_q), (k8, of_k), (v8, of_v) = (fatune.quantise(tensor) for tensor in (q, k, v))
        given, descales = (q8, k8, v8), (of_q, of_k, of_v)
        exact = reference(*(tensor.double() * of[:, :, None, None] for tensor, of in zip(given, descales)))
        out, plain = (fatune.attention(*given, descales=descales, fast_exp=fast) for fast in (True, False))
        self.assertLess((out.double() - exact).norm(), 0.05 * exact.norm())
        self.assertEqual(torch.equal(out, plain), isinstance(self, BytesByOtherGPUs))  # where there are no lines
        compiled = torch.compile(lambda *of: fatune.attention(*given, descales=of, fast_exp=True), fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(*descales), out))
        for message, call in (("return_lse is True with fast_exp; allowed: False",
                               lambda: fatune.attention(*given, fast_exp=True, return_lse=True)),
                              ("fast_exp is true with dtype fp16; allowed: false, or dtype e4m3",
                               lambda: fatune.attention(q.half(), k.half(), v.half(), fast_exp=True)),
                              ("fast_exp is true with a score function; allowed: false",
                               lambda: fatune.attention(*given, fast_exp=True, score="softcap", captured={"cap": 3.0}))):
            with self.assertRaisesRegex((ValueError, fatune.Error), message):
                call()

    def test_descales_may_be_missing_or_broadcast(self):
        q, k, v = (tensor.to(torch.float8_e4m3fn) for tensor in tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32)))
        two = torch.tensor([[2.0]]).expand(1, 2)
        out = fatune.attention(q, k, v, descales=(None, two, two))
        self.close(out, reference(q.double(), 2 * k.double(), 2 * v.double()), 0.2)

    def test_sequences_and_pages(self):
        starts = torch.tensor([0, 30, 70], dtype=torch.int32)
        made = [fatune.quantise(tensor) for tensor in tensors((1, 2, 70, 32), (1, 2, 70, 32), (1, 2, 70, 32))]
        q8, k8, v8 = (tensor[0].transpose(0, 1).contiguous() for tensor, _ in made)
        descales = [of.expand(2, 2) * torch.tensor([[1.0], [0.5]]) for _, of in made]
        out = fatune.varlen(q8, k8, v8, starts, starts, causal=True, descales=descales)
        self.assertEqual(out.dtype, torch.bfloat16)
        for n, (first, last) in enumerate(((0, 30), (30, 70))):
            meant = [tensor[first:last].double().transpose(0, 1)[None] * of[n, :, None, None]
                     for tensor, of in zip((q8, k8, v8), descales)]
            expected = reference(*meant, causal=True)[0].transpose(0, 1)
            self.close(out[first:last], expected, 0.12)
            if n == 0:
                pages = [pool[:32].unflatten(0, (2, 16)) for pool in (k8, v8)]
                decoded = fatune.decode(q8[first:last][None], *pages, torch.tensor([[0, 1]], dtype=torch.int32),
                                        torch.tensor([30], dtype=torch.int32), descales=[of[:1] for of in descales],
                                        out_dtype=torch.float16)
                self.assertEqual(decoded.dtype, torch.float16)
                self.close(decoded[0], expected, 0.12)

    def test_o_in_fp16_and_a_score(self):
        tensors_16 = tensors((1, 2, 40, 32), (1, 2, 70, 32), (1, 2, 70, 32))
        (q8, of_q), (k8, of_k), (v8, of_v) = (fatune.quantise(tensor) for tensor in tensors_16)
        meant = [tensor.double() * of[:, :, None, None] for tensor, of in ((q8, of_q), (k8, of_k), (v8, of_v))]
        descales = of_q, of_k, of_v
        out = fatune.attention(q8, k8, v8, descales=descales, out_dtype=torch.float16)
        self.assertEqual(out.dtype, torch.float16)
        self.close(out, reference(*meant), 0.12)
        again = fatune.attention(q8, k8, v8, descales=descales, out=torch.empty_like(out), out_dtype=torch.float16)
        self.assertTrue(torch.equal(again, out))
        capped = fatune.attention(q8, k8, v8, descales=descales, score="softcap", captured={"cap": 2.0})
        s = 2 * torch.tanh(meant[0] @ meant[1].mT / 32**0.5 / 2)
        self.close(capped, s.softmax(-1) @ meant[2], 0.12)

    def test_a_cache_of_bytes_beside_16_bits(self):
        q, k, v = tensors((2, 4, 3, 64), (2, 2, 70, 64), (2, 2, 70, 48))
        (k8, of_k), (v8, of_v) = fatune.quantise(k), fatune.quantise(v)
        meant = [tensor.double() * of[:, :, None, None] for tensor, of in ((k8, of_k), (v8, of_v))]
        for dtype in (torch.float16, torch.bfloat16):
            out = fatune.attention(q.to(dtype), k8, v8, descales=(None, of_k, of_v))
            self.assertEqual(out.dtype, dtype)
            self.close(out, reference(q.to(dtype), *meant), 0.02)
        with self.assertRaisesRegex(TypeError, "v is torch.float16; allowed"):
            fatune.attention(q, k8, v)
        with self.assertRaisesRegex(TypeError, "k is torch.float8_e4m3fn; allowed"):
            fatune.attention(q.float(), k8, v8)
        with self.assertRaisesRegex(fatune.Error, "descale_q.data is"):
            fatune.attention(q, k8, v8, descales=(torch.ones(2, 4), None, None))

    def test_pages_of_bytes(self):
        q, k, v = tensors((2, 2, 4, 32), (4, 16, 2, 32), (4, 16, 2, 32))
        pools = [tensor.to(torch.float8_e4m3fn) for tensor in (k, v)]
        table, lengths = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32), torch.tensor([20, 31], dtype=torch.int32)
        new = [tensor.to(torch.float8_e4m3fn) for tensor in tensors((2, 2, 2, 32), (2, 2, 2, 32), seed=7)]
        descales = None, torch.tensor([[0.5, 2.0], [1.5, 1.0]]), torch.tensor([[3.0]]).expand(2, 2)
        out = fatune.decode(q, *pools, table, lengths, new_k=new[0], new_v=new[1], descales=descales, causal=False)
        for entry, length in enumerate(lengths.tolist()):
            own = [pool[table[entry].long()].flatten(0, 1)[:length].double() for pool in pools]
            for rows, tensor in zip(own, new):
                self.assertTrue(torch.equal(rows[-2:], tensor[entry].double()))
            factors = [descale[entry][None, :, None].double() for descale in descales[1:]]
            meant = [(rows * factor).transpose(0, 1)[None] for rows, factor in zip(own, factors)]
            self.close(out[entry].transpose(0, 1)[None], reference(q[entry].transpose(0, 1)[None], *meant), 0.05)
        with self.assertRaisesRegex(ValueError, "new_k is .* torch.float16"):
            fatune.decode(q, *pools, table, lengths, new_k=new[0].half(), new_v=new[1].half())

    def test_what_does_not_fit_is_named(self):
        q, = tensors((1, 2, 40, 32))
        q8 = q.to(torch.float8_e4m3fn)
        for tensor in (q, q8):
            with self.assertRaisesRegex(ValueError, "out_dtype is torch.float32"):
                fatune.attention(tensor, tensor, tensor, out_dtype=torch.float32)
        ones = torch.ones(1, 2)
        for word, call in (("descales come with", lambda: fatune.attention(q, q, q, descales=(ones, ones, ones))),
                           ("descales are 2", lambda: fatune.attention(q8, q8, q8, descales=(ones, ones))),
                           ("descale of k is \\(2,\\)",
                            lambda: fatune.attention(q8, q8, q8, descales=(ones, ones[0], ones))),
                           ("descale of q is \\(1, 2\\).*\\(1, 2, 1\\)",
                            lambda: fatune.attention(q8, q8, q8, descales=(ones, None, None), descale_rows=64)),
                           ("descale of v has stride 2 between blocks",
                            lambda: fatune.attention(q8, *[torch.cat((q8, q8), 2)] * 2, descale_rows=64,
                                                     descales=(None, None, torch.ones(1, 2, 4)[:, :, ::2]))),
                           ("descale_rows is 32; allowed: 0, 64, 128",
                            lambda: fatune.attention(q8, q8, q8, descales=(None,) * 3, descale_rows=32)),
                           ("descale_rows is 96; allowed: 0, 64, 128", lambda: fatune.quantise(q, descale_rows=96)),
                           ("descale_rows is 64.0; allowed: 0, 64, 128", lambda: fatune.quantise(q, descale_rows=64.0))):
            with self.assertRaisesRegex(ValueError, word):
                call()
        with self.assertRaisesRegex(fatune.Error, "dropout is true with dtype e4m3"):
            fatune.attention(q8, q8, q8, dropout=0.1, seed=1)
        with self.assertRaisesRegex(fatune.Error, "descale_rows is 64 with dtype fp16"):
            fatune.attention(q, q, q, descale_rows=64)
        for word, call in (("x is torch.float8_e4m3fn", lambda: fatune.quantise(q8)),
                           ("rotate is True; allowed: None, or the int", lambda: fatune.quantise(q, rotate=True)),
                           ("rotate is False; allowed", lambda: fatune.quantise(q, rotate=False)),
                           ("rotate is 1.5; allowed", lambda: fatune.quantise(q, rotate=1.5)),
                           ("descales is 1.0; allowed: three", lambda: fatune.attention(q8, q8, q8, descales=1.0)),
                           ("the descale of k is 2.0; allowed: a tensor",
                            lambda: fatune.attention(q8, q8, q8, descales=(None, 2.0, None))),
                           ("v_descale is \\[1.0\\]; allowed: a tensor",
                            lambda: fatune.flash_attn_func(q8, q8, q8, v_descale=[1.0]))):
            with self.assertRaisesRegex(TypeError, word):
                call()


class Graphs(Emulated):
    """Descales under torch.compile and tracing."""

    @classmethod
    def setUpClass(cls):
        cls.session = fatune.emulate("h200")

    def test_descales_in_a_graph(self):
        sixteen = tensors((1, 4, 40, 32), (1, 2, 70, 32), (1, 2, 70, 32))
        (q8, of_q), (k8, of_k), (v8, of_v) = (fatune.quantise(tensor) for tensor in sixteen)
        for call in (lambda *of: fatune.attention(q8, k8, v8, descales=of, out_dtype=torch.float16, return_lse=True),
                     lambda _, *of: fatune.attention(sixteen[0], k8, v8, descales=(None, *of), return_lse=True)):
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
            for factor in (1, 3):  # they are read anew at every call
                descales = of_q, factor * of_k, factor * of_v
                for ours, eager in zip(compiled(*descales), call(*descales)):
                    self.assertEqual((ours.dtype, ours.stride()), (eager.dtype, eager.stride()))
                    self.assertTrue(torch.equal(ours, eager))
        meant = [tensor.double() * of[:, :, None, None] for tensor, of in ((k8, descales[1]), (v8, descales[2]))]
        self.close(compiled(*descales)[0], reference(sixteen[0], *meant), 0.05)

    def test_descales_of_all_lengths_compile_once(self):
        for rows in (0, 64):
            compiled = torch.compile(lambda q, k, v, *of, rows=rows: fatune.attention(q, k, v, descales=of, descale_rows=rows),
                                     fullgraph=True, dynamic=True, backend="aot_eager")
            for n in range(100, 180, 4):
                with mock.patch.object(torch._dynamo.config, "error_on_recompile", n > 100):
                    given = [tensor.to(torch.float8_e4m3fn) for tensor in tensors(*[(1, 1, n, 32)] * 3, seed=n)]
                    descales = [0.25 + torch.rand(descale_shape(1, 1, n, rows)) / 2 for _ in given]
                    meant = [tensor.double() * of.reshape(1, 1, -1).repeat_interleave(rows or n, 2)[:, :, :n, None]
                             for tensor, of in zip(given, descales)]
                    self.close(compiled(*given, *descales), reference(*meant), 0.06)

    def test_operator_with_descales(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            q = torch.empty(2, 8, 100, 64, dtype=torch.bfloat16)
            k = torch.empty(2, 2, 100, 64, dtype=torch.float8_e4m3fn)
            out = fatune.attention(q, k, k, descales=(None, torch.empty(2, 2), None))
            self.assertEqual((out.shape, out.dtype), (q.shape, torch.bfloat16))
            with self.assertRaisesRegex(ValueError, "descales come with torch.bfloat16; allowed: None"):
                fatune.attention(q, q, q, descales=(None,) * 3)
        q, k, v = (tensor.to(torch.float8_e4m3fn) for tensor in tensors((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32)))
        options = ([], 0.2, 0.0, 0, 0, "", "bhsd", False, 0, 0, "", [], [], [], False)  # without those of 8-bit floats, too
        for of_bytes in ((), (None, torch.tensor([[2.0]]).expand(1, 2)), (*[torch.ones(1, 2, 1)] * 3, 64, torch.float16)):
            torch.library.opcheck(torch.ops.fatune.attention, (q, k, v, None, None, None, [], *options, *of_bytes),
                                  test_utils=("test_faketensor", "test_aot_dispatch_static"))
        compiled = torch.compile(lambda of, **more: fatune.attention(q, k, v, descales=of, **more), fullgraph=True, backend="eager")
        ones = torch.ones(1, 2)
        for word, of, more in (("descales are 2; allowed: three", (ones, ones), {}),
                               ("descale_rows is 32; allowed: 0, 64, 128", (ones, ones, ones), {"descale_rows": 32}),
                               ("descale of v is \\(2,\\)", (ones, ones, ones[0]), {})):
            with self.assertRaisesRegex(Exception, word):
                compiled(of, **more)


class FlashAttention3(Emulated):
    """Descales of FlashAttention-3's meaning: [batch, heads of k], those of q too."""

    @classmethod
    def setUpClass(cls):
        cls.session = fatune.emulate("h200")

    def setUp(self):
        q, *caches = tensors((3, 2, 4, 32), (3, 64, 2, 32), (3, 64, 2, 32))
        self.queries = q, q.to(torch.float8_e4m3fn)
        self.caches = [cache.to(torch.float8_e4m3fn) for cache in caches]
        self.descales = [torch.tensor(of_heads) * (0.75 + torch.rand(3, 2) / 2) for of_heads in ([0.25, 2.0], [1.0, 0.5], [0.25, 0.5])]

    def named(self, q):
        given = dict(zip(("q_descale", "k_descale", "v_descale"), self.descales))
        return {name: of for name, of in given.items() if name != "q_descale" or q.element_size() == 1}

    def check(self, out, q, entry, k, v):
        """O of one batch entry, from rows of q, k and v [rows, heads, dim]."""
        of_q, *of_kv = (of[entry][None, :, None].double() for of in self.descales)
        q = q.double() * (of_q.repeat_interleave(2, 1) if q.element_size() == 1 else 1)
        meant = [tensor.transpose(0, 1)[None] for tensor in (q, k.double() * of_kv[0], v.double() * of_kv[1])]
        self.close(out.transpose(0, 1)[None], reference(*meant), 0.06)

    def in_pages(self, caches):
        """Pools of pages of 16 rows, and the table."""
        order = torch.randperm(12)
        pools = [cache.view(torch.uint8).reshape(12, 16, 2, 32)[order].view(cache.dtype) for cache in caches]
        return pools, order.argsort().to(torch.int32).reshape(3, 4)

    def test_whole_tensors(self):
        for q in self.queries:
            out = fatune.flash_attn_func(q, *self.caches, **self.named(q))
            self.assertEqual(out.dtype, torch.bfloat16 if q.element_size() == 1 else q.dtype)
            for n in range(3):
                self.check(out[n], q[n], n, *(cache[n] for cache in self.caches))

    def test_caches(self):
        before, pad, entries = (torch.tensor(numbers, dtype=torch.int32) for numbers in ([40, 5, 60], [9, 0, 7], [2, 0, 1]))
        for q in self.queries:
            for kind in ("contiguous", "leftpad", "pages", "entries"):
                k, v = (tensor.to(torch.float8_e4m3fn) for tensor in tensors((3, 3, 2, 32), (3, 3, 2, 32), seed=2))
                where, more = [cache.clone() for cache in self.caches], {}
                if kind == "leftpad":
                    more = {"cache_leftpad": pad}
                elif kind == "pages":
                    where, table = self.in_pages(where)
                    more = {"page_table": table}
                elif kind == "entries":
                    more = {"cache_batch_idx": entries}
                out = fatune.flash_attn_with_kvcache(q, *where, k, v, cache_seqlens=before, **more, **self.named(q))
                for n, count in enumerate(before.tolist()):
                    entry, first = (int(entries[n]) if kind == "entries" else n), (int(pad[n]) if kind == "leftpad" else 0)
                    own = [torch.cat((cache[entry, :count].double(), new[n].double())) for cache, new in zip(self.caches, (k, v))]
                    for cache, rows in zip(where, own):
                        cache = cache[table[n].long()].flatten(0, 1) if kind == "pages" else cache[entry]
                        self.assertTrue(torch.equal(cache[:count + 3].double(), rows))
                    self.check(out[n], q[n], n, *(rows[first:] for rows in own))

    def test_sequences(self):
        of_keys = torch.tensor([0, 30, 94, 110], dtype=torch.int32)
        starts = torch.tensor([0, 2, 4, 6], dtype=torch.int32)
        for q in self.queries:
            packed = [cache.flatten(0, 1)[:110] for cache in self.caches]
            out = fatune.flash_attn_varlen_func(q.flatten(0, 1), *packed, starts, of_keys, 2, 64, **self.named(q))
            pools, table = self.in_pages(self.caches)
            paged = fatune.flash_attn_varlen_func(q.flatten(0, 1), *pools, starts, of_keys, 2, 64, block_table=table, **self.named(q))
            for n, (first, last) in enumerate(((0, 30), (30, 94), (94, 110))):
                self.check(out[2 * n:2 * n + 2], q[n], n, *(rows[first:last] for rows in packed))
                self.check(paged[2 * n:2 * n + 2], q[n], n, *(cache[n, :last - first] for cache in self.caches))

    def test_in_a_graph(self):
        q = self.queries[1]
        compiled = torch.compile(fatune.flash_attn_func, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(q, *self.caches, **self.named(q)),
                                    fatune.flash_attn_func(q, *self.caches, **self.named(q))))

    def test_what_is_refused_is_named(self):
        (q, q8), caches, (of, *_) = self.queries, self.caches, self.descales
        new, tables = [cache[:, :2] for cache in caches], {"cache_seqlens": 5}
        for word, call in (
                ("q_descale is given with Q in torch.float16; allowed: None, but for",
                 lambda: fatune.flash_attn_func(q, *caches, q_descale=of)),
                ("v_descale is given with V in torch.float16", lambda: fatune.flash_attn_func(q, q, q, v_descale=of)),
                ("k_descale is \\(3, 4\\) .*; allowed: torch.float32 \\(3, 2\\) on cpu",
                 lambda: fatune.flash_attn_with_kvcache(q8, *caches, k_descale=torch.ones(3, 4))),
                ("q_descale is \\(3, 2\\) torch.float64", lambda: fatune.flash_attn_func(q8, *caches, q_descale=of.double())),
                ("k is torch.float16 beside a k_cache of torch.float8_e4m3fn; allowed: torch.float8_e4m3fn",
                 lambda: fatune.flash_attn_with_kvcache(q, *caches, new[0].half(), new[1], **tables)),
                ("rotary_cos is given with q of torch.float16 and k of torch.float8_e4m3fn; allowed: None with 8-bit floats",
                 lambda: fatune.flash_attn_with_kvcache(q, *caches, *new, rotary_cos=of, rotary_sin=of, **tables)),
                ("block_table and page_table are given; allowed: one",
                 lambda: fatune.flash_attn_with_kvcache(q, *caches, block_table=of, page_table=of))):
            with self.assertRaisesRegex(ValueError, word):
                call()


class BytesByOtherGPUs(Bytes):
    """The same where Q, K and V in e4m3 are multiplied by mma.sync, and refused where they are not."""

    @classmethod
    def setUpClass(cls):
        cls.session = fatune.emulate("rtx4090")

    def test_gpus_without_e4m3_are_named(self):
        q, = tensors((1, 2, 40, 32))
        q8 = q.to(torch.float8_e4m3fn)
        with self.assertRaisesRegex(fatune.Error, "e4m3 needs sm_89 or later, and a100-80gb is sm_80; bf16 is possible"):
            fatune.attention(q8, q8, q8, session=fatune.Session(emulate="a100"))
