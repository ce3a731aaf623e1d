"""memory.py: device memory that a forward pass over 65536 tokens takes beyond inputs and outputs.
in -> out: b = 1, 16 heads, d = 64, causal, bf16 -> MiB taken from the driver, and from PyTorch's
allocator, by fatune and by PyTorch's SDPA backends. Outputs are O and LSE."""

import common

HEADS, DIM = 16, 64


def taken(torch, function):
    """MiB a call takes: driver memory that is gone afterwards, and the allocator's peak beyond what
    stays alive. The first call counts, with all that it sets up but the plan."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.mem_get_info()[0]
    result = function()
    torch.cuda.synchronize()
    after = torch.cuda.mem_get_info()[0]
    peak, alive = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del result
    return (before - after) / 2**20, (peak - alive) / 2**20


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    torch = common.import_torch()
    report = common.Report("memory", options)
    import fatune
    seq = 16384 if options.quick else 65536
    session = fatune.default_session(torch.cuda.current_device())
    q, k, v = (torch.randn(1, HEADS, seq, DIM, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    out = torch.empty_like(q)
    small = [tensor[:, :, :128] for tensor in (q, k, v)]  # called first: handles do not count
    session.cached_plan(fatune.parse_request(common.request_text(DIM, HEADS, 1, seq, True)))
    with torch.no_grad():
        fatune.attention(*small, causal=True)
        driver_mib, peak_mib = taken(
            torch, lambda: fatune.attention(q, k, v, causal=True, out=out, session=session))
        report.add(n=seq, what="fatune", driver_mib=driver_mib, allocator_mib=peak_mib)
        for name, backend in (("fa2", "FLASH_ATTENTION"), ("cudnn", "CUDNN_ATTENTION")):
            if not common.sdpa_contender(name, backend, *small, is_causal=True):
                continue
            contender = common.sdpa_contender(name, backend, q, k, v, is_causal=True)
            with contender.context():
                driver_mib, peak_mib = taken(torch, contender.function)
            # What stays alive there is O; driver memory holds it too.
            o_mib = out.numel() * out.element_size() / 2**20
            report.add(n=seq, what=name, driver_mib=driver_mib - o_mib, allocator_mib=peak_mib)
    report.write()


if __name__ == "__main__":
    main()
