"""What ``auto`` means in a bundle: nothing that the test split shows to be worse than the first stage."""

from __future__ import annotations

from listwright.ranking.manifest import Manifest
from listwright.training.evaluation.evaluate import ROUTED, Evaluation
from listwright.training.evaluation.verdicts import verdict_of


def without_harm(manifest: Manifest, evaluation: Evaluation, metric: str) -> Manifest | None:
    """The manifest less one thing that harms: the second stage as the default, or else the router's say.

    Nothing is ever chosen by this: what is taken away stays in the bundle, for requests that name it. The second stage
    comes first, so that a router abstains to the first stage; what ``auto`` then answers is to be measured anew. If it
    harms still, the router always abstains.

    Args:
        manifest: of the bundle that was measured.
        evaluation: of that bundle, on the test split.
        metric: whose interval counts, e.g. ``ndcg@10``.

    Returns:
        None if nothing is shown to harm, or all that does is taken away.
    """
    second, router = manifest.second_stage, manifest.router
    if second is None:
        return None
    if manifest.strategy != "first_stage" and (harm := _harm(evaluation, metric, second.kind)):
        return _less(manifest, f"{second.kind} {harm}", strategy="first_stage")
    if router is not None and router.margin is not None and (harm := _harm(evaluation, metric, ROUTED)):
        return _less(manifest, f"routing {harm}", router=router.model_copy(update={"margin": None}))
    return None


def _harm(evaluation: Evaluation, metric: str, ranker: str) -> str | None:
    """What is wrong with a ranker; None unless it is shown to be worse than the first stage."""
    mean, low, high = evaluation.gain(metric, ranker, "first_stage")
    if verdict_of(low, high) != "harm":
        return None
    name = metric.replace("ndcg", "NDCG")
    return (
        f"is worse than the first stage on {evaluation.queries} test queries: {name} {mean:+.4f} "
        f"[{low:+.4f}, {high:+.4f}], the 95 % interval lies below 0"
    )


def _less(manifest: Manifest, reason: str, **changes: object) -> Manifest:
    reasons = [reason] if manifest.default_reason is None else [manifest.default_reason, reason]
    return manifest.model_copy(update={**changes, "default_reason": "; ".join(reasons)})
