"""ragged.py: documents of random lengths, packed, beside the same documents in full batches of their own length.
in -> out: bf16, d 64 and 128, causal, 32768 rows in all -> the time of one ragged forward and of one backward, its share of
the sum of dense times (each document's from a batch that has about as many rows in all), beside PyTorch's varlen_attn where
it is. A backward is the library's call alone: the zeros that the package gives it for rows that no document uses are not
timed."""

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


def backwards_of(requests):
    return [text.replace("forward", "backward", 1) for text in requests]


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


def random_tensors(torch, *shape):
    return [torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def backward_of(torch, out):
    """The library's backward of a result as a function without arguments; its tensors by name. The result is one of those
    that come with LSE: their nodes are Python's."""
    from fatune._autograd import bytes_of
    node = out.grad_fn
    while not hasattr(node, "of"):
        node = node.next_functions[0][0]
    call, seed, offset, *_ = node.of
    q, k, v, saved, lse = node.saved_tensors[:5]
    tensors = {"q": q, "k": k, "v": v, "o": saved, "dout": torch.randn_like(saved)}
    tensors.update({"d" + name: torch.zeros_like(tensors[name]) for name in "qkv"})
    return lambda: call.backward(tensors, lse, None, seed, offset, bytes_of(q)), tensors


def check_gradients(torch, tensors, starts, bound=0.02):
    """Those of a few documents against SDPA, in relative L2."""
    for number in (0, len(starts) // 2, len(starts) - 2):
        part = slice(starts[number], starts[number + 1])
        one = {name: tensor[0, part].transpose(0, 1).unsqueeze(0).float() for name, tensor in tensors.items()}
        own = [one[name].requires_grad_() for name in "qkv"]
        out = torch.nn.functional.scaled_dot_product_attention(*own, is_causal=True)
        for name, expected in zip("qkv", torch.autograd.grad(out, own, one["dout"])):
            distance = ((one["d" + name] - expected).norm() / expected.norm()).item()
            if not distance <= bound:
                raise SystemExit(f"d{name} of document {number} differs from PyTorch's by {distance:.3g}, at most {bound}")


def dense_contenders(torch, fatune, dim, lengths, backward):
    """(batch, contender) by length: full batches of documents of that length."""
    heads, contenders = 2048 // dim, {}
    for n in sorted(set(lengths)):
        batch = max(1, ROWS // n)
        qkv = random_tensors(torch, batch, n, heads, dim)
        if backward:
            run, _ = backward_of(torch, fatune.attention(*qkv, causal=True, layout="bshd", return_lse=True)[0])
        else:
            run = torch.no_grad()(lambda qkv=qkv: fatune.attention(*qkv, causal=True, layout="bshd", return_lse=True))
        contenders[n] = (batch, common.Contender(str(n), run))
    return contenders


def forward_contenders(torch, fatune, qkv, starts, longest):
    ragged = torch.no_grad()(lambda: fatune.varlen(*qkv, starts, starts, causal=True, return_lse=True)[0])
    runs = {"ragged": ragged}
    theirs = theirs_of(torch, starts, longest)
    if theirs is not None:
        runs["varlen_attn"] = torch.no_grad()(lambda: theirs(*qkv))
    for name, run in runs.items():
        check(torch, name, run(), *qkv, starts.tolist())
    return [common.Contender(name, run) for name, run in runs.items()]


def backward_contenders(torch, fatune, qkv, starts):
    run, tensors = backward_of(torch, fatune.varlen(*qkv, starts, starts, causal=True, return_lse=True)[0])
    run()
    check_gradients(torch, tensors, starts.tolist())
    return [common.Contender("ragged", run)]


def measure_dim(torch, fatune, session, options, report, dim, seed, backward):
    lengths, heads = document_lengths(seed), 2048 // dim
    starts = torch.tensor([0, *lengths]).cumsum(0).to(device="cuda", dtype=torch.int32)
    qkv = random_tensors(torch, ROWS, heads, dim)
    contenders = (backward_contenders(torch, fatune, qkv, starts) if backward
                  else forward_contenders(torch, fatune, qkv, starts, max(lengths)))
    dense = dense_contenders(torch, fatune, dim, lengths, backward)
    common.measure([*contenders, *(contender for _, contender in dense.values())], options.quick)
    dense_us = sum(dense[n][1].median_us / dense[n][0] for n in lengths)
    flops = (2.5 if backward else 1) * sum(common.forward_flops(1, heads, n, dim, causal=True) for n in lengths)
    request = requests_of(dim, lengths)[0]
    plan = session.plan(backwards_of([request])[0] if backward else request)
    for contender in contenders:
        own = contender.name == "ragged"
        report.add(d=dim, what="backward" if backward else "forward", documents=len(lengths), who=contender.name,
                   us=contender.median_us, spread_us=contender.spread_us, tflops=common.tflops(flops, contender.median_us),
                   dense_us=dense_us, to_dense_sum=contender.median_us / dense_us, lengths=lengths,
                   config=plan.config if own else "", origin=plan.origin if own else "")


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], budget=240.0)
    torch = common.import_torch()
    report = common.Report("ragged", options)
    cases = [(128, 1)] if options.quick else [(dim, seed) for dim in (64, 128) for seed in (1, 2, 3)]
    forwards = [text for dim, seed in cases for text in requests_of(dim, document_lengths(seed))]
    tuning = common.tune(options, list(dict.fromkeys([*forwards, *backwards_of(forwards)])))
    import fatune
    session = fatune.default_session(torch.cuda.current_device())
    torch.manual_seed(0)
    for dim, seed in cases:
        for backward in (False, True):
            measure_dim(torch, fatune, session, options, report, dim, seed, backward)
    report.write(effort=options.effort, rows=ROWS, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
