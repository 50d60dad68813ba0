"""Logged lists ranked again by bundles, a part at a time, and valued by every estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import lightgbm
import numpy as np
import polars as pl
from jaxtyping import Float, Int
from scipy.special import expit

from listwright.ranking.errors import DataError
from listwright.ranking.features import FeatureSchema
from listwright.training.data.tables.judged import NUMBERS
from listwright.training.scoring.worker import lists_of, load_bundle, rank_rows
from listwright.training.traffic.estimate.estimators import LoggedLists, cascade_lists, fit_attraction, value_lists

FOLDS = 4
"""Number of models of the attraction: each predicts the units that it was not fitted on."""

COLUMNS = ("query_id", "position", "label", "unit", "bundle", "experiment", "swapped", "team", "rules", "weights")
"""Columns of the judged rows that are needed beside the features."""

UNIT = pl.coalesce(pl.col("unit").cast(pl.String), pl.col("query_id").cast(pl.String)).hash(seed=0)
"""Hash of a row's unit; a query without a unit is a unit of its own."""

UNKNOWN = -2
"""Swap of a list with rules: the service drops a swap with an excluded candidate, so which lists have one is no chance.
"""

_FAR = 2**62
"""Place, from 0, of a candidate that was not shown."""

Models = dict[str, tuple[tuple[lightgbm.Booster, float], ...]]
"""Models of the attraction, one for each fold, by click model: ``place``, and ``cascade`` if no list has two clicks."""


@dataclass(frozen=True, slots=True)
class PartWork:
    """Task of a worker, with what a look at the whole log found.

    Args:
        bundles: Folders of the bundles.
        data: Parquet file of judged rows, or a folder of them.
        metric: ``clicks`` of a list, or its discounted ``gain``.
        prefix: Prefix of the names of all columns of the rows but the features.
        propensities: ``(K,)`` propensities.
        covariance: ``(K, K)`` covariance of their logarithms.
        clip: Smallest propensity of a denominator of the doubly robust estimator; 0 for none.
        models: Models of the attraction.
    """

    bundles: tuple[Path, ...]
    data: Path
    metric: str
    prefix: str
    propensities: Float[np.ndarray, " K"]
    covariance: Float[np.ndarray, "K K"]
    clip: float
    models: Models


def value_part(path: str, number: int, work: PartWork) -> dict[str, np.ndarray]:
    """Rank the lists of a part by all bundles.

    Returns:
        The values of :func:`value_rows`; why lists are ``left_out``; ``categories N``, what
        :func:`listwright.ranking.features.count_categories` counts for bundle N.
    """
    rows, facts, left_out = keep_usable(pl.read_ipc(path), work.prefix, len(work.propensities))
    Path(path).unlink()
    if not rows.height:
        return {"left_out": left_out}
    # the order of the rows knows what the logged ranker preferred: equal scores must not
    order = np.lexsort((np.random.default_rng(number).random(rows.height), facts["query_id"].rle_id()))
    rows, facts, qid = rows[order], facts[order], work.prefix + "query_id"
    served = [load_bundle(str(folder)) for folder in work.bundles]
    ranked = [rank_rows(rows, model, qid) for model in served]
    counts = {f"categories {n}": counted[None] for n, (_, counted) in enumerate(ranked)}
    ranks = [of_bundle["rank"].cast(pl.Int64) - 1 for of_bundle, _ in ranked]
    features = features_of(rows, [model.manifest.feature_schema for model in served], qid)
    return value_rows(facts, features, np.column_stack(ranks), work) | {"left_out": left_out, **counts}


def features_of(rows: pl.DataFrame, schemas: Sequence[FeatureSchema], qid: str) -> Float[np.ndarray, "R D"]:
    """Return the features that any of the schemas has, in an order that does not depend on theirs."""
    features = sorted((feature for schema in schemas for feature in schema.features), key=str)
    union = FeatureSchema(features=tuple({feature.name: feature for feature in features}.values()))
    return np.asarray(lists_of(rows, union, qid).features, dtype=np.float32)


def keep_usable(rows: pl.DataFrame, prefix: str, places: int) -> tuple[pl.DataFrame, pl.DataFrame, np.ndarray]:
    """Return the rows of lists that are used, their columns of :data:`COLUMNS`, and why each other list is not."""
    facts = rows.select(
        (pl.col(prefix + name) if prefix + name in rows.columns else pl.lit(None, pl.String)).alias(name)
        for name in COLUMNS
    ).with_columns(pl.col(name).cast(pl.Float64).cast(kind) for name, kind in NUMBERS.items())
    facts = facts.with_columns(pl.col("swapped").fill_null(value=False))
    swaps = (pl.col("swapped") & (pl.col("position") <= places)).sum()
    conditions = {
        "reordered or cut off by rules": pl.col("rules") != "exclude",  # rules would have changed a bundle's list, too
        "interleaved": pl.col("team").is_not_null(),  # no single ranker ranked it
        # the logged ranker's value is not known: one of two candidates has a usable click
        f"swapped with a candidate below place {places}, the last with a propensity": swaps == 1,
    }
    reason = pl.coalesce(pl.when(each.any().over("query_id")).then(pl.lit(text)) for text, each in conditions.items())
    reasons = facts.select("query_id", reason.alias("reason"))
    usable = reasons["reason"].is_null()
    left_out = reasons.filter(~usable).unique("query_id")["reason"].to_numpy()
    return rows.filter(usable), facts.filter(usable), left_out


