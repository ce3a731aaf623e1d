"""report.py: recorded results as the tables of the README.
in -> out: bench/results/<machine>/*.json -> markdown on stdout."""

import json
import pathlib
import sys


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value, digits=0):
    return "-" if value is None else f"{value:.{digits}f}"


def yes(value):
    return "yes" if value else "no"


def forward_grid(result):
    rows = [(row["d"], row["n"], yes(row["causal"]), number(row["fatune"]), number(row["fa2"]),
             number(row["ratio"], 2), number(row.get("cudnn")), number(row.get("fa3")),
             number(row.get("to_best"), 2)) for row in result["rows"]]
    dims = ", ".join(f"d = {dim}: {value:.3f}" for dim, value in result["by_dim"].items())
    return (f"Forward, bf16, batch · n = 16384, heads · d = 2048, TFLOP/s. Geometric mean of the ratio to "
            f"FlashAttention-2: **{result['geomean']:.3f}** ({dims}), least {result['least']:.3f}. Tuning "
            f"all {len(rows)} took {result['tune_seconds']:.0f} s ({result['effort']}).{best_text(result)}\n\n"
            + table(("d", "n", "causal", "fatune", "FA2", "ratio", "cuDNN", "FA3", "to best"), rows))


def best_text(result):
    best = result.get("summaries", {}).get("to_best")
    if not best:
        return ""
    return (f" To the better of cuDNN (same run) and FA3 (recorded: {result['fa3_source']}): "
            f"**{best['geomean']:.3f}**, least {best['least']:.3f}, at least 1.00 in "
            f"{best['at_least_1']} of {best['points']}.")


def dropout(result):
    rows = [(row["d"], yes(row["causal"]), number(row["fatune"]), number(row["fatune_dropout"]),
             f"{row['cost'] * 100:.1f} %", number(row["fa2"]), number(row["fa2_dropout"]),
             number(row["to_fa2_dropout"], 2), number(row.get("cudnn_dropout")),
             number(row.get("to_cudnn_dropout"), 2)) for row in result["rows"]]
    return (f"Dropout {result['probability']}, n = 4096, TFLOP/s.\n\n"
            + table(("d", "causal", "without", "with", "cost", "FA2 without", "FA2 with",
                     "with / FA2 with", "cuDNN with", "with / cuDNN with"), rows))


def block_sparse(result):
    rows = [(row["d"], row["what"], f"{row['kept'] * 100:.1f} %", number(row["us"]),
             number(row["tflops"]), number(row["to_dense"], 2)) for row in result["rows"]]
    return ("Block-sparse, 128×128 blocks, n = 16384, TFLOP/s of useful work.\n\n"
            + table(("d", "mask", "kept", "µs", "TFLOP/s", "of dense"), rows))


def backward(result):
    tables = []
    heads = {"grid": ("d", "n", "causal", "fatune", "FA2", "ratio", "cuDNN"),
             "dropout": ("d", "n", "causal", "fatune", "FA2", "ratio"),
             "sparse": ("d", "mask", "kept", "µs", "TFLOP/s", "of dense"),
             "deterministic": ("d", "n", "causal", "fatune", "deterministic", "ratio")}
    titles = {"grid": "batch · n = 16384, heads · d = 2048",
              "dropout": f"dropout {result['probability']}",
              "sparse": f"{result['block']}×{result['block']} blocks, n = 16384, useful work",
              "deterministic": "deterministic"}
    for part, ratios in result["ratios"].items():
        rows = []
        for row in (row for row in result["rows"] if row["part"] == part):
            if part == "sparse":
                rows.append((row["d"], row["what"], f"{row['kept'] * 100:.1f} %", number(row["us"]),
                             number(row["tflops"]), number(row["ratio"], 2)))
                continue
            cells = [row["d"], row["n"], yes(row["causal"]), number(row["fatune"])]
            other = "deterministic" if part == "deterministic" else "fa2"
            cells += [number(row[other]), number(row["ratio"], 2)]
            if part == "grid":
                cells.append(number(row.get("cudnn")))
            rows.append(cells)
        tables.append(f"Backward, bf16, {titles[part]}, TFLOP/s. Geometric mean of the ratio "
                      f"**{ratios['geomean']:.3f}**, least {ratios['least']:.3f}.\n\n"
                      + table(heads[part], rows))
    return "\n\n".join(tables)


def variants(result):
    gqa = [(f"{row['hq']}:{row['hkv']}", row["batch"], yes(row["causal"]), number(row["fatune"]),
            number(row["mha"]), number(row["to_mha"], 2), number(row.get("cudnn")))
           for row in result["rows"] if row["what"] == "gqa"]
    dims = [(row["d"], row["hq"], yes(row["causal"]), number(row["fatune"]),
             number(row.get("interpolated")), number(row.get("to_interpolated"), 2),
             number(row.get("cudnn"))) for row in result["rows"] if row["what"] == "head dim"]
    return ("Grouped heads, d = 128, n = 4096, TFLOP/s.\n\n"
            + table(("heads", "batch", "causal", "fatune", "its MHA", "ratio", "cuDNN"), gqa)
            + "\n\nHead dims, batch 4, n = 4096, TFLOP/s; interpolated: linear in d between 64, 128, 256.\n\n"
            + table(("d", "heads", "causal", "fatune", "interpolated", "ratio", "cuDNN"), dims))


