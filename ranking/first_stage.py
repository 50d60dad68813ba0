"""The first stage, one score per candidate: by LightGBM, from a column, or by an ONNX graph that was brought along."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.errors import SchemaMismatchError, ScoringError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.plain_file import MOST_JSON_VALUES, check_values
from listwright.ranking.scorers import OnnxScorer, all_finite

if TYPE_CHECKING:
    import lightgbm


_DEFAULT_NAME = re.compile(r"Column_\d+")


def read_booster(model: str) -> lightgbm.Booster:
    """Read a model from LightGBM's text format.

    LightGBM ends the whole process on numbers that do not fit together: they are checked first.

    Raises:
        ScoringError: if the text is no whole LightGBM model.
    """
    import lightgbm  # noqa: PLC0415 - takes two seconds where pandas and scikit-learn are installed

    begin, end = model.find("\nTree=0\n") + 1, model.find("\nend of trees\n") + 1
    if not model.startswith("tree\n") or not 0 < begin < end:
        raise ScoringError("not a LightGBM text model with trees, as Booster.save_model writes one, or truncated")
    try:
        _check_trees(model[:begin], model[begin:end].encode())
        check_values(model[end:], MOST_JSON_VALUES)  # pandas_categorical is JSON
        return lightgbm.Booster(model_str=model)
    except (lightgbm.basic.LightGBMError, KeyError, ValueError, RecursionError) as error:
        raise ScoringError(f"not a LightGBM text model: {error}") from error


_MOST_TREE_BYTES, _MOST_LINES = 2**23, 22  # LightGBM reads no more lines
_PER_LEAF, _LINEAR = ("leaf_value", "leaf_weight", "leaf_count"), ("leaf_const", "num_features")
_PER_SPLIT = (
    *("split_feature", "threshold", "decision_type", "left_child", "right_child", "split_gain"),
    *("internal_value", "internal_weight", "internal_count"),
)
_WHOLE = (
    "decision_type",
    "left_child",
    "right_child",
    "cat_boundaries",
    "num_features",
    "split_feature",
    "leaf_features",
)


def _check_trees(head: str, trees: bytes) -> None:
    """Raise ValueError or KeyError where LightGBM would look beyond what the text gives."""
    facts = dict(line.split("=", 1) for line in head.split("\n") if "=" in line)
    sizes, width = list(map(int, facts["tree_sizes"].split())), int(facts["max_feature_idx"]) + 1
    if len(trees) != sum(sizes) or not 1 <= min(sizes) <= max(sizes) <= _MOST_TREE_BYTES:
        raise ValueError(f"it does not have the size that it states, or a tree has more than {_MOST_TREE_BYTES} bytes")
    outputs = int(facts["num_tree_per_iteration"])
    if not 1 <= outputs <= len(sizes) or outputs != int(facts["num_class"]) or re.search(r"\r|\n=|\nTree=|\d_\d", head):
        raise ValueError("its head does not fit its trees")
    end = 0
    for number, size in enumerate(sizes):
        end += size
        first, *lines = trees[end - size : end].decode().partition("\n\n")[0].split("\n")
        tree = dict(line.split("=", 1) for line in lines if re.fullmatch(r"\w+=[-+0-9.einfa ]*", line))
        if first != f"Tree={number}" or not len(tree) == len(lines) <= _MOST_LINES or not _is_tree(tree, width):
            raise ValueError(f"tree {number} is damaged")


def _is_tree(tree: dict[str, str], width: int) -> bool:
    """Return whether every number is there, and leads to a node, a leaf, a feature or a category that is there."""
    leaves, sets = int(tree["num_leaves"]), int(tree["num_cat"])
    values = {name: list(map(int if name in _WHOLE else float, text.split())) for name, text in tree.items()}
    counts = dict.fromkeys(_LINEAR, leaves)
    if leaves > 1:
        counts |= dict.fromkeys(_PER_LEAF, leaves) | dict.fromkeys(_PER_SPLIT, leaves - 1)
    bounds, words = values.get("cat_boundaries", [0]), values.get("cat_threshold", [])
    inputs, factors = values.get("leaf_features", []), values.get("leaf_coeff", [])
    kinds = zip(values["threshold"], values["decision_type"], strict=True)
    return (
        len(values["leaf_value"]) == leaves
        and all(len(values[name]) == count for name, count in counts.items() if name in values)
        and sorted(values["left_child"] + values["right_child"])
        == ([*range(-leaves, 0), *range(1, leaves - 1)] if leaves > 1 else [])
        and all(0 <= feature < width for feature in values["split_feature"] + inputs)
        and (bounds[0], bounds[-1], len(bounds)) == (0, len(words), sets + 1)
        and bounds == sorted(bounds)
        and all(0 <= threshold < sets for threshold, kind in kinds if int(kind) & 1)
        and sum(values.get("num_features", ())) == len(inputs) == len(factors)
    )


Engine = Literal["compiled", "lightgbm", "column", "onnx"]


@runtime_checkable
class FirstStage(Protocol):
    """A ranker that scores every candidate of a list.

    ``engine`` says by what: ``compiled``, ``lightgbm``, ``column`` or ``onnx``.
    """

    engine: Engine

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` finite raw scores, higher is better.

        Raises:
            ScoringError: if any score is missing or not finite.
        """
        ...


