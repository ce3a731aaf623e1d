"""fit.py: fits the model's coefficients to recorded trials.

in -> out: TRIALS, by the build's dump_features -> TARGET.fit, which a build has inside.

    python3 tuner/model/fit/fit.py --gpu h200 --trials tuner/model/fit/nvidia-h200.trials --out tuner/model/fit/sm_90.fit

What is fitted is the logarithm of time measured over time predicted by hand, as a sum of features. Times compare within
a section of the file and a request alone, so each such group has its own mean taken away, as a fit leaves it free. Ridge
regression draws every coefficient to 0, which is the prediction by hand; how strongly is chosen by requests held out.

Held out means: of the requests, tenths are left out in turn, strength and coefficients come from the rest alone, and what
was left out is ranked. A family whose requests are few, or whose ranking this does not better, keeps its prediction by hand."""
import argparse
import collections
import subprocess
import sys

import numpy as np

# How strongly coefficients are drawn to 0: those that always count, and how many times more those of a setting.
STRENGTHS = tuple((always, beside) for always in (0.3, 1, 3, 10, 30, 100) for beside in (10, 1000))
REGRET = 2.0  # what the time of the first choice above the best counts beside a ranking
LEAST_CONFIGS = 4  # of a group, for its ranking to say anything
LEAST_REQUESTS = 5  # of a family
FOLDS = 10
# Their predictions by hand were set beside timings that are not among the trials, whose orders tests/test_model.c keeps. A
# fit to the trials at hand loses them: 256 x 64 no longer stands before 192 x 128 at d 64.
BY_HAND = {"wgmma_forward"}
GAIN = 0.005  # in rank, for a fit to be used


class Trial:
    def __init__(self, line):
        section, self.request, self.family, self.config, us, by_hand, *features = line.rstrip("\n").split("\t")
        self.group = (section, self.request)
        self.us, self.by_hand = float(us), float(by_hand)
        self.features = {}
        for feature in features if self.family not in BY_HAND else ():
            quality, setting, value = feature.split()
            self.features[self.family, quality, setting] = float(value)


def read_trials(program, gpu, path):
    done = subprocess.run([program, gpu, path], capture_output=True, text=True, check=True)
    sys.stderr.write(done.stderr)
    best = {}
    for line in done.stdout.splitlines():
        trial = Trial(line)
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


class Fit:
    """Coefficients from some of the trials."""

    def __init__(self, trials):
        self.names = sorted({name for trial in trials for name in trial.features})
        self.column = {name: n for n, name in enumerate(self.names)}

    def rows(self, trials):
        table = np.zeros((len(trials), len(self.names)))
        for n, trial in enumerate(trials):
            for name, value in trial.features.items():
                if name in self.column:
                    table[n, self.column[name]] = value
        return table

    def solve(self, trials, strength):
        x, y = self.rows(trials), np.array([np.log(t.us / t.by_hand) for t in trials])
        groups = collections.defaultdict(list)
        for n, trial in enumerate(trials):
            groups[trial.group].append(n)
        for members in groups.values():
            weight = len(members) ** -0.25  # a sweep of one request is not worth as much as all others
            x[members] = (x[members] - x[members].mean(axis=0)) * weight
            y[members] = (y[members] - y[members].mean()) * weight
        always, beside = strength
        held = np.array([1.0 if setting == "any" else beside for _, _, setting in self.names])
        self.weights = np.linalg.solve(x.T @ x + always * 0.1 * np.diag(held), x.T @ y)
        return self

    def predict(self, trials):
        factors = np.exp(np.clip(self.rows(trials) @ self.weights, -0.7, 0.7))
        return np.array([t.by_hand for t in trials]) * factors


def held_out(trials, strengths, folds, seed):
    """Predicted times of every trial, by fits that have not seen its request."""
    requests = sorted({t.request for t in trials})
    order = np.random.default_rng(seed).permutation(len(requests))
    fold_of = {requests[r]: n % folds for n, r in enumerate(order)}
    out = {}
    for fold in range(folds):
        seen = [t for t in trials if fold_of[t.request] != fold]
        unseen = [t for t in trials if fold_of[t.request] == fold]
        if not unseen or not seen:
            continue
        strength = strengths[0] if len(strengths) == 1 else choose(seen, strengths, seed + 1)
        for trial, us in zip(unseen, Fit(seen).solve(seen, strength).predict(unseen)):
            out[trial] = us
    return out


