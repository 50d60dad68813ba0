"""A first stage that somebody already runs: a LightGBM model, an ONNX graph, or scores that stand in the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import DataError, RecipeError, SchemaMismatchError, ScoringError
from listwright.ranking.features import Feature, FeatureSchema, spelled
from listwright.ranking.first_stage import OnnxFirstStage, model_columns, read_booster
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.binning import silence_lightgbm
from listwright.training.first_stage.foreign_models import HEAD_BYTES, is_onnx, recognised
from listwright.training.first_stage.given_onnx import canonical

WARNING = (
    "scores of a model that was fitted on the training queries look better there than they will on new ones, and "
    "the reranker learns to trust them too much. Unless that model has never seen these queries, fit the reranker on "
    "queries from after its training period, or let Listwright fit the first stage (it scores training queries "
    "out-of-fold). The same holds for the test figures below: they mean something only for queries it has not seen."
)
"""Printed whenever first-stage scores are not out-of-fold."""

NO_MISSING = (
    "the given model has no score for a candidate with a missing value (it gives NaN). A request with a null in it is "
    "then answered in input order. Replace missing values inside the graph, or send every number"
)
"""Printed where that is so."""

_FAILED = (
    "the graph has to give one finite score per candidate for lists of any length; a missing value reaches it as NaN, "
    "which it has to replace or to know"
)


def read_model(path: Path, schema: FeatureSchema) -> str | bytes:
    """A model file, told by its content: the text of a LightGBM model, or an ONNX graph as a bundle holds it.

    Args:
        path: of the file.
        schema: of the data; an ONNX graph takes its numeric features.

    Raises:
        RecipeError: if the file cannot be read, is neither of them, or is a graph that cannot score these features;
            says what else it looks like.
    """
    silence_lightgbm()
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if is_onnx(head):
            return canonical(path.read_bytes(), schema)
        foreign = recognised(head)
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
        SchemaMismatchError: if the model's features are not in the schema, it knows another number of categorical
            columns than the schema, or a column's categories do not belong to what the model says of its feature; names
            them.
    """
    booster = read_booster(model)
    columns = model_columns(booster, schema) or list(range(len(schema)))
    categorical = [column for column in columns if column in schema.categorical]
    known = booster.pandas_categorical or []
    if len(known) != len(categorical):
        names = ", ".join(repr(schema.names[column]) for column in categorical) or "none"
        fault: str | None = (
            f"the LightGBM model stores categories of {len(known)} columns, the data have {len(categorical)} "
            f"categorical columns ({names}): name the same columns with --categorical as in the model's training frame "
            "(columns that the model was given as plain integers stay numeric here; write those that it was given as "
            "booleans as 0 and 1)"
        )
    else:
        infos = dict(zip(columns, _infos(model), strict=True))
        fault = _kind_fault(infos, dict(zip(categorical, known, strict=True)), schema)
    if fault is not None:
        raise SchemaMismatchError(fault, expected=tuple(booster.feature_name()), sent=schema.names)
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


def _infos(model: str) -> list[str]:
    """What a LightGBM text model says of each feature's training values: ``[lowest:highest]`` of numbers, ``0:2:1`` of
    codes, ``none`` of a single value.
    """
    begin = model.index("\nfeature_infos=") + len("\nfeature_infos=")
    return model[begin : model.index("\n", begin)].split()


def _is_coded(info: str) -> bool:
    return info != "none" and not info.startswith("[")


def _kind_fault(infos: Mapping[int, str], known: Mapping[int, Sequence[object]], schema: FeatureSchema) -> str | None:
    """Why categories that a model stores cannot be those of the columns that would get them; None if they can.

    Args:
        infos: of :func:`_infos`, by column.
        known: categories by column, as they are to be read.
        schema: of the data.
    """
    others = [schema.names[column] for column, info in infos.items() if _is_coded(info) and column not in known]
    for column, categories in known.items():
        name, info = schema.names[column], infos[column]
        if others and not _is_coded(info):
            coded = ", ".join(map(repr, others))
            return (
                f"in the LightGBM model {coded} is categorical and {name!r} is not ({info}), in the data {name!r} is "
                f"and {coded} is not: name the columns with --categorical that were categories in the model's training "
                "frame, and give the others as numbers"
            )
        values = [] if info == "none" else [float(value) for value in info.strip("[]").split(":")]
        if values and (min(values) < -1 or max(values) >= len(categories)):
            return (
                f"the LightGBM model stores {len(categories)} categories where the data have {name!r}, whose training "
                f"values are {info[:100]}, and no codes of them: the categories are of another column; name those with "
                "--categorical that were categories in the model's training frame"
            )
        if (missing := next((c for c in categories if spelled(c) is None), None)) is not None:
            return (
                f"the LightGBM model stores a category {missing!r} of {name!r}, which stands for a missing value here: "
                "rename the category before training, such as 'Namibia' for 'NA'"
            )
        if len({spelled(category) for category in categories}) < len(categories):
            return (
                f"the LightGBM model stores two categories of {name!r} that are spelled alike: {list(categories)[:20]}"
            )
    return None


def columns_of(model: str | bytes, schema: FeatureSchema) -> frozenset[str]:
    """Names of the columns that a model looks at: all, where its features have no names; all numeric ones of ONNX.

    Raises:
        SchemaMismatchError: if the model's features are not in the schema.
    """
    if isinstance(model, bytes):
        return frozenset(schema.names[column] for column in schema.numeric)
    columns = model_columns(read_booster(model), schema)
    return frozenset(schema.names if columns is None else (schema.names[column] for column in columns))


def knows_missing(graph: bytes, schema: FeatureSchema) -> bool:
    """Whether an ONNX graph has a score for candidates all of whose values are missing."""
    stage = OnnxFirstStage(graph, schema)
    try:
        stage.score(np.full((2, len(schema)), np.nan, dtype=np.float32))
    except ScoringError:
        return False
    return True


def graph_scores(graph: bytes, data: Dataset, path: Path) -> Float[np.ndarray, " R"]:
    """``(R,)`` scores of an ONNX graph for every row, by the code that serves: it sees one list at a time.

    Args:
        graph: as of :func:`read_model`.
        data: under the schema that it was read for.
        path: only for error messages.

    Raises:
        RecipeError: if the graph does not run, or fails on a list; names the query.
    """
    place, scores = str(path), np.empty(data.rows)
    try:
        stage = OnnxFirstStage(graph, data.schema)
        for n, qid in enumerate(data.qids):
            place, rows = f"{path}, query {qid}", data.slice(n)
            scores[rows] = stage.score(data.features[rows])
    except ScoringError as error:
        raise RecipeError(f"--first-stage {place}: {error}; {_FAILED}") from error
    return scores


def column_scores(column: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """``(R,)`` scores that stand in a feature column.

    Raises:
        RecipeError: if there is no such numeric column.
        DataError: if a score is missing; names the query.
    """
    index = data.schema.index.get(column)
    if index is None or index in data.schema.categorical:
        names = ", ".join(data.schema.names[d] for d in data.schema.numeric)
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
