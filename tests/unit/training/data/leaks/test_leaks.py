"""Columns that give an order away are pointed out with a figure; columns that only look a little like it are not."""

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Rounding
from listwright.training.data.leaks import FEWEST, NEARLY, ListFacts, leaks
from listwright.training.data.load import load
from listwright.training.recipe import config
from support.lists import QUERIES, lists
from support.training.leaks import NAN, TABLE, found, only

LENGTHS, QUERY, PLACE, LABELS, RNG = lists()
ROWS = len(QUERY)
NOISE = RNG.normal(size=ROWS)
RANDOM_QUERY = RNG.permutation(QUERIES)
HOURS = 3600.0 * np.arange(QUERIES)[QUERY]


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("searched_at", 1.7e9 + 3600.0 * RANDOM_QUERY[QUERY], "seconds since 1970 in 40 of 40 training queries"),
        ("eventTime", 1.7e12 + NOISE, "milliseconds since 1970 in 40 of 40"),
        ("ts", 1.7e15 + NOISE, "microseconds since 1970 in 40 of 40"),
        ("DATE", 20240100 + RANDOM_QUERY[QUERY], "YYYYMMDD in 40 of 40"),
        ("timestamp", np.where(QUERY == 3, 5.0, 1.7e9), "seconds since 1970 in 39 of 40"),
        ("date", QUERY // 2, "it goes one way in 39 of 39 steps from one training query to the next"),
        ("log-time", -HOURS, "it goes one way in 39 of 39 steps"),
    ],
)
def test_numbers_that_look_like_a_time(name, column, says):
    said = only(found(name, column))
    assert said.startswith(f"{name!r} looks like a time: {says}")
    assert said.endswith(f"leave it out with --ignore {name}, or split by it with --split time --time-column {name}")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("searched_at", RANDOM_QUERY[QUERY] + NOISE),
        ("dep_time", RNG.integers(0, 86_400, ROWS)),
        ("update", 1.7e9 + NOISE),
        ("rate_at_k", 1.7e9 + NOISE),
        ("at", 1.7e9 + NOISE),
        ("price", np.sort(NOISE)),
        ("time", np.where(QUERY < 4, 5.0, 1.7e9) + NOISE),
        ("date", (QUERY // 10) + NOISE * 0 + PLACE % 2 * 0.5),
    ],
)
def test_numbers_that_do_not(name, column):
    assert found(name, column) == []


def test_categories_that_read_as_dates():
    days = tuple(f"2024-01-{day:02}" for day in range(1, 31))
    said = only(found("day", RNG.integers(1, 31, ROWS), categories=days))
    assert said.startswith("'day' looks like a time: 30 of its 30 values read as dates")
    assert found("day", RNG.integers(1, 31, ROWS), categories=tuple(f"day {n}" for n in range(30))) == []


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["position", "x"])
def test_a_column_that_counts_the_candidates(name, first):
    column = PLACE + first
    assert only(found(name, column)).startswith(
        f"{name!r} counts the candidates in row order in 40 of 40 training lists of two or more"
    )
    column = np.where(QUERY == 7, PLACE[::-1] + 20, column)
    assert "in 39 of 40" in only(found(name, column))


def test_what_only_begins_to_count_is_no_position():
    assert found("x", np.where(QUERY % 5 == 0, PLACE % 2, PLACE)) == []
    assert found("x", np.minimum(PLACE, 3)) == []


@pytest.mark.parametrize("name", ["position", "Rank", "pos", "result_position", "displayRank", "search-position"])
def test_a_column_that_is_named_like_a_position(name):
    shuffled = np.concatenate([RNG.permutation(length) + 3 for length in LENGTHS])
    assert only(found(name, shuffled)).startswith(
        f"{name!r} is named like a position, and differs by candidate in 40 of 40 training lists of two or more"
    )


def test_a_value_may_end_one_list_and_begin_the_next():
    column = PLACE + np.repeat(np.cumsum(LENGTHS - 1) - LENGTHS + 1, LENGTHS)
    assert "differs by candidate in 40 of 40" in only(found("rank", column))
    assert "differs by candidate in 39 of 40" in only(found("rank", np.where(QUERY == 3, 5, column)))


@pytest.mark.parametrize("name", ["page_rank", "composition", "rank_score", "post", "ranking"])
def test_names_that_only_sound_like_it(name):
    assert found(name, NOISE) == []


def test_a_job_may_be_called_a_position():
    assert found("position", RNG.integers(1, 4, ROWS), categories=("chef", "cook", "waiter")) == []


