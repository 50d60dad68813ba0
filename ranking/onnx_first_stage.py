"""A first stage that is an ONNX graph: a ranker that XGBoost, CatBoost, torch or another library fitted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import Engine
from listwright.ranking.scorers import OnnxScorer


class OnnxFirstStage:
    """An ONNX graph ``features (L, N) float32 -> scores (L,)``, run once per list on one thread.

    Convention: the graph sees the N numeric features of the schema, in its order. ONNX keeps no list of categories, so
    that no code of a category could be known to mean the same in the graph. A missing value is NaN, also where training
    data had none: what it means is the graph's own affair.

    Args:
        model: the serialised graph, with its weights inside.
        schema: of the feature matrices that will be scored.

    Raises:
        ScoringError: if it is not such a graph, or holds what :mod:`listwright.ranking.onnx_graph` does not let
            through.
    """

    engine: Engine = "onnx"

    def __init__(self, model: bytes, schema: FeatureSchema) -> None:
        self._scorer = OnnxScorer(model, len(schema.numeric), name="first stage")
        self._columns = list(schema.numeric) if schema.categorical else None

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """``(L,)`` the graph's scores."""
        seen = features if self._columns is None else features[:, self._columns]
        return self._scorer.score(seen).astype(np.float64)