def model_columns(booster: lightgbm.Booster, schema: FeatureSchema) -> list[int] | None:
    """Return the schema's columns in the model's order; None if that is the schema's own order.

    A name is that of the same column, or else of the one column that LightGBM would write so: with blanks as
    underscores. A model whose features carry LightGBM's default names (``Column_0`` …), of which the schema has none,
    is matched by position. One that LightGBM itself fitted to a LETOR file has a column 0 more, which no such file
    fills and no tree asks for.

    Raises:
        SchemaMismatchError: naming the model's features that the schema lacks, the two widths, or the columns that one
            feature may be.
    """
    names = tuple(booster.feature_name())
    if all(_DEFAULT_NAME.fullmatch(name) for name in names) and schema.index.keys().isdisjoint(names):
        is_letor = schema.names == tuple(f"f{d}" for d in range(1, len(schema) + 1))
        if len(names) == len(schema) + 1 and is_letor and booster.feature_importance()[0] == 0:
            return [0, *range(len(schema))]  # any column may stand in for the one that is never looked at
        if len(names) != len(schema):
            raise SchemaMismatchError(
                f"the LightGBM model has {len(names)} unnamed features, the data have {len(schema)}: "
                "fit the model on the same columns, or with feature names",
                expected=names,
                sent=schema.names,
            )
        return None
    columns_by_name = {name: [column] for name, column in schema.index.items()}
    for column, name in enumerate(schema.names):
        if (spelling := re.sub(r"\s", "_", name)) not in schema.index:
            columns_by_name.setdefault(spelling, []).append(column)
    absent = [name for name in names if name not in columns_by_name]
    if absent:
        raise SchemaMismatchError(
            f"the LightGBM model uses {', '.join(map(repr, absent[:10]))}{' …' if len(absent) > 10 else ''}, "
            f"which the data lack; they have {', '.join(schema.names[:20])}{' …' if len(schema) > 20 else ''}",
            expected=names,
            sent=schema.names,
        )
    for name in names:
        if len(columns_by_name[name]) > 1:
            alike = ", ".join(repr(schema.names[column]) for column in columns_by_name[name])
            raise SchemaMismatchError(
                f"the LightGBM model's feature {name!r} may be each of {alike}, as LightGBM writes blanks in names as "
                "underscores: give the right one that name, or leave the others out",
                expected=names,
                sent=schema.names,
            )
    columns = [columns_by_name[name][0] for name in names]
    return None if columns == list(range(len(schema))) else columns


class LightGbmFirstStage:
    """A LightGBM ranker on one thread.

    Args:
        model: Model in LightGBM's text format.
        schema: Schema of the feature matrices that will be scored.

    ``columns`` are those of the schema in the model's order; None if that is the schema's own.

    Raises:
        SchemaMismatchError: if the model does not fit the schema.
        ScoringError: if the text is not a LightGBM model with one output.
    """

    engine: Engine = "lightgbm"

    def __init__(self, model: str, schema: FeatureSchema) -> None:
        from lightgbm.basic import LightGBMError  # noqa: PLC0415 - for the same reason as in read_booster

        self._booster, self._error = read_booster(model), LightGBMError
        if self._booster.num_model_per_iteration() != 1:
            raise ScoringError(
                f"the LightGBM model gives {self._booster.num_model_per_iteration()} outputs per candidate, not one"
            )
        self._schema = schema
        self.columns = model_columns(self._booster, schema)

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` raw LambdaMART scores."""
        matrix = lightgbm_input(features, self._schema)
        if self.columns is not None:
            matrix = matrix[:, self.columns]
        try:
            scores = np.asarray(self._booster.predict(matrix, raw_score=True, num_threads=1), dtype=np.float64)
        except self._error as error:
            raise ScoringError(f"the first stage failed: {error}") from error
        return all_finite(scores, "first stage")


class ColumnFirstStage:
    """Scores that the caller computed, read from one feature column."""

    engine: Engine = "column"

    def __init__(self, feature: str, schema: FeatureSchema) -> None:
        self._column = schema.index[feature]
        self._feature = feature

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` the column itself."""
        return all_finite(features[:, self._column].astype(np.float64), f"first-stage column {self._feature!r}")


class OnnxFirstStage:
    """An ONNX graph ``features (L, F) float32 -> scores (L,)``, run once per list on one thread.

    Convention: the graph sees the F numeric features of the schema, in its order. ONNX keeps no list of categories, so
    that no code of a category could be known to mean the same in the graph. A missing value is NaN, also where training
    data had none: what it means is the graph's own affair.

    Args:
        model: Serialised graph, with its weights inside.
        schema: Schema of the feature matrices that will be scored.

    Raises:
        ScoringError: if it is not such a graph, or holds what :mod:`listwright.ranking.onnx_graph` does not let
            through.
    """

    engine: Engine = "onnx"

    def __init__(self, model: bytes, schema: FeatureSchema) -> None:
        self._scorer = OnnxScorer(model, len(schema.numeric), name="first stage")
        self._columns = list(schema.numeric) if schema.categorical else None

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` the graph's scores."""
        numeric = features if self._columns is None else features[:, self._columns]
        return self._scorer.score(numeric).astype(np.float64)
