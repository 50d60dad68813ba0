"""A bundle's ranker as one ONNX graph: from one list's features to its order, with nothing else at run time.

Every part computes what :class:`listwright.ranking.reranker.Reranker` does, from the same float32 features:

- List-relative columns sort each feature once (``TopK``), number the runs of equal values by a running sum, and take
  the ends of each run by scattering places with minimum and maximum. Sums run over sorted values, one after the other,
  as in :mod:`listwright.ranking.relative`: they are equal to the bit.
- LightGBM's trees are one ``TreeEnsemble`` in double. Missing values and zeros that a node treats in a way of its own
  become a column of its own.
- ``TopK`` prefers the lower index among equals, by its specification: that is the order of
  :func:`listwright.ranking.order.rank_by_score`. Where equal scores lie on both sides of a second stage's cutoff, the
  bytes of the features decide, as in :func:`listwright.ranking.order.best`; the bytes come from exact arithmetic, as
  ONNX has no operator for them.
- The second stage's graph is the bundle's own, with other names.
"""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.bundle import Bundle, read_listed
from listwright.ranking.errors import RecipeError, ScoringError
from listwright.ranking.features import FLOAT32_MAX, MISSING_WORDS, Feature, spelled
from listwright.ranking.first_stage import model_columns, read_booster
from listwright.ranking.golden import read
from listwright.ranking.plain_file import to_text
from listwright.ranking.ranker_file import FACTS, RankerFacts, RankerFile, answer
from listwright.ranking.relative import CATEGORY_KINDS, EPSILON, RelativeColumn
from listwright.ranking.stages import GOLDEN, LightGbmStage, OnnxStage, SecondStage
from listwright.training.export.graph_writer import IR_VERSION, GraphWriter
from listwright.training.export.parity import hard_lists, list_lengths

OLDEST_OPSET, NEWEST_OPSET, OPSET = 18, 23, 20
"""Versions of ONNX's operators that a second stage may have, and the one where it has no say."""

_ML = "ai.onnx.ml"

_LIGHTGBM_ZERO = float(np.float32(1e-35))
"""Numbers up to this size are zero to LightGBM."""

_LESS_OR_EQUAL, _MEMBER = 0, 6
"""Modes of a node of ``TreeEnsemble``."""


def write_ranker(
    bundle: Bundle, out: Path, *, strategy: str | None = None, specialist: int | None = None, codes: bool = False
) -> RankerFile:
    """Write a bundle's ranker as one ONNX file, and check it against the bundle.

    The file carries the bundle's golden lists and their answers. Before it gets its name, it answers these and lists
    that are easy to get wrong: of one candidate, with lengths around the cutoff, with equal candidates, with missing
    values and unknown categories.

    Args:
        bundle: Loaded bundle.
        out: Path of the file; one that is there is replaced.
        strategy, specialist, codes: As in :func:`ranker_graph`.

    Returns:
        The file, open.

    Raises:
        RecipeError: if the bundle has no such ranker, or it is one that no graph can hold; says what to do.
        ScoringError: if the graph ranks a list otherwise than the bundle.
    """
    ranker = choose_ranker(bundle, strategy, specialist)
    graph = ranker_graph(bundle, ranker, codes=codes)
    manifest = bundle.manifest
    golden_lists = {
        json.dumps(entry.features): entry.features
        for entry in read(read_listed(bundle.path, manifest, GOLDEN), bundle.path / GOLDEN)
    }
    arrays = [np.array(rows, dtype=np.float64).astype(np.float32) for rows in golden_lists.values()]
    facts = RankerFacts(
        name=manifest.name,
        version=manifest.version,
        manifest_sha256=manifest.sha256,
        strategy=ranker.strategy,
        specialist=ranker.specialist,
        feature_schema=manifest.feature_schema,
        golden_lists=tuple(answer(bundle.reranker, rows, *ranker) for rows in arrays),
    )
    helper.set_model_props(graph, {FACTS: facts.model_dump_json()})
    with atomic_file(out) as file:
        file.write(graph.SerializeToString())
        file.flush()
        written = RankerFile(Path(file.name))
        written.verify()
        rows, rng = np.concatenate(arrays), np.random.default_rng(0)
        stage = bundle.reranker.second_pass.stage(ranker.strategy) if ranker.strategy != "first_stage" else None
        for length in list_lengths(stage, max(map(len, arrays))):
            for name, features in hard_lists(rows, length, manifest.feature_schema, rng):
                difference = written.difference(answer(bundle.reranker, features, *ranker))
                if difference is not None:
                    raise ScoringError(f"the graph differs from the bundle, {name} list of {length}: {difference}")
    return RankerFile(out)


