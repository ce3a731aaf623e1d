"""traffic.py: bytes that go through device memory, by the GPU's own counters: fatune beside standard attention, which keeps
S and P in memory (matmul, softmax, matmul), and beside SDPA.
in -> out: d 64, n 1024 to 8192 -> GB read and written by a forward, and by a forward with its backward; the least there
is: inputs once, outputs once. The counters come by PyTorch's profiler, and a driver may keep them for root."""

import json
import os
import tempfile

import common

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
HEADS, DIM, ROWS = 16, 64, 16384


def standard(torch, q, k, v):
    return torch.softmax(q @ k.mT * DIM**-0.5, -1) @ v


def counted(torch, function):
    """[bytes read, bytes written] of one run."""
    from torch._C._profiler import _ExperimentalConfig
    config = _ExperimentalConfig(profiler_metrics=list(METRICS), profiler_measure_per_kernel=False)
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], experimental_config=config) as profile:
        function()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as trace:
            events = json.load(trace)["traceEvents"]
    sums = [sum(float(event["args"][metric]) for event in events if metric in event.get("args", {})) for metric in METRICS]
    if not sum(sums):
        raise SystemExit("the profiler gave no counters; they may be kept for root (NVreg_RestrictProfilingToAdminUsers), or "
                         "this PyTorch is built without CUPTI's range profiler")
    return sums


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    torch = common.import_torch()
    import fatune
    report = common.Report("traffic", options)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for seq in (2048,) if options.quick else (1024, 2048, 4096, 8192):
        shape = ROWS // seq, HEADS, seq, DIM
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        dout, tensor_bytes = torch.randn_like(q), q.numel() * q.element_size()
        lse_bytes = 4 * q.numel() // DIM
        for name, attend in (("fatune", fatune.attention), ("SDPA", sdpa), ("standard", lambda *given: standard(torch, *given))):
            with torch.no_grad():
                read, written = counted(torch, lambda attend=attend: attend(q, k, v))
            report.add(what=name, part="forward", n=seq, read_gb=read / 1e9, written_gb=written / 1e9, gb=(read + written) / 1e9,
                       to_least=(read + written) / (4 * tensor_bytes))
            read, written = counted(torch, lambda attend=attend: torch.autograd.grad(attend(q, k, v), (q, k, v), dout))
            report.add(what=name, part="forward + backward", n=seq, read_gb=read / 1e9, written_gb=written / 1e9,
                       gb=(read + written) / 1e9, to_least=(read + written) / (12 * tensor_bytes + 2 * lse_bytes))
        torch.cuda.empty_cache()
    report.write(metrics=METRICS, heads=HEADS, d=DIM, rows=ROWS)


if __name__ == "__main__":
    main()
