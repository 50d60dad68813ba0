"""A random swap of two neighbouring places: what the bias of positions is estimated from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from listwright.ranking.experiments.assignment import fraction


@dataclass(frozen=True, slots=True)
class SwappedOrder:
    """A shown list with two places swapped.

    Args:
        order: candidates as they are shown, best first.
        places: the two that were swapped, from 0.
        propensity: probability of this very swap, in (0, 1].
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
        order: ``(n,)`` the shown candidates, best first.
        k: places from the top that may move, at least 2.
        share: of lists that are swapped, in (0, 1].
        query_id: of the request. A retry gives the same list.
        salt: of the experiment.

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
