"""The structs of runtime/fatune.h, field by field in its order (tests/test_structs.py compares
their layout with a C compiler's). Each begins with its size, which the library checks."""

from __future__ import annotations

import ctypes as c

FORWARD, BACKWARD = range(2)
FP16, BF16, E4M3, FP32, TF32 = range(5)
O_DEFAULT, O_FP16, O_FP32 = range(3)
KV_DEFAULT, KV_E4M3 = range(2)
MERGE_PARTS = 32
CAUSAL_NONE, CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT = range(3)
WINDOW_NONE, WINDOW_BOTTOM_RIGHT, WINDOW_TOP_LEFT = range(3)

LogFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)
ProgressFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_int, c.c_double)


class Sized(c.Structure):
    """A struct that begins with its size; everything else starts as in the INIT value: `initial`,
    or 0, which means default."""

    initial: dict[str, int] = {}

    def __init__(self, **fields):
        super().__init__(**{**self.initial, **fields})
        self.size = c.sizeof(self)


class SessionOptions(Sized):
    c_name = "fatune_session_options"
    _fields_ = [
        ("size", c.c_size_t), ("device", c.c_int), ("cache_dir", c.c_char_p),
        ("system_path", c.c_char_p), ("template_dir", c.c_char_p), ("memory_only", c.c_int),
        ("compile", c.c_int), ("log", LogFunction), ("payload", c.c_void_p), ("emulate", c.c_char_p),
    ]


class Request(Sized):
    """What is asked for; see fatune_request in runtime/fatune.h for every field."""

    c_name = "fatune_request"
    initial = {"window_left": -1, "window_right": -1, "mask_longest": 1}
    _fields_ = [
        ("size", c.c_size_t), ("pass_", c.c_int), ("dtype", c.c_int), ("head_dim", c.c_int),
        ("head_dim_v", c.c_int), ("causal", c.c_int), ("dropout", c.c_int), ("mask_rows", c.c_int),
        ("mask_cols", c.c_int), ("deterministic", c.c_int), ("batch", c.c_int64),
        ("heads_q", c.c_int), ("heads_kv", c.c_int), ("seqlen_q", c.c_int64),
        ("seqlen_k", c.c_int64), ("mask_density", c.c_double),
        ("window", c.c_int), ("window_left", c.c_int64), ("window_right", c.c_int64),
        ("score", c.c_int64), ("score_gradients", c.c_int64), ("sinks", c.c_int),
        ("ragged", c.c_int64), ("pages", c.c_int64), ("dtype_o", c.c_int64), ("dtype_kv", c.c_int64),
        ("descale_rows", c.c_int64), ("mask_longest", c.c_int64), ("fast_exp", c.c_int64),
    ]

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)}" for name, _ in self._fields_[1:])
        return f"Request({fields})"


class MaskOptions(Sized):
    c_name = "fatune_mask_options"
    _fields_ = [
        ("size", c.c_size_t), ("blocks", c.c_void_p), ("on_device", c.c_int),
        ("mask_rows", c.c_int), ("mask_cols", c.c_int), ("batch", c.c_int64), ("heads", c.c_int),
        ("seqlen_q", c.c_int64), ("seqlen_k", c.c_int64),
    ]


class VisibleOptions(Sized):
    c_name = "fatune_visible_options"
    _fields_ = [
        ("size", c.c_size_t), ("score", c.c_int64), ("mask_rows", c.c_int), ("mask_cols", c.c_int),
        ("batch", c.c_int64), ("heads_q", c.c_int), ("heads_kv", c.c_int), ("seqlen_q", c.c_int64),
        ("seqlen_k", c.c_int64), ("same_for_batch", c.c_int), ("same_for_heads", c.c_int), ("memory", c.c_void_p),
    ]


class Rectangle(c.Structure):
    c_name = "fatune_rectangle"
    _fields_ = [
        ("query_begin", c.c_int64), ("query_end", c.c_int64), ("key_begin", c.c_int64), ("key_end", c.c_int64),
        ("causal", c.c_int),
    ]


class Tensor(c.Structure):
    c_name = "fatune_tensor"
    _fields_ = [
        ("data", c.c_void_p), ("stride_batch", c.c_int64), ("stride_seq", c.c_int64),
        ("stride_head", c.c_int64),
    ]


