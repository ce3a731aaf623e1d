"""fit.py: fits the model to recorded trials.

in -> out: TRIALS, by the build's dump_features -> TARGET.forward.trees, TARGET.backward.trees, TARGET.FAMILY.trees, TARGET.fit,
TARGET.choice, TARGET.starts beside them, which a build has inside.

    python3 generator/model/fit/fit.py --gpu h200 --trials generator/model/fit/nvidia-h200.trials --out generator/model/fit

What is fitted, a pass at a time and its families together, is the logarithm of time measured over time predicted by hand, as a sum
of boosted trees of features. Times compare within a section of the file and a request alone, so of each such group only what its
trials differ by counts. They count in cycles: finals run on a hotter GPU than screenings, with a clock up to a fifth lower. CatBoost
makes the trees: python3 -m pip install catboost==1.2.10. It does so once for each of two random seeds, and the mean of both counts.

The trees of a pass are made where its families together leave the largest errors. Configs of a family that differ by little are told
apart by trees of its own: they come after those of the pass, and fit what these leave.

A fit is judged by requests held out, and by kinds of requests held out: those whose words differ in lengths, batch and heads alone.
Parts of either are left out in turn, the trees come from the rest alone, and what was left out is ranked. What is taken before
anything is measured is the default, unless the trees put another config so much before it: a margin. The margin that is recorded is
the best over requests held out; the figures of the choice are by margins that come from other requests, too: a fifth of them is
judged at a time by the margin from the rest.

The ceiling is the rank that a model without error would have: what is measured twice, in two sections, differs."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import catboost
import numpy as np

DEPTH, RATE, HELD, PLACES = 6, 0.2, 3.0, 64  # of the trees; HELD draws leaves to 0, PLACES are those where a feature may be divided
ROUNDS = {"forward": 4000, "backward": 1500}  # trees of a pass, for each seed
OWN_ROUNDS = {"mma_backward": 800, "wgmma_backward": 1400, "wgmma_backward_roles": 500}  # likewise of a family; others have none
COLUMNS, GROUPS = 0.4, 0.7  # share of the features and of the groups that a tree is made of
NEAR = 0.2  # a trial that is slower than the best of its group by this share counts half, as those near the best are to be told apart
SWEEP = 0.3  # a sweep of one request is not worth as much as all others: trials of a group count by their number to minus that
UNIT, STEPS = 1 << 22, 127  # FT_TREE_UNIT; a leaf counts in so many steps up to the largest of its tree
LEAST_SCALE = 380  # of UNIT: finer steps of trees with small leaves only make builds larger; without them a sum errs by 0.002
MOST = 1.2  # of the factor's logarithm, as in ranker.c
LEAST_CONFIGS = 12  # of a group, for its ranking to say anything: fewer were near equals, one knob apart
LEAST_CHOICE = 6  # of a group with the default among them, for a choice
MARGINS = (1.02, 1.035, 1.05)
STARTS = 48  # of a pass: configs that were the fastest somewhere, which a choice asks besides the default's neighbours
TILE = ("block_m", "block_n", "warps", "split_keys", "dq_mode")  # knobs by which starts differ
FOLDS = 5
NOT_OF = {"backward": "default_"}  # features that a pass is not asked about: by these, less that is faster was found where held out
DRAWS = 400  # of noise, for the ceiling
SEEDS = (0, 1)  # trees are made once by each; the mean of several fits errs less than one


def kind_of(request):
    return " ".join(word for word in request.split() if not re.fullmatch(r"(b|nq|nk|hq|hkv)\d+", word))


class Trial:
    def __init__(self, line):
        section, self.request, self.family, self.config, us, by_hand, legal, usual, *features = line.rstrip("\n").split("\t")
        self.group = (section, self.request)
        self.kind = kind_of(self.request)
        self.us, self.by_hand, self.legal, self.usual = float(us), float(by_hand), legal == "1", usual == "1"
        unasked = NOT_OF.get(self.request.split()[0], "-")
        named = (feature.split("=") for feature in features)
        self.features = {name: float(value) for name, value in named if not name.startswith(unasked)}


def read_trials(program, gpu, path):
    done = subprocess.run([program, gpu, path], capture_output=True, text=True, check=True)
    sys.stderr.write(done.stderr)
    return [Trial(line) for line in done.stdout.splitlines()]


def shortest(trials):
    """Of each config in a group."""
    best = {}
    for trial in trials:
        key = trial.group, trial.config
        if key not in best or trial.us < best[key].us:
            best[key] = trial
    return list(best.values())


def ranks(values):
    """Those that are equal have their mean rank."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[which]


