"""Several processes that do one thing of test_distributed.py: python3 distributed_ranks.py NAME PROCESSES. They are forked
after PyTorch has been imported, once for all of them."""

import os
import socket
import sys
import time
import traceback
import types
from datetime import timedelta

__import__("support")  # it finds the package and the library
import torch
import torch.distributed as dist

import fatune
import fatune.distributed as many
from distributed_caches import bundled
from distributed_stand_ins import Exact, BySharedCopies, SharedPeers, exact, hides, kept, others
from fatune.distributed import _attention

TIMEOUT = 20  # seconds, of the group


# ---- what the processes do --------------------------------------------------------------------------------

def tensors(heads_q, heads_kv, rows, dim, dtype=torch.float32, layout="bhsd", batch=2, seed=0):
    generator = torch.Generator().manual_seed(rows + dim + seed)
    shapes = [(batch, heads, rows, dim) for heads in (heads_q, heads_kv, heads_kv, heads_q)]
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [tensor.transpose(1, 2).contiguous() if layout == "bshd" else tensor for tensor in made]


def compare(name, got, wanted, tolerance):
    worst = (got.double() - wanted.double()).abs().max().item()
    if got.shape != wanted.shape or not worst <= tolerance:
        raise AssertionError(f"{name} of shape {tuple(got.shape)} is off by {worst}; allowed: {tolerance}")


def whole_reference(q, k, v, dout, dlse, options, sinks):
    """O, LSE and the gradients of all of it, in float64."""
    turned = (lambda tensor: tensor) if options["layout"] == "bhsd" else (lambda tensor: tensor.transpose(1, 2))
    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    leaves += [] if sinks is None else [sinks.double().requires_grad_()]
    places = torch.arange(turned(q).shape[2])
    hidden = hides(places, places, options["causal"], options["window"])
    if options.get("documents"):
        hidden = hidden | others(len(places), options["documents"])
    keep = kept(q.shape[0], turned(q).shape[1], 0, places, places) if options["dropout"] else None
    out, lse = exact(*(turned(tensor) for tensor in leaves[:3]), hidden, keep)
    if sinks is not None:
        with_sinks = torch.logaddexp(lse, leaves[3][None, :, None])
        out, lse = out * (lse - with_sinks).exp().unsqueeze(-1), with_sinks
    gradients = torch.autograd.grad([turned(out), lse], leaves, [dout.double(), dlse.double()])
    return turned(out), lse, gradients


def check_scheme(rank, ranks, scheme, head_ranks, order, layout, causal, window, dropout, heads, sinks, part, transport=None):
    dim, q_heads, rows = 1 if layout == "bshd" else 2, heads[0], 64 * 2 * ranks if dropout else part * 2 * ranks
    q, k, v, dout = tensors(*heads, rows, 8, layout=layout)
    dlse = torch.randn(2, q_heads, rows, generator=torch.Generator().manual_seed(5))
    sinks = torch.linspace(-1, 2, q_heads) if sinks else None
    options = {"causal": causal, "window": window, "dropout": dropout, "layout": layout}
    out, lse, wanted = whole_reference(q, k, v, dout, dlse, options, sinks)
    cut = {"dim": dim, "order": order}
    own = [many.shard(tensor, **cut).requires_grad_() for tensor in (q, k, v)]
    own_sinks = None if sinks is None else sinks.clone().requires_grad_()
    got, got_lse = many.attention(*own, scheme=scheme, head_ranks=head_ranks, order=order, return_lse=True, sinks=own_sinks,
                                  seed=1, transport=transport, **options)
    torch.autograd.backward([got, got_lse], [many.shard(dout, **cut), many.shard(dlse, order=order)])
    compare("O", many.unshard(got, **cut), out, 2e-6)
    compare("LSE", many.unshard(got_lse, order=order), lse, 2e-6)
    for name, tensor, gradient in zip("qkv", own, wanted):
        compare("d" + name, many.unshard(tensor.grad, **cut), gradient, 5e-6)
    if sinks is not None:
        dist.all_reduce(own_sinks.grad)
        compare("dsinks", own_sinks.grad, wanted[3], 2e-4)


