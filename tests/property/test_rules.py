"""True of every list and all rules: pins and caps hold, who is not touched keeps the order, no rule changes nothing."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import TypeAdapter

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import CandidateError, SchemaMismatchError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import rank_by_score, relevance
from listwright.ranking.rules.apply import RuleSet, apply_rules
from listwright.ranking.rules.schema import MOST_CAPS, MOST_COMPARISONS, MOST_VALUES_OF_ALL, Rule, check_rules, names_of
from support.stand_ins import standing_in

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price", missing_in_training=True),
        Feature(name="brand", kind="categorical", categories=("a", "b", "true", "7")),
    )
)
MANIFEST = standing_in(Manifest, feature_schema=SCHEMA, temperatures={})
PRICES = st.sampled_from([1.0, 2.5, 3.0, 100.0, math.nan]).map(np.float32)
RULES = TypeAdapter(list[Rule])


def rule_set(*rules, of_request=True, schema=SCHEMA):
    return RuleSet(RULES.validate_python(list(rules)), schema, of_request=of_request)


def ruled(ranking, candidates, *sets):
    return apply_rules(ranking, candidates, MANIFEST, sets)


def one_list(scores, prices=None, brands=None, order=None, probability=None):
    """A ranked list with ids c0, c1 ..."""
    length = len(scores)
    scores = np.asarray(scores, dtype=np.float64)
    prices = np.ones(length) if prices is None else prices
    brands = np.zeros(length) if brands is None else brands
    candidates = CandidateList(
        np.column_stack([prices, brands]).astype(np.float32), tuple(f"c{n}" for n in range(length))
    )
    order = rank_by_score(scores) if order is None else np.asarray(order)
    stage = "input_order" if np.isnan(scores).all() else "first_stage"
    ranking = Ranking(order, scores, relevance(scores), scores, stage, Route("first_stage", "bundle"))
    return replace(ranking, probability=probability), candidates


@st.composite
def lists(draw):
    length = draw(st.integers(1, 12))
    scores = draw(hnp.arrays(np.float64, length, elements=st.sampled_from([0.0, 1.0, 1.5, -3.0])))
    prices = draw(hnp.arrays(np.float32, length, elements=PRICES))
    brands = draw(hnp.arrays(np.float32, length, elements=st.integers(0, 4)))
    order = draw(st.none() | st.permutations(range(length)))  # as an experiment makes it
    probability = draw(st.none() | hnp.arrays(np.float64, length, elements=st.sampled_from([0.0, 0.2, 0.5, 1.0])))
    return one_list(scores, prices, brands, order, probability)


ids = st.integers(0, 13).map(lambda n: f"c{n}")
wheres = st.sampled_from(
    [{"brand": "a"}, {"brand": ["a", True]}, {"price": {"max": 3}}, {"price": 2.5, "brand": 7}, {"price": []}]
)
selections = st.fixed_dictionaries({"ids": st.lists(ids, max_size=4)}) | st.fixed_dictionaries({"where": wheres})
places = st.integers(1, 12)
pins = st.fixed_dictionaries({"action": st.just("pin"), "id": ids, "place": places})
excludes = selections.map(lambda words: {"action": "exclude", **words})
boosts = st.builds(
    lambda words, action, factor: {"action": action, "factor": factor, **words},
    selections,
    st.sampled_from(["boost", "bury"]),
    st.sampled_from([1, 1.5, 1000.0]),
)
caps = st.fixed_dictionaries(
    {"action": st.just("cap"), "by": st.sampled_from(["price", "brand"]), "most": st.integers(1, 3), "first": places}
)
diversities = st.fixed_dictionaries(
    {
        "action": st.just("diversify"),
        "by": st.sampled_from([["price"], ["brand"], ["price", "brand"]]),
        "weight": st.sampled_from([0.0, 0.3, 1.0]),
        "first": places,
    }
)
cutoffs = st.fixed_dictionaries(
    {"action": st.just("cutoff"), "min_probability": st.sampled_from([0.0, 0.2, 0.3, 0.5, 1.0])}
)
some_rules = st.lists(pins | excludes | cutoffs | boosts | caps | diversities, max_size=5)


def group_of(candidates, index, by):
    value = float(candidates.features[index, SCHEMA.index[by]])
    return None if math.isnan(value) or (by == "brand" and value == 0) else value


def breaks(cap, shown, candidates):
    """Whether more of one value stand among the cap's places than may."""
    counts = Counter(group_of(candidates, index, cap["by"]) for index in shown[: cap.get("first", 10)])
    del counts[None]
    return any(count > cap["most"] for count in counts.values())


