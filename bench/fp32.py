"""fp32.py: attention of fp32 tensors, forward and backward, beside PyTorch's SDPA in fp32.
in -> out: d 64 and 128, n 1024 to 8192 with batch * n = 16384, heads * d = 2048 -> TFLOP/s of fp32 (three TF32
products), of tf32 (one), of SDPA's memory-efficient and math backends, the ratio to the better of both; relative
errors of one head against float64. Own configs are those without tuning, unless --effort says otherwise."""

import common

OPTIONS = {"--dims": {"type": int, "nargs": "+", "default": [64, 128]},
           "--passes": {"nargs": "+", "choices": ["forward", "backward"], "default": ["forward", "backward"]}}
BACKENDS = {"efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
WANTED = {64: 1.5, 128: 1.2}  # of SDPA's best
ERROR_MOST = 2  # times PyTorch's fp32, by its math backend


def request_of(pass_, dim, n, dtype="fp32"):
    text = common.request_text(dim, 2048 // dim, 16384 // n, n)
    return text.replace("forward", pass_, 1).replace("bf16", dtype, 1)


def exact_of(torch, tensors, dout, backward):
    """O of one head in float64, or its gradients."""
    q, k, v = wide = [tensor[:1, :1].detach().double().requires_grad_() for tensor in tensors]
    out = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
    return torch.autograd.grad(out, wide, dout[:1, :1].double()) if backward else (out.detach(),)


def error_of(results, exact):
    return max(((result[:1, :1].double() - wanted).norm() / wanted.norm()).item()
               for result, wanted in zip(results, exact))


def contenders_of(fatune, torch, tensors, dout, backward):
    """What each has to run: the forward, or the gradients of a result that is kept."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def sdpa(backend):
        def run():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return torch.nn.functional.scaled_dot_product_attention(*tensors)
        return run
    forwards = {"fp32": lambda: fatune.attention(*tensors), "tf32": lambda: fatune.attention(*tensors, tf32=True),
                **{name: sdpa(backend) for name, backend in BACKENDS.items()}}
    for name, forward in forwards.items():
        out = forward() if backward else None
        yield common.Contender(name, forward if not backward else lambda out=out: torch.autograd.grad(
            out, tensors, dout, retain_graph=True))


def measure_point(options, fatune, torch, pass_, dim, n):
    backward = pass_ == "backward"
    tensors = [torch.randn(16384 // n, 2048 // dim, n, dim, device="cuda", requires_grad=backward) for _ in range(3)]
    dout = torch.randn_like(tensors[0])
    exact = exact_of(torch, tensors, dout, backward)
    contenders = list(contenders_of(fatune, torch, tensors, dout, backward))
    row = {"pass": pass_, "d": dim, "n": n}
    for contender in contenders:
        result = contender.function()
        row[contender.name + "_error"] = error_of(result if backward else (result,), exact)
    common.measure(contenders, options.quick)
    flops = common.forward_flops(16384 // n, 2048 // dim, n, dim) * (2.5 if backward else 1)
    for contender in contenders:
        row[contender.name] = common.tflops(flops, contender.median_us)
        row[contender.name + "_us"] = contender.median_us
    row["ratio"] = row["fp32"] / max(row[name] for name in BACKENDS)
    row["error_ratio"] = row["fp32_error"] / row["math_error"]
    if not row["error_ratio"] <= ERROR_MOST:
        raise SystemExit(f"{pass_} d{dim} n{n}: error {row['error_ratio']:.2f} of SDPA's math, at most {ERROR_MOST}")
    return row


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none", options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("fp32", options)
    points = [(pass_, dim, n) for pass_ in options.passes for dim in options.dims for n in (1024, 4096, 8192)]
    common.tune(options, [request_of(*point, dtype) for point in points for dtype in ("fp32", "tf32")])
    import fatune
    torch.manual_seed(0)
    for pass_, dim, n in points:
        report.add(**measure_point(options, fatune, torch, pass_, dim, n))
    shares = [row["ratio"] / WANTED[row["d"]] for row in report.rows if row["d"] in WANTED]
    print(f"fp32 to SDPA's best, of what is wanted ({WANTED}): geometric mean {common.geomean(shares):.3f}, "
          f"least {min(shares):.3f}")
    report.write(effort=options.effort, geomean=common.geomean(row["ratio"] for row in report.rows),
                 least_of_wanted=min(shares))


if __name__ == "__main__":
    main()
