"""A ranker in one ONNX file orders every list as its bundle does: of any kind, with any values."""

import importlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from listwright.ranking import golden
from listwright.ranking.bundle import load, open_unsealed, seal
from listwright.ranking.candidates import CandidateList, lightgbm_input
from listwright.ranking.commands.verify import main as verify
from listwright.ranking.errors import BundleError, RecipeError, ScoringError, UnknownStrategyError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import finite_scores, rank_by_score
from listwright.ranking.ranker_file import FACTS, RankerFile
from listwright.ranking.relative import CATEGORY_KINDS, KINDS, WITHIN_KINDS, RelativeColumn, RelativeColumns
from listwright.ranking.stages import GOLDEN, ColumnStage, LightGbmStage, OnnxStage
from listwright.training.export.ranker_file import write_ranker
from listwright.training.first_stage.bring_your_own import canonical
from support.http.rerank_requests import by_name
from support.service.asgi import serving
from support.service.bundles import NUMERIC, make_bundle

MODELS = Path(__file__).resolve().parents[2] / "models"
FOREIGN = Path(__file__).resolve().parents[1] / "reference" / "first_stages"
ODD = [0.0, -0.0, 1e-35, -1e-35, 1e-45, -1e-40, 1.1754942e-38, 3.4e38, -3.4e38, 1.0, -1.0, 1.9999999, 7.0, np.nan]

KINDS_OF_BUNDLES = {
    "plain": {},
    "numbers alone": {"categorical": False, "cutoff": 4},
    "relative": {"relative": True, "cutoff": 3},
    "relative first stage alone": {"relative": True, "kind": None},
    "no first-stage score": {"first_stage_score": False, "cutoff": 1},
    "onnx first stage": {"first_stage": "onnx", "cutoff": 4},
    "specialists": {"specialists": 3, "cutoff": 5},
    "fails at high prices": {"graph": "nan", "cutoff": 5},
    "probabilities": {"probability": "relevance", "cutoff": 4, "specialists": 3},
    "choices": {"probability": "choice", "cutoff": 3, "graph": "nan"},
    "goals": {"goals": {"margin": 0.5, "eco": 0.3}, "probability": "relevance", "relative": True, "cutoff": 4},
    "goals of weight 0": {"goals": {"margin": 0.0}, "cutoff": 4, "graph": "nan"},
}


@pytest.fixture(scope="module", params=KINDS_OF_BUNDLES)
def written(request, tmp_path_factory):
    """A bundle's rankers, each with its file, by strategy and specialist; every second file takes codes."""
    folder = tmp_path_factory.mktemp("bundle")
    bundle = load(make_bundle(folder / "shop" / "1", **KINDS_OF_BUNDLES[request.param]))
    rankers = [(strategy, None) for strategy in bundle.manifest.strategies]
    rankers += [("srm", k) for k in range(3)] if bundle.manifest.srm else []
    files = {}
    for number, (strategy, specialist) in enumerate(rankers):
        path = folder / f"{number}.onnx"
        files[strategy, specialist] = write_ranker(
            bundle, path, strategy=strategy, specialist=specialist, codes=number % 2 == 1
        )
    return bundle, files


@pytest.mark.nightly
def test_a_file_has_the_same_bytes_whatever_seeds_the_hashes(tmp_path):
    """Texts of categories and of missing values come from sets."""
    folder, script = (
        make_bundle(tmp_path / "shop" / "1"),
        (
            "import sys; from pathlib import Path; from listwright.ranking.bundle import load; "
            "from listwright.training.export.ranker_file import write_ranker; "
            "write_ranker(load(Path(sys.argv[1])), Path(sys.argv[2]))"
        ),
    )
    for seed in "12":
        command = [sys.executable, "-c", script, folder, tmp_path / seed]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@st.composite
