"""The time of a fit: what is planned, what ends by the clock, what is remembered and repeated."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.errors import RecipeError
from listwright.training.console.progress import format_duration
from listwright.training.pipeline.budget import (
    ENDING_FITS,
    ENDING_S,
    FITS,
    LEAST_S,
    MOST_ENDING,
    MOST_S,
    USUAL_S,
    Budget,
)
from listwright.training.pipeline.steps import COLUMNS, _boosting_seconds, _plan_boosting
from listwright.training.recipe.config import LambdaMart

SPEC = LambdaMart(trials=20, folds=5, relative="auto")


class Clock:
    """Seconds that a test moves on."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def bounded(minutes, unit, clock=None, work=0.0):
    budget = Budget(minutes, clock=clock or Clock())
    budget.set_unit(unit, work)
    return budget


@pytest.mark.parametrize("minutes", [-1.0, math.nan, math.inf])
def test_odd_minutes_are_refused(minutes):
    with pytest.raises(RecipeError, match=f"minutes {minutes:g}: expected a number from 0"):
        Budget(minutes)


@pytest.mark.parametrize(
    ("unit", "work", "seconds"),
    [
        (1.0, 10.0, LEAST_S),
        (1.0, 200.0, 200.0 + ENDING_S + ENDING_FITS),
        (1.0, 1e6, USUAL_S),
        (100.0, 1e6, FITS * 100.0),
        (1000.0, 1e6, MOST_S),
    ],
)
def test_the_default_is_what_every_kind_of_ranker_takes_once(unit, work, seconds):
    assert bounded(None, unit, work=work).seconds == seconds


def test_a_first_fit_has_the_longest_default(clock):
    budget = Budget(None, clock=clock)
    clock.now += MOST_S - ENDING_S
    assert budget.goes_on("trees", 10, 0.0)
    clock.now += 1.0
    assert not budget.goes_on("trees", 20, 0.0)


def test_without_a_bound_nothing_is_left_out(clock):
    budget = bounded(0.0, 1e6, clock)
    clock.now += 1e9
    assert budget.goes_on("trials", 5, 1e9)
    assert budget.plan("folds", 5, lambda: 1 / 0) == 5
    assert budget.unspent() == math.inf
    assert budget.facts is None


def test_a_work_ends_once_and_stays_ended(clock):
    budget = bounded(1.0, 1.0, clock)
    assert budget.goes_on("trials", 1, 50.0)
    clock.now += 60.0 - (ENDING_S + ENDING_FITS) - 9.0
    assert budget.goes_on("trials", 2, 9.0)
    assert not budget.goes_on("trials", 3, 9.5)
    assert [budget.goes_on("trials", done, 0.0) for done in (2, 3, 4)] == [True, False, False]
    assert budget.goes_on("epochs", 3, 1.0), "another work"


def test_what_is_reserved_for_the_end_is_a_share_of_a_short_time(clock):
    budget = bounded(0.5, 10.0, clock)
    assert budget.unspent() == 30.0 * (1.0 - MOST_ENDING)


def test_an_interrupted_fit_has_spent_its_time_and_decides_alike(tmp_path, clock):
    file, others = tmp_path / "budget.json", Clock()
    first = Budget(2.0, clock=clock)
    first.keep_in(file)
    clock.now += 30.0
    first.set_unit(10.0)
    assert first.plan("folds", 5, lambda: 3.9) == 3
    clock.now += 40.0
    assert not first.goes_on("trials", 4, 100.0)
    again = Budget(2.0, clock=others)
    again.keep_in(file)
    assert (again.spent, again.unit, again.seconds) == (70.0, 10.0, 120.0)
    assert again.plan("folds", 5, lambda: 1 / 0) == 3
    assert not again.goes_on("trials", 4, 0.0)
    more = Budget(20.0, clock=others)
    more.keep_in(file)
    assert more.unspent() == 1200.0 - (ENDING_S + 10.0 * ENDING_FITS) - 70.0, "more minutes may be given on the way"


def test_a_default_fit_that_goes_on_has_the_time_that_it_had(tmp_path, clock):
    for minutes, expected in ((None, LEAST_S), (3.0, 180.0)):
        file = tmp_path / f"{minutes}.json"
        first = Budget(minutes, clock=clock)
        first.keep_in(file)
        first.set_unit(1.0)
        again = Budget(None, clock=clock)
        again.keep_in(file)
        assert (again.seconds, again.facts["minutes"]) == (expected, minutes)


