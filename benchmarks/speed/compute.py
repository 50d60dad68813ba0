"""``python -m benchmarks.speed.compute``: what the two stages cost, each beside its alternatives, on one thread.

First stage: LightGBM's own ``predict``, ONNX Runtime's tree ensemble, oneDAL where ``daal4py`` is installed, and the
compiled traversal; all but oneDAL and ONNX Runtime equal LightGBM to the last bit. The compiled one again with 40
list-relative columns, of numbers and of categories. Second stage: QILCM as torch exports it from the module that was
trained, and in the inference form that a fit writes. The candidates take turns on the same lists.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import lightgbm
import numpy as np
import onnxruntime
import torch
from jaxtyping import Float
from onnx import TensorProto, helper

from benchmarks.wide_bundle import FEATURES, boost, build, noise, rows
from listwright.ranking import bundle
from listwright.ranking.compiled.first_stage import CompiledFirstStage
from listwright.ranking.compiled.lightgbm_trees import Forest, read_forest
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.ranking.relative import CATEGORY_KINDS, NUMBER_KINDS, WITHIN_KINDS, RelativeColumns
from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.second_stages import ranker_graph, to_onnx
from listwright.training.first_stage.relative import candidates, widened_part
from listwright.training.networks.ranker import Ranker, Unbatched
from listwright.training.recipe.model import QilcmSpec
from listwright_lab import machine

LENGTHS = {10: 300, 100: 200, 1000: 40}
"""Rounds at each list length."""

RELATIVE = 40
"""List-relative columns that are timed."""

CATEGORIES = 4
"""Features that are categories in one of the forests: the first ones, which are small counts."""

Score = Callable[[Float[np.ndarray, "L D"]], np.ndarray]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; write ``benchmarks/results/compute.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.compute", description=__doc__)
    parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = build(Path(folder) / "wide" / "1")
        model = (path / "first_stage.txt").read_text(encoding="utf-8")
        schema = bundle.load(path).manifest.feature_schema
    first = _engines(model, LightGbmFirstStage(model, schema), CompiledFirstStage(read_forest(model), None, schema))
    torch.manual_seed(0)
    sample = rows(np.random.default_rng(0), 5000)
    module = Ranker(schema, sample, QilcmSpec()).eval()
    second = {
        "as trained": OnnxScorer(to_onnx(Unbatched(module), FEATURES), FEATURES).score,
        "inference form": OnnxScorer(ranker_graph(module), FEATURES).score,
    }
    result = {
        "features": FEATURES,
        "first_stage": _table(first, "LightGBM"),
        "relative_columns": _table(_with_relative_columns(), "without"),
        "second_stage": _table(second, "as trained"),
    }
    print(machine.save("compute", "python -m benchmarks.speed.compute", result))
    return 0


def _with_relative_columns() -> dict[str, Score]:
    """Return the compiled first stage on features alone, and with list-relative columns that it computes too."""
    data = noise(np.random.default_rng(0))
    scorers: dict[str, Score] = {"without": CompiledFirstStage(read_forest(boost(data)), None, data.schema).score}
    codes = tuple(map(str, range(int(data.features[:, :CATEGORIES].max()) + 1)))
    categories = [Feature(name=name, kind="categorical", categories=codes) for name in data.schema.names[:CATEGORIES]]
    mixed = replace(data, schema=FeatureSchema(features=(*categories, *data.schema.features[CATEGORIES:])))
    of_numbers = candidates(data.schema, NUMBER_KINDS)
    of_categories = candidates(mixed.schema, CATEGORY_KINDS + WITHIN_KINDS)[: RELATIVE // 2]
    for name, lists, columns in (
        (f"{RELATIVE} columns of {RELATIVE // 2} features", data, of_numbers[:RELATIVE]),
        (f"{RELATIVE} columns of {RELATIVE} features", data, of_numbers[: 2 * RELATIVE : 2]),
        (f"{RELATIVE} columns, half of categories", mixed, (*of_numbers[-RELATIVE // 2 :], *of_categories)),
    ):
        wide = widened_part(lists, columns)
        relative = RelativeColumns(columns, lists.schema)
        forest = CompiledFirstStage(read_forest(boost(wide)), None, wide.schema)
        scorers[name] = _widening(relative, forest)
    return scorers


def _widening(relative: RelativeColumns, forest: CompiledFirstStage) -> Score:
    return lambda x: forest.score(relative.widened(x))


def _engines(model: str, reference: LightGbmFirstStage, compiled: CompiledFirstStage) -> dict[str, Score]:
    engines: dict[str, Score] = {"LightGBM": reference.score, "compiled": compiled.score}
    session = _session(_tree_ensemble(read_forest(model)))
    engines["ONNX Runtime"] = lambda x: session.run(None, {"features": x})[0][:, 0]
    try:
        daal4py = import_module("daal4py")  # an alternative that is only measured, where somebody installed it
    except ImportError:
        print("oneDAL: skipped, daal4py is not installed (pip install scikit-learn-intelex)")
        return engines
    for key in ("objective=", "[objective: "):  # it converts no ranker, and a regression adds up the same trees
        model = model.replace(f"{key}lambdarank", f"{key}regression")
    converted = daal4py.mb.convert_model(lightgbm.Booster(model_str=model))
    engines["oneDAL"] = lambda x: np.ravel(converted.predict(x))
    return engines


def _session(graph: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _tree_ensemble(forest: Forest) -> bytes:
    """Convert the forest to ONNX's own operator; thresholds are rounded down to float32 already."""
    sizes = np.diff(forest.trees["root"], append=len(forest.nodes))
    tree = np.repeat(np.arange(len(sizes)), sizes)
    node = np.arange(len(forest.nodes)) - np.repeat(forest.trees["root"], sizes)
    leaf = np.isinf(forest.nodes["threshold"])
    child = forest.nodes["child"].astype(int)
    ensemble = helper.make_node(
        "TreeEnsembleRegressor",
        ["features"],
        ["scores"],
        domain="ai.onnx.ml",
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=forest.columns["feature"][forest.nodes["column"]].tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values=np.where(leaf, 0.0, forest.nodes["threshold"]).tolist(),
        nodes_truenodeids=np.where(leaf, 0, child).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, child + 1).tolist(),
        target_treeids=tree[leaf].tolist(),
        target_nodeids=node[leaf].tolist(),
        target_ids=[0] * int(leaf.sum()),
        target_weights=forest.values[leaf].tolist(),
        n_targets=1,
    )
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", FEATURES])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 1])
    graph = helper.make_graph([ensemble], "trees", [features], [scores])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def _table(candidates: Mapping[str, Score], baseline: str) -> list[dict[str, object]]:
    """Return median milliseconds, and how many times as fast as the baseline: the median ratio within a round."""
    rng = np.random.default_rng(1)
    table = []
    for length, rounds in LENGTHS.items():
        times: dict[str, list[float]] = {name: [] for name in candidates}
        for number in range(rounds + 5):
            x = rows(rng, length)
            for name, score in candidates.items():
                started = time.perf_counter()
                score(x)
                if number >= 5:
                    times[name].append(time.perf_counter() - started)
        row: dict[str, object] = {"candidates": length}
        for name, seconds in times.items():
            row[f"{name} ms"] = round(float(np.median(seconds)) * 1000, 4)
            row[f"{name} times"] = round(float(np.median(np.array(times[baseline]) / np.array(seconds))), 2)
        table.append(row)
        print(row)
    return table


if __name__ == "__main__":
    sys.exit(main())
