"""A model file that is not LightGBM's text is told by its content, and the error says what works instead."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import zipfile
import zlib
from functools import cache
from pathlib import Path

import joblib
import lightgbm
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.commands import fit
from listwright.training.first_stage import foreign_models
from listwright.training.first_stage.bring_your_own import canonical, read_model
from support.first_stages.foreign_rankers import WIDTH, kept_rows

ROWS = 120
SCHEMA = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, WIDTH + 1)))


@cache
def ranker():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(ROWS, 3)), rng.integers(0, 3, ROWS)
    params = {"n_estimators": 3, "min_child_samples": 2, "verbosity": -1}
    return lightgbm.LGBMRanker(**params).fit(features, labels, group=[10] * (ROWS // 10))


def text():
    return ranker().booster_.model_to_string().encode()


def dumped(model, **words):
    file = io.BytesIO()
    joblib.dump(model, file, **words)
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("schema.json", "{}")
    return file.getvalue()


def ubjson(key):
    return b"{L" + len(key).to_bytes(8, "big") + key + b"{L"


def binary_xgboost(objective=b"rank:ndcg"):
    """The head of the format that XGBoost wrote before JSON: parameters, and two names with their lengths."""
    parameters = np.float32(0.5).tobytes() + (46).to_bytes(4, "little") + bytes(128)
    names = (objective, b"gbtree")
    return parameters + b"".join(len(name).to_bytes(8, "little") + name for name in names) + bytes(64)


SAVE, COLUMN, BOTH = (
    ("save_model",),
    ("--first-stage-column COL", 'kind = "column"'),
    ("LightGBM model", "any other model: export it to ONNX"),
)
NO_WAY = ("no conversion from", *COLUMN)
XGBOOST = ("XGBoost", "export it to ONNX", "reg:squarederror", "convert_xgboost", "docs/first-stages.md", *COLUMN)
CATBOOST = ("CatBoost", "save_model(path, format='onnx')", "no categorical features", *COLUMN)

CASES = [
    *((f"pickled booster {n}", lambda n=n: pickle.dumps(ranker().booster_, n), ("pickle", *SAVE)) for n in range(6)),
    *((f"pickled ranker {n}", lambda n=n: pickle.dumps(ranker(), n), ("pickle", *SAVE)) for n in range(6)),
    *((f"joblib {n}", lambda n=n: dumped(ranker(), protocol=n), ("joblib", *SAVE)) for n in range(6)),
    *((f"dict {n}", lambda n=n: pickle.dumps({"model": ranker()}, n), ("pickle", *SAVE)) for n in range(6)),
    *((f"list {n}", lambda n=n: pickle.dumps([ranker()], n), ("pickle", *SAVE)) for n in range(6)),
    *((f"array {n}", lambda n=n: pickle.dumps(np.zeros(3), n), ("pickle", *BOTH)) for n in range(6)),
    *(
        (f"sklearn {n}", lambda n=n: pickle.dumps(LinearRegression(), n), ("scikit-learn", "ONNX", *COLUMN))
        for n in range(6)
    ),
    *(
        (f"joblib, {how}", lambda how=how: dumped(ranker(), compress=(how, 3)), (f"compressed with {said}", *SAVE))
        for how, said in (("zlib", "zlib"), ("gzip", "gzip"), ("bz2", "bzip2"), ("xz", "xz"), ("lzma", "xz"))
    ),
    (
        "pickled by xgboost",
        lambda: b"\x80\x04\x95" + bytes(8) + b"\x8c\x0fxgboost.sklearn\x94\x8c\x09XGBRanker",
        XGBOOST,
    ),
    ("gzip of the text", lambda: gzip.compress(text()), ("gzip", "unpack it first")),
    ("zlib of the text", lambda: zlib.compress(text()), ("zlib", "unpack it first")),
    ("gzip of anything", lambda: gzip.compress(b"1 qid:1 1:0.5\n" * 9), ("gzip", "unpack it first", *BOTH)),
    ("bzip2 of xgboost", lambda: bz2.compress(b'{"learner":{}}'), ("bzip2", *XGBOOST)),
    ("xz of catboost", lambda: lzma.compress(b"CBM1" + bytes(50)), ("xz", *CATBOOST)),
    ("xgboost json", lambda: b'{"learner":{"attributes":{},"feature_names":[]}}', ("JSON", *XGBOOST)),
    ("xgboost json, indented", lambda: json.dumps({"version": [3, 0, 0], "learner": {}}, indent=2).encode(), XGBOOST),
    ("xgboost ubjson", lambda: ubjson(b"learner"), ("UBJSON", *XGBOOST)),
    ("xgboost binary", binary_xgboost, ("binary", *XGBOOST)),
    ("xgboost binary, longer", lambda: b"binf" + binary_xgboost(b"binary:logistic"), ("binary", *XGBOOST)),
    ("xgboost text dump", lambda: b"booster[0]:\n0:[f29<0.5] yes=1,no=2,missing=1\n", ("text dump", *XGBOOST)),
    ("xgboost json dump", lambda: b'[\n  { "nodeid": 0, "depth": 0, "split": "f29"', ("JSON dump", *XGBOOST)),
    ("catboost", lambda: b"CBM1" + (1000).to_bytes(4, "little") + bytes(100), ("cbm", *CATBOOST)),
    ("catboost json", lambda: b'{\n"ctr_data":{},\n"features_info":{"float_features":[]}}', ("JSON", *CATBOOST)),
    ("lightgbm dump", lambda: json.dumps(ranker().booster_.dump_model()).encode(), ("dump_model", *SAVE)),
    ("other json", lambda: b'[{"a": 1}]', ("JSON", *BOTH)),
    ("gzip of onnx", lambda: gzip.compress(kept_rows("catboost")[0]), ("ONNX", "gzip", "unpack it first")),
    ("pmml", lambda: b'<?xml version="1.0"?>\n<PMML version="4.4" xmlns="x">', ("PMML", *NO_WAY)),
    ("pmml, bare", lambda: b'<PMML version="4.4">', ("PMML", *NO_WAY)),
    ("zip", zipped, ("ZIP", *BOTH)),
]


@pytest.mark.parametrize(("content", "says"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_it_is_named_with_what_works_instead(tmp_path, content, says):
    path = tmp_path / "model.bin"
    path.write_bytes(content())
    with pytest.raises(RecipeError) as caught:
        read_model(path, SCHEMA)
    said = str(caught.value)
    for word in (str(path), "LightGBM's text format", *says):
        assert word in said, said


def test_a_model_in_the_accepted_format_is_none_of_them(tmp_path):
    path = tmp_path / "model.txt"
    path.write_bytes(text())
    assert read_model(path, SCHEMA) == text().decode()
    path.write_bytes(text().replace(b"\n", b"\r\n"))
    assert read_model(path, SCHEMA) == text().decode()


@pytest.mark.parametrize("name", ["xgboost", "catboost"])
def test_an_onnx_graph_is_told_by_its_content(tmp_path, name):
    path = tmp_path / "model.txt"
    path.write_bytes(kept_rows(name)[0])
    assert read_model(path, SCHEMA) == canonical(kept_rows(name)[0], SCHEMA)
    path.write_bytes(kept_rows(name)[0][:5000])
    with pytest.raises(RecipeError, match=r"model\.txt: not an ONNX graph: truncated"):
        read_model(path, SCHEMA)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"tree\nnot really",
        b"tree\nversion=v4\nfeature_names=rank:pairwise gbtree\n",
        b"1 qid:1 1:0.5 2:0.25\n0 qid:1 1:0.5\n",
        b"price,carrier\n0.5,x\n",
        b"x^2 + y\n",
        b"c\nd\n",
        bytes(100),
    ],
)
def test_what_is_not_known_keeps_its_error(tmp_path, content):
    keeps_its_error(tmp_path / "model.txt", content)


def test_damaged_text_keeps_its_error(tmp_path):
    whole = text()
    for damaged in (whole[:20], whole[:3000], whole.replace(b"tree\n", b"bush\n", 1)):
        keeps_its_error(tmp_path / "model.txt", damaged)


def keeps_its_error(path, content):
    assert foreign_models.recognised(content) is None
    path.write_bytes(content)
    with pytest.raises(RecipeError, match="not a LightGBM text model"):
        read_model(path, SCHEMA)


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_unpickled(tmp_path, protocol):
    path, trace = tmp_path / "model.pkl", tmp_path / "trace"
    path.write_bytes(pickle.dumps(Trap(trace), protocol))
    with pytest.raises(RecipeError, match="pickle"):
        read_model(path, SCHEMA)
    assert not trace.exists()
    pickle.loads(path.read_bytes())
    assert trace.exists(), "the trap works"


def test_the_command_line_says_it(tmp_path, capsys):
    path = tmp_path / "model.json"
    path.write_text('{"learner":{}}')
    assert fit.main(["demo", "--first-stage", str(path), "--out", str(tmp_path / "x" / "1")]) == 1
    assert "looks like an XGBoost model in JSON" in " ".join(capsys.readouterr().out.split())