def correlation(a, b):
    a, b = ranks(a) - (len(a) - 1) / 2, ranks(b) - (len(b) - 1) / 2
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / size) if size > 0 else 0.0


# ---- the trees -----------------------------------------------------------------------------------

def table(trials, names):
    column = {name: n for n, name in enumerate(names)}
    x = np.zeros((len(trials), len(names)), np.float32)
    for n, trial in enumerate(trials):
        for name, value in trial.features.items():
            if name in column:
                x[n, column[name]] = value
    return x


def weights_of(trials, group):
    us, least = np.array([t.us for t in trials]), np.full(group.max() + 1, np.inf)
    np.minimum.at(least, group, us)
    weight = np.bincount(group)[group] ** -SWEEP / (1 + ((us / least[group] - 1) / NEAR) ** 2)
    return weight / weight.mean()


class Trees:
    """Boosted trees, each of which asks the same questions of all trials. QueryRMSE is the loss of what the trials of a group differ by."""

    def __init__(self, trials, rounds, before, threads=-1):
        """before: of each trial, the logarithm of the factor that is known already; threads: -1 for one a core"""
        self.names = sorted({name for trial in trials for name in trial.features})
        order = sorted(range(len(trials)), key=lambda n: trials[n].group)
        trials, number = [trials[n] for n in order], {}
        group = np.array([number.setdefault(t.group, len(number)) for t in trials])
        pool = catboost.Pool(table(trials, self.names), label=np.log([t.us / t.by_hand for t in trials]) - before[order],
                             weight=weights_of(trials, group), group_id=group)
        self.list = []  # (questions as (column, above), scale, leaves)
        for seed in SEEDS:
            model = catboost.CatBoost({
                "loss_function": "QueryRMSE", "iterations": rounds, "learning_rate": RATE, "depth": DEPTH, "l2_leaf_reg": HELD,
                "border_count": PLACES, "rsm": COLUMNS, "bootstrap_type": "Bernoulli", "subsample": GROUPS, "sampling_unit": "Group",
                "leaf_estimation_method": "Newton", "boosting_type": "Plain", "random_seed": seed, "thread_count": threads, "verbose": 0,
                "allow_writing_files": False})
            model.fit(pool)
            self.list += self.read(model)

    @staticmethod
    def read(model):
        """The answer to the first question is the highest bit of a leaf's number; in CatBoost's the lowest."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trees.json")
            model.save_model(str(path), format="json")
            document = json.loads(path.read_text(encoding="utf-8"))
        column = {feature["feature_index"]: feature["flat_feature_index"] for feature in document["features_info"]["float_features"]}
        trees = []
        for tree in document["oblivious_trees"]:
            asked = [(column[split["float_feature_index"]], np.float32(split["border"])) for split in tree["splits"]]
            fewer = DEPTH - len(asked)  # such a tree asks its last question again
            leaves = np.zeros(1 << DEPTH)
            for leaf in range(1 << DEPTH):
                answers = [leaf >> (DEPTH - 1 - n) & 1 for n in range(len(asked))]
                leaves[leaf] = tree["leaf_values"][sum(answer << n for n, answer in enumerate(answers))] / len(SEEDS)
            scale = max(LEAST_SCALE, int(np.ceil(np.abs(leaves).max() * UNIT / STEPS)))
            trees.append((asked + asked[-1:] * fewer, scale, np.round(leaves * UNIT / scale).astype(np.int64)))
        return trees

    def sums(self, trials):
        """The logarithm of a factor on each one's prediction by hand."""
        x, sums = table(trials, self.names).T.copy(), np.zeros(len(trials), np.int64)
        for asked, scale, leaves in self.list:
            leaf = np.zeros(len(trials), np.int64)
            for column, above in asked:
                leaf = leaf * 2 + (x[column] > above)
            sums += scale * leaves[leaf]
        return sums / UNIT

    def text(self):
        """The questions, each once, then the trees: numbers of the questions that each asks, its scale, its leaves."""
        number, trees = {}, []
        for asked, scale, leaves in self.list:
            numbers = ", ".join(str(number.setdefault(f"{self.names[column]}, {float(above):#.9g}f", len(number))) for column, above in asked)
            trees.append(f"TREE(({numbers}), {scale},\n ({','.join(str(leaf) for leaf in leaves)}))")
        return "\n".join([f"QUESTION({question})" for question in number] + trees) + "\n"


