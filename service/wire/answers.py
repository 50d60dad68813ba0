"""From a ranking to the JSON answer of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Real
from pydantic_core import to_json

from listwright.ranking.candidates import Ranking
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import rank_by_score, ranks_of
from listwright.service.hook import PASSED
from listwright.service.participation import Participation
from listwright.service.wire.codec import EncodedAnswer, RankingRequest
from listwright.service.wire.schemas import MAX_CONTEXT_KEY, MOST_IGNORED, Envelope

_STEPS = ("parse", "queue", "first_stage", "routing", "second_stage", "total")
_STAGES = {"second_stage": "second", "first_stage": "first", "input_order": "input"}


class JsonAnswer:
    """The half of a codec that writes JSON."""

    def encode(self, asked: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """The answer of the contract."""
        options, manifest = asked.options, asked.bundle.manifest
        assert isinstance(options, Envelope)
        content = to_answer(ranking, options, manifest, asked.candidates.ids, milliseconds, asked.ignored, asked.part)
        return EncodedAnswer(to_json(content), "application/json", {})


def to_answer(
    ranking: Ranking,
    request: Envelope,
    manifest: Manifest,
    ids: tuple[str, ...] | None,
    milliseconds: Mapping[str, float],
    ignored: Sequence[str] = (),
    part: Participation | None = None,
) -> dict[str, Any]:
    """The body of :class:`listwright.service.wire.schemas.RerankResponse`, as plain values."""
    scores = nullable(ranking.scores if request.raw_scores else ranking.relevance)
    told = nullable(unscored(ranking, part).scores) if part is not None and part.teams is not None else scores
    first_scores = nullable(ranking.first_stage_scores)
    first_ranks: Sequence[int | None] = [None] * len(scores)
    if first_scores[0] is not None:
        first_ranks = ranks_of(rank_by_score(ranking.first_stage_scores)).tolist()
    reached = _STAGES[ranking.stage_reached]
    order = ranking.order.tolist()
    return {
        "id": request.id,
        "model": manifest.name,
        "version": manifest.version,
        "results": [
            {
                "index": index,
                "id": None if ids is None else ids[index],
                "rank": rank,
                "relevance_score": told[index],
                "stage": "first" if scores[index] is None and reached == "second" else reached,
                "first_stage_score": first_scores[index],
                "first_stage_rank": first_ranks[index],
            }
            for rank, index in enumerate(order[: request.top_n], start=1)
        ],
        "scores": told,
        "ranks": ranking.ranks.tolist(),
        "route": {
            "strategy": ranking.route.strategy,
            "specialist": ranking.route.specialist,
            "confidence": ranking.route.confidence,
            "decided_by": ranking.route.decided_by,
        },
        "meta": {
            "status": "degraded" if ranking.degraded else "ok",
            "stage_reached": ranking.stage_reached,
            "reason": ranking.reason,
            "ignored": [shortened(name) for name in ignored[:MOST_IGNORED]],
            "timings_ms": {step: _rounded(milliseconds.get(step)) for step in _STEPS},
            **_experiment(part),
        },
    }


def unscored(ranking: Ranking, part: Participation | None) -> Ranking:
    """The ranking without scores where two rankers made its order: no single one scored that list."""
    if part is None or part.teams is None:
        return ranking
    nothing = np.full(len(ranking.order), np.nan)
    return replace(ranking, scores=nothing, relevance=nothing)


def _experiment(part: Participation | None) -> dict[str, Any]:
    """What ``meta`` says of an experiment; no byte where there is none."""
    if part is None or not part.told:
        return {}
    return {"experiment": {"name": part.experiment, "kind": part.kind, "arm": part.arm, "reason": part.reason}}


def shortened(name: str) -> str:
    """A name as it is told: some that callers send have no end."""
    return name if len(name) <= MAX_CONTEXT_KEY else name[:MAX_CONTEXT_KEY] + "…"


def facts(
    ranking: Ranking, manifest: Manifest, milliseconds: Mapping[str, float], part: Participation | None = None
) -> dict[str, Any]:
    """What a log line says about a ranking."""
    return {
        **({} if part is None else {"experiment": part.experiment, "arm": part.arm}),
        "version": f"{manifest.name}/{manifest.version}",
        "strategy": ranking.route.strategy,
        "specialist": ranking.route.specialist,
        "confidence": _rounded(ranking.route.confidence),
        "decided_by": ranking.route.decided_by,
        "routing_faults": [fault.kind for fault in ranking.route.faults if fault.kind != PASSED],
        "stage_reached": ranking.stage_reached,
        "reason": ranking.reason,
        "candidates": len(ranking.order),
        "timings_ms": {step: _rounded(value) for step, value in milliseconds.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def nullable(values: Real[np.ndarray, " L"]) -> list[float | None]:
    """Numbers as JSON has them: null for NaN."""
    if not np.isnan(values).any():
        return values.tolist()  # type: ignore[no-any-return]
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN
