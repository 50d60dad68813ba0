"""The suites' sums on results small enough to check by hand, their store, and their pages."""

import re
from functools import partial

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.load import load
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.routing import RoutingEvaluation
from listwright.training.pipeline import study
from listwright.training.recipe import config
from listwright_lab.suites import oracle, routing, specialised
from listwright_lab.suites.listwise import suite as listwise
from listwright_lab.suites.results_folder import RESULTS, ResultsFolder
from support.training.measured import results, routed


@pytest.mark.parametrize("suite", [specialised, listwise])
def test_another_experiment_is_noticed_before_data_are_read(suite, tmp_path, monkeypatch):
    with ResultsFolder(tmp_path / "x", {"suite": "earlier"}):
        pass
    monkeypatch.setattr(suite, "load", lambda *_a, **_o: pytest.fail("data are read"))
    recipe = config.load("letor")
    if suite is specialised:
        options = specialised.SpecialisedOptions("oracle", recipe, ["no.txt"], (1,), 1, (1,), 10, "", {})
        call = partial(specialised.run, options, tmp_path / "x", {"suite": "oracle"}, Console(quiet=True))
    else:
        options = listwise.ListwiseOptions("table2", recipe, ("no.txt",), 1, (1,), (), 1, 10, "", {})
        call = partial(listwise.run, options, tmp_path / "x", [], Console(quiet=True))
    with pytest.raises(RecipeError, match="holds results with other"):
        call()


def test_a_folder_made_for_wrong_data_is_removed(tmp_path):
    options = specialised.SpecialisedOptions("oracle", config.load("letor"), ["no.txt"], (1,), 1, (1,), 10, "", {})
    with pytest.raises(DataError, match="does not exist"):
        specialised.run(options, tmp_path / "x", {"suite": "oracle"}, Console(quiet=True))
    assert not (tmp_path / "x").exists()


def test_a_study_of_another_recipe_is_noticed_without_data(tmp_path, splits_of_two):
    one, other = config.load("letor"), config.load("demo")
    with study.lock_study(tmp_path / "s", one) as state:
        study.check_data(tmp_path / "s", splits_of_two[0])
        (state / "trial").touch()
    with pytest.raises(RecipeError, match="holds a study with other recipe"), study.lock_study(tmp_path / "s", other):
        pytest.fail("it is locked")
    with study.lock_study(tmp_path / "s", one):
        study.check_data(tmp_path / "s", splits_of_two[0])
        with pytest.raises(RecipeError, match="holds a study with other data"):
            study.check_data(tmp_path / "s", splits_of_two[1])


@pytest.fixture
def splits_of_two():
    recipe = config.load("demo")
    small = recipe.data.model_copy(update={"queries": 20})
    return [load(recipe.model_copy(update={"data": small, "seed": seed}), []) for seed in (0, 1)]


def test_expected_ndcg_is_linear_in_the_oracles_accuracy():
    summary = oracle.summarise(results([0.8, 1.0], [0.4, 0.2], [0.65, 0.65], [0.7, 0.8]))
    one, two = summary.curves
    assert (one.specialists, two.specialists) == (1, 2)
    assert (two.average, two.oracle) == (pytest.approx(0.6), pytest.approx(0.9))
    assert two.mean[25] == pytest.approx(0.6 + 0.25 * 0.3)
    assert two.break_even[0] == pytest.approx((0.65 - 0.6) / 0.3)
    assert summary.lambdamart[0] == pytest.approx(0.75)


def test_one_specialist_has_no_break_even():
    one, _ = oracle.summarise(results([0.8, 1.0], [0.4, 0.2], [0.65, 0.65], [0.7, 0.8])).curves
    assert one.break_even is None
    assert one.beats_single is None


def test_specialists_that_never_differ_have_no_break_even():
    _, two = oracle.summarise(results([0.5, 0.6], [0.5, 0.6], [0.5, 0.5], [0.7, 0.7])).curves
    assert two.break_even is None


def test_a_sure_gain_is_found_at_the_accuracy_where_it_begins():
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.normal(size=400)
    summary = oracle.summarise(results(0.9 + noise, 0.3 + noise, 0.7 + noise, 0.95 + noise))
    curve = summary.curves[1]
    assert curve.break_even[0] == pytest.approx(1 / 3, abs=1e-6)
    assert curve.beats_single == pytest.approx(0.34), "the first grid point above 1/3: the gain is the same for all"
    assert curve.beats_lambdamart is None
    assert "No oracle" in oracle.sentence(summary)


def test_a_sure_gain_without_any_oracle_is_said_so():
    noise = 0.01 * np.random.default_rng(0).normal(size=100)
    summary = oracle.summarise(results(0.9 + noise, 0.8 + noise, 0.7 + noise, 0.5 + noise))
    assert summary.curves[1].beats_lambdamart == 0.0
    assert oracle.sentence(summary) == "Even a random choice among 2 linear specialists beats LambdaMART beyond doubt."


