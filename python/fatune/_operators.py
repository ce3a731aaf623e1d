"""attention() as operators of torch.library, for torch.compile, fake tensors, functorch and whoever else looks at
operators: fatune::attention and fatune::attention_backward, with shapes for fake tensors and with gradients.

An operator holds tensors, numbers and text alone: sessions and masks go by their numbers (_session.by_number), a score
function as its text, what it captures as a list of tensors and one of numbers, each with its names.
"""

import math

import torch

from ._attention import takes_tf32
from ._autograd import bytes_of, refusal
from ._captured import SINKS
from ._devices import session_of
from ._dtypes import check_dtypes, output_dtype, three_descales
from ._launch import AXES, Call, as_input, check_shapes
from ._session import by_number

_OPTIONS = ("SymInt[] window, float scale, float dropout, SymInt seed, SymInt offset, str causal, str layout, "
            "bool deterministic, int mask, int session, str score, str[] tensor_names, str[] scalar_names, "
            "float[] scalars, bool? tf32")
# Behind the options and with defaults, so that graphs which were saved without them stay valid. The backward has none: there
# is none of 8-bit floats.
_BYTES = "Tensor? descale_q=None, Tensor? descale_k=None, Tensor? descale_v=None, int descale_rows=0, ScalarType? out_dtype=None, bool fast_exp=False"
_BYTES_DEFAULT = None, None, None, 0, None, False
_OPTION_COUNT = _OPTIONS.count(",") + 1
_SEEDS = "Tensor? seed_tensor, Tensor? offset_tensor, Tensor? sinks, Tensor[] captured"
_library = torch.library.Library("fatune", "DEF")
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_SEEDS}, {_OPTIONS}, {_BYTES}) -> (Tensor, Tensor)", tags=_TAGS)
_library.define("attention_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
                f"{_SEEDS}, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)", tags=_TAGS)


def attention_operator(q, k, v, *, causal, window, scale, dropout, seed, offset, mask, layout, deterministic, session,
                       score, visible, captured, sinks, tf32, descales, descale_rows, out_dtype, fast_exp):
    """(O, LSE) by the operator; arguments as attention()."""
    if callable(score) or visible is not None:
        raise TypeError("score or visible is a Python function under torch.compile or tracing; allowed: the name or the "
                        "Lua text of a score function. fatune.score.trace(score, visible, captured) makes the text, "
                        "outside")
    if causal in (True, False, None):
        causal = "bottom-right" if causal else ""
    if seed is None:
        seed = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device=q.device) if dropout else 0
    seed_tensor, seed = (seed, 0) if isinstance(seed, torch.Tensor) else (None, seed)
    offset_tensor, offset = (offset, 0) if isinstance(offset, torch.Tensor) else (None, offset)
    tensors, tensor_names, scalars, scalar_names = [], [], [], []
    for name, value in (captured or {}).items():
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            tensor_names.append(name)
        else:
            scalars.append(float(value))
            scalar_names.append(name)
    factors = [None if factor is None else factor.detach() for factor in three_descales(descales, descale_rows, k)]
    return torch.ops.fatune.attention(
        q, k, v, seed_tensor, offset_tensor, sinks, tensors, list(window or ()),
        1 / math.sqrt(q.shape[-1]) if scale is None else float(scale), float(dropout), seed, offset, causal, layout,
        deterministic, 0 if mask is None else mask.number if mask else -1, 0 if session is None else session.number, score or "",
        tensor_names, scalar_names, scalars, tf32, *factors, descale_rows, out_dtype, fast_exp)


def _of_bytes(options):
    """(Those of the backward, too; those of 8-bit floats) of the options of a forward, which PyTorch hands over without the
    last ones where they are the defaults."""
    of_bytes = options[_OPTION_COUNT:]
    return options[:_OPTION_COUNT], (*of_bytes, *_BYTES_DEFAULT[len(of_bytes):])


def _call(q, k, v, sinks, captured, options, of_bytes=_BYTES_DEFAULT):
    (window, scale, dropout, seed, offset, causal, layout, deterministic, mask, session, score, tensor_names,
     scalar_names, scalars, tf32) = options
    *factors, descale_rows, out_dtype, fast_exp = of_bytes
    for name, number in (("mask", mask), ("session", session)):
        if number > 0 and number not in by_number:
            raise RuntimeError(f"the {name} of a compiled attention is gone; allowed: one that lives as long as the "
                               "compiled function")
    call = Call(q, k, v, causal=causal or False, window=tuple(window) or None, scale=scale, dropout=dropout,
                mask=by_number[mask] if mask > 0 else False if mask else None, layout=layout, session=by_number[session] if session else None,
                deterministic=deterministic, score=score or None, sinks=sinks,
                tf32=takes_tf32(torch, q) if tf32 is None else tf32, descale_rows=descale_rows, out_dtype=out_dtype,
                fast_exp=fast_exp, descales=None if all(factor is None for factor in factors) else factors,
                captured={**dict(zip(tensor_names, captured)), **dict(zip(scalar_names, scalars))})
    return call, seed, offset


