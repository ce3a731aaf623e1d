"""block_sparse.py: block-sparse masks of 128x128 blocks against the dense kernel.
in -> out: n = 16384, d 64, 128, 256, random 10, 25, 50 % of the blocks kept, and dense ->
TFLOP/s of useful work (kept blocks alone) and its share of the dense rate; --flex: compiled
FlexAttention beside it."""

import common

SEQ, BLOCK = 16384, 128
OPTIONS = {"--flex": {"action": "store_true", "help": "measure PyTorch's FlexAttention too"}}


def kept_blocks(torch, share):
    """A random table; the diagonal is kept, so that every query sees something."""
    generator = torch.Generator().manual_seed(1)
    blocks = SEQ // BLOCK
    table = torch.rand(blocks, blocks, generator=generator) < share
    table[torch.arange(blocks), torch.arange(blocks)] = True
    return table


def request_of(dim, share):
    mask = "" if share is None else f"mask={BLOCK}x{BLOCK}@{share:g}"
    return common.request_text(dim, 2048 // dim, 1, SEQ, more=mask)


def flex_contender(torch, q, k, v, table):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    on_gpu = table.cuda()
    block_mask = create_block_mask(lambda b, h, i, j: on_gpu[i // BLOCK, j // BLOCK], 1, 1, SEQ, SEQ,
                                   device="cuda", BLOCK_SIZE=BLOCK)
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return common.Contender("flex", lambda: compiled(q, k, v, block_mask=block_mask))


def check_mask(torch, fatune, q, k, v, table, mask, session=None):
    """Against dense attention with the mask written out, on a few queries of one head."""
    rows = torch.randint(0, SEQ, (64,))
    seen = table[rows // BLOCK].repeat_interleave(BLOCK, dim=1).cuda()
    scores = (q[0, 0, rows.cuda()].float() @ k[0, 0].float().T) * q.shape[-1] ** -0.5
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    ours = fatune.attention(q, k, v, mask=mask, session=session)[0, 0, rows.cuda()]
    return common.check_close("block mask", ours, weights @ v[0, 0].float())


def measure_dim(options, torch, fatune, report, dim, shares):
    heads = 2048 // dim
    q, k, v = (torch.randn(1, heads, SEQ, dim, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    session = fatune.default_session(torch.cuda.current_device())
    contenders, kept = [common.Contender("dense", lambda: fatune.attention(q, k, v))], [1.0]
    for share in shares:
        table = kept_blocks(torch, share)
        mask = fatune.BlockMask(table, BLOCK, BLOCK, SEQ, SEQ, session=session)
        check_mask(torch, fatune, q, k, v, table, mask)
        contenders.append(common.Contender(
            f"kept {share:g}", lambda mask=mask: fatune.attention(q, k, v, mask=mask)))
        kept.append(mask.density)
        if options.flex:
            contenders.append(flex_contender(torch, q, k, v, table))
            kept.append(mask.density)
    common.measure(contenders, options.quick)
    flops = common.forward_flops(1, heads, SEQ, dim)
    dense = common.tflops(flops, contenders[0].median_us)
    plans = [session.plan(request_of(dim, share)) for share in [None] + list(shares)]
    ours = iter(plans)
    for contender, density in zip(contenders, kept):
        rate = common.tflops(flops * density, contender.median_us)
        plan = next(ours) if contender.name != "flex" else None
        report.add(d=dim, n=SEQ, what=contender.name, kept=density, us=contender.median_us,
                   spread_us=contender.spread_us, tflops=rate, to_dense=rate / dense,
                   config=plan.config if plan else "", origin=plan.origin if plan else "")


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="normal", budget=270.0,
                                     options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("block_sparse", options)
    dims, shares = ((64, 128), (0.25,)) if options.quick else ((64, 128, 256), (0.1, 0.25, 0.5))
    tuning = common.tune(options, [request_of(dim, share) for dim in dims
                                   for share in (None,) + shares])
    import fatune
    torch.manual_seed(0)
    with torch.no_grad():
        for dim in dims:
            measure_dim(options, torch, fatune, report, dim, shares)
    report.write(effort=options.effort, block=BLOCK, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
