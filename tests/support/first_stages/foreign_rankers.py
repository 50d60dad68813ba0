"""Rankers of XGBoost and CatBoost, by their own fits and exporters.

``python tests/support/first_stages/foreign_rankers.py`` writes the graphs and scores of ``tests/reference/first_stages``. It needs xgboost,
catboost and onnxmltools; what it wrote is kept, so that the tests need none of them.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FOLDER = Path(__file__).parents[2] / "reference" / "first_stages"
WIDTH, LISTS, LENGTH = 4, 60, 10
CODES = 3
"""The column that holds codes of categories, for who wants them."""


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and query numbers; columns 1 to 3 have missing values, the last one holds codes 0 to 5."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(LISTS * LENGTH, WIDTH)).astype(np.float32)
    features[:, 1] = np.round(features[:, 1], 1)
    features[:, CODES] = rng.integers(0, 6, len(features))
    for column in (1, 2, CODES):
        features[rng.random(len(features)) < 0.1, column] = np.nan
    utility = features[:, 0] + np.nan_to_num(features[:, 1], nan=-1.0) + 2 * np.isin(features[:, CODES], [1, 4])
    labels = np.digitize(utility + rng.normal(size=len(features)), [0.5, 2.0])
    return features, labels, np.repeat(np.arange(LISTS), LENGTH)


def xgboost_booster(objective: str = "rank:ndcg", *, categories: bool = False, trees: int = 15) -> Any:
    """An XGBoost ranker; with ``categories`` it splits the codes as such."""
    import xgboost

    features, labels, queries = data()
    matrix = xgboost.DMatrix(features, label=labels, qid=queries, **_kinds(categories))
    settings = {"objective": objective, "max_depth": 4, "seed": 0, "max_cat_to_onehot": 1, "nthread": 1}
    return xgboost.train(settings, matrix, trees)


def xgboost_scores(booster: Any, rows: np.ndarray, *, categories: bool = False) -> np.ndarray:
    import xgboost

    return np.asarray(booster.predict(xgboost.DMatrix(rows, **_kinds(categories)), output_margin=True))


def xgboost_graph(booster: Any, width: int = WIDTH) -> bytes:
    """As ``docs/first-stages.md`` says."""
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    booster.set_param({"objective": "reg:squarederror"})
    booster.feature_names = None
    graph = onnxmltools.convert_xgboost(booster, initial_types=[("features", FloatTensorType([None, width]))])
    return bytes(graph.SerializeToString())


def catboost_model(loss: str = "YetiRank", **settings: Any) -> Any:
    import catboost

    features, labels, queries = data()
    given = {"iterations": 15, "depth": 4, "random_seed": 0, "thread_count": 1, **settings}
    model = catboost.CatBoost({"loss_function": loss, "allow_writing_files": False, "verbose": False, **given})
    return model.fit(catboost.Pool(features, labels, group_id=queries))


def catboost_graph(model: Any, folder: Path) -> bytes:
    """As ``docs/first-stages.md`` says."""
    model.save_model(str(folder / "model.onnx"), format="onnx")
    return (folder / "model.onnx").read_bytes()


def kept_rows(name: str) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A kept graph, rows, and what its own library gave them."""
    pairs = json.loads((FOLDER / f"{name}.json").read_text())["rows_and_scores"]
    rows = np.array([[np.nan if value is None else value for value in row] for row, _ in pairs], dtype=np.float32)
    return (FOLDER / f"{name}.onnx").read_bytes(), rows, np.array([score for _, score in pairs])


def hard_rows(graph: bytes, *, categories: bool = False, count: int | None = None, seed: int = 1) -> np.ndarray:
    """Rows at, just above and just below every threshold of a forest, with missing and with large values.

    Codes of ``categories`` are whole numbers, known or not.
    """
    (forest,) = (node for node in onnx.ModelProto.FromString(graph).graph.node if "TreeEnsemble" in node.op_type)
    has = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in forest.attribute}
    splits = [
        (feature, np.float32(value))
        for feature, value, mode in zip(has["nodes_featureids"], has["nodes_values"], has["nodes_modes"], strict=True)
        if mode != b"LEAF"
    ]
    changes = [(feature, value) for value in (np.nan, 0.0, -0.0, 3e38, -3e38, 1e-40, 99.0) for feature in range(WIDTH)]
    rng = np.random.default_rng(seed)
    unlike = list(dict.fromkeys(splits))
    for feature, value in (unlike[n] for n in rng.permutation(len(unlike))):
        with np.errstate(over="ignore"):  # CatBoost's border between missing and the largest number
            around = [value, *(np.nextafter(value, np.float32(end)) for end in (np.inf, -np.inf))]
        changes += [(feature, beside) for beside in around if np.isfinite(beside)]
    usual = data(seed)[0]
    found = usual[rng.integers(len(usual), size=len(changes))][:count]
    for row, (feature, value) in zip(found, changes, strict=False):
        row[feature] = value
    found[0] = np.nan
    if categories:
        found[:, CODES] = np.clip(np.round(found[:, CODES]), 0, 99)
    return found


def _kinds(categories: bool) -> dict[str, Any]:
    return {"feature_types": ["q"] * CODES + ["c"], "enable_categorical": True} if categories else {}


def write() -> None:
    """Write every graph, and what its own library scores its hard rows with."""
    FOLDER.mkdir(exist_ok=True)
    plain, coded, cat = xgboost_booster(), xgboost_booster(categories=True), catboost_model()
    made = {
        "xgboost": (xgboost_graph(plain.copy()), lambda rows: xgboost_scores(plain, rows)),
        "xgboost_categories": (xgboost_graph(coded.copy()), lambda rows: xgboost_scores(coded, rows, categories=True)),
        "catboost": (catboost_graph(cat, FOLDER), cat.predict),
    }
    (FOLDER / "model.onnx").unlink()
    for name, (graph, scored) in made.items():
        rows = hard_rows(graph, categories=name == "xgboost_categories", count=200)
        pairs = zip(rows.tolist(), np.asarray(scored(rows), dtype=float).tolist(), strict=True)
        lines = [json.dumps([[None if np.isnan(value) else value for value in row], score]) for row, score in pairs]
        versions = {library: version(library) for library in ("xgboost", "catboost", "onnxmltools")}
        (FOLDER / f"{name}.onnx").write_bytes(graph)
        (FOLDER / f"{name}.json").write_text(
            f'{{"made_with": {json.dumps(versions)},\n"rows_and_scores": [\n' + ",\n".join(lines) + "\n]}\n"
        )


if __name__ == "__main__":
    write()
