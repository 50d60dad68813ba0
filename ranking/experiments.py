"""Experiments on traffic, as functions of ids and of a salt: the same on every worker and replica, after every restart.

:func:`place_of` and :func:`arm_of` assign traffic, :func:`team_draft` interleaves two rankings into one list,
:func:`adjacent_swap` swaps two places to estimate position bias, and :func:`agreement` compares two orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from listwright.ranking.order import ranks_of

Purpose = Literal["traffic", "arm", "swap", "pair"]
"""What is drawn. Draws of one key for two purposes are independent."""


def fraction(key: str, salt: str, purpose: Purpose) -> float:
    """Return a number in [0, 1), uniform over keys: the first 53 bits of BLAKE2b of salt and key.

    Args:
        key: A unit, or a query id.
        salt: Salt of the experiment; other salts give independent numbers. Its length keeps salt and key apart.
        purpose: Purpose of the number; other purposes give independent numbers.
    """
    salted = salt.encode("utf-8", "surrogatepass")
    hashed = blake2b(f"{len(salted)}:".encode() + salted, digest_size=8, person=purpose.encode())
    hashed.update(key.encode("utf-8", "surrogatepass"))
    return (int.from_bytes(hashed.digest(), "big") >> 11) * 2.0**-53


def bounds(shares: Sequence[float]) -> list[float]:
    """Return where the range of each share ends, one behind the other from 0; shares that add up to 1 end at 1."""
    return [math.fsum(shares[: place + 1]) for place in range(len(shares))]


def place_of(key: str, salt: str, shares: Sequence[float]) -> int | None:
    """Return the index of the share of the traffic that a key belongs to.

    Args:
        key: A unit, or a query id.
        salt: Salt of the traffic.
        shares: Shares of the traffic, each above 0; together at most 1.

    Returns:
        The index of the share; None for the rest of the traffic.

    Convention: a share that is added behind the others, or removed there, moves no key between the others.
    """
    at = fraction(key, salt, "traffic")
    return next((place for place, end in enumerate(bounds(shares)) if at < end), None)


def arm_of(unit: str, salt: str, challenger_share: float) -> Literal["control", "challenger"]:
    """Return the arm of a unit in a split.

    Args:
        unit: Unit that is randomised; the query id where there is none.
        salt: Salt of the experiment.
        challenger_share: The challenger's share of the units.

    Convention: a larger share moves units from control to the challenger, and none back.
    """
    return "challenger" if fraction(unit, salt, "arm") < challenger_share else "control"


Team = Literal["control", "challenger"]


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A list interleaved from two rankings.

    Args:
        order: ``(shown,)`` indices of the candidates in the request's list, in the order that is shown.
        teams: ``(shown,)`` ranking that picked the candidate of each place.
    """

    order: tuple[int, ...]
    teams: tuple[Team, ...]


