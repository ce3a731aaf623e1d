"""dropout.py: what dropout costs, beside FlashAttention-2 and cuDNN.
in -> out: p = 0.1, n = 4096, d 64 and 128, causal or not -> TFLOP/s of fatune and of FlashAttention-2
without and with dropout, of cuDNN with dropout, and the ratios."""

import common

SEQ, BATCH, PROBABILITY = 4096, 4, 0.1


def points(options):
    return [(dim, causal) for dim in (64, 128) for causal in ((False,) if options.quick
                                                              else (False, True))]


def request_of(dim, causal, dropout):
    return common.request_text(dim, 2048 // dim, BATCH, SEQ, causal, "dropout" if dropout else "")


def contenders_of(fatune, torch, dim, causal):
    q, k, v = (torch.randn(BATCH, 2048 // dim, SEQ, dim, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    made = [
        common.Contender("fatune", lambda: fatune.attention(q, k, v, causal=causal,
                                                            return_lse=True)),
        common.Contender("fatune_dropout", lambda: fatune.attention(
            q, k, v, causal=causal, dropout=PROBABILITY, seed=7, return_lse=True)),
        common.sdpa_contender("fa2", "FLASH_ATTENTION", q, k, v, is_causal=causal),
        common.sdpa_contender("fa2_dropout", "FLASH_ATTENTION", q, k, v, is_causal=causal,
                              dropout_p=PROBABILITY),
        common.sdpa_contender("cudnn_dropout", "CUDNN_ATTENTION", q, k, v, is_causal=causal,
                              dropout_p=PROBABILITY)]
    with made[2].context():
        common.check_close(f"d {dim} causal {causal}", made[0].function()[0], made[2].function())
    return [contender for contender in made if contender]


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="normal", budget=240.0)
    torch = common.import_torch()
    report = common.Report("dropout", options)
    tuning = common.tune(options, [request_of(dim, causal, dropout)
                                   for dim, causal in points(options) for dropout in (False, True)])
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    with torch.no_grad():
        for dim, causal in points(options):
            contenders = contenders_of(fatune, torch, dim, causal)
            common.measure(contenders, options.quick)
            flops = common.forward_flops(BATCH, 2048 // dim, SEQ, dim, causal)
            row = {contender.name: common.tflops(flops, contender.median_us)
                   for contender in contenders}
            if "cudnn_dropout" in row:
                row["to_cudnn_dropout"] = row["fatune_dropout"] / row["cudnn_dropout"]
            plan = session.plan(request_of(dim, causal, True))
            report.add(d=dim, n=SEQ, causal=causal, **row,
                       cost=1 - row["fatune_dropout"] / row["fatune"],
                       to_fa2=row["fatune_dropout"] / row["fa2"],
                       to_fa2_dropout=row["fatune_dropout"] / row["fa2_dropout"],
                       spread_us=[contender.spread_us for contender in contenders],
                       config=plan.config, origin=plan.origin)
    report.write(effort=options.effort, probability=PROBABILITY, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
