"""A bundle's ranker as one ONNX graph: from one list's features to its order, with nothing else at run time.

Every part computes what :class:`listwright.ranking.reranker.Reranker` does, from the same float32 features:

- List-relative columns sort each feature once, number the runs of equal values by a running sum, and find the ends of
  a run by scattering places. Sums run over sorted values as in :mod:`listwright.ranking.relative`: equal to the bit.
- LightGBM's trees are one ``TreeEnsemble`` in double, equal to the bit on one thread, over the columns of
  :mod:`listwright.ranking.compiled.lightgbm_trees`, in which a missing value is a number that goes the same way.
- ``TopK`` prefers the lower index among equals by its specification, as the service does. At a tied cutoff the bytes of
  the features decide, as in :func:`listwright.ranking.order.best`; ONNX has no operator for these but arithmetic.
- The second stage's graph is the bundle's own, with other names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from jaxtyping import Float
from onnx import TensorProto, helper

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.bundle import Bundle, read_listed
from listwright.ranking.compiled.lightgbm_trees import (
    CATEGORICAL,
    CATEGORY,
    ZERO_LEFT,
    ZERO_RIGHT,
    Forest,
    UnsupportedForestError,
    read_forest,
)
from listwright.ranking.errors import RecipeError, ScoringError, UnknownStrategyError
from listwright.ranking.features import FLOAT32_MAX, MISSING_WORDS, Feature, spelled
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.ranking.goals import LEAST_SHARE
from listwright.ranking.golden import difference, read
from listwright.ranking.plain_file import to_text
from listwright.ranking.probability import FARTHEST, SUREST
from listwright.ranking.ranker_file import FACTS, RankerFacts, RankerFile, answer
from listwright.ranking.relative import CATEGORY_KINDS, EPSILON, FIELDS, RelativeColumn
from listwright.ranking.stages import GOLDEN, GoalsStage, LightGbmStage, OnnxStage, SecondStage
from listwright.training.export.graph_writer import OPSET, GraphWriter
from listwright.training.export.parity import hard_lists, list_lengths

_ML = "ai.onnx.ml"

_IR_VERSION = 12
"""IR version that ONNX Runtime reads from 1.24 on. Older ones are to refuse the file: they take some roots of trees for
leaves (https://github.com/microsoft/onnxruntime/issues/24679), and would give wrong scores.
"""

_LIGHTGBM_ZERO = float(np.float32(1e-35))
"""Numbers up to this size are zero to LightGBM."""

_WAYS_OUT = np.array([np.inf, -np.inf, 0.0, np.inf, -np.inf, -1.0])
"""Number that goes where a missing value does, by the number of the column's treatment."""

_BISECTIONS = 60
"""Halvings of the interval in which a list's level is: one of 1e6 becomes one of 1e-12."""

_LESS_OR_EQUAL, _MEMBER = 0, 6
"""Modes of a node of ``TreeEnsemble``."""


def write_ranker(
    bundle: Bundle, out: Path, *, strategy: str = "auto", specialist: int | None = None, codes: bool = False
) -> RankerFile:
    """Write a bundle's ranker as one ONNX file, and check it against the bundle.

    Inputs, with L candidates: ``numbers``, ``(L, N)`` float32 numeric features in schema order, NaN = missing, and
    ``categories``, ``(L, J)`` strings of the categorical ones, "" = missing. Where the schema has no categories, or
    they are sent as codes: ``features``, ``(L, D)`` float32. Outputs: those of
    :class:`listwright.ranking.candidates.RankedList`, in double and int64.

    The file carries the bundle's golden lists and their answers. Before it is written, it ranks these, and lists that
    are easy to get wrong (:func:`listwright.training.export.parity.hard_lists`), as the bundle does.

    Args:
        bundle: Loaded bundle.
        out: Path of the file; one that is there is replaced.
        strategy: ``auto`` or one of the manifest's strategies.
        specialist: Number of the specialist, for the strategy ``srm``; None for the mixture under its own weights.
        codes: Whether the input is one matrix with categories as codes.

    Raises:
        RecipeError: if a router chooses the ranker, or the graph cannot be written; says what to do.
        UnknownStrategyError: if the bundle has no such strategy or specialist.
        ScoringError: if the graph ranks a list otherwise than the bundle.
    """
    manifest, reranker, router = bundle.manifest, bundle.reranker, bundle.reranker.router
    is_routed = router is not None and (strategy == "srm" or (strategy == "auto" and not router.always_abstains))
    if is_routed and specialist is None:
        others = " or ".join(name for name in manifest.strategies if name != "srm")
        routed = f"{manifest.name}/{manifest.version} asks a router about each list, which the file cannot hold"
        raise RecipeError(f"{routed}: choose a ranker by --strategy {others}, or by --specialist")
    if specialist is not None and manifest.srm is None:
        raise UnknownStrategyError(f"specialist {specialist}: {manifest.name}/{manifest.version} has no specialists")
    if strategy == "auto":
        strategy = manifest.strategy if specialist is None else "srm"
    recorded = read(read_listed(bundle.path, manifest, GOLDEN), bundle.path / GOLDEN)
    texts = dict.fromkeys(json.dumps(entry.features) for entry in recorded)  # the same lists for every strategy
    lists = [np.array(json.loads(text), dtype=np.float32) for text in texts]
    expected = partial(answer, reranker, strategy=strategy, specialist=specialist)
    facts = RankerFacts(
        name=manifest.name,
        version=manifest.version,
        manifest_sha256=manifest.sha256,
        strategy=strategy,
        specialist=specialist,
        feature_schema=manifest.feature_schema,
        golden_lists=tuple(map(expected, lists)),
        goals={} if manifest.goals is None else manifest.goals.default_weights,
    )
    stage = None if strategy == "first_stage" else reranker.second_pass.stage(strategy)
    graph = _RankerGraph(bundle, stage, specialist).model(codes=codes)
    helper.set_model_props(graph, {FACTS: facts.model_dump_json()})
    content = graph.SerializeToString()
    ranker = RankerFile(out, content)
    ranker.verify()
    rows, rng = np.concatenate(lists), np.random.default_rng(0)
    for length in list_lengths(stage, max(map(len, lists))):
        for name, features in hard_lists(rows, length, manifest.feature_schema, rng):
            if fault := difference(expected(features), ranker.rank(features)):
                raise ScoringError(f"the graph differs from the bundle, {name} list of {length}: {fault}")
    atomic_write(out, content)
    return ranker


class _RankerGraph(GraphWriter):
    """Graph of a whole ranker under construction; methods append operators, and return names of outputs."""

    def __init__(self, bundle: Bundle, stage: SecondStage | None, specialist: int | None) -> None:
        super().__init__()
        self._bundle, self._manifest, self._stage, self._specialist = bundle, bundle.manifest, stage, specialist
        self._schema = bundle.manifest.feature_schema
        self._ml = 5

    def model(self, *, codes: bool) -> onnx.ModelProto:
        """Return the finished model."""
        schema = self._schema
        inputs = [("numbers", TensorProto.FLOAT, len(schema.numeric))]
        inputs.append(("categories", TensorProto.STRING, len(schema.categorical)))
        if codes or not schema.categorical:
            inputs = [("features", TensorProto.FLOAT, len(schema))]
        inputs = [entry for entry in inputs if entry[2]]
        self._features = self._read_categories([name for name, _, _ in inputs])
        self._length = self.add("Shape", self._features, start=0, end=1)
        self._places = self.add("Range", np.int64(0), self.add("Squeeze", self._length), np.int64(1))
        self._widened = self._features
        stages = (self._manifest.first_stage, self._stage, self._manifest.probability)
        if any(getattr(stage, "relative", False) for stage in stages):
            self._widened = self.add("Concat", self._features, self._relative_columns(), axis=1)
        first = self._first_stage()
        usable, last = self._all_finite(first), self.add("Sub", np.float64(-1), self.cast(self._places, np.float64))
        scores = self.add("Where", usable, first, last)  # in input order where a score is missing, as the service does
        ranked, order = self._sorted(scores, self._length, axis=0, largest=1)
        scored, fine = usable, None
        if self._stage is not None:
            fine, reached, rescores, reorder = self._rescored(self._stage, scores, ranked, order)
            fine = self.add("And", fine, usable)
            scores, order = self.add("Where", fine, rescores, scores), self.add("Where", fine, reorder, order)
        temperature = self._of_strategy(self._manifest.temperatures, fine)
        if fine is not None:
            scored = self.add("And", usable, self.add("Or", reached, self.add("Not", fine)))
        log_odds = partial(self._log_odds, scores, scored, first, fine)
        outputs = {}
        if (probability := self._probability(log_odds, fine)) is not None:
            outputs["probability"] = self.add("Where", usable, probability, np.float64("nan"))
        if self._manifest.goals is not None:
            shares, total = self._goal_shares(self._manifest.goals, log_odds)
            outputs["goal_shares"] = self.add("Where", usable, shares, np.float64("nan"))
            if total is not None:
                scores, scored, temperature = self.add("Where", usable, total, last), usable, np.float64(1)
                _, order = self._sorted(scores, self._length, axis=0, largest=1)
        relevance = self._softmax(self.add("Where", scored, scores, np.float64("-inf")), temperature)
        relevance = self.add("Where", scored, relevance, np.float64("nan"))
        first = self.add("Where", usable, first, np.float64("nan"))
        outputs = {"scores": scores, "order": order, "relevance": relevance, "first_stage_scores": first, **outputs}
        self.nodes += [helper.make_node("Identity", [value], [name]) for name, value in outputs.items()]
        types = {name: TensorProto.INT64 if name == "order" else TensorProto.DOUBLE for name in outputs}
        shapes = {"goal_shares": ["candidates", "goals"]}
        value = helper.make_tensor_value_info
        sources = [value(name, dtype, ["candidates", width]) for name, dtype, width in inputs]
        results = [value(name, dtype, shapes.get(name, ["candidates"])) for name, dtype in types.items()]
        graph = helper.make_graph(self.nodes, "ranker", sources, results, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_ML, self._ml)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="listwright")

    # ----- inputs

    def _read_categories(self, inputs: list[str]) -> str:
        """Append ``(L, D)`` float32 features in schema order, in which missing categories are 0."""
        categorical = list(self._schema.categorical)
        if inputs == ["features"]:
            if not categorical:
                return "features"
            is_category = np.isin(np.arange(len(self._schema)), categorical)[None]
            missing = self.add("And", self.add("IsNaN", "features"), is_category)
            return self.add("Where", missing, np.float32(0), "features")
        parts = [name for name in inputs if name == "numbers"]
        for place, column in enumerate(categorical):
            names, numbers = zip(*_spellings(self._schema.features[column]).items(), strict=True)
            text = self.add("Gather", "categories", np.array([place]), axis=1)
            parts.append(
                self.add("LabelEncoder", text, domain=_ML, keys_strings=names, values_floats=numbers, default_float=0.0)
            )
        together = self.add("Concat", *parts, axis=1)
        return self.add("Gather", together, np.argsort([*self._schema.numeric, *categorical]), axis=1)

    # ----- list-relative columns

    def _relative_columns(self) -> str:
        """Append ``(L, M)`` float32, the columns of :class:`listwright.ranking.relative.RelativeColumns`."""
        columns = self._manifest.relative
        names = list(dict.fromkeys(column.feature for column in columns))
        values = self._rows(names)
        missing = self.add("IsNaN", values)
        padded = self.add("Where", missing, np.float64("inf"), values)
        ranked, order = self._sorted(padded, self._length, axis=1)
        blocks: list[str] = []
        keys: list[tuple[str, tuple[str, str | None]]] = []
        floors = {column.feature: (EPSILON * column.scale) ** 2 for column in columns if column.kind == "z"}
        if floors:
            blocks.append(self._z(values, missing, padded, ranked, np.array([[floors.get(n, 0.0)] for n in names])))
            keys += [("z", (name, None)) for name in names]
        compared = list(dict.fromkeys(_row_of(column) for column in columns if column.kind != "z"))
        if compared:
            places = np.array([names.index(feature) for feature, _ in compared])
            missing, ranked, order = (self.add("Gather", table, places) for table in (missing, ranked, order))
            for kind, block in self._group_columns([within for _, within in compared], ranked, order).items():
                blocks.append(self.add("Where", missing, np.float64("nan"), block))
                keys += [(kind, row) for row in compared]
        together = self.add("Concat", *blocks, axis=0)
        rows = np.array([keys.index((FIELDS.get(column.kind, column.kind), _row_of(column))) for column in columns])
        return self.add("Transpose", self.cast(self.add("Gather", together, rows), np.float32))

    def _rows(self, names: list[str]) -> str:
        """Append ``(F, L)`` double, one row for each feature."""
        places = np.array([self._schema.index[name] for name in names])
        rows = self.add("Gather", self.add("Transpose", self._features), places)
        return self.add("Add", self.cast(rows, np.float64), np.float64(0))  # both zeros are one

    def _z(self, values: str, missing: str, padded: str, ranked: str, floors: Float[np.ndarray, "F 1"]) -> str:
        """Append the z-scores of rows; ``padded`` has infinity for missing values, and ``ranked`` is sorted."""
        axis = np.array([1])
        count = self.add("ReduceSum", self.cast(self.add("Not", missing), np.float64), axis, keepdims=1)
        inside = self.add("Less", self.cast(self._places, np.float64), count)
        mean = self.add("Div", self._total(self.add("Where", inside, ranked, np.float64(0))), count)
        apart = self.add("Where", inside, self.add("Sub", ranked, mean), np.float64(0))
        variance = self.add("Div", self._total(self.add("Mul", apart, apart)), count)
        spread = self.add("Sqrt", self.add("Add", variance, floors))
        scores = self.add("Div", self.add("Sub", values, mean), spread)
        highest = self.add("ReduceMax", self.add("Where", missing, np.float64("-inf"), values), axis, keepdims=1)
        constant = self.add("Equal", self.add("ReduceMin", padded, axis, keepdims=1), highest)
        scores = self.add("Where", constant, np.float64(0), scores)
        return self.add("Where", missing, np.float64("nan"), scores)

    def _group_columns(self, within: list[str | None], ranked: str, order: str) -> dict[str, str]:
        """Append comparisons within groups by kind: blocks ``(R, L)`` in input order, of as many sorted rows."""
        kinds = {FIELDS.get(column.kind, column.kind) for column in self._manifest.relative}
        codes = self._rows([name or self._schema.names[0] for name in within])
        alone = self.add("Sub", np.float64(-1), self.cast(self._places, np.float64))
        groups = self.add("Where", self.add("Greater", codes, np.float64(0)), codes, alone)
        groups = self.add("Where", np.array([[name is None] for name in within]), np.float64(0), groups)
        groups = self.add("GatherElements", groups, order, axis=1)
        groups, group_order = self._sorted(groups, self._length, axis=1)
        order, ranked = (self.add("GatherElements", table, group_order, axis=1) for table in (order, ranked))
        changes = self._changes(groups)
        group = self._numbered(changes)
        first, last = self._ends(group)
        columns = {}
        if "rank" in kinds:
            there = self.cast(self.add("Less", ranked, np.float64("inf")), np.float64)
            count = self.add("ScatterElements", self.add("Sub", there, there), group, there, axis=1, reduction="add")
            steps = self.add("Sub", self.add("GatherElements", count, group, axis=1), np.float64(1))
            start, end = self._ends(self._numbered(self.add("Or", changes, self._changes(ranked))))
            places = self.add("Sub", self.add("Add", start, end), self.add("Add", first, first))
            ranks = self.add("Div", self.cast(places, np.float64), self.add("Mul", np.float64(2), steps))
            columns["rank"] = self.add("Where", self.add("Equal", steps, np.float64(0)), np.float64(0.5), ranks)
        if "above" in kinds:
            above = self.add("Sub", ranked, self.add("GatherElements", ranked, first, axis=1))
            columns["above"] = self.add("Min", above, np.float64(FLOAT32_MAX))
        if kinds & set(CATEGORY_KINDS):
            size = self.cast(self.add("Add", self.add("Sub", last, first), np.int64(1)), np.float64)
            known = self.cast(self.add("And", changes, self.add("Greater", groups, np.float64(0))), np.float64)
            columns["count"] = size
            columns["share"] = self.add("Div", size, self.cast(self._length, np.float64))
            known = self.add("ReduceSum", known, np.array([1]), keepdims=1)
            columns["distinct"] = self.add("Expand", known, self.add("Shape", size))
        return {
            kind: self.add("ScatterElements", column, order, column, axis=1)
            for kind, column in columns.items()
            if kind in kinds
        }

    def _sorted(self, values: str, count: str, *, axis: int, largest: int = 0) -> list[str]:
        """Append sorted values, lowest first by default, and their places; equal ones in the order of places."""
        return self.add_many("TopK", 2, values, count, axis=axis, largest=largest, sorted=1)

    def _total(self, values: str) -> str:
        """Append the sum of each row, one value after the other."""
        return self.add("Gather", self.add("CumSum", values, np.int64(1)), np.array([-1]), axis=1)

    def _changes(self, ranked: str) -> str:
        """Append where a value of a sorted row differs from the one before; true at the first."""
        whole, axis = np.array([np.iinfo(np.int64).max]), np.array([1])
        before, after = (
            self.add("Slice", ranked, np.array([start]), end, axis) for start, end in ((0, np.array([-1])), (1, whole))
        )
        differs = self.add("Not", self.add("Equal", before, after))
        return self.add("Pad", differs, np.array([0, 1, 0, 0]), np.bool_(True))

    def _numbered(self, changes: str) -> str:
        """Append the number of the run of equal values at each place, from 0."""
        runs = self.add("CumSum", self.cast(changes, np.int64), np.int64(1))
        return self.add("Sub", runs, np.int64(1))

    def _ends(self, runs: str) -> tuple[str, str]:
        """Append the first and the last place of the run at each place."""
        places = self.add("Expand", self._places, self.add("Shape", runs))
        ends = []
        for reduction, initial in (("min", self._length), ("max", np.int64(0))):
            table = self.add("Expand", initial, self.add("Shape", runs))
            table = self.add("ScatterElements", table, runs, places, axis=1, reduction=reduction)
            ends.append(self.add("GatherElements", table, runs, axis=1))
        return ends[0], ends[1]

    # ----- first stage

    def _first_stage(self) -> str:
        """Append ``(L,)`` double scores."""
        stage = self._manifest.first_stage
        if isinstance(stage, LightGbmStage):
            return self._trees(to_text(self._read(stage.file)), relative=stage.relative)
        if isinstance(stage, OnnxStage):
            numeric = self._features
            if self._schema.categorical:
                numeric = self.add("Gather", self._features, np.array(self._schema.numeric), axis=1)
            scores = self._inlined(self._read(stage.file), "first_stage/", numeric)
        else:
            scores = self.add("Gather", self._features, np.array(self._schema.index[stage.feature]), axis=1)
        return self.cast(scores, np.float64)

    def _all_finite(self, scores: str) -> str:
        """Append whether every score is finite: only then is it 0 less itself."""
        return self.add("Equal", self.add("ReduceSum", self.add("Sub", scores, scores), keepdims=0), np.float64(0))

    def _trees(self, text: str, *, relative: bool) -> str:
        """Append the trees of a LightGBM model, over columns in which missing values are the numbers of a way out."""
        reranker = self._bundle.reranker
        schema = reranker.relative.schema if relative and reranker.relative is not None else self._schema
        try:
            forest, columns = read_forest(text), LightGbmFirstStage(text, schema).columns
        except UnsupportedForestError as error:
            raise RecipeError(f"the LightGBM model cannot be written as ONNX: {error}") from error
        inputs = forest.columns if len(forest.columns) else np.zeros(1, dtype=forest.columns.dtype)  # trees of one leaf
        places = inputs["feature"] if columns is None else np.array(columns)[inputs["feature"]]
        missing = inputs["missing"]
        values = self.cast(self._widened if relative else self._features, np.float64)
        values = self.add("Gather", values, places.astype(np.int64), axis=1)
        tiny = self.add("LessOrEqual", self.add("Abs", values), np.float64(_LIGHTGBM_ZERO))
        values = self.add("Where", tiny, np.float64(0), values)
        is_category = np.isin(places, schema.categorical)[None]
        if is_category.any():  # LightGBM counts categories from 0; an unknown one is missing
            code = self.add("Sub", values, np.float64(1))
            code = self.add("Where", self.add("Less", code, np.float64(0)), np.float64("nan"), code)
            values = self.add("Where", is_category, code, values)
        absent = self.add("IsNaN", values)
        zero_is_missing = np.isin(missing, (ZERO_LEFT, ZERO_RIGHT))[None]
        if zero_is_missing.any():
            zero = self.add("And", self.add("Equal", values, np.float64(0)), zero_is_missing)
            absent = self.add("Or", absent, zero)
        if (missing == CATEGORY).any():  # it has no fraction, and below 0 is no category
            whole = self.add("Floor", self.add("Max", values, np.float64(0)))
            whole = self.add("Where", self.add("Greater", values, np.float64(-1)), whole, np.float64(-1))
            values = self.add("Where", (missing == CATEGORY)[None], whole, values)
        values = self.add("Where", absent, _WAYS_OUT[missing][None], values)
        scores = self.add("TreeEnsemble", values, domain=_ML, **_ensemble(forest))
        return self.add("Squeeze", scores, np.array([1]))

    # ----- second stage

    def _rescored(self, stage: SecondStage, first: str, ranked: str, order: str) -> tuple[str, str, str, str]:
        """Append whether the second stage gave finite scores, whom it reached, and scores and order by it."""
        best = self._best(stage.cutoff or 2**62, first, ranked, order)
        nobody = self.add("Expand", np.bool_(False), self._length)
        everybody = self.add("Expand", np.bool_(True), self.add("Shape", best))
        reached = self.add("ScatterElements", nobody, best, everybody, axis=0)
        positions = self.add("Squeeze", self.add("NonZero", reached), np.array([0]))
        others = self.add("Compress", order, self.add("Not", self.add("Gather", reached, order)))
        inputs = self.add("Gather", self._widened if stage.relative else self._features, positions)
        if stage.first_stage_score:
            scores = self.cast(self.add("Gather", first, positions), np.float32)
            inputs = self.add("Concat", inputs, self.add("Unsqueeze", scores, np.array([1])), axis=1)
        scores = self.cast(self._inlined(self._read(stage.file), "second_stage/", inputs), np.float64)
        fine = self._all_finite(scores)
        if stage.kind == "srm":
            scores = self._specialist_scores(scores)
        falling, places = self._sorted(scores, self.add("Shape", scores), axis=0, largest=1)
        # the others get numbers below the lowest score and 0, in first-stage order
        lowest = self.add("Min", self.add("Gather", falling, np.array([-1])), np.float64(0))
        after_last = self.add("Add", self.add("Squeeze", self.add("Shape", others)), np.int64(1))
        steps = self.cast(self.add("Range", np.int64(1), after_last, np.int64(1)), np.float64)
        step = self.add("Max", self.add("Mul", lowest, np.float64(-(2.0**-50))), np.float64(1))  # numbers differ by it
        falling = self.add("Concat", falling, self.add("Sub", lowest, self.add("Mul", steps, step)), axis=0)
        rescored = self.add("Concat", self.add("Gather", positions, places), others, axis=0)
        return fine, reached, self.add("ScatterElements", first, rescored, falling, axis=0), rescored

    def _softmax(self, scores: str, divisor: str | np.generic) -> str:
        weights = self.add("Exp", self.add("Div", self.add("Sub", scores, self.add("ReduceMax", scores)), divisor))
        return self.add("Div", weights, self.add("ReduceSum", weights))

    # ----- probabilities and goals

    def _of_strategy(self, numbers: Mapping[str, float], fine: str | None, default: float = 1.0) -> str | np.generic:
        """Return the number of the strategy that gave the scores; a default where it has none."""
        first = np.float64(numbers.get("first_stage", default))
        if fine is None or self._stage is None:
            return first
        return self.add("Where", fine, np.float64(numbers.get(self._stage.kind, default)), first)

    def _follow_scores(self, scores: str, values: str) -> str:
        """Append :func:`listwright.ranking.probability.follow_scores`."""
        row = np.array([0])
        ranked, order = self._sorted(self.add("Unsqueeze", scores, row), self._length, axis=1, largest=1)
        values = self.add("GatherElements", self.add("Unsqueeze", values, row), order, axis=1)
        pools = self._numbered(self._changes(ranked))
        _, nearest = self.add_many("Loop", 2, "", np.bool_(True), pools, values, body=_pool_step(values))
        return self.add("Squeeze", self.add("ScatterElements", nearest, order, nearest, axis=1), row)

    def _log_odds(self, scores: str, scored: str, first: str, fine: str | None, divisors: Mapping[str, float]) -> str:
        """Append :func:`listwright.ranking.order.log_odds`."""
        lowest, highest = np.float64("-inf"), np.float64("inf")
        best = self.add("ReduceMax", self.add("Where", scored, scores, lowest))
        odds = self.add("Div", self.add("Sub", scores, best), self._of_strategy(divisors, fine))
        last = self.add("ReduceMin", self.add("Where", scored, odds, highest))
        above = self.add("ReduceMax", self.add("Where", scored, lowest, first))
        behind = self.add("Div", self.add("Sub", above, first), self._of_strategy(divisors, None))
        return self.add("Where", scored, odds, self.add("Sub", last, behind))

    def _probability(self, log_odds: Callable[[Mapping[str, float]], str], fine: str | None) -> str | None:
        """Append :meth:`listwright.ranking.probability.Calibration.probabilities`; None where there are none."""
        calibration, stage = self._bundle.reranker.calibration, self._manifest.probability
        kind = "first_stage" if self._stage is None else self._stage.kind
        if calibration is None or kind not in calibration.temperatures:
            return None
        odds = log_odds(calibration.temperatures)
        if stage is None:
            return self._softmax(odds, np.float64(1))
        surest = np.float64(-SUREST), np.float64(SUREST)
        pointwise = self.add("Clip", self._trees(to_text(self._read(stage.file)), relative=stage.relative), *surest)
        stated = self.add("Add", self.add("Mul", pointwise, np.float64(stage.slope)), np.float64(stage.intercept))
        expected = self.add("ReduceSum", self.add("Sigmoid", self.add("Clip", stated, *surest)))
        if any(stage.pointwise.values()):
            weight = self._of_strategy(stage.pointwise, fine, 0.0)
            odds = self._follow_scores(odds, self.add("Add", odds, self.add("Mul", pointwise, weight)))
        odds = self.add("Max", odds, self.add("Sub", self.add("ReduceMax", odds), np.float64(FARTHEST)))
        others = self.add("Sub", self.cast(self._length, np.float64), expected)
        low = self.add("Log", self.add("Div", expected, others))
        low, high = (self.add("Sub", low, self.add(end, odds)) for end in ("ReduceMax", "ReduceMin"))
        for _ in range(_BISECTIONS):
            level = self.add("Mul", self.add("Add", low, high), np.float64(0.5))
            above = self.add(
                "Greater", self.add("ReduceSum", self.add("Sigmoid", self.add("Add", odds, level))), expected
            )
            low, high = self.add("Where", above, low, level), self.add("Where", above, level, high)
        return self.add("Sigmoid", self.add("Add", odds, high))

    def _goal_shares(self, goals: GoalsStage, log_odds: Callable[[Mapping[str, float]], str]) -> tuple[str, str | None]:
        """Append the shares by each goal, and the log of their weighted mean; None where the label alone ranks."""
        columns = [self._softmax(log_odds(goals.spreads), np.float64(1))]
        for goal in goals.others:
            scores = self._trees(to_text(self._read(goal.file)), relative=goals.relative)
            columns.append(self._softmax(scores, np.float64(goal.spread)))
        shares = self.add("Concat", *(self.add("Unsqueeze", column, np.array([1])) for column in columns), axis=1)
        if not any(goal.weight for goal in goals.others):
            return shares, None
        weights = np.array([*goals.default_weights.values()])
        mean = self.add("ReduceSum", self.add("Mul", shares, weights / weights.sum()), np.array([1]), keepdims=0)
        return shares, self.add("Log", self.add("Max", mean, np.float64(LEAST_SHARE)))

    def _specialist_scores(self, scores: str) -> str:
        """Append a specialist's scores, or those of :func:`listwright.ranking.order.mixture`."""
        if self._specialist is not None:
            return self.add("Gather", scores, np.array(self._specialist), axis=1)
        assert self._manifest.srm is not None
        weights = np.array([specialist.weight for specialist in self._manifest.srm.specialists])
        best = self.add("ReduceMax", scores, np.array([0]), keepdims=1)
        first_choice = self.add("Exp", self.add("Sub", scores, best))
        first_choice = self.add("Div", first_choice, self.add("ReduceSum", first_choice, np.array([0]), keepdims=1))
        probability = self.add("MatMul", first_choice, weights)
        return self.add("Log", self.add("Max", probability, np.float64(np.finfo(np.float64).tiny)))

    def _best(self, cutoff: int, first: str, ranked: str, order: str) -> str:
        """Append the candidates of :func:`listwright.ranking.order.best`, in any order."""
        length = self.add("Squeeze", self._length)
        last = self.add("Gather", ranked, self.add("Sub", self.add("Min", np.int64(cutoff), length), np.int64(1)))
        after = self.add("Min", np.int64(cutoff), self.add("Sub", length, np.int64(1)))
        tied = self.add("Equal", last, self.add("Gather", ranked, after))
        tied = self.add("And", tied, self.add("Less", np.int64(cutoff), length))
        without = GraphWriter("no_tie/")
        best = without.add("Slice", order, np.array([0]), np.array([cutoff]))
        by_bytes = GraphWriter("tie/")
        above = by_bytes.add("Compress", order, by_bytes.add("Greater", ranked, last))
        alike = by_bytes.add("Compress", self._places, by_bytes.add("Equal", first, last))
        rows = by_bytes.cast(by_bytes.add("Gather", self._features, alike), np.float64)
        keys = by_bytes.add("Transpose", _byte_keys(by_bytes, rows))
        count = by_bytes.add("Squeeze", by_bytes.add("Shape", alike))
        everyone = by_bytes.add("Range", np.int64(0), count, np.int64(1))
        by_key = by_bytes.add("Scan", everyone, keys, body=_sort_step(), num_scan_inputs=1, scan_input_directions=[1])
        missing = by_bytes.add("Sub", np.array([cutoff]), by_bytes.add("Shape", above))
        missing_rows = by_bytes.add("Gather", alike, by_bytes.add("Slice", by_key, np.array([0]), missing))
        best_rows = by_bytes.add("Concat", above, missing_rows, axis=0)
        return self.add("If", tied, then_branch=_branch(by_bytes, best_rows), else_branch=_branch(without, best))

    # ----- parts

    def _read(self, name: str) -> bytes:
        return read_listed(self._bundle.path, self._manifest, name)

    def _inlined(self, model: bytes, prefix: str, features: str) -> str:
        """Append a graph of the bundle, its names after a prefix; its input is ``features``, its output ``scores``."""
        graph = onnx.load_from_string(model)
        versions = {entry.domain: entry.version for entry in graph.opset_import}
        if _ML in versions:
            self._ml = max(3, versions[_ML])  # which has all that 1 and 2 have
        try:
            graph = onnx.version_converter.convert_version(graph, OPSET) if versions.get("") != OPSET else graph
        except (RuntimeError, ValueError) as error:
            fault = f"{prefix[:-1]} has version {versions.get('')} of ONNX's operators and none of {OPSET}: {error}"
            raise RecipeError(fault) from error
        graph = onnx.compose.add_prefix(graph, prefix)
        self.nodes += [helper.make_node("Identity", [features], [prefix + "features"]), *graph.graph.node]
        self.constants += graph.graph.initializer
        return prefix + "scores"


