"""What it takes to pass the candidate above: changes that can be worked out by hand, and real bundles."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.explain import explain
from listwright.ranking.explaining.explanation import ValueChange
from listwright.ranking.explaining.passing import MOST_CATEGORIES, find_passing_changes
from listwright.ranking.features import Feature, FeatureSchema
from support.explained import NEVER, ends_after, with_quantiles
from support.service import computed_by_hand
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import Column, candidates


class Sum:
    """``stars + price``."""

    def score(self, features):
        return features[:, 0].astype(np.float64) + features[:, 1]


def reranker(second, price, stars):
    """By hand, with training quantiles of both features."""
    made = computed_by_hand.reranker(Column(0), second, first_stage_score=False)
    both = zip(made.schema.features, (price, stars), strict=True)
    schema = FeatureSchema(features=tuple(one.model_copy(update={"quantiles": given}) for one, given in both))
    made.manifest = made.manifest.model_copy(update={"feature_schema": schema})
    return made


WIDE = (0.0, 0.0, 5.0, 15.0, 25.0, 35.0, 50.0)
NARROW = (0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 4.0)
BY_STARS = candidates([1, 30], [1, 20], [1, 10])


def test_the_smallest_number_of_stars_that_passes():
    found = explain(reranker(Column(1), WIDE, WIDE), BY_STARS, 2).passing
    assert (found.above.index, found.one) == (1, (ValueChange("stars", 10.0, 21.0),)), (
        "20 is a tie, which keeps the order"
    )
    assert found.two is None
    assert found.tried > 0
    assert found.untried == 0


def test_a_tie_is_enough_for_who_stands_before_in_the_list():
    found = explain(reranker(Column(1), WIDE, WIDE), candidates([1, 30], [1, 10], [1, 20]), 1).passing
    assert found.one == (ValueChange("stars", 10.0, 20.0),)


def test_a_feature_that_is_not_counted_is_halved():
    found = explain(reranker(Column(1), WIDE, (*WIDE[:-1], 50.5)), BY_STARS, 2).passing
    (change,) = found.one
    assert 20.0 < change.value_to < 20.0 + 10 / 2**4


def test_two_features_where_one_is_not_enough():
    """6 more are needed, and each feature has 3 to give."""
    found = explain(reranker(Sum(), NARROW, NARROW), candidates([4, 3], [1, 1]), 1).passing
    assert found.one is None
    assert set(found.two) == {ValueChange("price", 1.0, 4.0), ValueChange("stars", 1.0, 4.0)}


def test_two_small_changes_for_one_large_one():
    """2.5 more. Few training rows lie between both prices, and many between 1 and 11 stars."""
    price, stars = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0), (0.0, 0.0, 1.0, 1.6, 11.0, 20.0, 30.0)
    found = explain(reranker(Sum(), price, stars), candidates([1, 3.5], [1, 1]), 1).passing
    (change,) = found.one
    assert (change.feature, change.value_to) == ("stars", pytest.approx(3.66, abs=0.01))
    assert set(found.two) == {ValueChange("price", 1.0, 3.0), ValueChange("stars", 1.0, 1.6)}


def test_nothing_within_the_training_range():
    found = explain(reranker(Column(1), WIDE, WIDE), candidates([1, 90], [1, 10]), 1).passing
    assert (found.one, found.two) == (None, None)
    assert found.tried > 10


def test_the_first_has_nobody_to_pass():
    assert explain(reranker(Column(1), WIDE, WIDE), BY_STARS, 0).passing is None


TO_21 = (ValueChange("stars", 10.0, 21.0),)


@pytest.mark.parametrize(("looks", "one", "ended"), [(1, None, False), (9, TO_21, False), (10, TO_21, True)])
def test_a_search_that_was_cut_short_has_what_passed(looks, one, ended):
    made = reranker(Column(1), WIDE, WIDE)
    ranking = made.rerank(BY_STARS)
    found, whole, _ = find_passing_changes(
        made.rerank, BY_STARS, 2, ranking, made.manifest.feature_schema, ends_after(looks)
    )
    assert (None if found is None else found.one) == one
    assert whole is ended


def test_a_change_that_passed_is_kept_whenever_the_clock_ends():
    """Also while it is refined: each look more leaves it or makes it smaller, down to what the whole search finds."""
    made = reranker(Column(1), WIDE, (*WIDE[:-1], 50.5))
    ranking, schema = made.rerank(BY_STARS), made.manifest.feature_schema
    stars = []
    for looks in range(30):
        searched = find_passing_changes(made.rerank, BY_STARS, 2, ranking, schema, ends_after(looks))
        if searched.changes is None:
            assert stars == []
            assert looks < searched_first_passes(made, ranking, schema)
            continue
        (change,) = searched.changes.one
        changed = BY_STARS.features.copy()
        changed[2, 1] = change.value_to
        assert made.rerank(CandidateList(changed)).ranks[2] < ranking.ranks[2]
        stars.append(change.value_to)
    assert searched.complete
    assert stars == sorted(stars, reverse=True)
    assert len(set(stars)) > 2
    assert stars[0] == 25.0, "before any refining"


def searched_first_passes(made, ranking, schema):
    """The look at which a change passes first: how many lists were ranked until then."""
    count = 0

    def counting(listed):
        nonlocal count
        found = made.rerank(listed)
        if found.ranks[2] < ranking.ranks[2]:
            raise ScoringError("passed")
        count += 1
        return found

    with pytest.raises(ScoringError):
        find_passing_changes(counting, BY_STARS, 2, ranking, schema, NEVER)
    return count


class FailsAbove(Column):
    """Where anybody has more than so many stars."""

    def __init__(self, column, stars):
        super().__init__(column)
        self.stars = stars

    def score(self, features):
        if features[:, 1].max() > self.stars:
            raise ScoringError("no oil")
        return super().score(features)


def test_a_change_that_makes_the_stage_fail_does_not_pass():
    """The price gives the first stage's order, in which another candidate is the one above."""
    by_price = candidates([3, 30], [1, 20], [2, 10])
    found = explain(reranker(FailsAbove(1, 30.0), WIDE, WIDE), by_price, 2)
    assert found.ranking.ranks[2] == 3
    assert found.passing.above.index == 1
    assert found.passing.one == (ValueChange("stars", 10.0, 21.0),), "25 passes, 35 and 50 fail"
    assert found.passing.two is None
    none = explain(reranker(FailsAbove(1, 20.0), WIDE, WIDE), candidates([3, 20], [1, 20], [2, 10]), 2)
    assert none.passing is None
    assert none.incomplete == ("passing",)
    assert "of 1" in none.faults["passing"]
    assert "no oil" in none.faults["passing"]


