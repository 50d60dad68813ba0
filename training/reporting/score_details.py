"""What is measured of the scores themselves on the test lists, for ``report.json``."""

from __future__ import annotations

from ranking.reranker import Reranker
from training.config import LambdaMart, Recipe
from training.data.dataset import Splits
from training.reporting.monotone import violations


def score_details(reranker: Reranker, recipe: Recipe, splits: Splits) -> dict[str, object]:
    """What the recipe asks of the scores, and whether they keep it; joins :func:`training.reporting.details.details`.

    Args:
        reranker: of the sealed bundle.
        recipe, splits: of the run.
    """
    first = recipe.first_stage
    found = violations(reranker, splits, first.monotone) if isinstance(first, LambdaMart) else []
    return {"monotone": found} if found else {}