@given(lists(), some_rules)
def test_pins_and_caps_hold_and_the_untouched_keep_their_order(ranked, rules):
    ranking, candidates = ranked
    try:
        after = ruled(ranking, candidates, rule_set(*rules))
    except CandidateError:
        assume(False)
    shown = after.results.tolist()
    assert sorted(after.order.tolist()) == list(range(len(candidates)))
    touched = {index for one in after.rules for index in one.candidates}
    assert [i for i in shown if i not in touched] == [i for i in ranking.order.tolist() if i not in touched]
    pinned = {}
    for rule in rules:
        if rule["action"] == "pin" and rule["id"] in candidates.ids:
            pinned[rule["place"] - 1] = candidates.ids.index(rule["id"])
    excluded = {i for one in after.rules if one.action in ("exclude", "cutoff") for i in one.candidates}
    assert excluded == set(range(len(candidates))) - set(shown)
    low = max((rule["min_probability"] for rule in rules if rule["action"] == "cutoff"), default=0.0)
    if ranking.probability is not None:
        for index in set(range(len(candidates))) - set(pinned.values()):
            hidden = any(index in one.candidates for one in after.rules if one.action == "exclude")
            assert (index in shown) == (not hidden and ranking.probability[index] >= low)
    moved = dict(zip(sorted(map(shown.index, pinned.values())), sorted(pinned), strict=True))
    assert all(pinned[before] == shown[now] for now, before in moved.items()), "pins keep their order"
    last = len(shown)
    for now, before in sorted(moved.items(), reverse=True):
        assert now == min(before, last - 1), "and their places, but for those that a cutoff has left no place"
        last = now
    pinned = {now: shown[now] for now in moved}
    limits = [rule for rule in rules if rule["action"] == "cap"]
    for place in set(range(len(shown))) - pinned.keys():  # nobody stands where a cap is broken while another would do
        fixed = [index for at, index in sorted(pinned.items()) if at > place]

        def fits(index, place=place):
            for cap in limits:
                if cap["first"] <= place:
                    continue
                group = group_of(candidates, index, cap["by"])
                others = shown[:place] + [pinned[at] for at in pinned if place < at < cap["first"]]
                if (
                    group is not None
                    and [group_of(candidates, i, cap["by"]) for i in others].count(group) >= cap["most"]
                ):
                    return False
            return True

        if not fits(shown[place]):
            assert not any(fits(other) for other in shown[place + 1 :] if other not in fixed)


@given(lists(), some_rules, some_rules)
def test_rules_of_a_file_never_fail_a_list(ranked, file, others):
    ranking, candidates = ranked
    try:
        first, second = (rule_set(*rules, of_request=False) for rules in (file, others))
    except CandidateError:  # seen when the file is read
        assume(False)
    after = ruled(ranking, candidates, first, second)
    shown = after.results.tolist()
    for one in after.rules:
        if one.action == "pin" and one.reason is None:
            assert one.candidates[0] in shown
        assert (one.reason is None) == bool(one.candidates)


@given(lists())
def test_rules_without_effect_give_the_very_same_ranking(ranked):
    ranking, candidates = ranked
    nothing = rule_set(
        {"action": "pin", "id": "another", "place": 90},
        {"action": "exclude", "ids": []},
        {"action": "boost", "where": {"price": {"min": 1e9}}, "factor": 9},
        {"action": "cap", "by": "brand", "most": 12},
        {"action": "diversify", "by": ["brand"], "weight": 0},
    )
    assert ruled(ranking, candidates, nothing) is ranking
    assert ruled(ranking, candidates) is ranking


@given(lists(), st.floats(1, 1e6))
def test_a_boost_and_as_large_a_bury_cancel(ranked, factor):
    ranking, candidates = ranked
    both = [{"action": action, "where": {"brand": "a"}, "factor": factor} for action in ("boost", "bury")]
    assert ruled(ranking, candidates, rule_set(*both)).order.tolist() == ranking.order.tolist()


