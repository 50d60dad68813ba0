"""TREC files: runs and labels read and written, and a run measured as TREC's tools do it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.metrics import HIGHEST_GAIN, JudgedLists, dcg
from listwright.training.data.letor.fast import MAX_LABEL
from listwright.training.data.sources import check_exists

TrecKind = Literal["run", "qrels"]

_TREC: dict[TrecKind, tuple[int, int, int, str]] = {
    "run": (6, 2, 4, "query, Q0, candidate, rank, score, name"),
    "qrels": (4, 2, 3, "query, 0, candidate, label"),
}
"""Fields of a line, which of them are the candidate and its value, and what they are."""


TrecLines = dict[str, dict[str, float]]
"""Values by query id and candidate id."""


@cache
def read_trec(path: Path, kind: TrecKind) -> TrecLines:
    """Read a TREC run, or TREC labels: values by query id and candidate id.

    Raises:
        DataError: if the file is not there, or a line is not of this kind, or names a candidate again.
    """
    check_exists(str(path))
    fields, doc, value, expected = _TREC[kind]
    values: TrecLines = {}
    with path.open(encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                tokens = line.split()
                if not tokens:
                    continue
                if len(tokens) != fields:
                    raise DataError(path, f"expected {expected}; found {len(tokens)} fields", line=number)
                if tokens[doc] in values.setdefault(tokens[0], {}):
                    raise DataError(path, f"query {tokens[0]} has candidate {tokens[doc]} again", line=number)
                values[tokens[0]][tokens[doc]] = _number(path, number, tokens[value], whole=kind == "qrels")
        except UnicodeDecodeError as error:
            raise DataError(path, f"is no text in UTF-8: expected {expected}") from error
    if not values:
        raise DataError(path, f"has no lines: expected {expected}")
    return values


def _number(path: Path, line: int, word: str, *, whole: bool) -> float:
    try:
        number = math.nan if "_" in word else float(int(word)) if whole else float(word)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (whole and number > MAX_LABEL):
        expected = f"a whole number up to {MAX_LABEL}" if whole else "a finite number"
        raise DataError(path, f"expected {expected}; found {word!r}", line=line)
    return number


def run_lines(qid: str, docs: Sequence[str], name: str) -> Iterator[str]:
    """Yield a list's lines of a run; the score is a whole number, which every tool reads exactly."""
    for rank, doc in enumerate(docs, start=1):
        yield f"{_word(qid)} Q0 {_word(doc)} {rank} {len(docs) - rank} {_word(name)}"


def _word(text: str) -> str:
    if not text or text.split() != [text]:
        raise RecipeError(f"--trec: {text!r} is empty or has a blank, which TREC files cannot hold")
    return text


def qrels_lines(qids: Iterable[str], labels: Iterable[Mapping[str, float]]) -> Iterator[str]:
    """Yield the lines of TREC labels; raise RecipeError for a name that cannot stand in such a file."""
    for qid, of_list in zip(qids, labels, strict=True):
        for doc, label in of_list.items():
            yield f"{_word(qid)} 0 {_word(doc)} {int(label)}"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


class Retrieved(NamedTuple):
    """Rankings of the documents that a system has retrieved, of several queries.

    Args:
        scores: ``(R,)`` scores of these documents.
        labels: ``(R,)`` labels of these documents, 0 where they are not judged.
        offsets: ``(N + 1,)`` first document of each query; the last number is the end.
        others: ``(M,)`` labels of the judged documents that each query lacks.
    """

    scores: Float[np.ndarray, " R"]
    labels: Int[np.ndarray, " R"]
    offsets: Int[np.ndarray, " O"]
    others: Sequence[Int[np.ndarray, " M"]]


def retrieve(queries: Sequence[tuple[Mapping[str, float], Mapping[str, int]]]) -> Retrieved:
    """Return rankings by documents' scores and judged labels, for each query; one without any gets one of label 0."""
    scores, labels, others, lengths = list[float](), list[int](), list[np.ndarray](), [0]
    for of_docs, judged in queries:
        scores += of_docs.values() or [0.0]
        labels += [judged.get(doc, 0) for doc in of_docs] or [0]
        others.append(np.array([label for doc, label in judged.items() if doc not in of_docs], dtype=np.int32))
        lengths.append(max(1, len(of_docs)))
    return Retrieved(np.array(scores, np.float64), np.array(labels, np.int32), np.cumsum(lengths), others)


def measure_retrieved(
    metrics: Sequence[str],
    retrieved: Retrieved,
    *,
    of_ideal: Bool[np.ndarray, " R"] | None = None,
    gains: Sequence[float] | None = None,
    highest: float = HIGHEST_GAIN,
) -> dict[str, Float[np.ndarray, " N"]]:
    """Compute metrics of rankings as TREC's tools do: the ideal order has judged documents that a ranking lacks, too.

    Args:
        metrics: Names of the metrics, as of :meth:`listwright.ranking.metrics.JudgedLists.measure`.
        retrieved: The rankings.
        of_ideal: ``(R,)`` True for documents that the ideal order may use, and no others; None for all.
        gains: Gain of label 0, 1 and so on, see :func:`listwright.ranking.metrics.dcg`.
        highest: Gain of the best label.

    Returns:
        ``(N,)`` values of each metric; NaN for the NDCG of a query without a relevant document.
    """
    scores, labels, offsets, others_of = retrieved
    values = JudgedLists(labels, offsets, kept=of_ideal, gains=gains, highest=highest).measure(metrics, scores)
    for n in [n for n, others in enumerate(others_of) if len(others) and others.any()]:
        own, others = labels[offsets[n] : offsets[n + 1]], others_of[n]
        relevant = np.count_nonzero(own > 0)
        for metric, of_queries in values.items():
            kind, _, depth = metric.partition("@")
            if kind == "map":
                of_queries[n] *= relevant / (relevant + np.count_nonzero(others))
            elif kind == "ndcg" and of_ideal is None:
                parts = own, np.concatenate([own, others])
                best, ideal = (dcg(np.sort(part)[::-1], cutoff=int(depth), gains=gains) for part in parts)
                of_queries[n] = np.nan_to_num(of_queries[n]) * best / ideal if ideal > 0.0 else math.nan
    return values
