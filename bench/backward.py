"""backward.py: the gradients, beside PyTorch's backward through SDPA.
in -> out: bf16, d 64/128/256, n 1024 to 16384, causal or not; dropout 0.1; 128x128 blocks at n =
16384; deterministic -> TFLOP/s (2.5 times the forward's FLOPs) of fatune (tuned), FlashAttention-2
and cuDNN, their ratios, geometric means, bytes of workspace.

A run is torch.autograd.grad of a result that is kept, through the Python package as through SDPA."""

import common

SPARSE_SEQ, BLOCK, PROBABILITY = 16384, 128, 0.1
PARTS = ["grid", "dropout", "sparse", "deterministic"]
OPTIONS = {
    "--no-cudnn": {"action": "store_true", "help": "leave cuDNN out"},
    "--dims": {"type": int, "nargs": "+", "default": [64, 128, 256]},
    "--parts": {"nargs": "+", "choices": PARTS, "default": PARTS},
}


def grid(options):
    lengths = (1024, 16384) if options.quick else (1024, 4096, 8192, 16384)
    return [(dim, n, causal) for dim in options.dims for n in lengths for causal in (False, True)]


def dropout_points(options):
    return [(dim, 4096, causal) for dim in (64, 128)
            for causal in ((False,) if options.quick else (False, True))]


def sparse_points(options):
    dims, shares = ((128,), (0.25,)) if options.quick else ((64, 128), (0.1, 0.25, 0.5))
    return [(dim, shares) for dim in dims]


def deterministic_points(options):
    lengths = (4096,) if options.quick else (4096, 16384)
    return [(dim, n, causal) for dim in (64, 128) for n in lengths for causal in (False, True)]


