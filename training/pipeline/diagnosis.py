"""What a fit is likely to show, in a minute: whether a second stage pays on these data.

The gains are those of the comparison of a fit with a small budget, on a part of the queries. Beside them stand the
share of each number's variance that lies between lists, the intraclass correlation of its values with lists as classes;
and the share of the lists in whose order the counts of a category can matter.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import UNKNOWN_CODE
from listwright.ranking.manifest import Comparison
from listwright.training.console.progress import Progress
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.load import announce
from listwright.training.data.shards.rows import columns
from listwright.training.evaluation.intervals import FEWEST, choice_verdict_of
from listwright.training.pipeline import steps
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.choice import WORTHWHILE, comparison_weights, first_stage_ndcg, pays, ranks_better
from listwright.training.pipeline.steps import load
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, FirstStage, LambdaMart, Recipe
from listwright.training.recipe.model import Qilcm2Spec, Rivals

MOST_ROWS, MOST_VALUES = 25_000, 1_200_000
"""Training rows, and values of numeric features in them, that rankers are fitted on in a minute; validation rows: a
third.
"""

MOST_COLUMNS = 40
"""Features that a tree picks from at random; with list-relative columns, the same share of them."""

FOLDS = 3
"""Parts of the training queries; each is ranked by models that were fitted without it."""

ROWS_SEEN = 160_000
"""Candidates that the quick second stage is fitted on in each fold in a minute; a small table gives many epochs."""

EPOCHS = (4, 30)
"""Fewest and most epochs of the quick second stage."""

NDCG_AT = 10
"""Cutoff of every NDCG here."""

PRINTED_FEATURES = 10
"""Features of each type that are printed; the JSON numbers have all."""

MOSTLY, PARTLY = 0.5, 0.1
"""Intraclass correlation from which on most, or a part, of a feature is the level of its list; and, for the second,
share of the lists from which on counts of a category are likely to matter.
"""

_WIDTH, _NAME, _BAR = 80, 28, 10

Key = Literal["second_stage", "relative", "unsure", "plain", "given"]


@dataclass(frozen=True, slots=True)
class Gain:
    """A ranker compared with a simpler one on the same queries.

    Args:
        comparison: Paired difference, with its interval.
        before, after: Mean NDCG of the simpler ranker, and of the other.
        in_time: Whether the clock ended no part of the comparison.
    """

    comparison: Comparison
    before: float
    after: float
    in_time: bool = True


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Args:
        data: Data and their split, in one line.
        queries, rows: Numbers of queries and of candidates that rankers were compared on.
        of_queries, of_rows: Numbers of all training queries and candidates.
        features: Numeric features, over all training queries.
        categories: Categorical features, over all training queries.
        relative: LightGBM with list-relative columns beside LightGBM without; None where a first stage is given,
            the recipe rules them out, or its trees use none.
        second: Quick second stage beside the first stage that it stands on. That has list-relative columns if its mean
            is better with them.
    """

    data: str
    queries: int
    rows: int
    of_queries: int
    of_rows: int
    features: tuple[Spread, ...]
    categories: tuple[Composition, ...]
    relative: Gain | None
    second: Gain


def diagnose(
    recipe: Recipe, sources: Sequence[str], *, device: str, progress: Progress, minutes: float = 1.0
) -> Diagnosis:
    """Measure the features and compare rankers, on training and validation queries; test queries are not used.

    Args:
        recipe: Recipe with the data, first stage, fold and seed.
        sources: Sources of the data, as for :func:`listwright.training.data.load.load`.
        device: Name of the torch device.
        progress: Receiver of the progress.
        minutes: Bound on the time, and on the queries that are used; 0 for none.

    Raises:
        ListwrightError: if the data cannot be read or compared on; with the place and the remedy.
    """
    budget = Budget(minutes)
    progress.enter("data")
    splits = load(recipe, sources, progress=progress)
    announce(recipe, splits, progress)
    features = spreads(splits.train)
    part = sampled(splits, seed=recipe.seed, minutes=minutes) if minutes else splits
    if len(part.train) < len(splits.train):
        progress.say(
            f"Rankers are fitted on {len(part.train):,} of {len(splits.train):,} training queries, drawn at random"
        )
    quick_recipe = quick(recipe, part.train, minutes=minutes)
    relative, second = _compare(quick_recipe, part, device, progress, budget)
    return Diagnosis(
        data=splits.how,
        queries=len(part.valid) + len(part.train),
        rows=part.valid.rows + part.train.rows,
        of_queries=len(splits.train),
        of_rows=splits.train.rows,
        features=features,
        categories=compositions(splits.train),
        relative=relative,
        second=second,
    )