def test_a_factor_multiplies_the_odds():
    ranking, candidates = one_list(np.log([4.0, 2.0, 1.0]))
    for factor, expected in ((3.9, [0, 2, 1]), (4.1, [2, 0, 1]), (1.9, [0, 1, 2])):
        after = ruled(ranking, candidates, rule_set({"action": "boost", "ids": ["c2"], "factor": factor}))
        assert after.order.tolist() == expected
        assert after.scores is ranking.scores
    after = ruled(ranking, candidates, rule_set({"action": "bury", "ids": ["c0"], "factor": 3}))
    assert after.order.tolist() == [1, 0, 2]


def test_below_the_cutoff_the_odds_go_on_by_the_first_stage():
    scores, first = np.array([2.0, 1.0, np.nan, np.nan]), np.array([9.0, 8.0, 5.0, 4.0])
    ranking, candidates = one_list([3.0, 2.0, 1.0, 0.0])
    ranking = replace(ranking, scores=scores, first_stage_scores=first, stage_reached="second_stage")
    for factor, expected in ((2.0, [0, 1, 2, 3]), (2.8, [0, 3, 1, 2]), (math.e**2.1, [3, 0, 1, 2])):
        after = ruled(ranking, candidates, rule_set({"action": "boost", "ids": ["c3"], "factor": factor}))
        assert after.order.tolist() == expected


def test_diversity_is_maximal_marginal_relevance():
    ranking, candidates = one_list(np.log([8.0, 7.9, 7.8, 1.0]), prices=[0, 0, 10, 5], brands=[1, 1, 1, 2])
    after = ruled(ranking, candidates, rule_set({"action": "diversify", "by": ["price", "brand"], "weight": 0.5}))
    by_hand, left = [0], [1, 2, 3]
    likeness = {frozenset((0, 1)): 1.0, frozenset((0, 2)): 0.5, frozenset((0, 3)): 0.25}
    likeness |= {frozenset((1, 2)): 0.5, frozenset((1, 3)): 0.25, frozenset((2, 3)): 0.25}
    share = np.array([8.0, 7.9, 7.8, 1.0]) / 8
    while left:
        best = max(left, key=lambda i: 0.5 * share[i] - 0.5 * max(likeness[frozenset((i, j))] for j in by_hand))
        by_hand.append(best)
        left.remove(best)
    assert after.order.tolist() == by_hand == [0, 2, 1, 3]
    assert after.rules[0].candidates == (2,)


def exact_ranks(odds, ranking, factors):
    """Order by exact odds; of equal ones, the ranker's."""
    place = {index: place for place, index in enumerate(ranking.order.tolist())}
    boosted = [one * factor for one, factor in zip(odds, factors, strict=True)]
    return sorted(place, key=lambda index: (-boosted[index], place[index])), boosted


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=10),
    st.lists(
        st.tuples(
            st.sampled_from(["boost", "bury"]), st.sampled_from([1.25, 1.5, 2, 3, 6, 7]), st.sets(ids, max_size=6)
        ),
        max_size=6,
    ),
)
@example([2, 1], [("boost", 1.5, {"c0"}), ("boost", 3, {"c1"})])
def test_boosts_order_as_exact_arithmetic_does(odds, boosts):
    ranking, candidates = one_list(np.log(odds))
    factors = [Fraction(1)] * len(odds)
    for action, factor, named in boosts:
        for index in range(len(odds)):
            if f"c{index}" in named:
                factors[index] *= Fraction(factor) if action == "boost" else 1 / Fraction(factor)
    expected, _ = exact_ranks(list(map(Fraction, odds)), ranking, factors)
    rules = [{"action": action, "factor": factor, "ids": sorted(named)} for action, factor, named in boosts]
    assert ruled(ranking, candidates, rule_set(*rules)).order.tolist() == expected


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 7), st.integers(1, 3)), min_size=2, max_size=9),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.sampled_from([1, 3]),
)
@example([(1, price, 1) for price in (0, 3, 7, 5, 1)], 1.0, 1)
def test_diversity_orders_as_exact_arithmetic_does(values, weight, factor):
    odds, prices, brands = map(list, zip(*values, strict=True))
    ranking, candidates = one_list(np.log(odds), prices, brands)
    factors = [Fraction(factor if brand == 1 else 1) for brand in brands]
    left, boosted = exact_ranks(list(map(Fraction, odds)), ranking, factors)
    best, width = max(boosted), (max(prices) - min(prices)) or 1

    def likeness(one, other):
        apart = Fraction(abs(prices[one] - prices[other]), width) + (brands[one] != brands[other])
        return 1 - apart / 2

    expected = []
    while left:
        merits = [
            Fraction(1 - weight) * boosted[index] / best
            - Fraction(weight) * max((likeness(index, other) for other in expected), default=0)
            for index in left
        ]
        expected.append(left.pop(merits.index(max(merits))))
    boost = {"action": "boost", "where": {"brand": "a"}, "factor": factor}
    diverse = {"action": "diversify", "by": ["price", "brand"], "weight": weight}
    assert ruled(ranking, candidates, rule_set(boost, diverse)).order.tolist() == expected


