"""Estimators on tiny lists: values computed by hand, and expectations over all click outcomes."""

from itertools import permutations, product

import numpy as np
import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.traffic.estimate.estimate import values_by_estimator
from listwright.training.traffic.estimate.estimators import (
    LoggedLists,
    cascade_lists,
    fit_attraction,
    value_lists,
)

P = np.array([1.0, 0.5, 0.25])
DISCOUNT = 1.0 / np.log2(np.arange(3) + 2.0)


class Valued:
    """Values of a single other order."""

    def __init__(self, values):
        self.__dict__.update({name: value[:, 0] for name, value in values.items()})


def one_list(clicks, attraction, places=(0, 1, 2)):
    return LoggedLists(
        np.array([0, len(places)]), np.array(places), np.array(clicks, bool), np.array(attraction, float)
    )


def valued(lists, new, *, weights=P, clip=0.0):
    return Valued(value_lists(lists, np.array(new)[:, None], propensities=P, weights=weights, clip=clip))


def self_normalised(values):
    """The self-normalised values of one order, by list."""
    log = {
        name: getattr(values, name)[:, None] for name in ("ips", "dm", "dr", "known", "inverse", "filled", "missing")
    }
    return values_by_estimator(log)["snips"][1, :, 0]


def outcomes(chances):
    """All patterns of clicks, with their probabilities."""
    for clicks in product([0, 1], repeat=len(chances)):
        yield clicks, float(np.prod([q if c else 1.0 - q for c, q in zip(clicks, chances, strict=True)]))


def expected(chances, of):
    return sum(share * of(clicks) for clicks, share in outcomes(chances))


def test_values_by_hand():
    """Places 1, 2, 3 become 3, 1, 2; the candidate at place 2 is clicked."""
    values = valued(one_list([0, 1, 0], [0.4, 0.2, 0.8]), [2, 0, 1])
    assert values.ips == pytest.approx([1.0 / 0.5])
    assert values.dm == pytest.approx([0.25 * 0.4 + 1.0 * 0.2 + 0.5 * 0.8])
    assert values.dr == pytest.approx(values.ips), "each candidate has one logged place, so the model cancels"
    assert values.inverse == pytest.approx([2.0])
    assert values.known == pytest.approx([1.4])
    assert self_normalised(values) == pytest.approx([1.4 * 2.0 / 2.0])
    assert values.weight == pytest.approx([1.75])
    assert values.missing == pytest.approx([0.0])
    assert values.by_place[0] == pytest.approx(np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 0.0]]))
    assert (values.squares, values.largest) == (4, 2)


def test_a_clipped_propensity_leaves_the_rest_to_the_model():
    """The clip 0.5 doubles the propensity of place 3, so half of its weight is the model's."""
    values = valued(one_list([0, 0, 1], [0.4, 0.2, 0.8]), [2, 1, 0], clip=0.5)
    assert values.ips == pytest.approx([1.0 / 0.25])
    assert values.dr == pytest.approx([1.0 / 0.5 + 0.5 * 0.8])
    assert values.by_place[0] == pytest.approx(np.array([[0.0, 0.0, 4.0], [4.0, 0.0, 0.0]])), "of ips"


def test_the_discounted_gain_of_a_clicked_candidate():
    values = valued(one_list([0, 1, 0], [0.4, 0.2, 0.8]), [2, 0, 1], weights=DISCOUNT)
    assert values.ips == pytest.approx([1.0 / 0.5])
    assert values.dm == pytest.approx([DISCOUNT[2] * 0.4 + 0.2 + DISCOUNT[1] * 0.8])


@pytest.mark.parametrize("weights", [P, DISCOUNT], ids=["clicks", "gain"])
@pytest.mark.parametrize("new", list(permutations(range(3))))
def test_unbiased_over_all_clicks(new, weights):
    truth, wrong = np.array([0.6, 0.3, 0.8]), [0.1, 0.9, 0.5]
    value = float(weights[list(new)] @ truth)
    for kind in ("ips", "dr"):
        found = expected(
            P * truth, lambda clicks, kind=kind: getattr(valued(one_list(clicks, wrong), new, weights=weights), kind)[0]
        )
        assert found == pytest.approx(value)
    assert valued(one_list([0, 0, 0], truth), new, weights=weights).dm[0] == pytest.approx(value)


@pytest.mark.parametrize("new", list(permutations(range(3))))
@pytest.mark.parametrize("predicted", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.5, 0.1, 0.9)])
def test_a_clipped_value_needs_a_right_model_below_the_clip_alone(new, predicted):
    truth = np.array([0.6, 0.3, 0.8])
    lower = np.array([*predicted[:2], truth[2]])
    found = expected(P * truth, lambda clicks: valued(one_list(clicks, lower), new, clip=0.4).dr[0])
    assert found == pytest.approx(float(P[list(new)] @ truth))
    exact = expected(P * truth, lambda clicks: valued(one_list(clicks, truth), new, clip=0.4).dr[0])
    assert exact == pytest.approx(float(P[list(new)] @ truth)), "a right model needs no propensity above the clip"


def test_the_logged_order_has_its_logged_clicks():
    for clicks in product([0, 1], repeat=3):
        assert valued(one_list(clicks, [0.4, 0.2, 0.8]), [0, 1, 2]).ips == pytest.approx([sum(clicks)])


