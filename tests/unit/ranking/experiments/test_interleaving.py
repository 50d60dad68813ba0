"""Team-Draft: the draft's rules, its fairness, and that a list is a function of query id and salt."""

import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from listwright.ranking.experiments import team_draft
from listwright_lab.synthetic_traffic import clicked, examination

RANKINGS = st.integers(0, 12).flatmap(lambda size: st.tuples(*[st.permutations(range(size))] * 2))


@given(RANKINGS, st.text(max_size=20), st.text(max_size=5), st.none() | st.integers(0, 15))
def test_each_candidate_once_and_each_pick_is_the_best_left(rankings, query_id, salt, length):
    control, challenger = rankings
    found = team_draft(control, challenger, query_id=query_id, salt=salt, length=length)
    shown = len(control) if length is None else min(length, len(control))
    assert len(found.order) == len(found.teams) == shown
    assert len(set(found.order)) == shown
    for place, (candidate, team) in enumerate(zip(found.order, found.teams, strict=True)):
        ranking = control if team == "control" else challenger
        assert candidate == next(one for one in ranking if one not in found.order[:place])
    for first in range(0, shown - 1, 2):
        assert set(found.teams[first : first + 2]) == {"control", "challenger"}, "both pick once in a round"


@given(RANKINGS, st.text(max_size=20), st.integers(0, 12))
def test_a_shorter_list_is_the_beginning_of_a_longer_one(rankings, query_id, length):
    whole = team_draft(*rankings, query_id=query_id, salt="s")
    part = team_draft(*rankings, query_id=query_id, salt="s", length=length)
    assert (part.order, part.teams) == (whole.order[:length], whole.teams[:length])


def test_another_process_gives_the_same_list():
    code = (
        "from listwright.ranking.experiments import team_draft;"
        "print(team_draft(range(40), range(39, -1, -1), query_id='q\\u00fc', salt='x'))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said == str(team_draft(range(40), range(39, -1, -1), query_id="qü", salt="x"))


def test_salt_and_query_id_are_kept_apart():
    lists = {
        team_draft(range(60), range(60), query_id=query_id, salt=salt).teams
        for query_id, salt in [("ab", "c"), ("b", "ca"), ("abc", ""), ("", "cab"), ("1:a", ""), ("", "1:a")]
    }
    assert len(lists) == 6


def test_every_coin_is_fair_and_independent_of_the_one_before():
    teams = [team_draft(range(8), range(8), query_id=f"q{n}", salt="s").teams[::2] for n in range(10_000)]
    first = np.array([[team == "challenger" for team in row] for row in teams])
    for column in first.T:
        assert binomtest(int(column.sum()), len(column)).pvalue > 1e-4
    for one, other in permutations(range(4), 2):
        assert binomtest(int((first[:, one] == first[:, other]).sum()), len(first)).pvalue > 1e-4


@pytest.mark.parametrize("length", [1, 3, 10])
def test_a_ranker_gains_nothing_against_itself(length):
    """10,000 simulated queries, exact test: clicks fall by position, and still credit goes to both teams alike."""
    rng = np.random.default_rng(length)
    looks = examination(length, 1.0)
    wins = {"control": 0, "challenger": 0}
    for n in range(10_000):
        ranking = rng.permutation(10).tolist()
        found = team_draft(ranking, ranking, query_id=f"q{n}", salt="fair", length=length)
        credit = 0
        for team, hit in zip(found.teams, clicked(np.full(length, 0.5), looks, rng), strict=True):
            credit += int(hit) * (1 if team == "challenger" else -1)
        if credit:
            wins["challenger" if credit > 0 else "control"] += 1
    assert sum(wins.values()) > 3000
    assert binomtest(wins["challenger"], sum(wins.values())).pvalue > 1e-3


@pytest.mark.parametrize(
    ("control", "challenger", "length"),
    [([0, 1], [0], None), ([0, 1], [0, 2], None), ([0, 0], [0, 0], None), ([0, 1], [1, 1], None), ([0], [0], -1)],
)
def test_other_lists_are_refused(control, challenger, length):
    with pytest.raises(ValueError, match="expected"):
        team_draft(control, challenger, query_id="q", salt="s", length=length)
