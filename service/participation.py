"""Participation of one request in an experiment, for its answer, its log line and its served record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from listwright.ranking.served_log.record import Intervention, ShadowRanking

Kind = Literal["shadow", "split", "interleave", "explore"]
Arm = Literal["control", "challenger"]
Team = Literal[Arm, "rule"]


@dataclass(frozen=True, slots=True)
class Participation:
    """The part of one request in an experiment.

    Args:
        experiment: Name of the experiment.
        kind: Kind of the experiment.
        arm: Arm that the unit belongs to; of a split only.
        teams: Arm that picked each shown place, or ``rule`` where a rule did; of an interleaved list only.
        intervention: Random change of the order; None where there was none.
        shadow: Challenger's ranking of the list, once there is one.
        reason: Reason why the answer differs from what the experiment asks for, or has no scores; None otherwise.
    """

    experiment: str
    kind: Kind
    arm: Arm | None = None
    teams: tuple[Team, ...] | None = None
    intervention: Intervention | None = None
    shadow: ShadowRanking | None = None
    reason: str | None = None

    @property
    def is_visible(self) -> bool:
        """Whether the answer mentions the experiment: a shadow changes no byte of it."""
        return self.kind != "shadow"
