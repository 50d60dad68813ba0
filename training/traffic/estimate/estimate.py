"""What bundles would have got on logged lists, compared with the logged ranker, with intervals and a check."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import mostly_unknown
from listwright.ranking.plain_file import files_below
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data.tables.judged import JUDGED, collected, read_judged_metadata, scan_judged
from listwright.training.evaluation.intervals import ALPHA, fixed_half_width
from listwright.training.recipe.data import read_propensity_file
from listwright.training.scoring.frames import batches
from listwright.training.scoring.run import check_features, map_parts
from listwright.training.traffic.compare.estimates import FEWEST_ACTIVE, FEWEST_UNITS, ratio_of
from listwright.training.traffic.estimate.lists import (
    COLUMNS,
    UNIT,
    UNKNOWN,
    PartWork,
    features_of,
    fit_models,
    keep_usable,
    value_part,
)
from listwright.training.traffic.propensity import FEWEST_CLICKS, harvest_evidence

MODEL_ROWS = 200_000
"""Number of rows, about, that the attraction is fitted on: whole queries, chosen by a hash."""

_SEVERAL_CLICKS = "has lists of several clicks: cascade-dr needs one at most; take --estimator dr"

_TINY = 1e-300
"""Divisor in place of 0."""


def estimate(
    bundles: Sequence[Path],
    data: Path,
    propensities: Path,
    *,
    estimator: str = "dr",
    metric: str = "clicks",
    clip: float = 0.0,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Estimate what bundles would have got on logged lists.

    Args:
        bundles: Folders of the bundles.
        data: Parquet file of judged rows, or a folder of them.
        propensities: File of propensities.
        estimator: Estimator of the verdicts: ``dr``, ``ips``, ``snips``, ``dm`` or ``cascade-dr``; all are computed.
        metric: ``clicks`` of a list, or its discounted ``gain``.
        clip: Smallest propensity of a denominator of the doubly robust estimator; 0 for none.
        jobs: Number of parts at a time; None for all cores.
        progress: Receiver of the progress.

    Returns:
        The facts of :func:`summarise`.

    Raises:
        RecipeError: if the propensities cannot be read, or no feature of the rows varies.
        DataError: if the rows cannot be read, or cannot say; names the remedy.
        BundleError: if there is no such bundle.
        ScoringError: if a stage fails: an earlier stage's order must not pass for its.
    """
    if estimator == "cascade-dr" and metric != "gain":
        fault = "a click of a cascade comes whatever the order of its candidates"
        raise RecipeError(f"--estimator cascade-dr: {fault}; add --metric gain")
    manifests = [bundle.read_manifest(folder) for folder in bundles]
    schemas, names = [manifest.feature_schema for manifest in manifests], list[str]()
    for name in (f"{manifest.name}/{manifest.version}" for manifest in manifests):
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    file, task = read_propensity_file(propensities), progress.begin("Fitting the click model", 1)
    prefix, sample = _read_log(data, (file.model_extra or {}).get("same"))
    for manifest in manifests:
        check_features(data, sample.columns, manifest, [prefix + name for name in COLUMNS], progress)
    usable, facts, _ = keep_usable(sample, prefix, len(file.positions))
    if (units := collected(facts.lazy().select(UNIT.n_unique()), data).item()) < FEWEST_UNITS:
        raise DataError(data, f"has {units} units with lists that can be used: {FEWEST_UNITS} are needed")
    values, qid = np.array([place.propensity for place in file.positions]), prefix + "query_id"
    ends = [(place.low or place.propensity, place.high or place.propensity) for place in file.positions]
    variances = np.diag([(math.log(high / low) / 3.92) ** 2 for low, high in ends])
    covariance = variances if file.log_covariance is None else np.array(file.log_covariance)
    if (spread := np.linalg.eigvalsh(covariance))[0] < -1e-3 * abs(spread[-1]):  # the file has six digits
        raise RecipeError(f"--propensities {propensities}: log_covariance is no covariance: make the file again")
    models = fit_models(facts, features_of(usable, schemas, qid), values)
    if estimator == "cascade-dr" and "cascade" not in models:
        raise DataError(data, _SEVERAL_CLICKS)
    work = PartWork(tuple(bundles), data, metric, prefix, values, covariance, clip, models)
    task.reach(1)
    needed = [*(prefix + name for name in COLUMNS), *(name for schema in schemas for name in schema.names)]
    rows, title = batches(data, schemas[0], qid, needed).rows, f"Ranking {data.name}, rows"
    with tempfile.TemporaryDirectory() as folder:
        parts = map_parts(partial(value_part, work=work), rows, qid, Path(folder), title, jobs=jobs, progress=progress)
    keys = {name for part in parts for name in part}
    log = {key: np.concatenate([part[key] for part in parts if key in part]) for key in keys}
    for n, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        for sentence in mostly_unknown(log[f"categories {n}"].sum(axis=0), schema).values():
            progress.remark(f"{name}: {sentence}")
    return summarise(names, log, work, estimator)


