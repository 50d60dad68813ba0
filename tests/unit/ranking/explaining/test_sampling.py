"""Shapley values: the definition, sampled ones within their errors, and when sampling ends."""

import numpy as np
import pytest

from listwright.ranking.explaining import contributions
from listwright.ranking.explaining.contributions import EXHAUSTIVE, FEWEST_PAIRS, TOLERANCE, shapley_values
from support.explained import NEVER, by_permutations, ends_after, of_rows, random_game


def values_of(game, players, *, budget=EXHAUSTIVE, seed=0, clock=NEVER):
    return shapley_values(of_rows(game), players, budget=budget, rng=np.random.default_rng(seed), clock=clock)


def gloves(coalition):
    """Players 0 and 1 have a left glove, 2 a right one; a pair is worth 1."""
    return float(2 in coalition and bool(coalition & {0, 1}))


def test_the_glove_game():
    found = values_of(gloves, 3)
    assert found.values == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    assert (found.full, found.empty, found.evaluations, found.standard_errors) == (1.0, 0.0, 8, None)


@pytest.mark.parametrize("players", [1, 2, 5])
def test_few_players_have_the_mean_over_all_orders(players):
    game = random_game(players, players)
    found = values_of(game, players)
    assert found.values == pytest.approx(by_permutations(game, players), abs=1e-12)
    assert found.evaluations == 2**players


def test_nobody_takes_part():
    found = values_of(lambda coalition: 3.0, 0)
    assert (found.values.tolist(), found.full, found.empty) == ([], 3.0, 3.0)


def test_sampled_values_lie_within_three_standard_errors(monkeypatch):
    """As often as normal errors do: 99.7 % of them."""
    monkeypatch.setattr(contributions, "EXHAUSTIVE", 4)
    apart = []
    for seed in range(30):
        game = random_game(6, seed)
        found = values_of(game, 6, budget=1000, seed=seed)
        assert found.budget_spent
        apart += ((found.values - by_permutations(game, 6)) / found.standard_errors).tolist()
    assert np.mean(np.abs(apart) < 3.0) >= 0.99
    assert np.mean(np.square(apart)) == pytest.approx(1.0, abs=0.25)


def test_standard_errors_say_how_far_values_are_from_the_truth():
    """Over many runs: the mean of squared errors over squared standard errors is near 1."""
    game = random_game(6, 1)
    truth = by_permutations(game, 6)
    runs = [values_of(game, 6, budget=42, seed=seed) for seed in range(100)]
    assert all(run.standard_errors is not None for run in runs)
    error = np.mean([(run.values - truth) ** 2 for run in runs])
    claimed = np.mean([run.standard_errors**2 for run in runs])
    assert claimed == pytest.approx(error, rel=0.25)


def test_values_sum_to_the_difference_however_few_samples_there_are():
    game = random_game(9, 3)
    found = values_of(game, 9, budget=3)
    assert found.values.sum() == pytest.approx(found.full - found.empty, abs=1e-12)
    assert found.evaluations == 2 + 2 * 2 * 8, "two pairs of permutations in any case"
    assert found.budget_spent


def test_a_game_that_only_adds_needs_the_fewest_pairs():
    worths = np.arange(1.0, 13.0)
    found = values_of(lambda coalition: float(sum(worths[player] for player in coalition)), 12)
    assert found.values == pytest.approx(worths)
    assert found.standard_errors == pytest.approx(np.zeros(12), abs=1e-9)
    assert (found.evaluations, found.budget_spent) == (2 + FEWEST_PAIRS * 2 * 11, False)


def test_sampling_ends_when_it_is_precise_enough():
    def game(coalition):
        return float(sum(coalition) + 4.0 * (coalition >= {0, 1, 2}))

    found = values_of(game, 12, budget=100_000)
    assert not found.budget_spent
    assert found.standard_errors.max() <= TOLERANCE * np.abs(found.values).max()
    assert 2 + FEWEST_PAIRS * 22 <= found.evaluations < 100_000


def test_a_budget_is_never_exceeded():
    game = random_game(8, 4)
    found = values_of(game, 8, budget=200)
    assert found.evaluations <= 200
    assert found.budget_spent


def test_the_clock_ends_sampling_with_what_there_is():
    game = random_game(8, 4)
    found = values_of(game, 8, budget=200, clock=ends_after(1 + 3))
    assert found.budget_spent
    assert found.evaluations == 2 + 3 * 14


@pytest.mark.parametrize(("players", "looks"), [(4, 0), (8, 0), (8, 2)])
def test_without_two_pairs_there_is_nothing(players, looks):
    assert values_of(random_game(players, 0), players, budget=200, clock=ends_after(looks)) is None


def test_a_seed_repeats():
    game = random_game(8, 5)
    one, again, other = (values_of(game, 8, budget=150, seed=seed).values.tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != other