def candidate_features(draw, schema, longest=12):
    length = draw(st.integers(1, longest))
    numbers = st.one_of(st.sampled_from(ODD), st.floats(-1e4, 1e4, width=32), st.just(2000.0))
    features = draw(arrays.arrays(np.float32, (length, len(schema)), elements=numbers))
    for column in schema.categorical:
        codes = st.integers(0, len(schema.features[column].categories))
        features[:, column] = draw(arrays.arrays(np.int64, length, elements=codes))
    return features


def assert_same(bundle, file, features, strategy, specialist):
    """Compare order, scores to 1e-6 of their size, and first-stage scores to the bit."""
    ranking = bundle.reranker.rerank(
        CandidateList(features), strategy=strategy, specialist=specialist, routing=False, probability=True
    )
    ranked = file.rank(features)
    scores, order = ranked.scores, ranked.order
    np.testing.assert_array_equal(ranked.first_stage_scores, ranking.first_stage_scores)
    np.testing.assert_allclose(ranked.relevance, ranking.relevance, rtol=1e-6, atol=1e-12)
    assert (ranked.probability is None) == (ranking.probability is None)
    if ranking.probability is not None:
        np.testing.assert_allclose(ranked.probability, ranking.probability, rtol=1e-6, atol=1e-9)
    expected = finite_scores(ranking.scores, ranking.order)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    goals = bundle.reranker.goals
    assert (ranked.goal_shares is None) == (goals is None)
    combined = goals is not None and goals.combines(ranking.weights)
    if goals is not None:
        np.testing.assert_allclose(ranked.goal_shares.sum(axis=0), 1.0)
    if combined:
        weights = np.array(list(ranking.weights.values()))
        np.testing.assert_allclose(ranked.goal_shares @ weights / weights.sum(), ranking.relevance, rtol=1e-6)
    if combined or (strategy == "srm" and specialist is None):  # exponentials differ in their last digit
        order, actual = ranking.order, order
        assert (np.isclose(expected[actual], expected[order], rtol=1e-12, atol=1e-12) | (actual == order)).all()
    else:
        np.testing.assert_array_equal(order, ranking.order)
    np.testing.assert_array_equal(rank_by_score(scores), file.rank(features).order)


@pytest.mark.parametrize("length", [2, 3, 8, 51, 64])
def test_identical_candidates_keep_their_order(written, length):
    bundle, files = written
    rows = np.repeat(np.array([[0.5, 1.0, -2.0, 1.0]], dtype=np.float32), length, axis=0)
    for (strategy, specialist), file in files.items():
        assert_same(bundle, file, rows[:, : len(bundle.manifest.feature_schema)], strategy, specialist)


@given(st.data())
def test_order_and_scores_are_those_of_the_bundle(written, data):
    bundle, files = written
    features = data.draw(candidate_features(bundle.manifest.feature_schema))
    for (strategy, specialist), file in files.items():
        assert_same(bundle, file, features, strategy, specialist)


@pytest.mark.parametrize("length", [1, 2, 100, 1000])
def test_long_lists_of_few_values_tie_across_the_cutoff(written, length):
    bundle, files = written
    rng = np.random.default_rng(length)
    features = rng.integers(-1, 2, (length, len(bundle.manifest.feature_schema))).astype(np.float32)
    features[:, bundle.manifest.feature_schema.categorical] = 1
    features[:, bundle.manifest.feature_schema.numeric[:1]] *= 1e-3
    for (strategy, specialist), file in files.items():
        assert_same(bundle, file, features, strategy, specialist)


