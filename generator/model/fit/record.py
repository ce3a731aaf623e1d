"""record.py: records trials for fit.py on the GPU in this machine.

in -> out: requests, one a line -> a run's trials at the end of OUT, by the build's record_many.

    python3 generator/model/fit/record.py --shapes generator/model/fit/record.shapes --out generator/model/fit/nvidia-h200.trials

Of each request a quick search's 13 configs are tried and then every n-th of the model's whole list, so that the trials are of
fast and of slow configs alike. All of a request are timed beside the best of them, in a cache of their own. A request that fails
is named and passed over; what was recorded before it stays. A second run goes on with the requests that no run has recorded."""
import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

CUT_SHORT = 8  # exit code of a search that its budget ended; what it tried is kept


def fatune(options, *words):
    return subprocess.run([options.fatune, *words], capture_output=True, text=True, check=False)


def read_shapes(path):
    with open(path, encoding="utf-8") as file:
        lines = (line.split("#")[0].strip() for line in file)
        return [line for line in lines if line]


def recorded(path):
    """Requests of the runs that this script has recorded."""
    found, ours = set(), False
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith("run "):
                    ours = line.startswith('run what="record.py')
                elif ours and line.startswith("request "):
                    found.add(line[len("request "):].rstrip("\n"))
    return found


def legal_configs(options, request):
    done = fatune(options, "explain", "--json", "--gpu", options.gpu, request)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)["space"]["legal"]


def rows_of(cache):
    """The texts of all trials of a cache."""
    with sqlite3.connect(os.path.join(cache, "tuning.db")) as database:
        return [text for (text,) in database.execute("SELECT text FROM trials ORDER BY id")]


def record(options, request):
    """Rows of the request: a quick search, then a share of all candidates beside its best."""
    shares = max(1, legal_configs(options, request) // options.trials)
    with tempfile.TemporaryDirectory() as cache:
        for search in (["--effort", "quick"], ["--effort", "exhaustive", *(["--shard", f"1/{shares}"] if shares > 1 else [])]):
            done = fatune(options, "tune", "--gpu", options.gpu, *search, "--budget", str(options.budget), "--cache-dir", cache, "-q", request)
            if done.returncode not in (0, CUT_SHORT):
                raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()}")
        return rows_of(cache)


def pack(options, rows, what):
    """Puts trials behind those in the file: of its last run, if that was this one."""
    subprocess.run([options.record_many, "pack", "-", options.out, what], input="".join(row + "\n" for row in rows), text=True, check=True,
                   stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--fatune", default="build/fatune")
    parser.add_argument("--record-many", default="build/record_many")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--trials", type=int, default=40, help="of each request, besides those of a quick search")
    parser.add_argument("--budget", type=int, default=8, help="seconds for each of a request's two searches")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no request is begun after so many")
    options = parser.parse_args()
    began, failed, done = time.monotonic(), 0, recorded(options.out)
    what = f"record.py of {os.path.basename(options.shapes)}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())}"
    for request in (request for request in read_shapes(options.shapes) if request not in done):
        at = time.monotonic() - began
        if at > options.seconds:
            print(f"{at:.0f} s are over; next would be: {request}")
            break
        try:
            rows = record(options, request)
            pack(options, rows, what)
        except (RuntimeError, OSError, ValueError, sqlite3.Error, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"failed: {request}: {error}", file=sys.stderr)
            continue
        print(f"{time.monotonic() - began - at:5.1f} s {len(rows):4d} trials  {request}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
