"""sdpa_cases.py: PyTorch's own cases of scaled_dot_product_attention (OpInfo) and a grid beside them, through fatune.sdpa.
in -> out: fp16, bf16, fp32 -> how many fatune served, how many PyTorch computed and why, how many had another result.

The reference is PyTorch's math backend in float64. A result may differ from it by the largest of: twice what PyTorch's own in
the tensors' dtype does, by its math backend or by the one that it takes, of tensors broadcast before; 4 units in the last place
of its largest value; of gradients of Q and K, twice what they differ by for a rounded O alone (of_rounded_o), and what fp32 sums
of dO V^T differ by (of_sums), since a query that sees one key has a gradient of 0. What differs by more, but by no more than PyTorch's tests allow of the dtype (torch.testing.assert_close) or, of its
own samples, of the operator, is right and counted as `beyond_twice` as well. Where PyTorch's own is not finite it allows nothing.
Each case runs twice, the second time by what the first one left in memory; the larger error counts. Needs what PyTorch's test
helpers need (expecttest).

The math backend alone is no measure of 16-bit gradients: it sums in fp32 throughout. Whatever takes rowsum(dO O) of an O that was
rounded, as FlashAttention does, has gradients of Q and K that err by more where scores are large, as those of PyTorch's samples are."""

import collections
import itertools
import math
import warnings

import common

DTYPES = ("float16", "bfloat16", "float32")
OPTIONS = {"--dtypes": {"nargs": "+", "choices": DTYPES, "default": list(DTYPES)},
           "--limit": {"type": float, "default": 120.0, "help": "seconds; cases after them are counted as not run"}}
LENGTHS, DIMS, HEADS = ((127, 256), (1, 128), (256, 127)), (64, 128, 16, 96, 256), ((4, 4), (8, 2))


def operator_of_samples():
    from torch.testing._internal.common_methods_invocations import op_db
    return next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")


def own_tolerances():
    """By dtype, what PyTorch's tests of the operator's samples allow where they allow more than of others: (atol, rtol)."""
    from torch.testing._internal.common_device_type import toleranceOverride
    return {dtype: (tolerance.atol, tolerance.rtol) for info in operator_of_samples().decorators
            for decorator in getattr(info, "decorators", ()) if isinstance(decorator, toleranceOverride)
            for dtype, tolerance in decorator.d.items()}


def opinfo_cases(torch, dtype):
    """(name, query, key, value, options) of PyTorch's own samples."""
    op = operator_of_samples()
    for number, sample in enumerate(op.sample_inputs("cuda", dtype, requires_grad=True)):
        yield f"opinfo {number}", (sample.input, *sample.args[:2]), sample.kwargs


def grid_cases(torch, dtype):
    usual = itertools.product(LENGTHS, DIMS[:2], HEADS)
    other = itertools.product(LENGTHS[:1], DIMS[2:], HEADS[:1])
    for ((nq, nk), dim, (heads, heads_kv)), option in itertools.product(
            [*usual, *other], ("", "causal", "bool", "float", "scale")):
        options = {"is_causal": option == "causal", "enable_gqa": heads != heads_kv}
        if option == "scale":
            options["scale"] = 0.3
        if option == "bool":  # each query sees its first key at least
            options["attn_mask"] = torch.rand(2, 1, nq, nk, device="cuda") < 0.7
            options["attn_mask"][..., 0] = True
        if option == "float":
            options["attn_mask"] = torch.randn(1, heads, nq, nk, device="cuda", dtype=dtype)
        shapes = ((2, heads, nq, dim), (2, heads_kv, nk, dim), (2, heads_kv, nk, dim))
        yield (f"grid q{nq} k{nk} d{dim} h{heads}:{heads_kv} {option}",
               [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes], options)


def results_of(torch, call, tensors, options, dout, wide):
    """O and the gradients; in float64 where wide."""
    inputs = [tensor.detach().to(torch.float64 if wide else tensor.dtype).requires_grad_() for tensor in tensors]
    mask = options.get("attn_mask")
    if wide and mask is not None and mask.dtype != torch.bool:
        options = options | {"attn_mask": mask.double()}
    out = call(*inputs, **options)
    return [out.detach(), *torch.autograd.grad(out, inputs, dout.to(out.dtype))]


def within_own_tolerance(torch, results, exact, tolerance):
    """Element by element, as torch.testing.assert_close would of the results' dtype; tolerance: None or (atol, rtol)."""
    atol, rtol = tolerance or (None, None)
    try:
        for result, tensor in zip(results, exact):
            torch.testing.assert_close(result, tensor.to(result.dtype), atol=atol, rtol=rtol, equal_nan=True)
    except AssertionError:
        return False
    return True


def error_of(results, exact):
    """The largest difference of each; inf where one is not finite and the other is another."""
    def differ(a, b):
        same = (a == b) | (a.isnan() & b.isnan())
        return (a - b).abs().masked_fill(same, 0.0).nan_to_num(float("inf"), float("inf")).max().item()
    return [differ(a.double(), b) if a.numel() else 0.0 for a, b in zip(results, exact)]