@pytest.mark.parametrize("length", [1, 4, 40])
def test_post_rerank_answers_the_same(tmp_path, length):
    folder = make_bundle(tmp_path / "shop" / "1", relative=True, cutoff=5)
    bundle, path = load(folder), tmp_path / "shop.onnx"
    write_ranker(bundle, path)
    rng = np.random.default_rng(length)
    rows = [
        dict(zip(NUMERIC, rng.normal(size=3).round(1).tolist(), strict=True))
        | {"carrier": str(rng.choice(["A5", "B2", "Z9", "NA", "null"]))}
        for _ in range(length)
    ]
    rows[0]["bm25"], rows[-1]["carrier"] = None, ""
    numbers = np.array([[row[name] for name in NUMERIC] for row in rows], dtype=np.float32)
    categories = np.array([[row["carrier"]] for row in rows], dtype=object)
    scores, order, relevance, first = onnxruntime.InferenceSession(path).run(
        ["scores", "order", "relevance", "first_stage_scores"], {"numbers": numbers, "categories": categories}
    )
    with serving(folder) as client:
        for raw_scores, expected in ((True, scores), (False, relevance)):
            request = by_name(rows, raw_scores=raw_scores, finite_scores=raw_scores)
            answer = client.post("/rerank", json=request).raise_for_status().json()
            assert [result["index"] for result in answer["results"]] == order.tolist()
            np.testing.assert_allclose(np.array(answer["scores"], dtype=float), expected, rtol=1e-6)
            firsts = {result["index"]: result["first_stage_score"] for result in answer["results"]}
            assert [firsts[index] for index in range(length)] == first.tolist()


def make_first_stage(folder, schema, model, relative=()):
    """Publish a bundle whose one ranker is a first stage: a LightGBM model, an ONNX graph, or a column by its name."""
    folder.mkdir(parents=True)
    files = [GOLDEN]
    if isinstance(model, str):
        stage = ColumnStage(feature=model)
    elif isinstance(model, bytes):
        stage = OnnxStage()
        (folder / stage.file).write_bytes(model)
        files.append(stage.file)
    else:
        stage = LightGbmStage(relative=bool(relative))
        model.save_model(folder / stage.file)
        files.append(stage.file)
    manifest = Manifest(
        name="trees",
        version="1",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe={},
        data="random",
        feature_schema=schema,
        fingerprint=schema.fingerprint,
        relative=relative,
        first_stage=stage,
        second_stages=(),
        strategy="first_stage",
    )
    rng = np.random.default_rng(1)
    lists = [random_rows(rng, schema, length) for length in (1, 2, 9, 40)]
    (folder / GOLDEN).write_bytes(golden.record(open_unsealed(folder, manifest), lists))
    seal(folder, manifest, files)
    return load(folder)


def random_rows(rng, schema, length, odd=()):
    features = rng.normal(size=(length, len(schema))).round(1).astype(np.float32)
    if odd:
        at = rng.random(features.shape) < 0.3
        features[at] = rng.choice(odd, at.sum())
    for column, feature in enumerate(schema.features):
        if feature.kind == "categorical":
            features[:, column] = rng.integers(0, len(feature.categories) + 1, length)
        elif feature.missing_in_training:
            features[rng.random(length) < 0.2, column] = np.nan
    return features


def fit_trees(rng, features, schema, **parameters):
    matrix = lightgbm_input(features, schema).astype(np.float64)
    labels = rng.normal(size=len(matrix)) + np.nan_to_num(matrix[:, 0]) + (np.nan_to_num(matrix[:, -1]) % 3)
    settings = {"num_leaves": 40, "verbose": -1, "min_data_in_leaf": 3, "max_cat_to_onehot": 2, "cat_smooth": 1.0}
    data = lightgbm.Dataset(matrix, labels, categorical_feature=list(schema.categorical))
    return lightgbm.train(settings | {"objective": "regression"} | parameters, data, 20)


COLUMNS = FeatureSchema(
    features=(
        Feature(name="price", missing_in_training=True),
        Feature(name="stars"),
        Feature(name="shop", kind="categorical", categories=tuple(f"shop {n}" for n in range(200))),
        Feature(name="cabin", kind="categorical", categories=("true", "false", "12", "NA", "é")),
    )
)


@pytest.mark.parametrize("parameters", [{}, {"use_missing": False}, {"zero_as_missing": True}, {"num_leaves": 2}])
def test_trees_are_equal_to_the_bit(tmp_path, parameters):
    rng = np.random.default_rng(3)
    rows = random_rows(rng, COLUMNS, 3000, [0.0, -0.0, 1e-35, -1e-36, 1e-34])
    bundle = make_first_stage(tmp_path / "trees" / "1", COLUMNS, fit_trees(rng, rows, COLUMNS, **parameters))
    file = write_ranker(bundle, tmp_path / "trees.onnx")
    for length in (1, 7, 500):
        features = random_rows(rng, COLUMNS, length, ODD)
        features[rng.random(length) < 0.1, 1] = np.nan  # where training had none
        assert_same(bundle, file, features, "first_stage", None)


