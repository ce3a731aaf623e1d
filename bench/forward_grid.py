"""forward_grid.py: the forward pass over head dims, lengths and causal, beside PyTorch's SDPA.
in -> out: 36 points, bf16, batch * n = 16384, heads * d = 2048 -> TFLOP/s of fatune (tuned), of
FlashAttention-2 and of cuDNN, on an H200 the recorded ones of FlashAttention-3 too; ratios to each
per point, geometric means."""

import json
import pathlib

import common

MARK = pathlib.Path(__file__).resolve().parent / "marks" / "fa3_h200.json"
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


def load_mark(gpu):
    """FlashAttention-3's recorded figures: where they are from, and TFLOP/s by (d, n, causal). None on
    another GPU than they were taken on; the name has to be the same: other cards bear it in part."""
    mark = json.loads(MARK.read_text())
    if mark["gpu"] != gpu:
        return None, {}
    return (f"{mark['source']}, {mark['date']}",
            {(row["d"], row["n"], row["causal"]): row["tflops"] for row in mark["rows"]})


def compare(row):
    """Ratios to those that the row has; to_best only where both cuDNN and the mark are known."""
    ratios = {"ratio": row["fatune"] / row["fa2"]}
    for name in ("cudnn", "fa3"):
        if name in row:
            ratios["to_" + name] = row["fatune"] / row[name]
    if "cudnn" in row and "fa3" in row:
        ratios["to_best"] = min(ratios["to_cudnn"], ratios["to_fa3"])
    return ratios


def summarize(ratios):
    return {"geomean": common.geomean(ratios), "least": min(ratios),
            "at_least_1": sum(ratio >= 1 for ratio in ratios), "points": len(ratios)}


def summarize_rows(rows):
    """Of every ratio that some row has; printed, too."""
    whom = {"ratio": "FlashAttention-2", "to_cudnn": "cuDNN", "to_fa3": "FlashAttention-3 (recorded)",
            "to_best": "the better of cuDNN and FlashAttention-3"}
    summaries = {}
    for name, peer in whom.items():
        ratios = [row[name] for row in rows if name in row]
        if ratios:
            summaries[name] = told = summarize(ratios)
            print(f"geometric mean of fatune / {peer}: {told['geomean']:.3f}; least {told['least']:.3f}, "
                  f"at least 1.00 in {told['at_least_1']} of {told['points']}")
    return summaries


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
    mark_source, mark = load_mark(report.machine["gpu"])
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
            if (dim, n, causal) in mark:
                row["fa3"] = mark[dim, n, causal]
            report.add(**row, **compare(row), max_difference=error, config=plan.config,
                       origin=plan.origin)
    summaries = summarize_rows(report.rows)
    report.write(effort=options.effort, memory=options.memory, tune_seconds=tuning["seconds"],
                 fa3_source=mark_source, summaries=summaries,
                 geomean=summaries["ratio"]["geomean"], least=summaries["ratio"]["least"],
                 by_dim={dim: common.geomean(row["ratio"] for row in report.rows if row["d"] == dim)
                         for dim in options.dims})


if __name__ == "__main__":
    main()
