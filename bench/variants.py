"""variants.py: shapes beside the common ones: grouped query heads, head dims between powers of two.
in -> out: bf16, n = 4096, causal or not -> TFLOP/s of fatune and, where it serves the shape, of cuDNN:
GQA 32:8 and 64:8 with the ratio to fatune's MHA of the same FLOPs; d 72, 80, 96, 160, 192 with the
ratio to what lies between fatune's d 64, 128, 256, linear in d."""

import collections

import common

SEQ, POWERS = 4096, (64, 128, 256)

Case = collections.namedtuple("Case", "dim batch heads heads_kv causal")


def causal_or_not(options):
    return (False,) if options.quick else (False, True)


def gqa_pairs(options):
    """(GQA, MHA) of the same FLOPs: batch * heads is 128 in all."""
    grouped = ((4, 32, 8),) if options.quick else ((4, 32, 8), (2, 64, 8))
    return [(Case(128, batch, heads, heads_kv, causal), Case(128, batch, heads, heads, causal))
            for batch, heads, heads_kv in grouped for causal in causal_or_not(options)]


def dim_cases(options, causal):
    """batch * n = 16384, heads * d as near to 2048 as it goes."""
    dims = (80, 192) if options.quick else (72, 80, 96, 160, 192)
    return [Case(dim, 4, round(2048 / dim), round(2048 / dim), causal)
            for dim in sorted(dims + POWERS)]


def request_of(case):
    return common.request_text(case.dim, case.heads, case.batch, SEQ, case.causal,
                               heads_kv=case.heads_kv)


def interpolate(rates, dim):
    """The rate at `dim` on the line between the powers of two on both sides of it."""
    low = max(power for power in POWERS if power <= dim)
    high = min(power for power in POWERS if power >= dim)
    share = (dim - low) / (high - low) if high > low else 0.0
    return rates[low] + (rates[high] - rates[low]) * share


class Measured:
    """One case: its contenders, and after measure() what they reached."""

    def __init__(self, fatune, torch, case):
        self.case = case
        q, k, v = (torch.randn(case.batch, heads, SEQ, case.dim, device="cuda", dtype=torch.bfloat16)
                   for heads in (case.heads, case.heads_kv, case.heads_kv))
        sdpa = {"is_causal": case.causal, "enable_gqa": case.heads != case.heads_kv}
        self.ours = common.Contender("fatune", lambda: fatune.attention(
            q, k, v, causal=case.causal, return_lse=True))
        self.cudnn = common.sdpa_contender("cudnn", "CUDNN_ATTENTION", q, k, v, **sdpa)
        self.error = common.check_close(
            f"{case}", self.ours.function()[0],
            torch.nn.functional.scaled_dot_product_attention(q, k, v, **sdpa))

    def rate(self, contender):
        case = self.case
        flops = common.forward_flops(case.batch, case.heads, SEQ, case.dim, case.causal)
        return common.tflops(flops, contender.median_us)

    def row(self, session):
        case, plan = self.case, session.plan(request_of(self.case))
        row = {"d": case.dim, "n": SEQ, "batch": case.batch, "hq": case.heads, "hkv": case.heads_kv,
               "causal": case.causal, "fatune": self.rate(self.ours),
               "spread_us": self.ours.spread_us, "max_difference": self.error,
               "config": plan.config, "origin": plan.origin}
        if self.cudnn:
            row["cudnn"] = self.rate(self.cudnn)
            row["to_cudnn"] = row["fatune"] / row["cudnn"]
        return row


def measure_cases(options, fatune, torch, cases):
    """All in turn, as they are compared with each other."""
    measured = [Measured(fatune, torch, case) for case in cases]
    common.measure([contender for one in measured for contender in (one.ours, one.cudnn) if contender],
                   options.quick)
    return measured


def add_gqa(report, session, grouped, plain):
    mha = plain.rate(plain.ours)
    row = grouped.row(session)
    report.add(what="gqa", **row, mha=mha, to_mha=row["fatune"] / mha,
               mha_spread_us=plain.ours.spread_us)


def add_dims(report, session, measured):
    rates = {one.case.dim: one.rate(one.ours) for one in measured}
    for one in measured:
        between = {}
        if one.case.dim not in POWERS:
            between["interpolated"] = interpolate(rates, one.case.dim)
            between["to_interpolated"] = rates[one.case.dim] / between["interpolated"]
        report.add(what="head dim", **one.row(session), **between)


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="normal", budget=270.0)
    torch = common.import_torch()
    report = common.Report("variants", options)
    pairs = gqa_pairs(options)
    groups = [dim_cases(options, causal) for causal in causal_or_not(options)]
    tuning = common.tune(options, [request_of(case) for cases in pairs + groups for case in cases])
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    with torch.no_grad():
        for pair in pairs:
            add_gqa(report, session, *measure_cases(options, fatune, torch, pair))
        for cases in groups:
            add_dims(report, session, measure_cases(options, fatune, torch, cases))
    least = {name: min(row[name] for row in report.rows if name in row)
             for name in ("to_mha", "to_interpolated")}
    print(f"least of GQA / MHA {least['to_mha']:.3f}, of a head dim / interpolated "
          f"{least['to_interpolated']:.3f}")
    report.write(effort=options.effort, tune_seconds=tuning["seconds"], least=least)


if __name__ == "__main__":
    main()