def _compare(
    recipe: Recipe, splits: Splits, device: str, progress: Progress, budget: Budget
) -> tuple[Gain | None, Gain]:
    """Compare list-relative columns with none, and the second stage with the better of the two."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunContext(recipe, splits, Path(folder), progress, device, budget=budget)
        progress.enter("first stage")
        first, _, comparisons = steps.fit_first_stage(run)
        progress.enter("second stage")
        default = steps.choose(run, first, comparisons)
    if default.comparisons[-1:] == comparisons[-1:]:
        minutes = f"--minutes {budget.seconds / 60:g}"
        raise RecipeError(f"{minutes}: the time ended before a second stage was compared; give more, or 0 for no bound")
    *columns, network = default.comparisons
    values = first_stage_ndcg(first, splits, NDCG_AT)
    level = float(np.average(values, weights=comparison_weights(splits)))
    second = Gain(network, level, level + network.mean, in_time=not budget.undecided)
    if not columns:
        return None, second
    (comparison,) = columns
    plain = level - comparison.mean if ranks_better(comparison) else level
    return Gain(comparison, plain, plain + comparison.mean), second


def quick(recipe: Recipe, train: Dataset, *, minutes: float = 1.0) -> Recipe:
    """Return the recipe reduced to a minute: LightGBM without tuning, and a small QILCM2 as the only second stage.

    Args:
        recipe: Recipe, of which a given first stage stays.
        train: Queries that everything is fitted on.
        minutes: Bound on the time, as for :func:`diagnose`.
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
    """Sample as many training and validation queries as there is time for; all if the time is enough."""
    numeric = len(splits.train.schema) - len(splits.train.schema.categorical)
    rows = int(minutes * min(MOST_ROWS, MOST_VALUES // max(numeric, 1)))
    rng = np.random.default_rng([seed, rows])
    train, valid = (
        part if part.rows <= most else part.select(_draw_queries(part, most, fewest, rng))
        for part, most, fewest in ((splits.train, rows, FEWEST), (splits.valid, rows // 3, 2))
    )
    return replace(splits, train=train, valid=valid)


def _draw_queries(data: Dataset, rows: int, fewest: int, rng: np.random.Generator) -> Int[np.ndarray, " M"]:
    """Draw queries with about so many rows, at least ``fewest``, in the data's order; one has an order to learn."""
    order = rng.permutation(len(data))
    mixed = np.array([np.ptp(data.labels[data.slice(n)]) > 0 for n in order])
    order = order[np.argsort(np.arange(len(order)) != np.argmax(mixed), kind="stable")]
    count = int(np.searchsorted(np.cumsum(data.lengths[order]), rows, side="right"))
    return np.sort(order[: max(count, fewest)])


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of one numeric feature between and within lists.

    Args:
        feature: Name of the feature.
        between: Intraclass correlation, in [0, 1]; None where it is not defined.
        missing: Share of the rows without a value.
    """

    feature: str
    between: float | None
    missing: float


def spreads(data: Dataset) -> tuple[Spread, ...]:
    """Return the numeric features, the one with the largest share between lists first; those without a share last."""
    list_of = np.repeat(np.arange(len(data)), data.lengths)
    result = []
    for feature, values in zip(data.schema.features, columns(data.features), strict=True):
        if feature.kind == "numeric":
            share = intraclass_correlation(values, list_of)
            result.append(Spread(feature.name, share, float(np.isnan(values).mean())))
    return tuple(sorted(result, key=lambda spread: -1.0 if spread.between is None else spread.between, reverse=True))


@dataclass(frozen=True, slots=True)
class Composition:
    """Spread of the values of one categorical feature over lists.

    Args:
        feature: Name of the feature.
        uneven: Share of the lists of two candidates or more, in [0, 1], in which one value has more candidates than
            another. In all others the counts of known values are equal, and cannot change the order.
    """

    feature: str
    uneven: float


def compositions(data: Dataset) -> tuple[Composition, ...]:
    """Return the categorical features, the one that is uneven in most lists first; unknown values are left out."""
    list_of = np.repeat(np.arange(len(data)), data.lengths)
    result = []
    for feature, codes in zip(data.schema.features, columns(data.features), strict=True):
        if feature.kind == "categorical":
            known, values = codes > UNKNOWN_CODE, len(feature.categories) + 1
            places, counts = np.unique(list_of[known] * values + codes[known].astype(np.int64), return_counts=True)
            lists = places // values
            starts = np.flatnonzero(np.diff(lists, prepend=-1))
            uneven = 0
            if len(starts):
                uneven = int(np.sum(np.minimum.reduceat(counts, starts) < np.maximum.reduceat(counts, starts)))
            result.append(Composition(feature.name, uneven / max(int((data.lengths > 1).sum()), 1)))
    return tuple(sorted(result, key=lambda composition: composition.uneven, reverse=True))


def intraclass_correlation(values: Float[np.ndarray, " R"], list_of: Int[np.ndarray, " R"]) -> float | None:
    """Return ICC(1) of one-way analysis of variance with lists of unequal length (Donner, Int. Stat. Rev. 54, 1986).

    Definition, over N values in k lists of n_1 .. n_k values; missing values and lists without values are left out:
        MSB = sum_j n_j (mean_j - mean)^2 / (k - 1)
        MSW = sum_ij (x_ij - mean_j)^2 / (N - k)
        n_0 = (N - sum_j n_j^2 / N) / (k - 1)
        ICC = (MSB - MSW) / (MSB + (n_0 - 1) MSW), clipped to [0, 1]

    Args:
        values: ``(R,)`` NaN = missing; no value is infinite.
        list_of: ``(R,)`` number of each value's list.

    Returns:
        1 for values that are constant within lists only, about 0 for values that do not depend on the list; None if
        it is not defined: all values equal, fewer than two lists, or no list with two values.

    Convention: an estimate below 0, which chance gives where the list does not matter, counts as 0.
    """
    present = ~np.isnan(values)
    _, places, counts = np.unique(list_of[present], return_inverse=True, return_counts=True)
    x = values[present].astype(np.float64)
    lists, total = len(counts), len(x)
    if lists < 2 or total == lists or x.min() == x.max():
        return None
    x = x - x.mean()  # a large level would cost the squares their digits
    x /= np.abs(x).max()
    means = np.bincount(places, weights=x) / counts
    between = float(counts @ (means - x.mean()) ** 2) / (lists - 1)
    within = float(((x - means[places]) ** 2).sum()) / (total - lists)
    length = (total - float(counts @ counts) / total) / (lists - 1)
    return float(np.clip((between - within) / (between + (length - 1.0) * within), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation.

    Args:
        key: Finding: a second stage pays; list-relative columns alone pay; nothing is shown, or a gain is not ruled
            out; a plain LightGBM is enough; the first stage is enough where columns were not compared.
        text: Advice in one sentence, which a command follows.
        alone: Whether that command fits no second stage.
    """

    key: Key
    text: str
    alone: bool

    @property
    def lines(self) -> str:
        """The sentence for a terminal."""
        return textwrap.fill(self.text, _WIDTH)


def advice(diagnosis: Diagnosis) -> Advice:
    """Return the recommendation that the intervals allow."""
    relative, second = diagnosis.relative, diagnosis.second.comparison
    if second.n < FEWEST:
        text = f"{second.n} queries are too few to say, {FEWEST} are needed; a fit compares all it has:"
        return Advice("unsure", text, alone=False)
    with_columns = relative is not None and pays(relative.comparison)
    if pays(second):
        on = "list-relative columns" if with_columns else "the first stage"
        return Advice("second_stage", f"A second stage pays on top of {on}; fit and compare all of them:", alone=False)
    open_ones = [gain for gain in (None if with_columns else relative, diagnosis.second) if gain is not None]
    highest = max(gain.comparison.high for gain in open_ones)
    if highest >= WORTHWHILE or not diagnosis.second.in_time:
        claim = "List-relative columns pay" if with_columns else "No gain is shown"
        rest = "of a second stage " if with_columns or relative is None else ""
        doubt = f"a gain {rest}of up to {highest:.3f} is not ruled out"
        doubt = doubt if diagnosis.second.in_time else "the time ended before a second stage was compared in full"
        return Advice("unsure", f"{claim}, but {doubt}; a fit compares at full length:", alone=False)
    if with_columns:
        return Advice("relative", "List-relative columns pay; a quick second stage adds nothing to them:", alone=True)
    if relative is None:
        return Advice("given", "A quick second stage adds nothing to the first stage:", alone=True)
    return Advice("plain", "A plain LightGBM is enough; nothing quick gains beyond it:", alone=True)


def tables(diagnosis: Diagnosis) -> str:
    """Format each feature's share between lists and the rankers' gains; at most 80 columns wide."""
    return "\n".join([*_features(diagnosis), "", *_gains(diagnosis)])


def facts_of(diagnosis: Diagnosis) -> dict[str, object]:
    """Return everything that was measured as JSON values."""
    sizes = {name: getattr(diagnosis, name) for name in ("queries", "rows", "of_queries", "of_rows")}
    return {
        "data": diagnosis.data,
        **sizes,
        "features": [asdict(spread) for spread in diagnosis.features],
        "categories": [asdict(composition) for composition in diagnosis.categories],
        "relative_columns": None if diagnosis.relative is None else _gain(diagnosis.relative),
        "second_stage": _gain(diagnosis.second),
    }


def _gain(gain: Gain) -> dict[str, object]:
    comparison = gain.comparison
    return {
        "before": gain.before,
        "after": gain.after,
        **comparison.model_dump(include={"metric", "mean", "low", "high", "n"}),
        "verdict": choice_verdict_of(comparison.low, comparison.high, comparison.n, in_time=gain.in_time),
    }


def _features(diagnosis: Diagnosis) -> Iterator[str]:
    yield "Share of each feature's variance between lists (intraclass correlation),"
    yield f"{diagnosis.of_queries:,} training queries; list-relative columns take that share away"
    yield ""
    for spread in diagnosis.features[:PRINTED_FEATURES]:
        yield _bar(spread.feature, spread.between, _hint(spread.between))
    if rest := diagnosis.features[PRINTED_FEATURES:]:
        shares = [spread.between for spread in rest if spread.between is not None]
        yield f"  and {len(rest)} more" + (f", {min(shares):.2f} to {max(shares):.2f}" if shares else "")
    if not diagnosis.categories:
        return
    yield ""
    yield "Share of the lists in which one value of a category has more candidates than"
    yield "another; columns of categories count them"
    yield ""
    for category in diagnosis.categories[:PRINTED_FEATURES]:
        hint = "counts can change the order" if category.uneven >= PARTLY else "counts are nearly always equal"
        yield _bar(category.feature, category.uneven, hint)
    if left := diagnosis.categories[PRINTED_FEATURES:]:
        yield f"  and {len(left)} more, {left[-1].uneven:.2f} to {left[0].uneven:.2f}"


def _bar(name: str, share: float | None, hint: str) -> str:
    number, bar = ("   -", "") if share is None else (f"{share:.2f}", "█" * round(share * _BAR))
    return f"  {_cut(name, _NAME):{_NAME}}  {number}  {bar:{_BAR}}  {hint}"


def _hint(share: float | None) -> str:
    if share is None:
        return "not defined"
    if share > 1.0 - 1e-6:
        return "one value per list"
    if share >= MOSTLY:
        return "mostly the list's level"
    return "partly the list's level" if share >= PARTLY else "compares across lists"


def _gains(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"What quick rankers gain: NDCG@{NDCG_AT} on {diagnosis.queries:,} queries, each ranked by models"
    yield "that were not trained on it; paired, with 95 % intervals over queries"
    yield ""
    if diagnosis.relative is None:
        yield "  relative columns  not compared: the first stage is given, or uses none"
    else:
        yield _row("relative columns", diagnosis.relative)
    yield _row("a second stage", diagnosis.second)
    yield ""


def _row(name: str, gain: Gain) -> str:
    comparison = gain.comparison
    interval = f"{comparison.mean:+.3f} [{comparison.low:+.3f}, {comparison.high:+.3f}]"
    verdict = choice_verdict_of(comparison.low, comparison.high, comparison.n, in_time=gain.in_time)
    return f"  {name:16}  {gain.before:.3f} → {gain.after:.3f}  {interval}  {verdict}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
