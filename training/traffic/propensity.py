"""Propensities of places from judged rows, or a clear refusal where the data do not suffice.

The evidence is click rates of the same candidates at two places: of places that were exchanged at random (swaps), or of
requests that several bundles ranked differently (intervention harvesting). The all-pairs estimator makes the places'
examination of them. Lists that rules of merchandising reordered are left out, and of swaps all lists with rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data.tables.judged import collected, scan_judged
from listwright.training.evaluation.bootstrap import percentile_interval, resample_sums
from listwright.training.recipe.data import PlacePropensity, PropensityFile

FEWEST_CLICKS = 30
"""Fewest clicks at each place of a pair, and for a swap in each variant; pairs with fewer are left out."""

RESAMPLES = 300
"""Number of bootstrap samples: each takes a fit."""

HIGHEST = 1e6
"""Largest propensity that is written: beyond, a bootstrap sample had no click at the first place."""

_SWAPPED_COLUMNS = ("query_id", "position", "label", "unit", "bundle", "experiment", "swapped")

_CELL = ("bundle", "experiment", "shown")

_HARVESTED_COLUMNS = ("query_id", "candidate_id", "position", "label", "bundle")

_ORDER_STAYS = ("exclude", "cutoff", "cutoff exclude")
"""Actions of rules, as ``listwright join`` writes them, that leave the order of the others."""

_KEY = " request"
"""Column with the hash of the request: a name that no column of the rows has."""

_RATES, _COUNTS = ("rate", "rate_lower"), ("len", "clicks", "clicks_lower")

_EDGE = 1e-6
"""Distance of examination and relevance from 0 and 1, as their logarithms are taken."""

MOST_GROUPS = 500
"""Most bootstrap groups, to which units or requests are assigned."""

Way = Literal["swaps", "harvest"]


@dataclass(frozen=True, slots=True)
class PositionBias:
    """Estimated examination of the places.

    Args:
        way: Source of the estimate: ``swaps`` or ``harvest``.
        values, low, high: ``(places,)`` propensities relative to the first place, and the ends of the 95 % bootstrap
            interval.
        queries: Number of queries.
        observations: Number of swaps, or of requests that came in different orders.
        clicks: ``(places,)`` numbers of clicks that bear on each place.
        log_covariance: Covariance of the logarithms of the propensities, over the bootstrap samples.
    """

    way: Way
    values: Float[np.ndarray, " places"]
    low: Float[np.ndarray, " places"]
    high: Float[np.ndarray, " places"]
    queries: int
    observations: int
    clicks: Float[np.ndarray, " places"]
    log_covariance: Float[np.ndarray, "places places"]

    def file(self, command: str) -> PropensityFile:
        """Return the estimate in its file format."""
        rows = zip(self.values, self.low, self.high, strict=True)
        places = tuple(
            PlacePropensity(position=k, propensity=round(float(p), 6), low=round(float(a), 6), high=round(float(b), 6))
            for k, (p, a, b) in enumerate(rows, start=1)
        )
        facts = {"command": command, "method": self.way, "queries": self.queries, "used": self.observations}
        covariance = tuple(tuple(float(f"{value:.6g}") for value in row) for row in self.log_covariance)
        return PropensityFile(positions=places, log_covariance=covariance, **facts)  # type: ignore[arg-type]


def estimate(
    path: Path, *, way: Way | None, places: int | None, same: str | None, seed: int = 0, progress: Progress = SILENT
) -> PositionBias:
    """Estimate how likely each place is examined.

    Args:
        path: Parquet file of judged rows, or a folder of them.
        way: Source of the estimate: ``swaps``, ``harvest``, or None for swaps where there are any.
        places: Number of places, K; None for all that the evidence reaches.
        same: Column by which equal requests are recognised; see :func:`harvest_evidence`.
        seed: Seed of the bootstrap.
        progress: Report of the bootstrap samples, once the data suffice.

    Raises:
        RecipeError: if ``places`` is less than two.
        DataError: if the data cannot say; names what is lacking, and for how many places they can.
    """
    if places is not None and places < 2:
        raise RecipeError(f"--positions {places}: expected 2 or more, propensities are relative to the first")
    evidence = _collect_evidence(path, way, places, same)
    count = int(evidence.pairs.max()) + 1 if places is None else places
    whole = evidence.totals()
    _check_enough(path, evidence, whole, count)
    values = all_pairs(evidence.pairs, whole, count)
    estimates, task = np.empty((RESAMPLES, count)), progress.begin("Bootstrap samples", RESAMPLES)
    for n, sample in enumerate(evidence.resample(RESAMPLES, seed)):
        estimates[n] = np.minimum(all_pairs(evidence.pairs, sample, count), HIGHEST)
        task.reach(n + 1)
    low, high = percentile_interval(estimates)
    clicks = np.bincount(evidence.pairs.ravel(), _clicks(evidence).sum(axis=1).ravel(), count)
    covariance = np.cov(np.log(np.maximum(estimates, _EDGE)), rowvar=False)
    return PositionBias(evidence.way, values, low, high, evidence.queries, evidence.observations, clicks, covariance)


def _collect_evidence(path: Path, way: Way | None, places: int | None, same: str | None) -> Evidence:
    if way != "harvest":
        evidence = swap_evidence(path, places)
        if evidence is not None:
            return evidence
        if way == "swaps":
            fault = "no two places were swapped: serve an experiment of kind explore, or --method harvest"
            raise DataError(path, fault)
    evidence = harvest_evidence(path, places, same=same)
    if evidence is None:
        swapped = "no two places were swapped, and " if way is None else ""
        raise DataError(
            path,
            f"{swapped}no request was shown in two orders by two bundles: serve an experiment of kind explore, or say "
            "with --same COL which queries asked the same",
        )
    return evidence


def _clicks(evidence: Evidence) -> Float[np.ndarray, "pairs *variants 2"]:
    """Return the clicks of each pair, by variant and place; harvested pairs have one variant."""
    clicks = np.sum([stratum.sum(axis=0)[:, :, 1:] for stratum in evidence.strata], axis=0)
    counts: Float[np.ndarray, "pairs *variants 2"] = clicks if evidence.way == "swaps" else clicks[:, 1:]
    return counts


def _check_enough(path: Path, evidence: Evidence, whole: Float[np.ndarray, "pairs 3"], places: int) -> None:
    """Raise DataError unless pairs with enough clicks link every place with the first."""
    has_enough_clicks = (_clicks(evidence) >= FEWEST_CLICKS).all(axis=(1, 2))
    linked = {0}
    for _ in range(places):
        linked |= {int(k) for pair in evidence.pairs[has_enough_clicks] if linked & set(pair.tolist()) for k in pair}
    missing = sorted(set(range(places)) - linked)
    if not missing:
        return
    reach = next((k for k in range(places) if k not in linked), places)
    lacking = "; ".join(_lacking(evidence, whole, k) for k in missing[:3])
    remedy = f"--positions {reach} takes what the data can say" if reach > 1 else "log more requests"
    raise DataError(path, f"the data cannot say how likely place {missing[0] + 1} is looked at: {lacking}; {remedy}")


def _lacking(evidence: Evidence, whole: Float[np.ndarray, "pairs 3"], place: int) -> str:
    """Describe what a place's best pair lacks."""
    pairs = [n for n, pair in enumerate(evidence.pairs.tolist()) if place in pair and min(pair) < place]
    if not pairs:
        return f"nothing exchanged place {place + 1} with one above it"
    best = max(pairs, key=lambda n: float(whole[n, 1:].min()))
    upper, lower = (evidence.pairs[best] + 1).tolist()
    clicks = _clicks(evidence)[best]
    if evidence.way == "harvest":
        reason = f"{clicks.min():.0f} clicks at one of places {upper} and {lower}"
        return f"{reason} for candidates that were shown at both, {FEWEST_CLICKS} are needed"
    swaps = sum(float(stratum[:, best, 1, 0].sum()) for stratum in evidence.strata)
    fewest = float(clicks[1].min())
    reason = f"places {upper} and {lower} were swapped {swaps:,.0f} times, with {fewest:.0f} clicks at one of them"
    if fewest >= FEWEST_CLICKS:
        return f"places {upper} and {lower} have {clicks[0].min():.0f} clicks without a swap; swap a smaller share"
    more = f"about {math.ceil(swaps * (FEWEST_CLICKS / fewest - 1.0)):,} more swaps" if fewest else "many more swaps"
    return f"{reason}; {more} are needed for {FEWEST_CLICKS}"