def test_a_replay_repeats_decisions_and_knows_no_clock(clock):
    budget = bounded(1.0, 4.0, clock)
    plan = _plan_boosting(budget, SPEC, width=3.0, network=0.0)
    clock.now += 1e6
    assert not budget.goes_on("trials", 2, 1.0)
    budget.leave_out("QILCM")
    again = Budget(replay=budget.facts, clock=clock)
    assert _plan_boosting(again, SPEC, width=3.0, network=0.0) == plan
    assert (again.goes_on("trials", 1, 1e9), again.goes_on("trials", 2, 0.0)) == (True, False)
    assert again.goes_on("epochs", 50, 1e9), "did not end by the clock"
    assert again.facts["seconds"] is None, "it has no bound of its own"
    assert {name: again.facts[name] for name in ("minutes", "planned", "ends")} == {
        name: budget.facts[name] for name in ("minutes", "planned", "ends")
    }


units = st.floats(0.01, 500.0)
widths = st.sampled_from([1.0, 1.7, 3.0])


def spec_of(by_folds, folds=5, trials=20):
    return LambdaMart(trials=trials, folds=folds, relative="auto", select_on="folds" if by_folds else "valid")


@given(unit=units, times=st.floats(1.0, 1000.0), width=widths, by_folds=st.booleans(), folds=st.integers(2, 10))
def test_plans_grow_with_the_time_and_stay_within_the_recipe(unit, times, width, by_folds, folds):
    plans = [
        _plan_boosting(bounded(minutes, unit), spec_of(by_folds, folds), width=width, network=0.0)
        for minutes in (unit * times / 60, unit * times / 30)
    ]
    for plan in plans:
        assert 1 <= plan.trials <= 20
        assert 2 <= plan.folds <= folds
        assert by_folds or plan.select_on == "valid"
    less, more = plans
    kinds = [(plan.relative == "auto", plan.select_on == "folds") for plan in plans]
    assert kinds[0] <= kinds[1]
    if kinds[0] == kinds[1]:
        assert less.trials <= more.trials
        assert less.folds <= more.folds


@given(unit=units, width=widths, by_folds=st.booleans(), network=st.floats(0.0, 1e5))
def test_with_much_time_the_recipe_is_planned(unit, width, by_folds, network):
    spec = spec_of(by_folds, folds=7, trials=37)
    assert _plan_boosting(bounded(1e6, unit), spec, width=width, network=network) == spec


@given(unit=units, network=st.floats(0.0, 300.0))
def test_by_default_columns_and_a_network_come_before_a_second_setting(unit, network):
    once = _boosting_seconds(unit, SPEC, 3.0)
    budget = bounded(None, unit, work=once + network)
    plan = _plan_boosting(budget, SPEC, width=3.0, network=network)
    assert plan.relative == "auto" or once > budget.unspent()
    width = 3.0 if plan.relative == "auto" else 1.0
    more = _boosting_seconds(unit, SPEC, width, trials=plan.trials, folds=plan.folds)
    assert (plan.trials, plan.folds) == (1, 2) or more + network <= budget.unspent()


def test_columns_come_before_a_network():
    """There is time for one of them."""
    budget = bounded(1.0, 5.0)
    assert _plan_boosting(budget, SPEC, width=3.0, network=1e9).relative == "auto"
    assert COLUMNS not in budget.left_out


@pytest.mark.parametrize(("foldless", "folds"), [(True, 0), (False, 2)])
def test_without_any_time_there_are_folds_only_where_they_are_needed(foldless, folds):
    budget = bounded(0.5, 60.0)
    plan = _plan_boosting(budget, SPEC, width=3.0, network=0.0, foldless=foldless)
    assert (plan.trials, plan.folds, plan.relative) == (1, folds, "none")
    assert budget.left_out == [COLUMNS]


@given(unit=units, times=st.floats(1.0, 100.0))
def test_folds_are_kept_where_the_validation_queries_choose_nothing(unit, times):
    budget = bounded(unit * times / 60, unit)
    plan = _plan_boosting(budget, spec_of(by_folds=True), width=3.0, network=0.0, blind=True)
    assert plan.select_on == "folds"


def test_time_that_is_spent_is_not_planned_again():
    clock = Clock()
    budget = bounded(2.0, 1.0, clock)
    clock.now += 95.0
    assert _plan_boosting(budget, SPEC, width=3.0, network=0.0).trials < 5


def test_time_is_said_as_people_read_it():
    assert [format_duration(seconds) for seconds in (0.44, 42.4, 130.0, 3900.0, 6100.0)] == [
        "0.4 s", "42 s", "2:10 min", "65:00 min", "1:42 h",
    ]  # fmt: skip
