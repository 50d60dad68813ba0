"""Where a file is cut: at the ends of lists, wherever it was read in pieces."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.errors import DataError
from listwright.training.scoring.parts import parts


def cut(frame, sizes, rows, path):
    """The parts of a frame that is read in pieces of these sizes."""
    pieces, start = [], 0
    for size in [*sizes, frame.height]:
        pieces.append(frame[start : start + size])
        start += size
    return [part.rows["query"].to_list() for part in parts(path, iter(pieces), "query", rows)]


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    sizes=st.lists(st.integers(1, 9), max_size=12),
    rows=st.integers(1, 10),
)
def test_parts_are_whole_lists_in_order_and_do_not_depend_on_the_reading(tmp_path_factory, lengths, sizes, rows):
    path = tmp_path_factory.getbasetemp() / "t.csv"
    path.touch()
    frame = pl.DataFrame({"query": [n for n, length in enumerate(lengths) for _ in range(length)]})
    found = cut(frame, sizes, rows, path)
    assert [value for part in found for value in part] == frame["query"].to_list()
    assert found == cut(frame, [], rows, path)
    assert all(set(one).isdisjoint(other) for one, other in pairwise(found))
    longest = max(lengths)
    assert all(rows <= len(part) < rows + longest for part in found[:-1])


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rows_of_a_query_that_stand_apart_are_refused_with_the_line(tmp_path, rows):
    (tmp_path / "t.csv").touch()
    frame = pl.DataFrame({"query": ["a", "a", "b", "c", "a"]})
    with pytest.raises(DataError, match="line 6, column query: query 'a' has rows before, and others between"):
        cut(frame, [], rows, tmp_path / "t.csv")


@pytest.mark.parametrize(("ids", "says"), [([], "has no rows"), (["a", None], "line 3, column query: .* is missing")])
def test_nothing_to_rank_and_no_query_are_refused(tmp_path, ids, says):
    (tmp_path / "t.csv").touch()
    with pytest.raises(DataError, match=says):
        cut(pl.DataFrame({"query": ids}, schema={"query": pl.String}), [], 5, tmp_path / "t.csv")
