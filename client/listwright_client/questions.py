"""Questions to the service: path, body, and how to read the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from listwright_client.answers import Info, Ranking, SentList, read_info, read_ranking
from listwright_client.body import encode, read_ids
from listwright_client.exchange import MOST_BYTES, Reply
from listwright_client.explanations import Explained, SentQuestion, read_explained
from listwright_client.options import CallOptions, ExplainOptions, Features, RerankOptions

T = TypeVar("T")
_WIRE = {"id", "features"}  # a candidate as in HTTP, which a row may be, too

_APART = {*CallOptions.__annotations__, "ids", "feature_names", "timeout_ms"}
"""Words of a call that are no plain fields of the body."""


@dataclass(frozen=True)
class Question(Generic[T]):
    """One question to the service.

    Args:
        read: Function that makes the value out of an answer 200 and the number of attempts.
        body: JSON object with at least one field; None for a GET.
        most_bytes: Bytes of the largest answer that is read.
        candidates: Number of candidates in the body; 0 where it has no list.
    """

    path: str
    read: Callable[[Reply, int], T]
    body: bytes | None = None
    most_bytes: int = MOST_BYTES
    candidates: int = 0


def rerank(features: Features, options: RerankOptions) -> Question[Ranking]:
    """Return the question of ``POST /rerank``; options that are None or absent are not sent."""
    body, sent = _body("rerank", features, options, RerankOptions)
    return Question("/rerank", partial(read_ranking, sent=sent), body, sent.most_bytes, sent.length)


def explain(features: Features, options: ExplainOptions) -> Question[Explained]:
    """Return the question of ``POST /explain``; options that are None or absent are not sent."""
    body, sent = _body("explain", features, options, ExplainOptions)
    question = SentQuestion(sent, options.get("candidate"), options.get("against"), options.get("explain_top_n"))
    return Question("/explain", partial(read_explained, question=question), body, sent.most_bytes, sent.length)


def _body(name: str, features: Features, options: RerankOptions, fields: type) -> tuple[bytes, SentList]:
    """Return the body of a question about a list, and the list that its answer is checked against."""
    unknown = sorted(options.keys() - fields.__annotations__.keys())
    if unknown:
        raise TypeError(f"{name} has no {', '.join(unknown)}: it takes {', '.join(fields.__annotations__)}")
    envelope: dict[str, Any] = {
        word: value for word, value in options.items() if word not in _APART and value is not None
    }
    ids, rows = options.get("ids"), features
    if ids is None and isinstance(rows, list) and all(isinstance(row, Mapping) and {*row} == _WIRE for row in rows):
        ids, features = [row["id"] for row in rows], [row["features"] for row in rows]
    own = None if ids is None else read_ids(ids)  # read once: it may be changed before the answer comes
    body, count = encode(features, own, options.get("feature_names"), envelope)
    return body, SentList(count, own, options.get("id"), options.get("version"), options.get("top_n"))


def info() -> Question[Info]:
    """Return the question of ``GET /info``."""
    return Question("/info", lambda reply, _: read_info(reply))


def ready() -> Question[bool]:
    """Return the question of ``GET /readyz``."""
    return Question("/readyz", lambda *_: True)
