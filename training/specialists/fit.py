"""The specialists of a run: the mixture, and the router that chooses."""

from __future__ import annotations

from dataclasses import dataclass

from listwright.ranking.errors import RecipeError
from listwright.ranking.stages import SrmStage
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.recipe.model import NetworkSpec
from listwright.training.router.anomaly import FittedAnomaly
from listwright.training.router.fit import FittedRouter, fit_router
from listwright.training.specialists.cross_fitting import cross_fit
from listwright.training.specialists.srm import FittedSrm, fit_srm
from listwright.training.workspace import RunContext


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
    run: RunContext, first: FittedFirstStage, anomaly: FittedAnomaly | None, generalist: NetworkSpec | None
) -> FittedSpecialists | None:
    """Fit what the recipe asks for; None if it asks for no specialists.

    Args:
        run: so far.
        first: of the run.
        anomaly: of the run; a router needs one.
        generalist: the recipe's model as it was fitted; None only where the recipe has no router either.

    Raises:
        RecipeError: if there is nothing numeric for a router to look at.
    """
    spec, router = run.recipe.specialists, None
    if spec is None:
        return None
    task = run.progress.begin("EM", spec.max_iterations)
    srm = fit_srm(
        spec,
        run.splits.train,
        first.train_scores,
        seed=run.recipe.seed,
        checkpoint=run.state / "srm.pt",
        task=task,
    )
    task.end(len(srm.steps), f"{spec.specialists} specialists, log P {srm.steps[-1].objective:.1f}")
    stage = SrmStage(cutoff=spec.cutoff, first_stage_score=spec.first_stage_score, specialists=srm.describe())
    if run.recipe.router is not None:
        assert generalist is not None
        if anomaly is None:
            raise RecipeError("a [router] needs numeric features to look at, and the data have none: leave it out")
        lists = cross_fit(run, generalist, srm, first, anomaly.graph)
        router = fit_router(run.recipe.router, lists, seed=run.recipe.seed)
    return FittedSpecialists(srm, stage, router)
