"""What serving needs, with PyTorch itself on an emulated GPU: results put together, K and V in pages, packed sequences."""

import unittest

from test_torch import HAS_TORCH, Emulated, reference, tensors

import fatune

if HAS_TORCH:
    import torch


class Merge(Emulated):
    def test_parts_of_keys_add_up(self):
        q, k, v = tensors((2, 4, 9, 32), (2, 2, 70, 32), (2, 2, 70, 32))
        whole, whole_lse = fatune.attention(q, k, v, return_lse=True)
        bounds = [0, *range(1, 36), 70]  # more parts than one call of the library takes
        parts = [fatune.attention(q, k[:, :, a:b].contiguous(), v[:, :, a:b].contiguous(), return_lse=True)
                 for a, b in zip(bounds, bounds[1:])]
        out, lse = fatune.merge(parts)
        self.close(out, whole)
        self.close(lse, whole_lse, 1e-4)
        self.assertTrue(torch.equal(out, fatune.merge(parts)[0]))
        out, lse = fatune.merge([(part.float(), sums) for part, sums in parts])
        self.close(out, whole)
        self.close(lse, whole_lse, 1e-4)

    def test_sinks_of_one_part_are_those_of_all(self):
        q, k, v = tensors((2, 4, 9, 32), (2, 2, 70, 32), (2, 2, 70, 32))
        sinks = torch.tensor([0.5, -1.0, 3.0, -torch.inf])
        whole, whole_lse = fatune.attention(q, k, v, sinks=sinks, return_lse=True)
        ends = [tensor[:, :, 40:].contiguous() for tensor in (k, v)]
        rest = fatune.attention(q, *ends, return_lse=True)
        nothing = torch.full_like(rest[0], torch.nan), torch.full_like(rest[1], -torch.inf)
        parts = [fatune.attention(q, k[:, :, :40], v[:, :, :40], sinks=sinks, return_lse=True), nothing, rest]
        out, lse = fatune.merge(parts)
        self.close(out, whole)
        self.close(lse, whole_lse, 1e-4)

    def test_sinks_added_by_the_merge(self):
        q, k, v = tensors((2, 4, 9, 32), (2, 2, 70, 32), (2, 2, 70, 32))
        sinks = torch.tensor([0.5, -1.0, 3.0, -torch.inf])
        whole, whole_lse = fatune.attention(q, k, v, sinks=sinks, return_lse=True)
        bounds = [0, *range(1, 36), 70]  # more parts than one call of the library takes; the last call adds the sinks
        parts = [fatune.attention(q, k[:, :, a:b].contiguous(), v[:, :, a:b].contiguous(), return_lse=True)
                 for a, b in zip(bounds, bounds[1:])]
        out, lse = fatune.merge(parts, sinks=sinks)
        self.close(out, whole)
        self.close(lse, whole_lse, 1e-4)
        with self.assertRaisesRegex(ValueError, r"sinks is \(3,\).*allowed: contiguous float32 \(4,\)"):
            fatune.merge(parts, sinks=sinks[:3])
        with self.assertRaisesRegex(TypeError, "sinks is list; allowed: torch.Tensor"):
            fatune.merge(parts, sinks=[0.5] * 4)

    def test_parts_that_are_none_are_named(self):
        out, lse = fatune.attention(*tensors((1, 2, 9, 32), (1, 2, 9, 32), (1, 2, 9, 32)), return_lse=True)
        wrong = ((TypeError, r"parts\[1\] is Tensor; allowed: a pair \(out, lse\)", [(out, lse), out]),
                 (TypeError, r"parts\[0\]\[1\] is NoneType; allowed: torch.Tensor", [(out, None)]),
                 (ValueError, r"parts\[0\]\[0\] has 3 dimensions; allowed: 4", [(out[0], lse[0])]),
                 (ValueError, r"parts\[1\]\[1\] is \(1, 2, 8\)", [(out, lse), (out, lse[:, :, :8].contiguous())]))
        for kind, message, parts in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                fatune.merge(parts)


