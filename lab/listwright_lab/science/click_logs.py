"""Simulated logs of lists whose candidates have a known attraction, with or without random swaps of neighbours."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.traffic.estimate.estimate import summarise
from listwright.training.traffic.estimate.lists import Models, PartWork, fit_models, keep_usable, value_rows
from listwright.training.traffic.propensity import RESAMPLES, swap_evidence
from listwright_lab.science.position_bias import SPEC, replace_trees, sets_of, show
from listwright_lab.science.tafeng import draw_lists
from listwright_lab.synthetic_traffic import attractiveness, examination

PLACES = 5
"""Length of every list: with ten, the last places of 20,000 lists have too few clicks for propensities."""

BUNDLES = 10
"""Number of rankers that are put in order."""

RETURNS = 2.0
"""Mean number of lists of a unit."""

SWAP_SHARE = 0.8

MODEL_LISTS = 4_000
"""Lists that the attraction is fitted on, for speed; predictions are more biased than with all."""

CLIPS = (10.0, 15.0, 20.0, 30.0, 40.0, 60.0)
"""Clips of the doubly robust estimator, times the square root of the number of lists."""

TAFENG_LISTS = 4_000
"""Training lists of Ta Feng that are drawn."""

Propensities = tuple[Float[np.ndarray, " places"], Float[np.ndarray, "places places"]]
"""Propensities, and the covariance of their logarithms."""

BY_PLACE, WITH_TRUST = "by place", "with trust"


@dataclass(frozen=True, slots=True)
class Served:
    """Queries that are served, and what is known of them.

    Args:
        features: ``(Q, PLACES, D)`` features of the shown candidates, in the order of the ranker that serves them.
        attraction: ``(Q, PLACES)`` probabilities of a click on a candidate that is looked at.
        orders: ``(1 + BUNDLES, Q, PLACES)`` place of each candidate, from 0, by a better ranker and by those that are
            put in order.
    """

    features: Float[np.ndarray, "Q places D"]
    attraction: Float[np.ndarray, "Q places"]
    orders: Int[np.ndarray, "rankers Q places"]

    def gains(self, strength: float, clicks: str) -> Float[np.ndarray, " rankers"]:
        """Return the true gain of each ranker in clicks of a list."""
        own = np.broadcast_to(np.arange(PLACES), self.attraction.shape)
        values = [
            float(click_chances(self.attraction, places, strength, clicks).sum(axis=1).mean())
            for places in (own, *self.orders)
        ]
        return np.array(values[1:]) - values[0]


class ClickLog(NamedTuple):
    """A simulated log.

    Args:
        rows: Judged rows without features.
        features: ``(R, D)`` features of the rows.
        places: ``(1 + BUNDLES, R)`` places of the rows by the rankers of the queries, from 0.
    """

    rows: pl.DataFrame
    features: Float[np.ndarray, "R D"]
    places: Int[np.ndarray, "rankers R"]


def serve(splits: Splits) -> Served:
    """Return training queries as a weak ranker shows them, and the orders of others.

    The better ranker is fitted on these queries, those that are put in order on validation queries.
    """
    served, _ = show(splits, 0)
    data, orders = served.data, served.orders
    whole = [n for n, order in enumerate(orders) if len(order) >= PLACES]
    rows = np.array([data.offsets[n] + orders[n][:PLACES] for n in whole])
    better = lambdamart.tune(splits.train, splits.valid, SPEC, seed=1).model
    scores = np.stack([lambdamart.scores_of(better, data), *(_scores(splits, n) for n in range(BUNDLES))])[:, rows]
    return Served(
        np.asarray(data.features, dtype=np.float32)[rows],
        attractiveness(data.labels[rows], highest=served.highest),
        np.argsort(np.argsort(-scores, axis=2, kind="stable"), axis=2),
    )


def _scores(splits: Splits, number: int) -> Float[np.ndarray, " R"]:
    """Return the scores of the training queries by LightGBM on some of the features of the validation queries."""
    rng, width = np.random.default_rng(number), len(splits.train.schema)
    columns = np.sort(rng.permutation(width)[: max(2, round(width * (number + 1) / BUNDLES))])
    valid, train = (part.narrowed(columns) for part in (splits.valid, splits.train))
    model = lambdamart.tune(valid, train, replace_trees(int(rng.choice([5, 20, 80, 300]))), seed=1).model
    return lambdamart.scores_of(model, train)


def splits_of(mq2008: Path | None, tafeng: Path | None) -> dict[str, Splits]:
    """Return a planted set, and those whose files are there."""
    sets = {name: folds[0] for name, folds in sets_of(mq2008).items()}
    if tafeng is not None:
        whole = load(config.load("tafeng"), [str(tafeng)])
        sets["tafeng"] = draw_lists(whole, whole.test, TAFENG_LISTS, 0)
    return sets


def click_chances(
    attraction: Float[np.ndarray, "N K"], places: Int[np.ndarray, "N K"], strength: float, clicks: str
) -> Float[np.ndarray, "N K"]:
    """Return the probability of a click on each candidate at its place, from 0.

    Definition (trust bias: Agarwal et al. 2019, eq. 5): p_k (e+_k g + e-_k (1 - g)), here with e+_k = 1 - (k + 1) / 100
    and e-_k = 0.65 / k at place k from 1; without trust bias e+ = 1 and e- = 0.
    """
    looked: Float[np.ndarray, "N K"] = examination(attraction.shape[1], strength)[places]
    if clicks == BY_PLACE:
        return np.asarray(looked * attraction)
    relevant, irrelevant = 0.99 - (places + 1) / 100.0, 0.65 / (places + 1)
    chances: Float[np.ndarray, "N K"] = looked * (relevant * attraction + irrelevant * (1.0 - attraction))
    return chances


def draw_log(
    served: Served, strength: float, clicks: str, *, swaps: bool, count: int, rng: np.random.Generator
) -> ClickLog:
    """Draw queries, swaps and clicks."""
    query = rng.integers(0, len(served.attraction), count)
    order = np.tile(np.arange(PLACES), (count, 1))
    upper = rng.integers(0, PLACES - 1, count)
    moved = np.flatnonzero(rng.random(count) < SWAP_SHARE * swaps)
    pairs = np.stack([upper[moved], upper[moved] + 1], axis=1)
    order[moved[:, None], pairs] = pairs[:, ::-1]
    swapped = np.zeros((count, PLACES), dtype=bool)
    swapped[moved[:, None], pairs] = True
    places = np.tile(np.arange(PLACES), (count, 1))
    attraction = np.take_along_axis(served.attraction[query], order, axis=1)
    hits = rng.random((count, PLACES)) < click_chances(attraction, places, strength, clicks)
    unit = rng.integers(0, round(count / RETURNS), count)
    rows = pl.DataFrame(
        {
            "query_id": np.repeat(np.arange(count), PLACES),
            "position": places.ravel() + 1,
            "label": hits.ravel().astype(np.int32),
            "unit": np.repeat(unit, PLACES),
            "swapped": swapped.ravel(),
        }
    ).with_columns(bundle=pl.lit("weak/1"), experiment=pl.lit("places"))
    by_ranker = np.take_along_axis(served.orders[:, query], order[None], axis=2).reshape(1 + BUNDLES, -1)
    return ClickLog(rows, served.features[query[:, None], order].reshape(count * PLACES, -1), by_ranker)


def propensities_of(rows: pl.DataFrame) -> Propensities:
    """Return propensities as ``listwright propensity`` estimates them, and the covariance of their logarithms.

    With swaps of neighbours alone its fit has a closed form: the product of the ratios of clicks.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        rows.write_parquet(path)
        evidence = swap_evidence(path, PLACES)
    assert evidence is not None
    samples = np.concatenate([evidence.totals()[None], evidence.resample(RESAMPLES, 0)])
    logs = np.pad(np.cumsum(np.log(samples[:, :, 2] / samples[:, :, 1]), axis=1), ((0, 0), (1, 0)))
    return np.exp(logs[0]), np.cov(logs[1:], rowvar=False)