class ChosenRanker(NamedTuple):
    """Ranker of a bundle: a strategy, and the number of its specialist or None."""

    strategy: str
    specialist: int | None


def choose_ranker(bundle: Bundle, strategy: str | None, specialist: int | None) -> ChosenRanker:
    """Return the ranker that options name, or else the one that ``auto`` means.

    Raises:
        RecipeError: if the bundle has no such ranker, or a router decides among several.
    """
    manifest, router = bundle.manifest, bundle.reranker.router
    label, count = f"{manifest.name}/{manifest.version}", len(manifest.srm.specialists) if manifest.srm else 0
    if specialist is not None:
        if strategy not in (None, "srm") or not 0 <= specialist < count:
            known = f"has specialists 0 to {count - 1}, of strategy srm" if count else "has no specialists"
            raise RecipeError(f"--specialist {specialist}: {label} {known}")
        return ChosenRanker("srm", specialist)
    if strategy is not None and strategy not in manifest.strategies:
        raise RecipeError(f"--strategy {strategy}: {label} has {', '.join(manifest.strategies)}")
    if router is not None and (strategy == "srm" or (strategy is None and not router.always_abstains)):
        others = " or ".join(name for name in manifest.strategies if name != "srm")
        raise RecipeError(
            f"{label} asks a router about each list, which the file cannot hold: choose a ranker by "
            f"--strategy {others}, or by --specialist 0 to {count - 1}"
        )
    return ChosenRanker(strategy or manifest.strategy, None)


def ranker_graph(bundle: Bundle, ranker: ChosenRanker, *, codes: bool = False) -> onnx.ModelProto:
    """Return the graph of a bundle's ranker, without metadata.

    Inputs, with L candidates: ``numbers``, ``(L, N)`` float32 numeric features in schema order, NaN = missing, and
    ``categories``, ``(L, J)`` strings of the categorical ones, "" = missing. Where the schema has no categories, or
    they are sent as codes: ``features``, ``(L, D)`` float32. Outputs: those of
    :class:`listwright.ranking.ranker_file.RankedList`, in double and int64.

    Args:
        bundle: Loaded bundle.
        ranker: Ranker of the bundle.
        codes: Whether the input is one matrix with categories as codes.

    Raises:
        RecipeError: if the ranker is one that no graph can hold; says what to do.
    """
    stage = None if ranker.strategy == "first_stage" else bundle.reranker.second_pass.stage(ranker.strategy)
    return _RankerGraph(bundle, stage, ranker.specialist).model(codes=codes)


