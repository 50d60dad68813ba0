"""When lists arrive: times in seconds from the start, ascending."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

Arrivals = Literal["poisson", "bursty"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)

BURST_FACTOR, BURST_SHARE, BURST_S = 2.0, 0.1, 1.0
"""Of bursty arrivals: the rate in a burst over the mean rate, the share of the time that is burst, and the mean length
of a burst in seconds."""


def draw(kind: Arrivals, rate: float, count: int, rng: np.random.Generator) -> Float[np.ndarray, " N"]:
    """``count`` arrivals at ``rate`` lists a second on average.

    Args:
        kind: ``poisson``, independent arrivals; ``bursty``, a Poisson process whose rate switches between two values.
        rate: lists a second, above 0.
        count: N, lists.
        rng: of the draws.
    """
    if kind == "poisson":
        return np.cumsum(rng.exponential(1.0 / rate, count))
    return bursty(rate, count, rng)


def bursty(rate: float, count: int, rng: np.random.Generator) -> Float[np.ndarray, " N"]:
    """A Markov-modulated Poisson process: bursts and calm stretches take turns, each of exponential length.

    A unit-rate Poisson process is drawn first. Its times are then mapped through the inverse of the summed rate.
    """
    units = np.cumsum(rng.exponential(1.0, count))
    calm_s = BURST_S * (1.0 - BURST_SHARE) / BURST_SHARE
    calm_factor = (1.0 - BURST_FACTOR * BURST_SHARE) / (1.0 - BURST_SHARE)
    pairs = 2 + int(2.0 * units[-1] / rate / (calm_s + BURST_S))
    times, summed = np.zeros(1), np.zeros(1)
    while summed[-1] < units[-1]:
        lengths = rng.exponential((calm_s, BURST_S), (pairs, 2))
        expected = lengths * rate * (calm_factor, BURST_FACTOR)
        times = np.append(times, times[-1] + np.cumsum(lengths.ravel()))
        summed = np.append(summed, summed[-1] + np.cumsum(expected.ravel()))
    found: Float[np.ndarray, " N"] = np.interp(units, summed, times)
    return found
