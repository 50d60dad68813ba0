"""``python -m benchmarks.science.position_bias [--data PATH]``: propensities and debiased fits on simulated clicks.

The standard protocol (Joachims et al. 2017, section 6; Ai et al. 2018, section 5): a weak ranker, LightGBM on a tenth
of the training queries, serves training queries again and again. Visitors click by a position-based model from the true
labels. Neighbours are swapped in half of another log, which propensities are estimated from. Then LambdaMART is fitted
to the clicks as they are (naive), to the clicks weighed by the estimated propensities (debiased), and to the true
labels (full information). All are measured by the true labels of the test queries.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from benchmarks import machine
from benchmarks.science import drawing
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.synthetic.clicks import attractiveness, clicked, examination
from listwright.training.data.synthetic.traffic import Shop, Visits, judged_rows, swapped_rows
from listwright.training.data.tables.row_weights import inverse_propensities
from listwright.training.evaluation.bootstrap import crossed_means, interval
from listwright.training.first_stage import lambdamart
from listwright.training.propensity.estimate import PositionBias, estimate
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.recipe.data import Propensity
from listwright.training.steps.bundle_schema import load

STRENGTHS = (0.5, 1.0, 1.5)
SESSIONS = (300, 1000, 3000, 10_000, 30_000)
SHOWN, NDCG_AT = 10, 10
WAYS = ("naive", "debiased", "full information")
REQUESTS = 150_000
"""Of the logs that propensities are estimated from: enough clicks at the last place under the strongest bias."""

WIDEST = max(SESSIONS)
FIGURE = Path(__file__).parents[2] / "docs" / "position-bias.svg"

_SETTINGS = LambdaMartSettings(num_leaves=15, min_data_in_leaf=50)
_SPEC = LambdaMart(trials=1, max_trees=300, patience=30, relative="none", settings=_SETTINGS)


@dataclass(frozen=True, slots=True)
class Served:
    """Queries and the order in which they are shown.

    Args:
        data: with the true labels.
        orders: of each query, candidates as the weak ranker has them; the shown ones only.
        highest: the largest label of the set.
    """

    data: Dataset
    orders: list[Int[np.ndarray, " M"]]
    highest: int

    def sessions(self, count: int, strength: float, rng: np.random.Generator) -> tuple[Dataset, Int[np.ndarray, " R"]]:
        """Clicked lists as a dataset, and the place of each row."""
        asked = rng.integers(0, len(self.data), count)
        rows = np.concatenate([self.data.offsets[n] + self.orders[n] for n in asked])
        lengths = np.array([len(self.orders[n]) for n in asked])
        places = np.concatenate([np.arange(1, length + 1) for length in lengths])
        looks = examination(SHOWN, strength)[places - 1]
        hits = clicked(attractiveness(self.data.labels[rows], highest=self.highest), looks, rng)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        qids = tuple(f"s{n}" for n in range(count))
        features = np.asarray(self.data.features[rows], dtype=np.float32)
        return Dataset(features, hits.astype(np.int32), offsets, qids, self.data.schema), places


def serve(splits: Splits, seed: int) -> tuple[Served, Served]:
    """Training and validation queries as the weak ranker shows them."""
    rng = np.random.default_rng(seed)
    tenth = rng.permutation(len(splits.train))[: max(10, len(splits.train) // 10)]
    weak = lambdamart.tune(splits.train.select(np.sort(tenth)), splits.valid, replace_trees(10), seed=seed)
    highest = max(1, *(int(part.labels.max()) for part in (splits.train, splits.valid)))
    train, valid = (Served(part, _orders(part, weak.model), highest) for part in (splits.train, splits.valid))
    return train, valid


def replace_trees(most: int) -> LambdaMart:
    """The settings with fewer trees."""
    return _SPEC.model_copy(update={"max_trees": most})


def _orders(data: Dataset, model: str) -> list[Int[np.ndarray, " M"]]:
    scores = lambdamart.scores_of(model, data)
    return [np.argsort(-scores[data.slice(n)], kind="stable")[:SHOWN] for n in range(len(data))]


def propensities(served: Served, strength: float, seed: int, count: int) -> PositionBias:
    """Estimated from a log of which half of the lists have two neighbours swapped."""
    rng = np.random.default_rng([seed, 1])
    whole = [n for n, order in enumerate(served.orders) if len(order) == SHOWN]
    asked = rng.choice(whole, count)
    rows = np.array([served.data.offsets[n] + served.orders[n] for n in asked])
    attraction = attractiveness(served.data.labels[rows], highest=served.highest)
    shop = Shop(length=SHOWN, shown=SHOWN, strength=strength)
    log = swapped_rows(shop, _visits(attraction), np.tile(np.arange(SHOWN), (count, 1)), rng)
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="swaps", places=SHOWN, same=None, seed=seed)


def harvested(served: Served, strength: float, seed: int, count: int) -> PositionBias:
    """Estimated from what two bundles showed: the weak ranker, and another that differs by noise."""
    rng = np.random.default_rng([seed, 3])
    whole = [n for n, order in enumerate(served.orders) if len(order) == SHOWN]
    other = {n: np.argsort(np.arange(SHOWN) + rng.normal(scale=3.0, size=SHOWN)) for n in whole}
    asked, second = rng.choice(whole, count), rng.random(count) < 0.5
    rows = np.array([served.data.offsets[n] + served.orders[n] for n in asked])
    attraction = attractiveness(served.data.labels[rows], highest=served.highest)
    shown = np.array([other[n] if two else np.arange(SHOWN) for n, two in zip(asked.tolist(), second, strict=True)])
    shop = Shop(length=SHOWN, shown=SHOWN, strength=strength)
    log = judged_rows(shop, _visits(attraction), shown, rng)
    log = log.with_columns(
        bundle=np.repeat(np.where(second, "shop/2", "shop/1"), SHOWN), asked=np.repeat(asked.astype(str), SHOWN)
    )
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="harvest", places=SHOWN, same="asked", seed=seed)


def _visits(attraction: Float[np.ndarray, "N K"]) -> Visits:
    count = len(attraction)
    return Visits(np.arange(count), np.zeros(count, dtype=np.int64), attraction)


def fitted(
    served: tuple[Served, Served], sessions: int, strength: float, seed: int, found: PositionBias | None
) -> lambdamart.TunedLambdaMart:
    """LambdaMART on clicks; weighed where propensities are given. Validation queries are clicked a third as often."""
    rng = np.random.default_rng([seed, 2, sessions])
    parts = []
    for one, count in zip(served, (sessions, max(100, sessions // 3)), strict=True):
        data, places = one.sessions(count, strength, rng)
        if found is not None:
            spec = Propensity(values=tuple(found.values.tolist()), clip=0.01)
            data = replace(data, weights=inverse_propensities(data.labels, places, data.offsets, spec))
        parts.append(data)
    splits = Splits(parts[0], parts[1], parts[1], "clicks").weighed()
    return lambdamart.tune(splits.train, splits.valid, _SPEC, seed=seed)


def measure(
    splits: Splits, *, seeds: int, strengths: tuple[float, ...], sessions: tuple[int, ...], requests: int = REQUESTS
) -> dict[str, Any]:
    """Of one set: how well propensities are found, and NDCG of every fit by number of sessions."""
    estimated, curves = [], []
    for strength in strengths:
        values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]] = {}
        clicks: dict[int, list[int]] = {}
        for seed in range(seeds):
            served = serve(splits, seed)
            found = propensities(served[0], strength, seed, requests)
            for bias in (found, harvested(served[0], strength, seed, requests)):
                estimated.append({"strength": strength, "seed": seed, **_against_truth(bias, strength)})
            full = lambdamart.tune(splits.train, splits.valid, _SPEC, seed=seed)
            for count in sessions:
                models = {"naive": fitted(served, count, strength, seed, None), "full information": full}
                models["debiased"] = fitted(served, count, strength, seed, found)
                for way, model in models.items():
                    scores = lambdamart.scores_of(model.model, splits.test)
                    values.setdefault((way, count), []).append(lambdamart.query_ndcg(splits.test, scores, NDCG_AT))
                data, _ = served[0].sessions(count, strength, np.random.default_rng([seed, 2, count]))
                clicks.setdefault(count, []).append(int((data.labels > 0).sum()))
            print(f"strength {strength}, seed {seed}", flush=True)
        curves += [_point(values, strength, count, float(np.mean(clicks[count]))) for count in sessions]
    return {"propensities": estimated, "curves": curves}


def _against_truth(found: PositionBias, strength: float) -> dict[str, Any]:
    truth = examination(SHOWN, strength)
    inside = ((found.low <= truth) & (truth <= found.high))[1:]
    error = float(np.abs(found.values - truth).max())
    return {"method": found.way, "covered": int(inside.sum()), "places": len(inside), "largest_error": round(error, 4)}


def _point(
    values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]], strength: float, count: int, clicks: float
) -> dict[str, Any]:
    """Means over seeds and queries, and the gain of debiasing with its interval over both."""
    of = {way: np.stack(values[way, count]) for way in WAYS}
    gain = of["debiased"] - of["naive"]
    low, high = interval(crossed_means(gain))
    means = {way: round(float(each.mean()), 4) for way, each in of.items()}
    said = {"mean": round(float(gain.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}
    return {"strength": strength, "sessions": count, "clicks": round(clicks), **means, "debiased_over_naive": said}


def draw(sets: dict[str, Any], path: Path = FIGURE) -> Path:
    """NDCG against number of clicks: a column for each strength, a row for each set."""
    strengths = sorted({point["strength"] for found in sets.values() for point in found["curves"]})
    with drawing.page(path, 3.0 * len(strengths), 2.6 * len(sets), salt="position-bias") as figure:
        plots = figure.subplots(len(sets), len(strengths), sharex="col", sharey="row", squeeze=False)
        for row, (name, found) in zip(plots, sets.items(), strict=True):
            for axes, strength in zip(row, strengths, strict=True):
                points = [point for point in found["curves"] if point["strength"] == strength]
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


def sets_of(data: Path | None, *, queries: int = 1000) -> dict[str, Splits]:
    """A planted set, and MQ2008 where it is there."""
    recipe = config.load("demo")
    changes = {"queries": queries, "min_length": 10, "max_length": 30, "shift": 0.0, "categorical": 0}
    planted = recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})
    sets = {"planted": load(planted, [])}
    if data is not None:
        sets["mq2008"] = load(config.load("mq2008"), [str(data)])
    return sets


def main() -> None:
    """Command line; writes ``benchmarks/results/position_bias.json`` and ``docs/position-bias.svg``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.science.position_bias", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="PATH", help="folder of MQ2008; without it, planted data alone")
    parser.add_argument("--seeds", type=int, default=10, help="(default: 10)")
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS), help="(default: 0.5 1 1.5)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the logs for propensities")
    parser.add_argument("--most", type=int, default=WIDEST, help="sessions of the largest log (default: 30000)")
    options = parser.parse_args()
    if options.data is None or not options.data.is_dir():
        print(f"no MQ2008 at {options.data}: planted data alone; name its folder with --data")
        options.data = None
    counts = tuple(count for count in SESSIONS if count <= options.most)
    strengths = tuple(options.strengths)
    sets = {
        name: measure(splits, seeds=options.seeds, strengths=strengths, sessions=counts, requests=options.requests)
        for name, splits in sets_of(options.data).items()
    }
    given = " --data PATH" if options.data is not None else ""
    words = [f"--seeds {options.seeds} --most {options.most}"]
    words += [f"--strengths {' '.join(map(str, strengths))}"] if strengths != STRENGTHS else []
    words += [f"--requests {options.requests}"] if options.requests != REQUESTS else []
    command = f"python -m benchmarks.science.position_bias{given} {' '.join(words)}"
    print(machine.save("position_bias", command, {"seeds": options.seeds, "shown": SHOWN, "sets": sets}))
    print(draw(sets))


if __name__ == "__main__":
    main()
