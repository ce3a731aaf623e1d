"""distributed.py: attention over several GPUs beside one GPU with the same work, and beside PyTorch's context parallel.
in -> out: bf16, d 128, 32 query heads on 8, causal, 16k and 64k tokens a GPU, a window of 4096, documents of random lengths,
a million tokens of 8 heads -> milliseconds of a forward and of a forward with its backward for each scheme, the share that
one GPU's time divided by the number of GPUs is of them, memory, errors against float32.

    torchrun --nproc-per-node 4 bench/distributed.py --build build/portable      # over NCCL
    python3 bench/distributed.py --alone 4            # one GPU does each process's work in turn; messages are copies
    torchrun --nproc-per-node 2 bench/distributed.py --check    # errors alone; processes may share a GPU, over gloo"""

import contextlib
import datetime
import os
import random
import statistics

import common

HEADS, HEADS_KV, DIM = 32, 8, 128
SCHEMES = ("ring", "gather", "ulysses")
WAYS = {"chosen": {}, "ring": {"scheme": "ring"}, "gather": {"scheme": "gather"}, "ulysses": {"scheme": "ulysses"},
        "gather, messages": {"scheme": "gather", "transport": "messages"}}
SAMPLE_MS = 100  # of one contender, about
PARTS = ("check", "causal", "window", "documents", "memory")
OPTIONS = {
    "--alone": {"type": int, "metavar": "PROCESSES", "help": "on one GPU, each process's work in turn, without messages"},
    "--check": {"action": "store_true", "help": "errors against float32, and no times"},
    "--tokens": {"type": int, "nargs": "*", "default": [16384, 65536], "help": "a GPU"},
    "--parts": {"nargs": "*", "default": list(PARTS), "choices": PARTS, "help": "which of the measurements"},
    "--no-pytorch": {"action": "store_true", "help": "leave PyTorch's context parallel out"},
}


def tensors(torch, rows, heads=(HEADS, HEADS_KV, HEADS_KV, HEADS), seed=0):
    """Q, K, V and dO, of normals."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randn(1, count, rows, DIM, device="cuda", dtype=torch.bfloat16, generator=generator) for count in heads]


def largest(torch, number):
    """The largest of what all processes give."""
    if not torch.distributed.is_initialized():
        return number
    made = torch.tensor(number, dtype=torch.float64, device="cuda")
    torch.distributed.all_reduce(made, torch.distributed.ReduceOp.MAX)
    return made.item()


def sample(torch, call, repeats):
    """Milliseconds of a call, one behind the other, as a model's layers are; all processes begin together."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()  # keeps the GPU busy while the host enqueues what is timed
    first.record()
    for _ in range(repeats):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / repeats


def timed(torch, calls, rounds):
    """Median milliseconds of each call, {name: (context, call)}, in rounds that are shuffled alike on all processes; of the
    processes the slowest counts. Calls that fail are told and left out. context: what a call is made in, of no arguments."""
    order, source, samples, repeats = list(calls), random.Random(rounds), {name: [] for name in calls}, {}
    for n in range(rounds + 1):
        for name in source.sample(order, len(order)):
            context, call = calls[name]
            try:
                with context():
                    milliseconds = sample(torch, call, repeats.get(name, 1))
            except (RuntimeError, ValueError, NotImplementedError, IndexError) as error:
                print(f"{name}: {str(error).splitlines()[0]}", flush=True)
                order.remove(name)
                del samples[name]
                continue
            if n:
                samples[name].append(milliseconds)
            else:
                repeats[name] = max(1, min(5, int(SAMPLE_MS / largest(torch, milliseconds))))
    return {name: largest(torch, statistics.median(taken)) for name, taken in samples.items()}


def times_of(torch, contenders, rounds):
    """{name: (milliseconds of a forward, of a forward with its backward)} of {name: (context, forward, step)}."""
    calls = {}
    for name, (context, forward, step) in contenders.items():
        calls[name, "forward"], calls[name, "both"] = (context, forward), (context, step)
    made = timed(torch, calls, rounds)
    return {name: (made[name, "forward"], made[name, "both"]) for name in contenders
            if (name, "forward") in made and (name, "both") in made}


