"""scores.py: score and mask functions beside FlexAttention (compiled), the own dense kernel and SDPA with a dense bias.
in -> out: bf16, ten cases, d 64 and 128, n 4096 and 16384 with 16384 / n batch entries -> times of forward and backward,
and their ratios; --autotune: FlexAttention by its own autotuning, too, of which the better one counts; --tune: own kernels
tuned first, as long for each.

A process for each case and pass compiles at the same time as the others of its d and n. What is not compiled when three quarters
of the limit are over is given up. Then they measure one after the other, and each row is kept as it comes."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import common

OPTIONS = {"--autotune": {"action": "store_true", "help": "FlexAttention with max-autotune-no-cudagraphs, too"},
           "--cases": {"default": "", "metavar": "A,B", "help": "cases, all by default"},
           "--passes": {"default": "forward,backward", "metavar": "A,B", "help": "passes, both by default"},
           "--dims": {"default": "", "metavar": "A,B", "help": "head dims; default: 64,128, or 128 with --quick"},
           "--lengths": {"default": "", "metavar": "A,B", "help": "lengths; default: 4096,16384, or 4096 with --quick"},
           "--limit": {"type": float, "default": 600.0, "help": "seconds for a d and n"},
           "--tune": {"type": float, "default": 0.0, "metavar": "SECONDS", "help": "of each own request; default: untuned"},
           "--own": {"action": "store_true", "help": "without FlexAttention"},
           "--one": {"help": "what the script calls itself with: one case and pass, as JSON"}}
HEADS_DIM, TOKENS, LEFT, PREFIX, DOCUMENT, WIDTH, REACH, CAP = 2048, 16384, 1024, 1000, 1500, 64, 6, 30.0
CASES = ("alibi", "softcap", "table", "bias", "window", "prefix", "documents", "pixels", "causal_softcap", "learnt")
PASSES = ("forward", "backward")


def pixel(i, width=WIDTH):
    return i // width, i % width


def near(b, h, q, k):
    (yq, xq), (yk, xk) = pixel(q), pixel(k)
    return ((yq - yk).abs() <= REACH) & ((xq - xk).abs() <= REACH)


def case_of(torch, name, heads, n, where):
    """Options of fatune.attention, score_mod, mask_mod of FlexAttention; tensors of both are the same."""
    if name == "alibi":
        slope = torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)], device=where)
        return ({"score": "alibi", "captured": {"slope": slope}}, lambda s, b, h, q, k: s - slope[h] * (q - k).abs(), None)
    if name in ("softcap", "causal_softcap"):
        causal = name == "causal_softcap"
        return ({"score": "softcap", "captured": {"cap": CAP}, "causal": causal},
                lambda s, b, h, q, k: CAP * torch.tanh(s / CAP), (lambda b, h, q, k: q >= k) if causal else None)
    if name == "table":
        table = torch.randn(heads, 2 * n - 1, device=where)
        return ({"score": "local bias = tensor('bias', 'fp32', heads, 2 * nq - 1)\nscore = s + bias(h, j - i + nq - 1)",
                 "captured": {"bias": table}}, lambda s, b, h, q, k: s + table[h, k - q + n - 1], None)
    if name == "bias":
        bias = torch.randn(1, heads, n, n, device=where, dtype=torch.bfloat16).expand(max(1, TOKENS // n), -1, -1, -1)
        return ({"score": "bias_bf16", "captured": {"bias": bias}}, lambda s, b, h, q, k: s + bias[0, h, q, k], None)
    if name == "window":
        return ({"window": (LEFT, 0), "causal": True}, None, lambda b, h, q, k: (q >= k) & (q - k <= LEFT))
    if name == "prefix":
        return ({"score": f"visible = j < {PREFIX} or j <= i"}, None, lambda b, h, q, k: (k < PREFIX) | (k <= q))
    if name == "documents":
        document = torch.arange(n, device=where, dtype=torch.int32) // DOCUMENT
        return ({"score": "local document = tensor('document', 'int32', nk)\n"
                          "visible = document(i) == document(j) and j <= i", "captured": {"document": document}},
                None, lambda b, h, q, k: (document[q] == document[k]) & (k <= q))
    if name == "pixels":
        return ({"score": f"visible = abs(i // {WIDTH} - j // {WIDTH}) <= {REACH} and "
                          f"abs(i % {WIDTH} - j % {WIDTH}) <= {REACH}"}, None, near)
    learnt = torch.randn(heads, n, device=where, requires_grad=True)
    return ({"score": "local bias = tensor('bias', 'fp32', heads, nk)\nscore = s + bias(h, j)",
             "captured": {"bias": learnt}}, lambda s, b, h, q, k: s + learnt[h, k], None)


# ---- one case and pass, a process ------------------------------------------------------------------

def flex_of(torch, mode, n, score_mod, mask_mod):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled = torch.compile(flex_attention, dynamic=False, mode=mode)
    block_mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, n, n, device="cuda")
    return lambda q, k, v: compiled(q, k, v, score_mod=score_mod, block_mask=block_mask)


def own_runs(fatune, qkv, given):
    """The case, and the dense kernel without it, as causal as it is."""
    more = dict(given)
    if "visible" in given.get("score", ""):  # made once, as FlexAttention's
        more["mask"] = fatune.VisibleMask(*qkv, score=given["score"], captured=given.get("captured"))
    return {"fatune": lambda q, k, v: fatune.attention(q, k, v, **more),
            "plain": lambda q, k, v: fatune.attention(q, k, v, causal=given.get("causal", False))}


def peer_runs(torch, one, case, n):
    """Name -> what makes its function: FlexAttention, as compiled plainly and by its own autotuning; SDPA with the bias."""
    given, score_mod, mask_mod = case
    modes = [] if one["own"] else [("flex", None)] + [("flex_tuned", "max-autotune-no-cudagraphs")] * one["autotune"]
    runs = {name: lambda mode=mode: flex_of(torch, mode, n, score_mod, mask_mod) for name, mode in modes}
    if one["case"] == "bias":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def sdpa(backend):
            def run(q, k, v):
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=given["captured"]["bias"])
            return lambda: run
        runs |= {"sdpa_" + name: sdpa(getattr(SDPBackend, backend)) for name, backend in
                 (("efficient", "EFFICIENT_ATTENTION"), ("cudnn", "CUDNN_ATTENTION"))}
    return runs


def contender_of(torch, name, run, one, qkv, dout, learnt):
    if one["pass"] == "forward":
        return common.Contender(name, torch.no_grad()(lambda: run(*qkv)))
    out, inputs = run(*qkv), (*qkv, *(learnt if name != "plain" else []))
    return common.Contender(name, lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True))


def tune_own(torch, fatune, seconds):
    """What was run so far, if it is not tuned: the time may end before the search."""
    session = fatune.default_session()
    for plan in list(session.plans.values()):
        session.tune(plan.request, budget_seconds=seconds)
    torch.cuda.synchronize()


class NoTime(BaseException):
    """What PyTorch's own handlers of exceptions let pass."""