def score(trials, predicted, families):
    """Mean rank correlation over groups, and median error of ratios to the group's mean; of each family."""
    found = collections.defaultdict(lambda: ([], [], set()))
    groups = collections.defaultdict(list)
    for trial in trials:
        if trial.family in families:
            groups[trial.group, trial.family].append(trial)
    for (group, family), members in groups.items():
        if len(members) < LEAST_CONFIGS:
            continue
        a, b = (np.log([f(t) for t in members]) for f in (lambda t: t.us, lambda t: predicted[t]))
        if np.ptp(a) == 0:
            continue
        rank, errors, requests = found[family]
        rank.append(correlation(a, b))
        errors.extend(np.abs(np.expm1((b - b.mean()) - (a - a.mean()))))
        requests.add(group[1])
    return {family: (np.mean(r), np.median(e), len(q)) for family, (r, e, q) in found.items()}


def regret(trials, predicted):
    """Over groups: the measured time of what a prediction puts first, to the best one's."""
    groups = collections.defaultdict(list)
    for trial in trials:
        groups[trial.group].append(trial)
    return [min(g, key=lambda t: predicted[t]).us / min(t.us for t in g) for g in groups.values() if len(g) >= LEAST_CONFIGS]


def worth(trials, predicted):
    scores = score(trials, predicted, {t.family for t in trials})
    lost = regret(trials, predicted)
    rank = np.mean([r for r, _, _ in scores.values()]) if scores else 0.0
    return rank - REGRET * (np.mean(lost) - 1 if lost else 0.0)


def choose(trials, strengths, seed):
    return max(strengths, key=lambda s: worth(trials, held_out(trials, [s], FOLDS, seed)))


def fit_pass(read):
    """Of the trials of a pass: coefficients by name, and a line of figures for each family."""
    groups = collections.Counter(trial.group for trial in read)
    trials = [trial for trial in read if groups[trial.group] > 1]
    strength = choose(trials, STRENGTHS, 2)
    by_hand = {t: t.by_hand for t in trials}
    families = sorted({t.family for t in read})
    unseen = held_out(trials, STRENGTHS, FOLDS, 1)
    before, after = (score(trials, p, families) for p in (by_hand, unseen))
    print(f"strength {strength}; regret by hand {np.mean(regret(trials, by_hand)):.4f}, held out {np.mean(regret(trials, unseen)):.4f}")
    fit = Fit(trials).solve(trials, strength)
    figures, weights = {}, {}
    for family in families:
        own = [t for t in read if t.family == family]
        rank_by_hand, error_by_hand, requests = before.get(family, (0, 0, 0))
        rank, error, _ = after.get(family, (0, 0, 0))
        used = requests >= LEAST_REQUESTS and rank > rank_by_hand + GAIN
        print(f"{family:22s} {len(own):4d} trials {requests:3d} requests  rank {rank_by_hand:.3f} -> {rank:.3f}  error {error_by_hand:.3f} -> {error:.3f}")
        figures[family] = (int(used), len(own), len({t.request for t in own}), rank_by_hand, rank, error_by_hand, error)
        if used:
            weights[family] = [(q, s, w) for (f, q, s), w in zip(fit.names, fit.weights) if f == family and abs(w) > 5e-5]
    return figures, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--trials", required=True)
    parser.add_argument("--dump-features", default="build/dump_features")
    parser.add_argument("--out")
    options = parser.parse_args()
    trials = read_trials(options.dump_features, options.gpu, options.trials)
    lines = [f"# {options.target}.fit: made by tuner/model/fit/fit.py of {options.trials.rsplit('/', 1)[-1]}; do not edit.",
             "# used=0: the data is too thin, or ranks requests held out no better; the prediction by hand stays."]
    for name in ("forward", "backward"):
        figures, weights = fit_pass([t for t in trials if t.request.startswith(name)])
        for family, (used, count, requests, *rest) in figures.items():
            words = zip(("rank_by_hand", "rank", "error_by_hand", "error"), rest)
            lines.append(f"family {family} target={options.target} used={used} trials={count} requests={requests} "
                         + " ".join(f"{word}={value:.3f}" for word, value in words))
            lines += [f"{quality} {setting} {weight:.4f}" for quality, setting, weight in weights.get(family, [])]
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