def _shapes(tensor, layout):
    batch, sequence, head = AXES[layout]
    return tensor.shape[batch], tensor.shape[sequence], tensor.shape[head], tensor.shape[3]


# ---- on real tensors --------------------------------------------------------------------------------

def _attention(q, k, v, seed_tensor, offset_tensor, sinks, captured, *options):
    options, of_bytes = _of_bytes(options)
    call, seed, offset = _call(q, k, v, sinks, captured, options, of_bytes)
    without_lse = of_bytes[-1]
    out = torch.empty(call.o_shape, dtype=call.o_dtype, device=q.device)
    lse = torch.empty(0 if without_lse else call.lse_shape, dtype=torch.float32, device=q.device)
    if out.numel() > 0:
        call.forward(q, k, v, out, None if without_lse else lse, seed if seed_tensor is None else seed_tensor,
                     offset if offset_tensor is None else offset_tensor, bytes_of(q))
    return out, lse


def _attention_backward(dout, dlse, q, k, v, out, lse, seed_tensor, offset_tensor, sinks, captured, *options):
    """dQ, dK, dV and the gradient of the sinks, which without any has no element."""
    call, seed, offset = _call(q, k, v, sinks, captured, options)
    dq, dk, dv = (torch.empty_like(tensor) for tensor in (q, k, v))
    if out.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_(), _new_sinks(q, sinks).zero_()
    tensors = {"q": q, "k": k, "v": v, "o": out, "dout": as_input(dout), "dq": dq, "dk": dk, "dv": dv}
    made = call.backward(tensors, lse, None if dlse is None else dlse.contiguous(),
                         seed if seed_tensor is None else seed_tensor, offset if offset_tensor is None else offset_tensor,
                         bytes_of(q), {} if sinks is None else {SINKS: sinks})
    return dq, dk, dv, _new_sinks(q, None) if sinks is None else made[SINKS].clone()


def _new_sinks(q, sinks):
    return q.new_empty(0, dtype=torch.float32) if sinks is None else torch.empty_like(sinks)


_library.impl("attention", _attention, "CompositeExplicitAutograd")
_library.impl("attention_backward", _attention_backward, "CompositeExplicitAutograd")


# ---- on fake tensors --------------------------------------------------------------------------------

@torch.library.register_fake("fatune::attention", lib=_library)
def _(q, k, v, seed_tensor, offset_tensor, sinks, captured, *options):
    options, (*_, out_dtype, without_lse) = _of_bytes(options)
    layout = options[6]
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 4")
    check_dtypes(q, k, v)
    if q.device.type != "cuda" and not options[9] and session_of(q.device) is None:
        raise ValueError(f"q is on {q.device}; allowed: a CUDA device, or the CPU with fatune.emulate(\"a100\")")
    shapes = [_shapes(tensor, layout) for tensor in (q, k, v)]
    check_shapes(*shapes)
    batch, nq, heads, _ = shapes[0]
    head_dim_v = shapes[2][3]
    shape = (batch, nq, heads, head_dim_v) if layout == "bshd" else (batch, heads, nq, head_dim_v)
    return q.new_empty(shape, dtype=output_dtype(q, out_dtype)), q.new_empty(0 if without_lse else (batch, heads, nq), dtype=torch.float32)


@torch.library.register_fake("fatune::attention_backward", lib=_library)
def _(dout, dlse, q, k, v, out, lse, seed_tensor, offset_tensor, sinks, *rest):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), _new_sinks(q, sinks)


# ---- gradients --------------------------------------------------------------------------------------

def _keep(ctx, inputs, output):
    q, k, v, seed_tensor, offset_tensor, sinks, captured, *options = inputs
    if any(tensor.requires_grad for tensor in captured):
        raise ValueError("captured has a tensor that requires gradients; allowed: none, they are not made (detach it)")
    ctx.save_for_backward(q, k, v, *output, seed_tensor, offset_tensor, sinks, *captured)
    ctx.set_materialize_grads(False)
    ctx.options, _ = _of_bytes(options)


def _differentiate(ctx, dout, dlse):
    q, k, v, out, lse, seed_tensor, offset_tensor, sinks, *captured = ctx.saved_tensors
    # An empty list is one of tensors to PyTorch, one of numbers or names is no list.
    nothing = ([None] * len(captured), *([] if given == [] else None for given in ctx.options), *[None] * len(_BYTES_DEFAULT))
    count = len(ctx.needs_input_grad)  # without those at the end that were the defaults
    if dout is None and dlse is None:
        return ((None,) * 6 + nothing)[:count]
    dout = torch.zeros_like(out) if dout is None else dout
    dq, dk, dv, dsinks = torch.ops.fatune.attention_backward(
        dout, dlse, q, k, v, out, lse, seed_tensor, offset_tensor, sinks, captured, *ctx.options)
    return (dq, dk, dv, None, None, None if sinks is None else dsinks, *nothing)[:count]


def _refuse(ctx, *_):
    raise refusal()


torch.library.register_autograd("fatune::attention", _differentiate, setup_context=_keep, lib=_library)
torch.library.register_autograd("fatune::attention_backward", _refuse, lib=_library)
