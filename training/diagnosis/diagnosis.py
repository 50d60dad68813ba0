"""What a fit is likely to find, in a minute: the comparison of a fit with a small budget, on a part of the queries."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from listwright.ranking.manifest import Comparison
from listwright.training.choice import compared_queries, first_stage_ndcg, ranks_better
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.load import announce
from listwright.training.diagnosis.between_lists import Spread, spreads
from listwright.training.evaluation.intervals import FEWEST
from listwright.training.progress import Progress
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, FirstStage, LambdaMart, Recipe
from listwright.training.recipe.model import Qilcm2Spec, Rivals
from listwright.training.run_context import RunContext
from listwright.training.steps import fitting
from listwright.training.steps.bundle_schema import load

MOST_ROWS, MOST_VALUES = 25_000, 1_200_000
"""Training rows, and values of numeric features in them, that rankers are fitted on in a minute; validation rows: a
third.
"""

MOST_COLUMNS = 40
"""Features that a tree picks from at random; with list-relative columns, the same share of them."""

FOLDS = 3
"""Parts of the training queries; each is ranked by models that were fitted without it."""

ROWS_SEEN = 160_000
"""Candidates that the quick second stage is shown in each fold in a minute; a small table gives many epochs."""

EPOCHS = (4, 30)
"""Fewest and most epochs of the quick second stage."""

NDCG_AT = 10
"""Cutoff of every NDCG here."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A ranker beside a simpler one on the same queries.

    Args:
        comparison: the paired difference, with its interval.
        before, after: mean NDCG of the simpler ranker, and of the other.
    """

    comparison: Comparison
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found.

    Args:
        data: one line: which data, split how.
        queries, rows: queries, and their candidates, that rankers were compared on.
        of_queries, of_rows: all training queries and candidates.
        features: the numeric features, over all training queries.
        categorical: names of the features that are left out of ``features``.
        relative: LightGBM with list-relative columns beside LightGBM without; None where a first stage is given,
            the recipe rules them out, or its trees use none.
        second: a quick second stage beside the first stage that it stands on. That has list-relative columns if its
            mean is better by more than 0.002 with them.
    """

    data: str
    queries: int
    rows: int
    of_queries: int
    of_rows: int
    features: tuple[Spread, ...]
    categorical: tuple[str, ...]
    relative: Gain | None
    second: Gain


def diagnose(
    recipe: Recipe, sources: Sequence[str], *, device: str, progress: Progress, minutes: float = 1.0
) -> Diagnosis:
    """Measure the features and compare rankers, on training and validation queries; test queries are not looked at.

    Args:
        recipe: its data, first stage, fold and seed.
        sources: as for :func:`listwright.training.data.load.load`.
        device: torch device.
        progress: told how far it is.
        minutes: how long it may take about; 0 for all queries.

    Raises:
        ListwrightError: if the data cannot be read or compared on; with the place and the remedy.
    """
    progress.enter("data")
    splits = load(recipe, sources, progress=progress)
    announce(recipe, splits, progress)
    features = spreads(splits.train)
    part = sampled(splits, seed=recipe.seed, minutes=minutes) if minutes else splits
    if len(part.train) < len(splits.train):
        progress.say(
            f"Rankers are fitted on {len(part.train):,} of {len(splits.train):,} training queries, drawn at random"
        )
    relative, second = _compare(quick(recipe, part.train, minutes=minutes), part, device, progress)
    schema = splits.train.schema
    return Diagnosis(
        data=splits.how,
        queries=len(compared_queries(part)),
        rows=compared_queries(part).rows,
        of_queries=len(splits.train),
        of_rows=splits.train.rows,
        features=features,
        categorical=tuple(schema.names[place] for place in schema.categorical),
        relative=relative,
        second=second,
    )


def _compare(recipe: Recipe, splits: Splits, device: str, progress: Progress) -> tuple[Gain | None, Gain]:
    """List-relative columns beside none, and the second stage beside what is better of the two."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunContext(recipe, splits, Path(folder), progress, device)
        progress.enter("first stage")
        first, _, comparisons = fitting.fit_first_stage(run)
        progress.enter("second stage")
        chosen = fitting.choose(run, first, comparisons)
    *columns, network = chosen.comparisons
    values = first_stage_ndcg(first, splits, NDCG_AT)
    level = float(np.average(values, weights=compared_queries(splits).query_weights))
    second = Gain(network, level, level + network.mean)
    if not columns:
        return None, second
    (comparison,) = columns
    plain = level - comparison.mean if ranks_better(comparison) else level
    return Gain(comparison, plain, plain + comparison.mean), second


def quick(recipe: Recipe, train: Dataset, *, minutes: float = 1.0) -> Recipe:
    """The recipe with little to do: LightGBM without tuning, and a small QILCM2 as the only second stage.

    Args:
        recipe: a first stage that it brings along stays.
        train: that everything is fitted on.
        minutes: as of :func:`diagnose`.
    """
    few, many = EPOCHS
    epochs = int(np.clip(minutes * ROWS_SEEN // train.rows, few, many)) if minutes else many
    # it starts as the first stage and may stay there for some epochs before it gains: it is given all of them
    network = Qilcm2Spec(encoder_width=32, batch_size=20, max_epochs=epochs, patience=epochs, ndcg_at=NDCG_AT)
    changes: dict[str, object] = {
        "first_stage": _quick_first_stage(recipe.first_stage, len(train.schema)),
        "model": network,
        "choice": Choice(second_stages=(network.kind,), folds=FOLDS),
        "specialists": None,
        "router": None,
        "rivals": Rivals(),
    }
    return config.changed(recipe, changes)


def _quick_first_stage(spec: FirstStage, columns: int) -> FirstStage:
    if not isinstance(spec, LambdaMart):
        return spec
    own = spec.settings
    fast = {
        "learning_rate": 0.1,
        "num_leaves": min(own.num_leaves, 20),
        "feature_fraction": min(own.feature_fraction, MOST_COLUMNS / columns),
    }
    budget = {"trials": 1, "members": 1, "max_trees": 150, "patience": 15, "folds": FOLDS, "ndcg_at": NDCG_AT}
    relative = "none" if spec.relative == "none" else "auto"
    return spec.model_copy(update={"settings": own.model_copy(update=fast), "relative": relative, **budget})


def sampled(splits: Splits, *, seed: int, minutes: float = 1.0) -> Splits:
    """As many random training and validation queries as there is time for; all of them if it is enough for all."""
    numeric = len(splits.train.schema) - len(splits.train.schema.categorical)
    rows = int(minutes * min(MOST_ROWS, MOST_VALUES // max(numeric, 1)))
    rng = np.random.default_rng([seed, rows])
    train, valid = (
        part if part.rows <= most else part.select(_drawn(part, most, fewest, rng))
        for part, most, fewest in ((splits.train, rows, FEWEST), (splits.valid, rows // 3, 2))
    )
    return replace(splits, train=train, valid=valid)


def _drawn(data: Dataset, rows: int, fewest: int, rng: np.random.Generator) -> Int[np.ndarray, " M"]:
    """Queries with about so many rows, ``fewest`` at least, in the order of the data; one has an order to learn."""
    order = rng.permutation(len(data))
    mixed = np.array([np.ptp(data.labels[data.slice(n)]) > 0 for n in order])
    order = order[np.argsort(np.arange(len(order)) != np.argmax(mixed), kind="stable")]
    count = int(np.searchsorted(np.cumsum(data.lengths[order]), rows, side="right"))
    return np.sort(order[: max(count, fewest)])
