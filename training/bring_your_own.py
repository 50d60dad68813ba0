"""A first stage that somebody already runs: a LightGBM model, or scores that stand in the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float

from ranking.errors import DataError, RecipeError, SchemaMismatchError, ScoringError
from ranking.features import Feature, FeatureSchema
from ranking.first_stage import model_columns, read_booster
from training.data.dataset import Dataset
from training.data.tables.columns import spelled
from training.foreign_models import HEAD_BYTES, recognised

WARNING = (
    "scores of a model that was fitted on the training queries look better there than they will on new ones, and "
    "the reranker learns to trust them too much. Unless that model has never seen these queries, fit the reranker on "
    "queries from after its training period, or let Listwright fit the first stage (it scores training queries "
    "out-of-fold). The same holds for the test figures below: they mean something only for queries it has not seen."
)
"""Printed whenever first-stage scores are not out-of-fold."""


def read_model(path: Path) -> str:
    """The text of a LightGBM model file.

    Raises:
        RecipeError: if the file cannot be read or is no LightGBM text model; says what else it looks like.
    """
    try:
        with path.open("rb") as file:
            foreign = recognised(file.read(HEAD_BYTES))
        if foreign is not None:
            raise RecipeError(f"--first-stage {path}: {foreign}")
        text = path.read_text(encoding="utf-8")
        read_booster(text)
    except (OSError, UnicodeDecodeError, ScoringError) as error:
        raise RecipeError(f"--first-stage {path}: {error}") from error
    return text


def under_model_categories(model: str, schema: FeatureSchema) -> FeatureSchema:
    """The schema with categories in the order of the model's own pandas categories, so that its codes mean the same.

    Raises:
        SchemaMismatchError: if the model's features are not in the schema, or it knows another number of categorical
            columns than the schema; names them.
    """
    booster = read_booster(model)
    columns = model_columns(booster, schema) or list(range(len(schema)))
    categorical = [column for column in columns if column in schema.categorical]
    known = booster.pandas_categorical or []
    if len(known) != len(categorical):
        names = ", ".join(repr(schema.names[column]) for column in categorical) or "none"
        raise SchemaMismatchError(
            f"the LightGBM model stores categories of {len(known)} columns, the data have {len(categorical)} "
            f"categorical columns ({names}): name the same columns with --categorical as in the model's training frame "
            "(columns that the model was given as plain integers stay numeric here)",
            expected=tuple(booster.feature_name()),
            sent=schema.names,
        )
    features = list(schema.features)
    # pandas_categorical follows the column order of the training frame, which is the model's feature order
    for column, categories in zip(categorical, known, strict=True):
        features[column] = Feature(
            name=features[column].name,
            kind="categorical",
            categories=tuple(str(spelled(category)) for category in categories),
            missing_in_training=features[column].missing_in_training,
        )
    return FeatureSchema(features=tuple(features))


def columns_of(model: str, schema: FeatureSchema) -> frozenset[str]:
    """Names of the columns that a model looks at: all, where its features have no names.

    Raises:
        SchemaMismatchError: if the model's features are not in the schema.
    """
    columns = model_columns(read_booster(model), schema)
    return frozenset(schema.names if columns is None else (schema.names[column] for column in columns))


def column_scores(column: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """``(R,)`` scores that stand in a feature column.

    Raises:
        RecipeError: if there is no such numeric column.
        DataError: if a score is missing; names the query.
    """
    index = data.schema.index.get(column)
    if index is None or index in data.schema.categorical:
        names = ", ".join(name for d, name in enumerate(data.schema.names) if d not in data.schema.categorical)
        raise RecipeError(f"--first-stage-column {column!r} is no numeric column of the data; there are: {names}")
    scores = data.features[:, index].astype(np.float64)
    missing = np.flatnonzero(np.isnan(scores))
    if len(missing):
        query = int(np.searchsorted(data.offsets, missing[0], side="right")) - 1
        raise DataError(
            f"query {data.qids[query]}",
            f"{len(missing)} rows have no score, the first stands in this query: give every candidate one",
            column=column,
        )
    return scores