def give_up(*_):
    raise NoTime


def measure_one(torch, fatune, one):
    """Prepares all contenders; what is yielded first says that it has, then come their times."""
    name, n, d = one["case"], one["n"], one["d"]
    torch.manual_seed(0)
    shape = (max(1, TOKENS // n), HEADS_DIM // d, n, d)
    backward = one["pass"] == "backward"
    qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=backward) for _ in range(3)]
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    case = case_of(torch, name, shape[1], n, "cuda")
    learnt = [value for value in case[0].get("captured", {}).values() if getattr(value, "requires_grad", False)]
    runs = {what: lambda run=run: run for what, run in own_runs(fatune, qkv, case[0]).items()} | peer_runs(torch, one, case, n)
    contenders, first, row = [], None, {}
    for what, make in runs.items():
        begin = time.monotonic()
        try:
            contender = contender_of(torch, what, make(), one, qkv, dout, learnt)
            results = contender.function()
            results = [result.detach() for result in (results if backward else [results])]
            torch.cuda.synchronize()
        except (Exception, NoTime) as error:  # a peer that cannot is left out of the mean
            row[what + "_error"] = str(error)[:200] or "not compiled in time"
            continue
        contenders.append(contender)
        row[what + "_ready_s"] = round(time.monotonic() - begin, 1)
        first = first or results
        if what not in ("fatune", "plain"):  # of all gradients, too
            row[what + "_difference"] = max(((a.float() - b.float()).norm() / b.float().norm()).item()
                                            for a, b in zip(first, results))
    yield None
    if one["tune"]:
        tune_own(torch, fatune, one["tune"])
        own = own_runs(fatune, qkv, case[0])
        contenders = [contender_of(torch, c.name, own[c.name], one, qkv, dout, learnt) if c.name in own else c for c in contenders]
    common.measure(contenders, True)
    yield row | {f"{c.name}_us": c.median_us for c in contenders}


class Alone:
    """The GPU to itself, among these processes."""

    def __init__(self, folder):
        self.file = open(folder / "gpu", "w")

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def autotune_alone(alone):
    """PyTorch's autotuning times each choice alone; where this PyTorch has another form, beside the others."""
    from torch._inductor.runtime import benchmarking
    for kind in (getattr(benchmarking, "TritonBenchmarker", None), getattr(benchmarking, "InductorBenchmarker", None)):
        original = getattr(kind, "benchmark_gpu", None)
        if "benchmark_gpu" in vars(kind or object):
            def timed(self, *given, original=original, **more):
                if alone.file.closed or getattr(alone, "held", False):
                    return original(self, *given, **more)
                with alone:
                    alone.held = True
                    try:
                        return original(self, *given, **more)
                    finally:
                        alone.held = False
            kind.benchmark_gpu = timed


