"""A comparison from judged rows, of whichever kind the experiment is."""

from __future__ import annotations

from pathlib import Path

from listwright.ranking.errors import RecipeError
from listwright.training.comparing.comparison import Compared
from listwright.training.comparing.interleaving import compare_teams
from listwright.training.comparing.outcomes import DEFAULT_METRICS, columns_of, open_experiment
from listwright.training.comparing.split import compare_arms


def compare(
    path: Path,
    *,
    experiment: str | None = None,
    metrics: tuple[str, ...] = (),
    challenger: str | None = None,
    share: float = 0.5,
    worth: float | None = None,
) -> Compared:
    """Compare control and challenger.

    Args:
        path: judged rows, a Parquet file or a folder of them.
        experiment: its name; None where there is only one.
        metrics: of a split; the first decides; none for the usual ones. Of an interleaving, at most one: the column
            with what a candidate earns, or ``hit`` for 1 where its label is above 0.
        challenger: its arm, where a split has several.
        share: planned share of the challenger among the units of a split.
        worth: difference that is worth to be shown; None for the usual one.

    Raises:
        RecipeError: if the options do not fit the rows.
        DataError: if the rows cannot be read.
    """
    if not 0.0 < share < 1.0:
        raise RecipeError(f"--share {share:g}: expected a number between 0 and 1, the challenger's part of the units")
    if worth is not None and not 0.0 < worth < float("inf"):
        raise RecipeError(f"--difference {worth:g}: expected a number above 0")
    found = open_experiment(path, experiment, columns_of(metrics))
    if not found.interleaved:
        return compare_arms(found, metrics or DEFAULT_METRICS, challenger=challenger, share=share, worth=worth)
    if len(metrics) > 1 or set(metrics) - {"hit", *columns_of(metrics)}:
        said = "an interleaving has one metric: hit, or the column with what a candidate earns"
        raise RecipeError(f"--metric {' --metric '.join(metrics)}: {said}")
    if challenger is not None or share != 0.5:
        raise RecipeError("--challenger and --share are of a split; these lists were interleaved: leave them out")
    credit = None if metrics in ((), ("hit",)) else metrics[0]
    return compare_teams(found, credit=credit, worth=worth)
