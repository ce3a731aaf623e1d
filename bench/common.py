"""common.py: what the benchmarks share.
in -> out: a build folder, a GPU -> tuned kernels, interleaved timings, one JSON file per benchmark.

Every figure is a median of CUDA-event timings; contenders are measured in turn, each round in an order
of its own, so that clock drift hits all alike and nobody always runs at the clock that the same
predecessor left. PyTorch, its SDPA backends and fatune share one process and stream."""

import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMI_FIELDS = ("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw",
              "temperature.gpu", "persistence_mode")


def parse_arguments(description, **defaults):
    """The options every benchmark takes; `defaults` may change effort and budget."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, help="folder with fatune and libfatune.so")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--cache", type=pathlib.Path, help="caches; default: BUILD/bench-cache")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter measurements")
    parser.add_argument("--effort", default=defaults.get("effort", "quick"),
                        choices=["none", "quick", "normal", "exhaustive"])
    parser.add_argument("--budget", type=float, default=defaults.get("budget", 240.0),
                        help="seconds of tuning for all requests together")
    for name, more in defaults.get("options", {}).items():
        parser.add_argument(name, **more)
    options = parser.parse_args()
    options.build = find_build(options.build)
    options.cache = (options.cache or options.build / "bench-cache").resolve()
    options.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Before the package is imported: both look at the environment.
    os.environ["FATUNE_LIBRARY"] = str(options.build / "libfatune.so")
    os.environ["FATUNE_CACHE_DIR"] = str(options.cache)
    sys.path.insert(0, str(ROOT / "python"))
    return options


def find_build(given):
    for folder in [given] if given else [ROOT / "build" / "portable", ROOT / "build"]:
        if (folder / "fatune").exists() and (folder / "libfatune.so").exists():
            return folder.resolve()
    sys.exit(f"no fatune and libfatune.so in {given or 'build/portable or build'}: make build")


# ---- the program ---------------------------------------------------------------------------------

def fatune_json(build, *arguments, cache=None, accept=(0,)):
    """The document that `fatune ... --json` prints. Its messages go to our stderr."""
    environment = dict(os.environ)
    if cache:
        environment["FATUNE_CACHE_DIR"] = str(cache)
    command = [str(build / "fatune"), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError:
        document = {}
    if done.returncode not in accept:
        message = f"{' '.join(command)}: exit {done.returncode}: {document.get('error')}"
        if not document.get("results"):
            sys.exit(message)
        print(message, file=sys.stderr)  # a request that fails leaves the others tuned
    return document


BUDGET_SPENT = 8  # the exit code of a search cut short


def tune(options, requests, cache=None, effort=None, budget=None):
    """Tunes the requests; trials already in the cache are not run again. The program's document, with
    the seconds it took."""
    effort = effort or options.effort
    if effort == "none":
        return {"seconds": 0.0, "results": []}
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as shapes:
        shapes.write("\n".join(requests) + "\n")
        shapes.flush()
        document = fatune_json(
            options.build, "tune", "--gpu", "auto", "--effort", effort, "--budget",
            f"{budget or options.budget:.0f}s", "--shapes", shapes.name, cache=cache,
            accept=(0, BUDGET_SPENT))
    document["seconds"] = time.monotonic() - begin
    cut = "" if document.get("complete", True) else ", cut short"
    print(f"tuned {len(requests)} requests ({effort}) in {document['seconds']:.0f} s{cut}", flush=True)
    return document


# ---- the machine ---------------------------------------------------------------------------------

def query_gpu():
    """What nvidia-smi tells of the GPU now; {} where it cannot be asked."""
    command = ["nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if visible:
        command.append("--id=" + visible)
    try:
        line = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in line.splitlines()[0].split(",")] if line.strip() else []
    return dict(zip(SMI_FIELDS, values))


def describe_machine(build):
    """Versions and digests: everything but the clocks, which change."""
    torch = import_torch()
    known = fatune_json(build, "explain", "forward bf16 d128 hq1 nq4096")
    cudnn = torch.backends.cudnn.version()
    return {
        "gpu": torch.cuda.get_device_name(), "driver": known.get("driver"),
        "nvrtc": known.get("nvrtc"), "templates": known.get("templates"),
        "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": cudnn,
        "cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0],
    }


def import_torch():
    try:
        import torch
    except ImportError:
        sys.exit("this benchmark measures beside PyTorch, and there is none")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    return torch


class Report:
    """Collects rows, and writes bench/results/<machine>/<name>.json at the end."""

    def __init__(self, name, options):
        self.name, self.options, self.rows, self.more = name, options, [], {}
        self.machine = describe_machine(options.build)
        self.before = query_gpu()
        self.begin = time.monotonic()

    def add(self, **row):
        self.rows.append(row)
        print("  ".join(f"{key}={show(value)}" for key, value in row.items()
                        if not isinstance(value, (list, dict)) and key not in ("config", "origin")),
              flush=True)

    def write(self, silent=False, **more):
        slug = re.sub(r"[^a-z0-9]+", "-", self.machine["gpu"].lower()).strip("-")
        folder = self.options.results / slug
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "schema": "fatune.result/1", "name": self.name,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": self.machine, "clocks_before": self.before, "clocks_after": query_gpu(),
            "quick": self.options.quick, "seconds": round(time.monotonic() - self.begin, 1),
            **self.more, **more, "rows": self.rows,
        }
        path = folder / f"{self.name}{'.quick' if self.options.quick else ''}.json"
        path.write_text(json.dumps(document, indent=1) + "\n")
        if not silent:
            print(f"{path}: {len(self.rows)} rows in {document['seconds']:.0f} s", flush=True)


def show(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- timing --------------------------------------------------------------------------------------

class Contender:
    """Something to be timed: a function that enqueues its work once, inside a context if need be."""

    def __init__(self, name, function, context=contextlib.nullcontext):
        self.name, self.function, self.context = name, function, context
        self.repeats, self.samples_us = 1, []

    def sample(self):
        """Microseconds of one run, by events around `repeats` of them."""
        torch = import_torch()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.context():
            self.function()  # keeps the GPU busy while the host enqueues what is timed
            first.record()
            for _ in range(self.repeats):
                self.function()
            last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / self.repeats

    @property
    def median_us(self):
        return statistics.median(self.samples_us)

    @property
    def spread_us(self):
        """Half the distance between the 20th and the 80th percentile."""
        ordered = sorted(self.samples_us)
        return (ordered[int(len(ordered) * 0.8)] - ordered[int(len(ordered) * 0.2)]) / 2


def measure(contenders, quick=False, sample_ms=5.0, warmup_ms=30.0):
    """Samples of all contenders, in turn. A GPU at its power limit needs longer than a sample to find its
    clock again: who always follows the thriftiest contender is flattered. So rounds are shuffled."""
    order = random.Random(0)
    rounds = 7 if quick else 21
    for contender in contenders:
        contender.sample()  # compiles, allocates
        once_us = max(contender.sample(), 1.0)
        contender.repeats = max(1, math.ceil(sample_ms * 1e3 / once_us))
        for _ in range(max(1, math.ceil(warmup_ms / sample_ms))):
            contender.sample()
    for _ in range(rounds):
        for contender in order.sample(contenders, len(contenders)):
            contender.samples_us.append(contender.sample())


def sdpa_contender(name, backend, q, k, v, **options):
    """PyTorch's SDPA by one backend; None where it refuses the case."""
    torch = import_torch()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    contender = Contender(
        name, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **options),
        lambda: sdpa_kernel(getattr(SDPBackend, backend)))
    try:
        contender.sample()
    except RuntimeError as error:
        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return contender


def check_close(what, ours, theirs, bound=0.05):
    """A benchmark of something wrong is worth nothing."""
    difference = (ours.float() - theirs.float()).abs().max().item()
    if not difference <= bound:
        sys.exit(f"{what}: differs from PyTorch by {difference:.3g}, at most {bound}")
    return difference


def forward_flops(batch, heads, seq, dim, causal=False):
    """FlashAttention's convention: causal counts half."""
    return 4 * batch * heads * seq * seq * dim * (0.5 if causal else 1)


def tflops(flops, us):
    return flops / us * 1e-6


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def request_text(dim, heads, batch, seq, causal=False, more="", heads_kv=None):
    return (f"forward bf16 d{dim} hq{heads} hkv{heads_kv or heads} b{batch} nq{seq}"
            f"{' causal' if causal else ''}{' ' + more if more else ''}")