def both(torch, function, q, k, v, dout):
    """(forward, forward and backward) as calls."""
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]

    def forward():
        with torch.no_grad():
            function(q, k, v)

    def step():
        torch.autograd.grad(function(*leaves), leaves, dout)

    return forward, step


# ---- one GPU in place of several ----------------------------------------------------------------------------

class Filled:
    """In place of what moves rows: as many bytes, written on this GPU."""

    def room(self, purpose, size, like):
        memory = like.new_empty(size, dtype=like.new_empty(0).byte().dtype)
        return memory, memory

    def filled(self, room):
        pass

    def move(self, room, moves, sends, what):
        for _, _, to in moves:
            to.random_(0, 64)  # small normal numbers of bfloat16
        return lambda: None

    def post(self, sends, receives):
        for _, tensor in receives:
            if tensor is not None:
                tensor.normal_() if tensor.dtype.is_floating_point else tensor.zero_()

    def wait(self):
        pass


def share_of_one(fatune, scheme, rank, ranks, rows, causal, window):
    """The attention of one process of several, on this GPU."""
    from fatune.distributed import _gather, _part, _plan, _schemes, _shares
    order = "contiguous" if window else "zigzag"
    chunks = tuple(_shares.chunks_of(n, ranks, ranks * rows, order) for n in range(ranks))
    options = {"causal": causal, "window": window, "scale": None, "dropout": 0.0, "layout": "bhsd", "deterministic": False,
               "session": fatune.default_session(0), "score": None, "visible": None, "captured": None, "tf32": False,
               "spare": 0}
    calls = _part.Calls(options, _part.Whole(0, HEADS, 0, HEADS_KV, ranks * rows))
    arguments = (calls, options["session"], None, tuple(range(ranks)), rank, chunks, _plan.diagonals(causal, window), False, 0, 0)

    class Quiet(_schemes.Ring):
        def messages(self, what):
            return Filled()

    run = Quiet(*arguments) if scheme == "ring" else _gather.Gather(*arguments, Filled())
    return lambda q, k, v: _schemes.function().apply(run, q, k, v, None)[0]


def measure_alone(torch, fatune, options, ranks, rows, causal, window, report):
    nothing = contextlib.nullcontext
    contenders = {"one GPU": (nothing, *both(torch, lambda q, k, v: fatune.attention(q, k, v, causal=causal, window=window),
                                             *tensors(torch, rows * ranks)))}
    schemes = ("gather",) if window else ("ring", "gather")
    for scheme in schemes:
        for rank in (0, ranks - 1):
            contenders[scheme, rank] = (nothing, *both(
                torch, share_of_one(fatune, scheme, rank, ranks, rows, causal, window), *tensors(torch, rows)))
    made = times_of(torch, contenders, options.rounds)
    for scheme in schemes:
        slowest = [max(pair) for pair in zip(made[scheme, 0], made[scheme, ranks - 1])]
        report.add(**row_of(scheme, ranks, rows, window, made["one GPU"], slowest))


def row_of(name, ranks, rows, window, one, made):
    """one: milliseconds of one GPU with the work of all, a forward and a forward with its backward."""
    return {"what": name, "processes": ranks, "tokens": rows, "window": str(window), "one_gpu_ms": one[0] / ranks,
            "forward_ms": made[0], "forward_share": one[0] / ranks / made[0], "one_gpu_both_ms": one[1] / ranks,
            "both_ms": made[1], "both_share": one[1] / ranks / made[1]}


# ---- several GPUs ---------------------------------------------------------------------------------------------

