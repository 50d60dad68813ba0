"""How far the lists that are asked for lie from those that the bundle was fitted on, by feature and as a whole.

Looked at off the way of an answer: in a thread of its own, once the answer is on its way, and one list at most in
:data:`EVERY_S`, so that neither a request's time nor the throughput notices.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from jaxtyping import Float, Int
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from listwright.ranking.features import QUANTILE_LEVELS, FeatureSchema, count_categories, mostly_unknown
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import AnomalyStage

EVERY_S = 0.1
"""Seconds from one list that is looked at to the next, of one process."""

KINDS = ("missing", "below", "above", "unknown")
"""What a value may be that training saw seldom or never; the second and third of numbers, the last of categories."""

ENOUGH = 100
"""Categories of a column after which it is told that most are unknown."""

ANOMALY = tuple(round(0.3 + 0.025 * step, 3) for step in range(21))
"""Upper bounds of the buckets of anomaly scores; an Isolation Forest gives 0.5 to what is like all else."""

STRANGE = QUANTILE_LEVELS.index(0.99)
"""One training query in a hundred scored above this quantile."""

Bundle = tuple[str, str]
"""Its name and version."""

_log = logging.getLogger("listwright.drift")


def unusual(features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Int[np.ndarray, "4 D"]:
    """Per feature, how many values of a list are missing, below or above all but 0.1 % of training's, or unknown."""
    lowest, highest = schema.training_range
    categorical = list(schema.categorical)
    there, unknown = count_categories(features[:, categorical])
    found: Int[np.ndarray, "4 D"] = np.zeros((4, len(schema)), dtype=np.int64)
    found[:3] = np.stack([np.isnan(features), features < lowest, features > highest]).sum(axis=1)
    found[:, categorical] = np.stack([len(features) - there, 0 * there, 0 * there, unknown])
    return found


@dataclass
class _Tally:
    """Of one bundle, so far. Holds its schema, and nothing else of it."""

    schema: FeatureSchema
    anomaly: AnomalyStage | None
    values: Int[np.ndarray, "4 D"]
    candidates: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(ANOMALY) + 1))
    scores: float = 0.0
    strange: int = 0
    in_log: set[str] = field(default_factory=set)

    def add(self, found: Int[np.ndarray, "4 D"], candidates: int, score: float | None) -> None:
        self.values += found
        self.candidates += candidates
        if score is not None and self.anomaly is not None:
            self.buckets[bisect_left(ANOMALY, score)] += 1
            self.scores += score
            self.strange += bool(self.anomaly.quantiles) and score > self.anomaly.quantiles[STRANGE]

    def mostly_unknown(self) -> list[str]:
        """What :func:`listwright.ranking.features.mostly_unknown` says, of every column once."""
        values = self.values[:, list(self.schema.categorical)]
        counts = np.stack([self.candidates - values[0], values[3]])
        counts[:, counts[0] < ENOUGH] = 0
        sentences = mostly_unknown(counts, self.schema)
        new = sentences.keys() - self.in_log
        self.in_log |= new
        return [sentences[name] for name in sorted(new)]


class Drift:
    """Tallies by bundle, and the Prometheus collector that shows them.

    Args:
        thread: where lists are looked at.
        clock: seconds.
    """

    def __init__(self, thread: Executor | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._thread = thread or ThreadPoolExecutor(1, "drift")
        self._clock = clock
        self._next = -np.inf
        self._lock = Lock()
        self._known: frozenset[Bundle] = frozenset()
        self._tallies: dict[Bundle, _Tally] = {}

    def keep(self, known: frozenset[Bundle]) -> None:
        """Forget all bundles but these."""
        with self._lock:
            self._known = known
            self._tallies = {bundle: tally for bundle, tally in self._tallies.items() if bundle in known}

    def note(
        self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"], reranker: Reranker
    ) -> None:
        """Look at a list soon, if it is time for one. From the event loop's thread.

        Args:
            features: of its candidates.
            first_scores: of the first stage; NaN if it failed.
            reranker: of its bundle.
        """
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._thread.submit(self._look, features, first_scores, reranker)

    def _look(self, features: np.ndarray, first_scores: np.ndarray, reranker: Reranker) -> None:
        try:
            manifest = reranker.manifest
            relative = reranker.relative
            schema = manifest.feature_schema if relative is None else relative.schema
            found = unusual(features if relative is None else relative.widened(features), schema)
            score = None
            if reranker.anomaly is not None and np.isfinite(first_scores).all():
                score = reranker.anomaly.of(features, first_scores)
            bundle = (manifest.name, manifest.version)
            with self._lock:
                if bundle not in self._known:  # an answer may outlive its bundle
                    return
                if bundle not in self._tallies:
                    self._tallies[bundle] = _Tally(schema, manifest.anomaly, np.zeros_like(found))
                self._tallies[bundle].add(found, len(features), score)
                unknown = self._tallies[bundle].mostly_unknown()
            for sentence in unknown:
                _log.warning("bundle %s/%s: in requests, %s", *bundle, sentence)
        except Exception:  # no caller waits for this thread, so the log has it
            _log.exception("a list could not be compared with the training data")

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks for it."""
        of = ["model", "version"]
        candidates = CounterMetricFamily("listwright_drift_candidates", "Candidates looked at for drift", labels=of)
        values = CounterMetricFamily(
            "listwright_drift_values",
            "Values of them that training saw seldom or never",
            labels=[*of, "feature", "kind"],
        )
        scores = HistogramMetricFamily("listwright_anomaly_score", "Anomaly scores of queries", labels=of)
        strange = CounterMetricFamily(
            "listwright_anomalous_queries", "Queries stranger than 99 in 100 of training's", labels=of
        )
        quantiles = GaugeMetricFamily(
            "listwright_anomaly_training_quantile", "Training queries' anomaly scores", labels=[*of, "quantile"]
        )
        with self._lock:
            for bundle, tally in self._tallies.items():
                candidates.add_metric(bundle, tally.candidates)
                for column, feature in enumerate(tally.schema.features):
                    for kind in (0, 3) if feature.kind == "categorical" else (0, 1, 2):
                        values.add_metric((*bundle, feature.name, KINDS[kind]), int(tally.values[kind, column]))
                if tally.anomaly is None:
                    continue
                bounds = (*map(str, ANOMALY), "+Inf")
                scores.add_metric(
                    bundle, list(zip(bounds, np.cumsum(tally.buckets).tolist(), strict=True)), tally.scores
                )
                strange.add_metric(bundle, tally.strange)
                for level, at in zip(QUANTILE_LEVELS, tally.anomaly.quantiles, strict=False):
                    quantiles.add_metric((*bundle, str(level)), at)
        yield from (candidates, values, scores, strange, quantiles)
