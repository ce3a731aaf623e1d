"""plots.py: recorded results as pictures. in -> out: bench/results/<machine>/*.json -> plots/*.svg beside them. Wants matplotlib (bench/requirements.txt). The same results give the same bytes."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fatune", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
                            "axes.spines.top": False, "axes.spines.right": False, "grid.alpha": 0.3, "axes.axisbelow": True})
from matplotlib import pyplot  # noqa: E402 - after the choice of its backend
from report import pass_of  # noqa: E402

COLOURS = {"fatune": "#0072b2", "FlashAttention-2": "#d55e00", "FlashAttention-3": "#cc79a7", "cuDNN": "#009e73",
           "FlexAttention": "#e69f00", "memory-efficient": "#56b4e9", "standard": "#999999", "SDPA": "#666666",
           "reading K and V": "#bbbbbb"}
NAMES = {"CUDNN_ATTENTION": "cuDNN", "FLASH_ATTENTION": "FlashAttention-2", "EFFICIENT_ATTENTION": "memory-efficient",
         "MATH": "standard", "fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "cudnn": "cuDNN", "flash": "FlashAttention-2",
         "flex": "FlexAttention"}


def bars(axes, labels, series):
    """Groups of bars; series: name -> values, of which None is no bar."""
    width = 0.8 / len(series)
    for n, (name, values) in enumerate(series.items()):
        places = [at - 0.4 + (n + 0.5) * width for at in range(len(labels))]
        shown = [(place, value) for place, value in zip(places, values) if value]
        axes.bar([place for place, _ in shown], [value for _, value in shown], width, label=name, color=COLOURS.get(name))
    axes.set_xticks(range(len(labels)), labels)
    axes.grid(axis="x", visible=False)


def grid(result, contenders, title):
    """TFLOP/s over the length, a field for each head dim, causal or not."""
    dims = sorted({row["d"] for row in result["rows"]})
    figure, fields = pyplot.subplots(2, len(dims), figsize=(3.2 * len(dims), 4.8), sharey=True, squeeze=False)
    for fields_of, causal in zip(fields, (False, True)):
        for axes, dim in zip(fields_of, dims):
            rows = [row for row in result["rows"] if row["d"] == dim and row["causal"] == causal]
            for key in contenders:
                points = [(row["n"], row[key]) for row in rows if row.get(key)]
                if points:
                    name = NAMES.get(key, key)
                    axes.plot(*zip(*points), marker="o", markersize=3, label=name, color=COLOURS[name])
            axes.set_xscale("log", base=2)
            axes.set_title(f"d = {dim}{', causal' if causal else ''}", fontsize=9)
    fields[0][0].set_ylim(bottom=0)
    for axes in fields[1]:
        axes.set_xlabel("n")
    for axes in fields[:, 0]:
        axes.set_ylabel("TFLOP/s")
    return figure, fields[0][0], title


def forward(result):
    return grid(result, ("fatune", "fa2", "fa3", "cudnn"), "Forward, bf16, batch · n = 16384, heads · d = 2048")


def backward(result):
    return grid({"rows": [row for row in result["rows"] if row["part"] == "grid"]}, ("fatune", "fa2", "cudnn"),
                "Backward, bf16, batch · n = 16384, heads · d = 2048")


def one(size=(6.4, 3.2)):
    return pyplot.subplots(figsize=size)


def dropout(result):
    figure, axes = one()
    labels = [f"d {row['d']}{', causal' if row['causal'] else ''}" for row in result["rows"]]
    bars(axes, labels, {name: [row.get(key) for row in result["rows"]] for name, key in (
        ("fatune", "fatune_dropout"), ("FlashAttention-2", "fa2_dropout"), ("cuDNN", "cudnn_dropout"))})
    axes.set_ylabel("TFLOP/s")
    return figure, axes, f"Forward with dropout {result['probability']}, n = 4096"


def sparse(result):
    figure, axes = one()
    for dim in sorted({row["d"] for row in result["rows"]}):
        rows = sorted((row for row in result["rows"] if row["d"] == dim), key=lambda row: row["kept"])
        dense = next(row["us"] for row in rows if row["what"] == "dense")
        axes.plot([row["kept"] for row in rows], [row["us"] / dense for row in rows], marker="o", markersize=3, label=f"fatune, d {dim}")
    axes.plot([0, 1], [0, 1], color="#999999", linestyle="--", label="in proportion")
    axes.set_xlabel("share of blocks kept")
    axes.set_ylabel("time, of dense")
    return figure, axes, "Block-sparse forward, blocks of 128 × 128, n = 16384"


def scores(result):
    rows = sorted((row for row in result["rows"] if row.get("flex_us")), key=lambda row: (pass_of(row) == "backward", row["case"]))
    dims = sorted({row["d"] for row in rows})
    rows = [row for row in rows if row["d"] == dims[-1] and row["n"] == rows[0]["n"]]
    figure, axes = one((7.2, 3.4))
    bars(axes, [f"{row['case']}\n{pass_of(row)}" for row in rows],
         {"fatune": [row["fatune_us"] / 1e3 for row in rows], "FlexAttention": [row["flex_us"] / 1e3 for row in rows]})
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel("ms")
    return figure, axes, f"Score and mask functions, d {rows[0]['d']}, n = {rows[0]['n']}"


def decode(result):
    figure, axes = one((7.2, 3.2))
    rows = result["rows"]
    bars(axes, [f"{row['batch']} × {row['nq']} on\n{row['nk']}" for row in rows],
         {"fatune": [1.0] * len(rows), **{name: [row[key] / row["fatune_us"] for row in rows] for name, key in (
             ("cuDNN", "cudnn_us"), ("FlashAttention-2", "flash_us"))},
          "reading K and V": [row["read_only_us"] / row["fatune_us"] for row in rows]})
    axes.set_ylabel("time, of fatune's")
    return figure, axes, "Decoding: batch × queries on keys, out of a cold L2"


def training(result):
    rows = [row for row in result["rows"] if row.get("tokens_per_second")]
    lengths = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["what"] for row in rows))
    rate = {(row["what"], row["n"]): row["tokens_per_second"] / 1e3 for row in rows}
    figure, axes = one()
    bars(axes, [f"n = {n}" for n in lengths], {NAMES.get(name, name): [rate.get((name, n)) for n in lengths] for name in names})
    axes.set_ylabel("thousand tokens per second")
    return figure, axes, "Whole training steps, causal, by attention"


def host_time(result):
    parts = list(dict.fromkeys(row["part"] for row in result["rows"]))
    names = list(dict.fromkeys(row["what"] for row in result["rows"]))
    least = {(row["what"], row["part"]): row["least_us"] for row in result["rows"]}
    figure, axes = one()
    bars(axes, parts, {NAMES.get(name, name): [least.get((name, part)) for part in parts] for name in names})
    axes.set_ylabel("µs of the host")
    return figure, axes, "Host time of a call through PyTorch"


def memory(result):
    rows = result["rows"]
    figure, axes = one((4.8, 3.0))
    values = [max(row["driver_mib"], row["allocator_mib"]) for row in rows]
    names = [NAMES.get(row["what"], row["what"]) for row in rows]
    drawn = axes.bar(range(len(rows)), values, 0.6, color=[COLOURS[name] for name in names])
    axes.bar_label(drawn, [f"{value:.2g} MiB" for value in values])
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("MiB")
    axes.grid(axis="x", visible=False)
    return figure, None, f"Device memory beyond inputs and outputs, n = {rows[0]['n']}"


def traffic(result):
    rows = result["rows"]
    lengths = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["what"] for row in rows))
    parts = list(dict.fromkeys(row["part"] for row in rows))
    figure, fields = pyplot.subplots(1, len(parts), figsize=(3.6 * len(parts), 3.2), squeeze=False)
    for axes, part in zip(fields[0], parts):
        of = {(row["what"], row["n"]): row["gb"] for row in rows if row["part"] == part}
        bars(axes, [str(n) for n in lengths], {name: [of.get((name, n)) for n in lengths] for name in names})
        axes.set_title(part, fontsize=9)
        axes.set_yscale("log")
        axes.set_xlabel("n")
    fields[0][0].set_ylabel("GB through device memory")
    return figure, fields[0][0], "Bytes through device memory, by the GPU's counters"


# Name of a picture -> (results it may be of, the first that is there; its maker).
PICTURES = {"forward": (("forward_grid",), forward), "backward": (("backward_grid", "backward"), backward),
            "dropout": (("dropout",), dropout), "sparse": (("block_sparse",), sparse),
            "scores": (("scores", "scores.quick"), scores), "decode": (("decode",), decode),
            "training": (("llama", "llama.quick"), training), "gpt": (("training", "training.quick"), training),
            "host_time": (("host_time", "host_time.quick"), host_time), "memory": (("memory",), memory),
            "traffic": (("traffic", "traffic.quick"), traffic)}


def draw(folder, name):
    sources, make = PICTURES[name]
    source = next((path for path in (folder / f"{source}.json" for source in sources) if path.exists()), None)
    if source is None:
        return
    result = json.loads(source.read_text())
    figure, legend, title = make(result)
    figure.suptitle(f"{title}\n{result['machine']['gpu']}, {result['date'][:10]}", fontsize=10)
    if legend is not None:
        legend.legend(framealpha=0.8, edgecolor="none", fontsize=7, loc="best")
    figure.tight_layout()
    path = folder / "plots" / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    pyplot.close(figure)
    print(path)


def main():
    root = pathlib.Path(__file__).resolve().parent / "results"
    folders = [pathlib.Path(argument) for argument in sys.argv[1:]] or sorted(path for path in root.glob("*/"))
    for folder in folders:
        for name in PICTURES:
            draw(folder, name)


if __name__ == "__main__":
    main()