class _SinglePrediction(lightgbm.Booster):
    """Model that predicts once, and returns the same again: all clips are of the same rows."""

    def __init__(self, trees: lightgbm.Booster) -> None:
        self._trees = trees
        self._values: Any = None

    def predict(self, data: Any, *_: Any, **_options: Any) -> Any:
        if self._values is None:
            self._values = self._trees.predict(data)
        return self._values


def estimate_log(
    log: ClickLog, rankers: list[int], propensities: Propensities, clips: tuple[float, ...] = ()
) -> tuple[bool | None, list[dict[str, list[float]]]]:
    """Return whether the check of ``listwright estimate`` holds, and each ranker's gain with its interval by estimator.

    ``dr`` has no clip; ``dr, clip 20``, without an interval, that of 20 over the square root of the number of lists.
    """
    values, covariance = propensities
    _, facts, left_out = keep_usable(log.rows, "", PLACES)
    sample = slice(0, MODEL_LISTS * PLACES)
    fitted = fit_models(facts[sample], log.features[sample], values)
    models: Models = {
        name: tuple((_SinglePrediction(trees), base) for trees, base in folds) for name, folds in fitted.items()
    }
    work = PartWork((), Path("rows"), "clicks", "", values, covariance, 0.0, models)

    def summary(clip: float) -> dict[str, Any]:
        own = replace(work, clip=clip / math.sqrt(facts.height / PLACES))
        part = value_rows(facts, log.features, log.places[rankers].T, own)
        return summarise([str(n) for n in rankers], part | {"left_out": left_out}, own)

    first = summary(0.0)
    gains = [
        {name: [round(end, 6) for end in bundle["estimates"][name].values()] for name in ("dr", "snips", "dm")}
        for bundle in first["bundles"]
    ]
    for clip in clips:
        for gain, bundle in zip(gains, summary(clip)["bundles"], strict=True):
            gain[f"dr, clip {clip:g}"] = [round(bundle["estimates"]["dr"]["value"], 6)]
    return first["check"] and first["check"]["holds"], gains
