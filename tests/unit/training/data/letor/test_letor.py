"""SVMrank / LETOR text: what a line means, and what is said of a line that means nothing."""

import gzip
import io

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.training.data.letor import text as letor
from listwright.training.data.letor.fast import parse_fast
from listwright.training.data.letor.text import parse_lines
from support.training.progress import RecordedTask


def read(text, *, groups=None):
    return letor.read(io.BytesIO(text), "a.txt", groups=groups)


def test_rows_queries_and_names():
    data = read(b"2 qid:7 1:0.5 2:-3\n0 qid:7 1:1e2 2:.25\n1 qid:9 1:0 2:4\n")
    assert np.array_equal(data.features, np.float32([[0.5, -3], [100, 0.25], [0, 4]]))
    assert data.features.dtype == np.float32
    assert data.labels.tolist() == [2, 0, 1]
    assert data.labels.dtype == np.int32
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.qids == ("7", "9")
    assert data.schema.names == ("f1", "f2")


def test_an_absent_index_is_zero_and_the_widest_line_counts():
    data = read(b"1 qid:1 2:5\n0 qid:1\n0 qid:1 4:1\n")
    assert np.array_equal(data.features, np.float32([[0, 5, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]))


@pytest.mark.parametrize(
    "word",
    [
        b"NULL",
        b"nan",
        b"NaN",
        b"1.797693134862315708e+308",
        b"1.7976931348623157e308",
        b"null",
        b"NA",
        b"N/A",
        b"None",
        b"\\N",
    ],
)
def test_missing_values(word):
    data = read(b"1 qid:1 1:" + word + b" 2:3\n0 qid:1 1:2 2:" + word + b"\n")
    assert np.array_equal(data.features, np.float32([[np.nan, 3], [2, np.nan]]), equal_nan=True)


@pytest.mark.parametrize(
    "text",
    [
        b"1 qid:1 1:2 2:3\r\n0 qid:1 1:4\r\n",
        b"1 qid:1 1:2 2:3 \n0 qid:1 1:4 \n",
        b"1\tqid:1\t1:2\t2:3\n0\tqid:1\t1:4\t\n",
        b"1  qid:1   1:2 2:3\n   0 qid:1 1:4\n",
        b"1 qid:1 1:2 2:3 # docid = G21 qid:5 1:9\n0 qid:1 1:4#\n",
        b"# a header\n\n1 qid:1 1:2 2:3\n \t\n0 qid:1 1:4\n\n",
        b"1 qid:1 1:2 2:3\n0 qid:1 1:4",
        b"1.0 qid:1 1:2.0 2:+3\n0e0 qid:1 01:4\n",
        b"\xef\xbb\xbf1 qid:1 1:2 2:3\n0 qid:1 1:4\n",
    ],
    ids=[
        "crlf",
        "trailing space",
        "tabs",
        "odd spacing",
        "comments",
        "blank lines",
        "no last line end",
        "odd numbers",
        "a byte order mark",
    ],
)
def test_spellings_of_one_file(text):
    data = read(text)
    assert np.array_equal(data.features, np.float32([[2, 3], [4, 0]]))
    assert data.labels.tolist() == [1, 0]
    assert data.qids == ("1",)


def test_qids_are_kept_as_spelled():
    text = b"".join(b"1 qid:%s 1:2\n" % q for q in (b"007", b"7", b"7.0", b"1e2", b"100", b"WT04-170", b"9" * 20))
    assert read(text).qids == ("007", "7", "7.0", "1e2", "100", "WT04-170", "9" * 20)


def test_the_largest_float32_is_a_value():
    largest = np.finfo(np.float32).max
    assert read(b"0 qid:1 1:3.40282347e+38 2:-3.4028235e38\n").features.tolist() == [[largest, -largest]]


def test_a_feature_value_is_rounded_to_float32_once():
    value = "16777217.0000001"  # just above the middle of two float32: rounding twice would end below
    assert read(f"0 qid:1 1:{value}\n".encode()).features[0, 0] == np.float32(float(value))


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (b"1.5 qid:1 1:2", 1, "expected a relevance label, a whole number from 0 to 30; found '1.5'"),
        (b"-1 qid:1 1:2", 1, "expected a relevance label"),
        (b"  x qid:1 1:2", 3, "expected a relevance label"),
        (b"nan qid:1 1:2", 1, "expected a relevance label"),
        (b"inf qid:1 1:2", 1, "expected a relevance label"),
        (b"1e999 qid:1 1:2", 1, "expected a relevance label"),
        (b"31 qid:1 1:2", 1, "expected a relevance label"),
        (b"1 1:2 2:3", 3, "expected qid:ID after the label"),
        (b"1 qid: 1:2", 3, "expected qid:ID after the label"),
        (b"1 qid:: 1:2:3", 11, "expected a number"),
        (
            b"1",
            2,
            "expected qid:ID after the label (files without qid need their group sizes in FILE.query); found the",
        ),
        (b"1 qid:1 1:2:3 4", 11, "expected a number, or NULL or nan for a missing value; found '2:3'"),
        (b"1 qid:1 1:2 3", 13, "expected INDEX:VALUE; found '3'"),
        (b"1 qid:1 1 :2", 9, "expected INDEX:VALUE"),
        (b"1 qid:1 1: 2:3", 11, "expected a number, or NULL or nan for a missing value; found the end"),
        (b"1 qid:1 1:nan(1)", 11, "expected a number"),
        (b"1 qid:1 1:2i", 11, "expected a number"),
        (b"1 qid:1 qid:2", 9, "expected INDEX:VALUE"),
        (b"1 qib:1 1:2", 3, "expected qid:ID after the label"),
        (b"1 qid:1 1: 2", 11, "expected a number, or NULL or nan for a missing value; found the end"),
        (b"1 qid:1 1.0:2", 9, "expected INDEX:VALUE"),
        (b"1 qid:1 1e0:2", 9, "expected INDEX:VALUE"),
        (b"1 qid:1 0:2", 9, "expected a feature index from 1 to 65536"),
        (b"1 qid:1 65537:2", 9, "expected a feature index from 1 to 65536"),
        (b"1 qid:1 99999999999999999999:2", 9, "expected a feature index from 1 to 65536"),
        (b"1 qid:1 2:2 2:3", 13, "expected a feature index above 2"),
        (b"1 qid:1 2:2 1:3", 13, "expected a feature index above 2"),
        (b"1 qid:1 1:1NULL", 11, "expected a number"),
        (b"1 qid:1 1:1.2.3", 11, "expected a number"),
        (b"1 qid:1 1:1_0", 11, "expected a number"),
        (b"1 qid:1 1:0x1p3", 11, "expected a number"),
        (b"1 qid:1 1:inf", 11, "expected a number below 3.403e+38 (float32)"),
        (b"1 qid:1 1:1e39", 11, "expected a number below 3.403e+38 (float32)"),
        (b"1 qid:1 1:-1.797693134862315708e+308", 11, "expected a number below 3.403e+38 (float32)"),
        (b"1 qid:1 1:\xff\xfe", 11, "found '\\\\xff\\\\xfe'"),
        (b"1 qid:1 1:1\x00", 11, "expected a number"),
        ("1 qid:Käse 1:x".encode(), 14, "expected a number"),
    ],
)
@pytest.mark.parametrize("odd", [b"", b" "], ids=["regular", "odd"])  # both parsers must notice
def test_a_bad_token_is_named_with_its_place(line, column, expected, odd):
    with pytest.raises(DataError) as caught:
        read(b"0 qid:1 1:1\n0 qid:1" + odd + b" 1:1\n" + line + b"\n1 qid:1 1:1\n")
    assert (caught.value.source, caught.value.line, caught.value.column) == ("a.txt", 3, column)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"a.txt, line 3, column {column}: ")


