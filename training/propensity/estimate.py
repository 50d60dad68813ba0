"""Propensities from judged rows, or a clear refusal where the data cannot say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.progress import SILENT, Progress
from listwright.training.propensity.all_pairs import all_pairs
from listwright.training.propensity.evidence import Evidence, Way
from listwright.training.propensity.harvest import harvest_evidence
from listwright.training.propensity.swaps import swap_evidence
from listwright.training.recipe.propensity import PlacePropensity, PropensityFile

FEWEST_CLICKS = 30
"""At each place of a pair, and for a swap in each of its two variants, below which the pair says nothing."""

RESAMPLES = 300

HIGHEST = 1e6
"""Of a propensity that is written: beyond, a bootstrap sample had no click at the first place."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """Estimated examination of the places.

    Args:
        way: what it comes from.
        values, low, high: ``(K,)`` relative to the first place, and the ends of the 95 % bootstrap interval.
        queries: that were looked at.
        used: swaps; or the requests that came in different orders.
        clicks: ``(K,)`` that speak of each place.
    """

    way: Way
    values: Float[np.ndarray, " K"]
    low: Float[np.ndarray, " K"]
    high: Float[np.ndarray, " K"]
    queries: int
    used: int
    clicks: Float[np.ndarray, " K"]

    def file(self, command: str) -> PropensityFile:
        """As it is stored."""
        rows = zip(self.values, self.low, self.high, strict=True)
        places = tuple(
            PlacePropensity(position=k, propensity=round(float(p), 6), low=round(float(a), 6), high=round(float(b), 6))
            for k, (p, a, b) in enumerate(rows, start=1)
        )
        said = {"command": command, "method": self.way, "queries": self.queries, "used": self.used}
        return PropensityFile(positions=places, **said)  # type: ignore[arg-type]


def estimate(
    path: Path, *, way: Way | None, places: int | None, same: str | None, seed: int = 0, progress: Progress = SILENT
) -> PositionBias:
    """How likely each place is looked at.

    Args:
        path: judged rows, a Parquet file or a folder of them.
        way: ``swaps``, ``harvest``, or None for swaps where there are any.
        places: K; None for all that the evidence reaches.
        same: column that says which queries asked the same; see
            :func:`listwright.training.propensity.harvest.harvest_evidence`.
        seed: of the bootstrap.
        progress: told every bootstrap sample, once the data can say.

    Raises:
        RecipeError: if fewer than two places are asked for.
        DataError: if the data cannot say; names what is lacking, and for how many places they can.
    """
    if places is not None and places < 2:
        raise RecipeError(f"--positions {places}: expected 2 or more, propensities are relative to the first")
    rng = np.random.default_rng(seed)
    evidence = _found(path, way, places, same)
    count = int(evidence.pairs.max()) + 1 if places is None else places
    whole = evidence.whole()
    _check_enough(path, evidence, whole, count)
    values = all_pairs(evidence.pairs, whole, count)
    drawn, task = [], progress.begin("Bootstrap samples", RESAMPLES)
    for sample in evidence.resampled(RESAMPLES, rng):
        drawn.append(np.minimum(all_pairs(evidence.pairs, sample, count), HIGHEST))
        task.reach(len(drawn))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    clicks = np.bincount(evidence.pairs.ravel(), _clicks(evidence).sum(axis=1).ravel(), count)
    return PositionBias(evidence.way, values, low, high, evidence.queries, evidence.used, clicks)


def _found(path: Path, way: Way | None, places: int | None, same: str | None) -> Evidence:
    if way != "harvest":
        evidence = swap_evidence(path, places)
        if evidence is not None:
            return evidence
        if way == "swaps":
            raise DataError(
                path, "no two places were swapped: serve an experiment of kind explore, or --method harvest"
            )
    evidence = harvest_evidence(path, places, same=same)
    if evidence is None:
        swapped = "no two places were swapped, and " if way is None else ""
        raise DataError(
            path,
            f"{swapped}no request was shown in two orders by two bundles: serve an experiment of kind explore, or say "
            "with --same COL which queries asked the same",
        )
    return evidence


def _clicks(evidence: Evidence) -> Float[np.ndarray, "P *variants 2"]:
    """Clicks of each pair, by variant and place; of harvested pairs there is one variant."""
    clicks = np.sum([stratum.sum(axis=0)[:, :, 1:] for stratum in evidence.strata], axis=0)
    found: Float[np.ndarray, "P *variants 2"] = clicks if evidence.way == "swaps" else clicks[:, 1:]
    return found


def _check_enough(path: Path, evidence: Evidence, whole: Float[np.ndarray, "P 3"], places: int) -> None:
    """Raise DataError unless pairs with enough clicks link every place with the first."""
    enough = (_clicks(evidence) >= FEWEST_CLICKS).all(axis=(1, 2))
    linked = {0}
    for _ in range(places):
        linked |= {int(k) for pair in evidence.pairs[enough] if linked & set(pair.tolist()) for k in pair}
    missing = sorted(set(range(places)) - linked)
    if not missing:
        return
    reach = next((k for k in range(places) if k not in linked), places)
    lacking = "; ".join(_lacking(evidence, whole, k) for k in missing[:3])
    remedy = f"--positions {reach} takes what the data can say" if reach > 1 else "log more requests"
    raise DataError(path, f"the data cannot say how likely place {missing[0] + 1} is looked at: {lacking}; {remedy}")


def _lacking(evidence: Evidence, whole: Float[np.ndarray, "P 3"], place: int) -> str:
    """What the best pair of a place lacks."""
    pairs = [n for n, pair in enumerate(evidence.pairs.tolist()) if place in pair and min(pair) < place]
    if not pairs:
        return f"nothing exchanged place {place + 1} with one above it"
    best = max(pairs, key=lambda n: float(whole[n, 1:].min()))
    upper, lower = (evidence.pairs[best] + 1).tolist()
    clicks = _clicks(evidence)[best]
    if evidence.way == "harvest":
        said = f"{clicks.min():.0f} clicks at one of places {upper} and {lower}"
        return f"{said} for candidates that were shown at both, {FEWEST_CLICKS} are needed"
    swaps = sum(float(stratum[:, best, 1, 0].sum()) for stratum in evidence.strata)
    fewest = float(clicks[1].min())
    said = f"places {upper} and {lower} were swapped {swaps:,.0f} times, with {fewest:.0f} clicks at one of them"
    if fewest >= FEWEST_CLICKS:
        return f"places {upper} and {lower} have {clicks[0].min():.0f} clicks without a swap; swap a smaller share"
    more = f"about {math.ceil(swaps * (FEWEST_CLICKS / fewest - 1.0)):,} more swaps" if fewest else "many more swaps"
    return f"{said}; {more} are needed for {FEWEST_CLICKS}"