def _read_log(data: Path, same: str | None) -> tuple[str, pl.DataFrame]:
    """Return the prefix of columns, and sampled rows; raise DataError if the log cannot say."""
    rows, files, prefix = scan_judged(data, COLUMNS[:-2]), files_below(data, [JUDGED]), ""
    for file in files:
        facts = read_judged_metadata(file) or {}
        if not facts:
            fault = "lacks what listwright join writes beside the rows (metadata of Parquet)"
            raise DataError(file, f"{fault}: whoever rewrites them must keep it, as docs/served-log.md does")
        if not facts.get("unshown"):
            fault = "lacks candidates below top_n, which a bundle may rank above: join again with --unshown"
            raise DataError(file, fault)
        prefix = str(facts.get("prefix", ""))
    swapped, swaps = pl.col("swapped").any() & (pl.col("label") > 0).any(), pl.col("position").filter("swapped")
    odd = (pl.col("position").max() != pl.len()) | (swaps.len() > 2)
    by_list = rows.group_by("query_id").agg(swapped, pl.len(), odd.alias("odd"))
    sums = by_list.select(pl.col("swapped", "len").sum(), pl.col("query_id").filter("odd").cast(pl.String).first())
    swapped_lists, count, query = collected(sums, data).row(0)
    if query is not None:
        fault = f"query {query}: expected one row at each place from 1 to the last, and at most two of them swapped"
        raise DataError(data, f"{fault}: give all rows that listwright join writes, or join again")
    if swapped_lists < FEWEST_CLICKS and harvest_evidence(data, None, same=same) is None:
        fault = f"fewer than {FEWEST_CLICKS} swapped lists have a click, and no request was shown in two orders"
        raise DataError(data, f"{fault} by two bundles: serve an experiment of kind explore, for longer perhaps")
    in_sample = pl.col(prefix + "query_id").hash(seed=1) % -(-count // MODEL_ROWS) == 0
    sample = pl.scan_parquet(files, glob=False).filter(in_sample, pl.col(prefix + "position").is_not_null())
    return prefix, collected(sample, data)


class UnitMeans(NamedTuple):
    """Means over lists, with intervals over units in which the propensities vary, too.

    Args:
        units: ``(N,)`` number of each list's unit, from 0.
        covariance: ``(K, K)`` covariance of the logarithms of the propensities.
    """

    units: Int[np.ndarray, " N"]
    covariance: Float[np.ndarray, "K K"]

    def of(
        self, values: Float[np.ndarray, " N"], slopes: Float[np.ndarray, " K"], alpha: float = ALPHA
    ) -> dict[str, float]:
        """Return a mean with its interval, by the delta method; ``slopes`` are those by the log-propensities."""
        ratio = ratio_of(np.bincount(self.units, values), np.bincount(self.units).astype(np.float64))
        variance = ratio.variance + float(slopes @ self.covariance @ slopes)
        half = 0.0 if variance == 0.0 else fixed_half_width(variance, alpha)  # 0: the logged ranker's order
        return {"value": ratio.value, "low": ratio.value - half, "high": ratio.value + half}


def check_clicks(
    log: Mapping[str, np.ndarray], means: UnitMeans, propensities: Float[np.ndarray, " K"]
) -> dict[str, Any] | None:
    """Check by values of ``value_rows`` that clicks are position-based: random swaps must change nothing else.

    Returns:
        Two differences that are 0 if clicks are position-based, with 97.5 % intervals: ``clicks`` of a list, as
        ``estimated`` from swapped lists less as ``logged`` in the others; and predicted ``attraction`` of candidates
        clicked at the upper of two swapped places less that at the lower, which held the same candidates. Numbers of
        lists with and without a swap; whether both intervals hold 0. None if too few swapped lists have a click.
    """
    part = np.flatnonzero(log["swap"] > UNKNOWN)
    swaps, occupied, clicks = log["swap"][part], log["clicked"][part] >= 0, log["clicked"][part] > 0
    swapped, strata = swaps >= 0, np.unique(log["stratum"][part], return_inverse=True)[1]
    rows, values = np.flatnonzero(swapped), clicks.sum(axis=1).astype(np.float64)
    upper = swaps[rows]
    ratio = propensities[upper + 1] / propensities[upper]
    above, below = clicks[rows, upper], clicks[rows, upper + 1]
    values[rows] += above * (ratio - 1.0) + below * (1.0 / ratio - 1.0)
    weights, deviations = _halves(strata, swapped, values)
    size = weights[swapped].sum()  # of the other half, too
    if int(clicks[rows].any(axis=1).sum()) < FEWEST_CLICKS or size == 0.0:
        return None

    def interval(value: float, deviations: Float[np.ndarray, " N"], slopes: Float[np.ndarray, " K"]) -> dict[str, Any]:
        everywhere = np.full(len(log["swap"]), value)
        everywhere[part] += len(everywhere) * deviations
        return means.of(everywhere, slopes, alpha=0.025)  # 5 % for both

    moved = weights[rows] * (above * ratio - below / ratio) / size
    slopes = np.bincount(upper + 1, moved, len(propensities)) - np.bincount(upper, moved, len(propensities))
    estimated, logged = (float(weights[half] @ values[half] / size) for half in (swapped, ~swapped))
    by_clicks = interval(estimated - logged, np.where(swapped, deviations, -deviations) / size, slopes)
    errors, difference, total = np.zeros(len(part)), 0.0, _TINY
    for place in range(clicks.shape[1] - 1):
        at = [place, place + 1]
        own = occupied[:, at].all(axis=1) & ((swaps == place) | (swaps < 0) | (abs(swaps - place) > 1))
        clicked, predicted, half = clicks[own][:, at], log["attraction"][part[own]][:, at], swaps[own] == place
        sums = _halves(strata[own], half, np.zeros(len(half)))[0] @ clicked
        if not sums.all():
            continue
        averages = _halves(strata[own], half, np.zeros(len(half)))[0] @ (clicked * predicted) / sums
        residuals = clicked * (predicted - averages)
        errors[own] += _halves(strata[own], half, sums[1] / sums[0] * residuals[:, 0] - residuals[:, 1])[1]
        difference += sums[1] * (averages[0] - averages[1])
        total += sums[1]
    by_attraction = interval(difference / total, errors / total, np.zeros(len(propensities)))
    return {
        "swapped": int((weights[swapped] > 0.0).sum()),
        "unswapped": int((weights[~swapped] > 0.0).sum()),
        "logged": logged,
        "estimated": estimated,
        "clicks": by_clicks,
        "attraction": by_attraction,
        "holds": all(each["low"] <= 0.0 <= each["high"] for each in (by_clicks, by_attraction)),
    }


def _halves(
    strata: Int[np.ndarray, " N"], swapped: Bool[np.ndarray, " N"], values: Float[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Return weights by which both halves of a stratum weigh alike, and weighted deviations from each half's mean."""
    cell = 2 * strata + swapped
    counts = np.bincount(cell, minlength=2 * (int(strata.max(initial=0)) + 1)).astype(np.float64)
    both = counts[0::2] * counts[1::2] / np.maximum(counts[0::2] + counts[1::2], 1.0)
    weights: Float[np.ndarray, " N"] = both[strata] / np.maximum(counts[cell], 1.0)
    means = np.bincount(cell, values, len(counts)) / np.maximum(counts, 1.0)
    return weights, weights * (values - means[cell])


def values_by_estimator(log: Mapping[str, np.ndarray]) -> dict[str, Float[np.ndarray, "3 N M"]]:
    """Return each list's value as predicted, and if candidates without a usable click attract nobody, or everybody."""
    # SNIPS, G sum(c w / p) / sum(c / p) with the predicted sum G of the attraction, by values whose mean is the ratio,
    # and whose spread is its uncertainty
    inverse = max(float(log["inverse"].mean()), _TINY)
    share, scale = log["ips"].mean(axis=0) / inverse, log["known"].mean() / inverse
    snips = share * log["known"] + scale * (log["ips"] - share * log["inverse"])
    rest = np.stack([log["filled"], np.zeros_like(log["filled"]), log["missing"]])
    values = {"dr": log["dr"] + rest, "ips": log["ips"] + rest, "snips": snips + rest, "dm": log["dm"] + rest}
    if "cascade" in log and (log["clicked"] > 0).sum(axis=1).max() <= 1:
        values["cascade-dr"] = np.stack([log[name] for name in ("cascade", "cascade_low", "cascade_high")])
    return values


def summarise(
    names: Sequence[str], log: Mapping[str, np.ndarray], work: PartWork, estimator: str = "dr"
) -> dict[str, Any]:
    """Return the estimates of bundles from the values that ``value_part`` returns, as JSON values.

    Returns:
        Options, counts, clicks of a list as ``logged``, and its value by the logged ranker as ``control``. For each of
        ``bundles`` differences to ``control`` by estimator; ``bounds`` over the attraction of candidates without a
        usable click, and ``reach``, the outer ends of their intervals; shares of ``missing`` weight on these and of
        ``changed`` lists; of IPS the ``effective_clicks`` of equal weight and the clicks' weight ``from_place``; with a
        clip ``clip_bias``, DR less IPS. ``pairs`` are differences of the best bundle to others, judged alike.

    Raises:
        DataError: if too few units have a click, or lists have several clicks and ``cascade-dr`` is asked for.
    """
    values, units, size = values_by_estimator(log), np.unique(log["unit"], return_inverse=True)[1], len(log["unit"])
    means, active = UnitMeans(units, work.covariance), np.unique(units[(log["clicked"] > 0).any(axis=1)]).size
    if active < FEWEST_ACTIVE:
        raise DataError(work.data, f"has {active} units with a click: {FEWEST_ACTIVE} are needed")
    if estimator not in values:
        raise DataError(work.data, _SEVERAL_CLICKS)
    sums = {name: log[name].sum(axis=0) for name in ("weight", "missing", "ips", "squares", "apart", "by_place")}
    # shares of an order's weight on candidates without usable clicks that another order does not give them, too
    apart = sums["apart"] / np.maximum(sums["missing"], _TINY)[:, None]
    # by the log-propensities, of IPS: the other estimators have nearly the same, and a cascade has no propensities
    slopes = (sums["by_place"][:, 1] * (work.metric == "clicks") - sums["by_place"][:, 0]) / size

    def change(n: int, other: int = 0, name: str = estimator, at: int = 0) -> dict[str, float]:
        changes = values[name][min(at, 1)][:, n] - values[name][min(at, 1)][:, other]
        if at:
            gainer, loser, sign = (other, n, -1.0) if at == 1 else (n, other, 1.0)
            reach = values[name][2][:, gainer] - values[name][1][:, gainer]
            changes = changes + sign * apart[gainer, loser] * reach
        # rounded: 0 of equal values
        return means.of(np.round(changes, 12), (slopes[n] - slopes[other]) * (name != "cascade-dr"))

    def judge(n: int, other: int = 0) -> dict[str, Any]:
        kinds = ("dr", "ips") if clipped else (estimator,)
        ends = [[change(n, other, kind, at) for kind in kinds] for at in range(3)]
        spans = [(min(each["low"] for each in at), max(each["high"] for each in at)) for at in ends]
        reach = [min(spans)[0], max(high for _, high in spans)]
        verdicts = {"better" if low > 0.0 else "worse" if high < 0.0 else "none" for low, high in spans}
        verdict = verdicts.pop() if len(verdicts) == 1 else "depends"
        return {"verdict": verdict, "bounds": [ends[1][0]["value"], ends[2][0]["value"]], "reach": reach}

    bias, clipped = values["dr"][0] - values["ips"][0], work.clip > 0.0 and estimator == "dr"
    estimates: list[dict[str, Any]] = [
        {
            "name": name,
            "value": float(values[estimator][0, :, n].mean()),
            "estimates": {kind: change(n, name=kind) for kind in values},
            **judge(n),
            "missing": float(sums["missing"][n] / max(sums["weight"][n], _TINY)),
            "changed": float(log["changed"][:, n].mean()),
            "clicks": int((log["clicked"] > 0).sum()),
            "effective_clicks": float(sums["ips"][n] ** 2 / max(sums["squares"][n], _TINY)),
            "largest": float(log["largest"][:, n].max()),
            "clip_bias": means.of(bias[:, n] - bias[:, 0], np.zeros_like(slopes[0])) if clipped else None,
            "from_place": (sums["by_place"][n, 0] / max(sums["ips"][n], _TINY)).tolist(),
        }
        for n, name in enumerate(names, start=1)
    ]
    best = max(range(len(names)), key=lambda n: float(estimates[n]["estimates"][estimator]["value"]))
    return {
        "estimator": estimator,
        "metric": work.metric,
        "places": len(work.propensities),
        "clip": work.clip,
        "lists": size,
        "units": int(units.max()) + 1,
        "left_out": _tally(log["left_out"]),
        "served_by": _tally(log["bundle"]),
        "logged": float((log["clicked"] > 0).sum() / size),
        "control": float(values[estimator][0, :, 0].mean()),
        "check": check_clicks(log, means, work.propensities),
        "bundles": estimates,
        "pairs": [
            {"names": [names[best], name], **change(best + 1, n + 1), **judge(best + 1, n + 1)}
            for n, name in enumerate(names)
            if n != best
        ],
    }


def _tally(values: np.ndarray) -> dict[str, int]:
    return dict(pl.Series("value", values, dtype=pl.String).value_counts(sort=True).iter_rows())