def memory(result):
    rows = [(row["n"], row["what"], number(row["driver_mib"], 1), number(row["allocator_mib"], 1))
            for row in result["rows"]]
    return ("Device memory beyond inputs and outputs, 16 heads, d = 64, causal, MiB.\n\n"
            + table(("n", "", "from the driver", "allocator's peak"), rows))


def overheads(result):
    rows = [("compile one kernel, cold, one core (median of ten)", f"{result['compile_ms']:.0f} ms"),
            ("the same as a process of its own", f"{result['compile_process_ms']:.0f} ms"),
            ("host time of `fatune_plan_run`", f"{result['run_us']:.2f} µs"),
            ("plan from warm caches in a new process", f"{result['warm_plan_us'] / 1e3:.2f} ms"),
            ("open a session, CUDA's start included", f"{result['warm_session_us'] / 1e3:.0f} ms")]
    return table(("what", "time"), rows)


def pass_of(row):
    """"forward" or "backward", of rows of scores.py; older ones have a bool."""
    return row["pass"] if "pass" in row else "backward" if row["backward"] else "forward"


def scores(result):
    rows = [(row["case"], pass_of(row), row["d"], row["n"], number(row.get("fatune_us")),
             number(row.get("flex_us")), number(row.get("to_flex"), 2), number(row.get("to_plain"), 2)) for row in result["rows"]]
    return ("Score and mask functions, µs.\n\n"
            + table(("case", "", "d", "n", "fatune", "FlexAttention", "ratio", "of plain"), rows))


def decode(result):
    rows = [(row["batch"], row["nq"], row["nk"], number(row["fatune_us"], 1), number(row["untuned_us"], 1), number(row["cudnn_us"], 1),
             number(row["flash_us"], 1), number(row["read_only_us"], 1)) for row in result["rows"]]
    return ("Decoding, µs on the GPU.\n\n"
            + table(("batch", "queries", "keys", "fatune", "untuned", "cuDNN", "FlashAttention-2", "reading K and V alone"), rows))


def serving(result):
    told = ("heads", "n", "d", "batch", "nq", "nk", "page", "heads_first", "sequences")
    rows = [(row["part"], row["who"], " ".join(f"{name}={row[name]}" for name in told if name in row), number(row["us"], 1),
             number(row["ratio"], 3), number(row["wanted"], 2)) for row in result["rows"]]
    return ("Serving, µs on the GPU. Ratio: speed over cuDNN's (vit), over own dense (longformer), over equal lengths (mixed), "
            "over contiguous K and V (paged).\n\n" + table(("", "", "of", "µs", "ratio", "wanted"), rows))


def training(result):
    rows = [(row.get("part", "llama"), row["n"], row["what"], number(row.get("ms", row.get("us", 0) / 1e3), 2), number(row["to_best"], 3),
             number(row.get("tokens_per_second"))) for row in result["rows"]]
    return ("Training, forward and backward of a layer or whole steps.\n\n"
            + table(("of", "n", "attention by", "ms", "to SDPA's best", "tokens per second"), rows))


def host_time(result):
    rows = [(row["part"], row["what"], number(row["least_us"], 1), number(row["median_us"], 1), number(row["to_fastest"], 2))
            for row in result["rows"]]
    return ("Host time of a call through PyTorch, µs, the least and the median of batches.\n\n"
            + table(("", "by", "least", "median", "to SDPA's fastest"), rows))


def traffic(result):
    rows = [(row["part"], row["n"], row["what"], number(row["read_gb"], 3), number(row["written_gb"], 3), number(row["to_least"], 2))
            for row in result["rows"]]
    return ("Bytes through device memory by the GPU's counters, GB.\n\n"
            + table(("", "n", "by", "read", "written", "to inputs and outputs once"), rows))


SECTIONS = {"forward_grid": forward_grid, "dropout": dropout, "block_sparse": block_sparse, "variants": variants,
            "backward": backward, "scores": scores, "decode": decode, "serving": serving, "training": training, "llama": training,
            "host_time": host_time, "traffic": traffic, "memory": memory, "overheads": overheads}


def clocks(result):
    told = [result[when].get("clocks.sm", "?") for when in ("clocks_before", "clocks_after")]
    return f"{told[0]} → {told[1]} MHz"


def report(folder):
    print(f"### {folder.name}\n")
    found = []
    for name, section in SECTIONS.items():
        paths = sorted(folder.glob(f"{name}*.json"))
        whole = [path for path in paths if ".quick" not in path.name]
        found += [(section, path) for path in whole or paths]  # short ones where there is nothing better
    for section, path in found:
        result = json.loads(path.read_text())
        machine = result["machine"]
        print(section(result))
        print(f"\n{result['date'][:10]}, {machine['gpu']}, driver {machine['driver']}, NVRTC "
              f"{(machine['nvrtc'] or '?').split('+')[0]}, PyTorch {machine['torch']}, templates "
              f"{(machine['templates'] or '?')[:12]}, SM clock {clocks(result)}.\n")


def main():
    root = pathlib.Path(__file__).resolve().parent / "results"
    folders = [pathlib.Path(argument) for argument in sys.argv[1:]] or sorted(root.glob("*/"))
    if not folders:
        sys.exit(f"no results in {root}")
    for folder in folders:
        report(folder)


if __name__ == "__main__":
    main()