class Captured(c.Structure):
    c_name = "fatune_captured"
    _fields_ = [
        ("name", c.c_char_p), ("value", c.c_double), ("data", c.c_void_p),
        ("extents", c.c_int64 * 4), ("strides", c.c_int64 * 4),
        ("gradient", c.c_void_p),
    ]


class Descale(c.Structure):
    c_name = "fatune_descale"
    _fields_ = [("data", c.c_void_p), ("stride_batch", c.c_int64), ("stride_head", c.c_int64)]


class PageTable(c.Structure):
    c_name = "fatune_page_table"
    _fields_ = [
        ("data", c.c_void_p), ("stride_batch", c.c_int64), ("stride_page", c.c_int64), ("columns", c.c_int64),
        ("pages", c.c_int64),
    ]


class Origin(c.Structure):
    c_name = "fatune_origin"
    _fields_ = [
        ("batch", c.c_int64), ("head", c.c_int64), ("heads", c.c_int64), ("query", c.c_int64), ("key", c.c_int64),
    ]


class Arguments(Sized):
    c_name = "fatune_arguments"
    initial = {"window_left": -1, "window_right": -1}
    _fields_ = [
        ("size", c.c_size_t), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor),
        ("lse", c.c_void_p), ("batch", c.c_int64), ("heads_q", c.c_int), ("heads_kv", c.c_int),
        ("seqlen_q", c.c_int64), ("seqlen_k", c.c_int64), ("scale", c.c_float),
        ("dropout", c.c_float), ("seed", c.c_uint64), ("offset", c.c_uint64),
        ("seed_device", c.c_void_p), ("offset_device", c.c_void_p), ("mask", c.c_void_p),
        ("workspace", c.c_void_p), ("dout", Tensor), ("dq", Tensor), ("dk", Tensor), ("dv", Tensor),
        ("dlse", c.c_void_p), ("window_left", c.c_int64), ("window_right", c.c_int64),
        ("captured", c.POINTER(Captured)), ("captured_count", c.c_int),
        ("sinks", c.c_void_p), ("dsinks", c.c_void_p),
        ("descale_q", Descale), ("descale_k", Descale), ("descale_v", Descale),
        ("cu_seqlens_q", c.c_void_p), ("cu_seqlens_k", c.c_void_p), ("seqused_q", c.c_void_p),
        ("seqused_k", c.c_void_p), ("page_table", PageTable), ("origin", Origin), ("spare_multiprocessors", c.c_int),
        ("workspace_size", c.c_size_t),
    ]


class Part(c.Structure):
    c_name = "fatune_part"
    _fields_ = [("o", Tensor), ("lse", c.c_void_p)]


class MergeArguments(Sized):
    c_name = "fatune_merge_arguments"
    _fields_ = [
        ("size", c.c_size_t), ("dtype", c.c_int), ("head_dim_v", c.c_int), ("batch", c.c_int64),
        ("heads_q", c.c_int), ("seqlen_q", c.c_int64), ("o", Tensor), ("lse", c.c_void_p),
        ("parts", c.POINTER(Part)), ("part_count", c.c_int), ("sinks", c.c_void_p),
    ]


class QuantiseArguments(Sized):
    c_name = "fatune_quantise_arguments"
    _fields_ = [
        ("size", c.c_size_t), ("dtype", c.c_int), ("head_dim", c.c_int), ("batch", c.c_int64), ("heads", c.c_int),
        ("seqlen", c.c_int64), ("x", Tensor), ("out", Tensor), ("descale", c.c_void_p), ("rotate", c.c_int),
        ("seed", c.c_uint64), ("descale_rows", c.c_int64),
    ]


class TuneOptions(Sized):
    c_name = "fatune_tune_options"
    _fields_ = [
        ("size", c.c_size_t), ("if_missing", c.c_int), ("budget_seconds", c.c_double),
        ("jobs", c.c_int), ("progress", ProgressFunction), ("payload", c.c_void_p),
    ]


ALL = (SessionOptions, Request, MaskOptions, VisibleOptions, Tensor, Descale, Arguments, Part, MergeArguments, QuantiseArguments,
       TuneOptions)