class _RankerGraph(GraphWriter):
    """Graph of a whole ranker under construction; methods append operators, and return names of outputs."""

    def __init__(self, bundle: Bundle, stage: SecondStage | None, specialist: int | None) -> None:
        super().__init__()
        self._bundle, self._manifest, self._stage, self._specialist = bundle, bundle.manifest, stage, specialist
        self._schema = bundle.manifest.feature_schema
        self._opsets: dict[str, int] = {}

    def model(self, *, codes: bool) -> onnx.ModelProto:
        """Return the finished model."""
        inputs = [("features", TensorProto.FLOAT, len(self._schema))]
        if not codes and self._schema.categorical:
            inputs = [
                ("numbers", TensorProto.FLOAT, len(self._schema.numeric)),
                ("categories", TensorProto.STRING, len(self._schema.categorical)),
            ]
        inputs = [entry for entry in inputs if entry[2]]
        self._features = self._read_categories([name for name, _, _ in inputs])
        self._length = self.add("Shape", self._features, start=0, end=1)
        self._places = self._range(np.int64(0), self.add("Squeeze", self._length))
        relative = self._relative_columns() if self._uses_relative() else None
        self._widened = self._features if relative is None else self.add("Concat", self._features, relative, axis=1)

        first, usable = self._first_stage()
        if usable is not None:  # else it is in input order, as the service answers
            last = self.add("Sub", np.float64(-1), self.cast(self._places, np.float64))
            first_scores = self.add("Where", usable, first, last)
        else:
            first_scores = first
        ranked, order = self._sorted(first_scores, self._length, axis=0, largest=1)
        scores = first_scores
        if self._stage is not None:
            scores, order = self._rescored(first_scores, ranked, order, usable)
        if usable is not None:
            first = self.add("Where", usable, first, np.float64("nan"))
        outputs = {"scores": scores, "order": order, "first_stage_scores": first}
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        graph = helper.make_graph(
            self.nodes,
            "ranker",
            [helper.make_tensor_value_info(name, dtype, ["candidates", width]) for name, dtype, width in inputs],
            [
                helper.make_tensor_value_info(
                    name, TensorProto.INT64 if name == "order" else TensorProto.DOUBLE, ["candidates"]
                )
                for name in outputs
            ],
            self.constants,
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in ({"": OPSET} | self._opsets).items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="listwright")

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
        self._require(_ML, 5)
        parts = [name for name in inputs if name == "numbers"]
        for place, column in enumerate(categorical):
            names, numbers = zip(*_spellings(self._schema.features[column]).items(), strict=True)
            text = self.add("Gather", "categories", np.array([place]), axis=1)
            parts.append(
                self.add("LabelEncoder", text, domain=_ML, keys_strings=names, values_floats=numbers, default_float=0.0)
            )
        together = self.add("Concat", *parts, axis=1)
        places = [*self._schema.numeric, *categorical]
        if places == sorted(places):
            return together
        return self.add("Gather", together, np.argsort(places), axis=1)

    # ----- list-relative columns

    def _uses_relative(self) -> bool:
        first = self._manifest.first_stage
        return (isinstance(first, LightGbmStage) and first.relative) or (
            self._stage is not None and self._stage.relative
        )

    def _relative_columns(self) -> str:
        """Append ``(L, M)`` float32, the columns of :class:`listwright.ranking.relative.RelativeColumns`."""
        columns = self._manifest.relative
        rows: dict[RelativeColumn, str] = {}
        numbers = [c for c in columns if c.within is None and c.kind not in CATEGORY_KINDS]
        groups = [c for c in columns if c.within is not None]
        categories = [c for c in columns if c.kind in CATEGORY_KINDS]
        if numbers:
            rows |= self._number_columns(numbers)
        if groups:
            rows |= self._columns_within(groups)
        if categories:
            rows |= self._category_columns(categories)
        together = self.add("Concat", *(rows[column] for column in columns), axis=0)
        return self.add("Transpose", self.cast(together, np.float32))

    def _rows(self, names: list[str]) -> str:
        """Append ``(F, L)`` double, one row for each feature."""
        places = np.array([self._schema.index[name] for name in names])
        rows = self.add("Gather", self.add("Transpose", self._features), places)
        return self.add("Add", self.cast(rows, np.float64), np.float64(0))  # both zeros are one

    def _split(self, value: str, columns: list[RelativeColumn], names: list[str]) -> dict[RelativeColumn, str]:
        """Append the row of each column's feature."""
        return {c: self.add("Gather", value, np.array([names.index(c.feature)])) for c in columns}

    def _number_columns(self, columns: list[RelativeColumn]) -> dict[RelativeColumn, str]:
        names = list(dict.fromkeys(c.feature for c in columns))
        z, rank = ([c for c in columns if c.kind == kind] for kind in ("z", "rank"))
        values = self._rows(names)
        missing, padded, count = self._present(values)
        ranked, order = self._sorted(padded, self._length, axis=1)
        rows = {}
        if z:
            floors = np.zeros((len(names), 1))
            for column in z:
                floors[names.index(column.feature)] = (EPSILON * column.scale) ** 2
            inside = self.add("Less", self.cast(self._places, np.float64), count)
            mean = self.add("Div", self._total(self.add("Where", inside, ranked, np.float64(0))), count)
            apart = self.add("Where", inside, self.add("Sub", ranked, mean), np.float64(0))
            variance = self.add("Div", self._total(self.add("Mul", apart, apart)), count)
            spread = self.add("Sqrt", self.add("Add", variance, floors))
            scores = self.add("Div", self.add("Sub", values, mean), spread)
            lowest = self.add("ReduceMin", padded, np.array([1]), keepdims=1)
            highest = self.add("Where", missing, np.float64("-inf"), values)
            highest = self.add("ReduceMax", highest, np.array([1]), keepdims=1)
            constant = self.add("Equal", lowest, highest)
            scores = self.add("Where", constant, np.float64(0), scores)
            rows |= self._split(self.add("Where", missing, np.float64("nan"), scores), z, names)
        if rank:
            start, end = self._ends(self._numbered(self._changes(ranked)))
            ranks = self._mid_rank(self.add("Add", start, end), count)
            rows |= self._split(self._put_back(ranks, order, missing), rank, names)
        return rows

    def _columns_within(self, columns: list[RelativeColumn]) -> dict[RelativeColumn, str]:
        pairs = list(dict.fromkeys((c.feature, c.within) for c in columns))
        values, codes = self._rows([feature for feature, _ in pairs]), self._rows([within or "" for _, within in pairs])
        missing, padded, _ = self._present(values)
        by_value, value_order = self._sorted(padded, self._length, axis=1)
        groups = self.add("GatherElements", self._own_groups(codes), value_order, axis=1)
        ranked_groups, group_order = self._sorted(groups, self._length, axis=1)
        order = self.add("GatherElements", value_order, group_order, axis=1)
        ranked = self.add("GatherElements", by_value, group_order, axis=1)
        group_changes = self._changes(ranked_groups)
        in_group = self._numbered(group_changes)
        first, _ = self._ends(in_group)
        there = self.cast(self.add("Less", ranked, np.float64("inf")), np.float64)
        zeros = self.add("Sub", there, there)
        count = self.add("ScatterElements", zeros, in_group, there, axis=1, reduction="add")
        count = self.add("GatherElements", count, in_group, axis=1)
        rows = {}
        for kind in ("rank_within", "above_lowest_within"):
            of_kind = [c for c in columns if c.kind == kind]
            if not of_kind:
                continue
            if kind == "rank_within":
                start, end = self._ends(self._numbered(self.add("Or", group_changes, self._changes(ranked))))
                before = self.add("Add", first, first)
                result = self._mid_rank(self.add("Sub", self.add("Add", start, end), before), count)
            else:
                lowest = self.add("GatherElements", ranked, first, axis=1)
                result = self.add("Min", self.add("Sub", ranked, lowest), np.float64(FLOAT32_MAX))
            result = self._put_back(result, order, missing)
            rows |= {c: self.add("Gather", result, np.array([pairs.index((c.feature, c.within))])) for c in of_kind}
        return rows

    def _category_columns(self, columns: list[RelativeColumn]) -> dict[RelativeColumn, str]:
        names = list(dict.fromkeys(c.feature for c in columns))
        ranked, order = self._sorted(self._own_groups(self._rows(names)), self._length, axis=1)
        changes = self._changes(ranked)
        start, end = self._ends(self._numbered(changes))
        own = self.cast(self.add("Add", self.add("Sub", end, start), np.int64(1)), np.float64)
        own = self._put_back(own, order, None)
        results = {"count": own}
        if any(c.kind == "share" for c in columns):
            results["share"] = self.add("Div", own, self.cast(self._length, np.float64))
        if any(c.kind == "distinct" for c in columns):
            known = self.cast(self.add("And", changes, self.add("Greater", ranked, np.float64(0))), np.float64)
            known = self.add("ReduceSum", known, np.array([1]), keepdims=1)
            results["distinct"] = self.add("Expand", known, self.add("Shape", own))
        return {
            column: row
            for kind, value in results.items()
            for column, row in self._split(value, [c for c in columns if c.kind == kind], names).items()
        }

    def _present(self, values: str) -> tuple[str, str, str]:
        """Append which values are missing, the values with infinity for these, and how many there are in each row."""
        missing = self.add("IsNaN", values)
        there = self.cast(self.add("Not", missing), np.float64)
        padded = self.add("Where", missing, np.float64("inf"), values)
        return missing, padded, self.add("ReduceSum", there, np.array([1]), keepdims=1)

    def _own_groups(self, codes: str) -> str:
        """Append the number of each candidate's group; an unknown or missing category is a group of its own."""
        alone = self.add("Sub", np.float64(-1), self.cast(self._places, np.float64))
        return self.add("Where", self.add("Greater", codes, np.float64(0)), codes, alone)

    def _sorted(self, values: str, count: str, *, axis: int, largest: int = 0) -> list[str]:
        """Append sorted values, lowest first by default, and their places; equal ones in the order of places."""
        return self.add_many("TopK", 2, values, count, axis=axis, largest=largest, sorted=1)

    def _total(self, values: str) -> str:
        """Append the sum of each row, one value after the other."""
        return self.add("Gather", self.add("CumSum", values, np.int64(1)), np.array([-1]), axis=1)

    def _changes(self, ranked: str) -> str:
        """Append where a value of a sorted row differs from the one before; true at the first."""
        begin, end, axis = np.array([0]), np.array([np.iinfo(np.int64).max]), np.array([1])
        head = self.add("Slice", ranked, begin, np.array([1]), axis)
        before, after = (
            self.add("Slice", ranked, begin, np.array([-1]), axis),
            self.add("Slice", ranked, np.array([1]), end, axis),
        )
        return self.add(
            "Concat", self.add("Equal", head, head), self.add("Not", self.add("Equal", before, after)), axis=1
        )

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

    def _mid_rank(self, ends: str, count: str) -> str:
        """Append the mid-rank as a fraction, from the sum of a run's first and last place; 0.5 in a list of one."""
        steps = self.add("Mul", np.float64(2), self.add("Sub", count, np.float64(1)))
        ranks = self.add("Div", self.cast(ends, np.float64), steps)
        return self.add("Where", self.add("Equal", count, np.float64(1)), np.float64(0.5), ranks)

    def _put_back(self, values: str, order: str, missing: str | None) -> str:
        """Append sorted values in input order; NaN for missing ones."""
        values = self.add("ScatterElements", values, order, values, axis=1)
        return values if missing is None else self.add("Where", missing, np.float64("nan"), values)

    # ----- first stage

    def _first_stage(self) -> tuple[str, str | None]:
        """Append ``(L,)`` double scores, and whether all are finite: None where they always are."""
        stage = self._manifest.first_stage
        if isinstance(stage, LightGbmStage):
            return self._trees(to_text(self._read(stage.file)), relative=stage.relative), None
        if isinstance(stage, OnnxStage):
            numeric = self._features
            if self._schema.categorical:
                numeric = self.add("Gather", self._features, np.array(self._schema.numeric), axis=1)
            scores = self._inlined(self._read(stage.file), "first_stage/", numeric)
        else:
            scores = self.add("Gather", self._features, np.array(self._schema.index[stage.feature]), axis=1)
        scores = self.cast(scores, np.float64)
        return scores, self._all_finite(scores)

    def _all_finite(self, scores: str) -> str:
        wrong = self.add("Or", self.add("IsNaN", scores), self.add("IsInf", scores))
        wrong = self.add("ReduceMax", self.cast(wrong, np.int32), np.array([0]), keepdims=0)
        return self.add("Equal", wrong, np.int32(0))

    def _trees(self, text: str, *, relative: bool) -> str:
        """Append the trees of a LightGBM model."""
        reranker = self._bundle.reranker
        schema = reranker.relative.schema if relative and reranker.relative is not None else self._schema
        booster = read_booster(text)
        if "\naverage_output" in text[: text.find("\nTree=0\n")]:
            raise RecipeError(
                "the first stage is a LightGBM random forest (boosting=rf), which is not written: fit gbdt"
            )
        if "\nis_linear=1" in text:
            raise RecipeError("the first stage has linear leaves (linear_tree), which ONNX lacks: fit it without")
        trees = _Trees(model_columns(booster, schema))
        for tree in booster.dump_model()["tree_info"]:
            trees.add(tree["tree_structure"])
        self._require(_ML, 5)
        matrix = self.cast(self._widened if relative else self._features, np.float64)
        tiny = self.add("LessOrEqual", self.add("Abs", matrix), np.float64(_LIGHTGBM_ZERO))
        matrix = self.add("Where", tiny, np.float64(0), matrix)
        if schema.categorical:  # LightGBM counts categories from 0; an unknown one is missing
            is_category = np.isin(np.arange(len(schema)), schema.categorical)[None]
            code = self.add("Sub", matrix, np.float64(1))
            code = self.add("Where", self.add("Less", code, np.float64(0)), np.float64("nan"), code)
            matrix = self.add("Where", is_category, code, matrix)
        treatments: list[str] = []
        for treatment in trees.treatments:
            columns = np.array(list(trees.treatments[treatment]))
            values = self.add("Gather", matrix, columns, axis=1)
            if treatment == "zero":  # is missing, too
                zero = self.add("Equal", values, np.float64(0))
                values = self.add("Where", zero, np.float64("nan"), values)
            elif treatment == "category":  # without its fraction
                whole = self.add("Floor", self.add("Max", values, np.float64(0)))
                values = self.add("Where", self.add("Greater", values, np.float64(-1)), whole, np.float64(-1))
            treatments.append(values)
        inputs = treatments[0] if len(treatments) == 1 else self.add("Concat", *treatments, axis=1)
        scores = self.add("TreeEnsemble", inputs, domain=_ML, **trees.attributes())
        return self.add("Squeeze", scores, np.array([1]))

    # ----- second stage

    def _rescored(self, first: str, ranked: str, order: str, usable: str | None) -> tuple[str, str]:
        """Append scores and order by the second stage; where it fails, by the first, as the service answers."""
        stage = self._stage
        assert stage is not None
        if stage.cutoff is None:
            positions, others = self._places, None
        else:
            taken = self._best(stage.cutoff, first, ranked, order)
            nobody = self.add("Expand", np.bool_(False), self._length)
            everybody = self.add("Expand", np.bool_(True), self.add("Shape", taken))
            mask = self.add("ScatterElements", nobody, taken, everybody, axis=0)
            positions = self.add("Squeeze", self.add("NonZero", mask), np.array([0]))
            below = self.add("Not", self.add("Gather", mask, order))
            others = self.add("Compress", order, below)
        inputs = self._widened if stage.relative else self._features
        if others is not None:
            inputs = self.add("Gather", inputs, positions)
        if stage.first_stage_score:
            scores = first if others is None else self.add("Gather", first, positions)
            scores = self.add("Unsqueeze", self.cast(scores, np.float32), np.array([1]))
            inputs = self.add("Concat", inputs, scores, axis=1)
        scores = self.cast(self._inlined(self._read(stage.file), "second_stage/", inputs), np.float64)
        if stage.kind == "srm":
            scores = self._specialist_scores(scores)
        fine = self._all_finite(scores)
        fine = fine if usable is None else self.add("And", fine, usable)
        falling, places = self._sorted(scores, self.add("Shape", scores), axis=0, largest=1)
        rescored = self.add("Gather", positions, places)
        if others is not None:  # they get numbers below the lowest score and 0, in first-stage order
            lowest = self.add("Min", self.add("Gather", falling, np.array([-1])), np.float64(0))
            count = self.add("Squeeze", self.add("Shape", others))
            steps = self._range(np.int64(1), self.add("Add", count, np.int64(1)))
            falling = self.add("Concat", falling, self.add("Sub", lowest, self.cast(steps, np.float64)), axis=0)
            rescored = self.add("Concat", rescored, others, axis=0)
        placed = self.add("ScatterElements", first, rescored, falling, axis=0)
        return self.add("Where", fine, placed, first), self.add("Where", fine, rescored, order)

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
        tied = self.add(
            "And",
            self.add("Less", np.int64(cutoff), length),
            self.add("Equal", last, self.add("Gather", ranked, after)),
        )
        without = GraphWriter("no_tie/")
        best = without.add("Slice", order, np.array([0]), np.array([cutoff]))
        by_bytes = GraphWriter("tie/")
        above = by_bytes.add("Compress", order, by_bytes.add("Greater", ranked, last))
        alike = by_bytes.add("Compress", self._places, by_bytes.add("Equal", first, last))
        rows = by_bytes.cast(by_bytes.add("Gather", self._features, alike), np.float64)
        keys = by_bytes.add("Transpose", _byte_keys(by_bytes, rows))
        everyone = by_bytes.add(
            "Range", np.int64(0), by_bytes.add("Squeeze", by_bytes.add("Shape", alike)), np.int64(1)
        )
        by_key = by_bytes.add("Scan", everyone, keys, body=_sort_step(), num_scan_inputs=1, scan_input_directions=[1])
        missing = by_bytes.add("Sub", np.array([cutoff]), by_bytes.add("Shape", above))
        chosen = by_bytes.add("Gather", alike, by_bytes.add("Slice", by_key, np.array([0]), missing))
        chosen = by_bytes.add("Concat", above, chosen, axis=0)
        return self.add("If", tied, then_branch=_branch(by_bytes, chosen), else_branch=_branch(without, best))

    # ----- parts

    def _range(self, start: np.int64, end: str) -> str:
        return self.add("Range", start, end, np.int64(1))

    def _read(self, name: str) -> bytes:
        return read_listed(self._bundle.path, self._manifest, name)

    def _require(self, domain: str, version: int) -> None:
        """Set the version of a domain's operators.

        Raises:
            RecipeError: if another part needs another one.
        """
        if self._opsets.setdefault(domain, version) != version:
            raise RecipeError(
                f"two graphs of the bundle need versions {self._opsets[domain]} and {version} of the operators of "
                f"{domain or 'ONNX'}, and one file has one: write each with the same version"
            )

    def _inlined(self, model: bytes, prefix: str, features: str) -> str:
        """Append a graph of the bundle, its names after a prefix; its input is ``features``, its output ``scores``."""
        graph = onnx.load_from_string(model)
        for entry in graph.opset_import:
            if entry.domain in ("", _ML):
                self._require(entry.domain, entry.version)
        names = {"": "", "features": features}
        for node in graph.graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = ""
            copy.input[:] = [names.get(name, prefix + name) for name in node.input]
            copy.output[:] = [names.get(name, prefix + name) for name in node.output]
            self.nodes.append(copy)
        for tensor in graph.graph.initializer:
            copied = onnx.TensorProto()
            copied.CopyFrom(tensor)
            copied.name = prefix + tensor.name
            self.constants.append(copied)
        return prefix + "scores"


