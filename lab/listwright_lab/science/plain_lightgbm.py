"""LightGBM as most people would fit it in twenty lines: the rival of every default fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from jaxtyping import Float

from listwright.training.data.dataset import Dataset

CUTOFF = 10

Ranker = Callable[[Dataset], Float[np.ndarray, " R"]]
"""Scores of all rows; higher is better."""

Objective = str | Callable[..., tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]]
"""Loss: LightGBM's name of it, or its gradient and Hessian."""


def fit_lightgbm(
    train: Dataset, valid: Dataset, *, objective: Objective = "lambdarank", relative: bool = False
) -> Ranker:
    """Fit LightGBM as most people would.

    Args:
        train: Training lists.
        valid: Validation lists, which stop the fit; of the same schema.
        objective: Loss.
        relative: Whether the columns also have each number's z-score and rank within its list.
    """
    numeric = [name for n, name in enumerate(train.schema.names) if n not in train.schema.categorical]

    def table(data: Dataset) -> pd.DataFrame:
        frame = frame_of(data)
        if not relative:
            return frame
        lists = frame[numeric].groupby(np.repeat(np.arange(len(data)), data.lengths))
        z = (frame[numeric] - lists.transform("mean")) / lists.transform("std").clip(lower=1e-6)
        return pd.concat([frame, z.add_suffix(" z"), lists.rank(pct=True).add_suffix(" rank")], axis=1)

    more: dict[str, Any] = {"random_state": 0, "verbosity": -1, "n_jobs": 1}
    model = lightgbm.LGBMRanker(objective=objective, n_estimators=1000, learning_rate=0.05, **more)
    model.fit(
        table(train),
        train.labels,
        group=train.lengths,
        eval_X=table(valid),
        eval_y=valid.labels,
        eval_group=[valid.lengths],
        eval_at=[CUTOFF],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    return lambda data: np.asarray(model.predict(table(data)), dtype=np.float64)


def frame_of(data: Dataset, schema: Dataset | None = None) -> pd.DataFrame:
    """Return features by name, the codes of categories as pandas' categories; those of ``schema`` where it is given."""
    frame = pd.DataFrame(np.asarray(data.features), columns=list(data.schema.names))
    for place in data.schema.categorical:
        name = data.schema.names[place]
        codes = frame[name].astype("int32")
        known = None if schema is None else range(len(schema.schema.features[place].categories) + 1)
        frame[name] = pd.Categorical(codes, categories=known)
    return frame