def schemes(rank, ranks):
    """Every scheme with everything, by float64 in place of kernels."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    odd = int(os.environ.get("FATUNE_TEST_SEED", 0)) % 2
    many._gather.SLICE_BYTES = many._attention.HEADS_BYTES = 1
    many._gather.MOST_BYTES, many._schemes.SLICE_BYTES = odd or 1 << 20, odd * 8000 + 1000
    mesh = [("mesh", 2)] if ranks % 2 == 0 else []
    share, turn = int(os.environ.get("FATUNE_TEST_SHARE", 1)), 0
    for scheme, head_ranks in [("ring", None), ("gather", None), ("ulysses", None), *mesh, (None, None)]:
        for n, (causal, window, dropout) in enumerate([
                (True, None, 0), (False, None, 0), (True, (9, -1), 0), (False, (5, 3), 0), (True, None, 0.2),
                (False, (40, 70), 0.2), (True, (0, 0), 0)]):
            for order in ("zigzag", "contiguous"):
                heads = (ranks * 2, 1) if n % 2 == 0 else (ranks * 2, ranks) if n % 4 == 1 else (ranks * 4, ranks * 2)
                turn += 1
                if turn % share != int(os.environ.get("FATUNE_TEST_SEED", 0)) % share:
                    continue
                described = (scheme, head_ranks, order, "bshd" if n % 3 == 1 else "bhsd", causal, window, dropout, heads,
                             n % 2 == 0, 10)
                try:
                    check_scheme(rank, ranks, *described)
                except Exception as error:
                    raise AssertionError(f"{described}: {error}") from error


def copies(rank, ranks):
    """Gather and Ulysses where processes read each other's memory."""
    peers, before = SharedPeers(rank, ranks), (_attention.peers_of, _attention.ByCopies)
    _attention.peers_of, _attention.ByCopies = (lambda group, ranks, device: peers), BySharedCopies
    _attention.Calls, many._gather.SLICE_BYTES, _attention.HEADS_BYTES = Exact, 1, 1
    _attention.session_of = lambda device: None
    for causal, window, order, layout, heads in (
            (True, None, "zigzag", "bhsd", (6, 3)), (False, (5, 3), "contiguous", "bshd", (4, 2)),
            (True, (9, -1), "zigzag", "bshd", (5, 5)), (False, None, "zigzag", "bhsd", (3, 1))):
        check_scheme(rank, ranks, "gather", None, order, layout, causal, window, 0, heads, causal, 10, "copies")
    for layout, heads_kv in (("bhsd", ranks), ("bshd", 2 * ranks)):
        check_scheme(rank, ranks, "ulysses", None, "zigzag", layout, True, None, 0, (4 * ranks, heads_kv), True, 10, "copies")
    _attention.peers_of, _attention.ByCopies = before
    own = [many.shard(tensor) for tensor in tensors(2, 1, 4 * ranks, 8)[:3]]
    expect(ValueError, ["transport is 'copies'", "'messages'"], lambda: many.attention(*own, scheme="gather", transport="copies"))
    expect(ValueError, ["transport is 'mail'", "'messages'"], lambda: many.attention(*own, transport="mail"))


