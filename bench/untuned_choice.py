"""untuned_choice.py: what is chosen before anything is measured, beside what a search of the same request finds.
in -> out: a seed -> requests drawn at random, of all passes, dtypes and features; each is tuned in empty caches -> the time of the
default, of what would have been chosen, the same without winners that ship, and of the best; their ratios.

    python3 bench/untuned_choice.py --seed 1 --requests 60               # prints the seed where none is given
    python3 bench/untuned_choice.py --seed 1 --requests 60 --part 2/3    # every third of them: on several GPUs
    python3 bench/untuned_choice.py --seed 1 --requests 60 --list --out drawn.json   # measures nothing, needs no GPU
    python3 bench/untuned_choice.py --seed 1 --drawn drawn.json          # the draw, where its `explain`s would take too long

The requests are a function of the seed alone. What no time was left for is counted, and not in the ratios. With --trials all
trials are kept as text, compressed."""
import argparse
import concurrent.futures
import gzip
import json
import math
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import typing

import common

FINE = (0.97, 0.90, 0.85)  # wanted: geometric mean, 5th percentile, least
# alone: what would be chosen without winners that ship; before: what another build would choose without them
CONTENDERS = ("default", "chosen", "alone", "before")


# ---- the draw ------------------------------------------------------------------------------------

def length(rng, least, most):
    """Half of them powers of two, the others of any length, each octave as often."""
    value = 2.0 ** rng.uniform(math.log2(least), math.log2(most))
    return 2 ** round(math.log2(value)) if rng.random() < 0.5 else int(value)


def draw_features(rng, kind, lefts, rights):
    """Words of what the passes have in common."""
    words = []
    if kind not in ("decode", "window") and rng.random() < 0.45:
        words.append("causal")
    if kind == "window":
        words.append(f"window@{rng.choice(lefts)},{rng.choice(rights)}")
    if kind == "mask":
        words.append(f"mask={rng.choice(['128x128', '128x128', '64x64'])}@{rng.choice([0.1, 0.25, 0.5])}")
    if kind == "ragged":
        words.append("ragged")
    return words


def draw_forward(rng):
    """dtype, kind, words of the features; lengths of queries and keys."""
    dtype = rng.choices(["bf16", "fp16", "e4m3", "kv", "fp32", "tf32"], [50, 20, 8, 8, 7, 7])[0]
    kind = rng.choices(["dense", "decode", "window", "mask", "ragged", "score"], [44, 26, 10, 8, 6, 6])[0]
    if dtype == "kv":
        kind = "decode"
    words = [f"{rng.choice(['bf16', 'fp16'])} kv=e4m3" if dtype == "kv" else dtype]
    nq = nk = length(rng, 128, 8192)
    if kind == "decode":
        nq, nk = rng.choice([1, 1, 1, 2, 4, 7, 8, 16]), length(rng, 256, 65536)
        if rng.random() < 0.4:
            words.append(f"pages={rng.choice([16, 64, 256])}")
    elif rng.random() < 0.2:
        nk = max(nq, length(rng, nq, 4 * nq))
    words += draw_features(rng, kind, [128, 256, 1000, 1024, 2048], [0, 0, 0, 256])
    if kind in ("dense", "window") and dtype in ("bf16", "fp16", "tf32", "fp32") and rng.random() < 0.15:
        words.append("dropout")
    elif kind in ("dense", "window", "decode") and dtype in ("bf16", "fp16") and rng.random() < 0.06:
        words.append("sinks")
    return dtype, kind, words, nq, nk


def draw_backward(rng):
    dtype = rng.choices(["bf16", "fp16", "fp32", "tf32"], [60, 20, 10, 10])[0]
    kind = rng.choices(["dense", "window", "mask", "ragged", "score"], [66, 12, 10, 6, 6])[0]
    words, nq = [dtype], length(rng, 128, 8192)
    nk = max(nq, length(rng, nq, 4 * nq)) if rng.random() < 0.15 else nq
    words += draw_features(rng, kind, [128, 256, 1024, 2048], [0, 0, 256])
    if kind in ("dense", "window") and rng.random() < 0.2:
        words.append("dropout")
    if rng.random() < 0.25:
        words.append("deterministic")
    return dtype, kind, words, nq, nk