class _Trees:
    """Attributes of a ``TreeEnsemble`` under construction.

    Args:
        columns: Column of the feature matrix for each feature of the model; None if they are the same.

    ``treatments`` are the columns of its input: by what is done to a column, the columns and their numbers.
    """

    def __init__(self, columns: list[int] | None) -> None:
        self._columns = columns
        self.treatments: dict[str, dict[int, int]] = {}
        self._nodes: list[list[Any]] = []
        self._inputs: list[tuple[str, int]] = []
        self._members: list[tuple[int, list[float]]] = []
        self._leaves: list[float] = []
        self._roots: list[int] = []

    def add(self, tree: dict[str, Any]) -> None:
        """Append a tree of :meth:`lightgbm.Booster.dump_model`."""
        self._roots.append(len(self._nodes))
        if "split_index" not in tree:  # both ways lead to its one leaf
            leaf = self._leaf(tree)
            self._node({"split_feature": 0, "decision_type": "<=", "threshold": 0.0, "missing_type": "None"})
            self._nodes[-1][3:] = [leaf, 1, leaf, 1]
            return
        waiting = [(tree, -1, 0)]
        while waiting:
            node, parent, side = waiting.pop()
            place, is_leaf = (self._leaf(node), 1) if "split_index" not in node else (self._node(node), 0)
            if parent >= 0:
                self._nodes[parent][3 + 2 * side : 5 + 2 * side] = [place, is_leaf]
            if not is_leaf:
                waiting += [(node["right_child"], place, 1), (node["left_child"], place, 0)]

    def _leaf(self, leaf: dict[str, Any]) -> int:
        self._leaves.append(leaf["leaf_value"])
        return len(self._leaves) - 1

    def _node(self, node: dict[str, Any]) -> int:
        """Append an inner node without children: mode, threshold, whether missing goes left, and its children."""
        feature, place = node["split_feature"], len(self._nodes)
        if node["decision_type"] == "==":
            treatment, mode, threshold, missing = "category", _MEMBER, 0.0, False
            self._members.append((place, [float(value) for value in str(node["threshold"]).split("||")]))
        else:
            threshold, mode = float(node["threshold"]), _LESS_OR_EQUAL
            treatment = "zero" if node["missing_type"] == "Zero" else "number"
            missing = threshold >= 0.0 if node["missing_type"] == "None" else bool(node["default_left"])
        column = feature if self._columns is None else self._columns[feature]
        columns = self.treatments.setdefault(treatment, {})
        self._inputs.append((treatment, columns.setdefault(column, len(columns))))
        self._nodes.append([mode, threshold, int(missing), 0, 0, 0, 0])
        return place

    def attributes(self) -> dict[str, Any]:
        """Return the operator's attributes."""
        begins, begin = {}, 0
        for treatment, columns in self.treatments.items():
            begins[treatment], begin = begin, begin + len(columns)
        modes, thresholds, missing, true, true_leaf, false, false_leaf = zip(*self._nodes, strict=True)
        attributes = {
            "n_targets": 1,
            "aggregate_function": 1,  # their sum
            "post_transform": 0,
            "tree_roots": self._roots,
            "nodes_featureids": [begins[treatment] + number for treatment, number in self._inputs],
            "nodes_modes": _tensor(modes, TensorProto.UINT8),
            "nodes_splits": _tensor(thresholds, TensorProto.DOUBLE),
            "nodes_missing_value_tracks_true": missing,
            "nodes_truenodeids": true,
            "nodes_trueleafs": true_leaf,
            "nodes_falsenodeids": false,
            "nodes_falseleafs": false_leaf,
            "leaf_targetids": [0] * len(self._leaves),
            "leaf_weights": _tensor(self._leaves, TensorProto.DOUBLE),
        }
        if self._members:
            members = [value for _, values in sorted(self._members) for value in (*values, math.nan)]
            attributes["membership_values"] = _tensor(members, TensorProto.DOUBLE)
        return attributes


