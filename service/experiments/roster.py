"""Experiments with the bundles that they name, as they are served now, and what is counted of them."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from listwright.ranking.bundle import Bundle
from listwright.ranking.experiments import bounds, fraction
from listwright.ranking.features import FeatureSchema
from listwright.ranking.served_log.record import ShadowRanking
from listwright.service.bundles.models import Models
from listwright.service.errors import UnknownModelError
from listwright.service.experiments.experiment_file import Definition, ExperimentFile
from listwright.service.participation import Participation

NO_TIME = "the core had no time for it"
"""Reason of a list that is dropped when too many wait for the challenger."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
AGREEMENT = (-0.5, 0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Some values are below 0, so there is no sum of them: it would not only grow."""

_log = logging.getLogger("listwright.experiments")


@dataclass(frozen=True, eq=False)
class Entry:
    """An experiment that can run.

    Args:
        definition: Definition in the file.
        control: Bundle whose requests take part.
        challenger: Bundle that is compared with control; None for ``explore``.
        low, high: Range of control's traffic, from hash ``low`` to below ``high``.
    """

    definition: Definition
    control: Bundle
    challenger: Bundle | None
    low: float
    high: float

    @cached_property
    def part(self) -> Participation:
        """Participation without further facts, shared by all such requests."""
        return Participation(self.definition.name, self.definition.kind)

    @cached_property
    def challenger_name(self) -> str:
        """``name/version`` of the challenger."""
        assert self.challenger is not None
        return f"{self.challenger.manifest.name}/{self.challenger.manifest.version}"

    @cached_property
    def part_without_room(self) -> Participation:
        """Participation with a dropped list, as others wait for the challenger; shared by all such requests."""
        shadow = ShadowRanking(self.challenger_name, (), f"dropped: {NO_TIME}")
        return replace(self.part, shadow=shadow)


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """All experiments of a file, for what is served at one moment.

    Args:
        salt: Salt of the assignment of traffic to experiments.
        entries: Experiments that can run.
        faults: Reason why an experiment cannot run, by name.
    """

    salt: str
    entries: tuple[Entry, ...]
    faults: dict[str, str]

    def find(self, name: str) -> Entry | None:
        """Return the experiment of a name; None if it does not run."""
        return next((entry for entry in self.entries if entry.definition.name == name), None)

    def choose(self, control: Bundle, key: str) -> Entry | None:
        """Return the experiment that a key of control's traffic belongs to; None for none."""
        of_control = [entry for entry in self.entries if entry.control is control]
        if not of_control:
            return None
        at = fraction(key, self.salt, "traffic")
        return next((entry for entry in of_control if entry.low <= at < entry.high), None)


def make_roster(file: ExperimentFile, models: Models) -> Roster:
    """Return the roster of a file. An experiment keeps its range of the traffic while another one cannot run.

    Args:
        file: Content of the file.
        models: Served models.
    """
    entries: list[Entry] = []
    faults: dict[str, str] = {}
    ends: dict[str, list[float]] = {}
    for definition in file.experiment:
        shares = ends.setdefault(definition.control, [])
        shares.append(definition.share)
        low, high = [0.0, *bounds(shares)][-2:]
        entry = _entry(definition, models, low, high)
        if isinstance(entry, str):
            faults[definition.name] = entry
            continue
        for other in entries:  # a bundle may have several names
            if other.control is entry.control and low < other.high and other.low < high:
                overlap = f"its traffic is that of {other.definition.name} already"
                faults[definition.name] = f"{overlap}: name control by the same word in both"
                break
        else:
            entries.append(entry)
    return Roster(file.salt, tuple(entries), faults)


def _entry(definition: Definition, models: Models, low: float, high: float) -> Entry | str:
    try:
        control = _bundle(definition.control, models)
        challenger = None if definition.challenger is None else _bundle(definition.challenger, models)
    except UnknownModelError as error:
        return str(error)
    if challenger is not None and (why := _schema_difference(control.reranker.schema, challenger.reranker.schema)):
        return f"the challenger cannot rank what is sent to control: {why}"
    return Entry(definition, control, challenger, low, high)


def _bundle(name: str, models: Models) -> Bundle:
    model, _, version = name.partition("/")
    return models.choose(model, version or None)


def _schema_difference(control: FeatureSchema, challenger: FeatureSchema) -> str | None:
    """Return why an array for one schema has another meaning for the other; None if it does not."""
    if control.names != challenger.names:
        missing = sorted(set(challenger.names) - set(control.names))
        unknown = sorted(set(control.names) - set(challenger.names))
        if not missing and not unknown:
            return "its features stand in another order"
        return "; ".join(
            f"{verb} {', '.join(names[:5])}" for verb, names in (("it needs", missing), ("it lacks", unknown)) if names
        )
    for feature, other in zip(control.features, challenger.features, strict=True):
        if (feature.kind, feature.categories) != (other.kind, other.categories):
            return f"feature {feature.name} has other categories"
    return None


class ExperimentMetrics:
    """Counters and gauges of experiments; made only where there is a file of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Requests()
        registry.register(self.requests)
        self.failures = Counter(
            "listwright_experiment_failures", "Failures of a challenger", ["experiment"], registry=registry
        )
        self.shadow_seconds = Histogram(
            "listwright_shadow_seconds",
            "Seconds of a core that a challenger takes for a list in the background",
            ["experiment"],
            buckets=SECONDS,
            registry=registry,
        )
        self.agreement = Histogram(
            "listwright_shadow_agreement",
            "Agreement of a shadowed challenger with what was shown",
            ["experiment", "measure"],
            buckets=AGREEMENT,
            registry=registry,
        )
        self.running = Gauge(
            "listwright_experiment_running", "1 if an experiment runs", ["experiment", "kind"], registry=registry
        )
        self.off = Gauge(
            "listwright_experiment_off",
            "1 if an experiment of the file does not run",
            ["experiment", "kind"],
            registry=registry,
        )
        self.refused = Gauge(
            "listwright_experiments_refused", "1 if the file of experiments is not used", registry=registry
        )


class Requests(Collector):
    """Requests by experiment and outcome: counted before an answer, so in one call. A counter of the library is six."""

    def __init__(self) -> None:
        self._lock, self._counts = Lock(), Tally[tuple[str, str]]()

    def count(self, experiment: str, outcome: str) -> None:
        """Count a request that came to an outcome. From any thread."""
        with self._lock:
            self._counts[experiment, outcome] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the counts (prometheus_client's hook)."""
        text = "Requests in an experiment, by what came of them"
        family = CounterMetricFamily("listwright_experiment_requests", text, labels=["experiment", "outcome"])
        with self._lock:
            counts = self._counts.copy()
        for labels, count in counts.items():
            family.add_metric(labels, count)
        yield family


class Failures:
    """Failures in a row of each experiment's challenger, in this worker. Threads may share it."""

    def __init__(self, metrics: ExperimentMetrics) -> None:
        self._metrics, self._lock = metrics, Lock()
        self._row: dict[str, int] = {}
        self._off: dict[str, str] = {}

    def forget(self) -> None:
        """Switch every challenger on again, as the file has changed."""
        with self._lock:
            self._row.clear()
            self._off.clear()

    def reason_off(self, name: str) -> str | None:
        """Return why an experiment's challenger is switched off; None if it is not."""
        return self._off.get(name)

    def note_success(self, name: str) -> None:
        """Note that the challenger ranked a list."""
        if self._row.get(name):
            self._row[name] = 0

    def note_failure(self, entry: Entry, why: str) -> None:
        """Note that the challenger failed; the first failure of a row is logged, and the last one."""
        definition = entry.definition
        self._metrics.failures.labels(definition.name).inc()
        with self._lock:
            row = self._row[definition.name] = self._row.get(definition.name, 0) + 1
            ends = row >= definition.max_failures and definition.name not in self._off
            if ends:
                self._off[definition.name] = (
                    f"its challenger {definition.challenger} failed {row} times in a row, at last: {why}"
                )
        if ends:
            _log.error(
                "experiment %s is switched off until its file changes: %s failed %d times in a row: %s",
                definition.name,
                definition.challenger,
                row,
                why,
            )
        elif row == 1:
            _log.warning("experiment %s: the challenger %s failed: %s", definition.name, definition.challenger, why)
