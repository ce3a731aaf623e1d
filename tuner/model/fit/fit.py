"""fit.py: fits the model's coefficients to recorded trials.

in -> out: TRIALS, by the build's dump_features -> TARGET.fit, which a build has inside.

    python3 tuner/model/fit/fit.py --gpu h200 --trials tuner/model/fit/nvidia-h200.trials --out tuner/model/fit/sm_90.fit

What is fitted, family by family, is the logarithm of time measured over time predicted by hand, as a sum of features. Times
compare within a section of the file and a request alone, so each such group has its own mean taken away, as a fit leaves it
free. They count in cycles: finals run on a hotter GPU than screenings, with a clock up to a fifth lower. Ridge regression draws every coefficient to 0, which is the prediction by hand. How strongly is chosen by what is held out.

Held out are requests, and kinds of requests: those whose words differ in lengths, batch and heads alone. What a fit says of a
request whose kind it has seen is better than what it says of others. Tenths of either are left out in turn, strength and
coefficients come from the rest alone, and what was left out is ranked. A family whose requests are few, or which a fit does not
rank better both ways, keeps its prediction by hand. A fit is for the dtypes that it has seen.

The ceiling is the rank that a model without error would have: what is measured twice, in two sections, differs."""
import argparse
import collections
import re
import subprocess
import sys

import numpy as np

# How strongly coefficients are drawn to 0: those that always count, and how many times more those of a setting.
STRENGTHS = tuple((always, beside) for always in (0.3, 1, 3, 10, 30, 100, 300) for beside in (10, 1000))
REGRET = 2.0  # what the time of the first choice above the best counts beside a ranking
LEAST_CONFIGS = 12  # of a group, for its ranking to say anything: fewer were near equals, one knob apart
LEAST_REQUESTS = 5  # of a family
FOLDS = 10
GAIN = 0.05  # in rank, for a fit to be used
DRAWS = 400  # of noise, for the ceiling


def kind_of(request):
    return " ".join(word for word in request.split() if not re.fullmatch(r"(b|nq|nk|hq|hkv)\d+", word))


def dtype_of(request):
    return next(word for word in request.split() if word in ("fp16", "bf16", "e4m3", "fp32", "tf32"))


class Trial:
    def __init__(self, line):
        section, self.request, self.family, self.config, us, by_hand, *features = line.rstrip("\n").split("\t")
        self.group = (section, self.request)
        self.kind = kind_of(self.request)
        self.us, self.by_hand = float(us), float(by_hand)
        self.features = {}
        for feature in features:
            quality, setting, value = feature.split()
            self.features[self.family, quality, setting] = float(value)


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
    values = np.asarray(values)
    order = np.argsort(values, kind="stable")
    out = np.empty(len(values))
    out[order] = np.arange(len(values))
    for value in np.unique(values):
        out[values == value] = out[values == value].mean()
    return out


def correlation(a, b):
    a, b = ranks(a) - (len(a) - 1) / 2, ranks(b) - (len(b) - 1) / 2
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / size) if size > 0 else 0.0


class Columns:
    """The features of a family's trials as a table: a row each, a column for each name."""

    def __init__(self, trials):
        self.names = sorted({name for trial in trials for name in trial.features})
        column = {name: n for n, name in enumerate(self.names)}
        for trial in trials:
            trial.row = np.zeros(len(self.names))
            for name, value in trial.features.items():
                trial.row[column[name]] = value
        self.rare = np.array([setting != "any" for _, _, setting in self.names])


