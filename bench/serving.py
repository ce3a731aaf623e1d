"""serving.py: what an inference engine asks for beside what decode.py and ragged.py measure.
in -> out: bf16 -> GPU time in captured graphs, untuned and, with an effort, tuned, of K and V in pages beside own contiguous
ones (decodes, a prefill, a chunk), of a decode batch of mixed lengths beside one of equal lengths, of Longformer's mask beside
the own dense kernel, and of a ViT's forward beside cuDNN.

`ratio` is the speed of the row over that of what it is measured beside, `wanted` what it is to be at least."""

import collections
import random

import block_sparse
import common
import decode

PAGE_SIZES, KEYS_OF_BATCH, SHORTEST, LONGEST = (16, 64, 256), 1 << 20, 1 << 10, 1 << 17
CALLS, VIT_BATCH = 10, 64
DIAGONALS, WHOLE_BLOCKS = 3, 1  # of Longformer's mask

Paged = collections.namedtuple("Paged", "batch nq nk causal")
PAGED = (Paged(16, 1, 8192, False), Paged(64, 1, 4096, False), Paged(4, 4096, 4096, True), Paged(4, 512, 16384, True))


class Calls:
    """The same arguments at each call of a graph."""

    def __init__(self, *arguments, calls=CALLS):
        self.arguments, self.calls = arguments, calls

    def of(self, _):
        return self.arguments


