"""Exact tree SHAP of a LightGBM first stage."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.clock import Clock
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import lightgbm_input, model_columns, read_booster

_LINEAR = b"\nis_linear=1\n"

_TOGETHER = 50
"""Candidates between two looks at the clock."""


class TreeContributions:
    """Shapley values of a forest's score, path-dependent: a feature that is absent goes both ways at a node, in the
    proportion of the training rows that did (Lundberg et al., 2018; LightGBM's ``pred_contrib``).

    Args:
        model: LightGBM's text format.
        schema: of the matrices that are explained, list-relative columns included where the model sees them.

    Raises:
        SchemaMismatchError, ScoringError: as :class:`listwright.ranking.first_stage.LightGbmFirstStage`.
    """

    def __init__(self, model: str, schema: FeatureSchema) -> None:
        from lightgbm.basic import LightGBMError  # noqa: PLC0415 - as in read_booster

        self._booster, self._error = read_booster(model), LightGBMError
        self.schema = schema
        columns = model_columns(self._booster, schema)
        self._columns = np.arange(len(schema)) if columns is None else np.array(columns)

    def of(self, features: Float[np.ndarray, "L W"], clock: Clock) -> Float[np.ndarray, "L W"] | None:
        """``(L, W)`` what each column adds to each candidate's score, beside the forest's expected score.

        Returns:
            None if the time was up before the last candidate.

        Raises:
            ScoringError: if LightGBM fails.
        """
        matrix = lightgbm_input(features, self.schema)[:, self._columns]
        contributions = np.zeros(features.shape)
        for begin in range(0, len(matrix), _TOGETHER):
            if clock.over():
                return None
            rows = slice(begin, begin + _TOGETHER)
            try:
                found = self._booster.predict(matrix[rows], pred_contrib=True, num_threads=1)
            except self._error as error:
                raise ScoringError(f"the first stage could not be explained: {error}") from error
            np.add.at(contributions[rows].T, self._columns, np.asarray(found, dtype=np.float64)[:, :-1].T)
        return contributions


_opened: WeakKeyDictionary[ExplainedReranker, TreeContributions] = WeakKeyDictionary()
"""Models that were explained once, as long as their bundle serves."""


def tree_contributions(reranker: ExplainedReranker) -> TreeContributions | None:
    """Those of the first stage, read from the bundle at the first use; None if it is no forest, or one of linear trees.

    Raises:
        BundleError: if the bundle's file is gone, or another one.
    """
    entry = reranker.manifest.first_stage
    if entry.kind != "lightgbm" or reranker.first_stage_model is None:
        return None
    if reranker not in _opened:
        model = reranker.first_stage_model()
        if _LINEAR in model:
            return None
        relative = reranker.relative
        schema = relative.schema if relative is not None and entry.relative else reranker.manifest.feature_schema
        _opened[reranker] = TreeContributions(model.decode(), schema)
    return _opened[reranker]
