"""forward_grid.py: the forward pass over head dims, lengths and causal, beside PyTorch's SDPA.
in -> out: 36 points, bf16, batch * n = 16384, heads * d = 2048 -> TFLOP/s of fatune (tuned), of
FlashAttention-2 and of cuDNN, ratio to FlashAttention-2 per point, geometric means."""

import common

OPTIONS = {
    "--memory": {"choices": ["bhsd", "bshd"], "default": "bhsd", "help": "order in memory"},
    "--no-cudnn": {"action": "store_true", "help": "leave cuDNN out"},
    "--dims": {"type": int, "nargs": "+", "default": [64, 128, 256]},
}


def grid(options):
    lengths = (512, 2048, 8192) if options.quick else (512, 1024, 2048, 4096, 8192, 16384)
    return [(dim, n, causal) for dim in options.dims for n in lengths for causal in (False, True)]


def request_of(dim, n, causal):
    return common.request_text(dim, 2048 // dim, 16384 // n, n, causal)


def tensors(torch, dim, n, memory):
    """Q, K, V as SDPA takes them, [batch, heads, n, dim], in the order wanted in memory."""
    batch, heads = 16384 // n, 2048 // dim
    shape = (batch, heads, n, dim) if memory == "bhsd" else (batch, n, heads, dim)
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    return made if memory == "bhsd" else [tensor.transpose(1, 2) for tensor in made]


def measure_point(options, fatune, torch, point):
    dim, n, causal = point
    q, k, v = tensors(torch, dim, n, options.memory)
    # SDPA's kernels write the LSE too, so that all do the same work.
    ours = common.Contender(
        "fatune", lambda: fatune.attention(q, k, v, causal=causal, return_lse=True))
    others = [common.sdpa_contender("fa2", "FLASH_ATTENTION", q, k, v, is_causal=causal)]
    if not options.no_cudnn:
        others.append(common.sdpa_contender("cudnn", "CUDNN_ATTENTION", q, k, v, is_causal=causal))
    contenders = [ours] + [other for other in others if other]
    with others[0].context():
        error = common.check_close(f"{point}", ours.function()[0], others[0].function())
    common.measure(contenders, options.quick)
    return contenders, error


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=270.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("forward_grid", options)
    points = grid(options)
    tuning = common.tune(options, [request_of(*point) for point in points])
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    with torch.no_grad():
        for dim, n, causal in points:
            contenders, error = measure_point(options, fatune, torch, (dim, n, causal))
            plan = session.plan(request_of(dim, n, causal))
            flops = common.forward_flops(16384 // n, 2048 // dim, n, dim, causal)
            row = {"d": dim, "n": n, "causal": causal}
            for contender in contenders:
                row[contender.name] = common.tflops(flops, contender.median_us)
                row[contender.name + "_us"] = contender.median_us
                row[contender.name + "_spread_us"] = contender.spread_us
            report.add(**row, ratio=row["fatune"] / row["fa2"], max_difference=error,
                       config=plan.config, origin=plan.origin)
    ratios = [row["ratio"] for row in report.rows]
    print(f"geometric mean of fatune / FlashAttention-2: {common.geomean(ratios):.3f}; "
          f"least {min(ratios):.3f}, at least 1.00 in {sum(r >= 1 for r in ratios)} of {len(ratios)}")
    report.write(effort=options.effort, memory=options.memory, tune_seconds=tuning["seconds"],
                 geomean=common.geomean(ratios), least=min(ratios),
                 by_dim={dim: common.geomean(row["ratio"] for row in report.rows if row["d"] == dim)
                         for dim in options.dims})


if __name__ == "__main__":
    main()