def randn(torch, *shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def times_of(torch, options, runs, calls):
    """Microseconds by name, and first outputs by name, of functions measured in turn in graphs."""
    contenders = [decode.captured(torch, name, calls, run) for name, run in runs.items()]
    contenders = [contender for contender in contenders if contender]
    common.measure(contenders, options.quick)
    return ({contender.name: contender.median_us / calls.calls for contender in contenders},
            {contender.name: contender.outputs[0] for contender in contenders})


# ---- K and V in pages ----------------------------------------------------------------------------

def paged_request(case, page):
    heads = f"hq{decode.HEADS} hkv{decode.HEADS_KV}"
    return (f"forward bf16 d{decode.DIM} {heads} b{case.batch} nq{case.nq} nk{case.nk}"
            f"{' causal' if case.causal else ''}{f' pages={page}' if page else ''}")


def pools_of(torch, k, v, page, heads_first):
    """K and V [batch, rows, heads, dim] in pages that lie in a random order, and their table."""
    batch, rows, heads, dim = k.shape
    columns = rows // page
    table = torch.randperm(batch * columns, device="cuda").int().view(batch, columns)
    pools = []
    for tensor in (k, v):
        pool = torch.empty(batch * columns, *((heads, page) if heads_first else (page, heads)), dim, device="cuda",
                           dtype=tensor.dtype)
        pool = pool.transpose(1, 2) if heads_first else pool
        pool[table.flatten().long()] = tensor.reshape(batch * columns, page, heads, dim)
        pools.append(pool)
    return (*pools, table)


def measure_paged(torch, fatune, options, report, sessions):
    for case in PAGED[:1] if options.quick else PAGED:
        for heads_first in (False, True):
            q = randn(torch, case.batch, case.nq, decode.HEADS, decode.DIM)
            k, v = (randn(torch, case.batch, case.nk, decode.HEADS_KV, decode.DIM) for _ in range(2))
            lengths = torch.full((case.batch,), case.nk, device="cuda", dtype=torch.int32)
            own = [tensor.transpose(1, 2).contiguous() for tensor in (k, v)] if heads_first else [k, v]
            own = [tensor.transpose(1, 2) for tensor in own] if heads_first else own
            runs = {f"{name} 0": lambda session=session, own=own: fatune.attention(
                q, *own, causal=case.causal, layout="bshd", session=session) for name, session in sessions.items()}
            for page in PAGE_SIZES:
                pools = pools_of(torch, k, v, page, heads_first)
                for name, session in sessions.items():
                    runs[f"{name} {page}"] = lambda session=session, pools=pools: fatune.decode(
                        q, *pools, lengths, causal=case.causal, session=session)
            times, outputs = times_of(torch, options, runs, Calls())
            add_paged(report, sessions, case, heads_first, times, outputs)


def add_paged(report, sessions, case, heads_first, times, outputs):
    for name, session in sessions.items():
        for page in PAGE_SIZES:
            error = common.check_close(f"pages of {page}, {case}", outputs[f"{name} {page}"], outputs[f"{name} 0"], 0.02)
            contiguous, us = times[f"{name} 0"], times[f"{name} {page}"]
            plan = session.plan(paged_request(case, page))
            report.add(part="paged", who=name, **case._asdict(), page=page, heads_first=heads_first, us=us,
                       contiguous_us=contiguous, ratio=contiguous / us, wanted=0.95, max_difference=error,
                       config=plan.config, origin=plan.origin)


# ---- a decode batch of mixed lengths -------------------------------------------------------------

def mixed_lengths(seed):
    """Lengths whose logarithms are uniform; the last one takes what is left."""
    draw, lengths = random.Random(seed), []
    while sum(lengths) < KEYS_OF_BATCH:
        length = int(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
        lengths.append(min(length, KEYS_OF_BATCH - sum(lengths)))
    return lengths


def measure_mixed(torch, fatune, options, report, sessions):
    for seed in (1,) if options.quick else (1, 2, 3):
        mixed = mixed_lengths(seed)
        for page in (64,) if options.quick else PAGE_SIZES:
            equal = [KEYS_OF_BATCH // len(mixed)] * len(mixed)
            columns, pages = LONGEST // page, KEYS_OF_BATCH // page + 2 * len(mixed)
            pools = [randn(torch, pages, page, decode.HEADS_KV, decode.DIM) for _ in range(2)]
            q, runs, starts = randn(torch, len(mixed), 1, decode.HEADS, decode.DIM), {}, {}
            for kind, lengths in (("mixed", mixed), ("equal", equal)):
                free, table = torch.randperm(pages).int(), torch.zeros(len(lengths), columns, dtype=torch.int32)
                for row, length in enumerate(lengths):
                    used = -(-length // page)
                    table[row, :used], free = free[:used], free[used:]
                starts[kind] = table.cuda(), torch.tensor(lengths, device="cuda", dtype=torch.int32)
                for name, session in sessions.items():
                    runs[f"{name} {kind}"] = lambda session=session, kind=kind: fatune.decode(
                        q, *pools, *starts[kind], session=session)
            times, outputs = times_of(torch, options, runs, Calls(calls=3))
            check_mixed(torch, q, pools, *starts["mixed"], mixed, outputs["untuned mixed"])
            for name in sessions:
                us = times[f"{name} mixed"]
                moved = sum(mixed) * decode.HEADS_KV * decode.DIM * 4
                equal_us = times[f"{name} equal"] * sum(mixed) / sum(equal)
                report.add(part="mixed", who=name, sequences=len(mixed), page=page, seed=seed, us=us, equal_us=equal_us,
                           tb_s=moved / us * 1e-6, ratio=equal_us / us, wanted=0.9, lengths=mixed)


def check_mixed(torch, q, pools, table, _, lengths, out):
    """The shortest and the longest sequence against SDPA."""
    for row in (lengths.index(min(lengths)), lengths.index(max(lengths))):
        own = (pool[table[row].long()].flatten(0, 1)[:lengths[row]].transpose(0, 1).unsqueeze(0) for pool in pools)
        expected = torch.nn.functional.scaled_dot_product_attention(q[row:row + 1].transpose(1, 2), *own, enable_gqa=True)
        common.check_close(f"sequence of {lengths[row]} keys", out[row:row + 1].transpose(1, 2), expected, 0.01)


# ---- Longformer's mask ---------------------------------------------------------------------------

def longformer_table(torch):
    """Blocks on the diagonal and on both sides of it; the first ones see all keys, and all queries see them."""
    place = torch.arange(block_sparse.SEQ // block_sparse.BLOCK)
    near = (place[:, None] - place[None, :]).abs() <= DIAGONALS // 2
    return near | (place < WHOLE_BLOCKS)[:, None] | (place < WHOLE_BLOCKS)[None, :]


def measure_longformer(torch, fatune, options, report, sessions):
    table, seq, block = longformer_table(torch), block_sparse.SEQ, block_sparse.BLOCK
    for dim, wanted in ((64, 0.65), (128, 0.68)):
        q, k, v = (randn(torch, 1, 2048 // dim, seq, dim) for _ in range(3))
        runs, masks = {}, {}
        for name, session in sessions.items():
            mask = masks[name] = fatune.BlockMask(table, block, block, seq, seq, session=session)
            runs[f"{name} masked"] = lambda session=session, mask=mask: fatune.attention(q, k, v, mask=mask, session=session)
            runs[f"{name} dense"] = lambda session=session: fatune.attention(q, k, v, session=session)
            block_sparse.check_mask(torch, fatune, q, k, v, table, mask, session)
        times, _ = times_of(torch, options, runs, Calls(calls=3))
        for name in sessions:
            us, dense_us = times[f"{name} masked"], times[f"{name} dense"]
            report.add(part="longformer", who=name, d=dim, n=seq, kept=masks[name].density, us=us, dense_us=dense_us,
                       ratio=dense_us * masks[name].density / us, wanted=wanted)


# ---- ViT -----------------------------------------------------------------------------------------

def vit_request(heads, n):
    return common.request_text(64, heads, VIT_BATCH, n)


def measure_vit(torch, fatune, options, report, sessions):
    for heads in (12, 16):
        for n in (197, 257):
            q, k, v = (randn(torch, VIT_BATCH, heads, n, 64) for _ in range(3))
            runs = {name: lambda session=session: fatune.attention(q, k, v, session=session)
                    for name, session in sessions.items()}
            runs |= {name: lambda backend=backend: decode.by_backend(torch, backend)(q, k, v)
                     for name, backend in (("cudnn", "CUDNN_ATTENTION"), ("flash", "FLASH_ATTENTION"))}
            times, outputs = times_of(torch, options, runs, Calls())
            for name in sessions:
                error = common.check_close(f"ViT n {n}", outputs[name], outputs["flash"], 0.02)
                plan = sessions[name].plan(vit_request(heads, n))
                report.add(part="vit", who=name, heads=heads, n=n, us=times[name], cudnn_us=times["cudnn"],
                           flash_us=times["flash"], ratio=times["cudnn"] / times[name], wanted=1.1, max_difference=error,
                           config=plan.config, origin=plan.origin)


MEASURES = {"vit": measure_vit, "longformer": measure_longformer, "mixed": measure_mixed, "paged": measure_paged}
OPTIONS = {"--parts": {"nargs": "+", "choices": list(MEASURES), "default": list(MEASURES)}}


def requests_of(parts):
    requests = []
    if "vit" in parts:
        requests += [vit_request(heads, n) for heads in (12, 16) for n in (197, 257)]
    if "longformer" in parts:
        requests += [block_sparse.request_of(dim, None) for dim in (64, 128)]
    if "paged" in parts:
        requests += [paged_request(case, page) for case in PAGED for page in (0, *PAGE_SIZES)]
    return requests


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none", budget=120.0, options=OPTIONS)
    torch = common.import_torch()
    report = common.Report("serving", options)
    tuning = common.tune(options, requests_of(options.parts))
    import fatune
    device = torch.cuda.current_device()
    sessions = {"untuned": fatune.Session(device=device, memory_only=True)}
    if options.effort != "none":
        sessions["tuned"] = fatune.default_session(device)
    torch.manual_seed(0)
    with torch.no_grad():
        for part in options.parts:
            MEASURES[part](torch, fatune, options, report, sessions)
    report.write(effort=options.effort, tune_seconds=tuning["seconds"])


if __name__ == "__main__":
    main()
