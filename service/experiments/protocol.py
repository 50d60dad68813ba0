"""What the request path knows of experiments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.served.record import ShadowRanking
from listwright.service.participation import Kind
from listwright.service.wire.codec import RankingRequest

RankBy = Callable[[RankingRequest, Deadline], Ranking]
"""Ranks a request's list by its bundle."""


class Shown(NamedTuple):
    """What is answered.

    Args:
        asked: the request, with the bundle that answers and its part in an experiment.
        ranking: whose order is shown.
    """

    asked: RankingRequest
    ranking: Ranking


class Status(NamedTuple):
    """One experiment of the file.

    Args:
        name, kind, control, challenger, share: as the file says.
        reason: why it does not run; None if it does.
    """

    name: str
    kind: Kind
    control: str
    challenger: str | None
    share: float
    reason: str | None


class Report(NamedTuple):
    """All experiments of a worker.

    Args:
        experiments: of the last file that was right.
        refused: why the file as it is now is not used; None if it is.
        killed: why none runs; None if they may.
    """

    experiments: tuple[Status, ...]
    refused: str | None
    killed: str | None


@runtime_checkable
class Experiments(Protocol):
    """The experiments of one worker."""

    def start(self) -> None:
        """Begin to look at the file; bundles are loaded by then. From the event loop's thread."""
        ...

    def show(self, asked: RankingRequest, query_id: str, rank: RankBy, deadline: Deadline) -> Shown:
        """Rank as the experiment wants it that a request takes part in, if any. In the thread that ranks.

        Args:
            asked: the request.
            query_id: of the request.
            rank: ranks by a request's bundle.
            deadline: of the whole.

        Raises:
            ListwrightError: of control's ranking.
        """
        ...

    def shadow(self, asked: RankingRequest, ranking: Ranking, then: Callable[[ShadowRanking], None]) -> None:
        """Have the challenger rank what was answered, later.

        Args:
            asked: whose part is that of a shadow.
            ranking: that was answered.
            then: gets what came of it, in the event loop's thread, from which this is called.
        """
        ...

    def report(self) -> Report:
        """What runs at this moment."""
        ...

    def close(self) -> None:
        """End what runs in the background."""
        ...
