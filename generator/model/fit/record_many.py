"""record_many.py: records trials for fit.py on the GPU in this machine, many sizes of each kernel.

in -> out: a seed -> kinds of requests (requests of a kind differ in lengths, batch and heads alone), sizes and configs of each: LIST; the
kernels of these, compiled; 10 ms for each config at each size on a GPU -> a run's trials at the end of OUT.

    python3 generator/model/fit/record_many.py list --seed 1 --out many.list          # no GPU is needed
    python3 generator/model/fit/record_many.py compile many.list --cache many         # nor here; 1 s of a core for each kernel
    python3 generator/model/fit/record_many.py run many.list --cache many --out generator/model/fit/nvidia-h200.trials

One kernel serves all lengths, batches and numbers of heads of its kind, so this makes a hundred trials a second where record.py
makes two. Results are not verified. Requests are drawn as bench/untuned_choice.py draws them."""
import argparse
import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LOST = 9  # exit code of a run that lost the GPU's context
SIZES = re.compile(r"\b(b|nq|nk|hq|hkv)(\d+)\b")
FEW = 16  # queries; of such requests more depends on the lengths


def program(build):
    return str(pathlib.Path(build).resolve() / "record_many")


# ---- what is wanted -------------------------------------------------------------------------------

def sizes_of(request):
    found = {name: int(number) for name, number in SIZES.findall(request)}
    found.setdefault("nk", found["nq"])
    found.setdefault("hq", 1)
    found.setdefault("hkv", found["hq"])
    found.setdefault("b", 1)
    return found


def kind_of(request):
    """What decides which configs are good, but for the sizes."""
    words = [re.sub(r"@.*", "", word) for word in SIZES.sub("", request).split()]
    return " ".join(words + ["few" if sizes_of(request)["nq"] <= FEW else "many"])


def elements_of(request):
    sizes = sizes_of(request)
    dim = int(re.search(r"\bd(\d+)", request).group(1))
    batch = 1 if " ragged" in request else sizes["b"]
    return batch * dim * 2 * (sizes["hq"] * sizes["nq"] + sizes["hkv"] * sizes["nk"])


def drawn_kinds(options):
    """{kind: requests of it}, as many of few queries as of many."""
    sys.path.insert(0, str(ROOT / "bench"))
    import untuned_choice
    rng, pool = random.Random(options.seed), collections.defaultdict(list)
    for _ in range(options.draws):
        request, score = untuned_choice.draw(rng)
        if score or elements_of(request) > options.elements:
            continue
        request = re.sub(r"\bfp16\b", "bf16", request)  # as fast
        pool[kind_of(request)].append(request)
    kinds = {}
    for ending, sizes in (("few", options.sizes_few), ("many", options.sizes)):
        full = [kind for kind, requests in pool.items() if kind.endswith(ending) and len(requests) >= sizes]
        kinds.update({kind: pool[kind][:sizes] for kind in full[:options.kinds]})
    return kinds


def parse_list(lines):
    """[(request, [(config, microseconds predicted)])]"""
    found = []
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "R":
            found.append((rest, []))
        elif word == "C":
            config, _, us = rest.partition("\t")
            found[-1][1].append((config, float(us or 0)))
    return found


