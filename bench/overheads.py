"""overheads.py: what a kernel costs before it runs, and what a run costs the host.
in -> out: ten requests compiled cold on one core, by the library and by the program in a fresh
process; host time of fatune_plan_run; plan from warm caches, and from a shipped file alone, in new
processes whose driver is up -> medians."""

import json
import os
import statistics
import subprocess
import tempfile
import time

import common

REQUESTS = (
    "forward bf16 d64 hq16 nq4096", "forward bf16 d64 hq16 nq4096 causal",
    "forward bf16 d128 hq16 nq4096", "forward bf16 d128 hq16 nq4096 causal",
    "forward fp16 d256 hq8 nq4096", "forward bf16 d128 hq16 nq4096 dropout",
    "forward bf16 d64 hq16 nq4096 causal dropout", "forward bf16 d128 hq16 nq4096 mask=128x128@0.25",
    "forward fp16 d96 hq16 nq4096 causal", "forward bf16 d72 dv40 hq16 nq4096 causal=top-left",
)
SMALL = "forward bf16 d128 hq8 nq512 causal"


def compile_in_library(fatune, requests):
    """Milliseconds of emission, NVRTC and loading for each, NVRTC being open."""
    session = fatune.Session(memory_only=True)
    session.plan("forward fp16 d32 nq128")  # opens NVRTC
    milliseconds = []
    for request in requests:
        begin = time.perf_counter()
        plan = session.plan(request)
        milliseconds.append((time.perf_counter() - begin) * 1e3)
        assert "compiled now" in plan.origin, plan.origin
    return milliseconds


def compile_by_program(build, requests):
    """Milliseconds of a whole process each, with empty caches."""
    milliseconds = []
    for request in requests:
        with tempfile.TemporaryDirectory() as cache:
            begin = time.perf_counter()
            document = common.fatune_json(build, "compile", request, "--gpu", "auto", cache=cache)
            milliseconds.append((time.perf_counter() - begin) * 1e3)
            assert document["compiled"], document
    return milliseconds


def child(build, kind, **environment):
    """What a process of the test program tells of itself."""
    done = subprocess.run([str(build / "fatune_gpu_tests"), "--child", kind, SMALL],
                          stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ, **environment))
    return json.loads(done.stdout)


def from_bundle(build, times):
    """The same where the user has no cache yet: all comes from a file in FATUNE_SYSTEM_PATH."""
    told = []
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, "cache")
        subprocess.run([str(build / "fatune"), "tune", SMALL, "--gpu", "auto", "--effort", "quick", "-q"],
                       stdout=subprocess.DEVNULL, check=True, env=dict(os.environ, FATUNE_CACHE_DIR=cache))
        subprocess.run([str(build / "fatune"), "cache", "export", "--gpu", "auto", "-o", os.path.join(folder, "b.fatune")],
                       stdout=subprocess.DEVNULL, check=True, env=dict(os.environ, FATUNE_CACHE_DIR=cache))
        for number in range(times):
            told.append(child(build, "shipped", FATUNE_SYSTEM_PATH=folder,
                              FATUNE_CACHE_DIR=os.path.join(folder, str(number))))
    return told


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    common.import_torch()
    report = common.Report("overheads", options)
    requests = REQUESTS[:4] if options.quick else REQUESTS
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_cores)})
    import fatune
    by_library = compile_in_library(fatune, requests)
    by_program = compile_by_program(options.build, requests)
    os.sched_setaffinity(0, all_cores)
    for request, library_ms, program_ms in zip(requests, by_library, by_program):
        report.add(request=request, library_ms=library_ms, program_ms=program_ms)

    fatune.Session().plan(SMALL)  # warms the caches for the children
    times = 3 if options.quick else 11
    host = child(options.build, "host-time")
    warm = [child(options.build, "warm") for _ in range(times)]
    assert all("from the cache" in told["origin"] for told in warm), warm
    shipped = from_bundle(options.build, times)
    summary = {
        "compile_ms": statistics.median(by_library), "compile_ms_most": max(by_library),
        "compile_process_ms": statistics.median(by_program), "run_us": host["run_us"],
        "run_us_p90": host["run_us_p90"],
        "warm_plan_us": statistics.median(told["plan_us"] for told in warm),
        "warm_session_us": statistics.median(told["session_us"] for told in warm),
        "driver_us": statistics.median(told["driver_us"] for told in warm),
        "shipped_plan_us": statistics.median(told["plan_us"] for told in shipped),
        "shipped_session_us": statistics.median(told["session_us"] for told in shipped),
        "shipped_first_run_us": statistics.median(told["first_run_us"] for told in shipped),
        "shipped_first_kernel_us": statistics.median(
            told["session_us"] + told["plan_us"] + told["first_run_us"] for told in shipped),
    }
    for name, value in summary.items():
        print(f"{name}: {value:.4g}")
    report.write(small=SMALL, **summary)


if __name__ == "__main__":
    main()