def team_draft(
    control: Sequence[int], challenger: Sequence[int], *, query_id: str, salt: str, length: int | None = None
) -> Interleaved:
    """Interleave two rankings of the same candidates.

    Definition (Radlinski, Kurup, Joachims 2008, algorithm 2): in each round both rankings pick once, and a fair coin
    says which one picks first. A pick is the ranking's best candidate that nobody has picked. A candidate that both
    rank next goes to the ranking whose turn it is.

    The coins are the bits of SHAKE-256 of the salt and the query id. A retry, another worker and another replica give
    the same list.

    Args:
        control, challenger: ``(L,)`` permutations of the same L candidates, best first.
        query_id: Query id of the request.
        salt: Salt of the experiment; two experiments with different salts have independent coins.
        length: Number of shown places; None, or more than L, for all.

    Raises:
        ValueError: if the two rankings do not hold the same candidates once each, or the length is negative.

    Convention: an empty list stays empty. Of an odd number of places the team that the last coin names has one more.
    """
    size = len(control)
    if len(set(control)) < size or len(challenger) != size or set(control) != set(challenger):
        raise ValueError(
            f"rankings of {size} and {len(challenger)} candidates: expected the same candidates, each once, in both"
        )
    if length is not None and length < 0:
        raise ValueError(f"length {length}: expected 0 or more places")
    places = size if length is None else min(length, size)
    coins = _coins((places + 1) // 2, query_id, salt)
    order, teams, picks = list[int](), list[Team](), set[int]()
    rankings = {"control": iter(control), "challenger": iter(challenger)}
    for place in range(places):
        coin = coins[place // 2]
        team: Team = "challenger" if coin == (place % 2 == 0) else "control"
        candidate = next(candidate for candidate in rankings[team] if candidate not in picks)
        picks.add(candidate)
        order.append(candidate)
        teams.append(team)
    return Interleaved(tuple(order), tuple(teams))


def _coins(count: int, query_id: str, salt: str) -> list[bool]:
    """Flip fair coins, True where the challenger picks first; the salt's length keeps salt and id apart."""
    salted = salt.encode()
    digest = shake_256(f"{len(salted)}:".encode() + salted + query_id.encode()).digest((count + 7) // 8)
    return [bool(digest[n // 8] >> (n % 8) & 1) for n in range(count)]


@dataclass(frozen=True, slots=True)
class SwappedOrder:
    """A shown list with two places swapped.

    Args:
        order: ``(shown,)`` indices of the candidates in the order that is shown.
        places: The two places that were swapped, from 0.
        propensity: Probability of this very swap, in (0, 1].
    """

    order: tuple[int, ...]
    places: tuple[int, int]
    propensity: float


def adjacent_swap(order: Sequence[int], *, k: int, share: float, query_id: str, salt: str) -> SwappedOrder | None:
    """Swap one random pair of neighbours among the first k places, in a share of lists.

    Definition (after FairPairs, Radlinski and Joachims 2006, and the swaps of Joachims, Swaminathan, Schnabel 2017,
    section 5.3): each of the m - 1 pairs of the first m = min(k, n) of n places has the same probability,
    share / (m - 1).

    Args:
        order: ``(shown,)`` indices of the shown candidates, best first.
        k: Number of places from the top that may move, at least 2.
        share: Share of the lists that are swapped, in (0, 1].
        query_id: Query id of the request. A retry gives the same list.
        salt: Salt of the experiment.

    Returns:
        The swapped list; None where this list is not swapped.

    Convention: a list of fewer than two places is never swapped.
    """
    pairs = min(k, len(order)) - 1
    if pairs < 1 or fraction(query_id, salt, "swap") >= share:
        return None
    upper = int(fraction(query_id, salt, "pair") * pairs)
    swapped = list(order)
    swapped[upper], swapped[upper + 1] = swapped[upper + 1], swapped[upper]
    return SwappedOrder(tuple(swapped), (upper, upper + 1), share / pairs)


PERSISTENCE = 0.9
"""p of rank-biased overlap: the first ten places have 86 % of the weight."""

SMALL = 64
"""Lengths whose pairs are counted one by one."""


class Agreement(NamedTuple):
    """Agreement of two orders.

    Args:
        kendall_tau: Kendall's tau in [-1, 1]; 1 for the same order, -1 for the opposite one.
        rbo: Rank-biased overlap in (0, 1]; 1 for the same order; the top counts most.
        top_1: 1.0 if both orders have the same first candidate, else 0.0.
    """

    kendall_tau: float
    rbo: float
    top_1: float


def agreement(order: Int[np.ndarray, " L"], other: Int[np.ndarray, " L"]) -> Agreement:
    """Compare two orders of the same L candidates, best first.

    Definitions: Kendall's tau is 1 - 4 D / (L (L - 1)), D the pairs in different order (Kendall 1938; there are no
    ties). Rank-biased overlap is the extrapolated one (Webber, Moffat, Zobel 2010, eq. 32), with p = 0.9.

    Raises:
        ValueError: if they do not hold the candidates 0 to L - 1, each once.

    Convention: lists of one candidate agree; so do lists of none.
    """
    length = len(order)
    if len(other) != length or not all(np.array_equal(np.sort(items), np.arange(length)) for items in (order, other)):
        raise ValueError(f"orders of {length} and {len(other)} candidates: expected 0 to L - 1, each once, in both")
    if length < 2:
        return Agreement(1.0, 1.0, 1.0)
    discordant = _inversions(ranks_of(other)[order])
    tau = 1.0 - 4.0 * discordant / (length * (length - 1))
    return Agreement(tau, _rank_biased_overlap(order, other), float(order[0] == other[0]))


def _inversions(values: Int[np.ndarray, " L"]) -> int:
    """Count the pairs whose first value is the larger one; values are distinct."""
    length = len(values)
    if length <= SMALL:
        return int(np.triu(values[:, None] > values[None, :], 1).sum())
    left, right = values[: length // 2], values[length // 2 :]
    between = len(left) * len(right) - int(np.searchsorted(np.sort(left), right).sum())
    return between + _inversions(left) + _inversions(right)


def _rank_biased_overlap(order: Int[np.ndarray, " L"], other: Int[np.ndarray, " L"]) -> float:
    length = len(order)
    depths = np.arange(1, length + 1)
    in_both = np.maximum(ranks_of(order), ranks_of(other))  # the depth from which a candidate is in both
    overlap = np.cumsum(np.bincount(in_both, minlength=length + 1)[1:]) / depths
    weights = PERSISTENCE ** depths.astype(np.float64)
    within_lists = (1.0 - PERSISTENCE) / PERSISTENCE * float((overlap * weights).sum())
    return min(1.0, within_lists + float(overlap[-1] * weights[-1]))