CONTRADICTIONS = [
    ([{"action": "pin", "id": "c0", "place": 1}, {"action": "pin", "id": "c1", "place": 1}], "place 1"),
    ([{"action": "pin", "id": "c0", "place": 1}, {"action": "pin", "id": "c0", "place": 2}], "c0"),
    ([{"action": "exclude", "ids": ["c0"]}, {"action": "pin", "id": "c0", "place": 2}], "c0"),
    ([{"action": "exclude", "where": {"price": 1}}, {"action": "pin", "id": "c0", "place": 1}], "c0"),
    ([{"action": "diversify", "by": ["price"]}, {"action": "diversify", "by": ["brand"]}], "diversify"),
    (
        [
            {"action": "cap", "by": "price", "most": 1, "first": 2},
            {"action": "pin", "id": "c0", "place": 2},
            {"action": "pin", "id": "c1", "place": 1},
        ],
        "first 2 places",
    ),
]


@pytest.mark.parametrize(("rules", "what"), CONTRADICTIONS)
@pytest.mark.parametrize("split", [0, 1])
def test_contradictions_name_both_rules(rules, what, split):
    ranking, candidates = one_list([3.0, 2.0, 1.0])
    named = [{"name": f"N{number}", **rule} for number, rule in enumerate(rules)]
    with pytest.raises(CandidateError, match=r"(?s)'N\d'.*'N\d'") as raised:  # of the request, or of it and the file
        ruled(ranking, candidates, rule_set(*named[:split], of_request=False), rule_set(*named[split:]))
    assert what in raised.value.message
    assert raised.value.path[0] == "rules"
    assert raised.value.path[1] < len(rules) - split


def test_of_two_rules_of_a_file_one_is_not_applied():
    ranking, candidates = one_list([3.0, 2.0, 1.0])
    rules = [
        {"action": "exclude", "where": {"price": {"max": 1}}},
        {"action": "pin", "id": "c0", "place": 1},
        {"action": "pin", "id": "c9", "place": 2},
    ]
    after = ruled(ranking, candidates, rule_set(*rules, of_request=False))
    assert after.results.tolist() == []
    assert [(one.name, one.reason is None) for one in after.rules] == [("file rule 1", True), ("file rule 2", False)]
    too_deep = ruled(ranking, candidates, rule_set({"action": "pin", "id": "c0", "place": 4}, of_request=False))
    assert too_deep.order.tolist() == ranking.order.tolist()
    assert "place 4" in too_deep.rules[0].reason
    with pytest.raises(CandidateError, match="place 4"):
        ruled(ranking, candidates, rule_set({"action": "pin", "id": "c0", "place": 4}))


@pytest.mark.parametrize(
    "words",
    [
        {"action": "exclude", "where": {"colour": 1}},
        {"action": "exclude", "where": {"brand": "new"}},
        {"action": "exclude", "where": {"brand": {"min": 1}}},
        {"action": "exclude", "where": {"price": "cheap"}},
        {"action": "exclude", "where": {"price": True}},
        {"action": "cap", "by": "colour", "most": 1},
        {"action": "diversify", "by": ["price", "colour"]},
    ],
)
def test_a_rule_that_the_schema_does_not_fit(words):
    with pytest.raises(SchemaMismatchError) as raised:
        rule_set(words)
    assert raised.value.path == ("rules", 0)
    ranking, candidates = one_list([1.0])
    (not_applied,) = ruled(ranking, candidates, rule_set(words, of_request=False)).rules
    assert not_applied.reason is not None


