"""The three parsers of LETOR text are one: on every file, however odd, and on every ruin of a file."""

import io
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from listwright.ranking.errors import DataError
from listwright.training.data.letor import text as letor
from listwright.training.data.letor.fast import parse_fast
from listwright.training.data.letor.text import parse_lines
from support.strategies import scale_examples

QUICK = [parse_fast, letor.parse_compiled]
"""They give up where they have a doubt."""

SPACES = st.sampled_from([b" ", b" ", b" ", b"\t", b"  ", b" \t "])
LINE_ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b" \n", b" # c:1 qid:2\n", b"#\n", b"\n\n"])
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(lambda n: b"%d" % n),
    st.floats(-1e6, 1e6).map(lambda x: repr(x).encode()),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: b"%.9g" % x),
    st.sampled_from([b"0", b".5", b"5.", b"+1", b"-0", b"1E3", b"1e-400"]),
    st.sampled_from([b"nan", b"-nan", b"NULL", b"None", b"n/a", b"\\N", b"1.797693134862315708e+308"]),
)
DIGITS = st.builds(
    lambda whole, part, power: b"%d.%d%s" % (whole, part, b"" if power is None else b"e%d" % power),
    st.integers(0, 10**19),
    st.integers(0, 10**12),
    st.none() | st.integers(-60, 30),
)
LABELS = st.sampled_from([b"0", b"0", b"1", b"2", b"30", b"2.0", b"+1", b"1e0", b"00"])
QIDS = st.one_of(
    st.integers(0, 2**60).map(lambda n: b"%d" % n),
    st.sampled_from([b"007", b"1e2", b"7.0", b"+7", b"nan", b"NULL", b"q-1", b"a:b", b"qid:1", b"1.", b"-1"]),
)
GARBAGE = st.sampled_from(
    [b":", b" ", b"\n", b"\r", b"#", b"qid", b"qid:", b" qid:1 ", b"nan", b"NULL", b"n", b"a", b"inf", b"0x1", b"1"]
) | st.sampled_from(
    [b"-", b"+", b".", b"e", b"E", b";", b",", b"_", b"\x00", b"\xff", b"\x0b", b"\x1c", b"99999999", b""]
)


@st.composite
def files(draw, qids=True):
    """Legal text: rows of a query together, indices increasing."""
    names = draw(st.lists(QIDS, min_size=1, max_size=4, unique=True)) if qids else [b""]
    space = draw(SPACES)
    text = b""
    for name in names:
        for _ in range(draw(st.integers(1, 3))):
            indices = sorted(draw(st.sets(st.integers(1, 12), max_size=6)))
            zeros = draw(st.sampled_from([b"", b"", b"", b"0", b"0" * 12]))
            pairs = [b"%s%d:%s" % (zeros, i, draw(NUMBERS)) for i in indices]
            tokens = [draw(LABELS), *([b"qid:" + name] if qids else []), *pairs]
            text += space.join(tokens) + draw(LINE_ENDS)
    return text


@st.composite
def ruins(draw):
    """A legal file after some cuts and insertions, or no file at all."""
    text = draw(st.one_of(files(), files(), st.binary(max_size=60)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.integers(start, min(len(text), start + 3)))
        text = text[:start] + draw(GARBAGE) + text[stop:]
    return text


def precise(text, *, with_qid=True):
    return parse_lines(text, 1, "x", with_qid=with_qid)


def agree(fast, slow):
    for one, two in zip(fast, slow, strict=True):
        assert np.array_equal(one, two, equal_nan=one is fast.features), (one, two)
    assert [array.dtype for array in fast if array is not fast.qids] == [
        array.dtype for array in slow if array is not slow.qids
    ]


def to_bytes(features):
    return np.where(np.isnan(features), np.float32(np.nan), features).tobytes()  # of one NaN


@given(files())
@settings(max_examples=scale_examples(200))
def test_fast_and_precise_agree_on_legal_text(text):
    slow = precise(text)
    for parse in QUICK:
        fast = parse(text, 1, with_qid=True)
        if fast is not None:
            agree(fast, slow)
    whole = letor.read(io.BytesIO(text), "x")
    assert np.array_equal(whole.features[:, : slow.features.shape[1]], slow.features, equal_nan=True)
    assert list(whole.qids) == [qid for n, qid in enumerate(slow.qids) if n == 0 or qid != slow.qids[n - 1]]


@given(files(qids=False))
def test_fast_and_precise_agree_without_qids(text):
    for parse in QUICK:
        fast = parse(text, 1, with_qid=False)
        if fast is not None:
            agree(fast, precise(text, with_qid=False))


@given(ruins(), st.booleans())
@settings(max_examples=scale_examples(600))
@example(b"1 qid:1 1:2:3 4\n", True)
@example(b"1 qid:1e2 1:2\n", True)
@example(b"1 qid:1 1.0:2\n", True)
@example(b"1 qid:1 +1:2\n", True)
@example(b"1 qid:1 %s1:2\n" % (b"0" * 12), True)
@example(b"1 qid:1 1:2 3:1NULL\n", True)
@example(b"1 5 1:2\n1 qid: qid:5 1:2\n", True)
@example(b"1e999 qid:1 1:2\n", True)
@example(b"1 qid:1 1:nan(1)\n", True)
@example(b"1 qid:1 1: 2:3\n", True)
@example(b"1 qid:1 2:2 2:3\n", True)
@example(b"1 +1:2\n", False)
@example(b"1 5\n", False)
def test_what_the_fast_parsers_take_the_precise_one_takes_alike(text, with_qid):
    """A fast one may give up, but it never accepts what the precise one refuses, and never reads it differently."""
    if not text.endswith(b"\n"):
        text += b"\n"
    for parse in QUICK:
        fast = parse(text, 1, with_qid=with_qid)
        if fast is not None:
            agree(fast, precise(text, with_qid=with_qid))


@given(st.lists(NUMBERS | DIGITS, min_size=1, max_size=20))
@settings(max_examples=scale_examples(300))
def test_numbers_are_those_of_python_to_the_bit(numbers):
    """Many digits and large powers among them, where a quick product would round twice."""
    line = b"0 " + b" ".join(b"%d:%s" % (place, number) for place, number in enumerate(numbers, start=1)) + b"\n"
    for parse in QUICK:
        fast = parse(line, 1, with_qid=False)
        if fast is not None:
            assert to_bytes(fast.features) == to_bytes(precise(line, with_qid=False).features)


def read_or_error(text, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "CHUNK_BYTES", chunk)
        try:
            return letor.read(io.BytesIO(text), "x"), None
        except DataError as error:
            return None, error


@given(ruins(), st.integers(8, 40))
@settings(max_examples=scale_examples(400))
def test_any_bytes_give_a_dataset_or_an_error_with_its_place(text, chunk):
    data, error = read_or_error(text, chunk)
    if data is None:
        assert error.source == "x"
        assert error.line is not None or "holds no candidates" in str(error)
        assert error.line is None or 1 <= error.line <= text.count(b"\n") + 1
    else:
        assert data.rows == len(data.labels) == len(data.features) == data.offsets[-1]
        assert len(data) == len(set(data.qids)) == len(data.offsets) - 1
        assert len(re.findall(rb"[^\s#][^\n]*", re.sub(rb"#[^\n]*", b"", text))) == data.rows
        assert not np.isinf(data.features).any()
