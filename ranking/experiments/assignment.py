"""Who gets what, by hash: the same on every worker and replica, and after every restart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

Purpose = Literal["traffic", "arm", "swap", "pair"]
"""What is drawn. Draws of one key for two purposes are independent."""


def fraction(key: str, salt: str, purpose: Purpose) -> float:
    """A number in [0, 1), uniform over keys: the first 53 bits of BLAKE2b of salt and key.

    Args:
        key: a unit, or a query id.
        salt: of the experiment; other salts give independent numbers. Its length keeps salt and key apart.
        purpose: of the draw.
    """
    salted = salt.encode("utf-8", "surrogatepass")
    hashed = blake2b(f"{len(salted)}:".encode() + salted, digest_size=8, person=purpose.encode())
    hashed.update(key.encode("utf-8", "surrogatepass"))
    return (int.from_bytes(hashed.digest(), "big") >> 11) * 2.0**-53


def bounds(shares: Sequence[float]) -> list[float]:
    """Where the ranges of shares end, one behind the other from 0; shares that add up to 1 end at 1."""
    return [math.fsum(shares[: place + 1]) for place in range(len(shares))]


def place_of(key: str, salt: str, shares: Sequence[float]) -> int | None:
    """Which of several shares of the traffic a key belongs to.

    Args:
        key: a unit, or a query id.
        salt: of the traffic.
        shares: each above 0; together at most 1.

    Returns:
        The index of the share; None for the rest of the traffic.

    Convention: a share that is added behind the others, or removed there, moves no key between the others.
    """
    at = fraction(key, salt, "traffic")
    return next((place for place, end in enumerate(bounds(shares)) if at < end), None)


def arm_of(unit: str, salt: str, challenger_share: float) -> Literal["control", "challenger"]:
    """The arm of a unit in a split.

    Args:
        unit: that is randomised; the query id where there is none.
        salt: of the experiment.
        challenger_share: of the units.

    Convention: a larger share moves units from control to the challenger, and none back.
    """
    return "challenger" if fraction(unit, salt, "arm") < challenger_share else "control"
