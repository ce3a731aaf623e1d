"""tune_quality.py: how close a search of normal effort comes to the best of a thousand configs.
in -> out: kinds of requests, sizes of each -> configs (KIND.list) and their kernels in a folder; on a GPU all of them timed; the search
over these times; then what it found in turn with the best of all, 15 samples each, verified: time of the best over its time.

    python3 bench/tune_quality.py --work tq                    # all of it; compiling takes 1 s of a core for each kernel
    python3 bench/tune_quality.py --work tq --stage compile    # no GPU is needed; goes on where it was cut off
    python3 bench/tune_quality.py --work tq --stage measure --kinds decode_d128 --seconds 60

Of each size the first of the search's own order are listed, as many of each, then some at random of all that are legal. The search is
the program's own, on a machine that answers from the times; what was not timed fails to compile there."""
import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

import common

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "generator/model/fit"))
import record_many  # noqa: E402

WANTED = (0.995, 0.96)  # median, least
KINDS = {
    "backward_d256": ["backward bf16 d256 hq8 nq2048", "backward bf16 d256 hq4 b2 nq777"],
    "backward_d128_causal": ["backward bf16 d128 hq16 nq2048 causal", "backward bf16 d128 hq32 hkv8 b4 nq512 causal"],
    "backward_tf32_d64": ["backward tf32 d64 hq8 nq1024", "backward tf32 d64 hq4 b4 nq333"],
    "backward_fp32_d128": ["backward fp32 d128 hq8 nq1024", "backward fp32 d128 hq4 hkv2 b2 nq500"],
    "decode_paged_d256": ["bf16 d256 hq16 hkv4 b4 nq1 nk4096 pages=64", "bf16 d256 hq32 hkv4 b2 nq1 nk12000 pages=64"],
    "decode_d128": ["bf16 d128 hq32 hkv8 b16 nq1 nk8192", "bf16 d128 hq32 hkv8 nq1 nk4096", "bf16 d128 hq64 hkv16 b2 nq1 nk2500"],
    "forward_d256_ragged": ["bf16 d256 hq8 b4 nq8192 ragged causal", "bf16 d256 hq16 hkv4 b8 nq4096 ragged causal"],
    "forward_fp32_d128": ["fp32 d128 hq8 nq1024", "fp32 d128 hq4 hkv2 b2 nq512"],
    "forward_d64_causal": ["bf16 d64 hq16 nq2048 causal", "bf16 d64 hq12 b4 nq1024 causal", "bf16 d64 hq32 nq4096 causal"],
    "forward_e4m3_d128": ["e4m3 d128 hq16 nq4096", "e4m3 d128 hq16 b4 nq577"],
}


def taken(options, lists):
    """Configs of a kind, each once: of the sizes' orders in turn, then at random."""
    wanted, most = {}, max(len(configs) for _, configs in lists)
    for place in range(most):
        for _, configs in lists:
            if place < len(configs) and len(wanted) < options.configs * (1 - options.random):
                wanted.setdefault(configs[place][0])
    rest = list(dict.fromkeys(config for _, configs in lists for config, _ in configs if config not in wanted))
    random.Random(options.seed).shuffle(rest)
    return list(wanted) + rest[:max(0, options.configs - len(wanted))]


def make_list(options, kind):
    """KIND.list, and KIND.json with how many configs are legal; what is there stays."""
    path = options.work / f"{kind}.list"
    if path.exists():
        return path
    lists = record_many.configs_of(options, KINDS[kind], 1 << 30)
    wanted, legal = taken(options, lists), {}
    with open(path, "w", encoding="utf-8") as out:
        for request, configs in lists:
            known = {config for config, _ in configs}
            first = [config for config, _ in configs[:2]]
            out.write(f"R {request}\n" + "".join(f"C {config}\n" for config in first + [one for one in wanted if one in known and one not in first]))
            legal[request] = len(configs)
    path.with_suffix(".json").write_text(json.dumps(legal, indent=1) + "\n", encoding="utf-8")
    return path


def replayed(options, path, request):
    """What the search finds over these times."""
    done = subprocess.run([record_many.program(options.build), "replay", options.gpu, str(path), str(options.jobs), "-"], input=request + "\n",
                          capture_output=True, text=True, check=True)
    _, tried, missing, default_us, best_us, config = done.stdout.rstrip("\n").split("\t")
    return {"tried": int(tried), "not_timed": int(missing), "default_us": float(default_us), "best_us": float(best_us), "config": config}


