"""How calls of sdpa() go that fatune serves: what is decided once for tensors of one kind, and done for each."""

from __future__ import annotations

import functools
import math

from ._attention import attend, attention
from ._launch import O_AS_BSHD, as_input

_BIASES = {"torch.float16": "bias_fp16", "torch.bfloat16": "bias_bf16", "torch.float32": "bias_fp32"}
_DIM_LEAST, DIM_MOST, _DIM_STEP = 16, 256, 8  # head dims that kernels have
_SECTOR = 32  # bytes of memory that are read together


def dim_of_kernel(dim):
    """The least head dim of kernels that is not less."""
    return max(_DIM_LEAST, -(-dim // _DIM_STEP) * _DIM_STEP)


def score_of(attn_mask):
    """The score function of a dense mask or bias, and what it calls it."""
    if str(attn_mask.dtype) == "torch.bool":
        return "mask", "mask"
    return _BIASES[str(attn_mask.dtype)], "bias"


@functools.lru_cache(maxsize=None)
def _zero(dtype, device):
    """One that all streams may read for ever."""
    import torch
    zero = torch.zeros((1, 1, 1, 1), dtype=dtype, device=device)
    if zero.is_cuda:
        torch.cuda.current_stream(device).synchronize()
    return zero


class Widening:
    """Zeros behind rows of lengths that kernels lack. They add nothing to any score, and give columns of O that are cut off.
    Tensors of one shape become parts of one, made by one kernel, where that costs no memory traffic."""

    def __init__(self, *tensors):
        groups = {}
        for n, tensor in enumerate(tensors):
            width = dim_of_kernel(tensor.shape[-1])
            if width != tensor.shape[-1]:
                shares = width * tensor.element_size() % _SECTOR == 0
                groups.setdefault(tensor.shape[:-1] if shares else n, []).append(n)
        self._groups = []
        zero = _zero(tensors[0].dtype, tensors[0].device)
        for members in groups.values():
            widths = [dim_of_kernel(tensors[n].shape[-1]) for n in members]
            zeros = [zero.expand(*tensors[n].shape[:-1], width - tensors[n].shape[-1]) for n, width in zip(members, widths)]
            self._groups.append((members, zeros, widths))

    def changes(self, n):
        """Whether the n-th of the tensors is widened."""
        return any(n in members for members, _, _ in self._groups)

    def __call__(self, *tensors):
        """The tensors, widened; for autograd they come from nowhere."""
        import torch
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._widen(torch, tensors)
        return self._widen(torch, tensors)

    def _widen(self, torch, tensors):
        tensors = list(tensors)
        for members, zeros, widths in self._groups:
            parts = [part for n, of_part in zip(members, zeros) for part in (tensors[n], of_part)]
            whole = torch.cat(parts, -1)
            for n, tensor in zip(members, (whole,) if len(members) == 1 else torch.split_with_sizes(whole, widths, -1)):
                tensors[n] = tensor
        return tensors


class Widened:
    """Tensors that were widened, for attend(): those that were given get the gradients."""

    def __init__(self, given, tensors, of_o):
        """of_o: the Widening of O and its gradient, or None."""
        self.given, self._tensors, self._of_o = given, tensors, of_o
        self._dims = [tensor.shape[-1] for tensor in given]

    def take(self):
        """The tensors, once: what is differentiated keeps what it needs."""
        tensors, self.given, self._tensors = self._tensors, None, None
        return tensors

    def narrow_o(self, out):
        return out if self._of_o is None else out[..., :self._dims[2]]

    def widen_o(self, dout):
        return as_input(dout) if self._of_o is None else self._of_o(dout)[0]

    def narrow(self, *gradients):
        return [gradient if gradient.shape[-1] == dim else gradient[..., :dim] for gradient, dim in zip(gradients, self._dims)]


class Way:
    """What becomes of query, key, value [batch, heads, seq, dim] and attn_mask of one kind: sizes, strides, dtypes, device."""

    def __init__(self, query, key, value, attn_mask, is_causal, scale):
        dim = query.shape[-1]
        widens = any(dim_of_kernel(tensor.shape[-1]) != tensor.shape[-1] for tensor in (query, value))
        self.widens, self.plain = widens, not widens and attn_mask is None  # plain: the tensors go to attention() as they are
        self._widening = Widening(query, key, value) if widens else None
        self._stays = [not widens or not self._widening.changes(n) for n in range(3)]
        self._of_o = None
        if widens and self._widening.changes(2):
            self._of_o = Widening(query.new_empty(()).expand(*query.shape[:-1], value.shape[-1]))
        self._scale = 1 / math.sqrt(dim) if scale is None and widens else scale
        self._causal = "top-left" if is_causal else False
        self._shape = None
        if attn_mask is not None:
            self._shape = *query.shape[:-1], key.shape[-2]
            self._score, self._name = score_of(attn_mask)

    def takes(self, *tensors):
        """Whether they can be read where they lie, or are widened."""
        return all(as_input(tensor) is tensor for tensor, stays in zip(tensors, self._stays) if stays)

    def takes_addresses(self, query, key, value):
        """The same of other tensors of the kind."""
        return all(tensor.data_ptr() % 16 == 0 for tensor, stays in zip((query, key, value), self._stays) if stays)

    def run(self, query, key, value, attn_mask, dropout):
        """O. Nobody but autograd looks on."""
        import torch
        deterministic = torch.are_deterministic_algorithms_enabled()
        given = query, key, value
        if self._widening is not None:
            query, key, value = self._widening(*given)
        learns = torch.is_grad_enabled()
        learns_mask = learns and attn_mask is not None and attn_mask.requires_grad
        learns = learns and self._widening is not None and any(tensor.requires_grad for tensor in given)
        score, captured, owners = None, None, None
        if attn_mask is not None:
            score = self._score
            captured = {self._name: (attn_mask.detach() if attn_mask.requires_grad else attn_mask).expand(self._shape)}
            owners = {self._name: attn_mask} if learns_mask else None
        if learns or learns_mask:
            widened = None if self._widening is None else Widened(given, (query, key, value), self._of_o)
            asked = (None, 0, None, self._causal, None, self._scale, dropout, None, O_AS_BSHD, None, deterministic, score, None,
                     captured, None, None, None, 0)
            return attend(query, key, value, asked, False, False, None, owners, widened)
        out = attention(query, key, value, causal=self._causal, scale=self._scale, dropout=dropout, layout=O_AS_BSHD, tf32=None,
                        deterministic=deterministic, score=score, captured=captured)
        return out if self._of_o is None else out[..., :given[2].shape[-1]]