class Fit:
    """Coefficients from some of the trials; those of columns that are 0 in all of these are 0."""

    def __init__(self, trials, columns, strength):
        x, y = np.stack([t.row for t in trials]), np.array([np.log(t.us / t.by_hand) for t in trials])
        mean_row = x.mean(axis=0)
        groups = collections.defaultdict(list)
        for n, trial in enumerate(trials):
            groups[trial.group].append(n)
        for members in groups.values():
            weight = len(members) ** -0.25  # a sweep of one request is not worth as much as all others
            x[members] = (x[members] - x[members].mean(axis=0)) * weight
            y[members] = (y[members] - y[members].mean()) * weight
        always, beside = strength
        held = np.where(columns.rare, beside, 1.0)
        self.weights = np.linalg.solve(x.T @ x + always * 0.1 * np.diag(held), x.T @ y)
        # How families compare is left to the predictions by hand.
        self.level = float(mean_row @ self.weights)

    def predict(self, trials):
        factors = np.exp(np.clip(np.stack([t.row for t in trials]) @ self.weights - self.level, -0.7, 0.7))
        return np.array([t.by_hand for t in trials]) * factors


def held_out(trials, columns, strengths, of, seed):
    """Predicted times of every trial, by fits that have not seen its request or kind; a dictionary for each strength."""
    names = sorted({of(t) for t in trials})
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[r]: n % FOLDS for n, r in enumerate(order)}
    out = {strength: {} for strength in strengths}
    for fold in range(FOLDS):
        seen = [t for t in trials if fold_of[of(t)] != fold]
        unseen = [t for t in trials if fold_of[of(t)] == fold]
        for strength in strengths if unseen and seen else ():
            out[strength].update(zip(unseen, Fit(seen, columns, strength).predict(unseen)))
    return out


def held_out_wholly(trials, columns, of, seed):
    """The same by strengths that have not seen them either."""
    names = sorted({of(t) for t in trials})
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[r]: n % FOLDS for n, r in enumerate(order)}
    out = {}
    for fold in range(FOLDS):
        seen = [t for t in trials if fold_of[of(t)] != fold]
        unseen = [t for t in trials if fold_of[of(t)] == fold]
        if unseen and seen:
            out.update(zip(unseen, Fit(seen, columns, choose(seen, columns, seed + 1)).predict(unseen)))
        else:
            out.update((t, t.by_hand) for t in unseen)
    return out


def groups_of(trials):
    groups = collections.defaultdict(list)
    for trial in trials:
        groups[trial.group].append(trial)
    return groups


def score(trials, predicted):
    """Mean rank correlation over groups; median error of ratios to the group's mean; how many requests."""
    rank, errors, requests = [], [], set()
    for group, members in groups_of(trials).items():
        a, b = (np.log([f(t) for t in members]) for f in (lambda t: t.us, lambda t: predicted[t]))
        if len(members) < LEAST_CONFIGS or np.ptp(a) == 0:
            continue
        rank.append(correlation(a, b))
        errors.extend(np.abs(np.expm1((b - b.mean()) - (a - a.mean()))))
        requests.add(group[1])
    return (np.mean(rank), np.median(errors), len(requests)) if rank else (0.0, 0.0, 0)


def regret(trials, predicted):
    """Over groups: the measured time of what a prediction puts first, to the best one's."""
    lost = [min(g, key=lambda t: predicted[t]).us / min(t.us for t in g)
            for g in groups_of(trials).values() if len(g) >= LEAST_CONFIGS]
    return (np.mean(lost), np.max(lost)) if lost else (1.0, 1.0)


def order_kept(trials, predicted):
    """Pairs of a group in the order measured less those in the other, of all such pairs. tests/test_fit.c computes the same."""
    kept, count = 0, 0
    for members in groups_of(trials).values():
        for n, a in enumerate(members):
            for b in members[:n]:
                kept += np.sign((a.us - b.us) * (predicted[a] - predicted[b]))
                count += 1
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


def worth(trials, predicted):
    return score(trials, predicted)[0] - REGRET * (regret(trials, predicted)[0] - 1)


def choose(trials, columns, seed):
    """The strength that does best where requests, and where kinds are held out."""
    both = [held_out(trials, columns, STRENGTHS, of, seed) for of in (lambda t: t.request, lambda t: t.kind)]
    return max(STRENGTHS, key=lambda s: sum(worth(list(out[s]), out[s]) for out in both))


