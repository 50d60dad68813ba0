"""Interleaved lists: whose picks people chose."""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Float
from scipy.stats import binomtest, wilcoxon

from listwright.training.comparing.by_day import grown
from listwright.training.comparing.comparison import Compared, Effect, Look, enough, look_of, needed_for
from listwright.training.comparing.estimates import Ratio, ratio_of, resampled_ratio
from listwright.training.comparing.mismatch import check_ratio
from listwright.training.comparing.outcomes import Experiment, team_sums
from listwright.training.evaluation.sequences import Sequence

WORTH = 0.02
"""Preference that is worth to be shown: 52 of 100 credited queries."""

_SUMS = ["preference", "credited", "squares"]


def compare_teams(experiment: Experiment, *, credit: str | None, worth: float | None) -> Compared:
    """Compare the two teams of interleaved lists.

    Definition (Chapelle, Joachims, Radlinski, Yue 2012, eq. 1): over queries in which a team earned anything,
        Delta = (wins + ties / 2) / (wins + losses + ties) - 1/2
    with a win where the challenger's candidates earned more than control's. Its variance is that over units.

    Args:
        experiment: interleaved.
        credit: column with what a candidate earns; None for 1 where its label is above 0.
        worth: Delta that the sequence is narrowest for; None for :data:`WORTH`.
    """
    sums = team_sums(experiment, credit).with_columns(((pl.col("won") + pl.col("lost")) / 4).alias("squares"))
    sequence = Sequence(WORTH if worth is None else worth)
    looks: list[Look] = []
    totals = np.zeros((0, 3))
    found = Ratio(np.nan, np.nan, 0, 0.0, 0)
    for day, totals in grown(sums, _SUMS):
        found = ratio_of(*totals.T)
        looks.append(look_of(day, found.value, found.variance, found.queries, sequence, ready=enough(found)))
    drawn = resampled_ratio(totals[:, 0], totals[:, 1], np.random.default_rng(0))
    low, high = (np.nan, np.nan) if np.isnan(drawn).all() else np.nanquantile(drawn, [0.025, 0.975])
    queries, first = int(sums["queries"].sum()), int(sums["first"].sum())
    # in queries, credited or not
    needed = needed_for(found.value, found.variance, float(queries), sequence, found.within)
    effect = Effect("preference", None, None, looks[-1], float(low), float(high), sequence.difference, needed)
    by_unit = _preference(sums)
    return Compared(
        kind="interleaving",
        experiment=experiment.name,
        bundles=None,
        units=sums.filter(pl.col("queries") > 0)["unit"].n_unique(),
        queries=queries,
        ratio=check_ratio(queries - first, first, share=0.5, what="lists that its pick begins"),
        crossed=0,
        untold=int(sums["untold"].sum()),
        effects=(effect,),
        looks=tuple(looks),
        tests=_tests(by_unit),
        wins=(int((by_unit > 0).sum()), int((by_unit < 0).sum()), int((by_unit == 0).sum())),
    )


def _preference(sums: pl.DataFrame) -> Float[np.ndarray, " N"]:
    """``(N,)`` wins less losses of each unit with credit."""
    per_unit = sums.group_by("unit", maintain_order=True).agg(pl.col(*_SUMS).sum()).filter(pl.col("credited") > 0)
    values: Float[np.ndarray, " N"] = 2.0 * per_unit["preference"].to_numpy()
    return values


def _tests(by_unit: Float[np.ndarray, " N"]) -> tuple[tuple[str, float], ...]:
    """Exact sign test over the units with a preference, and Wilcoxon's signed-rank test of their net wins."""
    preferring = by_unit[by_unit != 0.0]
    if len(preferring) == 0:
        return ()
    exact = binomtest(int((preferring > 0).sum()), len(preferring)).pvalue
    ranked = wilcoxon(preferring).pvalue
    return (("exact binomial over units", float(exact)), ("Wilcoxon signed rank over units", float(ranked)))