def documents(rank, ranks):
    """Documents, some longer than a process's share, some empty, by float64 in place of kernels."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    rows = 20 * ranks
    q, k, v, dout = tensors(2 * ranks, ranks, rows, 8, batch=1)
    dlse = torch.zeros(1, 2 * ranks, rows)
    generator = torch.Generator().manual_seed(int(os.environ.get("FATUNE_TEST_SEED", 0)))
    random_starts = sorted(torch.randint(0, rows, (6,), generator=generator).tolist())
    for starts in ([0, rows], [0, 3, 3, 20, 47, rows], [0, *random_starts, rows], list(range(rows + 1))):
        for scheme, causal, window, order in (("ring", True, None, "zigzag"), ("gather", False, (4, 2), "contiguous"),
                                              ("gather", True, None, "zigzag"), (None, False, None, "contiguous")):
            options = {"causal": causal, "window": window, "dropout": 0, "layout": "bhsd", "documents": starts}
            out, _, wanted = whole_reference(q, k, v, dout, dlse, options, None)
            own = [many.shard(tensor, order=order).requires_grad_() for tensor in (q, k, v)]
            got = many.attention(*own, scheme=scheme, order=order, **options)
            got.backward(many.shard(dout, order=order))
            name = f"{starts} {scheme} {causal} {window} {order}: "
            compare(name + "O", many.unshard(got, order=order), out, 2e-6)
            for letter, tensor, gradient in zip("qkv", own, wanted):
                compare(name + "d" + letter, many.unshard(tensor.grad, order=order), gradient, 5e-6)
    expect(ValueError, ["documents are", f"rows from 0 to {rows}"], lambda: many.attention(*own, documents=[0, 7]))
    expect(ValueError, ["allowed: 'ulysses'"], lambda: many.attention(
        *own, documents=[0, rows], score="score = s - i", scheme="ring"))


def packed(rank, ranks):
    """Documents by kernels, with dropout where heads are exchanged."""
    fatune.emulate("a100")
    starts = [0, 30, 30, 100, 64 * ranks]
    q, k, v, dout = tensors(4, 2, 64 * ranks, 16, torch.float16, batch=1)
    cu = torch.tensor(starts, dtype=torch.int32)
    for scheme, dropout in (("ring", 0.0), ("ulysses", 0.3)):
        leaves = [tensor.transpose(1, 2).squeeze(0).contiguous().requires_grad_() for tensor in (q, k, v)]
        out = fatune.varlen(*leaves, cu, cu, causal=True, dropout=dropout, seed=3)
        out.backward(dout.transpose(1, 2).squeeze(0))
        own = [many.shard(tensor).requires_grad_() for tensor in (q, k, v)]
        got = many.attention(*own, causal=True, dropout=dropout, seed=3, documents=starts, scheme=scheme)
        got.backward(many.shard(dout))
        compare(f"{scheme}: O", many.unshard(got), out.transpose(0, 1).unsqueeze(0), 2e-3)
        for name, tensor, one in zip("qkv", own, leaves):
            compare(f"{scheme}: d{name}", many.unshard(tensor.grad), one.grad.transpose(0, 1).unsqueeze(0), 8e-3)


def drop_in(rank, ranks):
    """PyTorch's context_parallel by its own signature: buffers become shares and whole again, SDPA sees all keys."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    functional, rows = torch.nn.functional, 12 * ranks
    q, k, v, dout = tensors(2, 2, rows, 8)
    out, _, wanted = whole_reference(q, k, v, dout, torch.zeros(2, 2, rows), {"causal": True, "window": None, "dropout": 0,
                                                                            "layout": "bhsd"}, None)
    before, whole = functional.scaled_dot_product_attention, [tensor.clone() for tensor in (q, k, v, dout)]
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    with many.context_parallel(mesh, buffers=[q, k, v, dout], buffer_seq_dims=[2] * 4, no_restore_buffers={dout}):
        own = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        got = functional.scaled_dot_product_attention(*own, is_causal=True)
        got.backward(dout.clone())
        expect(ValueError, ["attn_mask"], lambda: functional.scaled_dot_product_attention(*own, attn_mask=torch.ones(1)))
        expect(ValueError, ["enable_gqa"], lambda: functional.scaled_dot_product_attention(own[0], own[1][:, :1], own[2][:, :1]))
    assert functional.scaled_dot_product_attention is before
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), whole)) and dout.shape[2] == 12
    compare("O", many.context_parallel_unshard(mesh, [got], [2])[0], out, 2e-6)
    for name, tensor, gradient in zip("qkv", own, wanted):
        compare("d" + name, many.unshard(tensor.grad), gradient, 5e-6)
    expect(ValueError, ["buffer_seq_dims are 0 for 1"], lambda: many.context_parallel(mesh, buffers=[q]).__enter__())