def finals(options, kind, request, found, rows):
    """The default, what the search found and the best of all, in turn: microseconds of each config."""
    timed = sorted((row["us"], row["config"]) for row in rows if row["outcome"] == "screened")
    default = rows[0]["config"]
    names = list(dict.fromkeys([default, found["config"], *(config for _, config in timed[:options.finalists])]))
    path, out = options.work / "finals.list", options.work / f"{kind}.finals"
    path.write_text(f"R {request}\n" + "".join(f"C {config}\n" for config in names), encoding="utf-8")
    before = len(record_many.trials_of(options.build, out, request)) if out.exists() else 0
    record_many.run_list(options.build, path, out, options.work / kind, f"tune_quality.py, finals of {kind}", finalists=len(names))
    return [row for row in record_many.trials_of(options.build, out, request)[before:] if row["outcome"] in ("ok", "wrong")]


def judge(options, kind, request, legal):
    """One row of the result; None where the GPU was not reached."""
    rows = record_many.trials_of(options.build, options.work / f"{kind}.trials", request)
    if not rows:
        return None
    found = replayed(options, options.work / f"{kind}.trials", request)
    last = finals(options, kind, request, found, rows)
    us = {row["config"]: row["us"] for row in last if row["outcome"] == "ok"}
    if found["config"] not in us:
        print(f"failed: {request}: what was found did not run in the finals", flush=True)
        return None
    best = min(us, key=us.get)
    result = {"request": request, "legal": legal, "timed": sum(not math.isnan(row["us"]) for row in rows), "tried": found["tried"],
              "not_timed": found["not_timed"], "default": rows[0]["config"], "default_us": us.get(rows[0]["config"]), "found": found["config"],
              "found_us": us[found["config"]], "best": best, "best_us": us[best], "quality": us[best] / us[found["config"]],
              "wrong": sum(row["outcome"] == "wrong" for row in last), "sm_clock_mhz": last[0]["clock"]}
    print(f"{result['quality']:.4f}  best of {result['timed']}, {legal} legal; found in {found['tried']}, {found['not_timed']} of them not timed; "
          f"default {us[best] / result['default_us'] if result['default_us'] else math.nan:.4f}  {request}", flush=True)
    return result


def measure(options):
    began, results = time.monotonic(), []
    for kind in options.kinds:
        path, trials = options.work / f"{kind}.list", options.work / f"{kind}.trials"
        legal = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        left = options.seconds - (time.monotonic() - began)
        if left < 1:
            break
        if not options.again:
            code, said = record_many.run_list(options.build, path, trials, options.work / kind, f"tune_quality.py, {kind}", seconds=left)
            print(f"{kind}: {'; '.join(said)}, exit code {code}", flush=True)
        results += [judge(options, kind, request, legal[request]) for request in KINDS[kind]]
    results = [result for result in results if result]
    ordered = sorted(result["quality"] for result in results)
    if not ordered:
        return 1
    median = (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2
    print(f"{len(results)} requests: median {median:.4f}, least {ordered[0]:.4f}; wanted {WANTED[0]}, {WANTED[1]}")
    if options.out:
        options.out.write_text(json.dumps({"schema": "fatune.tune_quality/2", "gpu": common.query_gpu(), "wanted": WANTED, "median": median,
                                           "least": ordered[0], "results": results}, indent=1) + "\n", encoding="utf-8")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build", help="folder with record_many")
    parser.add_argument("--gpu", default="h200", help="whose configs are listed and compiled")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder of lists, kernels and trials")
    parser.add_argument("--stage", choices=["list", "compile", "measure", "all"], default="all")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--configs", type=int, default=1000, help="of each kind")
    parser.add_argument("--random", type=float, default=0.25, help="share of them drawn at random")
    parser.add_argument("--seed", type=int, default=5, help="of that draw")
    parser.add_argument("--finalists", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=16, help="that compile in the search that is replayed")
    parser.add_argument("--compile-jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1e9, help="no kind is begun later")
    parser.add_argument("--again", action="store_true", help="judge the times that are there")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        if options.stage != "measure":
            path = make_list(options, kind)
        if options.stage in ("compile", "all"):
            record_many.compile_list(options.build, options.gpu, path, options.work / kind, options.compile_jobs, 1e9)
    return measure(options) if options.stage in ("measure", "all") else 0


if __name__ == "__main__":
    sys.exit(main())
