"""Monotone constraints: what they bind, what LightGBM makes of them, and how often a ranker breaks them."""

import dataclasses

import numpy as np
import pytest

from listwright import training
from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.errors import RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.order import rank_by_score
from listwright.ranking.reranker import Reranker
from listwright.training.commands import fit
from listwright.training.data.dataset import Dataset, Splits, fit_schema
from listwright.training.first_stage import boosting, lambdamart, relative
from listwright.training.pipeline.study import _table
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.options import recipe_from
from listwright.training.reporting.measures.scores import violations
from support.training.planted import SPEC

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="carrier", kind="categorical", categories=("x",)),
        Feature(name="stars"),
    )
)


def test_a_column_made_from_a_bound_feature_is_bound_as_it_is():
    columns = [*SCHEMA.names, "price (z in list)", "stars (z in list)"]
    derived = {"price (z in list)": "price", "stars (z in list)": "stars"}
    assert boosting._monotone_constraints([("price", -1)], columns, derived) == [-1, 0, 0, -1, 0]
    assert boosting._monotone_constraints([("stars", 1), ("price", 0)], columns[:3]) == [0, 0, 1]
    assert boosting._monotone_constraints([("gone", 1)], columns[:3]) == [0, 0, 0]


def test_columns_within_a_category_are_bound_as_their_number_is():
    names = ["price", "carrier", "price (rank within carrier)", "carrier (count in list)", "price (z in list)"]
    kinds = {"carrier": {"kind": "categorical", "categories": ("x",)}}
    schema = FeatureSchema(features=tuple(Feature(name=name, **kinds.get(name, {})) for name in names))
    train = Dataset(np.zeros((2, 5), np.float32), np.array([0, 1]), np.array([0, 2]), ("1",), schema)
    assert boosting.bounds_of(train, [("price", -1)])["monotone_constraints"] == [-1, 0, -1, 0, -1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pric", "pric = 1: no feature 'pric'; did you mean 'price'.* price, carrier, stars"),
        ("carrier", "carrier = 1: 'carrier' is a category"),
    ],
)
def test_what_cannot_be_bound_is_named(name, says):
    with pytest.raises(RecipeError, match=says):
        boosting.check_monotone([(name, 1)], SCHEMA)


@pytest.mark.parametrize("value", [2, -1.0, True, "up"])
def test_a_direction_is_1_or_minus_1_or_0(value):
    values = {"name": "x", "data": {"kind": "synthetic"}, "first_stage": {"kind": "lambdamart"}}
    values["first_stage"]["monotone"] = {"price": value}
    with pytest.raises(RecipeError, match=f"price = {value!r}: expected 1 "):
        config.of(values, "x")


@pytest.mark.parametrize("given", [{"kind": "model", "path": "a"}, {"kind": "column", "column": "a"}])
def test_a_given_first_stage_is_bound_by_nothing(given):
    with pytest.raises(RecipeError, match=r"was fitted elsewhere.* leave out monotone"):
        config.of({"name": "x", "data": {"kind": "synthetic"}, "first_stage": given | {"monotone": {"a": 1}}}, "x")


def asked(*arguments):
    return recipe_from(fit._parser().parse_args(list(arguments)))


