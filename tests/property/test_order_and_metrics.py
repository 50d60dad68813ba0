"""True of every list: what an order and a metric keep, whatever the input."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from listwright.ranking.metrics import (
    EvalProtocol,
    JudgedLists,
    QueryNdcg,
    dcg,
    hit,
    ndcg,
    precision,
    reciprocal_rank,
)
from listwright.ranking.order import rank_by_score, ranks_of, refined_order, relevance, sort_keys
from support.one_list import average_precision, define, expected_reciprocal_rank
from support.strategies import CUTOFFS, judged_lists, permuted, score_lists


@given(score_lists())
def test_scores_fall_along_the_order_and_ties_keep_input_order(scores):
    order = rank_by_score(scores)
    for better, worse in pairwise(order):
        assert (-scores[better], better) < (-scores[worse], worse)


@given(score_lists())
def test_ranks_invert_the_order(scores):
    order = rank_by_score(scores)
    ranks = ranks_of(order)
    assert sorted(ranks) == list(range(1, len(scores) + 1))
    assert (rank_by_score(-ranks.astype(np.float64)) == order).all()


@given(score_lists(), st.integers(0, 24))
def test_nan_ranks_below_every_number_and_moves_nobody_else(scores, position):
    position %= len(scores)
    broken = scores.copy()
    broken[position] = np.nan
    others = [i for i in rank_by_score(scores) if i != position]
    assert rank_by_score(broken).tolist() == [*others, position]


@given(score_lists(), st.integers(-8, 8), st.integers(-3, 3))
def test_order_sees_neither_shift_nor_scale(scores, shift, power):
    assert (rank_by_score(scores * 2.0**power + shift) == rank_by_score(scores)).all()


@given(judged_lists(), CUTOFFS)
def test_ranking_by_label_is_perfect(judged, cutoff):
    _, labels = judged
    assume(labels.any())
    assert ndcg(labels.astype(np.float32), labels, cutoff=cutoff) == pytest.approx(1.0)


@given(judged_lists(), CUTOFFS)
def test_ndcg_lies_between_zero_and_one_or_is_nan_without_a_relevant_candidate(judged, cutoff):
    scores, labels = judged
    value = ndcg(scores, labels, cutoff=cutoff)
    if labels.any():
        assert 0.0 <= value <= 1.0 + 1e-12
    else:
        assert np.isnan(value)


def of_all(scores, labels, cutoff):
    """Every metric of one list."""
    found = [metric(scores, labels, cutoff=cutoff) for metric in (ndcg, precision, hit, expected_reciprocal_rank)]
    return np.nan_to_num([*found, reciprocal_rank(scores, labels), average_precision(scores, labels)])


@given(permuted(judged_lists()), CUTOFFS)
def test_metrics_do_not_see_input_order(drawn, cutoff):
    (scores, labels), permutation = drawn
    found = of_all(scores[permutation], labels[permutation], cutoff)
    assert found == pytest.approx(of_all(scores, labels, cutoff))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=6), CUTOFFS)
def test_metrics_are_means_over_all_orders_of_equal_scores(rows, cutoff):
    scores, labels = np.array(rows, dtype=np.float64)[:, 0], np.array(rows)[:, 1]
    orders = [np.array(order) for order in permutations(range(len(rows))) if (np.diff(scores[list(order)]) <= 0).all()]
    each = [of_all(-ranks_of(order).astype(np.float64), labels, cutoff) for order in orders]
    assert of_all(scores, labels, cutoff) == pytest.approx(np.mean(each, axis=0), abs=1e-12)


@given(st.lists(judged_lists(), min_size=1, max_size=5), CUTOFFS)
def test_ndcg_of_many_queries_is_that_of_each(queries, cutoff):
    scores, labels = (np.concatenate(parts) for parts in zip(*queries, strict=True))
    offsets = np.cumsum([0, *(len(one) for one, _ in queries)])
    found = QueryNdcg(labels, offsets, cutoff=cutoff).of(scores)
    assert found == pytest.approx(np.nan_to_num([ndcg(*one, cutoff=cutoff) for one in queries]))

    assert found == pytest.approx(np.nan_to_num([ndcg(*one, cutoff=cutoff) for one in queries]))


@given(st.lists(judged_lists(), min_size=1, max_size=5), CUTOFFS, st.data())
def test_metrics_of_many_lists_are_their_definitions_for_each(queries, cutoff, data):
    scores, labels = (np.concatenate(parts) for parts in zip(*queries, strict=True))
    offsets = np.cumsum([0, *(len(one) for one, _ in queries)])
    flags = st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))
    scores[data.draw(flags)] = np.nan
    kept = np.array(data.draw(st.none() | flags))
    kept = kept if kept.shape else None
    gains = data.draw(st.sampled_from([None, (0.0, 1.0, 2.5, 2.5, 4.0), (1.0, 0.0, 3.0, 7.0, 15.0)]))
    names = [f"{kind}@{depth}" for kind in ("ndcg", "hit", "precision", "err") for depth in (1, cutoff)]
    found = JudgedLists(labels, offsets, kept=kept, gains=gains).measure([*names, "mrr", "map"], scores)
    for n, rows in enumerate(map(slice, offsets, offsets[1:])):
        of_ideal = None if kept is None else kept[rows]
        for name, values in found.items():
            expected = define(name, scores[rows], labels[rows], kept=of_ideal, gains=gains)
            assert values[n] == pytest.approx(expected, abs=1e-12, nan_ok=True), name


@given(judged_lists(), st.data())
def test_sort_keys_order_as_the_two_stages_do_and_tie_where_their_scores_do(judged, data):
    first, _ = judged
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(first), max_size=len(first))))
    second = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(kept), max_size=len(kept))), dtype=np.float64)
    keys = sort_keys(second, kept, first)
    assert rank_by_score(keys).tolist() == refined_order(second, kept, rank_by_score(first)).tolist()
    assert len(np.unique(keys)) == len(np.unique(second)) + len(np.unique(np.delete(first, kept)))


@given(judged_lists(lengths=st.integers(2, 25)), st.integers(0, 23), CUTOFFS)
def test_putting_a_pair_right_never_lowers_dcg(judged, position, cutoff):
    _, labels = judged
    position %= len(labels) - 1
    upper, lower = labels[position], labels[position + 1]
    righted = labels.copy()
    righted[position : position + 2] = max(upper, lower), min(upper, lower)
    assert dcg(righted, cutoff=cutoff) >= dcg(labels, cutoff=cutoff)


@given(judged_lists(), CUTOFFS)
def test_a_cutoff_beyond_the_list_changes_nothing_but_precision(judged, beyond):
    scores, labels = judged
    length = len(labels)
    for metric in (ndcg, hit):
        assert metric(scores, labels, cutoff=length + beyond) == pytest.approx(
            metric(scores, labels, cutoff=length), nan_ok=True
        )
    relevant = precision(scores, labels, cutoff=length) * length
    assert precision(scores, labels, cutoff=length + beyond) == pytest.approx(relevant / (length + beyond))


@given(judged_lists(), CUTOFFS)
def test_hit_precision_and_reciprocal_rank_agree(judged, cutoff):
    scores, labels = judged
    distinct = -ranks_of(rank_by_score(scores)).astype(np.float64)
    found = hit(distinct, labels, cutoff=cutoff)
    assert found == (precision(distinct, labels, cutoff=cutoff) > 0)
    assert found == (reciprocal_rank(distinct, labels) >= 1 / cutoff)


@given(judged_lists(), CUTOFFS, st.data())
def test_a_truncated_ideal_is_never_above_the_full_one(judged, cutoff, data):
    scores, labels = judged
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))))
    truncated = ndcg(scores, labels, cutoff=cutoff, kept=kept)
    assume(not np.isnan(truncated))
    assert truncated >= ndcg(scores, labels, cutoff=cutoff)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=20))
def test_conventions_differ_only_in_what_an_empty_query_counts(values):
    per_query = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    empty = int(np.isnan(per_query).sum())
    as_zero, as_one, dropped = (EvalProtocol(empty_queries=choice).apply(per_query) for choice in (0, 1, "drop"))
    assert len(as_zero) == len(as_one) == len(dropped) + empty
    assert as_zero.sum() == pytest.approx(dropped.sum())
    assert as_one.sum() == pytest.approx(dropped.sum() + empty)


@given(score_lists(), st.floats(1e-100, 1e40), st.integers(0, 24))
def test_no_temperature_changes_an_order_and_shares_add_up_to_1(scores, temperature, unscored):
    """What is not scored keeps no share; equal shares may stand for scores that differ by next to nothing."""
    broken = np.append(scores, [np.nan] * unscored).astype(np.float64)
    shares = relevance(broken, temperature)
    assert np.isnan(shares[len(scores) :]).all()
    assert shares[: len(scores)].sum() == pytest.approx(1.0)
    by_score = shares[rank_by_score(broken)][: len(scores)]
    assert (np.diff(by_score) <= 0.0).all()
    assert relevance(broken).tolist()[: len(scores)] == relevance(broken, 1.0).tolist()[: len(scores)]
