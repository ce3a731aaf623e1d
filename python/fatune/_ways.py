"""How calls of sdpa() go that fatune serves: what is decided once for tensors of one kind, and done for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ._attention import attend, attention
from ._launch import GROUPED, O_AS_BSHD, as_input

if TYPE_CHECKING:
    from typing import Any

_BIASES = {"torch.float16": "bias_fp16", "torch.bfloat16": "bias_bf16", "torch.float32": "bias_fp32"}
_DIM_LEAST, DIM_MOST, _DIM_STEP = 16, 256, 8  # head dims that kernels have
_SECTOR = 32  # bytes of memory that are read together
_ZEROS_MOST = 16 << 20  # bytes of zeros that are kept to be put behind rows; of larger tensors PyTorch makes them each time
_kept: dict[Any, list[Any]] = {}  # zeros by dtype and device, the most last


def dim_of_kernel(dim):
    """The least head dim of kernels that is not less."""
    return max(_DIM_LEAST, -(-dim // _DIM_STEP) * _DIM_STEP)


def score_of(attn_mask):
    """The score function of a dense mask or bias, and what it calls it."""
    if str(attn_mask.dtype) == "torch.bool":
        return "mask", "mask"
    return _BIASES[str(attn_mask.dtype)], "bias"


def _zeros(dtype, device, shape):
    """Zeros that all streams may read for ever, dense; they share memory."""
    import torch
    count = math.prod(shape)
    kept = _kept.setdefault((dtype, device), [])
    if not kept or kept[-1].numel() < count:
        kept.append(torch.zeros(1 << max(count - 1, 1 << 16).bit_length(), dtype=dtype, device=device))
        if kept[-1].is_cuda:
            torch.cuda.current_stream(device).synchronize()
    return kept[-1][:count].view(shape)


def _arrangement(tensor):
    """Whether memory is dense with the second and third dimension exchanged; None: it is not dense."""
    return False if tensor.is_contiguous() else True if tensor.transpose(1, 2).is_contiguous() else None


class _Group:
    """Tensors that become parts of one, made by one kernel."""

    def __init__(self, tensors, turned):
        self.dims = [tensor.shape[-1] for tensor in tensors]
        self.widths = [dim_of_kernel(dim) for dim in self.dims]
        leading = tensors[0].shape[:-1]
        if turned:
            leading = leading[0], leading[2], leading[1]
        like, more = tensors[0], [width - dim for dim, width in zip(self.dims, self.widths)]
        self._turned, self._zeros = turned, None
        if turned is not None and max(more) * math.prod(leading) * like.element_size() <= _ZEROS_MOST:
            self._zeros = [_zeros(like.dtype, like.device, (*leading, extra)) for extra in more]

    def widen(self, torch, tensors):
        if self._zeros is None:
            return [torch.constant_pad_nd(tensor, (0, width - dim)) for tensor, dim, width in zip(tensors, self.dims, self.widths)]
        if self._turned:
            tensors = [tensor.transpose(1, 2) for tensor in tensors]
        whole = torch.cat([part for both in zip(tensors, self._zeros) for part in both], -1)
        if self._turned:
            whole = whole.transpose(1, 2)
        return (whole,) if len(tensors) == 1 else torch.split_with_sizes(whole, self.widths, -1)


class Widening:
    """Zeros behind rows of lengths that kernels lack. They add nothing to any score, and give columns of O that are cut off.
    Tensors of one shape become parts of one where their rows are whole sectors of memory, so that it costs no more traffic.
    What is not dense or would take many zeros is copied by PyTorch's padding, in two kernels each."""

    def __init__(self, *tensors):
        groups = {}
        for n, tensor in enumerate(tensors):
            width = dim_of_kernel(tensor.shape[-1])
            if width != tensor.shape[-1]:
                turned = _arrangement(tensor)
                shares = turned is not None and width * tensor.element_size() % _SECTOR == 0
                groups.setdefault((tensor.shape[:-1], turned) if shares else n, []).append(n)
        self.members = [*groups.values()]
        self._groups = [_Group([tensors[n] for n in members], _arrangement(tensors[members[0]])) for members in self.members]

    def changes(self, n):
        """Whether the n-th of the tensors is widened."""
        return any(n in members for members in self.members)

    def __call__(self, *tensors):
        """The tensors, widened; for autograd they come from nowhere."""
        import torch
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._widen(torch, tensors)
        return self._widen(torch, tensors)

    def _widen(self, torch, tensors):
        tensors = list(tensors)
        for members, group in zip(self.members, self._groups):
            for n, tensor in zip(members, group.widen(torch, [tensors[n] for n in members])):
                tensors[n] = tensor
        return tensors


class WideningAnyLayout:
    """The same of one tensor of a shape, which comes in any layout."""

    def __init__(self, like, shape):
        given = like.new_empty(()).expand(shape)
        self._groups = {turned: _Group([given], turned) for turned in (False, True, None)}

    def __call__(self, tensor):
        import torch
        with torch.no_grad():
            return self._groups[_arrangement(tensor)].widen(torch, [tensor])[0]


class Widened:
    """Tensors that were widened, for attend(): those that were given get the gradients."""

    def __init__(self, given, tensors, of_o):
        """of_o: what widens O's gradient, or None."""
        self.given, self._tensors, self._of_o = given, tensors, of_o
        self._dims = [tensor.shape[-1] for tensor in given]

    def take(self):
        """The tensors, once: what is differentiated keeps what it needs."""
        tensors, self.given, self._tensors = self._tensors, None, None
        return tensors

    def narrow_o(self, out):
        return out if self._of_o is None else out[..., :self._dims[2]]

    def widen_o(self, dout):
        return as_input(dout) if self._of_o is None else self._of_o(dout)

    def narrow(self, *gradients):
        return [gradient if gradient.shape[-1] == dim else gradient[..., :dim] for gradient, dim in zip(gradients, self._dims)]


class Way:
    """What becomes of query, key, value [batch, heads, seq, dim] and attn_mask of one kind: sizes, strides, dtypes, device."""

    def __init__(self, query, key, value, attn_mask, is_causal, scale, enable_gqa):
        dim = query.shape[-1]
        widens = any(dim_of_kernel(tensor.shape[-1]) != tensor.shape[-1] for tensor in (query, value))
        self.widens, self.plain = widens, not widens and attn_mask is None  # plain: the tensors go to attention() as they are
        self._widening = Widening(query, key, value) if widens else None
        self._stays = [not widens or not self._widening.changes(n) for n in range(3)]
        self._of_o = None
        if widens and self._widening.changes(2):
            self._of_o = WideningAnyLayout(query, (*query.shape[:-1], value.shape[-1]))
        self._scale = 1 / math.sqrt(dim) if scale is None and widens else scale
        self._causal, self._layout = "top-left" if is_causal else False, GROUPED if enable_gqa else O_AS_BSHD
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
            asked = (None, 0, None, self._causal, None, self._scale, dropout, None, self._layout, None, deterministic, score, None,
                     captured, None, None, None, 0, False)
            return attend(query, key, value, asked, False, False, None, owners, widened)
        out = attention(query, key, value, causal=self._causal, scale=self._scale, dropout=dropout, layout=self._layout, tf32=None,
                        deterministic=deterministic, score=score, captured=captured)
        return out if self._of_o is None else out[..., :given[2].shape[-1]]
