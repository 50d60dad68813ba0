"""All experiments of one worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.served.record import ShadowRanking
from listwright.service.bundles.served import Current, Models
from listwright.service.experiments.definition import Definition
from listwright.service.experiments.failures import Failures
from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.experiments.protocol import RankBy, Report, Shown, Status
from listwright.service.experiments.roster import Entry, Roster, made
from listwright.service.experiments.shadow import Shadow, ShadowTask
from listwright.service.experiments.shadow_process import Question
from listwright.service.experiments.trial import RequestTrial
from listwright.service.experiments.watch import Seen, Watch
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.codec import RankingRequest

SHOWS_ORDER = frozenset(("interleave", "explore"))
"""Kinds that show another order than the scores say."""

NOT_YET = "no bundle is loaded yet"

_log = logging.getLogger("listwright.experiments")


class _State(NamedTuple):
    """What the file says, for what is served; replaced whole, in one assignment."""

    seen: Seen
    models: Models | None
    roster: Roster


class LiveExperiments:
    """Chooses the experiment of each request.

    Args:
        settings: name the file and the kill switch.
        telemetry: of the process.
        current: bundles that are served.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, current: Current) -> None:
        self._current = current
        self._metrics = ExperimentMetrics(telemetry.registry)
        self._failures = Failures(self._metrics)
        self._shadow = Shadow(self._failures, self._metrics)
        self._watch = Watch(settings, self._looked)
        self._state = _State(self._watch.seen, None, Roster("", (), {}))
        self._said: dict[str, str | None] = {}
        self._known: Seen | None = None

    def start(self) -> None:
        """Begin to look at the file."""
        self._watch.start()

    def close(self) -> None:
        """Look no more, and end what runs in the background."""
        self._watch.stop()
        self._shadow.close()

    def show(self, asked: RankingRequest, query_id: str, rank: RankBy, deadline: Deadline) -> Shown:
        """Rank as the one experiment wants it that a request takes part in."""
        entry = self._entry(asked, query_id)
        if entry is None:
            return Shown(asked, rank(asked, deadline))
        if entry.definition.kind == "shadow":
            part = entry.part if self._shadow.has_room() else self._shadow.drop(entry)
            return Shown(asked.within(part), rank(asked, deadline))
        return RequestTrial(entry, asked, query_id, self._failures, self._metrics).show(rank, deadline)

    def _entry(self, asked: RankingRequest, query_id: str) -> Entry | None:
        """The one experiment that a request takes part in; None for none.

        A caller that names a version, a ranker or a specialist gets what it names. One whose answer holds nothing but
        scores would never see an order that differs from them.
        """
        options, roster = asked.options, self._roster()
        if not roster.entries or asked.pinned or options.strategy != "auto" or options.specialist is not None:
            return None
        entry = roster.chosen(asked.bundle, options.unit or query_id)
        if entry is None or self._watch.killed() or self._failures.off(entry.definition.name):
            return None
        if asked.scores_only and entry.definition.kind in SHOWS_ORDER:
            return None
        return entry

    def shadow(self, asked: RankingRequest, ranking: Ranking, then: Callable[[ShadowRanking], None]) -> None:
        """Have the challenger rank what was answered, unless the experiment has ended meanwhile."""
        part = asked.part
        entry = None if part is None else self._roster().named(part.experiment)
        if entry is None or entry.challenger is None or entry.definition.kind != "shadow":
            then(ShadowRanking("", (), "dropped: the experiment has ended"))
            return
        question = Question(
            str(entry.challenger.path),
            entry.challenger.reranker.default_strategy,
            asked.candidates.features,
            dict(asked.candidates.context),
            True,
            ranking.order,
        )
        self._shadow.put(ShadowTask(entry, question, then))

    def report(self) -> Report:
        """What runs at this moment, and why the rest does not."""
        roster, file = self._roster(), self._state.seen.file
        statuses = tuple(
            Status(one.name, one.kind, one.control, one.challenger, one.share, self._why_not(one, roster))
            for one in file.experiment
        )
        return Report(statuses, self._watch.refused, self._watch.killed())

    def _why_not(self, one: Definition, roster: Roster) -> str | None:
        """Why an experiment does not run; None if it does."""
        return self._watch.killed() or roster.faults.get(one.name) or self._failures.off(one.name)

    def _roster(self) -> Roster:
        """The roster for the file and the bundles of this moment."""
        state, seen, models = self._state, self._watch.seen, self._current.models
        if state.seen is seen and state.models is models:
            return state.roster
        file = seen.file
        roster = (
            Roster(file.salt, (), {one.name: NOT_YET for one in file.experiment})
            if models is None
            else made(file, models)
        )
        self._state = _State(seen, models, roster)
        return roster

    def _looked(self) -> None:
        """Let metrics and the log say what has changed. In the watching thread."""
        if self._watch.seen is not self._known:
            self._failures.forget()
            self._known = self._watch.seen
            self._metrics.running.clear()
            self._metrics.off.clear()
        report = self.report()
        self._metrics.refused.set(report.refused is not None)
        reasons = {one.name: one.reason for one in report.experiments}
        for name in self._said.keys() - reasons.keys():
            _log.info("experiment %s has ended", name)
        for one in report.experiments:
            self._metrics.running.labels(one.name, one.kind).set(one.reason is None)
            self._metrics.off.labels(one.name, one.kind).set(one.reason is not None)
            if one.name in self._said and self._said[one.name] == one.reason:
                continue
            if one.reason is None:
                _log.info("experiment %s runs: %s of %s", one.name, one.kind, one.control)
            else:
                _log.warning("experiment %s does not run: %s", one.name, one.reason)
        self._said = reasons