class _Stratum(NamedTuple):
    """Requests of one bundle, one experiment and one length, each in its unit's group."""

    clicked: Int[np.ndarray, "N places"]  # -1 where nothing was shown
    swapped: Bool[np.ndarray, "N places"]
    group: Int[np.ndarray, " N"]


def swap_evidence(path: Path, places: int | None) -> Evidence | None:
    """Collect clicks at swapped and at unswapped places; None where nothing was swapped."""
    # Which requests are swapped is drawn at random. So the candidates that a swap moved down are, in distribution,
    # those that stayed above elsewhere (Joachims, Swaminathan, Schnabel 2017, section 5.3), among requests of one
    # bundle and one experiment, and of as many shown candidates: a pair of a short list is swapped more often. With
    # rules it does not hold: a swap with an excluded candidate is dropped.
    rows = scan_judged(path, _SWAPPED_COLUMNS, rules=())
    deepest = collected(rows.filter("swapped").select(pl.col("position").max()), path).item()
    if deepest is None:
        return None
    places = int(deepest) if places is None else places
    lengths = rows.group_by("query_id").agg(pl.len().clip(upper_bound=int(deepest)).alias("shown"))
    rows = rows.join(lengths, on="query_id")
    cells = collected(rows.filter("swapped").select(_CELL).unique(), path).sort(_CELL)
    by_cell = [_stratum(rows, path, cell, places) for cell in cells.iter_rows()]
    pairs = sorted({(int(k), int(j)) for stratum in by_cell for k, j in _moved(stratum.swapped) if k >= 0})
    if not pairs:
        return None
    strata = tuple(_sums(stratum, pairs) for stratum in by_cell)
    queries = sum(len(stratum.clicked) for stratum in by_cell)
    observations = sum(int((_moved(stratum.swapped)[:, 0] >= 0).sum()) for stratum in by_cell)
    return Evidence("swaps", np.array(pairs), strata, queries, observations)


