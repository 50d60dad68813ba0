"""The fields of one served record, and the salted hash that stands for a unit in it."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError
from listwright.ranking.plain_file import from_json


@dataclass(frozen=True, slots=True)
class Intervention:
    """A random change of the shown order.

    Args:
        kind: Kind of the change, such as ``swap``.
        places: Shown places that were changed, from 0.
        propensity: Probability of this change, in (0, 1].
    """

    kind: str
    places: tuple[int, ...]
    propensity: float


@dataclass(frozen=True, slots=True)
class ShadowRanking:
    """Another bundle's ranking of the same list, which was not shown.

    Args:
        bundle: ``name/version`` of the other bundle.
        order: ``(L,)`` indices of the candidates, best first; empty where the bundle failed.
        status: ``ok``, or the reason for which there is no order.
    """

    bundle: str
    order: tuple[int, ...]
    status: str


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """A rule of merchandising that acted on the list.

    Args:
        name: Name of the rule.
        action: ``pin``, ``exclude``, ``cutoff``, ``boost``, ``bury``, ``cap`` or ``diversify``.
        candidates: Indices of the candidates that the rule touched.
    """

    name: str
    action: str
    candidates: tuple[int, ...]


@dataclass(slots=True, eq=False)
class ServedRecord:
    """One answered request, as it was answered.

    It is not frozen, as that would double its cost, but never changed.

    Args:
        query_id: Id that events name the request by.
        served_at: Time at which the answer was made; with a time zone.
        unit: The caller's key of a person or session, or its salted hash; None where none was sent.
        bundle: ``name/version`` of the bundle that ranked.
        fingerprint: Fingerprint of the bundle's feature schema, as ``/info`` gives it.
        candidate_ids: ``L`` ids in the order of the request; ``"0"``, ``"1"`` ... where the caller sent none.
        features: ``(L, D)`` float32 features that were ranked: numbers raw, NaN for a missing one, categories as codes.
        first_stage_scores: ``(L,)`` scores in the order of the request; NaN if the first stage failed.
        scores: ``(L,)`` scores in the order of the request; NaN for candidates that were not scored.
        order: ``(shown,)`` index of the candidate at each shown place; ``top_n`` or L of them, whichever is less,
            without those that rules exclude.
        strategy: Ranker that was asked for.
        feature_names: ``D`` names of the columns; stored once for the file, not for the record.
        request_id: Id of the HTTP request.
        top_n: Length of the list that the request asked for; None for all.
        route: JSON of who chose the ranker, and of the router's estimate; None where nobody chose.
        degraded: Reason for which an earlier stage answered; None if nothing went wrong.
        experiment: Name of the experiment; None where there was none.
        arm: Arm that the experiment chose for this request.
        teams: ``(shown,)`` ranking that picked the candidate of each shown place; None where rankers were not
            interleaved.
        intervention: Random change of the order; None where there was none.
        shadow: Ranking of the list by another bundle; None where none was asked.
        timings_ms: Milliseconds by step.
        rules: Rules that acted on the order after ranker and experiment; the scores are those from before.
        probabilities: ``(L,)`` probabilities of being relevant, in the order of the request; None where none were
            computed: no request asked for them, and no rule needed them.
        weights: Weight of each goal in the order; None where the bundle has one goal, or its other goals failed.
        categories: Names of the categories of each categorical column: code 1 is the first; stored once for the file.

    Equality: records hold arrays, so ``==`` compares identity; :class:`listwright.ranking.served_log.encoding.Block`
    gives bytes to compare.
    """

    query_id: str
    served_at: datetime
    unit: str | None
    bundle: str
    fingerprint: str
    candidate_ids: tuple[str, ...]
    features: Float[np.ndarray, "L D"]
    first_stage_scores: Float[np.ndarray, " L"]
    scores: Float[np.ndarray, " L"]
    order: Int[np.ndarray, " shown"]
    strategy: str
    feature_names: tuple[str, ...]
    request_id: str = ""
    top_n: int | None = None
    route: str | None = None
    degraded: str | None = None
    experiment: str | None = None
    arm: str | None = None
    teams: tuple[str, ...] | None = None
    intervention: Intervention | None = None
    shadow: ShadowRanking | None = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    rules: tuple[RuleEffect, ...] = ()
    probabilities: Float[np.ndarray, " L"] | None = None
    weights: Mapping[str, float] | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """L, the number of candidates."""
        return len(self.candidate_ids)


@dataclass(frozen=True, slots=True)
class Columns:
    """Names and categories of the columns of ``features``; the same in all records of a file.

    Args:
        names: ``D`` names of the columns.
        categories: Names of the categories, by categorical column: code 1 is the first.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def to_record(fields: Mapping[str, Any], columns: Columns, source: str) -> ServedRecord:
    """Build the record of decoded Avro fields.

    Args:
        fields: Fields of :data:`listwright.ranking.served_log.encoding.SCHEMA`, by name.
        columns: Columns that the file's metadata name.
        source: Name of the file, for errors.

    Raises:
        DataError: if the lengths of its parts do not agree.
    """
    length, width = len(fields["candidate_ids"]), len(columns.names)
    if len(fields["features"]) != 4 * length * width:
        raise DataError(
            source,
            f"query {fields['query_id']!r} has {len(fields['features'])} bytes of features, expected "
            f"{4 * length * width} for {length} candidates of {width} columns",
        )
    probabilities = fields["probabilities"]
    for name in ("first_stage_scores", "scores", *(() if probabilities is None else ("probabilities",))):
        if len(fields[name]) != 8 * length:
            raise DataError(
                source, f"query {fields['query_id']!r} has {len(fields[name])} bytes of {name}, expected {8 * length}"
            )
    served_at: datetime = fields["served_at"]
    swap, shadow = fields["intervention"], fields["shadow"]
    converted: dict[str, Any] = {
        "served_at": served_at.astimezone(UTC),
        "candidate_ids": tuple(fields["candidate_ids"]),
        "features": np.frombuffer(fields["features"], "<f4").reshape(length, width),
        "first_stage_scores": np.frombuffer(fields["first_stage_scores"], "<f8"),
        "scores": np.frombuffer(fields["scores"], "<f8"),
        "order": np.array(fields["order"], dtype=np.int64),
        "teams": None if fields["teams"] is None else tuple(fields["teams"]),
        "intervention": swap and Intervention(swap["kind"], tuple(swap["places"]), swap["propensity"]),
        "shadow": shadow and ShadowRanking(shadow["bundle"], tuple(shadow["order"]), shadow["status"]),
        "rules": tuple(
            RuleEffect(rule["name"], rule["action"], tuple(rule["candidates"])) for rule in fields["rules"] or ()
        ),
        "probabilities": None if probabilities is None else np.frombuffer(probabilities, "<f8"),
    }
    return ServedRecord(**{**fields, **converted}, feature_names=columns.names, categories=columns.categories)


def columns_of(record: ServedRecord) -> Columns:
    """Return the columns that a record names."""
    return Columns(record.feature_names, record.categories)


def parsed_columns(names: bytes, categories: bytes) -> Columns:
    """Parse the columns from the JSON of a file's metadata.

    Raises:
        ValueError: if it is no list of names, or no object of lists of names.
    """
    listed, known = from_json(names), from_json(categories)
    good = isinstance(listed, list) and isinstance(known, dict) and all(isinstance(name, str) for name in listed)
    if not (good and all(isinstance(of, list) for of in known.values())):
        raise ValueError("its metadata names no columns")
    return Columns(tuple(listed), {name: tuple(map(str, of)) for name, of in known.items()})


UNIT_CHARACTERS = 32


def hashed(unit: str, salt: bytes) -> str:
    """Return the first 128 bits of a unit's HMAC-SHA256, in hexadecimal: without the salt no unit can be guessed."""
    return hmac.digest(salt, unit.encode("utf-8", "surrogatepass"), "sha256").hex()[:UNIT_CHARACTERS]