def fit_models(
    facts: pl.DataFrame, features: Float[np.ndarray, "R D"], propensities: Float[np.ndarray, " K"]
) -> Models:
    """Fit models of the attraction to whole lists that are used, each on the units of the other folds."""
    places = facts["position"].fill_null(0).to_numpy().astype(np.int64) - 1
    known = (places >= 0) & (places < len(propensities))
    facts, places, features = facts.filter(known), places[known], features[known]
    clicks, lists = (facts["label"] > 0).to_numpy(), facts["query_id"].rle_id().to_numpy()
    folds, looks = facts.select(UNIT % FOLDS).to_series().to_numpy(), {"place": propensities[places]}
    if int(np.bincount(lists, clicks).max()) <= 1:
        stops = np.full(int(lists.max()) + 1, len(propensities))
        stops[lists[clicks]] = places[clicks]
        looks["cascade"] = (places <= stops[lists]).astype(np.float64)  # nobody looks below the click
    return {
        name: tuple(
            fit_attraction(features[part], clicks[part], looked[part])
            for part in ((folds != fold) & (looked > 0.0) for fold in range(FOLDS))
        )
        for name, looked in looks.items()
    }


def value_rows(
    facts: pl.DataFrame, features: Float[np.ndarray, "R D"], orders: Int[np.ndarray, "R M"], work: PartWork
) -> dict[str, np.ndarray]:
    """Value lists that are used in the logged ranker's order and in M others, given by places from 0.

    Returns:
        What :func:`value_lists` returns of the logged ranker and the others, perhaps with ``cascade`` and its bounds,
        and ``changed``, whether a place that counts differs from the logged ranker's. Of each list hashes of ``unit``
        and ``stratum``, in which swaps are equally likely; the ``bundle`` that served it, with weights of goals;
        ``swap``, the upper place, from 0, of swapped neighbours, -1, or :data:`UNKNOWN`; by place ``clicked``, 0, 1,
        or -1 where no candidate stands, and ``attraction``.

    Raises:
        DataError: if two candidates stand at one place.
    """
    of_rows, count = facts["query_id"].rle_id().to_numpy().astype(np.int64), len(work.propensities)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of_rows))])
    position = (facts["position"].cast(pl.Int64) - 1).fill_null(_FAR).to_numpy()
    places = np.minimum(position, count)
    if facts.drop_nulls("position").select("query_id", "position").is_duplicated().any():
        raise DataError(work.data, "has two candidates at one place of a list: join the served log again")
    clicks = (facts["label"].fill_null(0) > 0).to_numpy() & (places < count)
    unit = facts.select(UNIT).to_series().to_numpy()
    attraction = {name: np.empty(len(unit)) for name in work.models}
    for name, fold in product(work.models, np.unique(unit % FOLDS)):
        own, (trees, base) = unit % FOLDS == fold, work.models[name][fold]
        attraction[name][own] = expit(base + np.asarray(trees.predict(features[own])))
    lists = LoggedLists(offsets, places, clicks, attraction["place"])
    logged, swap = position.copy(), np.full(len(offsets) - 1, -1)
    pairs = np.flatnonzero(facts["swapped"].to_numpy() & (places < count)).reshape(-1, 2)  # two rows of a list each
    logged[pairs] = logged[pairs[:, ::-1]]
    swap[of_rows[pairs[:, 0]]] = position[pairs].min(axis=1)
    begins, firsts = offsets[:-1], facts[offsets[:-1]]
    swap[firsts["rules"].is_not_null().to_numpy()] = UNKNOWN
    lengths = np.add.reduceat(position < _FAR, begins, dtype=np.int64)
    new = np.column_stack([logged, orders])
    new = np.where(new < lengths[of_rows, None], new, count)  # nobody looks below the last candidate that is shown
    discounts = 1.0 / np.log2(np.arange(count) + 2.0)
    weights, gains = (work.propensities, np.ones(count)) if work.metric == "clicks" else (discounts, discounts)
    values = value_lists(lists, new, propensities=work.propensities, weights=weights, clip=work.clip)
    if (predicted := attraction.get("cascade")) is not None and work.metric == "gain":
        for name, rest in (("cascade", predicted), ("cascade_low", 0.0), ("cascade_high", 1.0 - 1e-6)):
            own = lists._replace(attraction=np.where(places < count, predicted, rest))
            values[name] = np.column_stack([cascade_lists(own, order, weights=gains) for order in new.T])
    occupied = lists.by_place(places, 1.0, count)
    return values | {
        "changed": np.logical_or.reduceat(np.minimum(new, count) != np.minimum(logged, count)[:, None], begins),
        "unit": unit[begins],
        "stratum": firsts["experiment"].cast(pl.String).hash(seed=0).to_numpy() + lengths.astype(np.uint64),
        "bundle": firsts.select(pl.concat_str("bundle", "weights", separator=" ", ignore_nulls=True)).to_numpy()[:, 0],
        "swap": swap,
        "clicked": (lists.by_place(places, clicks, count) + occupied - 1.0).astype(np.int8),
        "attraction": lists.by_place(places, lists.attraction, count),
    }
