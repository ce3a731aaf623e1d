"""Which scheme is expected to be fastest, by a small model of link and kernel."""

from __future__ import annotations

import collections

from ._heads import heads_of

SCHEMES = ("ring", "gather", "ulysses", "mesh")

# Figures of the machine that the model uses. They are round guesses for H200s, not measured on several GPUs. They serve to rank
# the schemes and predict no times.
Link = collections.namedtuple("Link", "bytes_per_second latency")
NEAR = Link(300e9, 10e-6)   # NVLink, each way
FAR = Link(40e9, 25e-6)     # a network adapter for each GPU
KERNEL = 550e12             # floating-point operations a second of a long forward
LAUNCH = 15e-6              # a call, and the ends of its kernels
MEMORY = 4e12               # bytes a second, for copies and sums

# What is asked about: seconds come of sizes of one process.
Work = collections.namedtuple("Work", "ranks near rows heads_q heads_kv dim dim_v batch bytes seen_keys needed_keys")


def _kernel(work):
    return 2 * work.batch * work.heads_q * work.rows * work.seen_keys * (work.dim + work.dim_v) / KERNEL


def _row_bytes(work, heads, dims):
    return work.batch * heads * dims * work.bytes


def times(work):
    """Seconds of a forward for each scheme that serves; needed_keys: of other processes that a process's queries see."""
    link = NEAR if work.ranks <= work.near else FAR
    kernel, keys = _kernel(work), work.needed_keys * _row_bytes(work, work.heads_kv, work.dim + work.dim_v)
    steps = min(work.ranks - 1, -(-work.needed_keys // work.rows))
    coming = keys / link.bytes_per_second
    out = work.rows * _row_bytes(work, work.heads_q, work.dim_v)
    merging = steps * 6 * out / MEMORY  # a part in fp32 is written, and read with the sum, which is written
    found = {
        "gather": kernel + coming + link.latency + 2 * LAUNCH + 2 * keys / MEMORY,
        "ring": max(kernel, coming) + coming / max(steps, 1) * 0.1 + steps * (LAUNCH + link.latency) + merging + LAUNCH,
    }
    try:
        heads_of(work.ranks, work.heads_q, work.heads_kv)
    except ValueError:
        return found
    moved = work.rows * (_row_bytes(work, work.heads_q, work.dim + work.dim_v)
                         + _row_bytes(work, work.heads_kv, work.dim + work.dim_v))
    found["ulysses"] = (kernel + moved * (work.ranks - 1) / work.ranks / link.bytes_per_second + 2 * link.latency + LAUNCH
                        + 4 * moved / MEMORY)
    return found


def choose(work, mesh_heads):
    """(scheme, processes that exchange heads). mesh_heads: how many of one host could."""
    if work.ranks > work.near and mesh_heads > 1:
        return "mesh", mesh_heads
    found = times(work)
    scheme = min(found, key=found.get)
    return scheme, work.ranks if scheme == "ulysses" else 1