def test_a_query_is_the_mean_over_its_seeds():
    first = results([0.8], [0.4], [0.5], [0.6], seed=0)
    second = results([1.0], [0.2], [0.7], [0.8], seed=1)
    summary = oracle.summarise(pl.concat([first, second]))
    assert (summary.queries, summary.seeds) == (1, 2)
    assert summary.single[0] == pytest.approx(0.6)
    assert summary.curves[1].oracle == pytest.approx(0.9)


def test_bootstrap_resamples_queries_jointly():
    values = np.random.default_rng(0).normal(size=(300, 2))
    means = resample_means(np.column_stack([values, values[:, 0] + 1.0]))
    assert means[:, 2] == pytest.approx(means[:, 0] + 1.0)
    low, high = percentile_interval(means[:, 0])
    assert high - low == pytest.approx(2 * 1.96 * values[:, 0].std() / np.sqrt(300), rel=0.1)


def test_coverage_curve_begins_at_nothing_and_ends_at_always():
    found = routed()
    curve = routing.coverage_curve(found)
    assert curve.gain[0] == 0.0
    assert curve.gain[-1] == pytest.approx((found.hard - found.generalist).mean())
    each = np.arange(200)
    best_half = np.argsort(-found.gains[each, found.probabilities.argmax(axis=1)])[:100]
    assert curve.gain[50] == pytest.approx((found.hard - found.generalist)[best_half].sum() / 200)


@pytest.mark.nightly
def test_calibration_of_honest_probabilities_is_good_and_of_boasts_bad():
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(3), size=4000)
    best = np.eye(3)[[rng.choice(3, p=p) for p in truth]]
    parts = {name: getattr(routed(4000), name) for name in RoutingEvaluation.__slots__}
    honest = RoutingEvaluation(**parts | {"specialists": best, "probabilities": truth})
    assert routing.calibration(honest).error < 0.03
    boast = truth**5 / (truth**5).sum(axis=1, keepdims=True)
    assert routing.calibration(RoutingEvaluation(**parts | {"specialists": best, "probabilities": boast})).error > 0.1


def test_results_survive_the_parquet_file(tmp_path):
    found = routed(30)
    routing.to_frame(found, tuple(f"q{n}" for n in range(30))).write_parquet(tmp_path / "r.parquet")
    back = routing.from_frame(pl.read_parquet(tmp_path / "r.parquet"))
    for name in set(RoutingEvaluation.__slots__) - {"query"}:
        assert np.array_equal(getattr(back, name), getattr(found, name)), name
    assert len(set(back.query)) == 30


def test_a_query_that_several_seeds_tested_is_one_witness(tmp_path):
    """Copies of the same rows narrow no interval."""
    frame = routing.to_frame(routed(60), tuple(f"q{n}" for n in range(60)))
    once, thrice = routing.from_frame(frame), routing.from_frame(pl.concat([frame, frame, frame]))
    assert thrice.gain(thrice.hard, thrice.generalist) == pytest.approx(once.gain(once.hard, once.generalist))
    assert routing.coverage_curve(thrice).high[-1] == pytest.approx(routing.coverage_curve(once).high[-1])
    assert thrice.facts()["queries"] == 60


def self_contained(page):
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page), "nothing is fetched"
    assert page.count("<svg") >= 1
    assert "prefers-color-scheme: dark" in page


def test_pages_stand_alone_and_repeat_to_the_byte():
    summary = oracle.summarise(results([0.8, 1.0], [0.4, 0.2], [0.65, 0.65], [0.7, 0.8]))
    more = {
        "ndcg_at": 10,
        "command": "listwright experiment oracle <b>",
        "facts": ["Data: two queries."],
        "settings": "{}",
    }
    page = oracle.page("two queries", summary, **more)
    self_contained(page)
    assert "&lt;b&gt;" in page
    assert "0.6000" in page
    assert "0.9000" in page
    assert page == oracle.page("two queries", summary, **more)
    other = routing.page("random", routed(), **more)
    self_contained(other)
    assert other.count("<svg") == 2


def test_folder_keeps_finished_units_and_refuses_other_settings(tmp_path):
    frame = pl.DataFrame({"ndcg": [0.5]})
    with ResultsFolder(tmp_path / "x", {"suite": "oracle", "seeds": 1}) as store:
        store.add("a", frame)
        assert store.has("a")
        assert not store.has("b")
        with pytest.raises(RecipeError, match="a suite is running"):
            ResultsFolder(tmp_path / "x", {"suite": "oracle", "seeds": 1})
    with ResultsFolder(tmp_path / "x", {"suite": "oracle", "seeds": 1}) as store:
        store.add("b", frame)
        assert store.join(["a", "b"])["ndcg"].to_list() == [0.5, 0.5]
    assert pl.read_parquet(tmp_path / "x" / RESULTS).height == 2
    with pytest.raises(RecipeError, match="holds results with other seeds"):
        ResultsFolder(tmp_path / "x", {"suite": "oracle", "seeds": 2})
