"""Attention and its gradients on NumPy arrays, by a GPU's kernels on an emulated GPU, beside NumPy's own arithmetic.

    python3 numpy_attention.py [GPU]      # a100, h200, ... (`fatune gpus`); needs a C++ compiler, no GPU
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import fatune  # noqa: E402
from fatune import arrays  # noqa: E402


def by_numpy(q, k, v, dout):
    """O and the gradients in float64, causal."""
    q, k, v, dout = (array.astype(np.float64) for array in (q, k, v, dout))
    scale = 1 / np.sqrt(q.shape[-1])
    s = scale * q @ k.swapaxes(-1, -2)
    s[..., ~np.tri(*s.shape[-2:], dtype=bool)] = -np.inf
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ v
    ds = scale * p * (dout @ v.swapaxes(-1, -2) - (dout * out).sum(-1, keepdims=True))
    return out, ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dout


def main():
    session = fatune.Session(emulate=sys.argv[1] if len(sys.argv) > 1 else "a100")
    chance = np.random.default_rng(1)
    q, k, v, dout = (chance.standard_normal((1, 2, 96, 64)).astype(np.float16) for _ in range(4))

    options = {"causal": True, "session": session}
    out, lse = arrays.attention(q, k, v, return_lse=True, **options)
    results = (out, *arrays.attention_backward(dout, q, k, v, out, lse, **options))

    worst = 0.0
    for name, ours, exact in zip(("O", "dQ", "dK", "dV"), results, by_numpy(q, k, v, dout)):
        error = np.abs(ours - exact).max() / np.abs(exact).max()
        worst = max(worst, error)
        print(f"{name:3} largest error {error:.1e} of the largest element")
    return 0 if worst < 2e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
