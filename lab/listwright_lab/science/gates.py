"""``python -m listwright_lab.science.gates``: how often the gate of ``listwright evaluate`` says what is not so.

The true gain is the bound itself, so that a gate that holds is wrong, and so is one that is broken. Beside the
product's interval (:func:`listwright.training.evaluation.intervals.mean_p_value`) stand the point rule, which compares
the mean with the bound, Student's t, and the percentile bootstrap. Gains are drawn from distributions of known skew,
and, with ``--data``, from real ones: out-of-fold NDCG@10 of LightGBM with list-relative columns over LightGBM without.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import lightgbm
import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from listwright.ranking.metrics import QueryNdcg
from listwright.training.data.letor import text
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright.training.evaluation.intervals import ALPHA, lists_needed, mean_p_value
from listwright_lab import machine

LISTS = (20, 50, 100, 300, 1000, 3000)

SEGMENTS = ((10, 20), (50, 20), (20, 100), (10, 300))
"""Number of segments, and of lists in each."""

FEWER = 10
"""Factor by which the slow percentile bootstrap gets fewer runs; it gets none above 300 lists."""

Rng = np.random.Generator
Rule = Callable[[Float[np.ndarray, " N"], float], tuple[bool, bool]]
"""Function from values and a level to whether they show a mean below 0, and whether they show one above 0."""


def skewed(share: float) -> Callable[[Rng, int], Float[np.ndarray, " N"]]:
    """Return gains of .3 in a share of lists, and losses in all others."""
    return lambda rng, count: np.where(rng.random(count) < share, 0.3 * (1.0 - share), -0.3 * share)


CASES: dict[str, Callable[[Rng, int], Float[np.ndarray, " N"]]] = {
    "normal": lambda rng, count: rng.normal(0.0, 0.1, count),
    "nine of ten lists alike": lambda rng, count: np.where(rng.random(count) < 0.9, 0.0, rng.uniform(-0.5, 0.5, count)),
    "exponential": lambda rng, count: 0.05 * (rng.exponential(1.0, count) - 1.0),
    "lognormal": lambda rng, count: 0.02 * (np.minimum(rng.lognormal(0.0, 1.0, count), 40.0) - np.exp(0.5)),
    "one list of 20": skewed(0.05),
    "one list of 100": skewed(0.01),
}


def real_gains(folder: Path) -> Iterator[tuple[str, Float[np.ndarray, " N"]]]:
    """Yield gains of list-relative columns by query, out of five folds, less their mean."""
    for name in ("mq2008", "ohsumed"):
        parts = []
        for path in sorted((folder / name).glob("*.txt.gz")):
            with gzip.open(path) as stream:
                parts.append(text.read(cast("BinaryIO", stream), str(path)))
        features = np.vstack([np.asarray(part.features) for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        columns = []
        for begin, end in pairwise(offsets.tolist()):
            values = features[begin:end]
            spread = np.nanstd(values, axis=0)
            scaled = (values - np.nanmean(values, axis=0)) / np.where(spread > 0.0, spread, 1.0)
            columns.append(np.hstack([values, scaled, stats.rankdata(values, axis=0) / len(values)]))
        ndcg = QueryNdcg(labels, offsets, cutoff=10)
        plain, wide = (ndcg.of(_out_of_fold(of, labels, lengths)) for of in (features, np.vstack(columns)))
        yield f"{name}: columns", (wide - plain) - (wide - plain).mean()


def _out_of_fold(
    features: Float[np.ndarray, "R D"], labels: np.ndarray, lengths: np.ndarray
) -> Float[np.ndarray, " R"]:
    folds = np.random.default_rng(0).integers(0, 5, len(lengths))
    of_rows, scores = np.repeat(folds, lengths), np.zeros(len(labels))
    settings = {"objective": "lambdarank", "num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "num_threads": 1}
    for fold in range(5):
        rows = of_rows != fold
        data = lightgbm.Dataset(features[rows], labels[rows], group=lengths[folds != fold])
        scores[~rows] = lightgbm.train(settings, data, 100).predict(features[~rows])
    return scores


def by_point(values: Float[np.ndarray, " N"], _level: float) -> tuple[bool, bool]:
    """Compare the mean with 0."""
    return bool(values.mean() < 0.0), bool(values.mean() >= 0.0)


def by_bootstrap(values: Float[np.ndarray, " N"], level: float) -> tuple[bool, bool]:
    """Use the percentile interval."""
    low, high = bootstrap_interval(values, intervals=max(1, round(ALPHA / 2.0 / level)))
    return high < 0.0, low > 0.0


def by_t(values: Float[np.ndarray, " N"], level: float) -> tuple[bool, bool]:
    """Use Student's t."""
    half = stats.t.ppf(1.0 - level, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return bool(values.mean() + half < 0.0), bool(values.mean() - half > 0.0)


def by_product(values: Float[np.ndarray, " N"], level: float) -> tuple[bool, bool]:
    """Use the product's interval."""
    return mean_p_value(-values, 0.0, lowest=-1.0) <= level, mean_p_value(values, 0.0, lowest=-1.0) <= level


RULES: dict[str, Rule] = {"point": by_point, "percentile": by_bootstrap, "t": by_t, "product": by_product}


def errors(rule: str, draw: Callable[[Rng, int], Float[np.ndarray, " N"]], lists: int, runs: int) -> list[float]:
    """Return the shares of runs of a gate at its bound that are broken, and that hold."""
    rng = np.random.default_rng(lists)
    shares: list[float] = np.mean([RULES[rule](draw(rng, lists), ALPHA / 2.0) for _ in range(runs)], axis=0).tolist()
    return shares


def segment_errors(
    rule: str, draw: Callable[[Rng, int], Float[np.ndarray, " N"]], segments: int, lists: int, runs: int
) -> float:
    """Return the share of runs in which a segment breaks the gate, where the truth of each is the bound."""
    rng, level = np.random.default_rng(lists), ALPHA / 2.0 / segments
    broken: list[bool] = [any(RULES[rule](draw(rng, lists), level)[0] for _ in range(segments)) for _ in range(runs)]
    return float(np.mean(broken))


def power(runs: int) -> dict[str, Any]:
    """Return how often the number of lists that an undecided gate names decides it; 80 % is meant."""
    rng, shares = np.random.default_rng(1), {}
    for gain in (0.005, 0.02):
        values = rng.normal(0.0, 0.1, 200)
        values += gain - values.mean()
        needed = round(lists_needed(values, 0.0, lowest=-1.0))
        shows: Bool[np.ndarray, " runs"] = np.array(
            [mean_p_value(rng.choice(values, needed), 0.0, lowest=-1.0) <= ALPHA / 2.0 for _ in range(runs)]
        )
        shares[str(gain)] = {"lists": needed, "decided": float(shows.mean())}
    return shares


def main() -> None:
    """Run the command line; write ``benchmarks/results/gates.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.gates", description=__doc__)
    parser.add_argument("--runs", type=int, default=4000, help="simulated gates of each row (default: 4000)")
    parser.add_argument("--data", type=Path, help="folder with mq2008/ and ohsumed/, for real gains")
    options = parser.parse_args()
    cases = dict(CASES)
    if options.data is not None:
        for name, gains in real_gains(options.data):
            cases[name] = lambda rng, count, pool=gains: rng.choice(pool, count)  # type: ignore[misc]
    rows, segment_rows = [], []
    for name, draw in cases.items():
        skew = float(stats.skew(draw(np.random.default_rng(0), 200_000)))
        for lists in LISTS:
            rates = {
                rule: errors(rule, draw, lists, options.runs if rule != "percentile" else options.runs // FEWER)
                for rule in RULES
                if rule != "percentile" or lists <= 300
            }
            rows.append({"gains": name, "skew": round(skew, 1) + 0.0, "lists": lists, "broken, holds": rates})
            print(rows[-1], flush=True)
        for segments, lists in SEGMENTS:
            runs = max(1, options.runs // 20)
            broken = {rule: segment_errors(rule, draw, segments, lists, runs) for rule in ("t", "product")}
            broken["percentile"] = segment_errors("percentile", draw, segments, lists, max(1, runs // FEWER))
            segment_rows.append({"gains": name, "segments": segments, "lists": lists, "broken": broken})
            print(segment_rows[-1], flush=True)
    command = f"python -m listwright_lab.science.gates --runs {options.runs}" + (
        " --data FOLDER" if options.data else ""
    )
    result = {"runs": options.runs, "all_lists": rows, "segments": segment_rows, "power": power(options.runs // 10)}
    print(machine.save("gates", command, result))


if __name__ == "__main__":
    main()