def _stratum(rows: pl.LazyFrame, path: Path, cell: tuple[object, ...], places: int) -> _Stratum:
    """Collect the requests of one bundle, experiment and length; one swapped beyond the last place keeps one place."""
    same = (pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(_CELL, cell, strict=True))
    unit = pl.coalesce(pl.col("unit").cast(pl.String), pl.col("query_id").cast(pl.String))
    frame = collected(
        rows.filter(*same, pl.col("position") <= places).select(
            pl.col("query_id").rank("dense").alias("query") - 1,
            pl.col("position") - 1,
            pl.col("label") > 0,
            "swapped",
            (unit.hash(0) % MOST_GROUPS).cast(pl.Int64),
        ),
        path,
    )
    query, place, click, moved, dealt = (frame[name].to_numpy() for name in frame.columns)
    shape = (int(query.max()) + 1, places)
    clicked = np.full(shape, -1, dtype=np.int8)
    clicked[query, place] = click
    part = np.zeros(shape, dtype=bool)
    part[query, place] = moved
    group = np.zeros(shape[0], dtype=np.int64)
    group[query] = dealt
    return _Stratum(clicked, part, group)


def _moved(part: Bool[np.ndarray, "N places"]) -> Int[np.ndarray, "N 2"]:
    """Return ``(N, 2)`` the two places that were exchanged; -1 where there are not two."""
    two = part.sum(axis=1) == 2
    places = np.full((len(part), 2), -1)
    places[two] = np.argwhere(part[two])[:, 1].reshape(-1, 2)
    return places


