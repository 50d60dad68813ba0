"""Inputs for the property tests: short lists, often with ties, in every shape that the kernel must take."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

CUTOFFS = st.integers(1, 30)
LENGTHS = st.integers(1, 25)


def scale_examples(count):
    """Scale the number of examples that ``make nightly`` takes to the profile in use."""
    return max(1, count * settings.default.max_examples // settings.get_profile("nightly").max_examples)


# Multiples of 1/4: equal scores are common, and adding or scaling by a power of two is exact.
_SCORES = st.integers(-400, 400).map(lambda quarter: quarter / 4)


@st.composite
def score_lists(draw, lengths=LENGTHS):
    """``(L,)`` float32 scores with frequent ties."""
    length = draw(lengths)
    return draw(hnp.arrays(np.float32, length, elements=_SCORES.map(np.float32)))


@st.composite
def judged_lists(draw, lengths=LENGTHS):
    """``(L,)`` scores with frequent ties and ``(L,)`` relevance labels 0 to 4."""
    scores = draw(score_lists(lengths))
    labels = draw(hnp.arrays(np.int64, len(scores), elements=st.integers(0, 4)))
    return scores, labels


@st.composite
def permuted(draw, lists):
    """One of ``lists`` (a tuple of ``(L,)`` arrays) and a permutation of its candidates."""
    arrays = draw(lists)
    permutation = np.array(draw(st.permutations(range(len(arrays[0])))), dtype=np.int64)
    return arrays, permutation
