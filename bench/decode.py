"""decode.py: few queries and many keys: decoding, and a chunk of a prompt after a long cache.
in -> out: bf16, d 128, 32 query heads on 8 of keys -> GPU time in a captured graph of fatune, tuned and
as it comes, of cuDNN and of FlashAttention (PyTorch's), and of a kernel that only reads K and V; their TB/s.

A graph holds calls that take turns with copies of the tensors, as many as L2 cannot hold; --warm leaves them in L2."""

import collections
import math

import common

DIM, HEADS, HEADS_KV = 128, 32, 8
COLD_BYTES, CALLS, CALLS_MOST = 256 << 20, 10, 64

Case = collections.namedtuple("Case", "batch nq nk")
CASES = (Case(16, 1, 8192), Case(64, 1, 4096), Case(1, 1, 1024), Case(1, 1, 4096), Case(1, 1, 65536),
         Case(1, 512, 16384))
QUICK = (Case(16, 1, 8192), Case(1, 1, 4096))
OPTIONS = {"--warm": {"action": "store_true", "help": "K and V stay in L2 where they fit"}}


def request_of(case):
    return (f"forward bf16 d{DIM} hq{HEADS} hkv{HEADS_KV} b{case.batch} nq{case.nq} nk{case.nk}")


def bytes_of(case):
    """Of K and V, read once."""
    return case.batch * HEADS_KV * case.nk * DIM * 2 * 2


class Inputs:
    """Copies of Q, K, V. K and V of one copy lie behind each other, for what reads them both."""

    def __init__(self, torch, case, warm):
        self.copies = 1 if warm else math.ceil(COLD_BYTES / bytes_of(case))
        self.calls = max(CALLS, min(self.copies, CALLS_MOST))
        shape = (self.copies, 2, case.batch, HEADS_KV, case.nk, DIM)
        self.keys_and_values = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self.queries = torch.randn(self.copies, case.batch, HEADS, case.nq, DIM, device="cuda",
                                   dtype=torch.bfloat16)

    def of(self, call):
        number = call % self.copies
        return (self.queries[number], self.keys_and_values[number, 0], self.keys_and_values[number, 1])


def captured(torch, name, inputs, run):
    """A contender whose sample is a graph of calls; None where the run is refused."""
    try:
        with torch.no_grad():
            run(*inputs.of(0))
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = [run(*inputs.of(call)) for call in range(inputs.calls)]
    except RuntimeError as error:
        print(f"{name}: {str(error).splitlines()[0]}")
        return None
    contender = common.Contender(name, graph.replay)
    contender.outputs = outputs
    return contender


def by_backend(torch, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return run


def read_only(torch):
    def run(q, k, v):
        first = k.as_strided((k.numel() * 2,), (1,), k.storage_offset())  # K and V
        return first.view(torch.float32).sum()
    return run


def measure_case(options, torch, fatune, report, case, tuned, untuned):
    inputs = Inputs(torch, case, options.warm)
    runs = {"fatune": lambda q, k, v: fatune.attention(q, k, v, session=tuned),
            "untuned": lambda q, k, v: fatune.attention(q, k, v, session=untuned),
            "cudnn": by_backend(torch, "CUDNN_ATTENTION"),
            "flash": by_backend(torch, "FLASH_ATTENTION"), "read_only": read_only(torch)}
    contenders = {name: captured(torch, name, inputs, run) for name, run in runs.items()}
    contenders = {name: contender for name, contender in contenders.items() if contender}
    common.measure(list(contenders.values()), options.quick)
    times = {name: contender.median_us / inputs.calls for name, contender in contenders.items()}
    theirs = by_backend(torch, "MATH")(*inputs.of(0)) if case.nq == 1 else contenders["flash"].outputs[0]
    error = max(common.check_close(f"{name} of {case}", contenders[name].outputs[0], theirs)
                for name in ("fatune", "untuned"))
    row = {f"{name}_us": us for name, us in times.items()}
    for name in ("cudnn", "flash", "read_only", "untuned"):
        if name in times:
            row[f"to_{name}"] = times[name] / times["fatune"]
    report.add(batch=case.batch, nq=case.nq, nk=case.nk, warm=options.warm, calls=inputs.calls, **row,
               tb_s=bytes_of(case) / times["fatune"] * 1e-6, max_difference=error,
               spread_us=contenders["fatune"].spread_us / inputs.calls,
               config=tuned.plan(request_of(case)).config, origin=tuned.plan(request_of(case)).origin,
               untuned_config=untuned.plan(request_of(case)).config)
    print(f"  {report.rows[-1]['config']}\n  untuned {report.rows[-1]['untuned_config']}", flush=True)


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="quick", budget=120.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("decode_warm" if options.warm else "decode", options)
    cases = QUICK if options.quick else CASES
    tuning = common.tune(options, [request_of(case) for case in cases])
    import fatune
    device = torch.cuda.current_device()
    tuned = fatune.default_session(device)
    untuned = fatune.Session(device=device, memory_only=True)
    torch.manual_seed(0)
    for case in cases:
        measure_case(options, torch, fatune, report, case, tuned, untuned)
    report.write(effort=options.effort, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
