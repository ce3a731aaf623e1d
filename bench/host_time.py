"""host_time.py: what a call costs the host: fatune beside SDPA and its backends, small tensors.
in -> out: 8 heads of 128 x 128 -> microseconds of a causal forward without gradients, of one with its backward, and of the latter
with head dim 8 and with a bias that gets a gradient; and of parts of the first that no library for PyTorch is without.
Each batch of calls begins with one that is timed by itself, first_us: others ran before it, and it finds nothing of its own in the
processor's caches. A GPU that does nothing else; the CPU should be as quiet."""

import contextlib
import functools
import statistics
import time

import common

CALLS = 40  # of a batch: fewer than the driver queues before it waits
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


def batch_us(torch, function):
    """Host time of a call that follows others like it, and of the first: of a batch of them that begins with the GPU idle."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
    end = time.perf_counter()
    torch.cuda.synchronize()
    return (end - begin) / CALLS * 1e6, (begin - start) * 1e6


def measure(torch, report, part, contenders, rounds):
    """contenders: name -> (function, context). In turn; a context is entered outside of what is timed."""
    times = {}
    for name, (function, context) in contenders.items():
        try:
            with context():
                for _ in range(3):
                    batch_us(torch, function)
            times[name] = []
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    for _ in range(rounds):
        for name, of_name in times.items():
            function, context = contenders[name]
            with context():
                of_name.append(batch_us(torch, function))
    fastest = min(min(of_name)[0] for name, of_name in times.items() if name != "fatune")
    for name, of_name in times.items():
        least, median = min(of_name)[0], statistics.median(us for us, _ in of_name)
        report.add(what=name, part=part, least_us=least, median_us=median, first_us=statistics.median(first for _, first in of_name),
                   to_fastest=fastest / least)


def floor(torch, fatune, rounds):
    """Microseconds of what a forward cannot be without: room for O, made by PyTorch; the library's run, most of it the driver's."""
    q, k, v = (torch.randn(1, 8, 128, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)
    session = fatune.Session(device=torch.cuda.current_device())
    with torch.no_grad():
        fatune.attention(q, k, v, causal=True, session=session)
    call, = session.calls.values()
    run, _, _, workspace = call.prepared_forward(q)
    tensors = [q, k, v, out, None] + ([] if workspace is None else [torch.empty_like(workspace)])
    parts = {"room_for_o_us": lambda: torch.empty_like(q), "run_us": lambda: run(*tensors, 0, 0)}
    return {name: statistics.median(batch_us(torch, part)[0] for _ in range(rounds)) for name, part in parts.items()}


def cases(torch, fatune):
    """name, whether gradients are made, shape, whether there is a bias; of q, k, v and the bias fatune's function and PyTorch's"""
    shape, sdpa = (1, 8, 128, 128), torch.nn.functional.scaled_dot_product_attention
    ours, theirs = functools.partial(fatune.attention, causal=True), functools.partial(sdpa, is_causal=True)
    yield "forward", False, shape, False, ours, theirs
    yield "forward + backward", True, shape, False, ours, theirs
    yield "head dim 8", True, (*shape[:3], 8), False, functools.partial(fatune.sdpa, is_causal=True), theirs
    yield "bias with a gradient", True, shape, True, fatune.sdpa, sdpa


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    torch = common.import_torch()
    import fatune
    from torch.nn.attention import SDPBackend, sdpa_kernel
    report = common.Report("host_time", options)
    rounds = 15 if options.quick else 60
    for part, learnt, shape, biased, ours, theirs in cases(torch, fatune):
        new = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": learnt}
        inputs = [torch.randn(shape, **new) for _ in range(3)] + ([torch.randn(1, 8, 128, 128, **new)] if biased else [])
        dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

        def with_gradients(attend, inputs=inputs, dout=dout):
            return torch.autograd.grad(attend(*inputs), inputs, dout)

        ours, theirs = (functools.partial(with_gradients, attend) if learnt else functools.partial(attend, *inputs)
                        for attend in (ours, theirs))
        contenders = {"fatune": (ours, contextlib.nullcontext), "SDPA": (theirs, contextlib.nullcontext)}
        contenders |= {name: (theirs, lambda name=name: sdpa_kernel(getattr(SDPBackend, name))) for name in BACKENDS}
        with torch.set_grad_enabled(learnt):
            measure(torch, report, part, contenders, rounds)
    report.write(calls=CALLS, floor=floor(torch, fatune, rounds))


if __name__ == "__main__":
    main()
