"""Team-Draft interleaving: one shown list made of two rankings, and which of them each place came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import shake_256
from typing import Literal

Team = Literal["control", "challenger"]


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A shown list.

    Args:
        order: candidates as they are shown, best first; each is an index into the request's list.
        teams: of each shown place, the ranking that picked its candidate.
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
        query_id: of the request.
        salt: of the experiment; two experiments with different salts have independent coins.
        length: shown places; None, or more than L, for all.

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
    shown = size if length is None else min(length, size)
    coins = _coins((shown + 1) // 2, query_id, salt)
    order: list[int] = []
    teams: list[Team] = []
    taken: set[int] = set()
    left = {"control": iter(control), "challenger": iter(challenger)}
    for place in range(shown):
        coin = coins[place // 2]
        team: Team = "challenger" if coin == (place % 2 == 0) else "control"
        picked = next(candidate for candidate in left[team] if candidate not in taken)
        taken.add(picked)
        order.append(picked)
        teams.append(team)
    return Interleaved(tuple(order), tuple(teams))


def _coins(count: int, query_id: str, salt: str) -> list[bool]:
    """Fair coins, True where the challenger picks first; the salt's length keeps salt and id apart."""
    salted = salt.encode()
    digest = shake_256(f"{len(salted)}:".encode() + salted + query_id.encode()).digest((count + 7) // 8)
    return [bool(digest[n // 8] >> (n % 8) & 1) for n in range(count)]