ORDERS = {
    "a copy": LABELS,
    "falling": -3.0 * LABELS,
    "with noise below the step": LABELS + 0.4 * np.tanh(NOISE),
    "in other places per list": LABELS + 100.0 * RANDOM_QUERY[QUERY],
    "only where relevant": np.where(LABELS > 0, NOISE, NAN),
    "only where irrelevant": np.where(LABELS > 0, NAN, NOISE),
}


@pytest.mark.parametrize("kind", ORDERS)
def test_a_column_that_alone_orders_by_label(kind):
    said = [text for text in found("x", ORDERS[kind]) if "alone orders" in text]
    assert only(said).startswith("'x' alone orders 40 of 40 training queries by their labels without a mistake")


def test_two_mistakes_in_forty_are_few_and_three_are_not():
    for wrong, known in ((2, True), (3, False)):
        column = np.where(wrong > QUERY, -1.0, 1.0) * LABELS
        assert [text[:26] for text in found("x", column)] == ["'x' alone orders 38 of 40 "] * known


def test_graded_labels_must_be_in_order_as_a_whole():
    lengths, query, place, _, rng = lists(shortest=4)
    of = (lengths, query, place, (place % 4).astype(np.int32), rng)
    assert "alone orders 40 of 40" in only(found("x", (place % 4) + 0.5 * rng.random(len(query)), of=of))
    best_missing = np.where(place % 4 == 3, NAN, place % 4)
    assert "alone orders 40 of 40" in only(found("x", best_missing + 0.5 * rng.random(len(query)), of=of))
    swapped = np.array([0, 1, 3, 2])[place % 4]
    assert found("x", swapped + 0.5 * rng.random(len(query)), of=of) == []


def test_categories_order_by_their_mean_label_unless_they_are_many():
    booked = np.where(LABELS > 0, RNG.choice([1, 3], ROWS), 2)
    said = only(found("state", booked, categories=("booked", "none", "paid")))
    assert "alone orders 40 of 40" in said
    many = np.where(LABELS > 0, 31, RNG.integers(1, 31, ROWS))
    said = only(found("shop", many, categories=tuple(f"s{n:02}" for n in range(31))))
    assert "alone puts a candidate with the highest label first in 40 of 40" in said
    rare = np.arange(ROWS) // 2 + 1  # each says much of the two rows that it stands in, and nothing of others
    assert not any("first in" in text for text in found("x", rare, categories=tuple(map(str, range(rare.max())))))
    assert found("kind", RNG.integers(1, 3, ROWS), categories=("a", "b")) == []


@pytest.mark.parametrize(
    "column", [np.arange(ROWS), RNG.permutation(ROWS) + 500, 2.0e9 + 4096.0 * RNG.permutation(ROWS * 20)[:ROWS]]
)
def test_numbers_that_tell_rows_apart(column):
    said = only(found("x", column))
    assert said == (
        f"'x' has {ROWS} different values in {ROWS} training rows, none of them twice in 40 of 40 lists of two or more. It "
        "looks like an id: leave it out with --ignore x"
    )


def test_a_repeat_in_one_list_is_counted():
    column = np.arange(ROWS)
    column[1] = 0
    assert f"has {ROWS - 1} different values in {ROWS} training rows, none of them twice in 39 of 40" in only(
        found("x", column)
    )


def test_words_that_tell_rows_apart_are_told_of_once():
    names = tuple(f"r{n:04}" for n in range(ROWS))
    of = lists()
    assert only(found("x", RNG.permutation(ROWS) + 1, categories=names, of=of)).startswith(f"'x' has {ROWS} different")


@pytest.mark.parametrize(
    "column",
    [
        NOISE,
        100.0 * NOISE,
        RNG.integers(0, ROWS * 50, ROWS),  # as prices in cents: few of them meet by chance
        RNG.integers(0, ROWS, ROWS),
        np.exp(3.0 * NOISE).round(),
        np.where(NOISE > 0, np.arange(ROWS), 0),
    ],
)
def test_numbers_that_may_differ_by_chance(column):
    assert found("x", column) == []


def test_ids_that_float32_cannot_tell_apart():
    said = only(found("x", NOISE, rounding=(Rounding("x", 9000, 90, 9001, looks_like_id=True),)))
    assert "has 9000 different whole numbers in 9001 rows, more than float32 tells apart" in said


