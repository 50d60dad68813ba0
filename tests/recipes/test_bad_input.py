"""Odd and wrong data by every source: LETOR text, a table, the library. What ``docs/library.md`` says of each, holds."""

import json

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.errors import DataError
from listwright.training.commands import fit
from listwright.training.data.load import doubtful, load
from listwright.training.recipe import config
from listwright_lab import experiment
from support.training.odd_data import NAN, SMALL, SOURCES, Row, fit_by, recipe_of, rows, written

__all__ = ["SMALL"]  # tests/docs takes it from here

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("drop_constant", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_odd_queries_and_features_mean_something(source, drop_constant, tmp_path, capsys):
    """No relevant candidate, all labels equal, one candidate, and a feature that is constant or missing everywhere."""
    odd = [row._replace(label=0 if row.qid in ("q1", "q2", "q3") else row.label) for row in rows()]
    odd = [row._replace(label=1) if row.qid in ("q4", "q5") else row for row in odd]
    odd += [Row("lonely", 1, 1.0, 1.0), Row("lost", 0, 1.0, 1.0)]
    value = {"letor": 7.0, "table": NAN, "library": NAN}[source]  # constant, all missing
    loaded = fit_by(source, [row._replace(second=value) for row in odd], tmp_path, capsys, drop_constant)
    assert not isinstance(loaded, str), loaded
    by_name = {(metric.ranker, metric.name): metric for metric in loaded.manifest.metrics}
    assert by_name["first_stage", "ndcg@10"].n == 7, "32 queries, a fifth of them; the empty ones count"
    second, report = {"letor": "f2"}.get(source, "second"), json.loads((loaded.path / "report.json").read_text())
    said = [note for note in report["notes"] if "one value, or none, in all" in note]
    if drop_constant:
        assert len(loaded.manifest.feature_schema) == 1
        assert report["dropped"] == [[1, second]]
        assert [note.split()[0] for note in said] == [f"'{second}'"]
        return
    assert (report["dropped"], said) == ([], [])
    feature = loaded.manifest.feature_schema.features[1]
    assert feature.quantiles == (None if value is NAN else (7.0,) * 7)
    assert feature.missing_in_training == (value is NAN)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("label", "found"), [(-1, "-1"), (0.5, "0.5"), (31, "31")])
def test_a_label_that_is_none_is_named_with_its_place(source, label, found, tmp_path, capsys):
    data = rows()
    data[6] = data[6]._replace(label=label)
    place = {"letor": "line 7, column 1", "table": "line 8, column label", "library": "y, row 6"}[source]
    # a whole column of labels is one type: 0.5 makes them all fractions, 31 leaves them whole
    said = fit_by(source, data, tmp_path, capsys)
    assert f"{place}: expected a relevance label, a whole number from 0 to 30; found" in said
    assert said.rstrip("'").endswith(found)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("label", [0, 1])
def test_labels_that_are_all_equal_teach_nothing(source, label, tmp_path, capsys):
    said = fit_by(source, [row._replace(label=label) for row in rows()], tmp_path, capsys)
    assert (
        f"no training query has two candidates with different labels (18 queries, labels found: {label}): there is "
        "nothing to learn an order from; judge more queries, or split them otherwise (seed, fold, files)"
    ) in said


@pytest.mark.parametrize("source", SOURCES)
def test_lists_of_one_candidate_teach_nothing(source, tmp_path, capsys):
    said = fit_by(source, [row._replace(label=n % 2) for n, row in enumerate(rows(length=1))], tmp_path, capsys)
    assert "no training query has two candidates with different labels (18 queries, labels found: 0, 1)" in said


@pytest.mark.parametrize("numeric", [True, False])
def test_what_gives_no_anomaly_score_is_ranked_all_the_same(numeric, tmp_path, capsys):
    """Means as far apart as float32 allows leave the trees no finite threshold; categories have no mean at all."""
    largest = float(np.finfo(np.float32).max)
    values = (largest, -largest) if numeric else ("red", "blue")
    data = [row._replace(first=values[int(row.qid[1:]) % 2], second="a") for row in rows()]
    path, columns = written("table", data, tmp_path)
    out = tmp_path / "odd" / "1"
    assert fit.main([str(recipe_of("table", tmp_path)), "--data", str(path), *columns, "--out", str(out)]) == 0
    assert bundle.load(out).manifest.anomaly is None
    said = " ".join(capsys.readouterr().out.split())
    assert ("no anomaly score" in said) == numeric


def three_files(folder, **labels):
    """Training, validation and test queries, with one label for all candidates of a split where one is given."""
    parts = {"train": slice(0, 18), "valid": slice(18, 24), "test": slice(24, 30)}
    sources = []
    for name, queries in parts.items():
        kept = {f"q{q}" for q in range(30)[queries]}
        data = [row._replace(label=labels.get(name, row.label)) for row in rows() if row.qid in kept]
        path = folder / f"{name}.txt"
        path.write_text(written("letor", data, folder)[0].read_text())
        sources.append(f"{name}={path}")
    return sources


@pytest.mark.parametrize(("split", "called"), [("train", "training"), ("valid", "validation")])
def test_a_split_to_learn_from_without_a_relevant_candidate_is_an_error(split, called, tmp_path):
    with pytest.raises(DataError, match=f"no {called} query has two candidates with different labels"):
        load(config.load("letor"), three_files(tmp_path, **{split: 0}))


@pytest.mark.parametrize("label", [0, 1])
def test_a_test_split_without_an_order_is_fitted_and_said_to_measure_nothing(label, tmp_path, capsys):
    splits = load(config.load("letor"), three_files(tmp_path, test=label))
    (doubt,) = doubtful(splits)
    assert doubt.startswith("no test query (6 queries) has two candidates with different labels")
    assert doubtful(load(config.load("letor"), three_files(tmp_path))) == []
    compare = ["table2", "--recipe", "letor", "--seeds", "1", "--data", *three_files(tmp_path, test=label)]
    assert experiment.main([*compare, "--out", str(tmp_path / "none")]) == 1
    assert "different labels: rankers cannot be compared on it" in " ".join(capsys.readouterr().out.split())
    out = tmp_path / "odd" / "1"
    recipe = str(recipe_of("letor", tmp_path))
    assert (
        fit.main([recipe, "--model", "first_stage", "--data", *three_files(tmp_path, test=label), "--out", str(out)])
        == 0
    )
    assert doubt in " ".join(capsys.readouterr().out.split())
    by_name = {(metric.ranker, metric.name): metric.mean for metric in bundle.load(out).manifest.metrics}
    assert by_name["first_stage", "ndcg@10"] == label, "0 by convention; 1 where every order is perfect"
