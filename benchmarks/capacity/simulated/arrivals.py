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
    turns = rng.spawn(1)[0]
    units = np.cumsum(rng.exponential(1.0, count))
    times, summed = _bursts(units[-1] / rate, turns)
    found: Float[np.ndarray, " N"] = np.interp(units, summed * rate, times)
    return found


def part(kind: Arrivals, rate: float, begin_s: float, seconds: float, seed: int) -> Float[np.ndarray, " N"]:
    """So many seconds of a load, from its second ``begin_s`` on; in seconds from there.

    The same second has the same lists whatever came before. At another rate they come as much faster, and bursts are at
    the same times.
    """
    end_s = begin_s + seconds
    even = np.array([0.0, end_s])
    times, summed = (even, even) if kind == "poisson" else _bursts(end_s, np.random.default_rng(seed))
    before, after = np.interp([begin_s, end_s], times, summed) * rate
    rng, units = np.random.default_rng((seed, round(1e3 * begin_s))), np.zeros(1)
    while units[-1] < after - before:
        units = np.append(units, units[-1] + np.cumsum(rng.exponential(1.0, 100)))
    due: Float[np.ndarray, " N"] = np.interp(before + units[1:], summed * rate, times) - begin_s
    return due[: np.searchsorted(units[1:], after - before)]


def _bursts(seconds: float, rng: np.random.Generator) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Times of at least so many seconds at which the rate switches, and lists that are expected by then at a mean rate
    of one a second.
    """
    calm_s = BURST_S * (1.0 - BURST_SHARE) / BURST_SHARE
    calm_factor = (1.0 - BURST_FACTOR * BURST_SHARE) / (1.0 - BURST_SHARE)
    pairs = 2 + int(2.0 * seconds / (calm_s + BURST_S))
    times, summed = np.zeros(1), np.zeros(1)
    while min(summed[-1], times[-1]) < seconds:
        lengths = rng.exponential((calm_s, BURST_S), (pairs, 2))
        times = np.append(times, times[-1] + np.cumsum(lengths.ravel()))
        summed = np.append(summed, summed[-1] + np.cumsum((lengths * (calm_factor, BURST_FACTOR)).ravel()))
    return times, summed
