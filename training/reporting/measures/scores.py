"""What is measured of the scores themselves on the test lists, for ``report.json``."""

from __future__ import annotations

from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Splits
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.reporting.measures.reliability import reliability
from listwright.training.reporting.measures.violations import violations


def score_details(reranker: Reranker, recipe: Recipe, splits: Splits) -> dict[str, object]:
    """Whether scores keep what the recipe asks of them, and whether they are probabilities.

    It joins :func:`listwright.training.reporting.measures.details.details`.

    Args:
        reranker: of the sealed bundle.
        recipe, splits: of the run.
    """
    first = recipe.first_stage
    found = violations(reranker, splits, first.monotone) if isinstance(first, LambdaMart) else []
    return {**({"monotone": found} if found else {}), "calibration": reliability(reranker, splits)}
