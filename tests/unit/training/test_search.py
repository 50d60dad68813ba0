"""A search repeats itself, survives a kill, prunes what is below the median, and always tries the recipe's own values."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training import search as searching
from listwright.training.recipe.model import MODEL_NAMES, DlcmSpec, FirstStageAlone, Qilcm2Spec, QilcmSpec, model_like
from listwright.training.search import OneOf, Pruned, Range, Rounds, own_values, search, space_of
from listwright.training.second_stage.fit import with_values

SPACE = {
    "x": Range(-1.0, 1.0),
    "n": Range(1, 9, log=True, whole=True),
    "widths": OneOf(((4,), (4, 2))),
}
FIRST = {"x": 0.9, "n": 3, "widths": (4,)}


def bowl(_number, values, report):
    """Best at x = 0.25, reached over four steps."""
    top = -((values["x"] - 0.25) ** 2)
    for step in range(1, 5):
        report(step, top)
    return top, values["n"]


def run(objective=bowl, **options):
    return search(SPACE, objective, **{"first": FIRST, "trials": 20, "seed": 1} | options)


def test_first_trial_is_the_recipe_and_the_search_ends_above_it():
    tried = []

    def noted(number, values, report):
        tried.append((number, values))
        return bowl(number, values, report)

    found = run(noted)
    assert tried[0] == (0, FIRST)
    assert [number for number, _ in tried] == list(range(20))
    assert found.first_value == pytest.approx(-(0.65**2))
    assert found.value > -(0.2**2)
    assert found.values in [values for _, values in tried]
    assert found.fact == found.values["n"]
    assert all(isinstance(values["widths"], tuple) and isinstance(values["n"], int) for _, values in tried)


def test_one_seed_repeats_the_search():
    assert run() == run()
    assert run(seed=2).values != run().values


@pytest.mark.parametrize("after", [1, 7, 12])
def test_an_interrupted_search_ends_as_an_uninterrupted_one(tmp_path, after):
    journal = tmp_path / "journal"
    tried = []

    def killed(number, values, report):
        report(1, 0.0)
        if number == after - 1:
            raise KeyboardInterrupt  # in the middle of a trial
        return bowl(number, values, report)

    def noted(number, values, report):
        tried.append(number)
        return bowl(number, values, report)

    with pytest.raises(KeyboardInterrupt):
        run(killed, journal=journal)
    found = run(noted, journal=journal)
    assert tried == list(range(after - 1, 20)), "finished trials are not tried again, the interrupted one is"
    assert found == run()


def test_more_trials_go_on_where_fewer_ended(tmp_path):
    journal = tmp_path / "journal"
    assert run(journal=journal, trials=8) == run(trials=8)
    assert run(journal=journal, trials=20) == run(trials=20)


def test_a_kill_in_the_middle_of_a_line_loses_that_line_only(tmp_path):
    journal = tmp_path / "journal"
    run(journal=journal, trials=6)
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "work')
    (tmp_path / "journal.lock").symlink_to(journal)  # who wrote it cannot take it away any more
    assert run(journal=journal, trials=9) == run(trials=9)


def test_what_stays_below_the_median_is_ended_early():
    """Five trials are finished first; of the next, those below the median of step 3 get no fourth step."""
    values = [0.5, 0.4, 0.3, 0.2, 0.1, 0.29, 0.31, 0.6, 0.05]
    steps = []

    def scripted(number, _values, report):
        steps.append(0)
        for step in range(1, 5):
            steps[number] = step
            report(step, values[number] - 0.01 * (4 - step))
        return values[number], 0

    found = run(scripted, trials=len(values), prune_after=3)
    assert steps == [4, 4, 4, 4, 4, 3, 4, 4, 3]
    assert (found.trials, found.pruned, found.value, found.first_value) == (9, 2, 0.6, 0.5)
    steps.clear()
    assert run(scripted, trials=len(values)).pruned == 0, "unless it is not asked to"


def test_a_trial_that_fails_is_as_bad_as_any():
    def fails(number, values, report):
        if number % 2 == 0:
            raise Pruned
        return bowl(number, values, report)

    found = run(fails)
    assert found.first_value is None
    assert found.pruned == 10

    def always(_number, _values, _report):
        raise Pruned

    with pytest.raises(RecipeError, match="none of 20 trials finished: lower learning_rate"):
        run(always)


def test_a_value_that_is_no_number_ends_the_search():
    with pytest.raises(RecipeError, match="held-out value is nan"):
        run(lambda _number, values, _report: (float("nan"), values["n"]))


def test_a_space_is_widened_to_the_recipe():
    first = {"x": 3.0, "n": 20, "widths": (7, 7)}
    tried = []

    def noted(_number, values, _report):
        tried.append(values)
        return -abs(values["x"] - 3.0), 0

    found = run(noted, first=first)
    assert tried[0] == first
    assert found.values == first


def test_spaces_of_all_networks_hold_their_own_values_and_what_they_propose_is_valid():
    like = QilcmSpec(encoder_width=64, learning_rate=0.05, hidden=(8,), dropout=0.05)
    for name in MODEL_NAMES:
        model = model_like(name, like)
        if isinstance(model, FirstStageAlone):
            continue
        space = space_of(model)
        own = own_values(model, space)

        def proposed(number, values, _report, model=model):
            changed = with_values(model, values)
            assert number > 0 or changed == model
            assert {field: getattr(changed, field) for field in values} == values
            return -values["learning_rate"], 0

        search(space, proposed, first=own, trials=15, seed=0)
        assert ("confusion_weight" in space) == (name in ("qilcm", "qilcm-v1", "qilcm-paper"))
    assert "heads" in space_of(DlcmSpec())
    blocks = space_of(Qilcm2Spec(context="blocks", heads=5, encoder_width=40))
    assert blocks["encoder_width"] == OneOf((48, 100, 200, 40))
    assert "seeds" not in blocks


def test_the_median_needs_a_few_trials():
    assert searching.STARTUP_TRIALS == 5


@pytest.mark.parametrize("prune_after", [None, 1])
def test_rounds_of_one_propose_what_a_search_without_does(prune_after):
    with ThreadPoolExecutor(1) as executor:
        rounds = Rounds(executor, 1, bowl)
        assert run(rounds=rounds, prune_after=prune_after) == run(prune_after=prune_after)


def test_a_round_is_proposed_from_the_rounds_before_it():
    tried = {}

    def noted(number, values, report):
        tried[number] = values
        return bowl(number, values, report)

    with ThreadPoolExecutor(3) as executor:
        found = run(rounds=Rounds(executor, 3, noted), trials=8)
        assert found.trials == 8
        assert run(rounds=Rounds(executor, 3, bowl), trials=8) == found
    assert tried[0] == FIRST
    assert len({str(values) for values in tried.values()}) == 8


def test_a_search_that_is_killed_in_a_round_repeats_it(tmp_path):
    journal, before, after = tmp_path / "journal", [], []

    def killed(number, values, report):
        before.append((number, values))
        if number == 4:
            raise KeyboardInterrupt
        return bowl(number, values, report)

    def noted(number, values, report):
        after.append((number, values))
        return bowl(number, values, report)

    # The executor ends before the next begins: a trial of the round may still run at the kill.
    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        run(rounds=Rounds(executor, 3, killed), trials=9, journal=journal)
    with ThreadPoolExecutor(1) as executor:
        found = run(rounds=Rounds(executor, 3, noted), trials=9, journal=journal)
        assert found == run(rounds=Rounds(executor, 3, bowl), trials=9)
    started = sorted(before[3:], key=lambda one: one[0])
    assert len(started) >= 2
    assert after[: len(started)] == started