def request_of(dim, n, causal=False, more=""):
    text = common.request_text(dim, 2048 // dim, 16384 // n, n, causal, more)
    return text.replace("forward", "backward", 1)


def sparse_word(share):
    return f"mask={BLOCK}x{BLOCK}@{share:g}"


def flops_of(dim, n, causal=False):
    return 2.5 * common.forward_flops(16384 // n, 2048 // dim, n, dim, causal)


def all_requests(options):
    wanted = []
    if "grid" in options.parts:
        wanted += [request_of(*point) for point in grid(options)]
    if "dropout" in options.parts:
        wanted += [request_of(*point, "dropout") for point in dropout_points(options)]
    if "sparse" in options.parts:
        wanted += [request_of(dim, SPARSE_SEQ, more=more) for dim, shares in sparse_points(options)
                   for more in ["", *map(sparse_word, shares)]]
    if "deterministic" in options.parts:
        wanted += [request_of(*point, more) for point in deterministic_points(options)
                   for more in ("", "deterministic")]
    return list(dict.fromkeys(wanted))


# ---- contenders ------------------------------------------------------------------------------------

class Inputs:
    """Q, K, V that want gradients, and the gradient of O: random normals [batch, heads, n, dim]."""

    def __init__(self, torch, dim, n):
        shape = (16384 // n, 2048 // dim, n, dim)
        self.torch, self.dim, self.n = torch, dim, n
        self.qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                    for _ in range(3)]
        self.dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def gradients(self, out):
        return self.torch.autograd.grad(out, self.qkv, self.dout, retain_graph=True)

    def fatune(self, fatune, name="fatune", **options):
        out = fatune.attention(*self.qkv, **options)
        return common.Contender(name, lambda: self.gradients(out))

    def sdpa(self, name, backend, **options):
        """None where the backend refuses the case."""
        import sys
        from torch.nn.attention import SDPBackend, sdpa_kernel
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = self.torch.nn.functional.scaled_dot_product_attention(*self.qkv, **options)
            self.gradients(out)
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
            return None
        return common.Contender(name, lambda: self.gradients(out))


def check_gradients(what, ours, theirs, bound=0.02):
    """The largest relative L2 distance of dQ, dK, dV; too large a one ends the script."""
    worst = max(((a.float() - b.float()).norm() / b.float().norm()).item()
                for a, b in zip(ours, theirs))
    if not worst <= bound:
        raise SystemExit(f"{what}: gradients differ from PyTorch's by {worst:.3g}, at most {bound}")
    return worst


def rates(contenders, flops):
    row = {}
    for contender in contenders:
        row[contender.name] = common.tflops(flops, contender.median_us)
        row[contender.name + "_us"] = contender.median_us
        row[contender.name + "_spread_us"] = contender.spread_us
    return row


def plan_of(session, request):
    plan = session.plan(request)
    return {"config": plan.config, "origin": plan.origin, "workspace_bytes": plan.workspace_size}


# ---- parts -----------------------------------------------------------------------------------------

def measure_grid(options, torch, fatune, session, report):
    for dim, n, causal in grid(options):
        inputs = Inputs(torch, dim, n)
        contenders = [inputs.fatune(fatune, causal=causal),
                      inputs.sdpa("fa2", "FLASH_ATTENTION", is_causal=causal)]
        if not options.no_cudnn:
            contenders.append(inputs.sdpa("cudnn", "CUDNN_ATTENTION", is_causal=causal))
        contenders = [contender for contender in contenders if contender]
        error = check_gradients(f"{(dim, n, causal)}", contenders[0].function(),
                                contenders[1].function())
        common.measure(contenders, options.quick)
        row = rates(contenders, flops_of(dim, n, causal))
        report.add(part="grid", d=dim, n=n, causal=causal, **row, ratio=row["fatune"] / row["fa2"],
                   difference=error, **plan_of(session, request_of(dim, n, causal)))


def measure_dropout(options, torch, fatune, session, report):
    for dim, n, causal in dropout_points(options):
        inputs = Inputs(torch, dim, n)
        contenders = [
            inputs.fatune(fatune, causal=causal, dropout=PROBABILITY, seed=7),
            inputs.sdpa("fa2", "FLASH_ATTENTION", is_causal=causal, dropout_p=PROBABILITY)]
        common.measure(contenders, options.quick)
        row = rates(contenders, flops_of(dim, n, causal))
        report.add(part="dropout", d=dim, n=n, causal=causal, **row,
                   ratio=row["fatune"] / row["fa2"],
                   **plan_of(session, request_of(dim, n, causal, "dropout")))


def check_mask(torch, inputs, table, gradients, out):
    """dQ of a few queries of one head against fp32 with the mask written out."""
    q, k, v = (tensor.detach()[0, 0].float() for tensor in inputs.qkv)
    rows = torch.randint(0, SPARSE_SEQ, (64,))
    seen = table[rows // BLOCK].repeat_interleave(BLOCK, dim=1).cuda()
    rows = rows.cuda()
    scale, dout = inputs.dim ** -0.5, inputs.dout[0, 0, rows].float()
    weights = torch.softmax(((q[rows] @ k.T) * scale).masked_fill(~seen, float("-inf")), dim=-1)
    dot = (dout * out.detach()[0, 0, rows].float()).sum(-1, keepdim=True)
    expected = scale * (weights * (dout @ v.T - dot)) @ k
    return check_gradients("block mask", [gradients[0][0, 0, rows]], [expected])


def measure_sparse(options, torch, fatune, session, report):
    for dim, shares in sparse_points(options):
        inputs = Inputs(torch, dim, SPARSE_SEQ)
        contenders, kept, words = [inputs.fatune(fatune, "dense")], [1.0], [""]
        for share in shares:
            generator = torch.Generator().manual_seed(1)
            table = torch.rand(SPARSE_SEQ // BLOCK, SPARSE_SEQ // BLOCK, generator=generator) < share
            table.fill_diagonal_(True)  # every query sees something
            mask = fatune.BlockMask(table, BLOCK, BLOCK, SPARSE_SEQ, SPARSE_SEQ, session=session)
            out = fatune.attention(*inputs.qkv, mask=mask)
            contenders.append(common.Contender(f"kept {share:g}",
                                               lambda out=out: inputs.gradients(out)))
            check_mask(torch, inputs, table, contenders[-1].function(), out)
            kept.append(mask.density)
            words.append(sparse_word(share))
        common.measure(contenders, options.quick)
        dense = common.tflops(flops_of(dim, SPARSE_SEQ), contenders[0].median_us)
        for contender, density, word in zip(contenders, kept, words):
            rate = common.tflops(flops_of(dim, SPARSE_SEQ) * density, contender.median_us)
            report.add(part="sparse", d=dim, n=SPARSE_SEQ, what=contender.name, kept=density,
                       us=contender.median_us, spread_us=contender.spread_us, tflops=rate,
                       ratio=rate / dense,
                       **plan_of(session, request_of(dim, SPARSE_SEQ, more=word)))


def measure_deterministic(options, torch, fatune, session, report):
    for dim, n, causal in deterministic_points(options):
        inputs = Inputs(torch, dim, n)
        contenders = [
            inputs.fatune(fatune, causal=causal),
            inputs.fatune(fatune, "deterministic", causal=causal, deterministic=True)]
        first, second = contenders[1].function(), contenders[1].function()
        if not all(torch.equal(a, b) for a, b in zip(first, second)):
            raise SystemExit(f"{(dim, n, causal)}: deterministic gradients differ from run to run")
        check_gradients(f"{(dim, n, causal)}", first, contenders[0].function())
        common.measure(contenders, options.quick)
        row = rates(contenders, flops_of(dim, n, causal))
        report.add(part="deterministic", d=dim, n=n, causal=causal, **row,
                   ratio=row["deterministic"] / row["fatune"],
                   **plan_of(session, request_of(dim, n, causal, "deterministic")))


MEASURE = {"grid": measure_grid, "dropout": measure_dropout, "sparse": measure_sparse,
           "deterministic": measure_deterministic}
AGAINST = {"grid": "FlashAttention-2", "dropout": "FlashAttention-2 with dropout",
           "sparse": "our own dense", "deterministic": "not deterministic"}


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=400.0, options=OPTIONS)
    torch = common.import_torch()
    some = [] if options.parts == PARTS else options.parts
    report = common.Report("_".join(["backward", *some]), options)
    tuning = common.tune(options, all_requests(options))
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    means = {}
    for part in options.parts:
        MEASURE[part](options, torch, fatune, session, report)
        ratios = [row["ratio"] for row in report.rows
                  if row["part"] == part and row.get("what") != "dense"]
        means[part] = {"geomean": common.geomean(ratios), "least": min(ratios)}
        print(f"{part}: geometric mean to {AGAINST[part]} {means[part]['geomean']:.3f}, "
              f"least {means[part]['least']:.3f}", flush=True)
    report.write(effort=options.effort, probability=PROBABILITY, block=BLOCK, ratios=means,
                 tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
