"""Inverse propensities as weights: by hand, unbiased under the click model, and on their way into a fit."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.commands import fit
from listwright.training.data.load import load
from listwright.training.data.tables.table import inverse_propensities, read
from listwright.training.losses import softmax_cross_entropy
from listwright.training.recipe.data import Propensity
from listwright.training.recipe.options import recipe_from
from listwright_lab import experiment
from listwright_lab.synthetic_traffic import clicked, examination
from support.training.own_table import SPEC

P = Propensity(values=(1.0, 0.5, 0.25), clip=0.3)


def test_by_hand():
    labels = np.array([0, 1, 0, 2, 1, 0, 0, 1])
    places = np.array([1, 2, 3, 1, 2, 3, 1, 9])
    found = inverse_propensities(labels, places, np.array([0, 3, 6, 7, 8]), P)
    clip = 1 / 0.3
    assert found == pytest.approx([2.0, 2.0, 2.0, 1.0, 2.0, 1.5, 1.0, clip])


def test_a_listwise_loss_of_clicks_is_on_average_that_of_full_information():
    """Lists of one relevant candidate, shown anywhere: the weighted mean is the loss without position bias."""
    rng = np.random.default_rng(0)
    queries, length = 40_000, 3
    scores = rng.normal(size=(queries, length))
    relevant = np.eye(length, dtype=int)[rng.choice(length, queries, p=[0.6, 0.3, 0.1])]
    looks = examination(length, 1.0)
    clicks = clicked(relevant.astype(float), np.broadcast_to(looks, relevant.shape), rng).astype(int)
    places, offsets = np.tile(np.arange(1, 4), queries), np.arange(0, 3 * queries + 1, 3)
    weights = inverse_propensities(clicks.ravel(), places, offsets, Propensity(values=tuple(looks), clip=0.01))

    def loss(labels, weights=None):
        given = None if weights is None else torch.tensor(weights.reshape(queries, length))
        return softmax_cross_entropy(torch.tensor(scores), torch.tensor(labels), weights=given).item()

    assert loss(clicks, weights) == pytest.approx(loss(relevant), rel=0.02)
    assert loss(clicks) < 0.9 * loss(relevant)


def write_rows(path, **columns):
    rng = np.random.default_rng(0)
    queries, length = 60, 4
    rows = {
        "query_id": np.repeat(np.arange(queries), length),
        "position": np.tile(np.arange(1, length + 1), queries),
        "label": (rng.random(queries * length) < 0.4).astype(int),
        "x": rng.normal(size=queries * length),
    }
    pl.DataFrame(rows | columns).write_parquet(path / "rows.parquet")
    return path / "rows.parquet"


def stored(path, values=(1.0, 0.5, 0.25), **more):
    rows = [{"position": k, "propensity": p} for k, p in enumerate(values, start=1)]
    (path / "p.json").write_text(json.dumps({"format": 1, "positions": rows} | more))
    return path / "p.json"


def asked(path, *more):
    columns = ["--qid", "query_id", "--label", "label"]
    return fit._parser().parse_args(["--data", str(path / "rows.parquet"), *columns, *map(str, more)])


@pytest.mark.parametrize("shards", ["never", "always"])
def test_a_fit_reads_them_and_the_place_is_no_feature(tmp_path, shards):
    source = write_rows(tmp_path)
    recipe = recipe_from(asked(tmp_path, "--propensities", stored(tmp_path), "--clip", "0.3"))
    assert recipe.data.propensity == P
    train = load(recipe, [str(source)], shards=shards).train
    assert train.schema.names == ("x",)
    clicked_last = (train.labels > 0) & (np.arange(train.rows) - np.repeat(train.offsets[:-1], train.lengths) == 3)
    assert clicked_last.any()
    assert train.weights[clicked_last] == pytest.approx(1 / 0.3)


def test_a_weight_of_the_row_multiplies(tmp_path):
    source = write_rows(tmp_path, w=np.full(240, 3.0))
    option = ["--propensities", stored(tmp_path)]
    plain = load(recipe_from(asked(tmp_path, *option, "--ignore", "w")), [str(source)]).train
    weighed = load(recipe_from(asked(tmp_path, *option, "--weight", "w")), [str(source)]).train
    assert weighed.weights == pytest.approx(3.0 * plain.weights)


def test_rows_of_a_query_that_stand_apart_have_the_same_weights(tmp_path):
    source = write_rows(tmp_path)
    spec = recipe_from(asked(tmp_path, "--propensities", stored(tmp_path))).data
    together = read(spec, str(source)).dataset
    pl.read_parquet(source).sort("position", maintain_order=True).write_parquet(tmp_path / "apart.parquet")
    apart = read(spec, str(tmp_path / "apart.parquet")).dataset
    assert apart.qids == together.qids
    assert apart.weights.tolist() == together.weights.tolist()
    assert len(set(together.weights)) > 3


@pytest.mark.parametrize("bad", [0, 1.5, None, -1])
def test_a_place_that_is_none_is_named(tmp_path, bad):
    places = pl.Series("position", [1.0, 2.0, bad, 4.0] * 60, dtype=pl.Float64)
    source = write_rows(tmp_path, position=places)
    with pytest.raises(DataError, match="line 3, column position: expected the shown place"):
        load(recipe_from(asked(tmp_path, "--propensities", stored(tmp_path))), [str(source)])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "no JSON"),
        ("{}", "positions: Field required"),
        ('{"positions": []}', "positions"),
        ('{"positions": [{"position": 2, "propensity": 1}]}', "expected positions 1 to 1"),
        ('{"positions": [{"position": 1, "propensity": 0}]}', r"positions.0.propensity"),
        ('{"format": 2, "positions": [{"position": 1, "propensity": 1}]}', "format"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, content, complaint):
    write_rows(tmp_path)
    if content is not None:
        (tmp_path / "p.json").write_text(content)
    with pytest.raises(RecipeError, match=complaint):
        recipe_from(asked(tmp_path, "--propensities", tmp_path / "p.json"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--clip", "0.2"], "--clip 0.2"),
        (["--position", "place"], "--position place"),
        (["--propensities", "FILE", "--clip", "0"], "--clip 0"),
    ],
)
def test_options_without_sense_are_refused(tmp_path, options, complaint):
    write_rows(tmp_path)
    file = str(stored(tmp_path))
    with pytest.raises(RecipeError, match=complaint):
        recipe_from(asked(tmp_path, *[file if word == "FILE" else word for word in options]))


def test_a_column_that_is_missing_is_named(tmp_path):
    source = write_rows(tmp_path)
    recipe = recipe_from(asked(tmp_path, "--propensities", stored(tmp_path), "--position", "postion"))
    with pytest.raises(RecipeError, match=r"--position: no column 'postion'.*did you mean 'position'"):
        load(recipe, [str(source)])


def test_the_suites_refuse_them(tmp_path, capsys):
    source = write_rows(tmp_path)
    words = ["table2", "--recipe", "table", "--data", str(source), "--qid", "query_id", "--label", "label"]
    assert experiment.main([*words, "--propensities", str(stored(tmp_path)), "--out", str(tmp_path / "o")]) == 1
    assert "leave out --propensities" in " ".join(capsys.readouterr().out.split())


def test_a_weight_stays_with_its_row_where_queries_are_interleaved(table):
    found = table("q,y,a,w\nA,1,1,1\nB,0,2,2\nA,0,3,3\nB,1,4,4\n", SPEC.model_copy(update={"weight": "w"}))
    assert found.features[:, 0].tolist() == [1.0, 3.0, 2.0, 4.0]
    assert found.weights.tolist() == [1.0, 3.0, 2.0, 4.0]