def test_predictions_of_candidates_without_clicks_vary_with_the_propensity_of_their_new_place():
    values = valued(one_list([1, 0], [0.4, 0.6], (0, 3)), [1, 0])
    assert values.by_place[0] == pytest.approx(np.array([[0.5, 0.0, 0.0], [0.6, 0.5, 0.0]]))


@pytest.mark.parametrize("new", list(permutations(range(4))))
def test_bounds_contain_the_truth_of_candidates_without_clicks(new):
    """The fourth candidate was not shown; only the first three places count."""
    truth = np.array([0.6, 0.3, 0.8, 0.7])
    value = float(np.append(P, 0.0)[list(new)] @ truth)

    def ends(clicks):
        values = valued(one_list([*clicks, 0], [0.5, 0.5, 0.5, 0.5], (0, 1, 2, 3)), new)
        return np.array([values.dr[0], values.dr[0] + values.filled[0], values.dr[0] + values.missing[0]])

    low, middle, high = expected(P * truth[:3], ends)
    assert low - 1e-12 <= value <= high + 1e-12
    assert low <= middle <= high
    assert (high - low) == pytest.approx(np.append(P, 0.0)[new[3]])


def cascade_value(attraction, weights):
    rest = 0.0
    for g, weight in zip(attraction[::-1], weights[::-1], strict=True):
        rest = g * weight + (1.0 - g) * rest
    return rest


@pytest.mark.parametrize("weights", [np.ones(3), DISCOUNT], ids=["clicks", "gain"])
@pytest.mark.parametrize("new", list(permutations(range(3))))
def test_the_cascade_of_a_right_model_is_exact(new, weights):
    truth = np.array([0.6, 0.3, 0.8])
    chances = [0.6, 0.4 * 0.3, 0.4 * 0.7 * 0.8]
    patterns = [((0, 0, 0), 1.0 - sum(chances)), *zip(np.eye(3, dtype=int).tolist(), chances, strict=True)]
    by_place = truth[np.argsort(new)]

    def mean(attraction):
        return sum(
            share * cascade_lists(one_list(clicks, attraction), np.array(new), weights=weights)[0]
            for clicks, share in patterns
        )

    value = cascade_value(by_place, weights)
    assert mean(truth) == pytest.approx(value)
    near = truth + np.array([0.02, -0.02, 0.02])
    alone = cascade_value(near[np.argsort(new)], weights)
    if tuple(new) != (0, 1, 2):
        assert abs(mean(near) - value) < max(1e-3, abs(alone - value)), "the error of the model falls to second order"


def test_lists_are_valued_apart():
    """Two lists at once are each as alone, whatever their lengths."""
    long, short = one_list([0, 1, 0], [0.4, 0.2, 0.8]), one_list([1, 0], [0.3, 0.1], (0, 1))
    both = LoggedLists(np.array([0, 3, 5]), *(np.concatenate([a, b]) for a, b in zip(long[1:], short[1:], strict=True)))
    new = np.array([2, 0, 1, 1, 0])
    together, alone = valued(both, new), (valued(long, new[:3]), valued(short, new[3:]))
    for name in ("ips", "dm", "dr", "inverse", "missing", "known"):
        assert getattr(together, name) == pytest.approx(np.concatenate([getattr(one, name) for one in alone]))
    cascades = [
        cascade_lists(lists, places, weights=np.ones(3)) for lists, places in ((long, new[:3]), (short, new[3:]))
    ]
    assert cascade_lists(both, new, weights=np.ones(3)) == pytest.approx(np.concatenate(cascades))


def test_self_normalised_values_are_bounded():
    """One click at the last place counts the attraction of a list, not 1 / p clicks."""
    values = valued(one_list([0, 0, 1], [0.1, 0.1, 0.1]), [2, 1, 0])
    assert values.ips == pytest.approx([4.0])
    assert self_normalised(values) == pytest.approx([0.3])
    assert self_normalised(valued(one_list([0, 0, 0], [0.1, 0.1, 0.1]), [2, 1, 0])) == pytest.approx([0.0])


def test_self_normalised_values_vary_as_the_ratio():
    """The sum of each list's value and what leaving it out changes, to first order."""
    rng = np.random.default_rng(0)
    count = 2000
    clicks = rng.random((count, 3)) < P * 0.3
    lists = LoggedLists(
        np.arange(0, 3 * count + 1, 3), np.tile([0, 1, 2], count), clicks.ravel(), np.full(3 * count, 0.6)
    )
    values = valued(lists, np.tile([2, 0, 1], count))
    linear = self_normalised(values)
    ratio = values.known.mean() * values.ips.sum() / values.inverse.sum()
    assert linear.mean() == pytest.approx(ratio)
    without = [
        values.known.mean() * np.delete(values.ips, n).sum() / np.delete(values.inverse, n).sum() for n in range(20)
    ]
    assert (count - 1) * (ratio - np.array(without)) == pytest.approx(linear[:20] - ratio, abs=0.04)


def test_features_that_never_differ_are_refused():
    with pytest.raises(RecipeError, match="no feature"):
        fit_attraction(np.zeros((8, 2), np.float32), np.arange(8) % 2 == 0, np.ones(8))
