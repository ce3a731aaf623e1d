"""tune_quality.py: how close a normal search comes to an exhaustive one, and how long both take.
in -> out: requests, empty caches -> seconds of each search, candidates tried, and the two winners
of each measured side by side: time of the best over time of the chosen, 1 being perfect."""

import tempfile

import common

OPTIONS = {
    "--requests": {"nargs": "+", "default": ["forward bf16 d128 hq16 b4 nq4096 causal",
                                             "forward bf16 d64 hq32 b1 nq16384",
                                             "forward bf16 d256 hq8 b16 nq1024 causal"]},
    "--exhaustive-budget": {"type": float, "default": 240.0},
}


def search(options, request, effort, budget):
    with tempfile.TemporaryDirectory() as cache:
        document = common.tune(options, [request], cache=cache, effort=effort, budget=budget)
    result = document["results"][0]
    result["complete"] = document["complete"]
    result["wall_seconds"] = document["seconds"]
    return result


def side_by_side(options, fatune, torch, request_text, configs):
    """Median microseconds of each config, measured in turn."""
    session = fatune.default_session(torch.cuda.current_device())
    request = fatune.parse_request(request_text)
    kinds = {0: torch.float16, 1: torch.bfloat16}

    def tensor(seq, heads, dim):
        return torch.randn(request.batch, heads, seq, dim, device="cuda", dtype=kinds[request.dtype])

    q = tensor(request.seqlen_q, request.heads_q, request.head_dim)
    k = tensor(request.seqlen_k, request.heads_kv, request.head_dim)
    v = tensor(request.seqlen_k, request.heads_kv, request.head_dim_v)
    causal = {0: False, 1: "bottom-right", 2: "top-left"}[request.causal]
    dropout = 0.1 if request.dropout else 0.0

    class Fixed:
        """A session that knows one plan alone."""

        def __init__(self, config):
            self.plan = session.plan(request, config)

        def cached_plan(self, _):
            return self.plan

    contenders = [common.Contender(config, lambda fixed=Fixed(config): fatune.attention(
        q, k, v, causal=causal, dropout=dropout, return_lse=True, session=fixed))
        for config in configs]
    common.measure(contenders, options.quick, sample_ms=10.0)
    return [contender.median_us for contender in contenders]


def compare(options, torch, report, request):
    """Both searches for one request; returns the quality of what the first chose."""
    chosen = search(options, request, options.effort, options.budget)
    best = search(options, request, "quick" if options.quick else "exhaustive",
                  options.exhaustive_budget)
    import fatune
    torch.manual_seed(0)
    with torch.no_grad():
        times = side_by_side(options, fatune, torch, request, [chosen["config"], best["config"]])
    for what, result, us in (("chosen", chosen, times[0]), ("best", best, times[1])):
        report.add(request=request, what=what, us=us, tuned_us=result["best_us"],
                   default_us=result["default_us"], tried=result["tried"], legal=result["legal"],
                   seconds=result["seconds"], wall_seconds=result["wall_seconds"],
                   complete=result["complete"], spilled=result["spilled"], wrong=result["wrong"],
                   failed=result["failed"], compile_seconds=result["compile_seconds"],
                   measure_seconds=result["measure_seconds"], config=result["config"])
    quality = min(times) / times[0]
    print(f"chosen reaches {quality:.4f} of the best, in {chosen['wall_seconds']:.0f} s")
    return quality


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="normal", budget=120.0,
                                     options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("tune_quality", options)
    quality = [compare(options, torch, report, request) for request in options.requests]
    report.write(requests=options.requests, quality=quality, least=min(quality))


if __name__ == "__main__":
    main()
