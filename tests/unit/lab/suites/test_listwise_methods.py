"""What the listwise suites fit: rows, their first stages, and where searches begin."""

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.pipeline.choice import compared_networks
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, LambdaMartSettings
from listwright.training.recipe.model import Network
from listwright.training.search import own_values, space_of
from listwright_lab.suites.listwise import methods


def test_methods_of_every_suite():
    recipe = config.load("shifted")
    like = recipe.model
    for suite in methods.SUITES:
        chosen = methods.select_methods(suite, recipe)
        assert next(iter(chosen)) == "lambdamart"
        networks = [method.spec for method in chosen.values() if isinstance(method.spec, Network)]
        assert {spec.max_epochs for spec in networks} == {like.max_epochs}
    weighted = methods.select_methods("lambda", recipe)
    assert [method.spec.confusion_weight for name, method in weighted.items() if name != "lambdamart"] == [
        0,
        0.003,
        0.01,
        0.03,
        0.1,
        0.3,
    ]
    titles = [methods.title(name) for name in methods.select_methods("table2", recipe)]
    assert titles[:2] == ["LambdaMART", "LambdaMART + relative"]
    assert titles[2:5] == ["DLCM", "DCM", "MLP"]
    assert titles[5:] == ["QILCM", "QILCM2", "QILCM + relative", "QILCM2 + relative", "Shipped ranker"]
    assert [methods.title(name) for name in methods.select_methods("table3", recipe)][1:] == ["QILCM", "V1", "V2", "V3"]


def test_what_is_shipped_is_chosen_as_a_fit_chooses():
    recipe = config.load("airline")
    shipped = methods.select_methods("table2", recipe)["shipped"].spec
    assert shipped == methods.Shipped((recipe.model_named("qilcm"), recipe.model_named("qilcm2")), Choice().folds)
    assert (
        methods.select_methods("table2", config.load("demo"))["shipped"].spec.folds == config.load("demo").choice.folds
    )
    again = methods.with_networks(recipe, shipped.networks, shipped.folds)
    assert compared_networks(again) == list(shipped.networks)


def test_rows_can_be_asked_for():
    recipe = config.load("demo")
    assert list(methods.select_methods("table2", recipe, only=("qilcm", "mlp"))) == ["lambdamart", "mlp", "qilcm"]
    named = methods.select_methods("table2", recipe, only=("qilcm", "qilcm-paper"))
    assert list(named) == ["lambdamart", "qilcm", "qilcm-paper"]
    assert (named["qilcm-paper"].spec.query_norm, named["qilcm"].spec.query_norm) == ("paper", "stable")
    assert "qilcm-paper" not in methods.select_methods("table2", recipe)
    with pytest.raises(RecipeError, match=r"--methods srm: table2 has lambdamart, lambdamart\+relative, "):
        methods.select_methods("table2", recipe, only=("qilcm", "srm"))


def test_either_first_stage_below_the_same_networks():
    recipe = config.load("shifted")
    plain, relative = (methods.select_methods("table3", recipe, relative=which) for which in (False, True))
    assert [method.spec for method in plain.values()] == [method.spec for method in relative.values()]
    assert {method.relative for method in relative.values()} == {True}
    assert next(iter(relative)) == "lambdamart+relative"


def test_a_search_begins_with_nothing_that_was_found_before():
    recipe = config.load("airline")
    fresh = methods.untuned(recipe)
    assert fresh.first_stage == recipe.first_stage.model_copy(update={"settings": LambdaMartSettings()})
    for kind in ("qilcm", "qilcm2", "dlcm", "dcm", "mlp"):
        spec = fresh.model_named(kind)
        assert own_values(spec, space_of(spec)) == own_values(type(spec)(), space_of(spec)), kind
        assert own_values(spec, space_of(spec)) != own_values(recipe.model_named(kind), space_of(spec))
    paper = config.load("airline-paper")
    kept = methods.untuned(paper).model_named("qilcm")
    assert (
        kept == paper.model_named("qilcm-paper") == config.load("qilcm-paper").model.model_copy(update={"cutoff": 1000})
    ), "each recipe as printed says all of it"
    assert (kept.first_stage_score, kept.cutoff) == (False, paper.model.cutoff), "what is not searched stays"


def test_shifts_are_for_planted_data():
    planted = config.load("shifted")
    assert [data.data.shift for data in methods.data_sets("table3", planted, ())] == list(methods.SHIFTS)
    assert [data.data.shift for data in methods.data_sets("table3", planted, (0.0, 2.0))] == [0.0, 2.0]
    assert methods.data_sets("table2", planted, ()) == [planted]
    with pytest.raises(RecipeError, match="reads real data"):
        methods.data_sets("table3", config.load("mq2008"), (1.0,))
    given = config.changed(planted, {"first_stage": {"kind": "column", "column": "n1"}})
    with pytest.raises(RecipeError, match="brings its own first stage"):
        methods.data_sets("table2", given, ())


def test_shifted_data_are_what_the_issue_asks_for():
    data = config.load("shifted").data
    assert (data.queries, data.min_length, data.max_length, data.anomalous) == (5000, 50, 50, 0.05)
