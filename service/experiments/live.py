"""All experiments of one worker: the choice for each request, its ranking and shown order, and their status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from listwright.ranking.experiments import adjacent_swap, arm_of, team_draft
from listwright.ranking.served_log.record import Intervention, ShadowRanking
from listwright.service.bundles.models import Current, Models
from listwright.service.experiments.experiment_file import ExperimentFile, Watch
from listwright.service.experiments.roster import Entry, ExperimentMetrics, Failures, Roster, make_roster
from listwright.service.experiments.shadow import Shadow, ShadowTask
from listwright.service.experiments.shadow_process import Question
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.json_codec import RankingRequest
from listwright.service.wire.schemas import ExperimentInfo, ExperimentsInfo

RankBy = Callable[[RankingRequest, Deadline], Ranking]
"""Ranks a request's list by its bundle."""

ShownRanking = tuple[RankingRequest, Ranking]
"""A request, with the bundle that answers and its part in an experiment; the ranking whose order is shown."""

SHOWS_ORDER = frozenset(("interleave", "explore"))
"""Kinds that show another order than the scores say."""

NOT_YET = "no bundle is loaded yet"

INTERLEAVED = "two bundles made this order: no single ranker scored it"

_log = logging.getLogger("listwright.experiments")


class _State(NamedTuple):
    """The roster of a file, for what is served; replaced whole, in one assignment."""

    content: ExperimentFile
    models: Models | None
    roster: Roster