def unseen(rank, ranks):
    """A window's steps that see nothing are neither sent nor computed."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    sent = []
    posted = many._transport.Messages.post
    many._transport.Messages.post = lambda self, sends, receives: (
        sent.extend(tensor.nbytes for _, tensor in sends if tensor is not None), posted(self, sends, receives))[1]
    rows = 256
    q, k, v, _ = tensors(2, 1, rows * ranks, 8, batch=1)
    for scheme in ("ring", "gather"):
        sent.clear()
        Exact.pairs = 0
        own = [many.shard(tensor, order="contiguous") for tensor in (q, k, v)]
        many.attention(*own, causal=True, window=(100, 0), scheme=scheme, order="contiguous")
        assert sum(sent) == (128 * 8 * 2 * 4 if rank + 1 < ranks else 0), sent  # 100 keys, as whole 64s
        assert Exact.pairs <= rows * (rows + 128), Exact.pairs


def emulated(rank, ranks):
    """The kernels themselves, on an emulated GPU, beside one process."""
    fatune.emulate("a100")
    rows = 128 * ranks
    q, k, v, dout = tensors(4, 2, rows, 32, torch.float16, batch=1)
    sinks = torch.tensor([0.5, -torch.inf, 1, -1])
    options = {"causal": True, "window": (150, -1), "dropout": 0.3, "seed": 11, "deterministic": True}
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v, sinks)]
    out, lse = fatune.attention(*leaves[:3], sinks=leaves[3], return_lse=True, **{**options, "causal": "top-left"})
    out.backward(dout)
    for scheme in ("ring", "gather", "ulysses"):
        own = [many.shard(tensor).requires_grad_() for tensor in (q, k, v)]
        own.append(sinks.clone().requires_grad_())
        got, got_lse = many.attention(*own[:3], sinks=own[3], return_lse=True, scheme=scheme, **options)
        got.backward(many.shard(dout))
        compare(f"{scheme}: O", many.unshard(got), out, 2e-3)
        compare(f"{scheme}: LSE", many.unshard(got_lse), lse, 1e-4)
        for name, tensor, one in zip("qkv", own, leaves):
            compare(f"{scheme}: d{name}", many.unshard(tensor.grad), one.grad, 8e-3)
        dist.all_reduce(own[3].grad)
        compare(f"{scheme}: dsinks", own[3].grad, leaves[3].grad, 2e-2)


def relative(got, wanted):
    return ((got.double() - wanted).norm() / wanted.norm()).item()


def exactness(rank, ranks):
    """Against float64 several processes err no more than one: parts are not rounded to 16 bits before they are summed."""
    fatune.emulate("a100")
    seed = int(os.environ.get("FATUNE_TEST_SEED", 0))
    cases = [(torch.bfloat16, True, 2), (torch.float16, False, 1)]
    for dtype, causal, heads_kv in cases if os.environ.get("FATUNE_TEST_SLOW") == "1" else cases[seed % 2:][:1]:
        rows = 192 * ranks
        q, k, v, dout = (tensor.to(dtype) for tensor in tensors(2, heads_kv, rows, 32, batch=1, seed=seed))
        options = {"causal": causal, "window": None, "dropout": 0, "layout": "bhsd"}
        out, _, gradients = whole_reference(q, k, v, dout, torch.zeros(1, 2, rows), options, None)
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        one = fatune.attention(*leaves, causal=causal)
        one.backward(dout)
        wanted = [relative(got, exact) for got, exact in zip((one.detach(), *(leaf.grad for leaf in leaves)), (out, *gradients))]
        for scheme in ("ring", "gather"):
            own = [many.shard(tensor).requires_grad_() for tensor in (q, k, v)]
            got = many.attention(*own, causal=causal, scheme=scheme)
            got.backward(many.shard(dout))
            errors = [relative(many.unshard(part), exact) for part, exact in zip(
                (got.detach(), *(tensor.grad for tensor in own)), (out, *gradients))]
            shares = [a / b for a, b in zip(errors, wanted)]
            if rank == 0 and os.environ.get("FATUNE_TEST_SLOW") == "1":
                print(dtype, causal, scheme, [round(share, 4) for share in shares], flush=True)
            assert max(shares) <= 1.02, (dtype, causal, scheme, shares)


def scored(rank, ranks):
    """Score functions count queries, keys and heads of all processes; what they capture gets gradients."""
    fatune.emulate("a100")
    q, k, v, dout = tensors(4, 2, 32 * ranks, 16, torch.float16, batch=1)
    slope, bias = torch.linspace(0.01, 0.2, 4), torch.linspace(-1, 1, 32 * ranks)

    def score(s, b, h, i, j, slope, bias):
        return s - slope[h] * abs(i - j + fatune.score.nk - fatune.score.nq) + bias[j]

    def visible(b, h, i, j):
        return (j % 3 != 1) | (h == 2)

    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v, slope, bias)]
    out = fatune.attention(*leaves[:3], score=score, visible=visible, captured={"slope": leaves[3], "bias": leaves[4]})
    out.backward(dout)
    for scheme in ("ring", "ulysses"):
        own = [many.shard(tensor).requires_grad_() for tensor in (q, k, v)]
        own += [tensor.clone().requires_grad_() for tensor in (slope, bias)]
        got = many.attention(*own[:3], score=score, visible=visible, captured={"slope": own[3], "bias": own[4]},
                             scheme=scheme)
        got.backward(many.shard(dout))
        compare(f"{scheme}: O", many.unshard(got), out, 2e-3)
        for name, tensor, one in zip("qkv", own, leaves):
            compare(f"{scheme}: d{name}", many.unshard(tensor.grad), one.grad, 8e-3)
        for name, tensor, one in zip(("slope", "bias"), own[3:], leaves[3:]):
            dist.all_reduce(tensor.grad)
            compare(f"{scheme}: d{name}", tensor.grad, one.grad, 4e-3 * (1 + one.grad.abs().max().item()))
    expect(ValueError, ["score is 'alibi'", "Lua text"], lambda: many.attention(
        *(many.shard(tensor) for tensor in (q, k, v)), score="alibi", captured={"slope": slope}))


def dropped(rank, ranks):
    """The dropout mask is that of one process, bit for bit: V is the identity, so that O has P."""
    fatune.emulate("a100")
    rows = 64 * ranks
    q, k, _, _ = tensors(4, 2, rows, 32, torch.float16, batch=1)
    v = torch.eye(rows, dtype=torch.float16).expand(1, 2, rows, rows).contiguous()
    whole = fatune.attention(q, k, v, dropout=0.5, seed=123, offset=7)
    own = [many.shard(tensor, order="contiguous") for tensor in (q, k, v)]
    for scheme in ("ring", "ulysses"):
        out = many.attention(*own, dropout=0.5, seed=123, offset=7, scheme=scheme, order="contiguous")
        out = many.unshard(out, order="contiguous")
        assert torch.equal(out == 0, whole == 0), scheme
        assert 0.4 < (out == 0).double().mean() < 0.6
    out = many.attention(*own, dropout=0.5, scheme="ring", order="contiguous")  # of a seed that rank 0 draws
    assert not torch.equal(many.unshard(out, order="contiguous") == 0, whole == 0)
    group = [dist.new_group([number]) for number in range(ranks)][rank]
    out = many.attention(q, k, v, dropout=0.5, seed=123, offset=7, group=group)
    assert torch.equal(out, whole)


def expect(kind, words, call):
    begin = time.monotonic()
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"{error!r} lacks {missing}") from error
        if time.monotonic() - begin > TIMEOUT + 10:
            raise AssertionError("the error came late") from error
        return
    raise AssertionError(f"no {kind.__name__} with {words}")


def differing(rank, ranks):
    """What ranks disagree on is told on all of them, by name."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    odd = rank == 1
    q, k, v, _ = tensors(2, 2, 20, 8)
    wrong = "" if odd else "on rank 1"

    def call(**more):
        return many.attention(more.pop("q", q), more.pop("k", k), more.pop("v", v), **more)

    expect(ValueError, ["the dtype of q is", wrong], lambda: call(
        **{name: tensor.bfloat16() if odd else tensor for name, tensor in (("q", q), ("k", k), ("v", v))}))
    expect(ValueError, ["the shape of q is", wrong], lambda: call(
        **{name: tensor[:, :, :10] if odd else tensor for name, tensor in (("q", q), ("k", k), ("v", v))}))
    expect(ValueError, ["scheme is"], lambda: call(scheme="ring" if odd else "gather"))
    expect(ValueError, ["window is", wrong], lambda: call(window=(rank // 1 if odd else 7, 0)))
    expect(ValueError, ["head dim of k is 4" if odd else "rank 1: the head dim of k is 4"],
           lambda: call(k=k[..., :4] if odd else k))
    expect(ValueError, ["the sequence has 63 rows", "multiple of 6" if ranks == 3 else "multiple of"],
           lambda: call(q=q[:, :, :21 // ranks * ranks], k=k, v=v) if ranks != 3 else call(
               q=q.new_zeros(1, 2, 21, 8), k=k.new_zeros(1, 2, 21, 8), v=v.new_zeros(1, 2, 21, 8)))
    version = many._agreement.version
    many._agreement.version = lambda: "0.1.9" if odd else version()
    expect(ValueError, ["fatune's version is 0.1.9", "on rank 1"], lambda: call(scale=0.3))
    many._agreement.version = version
    call(scale=0.2)  # and all is well again


def dying(rank, ranks):
    """A rank that is gone is named by those who wait for it."""
    _attention.Calls = Exact
    _attention.session_of = lambda device: None
    own = tensors(2, 2, 20, 8)[:3]
    many.attention(*own, scheme="ring")
    if rank == 1:
        os._exit(0)
    expect(many.Broken, ["rank", "k and v"], lambda: [many.attention(*own, scheme="ring") for _ in range(3)])


def alone(rank, ranks):
    """A group of one, and no group at all, work."""
    fatune.emulate("a100")
    q, k, v, dout = tensors(2, 1, 33, 16, torch.float16, batch=1)
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    out = many.attention(*leaves, causal=True, window=(5, 0))
    out.backward(dout)
    assert torch.equal(out, fatune.attention(q, k, v, causal=True, window=(5, 0)))
    assert torch.equal(many.unshard(many.shard(q)), q)
    assert many.positions(6).tolist() == list(range(6))


def shares(rank, ranks):
    """Shards, put together again; positions."""
    for order in ("zigzag", "contiguous"):
        whole = torch.arange(3 * 4 * ranks * 2).view(3, 4 * ranks, 2)
        own = many.shard(whole, dim=1, order=order)
        assert own.shape == (3, 4, 2)
        assert torch.equal(own, whole[:, many.positions(4 * ranks, order=order)])
        assert torch.equal(many.unshard(own, dim=1, order=order), whole)
    group = dist.new_group([0, 1])
    if rank < 2:
        assert many.positions(8, group=group).tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]][rank]
    else:
        expect(ValueError, ["not in the group"], lambda: many.positions(8, group=group))


TASKS = types.SimpleNamespace(**{task.__name__: task for task in (
    schemes, copies, documents, unseen, emulated, packed, exactness, dropped, scored, drop_in, bundled, differing, dying, alone, shares)})


def run(names, rank, ranks, port):
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
                                timeout=timedelta(seconds=TIMEOUT))
    for name in names:
        getattr(TASKS, name)(rank, ranks)


def main(names, ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(names, rank, ranks, port)
                code = 0
            except BaseException:
                print(f"rank {rank}:", file=sys.stderr)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(","), int(sys.argv[2])))
