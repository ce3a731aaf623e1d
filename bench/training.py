"""training.py: attention as training meets it, through Python: forward and backward of one layer, and
training steps of a GPT, beside PyTorch's SDPA backends.
in -> out: bf16, causal; layer: d 128, n 2048 and 8192; GPT of 12 layers of 768 (d 64), n 1024 to 8192 ->
us of forward and backward together, tokens per second of whole steps, ratios to SDPA's best backend and to
standard attention (MATH: scores and weights in memory)."""

import functools
import sys

import common

LAYER = {"heads": 16, "dim": 128, "tokens": 16384}
GPT = {"width": 768, "heads": 12, "layers": 12, "tokens": 16384, "vocabulary": 50304}
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
OPTIONS = {"--parts": {"default": "layer,gpt", "help": "which: layer, gpt"},
           "--lengths": {"default": "", "help": "of sequences; else 2048,8192 and, GPT, 1024,2048,4096,8192"}}


def attend_by_sdpa(torch, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(q, k, v, *_):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attend


def attends(torch, fatune):
    """Name -> function of Q, K, V; fatune comes first."""
    return {"fatune": lambda q, k, v, *_: fatune.attention(q, k, v, causal=True),
            **{backend: attend_by_sdpa(torch, backend) for backend in BACKENDS}}


def serving(torch, named, run):
    """The contenders that can run; the others are named with their reason."""
    contenders = []
    for name, attend in named.items():
        contender = common.Contender(name, functools.partial(run, attend))
        try:
            contender.sample()
        except (RuntimeError, torch.OutOfMemoryError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.empty_cache()
            continue
        contenders.append(contender)
    return contenders


def add_rows(report, contenders, **of_all):
    """A row each, with its speed relative to SDPA's best backend and to MATH."""
    us = {contender.name: contender.median_us for contender in contenders}
    best = min(value for name, value in us.items() if name not in ("fatune", "MATH"))
    for contender in contenders:
        more = {"to_math": us["MATH"] / contender.median_us} if "MATH" in us else {}
        if "tokens" in of_all:
            more["tokens_per_second"] = of_all["tokens"] / contender.median_us * 1e6
        report.add(what=contender.name, **of_all, us=contender.median_us, spread_us=contender.spread_us,
                   to_best=best / contender.median_us, **more)


# ---- one layer ---------------------------------------------------------------------------------------

def requests_of(dim, heads, batch, seq):
    forward = common.request_text(dim, heads, batch, seq, causal=True)
    return [forward, forward.replace("forward", "backward", 1)]


def measure_layer(options, torch, fatune, report, seq):
    batch = LAYER["tokens"] // seq
    shape = (batch, LAYER["heads"], seq, LAYER["dim"])
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def run(attend):
        return torch.autograd.grad(attend(q, k, v), (q, k, v), dout)

    contenders = serving(torch, attends(torch, fatune), run)
    gradients = {contender.name: contender.function() for contender in contenders[:2]}
    ours, theirs = gradients.values()
    worst = max(((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(ours, theirs))
    if not worst <= 0.02:
        raise SystemExit(f"layer n{seq}: gradients differ from {contenders[1].name}'s by {worst:.3g}, at most 0.02")
    del gradients, ours, theirs
    common.measure(contenders, options.quick)
    add_rows(report, contenders, part="layer", n=seq, b=batch, d=LAYER["dim"], heads=LAYER["heads"])


# ---- a GPT -------------------------------------------------------------------------------------------

def measure_gpt(options, torch, fatune, report, seq):
    """Whole steps: forward, loss, backward, AdamW. All contenders take steps of one model on the same tokens.
    With a learning rate of 0 its weights stay, so their losses must agree."""
    from train_gpt import GPT as Model, Shape
    batch = GPT["tokens"] // seq
    shape = Shape(width=GPT["width"], heads=GPT["heads"], layers=GPT["layers"])
    tokens = torch.randint(GPT["vocabulary"], (batch, seq + 1), device="cuda")
    torch.manual_seed(0)
    model = Model(GPT["vocabulary"], seq, shape).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

    def step(attend):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(tokens[:, :-1], attend, 0)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    contenders = serving(torch, attends(torch, fatune), step)
    losses = {contender.name: contender.function().item() for contender in contenders}
    if max(losses.values()) - min(losses.values()) > 0.01:
        raise SystemExit(f"gpt n{seq}: the losses differ: {losses}")
    common.measure(contenders, quick=True, sample_ms=50.0, warmup_ms=50.0)  # a step spreads by less than 1 %
    add_rows(report, contenders, part="gpt", n=seq, b=batch, d=GPT["width"] // GPT["heads"],
             heads=GPT["heads"], tokens=GPT["tokens"])


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=60.0, options=OPTIONS)
    torch = common.import_torch()
    sys.path.insert(0, str(common.ROOT / "python" / "examples"))
    report = common.Report("training", options)
    parts = options.parts.split(",")
    lengths = tuple(map(int, options.lengths.split(","))) if options.lengths else ()
    layer = lengths or ((2048,) if options.quick else (2048, 8192)) if "layer" in parts else ()
    gpt = lengths or ((2048,) if options.quick else (1024, 2048, 4096, 8192)) if "gpt" in parts else ()
    requests = [text for seq in layer
                for text in requests_of(LAYER["dim"], LAYER["heads"], LAYER["tokens"] // seq, seq)]
    requests += [text for seq in gpt
                 for text in requests_of(GPT["width"] // GPT["heads"], GPT["heads"], GPT["tokens"] // seq, seq)]
    tuning = common.tune(options, requests)
    import fatune
    for seq in layer:
        measure_layer(options, torch, fatune, report, seq)
    for seq in gpt:
        torch.cuda.empty_cache()
        measure_gpt(options, torch, fatune, report, seq)
    report.write(effort=options.effort, layer=LAYER, gpt=GPT, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
