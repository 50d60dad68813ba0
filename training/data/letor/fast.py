"""The fast parser of LETOR text: a whole chunk in a few vector operations, or None on any doubt."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

MAX_INDEX = 65_536
MAX_LABEL = 30
"""LightGBM's table of the gains ``2^y - 1`` ends here."""

MISSING_DOUBLE = float(np.finfo(np.float64).max)
"""1.797693134862315708e+308, which the Istella sets write where a feature has no value (PT-Ranking's notes on its data
sets name it too, and replace it); NaN here."""

FLOAT32_BOUND = 2.0**128 - 2.0**103
"""The smallest number that float32 rounds to infinity."""

_DIGIT, _SPACE, _COLON, _NEWLINE, _QID_LETTER, _MARK, _OTHER = 0, 1, 2, 3, 4, 5, 9
_CLASS = np.full(256, _OTHER, dtype=np.uint8)
_CLASS[list(b"0123456789")] = _DIGIT
_CLASS[list(b"+-.eEna")] = _MARK
_CLASS[list(b"qid")] = _QID_LETTER
_CLASS[[ord(" "), ord(":"), ord("\n")]] = _SPACE, _COLON, _NEWLINE


class Block(NamedTuple):
    """Parsed lines of one chunk."""

    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    qids: list[str]  # of each run of rows with one qid; empty without qids
    runs: Int[np.ndarray, " lists"]  # rows in each run
    lines: Int[np.ndarray, " R"]  # 1-based line of each row


