"""window.py: causal sliding windows against the dense causal kernel, the same window as a block mask,
and FlexAttention.
in -> out: bf16, n = 16384, d 64 and 128, each query sees itself and the 1024 keys before it -> TFLOP/s of
useful work (visible pairs alone) of the forward and the backward, and their shares of the dense causal
rate; --no-flex: without FlexAttention."""

import common

SEQ, LEFT, BLOCK = 16384, 1024, 128
OPTIONS = {"--no-flex": {"action": "store_true", "help": "leave FlexAttention out"}}


def visible_pairs():
    """Pairs of a query and a key that it sees, of one head."""
    return sum(min(i, LEFT) + 1 for i in range(SEQ))


def flops_of(dim, pairs, backward):
    """Of one batch entry with 2048 / dim heads; the backward counts 2.5 times the forward."""
    return 4 * (2048 // dim) * pairs * dim * (2.5 if backward else 1)


def block_table(torch):
    """Blocks in which some query sees some key: causal hides the rest on the diagonal, nothing on the left."""
    first = torch.arange(0, SEQ, BLOCK)
    rows, columns = first[:, None], first[None, :]
    return (columns <= rows) & (columns + BLOCK - 1 >= rows - LEFT)


def request_of(dim, what, backward):
    more = {"dense": "causal", "window": f"causal window@{LEFT},0",
            "blocks": f"causal mask={BLOCK}x{BLOCK}@{block_table(common.import_torch()).float().mean():.4f}"}
    text = common.request_text(dim, 2048 // dim, 1, SEQ, more=more[what])
    return text.replace("forward", "backward", 1) if backward else text


def flex_function(torch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    seen = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j <= LEFT), 1, 1, SEQ, SEQ,
                             device="cuda", BLOCK_SIZE=BLOCK)
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=seen)


def check_window(torch, what, q, k, v, out):
    """Against the scores written out in fp32, on a few queries of one head."""
    rows = torch.randint(0, SEQ, (64,), device="cuda")
    distance = rows[:, None] - torch.arange(SEQ, device="cuda")[None, :]
    scores = (q[0, 0, rows].float() @ k[0, 0].float().T) * q.shape[-1] ** -0.5
    weights = torch.softmax(scores.masked_fill((distance < 0) | (distance > LEFT), float("-inf")), dim=-1)
    return common.check_close(what, out[0, 0, rows], weights @ v[0, 0].float())


def check_gradients(what, ours, theirs, bound=0.02):
    """The largest relative L2 distance of dQ, dK, dV."""
    worst = max(((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(ours, theirs))
    if not worst <= bound:
        raise SystemExit(f"{what}: gradients differ by {worst:.3g}, at most {bound}")
    return worst


def runs_of(options, torch, fatune, session):
    """Name -> function of Q, K, V."""
    mask = fatune.BlockMask(block_table(torch), BLOCK, BLOCK, SEQ, SEQ, session=session)
    runs = {"dense": lambda q, k, v: fatune.attention(q, k, v, causal=True),
            "window": lambda q, k, v: fatune.attention(q, k, v, causal=True, window=(LEFT, 0)),
            "blocks": lambda q, k, v: fatune.attention(q, k, v, causal=True, mask=mask)}
    if not options.no_flex:
        runs["flex"] = flex_function(torch)
    return runs


def measure_dim(options, torch, fatune, session, report, dim):
    heads = 2048 // dim
    qkv = [torch.randn(1, heads, SEQ, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
           for _ in range(3)]
    dout = torch.randn(1, heads, SEQ, dim, device="cuda", dtype=torch.bfloat16)
    plain = [tensor.detach() for tensor in qkv]
    runs = runs_of(options, torch, fatune, session)

    forward, backward, gradients = [], [], {}
    for name, run in runs.items():
        if name in ("window", "flex"):
            check_window(torch, f"{name} d{dim}", *plain, run(*plain))
        forward.append(common.Contender(name, lambda run=run: run(*plain)))
        out = run(*qkv)
        backward.append(common.Contender(
            name, lambda out=out: torch.autograd.grad(out, qkv, dout, retain_graph=True)))
        gradients[name] = backward[-1].function()
    if "flex" in gradients:
        check_gradients(f"window d{dim}", gradients["window"], gradients["flex"])
    gradients.clear()

    pairs = {name: visible_pairs() for name in runs}
    pairs["dense"] = SEQ * (SEQ + 1) // 2
    for contenders, is_backward in ((forward, False), (backward, True)):
        common.measure(contenders, options.quick)
        rates = {c.name: common.tflops(flops_of(dim, pairs[c.name], is_backward), c.median_us)
                 for c in contenders}
        for contender in contenders:
            plan = session.plan(request_of(dim, contender.name, is_backward)) if contender.name != "flex" else None
            row = {"to_flex": rates[contender.name] / rates["flex"]} if "flex" in rates else {}
            report.add(d=dim, n=SEQ, backward=is_backward, what=contender.name, us=contender.median_us,
                       spread_us=contender.spread_us, tflops=rates[contender.name],
                       to_dense=rates[contender.name] / rates["dense"], **row,
                       config=plan.config if plan else "", origin=plan.origin if plan else "")


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=160.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("window", options)
    dims = (128,) if options.quick else (64, 128)
    tuning = common.tune(options, [request_of(dim, what, backward) for dim in dims
                                   for backward in (False, True) for what in ("dense", "window", "blocks")])
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    for dim in dims:
        measure_dim(options, torch, fatune, session, report, dim)
    report.write(effort=options.effort, left=LEFT, block=BLOCK, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
