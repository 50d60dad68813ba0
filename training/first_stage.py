"""The first stage of a run: tuned here, brought along as a model, or read from the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ranking.manifest import ColumnStage, FirstStageEntry, LightGbmStage
from training import bring_your_own, lambdamart
from training.config import FirstStage, GivenColumn, GivenModel, LambdaMart
from training.data.dataset import Splits


@dataclass(frozen=True, slots=True)
class FittedFirstStage:
    """A first stage and its scores.

    Args:
        entry: how the manifest names it.
        model: LightGBM text; None where the scores come from a column.
        train_scores: ``(R,)`` scores of the training rows, out-of-fold if Listwright fitted the model.
        valid_scores: ``(R,)`` scores of the validation rows.
        facts: what the report says about it.
    """

    entry: FirstStageEntry
    model: str | None
    train_scores: Float[np.ndarray, " R"]
    valid_scores: Float[np.ndarray, " S"]
    facts: dict[str, object]

    @property
    def score_feature(self) -> str | None:
        """The feature that the score is already; None where it is none of them."""
        return self.entry.feature if isinstance(self.entry, ColumnStage) else None


def fit(
    spec: FirstStage,
    splits: Splits,
    *,
    seed: int,
    state: Path,
    on_trial: Callable[[int, float], None] = lambda _done, _best: None,
    on_fold: Callable[[int], None] = lambda _done: None,
) -> FittedFirstStage:
    """Fit, or take over, the first stage.

    Args:
        spec: of the recipe.
        splits: under the schema that the bundle will have.
        seed: fixes everything random.
        state: folder for checkpoints; what is finished there is not done again.
        on_trial, on_fold: progress of tuning and of the out-of-fold scores.
    """
    match spec:
        case LambdaMart():
            tuned, train_scores = _lambdamart(spec, splits, seed=seed, state=state, on_trial=on_trial, on_fold=on_fold)
            facts = {"kind": "lambdamart", **_facts(tuned), "train_scores": f"out-of-fold, {spec.folds} folds"}
            valid_scores = lambdamart.scores_of(tuned.model, splits.valid)
            return FittedFirstStage(LightGbmStage(engine=spec.engine), tuned.model, train_scores, valid_scores, facts)
        case GivenModel(path=path, engine=engine):
            model = bring_your_own.read_model(Path(path))
            facts = {"kind": "model", "file": Path(path).name, "train_scores": "of the given model"}
            scores = [lambdamart.scores_of(model, part) for part in (splits.train, splits.valid)]
            return FittedFirstStage(LightGbmStage(engine=engine), model, scores[0], scores[1], facts)
        case GivenColumn(column=column):
            facts = {"kind": "column", "column": column, "train_scores": "of the data"}
            scores = [bring_your_own.column_scores(column, part) for part in (splits.train, splits.valid, splits.test)]
            return FittedFirstStage(ColumnStage(feature=column), None, scores[0], scores[1], facts)


def _lambdamart(
    spec: LambdaMart,
    splits: Splits,
    *,
    seed: int,
    state: Path,
    on_trial: Callable[[int, float], None],
    on_fold: Callable[[int], None],
) -> tuple[lambdamart.TunedLambdaMart, Float[np.ndarray, " R"]]:
    """Tune and score out-of-fold, or read both back where an interrupted run had finished them."""
    facts_file, model_file, scores_file = (state / name for name in ("tuned.json", "tuned.txt", "out_of_fold.npy"))
    if facts_file.exists():
        facts = json.loads(facts_file.read_text(encoding="utf-8"))
        tuned = lambdamart.TunedLambdaMart(model=model_file.read_text(encoding="utf-8"), **facts)
        return tuned, np.load(scores_file)
    tuned = lambdamart.tune(
        splits.train, splits.valid, spec, seed=seed, journal=state / "trials.journal", on_trial=on_trial
    )
    scores = lambdamart.out_of_fold_scores(
        splits.train, tuned, folds=spec.folds, seed=seed, monotone=spec.monotone, on_fold=on_fold
    )
    model_file.write_text(tuned.model, encoding="utf-8")
    np.save(scores_file, scores)
    facts_file.write_text(json.dumps(_facts(tuned)), encoding="utf-8")  # last: it marks the two others as finished
    return tuned, scores


def _facts(tuned: lambdamart.TunedLambdaMart) -> dict[str, object]:
    return {"params": tuned.params, "trees": tuned.trees, "valid_ndcg": tuned.valid_ndcg, "trials": tuned.trials}
