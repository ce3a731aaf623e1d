"""What the first process of a job has tuned and compiled, for all of them."""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from .._devices import default_session
from .._library import library_path
from ._shares import place_of

if TYPE_CHECKING:
    from typing import Any

NAME = "first-process.fatune"


def share_caches(gpu: str = "auto", *, group: Any = None, cache_dir: str | os.PathLike[str] | None = None) -> str:
    """Gives all processes of the group the winners and kernels that the first one has; returns the folder they are in.

    The first process writes them as one bundle, by the program `fatune` beside the library. The others get its bytes by the
    group, into a folder of their own, which goes when the process ends. From now on FATUNE_SYSTEM_PATH begins with it, so
    that sessions opened later read it as any such bundle: FATUNE_TRUST says whether its signature is asked for, and what a
    process has in a cache of its own comes first. Call it on all processes before the first attention.
    gpu: the GPU of all of them; cache_dir: of the first process, if not FATUNE_CACHE_DIR.
    Raises RuntimeError on all processes where the first one has no bundle to give, and on one that has opened the session
    of a GPU already.
    """
    rank, ranks = place_of(group)
    bundle, failure = _export(gpu, cache_dir) if rank == 0 else (b"", b"")
    if ranks > 1:
        bundle, failure = _handed_out(bundle, failure, group)
    if failure:
        raise RuntimeError(f"the first process has no bundle of its caches: {failure.decode(errors='replace')}")
    if default_session.cache_info().currsize:
        raise RuntimeError("a session is open already; share_caches() comes before the first attention")
    folder = tempfile.mkdtemp(prefix="fatune-")  # for this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pathlib.Path(folder, NAME).write_bytes(bundle)
    before = os.environ.get("FATUNE_SYSTEM_PATH")
    os.environ["FATUNE_SYSTEM_PATH"] = f"{folder}:{before}" if before else folder
    return folder


def _export(gpu, cache_dir):
    """(the bytes of a bundle, b""), or (b"", why there is none)."""
    program = pathlib.Path(library_path()).with_name("fatune")
    with tempfile.TemporaryDirectory(prefix="fatune-") as folder:
        file = pathlib.Path(folder, NAME)
        command = [program, "cache", "export", "--quiet", "--allow-empty", "--gpu", gpu, "-o", file]
        command += [] if cache_dir is None else ["--cache-dir", cache_dir]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode == 0:
                return file.read_bytes(), b""
            return b"", (run.stderr.strip() or f"exit status {run.returncode}").encode()
        except OSError as error:
            return b"", str(error).encode()


def _handed_out(bundle, failure, group):
    """Those of the first process, as plain bytes."""
    import torch
    import torch.distributed as dist
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    first = 0 if group is None else dist.get_global_rank(group, 0)
    lengths = torch.tensor([len(bundle), len(failure)], device=device)
    dist.broadcast(lengths, first, group=group)
    of_bundle, of_failure = lengths.tolist()
    memory = torch.frombuffer(bytearray(bundle + failure or bytes(of_bundle + of_failure)), dtype=torch.uint8).to(device)
    dist.broadcast(memory, first, group=group)
    everything = memory.cpu().numpy().tobytes()
    return everything[:of_bundle], everything[of_bundle:]
