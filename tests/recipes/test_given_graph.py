"""Whole runs with a first stage that another library fitted and exported to ONNX."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.commands import verify
from listwright.training.commands import fit
from support.first_stages import foreign_rankers
from support.first_stages.foreign_rankers import LENGTH, LISTS, WIDTH, kept_rows
from support.training.suites import printed_text

pytestmark = pytest.mark.nightly

RECIPE = """
minutes = 0
[data]
kind = "table"
qid = "search"
label = "clicked"
[model]
kind = "mlp"
encoder_width = 8
hidden = [8]
max_epochs = 1
cutoff = 6
"""


def run(*arguments):
    return fit.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with a category that the graphs do not know, a recipe, and the graphs."""
    made = tmp_path_factory.mktemp("given")
    features, labels, queries = foreign_rankers.data()
    lines = ["search,clicked,price,carrier,stars,bm25,code"]
    for row, label, query in zip(features, labels, queries, strict=True):
        price, *others = ("" if np.isnan(value) else repr(float(value)) for value in row)
        lines.append(",".join([str(query), str(label), price, "abc"[query % 3], *others]))
    (made / "own.csv").write_text("\n".join(lines) + "\n")
    (made / "own.toml").write_text(RECIPE)
    for name in ("xgboost", "catboost"):
        (made / f"{name}.onnx").write_bytes(kept_rows(name)[0])
    (made / "linear.onnx").write_bytes(linear(WIDTH))
    (made / "wide.onnx").write_bytes(linear(WIDTH + 1))
    return made


def linear(width):
    """A graph that knows no missing values."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["L", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["L"])],
        [numpy_helper.from_array(np.ones(width, dtype=np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


@pytest.mark.parametrize(
    ("name", "model"), [("xgboost", ()), ("catboost", ("--model", "first_stage"))], ids=["xgboost", "catboost"]
)
def test_it_is_served_as_it_was(folder, tmp_path, capsys, name, model):
    _, rows, expected = kept_rows(name)
    out = tmp_path / "own" / "1"
    given = ("--first-stage", folder / f"{name}.onnx")
    assert run(folder / "own.toml", "--data", folder / "own.csv", *given, *model, "--out", out) == 0
    output = printed_text(capsys)
    assert "look better there than they will on new ones" in output
    assert "no score for a candidate with a missing value" not in output
    assert verify.main([str(out)]) == 0
    loaded = bundle.load(out)
    assert loaded.reranker.first_stage.engine == "onnx"
    assert loaded.manifest.feature_schema.names == ("price", "carrier", "stars", "bm25", "code")
    seen = np.column_stack([rows[:, 0], np.ones(len(rows)), rows[:, 1:]]).astype(np.float32)
    answer = loaded.reranker.rerank(CandidateList(seen), strategy="first_stage")
    assert answer.reason is None
    assert np.abs(answer.first_stage_scores - expected).max() < 1e-5
    assert json.loads((out / "report.json").read_text())["first_stage"]["kind"] == "model"


def test_a_constant_column_stays_because_the_graph_counts_columns(folder, tmp_path):
    lines = (folder / "own.csv").read_text().splitlines()
    table = tmp_path / "own.csv"
    table.write_text("\n".join(line.rsplit(",", 1)[0] + (",code" if n == 0 else ",1") for n, line in enumerate(lines)))
    out = tmp_path / "own" / "1"
    given = ("--first-stage", folder / "xgboost.onnx", "--model", "first_stage")
    assert run(folder / "own.toml", "--data", table, *given, "--out", out) == 0
    assert bundle.load(out).manifest.feature_schema.names[-1] == "code"


def test_a_graph_that_knows_no_missing_value_is_told_by_the_first_query_with_one(folder, tmp_path, capsys):
    given = ("--first-stage", folder / "linear.onnx", "--out", tmp_path / "own" / "1")
    assert run(folder / "own.toml", "--data", folder / "own.csv", *given) == 1
    output = printed_text(capsys)
    assert "linear.onnx, query" in output
    assert "gave nan for candidate" in output
    assert "a missing value reaches it as NaN" in output


def test_and_where_the_data_have_none_a_note_tells_of_requests(folder, tmp_path, capsys):
    lines = (folder / "own.csv").read_text().splitlines()
    table = tmp_path / "own.csv"
    table.write_text("\n".join(",".join(value or "0.5" for value in line.split(",")) for line in lines))
    out = tmp_path / "own" / "1"
    given = ("--first-stage", folder / "linear.onnx", "--model", "first_stage", "--out", out)
    assert run(folder / "own.toml", "--data", table, *given) == 0
    assert "no score for a candidate with a missing value" in printed_text(capsys)
    rows = np.ones((2, WIDTH + 1), dtype=np.float32)
    rows[1, 0] = np.nan
    answer = bundle.load(out).reranker.rerank(CandidateList(rows))
    assert (answer.stage_reached, answer.reason) == ("input_order", "the first stage gave nan for candidate 1")


def test_a_graph_that_does_not_fit_is_refused_before_anything_is_fitted(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("listwright.training.second_stage.fit.fit", lambda *_args, **_more: pytest.fail("too late"))
    given = ("--first-stage", folder / "wide.onnx", "--out", tmp_path / "own" / "1")
    assert run(folder / "own.toml", "--data", folder / "own.csv", *given) == 1
    output = printed_text(capsys)
    assert "wide.onnx: input 'x' (float32, (?, 5)) takes 5 features" in output
    assert "4 numeric ones (price, stars, bm25, code)" in output
    assert "without carrier" in output


def test_letor_text(folder, tmp_path, capsys):
    features, labels, _ = foreign_rankers.data()
    rows = np.nan_to_num(features, nan=0.5)
    lines = (
        f"{labels[n]} qid:{n // LENGTH} " + " ".join(f"{d}:{value!r}" for d, value in enumerate(rows[n].tolist(), 1))
        for n in range(LISTS * LENGTH)
    )
    (tmp_path / "rows.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "own" / "1"
    given = ("--first-stage", folder / "catboost.onnx", "--model", "first_stage", "--out", out)
    assert run("letor", "--data", tmp_path / "rows.txt", *given) == 0
    _, hard, expected = kept_rows("catboost")
    answer = bundle.load(out).reranker.rerank(CandidateList(hard))
    assert np.abs(answer.scores - expected).max() < 1e-5