def test_query_level_columns_are_told_of_together():
    lengths, query, _, labels, rng = of = lists(shortest=1)
    data = np.stack([rng.normal(size=QUERIES)[query], rng.integers(0, 3, QUERIES)[query], np.ones(len(query)), rng.normal(size=len(query))], axis=1)  # fmt: skip
    data[query == 3, 0] = NAN
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in ("season", "days", "always", "price")))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    train = Dataset(data.astype(np.float32), labels, offsets, tuple(map(str, range(QUERIES))), schema)
    (one,) = leaks(train, TABLE)
    longer = int((lengths > 1).sum())
    assert longer < QUERIES
    assert one.columns == ("season", "days")
    assert one.message.startswith(
        f"'season', 'days' have one value per list in all {longer} training lists of two or more"
    )
    assert "trees, and a network's encoder and context, can use them" in one.message
    assert found("x", np.where(np.arange(len(query)) == np.argmax(query == 5), 9.0, 1.0), of=of) == []


@pytest.mark.parametrize(("odd", "expected"), [(0, 1), (1, 1), (2, 1), (3, 0)])
def test_a_query_level_column_may_vary_in_a_twentieth_of_the_lists(odd, expected):
    column = RANDOM_QUERY[QUERY] + 0.5 * ((PLACE == 1) & np.isin(QUERY, range(odd)))
    said = found("x", column)
    assert len(said) == expected
    of = "all" if odd == 0 else f"{QUERIES - odd} of"
    assert all(text.startswith(f"'x' has one value per list in {of} {QUERIES} training lists") for text in said)


@pytest.mark.parametrize(("name", "by_name"), [("x", []), ("time", []), ("rank", ["is named like a position"])])
def test_the_largest_numbers_do_no_harm(name, by_name):
    largest = float(np.finfo(np.float32).max)
    of_a_list = np.where(RANDOM_QUERY[QUERY] % 2 == 0, largest, -largest)
    for column, by_values in ((of_a_list, ["has one value per list"]), (np.where(PLACE % 2 == 0, largest, NAN), [])):
        said, expected = found(name, column), by_name + by_values
        assert len(said) == len(expected)
        assert all(text.startswith(f"{name!r} {words}") for text, words in zip(said, expected, strict=True))


def test_too_few_lists_say_nothing_but_names():
    few = lists(queries=FEWEST - 1)
    assert found("x", few[2], of=few) == []
    assert found("x", few[3], of=few) == []
    assert found("x", few[1], of=few) == []
    assert found("x", np.arange(len(few[1])), of=few) == []
    assert "named like a position" in only(found("rank", few[2], of=few))
    assert "looks like a time" in only(found("ts", 1.7e9 + few[2], of=few))
    enough = lists(queries=FEWEST)
    assert "counts the candidates" in only(found("x", enough[2], of=enough))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "level"),
    [("demo", []), ("planted", ["kind"]), ("planted-hidden", ["kind"]), ("shifted", []), ("context", [])],
)
def test_planted_data_are_clean(name, level):
    for seed in range(3):
        splits = load(config.load(name, seed=seed), [])
        said = leaks(splits.train, splits.remedies)
        assert [column for finding in said for column in finding.columns] == level


def test_rows_in_the_order_of_their_labels():
    chosen_first = (LENGTHS, QUERY, PLACE, (PLACE == 0).astype(np.int32), RNG)
    said = only(found("x", NOISE, of=chosen_first))
    assert f"the order of the rows is that of the labels in {QUERIES} of {QUERIES} training queries" in said
    rng = np.random.default_rng(3)
    graded = np.where(PLACE == 0, 3, rng.integers(0, 3, ROWS)).astype(np.int32)
    said = only(found("x", NOISE, of=(LENGTHS, QUERY, PLACE, graded, RNG)))
    assert f"highest label first in {QUERIES} of {QUERIES}" in said
    assert found("x", NOISE) == []


@pytest.mark.parametrize("count", [ListFacts.ordered, ListFacts.puts_first])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (5, 0), (6, 0), (12, 0), (0, 5), (0, 6), (3, 2), (3, 3), (12, 50)])
def test_the_first_lists_decide_only_what_all_would(count, first, last):
    """Of a hundred lists, some of the first and some of the last are not ordered by the column."""
    lengths, query, _, labels, _ = lists(100)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    schema = FeatureSchema(features=(Feature(name="x"),))
    features = np.where((query >= first) & (query < 100 - last), labels, 0).astype(np.float32)[:, None]
    facts = ListFacts(Dataset(features, labels, offsets, tuple(map(str, range(100))), schema))
    found, right = facts.most(count, features[:, 0]), count(facts, features[:, 0])
    assert right <= found
    assert (int(found) >= NEARLY * facts.mixed) == (int(right) >= NEARLY * facts.mixed)
    if right >= NEARLY * facts.mixed:
        assert found == right
