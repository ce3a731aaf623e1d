"""Each built-in score function beside its formula in PyTorch, written down anew from where it comes from: values in float64,
and the gradients of what it captures. On an emulated GPU."""

import math
import pathlib
import unittest

import test_torch

import fatune

if test_torch.HAS_TORCH:
    import torch

BATCH, HEADS, QUERIES, KEYS = 2, 4, 48, 72
WIDTH, REACH = 9, 2


def t5_bucket(relative, bidirectional, buckets=32, distance=128):
    """relative_position_bucket of the T5 of transformers: relative is key less query."""
    bucket = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        bucket = (relative > 0).long() * buckets
        relative = relative.abs()
    else:
        relative = (-relative).clamp(min=0)
    exact = buckets // 2
    log = torch.log(relative.clamp(min=1).double() / exact) / math.log(distance / exact)
    far = exact + (log * (buckets - exact) + 1e-4).long()
    return bucket + torch.where(relative < exact, relative, far.clamp(max=buckets - 1))


def near_in_one_dimension(query, key, extent):
    """As NATTEN has it: each query has 2 REACH + 1 keys, those at an end the outermost ones."""
    return (key - query.clamp(REACH, extent - 1 - REACH)).abs() <= REACH


def cases(draw):
    """Name -> what is captured, and a function of s that gives the scores in float64, keys that are hidden being -inf."""
    i, j = torch.arange(QUERIES)[:, None], torch.arange(KEYS)
    own = i + KEYS - QUERIES

    def hide(keep):
        return lambda s, **_: s.masked_fill(~keep, -math.inf)

    def add(of):
        return lambda s, **captured: s + of(**captured)
    full = (BATCH, HEADS, QUERIES, KEYS)
    bias = draw(*full)
    document = torch.tensor([0] * 20 + [1] * 30 + [2] * 22, dtype=torch.int32).expand(BATCH, KEYS)
    keep = draw(*full) > 0
    keep[..., 0] = True
    low = torch.randint(0, KEYS // 2, (BATCH, QUERIES), dtype=torch.int32)
    prefix = torch.tensor([5, 30], dtype=torch.int32)
    bounds = torch.zeros(BATCH, QUERIES, 8, dtype=torch.int32)
    bounds[..., 1], bounds[..., 2], bounds[..., 3] = 3, low + 5, low + 9
    yq, xq, yk, xk = i // WIDTH, i % WIDTH, j // WIDTH, j % WIDTH
    shared = {"buckets": 32, "distance": 128}
    return {
        "alibi": ({"slope": draw(HEADS).abs()}, lambda s, slope: s - slope[:, None, None] * (own - j).abs()),
        "bias_bf16": ({"bias": bias.bfloat16()}, add(lambda bias: bias)),
        "bias_fp16": ({"bias": bias.half()}, add(lambda bias: bias)),
        "bias_fp32": ({"bias": bias.clone()}, add(lambda bias: bias)),
        "block_causal": ({"block": 7}, hide(j // 7 <= own // 7)),
        "dilated": ({"step": 3, "reach": 5}, hide(((own - j) % 3 == 0) & ((own - j).abs() <= 15))),
        "documents": ({"document": document}, hide(document[:, None, KEYS - QUERIES:, None] == document[:, None, None])),
        "interval": ({"low": low, "high": low + 9}, hide((j >= low[:, None, :, None]) & (j < low[:, None, :, None] + 9))),
        "mask": ({"mask": keep}, hide(keep)),
        "neighbourhood": ({"height": KEYS // WIDTH, "width": WIDTH, "reach": REACH},
                          hide(near_in_one_dimension(yq, yk, KEYS // WIDTH) & near_in_one_dimension(xq, xk, WIDTH))),
        "prefix_lm": ({"prefix": prefix}, hide((j < prefix[:, None, None, None]) | (j <= own))),
        "rectangles": ({"bounds": bounds}, hide((j < 3) | ((j >= bounds[:, None, :, 2:3]) & (j < bounds[:, None, :, 3:4])))),
        "relative": ({"bias": draw(HEADS, QUERIES + KEYS - 1)}, add(lambda bias: bias[:, j - own + KEYS - 1])),
        "softcap": ({"cap": 2.0}, lambda s, cap: cap * torch.tanh(s / cap)),
        "t5": ({"bias": draw(HEADS, 32), **shared}, add(lambda bias, **_: bias[:, t5_bucket(j - own, True)])),
        "t5_causal": ({"bias": draw(HEADS, 32), **shared}, add(lambda bias, **_: bias[:, t5_bucket(j - own, False)])),
    }


class BuiltIn(test_torch.Emulated):
    def test_all_are_asked_for(self):
        folder = pathlib.Path(__file__).resolve().parents[2] / "templates" / "scores"
        self.assertEqual(sorted(cases(torch.randn)), sorted(path.stem for path in folder.glob("*.lua")))

    def test_values_and_gradients(self):
        generator = torch.Generator().manual_seed(7)
        q, k, v = test_torch.tensors((BATCH, HEADS, QUERIES, 32), (BATCH, 2, KEYS, 32), (BATCH, 2, KEYS, 32))
        dout = torch.randn(q.shape, generator=generator).half()
        exact = [tensor.double() for tensor in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))]
        for name, (captured, scores_of) in cases(lambda *shape: torch.randn(*shape, generator=generator)).items():
            with self.subTest(name=name):
                learnt = [key for key, value in captured.items() if torch.is_tensor(value) and value.is_floating_point()]
                ours = {key: value.requires_grad_() if key in learnt else value for key, value in captured.items()}
                theirs = {key: value.detach().double().requires_grad_() if key in learnt else value
                          for key, value in captured.items()}
                scores = scores_of(exact[0] @ exact[1].mT / 32**0.5, **theirs)
                expected = scores.softmax(-1) @ exact[2]
                out = fatune.attention(q, k, v, score=name, captured=ours)
                self.close(out, expected)
                if learnt:
                    mine = torch.autograd.grad(out, [ours[key] for key in learnt], dout)
                    for a, b in zip(mine, torch.autograd.grad(expected, [theirs[key] for key in learnt], dout.double())):
                        self.close(a, b, 2e-2 * max(1.0, b.abs().max().item()))


if __name__ == "__main__":
    unittest.main()