def largest_finite(tensor):
    finite = tensor.detach()[tensor.detach().isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def of_sums(torch, call, tensors, options, dout):
    """What dQ and dK differ by where each dO V^T, a sum in fp32, differs by eps |dO| |V|: dS then does by P times that. V's gradient
    of a dO of ones are the sums of P over queries."""
    if 0 in (dout.numel(), *(tensor.numel() for tensor in tensors)):
        return {}
    q, k, v = tensors
    norms = dout.double().norm(dim=-1).max().item() * v.detach().double().norm(dim=-1).max().item()
    each = torch.finfo(torch.float32).eps * norms * (options.get("scale") or q.shape[-1] ** -0.5)
    columns = largest_finite(results_of(torch, call, tensors, options, torch.ones_like(dout), True)[3])
    return {"dQ": each * largest_finite(k), "dK": each * largest_finite(q) * columns}


def of_rounded_o(torch, call, tensors, options, dout, o):
    """What dQ and dK differ by where all is exact but O, which has the tensors' dtype when rowsum(dO O) is taken: dS then differs by
    P times that. V's gradient, of a dO of that times Q, is dK's difference; and O with K for V is what dQ's has a factor of."""
    q, k, _ = tensors
    scale = options.get("scale") or q.shape[-1] ** -0.5
    off = scale * (dout.double() * (o.to(q.dtype).double() - o)).sum(-1, keepdim=True)
    of_keys, _, _, weighted = results_of(torch, call, (q, k, k), options, off * q.detach().double(), True)
    return {"dQ": largest_finite((off * of_keys).sum_to_size(q.shape)), "dK": largest_finite(weighted)}


def broadcast_first(torch, call, enable_gqa):
    """The call, of tensors that have all dimensions that it would broadcast: PyTorch's backends but math refuse others."""
    own = -3 if enable_gqa else -2

    def broadcast(*tensors, **options):
        leading = torch.broadcast_shapes(*(tensor.shape[:own] for tensor in tensors))
        return call(*(tensor.expand(*leading, *tensor.shape[own:]).contiguous() for tensor in tensors), **options)
    return broadcast


def run_case(torch, fatune, reasons, tensors, options, tolerance=None):
    """What became of it: served, beyond_twice (served, too), torch, skipped, wrong; and words about it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if options.get("dropout_p", 0.0) > 0:  # another generator's bits: no result to compare with
        return "skipped", "dropout"
    torch_sdpa = torch.nn.functional.scaled_dot_product_attention
    leading = [tensor.shape[:-2] for tensor in (tensors[0], tensors[2])]
    leading = leading[0] if len(leading[0]) == len(leading[1]) else torch.broadcast_shapes(*leading)
    dout = torch.randn(*leading, tensors[0].shape[-2], tensors[2].shape[-1], device=tensors[0].device, dtype=tensors[0].dtype)
    reasons.clear()
    with sdpa_kernel(SDPBackend.MATH):
        exact = results_of(torch, torch_sdpa, tensors, options, dout, True)
        theirs = error_of(results_of(torch, torch_sdpa, tensors, options, dout, False), exact)
        sums = of_sums(torch, torch_sdpa, tensors, options, dout)
        rounded = of_rounded_o(torch, torch_sdpa, tensors, options, dout, exact[0])
    as_taken = broadcast_first(torch, torch_sdpa, options.get("enable_gqa", False))
    as_taken = error_of(results_of(torch, as_taken, tensors, options, dout, False), exact)
    theirs = [max((error for error in pair if math.isfinite(error)), default=0.0) for pair in zip(theirs, as_taken)]
    unit = torch.finfo(tensors[0].dtype).eps
    verdict = "served", ""
    for _ in range(2):
        results = results_of(torch, fatune.sdpa, tensors, options, dout, False)
        if reasons:  # its own result
            return "torch", reasons[0]
        for name, own, their, tensor in zip(("O", "dQ", "dK", "dV"), error_of(results, exact), theirs, exact):
            most = max(2 * their, 2 * rounded.get(name, 0.0), sums.get(name, 0.0), 4 * unit * largest_finite(tensor))
            if not own <= most:
                words = f"{name}: error {own:.3g}, allowed {most:.3g}, PyTorch's {their:.3g}"
                if not within_own_tolerance(torch, results, exact, tolerance):
                    return "wrong", words
                verdict = "beyond_twice", words
    return verdict


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("sdpa_cases", options)
    import fatune
    from fatune import _drop_in
    torch.manual_seed(torch.seed() % (1 << 32))
    reasons = []
    _drop_in._fall_back = reasons.append  # each time, not once for each reason
    warnings.simplefilter("ignore")
    for dtype_name, source in itertools.product(options.dtypes, (opinfo_cases, grid_cases)):
        counts, why, far = collections.Counter(), collections.Counter(), []
        try:
            tolerance = own_tolerances().get(getattr(torch, dtype_name)) if source is opinfo_cases else None
            for name, tensors, more in source(torch, getattr(torch, dtype_name)):
                if common.time.monotonic() - report.begin > options.limit:
                    counts["not run"] += 1
                    continue
                try:
                    what, words = run_case(torch, fatune, reasons, tensors, more, tolerance)
                except RuntimeError as error:
                    what, words = "wrong", str(error).splitlines()[0]
                counts["served" if what == "beyond_twice" else what] += 1
                if what in ("beyond_twice", "wrong"):
                    counts["beyond_twice"] += what == "beyond_twice"
                    far.append(f"{what}: {name}: {words}")
                elif words:
                    why[words] += 1
        except ImportError as error:
            why[f"no cases: {error}"] += 1
        report.add(dtype=dtype_name, cases=source.__name__, **counts, why=dict(why), far_cases=far)
        print(dict(why), far[:5], flush=True)
    report.write()


if __name__ == "__main__":
    main()
