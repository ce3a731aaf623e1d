"""fatune: exact attention on NVIDIA GPUs by kernels compiled and tuned for the case at hand.

A thin layer over the C library (runtime/fatune.h is its manual): PyTorch tensors go in by address
and strides, on the current stream; nothing is copied, and nothing waits for the GPU.

    out = fatune.attention(q, k, v, causal=True)              # [batch, heads, seq, dim], as SDPA
    out, lse = fatune.attention(q, k, v, dropout=0.1, seed=7, return_lse=True)
    out.sum().backward()                                      # where q, k, v want gradients

PyTorch is imported at the first call that takes tensors, so the package also serves machines
without it (parse_request, Session.emit, Session.tune).
"""

from . import arrays, distributed, score
from ._attention import BlockMask, attention
from ._backend import register_pytorch
from ._decode import decode
from ._devices import default_session, emulate
from ._drop_in import FallbackWarning, sdpa
from ._flash import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from ._library import Error, library_path, version
from ._merge import merge
from ._quantise import quantise
from ._session import Plan, Request, Session, parse_request
from ._transformers import register_transformers
from ._varlen import varlen
from ._visible import RectangleMask, VisibleMask

__version__ = version()

__all__ = [
    "BlockMask", "Error", "FallbackWarning", "Plan", "RectangleMask", "Request", "Session", "VisibleMask", "arrays", "attention", "decode",
    "default_session", "distributed", "emulate", "flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "library_path", "merge",
    "parse_request", "quantise", "register_pytorch", "register_transformers", "score", "sdpa", "varlen", "version",
]