class Decode(Emulated):
    """Three batch entries, of which two share their first page, in pages of 16 rows; NaN wherever no key is."""
    LENGTHS, PAGE = [40, 0, 19], 16
    TABLE = [[7, 2, 5, -1], [-1, -1, -1, -1], [7, 0, -1, -1]]

    def pools(self, heads, dim, heads_first):
        keys = [tensors((length, heads, dim), (length, heads, dim), seed=n) for n, length in enumerate(self.LENGTHS)]
        shape = (9, heads, self.PAGE, dim) if heads_first else (9, self.PAGE, heads, dim)
        pools = [torch.full(shape, torch.nan, dtype=torch.float16) for _ in range(2)]
        views = [pool.transpose(1, 2) if heads_first else pool for pool in pools]
        for of_entry, row in zip(keys, self.TABLE):
            for own, view in zip(of_entry, views):
                for j in range(own.shape[0]):
                    view[row[j // self.PAGE], j % self.PAGE] = own[j]
        for own, other in zip(keys[0], keys[2]):
            own[:self.PAGE] = other[:self.PAGE]  # written last
        return keys, views

    def check_entry(self, q, own, out):
        """q, out: [queries, heads, dim]."""
        nq, nk = q.shape[0], own[0].shape[0]
        see = torch.ones(nq, nk, dtype=torch.bool).tril(nk - nq)
        wanted = reference(*(tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, *own)), bias=see)
        self.close(out.transpose(0, 1).unsqueeze(0), wanted)

    def arguments(self):
        return torch.tensor(self.TABLE, dtype=torch.int32), torch.tensor(self.LENGTHS, dtype=torch.int32)

    def test_batch_entries_find_their_pages(self):
        for queries, heads_first in ((1, False), (3, True)):
            keys, pools = self.pools(2, 32, heads_first)
            q = tensors((3, queries, 4, 32), seed=9)[0]
            out, lse = fatune.decode(q, *pools, *self.arguments(), return_lse=True)
            self.assertEqual(tuple(lse.shape), (3, 4, queries))
            for entry in (0, 2):
                self.check_entry(q[entry], keys[entry], out[entry])
            self.assertTrue((out[1] == 0).all())

    def test_queries_may_be_packed(self):
        keys, pools = self.pools(2, 32, False)
        starts = torch.tensor([0, 5, 5, 24], dtype=torch.int32)
        q = tensors((24, 4, 32), seed=9)[0]
        out = fatune.decode(q, *pools, *self.arguments(), cu_seqlens_q=starts, max_length=40)
        self.check_entry(q[:5], keys[0], out[:5])
        self.check_entry(q[5:], keys[2], out[5:])

    def test_new_rows_are_written_first(self):
        keys, pools = self.pools(2, 32, True)
        q, new_k, new_v = tensors((3, 2, 4, 32), (3, 2, 2, 32), (3, 2, 2, 32), seed=9)
        for entry in (0, 2):
            for own, new in zip(keys[entry], (new_k, new_v)):
                own[-2:] = new[entry]
        out = fatune.decode(q, *pools, *self.arguments(), new_k=new_k, new_v=new_v)
        for entry in (0, 2):
            self.check_entry(q[entry], keys[entry], out[entry])
        with self.assertRaisesRegex(ValueError, "one of new_k, new_v is None"):
            fatune.decode(q, *pools, *self.arguments(), new_k=new_k)

    def test_wrong_tables_are_named(self):
        _, pools = self.pools(2, 32, False)
        q = tensors((3, 1, 4, 32))[0]
        table, lengths = self.arguments()
        with self.assertRaisesRegex(fatune.Error, r"page 9 in column 1 of batch entry 2; allowed: 0 .. 8"):
            wrong = table.clone()
            wrong[2, 1] = 9
            fatune.decode(q, *pools, wrong, lengths)
        with self.assertRaisesRegex(fatune.Error, r"seqused_k\[0\] is 65"):
            fatune.decode(q, *pools, table, torch.tensor([65, 0, 1], dtype=torch.int32))
        with self.assertRaisesRegex(ValueError, r"page_table is \(3, 4\) torch.int64"):
            fatune.decode(q, *pools, table.long(), lengths)
        with self.assertRaisesRegex(ValueError, "max_length is 65; allowed: 1 .. 64"):
            fatune.decode(q, *pools, table, lengths, max_length=65)

    def test_what_does_not_fit_is_named(self):
        _, (keys, values) = self.pools(2, 32, False)
        q = tensors((3, 1, 4, 32))[0]
        table, lengths = self.arguments()
        good = dict(q=q, k_pages=keys, v_pages=values, page_table=table, lengths=lengths)
        few = torch.tensor([[1]], dtype=torch.int32)
        wrong = ((TypeError, "lengths is list; allowed: torch.Tensor", dict(lengths=[40, 0, 19])),
                 (TypeError, "page_table is NoneType; allowed", dict(page_table=None)),
                 (TypeError, "cu_seqlens_q is list; allowed", dict(cu_seqlens_q=[0, 3])),
                 (TypeError, "new_k is list; allowed", dict(new_k=[1], new_v=q)),
                 (TypeError, "max_length is 'a'; allowed: an int, or None", dict(max_length="a")),
                 (TypeError, "v_pages is torch.bfloat16", dict(v_pages=values.bfloat16())),
                 (ValueError, r"page_table is \(1, 1\) .*; allowed: int32 \(3, 1\)", dict(page_table=few, lengths=few[0])),
                 (ValueError, r"strides \(2,\); allowed: contiguous int32 \(3,\)", dict(lengths=lengths.repeat_interleave(2)[::2])),
                 (ValueError, "v_pages has 64 keys and 1 heads; allowed: those of k_pages", dict(v_pages=values[:, :, :1])),
                 (ValueError, "v_pages is on meta; allowed: cpu", dict(v_pages=values.to("meta"))),
                 (ValueError, "out is .* on meta; allowed: .* on cpu", dict(out=q.to("meta"))),
                 (ValueError, "causal is 'left'; allowed", dict(causal="left")))
        for kind, message, other in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                fatune.decode(**{**good, **other})

    def test_causal_may_begin_at_the_first_key(self):
        keys, pools = self.pools(2, 32, False)
        for queries in (1, 3):
            q = tensors((3, queries, 4, 32), seed=9)[0]
            out = fatune.decode(q, *pools, *self.arguments(), causal="top-left")
            for entry in (0, 2):
                own = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q[entry], *keys[entry]))
                self.close(out[entry].transpose(0, 1).unsqueeze(0), reference(*own, causal=True))

    def test_no_batch_entries(self):
        _, pools = self.pools(2, 32, False)
        table, lengths = (tensor[:0] for tensor in self.arguments())
        self.assertEqual(tuple(fatune.decode(tensors((0, 1, 4, 32))[0], *pools, table, lengths).shape), (0, 1, 4, 32))
        out = torch.full((5, 4, 32), 7, dtype=torch.float16)  # rows that no batch entry has are not written
        q, starts = tensors((5, 4, 32))[0], torch.zeros(1, dtype=torch.int32)
        fatune.decode(q, *pools, table, lengths, cu_seqlens_q=starts, out=out)
        self.assertTrue((out == 7).all())


