"""Rules of merchandising in service: the watched file of them, and rules on one answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from prometheus_client import Counter, Gauge
from pydantic import Field, TypeAdapter, ValidationError

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import Ranking
from listwright.ranking.errors import CandidateError
from listwright.ranking.plain_file import from_toml
from listwright.ranking.rules.apply import RuleSet, apply_rules
from listwright.ranking.rules.schema import (
    MOST_RULES_OF_FILE,
    AnyRule,
    CutoffRule,
    Rule,
    check_rules,
    names_of,
    quote,
)
from listwright.service.bundles.models import Current
from listwright.service.participation import Team
from listwright.service.problems import describe, fields_at
from listwright.service.settings import PREFIX
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.watched_file import LookThread, WatchedFile, WatchedFileError
from listwright.service.wire.json_codec import RankingRequest

MOST_BYTES = 2**20
"""Bytes of the file."""

Rules = Mapping[str, Sequence[AnyRule]]
"""Rules by the name of their model."""

_FILE = TypeAdapter(dict[str, Annotated[list[Rule], Field(max_length=MOST_RULES_OF_FILE)]])

_log = logging.getLogger("listwright.rules")


class LiveRules:
    """The rules of a file, as they are now.

    Args:
        path: Path of the file.
        telemetry: Registry of the metrics.
        current: Holder of the served models.

    Raises:
        WatchedFileError: if the file cannot be used. Later on the rules stay as they were.
    """

    def __init__(self, path: Path, telemetry: Telemetry, current: Current) -> None:
        self._file, self._current = open_rules(path), current
        self._thread = LookThread("rules", self._look, _log)
        self.start, self.stop = self._thread.start, self._thread.stop
        self._refused = Gauge(
            "listwright_rules_refused", "1 if the file of rules is not used", registry=telemetry.registry
        )
        self._reads = Counter(
            "listwright_rules_reads",
            "Readings of the file of rules; outcome: replaced, refused",
            ["outcome"],
            registry=telemetry.registry,
        )
        self._prepared: tuple[Rules, dict[tuple[str, ...], RuleSet | None]] = (self._file.content, {})

    def of(self, bundle: Bundle) -> RuleSet | None:
        """Return the rules for a bundle's lists, of its name or else of an alias; None where there are none."""
        name, aliases = bundle.manifest.name, {} if self._current.models is None else self._current.models.aliases
        names = (name, *(alias for alias, target in aliases.items() if target == name))
        content, state = self._file.content, self._prepared  # which other threads may replace meanwhile
        if state[0] is not content:
            state = self._prepared = (content, {})
        prepared, key = state[1], (*names, bundle.manifest.fingerprint)
        if key not in prepared:
            prepared[key] = self._prepare(next((content[model] for model in names if model in content), ()), bundle)
        return prepared[key]

    def _prepare(self, rules: Sequence[AnyRule], bundle: Bundle) -> RuleSet | None:
        if not rules:
            return None
        rule_set = RuleSet(rules, bundle.manifest.feature_schema)
        for fault in rule_set.faults:
            _log.warning("%s of %s is not applied: %s", fault.name, bundle.manifest.name, fault.reason)
        return rule_set

    def _look(self) -> None:
        content, refused = self._file.content, self._file.refused
        self._file.look()
        self._refused.set(self._file.refused is not None)
        if self._file.content is not content:
            self._reads.labels("replaced").inc()
            models = self._current.models
            for name in self._file.content.keys() - (() if models is None else {*models.current, *models.aliases}):
                _log.warning("rules of %s have no effect: no model of this name is served", quote(name))
        elif self._file.refused not in (None, refused):
            self._reads.labels("refused").inc()


def open_rules(path: Path) -> WatchedFile[Rules]:
    """Open the file of rules.

    Raises:
        WatchedFileError: if it cannot be used.
    """
    file = WatchedFile[Rules](path, MOST_BYTES, parse, content={}, absent=None, describe=_describe_rules, log=_log)
    try:
        file.content = file.read()
    except WatchedFileError as error:
        raise WatchedFileError(f"{PREFIX}RULES: {path} {error}") from error
    return file


def parse(content: bytes) -> Rules:
    """Return the rules of a file, by model.

    Raises:
        WatchedFileError: with the place and the remedy.
    """
    try:
        rules = _FILE.validate_python(from_toml(content))
    except ValidationError as error:
        faults: list[Any] = error.errors()[:3]
        for fault in faults:
            fault["fields"] = partial(fields_at, AnyRule, fault["loc"][2:-1])
        raise WatchedFileError("; ".join(_describe_fault(fault["loc"], describe(fault)) for fault in faults)) from error
    except ValueError as error:
        raise WatchedFileError(f"is no TOML: {error}") from error
    for model, listed in rules.items():
        try:
            check_rules(listed, names_of(listed, "file rule"))
        except CandidateError as error:
            raise WatchedFileError(_describe_fault((model, error.path[-1]), error.message)) from error
    return rules


def _describe_fault(place: Sequence[str | int], message: str) -> str:
    """Describe a fault at a model's rule, from 1; behind the number stand its action and the field."""
    parts = [quote(str(place[0]))]
    if len(place) > 1:
        parts.append(f"rule {int(place[1]) + 1}")
    parts += [str(part)[:100] for part in place[3:]]
    return ": ".join([*parts, message[:300]])


def _describe_rules(rules: Rules) -> str:
    return ", ".join(f"{len(listed)} rules of {quote(model)}" for model, listed in rules.items()) or "no rules"


def rule_sets(request: RankingRequest, live: LiveRules | None) -> tuple[RuleSet, ...]:
    """Return the rules for a request: the file's, then its own, ``min_probability`` last."""
    of_file, cutoff = None if live is None else live.of(request.bundle), None
    if (lowest := request.options.min_probability) is not None:
        rule = CutoffRule(name="min_probability", action="cutoff", min_probability=lowest)
        cutoff = RuleSet((rule,), request.bundle.manifest.feature_schema, of_request=True)
    return tuple(rule_set for rule_set in (of_file, request.rules, cutoff) if rule_set is not None)


def with_rules(request: RankingRequest, ranking: Ranking, sets: Sequence[RuleSet]) -> tuple[RankingRequest, Ranking]:
    """Apply the rules for a request to its ranking.

    Args:
        request: Request; where it is in an experiment, places and teams move with their candidates.
        ranking: Ranking, whose order an experiment may have made.
        sets: Rules that :func:`rule_sets` returns.

    Raises:
        CandidateError: of :func:`~listwright.ranking.rules.apply.apply_rules`.
    """
    after = apply_rules(ranking, request.candidates, request.bundle.manifest, sets)
    if after is ranking or request.part is None:
        return request, after
    teams, swap = request.part.teams, request.part.intervention
    results = after.results[: request.options.top_n].tolist()
    if teams is not None:
        team_of: dict[int, Team] = dict(zip(ranking.order.tolist(), teams, strict=False))
        team_of |= {index: "rule" for effect in after.rules if effect.action == "pin" for index in effect.candidates}
        teams = tuple(team_of.get(index, "rule") for index in results)
    if swap is not None:
        both = ranking.order[list(swap.places)].tolist()
        there = all(index in results for index in both)
        swap = replace(swap, places=tuple(map(results.index, both))) if there else None
    return request.join_experiment(replace(request.part, teams=teams, intervention=swap)), after
