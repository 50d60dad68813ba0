"""``python -m listwright_lab.science.position_bias [--data PATH]``: propensities and debiased fits on simulated clicks.

The standard protocol (Joachims et al. 2017, section 6; Ai et al. 2018, section 5): a weak ranker, LightGBM on a tenth
of the training queries, serves training queries again and again. Visitors click by a position-based model from the true
labels. Neighbours are swapped in half of another log, which propensities are estimated from. Then LambdaMART is fitted
to the clicks as they are (naive), to the clicks weighed by the estimated propensities (debiased), and to the true
labels (full information). All are measured by the true labels of the test queries. The five folds of MQ2008 take turns
over the seeds, so every query of it is tested. Sets and strengths that are not asked for stay in the result file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.tables.table import inverse_propensities
from listwright.training.evaluation.bootstrap import RESAMPLES, draw_counts, percentile_interval
from listwright.training.first_stage import lambdamart
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.recipe.data import Propensity
from listwright.training.traffic.propensity import PositionBias, estimate
from listwright_lab import machine
from listwright_lab.science import drawing
from listwright_lab.synthetic_traffic import (
    Shop,
    Visits,
    attractiveness,
    clicked,
    examination,
    judged_rows,
    swapped_rows,
)

PLACES = 10

_SETTINGS = LambdaMartSettings(objective="lambdarank", num_leaves=15, min_data_in_leaf=50)
SPEC = LambdaMart(trials=1, max_trees=300, patience=30, relative="none", settings=_SETTINGS)
"""Settings of every fit; the weak ranker has fewer trees."""

STRENGTHS = (0.5, 1.0, 1.5)
SESSIONS = (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
NDCG_AT = 10
WAYS = ("naive", "debiased", "full information")
REQUESTS = 150_000
"""Requests of each log that propensities are estimated from: enough clicks at the last place for the strongest bias."""

FIGURE = machine.CHECKOUT / "docs" / "position-bias.svg"


@dataclass(frozen=True, slots=True)
class ShownLists:
    """Queries, and the candidates that visitors see of each.

    Args:
        data: Queries with the true labels.
        orders: Indices of the shown candidates of each query, in the order of the weak ranker.
        highest: Largest label of the set.
    """

    data: Dataset
    orders: list[Int[np.ndarray, " M"]]
    highest: int

    def sessions(self, count: int, strength: float, rng: np.random.Generator) -> tuple[Dataset, Int[np.ndarray, " R"]]:
        """Return clicked lists as a dataset, and the place of each row."""
        queries = rng.integers(0, len(self.data), count)
        rows = np.concatenate([self.data.offsets[n] + self.orders[n] for n in queries])
        lengths = np.array([len(self.orders[n]) for n in queries])
        places = np.concatenate([np.arange(1, length + 1) for length in lengths])
        looks = examination(PLACES, strength)[places - 1]
        hits = clicked(attractiveness(self.data.labels[rows], highest=self.highest), looks, rng)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        qids = tuple(f"s{n}" for n in range(count))
        features = np.asarray(self.data.features[rows], dtype=np.float32)
        return Dataset(features, hits.astype(np.int32), offsets, qids, self.data.schema), places


def show(splits: Splits, seed: int) -> tuple[ShownLists, ShownLists]:
    """Return training and validation queries as the weak ranker shows them."""
    rng = np.random.default_rng(seed)
    tenth = rng.permutation(len(splits.train))[: max(10, len(splits.train) // 10)]
    weak = lambdamart.tune(splits.train.select(np.sort(tenth)), splits.valid, replace_trees(10), seed=seed)
    highest = max(1, *(int(part.labels.max()) for part in (splits.train, splits.valid)))
    train, valid = (ShownLists(part, _orders(part, weak.model), highest) for part in (splits.train, splits.valid))
    return train, valid


def replace_trees(most: int) -> LambdaMart:
    """Return the settings with fewer trees."""
    return SPEC.model_copy(update={"max_trees": most})


def _orders(data: Dataset, model: str) -> list[Int[np.ndarray, " M"]]:
    scores = lambdamart.scores_of(model, data)
    return [np.argsort(-scores[data.slice(n)], kind="stable")[:PLACES] for n in range(len(data))]


def propensities(shown_lists: ShownLists, strength: float, seed: int, count: int) -> PositionBias:
    """Estimate propensities from a log in which half of the lists have two neighbours swapped."""
    rng = np.random.default_rng([seed, 1])
    whole = [n for n, order in enumerate(shown_lists.orders) if len(order) == PLACES]
    queries = rng.choice(whole, count)
    rows = np.array([shown_lists.data.offsets[n] + shown_lists.orders[n] for n in queries])
    attraction = attractiveness(shown_lists.data.labels[rows], highest=shown_lists.highest)
    shop = Shop(length=PLACES, depth=PLACES, strength=strength)
    log = swapped_rows(shop, _visits(attraction), np.tile(np.arange(PLACES), (count, 1)), rng)
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="swaps", places=PLACES, same=None, seed=seed)


def harvested(shown_lists: ShownLists, strength: float, seed: int, count: int) -> PositionBias:
    """Estimate propensities from two bundles' lists: the weak ranker's, and those of one that differs by noise."""
    rng = np.random.default_rng([seed, 3])
    whole = [n for n, order in enumerate(shown_lists.orders) if len(order) == PLACES]
    other = {n: np.argsort(np.arange(PLACES) + rng.normal(scale=3.0, size=PLACES)) for n in whole}
    queries, second = rng.choice(whole, count), rng.random(count) < 0.5
    rows = np.array([shown_lists.data.offsets[n] + shown_lists.orders[n] for n in queries])
    attraction = attractiveness(shown_lists.data.labels[rows], highest=shown_lists.highest)
    orders = np.array([other[n] if two else np.arange(PLACES) for n, two in zip(queries.tolist(), second, strict=True)])
    shop = Shop(length=PLACES, depth=PLACES, strength=strength)
    log = judged_rows(shop, _visits(attraction), orders, rng)
    log = log.with_columns(
        bundle=np.repeat(np.where(second, "shop/2", "shop/1"), PLACES), asked=np.repeat(queries.astype(str), PLACES)
    )
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="harvest", places=PLACES, same="asked", seed=seed)


def _visits(attraction: Float[np.ndarray, "N places"]) -> Visits:
    count = len(attraction)
    return Visits(np.arange(count), np.zeros(count, dtype=np.int64), attraction)


def fitted(
    shown_lists: tuple[ShownLists, ShownLists], sessions: int, strength: float, seed: int, bias: PositionBias | None
) -> lambdamart.TunedLambdaMart:
    """Fit LambdaMART on clicks, weighted where propensities are given.

    Validation queries are clicked a third as often.
    """
    rng = np.random.default_rng([seed, 2, sessions])
    parts = []
    for lists, count in zip(shown_lists, (sessions, max(100, sessions // 3)), strict=True):
        data, places = lists.sessions(count, strength, rng)
        if bias is not None:
            spec = Propensity(values=tuple(bias.values.tolist()), clip=0.01)
            data = replace(data, weights=inverse_propensities(data.labels, places, data.offsets, spec))
        parts.append(data)
    splits = Splits(parts[0], parts[1], parts[1], "clicks").with_normalised_weights()
    return lambdamart.tune(splits.train, splits.valid, SPEC, seed=seed)


def measure(
    folds: Sequence[Splits],
    *,
    seeds: int,
    strengths: tuple[float, ...],
    sessions: tuple[int, ...],
    requests: int = REQUESTS,
) -> dict[str, Any]:
    """Measure one set, whose folds take turns.

    The figures are the error of propensities, and NDCG of every fit by number of sessions.
    """
    estimated, curves = [], []
    for strength in strengths:
        values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]] = {}
        clicks: dict[int, list[int]] = {}
        for seed in range(seeds):
            splits = folds[seed % len(folds)]
            shown_lists = show(splits, seed)
            from_swaps = propensities(shown_lists[0], strength, seed, requests)
            for bias in (from_swaps, harvested(shown_lists[0], strength, seed, requests)):
                estimated.append({"strength": strength, "seed": seed, **_against_truth(bias, strength)})
            full = lambdamart.tune(splits.train, splits.valid, SPEC, seed=seed)
            for count in sessions:
                models = {"naive": fitted(shown_lists, count, strength, seed, None), "full information": full}
                models["debiased"] = fitted(shown_lists, count, strength, seed, from_swaps)
                for way, model in models.items():
                    scores = lambdamart.scores_of(model.model, splits.test)
                    values.setdefault((way, count), []).append(lambdamart.query_ndcg(splits.test, scores, NDCG_AT))
                data, _ = shown_lists[0].sessions(count, strength, np.random.default_rng([seed, 2, count]))
                clicks.setdefault(count, []).append(int((data.labels > 0).sum()))
            print(f"strength {strength}, seed {seed}", flush=True)
        curves += [_point(values, len(folds), strength, count, float(np.mean(clicks[count]))) for count in sessions]
    return {"propensities": estimated, "curves": curves}


def _against_truth(bias: PositionBias, strength: float) -> dict[str, Any]:
    truth = examination(PLACES, strength)
    inside = ((bias.low <= truth) & (truth <= bias.high))[1:]
    error = float(np.abs(bias.values - truth).max())
    return {"method": bias.way, "covered": int(inside.sum()), "places": len(inside), "largest_error": round(error, 4)}


def _point(
    values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]],
    folds: int,
    strength: float,
    count: int,
    clicks: float,
) -> dict[str, Any]:
    """Return means over seeds and queries, and the gain of debiasing with its interval over both."""
    of = {way: values[way, count] for way in WAYS}
    gain = [debiased - naive for debiased, naive in zip(of["debiased"], of["naive"], strict=True)]
    low, high = percentile_interval(resampled(gain, folds))
    means = {way: round(float(np.concatenate(each).mean()), 4) for way, each in of.items()}
    mean = float(np.concatenate(gain).mean())
    rounded = {"mean": round(mean, 4), "low": round(float(low), 4), "high": round(float(high), 4)}
    return {"strength": strength, "sessions": count, "clicks": round(clicks), **means, "debiased_over_naive": rounded}


def resampled(gains: Sequence[Float[np.ndarray, " N"]], folds: int) -> Float[np.ndarray, " R"]:
    """Compute the means over bootstrap samples of the queries and, independently, of the seeds.

    Args:
        gains: Gains of the test queries of each seed's fold, ``(N,)`` each.
        folds: Number of folds that take turns over the seeds; two seeds of one fold share their queries.
    """
    by_fold = [gains[fold] for fold in range(min(folds, len(gains)))]
    ends = np.cumsum([len(gain) for gain in by_fold])
    rng, queries, seeds = np.random.default_rng(0), int(ends[-1]), len(gains)
    of_queries, of_seeds = (draw_counts(count, rng) for count in (queries, seeds))
    sums, counts = np.zeros((RESAMPLES, seeds)), np.zeros((RESAMPLES, seeds))
    for seed, gain in enumerate(gains):
        end = ends[seed % folds]
        weights = of_queries[:, end - len(gain) : end]
        sums[:, seed], counts[:, seed] = weights @ gain, weights.sum(axis=1)
    means: Float[np.ndarray, " R"] = (of_seeds * sums).sum(axis=1) / (of_seeds * counts).sum(axis=1)
    return means


def draw(sets: dict[str, Any], path: Path = FIGURE) -> Path:
    """Draw NDCG against number of clicks: a column for each strength, a row for each set."""
    strengths = sorted({point["strength"] for result in sets.values() for point in result["curves"]})
    with drawing.page(path, 3.0 * len(strengths), 2.6 * len(sets), salt="position-bias") as figure:
        plots = figure.subplots(len(sets), len(strengths), sharex="col", sharey="row", squeeze=False)
        for row, (name, result) in zip(plots, sets.items(), strict=True):
            for axes, strength in zip(row, strengths, strict=True):
                points = [point for point in result["curves"] if point["strength"] == strength]
                for way, colour in zip(WAYS, ("#c4540a", "#0b6bb0", drawing.GREY), strict=True):
                    clicks = [point["clicks"] for point in points]
                    axes.plot(clicks, [point[way] for point in points], color=colour, label=way, marker=".")
                axes.set_xscale("log")
                axes.set_title(f"{name}, strength {strength:g}", fontsize=10)
                drawing.plain(axes)
            row[0].set_ylabel(f"NDCG@{NDCG_AT}, true labels")
        for axes in plots[-1]:
            axes.set_xlabel("clicks")
        figure.legend(*plots[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return path


def sets_of(data: Path | None, *, queries: int = 1000) -> dict[str, list[Splits]]:
    """Return a planted set, and the folds of MQ2008 where it is there."""
    recipe = config.load("demo")
    changes = {"queries": queries, "min_length": 10, "max_length": 30, "shift": 0.0, "categorical": 0}
    planted = recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})
    sets = {"planted": [load(planted, [])]}
    if data is not None:
        recipe = config.load("mq2008")
        folds = range(1, 6)
        sets["mq2008"] = [load(recipe.model_copy(update={"fold": fold}), [str(data)]) for fold in folds]
    return sets


def main() -> None:
    """Run the command line; write ``benchmarks/results/position_bias.json`` and ``docs/position-bias.svg``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.position_bias", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="PATH", help="folder of MQ2008; without it, planted data alone")
    parser.add_argument("--seeds", type=int, default=10, help="(default: 10)")
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS), help="(default: 0.5 1 1.5)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the logs for propensities")
    parser.add_argument("--most", type=int, default=30_000, help="sessions of the largest log (default: 30000)")
    parser.add_argument("--only", metavar="SET", help="planted or mq2008 (default: both)")
    options = parser.parse_args()
    if options.data is None or not options.data.is_dir():
        print(f"no MQ2008 at {options.data}: planted data alone; name its folder with --data")
        options.data = None
    counts = tuple(count for count in SESSIONS if count <= options.most)
    strengths = tuple(options.strengths)
    folds_by_set = sets_of(options.data)
    if options.only is not None:
        if options.only not in folds_by_set:
            parser.error(f"--only {options.only}: there is {' and '.join(folds_by_set)}")
        folds_by_set = {options.only: folds_by_set[options.only]}
    rest = f"--seeds {options.seeds} --most {options.most} --strengths {' '.join(map(str, strengths))}"
    rest += f" --requests {options.requests}" if options.requests != REQUESTS else ""
    path = machine.RESULTS / "position_bias.json"
    sets = json.loads(path.read_text(encoding="utf-8"))["sets"] if path.exists() else {}
    settings = {"seeds": options.seeds, "strengths": list(strengths)}
    for name, folds in folds_by_set.items():
        figures = measure(folds, seeds=options.seeds, strengths=strengths, sessions=counts, requests=options.requests)
        data = "" if name == "planted" else "--data PATH "
        command = f"python -m listwright_lab.science.position_bias {data}--only {name} {rest}"
        sets[name] = beside(sets.get(name), {"runs": [{"command": command, **settings}], **figures})
    print(machine.save("position_bias", "see the runs of each set", {"shown": PLACES, "sets": sets}))
    print(draw(sets))


def beside(before: dict[str, Any] | None, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the new figures, with the strengths of earlier runs that were not measured now."""
    if before is None:
        return figures
    strengths = {point["strength"] for point in figures["curves"]}
    earlier = {
        name: [row for row in before[name] if row["strength"] not in strengths] for name in ("propensities", "curves")
    }
    left = [[strength for strength in run["strengths"] if strength not in strengths] for run in before["runs"]]
    runs = [{**run, "strengths": some} for run, some in zip(before["runs"], left, strict=True) if some]
    return {
        "runs": [*runs, *figures["runs"]],
        **{name: sorted([*earlier[name], *figures[name]], key=lambda row: row["strength"]) for name in earlier},
    }


if __name__ == "__main__":
    main()
