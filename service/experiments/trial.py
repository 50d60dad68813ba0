"""One request in one experiment: who ranks it, and the order that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from listwright.ranking.experiments import adjacent_swap, arm_of, team_draft
from listwright.ranking.served.record import Intervention
from listwright.service.experiments.failures import Failures
from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.experiments.protocol import RankBy, Shown
from listwright.service.experiments.roster import Entry
from listwright.service.wire.codec import RankingRequest

INTERLEAVED = "two bundles made this order: no single ranker scored it"


class RequestTrial(NamedTuple):
    """A request and the experiment that it takes part in: any but a shadow, which shows what control says.

    Args:
        entry: the experiment.
        asked: the request; its bundle is control.
        query_id: of the request.
        failures: of challengers.
        metrics: where outcomes are counted.
    """

    entry: Entry
    asked: RankingRequest
    query_id: str
    failures: Failures
    metrics: ExperimentMetrics

    def show(self, rank: RankBy, deadline: Deadline) -> Shown:
        """Rank as the kind of the experiment says.

        Args:
            rank: ranks by a request's bundle.
            deadline: of the whole, both rankers of an interleaving together.

        Raises:
            ListwrightError: of control's ranking. Whatever the challenger raises is counted, and control answers.
        """
        kind = self.entry.definition.kind
        if kind == "split":
            return self._split(rank, deadline)
        if kind == "interleave":
            return self._interleaved(rank, deadline)
        return self._explored(rank, deadline)

    def _split(self, rank: RankBy, deadline: Deadline) -> Shown:
        one = self.entry.definition
        arm = arm_of(self.asked.options.unit or self.query_id, one.drawn_with, one.challenger_share)
        if arm == "control":
            return self._counted("control", Shown(self._taking_part(arm=arm), rank(self.asked, deadline)))
        found = self._challenged(rank, deadline)
        if isinstance(found, Ranking):
            assert self.entry.challenger is not None
            asked = self._taking_part(arm=arm)._replace(bundle=self.entry.challenger)
            return self._counted("challenger", Shown(asked, found))
        instead = self._taking_part(arm=arm, reason=f"control answered: {found}")
        return self._counted("control_instead", Shown(instead, rank(self.asked, deadline)))

    def _interleaved(self, rank: RankBy, deadline: Deadline) -> Shown:
        control = rank(self.asked, deadline)
        if control.degraded:
            alone = self._taking_part(reason="control answered alone: it was degraded")
            return self._counted("control_alone", Shown(alone, control))
        began = perf_counter()
        found = self._challenged(rank, deadline)
        milliseconds = {**control.timings_ms, "challenger": (perf_counter() - began) * 1000.0}
        if not isinstance(found, Ranking):
            alone = self._taking_part(reason=f"control answered alone: {found}")
            return self._counted("control_alone", Shown(alone, replace(control, timings_ms=milliseconds)))
        drafted = team_draft(
            control.order.tolist(),
            found.order.tolist(),
            query_id=self.query_id,
            salt=self.entry.definition.drawn_with,
            length=self.asked.options.top_n,
        )
        shown = replace(control, order=_led_by(drafted.order, control.order), timings_ms=milliseconds)
        asked = self._taking_part(teams=drafted.teams, reason=INTERLEAVED)
        return self._counted("interleaved", Shown(asked, shown))

    def _explored(self, rank: RankBy, deadline: Deadline) -> Shown:
        """A degraded list takes no part: else the swapped lists would be the better ones."""
        control, one = rank(self.asked, deadline), self.entry.definition
        if control.degraded:
            return self._counted("degraded", Shown(self.asked, control))
        shown = control.order[: self.asked.options.top_n].tolist()
        swap = adjacent_swap(shown, k=one.k, share=one.swap_share, query_id=self.query_id, salt=one.drawn_with)
        if swap is None:
            return self._counted("unswapped", Shown(self._taking_part(), control))
        asked = self._taking_part(intervention=Intervention("swap", swap.places, swap.propensity))
        return self._counted("swapped", Shown(asked, replace(control, order=_led_by(swap.order, control.order))))

    def _challenged(self, rank: RankBy, deadline: Deadline) -> Ranking | str:
        """What the challenger made of the list, or why there is nothing of it."""
        challenger = self.entry.challenger
        assert challenger is not None
        name = self.entry.challenger_name
        try:
            ranking = rank(self.asked._replace(bundle=challenger), deadline)
        except AbandonedError:
            raise
        except Exception as error:  # a challenger harms nobody: whatever it raises, control answers
            self.failures.failed(self.entry, f"{type(error).__name__}: {error}")
            return f"{name} raised {type(error).__name__}"
        if ranking.late:
            return f"there was no time for {name}"
        if ranking.degraded:
            self.failures.failed(self.entry, str(ranking.reason))
            return f"{name} was degraded"
        self.failures.succeeded(self.entry.definition.name)
        return ranking

    def _taking_part(self, **facts: Any) -> RankingRequest:
        return self.asked.within(replace(self.entry.part, **facts))

    def _counted(self, outcome: str, shown: Shown) -> Shown:
        self.metrics.requests.count(self.entry.definition.name, outcome)
        return shown


def _led_by(first: Sequence[int], order: np.ndarray) -> np.ndarray:
    """An order that begins with some candidates; the others follow as they stood."""
    taken = np.zeros(len(order), dtype=bool)
    taken[list(first)] = True
    return np.concatenate([np.asarray(first, dtype=order.dtype), order[~taken[order]]])