class Fit:
    """The trees of a pass and of its families, by trials of that pass."""

    def __init__(self, trials, threads=-1):
        name = trials[0].request.split()[0]
        self.of_pass = Trees(trials, ROUNDS[name], np.zeros(len(trials)), threads)
        self.of_families = {}
        for family in sorted({t.family for t in trials} & OWN_ROUNDS.keys()):
            own = [t for members in groups_of(t for t in trials if t.family == family).values() if len(members) > 1 for t in members]
            if own:
                self.of_families[family] = Trees(own, OWN_ROUNDS[family], self.of_pass.sums(own), threads)

    def predict(self, trials):
        sums = self.of_pass.sums(trials)
        for family, trees in self.of_families.items():
            places = [n for n, t in enumerate(trials) if t.family == family]
            sums[places] += trees.sums([trials[n] for n in places])
        return np.array([t.by_hand for t in trials]) * np.exp(np.clip(sums, -MOST, MOST))

    def texts(self, name):
        """{file's name: text}"""
        return {name: self.of_pass.text(), **{family: trees.text() for family, trees in self.of_families.items()}}


def held_out(trials, of, seed=1):
    """Predicted times of every trial, by trees that have not seen its request or kind."""
    names = sorted({of(t) for t in trials})
    fold_of = {names[r]: n % FOLDS for n, r in enumerate(np.random.default_rng(seed).permutation(len(names)))}
    cores = os.cpu_count() or 1
    workers = min(FOLDS, cores)

    def predict(fold):
        seen = [t for t in trials if fold_of[of(t)] != fold]
        unseen = [t for t in trials if fold_of[of(t)] == fold]
        return dict(zip(unseen, Fit(seen, threads=cores // workers).predict(unseen))) if unseen else {}

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return {trial: us for part in pool.map(predict, range(FOLDS)) for trial, us in part.items()}


# ---- how good they are ---------------------------------------------------------------------------

def groups_of(trials):
    groups = collections.defaultdict(list)
    for trial in trials:
        groups[trial.group].append(trial)
    return groups


def score(trials, predicted):
    """Mean rank correlation over groups; median error of ratios to the group's mean."""
    rank, errors = [], []
    for members in groups_of(trials).values():
        a, b = (np.log([f(t) for t in members]) for f in (lambda t: t.us, lambda t: predicted[t]))
        if len(members) < LEAST_CONFIGS or np.ptp(a) == 0:
            continue
        rank.append(correlation(a, b))
        errors.extend(np.abs(np.expm1((b - b.mean()) - (a - a.mean()))))
    return (np.mean(rank), np.median(errors)) if rank else (0.0, 0.0)


def order_kept(trials, predicted):
    """Pairs of a group in the order measured less those in the other, of all such pairs. tests/test_fit.c computes the same."""
    kept, count = 0, 0
    for members in groups_of(trials).values():
        us, said = (np.array([f(t) for t in members]) for f in (lambda t: t.us, lambda t: predicted[t]))
        kept += np.sign(np.subtract.outer(us, us) * np.subtract.outer(said, said)).sum() / 2
        count += len(members) * (len(members) - 1) // 2
    return kept / count if count else 0.0


def noise_of(trials):
    """Standard deviation of a time's logarithm: ratios of two configs measured in two sections differ by twice that."""
    ratios = collections.defaultdict(list)
    for (_, request), members in groups_of(trials).items():
        members = sorted(members, key=lambda t: t.config)
        for n, a in enumerate(members):
            for b in members[:n]:
                ratios[request, a.family, a.config, b.config].append(np.log(a.us / b.us))
    apart = [abs(x - y) for values in ratios.values() for n, x in enumerate(values) for y in values[:n]]
    return float(np.median(apart)) / 0.6745 / 2, len(apart)


def ceiling(trials, noise):
    random = np.random.default_rng(3)
    out = []
    for members in groups_of(trials).values():
        a = np.log([t.us for t in members])
        if len(members) < LEAST_CONFIGS or np.ptp(a) == 0:
            continue
        true = (a - a.mean()) * np.sqrt(max(0.0, 1 - noise**2 / a.var(ddof=1)))  # what is left without the noise
        out.append(np.mean([correlation(true, true + noise * random.normal(size=len(a))) for _ in range(DRAWS)]))
    return float(np.mean(out)) if out else 0.0


def choosable(trials):
    """Of groups in which the default was timed, and others, what may be chosen."""
    groups = ([t for t in members if t.legal or t.usual] for members in groups_of(trials).values())
    return [members for members in groups if len(members) >= LEAST_CHOICE and any(t.usual for t in members)]


def usual_of(members):
    return next(t for t in members if t.usual)


def chosen(members, predicted, margin):
    """The default, unless another is predicted to be faster by a margin."""
    usual = usual_of(members)
    return min(members, key=lambda t: predicted[t] * (1.0 if t is usual else margin)), usual


def worth(groups, predicted, margin):
    """Best over choice in the geometric mean. What is lost to the default counts twice more, and the worst tenth again, by a quarter."""
    pairs = [(chosen(g, predicted, margin), min(t.us for t in g)) for g in groups]
    logs = np.sort([np.log(best / taken.us) for (taken, _), best in pairs])
    lost = np.mean([min(0.0, np.log(usual.us / taken.us)) for (taken, usual), _ in pairs]) if pairs else 0.0
    return logs.mean() + 2 * lost + 0.25 * logs[: max(1, len(logs) // 10)].mean() if pairs else 0.0


def best_margin(groups, predicted):
    return max(MARGINS, key=lambda margin: round(worth(groups, predicted, margin), 4) + 1e-6 * margin)


def choice_figures(trials, predicted, seed=5):
    """Per group: best over default, best over choice, by a margin that comes from other requests."""
    parts, groups, out = 5, choosable(trials), []
    requests = sorted({g[0].request for g in groups})
    part_of = {requests[r]: n % parts for n, r in enumerate(np.random.default_rng(seed).permutation(len(requests)))}
    for part in range(parts):
        margin = best_margin([g for g in groups if part_of[g[0].request] != part], predicted)
        for g in (g for g in groups if part_of[g[0].request] == part):
            taken, usual = chosen(g, predicted, margin)
            best = min(t.us for t in g)
            out.append((best / usual.us, best / taken.us, g[0].request, taken.config))
    return out


def geomean(values):
    return float(np.exp(np.mean(np.log(values)))) if len(values) else 1.0


def summary(ratios):
    ordered = sorted(ratios)
    return f"{geomean(ordered):.4f}, 5th percentile {ordered[int(0.05 * len(ordered))]:.3f}, least {ordered[0]:.3f}" if ordered else "none"


def starts_of(trials):
    """Configs that were the fastest of their group, one a tile and division, those that won most often first."""
    won, of_tile = collections.Counter(), collections.defaultdict(collections.Counter)
    for members in groups_of([t for t in trials if t.legal]).values():
        if len(members) < LEAST_CHOICE:
            continue
        best = min(members, key=lambda t: t.us)
        tile = best.family, *(value for value in best.config.split() if value.split("=")[0] in TILE)
        won[tile] += 1
        of_tile[tile][best.config] += 1
    return [of_tile[tile].most_common(1)[0][0] for tile, _ in sorted(won.items(), key=lambda x: (-x[1], x[0]))[:STARTS]]


# ---- a pass --------------------------------------------------------------------------------------

def fit_pass(name, target, read, noise, verbose):
    """{file's name: text} of the trees, {file's name: rows} of the other files."""
    best = shortest(read)
    several = {group for group, members in groups_of(best).items() if len(members) > 1}
    trials = [t for t in best if t.group in several]
    by_hand = {t: t.by_hand for t in trials}
    unseen, of_kinds = (held_out(trials, of) for of in (lambda t: t.request, lambda t: t.kind))
    fit = Fit(trials)
    fitted = dict(zip(read, fit.predict(read)))
    rows = []
    for family in sorted({t.family for t in read}):
        own = [t for t in trials if t.family == family]
        said = {"trials": sum(t.family == family for t in read), "requests": len({t.request for t in own}), "kinds": len({t.kind for t in own})}
        (hand_rank, hand_error), (rank, error), (kind_rank, _) = (score(own, of) for of in (by_hand, unseen, of_kinds))
        said.update(rank_by_hand=hand_rank, rank=rank, kind_rank=kind_rank, ceiling=ceiling(own, noise), error_by_hand=hand_error, error=error,
                    order=order_kept([t for t in read if t.family == family], fitted))
        values = {word: f"{value:.3f}" if isinstance(value, float) else str(value) for word, value in said.items()}
        print(f"{family:22s}", " ".join(f"{word}={value}" for word, value in values.items()))
        rows.append(f"{{FAMILY({family}), .target = \"{target}\", " + ", ".join(f".{word} = {value}" for word, value in values.items()) + "},")
    figures = choice_figures(trials, unseen)
    margin = best_margin(choosable(trials), unseen)
    usual, taken = [f[0] for f in figures], [f[1] for f in figures]
    print(f"{name}: margin {margin}; best over default of {len(figures)} groups: {summary(usual)}; over choice, held out: {summary(taken)}")
    kinds = [f[1] for f in choice_figures(trials, of_kinds)]
    print(f"    kinds held out: {summary(kinds)}; slower than the default by 3 %: {sum(t < 0.97 * u for u, t in zip(usual, taken))}, faster: "
          f"{sum(t > 1.03 * u for u, t in zip(usual, taken))}")
    for usual_ratio, ratio, request, config in sorted(figures, key=lambda f: f[1])[:verbose]:
        print(f"    {usual_ratio:.3f} {ratio:.3f} {request} | {config}")
    choice = (f"{{.pass = FT_{name.upper()}, .target = \"{target}\", .margin = {margin}, "
              f".requests = {len(figures)}, .usual = {geomean(usual):.3f}, .usual_least = {min(usual):.3f}, .chosen = {geomean(taken):.3f}, "
              f".chosen_least = {min(taken):.3f}}},")
    return fit.texts(name), {"fit": rows, "choice": [choice], "starts": [f"{{\"{target}\", \"{config}\"}}," for config in starts_of(trials)]}


def write_rows(path, note, name, rows):
    """In the place of the rows of this pass; those of the other stay."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    kept = [line for line in lines if name not in line.lower()]
    path.write_text(note + "\n".join(rows + kept if name == "forward" else kept + rows) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--trials", required=True)
    parser.add_argument("--dump-features", default="build/dump_features")
    parser.add_argument("--out", type=pathlib.Path, help="a folder")
    parser.add_argument("--pass", dest="only", choices=["forward", "backward"], help="this one alone; what is in --out of the other stays")
    parser.add_argument("--verbose", type=int, default=0, help="so many of the worst choices are printed")
    options = parser.parse_args()
    trials = read_trials(options.dump_features, options.gpu, options.trials)
    noise, repeats = noise_of(shortest(trials))
    print(f"noise of a time {noise:.4f}, by {repeats} ratios measured again in another section")
    note = f"/* made by generator/model/fit/fit.py of {pathlib.Path(options.trials).name}; do not edit */\n"
    for name in [options.only] if options.only else ["forward", "backward"]:
        texts, tables = fit_pass(name, options.target, [t for t in trials if t.request.startswith(name)], noise, options.verbose)
        if not options.out:
            continue
        for of, text in texts.items():
            (options.out / f"{options.target}.{of}.trees").write_text(note + text, encoding="utf-8")
        for of, rows in tables.items():
            write_rows(options.out / f"{options.target}.{of}", note, name, rows)


if __name__ == "__main__":
    main()