def test_lines_are_counted_over_chunks(monkeypatch):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 64)
    good = b"".join(b"1 qid:%d 1:0.5 3:2\n" % q for q in range(100))
    assert np.array_equal(read(good).features, np.tile(np.float32([0.5, 0, 2]), (100, 1)))
    with pytest.raises(DataError, match="line 101, column 9"):
        read(good + b"1 qid:5x1 1:1\n".replace(b"x", b" "))


def test_a_line_longer_than_a_chunk(monkeypatch):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 16)
    text = b"1 qid:1 " + b" ".join(b"%d:%d" % (i, i) for i in range(1, 50)) + b"\n0 qid:1 1:1\n"
    assert read(text).features[0].tolist() == list(range(1, 50))


def test_a_query_across_chunks_is_one_query(monkeypatch):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 32)
    data = read(b"1 qid:1 1:1\n" * 20 + b"1 qid:2 1:1\n" * 20)
    assert data.qids == ("1", "2")
    assert data.lengths.tolist() == [20, 20]


@pytest.mark.parametrize("chunk", [16, 2**20])
def test_a_query_that_comes_back_is_an_error_with_both_lines(monkeypatch, chunk):
    monkeypatch.setattr(letor, "CHUNK_BYTES", chunk)
    with pytest.raises(DataError, match=r"query '5' comes back here, it began at line 2: keep the rows") as caught:
        read(b"\n1 qid:5 1:1\n0 qid:6 1:1\n0 qid:6 1:1\n1 qid:5 1:1\n")
    assert caught.value.line == 5


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_candidates(text):
    with pytest.raises(DataError, match=r"a\.txt: holds no candidates"):
        read(text)


