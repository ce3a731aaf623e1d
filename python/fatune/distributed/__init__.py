"""Attention over several GPUs: each process has some rows of a sequence, on a process group of torch.distributed.

    q, k, v = (fatune.distributed.shard(tensor) for tensor in (q, k, v))     # or made in shares from the start
    out = fatune.distributed.attention(q, k, v, causal=True)
    whole = fatune.distributed.unshard(out)
"""

from ._attention import attention
from ._bundle import share_caches
from ._context_parallel import context_parallel, context_parallel_unshard
from ._shares import positions, shard, unshard
from ._transport import Broken

__all__ = ["Broken", "attention", "context_parallel", "context_parallel_unshard", "positions", "shard",
           "share_caches", "unshard"]
