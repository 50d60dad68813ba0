"""Matrices whose rows are read when asked for: every view gives what the same work gives on an array."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.training.data.shards import rows as stored_rows
from listwright.training.data.shards.rows import (
    JoinedRows,
    MappedLists,
    Rows,
    SelectedRows,
    by_chunk,
    chunks,
    columns,
    join_rows,
    map_rows,
    take_rows,
    with_column,
)
from support.strategies import scale_examples


class Remembered(Rows):
    """An array behind the interface; counts the rows that were asked for."""

    def __init__(self, array):
        super().__init__(*array.shape)
        self.array, self.asked = array, 0

    def pick(self, rows):
        self.asked += len(rows)
        return self.array[rows].copy()


def matrix(count=20, width=4):
    found = np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)
    found[1, 2] = np.nan
    return found


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(stored_rows, "CHUNK_ROWS", 7)
    monkeypatch.setattr(stored_rows, "HELD_BYTES", 4 * 20 * 3)  # three columns of 20 rows


KEYS = (
    slice(None), slice(3, 9), slice(9, 3), slice(None, None, 3), 5, -1, np.array([4, 4, 0]), np.arange(20) % 3 == 0,
    (slice(None), 1), (slice(None), -1), (slice(2, 5), slice(1, 3)), (slice(0, 20), np.array([3, 0])), (4, 2), (-2, [0, 1]),
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_rows_are_indexed_as_an_array(key):
    array = matrix()
    np.testing.assert_array_equal(Remembered(array)[key], array[key])


def test_a_row_that_is_not_there_is_refused():
    with pytest.raises(IndexError):
        Remembered(matrix())[20]


def test_chunks_and_columns_are_those_of_the_array():
    array = matrix()
    for features in (array, Remembered(array)):
        found = list(chunks(features))
        np.testing.assert_array_equal(np.concatenate([chunk for _, chunk in found]), array)
        for rows, chunk in found:
            np.testing.assert_array_equal(array[rows], chunk)
        np.testing.assert_array_equal(np.array(list(columns(features))), array.T)
        assert all(column.flags["C_CONTIGUOUS"] for column in columns(features))
        np.testing.assert_array_equal(by_chunk(features, lambda part: part[:, 0] * 2), array[:, 0] * np.float32(2))
    assert len(list(chunks(Remembered(array)))) == 3


def test_columns_read_as_often_as_the_memory_allows():
    rows = Remembered(matrix(width=7))
    list(columns(rows))
    assert rows.asked == 3 * 20


@given(st.data())
@settings(max_examples=scale_examples(50))
def test_views_give_what_the_same_work_gives_on_arrays(data):
    array = matrix()
    views = [(array, Remembered(array))]
    for _ in range(data.draw(st.integers(1, 4))):
        one, other = views[-1]
        count = len(one)
        match data.draw(st.sampled_from(["taken", "mapped", "joined", "column"])):
            case "taken":
                picked = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
                views.append((take_rows(one, picked), take_rows(other, picked)))
            case "mapped":
                views.append(
                    tuple(map_rows(each, one.shape[1], lambda rows: rows[:, ::-1] + 1) for each in (one, other))
                )
            case "joined":
                views.append((join_rows([one, one]), join_rows([other, one])))
            case _:
                values = np.arange(count) / 3
                views.append((with_column(one, values), with_column(other, values)))
    expected, found = views[-1]
    assert isinstance(found, Rows)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found[:], expected)
    some = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=10)), dtype=np.int64)
    np.testing.assert_array_equal(found.pick(some), expected[some])


def test_some_rows_of_some_rows_are_read_through_one_view():
    base = Remembered(matrix())
    twice = SelectedRows(SelectedRows(base, np.arange(10, 20)), np.array([3, 1]))
    np.testing.assert_array_equal(twice[:], base.array[[13, 11]])
    assert twice._base is base


def test_lists_are_mapped_whole_for_any_of_their_rows():
    array, offsets = matrix(), np.array([0, 5, 6, 20])
    expected = np.concatenate([array[a:b] - array[a:b].mean(axis=0) for a, b in ((0, 5), (5, 6), (6, 20))])
    view = MappedLists(Remembered(array), offsets, 4, lambda rows: rows - rows.mean(axis=0))
    np.testing.assert_array_equal(view[:], expected)
    some = np.array([19, 0, 4, 5, 0])
    np.testing.assert_array_equal(view.pick(some), expected[some])
    assert view.pick(np.array([], dtype=np.int64)).shape == (0, 4)


def test_parts_of_an_array_and_of_rows_are_joined():
    array = matrix()
    found = JoinedRows([array[:3], Remembered(array[3:])])
    np.testing.assert_array_equal(found.pick(np.array([19, 2, 3, 0])), array[[19, 2, 3, 0]])
