"""Which scheme is expected to be fastest, by a small model of link and kernel."""

from __future__ import annotations

import collections

from ._heads import heads_of

SCHEMES = ("ring", "gather", "ulysses", "mesh")

# Figures of H200s that the model uses; those of messages to other hosts are guesses. They serve to rank the schemes and
# predict no times.
Link = collections.namedtuple("Link", "bytes_per_second latency")
NEAR = Link(330e9, 0.3e-3)  # NVLink, what one process reads; latency: of a meeting and the first launches behind it
FAR = Link(40e9, 0.3e-3)    # a network adapter for each GPU
KERNEL = 750e12             # floating-point operations a second of a long forward
LAUNCH = 15e-6              # a call, and the ends of its kernels
MEMORY = 4e12               # bytes a second, for copies and sums
STARVED = 1.1               # a ring's kernels beside those of messages
UNEVEN = 1.3                # documents fall unevenly to the processes that have rows, and evenly to those that have heads

# What is asked about: seconds come of sizes of one process.
Work = collections.namedtuple("Work", "ranks near rows heads_q heads_kv dim dim_v batch bytes seen_keys needed_keys documents")


def _kernel(work):
    return 2 * work.batch * work.heads_q * work.rows * work.seen_keys * (work.dim + work.dim_v) / KERNEL


def _row_bytes(work, heads, dims):
    return work.batch * heads * dims * work.bytes


def times(work):
    """Seconds of a forward for each scheme that serves; needed_keys: of other processes that a process's queries see."""
    near = work.ranks <= work.near
    link = NEAR if near else FAR
    kernel, keys = _kernel(work), work.needed_keys * _row_bytes(work, work.heads_kv, work.dim + work.dim_v)
    by_rows = kernel * (UNEVEN if work.documents else 1)
    steps = min(work.ranks - 1, -(-work.needed_keys // work.rows))
    coming = keys / link.bytes_per_second
    out = work.rows * _row_bytes(work, work.heads_q, work.dim_v)
    merging = steps * 6 * out / MEMORY  # a part in fp32 is written, and read with the sum, which is written
    # Copy engines bring a slice beside the kernels of another; messages have kernels of their own, which wait for those.
    first = coming / work.heads_kv if near else coming
    found = {
        "gather": max(by_rows, coming) + first + link.latency + 2 * keys / MEMORY,
        "ring": STARVED * by_rows + coming + link.latency + steps * LAUNCH + merging,
    }
    try:
        heads_of(work.ranks, work.heads_q, work.heads_kv)
    except ValueError:
        return found
    moved = work.rows * (_row_bytes(work, work.heads_q, work.dim + work.dim_v)
                         + _row_bytes(work, work.heads_kv, work.dim + work.dim_v))
    found["ulysses"] = (kernel + moved * (work.ranks - 1) / work.ranks / link.bytes_per_second + 2 * link.latency
                        + 4 * moved / MEMORY)
    return found


def choose(work, mesh_heads):
    """(scheme, processes that exchange heads). mesh_heads: how many of one host could."""
    if work.ranks > work.near and mesh_heads > 1:
        return "mesh", mesh_heads
    found = times(work)
    scheme = min(found, key=found.get)
    return scheme, work.ranks if scheme == "ulysses" else 1
