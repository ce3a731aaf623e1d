"""ragged.py: documents of random lengths, packed, beside the same documents in full batches of their own length.
in -> out: bf16, d 64 and 128, causal, 32768 rows in all -> the time of one ragged forward, its share of the sum of dense
times (each document's from a batch that has about as many rows in all), beside PyTorch's varlen_attn where it is."""

import inspect
import random

import common

ROWS = 32768
SHORTEST, LONGEST = 128, 8192


def document_lengths(seed):
    """Lengths whose logarithms are uniform; the last document takes what is left."""
    draw, lengths = random.Random(seed), []
    while sum(lengths) < ROWS:
        length = int(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
        lengths.append(min(length, ROWS - sum(lengths)))
    return lengths


def requests_of(dim, lengths):
    heads = 2048 // dim
    dense = [common.request_text(dim, heads, max(1, ROWS // n), n, causal=True) for n in sorted(set(lengths))]
    ragged = common.request_text(dim, heads, len(lengths), ROWS, causal=True, more="ragged")
    return [ragged, *dense]


def theirs_of(torch, starts, longest):
    """PyTorch's varlen_attn as a function of Q, K, V, or None."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    named = inspect.signature(varlen_attn).parameters
    causal = {"is_causal": True} if "is_causal" in named else {"window_size": (-1, 0)}
    return lambda q, k, v: varlen_attn(q, k, v, starts, starts, longest, longest, **causal)


def check(torch, what, out, q, k, v, starts):
    """A few documents against SDPA."""
    for number in (0, len(starts) // 2, len(starts) - 2):
        part = slice(starts[number], starts[number + 1])
        own = (tensor[part].transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
        expected = torch.nn.functional.scaled_dot_product_attention(*own, is_causal=True)
        common.check_close(f"{what}, document {number}", out[part].transpose(0, 1).unsqueeze(0), expected)


def dense_sum(torch, fatune, options, dim, lengths):
    """Microseconds of all documents, each taken from a full batch of its length."""
    heads, contenders = 2048 // dim, {}
    for n in sorted(set(lengths)):
        batch = max(1, ROWS // n)
        q, k, v = (torch.randn(batch, n, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        contenders[n] = (batch, common.Contender(str(n), lambda q=q, k=k, v=v: fatune.attention(
            q, k, v, causal=True, layout="bshd", return_lse=True)))
    common.measure([contender for _, contender in contenders.values()], options.quick)
    return sum(contenders[n][1].median_us / contenders[n][0] for n in lengths)


def measure_dim(torch, fatune, session, options, report, dim, seed):
    lengths, heads = document_lengths(seed), 2048 // dim
    starts = torch.tensor([0, *lengths]).cumsum(0).to(device="cuda", dtype=torch.int32)
    q, k, v = (torch.randn(ROWS, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    runs = {"ragged": lambda: fatune.varlen(q, k, v, starts, starts, causal=True, return_lse=True)[0]}
    theirs = theirs_of(torch, starts, max(lengths))
    if theirs is not None:
        runs["varlen_attn"] = lambda: theirs(q, k, v)
    contenders = []
    for name, run in runs.items():
        check(torch, name, run(), q, k, v, starts.tolist())
        contenders.append(common.Contender(name, run))
    common.measure(contenders, options.quick)
    dense_us = dense_sum(torch, fatune, options, dim, lengths)
    flops = sum(common.forward_flops(1, heads, n, dim, causal=True) for n in lengths)
    plan = session.plan(requests_of(dim, lengths)[0])
    for contender in contenders:
        own = contender.name == "ragged"
        report.add(d=dim, documents=len(lengths), what=contender.name, us=contender.median_us,
                   spread_us=contender.spread_us, tflops=common.tflops(flops, contender.median_us), dense_us=dense_us,
                   to_dense_sum=contender.median_us / dense_us, lengths=lengths,
                   config=plan.config if own else "", origin=plan.origin if own else "")


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=120.0)
    torch = common.import_torch()
    report = common.Report("ragged", options)
    cases = [(128, 1)] if options.quick else [(dim, seed) for dim in (64, 128) for seed in (1, 2, 3)]
    requests = [text for dim, seed in cases for text in requests_of(dim, document_lengths(seed))]
    tuning = common.tune(options, list(dict.fromkeys(requests)))
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    for dim, seed in cases:
        measure_dim(torch, fatune, session, options, report, dim, seed)
    report.write(effort=options.effort, rows=ROWS, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