def pytorch_parallel(torch, ranks, q, k, v, dout):
    """{name: contender} of PyTorch's own context parallel, by SDPA's backends and its two ways to move K and V; none where
    PyTorch has none."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return {}
    mesh = init_device_mesh("cuda", (ranks,))

    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def context(backend, way):
        @contextlib.contextmanager
        def made():
            set_rotate_method(way)
            place = torch.empty(2 * ranks, device="cuda")  # it wants a buffer, which it cuts
            with sdpa_kernel(backend), context_parallel(mesh, buffers=[place], buffer_seq_dims=[0]):
                yield
        return made

    # With FlashAttention it takes 1.7 times as long on H200s; with K and V widened to Q's heads it was slower, too.
    ways = ("CUDNN_ATTENTION", "alltoall"), ("CUDNN_ATTENTION", "allgather")
    return {f"PyTorch, {backend}, {way}": (context(getattr(SDPBackend, backend), way), *both(torch, attention, q, k, v, dout))
            for backend, way in ways}


def measure_many(torch, fatune, options, ranks, rows, causal, window, report):
    many, nothing = fatune.distributed, contextlib.nullcontext
    contenders = {"one GPU": (nothing, *both(torch, lambda q, k, v: fatune.attention(q, k, v, causal=causal, window=window),
                                             *tensors(torch, rows * ranks)))}
    own = tensors(torch, rows, seed=torch.distributed.get_rank())
    for name, ways in WAYS.items():
        def function(q, k, v, ways=ways):
            return many.attention(q, k, v, causal=causal, window=window, order="contiguous" if window else "zigzag", **ways)
        contenders[name] = (nothing, *both(torch, function, *own))
    if not window and not options.no_pytorch:
        contenders |= pytorch_parallel(torch, ranks, *own)
    made = times_of(torch, contenders, options.rounds)
    for name in made:
        if name != "one GPU":
            report.add(**row_of(name, ranks, rows, window, made["one GPU"], made[name]))


def documents_of(rows, seed=0):
    """First rows of documents of random lengths, most of them short, then all rows."""
    import random
    source, starts = random.Random(seed), [0]
    while starts[-1] < rows:
        starts.append(min(rows, starts[-1] + 64 * max(1, round(2 ** source.uniform(2, 9)))))
    return starts


def measure_documents(torch, fatune, options, ranks, rank, report, rows=2**18):
    """Causal documents, packed: each process's share of all rows beside one GPU with all of them."""
    nothing, starts = contextlib.nullcontext, documents_of(rows)
    numbers = torch.tensor(starts, dtype=torch.int32, device="cuda")
    whole = [tensor.transpose(1, 2).squeeze(0).contiguous() for tensor in tensors(torch, rows)]
    contenders = {"one GPU": (nothing, *both(
        torch, lambda q, k, v: fatune.varlen(q, k, v, numbers, numbers, causal=True), *whole))}
    own = tensors(torch, rows // ranks, seed=rank)
    for scheme in ("gather", "ulysses", None):
        def function(q, k, v, scheme=scheme):
            return fatune.distributed.attention(q, k, v, causal=True, documents=starts, scheme=scheme)
        contenders[scheme or "chosen"] = (nothing, *both(torch, function, *own))
    made = times_of(torch, contenders, options.rounds)
    for name in made:
        if name != "one GPU":
            report.add(**row_of(f"{len(starts) - 1} documents, {name}", ranks, rows // ranks, None, made["one GPU"],
                                made[name]))


def measure_memory(torch, fatune, ranks, rank, report):
    """A million tokens, 8 heads: bytes beyond the shards."""
    rows = 2**20 // ranks
    q, k, v, dout = tensors(torch, rows, (8, 8, 8, 8))
    _, step = both(torch, lambda q, k, v: fatune.distributed.attention(q, k, v, causal=True, scheme="ring"), q, k, v, dout)
    step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    milliseconds = largest(torch, sample(torch, step, 1))
    shard = q.numel() * 2
    allowed = 4 * shard + 2 * shard + 2 * (2 * shard + 4 * shard)  # O and gradients; dQ in fp32; two of K, V, dK, dV
    if rank == 0:
        report.add(what="1048576 tokens, 8 heads", processes=ranks, both_ms=milliseconds, shard_gib=shard / 2**30,
                   peak_gib=(torch.cuda.max_memory_allocated() - before) / 2**30, wanted_gib=allowed / 2**30)


def exact(torch, q, k, v, dout, hidden):
    """O and the gradients in float32, head by head of K."""
    group, made = q.shape[1] // k.shape[1], []
    for head in range(k.shape[1]):
        heads = slice(head * group, (head + 1) * group)
        leaves = [q[:, heads].float().requires_grad_(), k[:, head:head + 1].float().requires_grad_(),
                  v[:, head:head + 1].float().requires_grad_()]
        s = (leaves[0] @ leaves[1].mT * DIM**-0.5).masked_fill(hidden, float("-inf"))
        out = s.softmax(-1) @ leaves[2]
        made.append((out.detach(), *torch.autograd.grad(out, leaves, dout[:, heads].float())))
    return [torch.cat(parts, 1) for parts in zip(*made)]


def check(torch, fatune, ranks, rank, report, rows=1024):
    """Relative L2 errors of one GPU and of every scheme, against float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    many = fatune.distributed
    q, k, v, dout = tensors(torch, rows * ranks, (8, 4, 4, 8))
    places = torch.arange(rows * ranks, device="cuda")
    for causal, window in ((True, None), (False, None), (True, (700, 0))):
        distance = places - places[:, None]
        hidden = (distance > 0) & causal
        if window:
            hidden = hidden | (distance < -window[0])
        wanted = exact(torch, q, k, v, dout, hidden)
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        out = fatune.attention(*leaves, causal=causal, window=window)
        one = [out.detach(), *torch.autograd.grad(out, leaves, dout)]
        errors = {"one GPU": one}
        for scheme in SCHEMES:
            own = [many.shard(tensor).requires_grad_() for tensor in (q, k, v)]
            out = many.attention(*own, causal=causal, window=window, scheme=scheme)
            gradients = torch.autograd.grad(out, own, many.shard(dout))
            errors[scheme] = [many.unshard(tensor) for tensor in (out.detach(), *gradients)]
        for name, got in errors.items():
            far = [((a.float() - b).norm() / b.norm()).item() for a, b in zip(got, wanted)]
            if rank == 0:
                report.add(what=name, processes=ranks, causal=causal, window=str(window), error_o=far[0], error_dq=far[1],
                           error_dk=far[2], error_dv=far[3])


class Silent:
    """The report of the processes after the first."""

    def add(self, **row):
        pass

    def write(self):
        pass


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], options=OPTIONS)
    torch = common.import_torch()
    import fatune
    options.rounds = 3 if options.quick else 7
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if options.alone:
        report = common.Report("distributed_alone", options)
        for rows in options.tokens:
            measure_alone(torch, fatune, options, options.alone, rows, True, None, report)
        measure_alone(torch, fatune, options, options.alone, options.tokens[-1], True, (4096, 0), report)
        return report.write()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.distributed.init_process_group("nccl" if torch.cuda.device_count() >= ranks else "gloo",
                                         timeout=datetime.timedelta(seconds=60))
    measures = {
        "check": lambda report: check(torch, fatune, ranks, rank, report),
        "causal": lambda report: [measure_many(torch, fatune, options, ranks, rows, True, None, report) for rows in options.tokens],
        "window": lambda report: measure_many(torch, fatune, options, ranks, options.tokens[-1], True, (4096, 0), report),
        "documents": lambda report: measure_documents(torch, fatune, options, ranks, rank, report),
        "memory": lambda report: measure_memory(torch, fatune, ranks, rank, report),
    }
    for part in ["check"] if options.check else options.parts:  # each has a file of its own, written when it ends
        report = common.Report(f"distributed_{part}", options) if rank == 0 else Silent()
        measures[part](report)
        report.write()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