class LiveExperiments:
    """Experiments of this process, one of which each request may take part in.

    Args:
        settings: Settings that name the file and the kill switch.
        telemetry: Metrics of the process.
        current: Holder of the served models.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, current: Current) -> None:
        self._current = current
        self._metrics = ExperimentMetrics(telemetry.registry)
        self._failures = Failures(self._metrics)
        self._shadow = Shadow(self._failures, self._metrics)
        self._watch = Watch(settings, self._log_changes)
        self._state = _State(self._watch.file.content, None, Roster("", (), {}))
        self._reasons: dict[str, str | None] = {}
        self._logged_content: ExperimentFile | None = None

    def start(self) -> None:
        """Begin to look at the file; bundles are loaded by then. From the event loop's thread."""
        self._watch.start()

    def close(self) -> None:
        """Stop looking, and end the challenger's process."""
        self._watch.stop()
        self._shadow.close()

    def show(self, request: RankingRequest, query_id: str, rank: RankBy, deadline: Deadline) -> ShownRanking:
        """Rank a request, by the experiment that it takes part in, if any. In the thread that ranks.

        Args:
            request: Request to rank.
            query_id: Query id of the request.
            rank: Function that ranks by a request's bundle.
            deadline: Deadline of the whole.

        Raises:
            ListwrightError: of control's ranking.
        """
        entry = self._entry(request, query_id)
        if entry is None:
            return (request, rank(request, deadline))
        if entry.definition.kind == "shadow":
            part = entry.part if self._shadow.has_room() else self._shadow.drop(entry)
            return (request.join_experiment(part), rank(request, deadline))
        return RequestTrial(entry, request, query_id, self._failures, self._metrics).show(rank, deadline)

    def _entry(self, request: RankingRequest, query_id: str) -> Entry | None:
        """Return the experiment that a request takes part in; None for none, as where the request names a ranker."""
        options, roster = request.options, self._roster()
        if not roster.entries or request.pinned or options.strategy != "auto" or options.specialist is not None:
            return None
        entry = roster.choose(request.bundle, options.unit or query_id)
        if entry is None or self._watch.reason_killed() or self._failures.reason_off(entry.definition.name):
            return None
        # who gets nothing but scores would never see an order that differs from them
        if request.scores_only and entry.definition.kind in SHOWS_ORDER:
            return None
        return entry

    def shadow(self, request: RankingRequest, ranking: Ranking, then: Callable[[ShadowRanking], None]) -> None:
        """Have the challenger rank an answered list, later, unless the experiment has ended meanwhile.

        Args:
            request: Request that takes part in a shadow.
            ranking: Ranking that was answered.
            then: Function that is called with the outcome, in the event loop's thread, which calls this method.
        """
        part = request.part
        entry = None if part is None else self._roster().find(part.experiment)
        if entry is None or entry.challenger is None or entry.definition.kind != "shadow":
            then(ShadowRanking("", (), "dropped: the experiment has ended"))
            return
        question = Question(
            str(entry.challenger.path),
            entry.challenger.reranker.default_strategy,
            request.candidates.features,
            dict(request.candidates.context),
            True,
            ranking.order,
            request.options.weights,
        )
        self._shadow.put(ShadowTask(entry, question, then))

    def report(self) -> ExperimentsInfo:
        """Report which experiments of the last valid file run at this moment, and why the others do not."""
        roster, killed = self._roster(), self._watch.reason_killed()
        experiments = []
        for definition in self._state.content.experiment:
            reason = killed or roster.faults.get(definition.name) or self._failures.reason_off(definition.name)
            facts = definition.model_dump(include={"name", "kind", "control", "challenger", "share"})
            experiments.append(ExperimentInfo(**facts, running=reason is None, reason=reason))
        return ExperimentsInfo(experiments=experiments, refused=self._watch.file.refused, killed=killed)

    def _roster(self) -> Roster:
        """Return the roster for the file and the bundles of this moment; renewed when either changes."""
        state, content, models = self._state, self._watch.file.content, self._current.models
        if state.content is content and state.models is models:
            return state.roster
        roster = (
            Roster(content.salt, (), {definition.name: NOT_YET for definition in content.experiment})
            if models is None
            else make_roster(content, models)
        )
        self._state = _State(content, models, roster)
        return roster

    def _log_changes(self) -> None:
        """Update the metrics, and log what has changed. In the watching thread."""
        if self._watch.file.content is not self._logged_content:
            self._failures.forget()
            self._logged_content = self._watch.file.content
            self._metrics.running.clear()
            self._metrics.off.clear()
        report = self.report()
        self._metrics.refused.set(report.refused is not None)
        reasons = {info.name: info.reason for info in report.experiments}
        for name in self._reasons.keys() - reasons.keys():
            _log.info("experiment %s has ended", name)
        for info in report.experiments:
            self._metrics.running.labels(info.name, info.kind).set(info.running)
            self._metrics.off.labels(info.name, info.kind).set(not info.running)
            if info.name in self._reasons and self._reasons[info.name] == info.reason:
                continue
            if info.running:
                _log.info("experiment %s runs: %s of %s", info.name, info.kind, info.control)
            else:
                _log.warning("experiment %s does not run: %s", info.name, info.reason)
        self._reasons = reasons


