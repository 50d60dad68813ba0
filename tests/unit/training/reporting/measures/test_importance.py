"""The importance of features: on rankers that use known columns, and on a LightGBM with list-relative columns."""

import dataclasses
import json
from xml.etree import ElementTree

import lightgbm
import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.metrics import ndcg
from listwright.ranking.relative import RelativeColumn, RelativeColumns
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import LightGbmStage
from listwright.training.data.dataset import Dataset
from listwright.training.reporting import fit_page
from listwright.training.reporting.measures import explained as measure
from listwright.training.reporting.sentences import importance_sentence
from support.service.computed_by_hand import SCHEMA, Column, reranker

LENGTH, QUERIES = 6, 40


def a_split(columns, labels, schema=SCHEMA):
    offsets = np.arange(QUERIES + 1, dtype=np.int64) * LENGTH
    names = tuple(f"q{n}" for n in range(QUERIES))
    return Dataset(np.asarray(columns, np.float32), np.asarray(labels, np.int32), offsets, names, schema)


@pytest.fixture
def by_stars():
    """Lists whose labels are the stars."""
    rng = np.random.default_rng(1)
    stars = np.concatenate([rng.permutation(LENGTH) for _ in range(QUERIES)])
    return a_split(np.column_stack([rng.normal(size=len(stars)), stars]), stars)


def rows(served, test, model=None):
    facts = measure.measure_importance(served, model, test)["importance"]
    return {name: (share, relative, loss, low, high) for name, share, relative, loss, low, high in facts["rows"]}


def test_only_the_column_that_ranks_loses_and_by_as_much_as_its_shuffled_order(by_stars):
    test = by_stars
    found = rows(reranker(Column(0), Column(1), first_stage_score=False), test)
    assert list(found) == ["stars", "price"]
    assert found["price"] == (None, {}, 0.0, 0.0, 0.0)
    rng = np.random.default_rng(0)
    shuffled = [
        ndcg(labels[rng.permutation(LENGTH)].astype(float), labels, cutoff=10)
        for labels in test.labels.reshape(-1, LENGTH)
    ]
    _, _, loss, low, high = found["stars"]
    assert loss == pytest.approx(1.0 - np.mean(shuffled), abs=1e-6)
    assert 0.0 < low < loss < high


def test_the_default_ranker_is_measured(by_stars):
    served = reranker(Column(1), Column(0), first_stage_score=False, strategy="first_stage")
    assert rows(served, by_stars)["stars"][2] > 0.1


class StarsWhereDear:
    """Ranks by stars, downwards in lists whose first price is high."""

    engine = "column"

    def score(self, features):
        return features[:, 1].astype(np.float64) * (1.0 if features[0, 0] > 0 else -1.0)