def fit_family(read, noise):
    """Of a family's trials: what its line says, coefficients, and predicted times of requests held out."""
    by_hand = {t: t.by_hand for t in read}
    best = shortest(read)
    several = {group for group, members in groups_of(best).items() if len(members) > 1}
    trials = [t for t in best if t.group in several]
    said = {"used": 0, "dtypes": ",".join(sorted({dtype_of(t.request) for t in read})), "trials": len(read),
            "requests": len({t.request for t in read}), "kinds": len({t.kind for t in read})}
    weights, fitted, unseen = [], by_hand, by_hand
    rank_by_hand, error_by_hand, requests = score(trials, by_hand)
    rank, error, kind_rank, kind_regret = 0.0, 0.0, 0.0, (1.0, 1.0)
    if requests >= LEAST_REQUESTS:
        columns = Columns(read)
        unseen, of_kinds = (held_out_wholly(trials, columns, of, 1) for of in (lambda t: t.request, lambda t: t.kind))
        (rank, error, _), (kind_rank, _, _), kind_regret = score(trials, unseen), score(trials, of_kinds), regret(trials, of_kinds)
        said["used"] = int(min(rank, kind_rank) > rank_by_hand + GAIN)
    if said["used"]:
        strength = choose(trials, columns, 2)
        fit = Fit(trials, columns, strength)
        fitted = dict(zip(read, fit.predict(read)))
        named = dict(zip(columns.names, fit.weights))
        named[read[0].family, "offset", "any"] = named.get((read[0].family, "offset", "any"), 0.0) - fit.level
        weights = [(quality, setting, weight) for (_, quality, setting), weight in sorted(named.items()) if abs(weight) > 5e-5]
        print("strength", strength)
    said.update(rank_by_hand=rank_by_hand, rank=rank, kind_rank=kind_rank, ceiling=ceiling(trials, noise), error_by_hand=error_by_hand,
                error=error, order=order_kept(read, fitted))
    print(f"{read[0].family:22s}", " ".join(f"{word}={value:.3f}" if isinstance(value, float) else f"{word}={value}" for word, value in said.items()))
    for name, lost in (("by hand", regret(trials, by_hand)), ("requests held out", regret(trials, unseen)), ("kinds held out", kind_regret)):
        print(f"    regret {name}: mean {lost[0]:.4f}, worst {lost[1]:.3f}")
    return said, weights, unseen if said["used"] else by_hand


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--trials", required=True)
    parser.add_argument("--dump-features", default="build/dump_features")
    parser.add_argument("--out")
    options = parser.parse_args()
    trials = read_trials(options.dump_features, options.gpu, options.trials)
    noise, repeats = noise_of(shortest(trials))
    print(f"noise of a time {noise:.4f}, by {repeats} ratios measured again in another section")
    lines = [f"# {options.target}.fit: made by tuner/model/fit/fit.py of {options.trials.rsplit('/', 1)[-1]}; do not edit.",
             "# used=0: the data is too thin, or ranks what is held out no better; the prediction by hand stays."]
    for name in ("forward", "backward"):
        of_pass = [t for t in trials if t.request.startswith(name)]
        predicted = {t: t.by_hand for t in of_pass}
        for family in sorted({t.family for t in of_pass}):
            said, weights, unseen = fit_family([t for t in of_pass if t.family == family], noise)
            predicted.update(unseen)
            lines.append(f"family {family} target={options.target} " + " ".join(
                f"{word}={value:.3f}" if isinstance(value, float) else f"{word}={value}" for word, value in said.items()))
            lines += [f"{quality} {setting} {weight:.4f}" for quality, setting, weight in weights]
        best = shortest(of_pass)
        for what, times in (("by hand", {t: t.by_hand for t in best}), ("as used, requests held out", predicted)):
            print(f"{name}s of all families, {what}: regret mean {regret(best, times)[0]:.4f}, worst {regret(best, times)[1]:.3f}")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