class Varlen(Emulated):
    LENGTHS = [0, 33, 1, 150, 0, 64]

    def starts(self, lengths):
        return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).to(torch.int32)

    def test_each_sequence_is_for_itself(self):
        starts = self.starts(self.LENGTHS)
        rows = sum(self.LENGTHS) + 7  # the last ones belong to no sequence
        q, k, v = tensors((rows, 4, 32), (rows, 2, 32), (rows, 2, 32))
        used = torch.tensor([0, 33, 1, 99, 0, 64], dtype=torch.int32)
        out = torch.full_like(q, 7)
        same, lse = fatune.varlen(q, k, v, starts, starts, seqused_q=used, seqused_k=used, causal=True, out=out,
                                  return_lse=True)
        self.assertIs(same, out)
        self.assertEqual(tuple(lse.shape), (4, rows))
        left = torch.ones(rows, dtype=torch.bool)
        for first, length in zip(starts.tolist(), used.tolist()):
            part = slice(first, first + length)
            left[part] = False
            if length:
                own = (tensor[part].transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
                self.close(out[part].transpose(0, 1).unsqueeze(0), reference(*own, causal=True))
        self.assertTrue((out[left] == 7).all())

    def test_gradients_are_those_of_each_sequence(self):
        starts, rows = self.starts(self.LENGTHS), sum(self.LENGTHS) + 7
        used = torch.tensor([0, 33, 1, 99, 0, 64], dtype=torch.int32)
        q, k, v, dout = tensors((rows, 4, 32), (rows, 2, 32), (rows, 2, 32), (rows, 4, 32))
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        dlse = torch.randn(4, rows)
        out, lse = fatune.varlen(*leaves, starts, starts, seqused_q=used, seqused_k=used, causal=True, return_lse=True,
                                 deterministic=True)
        gradients = torch.autograd.grad((out, lse), leaves, (dout, dlse))
        left = torch.ones(rows, dtype=torch.bool)
        for first, length in zip(starts.tolist(), used.tolist()):
            part = slice(first, first + length)
            left[part] = False
            if not length:
                continue
            own = [leaf[part].detach().transpose(0, 1).unsqueeze(0).requires_grad_() for leaf in leaves]
            own_out, own_lse = fatune.attention(*own, causal=True, return_lse=True)
            wanted = torch.autograd.grad((own_out, own_lse), own,
                                         (dout[part].transpose(0, 1).unsqueeze(0), dlse[:, part].unsqueeze(0)))
            for gradient, other in zip(gradients, wanted):
                self.close(gradient[part].transpose(0, 1).unsqueeze(0), other)
        for gradient in gradients:
            self.assertTrue((gradient[left] == 0).all())

    def test_lengths_that_change_before_the_backward_are_told(self):
        q, k, v = tensors((70, 1, 32), (70, 1, 32), (70, 1, 32))
        starts = self.starts([30, 40])
        out = fatune.varlen(q.requires_grad_(), k, v, starts, starts)
        starts[1] = 20
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()

    def test_wrong_lengths_are_named(self):
        q, k, v = tensors((70, 1, 32), (70, 1, 32), (70, 1, 32))
        starts = self.starts([30, 40])
        cases = (([0, 30, 20], r"cu_seqlens_q\[2\] is 20, and the one before is 30.*batch entry 1"),
                 ([0, 30, 71], r"cu_seqlens_q\[2\] is 71; allowed: at most seqlen_q, 70 \(batch entry 1\)"),
                 ([1, 30, 70], r"cu_seqlens_q\[0\] is 1; allowed: 0"))
        for wrong, message in cases:
            with self.subTest(wrong), self.assertRaisesRegex(fatune.Error, message):
                fatune.varlen(q, k, v, torch.tensor(wrong, dtype=torch.int32), starts)
        used = torch.tensor([30, 41], dtype=torch.int32)
        with self.assertRaisesRegex(fatune.Error, r"seqused_k\[1\] is 41; allowed: 0 .. 40, the rows of batch entry 1"):
            fatune.varlen(q, k, v, starts, starts, seqused_k=used)
        with self.assertRaisesRegex(ValueError, r"cu_seqlens_q is \(3,\) torch.int64"):
            fatune.varlen(q, k, v, starts.long(), starts)
        with self.assertRaisesRegex(ValueError, r"cu_seqlens_q is \(0,\); allowed: \(sequences \+ 1,\)"):
            fatune.varlen(q, k, v, starts[:0], starts)
        for wrong in (None, [0, 30, 70]):
            with self.assertRaisesRegex(TypeError, f"cu_seqlens_k is {type(wrong).__name__}; allowed: torch.Tensor"):
                fatune.varlen(q, k, v, starts, wrong)
        with self.assertRaisesRegex(ValueError, "out is given where gradients are wanted"):
            fatune.varlen(q.requires_grad_(), k, v, starts, starts, out=torch.empty_like(k))


if __name__ == "__main__":
    unittest.main()