def work(one):
    import torch
    import fatune
    folder, label = pathlib.Path(one["folder"]), "-".join(str(one[key]) for key in ("case", "pass"))
    alone = Alone(folder)
    if one["autotune"]:
        autotune_alone(alone)
    steps = measure_one(torch, fatune, one)
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, one["until"] - time.time()), 5.0)
    next(steps)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    (folder / ("ready-" + label)).touch()
    while not (folder / "go").exists():
        time.sleep(0.1)
    with alone:
        row = next(steps)
        (folder / "row").write_text(json.dumps(row))
        (folder / "row").rename(folder / ("row-" + label))


# ---- all of them -------------------------------------------------------------------------------------

class Run:
    """The processes of one d and n."""

    def __init__(self, options, d, n, names):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fatune-scores-"))
        self.begin, self.limit = time.monotonic(), options.limit
        self.place = {"d": d, "n": n}
        environment = dict(os.environ)
        environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "3")
        self.children = {}
        for which in [p for p in PASSES if p in options.passes.split(",")]:
            for name in names:
                one = {"case": name, "pass": which, "folder": str(self.folder), "autotune": options.autotune, "own": options.own,
                       "tune": options.tune, "until": time.time() + 0.75 * options.limit, **self.place}
                label = f"{name}-{which}"
                environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / ("inductor-" + label))  # none waits for another
                self.children[label] = subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), "--build", str(options.build), "--cache", str(options.cache),
                     "--one", json.dumps(one)], env=environment, stdout=subprocess.DEVNULL,
                    stderr=open(self.folder / ("stderr-" + label), "w"), start_new_session=True)

    def seconds(self):
        return time.monotonic() - self.begin

    def has(self, what, label):
        return (self.folder / f"{what}-{label}").exists()

    def finish(self):
        """Yields label and row of each, as they come; the row has "error" where nothing was measured."""
        while self.children:
            running = [label for label in self.children if self.children[label].poll() is None]
            waited = [label for label in running if not self.has("ready", label)]
            if not (self.folder / "go").exists() and (not waited or self.seconds() > 0.8 * self.limit):
                print(f"{len(running) - len(waited)} ready after {self.seconds():.0f} s; not ready: {' '.join(waited) or 'none'}",
                      flush=True)
                (self.folder / "go").touch()
            for label in list(self.children):
                if self.has("row", label):
                    yield label, json.loads((self.folder / ("row-" + label)).read_text())
                elif label not in running or self.seconds() > self.limit:
                    yield label, {"error": self.last_words(label)}
                else:
                    continue
                self.end(label)
            time.sleep(0.1)

    def end(self, label):
        child = self.children.pop(label)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def last_words(self, label):
        text = (self.folder / ("stderr-" + label)).read_text().strip().splitlines()
        return (f"{self.seconds():.0f} s were over; " if self.children[label].poll() is None else "") + " | ".join(text[-1:])[:300]


def finished(row):
    """Its ratios; none to a FlexAttention whose result is another."""
    times = {key[:-3]: value for key, value in row.items() if key.endswith("_us")}
    if "fatune" not in times:
        return row
    for what in times:
        if not row.get(what + "_difference", 0.0) <= 0.02:
            row[what + "_error"] = "its result is another"
    flex = [times[what] for what in ("flex", "flex_tuned") if what in times and what + "_error" not in row]
    row |= {f"to_{what}": us / times["fatune"] for what, us in times.items() if what != "fatune"}
    return row | ({"to_better_flex": min(flex) / times["fatune"]} if flex else {})


def listed(text, otherwise):
    return [int(word) for word in text.split(",") if word] or otherwise


def means_of(rows):
    means = {}
    for which in PASSES:
        found = [row["to_better_flex"] for row in rows if row["pass"] == which and "to_better_flex" in row]
        if found:
            means |= {which + "_mean": common.geomean(found), which + "_least": min(found), which + "_cases": len(found)}
    return means


def write_report(report, options, **more):
    report.write(autotune=options.autotune, tune_seconds=options.tune, **means_of(report.rows), **more)


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], options=OPTIONS)
    if options.one:
        return work(json.loads(options.one))
    common.import_torch()
    report = common.Report("scores", options)
    wanted = [name for name in options.cases.split(",") if name] or list(CASES)
    for dim in listed(options.dims, [128] if options.quick else [64, 128]):
        for n in listed(options.lengths, [4096] if options.quick else [4096, 16384]):
            run = Run(options, dim, n, wanted)
            for label, row in run.finish():
                name, which = label.split("-")
                report.add(**{"case": name, "pass": which, "d": dim, "n": n}, **finished(row) if "error" not in row else row)
                write_report(report, options, silent=True)  # what is measured is kept
    write_report(report, options)
    print("  ".join(f"{key} {common.show(value)}" for key, value in means_of(report.rows).items()))


if __name__ == "__main__":
    main()
