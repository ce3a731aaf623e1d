"""many_gpus.py: trials per second of a tuning on all GPUs of a machine, a process each, beside one GPU.
in -> out: requests, CUDA_VISIBLE_DEVICES -> the same requests tuned by one process and by a shard for each GPU, each process with as
many cores; trials, seconds and their ratio; the shards' caches merged into one.

    CUDA_VISIBLE_DEVICES=0,1 python3 bench/many_gpus.py --shapes cache/shipped/models.shapes --requests 32 --effort quick --folder tuned

A process takes the next request that none has taken; with --beforehand it has every N-th."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing

import common


def shapes_of(path, count):
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line][:count]


def start(options, shapes, shard, shards, gpu, cores, folder):
    """A process of `fatune tune` on one GPU and some cores."""
    if options.kernels:
        folder.mkdir(mode=0o700)
        shutil.copy(options.kernels, folder / "kernels.db")
    count = len(shapes.read_text(encoding="utf-8").split("\n")) - 1
    command = ["taskset", "-c", ",".join(map(str, cores)), options.fatune, "tune", "--json", "-q", "--effort", options.effort, "--jobs", str(len(cores)), "--gpu", options.gpu,
               "--budget", f"{options.seconds * count / shards:.1f}s", "--shapes", shapes, "--cache-dir", folder]
    if options.seconds == 0:
        del command[command.index("--budget"):command.index("--budget") + 2]
    if shards > 1:
        command += ["--shard", f"{shard + 1}/{shards}"] + ([] if options.beforehand else ["--claims", options.folder / "claims"])
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES=gpu))


class Done(typing.NamedTuple):
    """What a process did."""
    requests: int
    trials: int
    seconds: float  # until it ended
    searching: float  # of them in searches, not in starting and ending
    measuring: float  # of these on the GPU


def finish(process, began):
    results = json.loads(process.communicate()[0])["results"]
    total = {name: sum(result[name] for result in results) for name in ("tried", "seconds", "measure_seconds")}
    return Done(len(results), total["tried"], time.monotonic() - began, total["seconds"], total["measure_seconds"])


def tune_on(options, gpus, cores, shapes):
    """The same of each GPU's process; all run at once."""
    began = time.monotonic()
    processes = [start(options, shapes, n, len(gpus), gpu, cores[n], options.folder / f"{len(gpus)}.{n}") for n, gpu in enumerate(gpus)]
    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
        return list(pool.map(lambda process: finish(process, began), processes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--shapes", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0, help="for a request's search; 0: until it ends")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--kernels", type=pathlib.Path, help="a kernels.db: what is in it is not compiled again")
    parser.add_argument("--cores", type=int, default=0, help="of each process; 0: an even share")
    parser.add_argument("--beforehand", action="store_true", help="requests are shared out before the searches begin")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the caches")
    options = parser.parse_args()
    options.fatune = str(common.find_build(options.build) / "fatune")
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    cores = sorted(os.sched_getaffinity(0))
    share = options.cores or len(cores) // len(gpus)
    options.folder.mkdir(parents=True, exist_ok=True)
    shapes = options.folder / "shapes"
    shapes.write_text("\n".join(shapes_of(options.shapes, options.requests)) + "\n", encoding="utf-8")
    rates = []
    for used in (gpus[:1], gpus):
        done = tune_on(options, used, [cores[n * share:(n + 1) * share] for n in range(len(used))], shapes)
        trials, seconds = sum(one.trials for one in done), max(one.seconds for one in done)
        rates.append((trials / seconds, sum(one.trials / one.seconds for one in done)))
        each = (f"{one.trials} in {one.seconds:.1f} s, of them {one.searching:.1f} in searches, {one.measuring:.1f} on the GPU" for one in done)
        print(f"{len(used)} GPU(s), {share} cores each: {sum(one.requests for one in done)} requests, {trials} trials in {seconds:.1f} s: {rates[-1][0]:.2f} a second; "
              f"each process until its own end: {'; '.join(each)}", flush=True)
    print(f"{len(gpus)} GPUs: {rates[1][0] / rates[0][0]:.3f} times the trials per second of one, until the last process ends; "
          f"{rates[1][1] / rates[0][1]:.3f} by each one's own end")
    merged = options.folder / "all"
    subprocess.run([options.fatune, "cache", "merge", *sorted(options.folder.glob("*/tuning.db")), "--cache-dir", merged], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