def test_the_command_line_binds_and_comes_before_the_recipe(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('[data]\nkind = "synthetic"\n[first_stage]\nkind = "lambdamart"\nmonotone = { n1 = 1, n2 = -1 }\n')
    recipe = asked(str(own), "--monotone", "n1=-1", "--monotone", "n3=0")
    assert dict(recipe.first_stage.monotone) == {"n1": -1, "n2": -1, "n3": 0}
    assert dict(asked(str(own)).first_stage.monotone) == {"n1": 1, "n2": -1}
    for arguments, says in (
        ((str(own), "--first-stage-column", "n1"), "n1 was fitted elsewhere"),
        (("demo", "--first-stage-column", "n1", "--monotone", "n1=1"), "was fitted elsewhere.* leave out --monotone"),
        (("demo", "--monotone", "n1"), "--monotone n1: expected NAME=1, -1 or 0"),
        (("demo", "--monotone", "n1=up"), "n1 = 'up': expected 1 "),
    ):
        with pytest.raises(RecipeError, match=says):
            asked(*arguments)


def test_the_estimator_binds_as_a_recipe_does():
    recipe = training.Qilcm(monotone={"price": np.int64(-1)})._recipe()
    assert dict(recipe.first_stage.monotone) == {"price": -1}


def test_a_study_writes_constraints_that_a_recipe_reads(tmp_path):
    own = tmp_path / "own.toml"
    dumped = LambdaMart(monotone={"a b": -1, "c": 1}).model_dump(exclude_defaults=True)
    own.write_text("\n".join(['[data]\nkind = "synthetic"', *_table("first_stage", {"kind": "lambdamart", **dumped})]))
    assert dict(config.load(str(own)).first_stage.monotone) == {"a b": -1, "c": 1}


def rises(scores_at):
    """How often a larger utility scores better, over rows whose utility alone grows step by step."""
    return (np.diff(scores_at, axis=0) > 0).mean()


@pytest.mark.parametrize("select_on", ["valid", "folds"])
def test_trees_are_bound_against_what_the_labels_say(planted_data, select_on):
    """The labels rise with the utility; bound to fall, no score may rise with it, and the ranking gets worse."""
    train, valid = planted_data

    def grown(spec):
        model = lambdamart.tune(train, valid, spec, seed=3).model
        few = valid.select(range(6))
        rows = np.repeat(few.features[None], 9, axis=0)
        rows[:, :, 0] = np.linspace(-2, 2, 9)[:, None]
        return np.array([lambdamart.scores_of(model, dataclasses.replace(few, features=part)) for part in rows])

    spec = SPEC.model_copy(update={"select_on": select_on})
    assert rises(grown(spec)) > 0.5
    assert rises(grown(spec.model_copy(update={"monotone": (("utility", -1),)}))) == 0.0


def test_out_of_fold_scores_are_bound_as_the_model_is(planted_data):
    train, valid = planted_data
    tuned = lambdamart.tune(train, valid, SPEC, seed=3)
    for directions, least, most in (((), 0.3, 1.0), ((("utility", -1),), -1.0, 0.1)):
        scores = lambdamart.out_of_fold_scores(train, tuned, folds=3, seed=0, monotone=directions)
        assert least < np.corrcoef(scores, train.features[:, 0])[0, 1] < most


def test_list_relative_columns_are_bound_as_their_feature_is(planted_data):
    """A candidate that is moved up in its list scores no better, in the whole forest of widened columns."""
    splits = Splits(*(planted_data[0], planted_data[1], planted_data[1]), "by hand").with_schema(
        fit_schema(planted_data[0])
    )
    columns = relative.candidates(splits.train.schema, ("z", "rank"))
    seen = relative.widened(splits, columns)

    def wrong(directions):
        spec = SPEC.model_copy(update={"monotone": directions})
        model = lambdamart.tune(seen.train, seen.valid, spec, seed=3).model
        moved = splits.valid.features.copy()
        moved[::8, 0] += 1.0  # the first candidate of each list
        higher = relative.widened_part(dataclasses.replace(splits.valid, features=moved), columns)
        before, after = (lambdamart.scores_of(model, part)[::8] for part in (seen.valid, higher))
        return int((after > before).sum())

    assert wrong(()) > 10
    assert wrong((("utility", -1),)) == 0


class ByHand(Reranker):
    """A bundle whose first stage falls with the price, and whose second stage rises with it where stars are many."""

    def __init__(self):
        self.manifest = type("M", (), {"second_stages": (type("S", (), {"kind": "qilcm"}),)})

    def rerank(self, candidates, *, strategy):
        price, stars = candidates.features[:, 0].astype(np.float64), candidates.features[:, 2]
        scores = -price if strategy == "first_stage" else np.where(stars > 0, price, -price)
        return Ranking(rank_by_score(scores), scores, scores, -price, "second_stage", Route(strategy, "caller"))


def splits_of(prices, stars):
    rows = np.column_stack([prices, np.zeros(len(prices)), stars]).astype(np.float32)
    data = Dataset(rows, np.zeros(len(rows), np.int32), np.arange(0, len(rows) + 1, 2), ("a", "b", "c"), SCHEMA)
    return Splits(data, data, data, "by hand")


def test_violations_are_counted_per_ranker():
    """Of six candidates one has no price, and one the highest: four move, two of them have stars."""
    splits = splits_of([1, 2, 3, np.nan, 5, 6], [1, 0, 1, 1, 0, 1])
    first, second = violations(ByHand(), splits, [("price", -1), ("stars", 0), ("gone", 1)])
    assert first == {
        "feature": "price",
        "direction": -1,
        "ranker": "first_stage",
        "moved": 4,
        "scores_wrong": 0,
        "ranks_wrong": 0,
    }
    assert (second["ranker"], second["moved"], second["scores_wrong"]) == ("qilcm", 4, 2)
    up, _ = violations(ByHand(), splits, [("price", 1)])
    assert up["scores_wrong"] == 4


def test_to_fall_below_the_cutoff_is_to_go_down():
    class Cut(ByHand):
        def rerank(self, candidates, *, strategy):
            found = super().rerank(candidates, strategy=strategy)
            return dataclasses.replace(found, scores=np.where(found.ranks == 1, found.scores, np.nan))

    splits = splits_of([1, 9, 2, 8, 3, 7], [0] * 6)
    falls, _ = violations(Cut(), splits, [("price", -1)])
    assert (falls["moved"], falls["scores_wrong"]) == (3, 0), "those that are not scored are not moved"
    rises_, _ = violations(Cut(), splits, [("price", 1)])
    assert rises_["scores_wrong"] == 3
