"""Caches of several processes, a task of distributed_ranks.py."""

import os
import tempfile

import torch.distributed as dist

import fatune
import fatune.distributed as many


def bundled(rank, ranks):
    """What the first process has tuned is found by the others, whose caches are empty; no bundle is told on all."""
    request, tuned = "forward fp16 d16 nq32 nk48", [None, None]
    with tempfile.TemporaryDirectory() as own:
        try:
            many.share_caches("no-such-gpu", cache_dir=own)
            raise AssertionError("there is a bundle of no GPU")
        except RuntimeError as error:
            assert "the first process" in str(error) and "no-such-gpu" in str(error), error
        if rank == 0:
            session = fatune.Session(emulate="a100", cache_dir=own)
            try:
                session.tune(request, budget_seconds=2)
            except fatune.Error as error:
                tuned[0] = str(error)  # there is no NVRTC
            tuned[1] = session.plan(request).config
        dist.broadcast_object_list(tuned, 0)
        before = fatune.Session(emulate="a100", cache_dir=own).plan(request)
        folder = many.share_caches("emulator", cache_dir=own)
        assert os.stat(folder).st_mode & 0o77 == 0 and os.environ["FATUNE_SYSTEM_PATH"].split(":")[0] == folder
        with tempfile.TemporaryDirectory() as empty:
            after = fatune.Session(emulate="a100", cache_dir=empty).plan(request)
        assert after.config == tuned[1], (after.config, tuned)
        if tuned[0] is None:
            assert after.origin != "default" and (rank == 0 or before.origin != after.origin), (before.origin, after.origin)