@pytest.mark.parametrize("odd", [0, 1, QUERIES // 2 - 1])
def test_a_column_that_most_lists_do_not_vary_in_is_shuffled_among_lists(odd):
    """A number of lists have one cell of another value: the loss is as if they had none."""
    rng = np.random.default_rng(2)
    sign = np.repeat(rng.choice([-1.0, 1.0], QUERIES), LENGTH)
    stars = np.concatenate([rng.permutation(LENGTH) for _ in range(QUERIES)])
    test = a_split(np.column_stack([sign, stars]), np.where(sign > 0, stars, LENGTH - 1 - stars))
    served = reranker(Column(0), StarsWhereDear(), first_stage_score=False)
    loss = rows(served, test)["price"][2]
    assert loss > 0.1
    test.features[LENGTH - 1 : odd * LENGTH : LENGTH, 0] *= 2.0  # the last of a list, by which nothing is ranked
    assert rows(served, test)["price"][2] == loss


def test_lists_of_one_candidate_do_not_count(by_stars):
    """Two thirds of the lists: the column varies in all others, and is shuffled within them."""
    lists, alone = QUERIES // 3, QUERIES - QUERIES // 3
    offsets = np.append(LENGTH * np.arange(lists), LENGTH * lists + np.arange(alone + 1)).astype(np.int64)
    kept = slice(int(offsets[-1]))
    test = dataclasses.replace(
        by_stars, features=by_stars.features[kept], labels=by_stars.labels[kept], offsets=offsets
    )
    rng = np.random.default_rng(0)
    ordered = [
        ndcg(labels[rng.permutation(len(labels))].astype(float), labels, cutoff=10) for labels in test.label_lists()
    ]
    whole = [float(labels.max() > 0) for labels in test.label_lists()]
    loss = rows(reranker(Column(0), Column(1), first_stage_score=False), test)["stars"][2]
    assert loss == pytest.approx(np.mean(whole) - np.mean(np.nan_to_num(ordered)), abs=1e-6)


def relative_ranker(test):
    """A LightGBM that sees two features and the z-score of the second."""
    columns = (RelativeColumn(feature="stars", kind="z", scale=1.0),)
    relative = RelativeColumns(columns, SCHEMA)
    wide = np.concatenate([relative.widened(features) for features, _ in test.lists()])
    data = lightgbm.Dataset(wide, label=test.labels, group=test.lengths)
    booster = lightgbm.train({"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}, data, 5)
    hand = reranker(Column(0), Column(1), strategy="first_stage")
    manifest = hand.manifest.model_copy(
        update={"relative": columns, "first_stage": LightGbmStage(relative=True), "second_stages": ()}
    )

    class Trees:
        engine = "lightgbm"
        calls = 0

        def score(self, features):
            self.calls += 1
            return booster.predict(features, raw_score=True)

    return Reranker(manifest, Trees(), {}, relative=relative), booster


def test_list_relative_columns_stand_beside_their_feature(by_stars):
    rng = np.random.default_rng(3)
    moved = by_stars.features + np.repeat(rng.normal(size=(QUERIES, 1)) * 3, LENGTH, axis=0).astype(np.float32)
    test = dataclasses.replace(by_stars, features=moved)
    served, booster = relative_ranker(test)
    gains = booster.feature_importance("gain")
    found = rows(served, test, booster.model_to_string())
    (share, relative, loss, *_) = found["stars"]
    assert share == pytest.approx(gains[1] / gains.sum(), abs=1e-6)
    assert relative == {"z": pytest.approx(gains[2] / gains.sum(), abs=1e-6)}
    assert relative["z"] > 0.5
    assert loss > 0.1


def test_of_many_features_only_those_with_most_split_gain_are_shuffled(by_stars, monkeypatch):
    monkeypatch.setattr(measure, "MOST_FEATURES", 1)
    order = np.random.default_rng(4).permutation(len(by_stars.labels))
    test = dataclasses.replace(by_stars, labels=np.where(order % 3 == 0, 0, by_stars.labels).astype(np.int32))
    served, booster = relative_ranker(test)
    assert (booster.feature_importance("gain")[:2] > 0).all()
    assert list(rows(served, test, booster.model_to_string())) == ["stars"]
    assert served.first_stage.calls == 2 * QUERIES


def test_too_many_features_without_split_gain_are_not_shuffled(by_stars, monkeypatch):
    monkeypatch.setattr(measure, "MOST_WITHOUT_GAIN", 1)
    facts = measure.measure_importance(reranker(Column(0), Column(1)), None, by_stars)
    assert facts["importance"]["rows"] == []
    assert fit_page.importance_section({"details": facts}) == []


def test_the_work_is_bounded_by_the_number_of_candidates(by_stars, monkeypatch):
    monkeypatch.setattr(measure, "CANDIDATES_SHUFFLED", 0)
    assert measure.measure_importance(reranker(Column(0), Column(1)), None, by_stars)["importance"]["queries"] == 20


def test_a_model_by_names_in_another_order_is_matched_by_name(by_stars):
    columns = by_stars.features[:, ::-1]
    data = lightgbm.Dataset(columns, label=by_stars.labels, group=by_stars.lengths, feature_name=["stars", "price"])
    model = lightgbm.train({"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}, data, 3)
    found = rows(reranker(Column(0), Column(1)), by_stars, model.model_to_string())
    assert found["stars"][0] > 0.5


def test_queries_count_by_their_weights(by_stars):
    served = reranker(Column(0), Column(1), first_stage_score=False)
    alone = np.repeat([1.0, *[0.0] * (QUERIES - 1)], LENGTH)
    weighted = dataclasses.replace(by_stars, weights=alone)
    rng = np.random.default_rng(0)
    labels = by_stars.labels[:LENGTH]
    expected = 1.0 - ndcg(labels[rng.permutation(LENGTH)].astype(float), labels, cutoff=10)
    assert rows(served, weighted)["stars"][2] == pytest.approx(expected, abs=1e-6)


def test_values_are_plain_and_the_same_again(by_stars):
    served = reranker(Column(0), Column(1))
    facts = measure.measure_importance(served, None, by_stars)
    assert json.loads(json.dumps(facts)) == facts == measure.measure_importance(served, None, by_stars)


def test_the_page_has_a_row_for_each(by_stars):
    served, booster = relative_ranker(by_stars)
    facts = measure.measure_importance(served, booster.model_to_string(), by_stars)
    (section,) = fit_page.importance_section({"details": facts})
    (table,), (figure,) = section.tables, section.figures
    assert [row[0] for row in table.rows] == [row[0] for row in facts["importance"]["rows"]]
    assert all(len(row) == len(table.head) for row in table.rows)
    assert "stars" in figure.svg


def test_a_long_name_is_cut_beside_the_figure():
    schema = FeatureSchema(features=(Feature(name="n" * 60),))
    drawn = fit_page.figures.importance([[schema.names[0], None, {}, 0.1, 0.0, 0.2]])
    assert "n" * 23 in drawn
    assert "n" * 25 not in drawn


@pytest.mark.parametrize("name", ["$\\foo$", "$a$", "价格", "<b>&", "a\nb", "\x1b[31m", "\x00", "סכום"])
def test_any_name_of_a_feature_can_be_drawn(name):
    drawn = fit_page.figures.importance([[name, None, {}, 0.1, 0.05, 0.2]])
    root = ElementTree.fromstring(drawn.replace("xlink:href", "href"))
    letters = "".join(letter if letter.isprintable() else "·" for letter in name)
    assert letters in [text.strip() for text in root.itertext()]


def test_the_title_names_the_largest_loss_that_is_shown():
    wide, narrow = ["wide", None, {}, 0.2, -0.1, 0.5], ["narrow", None, {}, 0.1, 0.05, 0.15]
    assert "narrow" in importance_sentence({"rows": [wide, narrow]})
    assert "wide" not in importance_sentence({"rows": [wide]})


def test_the_list_relative_columns_with_most_gain_are_listed():
    shares = {"z": 0.01, "rank": 0.0, "rank within kind": 0.2, "above lowest within kind": 0.4, "rank within b": 0.1}
    rows = [["price", 0.1, shares, 0.05, 0.04, 0.06]]
    facts = {"columns": [], "rows": rows, "queries": 20, "features": 1}
    (section,) = fit_page.importance_section({"details": {"importance": facts}})
    _, _, gain = section.tables[0].rows[0]
    listed = ["above lowest within kind 40.0 %", "rank within kind 20.0 %", "rank within b 10.0 %"]
    assert gain.split("\n") == ["10.0 %", *listed, "and 2 more"]
