"""A bundle as a model of MLflow: ``mlflow.pyfunc.load_model(...).predict(frame)`` ranks as ``POST /rerank`` does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, SchemaMismatchError
from listwright.ranking.features import MAX_NAME
from listwright.training.data.tables.frames import listed
from listwright.training.pipeline.tracking import MODEL_PARAMS
from listwright.training.scoring.job import COLUMNS
from listwright.training.scoring.worker import rank_rows


class BundleModel:
    """A verified bundle with the interface of a ``pyfunc`` model.

    Args:
        folder: Folder of the bundle.
    """

    def __init__(self, folder: Path) -> None:
        self._bundle = bundle.load(folder)

    def predict(self, data: Any, params: Mapping[str, str] | None = None) -> pd.DataFrame:
        """Rank lists of candidates.

        Args:
            data: Frame of pandas, a row a candidate, with the features by name; a feature that has a default, or that
                was missing at times in training, may be absent. A missing value counts as in a request. Other columns
                are ignored. Also records, a record, arrays by name, or an array with the features in the bundle's
                order.
            params: Parameters: ``qid``, the column with the query id (default: ``qid``), whose rows may stand anywhere;
                without the default's all rows are one list, with a warning. ``strategy``, as in a request (default:
                ``auto``).

        Returns:
            ``rank`` from 1, ``score``, ``first_stage_score`` and ``strategy`` of every row, under the frame's index.
            The scores are those of ``POST /rerank`` to the bit.

        Raises:
            DataError: if a query id is missing, or a column is there twice.
            SchemaMismatchError: if another feature is absent, or all are, or the column of ``qid``.
            TypeError: for data of other kinds.
            ListwrightError: as :func:`listwright.training.scoring.worker.rank_rows`.
        """
        options, features = {**MODEL_PARAMS, **(params or {})}, self._bundle.manifest.feature_schema.names
        frame = _frame(data, features)
        if frame.empty:
            raise DataError("the frame", "has no rows, or no columns")
        columns = list(frame.columns)
        names = [name for name in features if name in columns]
        if not names:
            fault = "the frame has none of the bundle's features: name its columns as in training"
            raise SchemaMismatchError(fault, expected=features)
        for name in (options["qid"], *names):
            if columns.count(name) > 1:
                raise DataError("the frame", f"is there {columns.count(name)} times: keep one", column=name)
        lists = np.zeros(len(frame), dtype=np.int64)
        absent = f"there is no column {options['qid']!r} of query ids"
        if options["qid"] not in (*columns, MODEL_PARAMS["qid"]):
            raise SchemaMismatchError(f"{absent}: the frame has {listed(list(map(str, columns)))}")
        if options["qid"] not in columns and len(frame) > 1:
            warnings.warn(f"{absent}: all {len(frame)} rows are one list; name it in params", stacklevel=2)
        if options["qid"] in columns:
            lists = pd.factorize(frame[options["qid"]])[0].astype(np.int64)
        if (lists < 0).any():
            raise DataError(options["qid"], f"row {int(np.argmin(lists)) + 1} has no query id: give it one")
        together = np.argsort(lists, kind="stable")
        rows = pl.DataFrame([_column(frame[name].iloc[together]) for name in names]).with_columns(
            pl.Series(_LIST, lists[together])
        )
        scored, _ = rank_rows(rows, self._bundle, _LIST, strategy=options["strategy"])
        back = np.argsort(together)
        return pd.DataFrame({name: scored[name].to_numpy()[back] for name in COLUMNS}, index=frame.index)


_LIST = "\0" * (MAX_NAME + 1)
"""Column with the number of the list; no feature has its name."""


def _frame(data: Any, features: Sequence[str]) -> pd.DataFrame:
    """Return the frame that the data make."""
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, Mapping) and not any(pd.api.types.is_list_like(data.get(name)) for name in features):
        data = [data]
    if isinstance(data, Mapping) or (isinstance(data, list) and all(isinstance(row, Mapping) for row in data)):
        return pd.DataFrame(data)
    if isinstance(data, np.ndarray) and data.shape[1:] == (len(features),):
        return pd.DataFrame(data, columns=list(features))
    kinds = f"a frame of pandas, records, a record, arrays by name or an array of {len(features)} columns"
    raise TypeError(f"expected {kinds}; found {type(data).__name__} {getattr(data, 'shape', '')}".rstrip())


def _column(values: pd.Series) -> pl.Series:
    """Return a column of pandas; what pandas calls missing is null."""
    if values.dtype.kind in "iuf":
        return pl.Series(str(values.name), values.to_numpy())
    plain = [None if missing else value for value, missing in zip(values.tolist(), values.isna(), strict=True)]
    return pl.Series(str(values.name), plain, strict=False)


def _load_pyfunc(path: str) -> BundleModel:
    """Load the model, as MLflow asks."""
    return BundleModel(Path(path))
