"""retune.py: whether tuning the same request again finds the same winner, and whether a winner is ever slower than the default.
in -> out: requests -> each tuned five times with inputs of its own in empty caches. A winner has changed where the first run's winner
is slower than the best of a later run by more than ties are (1 %); it is slower than the default where a later run says so.

    python3 bench/retune.py --requests 8 --seed 1"""
import argparse
import json
import pathlib
import random
import sys
import time

import common
import untuned_choice

TIE = 1.01


def times_of(rows):
    """Microseconds of each config of the finals, else of its screening."""
    return {row.split('config="')[1].split('"')[0]: float(row.split(" median_us=")[1].split()[0])
            for row in rows if " median_us=" in row}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="of the draw of requests")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="of the requests of that seed")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=600, help="no request is begun later")
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    began = time.monotonic()
    options.fatune = str(common.find_build(options.build) / "fatune")
    wanted, options.requests = options.requests, options.first + options.requests
    compared = changed = slower = 0
    results = []
    for document in untuned_choice.drawn(options)[-wanted:]:
        if time.monotonic() - began > options.seconds:
            break
        runs = [untuned_choice.tune(options, document, options.budget) for _ in range(options.times)]
        if any(found is None or not found["best_us"] for found, _ in runs):
            print(f"failed: {document['request']}", flush=True)
            continue
        winner, standard = runs[0][0]["best"], document["default"]
        ratios = []
        for found, rows in runs[1:]:
            us = times_of(rows)
            ratios.append([us[winner] / found["best_us"], us[winner] / us[standard]] if winner in us else None)
        seen = [ratio for ratio in ratios if ratio]
        compared += len(seen)
        changed += sum(ratio[0] > TIE for ratio in seen)
        slower += sum(ratio[1] > TIE for ratio in seen)
        results.append({"request": document["request"], "winners": [found["best"] for found, _ in runs], "to_best_and_default": ratios,
                        "seconds": [found["seconds"] for found, _ in runs]})
        print(f"{len({found['best'] for found, _ in runs})} winners, the first over the best "
              f"{' '.join(f'{ratio[0]:.3f}' for ratio in seen)}  {document['request']}", flush=True)
    print(f"{len(results)} requests, {options.times} times: of {compared} comparisons {changed} winners changed outside ties, "
          f"{slower} were slower than the default")
    if options.out:
        options.out.write_text(json.dumps({"schema": "fatune.retune/1", "compared": compared, "changed": changed, "slower": slower,
                                           "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
