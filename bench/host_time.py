"""host_time.py: what a call costs the host: fatune.attention beside SDPA and its backends, small tensors, causal.
in -> out: 8 heads of 128 x 128 -> microseconds of a forward without gradients and of a forward with its backward.
A GPU that does nothing else; the CPU should be as quiet."""

import contextlib
import statistics
import time

import common

CALLS = 40  # of a batch: fewer than the driver queues before it waits
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


def batch_us(torch, function):
    """Host time of a call, by a batch of them that begins with the GPU idle."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
    seconds = time.perf_counter() - begin
    torch.cuda.synchronize()
    return seconds / CALLS * 1e6


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
    fastest = min(min(of_name) for name, of_name in times.items() if name != "fatune")
    for name, of_name in times.items():
        report.add(what=name, part=part, least_us=min(of_name), median_us=statistics.median(of_name),
                   to_fastest=fastest / min(of_name))


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    torch = common.import_torch()
    import fatune
    from torch.nn.attention import SDPBackend, sdpa_kernel
    report = common.Report("host_time", options)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for part in ("forward", "forward + backward"):
        learnt = part != "forward"
        q, k, v = (torch.randn(1, 8, 128, 128, device="cuda", dtype=torch.bfloat16, requires_grad=learnt) for _ in range(3))
        dout = torch.randn_like(q)

        def run(attend, q=q, k=k, v=v, dout=dout, learnt=learnt):
            return torch.autograd.grad(attend(q, k, v), (q, k, v), dout) if learnt else attend(q, k, v)

        def ours(run=run):
            return run(lambda q, k, v: fatune.attention(q, k, v, causal=True))

        def theirs(run=run):
            return run(lambda q, k, v: sdpa(q, k, v, is_causal=True))

        contenders = {"fatune": (ours, contextlib.nullcontext), "SDPA": (theirs, contextlib.nullcontext)}
        contenders |= {name: (theirs, lambda name=name: sdpa_kernel(getattr(SDPBackend, name))) for name in BACKENDS}
        with torch.set_grad_enabled(learnt):
            measure(torch, report, part, contenders, 15 if options.quick else 60)
    report.write(calls=CALLS)


if __name__ == "__main__":
    main()