def draw(rng):
    """(request, name of its score function or None). Of a size that runs within some 10 ms."""
    backward = rng.random() < 0.35
    while True:
        dtype, kind, words, nq, nk = (draw_backward if backward else draw_forward)(rng)
        dim = rng.choice([64] * 4 + [128] * 5 + [256, 256, 192, 160, 112, 96, 80, 72, 48, 40])
        heads_kv, group = rng.choice([1, 2, 4, 8, 12, 16]), rng.choice([1, 1, 1, 2, 4, 8])
        batch = rng.choice([1, 1, 2, 4, 8, 16, 32])
        heads = heads_kv * group
        flops = 4.0 * batch * heads * nq * nk * dim * (2.5 if backward else 1)
        rate = {"fp32": 4e13, "tf32": 1e14}.get(dtype, 4e14) / (3 if dim > 128 or "dropout" in words else 1)
        rows = batch * (heads * nq * 2 + heads_kv * nk * 2) * dim
        if flops / rate > 0.006 or rows > 5e8:
            continue
        if kind == "ragged":  # lengths of all sequences together
            batch = max(batch, 4)
            nq, nk = nq * batch, nq * batch
        text = (f"{'backward' if backward else 'forward'} {words[0]} d{dim} hq{heads} hkv{heads_kv} b{batch} "
                f"nq{nq} nk{nk} {' '.join(words[1:])}").strip()
        return text, rng.choice(["alibi", "softcap"]) if kind == "score" else None


def explained(options, request, score, shipped, program=None):
    words = ["--score", score] if score else []
    done = subprocess.run([program or options.fatune, "explain", "--json", "--gpu", options.gpu, *words, request],
                          capture_output=True, text=True, check=False, env=dict(os.environ, FATUNE_SHIPPED=shipped))
    return json.loads(done.stdout) if done.returncode == 0 else None


def known(options, request, score=None):
    """What `explain` says of a request, with the other contenders of CONTENDERS; None where it is refused."""
    document = explained(options, request, score, "on")
    if document:
        alone = document if document["hit"] != "shipped" else explained(options, request, score, "off")
        document["alone"], document["alone_hit"] = alone["config"], alone["hit"]
        if options.before_fatune:
            document["before"] = explained(options, request, score, "off", options.before_fatune)["config"]
    return document


def drawn(options):
    """Documents of `explain`, of the first requests of the seed that are none of another's bucket and not refused."""
    rng, seen, documents = random.Random(options.seed), set(), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        while len(documents) < options.requests:
            lot = [draw(rng) for _ in range(options.requests)]
            for document in pool.map(lambda one: known(options, *one), lot):
                if document and document["bucket"] not in seen and len(documents) < options.requests:
                    seen.add(document["bucket"])
                    documents.append(document)
    return documents


# ---- the measurement -----------------------------------------------------------------------------

def trials_of(cache):
    """The texts of all trials of a cache."""
    with sqlite3.connect(cache / "tuning.db") as database:
        return [text for (text,) in database.execute("SELECT text FROM trials ORDER BY id")]


class Timed(typing.NamedTuple):
    """What a search says of a config."""
    us: float
    clock_mhz: float  # 0: not known
    in_finals: bool


def time_of(rows, config):
    """A config's Timed, of its finals before that of its screening; None without a time."""
    found = None
    for row in rows:
        if f'config="{config}"' in row and " median_us=" in row and not (found and found.in_finals):
            clock = row.split(" sm_clock_mhz=")[1].split()[0] if " sm_clock_mhz=" in row else 0
            found = Timed(float(row.split(" median_us=")[1].split()[0]), float(clock), " outcome=ok " in row)
    return found


def us_beside(rows, config, winner):
    """What a config would take at the winner's clock: finals run on a hotter GPU than a screening. None without a time."""
    one, best = time_of(rows, config), time_of(rows, winner)
    if one is None or best is None or one.in_finals or not one.clock_mhz:
        return one and one.us
    return one.us * one.clock_mhz / (best.clock_mhz or one.clock_mhz)


def search(options, request, budget, folder, shipped="on", program=None, share=()):
    """The document of a search in a folder, and when its trials were done. The config that would be chosen is its second trial."""
    began, steps = time.monotonic(), []
    if options.kernels:
        with sqlite3.connect(options.kernels) as kernels, sqlite3.connect(folder / "kernels.db") as copy:
            kernels.backup(copy)  # others may be writing to it
    process = subprocess.Popen(
        [program or options.fatune, "tune", "--json", "-v", "--gpu", options.gpu, "--effort", options.effort, "--budget", f"{budget:.1f}s",
         *share, "--cache-dir", folder, request], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, FATUNE_SHIPPED=shipped))
    for line in process.stderr:  # a line a trial; the document on stdout is short
        if " regs " in line:
            us = next((word for word in line.split("  ") if word.endswith(" us")), "-")
            steps.append(f"{time.monotonic() - began:.2f} s {us}")
    output = json.loads(process.stdout.read() or "{}")
    process.wait()
    return output, steps