def test_ids_of_a_list_without_ids():
    ranking, candidates = one_list([1.0, 2.0])
    nameless = CandidateList(candidates.features)
    pin = {"action": "pin", "id": "c0", "place": 1}
    with pytest.raises(CandidateError, match="have none"):
        ruled(ranking, nameless, rule_set(pin))
    assert ruled(ranking, nameless, rule_set(pin, of_request=False)) is ranking


def test_there_are_limits_for_all_rules_together():
    caps = RULES.validate_python([{"action": "cap", "by": "brand", "most": 1}] * (MOST_CAPS + 1))
    values = RULES.validate_python(
        [{"action": "exclude", "where": {"price": [1] * 100}}] * (MOST_VALUES_OF_ALL // 100 + 1)
    )
    for rules in (caps, values):
        check_rules(rules[:-1], names_of(rules, "rule"))
        with pytest.raises(CandidateError, match="more than"):
            check_rules(rules, names_of(rules, "rule"))


def test_conditions_of_float32_are_inclusive():
    ranking, candidates = one_list(np.arange(7.0), prices=[0.1, 0.2, 0.3, 0.1, np.nan, 0.2, 0.4])
    low = rule_set({"action": "exclude", "where": {"price": {"min": 0.1, "max": 0.2}}})
    assert ruled(ranking, candidates, low).excluded == 4
    equal = rule_set({"action": "exclude", "where": {"price": [0.1, 0.4]}})
    assert ruled(ranking, candidates, equal).results.tolist() == [5, 4, 2, 1]


def test_what_a_cap_holds_back_comes_at_its_end_before_what_follows():
    ranking, candidates = one_list([5.0, 4.0, 3.0, 2.0, 1.0], brands=[1, 1, 2, 2, 3], prices=[1, 2, 3, 4, 5])
    short = {"action": "cap", "by": "brand", "most": 1, "first": 2}
    after = ruled(ranking, candidates, rule_set(short, {"action": "cap", "by": "price", "most": 1, "first": 5}))
    assert after.order.tolist() == [0, 2, 1, 3, 4]
    assert [one.candidates for one in after.rules] == [(1,)]


@pytest.mark.parametrize("rules", [rules for rules, _ in CONTRADICTIONS if "where" not in rules[0] and len(rules) == 2])
def test_what_contradicts_itself_in_every_list_is_seen_without_one(rules):
    parsed = RULES.validate_python(rules)
    with pytest.raises(CandidateError, match="'rule 1' and 'rule 2'"):
        check_rules(parsed, names_of(parsed, "rule"), of_request=True)


def test_two_pins_of_a_file_may_meet_in_no_list():
    ranking, candidates = one_list([3.0, 2.0, 1.0])
    pins = [{"action": "pin", "id": name, "place": 1} for name in ("c9", "c2", "c1")]
    after = ruled(ranking, candidates, rule_set(*pins, of_request=False))
    assert after.order.tolist() == [2, 0, 1]
    assert [(one.name, one.reason is None) for one in after.rules] == [("file rule 2", True), ("file rule 3", False)]
    places = [{"action": "pin", "id": "c1", "place": place} for place in (9, 1)]
    assert ruled(ranking, candidates, rule_set(*places, of_request=False)).order.tolist() == [1, 0, 2]


def test_a_request_compares_no_more_than_its_share():
    ranking, candidates = one_list(np.arange(1000.0), prices=np.arange(1000.0))
    rules = [{"action": "boost", "where": {"price": [1.0] * 99}, "factor": 2}] * 5
    assert len(ruled(ranking, candidates, rule_set(*rules)).rules) == 5
    assert MOST_COMPARISONS == 1000 * 500
    with pytest.raises(CandidateError, match="comparisons") as raised:
        ruled(ranking, candidates, rule_set(*rules, {"action": "cap", "by": "price", "most": 1}))
    assert raised.value.path == ("rules",)
    ruled(ranking, candidates, rule_set(*rules * 4, of_request=False))
