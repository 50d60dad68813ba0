"""Small real bundles without torch: a first stage and a hand-made ONNX graph that looks at the whole list."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import lightgbm
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking import bundle, golden
from listwright.ranking.aggregates import Aggregates
from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import FORMAT_VERSION, Manifest
from listwright.ranking.relative import RelativeColumn, RelativeColumns
from listwright.ranking.stages import (
    GOLDEN,
    AnomalyStage,
    FeatureWeight,
    GoalsStage,
    GoalStage,
    LightGbmStage,
    NetworkKind,
    NetworkStage,
    OnnxStage,
    ProbabilityStage,
    RouterStage,
    Specialist,
    SrmStage,
)

NUMERIC = ("price", "stars", "bm25")
CATEGORY = Feature(name="carrier", kind="categorical", categories=("A5", "B2", "C7"))
MISSING = "bm25"
"""The one feature that training had missing values in, and that a request may leave out."""


RELATIVE = (
    RelativeColumn(feature="price", kind="z", scale=2.0),
    RelativeColumn(feature="bm25", kind="rank", quantiles=(0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0)),
    RelativeColumn(feature="price", kind="rank", quantiles=(0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0)),
    RelativeColumn(feature="carrier", kind="count"),
    RelativeColumn(feature="stars", kind="above_lowest_within", within="carrier"),
)
"""List-relative columns of a bundle that has some."""


def schema(*, categorical: bool = True, defaults: Mapping[str, float | str] | None = None) -> FeatureSchema:
    numeric = tuple(Feature(name=name, missing_in_training=name == MISSING) for name in NUMERIC)
    features = (*numeric, CATEGORY) if categorical else numeric
    given = defaults or {}
    return FeatureSchema(features=tuple(f.model_copy(update={"default": given.get(f.name)}) for f in features))


def rows(rng: np.random.Generator, count: int, *, categorical: bool = True) -> np.ndarray:
    """Feature rows in schema order; about a fifth of the missing feature is missing."""
    numbers = rng.normal(size=(count, len(NUMERIC))).astype(np.float32)
    numbers[rng.random(count) < 0.2, NUMERIC.index(MISSING)] = np.nan
    if not categorical:
        return numbers
    return np.column_stack([numbers, rng.integers(0, 4, size=count)]).astype(np.float32)


def make_bundle(
    out: Path,
    *,
    categorical: bool = True,
    cutoff: int = 100,
    first_stage_score: bool = True,
    graph: Literal["list", "nan", "broken"] = "list",
    seed: int = 7,
    kind: NetworkKind | None = "qilcm",
    specialists: int = 0,
    margin: float | Literal["no router"] | None = "no router",
    harmful: bool = False,
    format_version: int = FORMAT_VERSION,
    defaults: Mapping[str, float | str] | None = None,
    first_stage: Literal["lightgbm", "onnx"] = "lightgbm",
    relative: bool = False,
    also: NetworkKind | None = None,
    probability: Literal["relevance", "choice"] | None = None,
    goals: Mapping[str, float] | None = None,
) -> Path:
    """Publish a bundle at ``out`` (``.../NAME/VERSION``).

    ``graph="nan"`` gives NaN for a candidate whose price is above 1000, so that a request can make it degrade, and
    ``graph="broken"`` for one whose price is 0, which is in no golden list. Another seed gives other scores,
    and without a ``kind`` there is no second stage.
    Specialists rank by random linear scores. With a ``margin`` there is a router, which requests can steer: it finds
    specialist 0 the best in a list whose mean number of stars is below 0 and the last one above, each with a gain of
    the list's mean price; its graph gives NaN where that price is above 500. A second stage that is ``harmful`` is not
    what ``auto`` means. With ``relative``, both stages see list-relative columns of numbers and categories; ``also`` is the kind
    of a second network. An ONNX first stage is a weighted sum of the numeric features. With a ``probability`` scores are
    calibrated: by a pointwise model of relevance, or by temperatures alone where labels are choices. ``goals`` beside
    the label ``booked`` are given by name with their default weights; the first of them prefers high prices.
    """
    rng = np.random.default_rng(seed)
    columns = schema(categorical=categorical, defaults=defaults)
    first = LightGbmStage(relative=relative) if first_stage == "lightgbm" else OnnxStage()
    stages = tuple(
        NetworkStage(kind=k, file=f"{k}.onnx", cutoff=cutoff, first_stage_score=first_stage_score, relative=relative)
        for k in (kind, also)
        if k is not None
    )
    manifest = Manifest(
        format_version=format_version,
        name=out.parent.name,
        version=out.name,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe={"made": "by hand"},
        data="random rows",
        feature_schema=columns,
        fingerprint=columns.fingerprint,
        relative=RELATIVE if relative else (),
        first_stage=first,
        second_stages=stages,
        strategy="first_stage" if harmful or kind is None else kind,
        default_reason=f"{kind} is worse than the first stage" if harmful else None,
        validated_lengths=(1, 2, 10),
    )
    if specialists:
        weights = [2.0**-k for k in range(specialists)]
        ranked = tuple(
            Specialist(
                weight=weight / sum(weights),
                queries=100 - k,
                top_features=(FeatureWeight(feature=NUMERIC[k % len(NUMERIC)], weight=1.0),),
            )
            for k, weight in enumerate(weights)
        )
        manifest = manifest.model_copy(update={"srm": SrmStage(specialists=ranked)})
    if margin != "no router":
        router = RouterStage(temperature=0.5, margin=margin)
        manifest = manifest.model_copy(
            update={"anomaly": AnomalyStage(quantiles=(0.35, 0.37, 0.42, 0.45, 0.5, 0.6, 0.7)), "router": router}
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent))
    if isinstance(first, OnnxStage):
        (folder / first.file).write_bytes(_linear(rng.normal(size=len(NUMERIC)).astype(np.float32), "first stage"))
    else:
        (folder / first.file).write_text(_lambdamart(rng, columns, manifest.relative, categorical=categorical))
    files = [first.file, GOLDEN]
    for stage in stages:
        files.append(stage.file)
        (folder / stage.file).write_bytes(_graph(rng, bundle.input_width(stage, manifest), graph))
    if manifest.srm is not None:
        files.append(manifest.srm.file)
        (folder / manifest.srm.file).write_bytes(_specialists(rng, len(columns), specialists))
    if manifest.router is not None:
        seen = Aggregates(columns, specialists)
        files += ["anomaly.onnx", "router.onnx"]
        (folder / "anomaly.onnx").write_bytes(_linear(np.full((seen.numeric, 1), 0.1, dtype=np.float32), "anomaly"))
        (folder / "router.onnx").write_bytes(_router(seen.names, specialists))
    if probability == "choice":
        manifest = manifest.model_copy(update={"temperatures": dict.fromkeys(manifest.strategies, 2.0)})
    elif probability == "relevance":
        calibration = ProbabilityStage(
            relative=relative,
            slope=1.0,
            intercept=0.0,
            temperatures=dict.fromkeys(manifest.strategies, 2.0),
            pointwise=dict.fromkeys(manifest.strategies, 0.5),
            lists=30,
            mean=0.4,
        )
        manifest = manifest.model_copy(update={"probability": calibration})
        files.append(calibration.file)
        (folder / calibration.file).write_text(_pointwise(columns, manifest.relative, categorical=categorical))
    if goals:
        others = tuple(
            GoalStage(name=name, file=f"goal_{number}.txt", spread=0.5, weight=weight)
            for number, (name, weight) in enumerate(goals.items())
        )
        spreads = dict.fromkeys(manifest.strategies, 1.5)
        manifest = manifest.model_copy(update={"goals": GoalsStage(label="booked", spreads=spreads, others=others)})
        for number, goal in enumerate(others):
            files.append(goal.file)
            (folder / goal.file).write_text(_for_goal(columns, number, categorical=categorical))
    reranker = bundle.open_unsealed(folder, manifest)
    lists = [rows(rng, length, categorical=categorical) for length in (1, 2, 3, 5, 8, 12)]
    (folder / GOLDEN).write_bytes(golden.record(reranker, lists))
    bundle.seal(folder, manifest, files)
    bundle.publish(folder, out)
    return out


def _lambdamart(
    rng: np.random.Generator, columns: FeatureSchema, more: tuple[RelativeColumn, ...], *, categorical: bool
) -> str:
    features = rows(rng, 600, categorical=categorical)
    labels = np.clip(np.round(features[:, 1] + rng.normal(size=600)), 0, 3).astype(int)
    if more:
        relative = RelativeColumns(more, columns)
        features = np.concatenate([relative.widened(part) for part in np.split(features, 30)])
        columns = relative.schema
    data = lightgbm.Dataset(
        lightgbm_input(features, columns), labels, group=[20] * 30, categorical_feature=list(columns.categorical)
    )
    params = {"objective": "lambdarank", "verbosity": -1, "num_leaves": 8, "num_threads": 1, "seed": 1}
    return lightgbm.train(params, data, num_boost_round=10).model_to_string()


def _pointwise(columns: FeatureSchema, more: tuple[RelativeColumn, ...], *, categorical: bool) -> str:
    """A model of the log-odds of being relevant, by the number of stars, or by the first of the list-relative columns."""
    rng = np.random.default_rng(11)
    features = rows(rng, 600, categorical=categorical)
    values = features[:, 1]
    if more:
        relative = RelativeColumns(more, columns)
        features = np.concatenate([relative.widened(part) for part in np.split(features, 30)])
        values, columns = features[:, len(columns)], relative.schema
    data = lightgbm.Dataset(lightgbm_input(features, columns), np.nan_to_num(values) + rng.normal(size=600) > 0)
    params = {"objective": "binary", "verbosity": -1, "num_leaves": 8, "num_threads": 1, "seed": 1}
    return lightgbm.train(params, data, num_boost_round=10).model_to_string()


def _for_goal(columns: FeatureSchema, number: int, *, categorical: bool) -> str:
    """A model that prefers high values of one numeric feature."""
    features = rows(np.random.default_rng(13), 600, categorical=categorical)
    labels = np.nan_to_num(features[:, number % len(NUMERIC)])
    params = {"objective": "regression", "verbosity": -1, "num_leaves": 8, "num_threads": 1, "seed": 1}
    data = lightgbm.Dataset(lightgbm_input(features, columns), labels)
    return lightgbm.train(params, data, num_boost_round=10).model_to_string()


def _graph(rng: np.random.Generator, width: int, kind: str) -> bytes:
    """``scores = (x - mean over the list) @ w`` with NaN read as 0; the price comes first."""
    weights = rng.normal(size=(width,)).astype(np.float32)
    comparison, limit = {"list": ("Greater", np.inf), "nan": ("Greater", 1000.0), "broken": ("Equal", 0.0)}[kind]
    nodes = [
        helper.make_node("IsNaN", ["features"], ["holes"]),
        helper.make_node("Where", ["holes", "zero", "features"], ["x"]),
        helper.make_node("ReduceMean", ["x", "list_axis"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "w"], ["sane"]),
        helper.make_node("Gather", ["x", "first"], ["price"], axis=1),
        helper.make_node(comparison, ["price", "limit"], ["broken"]),
        helper.make_node("Where", ["broken", "nan", "sane"], ["scores"]),
    ]
    constants = {
        "zero": np.float32(0.0),
        "list_axis": np.array([0], dtype=np.int64),
        "w": weights,
        "first": np.int64(0),
        "limit": np.float32(limit),
        "nan": np.float32(np.nan),
    }
    graph = helper.make_graph(
        nodes,
        "list",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["candidates", width])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["candidates"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _specialists(rng: np.random.Generator, width: int, count: int) -> bytes:
    return _linear(rng.normal(size=(width, count)).astype(np.float32), "specialists")


def _router(names: tuple[str, ...], count: int) -> bytes:
    """Shares by the mean number of stars, gains by the mean price; see :func:`make_bundle`."""
    weights = np.zeros((len(names), 2 * count), dtype=np.float32)
    weights[names.index("mean of stars"), :count] = np.arange(count) - (count - 1) / 2
    weights[names.index("mean of price"), count:] = 1.0
    return _linear(weights, "router", nan_above=500.0)


def _linear(weights: np.ndarray, name: str, nan_above: float = np.inf) -> bytes:
    """``scores = features @ weights`` with NaN read as 0; NaN where a score is above the limit."""
    nodes = [
        helper.make_node("IsNaN", ["features"], ["holes"]),
        helper.make_node("Where", ["holes", "zero", "features"], ["x"]),
        helper.make_node("MatMul", ["x", "w"], ["sane"]),
        helper.make_node("Greater", ["sane", "limit"], ["broken"]),
        helper.make_node("Where", ["broken", "nan", "sane"], ["scores"]),
    ]
    constants = {"zero": np.float32(0), "w": weights, "limit": np.float32(nan_above), "nan": np.float32(np.nan)}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", weights.shape[0]])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", *weights.shape[1:]])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
