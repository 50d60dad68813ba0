"""What other candidates do to a utility: planted on demand, and gone with the candidate that causes it."""

import numpy as np
import pytest
from pydantic import ValidationError

from listwright.training.data.synthetic.planted import NEAR, context_effects, generate
from listwright.training.recipe.data import SyntheticData

BETTER = np.array([[-5.0, 1.0, 1.0], [0.0, 0.7, 0.6], [0.0, 1.0 - NEAR, 0.9], [0.0, -3.0, 2.0]])
KINDS = np.array([0, 0, 1, 1])


def effects(better=BETTER, kinds=KINDS, offsets=None, **strengths):
    return context_effects(
        SyntheticData(**strengths), better, kinds, np.array([0, len(better)]) if offsets is None else offsets
    ).tolist()


def made(**changes):
    spec = SyntheticData(queries=60, min_length=2, max_length=12, shift=0.0, missing=0.0, **changes)
    return generate(spec, np.random.default_rng(4))


def test_a_decoy_is_near_and_worse_in_both_features():
    """Of the last two: row 1 lies below row 0; row 2 too far below it in one feature; row 3 is better in one."""
    assert effects(decoy=2.0) == [2.0, 0.0, 0.0, 0.0]
    assert effects(better=BETTER[[0, 2, 3]], kinds=KINDS[[0, 2, 3]], decoy=2.0) == [0.0, 0.0, 0.0]
    assert effects(better=BETTER[[0, 0]], kinds=KINDS[:2], decoy=2.0) == [0.0, 0.0]  # equal is not worse


def test_candidates_of_one_kind_take_from_each_other():
    assert effects(similarity=1.5) == [-1.5] * 4
    assert effects(kinds=np.array([0, 0, 0, 1]), similarity=1.0) == [-np.log2(3)] * 3 + [0.0]


def test_the_best_offer_of_a_kind_draws_attention():
    assert effects(cheapest=0.5) == [0.5, 0.0, 0.0, 0.5]
    assert effects(kinds=np.array([0, 0, 0, 1]), cheapest=0.5) == [0.5, 0.0, 0.0, 0.0]  # nothing to compare row 3 with
    assert effects(better=BETTER[[0, 0]], kinds=KINDS[:2], cheapest=0.5) == [0.5, 0.5]


def test_lists_do_not_see_each_other():
    strengths = {"decoy": 1.0, "similarity": 1.0, "cheapest": 1.0}
    apart = effects(BETTER[:1], KINDS[:1], **strengths) + effects(BETTER[1:], KINDS[1:], **strengths)
    assert effects(offsets=np.array([0, 1, 4]), **strengths) == apart != effects(**strengths)
    assert apart[0] == 0.0


@pytest.mark.parametrize("groups", [1, 3])
def test_without_strength_there_is_no_effect_and_the_data_stay_as_they_were(groups):
    (plain, without), (shown, truth) = made(groups=groups), made(groups=groups, decoy=2.0, similarity=1.0, cheapest=1.0)
    assert (without.context == 0.0).all()
    assert np.array_equal(plain.features, shown.features)
    assert np.allclose(truth.utilities - truth.context, without.utilities, rtol=0.0, atol=1e-12)
    assert plain.labels.tolist() != shown.labels.tolist()


@pytest.mark.parametrize("effect", ["decoy", "similarity", "cheapest"])
def test_utilities_change_when_a_candidate_is_removed(effect):
    """The same candidates without one of them: others gain or lose, which no column of their own can tell."""
    data, truth = made(**{effect: 2.0})
    better = data.features[:, :12] * np.sign(truth.weights[0])
    kinds = data.features[:, 12].astype(int)
    changed = 0
    for n in range(len(data)):
        rows = data.slice(n)
        left = effects(better[rows][1:], kinds[rows][1:], **{effect: 2.0})
        changed += left != truth.context[rows][1:].tolist()
    assert changed > len(data) / 10


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"decoy": 1.0, "numeric": 1}, "decoy = 1 compares two numeric features: raise numeric"),
        ({"similarity": 0.5, "categorical": 0}, "similarity = 0.5 looks at the first category: raise categorical"),
        ({"cheapest": 2.0, "categorical": 0}, "cheapest = 2 looks at the first category: raise categorical"),
        ({"decoy": -1.0}, "greater than or equal to 0"),
    ],
)
def test_an_effect_needs_its_features(wrong, says):
    with pytest.raises(ValidationError, match=says):
        SyntheticData(**wrong)
