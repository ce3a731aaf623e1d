"""Dtypes of tensors as the library names them, and descales, the factors of those in 8-bit floats."""

from . import _structs as s

_DTYPES = {"float16": s.FP16, "bfloat16": s.BF16, "float8_e4m3fn": s.E4M3, "float32": s.FP32}
DESCALE_ROWS = 0, 64, 128
NAMES = "q", "k", "v"  # of a call's tensors in what is said of them


def dtype_number(tensor):
    """The library's number of a dtype, or None."""
    return _DTYPES.get(str(tensor.dtype).rpartition(".")[2])


def class_dtype(q, tf32):
    dtype = dtype_number(q)
    if not tf32:
        return dtype
    if dtype != s.FP32:
        raise ValueError(f"tf32 is given with {q.dtype}; allowed: False, but for float32")
    return s.TF32


def kv_dtype(q, k):
    """Of K and V beside the dtype of q; check_dtypes has seen both."""
    return s.KV_E4M3 if dtype_number(k) == s.E4M3 != dtype_number(q) else s.KV_DEFAULT


def output_dtype(q, wanted=None):
    """The dtype of O."""
    name = str(wanted).rpartition(".")[2]
    if dtype_number(q) != s.E4M3:
        if wanted is not None and wanted != q.dtype:
            raise ValueError(f"out_dtype is {wanted} with {q.dtype}; allowed: None, or {q.dtype}")
        return q.dtype
    import torch
    if wanted is not None and name not in ("bfloat16", "float16"):
        raise ValueError(f"out_dtype is {wanted}; allowed: None, torch.bfloat16, torch.float16")
    return wanted or torch.bfloat16


def check_dtypes(q, k, v, names=NAMES):
    for name, tensor in zip(names, (q, k, v)):
        like = q if tensor is q or dtype_number(k) != s.E4M3 or dtype_number(q) not in (s.FP16, s.BF16) else k
        if tensor.dtype != like.dtype or dtype_number(tensor) is None:
            raise TypeError(f"{name} is {tensor.dtype}; allowed: float16, bfloat16, float32 or float8_e4m3fn, the "
                            "same for q, k, v (convert by .to()); float8_e4m3fn for k and v beside float16 or bfloat16")


def descale_shape(batch, heads, rows, descale_rows):
    """Of the factors of a tensor; descale_rows 0: of all rows of a head."""
    return (batch, heads, -(-rows // descale_rows)) if descale_rows else (batch, heads)


def check_descale_rows(descale_rows):
    if type(descale_rows) is not int or descale_rows not in DESCALE_ROWS:
        raise ValueError(f"descale_rows is {descale_rows!r}; allowed: 0, 64, 128")


def check_is_tensor(name, descale):
    if descale is not None and not hasattr(descale, "data_ptr"):
        raise TypeError(f"{name} is {descale!r}; allowed: a tensor of float32, or None for 1")


def three_descales(descales, descale_rows, k):
    """(Of q, of k, of v), each a tensor or None; their shapes are not looked at."""
    if descale_rows != 0:
        check_descale_rows(descale_rows)
    if descales is None:
        return None, None, None
    if dtype_number(k) != s.E4M3:
        raise ValueError(f"descales come with {k.dtype}; allowed: None, but for float8_e4m3fn")
    if not hasattr(descales, "__len__"):
        raise TypeError(f"descales is {descales!r}; allowed: three, of q, k, v, each a tensor or None")
    if len(descales) != 3:
        raise ValueError(f"descales are {len(descales)}; allowed: three, of q, k, v, each a tensor or None")
    for name, descale in zip("qkv", descales):
        check_is_tensor(f"the descale of {name}", descale)
    return tuple(descales)


def check_descales(descales, descale_rows, q, k, sizes):
    """A struct of each of q, k, v that has factors, by its name in struct fatune_arguments."""
    found = {}
    for name, descale in zip("qkv", three_descales(descales, descale_rows, k)):
        if descale is None:
            continue
        heads, rows = ("heads_q", "seqlen_q") if name == "q" else ("heads_kv", "seqlen_k")
        shape = descale_shape(sizes["batch"], sizes[heads], sizes[rows], descale_rows)
        if tuple(descale.shape) != shape or not str(descale.dtype).endswith("float32") or descale.device != q.device:
            raise ValueError(f"the descale of {name} is {tuple(descale.shape)} {descale.dtype} on {descale.device}; "
                             f"allowed: float32 {shape} on {q.device} (expand what all share)")
        if descale_rows and shape[2] > 1 and descale.stride(2) != 1:
            raise ValueError(f"the descale of {name} has stride {descale.stride(2)} between blocks; allowed: 1")
        found["descale_" + name] = s.Descale(descale.data_ptr(), *descale.stride()[:2])
    return found