def _sums(stratum: _Stratum, pairs: list[tuple[int, int]]) -> Float[np.ndarray, "groups pairs 2 3"]:
    """Sum by group, pair and variant: displays, clicks at the upper place, clicks at the lower place."""
    clicked, part, group = stratum
    moved = _moved(part)
    sums = np.zeros((MOST_GROUPS, len(pairs), 2, 3))
    for number, (upper, lower) in enumerate(pairs):
        both_shown = (clicked[:, upper] >= 0) & (clicked[:, lower] >= 0)
        plain = both_shown & ~part[:, upper] & ~part[:, lower]
        swapped = (moved[:, 0] == upper) & (moved[:, 1] == lower)
        for variant, rows in enumerate((plain, swapped)):
            at = group[rows]
            values = (np.ones(len(at)), clicked[rows, upper], clicked[rows, lower])
            for column, value in enumerate(values):
                sums[:, number, variant, column] = np.bincount(at, value, MOST_GROUPS)
    return sums


def harvest_evidence(path: Path, places: int | None, *, same: str | None) -> Evidence | None:
    """Collect clicks on candidates that different bundles showed at different places.

    Definition (interventional sets, Agarwal et al. 2019, section 4): a request and a candidate belong to the set of two
    places if the candidate was shown at both. Its click rate at each, clicks over displays, counts once.

    Args:
        path: Path of the judged rows.
        places: Number of places from the top; None for all that were shown.
        same: Column by which equal requests are recognised, a query text for example; None for the shown candidates.

    Returns:
        None where no request was shown in two orders by two bundles.
    """
    rows = scan_judged(path, (*_HARVESTED_COLUMNS, *(() if same is None else (same,))), rules=_ORDER_STAYS)
    rows = rows if places is None else rows.filter(pl.col("position") <= places)
    listed = pl.col("candidate_id").cast(pl.String).sort().str.join("\x1f")
    request = listed if same is None else pl.col(same).cast(pl.String).first()
    keyed = rows.join(rows.group_by("query_id").agg(request.hash(0).alias(_KEY)), on="query_id")
    several = keyed.group_by(_KEY).agg(pl.col("bundle").n_unique().alias("bundles")).filter(pl.col("bundles") > 1)
    exposures = (
        keyed.join(several, on=_KEY, how="semi")
        .group_by(_KEY, "candidate_id", "position")
        .agg((pl.col("label") > 0).mean().alias("rate"), (pl.col("label") > 0).sum().alias("clicks"), pl.len())
    )
    both = (
        exposures.join(exposures, on=[_KEY, "candidate_id"], suffix="_lower")
        .filter(pl.col("position") < pl.col("position_lower"))
        .group_by((pl.col(_KEY) % MOST_GROUPS).alias("group"), "position", "position_lower")
        .agg(pl.len().alias("n"), pl.col(*_RATES, *_COUNTS).sum())
    )
    sums = collected(both, path)
    if sums.height == 0:
        return None
    queries = int(collected(rows.select(pl.col("query_id").n_unique()), path).item())
    observations = int(collected(several.select(pl.len()), path).item())
    pairs = sums.select("position", "position_lower").unique().sort("position", "position_lower")
    numbered = sums.join(pairs.with_row_index("pair"), on=["position", "position_lower"])
    group = numbered["group"].rank("dense").to_numpy().astype(np.int64) - 1
    stratum = np.zeros((int(group.max()) + 1, pairs.height, 2, 3))
    for variant, columns in enumerate((("n", *_RATES), ("len", *_COUNTS[1:]))):
        stratum[group, numbered["pair"].to_numpy(), variant] = numbered.select(columns).to_numpy()
    return Evidence("harvest", pairs.to_numpy().astype(np.int64) - 1, (stratum,), queries, observations)


