"""How changed lists are ranked: by what ranked the answer."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import Deadline, LatencyEstimator
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.router import Choice, Query

Rerank = Callable[[CandidateList], Ranking]
"""The serving path, with all that was asked but the features."""


def as_answered(
    reranker: ExplainedReranker,
    ranking: Ranking,
    deadline: Deadline,
    *,
    strategy: str,
    specialist: int | None,
    routing: bool,
) -> Rerank:
    """What ranks a changed list so that its places compare with those of the answer.

    A degraded answer stands in first-stage order, so the first stage ranks its changed lists. Where there was no time
    to ask for a route, nobody is asked now. Where the hook chose, its choice stays, and it is not asked again. A router
    is asked for each changed list, as it would be in serving.

    Args:
        reranker: serves the bundle. Its pace is left alone: many runs one after another say nothing of single ones.
        ranking: the answer.
        deadline: of the explanation; only whether somebody waits is taken from it, as single runs are short.
        strategy, specialist, routing: that the answer was asked for.
    """
    own_pace = copy(reranker)
    own_pace.pace = LatencyEstimator()
    rerank = partial(own_pace.rerank, deadline=Deadline(abandoned=deadline.abandoned))
    if ranking.degraded:
        return partial(rerank, strategy="first_stage", routing=False)
    route = ranking.route
    chosen = Choice(route.specialist, route.confidence)

    def chosen_before(_query: Query) -> Choice:
        return chosen

    return partial(
        rerank,
        strategy=strategy,
        specialist=specialist,
        hook=chosen_before if route.decided_by == "hook" else None,
        routing=routing and all(fault.kind != "routing_late" for fault in route.faults),
    )