def _row_of(column: RelativeColumn) -> tuple[str, str | None]:
    """Return the feature of a column, and the one within whose values it is compared: of a category, its own."""
    return column.feature, column.feature if column.kind in CATEGORY_KINDS else column.within


def _ensemble(forest: Forest) -> dict[str, Any]:
    """Return the attributes of a ``TreeEnsemble`` that walks through a forest."""
    nodes, roots = forest.nodes, forest.trees["root"].astype(np.int64)
    base = np.repeat(roots, np.diff(roots, append=len(nodes)))
    left = base + nodes["child"]
    leaf = left == np.arange(len(nodes))  # it is its own child
    number = np.where(leaf, np.cumsum(leaf), np.cumsum(~leaf)) - 1
    inner = nodes[~leaf]
    left, right = left[~leaf], left[~leaf] + 1
    category = (inner["column"] & CATEGORICAL) > 0
    members: list[float] = []
    for place in inner["threshold"][category].astype(np.int64):
        words = forest.sets[place + 1 : place + 1 + forest.sets[place]]
        members += [*np.flatnonzero(words[:, None] >> np.arange(32) & 1).tolist(), math.nan]
    alone = leaf[roots]  # a tree of one leaf is a node both of whose ways lead there
    single, zeros = number[roots[alone]], np.zeros(np.count_nonzero(alone), dtype=np.int64)
    tree_roots = number[roots]
    tree_roots[alone] = len(inner) + np.arange(len(single))
    both = {
        "nodes_featureids": (inner["column"] & ~np.uint16(CATEGORICAL), zeros),
        "nodes_truenodeids": (number[left], single),
        "nodes_trueleafs": (leaf[left], zeros + 1),
        "nodes_falsenodeids": (number[right], single),
        "nodes_falseleafs": (leaf[right], zeros + 1),
    }
    modes, thresholds = np.where(category, _MEMBER, _LESS_OR_EQUAL), np.where(category, 0.0, inner["threshold"])
    attributes = {name: np.concatenate(parts).astype(np.int64).tolist() for name, parts in both.items()} | {
        "n_targets": 1,
        "aggregate_function": 1,  # their sum
        "post_transform": 0,
        "tree_roots": tree_roots.tolist(),
        "nodes_modes": _tensor([*modes, *zeros], TensorProto.UINT8),
        "nodes_splits": _tensor([*thresholds, *zeros], TensorProto.DOUBLE),
        "leaf_targetids": [0] * np.count_nonzero(leaf),
        "leaf_weights": _tensor(forest.values[leaf], TensorProto.DOUBLE),
    }
    return attributes | ({"membership_values": _tensor(members, TensorProto.DOUBLE)} if members else {})