def all_pairs(
    pairs: Int[np.ndarray, "pairs 2"], evidence: Float[np.ndarray, "pairs 3"], places: int
) -> Float[np.ndarray, " places"]:
    """Fit the examination of each place, relative to the first.

    Definition (AllPairs of Agarwal, Zaitsev, Wang, Li, Najork, Joachims 2019, eq. 9): p and r maximise
        sum over pairs k, k' of c_k log(p_k r) + (n - c_k) log(1 - p_k r), and the same for k'
    with one relevance r for each pair, as both places held the same candidates equally often.

    Args:
        pairs: ``(pairs, 2)`` places from 0.
        evidence: ``(pairs, 3)`` n of each pair, and the expected clicks at its first and at its second place, of n
            displays.
        places: Number of places.

    Returns:
        ``(places,)`` ``p_k / p_1``. A place is above 1 where it is clicked more than the first for the same candidates.

    Convention: places that no pair links with the first get no meaningful value; callers check that.
    """
    n, clicks = evidence[:, 0], evidence[:, 1:]
    scale = 1.0 / max(float(n.sum()), _EDGE)
    n, clicks = scale * n[:, None], scale * clicks

    def loss(x: Float[np.ndarray, " unknowns"]) -> tuple[float, Float[np.ndarray, " unknowns"]]:
        p, r = x[:places], x[places:, None]
        examined = p[pairs]
        share = examined * r
        value = -float((clicks * np.log(share) + (n - clicks) * np.log1p(-share)).sum())
        slope = -(clicks / share - (n - clicks) / (1.0 - share))
        of_places = np.bincount(pairs.ravel(), (slope * r).ravel(), places)
        return value, np.concatenate([of_places, (slope * examined).sum(axis=1)])

    start = np.full(places + len(pairs), 0.5)
    start[places:] = np.clip(evidence[:, 1:].sum(axis=1) / np.maximum(evidence[:, 0], _EDGE), 0.01, 0.99)
    bounds = [(_EDGE, 1.0 - _EDGE)] * len(start)
    options = {"maxiter": 2000, "maxfun": 10_000, "ftol": 1e-14, "gtol": 1e-9}
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x[:places]
    relative: Float[np.ndarray, " places"] = solution / solution[0]
    return relative


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sums over groups of queries; the groups are the same in all strata.

    Args:
        way: Source of the pairs: ``swaps`` or ``harvest``.
        pairs: ``(pairs, 2)`` places from 0, the upper one first.
        strata: Arrays ``(groups, pairs, 2, 3)``, one for each stratum: by group, pair and variant displays, and the
            clicks at the upper and at the lower place. A swap has two variants, as ranked and swapped, whose rates are
            averaged. Harvested pairs have one stratum. Their first variant has sums of click rates over candidates,
            their second the displays and clicks themselves.
        queries: Number of queries.
        observations: Number of swaps, or of requests that came in different orders.
    """

    way: Way
    pairs: Int[np.ndarray, "pairs 2"]
    strata: tuple[Float[np.ndarray, "_ pairs 2 3"], ...]
    queries: int
    observations: int

    def totals(self) -> Float[np.ndarray, "pairs 3"]:
        """Return ``(pairs, 3)`` of each pair: n, clicks at its upper and at its lower place, as if of n displays."""
        whole: Float[np.ndarray, "pairs 3"] = self._balanced([stratum.sum(axis=0)[None] for stratum in self.strata])[0]
        return whole

    def resample(self, samples: int, seed: int) -> Float[np.ndarray, "samples pairs 3"]:
        """Return :meth:`totals` of bootstrap samples of the groups, which are the same in all strata."""
        sums = []
        for stratum in self.strata:
            columns = stratum.reshape(len(stratum), -1)
            resampled = resample_sums(columns, np.random.default_rng(seed), samples)
            sums.append(resampled.reshape(samples, *stratum.shape[1:]))
        return self._balanced(sums)

    def _balanced(self, sums: list[Float[np.ndarray, "samples pairs 2 3"]]) -> Float[np.ndarray, "samples pairs 3"]:
        """Weight both variants of a swap alike, so that each place held the same candidates equally often."""
        if self.way == "harvest":
            rates: Float[np.ndarray, "samples pairs 3"] = sums[0][:, :, 0]
            return rates
        total: Float[np.ndarray, "samples pairs 3"] = np.zeros((len(sums[0]), len(self.pairs), 3))
        for stratum in sums:
            exposures = stratum[..., 0]  # (samples, pairs, 2)
            rates = stratum[..., 1:] / np.maximum(exposures, 1.0)[..., None]
            both = exposures.prod(axis=2) / np.maximum(exposures.sum(axis=2), 1.0)  # variance of a mean of two rates
            total += np.concatenate([both[..., None], both[..., None] * rates.mean(axis=2)], axis=2)
        return total
