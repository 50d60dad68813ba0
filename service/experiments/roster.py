"""Experiments with the bundles that they name, as they are served now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from listwright.ranking.bundle import Bundle
from listwright.ranking.experiments import bounds, fraction
from listwright.ranking.features import FeatureSchema
from listwright.ranking.served.record import ShadowRanking
from listwright.service.bundles.served import Models
from listwright.service.errors import UnknownModelError
from listwright.service.experiments.definition import Definition, ExperimentFile
from listwright.service.participation import Participation

NO_TIME = "the core had no time for it"
"""Why a challenger does not rank a list that others wait before."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An experiment that can run.

    Args:
        definition: of the file.
        control: bundle whose requests take part.
        challenger: bundle that is compared with it; None for ``explore``.
        low, high: range of control's traffic, from hash ``low`` to below ``high``.
    """

    definition: Definition
    control: Bundle
    challenger: Bundle | None
    low: float
    high: float

    @cached_property
    def part(self) -> Participation:
        """Of a request of which nothing more is to be said; all of them share it."""
        return Participation(self.definition.name, self.definition.kind)

    @cached_property
    def challenger_name(self) -> str:
        """``name/version`` of the challenger."""
        assert self.challenger is not None
        return f"{self.challenger.manifest.name}/{self.challenger.manifest.version}"

    @cached_property
    def dropped(self) -> Participation:
        """Of a request whose list the challenger does not rank, as others wait; all of them share it."""
        shadow = ShadowRanking(self.challenger_name, (), f"dropped: {NO_TIME}")
        return replace(self.part, shadow=shadow)


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """All experiments of a file, for what is served at one moment.

    Args:
        salt: of the traffic.
        entries: those that can run.
        faults: by name, why the others cannot.
    """

    salt: str
    entries: tuple[Entry, ...]
    faults: dict[str, str]

    def named(self, name: str) -> Entry | None:
        """The experiment of a name; None if it does not run."""
        for entry in self.entries:
            if entry.definition.name == name:
                return entry
        return None

    def chosen(self, control: Bundle, key: str) -> Entry | None:
        """The experiment that a key of control's traffic belongs to; None for none."""
        of_control = [entry for entry in self.entries if entry.control is control]
        if not of_control:
            return None
        at = fraction(key, self.salt, "traffic")
        return next((entry for entry in of_control if entry.low <= at < entry.high), None)


def made(file: ExperimentFile, models: Models) -> Roster:
    """The roster of a file. An experiment keeps its range of the traffic while another one cannot run.

    Args:
        file: that was read.
        models: that are served.
    """
    entries: list[Entry] = []
    faults: dict[str, str] = {}
    ends: dict[str, list[float]] = {}
    for one in file.experiment:
        shares = ends.setdefault(one.control, [])
        shares.append(one.share)
        low, high = [0.0, *bounds(shares)][-2:]
        found = _entry(one, models, low, high)
        overlap = None if isinstance(found, str) else _overlapping(found, entries)
        if isinstance(found, str):
            faults[one.name] = found
        elif overlap is not None:
            faults[one.name] = f"its traffic is that of {overlap} already: name control by the same word in both"
        else:
            entries.append(found)
    return Roster(file.salt, tuple(entries), faults)


def _overlapping(found: Entry, entries: Sequence[Entry]) -> str | None:
    """An experiment before this one with some of its traffic: one bundle may have several names."""
    for other in entries:
        if other.control is found.control and found.low < other.high and other.low < found.high:
            return other.definition.name
    return None


def _entry(one: Definition, models: Models, low: float, high: float) -> Entry | str:
    try:
        control = _bundle(one.control, models)
        challenger = None if one.challenger is None else _bundle(one.challenger, models)
    except UnknownModelError as error:
        return str(error)
    if challenger is not None and (why := _differ(control.reranker.schema, challenger.reranker.schema)):
        return f"the challenger cannot rank what is sent to control: {why}"
    return Entry(one, control, challenger, low, high)


def _bundle(name: str, models: Models) -> Bundle:
    model, _, version = name.partition("/")
    return models.choose(model, version or None)


def _differ(control: FeatureSchema, challenger: FeatureSchema) -> str | None:
    """Why an array of the one means something else to the other; None if it does not."""
    if control.names != challenger.names:
        missing = sorted(set(challenger.names) - set(control.names))
        unknown = sorted(set(control.names) - set(challenger.names))
        if not missing and not unknown:
            return "its features stand in another order"
        return "; ".join(
            f"{said} {', '.join(names[:5])}" for said, names in (("it needs", missing), ("it lacks", unknown)) if names
        )
    for one, other in zip(control.features, challenger.features, strict=True):
        if (one.kind, one.categories) != (other.kind, other.categories):
            return f"feature {one.name} has other categories"
    return None
