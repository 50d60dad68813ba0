"""The first stage of a run: tuned here, given as a model, or read from the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking.plain_file import read_object
from listwright.ranking.relative import RelativeColumn, RelativeKind
from listwright.ranking.stages import ColumnStage, FirstStageEntry, LightGbmStage, OnnxStage
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage import bring_your_own, lambdamart, relative
from listwright.training.first_stage.boosting import Grower, LocalGrower
from listwright.training.recipe.config import FirstStage, GivenColumn, GivenModel, LambdaMart, LambdaMartSettings


@dataclass(frozen=True, slots=True)
class FittedFirstStage:
    """A first stage and its scores.

    Args:
        entry: Entry of the manifest.
        model: LightGBM text, or an ONNX graph; None where the scores come from a column.
        train_scores: ``(R,)`` scores of the training rows, out-of-fold if Listwright fitted the model.
        valid_scores: ``(R,)`` scores of the validation rows.
        facts: Facts for the report.
        relative: List-relative columns that the model sees behind the features.
        notes: Notes for the person who runs the fit.
    """

    entry: FirstStageEntry
    model: str | bytes | None
    train_scores: Float[np.ndarray, " R"]
    valid_scores: Float[np.ndarray, " S"]
    facts: Mapping[str, object]
    relative: tuple[RelativeColumn, ...] = field(default=())
    notes: tuple[str, ...] = ()

    @property
    def score_feature(self) -> str | None:
        """The feature that the score is already; None where it is none of them."""
        return self.entry.feature if isinstance(self.entry, ColumnStage) else None

    def scores_of(self, data: Dataset) -> Float[np.ndarray, " R"]:
        """Return ``(R,)`` scores of all rows by the model itself, by the serving code.

        Raises:
            ValueError: if the first stage is no model.
        """
        if self.model is None:
            raise ValueError("a first stage that is a column has no model")
        if isinstance(self.model, bytes):
            return bring_your_own.graph_scores(self.model, data, Path(str(self.facts["file"])))
        return lambdamart.scores_of(self.model, relative.widened_part(data, self.relative))


NamedGoesOn = Callable[[str, int, float], bool]
"""Like :data:`listwright.training.search.GoesOn`, with the name of the work first."""

TITLES = {"plain": "LightGBM", "relative": "LightGBM + relative"}
"""Titles of the two first stages that a run may fit."""


def fit(
    spec: FirstStage,
    splits: Splits,
    *,
    seed: int,
    state: Path,
    progress: Progress = SILENT,
    grower: Grower | None = None,
    goes_on: NamedGoesOn | None = None,
) -> FittedFirstStage:
    """Fit the first stage, or take over a given one; LambdaMART uses ``spec.relative``, which is not ``auto``.

    Args:
        spec: First stage of the recipe.
        splits: Splits under the schema that the bundle will have.
        seed: Seed of everything random.
        state: Folder for checkpoints; finished work in it is not repeated.
        progress: Receiver of the progress of tuning and of the out-of-fold scores.
        grower: Grower of LambdaMART's trees; None for this process.
        goes_on: Function that is called before each setting of LightGBM but the first, with the name of the work; None
            tries all.
    """
    more = _Fit(seed, state, progress, grower or LocalGrower(), goes_on)
    match spec:
        case LambdaMart():
            return _lambdamart(spec, splits, more)
        case GivenModel(path=path, engine=engine):
            model = bring_your_own.read_model(Path(path), splits.train.schema)
            facts = {"kind": "model", "file": Path(path).name, "train_scores": "of the given model"}
            if isinstance(model, bytes):  # a graph that cannot score the test split fails here, too
                parts = (splits.train, splits.valid, splits.test)
                train, valid, _ = (bring_your_own.graph_scores(model, part, Path(path)) for part in parts)
                knows = bring_your_own.knows_missing(model, splits.train.schema)
                notes = () if knows else (bring_your_own.NO_MISSING,)
                return FittedFirstStage(OnnxStage(), model, train, valid, facts, notes=notes)
            scores = [lambdamart.scores_of(model, part) for part in (splits.train, splits.valid)]
            return FittedFirstStage(LightGbmStage(engine=engine), model, scores[0], scores[1], facts)
        case GivenColumn(column=column):
            facts = {"kind": "column", "column": column, "train_scores": "of the data"}
            scores = [bring_your_own.column_scores(column, part) for part in (splits.train, splits.valid, splits.test)]
            return FittedFirstStage(ColumnStage(feature=column), None, scores[0], scores[1], facts)


def kinds_of(spec: LambdaMart) -> tuple[RelativeKind, ...]:
    """Return the kinds of list-relative columns that a recipe names; none under ``auto``, which is resolved earlier."""
    return () if isinstance(spec.relative, str) else spec.relative


@dataclass(frozen=True, slots=True)
class _Fit:
    """Arguments of :func:`fit` that all fits of a run share."""

    seed: int
    state: Path
    progress: Progress
    grower: Grower
    goes_on: NamedGoesOn | None


def _lambdamart(spec: LambdaMart, splits: Splits, shared: _Fit) -> FittedFirstStage:
    """Tune and score out-of-fold, or read both results of an interrupted run."""
    tuned, train_scores, columns = _tuned(spec, splits, shared)
    facts: dict[str, object] = {
        "kind": "lambdamart",
        **_facts(tuned),
        "loss": "{} ({})".format(*lambdamart.loss_of(splits.train, spec.settings)),
        "train_scores": f"out-of-fold, {spec.folds} folds" if spec.folds else "of the model itself",
    }
    if columns:
        facts["relative"] = [column.name for column in columns]
    wide = relative.widened(splits, columns)
    entry = LightGbmStage(engine=spec.engine, relative=bool(columns))
    valid_scores = lambdamart.scores_of(tuned.model, wide.valid)
    columns = relative.with_quantiles(columns, wide.train)
    return FittedFirstStage(entry, tuned.model, train_scores, valid_scores, facts, columns)


def _tuned(
    spec: LambdaMart, splits: Splits, shared: _Fit
) -> tuple[lambdamart.TunedLambdaMart, Float[np.ndarray, " R"], tuple[RelativeColumn, ...]]:
    """Return the model, the out-of-fold scores of the training rows, and the list-relative columns that it uses."""
    kinds = kinds_of(spec)
    which = "relative" if kinds else "plain"
    facts_file, model_file, scores_file = (
        shared.state / f"{which}_{name}" for name in ("tuned.json", "tuned.txt", "out_of_fold.npy")
    )
    if facts_file.exists():
        facts = read_object(facts_file)
        columns = tuple(RelativeColumn.model_validate(column) for column in facts.pop("columns"))
        tuned = lambdamart.TunedLambdaMart(model=model_file.read_text(encoding="utf-8"), **facts)
        return tuned, np.load(scores_file), columns
    columns = relative.candidates(splits.train.schema, kinds)
    wide, seed, grower = relative.widened(splits, columns), shared.seed, shared.grower
    name = name_of(kinds)
    tuning = shared.progress.begin(f"Tuning {TITLES[which]}, NDCG@{spec.ndcg_at}", spec.trials, name=name)
    tuned = lambdamart.tune(
        wide.train,
        wide.valid,
        spec,
        seed=seed,
        journal=shared.state / trials_file(kinds, spec.select_on),
        task=tuning,
        grower=grower,
        goes_on=None if shared.goes_on is None else partial(shared.goes_on, f"settings of {TITLES[which]}"),
    )
    tuning.end(tuned.trials)
    useful = relative.select_used(tuned.model, columns)
    if len(useful) < len(columns):  # fitted again, so that serving computes a few columns and not all of them
        columns, wide = useful, relative.widened(splits, useful)
        once = {"settings": LambdaMartSettings.model_validate(tuned.params), "trials": 1}
        again = lambdamart.tune(wide.train, wide.valid, spec.model_copy(update=once), seed=seed, grower=grower)
        tuned = replace(again, trials=tuned.trials)
    if spec.folds:
        folding = shared.progress.begin(f"Out-of-fold scores, {TITLES[which]}", spec.folds, name=name)
        scores = lambdamart.out_of_fold_scores(
            wide.train,
            tuned,
            folds=spec.folds,
            seed=seed,
            ndcg_at=spec.ndcg_at,
            monotone=spec.monotone,
            task=folding,
            grower=grower,
        )
    else:
        scores = lambdamart.scores_of(tuned.model, wide.train)
    model_file.write_text(tuned.model, encoding="utf-8")
    np.save(scores_file, scores)
    facts = {**_facts(tuned), "columns": [column.model_dump() for column in columns]}
    facts_file.write_text(json.dumps(facts), encoding="utf-8")  # last: it marks the two others as finished
    return tuned, scores, columns


def trials_file(kinds: tuple[RelativeKind, ...], held_out: str) -> str:
    """Return the name of the journal of trials, with list-relative columns or without, by the held-out queries."""
    return f"{'relative_' + '_'.join(kinds) if kinds else 'plain'}_trials_{held_out}.journal"


def name_of(kinds: tuple[RelativeKind, ...]) -> str:
    """Return the name of a first stage's curves, with list-relative columns or without."""
    return "lightgbm_relative" if kinds else "lightgbm"


def _facts(tuned: lambdamart.TunedLambdaMart) -> dict[str, object]:
    return {name: getattr(tuned, name) for name in ("params", "trees", "valid_ndcg", "trials", "members")}
