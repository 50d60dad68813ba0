"""Where a file is cut: at the ends of lists, wherever it was read in pieces."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.errors import DataError
from listwright.training.scoring.frames import FileRows
from listwright.training.scoring.run import parts

PATH = Path("t.csv")


def cut(frame, sizes, rows):
    """The parts of a frame that is read in pieces of these sizes."""
    pieces, start = [], 0
    for size in [*sizes, frame.height]:
        piece = frame[start : start + size]
        pieces.append(FileRows(PATH, piece, range(start + 2, start + 2 + piece.height)))
        start += size
    return [part.rows["query"].to_list() for part in parts(iter(pieces), "query", rows)]


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    rows=st.integers(1, 10),
    files=st.integers(1, 3),
)
def test_ranges_say_where_the_rows_of_a_part_stand(lengths, sizes, rows, files):
    """However the files are read in pieces; a range for each file."""
    whole = pl.DataFrame({"query": [n for n, length in enumerate(lengths) for _ in range(length)]})
    held, pieces = {Path(str(n)): frame for n, frame in enumerate(whole.iter_slices(-(-whole.height // files)))}, []
    for path, frame in held.items():
        first = 0
        for size in [*sizes, frame.height]:
            piece = frame[first : first + size]
            if piece.height:
                pieces.append(FileRows(path, piece, range(first + 1, first + 1 + piece.height), first))
            first += size
    for part in parts(iter(pieces), "query", rows):
        assert len({path for path, _, _ in part.ranges}) == len(part.ranges)
        assert pl.concat([held[path][first : first + count] for path, first, count in part.ranges]).equals(part.rows)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    sizes=st.lists(st.integers(1, 9), max_size=12),
    rows=st.integers(1, 10),
)
def test_parts_are_whole_lists_in_order_and_do_not_depend_on_the_reading(lengths, sizes, rows):
    frame = pl.DataFrame({"query": [n for n, length in enumerate(lengths) for _ in range(length)]})
    found = cut(frame, sizes, rows)
    assert [value for part in found for value in part] == frame["query"].to_list()
    assert found == cut(frame, [], rows)
    assert all(set(one).isdisjoint(other) for one, other in pairwise(found))
    longest = max(lengths)
    assert all(rows <= len(part) < rows + longest for part in found[:-1])


@pytest.mark.parametrize("sizes", [[], [1], [4], [2, 1, 1]])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rows_of_a_query_that_stand_apart_are_refused_with_the_line(rows, sizes):
    frame = pl.DataFrame({"query": ["a", "a", "b", "c", "a"]})
    with pytest.raises(DataError, match=r"t\.csv, line 6, column query: query 'a' has rows before, and others between"):
        cut(frame, sizes, rows)


def test_the_file_of_a_fault_is_named():
    one, two = (FileRows(Path(f"{n}.csv"), pl.DataFrame({"query": ["a", "b"]}), [5, 9]) for n in (1, 2))
    with pytest.raises(DataError, match=r"2\.csv, line 5, column query: query 'a' has rows before"):
        list(parts(iter([one, two]), "query"))


def test_no_query_is_refused():
    with pytest.raises(DataError, match=r"line 3, column query: .* is missing"):
        cut(pl.DataFrame({"query": ["a", None]}, schema={"query": pl.String}), [], 5)