def test_group_sizes_take_the_place_of_qids():
    data = read(b"1 1:1\n0 2:2\n2\n", groups=np.array([1, 2]))
    assert data.lengths.tolist() == [1, 2]
    assert np.array_equal(data.features, np.float32([[1, 0], [0, 2], [0, 0]]))


def test_group_sizes_must_add_up():
    with pytest.raises(DataError, match=r"has 2 candidates, but its \.query file adds up to 3"):
        read(b"1 1:1\n0 1:2\n", groups=np.array([1, 2]))


def test_qids_beside_group_sizes_are_refused():
    with pytest.raises(DataError, match="expected INDEX:VALUE; found 'qid:4'"):
        read(b"1 qid:4 1:1\n", groups=np.array([1]))


def test_a_damaged_stream_is_an_error_of_the_data():
    whole = gzip.compress(b"".join(b"1 qid:%d 1:%d\n" % (q, q * q) for q in range(5000)))
    with pytest.raises(DataError, match=r"a\.txt: cannot be read to its end"):
        letor.read(gzip.GzipFile(fileobj=io.BytesIO(whole[:-2000])), "a.txt")


def test_progress_counts_kilobytes(monkeypatch):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 50)
    text = b"1 qid:1 1:1\n" * 300
    told = RecordedTask()
    letor.read(io.BytesIO(text), "a.txt", task=told)
    assert len(told.reached) > 50
    assert told.reached == sorted(told.reached)
    assert told.reached[-1] == len(text) // 1000


@pytest.mark.parametrize(
    "text",
    [
        b"2 qid:1 1:0.5 2:NULL\n0 qid:2 1:1 2:2\n",
        b"2 qid:1 1:0.5 4:1e3\r\n0 qid:2 3:-1 \r\n1 qid:2\r\n",
        b"30 qid:9007199254740991 65536:1 # comment\n",
        b"# header\n\n\t1 qid:a:b 1:nan 002:-.5e-3\n",
    ],
)
@pytest.mark.parametrize("parse", [parse_fast, letor.parse_compiled])
def test_regular_text_takes_the_fast_parsers(text, parse):
    """Otherwise every other test could pass on the precise parser alone."""
    if parse is letor.parse_compiled and letor.scan is None:
        pytest.skip("there was no C compiler")
    fast = parse(text, 1, with_qid=True)
    precise = parse_lines(text, 1, "a.txt", with_qid=True)
    assert fast is not None
    assert np.array_equal(fast.features, precise.features, equal_nan=True)
    assert fast.qids == precise.qids
    assert fast.lines.tolist() == precise.lines.tolist()
