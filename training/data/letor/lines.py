"""The precise parser of LETOR text: line by line, as slowly as an error message needs."""

from __future__ import annotations

import re

import numpy as np

from listwright.ranking.errors import DataError
from listwright.ranking.features import spelled
from listwright.training.data.letor.fast import FLOAT32_BOUND, MAX_INDEX, MAX_LABEL, MISSING_DOUBLE, Block


def parse_lines(chunk: bytes, first_line: int, source: str, *, with_qid: bool) -> Block:
    """Parse line by line, as slowly and precisely as an error message needs."""
    rows: list[dict[int, float]] = []
    labels: list[int] = []
    qids: list[str] = []
    runs: list[int] = []
    lines: list[int] = []
    for number, line in enumerate(chunk.split(b"\n"), start=first_line):
        tokens = [(match.start() + 1, match.group()) for match in re.finditer(rb"[^ \t\r\f\v]+", line.split(b"#")[0])]
        if not tokens:
            continue
        fault = _LineFault(source, number, line)
        labels.append(fault.label(*tokens[0]))
        lines.append(number)
        pairs = tokens[1:]
        if with_qid:
            qid = fault.qid(pairs[0] if pairs else (len(line) + 1, b""))
            pairs = pairs[1:]
            if qids and qids[-1] == qid:
                runs[-1] += 1
            else:
                qids.append(qid)
                runs.append(1)
        rows.append(fault.pairs(pairs))
    width = max((max(row, default=0) for row in rows), default=0)
    features = np.zeros((len(rows), width), dtype=np.float32)
    for r, row in enumerate(rows):
        for index, value in row.items():
            features[r, index - 1] = value
    return Block(features, np.array(labels, np.int32), qids, np.array(runs, np.int64), np.array(lines, dtype=np.int64))


class _LineFault:
    """Reads the tokens of one line, and knows where it is when one is wrong."""

    def __init__(self, source: str, number: int, line: bytes) -> None:
        self.source, self.number, self.line = source, number, line

    def label(self, column: int, token: bytes) -> int:
        value = _number(token)
        if value is None or not 0 <= value <= MAX_LABEL or value % 1:
            raise self._error(column, f"expected a relevance label, a whole number from 0 to {MAX_LABEL}", token)
        return int(value)

    def qid(self, placed: tuple[int, bytes]) -> str:
        column, token = placed
        name = token[4:].decode("utf-8", "backslashreplace")
        if not token.startswith(b"qid:") or not name or not name.isprintable():
            raise self._error(
                column,
                "expected qid:ID after the label (files without qid need their group sizes in FILE.query)",
                token,
            )
        return name

    def pairs(self, tokens: list[tuple[int, bytes]]) -> dict[int, float]:
        row: dict[int, float] = {}
        last = 0
        for column, token in tokens:
            left, colon, right = token.partition(b":")
            if not colon or not left.isdigit():
                raise self._error(column, "expected INDEX:VALUE", token)
            index = int(left[:10])
            if not 1 <= index <= MAX_INDEX or len(left) > 10:
                raise self._error(column, f"expected a feature index from 1 to {MAX_INDEX}", token)
            if index <= last:
                raise self._error(column, f"expected a feature index above {last}, indices increase in a line", token)
            row[index] = self._value(column + len(left) + 1, right)
            last = index
        return row

    def _value(self, column: int, token: bytes) -> float:
        value = float("nan") if token and spelled(token.decode("latin1")) is None else _number(token)
        if value is None:
            raise self._error(column, "expected a number, or NULL or nan for a missing value", token)
        if value == MISSING_DOUBLE:
            return float("nan")
        if abs(value) >= FLOAT32_BOUND:
            raise self._error(column, f"expected a number below {FLOAT32_BOUND:.4g} (float32)", token)
        return value

    def _error(self, byte: int, expected: str, token: bytes) -> DataError:
        column = len(self.line[: byte - 1].decode("utf-8", "replace")) + 1  # people count characters
        shown = token[:40].decode("utf-8", "backslashreplace") + ("…" if len(token) > 40 else "")
        found = f"found {shown!r}" if token else "found the end of the line"
        return DataError(self.source, f"{expected}; {found}", line=self.number, column=column)


def _number(token: bytes) -> float | None:
    if b"_" in token or not token.isascii():  # float() reads 1_000 and other digits, LETOR does not
        return None
    try:
        return float(token)
    except ValueError:
        return None