def _tensor(values: Any, dtype: int) -> onnx.TensorProto:
    return helper.make_tensor("values", dtype, [len(values)], values)


def _branch(writer: GraphWriter, output: str) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(output, TensorProto.INT64, [None])
    return helper.make_graph(writer.nodes, "branch", [], [value], writer.constants)


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
    for _ in range(2):  # a logarithm may be off by one, its second use is exact
        exponent = writer.add("Clip", exponent, lowest, np.float64(127))
        place = writer.cast(writer.add("Sub", exponent, lowest), np.int64)
        significand = writer.add("Div", size, writer.add("Gather", powers, place))
        above = writer.cast(writer.add("GreaterOrEqual", significand, np.float64(2)), np.float64)
        below = writer.cast(writer.add("Less", significand, np.float64(1)), np.float64)
        exponent = writer.add("Sub", writer.add("Add", exponent, above), below)
    field = writer.add("Mul", writer.cast(place, np.float64), np.float64(2**23))
    bits = writer.add("Add", field, writer.add("Mul", significand, np.float64(2**23)))
    sign = writer.cast(writer.add("Less", values, np.float64(0)), np.float64)
    bits = writer.add("Add", bits, writer.add("Mul", sign, np.float64(2**31)))
    bits = writer.add("Where", zero, np.float64(0), writer.add("Where", missing, np.float64(0x7FC00000), bits))
    key, rest = "", bits
    for byte in range(4):
        upper = writer.add("Floor", writer.add("Div", rest, np.float64(256)))
        lower = writer.add("Sub", rest, writer.add("Mul", upper, np.float64(256)))
        term = writer.add("Mul", lower, np.float64(256 ** (3 - byte)))
        key, rest = term if not key else writer.add("Add", key, term), upper
    return key


def _spellings(feature: Feature) -> dict[str, float]:
    """Return the code of each text that stands for a category or a missing one.

    They are those of :func:`listwright.ranking.features.spelled`, but for texts with blanks around them and whole
    numbers with more than one zero behind the point.
    """
    codes = {"".join(text): 0.0 for word in MISSING_WORDS for text in product(*({c.lower(), c.upper()} for c in word))}
    for code, category in reversed(list(enumerate(feature.categories, start=1))):
        name = spelled(category)
        if name is not None:
            codes[name] = float(code)
            if name.lstrip("-").isdigit():
                codes[f"{name}.0"] = float(code)
            if name in ("true", "false"):
                codes |= {variant: float(code) for variant in (name.upper(), name.capitalize())}
    return codes | {category: float(code) for code, category in enumerate(feature.categories, start=1)}
