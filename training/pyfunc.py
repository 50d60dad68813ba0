"""A bundle as a model of MLflow: ``mlflow.pyfunc.load_model(...).predict(frame)`` ranks as ``POST /rerank`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, SchemaMismatchError
from listwright.training.scoring.worker import COLUMNS, ranked
from listwright.training.tracking import MODEL_PARAMS


class BundleModel:
    """A verified bundle with the interface of a ``pyfunc`` model.

    Args:
        folder: of the bundle.
    """

    def __init__(self, folder: Path) -> None:
        self._bundle = bundle.load(folder)

    def predict(self, frame: pd.DataFrame, params: Mapping[str, str] | None = None) -> pd.DataFrame:
        """Rank lists of candidates.

        Args:
            frame: one row a candidate, with the features by name; one that has a default, or that was missing at
                times in training, may be absent. A missing value counts as in a request. Other columns are ignored.
            params: ``qid``, the column with the query id (default: ``qid``), whose rows may stand anywhere; without
                such a column all rows are one list. ``strategy``, as in a request (default: ``auto``).

        Returns:
            ``rank`` from 1, ``score``, ``first_stage_score`` and ``strategy`` of every row, under the frame's index.
            The scores are those of ``POST /rerank`` to the bit.

        Raises:
            DataError: if a query id is missing, or a column is there twice.
            SchemaMismatchError: if another feature is absent, or all are.
            ListwrightError: as :func:`listwright.training.scoring.worker.ranked`.
        """
        options = {**MODEL_PARAMS, **(params or {})}
        if frame.empty:
            raise DataError("the frame", "has no rows, or no columns")
        columns, features = list(frame.columns), self._bundle.manifest.feature_schema.names
        names = [name for name in features if name in columns]
        if not names:
            fault = "the frame has none of the bundle's features: name its columns as in training"
            raise SchemaMismatchError(fault, expected=features)
        for name in (options["qid"], *names):
            if columns.count(name) > 1:
                raise DataError("the frame", f"is there {columns.count(name)} times: keep one", column=name)
        lists = np.zeros(len(frame), dtype=np.int64)
        if options["qid"] in columns:
            lists = pd.factorize(frame[options["qid"]])[0].astype(np.int64)
        if (lists < 0).any():
            raise DataError(options["qid"], f"row {int(np.argmin(lists)) + 1} has no query id: give it one")
        together = np.argsort(lists, kind="stable")
        rows = pl.DataFrame([_column(frame[name].iloc[together]) for name in names]).with_columns(
            pl.Series(_LIST, lists[together])
        )
        scored, _ = ranked(rows, self._bundle, _LIST, strategy=options["strategy"])
        back = np.argsort(together)
        return pd.DataFrame({name: scored[name].to_numpy()[back] for name in COLUMNS}, index=frame.index)


_LIST = "\0"
"""Column with the number of the list; no feature has its name."""


def _column(values: pd.Series) -> pl.Series:
    """Return a column of pandas; what pandas calls missing is null."""
    if values.dtype.kind in "iuf":
        return pl.Series(str(values.name), values.to_numpy())
    plain = [None if missing else value for value, missing in zip(values.tolist(), values.isna(), strict=True)]
    return pl.Series(str(values.name), plain, strict=False)


def _load_pyfunc(path: str) -> BundleModel:
    """Load the model, as MLflow asks."""
    return BundleModel(Path(path))