def test_a_category_that_was_left_out_is_counted():
    made = reranker(Column(1), WIDE, WIDE)
    shop = Feature(name="price", kind="categorical", categories=tuple(f"s{n}" for n in range(1000)))
    schema = FeatureSchema(features=(shop, made.schema.features[1]))
    made.manifest = made.manifest.model_copy(update={"feature_schema": schema})
    assert explain(made, BY_STARS, 2).passing.untried == 999 - MOST_CATEGORIES


MADE = {
    "network": {},
    "relative": {"relative": True},
    "cutoff": {"cutoff": 4},
    "router": {"specialists": 3, "margin": 0.1},
    "given first stage": {"first_stage": "onnx"},
    "first stage alone": {"kind": None},
}


@pytest.mark.parametrize("made", MADE)
def test_every_change_passes_when_it_is_made(made, tmp_path):
    served = bundle.load(make_bundle(tmp_path / "some" / "1", **MADE[made]))
    rng = np.random.default_rng(5)
    explained = with_quantiles(served.reranker, rows(rng, 500))
    schema = explained.manifest.feature_schema
    passed = 0
    for _ in range(3):
        features = rows(rng, 9)
        order = explained.rerank(CandidateList(features)).order.tolist()
        for candidate in range(9):
            found = explain(explained, CandidateList(features), candidate, budget=1).passing
            for changes in () if found is None else (found.one, found.two):
                if changes is None:
                    continue
                changed = features.copy()
                for change in changes:
                    d = schema.index[change.feature]
                    to = change.value_to
                    changed[candidate, d] = schema.features[d].code(to) if d in schema.categorical else to
                ranks = explained.rerank(CandidateList(changed)).ranks
                assert found.above.index == order[order.index(candidate) - 1]
                assert ranks[candidate] < ranks[found.above.index]
                passed += 1
    assert passed > 10
