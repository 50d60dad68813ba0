"""Balancers: which replica gets the next list.

Each knows how many lists every replica has and has not answered yet, as far as they went through the balancer itself.
The rules are those of haproxy: ``random(1)``, ``roundrobin``, ``leastconn`` and ``random(2)``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

Balancer = Literal["random", "round robin", "least connections", "power of two choices"]
BALANCERS: tuple[Balancer, ...] = get_args(Balancer)

HAPROXY: dict[Balancer, str] = {
    "random": "random(1)",
    "round robin": "roundrobin",
    "least connections": "leastconn",
    "power of two choices": "random(2)",
}
"""What each is called in ``balance`` of haproxy's configuration."""

Open = Int[np.ndarray, " R"]
"""``(R,)`` lists that each replica has and has not answered; the simulation changes it."""


def chooser(balancer: Balancer, open_lists: Open, seed: int) -> Callable[[], int]:
    """A function that returns the number of the replica that gets the next list.

    Args:
        balancer: the rule.
        open_lists: ``(R,)`` read at each call.
        seed: of the draws.

    Convention: of equally loaded replicas ``least connections`` takes the first. ``power of two choices`` draws two
    replicas with replacement, as haproxy does: with two replicas, half of its draws are no choice.
    """
    replicas, draw = len(open_lists), random.Random(seed).random
    if balancer == "random":
        return lambda: int(draw() * replicas)
    if balancer == "round robin":
        return _round_robin(replicas)
    if balancer == "least connections":
        return lambda: int(open_lists.argmin())

    def better_of_two() -> int:
        one, other = int(draw() * replicas), int(draw() * replicas)
        return one if open_lists[one] <= open_lists[other] else other

    return better_of_two


def _round_robin(replicas: int) -> Callable[[], int]:
    last = -1

    def following() -> int:
        nonlocal last
        last = (last + 1) % replicas
        return last

    return following
