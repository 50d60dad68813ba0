"""Logged records ranked again: proof that the log holds what was ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_json
from listwright.ranking.served_log.files import log_files, records
from listwright.ranking.served_log.record import ServedRecord


@dataclass
class ReplayResult:
    """The result of ranking again.

    Args:
        same: Number of records whose scores and order are the logged ones, to the bit.
        different: Query ids of the first twenty records that differ.
        differing: Number of records that differ.
        degraded: Number of records that were left out, as their answer came from an earlier stage.
        others: Number of records that were left out, as another bundle ranked them, or an experiment or a rule did.
    """

    same: int = 0
    different: list[str] = field(default_factory=list)
    differing: int = 0
    degraded: int = 0
    others: int = 0


def replay(served: Path, model: Bundle, most: int) -> ReplayResult:
    """Rank logged records of a bundle again.

    Args:
        served: Folder of the served log, or a file of it.
        most: Largest number of records to rank.

    Raises:
        RecipeError: if the log holds no record of this bundle.
        DataError: if a file cannot be read.
    """
    manifest = model.manifest
    result = ReplayResult()
    files: Sequence[Path] = [served] if served.is_file() else log_files(served)
    for record in islice(
        _of(records(files), f"{manifest.name}/{manifest.version}", manifest.fingerprint, result), most
    ):
        if _is_same(record, model):
            result.same += 1
            continue
        result.differing += 1
        if len(result.different) < 20:
            result.different.append(record.query_id)
    if not result.same and not result.differing:
        others = f"{result.others} records of other bundles, experiments or rules, {result.degraded} degraded ones"
        raise RecipeError(f"{served} holds no record of {manifest.name}/{manifest.version} to rank again ({others})")
    return result


def _of(served: Iterable[ServedRecord], name: str, fingerprint: str, result: ReplayResult) -> Iterable[ServedRecord]:
    for record in served:
        if record.degraded is not None:
            result.degraded += 1
        elif (record.bundle, record.fingerprint) != (name, fingerprint) or (
            record.teams or record.intervention or record.rules
        ):
            result.others += 1
        else:
            yield record


def _is_same(record: ServedRecord, model: Bundle) -> bool:
    specialist = None if record.route is None else _specialist(record.route)
    candidates = CandidateList(record.features)
    strategy = record.strategy if specialist is None else "srm"
    ranking = model.reranker.rerank(
        candidates, strategy=strategy, specialist=specialist, routing=False, weights=record.weights
    )
    return (
        _bits(ranking.scores) == _bits(record.scores)
        and _bits(ranking.first_stage_scores) == _bits(record.first_stage_scores)
        and np.array_equal(ranking.order[: len(record.order)], record.order)
    )


def _specialist(route: str) -> int | None:
    """Return the specialist of a route; a text that no service wrote names none."""
    try:
        value = from_json(route)
    except ValueError:
        return None
    return value.get("specialist") if isinstance(value, dict) else None


def _bits(scores: Float[np.ndarray, " L"]) -> bytes:
    """Return the float64 bytes as logged; every NaN is one."""
    values = np.asarray(scores, dtype="<f8")
    return np.where(np.isnan(values), np.float64("nan"), values).tobytes()