class RequestTrial(NamedTuple):
    """A request and the experiment that it takes part in: any but a shadow, which shows control's order.

    Args:
        entry: Experiment that the request takes part in.
        request: Request to control.
        query_id: Query id of the request.
        failures: Failures of challengers.
        metrics: Metrics that count the outcomes.
    """

    entry: Entry
    request: RankingRequest
    query_id: str
    failures: Failures
    metrics: ExperimentMetrics

    def show(self, rank: RankBy, deadline: Deadline) -> ShownRanking:
        """Rank by the kind of the experiment.

        Args:
            rank: Function that ranks by a request's bundle.
            deadline: Deadline of the whole, both rankers of an interleaving together.

        Raises:
            ListwrightError: of control's ranking. Whatever the challenger raises is counted, and control answers.
        """
        kind = self.entry.definition.kind
        if kind == "split":
            return self._split(rank, deadline)
        if kind == "interleave":
            return self._interleave(rank, deadline)
        return self._explore(rank, deadline)

    def _split(self, rank: RankBy, deadline: Deadline) -> ShownRanking:
        definition = self.entry.definition
        arm = arm_of(self.request.options.unit or self.query_id, definition.draw_salt, definition.challenger_share)
        if arm == "control":
            return self._count("control", (self._take_part(arm=arm), rank(self.request, deadline)))
        rival = self._ask_challenger(rank, deadline)
        if isinstance(rival, Ranking):
            assert self.entry.challenger is not None
            request = self._take_part(arm=arm)._replace(bundle=self.entry.challenger)
            return self._count("challenger", (request, rival))
        instead = self._take_part(arm=arm, reason=f"control answered: {rival}")
        return self._count("control_instead", (instead, rank(self.request, deadline)))

    def _interleave(self, rank: RankBy, deadline: Deadline) -> ShownRanking:
        control = rank(self.request, deadline)
        if control.degraded:
            alone = self._take_part(reason="control answered alone: it was degraded")
            return self._count("control_alone", (alone, control))
        began = perf_counter()
        rival = self._ask_challenger(rank, deadline)
        milliseconds = {**control.timings_ms, "challenger": (perf_counter() - began) * 1000.0}
        if not isinstance(rival, Ranking):
            alone = self._take_part(reason=f"control answered alone: {rival}")
            return self._count("control_alone", (alone, replace(control, timings_ms=milliseconds)))
        draft = team_draft(
            control.order.tolist(),
            rival.order.tolist(),
            query_id=self.query_id,
            salt=self.entry.definition.draw_salt,
            length=self.request.options.top_n,
        )
        interleaved = replace(control, order=_move_to_front(draft.order, control.order), timings_ms=milliseconds)
        request = self._take_part(teams=draft.teams, reason=INTERLEAVED)
        return self._count("interleaved", (request, interleaved))

    def _explore(self, rank: RankBy, deadline: Deadline) -> ShownRanking:
        """Rank, with a random swap of neighbours; a degraded list takes no part, which would bias the comparison."""
        control, definition = rank(self.request, deadline), self.entry.definition
        if control.degraded:
            return self._count("degraded", (self.request, control))
        places = control.order[: self.request.options.top_n].tolist()
        swap = adjacent_swap(
            places, k=definition.k, share=definition.swap_share, query_id=self.query_id, salt=definition.draw_salt
        )
        if swap is None:
            return self._count("unswapped", (self._take_part(), control))
        request = self._take_part(intervention=Intervention("swap", swap.places, swap.propensity))
        return self._count("swapped", (request, replace(control, order=_move_to_front(swap.order, control.order))))

    def _ask_challenger(self, rank: RankBy, deadline: Deadline) -> Ranking | str:
        """Return the challenger's ranking, or why there is none."""
        challenger = self.entry.challenger
        assert challenger is not None
        name = self.entry.challenger_name
        try:
            ranking = rank(self.request._replace(bundle=challenger), deadline)
        except AbandonedError:
            raise
        except Exception as error:  # whatever a challenger raises, control answers
            self.failures.note_failure(self.entry, f"{type(error).__name__}: {error}")
            return f"{name} raised {type(error).__name__}"
        if ranking.late:
            return f"there was no time for {name}"
        if ranking.degraded:
            self.failures.note_failure(self.entry, str(ranking.reason))
            return f"{name} was degraded"
        self.failures.note_success(self.entry.definition.name)
        return ranking

    def _take_part(self, **facts: Any) -> RankingRequest:
        return self.request.join_experiment(replace(self.entry.part, **facts))

    def _count(self, name: str, outcome: ShownRanking) -> ShownRanking:
        self.metrics.requests.count(self.entry.definition.name, name)
        return outcome


def _move_to_front(first: Sequence[int], order: np.ndarray) -> np.ndarray:
    """Return an order that begins with some candidates; the others follow in their old order."""
    leads = np.zeros(len(order), dtype=bool)
    leads[list(first)] = True
    return np.concatenate([np.asarray(first, dtype=order.dtype), order[~leads[order]]])
