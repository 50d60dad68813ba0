"""What ``docs/first-stages.md`` shows exports a ranker that a fit takes, and scores stay; the operators it leads to exist."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages import foreign_rankers, given_networks
from support.first_stages.foreign_rankers import WIDTH

PAGE = (Path(__file__).parents[2] / "docs" / "first-stages.md").read_text(encoding="utf-8")
SCHEMA = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, WIDTH + 1)))
ROWS = foreign_rankers.data(seed=1)[0]


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Runs the code under a heading of the page; gives the scores of what it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(heading, **names):
        section = re.split(r"\n##+ ", PAGE.split(f"\n### {heading}\n")[1])[0]
        (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporters' own inner life
            exec(code, names)
        return OnnxFirstStage(canonical(Path("ranker.onnx").read_bytes(), SCHEMA), SCHEMA).score(ROWS)

    return run


@pytest.mark.parametrize("stopped", [False, True])
def test_xgboost(exported, stopped):
    xgboost = pytest.importorskip("xgboost")
    pytest.importorskip("onnxmltools")
    pandas = pytest.importorskip("pandas")
    features, labels, queries = foreign_rankers.data()
    frame, unseen = (pandas.DataFrame(rows, columns=["price", "stars", "bm25", "code"]) for rows in (features, ROWS))
    held_out = {"eval_set": [(unseen, 2 - labels)], "eval_qid": [queries], "verbose": False}
    settings = {"n_estimators": 30, "max_depth": 4, "early_stopping_rounds": 3 if stopped else None}
    ranker = xgboost.XGBRanker(**settings).fit(frame, labels, qid=queries, **(held_out if stopped else {}))
    expected = ranker.predict(unseen)
    if stopped:
        assert ranker.best_iteration + 1 < ranker.get_booster().num_boosted_rounds()
        ranker = cut(ranker)
    assert np.abs(exported("XGBoost", ranker=ranker) - expected).max() < 1e-5
    assert "ranker.get_booster()[: ranker.best_iteration + 1]" in PAGE


def cut(ranker):
    """Stands for a ranker whose booster ends with its best tree."""

    class Cut:
        @staticmethod
        def get_booster():
            return ranker.get_booster()[: ranker.best_iteration + 1]

    return Cut


def test_catboost(exported):
    pytest.importorskip("catboost")
    ranker = foreign_rankers.catboost_model()
    assert np.abs(exported("CatBoost", ranker=ranker) - ranker.predict(ROWS)).max() < 1e-5


@pytest.mark.nightly
def test_torch(exported):
    torch = pytest.importorskip("torch")
    network = given_networks.network(given_networks.Pointwise)
    with torch.inference_mode():
        expected = network(torch.from_numpy(ROWS)).numpy()[:, 0]
    assert np.abs(exported("torch", network=network, width=WIDTH) - expected).max() < 1e-4


def test_scikit_learn(exported):
    regressor, _ = given_networks.ridge()
    assert np.abs(exported("scikit-learn", regressor=regressor, width=WIDTH) - regressor.predict(ROWS)).max() < 1e-5


def test_trees_of_opset_5_can_be_had_as_the_page_says():
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor

    (opsets,) = re.findall(r"`target_opset=(\{.*?\})`", PAGE)
    model = GradientBoostingRegressor(n_estimators=3).fit(np.nan_to_num(ROWS), ROWS[:, 0])
    graph = to_onnx(model, ROWS[:1], target_opset=eval(opsets))
    assert {opset.domain: opset.version for opset in graph.opset_import}["ai.onnx.ml"] <= 3
    found = OnnxFirstStage(canonical(graph.SerializeToString(), SCHEMA), SCHEMA).score(np.nan_to_num(ROWS))
    assert np.abs(found - model.predict(np.nan_to_num(ROWS))).max() < 1e-5
