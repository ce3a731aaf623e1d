"""A forward and its backward as one node of PyTorch's autograd, whose backward runs without Python (python/node.c)."""

import ctypes as c
import functools
import os

from ._library import library
from ._prepared import binding

_OPERATOR = "_scaled_dot_product_fused_attention_overrideable"  # PyTorch differentiates it and leaves it to others to compute
_SCHEMA = (f"aten::{_OPERATOR}(Tensor query, Tensor key, Tensor value, Tensor? attn_bias=None, float dropout_p=0., bool "
           "is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor "
           "cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor "
           "debug_attn_mask)")
_SCHEMA_OF_BACKWARD = (
    f"aten::{_OPERATOR}_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor attn_bias, bool[4] "
    "grad_input_mask, Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float "
    "dropout_p, bool is_causal, Tensor philox_seed, Tensor philox_offset, *, float? scale=None) -> (Tensor grad_query, Tensor "
    "grad_key, Tensor grad_value, Tensor grad_attn_bias)")


class _Token(c.Array):
    """The memory of a token; `pair` lives as long as any tensor with this memory."""
    _type_, _length_ = c.c_int64, 2


@functools.lru_cache(maxsize=None)
def _operator(kind):
    """PyTorch's operator with our kernels for "CUDA" or "CPU", or None where this PyTorch does not have what it takes."""
    import torch
    try:
        ours = getattr(torch.ops.aten, _OPERATOR).default
        backward = getattr(torch.ops.aten, _OPERATOR + "_backward").default
        if (str(ours._schema), str(backward._schema)) != (_SCHEMA, _SCHEMA_OF_BACKWARD):
            return None
        for operator in (ours, backward):  # somebody else's kernels stay
            if torch._C._dispatch_has_kernel_for_dispatch_key(operator._schema.name, kind):
                return None
        stable = c.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))

        def address_of(name):
            if name == "torch_delete_stable_ivalue" and not hasattr(stable, name):
                name = "_ZdlPv"  # before PyTorch 2.12 a plain delete
            return c.cast(getattr(library() if name.startswith("fatune") else stable, name), c.c_void_p).value

        binding().serve_torch(address_of, kind)
        torch._C._autograd._top_saved_tensors_default_hooks(True)
        return ours._op
    except (AttributeError, OSError, NotImplementedError):
        return None


def _compiled(run):
    """Whether a prepared run is the compiled module's. Where tensors do not speak DLPack's C exchange API it is not."""
    return binding() is not None and isinstance(getattr(run, "__self__", None), binding().Prepared)


def node_of(forward, backward, tensors, lse, sizes, device):
    """A function (q, k, v) -> O, differentiable once; or None, where it cannot be. Of two prepared runs (_prepared.prepare)
    and the tensors that they first had, by name; sizes: bytes of their workspaces.
    It gives None where somebody's hooks see what is saved for the backward: checkpointing counts what a forward saves, and
    the first one, which is no node, saves less."""
    if not (_compiled(forward) and _compiled(backward)):
        return None
    operator = _operator("CUDA" if device.type == "cuda" else "CPU")
    if operator is None:
        return None
    import torch
    layouts = tuple((tuple(tensor.shape), tensor.stride()) for tensor in (
        tensors["o"], lse, tensors["dq"], tensors["dk"], tensors["dv"]))
    pair = binding().Pair(forward.__self__, backward.__self__, layouts, *sizes)
    memory = _Token(*pair.token())
    memory.pair = pair
    token = torch.frombuffer(memory, dtype=torch.int64)
    hooks = torch._C._autograd._top_saved_tensors_default_hooks

    def node(q, k, v):
        return None if hooks(True) else operator(q, k, v, token)[0]

    node.pair = pair
    return node