def parse_fast(chunk: bytes, first_line: int, *, with_qid: bool) -> Block | None:
    """Parse regular text in a few vector operations; None on any doubt."""
    if b"#" in chunk:
        chunk = re.sub(rb"[ \t]*#[^\n]*", b"", chunk)
    for odd, plain in ((b"\r\n", b"\n"), (b"\t", b" "), (b" \n", b"\n"), (b"NULL", b"nan")):
        if odd in chunk:
            chunk = chunk.replace(odd, plain)
    text = np.frombuffer(bytearray(chunk), dtype=np.uint8)
    classes = _CLASS[text]
    at = np.flatnonzero((classes >= _SPACE) & (classes <= _NEWLINE))
    kinds = classes[at]
    ends = np.flatnonzero(kinds == _NEWLINE)
    if not _is_regular(classes, at, kinds) or _has_marks_in_names(classes, at, kinds, ends, with_qid=with_qid):
        return None
    if with_qid:
        spaces = np.concatenate([[0], ends[:-1] + 1])  # the separator after each label
        if np.count_nonzero(classes == _QID_LETTER) != 3 * len(ends) or not _names_qid(text, at, spaces):
            return None
        text[(at[spaces][:, None] + np.arange(1, 4)).ravel()] = ord(" ")
    elif (classes == _QID_LETTER).any():
        return None
    text[at[kinds == _COLON]] = ord(" ")
    try:
        numbers = np.fromstring(text.tobytes(), sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    tokens = np.diff(ends, prepend=-1)  # separators of each line, and so its tokens
    if len(numbers) != len(at) - (len(ends) if with_qid else 0):  # 'qid' itself was blanked out
        return None
    return _to_block(numbers, tokens, at, ends, first_line, with_qid=with_qid)


def _is_regular(classes: np.ndarray, at: np.ndarray, kinds: np.ndarray) -> bool:
    """Return whether the text is lines of ``token( token:token)*`` with single separators and no unknown characters."""
    if len(at) == 0 or at[0] == 0 or kinds[0] != _SPACE or (classes == _OTHER).any() or (np.diff(at) == 1).any():
        return False
    before, after = kinds[:-1], kinds[1:]
    good = (
        ((before == _NEWLINE) & (after == _SPACE))
        | ((before == _SPACE) & (after == _COLON))
        | ((before == _COLON) & (after != _COLON))
    )
    return bool(good.all())


def _has_marks_in_names(
    classes: np.ndarray, at: np.ndarray, kinds: np.ndarray, ends: np.ndarray, *, with_qid: bool
) -> bool:
    """Return whether an index or a qid has more than digits: ``1.0`` is no index, and ``1e2`` is not qid 100."""
    highest = np.maximum.reduceat(classes, np.concatenate([[0], at[:-1] + 1]))  # of each token and its separator
    if with_qid and (highest[np.concatenate([[0], ends[:-1] + 1]) + 2] == _MARK).any():
        return True
    return bool((highest[kinds == _COLON] == _MARK).any())


def _names_qid(text: np.ndarray, at: np.ndarray, spaces: np.ndarray) -> bool:
    """Return whether the second token of every line is ``qid``."""
    places = at[spaces]
    return bool((at[spaces + 1] == places + 4).all()) and all(
        (text[places + offset] == letter).all() for offset, letter in enumerate(b"qid", start=1)
    )


def _to_block(
    numbers: np.ndarray, tokens: np.ndarray, at: np.ndarray, ends: np.ndarray, first_line: int, *, with_qid: bool
) -> Block | None:
    """Check the numbers' meaning and build a block; None on any doubt."""
    head = 2 if with_qid else 1  # label and qid come before the index:value pairs
    tokens = tokens - 1 if with_qid else tokens  # 'qid' itself was blanked out
    starts = np.concatenate([[0], np.cumsum(tokens)[:-1]])
    labels = numbers[starts]
    features = _to_matrix(numbers, tokens, starts, head)
    if features is None or not _all_whole(labels, 0, MAX_LABEL):
        return None
    lines = first_line + np.arange(len(ends))
    if not with_qid:
        return Block(features, labels.astype(np.int32), [], np.empty(0, np.int64), lines)
    qids = numbers[starts + 1]
    line_starts = np.concatenate([[0], ends[:-1] + 1])
    spelled = at[line_starts + 2] - at[line_starts + 1] - 1  # characters of each qid
    if not _all_whole(qids, 0, 2**53 - 1):
        return None
    if (spelled != np.char.str_len(qids.astype(np.int64).astype(str))).any():  # 007 keeps its spelling
        return None
    heads = np.flatnonzero(np.concatenate([[True], np.diff(qids) != 0]))
    runs = np.diff(np.append(heads, len(qids)))
    return Block(features, labels.astype(np.int32), [str(int(q)) for q in qids[heads]], runs, lines)


def _to_matrix(
    numbers: np.ndarray, tokens: np.ndarray, starts: np.ndarray, head: int
) -> Float[np.ndarray, "R D"] | None:
    """Scatter the ``index value`` pairs; None if an index or a value needs a closer look."""
    rows = len(tokens)
    width = int(tokens[0]) - head
    if (tokens == tokens[0]).all():
        table = numbers.reshape(rows, -1)[:, head:]
        indices, values = table[:, 0::2], _as_float32(table[:, 1::2])
        if values is None:
            return None
        if (indices == np.arange(1, width // 2 + 1)).all():
            return np.ascontiguousarray(values)
    is_pair = np.ones(len(numbers), dtype=bool)
    is_pair[starts] = False
    if head == 2:
        is_pair[starts + 1] = False
    pairs = numbers[is_pair].reshape(-1, 2)
    row_of = np.repeat(np.arange(rows), (tokens - head) // 2)
    index, values = pairs[:, 0], _as_float32(pairs[:, 1])
    if values is None or not _all_whole(index, 1, MAX_INDEX):
        return None
    if ((np.diff(index) <= 0) & (np.diff(row_of) == 0)).any():
        return None
    features = np.zeros((rows, int(index.max(initial=0))), dtype=np.float32)
    features[row_of, index.astype(np.int64) - 1] = values
    return features


def _all_whole(values: np.ndarray, low: int, high: int) -> bool:
    return bool(((values >= low) & (values <= high)).all() and (values % 1 == 0).all())


def _as_float32(values: np.ndarray) -> np.ndarray | None:
    """Convert the values to float32 with the missing marker as NaN; None if one is too large."""
    if not (np.abs(values) >= FLOAT32_BOUND).any():  # NaN compares False: it is a missing value already
        return values.astype(np.float32)
    values = np.where(values == MISSING_DOUBLE, np.nan, values)
    return None if (np.abs(values) >= FLOAT32_BOUND).any() else values.astype(np.float32)
