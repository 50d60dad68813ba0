"""Training rows in LightGBM's bins, wherever the rows are."""

from __future__ import annotations

import logging
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import lightgbm_input
from listwright.training.data.dataset import Dataset
from listwright.training.stored.rows import CHUNK_ROWS, Features

MOST_SAMPLED = 200_000
"""Rows up to which LightGBM takes the bins from all of them: its ``bin_construct_sample_cnt``."""


class RowSequence(lightgbm.Sequence):
    """Rows as LightGBM bins them: it asks for some single ones in order, and then for all."""

    batch_size = CHUNK_ROWS

    def __init__(self, features: Features, schema: FeatureSchema) -> None:
        self._features, self._schema = features, schema
        self._first, self._held = 0, np.empty((0, len(schema)), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, key: Any) -> Float[np.ndarray, "*rows D"]:
        if isinstance(key, slice):
            return lightgbm_input(self._features[key], self._schema)
        if np.ndim(key) == 1:  # a part of a cross-validation
            return lightgbm_input(self._features[np.asarray(key, dtype=np.int64)], self._schema)
        if not self._first <= key < self._first + len(self._held):
            self._first, self._held = key, self[key : key + CHUNK_ROWS]
        row: Float[np.ndarray, " D"] = self._held[key - self._first].astype(np.float64)
        return row  # LightGBM refuses a sample of float32


def _binned_from(data: Dataset) -> Float[np.ndarray, "R D"] | RowSequence:
    """What LightGBM takes its bins from.

    Up to :data:`MOST_SAMPLED` rows, a matrix and a sequence of rows give the same bins. Beyond, LightGBM samples the
    two differently: there it is always given a sequence, so that a fit does not depend on where the rows are.
    """
    if isinstance(data.features, np.ndarray) and data.rows <= MOST_SAMPLED:
        return lightgbm_input(data.features, data.schema)
    return RowSequence(data.features, data.schema)


_LOGGER = logging.getLogger("listwright.lightgbm")
_LOGGER.setLevel(logging.ERROR)


def silence_lightgbm() -> None:
    """Drop what LightGBM logs: its threads, but for the first, know nothing of verbosity. Errors are raised."""
    lightgbm.register_logger(_LOGGER)


def lightgbm_dataset(data: Dataset, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
    """The queries as LightGBM has them: in bins, of those of ``reference`` if it is given."""
    silence_lightgbm()
    return lightgbm.Dataset(
        _binned_from(data),
        label=data.labels,
        weight=data.weights,
        group=data.lengths,
        reference=reference,
        categorical_feature=list(data.schema.categorical),
        params={"feature_pre_filter": False, "verbosity": -1},  # trials differ in min_data_in_leaf
        free_raw_data=False,
    )
