"""The specialists of a run: the mixture, and the router that chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from listwright.ranking.errors import RecipeError
from listwright.ranking.stages import SrmStage
from listwright.training.data.dataset import Splits
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.progress import SILENT, Progress
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.model import NetworkSpec
from listwright.training.router.anomaly import FittedAnomaly
from listwright.training.router.fit import FittedRouter, fit_router
from listwright.training.specialists.cross_fitting import cross_fit
from listwright.training.specialists.srm import FittedSrm, fit_srm


@dataclass(frozen=True, slots=True)
class FittedSpecialists:
    """What a bundle holds beside the generalist.

    Args:
        srm: the mixture.
        stage: how the manifest names it.
        router: None if the recipe has none.
    """

    srm: FittedSrm
    stage: SrmStage
    router: FittedRouter | None

    @property
    def facts(self) -> dict[str, object]:
        """For the report."""
        return {
            "kind": "srm",
            "iterations": len(self.srm.steps),
            "converged": self.srm.converged,
            "log_likelihood": self.srm.steps[-1].objective,
            "entropy": self.srm.steps[-1].entropy,
            "starts": self.srm.starts,
            "informative_queries": len(self.srm.informative),
            "specialists": [specialist.model_dump(mode="json") for specialist in self.srm.describe()],
            "router": None if self.router is None else self.router.facts,
        }


def fit_specialists(
    recipe: Recipe,
    splits: Splits,
    first: FittedFirstStage,
    anomaly: FittedAnomaly | None,
    generalist: NetworkSpec | None,
    *,
    state: Path | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> FittedSpecialists | None:
    """Fit what the recipe asks for; None if it asks for no specialists.

    Args:
        recipe, splits, first, anomaly: the run so far.
        generalist: the recipe's model as it was fitted; None only where the recipe has no router either.
        state: folder for checkpoints.
        device: torch device for the generalist of the router's folds.
        progress: told how far EM and the router's folds are.

    Raises:
        RecipeError: if there is nothing numeric for a router to look at.
    """
    spec = recipe.specialists
    if spec is None:
        return None
    checkpoint = None if state is None else state / "srm.pt"
    task = progress.begin("EM", spec.max_iterations)
    srm = fit_srm(spec, splits.train, first.train_scores, seed=recipe.seed, checkpoint=checkpoint, task=task)
    task.end(len(srm.steps), f"{spec.specialists} specialists, log P {srm.steps[-1].objective:.1f}")
    stage = SrmStage(cutoff=spec.cutoff, first_stage_score=spec.first_stage_score, specialists=srm.describe())
    router = None
    if recipe.router is not None:
        assert generalist is not None
        if anomaly is None:
            raise RecipeError("a [router] needs numeric features to look at, and the data have none: leave it out")
        lists = cross_fit(
            recipe.router,
            generalist,
            srm,
            splits.train,
            splits.valid,
            first.train_scores,
            first.valid_scores,
            anomaly.graph,
            seed=recipe.seed,
            score_feature=first.score_feature,
            relative=first.relative,
            state=state,
            device=device,
            task=progress.begin("Router, by folds", recipe.router.folds),
        )
        router = fit_router(recipe.router, lists, seed=recipe.seed)
    return FittedSpecialists(srm, stage, router)