def us_in_small_search(options, document, config, budget, default_us, program):
    """What a config takes that a program would choose without winners that ship: a search of its own tries it and the default, no
    more, and their ratio counts. None without a time."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        search(options, document["request"], budget, folder, "off", program, ["--shard", "1000/1000"])
        rows = trials_of(folder) if (folder / "tuning.db").exists() else []
    us, beside = us_beside(rows, config, document["default"]), time_of(rows, document["default"])
    return us and beside and default_us * us / beside.us


def tune(options, document, budget):
    """The search's own figures of a request, with the times of what would be chosen; and its trials."""
    began = time.monotonic()
    alone, before = document.get("alone", document["config"]), document.get("before")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output, steps = search(options, document["request"], budget, folder)
        rows = trials_of(folder) if (folder / "tuning.db").exists() else []
    if not output.get("results"):
        return None, rows
    found = output["results"][0]

    def us_of(config, program=None):  # None: it was not reached, or does not run
        if config == document["default"]:
            return found["default_us"]
        if time_of(rows, config) is None and config != document["config"]:
            return us_in_small_search(options, document, config, budget, found["default_us"], program)
        return us_beside(rows, config, found["config"])

    keys = ("best_us", "default_us", "legal", "tried", "ok", "wrong", "failed", "spilled", "rounds_again", "unsteady", "seconds",
            "compile_seconds", "measure_seconds")
    return {"request": document["request"], "hit": document["hit"], "default": document["default"], "chosen": document["config"],
            "alone": alone, "alone_hit": document.get("alone_hit", document["hit"]), "before": before, "best": found["config"],
            "chosen_us": us_of(document["config"]), "alone_us": us_of(alone),
            "before_us": before and us_of(before, options.before_fatune), **{key: found[key] for key in keys},
            "wall_seconds": round(time.monotonic() - began, 2), "complete": output["complete"], "steps": steps}, rows


def ratio(result, name):
    """Best over a contender; NaN where the contender has no time. What was tried for a contender alone may be the best."""
    us = result[f"{name}_us"]
    return min(result[f"{each}_us"] or math.inf for each in ("best", *CONTENDERS)) / us if us else math.nan


def summary(ratios):
    """Geometric mean, 5th percentile, least."""
    ordered = sorted(ratios)
    return (common.geomean(ordered), ordered[int(0.05 * len(ordered))], ordered[0]) if ordered else (math.nan,) * 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, help="folder with fatune and libfatune.so")
    parser.add_argument("--before", type=pathlib.Path, help="folder of another build with the same templates: its choice is timed, too")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--part", default="1/1", help="K/N: each N-th request, from the K-th")
    parser.add_argument("--effort", default="normal", choices=["quick", "normal", "exhaustive"])
    parser.add_argument("--budget", type=float, default=0, help="seconds of a request's search; 0: the time left, evenly")
    parser.add_argument("--seconds", type=float, default=600, help="of all together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--kernels", type=pathlib.Path, help="a kernels.db: what is in it is not compiled again")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--trials", type=pathlib.Path, help="file (.gz) for all trials")
    parser.add_argument("--list", action="store_true", help="measure nothing; with --out the draw goes there")
    parser.add_argument("--drawn", type=pathlib.Path, help="a draw that --list wrote")
    options = parser.parse_args()
    began = time.monotonic()
    options.fatune = str(common.find_build(options.build) / "fatune")
    options.before_fatune = options.before and str(common.find_build(options.before) / "fatune")
    print(f"seed {options.seed}, {options.requests} requests, part {options.part}", flush=True)
    first, parts = map(int, options.part.split("/"))
    if options.drawn:
        documents = json.loads(options.drawn.read_text(encoding="utf-8"))[:options.requests][first - 1::parts]
    else:
        documents = drawn(options)[first - 1::parts]
    if options.list:
        print("\n".join(document["request"] for document in documents))
        if options.out:
            keys = ("request", "bucket", "hit", "note", "config", "default", "alone", "alone_hit", "before")
            options.out.write_text(json.dumps([{key: document.get(key) for key in keys} for document in documents], indent=1) + "\n")
        return 0
    results, all_rows = [], []
    for at, document in enumerate(documents):
        left = options.seconds - (time.monotonic() - began)
        if left < 4:
            break
        result, rows = tune(options, document, options.budget or 0.8 * left / (len(documents) - at))
        all_rows += rows
        if result is None or not result["best_us"]:
            print(f"failed: {document['request']}", flush=True)
            continue
        results.append(result)
        print(f"{' '.join(f'{ratio(result, name):.3f}' for name in CONTENDERS)} {result['hit']:8s}"
              f"{result['default_us']:10.1f} {result['tried']:4d} tried {result['wall_seconds']:5.1f} s  {result['request']}", flush=True)
    document = {"schema": "fatune.untuned_choice/1", "seed": options.seed, "drawn": options.requests, "part": options.part,
                "effort": options.effort, "left_out": len(documents) - len(results), "gpu": common.query_gpu(), "wanted": FINE}
    for name in CONTENDERS:
        ratios = [one for one in (ratio(result, name) for result in results) if not math.isnan(one)]
        document[name] = summary(ratios)
        print(f"{name} over best of {len(ratios)}: geometric mean {document[name][0]:.4f}, "
              f"5th percentile {document[name][1]:.3f}, least {document[name][2]:.3f}")
    document["results"] = results
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    if options.trials:
        with gzip.open(options.trials, "wt") as file:
            file.writelines(row + "\n" for row in all_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
