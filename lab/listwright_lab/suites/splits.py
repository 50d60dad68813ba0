"""Splits of a suite: a check that they can tell rankers apart, and facts for its page."""

from __future__ import annotations

from collections.abc import Sequence

from listwright.ranking.errors import DataError
from listwright.training.data import split
from listwright.training.data.dataset import Splits


def data_facts(splits: Splits, notes: Sequence[str]) -> list[str]:
    """Return the split and the notes as facts of a suite's page."""
    return [f"The first fold: {splits.how}.", *(f"Pointed out: {note}." for note in notes)]


def measurable(splits: Splits) -> Splits:
    """Return the splits unchanged, after a check that rankers can be told apart on the test queries.

    Raises:
        DataError: if no test query has two candidates with different labels: every mean would be a convention's.
    """
    if not split.informative(splits.test):
        raise DataError(
            splits.how,
            f"no test query ({len(splits.test)} queries) has two candidates with different labels: rankers cannot be "
            "compared on it; take other --folds, or split otherwise",
        )
    return splits