def _tensor(values: Any, dtype: int) -> onnx.TensorProto:
    return helper.make_tensor("values", dtype, [len(values)], values)


def _branch(writer: GraphWriter, output: str) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(output, TensorProto.INT64, [None])
    return helper.make_graph(writer.nodes, "branch", [], [value], writer.constants)


def _pool_step(values: str) -> onnx.GraphProto:
    """Return a step of an isotonic regression: the means of pools of ``values``, and fewer pools where means rise."""
    step, axis, whole = GraphWriter("pool/"), np.array([1]), np.array([np.iinfo(np.int64).max])
    nothing = step.add("Sub", values, values)
    sums, sizes = (
        step.add("ScatterElements", nothing, "pool/pools", each, axis=1, reduction="add")
        for each in (values, step.add("Add", nothing, np.float64(1)))
    )
    sums, sizes = (step.add("GatherElements", table, "pool/pools", axis=1) for table in (sums, sizes))
    means = step.add("Div", sums, sizes)
    above, below = (
        step.add("Slice", means, np.array([start]), end, axis) for start, end in ((0, np.array([-1])), (1, whole))
    )
    falls = step.add("Pad", step.add("Greater", above, below), np.array([0, 1, 0, 0]), np.bool_(True))
    pools = step.add("Sub", step.add("CumSum", step.cast(falls, np.int64), np.int64(1)), np.int64(1))
    fewer = step.add("Less", step.add("ReduceMax", pools, keepdims=0), step.add("ReduceMax", "pool/pools", keepdims=0))
    value, integer, double = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.DOUBLE
    inputs = [value("pool/number", integer, []), value("pool/goes_on", TensorProto.BOOL, [])]
    inputs += [value("pool/pools", integer, [1, None]), value("pool/means", double, [1, None])]
    outputs = [value(fewer, TensorProto.BOOL, []), value(pools, integer, [1, None]), value(means, double, [1, None])]
    return helper.make_graph(step.nodes, "pool", inputs, outputs, step.constants)


