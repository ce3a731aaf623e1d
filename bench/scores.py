"""scores.py: score and mask functions beside FlexAttention (compiled), the own dense kernel and SDPA with a dense bias.
in -> out: bf16, ten cases, d 64 and 128, n 4096 and 16384 with 16384 / n batch entries -> times of forward and backward,
and their ratios; --autotune: FlexAttention by its own autotuning, which takes minutes; --cases A,B: some of them."""

import math

import common

OPTIONS = {"--autotune": {"action": "store_true", "help": "FlexAttention with max-autotune-no-cudagraphs"},
           "--cases": {"default": "", "metavar": "A,B", "help": "cases, all by default"}}
HEADS_DIM, TOKENS, LEFT, PREFIX, DOCUMENT, WIDTH, REACH, CAP = 2048, 16384, 1024, 1000, 1500, 64, 6, 30.0


def pixel(i, width=WIDTH):
    return i // width, i % width


def cases_of(torch, heads, n, where):
    """Case -> (options of fatune.attention, score_mod, mask_mod of FlexAttention); tensors of both are the same."""
    slope = torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)], device=where)
    table = torch.randn(heads, 2 * n - 1, device=where)
    bias = torch.randn(1, heads, n, n, device=where, dtype=torch.bfloat16)
    learnt = torch.randn(heads, n, device=where, requires_grad=True)
    document = torch.arange(n, device=where, dtype=torch.int32) // DOCUMENT
    distance_bias = "score = s + bias(h, j - i + nq - 1)"

    def near(b, h, q, k):
        (yq, xq), (yk, xk) = pixel(q), pixel(k)
        return ((yq - yk).abs() <= REACH) & ((xq - xk).abs() <= REACH)
    return {
        "alibi": ({"score": "alibi", "captured": {"slope": slope}},
                  lambda s, b, h, q, k: s - slope[h] * (q - k).abs(), None),
        "softcap": ({"score": "softcap", "captured": {"cap": CAP}},
                    lambda s, b, h, q, k: CAP * torch.tanh(s / CAP), None),
        "table": ({"score": f"local bias = tensor('bias', 'fp32', heads, 2 * nq - 1)\n{distance_bias}",
                   "captured": {"bias": table}}, lambda s, b, h, q, k: s + table[h, k - q + n - 1], None),
        "bias": ({"score": "bias_bf16", "captured": {"bias": bias}}, lambda s, b, h, q, k: s + bias[0, h, q, k], None),
        "window": ({"window": (LEFT, 0), "causal": True}, None, lambda b, h, q, k: (q >= k) & (q - k <= LEFT)),
        "prefix": ({"score": f"visible = j < {PREFIX} or j <= i"}, None, lambda b, h, q, k: (k < PREFIX) | (k <= q)),
        "documents": ({"score": "local document = tensor('document', 'int32', nk)\n"
                                "visible = document(i) == document(j) and j <= i", "captured": {"document": document}},
                      None, lambda b, h, q, k: (document[q] == document[k]) & (k <= q)),
        "pixels": ({"score": f"visible = abs(i // {WIDTH} - j // {WIDTH}) <= {REACH} and "
                             f"abs(i % {WIDTH} - j % {WIDTH}) <= {REACH}"}, None, near),
        "causal_softcap": ({"score": "softcap", "captured": {"cap": CAP}, "causal": True},
                           lambda s, b, h, q, k: CAP * torch.tanh(s / CAP), lambda b, h, q, k: q >= k),
        "learnt": ({"score": "local bias = tensor('bias', 'fp32', heads, nk)\nscore = s + bias(h, j)",
                    "captured": {"bias": learnt}}, lambda s, b, h, q, k: s + learnt[h, k], None),
    }


def flex_of(torch, options, n, score_mod, mask_mod):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()
    mode = "max-autotune-no-cudagraphs" if options.autotune else None
    compiled = torch.compile(flex_attention, dynamic=False, mode=mode)
    block_mask = None if mask_mod is None else torch.compile(create_block_mask)(mask_mod, None, None, n, n, device="cuda")
    return lambda q, k, v: compiled(q, k, v, score_mod=score_mod, block_mask=block_mask)


def own_runs(fatune, qkv, given):
    """The case, and the dense kernel without it, as causal as it is."""
    more = dict(given)
    if "visible" in given.get("score", ""):  # made once, as FlexAttention's
        more["mask"] = fatune.VisibleMask(*qkv, score=given["score"], captured=given.get("captured"))
    return {"fatune": lambda q, k, v: fatune.attention(q, k, v, **more),
            "plain": lambda q, k, v: fatune.attention(q, k, v, causal=given.get("causal", False))}


def sdpa_with_bias(torch, bias):
    return lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def measure_case(torch, fatune, options, report, place, name, case, qkv, dout):
    given, score_mod, mask_mod = case
    runs = own_runs(fatune, qkv, given)
    runs["flex"] = flex_of(torch, options, qkv[0].shape[2], score_mod, mask_mod)
    if name == "bias":
        runs["sdpa"] = sdpa_with_bias(torch, given["captured"]["bias"])
    learnt = [value for value in given.get("captured", {}).values() if getattr(value, "requires_grad", False)]
    forward, backward, results = [], [], {}
    for what, run in runs.items():
        try:
            out = run(*qkv)
            results[what] = out.detach()
        except Exception as error:  # a peer that cannot is left out of the mean
            report.add(case=name, what=what, error=str(error)[:200], **place)
            continue
        inputs = (*qkv, *(learnt if what != "plain" else []))
        forward.append(common.Contender(what, torch.no_grad()(lambda run=run: run(*qkv))))
        backward.append(common.Contender(what, lambda out=out, inputs=inputs: torch.autograd.grad(
            out, inputs, dout, retain_graph=True)))
    if "flex" in results:
        common.check_close(f"{name} {place}", results["fatune"], results["flex"])
    for contenders, is_backward in ((forward, False), (backward, True)):
        common.measure(contenders, options.quick)
        times = {c.name: c.median_us for c in contenders}
        report.add(case=name, backward=is_backward, **place, **{f"{what}_us": us for what, us in times.items()},
                   **{f"to_{what}": us / times["fatune"] for what, us in times.items() if what != "fatune"})
        if "flex" in times:
            yield is_backward, times["flex"] / times["fatune"]


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=400.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("scores", options)
    import fatune
    torch.manual_seed(0)
    ratios = {False: [], True: []}
    wanted = [name for name in options.cases.split(",") if name]
    for dim in ((128,) if options.quick else (64, 128)):
        for n in ((4096,) if options.quick else (4096, 16384)):
            shape = (max(1, TOKENS // n), HEADS_DIM // dim, n, dim)
            qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
            dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            cases = cases_of(torch, shape[1], n, "cuda")
            for name in wanted or cases:
                for is_backward, ratio in measure_case(torch, fatune, options, report, {"d": dim, "n": n}, name,
                                                       cases[name], qkv, dout):
                    ratios[is_backward].append(ratio)
            del cases
    means = {f"{'backward' if is_backward else 'forward'}_{what}": value for is_backward, found in ratios.items() if found
             for what, value in (("mean", math.exp(sum(map(math.log, found)) / len(found))), ("least", min(found)))}
    report.write(autotune=options.autotune, **means)


if __name__ == "__main__":
    main()