@pytest.mark.nightly
@pytest.mark.parametrize(("parameters", "far"), [({}, 0), ({"zero_as_missing": True}, 0.01)])
def test_the_converter_of_onnxmltools_is_not_exact(tmp_path, parameters, far):
    """The reason for trees of our own: docs/decisions/0020-one-onnx-file.md. Where this fails, take the converter."""
    convert = pytest.importorskip("onnxmltools").convert_lightgbm
    types = importlib.import_module("onnxmltools.convert.common.data_types")
    rng, width = np.random.default_rng(0), 10
    schema = FeatureSchema(features=tuple(Feature(name=f"n{d}", missing_in_training=True) for d in range(width)))
    model = fit_trees(rng, random_rows(rng, schema, 5000), schema, **parameters)
    rows = random_rows(rng, schema, 5000)
    exact = model.predict(rows.astype(np.float64), raw_score=True, num_threads=1)
    graph = convert(model, initial_types=[("features", types.FloatTensorType([None, width]))], zipmap=False)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    converted = session.run(None, {"features": rows})[0].ravel()
    file = write_ranker(make_first_stage(tmp_path / "trees" / "1", schema, model), tmp_path / "trees.onnx")
    np.testing.assert_array_equal(file.rank(rows).first_stage_scores, exact)
    assert (converted != exact).all()
    assert (np.abs(converted - exact) > 1e-3).mean() >= far


def test_a_model_of_numbers_may_split_them_as_categories(tmp_path):
    rng = np.random.default_rng(4)
    schema = FeatureSchema(features=(Feature(name="a"), Feature(name="b", missing_in_training=True)))
    rows = rng.integers(0, 12, (2000, 2)).astype(np.float32)
    labels = np.isin(rows[:, 0], [1, 5, 7]) * 2.0 + rng.normal(size=2000)
    data = lightgbm.Dataset(rows, labels, categorical_feature=[0])
    model = lightgbm.train({"objective": "regression", "verbose": -1, "max_cat_to_onehot": 2}, data, 10)
    bundle = make_first_stage(tmp_path / "trees" / "1", schema, model)
    file = write_ranker(bundle, tmp_path / "trees.onnx")
    features = np.concatenate([rows[:50], rng.normal(size=(200, 2)) * 6], dtype=np.float32)
    assert_same(bundle, file, features, "first_stage", None)


def test_a_tree_of_one_leaf(tmp_path):
    rng = np.random.default_rng(5)
    rows = random_rows(rng, COLUMNS, 30)
    model = fit_trees(rng, rows, COLUMNS, min_data_in_leaf=1000)
    assert model.num_trees() > 0
    bundle = make_first_stage(tmp_path / "trees" / "1", COLUMNS, model)
    file = write_ranker(bundle, tmp_path / "trees.onnx")
    assert_same(bundle, file, rows, "first_stage", None)


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.onnx")), ids=lambda path: path.stem)
def test_a_first_stage_of_another_library(tmp_path, path):
    """Its operators' versions are older, and there are categories, which it does not see."""
    width = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    numbers = tuple(Feature(name=f"n{d}", missing_in_training=True) for d in range(width))
    schema = FeatureSchema(features=(numbers[0], COLUMNS.features[3], *numbers[1:]))
    model = canonical(path.read_bytes(), schema)
    bundle = make_first_stage(tmp_path / "foreign" / "1", schema, model)
    file = write_ranker(bundle, tmp_path / "foreign.onnx")
    for length in (1, 30):
        assert_same(bundle, file, random_rows(np.random.default_rng(length), schema, length), "first_stage", None)


