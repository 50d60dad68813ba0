"""Constant columns from every source: the bundle is that of the same data without them, and callers may go on."""

import json
import pickle

import numpy as np
import polars as pl
import pytest

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import SchemaMismatchError
from listwright.training.commands import fit
from listwright.training.pipeline import run, steps
from listwright.training.recipe import config
from listwright.training.recipe.model import FirstStageAlone
from listwright_lab import experiment
from listwright_lab.suites.listwise.measurement import MethodFit, measure
from listwright_lab.suites.results_folder import UnitFolders
from support.lists import lists
from support.training.tiny import SPECIALISED, TINY

pytestmark = pytest.mark.nightly

NAMES = ("--qid", "search", "--label", "clicked")
SMALL = {"encoder_width": 4, "hidden": (4,), "max_epochs": 1, "trials": 1, "max_trees": 5, "folds": 2}


@pytest.fixture(scope="module")
def frame():
    """Between two features one constant number, one constant text, and one number that is always missing."""
    _, query, _, labels, rng = lists(queries=60)
    rows = len(query)
    return pl.DataFrame(
        {
            "search": query,
            "clicked": labels,
            "price": (rng.normal(size=rows) + labels).round(3),
            "fee": np.full(rows, 5),
            "shop": ["x"] * rows,
            "carrier": rng.choice(["a", "b"], rows),
            "later": pl.Series([None] * rows, dtype=pl.Float64),
        }
    )


def recipe_of(folder, text=TINY):
    path = folder / "tiny.toml"
    head, rest = text.split("[data]")[0], text.split("[first_stage]")[1]
    path.write_text(f'{head}[data]\nkind = "table"\n[first_stage]{rest}')
    return str(path)


@pytest.fixture
def table(frame, tmp_path):
    frame.write_parquet(tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def fitted(out, *arguments):
    code = fit.main([*map(str, arguments), "--out", str(out)])
    return bundle.load(out) if code == 0 else code


def test_the_bundle_is_that_of_the_data_without_them(table, tmp_path, capsys):
    start = (recipe_of(tmp_path), "--data", table, *NAMES)
    ours = fitted(tmp_path / "shop" / "1", *start)
    printed = " ".join(capsys.readouterr().out.split())
    note = "'fee', 'shop', 'later' have one value, or none, in all "
    assert 0 < printed.index("1 numeric features (price), 1 categorical") < printed.index(note)
    assert printed.index(note) < printed.index("Tuning LightGBM")
    theirs = fitted(tmp_path / "shop" / "2", *start, "--ignore", "fee,shop,later")
    assert note not in " ".join(capsys.readouterr().out.split())
    assert ours.manifest.feature_schema == theirs.manifest.feature_schema
    assert ours.manifest.metrics == theirs.manifest.metrics
    for name in ("first_stage.txt", "qilcm.onnx", "golden.jsonl"):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes()
    report = json.loads((ours.path / "report.json").read_text())
    assert report["dropped"] == [[1, "fee"], [2, "shop"], [4, "later"]]
    (said,) = report["notes"]
    assert said.startswith(note)
    assert "&#39;fee&#39;, &#39;shop&#39;, &#39;later&#39; have one value" in (ours.path / "report.html").read_text()


def test_an_interrupted_run_goes_on_without_them(table, tmp_path, monkeypatch):
    def stop(*_args, **_more):
        raise KeyboardInterrupt

    start = (recipe_of(tmp_path), "--data", table, *NAMES, "--model", "first_stage")
    out = tmp_path / "shop" / "1"
    with monkeypatch.context() as patch:
        patch.setattr(run, "write_bundle", stop)
        assert fitted(out, *start) == 130
    assert fitted(out, *start, "--resume").manifest.feature_schema.names == ("price", "carrier")


def test_scores_in_a_constant_column_stay(table, tmp_path):
    loaded = fitted(
        tmp_path / "shop" / "1", recipe_of(tmp_path), "--data", table, *NAMES, "--first-stage-column", "fee"
    )
    assert loaded.manifest.feature_schema.names == ("price", "fee", "carrier")
    assert loaded.manifest.first_stage.feature == "fee"


def test_a_suite_tells_data_by_all_their_columns(table, tmp_path):
    """The paper's sets are recognised by their number of features."""
    changes = {"data": config.load("table").data.model_copy(update={"qid": "search", "label": "clicked"})}
    recipe = config.changed(config.load(recipe_of(tmp_path)), changes)
    asked = MethodFit(recipe, (table,), seed=0, method="lambdamart", spec=FirstStageAlone(), cutoff=6)
    found = measure(asked, UnitFolders(tmp_path, tmp_path, tmp_path))
    assert set(found["features"]) == {5}
    assert len(steps.load(recipe, [table]).train.schema) == 2


def test_routing_is_measured_on_what_the_bundle_takes(table, tmp_path):
    out = tmp_path / "routing"
    command = ["routing", "--recipe", recipe_of(tmp_path, SPECIALISED), "--data", table, *NAMES, "--folds", "1"]
    assert experiment.main([*command, "--out", str(out)]) == 0
    assert "have one value, or none, in all" in (out / "page.html").read_text()


@pytest.fixture(scope="module")
def model(frame):
    return training.Qilcm(**SMALL).fit(frame.drop("search", "clicked"), frame["clicked"], frame["search"])


def test_the_library_takes_frames_with_and_without_them(frame, model, tmp_path):
    columns, search = frame.drop("search", "clicked"), frame["search"]
    again = training.Qilcm.load(model.save(tmp_path / "shop" / "1"))
    scores = model.predict(columns, search)
    (note,) = model.report_["notes"]
    assert note.endswith("drop_constant=False keeps them")
    for one in (model, again, pickle.loads(pickle.dumps(model))):
        assert one.manifest_.feature_schema.names == ("price", "carrier")
        assert one.feature_names_in_.tolist() == ["price", "fee", "shop", "carrier", "later"]
        assert one.n_features_in_ == 5
        others = columns.with_columns(fee=pl.lit("anything"), shop=pl.lit(1.5), later=pl.Series(range(len(search))))
        for given in (columns, others, columns.select("carrier", "price"), columns.drop("shop")):
            assert one.predict(given, search).tolist() == scores.tolist()
        with pytest.raises(SchemaMismatchError, match="X lacks price and has also prise"):
            one.predict(columns.rename({"price": "prise"}), search)
    assert again.get_params() == model.get_params()


def test_an_array_has_all_columns_where_they_stood(frame, model):
    columns, search = frame.drop("search", "clicked"), frame["search"]
    as_array = training.Qilcm(**SMALL).fit(columns.to_numpy(), frame["clicked"], search)
    assert as_array.manifest_.feature_schema.names == ("f1", "f4")
    scores = model.predict(columns, search)
    for one in (model, as_array):
        assert one.predict(columns.to_numpy(), search).tolist() == scores.tolist()
        with pytest.raises(SchemaMismatchError, match="X has 2 columns, 5 were fitted: give all of them"):
            one.predict(columns.select("price", "carrier").to_numpy(), search)