def _sort_step() -> onnx.GraphProto:
    """Return a step of a sort by many keys, the least important one first: an order, further sorted by one key."""
    step = GraphWriter("sort/")
    alike = step.add("Gather", "sort/key", "sort/order")
    _, places = step.add_many("TopK", 2, alike, step.add("Shape", alike), axis=0, largest=0, sorted=1)
    order = step.add("Gather", "sort/order", places)
    value = helper.make_tensor_value_info
    inputs = [value("sort/order", TensorProto.INT64, [None]), value("sort/key", TensorProto.DOUBLE, [None])]
    return helper.make_graph(step.nodes, "sort", inputs, [value(order, TensorProto.INT64, [None])], step.constants)


def _byte_keys(writer: GraphWriter, values: str) -> str:
    """Append numbers in the order of the bytes of float32 values, lowest byte first; NaN is 0x7FC00000."""
    missing, zero = writer.add("IsNaN", values), writer.add("Equal", values, np.float64(0))
    size = writer.add("Where", writer.add("Or", missing, zero), np.float64(1), writer.add("Abs", values))
    powers, lowest = 2.0 ** np.arange(-126, 129), np.float64(-126)
    exponent = writer.add("Floor", writer.add("Mul", writer.add("Log", size), np.float64(1 / math.log(2))))
    # it may be one too low at a power of two, where the significand is 2 and the bits are the same
    exponent = writer.add("Clip", exponent, lowest, np.float64(127))
    place = writer.cast(writer.add("Sub", exponent, lowest), np.int64)
    significand = writer.add("Div", size, writer.add("Gather", powers, place))
    field = writer.add("Mul", writer.cast(place, np.float64), np.float64(2**23))
    bits = writer.add("Add", field, writer.add("Mul", significand, np.float64(2**23)))
    sign = writer.cast(writer.add("Less", values, np.float64(0)), np.float64)
    bits = writer.add("Add", bits, writer.add("Mul", sign, np.float64(2**31)))
    bits = writer.add("Where", zero, np.float64(0), writer.add("Where", missing, np.float64(0x7FC00000), bits))
    shifted = writer.add("Div", writer.add("Unsqueeze", bits, np.array([-1])), 256.0 ** np.arange(4))
    upper = writer.add("Floor", writer.add("Div", shifted, np.float64(256)))
    octets = writer.add("Sub", writer.add("Floor", shifted), writer.add("Mul", upper, np.float64(256)))
    return writer.add("MatMul", octets, 256.0 ** np.arange(3, -1, -1))


def _spellings(feature: Feature) -> dict[str, float]:
    """Return the code of each text for a category or a missing one, but for blanks at its ends."""
    cases = (product(*(sorted({c.lower(), c.upper()}) for c in word)) for word in sorted(MISSING_WORDS))
    codes = {"".join(text): 0.0 for texts in cases for text in texts}
    for code, category in enumerate(feature.categories, start=1):
        name = spelled(category)
        texts = () if name is None else (name, f"{name}.0", name.upper(), name.capitalize())
        codes |= dict.fromkeys((text for text in texts if spelled(text) == name), float(code))
    return codes | {category: float(code) for code, category in enumerate(feature.categories, start=1)}
