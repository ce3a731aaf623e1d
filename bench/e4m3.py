"""e4m3.py: the forward in 8-bit floats over head dims, lengths and causal, beside own bf16; quantisation; accuracy.
in -> out: 24 points, batch * n = 16384, heads * d = 2048 -> TFLOP/s of e4m3, of e4m3 with fast_exp and of bf16, all tuned, O alone,
in captured graphs, so that short ones are no host time, and ratios to bf16; GB/s of quantise, and its share of what a copy of as many bytes reaches in the same run; RMSE of O against float64 on normal
inputs with and without outliers, with and without rotation, of descales of heads, with fast_exp too, and of blocks of rows."""

import itertools

import common

OPTIONS = {"--dims": {"type": int, "nargs": "+", "default": [64, 128, 256]}}
DESCALE_ROWS = (0, 64, 128)  # rows that a descale is of; 0: a head
OUTLIERS, LARGER = 1e-3, 10  # share of the elements, how much larger they are
DRAWS = 8  # of the inputs whose error is measured
CALLS = 4  # in a graph
WORDS = {"e4m3": "e4m3", "fast_exp": "e4m3 fast_exp", "bf16": "bf16"}


def request_of(dim, n, causal, dtype):
    return common.request_text(dim, 2048 // dim, 16384 // n, n, causal).replace("bf16", WORDS[dtype], 1)


def quantised(fatune, q, k, v, rotate=None, rows=0):
    """(q, k, v in e4m3), (their descales)."""
    pairs = (fatune.quantise(q, rotate=rotate, descale_rows=rows), fatune.quantise(k, rotate=rotate, descale_rows=rows),
             fatune.quantise(v, descale_rows=rows))
    return [pair[0] for pair in pairs], tuple(pair[1] for pair in pairs)


def captured(torch, name, run):
    """A contender whose sample replays a graph of some calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [run() for _ in range(CALLS)]
    contender = common.Contender(name, graph.replay)
    contender.outputs = outputs
    return contender


def measure_point(options, fatune, torch, dim, n, causal):
    shape = (16384 // n, 2048 // dim, n, dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    tensors, descales = quantised(fatune, q, k, v)
    runs = {"e4m3": lambda: fatune.attention(*tensors, causal=causal, descales=descales),
            "fast_exp": lambda: fatune.attention(*tensors, causal=causal, descales=descales, fast_exp=True),
            "bf16": lambda: fatune.attention(q, k, v, causal=causal)}
    differences = {name: (runs[name]() - runs["bf16"]()).float().pow(2).mean().sqrt().item() for name in ("e4m3", "fast_exp")}
    contenders = [captured(torch, name, run) for name, run in runs.items()]
    common.measure(contenders, options.quick)
    flops = common.forward_flops(16384 // n, 2048 // dim, n, dim, causal)
    row = {"d": dim, "n": n, "causal": causal, "rms_difference": differences["e4m3"],
           "rms_difference_fast_exp": differences["fast_exp"]}
    for contender in contenders:
        us = contender.median_us / CALLS
        row[contender.name], row[contender.name + "_us"] = common.tflops(flops, us), us
    row["ratio"], row["ratio_fast_exp"] = row["e4m3"] / row["bf16"], row["fast_exp"] / row["bf16"]
    return row


def measure_quantise(options, fatune, torch, dim, n, rows, rotate):
    """Beside a copy that reads and writes as many bytes together: 3 a number."""
    x = torch.randn(65536 // n, 4096 // dim, n, dim, device="cuda", dtype=torch.bfloat16)
    source = torch.empty(x.numel() * 3 // 2, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    contenders = [common.Contender("quantise", lambda: fatune.quantise(x, rotate=rotate, descale_rows=rows)),
                  common.Contender("copy", lambda: target.copy_(source))]
    common.measure(contenders, options.quick)
    us, copy_us = (contender.median_us for contender in contenders)
    return {"what": "quantise", "d": dim, "n": n, "descale_rows": rows, "rotate": rotate is not None, "us": us,
            "gb_per_s": 3e-3 * x.numel() / us, "copy_us": copy_us, "share": copy_us / us}


def accuracy(fatune, torch, n, share, rotate, rows_of_descale, fast_exp):
    """RMSE of O, and by RMS of O, against float64 on what was to be quantised; 256 rows of each head. Over several draws: the few
    rows whose q and keys have outliers in the same columns make one draw of `without` twice another's."""
    errors, squares = [], []
    for draw in range(DRAWS):
        torch.manual_seed(n + draw)  # the same inputs for every way
        q, k, v = (torch.randn(1, 4, n, 128, device="cuda") for _ in range(3))
        for tensor in (q, k, v):
            tensor.mul_(1 + (LARGER - 1) * (torch.rand_like(tensor) < share))
        q, k, v = (tensor.bfloat16() for tensor in (q, k, v))
        rows = torch.arange(0, n, n // 256, device="cuda")
        exact = (q[:, :, rows].double() @ k.double().mT * 128**-0.5).softmax(-1) @ v.double()
        tensors, descales = quantised(fatune, q, k, v, rotate, rows_of_descale)
        out = fatune.attention(*tensors, descales=descales, descale_rows=rows_of_descale, fast_exp=fast_exp)[:, :, rows].double()
        errors.append((out - exact).pow(2).mean().item())
        squares.append(exact.pow(2).mean().item())
    return {"what": "accuracy", "n": n, "outliers": share, "descale_rows": rows_of_descale, "rotate": rotate is not None,
            "fast_exp": fast_exp, "draws": DRAWS, "rmse": (sum(errors) / sum(squares)) ** 0.5, "absolute": (sum(errors) / DRAWS) ** 0.5}


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=180.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("e4m3", options)
    lengths = (4096,) if options.quick else (1024, 4096, 8192, 16384)
    points = [(dim, n, causal) for dim in options.dims for n in lengths for causal in (False, True)]
    tuning = common.tune(options, [request_of(*point, dtype) for point in points for dtype in WORDS])
    import fatune
    torch.manual_seed(0)
    with torch.no_grad():
        for point in points:
            report.add(**measure_point(options, fatune, torch, *point))
        for dim, n, rows, rotate in itertools.product(options.dims, (1024, 4096, 16384), DESCALE_ROWS, (None, 1)):
            report.add(**measure_quantise(options, fatune, torch, dim, n, rows, rotate))
        for n, share, rows, rotate in itertools.product((1024, 8192), (0, OUTLIERS), DESCALE_ROWS, (None, 1)):
            for fast_exp in (False, True) if rows == 0 else (False,):
                report.add(**accuracy(fatune, torch, n, share, rotate, rows, fast_exp))
    ratios, fast = ([row[name] for row in report.rows if name in row] for name in ("ratio", "ratio_fast_exp"))
    print(f"geometric mean of e4m3 / bf16: {common.geomean(ratios):.3f}, least {min(ratios):.3f}; with fast_exp "
          f"{common.geomean(fast):.3f}, least {min(fast):.3f}")
    report.write(effort=options.effort, tune_seconds=tuning["seconds"], geomean=common.geomean(ratios), least=min(ratios),
                 geomean_fast_exp=common.geomean(fast), least_fast_exp=min(fast))


if __name__ == "__main__":
    main()
