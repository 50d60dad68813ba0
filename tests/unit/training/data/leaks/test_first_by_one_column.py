"""A column that alone puts the choice first in nearly all lists is pointed out; one that is only good is not."""

import numpy as np
import pytest

from support.lists import lists
from support.training.leaks import NAN, found, only

MANY = lists(queries=400, shortest=4)
MANY_QUERY, MANY_LABELS = MANY[1], MANY[3]
MANY_NOISE = MANY[4].normal(size=len(MANY_QUERY))
HONEST = MANY_QUERY >= 8  # lists that do not give their choice away: 2 % do not
EIGHT_WRONG = np.where(HONEST, MANY_LABELS, 0)
FIRSTS = {
    "the largest of the list": 10.0 * EIGHT_WRONG + np.abs(MANY_NOISE),
    "the smallest of the list": MANY_NOISE + MANY_QUERY - 50.0 * EIGHT_WRONG,
    "present": np.where(EIGHT_WRONG > 0, MANY_NOISE, NAN),
    "missing": np.where(EIGHT_WRONG > 0, NAN, MANY_NOISE),
}


def graded(labels):
    """The label 2 for what was chosen, and noise below: few columns order the whole list."""
    below = MANY[4].integers(0, 2, len(labels))
    return (*MANY[:3], np.where(labels > 0, 2, below).astype(np.int32), MANY[4])


@pytest.mark.parametrize("kind", FIRSTS)
def test_a_column_that_puts_the_choice_first_in_nearly_all_lists(kind):
    said = only(found("x", FIRSTS[kind], of=graded(MANY_LABELS)))
    count = int(said.split(" first in ")[1].split(" of 400 ")[0])
    assert 392 <= count <= 396, "by chance some of the eight, too"
    assert said.startswith("'x' alone puts a candidate with the highest label first in")
    assert f"a random order in {(1 / MANY[0]).sum():.0f}. " in said
    assert said.endswith("leave it out with --ignore x")


def test_a_category_of_many_that_stands_for_the_choice():
    codes = np.where(EIGHT_WRONG > 0, 7, MANY[4].integers(8, 300, len(MANY_QUERY)))
    said = only(found("shop", codes, categories=tuple(f"s{n}" for n in range(300)), of=graded(MANY_LABELS)))
    assert "highest label first in 39" in said


@pytest.mark.parametrize(("wrong", "told"), [(15, True), (40, False)])
def test_a_column_that_is_only_good_is_not_told_of(wrong, told):
    column = np.where(wrong <= MANY_QUERY, MANY_LABELS, -MANY_LABELS) + 0.4 * np.tanh(MANY_NOISE)
    said = found("x", column, of=graded(MANY_LABELS))
    assert ["first in 385 of 400" in text for text in said] == [True] * told


def test_putting_the_highest_label_first_is_no_feat_where_most_have_it():
    lengths, query, place, one, rng = lists(queries=400, shortest=30, longest=40)
    of = lengths, query, place, 1 - one, rng
    assert found("x", rng.normal(size=len(query)), of=of) == []