def configs_of(options, requests, most):
    """The default of each request, its choice, and what a search would try, in its order; requests that are refused are left out."""
    done = subprocess.run([program(options.build), "configs", options.gpu, str(most), "-"], input="\n".join(requests) + "\n",
                          capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    return parse_list(done.stdout.splitlines())


def knobs_of(config):
    family, *words = config.split()
    return {"family": family, **dict(word.split("=") for word in words)}


def varied(configs, most):
    """The first two, then by the time predicted, where each config of a tile that is taken makes the next one less promising: by 2 %, by
    3.5 % where it divides the work in the same way, too."""
    tile, division = ("family", "block_m", "block_n"), ("split_keys", "dq_mode", "warps", "pack_gqa")
    left = [(us, config, knobs_of(config)) for config, us in configs[2:]]
    taken = [(config, knobs_of(config)) for config, _ in configs[:2]]

    def promise(us, knobs):
        share = 1.0
        for _, other in taken:
            if all(knobs.get(name) == other.get(name) for name in tile):
                share += 0.035 if all(knobs.get(name) == other.get(name) for name in division) else 0.02
        return us * share

    while left and len(taken) < most:
        best = min(left, key=lambda one: promise(one[0], one[2]))
        left.remove(best)
        taken.append(best[1:])
    return [config for config, _ in taken]


def choose_kernels(of_requests, most):
    """Those of all requests of a kind: defaults and choices, then what stands far in front for the most of them."""
    count, first = collections.Counter(), []
    for _, configs in of_requests:
        for place, config in enumerate(configs):
            count[config] += 3 if place < 2 else 1 - 0.05 * place
            if place < 2 and config not in first:
                first.append(config)
    return (first + [config for config, _ in count.most_common() if config not in first])[:max(most, len(first))]


def make_list(options):
    kernels = items = 0
    with open(options.out, "w", encoding="utf-8") as out:
        for kind, requests in drawn_kinds(options).items():
            found = configs_of(options, requests, options.window)
            of_requests = [(request, varied(configs, options.kernels)) for request, configs in found if len(configs) > 1]
            if len(of_requests) < 2:
                continue
            chosen = choose_kernels(of_requests, options.kernels)
            kernels += len(chosen)
            out.write(f"# {kind}\n")
            for request, configs in of_requests:
                own = [configs[0]] + [config for config in chosen if config != configs[0]]
                items += len(own)
                out.write(f"R {request}\n" + "".join(f"C {config}\n" for config in own))
            print(f"{kernels} kernels, {items} trials  {kind}", flush=True)
    return 0


# ---- compiled, and timed --------------------------------------------------------------------------

def environment(cache):
    path = pathlib.Path(cache).resolve()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return dict(os.environ, FATUNE_CACHE_DIR=str(path))


def compile_list(build, gpu, path, cache, jobs, seconds):
    return subprocess.run([program(build), "compile", gpu, str(path), str(jobs), str(seconds)], env=environment(cache), check=False).returncode


def run_list(build, path, out, cache, what, finalists=0, seconds=1e9):
    """Trials of the list behind what is in `out`; `what` says of what run they are. Where a config takes the GPU's context with it another process goes on behind its
    request. Returns the lines that tell how many."""
    began, at, said = time.monotonic(), 0, []
    while True:
        left = seconds - (time.monotonic() - began)
        done = subprocess.run([program(build), "run", str(path), str(out), str(finalists), f"{max(left, 0):.1f}", str(at), what],
                              env=environment(cache), stdout=subprocess.PIPE, text=True, check=False)
        *lines, number = done.stdout.splitlines() or [f"exit code {done.returncode}", "0"]
        said += lines
        if done.returncode != LOST or int(number) <= at:
            return done.returncode, said
        at = int(number)


def trials_of(build, path, request):
    """Its trials in a file, in their order: {"config", "outcome", "us", "clock", "error"}; us is NaN where there is none."""
    done = subprocess.run([program(build), "show", str(path), "-"], input=request + "\n", stdout=subprocess.PIPE, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return [{"config": config, "outcome": outcome, "us": float(us) or float("nan"), "clock": clock, "error": float(error) or float("nan")}
            for _, outcome, us, clock, error, config in rows]


def run(options):
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    what = f"record_many.py of {os.path.basename(options.list)}, {began}; {'finals' if options.finalists else 'not'} verified"
    code, said = run_list(options.build, options.list, options.out, options.cache, what, options.finalists, options.seconds)
    print("\n".join(said))
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="folder with record_many")
    parser.add_argument("--gpu", default="h200", help="whose configs are listed and compiled")
    stages = parser.add_subparsers(dest="stage", required=True)
    listing = stages.add_parser("list")
    listing.add_argument("--seed", type=int, required=True)
    listing.add_argument("--out", required=True)
    listing.add_argument("--kinds", type=int, default=40, help="of few queries, and as many of many")
    listing.add_argument("--sizes", type=int, default=4, help="of a kind")
    listing.add_argument("--sizes-few", type=int, default=9, help=f"where queries are {FEW} at most")
    listing.add_argument("--kernels", type=int, default=12, help="of a kind")
    listing.add_argument("--window", type=int, default=3000, help="of a search's order that is looked at")
    listing.add_argument("--draws", type=int, default=14000)
    listing.add_argument("--elements", type=float, default=6e7, help="of Q, K, V and O together, at most")
    compiling = stages.add_parser("compile")
    compiling.add_argument("list")
    compiling.add_argument("--cache", required=True)
    compiling.add_argument("--jobs", type=int, default=os.cpu_count())
    compiling.add_argument("--seconds", type=float, default=1e9)
    running = stages.add_parser("run")
    running.add_argument("list")
    running.add_argument("--cache", required=True)
    running.add_argument("--out", required=True)
    running.add_argument("--finalists", type=int, default=0)
    running.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    if options.stage == "list":
        return make_list(options)
    if options.stage == "compile":
        return compile_list(options.build, options.gpu, options.list, options.cache, options.jobs, options.seconds)
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
