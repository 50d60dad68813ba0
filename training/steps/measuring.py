"""The sealed bundle on the test split, until nothing that ``auto`` answers with is shown to harm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.training.choice.default_strategy import without_harm
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.evaluate import Evaluation, evaluate
from listwright.training.evaluation.routing import RoutingEvaluation, evaluate_routing
from listwright.training.progress import Progress
from listwright.training.recipe.config import Recipe
from listwright.training.steps.bundling import seal_again

_SCORING = "Scoring the test split"


@dataclass(frozen=True, slots=True)
class MeasuredBundle:
    """A sealed bundle and its figures.

    Args:
        served: the bundle, as the service would load it.
        evaluation: every ranker by name.
        routing: what choosing among specialists is worth; None without a router.
    """

    served: Bundle
    evaluation: Evaluation
    routing: RoutingEvaluation | None


def measure(
    folder: Path,
    recipe: Recipe,
    splits: Splits,
    *,
    metric: str,
    as_fitted: bool,
    progress: Progress,
    plain: Float[np.ndarray, " R"] | None = None,
) -> MeasuredBundle:
    """Measure the bundle of a folder, and take away from its default what harms; then measure again.

    Args:
        folder: of the sealed bundle; sealed again where something is taken away.
        recipe, splits: of the run.
        metric: whose interval counts.
        as_fitted: take nothing away.
        progress: told how far it is.
        plain: as for :func:`listwright.training.evaluation.evaluate.evaluate`.

    Raises:
        BundleError, ScoringError: if the bundle does not do what it should.
    """
    title = _SCORING
    while True:
        served = bundle.load(folder)
        evaluation = _evaluated(served, splits, plain, progress, title)
        harmless = None if as_fitted else without_harm(served.manifest, evaluation, metric)
        if harmless is None:
            break
        seal_again(folder, harmless, splits.valid)
        title = f"{_SCORING}, with another default"
    router = recipe.router
    routing = None if router is None else evaluate_routing(folder, splits.test, ndcg_at=router.ndcg_at)
    return MeasuredBundle(served, evaluation, routing)


def _evaluated(
    served: Bundle, splits: Splits, plain: Float[np.ndarray, " R"] | None, progress: Progress, title: str
) -> Evaluation:
    task = progress.begin(title, len(splits.test))
    return evaluate(served.reranker, splits.test, plain=plain, task=task)