def test_a_first_stage_of_older_operators(tmp_path):
    """ReduceSum had its axes as an attribute until version 13, ReduceMean until 18."""
    schema = FeatureSchema(features=(COLUMNS.features[1], Feature(name="weight")))
    node = onnx.helper.make_node("ReduceMean", ["features"], ["scores"], axes=[1], keepdims=0)
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "g", [value("features", kind, ["L", 2])], [value("scores", kind, ["L"])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    bundle = make_first_stage(tmp_path / "mean" / "1", schema, model.SerializeToString())
    file = write_ranker(bundle, tmp_path / "mean.onnx")
    assert_same(bundle, file, random_rows(np.random.default_rng(0), schema, 30), "first_stage", None)


def every_relative_column(schema):
    numbers, categories = ([schema.names[d] for d in columns] for columns in (schema.numeric, schema.categorical))
    columns = []
    for kind in KINDS:
        for feature in categories if kind in CATEGORY_KINDS else numbers:
            for within in categories if kind in WITHIN_KINDS else [None]:
                columns.append(RelativeColumn(feature=feature, kind=kind, within=within, scale=0.5))
    return tuple(columns)


def test_list_relative_columns_of_every_kind(tmp_path):
    """Trees with a leaf for every few rows of random labels see any other value of a column."""
    rng = np.random.default_rng(6)
    columns = every_relative_column(COLUMNS)
    relative = RelativeColumns(columns, COLUMNS)
    lists = [random_rows(rng, COLUMNS, length) for length in rng.integers(1, 60, 40)]
    wide = np.concatenate([relative.widened(features) for features in lists])
    model = fit_trees(rng, wide, relative.schema, num_leaves=300, min_data_in_leaf=1, feature_fraction=0.3)
    assert (model.feature_importance()[len(COLUMNS) :] > 0).all()
    bundle = make_first_stage(tmp_path / "trees" / "1", COLUMNS, model, columns)
    file = write_ranker(bundle, tmp_path / "trees.onnx")
    for features in [*lists, random_rows(rng, COLUMNS, 1000), random_rows(rng, COLUMNS, 40, ODD)]:
        assert_same(bundle, file, features, "first_stage", None)
    features = lists[-1].copy()
    features[:, 0] = np.nan
    features[:, 1] = 3.0
    features[:, 2] = 0.0
    assert_same(bundle, file, features, "first_stage", None)


def test_a_column_with_a_missing_score_leaves_the_list_in_input_order(tmp_path):
    bundle = make_first_stage(tmp_path / "column" / "1", COLUMNS, "stars")
    file = write_ranker(bundle, tmp_path / "column.onnx")
    features = random_rows(np.random.default_rng(7), COLUMNS, 5)
    assert_same(bundle, file, features, "first_stage", None)
    features[2, 1] = np.nan
    assert_same(bundle, file, features, "first_stage", None)
    assert file.rank(features).scores.tolist() == [-1.0, -2.0, -3.0, -4.0, -5.0]


@pytest.mark.parametrize("column", [2, 3])
def test_text_means_what_it_means_to_the_service(tmp_path, column):
    feature = COLUMNS.features[column]
    rows = np.zeros((4 * len(feature.categories) + 4, 4), dtype=np.float32)
    rows[:, column] = np.arange(len(rows)) // 4
    data = lightgbm.Dataset(lightgbm_input(rows, COLUMNS), rows[:, column] ** 1.5, categorical_feature=[2, 3])
    settings = {"num_leaves": 300, "min_data_in_leaf": 1, "max_cat_to_onehot": 300, "cat_l2": 0, "cat_smooth": 0}
    model = lightgbm.train(settings | {"objective": "regression", "verbose": -1, "min_data_per_group": 1}, data, 1)
    bundle = make_first_stage(tmp_path / "trees" / "1", COLUMNS, model)
    path = tmp_path / "text.onnx"
    write_ranker(bundle, path)

    texts = [*feature.categories, "", "na", "NA", "N/a", "NULL", "None", "\\N", "nan", "nobody", "TRUE", "True"]
    texts += ["12", "12.0", "13", "false", "\u00e9", "shop 7", "SHOP 7"]
    features = np.zeros((len(texts), 4), dtype=np.float32)
    features[:, column] = [feature.code(text) for text in texts]
    expected = bundle.reranker.first_stage.score(features)
    assert len(set(expected.tolist())) > len(feature.categories)
    categories = np.full((len(texts), 2), "", dtype=object)
    categories[:, column - 2] = texts
    numbers = np.zeros((len(texts), 2), dtype=np.float32)
    session = onnxruntime.InferenceSession(path)
    scores = session.run(["first_stage_scores"], {"numbers": numbers, "categories": categories})[0]
    np.testing.assert_array_equal(scores, expected)


def test_codes_that_are_nan_are_missing_categories(tmp_path):
    rng = np.random.default_rng(8)
    rows = random_rows(rng, COLUMNS, 500)
    bundle = make_first_stage(tmp_path / "trees" / "1", COLUMNS, fit_trees(rng, rows, COLUMNS))
    write_ranker(bundle, tmp_path / "codes.onnx", codes=True)
    session = onnxruntime.InferenceSession(tmp_path / "codes.onnx")
    rows[:, 2] = 0
    expected = session.run(["scores"], {"features": rows})[0]
    rows[:, 2] = np.nan
    np.testing.assert_array_equal(session.run(["scores"], {"features": rows})[0], expected)


def make_shop(tmp_path, **settings):
    return load(make_bundle(tmp_path / "shop" / "1", **settings))


def test_a_router_is_refused_until_a_ranker_is_named(tmp_path):
    bundle = make_shop(tmp_path, specialists=2, margin=0.0)
    for strategy in ("auto", "srm"):
        with pytest.raises(RecipeError, match="router"):
            write_ranker(bundle, tmp_path / "a.onnx", strategy=strategy)
    assert write_ranker(bundle, tmp_path / "a.onnx", specialist=1).facts.specialist == 1
    assert write_ranker(bundle, tmp_path / "a.onnx", strategy="qilcm").facts.strategy == "qilcm"


def test_a_router_that_always_abstains_asks_nobody(tmp_path):
    bundle = make_shop(tmp_path, specialists=2, margin=None)
    assert write_ranker(bundle, tmp_path / "a.onnx").facts.strategy == "qilcm"


@pytest.mark.parametrize("options", [{"strategy": "dlcm"}, {"specialist": 2}, {"strategy": "qilcm", "specialist": 0}])
def test_a_ranker_that_is_not_there_is_refused(tmp_path, options):
    bundle = make_shop(tmp_path, specialists=2)
    with pytest.raises(UnknownStrategyError):
        write_ranker(bundle, tmp_path / "a.onnx", **options)
    assert not list(tmp_path.glob("*.onnx*"))


@pytest.mark.parametrize(
    "parameters", [{"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, {"linear_tree": True}]
)
def test_trees_that_are_not_written_are_refused(tmp_path, parameters):
    rng = np.random.default_rng(9)
    schema = FeatureSchema(features=COLUMNS.features[:2])
    rows = random_rows(rng, schema, 500)
    bundle = make_first_stage(tmp_path / "trees" / "1", schema, fit_trees(rng, rows, schema, **parameters))
    with pytest.raises(RecipeError, match="cannot be written"):
        write_ranker(bundle, tmp_path / "a.onnx")


def test_a_graph_that_ranks_otherwise_is_not_written(tmp_path, monkeypatch):
    bundle = make_shop(tmp_path, cutoff=3)
    monkeypatch.setattr("listwright.training.export.ranker_file._WAYS_OUT", np.zeros(6))
    (tmp_path / "a.onnx").write_text("before")
    with pytest.raises(BundleError, match="golden list"):
        write_ranker(bundle, tmp_path / "a.onnx")
    monkeypatch.setattr(RankerFile, "verify", lambda _: None)
    with pytest.raises(ScoringError, match="differs"):
        write_ranker(bundle, tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").read_text() == "before"
    assert [path.name for path in tmp_path.glob("*onnx*")] == ["a.onnx"]


@pytest.mark.parametrize(
    ("facts", "golden"),
    [
        ({"version": "../2"}, {}),
        ({"feature_schema": {"features": []}}, {}),
        ({"feature_schema": COLUMNS.model_dump()}, {}),
        ({"golden_lists": []}, {}),
        *(({}, {"features": [[0.0, 0.0, 0.0, code]]}) for code in (99, -1, 0.5, 1e300)),
        ({}, {"features": [[0.0, 0.0, 0.0, 1.0], [0.0]]}),
        ({}, {"features": [[]]}),
        ({}, {"features": [[0.0] * 5]}),
        ({}, {"order": [7]}),
        ({}, {"order": []}),
        ({}, {"scores": [None]}),
        ({}, {"scores": [1e30]}),
    ],
)
def test_changed_metadata_are_refused(tmp_path, capsys, facts, golden):
    path = tmp_path / "a.onnx"
    file = write_ranker(make_shop(tmp_path), path)
    changed = json.loads(file.facts.model_dump_json())
    changed["golden_lists"][0] |= golden
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {FACTS: json.dumps(changed | facts)})
    onnx.save(model, path)
    assert verify([str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"refused: {path}: ")


def test_names_do_not_write_to_the_terminal(tmp_path, capsys):
    path = tmp_path / "a.onnx"
    file = write_ranker(make_shop(tmp_path), path)
    changed = json.loads(file.facts.model_dump_json())
    changed["feature_schema"]["features"][0]["name"] = "price\x1b[2J\nshop/9: good"
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {FACTS: json.dumps(changed)})
    onnx.save(model, path)
    assert verify([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert len(printed.splitlines()) == 3


def test_a_changed_or_cut_file_is_refused(tmp_path):
    path = tmp_path / "a.onnx"
    write_ranker(make_shop(tmp_path, cutoff=3, relative=True), path)
    assert verify([str(path)]) == 0
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert verify([str(path)]) == 1, size
    model = onnx.load_from_string(whole)
    splits = next(node for node in model.graph.node if node.op_type == "TreeEnsemble")
    weights = next(a.t for a in splits.attribute if a.name == "leaf_weights")
    weights.double_data[0] += 1.0
    onnx.save(model, path)
    assert verify([str(path)]) == 1
    assert verify([str(tmp_path / "nowhere.onnx")]) == 1


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path, capsys):
    os.mkfifo(tmp_path / "a.onnx")
    assert verify([str(tmp_path / "a.onnx")]) == 1
    assert "a.onnx" in capsys.readouterr().err


@pytest.mark.parametrize(("old", "new"), [("numbers", "prices"), ("order", "places")])
def test_another_graph_under_the_metadata_is_refused(tmp_path, capsys, old, new):
    path = tmp_path / "a.onnx"
    write_ranker(make_shop(tmp_path), path)
    model = onnx.load(path)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*model.graph.input, *model.graph.output):
        value.name = new if value.name == old else value.name
    onnx.save(model, path)
    assert verify([str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"refused: {path}: ")


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["first_stage", "qilcm"])
def test_the_demo(tmp_path, strategy):
    bundle = load(MODELS / "demo" / "1")
    schema, rng = bundle.manifest.feature_schema, np.random.default_rng(10)
    lists = [
        np.array(json.loads(line)["features"], dtype=np.float32)
        for line in (MODELS / "demo" / "1" / GOLDEN).read_text().splitlines()
    ]
    rows = np.concatenate(lists)
    for codes in (False, True):
        file = write_ranker(bundle, tmp_path / "demo.onnx", strategy=strategy, codes=codes)
        for _ in range(1000):
            features = rows[rng.integers(0, len(rows), rng.integers(1, 40))]
            features[rng.random(features.shape) < 0.1] = np.nan
            columns = list(schema.categorical)
            features[:, columns] = np.nan_to_num(features[:, columns])
            assert_same(bundle, file, features, strategy, None)
        assert_same(bundle, file, rows[rng.integers(0, len(rows), 1000)], strategy, None)
