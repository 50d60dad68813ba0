"""The time of a fit: what is planned, what ends by the clock, what is remembered and repeated."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.errors import RecipeError
from listwright.training.budget import (
    EXPORT,
    FITS,
    FITTING,
    LEAST_S,
    MOST_EXPORT,
    Budget,
    boosting_plan,
    duration,
    network_plan,
)


class Clock:
    """Seconds that a test moves on."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def bounded(minutes, unit, clock=None):
    budget = Budget(minutes, clock=clock or Clock())
    budget.set_unit(unit)
    return budget


@pytest.mark.parametrize("minutes", [-1.0, math.nan, math.inf])
def test_odd_minutes_are_refused(minutes):
    with pytest.raises(RecipeError, match=f"minutes {minutes:g}: expected a number from 0"):
        Budget(minutes)


def test_less_than_one_fit_is_refused_with_what_would_do():
    with pytest.raises(RecipeError, match=r"minutes 0.5: one LightGBM fit takes 42 s here; give at least 2,"):
        bounded(0.5, 42.0)


@pytest.mark.parametrize(("unit", "seconds"), [(1.0, LEAST_S), (5.0, LEAST_S), (10.0, FITS * 10.0)])
def test_the_default_is_some_lightgbm_fits(unit, seconds):
    assert bounded(None, unit).seconds == seconds


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
    clock.now += FITTING * 60.0 - 9.0
    assert budget.goes_on("trials", 2, 9.0)
    assert not budget.goes_on("trials", 3, 9.5)
    assert [budget.goes_on("trials", done, 0.0) for done in (2, 3, 4)] == [True, False, False]
    assert budget.goes_on("epochs", 3, 1.0), "another work"


@pytest.mark.parametrize(("loop", "export"), [(0.25, EXPORT * 0.25), (100.0, MOST_EXPORT * 240.0)])
def test_a_slow_machine_ends_fitting_earlier(loop, export):
    """The time of a loop of Python says how long an export takes there."""
    times = iter([0.0, *[10.0, 10.0 + loop] * 3, 20.0])
    budget = Budget(4.0, clock=lambda: next(times))
    budget.set_unit(1.0)
    assert budget.unspent() == pytest.approx(FITTING * 240.0 - export - 20.0)


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
    assert more.unspent() == FITTING * 1200.0 - 70.0, "more minutes may be given on the way"


def test_a_replay_repeats_decisions_and_knows_no_clock(clock):
    budget = bounded(1.0, 4.0, clock)
    plan = boosting_plan(budget, trials=20, folds=5, width=3.0, by_folds=False)
    clock.now += 1e6
    assert not budget.goes_on("trials", 2, 1.0)
    budget.leave_out("QILCM")
    again = Budget(replay=budget.facts, clock=clock)
    assert boosting_plan(again, trials=20, folds=5, width=3.0, by_folds=False) == plan
    assert (again.goes_on("trials", 1, 1e9), again.goes_on("trials", 2, 0.0)) == (True, False)
    assert again.goes_on("epochs", 50, 1e9), "did not end by the clock"
    assert {name: again.facts[name] for name in ("minutes", "planned", "ends")} == {
        name: budget.facts[name] for name in ("minutes", "planned", "ends")
    }


units = st.floats(0.01, 500.0)
widths = st.sampled_from([1.0, 1.7, 3.0])


@given(unit=units, times=st.floats(1.0, 1000.0), width=widths, by_folds=st.booleans(), folds=st.integers(2, 10))
def test_plans_grow_with_the_time_and_stay_within_the_recipe(unit, times, width, by_folds, folds):
    plans = [
        boosting_plan(bounded(minutes, unit), trials=20, folds=folds, width=width, by_folds=by_folds)
        for minutes in (unit * times / 60, unit * times / 30)
    ]
    for plan in plans:
        assert 1 <= plan.trials <= 20
        assert 2 <= plan.folds <= folds
        assert by_folds or not plan.by_folds
    less, more = plans
    assert (less.columns, less.by_folds) <= (more.columns, more.by_folds)
    if (less.columns, less.by_folds) == (more.columns, more.by_folds):
        assert less.trials <= more.trials
        assert less.folds <= more.folds


@given(unit=units, width=widths, by_folds=st.booleans())
def test_with_much_time_the_recipe_is_planned(unit, width, by_folds):
    plan = boosting_plan(bounded(1e6, unit), trials=37, folds=7, width=width, by_folds=by_folds)
    assert (plan.trials, plan.folds, plan.by_folds, plan.columns) == (37, 7, by_folds, True)


def test_list_relative_columns_come_before_settings():
    """At the default, whatever the set."""
    for unit in (0.1, 1.0, 30.0, 3000.0):
        assert boosting_plan(bounded(None, unit), trials=20, folds=5, width=3.0, by_folds=False).columns


@given(unit=units, times=st.floats(1.0, 100.0))
def test_folds_are_kept_where_the_validation_queries_choose_nothing(unit, times):
    budget = bounded(unit * times / 60, unit)
    assert boosting_plan(budget, trials=20, folds=5, width=3.0, by_folds=True, blind=True).by_folds


def test_time_that_is_spent_is_not_planned_again():
    clock = Clock()
    budget = bounded(2.0, 1.0, clock)
    clock.now += 95.0
    assert boosting_plan(budget, trials=20, folds=5, width=3.0, by_folds=False).trials < 5


@given(epoch=st.floats(0.01, 100.0), times=st.floats(0.1, 1000.0), parts=st.integers(2, 6))
def test_a_network_has_time_for_its_comparison_and_for_itself(epoch, times, parts):
    budget, seconds = bounded(1.0, 1.0), epoch * times
    looks, epochs = network_plan(
        budget, "QILCM", seconds=seconds, epoch=lambda: epoch, epochs=100, steps=30.0, parts=parts, looks=parts
    )
    assert 1 <= looks <= parts
    assert epochs == 0 or 4 <= epochs <= 100
    assert epochs * epoch * (1 + looks * (parts - 1) / parts) <= seconds * (1 + 1e-9)


def test_time_is_said_as_people_read_it():
    assert [duration(seconds) for seconds in (0.44, 42.4, 130.0, 3900.0, 6100.0)] == [
        "0.4 s", "42 s", "2:10 min", "65:00 min", "1:42 h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "steps", "epochs"), [(6.0, 30.0, 0), (8.0, 30.0, 4), (6.0, 400.0, 3), (1.5, 400.0, 0)]
)
def test_a_few_long_epochs_are_enough(times, steps, epochs):
    """Of one part of four and the fit on all: 1.75 epochs' time for each epoch."""
    found = network_plan(
        bounded(1.0, 1.0), "QILCM", seconds=times, epoch=lambda: 1.0, epochs=100, steps=steps, parts=4, looks=1
    )
    assert found == (1, epochs)


def test_a_network_that_is_fitted_once_has_the_time_of_two():
    plans = {
        looks: network_plan(
            bounded(10.0, 1.0), "QILCM", seconds=100.0, epoch=lambda: 1.0, epochs=500, steps=100, parts=5, looks=looks
        )
        for looks in (0, 1)
    }
    assert plans == {0: (0, 100), 1: (1, 55)}
