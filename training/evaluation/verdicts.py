"""What a difference is, by its interval: one of three things, in the same words everywhere."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["gain", "no difference shown", "harm"]

FEWEST = 20
"""Queries below which a bootstrap interval is too narrow to choose by."""


SAME = 0.002
"""NDCG: a difference of less is practically none, and the simpler ranker stays."""


def verdict_of(low: float, high: float) -> Verdict:
    """What a 95 % interval of a difference says.

    Args:
        low, high: its ends.

    Returns:
        A gain if all of it lies above 0, harm if all of it lies below.

    Convention: an interval that ends at 0 holds 0, and one of NaN shows nothing.
    """
    if low > 0.0:
        return "gain"
    return "harm" if high < 0.0 else "no difference shown"


def choice_verdict_of(
    low: float, high: float, n: int, *, in_time: bool = True
) -> Verdict | Literal["too few queries", "not enough time"]:
    """The same where something is chosen by it: of fewer than :data:`FEWEST` queries it says nothing.

    Args:
        low, high: its ends.
        n: queries that count.
        in_time: whether there was time to find out; a gain is one in any case.
    """
    if n < FEWEST:
        return "too few queries"
    verdict = verdict_of(low, high)
    return verdict if in_time or verdict == "gain" else "not enough time"
